//! Watching: waiting until the holder of a lock is gone, without acquiring it.

use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::base::error::Error;
use crate::base::name::LockName;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Body;
use crate::kinds::reply::KeyState;
use crate::kinds::reply::Renewed;

use super::CLIENT;
use super::Hand;
use super::OTHER;
use super::freed;
use super::grant;
use super::held_without_line;

const SECOND: Duration = Duration::from_secs(1);
const THIRD: &str = "7e3d30b7-83b1-433a-9335-5e8b9916d3ac:1";

fn held_by(field: &str, pttl: i64) -> Body {
    let (field, count) = (field.to_owned(), "1".to_owned());
    Body::Inspect(KeyState::Hash { pttl, fields: 1, field, count })
}

fn free() -> Body {
    Body::Inspect(KeyState::Absent)
}

impl Hand {
    fn watch(&mut self) -> RequestId {
        self.watch_name("n")
    }

    fn watch_name(&mut self, name: &str) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.event(Event::Watch { name: LockName::new(name).unwrap(), request });
        request
    }

    /// A watch that has found another holder, and sleeps.
    fn watcher(&mut self, pttl: i64) -> RequestId {
        let request = self.watch();
        self.confirm_subscriptions();
        let look = self.take_look();
        self.done(look, held_by(OTHER, pttl));
        self.nothing_sent();
        request
    }

    fn take_look(&mut self) -> OpId {
        self.take("inspect").0
    }

    fn is_over(&mut self, request: RequestId) {
        assert!(matches!(self.answer(request), Answer::Done));
    }

    /// The subscription of a watch without watchers ends.
    fn is_forgotten(&mut self) {
        self.pass(2 * SECOND);
        assert_eq!(self.unsubscribed, std::slice::from_ref(&self.channel));
        assert!(self.engine.is_idle());
    }
}

#[test]
fn a_watch_looks_once_subscribed_and_ends_when_the_key_is_gone() {
    let mut hand = Hand::new();
    let request = hand.watch();
    hand.nothing_sent();
    hand.confirm_subscriptions();
    let look = hand.take_look();
    hand.done(look, held_by(OTHER, 30_000));
    hand.is_open(request);
    hand.message();
    let look = hand.take_look();
    hand.is_open(request);
    hand.done(look, free());
    hand.is_over(request);
    hand.is_forgotten();
}

#[test]
fn a_lock_that_is_free_is_not_waited_for() {
    let mut hand = Hand::new();
    let request = hand.watch();
    hand.confirm_subscriptions();
    let look = hand.take_look();
    hand.done(look, free());
    hand.is_over(request);
}

#[test]
fn a_watch_ends_when_another_has_the_lock() {
    let mut hand = Hand::new();
    let request = hand.watcher(30_000);
    hand.message();
    let look = hand.take_look();
    hand.done(look, held_by(THIRD, 30_000));
    hand.is_over(request);
}

#[test]
fn a_message_grants_nothing() {
    let mut hand = Hand::new();
    let request = hand.watcher(30_000);
    for _ in 0..3 {
        hand.message();
        let look = hand.take_look();
        hand.done(look, held_by(OTHER, 30_000));
        hand.is_open(request);
        hand.nothing_sent();
    }
}

#[test]
fn a_message_during_a_look_is_followed_by_another_look() {
    let mut hand = Hand::new();
    let request = hand.watch();
    hand.confirm_subscriptions();
    let look = hand.take_look();
    hand.message();
    hand.nothing_sent();
    hand.done(look, held_by(OTHER, 30_000));
    let look = hand.take_look();
    hand.done(look, free());
    hand.is_over(request);
}

#[test]
fn a_watch_looks_at_the_end_of_the_lease_and_after_the_longest_sleep() {
    let mut hand = Hand::new();
    let request = hand.watcher(1_000);
    hand.pass(SECOND);
    hand.nothing_sent();
    hand.pass(Duration::from_millis(1));
    let look = hand.take_look();
    // It was renewed.
    hand.done(look, held_by(OTHER, 30_000));
    hand.pass(Duration::from_millis(4_499));
    hand.nothing_sent();
    hand.pass(Duration::from_millis(1_001));
    let look = hand.take_look();
    hand.done(look, free());
    hand.is_over(request);
}

