//! Several locks as one: all of them, or none.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::future::select_all;

use crate::base::clock::Deadline;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::error::Result;
use crate::base::owner::OwnerKey;
use crate::kinds::share::Share;
use crate::locks::guard::Guard;
use crate::locks::guard::run_while_held;
use crate::locks::lock::Lock;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::lock::unless_lost;
use crate::locks::multi::acquisition::Acquisition;

mod acquisition;

/// The most members of a multi-lock.
const MOST_MEMBERS: usize = 100;

/// Several locks, taken all together or not at all: mutexes, reentrant locks, fair locks, and the
/// reading or writing sides of read-write locks, of one client or of several.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> redis_reentrant_lock::Result<()> {
/// # let server = redis_reentrant_lock::InMemoryServer::new();
/// # let client = redis_reentrant_lock::LockClient::builder().in_memory(&server).connect().await?;
/// use redis_reentrant_lock::MultiLock;
///
/// // A transfer changes two accounts, and reads the table of fees.
/// let (from, to) = (client.mutex("account:7")?, client.mutex("account:3")?);
/// let fees = client.rw_lock("fees")?;
/// let transfer = MultiLock::new([from.into(), to.into(), fees.read_lock()])?;
///
/// let guard = transfer.lock().await?;
/// let tokens: Vec<u64> = guard.members().iter().map(|member| member.fencing_token()).collect();
/// assert_eq!(tokens.len(), 3);
/// guard.unlock().await
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
///
/// # Guarantees
///
/// * **All or none.** While the guard is held, so is every member. A member that is lost while
///   another is waited for releases all of them, and the wait starts again.
/// * **No deadlock among multi-locks**, whatever the order in which their members are given: each
///   takes them in the order of their names, and waits for one only while it holds nothing but
///   those before it.
/// * **Nobody waits for ever with something in hand.** Beside locks that are nested in another order
///   by other code, or by other languages, a multi-lock waits at most one lease while it holds
///   members. Then it releases all of them, pauses for a random time up to 100 ms, and starts again.
///   For a server that does not answer it waits with nothing in hand, and fails as that member's own
///   lock would.
/// * The validity of the guard is the smallest of its members'.
///
/// # The order, and owners
///
/// The order is that of the names, prefix included; the same name on several servers is ordered by
/// [`deployment`](crate::LockClientBuilder::deployment). The same name on the same servers is one
/// member, and writing it includes reading it.
///
/// A reentrant lock or read-write lock among the members is held by the calling owner, by the rules of
/// [`ReentrantLock`](crate::ReentrantLock), so it does not wait for a lock that its owner has already. A mutex is held by
/// this one acquisition and is never re-entered.
///
/// **An owner that holds a lock and would have to wait for a member that comes before it** gets
/// [`Error::WouldDeadlock`] instead: another multi-lock may hold that member and wait for the lock
/// that this owner has. This is known of reentrant locks, fair locks and read-write locks of the
/// clients that the members belong to. A mutex has no owner, so it is not known who holds one: do not take a
/// multi-lock while you hold a mutex, but make that a member.
///
/// # What it cannot protect against
///
/// What the [member's own lock](crate::Mutex) cannot protect against. For each member there is a
/// [fencing token](Guard::fencing_token) of its own; there is none for all of them together. It is not
/// a lock over several independent servers that survives the loss of one of them: every member must
/// be held, so every server must be there.
///
/// # Options
///
/// A fixed [`lease`](LockOptions::lease) and [`at_least`](LockOptions::at_least) count from the
/// moment at which all members are held; until then the members are renewed. This takes two further
/// commands for each member. [`max_hold`](LockOptions::max_hold) counts for each member from its own
/// grant, which may be earlier than the last one's.
///
/// [`Error::WouldDeadlock`]: crate::Error::WouldDeadlock
#[derive(Clone)]
pub struct MultiLock {
    /// In the order in which they are taken.
    members: Arc<[LockMember]>,
}

/// A lock that may be a member of a [`MultiLock`]. Made of a [`Mutex`](crate::Mutex), a [`ReentrantLock`](crate::ReentrantLock) or
/// a [`FairLock`](crate::FairLock) with `into`, or by [`RwLock::read_lock`](crate::RwLock::read_lock) and
/// [`RwLock::write_lock`](crate::RwLock::write_lock). Those of the module `blocking` do as well.
#[derive(Clone)]
pub struct LockMember {
    lock: Lock,
    /// Whether the caller's owner holds it, and not the acquisition.
    of_caller: bool,
}

impl LockMember {
    /// A lock that belongs to the owner that acquires it.
    pub(crate) fn of_caller(lock: Lock) -> Self {
        Self { lock, of_caller: true }
    }

