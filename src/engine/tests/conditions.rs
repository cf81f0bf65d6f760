//! Conditions of several parts, each part by itself; and what is in line while something else is
//! answered.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::name::LockName;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::engine::servers::Server;
use crate::engine::servers::Servers;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Body;
use crate::kinds::reply::KeyState;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;

use super::CHANNEL;
use super::Hand;
use super::LEASE;
use super::fixed;
use super::freed;
use super::grant;
use super::handed;
use super::held;
use super::watched;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const ASKED: RequestId = RequestId(900);

impl Hand {
    fn inspect(&mut self) {
        self.event(Event::Inspect { name: LockName::new("n").unwrap(), request: ASKED });
    }

    fn is_in_outage(&self) -> bool {
        self.engine
            .cx
            .servers
            .get(ServerId::ONLY)
            .is_some_and(|server| server.outage_since().is_some())
    }

    fn renewed_with(&mut self, answer: Renewed) {
        let (op, _) = self.take("renew");
        self.done(op, Body::Renew(Some(vec![answer])));
    }
}

// ---- what is in line while something of the hold is on the wire

#[test]
fn the_last_level_given_up_while_a_count_is_on_the_wire_is_released_after_it() {
    let mut hand = Hand::new();
    let (outer, cell) = hand.hold(1);
    let inner = hand.re_enter(1);
    let first = hand.release(&cell, inner);
    let (op, _) = hand.take("release");
    let last = hand.release(&cell, outer);
    hand.nothing_sent();
    hand.done(op, Body::Release(Released::CountSet));
    assert!(matches!(hand.answer(first), Answer::Done));
    hand.is_open(last);
    let (op, command) = hand.take("release");
    assert!(matches!(command, Command::Release { share: Share::NOTHING, .. }));
    hand.done(op, freed());
    assert!(matches!(hand.answer(last), Answer::Done));
    assert!(hand.engine.is_idle());
}

#[test]
fn a_count_on_the_wire_of_a_hold_that_is_lost_meanwhile_is_answered() {
    for answered in [true, false] {
        let mut hand = Hand::new();
        let (outer, cell) = hand.hold(1);
        let inner = hand.re_enter(1);
        let unlock = hand.release(&cell, inner);
        let (op, _) = hand.take("release");
        hand.resubscribe();
        hand.renewed_with(Renewed::Gone);
        assert_eq!(cell.loss(), Some(LossReason::Removed));
        hand.event(Event::Release { hold: cell.id, level: outer, request: None });
        hand.is_open(unlock);
        if answered {
            hand.done(op, Body::Release(Released::Gone));
        } else {
            hand.unknown(op);
        }
        let answer = hand.answer(unlock);
        assert!(matches!(answer, Answer::Failed(Error::Lost { .. })), "{answer:?}");
        assert!(hand.engine.is_idle());
    }
}

#[test]
fn a_level_given_up_in_line_behind_a_re_entry_is_answered_when_the_hold_is_lost() {
    let mut hand = Hand::new();
    let (outer, cell) = hand.hold(1);
    let inner = hand.ask(1, Wait::Forever);
    hand.take("acquire");
    let unlock = hand.release(&cell, outer);
    hand.resubscribe();
    hand.renewed_with(Renewed::Gone);
    for request in [unlock, inner] {
        let answer = hand.answer(request);
        assert!(matches!(&answer, Answer::Failed(error) if error.is_lost()), "{answer:?}");
    }
}

/// A success begins the pauses anew.
#[test]
fn a_smaller_count_that_fails_now_and_then_is_repeated_as_soon_each_time() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let levels = [hand.re_enter(1), hand.re_enter(1)];
    for level in levels {
        let unlock = hand.release(&cell, level);
        for pause in [20, 40, 80] {
            let (op, _) = hand.take("release");
            hand.refused(op, FailureKind::Busy);
            hand.pass((pause - 1) * MS);
            hand.nothing_sent();
            hand.pass(MS);
        }
        let (op, _) = hand.take("release");
        hand.done(op, Body::Release(Released::CountSet));
        assert!(matches!(hand.answer(unlock), Answer::Done));
    }
}

