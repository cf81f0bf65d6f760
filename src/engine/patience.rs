//! Waiters without a limit of their own, by the earliest instant at which an outage may end their wait.

use std::collections::BTreeSet;

use crate::base::clock::Moment;
use crate::engine::event::RequestId;

/// Empty while there is no trouble: it is made when an outage has gone on for its limit, so that those who come and
/// go meanwhile cost nothing. One that has left is found out when it is due.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    due: BTreeSet<(Moment, RequestId)>,
    /// When all waiters were looked at.
    pub(crate) made: Moment,
    /// When all releases were.
    pub(crate) unlocks: Moment,
}

impl Patience {
    pub(crate) fn make(&mut self, now: Moment, waiters: impl IntoIterator<Item = (Moment, RequestId)>) {
        self.made = now;
        self.due = waiters.into_iter().collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    pub(crate) fn add(&mut self, at: Moment, request: RequestId) {
        self.due.insert((at, request));
    }

    pub(crate) fn next(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the earliest that is due.
    pub(crate) fn pop(&mut self, now: Moment) -> Option<RequestId> {
        let (at, request) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.due.remove(&(at, request));
        Some(request)
    }
}
