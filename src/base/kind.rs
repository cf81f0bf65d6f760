//! Which kinds of locks there are.

/// The kind belongs to the identity of a name: two kinds of one text are two names in one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Also serves `Mutex`.
    Reentrant,
    /// Of tests: two may hold it at once.
    #[cfg(all(test, repository))]
    Pair,
}
