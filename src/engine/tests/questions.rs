//! What is asked about a hold, by whomever, is answered; nothing puts it off.

use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::lease::Lease;
use crate::base::lease::LeaseMs;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Body;
use crate::kinds::reply::Renewed;

use super::Hand;
use super::LEASE;
use super::fixed;
use super::grant;

#[test]
fn a_fixed_lease_is_verified_but_not_extended_after_a_reconnection() {
    let mut hand = Hand::new();
    let request = hand.want(1, fixed(LEASE), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    hand.event(Event::PickedUp { request });
    let until = cell.valid_until();
    hand.pass(Duration::from_secs(12));
    hand.nothing_sent();
    hand.cut();
    hand.connect("run-1");
    let (op, command) = hand.take("renew");
    assert!(matches!(&command, Command::Renew { holds, .. } if holds[0].lease == LeaseMs::PROBE));
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    assert_eq!(cell.valid_until(), until);
    assert!(!cell.is_suspect());
}

#[test]
fn a_verification_that_outlives_its_hold_is_answered() {
    let mut hand = Hand::new();
    let brief = LeaseMs::checked("lease", Duration::from_millis(500)).unwrap();
    let level = hand.want(1, Lease::Fixed(brief), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(level);
    hand.event(Event::Verify { hold: cell.id, request: RequestId(900) });
    let (op, _) = hand.take("renew");
    hand.pass(Duration::from_millis(500));
    assert_eq!(cell.loss(), Some(LossReason::Expired));
    hand.done(op, Body::Renew(None));
    assert!(matches!(hand.answer(RequestId(900)), Answer::Failed(Error::Lost { .. })));
}

/// The driver sees at any time that a guard was picked up.
#[test]
fn a_guard_that_is_picked_up_puts_no_question_off() {
    // After a reconnection the hold waits for the server's clock.
    let mut hand = Hand::new();
    let (request, cell) = hand.hold(1);
    hand.event(Event::Down { server: ServerId::ONLY, cause: "x".to_owned() });
    let op = hand.link_up("again");
    hand.event(Event::PickedUp { request });
    hand.done(op, Body::Pong);
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Gone])));
    assert_eq!(cell.loss(), Some(LossReason::ServerLostData));

    // A verification that failed is on its way again.
    let mut hand = Hand::new();
    let (request, cell) = hand.hold(1);
    let verify = RequestId(900);
    hand.event(Event::Verify { hold: cell.id, request: verify });
    let (op, _) = hand.take("renew");
    hand.refused(op, FailureKind::Busy);
    hand.event(Event::PickedUp { request });
    hand.pass(Duration::from_millis(60));
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(matches!(hand.answer(verify), Answer::Done));
}

#[test]
fn a_re_entry_puts_no_question_off() {
    let mut hand = Hand::new();
    let (request, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request });
    let re_enter_while_a_question_is_refused = |hand: &mut Hand| {
        let (op, _) = hand.take("renew");
        hand.refused(op, FailureKind::Busy);
        hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(0));
        hand.pass(Duration::from_millis(60));
        let (op, _) = hand.take("renew");
        hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    };
    let verify = RequestId(900);
    hand.event(Event::Verify { hold: cell.id, request: verify });
    re_enter_while_a_question_is_refused(&mut hand);
    assert!(matches!(hand.answer(verify), Answer::Done));
    // One that nobody has asked: a message may have been missed.
    hand.resubscribe();
    re_enter_while_a_question_is_refused(&mut hand);
}

#[test]
fn a_clock_that_may_not_be_asked_is_told_to_whoever_needs_it() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    hand.event(Event::Down { server: ServerId::ONLY, cause: "x".to_owned() });
    let op = hand.link_up("again");
    let verify = RequestId(900);
    hand.event(Event::Verify { hold: cell.id, request: verify });
    let inner = hand.ask(1, Wait::Forever);
    hand.event(Event::Ping { request: RequestId(901) });
    let (ping, _) = hand.take("ping");
    hand.refused(op, FailureKind::Denied);
    for request in [verify, inner] {
        assert!(matches!(hand.answer(request), Answer::Failed(Error::Denied { .. })));
    }
    hand.done(ping, Body::Pong);
    assert!(matches!(hand.answer(RequestId(901)), Answer::Done), "a ping needs no clock");
    assert!(cell.is_held(hand.now));
}

/// The request of a `connect` may come later than the server's first words.
#[test]
fn a_clock_that_was_refused_before_anybody_asked_is_asked_again_for_who_connects() {
    let mut hand = Hand::unconnected();
    let op = hand.link_up("run-1");
    hand.refused(op, FailureKind::Denied);
    let ready = RequestId(900);
    hand.event(Event::Ready { request: ready });
    let (op, _) = hand.take("time");
    let another = RequestId(901);
    hand.event(Event::Ready { request: another });
    hand.nothing_sent();
    hand.refused(op, FailureKind::Denied);
    for request in [ready, another] {
        assert!(matches!(hand.answer(request), Answer::Failed(Error::Denied { .. })));
    }
}

#[test]
fn a_hold_is_kept_if_its_clock_may_be_asked_again() {
    let mut hand = Hand::new();
    let (request, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request });
    hand.event(Event::Down { server: ServerId::ONLY, cause: "x".to_owned() });
    hand.pass(Duration::from_secs(3));
    let op = hand.link_up("again");
    hand.refused(op, FailureKind::Denied);
    hand.nothing_sent();
    hand.pass(Duration::from_secs(2));
    let (op, _) = hand.take("time");
    hand.done(op, Body::Pong);
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(cell.is_held(hand.now) && !cell.is_suspect());
}

