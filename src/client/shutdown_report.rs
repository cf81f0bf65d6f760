//! The outcomes for the locks of a client that was shut down.

use std::fmt;

use crate::base::clock::Clock;
use crate::base::clock::Deadline;
use crate::engine::event::Fate;
use crate::engine::event::Fates;

/// How many names of a list are printed.
const PRINTED: usize = 10;

/// What became of the locks that a client held, or was releasing, when it was shut down.
///
/// Each of these locks is in one list, in the order of their names. A lock whose loss was known
/// before is in none. `Display` prints the report in one line; of long lists, the first ten names.
///
/// ```
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// # #[cfg(feature = "in-memory")]
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redis_reentrant_lock::Result<()> {
/// # use redis_reentrant_lock::{InMemoryServer, LockClient};
/// # use std::time::Duration;
/// let server = InMemoryServer::new();
/// let client = LockClient::builder().in_memory(&server).connect().await?;
/// let _first = client.mutex("orders:1")?.lock().await?;
/// let _second = client.mutex("orders:2")?.lock().await?;
///
/// let report = client.shutdown(Duration::from_secs(5)).await?;
/// assert_eq!(report.released, ["orders:1", "orders:2"]);
/// assert!(report.is_clean());
/// assert_eq!(report.to_string(), "2 locks released");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Locks that were released: the server has confirmed it. Where
    /// [`at_least`](crate::LockOptions::at_least) is not over, the name stays taken for the rest.
    pub released: Vec<String>,
    /// Locks that the server did not have for this client any more when they were to be released:
    /// somebody had removed them or taken them over, or the server had lost them. Another client
    /// may have held them at the same time.
    pub lost: Vec<String>,
    /// Locks that are left to their leases: the server did not confirm the release in time, or
    /// refused it, or a nested guard was [left to its lease](crate::Guard::leave_to_lease). A lock
    /// is also here if the client was about to get it, and the answer did not come.
    pub left: Vec<LeftLock>,
}

/// A lock that a client has left to its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftLock {
    /// The name of the lock, with the client's prefix.
    pub name: String,
    /// When its lease has ended for certain, which is up to 1 % and one command timeout after its
    /// length. It may be free earlier: perhaps the release has arrived, and only its answer is
    /// missing.
    pub until: Deadline,
}

impl ShutdownReport {
    pub(super) fn of(fates: &Fates, clock: Clock) -> Self {
        let mut report = Self::default();
        for (name, fate) in fates {
            let name = name.to_string();
            match fate {
                Fate::Released => report.released.push(name),
                Fate::Lost => report.lost.push(name),
                Fate::Left(end) => {
                    report.left.push(LeftLock { name, until: Deadline::new(*end, clock) })
                }
            }
        }
        report
    }

    /// Whether no lock was left to its lease.
    pub fn is_clean(&self) -> bool {
        self.left.is_empty()
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { released, lost, left } = self;
        let one_or_more = |count, one, more| if count == 1 { one } else { more };
        if released.is_empty() && lost.is_empty() && left.is_empty() {
            return f.write_str("no lock was held");
        }
        write!(f, "{} {} released", released.len(), one_or_more(released.len(), "lock", "locks"))?;
        if !lost.is_empty() {
            write!(f, ", {} lost before that: ", lost.len())?;
            write_first(f, lost)?;
        }
        if !left.is_empty() {
            write!(
                f,
                ", {} left to {}: ",
                left.len(),
                one_or_more(left.len(), "its lease", "their leases")
            )?;
            write_first(f, left)?;
        }
        Ok(())
    }
}

/// The name, and for how much longer the lease lasts at most.
impl fmt::Display for LeftLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, until } = self;
        if until.is_past() {
            write!(f, "{name} (its lease is over)")
        } else {
            write!(f, "{name} (for at most {:.1?})", until.remaining())
        }
    }
}

fn write_first(f: &mut fmt::Formatter<'_>, list: &[impl fmt::Display]) -> fmt::Result {
    for (number, one) in list.iter().take(PRINTED).enumerate() {
        let comma = if number == 0 { "" } else { ", " };
        write!(f, "{comma}{one}")?;
    }
    match list.len().saturating_sub(PRINTED) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Duration;

    use crate::base::clock::Moment;
    use crate::base::name::LockName;

    fn report(fates: impl IntoIterator<Item = (&'static str, Fate)>) -> ShutdownReport {
        let named = |(name, fate)| (LockName::new(name).unwrap(), fate);
        ShutdownReport::of(&fates.into_iter().map(named).collect(), Clock::Boot)
    }

    #[test]
    fn it_tells_in_one_line_what_became_of_the_locks() {
        let end = Clock::Boot.now().plus(Duration::from_secs(24 * 60 * 60));
        let of = |fates: &[(&'static str, Fate)]| report(fates.iter().copied()).to_string();
        assert_eq!(of(&[]), "no lock was held");
        assert_eq!(of(&[("a", Fate::Released)]), "1 lock released");
        assert_eq!(of(&[("b", Fate::Released), ("a", Fate::Released)]), "2 locks released");
        let some = of(&[("a", Fate::Released), ("b", Fate::Left(end)), ("c", Fate::Lost)]);
        assert!(
            some.starts_with(
                "1 lock released, 1 lost before that: c, 1 left to its lease: b (for at most 86"
            ),
            "{some}"
        );
        let past = of(&[("a", Fate::Left(Moment(1))), ("b", Fate::Left(Moment(1)))]);
        assert_eq!(
            past,
            "0 locks released, 2 left to their leases: a (its lease is over), b (its lease is over)"
        );
    }

    #[test]
    fn of_many_names_the_first_are_printed_and_all_are_in_order() {
        let names =
            (0..100_000).map(|number| LockName::new(&format!("{:06}", 99_999 - number)).unwrap());
        let report =
            ShutdownReport::of(&names.map(|name| (name, Fate::Lost)).collect(), Clock::Boot);
        assert!(report.lost.is_sorted() && report.lost.len() == 100_000);
        let line = report.to_string();
        assert!(line.ends_with("000008, 000009 and 99990 more"), "{line}");
        assert!(line.len() < 200);
    }
}
