//! The validity of a lock that several servers have, which is there as long as a majority of them.

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use tokio::sync::Notify;

use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::error::LossReason;
use crate::base::name::LockName;

/// The most servers of a lock.
pub(crate) const MOST_SERVERS: usize = 25;

/// The holds of one lock on several servers.
pub(crate) struct Majority {
    /// The lock as a whole: whether it was lost or released, which is final. It has no time of its
    /// own.
    whole: Arc<HoldCell>,
    needed: usize,
    /// By the places of the servers; `None`: does not count.
    parts: Mutex<Vec<Option<Arc<HoldCell>>>>,
    /// A part was put in.
    pub(crate) changed: Notify,
}

impl Majority {
    pub(crate) fn new(name: LockName, token: u64, parts: Vec<Option<Arc<HoldCell>>>) -> Self {
        let whole = HoldCell::new(name, 0, token, Moment::NEVER);
        whole.set_count(1);
        Self {
            whole: Arc::new(whole),
            needed: majority_of(parts.len()),
            parts: Mutex::new(parts),
            changed: Notify::new(),
        }
    }

    pub(crate) fn whole(&self) -> &Arc<HoldCell> {
        &self.whole
    }

    /// Up to when a majority is held: the end of its last one, of those with the latest ends. Zero
    /// once it has ended. Allocates nothing.
    pub(crate) fn valid_until(&self) -> Moment {
        let whole = self.whole.valid_until();
        whole.min(self.nth_end(&self.lock()))
    }

    fn nth_end(&self, parts: &[Option<Arc<HoldCell>>]) -> Moment {
        let mut ends = [Moment::ZERO; MOST_SERVERS];
        for (end, part) in ends.iter_mut().zip(parts) {
            *end = part.as_ref().map_or(Moment::ZERO, |part| part.valid_until());
        }
        ends.sort_unstable_by(|one, other| other.cmp(one));
        ends.get(self.needed - 1).copied().unwrap_or(Moment::ZERO)
    }

    /// Ends the lock as lost if it has no majority any more. No part that comes later brings it
    /// back.
    pub(crate) fn lose_if_past(&self, now: Moment) {
        // Told outside of the mutex, because wakers run foreign code.
        let lost = {
            let parts = self.lock();
            let is_past = now >= self.nth_end(&parts);
            is_past.then(|| reason(&parts, now))
        };
        if let Some(reason) = lost.filter(|_| self.whole.valid_until() > Moment::ZERO) {
            self.whole.lose(reason);
        }
    }

    pub(crate) fn is_still_held(&self, now: Moment) -> bool {
        self.lose_if_past(now);
        self.whole.is_held(now)
    }

    /// A server counts again, unless the majority was lost before, which nobody may have seen yet.
    pub(crate) fn put(&self, place: usize, part: Arc<HoldCell>, now: Moment) {
        {
            let mut parts = self.lock();
            let was_held = now < self.nth_end(&parts) || seeded!(LostMajorityStaysLost);
            if let Some(known) = parts.get_mut(place).filter(|_| was_held) {
                *known = Some(part);
            }
        }
        self.lose_if_past(now);
        self.changed.notify_one();
    }

    /// Whether the server in this place counts.
    pub(crate) fn has(&self, place: usize, now: Moment) -> bool {
        let parts = self.lock();
        parts.get(place).is_some_and(|part| part.as_ref().is_some_and(|part| part.is_held(now)))
    }

    /// Whether a loss is likely: so many parts are gone or doubtful that there is no majority
    /// without them.
    pub(crate) fn is_suspect(&self, now: Moment) -> bool {
        let parts = self.lock();
        let is_sure = |part: &&Arc<HoldCell>| part.is_held(now) && !part.is_suspect();
        parts.iter().flatten().filter(is_sure).count() < self.needed
    }

