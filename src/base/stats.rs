//! Counters and gauges of a client.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::clock::Moment;

macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counters and gauges of a client; see [`LockClient::stats`](crate::LockClient::stats).
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats { $($(#[$doc])* pub $field: u64,)* }

        /// Written by the engine, read by anyone.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $field: AtomicU64,)*
            links: Mutex<Vec<LinkState>>,
        }

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
    /// Acquisitions that ended in an error. Not counted are `NotAcquired`, which is no error, and
    /// the errors that are found before the client begins: `NoOwner`, and `InvalidOption` for
    /// options that are never allowed.
    failed_acquisitions,
    /// How long granted acquisitions have waited from call to grant, in microseconds, all together.
    wait_micros,
    /// How long holds have lasted from grant to the answer of their release, or to their loss, in
    /// microseconds, all together.
    hold_micros,
    /// Messages that were a reason to try: the lock was reserved for this client, or may be free
    /// for whoever tries first.
    wake_ups,
    /// Grants won by the attempt that waiters make every 5 s or so in case a wake-up message was
    /// lost. Many of them, compared with `wake_ups`, mean that messages are lost.
    fallback_grants,
    /// Grants by hand-off: release and grant in one script.
    hand_offs,
    /// Confirmed renewals, one for each hold.
    renewals,
    /// Renewals that failed or were not answered, one for each hold.
    renewal_failures,
    /// Holds that were lost.
    losses,
    /// Releases of dropped guards, and of `with`, that ended in an error: refused, not announced,
    /// not confirmed before the lease ended, or with data of another program left under the key.
    failed_drop_releases,
    /// Grants that no caller took, and that were given back.
    undone_grants,
    /// Gauge: holds of this client, including those that are being attempted or released.
    holds,
    /// Gauge: callers that wait for a lock.
    waiters,
    /// Gauge: holds whose next renewal, or question whether they are still there, is planned. A
    /// watched hold counts from when the client has seen that its caller took the guard: at the
    /// latest 5 s, or a third of the lease if that is less, after the grant (with a lease of 30 s,
    /// a sixth of it). While its renewal is on its way, it does not count.
    registered_renewals,
    /// Gauge: subscribed lock channels.
    subscriptions,
    /// Gauge: attempts with unknown outcome that are being cleaned up.
    clean_ups,
    /// Connections that were made anew after one was lost, of all servers.
    reconnects,
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

pub(crate) fn set(gauge: &AtomicU64, value: usize) {
    gauge.store(value as u64, Ordering::Relaxed);
}

pub(crate) fn add_time(counter: &AtomicU64, time: Duration) {
    add(counter, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

/// The connection to one server: [`LockClient::links`](crate::LockClient::links).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// The server's address. Empty before the first connection.
    pub address: String,
    /// Whether there is a connection that can be used.
    pub is_connected: bool,
    /// For how long this has been so.
    pub lasts: Duration,
    /// How often a connection was made anew after one was lost.
    pub reconnects: u64,
    /// What went wrong last, while there is no connection. It never contains a password.
    pub trouble: Option<String>,
}

/// The same as the engine stores it.
#[derive(Debug, Clone)]
pub(crate) struct LinkState {
    pub(crate) address: String,
    pub(crate) is_connected: bool,
    pub(crate) since: Moment,
    pub(crate) reconnects: u64,
    pub(crate) trouble: Option<String>,
    /// `None` before the first connection.
    pub(crate) process: Option<ServerProcess>,
}

/// Which process of a server a connection led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerProcess {
    /// Every start has another one. Empty if it is not known.
    pub(crate) run_id: String,
    pub(crate) at: Moment,
    /// For how long it had been there then, at least.
    pub(crate) uptime: Duration,
}

impl ServerProcess {
    /// For how long it has been there, at least.
    pub(crate) fn age(&self, now: Moment) -> Duration {
        self.uptime + now.since(self.at)
    }
}

impl Counters {
    /// The process that the last connection led to, of a client with one server; and whether the
    /// connection is there.
    pub(crate) fn process(&self) -> Option<(ServerProcess, bool)> {
        let links = self.lock_links();
        let link = links.first()?;
        Some((link.process.clone()?, link.is_connected))
    }

    pub(crate) fn show_links(&self, links: Vec<LinkState>) {
        *self.lock_links() = links;
    }

    pub(crate) fn links(&self, now: Moment) -> Vec<Link> {
        let shown = |link: &LinkState| Link {
            address: link.address.clone(),
            is_connected: link.is_connected,
            lasts: now.since(link.since),
            reconnects: link.reconnects,
            trouble: link.trouble.clone(),
        };
        self.lock_links().iter().map(shown).collect()
    }

    fn lock_links(&self) -> MutexGuard<'_, Vec<LinkState>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
