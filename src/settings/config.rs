//! The settings of a client, each with its default and the reason for it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::lease::LeaseMs;
use crate::base::name::WireProfile;

/// Whether wake-ups use sharded pub/sub (`SPUBLISH`, in a cluster of Redis 7 or later). As text:
/// `auto`, `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Sharding {
    /// As Redisson decides: sharded in a cluster whose nodes know `PUBSUB SHARDNUMSUB`, plain
    /// everywhere else.
    #[default]
    Auto,
    /// Always sharded.
    On,
    /// Never sharded.
    Off,
}

/// How the servers form a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Topology {
    /// One server, or a primary that is never replaced.
    #[default]
    Single,
    /// A primary that sentinels watch and replace.
    Sentinel,
    /// Redis Cluster.
    Cluster,
}

/// Where the driver runs: the driver that owns connections, timers and the watchdog. As text:
/// `thread` or `current`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Driver {
    /// A thread of its own with its own runtime. A user runtime that is blocked or has ended stops
    /// neither renewals nor releases, and locks work under any executor. This thread writes the
    /// crate's log lines: a `tracing` subscriber that blocks, on a full pipe for instance, stops
    /// renewals for as long. One that panics loses the line and nothing else.
    ///
    /// **What runs on your threads.** While fewer than four commands are on their way, a poll of
    /// `lock()` or `unlock()` on a Tokio runtime does a bounded amount of the driver's work, log
    /// lines included, so that the thread need not be woken. If the system stops your thread in the
    /// middle of that, for instance because of its priority, the driver waits.
    ///
    /// **Busy waiting.** With a server that has answered within 200 µs, which means on the same
    /// machine or next to it, that poll or the driver waits for some answers without letting its
    /// thread sleep: the answer to a hand-off, to an acquire or a release that other callers of
    /// this client wait for, and to an acquire or a release after several that were each alone on
    /// their way. A poll of yours waits once, for up to 80 µs, and the driver for as long at a
    /// time; both wait less and less often if nothing comes in that time. Other tasks of that
    /// thread wait as long.
    ///
    /// **Waking.** A thread of Tokio keeps the task that it has woken last to itself, as with
    /// Tokio's own locks. So a task that blocks its thread right after `lock()` or `unlock()`, or
    /// whose thread the system stops there, may keep one other task waiting.
    #[default]
    Thread,
    /// A task on the Tokio runtime that builds the client: no thread hop, and no isolation from
    /// that runtime. The runtime needs timers and I/O (`enable_all`). Call
    /// [`shutdown`](crate::LockClient::shutdown) before the runtime ends: afterwards nothing is
    /// released any more.
    ///
    /// While something blocks the runtime, no call returns, with a limit or without; this includes
    /// `try_lock` and `shutdown` from other runtimes. A current-thread runtime is driven by
    /// `Runtime::block_on` only. A call from anywhere else, such as `Handle::block_on`, a task of
    /// another runtime or another executor, waits for
    /// [`outage_limit`](crate::LockClientBuilder::outage_limit), and is [`Error::Unavailable`] if
    /// nobody has driven the runtime in that time (`connect` after the time that was given to it,
    /// `shutdown` likewise, but not before 2 s). A task that blocks its thread right after it has
    /// dropped a guard may delay the release.
    ///
    /// A poll of `lock()` may also do a bounded amount of other callers' I/O. After the other tasks
    /// of its thread have run, the driver waits up to 80 µs without letting the thread sleep, in
    /// the cases named at `Thread` and while 16 commands are on their way.
    ///
    /// Do not use a paused Tokio clock with a real server, whose time would not be paused; test
    /// with the in-memory server.
    Current,
}

