//! Whether there is an order, within the times of the calls, in which a lock of that kind would
//! have given these answers: the search of Wing and Gong, with Lowe's memory of where it has been.
//! What a lock may answer is told by an automaton for each kind (`kinds/`).
//!
//! What was called and not answered may have happened at any time since, or never. A hold may end
//! by itself once its validity is over, or in a breach.

mod latches;
mod search;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::HashSet;

pub(super) use self::search::Found;
pub(super) use self::search::Latch;
pub(super) use self::search::Op;
pub(super) use self::search::Step;
pub(super) use self::search::order;
use crate::checks::Verdict;
use crate::event::How;
use crate::event::What;
use crate::history::History;
use crate::history::Hold;
use crate::history::NEVER;
use crate::history::Operation;
use crate::kind::LockKind;
use crate::kind::Share;

/// What a clock of milliseconds, and a key that is looked at late, may add to that.
const SLACK: u64 = 100_000_000;
/// For how many nanoseconds the place of a killed waiter stays in the line, and after that the lock
/// reserved for it.
const PLACE: u64 = 13_500_000_000;

pub(super) fn check(history: &History, holds: &BTreeMap<String, Hold>, verdict: &mut Verdict) {
    for ((kind, name), ops) in by_name(history, holds) {
        verdict.operations.extend(ops.iter().map(|op| op.line(&name, kind)));
        verdict.denials +=
            ops.iter().filter(|op| matches!(op.step, Step::Deny { .. })).count() as u64;
        match kind.order(&ops) {
            Found::Order => {}
            Found::Nothing { stuck } => {
                let lock = kind.what_it_is();
                let what = format!("no {lock} answers like this: {} has no place", ops[stuck].says);
                verdict.wrong(ops[stuck].called, &name, what);
            }
            Found::GaveUp => verdict.undecided += 1,
        }
    }
}

/// What was done to the lock of each name, by the times of the calls.
fn by_name(
    history: &History,
    holds: &BTreeMap<String, Hold>,
) -> BTreeMap<(LockKind, String), Vec<Op>> {
    let mut names: BTreeMap<(LockKind, &str), Vec<&Operation>> = BTreeMap::new();
    let operations = history.operations();
    for operation in &operations {
        names.entry((operation.kind, &operation.name)).or_default().push(operation);
    }
    let build = Build::new(history, holds);
    let all = |((kind, name), operations): ((LockKind, &str), Vec<&Operation>)| {
        let ops = match kind {
            LockKind::Latch => latches::all(history, name, &operations),
            _ => build.all(&operations),
        };
        ((kind, name.to_owned()), ops)
    };
    names.into_iter().map(all).collect()
}

struct Build<'a> {
    history: &'a History,
    holds: &'a BTreeMap<String, Hold>,
    numbers: HashMap<&'a str, usize>,
}

impl<'a> Build<'a> {
    fn new(history: &'a History, holds: &'a BTreeMap<String, Hold>) -> Self {
        let numbers = holds.keys().enumerate().map(|(number, id)| (id.as_str(), number)).collect();
        Self { history, holds, numbers }
    }

    fn all(&self, operations: &[&Operation]) -> Vec<Op> {
        let ghosts: Vec<&&Operation> =
            operations.iter().filter(|operation| self.is_ghost(operation)).collect();
        let mut ops: Vec<Op> = Vec::new();
        for operation in operations {
            let denied = matches!(operation.ended, Some((_, How::Denied)));
            if denied && !operation.kind.denies_only_what_is_held() {
                continue;
            }
            if denied
                && (ghosts.iter().any(|ghost| self.may_be_in_the_way(ghost, operation))
                    || operations.iter().any(|other| self.is_asked_before(other, operation)))
            {
                continue;
            }
            ops.extend(if denied {
                Some(self.denial(operation, operations))
            } else {
                self.op(operation)
            });
            ops.extend(self.failed_downgrade(operation));
            if let Some((_, How::Granted { hold, .. })) = &operation.ended
                && operation.what.is_acquire()
            {
                ops.push(self.end_of(&self.holds[hold]));
            }
        }
        // What was certainly released has not ended by itself.
        let released: HashSet<usize> = ops.iter().filter_map(Op::certainly_released).collect();
        ops.retain(|op| !matches!(op.step, Step::Gone(hold) if released.contains(&hold)));
        ops.sort_by_key(|op| op.called);
        ops
    }

