//! A cluster: one single-server backend for each primary, and a map of slots that says which of them to use.
//!
//! No client library's cluster connection keeps healthy primaries going while another one is dead or frozen, or while
//! slots move. Here nothing is shared between the primaries but the map: it is asked of several of them, at intervals
//! and whenever something hints that it has changed, and a redirection is followed at once, within the call's time.

mod scout;
mod slots;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio::time::Sleep;

use self::scout::Found;
use self::slots::Address;
use self::slots::Redirection;
use self::slots::SlotMap;
use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::Routes;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::redis::RedisBackend;
use crate::backend::redis::calls::Request;
use crate::backend::redis::config::RedisConfig;
use crate::config::Sharding;
use crate::name::slot_of;

/// How often the map is asked for while all is well: a slot that moves without traffic takes its subscriptions along.
const CALM: Duration = Duration::from_secs(1);
/// The same while a primary cannot be reached.
const TROUBLED: Duration = Duration::from_millis(250);
/// Hints come in bursts; the map is not asked for more often than this.
const LEAST_PAUSE: Duration = Duration::from_millis(50);
/// How long a node may take to answer for the map.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many primaries are asked.
const ASKED: usize = 5;
/// A call follows at most so many redirections.
const REDIRECTIONS: u32 = 5;
/// A node without slots is kept this long: it may be about to get some.
const SPARE: Duration = Duration::from_secs(15);
/// How long nodes may take to hear that a slot has moved.
const GOSSIP: Duration = Duration::from_secs(5);
/// A sharded subscription ends without a word when its slot leaves; so each is made again this often.
const RENEW_SUBSCRIPTIONS: Duration = Duration::from_secs(10);
/// Marks our own calls; the engine counts from one.
const OURS: u64 = 1 << 63;

/// All primaries of a cluster.
pub(crate) struct ClusterBackend {
    config: RedisConfig,
    sharding: Sharding,
    nodes: BTreeMap<ServerId, Node>,
    last_id: u32,
    map: SlotMap,
    /// Known before any map is.
    seeds: Vec<Address>,
    /// The server of each slot, as the engine was told. Empty before the first map.
    routes: Arc<[ServerId]>,
    sharded: Option<bool>,
    /// Slots that a redirection has moved: newer than what nodes say that have not heard of it.
    moved: HashMap<u16, (ServerId, Instant)>,
    refresh: Refresh,
    calls: HashMap<OpId, Travelling>,
    last_own: u64,
    subscriptions: BTreeMap<Arc<str>, Subscription>,
    renew_at: Instant,
    alarm: Pin<Box<Sleep>>,
    ready: VecDeque<BackendEvent>,
    closing: bool,
    waker: Option<Waker>,
}

/// One primary, or a node that may become one.
struct Node {
    address: Address,
    backend: RedisBackend,
    info: Option<ServerInfo>,
    pubsub_up: bool,
    /// Since when it has no slots.
    unused_since: Option<Instant>,
    leaving: bool,
}

/// A call on its way, in case it has to be sent elsewhere.
struct Travelling {
    call: Call,
    deadline: Instant,
    redirections: u32,
    slot: u16,
    /// Sent behind an ASKING, to a node that does not have the slot yet.
    asking: bool,
}

/// A channel that the engine wants.
struct Subscription {
    sharded: bool,
    generation: u64,
    /// Where it was asked for; `None` until there is a connection for it.
    at: Option<ServerId>,
    /// Made again to be sure: the engine need not hear of it.
    renewing: bool,
}

/// The search for a newer map.
#[derive(Default)]
struct Refresh {
    /// When to begin the next one.
    at: Option<Instant>,
    last: Option<Instant>,
    /// Primaries that have been asked, with our call.
    asked: BTreeMap<OpId, Address>,
    answers: Vec<SlotMap>,
    expected: usize,
    scout: Option<Scout>,
}

struct Scout(JoinHandle<Result<Found, Failure>>);

