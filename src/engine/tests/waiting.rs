//! Who waits, who asks for all of them, and what wakes them.

use std::time::Duration;

use crate::base::error::Error;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::share::Share;

use super::Hand;
use super::freed;
use super::grant;
use super::handed;
use super::held;

#[test]
fn one_contender_asks_and_the_others_wait_without_a_command() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    for owner in 2..5 {
        hand.ask(owner, Wait::Forever);
    }
    hand.nothing_sent();
    hand.message();
    hand.take("acquire");
}

#[test]
fn there_is_a_limit_to_the_waiters_of_a_name() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    for owner in 2..=5 {
        hand.ask(owner, Wait::Forever);
    }
    let refused = hand.ask(6, Wait::Forever);
    assert!(matches!(hand.answer(refused), Answer::Failed(Error::TooManyWaiters { limit: 5, .. })));
}

#[test]
fn a_confirmed_subscription_is_followed_by_one_more_try() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    hand.nothing_sent();
    assert_eq!(hand.subscriptions.len(), 1);
    let (channel, generation) = hand.subscriptions[0].clone();
    // The answer to an older SUBSCRIBE says nothing.
    let stale = generation - 1;
    hand.event(Event::Subscribed { channel: channel.clone(), generation: stale, result: Ok(()) });
    hand.nothing_sent();
    hand.event(Event::Subscribed { channel, generation, result: Ok(()) });
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(request);
}

#[test]
fn a_wait_for_the_confirmation_is_bounded_too() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(1_000));
    hand.pass(Duration::from_millis(999));
    hand.nothing_sent();
    hand.pass(Duration::from_millis(2));
    hand.take("acquire");
}

#[test]
fn a_sleep_ends_with_the_holders_lease_or_the_fallback() {
    for (pttl, wakes_by) in [(1_500, 1_502), (600_000, 5_500)] {
        let mut hand = Hand::new();
        hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.done(op, held(pttl));
        hand.confirm_subscriptions();
        let (op, _) = hand.take("acquire");
        hand.done(op, held(pttl));
        hand.pass(Duration::from_millis(1_499));
        hand.nothing_sent();
        hand.pass(Duration::from_millis(wakes_by - 1_499));
        hand.take("acquire");
    }
}

#[test]
fn a_message_during_an_attempt_leads_to_another() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.message();
    hand.nothing_sent();
    hand.done(op, held(20_000));
    hand.take("acquire");
}

#[test]
fn the_role_passes_on_with_a_pending_wake_up() {
    // Cancelled while its attempt is on the wire: the next one has the duty.
    let mut hand = Hand::new();
    let first = hand.sleeper(1);
    let second = hand.ask(2, Wait::Forever);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.message();
    hand.event(Event::Cancel { request: first });
    hand.nothing_sent();
    hand.done(op, held(20_000));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(second);
    hand.is_open(first);
}

#[test]
fn a_grant_for_a_cancelled_contender_is_handed_to_the_next() {
    let mut hand = Hand::new();
    let first = hand.sleeper(1);
    let second = hand.ask(2, Wait::Forever);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request: first });
    hand.done(op, grant(1));
    let (op, _) = hand.take("hand_off");
    hand.done(op, handed());
    assert_eq!(hand.granted(second).token(), 2);
    hand.is_open(first);
}

#[test]
fn a_grant_for_nobody_is_released() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request });
    hand.done(op, grant(1));
    let (op, command) = hand.take("release");
    assert!(matches!(command, Command::Release { share: Share::NOTHING, .. }));
    hand.done(op, freed());
    hand.nothing_sent();
    assert!(!hand.engine.has_holds());
}

#[test]
fn the_role_passes_on_at_a_timeout() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::For(Duration::from_secs(2)));
    let (op, _) = hand.take("acquire");
    hand.done(op, held(60_000));
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done(op, held(60_000));
    let second = hand.ask(2, Wait::Forever);
    hand.pass(Duration::from_secs(2));
    assert!(matches!(hand.answer(request), Answer::NotGranted));
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(second);
}

