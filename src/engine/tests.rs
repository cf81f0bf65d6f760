//! The engine by hand: one event, then what it wants. The simulation finds what nobody thought of;
//! these say what was thought of, rule by rule.

mod allocations;
mod alone;
mod answers;
mod conditions;
mod corners;
mod counted;
mod details;
mod drops;
mod ends;
mod fair;
mod fair_queue;
mod hand_off;
mod kept;
mod limits;
mod line;
mod loss;
mod memory;
mod operations;
mod other_use;
mod outages;
mod outcomes;
#[cfg(all(repository, feature = "in-memory"))]
mod pair;
mod permits;
mod probes;
mod questions;
mod read_write;
mod reports;
mod servers;
mod shutdowns;
mod slips;
mod unknown;
mod waiting;
mod watching;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::cell::Directory;
use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::lease::Lease;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::base::stats::Counters;
use crate::engine::Engine;
use crate::engine::event::Answer;
use crate::engine::event::Effect;
use crate::engine::event::Event;
use crate::engine::event::Fate;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Place;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;
use crate::settings::config::Config;
use crate::settings::config::Sharding;

const OTHER: &str = "6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731";
const CHANNEL: &str = "redisson_lock__channel__{n}";
const LEASE: Duration = Duration::from_secs(30);

struct Hand {
    engine: Engine,
    /// Of the lock `n`.
    channel: Arc<str>,
    now: Moment,
    /// Server clock minus ours, in microseconds.
    offset: i64,
    /// What was wanted since the last look.
    sent: Vec<(OpId, Command)>,
    targets: HashMap<OpId, ServerId>,
    timeouts: HashMap<OpId, Duration>,
    /// Whether a channel was subscribed as a sharded one.
    sharded: HashMap<Arc<str>, bool>,
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

pub(super) const CLIENT: &str = "11111111-2222-4333-8444-555555555555";

pub(super) fn config(id: &str) -> Config {
    Config {
        client_id: id.to_owned(),
        lease: LeaseMs::checked("lease", LEASE).unwrap(),
        command_timeout: Duration::from_secs(1),
        outage_limit: Duration::from_secs(30),
        redisson_watchdog: LeaseMs::checked("redisson_watchdog", Config::DEFAULT_REDISSON_WATCHDOG)
            .unwrap(),
        fallback: Duration::from_secs(5),
        profile: WireProfile::Native,
        sharding: Sharding::Auto,
        hand_off: true,
        max_waiters: 5,
        address: String::new(),
        deployment: String::new(),
        max_hold_count: 3,
    }
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
        Self::of_client(CLIENT)
    }

    /// In Redisson's profile, in which the server keeps no line.
    fn without_line() -> Self {
        let mut hand = Self::of_config(Config { profile: WireProfile::Redisson, ..config(CLIENT) });
        hand.connect("run-1");
        hand.confirm_subscriptions();
        hand
    }

    fn of_client(id: &str) -> Self {
        Self::of_config(config(id))
    }

