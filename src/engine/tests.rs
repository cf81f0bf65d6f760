//! The engine by hand: one event, then what it wants. The simulation finds what nobody thought of; these say what was
//! thought of, rule by rule.

mod allocations;
mod corners;
mod details;
mod drops;
mod limits;
mod memory;
mod questions;
mod servers;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::cell::Directory;
use crate::cell::HoldCell;
use crate::clock::Moment;
use crate::config::Config;
use crate::config::Sharding;
use crate::engine::Engine;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Effect;
use crate::engine::event::Event;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::error::Error;
use crate::error::LossReason;
use crate::lease::Lease;
use crate::lease::LeaseMs;
use crate::name::LockName;
use crate::name::WireProfile;
use crate::owner::OwnerKey;
use crate::scripts::reentrant::Acquired;
use crate::scripts::reentrant::Body;
use crate::scripts::reentrant::Command;
use crate::scripts::reentrant::Forced;
use crate::scripts::reentrant::HandedOff;
use crate::scripts::reentrant::KeyState;
use crate::scripts::reentrant::Released;
use crate::scripts::reentrant::Renewed;
use crate::scripts::reentrant::Reply;
use crate::scripts::reentrant::ServerTime;
use crate::stats::Counters;

const OTHER: &str = "6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731";
const CHANNEL: &str = "redisson_lock__channel__{n}";
const LEASE: Duration = Duration::from_secs(30);

struct Hand {
    engine: Engine,
    now: Moment,
    /// Server clock minus ours, in microseconds.
    offset: i64,
    /// What was wanted since the last look.
    sent: Vec<(OpId, Command)>,
    targets: HashMap<OpId, ServerId>,
    answers: Vec<(RequestId, Answer)>,
    reports: Vec<Report>,
    subscriptions: Vec<(Arc<str>, u64)>,
    unsubscribed: Vec<Arc<str>>,
    withdrawals: Vec<RequestId>,
    reconnects: u32,
    counters: Arc<Counters>,
    directory: Arc<Directory>,
    finished: bool,
    requests: u64,
    /// Memory allocations of the engine so far.
    allocations: u64,
}

impl Hand {
    /// Connected, the clock known, the client channel confirmed.
    fn new() -> Self {
        let mut hand = Self::unconnected();
        hand.connect("run-1");
        hand.confirm_subscriptions();
        hand
    }

    fn unconnected() -> Self {
        let config = Config {
            client_id: "11111111-2222-4333-8444-555555555555".to_owned(),
            lease: LeaseMs::checked("lease", LEASE).unwrap(),
            command_timeout: Duration::from_secs(1),
            outage_limit: Duration::from_secs(30),
            fallback: Duration::from_secs(5),
            profile: WireProfile::Default,
            sharding: Sharding::Auto,
            hand_off: true,
            max_waiters: 5,
            max_hold_count: 3,
        };
        let (directory, counters) = (Arc::new(Directory::default()), Arc::new(Counters::default()));
        Self {
            engine: Engine::new(config, Arc::clone(&directory), Arc::clone(&counters)),
            now: Moment(1_000_000_000_000),
            offset: 1_700_000_000_000_000,
            sent: Vec::new(),
            targets: HashMap::new(),
            answers: Vec::new(),
            reports: Vec::new(),
            subscriptions: Vec::new(),
            unsubscribed: Vec::new(),
            withdrawals: Vec::new(),
            reconnects: 0,
            counters,
            directory,
            finished: false,
            requests: 0,
            allocations: 0,
        }
    }

    fn connect(&mut self, run_id: &str) {
        let time = self.link_up(run_id);
        self.event(Event::PubSubUp);
        self.done(time, Body::Pong);
    }

    /// The server is there, and its clock is asked for.
    fn link_up(&mut self, run_id: &str) -> OpId {
        let info = ServerInfo { run_id: run_id.to_owned(), ..ServerInfo::default() };
        self.event(Event::Up(ServerId::ONLY, info));
        self.take("time").0
    }

    fn event(&mut self, event: Event) {
        let mut effects = Vec::with_capacity(64);
        let now = self.now;
        let spent = allocation_counter::measure(|| self.engine.handle(now, event, &mut effects));
        self.allocations += spent.count_total;
        for effect in effects {
            match effect {
                Effect::Send { op, to, command, .. } => {
                    self.targets.insert(op, to);
                    self.sent.push((op, command));
                }
                Effect::Answer { request, answer } => self.answers.push((request, answer)),
                Effect::Report(report) => self.reports.push(report),
                Effect::Subscribe { channel, generation, .. } => {
                    self.subscriptions.push((channel, generation));
                }
                Effect::Unsubscribe { channel, .. } => self.unsubscribed.push(channel),
                Effect::Withdraw { request } => self.withdrawals.push(request),
                Effect::Finished => self.finished = true,
                Effect::Reconnect(_) => self.reconnects += 1,
            }
        }
    }

