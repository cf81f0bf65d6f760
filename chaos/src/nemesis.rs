//! Does the harm that is planned, and writes down what was done.

mod clocks;
mod line;
mod several;

use std::fs::File;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use redis_reentrant_lock::Driver;

use self::several::Several;
use crate::event::now;
use crate::history::Breach;
use crate::history::Violation;
use crate::place::Key;
use crate::place::Kind;
use crate::place::Place;
use crate::place::Servers;
use crate::plan::Act;
use crate::plan::Path;
use crate::plan::Plan;
use crate::plan::WORKERS;
use crate::process::Process;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::worker::Settings;

/// Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// A server is killed while something is held, if that happens within this time.
const UNTIL_HELD: Duration = Duration::from_millis(300);

/// How often what was done.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    /// While something was held.
    pub(crate) server_kills: u64,
    pub(crate) server_stops: u64,
    /// Servers started without the data that they had.
    pub(crate) server_losses: u64,
    /// Clocks of servers that were set forward or back.
    pub(crate) clock_steps: u64,
    pub(crate) client_kills: u64,
    /// Beyond the lease.
    pub(crate) client_stops: u64,
    pub(crate) network_faults: u64,
    pub(crate) server_faults: u64,
    pub(crate) sentinel_failovers: u64,
    pub(crate) cluster_failovers: u64,
    pub(crate) slot_moves: u64,
    /// Workers that were the first to wait for a fair lock: killed or frozen.
    pub(crate) heads: u64,
    pub(crate) lines_removed: u64,
    pub(crate) force_unlocks: u64,
    /// Histories in which servers failed over that nobody had harmed.
    pub(crate) own_failovers: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.server_kills += other.server_kills;
        self.server_stops += other.server_stops;
        self.server_losses += other.server_losses;
        self.clock_steps += other.clock_steps;
        self.client_kills += other.client_kills;
        self.client_stops += other.client_stops;
        self.network_faults += other.network_faults;
        self.server_faults += other.server_faults;
        self.sentinel_failovers += other.sentinel_failovers;
        self.cluster_failovers += other.cluster_failovers;
        self.slot_moves += other.slot_moves;
        self.heads += other.heads;
        self.lines_removed += other.lines_removed;
        self.force_unlocks += other.force_unlocks;
        self.own_failovers += other.own_failovers;
    }
}

/// The file of a worker, and when it was killed.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) label: String,
    pub(crate) path: PathBuf,
    pub(crate) died: Option<u64>,
    worker: usize,
}

/// What a server that is alone does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alone {
    Runs,
    Frozen,
    /// Killed then.
    Down(u64),
}

pub(crate) struct Nemesis<'a> {
    pub(crate) place: Place,
    plan: &'a Plan,
    seed: u64,
    directory: PathBuf,
    store: PathBuf,
    workers: Vec<Option<Process>>,
    /// All workers that there ever were.
    pub(crate) logs: Vec<Written>,
    /// Of servers that are alone, each.
    servers: Vec<Alone>,
    several: Several,
    /// Workers that were harmed as the first of a line.
    heads: Vec<usize>,
    pub(crate) counts: Counts,
    pub(crate) breaches: Vec<Breach>,
    /// Of several independent servers: when one was away, and may have lost its data.
    pub(crate) outages: Vec<Breach>,
    /// When places in a line may have been lost.
    pub(crate) unsure: Vec<Breach>,
    /// Since when the server refuses commands.
    refuses: Option<u64>,
    pub(crate) harm: Vec<(u64, String)>,
    pub(crate) violations: Vec<Violation>,
}

