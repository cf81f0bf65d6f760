//! The search itself.

use std::collections::HashSet;

use crate::checks::kinds::Automaton;
use crate::history::NEVER;
use crate::kind::LockKind;
use crate::kind::Share;

/// Steps after which it is given up.
const BUDGET: u64 = 2_000_000;

/// What an operation does to the lock. Holds are numbers; each is granted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::checks) enum Step {
    /// `beside`: the hold of the same owner that it was upgraded from.
    Grant {
        hold: usize,
        token: u64,
        share: Share,
        beside: Option<usize>,
    },
    /// The holder has this then, which is one level more.
    Nest(usize, Share),
    /// The holder has this left.
    Leave(usize, Share),
    /// The holder's only write becomes a read.
    Downgrade(usize),
    Release(usize),
    /// It ended by itself.
    Gone(usize),
    /// Somebody was told that so much is not free, beside a hold of the same owner.
    Deny {
        share: Share,
        beside: Option<usize>,
    },
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
    /// For another checker: the name, the step, its hold, the token of a grant, when it was called
    /// and ended (-: it need not happen), whether it certainly happened, the kind of the lock, how
    /// much of it, and the hold of the same owner beside it (-: none).
    pub(in crate::checks) fn line(&self, name: &str, kind: LockKind) -> String {
        let (mut token, mut near) = (0, None);
        let (step, hold, share) = match self.step {
            Step::Grant { hold, token: granted, share, beside } => {
                (token, near) = (granted, beside);
                ("grant", hold, share)
            }
            Step::Nest(hold, share) => ("nest", hold, share),
            Step::Leave(hold, share) => ("leave", hold, share),
            Step::Downgrade(hold) => ("downgrade", hold, Share::READ),
            Step::Release(hold) => ("release", hold, Share::NOTHING),
            Step::Gone(hold) => ("gone", hold, Share::NOTHING),
            Step::Deny { share, beside } => {
                near = beside;
                ("deny", 0, share)
            }
        };
        let or_none = |number: Option<u64>| number.map_or("-".to_owned(), |it| it.to_string());
        let ended = or_none(Some(self.ended).filter(|ended| *ended != NEVER));
        let (called, strict) = (self.called, u8::from(self.strict));
        let near = or_none(near.map(|hold| hold as u64));
        format!("{name} {step} {hold} {token} {called} {ended} {strict} {kind} {share} {near}")
    }

    pub(in crate::checks) fn certainly_released(&self) -> Option<usize> {
        match self.step {
            Step::Release(hold) if self.strict => Some(hold),
            _ => None,
        }
    }

    /// It frees something at any time from now on, or never. All that it does to others is to make
    /// room, so that it is tried only where an operation that must happen cannot be next.
    fn is_end_in_the_background(&self) -> bool {
        let ends = matches!(self.step, Step::Release(_) | Step::Gone(_) | Step::Downgrade(_));
        ends && self.ended == NEVER
    }

    fn hold(&self) -> Option<usize> {
        match self.step {
            Step::Grant { hold, .. }
            | Step::Nest(hold, _)
            | Step::Leave(hold, _)
            | Step::Downgrade(hold)
            | Step::Release(hold)
            | Step::Gone(hold) => Some(hold),
            Step::Deny { .. } => None,
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
        let mut frees = false;
        for index in candidates {
            let op = &self.ops[index];
            if op.is_end_in_the_background() && !frees {
                continue;
            }
            let next = key.2.after(op);
            frees |= next.is_none() || !op.strict;
            let Some(next) = next else { continue };
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