    /// Time passes, with every timeout on the way.
    fn pass(&mut self, time: Duration) {
        let end = self.now.plus(time);
        while let Some(at) = self.engine.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.event(Event::Tick);
        }
        self.now = end;
    }

    fn server_time(&self) -> ServerTime {
        ServerTime(self.now.micros() + self.offset)
    }

    fn done(&mut self, op: OpId, body: Body) {
        let reply = Reply { time: Some(self.server_time()), body };
        self.event(Event::Replied { op, server: ServerId::ONLY, outcome: Outcome::Done(reply) });
    }

    fn unknown(&mut self, op: OpId) {
        let failure = Failure::new(FailureKind::Link, "timed out");
        self.event(Event::Replied { op, server: ServerId::ONLY, outcome: Outcome::Unknown(failure) });
    }

    fn refused(&mut self, op: OpId, kind: FailureKind) {
        let failure = Failure::new(kind, "no");
        self.event(Event::Replied { op, server: ServerId::ONLY, outcome: Outcome::NotExecuted(failure) });
    }

    /// The only command that was sent since the last look.
    fn take(&mut self, label: &str) -> (OpId, Command) {
        assert_eq!(self.labels(), [label]);
        self.sent.remove(0)
    }

    fn labels(&self) -> Vec<&'static str> {
        self.sent.iter().map(|(_, command)| command.label()).collect()
    }

    fn nothing_sent(&self) {
        assert!(self.sent.is_empty(), "{:?}", self.sent);
    }

    fn confirm_subscriptions(&mut self) {
        for (channel, generation) in std::mem::take(&mut self.subscriptions) {
            self.event(Event::Subscribed { channel, generation, result: Ok(()) });
        }
    }

    /// The pub/sub connection is lost and there again.
    fn resubscribe(&mut self) {
        self.event(Event::PubSubDown);
        self.event(Event::PubSubUp);
        self.confirm_subscriptions();
    }

    fn ask(&mut self, owner: u64, wait: Wait) -> RequestId {
        self.want(owner, watched(), wait, None)
    }

    fn granted(&mut self, request: RequestId) -> Arc<HoldCell> {
        match self.answer(request) {
            Answer::Granted(cell) => cell,
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, request: RequestId) -> Answer {
        let at = self.answers.iter().position(|(other, _)| *other == request);
        self.answers.remove(at.unwrap_or_else(|| panic!("{request:?} was not answered"))).1
    }

    fn is_open(&self, request: RequestId) {
        assert!(!self.answers.iter().any(|(other, _)| *other == request), "{:?}", self.answers);
    }

    /// A hold of `owner`, taken by its first attempt.
    fn hold(&mut self, owner: u64) -> (RequestId, Arc<HoldCell>) {
        let request = self.ask(owner, Wait::Forever);
        let (op, _) = self.take("acquire");
        self.done(op, grant(self.server_time().0 as u64));
        (request, self.granted(request))
    }

    /// A contender that was refused, is subscribed and sleeps.
    fn sleeper(&mut self, owner: u64) -> RequestId {
        let request = self.ask(owner, Wait::Forever);
        let (op, _) = self.take("acquire");
        self.done(op, held(20_000));
        self.confirm_subscriptions();
        let (op, _) = self.take("acquire");
        self.done(op, held(20_000));
        self.nothing_sent();
        request
    }

    fn message(&mut self) {
        self.event(Event::Message { channel: CHANNEL.into(), payload: "0".to_owned() });
    }

    fn release(&mut self, cell: &HoldCell, level: RequestId) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.event(Event::Release { hold: cell.id, level, request: Some(request) });
        request
    }
}

fn watched() -> Lease {
    Lease::Watched(LeaseMs::checked("lease", LEASE).unwrap())
}

fn grant(token: u64) -> Body {
    Body::Acquire(Acquired::Granted { token })
}

fn held(pttl: i64) -> Body {
    Body::Acquire(Acquired::Held { pttl, holder: OTHER.to_owned() })
}

fn freed() -> Body {
    Body::Release(Released::Freed { receivers: Some(0) })
}

fn field(command: &Command) -> String {
    match command {
        Command::Acquire { field, .. } | Command::Release { field, .. } => field.clone(),
        Command::HandOff { to, .. } => to.clone(),
        other => panic!("{other:?}"),
    }
}

// ---- a hold alone

#[test]
fn an_uncontended_pair_is_two_commands() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    assert!(cell.is_held(hand.now));
    assert_eq!((cell.count(), hand.directory.len()), (1, 1));
    let release = hand.release(&cell, level);
    assert!(!cell.is_held(hand.now), "the owner has let go");
    let (op, command) = hand.take("release");
    assert!(matches!(command, Command::Release { count: 0, .. }));
    hand.done(op, freed());
    assert!(matches!(hand.answer(release), Answer::Done));
    hand.nothing_sent();
    assert!(hand.directory.is_empty());
}

