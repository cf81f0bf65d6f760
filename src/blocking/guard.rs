//! The guards of the blocking locks.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::MutexGuard;
use std::time::Duration;

use crate::base::clock::Deadline;
use crate::base::error::LossReason;
use crate::base::error::Result;
use crate::blocking::loss_signal::LossSignal;
use crate::blocking::wait::wait;
use crate::blocking::wait::wait_for;
use crate::locks::guard::Guard as AsyncGuard;
use crate::locks::lock::unless_lost;

/// A lock that is held. [`unlock`](Self::unlock) releases it, and so does dropping the guard, which
/// does not wait: the release then happens in the background, and a failure is only counted and
/// logged. What [`Guard`](crate::Guard) says about the end of a process is true of this one, too.
///
/// The guard of a [`Mutex`](crate::blocking::Mutex) may be sent to another thread. That of a
/// [`ReentrantLock`](crate::blocking::ReentrantLock) is a [`ReentrantGuard`], which has the same methods and stays on its thread.
///
/// A lock can be lost while the guard lives. Nothing can interrupt a thread, so **ask the guard**
/// between the steps of your work: [`ensure`](Self::ensure), [`is_held`](Self::is_held). A pause
/// is best made with [`lost_within`](Self::lost_within), which ends at a loss.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # fn main() -> redis_reentrant_lock::Result<()> {
/// # use redis_reentrant_lock::{InMemoryServer, LockClient};
/// # use std::time::Duration;
/// # fn import(part: u32, token: u64) {}
/// # let client = LockClient::builder().in_memory(&InMemoryServer::new()).blocking_connect()?;
/// let guard = client.mutex("import")?.lock()?;
/// for part in 0..3 {
///     guard.ensure(Duration::from_secs(5))?; // what a part takes
///     import(part, guard.fencing_token());
///     guard.lost_within(Duration::from_millis(10))?; // a pause, which a loss ends
/// }
/// guard.unlock()
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
#[must_use = "without a variable the lock is released at once, also by `let _ =`: bind the guard to a name"]
#[clippy::has_significant_drop]
pub struct Guard(AsyncGuard);

impl Guard {
    pub(super) fn new(guard: AsyncGuard) -> Self {
        Self(guard)
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// As [`Guard::hold_id`](crate::Guard::hold_id).
    pub fn hold_id(&self) -> String {
        self.0.hold_id()
    }

    /// A number that grows with every new grant of this name, to any client: as
    /// [`Guard::fencing_token`](crate::Guard::fencing_token).
    pub fn fencing_token(&self) -> u64 {
        self.0.fencing_token()
    }

    /// How many levels the hold has right now, this guard's included.
    pub fn hold_count(&self) -> u32 {
        self.0.hold_count()
    }

    /// Whether the lock is still held, as far as this process can know. No I/O.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Whether a loss is likely: as [`Guard::is_suspect`](crate::Guard::is_suspect).
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.0.is_suspect()
    }

    /// The instant up to which the lock is held without another renewal. It is in the past once the
    /// lock was lost.
    #[must_use]
    pub fn valid_until(&self) -> Deadline {
        self.0.valid_until()
    }

    /// Why the lock was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.0.loss()
    }

    /// Waits until the lock is lost, and returns the reason.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn lost(&self) -> Result<LossReason> {
        wait("Guard::lost", self.0.lost())
    }

    /// Waits until the lock is lost, but not longer than `limit`. `None`: it is still held.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn lost_within(&self, limit: Duration) -> Result<Option<LossReason>> {
        wait_for(limit, "Guard::lost", self.0.lost())
    }

    /// What tells another thread of a loss.
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal::new(self.0.loss_signal())
    }

    /// Checks that the lock is held for at least `min_remaining` more. No I/O.
    ///
    /// # Errors
    ///
    /// As [`Guard::ensure`](crate::Guard::ensure).
    pub fn ensure(&self, min_remaining: Duration) -> Result<()> {
        self.0.ensure(min_remaining)
    }

    /// Asks the server whether the hold is still there; takes one round trip.
    ///
    /// # Errors
    ///
    /// As [`Guard::verify`](crate::Guard::verify), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn verify(&self) -> Result<()> {
        wait("Guard::verify", self.0.verify())?
    }

    /// Releases this level and waits until the server has confirmed it. The last level frees the
    /// lock and wakes a waiter.
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`](crate::Guard::unlock). [`Error::InAsyncTask`](crate::Error::InAsyncTask):
    /// the guard is dropped, so that the release goes on in the background.
    pub fn unlock(self) -> Result<()> {
        wait("Guard::unlock", self.0.unlock())?
    }

    /// Ends this guard without releasing the lock: as
    /// [`Guard::leave_to_lease`](crate::Guard::leave_to_lease).
    pub fn leave_to_lease(self) {
        self.0.leave_to_lease();
    }

    /// Runs `work`, and then releases the lock. If `work` panics, the guard is dropped.
    pub(super) fn run<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T> {
        let done = work(&self);
        unless_lost(done, self.unlock())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One level of a [`ReentrantLock`](crate::blocking::ReentrantLock) that this thread holds. It has
/// the methods of [`Guard`].
///
/// It cannot be sent to another thread, as in std and `parking_lot`: the thread that took the lock
/// is its owner and can take it again at once, while the other thread would still work under the
/// guard. Other threads may have a reference to it, ask it, and wait for its loss.
///
/// ```compile_fail,E0277
/// fn example(lock: &redis_reentrant_lock::blocking::ReentrantLock) {
///     let guard = lock.lock().unwrap();
///     std::thread::spawn(move || drop(guard)); // refused: it is not `Send`
/// }
/// ```
#[must_use = "without a variable the level is released at once, also by `let _ =`: bind the guard to a name"]
#[clippy::has_significant_drop]
pub struct ReentrantGuard {
    guard: Guard,
    /// Not `Send`, but `Sync`.
    stays: PhantomData<MutexGuard<'static, ()>>,
}

impl ReentrantGuard {
    pub(super) fn new(guard: AsyncGuard) -> Self {
        Self { guard: Guard::new(guard), stays: PhantomData }
    }

    /// As [`Guard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`].
    pub fn unlock(self) -> Result<()> {
        self.guard.unlock()
    }

    /// As [`Guard::leave_to_lease`].
    pub fn leave_to_lease(self) {
        self.guard.leave_to_lease();
    }

    pub(super) fn as_async(&self) -> &AsyncGuard {
        &self.guard.0
    }

    pub(super) fn into_async(self) -> AsyncGuard {
        self.guard.0
    }

    /// As [`Guard::run`].
    pub(super) fn run<T>(self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        self.guard.run(work)
    }
}

impl Deref for ReentrantGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for ReentrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
