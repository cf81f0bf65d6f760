//! Redlock for threads.

use std::fmt;
use std::marker::PhantomData;
use std::sync::MutexGuard;
use std::time::Duration;

use crate::base::clock::Deadline;
use crate::base::error::LossReason;
use crate::base::error::Result;
use crate::blocking::client::LockClient;
use crate::blocking::loss_signal::LossSignal;
use crate::blocking::wait::wait;
use crate::blocking::wait::wait_for;
use crate::client::LockClient as AsyncLockClient;
use crate::client::preflight::PreflightReport;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::lock::unless_lost;
use crate::redlock::Redlock as AsyncRedlock;
use crate::redlock::RedlockServer;
use crate::redlock::guard::RedlockGuard as AsyncGuard;

/// A [`Redlock`](crate::Redlock) whose methods block the calling thread. What is said there of
/// guarantees, the servers and options is true here.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # fn main() -> redis_reentrant_lock::Result<()> {
/// # use redis_reentrant_lock::{InMemoryServer, LockClient};
/// # let connect = || LockClient::builder().in_memory(&InMemoryServer::new()).blocking_connect();
/// use redis_reentrant_lock::blocking::Redlock;
///
/// let redlock = Redlock::new([connect()?, connect()?, connect()?])?;
/// redlock.assume_fresh(); // in this example: the servers were never used before
/// let guard = redlock.lock("orders:42")?;
/// guard.unlock()
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct Redlock(AsyncRedlock);

impl Redlock {
    /// Locks over these servers with default settings. Sends nothing.
    ///
    /// # Errors
    ///
    /// As [`Redlock::new`](crate::Redlock::new).
    pub fn new(clients: impl IntoIterator<Item = LockClient>) -> Result<Self> {
        AsyncRedlock::new(clients.into_iter().map(AsyncLockClient::from)).map(Self)
    }

    /// Waits until a majority of the servers holds the lock, for as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`Redlock::lock`](crate::Redlock::lock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn lock(&self, name: impl AsRef<str>) -> Result<RedlockGuard> {
        wait("Redlock::lock", self.0.lock(name))?.map(RedlockGuard::new)
    }

    /// Takes the lock if it is free, without waiting for a holder.
    ///
    /// # Errors
    ///
    /// As [`Redlock::try_lock`](crate::Redlock::try_lock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_lock(&self, name: impl AsRef<str>) -> Result<Result<RedlockGuard, NotAcquired>> {
        self.try_lock_for(name, Duration::ZERO)
    }

    /// The same as [`lock`](Self::lock), but waits at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`Redlock::try_lock_for`](crate::Redlock::try_lock_for), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_lock_for(
        &self,
        name: impl AsRef<str>,
        limit: Duration,
    ) -> Result<Result<RedlockGuard, NotAcquired>> {
        self.lock_with(name, LockOptions::new().wait(limit))
    }

    /// Takes the lock with other [options](LockOptions) than `lock()` has.
    ///
    /// # Errors
    ///
    /// As [`Redlock::lock_with`](crate::Redlock::lock_with), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn lock_with(
        &self,
        name: impl AsRef<str>,
        options: LockOptions,
    ) -> Result<Result<RedlockGuard, NotAcquired>> {
        let asked = self.0.lock_with(name, options);
        Ok(wait("Redlock::lock_with", asked)??.map(RedlockGuard::new))
    }

    /// Takes the lock, runs `work`, releases it, and returns what `work` has returned. It is not
    /// interrupted if the lock is lost.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), before `work` was called. [`Error::Lost`](crate::Error::Lost) if the
    /// lock was lost before the release.
    pub fn with<T>(
        &self,
        name: impl AsRef<str>,
        work: impl FnOnce(&RedlockGuard) -> T,
    ) -> Result<T> {
        let guard = self.lock(name)?;
        let done = work(&guard);
        unless_lost(done, guard.unlock())
    }

    /// Which servers count, and why the others do not. No I/O.
    pub fn status(&self) -> Vec<RedlockServer> {
        self.0.status()
    }

    /// As [`Redlock::assume_fresh`](crate::Redlock::assume_fresh).
    pub fn assume_fresh(&self) -> usize {
        self.0.assume_fresh()
    }

    /// Checks every server.
    ///
    /// # Errors
    ///
    /// As [`Redlock::preflight`](crate::Redlock::preflight), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn preflight(&self, name: impl AsRef<str>) -> Result<Vec<PreflightReport>> {
        wait("Redlock::preflight", self.0.preflight(name))?
    }
}

/// With the settings of [`Redlock::builder`](crate::Redlock::builder).
impl From<AsyncRedlock> for Redlock {
    fn from(redlock: AsyncRedlock) -> Self {
        Self(redlock)
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A lock that is held on a majority of the servers of a [`Redlock`]. [`unlock`](Self::unlock)
/// releases it, and so does dropping the guard, which does it in the background.
///
/// It stays on its thread, as a [`ReentrantGuard`](crate::blocking::ReentrantGuard) does.
#[must_use = "without a variable the lock is released at once, also by `let _ =`: bind the guard to a name"]
#[clippy::has_significant_drop]
pub struct RedlockGuard {
    guard: AsyncGuard,
    /// Not `Send`, but `Sync`.
    stays: PhantomData<MutexGuard<'static, ()>>,
}

impl RedlockGuard {
    fn new(guard: AsyncGuard) -> Self {
        Self { guard, stays: PhantomData }
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// As [`RedlockGuard::fencing_token`](crate::RedlockGuard::fencing_token).
    pub fn fencing_token(&self) -> u64 {
        self.guard.fencing_token()
    }

    /// Whether a majority still holds the lock, as far as this process can know. No I/O.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Whether the lock is held and its loss is likely.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.guard.is_suspect()
    }

    /// The instant up to which a majority holds the lock without another renewal.
    #[must_use]
    pub fn valid_until(&self) -> Deadline {
        self.guard.valid_until()
    }

    /// Why the lock was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.guard.loss()
    }

    /// Waits until the lock is lost, but not longer than `limit`. `None`: it is still held.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn lost_within(&self, limit: Duration) -> Result<Option<LossReason>> {
        wait_for(limit, "RedlockGuard::lost", self.guard.lost())
    }

    /// What tells another thread of a loss.
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal::new(self.guard.loss_signal())
    }

    /// Checks that the lock is held for at least `min_remaining` more. No I/O.
    ///
    /// # Errors
    ///
    /// As [`RedlockGuard::ensure`](crate::RedlockGuard::ensure).
    pub fn ensure(&self, min_remaining: Duration) -> Result<()> {
        self.guard.ensure(min_remaining)
    }

    /// Asks the servers whether the lock is still there.
    ///
    /// # Errors
    ///
    /// As [`RedlockGuard::verify`](crate::RedlockGuard::verify), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn verify(&self) -> Result<()> {
        wait("RedlockGuard::verify", self.guard.verify())?
    }

    /// Releases the lock on all servers, and waits until a majority has confirmed it.
    ///
    /// # Errors
    ///
    /// As [`RedlockGuard::unlock`](crate::RedlockGuard::unlock).
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask): the guard is dropped, so that the release
    /// goes on in the background.
    pub fn unlock(self) -> Result<()> {
        wait("RedlockGuard::unlock", self.guard.unlock())?
    }
}

impl fmt::Debug for RedlockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
