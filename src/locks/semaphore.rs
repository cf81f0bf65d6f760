//! The semaphore.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::driver::Shared;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::unexpected;
use crate::kinds::conflict::conflict_words;
use crate::kinds::operation;
use crate::kinds::operation::Change;
use crate::kinds::reply::KeyState;
use crate::kinds::share::Share;
use crate::locks::guard::Guard;
use crate::locks::lock::Lock;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::lock::unless_lost;

/// The most permits that a semaphore has.
const MOST_PERMITS: u32 = operation::MOST_PERMITS as u32;
/// The most permits of one acquisition: its scripts look at each of them.
const MOST_AT_ONCE: u32 = 1_000;

/// A semaphore for many processes: at most so many permits are held at once.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> redis_reentrant_lock::Result<()> {
/// # let server = redis_reentrant_lock::InMemoryServer::new();
/// # let client = redis_reentrant_lock::LockClient::builder().in_memory(&server).connect().await?;
/// let exports = client.semaphore("exports", 10)?; // at most ten at once, over all processes
///
/// let permit = exports.acquire().await?; // waits, first come, first served
/// let large = exports.acquire_many(3).await?; // three permits, all or none
/// assert_eq!(exports.available().await?, 6);
/// large.release().await?;
/// permit.release().await?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
///
/// # Guarantees
///
/// * **Never more than the number** of permits are held at once, as long as their holders stop when
///   their permits are lost.
/// * **Permits come back.** A permit has a lease, which is renewed like that of a lock. The permits
///   of a process that has died are free when that ends.
/// * **First come, first served**, between clients and within one, also for many permits: who wants
///   five is not overtaken for ever by those who want one. Who does not take up the permits that are
///   reserved for it within 1.5 s is passed over, and keeps its place.
/// * **All or none.** Nobody holds a part of what it wants while it waits for the rest.
/// * Each acquisition is an owner of its own. A task that acquires again needs another permit, and
///   may wait for itself if there is none.
///
/// # How many there are
///
/// The number that was set with [`set_permits`](Self::set_permits) or
/// [`add_permits`](Self::add_permits), which holds for everybody. As long as nobody has set one, each
/// client keeps to its own number: it gets no permit if as many are taken, by whomever. Give the same
/// number everywhere.
///
/// # What it cannot protect against
///
/// * A holder that goes on after its permit was lost. Use [`Guard::run`], or check the
///   [`fencing_token`](Guard::fencing_token) where the data is: it grows with every grant, but several
///   holders have valid ones at once, so that only one that is older than all that can be valid can be
///   refused.
/// * Lost data of the server frees all permits.
/// * Clients of Redisson: they do not see these permits, unless the profile is
///   [`Redisson`](crate::WireProfile::Redisson).
///
/// # In the profile `Redisson`
///
/// The semaphore is the one that Redisson calls `RPermitExpirableSemaphore`: its clients and those of
/// this crate share the permits, and wake each other. What differs:
///
/// * **There is no order.** Whoever is woken tries, and the fastest gets what is free. Who wants many
///   can starve behind those who want few.
/// * **The number is the server's.** In Redisson nobody gets a permit before the number was set. Here
///   the first acquisition that is granted sets it to its own number, as `trySetPermits` does, and
///   then it holds for everybody and for good.
/// * **Permits come back later.** The clients of Redisson have ends by their own clocks. Each end has
///   5 s beside the lease, and this crate takes back what has run out 5 s after its end: what a
///   process that has died has held is free for clients of this crate 10 s after its lease at the
///   latest, and so is what was kept with `at_least`. Clocks that are further apart than 5 s let too
///   many in.
/// * A time to live that somebody gives the semaphore (`expire`) takes the number away, not the permits
///   that are held.
///
/// More is on [the page on Redisson](crate::docs::redisson).
///
/// # Keys
///
/// The name is the key of a hash with `kind` = `semaphore`, and `permits` once the number was set. The
/// permits are in the sorted set `{name}:timeout`, `<hold id>:<index>` with its end as the server's
/// time in ms. Those who wait are in `redisson_lock_line__{name}` and `redisson_lock_heard__{name}`;
/// the channel is `redisson_sc:{name}`. `set_permits` and `add_permits` write
/// `redisson_latch_op:{name}:<id>`. When nobody holds and nobody waits, only a number that was set is
/// left. In the profile `Redisson` the name is the key of a string, with how many permits are free,
/// which stays.
///
/// [`RequiredAcl::semaphores`](crate::RequiredAcl::semaphores) adds the permissions for these.
/// [`preflight_semaphore`](crate::LockClient::preflight_semaphore) checks a server and them.
#[derive(Clone)]
pub struct Semaphore {
    name: LockName,
    /// How many permits there are for this client, if nobody has set the number.
    own: u32,
    shared: Arc<Shared>,
}

