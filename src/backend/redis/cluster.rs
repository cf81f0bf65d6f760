//! A cluster: one single-server backend for each primary, and a map of slots that says which of
//! them to use.
//!
//! The cluster connections of client libraries do not keep healthy primaries working while another
//! one is dead or frozen, or while slots move. Here the primaries share nothing but the map.
//! Several of them are asked for it, at intervals and whenever there is a sign that it has changed,
//! and a redirection is followed at once, within the call's timeout.

mod refresh;
mod scout;
mod seeds;
mod slots;
mod subscriptions;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;
use tokio::time::Sleep;

use self::refresh::MapRefresh;
use self::refresh::OURS;
use self::refresh::ScoutTask;
use self::seeds::SeedWatch;
use self::slots::Redirection;
use self::slots::SlotMap;
use self::subscriptions::ClusterSubscription;
use self::subscriptions::RENEW_SUBSCRIPTIONS;
use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::redis::RedisBackend;
use crate::backend::redis::calls::CallRequest;
use crate::backend::redis::config::Address;
use crate::backend::redis::config::RedisConfig;
use crate::base::name::slot_of;
use crate::settings::config::Sharding;

/// The most redirections that a call follows.
const REDIRECTIONS: u32 = 5;
/// How long a node without slots is kept, because it may be about to get some.
const SPARE: Duration = Duration::from_secs(15);
/// All primaries of a cluster.
pub(crate) struct ClusterBackend {
    config: RedisConfig,
    sharding: Sharding,
    nodes: BTreeMap<ServerId, Node>,
    last_id: u32,
    map: SlotMap,
    /// The addresses that the user gave.
    seeds: Vec<Address>,
    /// Watches the seeds if all of them are host names.
    watch: Option<SeedWatch>,
    /// The server of each slot, as it was reported to the engine. Empty before the first map.
    routes: Arc<[ServerId]>,
    sharded: Option<bool>,
    /// Slots that a redirection has moved. This is newer than the map of a node that has not heard
    /// of the move.
    moved: HashMap<u16, (ServerId, Instant)>,
    refresh: MapRefresh,
    calls: HashMap<OpId, RoutedCall>,
    last_own: u64,
    subscriptions: BTreeMap<Arc<str>, ClusterSubscription>,
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
    /// Since when the node has had no slots.
    unused_since: Option<Instant>,
    leaving: bool,
}

/// A call in flight, kept so that it can be redirected.
struct RoutedCall {
    call: Call,
    deadline: Instant,
    redirections: u32,
    slot: u16,
    /// True if it was sent with ASKING, to a node that does not own the slot yet.
    asking: bool,
}

