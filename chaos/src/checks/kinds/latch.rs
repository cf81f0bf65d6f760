//! A count-down latch.

use crate::checks::kinds::Automaton;
use crate::checks::linear::Latch as Did;
use crate::checks::linear::Op;
use crate::checks::linear::Step;

/// Its count, 0 if there is none, and which call has set it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Latch {
    count: u64,
    set: usize,
}

impl Latch {
    const NONE: Self = Self { count: 0, set: 0 };

    /// This count, if it goes together with the answer of the call, or if the call had none.
    fn answers(self, is_answer: bool, no_answer: bool) -> Option<Self> {
        (is_answer || no_answer).then_some(self)
    }
}

impl Automaton for Latch {
    fn after(&self, op: &Op) -> Option<Self> {
        let Step::Latch(did) = op.step else { return None };
        let is_there = self.count > 0;
        match did {
            Did::Set { number, count, done } => {
                let after = if is_there { *self } else { Self { count, set: number } };
                after.answers(done == Some(!is_there), done.is_none())
            }
            Did::Down { left } => {
                let count = self.count.saturating_sub(1);
                let after = if count > 0 { Self { count, ..*self } } else { Self::NONE };
                after.answers(left == Some(count), left.is_none())
            }
            Did::Delete { done } => Self::NONE.answers(done == Some(is_there), done.is_none()),
            Did::Count(count) => self.answers(count == self.count, false),
            Did::Over(number) => Self::NONE.answers(is_there && self.set == number, false),
            Did::Forgotten => Some(Self::NONE),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::examples::Made;
    use crate::event::How;
    use crate::event::What;
    use crate::kind::LATCH_LIFE;
    use crate::kind::LockKind;
    use crate::kind::Share;

    const SET: What = What::SetCount;
    const DOWN: What = What::CountDown;
    const WAIT: What = What::Wait;

    /// Calls of processes of their own, one after the other: what, a count, and the answer.
    fn latch(calls: &[(What, u32, Option<u64>)]) -> Made {
        let mut made = Made::default();
        made.kind = LockKind::Latch;
        for (at, (what, count, answer)) in calls.iter().enumerate() {
            add(&mut made, 10 * at as u64, *what, *count, *answer);
        }
        made
    }

    fn add(made: &mut Made, at: u64, what: What, count: u32, answer: Option<u64>) {
        let end = answer.map(|answer| (at + 5, How::Answered(answer)));
        made.call_for("a", at, what, "-", Share::levels(count), end);
    }

    fn no_order(made: &Made) -> bool {
        made.wrong().iter().any(|what| what.contains("no latch answers like this"))
    }

    #[test]
    fn each_count_down_counts_once_and_a_wait_ends_at_0() {
        let good = [
            (WAIT, 0, Some(0)),
            (SET, 2, Some(1)),
            (SET, 3, Some(0)),
            (DOWN, 0, Some(1)),
            (What::Count, 0, Some(1)),
            (DOWN, 0, Some(0)),
            (WAIT, 0, Some(0)),
            (DOWN, 0, Some(0)),
            (What::Delete, 0, Some(0)),
            (SET, 1, Some(1)),
            (What::Delete, 0, Some(1)),
            (WAIT, 0, Some(0)),
        ];
        assert_eq!(latch(&good).wrong(), [""; 0]);
    }

    #[test]
    fn wrong_answers_are_found() {
        for bad in [
            // A wait that ends too early.
            &[(SET, 2, Some(1)), (DOWN, 0, Some(1)), (WAIT, 0, Some(0))][..],
            // A call that counts twice, and one that does not count.
            &[(SET, 3, Some(1)), (DOWN, 0, Some(1))],
            &[(SET, 3, Some(1)), (DOWN, 0, Some(2)), (DOWN, 0, Some(2))],
            // Two that have set it.
            &[(SET, 2, Some(1)), (SET, 2, Some(1))],
            // None that has, though there is none.
            &[(SET, 2, Some(0))],
            &[(What::Delete, 0, Some(1))],
            &[(SET, 2, Some(1)), (What::Count, 0, Some(1))],
        ] {
            assert!(no_order(&latch(bad)), "{bad:?}");
        }
    }

    #[test]
    fn what_was_not_answered_may_have_been_done_once_or_not() {
        for (left, good) in [(2, true), (1, true), (0, false)] {
            let calls = [(SET, 3, Some(1)), (DOWN, 0, None), (DOWN, 0, Some(left))];
            assert_eq!(no_order(&latch(&calls)), !good, "{left}");
        }
        // It may be done later as well, but not earlier.
        let early = [(SET, 3, Some(1)), (DOWN, 0, Some(1)), (DOWN, 0, None)];
        assert!(no_order(&latch(&early)));
    }

    #[test]
    fn only_lost_data_makes_a_latch_vanish() {
        let lost = [(SET, 3, Some(1)), (WAIT, 0, Some(0))];
        let mut made = latch(&lost);
        assert!(no_order(&made));
        made.breach(11, 12);
        assert_eq!(made.wrong(), [""; 0]);
        let mut made = latch(&lost);
        made.breach(100, 101);
        assert!(no_order(&made));
    }

    #[test]
    fn a_call_during_lost_data_may_be_done_twice_and_others_once() {
        let twice = |breach: (u64, u64)| {
            let mut made = latch(&[(SET, 3, Some(1)), (DOWN, 0, Some(2))]);
            made.breach(breach.0, breach.1);
            let set = Some((40, How::Answered(1)));
            made.call_for("b", 0, SET, "-", Share::levels(3), set);
            made
        };
        assert_eq!(twice((20, 21)).wrong(), [""; 0]);
        assert!(no_order(&twice((50, 51))));
    }

    #[test]
    fn where_two_servers_answer_nothing_is_said_of_a_latch_that_was_there() {
        let mut made = latch(&[(SET, 3, Some(1)), (DOWN, 0, Some(2)), (DOWN, 0, Some(2))]);
        made.breach(19, 20);
        assert!(no_order(&made));
        made.history.breaches[0].two_servers = true;
        assert_eq!(made.wrong(), [""; 0]);
        // Of what was before it, and of a latch that is new after it, as always.
        made.history.breaches[0].from = 100;
        made.history.breaches[0].to = 101;
        assert!(no_order(&made));
    }

    #[test]
    fn a_latch_with_a_time_is_gone_when_that_is_over() {
        let life = u64::try_from(LATCH_LIFE.as_nanos()).unwrap();
        for (at, good) in [(life + 10, true), (life / 2, false)] {
            let mut made = latch(&[(What::SetCountFor, 3, Some(1))]);
            add(&mut made, at, WAIT, 0, Some(0));
            assert_eq!(no_order(&made), !good, "{at}");
        }
    }
}
