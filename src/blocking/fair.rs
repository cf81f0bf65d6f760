//! The fair lock for threads.

use std::time::Duration;

use crate::base::error::Result;
use crate::base::owner::OwnerKey;
use crate::blocking::guard::Guard;
use crate::blocking::guard::ReentrantGuard;
use crate::blocking::wait::wait;
use crate::locks::lock::Holder;
use crate::locks::lock::Lock;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::multi::LockMember;

/// A [`FairLock`](crate::FairLock) whose methods block the calling thread. **Its owner is the
/// thread**, as that of a [`ReentrantLock`](crate::blocking::ReentrantLock), which says where that is
/// wrong.
///
/// It is cheap to clone and to make: handles of the same client and name refer to the same lock.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # fn main() -> redis_reentrant_lock::Result<()> {
/// # use redis_reentrant_lock::{InMemoryServer, LockClient};
/// # let client = LockClient::builder().in_memory(&InMemoryServer::new()).blocking_connect()?;
/// let lock = client.fair_lock("orders:42")?;
/// let guard = lock.lock()?;
/// guard.unlock()
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct FairLock(Lock);

impl From<FairLock> for LockMember {
    fn from(lock: FairLock) -> Self {
        Self::of_caller(lock.0)
    }
}

impl FairLock {
    pub(super) fn new(lock: Lock) -> Self {
        Self(lock)
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Acquires the lock when all who came earlier have had it, or adds a level if this thread holds it
    /// already. The lease is watched: it is renewed by the driver's thread until the guard is
    /// released, whatever this thread does.
    ///
    /// # Errors
    ///
    /// As [`FairLock::lock`](crate::FairLock::lock), but never
    /// [`Error::NoOwner`](crate::Error::NoOwner); and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn lock(&self) -> Result<ReentrantGuard> {
        wait("FairLock::lock", self.0.lock(OwnerKey::this_thread()))?.map(ReentrantGuard::new)
    }

    /// Acquires the lock if it is free and nobody waits for it. [`NotAcquired`]: somebody
    /// holds it, or goes first. As [`FairLock::try_lock`](crate::FairLock::try_lock), also for what it says about a guard
    /// that was just dropped, and about outages.
    ///
    /// # Errors
    ///
    /// As [`FairLock::try_lock`](crate::FairLock::try_lock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    ///
    /// ```no_run
    /// # fn example(lock: redis_reentrant_lock::blocking::FairLock) -> redis_reentrant_lock::Result<()> {
    /// match lock.try_lock()? {
    ///     Ok(guard) => guard.unlock(),
    ///     Err(not_acquired) => Ok(println!("{not_acquired}")),
    /// }
    /// # }
    /// ```
    pub fn try_lock(&self) -> Result<Result<ReentrantGuard, NotAcquired>> {
        let acquired = wait("FairLock::try_lock", self.0.try_lock(OwnerKey::this_thread()))??;
        Ok(acquired.map(ReentrantGuard::new))
    }

    /// Acquires the lock, waiting at most `limit`. [`NotAcquired`]: the lock was still held when the
    /// wait ended, as far as the last answer goes. Do not start the work.
    ///
    /// # Errors
    ///
    /// As [`FairLock::try_lock_for`](crate::FairLock::try_lock_for), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_lock_for(&self, limit: Duration) -> Result<Result<ReentrantGuard, NotAcquired>> {
        let acquired =
            wait("FairLock::try_lock_for", self.0.try_lock_for(OwnerKey::this_thread(), limit))??;
        Ok(acquired.map(ReentrantGuard::new))
    }

    /// Acquires the lock with other [options](LockOptions) than `lock()` has. [`NotAcquired`] is
    /// returned only with a limit on the wait.
    ///
    /// # Errors
    ///
    /// As [`FairLock::lock_with`](crate::FairLock::lock_with), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn lock_with(&self, options: LockOptions) -> Result<Result<ReentrantGuard, NotAcquired>> {
        let acquired =
            wait("FairLock::lock_with", self.0.lock_with(OwnerKey::this_thread(), options))??;
        Ok(acquired.map(ReentrantGuard::new))
    }

    /// Acquires the lock, runs `work`, releases the lock, and returns what `work` has returned.
    /// `work` gets the guard by reference. It is not interrupted if the lock is lost, so it should
    /// ask the guard ([`Guard::ensure`]) before each step. If `work` panics, the lock is released
    /// in the background, and the panic goes on.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), before `work` was called. [`Error::Lost`](crate::Error::Lost) if
    /// the lock was lost before it was released: `work` has run, and another holder may have been
    /// at work at the same time. If the release fails in another way, it goes on in the background,
    /// and the outcome of `work` is returned all the same.
    ///
    /// ```no_run
    /// # fn write_report(fence: u64) -> std::io::Result<()> { Ok(()) }
    /// # fn example(lock: redis_reentrant_lock::blocking::FairLock) -> Result<(), Box<dyn std::error::Error>> {
    /// lock.with(|guard| write_report(guard.fencing_token()))??;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        self.lock()?.run(work)
    }

    /// The same as [`with`](Self::with), with options. [`NotAcquired`] is returned only with a
    /// limit on the wait: the lock is taken, and `work` was not called.
    ///
    /// # Errors
    ///
    /// As [`with`](Self::with); [`Error::InvalidOption`](crate::Error::InvalidOption) before
    /// anything is sent.
    pub fn with_options<T>(
        &self,
        options: LockOptions,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<Result<T, NotAcquired>> {
        match self.lock_with(options)? {
            Ok(guard) => guard.run(work).map(Ok),
            Err(not_acquired) => Ok(Err(not_acquired)),
        }
    }

    /// Whether the lock is taken. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`FairLock::is_locked`](crate::FairLock::is_locked), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn is_locked(&self) -> Result<bool> {
        wait("FairLock::is_locked", self.0.is_locked())?
    }

    /// How long the lease of the current holder lasts without another renewal. `None`: nobody holds
    /// the lock. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub fn remaining_lease(&self) -> Result<Option<Duration>> {
        wait("FairLock::remaining_lease", self.0.remaining_lease())?
    }

    /// Who holds the lock. `None`: nobody does. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub fn holder(&self) -> Result<Option<Holder>> {
        wait("FairLock::holder", self.0.holder())?
    }

    /// Takes the lock away from its holder: as
    /// [`FairLock::force_unlock`](crate::FairLock::force_unlock), which says what that may damage.
    ///
    /// # Errors
    ///
    /// As [`FairLock::force_unlock`](crate::FairLock::force_unlock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn force_unlock(&self) -> Result<bool> {
        wait("FairLock::force_unlock", self.0.force_unlock(None))?
    }

    /// Takes the lock away from this holder and from no other: as
    /// [`FairLock::force_unlock_from`](crate::FairLock::force_unlock_from).
    ///
    /// # Errors
    ///
    /// As [`FairLock::force_unlock_from`](crate::FairLock::force_unlock_from), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn force_unlock_from(&self, holder: &Holder) -> Result<bool> {
        wait("FairLock::force_unlock_from", self.0.force_unlock(Some(holder.hold_id())))?
    }

    /// How many levels this thread holds; 0 if it does not hold the lock. Asks no server.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) in a forked child.
    pub fn hold_count(&self) -> Result<u32> {
        self.0.hold_count(OwnerKey::this_thread())
    }

    /// Whether this thread holds the lock. Asks no server.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) in a forked child.
    pub fn is_held(&self) -> Result<bool> {
        Ok(self.hold_count()? > 0)
    }
}
