//! The counters: an update is lost if it was made on top of a version that was no longer the last
//! one.

use std::collections::BTreeMap;
use std::collections::HashMap;

use crate::checks::Verdict;
use crate::history::History;
use crate::history::Hold;
use crate::store::Access;
use crate::store::Which;

/// Where tokens are checked no update is ever lost, and nobody who surely holds is refused. Where
/// they are not, one of the two writers of a lost update was too late, or had lost its hold in a
/// breach.
pub(super) fn check(history: &History, holds: &BTreeMap<String, Hold>, verdict: &mut Verdict) {
    let mut counters: HashMap<(Which, &str), Counter<'_>> = HashMap::new();
    for access in &history.accesses {
        let hold = holds.get(&access.hold);
        let sure = hold.is_some_and(|hold| is_sure(history, hold, access));
        if access.refused {
            verdict.refused += 1;
            if sure {
                let what =
                    format!("{} holds, and its token {} was refused", access.hold, access.token);
                verdict.wrong(access.at, &access.name, what);
            }
            continue;
        }
        let counter = counters.entry((access.which, &access.name)).or_default();
        let Some(base) = access.base else {
            counter.reads.insert(&access.hold, sure);
            continue;
        };
        verdict.writes += 1;
        let sure = sure && counter.reads.get(access.hold.as_str()).copied().unwrap_or(false);
        if base != access.version {
            verdict.lost_updates += 1;
            let lost = usize::try_from(base).map_or(&[][..], |base| &counter.writes[base..]);
            let other =
                lost.iter().find(|(_, other_sure)| access.which == Which::Fenced || *other_sure);
            if let Some((other, _)) = other.filter(|_| access.which == Which::Fenced || sure) {
                let what = format!(
                    "{} wrote over what {} had written in between",
                    access.hold, other.hold
                );
                verdict.wrong(access.at, &access.name, what);
            }
        }
        counter.writes.push((access, sure));
    }
}

#[derive(Default)]
struct Counter<'a> {
    /// Who read last within a hold, and whether it surely held then.
    reads: HashMap<&'a str, bool>,
    writes: Vec<(&'a Access, bool)>,
}

fn is_sure(history: &History, hold: &Hold, access: &Access) -> bool {
    let within = hold.granted <= access.at && access.at < hold.sure_until();
    within && hold.breach(&history.breaches).is_none_or(|breach| breach.from > access.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::examples::Made;

    fn access(hold: &str, at: u64, token: u64, base: Option<u64>, version: u64) -> Access {
        let (name, hold) = ("a".to_owned(), hold.to_owned());
        Access { at, which: Which::Trusting, name, hold, token, base, version, refused: false }
    }

    /// Two holds, one after the other: the second begins when the first has run out.
    fn two() -> Made {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).look("a:1", 60, true, 110).grant("b:1", 20, 120, 2);
        made.look("b:1", 190, true, 220);
        made
    }

    #[test]
    fn an_update_lost_among_writers_that_hold_is_found() {
        // As if the clock of the store were wrong: both are within their holds.
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).look("a:1", 60, true, 110).grant("b:1", 20, 50, 2);
        made.history.accesses = vec![
            access("a:1", 20, 1, None, 0),
            access("b:1", 60, 2, None, 0),
            access("a:1", 70, 1, Some(0), 0),
            access("b:1", 80, 2, Some(0), 1),
        ];
        made.says("wrote over");
        made.breach(30, 40);
        assert!(!made.wrong().iter().any(|what| what.contains("wrote over")), "{:?}", made.wrong());
        assert_eq!(made.verdict().lost_updates, 1);
    }

    /// The first holder writes over what the second has written, after its own time.
    fn late_write() -> Vec<Access> {
        vec![
            access("a:1", 20, 1, None, 0),
            access("b:1", 130, 2, None, 0),
            access("b:1", 131, 2, Some(0), 0),
            access("a:1", 132, 1, Some(0), 1),
        ]
    }

    #[test]
    fn a_write_after_valid_until_may_be_lost_or_harm_others() {
        let mut made = two();
        made.history.accesses = late_write();
        assert_eq!((made.wrong(), made.verdict().lost_updates), (vec![], 1));
    }

    #[test]
    fn where_tokens_are_checked_nothing_excuses_a_lost_update() {
        let mut made = two();
        made.history.accesses = late_write();
        for access in &mut made.history.accesses {
            access.which = Which::Fenced;
        }
        made.says("a:1 wrote over what b:1");
        made.history.accesses[3].refused = true;
        assert_eq!((made.wrong(), made.verdict().refused), (vec![], 1));
    }

    #[test]
    fn nobody_who_holds_is_refused() {
        let mut made = two();
        let mut refused = access("b:1", 130, 2, None, 0);
        (refused.which, refused.refused) = (Which::Fenced, true);
        made.history.accesses = vec![refused];
        made.says("was refused");
    }
}
