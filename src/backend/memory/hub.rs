//! The server itself: its keys, its clock, and its clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
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
use crate::backend::memory::link::MemoryLink;
use crate::backend::memory::link::NextEvent;
use crate::backend::memory::process::ClientProcess;

/// The server's clock starts in 2024, so that fencing tokens have as many digits as real ones.
const START_US: i64 = 1_704_067_200_000_000;
const UNREACHABLE: &str = "the in-memory server is unreachable";
const DOES_NOT_ANSWER: &str = "the in-memory server did not answer";

/// A registered client. It stays in the list after its end.
#[derive(Debug)]
struct Client {
    /// The id of its `LockClient`.
    id: String,
    process: Arc<ClientProcess>,
    network: NetworkFaults,
    /// `Some` while its driver runs.
    link: Option<MemoryLink>,
}

/// The faults between the server and one client.
#[derive(Debug, Clone, Copy, Default)]
struct NetworkFaults {
    /// The server refuses the client's connections.
    refused: bool,
    /// Replies and messages to the client are lost.
    unanswered: bool,
    /// Commands of the client are lost as well.
    partitioned: bool,
    reply_delay: Duration,
    message_delay: Duration,
}

#[derive(Debug)]
pub(super) struct Hub {
    keyspace: Keyspace,
    now_us: i64,
    last_look: Option<Instant>,
    runs: u64,
    reachable: bool,
    answering: bool,
    clients: BTreeMap<u64, Client>,
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            keyspace: Keyspace::new(),
            now_us: START_US,
            last_look: None,
            runs: next_run(),
            reachable: true,
            answering: true,
            clients: BTreeMap::new(),
        }
    }
}

/// What clients request.
impl Hub {
    /// Registers a client that will connect. Returns its number and its process.
    pub(super) fn register(&mut self, id: &str) -> (u64, Arc<ClientProcess>) {
        let number = self.clients.last_key_value().map_or(1, |(last, _)| last + 1);
        let (process, network) = <(Arc<ClientProcess>, NetworkFaults)>::default();
        let client =
            Client { id: id.to_owned(), process: Arc::clone(&process), network, link: None };
        self.clients.insert(number, client);
        (number, process)
    }

    pub(super) fn connect(&mut self, client: u64) {
        if let Some(Client { link, network, .. }) = self.clients.get_mut(&client) {
            *link = Some(MemoryLink::new(network.partitioned));
        }
        self.come_up(client);
    }

    /// Called when the client's driver has ended.
    pub(super) fn disconnect(&mut self, client: u64) {
        let link = self.clients.get_mut(&client).and_then(|client| client.link.take());
        self.count_subscribers(link.into_iter().flat_map(|link| link.subscriptions));
    }

    pub(super) fn submit(&mut self, client: u64, op: OpId, call: &Call, timeout: Duration) {
        let now_us = self.tick();
        let Some(link) = self.link(client) else { return };
        if !link.connected {
            let failure = Failure::new(FailureKind::Link, UNREACHABLE);
            return link.push(BackendEvent::Replied {
                op,
                server: ServerId::ONLY,
                outcome: Outcome::NotExecuted(failure),
            });
        }
        if link.partitioned {
            return link.lose_reply(op, timeout);
        }
        let outcome = self.execute(now_us, call);
        self.deliver();
        let (answers, delay) = (self.answers(client), self.network(client).reply_delay);
        let Some(link) = self.link(client) else { return };
        if answers {
            link.reply(op, outcome, delay, timeout);
        } else {
            link.lose_reply(op, timeout);
        }
    }

    pub(super) fn subscribe(
        &mut self,
        client: u64,
        channel: Arc<str>,
        sharded: bool,
        generation: u64,
    ) {
        let (answers, delay) = (self.answers(client), self.network(client).message_delay);
        let link = self.link(client).filter(|link| link.connected && !link.partitioned);
        let Some(link) = link else { return };
        link.subscriptions.insert((Arc::clone(&channel), sharded));
        if answers {
            let channel = Arc::clone(&channel);
            link.tell(BackendEvent::Subscribed { channel, generation, result: Ok(()) }, delay);
        }
        self.count_subscribers([(channel, sharded)]);
    }

