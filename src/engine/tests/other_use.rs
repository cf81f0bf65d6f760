//! Data of another program in the hash of a lock, and locks that have lost their time to live.

use std::time::Duration;

use crate::base::error::Error;
use crate::base::name::LockName;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Forced;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::KeyState;
use crate::kinds::reply::Leftover;
use crate::kinds::reply::Released;

use super::Hand;
use super::OTHER;
use super::held;

const KEPT: Leftover = Leftover { receivers: Some(1), ends: false };

fn key_still_in_use(answer: Answer, words: &str) {
    let Answer::Failed(error @ Error::KeyStillInUse { .. }) = answer else { panic!("{answer:?}") };
    let said = error.to_string();
    assert!(said.contains("is released") && said.contains(words), "{said}");
    assert!(error.is_config() && !error.is_transient() && !error.is_lost());
}

/// The next attempt finds the data.
fn is_refused(hand: &mut Hand, waiter: RequestId) {
    hand.pass(Duration::from_millis(50));
    let (op, _) = hand.take("acquire");
    hand.done(op, Body::Acquire(Acquired::Conflict("a hash with several fields")));
    let answer = hand.answer(waiter);
    assert!(matches!(answer, Answer::Failed(Error::KeyConflict { .. })), "{answer:?}");
}

#[test]
fn a_release_beside_data_is_done_and_says_what_is_left() {
    for (leftover, words) in [
        (KEPT, "without a time to live"),
        (Leftover { ends: true, ..KEPT }, "they end with the time to live"),
        (Leftover { receivers: None, ..KEPT }, "without a time to live"),
    ] {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        let unlock = hand.release(&cell, level);
        let (op, _) = hand.take("release");
        hand.done(op, Body::Release(Released::InOtherUse(leftover)));
        key_still_in_use(hand.answer(unlock), words);
        let told = |report: &&Report| matches!(report, Report::Released { .. });
        assert_eq!(hand.reports.iter().filter(told).count(), 1);
        let refused =
            hand.reports.iter().any(|report| matches!(report, Report::PublishRefused { .. }));
        assert_eq!(refused, leftover.receivers.is_none());
        assert_eq!(hand.counters.snapshot().losses, 0);
        // The hold is over: the same owner asks anew.
        let again = hand.ask(1, Wait::Forever);
        is_refused(&mut hand, again);
        hand.pass(Duration::from_secs(60));
        hand.nothing_sent();
    }
}

#[test]
fn a_hand_off_beside_data_is_a_release_and_the_waiter_hears_of_the_data() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let waiter = hand.ask(2, Wait::Forever);
    let unlock = hand.release(&cell, level);
    let (op, _) = hand.take("hand_off");
    hand.done(op, Body::HandOff(HandedOff::InOtherUse(KEPT)));
    key_still_in_use(hand.answer(unlock), "without a time to live");
    is_refused(&mut hand, waiter);
    hand.pass(Duration::from_secs(60));
    hand.nothing_sent();
}

#[test]
fn a_dropped_guard_beside_data_is_released_and_counted() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::Release { hold: cell.id, level, request: None });
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::InOtherUse(KEPT)));
    let counters = hand.counters.snapshot();
    assert_eq!((counters.holds, counters.losses, counters.failed_drop_releases), (0, 0, 1));
    let told = |report: &Report| matches!(report, Report::ReleaseFailed { cause, .. } if cause.contains("is released"));
    assert!(hand.reports.iter().any(told), "{:?}", hand.reports);
    hand.pass(Duration::from_secs(60));
    hand.nothing_sent();
}

/// The clean-up of an unknown attempt finds data beside its field: the contender tries again.
#[test]
fn a_clean_up_beside_data_wakes_the_contender() {
    let mut hand = Hand::new();
    let waiter = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    let (clean_up, _) = hand.take("release");
    hand.pass(Duration::from_millis(50));
    let (attempt, _) = hand.take("acquire");
    hand.done(attempt, held(20_000));
    hand.confirm_subscriptions();
    let (attempt, _) = hand.take("acquire");
    hand.done(attempt, held(20_000));
    hand.nothing_sent();
    hand.done(clean_up, Body::Release(Released::InOtherUse(KEPT)));
    is_refused(&mut hand, waiter);
}

fn force(hand: &mut Hand, from: Option<&str>) -> RequestId {
    hand.requests += 1;
    let request = RequestId(hand.requests);
    let (name, from) = (LockName::new("n").unwrap(), from.map(str::to_owned));
    hand.event(Event::ForceUnlock { name, from, request });
    request
}

fn hash(pttl: i64, field: &str) -> Body {
    Body::Inspect(KeyState::Hash {
        pttl,
        fields: 1,
        field: field.to_owned(),
        count: "1".to_owned(),
    })
}

#[test]
fn a_force_unlock_beside_data_is_done_and_says_what_is_left() {
    let mut hand = Hand::new();
    let request = force(&mut hand, Some(OTHER));
    let (op, _) = hand.take("force_release");
    hand.done(op, Body::Force(Forced::InOtherUse(KEPT)));
    key_still_in_use(hand.answer(request), "without a time to live");
}

/// A lock without a time to live is a conflict for an acquire, which says what it is;
/// `force_unlock` removes it.
#[test]
fn a_lock_without_a_time_to_live_is_taken_away_by_force() {
    let mut hand = Hand::new();
    let waiter = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(-1));
    let Answer::Failed(error @ Error::KeyConflict { .. }) = hand.answer(waiter) else {
        panic!("no conflict")
    };
    let said = error.to_string();
    assert!(
        said.contains("a lock without a time to live") && said.contains("`force_unlock`"),
        "{said}"
    );
    let request = force(&mut hand, None);
    let (op, _) = hand.take("inspect");
    hand.done(op, hash(-1, OTHER));
    let (op, command) = hand.take("force_release");
    assert!(matches!(command, Command::ForceRelease { expected, .. } if expected == OTHER));
    hand.done(op, Body::Force(Forced::Freed { receivers: Some(0) }));
    assert!(matches!(hand.answer(request), Answer::Forced(true)));
    // What no lock has written is left alone.
    let request = force(&mut hand, None);
    let (op, _) = hand.take("inspect");
    hand.done(op, hash(-1, "status"));
    let answer = hand.answer(request);
    assert!(matches!(answer, Answer::Failed(Error::KeyConflict { .. })), "{answer:?}");
    hand.nothing_sent();
}
