//! The time settings of a client: each within its limits, and none in conflict with another.

use std::time::Duration;

use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::lease::LeaseMs;
use crate::settings::config::Config;

const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST_COMMAND: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// From an address to the first answered command: the socket, two for TLS, a login, the first
/// questions, one command.
const ROUND_TRIPS_TO_CONNECT: u32 = 5;

/// The settings as they were given. `None`: the default, which follows from the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) lease: Option<Duration>,
    pub(super) command_timeout: Option<Duration>,
    pub(super) outage_limit: Option<Duration>,
    pub(super) connect_timeout: Option<Duration>,
}

/// The settings as they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckedTimes {
    pub(super) lease: LeaseMs,
    pub(super) command_timeout: Duration,
    pub(super) outage_limit: Duration,
    pub(super) connect_timeout: Duration,
}

impl Times {
    pub(super) fn new() -> Self {
        Self { lease: None, command_timeout: None, outage_limit: None, connect_timeout: None }
    }

    /// Refuses settings outside their limits, and pairs of which one makes the other meaningless.
    pub(super) fn check(&self) -> Result<CheckedTimes> {
        self.lease.map(|lease| LeaseMs::checked("lease", lease)).transpose()?;
        within("command_timeout", self.command_timeout, LONGEST_COMMAND, "10 ms to 1 min")?;
        within("outage_limit", self.outage_limit, LONGEST_WAIT, "10 ms to 24 h")?;
        within("connect_timeout", self.connect_timeout, LONGEST_WAIT, "10 ms to 24 h")?;
        let command_timeout =
            self.command_timeout.unwrap_or_else(|| self.default_command_timeout());
        let outage_limit =
            self.outage_limit.unwrap_or(Config::DEFAULT_OUTAGE_LIMIT.max(command_timeout));
        let connect_timeout = self.connect_timeout.unwrap_or_else(|| {
            Config::DEFAULT_CONNECT_TIMEOUT.max(ROUND_TRIPS_TO_CONNECT * command_timeout)
        });
        let lease = self.lease.unwrap_or(Config::DEFAULT_LEASE.max(2 * command_timeout));
        if command_timeout > lease {
            let allowed = format!("no longer than the lease, {lease:?}");
            return Err(refused("command_timeout", command_timeout, allowed));
        }
        if outage_limit < command_timeout {
            let allowed = format!("no shorter than the command timeout, {command_timeout:?}");
            return Err(refused("outage_limit", outage_limit, allowed));
        }
        let lease = LeaseMs::checked("lease", lease)?;
        Ok(CheckedTimes { lease, command_timeout, outage_limit, connect_timeout })
    }

    /// Short enough that a renewal without an answer can be repeated within the lease, and that one
    /// attempt of `lock()` fits into the outage limit.
    fn default_command_timeout(&self) -> Duration {
        let lease = self.lease.unwrap_or(Config::DEFAULT_LEASE);
        let limit = self.outage_limit.unwrap_or(Config::DEFAULT_OUTAGE_LIMIT);
        Config::DEFAULT_COMMAND_TIMEOUT.min(lease / 2).min(limit).max(SHORTEST)
    }
}

impl CheckedTimes {
    /// Warnings about settings that are allowed, but have less effect than they suggest.
    pub(super) fn warnings(&self) -> Vec<String> {
        let Self { lease, command_timeout, connect_timeout, .. } = *self;
        let lease = lease.duration();
        let mut warnings = Vec::new();
        if command_timeout > lease / 2 && command_timeout > SHORTEST {
            warnings.push(format!(
                "the command timeout, {command_timeout:?}, is more than half of the lease, {lease:?}: \
                 after one renewal without an answer there is no time for another, and the lock is lost"
            ));
        }
        if connect_timeout < command_timeout {
            warnings.push(format!(
                "the connect timeout, {connect_timeout:?}, is shorter than the command timeout, \
                 {command_timeout:?}: `connect` gives up on a server that answers commands in time"
            ));
        }
        warnings
    }
}

fn within(
    option: &'static str,
    given: Option<Duration>,
    max: Duration,
    allowed: &str,
) -> Result<()> {
    match given {
        Some(given) if given < SHORTEST || given > max => Err(refused(option, given, allowed)),
        _ => Ok(()),
    }
}

