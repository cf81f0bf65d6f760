//! A private sentinel set or cluster, made by `docker/topology.sh`, whose nodes a test can kill,
//! freeze and restart.

use std::collections::HashMap;
use std::fs;
use std::fs::File;
use std::net::TcpListener;
use std::net::TcpStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Connection;
use redis::FromRedisValue;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;

use crate::support::ROOT;
use crate::support::redis_server::binary;
use crate::support::redis_server::pause;

/// Servers of one topology take their ports side by side, and a cluster's buses 10000 above.
const SERVERS: u16 = 6;

/// What the nodes form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 0: the primary "main" at first; 1 and 2: replicas; 3 to 5: sentinels.
    Sentinel,
    /// 0 to 2: primaries at first, with consecutive thirds of the slots; 3 to 5: a replica of one
    /// each.
    Cluster,
}

/// How to start one; the rest is in the script.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    kind: Kind,
    settings: Vec<(String, String)>,
}

/// Six processes. All are killed when it is dropped, frozen ones too.
#[derive(Debug)]
pub(crate) struct Topology {
    plan: Plan,
    port: u16,
    directory: PathBuf,
    nodes: Vec<Option<Child>>,
}

impl Plan {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, settings: Vec::new() }
    }

    /// More lines for the configuration of every server that holds data: `"appendonly yes"`.
    pub(crate) fn config(self, lines: &str) -> Self {
        self.setting("TOPOLOGY_CONFIG", lines)
    }

    /// An environment variable of the script.
    pub(crate) fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn start(self) -> Topology {
        for _ in 0..5 {
            if let Some(topology) = Topology::try_start(&self) {
                return topology;
            }
        }
        panic!("no {:?} could be started: somebody else takes the ports", self.kind)
    }
}

impl Topology {
    pub(crate) fn sentinel() -> Self {
        Plan::new(Kind::Sentinel).start()
    }

    pub(crate) fn cluster() -> Self {
        Plan::new(Kind::Cluster).start()
    }

    pub(crate) fn port(&self, node: usize) -> u16 {
        self.port + u16::try_from(node).expect("a small number")
    }