impl ClusterBackend {
    /// Starts to look for the cluster and returns at once.
    ///
    /// Must be called within the runtime that is to own the connections, and used there.
    pub(crate) fn new(config: RedisConfig, seeds: Vec<Address>, sharding: Sharding) -> Self {
        let now = Instant::now();
        Self {
            watch: SeedWatch::watch(&config, &seeds),
            config,
            sharding,
            nodes: BTreeMap::new(),
            last_id: 0,
            map: SlotMap::default(),
            seeds,
            routes: Arc::new([]),
            sharded: None,
            moved: HashMap::new(),
            refresh: MapRefresh::due(now),
            calls: HashMap::new(),
            last_own: 0,
            subscriptions: BTreeMap::new(),
            renew_at: now + RENEW_SUBSCRIPTIONS,
            alarm: Box::pin(tokio::time::sleep_until(now)),
            // This backend chooses the connection for each channel, so the engine need not wait for
            // one.
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
        let backend = RedisBackend::new(self.config.at_announced(&address.0, address.1));
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

    /// Closes nodes that have had no slots for `SPARE`.
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
        self.leave_unused_subscriptions();
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
                // The node may have closed before it could report `Down`.
                if self.nodes.get(&id).is_some_and(|node| node.info.is_some()) {
                    self.on_down(id, "closed".to_owned());
                }
                self.on_pubsub_down(id);
                self.nodes.remove(&id);
            }
            BackendEvent::SubscriptionLost { channel } => self.on_subscription_lost(id, channel),
            BackendEvent::Routes(_) => {}
            message @ BackendEvent::Message { .. } => self.ready.push_back(message),
        }
    }

    fn on_up(&mut self, id: ServerId, info: ServerInfo) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.info = Some(info.clone());
            self.ready.push_back(BackendEvent::Up(id, info));
            self.ask_node();
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
        if matches!(outcome, Outcome::Done(_)) {
            self.end_scouting();
        }
        if let Some(asked) = self.refresh.asked.remove(&op) {
            return self.on_map_answer(&asked, outcome);
        }
        if op.0 & OURS != 0 {
            // A late answer, after enough other nodes had answered.
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
            (Some(call), Outcome::Done(_))
                if !call.asking
                    && self.has_lost(id, call.slot)
                    && !seeded!(FrozenPrimaryIsUnknown) =>
            {
                // A primary that was frozen and replaced replies to calls that it executes before
                // it hears of its replacement.
                Outcome::Unknown(Failure::new(
                    FailureKind::Link,
                    "another node serves the slot now",
                ))
            }
            (_, outcome) => outcome,
        };
        self.ready.push_back(BackendEvent::Replied { op, server: id, outcome });
    }

    /// True if the slot belongs to another node, as far as this client knows.
    fn has_lost(&self, id: ServerId, slot: u16) -> bool {
        self.routes.get(usize::from(slot)).is_some_and(|server| *server != id)
    }

    fn redirect(&mut self, from: ServerId, op: OpId, failure: Failure) {
        let asked = self.nodes.get(&from).map(|node| node.address.clone()).unwrap_or_default();
        let known = Redirection::read(&failure.message, &asked).filter(|_| !self.closing);
        let (Some(redirection), Some(mut call)) = (known, self.calls.remove(&op)) else {
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
            let words =
                format!("it was redirected and could not be sent on in time: {}", failure.message);
            let outcome = Outcome::NotExecuted(Failure::new(FailureKind::SlotMoving, words));
            return self.ready.push_back(BackendEvent::Replied { op, server: to, outcome });
        }
        let request = if redirection.ask { CallRequest::Asking } else { CallRequest::Call }(
            call.call.clone(),
        );
        if let Some(node) = self.nodes.get_mut(&to) {
            node.backend.send(op, request, left);
            self.calls.insert(op, call);
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
        let Some(ScoutTask(task)) = &mut self.refresh.scout else { return false };
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
            Some(ScoutTask(task)) => task.poll_unpin(cx).is_pending(),
            None => false,
        };
        if !scouting {
            self.refresh.scout = None;
        }
        if self.watch.as_mut().is_some_and(|watch| watch.poll_end(cx).is_ready()) {
            self.watch = None;
        }
        if self.nodes.is_empty() && !scouting && self.watch.is_none() {
            Poll::Ready(BackendEvent::Closed)
        } else {
            Poll::Pending
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Backend for ClusterBackend {
    fn submit(&mut self, op: OpId, to: ServerId, call: Call, timeout: Duration) {
        let Some(node) = self.nodes.get_mut(&to).filter(|node| !node.leaving && !self.closing)
        else {
            let outcome = Outcome::NotExecuted(Failure::new(FailureKind::Link, "not connected"));
            return self.ready.push_back(BackendEvent::Replied { op, server: to, outcome });
        };
        if let Call::Script(script) = &call {
            // One day is longer than any call, and avoids an overflow.
            let deadline = Instant::now() + timeout.min(Duration::from_secs(86_400));
            let slot = script.keys.first().map_or(0, slot_of);
            let call = call.clone();
            self.calls
                .insert(op, RoutedCall { call, deadline, redirections: 0, slot, asking: false });
        }
        node.backend.send(op, CallRequest::Call(call), timeout);
    }

    fn subscribe(&mut self, channel: Arc<str>, sharded: bool, generation: u64) {
        let subscription = ClusterSubscription { sharded, generation, at: None, renewing: false };
        let before = self.subscriptions.insert(Arc::clone(&channel), subscription);
        self.place_subscription(&channel);
        self.leave_place(&channel, before);
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
            let acted = self.poll_nodes(cx)
                | self.poll_scout(cx)
                | self.poll_seeds(cx)
                | self.poll_timers(cx);
            if !acted && self.ready.is_empty() {
                self.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
    }

    fn has_sockets(&self) -> bool {
        true
    }

    fn looks_for_more(&mut self) -> bool {
        self.nodes.values_mut().any(|node| node.backend.looks_for_more())
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
        if let Some(ScoutTask(task)) = &self.refresh.scout {
            task.abort();
        }
        if let Some(watch) = &self.watch {
            watch.stop();
        }
        // Their answers would make this backend connect to nodes that nobody closes.
        self.refresh.asked.clear();
        self.wake();
    }
}
