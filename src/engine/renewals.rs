//! The registry of what to renew when.

use std::collections::BTreeSet;
use std::collections::HashMap;

use crate::clock::Moment;

/// Most holds in one renewal script: it takes a third of a millisecond on the server.
pub(crate) const BATCH: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Renewals {
    due: BTreeSet<(Moment, u64)>,
    at: HashMap<u64, Moment>,
    /// Due, but their server cannot be asked.
    parked: BTreeSet<u64>,
}

impl Renewals {
    /// Registers a hold, or moves it.
    pub(crate) fn set(&mut self, hold: u64, at: Moment) {
        self.remove(hold);
        self.at.insert(hold, at);
        self.due.insert((at, hold));
    }

    pub(crate) fn remove(&mut self, hold: u64) {
        self.parked.remove(&hold);
        if let Some(at) = self.at.remove(&hold) {
            self.due.remove(&(at, hold));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.at.len() + self.parked.len()
    }

    /// Keeps a hold until its server can be asked.
    pub(crate) fn park(&mut self, hold: u64) {
        self.remove(hold);
        self.parked.insert(hold);
    }

    pub(crate) fn parked(&self) -> Vec<u64> {
        self.parked.iter().copied().collect()
    }

    pub(crate) fn next(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the holds that are due, or will be by `until`, if any is due `now`.
    pub(crate) fn take_due(&mut self, now: Moment, until: Moment) -> Vec<u64> {
        if self.next().is_none_or(|at| at > now) {
            return Vec::new();
        }
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
        assert!(renewals.take_due(Moment(9), Moment(20)).is_empty());
        assert_eq!(renewals.take_due(Moment(10), Moment(20)), [1, 2]);
        assert_eq!(renewals.len(), 1);
        renewals.remove(3);
        assert_eq!(renewals.next(), None);
    }
}
