//! Releases that nobody waits for, one by one and together.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::base::cell::HoldCell;
use crate::base::error::LossReason;
use crate::base::name::LockName;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::command::ReleaseItem;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;

use super::Hand;
use super::LEASE;
use super::field;
use super::freed;
use super::grant;
use super::handed;
use super::watched;

/// Scripts that are sent without waiting for those before.
const FIRST: usize = 4;

struct Held {
    level: RequestId,
    cell: Arc<HoldCell>,
}

impl Hand {
    /// One hold on each of so many names.
    fn holds(&mut self, count: usize) -> Vec<Held> {
        let take = |number: usize| {
            let level = self.ask_for(&format!("n{number}"));
            let (op, _) = self.take("acquire");
            self.done_by(op, grant(1));
            Held { level, cell: self.granted(level) }
        };
        (0..count).map(take).collect()
    }

    fn drop_guards(&mut self, holds: &[Held]) {
        for held in holds {
            self.event(Event::Release { hold: held.cell.id, level: held.level, request: None });
        }
    }

    /// `holds` dropped, the first on their way one by one: the others' script.
    fn dropped(&mut self, holds: &[Held]) -> (OpId, Vec<ReleaseItem>) {
        self.drop_guards(holds);
        assert_eq!(self.labels(), ["release"; FIRST]);
        for (op, _) in std::mem::take(&mut self.sent) {
            self.done(op, freed());
        }
        match self.take("release_many") {
            (op, Command::ReleaseMany(items)) => (op, items),
            other => panic!("{other:?}"),
        }
    }
}

fn all(count: usize, answer: Option<Released>) -> Body {
    Body::ReleaseMany(vec![answer; count])
}

const FREED: Option<Released> = Some(Released::Freed { receivers: Some(0) });

#[test]
fn what_is_dropped_while_others_are_on_their_way_goes_in_one_script() {
    let mut hand = Hand::new();
    let holds = hand.holds(10);
    let (op, items) = hand.dropped(&holds);
    let names: Vec<_> = items.iter().map(|item| item.name.to_string()).collect();
    assert_eq!(
        names,
        ["n4", "n5", "n6", "n7", "n8", "n9"],
        "in the order in which they were dropped"
    );
    for (item, held) in items.iter().zip(&holds[FIRST..]) {
        assert!(item.field.ends_with(&format!(":{}", held.cell.id)));
        assert_eq!(*item.announce.channel, format!("redisson_lock__channel__{{{}}}", item.name));
    }
    hand.done(op, all(6, FREED));
    hand.nothing_sent();
    assert!(hand.engine.is_idle());
    assert_eq!(
        hand.reports.iter().filter(|report| matches!(report, Report::Released { .. })).count(),
        10
    );
}

#[test]
fn a_script_takes_a_hundred_and_then_waits_for_nothing() {
    let mut hand = Hand::new();
    let holds = hand.holds(FIRST + 250);
    hand.drop_guards(&holds);
    let sent = std::mem::take(&mut hand.sent);
    let sizes: Vec<usize> = sent.iter().map(|(_, command)| size(command)).collect();
    assert_eq!(sizes, [1, 1, 1, 1, 100, 100], "however many are on their way");
    for (op, command) in sent {
        hand.nothing_sent();
        match size(&command) {
            1 => hand.done(op, freed()),
            count => hand.done(op, all(count, FREED)),
        }
        if hand.labels() == ["release_many"] {
            break;
        }
    }
    let (_, command) = hand.take("release_many");
    assert_eq!(size(&command), 50);
}

