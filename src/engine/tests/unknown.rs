//! Commands of which nobody knows whether they were executed.

use std::time::Duration;

use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::reply::Reply;

use super::Hand;
use super::field;
use super::grant;
use super::held;

#[test]
fn a_waiter_without_time_does_not_hold_up_the_next() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::For(Duration::from_millis(1)));
    let (op, _) = hand.take("acquire");
    hand.ask(2, Wait::Forever);
    hand.pass(Duration::from_millis(1));
    hand.unknown(op);
    assert_eq!(hand.labels(), ["release", "acquire"], "no pause: the server is not in trouble");
}

#[test]
fn an_unknown_acquire_is_cleaned_up_until_it_can_no_longer_be_executed() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, first) = hand.take("acquire");
    let Command::Acquire { not_after, .. } = first else { panic!() };
    hand.unknown(op);
    // Sent at once, before any new attempt on the name.
    let (cleanup, command) = hand.take("release");
    assert_eq!(field(&command), field(&first));
    hand.pass(Duration::from_millis(50));
    let (attempt, second) = hand.take("acquire");
    assert_ne!(field(&first), field(&second), "a dead id is never sent in an acquire again");
    hand.done(attempt, held(20_000));
    // Answered, but the server's clock is not past `not_after`: again, later. Equal is not past.
    hand.done(cleanup, Body::Release(Released::Gone));
    let left = u64::try_from(not_after.0 - hand.server_time().0).unwrap();
    hand.now = hand.now.plus(Duration::from_micros(left));
    assert_eq!(hand.server_time(), not_after);
    hand.sent.clear();
    hand.event(Event::Tick);
    hand.pass(Duration::from_millis(2));
    let (cleanup, _) = hand.sent.remove(0);
    let reply = Reply { time: Some(not_after), body: Body::Release(Released::Gone) };
    hand.event(Event::Replied {
        op: cleanup,
        server: ServerId::ONLY,
        outcome: Outcome::Done(reply),
    });
    hand.sent.clear();
    hand.pass(Duration::from_millis(10));
    let (cleanup, _) =
        hand.sent.iter().find(|(_, command)| command.label() == "release").cloned().unwrap();
    hand.done(cleanup, Body::Release(Released::Gone));
    assert_eq!(hand.counters.snapshot().clean_ups, 0);
}

#[test]
fn an_unknown_attempt_is_remembered_whatever_later_ids_meet() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    hand.take("release");
    hand.pass(Duration::from_millis(50));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(3));
    hand.granted(request);
    assert_eq!(hand.counters.snapshot().clean_ups, 1);
}

#[test]
fn no_attempt_is_made_while_a_clean_up_could_not_be_sent() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.cut();
    hand.unknown(op);
    hand.nothing_sent();
    hand.event(Event::Up(ServerId::ONLY, ServerInfo::default()));
    assert_eq!(hand.labels(), ["time", "release"], "the clean-up goes before any attempt");
    let (op, _) = hand.sent.remove(0);
    hand.done(op, Body::Pong);
    assert_eq!(hand.labels(), ["release", "acquire"]);
}

#[test]
fn an_unknown_hand_off_kills_the_new_id_and_releases_the_old() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let next = hand.ask(2, Wait::Forever);
    let release = hand.release(&cell, level);
    let (op, command) = hand.take("hand_off");
    hand.unknown(op);
    assert_eq!(hand.labels(), ["release", "release"]);
    assert_eq!(field(&hand.sent[0].1), field(&command), "the clean-up of `to`");
    assert!(field(&hand.sent[1].1).ends_with(&format!(":{}", cell.id)), "`from` goes on alone");
    let (cleanup, _) = hand.sent.remove(0);
    hand.done(cleanup, Body::Release(Released::Gone));
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Gone));
    assert!(
        matches!(hand.answer(release), Answer::Done),
        "gone is what the unknown hand-off leaves behind"
    );
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(5));
    hand.granted(next);
}

#[test]
fn late_grants_nothing_and_is_tried_again() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.offset += 50_000;
    hand.done(op, Body::Acquire(Acquired::Late));
    hand.is_open(request);
    let (op, _) =
        hand.sent.iter().find(|(_, command)| command.label() == "acquire").cloned().unwrap();
    hand.done(op, grant(1));
    hand.granted(request);
}

#[test]
fn nothing_with_a_deadline_is_sent_before_the_servers_clock_is_known() {
    let mut hand = Hand::unconnected();
    hand.ask(1, Wait::Forever);
    hand.event(Event::Up(ServerId::ONLY, ServerInfo::default()));
    let (op, _) = hand.take("time");
    hand.done(op, Body::Pong);
    hand.take("acquire");
}
