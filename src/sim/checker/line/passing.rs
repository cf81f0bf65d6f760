//! What a command does to a line and to a lock that others wait for (P17, P9, P14, P7).

use std::time::Duration;

use crate::backend::Outcome;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::kinds::command::Command;
use crate::kinds::command::WaitMode;
use crate::kinds::share::Share;
use crate::sim::checker::Checker;
use crate::sim::checker::line::Claim;
use crate::sim::checker::line::Executed;
use crate::sim::checker::line::LINE;
use crate::sim::checker::line::RESERVATION;
use crate::sim::checker::line::View;
use crate::sim::checker::line::told_by;
use crate::sim::checker::server_side::own_fields;
use crate::sim::client::Client;
use crate::sim::client::Fate;
use crate::sim::kinds::rules_of;
use crate::sim::places::names_line;

impl Checker {
    /// P17, and what becomes of a freed lock.
    pub(in crate::sim) fn on_passed(
        &mut self,
        now: Moment,
        executed: &Executed<'_>,
        after: &[View],
        clients: &[Client],
    ) -> Result<(), String> {
        for (was, is) in executed.before.iter().zip(after) {
            if self.plan.has_line_of_clients(&was.name) {
                self.note_what_vanished(now, was);
                if own_names(&executed.request.command).any(|name| *name == was.name) {
                    self.look_at_passing(now, executed, (was, is), clients)?;
                }
                self.note_seen(now, is);
            } else if rules_of(&was.name).promises().in_order && !executed.refuses {
                look_at_order(&executed.request.command, was, is)?;
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

/// P17: whoever has got the lock, or a reservation, had the lowest ticket, that of its place or the one
/// that it has named. Places of clients that do not keep up are removed before that.
fn look_at_order(command: &Command, was: &View, is: &View) -> Result<(), String> {
    let named = match command {
        Command::Acquire { wait: WaitMode::Again { ticket, .. }, field, .. } => {
            Some((*ticket as f64, field.as_str()))
        }
        _ => None,
    };
    for hold in is.lock.iter().flat_map(|lock| &lock.holds) {
        let (field, _) = hold.hold_field();
        if was.lock.as_ref().is_some_and(|lock| lock.hold(field).is_some()) {
            continue;
        }
        let own = was.tickets().chain(named).find(|(_, place)| *place == field);
        let own = own.map(|(ticket, _)| ticket);
        let overtaken = is
            .tickets()
            .find(|(ticket, place)| *place != field && own.is_none_or(|own| *ticket < own));
        if let Some((ticket, place)) = overtaken {
            let message = format!("{field} with {own:?} overtakes {place} with {ticket}");
            return Err(format!("P17: {message}: {is:?}"));
        }
    }
    Ok(())
}

fn own_names(command: &Command) -> impl Iterator<Item = &LockName> {
    let many = match command {
        Command::ReleaseMany(holds) => &holds[..],
        _ => &[],
    };
    let one = command.name().filter(|_| many.is_empty());
    one.into_iter().chain(many.iter().map(|item| &item.name))
}
