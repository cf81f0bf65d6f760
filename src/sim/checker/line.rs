//! The waiting line: P17, that the lock goes by ticket, and what may be there of a line and of a
//! reservation, and for how long (P7, P9, P10).
//!
//! A client has a claim from the first attempt that was executed and told it a ticket, until it is
//! granted the lock or nobody of it waits any more. A claim is excused while the place that goes
//! with it may be lost: its client was not subscribed, does not know what became of its attempt,
//! missed its reservation, or the server lost the line. Its next attempt ends that.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::backend::Outcome;
use crate::backend::Value;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::kinds::command::Command;
use crate::kinds::command::WaitMode;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Place as Told;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;
use crate::sim::checker::Checker;
use crate::sim::checker::drifts_by;
use crate::sim::checker::server_side::own_fields;
use crate::sim::client::Client;
use crate::sim::client::Fate;
use crate::sim::client::Flight;
use crate::sim::client::Request;
use crate::sim::kinds::Found;
use crate::sim::places::name_of;
use crate::sim::places::names_line;
use crate::sim::server::FoundLine;

/// What line and lock may be told to last. The scripts have the same times.
const RESERVATION: Duration = Duration::from_millis(1_500);
const LINE: Duration = Duration::from_secs(12);

/// Hand-offs in a row that do not look at the line, and for how long.
const HAND_OFFS: u32 = 16;
const HAND_OFFS_FOR: Duration = Duration::from_millis(50);

/// So many of the first in line have a timer.
const WITH_TIMERS: usize = 8;

/// A name, as those servers have it whose word counts.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::sim) struct View {
    pub(in crate::sim) name: LockName,
    pub(in crate::sim) lock: Option<Found>,
    pub(in crate::sim) line: Option<FoundLine>,
}

impl View {
    fn holds(&self, field: &str) -> bool {
        let place = self.lock.as_ref().and_then(|lock| lock.hold(field));
        place.is_some_and(|place| !place.is_reservation())
    }

    fn reserved_for(&self) -> Option<&str> {
        Some(&self.lock.as_ref()?.reservation()?.field)
    }

    fn places(&self) -> impl Iterator<Item = &str> {
        self.line.iter().flat_map(|line| line.waiting.iter()).map(|(_, field)| &**field)
    }

    fn has_place(&self, field: &str) -> bool {
        self.places().any(|place| place == field)
    }
}

/// A command that was executed.
pub(in crate::sim) struct Executed<'a> {
    pub(in crate::sim) request: &'a Rc<Request>,
    pub(in crate::sim) outcome: &'a Outcome<Value>,
    /// Commands of its script may have been refused.
    pub(in crate::sim) refuses: bool,
    pub(in crate::sim) before: &'a [View],
}

#[derive(Debug, Clone, Copy)]
struct Claim {
    ticket: u64,
    /// The client knows its ticket.
    told: bool,
    excused: bool,
}

/// What is known of the line of a name.
#[derive(Debug, Default)]
pub(super) struct Line {
    claims: BTreeMap<usize, Claim>,
    /// The lock became free in a way that gives it to whoever asks first.
    newcomers_may_overtake: bool,
    /// The holds and the places that were seen last.
    seen_holds: Vec<(String, bool)>,
    seen_places: Vec<String>,
    /// For whom the lock is reserved, and since when.
    reserved: Option<(String, Moment)>,
    /// When the last reservation was made. Where Redis refuses PEXPIRE, what is picked up lasts for
    /// the rest of it.
    last_reserved: Moment,
    /// The last attempt of somebody who waits.
    renewed: Moment,
    /// Places of clients that do not want them, and since when.
    unwanted: Vec<(String, Moment)>,
    /// A replica may have brought back what had been given up.
    restored: bool,
    /// For each client the hand-offs since others could have the lock, and since when.
    rows: BTreeMap<usize, (u32, Moment)>,
    /// For each client the last ticket that ended: with a grant, or with the last waiter.
    over: BTreeMap<usize, u64>,
}