#[test]
fn a_nested_pair_sends_the_counts_wanted() {
    let mut hand = Hand::new();
    let (outer, cell) = hand.hold(1);
    let inner = hand.ask(1, Wait::Forever);
    let (op, command) = hand.take("acquire");
    assert!(matches!(command, Command::Acquire { count: 2, .. }));
    hand.done(op, grant(0));
    assert_eq!(hand.granted(inner).token(), cell.token());
    assert_eq!(cell.count(), 2);
    // Levels end in any order.
    let first = hand.release(&cell, outer);
    let (op, command) = hand.take("release");
    assert!(matches!(command, Command::Release { count: 1, .. }));
    hand.done(op, Body::Release(Released::CountSet));
    assert!(matches!(hand.answer(first), Answer::Done));
    assert!(cell.is_held(hand.now));
    hand.release(&cell, inner);
    let (_, command) = hand.take("release");
    assert!(matches!(command, Command::Release { count: 0, .. }));
}

#[test]
fn validity_counts_from_before_the_request_was_sent() {
    let mut hand = Hand::new();
    let sent = hand.now;
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.pass(Duration::from_millis(900));
    hand.done(op, grant(1));
    let cell = hand.granted(request);
    assert_eq!(cell.valid_until(), sent.plus(Duration::from_millis(30_000 - 300 - 2)));
}

#[test]
fn a_grant_that_arrives_after_its_validity_is_given_back() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.now = hand.now.plus(Duration::from_millis(30_500));
    hand.done(op, grant(1));
    hand.is_open(request);
    assert_eq!(hand.labels()[0], "hand_off", "the waiter is still there: it gets a new hold");
}

#[test]
fn a_late_reply_revives_nothing() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.pass(Duration::from_secs(5));
    hand.event(Event::PickedUp { request: level });
    hand.pass(Duration::from_secs(5));
    let (op, _) = hand.take("renew");
    hand.now = hand.now.plus(Duration::from_secs(25));
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(!cell.is_held(hand.now));
    assert_eq!(cell.loss(), Some(LossReason::Expired));
}

#[test]
fn nothing_is_renewed_before_it_is_picked_up_nor_after_its_release_began() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.pass(Duration::from_secs(5));
    assert_eq!(hand.withdrawals, [level], "asked at min(lease/3, 5 s)");
    hand.nothing_sent();
    hand.event(Event::PickedUp { request: level });
    hand.pass(Duration::from_secs(6));
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    hand.release(&cell, level);
    hand.take("release");
    hand.pass(Duration::from_secs(25));
    assert!(!hand.labels().contains(&"renew"), "{:?}", hand.labels());
}

#[test]
fn a_grant_nobody_picks_up_goes_to_the_next_waiter() {
    let mut hand = Hand::new();
    let (level, _) = hand.hold(1);
    let next = hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    hand.pass(Duration::from_secs(5));
    hand.event(Event::Withdrawn { request: level });
    let (op, command) = hand.sent.remove(0);
    assert!(matches!(command.label(), "release" | "hand_off"));
    if command.label() == "release" {
        hand.done(op, freed());
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(2));
    } else {
        hand.done(op, Body::HandOff(HandedOff::Granted { token: 2 }));
    }
    hand.granted(next);
    hand.is_open(level);
}

#[test]
fn the_hold_count_has_a_limit_and_nothing_is_sent_beyond_it() {
    let mut hand = Hand::new();
    hand.hold(1);
    for _ in 0..2 {
        let request = hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(0));
        hand.granted(request);
    }
    let refused = hand.ask(1, Wait::Forever);
    assert!(matches!(hand.answer(refused), Answer::Failed(Error::HoldCountLimit { limit: 3, .. })));
    hand.nothing_sent();
}

#[test]
fn a_level_cancelled_on_the_wire_is_taken_back() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let inner = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request: inner });
    hand.done(op, grant(0));
    let (_, command) = hand.take("release");
    assert!(matches!(command, Command::Release { count: 1, .. }));
    assert_eq!(cell.count(), 1);
    hand.is_open(inner);
}

#[test]
fn an_unknown_level_is_asked_for_again_with_the_same_count() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let inner = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    assert_eq!(cell.count(), 1);
    hand.pass(Duration::from_millis(100));
    let (op, command) = hand.take("acquire");
    assert!(matches!(command, Command::Acquire { count: 2, .. }));
    hand.done(op, grant(0));
    hand.granted(inner);
    assert_eq!(cell.count(), 2);
}

#[test]
fn lowering_the_count_without_memory_is_no_failure() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let inner = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    hand.granted(inner);
    let release = hand.release(&cell, inner);
    let (op, _) = hand.take("release");
    hand.refused(op, FailureKind::OutOfMemory);
    assert!(matches!(hand.answer(release), Answer::Done));
    assert!(cell.is_held(hand.now));
}

