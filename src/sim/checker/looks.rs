//! What is looked at after each event: holders against keys, keys against holders, and whoever
//! waits.

use std::time::Duration;

use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::error::LossReason;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::sim::checker::BACK_OFF;
use crate::sim::checker::Checker;
use crate::sim::checker::Hold;
use crate::sim::checker::LATE;
use crate::sim::checker::drifts_by;
use crate::sim::checker::exclusion::check_key;
use crate::sim::client::Ask;
use crate::sim::client::Client;
use crate::sim::client::Slot;
use crate::sim::kinds::Found;
use crate::sim::kinds::Place;
use crate::sim::kinds::rules_of;

impl Checker {
    /// After every event of a client: P5, the gauge of those who wait, and what an answer has
    /// ended.
    pub(in crate::sim) fn after(
        &mut self,
        now: Moment,
        client: &Client,
        index: usize,
    ) -> Result<(), String> {
        for key in self.live.range((index, 0)..=(index, u64::MAX)) {
            let hold = &self.holds[key];
            let Some(cell) = &hold.cell else { continue };
            if cell.is_held(now) && cell.count() as usize != hold.levels.len() {
                let wanted = hold.levels.len();
                return Err(format!(
                    "P5: client {index} hold {}: count {} of {wanted}",
                    key.1,
                    cell.count()
                ));
            }
            if cell.valid_until() > hold.allowed_until {
                let over = cell.valid_until().since(hold.allowed_until);
                return Err(format!(
                    "P6: client {index} hold {} is believed in {over:?} longer than any answer allows",
                    key.1
                ));
            }
        }
        for key in std::mem::take(&mut self.must_end) {
            let cell = self.holds.get(&key).and_then(|hold| hold.cell.as_ref());
            if cell.is_some_and(|cell| cell.is_held(now)) {
                return Err(format!(
                    "P6: client {index} hold {} was told that it is gone, and goes on",
                    key.1
                ));
            }
        }
        self.forget_claims(index, client);
        self.troubled[index] |= std::mem::take(&mut self.fails);
        if let Some(server) = self.refuses_login.take() {
            self.look_at_refused(now, client, index, server)?;
        }
        self.dead.retain(|_, until| now < *until);
        let dead = self.dead.range((index, 0)..=(index, u64::MAX)).count();
        // What a clock that was set, or another server's, means for them is not known here.
        let known = !self.jumped
            && self.skew.is_zero()
            && self.plan.primaries.is_none()
            && !client.finished;
        let gauges = client.counters.snapshot();
        if known && gauges.clean_ups < dead as u64 {
            let gauge = gauges.clean_ups;
            return Err(format!(
                "P7: client {index}: {dead} attempts may still be granted, {gauge} are remembered"
            ));
        }
        let waiting = client
            .asks
            .values()
            .filter(|ask| ask.open && ask.lock.is_some() && !ask.granted)
            .count();
        let shown = gauges.waiters - client.engine.watchers() as u64;
        if !client.finished && shown != waiting as u64 {
            let open: Vec<_> = client.asks.iter().filter(|(_, ask)| ask.open).collect();
            return Err(format!(
                "P10: client {index}: {waiting} wait, the gauge says {shown}: {open:?}"
            ));
        }
        Ok(())
    }

    /// P16: with the login refused, trying again helps nobody: whoever waits is told at once.
    fn look_at_refused(
        &self,
        now: Moment,
        client: &Client,
        index: usize,
        server: ServerId,
    ) -> Result<(), String> {
        // Of several servers it is not known here which of them the engine would ask. A connection
        // that was cut still answers for its calls until the client has heard of their ends; the
        // login of the pub/sub connection may be refused before that.
        let is_up = client.links.get(&server).is_none_or(|link| link.up || link.settled > now);
        if is_up || self.plan.primaries.is_some() || client.finished {
            return Ok(());
        }
        let waits = |ask: &Ask| ask.open && ask.lock.is_some() && matches!(ask.slot, Slot::Empty);
        match client.asks.iter().find(|(_, ask)| waits(ask)) {
            Some((request, _)) => {
                Err(format!("P16: the login is refused, and client {index} {request:?} sleeps on"))
            }
            None => Ok(()),
        }
    }