impl Semaphore {
    pub(crate) fn new(name: LockName, permits: u32, shared: &Arc<Shared>) -> Result<Self> {
        shared.check_process().map_err(|error| error.of_lock(name.as_str()))?;
        check_number(permits, MOST_PERMITS)?;
        Ok(Self { name, own: permits, shared: Arc::clone(shared) })
    }

    /// The name of the semaphore.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Acquires a permit, and waits for it as long as it takes.
    ///
    /// # Errors
    ///
    /// * [`Error::Unavailable`] if the server has given no answer for the client's `outage_limit`;
    /// * [`Error::KeyConflict`] if a key is used for something else;
    /// * [`Error::TooManyWaiters`] at that limit;
    /// * what the server refuses: [`Error::Auth`], [`Error::Denied`], [`Error::Tls`],
    ///   [`Error::Unsupported`], [`Error::Refused`];
    /// * [`Error::Closed`] after a shutdown or in a forked child.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: a grant on its way is given back in
    /// the background. The place in the line is lost.
    pub async fn acquire(&self) -> Result<SemaphorePermit> {
        self.acquire_many(1).await
    }

    /// Acquires so many permits, 1 to 1,000, all at once, and waits for them as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`Error::InvalidOption`] before anything is sent if 0 or more
    /// than 1,000 permits are wanted; [`Error::TooManyPermits`] if more are wanted than there are,
    /// also when the number is lowered while this waits.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_many(&self, permits: u32) -> Result<SemaphorePermit> {
        let lock = self.lock_of(permits)?;
        lock.lock(OwnerKey::once()).await.map(|guard| self.permit(guard, permits))
    }

    /// Acquires a permit if one is free and nobody waits for it, without waiting. [`NotAcquired`]:
    /// there is none. A release of this client that is still on its way counts as held.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); `Unavailable` if there is no answer within the command timeout.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Result<SemaphorePermit, NotAcquired>> {
        self.try_acquire_many(1).await
    }

    /// The same for so many permits, 1 to 1,000.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire) and [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire_many(
        &self,
        permits: u32,
    ) -> Result<Result<SemaphorePermit, NotAcquired>> {
        let lock = self.lock_of(permits)?;
        self.permitted(permits, lock.try_lock(OwnerKey::once()).await)
    }

    /// Acquires a permit, and waits at most this long, except as said at
    /// [`Driver::Current`](crate::Driver::Current). [`NotAcquired`]: there was none. Zero is the same
    /// as [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); `Unavailable` if no attempt was answered within the wait.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire_for(
        &self,
        wait: Duration,
    ) -> Result<Result<SemaphorePermit, NotAcquired>> {
        let lock = self.lock_of(1)?;
        self.permitted(1, lock.try_lock_for(OwnerKey::once(), wait).await)
    }

    /// Acquires so many permits, 1 to 1,000, with other [options](LockOptions) than `acquire` has.
    /// [`NotAcquired`] is returned only with a limit on the wait. Where the options speak of the lock
    /// that is held or kept, that is these permits, and no others.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many); [`Error::InvalidOption`] also for the options.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```no_run
    /// # use redis_reentrant_lock::LockOptions;
    /// # use std::time::Duration;
    /// # async fn example(exports: redis_reentrant_lock::Semaphore) -> redis_reentrant_lock::Result<()> {
    /// let options = LockOptions::new().lease(Duration::from_secs(10)).wait(Duration::from_secs(2));
    /// if let Ok(permits) = exports.acquire_with(3, options).await? {
    ///     permits.release().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_with(
        &self,
        permits: u32,
        options: LockOptions,
    ) -> Result<Result<SemaphorePermit, NotAcquired>> {
        let lock = self.lock_of(permits)?;
        self.permitted(permits, lock.lock_with(OwnerKey::once(), options).await)
    }

    /// Acquires a permit, runs `work` for as long as it is held, releases it, and returns what `work`
    /// has returned. If the permit is lost, `work` is dropped, as by [`Guard::run`].
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), before `work` was called. [`Error::Lost`] if the permit was
    /// lost before it was released: `work` may have been done in part or as a whole.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases the permit in the background.
    ///
    /// ```no_run
    /// # async fn export() {}
    /// # async fn example(exports: redis_reentrant_lock::Semaphore) -> redis_reentrant_lock::Result<()> {
    /// exports.with(async |_| export().await).await
    /// # }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&SemaphorePermit) -> T) -> Result<T> {
        work_with(self.acquire().await?, work).await
    }

    /// The same with so many permits, 1 to 1,000, and with options. [`NotAcquired`] is returned only
    /// with a limit on the wait, and then `work` was not called.
    ///
    /// # Errors
    ///
    /// As [`with`](Self::with) and [`acquire_with`](Self::acquire_with).
    ///
    /// # Cancel safety
    ///
    /// As [`with`](Self::with).
    pub async fn with_options<T>(
        &self,
        permits: u32,
        options: LockOptions,
        work: impl AsyncFnOnce(&SemaphorePermit) -> T,
    ) -> Result<Result<T, NotAcquired>> {
        match self.acquire_with(permits, options).await? {
            Ok(permit) => work_with(permit, work).await.map(Ok),
            Err(not_acquired) => Ok(Err(not_acquired)),
        }
    }

    /// How many permits are free: neither held nor reserved for somebody who waits. Asks the server;
    /// the answer may be outdated at once. What has run out counts as free.
    ///
    /// # Errors
    ///
    /// `Unavailable` if no answer comes within the command timeout, `KeyConflict` if the key is used
    /// for something else, and what the server refuses.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn available(&self) -> Result<u32> {
        self.look().await.map(|(number, taken)| number.saturating_sub(taken))
    }

    /// How many permits there are for this client: the number that was set, else its own. Asks the
    /// server.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn permits(&self) -> Result<u32> {
        self.look().await.map(|(number, _)| number)
    }

    /// Sets how many permits there are, 1 to 1,000,000, for everybody and for good. Nobody loses
    /// permits by it: if more are held than the new number, none is granted until enough have come
    /// back. Who waits for more than the new number gets [`Error::TooManyPermits`].
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidOption`] before anything is sent if the number is not allowed;
    /// * [`Error::Unavailable`] if the server has given no answer for the client's `outage_limit`,
    ///   and for 10 s more if a command may have been executed; its cause says whether that is
    ///   unknown;
    /// * [`Error::KeyConflict`] if the key is used for something else;
    /// * what the server refuses, and [`Error::Closed`], as for [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the call goes on even if the future is dropped.
    pub async fn set_permits(&self, permits: u32) -> Result<()> {
        check_number(permits, MOST_PERMITS)?;
        self.operate(Change::SetPermits { permits, own: self.own }).await.map(drop)
    }

    /// Adds so many permits to the number, and returns how many there are then. If nobody has set the
    /// number, it is this client's own that is added to. From then on the number holds for everybody.
    /// Each call adds once, also if its command or the answer to it is lost and sent again.
    ///
    /// # Errors
    ///
    /// As [`set_permits`](Self::set_permits); [`Error::InvalidOption`] also if there would be more
    /// than 1,000,000, and then nothing was changed.
    ///
    /// # Cancel safety
    ///
    /// As [`set_permits`](Self::set_permits).
    pub async fn add_permits(&self, permits: u32) -> Result<u32> {
        check_number(permits, MOST_PERMITS)?;
        self.operate(Change::AddPermits { permits, own: self.own }).await
    }

    /// Takes all permits of one acquisition away, by their [`hold_id`](SemaphorePermit::hold_id).
    /// Returns false if there were none. This is for operators who know that the holder cannot release
    /// them: a live holder is told and loses them, but it may be at work for a moment still, while
    /// somebody else has its permits.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available), but after `Unavailable` the permits may have been taken away
    /// all the same. [`Error::InvalidOption`] before anything is sent if this is no hold id of a
    /// semaphore. [`Error::NotAnnounced`]: the permits are free, but not everybody was told.
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the request goes on even if the future is dropped.
    pub async fn force_release_from(&self, hold_id: &str) -> Result<bool> {
        check_hold_id(self.name.kind().share_in(after_hold(hold_id)), hold_id)?;
        self.lock_of(1)?.force_unlock(Some(hold_id.to_owned())).await
    }

    /// The lock whose holds have so many permits.
    fn lock_of(&self, permits: u32) -> Result<Lock> {
        check_number(permits, MOST_AT_ONCE)?;
        Lock::of(self.name.clone(), Share::permits(permits, self.own), &self.shared)
    }

    fn permit(&self, guard: Guard, permits: u32) -> SemaphorePermit {
        SemaphorePermit { guard, share: Share::permits(permits, self.own) }
    }

    fn permitted(
        &self,
        permits: u32,
        acquired: Result<Result<Guard, NotAcquired>>,
    ) -> Result<Result<SemaphorePermit, NotAcquired>> {
        Ok(acquired?.map(|guard| self.permit(guard, permits)))
    }

    /// How many permits there are for this client, and how many are taken.
    async fn look(&self) -> Result<(u32, u32)> {
        let name = self.name.clone();
        let state = match self.shared.ask(|request| Event::Inspect { name, request }).await {
            Answer::Key(state) => state,
            answer => return Err(self.unexpected(answer)),
        };
        if let Some(found) = state.conflict(self.name.kind()) {
            let (name, found) = (self.name().to_owned(), conflict_words(found, &self.name));
            return Err(Error::KeyConflict { name, found });
        }
        Ok(match state {
            KeyState::Permits { number, taken } => (number.unwrap_or(self.own), taken),
            _ => (self.own, 0),
        })
    }

    async fn operate(&self, change: Change) -> Result<u32> {
        let name = self.name.clone();
        match self.shared.ask(|request| Event::Operate { name, change, request }).await {
            Answer::Operated(number) => Ok(number.and_then(|it| it.try_into().ok()).unwrap_or(0)),
            answer => Err(self.unexpected(answer)),
        }
    }

    fn unexpected(&self, answer: Answer) -> Error {
        unexpected(answer).of_lock(self.name())
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Semaphore");
        shown.field("name", &self.name()).field("permits", &self.own).finish_non_exhaustive()
    }
}

/// Permits that are held. They are released together: by [`release`](Self::release), or when this is
/// dropped. What else it can do is that of a [`Guard`]: where that speaks of the lock, these permits
/// are meant.
#[must_use = "without a variable the permits are released at once, also by `let _ =`: bind them to a name"]
#[clippy::has_significant_drop]
pub struct SemaphorePermit {
    guard: Guard,
    share: Share,
}

impl SemaphorePermit {
    /// How many permits these are.
    pub fn permits(&self) -> u32 {
        self.share.exclusive
    }

    /// The id of these permits on the server, `<client uuid>:<hold id>:<permits>:<number>`: in the
    /// sorted set `{name}:timeout` the members that begin so, one for each permit. The number is that
    /// of the client, as given to [`semaphore`](crate::LockClient::semaphore).
    pub fn hold_id(&self) -> String {
        with_share(self.guard.hold_id(), self.share)
    }

    /// For the blocking one.
    #[cfg(feature = "blocking")]
    pub(crate) fn into_parts(self) -> (Guard, Share) {
        (self.guard, self.share)
    }

    /// Releases the permits and waits until the server has confirmed it.
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`].
    ///
    /// # Cancel safety
    ///
    /// The permits are given up in any case. A future that was never polled drops them; for one that
    /// was polled, the release goes on.
    pub async fn release(self) -> Result<()> {
        self.guard.unlock().await
    }

    /// The same as [`release`](Self::release), by the name that it has for locks.
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`].
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    pub async fn unlock(self) -> Result<()> {
        self.release().await
    }

    /// Ends this without releasing the permits: they stay taken until their lease has run out on the
    /// server, as [`Guard::leave_to_lease`] says.
    pub fn leave_to_lease(self) {
        self.guard.leave_to_lease();
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

async fn work_with<T>(
    permit: SemaphorePermit,
    work: impl AsyncFnOnce(&SemaphorePermit) -> T,
) -> Result<T> {
    let done = permit.run(work(&permit)).await?;
    unless_lost(done, permit.release().await)
}

/// The hold id of so many permits.
pub(crate) fn with_share(mut hold: String, share: Share) -> String {
    Kind::Semaphore.add_share_to(&mut hold, share);
    hold
}

fn check_number(permits: u32, most: u32) -> Result<()> {
    if (1..=most).contains(&permits) {
        return Ok(());
    }
    let (given, allowed) = (permits.to_string(), format!("1 to {most}"));
    Err(Error::InvalidOption { option: "permits", given, allowed })
}

/// What a hold id has behind `<client uuid>:<hold id>`.
fn after_hold(hold_id: &str) -> &str {
    hold_id.match_indices(':').nth(1).map_or("", |(at, _)| &hold_id[at..])
}

fn check_hold_id(share: Option<Share>, hold_id: &str) -> Result<()> {
    let is_allowed = share.is_some_and(|Share { exclusive, shared }| {
        (1..=MOST_AT_ONCE).contains(&exclusive) && (1..=MOST_PERMITS).contains(&shared)
    });
    if is_allowed {
        return Ok(());
    }
    let given = hold_id.chars().take(80).flat_map(char::escape_debug).collect();
    let allowed = "<client uuid>:<hold id>:<permits>:<number>".to_owned();
    Err(Error::InvalidOption { option: "hold id", given, allowed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_id_that_no_client_writes_is_refused() {
        let check = |id: &str| check_hold_id(Kind::Semaphore.share_in(after_hold(id)), id);
        assert!(check("22222222-2222-4333-8444-555555555555:3:5:10").is_ok());
        for id in
            ["", "a:3", "a:3:5", "a:3:0:10", "a:3:1001:10", "a:3:5:0", "a:3:5:10:1", "a:3:x:10"]
        {
            assert!(matches!(check(id), Err(Error::InvalidOption { .. })), "{id}");
        }
    }
}
