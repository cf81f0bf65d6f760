//! Which kinds of locks histories are about. What must be true of each is in `checks/kinds.rs`.

use std::fmt;

/// The kind of a name. Two kinds of one text are two names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LockKind {
    #[default]
    Reentrant,
    /// Of tests: two may hold it at once.
    #[cfg(test)]
    Pair,
}

impl LockKind {
    const ALL: &[Self] = &[
        Self::Reentrant,
        #[cfg(test)]
        Self::Pair,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            #[cfg(test)]
            Self::Pair => "pair",
        }
    }

    pub(crate) fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.word() == word)
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
