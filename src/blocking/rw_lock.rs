//! The read-write lock for threads.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::base::error::Result;
use crate::base::owner::OwnerKey;
use crate::blocking::guard::Guard;
use crate::blocking::guard::ReentrantGuard;
use crate::blocking::wait::wait;
use crate::locks::guard::Guard as AsyncGuard;
use crate::locks::lock::Holder;
use crate::locks::lock::Lock;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::multi::LockMember;
use crate::locks::rw_lock::RwLock as AsyncRwLock;
use crate::locks::rw_lock::RwLockWriteGuard as AsyncWriteGuard;

/// An [`RwLock`](crate::RwLock) whose methods block the calling thread. **Its owner is the thread**,
/// with the consequences for pools that [`ReentrantLock`](crate::blocking::ReentrantLock) names. What
/// is said at [`RwLock`](crate::RwLock) of guarantees and keys is true here.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # fn main() -> redis_reentrant_lock::Result<()> {
/// # use redis_reentrant_lock::{InMemoryServer, LockClient};
/// # let client = LockClient::builder().in_memory(&InMemoryServer::new()).blocking_connect()?;
/// let catalog = client.rw_lock("catalog")?;
/// let write = catalog.write()?; // nobody else reads or writes
/// let read = write.downgrade()?; // no other writer comes in between
/// std::thread::scope(|threads| {
///     let other = threads.spawn(|| catalog.try_read().map(|answer| answer.is_ok()));
///     assert!(other.join().unwrap().unwrap(), "another thread reads beside it");
/// });
/// read.unlock()
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct RwLock {
    reads: Lock,
    writes: Lock,
}

impl RwLock {
    pub(super) fn new(lock: AsyncRwLock) -> Self {
        let (reads, writes) = lock.into_locks();
        Self { reads, writes }
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.reads.name()
    }

    /// Its reading side, as a member of a [`MultiLock`](crate::blocking::MultiLock).
    pub fn read_lock(&self) -> LockMember {
        LockMember::of_caller(self.reads.clone())
    }

    /// Its writing side, as a member of a [`MultiLock`](crate::blocking::MultiLock).
    pub fn write_lock(&self) -> LockMember {
        LockMember::of_caller(self.writes.clone())
    }

