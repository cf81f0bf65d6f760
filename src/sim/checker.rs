//! What must be true, looked at after every event. The letters are those of the properties:
//! P1 exclusion, P2 tokens, P4 owner only, P5 counts, P6 loss in time, P7 no immortal lock, P9 no lost wake-up,
//! P11 honest answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Outcome;
use crate::backend::Value;
use crate::cell::HoldCell;
use crate::clock::Moment;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::error::Error;
use crate::error::LossReason;
use crate::lease::LeaseMs;
use crate::owner::OwnerKey;
use crate::scripts::reentrant::Acquired;
use crate::scripts::reentrant::Body;
use crate::scripts::reentrant::Command;
use crate::scripts::reentrant::HandedOff;
use crate::scripts::reentrant::Reply;
use crate::scripts::reentrant::ServerTime;
use crate::sim::client::Ask;
use crate::sim::client::Client;
use crate::sim::client::Request;
use crate::sim::client::Slot;
use crate::sim::plan::Nemesis;
use crate::sim::plan::Plan;
use crate::sim::server::Found;
use crate::sim::server::Server;

/// How late a timer of ours may ring, and mail arrive.
const LATE: Duration = Duration::from_millis(5);

/// A hold as it can be known from outside.
#[derive(Debug, Default)]
struct Hold {
    cell: Option<Arc<HoldCell>>,
    owner: Option<OwnerKey>,
    /// Granted and not given up: the owner's count.
    levels: Vec<RequestId>,
    /// Since when nobody has a guard, or the holder knows better.
    guard_end: Moment,
    ended: bool,
    /// Taken away by a declared breach.
    robbed: bool,
    lost_before_shutdown: bool,
    /// The latest that was ever sent, in µs of the server's clock.
    not_after: i64,
    lease_ms: u64,
    tokens: Vec<u64>,
    token: Option<u64>,
}

impl Hold {
    fn has_guard(&self) -> bool {
        !self.levels.is_empty() && !self.ended
    }

    fn is_lost(&self) -> bool {
        self.cell.as_ref().is_some_and(|cell| cell.loss().is_some())
    }
}

#[derive(Debug, Default)]
struct Name {
    last_token: u64,
    free_since: Option<Moment>,
    last_held: Option<Moment>,
    /// When the key was going to run out, the last time it was seen. Nobody announces that.
    expires: Moment,
    /// The field that is there without anybody who wants it.
    orphan: Option<(String, Moment)>,
}

#[derive(Debug)]
pub(super) struct Checker {
    plan: Plan,
    ids: Vec<String>,
    holds: BTreeMap<(usize, u64), Hold>,
    names: BTreeMap<String, Name>,
    pub(super) jumped: bool,
    crashed: Vec<bool>,
    reports: BTreeMap<usize, Vec<String>>,
    pub(super) grants: u64,
    pub(super) losses: u64,
}

impl Checker {
    pub(super) fn new(plan: &Plan, ids: Vec<String>) -> Self {
        Self {
            crashed: vec![false; ids.len()],
            plan: plan.clone(),
            ids,
            holds: BTreeMap::new(),
            names: BTreeMap::new(),
            jumped: false,
            reports: BTreeMap::new(),
            grants: 0,
            losses: 0,
        }
    }

    fn key_of(&self, field: &str) -> Option<(usize, u64)> {
        let (client, hold) = field.split_once(':')?;
        let client = self.ids.iter().position(|id| id == client)?;
        Some((client, hold.parse().ok()?))
    }

    // ---- what is told to the checker

    pub(super) fn disturb(&self, client: &mut Client, now: Moment) {
        client.undisturbed = now;
    }

    pub(super) fn rob(&mut self, field: &str) {
        if let Some(key) = self.key_of(field) {
            self.holds.entry(key).or_default().robbed = true;
        }
    }

    pub(super) fn on_crashed(&mut self, now: Moment, client: usize) {
        self.crashed[client] = true;
        self.on_finished(now, client);
    }

    pub(super) fn on_finished(&mut self, now: Moment, client: usize) {
        for (_, hold) in self.holds.range_mut((client, 0)..=(client, u64::MAX)) {
            if hold.has_guard() {
                hold.guard_end = now;
            }
            hold.levels.clear();
        }
    }

