//! A hold and nobody else: what is sent, what is answered, what is counted.

use std::time::Duration;

use crate::backend::FailureKind;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::share::Share;

use super::Hand;
use super::freed;
use super::grant;
use super::handed;
use super::watched;

#[test]
fn an_uncontended_pair_is_two_commands() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    assert!(cell.is_held(hand.now));
    assert_eq!((cell.count(), hand.directory.len()), (1, 1));
    let release = hand.release(&cell, level);
    assert!(!cell.is_held(hand.now), "the owner has let go");
    let (op, command) = hand.take("release");
    assert!(matches!(command, Command::Release { share: Share::NOTHING, .. }));
    hand.done(op, freed());
    assert!(matches!(hand.answer(release), Answer::Done));
    hand.nothing_sent();
    assert!(hand.directory.is_empty());
}

#[test]
fn nobody_is_told_what_an_owner_holds_that_does_not_come_back() {
    let mut hand = Hand::new();
    let (request, name, owner) = (RequestId(70), LockName::new("n").unwrap(), OwnerKey::once());
    let acquire = Acquire {
        request,
        name,
        owner,
        share: Share::ONE,
        lease: watched(),
        wait: Wait::Forever,
        max_hold: None,
        at_least: None,
        upgrades: None,
    };
    hand.event(Event::Acquire(acquire));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(7));
    assert!(hand.granted(request).is_held(hand.now));
    assert!(hand.directory.is_empty());
}

#[test]
fn a_nested_pair_sends_the_counts_wanted() {
    let mut hand = Hand::new();
    let (outer, cell) = hand.hold(1);
    let inner = hand.ask(1, Wait::Forever);
    let (op, command) = hand.take("acquire");
    assert!(matches!(command, Command::Acquire { share: Share { exclusive: 2, .. }, .. }));
    hand.done(op, grant(0));
    assert_eq!(hand.granted(inner).token(), cell.token());
    assert_eq!(cell.count(), 2);
    // Levels end in any order.
    let first = hand.release(&cell, outer);
    let (op, command) = hand.take("release");
    assert!(matches!(command, Command::Release { share: Share::ONE, .. }));
    hand.done(op, Body::Release(Released::CountSet));
    assert!(matches!(hand.answer(first), Answer::Done));
    assert!(cell.is_held(hand.now));
    hand.release(&cell, inner);
    let (_, command) = hand.take("release");
    assert!(matches!(command, Command::Release { share: Share::NOTHING, .. }));
}

#[test]
fn validity_counts_from_before_the_request_was_sent() {
    let mut hand = Hand::new();
    let sent = hand.now;
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.pass(Duration::from_millis(900));
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    assert_eq!(cell.valid_until(), sent.plus(Duration::from_millis(30_000 - 300 - 2)));
}

#[test]
fn a_grant_that_arrives_after_its_validity_is_given_back() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.now = hand.now.plus(Duration::from_millis(30_500));
    hand.done(op, grant(1));
    hand.is_open(request);
    assert_eq!(hand.labels()[0], "hand_off", "the waiter is still there: it gets a new hold");
}

#[test]
fn a_late_reply_revives_nothing() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.pass(Duration::from_secs(5));
    hand.event(Event::PickedUp { request: level });
    hand.pass(Duration::from_secs(5));
    let (op, _) = hand.take("renew");
    hand.now = hand.now.plus(Duration::from_secs(25));
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(!cell.is_held(hand.now));
    assert_eq!(cell.loss(), Some(LossReason::Expired));
}

#[test]
fn nothing_is_renewed_before_it_is_picked_up_nor_after_its_release_began() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.pass(Duration::from_secs(5));
    assert_eq!(hand.withdrawals, [level], "asked at min(lease/3, 5 s)");
    hand.nothing_sent();
    hand.event(Event::PickedUp { request: level });
    hand.pass(Duration::from_secs(6));
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    hand.release(&cell, level);
    hand.take("release");
    hand.pass(Duration::from_secs(25));
    assert!(!hand.labels().contains(&"renew"), "{:?}", hand.labels());
}

#[test]
fn a_grant_nobody_picks_up_goes_to_the_next_waiter() {
    let mut hand = Hand::new();
    let (level, _) = hand.hold(1);
    let next = hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    hand.pass(Duration::from_secs(5));
    hand.event(Event::Withdrawn { request: level });
    let (op, command) = hand.sent.remove(0);
    assert!(matches!(command.label(), "release" | "hand_off"));
    if command.label() == "release" {
        hand.done(op, freed());
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(2));
    } else {
        hand.done(op, handed());
    }
    hand.granted(next);
    hand.is_open(level);
}

#[test]
fn the_hold_count_has_a_limit_and_nothing_is_sent_beyond_it() {
    let mut hand = Hand::new();
    hand.hold(1);
    for _ in 0..2 {
        let request = hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(0));
        hand.granted(request);
    }
    let refused = hand.ask(1, Wait::Forever);
    assert!(matches!(hand.answer(refused), Answer::Failed(Error::HoldCountLimit { limit: 3, .. })));
    hand.nothing_sent();
}

#[test]
fn a_level_cancelled_on_the_wire_is_taken_back() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let inner = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request: inner });
    hand.done(op, grant(0));
    let (_, command) = hand.take("release");
    assert!(matches!(command, Command::Release { share: Share::ONE, .. }));
    assert_eq!(cell.count(), 1);
    hand.is_open(inner);
}

#[test]
fn an_unknown_level_is_asked_for_again_with_the_same_count() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let inner = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    assert_eq!(cell.count(), 1);
    hand.pass(Duration::from_millis(100));
    let (op, command) = hand.take("acquire");
    assert!(matches!(command, Command::Acquire { share: Share { exclusive: 2, .. }, .. }));
    hand.done(op, grant(0));
    hand.granted(inner);
    assert_eq!(cell.count(), 2);
}

#[test]
fn lowering_the_count_without_memory_is_no_failure() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let inner = hand.re_enter(1);
    let release = hand.release(&cell, inner);
    let (op, _) = hand.take("release");
    hand.refused(op, FailureKind::OutOfMemory);
    assert!(matches!(hand.answer(release), Answer::Done));
    assert!(cell.is_held(hand.now));
}

#[test]
fn an_unknown_release_is_repeated_and_an_absent_key_is_then_success() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let release = hand.release(&cell, level);
    let (op, first) = hand.take("release");
    hand.unknown(op);
    hand.is_open(release);
    hand.pass(Duration::from_millis(100));
    let (op, again) = hand.take("release");
    assert_eq!(first, again);
    hand.done(op, Body::Release(Released::Gone));
    assert!(matches!(hand.answer(release), Answer::Done));
}

#[test]
fn a_release_that_finds_the_key_gone_says_lost() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let release = hand.release(&cell, level);
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Gone));
    assert!(matches!(
        hand.answer(release),
        Answer::Failed(Error::Lost { reason: LossReason::Removed, .. })
    ));
}