    pub(super) fn unsubscribe(&mut self, client: u64, channel: &Arc<str>, sharded: bool) {
        let subscription = (Arc::clone(channel), sharded);
        if let Some(link) = self.link(client).filter(|link| !link.partitioned) {
            link.subscriptions.remove(&subscription);
        }
        self.count_subscribers([subscription]);
    }

    pub(super) fn next(&mut self, client: u64, waker: &Waker) -> NextEvent {
        self.link(client).map_or(NextEvent::Nothing, |link| link.next(waker))
    }

    pub(super) fn reconnect(&mut self, client: u64) {
        self.connect_anew(client, "the client reconnects");
    }

    pub(super) fn close(&mut self, client: u64) {
        self.cut(client, "the client closes");
        let Some(link) = self.link(client) else { return };
        if !link.closing {
            link.closing = true;
            link.push(BackendEvent::Closed);
        }
    }
}

/// What tests do to the server.
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
        self.runs = next_run();
        self.disconnect_all("the in-memory server restarts");
    }

    pub(super) fn disconnect_all(&mut self, cause: &str) {
        for client in self.clients.keys().copied().collect::<Vec<_>>() {
            self.connect_anew(client, cause);
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
            self.disconnect_all(DOES_NOT_ANSWER);
        }
    }
}

/// A number for each start of a server. No two have the same, of different servers neither.
fn next_run() -> u64 {
    static RUNS: AtomicU64 = AtomicU64::new(1);
    RUNS.fetch_add(1, Ordering::Relaxed)
}

/// What tests do to one client.
impl Hub {
    /// The number of the client with that id.
    pub(super) fn number_of(&self, id: &str) -> Option<u64> {
        self.clients.iter().find(|(_, client)| client.id == id).map(|(number, _)| *number)
    }

    pub(super) fn process(&self, client: u64) -> Option<Arc<ClientProcess>> {
        self.clients.get(&client).map(|client| Arc::clone(&client.process))
    }

    /// Ends the client's connections at once.
    pub(super) fn connect_anew(&mut self, client: u64, cause: &str) {
        self.cut(client, cause);
        self.come_up(client);
    }

    pub(super) fn set_reachable_to(&mut self, client: u64, reachable: bool) {
        let before =
            self.change(client, |network| std::mem::replace(&mut network.refused, !reachable));
        if before == Some(reachable) {
            self.connect_anew(client, UNREACHABLE);
        }
    }

    pub(super) fn set_answering_to(&mut self, client: u64, answering: bool) {
        let before =
            self.change(client, |network| std::mem::replace(&mut network.unanswered, !answering));
        if answering && before == Some(true) {
            self.connect_anew(client, DOES_NOT_ANSWER);
        }
    }

    pub(super) fn set_partitioned(&mut self, client: u64, partitioned: bool) {
        let before =
            self.change(client, |network| std::mem::replace(&mut network.partitioned, partitioned));
        let Some(link) = self.link(client).filter(|_| before == Some(!partitioned)) else { return };
        if partitioned {
            return link.partition();
        }
        link.partitioned = false;
        self.connect_anew(client, "the network was partitioned");
    }

    pub(super) fn set_reply_delay(&mut self, client: u64, delay: Duration) {
        self.change(client, |network| network.reply_delay = delay);
    }

    pub(super) fn set_message_delay(&mut self, client: u64, delay: Duration) {
        self.change(client, |network| network.message_delay = delay);
    }

    fn change<R>(
        &mut self,
        client: u64,
        change: impl FnOnce(&mut NetworkFaults) -> R,
    ) -> Option<R> {
        self.clients.get_mut(&client).map(|client| change(&mut client.network))
    }
}

