//! A grant goes from task to task; others get their turn.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::FailureKind;
use crate::base::cell::HoldCell;
use crate::base::name::LockName;
use crate::engine::event::Answer;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::engine::releasing::is_for_the_far;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Released;

use super::Hand;
use super::freed;
use super::grant;
use super::held;

/// The release that was sent is done, and so many were told.
fn freed_telling(hand: &mut Hand, receivers: u64) {
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Freed { receivers: Some(receivers) }));
}

#[test]
fn hand_offs_end_after_sixteen_and_the_others_get_their_turn() {
    let mut hand = Hand::new();
    let (mut level, mut cell) = hand.hold(1);
    for number in 0..16 {
        let next = hand.ask(10 + number, Wait::Forever);
        hand.release(&cell, level);
        let (op, _) = hand.take("hand_off");
        hand.done(op, Body::HandOff(HandedOff::Granted { token: 100 + number }));
        (level, cell) = (next, hand.granted(next));
    }
    let next = hand.ask(99, Wait::Forever);
    hand.release(&cell, level);
    freed_telling(&mut hand, 3);
    hand.nothing_sent();
    hand.pass(Duration::from_millis(20));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(200));
    hand.granted(next);
}

/// Whoever is told of the next one is to hear of it before we do.
#[test]
fn it_is_known_whether_others_than_ourselves_heard_of_the_last_release() {
    let mut hand = Hand::new();
    let name = LockName::new("n").unwrap();
    let (mut level, mut cell) = listener(&mut hand, 1);
    for (receivers, others) in [(1, false), (2, true), (1, false)] {
        hand.release(&cell, level);
        freed_telling(&mut hand, receivers);
        assert_eq!(hand.engine.has_told_others(&name), others, "{receivers}, of which we are one");
        hand.pass(Duration::from_millis(20));
        (level, cell) = hand.hold(1);
    }
    assert!(!hand.engine.has_told_others(&LockName::new("other").unwrap()));
    // If we do not listen, one who was told is somebody else.
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.release(&cell, level);
    freed_telling(&mut hand, 1);
    assert!(hand.engine.has_told_others(&name));
}

#[test]
fn who_comes_back_after_a_release_lets_the_others_go_first() {
    let mut hand = Hand::new();
    let release = |hand: &mut Hand, owner| {
        let (level, cell) = hand.hold(owner);
        hand.release(&cell, level);
        freed_telling(hand, 2);
    };
    // Nobody of this client waits when it releases: what counts is who was told.
    release(&mut hand, 1);
    let later = hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    hand.pass(Duration::from_millis(20));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(7));
    hand.granted(later);

    // What cannot wait makes its attempt.
    let mut hand = Hand::new();
    release(&mut hand, 1);
    hand.ask(2, Wait::Once);
    hand.take("acquire");
    let mut hand = Hand::new();
    release(&mut hand, 1);
    hand.ask(2, Wait::For(Duration::from_millis(5)));
    hand.take("acquire");
    // Nor does it stay out when its time has become short while it waited.
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.ask(2, Wait::For(Duration::from_millis(10)));
    hand.release(&cell, level);
    let (op, _) = hand.take("hand_off");
    hand.refused(op, FailureKind::Busy);
    freed_telling(&mut hand, 2);
    hand.take("acquire");
    // Nor is it failed for standing behind somebody who lets others go first.
    for wait in [Wait::For(Duration::from_millis(5)), Wait::Once] {
        let mut hand = Hand::new();
        release(&mut hand, 1);
        hand.ask(2, Wait::Forever);
        hand.nothing_sent();
        let hurried = hand.ask(3, wait);
        let (op, _) = hand.take("acquire");
        hand.done(op, held(60_000));
        hand.pass(Duration::from_secs(1));
        assert!(matches!(hand.answer(hurried), Answer::NotGranted));
    }
}

/// A stretch of time begins that is for those who are far away, or for nobody of them.
fn at_a_time_for_the_far(hand: &mut Hand, wanted: bool) {
    for wanted in [!wanted, wanted] {
        while is_for_the_far(hand.server_time()) != wanted {
            hand.pass(Duration::from_millis(1));
        }
    }
}

/// Granted after a wait, so that messages are heard from here on.
fn listener(hand: &mut Hand, owner: u64) -> (RequestId, Arc<HoldCell>) {
    let request = hand.sleeper(owner);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    (request, hand.granted(request))
}

