//! The search itself.

use std::collections::HashSet;

use crate::checks::kinds::Automaton;
use crate::history::NEVER;
use crate::kind::LockKind;

/// Steps after which it is given up.
const BUDGET: u64 = 2_000_000;

/// What an operation does to the lock. Holds are numbers; each is granted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::checks) enum Step {
    /// A hold with its token.
    Grant(usize, u64),
    /// The holder gets to this depth.
    Nest(usize, u32),
    /// The holder has so many levels left.
    Leave(usize, u32),
    Release(usize),
    /// It ended by itself.
    Gone(usize),
    /// Somebody was told that the lock is taken.
    Deny,
}

#[derive(Debug, Clone)]
pub(in crate::checks) struct Op {
    pub(in crate::checks) step: Step,
    pub(in crate::checks) called: u64,
    /// `NEVER`: it need not happen.
    pub(in crate::checks) ended: u64,
    /// It happened: not so, it may also come to nothing because its hold is over.
    pub(in crate::checks) strict: bool,
    /// For people.
    pub(in crate::checks) says: String,
}

impl Op {
    /// For another checker: the name, the step, its hold and number, when it was called and ended
    /// (-: it need not happen), whether it certainly happened, and the kind of the lock.
    pub(in crate::checks) fn line(&self, name: &str, kind: LockKind) -> String {
        let (step, hold, number) = match self.step {
            Step::Grant(hold, token) => ("grant", hold, token),
            Step::Nest(hold, depth) => ("nest", hold, depth.into()),
            Step::Leave(hold, left) => ("leave", hold, left.into()),
            Step::Release(hold) => ("release", hold, 0),
            Step::Gone(hold) => ("gone", hold, 0),
            Step::Deny => ("deny", 0, 0),
        };
        let ended = if self.ended == NEVER { "-".to_owned() } else { self.ended.to_string() };
        format!(
            "{name} {step} {hold} {number} {} {ended} {} {kind}",
            self.called,
            u8::from(self.strict)
        )
    }

    fn hold(&self) -> Option<usize> {
        match self.step {
            Step::Grant(hold, _)
            | Step::Nest(hold, _)
            | Step::Leave(hold, _)
            | Step::Release(hold)
            | Step::Gone(hold) => Some(hold),
            Step::Deny => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::checks) enum Found {
    Order,
    /// None; the farthest attempt could not place this one.
    Nothing {
        stuck: usize,
    },
    GaveUp,
}

/// `ops` by the times of their calls.
pub(in crate::checks) fn order<A: Automaton>(ops: &[Op]) -> Found {
    let done = vec![false; ops.len()];
    let mut search = Search { ops, done, seen: HashSet::new(), steps: 0, farthest: 0, stuck: 0 };
    match search.from(0, A::default()) {
        Some(true) => Found::Order,
        Some(false) => Found::Nothing { stuck: search.stuck },
        None => Found::GaveUp,
    }
}

struct Search<'a, A> {
    ops: &'a [Op],
    done: Vec<bool>,
    /// Where it has been in vain: the first that is not done, those done beyond it, and the lock.
    seen: HashSet<(usize, Vec<usize>, A)>,
    steps: u64,
    farthest: usize,
    stuck: usize,
}

impl<A: Automaton> Search<'_, A> {
    /// Whether the rest can be put in order; none: given up.
    fn from(&mut self, mut first: usize, lock: A) -> Option<bool> {
        while first < self.ops.len() && self.done[first] {
            first += 1;
        }
        self.steps += 1;
        if self.steps > BUDGET {
            return None;
        }
        let (candidates, most_urgent) = self.candidates(first);
        let Some(most_urgent) = most_urgent else { return Some(true) };
        let beyond = (first..self.ops.len()).filter(|index| self.done[*index]).collect();
        let key = (first, beyond, lock);
        if self.seen.contains(&key) {
            return Some(false);
        }
        let placed = self.done.iter().filter(|done| **done).count();
        if placed >= self.farthest {
            (self.farthest, self.stuck) = (placed, most_urgent);
        }
        for index in candidates {
            let Some(next) = key.2.after(&self.ops[index]) else { continue };
            let Some(dead) = self.dead(index, &key.2, &next) else { continue };
            self.mark(index, &dead, true);
            let found = self.from(first, next)?;
            if found {
                return Some(true);
            }
            self.mark(index, &dead, false);
        }
        self.seen.insert(key);
        Some(false)
    }

    /// Those that may be next: called before any other that must happen has ended. What need not
    /// happen comes last. And which of those that must happen ends first.
    fn candidates(&self, first: usize) -> (Vec<usize>, Option<usize>) {
        let (mut sure, mut open, mut urgent) = (Vec::new(), Vec::new(), None);
        let mut limit = NEVER;
        for (index, op) in self.ops.iter().enumerate().skip(first) {
            if self.done[index] {
                continue;
            }
            if op.called > limit {
                break;
            }
            if op.ended == NEVER {
                open.push(index);
                continue;
            }
            sure.push(index);
            if op.ended < limit {
                (limit, urgent) = (op.ended, Some(index));
            }
        }
        sure.extend(open);
        (sure, urgent)
    }

    /// With its hold over, nothing of it can happen any more: which operations that makes void;
    /// none if one of them did happen.
    fn dead(&self, index: usize, before: &A, after: &A) -> Option<Vec<usize>> {
        let is_over = |hold: &usize| before.is_held_by(*hold) && !after.is_held_by(*hold);
        let Some(over) = self.ops[index].hold().filter(is_over) else { return Some(Vec::new()) };
        let rest = self.ops.iter().enumerate();
        let rest = rest
            .filter(|(other, op)| *other != index && !self.done[*other] && op.hold() == Some(over));
        let rest: Vec<usize> = rest.map(|(other, _)| other).collect();
        rest.iter().all(|other| !self.ops[*other].strict).then_some(rest)
    }

    fn mark(&mut self, index: usize, dead: &[usize], done: bool) {
        self.done[index] = done;
        for index in dead {
            self.done[*index] = done;
        }
    }
}
