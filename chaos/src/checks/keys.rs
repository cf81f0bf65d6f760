//! What guards say, against the keys themselves.

use std::collections::BTreeMap;
use std::collections::HashMap;

use crate::checks::Verdict;
use crate::event::Event;
use crate::history::History;
use crate::history::Hold;

/// Redis counts in milliseconds, and rounds.
const SLACK: u64 = 1_500_000;

/// Whatever a guard said before its key was looked at, the key lasts for longer: leases are never
/// shortened.
pub(super) fn check(history: &History, holds: &BTreeMap<String, Hold>, verdict: &mut Verdict) {
    let said = said(history, holds);
    for sample in &history.samples {
        let Some(hold) = holds.get(&sample.hold) else { continue };
        // With two servers nobody knows which of them was asked.
        if hold.breach(&history.breaches).is_some_and(|breach| breach.two_servers) {
            continue;
        }
        verdict.samples += 1;
        let left = u64::try_from(sample.left).unwrap_or(0) * 1_000_000;
        let ends = sample.to + left + SLACK;
        let looks = said.get(sample.hold.as_str()).map_or(&[][..], Vec::as_slice);
        let late = looks.iter().find(|(at, until)| *at < sample.from && *until > ends);
        if let Some((at, until)) = late {
            let by = (until - ends) / 1_000;
            let what =
                format!("{} says it is valid for {by} us longer than its key lasts", hold.id);
            verdict.wrong(*at, &hold.name, what);
        }
    }
}

/// When each hold said that it is valid until when.
fn said<'a>(
    history: &'a History,
    holds: &'a BTreeMap<String, Hold>,
) -> HashMap<&'a str, Vec<(u64, u64)>> {
    let mut said: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
    for process in &history.processes {
        for event in &process.events {
            if let Event::Look { to, hold, held: true, until, .. } = event
                && holds.contains_key(hold)
            {
                said.entry(hold).or_default().push((*to, *until));
            }
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use crate::checks::examples::Made;
    use crate::history::Sample;

    #[test]
    fn a_guard_that_is_valid_for_longer_than_its_key_is_found() {
        let ms = 1_000_000;
        let mut made = Made::default();
        made.grant("a:1", 0, 10, 1).look("a:1", 20, true, 300 * ms);
        let (name, hold) = ("a".to_owned(), "a:1".to_owned());
        made.history.samples = vec![Sample { from: 50 * ms, to: 51 * ms, name, hold, left: 248 }];
        assert_eq!((made.wrong(), made.verdict().samples), (vec![], 1));
        made.history.samples[0].left = 247;
        made.says("longer than its key lasts");
        // What was said later may be of a later renewal.
        made.history.samples[0].from = 10;
        assert_eq!(made.wrong(), [""; 0]);
    }
}