#[test]
fn a_re_entry_that_waits_to_be_repeated_is_not_forgotten_with_a_renewal() {
    let mut hand = Hand::new();
    hand.taken(1, watched(), None);
    let inner = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.refused(op, FailureKind::Busy);
    hand.resubscribe();
    hand.renewed();
    hand.pass(50 * MS);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    hand.granted(inner);
}

#[test]
fn a_re_entry_in_line_behind_another_is_not_forgotten_with_a_renewal() {
    let mut hand = Hand::new();
    hand.taken(1, watched(), None);
    let levels = [hand.ask(1, Wait::Forever), hand.ask(1, Wait::Forever)];
    let (first, _) = hand.take("acquire");
    hand.resubscribe();
    hand.renewed();
    hand.done(first, grant(0));
    let (second, _) = hand.take("acquire");
    hand.done(second, grant(0));
    for level in levels {
        hand.granted(level);
    }
}

#[test]
fn a_re_entry_behind_a_smaller_count_follows_it() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let inner = hand.re_enter(1);
    let second = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    let unlock = hand.release(&cell, inner);
    let third = hand.ask(1, Wait::Forever);
    hand.done(op, grant(0));
    hand.granted(second);
    let (op, command) = hand.take("release");
    assert!(matches!(command, Command::Release { share: Share { exclusive: 2, .. }, .. }));
    hand.done(op, Body::Release(Released::CountSet));
    assert!(matches!(hand.answer(unlock), Answer::Done));
    let (op, command) = hand.take("acquire");
    assert!(matches!(command, Command::Acquire { share: Share { exclusive: 3, .. }, .. }));
    hand.done(op, grant(0));
    hand.granted(third);
    assert_eq!(cell.count(), 3);
}

// ---- how long a command may take

#[test]
fn a_command_has_the_command_timeout_or_what_is_left_of_a_wait() {
    let brief = Duration::from_micros(10);
    let cases = [
        (Wait::Forever, SECOND),
        (Wait::Once, SECOND),
        (Wait::For(300 * MS), 300 * MS),
        (Wait::For(20 * SECOND), SECOND),
        (Wait::For(brief), MS),
    ];
    for (wait, timeout) in cases {
        let mut hand = Hand::new();
        hand.ask(1, wait);
        let (op, _) = hand.take("acquire");
        assert_eq!(hand.timeouts[&op], timeout, "{wait:?}");
        let mut hand = Hand::new();
        hand.hold(1);
        hand.ask(1, wait);
        let (op, _) = hand.take("acquire");
        assert_eq!(hand.timeouts[&op], timeout, "a further level, {wait:?}");
    }
}

#[test]
fn the_wait_for_a_further_level_ends_without_an_answer() {
    let mut hand = Hand::new();
    hand.hold(1);
    let inner = hand.ask(1, Wait::For(300 * MS));
    hand.take("acquire");
    hand.pass(300 * MS);
    let answer = hand.answer(inner);
    assert!(matches!(answer, Answer::Failed(Error::Unavailable { .. })), "{answer:?}");
}

// ---- what answers a `try_lock`

#[test]
fn a_try_lock_behind_one_who_was_told_that_it_is_held_is_told_so_at_once() {
    for wait in [Wait::Once, Wait::For(Duration::ZERO)] {
        let mut hand = Hand::new();
        hand.sleeper(1);
        let other = hand.ask(2, wait);
        assert!(matches!(hand.answer(other), Answer::NotGranted), "{wait:?}");
        hand.nothing_sent();
    }
}

/// The server is there, and does not answer what was asked for another name.
#[test]
fn what_was_told_before_an_outage_of_the_server_is_no_answer() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    hand.event(Event::Ping { request: ASKED });
    let (op, _) = hand.take("ping");
    hand.unknown(op);
    let other = hand.ask(2, Wait::Once);
    hand.is_open(other);
    assert_eq!(hand.counters.snapshot().waits, 1, "a `try_lock` does not wait for the lock");
}