#[test]
fn a_resubscription_wakes_the_contender_once() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    hand.event(Event::PubSubDown);
    hand.nothing_sent();
    hand.event(Event::PubSubUp);
    hand.nothing_sent();
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    hand.nothing_sent();
}

#[test]
fn a_subscription_ends_after_the_last_waiter() {
    let mut hand = Hand::new();
    let request = hand.sleeper(1);
    hand.event(Event::Cancel { request });
    assert!(hand.unsubscribed.is_empty(), "the next waiter may come soon");
    hand.pass(Duration::from_secs(1));
    assert_eq!(hand.unsubscribed.len(), 1);
    assert_eq!(hand.engine.next_timeout(), None, "nothing is left to look at");
}

#[test]
fn a_second_lock_of_the_same_owner_waits_for_the_first_and_re_enters() {
    let mut hand = Hand::new();
    let first = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    let second = hand.ask(1, Wait::Forever);
    hand.nothing_sent();
    hand.done(op, grant(7));
    hand.granted(first);
    let (op, command) = hand.take("acquire");
    assert!(matches!(command, Command::Acquire { share: Share { exclusive: 2, .. }, .. }));
    hand.done(op, grant(0));
    assert_eq!(hand.granted(second).token(), 7);
}

#[test]
fn a_second_lock_of_the_same_owner_takes_the_attempt_over() {
    let mut hand = Hand::new();
    let first = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    let other = hand.ask(2, Wait::Forever);
    let second = hand.ask(1, Wait::Forever);
    hand.event(Event::Cancel { request: first });
    hand.done(op, grant(7));
    assert_eq!(hand.granted(second).count(), 1);
    hand.is_open(other);
    hand.nothing_sent();
}

#[test]
fn a_lock_while_its_own_release_is_on_the_wire_queues_behind_it() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.release(&cell, level);
    let (op, _) = hand.take("release");
    let again = hand.ask(1, Wait::Forever);
    hand.nothing_sent();
    hand.done(op, freed());
    let (op, command) = hand.take("acquire");
    assert!(matches!(command, Command::Acquire { share: Share::ONE, .. }));
    hand.done(op, grant(8));
    assert_ne!(hand.granted(again).id, cell.id);
}

#[test]
fn try_lock_is_answered_by_what_is_in_the_way() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let denied = hand.ask(2, Wait::Once);
    assert!(matches!(hand.answer(denied), Answer::NotGranted));
    hand.release(&cell, level);
    let (op, _) = hand.take("release");
    let denied = hand.ask(2, Wait::Once);
    assert!(matches!(hand.answer(denied), Answer::NotGranted), "a release in the way is an answer");
    hand.done(op, freed());
    let denied = hand.ask(2, Wait::Once);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(5_000));
    assert!(matches!(hand.answer(denied), Answer::NotGranted));
    assert!(hand.subscriptions.is_empty(), "nobody waits");
}

#[test]
fn no_answer_within_the_wait_is_unavailable() {
    for wait in [Wait::Once, Wait::For(Duration::from_millis(1_500))] {
        let mut hand = Hand::new();
        let request = hand.ask(1, wait);
        hand.take("acquire");
        hand.pass(Duration::from_secs(2));
        assert!(matches!(hand.answer(request), Answer::Failed(Error::Unavailable { .. })));
    }
}

#[test]
fn a_key_in_other_use_is_everybodys_error() {
    let mut hand = Hand::new();
    let first = hand.ask(1, Wait::Forever);
    let second = hand.ask(2, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(
        op,
        Body::Acquire(Acquired::Held {
            pttl: 5,
            holder: "user:1".to_owned(),
            place: None,
            others: None,
        }),
    );
    for request in [first, second] {
        assert!(matches!(hand.answer(request), Answer::Failed(Error::KeyConflict { .. })));
    }
    hand.nothing_sent();
}
