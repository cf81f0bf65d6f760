//! The settings of a client, each with its default and the reason for it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::Error;
use crate::lease::LeaseMs;
use crate::name::WireProfile;

/// Whether wake-ups travel over sharded pub/sub (`SPUBLISH`, Redis 7 and later, Cluster). As text, `auto`, `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Sharding {
    /// As Redisson decides: sharded in a cluster whose nodes know `PUBSUB SHARDNUMSUB`, plain everywhere else.
    #[default]
    Auto,
    /// Always sharded.
    On,
    /// Never sharded.
    Off,
}

/// How servers stand together.
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

/// Where the keeper (connections, timers, watchdog) runs. As text, `thread` or `current`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Keeper {
    /// A thread of its own with its own runtime: a blocked or vanished user runtime stops neither renewals
    /// nor releases, and locks work under any executor. It writes this crate's log lines itself: a `tracing` subscriber that
    /// blocks, on a full pipe for instance, stops renewals for as long. One that panics loses the line, and nothing else.
    ///
    /// While fewer than four commands are on their way, a poll of `lock()` or `unlock()` on a Tokio runtime does the keeper's
    /// work in its place, a bounded amount of it, log lines included, so that the thread need not be woken. A thread that the
    /// system stops in the middle of that, because of its priority for instance, keeps the keeper waiting.
    ///
    /// With a server that has answered within 200 µs, which is to say one on the same machine or next to it, that poll, or the
    /// keeper, waits for the answer to a hand-off, to an acquire or a release that others wait for, and to one that is the only
    /// thing going on here: up to 80 µs at a time without letting the thread sleep, four times in a row at most (the keeper
    /// eight times, then other tasks of its thread have their turn); less and less often if nothing comes in that time. Other
    /// tasks of that thread of the runtime wait as long. While the tasks of this client pass a lock on to each other in this
    /// way, the keeper's thread hears of anything else up to 1 ms later.
    ///
    /// Of several tasks that are answered together, the first to run wakes up to 64 of the others. Tokio's threads keep whom
    /// they have woken last to themselves, as with Tokio's own locks: a task that blocks its thread right after `lock()` or
    /// `unlock()`, or whose thread the system stops there, may keep one other waiting.
    #[default]
    Thread,
    /// A task on the Tokio runtime that builds the client: no thread hop, and no isolation from that runtime. Call
    /// [`shutdown`](crate::LockClient::shutdown) before the runtime ends: afterwards nothing is released any more.
    /// A poll of `lock()` may then do other callers' I/O too, a bounded amount of it. Behind the other tasks of its thread the
    /// keeper waits up to 80 µs without letting the thread sleep, as `Thread` does, and while 16 commands are on their way. An
    /// `unlock()` that passes the lock on to another task of this client may return only after that one's next poll. The runtime
    /// needs timers and I/O (`enable_all`). A task that blocks its thread right after it has dropped a guard may keep the
    /// release waiting. While nobody drives the runtime, or something blocks it, no call returns, with a limit or without,
    /// `try_lock` and `shutdown` from other runtimes included. Under Tokio's paused clock, test with the in-memory server: time
    /// would run away from a real one.
    Current,
}

/// One word for each, as configuration files have it: read and written.
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
words!(Keeper, "keeper": "thread" = Thread or "current" = Current);
words!(WireProfile, "profile": "default" = Default or "redisson" = Redisson);

/// What the engine needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// This client's id, the first part of its hold fields.
    pub(crate) client_id: String,
    /// Watched lease. 30 s, Redisson's lockWatchdogTimeout.
    pub(crate) lease: LeaseMs,
    /// How long one command may take. 1 s: renewing a 30 s lease can then fail 19 times before it is lost.
    pub(crate) command_timeout: Duration,
    /// How long `lock()` goes on without any answer of the server. 30 s.
    pub(crate) outage_limit: Duration,
    /// Longest sleep of a waiter, in case a wake-up is lost. 5 s.
    pub(crate) fallback: Duration,
    /// Spelling of the wake-up channel.
    pub(crate) profile: WireProfile,
    /// Whether wake-ups are published sharded.
    pub(crate) sharding: Sharding,
    /// Whether a release may grant to a waiter of the same client in one script. On.
    pub(crate) hand_off: bool,
    /// Waiters of one name in this client. 100,000.
    pub(crate) max_waiters: usize,
    /// Nesting of one hold. 65,535.
    pub(crate) max_hold_count: u32,
}

impl Config {
    pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);
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
        for keeper in [Keeper::Thread, Keeper::Current] {
            assert_eq!(keeper.to_string().parse::<Keeper>().expect("its own word"), keeper);
        }
        for profile in [WireProfile::Default, WireProfile::Redisson] {
            assert_eq!(profile.to_string().parse::<WireProfile>().expect("its own word"), profile);
        }
        assert_eq!(format!("{:>5}", Sharding::On), "   on");
    }

    #[test]
    fn other_words_are_refused_with_those_that_are_allowed() {
        let said = |error: Error| error.to_string();
        assert_eq!(
            "On".parse::<Sharding>().map_err(said),
            Err("sharding \"On\" is not allowed: it must be auto, on or off".to_owned())
        );
        assert_eq!(
            "".parse::<Keeper>().map_err(said),
            Err("keeper \"\" is not allowed: it must be thread or current".to_owned())
        );
        assert_eq!(
            "java".parse::<WireProfile>().map_err(said),
            Err("profile \"java\" is not allowed: it must be default or redisson".to_owned())
        );
    }
}
