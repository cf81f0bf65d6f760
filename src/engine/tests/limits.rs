//! Limits: of a hold's time, of what an old clock is good for, of how long a verification is tried.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn watched() -> Lease {
    Lease::Watched(LeaseMs::checked("lease", LEASE).unwrap())
}

impl Hand {
    /// A hold of `owner` whose caller has its guard.
    fn taken(&mut self, owner: u64, lease: Lease, max_hold: Option<Duration>) -> (RequestId, Arc<HoldCell>) {
        let request = self.want(owner, lease, Wait::Forever, max_hold);
        let (op, _) = self.take("acquire");
        self.done(op, grant(1));
        let cell = self.granted(request);
        self.event(Event::PickedUp { request });
        (request, cell)
    }
}

// ---- max_hold

#[test]
fn max_hold_of_a_nested_level_counts_from_the_first_grant() {
    let mut hand = Hand::new();
    let begin = hand.now;
    let (_, cell) = hand.taken(1, watched(), None);
    hand.pass(4 * SECOND);
    let inner = hand.want(1, watched(), Wait::Forever, Some(6 * SECOND));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    hand.granted(inner);
    assert!(cell.is_held(begin.plus(5 * SECOND)) && cell.valid_until() <= begin.plus(6 * SECOND));
    hand.pass(3 * SECOND);
    assert_eq!(cell.loss(), Some(LossReason::MaxHold));
}

#[test]
fn max_hold_that_a_hold_has_already_lasted_is_refused_and_harms_nobody() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    hand.pass(4 * SECOND);
    let inner = hand.want(1, watched(), Wait::Forever, Some(3 * SECOND));
    hand.nothing_sent();
    let answer = hand.answer(inner);
    assert!(matches!(&answer, Answer::Failed(Error::InvalidOption { option: "max_hold", .. })), "{answer:?}");
    assert!(cell.is_held(hand.now) && cell.count() == 1);
}

#[test]
fn the_end_of_max_hold_takes_a_handful_of_renewals() {
    for (limit, most) in [(2, 3), (20, 5), (45, 7), (60, 9)] {
        let mut hand = Hand::new();
        let end = hand.now.plus(limit * SECOND);
        let (_, cell) = hand.taken(1, watched(), Some(limit * SECOND));
        let mut renewals = 0;
        while cell.loss().is_none() {
            renewals += hand.live(SECOND / 10);
        }
        assert!(renewals <= most, "{renewals} renewals in {limit} s");
        assert_eq!(cell.loss(), Some(LossReason::MaxHold));
        assert!(end.since(hand.now) <= limit * SECOND / 10, "{:?} early of {limit} s", end.since(hand.now));
        assert!(!hand.reports.iter().any(|report| matches!(report, Report::Suspect { .. })));
    }
}

// ---- hand-off

#[test]
fn a_hand_off_that_finds_its_hold_gone_says_so() {
    for (found, wanted) in
        [(HandedOff::Gone, LossReason::Removed), (HandedOff::Foreign, LossReason::TakenOver)]
    {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        hand.ask(2, Wait::Forever);
        let release = hand.release(&cell, level);
        let (op, _) = hand.take("hand_off");
        hand.done(op, Body::HandOff(found));
        let answer = hand.answer(release);
        assert!(
            matches!(answer, Answer::Failed(Error::Lost { reason, .. }) if reason == wanted),
            "{answer:?}"
        );
        assert_eq!(hand.labels(), ["acquire"], "the waiter tries by itself");
    }
}
