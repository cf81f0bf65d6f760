//! What an absent key means depends on what is known of the commands before: one that may have been
//! executed explains it, one that was surely not executed does not. And whose attempt a waiter may
//! take over.

use std::time::Duration;

use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::lease::Lease;
use crate::base::name::LockName;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Body;
use crate::kinds::reply::Forced;
use crate::kinds::reply::KeyState;
use crate::kinds::reply::Released;
use crate::kinds::share::Share;

use super::Hand;
use super::OTHER;
use super::corners::lease;
use super::field;
use super::fixed;
use super::freed;
use super::grant;
use super::handed;
use super::watched;

const SECOND: Duration = Duration::from_secs(1);
const GONE: Body = Body::Release(Released::Gone);

/// How a command ended that has no answer of its script.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Failed {
    /// It was surely not executed, for a reason that passes.
    NotExecuted,
    /// Nobody knows.
    Unknown,
}

use Failed::NotExecuted;
use Failed::Unknown;

/// What an absent key may be preceded by, and whether one of the commands explains it.
const TRIES: [(&[Failed], bool); 7] = [
    (&[], false),
    (&[NotExecuted], false),
    (&[NotExecuted, NotExecuted], false),
    (&[Unknown], true),
    (&[NotExecuted, Unknown], true),
    (&[Unknown, NotExecuted], true),
    (&[Unknown, Unknown, NotExecuted, NotExecuted], true),
];

impl Hand {
    fn fails(&mut self, op: OpId, how: Failed) {
        match how {
            NotExecuted => self.refused(op, FailureKind::Busy),
            Unknown => self.unknown(op),
        }
    }

    /// Long enough for any repetition.
    fn repeats(&mut self, label: &str) -> (OpId, Command) {
        self.pass(SECOND);
        self.take(label)
    }

    fn reports_a_loss(&self) -> bool {
        self.reports.iter().any(|report| matches!(report, Report::Lost { .. }))
    }
}

fn is_lost(answer: &Answer) -> bool {
    matches!(answer, Answer::Failed(Error::Lost { reason: LossReason::Removed, .. }))
}

#[test]
fn a_release_that_finds_nothing_is_done_only_if_an_earlier_try_may_have_done_it() {
    for (tries, done) in TRIES {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        let unlock = hand.release(&cell, level);
        let (mut op, first) = hand.take("release");
        for how in tries {
            hand.fails(op, *how);
            hand.is_open(unlock);
            let (next, again) = hand.repeats("release");
            assert_eq!(first, again, "{tries:?}");
            op = next;
        }
        hand.done(op, GONE);
        let answer = hand.answer(unlock);
        assert_eq!(matches!(answer, Answer::Done), done, "{tries:?}: {answer:?}");
        assert_eq!(is_lost(&answer), !done, "{tries:?}: {answer:?}");
        assert_eq!(hand.reports_a_loss(), !done, "{tries:?}");
        assert_eq!(hand.counters.snapshot().losses, u64::from(!done), "{tries:?}");
        assert!(hand.engine.is_idle());
    }
}

/// The same of a guard that was dropped: nobody waits, and a loss is reported and counted.
#[test]
fn a_dropped_guard_whose_key_is_gone_is_a_loss_unless_a_try_may_have_done_it() {
    for (tries, done) in TRIES {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        hand.event(Event::Release { hold: cell.id, level, request: None });
        let (mut op, _) = hand.take("release");
        for how in tries {
            hand.fails(op, *how);
            (op, _) = hand.repeats("release");
        }
        hand.done(op, GONE);
        assert_eq!(hand.reports_a_loss(), !done, "{tries:?}");
        assert_eq!(hand.counters.snapshot().losses, u64::from(!done), "{tries:?}");
        assert_eq!(hand.counters.snapshot().failed_drop_releases, 0, "{tries:?}");
        assert!(hand.engine.is_idle());
    }
}