#[test]
fn there_is_a_time_for_those_who_are_far_away() {
    for (far, turn, others) in [(false, 2, 2), (true, 20, 2), (true, 20, 1)] {
        // After the publish, of which nothing else is heard.
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        at_a_time_for_the_far(&mut hand, far);
        hand.release(&cell, level);
        freed_telling(&mut hand, others);
        hand.ask(2, Wait::Forever);
        hand.pass(Duration::from_millis(turn - 1));
        hand.nothing_sent();
        hand.pass(Duration::from_millis(1));
        hand.take("acquire");
        // And after the message of another.
        let mut hand = Hand::new();
        let (level, cell) = listener(&mut hand, 1);
        at_a_time_for_the_far(&mut hand, far);
        hand.release(&cell, level);
        freed_telling(&mut hand, 4);
        hand.ask(2, Wait::Forever);
        for _ in 0..2 {
            hand.pass(Duration::from_millis(1));
            hand.message();
        }
        hand.pass(Duration::from_millis(turn - 1));
        hand.nothing_sent();
        hand.pass(Duration::from_millis(1));
        hand.take("acquire");
    }
}

/// Four round trips, and no less than 2 ms.
#[test]
fn a_turn_is_as_long_as_the_way_to_the_server() {
    for (round_trip, turn) in [(2, 8), (0, 2)] {
        let round_trip = Duration::from_millis(round_trip);
        let mut hand = Hand::new();
        let request = hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.pass(round_trip);
        hand.done(op, grant(1));
        let cell = hand.granted(request);
        at_a_time_for_the_far(&mut hand, false);
        hand.release(&cell, request);
        let (op, _) = hand.take("release");
        hand.pass(round_trip);
        hand.done(op, Body::Release(Released::Freed { receivers: Some(2) }));
        hand.ask(2, Wait::Forever);
        hand.pass(Duration::from_millis(turn - 1));
        hand.nothing_sent();
        hand.pass(Duration::from_millis(1));
        hand.take("acquire");
    }
}

/// Each message begins another turn, and who stands before it has time for all of them.
#[test]
fn who_waits_while_others_have_their_turns_is_answered() {
    let mut hand = Hand::new();
    let (level, cell) = listener(&mut hand, 1);
    at_a_time_for_the_far(&mut hand, true);
    hand.release(&cell, level);
    freed_telling(&mut hand, 6);
    hand.ask(2, Wait::Forever);
    hand.message();
    hand.pass(Duration::from_millis(1));
    let waits = hand.ask(3, Wait::For(Duration::from_millis(45)));
    hand.pass(Duration::from_millis(15));
    hand.message();
    hand.nothing_sent();
    hand.pass(Duration::from_millis(2));
    let (op, _) = hand.take("acquire");
    hand.done(op, held(60_000));
    // An answer is enough: from here on the one before it lets others go first again.
    hand.message();
    hand.pass(Duration::from_millis(10));
    hand.nothing_sent();
    hand.pass(Duration::from_millis(30));
    assert!(matches!(hand.answer(waits), Answer::NotGranted));
}

#[test]
fn a_short_wait_behind_another_has_it_step_back_as_usual() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    at_a_time_for_the_far(&mut hand, true);
    hand.release(&cell, level);
    freed_telling(&mut hand, 2);
    hand.ask(2, Wait::Forever);
    hand.ask(3, Wait::For(Duration::from_millis(30)));
    hand.pass(Duration::from_millis(1));
    hand.nothing_sent();
    hand.pass(Duration::from_millis(1));
    hand.take("acquire");
}

#[test]
fn turns_from_before_an_outage_hold_up_nobody_after_it() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.release(&cell, level);
    freed_telling(&mut hand, 30);
    hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    hand.cut();
    hand.connect("run-1");
    for _ in 0..2 {
        let (op, _) = hand.take("acquire");
        hand.done(op, held(60_000));
        hand.confirm_subscriptions();
    }
    hand.nothing_sent();
    hand.message();
    hand.take("acquire");
}

#[test]
fn a_hand_off_that_was_not_executed_becomes_a_plain_release() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let next = hand.ask(2, Wait::Forever);
    let release = hand.release(&cell, level);
    let (op, _) = hand.take("hand_off");
    hand.refused(op, FailureKind::Busy);
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    assert!(matches!(hand.answer(release), Answer::Done));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(2));
    hand.granted(next);
}
