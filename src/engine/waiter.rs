//! One acquisition that waits, and what its attempts have met.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::lease::Lease;
use crate::base::lease::LeaseMs;
use crate::base::owner::OwnerKey;
use crate::engine::by_id::Record;
use crate::engine::event::RequestId;
use crate::kinds::share::Share;

/// What a waiter waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaiterPlace {
    /// In the queue of its name.
    Queued,
    /// Waiting to be a further level of this hold.
    Reentering(u64),
}

/// One acquisition.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) request: RequestId,
    pub(crate) name_id: u64,
    pub(crate) owner: OwnerKey,
    /// What it adds to what its owner has.
    pub(crate) share: Share,
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<LeaseMs>,
    pub(crate) since: Moment,
    /// End of the wait.
    pub(crate) deadline: Option<Moment>,
    /// `try_lock`: answered with the outcome of the next attempt.
    pub(crate) once: bool,
    /// Others watch what it gets, so that its release has to be told to them.
    pub(crate) leads: bool,
    /// The hold of its owner that has the shared share beside which this one wants an exclusive one.
    pub(crate) upgrades: Option<u64>,
    /// Place in the queue.
    pub(crate) ticket: u64,
    /// It is in the count of requests that had to wait.
    pub(crate) waited: bool,
    /// Its own attempts that were answered too late for its lease or its `max_hold`, which does not
    /// concern the others in the queue.
    pub(crate) late: Option<Box<Trouble>>,
    pub(crate) place: WaiterPlace,
}

impl Waiter {
    /// The share for which room must be beside the holds of its owner. `None`: it wants to have it
    /// beside one of them.
    pub(crate) fn needs_room_for(&self) -> Option<Share> {
        self.upgrades.is_none().then_some(self.share)
    }
}

impl Record for Waiter {
    type Id = RequestId;

    fn id(&self) -> RequestId {
        self.request
    }
}

/// The cause of attempts whose answers said "late", or came after the validity had ended.
pub(crate) const TOO_LATE: &str = "every answer came after the lease or max_hold had ended";

/// Attempts that fail in a row: since when, and the cause of the last failure.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) since: Moment,
    pub(crate) words: String,
}

impl Trouble {
    /// Adds a failure of a command sent at `sent`.
    pub(crate) fn note(trouble: &mut Option<Box<Self>>, sent: Moment, words: String) {
        let since = trouble.as_ref().map_or(sent, |known| known.since);
        *trouble = Some(Box::new(Self { since, words }));
    }
}
