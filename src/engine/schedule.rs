//! Which holds are due for renewal, in order of time. When a hold is due is decided in `hold.rs`
//! (`renew_at`), how many are renewed by one script in `watchdog.rs`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::map::Map;
use crate::engine::agenda::Agenda;
use crate::engine::hold::Hold;

/// The most holds in one script, or permits of holds. Renewing them takes the server a third of a
/// millisecond.
pub(crate) const BATCH: usize = 100;
/// The most holds whose renewals are in flight to one server. Without a limit, a server or machine
/// that is too slow to answer all of them within a command timeout would answer all of them too
/// late, again and again.
pub(crate) const WINDOW: usize = 8 * BATCH;

/// When each hold is due for renewal. The time is stored in the hold.
#[derive(Debug, Default)]
pub(crate) struct RenewalSchedule {
    due: Agenda,
    /// Due holds whose server is not available.
    parked: BTreeSet<u64>,
    queues: BTreeMap<ServerId, RenewalQueue>,
    /// The server and the time of each queued hold.
    queued: Map<u64, (ServerId, Moment)>,
}

/// The renewals of one server.
#[derive(Debug, Default)]
struct RenewalQueue {
    /// Due holds. Those whose lease ends first go first.
    waiting: BTreeSet<(Moment, u64)>,
    in_flight: usize,
}

impl RenewalSchedule {
    /// Registers a hold, or changes its time.
    pub(crate) fn set(&mut self, hold: &mut Hold, at: Moment) {
        self.remove(hold);
        hold.renewal_due = at;
        self.due.insert(at, hold.id);
    }

    /// Registers a hold. If it is already due earlier, for instance for a verification, that time
    /// stays.
    pub(crate) fn arm(&mut self, hold: &mut Hold, at: Moment) {
        let earlier = hold.renewal_due <= at;
        if !earlier && !self.parked.contains(&hold.id) && !self.queued.contains_key(&hold.id) {
            self.set(hold, at);
        }
    }

    pub(crate) fn remove(&mut self, hold: &mut Hold) {
        let due = std::mem::replace(&mut hold.renewal_due, Moment::NEVER);
        if due < Moment::NEVER {
            return self.due.remove(due, hold.id);
        }
        self.parked.remove(&hold.id);
        if let Some((server, runs_out)) = self.queued.remove(&hold.id) {
            self.queues.entry(server).or_default().waiting.remove(&(runs_out, hold.id));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len() + self.parked.len() + self.queued.len()
    }

    /// Keeps a hold until its server is available.
    pub(crate) fn park(&mut self, hold: &mut Hold) {
        self.remove(hold);
        self.parked.insert(hold.id);
    }

    pub(crate) fn parked(&self) -> Vec<u64> {
        self.parked.iter().copied().collect()
    }

    pub(crate) fn next(&self) -> Option<Moment> {
        self.due.next()
    }

    /// Takes the holds that are due by then. Each has to be queued or set again before anything
    /// else is done.
    pub(crate) fn take_due(&mut self, until: Moment) -> Vec<u64> {
        std::iter::from_fn(|| self.due.pop(until)).collect()
    }

    /// Puts a hold into the queue of its server.
    pub(crate) fn enqueue(&mut self, hold: &mut Hold, server: ServerId) {
        let runs_out = hold.valid_until();
        self.remove(hold);
        self.queued.insert(hold.id, (server, runs_out));
        self.queues.entry(server).or_default().waiting.insert((runs_out, hold.id));
    }

    /// Takes the next holds of one server, if one may have more renewals in flight.
    pub(crate) fn take_turn(&mut self) -> Option<Vec<u64>> {
        let can = |queue: &&mut RenewalQueue| !queue.waiting.is_empty() && queue.in_flight < WINDOW;
        let queue = self.queues.values_mut().find(can)?;
        let room = WINDOW - queue.in_flight;
        let mut taken = Vec::new();
        while taken.len() < room {
            let Some((_, hold)) = queue.waiting.pop_first() else { break };
            self.queued.remove(&hold);
            taken.push(hold);
        }
        Some(taken)
    }

    pub(crate) fn sent(&mut self, server: ServerId, holds: usize) {
        self.queues.entry(server).or_default().in_flight += holds;
    }

    /// Called for every outcome.
    pub(crate) fn answered(&mut self, server: ServerId, holds: usize) {
        let Some(queue) = self.queues.get_mut(&server) else { return };
        queue.in_flight = queue.in_flight.saturating_sub(holds);
        if queue.in_flight == 0 && queue.waiting.is_empty() {
            self.queues.remove(&server);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Duration;

    use crate::base::lease::LeaseMs;
    use crate::base::name::LockName;
    use crate::base::owner::OwnerKey;
    use crate::kinds::share::Share;

    fn hold(id: u64) -> Hold {
        let lease = LeaseMs::checked("lease", Duration::from_secs(30)).unwrap();
        Hold::new(id, 9, LockName::new("n").unwrap(), OwnerKey::once(), Share::ONE, lease)
    }

    #[test]
    fn what_is_removed_is_gone_wherever_it_stood() {
        let (mut renewals, mut hold) = (RenewalSchedule::default(), hold(1));
        renewals.set(&mut hold, Moment(10));
        renewals.remove(&mut hold);
        assert_eq!((renewals.len(), renewals.next()), (0, None));
        renewals.park(&mut hold);
        assert_eq!((renewals.len(), renewals.parked().len()), (1, 1));
        renewals.remove(&mut hold);
        assert_eq!((renewals.len(), renewals.parked().len()), (0, 0));
        renewals.enqueue(&mut hold, ServerId::ONLY);
        assert_eq!(renewals.len(), 1);
        renewals.remove(&mut hold);
        assert_eq!((renewals.len(), renewals.take_turn()), (0, None));
    }

    #[test]
    fn what_is_due_soon_goes_along() {
        let (mut renewals, mut third) = (RenewalSchedule::default(), hold(3));
        renewals.set(&mut hold(1), Moment(10));
        renewals.set(&mut hold(2), Moment(12));
        renewals.set(&mut third, Moment(30));
        assert!(renewals.take_due(Moment(9)).is_empty());
        assert_eq!(renewals.take_due(Moment(20)), [1, 2]);
        assert_eq!(renewals.len(), 1);
        renewals.remove(&mut third);
        assert_eq!(renewals.next(), None);
    }
}
