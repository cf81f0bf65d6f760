//! What one forgotten line would change, and nobody would see for long: answers that forgive,
//! timers that end, pauses, the order in which a connection becomes usable.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::lease::Lease;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::share::Share;

use super::Hand;
use super::LEASE;
use super::OTHER;
use super::corners::lease;
use super::field;
use super::freed;
use super::grant;
use super::handed;
use super::held;
use super::watched;

const SECOND: Duration = Duration::from_secs(1);

impl Hand {
    /// The hand-off that is on its way: its lease in ms and its `not_after`.
    fn hand_off(&mut self) -> (OpId, u64, ServerTime) {
        match self.take("hand_off") {
            (op, Command::HandOff { lease, not_after, .. }) => (op, lease.millis(), not_after),
            other => panic!("{other:?}"),
        }
    }
}

fn lease_of(command: &Command) -> Duration {
    match command {
        Command::Acquire { lease, .. } => lease.duration(),
        other => panic!("{other:?}"),
    }
}

// ---- what a good answer forgives

#[test]
fn trouble_that_an_answer_ended_ends_no_wait_later() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.refused(op, FailureKind::Busy);
    hand.pass(Duration::from_millis(20));
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    hand.confirm_subscriptions();
    hand.pass_answering(60 * SECOND);
    hand.is_open(request);
}

#[test]
fn trouble_that_a_grant_ended_ends_no_wait_of_those_behind_it() {
    let mut hand = Hand::new();
    let first = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    let second = hand.ask(2, Wait::Forever);
    hand.refused(op, FailureKind::Busy);
    hand.pass(Duration::from_millis(20));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(first);
    hand.event(Event::PickedUp { request: first });
    hand.pass_answering(60 * SECOND);
    hand.is_open(second);
}

#[test]
fn what_was_known_before_the_link_broke_is_no_answer_after_it() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    hand.pass(SECOND);
    hand.cut();
    let request = hand.ask(2, Wait::Once);
    hand.is_open(request);
    hand.pass(2 * SECOND);
    assert!(matches!(hand.answer(request), Answer::Failed(Error::Unavailable { .. })));
}

// ---- max_hold

#[test]
fn max_hold_holds_after_a_hand_off_too() {
    let mut hand = Hand::new();
    let (level, first) = hand.taken(1, watched(), None);
    let second = hand.want(2, watched(), Wait::Forever, Some(60 * SECOND));
    hand.release(&first, level);
    let sent = hand.now;
    let (op, _, _) = hand.hand_off();
    hand.done(op, handed());
    let cell = hand.granted(second);
    hand.event(Event::PickedUp { request: second });
    hand.live(sent.plus(50 * SECOND).since(hand.now));
    assert!(cell.is_held(hand.now), "{:?}", cell.loss());
    hand.live(11 * SECOND);
    assert_eq!(cell.loss(), Some(LossReason::MaxHold));
}

#[test]
fn a_longer_max_hold_of_a_further_level_moves_no_end() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), Some(40 * SECOND));
    let begun = hand.now;
    let inner = hand.want(1, watched(), Wait::Forever, Some(600 * SECOND));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    hand.granted(inner);
    hand.event(Event::PickedUp { request: inner });
    hand.live(30 * SECOND);
    hand.want(1, watched(), Wait::Forever, Some(600 * SECOND));
    let (op, command) = hand.take("acquire");
    assert!(lease_of(&command) < 10 * SECOND, "{command:?}");
    hand.done(op, grant(0));
    hand.live(begun.plus(41 * SECOND).since(hand.now));
    assert_eq!(cell.loss(), Some(LossReason::MaxHold));
}

#[test]
fn a_hand_off_is_granted_no_later_than_its_waiter_waits() {
    let mut hand = Hand::new();
    let (level, first) = hand.taken(1, watched(), None);
    let wait = Duration::from_millis(300);
    hand.ask(2, Wait::For(wait));
    hand.pass(Duration::from_millis(20));
    hand.release(&first, level);
    let (_, _, not_after) = hand.hand_off();
    assert_eq!(not_after.0 - hand.server_time().0, 280_000);
}

// ---- renewals and doubt

#[test]
fn a_hold_is_suspect_half_a_lease_after_its_grant() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let granted = hand.now;
    for (at, suspect) in [(LEASE / 3, false), (LEASE / 2 - SECOND, false), (LEASE / 2, true)] {
        hand.pass(granted.plus(at).since(hand.now));
        assert_eq!(cell.is_suspect(), suspect, "after {at:?}");
        assert!(cell.is_held(hand.now));
    }
}

