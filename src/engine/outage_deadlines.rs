//! The waiters without a limit of their own, ordered by the earliest instant at which an outage may
//! end their wait.

use std::collections::BTreeSet;

use crate::base::clock::Moment;
use crate::engine::event::RequestId;

/// Empty while there is no trouble. It is filled when an outage has lasted for the limit, so that
/// waiters that come and go before cost nothing. A waiter that has left is noticed when it is due.
#[derive(Debug, Default)]
pub(crate) struct OutageDeadlines {
    due: BTreeSet<(Moment, RequestId)>,
    /// When all waiters were looked at.
    pub(crate) made: Moment,
    /// When all releases were looked at.
    pub(crate) unlocks: Moment,
}

impl OutageDeadlines {
    pub(crate) fn make(
        &mut self,
        now: Moment,
        waiters: impl IntoIterator<Item = (Moment, RequestId)>,
    ) {
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

    /// Takes the earliest waiter that is due.
    pub(crate) fn pop(&mut self, now: Moment) -> Option<RequestId> {
        let (at, request) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.due.remove(&(at, request));
        Some(request)
    }
}
