//! Limits: of a hold's time, of what an old clock is good for, of how long a verification is tried.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::FailureKind;
use crate::backend::ServerId;
use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::lease::Lease;
use crate::base::lease::LeaseMs;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::engine::schedule::WINDOW;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Renewed;

use super::Hand;
use super::LEASE;
use super::fixed;
use super::freed;
use super::grant;
use super::held;
use super::watched;

const SECOND: Duration = Duration::from_secs(1);

impl Hand {
    /// A hold of `owner` whose caller has its guard.
    pub(super) fn taken(
        &mut self,
        owner: u64,
        lease: Lease,
        max_hold: Option<Duration>,
    ) -> (RequestId, Arc<HoldCell>) {
        let request = self.want(owner, lease, Wait::Forever, max_hold);
        let (op, _) = self.take("acquire");
        self.done(op, grant(1));
        let cell = self.granted(request);
        self.event(Event::PickedUp { request });
        (request, cell)
    }

    pub(super) fn verify(&mut self, cell: &HoldCell) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.event(Event::Verify { hold: cell.id, request });
        request
    }

    pub(super) fn renewed(&mut self) {
        let (op, _) = self.take("renew");
        self.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    }
}

// ---- max_hold

#[test]
fn max_hold_of_a_nested_level_counts_from_the_first_grant() {
    let mut hand = Hand::new();
    let begin = hand.now;
    let (_, cell) = hand.taken(1, watched(), None);
    hand.pass(4 * SECOND);
    let inner = hand.want(1, watched(), Wait::Forever, Some(6 * SECOND));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    hand.granted(inner);
    assert!(cell.is_held(begin.plus(5 * SECOND)) && cell.valid_until() <= begin.plus(6 * SECOND));
    hand.pass(3 * SECOND);
    assert_eq!(cell.loss(), Some(LossReason::MaxHold));
}

#[test]
fn max_hold_that_a_hold_has_already_lasted_is_refused_and_harms_nobody() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    hand.pass(4 * SECOND);
    let inner = hand.want(1, watched(), Wait::Forever, Some(3 * SECOND));
    hand.nothing_sent();
    let answer = hand.answer(inner);
    assert!(
        matches!(&answer, Answer::Failed(Error::InvalidOption { option: "max_hold", .. })),
        "{answer:?}"
    );
    assert!(cell.is_held(hand.now) && cell.count() == 1);
}

/// Behind slow answers there is no more to win; a fast one says that there is.
#[test]
fn a_re_entry_brings_a_hold_back_to_the_watchdog() {
    let mut hand = Hand::new();
    let outer = hand.want(1, watched(), Wait::Forever, Some(Duration::from_secs(40)));
    let (op, _) = hand.take("acquire");
    hand.pass(Duration::from_secs(2));
    hand.done(op, grant(1));
    let cell = hand.granted(outer);
    hand.event(Event::PickedUp { request: outer });
    hand.pass(Duration::from_secs(1));
    hand.nothing_sent();
    for ping in 901..920 {
        hand.event(Event::Ping { request: RequestId(ping) });
        let (op, _) = hand.take("ping");
        hand.done(op, Body::Pong);
    }
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    assert!(hand.live(Duration::from_secs(20)) > 0);
    assert!(cell.is_held(hand.now));
}

#[test]
fn the_end_of_max_hold_takes_a_handful_of_renewals() {
    for (limit, most) in [(2, 3), (20, 5), (45, 7), (60, 9)] {
        let mut hand = Hand::new();
        let end = hand.now.plus(limit * SECOND);
        let (_, cell) = hand.taken(1, watched(), Some(limit * SECOND));
        let mut renewals = 0;
        while cell.loss().is_none() {
            renewals += hand.live(SECOND / 10);
        }
        assert!(renewals <= most, "{renewals} renewals in {limit} s");
        assert_eq!(cell.loss(), Some(LossReason::MaxHold));
        assert!(
            end.since(hand.now) <= limit * SECOND / 10,
            "{:?} early of {limit} s",
            end.since(hand.now)
        );
        assert!(!hand.reports.iter().any(|report| matches!(report, Report::Suspect { .. })));
    }
}

// ---- batches of renewals

impl Hand {
    /// A hold of the lock `name` whose caller has its guard.
    pub(super) fn taken_named(
        &mut self,
        name: &str,
        lease: Lease,
        max_hold: Option<Duration>,
    ) -> Arc<HoldCell> {
        let request = self.want_name(name, 1, lease, Wait::Forever, max_hold);
        let (op, _) = self.take("acquire");
        self.done(op, grant(1));
        let cell = self.granted(request);
        self.event(Event::PickedUp { request });
        cell
    }