fn refused(option: &'static str, given: Duration, allowed: impl Into<String>) -> Error {
    Error::InvalidOption { option, given: format!("{given:?}"), allowed: allowed.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(ms))
    }

    /// Lease, command timeout, outage limit, connect timeout.
    fn times(given: [Option<Duration>; 4]) -> Times {
        let [lease, command_timeout, outage_limit, connect_timeout] = given;
        Times { lease, command_timeout, outage_limit, connect_timeout }
    }

    #[test]
    fn defaults_contradict_nothing_that_is_given() {
        let table: [([Option<Duration>; 4], [u64; 4]); 10] = [
            // What is given; and the resulting lease, command timeout, outage limit and connect
            // timeout.
            ([None, None, None, None], [30_000, 1_000, 30_000, 5_000]),
            ([ms(2_000), None, None, None], [2_000, 1_000, 30_000, 5_000]),
            ([ms(1_998), None, None, None], [1_998, 999, 30_000, 5_000]),
            ([ms(10), None, None, None], [10, 10, 30_000, 5_000]),
            ([None, None, ms(400), None], [30_000, 400, 400, 5_000]),
            ([ms(200), None, ms(400), None], [200, 100, 400, 5_000]),
            ([None, ms(20_000), None, None], [40_000, 20_000, 30_000, 100_000]),
            ([None, ms(60_000), None, None], [120_000, 60_000, 60_000, 300_000]),
            ([None, ms(50), None, None], [30_000, 50, 30_000, 5_000]),
            ([None, None, None, ms(300)], [30_000, 1_000, 30_000, 300]),
        ];
        for (given, expected) in table {
            let checked = times(given).check().unwrap_or_else(|error| panic!("{given:?}: {error}"));
            let CheckedTimes { lease, command_timeout, outage_limit, connect_timeout } = checked;
            let used = [lease.duration(), command_timeout, outage_limit, connect_timeout];
            assert_eq!(used, expected.map(Duration::from_millis), "{given:?}");
        }
    }

    /// Every pair of settings: refused, warned about, or allowed because one merely ends the other
    /// early.
    #[test]
    fn pairs_that_contradict_each_other_are_refused_or_warned_of() {
        enum Verdict {
            Refused(&'static str),
            Warned(&'static str),
            Fine,
        }
        use Verdict::Fine;
        use Verdict::Refused;
        use Verdict::Warned;
        let table = [
            // Lease and command timeout.
            (
                [ms(10_000), ms(10_001), None, None],
                Refused(
                    "command_timeout 10.001s is not allowed: it must be no longer than the lease, 10s",
                ),
            ),
            ([ms(10_000), ms(10_000), None, None], Warned("more than half of the lease, 10s")),
            (
                [ms(10_000), ms(5_001), None, None],
                Warned("command timeout, 5.001s, is more than half"),
            ),
            ([ms(10_000), ms(5_000), None, None], Fine),
            ([ms(10), ms(10), None, None], Fine),
            // Outage limit and command timeout.
            (
                [None, ms(500), ms(499), None],
                Refused(
                    "outage_limit 499ms is not allowed: it must be no shorter than the command timeout, 500ms",
                ),
            ),
            ([None, ms(500), ms(500), None], Fine),
            // Connect timeout and command timeout.
            ([None, ms(500), None, ms(499)], Warned("connect timeout, 499ms, is shorter")),
            ([None, None, None, ms(999)], Warned("command timeout, 1s: `connect` gives up")),
            ([None, ms(500), None, ms(500)], Fine),
            // Lease and outage limit: a holder depends on its lease, a waiter on the limit.
            ([ms(1_000), None, ms(86_400_000), None], Fine),
            ([ms(86_400_000), None, ms(1_000), None], Fine),
            // Connect timeout and lease, connect timeout and outage limit: nothing is held or
            // waited for before there is a connection.
            ([ms(60_000), None, None, ms(1_000)], Fine),
            ([ms(1_000), None, None, ms(60_000)], Fine),
            ([None, None, ms(2_000), ms(1_000)], Fine),
            ([None, None, ms(1_000), ms(2_000)], Fine),
        ];
        for (given, verdict) in table {
            let checked = times(given).check().map_err(|error| error.words());
            match (verdict, checked.map(|checked| checked.warnings())) {
                (Refused(words), refused) => {
                    assert_eq!(refused, Err(words.to_owned()), "{given:?}")
                }
                (Warned(words), Ok(warnings)) => {
                    assert!(
                        matches!(&warnings[..], [one] if one.contains(words)),
                        "{given:?}: {warnings:?}"
                    );
                }
                (Fine, Ok(warnings)) => assert_eq!(warnings, [""; 0], "{given:?}"),
                (_, Err(error)) => panic!("{given:?}: {error}"),
            }
        }
    }
}