#[test]
fn every_hold_is_asked_about_when_the_servers_clock_jumps() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, Lease::Fixed(lease(3_600)), None);
    hand.pass(SECOND);
    hand.offset += 60_000_000;
    hand.event(Event::Ping { request: RequestId(900) });
    let (op, _) = hand.take("ping");
    hand.done(op, Body::Pong);
    assert!(cell.is_suspect());
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Gone])));
    assert_eq!(cell.loss(), Some(LossReason::Removed));
}

#[test]
fn a_hint_that_comes_while_a_renewal_is_on_its_way_is_looked_into() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    hand.pass(LEASE / 3);
    let (renewal, _) = hand.take("renew");
    let channel = "redisson_lock__client:{11111111-2222-4333-8444-555555555555}".into();
    hand.event(Event::Message { channel, payload: "n".to_owned() });
    // It was executed before the lock was taken away.
    hand.done(renewal, Body::Renew(Some(vec![Renewed::Yes])));
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Gone])));
    assert_eq!(cell.loss(), Some(LossReason::ForceUnlocked));
}

#[test]
fn who_asks_while_a_renewal_is_on_its_way_is_asked_for_after_it() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    hand.pass(LEASE / 3);
    let (renewal, _) = hand.take("renew");
    let verification = hand.verify(&cell);
    hand.nothing_sent();
    hand.done(renewal, Body::Renew(Some(vec![Renewed::Yes])));
    hand.is_open(verification);
    hand.renewed();
    assert!(matches!(hand.answer(verification), Answer::Done));
}

#[test]
fn a_renewal_that_fails_now_and_then_is_repeated_as_soon_each_time() {
    let mut hand = Hand::new();
    hand.taken(1, watched(), None);
    for _ in 0..10 {
        hand.pass(LEASE / 3);
        let (op, _) = hand.take("renew");
        hand.refused(op, FailureKind::Busy);
        hand.pass(Duration::from_millis(50));
        hand.renewed();
    }
}

// ---- pauses

/// How often something is sent in ten seconds in which every answer is this.
fn sent_in_ten_seconds(hand: &mut Hand, answer: impl Fn(&mut Hand, OpId)) -> usize {
    let mut sent = 0;
    let end = hand.now.plus(10 * SECOND);
    while hand.now < end {
        for (op, command) in std::mem::take(&mut hand.sent) {
            match command {
                Command::Renew { .. } => hand.done(op, Body::Renew(Some(vec![Renewed::Yes]))),
                Command::Time => hand.done(op, Body::Pong),
                _ => {
                    sent += 1;
                    answer(hand, op);
                }
            }
        }
        hand.pass(Duration::from_millis(1));
    }
    sent
}

#[test]
fn a_re_entry_that_fails_is_not_repeated_at_the_pace_of_the_line() {
    let late = Body::Acquire(Acquired::Late);
    for is_late in [false, true] {
        let mut hand = Hand::new();
        hand.taken(1, watched(), None);
        hand.ask(1, Wait::Forever);
        let sent = sent_in_ten_seconds(&mut hand, |hand, op| match is_late {
            true => hand.done(op, late.clone()),
            false => hand.refused(op, FailureKind::Busy),
        });
        assert!((10..50).contains(&sent), "late: {is_late}, {sent} commands");
    }
}

#[test]
fn a_smaller_count_that_fails_is_not_repeated_at_the_pace_of_the_line() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, watched(), None);
    let inner = hand.re_enter(1);
    hand.release(&cell, inner);
    let sent = sent_in_ten_seconds(&mut hand, |hand, op| hand.refused(op, FailureKind::Busy));
    assert!((10..50).contains(&sent), "{sent} commands");
}

#[test]
fn the_fallback_differs_from_name_to_name_by_a_tenth_at_most() {
    let mut sleeps = BTreeSet::new();
    for number in 0..20 {
        let mut hand = Hand::new();
        let start = hand.now;
        hand.want_name(&format!("n{number}"), 1, watched(), Wait::Forever, None);
        let (op, _) = hand.take("acquire");
        hand.done(op, held(20_000));
        let at = hand.engine.next_timeout().expect("it sleeps").since(start);
        assert!((4_500..=5_500).contains(&at.as_millis()), "{at:?}");
        sleeps.insert(at);
    }
    assert!(sleeps.len() > 10, "{sleeps:?}");
}

// ---- what is over

#[test]
fn a_wait_that_was_answered_leaves_no_timer() {
    let mut hand = Hand::new();
    let day = Duration::from_secs(86_400);
    let request = hand.ask(1, Wait::For(day));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    hand.event(Event::PickedUp { request });
    hand.release(&cell, request);
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    hand.pass(60 * SECOND);
    assert!(hand.engine.is_idle());
    assert_eq!(hand.engine.next_timeout(), None);
}

