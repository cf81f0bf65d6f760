//! What callers of a single flight are given.

use std::collections::HashMap;

use crate::checks::Verdict;
use crate::event::How;
use crate::event::What;
use crate::history::History;
use crate::history::NEVER;
use crate::store::Which;

/// Who is given a value that it has not computed itself, is given one that the store had at some
/// time between its call and the answer: it was looked for, or computed, in that time. That only one
/// computes at a time is checked where holds are.
pub(super) fn check(history: &History, verdict: &mut Verdict) {
    // When each value was written, by name. The first one is 1.
    let mut written: HashMap<&str, Vec<u64>> = HashMap::new();
    for access in &history.accesses {
        if access.which == Which::Fenced && access.base.is_some() && !access.refused {
            written.entry(&access.name).or_default().push(access.at);
        }
    }
    for operation in history.operations() {
        let (What::Run, Some((ended, How::Answered(value)))) = (operation.what, &operation.ended)
        else {
            continue;
        };
        verdict.values += 1;
        let written = written.get(operation.name.as_str()).map_or(&[][..], Vec::as_slice);
        let at = |value: u64| {
            usize::try_from(value).ok()?.checked_sub(1).and_then(|it| written.get(it)).copied()
        };
        let (from, to) = (at(*value).unwrap_or(NEVER), at(value + 1).unwrap_or(NEVER));
        if from > *ended || to < operation.called {
            let what =
                format!("a caller was given the value {value}, which was not there meanwhile");
            verdict.wrong(*ended, &operation.name, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::examples::Made;
    use crate::event::How;
    use crate::event::What;
    use crate::kind::LockKind;
    use crate::store::Access;
    use crate::store::Which;

    /// Values are written at 10, 20 and 30; a caller asks from 15 to 25.
    fn given(value: u64) -> Made {
        let mut made = Made::default();
        made.kind = LockKind::Flight;
        for version in 0..3 {
            let (name, hold) = ("a".to_owned(), format!("a:{version}"));
            let (at, which, token) = (10 + 10 * version, Which::Fenced, version);
            let base = Some(version);
            let access = Access { at, which, name, hold, token, base, version, refused: false };
            made.history.accesses.push(access);
        }
        made.call("b", 15, What::Run, "-", 1, Some((25, How::Answered(value))));
        made
    }

    #[test]
    fn callers_are_given_values_that_were_there_between_call_and_answer() {
        for value in [1, 2] {
            assert_eq!((given(value).wrong(), given(value).verdict().values), (vec![], 1));
        }
        // Not yet, never, and no more.
        for value in [0, 3, 4] {
            given(value).says("which was not there meanwhile");
        }
        let mut made = given(1);
        made.call("b", 21, What::Run, "-", 1, Some((25, How::Answered(1))));
        made.says("which was not there meanwhile");
    }

    #[test]
    fn two_that_compute_at_once_are_found() {
        let mut made = Made::default();
        made.kind = LockKind::Flight;
        made.grant("a:1", 0, 10, 1).grant("b:1", 20, 30, 2);
        made.says("a:1 and b:1 hold at once");
        made.says("no single flight answers like this");
    }

    #[test]
    fn one_may_compute_after_the_other() {
        let mut made = Made::default();
        made.kind = LockKind::Flight;
        made.grant("a:1", 0, 10, 1).call("a", 20, What::DropGuard, "a:1", 0, None);
        made.grant("b:1", 20, 30, 2).call("b", 40, What::DropGuard, "b:1", 0, None);
        assert_eq!(made.wrong(), [""; 0]);
    }
}