/// The server is well, and yet the attempts at this lock are not answered.
#[test]
fn attempts_without_an_answer_are_none_of_a_server_that_is_well_either() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    assert!(!hand.is_in_outage());
    let other = hand.ask(2, Wait::Once);
    hand.is_open(other);
}

/// The server is well, and yet the release of this lock was not answered.
#[test]
fn a_release_without_an_answer_is_none_of_a_server_that_is_well_either() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.release(&cell, level);
    let (op, _) = hand.take("release");
    hand.unknown(op);
    hand.event(Event::Ping { request: ASKED });
    let (op, _) = hand.take("ping");
    hand.done(op, Body::Pong);
    assert!(!hand.is_in_outage());
    let other = hand.ask(2, Wait::Once);
    hand.is_open(other);
}

/// A hold of this client was in the way for most of the wait. Then the server was asked, and it is
/// well: that it needs a moment is no outage.
#[test]
fn a_hold_that_was_in_the_way_is_an_answer_after_its_end_too_if_the_server_is_well() {
    for well in [true, false] {
        let mut hand = Hand::new();
        hand.taken(1, watched(), None);
        let waiter = hand.ask(2, Wait::For(5 * SECOND));
        hand.pass(4_500 * MS);
        hand.resubscribe();
        hand.renewed_with(Renewed::Gone);
        hand.take("acquire");
        if !well {
            hand.cut();
        }
        hand.pass(500 * MS);
        let answer = hand.answer(waiter);
        assert_eq!(matches!(answer, Answer::NotGranted), well, "{answer:?}");
        assert_eq!(
            matches!(answer, Answer::Failed(Error::Unavailable { .. })),
            !well,
            "{answer:?}"
        );
    }
}

/// What the server said before a grant of this client says nothing about the time after its hold.
#[test]
fn a_refusal_from_before_a_hold_of_this_client_is_no_answer_after_it() {
    let mut hand = Hand::new();
    let first = hand.want(1, fixed(2 * SECOND), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    let waiter = hand.ask(2, Wait::For(10 * SECOND));
    hand.done(op, held(20_000));
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(first);
    hand.event(Event::PickedUp { request: first });
    hand.cut();
    hand.pass(10 * SECOND);
    let answer = hand.answer(waiter);
    assert!(matches!(answer, Answer::Failed(Error::Unavailable { .. })), "{answer:?}");
}

#[test]
fn only_trouble_that_passes_and_is_the_servers_is_an_outage() {
    let cases = [
        (FailureKind::Busy, true),
        (FailureKind::OutOfMemory, true),
        (FailureKind::ReadOnly, true),
        (FailureKind::SlotMoving, false),
        (FailureKind::Denied, false),
        (FailureKind::Refused, false),
    ];
    for (kind, outage) in cases {
        let mut hand = Hand::new();
        hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.refused(op, kind);
        assert_eq!(hand.is_in_outage(), outage, "{kind:?}");
    }
}

// ---- attempts of nobody, and those behind them

/// That its waiter has gone is no reason to take a silent server for one that was not given time.
#[test]
fn an_unknown_attempt_of_nobody_that_had_its_time_is_not_repeated_at_once() {
    let mut hand = Hand::new();
    let first = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    let second = hand.ask(2, Wait::Forever);
    hand.event(Event::Cancel { request: first });
    hand.unknown(op);
    hand.take("release");
    hand.pass(20 * MS);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(second);
}

#[test]
fn a_contender_that_leaves_takes_its_hold_along() {
    let mut hand = Hand::new();
    let request = hand.sleeper(1);
    assert_eq!(hand.engine.holds.len(), 1, "kept for its next attempt");
    hand.event(Event::Cancel { request });
    assert_eq!(hand.engine.holds.len(), 0);
}

/// Until its clean-up is over, an attempt of which nobody knows may be held by nobody.
#[test]
fn an_unknown_attempt_of_nobody_is_given_up_until_it_is_cleaned_up() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    assert_eq!(hand.engine.given_up().len(), 0);
    hand.event(Event::Cancel { request });
    assert_eq!(hand.engine.given_up().len(), 1);
    hand.unknown(op);
    assert_eq!(hand.engine.given_up().len(), 1);
    hand.pass(2 * SECOND);
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    assert_eq!(hand.engine.given_up().len(), 0);
    // The same of a release on its way.
    let (level, cell) = hand.hold(1);
    assert_eq!(hand.engine.given_up().len(), 0);
    hand.release(&cell, level);
    assert_eq!(hand.engine.given_up(), [cell.id]);
}

