//! The registry of what to renew when.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::map::Map;
use crate::engine::agenda::Agenda;
use crate::engine::hold::Hold;

/// Most holds in one script. A renewal of so many takes a third of a millisecond on the server.
pub(crate) const BATCH: usize = 100;
/// Most holds whose renewals are on their way to one server. If all were, a server or a machine that is too slow for
/// one command timeout would answer all of them too late, again and again.
pub(crate) const WINDOW: usize = 8 * BATCH;

/// A hold knows itself when it is due.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    due: Agenda,
    /// Due, but their server cannot be asked.
    parked: BTreeSet<u64>,
    lines: BTreeMap<ServerId, RenewalQueue>,
    /// Where in which line.
    in_line: Map<u64, (ServerId, Moment)>,
}

/// Renewals of one server.
#[derive(Debug, Default)]
struct RenewalQueue {
    /// Due. Those that run out first go first.
    waiting: BTreeSet<(Moment, u64)>,
    on_their_way: usize,
}

impl Renewals {
    /// Registers a hold, or moves it.
    pub(crate) fn set(&mut self, hold: &mut Hold, at: Moment) {
        self.remove(hold);
        hold.renewal_due = at;
        self.due.insert(at, hold.id);
    }

    /// Registers a hold that may be waiting to be asked about earlier: then it stays where it is.
    pub(crate) fn arm(&mut self, hold: &mut Hold, at: Moment) {
        let earlier = hold.renewal_due <= at;
        if !earlier && !self.parked.contains(&hold.id) && !self.in_line.contains_key(&hold.id) {
            self.set(hold, at);
        }
    }

    pub(crate) fn remove(&mut self, hold: &mut Hold) {
        let due = std::mem::replace(&mut hold.renewal_due, Moment::NEVER);
        if due < Moment::NEVER {
            return self.due.remove(due, hold.id);
        }
        self.parked.remove(&hold.id);
        if let Some((server, runs_out)) = self.in_line.remove(&hold.id) {
            self.lines.entry(server).or_default().waiting.remove(&(runs_out, hold.id));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len() + self.parked.len() + self.in_line.len()
    }

    /// Keeps a hold until its server can be asked.
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

    /// Takes the holds that are due by then. Each is to be lined up before anything else is done.
    pub(crate) fn take_due(&mut self, until: Moment) -> Vec<u64> {
        std::iter::from_fn(|| self.due.pop(until)).collect()
    }

    /// Puts a hold in the line of its server.
    pub(crate) fn line_up(&mut self, hold: &mut Hold, server: ServerId) {
        let runs_out = hold.valid_until();
        self.remove(hold);
        self.in_line.insert(hold.id, (server, runs_out));
        self.lines.entry(server).or_default().waiting.insert((runs_out, hold.id));
    }

    /// Takes those whose turn it is at one server, if any has room.
    pub(crate) fn take_turn(&mut self) -> Option<Vec<u64>> {
        let can = |line: &&mut RenewalQueue| !line.waiting.is_empty() && line.on_their_way < WINDOW;
        let line = self.lines.values_mut().find(can)?;
        let room = WINDOW - line.on_their_way;
        let mut taken = Vec::new();
        while taken.len() < room {
            let Some((_, hold)) = line.waiting.pop_first() else { break };
            self.in_line.remove(&hold);
            taken.push(hold);
        }
        Some(taken)
    }

    pub(crate) fn sent(&mut self, server: ServerId, holds: usize) {
        self.lines.entry(server).or_default().on_their_way += holds;
    }

    /// In whatever way.
    pub(crate) fn answered(&mut self, server: ServerId, holds: usize) {
        let Some(line) = self.lines.get_mut(&server) else { return };
        line.on_their_way = line.on_their_way.saturating_sub(holds);
        if line.on_their_way == 0 && line.waiting.is_empty() {
            self.lines.remove(&server);
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

    fn hold(id: u64) -> Hold {
        let lease = LeaseMs::checked("lease", Duration::from_secs(30)).unwrap();
        Hold::new(id, 9, LockName::new("n").unwrap(), OwnerKey::once(), lease)
    }

    #[test]
    fn what_is_removed_is_gone_wherever_it_stood() {
        let (mut renewals, mut hold) = (Renewals::default(), hold(1));
        renewals.set(&mut hold, Moment(10));
        renewals.remove(&mut hold);
        assert_eq!((renewals.len(), renewals.next()), (0, None));
        renewals.park(&mut hold);
        assert_eq!((renewals.len(), renewals.parked().len()), (1, 1));
        renewals.remove(&mut hold);
        assert_eq!((renewals.len(), renewals.parked().len()), (0, 0));
        renewals.line_up(&mut hold, ServerId::ONLY);
        assert_eq!(renewals.len(), 1);
        renewals.remove(&mut hold);
        assert_eq!((renewals.len(), renewals.take_turn()), (0, None));
    }

    #[test]
    fn what_is_due_soon_goes_along() {
        let (mut renewals, mut third) = (Renewals::default(), hold(3));
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
