//! Operations: what is done once, whatever becomes of its commands.

use std::time::Duration;

use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::error::Error;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::kinds::command::Command;
use crate::kinds::operation::Change;
use crate::kinds::operation::Operated;
use crate::kinds::operation::Operation;
use crate::kinds::reply::Body;

use super::Hand;

const SECOND: Duration = Duration::from_secs(1);

fn latch() -> LockName {
    LockName::new("n").unwrap().of_kind(Kind::CountDownLatch)
}

impl Hand {
    fn count_down(&mut self) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.event(Event::Operate { name: latch(), change: Change::CountDown, request });
        request
    }

    /// The only command that was sent: one of an operation.
    fn take_operation(&mut self) -> (OpId, Operation) {
        match self.take("count_down") {
            (op, Command::Operate(operation)) => (op, *operation),
            (_, other) => panic!("{other:?}"),
        }
    }

    fn operated(&mut self, op: OpId, operated: Operated) {
        self.done(op, Body::Operated(operated));
    }

    fn unavailable(&mut self, request: RequestId) -> String {
        match self.answer(request) {
            Answer::Failed(Error::Unavailable { cause, .. }) => cause,
            other => panic!("{other:?}"),
        }
    }
}

const UNKNOWN: &str = "it is unknown whether this was done";
const NOTHING: &str = "nothing was done";

#[test]
fn an_operation_that_is_answered_is_one_command() {
    for (operated, expected) in [(Operated::Done(3), Some(3)), (Operated::Nothing, None)] {
        let mut hand = Hand::new();
        let request = hand.count_down();
        let (op, _) = hand.take_operation();
        hand.operated(op, operated);
        assert!(matches!(hand.answer(request), Answer::Operated(number) if number == expected));
        assert!(hand.engine.is_idle());
    }
}

#[test]
fn all_copies_are_equal_and_no_two_operations_share_an_id() {
    let mut hand = Hand::new();
    let request = hand.count_down();
    let (op, first) = hand.take_operation();
    hand.unknown(op);
    hand.nothing_sent();
    hand.pass(Duration::from_millis(20));
    let (op, second) = hand.take_operation();
    assert_eq!(first, second);
    hand.refused(op, FailureKind::Busy);
    hand.pass(Duration::from_millis(40));
    let (op, third) = hand.take_operation();
    assert_eq!(first, third);
    hand.operated(op, Operated::Done(0));
    assert!(matches!(hand.answer(request), Answer::Operated(Some(0))));
    hand.count_down();
    let (_, next) = hand.take_operation();
    assert_ne!(first.id, next.id);
}

/// What could not even be sent is told as that, when its time is over.
#[test]
fn what_was_never_sent_was_not_done() {
    let mut hand = Hand::new();
    hand.cut();
    let request = hand.count_down();
    hand.pass(29 * SECOND);
    hand.nothing_sent();
    hand.is_open(request);
    hand.pass(SECOND);
    assert!(hand.unavailable(request).contains(NOTHING));
    assert!(hand.engine.is_idle());
}

/// The server keeps the outcome for 10 s after the last moment at which it may have been done.
#[test]
fn an_unanswered_caller_asks_for_as_long_as_the_server_remembers() {
    let mut hand = Hand::new();
    let request = hand.count_down();
    let (op, _) = hand.take_operation();
    hand.unknown(op);
    hand.cut();
    hand.pass(39 * SECOND);
    hand.is_open(request);
    hand.pass(2 * SECOND);
    assert!(hand.unavailable(request).contains(UNKNOWN));
}

#[test]
fn a_connection_that_comes_back_tells_what_became_of_it() {
    let mut hand = Hand::new();
    let request = hand.count_down();
    let (op, first) = hand.take_operation();
    hand.cut();
    hand.unknown(op);
    hand.pass(35 * SECOND);
    hand.nothing_sent();
    hand.event(Event::Up(ServerId::ONLY, ServerInfo::default()));
    assert_eq!(hand.labels(), ["time", "count_down"]);
    hand.sent.remove(0);
    let (op, again) = hand.take_operation();
    assert_eq!(first, again, "the same, also when it is too late to be done");
    hand.operated(op, Operated::Done(2));
    assert!(matches!(hand.answer(request), Answer::Operated(Some(2))));
}

/// If an earlier copy had been executed, the server would still know.
#[test]
fn a_late_answer_in_time_says_that_nothing_was_done() {
    for (after, words) in [(35, NOTHING), (41, UNKNOWN)] {
        let mut hand = Hand::new();
        let request = hand.count_down();
        let (op, _) = hand.take_operation();
        hand.unknown(op);
        hand.pass(Duration::from_millis(20));
        let (op, _) = hand.take_operation();
        // The caller's time is not over yet, but the server's clock is ahead.
        hand.offset += after * 1_000_000;
        hand.operated(op, Operated::Late);
        let cause = hand.unavailable(request);
        assert!(cause.contains(words), "{after} s: {cause}");
    }
}

/// Nothing but this copy was ever sent.
#[test]
fn a_late_answer_to_the_only_copy_says_that_nothing_was_done() {
    let mut hand = Hand::new();
    let request = hand.count_down();
    let (op, _) = hand.take_operation();
    hand.offset += 100_000_000;
    hand.operated(op, Operated::Late);
    assert!(hand.unavailable(request).contains(NOTHING));
}

#[test]
fn what_does_not_pass_ends_an_operation_at_once() {
    let mut hand = Hand::new();
    let request = hand.count_down();
    let (op, _) = hand.take_operation();
    hand.operated(op, Operated::Conflict("a semaphore"));
    assert!(matches!(
        hand.answer(request),
        Answer::Failed(Error::KeyConflict { found, .. }) if found == "a semaphore"
    ));

    let request = hand.count_down();
    let (op, _) = hand.take_operation();
    hand.refused(op, FailureKind::Denied);
    assert!(matches!(hand.answer(request), Answer::Failed(Error::Denied { .. })));
    assert!(hand.engine.is_idle());
}

#[test]
fn a_shutdown_ends_every_operation() {
    let mut hand = Hand::new();
    let request = hand.count_down();
    hand.event(Event::Shutdown { until: hand.now.plus(SECOND), request: None });
    assert!(matches!(hand.answer(request), Answer::Failed(Error::Closed { .. })));
    assert!(hand.finished);
}

// ---- waiting

#[test]
fn who_waits_for_a_latch_looks_at_its_count() {
    let mut hand = Hand::new();
    hand.requests += 1;
    let request = RequestId(hand.requests);
    hand.event(Event::Watch { name: latch(), request });
    let (channel, _) = hand.subscriptions[0].clone();
    assert_eq!(&*channel, "redisson_countdownlatch__channel__{n}");
    hand.confirm_subscriptions();
    for count in [2, 1] {
        let (op, _) = hand.take("count");
        hand.done(op, Body::Count(Ok(count)));
        hand.is_open(request);
        hand.nothing_sent();
        hand.event(Event::Message { channel: channel.clone(), payload: "0".to_owned() });
    }
    let (op, _) = hand.take("count");
    hand.done(op, Body::Count(Ok(0)));
    assert!(matches!(hand.answer(request), Answer::Done));
}