#[test]
fn the_next_hold_of_an_owner_stays_known_when_the_one_before_ends() {
    let mut hand = Hand::new();
    let (outer, first) = hand.taken(1, watched(), None);
    let inner = hand.re_enter(1);
    hand.event(Event::Release { hold: first.id, level: inner, request: None });
    // All levels end before the next one can be asked for: it becomes a hold of its own.
    let again = hand.ask(1, Wait::Forever);
    hand.event(Event::Release { hold: first.id, level: outer, request: None });
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::CountSet));
    let (op, _, _) = hand.hand_off();
    hand.done(op, handed());
    let cell = hand.granted(again);
    assert_ne!(cell.id, first.id);
    let key = (LockName::new("n").unwrap(), OwnerKey::from_test(1));
    assert_eq!(hand.directory.get(&key).map(|cell| cell.id), Some(cell.id));
}

#[test]
fn the_next_hold_of_an_owner_stays_known_when_a_lost_one_is_forgotten() {
    let mut hand = Hand::new();
    let fixed = Lease::Fixed(lease(10));
    let (outer, first) = hand.taken(1, fixed, None);
    let inner = hand.want(1, fixed, Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    hand.granted(inner);
    hand.event(Event::Release { hold: first.id, level: inner, request: None });
    let (lowering, _) = hand.take("release");
    hand.pass(11 * SECOND);
    assert_eq!(first.loss(), Some(LossReason::Expired));
    hand.event(Event::Release { hold: first.id, level: outer, request: None });
    let again = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(9));
    let cell = hand.granted(again);
    hand.done(lowering, Body::Release(Released::Gone));
    assert!(hand.engine.holds.get(&first.id).is_none());
    let key = (LockName::new("n").unwrap(), OwnerKey::from_test(1));
    assert_eq!(hand.directory.get(&key).map(|cell| cell.id), Some(cell.id));
}

#[test]
fn an_unlock_without_a_link_ends_with_the_lease() {
    let mut hand = Hand::new();
    let (level, cell) = hand.taken(1, Lease::Fixed(lease(10)), None);
    hand.cut();
    let unlock = hand.release(&cell, level);
    hand.pass(9 * SECOND);
    hand.is_open(unlock);
    hand.pass(3 * SECOND);
    assert!(matches!(hand.answer(unlock), Answer::Failed(Error::Unavailable { .. })));
}

#[test]
fn an_unlock_long_after_an_outage_began_has_the_limit_for_itself() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, Lease::Fixed(lease(3_600)), None);
    let inner = hand.re_enter(1);
    hand.cut();
    hand.pass(60 * SECOND);
    let unlock = hand.release(&cell, inner);
    hand.pass(29 * SECOND);
    hand.is_open(unlock);
    hand.pass(3 * SECOND);
    assert!(matches!(hand.answer(unlock), Answer::Failed(Error::Unavailable { .. })));
}

#[test]
fn a_question_that_could_not_be_sent_is_answered_by_the_release() {
    let mut hand = Hand::new();
    let (level, cell) = hand.taken(1, watched(), None);
    hand.cut();
    let verification = hand.verify(&cell);
    hand.is_open(verification);
    hand.release(&cell, level);
    assert!(matches!(hand.answer(verification), Answer::Failed(Error::Lost { .. })));
}

#[test]
fn re_entries_in_line_count_for_the_limit() {
    let mut hand = Hand::new();
    hand.taken(1, watched(), None);
    let wanted = [(); 3].map(|()| hand.ask(1, Wait::Forever));
    let [first, second, third] = wanted;
    hand.is_open(first);
    hand.is_open(second);
    assert!(matches!(hand.answer(third), Answer::Failed(Error::HoldCountLimit { .. })));
}

#[test]
fn what_was_not_done_together_does_not_go_together_again() {
    let mut hand = Hand::new();
    let mut take = |number: usize| {
        let request = hand.want_name(&format!("n{number}"), 1, watched(), Wait::Forever, None);
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(1));
        (request, hand.granted(request))
    };
    let holds: Vec<_> = (0..16).map(&mut take).collect();
    for (level, cell) in holds {
        hand.event(Event::Release { hold: cell.id, level, request: None });
    }
    let mut together = 0;
    while !hand.sent.is_empty() {
        for (op, command) in std::mem::take(&mut hand.sent) {
            match command {
                Command::ReleaseMany(items) => {
                    together += 1;
                    assert!(together < 3, "the same again and again");
                    hand.done(op, Body::ReleaseMany(vec![None; items.len()]));
                }
                _ => hand.done(op, Body::Release(Released::Gone)),
            }
        }
    }
    assert!(hand.engine.is_idle() && together > 0);
}

#[test]
fn an_attempt_is_taken_over_only_with_the_lease_that_was_wanted() {
    let mut hand = Hand::new();
    let first = hand.want(1, Lease::Fixed(lease(1)), Wait::Forever, None);
    let second = hand.want(1, Lease::Fixed(lease(60)), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request: first });
    hand.done(op, grant(1));
    hand.is_open(second);
    let (op, lease, _) = hand.hand_off();
    assert_eq!(lease, 60_000);
    hand.done(op, handed());
    assert!(hand.granted(second).valid_until() > hand.now.plus(59 * SECOND));
}