#[test]
fn an_unknown_release_is_repeated_and_an_absent_key_is_then_success() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let release = hand.release(&cell, level);
    let (op, first) = hand.take("release");
    hand.unknown(op);
    hand.is_open(release);
    hand.pass(Duration::from_millis(100));
    let (op, again) = hand.take("release");
    assert_eq!(first, again);
    hand.done(op, Body::Release(Released::Gone));
    assert!(matches!(hand.answer(release), Answer::Done));
}

#[test]
fn a_release_that_finds_the_key_gone_says_lost() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let release = hand.release(&cell, level);
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Gone));
    assert!(matches!(hand.answer(release), Answer::Failed(Error::Lost { reason: LossReason::Removed, .. })));
}

// ---- loss

#[test]
fn a_lost_hold_is_an_error_to_its_owner_until_its_guards_are_gone() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    hand.event(Event::Verify { hold: cell.id, request: RequestId(900) });
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Foreign])));
    assert!(matches!(
        hand.answer(RequestId(900)),
        Answer::Failed(Error::Lost { reason: LossReason::TakenOver, .. })
    ));
    assert_eq!(cell.loss(), Some(LossReason::TakenOver));
    let again = hand.ask(1, Wait::Forever);
    assert!(matches!(hand.answer(again), Answer::Failed(Error::Lost { .. })));
    let release = hand.release(&cell, level);
    assert!(matches!(hand.answer(release), Answer::Failed(Error::Lost { .. })));
    hand.nothing_sent();
    hand.ask(1, Wait::Forever);
    hand.take("acquire");
}

#[test]
fn each_loss_has_its_reason() {
    for (run_id, hint, answer, reason) in [
        ("run-1", false, Renewed::Gone, LossReason::Removed),
        ("run-2", false, Renewed::Gone, LossReason::ServerLostData),
        ("run-1", true, Renewed::Gone, LossReason::ForceUnlocked),
        ("run-1", true, Renewed::Foreign, LossReason::ForceUnlocked),
        ("run-1", false, Renewed::Foreign, LossReason::TakenOver),
    ] {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        hand.pass(Duration::from_secs(5));
        hand.event(Event::PickedUp { request: level });
        hand.event(Event::Down { server: ServerId::ONLY, cause: "cut".to_owned() });
        assert!(cell.is_suspect() && cell.is_held(hand.now));
        hand.connect(run_id);
        hand.confirm_subscriptions();
        if hint {
            let channel: Arc<str> = "redisson_lock__client:{11111111-2222-4333-8444-555555555555}".into();
            hand.event(Event::Message { channel, payload: "n".to_owned() });
        }
        let (op, _) = hand.take("renew");
        hand.done(op, Body::Renew(Some(vec![answer])));
        assert_eq!(cell.loss(), Some(reason), "{run_id} {hint} {answer:?}");
    }
}

#[test]
fn a_force_unlock_hint_alone_loses_nothing() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    let channel: Arc<str> = "redisson_lock__client:{11111111-2222-4333-8444-555555555555}".into();
    hand.event(Event::Message { channel, payload: "n".to_owned() });
    assert!(cell.is_held(hand.now));
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
    assert!(cell.is_held(hand.now));
    assert_eq!(cell.loss(), None);
}

#[test]
fn a_local_loss_wakes_the_contender() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    let next = hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    hand.event(Event::Verify { hold: cell.id, request: RequestId(900) });
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Gone])));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(9));
    hand.granted(next);
}

// ---- the queue

#[test]
fn one_contender_asks_and_the_others_wait_without_a_command() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    for owner in 2..5 {
        hand.ask(owner, Wait::Forever);
    }
    hand.nothing_sent();
    hand.message();
    hand.take("acquire");
}

#[test]
fn there_is_a_limit_to_the_waiters_of_a_name() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    for owner in 2..=5 {
        hand.ask(owner, Wait::Forever);
    }
    let refused = hand.ask(6, Wait::Forever);
    assert!(matches!(hand.answer(refused), Answer::Failed(Error::TooManyWaiters { limit: 5, .. })));
}

#[test]
fn a_confirmed_subscription_is_followed_by_one_more_try() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    hand.nothing_sent();
    assert_eq!(hand.subscriptions.len(), 1);
    let (channel, generation) = hand.subscriptions[0].clone();
    // The answer to an older SUBSCRIBE says nothing.
    let stale = generation - 1;
    hand.event(Event::Subscribed { channel: channel.clone(), generation: stale, result: Ok(()) });
    hand.nothing_sent();
    hand.event(Event::Subscribed { channel, generation, result: Ok(()) });
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(request);
}

#[test]
fn a_wait_for_the_confirmation_is_bounded_too() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(1_000));
    hand.pass(Duration::from_millis(999));
    hand.nothing_sent();
    hand.pass(Duration::from_millis(2));
    hand.take("acquire");
}

