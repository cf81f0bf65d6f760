//! The search itself.

use std::collections::HashMap;
use std::collections::HashSet;

use crate::checks::kinds::Automaton;
use crate::history::NEVER;
use crate::kind::LockKind;
use crate::kind::Share;

/// Steps after which it is given up.
const BUDGET: u64 = 500_000;

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
    Latch(Latch),
}

/// What is done to a latch, with the answer if there was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::checks) enum Latch {
    /// `number` tells it from others.
    Set {
        number: usize,
        count: u64,
        done: Option<bool>,
    },
    Down {
        left: Option<u64>,
    },
    Delete {
        done: Option<bool>,
    },
    /// Somebody was told this count; for a wait that has ended it is 0.
    Count(u64),
    /// The time of the latch that was set with this number is over.
    Over(usize),
    /// The server lost its data.
    Forgotten,
}

impl Latch {
    /// For another checker: the step, a number, the count, and the answer.
    fn words(self) -> (&'static str, usize, u64, Option<u64>) {
        match self {
            Self::Set { number, count, done } => ("set", number, count, done.map(u64::from)),
            Self::Down { left } => ("down", 0, 0, left),
            Self::Delete { done } => ("delete", 0, 0, done.map(u64::from)),
            Self::Count(count) => ("count", 0, count, None),
            Self::Over(number) => ("over", number, 0, None),
            Self::Forgotten => ("forgotten", 0, 0, None),
        }
    }
}

#[derive(Debug, Clone)]
pub(in crate::checks) struct Op {
    pub(in crate::checks) step: Step,
    pub(in crate::checks) called: u64,
    /// `NEVER`: it need not happen.
    pub(in crate::checks) ended: u64,
    /// It happened: not so, it may also come to nothing because its hold is over. Of an upgrade: its
    /// read was there.
    pub(in crate::checks) strict: bool,
    /// For people.
    pub(in crate::checks) says: String,
}

