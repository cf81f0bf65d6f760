//! A reentrant, fenced mutex.

use crate::checks::kinds::Automaton;
use crate::checks::linear::Op;
use crate::checks::linear::Step;

/// It is free, or has a holder and a depth; its fence grows with every grant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Mutex {
    holder: Option<usize>,
    depth: u32,
    fence: u64,
}

impl Automaton for Mutex {
    fn after(&self, op: &Op) -> Option<Self> {
        let mutex = *self;
        match op.step {
            Step::Grant { hold, token, .. } if mutex.holder.is_none() && token > mutex.fence => {
                Some(Self { holder: Some(hold), depth: 1, fence: token })
            }
            Step::Nest(hold, share)
                if self.is_held_by(hold) && share.total() == mutex.depth + 1 =>
            {
                Some(Self { depth: share.total(), ..mutex })
            }
            Step::Leave(hold, share)
                if self.is_held_by(hold) && share.total() + 1 == mutex.depth =>
            {
                Some(Self { depth: share.total(), ..mutex })
            }
            Step::Release(hold) if self.is_held_by(hold) && mutex.depth == 1 => {
                Some(Self { holder: None, depth: 0, ..mutex })
            }
            Step::Gone(hold) if self.is_held_by(hold) => {
                Some(Self { holder: None, depth: 0, ..mutex })
            }
            Step::Deny { .. } if mutex.holder.is_some() => Some(mutex),
            _ => None,
        }
    }

    fn in_the_way(&self, op: &Op) -> Vec<Vec<usize>> {
        let is_grant = matches!(op.step, Step::Grant { .. });
        self.holder.filter(|_| is_grant).map(|holder| vec![holder]).into_iter().collect()
    }

    fn is_held_by(&self, hold: usize) -> bool {
        self.holder == Some(hold)
    }
}