impl Hub {
    /// Takes the wakers of all clients that have something to poll for.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        let links = self.clients.values_mut().filter_map(|client| client.link.as_mut());
        links.filter_map(MemoryLink::take_waker).collect()
    }

    fn link(&mut self, client: u64) -> Option<&mut MemoryLink> {
        self.clients.get_mut(&client).and_then(|client| client.link.as_mut())
    }

    fn network(&self, client: u64) -> NetworkFaults {
        self.clients.get(&client).map(|client| client.network).unwrap_or_default()
    }

    fn answers(&self, client: u64) -> bool {
        self.answering && !self.network(client).unanswered
    }

    /// Advances the server's time. It follows the clock of the client that has been connected for
    /// longest, because a paused clock belongs to one runtime. A clock that went back (when that
    /// client is followed by one of another runtime) makes the time stand still for one call only.
    fn tick(&mut self) -> i64 {
        let link = self.clients.values().find_map(|client| client.link.as_ref());
        let now = link.map_or_else(Instant::now, MemoryLink::now);
        let passed =
            self.last_look.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        // Counts whole microseconds; the remainder is counted by the next call.
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
            Call::Info => {
                Outcome::Done(Value::List(vec![Value::Text("in_memory:1\r\n".to_owned())]))
            }
            Call::Script(call) => match self.keyspace.run(now_us, call) {
                Ok(value) => Outcome::Done(value),
                Err(text) => Outcome::NotExecuted(Failure::new(FailureKind::Refused, text)),
            },
        }
    }

    /// Delivers what scripts have published to the subscribers.
    fn deliver(&mut self) {
        let published = self.keyspace.take_published();
        if !self.answering {
            return;
        }
        for message in published {
            let subscription = (Arc::<str>::from(message.channel), message.sharded);
            for Client { network, link, .. } in self.clients.values_mut() {
                let hears = |link: &&mut MemoryLink| {
                    !link.partitioned && link.subscriptions.contains(&subscription)
                };
                let Some(link) = link.as_mut().filter(|_| !network.unanswered).filter(hears) else {
                    continue;
                };
                let channel = Arc::clone(&subscription.0);
                let payload = message.payload.clone();
                link.tell(BackendEvent::Message { channel, payload }, network.message_delay);
            }
        }
    }

    fn count_subscribers(&mut self, changed: impl IntoIterator<Item = (Arc<str>, bool)>) {
        for subscription in changed {
            let links = self.clients.values().filter_map(|client| client.link.as_ref());
            let subscribed = links.filter(|link| link.subscriptions.contains(&subscription));
            let number = i64::try_from(subscribed.count()).unwrap_or(i64::MAX);
            self.keyspace.set_subscribers(&subscription.0, subscription.1, number);
        }
    }

    fn come_up(&mut self, client: u64) {
        let (info, reachable) = (self.info(), self.reachable && !self.network(client).refused);
        let Some(link) = self.link(client).filter(|link| !link.closing) else { return };
        link.connected = reachable && !link.partitioned;
        if link.connected {
            link.push(BackendEvent::Up(ServerId::ONLY, info));
            link.push(BackendEvent::PubSubUp);
        } else {
            match reachable {
                true => link.refuse(FailureKind::Link, "no answer"),
                false => link.refuse(FailureKind::NoListener, UNREACHABLE),
            }
        }
    }

    fn cut(&mut self, client: u64, cause: &str) {
        let ended = self.link(client).map(|link| link.cut(cause));
        self.count_subscribers(ended.into_iter().flatten());
    }

    fn info(&self) -> ServerInfo {
        ServerInfo {
            run_id: format!("{:040x}", self.runs),
            version: "7.0.15".to_owned(),
            address: "in-memory".to_owned(),
            uptime: Duration::ZERO,
        }
    }
}