impl Line {
    /// The client has ended.
    pub(super) fn forget(&mut self, client: usize) {
        self.claims.remove(&client);
        self.rows.remove(&client);
    }

    fn excuse(&mut self, client: usize) {
        if let Some(claim) = self.claims.get_mut(&client) {
            claim.excused = true;
        }
    }

    /// The place of a client may be lost. If it knows its ticket it comes back with it.
    fn lose_place(&mut self, client: usize) {
        self.excuse(client);
        if self.claims.get(&client).is_some_and(|claim| !claim.told) {
            self.claims.remove(&client);
        }
    }
}

fn seen_holds(view: &View) -> Vec<(String, bool)> {
    let holds = view.lock.iter().flat_map(|lock| &lock.holds);
    holds.map(|hold| (hold.field.clone(), hold.is_reservation())).collect()
}

fn seen_places(view: &View) -> Vec<String> {
    view.places().map(str::to_owned).collect()
}

/// The ticket that an answer tells, and whether its client hears messages.
fn told_by(command: &Command, reply: &Reply) -> Option<(Told, bool)> {
    match (command, &reply.body) {
        (Command::Acquire { wait, .. }, Body::Acquire(Acquired::Held { place, .. })) => {
            let hears = match wait {
                WaitMode::Try => return None,
                WaitMode::First { hears } | WaitMode::Again { hears, .. } => *hears,
            };
            Some(((*place)?, hears))
        }
        (Command::HandOff { hears, .. }, Body::HandOff(HandedOff::LineFirst { place, .. })) => {
            Some((*place, *hears))
        }
        _ => None,
    }
}

impl Checker {
    fn line_mut(&mut self, name: &LockName) -> Option<&mut Line> {
        self.names.get_mut(name.as_str()).map(|name| &mut name.line)
    }

    /// A replica has taken over, with places and reservations of its own.
    pub(in crate::sim) fn restore_line(&mut self, name: &LockName) {
        if let Some(line) = self.line_mut(name) {
            line.restored = true;
            line.claims.clear();
        }
    }

    // ---- changes that no command has made

    /// Keys have run out, were lost or were deleted since the last look.
    fn note_what_vanished(&mut self, now: Moment, view: &View) {
        let (holds, places) = (seen_holds(view), seen_places(view));
        let Some(line) = self.names.get(view.name.as_str()).map(|name| &name.line) else { return };
        let (holds_changed, places_changed) =
            (line.seen_holds != holds, line.seen_places != places);
        let missed = line.reserved.as_ref().map(|(field, _)| field.clone());
        let missed = missed.filter(|field| view.reserved_for() != Some(field.as_str()));
        let missed = missed.filter(|field| !self.is_dead(field)).and_then(|it| self.key_of(&it));
        let Some(line) = self.line_mut(&view.name) else { return };
        if holds_changed {
            line.newcomers_may_overtake = true;
            if let Some((client, _)) = missed {
                line.excuse(client);
            }
        }
        if places_changed {
            let claimants: Vec<usize> = line.claims.keys().copied().collect();
            claimants.into_iter().for_each(|client| line.lose_place(client));
            line.renewed = now;
        }
        self.note_seen(now, view);
    }

    fn note_seen(&mut self, now: Moment, view: &View) {
        let Some(line) = self.line_mut(&view.name) else { return };
        (line.seen_holds, line.seen_places) = (seen_holds(view), seen_places(view));
        line.unwanted.retain(|(field, _)| view.has_place(field));
        line.restored &= view.line.is_some();
        let known = line.reserved.take();
        line.reserved = view.reserved_for().map(|field| match known {
            Some((same, since)) if same == field => (same, since),
            _ => (field.to_owned(), now),
        });
    }

    /// The id waits for the lock no more: it was granted, or a release of it was sent.
    fn is_dead(&self, field: &str) -> bool {
        let hold = self.key_of(field).and_then(|key| self.holds.get(&key));
        hold.is_none_or(|hold| hold.release_sent || hold.answered_granted)
    }

    // ---- commands

