//! What reentrant locks and mutexes share: everything but the owner.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::kind::Kind;
use crate::base::lease::Lease;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::base::stats::add;
use crate::base::stats::add_time;
use crate::driver::Shared;
use crate::driver::trace;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Wait;
use crate::engine::event::unexpected;
use crate::kinds::reply::KeyState;
use crate::kinds::share::Share;
use crate::locks::guard::Guard;

/// The longest pause before a new start, in milliseconds.
const LONGEST_PAUSE: u64 = 100;

/// Options for acquiring a lock in another way than `lock()` does. Each setter returns the changed
/// options.
///
/// ```
/// use redis_reentrant_lock::LockOptions;
/// use std::time::Duration;
///
/// // Give up after 2 s. Once granted, it is not renewed: free after 10 s at the latest.
/// let options = LockOptions::new().wait(Duration::from_secs(2)).lease(Duration::from_secs(10));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a setter returns the changed options; it does not change those that it was called on"]
pub struct LockOptions {
    lease: Option<Duration>,
    wait: Option<Duration>,
    max_hold: Option<Duration>,
    at_least: Option<Duration>,
}

impl LockOptions {
    /// The same as `lock()`: a watched lease, no limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// A fixed lease, 10 ms to 24 h. It is not renewed, and the server frees the lock when it ends
    /// (or at the end of [`at_least`](Self::at_least), if that is later).
    /// Without this option, the lease is watched: renewed for as long as the guard and its process
    /// live.
    ///
    /// Dropping the guard frees the lock earlier. To keep the name taken after that, use
    /// [`at_least`](Self::at_least) or [`Guard::leave_to_lease`](crate::Guard::leave_to_lease).
    ///
    /// When levels nest, the hold has the longest of their leases, and is renewed as long as one of
    /// them is watched. So a fixed lease inside a watched level ends nothing, and a watched level
    /// inside a fixed one does not shorten the time that it set. For a limit that always applies,
    /// use [`max_hold`](Self::max_hold); a lease longer than that is refused
    /// ([`Error::InvalidOption`]). A lease shorter than the command timeout is allowed: an answer
    /// that comes after its end brings no grant.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// The limit on the wait.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.wait
    }

    /// Waits at most this long, except as said at [`Driver::Current`](crate::Driver::Current). With
    /// zero, it does not wait for a holder, and waits up to the command timeout for an answer. A
    /// wait shorter than a round trip to the server ends before any answer.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Holds at most this long, 10 ms to 24 h, counted from the first grant of the hold. Then the
    /// hold is lost, with the reason [`MaxHold`](crate::LossReason::MaxHold).
    ///
    /// The guard stops a little earlier, so that the key is gone from the server when the time of
    /// `max_hold` is over, unless [`at_least`](Self::at_least) keeps it: by a tenth of what was
    /// left at the last renewal, or by ten round trips if that is more, but by no more than the
    /// command timeout or half of `max_hold`; and for the clocks by 1 % of what was left then, and
    /// 2 ms.
    ///
    /// If levels nest, the nearest end counts for the whole hold, also after the level that asked
    /// for it was released. A nested level with a `max_hold` that is shorter than the hold has
    /// lasted is refused ([`Error::InvalidOption`]), and nothing else changes.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Keeps the name taken for at least this long from the grant, 10 ms to 24 h, whatever ends
    /// earlier: `unlock`, a dropped guard, a shutdown of the client, the end of its process, a lost
    /// hold. Zero is no limit. ShedLock calls this `lockAtLeastFor`: instances of a service that
    /// are a little apart do not run a fast job twice.
    ///
    /// It changes nothing for the guard: that is valid as long as its lease says, and a lease or a
    /// [`max_hold`](Self::max_hold) that ends earlier ends the hold, not the time that the name is
    /// taken. After a release within this time, nobody can lock the name for the rest of it, this
    /// owner and this client neither; [`remaining_lease`](crate::Mutex::remaining_lease) says how
    /// long that is. [`holder`](crate::Mutex::holder) then has a count of 0 and a hold id that ends
    /// with `:kept`, and [`force_unlock`](crate::Mutex::force_unlock) frees the name. Waiters are
    /// told of the release, so that they learn how long the rest is, and try again at its end.
    ///
    /// The time is counted by the server's clock. A grant that nobody took, because the future of
    /// `lock_with` was dropped, is taken back, and then the name is free at once. But a guard that
    /// was returned has taken the name, also if it is dropped at once. Lost data of the server, a
    /// deleted key and a force-unlock end the time, too.
    ///
    /// When levels nest, each level's time counts from its own grant, and the name stays taken up
    /// to the last of these ends, also after the level that asked for it was released.
    ///
    /// ```
    /// # #[cfg(feature = "in-memory")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::LockClient;
    /// use redis_reentrant_lock::LockOptions;
    /// use std::time::Duration;
    ///
    /// # let server = redis_reentrant_lock::InMemoryServer::new();
    /// # let client = LockClient::builder().in_memory(&server).connect().await?;
    /// let job = client.mutex("nightly-report")?;
    /// let once_a_minute = LockOptions::new().at_least(Duration::from_secs(50)).wait(Duration::ZERO);
    ///
    /// let guard = job.lock_with(once_a_minute).await?.expect("free");
    /// guard.unlock().await?; // the job was fast
    /// assert!(job.lock_with(once_a_minute).await?.is_err(), "no second run");
    /// tokio::time::sleep(Duration::from_secs(51)).await;
    /// assert!(job.lock_with(once_a_minute).await?.is_ok());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "in-memory"))]
    /// # fn main() {}
    /// ```
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.at_least = Some(at_least);
        self
    }

    /// Checks the options. Refuses values outside their limits, and a lease that `max_hold` would
    /// always cut short.
    fn check(&self, watched: Lease) -> Result<Terms> {
        let lease = self.lease.map(|lease| LeaseMs::checked("lease", lease)).transpose()?;
        self.max_hold.map(|limit| LeaseMs::checked("max_hold", limit)).transpose()?;
        let at_least = self.at_least.filter(|time| !time.is_zero());
        let at_least = at_least.map(|time| LeaseMs::checked("at_least", time)).transpose()?;
        match (self.lease, self.max_hold) {
            (Some(lease), Some(max_hold)) if lease > max_hold => Err(Error::InvalidOption {
                option: "lease",
                given: format!("{lease:?}"),
                allowed: format!("no longer than max_hold, {max_hold:?}"),
            }),
            _ => Ok(Terms {
                lease: lease.map_or(watched, Lease::Fixed),
                max_hold: self.max_hold,
                at_least,
                upgrades: None,
            }),
        }
    }
}

