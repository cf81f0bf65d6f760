//! Names that stay taken after their holds: for as long as `at_least` says, or because a guard was
//! left to its lease.
//!
//! An entry here outlives its hold, until the key has expired. So every release of a hold that has
//! ended, such as a lost one, keeps the name taken for the remaining time as well.

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
use crate::kinds::share::Share;

/// The end of the `at_least` of one level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtLeastEnd {
    /// The server that granted the level, by whose clock `at` is. A replica that replaces it uses
    /// the same time for the key's time to live.
    by: ServerId,
    at: ServerTime,
    /// The same by the local clock, counted from the answer; never earlier than `at`.
    local: Moment,
    length: LeaseMs,
}

impl AtLeastEnd {
    /// The later of two ends. Ends by the same server's clock are compared by that clock, because a
    /// late answer makes the local time too late.
    fn or_later(self, other: Self) -> Self {
        let is_later =
            if self.by == other.by { other.at > self.at } else { other.local > self.local };
        if is_later { other } else { self }
    }
}

#[derive(Debug, Default)]
struct KeptHold {
    /// The ends of the levels that have guards.
    of_levels: SmallVec<[(RequestId, AtLeastEnd); 1]>,
    /// The latest end of the levels that were released.
    given_up: Option<AtLeastEnd>,
    /// True after a guard of the hold was left to its lease.
    left: bool,
    /// True after a re-entry has asked for a time to live beyond its lease. The key lives as long
    /// even if no caller takes the level.
    outlives_lease: bool,
    /// The name and the share of a hold whose field is removed when its time has ended, because
    /// another hold of its owner keeps the key.
    removed_at_end: Option<(u64, LockName, Share)>,
}

impl KeptHold {
    fn end(&self) -> Option<AtLeastEnd> {
        let of_levels = self.of_levels.iter().map(|(_, end)| *end);
        of_levels.chain(self.given_up).reduce(AtLeastEnd::or_later)
    }

    fn take(&mut self, level: RequestId) -> Option<AtLeastEnd> {
        let at = self.of_levels.iter().position(|(known, _)| *known == level)?;
        Some(self.of_levels.remove(at).1)
    }
}

/// The entries by hold id. Most clients have none.
#[derive(Debug, Default)]
pub(crate) struct KeptHolds(BTreeMap<u64, KeptHold>);

impl KeptHolds {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps the end of a level that is released.
    pub(crate) fn give_up(&mut self, hold: u64, level: RequestId) {
        let Some(keeping) = self.0.get_mut(&hold) else { return };
        if let Some(end) = keeping.take(level) {
            keeping.given_up = Some(keeping.given_up.map_or(end, |before| before.or_later(end)));
        }
    }

    /// Removes the end of a level that no caller took.
    pub(crate) fn undo(&mut self, hold: u64, level: RequestId) {
        if seeded!(UntakenLevelKeepsNothing) {
            return self.give_up(hold, level);
        }
        if let Some(keeping) = self.0.get_mut(&hold) {
            keeping.take(level);
        }
    }

    /// True if the hold must not be released, because a guard was left to its lease.
    pub(crate) fn is_left(&self, hold: u64) -> bool {
        self.0.get(&hold).is_some_and(|keeping| keeping.left)
    }

    /// True if the key may exist for longer than the hold is valid, for a level that perhaps no
    /// caller has taken.
    pub(crate) fn outlives_lease(&self, hold: u64) -> bool {
        self.0.get(&hold).is_some_and(|keeping| keeping.outlives_lease)
    }

    pub(crate) fn contains(&self, hold: u64) -> bool {
        self.0.contains_key(&hold)
    }
}

/// For how long a release has to keep the name taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemainingTime {
    Nothing,
    /// Until this time by the clock of the server that serves the name, but no longer than this
    /// from now on.
    Until(ServerTime, LeaseMs),
    /// Another server serves the name than the one that granted the level, and its clock is not
    /// known yet.
    NotKnown,
}

impl Engine {
    /// Keeps the name of a hold taken for `at_least` from the grant of this level on.
    pub(super) fn keep_at_least(
        &mut self,
        id: u64,
        level: RequestId,
        at_least: Option<LeaseMs>,
        answered: Answered,
    ) {
        // The reply to an acquire always contains the server's time.
        let at_least = at_least.filter(|_| !seeded!(AtLeastIsKept));
        let (Some(length), Some(time)) = (at_least, answered.time) else { return };
        let local = self.cx.now.plus(length.duration());
        let end = AtLeastEnd { by: answered.by, at: time.plus(length.duration()), local, length };
        self.kept.0.entry(id).or_default().of_levels.push((level, end));
        self.keep_until(id, self.cx.now.plus(length.longest()));
    }

    /// A re-entry asks for a time to live beyond its lease. Perhaps no caller takes its level.
    pub(super) fn expect_longer_life(&mut self, id: u64) {
        self.kept.0.entry(id).or_default().outlives_lease = true;
        self.keep_while_key_lasts(id);
    }

