//! The semaphore for threads.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::base::error::Result;
use crate::blocking::guard::Guard;
use crate::blocking::wait::wait;
use crate::kinds::share::Share;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::lock::unless_lost;
use crate::locks::semaphore::Semaphore as AsyncSemaphore;
use crate::locks::semaphore::SemaphorePermit as AsyncPermit;
use crate::locks::semaphore::with_share;

/// A [`Semaphore`](crate::Semaphore) whose methods block the calling thread. What is said there of
/// guarantees, numbers and keys is true here. Each acquisition is an owner of its own.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # fn main() -> redis_reentrant_lock::Result<()> {
/// # use redis_reentrant_lock::{InMemoryServer, LockClient};
/// # let client = LockClient::builder().in_memory(&InMemoryServer::new()).blocking_connect()?;
/// let exports = client.semaphore("exports", 10)?; // at most ten at once, over all processes
///
/// let permits = exports.acquire_many(3)?;
/// assert_eq!(exports.available()?, 7);
/// permits.release()?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore(AsyncSemaphore);

impl Semaphore {
    pub(super) fn new(semaphore: AsyncSemaphore) -> Self {
        Self(semaphore)
    }

    /// The name of the semaphore.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Acquires a permit, and waits for it as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`](crate::Semaphore::acquire), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn acquire(&self) -> Result<SemaphorePermit> {
        wait("Semaphore::acquire", self.0.acquire())?.map(SemaphorePermit::new)
    }

    /// Acquires so many permits, 1 to 1,000, all at once, and waits for them as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire_many`](crate::Semaphore::acquire_many), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn acquire_many(&self, permits: u32) -> Result<SemaphorePermit> {
        wait("Semaphore::acquire_many", self.0.acquire_many(permits))?.map(SemaphorePermit::new)
    }

    /// Acquires a permit if one is free and nobody waits for it, without waiting.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::try_acquire`](crate::Semaphore::try_acquire), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_acquire(&self) -> Result<Result<SemaphorePermit, NotAcquired>> {
        let acquired = wait("Semaphore::try_acquire", self.0.try_acquire())??;
        Ok(acquired.map(SemaphorePermit::new))
    }

    /// The same for so many permits, 1 to 1,000.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::try_acquire_many`](crate::Semaphore::try_acquire_many), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_acquire_many(&self, permits: u32) -> Result<Result<SemaphorePermit, NotAcquired>> {
        let acquired = wait("Semaphore::try_acquire_many", self.0.try_acquire_many(permits))??;
        Ok(acquired.map(SemaphorePermit::new))
    }

    /// Acquires a permit, and waits at most this long. [`NotAcquired`]: there was none.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::try_acquire_for`](crate::Semaphore::try_acquire_for), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_acquire_for(&self, limit: Duration) -> Result<Result<SemaphorePermit, NotAcquired>> {
        let acquired = wait("Semaphore::try_acquire_for", self.0.try_acquire_for(limit))??;
        Ok(acquired.map(SemaphorePermit::new))
    }

    /// Acquires so many permits, 1 to 1,000, with other [options](LockOptions) than `acquire` has.
    /// [`NotAcquired`] is returned only with a limit on the wait.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire_with`](crate::Semaphore::acquire_with), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn acquire_with(
        &self,
        permits: u32,
        options: LockOptions,
    ) -> Result<Result<SemaphorePermit, NotAcquired>> {
        let acquired = wait("Semaphore::acquire_with", self.0.acquire_with(permits, options))??;
        Ok(acquired.map(SemaphorePermit::new))
    }

    /// Acquires a permit, runs `work`, releases it, and returns what `work` has returned. `work` is
    /// not interrupted if the permit is lost, so it should ask it ([`Guard::ensure`]) before each
    /// step. If `work` panics, the permit is released in the background.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), before `work` was called. [`Error::Lost`](crate::Error::Lost) if
    /// the permit was lost before it was released: `work` has run.
    pub fn with<T>(&self, work: impl FnOnce(&SemaphorePermit) -> T) -> Result<T> {
        self.acquire()?.run(work)
    }

    /// The same with so many permits, 1 to 1,000, and with options. [`NotAcquired`] is returned only
    /// with a limit on the wait, and then `work` was not called.
    ///
    /// # Errors
    ///
    /// As [`with`](Self::with) and [`acquire_with`](Self::acquire_with).
    pub fn with_options<T>(
        &self,
        permits: u32,
        options: LockOptions,
        work: impl FnOnce(&SemaphorePermit) -> T,
    ) -> Result<Result<T, NotAcquired>> {
        match self.acquire_with(permits, options)? {
            Ok(permit) => permit.run(work).map(Ok),
            Err(not_acquired) => Ok(Err(not_acquired)),
        }
    }

    /// How many permits are free. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::available`](crate::Semaphore::available), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn available(&self) -> Result<u32> {
        wait("Semaphore::available", self.0.available())?
    }

    /// How many permits there are for this client. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    pub fn permits(&self) -> Result<u32> {
        wait("Semaphore::permits", self.0.permits())?
    }

    /// Sets how many permits there are, 1 to 1,000,000, for everybody and for good: as
    /// [`Semaphore::set_permits`](crate::Semaphore::set_permits).
    ///
    /// # Errors
    ///
    /// As there, and [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn set_permits(&self, permits: u32) -> Result<()> {
        wait("Semaphore::set_permits", self.0.set_permits(permits))?
    }

    /// Adds so many permits to the number, and returns how many there are then: as
    /// [`Semaphore::add_permits`](crate::Semaphore::add_permits).
    ///
    /// # Errors
    ///
    /// As there, and [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn add_permits(&self, permits: u32) -> Result<u32> {
        wait("Semaphore::add_permits", self.0.add_permits(permits))?
    }

    /// Takes all permits of one acquisition away: as
    /// [`Semaphore::force_release_from`](crate::Semaphore::force_release_from).
    ///
    /// # Errors
    ///
    /// As there, and [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn force_release_from(&self, hold_id: &str) -> Result<bool> {
        wait("Semaphore::force_release_from", self.0.force_release_from(hold_id))?
    }
}