#[test]
fn a_sleep_ends_with_the_holders_lease_or_the_fallback() {
    for (pttl, wakes_by) in [(1_500, 1_502), (600_000, 5_500)] {
        let mut hand = Hand::new();
        hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.done(op, held(pttl));
        hand.confirm_subscriptions();
        let (op, _) = hand.take("acquire");
        hand.done(op, held(pttl));
        hand.pass(Duration::from_millis(1_499));
        hand.nothing_sent();
        hand.pass(Duration::from_millis(wakes_by - 1_499));
        hand.take("acquire");
    }
}

#[test]
fn a_message_during_an_attempt_leads_to_another() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.message();
    hand.nothing_sent();
    hand.done(op, held(20_000));
    hand.take("acquire");
}

#[test]
fn the_role_passes_on_with_a_pending_wake_up() {
    // Cancelled while its attempt is on the wire: the next one has the duty.
    let mut hand = Hand::new();
    let first = hand.sleeper(1);
    let second = hand.ask(2, Wait::Forever);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.message();
    hand.event(Event::Cancel { request: first });
    hand.nothing_sent();
    hand.done(op, held(20_000));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(second);
    hand.is_open(first);
}

#[test]
fn a_grant_for_a_cancelled_contender_is_handed_to_the_next() {
    let mut hand = Hand::new();
    let first = hand.sleeper(1);
    let second = hand.ask(2, Wait::Forever);
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request: first });
    hand.done(op, grant(1));
    let (op, _) = hand.take("hand_off");
    hand.done(op, Body::HandOff(HandedOff::Granted { token: 2 }));
    assert_eq!(hand.granted(second).token(), 2);
    hand.is_open(first);
}

#[test]
fn a_grant_for_nobody_is_released() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request });
    hand.done(op, grant(1));
    let (op, command) = hand.take("release");
    assert!(matches!(command, Command::Release { count: 0, .. }));
    hand.done(op, freed());
    hand.nothing_sent();
    assert!(!hand.engine.has_holds());
}

#[test]
fn the_role_passes_on_at_a_timeout() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::For(Duration::from_secs(2)));
    let (op, _) = hand.take("acquire");
    hand.done(op, held(60_000));
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done(op, held(60_000));
    let second = hand.ask(2, Wait::Forever);
    hand.pass(Duration::from_secs(2));
    assert!(matches!(hand.answer(request), Answer::NotGranted));
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(1));
    hand.granted(second);
}

#[test]
fn a_resubscription_wakes_the_contender_once() {
    let mut hand = Hand::new();
    hand.sleeper(1);
    hand.event(Event::PubSubDown);
    hand.nothing_sent();
    hand.event(Event::PubSubUp);
    hand.nothing_sent();
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    hand.nothing_sent();
}

#[test]
fn a_subscription_ends_after_the_last_waiter() {
    let mut hand = Hand::new();
    let request = hand.sleeper(1);
    hand.event(Event::Cancel { request });
    assert!(hand.unsubscribed.is_empty(), "the next waiter may come soon");
    hand.pass(Duration::from_secs(1));
    assert_eq!(hand.unsubscribed.len(), 1);
    assert_eq!(hand.engine.next_timeout(), None, "nothing is left to look at");
}

#[test]
fn a_second_lock_of_the_same_owner_waits_for_the_first_and_re_enters() {
    let mut hand = Hand::new();
    let first = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    let second = hand.ask(1, Wait::Forever);
    hand.nothing_sent();
    hand.done(op, grant(7));
    hand.granted(first);
    let (op, command) = hand.take("acquire");
    assert!(matches!(command, Command::Acquire { count: 2, .. }));
    hand.done(op, grant(0));
    assert_eq!(hand.granted(second).token(), 7);
}

#[test]
fn a_second_lock_of_the_same_owner_takes_the_attempt_over() {
    let mut hand = Hand::new();
    let first = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    let other = hand.ask(2, Wait::Forever);
    let second = hand.ask(1, Wait::Forever);
    hand.event(Event::Cancel { request: first });
    hand.done(op, grant(7));
    assert_eq!(hand.granted(second).count(), 1);
    hand.is_open(other);
    hand.nothing_sent();
}

#[test]
fn a_lock_while_its_own_release_is_on_the_wire_queues_behind_it() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.release(&cell, level);
    let (op, _) = hand.take("release");
    let again = hand.ask(1, Wait::Forever);
    hand.nothing_sent();
    hand.done(op, freed());
    let (op, command) = hand.take("acquire");
    assert!(matches!(command, Command::Acquire { count: 1, .. }));
    hand.done(op, grant(8));
    assert_ne!(hand.granted(again).id, cell.id);
}

