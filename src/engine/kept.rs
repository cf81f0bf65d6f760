//! Names that stay taken after their holds: for as long as `at_least` says, or because a guard was left to its lease.
//!
//! What is known of a hold here outlives the hold, up to the instant at which its key has run out. So whatever releases
//! a hold that is over, such as one that was lost, keeps the name taken for the rest all the same.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::engine::Engine;
use crate::engine::event::RequestId;
use crate::engine::pending::Answered;
use crate::engine::timers::TimerKey;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;

/// The end of the `at_least` of one level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtLeastEnd {
    /// The server that granted the level: `at` is a time of its clock. A replica that takes its place goes by the same
    /// time for the key's time to live.
    by: ServerId,
    at: ServerTime,
    /// The same on our clock, counted from the answer: never earlier than `at`.
    local: Moment,
    length: LeaseMs,
}

impl AtLeastEnd {
    /// The later of two. Of one server its own clock tells: an answer that took long makes ours late.
    fn or_later(self, other: Self) -> Self {
        let is_later = if self.by == other.by { other.at > self.at } else { other.local > self.local };
        if is_later { other } else { self }
    }
}

#[derive(Debug, Default)]
struct Keeping {
    /// Of the levels that have guards.
    of_levels: SmallVec<[(RequestId, AtLeastEnd); 1]>,
    /// The last of the levels that were given up.
    given_up: Option<AtLeastEnd>,
    /// A guard of the hold was left to the lease.
    left: bool,
    /// A re-entry has asked for a time to live beyond its lease. The key has that also if nobody takes the level.
    outlives_lease: bool,
}

impl Keeping {
    fn end(&self) -> Option<AtLeastEnd> {
        let of_levels = self.of_levels.iter().map(|(_, end)| *end);
        of_levels.chain(self.given_up).reduce(AtLeastEnd::or_later)
    }

    fn take(&mut self, level: RequestId) -> Option<AtLeastEnd> {
        let at = self.of_levels.iter().position(|(known, _)| *known == level)?;
        Some(self.of_levels.remove(at).1)
    }
}

/// By hold id. Most clients have none.
#[derive(Debug, Default)]
pub(crate) struct Kept(BTreeMap<u64, Keeping>);

impl Kept {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The end of a level that is given up goes on counting.
    pub(crate) fn give_up(&mut self, hold: u64, level: RequestId) {
        let Some(keeping) = self.0.get_mut(&hold) else { return };
        if let Some(end) = keeping.take(level) {
            keeping.given_up = Some(keeping.given_up.map_or(end, |before| before.or_later(end)));
        }
    }

    /// A level that nobody has taken keeps nothing.
    pub(crate) fn undo(&mut self, hold: u64, level: RequestId) {
        if seeded!(UntakenLevelKeepsNothing) {
            return self.give_up(hold, level);
        }
        if let Some(keeping) = self.0.get_mut(&hold) {
            keeping.take(level);
        }
    }

    /// Nothing of this hold is released on purpose.
    pub(crate) fn is_left(&self, hold: u64) -> bool {
        self.0.get(&hold).is_some_and(|keeping| keeping.left)
    }

    /// The key may be there for longer than the hold is valid, for a level that perhaps nobody has taken.
    pub(crate) fn outlives_lease(&self, hold: u64) -> bool {
        self.0.get(&hold).is_some_and(|keeping| keeping.outlives_lease)
    }

    pub(crate) fn contains(&self, hold: u64) -> bool {
        self.0.contains_key(&hold)
    }
}

/// What a release has to leave of the time that a name stays taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemainingTime {
    Nothing,
    /// Up to this time of the server that has the name; no longer than this from now on.
    Until(ServerTime, LeaseMs),
    /// The server that has the name is another than the one that granted it, and its clock is not known yet.
    NotKnown,
}

impl Engine {
    /// The name of a hold stays taken from the grant of this level on.
    pub(super) fn keep_at_least(
        &mut self,
        id: u64,
        level: RequestId,
        at_least: Option<LeaseMs>,
        answered: Answered,
    ) {
        // The answer to an acquire always has a time.
        let at_least = at_least.filter(|_| !seeded!(AtLeastIsKept));
        let (Some(length), Some(time)) = (at_least, answered.time) else { return };
        let local = self.cx.now.plus(length.duration());
        let end = AtLeastEnd { by: answered.by, at: time.plus(length.duration()), local, length };
        self.kept.0.entry(id).or_default().of_levels.push((level, end));
        self.keep_until(id, self.cx.now.plus(length.longest()));
    }