/// Permits that are held. They are released together: by [`release`](Self::release), or when this is
/// dropped, which does not wait. What else it can do is that of a [`Guard`]. It may be sent to another
/// thread.
#[must_use = "without a variable the permits are released at once, also by `let _ =`: bind them to a name"]
#[clippy::has_significant_drop]
pub struct SemaphorePermit {
    guard: Guard,
    share: Share,
}

impl SemaphorePermit {
    fn new(permit: AsyncPermit) -> Self {
        let (guard, share) = permit.into_parts();
        Self { guard: Guard::new(guard), share }
    }

    /// How many permits these are.
    pub fn permits(&self) -> u32 {
        self.share.exclusive
    }

    /// As [`SemaphorePermit::hold_id`](crate::SemaphorePermit::hold_id).
    pub fn hold_id(&self) -> String {
        with_share(self.guard.hold_id(), self.share)
    }

    /// Releases the permits and waits until the server has confirmed it.
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`].
    pub fn release(self) -> Result<()> {
        self.guard.unlock()
    }

    /// The same as [`release`](Self::release), by the name that it has for locks.
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`].
    pub fn unlock(self) -> Result<()> {
        self.release()
    }

    /// Ends this without releasing the permits: as [`Guard::leave_to_lease`].
    pub fn leave_to_lease(self) {
        self.guard.leave_to_lease();
    }

    /// Runs `work`, and then releases the permits. If `work` panics, they are dropped.
    fn run<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T> {
        let done = work(&self);
        unless_lost(done, self.release())
    }
}

impl Deref for SemaphorePermit {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for SemaphorePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SemaphorePermit");
        shown.field("permits", &self.permits()).field("guard", &self.guard).finish()
    }
}
