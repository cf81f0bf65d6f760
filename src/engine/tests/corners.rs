//! Corners where several rules meet: leases of different levels, outages that end unseen, names
//! that share a channel.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::lease::Lease;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::base::owner::OwnerKey;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Effect;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Forced;
use crate::kinds::reply::KeyState;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;

use super::Hand;
use super::LEASE;
use super::OTHER;
use super::freed;
use super::grant;
use super::held_without_line;

pub(super) fn lease(seconds: u64) -> LeaseMs {
    LeaseMs::checked("lease", Duration::from_secs(seconds)).unwrap()
}

impl Hand {
    pub(super) fn want(
        &mut self,
        owner: u64,
        lease: Lease,
        wait: Wait,
        max_hold: Option<Duration>,
    ) -> RequestId {
        self.want_name("n", owner, lease, wait, max_hold)
    }

    pub(super) fn want_name(
        &mut self,
        name: &str,
        owner: u64,
        lease: Lease,
        wait: Wait,
        max_hold: Option<Duration>,
    ) -> RequestId {
        let (owner, name) = (OwnerKey::from_test(owner), LockName::new(name).unwrap());
        self.wish(Acquire {
            request: RequestId(0),
            name,
            owner,
            share: Share::ONE,
            lease,
            wait,
            max_hold,
            at_least: None,
            upgrades: None,
        })
    }

    /// With a request of its own.
    pub(super) fn wish(&mut self, acquire: Acquire) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.event(Event::Acquire(Acquire { request, ..acquire }));
        request
    }

    /// Answers renewals with Yes while time passes, 1 ms round trips; gives how many were sent.
    pub(super) fn live(&mut self, time: Duration) -> usize {
        let end = self.now.plus(time);
        let mut renewals = 0;
        while self.now < end {
            self.pass(Duration::from_millis(1));
            for (op, command) in std::mem::take(&mut self.sent) {
                if let Command::Renew { holds, .. } = &command {
                    renewals += 1;
                    let answers = holds.iter().map(|_| Renewed::Yes).collect();
                    self.done(op, Body::Renew(Some(answers)));
                } else {
                    self.sent.push((op, command));
                }
            }
        }
        renewals
    }
}

#[test]
fn max_hold_verified_early_stays_renewed() {
    let mut hand = Hand::new();
    let request =
        hand.want(1, Lease::Watched(lease(30)), Wait::Forever, Some(Duration::from_secs(3600)));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    hand.event(Event::PickedUp { request });
    hand.pass(Duration::from_secs(1));
    hand.resubscribe();
    let renewals = hand.live(Duration::from_secs(60));
    assert!(cell.is_held(hand.now), "{renewals} renewals, {:?}", cell.loss());
}

#[test]
fn max_hold_is_verified_after_reconnect() {
    let mut hand = Hand::new();
    let request =
        hand.want(1, Lease::Watched(lease(30)), Wait::Forever, Some(Duration::from_secs(3600)));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(request);
    hand.event(Event::PickedUp { request });
    hand.event(Event::Down { server: ServerId::ONLY, cause: "x".to_owned() });
    hand.event(Event::PubSubDown);
    hand.connect("run-2");
    assert_eq!(hand.labels(), ["renew"]);
}

#[test]
fn nested_leases_no_storm() {
    let mut hand = Hand::new();
    let outer = hand.want(1, Lease::Fixed(lease(60)), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(outer);
    hand.event(Event::PickedUp { request: outer });
    hand.re_enter(1);
    let renewals = hand.live(Duration::from_secs(60));
    assert!(renewals < 10, "{renewals} renewals in a minute");
}

#[test]
fn shutdown_while_a_reentry_is_in_flight_releases() {
    let mut hand = Hand::new();
    let (_level, _cell) = hand.hold(1);
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Shutdown {
        until: hand.now.plus(Duration::from_secs(5)),
        request: Some(RequestId(99)),
    });
    hand.done(op, grant(0));
    assert_eq!(hand.labels(), ["release"], "finished {} {:?}", hand.finished, hand.answers);
}

/// Simulation, seed 5569: the answer came at the very end, and was reported after `Finished`.
#[test]
fn nothing_follows_the_end_of_a_shutdown() {
    let mut hand = Hand::new();
    hand.hold(1);
    let until = hand.now.plus(Duration::from_secs(2));
    hand.event(Event::Shutdown { until, request: Some(RequestId(99)) });
    let (op, _) = hand.take("release");
    let reply = Reply { time: Some(hand.server_time()), body: freed() };
    let event = Event::Replied { op, server: ServerId::ONLY, outcome: Outcome::Done(reply) };
    let mut effects = Vec::new();
    hand.engine.handle(until, event, &mut effects);
    assert!(matches!(effects.last(), Some(Effect::Finished)), "{effects:?}");
}