    pub(super) fn on_send(&mut self, command: &Command) {
        let mut note = |field: &str, lease: LeaseMs, not_after: ServerTime| {
            let Some(key) = self.key_of(field) else { return };
            let hold = self.holds.entry(key).or_default();
            hold.not_after = hold.not_after.max(not_after.0);
            hold.lease_ms = hold.lease_ms.max(lease.millis());
        };
        match command {
            Command::Acquire { field, lease, not_after, .. } => note(field, *lease, *not_after),
            Command::HandOff { to, lease, not_after, .. } => note(to, *lease, *not_after),
            Command::Renew { holds, not_after } => {
                for item in holds {
                    note(&item.field, item.lease, *not_after);
                }
            }
            _ => {}
        }
    }

    pub(super) fn before(&mut self, now: Moment, client: usize, event: &Event) {
        match event {
            Event::Release { level, .. } => self.end_level(now, client, *level),
            Event::Cancel { request } | Event::Withdrawn { request } => self.end_level(now, client, *request),
            Event::Shutdown { .. } => {
                for (_, hold) in self.holds.range_mut((client, 0)..=(client, u64::MAX)) {
                    hold.lost_before_shutdown = hold.is_lost();
                    if hold.has_guard() {
                        hold.guard_end = now;
                    }
                    hold.levels.clear();
                }
            }
            _ => {}
        }
    }

    fn end_level(&mut self, now: Moment, client: usize, level: RequestId) {
        for (_, hold) in self.holds.range_mut((client, 0)..=(client, u64::MAX)) {
            let before = hold.levels.len();
            hold.levels.retain(|other| *other != level);
            if before == 1 && hold.levels.is_empty() && !hold.ended {
                hold.guard_end = now;
            }
        }
    }

    pub(super) fn on_answer(
        &mut self,
        now: Moment,
        client: usize,
        request: RequestId,
        answer: &Answer,
        to: &Client,
    ) -> Result<(), String> {
        let ask = to.asks.get(&request);
        match answer {
            Answer::Granted(cell) => self.on_granted(now, client, request, cell, to),
            Answer::NotGranted => match ask.and_then(|ask| Some((ask, ask.lock.as_ref()?))) {
                Some((Ask { wait: Some(Wait::Forever), .. }, _)) => {
                    Err(format!("P11: client {client} {request:?} waits without a limit and is told None"))
                }
                Some((ask, lock)) if self.plan.calm => {
                    let told = ask.told.unwrap_or(now);
                    let name = self.names.entry(lock.to_string()).or_default();
                    let stale = Moment(
                        told.0.saturating_sub((self.plan.fallback * 11 / 10 + LATE).as_nanos() as u64),
                    );
                    // A wish of the same owner that is under way counts as an answer, too.
                    let own = to.asks.iter().any(|(id, other)| {
                        *id != request && other.open && other.owner == ask.owner && other.lock == ask.lock
                    });
                    if !own && name.last_held.is_none_or(|held| held < stale) {
                        return Err(format!(
                            "P11: client {client} {request:?} is told None, and nobody had {lock} for long"
                        ));
                    }
                    Ok(())
                }
                _ => Ok(()),
            },
            Answer::ShutDown { unreleased } => {
                let names = unreleased.iter().map(ToString::to_string).collect();
                self.reports.insert(client, names);
                Ok(())
            }
            Answer::Failed(error) if self.plan.calm && ask.is_some_and(|ask| ask.lock.is_some()) => {
                self.on_failed_in_calm(ask, error)
            }
            _ => Ok(()),
        }
    }

    /// Without any fault only a wait too short for one round trip may end without an answer.
    fn on_failed_in_calm(&self, ask: Option<&Ask>, error: &Error) -> Result<(), String> {
        let long = self.plan.command_timeout.max(Duration::from_micros(100_000 + 8 * self.plan.latency));
        match (error, ask.and_then(|ask| ask.wait)) {
            (
                Error::HoldCountLimit { .. }
                | Error::Lost { .. }
                // The hold has already lasted longer.
                | Error::InvalidOption { option: "max_hold", .. },
                _,
            )
            | (Error::Unavailable { .. }, Some(Wait::Once)) => Ok(()),
            (Error::Unavailable { .. }, Some(Wait::For(wait))) if wait < long => Ok(()),
            _ => Err(format!("P11: {ask:?} failed without any fault: {error}")),
        }
    }

