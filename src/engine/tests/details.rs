//! The smaller print of the rules: each of these is all that notices when one of them is broken.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::lease::LeaseMs;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;

use super::Hand;
use super::LEASE;
use super::field;
use super::freed;
use super::grant;
use super::handed;
use super::held;
use super::watched;

impl Hand {
    /// A hold whose guard its owner has.
    fn picked_up(&mut self, owner: u64) -> (RequestId, Arc<HoldCell>) {
        let (level, cell) = self.hold(owner);
        self.event(Event::PickedUp { request: level });
        (level, cell)
    }

    fn ask_limited(&mut self, owner: u64, max_hold: Duration) -> RequestId {
        self.want(owner, watched(), Wait::Forever, Some(max_hold))
    }

    fn clean_ups(&self) -> u64 {
        self.counters.snapshot().clean_ups
    }

    /// The server's clock at a local instant.
    fn at_server(&self, local: Moment) -> ServerTime {
        ServerTime(local.micros() + self.offset)
    }
}

fn renewed() -> Body {
    Body::Renew(Some(vec![Renewed::Yes]))
}

// ---- deadlines and validity

#[test]
fn renewed_validity_counts_from_before_the_renewal_was_sent() {
    let mut hand = Hand::new();
    let (_, cell) = hand.picked_up(1);
    hand.pass(LEASE / 3);
    let sent = hand.now;
    let (op, _) = hand.take("renew");
    hand.pass(Duration::from_millis(700));
    hand.done(op, renewed());
    assert_eq!(cell.valid_until(), sent.plus(Duration::from_millis(30_000 - 300 - 2)));
}

#[test]
fn nothing_is_granted_after_the_wait_or_the_command_timeout() {
    for (wait, end) in [(Wait::For(Duration::from_millis(200)), 200), (Wait::Forever, 1_000)] {
        let mut hand = Hand::new();
        hand.ask(1, wait);
        let (_, command) = hand.take("acquire");
        let Command::Acquire { not_after, .. } = command else { panic!() };
        let end = Duration::from_millis(end);
        assert_eq!(not_after, hand.at_server(hand.now.plus(end)).shared(end));
    }
}

#[test]
fn no_ttl_reaches_beyond_max_hold_and_its_end_is_a_loss() {
    let mut hand = Hand::new();
    let limit = Duration::from_secs(45);
    let end = hand.now.plus(limit);
    let request = hand.ask_limited(1, limit);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    hand.event(Event::PickedUp { request });
    while cell.is_held(hand.now) {
        assert!(cell.valid_until() <= end);
        for (op, command) in std::mem::take(&mut hand.sent) {
            let Command::Renew { holds, not_after } = command else { panic!("{command:?}") };
            let last = not_after.0 + i64::try_from(holds[0].lease.millis()).unwrap() * 1_000;
            assert!(ServerTime(last) <= hand.at_server(end), "the key could outlive max_hold");
            hand.done(op, renewed());
        }
        hand.pass(Duration::from_millis(500));
    }
    assert!(hand.now <= end && end.since(hand.now) < limit / 10, "{:?} early", end.since(hand.now));
    assert_eq!(cell.loss(), Some(LossReason::MaxHold));
}

#[test]
fn a_renewal_without_an_answer_is_repeated_soon() {
    let mut hand = Hand::new();
    let (_, cell) = hand.picked_up(1);
    hand.pass(LEASE / 3);
    for kind in [None, Some(FailureKind::Busy), Some(FailureKind::Denied)] {
        let (op, _) = hand.take("renew");
        match kind {
            None => hand.unknown(op),
            Some(kind) => hand.refused(op, kind),
        }
        hand.pass(LEASE / 10);
    }
    let (op, _) = hand.take("renew");
    let sent = hand.now;
    hand.done(op, renewed());
    assert!(cell.valid_until() > sent.plus(LEASE / 2));
}

#[test]
fn what_is_not_picked_up_is_asked_about_and_not_extended() {
    let mut hand = Hand::new();
    hand.hold(1);
    hand.cut();
    hand.connect("run-1");
    let (_, command) = hand.take("renew");
    assert!(matches!(&command, Command::Renew { holds, .. } if holds[0].lease == LeaseMs::PROBE));
}

// ---- one command after the other

#[test]
fn one_command_of_a_hold_is_on_the_wire_at_a_time() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let inner = hand.re_enter(1);
    hand.release(&cell, inner);
    let (op, _) = hand.take("release");
    let again = hand.ask(1, Wait::Forever);
    hand.nothing_sent();
    hand.done(op, Body::Release(Released::CountSet));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    hand.granted(again);
}

#[test]
fn a_grant_cancelled_before_it_is_picked_up_is_released() {
    let mut hand = Hand::new();
    let (level, _) = hand.hold(1);
    hand.event(Event::Cancel { request: level });
    let (op, command) = hand.take("release");
    assert!(matches!(command, Command::Release { share: Share::NOTHING, .. }));
    hand.done(op, freed());
    assert!(!hand.engine.has_holds());
}

#[test]
fn a_server_that_has_become_a_replica_is_left() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.refused(op, FailureKind::ReadOnly);
    assert_eq!(hand.reconnects, 1);
}

