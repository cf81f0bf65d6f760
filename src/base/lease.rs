//! Leases, and for how long a holder may rely on one.

use std::time::Duration;

use crate::base::error::Error;

/// The shortest lease.
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(10);
/// The longest lease.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// A lease as it is sent: whole milliseconds within the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseMs(u32);

impl LeaseMs {
    /// Checks the limits; `what` names the setting in the error. Parts of a millisecond are rounded
    /// up.
    pub(crate) fn checked(what: &'static str, lease: Duration) -> Result<Self, Error> {
        if lease < MIN_LEASE || lease > MAX_LEASE {
            return Err(Error::InvalidOption {
                option: what,
                given: format!("{lease:?}"),
                allowed: "10 ms to 24 h".to_owned(),
            });
        }
        Ok(Self::rounded_up(lease))
    }

    fn rounded_up(lease: Duration) -> Self {
        Self(u32::try_from(lease.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX))
    }

    /// For a lease that `max_hold` cuts short: rounded down, and never zero.
    pub(crate) fn at_most(self, limit: Duration) -> Self {
        Self(self.0.min(u32::try_from(limit.as_millis()).unwrap_or(u32::MAX)).max(1))
    }

    /// The time to live of a key: that of the lease, or longer if the name has to stay taken for
    /// longer.
    pub(crate) fn or_longer(self, at_least: Option<Self>) -> Self {
        at_least.map_or(self, |at_least| self.max(at_least))
    }

    /// The shortest lease that can be sent. A renewal with it only asks whether the hold still
    /// exists.
    pub(crate) const PROBE: Self = Self(1);

    pub(crate) fn millis(self) -> u64 {
        u64::from(self.0)
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.millis())
    }

    /// How long after *sending* the request the holder may rely on the lease.
    pub(crate) fn validity(self) -> Duration {
        self.duration().saturating_sub(self.margin())
    }

    /// How long after the server was *last able to set* it the key may exist.
    pub(crate) fn longest(self) -> Duration {
        self.duration() + self.margin()
    }

    /// The allowance for clocks that run at different rates: 1 % and 2 ms.
    fn margin(self) -> Duration {
        self.duration() / 100 + Duration::from_millis(2)
    }
}

/// The lease that one level of a hold asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// Renewed by the watchdog until the level is released.
    Watched(LeaseMs),
    /// Expires by itself.
    Fixed(LeaseMs),
}

impl Lease {
    pub(crate) fn is_watched(self) -> bool {
        matches!(self, Self::Watched(_))
    }

    pub(crate) fn length(self) -> LeaseMs {
        match self {
            Self::Watched(lease) | Self::Fixed(lease) => lease,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_and_parts_round_up() {
        for bad in [
            Duration::ZERO,
            Duration::from_micros(9_999),
            Duration::from_secs(86_401),
            Duration::MAX,
        ] {
            let error = LeaseMs::checked("lease", bad).unwrap_err();
            assert!(error.to_string().contains("10 ms to 24 h"), "{error}");
        }
        assert_eq!(LeaseMs::checked("lease", Duration::from_micros(10_001)).unwrap().millis(), 11);
    }

    #[test]
    fn validity_keeps_the_margin() {
        let lease = LeaseMs::checked("lease", Duration::from_secs(30)).unwrap();
        assert_eq!(lease.validity(), Duration::from_millis(30_000 - 300 - 2));
        assert_eq!(LeaseMs::PROBE.validity(), Duration::ZERO);
        assert_eq!(lease.longest(), Duration::from_millis(30_000 + 300 + 2));
    }
}