/// That one of them is over says nothing about the other.
#[test]
fn a_name_is_not_tried_before_each_of_its_clean_ups_is_under_way() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let mut clean_ups = Vec::new();
    for _ in 0..2 {
        let (op, _) = hand.take("acquire");
        hand.unknown(op);
        clean_ups.push(hand.take("release").0);
        hand.pass(50 * MS);
    }
    let (op, _) = hand.take("acquire");
    hand.done(op, held(60_000));
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done(op, held(60_000));
    hand.pass(2 * SECOND);
    hand.nothing_sent();
    hand.done(clean_ups[0], freed());
    let (op, _) = hand.take("acquire");
    hand.done(op, held(60_000));
    hand.refused(clean_ups[1], FailureKind::Busy);
    hand.message();
    hand.nothing_sent();
    hand.pass(50 * MS);
    assert_eq!(hand.labels(), ["release", "acquire"]);
}

/// However far away the end of its deadline is, by the server's clock.
#[test]
fn a_clean_up_is_repeated_every_five_seconds_at_least() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request });
    hand.unknown(op);
    for _ in 0..3 {
        let (op, _) = hand.take("release");
        let time = Some(ServerTime(hand.server_time().0 - 60_000_000));
        let outcome = Outcome::Done(Reply { time, body: Body::Release(Released::Gone) });
        hand.event(Event::Replied { op, server: ServerId::ONLY, outcome });
        hand.pass(5 * SECOND - MS);
        hand.nothing_sent();
        hand.pass(MS);
    }
}

/// Only what was freed is a reason to try.
#[test]
fn a_clean_up_that_fails_wakes_nobody() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request });
    hand.unknown(op);
    let (op, _) = hand.take("release");
    hand.pass(50 * MS);
    hand.sleeper(2);
    hand.unknown(op);
    hand.nothing_sent();
}

/// Each try comes later than the one before, up to half a second.
#[test]
fn a_clean_up_that_fails_is_not_repeated_at_the_pace_of_the_line() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request });
    hand.unknown(op);
    let mut tries = 0;
    for _ in 0..10_000 {
        if let Some(at) = hand.sent.iter().position(|(_, command)| command.label() == "release") {
            let (op, _) = hand.sent.remove(at);
            hand.unknown(op);
            tries += 1;
        }
        hand.pass(MS);
    }
    assert!((20..=30).contains(&tries), "{tries} in 10 s");
}

#[test]
fn an_attempt_of_nobody_that_is_refused_for_good_leaves_nothing() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request });
    hand.refused(op, FailureKind::Denied);
    assert!(hand.engine.is_idle());
}

/// Whoever asks after all waiters have gone does not come before the clean-up either.
#[test]
fn a_clean_up_that_could_not_be_sent_is_remembered_without_waiters() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    let (op, _) = hand.take("release");
    hand.refused(op, FailureKind::Busy);
    hand.event(Event::Cancel { request });
    hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    hand.pass(50 * MS);
    assert_eq!(hand.labels(), ["release", "acquire"]);
}

#[test]
fn the_next_request_of_an_owner_has_the_place_of_the_one_that_left() {
    let mut hand = Hand::new();
    let first = hand.sleeper(1);
    let stranger = hand.ask(2, Wait::Forever);
    let next = hand.ask(1, Wait::Forever);
    hand.event(Event::Cancel { request: first });
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(next);
    hand.is_open(stranger);
}

// ---- how long a grant waits to be picked up

