//! Commands: what may be sent, what they may do to the keys, and what their answers mean.

use std::time::Duration;

use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::Value;
use crate::base::clock::Moment;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Forced;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;
use crate::sim::checker::Checker;
use crate::sim::client::Request;
use crate::sim::kinds::Found;
use crate::sim::kinds::Place;
use crate::sim::kinds::id_part;
use crate::sim::kinds::rules_of;
use crate::sim::server::Process;

/// A command on its way.
#[derive(Debug)]
pub(super) struct Sent {
    at: Moment,
    command: Command,
    /// It has less time than commands have: no answer in that time is no trouble of the server.
    pub(super) cut_short: bool,
}

impl Checker {
    // ---- sent

    pub(in crate::sim) fn on_send(
        &mut self,
        now: Moment,
        client: usize,
        op: OpId,
        (command, timeout): (&Command, Duration),
        to: &Process,
    ) -> Result<(), String> {
        match command {
            Command::Renew { holds, .. } => {
                for item in holds {
                    if self.hold_of(&item.field).is_some_and(|hold| hold.release_sent) {
                        return Err(format!(
                            "P7: {} is renewed after its release was sent",
                            item.field
                        ));
                    }
                }
            }
            Command::Acquire { field, .. }
            | Command::Upgrade { to: field, .. }
            | Command::HandOff { to: field, .. }
                if self.hold_of(field).is_some_and(|hold| hold.release_sent) =>
            {
                return Err(format!("P7: {field} is acquired after its release was sent"));
            }
            Command::HandOff { name, to, .. } if !rules_of(name).promises().hands_off => {
                return Err(format!(
                    "P15: {name}, whose kind forbids hand-offs, is handed to {to}"
                ));
            }
            _ => {}
        }
        if let Command::Upgrade { from, to, .. } = command
            && let (Some(from), Some(to)) = (self.key_of(from), self.key_of(to))
        {
            self.upgraded.insert(to, from);
        }
        self.look_at_hand_off(now, client, command)?;
        self.look_at_ticket(client, command)?;
        for field in released_by(command) {
            if let Some(hold) = self.hold_of(field) {
                hold.release_sent = true;
            }
        }
        self.on_sent_on(now, command, to);
        let cut_short = timeout < self.plan.command_timeout;
        self.sent.insert((client, op), Sent { at: now, command: command.clone(), cut_short });
        Ok(())
    }

    /// How long a command may be executed depends on the clock of the server that gets it.
    pub(in crate::sim) fn on_sent_on(&mut self, now: Moment, command: &Command, to: &Process) {
        let Some(name) = command.name().cloned() else { return };
        let mut note = |name, field: &str, lease: LeaseMs, not_after: ServerTime| {
            let Some(hold) = self.hold_of(field) else { return };
            hold.name = Some(name);
            let latest = to.moment_of(now, not_after.0);
            hold.not_after = hold.not_after.max(latest);
            // Short of it, for clocks of other rates. What was sent before under this id has been
            // answered.
            hold.open_until = now.plus(latest.since(now) * 9 / 10);
            hold.lease_ms = hold.lease_ms.max(lease.millis());
        };
        match command {
            Command::Acquire { field, lease, not_after, .. }
            | Command::Upgrade { to: field, lease, not_after, .. } => {
                note(name, field, *lease, *not_after)
            }
            Command::HandOff { to, lease, not_after, .. } => note(name, to, *lease, *not_after),
            Command::Renew { holds, not_after } => {
                for item in holds {
                    note(item.name.clone(), &item.field, item.lease, *not_after);
                }
            }
            _ => {}
        }
    }

    // ---- answered

