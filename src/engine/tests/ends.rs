//! Ends that nobody announces: of a hold by `max_hold`, and of a wait that no answer comes in time
//! for.

use std::sync::Arc;
use std::time::Duration;

use crate::base::cell::HoldCell;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::share::Share;

use super::Hand;
use super::fixed;
use super::freed;
use super::grant;
use super::handed;
use super::held;
use super::watched;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

impl Hand {
    /// For so long each command is answered after a round trip, or not at all; says how many there
    /// were.
    fn far(
        &mut self,
        round_trip: Duration,
        time: Duration,
        mut answer: impl FnMut(&Command) -> Option<Body>,
    ) -> usize {
        let end = self.now.plus(time);
        let mut commands = 0;
        while self.now < end {
            let sent = std::mem::take(&mut self.sent);
            commands += sent.len();
            self.pass(if sent.is_empty() { MS } else { round_trip });
            for (op, command) in sent {
                match answer(&command) {
                    Some(body) => self.done(op, body),
                    None => self.unknown(op),
                }
            }
        }
        commands
    }

    fn is_unavailable(&mut self, request: RequestId) {
        let answer = self.answer(request);
        assert!(matches!(answer, Answer::Failed(Error::Unavailable { .. })), "{answer:?}");
    }
}

#[test]
fn a_cancelled_level_leaves_no_max_hold_behind() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let inner = hand.re_enter_for(1, Some(5 * SECOND));
    hand.event(Event::Cancel { request: inner });
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::CountSet));
    hand.live(20 * SECOND);
    assert_eq!(cell.loss(), None);
    assert!(cell.is_held(hand.now));
}

#[test]
fn nor_does_one_that_was_withdrawn() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let inner = hand.re_enter_for(1, Some(8 * SECOND));
    hand.pass(5 * SECOND);
    assert_eq!(hand.withdrawals, [inner]);
    hand.event(Event::Withdrawn { request: inner });
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::CountSet));
    hand.live(20 * SECOND);
    assert_eq!(cell.loss(), None);
}

/// What others asked for, and what was given up after it had been held, counts as before.
#[test]
fn a_cancelled_level_takes_no_end_of_others_along() {
    for given_up in [false, true] {
        let mut hand = Hand::new();
        let (_, cell) = hand.taken(1, watched(), None);
        let kept = hand.re_enter_for(1, Some(15 * SECOND));
        hand.event(Event::PickedUp { request: kept });
        if given_up {
            hand.event(Event::Release { hold: cell.id, level: kept, request: None });
            let (op, _) = hand.take("release");
            hand.done(op, Body::Release(Released::CountSet));
        }
        let inner = hand.re_enter_for(1, Some(5 * SECOND));
        hand.event(Event::Cancel { request: inner });
        let (op, _) = hand.take("release");
        hand.done(op, Body::Release(Released::CountSet));
        hand.live(10 * SECOND);
        assert_eq!(cell.loss(), None, "{given_up}");
        hand.live(6 * SECOND);
        assert_eq!(cell.loss(), Some(LossReason::MaxHold), "{given_up}");
    }
}

/// After a second, where its lease is an hour.
fn cut_short_by_a_nested_level() -> (Hand, Arc<HoldCell>) {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, fixed(3_600 * SECOND), None);
    let inner = hand.re_enter_for(1, Some(SECOND));
    hand.event(Event::PickedUp { request: inner });
    (hand, cell)
}

/// A caller that looks at the same moment has not said why yet.
#[test]
fn a_max_hold_that_a_caller_is_about_to_see_is_none_the_less_one() {
    let (mut hand, cell) = cut_short_by_a_nested_level();
    cell.begin_to_lose();
    hand.pass(2 * SECOND);
    assert_eq!(cell.loss(), Some(LossReason::MaxHold));
    assert_eq!(hand.labels(), ["release"], "the key's lease is an hour");
}

/// The lease of the outer level was set before anybody knew of the limit.
#[test]
fn a_key_does_not_long_outlive_the_max_hold_of_a_nested_level() {
    let (mut hand, cell) = cut_short_by_a_nested_level();
    hand.ask(2, Wait::Forever);
    hand.pass(2 * SECOND);
    assert_eq!(cell.loss(), Some(LossReason::MaxHold));
    assert_eq!(hand.labels(), ["release", "acquire"]);
    // The acquire was there first, and found the hold that is no more.
    let field = format!("11111111-2222-4333-8444-555555555555:{}", cell.id);
    let (op, _) = hand.sent.remove(1);
    hand.done(
        op,
        Body::Acquire(Acquired::Held { pttl: 3_598_000, holder: field, place: None, others: None }),
    );
    let forgotten =
        hand.reports.iter().any(|report| matches!(report, Report::ReleasedAgain { .. }));
    assert!(!forgotten, "no release was forgotten: {:?}", hand.reports);
}

#[test]
fn grants_that_always_come_too_late_end_the_wait_at_the_outage_limit() {
    let mut hand = Hand::new();
    let request = hand.want(1, fixed(10 * MS), Wait::Forever, None);
    let commands = hand.far(9 * MS, 120 * SECOND, |command| match command {
        Command::Acquire { .. } => Some(grant(1)),
        Command::Release { .. } => Some(freed()),
        _ => Some(Body::Pong),
    });
    assert!(commands < 1_000, "{commands} commands");
    hand.is_unavailable(request);
}

