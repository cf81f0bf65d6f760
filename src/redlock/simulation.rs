//! Redlocks in several processes over servers in memory, with faults, on a paused clock.
//!
//! A seed says what the tasks and the faults do. The pauses and the ids that the library draws are
//! not the seed's: a seed that has failed need not fail again, and the trace of the failure says
//! what happened.

use std::cell::Cell;
use std::cell::RefCell;
use std::fmt::Write;
use std::ops::AddAssign;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::task::JoinSet;
use tokio::task::LocalSet;
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::timeout;

use crate::Error;
use crate::InMemoryClient;
use crate::InMemoryServer;
use crate::LockClient;
use crate::LockOptions;
use crate::Redlock;
use crate::RedlockGuard;
use crate::base::random::Random;

const NAME: &str = "orders:42";
/// The longest one, too.
const LEASE: Duration = Duration::from_secs(3);
/// How long tasks ask and faults happen.
const LENGTH: Duration = Duration::from_secs(60);
/// How long everybody has, after the last fault, to get the lock that they wait for.
const LIMIT: Duration = Duration::from_secs(120);
/// What `cargo test` runs.
const SEEDS: Range<u64> = 0..10;
/// Lines of a trace that are shown.
const LINES: usize = 60;

/// What happened in all runs.
#[derive(Debug, Default, Clone, Copy)]
struct Summary {
    grants: u64,
    losses: u64,
    unavailable: u64,
    restarts: u64,
    kills: u64,
    freezes: u64,
    cuts: u64,
    /// Of the library's clock.
    seconds: u64,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, more: Self) {
        self.grants += more.grants;
        self.losses += more.losses;
        self.unavailable += more.unavailable;
        self.restarts += more.restarts;
        self.kills += more.kills;
        self.freezes += more.freezes;
        self.cuts += more.cuts;
        self.seconds += more.seconds;
    }
}

/// A process with a client of each server.
struct SimulatedProcess {
    number: usize,
    handles: Vec<InMemoryClient>,
    redlock: Redlock,
    /// A process that ends takes its tasks along.
    tasks: RefCell<Vec<AbortHandle>>,
}

/// Somebody who was granted the lock, and has not begun to release it.
struct Believer {
    process: usize,
    guard: Rc<RedlockGuard>,
}

struct World {
    servers: Vec<InMemoryServer>,
    processes: RefCell<Vec<Rc<SimulatedProcess>>>,
    believers: RefCell<Vec<Believer>>,
    last_token: Cell<u64>,
    sum: RefCell<Summary>,
    began: Instant,
    trace: RefCell<Vec<String>>,
    /// The first promise that was not kept.
    broken: RefCell<Option<String>>,
}