    /// What is notified when the lock ends, or one of its parts that are still there.
    pub(crate) fn ends(&self, now: Moment) -> Vec<Arc<Notify>> {
        let parts = self.lock();
        let there = parts.iter().flatten().filter(|part| part.is_held(now));
        there.map(|part| part.ended()).chain([self.whole.ended()]).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Arc<HoldCell>>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many of so many servers are more than half.
pub(crate) fn majority_of(servers: usize) -> usize {
    servers / 2 + usize::from(!seeded!(HalfIsNoMajority))
}

/// Why a part has ended; of several, of the first server.
fn reason(parts: &[Option<Arc<HoldCell>>], now: Moment) -> LossReason {
    let over = parts.iter().flatten().find(|part| !part.is_held(now));
    over.map_or(LossReason::Expired, |part| part.loss().unwrap_or_else(|| part.expiry()))
}

impl fmt::Debug for Majority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Majority").field("whole", &self.whole).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(until: u64) -> Arc<HoldCell> {
        Arc::new(HoldCell::new(LockName::new("n").unwrap(), 1, 7, Moment(until)))
    }

    fn majority(ends: &[u64]) -> (Majority, Vec<Arc<HoldCell>>) {
        let parts: Vec<_> = ends.iter().map(|end| part(*end)).collect();
        let given = parts.iter().cloned().map(Some).collect();
        (Majority::new(LockName::new("n").unwrap(), 9, given), parts)
    }

    #[test]
    fn it_is_valid_as_long_as_a_majority() {
        for (ends, until) in [
            (&[100, 300, 200][..], 200),
            (&[100, 300, 200, 400], 200),
            (&[0, 300, 200], 200),
            (&[500, 100, 200, 400, 300], 300),
        ] {
            let (majority, _) = majority(ends);
            assert_eq!(majority.valid_until(), Moment(until), "{ends:?}");
            assert!(majority.is_still_held(Moment(until - 1)));
            assert!(!majority.is_still_held(Moment(until)));
            assert_eq!(majority.whole().loss(), Some(LossReason::Expired));
        }
    }

    #[test]
    fn a_lost_part_counts_no_more_and_the_loss_has_its_reason() {
        let (majority, parts) = majority(&[500, 400, 300]);
        parts[0].lose(LossReason::ServerLostData);
        assert!(majority.is_still_held(Moment(1)));
        assert_eq!(majority.valid_until(), Moment(300));
        parts[2].lose(LossReason::Removed);
        assert!(!majority.is_still_held(Moment(1)));
        assert_eq!(majority.whole().loss(), Some(LossReason::ServerLostData));
    }

    #[test]
    fn a_part_that_is_put_in_later_counts_but_brings_nothing_back() {
        let (majority, parts) = majority(&[500, 400, 0]);
        assert!(!majority.has(2, Moment(1)));
        majority.put(2, part(600), Moment(1));
        assert!(majority.has(2, Moment(1)));
        parts[0].lose(LossReason::Removed);
        assert_eq!(majority.valid_until(), Moment(400));
        parts[1].lose(LossReason::Removed);
        assert!(!majority.is_still_held(Moment(1)));
        majority.put(0, part(600), Moment(1));
        assert!(!majority.is_still_held(Moment(1)), "it was seen to be lost");
        assert_eq!(majority.valid_until(), Moment::ZERO);
    }

    #[test]
    fn a_loss_that_nobody_has_seen_is_final_too() {
        let (majority, _) = majority(&[100, 400, 0]);
        // Since 100 it has only one server, and somebody else may have had the others.
        majority.put(2, part(600), Moment(150));
        assert_eq!(majority.whole().loss(), Some(LossReason::Expired));
        assert!(!majority.is_still_held(Moment(150)));
        assert_eq!(majority.valid_until(), Moment::ZERO);
    }

    #[test]
    fn it_is_suspect_when_there_is_no_majority_without_the_doubtful() {
        let (majority, parts) = majority(&[500, 400, 300]);
        parts[0].set_suspect(true);
        assert!(!majority.is_suspect(Moment(1)));
        parts[1].set_suspect(true);
        assert!(majority.is_suspect(Moment(1)));
    }

    #[test]
    fn a_released_lock_is_not_lost() {
        let (majority, _) = majority(&[500, 400, 300]);
        majority.whole().release();
        assert!(!majority.is_still_held(Moment(1)));
        assert!(!majority.is_still_held(Moment(900)));
        assert_eq!(majority.whole().loss(), None);
    }
}