// ---- clean-up of dead hold ids

#[test]
fn only_the_reply_to_its_own_release_ends_a_clean_up() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    let (cleanup, _) = hand.take("release");
    hand.pass(Duration::from_millis(50));
    let (attempt, _) = hand.take("acquire");
    hand.now = hand.now.plus(Duration::from_secs(3));
    hand.done(attempt, held(20_000));
    assert_eq!(
        hand.clean_ups(),
        1,
        "another command's TIME says nothing about what was granted before it"
    );
    hand.done(cleanup, Body::Release(Released::Gone));
    assert_eq!(hand.clean_ups(), 0);
}

#[test]
fn a_dead_id_is_remembered_after_a_refusal_a_grant_and_a_hand_off() {
    let mut hand = Hand::new();
    let first = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    hand.take("release");
    hand.pass(Duration::from_millis(50));
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    assert_eq!(hand.clean_ups(), 1, "after a refusal");
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    assert_eq!(hand.clean_ups(), 1, "after a grant");
    let cell = hand.granted(first);
    let second = hand.ask(2, Wait::Forever);
    hand.release(&cell, first);
    let (op, _) = hand.take("hand_off");
    hand.done(op, handed());
    hand.granted(second);
    assert_eq!(hand.clean_ups(), 1, "after a hand-off");
}

#[test]
fn an_unknown_acquire_of_a_hurried_waiter_is_cleaned_up_as_well() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::For(Duration::from_millis(200)));
    let (op, first) = hand.take("acquire");
    hand.pass(Duration::from_millis(200));
    hand.answer(request);
    hand.unknown(op);
    let (_, command) = hand.take("release");
    assert_eq!(field(&command), field(&first));
    assert_eq!(hand.clean_ups(), 1);
}

#[test]
fn an_unknown_acquire_of_a_waiter_with_time_left_is_not_repeated_at_once() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::For(Duration::from_millis(200)));
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    hand.take("release");
    hand.pass(Duration::from_millis(19));
    hand.nothing_sent();
    hand.pass(Duration::from_millis(181));
    let Answer::Failed(Error::Unavailable { cause, .. }) = hand.answer(request) else { panic!() };
    assert_eq!(cause, "timed out", "in the words of what it met");
}

#[test]
fn a_clean_up_that_was_not_executed_goes_again_before_the_next_attempt() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    let (cleanup, _) = hand.take("release");
    hand.pass(Duration::from_millis(15));
    hand.refused(cleanup, FailureKind::Busy);
    hand.pass(Duration::from_millis(10));
    hand.nothing_sent();
    hand.pass(Duration::from_millis(50));
    assert_eq!(hand.labels(), ["release", "acquire"]);
}

#[test]
fn no_hand_off_while_a_clean_up_could_not_be_sent() {
    let mut hand = Hand::new();
    let first = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    let (cleanup, _) = hand.take("release");
    hand.pass(Duration::from_millis(50));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(first);
    hand.ask(2, Wait::Forever);
    hand.refused(cleanup, FailureKind::Busy);
    hand.release(&cell, first);
    hand.take("release");
}

#[test]
fn a_clean_up_that_began_before_the_end_of_its_deadline_is_repeated_after_it() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, first) = hand.take("acquire");
    let Command::Acquire { not_after, .. } = first else { panic!() };
    hand.event(Event::Cancel { request });
    hand.unknown(op);
    for (time, left) in
        [(ServerTime(not_after.0 - 1), 1), (not_after, 1), (ServerTime(not_after.0 + 1), 0)]
    {
        let (cleanup, _) = hand.take("release");
        let reply = Reply { time: Some(time), body: Body::Release(Released::Gone) };
        hand.event(Event::Replied {
            op: cleanup,
            server: ServerId::ONLY,
            outcome: Outcome::Done(reply),
        });
        assert_eq!(hand.clean_ups(), left, "{time:?}");
        hand.pass(Duration::from_millis(20));
    }
    hand.nothing_sent();
}

// ---- wake-ups

#[test]
fn a_local_loss_wakes_a_contender_that_would_sleep_on() {
    let mut hand = Hand::new();
    let first = hand.sleeper(1);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(first);
    hand.event(Event::PickedUp { request: first });
    hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    hand.event(Event::Verify { hold: cell.id, request: RequestId(900) });
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Gone])));
    hand.take("acquire");
}

#[test]
fn the_role_passes_on_with_the_duty_to_try_when_its_time_is_over() {
    let mut hand = Hand::new();
    let first = hand.ask(1, Wait::For(Duration::from_millis(1_500)));
    let (op, _) = hand.take("acquire");
    hand.done(op, held(60_000));
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    let second = hand.ask(2, Wait::Forever);
    hand.message();
    hand.pass(Duration::from_millis(1_500));
    hand.answer(first);
    hand.done(op, held(60_000));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    assert!(matches!(hand.answer(second), Answer::Granted(_)));
}

#[test]
fn a_reconnection_wakes_the_contender() {
    let mut hand = Hand::new();
    let request = hand.sleeper(1);
    hand.cut();
    hand.connect("run-1");
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(request);
}
