//! The single flight for threads.

use std::time::Duration;

use crate::base::error::Result;
use crate::blocking::guard::Guard;
use crate::blocking::wait::wait;
use crate::locks::guard::Guard as AsyncGuard;
use crate::locks::single_flight::Lookup;
use crate::locks::single_flight::SingleFlight as AsyncSingleFlight;

/// A [`SingleFlight`](crate::SingleFlight) whose callers are threads: when a cached value has run
/// out, one caller computes it, in all processes together, and the others wait for that or take the
/// old value. Threads and tasks of one client share values, too.
///
/// It works as the async one does, with one difference: a computation is not dropped when its lock
/// is lost, because nothing interrupts a thread. Ask the guard ([`Guard::ensure`]) before you store
/// the value, and store it with the [fencing token](Guard::fencing_token).
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use redis_reentrant_lock::Lookup;
/// use std::sync::Mutex;
///
/// # use redis_reentrant_lock::{InMemoryServer, LockClient};
/// # let client = LockClient::builder().in_memory(&InMemoryServer::new()).blocking_connect()?;
/// let cache = Mutex::new(None::<String>); // in a service: Redis, with a time to live
/// let look = || match cache.lock().unwrap().clone() {
///     Some(page) => Ok::<_, std::io::Error>(Lookup::Fresh(page)),
///     None => Ok(Lookup::Missing),
/// };
/// let page = client.single_flight("flight:page:7")?.run(look, |_guard| {
///     let page = "rendered".to_owned();
///     *cache.lock().unwrap() = Some(page.clone());
///     Ok(page)
/// })??;
/// assert_eq!(page, "rendered");
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing before `run` is called"]
pub struct SingleFlight(AsyncSingleFlight);

impl SingleFlight {
    pub(super) fn new(flight: AsyncSingleFlight) -> Self {
        Self(flight)
    }

    /// The name of its lock.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The leader holds the lock with this fixed lease, 10 ms to 24 h, instead of a lease that is
    /// renewed. When it ends, another caller computes as well.
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// After this time, 10 ms to 24 h, another caller computes as well. Without a limit, a
    /// computation that never ends is waited for as long as its process lives.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self(self.0.max_hold(max_hold))
    }

    /// Returns a fresh value: the one that `lookup` finds, or the one that this or another caller
    /// computes. Returns a stale value at once if somebody else computes. When `lookup` and
    /// `compute` are called: as [`SingleFlight::run`](crate::SingleFlight::run) says.
    ///
    /// An error of `lookup` or `compute` is returned to its own caller only, as the inner result.
    /// If one of them panics, the lock is released in the background, another caller goes on, and
    /// the panic goes on here.
    ///
    /// # Errors
    ///
    /// Of the lock, the outer result: as [`SingleFlight::run`](crate::SingleFlight::run), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask), also if `lookup` would have found a fresh
    /// value.
    pub fn run<T, E>(
        &self,
        lookup: impl Fn() -> std::result::Result<Lookup<T>, E>,
        compute: impl FnOnce(&Guard) -> std::result::Result<T, E>,
    ) -> Result<std::result::Result<T, E>>
    where
        T: Clone + Send + 'static,
    {
        let compute = async |guard: &AsyncGuard| compute(&Guard::new(guard.without_release()));
        wait("SingleFlight::run", self.0.run(|| async { lookup() }, compute))?
    }
}
