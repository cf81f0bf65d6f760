//! What a preflight asks: one command, and whether the message that it publishes is heard.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::base::error::Error;
use crate::base::name::LockName;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Listen;
use crate::engine::event::Probe;
use crate::engine::event::RequestId;
use crate::kinds::command::Command;
use crate::kinds::reply::Body;

use super::Hand;

const SECOND: Duration = Duration::from_secs(1);
const PROBE: RequestId = RequestId(900);

fn channel() -> Arc<str> {
    "probe".into()
}

impl Hand {
    /// Listens to a channel, and perhaps waits for the message there.
    fn probe(&mut self, awaited: bool) {
        let listen = Some(Listen { channel: channel(), awaited });
        let probe = Probe { name: LockName::new("n").unwrap(), command: Command::Ping, listen };
        self.event(Event::Probe { probe: Box::new(probe), request: PROBE });
    }

    fn hear(&mut self) {
        self.event(Event::Message { channel: channel(), payload: String::new() });
    }

    fn heard(&mut self) -> bool {
        match self.answer(PROBE) {
            Answer::Probed(probed) => probed.heard,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_probe_is_sent_when_its_channel_is_subscribed_and_ends_its_subscription() {
    for heard in [false, true] {
        let mut hand = Hand::new();
        hand.probe(false);
        hand.nothing_sent();
        hand.confirm_subscriptions();
        let (op, _) = hand.take("ping");
        if heard {
            hand.hear();
        }
        hand.is_open(PROBE);
        hand.done(op, Body::Pong);
        assert_eq!(hand.heard(), heard);
        assert_eq!(hand.unsubscribed, [channel()]);
        assert!(hand.engine.is_idle());
    }
}

/// The message may come before the answer or after it.
#[test]
fn a_probe_waits_for_its_message_and_for_its_answer() {
    for message_first in [false, true] {
        let mut hand = Hand::new();
        hand.probe(true);
        hand.confirm_subscriptions();
        let (op, _) = hand.take("ping");
        if message_first {
            hand.hear();
        } else {
            hand.done(op, Body::Pong);
        }
        hand.is_open(PROBE);
        if message_first {
            hand.done(op, Body::Pong);
        } else {
            hand.hear();
        }
        assert!(hand.heard());
        assert_eq!(hand.unsubscribed, [channel()]);
    }
}

#[test]
fn a_probe_whose_message_does_not_come_says_so_at_the_end_of_its_time() {
    let mut hand = Hand::new();
    hand.probe(true);
    hand.confirm_subscriptions();
    let (op, _) = hand.take("ping");
    hand.done(op, Body::Pong);
    hand.resubscribe();
    hand.nothing_sent();
    hand.pass(SECOND);
    assert!(!hand.heard());
}

#[test]
fn a_probe_whose_channel_is_refused_ends_with_that() {
    let mut hand = Hand::new();
    hand.probe(true);
    let (channel, generation) = hand.subscriptions.remove(0);
    let refused = Err(Failure::new(FailureKind::Denied, "NOPERM"));
    hand.event(Event::Subscribed { channel, generation, result: refused });
    assert!(matches!(hand.answer(PROBE), Answer::Failed(Error::Denied { .. })));
    hand.nothing_sent();
    assert!(hand.engine.is_idle());
}