    /// The renewals on the wire: how many holds each has, and how long it may take.
    fn batches(&self) -> Vec<(usize, Duration)> {
        let now = self.server_time().0;
        let batch = |command: &Command| match command {
            Command::Renew { holds, not_after } => {
                (holds.len(), Duration::from_micros(u64::try_from(not_after.0 - now).unwrap()))
            }
            other => panic!("{other:?}"),
        };
        self.sent.iter().map(|(_, command)| batch(command)).collect()
    }
}

#[test]
fn an_end_far_away_keeps_nobody_out_of_a_batch_and_a_near_one_hurries_nobody() {
    let mut hand = Hand::new();
    for number in 0..40 {
        let limit = (number % 2 == 0).then_some(60 * SECOND);
        hand.taken_named(&format!("n{number}"), watched(), limit);
    }
    let brief = LeaseMs::checked("lease", SECOND / 2).unwrap();
    hand.taken_named("near", Lease::Fixed(brief), None);
    // All of them are asked about.
    hand.resubscribe();
    let mut batches = hand.batches();
    batches.sort_unstable();
    assert_eq!(batches, [(1, brief.validity()), (40, SECOND)]);
}

/// Who has more time than the command timeout goes with all others like that, and who has less goes
/// with those who have about as much.
#[test]
fn holds_that_end_soon_are_not_asked_about_together_if_one_ends_much_sooner() {
    let mut hand = Hand::new();
    hand.taken_named("far", watched(), None);
    hand.taken_named("farther", fixed(2 * LEASE), None);
    for (name, length) in [("near", SECOND / 2), ("as near", SECOND / 2), ("nearest", SECOND / 10)]
    {
        hand.taken_named(name, Lease::Fixed(LeaseMs::checked("lease", length).unwrap()), None);
    }
    hand.resubscribe();
    let mut holds: Vec<usize> = hand.batches().into_iter().map(|(holds, _)| holds).collect();
    holds.sort_unstable();
    assert_eq!(holds, [1, 2, 2]);
}

#[test]
fn holds_of_a_short_lease_are_renewed_together() {
    let mut hand = Hand::new();
    let short = LeaseMs::checked("lease", SECOND).unwrap();
    hand.engine.cx.config.lease = short;
    for number in 0..40 {
        hand.taken_named(&format!("n{number}"), Lease::Watched(short), None);
    }
    hand.pass(SECOND / 3);
    let batches = hand.batches();
    assert!(batches.len() == 1 && batches[0].0 == 40, "{batches:?}");
    // Late ones have less time, and leave the others theirs.
    let (op, _) = hand.take("renew");
    hand.refused(op, FailureKind::Busy);
    hand.taken_named("late", Lease::Watched(short), None);
    hand.pass(SECOND / 3);
    let mut seen = Vec::new();
    for (op, command) in std::mem::take(&mut hand.sent) {
        let Command::Renew { holds, .. } = &command else { panic!("{command:?}") };
        seen.push(holds.len());
        hand.done(op, Body::Renew(Some(vec![Renewed::Yes; holds.len()])));
    }
    assert_eq!(seen.iter().sum::<usize>(), 41, "{seen:?}");
}

#[test]
fn a_hold_that_was_refused_with_others_goes_along_again() {
    let mut hand = Hand::new();
    hand.taken_named("good", watched(), None);
    hand.taken_named("bad", watched(), None);
    hand.pass(LEASE / 3);
    let (op, _) = hand.take("renew");
    hand.refused(op, FailureKind::Denied);
    assert_eq!(hand.labels(), ["renew", "renew"], "each alone");
    for (op, _) in std::mem::take(&mut hand.sent) {
        hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    }
    hand.pass(LEASE / 3);
    assert_eq!(hand.batches(), [(2, SECOND)]);
}