    /// Ends one level without a release, and leaves the hold to its lease, even if it has further
    /// levels.
    pub(super) fn on_leave(&mut self, id: u64, level: RequestId) {
        if self.holds.get(&id).is_some_and(|hold| hold.is_kept()) {
            self.kept.0.entry(id).or_default().left = true;
            self.keep_while_key_lasts(id);
        }
        self.on_release(id, level, None);
    }

    /// Keeps the entry for as long as any command of the hold may have made the key live.
    pub(super) fn keep_while_key_lasts(&mut self, id: u64) {
        if let Some(end) = self.holds.get(&id).map(|hold| hold.key_end) {
            self.keep_until(id, end);
        }
    }

    /// Has the field of a hold that is left to its lease removed at the end of its time, if another
    /// hold of its owner keeps the key.
    pub(super) fn remove_at_end_if_beside_another(&mut self, id: u64) {
        let Some(hold) = self.holds.get(&id).filter(|_| self.is_beside_another(id)) else { return };
        let field = (hold.name_id, hold.lock.clone(), hold.share);
        self.kept.0.entry(id).or_default().removed_at_end = Some(field);
    }

    /// Keeps the entry until the key has expired at this time, or later.
    fn keep_until(&mut self, id: u64, end: Moment) {
        let before = self.cx.timers.of(TimerKey::Kept(id)).unwrap_or(Moment::ZERO);
        self.cx.timers.set(TimerKey::Kept(id), end.max(before));
    }

    /// The entry's time has ended. The key has expired, unless it was renewed.
    pub(super) fn on_kept_over(&mut self, id: u64) {
        match self.holds.get(&id).filter(|hold| hold.state.is_live() && self.kept.is_left(id)) {
            Some(hold) => {
                self.keep_until(id, hold.key_end.max(self.cx.now.plus(hold.ttl.duration())))
            }
            None => {
                let kept = self.kept.0.remove(&id);
                if let Some((name_id, lock, share)) = kept.and_then(|kept| kept.removed_at_end) {
                    self.remove_field(id, name_id, lock, share, self.cx.now);
                }
            }
        }
    }

    /// For how long the name of a hold has to stay taken if it is released now. The server decides
    /// how much of that is left, because its clock is not known here precisely enough.
    pub(super) fn remaining_time(&self, id: u64, lock: &LockName) -> RemainingTime {
        let Some(end) = self.kept.0.get(&id).and_then(KeptHold::end) else {
            return RemainingTime::Nothing;
        };
        let at = if self.cx.servers.executor_of(lock) == end.by {
            Some(end.at)
        } else {
            // The estimate of the server's clock may be behind by as long as a reply takes.
            self.cx.servers.time_of(lock, end.local.plus(self.cx.servers.round_trip(lock)))
        };
        at.map_or(RemainingTime::NotKnown, |at| RemainingTime::Until(at, end.length))
    }

    /// The command of a hold's last release. `None` if the clock of the server has to be known
    /// first; it is then asked for.
    pub(super) fn last_release(
        &mut self,
        id: u64,
        name_id: u64,
        lock: &LockName,
    ) -> Option<Command> {
        let of_hold = self.holds.get(&id).map(|hold| hold.share);
        let share = of_hold.or_else(|| self.dead_ids.get(id).map(|dead| dead.share))?;
        let (name, field, mut announce) =
            (lock.clone(), self.cx.field(id, lock, share), self.announce(Some(name_id), lock));
        let lock_alone = self.dead_ids.names_lock_alone(id)
            || self.holds.get(&id).is_some_and(|hold| hold.release().lock_alone);
        announce.line &= !lock_alone;
        announce.alone = lock_alone && share.shared == 0 && !seeded!(WriterNamesLockAlone);
        match self.remaining_time(id, lock) {
            RemainingTime::Nothing => {
                let undo = self.dead_ids.get(id).is_some();
                if undo && lock.kind().has_channel_per_waiter() && self.has_role(name_id) {
                    // Its waiter stays in its place.
                    announce.channel = lock.channel(self.cx.config.profile);
                }
                Some(Command::Release { name, field, share: Share::NOTHING, announce, undo })
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

    /// Continues the releases that waited for this server's clock.
    pub(super) fn resume_kept(&mut self, server: ServerId) {
        let waits = |id: &u64| self.kept.contains(*id);
        let dead =
            self.dead_ids.iter().filter(|(_, dead)| self.cx.servers.id_of(&dead.lock) == server);
        let dead: Vec<u64> = dead.map(|(id, _)| id).filter(waits).collect();
        let releasing: Vec<u64> =
            self.holds.at(&self.cx, server).into_iter().filter(waits).collect();
        for id in dead {
            self.send_cleanup(id);
        }
        for id in releasing {
            self.resume_release(id);
        }
    }
}