    /// P17, and what becomes of a freed lock.
    pub(in crate::sim) fn on_passed(
        &mut self,
        now: Moment,
        executed: &Executed<'_>,
        after: &[View],
        clients: &[Client],
    ) -> Result<(), String> {
        for (was, is) in executed.before.iter().zip(after) {
            if self.plan.has_line(&was.name) {
                self.note_what_vanished(now, was);
                if own_names(&executed.request.command).any(|name| *name == was.name) {
                    self.look_at_passing(now, executed, (was, is), clients)?;
                }
                self.note_seen(now, is);
            }
        }
        Ok(())
    }

    fn look_at_passing(
        &mut self,
        now: Moment,
        executed: &Executed<'_>,
        (was, is): (&View, &View),
        clients: &[Client],
    ) -> Result<(), String> {
        let Executed { request, outcome, refuses, .. } = *executed;
        let (client, command) = (request.client, &request.command);
        let awaited = request.fate.get() != Fate::Ghost
            && clients[client].serves()
            && clients[client].flights.contains_key(&request.op);
        let reply = match outcome {
            Outcome::Done(value) => match command.read(value.clone()) {
                Outcome::Done(reply) => Some(reply),
                _ => None,
            },
            _ => None,
        };
        let told = reply.as_ref().and_then(|reply| told_by(command, reply));
        if let Some((place, hears)) = told.filter(|_| awaited) {
            if !refuses {
                look_at_entry(command, hears, is)?;
            }
            self.note_ticket(is, client, place.ticket, hears && !refuses, clients);
            let named = match command {
                Command::Acquire { wait: WaitMode::Again { ticket, .. }, .. } => *ticket,
                _ => 0,
            };
            // A server whose clock went back may give a ticket twice.
            if let Some(line) = self.line_mut(&is.name).filter(|_| named != place.ticket) {
                line.over.remove(&client);
            }
        }
        if waits_in_line(command) {
            if let Some(line) = self.line_mut(&is.name) {
                line.renewed = now;
            }
        }
        if matches!(command, Command::ForceRelease { .. }) {
            self.note_robbed(was, is);
        }
        let granted = own_fields(command).into_iter().find(|own| !was.holds(own) && is.holds(own));
        let reserved = is.reserved_for().filter(|field| was.reserved_for() != Some(field));
        if refuses {
            self.note_refusal(is, client);
        } else {
            if let Some(field) = granted {
                self.look_at_grant_in_line((was, is), field, command, awaited, clients)?;
            }
            if let Some(field) = reserved {
                self.look_at_reservation(now, (was, is), field, command, clients)?;
            }
            let passes_on = was.lock.is_some()
                || matches!(command, Command::Release { share: Share::NOTHING, .. });
            let is_free = is.lock.is_none() && is.line.is_some();
            if passes_on && is_free && names_line(command) && reply.is_some() {
                return Err(format!("P9: {command:?} leaves the lock to nobody: {is:?}"));
            }
        }
        if reserved.is_some() {
            self.note_announced(now, &is.name);
        }
        let Some(line) = self.line_mut(&is.name) else { return Ok(()) };
        if granted.is_some() && awaited {
            line.claims.remove(&client);
        }
        if is.lock.is_some() {
            line.newcomers_may_overtake = false;
        } else if was.lock.is_some() && !names_line(command) {
            line.newcomers_may_overtake = true;
        }
        Ok(())
    }

    /// A reservation may be taken away by force, too.
    fn note_robbed(&mut self, was: &View, is: &View) {
        let robbed = was.reserved_for().filter(|field| is.reserved_for() != Some(field));
        let Some((client, _)) = robbed.and_then(|field| self.key_of(field)) else { return };
        if let Some(line) = self.line_mut(&is.name) {
            line.excuse(client);
        }
    }

    fn note_refusal(&mut self, view: &View, client: usize) {
        if let Some(line) = self.line_mut(&view.name) {
            line.newcomers_may_overtake = true;
            line.excuse(client);
            // Whoever was first may have lost its place, and nothing is reserved.
            let claimants: Vec<usize> = line.claims.keys().copied().collect();
            claimants.into_iter().for_each(|client| line.lose_place(client));
        }
    }