#[test]
fn a_grant_of_nobody_that_is_gone_is_no_loss() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request });
    hand.done(op, grant(1));
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Gone));
    assert!(
        !hand.reports.iter().any(|report| matches!(report, Report::Lost { .. })),
        "{:?}",
        hand.reports
    );
    assert!(hand.engine.is_idle());
}

/// The script says so too when a first copy was in time and `to` has the key.
#[test]
fn a_late_hand_off_makes_the_id_of_to_dead() {
    let mut hand = Hand::new();
    let (level, cell) = hand.taken(1, watched(), None);
    hand.ask(2, Wait::Forever);
    hand.release(&cell, level);
    let (op, command) = hand.take("hand_off");
    let to = field(&command);
    hand.done(op, Body::HandOff(HandedOff::ReleasedOnly { late: true, receivers: Some(0) }));
    let releases: Vec<_> = hand
        .sent
        .iter()
        .filter(|(_, command)| matches!(command, Command::Release { share: Share::NOTHING, .. }))
        .collect();
    assert_eq!(releases.iter().map(|(_, command)| field(command)).collect::<Vec<_>>(), [to]);
}

#[test]
fn a_question_ends_with_the_command_timeout_whatever_becomes_of_the_link() {
    let inspect = |request| Event::Inspect { name: LockName::new("n").unwrap(), request };
    let request = RequestId(900);
    for busy in [false, true] {
        let mut hand = Hand::new();
        if busy {
            hand.event(inspect(request));
            let (op, _) = hand.take("inspect");
            hand.refused(op, FailureKind::Busy);
            hand.cut();
        } else {
            hand.cut();
            hand.event(inspect(request));
        }
        hand.pass(Duration::from_millis(900));
        hand.is_open(request);
        hand.pass(Duration::from_millis(200));
        assert!(
            matches!(hand.answer(request), Answer::Failed(Error::Unavailable { .. })),
            "busy: {busy}"
        );
    }
}

#[test]
fn a_shutdown_does_not_wait_for_guards_of_lost_holds() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, Lease::Fixed(lease(1)), None);
    hand.pass(SECOND);
    assert_eq!(cell.loss(), Some(LossReason::Expired));
    hand.event(Event::Shutdown { until: hand.now.plus(60 * SECOND), request: None });
    assert!(hand.finished);
}

#[test]
fn a_shutdown_waits_for_what_may_still_be_granted() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.pass(SECOND);
    hand.unknown(op);
    let (op, _) = hand.take("release");
    hand.event(Event::Shutdown { until: hand.now.plus(60 * SECOND), request: None });
    assert!(!hand.finished);
    hand.pass(Duration::from_millis(2));
    hand.done(op, Body::Release(Released::Gone));
    assert!(hand.finished);
}

// ---- becoming usable

#[test]
fn who_waits_for_the_client_hears_when_the_last_of_all_comes_whichever_that_is() {
    for clock_first in [false, true] {
        let mut hand = Hand::unconnected();
        let request = RequestId(900);
        hand.event(Event::Ready { request });
        let time = hand.link_up("run-1");
        hand.event(Event::PubSubUp);
        if clock_first {
            hand.done(time, Body::Pong);
            hand.is_open(request);
            hand.confirm_subscriptions();
        } else {
            hand.confirm_subscriptions();
            hand.is_open(request);
            hand.done(time, Body::Pong);
        }
        assert!(matches!(hand.answer(request), Answer::Done));
    }
}

#[test]
fn a_force_unlock_after_a_long_silence_waits_for_the_clock_and_goes_on() {
    let mut hand = Hand::new();
    hand.pass(70 * SECOND);
    let name = LockName::new("n").unwrap();
    hand.event(Event::ForceUnlock { name, from: Some(OTHER.to_owned()), request: RequestId(900) });
    let (op, _) = hand.take("time");
    hand.done(op, Body::Pong);
    hand.take("force_release");
}

#[test]
fn the_clients_own_channel_is_asked_for_again_after_a_refusal() {
    for kind in [FailureKind::Busy, FailureKind::Denied] {
        let mut hand = Hand::unconnected();
        hand.connect("run-1");
        let (channel, generation) = hand.subscriptions.remove(0);
        let result = Err(Failure::new(kind, "no"));
        hand.event(Event::Subscribed { channel: channel.clone(), generation, result });
        assert!(hand.subscriptions.is_empty());
        hand.pass(2 * SECOND);
        assert!(hand.subscriptions.iter().any(|(again, _)| *again == channel), "{kind:?}");
    }
}