#[test]
fn a_further_level_waits_to_be_picked_up_no_longer_than_the_first() {
    let mut hand = Hand::new();
    let (first, _) = hand.hold(1);
    hand.pass(3 * SECOND);
    let inner = hand.re_enter(1);
    hand.pass(2 * SECOND - MS);
    assert_eq!(hand.withdrawals, []);
    hand.pass(2 * MS);
    assert_eq!(hand.withdrawals, [first, inner]);
}

#[test]
fn a_grant_waits_to_be_picked_up_from_its_sending_on() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.pass(900 * MS);
    hand.done(op, grant(1));
    hand.granted(request);
    hand.pass(4_099 * MS);
    assert_eq!(hand.withdrawals, []);
    hand.pass(2 * MS);
    assert_eq!(hand.withdrawals, [request]);
}

/// A further level with the client's lease is as good as a renewal; one with a shorter lease is
/// not.
#[test]
fn a_further_level_puts_the_first_renewal_off_if_its_lease_is_long_enough() {
    for (lease, seconds) in [(watched(), 14), (fixed(10 * SECOND), 10)] {
        let mut hand = Hand::new();
        let (first, cell) = hand.hold(1);
        hand.pass(4 * SECOND);
        let inner = hand.want(1, lease, Wait::Forever, None);
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(0));
        hand.granted(inner);
        for request in [first, inner] {
            hand.event(Event::PickedUp { request });
        }
        hand.pass((seconds - 4) * SECOND - MS);
        hand.nothing_sent();
        hand.pass(2 * MS);
        hand.renewed();
        assert!(cell.is_held(hand.now));
    }
}

// ---- max_hold

#[test]
fn a_fixed_lease_that_ends_with_max_hold_ends_because_of_it() {
    for (limit, reason) in [(Some(5 * SECOND), LossReason::MaxHold), (None, LossReason::Expired)] {
        let mut hand = Hand::new();
        let (_, cell) = hand.taken(1, fixed(5 * SECOND), limit);
        hand.pass(6 * SECOND);
        assert_eq!(cell.loss(), Some(reason));
    }
}

#[test]
fn a_max_hold_that_is_over_at_this_instant_is_over() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    hand.pass(3 * SECOND);
    let inner = hand.want(1, watched(), Wait::Forever, Some(3 * SECOND));
    hand.nothing_sent();
    assert!(matches!(hand.answer(inner), Answer::Failed(Error::InvalidOption { .. })));
    assert!(cell.is_held(hand.now));
}

/// Of two ends the farther one is left, and its reason.
#[test]
fn a_level_that_is_withdrawn_leaves_the_end_that_another_one_sets() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let levels = [20, 6].map(|seconds| {
        let level = hand.want(1, watched(), Wait::Forever, Some(seconds * SECOND));
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(0));
        hand.granted(level);
        level
    });
    hand.event(Event::Withdrawn { request: levels[1] });
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::CountSet));
    hand.event(Event::PickedUp { request: levels[0] });
    hand.pass(19 * SECOND);
    assert!(cell.is_held(hand.now));
    hand.pass(SECOND);
    assert_eq!(cell.loss(), Some(LossReason::MaxHold));
}

/// With its end the reason goes not to renew the hold any more.
#[test]
fn a_hold_is_renewed_again_when_a_level_that_limited_it_is_withdrawn() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let inner = hand.want(1, watched(), Wait::Forever, Some(6 * SECOND));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    hand.granted(inner);
    hand.resubscribe();
    hand.renewed();
    hand.event(Event::Withdrawn { request: inner });
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::CountSet));
    assert!(hand.live(40 * SECOND) > 0);
    assert!(cell.is_held(hand.now));
}

// ---- what is renewed

#[test]
fn nothing_is_renewed_after_the_last_level_that_asked_for_it() {
    let mut hand = Hand::new();
    let (outer, cell) = hand.taken(1, watched(), None);
    let inner = hand.want(1, fixed(LEASE), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    hand.granted(inner);
    hand.event(Event::PickedUp { request: inner });
    assert_eq!(hand.counters.snapshot().registered_renewals, 1);
    hand.event(Event::Release { hold: cell.id, level: outer, request: None });
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::CountSet));
    assert_eq!(hand.counters.snapshot().registered_renewals, 0);
    hand.pass(LEASE / 2);
    hand.nothing_sent();
}