    pub(in crate::sim) fn look(
        &mut self,
        now: Moment,
        locks: &[Found],
        clients: &[Client],
    ) -> Result<(), String> {
        self.look_at_holds(now, locks, clients)?;
        for lock in locks {
            self.check_places(lock)?;
            for hold in &lock.holds {
                self.look_at_place(now, lock, hold, clients)?;
            }
        }
        let free = self.note_states(now, locks);
        for (name, since) in free {
            self.look_for_lost_wake_up(now, &name, since, clients)?;
        }
        self.look_at_waits(now, clients)
    }

    /// P1 and P6: whoever believes that it holds has the key, for at least as long as it believes
    /// so.
    fn look_at_holds(
        &mut self,
        now: Moment,
        locks: &[Found],
        clients: &[Client],
    ) -> Result<(), String> {
        let mut over = Vec::new();
        let unsafe_clocks = self.plan.drifts_too_much();
        for key in &self.live {
            let (client, id) = *key;
            let Some(hold) = self.holds.get_mut(key) else { continue };
            let Some(cell) = hold.cell.clone() else { continue };
            if hold.token != Some(cell.token()) {
                return Err(format!("P2: client {client} hold {id}: the token changed"));
            }
            if cell.is_held(now) {
                hold.valid_until = cell.valid_until();
                if hold.ended {
                    return Err(format!("P6: client {client} hold {id} was revived"));
                }
                if hold.breach.is_none() && !unsafe_clocks {
                    let field = format!("{}:{id}", self.ids[client]);
                    check_key(now, client, &field, &cell, locks)?;
                }
                continue;
            }
            if !hold.ended {
                let kept = self.plan.calm && !hold.max_hold && hold.is_kept(&clients[client]);
                if kept && cell.loss() == Some(LossReason::Expired) {
                    return Err(format!(
                        "P12: client {client} hold {id} ran out under the watchdog, without any fault"
                    ));
                }
                hold.ended = true;
                self.held_said.insert((client, cell.name.to_string()), now);
                self.losses +=
                    u64::from(cell.loss().is_some() || cell.valid_until() != Moment::ZERO);
                if !hold.levels.is_empty() {
                    hold.guard_end = now;
                }
            }
            let to = &clients[client];
            if cell.valid_until() == Moment::ZERO || !to.serves() {
                over.push(*key);
            } else if !to.frozen && now > cell.valid_until().max(to.thawed).plus(LATE) {
                return Err(format!(
                    "P6: client {client} hold {id} has run out, and nobody is told"
                ));
            }
        }
        for key in over {
            self.live.remove(&key);
        }
        self.look_for_overlaps(now)
    }

    /// P7, rule 2.
    fn look_at_place(
        &mut self,
        now: Moment,
        lock: &Found,
        place: &Place,
        clients: &[Client],
    ) -> Result<(), String> {
        let (field, kept) = place.hold_field();
        if kept {
            return self.look_at_kept(now, lock, place, field);
        }
        let Some((client, id)) = self.key_of(field) else { return Ok(()) };
        let Some(hold) = self.holds.get(&(client, id)) else {
            return Err(format!("P7: {lock:?} has a hold that was never sent: {field}"));
        };
        // How long a reservation lasts does not depend on what became of the attempts.
        if self.jumped || place.is_dead() || self.is_only_reserved(&lock.name, place) {
            return Ok(());
        }
        let guarded = hold.has_guard() && !self.crashed[client];
        let lasts = Duration::from_millis(hold.lease_ms) + rules_of(&lock.name).outlasts();
        let slow = lasts / 1_000 + drifts_by(lasts, self.plan.drift);
        let late = slow + self.skew + Duration::from_millis(3);
        let reserved = self.reserved_until(&lock.name).plus(late);
        let limit = hold.not_after.max(hold.guard_end).plus(lasts + late).max(reserved);
        if !guarded && now > limit {
            return Err(format!("P7: {field} in {lock:?} outlives its hold: {hold:?}"));
        }
        if let Some(names) = self.reports.get(&client) {
            let excused =
                hold.lost_before_shutdown || hold.left || hold.excused || hold.breach.is_some();
            // What is over by its lease comes back by itself.
            let excused = excused || place.is_over(rules_of(&lock.name));
            if !excused && !names.iter().any(|name| name == lock.name.as_str()) {
                return Err(format!(
                    "P11: client {client} said that everything is released: {lock:?}"
                ));
            }
        }
        self.look_for_orphan(now, lock, place, (client, id), clients)
    }

