//! A read-write lock, whose owners may nest reads and writes, upgrade and downgrade.

use std::collections::BTreeMap;

use crate::checks::kinds::Automaton;
use crate::checks::linear::Op;
use crate::checks::linear::Step;
use crate::history::Hold;
use crate::kind::Share;

/// What each hold has, and the last token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ReadWrite {
    shares: BTreeMap<usize, Share>,
    fence: u64,
}

impl ReadWrite {
    /// Which holds do not go together with so much, beside a hold of the same owner.
    fn against(&self, share: Share, beside: Option<usize>) -> Vec<usize> {
        let others = self.shares.iter().filter(|(hold, _)| Some(**hold) != beside);
        let against = |other: &Share| share.exclusive > 0 || other.exclusive > 0;
        others.filter(|(_, other)| against(other)).map(|(hold, _)| *hold).collect()
    }

    fn is_free_for(&self, share: Share, beside: Option<usize>) -> bool {
        self.against(share, beside).is_empty()
    }

    fn with(&self, hold: usize, share: Share) -> Self {
        let mut after = self.clone();
        after.shares.insert(hold, share);
        after
    }

    fn without(&self, hold: usize) -> Self {
        let mut after = self.clone();
        after.shares.remove(&hold);
        after
    }
}

impl Automaton for ReadWrite {
    fn after(&self, op: &Op) -> Option<Self> {
        match op.step {
            Step::Grant { hold, token, share, beside } => {
                let is_beside = !op.strict || beside.is_none_or(|beside| self.is_held_by(beside));
                let granted = is_beside && self.is_free_for(share, beside) && token > self.fence;
                granted.then(|| Self { fence: token, ..self.with(hold, share) })
            }
            Step::Nest(hold, share) => {
                let had = *self.shares.get(&hold)?;
                // Who only reads cannot write once more.
                let may = share.exclusive == 0 || had.exclusive > 0;
                (may && share.is_one_more_than(had)).then(|| self.with(hold, share))
            }
            Step::Leave(hold, share) => {
                let had = *self.shares.get(&hold)?;
                had.is_one_more_than(share).then(|| self.with(hold, share))
            }
            Step::Downgrade(hold) => {
                let had = *self.shares.get(&hold)?;
                (had == Share::ONE).then(|| self.with(hold, Share::READ))
            }
            Step::Release(hold) => {
                let last = self.shares.get(&hold)?.total() == 1;
                last.then(|| self.without(hold))
            }
            Step::Gone(hold) => self.is_held_by(hold).then(|| self.without(hold)),
            Step::Deny { share, beside } => {
                (!self.is_free_for(share, beside)).then(|| self.clone())
            }
            Step::Latch(_) => None,
        }
    }

    fn in_the_way(&self, op: &Op) -> Vec<Vec<usize>> {
        match op.step {
            Step::Grant { share, beside, .. } => vec![self.against(share, beside)],
            _ => Vec::new(),
        }
    }

    fn is_held_by(&self, hold: usize) -> bool {
        self.shares.contains_key(&hold)
    }
}

/// Readers together, a writer alone, but for the read that it was upgraded from.
pub(super) fn allows(holds: &[&Hold], at: u64) -> bool {
    let is_alone = |writer: &&Hold| {
        let mut others = holds.iter().filter(|other| other.id != writer.id);
        others.all(|other| writer.beside.as_ref() == Some(&other.id))
    };
    holds.iter().filter(|hold| hold.is_exclusive(at)).all(is_alone)
}

#[cfg(test)]
mod tests {
    use crate::checks::examples::Made;
    use crate::event::How;
    use crate::event::What;
    use crate::kind::LockKind;
    use crate::kind::Share;

    fn reads() -> Made {
        let mut made = Made::default();
        made.kind = LockKind::ReadWrite;
        made.of(Share::READ);
        made
    }

    fn no_order(made: &Made) -> bool {
        made.wrong().iter().any(|what| what.contains("no read-write lock answers like this"))
    }

    /// `a:1` becomes a read at some time between these.
    fn downgrade(made: &mut Made, called: u64, ended: u64, how: How) {
        made.call_for("a", called, What::Downgrade, "a:1", Share::READ, Some((ended, how)));
    }

