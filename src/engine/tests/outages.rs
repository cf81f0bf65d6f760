//! Servers that are away, what is told of it, and the end.

use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::name::LockName;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Fate;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Body;
use crate::kinds::reply::Forced;
use crate::kinds::reply::KeyState;

use super::Hand;
use super::OTHER;
use super::freed;

#[test]
fn waiting_without_a_limit_rides_out_an_outage_of_thirty_seconds() {
    let mut hand = Hand::new();
    let request = hand.sleeper(1);
    hand.cut();
    hand.pass(Duration::from_secs(29));
    hand.is_open(request);
    hand.pass(Duration::from_secs(2));
    assert!(matches!(hand.answer(request), Answer::Failed(Error::Unavailable { .. })));
}

/// A sleeper, and the time at which its next attempt is sent, which nobody answers.
fn silent_server(hand: &mut Hand) -> (RequestId, OpId, Moment) {
    let request = hand.sleeper(1);
    // Nobody has asked the server anything for a while: that is no outage.
    hand.pass(Duration::from_secs(3));
    hand.message();
    let (op, _) = hand.take("acquire");
    (request, op, hand.now)
}

/// Passes time until this instant, with no answer to whatever is sent.
fn silence_until(hand: &mut Hand, end: Moment) {
    while hand.now < end {
        hand.pass(Duration::from_millis(100).min(end.since(hand.now)));
        for (op, _) in std::mem::take(&mut hand.sent) {
            hand.unknown(op);
        }
    }
}

#[test]
fn an_outage_begins_with_the_sending_of_what_is_not_answered() {
    let mut hand = Hand::new();
    let (request, op, sent) = silent_server(&mut hand);
    hand.pass(Duration::from_secs(1));
    hand.unknown(op);
    let end = sent.plus(Duration::from_secs(30));
    silence_until(&mut hand, Moment(end.0 - 1_000_000));
    hand.is_open(request);
    hand.pass(Duration::from_millis(1));
    let Answer::Failed(Error::Unavailable { .. }) = hand.answer(request) else { panic!("no end") };
}

#[test]
fn a_connection_that_breaks_before_the_answer_ends_no_wait_later() {
    let mut hand = Hand::new();
    let (request, op, sent) = silent_server(&mut hand);
    hand.pass(Duration::from_millis(900));
    hand.cut();
    hand.unknown(op);
    hand.pass(sent.plus(Duration::from_millis(29_999)).since(hand.now));
    hand.is_open(request);
    hand.pass(Duration::from_millis(1));
    let Answer::Failed(Error::Unavailable { .. }) = hand.answer(request) else { panic!("no end") };
}

/// Not before the first command has had its time, and not a moment later.
#[test]
fn a_limit_below_the_command_timeout_ends_waits_when_that_is_over() {
    let mut hand = Hand::new();
    hand.engine.cx.config.outage_limit = Duration::from_millis(300);
    let (request, op, _) = silent_server(&mut hand);
    hand.pass(Duration::from_secs(1));
    hand.is_open(request);
    hand.unknown(op);
    hand.pass(Duration::ZERO);
    let Answer::Failed(Error::Unavailable { .. }) = hand.answer(request) else { panic!("no end") };
}

#[test]
fn configuration_trouble_is_told_at_once() {
    for kind in
        [FailureKind::Denied, FailureKind::Auth, FailureKind::Refused, FailureKind::Unsupported]
    {
        let mut hand = Hand::new();
        let request = hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.refused(op, kind);
        let Answer::Failed(error) = hand.answer(request) else { panic!("{kind:?}") };
        assert!(error.is_config(), "{error}");
        hand.nothing_sent();
    }
}

#[test]
fn a_parent_that_waits_for_its_child_is_reported_once() {
    let mut hand = Hand::new();
    let (level, _) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    hand.ask(2, Wait::Forever);
    hand.pass(Duration::from_secs(9));
    let told = |hand: &Hand| {
        hand.reports.iter().filter(|report| matches!(report, Report::WaitingOnSelf { .. })).count()
    };
    assert_eq!(told(&hand), 0);
    hand.pass(Duration::from_secs(15));
    assert_eq!(told(&hand), 1);
}