    /// P14: what stands in the place of a hold ends no later than the hold could have.
    fn look_at_kept(
        &self,
        now: Moment,
        lock: &Found,
        place: &Place,
        field: &str,
    ) -> Result<(), String> {
        let Some(hold) = self.key_of(field).and_then(|key| self.holds.get(&key)) else {
            return Err(format!("P14: {lock:?} is of a hold that was never sent"));
        };
        let left = Duration::from_millis(u64::try_from(place.left.unwrap_or(0)).unwrap_or(0));
        // A slow clock makes a key last longer, from the grant on.
        let lasted = hold.key_end.since(hold.begun);
        let slow = drifts_by(lasted, 2 * self.plan.drift);
        // By another clock than that of the grant it is counted from the answer.
        let way =
            if self.plan.primaries.is_some() { self.plan.command_timeout } else { Duration::ZERO };
        let end = hold.key_end.plus(slow + way + self.clocks_apart());
        if self.knows_clocks() && now.plus(left) > end {
            return Err(format!(
                "P14: {lock:?} is taken until {:?}, and not {end:?}",
                now.plus(left)
            ));
        }
        Ok(())
    }

    /// Whether the times of the servers are good for anything.
    pub(super) fn knows_clocks(&self) -> bool {
        !self.jumped && !self.plan.drifts_too_much()
    }

    /// By how much the clocks of two servers may differ, and what a reading of one is worth.
    pub(super) fn clocks_apart(&self) -> Duration {
        let cluster = Duration::from_micros(2 * self.plan.apart_us);
        let between = if self.plan.primaries.is_some() { cluster } else { Duration::ZERO };
        between + self.skew + Duration::from_millis(3)
    }

    /// Rule 2: a grant that nobody wants is given back soon by a client that can.
    fn look_for_orphan(
        &mut self,
        now: Moment,
        lock: &Found,
        place: &Place,
        key: (usize, u64),
        clients: &[Client],
    ) -> Result<(), String> {
        let (field, hold) = (place.field.as_str(), &self.holds[&key]);
        let client = &clients[key.0];
        let Some(name) = self.names.get_mut(lock.name.as_str()) else { return Ok(()) };
        let lost = hold.is_lost()
            && hold.cell.as_ref().and_then(|cell| cell.loss()) != Some(LossReason::ClientShutdown);
        // What is over comes back by itself, and the client need not care.
        let over = place.is_over(rules_of(&lock.name));
        let wanted = over
            || hold.has_guard()
            || lost
            || hold.left
            || hold.excused
            || !client.works(&name.lock);
        let possible = now <= hold.not_after && hold.cell.is_none();
        if wanted || possible {
            name.orphans.retain(|(known, _)| known != field);
            return Ok(());
        }
        let since = name.orphan_since(now, field).max(client.calm_since(&name.lock));
        let bound = self.plan.command_timeout * 2
            + Duration::from_millis(if self.plan.calm { 20 } else { 700 })
            + Duration::from_micros(8 * self.plan.latency);
        if now.since(since) > bound {
            return Err(format!("P7: nobody wants {field} in {lock:?} since {since:?}: {hold:?}"));
        }
        Ok(())
    }

    /// Notes which names have no room for another hold; gives the others, with the instant since
    /// which somebody should have taken them.
    fn note_states(&mut self, now: Moment, locks: &[Found]) -> Vec<(String, Moment)> {
        let mut free = Vec::new();
        for (key, name) in &mut self.names {
            let holds = locks
                .iter()
                .find(|lock| lock.name == name.lock)
                .map_or(&[][..], |lock| &lock.holds);
            name.orphans.retain(|(field, _)| holds.iter().any(|hold| hold.field == *field));
            if !name.rules().has_room(holds) {
                name.free_since = None;
                name.announced = false;
            } else {
                let since = *name.free_since.get_or_insert(now);
                free.push((
                    key.clone(),
                    if name.announced { since } else { since.max(name.sleep_until) },
                ));
            }
        }
        free
    }