impl World {
    fn new(random: &mut Random) -> Self {
        let servers = if random.below(3) == 0 { 5 } else { 3 };
        Self {
            servers: (0..servers).map(|_| InMemoryServer::new()).collect(),
            processes: RefCell::default(),
            believers: RefCell::default(),
            last_token: Cell::new(0),
            sum: RefCell::default(),
            began: Instant::now(),
            trace: RefCell::default(),
            broken: RefCell::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() > LENGTH || self.broken.borrow().is_some()
    }

    fn tell(&self, what: &str) {
        let at = self.began.elapsed().as_secs_f64();
        self.trace.borrow_mut().push(format!("{at:8.3} {what}"));
    }

    fn count(&self, one: impl FnOnce(&mut Summary) -> &mut u64) {
        *one(&mut self.sum.borrow_mut()) += 1;
    }

    fn check(&self, holds: bool, promise: impl FnOnce() -> String) {
        if !holds && self.broken.borrow().is_none() {
            let promise = promise();
            self.tell(&format!("BROKEN: {promise}"));
            *self.broken.borrow_mut() = Some(promise);
        }
    }

    /// Nobody else believes to hold the lock, and the token is the largest so far.
    fn granted(&self, process: &SimulatedProcess, guard: RedlockGuard) -> Rc<RedlockGuard> {
        let (number, token) = (process.number, guard.fencing_token());
        self.tell(&format!("process {number}: granted with token {token}"));
        self.count(|sum| &mut sum.grants);
        let guard = Rc::new(guard);
        if guard.is_held() {
            let others = self.believers.borrow();
            let other = others.iter().find(|other| other.guard.is_held());
            let other = other.map(|other| (other.process, other.guard.fencing_token()));
            self.check(other.is_none(), || {
                format!("{other:?} holds the lock while process {number} is granted it")
            });
            let last = self.last_token.replace(token);
            self.check(token > last, || format!("token {token} after token {last}"));
        }
        let believer = Believer { process: number, guard: Rc::clone(&guard) };
        self.believers.borrow_mut().push(believer);
        guard
    }

    /// Before the release begins, or when its process is killed.
    fn forget(&self, is_over: impl Fn(&Believer) -> bool) {
        self.believers.borrow_mut().retain(|believer| !is_over(believer));
    }
}

/// A process that starts. Before the first one, nothing can be held.
async fn start(world: &Rc<World>, number: usize, is_fresh: bool) -> Rc<SimulatedProcess> {
    let mut clients = Vec::new();
    for (place, server) in world.servers.iter().enumerate() {
        let builder = LockClient::builder().in_memory(server).lease(LEASE);
        let client = builder.deployment(format!("server {place}")).connect_lazy();
        clients.push(client.expect("the settings are good"));
    }
    let redlock = Redlock::new(clients.iter().cloned()).expect("there are enough servers");
    if is_fresh {
        for client in &clients {
            client.ping().await.expect("nothing has happened yet");
        }
        assert_eq!(redlock.assume_fresh(), clients.len());
    }
    let handles = world.servers.iter().zip(&clients);
    let handles = handles.map(|(server, client)| server.client(client)).collect();
    Rc::new(SimulatedProcess { number, handles, redlock, tasks: RefCell::default() })
}

/// Takes the lock, keeps it and gives it up, until time is over.
async fn work(world: Rc<World>, process: Rc<SimulatedProcess>, mut random: Random) {
    while !world.is_over() {
        match ask(&process.redlock, &mut random).await {
            Some(Ok(guard)) => keep(&world, &process, guard, &mut random).await,
            Some(Err(Error::Unavailable { .. })) => {
                world.count(|sum| &mut sum.unavailable);
                sleep(below(&mut random, 200)).await;
            }
            Some(Err(error)) => {
                world.check(false, || format!("process {} was told: {error}", process.number));
            }
            None => sleep(below(&mut random, 200)).await,
        }
    }
}

/// `None`: the lock was not to be had, or the call was dropped.
async fn ask(redlock: &Redlock, random: &mut Random) -> Option<crate::Result<RedlockGuard>> {
    let wait = below(random, 6_000);
    let lease = Duration::from_millis(300 + random.below(2_700));
    let asked = match random.below(6) {
        0 => redlock.try_lock(NAME).await,
        1 | 2 => redlock.try_lock_for(NAME, wait).await,
        3 => redlock.lock_with(NAME, LockOptions::new().lease(lease).wait(wait)).await,
        4 => timeout(wait, redlock.lock(NAME)).await.ok()?.map(Ok),
        _ => redlock.lock(NAME).await.map(Ok),
    };
    asked.map(Result::ok).transpose()
}

async fn keep(world: &World, process: &SimulatedProcess, guard: RedlockGuard, random: &mut Random) {
    let guard = world.granted(process, guard);
    let longest = if random.below(3) == 0 { 3 * LEASE } else { LEASE / 10 };
    sleep(below(random, longest.as_millis() as u64)).await;
    world.forget(|believer| Rc::ptr_eq(&believer.guard, &guard));
    if guard.loss().is_some() {
        world.count(|sum| &mut sum.losses);
    }
    let guard = Rc::into_inner(guard).expect("it was forgotten");
    world.tell(&format!("process {}: gives {} up", process.number, guard.fencing_token()));
    if random.below(4) == 0 {
        drop(guard);
    } else if let Err(error) = guard.unlock().await {
        let is_expected = matches!(error, Error::Lost { .. } | Error::Unavailable { .. });
        world.check(is_expected, || format!("unlock: {error}"));
    }
    sleep(below(random, 50)).await;
}

fn below(random: &mut Random, ms: u64) -> Duration {
    Duration::from_millis(random.below(ms))
}

/// Begins the tasks of a process.
fn employ(
    world: &Rc<World>,
    process: &Rc<SimulatedProcess>,
    all: &mut JoinSet<()>,
    random: &mut Random,
) {
    for _ in 0..=random.below(2) {
        let random = Random(random.below(u64::MAX));
        let task = all.spawn_local(work(Rc::clone(world), Rc::clone(process), random));
        process.tasks.borrow_mut().push(task);
    }
}

/// Faults, one after the other and several at once, until time is over.
async fn harm(world: &Rc<World>, all: &mut JoinSet<()>, mut random: Random) {
    let pause = if random.below(2) == 0 { 2_000 } else { 8_000 };
    while !world.is_over() {
        sleep(below(&mut random, pause)).await;
        let place = random.index(world.servers.len());
        let server = world.servers[place].clone();
        let at = random.index(world.processes.borrow().len());
        let process = Rc::clone(&world.processes.borrow()[at]);
        let handle = process.handles[place].clone();
        let while_it_lasts = below(&mut random, 2 * LEASE.as_millis() as u64);
        match random.below(9) {
            0 => restart(world, place),
            // More than half at once: what was held is lost, and nobody may have it before its end.
            1 => (0..=world.servers.len() / 2).for_each(|next| {
                restart(world, (place + next) % world.servers.len());
            }),
            2 => {
                world.tell(&format!("server {place}: all connections are cut"));
                world.count(|sum| &mut sum.cuts);
                server.disconnect_all();
            }
            3 => lasting(world, all, while_it_lasts, &format!("server {place}: away"), move |on| {
                server.set_reachable(!on);
            }),
            4 => lasting(world, all, while_it_lasts, &format!("server {place}: mute"), move |on| {
                server.set_answering(!on);
            }),
            5 => {
                let what = format!("process {at} and server {place}: parted");
                lasting(world, all, while_it_lasts, &what, move |on| handle.set_partitioned(on));
            }
            6 => {
                let delay = below(&mut random, 300);
                let what = format!("process {at} and server {place}: replies after {delay:?}");
                lasting(world, all, while_it_lasts, &what, move |on| {
                    handle.set_reply_delay(if on { delay } else { Duration::ZERO });
                });
            }
            7 => {
                world.count(|sum| &mut sum.freezes);
                let what = format!("process {at}: frozen");
                let handles = process.handles.clone();
                lasting(world, all, while_it_lasts, &what, move |on| {
                    handles.iter().for_each(|handle| handle.set_frozen(on));
                });
            }
            _ => {
                kill(world, &process);
                let next = start(world, at, false).await;
                employ(world, &next, all, &mut random);
                world.processes.borrow_mut()[at] = next;
            }
        }
    }
}

fn restart(world: &World, place: usize) {
    world.tell(&format!("server {place}: starts again without its data"));
    world.count(|sum| &mut sum.restarts);
    world.servers[place].restart();
}

/// A fault that is over after a while.
fn lasting(
    world: &Rc<World>,
    all: &mut JoinSet<()>,
    while_it_lasts: Duration,
    what: &str,
    set: impl Fn(bool) + 'static,
) {
    world.count(|sum| &mut sum.cuts);
    world.tell(what);
    set(true);
    let (world, what) = (Rc::clone(world), what.to_owned());
    all.spawn_local(async move {
        sleep(while_it_lasts).await;
        world.tell(&format!("{what}: over"));
        set(false);
    });
}

fn kill(world: &World, process: &SimulatedProcess) {
    world.tell(&format!("process {}: killed", process.number));
    world.count(|sum| &mut sum.kills);
    process.handles.iter().for_each(InMemoryClient::kill);
    world.forget(|believer| believer.process == process.number);
    process.tasks.borrow().iter().for_each(AbortHandle::abort);
}

async fn simulate(seed: u64) -> Result<Summary, String> {
    let mut random = Random(seed);
    let world = Rc::new(World::new(&mut random));
    let mut all = JoinSet::new();
    for number in 0..usize::try_from(2 + random.below(3)).unwrap() {
        let process = start(&world, number, true).await;
        world.processes.borrow_mut().push(process);
    }
    for process in world.processes.borrow().clone() {
        employ(&world, &process, &mut all, &mut random);
    }
    harm(&world, &mut all, Random(random.below(u64::MAX))).await;
    let everybody_is_done = timeout(LIMIT, async { while all.join_next().await.is_some() {} });
    let is_done = everybody_is_done.await.is_ok() || world.broken.borrow().is_some();
    world.check(is_done, || format!("somebody still waits {LIMIT:?} after the last fault"));
    if world.broken.borrow().is_none() {
        all_is_well(&world).await;
    }
    let mut sum = *world.sum.borrow();
    sum.seconds = world.began.elapsed().as_secs();
    match &*world.broken.borrow() {
        None => Ok(sum),
        Some(broken) => Err(with_trace(broken, &world.trace.borrow())),
    }
}

/// Nothing is left behind, and the lock is to be had.
async fn all_is_well(world: &World) {
    let redlock = world.processes.borrow()[0].redlock.clone();
    match redlock.try_lock_for(NAME, LIMIT).await {
        Ok(Ok(guard)) => drop(guard),
        other => world.check(false, || format!("the lock is not to be had at the end: {other:?}")),
    }
    sleep(3 * LEASE).await;
    for (place, server) in world.servers.iter().enumerate() {
        world.check(!server.contains(NAME), || format!("server {place} still has the lock"));
    }
}

fn with_trace(broken: &str, trace: &[String]) -> String {
    let mut text = broken.to_owned();
    for line in &trace[trace.len().saturating_sub(LINES)..] {
        write!(text, "\n{line}").expect("to a text");
    }
    text
}

fn run(seed: u64) -> Result<Summary, String> {
    let builder = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build()
    };
    let runtime = builder().expect("a runtime");
    LocalSet::new().block_on(&runtime, simulate(seed))
}

