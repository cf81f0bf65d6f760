//! What the sentinels have said about the primary, and which of them to believe when they
//! contradict each other.
//!
//! Each failover has an epoch, a number that grows. A sentinel that has not heard of the latest
//! failover still names the old primary, so the greater epoch wins. An announcement of a sentinel
//! that the primary has changed contains no epoch, and a user may not be allowed to ask for it.
//! Then the later statement wins, unless it names a primary that is known to be deposed.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::redis::config::Address;
use crate::backend::redis::config::host_and_port;

/// How many former primaries are remembered.
const DEPOSED: usize = 16;

#[derive(Debug)]
pub(crate) struct SentinelKnowledge {
    primary_name: String,
    primary: Option<Primary>,
    /// The latest one is last.
    deposed: Vec<Address>,
    sentinels: Vec<Sentinel>,
    /// Counts the changes of the primary. Connections to it read the counter as well.
    changes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Primary {
    address: Address,
    epoch: Option<u64>,
    /// While its epoch is not known: the greatest epoch before it. Its own is greater.
    after: Option<u64>,
    /// True if the server itself says that it is not the primary.
    refused: bool,
    /// True if it could not be reached.
    unreachable: bool,
}

#[derive(Debug)]
struct Sentinel {
    address: Address,
    /// How often it was asked and answered, or failed to.
    turns: u64,
    last: Option<Result<Address, Failure>>,
}

impl SentinelKnowledge {
    pub(crate) fn new(primary_name: &str, sentinels: &[Address]) -> Self {
        let sentinel =
            |address: &Address| Sentinel { address: address.clone(), turns: 0, last: None };
        Self {
            primary_name: primary_name.to_owned(),
            primary: None,
            deposed: Vec::new(),
            sentinels: sentinels.iter().map(sentinel).collect(),
            changes: Arc::default(),
        }
    }

    // ---- what is known

    /// The primary, unless the server itself says that it is not one.
    pub(crate) fn primary(&self) -> Option<&Address> {
        self.primary.as_ref().filter(|primary| !primary.refused).map(|primary| &primary.address)
    }

    pub(crate) fn changes(&self) -> &Arc<AtomicU64> {
        &self.changes
    }

    /// How often each sentinel has answered or failed so far.
    pub(crate) fn turns(&self) -> Vec<u64> {
        self.sentinels.iter().map(|sentinel| sentinel.turns).collect()
    }

    /// True if a sentinel has named a primary since `turns`.
    pub(crate) fn is_named_since(&self, turns: &[u64]) -> bool {
        self.since(turns).any(|sentinel| matches!(sentinel.last, Some(Ok(_))))
    }

    /// True if every sentinel has answered or failed since `turns`.
    pub(crate) fn has_everyone_spoken_since(&self, turns: &[u64]) -> bool {
        self.since(turns).count() == self.sentinels.len()
    }

    fn since<'a>(&'a self, turns: &'a [u64]) -> impl Iterator<Item = &'a Sentinel> {
        let before = |index: usize| turns.get(index).copied().unwrap_or(0);
        let spoken = move |(index, sentinel): (usize, &'a Sentinel)| {
            (sentinel.turns > before(index)).then_some(sentinel)
        };
        self.sentinels.iter().enumerate().filter_map(spoken)
    }

    /// Why there is no primary to connect to: what each sentinel has said, with the worst kind of
    /// failure.
    pub(crate) fn failure(&self) -> Failure {
        let words = |sentinel: &Sentinel| {
            let said = match &sentinel.last {
                None => "no answer yet".to_owned(),
                Some(Ok(address)) => format!("names {}", shown(address)),
                Some(Err(failure)) => failure.message.clone(),
            };
            format!("{} ({said})", shown(&sentinel.address))
        };
        let all = self.sentinels.iter().map(words).collect::<Vec<_>>().join(", ");
        let kind = if self.sentinels.iter().any(|sentinel| matches!(sentinel.last, Some(Ok(_)))) {
            FailureKind::Link
        } else {
            let failures =
                self.sentinels.iter().filter_map(|sentinel| sentinel.last.as_ref()?.as_ref().err());
            // Sentinels that no longer know a primary that was known before were set up anew, and
            // will be configured again.
            let passing = |kind: FailureKind| {
                kind.is_transient() || kind == FailureKind::Unsupported && self.primary.is_some()
            };
            let mut kinds = failures.map(|failure| failure.kind);
            let refuses = |sentinel: &Sentinel| matches!(&sentinel.last, Some(Err(failure)) if failure.kind == FailureKind::NoListener);
            let nobody = self.sentinels.iter().all(refuses);
            let mild = if nobody { FailureKind::NoListener } else { FailureKind::Link };
            kinds.find(|kind| !passing(*kind)).unwrap_or(mild)
        };
        Failure::new(
            kind,
            format!("no primary {:?} was found; asked sentinels: {all}", self.primary_name),
        )
    }

