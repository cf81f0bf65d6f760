//! Keeps the map of slots up to date.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::ClusterBackend;
use super::scout;
use super::scout::KnownNode;
use super::scout::NodeAnswers;
use super::slots::SlotMap;
use crate::backend::BackendEvent;
use crate::backend::Failure;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::Routes;
use crate::backend::ServerId;
use crate::backend::Value;
use crate::backend::redis::calls::CallRequest;
use crate::backend::redis::config::Address;
use crate::backend::redis::config::Endpoint;
use crate::backend::redis::link::RetryPause;
use crate::base::process::spawn;
use crate::settings::config::Sharding;

/// How often nodes are asked for the map while all primaries are connected: a slot can move while
/// no call is sent to it, and its subscriptions have to follow.
const CALM: Duration = Duration::from_secs(1);
/// How often while a primary cannot be reached.
const TROUBLED: Duration = Duration::from_millis(250);
/// The least time between two refreshes, because signs of a change come in bursts.
const LEAST_PAUSE: Duration = Duration::from_millis(50);
/// The most primaries that are asked at once.
const ASKED: usize = 5;
/// How long nodes may take to hear that a slot has moved.
const GOSSIP: Duration = Duration::from_secs(5);
/// Set in the ids of this backend's own calls; the engine's ids count up from one.
pub(super) const OURS: u64 = 1 << 63;

/// The state of the refresh of the map.
#[derive(Default)]
pub(super) struct MapRefresh {
    /// When the next refresh begins.
    pub(super) at: Option<Instant>,
    last: Option<Instant>,
    /// The primaries that have been asked and have not answered, by the id of the call.
    pub(super) asked: BTreeMap<OpId, Address>,
    answers: Vec<SlotMap>,
    pub(super) expected: usize,
    pub(super) scout: Option<ScoutTask>,
    /// Between two scouts while nothing is connected: each scout dials every known node.
    pause: RetryPause,
    scout_again: Option<Instant>,
}

pub(super) struct ScoutTask(pub(super) JoinHandle<Result<NodeAnswers, Failure>>);

impl MapRefresh {
    pub(super) fn due(at: Instant) -> Self {
        Self { at: Some(at), ..Self::default() }
    }

    /// Forgets all questions, because the nodes that were asked belong to another cluster.
    pub(super) fn forget(&mut self) {
        self.asked.clear();
        self.answers.clear();
        self.scout = None;
    }
}

impl Drop for ScoutTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ClusterBackend {
    pub(super) fn refresh_soon(&mut self) {
        let earliest = self.earliest();
        self.refresh_by(self.refresh.scout_again.map_or(earliest, |again| again.max(earliest)));
    }

    fn earliest(&self) -> Instant {
        self.refresh.last.map_or_else(Instant::now, |last| last + LEAST_PAUSE)
    }

    fn refresh_by(&mut self, at: Instant) {
        self.refresh.at = Some(self.refresh.at.map_or(at, |before| before.min(at)));
    }

    pub(super) fn begin_refresh(&mut self) {
        let now = Instant::now();
        self.refresh.last = Some(now);
        let troubled = self.routes.is_empty() || self.routed().iter().any(|id| !self.is_up(*id));
        self.refresh.at = Some(now + if troubled { TROUBLED } else { CALM });
        if self.refresh.scout.is_some() || !self.refresh.asked.is_empty() {
            // The sign of a change may be newer than the answers on their way.
            self.refresh.at = Some(now + LEAST_PAUSE);
            return;
        }
        self.leave_unused();
        self.refresh.answers.clear();
        let up: Vec<ServerId> =
            self.nodes.keys().copied().filter(|id| self.is_up(*id)).take(ASKED).collect();
        if self.routes.is_empty() || up.is_empty() {
            return self.send_scout();
        }
        self.refresh.expected = up.len();
        let budget = self.config.budgets().one_of_several();
        for id in up {
            self.last_own += 1;
            let op = OpId(OURS | self.last_own);
            if let Some(node) = self.nodes.get_mut(&id) {
                self.refresh.asked.insert(op, node.address.clone());
                node.backend.send(op, CallRequest::Slots, budget);
            }
        }
    }

