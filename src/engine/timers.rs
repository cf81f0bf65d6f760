//! When to look again, and at what.

use std::collections::BTreeSet;

use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::map::Map;
use crate::engine::event::RequestId;

/// What a timer is for. One timer of a kind and subject; setting it again moves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TimerKey {
    /// The end of a hold's validity, or the moment it becomes suspect.
    HoldClock(u64),
    /// An unpicked grant.
    Offer(u64),
    /// A command of a hold is to be sent again.
    HoldRetry(u64),
    /// The clean-up of a dead hold id.
    Cleanup(u64),
    /// A name that stays taken after its hold is surely free.
    Kept(u64),
    /// The contender of a name may try.
    Try(u64),
    /// A subscription without waiters.
    Linger(u64),
    /// The next look of those who watch a name, or the end of their subscription.
    Watch(u64),
    /// A subscription that was refused for a passing reason.
    Resubscribe(u64),
    /// A waiter may be waiting for its own client.
    SelfWait(u64),
    /// The end of a waiter's wait, or of another request.
    Request(RequestId),
    /// `outage_limit` of the waiters without a limit of their own.
    Outage,
    /// The client channel's subscription is to be tried again.
    ClientChannel,
    /// A server's clock is to be asked again.
    Clock(ServerId),
    /// The end of `shutdown`.
    Shutdown,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Moment, TimerKey)>,
    at: Map<TimerKey, Moment>,
}

impl Timers {
    pub(crate) fn set(&mut self, key: TimerKey, at: Moment) {
        if at == Moment::NEVER {
            return self.clear(key);
        }
        if let Some(before) = self.at.insert(key, at) {
            self.due.remove(&(before, key));
        }
        self.due.insert((at, key));
    }

    pub(crate) fn clear(&mut self, key: TimerKey) {
        if let Some(at) = self.at.remove(&key) {
            self.due.remove(&(at, key));
        }
    }

    pub(crate) fn is_set(&self, key: TimerKey) -> bool {
        self.at.contains_key(&key)
    }

    pub(crate) fn of(&self, key: TimerKey) -> Option<Moment> {
        self.at.get(&key).copied()
    }

    pub(crate) fn next(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the earliest timer that is due.
    pub(crate) fn pop(&mut self, now: Moment) -> Option<TimerKey> {
        let (at, key) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.clear(key);
        Some(key)
    }
}