    /// An attempt whose grant nobody heard of, if there was one. A wait may end while its last
    /// attempt is on its way. And a grant that was not picked up for a third of its lease, or was
    /// not answered, is given back and tried for again.
    fn is_ghost(&self, operation: &Operation) -> bool {
        let troubled = |at: u64| {
            let between = |(when, _): &(u64, String)| operation.called <= *when && *when <= at;
            at - operation.called > self.history.lease / 3 || self.history.harm.iter().any(between)
        };
        let unheard = match &operation.ended {
            Some((at, How::Granted { .. })) => troubled(*at),
            Some((at, How::Denied)) => !operation.what.is_try() || troubled(*at),
            _ => true,
        };
        operation.what.is_acquire() && unheard
    }

    /// A lease after its end such an attempt may still be granted, by its `not_after`; and a lease
    /// after that the key is there. Unless what was tried for was granted after all, and lets nobody
    /// else in: then nothing from before it is left. Of permits and reads, an earlier attempt may
    /// still have some, until it is undone. A killed process that waited has left its place in the line: as long
    /// as that is there, the lock may be reserved for it.
    fn may_be_in_the_way(&self, ghost: &Operation, denied: &Operation) -> bool {
        let died = self.history.processes[ghost.process].died.unwrap_or(NEVER);
        let until = match &ghost.ended {
            Some((at, How::Granted { .. })) if !ghost.kind.admits_several() => *at,
            Some((at, _)) => at.saturating_add(2 * self.history.lease + SLACK),
            None if ghost.what.is_try() => died.saturating_add(2 * self.history.lease + SLACK),
            None => died.saturating_add(2 * self.history.lease + PLACE + SLACK),
        };
        let asked = denied.ended.as_ref().map_or(NEVER, |(at, _)| *at);
        ghost.called <= asked && denied.called <= until
    }

    /// Whatever the same client still asks for, a release included, counts as an answer, its last
    /// one's. What is asked for by dropping a guard goes on unseen.
    fn is_asked_before(&self, other: &Operation, denied: &Operation) -> bool {
        let ended = match &other.ended {
            Some((at, _)) if other.what == What::DropGuard => at.saturating_add(self.history.lease),
            Some((at, _)) => *at,
            None => NEVER,
        };
        other.process == denied.process && other.called < denied.called && ended > denied.called
    }

    /// The hold may end by itself.
    fn end_of(&self, hold: &Hold) -> Op {
        let breach = hold.breach(&self.history.breaches).map_or(NEVER, |breach| breach.from);
        // While a server was away, a hold on several servers may have been lost: the worker says so.
        let told = hold.lost.as_ref().and(hold.breach(&self.history.outages));
        let told = told.map_or(NEVER, |_| hold.seen_held);
        let called = hold.until.min(breach.max(hold.called)).min(told);
        let says = format!("the end of {}", hold.id);
        let step = Step::Gone(self.numbers[hold.id.as_str()]);
        Op { step, called, ended: NEVER, strict: false, says }
    }

    /// A want does not overtake a larger one that waits meanwhile, so it may be refused as if it
    /// asked for as much. An upgrade asks only for what nobody has.
    fn denial(&self, denied: &Operation, operations: &[&Operation]) -> Op {
        let (called, ended) = (denied.called, denied.ended.as_ref().map_or(NEVER, |(at, _)| *at));
        let meanwhile = |other: &&&Operation| {
            let until = other.ended.as_ref().map_or(NEVER, |(at, _)| *at);
            other.what.is_acquire() && other.called <= ended && called <= until
        };
        let waits = |other: &&&Operation| !other.what.is_try() && meanwhile(other);
        let wanted = operations.iter().filter(waits).map(|other| other.share);
        let share = wanted.chain([denied.share]).max().unwrap_or(denied.share);
        let beside = self.numbers.get(denied.hold.as_str()).copied();
        let says = format!("{} denied", denied.what);
        Op { step: Step::Deny { share, beside }, called, ended, strict: true, says }
    }