    /// P8, P9: a free lock goes to somebody who waits for it.
    fn look_for_lost_wake_up(
        &self,
        now: Moment,
        name: &str,
        free_since: Moment,
        clients: &[Client],
    ) -> Result<(), String> {
        let known = &self.names[name];
        let round_trips = Duration::from_micros(8 * self.plan.latency);
        let bound = round_trips
            + match (self.plan.calm, known.announced) {
                (true, true) => Duration::from_millis(40),
                // P8: beyond its lease, and what the clocks differ by.
                (true, false) => Duration::from_millis(100) + self.plan.lease / 100,
                (false, _) => {
                    let turn = known.rules().turn_lasts();
                    self.plan.command_timeout * 2 + Duration::from_millis(700) + turn
                }
            };
        if now.since(free_since) <= bound || !self.has_timers(name) {
            return Ok(());
        }
        for (index, client) in clients.iter().enumerate() {
            let can = client.works(&known.lock) && client.hears() && client.shutdown.is_none();
            // Until then one of its own holds had it, as far as it knew.
            let own = self.held_said.get(&(index, name.to_owned())).copied().unwrap_or_default();
            let since = free_since.max(client.calm_since(&known.lock)).max(own);
            if !can || now.since(since) <= bound || self.keeps_others_away(now, index, name) {
                continue;
            }
            if let Some(request) = self.sleeper(now, client, name, bound) {
                let free = known.free_since;
                return Err(format!(
                    "P9: {name} is free since {free:?}, and client {index} {request:?} sleeps on"
                ));
            }
        }
        Ok(())
    }

    /// Somebody of the client who has waited for a name so long.
    pub(super) fn sleeper(
        &self,
        now: Moment,
        client: &Client,
        name: &str,
        bound: Duration,
    ) -> Option<RequestId> {
        let waits = |ask: &Ask| {
            ask.open
                && matches!(ask.slot, Slot::Empty)
                && ask.lock.as_ref().is_some_and(|lock| lock.as_str() == name)
                && ask.told.is_some_and(|told| now.since(told) > bound)
                // After grants that came too late it leaves the name alone for a while.
                && !self.is_brief(ask)
        };
        client.asks.iter().find(|(_, ask)| waits(ask)).map(|(request, _)| *request)
    }

    /// Holds of the same client, as many as the kind allows, keep its others from trying.
    pub(super) fn keeps_others_away(&self, now: Moment, client: usize, name: &str) -> bool {
        let grace = 2 * self.plan.command_timeout + BACK_OFF;
        self.fill(client, name, |hold| hold.is_in_the_way(now, grace))
    }

    /// The client has or had as many holds as the kind allows: each is valid, or was so or had guards
    /// up to this moment or longer. A client that was frozen notices the ends of its waits and of its
    /// leases together, and a wait may have ended first.
    pub(super) fn had_all_until(
        &self,
        moment: Moment,
        now: Moment,
        client: usize,
        name: &str,
    ) -> bool {
        self.fill(client, name, |hold| {
            let cell = hold.cell.as_ref();
            let lasted = hold.valid_until.max(hold.guard_end) >= moment;
            cell.is_some_and(|cell| cell.is_held(now) || lasted)
        })
    }

    /// Whether the client's holds of the name that are `of` this sort leave no room for another.
    fn fill(&self, client: usize, name: &str, of: impl Fn(&Hold) -> bool) -> bool {
        let Some(known) = self.names.get(name) else { return false };
        let own = self.holds.range((client, 0)..=(client, u64::MAX)).map(|(_, hold)| hold);
        let most = known.rules().at_once();
        own.filter(|hold| hold.is_for(name) && of(hold)).take(most).count() == most
    }

    /// P11: a wait ends when its time is over.
    fn look_at_waits(&self, now: Moment, clients: &[Client]) -> Result<(), String> {
        for (index, client) in clients.iter().enumerate() {
            if !client.serves() || client.frozen {
                continue;
            }
            for (request, ask) in &client.asks {
                let (Some(told), true, Slot::Empty) = (ask.told, ask.open, &ask.slot) else {
                    continue;
                };
                let limit = match ask.wait {
                    Some(Wait::For(wait)) if !wait.is_zero() => wait,
                    Some(Wait::For(_) | Wait::Once | Wait::Within(_) | Wait::Lead) => {
                        self.plan.command_timeout
                    }
                    Some(Wait::Forever) | None => continue,
                };
                let late = now.since(told.plus(limit).max(client.thawed));
                if late > LATE {
                    return Err(format!(
                        "P11: client {index} {request:?} waits {late:?} beyond its limit"
                    ));
                }
            }
        }
        Ok(())
    }
}
