//! The multi-lock for threads.

use std::fmt;
use std::marker::PhantomData;
use std::sync::MutexGuard;
use std::time::Duration;

use crate::base::clock::Deadline;
use crate::base::error::Result;
use crate::base::owner::OwnerKey;
use crate::blocking::wait::wait;
use crate::blocking::wait::wait_for;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::lock::unless_lost;
use crate::locks::multi::LockMember;
use crate::locks::multi::MemberLoss;
use crate::locks::multi::MultiGuard as AsyncGuard;
use crate::locks::multi::MultiLock as AsyncMultiLock;

/// A [`MultiLock`](crate::MultiLock) whose methods block the calling thread, which is the owner of
/// reentrant locks and read-write locks among the members. What is said there of guarantees, the order
/// and options is true here.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # fn main() -> redis_reentrant_lock::Result<()> {
/// # use redis_reentrant_lock::{InMemoryServer, LockClient};
/// # let client = LockClient::builder().in_memory(&InMemoryServer::new()).blocking_connect()?;
/// use redis_reentrant_lock::blocking::MultiLock;
///
/// let (from, to) = (client.mutex("account:7")?, client.mutex("account:3")?);
/// let transfer = MultiLock::new([from.into(), to.into(), client.rw_lock("fees")?.read_lock()])?;
/// let guard = transfer.lock()?;
/// guard.unlock()
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct MultiLock(AsyncMultiLock);

impl MultiLock {
    /// A lock over these members. Sends nothing.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::new`](crate::MultiLock::new).
    pub fn new(members: impl IntoIterator<Item = LockMember>) -> Result<Self> {
        AsyncMultiLock::new(members).map(Self)
    }

    /// The names of the members, in the order in which they are taken.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.names()
    }

    /// Waits until all members are held, for as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::lock`](crate::MultiLock::lock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn lock(&self) -> Result<MultiGuard> {
        wait("MultiLock::lock", self.0.lock_as(this_thread()))?.map(MultiGuard::new)
    }

    /// Takes all members if all are free, without waiting for a holder.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::try_lock`](crate::MultiLock::try_lock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_lock(&self) -> Result<Result<MultiGuard, NotAcquired>> {
        self.try_lock_for(Duration::ZERO)
    }

    /// The same as [`lock`](Self::lock), but waits at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::try_lock_for`](crate::MultiLock::try_lock_for), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_lock_for(&self, limit: Duration) -> Result<Result<MultiGuard, NotAcquired>> {
        self.lock_with(LockOptions::new().wait(limit))
    }

    /// Takes all members with other [options](LockOptions) than `lock()` has.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::lock_with`](crate::MultiLock::lock_with), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn lock_with(&self, options: LockOptions) -> Result<Result<MultiGuard, NotAcquired>> {
        let asked = self.0.lock_with_as(this_thread(), options);
        Ok(wait("MultiLock::lock_with", asked)??.map(MultiGuard::new))
    }

    /// Takes all members, runs `work`, releases them, and returns what `work` has returned. It is not
    /// interrupted if a member is lost.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), before `work` was called. [`Error::Lost`](crate::Error::Lost) if a
    /// member was lost before the release.
    pub fn with<T>(&self, work: impl FnOnce(&MultiGuard) -> T) -> Result<T> {
        let guard = self.lock()?;
        let done = work(&guard);
        unless_lost(done, guard.unlock())
    }
}

fn this_thread() -> Option<OwnerKey> {
    Some(OwnerKey::this_thread())
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// All members of a [`MultiLock`], held. [`unlock`](Self::unlock) releases them, and so does dropping
/// the guard, which does it in the background. It is lost as soon as one of its members is.
///
/// It stays on its thread, as a [`ReentrantGuard`](crate::blocking::ReentrantGuard) does.
#[must_use = "without a variable the locks are released at once, also by `let _ =`: bind the guard to a name"]
#[clippy::has_significant_drop]
pub struct MultiGuard {
    guard: AsyncGuard,
    /// Not `Send`, but `Sync`.
    stays: PhantomData<MutexGuard<'static, ()>>,
}

impl MultiGuard {
    fn new(guard: AsyncGuard) -> Self {
        Self { guard, stays: PhantomData }
    }

    /// The names of the members and their fencing tokens, in the order in which they were taken.
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&str, u64)> {
        self.guard.fencing_tokens()
    }

    /// Whether all members are still held, as far as this process can know. No I/O.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Whether all are held and the loss of one is likely.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.guard.is_suspect()
    }

    /// The instant up to which all are held without another renewal: the earliest of the members'.
    #[must_use]
    pub fn valid_until(&self) -> Deadline {
        self.guard.valid_until()
    }

    /// Which member was lost first in their order, and why. `None`: all are held.
    #[must_use]
    pub fn loss(&self) -> Option<MemberLoss> {
        self.guard.loss()
    }

    /// Waits until a member is lost, but not longer than `limit`. `None`: all are still held.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn lost_within(&self, limit: Duration) -> Result<Option<MemberLoss>> {
        wait_for(limit, "MultiGuard::lost", self.guard.lost())
    }

    /// Checks that all members are held for at least `min_remaining` more. No I/O.
    ///
    /// # Errors
    ///
    /// As [`MultiGuard::ensure`](crate::MultiGuard::ensure).
    pub fn ensure(&self, min_remaining: Duration) -> Result<()> {
        self.guard.ensure(min_remaining)
    }

    /// Asks the servers whether all holds are still there.
    ///
    /// # Errors
    ///
    /// As [`MultiGuard::verify`](crate::MultiGuard::verify), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn verify(&self) -> Result<()> {
        wait("MultiGuard::verify", self.guard.verify())?
    }

    /// Releases all members at once, and waits until the servers have confirmed it.
    ///
    /// # Errors
    ///
    /// As [`MultiGuard::unlock`](crate::MultiGuard::unlock).
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask): the guard is dropped, so that the release
    /// goes on in the background.
    pub fn unlock(self) -> Result<()> {
        wait("MultiGuard::unlock", self.guard.unlock())?
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
