//! What a lock that is only held takes: nothing for waiters it does not have, nothing for what it
//! has not to do.

use std::time::Duration;

use crate::base::name::LockName;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::engine::hold::Hold;
use crate::engine::name_record::NameRecord;
use crate::engine::timers::TimerKey;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;

use super::Hand;
use super::grant;

const SECOND: Duration = Duration::from_secs(1);

impl Hand {
    /// Whether nothing is kept but the name and the hold themselves.
    fn is_calm(&self) -> bool {
        let names = self.engine.queues.names.unordered().all(|name| name.is_calm());
        names && self.engine.holds.unordered().all(|hold| hold.is_calm())
    }
}

#[test]
fn records_are_as_large_as_they_have_to_be() {
    assert!(size_of::<Hold>() <= 192, "{}", size_of::<Hold>());
    assert!(size_of::<NameRecord>() <= 64, "{}", size_of::<NameRecord>());
    assert!(size_of::<Event>() <= 120, "{}", size_of::<Event>());
}

#[test]
fn a_lock_that_is_only_held_is_calm() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    assert!(hand.is_calm(), "granted");
    hand.event(Event::PickedUp { request: level });
    hand.live(10 * SECOND);
    assert!(hand.is_calm(), "renewed");
    hand.requests += 1;
    let verify = RequestId(hand.requests);
    hand.event(Event::Verify { hold: cell.id, request: verify });
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(matches!(hand.answer(verify), Answer::Done));
    assert!(hand.is_calm(), "verified");
    let inner = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    assert!(hand.is_calm(), "re-entered");
    let release = hand.release(&cell, inner);
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::CountSet));
    assert!(matches!(hand.answer(release), Answer::Done));
    assert!(hand.is_calm(), "and left");
}

#[test]
fn a_name_is_calm_again_when_its_waiters_are_gone() {
    let mut hand = Hand::new();
    hand.hold(1);
    let waiter = hand.ask(2, Wait::Forever);
    assert!(!hand.is_calm());
    hand.event(Event::Cancel { request: waiter });
    assert!(hand.is_calm());
}

#[test]
fn a_lock_that_was_waited_for_is_calm_once_it_is_only_held() {
    let mut hand = Hand::new();
    let request = hand.sleeper(1);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(request);
    hand.event(Event::PickedUp { request });
    assert!(!hand.is_calm(), "who comes now need not subscribe");
    hand.pass(2 * SECOND);
    assert!(hand.is_calm());
}

#[test]
fn a_lock_is_uncontended_until_others_ask() {
    let mut hand = Hand::new();
    let name = LockName::new("n").unwrap();
    let is_uncontended = |hand: &Hand| hand.engine.is_uncontended(&name);
    assert!(is_uncontended(&hand), "unknown");
    hand.ask(1, Wait::Forever);
    assert!(is_uncontended(&hand), "asked for");
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    assert!(is_uncontended(&hand), "held");
    let second = hand.ask(2, Wait::Forever);
    assert!(is_uncontended(&hand), "nobody asked before");
    hand.ask(3, Wait::Forever);
    hand.event(Event::Cancel { request: second });
    assert!(!is_uncontended(&hand));

    let mut hand = Hand::new();
    hand.sleeper(1);
    assert!(!is_uncontended(&hand), "held elsewhere");
}

#[test]
fn who_has_shown_his_guard_needs_no_timer_for_it() {
    let mut hand = Hand::new();
    let (level, _) = hand.hold(1);
    let offer = |hand: &Hand| {
        hand.engine
            .holds
            .unordered()
            .any(|hold| hand.engine.cx.timers.is_set(TimerKey::Offer(hold.id)))
    };
    assert!(offer(&hand));
    let inner = hand.re_enter(1);
    hand.event(Event::PickedUp { request: level });
    assert!(offer(&hand), "the other level was not picked up");
    hand.event(Event::PickedUp { request: inner });
    assert!(!offer(&hand));
}

#[test]
fn a_lock_that_is_only_held_has_no_timer() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let clock = |hand: &Hand| hand.engine.cx.timers.is_set(TimerKey::HoldClock(cell.id));
    assert!(!clock(&hand), "it is looked at when its guard was to be picked up");
    hand.event(Event::PickedUp { request: level });
    assert!(!clock(&hand), "and when it is to be renewed");
    hand.live(10 * SECOND);
    assert!(!clock(&hand), "also after that");
    hand.pass(12 * SECOND);
    assert!(clock(&hand), "no renewal was answered");
}