#[test]
fn shutdown_while_count_and_renewal_are_in_flight() {
    let mut hand = Hand::new();
    let (outer, cell) = hand.hold(1);
    let inner = hand.re_enter(1);
    hand.event(Event::PickedUp { request: outer });
    hand.pass(Duration::from_secs(10));
    let (renewal, _) = hand.take("renew");
    hand.release(&cell, inner);
    let (lower, _) = hand.take("release");
    hand.event(Event::Shutdown {
        until: hand.now.plus(Duration::from_secs(5)),
        request: Some(RequestId(99)),
    });
    hand.done(renewal, Body::Renew(Some(vec![Renewed::Yes])));
    hand.done(lower, Body::Release(Released::CountSet));
    assert_eq!(hand.labels(), ["release"], "finished {} {:?}", hand.finished, hand.answers);
}

#[test]
fn a_reentry_nobody_picks_up_is_not_renewed_for_ever() {
    let mut hand = Hand::new();
    let (outer, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: outer });
    hand.re_enter(1);
    // The inner future is never polled again; the outer guard goes.
    hand.event(Event::Release { hold: cell.id, level: outer, request: None });
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::CountSet));
    let renewals = hand.live(Duration::from_secs(120));
    assert!(
        !hand.withdrawals.is_empty() || !cell.is_held(hand.now),
        "{renewals} renewals, withdrawals {:?}",
        hand.withdrawals
    );
}

#[test]
fn try_lock_without_an_answer_is_unavailable() {
    let mut hand = Hand::new();
    let first = hand.sleeper(1);
    hand.event(Event::Cancel { request: first });
    hand.leaves();
    hand.pass(Duration::from_millis(300));
    let second = hand.ask(2, Wait::Once);
    hand.take("acquire");
    hand.pass(Duration::from_secs(2));
    let answer = hand.answer(second);
    assert!(matches!(answer, Answer::Failed(Error::Unavailable { .. })), "{answer:?}");
}

#[test]
fn unlock_in_an_outage_is_answered() {
    let mut hand = Hand::new();
    let request = hand.want(1, Lease::Fixed(lease(86_400)), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    hand.event(Event::Down { server: ServerId::ONLY, cause: "x".to_owned() });
    let unlock = hand.release(&cell, request);
    hand.pass(Duration::from_secs(3_600));
    assert!(hand.answers.iter().any(|(other, _)| *other == unlock), "no answer for an hour");
}

#[test]
fn a_repeated_force_does_not_hit_a_stranger() {
    let mut hand = Hand::new();
    hand.event(Event::ForceUnlock {
        name: LockName::new("n").unwrap(),
        from: None,
        request: RequestId(77),
    });
    let hash = |field: &str| {
        Body::Inspect(KeyState::Hash {
            pttl: 9,
            fields: 1,
            field: field.to_owned(),
            count: "1".to_owned(),
        })
    };
    let (op, _) = hand.take("inspect");
    hand.done(op, hash(OTHER));
    let (op, _) = hand.take("force_release");
    hand.unknown(op);
    hand.pass(Duration::from_millis(50));
    let (op, _) = hand.take("force_release");
    // The first one was executed, and the next in line has the lock.
    hand.done(op, Body::Force(Forced::Foreign));
    for (op, command) in std::mem::take(&mut hand.sent) {
        assert_eq!(command.label(), "inspect");
        hand.done(op, hash("6e3d30b7-83b1-433a-9335-5e8b9916d3ac:732"));
    }
    assert!(!hand.labels().contains(&"force_release"), "{:?}", hand.sent);
}

#[test]
fn a_script_that_always_fails_ends_the_wait() {
    // An end that is far away leaves an attempt all of its time.
    for max_hold in [None, Some(Duration::from_secs(3_600))] {
        let mut hand = Hand::new();
        let request = hand.want(1, Lease::Watched(lease(30)), Wait::Forever, max_hold);
        always_fails(hand, request);
    }
}

fn always_fails(mut hand: Hand, request: RequestId) {
    let mut commands = 0;
    for _ in 0..6_000 {
        for (op, _) in std::mem::take(&mut hand.sent) {
            commands += 1;
            let failure = Failure::new(
                FailureKind::Refused,
                "ERR Error running script user_script:1: -READONLY",
            );
            hand.event(Event::Replied {
                op,
                server: ServerId::ONLY,
                outcome: Outcome::Unknown(failure),
            });
        }
        hand.pass(Duration::from_millis(100));
    }
    let clean_ups = hand.counters.snapshot().clean_ups;
    assert!(
        hand.answers.iter().any(|(other, _)| *other == request),
        "open after 10 min, {commands} commands, {clean_ups} clean-ups"
    );
}

#[test]
fn names_that_share_a_channel() {
    let mut hand = Hand::new();
    hand.engine.cx.config.profile = WireProfile::Redisson;
    let first = hand.want_name("x", 1, Lease::Watched(lease(30)), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, held_without_line(20_000));
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done(op, held_without_line(20_000));
    let second = hand.want_name("{x}", 2, Lease::Watched(lease(30)), Wait::Once, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, held_without_line(20_000));
    assert!(matches!(hand.answer(second), Answer::NotGranted));
    hand.pass(Duration::from_secs(2));
    hand.is_open(first);
    assert!(hand.unsubscribed.is_empty(), "{:?}", hand.unsubscribed);
    // The one who is told of a release is this client itself, so that nobody needs to be let go
    // first.
    let third = hand.want_name("{x}", 3, Lease::Watched(lease(30)), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(third);
    hand.release(&cell, third);
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Freed { receivers: Some(1) }));
    let fourth = hand.want_name("{x}", 4, Lease::Watched(lease(30)), Wait::Forever, None);
    hand.take("acquire");
    hand.is_open(fourth);
}