#[test]
fn attempts_that_max_hold_cuts_short_end_the_wait_at_the_outage_limit() {
    let mut hand = Hand::new();
    let request = hand.want(1, watched(), Wait::Forever, Some(50 * MS));
    hand.far(30 * MS, 300 * SECOND, |command| match command {
        Command::Acquire { .. } => None,
        Command::Release { .. } => Some(freed()),
        _ => Some(Body::Pong),
    });
    hand.is_unavailable(request);
}

fn granted(command: &Command) -> Option<Body> {
    Some(match command {
        Command::Acquire { .. } => grant(1),
        Command::Release { .. } => freed(),
        Command::HandOff { .. } => handed(),
        _ => Body::Pong,
    })
}

#[test]
fn who_is_always_answered_too_late_holds_up_nobody_and_does_not_wait_for_ever() {
    let mut hand = Hand::new();
    let hopeless = hand.want(1, fixed(10 * MS), Wait::Forever, None);
    for _ in 0..100 {
        let next = hand.ask(2, Wait::For(SECOND));
        hand.far(9 * MS, 400 * MS, granted);
        let cell = hand.granted(next);
        hand.event(Event::PickedUp { request: next });
        hand.release(&cell, next);
        hand.far(9 * MS, 100 * MS, granted);
    }
    hand.is_unavailable(hopeless);
}

#[test]
fn whose_max_hold_cuts_the_attempts_holds_up_nobody() {
    let mut hand = Hand::new();
    hand.want(1, watched(), Wait::Forever, Some(50 * MS));
    let next = hand.ask(2, Wait::For(SECOND));
    hand.far(30 * MS, SECOND / 2, |command| match command {
        Command::Acquire { lease, .. } if lease.duration() < 50 * MS => None,
        other => granted(other),
    });
    hand.granted(next);
}

#[test]
fn an_answer_in_time_ends_what_was_late_before() {
    let mut hand = Hand::new();
    let request = hand.want(1, fixed(10 * MS), Wait::Forever, None);
    let mut attempts = 0;
    hand.far(9 * MS, 60 * SECOND, |command| match command {
        Command::Acquire { .. } => {
            attempts += 1;
            Some(if attempts == 1 { grant(1) } else { held(1_000) })
        }
        other => granted(other),
    });
    assert!(attempts > 2);
    hand.is_open(request);
}

#[test]
fn the_first_late_answer_costs_nobody_its_place() {
    let mut hand = Hand::new();
    let first = hand.want(1, fixed(SECOND), Wait::Forever, None);
    hand.ask(2, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, Body::Acquire(Acquired::Late));
    assert_eq!(hand.labels(), ["release", "acquire"]);
    let (op, _) = hand.sent.remove(1);
    hand.done(op, grant(1));
    hand.granted(first);
}

#[test]
fn a_re_entry_that_is_always_late_ends_at_the_outage_limit() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let inner = hand.want(1, fixed(10 * MS), Wait::Forever, None);
    hand.far(30 * MS, 120 * SECOND, |command| match command {
        Command::Acquire { .. } => Some(Body::Acquire(Acquired::Late)),
        Command::Renew { holds, .. } => Some(Body::Renew(Some(vec![Renewed::Yes; holds.len()]))),
        _ => Some(Body::Pong),
    });
    assert!(cell.is_held(hand.now));
    hand.is_unavailable(inner);
}

#[test]
fn a_lost_hold_without_guards_is_no_error_to_its_owner() {
    let mut hand = Hand::new();
    let (level, cell) = hand.taken(1, watched(), None);
    let inner = hand.re_enter(1);
    hand.event(Event::PickedUp { request: inner });
    hand.event(Event::Release { hold: cell.id, level: inner, request: None });
    let (count, _) = hand.take("release");
    let asked = hand.verify(&cell);
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Gone])));
    assert!(matches!(hand.answer(asked), Answer::Failed(Error::Lost { .. })));
    hand.event(Event::Release { hold: cell.id, level, request: None });
    let again = hand.ask(1, Wait::Forever);
    hand.done(count, Body::Release(Released::Gone));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(9));
    hand.granted(again);
}

#[test]
fn a_refused_re_entry_leaves_the_count_as_it_was() {
    let mut hand = Hand::new();
    hand.taken(1, watched(), None);
    let inner = hand.want(1, watched(), Wait::Forever, Some(100 * MS));
    let (op, _) = hand.take("acquire");
    hand.pass(200 * MS);
    hand.done(op, grant(0));
    let answer = hand.answer(inner);
    assert!(matches!(answer, Answer::Failed(Error::InvalidOption { .. })), "{answer:?}");
    let (_, command) = hand.take("release");
    assert!(matches!(command, Command::Release { share: Share::ONE, .. }), "{command:?}");
}

#[test]
fn losses_by_shutdown_are_counted() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let until = hand.now.plus(SECOND);
    hand.event(Event::Shutdown { until, request: None });
    assert_eq!(cell.loss(), Some(LossReason::ClientShutdown));
    assert_eq!(hand.counters.snapshot().losses, 1);
}
