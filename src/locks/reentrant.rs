//! The reentrant lock: one owner at a time, which may acquire it any number of times.

use std::time::Duration;

use crate::base::error::Result;
use crate::locks::guard::Guard;
use crate::locks::lock::Holder;
use crate::locks::lock::Lock;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::multi::LockMember;

/// A lock that its owner may take again while holding it.
///
/// The owner is decided when a `lock()` future is first polled. It is the innermost
/// [`Owner::scope`](crate::Owner::scope), otherwise the Tokio task, otherwise, in the root future
/// of `block_on`, the thread. Branches of `join!` and `select!` share their task, and jobs of a
/// work-stealing pool such as rayon share a thread, so they **re-enter each other's locks**: give
/// each its own [`Owner`](crate::Owner), or use a [`Mutex`](crate::Mutex).
///
/// It is cheap to clone and to make: handles of the same client and name refer to the same lock.
#[derive(Clone, Debug)]
pub struct ReentrantLock(Lock);

impl From<ReentrantLock> for LockMember {
    fn from(lock: ReentrantLock) -> Self {
        Self::of_caller(lock.0)
    }
}

impl ReentrantLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self(lock)
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Acquires the lock, waiting for as long as it takes, or adds a level if the calling owner
    /// holds it already. The lease is watched: it is renewed until the guard is released.
    ///
    /// # Errors
    ///
    /// * [`Error::Unavailable`] if the server has given no answer for the client's `outage_limit`;
    /// * [`Error::NoOwner`] outside Tokio without a scope;
    /// * [`Error::KeyConflict`] if the key is used for something else;
    /// * [`Error::GuardOfLostHold`], at once, while guards of a lost hold of the same owner still
    ///   exist;
    /// * [`Error::TooManyWaiters`] and [`Error::HoldCountLimit`] at these limits;
    /// * what the server refuses: [`Error::Auth`], [`Error::Denied`], [`Error::Tls`],
    ///   [`Error::Unsupported`], [`Error::Refused`];
    /// * [`Error::Closed`] after a shutdown or in a forked child.
    ///
    /// # After a loss
    ///
    /// When a hold was lost, drop its guard before you lock again. `guard = lock.lock().await?`
    /// does not do that: the old guard lives until the new one exists, so every such call returns
    /// [`Error::GuardOfLostHold`], in a loop thousands of times a second.
    ///
    /// ```no_run
    /// # async fn example(lock: redis_reentrant_lock::ReentrantLock) -> redis_reentrant_lock::Result<()> {
    /// let mut guard = lock.lock().await?;
    /// loop {
    ///     # async fn step() {}
    ///     match guard.run(step()).await {
    ///         Ok(()) => {}
    ///         Err(error) if error.is_lost() => {
    ///             drop(guard);
    ///             guard = lock.lock().await?;
    ///         }
    ///         Err(error) => return Err(error),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: a grant on its way is given back in
    /// the background. The place in the queue is lost.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let lock = client.reentrant_lock("orders:42")?;
    /// let guard = lock.lock().await?;
    /// guard.unlock().await
    /// # }
    /// ```
    ///
    /// [`Error::Unavailable`]: crate::Error::Unavailable
    /// [`Error::NoOwner`]: crate::Error::NoOwner
    /// [`Error::KeyConflict`]: crate::Error::KeyConflict
    /// [`Error::GuardOfLostHold`]: crate::Error::GuardOfLostHold
    /// [`Error::TooManyWaiters`]: crate::Error::TooManyWaiters
    /// [`Error::HoldCountLimit`]: crate::Error::HoldCountLimit
    /// [`Error::Auth`]: crate::Error::Auth
    /// [`Error::Denied`]: crate::Error::Denied
    /// [`Error::Tls`]: crate::Error::Tls
    /// [`Error::Unsupported`]: crate::Error::Unsupported
    /// [`Error::Refused`]: crate::Error::Refused
    /// [`Error::Closed`]: crate::Error::Closed
    pub async fn lock(&self) -> Result<Guard> {
        self.0.lock(self.0.owner()?).await
    }

    /// Acquires the lock if it is free, without waiting for a holder. [`NotAcquired`]: somebody
    /// holds it. A server that answers "not now" is asked again, within the command timeout. A
    /// release of this client that is still on its way counts as held: so directly after
    /// `drop(guard)` this is usually `NotAcquired`. Call `unlock().await` first, or use
    /// [`try_lock_for`](Self::try_lock_for). During an outage the call returns `Unavailable`
    /// instead, unless another hold of this client is still valid.
    ///
    /// Take the guard out with `let Ok(guard) = … else { … }` or `match`. The compiler warns if the
    /// inner `Result` is not used at all; [`NotAcquired`] says which mistakes it cannot see.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); `Unavailable` if there is no answer within the command timeout, and
    /// at once if the last attempt to connect has shown that nobody listens at the server's
    /// address.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// match client.reentrant_lock("orders:42")?.try_lock().await? {
    ///     Ok(guard) => guard.unlock().await,
    ///     Err(not_acquired) => Ok(println!("{not_acquired}")),
    /// }
    /// # }
    /// ```
    pub async fn try_lock(&self) -> Result<Result<Guard, NotAcquired>> {
        self.0.try_lock(self.0.owner()?).await
    }

    /// Acquires the lock, waiting at most `wait`, except as said at
    /// [`Driver::Current`](crate::Driver::Current). [`NotAcquired`]: the lock was still held when
    /// the wait ended, as far as the last answer goes. Do not start the work. Any length is
    /// allowed. Zero is the same as [`try_lock`](Self::try_lock). A wait shorter than a
    /// round trip to the server mostly ends in `Unavailable`.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); `Unavailable` if no attempt was answered within the wait.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let wait = std::time::Duration::from_secs(2);
    /// if let Ok(guard) = client.reentrant_lock("orders:42")?.try_lock_for(wait).await? {
    ///     guard.unlock().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Result<Guard, NotAcquired>> {
        self.0.try_lock_for(self.0.owner()?, wait).await
    }

    /// Acquires the lock with other [options](LockOptions) than `lock()` has. [`NotAcquired`] is
    /// returned only with a limit on the wait: the last answer within it was that the lock is
    /// taken; then the work must not start.
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
    /// if let Ok(guard) = client.reentrant_lock("nightly-report")?.lock_with(options).await? {
    ///     guard.unlock().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock_with(&self, options: LockOptions) -> Result<Result<Guard, NotAcquired>> {
        self.0.lock_with(self.0.owner()?, options).await
    }

    /// Acquires the lock, runs `work` for as long as the lock is held, releases the lock, and
    /// returns what `work` has returned. `work` gets the guard by reference, for
    /// [`fencing_token`](Guard::fencing_token) or [`ensure`](Guard::ensure).
    ///
    /// If the lock is lost, `work` is dropped, as by [`Guard::run`]. If `work` panics, the lock is
    /// released in the background. The release is waited for, up to the outage limit (30 s by
    /// default): allow for that at a shutdown. If it fails, it goes on in the background, is
    /// counted and logged, and the outcome of `work` is returned all the same.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), before `work` was called. [`Error::Lost`](crate::Error::Lost) if
    /// the lock was lost before it was released: `work` may have been done in part or as a whole.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases the lock in the background.
    ///
    /// ```no_run
    /// # async fn write_report(fence: u64) -> std::io::Result<()> { Ok(()) }
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> Result<(), Box<dyn std::error::Error>> {
    /// let lock = client.reentrant_lock("nightly-report")?;
    /// lock.with(async |guard| write_report(guard.fencing_token()).await).await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        self.0.with(self.0.owner()?, work).await
    }

    /// The same as [`with`](Self::with), with options. [`NotAcquired`] is returned only with a
    /// limit on the wait: the lock is taken, and `work` was not called.
    ///
    /// # Errors
    ///
    /// As [`with`](Self::with); [`Error::InvalidOption`](crate::Error::InvalidOption) before
    /// anything is sent.
    ///
    /// # Cancel safety
    ///
    /// As [`with`](Self::with).
    ///
    /// ```no_run
    /// # use redis_reentrant_lock::LockOptions;
    /// # use std::time::Duration;
    /// # async fn write_report() {}
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let lock = client.reentrant_lock("nightly-report")?;
    /// let now_or_never = LockOptions::new().wait(Duration::ZERO);
    /// if let Err(not_acquired) = lock.with_options(now_or_never, async |_| write_report().await).await? {
    ///     println!("somebody else writes the report: {not_acquired}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the work itself can fail, there are three results, one in the other: that of the lock,
    /// whether it was acquired, and that of the work.
    ///
    /// ```no_run
    /// # use redis_reentrant_lock::LockOptions;
    /// # use std::time::Duration;
    /// # async fn write_report() -> std::io::Result<u64> { Ok(7) }
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let lock = client.reentrant_lock("nightly-report")?;
    /// let now_or_never = LockOptions::new().wait(Duration::ZERO);
    /// match lock.with_options(now_or_never, async |_| write_report().await).await {
    ///     Ok(Ok(Ok(bytes))) => println!("written: {bytes} bytes"),
    ///     Ok(Ok(Err(error))) => println!("the work failed: {error}"),
    ///     Ok(Err(not_acquired)) => println!("nothing was done: {not_acquired}"),
    ///     Err(error) if error.is_lost() => println!("the work may be half done: {error}"),
    ///     Err(error) => println!("the lock failed: {error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Where each of the three errors can become that of the caller,
    /// `lock.with_options(…).await???` returns what the work has returned.
    pub async fn with_options<T>(
        &self,
        options: LockOptions,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<Result<T, NotAcquired>> {
        self.0.with_options(self.0.owner()?, options, work).await
    }

    /// Whether the lock is taken: somebody holds it, this client included, or its name is kept by
    /// [`at_least`](LockOptions::at_least). Asks the server; the answer may be
    /// outdated at once.
    ///
    /// # Errors
    ///
    /// `Unavailable` if no answer comes, `KeyConflict` if the key is used for something else,
    /// `Auth`, `Denied`, `Tls`, `Unsupported` or `Refused` if the server refuses to answer,
    /// `Closed` after a shutdown or in a forked child.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// ```no_run
    /// # async fn example(lock: redis_reentrant_lock::ReentrantLock) -> redis_reentrant_lock::Result<()> {
    /// println!("{} is {}", lock.name(), if lock.is_locked().await? { "taken" } else { "free" });
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// ```no_run
    /// # async fn example(lock: redis_reentrant_lock::ReentrantLock) -> redis_reentrant_lock::Result<()> {
    /// println!("free in {:?} at the latest", lock.remaining_lease().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn remaining_lease(&self) -> Result<Option<Duration>> {
        self.0.remaining_lease().await
    }

    /// Who holds the lock. `None`: nobody does. A count of 0: nobody does any more, but the name is
    /// kept ([`Holder::count`]). Asks the server.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// ```no_run
    /// # async fn example(lock: redis_reentrant_lock::ReentrantLock) -> redis_reentrant_lock::Result<()> {
    /// if let Some(holder) = lock.holder().await? {
    ///     println!("held {} times by client {}", holder.count, holder.client);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn holder(&self) -> Result<Option<Holder>> {
        self.0.holder().await
    }

    /// Takes the lock away from its holder, whichever client that is at the moment when the server
    /// executes this. Returns true if the lock was taken. To take it from one particular holder
    /// only, use [`force_unlock_from`](Self::force_unlock_from).
    ///
    /// A name that [`at_least`](LockOptions::at_least) keeps is freed, too: its job may then run
    /// again.
    ///
    /// This is for operators who know that the holder cannot release the lock. A live holder of
    /// this crate is told and loses its hold. A holder of another library is not told, and
    /// continues to believe in it.
    ///
    /// The next holder may be granted before the old one has learned of it, so two may be at work
    /// for a moment. Usually that is a round trip, and at most it lasts until the old holder's next
    /// renewal is answered; with a fixed lease, or without an answer, until that lease ends. If
    /// this would do damage, check [fencing tokens](crate#the-fencing-token-at-work).
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked), but after `Unavailable` the lock may have been taken away
    /// all the same. [`NotAnnounced`](crate::Error::NotAnnounced): the lock is free, but its
    /// waiters or its holder were not told. [`KeyConflict`](crate::Error::KeyConflict) also if
    /// another program has put data beside the hold, because then nobody knows which field is the
    /// holder's: remove that data first (`HDEL`), or use
    /// [`force_unlock_from`](Self::force_unlock_from) with a holder that was looked up before.
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the request goes on even if the future is dropped.
    ///
    /// ```no_run
    /// # async fn example(lock: redis_reentrant_lock::ReentrantLock) -> redis_reentrant_lock::Result<()> {
    /// if lock.force_unlock().await? {
    ///     println!("{} was taken away from its holder", lock.name());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn force_unlock(&self) -> Result<bool> {
        self.0.force_unlock(None).await
    }

    /// Takes the lock away from this holder, as [`holder`](Self::holder) returned it, and from no
    /// other. Returns false if that holder did not have the lock any more. This is for operators
    /// who have looked at the holder and do not want to take the lock from a later holder. A thread
    /// of Redisson has the same id in all its holds: if it has released the lock and taken it again
    /// since, that later hold is taken away.
    ///
    /// # Errors
    ///
    /// As [`force_unlock`](Self::force_unlock), but data of another program beside the hold is no
    /// hindrance: [`KeyStillInUse`](crate::Error::KeyStillInUse) then says that the lock is free
    /// and that the data is left under its key.
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the request goes on even if the future is dropped.
    ///
    /// ```no_run
    /// # async fn example(lock: redis_reentrant_lock::ReentrantLock) -> redis_reentrant_lock::Result<()> {
    /// if let Some(holder) = lock.holder().await? {
    ///     println!("held by {}; taken away: {}", holder.hold_id(), lock.force_unlock_from(&holder).await?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
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
    /// [`Error::NoOwner`](crate::Error::NoOwner) outside Tokio without a scope;
    /// [`Error::Closed`](crate::Error::Closed) in a forked child.
    pub fn is_held(&self) -> Result<bool> {
        Ok(self.hold_count()? > 0)
    }
}
