//! Counters and reports: each event is counted once, and told to those whom it concerns.

use std::time::Duration;

use crate::backend::FailureKind;
use crate::base::error::Error;
use crate::base::stats::Stats;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Report;
use crate::engine::event::Wait;
use crate::kinds::reply::Body;
use crate::kinds::reply::Renewed;

use super::Hand;
use super::LEASE;
use super::freed;
use super::grant;
use super::handed;
use super::held;
use super::watched;

const SECOND: Duration = Duration::from_secs(1);

impl Hand {
    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }

    fn count_reports(&self, which: impl Fn(&Report) -> bool) -> usize {
        self.reports.iter().filter(|report| which(report)).count()
    }
}

#[test]
fn a_grant_a_level_and_a_renewal_are_counted_once() {
    let mut hand = Hand::new();
    let (level, cell) = hand.taken(1, watched(), None);
    assert_eq!((hand.stats().grants, hand.stats().reentries), (1, 0));
    hand.re_enter(1);
    assert_eq!((hand.stats().grants, hand.stats().reentries), (1, 1));
    hand.pass(LEASE / 3);
    hand.renewed();
    assert_eq!((hand.stats().renewals, hand.stats().renewal_failures), (1, 0));
    hand.pass(LEASE / 3);
    let (op, _) = hand.take("renew");
    hand.refused(op, FailureKind::Busy);
    assert_eq!((hand.stats().renewals, hand.stats().renewal_failures), (1, 1));
    let failed = |report: &Report| matches!(report, Report::RenewalFailed { holds: 1, cause } if cause == "no");
    assert_eq!(hand.count_reports(failed), 1);
    hand.pass(SECOND);
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Foreign])));
    assert_eq!(hand.stats().losses, 1);
    // That its guard goes later is no other loss.
    hand.event(Event::Release { hold: cell.id, level, request: None });
    assert_eq!(hand.stats().losses, 1);
}

#[test]
fn a_wait_its_wake_up_and_the_hand_off_after_it_are_counted_once() {
    let mut hand = Hand::new();
    let first = hand.sleeper(1);
    assert_eq!((hand.stats().waits, hand.stats().wake_ups), (1, 0));
    let waiting = |report: &Report| matches!(report, Report::Waiting { .. });
    assert_eq!(hand.count_reports(waiting), 1, "told once, although it was refused twice");
    hand.message();
    assert_eq!(hand.stats().wake_ups, 1);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(first);
    assert_eq!((hand.stats().waits, hand.stats().fallback_grants), (1, 0));
    let second = hand.ask(2, Wait::Forever);
    assert_eq!(hand.stats().waits, 2, "it waits behind a hold of this client");
    hand.release(&cell, first);
    let (op, _) = hand.take("hand_off");
    hand.done(op, handed());
    hand.granted(second);
    assert_eq!((hand.stats().hand_offs, hand.stats().grants), (1, 2));
    assert_eq!(hand.count_reports(|report| matches!(report, Report::Released { .. })), 1);
}

/// First for a hold of this client, then for another client: it is one wait.
#[test]
fn a_wait_that_goes_on_for_another_reason_is_counted_once() {
    let mut hand = Hand::new();
    hand.taken(1, watched(), None);
    hand.ask(2, Wait::Forever);
    hand.resubscribe();
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Foreign])));
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    assert_eq!(hand.stats().waits, 1);
    assert_eq!(hand.count_reports(|report| matches!(report, Report::Waiting { .. })), 0);
}

#[test]
fn a_lock_that_is_free_is_not_waited_for() {
    let mut hand = Hand::new();
    hand.hold(1);
    assert_eq!(hand.stats().waits, 0);
    assert_eq!(hand.count_reports(|report| matches!(report, Report::Waiting { .. })), 0);
}

#[test]
fn a_grant_for_nobody_is_counted_once() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request });
    hand.done(op, grant(1));
    assert_eq!((hand.stats().undone_grants, hand.stats().grants), (1, 0));
    // The same of a grant, and of a further level, that was not picked up.
    let mut hand = Hand::new();
    let (first, _) = hand.hold(1);
    let inner = hand.re_enter(1);
    hand.event(Event::Withdrawn { request: inner });
    assert_eq!(hand.stats().undone_grants, 1);
    hand.event(Event::Withdrawn { request: first });
    assert_eq!(hand.stats().undone_grants, 2);
}