    /// A client has a ticket, if it still waits for the answer.
    fn note_ticket(
        &mut self,
        view: &View,
        client: usize,
        ticket: u64,
        hears: bool,
        clients: &[Client],
    ) {
        if !clients[client].waits_for(view.name.as_str()) {
            return;
        }
        let Some(line) = self.line_mut(&view.name) else { return };
        let claim = Claim { ticket, told: false, excused: false };
        line.claims.entry(client).or_insert(claim).excused = !hears;
    }

    /// The lock was granted to a waiter.
    fn look_at_grant_in_line(
        &self,
        (was, is): (&View, &View),
        field: &str,
        command: &Command,
        awaited: bool,
        clients: &[Client],
    ) -> Result<(), String> {
        let line = &self.names[is.name.as_str()].line;
        if is.has_place(field) && !line.restored {
            return Err(format!("P17: who has the lock is in the line: {is:?}"));
        }
        if was.reserved_for() == Some(field) {
            return look_at_pick_up(is, field, command);
        }
        let (newcomer, ticket) = match command {
            Command::Acquire { wait: WaitMode::Again { ticket, .. }, .. } => (false, *ticket),
            Command::HandOff { line_first: false, .. } => return Ok(()),
            Command::HandOff { .. } => (false, 0),
            _ => (true, 0),
        };
        let Some((client, _)) = self.key_of(field) else { return Ok(()) };
        let waits = awaited && clients[client].waits_for(is.name.as_str());
        if !waits || newcomer && line.newcomers_may_overtake {
            return Ok(());
        }
        self.look_at_order(is, client, ticket, clients)
    }

    /// The lock was reserved: for the first in line, and for nobody if it has to stay taken.
    fn look_at_reservation(
        &self,
        now: Moment,
        (was, is): (&View, &View),
        field: &str,
        command: &Command,
        clients: &[Client],
    ) -> Result<(), String> {
        let known = &self.names[is.name.as_str()];
        let leaves = match command {
            Command::Release { field, .. } if !was.holds(field) => Some(field.as_str()),
            _ => None,
        };
        let first = was.places().find(|place| Some(*place) != leaves);
        if first != Some(field) {
            return Err(format!("P17: {field} is not the first in line: {was:?} -> {is:?}"));
        }
        if is.has_place(field) {
            return Err(format!("P17: {field} has the lock reserved, and a place: {is:?}"));
        }
        let sure = now.plus(self.clocks_apart());
        let taken = known.taken.iter().any(|(hold, until)| *until > sure && hold != field);
        if taken && self.knows_clocks() && !known.line.restored {
            return Err(format!("P14: {is:?} is reserved, and taken: {:?}", known.taken));
        }
        let Some((client, _)) = self.key_of(field) else { return Ok(()) };
        let claims = known.line.claims.contains_key(&client) && !self.is_dead(field);
        if claims { self.look_at_order(is, client, 0, clients) } else { Ok(()) }
    }

    /// P17: the lock goes to a client, and nobody before it may be waiting. Without a claim it goes
    /// by the ticket that it names; without a ticket, behind all others.
    fn look_at_order(
        &self,
        view: &View,
        to: usize,
        ticket: u64,
        clients: &[Client],
    ) -> Result<(), String> {
        let line = &self.names[view.name.as_str()].line;
        let named = if ticket == 0 { u64::MAX } else { ticket };
        let own = line.claims.get(&to).map_or(named, |claim| claim.ticket);
        let overtaken = |(client, claim): &(&usize, &Claim)| {
            let other = &clients[**client];
            **client != to
                && claim.ticket < own
                && !claim.excused
                && other.serves()
                && other.shutdown.is_none()
                && other.hears()
                && other.waits_for(view.name.as_str())
        };
        match line.claims.iter().find(overtaken) {
            Some((client, claim)) => Err(format!(
                "P17: {} goes to client {to} with ticket {own}, past client {client}: {claim:?} {view:?}",
                view.name
            )),
            None => Ok(()),
        }
    }

