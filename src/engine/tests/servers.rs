//! Several servers: what happens to one concerns its own locks only, and slots lead from one to
//! another.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::Routes;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::name::LockName;
use crate::base::name::SLOTS;
use crate::base::name::WireProfile;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::engine::schedule::WINDOW;
use crate::engine::servers::Servers;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::reply::Reply;
use crate::settings::config::Sharding;

use super::Hand;
use super::LEASE;
use super::grant;
use super::held;
use super::watched;

pub(super) const A: ServerId = ServerId(1);
pub(super) const B: ServerId = ServerId(2);

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

/// Everything at A but these slots.
pub(super) fn routes(elsewhere: &[(&str, ServerId)]) -> Routes {
    let mut servers = vec![A; usize::from(SLOTS)];
    for (lock, server) in elsewhere {
        servers[usize::from(name(lock).slot())] = *server;
    }
    Routes::Slots { servers: servers.into(), sharded: true }
}

impl Hand {
    /// "a" at one server, "b" at the other.
    pub(super) fn two() -> Self {
        let mut hand = Self::unconnected();
        hand.event(Event::PubSubUp);
        hand.event(Event::Routes(routes(&[("b", B)])));
        for server in [A, B] {
            hand.up(server, "first");
        }
        hand.confirm_subscriptions();
        hand
    }

    pub(super) fn up(&mut self, server: ServerId, run_id: &str) {
        let info = ServerInfo { run_id: format!("{server:?} {run_id}"), ..ServerInfo::default() };
        self.event(Event::Up(server, info));
        let at = self
            .labels()
            .iter()
            .position(|label| *label == "time")
            .expect("the clock is asked first");
        let (op, _) = self.sent.remove(at);
        assert_eq!(self.targets[&op], server);
        self.done_by(op, Body::Pong);
    }

    fn down(&mut self, server: ServerId) {
        self.event(Event::Down { server, cause: "cut".to_owned() });
    }

    pub(super) fn done_by(&mut self, op: OpId, body: Body) {
        let reply = Reply { time: Some(self.server_time()), body };
        let server = self.targets[&op];
        self.event(Event::Replied { op, server, outcome: Outcome::Done(reply) });
    }

    fn refused_by(&mut self, op: OpId, kind: FailureKind) {
        let server = self.targets[&op];
        let failure = Failure::new(kind, "no");
        self.event(Event::Replied { op, server, outcome: Outcome::NotExecuted(failure) });
    }

    fn unknown_by(&mut self, server: ServerId, op: OpId) {
        let failure = Failure::new(FailureKind::Link, "timed out");
        self.event(Event::Replied { op, server, outcome: Outcome::Unknown(failure) });
    }

    fn unknown_of(&mut self, op: OpId) {
        self.unknown_by(self.targets[&op], op);
    }

    fn message_for(&mut self, lock: &str) {
        let channel = name(lock).channel(WireProfile::Native);
        self.event(Event::Message { channel, payload: "0".to_owned() });
    }

    pub(super) fn ask_for(&mut self, lock: &str) -> RequestId {
        self.want_name(lock, self.requests + 1, watched(), Wait::Forever, None)
    }

    fn hold_of(&mut self, lock: &str) -> Arc<HoldCell> {
        let request = self.ask_for(lock);
        let (op, _) = self.take("acquire");
        self.done_by(op, grant(1));
        let cell = self.granted(request);
        self.event(Event::PickedUp { request });
        cell
    }

    /// What was sent since the last look: where to, and the names renewed.
    fn renewals(&mut self) -> Vec<(OpId, ServerId, Vec<String>)> {
        let sent = std::mem::take(&mut self.sent);
        let one = |(op, command): (OpId, Command)| match command {
            Command::Renew { holds, .. } => {
                let names = holds.iter().map(|item| item.name.to_string()).collect();
                Some((op, self.targets[&op], names))
            }
            _ => None,
        };
        sent.into_iter().filter_map(one).collect()
    }
}

#[test]
fn a_server_that_is_down_stops_its_own_locks_only() {
    let mut hand = Hand::two();
    let (a, b) = (hand.hold_of("a"), hand.hold_of("b"));
    hand.down(A);
    assert!(a.is_suspect() && !b.is_suspect());
    hand.ask_for("{a}2");
    hand.nothing_sent();
    hand.ask_for("{b}2");
    let (op, _) = hand.take("acquire");
    assert_eq!(hand.targets[&op], B);
}