#[test]
fn try_lock_is_answered_by_what_is_in_the_way() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let denied = hand.ask(2, Wait::Once);
    assert!(matches!(hand.answer(denied), Answer::NotGranted));
    hand.release(&cell, level);
    let (op, _) = hand.take("release");
    let denied = hand.ask(2, Wait::Once);
    assert!(matches!(hand.answer(denied), Answer::NotGranted), "a release in the way is an answer");
    hand.done(op, freed());
    let denied = hand.ask(2, Wait::Once);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(5_000));
    assert!(matches!(hand.answer(denied), Answer::NotGranted));
    assert!(hand.subscriptions.is_empty(), "nobody waits");
}

#[test]
fn no_answer_within_the_wait_is_unavailable() {
    for wait in [Wait::Once, Wait::For(Duration::from_millis(1_500))] {
        let mut hand = Hand::new();
        let request = hand.ask(1, wait);
        hand.take("acquire");
        hand.pass(Duration::from_secs(2));
        assert!(matches!(hand.answer(request), Answer::Failed(Error::Unavailable { .. })));
    }
}

#[test]
fn a_key_in_other_use_is_everybodys_error() {
    let mut hand = Hand::new();
    let first = hand.ask(1, Wait::Forever);
    let second = hand.ask(2, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, Body::Acquire(Acquired::Held { pttl: 5, holder: "user:1".to_owned() }));
    for request in [first, second] {
        assert!(matches!(hand.answer(request), Answer::Failed(Error::KeyConflict { .. })));
    }
    hand.nothing_sent();
}

// ---- unknown outcomes

#[test]
fn a_waiter_without_time_does_not_hold_up_the_next() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::For(Duration::from_millis(1)));
    let (op, _) = hand.take("acquire");
    hand.ask(2, Wait::Forever);
    hand.pass(Duration::from_millis(1));
    hand.unknown(op);
    assert_eq!(hand.labels(), ["release", "acquire"], "no pause: the server is not in trouble");
}

#[test]
fn an_unknown_acquire_is_cleaned_up_until_it_can_no_longer_be_executed() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, first) = hand.take("acquire");
    let Command::Acquire { not_after, .. } = first else { panic!() };
    hand.unknown(op);
    // Sent at once, before any new attempt on the name.
    let (cleanup, command) = hand.take("release");
    assert_eq!(field(&command), field(&first));
    hand.pass(Duration::from_millis(50));
    let (attempt, second) = hand.take("acquire");
    assert_ne!(field(&first), field(&second), "a dead id is never sent in an acquire again");
    hand.done(attempt, held(20_000));
    // Answered, but the server's clock is not past `not_after`: again, later. Equal is not past.
    hand.done(cleanup, Body::Release(Released::Gone));
    let left = u64::try_from(not_after.0 - hand.server_time().0).unwrap();
    hand.now = hand.now.plus(Duration::from_micros(left));
    assert_eq!(hand.server_time(), not_after);
    hand.sent.clear();
    hand.event(Event::Tick);
    hand.pass(Duration::from_millis(2));
    let (cleanup, _) = hand.sent.remove(0);
    let reply = Reply { time: Some(not_after), body: Body::Release(Released::Gone) };
    hand.event(Event::Replied { op: cleanup, server: ServerId::ONLY, outcome: Outcome::Done(reply) });
    hand.sent.clear();
    hand.pass(Duration::from_millis(10));
    let (cleanup, _) = hand.sent.iter().find(|(_, command)| command.label() == "release").cloned().unwrap();
    hand.done(cleanup, Body::Release(Released::Gone));
    assert_eq!(hand.counters.snapshot().clean_ups, 0);
}

#[test]
fn an_unknown_attempt_is_remembered_whatever_later_ids_meet() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.unknown(op);
    hand.take("release");
    hand.pass(Duration::from_millis(50));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(3));
    hand.granted(request);
    assert_eq!(hand.counters.snapshot().clean_ups, 1);
}

#[test]
fn no_attempt_is_made_while_a_clean_up_could_not_be_sent() {
    let mut hand = Hand::new();
    hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.event(Event::Down { server: ServerId::ONLY, cause: "cut".to_owned() });
    hand.unknown(op);
    hand.nothing_sent();
    hand.event(Event::Up(ServerId::ONLY, ServerInfo::default()));
    assert_eq!(hand.labels(), ["time", "release"], "the clean-up goes before any attempt");
    let (op, _) = hand.sent.remove(0);
    hand.done(op, Body::Pong);
    assert_eq!(hand.labels(), ["release", "acquire"]);
}

#[test]
fn an_unknown_hand_off_kills_the_new_id_and_releases_the_old() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let next = hand.ask(2, Wait::Forever);
    let release = hand.release(&cell, level);
    let (op, command) = hand.take("hand_off");
    hand.unknown(op);
    assert_eq!(hand.labels(), ["release", "release"]);
    assert_eq!(field(&hand.sent[0].1), field(&command), "the clean-up of `to`");
    assert!(field(&hand.sent[1].1).ends_with(&format!(":{}", cell.id)), "`from` goes on alone");
    let (cleanup, _) = hand.sent.remove(0);
    hand.done(cleanup, Body::Release(Released::Gone));
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Gone));
    assert!(matches!(hand.answer(release), Answer::Done), "gone is what the unknown hand-off leaves behind");
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(5));
    hand.granted(next);
}