/// Nobody expects a confirmation of it.
#[test]
fn a_fixed_lease_is_not_in_doubt_because_nothing_is_heard_of_it() {
    for (lease, suspect) in [(fixed(LEASE), false), (watched(), true)] {
        let mut hand = Hand::new();
        let (_, cell) = hand.taken(1, lease, None);
        hand.pass(LEASE * 2 / 3);
        hand.verify(&cell);
        assert_eq!(cell.is_suspect(), suspect, "{lease:?}");
    }
}

#[test]
fn a_hold_that_was_handed_on_is_to_be_released_like_any_other() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let next = hand.ask(2, Wait::Forever);
    hand.release(&cell, level);
    let (op, _) = hand.take("hand_off");
    hand.done(op, handed());
    hand.granted(next);
    assert_eq!(hand.left(), ["n"]);
}

#[test]
fn nobody_waits_for_a_name_that_nobody_knows() {
    let mut hand = Hand::new();
    let name = LockName::new("n").unwrap();
    assert_eq!(hand.engine.waiters_for(&name), 0);
    hand.sleeper(1);
    assert_eq!(hand.engine.waiters_for(&name), 1);
}

// ---- subscriptions

#[test]
fn a_subscription_that_is_refused_for_a_while_is_asked_for_again() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    let (channel, generation) = hand.subscriptions.remove(0);
    let busy = Err(Failure::new(FailureKind::Busy, "no"));
    hand.event(Event::Subscribed { channel, generation, result: busy });
    hand.is_open(request);
    hand.pass(199 * MS);
    assert_eq!(hand.subscriptions, []);
    hand.pass(MS);
    assert!(
        matches!(&hand.subscriptions[..], [(again, newer)] if **again == *CHANNEL && *newer > generation)
    );
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    hand.pass(SECOND);
    assert_eq!(hand.subscriptions, [], "it is confirmed");
}

#[test]
fn who_connects_waits_for_a_channel_that_is_refused_for_a_while_only() {
    for (kind, passes) in [(FailureKind::Busy, true), (FailureKind::Denied, false)] {
        let mut hand = Hand::unconnected();
        hand.event(Event::Ready { request: ASKED });
        hand.connect("run-1");
        let (channel, generation) = hand.subscriptions.remove(0);
        let result = Err(Failure::new(kind, "no"));
        hand.event(Event::Subscribed { channel, generation, result });
        if passes {
            hand.is_open(ASKED);
            hand.pass(SECOND);
            hand.confirm_subscriptions();
            assert!(matches!(hand.answer(ASKED), Answer::Done));
        } else {
            assert!(matches!(hand.answer(ASKED), Answer::Failed(Error::Denied { .. })));
        }
    }
}

// ---- questions

#[test]
fn a_question_about_a_hold_that_is_over_is_answered() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    hand.resubscribe();
    hand.renewed_with(Renewed::Gone);
    let lost = hand.verify(&cell);
    assert!(matches!(hand.answer(lost), Answer::Failed(Error::Lost { .. })));
    hand.event(Event::Verify { hold: 4_711, request: ASKED });
    assert!(matches!(hand.answer(ASKED), Answer::Failed(Error::Closed { .. })));
}

/// Its caller has read the clock a moment before the engine does.
#[test]
fn a_hold_that_its_caller_has_seen_end_is_not_confirmed() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, fixed(5 * SECOND), None);
    let verification = hand.verify(&cell);
    assert!(!cell.is_still_held(hand.now.plus(5 * SECOND)));
    hand.renewed_with(Renewed::Yes);
    let answer = hand.answer(verification);
    assert!(matches!(answer, Answer::Failed(Error::Lost { .. })), "{answer:?}");
}

#[test]
fn a_question_that_is_refused_for_good_ends_at_once() {
    let mut hand = Hand::new();
    hand.inspect();
    let (op, _) = hand.take("inspect");
    hand.refused(op, FailureKind::Denied);
    assert!(matches!(hand.answer(ASKED), Answer::Failed(Error::Denied { .. })));
    assert!(hand.engine.is_idle());
}

