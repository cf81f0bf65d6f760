//! Very many grants of one fair lock, to processes that wait for it all the time, give up, are
//! killed and frozen. The order of the grants must be that of the tickets.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use redis_reentrant_lock::FairLock;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Result as LockResult;
use serde_json::json;
use tokio::time::sleep;
use tokio::time::timeout;

use crate::chance::Chance;
use crate::chance::Stream;
use crate::checks::Verdict;
use crate::checks::order;
use crate::history::History;
use crate::process::Process;
use crate::support::ROOT;
use crate::support::client;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::wire::Wire;

const PROCESSES: usize = 4;
/// Of each process, that want the lock.
const TASKS: u64 = 8;
const NAME: &str = "crowd";
/// A killed holder keeps the others waiting for so long.
const LEASE: Duration = Duration::from_millis(500);
/// Much longer than a lease and the reservations of all who may be dead.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of the violations so many are shown.
const SHOWN: usize = 10;

const USAGE: &str = "fair-order wants --grants N, --seed N";

/// What was done.
#[derive(Debug, Default)]
struct Counts {
    killed: u64,
    frozen: u64,
}

/// True if no grant overtook anybody.
pub(crate) fn run(words: &[String]) -> Result<bool, String> {
    let (mut grants, mut seed) = (100_000, 0);
    for pair in words.chunks(2) {
        match pair {
            [option, number] if option == "--grants" => {
                grants = number.parse().map_err(|_| USAGE)?;
            }
            [option, number] if option == "--seed" => seed = number.parse().map_err(|_| USAGE)?,
            _ => return Err(USAGE.to_owned()),
        }
    }
    let started = Instant::now();
    let mut crowd = Crowd::start(seed)?;
    let counts = crowd.until(grants)?;
    crowd.end()?;
    let history =
        History { calls: crowd.wires.iter().flat_map(Wire::take).collect(), ..History::default() };
    let mut verdict = Verdict::default();
    order::check(&history, &mut verdict);
    report(&verdict, &counts, started.elapsed());
    Ok(verdict.violations.is_empty() && verdict.in_turn >= grants)
}

fn report(verdict: &Verdict, counts: &Counts, took: Duration) {
    for violation in verdict.violations.iter().take(SHOWN) {
        println!("{}", violation.what);
    }
    let figures = json!({
        "grants": verdict.in_turn,
        "processes": PROCESSES,
        "tasks": PROCESSES as u64 * TASKS,
        "given_up": verdict.left_line,
        "processes_killed": counts.killed,
        "processes_frozen": counts.frozen,
        "places_behind": verdict.waited_behind,
        "places_passed_over": verdict.passed_over,
        "violations": verdict.violations.len(),
        "seconds": took.as_secs(),
    });
    // The report looks for the name of the part in front.
    println!("{{\"part\":\"fair-order\",{}", &figures.to_string()[1..]);
}

/// The server and the processes.
struct Crowd {
    chance: Chance,
    seed: u64,
    processes: Vec<Process>,
    started: u64,
    wires: Vec<Wire>,
    // Each process has its own. The server is there for as long as they are.
    proxies: Vec<FaultProxy>,
    _server: RedisServer,
}

impl Crowd {
    fn start(seed: u64) -> Result<Self, String> {
        let server = RedisServer::start();
        let proxies: Vec<FaultProxy> =
            (0..PROCESSES).map(|_| FaultProxy::start(&server.address())).collect();
        let wires = proxies.iter().map(Wire::of).collect();
        let chance = Chance::new(seed, Stream::Plan, [0; 3]);
        let processes = Vec::new();
        let mut crowd =
            Self { chance, seed, processes, started: 0, wires, proxies, _server: server };
        for number in 0..PROCESSES {
            let process = crowd.process(number)?;
            crowd.processes.push(process);
        }
        Ok(crowd)
    }

    fn process(&mut self, number: usize) -> Result<Process, String> {
        let directory = Path::new(ROOT).join("target/chaos");
        let said = directory.join(format!("crowd-{number}.err"));
        let said = fs::create_dir_all(&directory).and_then(|()| fs::File::create(said));
        self.started += 1;
        let seed = self.seed.wrapping_mul(1_000).wrapping_add(self.started);
        let words = ["waiter".to_owned(), self.proxies[number].url(), seed.to_string()];
        Process::start(&words, said.map_err(|error| error.to_string())?)
    }

    /// Harms processes, one after the other, until there were so many grants.
    fn until(&mut self, grants: u64) -> Result<Counts, String> {
        let mut counts = Counts::default();
        while self.granted() < grants {
            let next = self.granted() + self.chance.range(100, 2_000);
            self.wait_for(next.min(grants))?;
            let number = self.chance.index(PROCESSES);
            if self.chance.permille(500) {
                // The new one takes its place at once.
                self.processes[number] = self.process(number)?;
                counts.killed += 1;
            } else {
                self.processes[number].freeze();
                // Some longer than a reservation.
                thread::sleep(self.chance.time(300_000, 2_500_000));
                self.processes[number].thaw();
                counts.frozen += 1;
            }
        }
        Ok(counts)
    }

    fn granted(&self) -> u64 {
        self.wires.iter().map(Wire::granted).sum()
    }

    fn wait_for(&self, grants: u64) -> Result<(), String> {
        let (mut last, mut since) = (self.granted(), Instant::now());
        while last < grants {
            if since.elapsed() > PATIENCE {
                return Err(format!("nobody was granted the lock for {PATIENCE:?}"));
            }
            thread::sleep(Duration::from_millis(5));
            let now = self.granted();
            if now > last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let since = Instant::now();
        self.processes.iter_mut().for_each(Process::ask_to_end);
        for process in &mut self.processes {
            while process.ended()?.is_none() {
                if since.elapsed() > PATIENCE {
                    return Err("a process does not end: something waits for ever".to_owned());
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

/// A process of the crowd, until its input ends.
pub(crate) fn waiter(words: &[String]) -> Result<(), String> {
    let [url, seed] = words else { return Err("a waiter wants an address and a seed".to_owned()) };
    let seed = seed.parse().map_err(|_| "a seed is a number".to_owned())?;
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(work(url, seed, stop)).map_err(|error| error.to_string())
}

async fn work(url: &str, seed: u64, stop: Arc<AtomicBool>) -> LockResult<()> {
    let client = client::builder(url).lease(LEASE).connect().await?;
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let (lock, stop) = (client.fair_lock(NAME)?, Arc::clone(&stop));
        let mut chance = Chance::new(seed, Stream::Step, [task, 0, 0]);
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                turn(&lock, &mut chance).await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("no task panics");
    }
    client.shutdown(PATIENCE).await.map(|_| ())
}

/// One wait: to its end, or until the caller gives up. Whoever was frozen may be told of an error.
async fn turn(lock: &FairLock, chance: &mut Chance) {
    let patience = chance.time(200, 20_000);
    let granted = match chance.below(8) {
        0 => timeout(patience, lock.lock()).await.ok().and_then(LockResult::ok),
        1 => lock.lock_with(LockOptions::new().wait(patience)).await.ok().and_then(LockResult::ok),
        2 => lock.try_lock().await.ok().and_then(LockResult::ok),
        _ => lock.lock().await.ok(),
    };
    if let Some(guard) = granted {
        if chance.permille(100) {
            sleep(chance.time(50, 500)).await;
        }
        let _ = guard.unlock().await;
    }
    sleep(chance.time(50, 5_000)).await;
}
