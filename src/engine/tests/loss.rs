//! How a hold is lost, and what its owner hears.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::reply::Body;
use crate::kinds::reply::Renewed;

use super::Hand;
use super::LEASE;
use super::freed;
use super::grant;
use super::watched;

#[test]
fn a_lost_hold_is_an_error_to_its_owner_until_its_guards_are_gone() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    hand.event(Event::Verify { hold: cell.id, request: RequestId(900) });
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Foreign])));
    assert!(matches!(
        hand.answer(RequestId(900)),
        Answer::Failed(Error::Lost { reason: LossReason::TakenOver, .. })
    ));
    assert_eq!(cell.loss(), Some(LossReason::TakenOver));
    for wait in [Wait::Forever, Wait::For(Duration::from_secs(5)), Wait::Once] {
        let again = hand.ask(1, wait);
        let Answer::Failed(error) = hand.answer(again) else { panic!("{wait:?}") };
        assert!(
            matches!(error, Error::GuardOfLostHold { reason: LossReason::TakenOver, .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("drop the guard of the lost hold first"), "{error}");
        assert!(error.is_lost() && !error.is_config() && !error.is_transient());
    }
    let release = hand.release(&cell, level);
    assert!(matches!(hand.answer(release), Answer::Failed(Error::Lost { .. })));
    hand.nothing_sent();
    assert!(hand.directory.is_empty(), "nothing of it stays");
    hand.ask(1, Wait::Forever);
    hand.take("acquire");
}

/// Also to who wanted a further level when it was lost, on the wire or in line; without a guard
/// there is none to drop.
#[test]
fn who_waits_for_a_further_level_of_a_lost_hold_hears_what_to_drop() {
    for guarded in [true, false] {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        let inner = [hand.ask(1, Wait::Forever), hand.ask(1, Wait::Forever)];
        hand.take("acquire");
        if !guarded {
            hand.event(Event::Release { hold: cell.id, level, request: None });
        }
        hand.pass(2 * LEASE);
        for request in inner {
            let answer = hand.answer(request);
            let Answer::Failed(error) = answer else { panic!("{answer:?}") };
            assert!(error.is_lost(), "{error:?}");
            assert_eq!(matches!(error, Error::GuardOfLostHold { .. }), guarded, "{error:?}");
        }
    }
}

#[test]
fn when_the_client_ends_what_is_held_is_lost_and_what_was_given_up_is_not() {
    let mut hand = Hand::new();
    let (level, given_up) = hand.hold(1);
    hand.release(&given_up, level);
    let (released, _) = hand.take("release");
    let request = hand.want_name("other", 2, watched(), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(7));
    let held = hand.granted(request);
    hand.engine.end_holds();
    hand.done(released, freed());
    assert_eq!((held.loss(), given_up.loss()), (Some(LossReason::ClientShutdown), None));
}

#[test]
fn each_loss_has_its_reason() {
    for (run_id, hint, answer, reason) in [
        ("run-1", false, Renewed::Gone, LossReason::Removed),
        ("run-2", false, Renewed::Gone, LossReason::ServerLostData),
        ("run-1", true, Renewed::Gone, LossReason::ForceUnlocked),
        ("run-1", true, Renewed::Foreign, LossReason::ForceUnlocked),
        ("run-1", false, Renewed::Foreign, LossReason::TakenOver),
    ] {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        hand.pass(Duration::from_secs(5));
        hand.event(Event::PickedUp { request: level });
        hand.cut();
        assert!(cell.is_suspect() && cell.is_held(hand.now));
        hand.connect(run_id);
        hand.confirm_subscriptions();
        if hint {
            let channel: Arc<str> =
                "redisson_lock__client:{11111111-2222-4333-8444-555555555555}".into();
            hand.event(Event::Message { channel, payload: "n".to_owned() });
        }
        let (op, _) = hand.take("renew");
        hand.done(op, Body::Renew(Some(vec![answer])));
        assert_eq!(cell.loss(), Some(reason), "{run_id} {hint} {answer:?}");
    }
}

#[test]
fn a_force_unlock_hint_alone_loses_nothing() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    let channel: Arc<str> = "redisson_lock__client:{11111111-2222-4333-8444-555555555555}".into();
    hand.event(Event::Message { channel, payload: "n".to_owned() });
    assert!(cell.is_held(hand.now));
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(cell.is_held(hand.now));
    assert_eq!(cell.loss(), None);
}

/// Two holds of one name are taken away one after the other: the answer to the question after the
/// first message says nothing about the second.
#[test]
fn a_second_hint_is_looked_into_although_the_first_was_refuted() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    let hint = || {
        let channel = "redisson_lock__client:{11111111-2222-4333-8444-555555555555}".into();
        Event::Message { channel, payload: "n".to_owned() }
    };
    hand.event(hint());
    let (first, _) = hand.take("renew");
    hand.event(hint());
    hand.done(first, Body::Renew(Some(vec![Renewed::Yes])));
    let (second, _) = hand.take("renew");
    hand.done(second, Body::Renew(Some(vec![Renewed::Gone])));
    assert_eq!(cell.loss(), Some(LossReason::ForceUnlocked));
}

#[test]
fn a_local_loss_wakes_the_contender() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    let next = hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    hand.event(Event::Verify { hold: cell.id, request: RequestId(900) });
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Gone])));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(9));
    hand.granted(next);
}

/// Whichever comes first after it: nothing was looked at meanwhile.
#[test]
fn what_ran_out_while_nobody_ran_is_lost_before_it_is_given_up() {
    for picked_up in [false, true] {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        if picked_up {
            hand.event(Event::PickedUp { request: level });
        }
        hand.now = hand.now.plus(Duration::from_secs(60));
        let release = hand.release(&cell, level);
        assert!(matches!(
            hand.answer(release),
            Answer::Failed(Error::Lost { reason: LossReason::Expired, .. })
        ));
    }
}

/// Its owner's clock was read later than the engine's.
#[test]
fn what_its_owner_has_seen_end_is_tried_for_at_once() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    cell.lose_if_past(cell.valid_until());
    let channel: Arc<str> = "redisson_lock__client:{11111111-2222-4333-8444-555555555555}".into();
    hand.event(Event::Message { channel, payload: "n".to_owned() });
    hand.take("acquire");
}
