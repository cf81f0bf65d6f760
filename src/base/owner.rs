//! The owners of holds: only the same owner may re-enter a lock.

use std::future::Future;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread::ThreadId;

use tokio::runtime::Handle;

use crate::base::error::Error;

/// The owner of a hold. It is known only in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerKey {
    /// A Tokio task.
    Task(tokio::task::Id),
    /// A thread: in the root future of `block_on`, and for the blocking locks.
    Thread(ThreadId),
    /// An [`Owner`].
    Unique(u64),
    /// One acquisition of a mutex.
    Once(u64),
}

/// Hashes only the number: hashing the kind would take as long again, and at most three owners have
/// the same number.
impl Hash for OwnerKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Task(task) => task.hash(state),
            Self::Thread(thread) => thread.hash(state),
            Self::Unique(number) | Self::Once(number) => number.hash(state),
        }
    }
}

tokio::task_local! {
    static SCOPE: Owner;
}

impl OwnerKey {
    /// The owner of the running code: the innermost scope, otherwise the task, otherwise the
    /// thread.
    pub(crate) fn current() -> Result<Self, Error> {
        if let Ok(owner) = SCOPE.try_with(|owner| *owner) {
            return Ok(Self::Unique(owner.0));
        }
        if let Some(task) = tokio::task::try_id() {
            return Ok(Self::Task(task));
        }
        match Handle::try_current() {
            Ok(_) => Ok(Self::this_thread()),
            Err(_) => Err(Error::NoOwner),
        }
    }

    /// This thread, whatever it is running.
    pub(crate) fn this_thread() -> Self {
        Self::Thread(std::thread::current().id())
    }

    /// For logs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Task(_) => "task",
            Self::Thread(_) => "thread",
            Self::Unique(_) | Self::Once(_) => "unique",
        }
    }

    /// A new owner for one acquisition of a mutex.
    pub(crate) fn once() -> Self {
        Self::Once(next())
    }

    /// A new owner for one acquisition that comes back to what it holds.
    pub(crate) fn unique() -> Self {
        Self::Unique(next())
    }

    /// True if the owner can acquire another level or ask what it holds. The owner of a mutex
    /// acquisition never does.
    pub(crate) fn comes_back(&self) -> bool {
        !matches!(self, Self::Once(_))
    }
}

#[cfg(test)]
impl OwnerKey {
    /// The same number means the same owner.
    pub(crate) fn from_test(number: u64) -> Self {
        Self::Unique(number)
    }
}

fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An identity that you choose for holding locks.
///
/// Without one, the Tokio task is the owner. All branches of `join!`, `select!` and
/// `FuturesUnordered` run in one task, so they re-enter each other's locks. Give each branch a
/// scope of its own:
///
/// ```
/// # use redis_reentrant_lock::Owner;
/// # async fn refill(part: u32) {}
/// # async fn example() {
/// tokio::join!(Owner::new().scope(refill(1)), Owner::new().scope(refill(2)));
/// # }
/// ```
///
/// The same is true of `join_all`, `buffer_unordered` and `for_each_concurrent`. Branches that
/// re-enter each other's locks share the fencing token too, so it does not keep them apart either.
///
/// Jobs of a work-stealing pool such as rayon that call `block_on` share a thread in the same way:
/// `handle.block_on(Owner::new().scope(lock.lock()))`.
///
/// Conversely, several tasks that run in scopes of the same `Owner` share its holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(u64);

impl Owner {
    /// A new owner, different from all others. Copies of it are the same owner.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "two defaults would differ")]
    pub fn new() -> Self {
        Self(next())
    }

    /// Runs `future` as this owner. Scopes nest; the innermost one counts. Works on any executor.
    /// Tasks that `future` spawns are owners of their own: run them in a scope too.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops `future` and has no other effect.
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        SCOPE.scope(self, future)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_tokio_only_a_scope_is_an_owner() {
        let error = OwnerKey::current().unwrap_err();
        assert!(matches!(error, Error::NoOwner));
        let text = error.to_string();
        assert!(text.contains("scope") && text.contains("mutex"), "{text}");
        let owner = Owner::new();
        let inside =
            futures::executor::block_on(owner.scope(async { OwnerKey::current() })).unwrap();
        assert_eq!(inside, OwnerKey::Unique(owner.0));
    }

    #[tokio::test]
    async fn the_innermost_scope_then_the_task_then_the_thread() {
        assert!(matches!(OwnerKey::current().unwrap(), OwnerKey::Thread(_)));
        let (outer, inner) = (Owner::new(), Owner::new());
        let seen = outer.scope(inner.scope(async { OwnerKey::current().unwrap() })).await;
        assert_eq!(seen, OwnerKey::Unique(inner.0));
        let task = tokio::spawn(async { OwnerKey::current().unwrap() }).await.unwrap();
        assert!(matches!(task, OwnerKey::Task(_)));
        let (a, b) = tokio::join!(
            Owner::new().scope(async { OwnerKey::current().unwrap() }),
            Owner::new().scope(async { OwnerKey::current().unwrap() }),
        );
        assert_ne!(a, b);
    }
}
