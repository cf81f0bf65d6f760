//! A grant goes from task to task; others get their turn.

use std::time::Duration;

use crate::backend::FailureKind;
use crate::engine::event::Answer;
use crate::engine::event::Wait;
use crate::scripts::reentrant::Body;
use crate::scripts::reentrant::HandedOff;
use crate::scripts::reentrant::Released;

use super::Hand;
use super::freed;
use super::grant;
use super::held;

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
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Freed { receivers: Some(3) }));
    hand.nothing_sent();
    hand.pass(Duration::from_millis(20));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(200));
    hand.granted(next);
}

#[test]
fn who_comes_back_after_a_release_lets_the_others_go_first() {
    let mut hand = Hand::new();
    let release = |hand: &mut Hand, owner| {
        let (level, cell) = hand.hold(owner);
        hand.release(&cell, level);
        let (op, _) = hand.take("release");
        hand.done(op, Body::Release(Released::Freed { receivers: Some(2) }));
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
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Freed { receivers: Some(2) }));
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

#[test]
fn turns_from_before_an_outage_hold_up_nobody_after_it() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.release(&cell, level);
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Freed { receivers: Some(30) }));
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