    /// Whoever waits tries at the end of the reservation, or of what it was told before.
    fn note_announced(&mut self, now: Moment, name: &LockName) {
        let steps = Duration::from_millis(20);
        let end = now.plus(RESERVATION + steps + self.way());
        let all_hear = self.plan.faults.silent_loss == 0;
        if let Some(name) = self.names.get_mut(name.as_str()) {
            name.line.last_reserved = now;
            name.sleep_until = if all_hear { end } else { end.max(name.sleep_until) };
        }
    }

    // ---- what clients send and hear

    /// P17: a ticket ends with the grant, or with the last waiter.
    pub(super) fn look_at_ticket(&self, client: usize, command: &Command) -> Result<(), String> {
        let Command::Acquire { name, wait: WaitMode::Again { ticket, .. }, .. } = command else {
            return Ok(());
        };
        let over = self.names.get(name.as_str()).and_then(|name| name.line.over.get(&client));
        match over {
            Some(over) if over == ticket && *ticket > 0 => {
                Err(format!("P17: client {client} has no ticket {ticket} any more: {command:?}"))
            }
            _ => Ok(()),
        }
    }

    /// P17: only a client that is subscribed says that it hears.
    pub(in crate::sim) fn look_at_hearing(
        &self,
        now: Moment,
        command: &Command,
        to: &Client,
        is_subscribed: bool,
    ) -> Result<(), String> {
        let (name, hears) = match command {
            Command::Acquire {
                name,
                wait: WaitMode::First { hears } | WaitMode::Again { hears, .. },
                ..
            }
            | Command::HandOff { name, hears, .. } => (name, *hears),
            _ => return Ok(()),
        };
        let calm = now.since(to.calm_since(name)) > self.promptness();
        match hears && !is_subscribed && calm && self.plan.has_line(name) {
            true => Err(format!("P17: {command:?} of one that is not subscribed")),
            false => Ok(()),
        }
    }

    /// P17: a row of hand-offs has an end.
    pub(super) fn look_at_hand_off(
        &self,
        now: Moment,
        client: usize,
        command: &Command,
    ) -> Result<(), String> {
        let Command::HandOff { name, line_first: false, .. } = command else { return Ok(()) };
        let known = self.names.get(name.as_str()).filter(|_| self.plan.has_line(name));
        let Some((number, since)) = known.and_then(|known| known.line.rows.get(&client)) else {
            return Ok(());
        };
        if *number >= HAND_OFFS || now.since(*since) >= HAND_OFFS_FOR {
            return Err(format!(
                "P17: client {client} hands {name} off past the line, {number} times since {since:?}"
            ));
        }
        Ok(())
    }

    pub(super) fn note_line_answer(
        &mut self,
        now: Moment,
        client: usize,
        command: &Command,
        outcome: &Outcome<Reply>,
    ) {
        let (Command::Acquire { name, share: Share::ONE, .. } | Command::HandOff { name, .. }) =
            command
        else {
            return;
        };
        let Some(line) = self.names.get_mut(name.as_str()).map(|name| &mut name.line) else {
            return;
        };
        match outcome {
            Outcome::Unknown(_) => line.lose_place(client),
            Outcome::NotExecuted(_) => {}
            Outcome::Done(reply) => match (command, &reply.body) {
                (_, Body::Acquire(Acquired::Late)) => line.lose_place(client),
                (_, Body::Acquire(Acquired::Granted { .. }))
                | (_, Body::HandOff(HandedOff::LineFirst { .. }))
                | (
                    Command::HandOff { line_first: true, .. },
                    Body::HandOff(HandedOff::Granted { .. }),
                ) => {
                    line.rows.insert(client, (0, now));
                }
                (_, Body::HandOff(HandedOff::Granted { .. })) => {
                    line.rows.entry(client).or_insert((0, now)).0 += 1;
                }
                _ => {}
            },
        }
        if let Outcome::Done(reply) = outcome {
            if let (
                Command::Acquire { wait: WaitMode::Again { ticket, .. }, .. },
                Body::Acquire(Acquired::Granted { .. }),
            ) = (command, &reply.body)
            {
                line.over.insert(client, *ticket);
            }
            if let (Some(_), Some(claim)) = (told_by(command, reply), line.claims.get_mut(&client))
            {
                claim.told = true;
            }
        }
    }