    fn of_config(config: Config) -> Self {
        let (directory, counters) = (Arc::new(Directory::default()), Arc::new(Counters::default()));
        let channel = LockName::new("n").unwrap().channel(config.profile);
        Self {
            engine: Engine::new(config, Arc::clone(&directory), Arc::clone(&counters)),
            channel,
            now: Moment(1_000_000_000_000),
            offset: 1_700_000_000_000_000,
            sent: Vec::new(),
            targets: HashMap::new(),
            timeouts: HashMap::new(),
            sharded: HashMap::new(),
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

    fn cut(&mut self) {
        self.event(Event::Down { server: ServerId::ONLY, cause: "cut".to_owned() });
    }

    fn event(&mut self, event: Event) {
        let mut effects = Vec::with_capacity(64);
        let now = self.now;
        let spent = allocation_counter::measure(|| self.engine.handle(now, event, &mut effects));
        self.allocations += spent.count_total;
        for effect in effects {
            match effect {
                Effect::Send { op, to, command, timeout } => {
                    self.targets.insert(op, to);
                    self.timeouts.insert(op, timeout);
                    self.sent.push((op, command));
                }
                Effect::Answer { request, answer } => self.answers.push((request, answer)),
                Effect::Report(report) => self.reports.push(report),
                Effect::Subscribe { channel, sharded, generation } => {
                    self.sharded.insert(channel.clone(), sharded);
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

    /// Passes time, renewing and refusing whatever asks.
    fn pass_answering(&mut self, time: Duration) {
        let end = self.now.plus(time);
        while self.now < end {
            self.pass(Duration::from_millis(100).min(end.since(self.now)));
            for (op, command) in std::mem::take(&mut self.sent) {
                match command {
                    Command::Acquire { share: Share::ONE, .. } => self.done(op, held(20_000)),
                    Command::Renew { holds, .. } => {
                        self.done(op, Body::Renew(Some(vec![Renewed::Yes; holds.len()])));
                    }
                    Command::Time => self.done(op, Body::Pong),
                    other => panic!("{other:?}"),
                }
            }
        }
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
        self.event(Event::Replied {
            op,
            server: ServerId::ONLY,
            outcome: Outcome::Unknown(failure),
        });
    }

    fn refused(&mut self, op: OpId, kind: FailureKind) {
        let failure = Failure::new(kind, "no");
        self.event(Event::Replied {
            op,
            server: ServerId::ONLY,
            outcome: Outcome::NotExecuted(failure),
        });
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

    /// What a shutdown says of the locks.
    fn fates(&mut self, shutdown: RequestId) -> Vec<(String, Fate)> {
        match self.answer(shutdown) {
            Answer::ShutDown(fates) => {
                fates.iter().map(|(name, fate)| (name.to_string(), *fate)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// The locks that the server may have for this client.
    fn left(&self) -> Vec<String> {
        let fates = self.engine.fates();
        let left = fates.iter().filter(|(_, fate)| matches!(fate, Fate::Left(_)));
        left.map(|(name, _)| name.to_string()).collect()
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

    /// One more level of an owner's hold.
    fn re_enter(&mut self, owner: u64) -> RequestId {
        self.re_enter_for(owner, None)
    }

    /// The same with a limit to the hold.
    fn re_enter_for(&mut self, owner: u64, max_hold: Option<Duration>) -> RequestId {
        let request = self.want(owner, watched(), Wait::Forever, max_hold);
        let (op, _) = self.take("acquire");
        self.done(op, grant(0));
        self.granted(request);
        request
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

    /// The last waiter has left the line, and that is answered.
    fn leaves(&mut self) {
        let (op, _) = self.take("release");
        self.done(op, Body::Release(Released::Foreign));
    }

    fn message(&mut self) {
        self.say("0");
    }

    /// The lock was reserved for this field.
    fn reserved(&mut self, field: &str) {
        self.say(field);
    }

    fn say(&mut self, payload: &str) {
        let channel = Arc::clone(&self.channel);
        self.event(Event::Message { channel, payload: payload.to_owned() });
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

fn fixed(length: Duration) -> Lease {
    Lease::Fixed(LeaseMs::checked("lease", length).unwrap())
}

fn grant(token: u64) -> Body {
    Body::Acquire(Acquired::Granted { token })
}

fn held(pttl: i64) -> Body {
    held_before(pttl, 0)
}

fn held_without_line(pttl: i64) -> Body {
    Body::Acquire(Acquired::Held { pttl, holder: OTHER.to_owned(), place: None, others: None })
}

/// So many stand before the waiter, whose ticket is 7.
fn held_before(pttl: i64, rank: u64) -> Body {
    let place = Some(Place { ticket: 7, rank });
    Body::Acquire(Acquired::Held { pttl, holder: OTHER.to_owned(), place, others: None })
}

fn freed() -> Body {
    Body::Release(Released::Freed { receivers: Some(0) })
}

fn handed() -> Body {
    Body::HandOff(HandedOff::Granted { token: 2 })
}

fn field(command: &Command) -> String {
    match command {
        Command::Acquire { field, .. }
        | Command::Release { field, .. }
        | Command::ReleaseAt { field, .. } => field.clone(),
        Command::HandOff { to, .. } => to.clone(),
        other => panic!("{other:?}"),
    }
}
