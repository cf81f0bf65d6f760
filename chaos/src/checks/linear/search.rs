//! The search itself.

use std::collections::HashSet;

use crate::history::NEVER;

/// Steps after which it is given up.
const BUDGET: u64 = 2_000_000;

/// What an operation does to the mutex. Holds are numbers; each is granted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A hold with its token: the mutex was free, and no token was larger.
    Grant(usize, u64),
    /// The holder gets to this depth.
    Nest(usize, u32),
    /// The holder has so many levels left.
    Leave(usize, u32),
    Release(usize),
    /// It ended by itself.
    Gone(usize),
    /// Somebody was told that the mutex is taken.
    Deny,
}

#[derive(Debug, Clone)]
pub(super) struct Op {
    pub(super) step: Step,
    pub(super) called: u64,
    /// `NEVER`: it need not happen.
    pub(super) ended: u64,
    /// It happened: not so, it may also come to nothing because its hold is over.
    pub(super) strict: bool,
    /// For people.
    pub(super) says: String,
}

impl Op {
    /// For another checker: the name, the step, its hold and number, when it was called and ended (-: it need not
    /// happen), and whether it certainly happened.
    pub(super) fn line(&self, name: &str) -> String {
        let (step, hold, number) = match self.step {
            Step::Grant(hold, token) => ("grant", hold, token),
            Step::Nest(hold, depth) => ("nest", hold, depth.into()),
            Step::Leave(hold, left) => ("leave", hold, left.into()),
            Step::Release(hold) => ("release", hold, 0),
            Step::Gone(hold) => ("gone", hold, 0),
            Step::Deny => ("deny", 0, 0),
        };
        let ended = if self.ended == NEVER { "-".to_owned() } else { self.ended.to_string() };
        format!("{name} {step} {hold} {number} {} {ended} {}", self.called, u8::from(self.strict))
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
pub(super) enum Found {
    Order,
    /// None; the farthest attempt could not place this one.
    Nothing {
        stuck: usize,
    },
    GaveUp,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Mutex {
    holder: Option<usize>,
    depth: u32,
    fence: u64,
}

/// `ops` by the times of their calls.
pub(super) fn order(ops: &[Op]) -> Found {
    let mut search = Search { ops, done: vec![false; ops.len()], ..Search::default() };
    match search.from(0, Mutex::default()) {
        Some(true) => Found::Order,
        Some(false) => Found::Nothing { stuck: search.stuck },
        None => Found::GaveUp,
    }
}

#[derive(Default)]
struct Search<'a> {
    ops: &'a [Op],
    done: Vec<bool>,
    /// Where it has been in vain: the first that is not done, those done beyond it, and the mutex.
    seen: HashSet<(usize, Vec<usize>, Mutex)>,
    steps: u64,
    farthest: usize,
    stuck: usize,
}

impl Search<'_> {
    /// Whether the rest can be put in order; none: given up.
    fn from(&mut self, mut first: usize, mutex: Mutex) -> Option<bool> {
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
        let key = (first, beyond, mutex);
        if self.seen.contains(&key) {
            return Some(false);
        }
        let placed = self.done.iter().filter(|done| **done).count();
        if placed >= self.farthest {
            (self.farthest, self.stuck) = (placed, most_urgent);
        }
        for index in candidates {
            let Some(next) = apply(self.ops[index].step, mutex) else { continue };
            let Some(dead) = self.dead(index, mutex, next) else { continue };
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

    /// Those that may be next: called before any other that must happen has ended. What need not happen comes last. And
    /// which of those that must happen ends first.
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

    /// With its hold over, nothing of it can happen any more: which operations that makes void; none if one of them did
    /// happen.
    fn dead(&self, index: usize, before: Mutex, after: Mutex) -> Option<Vec<usize>> {
        if before.holder.is_none() || after.holder == before.holder {
            return Some(Vec::new());
        }
        let rest = self.ops.iter().enumerate().filter(|(other, op)| {
            *other != index && !self.done[*other] && op.hold().is_some() && op.hold() == before.holder
        });
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

/// The mutex after a step, if it allows it.
fn apply(step: Step, mutex: Mutex) -> Option<Mutex> {
    let held_by = |hold| mutex.holder == Some(hold);
    match step {
        Step::Grant(hold, token) if mutex.holder.is_none() && token > mutex.fence => {
            Some(Mutex { holder: Some(hold), depth: 1, fence: token })
        }
        Step::Nest(hold, depth) if held_by(hold) && depth == mutex.depth + 1 => {
            Some(Mutex { depth, ..mutex })
        }
        Step::Leave(hold, left) if held_by(hold) && left + 1 == mutex.depth => {
            Some(Mutex { depth: left, ..mutex })
        }
        Step::Release(hold) if held_by(hold) && mutex.depth == 1 => {
            Some(Mutex { holder: None, depth: 0, ..mutex })
        }
        Step::Gone(hold) if held_by(hold) => Some(Mutex { holder: None, depth: 0, ..mutex }),
        Step::Deny if mutex.holder.is_some() => Some(mutex),
        _ => None,
    }
}