    fn on_granted(
        &mut self,
        now: Moment,
        client: usize,
        request: RequestId,
        cell: &Arc<HoldCell>,
        to: &Client,
    ) -> Result<(), String> {
        self.grants += 1;
        let owner = to.asks.get(&request).and_then(|ask| ask.owner);
        let hold = self.holds.entry((client, cell.id)).or_default();
        if !cell.is_held(now) {
            return Err(format!("P6: client {client} hold {} is granted and not held", cell.id));
        }
        if hold.cell.is_some() && hold.owner != owner {
            return Err(format!("P4: client {client} hold {} has two owners", cell.id));
        }
        hold.owner = owner;
        if !hold.tokens.contains(&cell.token()) {
            return Err(format!("P2: client {client} hold {}: nobody minted {}", cell.id, cell.token()));
        }
        if hold.token.is_some_and(|token| token != cell.token()) {
            return Err(format!("P2: client {client} hold {}: another token on re-entry", cell.id));
        }
        hold.token = Some(cell.token());
        hold.cell = Some(Arc::clone(cell));
        hold.levels.push(request);
        Ok(())
    }

    /// P2 and P4, at the server.
    pub(super) fn on_executed(
        &mut self,
        time: i64,
        request: &Request,
        before: &[Found],
        after: &[Found],
        outcome: &Outcome<Value>,
    ) -> Result<(), String> {
        let command = &request.command;
        let own = own_fields(command);
        let forced = matches!(command, Command::ForceRelease { .. });
        for was in before {
            let is = after.iter().find(|is| is.name == was.name);
            if own.contains(&was.field.as_str()) {
                let shorter = is.is_some_and(|is| is.field == was.field && is.pttl < was.pttl);
                if shorter {
                    return Err(format!("a TTL was shortened: {was:?} -> {is:?} by {command:?}"));
                }
                if forced && is.is_none() {
                    self.rob(&was.field);
                }
            } else if is != Some(was) {
                return Err(format!("P4: {was:?} became {is:?} by {command:?}"));
            }
        }
        let Outcome::Done(value) = outcome else { return Ok(()) };
        self.on_minted(command, value)?;
        if let Outcome::Done(reply) = command.read(value.clone()) {
            self.on_late(time, command, &reply)?;
        }
        Ok(())
    }

