//! A worker process of `cargo xtask bench`: a lock of some kind, and the loads that are put on it.
//!
//! Commands come as lines of JSON on standard input, each is answered by one line on standard
//! output. All stamps are nanoseconds of the machine's monotonic clock, which all processes share.

mod crowd;
mod flight;
mod pairs;
mod serve;
mod store;
mod turns;
mod wide;

pub use flight::Cache;
pub use serve::serve;

use std::future::Future;

/// Locks of one kind, over one client.
pub trait Service: Send + Sync + 'static {
    /// A lock of this kind.
    type Lock: Lock;
    /// A handle on a name.
    fn lock(&self, name: &str) -> Self::Lock;

    /// A handle on a name that is taken in this way.
    ///
    /// # Panics
    ///
    /// If this kind has nothing but locks.
    fn shared(&self, name: &str, mode: Mode) -> Self::Lock {
        assert_eq!(mode, Mode::Lock, "this kind has nothing but locks");
        self.lock(name)
    }

    /// Finds the value of a cache, or computes it, or waits for who does.
    ///
    /// # Panics
    ///
    /// If this kind has no single flight.
    fn flight(&self, _name: &str, _cache: &Cache) -> impl Future<Output = ()> + Send {
        async { panic!("this kind has no single flight") }
    }
}

/// How a name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As a lock.
    Lock,
    /// As a fair lock.
    Fair,
    /// As a read-write lock, to read.
    Read,
    /// As a read-write lock, to write.
    Write,
    /// As a semaphore: so many of the permits that there are.
    Permits {
        /// How many are wanted at once.
        want: u32,
        /// How many there are.
        of: u32,
    },
    /// As a multi-lock: of the names `<name>:0`, `<name>:1` and so on, so many at once, chosen anew
    /// each time.
    Multi {
        /// How many are wanted at once.
        want: u32,
        /// How many names there are.
        of: u32,
    },
}

/// A lock under one name.
pub trait Lock: Clone + Send + Sync + 'static {
    /// What proves that it is held. Dropped without a release: whatever the crate makes of that.
    type Guard: Send + 'static;

    /// What has to be there before several processes contend; not measured.
    fn prepare(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Waits until the lock is held.
    fn acquire(&self) -> impl Future<Output = Self::Guard> + Send;

    /// Gives it up and waits for the confirmation.
    fn release(guard: Self::Guard) -> impl Future<Output = ()> + Send;
}

/// Nanoseconds on a clock that all processes of this machine share.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
