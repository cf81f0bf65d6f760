//! Where locks live: one server, a sentinel set or a cluster, behind one face.

use std::time::Duration;

use redis::FromRedisValue;
use redis_reentrant_lock::LockClientBuilder;

use crate::support::client;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;
use crate::support::redis_server::version;
use crate::support::topology::Kind;
use crate::support::topology::Plan;
use crate::support::topology::Topology;

/// Short, so that a silent connection is soon noticed.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(500);

/// Servers that keep their data, and that nobody fails over within a test.
pub(crate) enum Place {
    One(RedisServer),
    Set(Topology),
    Cluster(Topology),
}

impl Place {
    pub(crate) fn one() -> Self {
        Self::One(RedisServer::with(&["--appendonly", "yes"]))
    }

    pub(crate) fn set() -> Self {
        let plan = Plan::new(Kind::Sentinel).config("appendonly yes");
        Self::Set(plan.setting("TOPOLOGY_DOWN_AFTER", "30000").start())
    }

    pub(crate) fn cluster() -> Self {
        Self::cluster_that_waits("30000")
    }

    /// Each node hears from each other one every half of this time.
    pub(crate) fn cluster_that_waits(node_timeout_ms: &str) -> Self {
        let plan = Plan::new(Kind::Cluster).config("appendonly yes");
        Self::Cluster(plan.setting("TOPOLOGY_NODE_TIMEOUT", node_timeout_ms).start())
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::One(_) => "single",
            Self::Set(_) => "sentinel",
            Self::Cluster(_) => "cluster",
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Set(set) => sentinel_url(&set.addresses(3..6)),
            Self::Cluster(cluster) => {
                format!("redis-cluster://{}", cluster.addresses(0..6).join(","))
            }
        }
    }

    /// A lock name that node 0 has.
    pub(crate) fn name(&self, prefix: &str) -> String {
        self.name_on(0, prefix)
    }

    pub(crate) fn name_on(&self, node: usize, prefix: &str) -> String {
        let Self::Cluster(cluster) = self else { return prefix.to_owned() };
        let mut names = (0..).map(|number| format!("{prefix}:{number}"));
        let on_node = |name: &String| {
            let slot = cluster.ask(0, &["CLUSTER", "KEYSLOT", name]);
            cluster.owner_of(slot, 0) == Some(node)
        };
        names.find(on_node).expect("endless")
    }

    /// What node 0 answers to an administrator.
    pub(crate) fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        let mut words = redis::cmd(command[0]);
        words.arg(&command[1..]);
        words.query(&mut self.connection(0)).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    pub(crate) fn connection(&self, node: usize) -> redis::Connection {
        match self {
            Self::One(server) => server.connection(),
            Self::Set(servers) | Self::Cluster(servers) => servers.connection(node),
        }
    }

    pub(crate) fn config(&self, setting: &str, value: &str) {
        let _: String = self.ask(&["CONFIG", "SET", setting, value]);
    }

    pub(crate) fn restart(&mut self, with_data: bool) {
        match self {
            Self::One(server) if with_data => server.restart(),
            Self::One(server) => server.restart_empty(),
            Self::Set(servers) | Self::Cluster(servers) if with_data => servers.restart(0),
            Self::Set(servers) | Self::Cluster(servers) => servers.restart_empty(0),
        }
    }

    /// Sends something on a lock's channel.
    pub(crate) fn publish(&self, name: &str, what: &str) {
        let sharded = matches!(self, Self::Cluster(_)) && version() >= (7, 0);
        let command = if sharded { "SPUBLISH" } else { "PUBLISH" };
        let _: u64 = self.ask(&[command, &format!("redisson_lock__channel__{{{name}}}"), what]);
    }

    /// The numbers of the connections on which a client of ours listens.
    pub(crate) fn listeners(&self) -> Vec<String> {
        let list: String = self.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        let ours = list.lines().filter(|line| !line.contains("name=sentinel"));
        ours.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    }

    pub(crate) fn builder(&self) -> LockClientBuilder {
        builder(&self.url())
    }

    /// No key is left under this name.
    pub(crate) fn is_free(&self, name: &str) {
        self.is_free_on(0, name);
    }

    pub(crate) fn is_free_on(&self, node: usize, name: &str) {
        let mut connection = self.connection(node);
        eventually("the key is gone", || {
            let there: bool =
                redis::cmd("EXISTS").arg(name).query(&mut connection).expect("EXISTS");
            !there
        });
    }
}

pub(crate) fn builder(url: &str) -> LockClientBuilder {
    client::builder(url).command_timeout(COMMAND_TIMEOUT)
}

pub(crate) fn sentinel_url(sentinels: &[String]) -> String {
    format!(
        "redis-sentinel://locks:lock-secret@{}/main?sentinel_password=sentinel-secret",
        sentinels.join(",")
    )
}