impl<'a> Nemesis<'a> {
    pub(crate) fn new(
        place: Place,
        plan: &'a Plan,
        seed: u64,
        directory: PathBuf,
        store: PathBuf,
    ) -> Self {
        let workers = (0..WORKERS).map(|_| None).collect();
        let alone = if let Servers::Alone(servers) = &place.servers { servers.len() } else { 0 };
        Self {
            place,
            plan,
            seed,
            directory,
            store,
            workers,
            logs: Vec::new(),
            servers: vec![Alone::Runs; alone],
            several: Several::default(),
            heads: Vec::new(),
            counts: Counts::default(),
            breaches: Vec::new(),
            outages: Vec::new(),
            unsure: Vec::new(),
            refuses: None,
            harm: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// From the first worker's start to the last one's end.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        for worker in 0..WORKERS {
            self.start_worker(worker)?;
        }
        let started = Instant::now();
        // What takes long puts off all that follows, or it would be over as soon as it begins.
        let mut late = Duration::ZERO;
        for (at, act) in self.plan.acts.clone() {
            thread::sleep((at + late).saturating_sub(started.elapsed()));
            late = started.elapsed().saturating_sub(at);
            self.act(act)?;
        }
        thread::sleep((self.plan.length + late).saturating_sub(started.elapsed()));
        self.end()
    }

    fn say(&mut self, what: String) {
        self.harm.push((now(), what));
    }

    fn act(&mut self, act: Act) -> Result<(), String> {
        match act {
            Act::KillServer(server) => self.kill_server(server),
            Act::StartServer(server) => self.start_server(server, true),
            Act::StartEmpty(server) => self.start_server(server, false),
            Act::FreezeServer(server) => self.freeze_server(server),
            Act::ThawServer(server) => self.thaw_server(server),
            Act::KillWorker(worker) => self.kill_worker(worker),
            Act::StartWorker(worker) => self.start_worker(worker)?,
            Act::FreezeWorker(worker) => self.freeze_worker(worker),
            Act::ThawWorker(worker) => self.thaw_worker(worker),
            Act::Cut(path) => self.network(path, "is cut off", FaultProxy::cut),
            Act::Refuse(path, true) => self.network(path, "is refused", |proxy| proxy.refuse(true)),
            Act::Refuse(path, false) => self.mend(path, |proxy| proxy.refuse(false)),
            Act::Stall(path, way, true) => {
                self.network(path, &format!("hears nothing, {way:?}"), |proxy| {
                    proxy.stall(way, true)
                });
            }
            Act::Stall(path, way, false) => self.mend(path, |proxy| proxy.stall(way, false)),
            Act::Delay(path, way, Duration::ZERO) => {
                self.mend(path, |proxy| proxy.delay(way, Duration::ZERO));
            }
            Act::Delay(path, way, time) => {
                let what = format!("is {time:?} late, {way:?}");
                self.network(path, &what, |proxy| proxy.delay(way, time));
            }
            Act::Limit(path, way, Some(rate)) => {
                let what = format!("has {rate} bytes a second, {way:?}");
                self.network(path, &what, |proxy| proxy.limit(way, Some(rate)));
            }
            Act::Limit(path, way, None) => self.mend(path, |proxy| proxy.limit(way, None)),
            Act::KillClients { listeners } => {
                let kind = if listeners { "pubsub" } else { "normal" };
                self.server(&["CLIENT", "KILL", "TYPE", kind]);
            }
            Act::PauseClients { all, time } => {
                let what = if all { "ALL" } else { "WRITE" };
                self.server(&["CLIENT", "PAUSE", &time.as_millis().to_string(), what]);
            }
            Act::FlushScripts => self.server(&["SCRIPT", "FLUSH"]),
            Act::Full(true) => {
                self.begin_refusals();
                self.server(&["CONFIG", "SET", "maxmemory", "1"]);
            }
            Act::Full(false) => {
                self.undo(&["CONFIG", "SET", "maxmemory", "0"]);
                self.end_refusals();
            }
            Act::Forbid(Some(right)) => {
                self.begin_refusals();
                self.server(&["ACL", "SETUSER", self.user(), &format!("-{right}")]);
            }
            Act::Forbid(None) => {
                self.undo(&["ACL", "SETUSER", self.user(), "+@all"]);
                self.end_refusals();
            }
            Act::BeginFailover(why) => self.begin_failover(why),
            Act::EndFailover => self.end_failover(),
            Act::BeginMove(name) => self.begin_move(name),
            Act::EndMove => self.end_move(),
            Act::KillHead(name) => self.kill_head(name),
            Act::FreezeHead(name) => self.freeze_head(name),
            Act::MendHeads => self.mend_heads()?,
            Act::SetClocks { servers, ahead_ms } => self.set_clocks(servers, ahead_ms),
            Act::RemoveLine(name) => self.remove_line(name),
            Act::ForceUnlock(name) => self.force_unlock(name),
            Act::SmallBuffers(true) => {
                self.server(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 1 1 0"]);
            }
            Act::SmallBuffers(false) => {
                self.undo(&[
                    "CONFIG",
                    "SET",
                    "client-output-buffer-limit",
                    "pubsub 33554432 8388608 60",
                ]);
            }
        }
        Ok(())
    }

    // ---- servers

    fn user(&self) -> &'static str {
        if self.place.kind == Kind::Cluster { "default" } else { "locks" }
    }

