//! The read-write lock: many readers, or one writer.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Result;
use crate::base::name::LockName;
use crate::driver::Shared;
use crate::kinds::share::Share;
use crate::locks::guard::Guard;
use crate::locks::lock::Holder;
use crate::locks::lock::Lock;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::lock::unless_lost;
use crate::locks::multi::LockMember;

/// A lock that many may read at the same time, or one may write, in all processes.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> redis_reentrant_lock::Result<()> {
/// # let server = redis_reentrant_lock::InMemoryServer::new();
/// # let client = redis_reentrant_lock::LockClient::builder().in_memory(&server).connect().await?;
/// # let other = redis_reentrant_lock::LockClient::builder().in_memory(&server).connect().await?;
/// let catalog = client.rw_lock("catalog")?;
/// let read = catalog.read().await?;
/// let beside = other.rw_lock("catalog")?.read().await?; // in another process
/// assert!(other.rw_lock("catalog")?.try_write().await.is_err(), "it would wait for itself");
/// beside.unlock().await?;
/// read.unlock().await?;
///
/// let write = catalog.write().await?; // nobody else reads or writes
/// let read = write.downgrade().await?; // no other writer comes in between
/// read.unlock().await
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
///
/// The owner of a read or write is decided when its future is first polled, by the rules of
/// [`ReentrantLock`](crate::ReentrantLock). An owner that reads may read again, and one that writes
/// may read or write again; each has a guard of its own. An owner that only reads and asks to write
/// would wait for itself: that is [`Error::WouldDeadlock`] at once, and
/// [`RwLockReadGuard::try_upgrade`] is the way to do it.
///
/// # Guarantees
///
/// * While somebody writes, nobody else reads or writes, for as long as the guards are valid.
/// * **Nobody starves.** A writer that waits goes before reads that come after it. When a writer
///   has finished, all readers that wait by then go before the next writer.
/// * A reader or a writer whose process dies blocks others for at most its lease, also while other
///   readers stay.
/// * Readers do not wait for each other, neither those of one client.
///
/// # What it cannot protect against
///
/// * A process that is suspended past the end of its lease, and goes on to use what the lock
///   protects without looking at its guard. Send the [fencing token](Guard::fencing_token) of a
///   *write* along, and let the receiver refuse smaller ones
///   ([Kleppmann](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html)). The
///   token of a *read* says which writes it has seen: those with smaller tokens.
/// * A server that loses its data, or a replica that takes over without the last writes
///   ([Redis](https://redis.io/docs/latest/operate/oss_and_stack/management/replication/)).
/// * With the profile [`Redisson`](crate::WireProfile::Redisson) nobody is promised an order, as with
///   `RReadWriteLock`: readers can keep writers waiting for ever. And a client of Redisson shortens
///   the lease of all readers to its own watchdog time when it renews its read; so a read with a
///   lease longer than [`redisson_watchdog`](crate::LockClientBuilder::redisson_watchdog) is refused.
///
/// # Keys
///
/// The name is the key: a hash with `mode`, and a field for each hold. Each reader has a key
/// `{name}:<client>:<hold>:rwlock_timeout:1` that lives as long as its lease, by which others know
/// that it is alive. Who waits stands in the line, as for the other locks. The channel is
/// `redisson_rwlock:{name}`.
///
/// [`RequiredAcl::rw_locks`](crate::RequiredAcl::rw_locks) adds the permissions for these.
/// [`preflight_rw_lock`](crate::LockClient::preflight_rw_lock) checks a server and them.
///
/// [`Error::WouldDeadlock`]: crate::Error::WouldDeadlock
#[derive(Clone)]
pub struct RwLock {
    reads: Lock,
    writes: Lock,
}

impl RwLock {
    pub(crate) fn new(name: LockName, shared: &Arc<Shared>) -> Result<Self> {
        let reads = Lock::of(name.clone(), Share::READ, shared)?;
        Ok(Self { reads, writes: Lock::of(name, Share::ONE, shared)? })
    }