/// The answer that the lock is taken: somebody else holds it, or its name is kept by
/// [`at_least`](LockOptions::at_least). It is not a failure: nothing went wrong, and the
/// work must not start.
///
/// It is the inner half of a `Result<Result<Guard, NotAcquired>>`. So the compiler warns if the
/// answer is not looked at:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # async fn example(lock: redis_reentrant_lock::Mutex) -> redis_reentrant_lock::Result<()> {
/// lock.try_lock().await?; // refused: unused `Result` that must be used
/// # Ok(())
/// # }
/// ```
///
/// `let Ok(guard) = lock.try_lock().await? else { … }` takes the guard out, and so does `match`. In
/// a function whose error type can be made from both, `lock.try_lock().await??` does.
///
/// The compiler cannot see a guard that is dropped at once. These compile without a warning, and
/// the work after them runs without the lock: `if lock.try_lock().await?.is_ok() { work() }`,
/// `lock.try_lock().await?.ok();`, `let Ok(_) = lock.try_lock().await? else { … };` and `let _ =
/// lock.lock().await?;`. Bind the guard to a variable with a name, or use
/// [`with`](crate::Mutex::with), where there is no guard to lose.
/// `let _guard = lock.try_lock().await?;` compiles as well, but is no guard: `_guard` may be `Err`.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> redis_reentrant_lock::Result<()> {
/// # let server = redis_reentrant_lock::InMemoryServer::new();
/// # let client = redis_reentrant_lock::LockClient::builder().in_memory(&server).connect().await?;
/// # let other = redis_reentrant_lock::LockClient::builder().in_memory(&server).connect().await?;
/// let guard = client.mutex("orders:42")?.lock().await?;
/// match other.mutex("orders:42")?.try_lock().await? {
///     Ok(_guard) => unreachable!("two holders"),
///     Err(answer) => assert_eq!(answer.to_string(), "lock \"orders:42\" was not acquired: it is taken"),
/// }
/// # guard.unlock().await
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAcquired(LockName);