#[test]
fn an_outage_ends_the_waits_of_its_own_server_only() {
    let mut hand = Hand::two();
    hand.down(A);
    let (a, b) = (hand.ask_for("a"), hand.ask_for("b"));
    let (op, _) = hand.take("acquire");
    hand.done_by(op, held(60_000));
    hand.confirm_subscriptions();
    for _ in 0..31 {
        hand.pass(Duration::from_secs(1));
        for (op, _) in std::mem::take(&mut hand.sent) {
            hand.done_by(op, held(60_000));
        }
    }
    assert!(matches!(hand.answer(a), Answer::Failed(Error::Unavailable { .. })));
    hand.is_open(b);
}

/// One that is refused, and sleeps; what it does now and then is refused, too.
fn sleeper_for(hand: &mut Hand, lock: &str) -> RequestId {
    let request = hand.ask_for(lock);
    let (op, _) = hand.take("acquire");
    hand.done_by(op, held(600_000));
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done_by(op, held(600_000));
    request
}

/// Passes time until `end`. What is sent to `silent` has no answer, when its time is over.
fn pass_until(hand: &mut Hand, end: Moment, silent: Option<ServerId>) {
    let mut open: Vec<(Moment, OpId)> = Vec::new();
    while hand.now < end {
        for (op, _) in std::mem::take(&mut hand.sent) {
            if silent == Some(hand.targets[&op]) {
                open.push((hand.now.plus(Duration::from_secs(1)), op));
            } else {
                hand.done_by(op, held(600_000));
            }
        }
        hand.pass(Duration::from_millis(10));
        let (over, left): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|(due, _)| *due <= hand.now);
        open = left;
        for (_, op) in over {
            hand.unknown_of(op);
        }
    }
}

#[test]
fn a_login_that_one_server_refuses_ends_the_questions_to_it_only() {
    let mut hand = Hand::two();
    hand.down(A);
    hand.down(B);
    let (a, b) = (RequestId(900), RequestId(901));
    hand.event(Event::Inspect { name: name("a"), request: a });
    hand.event(Event::Inspect { name: name("b"), request: b });
    hand.event(Event::ConnectFailed {
        server: A,
        failure: Failure::new(FailureKind::Auth, "WRONGPASS"),
    });
    assert!(matches!(hand.answer(a), Answer::Failed(Error::Auth { .. })));
    hand.is_open(b);
}

#[test]
fn lock_channels_are_sharded_as_the_setting_says_and_the_clients_own_never_is() {
    let cases = [
        (Sharding::On, None, true),
        (Sharding::On, Some(false), true),
        (Sharding::Auto, None, false),
        (Sharding::Auto, Some(false), false),
        (Sharding::Auto, Some(true), true),
        (Sharding::Off, None, false),
        (Sharding::Off, Some(true), false),
    ];
    for (setting, cluster, expected) in cases {
        let mut servers = Servers::default();
        if let Some(sharded) = cluster {
            servers.reroute(Routes::Slots { servers: Arc::from([A; 4]), sharded });
        }
        assert_eq!(servers.is_sharded(setting), expected, "{setting}, cluster: {cluster:?}");
    }
    for (mut hand, expected) in [(Hand::two(), true), (Hand::new(), false)] {
        hand.resubscribe();
        hand.ask_for("a");
        let (op, _) = hand.take("acquire");
        hand.done_by(op, held(20_000));
        let sharded = |prefix: &str| -> Vec<bool> {
            let known = hand.sharded.iter().filter(|(channel, _)| channel.starts_with(prefix));
            known.map(|(_, sharded)| *sharded).collect()
        };
        assert_eq!(sharded("redisson_lock__channel"), [expected]);
        assert_eq!(sharded("redisson_lock__client"), [false]);
    }
}

#[test]
fn slots_without_a_server_are_noticed() {
    let mut servers = Servers::default();
    assert!(!servers.has_unserved_slots());
    servers.reroute(Routes::Slots { servers: Arc::from([A, B]), sharded: true });
    assert!(!servers.has_unserved_slots());
    servers.reroute(Routes::Slots { servers: Arc::from([A, ServerId::ONLY]), sharded: true });
    assert!(servers.has_unserved_slots());
}