#[test]
fn a_question_that_needs_no_clock_does_not_end_with_it() {
    let mut hand = Hand::unconnected();
    hand.event(Event::PubSubUp);
    let clock = hand.link_up("run-1");
    hand.inspect();
    let (op, _) = hand.take("inspect");
    hand.refused(op, FailureKind::Busy);
    hand.refused(clock, FailureKind::Denied);
    hand.is_open(ASKED);
    hand.pass(50 * MS);
    hand.take("inspect");
}

/// What it met is told, whatever else the server answered since.
#[test]
fn a_verification_ends_with_what_its_own_renewal_met() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let verification = hand.verify(&cell);
    let (op, _) = hand.take("renew");
    hand.refused(op, FailureKind::Busy);
    hand.event(Event::Ping { request: ASKED });
    let (op, _) = hand.take("ping");
    hand.done(op, Body::Pong);
    hand.pass(SECOND);
    let Answer::Failed(Error::Unavailable { cause, .. }) = hand.answer(verification) else {
        panic!()
    };
    assert_eq!(cause, "no");
}

#[test]
fn a_question_that_nobody_asks_any_more_is_forgotten() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let request = hand.verify(&cell);
    hand.event(Event::Cancel { request });
    assert!(hand.engine.watchdog.is_idle());
    hand.inspect();
    hand.event(Event::Cancel { request: ASKED });
    assert!(hand.engine.queries.is_empty());
    hand.pass(2 * SECOND);
    hand.is_open(request);
    hand.is_open(ASKED);
}

#[test]
fn a_force_unlock_of_a_free_lock_has_freed_nobody() {
    let mut hand = Hand::new();
    let name = LockName::new("n").unwrap();
    hand.event(Event::ForceUnlock { name, from: None, request: ASKED });
    let (op, _) = hand.take("inspect");
    hand.done(op, Body::Inspect(KeyState::Absent));
    assert!(matches!(hand.answer(ASKED), Answer::Forced(false)));
}

/// What the server said tells more than that the next attempt could not even be sent.
#[test]
fn a_wait_ends_with_what_the_server_said_last() {
    let cases = [
        (FailureKind::Busy, FailureKind::Link, "first"),
        (FailureKind::Busy, FailureKind::OutOfMemory, "second"),
        (FailureKind::Link, FailureKind::Busy, "second"),
    ];
    for (first, second, told) in cases {
        let mut hand = Hand::new();
        let request = hand.ask(1, Wait::For(50 * MS));
        for (kind, words) in [(first, "first"), (second, "second")] {
            let (op, _) = hand.take("acquire");
            let outcome = Outcome::NotExecuted(Failure::new(kind, words));
            hand.event(Event::Replied { op, server: ServerId::ONLY, outcome });
            hand.pass(30 * MS);
        }
        let Answer::Failed(Error::Unavailable { cause, .. }) = hand.answer(request) else {
            panic!()
        };
        assert_eq!(cause, told, "{first:?}, then {second:?}");
    }
}

// ---- the server

#[test]
fn what_went_wrong_last_is_told_in_words() {
    let mut server = Server::default();
    assert_eq!(server.last_trouble(), "not connected");
    server.connected(Moment::ZERO, ServerInfo::default(), 1);
    assert_eq!(server.last_trouble(), "connected, but no answer came in time");
    server.failed(Moment(1), "LOADING");
    assert_eq!(server.last_trouble(), "LOADING");
    server.answered(Moment(2), MS);
    assert_eq!(server.last_trouble(), "connected, but no answer came in time");
    server.disconnected();
    assert_eq!(server.last_trouble(), "not connected");
}