/// A hand-off that was refused, for a reason that passes or stays, has released nothing.
#[test]
fn a_release_after_a_hand_off_is_explained_by_an_unknown_one_only() {
    let ends = [
        (Some(FailureKind::Busy), false),
        (Some(FailureKind::OutOfMemory), false),
        (Some(FailureKind::Denied), false),
        (Some(FailureKind::Refused), false),
        (None, true),
    ];
    for (refused, done) in ends {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        let waits = hand.ask(2, Wait::Forever);
        let unlock = hand.release(&cell, level);
        let (op, _) = hand.take("hand_off");
        match refused {
            Some(kind) => hand.refused(op, kind),
            None => hand.unknown(op),
        }
        hand.is_open(waits);
        let ours = format!(":{}", cell.id);
        let release = hand.sent.iter().find(|(_, command)| field(command).ends_with(&ours));
        let (op, command) = release.cloned().expect("the hold is released by itself");
        assert!(matches!(command, Command::Release { share: Share::NOTHING, .. }));
        // What was surely not executed leaves neither an id that might be granted nor a hold.
        assert_eq!(hand.engine.holds.len(), 1, "{refused:?}: the one that is released");
        assert_eq!(hand.counters.snapshot().clean_ups, u64::from(refused.is_none()), "{refused:?}");
        hand.done(op, GONE);
        let answer = hand.answer(unlock);
        assert_eq!(matches!(answer, Answer::Done), done, "{refused:?}: {answer:?}");
        assert_eq!(is_lost(&answer), !done, "{refused:?}: {answer:?}");
    }
}

/// Releases that went in one script: what is known of the script is known of each.
#[test]
fn a_release_together_with_others_is_explained_by_an_unknown_one_only() {
    for (how, lost) in [(NotExecuted, 2), (Unknown, 0)] {
        let mut hand = Hand::new();
        let holds: Vec<_> = (0..6)
            .map(|number| {
                let name = format!("n{number}");
                let level = hand.want_name(&name, number, watched(), Wait::Forever, None);
                let (op, _) = hand.take("acquire");
                hand.done(op, grant(1));
                (level, hand.granted(level))
            })
            .collect();
        for (level, cell) in holds {
            hand.event(Event::Release { hold: cell.id, level, request: None });
        }
        for (op, _) in std::mem::take(&mut hand.sent) {
            hand.done(op, freed());
        }
        let (op, _) = hand.take("release_many");
        hand.fails(op, how);
        hand.pass(SECOND);
        assert_eq!(hand.labels(), ["release", "release"]);
        for (op, _) in std::mem::take(&mut hand.sent) {
            hand.done(op, GONE);
        }
        assert_eq!(hand.counters.snapshot().losses, lost, "{how:?}");
        assert!(hand.engine.is_idle());
    }
}

/// An attempt that was not executed is repeated with the same id; after an unknown one the id is
/// dead.
#[test]
fn only_an_unknown_attempt_costs_its_id() {
    for (how, same) in [(NotExecuted, true), (Unknown, false)] {
        let mut hand = Hand::new();
        let request = hand.ask(1, Wait::Forever);
        let (op, first) = hand.take("acquire");
        hand.fails(op, how);
        let cleaned = std::mem::take(&mut hand.sent);
        assert_eq!(cleaned.is_empty(), same, "{how:?}: {cleaned:?}");
        let (op, second) = hand.repeats("acquire");
        assert_eq!(field(&first) == field(&second), same, "{how:?}");
        hand.done(op, grant(1));
        hand.granted(request);
        assert_eq!(hand.counters.snapshot().clean_ups, u64::from(!same), "{how:?}");
    }
}

/// The same of an attempt whose waiter has gone: there is nothing to undo if it was not executed.
#[test]
fn an_attempt_of_nobody_that_was_not_executed_leaves_nothing() {
    for (how, labels) in [(NotExecuted, &[][..]), (Unknown, &["release"])] {
        let mut hand = Hand::new();
        let request = hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.event(Event::Cancel { request });
        hand.fails(op, how);
        assert_eq!(hand.labels(), labels, "{how:?}");
        assert_eq!(hand.engine.holds.len(), 0, "{how:?}");
    }
}

/// A level that nobody wants any more is taken back on the server only if it may be there.
#[test]
fn a_level_of_nobody_is_taken_back_only_if_it_may_have_been_set() {
    for (how, labels) in [(NotExecuted, &[][..]), (Unknown, &["release"])] {
        let mut hand = Hand::new();
        let (_, cell) = hand.hold(1);
        let inner = hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.event(Event::Cancel { request: inner });
        hand.fails(op, how);
        hand.pass(SECOND / 2);
        assert_eq!(hand.labels(), labels, "{how:?}");
        assert_eq!(cell.count(), 1);
    }
}

/// A smaller count that finds the key gone was not the one to take it away, whatever came before.
#[test]
fn a_smaller_count_never_explains_an_absent_key() {
    for (tries, _) in TRIES {
        let mut hand = Hand::new();
        let (_, cell) = hand.hold(1);
        let inner = hand.re_enter(1);
        let unlock = hand.release(&cell, inner);
        let (mut op, _) = hand.take("release");
        for how in tries {
            hand.fails(op, *how);
            (op, _) = hand.repeats("release");
        }
        hand.done(op, GONE);
        let answer = hand.answer(unlock);
        assert!(is_lost(&answer), "{tries:?}: {answer:?}");
        assert_eq!(cell.loss(), Some(LossReason::Removed));
    }
}

