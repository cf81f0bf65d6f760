//! The servers of a run, and how workers get to them.

use std::time::Duration;

use redis::Connection;
use redis::FromRedisValue;
use redis::RedisResult;

use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::topology;
use crate::support::topology::Plan;
use crate::support::topology::Topology;

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
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Single, Self::Aof, Self::Sentinel, Self::Cluster];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Aof => "aof",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
        }
    }

    pub(crate) fn is_one(self) -> bool {
        matches!(self, Self::Single | Self::Aof)
    }
}

pub(crate) enum Servers {
    One(RedisServer),
    Many(Topology),
}

pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) servers: Servers,
    /// One for each worker, where a server is one.
    pub(crate) proxies: Vec<FaultProxy>,
}

impl Place {
    pub(crate) fn start(kind: Kind, workers: usize) -> Self {
        let user = ["--user", "locks", "on", ">lock-secret", "~*", "&*", "+@all"];
        // Not `everysec`: while the disk is busy it puts off the write as well, and a kill loses
        // what was answered.
        let keeping = ["--appendonly", "yes", "--appendfsync", "always"];
        let servers = match kind {
            Kind::Single => Servers::One(RedisServer::with(&user)),
            Kind::Aof => Servers::One(RedisServer::with(&[&user[..], &keeping].concat())),
            Kind::Sentinel => {
                let plan = Plan::new(topology::Kind::Sentinel);
                Servers::Many(plan.setting("TOPOLOGY_DOWN_AFTER", "1000").start())
            }
            Kind::Cluster => {
                let plan = Plan::new(topology::Kind::Cluster);
                Servers::Many(plan.setting("TOPOLOGY_NODE_TIMEOUT", "1500").start())
            }
        };
        let proxies = match &servers {
            Servers::One(server) => {
                (0..workers).map(|_| FaultProxy::start(&server.address())).collect()
            }
            Servers::Many(_) => Vec::new(),
        };
        Self { kind, servers, proxies }
    }

    /// What a worker is told.
    pub(crate) fn url(&self, worker: usize) -> String {
        match (&self.servers, self.kind) {
            (Servers::One(_), _) => {
                format!("redis://locks:lock-secret@{}", self.proxies[worker].address())
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

    /// As an administrator, for each server that holds data.
    pub(crate) fn admin_urls(&self) -> Vec<String> {
        match (&self.servers, self.kind) {
            (Servers::One(server), _) => vec![server.url()],
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

    /// Locks and waiting lines on any server that answers.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let keys = |url: &String| connect(url).and_then(|mut connection| keys(&mut connection));
        self.admin_urls().iter().filter_map(|url| keys(url).ok()).flatten().collect()
    }

    /// What clients have left on the servers, if anything. Waiting lines do not count: that of a
    /// worker that was killed is there until its time to live ends.
    pub(crate) fn left(&self) -> Option<String> {
        let mut keys = self.keys();
        keys.retain(|key| key.content != Content::Line);
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

/// A key of ours that is no fence counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: String,
    /// In ms; -1: it stays for ever.
    pub(crate) left: i64,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// A lock that is held or reserved, by these fields.
    Lock(Vec<Field>),
    /// Those who wait for a lock.
    Line,
    /// Of another type.
    Other(String),
}

/// In the hash of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) hold: String,
    /// 0: nobody has the lock; it is reserved for this hold.
    pub(crate) count: u64,
}

impl Key {
    /// The field that has the lock, if somebody has it.
    pub(crate) fn holder(&self) -> Option<&str> {
        let Content::Lock(fields) = &self.content else { return None };
        let holds = fields.iter().find(|field| field.count > 0);
        holds.map(|field| field.hold.as_str())
    }
}

/// All of them at one moment.
const KEYS: &str = "
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if string.sub(key, 1, 20) ~= 'redisson_lock_fence:' then
    local left, kind = redis.call('PTTL', key), redis.call('TYPE', key).ok
    local fields = kind == 'hash' and redis.call('HGETALL', key) or {}
    if left ~= -2 then found[#found + 1] = {key, left, kind, fields} end
  end
end
return found";

/// Locks and waiting lines.
pub(crate) fn keys(connection: &mut Connection) -> RedisResult<Vec<Key>> {
    let found: Vec<Found> = ask(connection, &["EVAL", KEYS, "0"])?;
    Ok(found.into_iter().map(key).collect())
}

/// Name, time to live, type, and of a hash its fields.
type Found = (String, i64, String, Vec<(String, u64)>);

fn key((name, left, kind, fields): Found) -> Key {
    let content = match kind.as_str() {
        "hash" => {
            let field = |(hold, count)| Field { hold, count };
            Content::Lock(fields.into_iter().map(field).collect())
        }
        "zset" => Content::Line,
        _ => Content::Other(kind),
    };
    Key { name, left, content }
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