#[test]
fn late_grants_nothing_and_is_tried_again() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.offset += 50_000;
    hand.done(op, Body::Acquire(Acquired::Late));
    hand.is_open(request);
    let (op, _) = hand.sent.iter().find(|(_, command)| command.label() == "acquire").cloned().unwrap();
    hand.done(op, grant(1));
    hand.granted(request);
}

#[test]
fn nothing_with_a_deadline_is_sent_before_the_servers_clock_is_known() {
    let mut hand = Hand::unconnected();
    hand.ask(1, Wait::Forever);
    hand.event(Event::Up(ServerId::ONLY, ServerInfo::default()));
    let (op, _) = hand.take("time");
    hand.done(op, Body::Pong);
    hand.take("acquire");
}

// ---- hand-off

#[test]
fn hand_offs_end_after_sixteen_and_the_others_get_their_turn() {
    let mut hand = Hand::new();
    let (mut level, mut cell) = hand.hold(1);
    for number in 0..16 {
        let next = hand.ask(10 + number, Wait::Forever);
        hand.release(&cell, level);
        let (op, _) = hand.take("hand_off");
        hand.done(op, Body::HandOff(HandedOff::Granted { token: 100 + number }));
        (level, cell) = (next, hand.granted(next));
    }
    let next = hand.ask(99, Wait::Forever);
    hand.release(&cell, level);
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Freed { receivers: Some(3) }));
    hand.nothing_sent();
    hand.pass(Duration::from_millis(20));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(200));
    hand.granted(next);
}

#[test]
fn who_comes_back_after_a_release_lets_the_others_go_first() {
    let mut hand = Hand::new();
    let release = |hand: &mut Hand, owner| {
        let (level, cell) = hand.hold(owner);
        hand.release(&cell, level);
        let (op, _) = hand.take("release");
        hand.done(op, Body::Release(Released::Freed { receivers: Some(2) }));
    };
    // Nobody of this client waits when it releases: what counts is who was told.
    release(&mut hand, 1);
    let later = hand.ask(2, Wait::Forever);
    hand.nothing_sent();
    hand.pass(Duration::from_millis(20));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(7));
    hand.granted(later);

    // What cannot wait makes its attempt.
    let mut hand = Hand::new();
    release(&mut hand, 1);
    hand.ask(2, Wait::Once);
    hand.take("acquire");
    let mut hand = Hand::new();
    release(&mut hand, 1);
    hand.ask(2, Wait::For(Duration::from_millis(5)));
    hand.take("acquire");
    // Nor does it stay out when its time has become short while it waited.
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.ask(2, Wait::For(Duration::from_millis(10)));
    hand.release(&cell, level);
    let (op, _) = hand.take("hand_off");
    hand.refused(op, FailureKind::Busy);
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::Freed { receivers: Some(2) }));
    hand.take("acquire");
    // Nor is it failed for standing behind somebody who lets others go first.
    for wait in [Wait::For(Duration::from_millis(5)), Wait::Once] {
        let mut hand = Hand::new();
        release(&mut hand, 1);
        hand.ask(2, Wait::Forever);
        hand.nothing_sent();
        let hurried = hand.ask(3, wait);
        let (op, _) = hand.take("acquire");
        hand.done(op, held(60_000));
        hand.pass(Duration::from_secs(1));
        assert!(matches!(hand.answer(hurried), Answer::NotGranted));
    }
}

#[test]
fn a_hand_off_that_was_not_executed_becomes_a_plain_release() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let next = hand.ask(2, Wait::Forever);
    let release = hand.release(&cell, level);
    let (op, _) = hand.take("hand_off");
    hand.refused(op, FailureKind::Busy);
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    assert!(matches!(hand.answer(release), Answer::Done));
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(2));
    hand.granted(next);
}

// ---- outages and the end

#[test]
fn waiting_without_a_limit_rides_out_an_outage_of_thirty_seconds() {
    let mut hand = Hand::new();
    let request = hand.sleeper(1);
    hand.event(Event::Down { server: ServerId::ONLY, cause: "cut".to_owned() });
    hand.pass(Duration::from_secs(29));
    hand.is_open(request);
    hand.pass(Duration::from_secs(2));
    assert!(matches!(hand.answer(request), Answer::Failed(Error::Unavailable { .. })));
}

#[test]
fn configuration_trouble_is_told_at_once() {
    for kind in [FailureKind::Denied, FailureKind::Auth, FailureKind::Refused, FailureKind::Unsupported] {
        let mut hand = Hand::new();
        let request = hand.ask(1, Wait::Forever);
        let (op, _) = hand.take("acquire");
        hand.refused(op, kind);
        let Answer::Failed(error) = hand.answer(request) else { panic!("{kind:?}") };
        assert!(error.is_config(), "{error}");
        hand.nothing_sent();
    }
}