impl Drop for Scout {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ClusterBackend {
    /// Begins to look for the cluster and returns at once.
    ///
    /// Must be called within the runtime that shall own the connections, and used there.
    pub(crate) fn new(config: RedisConfig, seeds: Vec<Address>, sharding: Sharding) -> Self {
        let now = Instant::now();
        Self {
            config,
            sharding,
            nodes: BTreeMap::new(),
            last_id: 0,
            map: SlotMap::default(),
            seeds,
            routes: Arc::new([]),
            sharded: None,
            moved: HashMap::new(),
            refresh: Refresh { at: Some(now), ..Refresh::default() },
            calls: HashMap::new(),
            last_own: 0,
            subscriptions: BTreeMap::new(),
            renew_at: now + RENEW_SUBSCRIPTIONS,
            alarm: Box::pin(tokio::time::sleep_until(now)),
            // Which connection a channel needs is decided here; the engine need not wait for one.
            ready: VecDeque::from([BackendEvent::PubSubUp]),
            closing: false,
            waker: None,
        }
    }

    // ---- nodes

    fn node_at(&mut self, address: &Address) -> ServerId {
        let known = self.nodes.iter().find(|(_, node)| node.address == *address && !node.leaving);
        if let Some((id, _)) = known {
            return *id;
        }
        self.last_id += 1;
        let id = ServerId(self.last_id);
        let backend = RedisBackend::new(self.config.at(&address.0, address.1));
        let node = Node {
            address: address.clone(),
            backend,
            info: None,
            pubsub_up: false,
            unused_since: None,
            leaving: false,
        };
        self.nodes.insert(id, node);
        id
    }