impl NotAcquired {
    /// The name of the lock that was not acquired.
    pub fn lock_name(&self) -> &str {
        self.0.as_str()
    }

    /// The error for a caller whose wait had no limit, which must not panic in a user's service.
    pub(crate) fn without_limit(self, waited: Duration) -> Error {
        Error::Unavailable {
            name: Some(self.lock_name().to_owned()),
            waited,
            cause: "waiting without a limit ended without a grant".to_owned(),
        }
    }
}

impl fmt::Display for NotAcquired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.as_str();
        match self.0.kind() {
            kind if kind.has_permits() => {
                write!(f, "semaphore \"{name}\": too few permits are free")
            }
            _ => write!(f, "lock \"{name}\" was not acquired: it is taken"),
        }
    }
}

impl std::error::Error for NotAcquired {}

/// For how long a level is held, and for how long its name is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<LeaseMs>,
    /// The hold beside which its owner wants this one.
    upgrades: Option<NonZeroU64>,
}

impl Terms {
    /// The same length of the lease, renewed, without a time for which the name is taken.
    pub(crate) fn renewed(self) -> Self {
        Self { lease: Lease::Watched(self.lease.length()), at_least: None, ..self }
    }

    /// The same, but for so long at most. `None`: that is too short to begin.
    pub(crate) fn ending_within(self, left: Duration) -> Option<Self> {
        LeaseMs::checked("max_hold", left).ok()?;
        Some(Self { max_hold: Some(left), ..self })
    }
}

/// Who holds a lock, as its key says. The holder may have changed by the time you read it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The holding client's id.
    pub client: String,
    /// Which of that client's holds it is, or was: the rest of the field. For a client of Redisson
    /// this is a thread id.
    pub hold: String,
    /// How many levels the hold has. 0: nobody holds the lock. It is reserved for this hold, the
    /// first in line, for up to 1.5 s, or it stays taken for the rest of
    /// [`at_least`](LockOptions::at_least).
    pub count: u32,
    /// Whether it is a hold of the client that you asked.
    pub is_this_client: bool,
}

impl Holder {
    /// The id of the hold on the server, `<client uuid>:<hold id>`, the same as
    /// [`Guard::hold_id`](crate::Guard::hold_id).
    pub fn hold_id(&self) -> String {
        self.to_string()
    }
}

/// The id of the hold on the server: [`hold_id`](Holder::hold_id).
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.hold)
    }
}

/// A name, and the client through which it is locked.
#[derive(Clone)]
pub(crate) struct Lock {
    name: LockName,
    /// What one acquisition adds to what its owner has.
    share: Share,
    shared: Arc<Shared>,
}

impl Lock {
    pub(crate) fn new(name: &str, shared: &Arc<Shared>) -> Result<Self> {
        Self::of(LockName::new(name)?, Share::ONE, shared)
    }

    /// A lock of any kind; `share`: what one acquisition adds to what its owner has.
    pub(crate) fn of(name: LockName, share: Share, shared: &Arc<Shared>) -> Result<Self> {
        let lock = Self { name, share, shared: Arc::clone(shared) };
        lock.check_process()?;
        Ok(lock)
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_str()
    }

    pub(crate) fn lock_name(&self) -> &LockName {
        &self.name
    }

    /// The owner of the running code. If there is none and the client is closed in this process,
    /// the error is that it is closed, because an owner would not help.
    pub(crate) fn owner(&self) -> Result<OwnerKey> {
        OwnerKey::current().map_err(|no_owner| self.check_process().err().unwrap_or(no_owner))
    }

    pub(crate) async fn lock(&self, owner: OwnerKey) -> Result<Guard> {
        self.acquire_or_wait(owner, self.watched()).await
    }

    pub(crate) async fn try_lock(&self, owner: OwnerKey) -> Result<Result<Guard, NotAcquired>> {
        self.acquire(owner, self.watched(), Wait::Once).await
    }