#[test]
fn verify_survives_the_end_of_the_last_watched_level() {
    let mut hand = Hand::new();
    let outer = hand.want(1, Lease::Fixed(lease(3_600)), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    let cell = hand.granted(outer);
    hand.event(Event::PickedUp { request: outer });
    let inner = hand.re_enter(1);
    hand.event(Event::Down { server: ServerId::ONLY, cause: "x".to_owned() });
    hand.event(Event::Up(
        ServerId::ONLY,
        ServerInfo { run_id: "run-2".to_owned(), ..ServerInfo::default() },
    ));
    let (time, _) = hand.take("time");
    hand.event(Event::Verify { hold: cell.id, request: RequestId(77) });
    hand.event(Event::Release { hold: cell.id, level: inner, request: None });
    hand.done(time, Body::Pong);
    assert!(hand.labels().contains(&"renew"), "{:?}", hand.labels());
}

#[test]
fn one_busy_answer_does_not_end_waits_half_a_minute_later() {
    let mut hand = Hand::new();
    let holder = hand.want(1, Lease::Fixed(lease(3_600)), Wait::Forever, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(holder);
    hand.event(Event::PickedUp { request: holder });
    let waiter = hand.ask(2, Wait::Forever);
    hand.event(Event::Ping { request: RequestId(77) });
    let (op, _) = hand.take("ping");
    // The caller does not wait for more.
    hand.event(Event::Cancel { request: RequestId(77) });
    hand.refused(op, FailureKind::Busy);
    // Nothing else has to be sent, so the server is asked whether it is well.
    hand.pass(Duration::from_secs(2));
    let (op, _) = hand.take("time");
    hand.done(op, Body::Pong);
    hand.pass(Duration::from_secs(60));
    hand.nothing_sent();
    hand.is_open(waiter);
}

#[test]
fn late_answers_are_not_answered_at_the_pace_of_the_line() {
    let mut hand = Hand::new();
    let short = LeaseMs::checked("lease", Duration::from_millis(10)).unwrap();
    let request = hand.want(1, Lease::Fixed(short), Wait::Forever, None);
    let mut commands = 0;
    for _ in 0..500 {
        // 20 ms there and back.
        hand.pass(Duration::from_millis(15));
        let arrived = hand.server_time();
        let sent = std::mem::take(&mut hand.sent);
        hand.pass(Duration::from_millis(5));
        for (op, command) in sent {
            commands += 1;
            let body = match command {
                Command::Acquire { not_after, .. } => Body::Acquire(if arrived > not_after {
                    Acquired::Late
                } else {
                    Acquired::Granted { token: 1 }
                }),
                _ => Body::Release(Released::Gone),
            };
            let reply = Reply { time: Some(arrived), body };
            hand.event(Event::Replied {
                op,
                server: ServerId::ONLY,
                outcome: Outcome::Done(reply),
            });
        }
    }
    assert!(
        commands < 200,
        "{commands} commands in 10 s, answered {:?}",
        hand.answers.iter().any(|(other, _)| *other == request)
    );
}

#[test]
fn late_renewals_are_not_repeated_at_the_pace_of_the_line() {
    let mut hand = Hand::new();
    let (request, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request });
    hand.pass(LEASE / 3);
    let mut commands = 0;
    for _ in 0..5_000 {
        for (op, _) in std::mem::take(&mut hand.sent) {
            commands += 1;
            hand.done(op, Body::Renew(None));
        }
        hand.pass(Duration::from_millis(1));
    }
    assert!((2..50).contains(&commands), "{commands} commands in 5 s");
    hand.pass(Duration::from_secs(2));
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(cell.is_held(hand.now));
}

#[test]
fn a_hint_that_overtakes_the_grant() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    let channel: Arc<str> = "redisson_lock__client:{11111111-2222-4333-8444-555555555555}".into();
    hand.event(Event::Message { channel, payload: "n".to_owned() });
    hand.done(op, grant(1));
    hand.granted(request);
    assert_eq!(hand.labels(), ["renew"]);
}