fn wanted() -> Range<u64> {
    let text = std::env::var("REDLOCK_SEEDS").ok();
    let parsed = text.as_deref().and_then(|text| {
        let (first, end) = text.split_once("..")?;
        Some(first.parse().ok()?..end.parse().ok()?)
    });
    parsed.unwrap_or(SEEDS)
}

#[test]
fn nobody_is_granted_what_another_holds() {
    let seeds = wanted();
    let next = AtomicU64::new(seeds.start);
    let shared: Mutex<(Summary, Vec<String>)> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let done = run(seed);
                    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    match done {
                        Ok(sum) => shared.0 += sum,
                        Err(broken) => {
                            next.store(seeds.end, Ordering::Relaxed);
                            shared.1.push(format!("seed {seed}: {broken}"));
                        }
                    }
                }
            });
        }
    });
    let (sum, broken) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{{\"part\":\"redlock-simulation\",\"seeds\":{},\"grants\":{},\"losses\":{},\"unavailable\":{},\
         \"restarts\":{},\"kills\":{},\"freezes\":{},\"cuts\":{},\"virtual_hours\":{}}}",
        seeds.end - seeds.start,
        sum.grants,
        sum.losses,
        sum.unavailable,
        sum.restarts,
        sum.kills,
        sum.freezes,
        sum.cuts,
        sum.seconds / 3_600,
    );
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}
