//! The kinds of locks.

/// The kind is part of the identity of a name: the same text in two kinds is two names in one
/// client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Also serves `Mutex`.
    Reentrant,
    /// The same key, but every waiter has a place of its own in the line.
    Fair,
    /// The same, as Redisson's `RedissonFairLock` keeps it.
    FairQueue,
    /// It is not held: whoever waits for it only learns that its count is 0.
    CountDownLatch,
    /// Any number of readers, or one writer.
    ReadWrite,
    /// Up to a number of permits are held at once.
    Semaphore,
    /// The same, as Redisson's `RPermitExpirableSemaphore` keeps it.
    PermitExpirable,
    /// For tests: two may hold it at once.
    #[cfg(all(test, repository))]
    Pair,
}

impl Kind {
    /// Whether its holds have permits.
    pub(crate) fn has_permits(self) -> bool {
        matches!(self, Self::Semaphore | Self::PermitExpirable)
    }
}