    /// Whether the read that an upgrade is beside was surely there. Where two servers answer it may
    /// have ended on one of them.
    fn is_beside_for_sure(&self, hold: &Hold) -> bool {
        let read = hold.beside.as_ref().and_then(|id| self.holds.get(id));
        let breach = read.and_then(|read| read.breach(&self.history.breaches));
        breach.is_none_or(|breach| !breach.two_servers)
    }

    /// It may have become a read, and be gone later.
    fn failed_downgrade(&self, operation: &Operation) -> Option<Op> {
        let failed = matches!(operation.ended, Some((_, How::Failed(_))));
        let number = *self.numbers.get(operation.hold.as_str())?;
        let says = format!("the end of {}", operation.hold);
        let (called, step) = (operation.called, Step::Release(number));
        (failed && operation.what == What::Downgrade).then_some(Op {
            step,
            called,
            ended: NEVER,
            strict: false,
            says,
        })
    }

    fn op(&self, operation: &Operation) -> Option<Op> {
        let called = operation.called;
        let (ended, how) = match &operation.ended {
            Some((at, how)) => (*at, Some(how)),
            None => (NEVER, None),
        };
        let says = |hold: &str| format!("{} {hold}", operation.what);
        if operation.what.is_acquire() {
            let Some(How::Granted { hold: id, token, .. }) = how else { return None };
            let (hold, strict) = (&self.holds[id], self.is_beside_for_sure(&self.holds[id]));
            let number = |id: &String| self.numbers.get(id.as_str()).copied();
            let step = Step::Grant {
                hold: self.numbers[id.as_str()],
                token: *token,
                share: operation.share,
                beside: hold.beside.as_ref().and_then(number),
            };
            return Some(Op { step, called, ended, strict, says: says(id) });
        }
        let hold = self.holds.get(&operation.hold)?;
        let number = self.numbers[hold.id.as_str()];
        let breach = hold.breach(&self.history.breaches);
        let twice = hold.released_twice(self.history);
        let sound = breach.is_none_or(|breach| !breach.two_servers && !twice);
        let says = says(&hold.id);
        let confirmed = sound && operation.what != What::DropGuard && how == Some(&How::Released);
        let (ended, strict, step) = match (operation.what, operation.share) {
            (What::Nested, share) => {
                let Some(How::Granted { .. }) = how else { return None };
                (ended, sound, Step::Nest(number, share))
            }
            (What::Downgrade, _) => {
                let ended = if how == Some(&How::Released) { ended } else { NEVER };
                (ended, confirmed, Step::Downgrade(number))
            }
            (_, Share::NOTHING) => {
                let ended = if confirmed { ended } else { NEVER };
                (ended, confirmed, Step::Release(number))
            }
            (_, share) => (ended, confirmed, Step::Leave(number, share)),
        };
        Some(Op { step, called, ended, strict, says })
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::examples::Made;
    use crate::event::How;
    use crate::event::What;

    fn no_order(made: &Made) -> bool {
        made.wrong().iter().any(|what| what.contains("no mutex answers like this"))
    }

    #[test]
    fn two_grants_without_a_release_have_no_order() {
        let mut made = Made::default();
        // Nobody looked, so that intervals alone do not show it.
        made.grant("a:1", 0, 10, 1)
            .grant("b:1", 0, 10, 2)
            .unlock("a:1", 11, 12, 0)
            .unlock("b:1", 11, 12, 0);
        assert!(no_order(&made));
    }

    #[test]
    fn a_release_frees_the_lock_at_any_time_of_its_call() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).unlock("a:1", 11, 50, 0).grant("b:1", 5, 20, 2);
        made.unlock("b:1", 21, 22, 0).grant("c:1", 15, 25, 3).unlock("c:1", 26, 60, 0);
        assert_eq!(made.wrong(), [""; 0]);
    }

    #[test]
    fn a_refusal_needs_somebody_who_holds() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).unlock("a:1", 11, 12, 0).denied("b", 13, 14);
        assert!(no_order(&made));
        // One that waits in the same process is in the way.
        made.grant("b:1", 12, 20, 2).unlock("b:1", 21, 22, 0);
        assert_eq!((made.wrong(), made.verdict().denials), (vec![], 0));
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).unlock("a:1", 11, 12, 0).denied("b", 13, 14);
        // Whoever was never answered may have been it, for some time after it is dead.
        made.call("c", 0, What::Lock, "-", 1, None);
        assert!(!no_order(&made));
        assert_eq!(made.verdict().denials, 0);
        let mut made = Made::default();
        made.call("c", 0, What::Try, "-", 1, None).dies("c", 5);
        made.grant("a:1", 300_000_000, 300_000_010, 1).unlock("a:1", 300_000_011, 300_000_012, 0);
        made.denied("b", 300_000_013, 300_000_014);
        assert!(no_order(&made));
        // The place of one that waited is there for longer.
        let after_death = |at: u64| {
            let mut made = Made::default();
            made.call("c", 0, What::Lock, "-", 1, None).dies("c", 5);
            made.grant("a:1", at, at + 10, 1).unlock("a:1", at + 11, at + 12, 0);
            made.denied("b", at + 13, at + 14);
            no_order(&made)
        };
        assert!(!after_death(300_000_000));
        assert!(after_death(15_000_000_000));
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).denied("b", 13, 14).unlock("a:1", 20, 22, 0);
        assert_eq!(made.wrong(), [""; 0]);
    }

    #[test]
    fn a_dropped_guard_may_be_released_later_or_never() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).call(
            "a",
            20,
            What::DropGuard,
            "a:1",
            0,
            Some((21, How::Released)),
        );
        made.denied("b", 30, 40).grant("b:1", 41, 50, 2).unlock("b:1", 51, 52, 0);
        assert_eq!(made.wrong(), [""; 0]);
    }

    #[test]
    fn a_hold_ends_by_itself_only_when_its_time_is_over() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).grant("b:1", 20, 120, 2).unlock("b:1", 121, 122, 0);
        assert_eq!(made.wrong(), [""; 0]);
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).grant("b:1", 20, 90, 2).unlock("b:1", 91, 92, 0);
        assert!(no_order(&made));
        made.breach(50, 60);
        assert!(!no_order(&made));
    }

    #[test]
    fn the_release_of_what_is_gone_cannot_be_confirmed() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).grant("b:1", 20, 120, 2).unlock("a:1", 121, 122, 0);
        made.unlock("b:1", 123, 124, 0);
        assert!(no_order(&made));
    }

    #[test]
    fn levels_are_counted() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).nested("a:1", 11, 12, 1, 2).unlock("a:1", 13, 14, 1);
        made.nested("a:1", 15, 16, 1, 2).unlock("a:1", 17, 18, 1).unlock("a:1", 19, 20, 0);
        assert_eq!(made.wrong(), [""; 0]);
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).nested("a:1", 11, 12, 1, 3).unlock("a:1", 13, 14, 0);
        assert!(no_order(&made));
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).unlock("a:1", 11, 12, 0).nested("a:1", 13, 14, 1, 2);
        assert!(no_order(&made));
    }

    #[test]
    fn the_fence_grows_from_grant_to_grant() {
        let mut made = Made::default();
        // Their calls overlap, so that only the order of holding shows it: a must have been first.
        made.grant("a:1", 0, 10, 2).unlock("a:1", 11, 12, 0).grant("b:1", 5, 13, 1);
        made.unlock("b:1", 14, 15, 0);
        assert!(no_order(&made));
    }
}
