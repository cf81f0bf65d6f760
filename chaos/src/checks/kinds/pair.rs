//! A lock that two may hold at once, for tests: an example of what a kind adds.

use std::collections::BTreeMap;

use crate::checks::kinds::Automaton;
use crate::checks::linear::Op;
use crate::checks::linear::Step;

/// The depth of each hold, and the last token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    depths: BTreeMap<usize, u32>,
    fence: u64,
}

impl Pair {
    /// The same with another depth of this hold, which has `depth` now.
    fn with(&self, hold: usize, depth: u32, wanted: u32) -> Option<Self> {
        let mut after = self.clone();
        if after.depths.remove(&hold) != Some(depth) {
            return None;
        }
        if wanted > 0 {
            after.depths.insert(hold, wanted);
        }
        Some(after)
    }
}

impl Automaton for Pair {
    fn after(&self, op: &Op) -> Option<Self> {
        match op.step {
            Step::Grant { hold, token, .. } if self.depths.len() < 2 && token > self.fence => {
                let mut after = self.clone();
                after.depths.insert(hold, 1);
                after.fence = token;
                Some(after)
            }
            Step::Nest(hold, share) => self.with(hold, share.total() - 1, share.total()),
            Step::Leave(hold, share) => self.with(hold, share.total() + 1, share.total()),
            Step::Release(hold) => self.with(hold, 1, 0),
            Step::Gone(hold) => self.depths.get(&hold).and_then(|depth| self.with(hold, *depth, 0)),
            Step::Deny { .. } if self.depths.len() == 2 => Some(self.clone()),
            _ => None,
        }
    }

    fn in_the_way(&self, op: &Op) -> Vec<Vec<usize>> {
        let is_grant = matches!(op.step, Step::Grant { .. });
        self.depths.keys().filter(|_| is_grant).map(|hold| vec![*hold]).collect()
    }

    fn is_held_by(&self, hold: usize) -> bool {
        self.depths.contains_key(&hold)
    }
}

mod tests {
    use crate::checks::examples::Made;
    use crate::kind::LockKind;

    fn pair() -> Made {
        let mut made = Made::default();
        made.kind = LockKind::Pair;
        made
    }

    fn no_order(made: &Made) -> bool {
        made.wrong().iter().any(|what| what.contains("no pair answers like this"))
    }

    #[test]
    fn two_hold_it_at_once_and_others_are_denied_meanwhile() {
        let mut made = pair();
        made.grant("a:1", 0, 10, 1).grant("b:1", 11, 20, 2).look("a:1", 25, true, 110);
        made.denied("c", 30, 40).nested("b:1", 41, 42, 2, 2).unlock("b:1", 43, 44, 1);
        made.unlock("a:1", 45, 50, 0).grant("c:1", 46, 60, 3);
        made.unlock("b:1", 61, 62, 0).unlock("c:1", 63, 64, 0);
        assert_eq!(made.wrong(), [""; 0]);
        assert_eq!((made.verdict().grants, made.verdict().denials), (3, 1));
    }

    #[test]
    fn three_valid_holds_at_once_are_found() {
        let mut made = pair();
        made.grant("a:1", 0, 10, 1).grant("b:1", 11, 20, 2).grant("c:1", 21, 30, 3);
        made.says("a:1 and b:1 and c:1 hold at once");
        assert!(no_order(&made));
    }

    #[test]
    fn three_grants_without_a_release_have_no_order() {
        let mut made = pair();
        made.grant("a:1", 0, 10, 1).grant("b:1", 0, 10, 2).grant("c:1", 0, 10, 3);
        for hold in ["a:1", "b:1", "c:1"] {
            made.unlock(hold, 11, 12, 0);
        }
        assert!(no_order(&made));
    }

    #[test]
    fn a_refusal_needs_two_who_hold() {
        let mut made = pair();
        made.grant("a:1", 0, 10, 1).denied("c", 20, 21).unlock("a:1", 30, 31, 0);
        assert!(no_order(&made));
    }

    #[test]
    fn a_breach_excuses_one_hold_too_many_and_the_lost_one_must_be_told() {
        let mut made = pair();
        made.grant("a:1", 0, 10, 1).breach(12, 13).grant("b:1", 15, 20, 2).grant("c:1", 21, 30, 3);
        made.look("a:1", 35, true, 110).unlock_lost("a:1", 40, 41);
        made.unlock("b:1", 50, 51, 0).unlock("c:1", 52, 53, 0);
        assert_eq!((made.wrong(), made.verdict().overlaps), (vec![], 1));
    }

    #[test]
    fn a_breach_that_takes_one_of_two_away_leaves_the_other_to_be_released() {
        let three = || {
            let mut made = pair();
            made.grant("a:1", 0, 10, 1).grant("b:1", 11, 20, 2).breach(22, 23);
            made.grant("c:1", 25, 30, 3).look("a:1", 35, true, 110).look("b:1", 36, true, 110);
            made.unlock("b:1", 50, 51, 0).unlock("c:1", 52, 53, 0);
            made
        };
        let mut made = three();
        made.unlock_lost("a:1", 60, 61);
        assert_eq!(made.wrong(), [""; 0]);
        let mut made = three();
        made.unlock("a:1", 60, 61, 0);
        made.says("a:1 lost to c:1 in a breach, and its release was confirmed");
    }

    #[test]
    fn a_name_of_another_kind_is_another_name() {
        let mut made = pair();
        made.grant("a:1", 0, 10, 1).grant("b:1", 11, 20, 2);
        made.kind = LockKind::Reentrant;
        made.grant("c:1", 21, 30, 1).unlock("c:1", 31, 32, 0);
        assert_eq!(made.wrong(), [""; 0]);
    }
}