    fn is_up(&self, id: ServerId) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.info.is_some() && !node.leaving)
    }

    /// Nodes that have no slots, and have had time to get some, are left.
    fn leave_unused(&mut self) {
        let routed = self.routed();
        for (id, node) in self.nodes.iter_mut().filter(|(_, node)| !node.leaving) {
            if routed.contains(id) {
                node.unused_since = None;
            } else if node.unused_since.get_or_insert_with(Instant::now).elapsed() > SPARE {
                node.leaving = true;
                node.backend.close();
            }
        }
    }

    fn on_node(&mut self, id: ServerId, event: BackendEvent) {
        match event {
            BackendEvent::Replied { op, outcome, .. } => self.on_replied(id, op, outcome),
            BackendEvent::Up(_, info) => self.on_up(id, info),
            BackendEvent::Down { cause, .. } => self.on_down(id, cause),
            BackendEvent::ConnectFailed { failure, .. } => self.on_connect_failed(id, failure),
            BackendEvent::PubSubUp => self.on_pubsub_up(id),
            BackendEvent::PubSubDown => self.on_pubsub_down(id),
            BackendEvent::Subscribed { channel, generation, result } => {
                self.on_subscribed(id, channel, generation, result);
            }
            BackendEvent::Closed => {
                // It may have closed before it could say so.
                if self.nodes.get(&id).is_some_and(|node| node.info.is_some()) {
                    self.on_down(id, "closed".to_owned());
                }
                self.on_pubsub_down(id);
                self.nodes.remove(&id);
            }
            BackendEvent::SubscriptionLost { .. } | BackendEvent::Routes(_) => {}
            message @ (BackendEvent::Message { .. } | BackendEvent::Lagged) => self.ready.push_back(message),
        }
    }

    fn on_up(&mut self, id: ServerId, info: ServerInfo) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.info = Some(info.clone());
            self.ready.push_back(BackendEvent::Up(id, info));
        }
    }

    fn on_down(&mut self, id: ServerId, cause: String) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.info = None;
            self.ready.push_back(BackendEvent::Down { server: id, cause });
        }
        self.refresh_soon();
    }

    fn on_connect_failed(&mut self, id: ServerId, failure: Failure) {
        self.refresh_soon();
        if !self.routes.contains(&id) {
            return;
        }
        self.ready.push_back(BackendEvent::ConnectFailed { server: id, failure });
    }

    // ---- calls

    fn on_replied(&mut self, id: ServerId, op: OpId, outcome: Outcome<Value>) {
        if let Some(asked) = self.refresh.asked.remove(&op) {
            return self.on_map_answer(&asked, outcome);
        }
        if op.0 & OURS != 0 {
            // Answered after the others had been enough.
            return;
        }
        if let Outcome::NotExecuted(failure) = &outcome {
            if failure.kind == FailureKind::Redirected {
                return self.redirect(id, op, failure.clone());
            }
        }
        if let Outcome::NotExecuted(failure) | Outcome::Unknown(failure) = &outcome {
            if matches!(failure.kind, FailureKind::Link | FailureKind::ReadOnly)
                || failure.message.starts_with("CLUSTERDOWN")
            {
                self.refresh_soon();
            }
        }
        let call = self.calls.remove(&op);
        let outcome = match (call, outcome) {
            (Some(call), Outcome::Done(_)) if !call.asking && self.has_lost(id, call.slot) => {
                // A primary that was frozen, and followed by another, says what it did before it heard of that.
                Outcome::Unknown(Failure::new(FailureKind::Link, "another node has the slot by now"))
            }
            (_, outcome) => outcome,
        };
        self.ready.push_back(BackendEvent::Replied { op, server: id, outcome });
    }

    /// Whether the slot is another node's, as far as is known.
    fn has_lost(&self, id: ServerId, slot: u16) -> bool {
        self.routes.get(usize::from(slot)).is_some_and(|server| *server != id)
    }

    fn redirect(&mut self, from: ServerId, op: OpId, failure: Failure) {
        let asked = self.nodes.get(&from).map(|node| node.address.clone()).unwrap_or_default();
        let (Some(redirection), Some(mut call)) =
            (Redirection::read(&failure.message, &asked), self.calls.remove(&op))
        else {
            let outcome = Outcome::NotExecuted(failure);
            return self.ready.push_back(BackendEvent::Replied { op, server: from, outcome });
        };
        let to = self.node_at(&redirection.to);
        if !redirection.ask {
            self.move_slot(redirection.slot, to);
            self.refresh_soon();
        }
        call.redirections += 1;
        call.asking = redirection.ask;
        let left = call.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || call.redirections > REDIRECTIONS || !self.is_up(to) {
            let words = format!("redirected, and not there in time: {}", failure.message);
            let outcome = Outcome::NotExecuted(Failure::new(FailureKind::SlotMoving, words));
            return self.ready.push_back(BackendEvent::Replied { op, server: to, outcome });
        }
        let request = if redirection.ask { Request::Asking } else { Request::Call }(call.call.clone());
        if let Some(node) = self.nodes.get_mut(&to) {
            node.backend.send(op, request, left);
            self.calls.insert(op, call);
        }
    }

    // ---- the map

    fn refresh_soon(&mut self) {
        let earliest = self.refresh.last.map_or_else(Instant::now, |last| last + LEAST_PAUSE);
        let at = self.refresh.at.map_or(earliest, |at| at.min(earliest));
        self.refresh.at = Some(at);
    }

    fn begin_refresh(&mut self) {
        let now = Instant::now();
        self.refresh.last = Some(now);
        let troubled = self.routes.is_empty() || self.routed().iter().any(|id| !self.is_up(*id));
        self.refresh.at = Some(now + if troubled { TROUBLED } else { CALM });
        if self.refresh.scout.is_some() || !self.refresh.asked.is_empty() {
            // What hinted at a change may be newer than the answers on their way.
            self.refresh.at = Some(now + LEAST_PAUSE);
            return;
        }
        self.leave_unused();
        self.refresh.answers.clear();
        let up: Vec<ServerId> = self.nodes.keys().copied().filter(|id| self.is_up(*id)).take(ASKED).collect();
        if self.routes.is_empty() || up.is_empty() {
            return self.send_scout();
        }
        self.refresh.expected = up.len();
        for id in up {
            self.last_own += 1;
            let op = OpId(OURS | self.last_own);
            if let Some(node) = self.nodes.get_mut(&id) {
                self.refresh.asked.insert(op, node.address.clone());
                node.backend.send(op, Request::Slots, PATIENCE);
            }
        }
    }

    fn send_scout(&mut self) {
        let mut known: Vec<Address> = self.map.primaries().into_iter().cloned().collect();
        for address in self.map.replicas.iter().chain(&self.seeds) {
            if !known.contains(address) {
                known.push(address.clone());
            }
        }
        let probe = self.sharding == Sharding::Auto && self.sharded.is_none();
        let task = tokio::spawn(scout::explore(self.config.clone(), known, probe));
        self.refresh.scout = Some(Scout(task));
    }

    fn on_map_answer(&mut self, asked: &Address, outcome: Outcome<Value>) {
        if let Outcome::Done(value) = outcome {
            self.refresh.answers.extend(SlotMap::read(&value, asked));
        }
        let answered = self.refresh.answers.len();
        // A frozen node must not delay what the others know.
        if answered * 2 > self.refresh.expected || self.refresh.asked.is_empty() && answered > 0 {
            let answers = std::mem::take(&mut self.refresh.answers);
            self.refresh.asked.clear();
            self.adopt(&answers);
        } else if self.refresh.asked.is_empty() {
            self.send_scout();
        }
    }

    fn on_scouted(&mut self, result: Result<Found, Failure>) {
        match result {
            Ok(Found { maps, sharded }) => {
                self.sharded = self.sharded.or(sharded);
                self.adopt(&maps);
            }
            Err(failure) => {
                let server = ServerId::ONLY;
                self.ready.push_back(BackendEvent::ConnectFailed { server, failure });
            }
        }
    }

    fn adopt(&mut self, answers: &[SlotMap]) {
        let map = SlotMap::agree(answers, &self.map);
        let primaries: BTreeSet<Address> = map.primaries().into_iter().cloned().collect();
        let ids: HashMap<Address, ServerId> =
            primaries.into_iter().map(|address| (address.clone(), self.node_at(&address))).collect();
        let server = |primary: Option<&Address>| primary.map_or(ServerId::ONLY, |address| ids[address]);
        let mut routes: Vec<ServerId> = map.by_slot().into_iter().map(server).collect();
        self.moved.retain(|_, (_, since)| since.elapsed() < GOSSIP);
        for (slot, (to, _)) in &self.moved {
            if self.is_up(*to) {
                routes[usize::from(*slot)] = *to;
            }
        }
        self.map = map;
        self.reroute(routes.into());
    }

    fn move_slot(&mut self, slot: u16, to: ServerId) {
        self.moved.insert(slot, (to, Instant::now()));
        if self.has_lost(to, slot) {
            let mut routes = self.routes.to_vec();
            routes[usize::from(slot)] = to;
            self.reroute(routes.into());
        }
    }

    fn reroute(&mut self, routes: Arc<[ServerId]>) {
        let changed = routes != self.routes;
        self.routes = routes;
        // First of all: a spare node that has slots now may carry subscriptions.
        self.leave_unused();
        if changed {
            let sharded = self.sharded == Some(true);
            let servers = Arc::clone(&self.routes);
            self.ready.push_back(BackendEvent::Routes(Routes::Slots { servers, sharded }));
            self.move_subscriptions();
        }
    }

    fn routed(&self) -> BTreeSet<ServerId> {
        let mut routed: BTreeSet<ServerId> = self.routes.iter().copied().collect();
        routed.remove(&ServerId::ONLY);
        routed
    }

    // ---- subscriptions

    /// Where a channel belongs: a sharded one to the primary of its slot, any other to whichever is connected.
    fn place_of(&self, channel: &str, sharded: bool) -> Option<ServerId> {
        let connected = |id: &ServerId| {
            self.nodes.get(id).is_some_and(|node| node.pubsub_up && node.unused_since.is_none())
        };
        if sharded {
            return self.routes.get(usize::from(slot_of(channel))).copied().filter(connected);
        }
        self.nodes.keys().copied().find(connected)
    }

    /// Asks for what has no connection yet.
    fn place_subscriptions(&mut self) {
        let waiting: Vec<Arc<str>> = self
            .subscriptions
            .iter()
            .filter(|(_, subscription)| subscription.at.is_none())
            .map(|(channel, _)| Arc::clone(channel))
            .collect();
        for channel in waiting {
            self.place_subscription(&channel);
        }
    }

    fn place_subscription(&mut self, channel: &Arc<str>) {
        let Some(sharded) = self.subscriptions.get(channel).map(|subscription| subscription.sharded) else {
            return;
        };
        let Some(at) = self.place_of(channel, sharded) else { return };
        let (Some(node), Some(subscription)) = (self.nodes.get_mut(&at), self.subscriptions.get_mut(channel))
        else {
            return;
        };
        subscription.at = Some(at);
        node.backend.subscribe(Arc::clone(channel), sharded, subscription.generation);
    }

    /// Sharded subscriptions follow their slots: the engine is told, and asks for them again.
    fn move_subscriptions(&mut self) {
        let mut moved = Vec::new();
        for (channel, subscription) in &mut self.subscriptions {
            let Some(at) = subscription.at.filter(|_| subscription.sharded) else { continue };
            if self.routes.get(usize::from(slot_of(channel))) != Some(&at) {
                subscription.at = None;
                moved.push((Arc::clone(channel), at));
            }
        }
        for (channel, at) in moved {
            if let Some(node) = self.nodes.get_mut(&at) {
                node.backend.unsubscribe(Arc::clone(&channel), true);
            }
            self.ready.push_back(BackendEvent::SubscriptionLost { channel });
        }
        self.place_subscriptions();
    }

    fn on_pubsub_up(&mut self, id: ServerId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.pubsub_up = true;
        }
        self.place_subscriptions();
    }

    fn on_pubsub_down(&mut self, id: ServerId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.pubsub_up = false;
        }
        for (channel, subscription) in &mut self.subscriptions {
            if subscription.at == Some(id) {
                subscription.at = None;
                let channel = Arc::clone(channel);
                self.ready.push_back(BackendEvent::SubscriptionLost { channel });
            }
        }
        self.refresh_soon();
    }

    fn on_subscribed(
        &mut self,
        id: ServerId,
        channel: Arc<str>,
        generation: u64,
        result: Result<(), Failure>,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(&channel) else { return };
        if subscription.at != Some(id) || subscription.generation != generation {
            return;
        }
        let renewed = std::mem::take(&mut subscription.renewing);
        match result {
            Ok(()) if renewed => {}
            Err(failure) if failure.kind.is_transient() || failure.kind == FailureKind::Redirected => {
                // Its slot is elsewhere by now.
                subscription.at = None;
                self.refresh_soon();
                let result = Err(Failure::new(FailureKind::SlotMoving, failure.message));
                self.ready.push_back(if renewed {
                    BackendEvent::SubscriptionLost { channel }
                } else {
                    BackendEvent::Subscribed { channel, generation, result }
                });
            }
            result => self.ready.push_back(BackendEvent::Subscribed { channel, generation, result }),
        }
    }

    fn renew_subscriptions(&mut self) {
        self.renew_at = Instant::now() + RENEW_SUBSCRIPTIONS;
        for (channel, subscription) in &mut self.subscriptions {
            let Some(at) = subscription.at.filter(|_| subscription.sharded && !subscription.renewing) else {
                continue;
            };
            if let Some(node) = self.nodes.get_mut(&at) {
                subscription.renewing = true;
                node.backend.subscribe(Arc::clone(channel), true, subscription.generation);
            }
        }
    }

    // ---- driving

    fn poll_timers(&mut self, cx: &mut Context<'_>) -> bool {
        let now = Instant::now();
        let mut acted = false;
        if self.refresh.at.is_some_and(|at| at <= now) {
            self.begin_refresh();
            acted = true;
        }
        if self.renew_at <= now {
            self.renew_subscriptions();
            acted = true;
        }
        let next = self.refresh.at.map_or(self.renew_at, |at| at.min(self.renew_at));
        if self.alarm.deadline() != next {
            self.alarm.as_mut().reset(next);
        }
        acted | self.alarm.as_mut().poll(cx).is_ready()
    }

    fn poll_scout(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(Scout(task)) = &mut self.refresh.scout else { return false };
        let Poll::Ready(result) = task.poll_unpin(cx) else { return false };
        self.refresh.scout = None;
        if let Ok(result) = result {
            self.on_scouted(result);
        }
        true
    }

    fn poll_nodes(&mut self, cx: &mut Context<'_>) -> bool {
        let mut events = Vec::new();
        for (id, node) in &mut self.nodes {
            if let Poll::Ready(event) = node.backend.poll_event(cx) {
                events.push((*id, event));
            }
        }
        let acted = !events.is_empty();
        for (id, event) in events {
            self.on_node(id, event);
        }
        acted
    }

    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        while self.poll_nodes(cx) {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(event);
            }
        }
        let scouting = match &mut self.refresh.scout {
            Some(Scout(task)) => task.poll_unpin(cx).is_pending(),
            None => false,
        };
        if !scouting {
            self.refresh.scout = None;
        }
        if self.nodes.is_empty() && !scouting { Poll::Ready(BackendEvent::Closed) } else { Poll::Pending }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Backend for ClusterBackend {
    fn submit(&mut self, op: OpId, to: ServerId, call: Call, timeout: Duration) {
        self.wake();
        let Some(node) = self.nodes.get_mut(&to).filter(|node| !node.leaving && !self.closing) else {
            let outcome = Outcome::NotExecuted(Failure::new(FailureKind::Link, "not connected"));
            return self.ready.push_back(BackendEvent::Replied { op, server: to, outcome });
        };
        if let Call::Script(script) = &call {
            // A day is for ever here, and no overflow.
            let deadline = Instant::now() + timeout.min(Duration::from_secs(86_400));
            let slot = script.keys.first().map_or(0, |key| slot_of(key));
            let call = call.clone();
            self.calls.insert(op, Travelling { call, deadline, redirections: 0, slot, asking: false });
        }
        node.backend.send(op, Request::Call(call), timeout);
    }

    fn subscribe(&mut self, channel: Arc<str>, sharded: bool, generation: u64) {
        let subscription = Subscription { sharded, generation, at: None, renewing: false };
        self.subscriptions.insert(Arc::clone(&channel), subscription);
        self.place_subscription(&channel);
        self.wake();
    }

    fn unsubscribe(&mut self, channel: Arc<str>, sharded: bool) {
        let Some(subscription) = self.subscriptions.remove(&channel) else { return };
        let node = subscription.at.and_then(|at| self.nodes.get_mut(&at));
        if let Some(node) = node {
            node.backend.unsubscribe(channel, sharded);
        }
        self.wake();
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(event);
            }
            if self.closing {
                return self.poll_closing(cx);
            }
            let acted = self.poll_nodes(cx) | self.poll_scout(cx) | self.poll_timers(cx);
            if !acted && self.ready.is_empty() {
                self.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
    }

    fn reconnect(&mut self, server: ServerId) {
        if let Some(node) = self.nodes.get_mut(&server) {
            node.backend.reconnect(ServerId::ONLY);
        }
        self.refresh_soon();
        self.wake();
    }

    fn close(&mut self) {
        self.closing = true;
        for node in self.nodes.values_mut().filter(|node| !node.leaving) {
            node.backend.close();
        }
        if let Some(Scout(task)) = &self.refresh.scout {
            task.abort();
        }
        self.wake();
    }
}
