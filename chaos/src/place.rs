//! The servers of a run, and how workers get to them.

mod keys;

use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use redis::Connection;
use redis::FromRedisValue;
use redis::RedisResult;

pub(crate) use self::keys::Content;
pub(crate) use self::keys::Field;
pub(crate) use self::keys::Key;
pub(crate) use self::keys::all as keys;
use crate::clock;
use crate::clock::Clock;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::topology;
use crate::support::topology::Plan;
use crate::support::topology::Topology;
use crate::wire::Wire;
use crate::wire::client_of;

/// In front of the addresses of several independent servers.
pub(crate) const REDLOCK: &str = "redlock:";
/// So long a frozen server is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// One server that keeps nothing.
    Single,
    /// One server with an append-only file.
    Aof,
    Sentinel,
    Cluster,
    /// Five independent servers, each with an append-only file.
    Redlock,
}

/// How many servers a Redlock has.
pub(crate) const INDEPENDENT: usize = 5;

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Single, Self::Aof, Self::Sentinel, Self::Cluster, Self::Redlock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Aof => "aof",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Redlock => "redlock",
        }
    }

    pub(crate) fn is_one(self) -> bool {
        matches!(self, Self::Single | Self::Aof)
    }

    /// Whether one server takes over from another.
    pub(crate) fn fails_over(self) -> bool {
        matches!(self, Self::Sentinel | Self::Cluster)
    }
}

pub(crate) enum Servers {
    /// One, or several that do not know of each other.
    Alone(Vec<RedisServer>),
    Many(Topology),
}

pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) servers: Servers,
    /// For each worker one to each server, where servers are alone, and for one more client.
    pub(crate) proxies: Vec<Vec<FaultProxy>>,
    /// What each of these clients and each server say, where that is looked at.
    pub(crate) wires: Vec<Vec<Wire>>,
    /// Of servers whose clocks can be set.
    pub(crate) clocks: Vec<Clock>,
}

impl Place {
    /// `sets_clocks`: those of independent servers, if that can be done here.
    pub(crate) fn start(kind: Kind, workers: usize, sets_clocks: bool) -> Self {
        let mut clocks = Vec::new();
        let user = ["--user", "locks", "on", ">lock-secret", "~*", "&*", "+@all"];
        // Not `everysec`: while the disk is busy it puts off the write as well, and a kill loses
        // what was answered.
        let keeping = ["--appendonly", "yes", "--appendfsync", "always"];
        let servers = match kind {
            Kind::Single => Servers::Alone(vec![RedisServer::with(&user)]),
            Kind::Aof => Servers::Alone(vec![RedisServer::with(&[&user[..], &keeping].concat())]),
            Kind::Redlock => {
                // What is written outlives a kill without any fsync, which five would wait for.
                let keeping = ["--appendonly", "yes", "--appendfsync", "no"];
                let options = [&user[..], &keeping].concat();
                if sets_clocks {
                    clocks = settable();
                }
                let environment = |(clock, library): &(Clock, &Path)| clock.environment(library);
                let start = |server| {
                    let environment = clocks.get(server).map(environment).unwrap_or_default();
                    RedisServer::in_environment(&options, environment)
                };
                Servers::Alone((0..INDEPENDENT).map(start).collect())
            }
            Kind::Sentinel => {
                let plan = Plan::new(topology::Kind::Sentinel);
                Servers::Many(plan.setting("TOPOLOGY_DOWN_AFTER", "1000").start())
            }
            Kind::Cluster => {
                let plan = Plan::new(topology::Kind::Cluster);
                Servers::Many(plan.setting("TOPOLOGY_NODE_TIMEOUT", "1500").start())
            }
        };
        let proxies: Vec<Vec<FaultProxy>> = match &servers {
            Servers::Alone(servers) => {
                let proxy = |server: &RedisServer| FaultProxy::start(&server.address());
                // And one for a client beside the workers.
                (0..=workers).map(|_| servers.iter().map(proxy).collect()).collect()
            }
            Servers::Many(_) => Vec::new(),
        };
        let mut wires = Vec::new();
        if kind.is_one() || !clocks.is_empty() {
            let listen = |proxies: &Vec<FaultProxy>| proxies.iter().map(Wire::of).collect();
            wires.extend(proxies.iter().map(listen));
        }
        let clocks = clocks.into_iter().map(|(clock, _)| clock).collect();
        Self { kind, servers, proxies, wires, clocks }
    }

    /// What a worker is told: of several independent servers all, after `redlock:`.
    pub(crate) fn url(&self, worker: usize) -> String {
        match (&self.servers, self.kind) {
            (Servers::Alone(_), kind) => {
                let url =
                    |proxy: &FaultProxy| format!("redis://locks:lock-secret@{}", proxy.address());
                let urls: Vec<String> = self.proxies[worker].iter().map(url).collect();
                let all = urls.join(",");
                if kind == Kind::Redlock { format!("{REDLOCK}{all}") } else { all }
            }
            (Servers::Many(set), Kind::Sentinel) => format!(
                "redis-sentinel://locks:lock-secret@{}/main?sentinel_password=sentinel-secret",
                set.addresses(3..6).join(",")
            ),
            (Servers::Many(cluster), _) => {
                format!("redis-cluster://{}", cluster.addresses(0..6).join(","))
            }
        }
    }

