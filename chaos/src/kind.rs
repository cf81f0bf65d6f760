//! Which kinds of locks histories are about. What must be true of each is in `checks/kinds.rs`.

use std::fmt;
use std::time::Duration;

/// The kind of a name. Two kinds of one text are two names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LockKind {
    #[default]
    Reentrant,
    ReadWrite,
    Semaphore,
    Latch,
    Flight,
    Fair,
    /// Over several independent servers, and only there.
    Redlock,
    /// Of tests: two may hold it at once.
    #[cfg(test)]
    Pair,
}

/// How many permits each semaphore has.
pub(crate) const PERMITS: u32 = 3;
/// How long a latch may be there that is set for some time only.
pub(crate) const LATCH_LIFE: Duration = Duration::from_millis(200);
/// After so long, in ns, everybody goes on to the next latch, since no name should be used twice.
pub(crate) const GENERATION: u64 = 250_000_000;

impl LockKind {
    /// Those that a history on one deployment may be about.
    pub(crate) const DRAWN: &[Self] =
        &[Self::Reentrant, Self::ReadWrite, Self::Semaphore, Self::Latch, Self::Flight, Self::Fair];

    fn word(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            Self::ReadWrite => "read-write",
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
            Self::Flight => "flight",
            Self::Fair => "fair",
            Self::Redlock => "redlock",
            #[cfg(test)]
            Self::Pair => "pair",
        }
    }

    /// Whether several may hold it at once.
    pub(crate) fn admits_several(self) -> bool {
        match self {
            Self::ReadWrite | Self::Semaphore => true,
            #[cfg(test)]
            Self::Pair => true,
            Self::Reentrant | Self::Latch | Self::Flight | Self::Fair | Self::Redlock => false,
        }
    }

    pub(crate) fn named(word: &str) -> Option<Self> {
        #[cfg(test)]
        if word == Self::Pair.word() {
            return Some(Self::Pair);
        }
        let all = Self::DRAWN.iter().copied().chain([Self::Redlock]);
        all.into_iter().find(|kind| kind.word() == word)
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// How old a value may be that a single flight computes, in us.
pub(crate) const FRESH: u64 = 30_000;

/// A name and its kind, written `text:kind`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) kind: LockKind,
}

impl Name {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let (text, kind) = word.split_once(':')?;
        Some(Self { text: text.to_owned(), kind: LockKind::named(kind)? })
    }

    /// As it is spelled at this time: latches have a new name for each generation.
    pub(crate) fn spelled(&self, at: u64) -> String {
        match self.kind {
            LockKind::Latch => format!("{}.{}", self.text, at / GENERATION),
            _ => self.text.clone(),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.text, self.kind)
    }
}

/// Without the generation.
pub(crate) fn plain(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// How much of a lock somebody wants or has: levels or permits that let nobody else have them, and
/// reads. Written as the first number, with `+` and the second one if there are reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Share {
    pub(crate) exclusive: u32,
    pub(crate) reads: u32,
}

impl Share {
    pub(crate) const NOTHING: Self = Self::levels(0);
    pub(crate) const ONE: Self = Self::levels(1);
    pub(crate) const READ: Self = Self { exclusive: 0, reads: 1 };

    pub(crate) const fn levels(exclusive: u32) -> Self {
        Self { exclusive, reads: 0 }
    }

    pub(crate) fn total(self) -> u32 {
        self.exclusive + self.reads
    }

    /// One of the two with one more.
    pub(crate) fn is_one_more_than(self, other: Self) -> bool {
        let (exclusive, reads) = (other.exclusive, other.reads);
        self == Self { exclusive: exclusive + 1, reads }
            || self == Self { exclusive, reads: reads + 1 }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        let (exclusive, reads) = word.split_once('+').unwrap_or((word, "0"));
        Some(Self { exclusive: exclusive.parse().ok()?, reads: reads.parse().ok()? })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { exclusive, reads: 0 } => write!(f, "{exclusive}"),
            Self { exclusive, reads } => write!(f, "{exclusive}+{reads}"),
        }
    }
}
