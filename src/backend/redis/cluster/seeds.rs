//! Watches the host names that the user gave for nodes. When they resolve to the nodes of another
//! cluster, the client moves there.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;

use futures::FutureExt;
use futures::future::join_all;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::ClusterBackend;
use super::scout;
use super::scout::KnownNode;
use super::scout::NodeAnswers;
use super::slots::SlotMap;
use crate::backend::Backend;
use crate::backend::redis::config::Address;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::names::EVERY;
use crate::backend::redis::names::HostName;
use crate::backend::redis::names::HostNames;
use crate::base::process::spawn;

/// Resolves the names every five seconds.
pub(super) struct SeedWatch {
    task: JoinHandle<()>,
    found: mpsc::UnboundedReceiver<NodeAnswers>,
}

impl Drop for SeedWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

impl SeedWatch {
    /// Starts the watch. `None` if one of the seeds is an IP address, which always means the same
    /// node.
    pub(super) fn watch(config: &RedisConfig, seeds: &[Address]) -> Option<Self> {
        let all_named = seeds.iter().all(|(host, _)| host.parse::<IpAddr>().is_err());
        if !config.follows_names() || !all_named || seeds.is_empty() {
            return None;
        }
        let (sender, found) = mpsc::unbounded_channel();
        let task = spawn(watch_names(config.clone(), seeds.to_vec(), sender));
        Some(Self { task, found })
    }

    pub(super) fn stop(&self) {
        self.task.abort();
    }

    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.task.poll_unpin(cx).map(|_| ())
    }
}

/// Resolves the names again and again. When none of the former addresses is left, asks the nodes at
/// the new ones for their cluster.
async fn watch_names(
    config: RedisConfig,
    seeds: Vec<Address>,
    found: mpsc::UnboundedSender<NodeAnswers>,
) {
    let names = HostNames::of(&config);
    let watched: Vec<Arc<HostName>> =
        seeds.iter().map(|(host, port)| names.name(host, *port)).collect();
    let given = |address| KnownNode { address, given: true };
    let nodes: Vec<KnownNode> = seeds.into_iter().map(given).collect();
    let mut known = resolved(&watched).await;
    loop {
        tokio::time::sleep(EVERY).await;
        let now = resolved(&watched).await;
        if !known.is_disjoint(&now) || known.is_empty() {
            known = now;
        } else if let Ok(others) = scout::explore(config.clone(), nodes.clone(), false).await {
            known = now;
            let _ = found.send(others);
        }
    }
}

/// All addresses of the names. For a name that cannot be resolved these are the last known ones.
async fn resolved(names: &[Arc<HostName>]) -> BTreeSet<SocketAddr> {
    let resolved = join_all(names.iter().map(|name| name.resolve_again())).await;
    resolved.into_iter().flatten().collect()
}

impl ClusterBackend {
    pub(super) fn poll_seeds(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(seeds) = &mut self.watch else { return false };
        let Poll::Ready(Some(found)) = seeds.found.poll_recv(cx) else { return false };
        self.on_seeds_moved(&found.maps);
        true
    }

    /// Handles an answer from the nodes that the names now resolve to. If they belong to the known
    /// cluster, nothing changes. If they belong to another cluster, that one replaces the known
    /// one, whose nodes are closed at once, because they would go on to claim the slots.
    pub(super) fn on_seeds_moved(&mut self, maps: &[SlotMap]) {
        let map = SlotMap::agree(maps, &self.map);
        if self.map.is_empty() || map.is_empty() || !map.nodes().is_disjoint(&self.map.nodes()) {
            return;
        }
        self.moved.clear();
        self.refresh.forget();
        let nodes: BTreeSet<Address> = map.nodes().into_iter().cloned().collect();
        self.adopt(maps);
        for node in
            self.nodes.values_mut().filter(|node| !node.leaving && !nodes.contains(&node.address))
        {
            node.leaving = true;
            node.backend.close();
        }
        self.leave_unused();
        self.refresh_soon();
    }
}
