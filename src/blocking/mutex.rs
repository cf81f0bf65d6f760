//! The mutex for threads.

use std::time::Duration;

use crate::base::error::Result;
use crate::base::owner::OwnerKey;
use crate::blocking::guard::Guard;
use crate::blocking::wait::wait;
use crate::locks::lock::Holder;
use crate::locks::lock::Lock;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::multi::LockMember;

/// A [`Mutex`](crate::Mutex) whose methods block the calling thread. Every acquisition is its own
/// owner, so it is the right lock where threads run jobs of others, as in the pool of rayon.
///
/// Taking it again while holding its guard waits forever: with the pool's
/// threads that means, too, that a job must not wait for other jobs of the pool while it holds the
/// lock, if one of them takes it as well.
///
/// It is cheap to clone and to make: handles of the same client and name refer to the same lock.
#[derive(Clone, Debug)]
pub struct Mutex(Lock);

impl From<Mutex> for LockMember {
    fn from(mutex: Mutex) -> Self {
        Self::of_acquisition(mutex.0)
    }
}

impl Mutex {
    pub(super) fn new(lock: Lock) -> Self {
        Self(lock)
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Acquires the lock, waiting for as long as it takes. The lease is watched: it is renewed by
    /// the driver's thread until the guard is released, whatever this thread does.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    ///
    /// ```no_run
    /// # fn example(client: redis_reentrant_lock::blocking::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let lock = client.mutex("orders:42")?;
    /// let guard = lock.lock()?;
    /// guard.unlock()
    /// # }
    /// ```
    pub fn lock(&self) -> Result<Guard> {
        wait("Mutex::lock", self.0.lock(OwnerKey::once()))?.map(Guard::new)
    }

    /// Acquires the lock if it is free, without waiting for a holder. [`NotAcquired`]: somebody
    /// holds it. As [`Mutex::try_lock`](crate::Mutex::try_lock), also for what it says about a guard
    /// that was just dropped, and about outages.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    ///
    /// ```no_run
    /// # fn example(lock: redis_reentrant_lock::blocking::Mutex) -> redis_reentrant_lock::Result<()> {
    /// match lock.try_lock()? {
    ///     Ok(guard) => guard.unlock(),
    ///     Err(not_acquired) => Ok(println!("{not_acquired}")),
    /// }
    /// # }
    /// ```
    pub fn try_lock(&self) -> Result<Result<Guard, NotAcquired>> {
        let acquired = wait("Mutex::try_lock", self.0.try_lock(OwnerKey::once()))??;
        Ok(acquired.map(Guard::new))
    }

    /// Acquires the lock, waiting at most `limit`. [`NotAcquired`]: the lock was still held when the
    /// wait ended, as far as the last answer goes. Do not start the work.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock_for`](crate::Mutex::try_lock_for), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_lock_for(&self, limit: Duration) -> Result<Result<Guard, NotAcquired>> {
        let acquired = wait("Mutex::try_lock_for", self.0.try_lock_for(OwnerKey::once(), limit))??;
        Ok(acquired.map(Guard::new))
    }

    /// Acquires the lock with other [options](LockOptions) than `lock()` has. [`NotAcquired`] is
    /// returned only with a limit on the wait.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_with`](crate::Mutex::lock_with), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn lock_with(&self, options: LockOptions) -> Result<Result<Guard, NotAcquired>> {
        let acquired = wait("Mutex::lock_with", self.0.lock_with(OwnerKey::once(), options))??;
        Ok(acquired.map(Guard::new))
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
    /// # fn example(lock: redis_reentrant_lock::blocking::Mutex) -> Result<(), Box<dyn std::error::Error>> {
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
    /// As [`Mutex::is_locked`](crate::Mutex::is_locked), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn is_locked(&self) -> Result<bool> {
        wait("Mutex::is_locked", self.0.is_locked())?
    }

    /// How long the lease of the current holder lasts without another renewal. `None`: nobody holds
    /// the lock. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub fn remaining_lease(&self) -> Result<Option<Duration>> {
        wait("Mutex::remaining_lease", self.0.remaining_lease())?
    }

    /// Who holds the lock. `None`: nobody does. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub fn holder(&self) -> Result<Option<Holder>> {
        wait("Mutex::holder", self.0.holder())?
    }

    /// Takes the lock away from its holder: as
    /// [`Mutex::force_unlock`](crate::Mutex::force_unlock), which says what that may damage.
    ///
    /// # Errors
    ///
    /// As [`Mutex::force_unlock`](crate::Mutex::force_unlock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn force_unlock(&self) -> Result<bool> {
        wait("Mutex::force_unlock", self.0.force_unlock(None))?
    }

    /// Takes the lock away from this holder and from no other: as
    /// [`Mutex::force_unlock_from`](crate::Mutex::force_unlock_from).
    ///
    /// # Errors
    ///
    /// As [`Mutex::force_unlock_from`](crate::Mutex::force_unlock_from), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn force_unlock_from(&self, holder: &Holder) -> Result<bool> {
        wait("Mutex::force_unlock_from", self.0.force_unlock(Some(holder.hold_id())))?
    }
}
