//! The engine with a fair lock: whoever asks again stands at the end, whatever the waiter before it
//! has left behind.

use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::event::Acquire;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::command::WaitMode;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::share::Share;

use super::Duration;
use super::Hand;
use super::field;
use super::grant;
use super::held;
use super::watched;

fn ask(hand: &mut Hand, wait: Wait) -> RequestId {
    hand.wish(Acquire {
        request: RequestId(0),
        name: LockName::new("n").unwrap().of_kind(Kind::Fair),
        owner: OwnerKey::from_test(1),
        share: Share::ONE,
        lease: watched(),
        wait,
        max_hold: None,
        at_least: None,
        upgrades: None,
    })
}

fn wait_of(command: &Command) -> &WaitMode {
    match command {
        Command::Acquire { wait, .. } => wait,
        other => panic!("{other:?}"),
    }
}

/// What the removal of a dead id is told that had a place.
fn left_line() -> Body {
    Body::Release(Released::LeftLine { ticket: 7 })
}

/// A waiter that has a place, and then leaves.
fn waits_and_leaves(hand: &mut Hand) {
    let request = ask(hand, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    hand.event(Event::Cancel { request });
}

#[test]
fn who_leaves_and_asks_again_does_not_get_its_old_place_back() {
    for answered_first in [false, true] {
        let mut hand = Hand::new();
        waits_and_leaves(&mut hand);
        let (undo, _) = hand.take("release");
        if answered_first {
            hand.done(undo, left_line());
            ask(&mut hand, Wait::Forever);
        } else {
            // Behind the removal, and without its answer.
            ask(&mut hand, Wait::Forever);
            hand.done(undo, left_line());
        }
        let (op, command) = hand.take("acquire");
        assert!(matches!(wait_of(&command), WaitMode::First { .. }), "{command:?}");
        hand.done(op, grant(1));
    }
}

#[test]
fn a_try_lock_takes_no_place_either_after_a_waiter_of_its_owner_has_left() {
    let mut hand = Hand::new();
    waits_and_leaves(&mut hand);
    let (undo, _) = hand.take("release");
    ask(&mut hand, Wait::Once);
    hand.done(undo, left_line());
    let (_, command) = hand.take("acquire");
    assert_eq!(*wait_of(&command), WaitMode::Try);
}

/// The answer is about a waiter that has left while its attempt was on the wire.
#[test]
fn who_asks_during_an_attempt_of_a_waiter_that_has_left_has_a_place_of_its_own() {
    for is_known in [true, false] {
        let mut hand = Hand::new();
        let request = ask(&mut hand, Wait::Forever);
        let (op, left) = hand.take("acquire");
        hand.pass(Duration::from_millis(1));
        hand.event(Event::Cancel { request });
        ask(&mut hand, Wait::Forever);
        match is_known {
            true => hand.done(op, held(20_000)),
            false => hand.unknown(op),
        }
        if !is_known {
            hand.pass(Duration::from_millis(100));
        }
        // The removal goes first, and its answer is not waited for.
        assert_eq!(hand.labels(), ["release", "acquire"]);
        let (undo, removal) = hand.sent.remove(0);
        hand.done(undo, left_line());
        let (_, command) = hand.take("acquire");
        assert!(matches!(wait_of(&command), WaitMode::First { .. }), "{command:?}");
        assert_eq!(field(&removal), field(&left));
        assert_ne!(field(&command), field(&left));
    }
}

/// It is the same waiter, which goes on.
#[test]
fn an_attempt_without_an_answer_costs_no_place() {
    let mut hand = Hand::new();
    ask(&mut hand, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    let (undo, _) = hand.take("release");
    hand.pass(Duration::from_millis(100));
    hand.nothing_sent();
    hand.done(undo, left_line());
    let (_, command) = hand.take("acquire");
    let again = matches!(wait_of(&command), WaitMode::Again { ticket: 7, .. });
    assert!(again, "{command:?}");
}
