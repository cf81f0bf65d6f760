//! A semaphore of `PERMITS` permits, each of them leased.

use std::collections::BTreeMap;

use crate::checks::kinds::Automaton;
use crate::checks::linear::Op;
use crate::checks::linear::Step;
use crate::kind::PERMITS;

/// How many permits each hold has, and the last token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Semaphore {
    permits: BTreeMap<usize, u32>,
    fence: u64,
}

impl Semaphore {
    fn has_room_for(&self, wanted: u32) -> bool {
        self.permits.values().sum::<u32>() + wanted <= PERMITS
    }
}

impl Automaton for Semaphore {
    fn after(&self, op: &Op) -> Option<Self> {
        let mut after = self.clone();
        match op.step {
            Step::Grant { hold, token, share, beside: None }
                if self.has_room_for(share.exclusive) && token > self.fence =>
            {
                after.permits.insert(hold, share.exclusive);
                after.fence = token;
                Some(after)
            }
            Step::Release(hold) | Step::Gone(hold) => {
                after.permits.remove(&hold)?;
                Some(after)
            }
            Step::Deny { share, .. } if !self.has_room_for(share.exclusive) => Some(after),
            _ => None,
        }
    }

    fn in_the_way(&self, op: &Op) -> Vec<Vec<usize>> {
        let Step::Grant { share, .. } = op.step else { return Vec::new() };
        // There are no more holds than permits.
        let choices = (0..1_u32 << self.permits.len()).map(|chosen| {
            let holds = self.permits.keys().enumerate();
            holds.filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, hold)| *hold).collect()
        });
        let makes_room = |holds: &Vec<usize>| {
            let rest = self.permits.iter().filter(|(hold, _)| !holds.contains(hold));
            rest.map(|(_, has)| has).sum::<u32>() + share.exclusive <= PERMITS
        };
        choices.filter(makes_room).collect()
    }

    fn is_held_by(&self, hold: usize) -> bool {
        self.permits.contains_key(&hold)
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::examples::Made;
    use crate::event::What;
    use crate::kind::LockKind;
    use crate::kind::Share;

    fn permits() -> Made {
        let mut made = Made::default();
        made.kind = LockKind::Semaphore;
        made
    }

    fn no_order(made: &Made) -> bool {
        made.wrong().iter().any(|what| what.contains("no semaphore answers like this"))
    }

    #[test]
    fn all_permits_are_held_at_once_and_others_are_denied_meanwhile() {
        let mut made = permits();
        made.of(Share::levels(2)).grant("a:1", 0, 10, 1).denied("c", 11, 12);
        made.of(Share::ONE).grant("b:1", 13, 20, 2).denied("c", 30, 40);
        made.look("a:1", 41, true, 110).look("b:1", 41, true, 120).unlock("a:1", 45, 50, 0);
        made.of(Share::levels(2)).grant("c:1", 46, 60, 3);
        made.unlock("b:1", 61, 62, 0).unlock("c:1", 63, 64, 0);
        assert_eq!(made.wrong(), [""; 0]);
        assert_eq!((made.verdict().grants, made.verdict().denials), (3, 2));
    }

    #[test]
    fn more_permits_than_there_are_are_found() {
        let mut made = permits();
        made.of(Share::levels(2)).grant("a:1", 0, 10, 1).grant("b:1", 11, 20, 2);
        made.says("a:1 and b:1 hold at once");
        assert!(no_order(&made));
    }

    #[test]
    fn grants_of_more_than_there_are_have_no_order_whatever_guards_say() {
        let mut made = permits();
        made.of(Share::levels(2)).grant("a:1", 0, 10, 1).grant("b:1", 0, 10, 2);
        made.unlock("a:1", 11, 12, 0).unlock("b:1", 11, 12, 0);
        assert!(no_order(&made));
    }

    #[test]
    fn a_refusal_needs_too_little_room() {
        let mut made = permits();
        made.grant("a:1", 0, 10, 1).denied("c", 20, 21).unlock("a:1", 30, 31, 0);
        assert!(no_order(&made));
        // Unless somebody waits for more: a smaller want must not overtake it.
        made.of(Share::levels(3)).grant("b:1", 15, 40, 2).unlock("b:1", 41, 42, 0);
        assert_eq!(made.wrong(), [""; 0]);
    }

    #[test]
    fn an_earlier_attempt_of_what_was_granted_late_may_still_have_permits() {
        let after_grant = |took: u64| {
            let mut made = permits();
            made.grant("a:1", 0, took, 1).denied("c", 360, 361).unlock("a:1", 370, 371, 0);
            no_order(&made)
        };
        assert!(after_grant(330));
        assert!(!after_grant(340), "longer than a third of a lease");
    }

    #[test]
    fn a_hold_that_ended_by_itself_gives_its_permits_back_only_when_its_time_is_over() {
        let mut made = permits();
        made.of(Share::levels(3)).grant("a:1", 0, 10, 1).grant("b:1", 20, 120, 2);
        made.unlock("b:1", 121, 122, 0);
        assert_eq!(made.wrong(), [""; 0]);
        let mut made = permits();
        made.of(Share::levels(3)).grant("a:1", 0, 10, 1).grant("b:1", 20, 90, 2);
        made.unlock("b:1", 91, 92, 0);
        assert!(no_order(&made));
    }

    #[test]
    fn a_breach_excuses_permits_too_many_and_their_holder_must_be_told() {
        let three = || {
            let mut made = permits();
            made.of(Share::levels(3)).grant("a:1", 0, 10, 1).breach(12, 13);
            made.of(Share::ONE).grant("b:1", 15, 20, 2).look("a:1", 35, true, 110);
            made.unlock("b:1", 50, 51, 0);
            made
        };
        let mut made = three();
        made.unlock_lost("a:1", 60, 61);
        assert_eq!((made.wrong(), made.verdict().overlaps), (vec![], 1));
        let mut made = three();
        made.unlock("a:1", 60, 61, 0);
        made.says("a:1 lost to b:1 in a breach, and its release was confirmed");
    }

    #[test]
    fn permits_have_no_levels() {
        let mut made = permits();
        made.grant("a:1", 0, 10, 1).call("a", 11, What::Nested, "a:1", 2, None);
        made.nested("a:1", 12, 13, 1, 2);
        assert!(no_order(&made));
    }
}