#[test]
fn a_shutdown_releases_what_is_held_and_says_what_it_could_not() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let waiting = hand.ask(2, Wait::Forever);
    let request = RequestId(900);
    hand.event(Event::Shutdown {
        until: hand.now.plus(Duration::from_secs(2)),
        request: Some(request),
    });
    assert!(matches!(hand.answer(waiting), Answer::Failed(Error::Closed { .. })));
    assert_eq!(cell.loss(), Some(LossReason::ClientShutdown));
    let (op, _) = hand.take("release");
    assert!(!hand.finished);
    hand.done(op, freed());
    assert!(hand.finished);
    assert_eq!(hand.fates(request), [("n".to_owned(), Fate::Released)]);

    let mut hand = Hand::new();
    hand.hold(1);
    hand.event(Event::Shutdown {
        until: hand.now.plus(Duration::from_secs(2)),
        request: Some(request),
    });
    hand.pass(Duration::from_secs(2));
    assert!(hand.finished);
    assert_eq!(hand.left(), ["n"]);
}

#[test]
fn an_attempt_that_fails_for_thirty_seconds_ends_the_wait_whatever_else_is_answered() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    for _ in 0..29 * 2 {
        for (op, command) in std::mem::take(&mut hand.sent) {
            match command {
                Command::Acquire { .. } => hand.refused(op, FailureKind::OutOfMemory),
                _ => hand.done(op, Body::Pong),
            }
        }
        hand.is_open(request);
        hand.pass(Duration::from_millis(500));
        // Somebody else's business with the same server goes well.
        hand.requests += 1;
        hand.event(Event::Ping { request: RequestId(hand.requests) });
    }
    hand.pass(Duration::from_secs(2));
    let Answer::Failed(Error::Unavailable { cause, .. }) = hand.answer(request) else { panic!() };
    assert_eq!(cause, "no", "in the words of what it met");
}

#[test]
fn a_force_unlock_of_unknown_outcome_frees_nobody_else() {
    for after in [Forced::Gone, Forced::Foreign] {
        let mut hand = Hand::new();
        let request = RequestId(900);
        hand.event(Event::ForceUnlock { name: LockName::new("n").unwrap(), from: None, request });
        let (op, _) = hand.take("inspect");
        let state = KeyState::Hash {
            pttl: 20_000,
            fields: 1,
            field: OTHER.to_owned(),
            count: "1".to_owned(),
        };
        hand.done(op, Body::Inspect(state));
        let (op, _) = hand.take("force_release");
        hand.unknown(op);
        hand.pass(Duration::from_millis(20));
        let (op, _) = hand.take("force_release");
        hand.done(op, Body::Force(after));
        assert!(matches!(hand.answer(request), Answer::Forced(true)));
        hand.nothing_sent();
    }
}

#[test]
fn a_force_unlock_of_one_hold_frees_nobody_else() {
    let answer_to = |replies: &[Option<Forced>]| {
        let mut hand = Hand::new();
        let request = RequestId(900);
        let (name, from) = (LockName::new("n").unwrap(), Some(OTHER.to_owned()));
        hand.event(Event::ForceUnlock { name, from, request });
        for reply in replies {
            let (op, command) = hand.take("force_release");
            assert!(
                matches!(&command, Command::ForceRelease { expected, .. } if expected == OTHER)
            );
            match reply {
                Some(reply) => hand.done(op, Body::Force(*reply)),
                None => hand.unknown(op),
            }
            hand.pass(Duration::from_millis(20));
        }
        hand.nothing_sent();
        let Answer::Forced(freed) = hand.answer(request) else { panic!("{replies:?}") };
        freed
    };
    let freed = Forced::Freed { receivers: Some(1) };
    assert!(answer_to(&[Some(freed)]));
    assert!(!answer_to(&[Some(Forced::Gone)]));
    assert!(!answer_to(&[Some(Forced::Foreign)]), "somebody else's by now");
    assert!(answer_to(&[Some(Forced::Late), Some(freed)]));
    assert!(answer_to(&[None, Some(Forced::Foreign)]), "the first one may have freed it");
}

