//! Counters and gauges of a client.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counters and gauges of a client; see [`LockClient::stats`](crate::LockClient::stats).
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats { $($(#[$doc])* pub $field: u64,)* }

        /// Written by the engine, read by anyone.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $field: AtomicU64,)* }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($field: self.$field.load(Ordering::Relaxed),)* }
            }
        }
    };
}

stats! {
    /// Grants of new holds; re-entries are not counted.
    grants,
    /// Re-entries: levels added to a hold.
    reentries,
    /// Acquisitions that had to wait.
    waits,
    /// Wake-up messages that arrived for a name with waiters.
    wake_ups,
    /// Grants won by the fallback poll instead of a wake-up.
    fallback_grants,
    /// Grants by hand-off: release and grant in one script.
    hand_offs,
    /// Confirmed renewals, one for each hold.
    renewals,
    /// Renewals that failed or were not answered, one for each hold.
    renewal_failures,
    /// Holds that were lost.
    losses,
    /// Releases of dropped guards that ended in an error: refused, not announced, not confirmed
    /// before the lease ended, or with data of another program left under the key.
    failed_drop_releases,
    /// Grants that no caller took, and that were given back.
    undone_grants,
    /// Gauge: holds of this client, including those that are being attempted or released.
    holds,
    /// Gauge: callers that wait for a lock.
    waiters,
    /// Gauge: holds in the renewal registry.
    registered_renewals,
    /// Gauge: subscribed lock channels.
    subscriptions,
    /// Gauge: attempts with unknown outcome that are being cleaned up.
    clean_ups,
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

pub(crate) fn set(gauge: &AtomicU64, value: usize) {
    gauge.store(value as u64, Ordering::Relaxed);
}