    /// P2: what is minted grows.
    fn on_minted(&mut self, command: &Command, value: &Value) -> Result<(), String> {
        let (name, field) = match command {
            Command::Acquire { name, field, count: 1, .. } => (name, field),
            Command::HandOff { name, to, .. } => (name, to),
            _ => return Ok(()),
        };
        let token = match value {
            Value::List(list) => match list.as_slice() {
                [Value::Int(1), _, Value::Int(token)] => token.unsigned_abs(),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        let both = self.jumped && self.plan.has(Nemesis::DataLoss);
        let known = self.names.entry(name.to_string()).or_default();
        if token <= known.last_token && !both {
            return Err(format!("P2: token {token} of {field} after {}", known.last_token));
        }
        known.last_token = token;
        if let Some(key) = self.key_of(field) {
            self.holds.entry(key).or_default().tokens.push(token);
        }
        Ok(())
    }

    /// Nothing is granted or renewed after its `not_after`.
    fn on_late(&self, time: i64, command: &Command, reply: &Reply) -> Result<(), String> {
        let not_after = match command {
            Command::Acquire { not_after, .. }
            | Command::HandOff { not_after, .. }
            | Command::Renew { not_after, .. } => not_after.0,
            _ => return Ok(()),
        };
        let granted = matches!(
            &reply.body,
            Body::Acquire(Acquired::Granted { .. })
                | Body::HandOff(HandedOff::Granted { .. })
                | Body::Renew(Some(_))
        );
        if granted && time > not_after {
            return Err(format!("granted {} us late: {command:?}", time - not_after));
        }
        Ok(())
    }

    // ---- after every event of a client

    /// P5: the owner's count, and the gauge of those who wait.
    pub(super) fn after(&mut self, now: Moment, client: &Client, index: usize) -> Result<(), String> {
        for ((_, id), hold) in self.holds.range((index, 0)..=(index, u64::MAX)) {
            let Some(cell) = &hold.cell else { continue };
            if cell.is_held(now) && cell.count() as usize != hold.levels.len() {
                let wanted = hold.levels.len();
                return Err(format!("P5: client {index} hold {id}: count {} of {wanted}", cell.count()));
            }
        }
        let waiting =
            client.asks.values().filter(|ask| ask.open && ask.lock.is_some() && !ask.granted).count();
        let shown = client.counters.snapshot().waiters;
        if !client.finished && shown != waiting as u64 {
            let open: Vec<_> = client.asks.iter().filter(|(_, ask)| ask.open).collect();
            return Err(format!("client {index}: {waiting} wait, the gauge says {shown}: {open:?}"));
        }
        Ok(())
    }

    // ---- after every event

    pub(super) fn look(
        &mut self,
        now: Moment,
        server: &Server,
        locks: &[Found],
        clients: &[Client],
    ) -> Result<(), String> {
        self.look_at_holds(now, locks)?;
        for lock in locks {
            self.look_at_key(now, server, lock, clients)?;
        }
        let names: Vec<String> = self.names.keys().cloned().collect();
        for name in names {
            let held = locks.iter().find(|lock| lock.name == name);
            let state = self.names.entry(name.clone()).or_default();
            if let Some(lock) = held {
                state.free_since = None;
                state.last_held = Some(now);
                let left = u64::try_from(lock.pttl.unwrap_or(0)).unwrap_or(0);
                state.expires = now.plus(Duration::from_millis(left));
            } else {
                state.orphan = None;
                let since = *state.free_since.get_or_insert(now);
                let announced = since.plus(Duration::from_millis(2)) < state.expires;
                self.look_for_lost_wake_up(now, server, &name, (since, announced), clients)?;
            }
        }
        self.look_at_waits(now, clients)
    }

    /// P1 and P6: whoever believes that it holds has the key, for at least as long as it believes so.
    fn look_at_holds(&mut self, now: Moment, locks: &[Found]) -> Result<(), String> {
        for ((client, id), hold) in &mut self.holds {
            let Some(cell) = &hold.cell else { continue };
            if hold.token != Some(cell.token()) {
                return Err(format!("P2: client {client} hold {id}: the token changed"));
            }
            if !cell.is_held(now) {
                if !hold.ended {
                    hold.ended = true;
                    self.losses += u64::from(cell.loss().is_some());
                    if !hold.levels.is_empty() {
                        hold.guard_end = now;
                    }
                }
                continue;
            }
            if hold.ended {
                return Err(format!("P6: client {client} hold {id} was revived"));
            }
            if hold.robbed {
                continue;
            }
            let field = format!("{}:{id}", self.ids[*client]);
            let key = locks.iter().find(|lock| lock.name == cell.name.as_str());
            match key {
                Some(key) if key.field == field => {
                    let left = key.pttl.unwrap_or(0).max(0) as u64 * 1_000_000;
                    let end = now.plus(Duration::from_nanos(left - left / 200 + 1_100_000));
                    if cell.valid_until() > end {
                        let over = cell.valid_until().since(end);
                        return Err(format!(
                            "P6: client {client} hold {id} is believed in {over:?} too long"
                        ));
                    }
                }
                other => {
                    return Err(format!("P1: client {client} hold {id} is believed in, there is {other:?}"));
                }
            }
        }
        Ok(())
    }

    /// P7, rule 2 and rule 7.
    fn look_at_key(
        &mut self,
        now: Moment,
        server: &Server,
        lock: &Found,
        clients: &[Client],
    ) -> Result<(), String> {
        self.names.entry(lock.name.clone()).or_default();
        if lock.pttl.is_none() {
            return Err(format!("rule 7: no time to live: {lock:?}"));
        }
        let Some((client, id)) = self.key_of(&lock.field) else { return Ok(()) };
        let Some(hold) = self.holds.get(&(client, id)) else {
            return Err(format!("{lock:?} is of a hold that was never sent"));
        };
        if self.jumped {
            return Ok(());
        }
        let guarded = hold.has_guard() && !self.crashed[client];
        if !guarded {
            let limit =
                hold.not_after.max(server.time(hold.guard_end)) + hold.lease_ms as i64 * 1_000 + 2_000;
            if server.time(now) > limit {
                return Err(format!("P7: {lock:?} outlives its hold: {hold:?}"));
            }
        }
        if let Some(names) = self.reports.get(&client) {
            if !hold.lost_before_shutdown && !names.contains(&lock.name) {
                return Err(format!("P11: client {client} said that everything is released: {lock:?}"));
            }
        }
        self.look_for_orphan(now, server, lock, (client, id), clients)
    }

    /// Rule 2: a grant that nobody wants is given back soon by a client that can.
    fn look_for_orphan(
        &mut self,
        now: Moment,
        server: &Server,
        lock: &Found,
        key: (usize, u64),
        clients: &[Client],
    ) -> Result<(), String> {
        let hold = &self.holds[&key];
        let client = &clients[key.0];
        let lost = hold.is_lost()
            && hold.cell.as_ref().and_then(|cell| cell.loss()) != Some(LossReason::ClientShutdown);
        let wanted = hold.has_guard() || lost || !client.serves() || client.frozen || !client.up;
        let possible = server.time(now) <= hold.not_after && hold.cell.is_none();
        let state = self.names.entry(lock.name.clone()).or_default();
        if wanted || possible {
            state.orphan = None;
            return Ok(());
        }
        let since = match &state.orphan {
            Some((field, since)) if *field == lock.field => *since,
            _ => {
                state.orphan = Some((lock.field.clone(), now));
                now
            }
        };
        let since = since.max(client.undisturbed).max(server.paused_until);
        let bound = self.plan.command_timeout * 2
            + Duration::from_millis(if self.plan.calm { 20 } else { 700 })
            + Duration::from_micros(8 * self.plan.latency);
        if now.since(since) > bound {
            return Err(format!("rule 2: nobody wants {lock:?} since {since:?}: {hold:?}"));
        }
        Ok(())
    }

    /// P9: a free lock goes to somebody who waits for it.
    fn look_for_lost_wake_up(
        &self,
        now: Moment,
        server: &Server,
        name: &str,
        (free_since, announced): (Moment, bool),
        clients: &[Client],
    ) -> Result<(), String> {
        let bound = if self.plan.calm && announced {
            Duration::from_micros(8 * self.plan.latency) + Duration::from_millis(40)
        } else {
            self.plan.fallback * 11 / 10 + self.plan.command_timeout * 2 + Duration::from_millis(700)
        };
        if now.since(free_since) <= bound {
            return Ok(());
        }
        for (index, client) in clients.iter().enumerate() {
            let can = client.serves()
                && client.up
                && client.pubsub_up
                && !client.frozen
                && !client.lagging
                && client.shutdown.is_none();
            let since = free_since.max(client.undisturbed).max(server.paused_until);
            if !can || now.since(since) <= bound || self.believes(now, index, name) {
                continue;
            }
            for (request, ask) in &client.asks {
                let waits = ask.open
                    && matches!(ask.slot, Slot::Empty)
                    && ask.lock.as_ref().is_some_and(|lock| lock.as_str() == name)
                    && ask.told.is_some_and(|told| now.since(told) > bound);
                if waits {
                    return Err(format!(
                        "P9: {name} is free since {free_since:?}, and client {index} {request:?} sleeps on"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A hold of the same client keeps others from trying.
    fn believes(&self, now: Moment, client: usize, name: &str) -> bool {
        self.holds.range((client, 0)..=(client, u64::MAX)).any(|(_, hold)| {
            hold.cell.as_ref().is_some_and(|cell| cell.name.as_str() == name && cell.is_held(now))
        })
    }

    /// P11: a wait ends when its time is over.
    fn look_at_waits(&self, now: Moment, clients: &[Client]) -> Result<(), String> {
        for (index, client) in clients.iter().enumerate() {
            if !client.serves() || client.frozen {
                continue;
            }
            for (request, ask) in &client.asks {
                let (Some(told), true, Slot::Empty) = (ask.told, ask.open, &ask.slot) else { continue };
                let limit = match ask.wait {
                    Some(Wait::For(wait)) if !wait.is_zero() => wait,
                    Some(Wait::For(_) | Wait::Once) => self.plan.command_timeout,
                    Some(Wait::Forever) | None => continue,
                };
                let late = now.since(told.plus(limit).max(client.undisturbed));
                if late > LATE {
                    return Err(format!("P11: client {index} {request:?} waits {late:?} beyond its limit"));
                }
            }
        }
        Ok(())
    }
}

/// The holds that a command may touch.
fn own_fields(command: &Command) -> Vec<&str> {
    match command {
        Command::Acquire { field, .. } | Command::Release { field, .. } => vec![field],
        Command::HandOff { from, to, .. } => vec![from, to],
        Command::Renew { holds, .. } => holds.iter().map(|item| item.field.as_str()).collect(),
        Command::ForceRelease { expected, .. } => vec![expected],
        Command::Time | Command::Ping | Command::Info | Command::Permissions(_) | Command::Inspect { .. } => {
            Vec::new()
        }
    }
}