fn unavailable_after(answer: Answer, waited: Duration) {
    let Answer::Failed(Error::Unavailable { waited: told, .. }) = answer else {
        panic!("{answer:?}")
    };
    assert!(told >= waited && told < waited + Duration::from_millis(200), "{told:?}");
}

#[test]
fn who_unlocks_in_an_outage_has_the_limit_for_himself() {
    let limit = Duration::from_secs(3);
    for both in [false, true] {
        let mut hand = Hand::new();
        hand.engine.cx.config.outage_limit = limit;
        let (outer, cell) = hand.hold(1);
        let inner = hand.re_enter(1);
        hand.cut();
        hand.pass(Duration::from_secs(2));
        let early = hand.release(&cell, inner);
        hand.pass(Duration::from_millis(2_500));
        let late = both.then(|| hand.release(&cell, outer));
        hand.is_open(early);
        hand.pass(Duration::from_millis(600));
        unavailable_after(hand.answer(early), limit);
        if let Some(late) = late {
            hand.is_open(late);
            hand.pass(Duration::from_millis(2_300));
            hand.is_open(late);
            hand.pass(Duration::from_millis(200));
            unavailable_after(hand.answer(late), limit);
        }
    }
}

#[test]
fn an_unlock_that_ends_with_the_lease_has_waited_since_its_own_call() {
    let mut hand = Hand::new();
    hand.engine.cx.config.outage_limit = Duration::from_secs(3_600);
    let (level, cell) = hand.hold(1);
    hand.cut();
    hand.pass(Duration::from_secs(5));
    let unlock = hand.release(&cell, level);
    let begun = hand.now;
    while !hand.answers.iter().any(|(request, _)| *request == unlock) {
        hand.pass(Duration::from_millis(100));
    }
    let waited = hand.now.since(begun);
    assert!(waited > Duration::from_secs(20) && waited < super::LEASE, "{waited:?}");
    let Answer::Failed(Error::Unavailable { waited: told, .. }) = hand.answer(unlock) else {
        panic!("the lease has ended")
    };
    assert!(
        told <= waited && waited.saturating_sub(told) <= Duration::from_millis(100),
        "{told:?}"
    );
}

#[test]
fn an_unlock_ends_at_its_limit_while_its_command_is_on_the_wire() {
    let mut hand = Hand::new();
    hand.engine.cx.config.outage_limit = Duration::from_secs(3);
    let (_, cell) = hand.hold(1);
    let inner = hand.re_enter(1);
    let release = hand.release(&cell, inner);
    for _ in 0..2 {
        let (op, _) = hand.take("release");
        hand.pass(Duration::from_secs(1));
        hand.unknown(op);
        hand.pass(Duration::from_millis(100));
        hand.sent.retain(|(_, command)| matches!(command, Command::Release { .. }));
    }
    hand.take("release");
    hand.is_open(release);
    hand.pass(Duration::from_millis(900));
    unavailable_after(hand.answer(release), Duration::from_secs(3));
}

#[test]
fn an_unlock_hears_at_once_that_the_server_refuses_the_login() {
    for both in [false, true] {
        let mut hand = Hand::new();
        let (outer, cell) = hand.hold(1);
        let inner = hand.re_enter(1);
        hand.cut();
        let mut unlocks = vec![hand.release(&cell, inner)];
        unlocks.extend(both.then(|| hand.release(&cell, outer)));
        let failure = Failure::new(FailureKind::Auth, "WRONGPASS");
        hand.event(Event::ConnectFailed { server: ServerId::ONLY, failure });
        for unlock in unlocks {
            assert!(matches!(hand.answer(unlock), Answer::Failed(Error::Auth { .. })));
        }
        // What was given up is released all the same.
        let info = ServerInfo { run_id: "run-1".to_owned(), ..ServerInfo::default() };
        hand.event(Event::Up(ServerId::ONLY, info));
        assert_eq!(hand.labels(), ["time", "release"]);
    }
}
