//! The waiting line: tickets, reservations, and what is out of reach while a slot is being moved.

use std::time::Duration;

use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Report;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::command::WaitMode;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;

use super::Hand;
use super::OTHER;
use super::field;
use super::freed;
use super::grant;
use super::held;
use super::held_before;

fn wait_of(command: &Command) -> &WaitMode {
    match command {
        Command::Acquire { wait, .. } => wait,
        other => panic!("{other:?}"),
    }
}

fn names_line(command: &Command) -> bool {
    match command {
        Command::Acquire { line, .. } => *line,
        Command::Release { announce, .. } | Command::HandOff { announce, .. } => announce.line,
        other => panic!("{other:?}"),
    }
}

fn is_again(command: &Command, wanted: u64) -> bool {
    matches!(wait_of(command), WaitMode::Again { ticket, .. } if *ticket == wanted)
}

/// The waiter that sleeps hears `0` and tries: the attempt and its field.
fn try_after_0(hand: &mut Hand) -> (OpId, Command, String) {
    hand.message();
    let (op, command) = hand.take("acquire");
    let own = field(&command);
    (op, command, own)
}

#[test]
fn a_client_keeps_its_ticket_until_it_is_granted() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, command) = hand.take("acquire");
    assert_eq!(*wait_of(&command), WaitMode::First { hears: false });
    hand.done(op, held(20_000));
    hand.confirm_subscriptions();
    let (op, command) = hand.take("acquire");
    assert!(matches!(wait_of(&command), WaitMode::Again { ticket: 7, hears: true, .. }));
    hand.done(op, held(20_000));
    let (op, command, _) = try_after_0(&mut hand);
    assert!(is_again(&command, 7), "{command:?}");
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    hand.release(&cell, request);
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    // It is subscribed still.
    hand.ask(2, Wait::Forever);
    let (_, command) = hand.take("acquire");
    assert_eq!(*wait_of(&command), WaitMode::First { hears: true });
}

#[test]
fn a_try_lock_stands_in_no_line() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Once);
    let (op, command) = hand.take("acquire");
    assert_eq!(*wait_of(&command), WaitMode::Try);
    hand.done(
        op,
        Body::Acquire(Acquired::Held {
            pttl: 9,
            holder: OTHER.to_owned(),
            place: None,
            others: None,
        }),
    );
    assert!(matches!(hand.answer(request), Answer::NotGranted));
    hand.nothing_sent();
    assert!(hand.engine.is_idle());
}

/// The reservation may be announced before the answer to the attempt that it is about.
#[test]
fn the_announcement_of_its_own_field_has_a_waiter_try_also_during_an_attempt() {
    for during_attempt in [false, true] {
        let mut hand = Hand::new();
        let request = hand.sleeper(1);
        let (op, _, own) = try_after_0(&mut hand);
        if during_attempt {
            hand.reserved(&own);
            hand.nothing_sent();
            hand.done(op, held(20_000));
        } else {
            hand.done(op, held(20_000));
            hand.nothing_sent();
            hand.reserved(&own);
        }
        let (op, command) = hand.take("acquire");
        assert_eq!(field(&command), own);
        hand.done(op, grant(2));
        hand.granted(request);
    }
}

#[test]
fn only_the_first_eight_try_when_a_reservation_of_another_is_over() {
    for (rank, tries) in [(0, true), (7, true), (8, true), (9, false)] {
        let mut hand = Hand::new();
        hand.sleeper(1);
        let (op, ..) = try_after_0(&mut hand);
        hand.done(op, held_before(20_000, rank));
        hand.reserved(OTHER);
        // The one for which it was reserved stands in line no more.
        let steps = rank.saturating_sub(1);
        hand.pass(Duration::from_millis(1_500 + 2 * steps - 1));
        hand.nothing_sent();
        hand.pass(Duration::from_millis(1));
        assert_eq!(!hand.labels().is_empty(), tries, "{rank}");
    }
}

#[test]
fn an_announcement_does_not_postpone_the_fallback() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    for _ in 0..5 {
        hand.pass(Duration::from_millis(1_400));
        if !hand.sent.is_empty() {
            break;
        }
        hand.reserved(OTHER);
    }
    hand.take("acquire");
}

#[test]
fn who_misses_three_reservations_in_a_row_says_so() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    let (op, _, own) = try_after_0(&mut hand);
    hand.done(op, held(20_000));
    let missed = |report: &Report| matches!(report, Report::ReservationsMissed { in_a_row: 3, .. });
    for number in 1..=4 {
        hand.reserved(&own);
        let (op, _) = hand.take("acquire");
        hand.done(op, held(20_000));
        let said = hand.reports.iter().filter(|report| missed(report)).count();
        assert_eq!(said, usize::from(number >= 3), "{number}");
    }
}

/// The server has lost the hold, and its place in the line from before was still there.
#[test]
fn the_announcement_of_a_hold_that_is_held_has_it_verified() {
    let mut hand = Hand::new();
    let request = hand.sleeper(1);
    let (op, _, own) = try_after_0(&mut hand);
    hand.done(op, grant(2));
    hand.granted(request);
    hand.reserved(&own);
    hand.take("renew");
}

#[test]
fn what_is_no_field_and_not_0_or_1_says_nothing() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    for payload in ["", "2", "00", "01", "later words", "ü"] {
        hand.say(payload);
        hand.nothing_sent();
    }
    hand.say(&format!("later {OTHER} 0"));
    hand.take("acquire");
}