    /// The client that is the first to wait for a fair lock, or has it.
    pub(crate) fn head(&self, name: &str) -> Option<String> {
        let urls = self.admin_urls();
        let mut connection = connect(urls.first()?).ok()?;
        let line: Vec<String> =
            ask(&mut connection, &["ZRANGE", &line_of(name), "0", "0"]).unwrap_or_default();
        let holder: Vec<String> = ask(&mut connection, &["HKEYS", name]).unwrap_or_default();
        line.iter().chain(&holder).map(|field| client_of(field).to_owned()).next()
    }

    /// As an administrator, for each server that holds data.
    pub(crate) fn admin_urls(&self) -> Vec<String> {
        match (&self.servers, self.kind) {
            (Servers::Alone(servers), _) => servers.iter().map(RedisServer::url).collect(),
            (Servers::Many(set), Kind::Sentinel) => (0..3)
                .map(|node| format!("redis://admin:admin-secret@{}", set.address(node)))
                .collect(),
            (Servers::Many(cluster), _) => {
                (0..6).map(|node| format!("redis://{}", cluster.address(node))).collect()
            }
        }
    }

    /// On every server that answers; how many that were.
    pub(crate) fn everywhere(&self, command: &[&str]) -> usize {
        let ask =
            |url: &String| connect(url).and_then(|mut connection| ask(&mut connection, command));
        self.admin_urls().iter().map(ask).filter(RedisResult::<redis::Value>::is_ok).count()
    }

    /// Of all kinds of locks, on any server that answers.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let keys =
            |url: &String| connect(url).and_then(|mut connection| keys::all(&mut connection));
        self.admin_urls().iter().filter_map(|url| keys(url).ok()).flatten().collect()
    }

    /// What clients have left on the servers, if anything. What stands beside locks does not count,
    /// such as waiting lines: that of a worker that was killed is there until its time to live ends.
    pub(crate) fn left(&self) -> Option<String> {
        let mut keys = self.keys();
        keys.retain(|key| key.must_go());
        if !keys.is_empty() {
            return Some(format!("keys {keys:?}"));
        }
        self.admin_urls().iter().find_map(|url| {
            let mut connection = connect(url).ok()?;
            let mut channels: Vec<String> =
                ask(&mut connection, &["PUBSUB", "CHANNELS", "redisson*"]).ok()?;
            channels.extend(
                ask::<Vec<String>>(&mut connection, &["PUBSUB", "SHARDCHANNELS", "redisson*"])
                    .unwrap_or_default(),
            );
            if !channels.is_empty() {
                return Some(format!("subscriptions {channels:?}"));
            }
            let own: u64 = ask(&mut connection, &["CLIENT", "ID"]).ok()?;
            let clients: String = ask(&mut connection, &["CLIENT", "LIST"]).ok()?;
            let left = clients.lines().find(|line| self.is_of_a_worker(line, own))?;
            Some(format!("connection {left}"))
        })
    }

    fn is_of_a_worker(&self, line: &str, own: u64) -> bool {
        let field = |name: &str| {
            line.split(' ').find_map(|word| word.strip_prefix(name)).unwrap_or_default()
        };
        if self.kind == Kind::Sentinel {
            return field("user=") == "locks";
        }
        // Servers keep the connections over which they have moved keys for a while.
        let of_a_server =
            field("flags=").contains(['S', 'M']) || field("cmd=").starts_with("restore");
        field("id=") != own.to_string() && !of_a_server
    }
}

/// A clock for each independent server, and what is loaded before it. None where clocks cannot be
/// set, which is said once.
fn settable() -> Vec<(Clock, &'static Path)> {
    static SAID: Once = Once::new();
    match clock::library() {
        Ok(library) => {
            let clock = || Clock::new().expect("a file for a clock");
            (0..INDEPENDENT).map(|_| (clock(), library)).collect()
        }
        Err(why) => {
            SAID.call_once(|| println!("NOT RUN: steps of the clocks of servers: {why}"));
            Vec::new()
        }
    }
}

/// The key of the line of a lock.
pub(crate) fn line_of(name: &str) -> String {
    format!("redisson_lock_line__{{{name}}}")
}

pub(crate) fn connect(url: &str) -> RedisResult<Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}

pub(crate) fn ask<T: FromRedisValue>(
    connection: &mut Connection,
    command: &[&str],
) -> RedisResult<T> {
    let mut words = redis::cmd(command[0]);
    words.arg(&command[1..]);
    words.query(connection)
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) primary: bool,
    /// Another one with each failover.
    pub(crate) history: String,
}

impl Role {
    pub(crate) fn ask(connection: &mut Connection) -> RedisResult<Self> {
        let text: String = ask(connection, &["INFO", "replication"])?;
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        Ok(Self {
            primary: field("role:") == "master",
            history: field("master_replid:").to_owned(),
        })
    }
}
