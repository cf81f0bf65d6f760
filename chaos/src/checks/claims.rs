//! What a guard says of its own hold.

use std::collections::BTreeMap;

use crate::checks::Verdict;
use crate::history::History;
use crate::history::Hold;

/// A loss is told for what it is: nothing runs out before its time, and nothing else takes a hold
/// away but a breach. A hold on several servers may also be lost when one of them was away. What
/// runs out only after its time was told too late by `valid_until` itself, which `History::holds`
/// compares.
pub(super) fn check(history: &History, holds: &BTreeMap<String, Hold>, verdict: &mut Verdict) {
    for hold in holds.values() {
        let Some((at, reason)) = &hold.lost else { continue };
        if *at >= hold.until {
            continue;
        }
        let forgotten = reason != "expired" && hold.breach(&history.breaches).is_some();
        // The end of a majority moves to an earlier one when a server loses its part.
        let expected = forgotten || hold.breach(&history.outages).is_some();
        if !expected {
            let early = (hold.until - at) / 1_000;
            verdict.wrong(
                *at,
                &hold.name,
                format!("{} is lost ({reason}) {early} us early", hold.id),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::examples::Made;
    use crate::history::Breach;
    use crate::kind::LockKind;

    #[test]
    fn a_hold_is_lost_early_only_in_a_breach() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).lost("a:1", 110, "expired");
        assert_eq!(made.wrong(), [""; 0]);
        made.grant("b:1", 120, 130, 2).lost("b:1", 140, "removed");
        made.says("b:1 is lost (removed)");
        made.breach(135, 138);
        assert_eq!(made.wrong(), [""; 0]);
        made.grant("c:1", 230, 240, 3).lost("c:1", 250, "expired").breach(245, 246);
        made.says("c:1 is lost (expired)");
    }

    #[test]
    fn a_hold_on_several_servers_may_be_lost_when_one_was_away() {
        let outage = Breach { from: 20, to: 30, two_servers: false, names: Vec::new() };
        let mut made = Made::default();
        made.kind = LockKind::Redlock;
        made.grant("a:1", 0, 10, 1).lost("a:1", 50, "expired");
        made.says("a:1 is lost (expired)");
        made.history.outages.push(outage.clone());
        assert_eq!(made.wrong(), [""; 0]);
        // And then the next may have it, and not before.
        let made = made.grant("b:1", 51, 60, 2);
        assert_eq!(made.wrong(), [""; 0]);
        let mut made = Made::default();
        made.kind = LockKind::Redlock;
        made.grant("a:1", 0, 10, 1).look("a:1", 70, true, 110).grant("b:1", 51, 60, 2);
        made.history.outages.push(outage);
        made.says("a:1 and b:1 hold at once");
    }

    #[test]
    fn what_was_lost_stays_lost_and_what_is_held_is_valid() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).look("a:1", 120, true, 110);
        made.says("valid until earlier");
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).look("a:1", 120, false, 0).look("a:1", 130, true, 200);
        made.says("is held again");
    }

    #[test]
    fn a_reentry_is_one_more_level_of_the_same_hold() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 5).nested("a:1", 11, 12, 6, 2);
        made.says("was re-entered and became");
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 5).grant("a:1", 20, 30, 6);
        made.says("granted twice");
    }
}