/// A grant that came by the fallback poll is counted; the third in a row is told, since wake-ups do
/// not seem to arrive. One that a wake-up brought begins the count anew.
#[test]
fn grants_of_the_fallback_poll_are_counted_until_a_wake_up_arrives() {
    let mut hand = Hand::new();
    let missing = |report: &Report| matches!(report, Report::WakeUpsMissing { in_a_row: 3, .. });
    let granted_after = |hand: &mut Hand, wakes: fn(&mut Hand)| {
        let request = hand.sleeper(1);
        wakes(hand);
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(1));
        let cell = hand.granted(request);
        hand.release(&cell, request);
        let (op, _) = hand.take("release");
        hand.done(op, freed());
        hand.pass(SECOND);
    };
    let by_fallback = |hand: &mut Hand| granted_after(hand, |hand| hand.pass(6 * SECOND));
    by_fallback(&mut hand);
    by_fallback(&mut hand);
    assert_eq!((hand.stats().fallback_grants, hand.count_reports(missing)), (2, 0));
    by_fallback(&mut hand);
    assert_eq!((hand.stats().fallback_grants, hand.count_reports(missing)), (3, 1));

    granted_after(&mut hand, Hand::message);
    by_fallback(&mut hand);
    by_fallback(&mut hand);
    assert_eq!((hand.stats().fallback_grants, hand.count_reports(missing)), (5, 1));
    by_fallback(&mut hand);
    assert_eq!((hand.stats().fallback_grants, hand.count_reports(missing)), (6, 2));
}

#[test]
fn a_connection_is_told_with_its_address() {
    let mut hand = Hand::unconnected();
    hand.connect("run-1");
    assert_eq!(hand.count_reports(|report| matches!(report, Report::LinkUp { .. })), 1);
    hand.cut();
    assert_eq!(hand.count_reports(|report| matches!(report, Report::LinkDown { .. })), 1);
}

/// Who waits for its own client is told of once, however long it goes on.
#[test]
fn a_wait_for_a_hold_of_this_client_is_told_once() {
    let mut hand = Hand::new();
    hand.taken(1, watched(), None);
    hand.ask(2, Wait::Forever);
    let on_self = |report: &Report| matches!(report, Report::WaitingOnSelf { .. });
    hand.live(9 * SECOND);
    assert_eq!(hand.count_reports(on_self), 0);
    hand.live(2 * SECOND);
    assert_eq!(hand.count_reports(on_self), 1);
    // The next in line asks about the same hold.
    for owner in 3..6 {
        hand.ask(owner, Wait::For(11 * SECOND));
        hand.live(12 * SECOND);
    }
    assert_eq!(hand.count_reports(on_self), 1);
}

/// Behind a release nobody waits for its own client.
#[test]
fn a_wait_for_a_release_is_none_for_a_hold_of_this_client() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.release(&cell, level);
    hand.ask(2, Wait::Forever);
    hand.pass(11 * SECOND);
    assert_eq!(hand.count_reports(|report| matches!(report, Report::WaitingOnSelf { .. })), 0);
}

/// A release that fails is told to who waits for it, and reported only if nobody does.
#[test]
fn a_release_that_fails_is_reported_if_nobody_waits_for_it() {
    for waits in [true, false] {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        if waits {
            let unlock = hand.release(&cell, level);
            let (op, _) = hand.take("release");
            hand.refused(op, FailureKind::Denied);
            assert!(matches!(hand.answer(unlock), Answer::Failed(Error::Denied { .. })));
        } else {
            hand.event(Event::Release { hold: cell.id, level, request: None });
            let (op, _) = hand.take("release");
            hand.refused(op, FailureKind::Denied);
        }
        let failed = |report: &Report| matches!(report, Report::ReleaseFailed { .. });
        assert_eq!(hand.count_reports(failed), usize::from(!waits));
        assert_eq!(hand.stats().failed_drop_releases, u64::from(!waits));
    }
}

/// Of a message for a name that nobody waits for, nothing is counted.
#[test]
fn a_message_wakes_only_who_waits() {
    let mut hand = Hand::new();
    let request = hand.sleeper(1);
    hand.event(Event::Cancel { request });
    hand.leaves();
    hand.message();
    assert_eq!(hand.stats().wake_ups, 0);
    hand.nothing_sent();
    // Whoever comes after it asks at once, as for any other name.
    hand.ask(2, Wait::Once);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
}