    /// For reads and for writes, with an owner of the caller's choice.
    #[cfg(feature = "blocking")]
    pub(crate) fn into_locks(self) -> (Lock, Lock) {
        (self.reads, self.writes)
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.reads.name()
    }

    /// Its reading side, as a member of a [`MultiLock`](crate::MultiLock).
    pub fn read_lock(&self) -> LockMember {
        LockMember::of_caller(self.reads.clone())
    }

    /// Its writing side, as a member of a [`MultiLock`](crate::MultiLock).
    pub fn write_lock(&self) -> LockMember {
        LockMember::of_caller(self.writes.clone())
    }

    /// Waits until nobody else writes and nobody waits to write, for as long as it takes, and reads.
    /// If the calling owner reads or writes already, it reads once more and does not wait. The lease
    /// is watched: it is renewed until the guard is released.
    ///
    /// # Errors
    ///
    /// As [`ReentrantLock::lock`](crate::ReentrantLock::lock);
    /// [`Error::InvalidOption`](crate::Error::InvalidOption), in the profile `Redisson` only, if the
    /// lease of the client is longer than
    /// [`redisson_watchdog`](crate::LockClientBuilder::redisson_watchdog).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: a grant on its way is given back in
    /// the background. The place in the line is lost.
    pub async fn read(&self) -> Result<RwLockReadGuard> {
        self.reads.lock(self.reads.owner()?).await.map(RwLockReadGuard)
    }

