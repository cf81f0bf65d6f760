//! What is looked at after each event: how long lines and reservations last, and who has them
//! (P7, P9, P10).

use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::sim::checker::Checker;
use crate::sim::checker::drifts_by;
use crate::sim::checker::line::LINE;
use crate::sim::checker::line::RESERVATION;
use crate::sim::checker::line::View;
use crate::sim::checker::line::seen_holds;
use crate::sim::client::Client;
use crate::sim::kinds::Found;

/// So many of the first in line have a timer.
const WITH_TIMERS: usize = 8;

impl Checker {
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
            if !self.plan.has_line_of_clients(&view.name) {
                self.note_what_appeared(now, view);
                self.note_seen(now, view);
                self.look_for_unwanted_places(now, view, clients)?;
                continue;
            }
            self.note_what_vanished(now, view);
            self.look_at_lives(now, view)?;
            self.look_for_unwanted_places(now, view, clients)?;
            self.look_for_missed_reservation(now, view, clients)?;
        }
        Ok(())
    }

    /// What is there since the last look may have been reserved, also for a place that a replica has
    /// brought back.
    fn note_what_appeared(&mut self, now: Moment, view: &View) {
        let holds = seen_holds(view);
        // Those who heard of a reservation sleep until it would have ended.
        let sleep = RESERVATION + Duration::from_millis(20) + self.way();
        let Some(name) = self.names.get_mut(view.name.as_str()) else { return };
        if holds.iter().any(|hold| !name.line.seen_holds.contains(hold)) {
            name.line.last_reserved = now;
            name.sleep_until = name.sleep_until.max(now.plus(sleep));
        }
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
            // The same is true of a copy whose answer was on its way when the connection was cut, and
            // that is executed once more after the hold is over.
            let copied = self.holds.get(&key).is_some_and(|hold| {
                hold.answered_granted && hold.release_done && hold.open_until > Moment::ZERO
            });
            let excused = is_dead && (self.jumped || copied);
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
    pub(in crate::sim::checker) fn reserved_until(&self, name: &LockName) -> Moment {
        let last = self.names.get(name.as_str()).map(|name| name.line.last_reserved);
        last.filter(|at| *at > Moment::ZERO).map_or(Moment::ZERO, |at| at.plus(RESERVATION))
    }

    /// How soon something is done that takes no further waiting.
    pub(super) fn promptness(&self) -> Duration {
        Duration::from_millis(if self.plan.calm { 20 } else { 700 })
            + Duration::from_micros(8 * self.plan.latency)
    }

    /// Whether the lock of a name may have to wait for more than a timer: too many dead places.
    pub(in crate::sim::checker) fn has_timers(&self, name: &str) -> bool {
        let known = &self.names[name];
        // A client may have died with many places, which do not count any more, and the others do not
        // hear of that before their fallback.
        let many_died = known.lock.kind().waits_per_owner() && self.crashed.contains(&true);
        known.line.seen_places.len() < WITH_TIMERS && !many_died
    }
}
