//! The local clock, which counts the time of a suspend.

use std::time::Duration;

/// An instant of the local clock, in nanoseconds since an arbitrary start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) const ZERO: Self = Self(0);
    /// Later than every instant that can be reached.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn micros(self) -> i64 {
        i64::try_from(self.0 / 1_000).unwrap_or(i64::MAX)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The source of the current time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Clock {
    /// The system's clock that counts the time of a suspend, as the server does for a lease. Std's
    /// `Instant` stands still meanwhile on Linux and macOS.
    Boot,
    /// `tokio::time`, so that the in-memory backend follows a paused clock.
    #[cfg(feature = "in-memory")]
    Tokio(tokio::time::Instant),
}

impl Clock {
    /// Tokio's clock. All have one start, so that the moments of several clients can be compared.
    /// It is long past, since the clock of a runtime that is paused may be behind others.
    #[cfg(feature = "in-memory")]
    pub(crate) fn tokio() -> Self {
        use std::sync::OnceLock;
        use tokio::time::Instant;

        static START: OnceLock<Instant> = OnceLock::new();
        const PAST: Duration = Duration::from_secs(10 * 365 * 86_400);
        Self::Tokio(*START.get_or_init(|| {
            let now = Instant::now();
            now.checked_sub(PAST).unwrap_or(now)
        }))
    }

    pub(crate) fn now(self) -> Moment {
        match self {
            Self::Boot => boot_now(),
            #[cfg(feature = "in-memory")]
            Self::Tokio(start) => Moment(1 + nanos(start.elapsed())),
        }
    }
}

#[cfg(unix)]
fn boot_now() -> Moment {
    use rustix::time::ClockId;

    #[cfg(any(
        target_os = "android",
        target_os = "fuchsia",
        target_os = "linux",
        target_os = "openbsd"
    ))]
    const CLOCK: ClockId = ClockId::Boottime;
    // On macOS it "will continue to increment while the system is asleep", by the manual page
    // clock_gettime(3) there.
    #[cfg(not(any(
        target_os = "android",
        target_os = "fuchsia",
        target_os = "linux",
        target_os = "openbsd"
    )))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let clock = if seeded!(ClockThroughSuspend) { ClockId::Monotonic } else { CLOCK };
    let time = rustix::time::clock_gettime(clock);
    Moment(
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
            + u64::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// On Windows std reads the performance counter. It counts "the time when the machine was in a
/// sleep state such as standby, hibernate, or connected standby", says Microsoft's "Acquiring
/// high-resolution time stamps".
#[cfg(not(unix))]
#[expect(clippy::disallowed_methods, reason = "here std's clock counts suspends")]
fn boot_now() -> Moment {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    // Not zero, which stands for holds that have ended.
    Moment(1 + nanos(START.get_or_init(Instant::now).elapsed()))
}

/// An instant up to which something is valid, on a clock that runs through suspend, which Tokio's
/// and std's do not. Ask for the remaining time where you need it.
///
/// An earlier deadline is less than a later one, also among several clients of one process. With
/// in-memory servers, only the deadlines of one runtime can be compared. The deadline of a hold that
/// has ended is less than all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    moment: Moment,
    clock: Clock,
}

impl Deadline {
    pub(crate) fn new(moment: Moment, clock: Clock) -> Self {
        Self { moment, clock }
    }

    /// Time left; zero once it has passed.
    pub fn remaining(&self) -> Duration {
        self.moment.since(self.clock.now())
    }

    /// Whether it has passed.
    pub fn is_past(&self) -> bool {
        self.clock.now() >= self.moment
    }

    /// Nanoseconds since boot, suspend included (`CLOCK_BOOTTIME` on Linux); on Windows, since the
    /// process first asked; for a client of an in-memory server, since that client began. It is 0
    /// once a hold has ended.
    ///
    /// The numbers can be compared between processes of one machine, except on Windows. They are
    /// meant for logs and tests.
    pub fn as_boot_nanos(&self) -> u64 {
        self.moment.0
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Set in a child process whose clock of the time since boot is ahead.
    const CHILD: &str = "CLOCK_OF_A_SUSPENDED_MACHINE";
    const AHEAD: Duration = Duration::from_secs(100_000);

    fn monotonic_now() -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Moment(
            u64::try_from(time.tv_sec).unwrap() * 1_000_000_000
                + u64::try_from(time.tv_nsec).unwrap(),
        )
    }

    /// A time namespace moves the two clocks apart, as a suspend does.
    #[test]
    fn suspend_counts() {
        if std::env::var_os(CHILD).is_some() {
            let apart = Clock::Boot.now().since(monotonic_now());
            assert!(apart >= AHEAD / 2, "time in suspend is not counted: {apart:?}");
            return println!("counted");
        }
        let ahead = AHEAD.as_secs().to_string();
        let done = std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "--time", "--fork", "--boottime", &ahead])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "base::clock::tests::suspend_counts", "--nocapture"])
            .env(CHILD, "1")
            .output();
        let done = done.expect("`unshare` of util-linux 2.36 or later");
        let said =
            [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(
            done.status.success() && said[0].contains("counted"),
            "not counted, or no time namespace can be had: {said:?}"
        );
    }
}
