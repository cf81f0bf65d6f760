//! The server's side: the keys, the clock, and what each client has still to hear.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::memory::keyspace::Keyspace;

/// The server's clock starts in 2024, so that fencing tokens have as many digits as real ones.
const START_US: i64 = 1_704_067_200_000_000;
const UNREACHABLE: &str = "the in-memory server is unreachable";
const FOREVER: Duration = Duration::from_secs(86_400 * 365);

/// What a client finds when it polls.
pub(super) enum Next {
    Event(BackendEvent),
    /// Nothing yet; look again then.
    At(Instant),
    Nothing,
}

/// One client's connection.
#[derive(Debug, Default)]
struct Link {
    connected: bool,
    closing: bool,
    events: VecDeque<BackendEvent>,
    /// Calls whose replies are lost, and when they time out.
    unanswered: Vec<(OpId, Instant)>,
    subscriptions: BTreeSet<(Arc<str>, bool)>,
    waker: Option<Waker>,
    /// Events came in since the last poll. They are held back for one turn of the runtime, so that a client that
    /// finds every answer ready does not keep the other tasks from running.
    fresh: bool,
}

#[derive(Debug)]
pub(super) struct Hub {
    keyspace: Keyspace,
    now_us: i64,
    last_look: Option<Instant>,
    runs: u64,
    reachable: bool,
    answering: bool,
    links: BTreeMap<u64, Link>,
    clients: u64,
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            keyspace: Keyspace::new(),
            now_us: START_US,
            last_look: None,
            runs: 1,
            reachable: true,
            answering: true,
            links: BTreeMap::new(),
            clients: 0,
        }
    }
}

/// What a client asks for.
impl Hub {
    pub(super) fn connect(&mut self) -> u64 {
        self.clients += 1;
        self.links.insert(self.clients, Link::default());
        self.come_up(self.clients);
        self.clients
    }

    pub(super) fn disconnect(&mut self, client: u64) {
        let link = self.links.remove(&client);
        self.count_subscribers(link.into_iter().flat_map(|link| link.subscriptions));
    }

    pub(super) fn submit(&mut self, client: u64, op: OpId, call: &Call, timeout: Duration) {
        let sent = Instant::now();
        let now_us = self.tick();
        let Some(link) = self.links.get_mut(&client) else { return };
        if !link.connected {
            let failure = Failure::new(FailureKind::Link, UNREACHABLE);
            return link.push(BackendEvent::Replied {
                op,
                server: ServerId::ONLY,
                outcome: Outcome::NotExecuted(failure),
            });
        }
        let outcome = self.execute(now_us, call);
        self.deliver();
        let Some(link) = self.links.get_mut(&client) else { return };
        if self.answering {
            link.push(BackendEvent::Replied { op, server: ServerId::ONLY, outcome });
        } else {
            link.unanswered.push((op, sent + timeout.min(FOREVER)));
            link.fresh = true;
        }
    }

    pub(super) fn subscribe(&mut self, client: u64, channel: Arc<str>, sharded: bool, generation: u64) {
        let Some(link) = self.links.get_mut(&client).filter(|link| link.connected) else { return };
        link.subscriptions.insert((Arc::clone(&channel), sharded));
        if self.answering {
            let channel = Arc::clone(&channel);
            link.push(BackendEvent::Subscribed { channel, generation, result: Ok(()) });
        }
        self.count_subscribers([(channel, sharded)]);
    }

    pub(super) fn unsubscribe(&mut self, client: u64, channel: &Arc<str>, sharded: bool) {
        let subscription = (Arc::clone(channel), sharded);
        if let Some(link) = self.links.get_mut(&client) {
            link.subscriptions.remove(&subscription);
        }
        self.count_subscribers([subscription]);
    }

    pub(super) fn next(&mut self, client: u64, waker: &Waker) -> Next {
        let Some(link) = self.links.get_mut(&client) else { return Next::Nothing };
        if link.fresh {
            link.fresh = false;
            waker.wake_by_ref();
            return Next::Nothing;
        }
        link.time_out();
        if let Some(event) = link.events.pop_front() {
            return Next::Event(event);
        }
        link.waker = Some(waker.clone());
        link.unanswered.iter().map(|(_, at)| *at).min().map_or(Next::Nothing, Next::At)
    }

    pub(super) fn reconnect(&mut self, client: u64) {
        self.cut(client, "the client reconnects");
        self.come_up(client);
    }

    pub(super) fn close(&mut self, client: u64) {
        self.cut(client, "the client closes");
        let Some(link) = self.links.get_mut(&client) else { return };
        if !link.closing {
            link.closing = true;
            link.push(BackendEvent::Closed);
        }
    }
}

/// What the owner of the server does to it.
impl Hub {
    pub(super) fn contains(&mut self, key: &str) -> bool {
        let now_us = self.tick();
        self.keyspace.contains(now_us, key)
    }

    pub(super) fn remove(&mut self, key: &str) -> bool {
        let now_us = self.tick();
        self.keyspace.remove(now_us, key)
    }

    pub(super) fn flush(&mut self) {
        self.keyspace.flush();
    }

    pub(super) fn restart(&mut self) {
        self.keyspace.flush();
        self.runs += 1;
        self.disconnect_all("the in-memory server restarts");
    }

    pub(super) fn disconnect_all(&mut self, cause: &str) {
        for client in self.links.keys().copied().collect::<Vec<_>>() {
            self.cut(client, cause);
            self.come_up(client);
        }
    }

