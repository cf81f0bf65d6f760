//! What the log is told, and how often: whoever writes it keeps the engine waiting meanwhile.

use std::time::Duration;

use crate::engine::event::Report;
use crate::engine::event::Wait;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;

use super::Hand;
use super::LEASE;
use super::grant;
use super::watched;

const HOLDS: usize = 50;

impl Hand {
    fn with_many_holds() -> Self {
        let mut hand = Self::new();
        for number in 0..HOLDS {
            hand.taken_named(&format!("many:{number}"), watched(), None);
        }
        hand.reports.clear();
        hand
    }

    fn long_waits(&mut self) -> usize {
        let reports = std::mem::take(&mut self.reports);
        reports.iter().filter(|report| matches!(report, Report::WaitingLong { .. })).count()
    }
}

#[test]
fn a_link_that_broke_is_one_line_however_much_is_held() {
    let mut hand = Hand::with_many_holds();
    hand.sleeper(1);
    hand.reports.clear();
    hand.cut();
    assert!(
        matches!(&hand.reports[..], [Report::LinkDown { holds: HOLDS, .. }]),
        "{:?}",
        hand.reports
    );
}

#[test]
fn holds_that_are_in_doubt_together_are_one_line() {
    let mut hand = Hand::with_many_holds();
    hand.pass(LEASE / 2);
    let in_doubt = |report: &Report| match report {
        Report::Suspect { holds, .. } => Some(*holds),
        _ => None,
    };
    assert_eq!(hand.reports.iter().filter_map(in_doubt).collect::<Vec<_>>(), [HOLDS]);
}

#[test]
fn a_long_wait_is_told_once_until_the_lock_was_had() {
    let mut hand = Hand::new();
    let first = hand.sleeper(1);
    hand.ask(2, Wait::Forever);
    hand.pass_answering(Duration::from_secs(9));
    assert_eq!(hand.long_waits(), 0);
    hand.pass_answering(Duration::from_secs(60));
    assert_eq!(hand.long_waits(), 1);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(first);
    let unlocked = hand.release(&cell, first);
    let (op, _) = hand.take("hand_off");
    hand.done(op, Body::HandOff(HandedOff::Foreign));
    hand.answer(unlocked);
    hand.pass_answering(Duration::from_secs(60));
    assert_eq!(hand.long_waits(), 1, "of the next in line");
}