    /// A lock that belongs to each acquisition by itself.
    pub(crate) fn of_acquisition(lock: Lock) -> Self {
        Self { lock, of_caller: false }
    }

    /// Where it stands among the members.
    fn place(&self) -> (&str, &str) {
        (self.lock.name(), &self.lock.shared().config().deployment)
    }
}

impl fmt::Debug for LockMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, deployment) = self.place();
        write!(f, "{name} on {deployment}")
    }
}

impl MultiLock {
    /// A lock over these members. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) if there is no member, if there are more
    /// than 100, or if the same name on the same servers is given as two kinds of lock;
    /// [`Error::Closed`](crate::Error::Closed) in a forked child.
    pub fn new(members: impl IntoIterator<Item = LockMember>) -> Result<Self> {
        let mut members: Vec<LockMember> = members.into_iter().collect();
        if members.is_empty() || members.len() > MOST_MEMBERS {
            return Err(Error::InvalidOption {
                option: "members of a multi-lock",
                given: members.len().to_string(),
                allowed: format!("1 to {MOST_MEMBERS}"),
            });
        }
        members.sort_by(|one, other| one.place().cmp(&other.place()));
        let mut merged: Vec<LockMember> = Vec::with_capacity(members.len());
        for member in members {
            member.lock.check_process()?;
            match merged.last_mut().filter(|last| last.place() == member.place()) {
                Some(last) => merge(last, member)?,
                None => merged.push(member),
            }
        }
        Ok(Self { members: merged.into() })
    }

    /// The names of the members, in the order in which they are taken.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.lock.name())
    }

    /// Waits until all members are held, for as long as it takes. The leases are watched: they are
    /// renewed until the guard is released.
    ///
    /// # Errors
    ///
    /// Those of each member's own `lock`; [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) if the
    /// owner holds a lock that comes after a member that is taken;
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) if a member is another member of the same
    /// name, whose servers have another label. After an error, what was taken is being released in
    /// the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point releases in the background what it has taken.
    pub async fn lock(&self) -> Result<MultiGuard> {
        self.lock_as(self.caller()?).await
    }

    /// Takes all members if all are free, without waiting for a holder. [`NotAcquired`] names the
    /// first member, in their order, that somebody has; what was taken is being released in the
    /// background then.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); `Unavailable` if a member's server does not answer within the command
    /// timeout.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Result<MultiGuard, NotAcquired>> {
        self.try_lock_for(Duration::ZERO).await
    }

    /// The same as [`lock`](Self::lock), but waits at most `wait`. [`NotAcquired`] names the member
    /// that was waited for then; what was taken is being released in the background.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); `Unavailable` if no attempt at a member was answered within the wait.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Result<MultiGuard, NotAcquired>> {
        self.lock_with(LockOptions::new().wait(wait)).await
    }

    /// Takes all members with other [options](LockOptions) than `lock()` has. [`NotAcquired`] is
    /// returned only with a limit on the wait.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::InvalidOption`](crate::Error::InvalidOption) before anything
    /// is sent.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_with(&self, options: LockOptions) -> Result<Result<MultiGuard, NotAcquired>> {
        self.lock_with_as(self.caller()?, options).await
    }

    /// Takes all members, runs `work` for as long as they are held, releases them, and returns what
    /// `work` has returned.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), before `work` was called. [`Error::Lost`](crate::Error::Lost) if a
    /// member was lost before the release: `work` may have been done in part or as a whole.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases all members in the background.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&MultiGuard) -> T) -> Result<T> {
        let guard = self.lock().await?;
        let done = guard.run(work(&guard)).await?;
        unless_lost(done, guard.unlock().await)
    }

    pub(crate) async fn lock_as(&self, caller: Option<OwnerKey>) -> Result<MultiGuard> {
        let since = self.now();
        let acquired = self.lock_with_as(caller, LockOptions::new()).await?;
        acquired.map_err(|refused| refused.without_limit(self.now().since(since)))
    }

    pub(crate) async fn lock_with_as(
        &self,
        caller: Option<OwnerKey>,
        options: LockOptions,
    ) -> Result<Result<MultiGuard, NotAcquired>> {
        let acquired = Acquisition::begin(&self.members, caller, options)?.run().await?;
        Ok(acquired.map(|guards| MultiGuard { guards }))
    }

    fn now(&self) -> Moment {
        self.members[0].lock.shared().now()
    }

    /// The owner of the running code, if a member needs one.
    fn caller(&self) -> Result<Option<OwnerKey>> {
        let owned = self.members.iter().find(|member| member.of_caller);
        match owned {
            Some(member) => member.lock.owner().map(Some),
            None => Ok(OwnerKey::current().ok()),
        }
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock").field("members", &self.members).finish()
    }
}