#[test]
fn what_is_too_much_for_a_server_waits_and_those_that_run_out_first_go_first() {
    let mut hand = Hand::new();
    hand.engine.cx.config.max_waiters = 2 * WINDOW;
    let cells: Vec<_> = (0..WINDOW + 300)
        .map(|number| hand.taken_named(&format!("n{number}"), watched(), None))
        .collect();
    hand.pass(SECOND);
    let brief = LeaseMs::checked("lease", 3 * SECOND).unwrap();
    hand.taken_named("brief", Lease::Fixed(brief), None);
    // All of them are asked about: the last that was granted runs out first.
    hand.resubscribe();
    let sizes = |hand: &Hand| hand.batches().iter().map(|(holds, _)| holds).sum::<usize>();
    assert_eq!(sizes(&hand), WINDOW);
    let renews = |command: &Command, name: &str| matches!(command, Command::Renew { holds, .. } if holds.iter().any(|one| one.name.as_str() == name));
    assert!(hand.sent.iter().any(|(_, command)| renews(command, "brief")));
    assert_eq!(hand.counters.snapshot().registered_renewals, 301, "those that wait");
    // Each answer, of whatever kind, makes room for as many.
    let (op, _) = hand.sent.remove(0);
    hand.unknown(op);
    assert_eq!(sizes(&hand), WINDOW);
    while !hand.sent.is_empty() {
        let (op, command) = hand.sent.remove(0);
        let Command::Renew { holds, .. } = command else { continue };
        hand.done(op, Body::Renew(Some(vec![Renewed::Yes; holds.len()])));
    }
    let open = hand.counters.snapshot().registered_renewals as usize;
    assert_eq!(open, cells.len() + 1, "what was asked about in vain is asked again");
    assert!(cells.iter().all(|cell| cell.is_held(hand.now)));
}

// ---- verification

#[test]
fn a_guard_that_is_picked_up_keeps_its_turn_in_the_line() {
    let mut hand = Hand::new();
    for number in 0..WINDOW {
        hand.taken_named(&format!("n{number}"), watched(), None);
    }
    let request = hand.want_name("last", 1, watched(), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(request);
    hand.resubscribe();
    let sent = std::mem::take(&mut hand.sent);
    hand.event(Event::PickedUp { request });
    for (op, command) in sent {
        let Command::Renew { holds, .. } = command else { panic!("{command:?}") };
        hand.done(op, Body::Renew(Some(vec![Renewed::Yes; holds.len()])));
    }
    let (_, command) = hand.take("renew");
    assert!(matches!(&command, Command::Renew { holds, .. } if holds.len() == 1), "{command:?}");
}

#[test]
fn a_verification_rides_out_a_short_trouble() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let verification = hand.verify(&cell);
    let (op, _) = hand.take("renew");
    hand.refused(op, FailureKind::Busy);
    hand.is_open(verification);
    hand.pass(SECOND / 20);
    let (op, _) = hand.take("renew");
    hand.cut();
    hand.unknown(op);
    hand.is_open(verification);
    hand.pass(SECOND / 2);
    hand.connect("run-1");
    hand.renewed();
    assert!(matches!(hand.answer(verification), Answer::Done));
    hand.pass(2 * SECOND);
    hand.is_open(verification);
}

#[test]
fn a_verification_asked_without_a_link_waits_for_it() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, fixed(LEASE), None);
    hand.cut();
    let verification = hand.verify(&cell);
    hand.is_open(verification);
    hand.connect("run-1");
    hand.renewed();
    assert!(matches!(hand.answer(verification), Answer::Done));
}

#[test]
fn a_verification_ends_with_the_command_timeout() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let asked = hand.now;
    let (first, second) = (hand.verify(&cell), hand.verify(&cell));
    let (op, _) = hand.take("renew");
    hand.refused(op, FailureKind::Busy);
    hand.pass(SECOND / 20);
    let (op, _) = hand.take("renew");
    hand.pass(SECOND);
    for verification in [first, second] {
        let answer = hand.answer(verification);
        let Answer::Failed(Error::Unavailable { waited, cause, .. }) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!((waited, &*cause), (SECOND, "no"));
    }
    assert!(cell.is_held(asked.plus(LEASE / 2)), "nobody knows, so the old validity goes on");
    // Its answer is nobody's any more; each was answered once.
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    hand.is_open(first);
    hand.is_open(second);
}

#[test]
fn what_trying_again_will_not_mend_ends_a_verification_at_once() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let verification = hand.verify(&cell);
    let (op, _) = hand.take("renew");
    hand.refused(op, FailureKind::Denied);
    assert!(matches!(hand.answer(verification), Answer::Failed(Error::Denied { .. })));
}

#[test]
fn a_verification_ends_with_its_hold() {
    let mut hand = Hand::new();
    let brief = LeaseMs::checked("lease", SECOND / 4).unwrap();
    let (_, cell) = hand.taken(1, Lease::Fixed(brief), None);
    hand.cut();
    let verification = hand.verify(&cell);
    hand.pass(SECOND / 2);
    let answer = hand.answer(verification);
    assert!(
        matches!(answer, Answer::Failed(Error::Lost { reason: LossReason::Expired, .. })),
        "{answer:?}"
    );
    hand.pass(2 * SECOND);
    hand.is_open(verification);
}