    pub(crate) async fn try_lock_for(
        &self,
        owner: OwnerKey,
        wait: Duration,
    ) -> Result<Result<Guard, NotAcquired>> {
        self.acquire(owner, self.watched(), Wait::For(wait)).await
    }

    /// Checks options without sending anything.
    pub(crate) fn terms(&self, options: LockOptions) -> Result<Terms> {
        let terms = options.check(self.watched().lease)?;
        self.fits_redisson(&terms)?;
        Ok(terms)
    }

    /// An acquisition on these terms. Without a limit on the wait it ends with a grant or an error.
    pub(crate) async fn acquire_on(
        &self,
        owner: OwnerKey,
        terms: Terms,
        wait: Wait,
    ) -> Result<Result<Guard, NotAcquired>> {
        match wait {
            Wait::Forever => self.acquire_or_wait(owner, terms).await.map(Ok),
            wait => self.acquire(owner, terms, wait).await,
        }
    }

    /// The answer that somebody else has it.
    pub(crate) fn not_acquired(&self) -> NotAcquired {
        NotAcquired(self.name.clone())
    }

    /// The client.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What one acquisition adds to what its owner has.
    pub(crate) fn share(&self) -> Share {
        self.share
    }

    /// One attempt, to hold the lock while others watch it.
    pub(crate) async fn try_lead(
        &self,
        options: LockOptions,
    ) -> Result<Result<Guard, NotAcquired>> {
        let terms = options.check(self.watched().lease)?;
        self.acquire(OwnerKey::once(), terms, Wait::Lead).await
    }

    /// One attempt to have an exclusive share beside the shared one of this guard's hold.
    pub(crate) async fn try_upgrade(read: &Guard) -> Result<Result<Guard, NotAcquired>> {
        if read.loss().is_some() {
            return Err(read.why_lost());
        }
        let (cell, shared) = read.hold();
        let lock = Self { name: cell.name.clone(), share: Share::ONE, shared: Arc::clone(shared) };
        let terms = Terms { upgrades: NonZeroU64::new(cell.id), ..lock.watched() };
        // The engine takes the owner of that hold.
        let asked = lock.acquire(OwnerKey::once(), terms, Wait::Once).await;
        asked.map_err(|error| read.explain(error))
    }

    /// Waits until the present holder is gone, without acquiring the lock.
    pub(crate) async fn watch(&self) -> Result<()> {
        let name = self.name.clone();
        match self.shared.ask_cancellable(|request| Event::Watch { name, request }).await {
            Answer::Done => Ok(()),
            answer => Err(self.unexpected(answer)),
        }
    }

    pub(crate) async fn lock_with(
        &self,
        owner: OwnerKey,
        options: LockOptions,
    ) -> Result<Result<Guard, NotAcquired>> {
        let terms = options.check(self.watched().lease)?;
        match options.wait {
            Some(wait) => self.acquire(owner, terms, Wait::For(wait)).await,
            None => self.acquire_or_wait(owner, terms).await.map(Ok),
        }
    }