    // ---- what is heard

    /// A sentinel names a primary. `announced`: it has just announced this as a change.
    pub(crate) fn answered(
        &mut self,
        number: usize,
        address: &Address,
        epoch: Option<u64>,
        announced: bool,
    ) {
        self.spoke(number, Ok(address.clone()));
        let Some(primary) = &mut self.primary else { return self.take(address, epoch) };
        if primary.address == *address {
            primary.epoch = primary.epoch.max(epoch);
            primary.refused = false;
            return;
        }
        let known = !self.deposed.contains(address);
        let newer = match (primary.epoch, epoch) {
            (Some(old), Some(new)) if old != new => new > old,
            (Some(_), Some(_)) => known,
            (None, Some(new)) if primary.after.is_some_and(|after| new <= after) => false,
            _ => known || announced,
        };
        // The epochs of sentinels that were set up anew start again from 0, so a majority of
        // sentinels wins over the epoch if the known primary is of no use.
        let no_use = primary.refused || primary.unreachable;
        if newer || no_use && self.is_named_by_most(address) {
            self.take(address, epoch);
        }
    }

    /// A sentinel has announced a change. It is believed at once if it starts from the known
    /// primary: other sentinels that are asked now may not know of the change yet. Otherwise the
    /// sentinel's next answer decides.
    pub(crate) fn announced(&mut self, old: &Address, new: &Address) {
        match &mut self.primary {
            Some(primary) if primary.address == *new => primary.refused = false,
            Some(primary) if primary.address == *old && !self.deposed.contains(new) => {
                self.take(new, None)
            }
            Some(_) => {}
            None => self.take(new, None),
        }
    }

    /// A sentinel could not be asked, or did not name a primary.
    pub(crate) fn silent(&mut self, number: usize, failure: Failure) {
        self.spoke(number, Err(failure));
    }

    /// The server itself says that it is not the primary. It is not used again before a sentinel
    /// names it once more.
    pub(crate) fn refused(&mut self, address: &Address) {
        if let Some(primary) = self.primary.as_mut().filter(|primary| primary.address == *address) {
            primary.refused = true;
        }
    }

    /// Records whether the primary can be connected to.
    pub(crate) fn reached(&mut self, address: &Address, reached: bool) {
        if let Some(primary) = self.primary.as_mut().filter(|primary| primary.address == *address) {
            primary.unreachable = !reached;
        }
    }

    fn spoke(&mut self, number: usize, said: Result<Address, Failure>) {
        if let Some(sentinel) = self.sentinels.get_mut(number) {
            sentinel.turns += 1;
            sentinel.last = Some(said);
        }
    }

    fn is_named_by_most(&self, address: &Address) -> bool {
        let named =
            |sentinel: &&Sentinel| matches!(&sentinel.last, Some(Ok(named)) if named == address);
        self.sentinels.iter().filter(named).count() * 2 > self.sentinels.len()
    }