    fn server(&mut self, command: &[&str]) {
        let answered = self.place.everywhere(command);
        self.counts.server_faults += u64::from(answered > 0);
        self.say(format!("{} on {answered}", command.join(" ")));
    }

    fn undo(&mut self, command: &[&str]) {
        self.place.everywhere(command);
        self.say(command.join(" "));
    }

    fn alone(&mut self, server: usize) -> Option<&mut RedisServer> {
        match &mut self.place.servers {
            Servers::Alone(servers) => servers.get_mut(server),
            Servers::Many(_) => None,
        }
    }

    fn kill_server(&mut self, server: usize) {
        let since = Instant::now();
        let mut held = false;
        let was_up = !matches!(self.servers.get(server), None | Some(Alone::Down(_)));
        while !held && since.elapsed() < UNTIL_HELD && was_up {
            held = self.place.keys().iter().any(Key::is_in_use);
        }
        let Some(running) = self.alone(server).filter(|_| was_up) else { return };
        let from = now();
        running.stop();
        self.counts.server_kills += u64::from(held);
        self.servers[server] = Alone::Down(from);
        if self.place.kind == Kind::Single {
            self.breaches.push(Breach { from, to: now(), two_servers: false, names: Vec::new() });
        }
        self.say(format!("server {server} is killed"));
    }

    fn start_server(&mut self, server: usize, with_data: bool) {
        let Some(Alone::Down(from)) = self.servers.get(server).copied() else { return };
        let Some(stopped) = self.alone(server) else { return };
        if with_data {
            stopped.restart();
        } else {
            stopped.restart_empty();
        }
        self.servers[server] = Alone::Runs;
        self.counts.server_losses += u64::from(!with_data);
        self.outages.push(Breach { from, to: now(), two_servers: false, names: Vec::new() });
        let how = if with_data { "" } else { " without its data" };
        self.say(format!("server {server} is back{how}"));
    }

    fn freeze_server(&mut self, server: usize) {
        let runs = self.servers.get(server) == Some(&Alone::Runs);
        let Some(running) = self.alone(server).filter(|_| runs) else { return };
        running.freeze();
        self.servers[server] = Alone::Frozen;
        self.counts.server_stops += 1;
        self.say(format!("server {server} is frozen"));
    }

    fn thaw_server(&mut self, server: usize) {
        let is_frozen = self.servers.get(server) == Some(&Alone::Frozen);
        let Some(frozen) = self.alone(server).filter(|_| is_frozen) else { return };
        frozen.thaw();
        self.servers[server] = Alone::Runs;
        self.say(format!("server {server} goes on"));
    }

    // ---- networks

    fn network(&mut self, path: Path, what: &str, change: impl Fn(&FaultProxy)) {
        let servers = self.change(path, change);
        if !servers.is_empty() {
            self.counts.network_faults += 1;
            self.say(format!("worker {} {what}, servers {servers:?}", path.worker));
        }
    }

