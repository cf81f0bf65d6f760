//! No more holds of a name are valid at once than its kind allows.

use crate::checks::Verdict;
use crate::history::Breach;
use crate::history::History;
use crate::history::Hold;

/// `holds` are those of one name, in the order of their grants.
pub(super) fn check(history: &History, holds: &[&Hold], verdict: &mut Verdict) {
    // Those that may still be valid when the next one is granted.
    let mut open: Vec<&Hold> = Vec::new();
    for hold in holds {
        open.retain(|older| older.sure_until() > hold.granted);
        open.push(hold);
        if hold.sure_until() > hold.granted && !hold.kind.allows(&open, hold.granted) {
            judge(history, &open[..open.len() - 1], hold, verdict);
        }
    }
}

/// There are too many: a breach may have taken the older ones away, and the rest must not be too
/// many.
fn judge(history: &History, older: &[&Hold], newer: &Hold, verdict: &mut Verdict) {
    let breach = |older: &Hold| {
        let between = |breach: &&Breach| {
            older.called <= breach.to && breach.from <= newer.granted && breach.is_of(&older.name)
        };
        history.breaches.iter().find(between)
    };
    // What was released as if nothing had happened was not taken away. Unless there were two
    // servers: then both say so.
    let is_confirmed = |older: &Hold| {
        let confirmed =
            older.released.is_some() && older.lost.is_none() && !older.released_twice(history);
        confirmed && breach(older).is_some_and(|breach| !breach.two_servers)
    };
    let with = |stays: &dyn Fn(&Hold) -> bool| -> Vec<&Hold> {
        older.iter().copied().filter(|older| stays(older)).chain([newer]).collect()
    };
    verdict.overlaps += older.iter().filter(|older| breach(older).is_some()).count() as u64;
    let allows = |holds: &[&Hold]| newer.kind.allows(holds, newer.granted);
    if !allows(&with(&|older| breach(older).is_none() || is_confirmed(older))) {
        for older in older.iter().filter(|older| is_confirmed(older)) {
            let what = format!(
                "{} lost to {} in a breach, and its release was confirmed",
                older.id, newer.id
            );
            verdict.wrong(newer.granted, &older.name, what);
        }
    }
    let rest = with(&|older| breach(older).is_none());
    if allows(&rest) {
        return;
    }
    let ends = rest.iter().map(|hold| hold.sure_until()).fold(u64::MAX, u64::min);
    let ids: Vec<&str> = rest.iter().map(|hold| hold.id.as_str()).collect();
    let all = (ends - newer.granted) / 1_000;
    let what = format!("{} hold at once, for {all} us", ids.join(" and "));
    verdict.wrong(newer.granted, &newer.name, what);
}

#[cfg(test)]
mod tests {
    use crate::checks::examples::Made;

    #[test]
    fn two_valid_holds_at_once_are_found() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).grant("b:1", 20, 30, 2);
        made.says("a:1 and b:1 hold at once");
    }

    #[test]
    fn a_hold_that_ran_out_or_is_being_released_is_not_valid() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).grant("b:1", 20, 111, 2);
        made.unlock("b:1", 120, 140, 0).grant("c:1", 121, 130, 3);
        assert_eq!(made.wrong(), [""; 0]);
    }

    #[test]
    fn a_renewal_counts() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).look("a:1", 60, true, 160).grant("b:1", 20, 111, 2);
        made.says("hold at once");
    }

    #[test]
    fn in_a_breach_the_older_one_must_be_told() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1)
            .breach(15, 20)
            .grant("b:1", 20, 30, 2)
            .unlock_lost("a:1", 40, 41);
        // When it was lost is not known, so it is not counted as valid.
        assert_eq!((made.wrong(), made.verdict().overlaps), (vec![], 0));
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).breach(15, 20).grant("b:1", 20, 30, 2);
        made.look("a:1", 35, true, 110).unlock_lost("a:1", 40, 41);
        assert_eq!((made.wrong(), made.verdict().overlaps), (vec![], 1));
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1)
            .breach(15, 20)
            .grant("b:1", 20, 30, 2)
            .look("a:1", 35, true, 110);
        made.unlock("a:1", 40, 41, 0);
        made.says("its release was confirmed");
        // Unless that was asked twice.
        made.history.harm.push((40, "the network fails".to_owned()));
        assert_eq!(made.wrong(), [""; 0]);
    }

    #[test]
    fn a_breach_of_other_names_excuses_nothing() {
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1)
            .breach(15, 20)
            .grant("b:1", 20, 30, 2)
            .look("a:1", 35, true, 110);
        made.unlock_lost("a:1", 40, 41);
        made.history.breaches[0].names = vec!["other".to_owned()];
        made.says("hold at once");
    }

    #[test]
    fn a_breach_before_the_grant_excuses_nothing() {
        let mut made = Made::default();
        made.breach(1, 2).grant("a:1", 5, 10, 1).grant("b:1", 20, 30, 2);
        made.says("hold at once");
    }
}
