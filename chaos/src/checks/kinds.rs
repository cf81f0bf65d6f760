//! What the checks ask of each kind of lock. A kind adds a file here with its automaton, and its
//! answers below.

mod latch;
#[cfg(test)]
mod pair;
mod read_write;
mod reentrant;
mod semaphore;

use crate::checks::linear::Found;
use crate::checks::linear::Op;
use crate::checks::linear::order;
use crate::history::Hold;
use crate::kind::LockKind;
use crate::kind::PERMITS;

/// The state of a lock, and which answers it allows. The default is a lock that was never held.
pub(super) trait Automaton: Clone + Default + Eq + std::hash::Hash {
    /// What it is after an operation; none if it would not have given that answer.
    fn after(&self, op: &Op) -> Option<Self>;

    /// Which holds would have to end so that it allows this operation; of several choices, each.
    fn in_the_way(&self, _op: &Op) -> Vec<Vec<usize>> {
        Vec::new()
    }

    /// Whether it is held by the hold with this number.
    fn is_held_by(&self, _hold: usize) -> bool {
        false
    }
}

impl LockKind {
    /// Whether all of these may be valid at this time.
    pub(super) fn allows(self, holds: &[&Hold], at: u64) -> bool {
        match self {
            Self::Reentrant | Self::Flight | Self::Fair | Self::Redlock => holds.len() <= 1,
            Self::ReadWrite => read_write::allows(holds, at),
            // A latch has no holds.
            Self::Latch => holds.is_empty(),
            Self::Semaphore => {
                holds.iter().map(|hold| hold.share.exclusive).sum::<u32>() <= PERMITS
            }
            #[cfg(test)]
            Self::Pair => holds.len() <= 2,
        }
    }

    /// Whether somebody has what is refused. Of a Redlock two attempts may have a part each.
    pub(super) fn denies_only_what_is_held(self) -> bool {
        self != Self::Redlock
    }

    /// Looks for an order of the operations, which are sorted by the times of their calls.
    pub(super) fn order(self, ops: &[Op]) -> Found {
        match self {
            Self::Reentrant | Self::Flight | Self::Fair | Self::Redlock => {
                order::<reentrant::Mutex>(ops)
            }
            Self::ReadWrite => order::<read_write::ReadWrite>(ops),
            Self::Semaphore => order::<semaphore::Semaphore>(ops),
            Self::Latch => order::<latch::Latch>(ops),
            #[cfg(test)]
            Self::Pair => order::<pair::Pair>(ops),
        }
    }

    /// For people.
    pub(super) fn what_it_is(self) -> &'static str {
        match self {
            Self::Reentrant => "mutex",
            Self::ReadWrite => "read-write lock",
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
            Self::Flight => "single flight",
            Self::Fair => "fair lock",
            Self::Redlock => "Redlock",
            #[cfg(test)]
            Self::Pair => "pair",
        }
    }
}