/// A watch that is never subscribed looks all the same.
#[test]
fn a_watch_without_a_subscription_looks_after_the_longest_sleep() {
    let mut hand = Hand::new();
    let request = hand.watch();
    hand.pass(Duration::from_millis(5_500));
    let look = hand.take_look();
    hand.done(look, free());
    hand.is_over(request);
}

#[test]
fn all_watchers_of_a_name_share_a_subscription_and_each_look() {
    let mut hand = Hand::new();
    let first = hand.watcher(30_000);
    let others: Vec<RequestId> = (0..4).map(|_| hand.watch()).collect();
    assert!(hand.subscriptions.is_empty());
    // Those that came before the look was sent have an answer. The others need a look of theirs.
    let look = hand.take_look();
    hand.done(look, held_by(OTHER, 30_000));
    let look = hand.take_look();
    hand.done(look, held_by(OTHER, 30_000));
    hand.nothing_sent();
    hand.message();
    let look = hand.take_look();
    hand.done(look, free());
    for request in [vec![first], others].concat() {
        hand.is_over(request);
    }
    hand.is_forgotten();
}

/// What it is told was true before it came.
#[test]
fn a_watcher_that_comes_during_a_look_waits_for_the_next() {
    let mut hand = Hand::new();
    let first = hand.watch();
    hand.confirm_subscriptions();
    let look = hand.take_look();
    let second = hand.watch();
    hand.done(look, free());
    hand.is_over(first);
    hand.is_open(second);
    let look = hand.take_look();
    hand.done(look, held_by(THIRD, 30_000));
    hand.is_open(second);
}

#[test]
fn there_is_a_limit_to_the_watchers_of_a_name() {
    let mut hand = Hand::new();
    let open: Vec<RequestId> = (0..5).map(|_| hand.watch()).collect();
    let beyond = hand.watch();
    assert!(matches!(hand.answer(beyond), Answer::Failed(Error::TooManyWaiters { limit: 5, .. })));
    open.into_iter().for_each(|request| hand.is_open(request));
}

#[test]
fn a_watcher_that_gives_up_leaves_nothing_behind() {
    for looking in [false, true] {
        let mut hand = Hand::new();
        let request = hand.watch();
        hand.confirm_subscriptions();
        let look = hand.take_look();
        if !looking {
            hand.done(look, held_by(OTHER, 30_000));
        }
        hand.event(Event::Cancel { request });
        if looking {
            hand.done(look, held_by(OTHER, 30_000));
        }
        hand.message();
        hand.nothing_sent();
        hand.is_forgotten();
        assert!(hand.answers.is_empty());
    }
}

/// The next watcher needs no subscription of its own.
#[test]
fn a_subscription_is_kept_for_a_short_time() {
    let mut hand = Hand::new();
    let request = hand.watcher(30_000);
    hand.event(Event::Cancel { request });
    hand.pass(Duration::from_millis(900));
    hand.watch();
    assert!(hand.subscriptions.is_empty());
    let look = hand.take_look();
    hand.done(look, held_by(OTHER, 30_000));
    hand.pass(2 * SECOND);
    assert!(hand.unsubscribed.is_empty());
}

#[test]
fn a_connection_that_comes_back_is_a_reason_to_look() {
    let mut hand = Hand::new();
    let request = hand.watcher(30_000);
    hand.resubscribe();
    let look = hand.take_look();
    hand.done(look, held_by(OTHER, 30_000));
    hand.cut();
    hand.message();
    hand.nothing_sent();
    hand.pass(SECOND);
    hand.event(Event::Up(crate::backend::ServerId::ONLY, crate::backend::ServerInfo::default()));
    assert_eq!(hand.labels(), ["time", "inspect"]);
    let (look, _) = hand.sent.remove(1);
    hand.done(look, free());
    hand.is_over(request);
}

#[test]
fn a_look_without_an_answer_is_repeated() {
    let mut hand = Hand::new();
    let request = hand.watch();
    hand.confirm_subscriptions();
    for unknown in [true, false, true] {
        let look = hand.take_look();
        if unknown {
            hand.unknown(look)
        } else {
            hand.refused(look, FailureKind::Busy)
        }
        hand.nothing_sent();
        hand.pass(Duration::from_millis(80));
        hand.sent.retain(|(_, command)| *command != Command::Time);
    }
    let look = hand.take_look();
    hand.done(look, free());
    hand.is_over(request);
}