    /// The hold `hold` of the process `a` is a write beside its read `a:1`.
    fn upgrade(made: &mut Made, hold: &str, called: u64, ended: u64, token: u64) {
        let (hold, until) = (hold.to_owned(), ended + 100);
        let how = How::Granted { hold, token, count: 1, levels: 1, until };
        made.call_for("a", called, What::Upgrade, "a:1", Share::ONE, Some((ended, how)));
    }

    #[test]
    fn readers_hold_together_and_a_writer_alone() {
        let mut made = reads();
        made.grant("a:1", 0, 10, 1).grant("b:1", 11, 20, 2).look("a:1", 25, true, 110);
        made.of(Share::ONE).denied("c", 30, 31).unlock("a:1", 32, 40, 0).unlock("b:1", 32, 41, 0);
        made.grant("c:1", 35, 50, 3).of(Share::READ).denied("a", 51, 52);
        made.unlock("c:1", 60, 70, 0).grant("a:2", 61, 71, 4).unlock("a:2", 72, 73, 0);
        assert_eq!(made.wrong(), [""; 0]);
        assert_eq!((made.verdict().grants, made.verdict().denials), (4, 2));
    }

    #[test]
    fn a_reader_beside_a_writer_is_found_whoever_came_first() {
        let mut made = reads();
        made.grant("a:1", 0, 10, 1).of(Share::ONE).grant("b:1", 11, 20, 2);
        made.says("a:1 and b:1 hold at once");
        assert!(no_order(&made));
        let mut made = reads();
        made.of(Share::ONE).grant("a:1", 0, 10, 1).of(Share::READ).grant("b:1", 11, 20, 2);
        made.says("a:1 and b:1 hold at once");
        assert!(no_order(&made));
    }

    #[test]
    fn two_writers_have_no_order_whatever_their_guards_say() {
        let mut made = reads();
        made.of(Share::ONE).grant("a:1", 0, 10, 1).grant("b:1", 0, 10, 2);
        made.unlock("a:1", 11, 12, 0).unlock("b:1", 11, 12, 0);
        assert!(no_order(&made));
    }

    #[test]
    fn a_reader_is_refused_only_by_a_writer_that_writes_or_waits() {
        let mut made = reads();
        made.grant("a:1", 0, 10, 1).denied("c", 20, 21).unlock("a:1", 30, 31, 0);
        assert!(no_order(&made));
        made.of(Share::ONE).grant("b:1", 15, 40, 2).unlock("b:1", 41, 42, 0);
        assert_eq!(made.wrong(), [""; 0]);
    }

    #[test]
    fn a_downgrade_lets_readers_in_and_no_writer() {
        let with = |share| {
            let mut made = reads();
            made.of(Share::ONE).grant("a:1", 0, 10, 1);
            downgrade(&mut made, 20, 30, How::Released);
            made.of(share).grant("b:1", 21, 40, 2).look("a:1", 50, true, 110);
            made.unlock("a:1", 51, 52, 0).unlock("b:1", 53, 54, 0);
            made
        };
        assert_eq!(with(Share::READ).wrong(), [""; 0]);
        with(Share::ONE).says("a:1 and b:1 hold at once");
        assert!(no_order(&with(Share::ONE)));
        let mut early = reads();
        early.of(Share::ONE).grant("a:1", 0, 10, 1).of(Share::READ).grant("b:1", 11, 15, 2);
        downgrade(&mut early, 20, 30, How::Released);
        early.says("hold at once");
    }

    #[test]
    fn what_could_not_be_downgraded_is_given_up_sooner_or_later() {
        let mut made = reads();
        made.of(Share::ONE).grant("a:1", 0, 10, 1);
        downgrade(&mut made, 20, 30, How::Failed("unavailable".to_owned()));
        made.of(Share::READ).grant("b:1", 21, 40, 2).of(Share::ONE).grant("c:1", 25, 60, 3);
        made.unlock("b:1", 45, 50, 0).unlock("c:1", 61, 62, 0);
        assert_eq!(made.wrong(), [""; 0]);
    }

    #[test]
    fn an_upgrade_stands_beside_its_own_read_only() {
        let mut made = reads();
        made.grant("a:1", 0, 10, 1);
        upgrade(&mut made, "a:2", 11, 20, 2);
        made.look("a:1", 25, true, 110).unlock("a:2", 30, 31, 0).unlock("a:1", 32, 33, 0);
        assert_eq!(made.wrong(), [""; 0]);
        let mut made = reads();
        made.grant("b:1", 0, 5, 1).grant("a:1", 0, 10, 2);
        upgrade(&mut made, "a:2", 11, 20, 3);
        made.says("b:1 and a:1 and a:2 hold at once");
        assert!(no_order(&made));
    }