    /// Waits until nobody else writes and nobody waits to write, and reads. A thread that reads or
    /// writes already reads once more and does not wait.
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`](crate::RwLock::read), but never [`Error::NoOwner`](crate::Error::NoOwner);
    /// and [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn read(&self) -> Result<RwLockReadGuard> {
        wait("RwLock::read", self.reads.lock(OwnerKey::this_thread()))?.map(RwLockReadGuard::new)
    }

    /// Reads if nobody else writes and nobody waits to write, without waiting.
    ///
    /// # Errors
    ///
    /// As [`RwLock::try_read`](crate::RwLock::try_read), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_read(&self) -> Result<Result<RwLockReadGuard, NotAcquired>> {
        let acquired = wait("RwLock::try_read", self.reads.try_lock(OwnerKey::this_thread()))??;
        Ok(acquired.map(RwLockReadGuard::new))
    }

    /// The same as [`read`](Self::read), but waits at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`RwLock::try_read_for`](crate::RwLock::try_read_for), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_read_for(&self, limit: Duration) -> Result<Result<RwLockReadGuard, NotAcquired>> {
        let asked = self.reads.try_lock_for(OwnerKey::this_thread(), limit);
        Ok(wait("RwLock::try_read_for", asked)??.map(RwLockReadGuard::new))
    }

    /// Reads with other [options](LockOptions) than `read()` has.
    ///
    /// # Errors
    ///
    /// As [`RwLock::read_with`](crate::RwLock::read_with), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn read_with(&self, options: LockOptions) -> Result<Result<RwLockReadGuard, NotAcquired>> {
        let asked = self.reads.lock_with(OwnerKey::this_thread(), options);
        Ok(wait("RwLock::read_with", asked)??.map(RwLockReadGuard::new))
    }

    /// Reads, runs `work`, releases the lock, and returns what `work` has returned. It is not
    /// interrupted if the lock is lost: as [`ReentrantLock::with`](crate::blocking::ReentrantLock::with).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), before `work` was called. [`Error::Lost`](crate::Error::Lost) if the
    /// lock was lost before it was released.
    pub fn with_read<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        self.read()?.0.run(work)
    }

    /// The same as [`with_read`](Self::with_read), with options. [`NotAcquired`]: `work` was not
    /// called.
    ///
    /// # Errors
    ///
    /// As [`with_read`](Self::with_read) and [`read_with`](Self::read_with).
    pub fn with_read_options<T>(
        &self,
        options: LockOptions,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<Result<T, NotAcquired>> {
        match self.read_with(options)? {
            Ok(guard) => guard.0.run(work).map(Ok),
            Err(not_acquired) => Ok(Err(not_acquired)),
        }
    }

    /// Waits until nobody else reads or writes, and writes. A thread that writes already writes once
    /// more and does not wait.
    ///
    /// # Errors
    ///
    /// As [`RwLock::write`](crate::RwLock::write), but never
    /// [`Error::NoOwner`](crate::Error::NoOwner); and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn write(&self) -> Result<RwLockWriteGuard> {
        wait("RwLock::write", self.writes.lock(OwnerKey::this_thread()))?.map(RwLockWriteGuard::new)
    }

    /// Writes if nobody else reads or writes, without waiting.
    ///
    /// # Errors
    ///
    /// As [`RwLock::try_write`](crate::RwLock::try_write), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_write(&self) -> Result<Result<RwLockWriteGuard, NotAcquired>> {
        let acquired = wait("RwLock::try_write", self.writes.try_lock(OwnerKey::this_thread()))??;
        Ok(acquired.map(RwLockWriteGuard::new))
    }

    /// The same as [`write`](Self::write), but waits at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`RwLock::try_write_for`](crate::RwLock::try_write_for), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_write_for(&self, limit: Duration) -> Result<Result<RwLockWriteGuard, NotAcquired>> {
        let asked = self.writes.try_lock_for(OwnerKey::this_thread(), limit);
        Ok(wait("RwLock::try_write_for", asked)??.map(RwLockWriteGuard::new))
    }

    /// Writes with other [options](LockOptions) than `write()` has.
    ///
    /// # Errors
    ///
    /// As [`RwLock::write_with`](crate::RwLock::write_with), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn write_with(
        &self,
        options: LockOptions,
    ) -> Result<Result<RwLockWriteGuard, NotAcquired>> {
        let asked = self.writes.lock_with(OwnerKey::this_thread(), options);
        Ok(wait("RwLock::write_with", asked)??.map(RwLockWriteGuard::new))
    }

    /// Writes, runs `work`, releases the lock, and returns what `work` has returned. It is not
    /// interrupted if the lock is lost: as [`ReentrantLock::with`](crate::blocking::ReentrantLock::with).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), before `work` was called. [`Error::Lost`](crate::Error::Lost) if the
    /// lock was lost before it was released.
    pub fn with_write<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        self.write()?.0.run(work)
    }

    /// The same as [`with_write`](Self::with_write), with options. [`NotAcquired`]: `work` was not
    /// called.
    ///
    /// # Errors
    ///
    /// As [`with_write`](Self::with_write) and [`write_with`](Self::write_with).
    pub fn with_write_options<T>(
        &self,
        options: LockOptions,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<Result<T, NotAcquired>> {
        match self.write_with(options)? {
            Ok(guard) => guard.0.run(work).map(Ok),
            Err(not_acquired) => Ok(Err(not_acquired)),
        }
    }

    /// Whether somebody reads or writes. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`RwLock::is_locked`](crate::RwLock::is_locked), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn is_locked(&self) -> Result<bool> {
        wait("RwLock::is_locked", self.reads.is_locked())?
    }

    /// How long it takes until nobody reads or writes, if nobody renews a lease. `None`: nobody does.
    /// Asks the server.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub fn remaining_lease(&self) -> Result<Option<Duration>> {
        wait("RwLock::remaining_lease", self.reads.remaining_lease())?
    }

    /// Who has the lock: the writer, or one of the readers. `None`: nobody does. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    pub fn holder(&self) -> Result<Option<Holder>> {
        wait("RwLock::holder", self.reads.holder())?
    }

    /// Takes the lock away from the writer, or from one reader after the other: as
    /// [`RwLock::force_unlock`](crate::RwLock::force_unlock).
    ///
    /// # Errors
    ///
    /// As [`RwLock::force_unlock`](crate::RwLock::force_unlock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn force_unlock(&self) -> Result<bool> {
        let mut forced = false;
        while wait("RwLock::force_unlock", self.reads.force_unlock(None))?? {
            forced = true;
        }
        Ok(forced)
    }

    /// Takes the lock away from this holder and from no other: as
    /// [`RwLock::force_unlock_from`](crate::RwLock::force_unlock_from).
    ///
    /// # Errors
    ///
    /// As [`force_unlock`](Self::force_unlock).
    pub fn force_unlock_from(&self, holder: &Holder) -> Result<bool> {
        wait("RwLock::force_unlock_from", self.reads.force_unlock(Some(holder.hold_id())))?
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// One read of an [`RwLock`] by this thread. It has the methods of [`Guard`], and stays on its thread
/// like a [`ReentrantGuard`].
#[derive(Debug)]
#[must_use = "without a variable the read is released at once, also by `let _ =`: bind the guard to a name"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard(ReentrantGuard);

impl RwLockReadGuard {
    fn new(guard: AsyncGuard) -> Self {
        Self(ReentrantGuard::new(guard))
    }

    /// Writes beside this read if this thread is the only reader: as
    /// [`RwLockReadGuard::try_upgrade`](crate::RwLockReadGuard::try_upgrade).
    ///
    /// # Errors
    ///
    /// As [`RwLockReadGuard::try_upgrade`](crate::RwLockReadGuard::try_upgrade), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_upgrade(&self) -> Result<Result<RwLockWriteGuard, NotAcquired>> {
        let asked = Lock::try_upgrade(self.0.as_async());
        Ok(wait("RwLockReadGuard::try_upgrade", asked)??.map(RwLockWriteGuard::new))
    }

    /// As [`Guard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`].
    pub fn unlock(self) -> Result<()> {
        self.0.unlock()
    }

    /// As [`Guard::leave_to_lease`].
    pub fn leave_to_lease(self) {
        self.0.leave_to_lease();
    }
}

impl Deref for RwLockReadGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

/// One write of an [`RwLock`] by this thread. It has the methods of [`Guard`], and stays on its thread
/// like a [`ReentrantGuard`].
#[derive(Debug)]
#[must_use = "without a variable the write is released at once, also by `let _ =`: bind the guard to a name"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard(ReentrantGuard);

impl RwLockWriteGuard {
    fn new(guard: AsyncGuard) -> Self {
        Self(ReentrantGuard::new(guard))
    }

    /// Reads instead of writing, with no writer in between: as
    /// [`RwLockWriteGuard::downgrade`](crate::RwLockWriteGuard::downgrade).
    ///
    /// # Errors
    ///
    /// As [`RwLockWriteGuard::downgrade`](crate::RwLockWriteGuard::downgrade).
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask): the guard is dropped.
    pub fn downgrade(self) -> Result<RwLockReadGuard> {
        let write = AsyncWriteGuard(self.0.into_async());
        let read = wait("RwLockWriteGuard::downgrade", write.downgrade())??;
        Ok(RwLockReadGuard::new(read.0))
    }

    /// As [`Guard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`].
    pub fn unlock(self) -> Result<()> {
        self.0.unlock()
    }

    /// As [`Guard::leave_to_lease`].
    pub fn leave_to_lease(self) {
        self.0.leave_to_lease();
    }
}

impl Deref for RwLockWriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