/// Implements parsing and printing of a setting as one word, as in configuration files.
macro_rules! words {
    ($setting:ident, $option:literal: $($word:literal = $variant:ident),+ or $last:literal = $last_variant:ident) => {
        impl fmt::Display for $setting {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$variant => $word,)+
                    Self::$last_variant => $last,
                })
            }
        }

        impl FromStr for $setting {
            type Err = Error;

            fn from_str(word: &str) -> Result<Self, Error> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    $last => Ok(Self::$last_variant),
                    other => Err(Error::InvalidOption {
                        option: $option,
                        given: format!("{other:?}"),
                        allowed: concat!(words!(@list $($word),+), " or ", $last).to_owned(),
                    }),
                }
            }
        }
    };
    (@list $first:literal $(, $more:literal)*) => { concat!($first $(, ", ", $more)*) };
}

words!(Sharding, "sharding": "auto" = Auto, "on" = On or "off" = Off);
words!(Driver, "driver": "thread" = Thread or "current" = Current);
words!(WireProfile, "profile": "native" = Native or "redisson" = Redisson);

/// The settings that the engine needs.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// This client's id, the first part of its hold fields.
    pub(crate) client_id: String,
    /// The server as the user named it, without credentials, for messages.
    pub(crate) address: String,
    /// Which servers these are: what the user has named them, or else their addresses. Clients of the
    /// same servers have the same.
    pub(crate) deployment: String,
    /// The watched lease. 30 s, like Redisson's lockWatchdogTimeout.
    pub(crate) lease: LeaseMs,
    /// The time limit of one command. 1 s: the renewal of a 30 s lease can then fail 19 times
    /// before the hold is lost.
    pub(crate) command_timeout: Duration,
    /// How long `lock()` goes on without an answer of the server. 30 s.
    pub(crate) outage_limit: Duration,
    /// The longest sleep of a waiter, in case a wake-up is lost. 5 s.
    pub(crate) fallback: Duration,
    /// How wake-up channels are spelled.
    pub(crate) profile: WireProfile,
    /// To what clients of Redisson shorten the leases of readers. 30 s, its lockWatchdogTimeout.
    pub(crate) redisson_watchdog: LeaseMs,
    /// Whether wake-ups use sharded pub/sub.
    pub(crate) sharding: Sharding,
    /// Whether a release may grant to a waiter of the same client in one script. On.
    pub(crate) hand_off: bool,
    /// The most waiters of one name in this client. 100,000.
    pub(crate) max_waiters: usize,
    /// The most levels of one hold. 65,535.
    pub(crate) max_hold_count: u32,
}

impl Config {
    pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);
    pub(crate) const DEFAULT_REDISSON_WATCHDOG: Duration = Duration::from_secs(30);
    pub(crate) const DEFAULT_COMMAND_TIMEOUT: Duration = Duration::from_secs(1);
    pub(crate) const DEFAULT_OUTAGE_LIMIT: Duration = Duration::from_secs(30);
    pub(crate) const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    pub(crate) const FALLBACK: Duration = Duration::from_secs(5);
    pub(crate) const MAX_WAITERS: usize = 100_000;
    pub(crate) const MAX_HOLD_COUNT: u32 = 65_535;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
        for sharding in [Sharding::Auto, Sharding::On, Sharding::Off] {
            assert_eq!(sharding.to_string().parse::<Sharding>().expect("its own word"), sharding);
        }
        for driver in [Driver::Thread, Driver::Current] {
            assert_eq!(driver.to_string().parse::<Driver>().expect("its own word"), driver);
        }
        for profile in [WireProfile::Native, WireProfile::Redisson] {
            assert_eq!(profile.to_string().parse::<WireProfile>().expect("its own word"), profile);
        }
        assert_eq!(format!("{:>5}", Sharding::On), "   on");
    }

    #[test]
    fn other_words_are_refused_with_those_that_are_allowed() {
        let said = |error: Error| error.words();
        assert_eq!(
            "On".parse::<Sharding>().map_err(said),
            Err("sharding \"On\" is not allowed: it must be auto, on or off".to_owned())
        );
        assert_eq!(
            "".parse::<Driver>().map_err(said),
            Err("driver \"\" is not allowed: it must be thread or current".to_owned())
        );
        assert_eq!(
            "java".parse::<WireProfile>().map_err(said),
            Err("profile \"java\" is not allowed: it must be native or redisson".to_owned())
        );
    }
}