#[test]
fn a_server_is_remembered_while_it_has_slots_or_a_connection() {
    let mut servers = Servers::default();
    for server in [A, B] {
        servers.connected(Moment::ZERO, server, ServerInfo::default());
    }
    servers.reroute(Routes::Slots { servers: Arc::from([B; 4]), sharded: true });
    servers.get_mut(B).disconnected();
    servers.forget_unused();
    assert!(servers.get(A).is_some() && servers.get(B).is_some());
    servers.get_mut(A).disconnected();
    servers.forget_unused();
    assert!(servers.get(A).is_none() && servers.get(B).is_some());
}

/// In a cluster without sharded pub/sub nobody knows how many were told. Where there is no line,
/// others are let go first only if they could not have had the lock for as long as a pause.
#[test]
fn a_brief_hold_lets_nobody_go_first_who_may_not_be_counted() {
    for (lasted, steps_back) in [(Duration::ZERO, false), (Duration::from_secs(1), true)] {
        let mut hand = Hand::two();
        hand.engine.cx.config.sharding = Sharding::Off;
        hand.engine.cx.config.profile = WireProfile::Redisson;
        let request = hand.ask_for("a");
        let (op, _) = hand.take("acquire");
        hand.done_by(op, grant(1));
        let cell = hand.granted(request);
        hand.pass(lasted);
        hand.release(&cell, request);
        let (op, _) = hand.take("release");
        hand.done_by(op, Body::Release(Released::Freed { receivers: Some(0) }));
        hand.ask_for("a");
        assert_eq!(hand.sent.is_empty(), steps_back, "{lasted:?}");
    }
}

/// While the waits are watched already, because of another server.
#[test]
fn the_next_outage_ends_waits_as_soon_as_the_first() {
    let mut hand = Hand::two();
    let b = sleeper_for(&mut hand, "b");
    hand.down(A);
    let a = hand.ask_for("a");
    let down = hand.now;
    pass_until(&mut hand, down.plus(Duration::from_secs(5)), None);
    // One more instant at which they are looked at.
    hand.ask_for("{a}2");
    pass_until(&mut hand, down.plus(Duration::from_secs(29)), None);
    hand.is_open(a);
    // Found out after the limit of the first one is over.
    pass_until(&mut hand, down.plus(Duration::from_millis(29_500)), None);
    hand.message_for("b");
    let sent = hand.now;
    pass_until(&mut hand, sent.plus(Duration::from_millis(29_900)), Some(B));
    assert!(matches!(hand.answer(a), Answer::Failed(Error::Unavailable { .. })));
    hand.is_open(b);
    pass_until(&mut hand, sent.plus(Duration::from_millis(30_010)), Some(B));
    assert!(matches!(hand.answer(b), Answer::Failed(Error::Unavailable { .. })));
}

#[test]
fn an_answer_meanwhile_is_the_begin_of_the_outage_of_others() {
    let mut hand = Hand::two();
    let other = sleeper_for(&mut hand, "{a}2");
    let sent = hand.now;
    hand.ask_for("a");
    let (op, _) = hand.take("acquire");
    hand.pass(Duration::from_millis(400));
    hand.ask_for("{a}3");
    let (answered, _) = hand.take("acquire");
    hand.pass(Duration::from_millis(200));
    hand.done_by(answered, held(600_000));
    hand.pass(Duration::from_millis(400));
    hand.unknown_of(op);
    hand.down(A);
    hand.pass(sent.plus(Duration::from_millis(30_500)).since(hand.now));
    hand.is_open(other);
    hand.pass(Duration::from_millis(100));
    assert!(matches!(hand.answer(other), Answer::Failed(Error::Unavailable { .. })));
}

/// It was asked last, and nobody knows since when.
#[test]
fn a_call_that_was_sent_on_begins_an_outage_when_it_fails() {
    let mut hand = Hand::two();
    let b = sleeper_for(&mut hand, "b");
    hand.ask_for("a");
    let (op, _) = hand.take("acquire");
    hand.pass(Duration::from_secs(1));
    let failed = hand.now;
    hand.unknown_by(B, op);
    hand.down(B);
    hand.pass(failed.plus(Duration::from_millis(29_999)).since(hand.now));
    hand.is_open(b);
    hand.pass(Duration::from_millis(1));
    assert!(matches!(hand.answer(b), Answer::Failed(Error::Unavailable { .. })));
}

