//! The time limits of everything on a connection. All of them follow from the command timeout, so
//! that one setting adapts a client to a slow link.

use std::time::Duration;

/// For resolving a host name, whatever the command timeout is, because name servers are not the
/// servers of the locks. A resolver goes on to its second name server after 5 s.
pub(crate) const LOOK_UP: Duration = Duration::from_secs(12);

/// The least command timeout for these limits. A client with a shorter one wants quick answers on
/// an existing connection; to connect, and to notice a dead connection, it has as much time as a
/// client with this command timeout.
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

    /// For opening a socket to one of several addresses of a name, so that an address that drops
    /// every packet leaves time for the others.
    pub(crate) fn socket(self, addresses: usize) -> Duration {
        let addresses = u32::try_from(addresses.max(1)).unwrap_or(u32::MAX);
        (2 * self.unit() / addresses).max(self.unit())
    }

    /// For the TLS handshake, which takes up to two round trips.
    pub(crate) fn tls(self) -> Duration {
        2 * self.unit()
    }

    /// For the answer to anything but a call: a login, the first questions, SUBSCRIBE, PING.
    pub(crate) fn answer(self) -> Duration {
        2 * self.unit()
    }

    /// For a call that another server could answer instead: asking a node of a cluster for the
    /// slots, or a sentinel for the primary.
    pub(crate) fn one_of_several(self) -> Duration {
        self.unit()
    }

    /// For the other answers, after the first of several servers that were asked at once has
    /// answered.
    pub(crate) fn others(self) -> Duration {
        self.unit() / 10
    }

    /// For all sentinels together to name a primary.
    pub(crate) fn search(self) -> Duration {
        3 * self.unit()
    }

    /// For a credential provider. By default it is less than the limit of `connect`, so that
    /// `connect` can report a provider that hangs.
    pub(crate) fn provider(self) -> Duration {
        3 * self.unit()
    }

    /// How long a connection may be quiet before a PING is sent.
    pub(crate) fn heartbeat(self) -> Duration {
        self.unit() * 3 / 2
    }

    /// How long calls may be in flight without any reply before the connection is suspected to be
    /// dead.
    pub(crate) fn silence(self) -> Duration {
        self.unit()
    }

    /// The kernel ends the connection if sent data is not acknowledged within this time. It covers
    /// a network that drops every packet, in addition to the checks in `calls` and `subscriber`.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    pub(crate) fn acknowledgement(self) -> Duration {
        3 * self.unit()
    }

    /// The time until the first keep-alive probe on an idle connection, and between two probes. If
    /// there is a limit for acknowledgements, Linux ignores the number of probes and gives up at
    /// the first probe after the limit, so two probes must fit into it.
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
        let of_default =
            [2_000, 1_000, 1_000, 2_000, 2_000, 1_000, 100, 3_000, 3_000, 1_500, 1_000];
        assert_eq!(all(1_000), of_default);
        assert_eq!(all(10), of_default, "a connection is not made in less time");
        assert_eq!(all(20_000), of_default.map(|budget| 20 * budget));
        assert_eq!(
            Budgets::of(Duration::from_millis(10)).command_timeout(),
            Duration::from_millis(10)
        );
    }

    /// Every limit allows a round trip that is within the command timeout.
    #[test]
    fn whoever_is_answered_in_time_gets_a_connection() {
        for ms in [1_000, 2_300, 60_000] {
            let [_, _, one_of_nine, tls, answer, one_of_several, ..] = all(ms);
            assert!(
                one_of_nine >= ms && tls >= 2 * ms && answer > ms && one_of_several >= ms,
                "{ms}"
            );
        }
    }
}
