//! The registry of what to renew when.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::backend::ServerId;
use crate::clock::Moment;
use crate::map::Map;

/// Most holds in one script. A renewal of so many takes a third of a millisecond on the server.
pub(crate) const BATCH: usize = 100;
/// Most holds whose renewals are on their way to one server. If all were, a server or a machine that is too slow for
/// one command timeout would answer all of them too late, again and again.
pub(crate) const WINDOW: usize = 8 * BATCH;

#[derive(Debug, Default)]
pub(crate) struct Renewals {
    due: BTreeSet<(Moment, u64)>,
    at: Map<u64, Moment>,
    /// Due, but their server cannot be asked.
    parked: BTreeSet<u64>,
    lines: BTreeMap<ServerId, Line>,
    /// Where in which line.
    in_line: Map<u64, (ServerId, Moment)>,
}

/// Renewals of one server.
#[derive(Debug, Default)]
struct Line {
    /// Due. Those that run out first go first.
    waiting: BTreeSet<(Moment, u64)>,
    on_their_way: usize,
}

impl Renewals {
    /// Registers a hold, or moves it.
    pub(crate) fn set(&mut self, hold: u64, at: Moment) {
        self.remove(hold);
        self.at.insert(hold, at);
        self.due.insert((at, hold));
    }

    /// Registers a hold that may be waiting to be asked about earlier: then it stays where it is.
    pub(crate) fn arm(&mut self, hold: u64, at: Moment) {
        let earlier = self.at.get(&hold).is_some_and(|known| *known <= at);
        if !earlier && !self.parked.contains(&hold) && !self.in_line.contains_key(&hold) {
            self.set(hold, at);
        }
    }

    pub(crate) fn remove(&mut self, hold: u64) {
        self.parked.remove(&hold);
        if let Some(at) = self.at.remove(&hold) {
            self.due.remove(&(at, hold));
        }
        if let Some((server, runs_out)) = self.in_line.remove(&hold) {
            self.lines.entry(server).or_default().waiting.remove(&(runs_out, hold));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.at.len() + self.parked.len() + self.in_line.len()
    }

    /// Keeps a hold until its server can be asked.
    pub(crate) fn park(&mut self, hold: u64) {
        self.remove(hold);
        self.parked.insert(hold);
    }

    pub(crate) fn parked(&self) -> Vec<u64> {
        self.parked.iter().copied().collect()
    }

    /// When it is due. `None` also for one that is already in line.
    pub(crate) fn of(&self, hold: u64) -> Option<Moment> {
        self.at.get(&hold).copied()
    }

    pub(crate) fn next(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the holds that are due by then.
    pub(crate) fn take_due(&mut self, until: Moment) -> Vec<u64> {
        let mut taken = Vec::new();
        while let Some(&(at, hold)) = self.due.first() {
            if at > until {
                break;
            }
            self.remove(hold);
            taken.push(hold);
        }
        taken
    }

    /// Puts a hold in the line of its server.
    pub(crate) fn line_up(&mut self, hold: u64, server: ServerId, runs_out: Moment) {
        self.remove(hold);
        self.in_line.insert(hold, (server, runs_out));
        self.lines.entry(server).or_default().waiting.insert((runs_out, hold));
    }

    /// Takes those whose turn it is at one server, if any has room.
    pub(crate) fn take_turn(&mut self) -> Option<Vec<u64>> {
        let can = |line: &&mut Line| !line.waiting.is_empty() && line.on_their_way < WINDOW;
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

    #[test]
    fn what_is_due_soon_goes_along() {
        let mut renewals = Renewals::default();
        renewals.set(1, Moment(10));
        renewals.set(2, Moment(12));
        renewals.set(3, Moment(30));
        assert!(renewals.take_due(Moment(9)).is_empty());
        assert_eq!(renewals.take_due(Moment(20)), [1, 2]);
        assert_eq!(renewals.len(), 1);
        renewals.remove(3);
        assert_eq!(renewals.next(), None);
    }
}
