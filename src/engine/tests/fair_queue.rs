//! The engine with a fair lock of the profile `Redisson`: each of those who wait has a channel and a
//! place of its own, whatever hold ids it attempts with.

use std::sync::Arc;

use crate::backend::Call;
use crate::backend::words::Words;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::event::Acquire;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::share::Share;

use super::Duration;
use super::Hand;
use super::field;
use super::grant;
use super::held;
use super::held_without_line;
use super::watched;

fn ask(hand: &mut Hand, owner: u64, wait: Wait) -> RequestId {
    hand.wish(Acquire {
        request: RequestId(0),
        name: LockName::new("n").unwrap().of_kind(Kind::FairQueue),
        owner: OwnerKey::from_test(owner),
        share: Share::ONE,
        lease: watched(),
        wait,
        max_hold: None,
        at_least: None,
        upgrades: None,
    })
}

fn args(command: &Command) -> Words {
    match command.to_call() {
        Call::Script(call) => call.args.clone(),
        other => panic!("{other:?}"),
    }
}

/// The place that an attempt takes.
fn place(command: &Command) -> String {
    args(command).iter().nth(5).unwrap().to_owned()
}

/// The place that an undo gives up; none if it is empty.
fn given_up(command: &Command) -> String {
    assert!(matches!(command, Command::Release { undo: true, .. }), "{command:?}");
    args(command).iter().nth(4).unwrap().to_owned()
}

/// A waiter that has a place, and its channel.
fn sleeper(hand: &mut Hand, owner: u64) -> (RequestId, Arc<str>) {
    let request = ask(hand, owner, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    let channel = Arc::clone(&hand.subscriptions[0].0);
    hand.confirm_subscriptions();
    let (op, command) = hand.take("acquire");
    assert_eq!(*channel, *format!("redisson_lock__channel:{{n}}:{}", place(&command)));
    hand.done(op, held(20_000));
    (request, channel)
}

#[test]
fn each_owner_that_waits_is_told_on_a_channel_of_its_own() {
    let mut hand = Hand::without_line();
    let (_, first) = sleeper(&mut hand, 1);
    let (second, channel) = sleeper(&mut hand, 2);
    assert_ne!(first, channel);
    hand.event(Event::Message { channel, payload: "0".to_owned() });
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(second);
}

#[test]
fn an_attempt_without_an_answer_costs_no_place() {
    let mut hand = Hand::without_line();
    ask(&mut hand, 1, Wait::Forever);
    let (op, first) = hand.take("acquire");
    hand.unknown(op);
    let (undo, command) = hand.take("release");
    assert_eq!(given_up(&command), "", "it stays");
    hand.pass(Duration::from_millis(100));
    // The answer to the removal is not waited for.
    let (_, second) = hand.take("acquire");
    assert_eq!(place(&second), place(&first));
    assert_ne!(field(&second), field(&first));
    hand.done(undo, Body::Release(Released::Foreign));
}

#[test]
fn who_leaves_gives_its_place_up_whatever_its_attempts_came_to() {
    // After an attempt that was refused.
    let mut hand = Hand::without_line();
    let (request, channel) = sleeper(&mut hand, 1);
    hand.event(Event::Cancel { request });
    let (_, command) = hand.take("release");
    assert!(channel.ends_with(&given_up(&command)) && !given_up(&command).is_empty());
    // After one without an answer, whose hold id was removed without the place.
    let mut hand = Hand::without_line();
    let request = ask(&mut hand, 1, Wait::Forever);
    let (op, first) = hand.take("acquire");
    hand.unknown(op);
    let (undo, _) = hand.take("release");
    hand.done(undo, Body::Release(Released::Foreign));
    hand.event(Event::Cancel { request });
    let (_, command) = hand.take("release");
    assert_eq!(given_up(&command), place(&first));
    assert_ne!(field(&command), field(&first));
    // While one is on the wire.
    let mut hand = Hand::without_line();
    let request = ask(&mut hand, 1, Wait::Forever);
    let (op, first) = hand.take("acquire");
    hand.event(Event::Cancel { request });
    hand.nothing_sent();
    hand.done(op, held(20_000));
    let (_, command) = hand.take("release");
    assert_eq!(given_up(&command), place(&first));
}

/// The answer is about a waiter that has left while its attempt was on the wire.
#[test]
fn who_asks_during_an_attempt_of_a_waiter_that_has_left_stands_at_the_end() {
    let mut hand = Hand::without_line();
    let request = ask(&mut hand, 1, Wait::Forever);
    let (op, first) = hand.take("acquire");
    hand.pass(Duration::from_millis(1));
    hand.event(Event::Cancel { request });
    ask(&mut hand, 1, Wait::Forever);
    hand.done(op, held(20_000));
    // The removal goes first.
    assert_eq!(hand.labels(), ["release", "acquire"]);
    assert_eq!(given_up(&hand.sent[0].1), place(&first));
}

#[test]
fn who_waits_behind_a_try_lock_takes_a_place_although_it_hears() {
    let mut hand = Hand::without_line();
    let (request, channel) = sleeper(&mut hand, 1);
    hand.event(Event::Message { channel, payload: "0".to_owned() });
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    hand.release(&cell, request);
    let (op, _) = hand.take("release");
    hand.done(op, super::freed());
    ask(&mut hand, 1, Wait::Once);
    let (op, command) = hand.take("acquire");
    assert_eq!(args(&command).iter().nth(4), Some("try"));
    ask(&mut hand, 1, Wait::Forever);
    hand.done(op, held_without_line(20_000));
    let (_, command) = hand.take("acquire");
    assert_eq!(args(&command).iter().nth(4), Some("wait"));
}

#[test]
fn a_client_has_only_so_many_waiters() {
    let mut hand = Hand::without_line();
    let most = super::config(super::CLIENT).max_waiters as u64;
    for owner in 0..most {
        sleeper(&mut hand, owner);
    }
    let request = ask(&mut hand, most, Wait::Forever);
    hand.nothing_sent();
    assert!(matches!(hand.answer(request), super::Answer::Failed(_)));
}

#[test]
fn a_release_that_told_one_is_followed_by_no_pause() {
    let mut hand = Hand::without_line();
    let request = ask(&mut hand, 1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    hand.release(&cell, request);
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Freed { receivers: Some(1) }));
    ask(&mut hand, 1, Wait::Forever);
    hand.take("acquire");
}