    /// Reads if nobody else writes and nobody waits to write, without waiting. [`NotAcquired`]:
    /// somebody does.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); `Unavailable` if there is no answer within the command timeout.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn try_read(&self) -> Result<Result<RwLockReadGuard, NotAcquired>> {
        Ok(self.reads.try_lock(self.reads.owner()?).await?.map(RwLockReadGuard))
    }

    /// The same as [`read`](Self::read), but waits at most `wait`. [`NotAcquired`]: somebody still
    /// wrote or waited to write then, as far as the last answer goes.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); `Unavailable` if no attempt was answered within the wait.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn try_read_for(
        &self,
        wait: Duration,
    ) -> Result<Result<RwLockReadGuard, NotAcquired>> {
        Ok(self.reads.try_lock_for(self.reads.owner()?, wait).await?.map(RwLockReadGuard))
    }

    /// Reads with other [options](LockOptions) than `read()` has. [`NotAcquired`] is returned only
    /// with a limit on the wait.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); [`Error::InvalidOption`](crate::Error::InvalidOption) before anything
    /// is sent.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn read_with(
        &self,
        options: LockOptions,
    ) -> Result<Result<RwLockReadGuard, NotAcquired>> {
        Ok(self.reads.lock_with(self.reads.owner()?, options).await?.map(RwLockReadGuard))
    }

    /// Reads, runs `work` for as long as the lock is held, releases the lock, and returns what `work`
    /// has returned, as [`ReentrantLock::with`](crate::ReentrantLock::with) does.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), before `work` was called. [`Error::Lost`](crate::Error::Lost) if the
    /// lock was lost before it was released: `work` may have been done in part or as a whole.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases the lock in the background.
    pub async fn with_read<T>(&self, work: impl AsyncFnOnce(&RwLockReadGuard) -> T) -> Result<T> {
        self.read().await?.during(work).await
    }

    /// The same as [`with_read`](Self::with_read), with options. [`NotAcquired`]: `work` was not
    /// called.
    ///
    /// # Errors
    ///
    /// As [`with_read`](Self::with_read) and [`read_with`](Self::read_with).
    ///
    /// # Cancel safety
    ///
    /// As [`with_read`](Self::with_read).
    pub async fn with_read_options<T>(
        &self,
        options: LockOptions,
        work: impl AsyncFnOnce(&RwLockReadGuard) -> T,
    ) -> Result<Result<T, NotAcquired>> {
        match self.read_with(options).await? {
            Ok(guard) => guard.during(work).await.map(Ok),
            Err(not_acquired) => Ok(Err(not_acquired)),
        }
    }

    /// Waits until nobody else reads or writes, for as long as it takes, and writes. If the calling
    /// owner writes already, it writes once more and does not wait. The lease is watched: it is
    /// renewed until the guard is released.
    ///
    /// # Errors
    ///
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) at once if the calling owner only reads;
    /// all others of [`ReentrantLock::lock`](crate::ReentrantLock::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn write(&self) -> Result<RwLockWriteGuard> {
        self.writes.lock(self.writes.owner()?).await.map(RwLockWriteGuard)
    }

    /// Writes if nobody else reads or writes, without waiting. [`NotAcquired`]: somebody does.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); `Unavailable` if there is no answer within the command timeout.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn try_write(&self) -> Result<Result<RwLockWriteGuard, NotAcquired>> {
        Ok(self.writes.try_lock(self.writes.owner()?).await?.map(RwLockWriteGuard))
    }

    /// The same as [`write`](Self::write), but waits at most `wait`. [`NotAcquired`]: somebody still
    /// read or wrote then, as far as the last answer goes.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); `Unavailable` if no attempt was answered within the wait.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn try_write_for(
        &self,
        wait: Duration,
    ) -> Result<Result<RwLockWriteGuard, NotAcquired>> {
        Ok(self.writes.try_lock_for(self.writes.owner()?, wait).await?.map(RwLockWriteGuard))
    }

    /// Writes with other [options](LockOptions) than `write()` has. [`NotAcquired`] is returned only
    /// with a limit on the wait.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); [`Error::InvalidOption`](crate::Error::InvalidOption) before
    /// anything is sent.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn write_with(
        &self,
        options: LockOptions,
    ) -> Result<Result<RwLockWriteGuard, NotAcquired>> {
        Ok(self.writes.lock_with(self.writes.owner()?, options).await?.map(RwLockWriteGuard))
    }

    /// Writes, runs `work` for as long as the lock is held, releases the lock, and returns what `work`
    /// has returned, as [`ReentrantLock::with`](crate::ReentrantLock::with) does.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), before `work` was called. [`Error::Lost`](crate::Error::Lost) if the
    /// lock was lost before it was released: `work` may have been done in part or as a whole.
    ///
    /// # Cancel safety
    ///
    /// As [`with_read`](Self::with_read).
    pub async fn with_write<T>(&self, work: impl AsyncFnOnce(&RwLockWriteGuard) -> T) -> Result<T> {
        self.write().await?.during(work).await
    }

    /// The same as [`with_write`](Self::with_write), with options. [`NotAcquired`]: `work` was not
    /// called.
    ///
    /// # Errors
    ///
    /// As [`with_write`](Self::with_write) and [`write_with`](Self::write_with).
    ///
    /// # Cancel safety
    ///
    /// As [`with_read`](Self::with_read).
    pub async fn with_write_options<T>(
        &self,
        options: LockOptions,
        work: impl AsyncFnOnce(&RwLockWriteGuard) -> T,
    ) -> Result<Result<T, NotAcquired>> {
        match self.write_with(options).await? {
            Ok(guard) => guard.during(work).await.map(Ok),
            Err(not_acquired) => Ok(Err(not_acquired)),
        }
    }

    /// Whether somebody reads or writes, this client included, or the name is kept by
    /// [`at_least`](LockOptions::at_least). Asks the server; the answer may be outdated at once.
    ///
    /// # Errors
    ///
    /// As [`ReentrantLock::is_locked`](crate::ReentrantLock::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn is_locked(&self) -> Result<bool> {
        self.reads.is_locked().await
    }

    /// How long it takes until nobody reads or writes, if nobody renews a lease. `None`: nobody does.
    /// Asks the server.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn remaining_lease(&self) -> Result<Option<Duration>> {
        self.reads.remaining_lease().await
    }

    /// Who has the lock: the writer, or one of the readers. `None`: nobody does. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn holder(&self) -> Result<Option<Holder>> {
        self.reads.holder().await
    }

    /// Takes the lock away from the writer, or from one reader after the other until nobody reads.
    /// Returns true if somebody read or wrote. The page of
    /// [`ReentrantLock::force_unlock`](crate::ReentrantLock::force_unlock) says when to use it, and
    /// what follows. While new readers come all the time, this goes on: use
    /// [`force_unlock_from`](Self::force_unlock_from) then.
    ///
    /// # Errors
    ///
    /// As [`ReentrantLock::force_unlock`](crate::ReentrantLock::force_unlock).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock may have been taken away from some of the readers only.
    pub async fn force_unlock(&self) -> Result<bool> {
        let mut forced = false;
        while self.reads.force_unlock(None).await? {
            forced = true;
        }
        Ok(forced)
    }

    /// Takes the lock away from this holder, as [`holder`](Self::holder) returned it, and from no
    /// other. Returns false if that holder did not have the lock any more.
    ///
    /// # Errors
    ///
    /// As [`force_unlock`](Self::force_unlock).
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the request goes on even if the future is dropped.
    pub async fn force_unlock_from(&self, holder: &Holder) -> Result<bool> {
        self.reads.force_unlock(Some(holder.hold_id())).await
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// One read of an [`RwLock`]. What a [`Guard`] can tell and do by reference, this can, too; dropping
/// it releases the read, as [`unlock`](Self::unlock) does.
#[derive(Debug)]
#[must_use = "a guard that is dropped releases its read at once"]
pub struct RwLockReadGuard(pub(crate) Guard);

impl RwLockReadGuard {
    /// Writes beside this read if its owner is the only reader: a hold of its own, with a guard of its
    /// own. Does not wait. [`NotAcquired`]: others read, so release this read and use
    /// [`write`](RwLock::write), during which another writer may come first. Nothing happens to this
    /// read in either case.
    ///
    /// If its owner writes already, it writes once more. A write that came from an upgrade, and was
    /// downgraded, is a read of its own beside this one: its owner may upgrade again once one of the
    /// two is released.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if this read was lost;
    /// [`Error::Unavailable`](crate::Error::Unavailable) if there is no answer within the command
    /// timeout; all others of [`RwLock::try_write`] except `WouldDeadlock` and `NoOwner`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind but this read.
    pub async fn try_upgrade(&self) -> Result<Result<RwLockWriteGuard, NotAcquired>> {
        Ok(Lock::try_upgrade(&self.0).await?.map(RwLockWriteGuard))
    }

    /// Releases this read, and waits until the server has confirmed it: [`Guard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::unlock`].
    pub async fn unlock(self) -> Result<()> {
        self.0.unlock().await
    }

    /// Ends this guard without releasing the read: [`Guard::leave_to_lease`].
    pub fn leave_to_lease(self) {
        self.0.leave_to_lease();
    }

    async fn during<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T> {
        let done = self.run(work(&self)).await?;
        unless_lost(done, self.unlock().await)
    }
}

impl Deref for RwLockReadGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

/// One write of an [`RwLock`]. What a [`Guard`] can tell and do by reference, this can, too; dropping
/// it releases the write, as [`unlock`](Self::unlock) does.
#[derive(Debug)]
#[must_use = "a guard that is dropped releases its write at once"]
pub struct RwLockWriteGuard(pub(crate) Guard);

impl RwLockWriteGuard {
    /// Reads instead of writing, with no writer in between. All readers that wait then read, too. If
    /// its owner has further write guards, it goes on to write until they are released or downgraded.
    ///
    /// The right to write ends when the future is first polled. Once the server has confirmed it,
    /// this returns.
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`]. After an error nothing is held by this guard any more: it is released in
    /// the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock.
    pub async fn downgrade(self) -> Result<RwLockReadGuard> {
        // First, so that the read is released if this future is dropped, or there is an error.
        let read = RwLockReadGuard(self.0);
        read.0.downgrade().await?;
        Ok(read)
    }

    /// Releases this write, and waits until the server has confirmed it: [`Guard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::unlock`].
    pub async fn unlock(self) -> Result<()> {
        self.0.unlock().await
    }

    /// Ends this guard without releasing the write: [`Guard::leave_to_lease`].
    pub fn leave_to_lease(self) {
        self.0.leave_to_lease();
    }

    async fn during<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T> {
        let done = self.run(work(&self)).await?;
        unless_lost(done, self.unlock().await)
    }
}

impl Deref for RwLockWriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