#[test]
fn a_slot_that_has_moved_is_asked_about_at_once() {
    let mut hand = Hand::two();
    let (a, b) = (hand.hold_of("a"), hand.hold_of("b"));
    hand.event(Event::Routes(routes(&[("a", B), ("b", B)])));
    assert!(a.is_suspect() && !b.is_suspect());
    let renewals = hand.renewals();
    let [(op, server, names)] = renewals.as_slice() else { panic!("{renewals:?}") };
    assert_eq!((*server, names.as_slice()), (B, ["a".to_owned()].as_slice()));
    hand.done_by(*op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(!a.is_suspect() && a.is_held(hand.now));
}

#[test]
fn what_the_new_server_does_not_know_was_lost_by_the_old_one() {
    let mut hand = Hand::two();
    let a = hand.hold_of("a");
    hand.event(Event::Routes(routes(&[("a", B), ("b", B)])));
    let (op, ..) = hand.renewals().remove(0);
    hand.done_by(op, Body::Renew(Some(vec![Renewed::Gone])));
    assert_eq!(a.loss(), Some(LossReason::ServerLostData));
}

#[test]
fn what_the_new_server_knew_and_does_not_any_more_was_removed() {
    let mut hand = Hand::two();
    let a = hand.hold_of("a");
    hand.event(Event::Routes(routes(&[("a", B), ("b", B)])));
    let (op, ..) = hand.renewals().remove(0);
    hand.done_by(op, Body::Renew(Some(vec![Renewed::Yes])));
    hand.pass(LEASE / 3);
    let (op, ..) = hand.renewals().remove(0);
    hand.done_by(op, Body::Renew(Some(vec![Renewed::Gone])));
    assert_eq!(a.loss(), Some(LossReason::Removed));
}

#[test]
fn a_waiter_follows_its_slot() {
    let mut hand = Hand::two();
    hand.ask_for("a");
    let (op, _) = hand.take("acquire");
    hand.refused_by(op, FailureKind::SlotMoving);
    hand.event(Event::Routes(routes(&[("a", B), ("b", B)])));
    let (op, _) = hand.take("acquire");
    assert_eq!(hand.targets[&op], B, "without waiting for the back-off to end");
}

#[test]
fn keys_of_one_script_share_a_slot() {
    let mut hand = Hand::two();
    for lock in ["a", "{a}2", "c", "b"] {
        hand.hold_of(lock);
    }
    hand.pass(LEASE / 3);
    let mut renewals: Vec<_> =
        hand.renewals().into_iter().map(|(_, server, names)| (server, names)).collect();
    renewals.sort();
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(renewals, [(A, names(&["a", "{a}2"])), (A, names(&["c"])), (B, names(&["b"]))]);
}

#[test]
fn a_batch_of_which_one_key_has_moved_is_split() {
    let mut hand = Hand::two();
    let (first, second) = (hand.hold_of("a"), hand.hold_of("{a}2"));
    hand.pass(LEASE / 3);
    let (op, _, names) = hand.renewals().remove(0);
    assert_eq!(names.len(), 2);
    hand.refused_by(op, FailureKind::SlotMoving);
    let alone = hand.renewals();
    assert_eq!(alone.len(), 2);
    for (op, ..) in alone {
        hand.done_by(op, Body::Renew(Some(vec![Renewed::Yes])));
    }
    assert!(first.is_held(hand.now) && second.is_held(hand.now));
    assert_eq!(hand.counters.snapshot().renewal_failures, 0);
}

#[test]
fn a_renewal_waits_for_its_server_without_keeping_anybody_busy() {
    let mut hand = Hand::two();
    let a = hand.hold_of("a");
    hand.down(A);
    hand.pass(LEASE / 3 + Duration::from_secs(1));
    assert!(hand.renewals().is_empty());
    assert!(hand.engine.next_timeout().is_some_and(|at| at > hand.now));
    assert_eq!(hand.counters.snapshot().registered_renewals, 1);
    hand.up(A, "first");
    let (op, ..) = hand.renewals().remove(0);
    hand.done_by(op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(a.is_held(hand.now) && !a.is_suspect());
}

#[test]
fn a_subscription_on_its_way_is_not_asked_for_again() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    let (channel, generation) = hand.subscriptions.pop().unwrap();
    let result = Err(Failure::new(FailureKind::Busy, "not now"));
    hand.event(Event::Subscribed { channel: Arc::clone(&channel), generation, result });
    hand.event(Event::SubscriptionLost { channel });
    assert_eq!(hand.subscriptions.len(), 1);
    hand.pass(Duration::from_secs(2));
    assert_eq!(hand.subscriptions.len(), 1);
}

#[test]
fn each_server_has_its_own_clock() {
    let mut hand = Hand::two();
    let offset = hand.offset;
    hand.down(B);
    // The other server's clock is a minute ahead.
    hand.offset += 60_000_000;
    hand.up(B, "first");
    hand.offset = offset;
    hand.sent.clear();
    let not_after = |hand: &mut Hand, lock| {
        hand.ask_for(lock);
        match hand.take("acquire").1 {
            Command::Acquire { not_after, .. } => not_after,
            other => panic!("{other:?}"),
        }
    };
    let after = |hand: &Hand, us| {
        ServerTime(hand.now.micros() + offset + us).shared(Duration::from_secs(1))
    };
    assert_eq!(not_after(&mut hand, "a"), after(&hand, 1_000_000));
    assert_eq!(not_after(&mut hand, "b"), after(&hand, 61_000_000));
}

#[test]
fn a_slot_on_its_way_goes_by_the_clock_of_who_answers() {
    let mut hand = Hand::two();
    let offset = hand.offset;
    let answer = |hand: &mut Hand, op, body| {
        // That server's clock is a minute ahead, and the call was sent on to it.
        let time = Some(ServerTime(hand.now.micros() + offset + 60_000_000));
        hand.event(Event::Replied { op, server: B, outcome: Outcome::Done(Reply { time, body }) });
    };
    let left = |hand: &Hand, time: ServerTime| time.0 - hand.now.micros() - offset;
    let request = hand.ask_for("a");
    let (op, _) = hand.take("acquire");
    answer(&mut hand, op, Body::Acquire(Acquired::Late));
    assert_eq!(hand.labels(), ["release", "acquire"]);
    let (op, _) = hand.sent.remove(0);
    answer(&mut hand, op, Body::Release(Released::Gone));
    let (op, command) = hand.take("acquire");
    let Command::Acquire { not_after, .. } = command else { panic!("{command:?}") };
    let expected =
        ServerTime(hand.now.micros() + offset + 61_000_000).shared(Duration::from_secs(1));
    assert_eq!(not_after, expected);
    answer(&mut hand, op, grant(1));
    let cell = hand.granted(request);
    hand.event(Event::PickedUp { request });
    hand.pass(LEASE / 3);
    let (op, command) = hand.take("renew");
    let Command::Renew { not_after, .. } = command else { panic!("{command:?}") };
    assert_eq!(left(&hand, not_after), 61_000_000);
    answer(&mut hand, op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(cell.is_held(hand.now));
    // It has come back: the server that has the slot answers for it again.
    hand.pass(LEASE / 3);
    let (op, _) = hand.take("renew");
    hand.done_by(op, Body::Renew(Some(vec![Renewed::Yes])));
    hand.pass(LEASE / 3);
    let (_, command) = hand.take("renew");
    let Command::Renew { not_after, .. } = command else { panic!("{command:?}") };
    assert_eq!(left(&hand, not_after), 1_000_000);
}

const C: ServerId = ServerId(3);

/// Who has "a" is given. "b" is at B and "c" at C.
fn with_a_at(server: ServerId) -> Routes {
    routes(&[("a", server), ("b", B), ("c", C)])
}

/// Servers A, B and C. The clocks of B and C are one and two minutes ahead of that of A.
fn three_clocks() -> Hand {
    let mut hand = Hand::unconnected();
    hand.event(Event::PubSubUp);
    hand.event(Event::Routes(with_a_at(A)));
    let offset = hand.offset;
    for (minutes, server) in (0..).zip([A, B, C]) {
        hand.offset = offset + minutes * 60_000_000;
        hand.up(server, "first");
    }
    hand.offset = offset;
    hand.confirm_subscriptions();
    hand
}

/// How many minutes the time in an attempt is ahead of the clock of A: whose clock it is.
fn minutes_ahead(hand: &Hand, command: &Command) -> i64 {
    let Command::Acquire { not_after, .. } = command else { panic!("{command:?}") };
    (not_after.0 - hand.now.micros() - hand.offset) / 60_000_000
}

/// An answer of another server than the one that has the slot counts until that one answers, or
/// until the slot has moved.
#[test]
fn whoever_answers_for_a_slot_gives_its_time_until_the_slot_moves() {
    let cases: [(&str, &[ServerId], &[ServerId], i64); 7] = [
        ("nobody else has answered", &[], &[], 0),
        ("it is on its way to B", &[B], &[], 1),
        ("it went to B and came back", &[B, A], &[], 0),
        ("it has arrived at B", &[B], &[B], 1),
        ("it has moved to B and back: A is asked, and has it", &[B], &[B, A], 0),
        ("it has moved to C, whatever B said", &[B], &[C], 2),
        ("it has moved on to C from B", &[B], &[B, C], 2),
    ];
    for (case, answers, moves, expected) in cases {
        let mut hand = three_clocks();
        for by in answers {
            let request = hand.ask_for("a");
            let (op, _) = hand.take("acquire");
            let ahead = i64::from(by.0 - A.0) * 60_000_000;
            let time = Some(ServerTime(hand.server_time().0 + ahead));
            let outcome = Outcome::Done(Reply { time, body: held(20_000) });
            hand.event(Event::Replied { op, server: *by, outcome });
            hand.event(Event::Cancel { request });
            // It leaves the line.
            hand.take("release");
        }
        for server in moves {
            hand.event(Event::Routes(with_a_at(*server)));
        }
        hand.ask_for("a");
        let (_, command) = hand.take("acquire");
        assert_eq!(minutes_ahead(&hand, &command), expected, "{case}");
    }
}

/// A failure that comes from another server is no answer: the time goes on being that of the server
/// that has the slot.
#[test]
fn a_failure_gives_no_time() {
    let failure = |kind| Failure::new(kind, "no");
    let moving = Outcome::NotExecuted(failure(FailureKind::SlotMoving));
    for outcome in [moving, Outcome::Unknown(failure(FailureKind::Link))] {
        let mut hand = three_clocks();
        hand.ask_for("a");
        let (op, _) = hand.take("acquire");
        hand.event(Event::Replied { op, server: B, outcome: outcome.clone() });
        hand.pass(Duration::from_millis(500));
        let again = hand.sent.iter().find(|(_, command)| command.label() == "acquire");
        let (_, command) = again.expect("another attempt");
        assert_eq!(minutes_ahead(&hand, command), 0, "{outcome:?}");
    }
}

/// The line of renewals belongs to the server that was asked. If another answers, the room is made
/// there all the same, and the other's line is as it was.
#[test]
fn a_renewal_that_another_server_answers_makes_room_where_it_was_sent() {
    let mut hand = Hand::two();
    let count = WINDOW + 50;
    let cells: Vec<_> = (0..count).map(|number| hand.hold_of(&format!("{{a}}{number}"))).collect();
    let asked = |hand: &mut Hand| {
        let sent = hand.renewals();
        let holds = sent.iter().map(|(_, _, names)| names.len()).sum::<usize>();
        (sent, holds)
    };
    hand.resubscribe();
    let (sent, first) = asked(&mut hand);
    assert_eq!(first, WINDOW);
    let mut answered = 0;
    for (op, server, names) in sent {
        assert_eq!(server, A);
        let reply = Reply {
            time: Some(hand.server_time()),
            body: Body::Renew(Some(vec![Renewed::Yes; names.len()])),
        };
        hand.event(Event::Replied { op, server: B, outcome: Outcome::Done(reply) });
        answered += names.len();
    }
    assert_eq!(answered, WINDOW);
    let (_, rest) = asked(&mut hand);
    assert_eq!(rest, 50, "those that had to wait");
    assert!(cells.iter().all(|cell| cell.is_held(hand.now)));
}

/// A hold is of the life of the server that granted or renewed it, wherever the command was sent.
#[test]
fn a_hold_belongs_to_the_server_that_answered() {
    for renewed in [false, true] {
        let mut hand = Hand::two();
        let request = hand.ask_for("a");
        let (op, _) = hand.take("acquire");
        let by = if renewed { A } else { B };
        let reply = |hand: &Hand, body| Reply { time: Some(hand.server_time()), body };
        let outcome = Outcome::Done(reply(&hand, grant(1)));
        hand.event(Event::Replied { op, server: by, outcome });
        let cell = hand.granted(request);
        hand.event(Event::PickedUp { request });
        if renewed {
            hand.pass(LEASE / 3);
            let (op, ..) = hand.renewals().remove(0);
            let outcome = Outcome::Done(reply(&hand, Body::Renew(Some(vec![Renewed::Yes]))));
            hand.event(Event::Replied { op, server: B, outcome });
        }
        hand.event(Event::Routes(routes(&[("a", B), ("b", B)])));
        let (op, ..) = hand.renewals().remove(0);
        hand.done_by(op, Body::Renew(Some(vec![Renewed::Gone])));
        assert_eq!(cell.loss(), Some(LossReason::Removed), "renewed: {renewed}");
    }
}

#[test]
fn a_slot_that_nobody_serves_is_an_outage() {
    let mut hand = Hand::two();
    hand.event(Event::Routes(routes(&[("a", ServerId::ONLY), ("b", B)])));
    let a = hand.ask_for("a");
    hand.nothing_sent();
    let b = hand.ask_for("b");
    hand.take("acquire");
    hand.pass(Duration::from_secs(31));
    assert!(matches!(hand.answer(a), Answer::Failed(Error::Unavailable { .. })));
    hand.is_open(b);
}

#[test]
fn a_client_is_ready_without_a_server_that_cannot_be_reached() {
    let mut hand = Hand::unconnected();
    hand.event(Event::PubSubUp);
    hand.event(Event::Routes(routes(&[("b", B)])));
    let ready = RequestId(99);
    hand.event(Event::Ready { request: ready });
    hand.up(A, "first");
    hand.confirm_subscriptions();
    hand.is_open(ready);
    let failure = Failure::new(FailureKind::Link, "refused");
    hand.event(Event::ConnectFailed { server: B, failure });
    assert!(matches!(hand.answer(ready), Answer::Done));
}

#[test]
fn a_lost_subscription_is_made_again_and_its_name_looked_at() {
    let mut hand = Hand::two();
    hand.ask_for("a");
    let (op, _) = hand.take("acquire");
    hand.done_by(op, held(60_000));
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done_by(op, held(60_000));
    hand.nothing_sent();
    let channel: Arc<str> = "redisson_lock__channel__{a}".into();
    hand.event(Event::SubscriptionLost { channel });
    assert_eq!(hand.subscriptions.len(), 1);
    hand.nothing_sent();
    hand.confirm_subscriptions();
    hand.take("acquire");
}

#[test]
fn a_failover_that_keeps_the_process_unknown_is_told_by_its_address() {
    let mut hand = Hand::unconnected();
    let info = |address: &str| ServerInfo { address: address.to_owned(), ..ServerInfo::default() };
    hand.event(Event::Up(ServerId::ONLY, info("one:6379")));
    hand.event(Event::PubSubUp);
    let (op, _) = hand.take("time");
    hand.done(op, Body::Pong);
    hand.confirm_subscriptions();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    hand.down(ServerId::ONLY);
    hand.event(Event::Up(ServerId::ONLY, info("two:6379")));
    let (op, _) = hand.take("time");
    hand.done(op, Body::Pong);
    let (op, ..) = hand.renewals().remove(0);
    hand.done_by(op, Body::Renew(Some(vec![Renewed::Gone])));
    assert_eq!(cell.loss(), Some(LossReason::ServerLostData));
}

#[test]
fn the_state_of_the_links_is_shown_when_it_changes() {
    let mut hand = Hand::new();
    let connected = |hand: &Hand| {
        hand.counters.links(hand.now).iter().map(|link| link.is_connected).collect::<Vec<_>>()
    };
    assert_eq!(connected(&hand), [true]);
    hand.cut();
    assert_eq!(connected(&hand), [false]);
    hand.connect("run-1");
    assert_eq!(connected(&hand), [true]);
}