#[test]
fn refused_subscriptions_concern_only_those_who_have_to_hear_something() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let waiter = hand.ask(2, Wait::Forever);
    let (verify, ping) = (RequestId(900), RequestId(901));
    hand.event(Event::Verify { hold: cell.id, request: verify });
    let (op, _) = hand.take("renew");
    hand.event(Event::Ping { request: ping });
    hand.take("ping");
    let failure = Failure::new(FailureKind::Auth, "WRONGPASS");
    hand.event(Event::ConnectFailed { server: ServerId::ONLY, failure: failure.clone() });
    assert!(matches!(hand.answer(waiter), Answer::Failed(Error::Auth { .. })));
    hand.is_open(verify);
    hand.is_open(ping);
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(matches!(hand.answer(verify), Answer::Done));
    // Without commands they are refused, too.
    hand.event(Event::Verify { hold: cell.id, request: verify });
    let (op, _) = hand.take("renew");
    hand.unknown(op);
    hand.event(Event::Down { server: ServerId::ONLY, cause: "x".to_owned() });
    assert!(matches!(hand.answer(ping), Answer::Failed(Error::Unavailable { .. })), "at once");
    hand.event(Event::ConnectFailed { server: ServerId::ONLY, failure: failure.clone() });
    assert!(matches!(hand.answer(verify), Answer::Failed(Error::Auth { .. })));
    // The next attempt says again why.
    hand.event(Event::Ping { request: ping });
    hand.is_open(ping);
    hand.event(Event::ConnectFailed { server: ServerId::ONLY, failure });
    assert!(matches!(hand.answer(ping), Answer::Failed(Error::Auth { .. })));
}

#[test]
fn a_ping_fails_at_once_while_the_connection_is_known_to_be_down() {
    let mut hand = Hand::new();
    hand.event(Event::Down { server: ServerId::ONLY, cause: "reset".to_owned() });
    for number in 0..2 {
        let ping = RequestId(900 + number);
        hand.event(Event::Ping { request: ping });
        let answer = hand.answer(ping);
        let Answer::Failed(Error::Unavailable { waited, cause, .. }) = answer else {
            panic!("{answer:?}")
        };
        assert!(
            waited.is_zero() && cause.contains(["reset", "refused"][number as usize]),
            "{cause}"
        );
        let failure = Failure::new(FailureKind::Link, "refused");
        hand.event(Event::ConnectFailed { server: ServerId::ONLY, failure });
    }
}

fn connect_failed(hand: &mut Hand, kind: FailureKind) {
    let failure = Failure::new(kind, format!("{kind:?}"));
    hand.event(Event::ConnectFailed { server: ServerId::ONLY, failure });
}

/// After how long the request has failed, and why.
fn unavailable(hand: &mut Hand, request: RequestId) -> (Duration, String) {
    match hand.answer(request) {
        Answer::Failed(Error::Unavailable { waited, cause, .. }) => (waited, cause),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_try_lock_fails_at_once_where_nobody_listens_and_waits_where_that_is_not_known() {
    let mut hand = Hand::new();
    hand.event(Event::Down { server: ServerId::ONLY, cause: "reset".to_owned() });
    let early = hand.ask(1, Wait::Once);
    hand.is_open(early);
    hand.pass(Duration::from_millis(100));
    connect_failed(&mut hand, FailureKind::Link);
    hand.is_open(early);
    connect_failed(&mut hand, FailureKind::NoListener);
    let expected = |ms| (Duration::from_millis(ms), "NoListener".to_owned());
    assert_eq!(unavailable(&mut hand, early), expected(100), "as soon as it is known");
    for wait in [Wait::Once, Wait::For(Duration::ZERO)] {
        let late = hand.ask(2, wait);
        assert_eq!(unavailable(&mut hand, late), expected(0));
    }
    let patient = [hand.ask(3, Wait::For(Duration::from_secs(2))), hand.ask(4, Wait::Forever)];
    connect_failed(&mut hand, FailureKind::NoListener);
    for request in patient {
        hand.is_open(request);
    }
    // The last attempt counts.
    connect_failed(&mut hand, FailureKind::Link);
    let again = hand.ask(5, Wait::Once);
    hand.is_open(again);
    hand.pass(Duration::from_secs(1));
    assert_eq!(unavailable(&mut hand, again), (Duration::from_secs(1), "Link".to_owned()));
}

#[test]
fn a_try_lock_works_again_when_the_server_listens() {
    let mut hand = Hand::new();
    hand.event(Event::Down { server: ServerId::ONLY, cause: "reset".to_owned() });
    connect_failed(&mut hand, FailureKind::NoListener);
    hand.event(Event::Up(ServerId::ONLY, ServerInfo::default()));
    let request = hand.ask(1, Wait::Once);
    hand.is_open(request);
    // What is lost then has another reason.
    hand.event(Event::Down { server: ServerId::ONLY, cause: "reset".to_owned() });
    hand.is_open(request);
    let other = hand.ask(2, Wait::Once);
    hand.is_open(other);
}

#[test]
fn who_has_the_lock_is_known_without_a_server_that_listens() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    hand.event(Event::Down { server: ServerId::ONLY, cause: "reset".to_owned() });
    let other = hand.ask(2, Wait::Once);
    assert!(matches!(hand.answer(other), Answer::NotGranted));
    let reentry = hand.ask(1, Wait::Once);
    connect_failed(&mut hand, FailureKind::NoListener);
    for request in [reentry, hand.ask(1, Wait::Once)] {
        assert_eq!(
            unavailable(&mut hand, request).1,
            "NoListener",
            "a further level needs the server"
        );
    }
    let other = hand.ask(2, Wait::Once);
    assert!(matches!(hand.answer(other), Answer::NotGranted));
    assert!(cell.is_held(hand.now));
}