impl Op {
    /// For another checker: the name, the step, its hold, the token of a grant, when it was called
    /// and ended (-: it need not happen), whether it certainly happened, the kind of the lock, how
    /// much of it, and the hold of the same owner beside it (-: none). Of a latch: the count, and the
    /// answer (-: none).
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
            Step::Latch(step) => {
                let (step, number, count, answer) = step.words();
                near = answer.and_then(|answer| usize::try_from(answer).ok());
                (step, number, Share::levels(u32::try_from(count).unwrap_or(u32::MAX)))
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
    /// room, so that it is tried only where another operation needs that.
    fn is_end_in_the_background(&self) -> bool {
        let ends = matches!(self.step, Step::Release(_) | Step::Gone(_) | Step::Downgrade(_));
        ends && self.ended == NEVER
    }

    /// Of a grant.
    fn token(&self) -> Option<u64> {
        match self.step {
            Step::Grant { token, .. } => Some(token),
            _ => None,
        }
    }

    fn hold(&self) -> Option<usize> {
        match self.step {
            Step::Grant { hold, .. }
            | Step::Nest(hold, _)
            | Step::Leave(hold, _)
            | Step::Downgrade(hold)
            | Step::Release(hold)
            | Step::Gone(hold) => Some(hold),
            Step::Deny { .. } | Step::Latch(_) => None,
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
    let mut of_hold: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, op) in ops.iter().enumerate() {
        if let Some(hold) = op.hold() {
            of_hold.entry(hold).or_default().push(index);
        }
    }
    let mut grants: Vec<(u64, usize)> =
        ops.iter().enumerate().filter_map(|(index, op)| Some((op.token()?, index))).collect();
    grants.sort_unstable();
    let mut search = Search {
        ops,
        of_hold,
        grants: grants.into_iter().map(|(_, index)| index).collect(),
        granted: 0,
        done: vec![false; ops.len()],
        seen: HashSet::new(),
        placed: 0,
        steps: 0,
        farthest: 0,
        stuck: 0,
    };
    match search.from(0, A::default()) {
        Some(true) => Found::Order,
        Some(false) => Found::Nothing { stuck: search.stuck },
        None => Found::GaveUp,
    }
}

struct Search<'a, A> {
    ops: &'a [Op],
    /// Which of them are about a hold.
    of_hold: HashMap<usize, Vec<usize>>,
    /// The grants in the order of their tokens, which is the only one that there can be, and how many
    /// of them are done.
    grants: Vec<usize>,
    granted: usize,
    done: Vec<bool>,
    /// Where it has been in vain: the first that is not done, those done beyond it, and the lock.
    /// Whether a hold has ended in the background is seen from the lock.
    seen: HashSet<(usize, Vec<usize>, A)>,
    placed: usize,
    steps: u64,
    farthest: usize,
    stuck: usize,
}

impl<A: Automaton> Search<'_, A> {
    /// Whether the rest can be put in order; none: given up.
    fn from(&mut self, mut first: usize, lock: A) -> Option<bool> {
        while first < self.ops.len()
            && (self.done[first] || self.ops[first].is_end_in_the_background())
        {
            first += 1;
        }
        self.steps += 1;
        if self.steps > BUDGET {
            return None;
        }
        let (candidates, most_urgent) = self.candidates(first);
        let Some(most_urgent) = most_urgent else { return Some(true) };
        let is_done =
            |index: &usize| self.done[*index] && !self.ops[*index].is_end_in_the_background();
        let key = (first, (first..self.ops.len()).filter(is_done).collect(), lock);
        if self.seen.contains(&key) {
            return Some(false);
        }
        if self.placed >= self.farthest {
            (self.farthest, self.stuck) = (self.placed, most_urgent);
        }
        let limit = self.ops[most_urgent].ended;
        for index in candidates {
            for (next, marked) in self.ways_to(index, &key.2, limit) {
                self.mark(&marked, true);
                let found = self.from(first, next)?;
                if found {
                    return Some(true);
                }
                self.mark(&marked, false);
            }
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
            if self.done[index] || op.is_end_in_the_background() {
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

    /// What the lock may be after this operation, and what is done then: as it is, or after holds
    /// have ended in the background that are in its way.
    fn ways_to(&self, index: usize, lock: &A, limit: u64) -> Vec<(A, Vec<usize>)> {
        let op = &self.ops[index];
        let mut ways: Vec<(A, Vec<usize>)> = Vec::new();
        if op.token().is_some() && self.grants[self.granted] != index {
            return ways;
        }
        ways.extend(self.then(index, (lock.clone(), Vec::new())));
        let mut ends = if ways.is_empty() { lock.in_the_way(op) } else { Vec::new() };
        // What may come to nothing does if its own hold has ended.
        ends.extend(
            op.hold().filter(|hold| !op.strict && lock.is_held_by(*hold)).map(|it| vec![it]),
        );
        for holds in ends {
            for downgrades in [false, true] {
                let Some(free) = self.end(&holds, downgrades, lock, limit) else { continue };
                if free.1.contains(&index) {
                    ways.push(free);
                } else {
                    ways.extend(self.then(index, free));
                }
            }
        }
        ways
    }

    /// One more operation, if the lock allows it there.
    fn then(&self, index: usize, (lock, mut marked): (A, Vec<usize>)) -> Option<(A, Vec<usize>)> {
        let next = lock.after(&self.ops[index])?;
        marked.extend(self.dead(index, &lock, &next)?);
        marked.push(index);
        Some((next, marked))
    }

    /// Ends these holds in the background, or makes them reads, as far as there is an operation that
    /// may do so now.
    fn end(
        &self,
        holds: &[usize],
        downgrades: bool,
        lock: &A,
        limit: u64,
    ) -> Option<(A, Vec<usize>)> {
        let mut free = (lock.clone(), Vec::new());
        for hold in holds {
            let may = |index: &&usize| {
                let (op, done) = (&self.ops[**index], self.done[**index]);
                let is_downgrade = matches!(op.step, Step::Downgrade(_));
                let is_end = op.is_end_in_the_background() && is_downgrade == downgrades;
                is_end && !done && op.called <= limit
            };
            let end = self.of_hold[hold].iter().filter(may);
            free = end.map(|index| self.then(*index, free.clone())).find_map(|it| it)?;
        }
        Some(free)
    }

    /// With its hold over, nothing of it can happen any more: which operations that makes void;
    /// none if one of them did happen.
    fn dead(&self, index: usize, before: &A, after: &A) -> Option<Vec<usize>> {
        let is_over = |hold: &usize| before.is_held_by(*hold) && !after.is_held_by(*hold);
        let Some(over) = self.ops[index].hold().filter(is_over) else { return Some(Vec::new()) };
        let rest = self.of_hold[&over].iter().copied();
        let rest: Vec<usize> = rest.filter(|other| *other != index && !self.done[*other]).collect();
        rest.iter().all(|other| !self.ops[*other].strict).then_some(rest)
    }

    fn mark(&mut self, marked: &[usize], done: bool) {
        for index in marked {
            self.done[*index] = done;
        }
        let granted = marked.iter().filter(|index| self.ops[**index].token().is_some()).count();
        if done {
            (self.placed, self.granted) = (self.placed + marked.len(), self.granted + granted);
        } else {
            (self.placed, self.granted) = (self.placed - marked.len(), self.granted - granted);
        }
    }
}