    pub(super) fn set_reachable(&mut self, reachable: bool) {
        if self.reachable != reachable {
            self.reachable = reachable;
            self.disconnect_all(UNREACHABLE);
        }
    }

    pub(super) fn set_answering(&mut self, answering: bool) {
        let resumes = answering && !self.answering;
        self.answering = answering;
        if resumes {
            self.disconnect_all("the in-memory server did not answer");
        }
    }

    /// The wakers of all clients that have something to look at.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        let stirred = self.links.values_mut().filter(|link| link.fresh || !link.events.is_empty());
        stirred.filter_map(|link| link.waker.take()).collect()
    }
}

impl Hub {
    /// The server's time. A clock that went back, as a new runtime with a paused clock brings it, stops it only once.
    fn tick(&mut self) -> i64 {
        let now = Instant::now();
        let passed = self.last_look.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        // Whole microseconds only: what is left over is counted next time.
        let micros = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX);
        self.now_us = self.now_us.saturating_add(micros);
        let behind = Duration::from_nanos(u64::from(passed.subsec_nanos() % 1_000));
        self.last_look = Some(now.checked_sub(behind).unwrap_or(now));
        self.now_us
    }

    fn execute(&mut self, now_us: i64, call: &Call) -> Outcome<Value> {
        match call {
            Call::Time => Outcome::Done(Value::List(vec![Value::Int(now_us)])),
            Call::Ping => Outcome::Done(Value::List(Vec::new())),
            Call::Info => Outcome::Done(Value::List(vec![Value::Text("in_memory:1\r\n".to_owned())])),
            Call::Script(call) => match self.keyspace.run(now_us, call) {
                Ok(value) => Outcome::Done(value),
                Err(text) => Outcome::NotExecuted(Failure::new(FailureKind::Refused, text)),
            },
        }
    }

    /// Hands what a script published to the subscribers.
    fn deliver(&mut self) {
        let published = self.keyspace.take_published();
        if !self.answering {
            return;
        }
        for message in published {
            let subscription = (Arc::<str>::from(message.channel), message.sharded);
            for link in self.links.values_mut().filter(|link| link.subscriptions.contains(&subscription)) {
                let channel = Arc::clone(&subscription.0);
                link.push(BackendEvent::Message { channel, payload: message.payload.clone() });
            }
        }
    }

    fn count_subscribers(&mut self, changed: impl IntoIterator<Item = (Arc<str>, bool)>) {
        for subscription in changed {
            let subscribed = self.links.values().filter(|link| link.subscriptions.contains(&subscription));
            let number = i64::try_from(subscribed.count()).unwrap_or(i64::MAX);
            self.keyspace.set_subscribers(&subscription.0, subscription.1, number);
        }
    }

    fn come_up(&mut self, client: u64) {
        let (reachable, info) = (self.reachable, self.info());
        let Some(link) = self.links.get_mut(&client).filter(|link| !link.closing) else { return };
        link.connected = reachable;
        if reachable {
            link.push(BackendEvent::Up(ServerId::ONLY, info));
            link.push(BackendEvent::PubSubUp);
        } else {
            let failure = Failure::new(FailureKind::Link, UNREACHABLE);
            link.push(BackendEvent::ConnectFailed { server: ServerId::ONLY, failure });
        }
    }

    fn cut(&mut self, client: u64, cause: &str) {
        let Some(link) = self.links.get_mut(&client).filter(|link| link.connected) else { return };
        let ended = link.cut(cause);
        self.count_subscribers(ended);
    }

    fn info(&self) -> ServerInfo {
        ServerInfo {
            run_id: format!("{:040x}", self.runs),
            version: "7.0.15".to_owned(),
            address: "in-memory".to_owned(),
        }
    }
}

impl Link {
    fn push(&mut self, event: BackendEvent) {
        self.events.push_back(event);
        self.fresh = true;
    }

    fn time_out(&mut self) {
        let now = Instant::now();
        let due = self.unanswered.iter().filter(|(_, at)| *at <= now);
        self.events.extend(due.map(|(op, _)| unknown(*op, "no reply within the timeout")));
        self.unanswered.retain(|(_, at)| *at > now);
    }

    /// What was on its way to the client is lost. The subscriptions that ended.
    fn cut(&mut self, cause: &str) -> BTreeSet<(Arc<str>, bool)> {
        let on_their_way = std::mem::take(&mut self.events);
        self.events.extend(on_their_way.into_iter().filter_map(|event| match event {
            BackendEvent::Replied { op, outcome: Outcome::Done(_), .. } => Some(unknown(op, cause)),
            BackendEvent::Message { .. } | BackendEvent::Subscribed { .. } => None,
            other => Some(other),
        }));
        for (op, _) in std::mem::take(&mut self.unanswered) {
            self.push(unknown(op, cause));
        }
        self.push(BackendEvent::Down { server: ServerId::ONLY, cause: cause.to_owned() });
        self.push(BackendEvent::PubSubDown);
        self.connected = false;
        std::mem::take(&mut self.subscriptions)
    }
}

fn unknown(op: OpId, cause: &str) -> BackendEvent {
    let failure = Failure::new(FailureKind::Link, cause);
    BackendEvent::Replied { op, server: ServerId::ONLY, outcome: Outcome::Unknown(failure) }
}