    pub(super) fn send_scout(&mut self) {
        if let Some(again) = self.refresh.scout_again.filter(|again| *again > Instant::now()) {
            self.refresh.at = self.refresh.at.map(|at| at.max(again));
            return;
        }
        let known = self.known_nodes();
        let again = Instant::now() + self.refresh.pause.next();
        self.refresh.scout_again = Some(again);
        self.refresh.at = self.refresh.at.map(|at| at.max(again));
        let probe = self.sharding == Sharding::Auto && self.sharded.is_none();
        let task = spawn(scout::explore(self.config.clone(), known, probe));
        self.refresh.scout = Some(ScoutTask(task));
    }

    /// Every node that was announced or given by the user, each once. Addresses from the user are
    /// not mapped, so the same address may lead elsewhere when a node announces it.
    pub(super) fn known_nodes(&self) -> Vec<KnownNode> {
        let announced = self.map.primaries().into_iter().chain(&self.map.replicas);
        let announced =
            announced.map(|address| KnownNode { address: address.clone(), given: false });
        let given =
            self.seeds.iter().map(|address| KnownNode { address: address.clone(), given: true });
        let mut known: Vec<(Endpoint, KnownNode)> = Vec::new();
        for node in announced.chain(given) {
            let place = node.config(&self.config).place();
            if known.iter().all(|(other, _)| *other != place) {
                known.push((place, node));
            }
        }
        known.into_iter().map(|(_, node)| node).collect()
    }

    /// A node has connected and can be asked. The pause between scouts is kept, because the node
    /// may fail before it has answered anything.
    pub(super) fn ask_node(&mut self) {
        if self.refresh.scout_again.is_some() {
            // The refresh was postponed.
            self.refresh_by(self.earliest());
        }
    }

    /// A node has answered, so scouts are no longer needed.
    pub(super) fn end_scouting(&mut self) {
        self.refresh.pause = RetryPause::default();
        self.refresh.scout_again = None;
    }

    pub(super) fn on_map_answer(&mut self, asked: &Address, outcome: Outcome<Value>) {
        if let Outcome::Done(value) = outcome {
            self.refresh.answers.extend(SlotMap::read(&value, asked).filter(|map| !map.is_empty()));
        }
        let answered = self.refresh.answers.len();
        // A frozen node must not delay the answers of the others, so a majority is enough.
        if answered * 2 > self.refresh.expected || self.refresh.asked.is_empty() && answered > 0 {
            let answers = std::mem::take(&mut self.refresh.answers);
            self.refresh.asked.clear();
            self.adopt(&answers);
        } else if self.refresh.asked.is_empty() {
            self.send_scout();
        }
    }

    pub(super) fn on_scouted(&mut self, result: Result<NodeAnswers, Failure>) {
        match result {
            Ok(NodeAnswers { maps, sharded }) => {
                self.sharded = self.sharded.or(sharded);
                self.adopt(&maps);
            }
            Err(failure) => {
                let server = ServerId::ONLY;
                self.ready.push_back(BackendEvent::ConnectFailed { server, failure });
            }
        }
    }

    pub(super) fn adopt(&mut self, answers: &[SlotMap]) {
        let map = SlotMap::agree(answers, &self.map);
        let primaries: BTreeSet<Address> = map.primaries().into_iter().cloned().collect();
        let ids: HashMap<Address, ServerId> = primaries
            .into_iter()
            .map(|address| (address.clone(), self.node_at(&address)))
            .collect();
        let server =
            |primary: Option<&Address>| primary.map_or(ServerId::ONLY, |address| ids[address]);
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

    pub(super) fn move_slot(&mut self, slot: u16, to: ServerId) {
        self.moved.insert(slot, (to, Instant::now()));
        if self.has_lost(to, slot) {
            let mut routes = self.routes.to_vec();
            routes[usize::from(slot)] = to;
            self.reroute(routes.into());
        }
    }

    pub(super) fn reroute(&mut self, routes: Arc<[ServerId]>) {
        let changed = routes != self.routes;
        self.routes = routes;
        // First, because a spare node that has slots now may have subscriptions again.
        self.leave_unused();
        if changed {
            let sharded = self.sharded == Some(true);
            let servers = Arc::clone(&self.routes);
            self.ready.push_back(BackendEvent::Routes(Routes::Slots { servers, sharded }));
            self.move_subscriptions();
        }
    }

    pub(super) fn routed(&self) -> BTreeSet<ServerId> {
        let mut routed: BTreeSet<ServerId> = self.routes.iter().copied().collect();
        routed.remove(&ServerId::ONLY);
        routed
    }
}
