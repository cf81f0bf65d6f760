//! The fair lock: granted in the order of arrival, over all clients.

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
use crate::locks::multi::LockMember;
use std::sync::Arc;

/// A lock that is granted in the order in which its waiters arrived at Redis, over all clients. Its
/// owner may take it again while holding it, as a [`ReentrantLock`](crate::ReentrantLock)'s; who
/// that is, its guards, options and errors are the same.
///
/// # Guarantees
///
/// * Those of the [`ReentrantLock`](crate::ReentrantLock): one owner at a time, leases that are
///   renewed, a growing fencing token.
/// * **Strict order.** Every caller that waits has a place of its own. The lock goes to the place
///   with the lowest ticket, and tickets are given out by Redis as callers arrive. A lost command,
///   answer or message costs a caller time, but not its place: it comes back with its ticket.
///   Calls that one owner makes at the same time share the place of the first of them.
/// * **[`try_lock`](Self::try_lock) neither overtakes nor queues.** It succeeds only if the lock is
///   free and nobody waits, or if its own owner holds the lock: that is one level more.
/// * **A dead client that waits costs the others 1.5 s once**, however many of its callers wait: the
///   time for which a lock is reserved for whoever is next. What it holds is free with its lease. If it does not take the lock, its client is passed
///   over until it is heard of again; then its callers still have their tickets.
///
/// # What it cannot protect against
///
/// * **Plain locks on the same name.** A [`ReentrantLock`](crate::ReentrantLock) or
///   [`Mutex`](crate::Mutex) of another client has the same key, so that it excludes this lock and is
///   excluded, but it keeps the order only roughly: it takes the lock if it comes when it is free for
///   a moment, and hands it to waiters of its own client for up to 50 ms. Nothing in Redis shows
///   that. Inside one client it is
///   [`Error::KeyConflict`](crate::Error::KeyConflict) while both are in use.
/// * Lost data of the server, for instance by a failover: tickets are kept by the clients, so the
///   line is built anew, but who comes meanwhile may go first.
/// * A caller whose first attempt is executed and has no answer, and whose turn comes before its
///   client has noticed, counts as one that comes then.
/// * The same is true if that attempt has no answer, and the next command, which gives its place up
///   and asks for the ticket, is executed and has none either.
///
/// # In Redis
///
/// The key of the lock, the line and the channel are those of a reentrant lock; beside them
/// `redisson_lock_marks__{<name>}`, a set of the clients that have not been heard of since the lock
/// was reserved for them. It is gone 12 s after the last attempt. A user with restricted permissions
/// needs [`RequiredAcl::fair_locks`](crate::RequiredAcl::fair_locks). A grant that had to wait costs
/// three scripts (four, if the channel was not subscribed yet), one more than a reentrant lock needs
/// between waiters of one client. While they wait, one client sends one script in 5 s.
///
/// # In the profile `Redisson`
///
/// It is the lock of Redisson's `getFairLock`: its waiters and those of Java stand in one queue, and
/// are served in its order. What is weaker there, and why, says
/// [the page on Redisson](crate::docs::redisson#fair-locks): a dead caller in front keeps the lock
/// from the others for up to 15 s, one of Java for all of its wait; and who waits where Java waits
/// for more than 5 minutes can lose its place. Beside the lock there are
/// `redisson_lock_queue:{<name>}`, `redisson_lock_timeout:{<name>}`, and a channel for each owner
/// that waits.
///
/// It is cheap to clone and to make: handles of the same client and name refer to the same lock.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> redis_reentrant_lock::Result<()> {
/// # let server = redis_reentrant_lock::InMemoryServer::new();
/// # let client = redis_reentrant_lock::LockClient::builder().in_memory(&server).connect().await?;
/// let lock = client.fair_lock("orders:42")?;
/// let guard = lock.lock().await?;
/// guard.unlock().await
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

/// The fair lock of this name, for both APIs.
pub(crate) fn lock_of(name: LockName, shared: &Arc<Shared>) -> Result<Lock> {
    let kind = shared.config().profile.fair_lock();
    Lock::of(name.of_kind(kind), Share::ONE, shared)
}