// ---- the server's clock

#[test]
fn an_old_clock_is_asked_again_before_it_is_used() {
    for step in [-5_000_000, -500_000, 0, 500_000, 5_000_000] {
        let mut hand = Hand::new();
        hand.pass(600 * SECOND);
        hand.offset += step;
        hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("time");
        hand.done(op, Body::Pong);
        let (op, command) = hand.take("acquire");
        let Command::Acquire { not_after, .. } = command else { panic!("{command:?}") };
        let expected = ServerTime(hand.server_time().0 + 1_000_000).shared(SECOND);
        assert_eq!(not_after, expected, "after a step of {step} us");
        hand.done(op, held(20_000));
    }
}

// ---- outages

/// Looking at all of them at the end of each would take minutes.
#[test]
fn twenty_thousand_waits_that_began_one_by_one_end_one_by_one() {
    let mut hand = Hand::new();
    hand.engine.cx.config.max_waiters = 100_000;
    hand.hold(1);
    let down = hand.now;
    hand.cut();
    let step = SECOND / 2_000;
    let waits: Vec<(RequestId, Moment)> = (0..20_000)
        .map(|number| {
            hand.now = hand.now.plus(step);
            (hand.ask(10 + number, Wait::Forever), hand.now)
        })
        .collect();
    hand.pass(down.plus(30 * SECOND).since(hand.now));
    assert!(hand.answers.is_empty());
    for (request, since) in waits {
        hand.pass(since.plus(30 * SECOND).since(hand.now));
        let ended = std::mem::take(&mut hand.answers);
        assert!(
            matches!(&ended[..], [(one, Answer::Failed(Error::Unavailable { .. }))] if *one == request),
            "{ended:?} at the end of {request:?}"
        );
    }
}

#[test]
fn an_outage_that_ends_ends_nobodys_wait() {
    let mut hand = Hand::new();
    hand.hold(1);
    hand.cut();
    hand.pass(20 * SECOND);
    let old = hand.ask(2, Wait::Forever);
    hand.pass(15 * SECOND);
    hand.connect("run-1");
    hand.confirm_subscriptions();
    hand.sent.clear();
    hand.event(Event::Down { server: ServerId::ONLY, cause: "cut again".to_owned() });
    let again = hand.now;
    hand.pass(29 * SECOND);
    hand.is_open(old);
    let new = hand.ask(3, Wait::Forever);
    hand.pass(again.plus(30 * SECOND).since(hand.now));
    assert!(matches!(hand.answer(old), Answer::Failed(Error::Unavailable { .. })));
    hand.is_open(new);
    hand.pass(29 * SECOND);
    assert!(matches!(hand.answer(new), Answer::Failed(Error::Unavailable { .. })));
}

// ---- gauges

#[test]
fn the_gauge_counts_holds_that_may_exist() {
    let mut hand = Hand::new();
    let holds = |hand: &Hand| hand.counters.snapshot().holds;
    let request = hand.sleeper(1);
    assert_eq!(holds(&hand), 0, "a contender that sleeps has none");
    hand.message();
    let (op, _) = hand.take("acquire");
    assert_eq!(holds(&hand), 1, "it may just be granted");
    hand.refused(op, FailureKind::Busy);
    assert_eq!(holds(&hand), 0);
    hand.pass(SECOND / 10);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    assert_eq!(holds(&hand), 1);
    hand.release(&cell, request);
    assert_eq!(holds(&hand), 1, "not confirmed yet");
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    assert_eq!(holds(&hand), 0);
}

// ---- hand-off

#[test]
fn a_hand_off_that_finds_its_hold_gone_says_so() {
    for (found, wanted) in
        [(HandedOff::Gone, LossReason::Removed), (HandedOff::Foreign, LossReason::TakenOver)]
    {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        hand.ask(2, Wait::Forever);
        let release = hand.release(&cell, level);
        let (op, _) = hand.take("hand_off");
        hand.done(op, Body::HandOff(found));
        let answer = hand.answer(release);
        assert!(
            matches!(answer, Answer::Failed(Error::Lost { reason, .. }) if reason == wanted),
            "{answer:?}"
        );
        assert_eq!(hand.labels(), ["acquire"], "the waiter tries by itself");
    }
}
