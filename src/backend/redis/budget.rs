//! How long everything on a connection may take. All of it follows from the command timeout, so that one setting fits
//! a client to a slow link.

use std::time::Duration;

/// A name is resolved by other servers than those of the locks, whatever the link to these is like. A resolver goes on
/// to its second name server after 5 s.
pub(crate) const LOOK_UP: Duration = Duration::from_secs(12);

/// A client with a shorter command timeout wants quick answers from a connection that is there. To make one, and to
/// find out that one is dead, it has as much time as a client with this command timeout.
const LEAST: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budgets {
    command_timeout: Duration,
}

impl Budgets {
    pub(crate) const fn of(command_timeout: Duration) -> Self {
        Self { command_timeout }
    }

    pub(crate) const fn command_timeout(self) -> Duration {
        self.command_timeout
    }

    fn unit(self) -> Duration {
        self.command_timeout.max(LEAST)
    }

    /// For a socket to one of so many addresses of a name: those that swallow everything leave the others their time.
    pub(crate) fn socket(self, addresses: usize) -> Duration {
        let addresses = u32::try_from(addresses.max(1)).unwrap_or(u32::MAX);
        (2 * self.unit() / addresses).max(self.unit())
    }

    /// For TLS on a socket, which takes up to two round trips.
    pub(crate) fn tls(self) -> Duration {
        2 * self.unit()
    }

    /// For every answer to anything but a call: a login, the first questions, SUBSCRIBE, PING.
    pub(crate) fn answer(self) -> Duration {
        2 * self.unit()
    }

    /// For a call that others can answer instead: of a node of a cluster for the slots, of a sentinel for the primary.
    pub(crate) fn one_of_several(self) -> Duration {
        self.unit()
    }

    /// Of several that are asked at once, when the first has answered.
    pub(crate) fn others(self) -> Duration {
        self.unit() / 10
    }

    /// For all sentinels together, to name a primary.
    pub(crate) fn search(self) -> Duration {
        3 * self.unit()
    }

    /// For a credential provider. Less than `connect` has by default, so that `connect` can say so.
    pub(crate) fn provider(self) -> Duration {
        3 * self.unit()
    }

    /// When a quiet connection is asked whether the server is there.
    pub(crate) fn heartbeat(self) -> Duration {
        self.unit() * 3 / 2
    }

    /// Without any answer for so long while calls are on their way, a connection may be dead.
    pub(crate) fn silence(self) -> Duration {
        self.unit()
    }

    /// What has been sent is acknowledged by then, or the kernel ends the connection: what a network that swallows
    /// everything needs, beside the watchdogs of `calls` and `subscriber`.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    pub(crate) fn acknowledgement(self) -> Duration {
        3 * self.unit()
    }

    /// Until the kernel looks whether the other side of an idle connection is there, and between two such looks. With a
    /// limit for acknowledgements Linux does not count them: the first one after that time is the last, so two have to
    /// fit in before.
    pub(crate) fn probe(self) -> Duration {
        self.unit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(command_timeout_ms: u64) -> [u64; 11] {
        let budgets = Budgets::of(Duration::from_millis(command_timeout_ms));
        [
            budgets.socket(1),
            budgets.socket(2),
            budgets.socket(9),
            budgets.tls(),
            budgets.answer(),
            budgets.one_of_several(),
            budgets.others(),
            budgets.search(),
            budgets.provider(),
            budgets.heartbeat(),
            budgets.silence(),
        ]
        .map(|budget| u64::try_from(budget.as_millis()).unwrap())
    }

    #[test]
    fn every_budget_follows_from_the_command_timeout() {
        let of_default = [2_000, 1_000, 1_000, 2_000, 2_000, 1_000, 100, 3_000, 3_000, 1_500, 1_000];
        assert_eq!(all(1_000), of_default);
        assert_eq!(all(10), of_default, "a connection is not made in less time");
        assert_eq!(all(20_000), of_default.map(|budget| 20 * budget));
        assert_eq!(Budgets::of(Duration::from_millis(10)).command_timeout(), Duration::from_millis(10));
    }

    /// Each of them has room for a round trip that a call has room for.
    #[test]
    fn whoever_is_answered_in_time_gets_a_connection() {
        for ms in [1_000, 2_300, 60_000] {
            let [_, _, one_of_nine, tls, answer, one_of_several, ..] = all(ms);
            assert!(one_of_nine >= ms && tls >= 2 * ms && answer > ms && one_of_several >= ms, "{ms}");
        }
    }
}