/// What a failover does to a release that the old primary had not copied.
#[test]
fn a_release_that_the_server_forgot_is_repeated() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let old = format!("{}:{}", "11111111-2222-4333-8444-555555555555", cell.id);
    hand.release(&cell, level);
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    let waiter = hand.ask(2, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(
        op,
        Body::Acquire(Acquired::Held {
            pttl: 20_000,
            holder: old.clone(),
            place: None,
            others: None,
        }),
    );
    let (op, command) = hand.take("release");
    assert!(
        matches!(&command, Command::Release { field, share: Share::NOTHING, .. } if *field == old),
        "{command:?}"
    );
    hand.done(op, freed());
    assert_eq!(hand.counters.snapshot().clean_ups, 0, "one answer is enough");
    // Whether or not its subscription is there by now, or ever.
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(2));
    hand.granted(waiter);
}

/// A client that did not run for longer than its lease.
#[test]
fn a_release_that_comes_to_nothing_after_its_key_has_run_out_is_in_nobodys_way() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let release = hand.release(&cell, level);
    let (op, _) = hand.take("release");
    hand.now = hand.now.plus(2 * LEASE);
    hand.unknown(op);
    assert!(matches!(hand.answer(release), Answer::Failed(Error::Unavailable { .. })));
    hand.sent.clear();
    hand.ask(2, Wait::Once);
    assert_eq!(hand.labels(), ["time"], "asks the server");
}

/// By a clock that is slower than ours the key outlives its lease, and keeps everybody out until
/// then.
#[test]
fn a_release_is_not_given_up_while_its_key_may_live() {
    for lives in [true, false] {
        let mut hand = Hand::new();
        let level = hand.want_name("m", 1, Lease::Fixed(lease(20)), Wait::Forever, None);
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(1));
        let cell = hand.granted(level);
        hand.cut();
        let release = hand.release(&cell, level);
        // The lease began when the acquire was executed, which was at most its timeout after it was
        // sent.
        hand.pass(Duration::from_secs(1 + 20) + Duration::from_millis(200));
        hand.is_open(release);
        let info = ServerInfo { run_id: "run-1".to_owned(), ..ServerInfo::default() };
        hand.event(Event::Up(ServerId::ONLY, info));
        assert_eq!(hand.labels(), ["time", "release"]);
        let (op, _) = hand.sent[1];
        hand.done(op, if lives { freed() } else { Body::Release(Released::Gone) });
        match hand.answer(release) {
            Answer::Done => assert!(lives),
            Answer::Failed(Error::Lost { reason: LossReason::Expired, .. }) => assert!(!lives),
            other => panic!("{other:?}"),
        }
    }
}

/// Names that only look like a hold of ours that is over.
#[test]
fn only_what_is_over_is_released_again() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let ours = "11111111-2222-4333-8444-555555555555";
    let live = format!("{ours}:{}", cell.id);
    for holder in [live, format!("{ours}:01"), format!("{ours}:1:read"), OTHER.to_owned()] {
        hand.want_name("m", 2, Lease::Watched(lease(30)), Wait::Once, None);
        let (op, _) = hand.take("acquire");
        hand.done(
            op,
            Body::Acquire(Acquired::Held {
                pttl: 20_000,
                holder: holder.clone(),
                place: None,
                others: None,
            }),
        );
        hand.confirm_subscriptions();
        assert_eq!(
            hand.labels().iter().filter(|label| **label == "release").count(),
            0,
            "{holder}"
        );
        hand.sent.clear();
    }
}