    /// Nobody of a client waits any more: it has no claim.
    pub(super) fn forget_claims(&mut self, client: usize, to: &Client) {
        for (key, name) in &mut self.names {
            let Some(claim) = name.line.claims.get(&client).copied() else { continue };
            if to.serves() && to.waits_for(key) {
                continue;
            }
            name.line.claims.remove(&client);
            // The place is given up once no attempt is on the wire. Until then a new waiter may go
            // on with it.
            let attempt = |flight: &Flight| name_of(&flight.request.command) == Some(&name.lock);
            if claim.told && !to.flights.values().any(attempt) {
                name.line.over.insert(client, claim.ticket);
            }
        }
    }

    // ---- looked at after each event

    pub(in crate::sim) fn look_at_lines(
        &mut self,
        now: Moment,
        views: &[View],
        clients: &[Client],
    ) -> Result<(), String> {
        for view in views {
            if !self.plan.has_line(&view.name) {
                if view.line.is_some() || view.reserved_for().is_some() {
                    return Err(format!("P17: there must be no line: {view:?}"));
                }
                continue;
            }
            self.note_what_vanished(now, view);
            self.look_at_lives(now, view)?;
            self.look_for_unwanted_places(now, view, clients)?;
            self.look_for_missed_reservation(now, view, clients)?;
        }
        Ok(())
    }

    /// P7, P10: no reservation and no line outlives its time.
    fn look_at_lives(&self, now: Moment, view: &View) -> Result<(), String> {
        let line = &self.names[view.name.as_str()].line;
        let longest = |life: Duration| {
            life + drifts_by(life, 2 * self.plan.drift) + self.skew + Duration::from_millis(3)
        };
        let reservation = view.lock.as_ref().and_then(Found::reservation);
        if let (Some(reservation), Some((_, since))) = (reservation, &line.reserved) {
            let left = reservation.left.unwrap_or(i64::MAX);
            let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
            let too_long = left > longest(RESERVATION);
            if !self.jumped && (too_long || now > since.plus(longest(RESERVATION))) {
                return Err(format!("P7: {view:?} is reserved since {since:?}"));
            }
        }
        let Some(found) = &view.line else { return Ok(()) };
        if found.pttl.is_none() || !self.jumped && now > line.renewed.plus(longest(LINE)) {
            return Err(format!("P10: the line outlives {:?}: {view:?}", line.renewed));
        }
        Ok(())
    }

    /// P10: whoever wants nothing leaves the line.
    fn look_for_unwanted_places(
        &mut self,
        now: Moment,
        view: &View,
        clients: &[Client],
    ) -> Result<(), String> {
        for field in view.places() {
            let Some(key) = self.key_of(field) else {
                return Err(format!("P10: nobody has sent {field}: {view:?}"));
            };
            let client = &clients[key.0];
            let is_dead = self.is_dead(field);
            let wanted = client.waits_for(view.name.as_str()) && !is_dead;
            // Once a clock was set back, an attempt may be executed that nobody expects any more.
            let excused = self.jumped && is_dead;
            let bound = self.plan.command_timeout * 2 + self.promptness();
            let Some(line) = self.line_mut(&view.name) else { continue };
            if wanted || excused || line.restored || !client.works(&view.name) {
                line.unwanted.retain(|(known, _)| known != field);
                continue;
            }
            let since = match line.unwanted.iter().find(|(known, _)| known == field) {
                Some((_, since)) => *since,
                None => {
                    line.unwanted.push((field.to_owned(), now));
                    now
                }
            };
            if now.since(since.max(client.calm_since(&view.name))) > bound {
                return Err(format!("P10: nobody wants {field} since {since:?}: {view:?}"));
            }
        }
        Ok(())
    }