#[test]
fn a_parent_that_waits_for_its_child_is_reported_once() {
    let mut hand = Hand::new();
    let (level, _) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    hand.ask(2, Wait::Forever);
    hand.pass(Duration::from_secs(9));
    let told = |hand: &Hand| {
        hand.reports.iter().filter(|report| matches!(report, Report::WaitingOnSelf { .. })).count()
    };
    assert_eq!(told(&hand), 0);
    hand.pass(Duration::from_secs(15));
    assert_eq!(told(&hand), 1);
}

#[test]
fn a_shutdown_releases_what_is_held_and_says_what_it_could_not() {
    let mut hand = Hand::new();
    let (_, cell) = hand.hold(1);
    let waiting = hand.ask(2, Wait::Forever);
    let request = RequestId(900);
    hand.event(Event::Shutdown { until: hand.now.plus(Duration::from_secs(2)), request: Some(request) });
    assert!(matches!(hand.answer(waiting), Answer::Failed(Error::Closed)));
    assert_eq!(cell.loss(), Some(LossReason::ClientShutdown));
    let (op, _) = hand.take("release");
    assert!(!hand.finished);
    hand.done(op, freed());
    assert!(hand.finished);
    let Answer::ShutDown { unreleased } = hand.answer(request) else { panic!() };
    assert!(unreleased.is_empty());

    let mut hand = Hand::new();
    hand.hold(1);
    hand.event(Event::Shutdown { until: hand.now.plus(Duration::from_secs(2)), request: Some(request) });
    hand.pass(Duration::from_secs(2));
    assert!(hand.finished);
    let Answer::ShutDown { unreleased } = hand.answer(request) else { panic!() };
    assert_eq!(unreleased.len(), 1);
}

#[test]
fn an_attempt_that_fails_for_thirty_seconds_ends_the_wait_whatever_else_is_answered() {
    let mut hand = Hand::new();
    let request = hand.ask(1, Wait::Forever);
    for _ in 0..29 * 2 {
        for (op, command) in std::mem::take(&mut hand.sent) {
            match command {
                Command::Acquire { .. } => hand.refused(op, FailureKind::OutOfMemory),
                _ => hand.done(op, Body::Pong),
            }
        }
        hand.is_open(request);
        hand.pass(Duration::from_millis(500));
        // Somebody else's business with the same server goes well.
        hand.requests += 1;
        hand.event(Event::Ping { request: RequestId(hand.requests) });
    }
    hand.pass(Duration::from_secs(2));
    let Answer::Failed(Error::Unavailable { cause, .. }) = hand.answer(request) else { panic!() };
    assert_eq!(cause, "no", "in the words of what it met");
}

#[test]
fn a_force_unlock_of_unknown_outcome_frees_nobody_else() {
    for after in [Forced::Gone, Forced::Foreign] {
        let mut hand = Hand::new();
        let request = RequestId(900);
        hand.event(Event::ForceUnlock { name: LockName::new("n").unwrap(), from: None, request });
        let (op, _) = hand.take("inspect");
        let state =
            KeyState::Hash { pttl: 20_000, fields: 1, field: OTHER.to_owned(), count: "1".to_owned() };
        hand.done(op, Body::Inspect(state));
        let (op, _) = hand.take("force_release");
        hand.unknown(op);
        hand.pass(Duration::from_millis(20));
        let (op, _) = hand.take("force_release");
        hand.done(op, Body::Force(after));
        assert!(matches!(hand.answer(request), Answer::Forced(true)));
        hand.nothing_sent();
    }
}

#[test]
fn a_force_unlock_of_one_hold_frees_nobody_else() {
    let answer_to = |replies: &[Option<Forced>]| {
        let mut hand = Hand::new();
        let request = RequestId(900);
        let (name, from) = (LockName::new("n").unwrap(), Some(OTHER.to_owned()));
        hand.event(Event::ForceUnlock { name, from, request });
        for reply in replies {
            let (op, command) = hand.take("force_release");
            assert!(matches!(&command, Command::ForceRelease { expected, .. } if expected == OTHER));
            match reply {
                Some(reply) => hand.done(op, Body::Force(*reply)),
                None => hand.unknown(op),
            }
            hand.pass(Duration::from_millis(20));
        }
        hand.nothing_sent();
        let Answer::Forced(freed) = hand.answer(request) else { panic!("{replies:?}") };
        freed
    };
    let freed = Forced::Freed { receivers: Some(1) };
    assert!(answer_to(&[Some(freed)]));
    assert!(!answer_to(&[Some(Forced::Gone)]));
    assert!(!answer_to(&[Some(Forced::Foreign)]), "somebody else's by now");
    assert!(answer_to(&[Some(Forced::Late), Some(freed)]));
    assert!(answer_to(&[None, Some(Forced::Foreign)]), "the first one may have freed it");
}