    pub(crate) fn address(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.port(node))
    }

    pub(crate) fn addresses(&self, nodes: impl IntoIterator<Item = usize>) -> Vec<String> {
        nodes.into_iter().map(|node| self.address(node)).collect()
    }

    /// Which node listens there.
    pub(crate) fn node_at(&self, port: u16) -> usize {
        let node = usize::from(port.checked_sub(self.port).expect("a port of this topology"));
        assert!(node < self.nodes.len(), "a port of this topology");
        node
    }

    // ---- processes

    /// Ends a node as kill -9 does.
    pub(crate) fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Freezes a node; its connections stay open.
    pub(crate) fn freeze(&self, node: usize) {
        self.signal(node, Signal::STOP);
    }

    pub(crate) fn thaw(&self, node: usize) {
        self.signal(node, Signal::CONT);
    }

    pub(crate) fn is_running(&self, node: usize) -> bool {
        self.nodes[node].is_some()
    }

    /// Starts a node again, after `kill` if it still runs: with its configuration, and with its
    /// data only if the plan keeps any. Returns when it answers.
    pub(crate) fn restart(&mut self, node: usize) {
        self.kill(node);
        assert!(self.spawn(node), "node {node} does not start again");
    }

    /// Starts a node again with its configuration and without its data, wherever it was kept.
    pub(crate) fn restart_empty(&mut self, node: usize) {
        self.kill(node);
        for entry in
            fs::read_dir(self.directory.join(node.to_string())).expect("its directory").flatten()
        {
            if entry.path().is_dir() {
                fs::remove_dir_all(entry.path()).expect("an append-only directory");
            } else if !["server.conf", "nodes.conf"].iter().any(|kept| *entry.file_name() == **kept)
            {
                fs::remove_file(entry.path()).expect("a file of the server");
            }
        }
        assert!(self.spawn(node), "node {node} does not start again");
    }

    /// Copies what the servers have said into a directory that outlives them.
    #[allow(dead_code, reason = "chaos does")]
    pub(crate) fn keep_logs(&self, to: &Path) {
        for node in 0..self.nodes.len() {
            let name = format!("{node}.log");
            let _ = fs::copy(self.directory.join(&name), to.join(&name));
        }
    }

    fn signal(&self, node: usize, signal: Signal) {
        let child = self.nodes[node].as_ref().expect("a running node");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("a signal of ours");
    }

    // ---- starting

    fn try_start(plan: &Plan) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("topology-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory for the servers");
        let nodes = (0..SERVERS).map(|_| None).collect();
        let mut topology = Self { plan: plan.clone(), port: free_ports(), directory, nodes };
        for node in 0..usize::from(SERVERS) {
            if !topology.spawn(node) {
                return None;
            }
        }
        let joined = topology.script(&["join", plan.kind.name()]).output().expect("bash");
        assert!(joined.status.success(), "{joined:?}");
        let mut last = String::new();
        topology.wait("all are ready", Duration::from_secs(60), |topology| {
            let ready =
                topology.script(&["ready", topology.plan.kind.name()]).output().expect("bash");
            last = String::from_utf8_lossy(&ready.stdout).into_owned();
            ready.status.success()
        });
        Some(topology)
    }

    /// False if it ended at once.
    fn spawn(&mut self, node: usize) -> bool {
        self.mend_shards(node);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.join(format!("{node}.log")));
        let child = self
            .script(&["node", self.plan.kind.name(), &node.to_string()])
            .stdin(Stdio::null())
            .stdout(log.expect("a log file"))
            .stderr(Stdio::null())
            .spawn();
        self.nodes[node] = Some(child.expect("bash"));
        let mut running = true;
        self.wait(&format!("node {node} answers"), Duration::from_secs(30), |topology| {
            let child = topology.nodes[node].as_mut().expect("just started");
            running = child.try_wait().expect("its state").is_none();
            !running || topology.answers(node)
        });
        running
    }

    /// A 7.2 that was killed at the wrong moment has written a primary and its replica down with
    /// different shard ids, and does not start with that: the replica gets its primary's.
    fn mend_shards(&self, node: usize) {
        let file = self.directory.join(node.to_string()).join("nodes.conf");
        let Ok(config) = fs::read_to_string(&file) else { return };
        let shard_of = |line: &str| {
            let rest = line.split_once(",shard-id=")?.1;
            rest.get(..40).map(str::to_owned)
        };
        let shards: HashMap<&str, String> =
            config.lines().filter_map(|line| Some((line.get(..40)?, shard_of(line)?))).collect();
        let wrong: Vec<_> = config
            .lines()
            .filter_map(|line| Some((line, shard_of(line)?, shards.get(line.split(' ').nth(3)?)?)))
            .filter(|(_, own, shard)| own != *shard)
            .collect();
        if wrong.is_empty() {
            return;
        }
        let mut mended = config.clone();
        for (line, own, shard) in wrong {
            eprintln!("node {node}: shard-id {own} of a replica becomes its primary's, {shard}");
            mended = mended.replace(line, &line.replace(&own, shard));
        }
        fs::write(file, mended).expect("its cluster configuration");
    }

    fn script(&self, args: &[&str]) -> Command {
        let mut command = Command::new("bash");
        command
            .arg(format!("{ROOT}/docker/topology.sh"))
            .args(args)
            .env("TOPOLOGY_PORT", self.port.to_string())
            .env("TOPOLOGY_DIR", &self.directory)
            .env("REDIS_SERVER", binary())
            .envs(self.plan.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    fn answers(&self, node: usize) -> bool {
        // The other client that looks speaks no TLS; whether all is well then is for the script to
        // say.
        if self.plan.settings.iter().any(|(name, _)| name == "TOPOLOGY_CERTS") {
            return TcpStream::connect(self.address(node)).is_ok();
        }
        self.try_connection(node)
            .and_then(|mut connection| redis::cmd("PING").query::<String>(&mut connection))
            .is_ok()
    }

    fn wait(&mut self, what: &str, limit: Duration, mut condition: impl FnMut(&mut Self) -> bool) {
        let step = Duration::from_millis(20);
        for _ in 0..limit.as_millis() / step.as_millis() {
            if condition(self) {
                return;
            }
            pause(step);
        }
        panic!("within {limit:?} it did not happen that {what}");
    }

    // ---- looking

    /// As an administrator, by another client than ours; no answer within 2 s is an error.
    pub(crate) fn try_connection(&self, node: usize) -> redis::RedisResult<Connection> {
        let login = match (self.plan.kind, node) {
            (Kind::Cluster, _) => "",
            (Kind::Sentinel, 0..3) => "admin:admin-secret@",
            (Kind::Sentinel, _) => ":sentinel-secret@",
        };
        let client = redis::Client::open(format!("redis://{login}{}", self.address(node)))?;
        let limit = Duration::from_secs(2);
        let connection = client.get_connection_with_timeout(limit)?;
        connection.set_read_timeout(Some(limit))?;
        Ok(connection)
    }

    pub(crate) fn connection(&self, node: usize) -> Connection {
        self.try_connection(node).unwrap_or_else(|error| panic!("node {node}: {error}"))
    }

    /// Runs a command on a node.
    pub(crate) fn ask<T: FromRedisValue>(&self, node: usize, command: &[&str]) -> T {
        self.try_ask(node, command)
            .unwrap_or_else(|error| panic!("node {node}, {command:?}: {error}"))
    }

    pub(crate) fn try_ask<T: FromRedisValue>(
        &self,
        node: usize,
        command: &[&str],
    ) -> redis::RedisResult<T> {
        let mut connection = self.try_connection(node)?;
        let mut words = redis::cmd(command[0]);
        for word in &command[1..] {
            words.arg(*word);
        }
        words.query(&mut connection)
    }

    /// Whether a node itself says that it is a primary.
    pub(crate) fn is_primary(&self, node: usize) -> bool {
        self.try_ask::<String>(node, &["INFO", "replication"])
            .is_ok_and(|info| info.contains("role:master"))
    }

    /// The replicas that a primary has, as it says itself.
    pub(crate) fn replicas_of(&self, primary: usize) -> Vec<usize> {
        let info: String = self.try_ask(primary, &["INFO", "replication"]).unwrap_or_default();
        let port = |line: &str| line.split("port=").nth(1)?.split(',').next()?.parse().ok();
        let lines = info.lines().filter(|line| line.contains("state=online"));
        lines.filter_map(port).map(|port| self.node_at(port)).collect()
    }

    // ---- sentinels

    /// The primary, as the majority of the sentinels that answer names it.
    pub(crate) fn primary(&self) -> usize {
        let named: Vec<usize> = (3..6).filter_map(|sentinel| self.named_by(sentinel)).collect();
        let votes = |node: &usize| named.iter().filter(|other| *other == node).count();
        *named.iter().max_by_key(|node| votes(node)).expect("a sentinel that answers")
    }

    /// The primary, as one sentinel names it.
    pub(crate) fn named_by(&self, sentinel: usize) -> Option<usize> {
        let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"];
        let (_, port): (String, String) = self.try_ask(sentinel, &command).ok()?;
        Some(self.node_at(port.parse().expect("a port")))
    }

    /// Has the sentinels promote a replica although the primary is well. Returns as soon as it is
    /// begun.
    pub(crate) fn begin_failover(&mut self) {
        self.wait("a sentinel begins a failover", Duration::from_secs(30), |topology| {
            let running =
                (3..6).find(|sentinel| topology.is_running(*sentinel)).expect("a sentinel");
            topology.try_ask::<String>(running, &["SENTINEL", "FAILOVER", "main"]).is_ok()
        });
    }

    /// Waits until the sentinels that run all name another primary than `old`, which says so
    /// itself.
    pub(crate) fn wait_for_other_primary(&mut self, old: usize) -> usize {
        let mut new = old;
        self.wait("another primary is promoted", Duration::from_secs(60), |topology| {
            let running = (3..6).filter(|sentinel| topology.is_running(*sentinel));
            let named: Vec<_> = running.map(|sentinel| topology.named_by(sentinel)).collect();
            new = named[0].unwrap_or(old);
            new != old && named.iter().all(|other| *other == Some(new)) && topology.is_primary(new)
        });
        new
    }

    /// Makes a former primary, killed or frozen or only deposed, a replica of this one. Sentinels
    /// do the same, after some ten seconds in which it goes on taking writes.
    pub(crate) fn rejoin(&mut self, node: usize, primary: usize) {
        if self.is_running(node) {
            self.thaw(node);
        } else {
            self.restart(node);
        }
        let port = self.port(primary).to_string();
        let _: String = self.ask(node, &["REPLICAOF", "127.0.0.1", &port]);
    }

    /// Waits until the primary has two replicas in step and all sentinels miss nobody.
    pub(crate) fn wait_until_whole(&mut self) {
        self.wait("all are in step again", Duration::from_secs(60), |topology| {
            let primary = topology.primary();
            topology.replicas_of(primary).len() == 2
                && (3..6).all(|sentinel| topology.sentinel_is_content(sentinel, primary))
        });
    }

    fn sentinel_is_content(&self, sentinel: usize, primary: usize) -> bool {
        type Fields = Vec<HashMap<String, String>>;
        // Sentinels go on telling of a dead primary for five seconds after they have replaced it.
        let content = ["slave", "sentinel", "sentinel,master_down"];
        let all = |what| {
            let fields =
                self.try_ask::<Fields>(sentinel, &["SENTINEL", what, "main"]).unwrap_or_default();
            fields.len() == 2 && fields.iter().all(|one| content.contains(&one["flags"].as_str()))
        };
        self.named_by(sentinel) == Some(primary) && all("REPLICAS") && all("SENTINELS")
    }

    // ---- clusters

    /// The name of a node within its cluster.
    pub(crate) fn cluster_id(&self, node: usize) -> String {
        self.ask(node, &["CLUSTER", "MYID"])
    }

    /// Who serves a slot, as `asked` sees it.
    pub(crate) fn owner_of(&self, slot: u16, asked: usize) -> Option<usize> {
        type Row = (u16, u16, (String, u16, String));
        let rows: Vec<redis::Value> = self.try_ask(asked, &["CLUSTER", "SLOTS"]).ok()?;
        rows.into_iter().find_map(|row| {
            // Replicas follow the primary: cut off.
            let redis::Value::Array(mut parts) = row else { return None };
            parts.truncate(3);
            if let Some(redis::Value::Array(primary)) = parts.get_mut(2) {
                primary.truncate(3);
            }
            let (first, last, (_, port, _)): Row =
                redis::from_redis_value(redis::Value::Array(parts)).ok()?;
            (first..=last).contains(&slot).then(|| self.node_at(port))
        })
    }

    /// Has a replica take over from its primary. Returns once it is a primary.
    pub(crate) fn cluster_failover(&mut self, replica: usize, force: bool) {
        let command: &[&str] =
            if force { &["CLUSTER", "FAILOVER", "FORCE"] } else { &["CLUSTER", "FAILOVER"] };
        let mut turn = 0;
        self.wait("the replica takes over", Duration::from_secs(60), |topology| {
            // Given up by the replica after 5 s if the votes do not come, for example right after
            // another one.
            if turn % 300 == 0 {
                let _ = topology.try_ask::<String>(replica, command);
            }
            turn += 1;
            topology.is_primary(replica)
        });
    }

    pub(crate) fn wait_for_primary(&mut self, node: usize) {
        self.wait("it takes over", Duration::from_secs(60), |topology| topology.is_primary(node));
    }

    pub(crate) fn wait_for_replica(&mut self, primary: usize) {
        self.wait("it has a replica in step", Duration::from_secs(60), |topology| {
            let info =
                topology.try_ask::<String>(primary, &["INFO", "replication"]).unwrap_or_default();
            info.contains("state=online")
        });
    }

    /// Waits until every running node sees a state `ok`, and the same owner of this slot.
    pub(crate) fn wait_until_agreed(&mut self, slot: u16) -> usize {
        let mut owner = None;
        self.wait("all nodes agree", Duration::from_secs(60), |topology| {
            let running: Vec<usize> = (0..6).filter(|node| topology.is_running(*node)).collect();
            owner = topology.owner_of(slot, running[0]);
            owner.is_some_and(|owner| topology.is_primary(owner))
                && running.iter().all(|node| {
                    topology.owner_of(slot, *node) == owner
                        && topology
                            .try_ask::<String>(*node, &["CLUSTER", "INFO"])
                            .is_ok_and(|info| info.contains("cluster_state:ok"))
                })
        });
        owner.expect("just seen")
    }

    /// From here to `end_move` the old owner answers ASK for keys of the slot that it does not
    /// have.
    pub(crate) fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let _: String =
            self.ask(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.cluster_id(from)]);
        let _: String =
            self.ask(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.cluster_id(to)]);
    }

    /// Moves the keys that the slot has now.
    pub(crate) fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let (slot, port) = (slot.to_string(), self.port(to).to_string());
        loop {
            let keys: Vec<String> = self.ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                return;
            }
            let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            command.extend(keys.iter().map(String::as_str));
            let _: String = self.ask(from, &command);
        }
    }

    /// Tells every running node who has the slot; the new owner first, or the slot would be
    /// nobody's.
    pub(crate) fn end_move(&self, slot: u16, from: usize, to: usize) {
        let (slot, id) = (slot.to_string(), self.cluster_id(to));
        let others = (0..6).filter(|node| {
            ![from, to].contains(node) && self.is_running(*node) && self.is_primary(*node)
        });
        for node in [to, from].into_iter().chain(others) {
            let _: String = self.ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }

    /// Moves a slot with all that is in it, as resharding does.
    pub(crate) fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_move(slot, from, to);
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in 0..self.nodes.len() {
                let log = fs::read_to_string(self.directory.join(format!("{node}.log")))
                    .unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let tail = lines[lines.len().saturating_sub(8)..].join("\n  ");
                eprintln!("node {node}, port {}:\n  {tail}", self.port(node));
            }
        }
        for node in 0..self.nodes.len() {
            self.kill(node);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
        }
    }
}

/// The first of six ports side by side that nobody listens on, nor on those 10000 above. They lie
/// below the range from which the system takes ports for outgoing connections.
fn free_ports() -> u16 {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    for _ in 0..1_000 {
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        // Processes that run at the same time begin at different places.
        let place = (std::process::id().wrapping_mul(37) + turn) % 1_200;
        let first = 12_000 + u16::try_from(place).expect("below 1,200") * 8;
        if (first..first + SERVERS).all(|port| free(port) && free(port + 10_000)) {
            return first;
        }
    }
    panic!("no six free ports side by side")
}