    /// A re-entry asks for a time to live beyond its lease. Perhaps nobody takes its level.
    pub(super) fn expect_longer_life(&mut self, id: u64) {
        self.kept.0.entry(id).or_default().outlives_lease = true;
        self.keep_while_key_lasts(id);
    }

    /// One level ends, and the hold is not released any more, whoever has further levels.
    pub(super) fn on_leave(&mut self, id: u64, level: RequestId) {
        if self.holds.get(&id).is_some_and(|hold| hold.is_kept()) {
            self.kept.0.entry(id).or_default().left = true;
            self.keep_while_key_lasts(id);
        }
        self.on_release(id, level, None);
    }

    /// The key of a hold may be there for as long as any command of it has asked for.
    pub(super) fn keep_while_key_lasts(&mut self, id: u64) {
        if let Some(end) = self.holds.get(&id).map(|hold| hold.key_end) {
            self.keep_until(id, end);
        }
    }

    /// The key of the hold may be there until then.
    fn keep_until(&mut self, id: u64, end: Moment) {
        let before = self.cx.timers.of(TimerKey::Kept(id)).unwrap_or(Moment::ZERO);
        self.cx.timers.set(TimerKey::Kept(id), end.max(before));
    }

    /// As far as is known the key of the hold has run out, unless it was renewed.
    pub(super) fn on_kept_over(&mut self, id: u64) {
        match self.holds.get(&id).filter(|hold| hold.state.is_live() && self.kept.is_left(id)) {
            Some(hold) => self.keep_until(id, hold.key_end.max(self.cx.now.plus(hold.ttl.duration()))),
            None => drop(self.kept.0.remove(&id)),
        }
    }

    /// For how long the name of a hold has to stay taken when that is released now. Near the end the server decides: what
    /// is known here of its clock would not do.
    pub(super) fn rest_of(&self, id: u64, lock: &LockName) -> RemainingTime {
        let Some(end) = self.kept.0.get(&id).and_then(Keeping::end) else { return RemainingTime::Nothing };
        let at = if self.cx.servers.executor_of(lock) == end.by {
            Some(end.at)
        } else {
            // What is known of its clock may be too early by the way of an answer.
            self.cx.servers.time_of(lock, end.local.plus(self.cx.servers.round_trip(lock)))
        };
        at.map_or(RemainingTime::NotKnown, |at| RemainingTime::Until(at, end.length))
    }

    /// The last release of a hold, sent alone. `None`: the clock of the server has to be known first, and is asked for.
    pub(super) fn last_release(&mut self, id: u64, key: u64, lock: &LockName) -> Option<Command> {
        let (name, field, announce) = (lock.clone(), self.cx.field(id), self.announce(Some(key), lock));
        match self.rest_of(id, lock) {
            RemainingTime::Nothing => {
                let undo = self.cleanup.get(id).is_some();
                Some(Command::Release { name, field, count: 0, announce, undo })
            }
            RemainingTime::Until(free_at, most) => {
                Some(Command::ReleaseAt { name, field, free_at, most, announce })
            }
            RemainingTime::NotKnown => {
                self.cx.ask_clock(self.cx.servers.id_of(lock));
                None
            }
        }
    }

    /// What waited for the clock of a server to be released goes on.
    pub(super) fn resume_kept(&mut self, server: ServerId) {
        let waits = |id: &u64| self.kept.contains(*id);
        let dead = self.cleanup.iter().filter(|(_, dead)| self.cx.servers.id_of(&dead.lock) == server);
        let dead: Vec<u64> = dead.map(|(id, _)| id).filter(waits).collect();
        let releasing: Vec<u64> = self.holds.at(&self.cx, server).into_iter().filter(waits).collect();
        for id in dead {
            self.send_cleanup(id);
        }
        for id in releasing {
            self.resume_release(id);
        }
    }
}