/// A server's own clock says how old it is, but not older than the last answer of the one before.
#[test]
fn a_process_is_no_older_than_the_last_answer_of_the_one_before_it() {
    let mut servers = Servers::default();
    let process = |servers: &Servers| servers.links()[0].process.clone().expect("connected");
    let info = |run_id: &str| ServerInfo {
        run_id: run_id.to_owned(),
        uptime: 100 * SECOND,
        ..ServerInfo::default()
    };
    assert!(servers.links()[0].process.is_none());
    servers.connected(at(1), ServerId::ONLY, info("run-1"));
    assert_eq!(process(&servers).age(at(1)), 100 * SECOND);
    assert_eq!(process(&servers).age(at(6)), 105 * SECOND);
    servers.get_mut(ServerId::ONLY).answered(at(7), MS);
    servers.connected(at(10), ServerId::ONLY, info("run-1"));
    assert_eq!(process(&servers).age(at(10)), 100 * SECOND, "the same process");
    servers.connected(at(12), ServerId::ONLY, info("run-2"));
    assert_eq!(process(&servers).run_id, "run-2");
    assert_eq!(process(&servers).age(at(12)), 5 * SECOND);
    assert_eq!(process(&servers).age(at(13)), 6 * SECOND);
}

fn at(seconds: u32) -> Moment {
    Moment::ZERO.plus(seconds * SECOND)
}

/// One process under two addresses is one server: what is missing there was taken away.
#[test]
fn the_same_process_at_another_address_has_lost_nothing() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    hand.cut();
    let address = "elsewhere:6379".to_owned();
    let info = ServerInfo { run_id: "run-1".to_owned(), address, ..ServerInfo::default() };
    hand.event(Event::Up(ServerId::ONLY, info));
    let (op, _) = hand.take("time");
    hand.done(op, Body::Pong);
    hand.renewed_with(Renewed::Gone);
    assert_eq!(cell.loss(), Some(LossReason::Removed));
}

/// A release whose key has run out is not repeated: waiting would not help.
#[test]
fn a_release_without_an_answer_ends_when_its_key_has_run_out() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let unlock = hand.release(&cell, level);
    let (op, _) = hand.take("release");
    hand.pass(LEASE + 2 * SECOND);
    hand.is_open(unlock);
    hand.unknown(op);
    let answer = hand.answer(unlock);
    assert!(matches!(answer, Answer::Failed(Error::Unavailable { .. })), "{answer:?}");
    hand.nothing_sent();
}

// ---- the end of the client

#[test]
fn at_the_end_everything_that_waits_is_answered_and_every_channel_given_up() {
    let mut hand = Hand::new();
    let waiter = hand.sleeper(1);
    assert!(hand.left().is_empty(), "an attempt that was refused is at no server");
    let level = hand.want_name("m", 2, watched(), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(level);
    let unlock = hand.release(&cell, level);
    hand.take("release");
    hand.event(Event::Ping { request: ASKED });
    let (ping, _) = hand.take("ping");
    let end = RequestId(901);
    hand.event(Event::Shutdown { until: hand.now.plus(SECOND), request: Some(end) });
    for request in [waiter, ASKED] {
        let answer = hand.answer(request);
        assert!(matches!(answer, Answer::Failed(Error::Closed { .. })), "{answer:?}");
    }
    // The waiter leaves the line.
    hand.take("release");
    assert_eq!(hand.unsubscribed, [Arc::<str>::from(CHANNEL)]);
    hand.done(ping, Body::Pong);
    hand.is_open(ASKED);
    hand.is_open(unlock);
    hand.pass(SECOND);
    assert!(matches!(hand.answer(unlock), Answer::Failed(Error::Closed { .. })));
    assert_eq!(hand.fates(end).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["m"]);
    assert!(hand.finished);
    // The engine is at its end: whatever comes now has no answer and no effect.
    let late = hand.ask(1, Wait::Forever);
    hand.is_open(late);
    hand.nothing_sent();
}

/// While somebody has a guard of it, a lost hold is remembered. No server has it.
#[test]
fn a_lost_hold_is_nothing_to_be_released() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    assert_eq!(hand.left(), ["n"]);
    hand.resubscribe();
    hand.renewed_with(Renewed::Gone);
    assert_eq!((cell.loss(), hand.left().len()), (Some(LossReason::Removed), 0));
}