    /// P9: whoever waits and hears picks up what is reserved for it.
    fn look_for_missed_reservation(
        &self,
        now: Moment,
        view: &View,
        clients: &[Client],
    ) -> Result<(), String> {
        let known = &self.names[view.name.as_str()];
        let Some((field, since)) = &known.line.reserved else { return Ok(()) };
        let Some((index, _)) = self.key_of(field) else { return Ok(()) };
        let client = &clients[index];
        let can = client.works(&view.name) && client.hears() && client.shutdown.is_none();
        let silent = self.plan.faults.silent_loss > 0 || known.line.restored;
        if !can || silent || self.is_dead(field) {
            return Ok(());
        }
        let bound = match self.plan.calm {
            true => self.promptness() + Duration::from_millis(20),
            false => self.plan.command_timeout * 2 + self.promptness(),
        };
        let since = (*since).max(client.calm_since(&view.name));
        let late =
            now.since(since) > bound && !self.keeps_others_away(now, index, view.name.as_str());
        let sleeps = self.sleeper(now, client, view.name.as_str(), bound);
        match sleeps.filter(|_| late) {
            Some(request) => Err(format!(
                "P9: {} is reserved since {since:?}, and client {index} {request:?} sleeps on",
                view.name
            )),
            None => Ok(()),
        }
    }

    /// The end of the last reservation of a name.
    pub(super) fn reserved_until(&self, name: &LockName) -> Moment {
        let last = self.names.get(name.as_str()).map(|name| name.line.last_reserved);
        last.filter(|at| *at > Moment::ZERO).map_or(Moment::ZERO, |at| at.plus(RESERVATION))
    }

    /// How soon something is done that takes no further waiting.
    fn promptness(&self) -> Duration {
        Duration::from_millis(if self.plan.calm { 20 } else { 700 })
            + Duration::from_micros(8 * self.plan.latency)
    }

    /// Whether the lock of a name may have to wait for more than a timer: too many dead places.
    pub(super) fn has_timers(&self, name: &str) -> bool {
        self.names[name].line.seen_places.len() < WITH_TIMERS
    }
}

/// Every attempt that waits, and hears, is in the line, whose time to live it sets anew.
fn look_at_entry(command: &Command, hears: bool, is: &View) -> Result<(), String> {
    let (Command::Acquire { field, .. } | Command::HandOff { to: field, .. }) = command else {
        return Ok(());
    };
    if hears != is.has_place(field) {
        return Err(format!("P17: {field} hears {hears}, and its place is: {is:?}"));
    }
    let pttl = is.line.as_ref().and_then(|line| line.pttl);
    let whole = pttl.is_some_and(|left| u128::try_from(left) == Ok(LINE.as_millis()));
    if hears && !whole {
        return Err(format!("P17: {command:?} has not renewed the line: {is:?}"));
    }
    Ok(())
}

/// P7: what is picked up lasts for the lease, and not for what is left of the reservation.
fn look_at_pick_up(is: &View, field: &str, command: &Command) -> Result<(), String> {
    let Command::Acquire { lease, .. } = command else { return Ok(()) };
    let left = is.lock.as_ref().and_then(|lock| lock.hold(field)).and_then(|hold| hold.left);
    if left.is_some_and(|left| u64::try_from(left) == Ok(lease.millis())) {
        return Ok(());
    }
    Err(format!("P7: {command:?} picks up what lasts for {left:?} ms"))
}

/// Whether an attempt waits in a line that it names.
fn waits_in_line(command: &Command) -> bool {
    match command {
        Command::Acquire { wait, share: Share::ONE, line: true, .. } => *wait != WaitMode::Try,
        Command::HandOff { line_first, .. } => *line_first,
        _ => false,
    }
}

fn own_names(command: &Command) -> impl Iterator<Item = &LockName> {
    let many = match command {
        Command::ReleaseMany(holds) => &holds[..],
        _ => &[],
    };
    let one = name_of(command).filter(|_| many.is_empty());
    one.into_iter().chain(many.iter().map(|item| &item.name))
}
