//! A grant goes from task to task; others get their turn.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::FailureKind;
use crate::base::cell::HoldCell;
use crate::engine::event::Answer;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::command::WaitMode;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Place;
use crate::kinds::reply::Released;

use super::Hand;
use super::OTHER;
use super::field;
use super::freed;
use super::grant;
use super::handed;
use super::held;
use super::held_without_line;

/// The release that was sent is done, and so many were told.
fn freed_telling(hand: &mut Hand, receivers: u64) {
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Freed { receivers: Some(receivers) }));
}

/// Hands off to waiters of this client so many times. Returns the last of them.
fn hand_off_often(hand: &mut Hand, times: u64) -> (RequestId, Arc<HoldCell>) {
    let (mut level, mut cell) = hand.hold(1);
    for number in 0..times {
        let next = hand.ask(10 + number, Wait::Forever);
        hand.release(&cell, level);
        let (op, command) = hand.take("hand_off");
        assert!(matches!(command, Command::HandOff { line_first: false, .. }), "{command:?}");
        hand.done(op, Body::HandOff(HandedOff::Granted { token: 100 + number }));
        (level, cell) = (next, hand.granted(next));
    }
    (level, cell)
}

#[test]
fn after_sixteen_hand_offs_the_first_in_line_goes_first() {
    let mut hand = Hand::new();
    let (level, cell) = hand_off_often(&mut hand, 16);
    let next = hand.ask(99, Wait::Forever);
    hand.release(&cell, level);
    let (op, command) = hand.take("hand_off");
    assert!(matches!(command, Command::HandOff { line_first: true, hears: false, .. }));
    let place = Place { ticket: 70, rank: 2 };
    let to = field(&command);
    let holder = OTHER.to_owned();
    hand.done(op, Body::HandOff(HandedOff::LineFirst { pttl: 1_500, holder, place }));
    // It goes on with the same hold and ticket: first of all it has to hear.
    hand.confirm_subscriptions();
    let (op, command) = hand.take("acquire");
    let Command::Acquire { field, wait: WaitMode::Again { ticket: 70, hears: true, .. }, .. } =
        command
    else {
        panic!("{command:?}")
    };
    assert_eq!(field, to);
    hand.done(op, grant(200));
    hand.granted(next);
}

#[test]
fn where_nobody_is_in_line_another_row_of_hand_offs_begins() {
    let mut hand = Hand::new();
    let (mut level, mut cell) = hand_off_often(&mut hand, 16);
    for (owner, goes_first) in [(98, true), (99, false)] {
        let next = hand.ask(owner, Wait::Forever);
        hand.release(&cell, level);
        let (op, command) = hand.take("hand_off");
        assert!(matches!(command, Command::HandOff { line_first, .. } if line_first == goes_first));
        hand.done(op, handed());
        (level, cell) = (next, hand.granted(next));
    }
}

#[test]
fn without_a_line_four_hand_offs_end_with_a_release_and_a_pause() {
    let mut hand = Hand::without_line();
    let (level, cell) = hand_off_often(&mut hand, 4);
    let next = hand.ask(99, Wait::Forever);
    hand.release(&cell, level);
    freed_telling(&mut hand, 3);
    hand.nothing_sent();
    hand.pass(Duration::from_millis(2));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(200));
    hand.granted(next);
}

#[test]
fn without_a_line_a_client_pauses_only_if_others_than_itself_heard_of_its_release() {
    let mut hand = Hand::without_line();
    let (mut level, mut cell) = listener(&mut hand, 1);
    for (receivers, pauses) in [(1, false), (2, true), (1, false)] {
        hand.release(&cell, level);
        freed_telling(&mut hand, receivers);
        level = hand.ask(1, Wait::Forever);
        if pauses {
            hand.nothing_sent();
            hand.pass(Duration::from_millis(20));
        }
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(1));
        cell = hand.granted(level);
    }
}