/// The place belongs to the role of the contender.
#[test]
fn when_a_contender_gives_up_the_next_goes_on_with_its_hold_and_ticket() {
    let mut hand = Hand::new();
    let first = hand.sleeper(1);
    let (op, _, own) = try_after_0(&mut hand);
    hand.done(op, held(20_000));
    let next = hand.ask(2, Wait::Forever);
    hand.event(Event::Cancel { request: first });
    hand.nothing_sent();
    hand.reserved(&own);
    let (op, command) = hand.take("acquire");
    assert!(field(&command) == own && is_again(&command, 7), "{command:?}");
    hand.done(op, grant(3));
    hand.granted(next);
}

/// Its own attempt on the wire was for another lease perhaps: it is given up if it is granted.
#[test]
fn a_contender_that_gives_up_during_its_attempt_leaves_its_place_to_the_next() {
    let mut hand = Hand::new();
    let first = hand.sleeper(1);
    let next = hand.ask(2, Wait::Forever);
    let (op, _, own) = try_after_0(&mut hand);
    hand.event(Event::Cancel { request: first });
    hand.done(op, held(20_000));
    hand.reserved(&own);
    let (op, command) = hand.take("acquire");
    assert_eq!(field(&command), own);
    hand.done(op, grant(3));
    hand.granted(next);
}

#[test]
fn the_last_waiter_leaves_the_line_until_that_is_answered() {
    for during_attempt in [false, true] {
        let mut hand = Hand::new();
        let request = hand.sleeper(1);
        let (op, _, own) = try_after_0(&mut hand);
        if !during_attempt {
            hand.done(op, held(20_000));
        }
        hand.event(Event::Cancel { request });
        if during_attempt {
            hand.nothing_sent();
            hand.done(op, held(20_000));
        }
        let (op, command) = hand.take("release");
        assert_eq!(field(&command), own);
        hand.unknown(op);
        hand.pass(Duration::from_millis(100));
        let (op, command) = hand.take("release");
        assert_eq!(field(&command), own);
        hand.done(op, Body::Release(Released::Foreign));
        // Whoever comes next has no ticket.
        hand.ask(2, Wait::Forever);
        let (_, command) = hand.take("acquire");
        assert_eq!(*wait_of(&command), WaitMode::First { hears: true });
        assert_ne!(field(&command), own);
    }
}

#[test]
fn after_an_unknown_attempt_the_ticket_goes_on_with_another_hold() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    let (op, _, own) = try_after_0(&mut hand);
    hand.unknown(op);
    let (op, command) = hand.take("release");
    assert_eq!(field(&command), own);
    hand.done(op, Body::Release(Released::Foreign));
    hand.pass(Duration::from_millis(100));
    let commands = std::mem::take(&mut hand.sent);
    let again = commands.iter().find(|(_, command)| command.label() == "acquire").unwrap();
    assert!(is_again(&again.1, 7) && field(&again.1) != own, "{again:?}");
}

// ---- a slot that is being moved

#[test]
fn a_release_whose_line_is_out_of_reach_names_the_lock_alone_and_owes_one_with_the_line() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let release = hand.release(&cell, level);
    let (op, command) = hand.take("release");
    assert!(names_line(&command));
    hand.refused(op, FailureKind::SlotMoving);
    let (op, command) = hand.take("release");
    assert!(!names_line(&command));
    hand.done(op, freed());
    assert!(matches!(hand.answer(release), Answer::Done));
    let (op, command) = hand.take("release");
    assert!(names_line(&command) && field(&command).ends_with(&cell.id.to_string()));
    hand.refused(op, FailureKind::SlotMoving);
    // What is owed keeps nobody from trying.
    let (op, command) = hand.take("release");
    assert!(!names_line(&command));
    hand.done(op, Body::Release(Released::Gone));
    let (level, cell) = hand.hold(2);
    hand.pass(Duration::from_millis(100));
    let (op, command) = hand.take("release");
    assert!(names_line(&command));
    hand.done(op, Body::Release(Released::Foreign));
    hand.release(&cell, level);
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    hand.pass(Duration::from_secs(10));
    hand.nothing_sent();
    assert!(hand.engine.is_idle());
}

#[test]
fn what_is_reserved_is_picked_up_also_while_the_line_is_out_of_reach() {
    let mut hand = Hand::new();
    let request = hand.sleeper(1);
    let (op, command, _) = try_after_0(&mut hand);
    assert!(names_line(&command));
    hand.refused(op, FailureKind::SlotMoving);
    let (op, command) = hand.take("acquire");
    assert!(!names_line(&command) && is_again(&command, 7));
    hand.done(op, grant(2));
    hand.granted(request);
}

#[test]
fn what_is_not_reserved_waits_for_the_slot_unless_it_is_announced() {
    let mut hand = Hand::new();
    let request = hand.sleeper(1);
    let (op, _, own) = try_after_0(&mut hand);
    hand.refused(op, FailureKind::SlotMoving);
    let (op, command) = hand.take("acquire");
    assert!(!names_line(&command));
    hand.done(op, Body::Acquire(Acquired::NotOwn));
    hand.nothing_sent();
    hand.reserved(&own);
    let (op, command) = hand.take("acquire");
    assert!(names_line(&command) && field(&command) == own);
    hand.done(op, grant(2));
    hand.granted(request);
}

#[test]
fn a_hand_off_whose_line_is_out_of_reach_becomes_a_release_of_the_lock_alone() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let next = hand.ask(2, Wait::Forever);
    hand.release(&cell, level);
    let (op, _) = hand.take("hand_off");
    hand.refused(op, FailureKind::SlotMoving);
    let (op, command) = hand.take("release");
    assert!(!names_line(&command));
    hand.done(op, freed());
    let labels = hand.labels();
    assert_eq!(labels, ["release", "acquire"], "what is owed, and the next attempt");
    let (op, _) = hand.sent.remove(1);
    hand.done(op, grant(2));
    hand.granted(next);
}