    /// What a client may believe, and must stop to believe, after an answer.
    pub(super) fn on_replied(
        &mut self,
        now: Moment,
        client: usize,
        op: OpId,
        outcome: &Outcome<Reply>,
    ) {
        let Some(Sent { at, command, .. }) = self.sent.remove(&(client, op)) else { return };
        self.note_line_answer(now, client, &command, outcome);
        let reply = match outcome {
            Outcome::Done(reply) => reply,
            Outcome::NotExecuted(failure) if !failure.kind.is_transient() => {
                return self.on_refused_for_good(now, client, &command);
            }
            Outcome::Unknown(_) => return self.note_dead(&command),
            Outcome::NotExecuted(_) => return,
        };
        match (&command, &reply.body) {
            (
                Command::Acquire { name, field, lease, .. }
                | Command::Upgrade { name, to: field, lease, .. },
                Body::Acquire(acquired),
            ) => {
                let is_new = new_hold(&command).is_some();
                match acquired {
                    Acquired::Granted { .. } => {
                        self.allow(field, at, *lease);
                        self.note_held(client, name.as_str(), now);
                        if is_new && !name.kind().waits_per_owner() {
                            // One more level of a hold that is there says nothing of the other
                            // places, nor does the hold of another owner that waits for itself.
                            self.refused.remove(&(client, name.to_string()));
                        }
                        if let Some(hold) = self.hold_of(field) {
                            hold.answered_granted = true;
                            hold.level_sent = at;
                        }
                    }
                    Acquired::Held { .. } => {
                        self.note_held(client, name.as_str(), now);
                        self.refused.insert((client, name.to_string()), now);
                    }
                    Acquired::Gone | Acquired::Foreign | Acquired::Conflict(_) if !is_new => {
                        self.end(field)
                    }
                    _ => {}
                }
            }
            (Command::HandOff { name, from, to, lease, .. }, Body::HandOff(handed)) => {
                if matches!(handed, HandedOff::LineFirst { .. }) {
                    self.refused.insert((client, name.to_string()), now);
                }
                if matches!(handed, HandedOff::Granted { .. }) {
                    self.allow(to, at, *lease);
                    self.note_held(client, name.as_str(), now);
                    self.refused.remove(&(client, name.to_string()));
                    if let Some(hold) = self.hold_of(to) {
                        hold.answered_granted = true;
                        hold.level_sent = at;
                    }
                }
                self.note_released(now, client, from);
            }
            (Command::Release { field, share, .. }, Body::Release(released)) => match released {
                Released::Gone | Released::Foreign if *share != Share::NOTHING => self.end(field),
                _ if *share == Share::NOTHING => self.note_released(now, client, field),
                _ => {}
            },
            (Command::ReleaseAt { field, .. }, Body::Release(_)) => {
                self.note_released(now, client, field)
            }
            (Command::ReleaseMany(holds), Body::ReleaseMany(answers)) => {
                for (item, _) in holds.iter().zip(answers).filter(|(_, answer)| answer.is_some()) {
                    self.note_released(now, client, &item.field);
                }
            }
            (Command::Renew { holds, .. }, Body::Renew(Some(answers))) => {
                for (item, answer) in holds.iter().zip(answers) {
                    match answer {
                        Renewed::Yes if item.lease != LeaseMs::PROBE => {
                            self.allow(&item.field, at, item.lease)
                        }
                        Renewed::Gone | Renewed::Foreign => self.end(&item.field),
                        Renewed::Refused => self.refusals[client].permission = true,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// Rule 2: what may still be granted is not forgotten before that is over.
    fn note_dead(&mut self, command: &Command) {
        if let Some((_, field)) = new_hold(command) {
            let until = self.hold_of(field).map(|hold| hold.open_until);
            if let (Some(key), Some(until)) = (self.key_of(field), until) {
                self.dead.insert(key, until);
            }
        }
    }

    /// A release that is refused for good leaves its key to its lease.
    fn on_refused_for_good(&mut self, now: Moment, client: usize, command: &Command) {
        if let Command::Release { field, share: Share::NOTHING, .. }
        | Command::ReleaseAt { field, .. } = command
        {
            if let Some(hold) = self.hold_of(field) {
                hold.excused = true;
            }
            self.note_released(now, client, field);
        }
    }

    fn allow(&mut self, field: &str, sent: Moment, lease: LeaseMs) {
        if let Some(hold) = self.hold_of(field) {
            hold.allowed_until = hold.allowed_until.max(sent.plus(lease.duration()));
        }
    }

    fn note_held(&mut self, client: usize, name: &str, now: Moment) {
        self.held_said.insert((client, name.to_owned()), now);
    }

    fn note_released(&mut self, now: Moment, client: usize, field: &str) {
        let Some(hold) = self.hold_of(field) else { return };
        hold.release_done = true;
        if let Some(name) = hold.name.clone() {
            self.note_held(client, name.as_str(), now);
        }
    }

    fn end(&mut self, field: &str) {
        self.must_end.extend(self.key_of(field));
    }

    // ---- executed

    /// P2, P4, P5 and rule 7, at the server.
    pub(in crate::sim) fn on_executed(
        &mut self,
        now: Moment,
        process: &Process,
        request: &Request,
        before: &[Found],
        after: &[Found],
        outcome: &Outcome<Value>,
    ) -> Result<(), String> {
        let command = &request.command;
        let own: Vec<&str> = own_fields(command).into_iter().map(id_part).collect();
        if process.deposed.is_some() {
            self.fence_was_lost = true;
            for field in &own {
                self.breach(now, field, "a server executed this that another had followed");
                self.revive(field);
            }
        }
        for was in before {
            let is = after.iter().find(|is| is.name == was.name);
            for hold in &was.holds {
                self.look_at_change(now, command, (was, hold), is, &own)?;
            }
            let rules = rules_of(&was.name);
            if !rules.has_room(&was.holds) && is.is_none_or(|is| rules.has_room(&is.holds)) {
                self.on_freed(&was.name, command, outcome);
            }
        }
        after.iter().try_for_each(|lock| self.check_places(lock))?;
        if let Some(name) = command.name() {
            rules_of(name).look(&process.keys, process.time(now), name)?;
        }
        if let Some(is) = after.iter().find(|is| is.pttl.is_none()) {
            return Err(format!("P7: no time to live: {is:?} after {command:?}"));
        }
        let Outcome::Done(value) = outcome else { return Ok(()) };
        self.on_minted(command, value)?;
        let Outcome::Done(reply) = command.read(value.clone()) else { return Ok(()) };
        self.on_refused(now, command, &reply);
        on_counted(command, &reply, before, after)?;
        self.look_at_grant(now, process, command, &reply, before)?;
        on_late(process.time(now), command, &reply)
    }

    /// What a command did to a hold that was there before it.
    fn look_at_change(
        &mut self,
        now: Moment,
        command: &Command,
        (lock, was): (&Found, &Place),
        lock_is: Option<&Found>,
        own: &[&str],
    ) -> Result<(), String> {
        let is = lock_is.and_then(|lock| lock.hold(&was.field));
        // A hold that has become a reservation is over. That happens after a release or a
        // force-unlock if its place is still in line, because the server refused to remove it.
        let is = is.filter(|is| was.is_reservation() || !is.is_reservation());
        if was.is_dead() {
            return Ok(());
        }
        if !own.contains(&was.field.as_str()) {
            // A write beside a read lasts as long as the key, which the read's renewal extends.
            let lasts_longer = |is: &&Place| {
                let same = Place { left: was.left, ..(*is).clone() } == *was;
                let is_beside = self.key_of(&was.field).map(|key| self.upgraded.contains_key(&key));
                same && was.exclusive && is_beside == Some(true) && is.left >= was.left
            };
            if is != Some(was) && is.filter(lasts_longer).is_none() {
                return Err(format!("P4: {was:?} in {lock:?} became {lock_is:?} by {command:?}"));
            }
            return Ok(());
        }
        // A release of which the server refuses a part may leave the rest of the time to the hold.
        let shortens = matches!(command, Command::ReleaseAt { .. });
        if self.is_only_reserved(&lock.name, was) {
            return Ok(());
        }
        if !shortens && is.is_some_and(|is| is.left < was.left) {
            return Err(format!("P7: a TTL was shortened: {was:?} -> {is:?} by {command:?}"));
        }
        if is.is_some() {
            return Ok(());
        }
        if was.is_over(rules_of(&lock.name)) {
            return Ok(());
        }
        if is_forced(command) {
            self.breach(now, &was.field, "force-unlock");
            self.keeps_no_more(lock.name.as_str(), Some(was.hold_field().0));
        } else if self.knows_clocks()
            && self
                .hold_of(&was.field)
                .is_some_and(|hold| hold.left && now <= hold.key_end.max(hold.allowed_until))
        {
            // Where a clock was set, and beside another hold, it may be there long after the lease.
            return Err(format!(
                "P14: {was:?} was left to its lease, and is released by {command:?}"
            ));
        }
        Ok(())
    }

    /// P14, at the server.
    fn look_at_grant(
        &mut self,
        now: Moment,
        process: &Process,
        command: &Command,
        reply: &Reply,
        before: &[Found],
    ) -> Result<(), String> {
        let (name, field, lease) = match (command, &reply.body) {
            (
                Command::Acquire { name, field, lease, .. },
                Body::Acquire(Acquired::Granted { .. }),
            ) => (name, field, *lease),
            (
                Command::HandOff { name, to, lease, .. },
                Body::HandOff(HandedOff::Granted { .. }),
            ) => (name, to, *lease),
            _ => return Ok(()),
        };
        if let Some(hold) = self.hold_of(field) {
            hold.begun = if hold.begun == Moment::ZERO { now } else { hold.begun };
            let lasts = lease.duration() + rules_of(name).outlasts();
            hold.key_end = hold.key_end.max(now.plus(lasts));
        }
        let had = |was: &Found| was.hold(field).is_some_and(|was| !was.is_reservation());
        let is_new = !before.iter().any(|was| was.name == *name && had(was));
        let sure = now.plus(self.clocks_apart());
        let counts = is_new && process.deposed.is_none() && self.knows_clocks();
        let Some(known) = self.names.get_mut(name.as_str()) else { return Ok(()) };
        known.taken.retain(|(_, until)| *until > now);
        // A hold may have several levels that keep the name.
        let mut others: Vec<&str> = known
            .taken
            .iter()
            .filter(|(_, until)| *until > sure)
            .map(|(hold, _)| &**hold)
            .collect();
        others.sort_unstable();
        others.dedup();
        let mut together: Vec<Place> =
            others.iter().map(|hold| Place::of((*hold).to_owned(), 1)).collect();
        if counts && !together.is_empty() && !together.iter().any(|hold| hold.field == *field) {
            together.push(Place::of(field.clone(), 1));
            if !known.rules().allows(&together) {
                return Err(format!(
                    "P14: {field} is granted {name}, which is taken: {:?}",
                    known.taken
                ));
            }
        }
        Ok(())
    }

    /// Whoever waits hears of it, if it was published.
    fn on_freed(&mut self, name: &LockName, command: &Command, outcome: &Outcome<Value>) {
        let reply = match outcome {
            Outcome::Done(value) => command.read(value.clone()),
            _ => return,
        };
        let Outcome::Done(reply) = reply else { return };
        let receivers = match &reply.body {
            Body::Release(Released::Freed { receivers })
            | Body::HandOff(HandedOff::ReleasedOnly { receivers, .. })
            | Body::Force(Forced::Freed { receivers }) => *receivers,
            Body::ReleaseMany(each) => released_of_many(command, each, name),
            _ => None,
        };
        if let Some(name) = self.names.get_mut(name.as_str()) {
            name.announced = receivers.is_some() && self.plan.faults.silent_loss == 0;
        }
    }

    /// Whoever is refused sleeps for as long as it is told, or up to its fallback.
    fn on_refused(&mut self, now: Moment, command: &Command, reply: &Reply) {
        let (Command::Acquire { name, .. }, Body::Acquire(Acquired::Held { pttl, .. })) =
            (command, &reply.body)
        else {
            return;
        };
        let told = Duration::from_millis(u64::try_from(*pttl).unwrap_or(0) + 1);
        // Those in line try one after the other.
        let steps = Duration::from_millis(20);
        let sleep = told.min(self.plan.fallback * 11 / 10) + steps + self.way();
        if let Some(name) = self.names.get_mut(name.as_str()) {
            name.sleep_until = name.sleep_until.max(now.plus(sleep));
        }
    }

    /// On its way an answer gets older, in bad times much older.
    pub(super) fn way(&self) -> Duration {
        if self.plan.calm {
            Duration::from_micros(2 * self.plan.latency)
        } else {
            Duration::from_secs(2)
        }
    }

    /// P2: what is minted grows.
    fn on_minted(&mut self, command: &Command, value: &Value) -> Result<(), String> {
        let Some((name, field)) = new_hold(command) else { return Ok(()) };
        let token = match value {
            Value::List(list) => match list.as_slice() {
                [Value::Int(1), _, Value::Int(token)] => token.unsigned_abs(),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        let repeats = self.tokens_may_repeat();
        let Some(known) = self.names.get_mut(name.as_str()) else { return Ok(()) };
        if token <= known.last_token && !repeats {
            return Err(format!("P2: token {token} of {field} after {}", known.last_token));
        }
        known.last_token = token;
        if let Some(hold) = self.hold_of(field) {
            hold.tokens.push(token);
        }
        Ok(())
    }
}

/// P5: the count that was asked for is the one that is there. A hand-off that comes once more
/// leaves the count alone.
fn on_counted(
    command: &Command,
    reply: &Reply,
    before: &[Found],
    after: &[Found],
) -> Result<(), String> {
    let (name, field, wanted) = match (command, &reply.body) {
        (Command::Acquire { name, field, share, .. }, Body::Acquire(Acquired::Granted { .. }))
            if *share != Share::ONE =>
        {
            (name, field, *share)
        }
        // A place that has run out may get a count as long as its fields are there.
        (Command::Release { name, field, share, .. }, Body::Release(Released::CountSet))
            if before.iter().any(|was| was.name == *name && was.hold(field).is_some()) =>
        {
            (name, field, *share)
        }
        (Command::HandOff { name, from, to, .. }, Body::HandOff(HandedOff::Granted { .. }))
            if before.iter().any(|was| was.name == *name && was.hold(from).is_some()) =>
        {
            (name, to, Share::ONE)
        }
        _ => return Ok(()),
    };
    let is = after.iter().find(|is| is.name == *name);
    let count = is.and_then(|is| is.hold(field)).and_then(|hold| hold.count.parse::<u32>().ok());
    let (share, wanted) = (wanted, rules_of(name).count(wanted));
    // Of a writer only the writes are exact. An acquire takes no reads away from it: those that were
    // given up go with the next release. Reads that writes became are added when it ends to write.
    let is_inexact = rules_of(name).keeps_what_was_given_up();
    let least = if is_inexact && share.exclusive > 0 { share.exclusive } else { wanted };
    if count.is_some_and(|count| count == wanted || is_inexact && count >= least) {
        return Ok(());
    }
    Err(format!("P5: {command:?} leaves {is:?}"))
}

/// Nothing is granted or renewed after its `not_after`.
fn on_late(time: i64, command: &Command, reply: &Reply) -> Result<(), String> {
    let not_after = match command {
        Command::Acquire { not_after, .. }
        | Command::Upgrade { not_after, .. }
        | Command::HandOff { not_after, .. }
        | Command::ForceRelease { not_after, .. }
        | Command::Renew { not_after, .. } => not_after.0,
        _ => return Ok(()),
    };
    let done = matches!(
        &reply.body,
        Body::Acquire(Acquired::Granted { .. })
            | Body::HandOff(HandedOff::Granted { .. })
            | Body::Force(Forced::Freed { .. })
            | Body::Renew(Some(_))
    );
    if done && time > not_after {
        return Err(format!("P7: done {} us late: {command:?}", time - not_after));
    }
    Ok(())
}

/// The name and the field of a hold that was not there before the command.
fn new_hold(command: &Command) -> Option<(&LockName, &str)> {
    match command {
        Command::Acquire { name, field, share, .. } => {
            rules_of(name).is_new(*share).then_some((name, field))
        }
        Command::HandOff { name, to, .. } | Command::Upgrade { name, to, .. } => Some((name, to)),
        _ => None,
    }
}

fn is_forced(command: &Command) -> bool {
    matches!(command, Command::ForceRelease { .. })
}

/// The holds whose last release this is.
fn released_by(command: &Command) -> Vec<&str> {
    match command {
        Command::Release { field, share: Share::NOTHING, .. }
        | Command::ReleaseAt { field, .. }
        | Command::HandOff { from: field, .. } => vec![field],
        Command::ReleaseMany(holds) => holds.iter().map(|item| item.field.as_str()).collect(),
        _ => Vec::new(),
    }
}

/// Who was told that one of many was freed. A name may be among them twice.
fn released_of_many(command: &Command, each: &[Option<Released>], name: &LockName) -> Option<u64> {
    let Command::ReleaseMany(holds) = command else { return None };
    let mut of_name = holds.iter().zip(each).filter(|(item, _)| item.name == *name);
    of_name.find_map(|(_, released)| match released {
        Some(Released::Freed { receivers }) => *receivers,
        _ => None,
    })
}

/// The holds that a command may touch.
pub(super) fn own_fields(command: &Command) -> Vec<&str> {
    match command {
        Command::Acquire { field, .. }
        | Command::Release { field, .. }
        | Command::Downgrade { field, .. }
        | Command::ReleaseAt { field, .. } => vec![field],
        Command::HandOff { from, to, .. } | Command::Upgrade { from, to, .. } => vec![from, to],
        Command::ReleaseMany(holds) => holds.iter().map(|item| item.field.as_str()).collect(),
        Command::Renew { holds, .. } => holds.iter().map(|item| item.field.as_str()).collect(),
        Command::ForceRelease { expected, .. } => vec![expected],
        Command::Time
        | Command::Ping
        | Command::Info
        | Command::Permissions(_)
        | Command::Operate(_)
        | Command::Count { .. }
        | Command::Inspect { .. }
        | Command::Raise { .. } => Vec::new(),
    }
}