fn size(command: &Command) -> usize {
    match command {
        Command::Release { .. } => 1,
        Command::ReleaseMany(items) => items.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_not_done_together_is_done_alone() {
    let mut hand = Hand::new();
    let holds = hand.holds(7);
    let (op, _) = hand.dropped(&holds);
    hand.done(op, Body::ReleaseMany(vec![FREED, None, FREED]));
    let (op, command) = hand.take("release");
    assert!(field(&command).ends_with(&format!(":{}", holds[5].cell.id)));
    hand.done(op, freed());
    hand.nothing_sent();
    assert!(hand.engine.is_idle());
}

#[test]
fn a_script_that_is_refused_is_done_one_by_one() {
    let mut hand = Hand::new();
    let holds = hand.holds(6);
    let (op, _) = hand.dropped(&holds);
    hand.refused(op, FailureKind::Refused);
    assert_eq!(hand.labels(), ["release", "release"]);
    for (op, _) in std::mem::take(&mut hand.sent) {
        hand.done(op, freed());
    }
    assert!(hand.engine.is_idle());
}

#[test]
fn a_script_of_which_nothing_is_known_is_repeated_one_by_one() {
    let mut hand = Hand::new();
    let holds = hand.holds(6);
    let (op, _) = hand.dropped(&holds);
    hand.unknown(op);
    hand.nothing_sent();
    hand.pass(Duration::from_millis(100));
    assert_eq!(hand.labels(), ["release", "release"]);
    for (op, _) in std::mem::take(&mut hand.sent) {
        // Done the first time.
        hand.done(op, Body::Release(Released::Gone));
    }
    assert!(hand.engine.is_idle());
    assert!(
        !hand.reports.iter().any(|report| matches!(report, Report::Lost { .. })),
        "{:?}",
        hand.reports
    );
}

#[test]
fn a_script_that_was_not_executed_is_repeated_after_a_while() {
    let mut hand = Hand::new();
    let holds = hand.holds(6);
    let (op, _) = hand.dropped(&holds);
    hand.refused(op, FailureKind::Busy);
    hand.nothing_sent();
    hand.pass(Duration::from_millis(100));
    assert_eq!(hand.labels(), ["release", "release"]);
}

#[test]
fn publishing_that_is_refused_is_told_for_each() {
    let mut hand = Hand::new();
    let holds = hand.holds(6);
    let (op, _) = hand.dropped(&holds);
    hand.done(op, all(2, Some(Released::Freed { receivers: None })));
    let told = hand
        .reports
        .iter()
        .filter(|report| matches!(report, Report::PublishRefused { .. }))
        .count();
    assert_eq!(told, 2);
    assert!(hand.engine.is_idle());
}

#[test]
fn releases_that_are_waited_for_go_at_once() {
    let mut hand = Hand::new();
    let holds = hand.holds(7);
    hand.drop_guards(&holds[..5]);
    assert_eq!(hand.labels(), ["release"; FIRST]);
    for held in &holds[5..] {
        hand.release(&held.cell, held.level);
    }
    assert_eq!(hand.labels(), ["release"; FIRST + 2]);
}

#[test]
fn who_wants_a_name_whose_release_is_queued_is_handed_it() {
    let mut hand = Hand::new();
    let holds = hand.holds(6);
    hand.drop_guards(&holds);
    hand.sent.clear();
    let next = hand.ask_for("n4");
    let (op, command) = hand.take("hand_off");
    assert!(
        matches!(&command, Command::HandOff { from, .. } if from.ends_with(&format!(":{}", holds[4].cell.id)))
    );
    hand.done(op, handed());
    hand.granted(next);
    // The other one is still queued.
    hand.nothing_sent();
}

#[test]
fn the_others_in_the_queue_are_not_forgotten_with_one_that_is_wanted() {
    let mut hand = Hand::new();
    let holds = hand.holds(FIRST + 3);
    hand.drop_guards(&holds);
    let first = std::mem::take(&mut hand.sent);
    assert_eq!(first.len(), FIRST);
    hand.ask_for(&format!("n{}", FIRST + 1));
    let (op, _) = hand.take("hand_off");
    hand.done(op, handed());
    for (op, _) in first {
        hand.done(op, freed());
    }
    let (_, command) = hand.take("release_many");
    let Command::ReleaseMany(items) = command else { panic!("{command:?}") };
    let fields: Vec<_> = items.into_iter().map(|item| item.field).collect();
    let wanted = [&holds[FIRST], &holds[FIRST + 2]];
    assert!(
        fields
            .iter()
            .zip(wanted)
            .all(|(field, held)| field.ends_with(&format!(":{}", held.cell.id)))
    );
    assert_eq!(fields.len(), 2);
}

#[test]
fn try_lock_says_no_while_a_release_is_queued() {
    let mut hand = Hand::new();
    let holds = hand.holds(5);
    hand.drop_guards(&holds);
    hand.sent.clear();
    let request = hand.want_name("n4", 99, watched(), Wait::Once, None);
    assert!(matches!(hand.answer(request), Answer::NotGranted));
    hand.nothing_sent();
}

#[test]
fn a_release_that_a_waiter_waits_for_is_not_held_back() {
    let mut hand = Hand::new();
    let holds = hand.holds(5);
    hand.ask_for("n4");
    hand.nothing_sent();
    hand.drop_guards(&holds);
    let mut labels = hand.labels();
    assert_eq!(labels.pop(), Some("hand_off"));
    assert_eq!(labels, ["release"; FIRST]);
}

#[test]
fn a_question_comes_after_what_was_dropped_before_it() {
    let mut hand = Hand::new();
    let holds = hand.holds(6);
    hand.drop_guards(&holds);
    hand.sent.clear();
    hand.event(Event::Inspect { name: LockName::new("n5").unwrap(), request: RequestId(1_000) });
    assert_eq!(hand.labels(), ["release_many", "inspect"]);
}

#[test]
fn where_several_keys_are_refused_each_goes_by_itself_from_then_on() {
    let mut hand = Hand::new();
    let holds = hand.holds(12);
    let (op, _) = hand.dropped(&holds[..6]);
    hand.refused(op, FailureKind::Refused);
    hand.sent.clear();
    hand.drop_guards(&holds[6..]);
    assert_eq!(hand.labels(), ["release"; 6]);
}

#[test]
fn what_was_not_done_because_its_time_was_over_is_gone() {
    let mut hand = Hand::new();
    let holds = hand.holds(6);
    let (op, _) = hand.dropped(&holds);
    hand.now = hand.now.plus(2 * LEASE);
    hand.done(op, all(2, None));
    hand.nothing_sent();
    let expired =
        |report: &&Report| matches!(report, Report::Lost { reason: LossReason::Expired, .. });
    assert_eq!(hand.reports.iter().filter(expired).count(), 2);
    assert!(hand.engine.is_idle());
}

#[test]
fn at_the_end_of_the_client_nothing_is_held_back() {
    let mut hand = Hand::new();
    let holds = hand.holds(9);
    hand.drop_guards(&holds[..8]);
    assert_eq!(std::mem::take(&mut hand.sent).len(), FIRST);
    hand.event(Event::Shutdown { until: hand.now.plus(Duration::from_secs(1)), request: None });
    let (_, command) = hand.take("release_many");
    assert_eq!(size(&command), 5, "those that were queued, and the one that was held");
}

#[test]
fn in_a_cluster_each_goes_by_itself() {
    let mut hand = Hand::two();
    let holds = hand.holds(7);
    hand.drop_guards(&holds);
    assert_eq!(hand.labels(), ["release"; 7]);
}