/// A force-unlock that finds its target gone has freed it only if an earlier try may have.
#[test]
fn a_force_unlock_is_explained_by_an_unknown_one_only() {
    for (tries, forced) in [
        (&[][..], false),
        (&[NotExecuted], false),
        (&[Unknown], true),
        (&[NotExecuted, Unknown], true),
        (&[Unknown, NotExecuted], true),
    ] {
        for whoever in [true, false] {
            let mut hand = Hand::new();
            let (request, name) = (RequestId(900), LockName::new("n").unwrap());
            let from = (!whoever).then(|| OTHER.to_owned());
            hand.event(Event::ForceUnlock { name, from, request });
            if whoever {
                // That the question was unanswered at first says nothing about the answer.
                let (op, _) = hand.take("inspect");
                hand.unknown(op);
                hand.pass(SECOND / 20);
                let (op, _) = hand.take("inspect");
                let (field, count) = (OTHER.to_owned(), "1".to_owned());
                hand.done(
                    op,
                    Body::Inspect(KeyState::Hash { pttl: 20_000, fields: 1, field, count }),
                );
            }
            let (mut op, _) = hand.take("force_release");
            for how in tries {
                hand.fails(op, *how);
                hand.pass(SECOND / 10);
                (op, _) = hand.take("force_release");
            }
            hand.done(op, Body::Force(Forced::Gone));
            let answer = hand.answer(request);
            assert!(
                matches!(answer, Answer::Forced(told) if told == forced),
                "{tries:?}: {answer:?}"
            );
        }
    }
}

// ---- taking an attempt over

/// An attempt whose waiter has gone goes to the next one of its owner, if that one wants the same.
#[test]
fn an_attempt_is_taken_over_by_who_wants_the_same() {
    let (thirty, sixty) = (Lease::Watched(lease(30)), Lease::Watched(lease(60)));
    let (short, long) = (Some(10 * SECOND), Some(20 * SECOND));
    let cases = [
        ((1, watched(), None), (1, watched(), None), true),
        ((1, thirty, short), (1, thirty, short), true),
        ((1, fixed(30 * SECOND), long), (1, fixed(30 * SECOND), long), true),
        ((1, watched(), None), (2, watched(), None), false),
        ((1, thirty, None), (1, sixty, None), false),
        ((1, thirty, None), (1, fixed(30 * SECOND), None), false),
        ((1, thirty, short), (1, thirty, long), false),
        ((1, thirty, None), (1, thirty, short), false),
        ((1, thirty, short), (1, thirty, None), false),
    ];
    for (first, second, taken_over) in cases {
        let mut hand = Hand::new();
        let one = hand.want(first.0, first.1, Wait::Forever, first.2);
        let (op, _) = hand.take("acquire");
        let other = hand.want(second.0, second.1, Wait::Forever, second.2);
        hand.event(Event::Cancel { request: one });
        hand.done(op, grant(7));
        if taken_over {
            assert_eq!(hand.granted(other).token(), 7, "{first:?} {second:?}");
            hand.nothing_sent();
        } else {
            // Granted to nobody, and handed to the one who wants something else.
            hand.is_open(other);
            let (op, _) = hand.take("hand_off");
            hand.done(op, handed());
            let cell = hand.granted(other);
            let until = cell.valid_until().since(hand.now);
            let most = second.2.unwrap_or(60 * SECOND).min(second.1.length().duration());
            assert!(until <= most && until > most / 2, "{first:?} {second:?}: {until:?}");
        }
    }
}

/// The place in the line belongs to the role: also a waiter that wants another lease goes on with the
/// hold.
#[test]
fn a_refused_attempt_of_nobody_is_repeated_for_the_next_waiter() {
    let mut hand = Hand::new();
    let one = hand.ask(1, Wait::Forever);
    let (op, first) = hand.take("acquire");
    hand.refused(op, FailureKind::Busy);
    let other = hand.want(1, fixed(30 * SECOND), Wait::Forever, None);
    hand.event(Event::Cancel { request: one });
    let (op, second) = hand.repeats("acquire");
    assert_eq!(field(&first), field(&second));
    assert!(matches!(second, Command::Acquire { lease, .. } if lease.duration() == 30 * SECOND));
    hand.done(op, grant(1));
    hand.granted(other);
}