    fn mend(&mut self, path: Path, change: impl Fn(&FaultProxy)) {
        let servers = self.change(path, change);
        if !servers.is_empty() {
            self.say(format!("worker {}: mended, servers {servers:?}", path.worker));
        }
    }

    /// Which servers that is about.
    fn change(&self, path: Path, change: impl Fn(&FaultProxy)) -> Vec<usize> {
        let proxies = self.place.proxies.get(path.worker).into_iter().flatten();
        let there = proxies.enumerate().filter(|(server, _)| path.leads_to(*server));
        there.inspect(|(_, proxy)| change(proxy)).map(|(server, _)| server).collect()
    }

    // ---- workers

    fn start_worker(&mut self, worker: usize) -> Result<(), String> {
        if self.workers[worker].is_some() {
            return Ok(());
        }
        let turn = self.logs.len();
        let label = format!("w{worker}.{turn}");
        let log = self.directory.join(format!("{label}.log"));
        let settings = Settings {
            url: self.place.url(worker),
            seed: self.seed.wrapping_mul(1_000).wrapping_add(turn as u64),
            lease: self.plan.lease,
            names: self.plan.names.clone(),
            tasks: self.plan.tasks,
            log: log.clone(),
            store: self.store.clone(),
            waits_end: !self.seed.is_multiple_of(2),
            plain: worker + 1 == WORKERS && self.seed.is_multiple_of(3),
            driver: if worker.is_multiple_of(2) { Driver::Thread } else { Driver::Current },
        };
        let said =
            File::create(self.directory.join(format!("{label}.err"))).map_err(|e| e.to_string())?;
        let words: Vec<String> =
            ["worker".to_owned()].into_iter().chain(settings.words()).collect();
        let process = Process::start(&words, said)?;
        self.say(format!("worker {worker} starts as {label}, process {}", process.id()));
        self.workers[worker] = Some(process);
        self.logs.push(Written { label, path: log, died: None, worker });
        Ok(())
    }

    fn kill_worker(&mut self, worker: usize) {
        if self.workers[worker].take().is_some() {
            self.counts.client_kills += 1;
            let written = self.logs.iter_mut().rev().find(|written| written.worker == worker);
            written.into_iter().for_each(|written| written.died = Some(now()));
            self.say(format!("worker {worker} is killed"));
        }
    }

    fn freeze_worker(&mut self, worker: usize) {
        let Some(process) = self.workers[worker].as_mut().filter(|process| !process.is_frozen())
        else {
            return;
        };
        process.freeze();
        self.say(format!("worker {worker} is frozen"));
    }

    fn thaw_worker(&mut self, worker: usize) {
        let Some(process) = &mut self.workers[worker] else { return };
        let Some(time) = process.thaw() else { return };
        self.counts.client_stops += u64::from(time > self.plan.lease);
        self.say(format!("worker {worker} goes on"));
    }

    // ---- the end

    /// Everything is well again; the workers give back what they have, and end.
    fn end(&mut self) -> Result<(), String> {
        for server in 0..self.servers.len() {
            self.thaw_server(server);
            self.start_server(server, true);
        }
        self.end_move();
        self.end_failover();
        for worker in 0..WORKERS {
            self.thaw_worker(worker);
            self.start_worker(worker)?;
        }
        self.say("the end begins".to_owned());
        for process in self.workers.iter_mut().flatten() {
            process.ask_to_end();
        }
        let since = Instant::now();
        for worker in 0..WORKERS {
            let Some(mut process) = self.workers[worker].take() else { continue };
            let mut status = None;
            while status.is_none() && since.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(2));
                status = process.ended()?;
            }
            if !status.is_some_and(|status| status.success()) {
                let what = match status {
                    Some(status) => format!("worker {worker} ended with {status}"),
                    None => format!("worker {worker} does not end: something waits for ever"),
                };
                self.violations.push(Violation { at: now(), name: "-".to_owned(), what });
            }
        }
        self.say("all workers have ended".to_owned());
        Ok(())
    }
}