impl FairLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self(lock)
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Acquires the lock when all who came earlier have had it, or adds a level at once if the
    /// calling owner holds it already. The lease is watched: it is renewed until the guard is
    /// released.
    ///
    /// # Errors
    ///
    /// As [`ReentrantLock::lock`](crate::ReentrantLock::lock).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: a grant on its way is given back in
    /// the background, and the place in the line is given up. Who asks again stands at the end.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let lock = client.fair_lock("orders:42")?;
    /// let guard = lock.lock().await?;
    /// guard.unlock().await
    /// # }
    /// ```
    pub async fn lock(&self) -> Result<Guard> {
        self.0.lock(self.0.owner()?).await
    }

    /// Acquires the lock if it is free and nobody waits for it. [`NotAcquired`]: somebody holds it,
    /// or goes first. It takes no place in the line.
    ///
    /// # Errors
    ///
    /// As [`ReentrantLock::try_lock`](crate::ReentrantLock::try_lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// match client.fair_lock("orders:42")?.try_lock().await? {
    ///     Ok(guard) => guard.unlock().await,
    ///     Err(not_acquired) => Ok(println!("{not_acquired}")),
    /// }
    /// # }
    /// ```
    pub async fn try_lock(&self) -> Result<Result<Guard, NotAcquired>> {
        self.0.try_lock(self.0.owner()?).await
    }

    /// Acquires the lock, waiting in the line for at most `wait`. [`NotAcquired`]: its turn had not
    /// come when the wait ended, as far as the last answer goes. Zero is the same as
    /// [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    ///
    /// As [`ReentrantLock::try_lock_for`](crate::ReentrantLock::try_lock_for).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let wait = std::time::Duration::from_secs(2);
    /// if let Ok(guard) = client.fair_lock("orders:42")?.try_lock_for(wait).await? {
    ///     guard.unlock().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Result<Guard, NotAcquired>> {
        self.0.try_lock_for(self.0.owner()?, wait).await
    }

    /// Acquires the lock with other [options](LockOptions) than `lock()` has. [`NotAcquired`] is
    /// returned only with a limit on the wait.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::InvalidOption`](crate::Error::InvalidOption) before
    /// anything is sent.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// ```no_run
    /// # use redis_reentrant_lock::LockOptions;
    /// # use std::time::Duration;
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let options = LockOptions::new().lease(Duration::from_secs(10)).wait(Duration::from_secs(2));
    /// if let Ok(guard) = client.fair_lock("nightly-report")?.lock_with(options).await? {
    ///     guard.unlock().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock_with(&self, options: LockOptions) -> Result<Result<Guard, NotAcquired>> {
        self.0.lock_with(self.0.owner()?, options).await
    }

    /// Acquires the lock, runs `work` for as long as the lock is held, releases the lock, and
    /// returns what `work` has returned: as
    /// [`ReentrantLock::with`](crate::ReentrantLock::with), which says what becomes of `work` if the
    /// lock is lost.
    ///
    /// # Errors
    ///
    /// As [`ReentrantLock::with`](crate::ReentrantLock::with).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases the lock in the background.
    ///
    /// ```no_run
    /// # async fn write_report(fence: u64) -> std::io::Result<()> { Ok(()) }
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> Result<(), Box<dyn std::error::Error>> {
    /// let lock = client.fair_lock("nightly-report")?;
    /// lock.with(async |guard| write_report(guard.fencing_token()).await).await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        self.0.with(self.0.owner()?, work).await
    }

    /// The same as [`with`](Self::with), with options. [`NotAcquired`] is returned only with a
    /// limit on the wait: `work` was not called.
    ///
    /// # Errors
    ///
    /// As [`with`](Self::with); [`Error::InvalidOption`](crate::Error::InvalidOption) before
    /// anything is sent.
    ///
    /// # Cancel safety
    ///
    /// As [`with`](Self::with).
    pub async fn with_options<T>(
        &self,
        options: LockOptions,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<Result<T, NotAcquired>> {
        self.0.with_options(self.0.owner()?, options, work).await
    }

    /// Whether the lock is taken: somebody holds it, this client included, or it is reserved for
    /// whoever is next, or its name is kept by [`at_least`](LockOptions::at_least). Asks the server;
    /// the answer may be outdated at once.
    ///
    /// # Errors
    ///
    /// As [`ReentrantLock::is_locked`](crate::ReentrantLock::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn is_locked(&self) -> Result<bool> {
        self.0.is_locked().await
    }

    /// How long the lease of the current holder lasts without another renewal. `None`: nobody holds
    /// the lock. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn remaining_lease(&self) -> Result<Option<Duration>> {
        self.0.remaining_lease().await
    }

    /// Who holds the lock. `None`: nobody does. A count of 0: the lock is reserved for it, or kept
    /// ([`Holder::count`]). Asks the server.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn holder(&self) -> Result<Option<Holder>> {
        self.0.holder().await
    }

    /// Takes the lock away from its holder, and passes it on to whoever is next. Returns true if the
    /// lock was taken. Of a lock that is reserved it takes the reservation: that caller comes back
    /// with its ticket. What this may damage is said at
    /// [`ReentrantLock::force_unlock`](crate::ReentrantLock::force_unlock).
    ///
    /// # Errors
    ///
    /// As [`ReentrantLock::force_unlock`](crate::ReentrantLock::force_unlock).
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the request goes on even if the future is dropped.
    pub async fn force_unlock(&self) -> Result<bool> {
        self.0.force_unlock(None).await
    }

    /// Takes the lock away from this holder, as [`holder`](Self::holder) returned it, and from no
    /// other. Returns false if that holder did not have the lock any more.
    ///
    /// # Errors
    ///
    /// As [`ReentrantLock::force_unlock_from`](crate::ReentrantLock::force_unlock_from).
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the request goes on even if the future is dropped.
    pub async fn force_unlock_from(&self, holder: &Holder) -> Result<bool> {
        self.0.force_unlock(Some(holder.hold_id())).await
    }

    /// How many levels the calling owner holds; 0 if it does not hold the lock. Asks no server.
    ///
    /// # Errors
    ///
    /// [`Error::NoOwner`](crate::Error::NoOwner) outside Tokio without a scope;
    /// [`Error::Closed`](crate::Error::Closed) in a forked child.
    pub fn hold_count(&self) -> Result<u32> {
        self.0.hold_count(self.0.owner()?)
    }

    /// Whether the calling owner holds the lock. Asks no server.
    ///
    /// # Errors
    ///
    /// As [`hold_count`](Self::hold_count).
    pub fn is_held(&self) -> Result<bool> {
        Ok(self.hold_count()? > 0)
    }
}