    /// Runs `work` while the lock is held, and then releases it.
    pub(crate) async fn with<T>(
        &self,
        owner: OwnerKey,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T> {
        work_under(self.lock(owner).await?, work).await
    }

    /// The same with options. If the lock was not acquired, `work` was not called.
    pub(crate) async fn with_options<T>(
        &self,
        owner: OwnerKey,
        options: LockOptions,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<Result<T, NotAcquired>> {
        match self.lock_with(owner, options).await? {
            Ok(guard) => work_under(guard, work).await.map(Ok),
            Err(not_acquired) => Ok(Err(not_acquired)),
        }
    }

    async fn acquire_or_wait(&self, owner: OwnerKey, terms: Terms) -> Result<Guard> {
        let since = self.shared.now();
        let granted = self.acquire(owner, terms, Wait::Forever).await?;
        granted.map_err(|refused| refused.without_limit(self.shared.now().since(since)))
    }

    /// The terms of `lock()`.
    fn watched(&self) -> Terms {
        let lease = Lease::Watched(self.shared.config().lease);
        Terms { lease, max_hold: None, at_least: None, upgrades: None }
    }

    async fn acquire(
        &self,
        owner: OwnerKey,
        terms: Terms,
        wait: Wait,
    ) -> Result<Result<Guard, NotAcquired>> {
        self.fits_redisson(&terms)?;
        let span = trace::acquire_span(&self.name, &owner);
        let since = self.shared.now();
        let result = self.ask(since, owner, terms, wait).instrument(span.clone()).await;
        let counters = self.shared.counters();
        match &result {
            Ok(Ok(_)) => add_time(&counters.wait_micros, self.shared.now().since(since)),
            Ok(Err(_)) => {}
            Err(_) => add(&counters.failed_acquisitions, 1),
        }
        span.record(
            "outcome",
            match &result {
                Ok(Ok(_)) => "granted",
                Ok(Err(_)) => "not granted",
                Err(_) => "failed",
            },
        );
        result
    }

    /// Redisson's clients shorten the leases of all readers to their own watchdog time.
    fn fits_redisson(&self, terms: &Terms) -> Result<()> {
        let (config, kind) = (self.shared.config(), self.name.kind());
        let most = config.redisson_watchdog;
        if config.profile.has_lines() || kind != Kind::ReadWrite || self.share.shared == 0 {
            return Ok(());
        }
        let options = [("lease", Some(terms.lease.length())), ("at_least", terms.at_least)];
        match options.into_iter().find(|(_, time)| time.is_some_and(|time| time > most)) {
            Some((option, time)) => Err(Error::InvalidOption {
                option,
                given: format!("{:?}", time.map(LeaseMs::duration).unwrap_or_default()),
                allowed: format!(
                    "no longer than redisson_watchdog, {:?}, to read in the profile redisson",
                    most.duration()
                ),
            }),
            None => Ok(()),
        }
    }

    async fn ask(
        &self,
        since: Moment,
        owner: OwnerKey,
        terms: Terms,
        wait: Wait,
    ) -> Result<Result<Guard, NotAcquired>> {
        let Terms { lease, max_hold, at_least, upgrades } = terms;
        let mut left = wait;
        loop {
            let name = self.name.clone();
            let mut asked = self.shared.ask_cancellable(|request| {
                Event::Acquire(Acquire {
                    request,
                    name,
                    owner,
                    share: self.share,
                    lease,
                    wait: left,
                    max_hold,
                    at_least,
                    upgrades,
                })
            });
            match asked.or_withdrawn().await {
                Some(Answer::Granted(cell)) => {
                    return Ok(Ok(Guard::new(cell, Arc::clone(&self.shared), asked.request())));
                }
                Some(Answer::NotGranted) => return Ok(Err(NotAcquired(self.name.clone()))),
                Some(answer) => return Err(self.unexpected(answer)),
                // The lock was granted, but this task did not run for so long that the grant was
                // withdrawn: it waits on.
                None => left = rest_of(wait, self.shared.now().since(since)),
            }
        }
    }

    pub(crate) async fn is_locked(&self) -> Result<bool> {
        Ok(self.inspect().await?.is_some())
    }

    pub(crate) async fn remaining_lease(&self) -> Result<Option<Duration>> {
        Ok(self.inspect().await?.map(|(_, left)| left))
    }

    pub(crate) async fn holder(&self) -> Result<Option<Holder>> {
        Ok(self.inspect().await?.map(|(holder, _)| holder))
    }

    pub(crate) async fn force_unlock(&self, from: Option<String>) -> Result<bool> {
        let name = self.name.clone();
        match self.shared.ask(|request| Event::ForceUnlock { name, from, request }).await {
            Answer::Forced(forced) => Ok(forced),
            answer => Err(self.unexpected(answer)),
        }
    }

    /// The holder, according to the key, and how long its lease still lasts.
    async fn inspect(&self) -> Result<Option<(Holder, Duration)>> {
        let name = self.name.clone();
        match self.shared.ask(|request| Event::Inspect { name, request }).await {
            Answer::Key(state) => self.read(state),
            answer => Err(self.unexpected(answer)),
        }
    }

    /// Returns an error in a child of the client's process.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.shared.check_process().map_err(|error| error.of_lock(self.name()))
    }

    fn unexpected(&self, answer: Answer) -> Error {
        unexpected(answer).of_lock(self.name())
    }

    fn read(&self, state: KeyState) -> Result<Option<(Holder, Duration)>> {
        if let Some(found) = state.conflict(self.name.kind()) {
            return Err(Error::KeyConflict {
                name: self.name().to_owned(),
                found: found.to_owned(),
            });
        }
        let KeyState::Hash { pttl, field, count, .. } = state else { return Ok(None) };
        let (client, hold) = field.split_once(':').unwrap_or((&field, ""));
        let holder = Holder {
            client: client.to_owned(),
            hold: hold.to_owned(),
            count: count.parse().unwrap_or(0),
            is_this_client: client == self.shared.config().client_id,
        };
        Ok(Some((holder, Duration::from_millis(pttl.unsigned_abs()))))
    }

    /// The hold count of this owner, as known in this process; 0 if it does not hold the lock.
    pub(crate) fn hold_count(&self, owner: OwnerKey) -> Result<u32> {
        // In a forked child a shard of the directory may be locked, because the driver held it at
        // the fork.
        self.check_process()?;
        let cell = self
            .shared
            .directory()
            .get(&(self.name.clone(), owner))
            .map(|entry| Arc::clone(&entry));
        Ok(cell.filter(|cell| cell.is_held(self.shared.now())).map_or(0, |cell| cell.count()))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", &self.name).field("client", &self.shared).finish()
    }
}

async fn work_under<T>(guard: Guard, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
    let done = guard.run(work(&guard)).await?;
    unless_lost(done, guard.unlock().await)
}

/// The result of work under a lock, unless the lock was lost before the release. If the release
/// fails in another way, it goes on in the background, like that of a dropped guard.
pub(crate) fn unless_lost<T>(done: T, released: Result<()>) -> Result<T> {
    match released {
        Err(error) if error.is_lost() => Err(error),
        Ok(()) | Err(_) => Ok(done),
    }
}

/// For how long a lock of several parts lets others go first, before it starts anew.
pub(crate) fn random_pause() -> Duration {
    Duration::from_millis(1 + uuid::Uuid::new_v4().as_u64_pair().0 % LONGEST_PAUSE)
}

fn rest_of(wait: Wait, waited: Duration) -> Wait {
    match wait {
        Wait::For(limit) => Wait::For(limit.saturating_sub(waited)),
        Wait::Within(limit) => Wait::Within(limit.saturating_sub(waited)),
        Wait::Forever | Wait::Once | Wait::Lead => wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pair of options: refused if one would always make the other meaningless. A short wait,
    /// and a lease shorter than the command timeout, only end an attempt earlier.
    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let (short, long) = (Duration::from_millis(10), Duration::from_secs(20));
        let options = LockOptions::new;
        let table = [
            (options(), None),
            (options().lease(long).max_hold(long), None),
            (options().lease(short).max_hold(long), None),
            (
                options().lease(long).max_hold(short),
                Some("lease 20s is not allowed: it must be no longer than max_hold, 10ms"),
            ),
            (options().max_hold(short), None),
            (options().lease(short), None),
            (options().lease(long).wait(short), None),
            (options().lease(short).wait(long), None),
            (options().lease(long).wait(Duration::ZERO), None),
            (options().max_hold(long).wait(short), None),
            (options().max_hold(short).wait(long), None),
            // How long the name is taken does not limit the guard, and the other way round.
            (options().at_least(long).lease(short).max_hold(short), None),
            (options().at_least(short).max_hold(long), None),
            (options().at_least(Duration::ZERO), None),
            (
                options().at_least(Duration::from_millis(9)),
                Some("at_least 9ms is not allowed: it must be 10 ms to 24 h"),
            ),
            (
                options().at_least(Duration::MAX),
                Some(
                    "at_least 18446744073709551615.999999999s is not allowed: it must be 10 ms to 24 h",
                ),
            ),
        ];
        for (options, refusal) in table {
            let watched = Lease::Watched(LeaseMs::checked("lease", long).unwrap());
            let checked = options.check(watched).map(|_| ()).map_err(|error| error.words());
            assert_eq!(checked.err().as_deref(), refusal, "{options:?}");
        }
    }
}