/// Two members of one name on the same servers are one. Writing includes reading.
fn merge(kept: &mut LockMember, member: LockMember) -> Result<()> {
    if kept.lock.lock_name().kind() != member.lock.lock_name().kind() {
        return Err(Error::InvalidOption {
            option: "members of a multi-lock",
            given: format!("with \"{}\" as two kinds of lock", member.lock.name()),
            allowed: "of one kind for each name".to_owned(),
        });
    }
    let of_caller = kept.of_caller || member.of_caller;
    if kept.lock.share() == Share::READ {
        kept.lock = member.lock;
    }
    kept.of_caller = of_caller;
    Ok(())
}

/// All members of a [`MultiLock`], held. [`unlock`](Self::unlock) releases them, and so does dropping
/// the guard, which does it in the background.
///
/// It is lost as soon as one of its members is. The others are held until it is unlocked or dropped.
#[must_use = "without a variable the locks are released at once, also by `let _ =`: bind the guard to a name"]
#[clippy::has_significant_drop]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

/// Which member of a [`MultiGuard`] was lost, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberLoss {
    /// The name of the member.
    pub name: String,
    /// Why it was lost.
    pub reason: LossReason,
}

impl MultiGuard {
    /// The guards of the members, in the order in which they were taken, for their names, fencing
    /// tokens and hold ids.
    pub fn members(&self) -> &[Guard] {
        &self.guards
    }

    /// The names of the members and their fencing tokens, in the order in which they were taken.
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&str, u64)> {
        self.guards.iter().map(|member| (member.name(), member.fencing_token()))
    }

    /// Whether all members are still held, as far as this process can know. No I/O.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// Whether all are held and the loss of one is likely: as [`Guard::is_suspect`].
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.is_held() && self.guards.iter().any(Guard::is_suspect)
    }

    /// The instant up to which all are held without another renewal: the earliest of the members'.
    #[must_use]
    pub fn valid_until(&self) -> Deadline {
        let ends = self.guards.iter().map(Guard::valid_until);
        ends.min_by_key(Deadline::remaining).unwrap_or_else(|| unreachable!("it has members"))
    }

    /// Which member was lost first in their order, and why. `None`: all are held.
    #[must_use]
    pub fn loss(&self) -> Option<MemberLoss> {
        self.guards.iter().find_map(|guard| {
            guard.loss().map(|reason| MemberLoss { name: guard.name().to_owned(), reason })
        })
    }

    /// Waits until a member is lost, and says which and why. It returns at
    /// [`valid_until`](Self::valid_until) at the latest, plus the delay of a timer.
    ///
    /// # Errors
    ///
    /// None.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> MemberLoss {
        let (reason, guard) = first_lost(&self.guards).await;
        MemberLoss { name: guard.name().to_owned(), reason }
    }

    /// Runs `future` for as long as all members are held, as [`Guard::run`] does for one.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) with the name of the member that was lost before `future`
    /// was done; [`Error::Closed`](crate::Error::Closed) in a forked child.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops `future` and has no other effect.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        let is_held = || self.guards.iter().all(Guard::is_still_held);
        let done = run_while_held(self.lost(), is_held, future).await;
        done.ok_or_else(|| self.first_not_held().why_lost())
    }

    /// Checks that all members are held for at least `min_remaining` more. Reads a clock; no I/O.
    ///
    /// # Errors
    ///
    /// As [`Guard::ensure`], for the first member for which it fails.
    pub fn ensure(&self, min_remaining: Duration) -> Result<()> {
        self.guards.iter().try_for_each(|guard| guard.ensure(min_remaining))
    }

    /// Asks the servers whether all holds are still there, all at once.
    ///
    /// # Errors
    ///
    /// As [`Guard::verify`], for the first member for which it fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn verify(&self) -> Result<()> {
        join_all(self.guards.iter().map(Guard::verify)).await.into_iter().collect()
    }

    /// Releases all members at once, and waits until the servers have confirmed it.
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`]; the first one in the order of the members, after all were tried.
    ///
    /// # Cancel safety
    ///
    /// All levels end in any case, as with [`Guard::unlock`].
    pub async fn unlock(self) -> Result<()> {
        join_all(self.guards.into_iter().map(Guard::unlock)).await.into_iter().collect()
    }

    fn first_not_held(&self) -> &Guard {
        let lost = self.guards.iter().find(|guard| !guard.is_held());
        lost.unwrap_or(&self.guards[0])
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiGuard").field("members", &self.guards).finish()
    }
}

/// Waits until one of these is lost. Without any it waits for ever.
async fn first_lost(guards: &[Guard]) -> (LossReason, &Guard) {
    if guards.is_empty() {
        return pending().await;
    }
    let (reason, which, _) = select_all(guards.iter().map(|guard| Box::pin(guard.lost()))).await;
    (reason, &guards[which])
}