#[test]
fn without_a_line_who_comes_back_after_a_release_pauses_for_others_once() {
    let mut hand = Hand::without_line();
    let release = |hand: &mut Hand, owner| {
        let (level, cell) = hand.hold(owner);
        hand.release(&cell, level);
        freed_telling(hand, 2);
    };
    // Nobody of this client waits when it releases: what counts is who was told.
    release(&mut hand, 1);
    let later = hand.ask(2, Wait::Forever);
    hand.pass(Duration::from_millis(1));
    hand.nothing_sent();
    hand.pass(Duration::from_millis(1));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(7));
    hand.granted(later);

    // What cannot wait makes its attempt, and who stands before it as well.
    let mut hand = Hand::without_line();
    release(&mut hand, 1);
    hand.ask(2, Wait::Once);
    hand.take("acquire");
    let mut hand = Hand::without_line();
    release(&mut hand, 1);
    hand.ask(2, Wait::For(Duration::from_millis(5)));
    hand.take("acquire");
    let mut hand = Hand::without_line();
    release(&mut hand, 1);
    hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    let hurried = hand.ask(3, Wait::Once);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(60_000));
    assert!(matches!(hand.answer(hurried), Answer::NotGranted));
    // Nobody heard it, nobody is waited for.
    let mut hand = Hand::without_line();
    let (level, cell) = hand.hold(1);
    hand.release(&cell, level);
    freed_telling(&mut hand, 0);
    hand.hold(2);
    // With a line the server says who is next.
    let mut hand = Hand::new();
    release(&mut hand, 1);
    hand.hold(2);
}

/// Granted after a wait, so that messages are heard from here on.
fn listener(hand: &mut Hand, owner: u64) -> (RequestId, Arc<HoldCell>) {
    let request = hand.sleeper(owner);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    (request, hand.granted(request))
}

/// Four round trips, no less than 2 ms and no more than 20.
#[test]
fn a_pause_is_as_long_as_the_way_to_the_server() {
    for (round_trip, pause) in [(2, 8), (0, 2), (30, 20)] {
        let round_trip = Duration::from_millis(round_trip);
        let mut hand = Hand::without_line();
        let request = hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.pass(round_trip);
        hand.done(op, grant(1));
        let cell = hand.granted(request);
        hand.release(&cell, request);
        let (op, _) = hand.take("release");
        hand.pass(round_trip);
        hand.done(op, Body::Release(Released::Freed { receivers: Some(2) }));
        hand.ask(2, Wait::Forever);
        hand.pass(Duration::from_millis(pause - 1));
        hand.nothing_sent();
        hand.pass(Duration::from_millis(1));
        hand.take("acquire");
    }
}

#[test]
fn without_a_line_who_had_the_lock_a_moment_ago_pauses_when_another_frees_it() {
    for (ago, pauses) in [(10, true), (99, true), (110, false)] {
        let mut hand = Hand::without_line();
        let (level, cell) = listener(&mut hand, 1);
        hand.release(&cell, level);
        freed_telling(&mut hand, 2);
        // It hears its own message as well, which frees nothing.
        hand.message();
        hand.pass(Duration::from_millis(2));
        hand.ask(2, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.done(op, held_without_line(20_000));
        hand.pass(Duration::from_millis(ago - 2));
        hand.message();
        assert_eq!(hand.sent.is_empty(), pauses, "{ago}");
        hand.pass(Duration::from_millis(2));
        let (op, _) = hand.take("acquire");
        hand.done(op, held_without_line(20_000));
        hand.message();
        hand.take("acquire");
    }
}

#[test]
fn a_pause_from_before_an_outage_holds_up_nobody_after_it() {
    let mut hand = Hand::without_line();
    let (level, cell) = hand.hold(1);
    hand.release(&cell, level);
    freed_telling(&mut hand, 30);
    hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    hand.cut();
    hand.connect("run-1");
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
