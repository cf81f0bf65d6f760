//! What a shutdown says became of the locks.

use std::time::Duration;

use crate::backend::FailureKind;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Fate;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Released;

use super::Hand;
use super::LEASE;
use super::fixed;
use super::freed;
use super::grant;
use super::handed;
use super::held;
use super::watched;

const SECOND: Duration = Duration::from_secs(1);
const END: RequestId = RequestId(900);

impl Hand {
    fn shut_down_within(&mut self, time: Duration) {
        self.event(Event::Shutdown { until: self.now.plus(time), request: Some(END) });
    }

    /// The fate of the only lock.
    fn only_fate(&mut self) -> Fate {
        let fates = self.fates(END);
        assert_eq!(fates.len(), 1, "{fates:?}");
        fates[0].1
    }

    /// Until when a lock is left whose attempt is sent now and is executed at its deadline.
    fn latest(&self, lease: Duration) -> Moment {
        self.now.plus(SECOND).plus(lease + lease / 100 + 2 * Duration::from_millis(1))
    }
}

#[test]
fn each_lock_has_its_fate_in_the_order_of_the_names() {
    let mut hand = Hand::new();
    let latest = hand.latest(LEASE);
    for name in ["d", "b", "a", "c"] {
        hand.taken_named(name, watched(), None);
    }
    hand.shut_down_within(2 * SECOND);
    let (op, _) = hand.take("release_many");
    // In the order in which they were taken.
    let answers = [
        Some(Released::Freed { receivers: Some(0) }),
        Some(Released::Gone),
        Some(Released::Freed { receivers: None }),
        None,
    ];
    hand.done(op, Body::ReleaseMany(answers.into()));
    assert!(!hand.finished);
    hand.pass(2 * SECOND);
    assert!(hand.finished);
    let fates = hand.fates(END);
    let named = |name: &str, fate| (name.to_owned(), fate);
    let wanted = [
        named("a", Fate::Released),
        named("b", Fate::Lost),
        named("c", Fate::Left(latest)),
        named("d", Fate::Released),
    ];
    assert_eq!(fates, wanted);
}

#[test]
fn a_release_that_is_refused_leaves_the_lock() {
    let mut hand = Hand::new();
    let latest = hand.latest(LEASE);
    hand.hold(1);
    hand.shut_down_within(5 * SECOND);
    let (op, _) = hand.take("release");
    hand.refused(op, FailureKind::Denied);
    assert!(hand.finished, "nothing else can be done");
    assert_eq!(hand.only_fate(), Fate::Left(latest));
}

#[test]
fn a_release_that_was_perhaps_done_is_done_once_the_hold_is_gone() {
    for (answer, fate) in [(Released::Gone, Fate::Released), (Released::Foreign, Fate::Released)] {
        let mut hand = Hand::new();
        hand.hold(1);
        hand.shut_down_within(5 * SECOND);
        let (op, _) = hand.take("release");
        hand.unknown(op);
        hand.pass(SECOND);
        let (op, _) = hand.take("release");
        hand.done(op, Body::Release(answer));
        assert_eq!(hand.only_fate(), fate);
    }
}

#[test]
fn a_lease_that_ends_during_the_shutdown_is_left_and_over() {
    let mut hand = Hand::new();
    hand.taken(1, fixed(SECOND), None);
    hand.cut();
    hand.shut_down_within(10 * SECOND);
    hand.pass(5 * SECOND);
    assert!(hand.finished, "there is nothing left to be released");
    let fate = hand.only_fate();
    assert!(matches!(fate, Fate::Left(end) if end < hand.now), "{fate:?}");
}

#[test]
fn an_attempt_without_an_answer_is_left_until_its_lease_would_be_over() {
    let mut hand = Hand::new();
    let latest = hand.latest(LEASE);
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.shut_down_within(2 * SECOND);
    hand.unknown(op);
    hand.pass(2 * SECOND);
    assert_eq!(hand.only_fate(), Fate::Left(latest));

    // The server does not answer until nothing of it can be there any more.
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    hand.cut();
    hand.pass(LEASE + 3 * SECOND);
    hand.shut_down_within(2 * SECOND);
    hand.pass(2 * SECOND);
    assert_eq!(hand.fates(END), []);
}

#[test]
fn an_attempt_that_is_refused_or_granted_during_the_shutdown() {
    for (answer, fates) in [(held(20_000), 0), (grant(1), 1)] {
        let mut hand = Hand::new();
        hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.shut_down_within(2 * SECOND);
        hand.done(op, answer);
        if fates == 1 {
            let (op, _) = hand.take("release");
            hand.done(op, freed());
        }
        assert!(hand.finished);
        assert_eq!(hand.fates(END), vec![("n".to_owned(), Fate::Released); fates]);
    }
}

#[test]
fn a_hand_off_on_its_way_releases_for_both() {
    let free = HandedOff::ReleasedOnly { late: false, receivers: Some(0) };
    for (answer, second) in [(handed(), true), (Body::HandOff(free), false)] {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        hand.ask(2, Wait::Forever);
        hand.release(&cell, level);
        let (op, _) = hand.take("hand_off");
        hand.shut_down_within(2 * SECOND);
        hand.done(op, answer);
        if second {
            assert_eq!(hand.left(), ["n"], "the next waiter's, who is gone");
            let (op, _) = hand.take("release");
            hand.done(op, freed());
        }
        assert!(hand.finished);
        assert_eq!(hand.only_fate(), Fate::Released);
    }
}

#[test]
fn a_nested_acquire_that_finds_the_hold_gone_says_that_it_was_lost() {
    let mut hand = Hand::new();
    hand.hold(1);
    hand.want(1, watched(), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.shut_down_within(2 * SECOND);
    hand.done(op, Body::Acquire(crate::kinds::reply::Acquired::Gone));
    assert!(hand.finished);
    assert_eq!(hand.only_fate(), Fate::Lost);
}

#[test]
fn what_was_lost_before_is_no_concern_of_the_shutdown() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, fixed(SECOND), None);
    hand.pass(2 * SECOND);
    assert!(cell.loss().is_some());
    hand.shut_down_within(SECOND);
    assert!(hand.finished);
    assert_eq!(hand.fates(END), []);
}

#[test]
fn a_count_on_the_wire_of_a_lost_hold_is_answered_when_the_shutdown_begins() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let inner = hand.re_enter(1);
    let unlock = hand.release(&cell, inner);
    hand.take("release");
    cell.lose(LossReason::Removed);
    hand.verify(&cell);
    hand.is_open(unlock);
    hand.shut_down_within(2 * SECOND);
    let answer = hand.answer(unlock);
    assert!(
        matches!(answer, Answer::Failed(Error::Lost { reason: LossReason::Removed, .. })),
        "{answer:?}"
    );
    assert!(hand.finished);
}

#[test]
fn a_verification_on_the_wire_is_answered_when_the_shutdown_ends() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let verify = hand.verify(&cell);
    hand.take("renew");
    hand.shut_down_within(SECOND / 2);
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    assert!(hand.finished);
    let answer = hand.answer(verify);
    assert!(matches!(answer, Answer::Failed(_)), "{answer:?}");
}