#[test]
fn a_watch_ends_after_the_outage_limit() {
    let mut hand = Hand::new();
    let before = hand.watcher(30_000);
    hand.pass(SECOND);
    hand.cut();
    hand.pass(10 * SECOND);
    let during = hand.watch();
    hand.pass(Duration::from_millis(19_999));
    hand.is_open(before);
    hand.pass(SECOND);
    let unavailable = |answer: &Answer| matches!(answer, Answer::Failed(Error::Unavailable { cause, .. }) if cause == "cut");
    assert!(unavailable(&hand.answer(before)));
    hand.is_open(during);
    hand.pass(10 * SECOND);
    assert!(unavailable(&hand.answer(during)));
}

#[test]
fn what_does_not_pass_ends_a_watch_at_once() {
    let mut hand = Hand::new();
    let looked = hand.watch();
    hand.confirm_subscriptions();
    let look = hand.take_look();
    hand.refused(look, FailureKind::Denied);
    assert!(matches!(hand.answer(looked), Answer::Failed(Error::Denied { .. })));

    let mut hand = Hand::new();
    let subscribed = hand.watch();
    let (channel, generation) = hand.subscriptions.remove(0);
    let refused = Err(Failure::new(FailureKind::Denied, "NOPERM"));
    hand.event(Event::Subscribed { channel, generation, result: refused });
    assert!(matches!(hand.answer(subscribed), Answer::Failed(Error::Denied { .. })));

    let mut hand = Hand::new();
    let found = hand.watch();
    hand.confirm_subscriptions();
    let look = hand.take_look();
    hand.done(look, Body::Inspect(KeyState::Other));
    assert!(matches!(hand.answer(found), Answer::Failed(Error::KeyConflict { .. })));
}

#[test]
fn a_subscription_that_was_refused_for_now_is_tried_again() {
    let mut hand = Hand::new();
    let request = hand.watch();
    let (channel, generation) = hand.subscriptions.remove(0);
    let refused = Err(Failure::new(FailureKind::Busy, "busy"));
    hand.event(Event::Subscribed { channel, generation, result: refused });
    hand.is_open(request);
    hand.pass(Duration::from_millis(200));
    hand.confirm_subscriptions();
    let look = hand.take_look();
    hand.done(look, free());
    hand.is_over(request);
}

#[test]
fn a_shutdown_ends_every_watch() {
    let mut hand = Hand::new();
    let request = hand.watcher(30_000);
    hand.event(Event::Shutdown { until: hand.now.plus(SECOND), request: None });
    assert!(matches!(hand.answer(request), Answer::Failed(Error::Closed { .. })));
    assert!(hand.finished);
}

/// Else this client would be refused here, look there, and be refused again.
#[test]
fn a_hold_of_this_client_that_the_server_does_not_have_is_verified() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    hand.watch();
    hand.confirm_subscriptions();
    let look = hand.take_look();
    hand.done(look, free());
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Gone])));
    assert!(cell.loss().is_some());
}

// ---- leaders

#[test]
fn a_leader_makes_one_attempt() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Lead);
    let (op, command) = hand.take("acquire");
    assert!(matches!(command, Command::Acquire { wait: crate::kinds::command::WaitMode::Try, .. }));
    hand.done(op, held_without_line(30_000));
    assert!(matches!(hand.answer(request), Answer::NotGranted));
    hand.nothing_sent();
}

#[test]
fn a_leader_never_hands_off_what_others_watch() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Lead);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    let waiting = hand.ask(2, Wait::Forever);
    hand.release(&cell, request);
    let (op, command) = hand.take("release");
    assert!(matches!(&command, Command::Release { field, .. } if field.starts_with(CLIENT)));
    hand.done(op, freed());
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(2));
    hand.granted(waiting);
}

/// A grant that comes when nobody wants it any more may be watched all the same.
#[test]
fn a_grant_that_no_leader_takes_is_not_handed_off() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Lead);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request });
    hand.ask(2, Wait::Forever);
    hand.done(op, grant(1));
    hand.take("release");
}