    #[test]
    fn where_two_servers_answer_an_upgrade_does_not_need_its_read_on_both() {
        let two = |two_servers| {
            let mut made = reads();
            made.grant("a:1", 0, 10, 1).breach(12, 100).of(Share::ONE).grant("b:1", 15, 20, 2);
            upgrade(&mut made, "a:2", 22, 30, 3);
            made.unlock("a:2", 40, 41, 0).unlock("a:1", 42, 43, 0).unlock("b:1", 44, 45, 0);
            made.history.breaches[0].two_servers = two_servers;
            made
        };
        assert_eq!(two(true).wrong(), [""; 0]);
        assert!(no_order(&two(false)));
        // It is there nevertheless as long as nothing shows that it is not.
        let mut made = reads();
        made.grant("a:1", 0, 10, 1);
        upgrade(&mut made, "a:2", 11, 20, 2);
        made.call("a", 21, What::DropGuard, "a:2", 0, Some((22, How::Released)));
        made.call("a", 23, What::DropGuard, "a:1", 0, Some((24, How::Released))).breach(50, 60);
        made.history.breaches[0].two_servers = true;
        assert_eq!(made.wrong(), [""; 0]);
    }

    #[test]
    fn an_upgrade_is_refused_only_if_others_read() {
        let mut made = reads();
        made.grant("a:1", 0, 10, 1);
        made.call_for("a", 11, What::Upgrade, "a:1", Share::ONE, Some((12, How::Denied)));
        made.unlock("a:1", 20, 21, 0);
        assert!(no_order(&made));
        made.grant("b:1", 0, 5, 2).unlock("b:1", 14, 15, 0);
        assert!(!no_order(&made));
    }

    #[test]
    fn levels_are_counted_and_a_reader_gets_no_write() {
        let (both, two) = (Share { exclusive: 1, reads: 1 }, Share { exclusive: 0, reads: 2 });
        let nest = |made: &mut Made, share: Share| {
            let (hold, count) = ("a:1".to_owned(), share.total());
            let how = How::Granted { hold, token: 1, count, levels: count, until: 112 };
            made.call_for("a", 11, What::Nested, "a:1", share, Some((12, how)));
        };
        for (first, then, good) in [
            (Share::ONE, both, true),
            (Share::ONE, Share::levels(2), true),
            (Share::READ, two, true),
            (Share::READ, both, false),
            (Share::ONE, two, false),
        ] {
            let mut made = reads();
            made.of(first).grant("a:1", 0, 10, 1);
            nest(&mut made, then);
            made.call_for("a", 13, What::Unlock, "a:1", first, Some((14, How::Released)));
            made.unlock("a:1", 15, 16, 0);
            assert_eq!(no_order(&made), !good, "{first} {then}: {:?}", made.wrong());
        }
    }

    #[test]
    fn a_breach_excuses_a_writer_beside_a_reader_that_must_be_told() {
        let mut made = reads();
        made.grant("a:1", 0, 10, 1).breach(12, 13).of(Share::ONE).grant("b:1", 15, 20, 2);
        made.look("a:1", 35, true, 110).unlock("b:1", 50, 51, 0).unlock_lost("a:1", 60, 61);
        assert_eq!((made.wrong(), made.verdict().overlaps), (vec![], 1));
        made.history.breaches.clear();
        made.says("a:1 and b:1 hold at once");
    }

    #[test]
    fn many_reads_that_may_have_ended_in_the_background_are_decided() {
        let mut made = reads();
        for number in 1..=40 {
            let hold = format!("a:{number}");
            made.grant(&hold, number, number + 10, number);
            let released = Some((52, How::Released));
            made.call("a", 51, What::DropGuard, &hold, 0, released);
        }
        made.of(Share::ONE).grant("b:1", 53, 60, 41).unlock("b:1", 61, 62, 0);
        assert_eq!((made.wrong(), made.verdict().undecided), (vec![], 0));
        made.grant("c:1", 63, 70, 42).unlock("c:1", 80, 81, 0).grant("d:1", 63, 71, 43);
        made.unlock("d:1", 80, 82, 0);
        assert!(no_order(&made));
        assert_eq!(made.verdict().undecided, 0);
    }
}