    fn take(&mut self, address: &Address, epoch: Option<u64>) {
        let before = self.primary.as_ref().filter(|_| epoch.is_none());
        let after = before.and_then(|old| old.epoch.max(old.after));
        let primary =
            Primary { address: address.clone(), epoch, after, refused: false, unreachable: false };
        if let Some(old) = self.primary.replace(primary) {
            self.deposed.push(old.address);
        }
        self.deposed.retain(|deposed| deposed != address);
        if self.deposed.len() > DEPOSED {
            self.deposed.remove(0);
        }
        self.changes.fetch_add(1, Ordering::Release);
    }
}

pub(crate) fn shown((host, port): &Address) -> String {
    host_and_port(host, *port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> Address {
        (host.to_owned(), 6379)
    }

    fn three() -> SentinelKnowledge {
        SentinelKnowledge::new("main", &[at("s0"), at("s1"), at("s2")])
    }

    fn names(knowledge: &SentinelKnowledge) -> &str {
        knowledge.primary().map_or("nobody", |(host, _)| host)
    }

    #[test]
    fn a_greater_epoch_wins_and_a_smaller_one_never() {
        let mut known = three();
        known.answered(0, &at("a"), Some(1), false);
        known.answered(1, &at("b"), Some(2), false);
        assert_eq!(names(&known), "b");
        known.answered(2, &at("a"), Some(1), false);
        known.answered(0, &at("c"), Some(1), true);
        assert_eq!(names(&known), "b");
        known.answered(0, &at("a"), Some(3), false);
        assert_eq!(names(&known), "a", "back by a later failover");
        assert_eq!(known.changes().load(Ordering::Acquire), 3);
    }

    /// A sentinel that lags behind may name the right primary with the epoch of an earlier
    /// failover, or without any.
    #[test]
    fn an_epoch_that_falls_is_not_the_epoch_of_the_primary() {
        for late in [Some(3), None] {
            let mut known = three();
            known.answered(0, &at("a"), Some(5), false);
            known.answered(1, &at("a"), late, false);
            known.answered(2, &at("b"), Some(4), false);
            assert_eq!(names(&known), "a", "4 is less than 5, after {late:?}");
            known.answered(2, &at("b"), Some(6), false);
            assert_eq!(names(&known), "b");
        }
        let mut known = three();
        known.answered(0, &at("a"), None, false);
        known.answered(1, &at("a"), Some(5), false);
        known.answered(2, &at("b"), Some(4), false);
        assert_eq!(names(&known), "a", "it is learned when it is first told");
    }

    #[test]
    fn the_same_epoch_for_two_primaries_decides_for_the_one_that_was_not_deposed() {
        let mut known = three();
        known.answered(0, &at("a"), Some(1), false);
        known.answered(1, &at("b"), Some(1), false);
        assert_eq!(names(&known), "b", "a sentinel may tell the address before the epoch");
        known.answered(2, &at("a"), Some(1), false);
        assert_eq!(names(&known), "b");
    }

    #[test]
    fn the_change_that_follows_on_what_is_known_is_believed_and_no_other() {
        let mut known = three();
        known.announced(&at("x"), &at("a"));
        assert_eq!(names(&known), "a", "nothing was known");
        known.announced(&at("x"), &at("b"));
        assert_eq!(names(&known), "a", "it is about another one");
        known.refused(&at("a"));
        known.announced(&at("x"), &at("a"));
        assert_eq!(names(&known), "a", "it has become one again");
        assert_eq!(known.changes().load(Ordering::Acquire), 1);
    }

    #[test]
    fn only_so_many_former_primaries_are_remembered() {
        for (changes, remembered) in [(DEPOSED, true), (DEPOSED + 1, false)] {
            let mut known = three();
            known.answered(0, &at("first"), None, false);
            for change in 0..changes {
                known.answered(0, &at(&change.to_string()), None, false);
            }
            let last = names(&known).to_owned();
            known.answered(1, &at("first"), None, false);
            assert_eq!(names(&known), if remembered { &last } else { "first" }, "after {changes}");
        }
    }

    #[test]
    fn half_of_the_sentinels_are_not_most_of_them() {
        let sentinels = ["s0", "s1", "s2", "s3"].map(at);
        let mut known = SentinelKnowledge::new("main", &sentinels);
        known.answered(0, &at("a"), Some(9), false);
        known.reached(&at("a"), false);
        known.answered(1, &at("b"), Some(0), false);
        known.answered(2, &at("b"), Some(0), false);
        assert_eq!(names(&known), "a");
        known.reached(&at("other"), true);
        known.answered(3, &at("b"), Some(0), false);
        assert_eq!(names(&known), "b");
        let mut known = SentinelKnowledge::new("main", &sentinels);
        known.answered(0, &at("a"), Some(9), false);
        known.refused(&at("a"));
        (1..4).for_each(|number| known.answered(number, &at("b"), Some(0), false));
        assert_eq!(names(&known), "b", "one that says that it is none is of no use either");
        known.reached(&at("b"), false);
        known.reached(&at("b"), true);
        (0..3).for_each(|number| known.answered(number, &at("c"), Some(0), false));
        (0..3).for_each(|number| known.answered(number, &at("b"), Some(0), false));
        assert_eq!(names(&known), "c", "deposed, and the one that followed can be reached");
    }

    #[test]
    fn an_announcement_is_believed_before_other_sentinels_know_of_it() {
        for epoch in [Some(1), None] {
            let mut known = three();
            known.answered(0, &at("a"), epoch, false);
            known.announced(&at("a"), &at("b"));
            assert_eq!(names(&known), "b");
            known.answered(1, &at("a"), epoch, false);
            assert_eq!(names(&known), "b", "asked too early");
            known.answered(0, &at("b"), epoch.map(|epoch| epoch + 1), true);
            known.answered(2, &at("a"), epoch, false);
            assert_eq!(names(&known), "b");
        }
    }

    #[test]
    fn two_failovers_behind_is_not_believed_while_the_epoch_of_the_last_is_not_known() {
        let mut known = three();
        known.answered(0, &at("b"), Some(2), false);
        known.announced(&at("b"), &at("c"));
        known.answered(1, &at("a"), Some(1), false);
        assert_eq!(names(&known), "c");
        known.announced(&at("c"), &at("d"));
        known.answered(1, &at("a"), Some(2), false);
        assert_eq!(names(&known), "d", "however many announcements ago it was");
        known.answered(2, &at("e"), Some(4), false);
        assert_eq!(names(&known), "e");
    }

    #[test]
    fn a_late_announcement_of_an_earlier_change_is_not_followed() {
        let mut known = three();
        known.answered(0, &at("a"), Some(1), false);
        known.announced(&at("a"), &at("b"));
        known.answered(0, &at("b"), Some(2), true);
        known.announced(&at("b"), &at("a"));
        assert_eq!(names(&known), "b", "b comes back only with its epoch");
        known.answered(0, &at("a"), Some(3), true);
        assert_eq!(names(&known), "a");
        known.announced(&at("a"), &at("b"));
        known.answered(1, &at("b"), Some(2), true);
        assert_eq!(names(&known), "a");
    }

    #[test]
    fn without_epochs_the_order_of_arrival_decides() {
        let mut known = three();
        known.answered(0, &at("a"), None, false);
        known.announced(&at("a"), &at("b"));
        known.answered(0, &at("b"), None, true);
        known.announced(&at("b"), &at("a"));
        known.answered(0, &at("a"), None, true);
        assert_eq!(names(&known), "a");
        known.answered(1, &at("b"), None, false);
        assert_eq!(names(&known), "a");
    }

    #[test]
    fn a_replica_is_left_until_it_is_named_again() {
        let mut known = three();
        known.answered(0, &at("a"), Some(1), false);
        known.refused(&at("other"));
        assert_eq!(names(&known), "a");
        known.refused(&at("a"));
        assert_eq!(names(&known), "nobody");
        known.answered(1, &at("a"), Some(1), false);
        assert_eq!(names(&known), "a");
        assert_eq!(known.changes().load(Ordering::Acquire), 1, "it is the same one");
    }

    #[test]
    fn sentinels_that_count_anew_are_believed_when_most_of_them_agree_and_the_primary_is_gone() {
        let mut known = three();
        known.answered(0, &at("a"), Some(9), false);
        known.answered(1, &at("b"), Some(0), false);
        known.answered(2, &at("b"), Some(0), false);
        assert_eq!(names(&known), "a", "it can be reached");
        known.reached(&at("a"), false);
        known.answered(0, &at("b"), Some(0), false);
        assert_eq!(names(&known), "b");

        let mut known = three();
        known.answered(0, &at("a"), Some(9), false);
        known.reached(&at("a"), false);
        known.answered(1, &at("b"), Some(0), false);
        assert_eq!(names(&known), "a", "one that was cut off is not most of them");
    }

    #[test]
    fn a_failure_says_who_was_asked_and_what_each_said() {
        let mut known = three();
        known.silent(0, Failure::new(FailureKind::Link, "refused"));
        let failure = known.failure();
        assert_eq!(failure.kind, FailureKind::Link);
        for words in ["\"main\"", "s0:6379 (refused)", "s1:6379 (no answer yet)"] {
            assert!(failure.message.contains(words), "{failure}");
        }
        known.silent(1, Failure::new(FailureKind::Auth, "WRONGPASS"));
        assert_eq!(known.failure().kind, FailureKind::Auth);
        known.answered(2, &at("a"), None, false);
        assert_eq!(known.failure().kind, FailureKind::Link, "another sentinel can help");
    }

    #[test]
    fn sentinels_that_have_forgotten_the_primary_are_waited_for() {
        let unknown = || Failure::new(FailureKind::Unsupported, "knows no primary named \"main\"");
        let mut known = three();
        known.silent(0, unknown());
        assert_eq!(known.failure().kind, FailureKind::Unsupported, "a mistake in the address");
        let mut known = three();
        known.answered(0, &at("a"), Some(1), false);
        known.silent(0, unknown());
        known.silent(1, Failure::new(FailureKind::Link, "refused"));
        assert_eq!(known.failure().kind, FailureKind::Link);
        known.silent(2, Failure::new(FailureKind::Auth, "WRONGPASS"));
        assert_eq!(known.failure().kind, FailureKind::Auth);
    }

    #[test]
    fn who_has_spoken_is_counted() {
        let mut known = three();
        let start = known.turns();
        known.silent(0, Failure::new(FailureKind::Link, "refused"));
        known.silent(1, Failure::new(FailureKind::Link, "refused"));
        assert!(!known.is_named_since(&start) && !known.has_everyone_spoken_since(&start));
        known.answered(2, &at("a"), None, false);
        assert!(known.is_named_since(&start) && known.has_everyone_spoken_since(&start));
        assert!(!known.is_named_since(&known.turns()));
    }
}
