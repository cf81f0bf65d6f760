//! A simulation: engines, the shipped scripts, servers that fail and a bad network, under virtual
//! time, from one seed.
//!
//! Several engines talk to one server or to a cluster through connections that delay, lose, repeat
//! and cut; servers stop, restart, lose data, are followed by replicas and give slots away; tasks
//! lock, nest, unlock and give up at random; after every event the checker looks whether what must
//! be true is true. The same seed gives the same run, event for event. A run that fails is made
//! smaller for as long as it fails in the same way.
//!
//! ```text
//! cargo xtask sim --seeds 0..100000   # these
//! cargo xtask sim --seed 17           # this one; if it fails, what is left when all that is not needed is left out
//! cargo xtask sim --seed 17 --trace   # all of it
//! ```
//!
//! | file       | what it is about                                                     |
//! |------------|----------------------------------------------------------------------|
//! | `plan`     | what a seed does                                                     |
//! | `world`    | virtual time, what reaches a client, the client's driver             |
//! | `client`   | one process with an engine                                           |
//! | `workload` | what its callers do                                                  |
//! | `network`  | commands, replies, connections                                       |
//! | `pubsub`   | subscriptions and messages                                           |
//! | `server`   | one server process and its error replies                             |
//! | `places`   | which process has which slot                                         |
//! | `nemesis`  | faults from outside                                                  |
//! | `kinds`    | what it must know of a kind of lock: a file for each                 |
//! | `checker`  | what must be true                                                    |
//! | `shrink`   | what a failure needs                                                 |

mod chance;
mod checker;
mod client;
mod kinds;
mod latches;
mod nemesis;
mod network;
mod places;
mod plan;
mod pubsub;
mod routing;
mod server;
mod shrink;
mod task;
mod trace;
mod workload;
mod world;

use std::ops::AddAssign;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::clock::Moment;
use crate::base::kind::Kind;
use crate::base::name::WireProfile;
use crate::sim::checker::View;
use crate::sim::plan::Mask;
use crate::sim::plan::START;
use crate::sim::plan::Seed;
use crate::sim::trace::Trace;
use crate::sim::world::Phase;
use crate::sim::world::World;

/// How long everything may take to come to an end once nothing goes wrong any more.
const DRAIN: Duration = Duration::from_secs(60);

/// Seeds of a usual test run.
const SEEDS: Range<u64> = 0..1_000;

/// What runs amounted to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Summary {
    events: u64,
    grants: u64,
    losses: u64,
    breaches: u64,
    writes: u64,
    refused_writes: u64,
    clusters: u64,
    /// With a name that is of another kind than the reentrant lock.
    other_kinds: u64,
    redirections: u64,
    try_agains: u64,
    refused_logins: u64,
    virtual_ms: u64,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.grants += other.grants;
        self.losses += other.losses;
        self.breaches += other.breaches;
        self.writes += other.writes;
        self.refused_writes += other.refused_writes;
        self.clusters += other.clusters;
        self.other_kinds += other.other_kinds;
        self.redirections += other.redirections;
        self.try_agains += other.try_agains;
        self.refused_logins += other.refused_logins;
        self.virtual_ms += other.virtual_ms;
    }
}

/// One run: how it ended, what it did, and its trace.
struct Run {
    result: Result<Summary, String>,
    /// What was planned and not left out.
    done: Mask,
    trace: Trace,
    state: String,
}

fn run(seed: Seed, mask: &Mask, trace: Trace) -> Run {
    let mut world = World::new(seed, mask, trace);
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| drive(&mut world)));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    let state = if world.trace.is_kept() { world.describe() } else { String::new() };
    let result = result.map_err(|failure| world.trace.short(&failure));
    Run { result, done: world.done, trace: world.trace, state }
}

fn drive(world: &mut World) -> Result<Summary, String> {
    let start = world.now;
    world.run_until(start.plus(world.plan.horizon))?;
    world.calm_down()?;
    drain(world)?;
    rest(world)?;
    close(world)?;
    Ok(Summary {
        events: world.events,
        grants: world.checker.grants,
        losses: world.checker.losses,
        breaches: world.checker.breaches,
        writes: world.checker.writes,
        refused_writes: world.checker.refused_writes,
        clusters: u64::from(world.places.cluster),
        other_kinds: u64::from(world.plan.kinds.iter().any(|kind| *kind != Kind::Reentrant)),
        redirections: world.redirections,
        try_agains: world.try_agains,
        refused_logins: world.refused_logins,
        virtual_ms: u64::try_from(world.now.since(START).as_millis()).unwrap_or(0),
    })
}

/// Everybody who waits gets the lock in turn, and gives it back.
fn drain(world: &mut World) -> Result<(), String> {
    // A clock that went back lets keys live that much longer.
    let leases = if world.checker.jumped { 60 } else { 5 };
    let end = world.now.plus(DRAIN + leases * world.plan.lease);
    while world.now < end {
        let next = world.now.plus(Duration::from_millis(200));
        world.run_until(next)?;
        let busy = |client: &client::Client| {
            client.serves()
                && client.shutdown.is_none()
                && !client.tasks.iter().all(task::Task::is_idle)
        };
        if !world.clients.iter().any(busy) {
            return Ok(());
        }
    }
    let mut left = String::new();
    for (index, client) in world.clients.iter().enumerate().filter(|(_, client)| client.serves()) {
        for task in client.tasks.iter().filter(|task| !task.is_idle()) {
            left.push_str(&format!("\n  client {index}: {}", task.show()));
        }
    }
    Err(format!("P9: not everybody got an answer, or a lock:{left}"))
}

/// P13: of those who want the same lock all the time everybody gets a share, be it a quarter of a
/// fair one. A client with one patient task gets the lock once where others hand it off 16 times.
fn share(seed: u64) -> Result<(), String> {
    let mut world = World::crowd(seed);
    let grants = contend(&mut world)?;
    let sum: u64 = grants.iter().sum();
    let clients = grants.len() as u64;
    let part = |client| if world.plan.hurried && client == 0 { 17 } else { 4 };
    let is_kept_out = |(client, own): (usize, &u64)| own * part(client) * clients < sum;
    if sum < 100 || grants.iter().enumerate().any(is_kept_out) {
        return Err(format!("P13: some of the crowd are kept out: {grants:?} {:?}", world.plan));
    }
    world.calm_down()?;
    drain(&mut world)?;
    rest(&mut world)
}

/// Lets a crowd work for its time, and counts how often each client got the lock.
fn contend(world: &mut World) -> Result<Vec<u64>, String> {
    world.run_until(world.now.plus(world.plan.horizon))?;
    Ok(world.clients.iter().map(|client| client.counters.snapshot().grants).collect())
}

/// P10: nothing is left behind.
fn rest(world: &mut World) -> Result<(), String> {
    world.phase = Phase::Quiet;
    let lease = world.plan.lease * 3 + world.plan.command_timeout * 2;
    // Clean-ups go on until a clock that may have gone back has passed, subscriptions linger a
    // second.
    let back = if world.checker.jumped { world.plan.lease * 40 } else { Duration::ZERO };
    // A clean-up goes by the clock of the server that it was sent to, and is answered by the one
    // that has the slot.
    let apart = if world.places.cluster {
        Duration::from_micros(2 * world.plan.apart_us)
    } else {
        Duration::ZERO
    };
    // The line of those who have died lives for 12 s.
    let wait = (lease + Duration::from_secs(6)).max(Duration::from_secs(13)) + back + apart;
    let end = world.now.plus(wait);
    world.run_until(end)?;
    let locks = world.locks();
    if !locks.is_empty() {
        return Err(format!("P10: keys are left: {locks:?}"));
    }
    let lines: Vec<View> = world.views().into_iter().filter(|view| view.line.is_some()).collect();
    if !lines.is_empty() && !world.checker.jumped {
        return Err(format!("P10: lines are left: {lines:?}"));
    }
    for (index, client) in world.clients.iter().enumerate().filter(|(_, client)| client.serves()) {
        let stats = client.counters.snapshot();
        let gauges = [
            stats.holds,
            stats.waiters,
            stats.registered_renewals,
            stats.subscriptions,
            stats.clean_ups,
        ];
        if gauges != [0; 5] {
            return Err(format!("P10: client {index} is not at rest: {stats:?}"));
        }
        if !client.directory.is_empty() {
            return Err(format!("P10: the directory of client {index} is not empty"));
        }
        if let Some(open) = client.asks.iter().find(|(_, ask)| ask.open) {
            return Err(format!("P10: client {index} did not answer {open:?}"));
        }
        if let Some(at) = client.engine.next_timeout() {
            return Err(format!("P10: client {index} has still something to do at {at:?}"));
        }
        if !client.engine.is_idle() {
            return Err(format!("P10: client {index} remembers something: {:?}", client.engine));
        }
    }
    let mut left = world
        .subscribers
        .iter()
        .filter(|((_, _, channel), clients)| !channel.contains("client:") && !clients.is_empty());
    match left.next() {
        Some(left) => Err(format!("P10: subscriptions are left: {left:?}")),
        None => Ok(()),
    }
}

fn close(world: &mut World) -> Result<(), String> {
    world.phase = Phase::Closing;
    for client in 0..world.clients.len() {
        if world.clients[client].serves() && world.clients[client].shutdown.is_none() {
            world.shut_down(client, 0);
        }
    }
    let end = world.now.plus(Duration::from_secs(2));
    world.run_until(end)?;
    match world.clients.iter().position(client::Client::serves) {
        Some(client) => Err(format!("P11: client {client} did not finish its shutdown")),
        None => Ok(()),
    }
}

// ---- many seeds

/// The first seed that fails, and how the others went.
fn run_all(
    seeds: &Range<u64>,
    kind: Option<Kind>,
    threads: usize,
) -> (Summary, Option<(u64, String)>) {
    let keep_going = setting("SIM_KEEP_GOING") == Some(1);
    let next = AtomicU64::new(seeds.start);
    let shared: Mutex<(Summary, Option<(u64, String)>)> = Mutex::default();
    let work = || {
        let mut sum = Summary::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            match run(Seed::of(seed, kind), &Mask::default(), Trace::off()).result {
                Ok(summary) => sum += summary,
                Err(failure) if keep_going => println!("FOUND seed {seed}: {failure:.300}"),
                Err(failure) => {
                    next.store(seeds.end, Ordering::Relaxed);
                    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    if shared.1.as_ref().is_none_or(|(first, _)| seed < *first) {
                        shared.1 = Some((seed, failure));
                    }
                }
            }
        }
        shared.lock().unwrap_or_else(PoisonError::into_inner).0 += sum;
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    shared.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn wanted() -> Range<u64> {
    if let Some(seed) = setting("SIM_SEED") {
        return seed..seed + 1;
    }
    let range = std::env::var("SIM_SEEDS").ok();
    let parsed = range.as_deref().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    parsed.unwrap_or(SEEDS)
}

/// The kind that all names are to be of, if one is asked for.
fn wanted_kind() -> Option<Kind> {
    let text = std::env::var("SIM_KIND").ok()?;
    Some(
        kinds::named(&text)
            .unwrap_or_else(|| panic!("there is no kind {text}, only {:?}", kinds::ALL)),
    )
}

/// Where somebody may look for the summary as one line of JSON.
fn print_summary(seeds: &Range<u64>, sum: Summary, took: Duration, threads: usize) {
    println!(
        "{{\"part\":\"simulation\",\"seeds\":{},\"first\":{},\"events\":{},\"grants\":{},\"losses\":{},\
         \"breaches\":{},\"fenced_writes\":{},\"refused_writes\":{},\"cluster_seeds\":{},\"other_kinds\":{},\
         \"redirections\":{},\"try_agains\":{},\"refused_logins\":{},\"virtual_hours\":{},\
         \"seconds\":{},\"threads\":{threads}}}",
        seeds.end - seeds.start,
        seeds.start,
        sum.events,
        sum.grants,
        sum.losses,
        sum.breaches,
        sum.writes,
        sum.refused_writes,
        sum.clusters,
        sum.other_kinds,
        sum.redirections,
        sum.try_agains,
        sum.refused_logins,
        sum.virtual_ms / 3_600_000,
        took.as_secs(),
    );
}

#[test]
fn what_must_be_true_is_true_for_every_seed() {
    let seeds = wanted();
    let kind = wanted_kind();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = setting("SIM_THREADS").unwrap_or(cores);
    if seeds.end - seeds.start == 1 && std::env::var_os("SIM_TRACE").is_some() {
        let run = run(Seed::of(seeds.start, kind), &Mask::default(), Trace::kept());
        println!("{}\n{}", run.trace.lines().join("\n"), run.state);
        println!("seed {}: {:?}", seeds.start, run.result);
    }
    let started = Clock::Boot.now();
    let (sum, failure) = run_all(&seeds, kind, threads);
    print_summary(&seeds, sum, Clock::Boot.now().since(started), threads);
    if let Some((seed, failure)) = failure {
        println!("FOUND seed {seed}: {failure:.400}");
        if setting("SIM_SHRINK") != Some(0) {
            println!("{}", shrink::smallest(Seed::of(seed, kind), &failure));
        }
        panic!("seed {seed}: {failure:.400}");
    }
}

/// Each has found something once: a driver that went on after the end of a shutdown, a replica with
/// what had moved away, a wait that became a re-entry 3 ms before its end, a subscription that was
/// left at the node where it had been, a waiter whose own client had freed the lock and who was not
/// told, a `None` for a release whose key had long run out, and one for what had been refused
/// before a grant that nobody took.
const FOUND: [u64; 7] = [5_569, 24_099, 1_054_219, 1_434, 43_023, 47_868, 40_835];

#[test]
fn seeds_that_found_something_are_good() {
    for seed in FOUND {
        let run = run(Seed::of_old(seed), &Mask::default(), Trace::off());
        assert!(run.result.is_ok(), "seed {seed}: {:?}", run.result);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..crowds() {
        let [first, second] =
            [(); 2].map(|()| run(Seed::of(seed, None), &Mask::default(), Trace::hashed()));
        assert_eq!(first.result, second.result, "seed {seed}");
        assert_eq!(first.trace.hash(), second.trace.hash(), "seed {seed}");
    }
    let [first, second] =
        [1, 2].map(|seed| run(Seed::of(seed, None), &Mask::default(), Trace::kept()));
    assert!(first.trace.lines().len() > 100);
    assert_ne!(first.trace.lines(), second.trace.lines());
}

#[test]
fn time_begins_far_from_zero() {
    assert!(World::new(Seed::of(1, None), &Mask::default(), Trace::off()).now > Moment::ZERO);
}

/// How many crowds a test takes. `cargo xtask sim --crowds` sets this to more.
fn crowds() -> u64 {
    setting("SIM_CROWDS").unwrap_or(12).max(1)
}

/// How many runs a test takes of each crowd that it has drawn up itself.
fn runs_of_each() -> u64 {
    crowds().div_ceil(12)
}

#[test]
fn everybody_in_a_crowd_gets_a_share() {
    for seed in 0..crowds() {
        let shared = share(seed);
        assert!(shared.is_ok(), "seed {seed}: {shared:?}");
    }
}

/// Without a line a client pauses after its hand-offs, also where PUBLISH does not tell whether there
/// is anybody to pause for. With two tasks, whose rows of hand-offs are short, that costs up to half.
#[test]
fn hand_offs_that_nobody_counts_are_not_slower_than_none() {
    // How many tenths are left, at least.
    let profiles = [(WireProfile::Native, 9), (WireProfile::Redisson, 5)];
    let crowds = [(1, 2), (1, 3), (2, 2), (2, 3)];
    let both = profiles.into_iter().flat_map(|profile| crowds.map(|crowd| (profile, crowd)));
    for ((profile, tenths), (clients, tasks)) in both {
        let [without, with] = [false, true].map(|hand_off| -> u64 {
            let grants = |seed| {
                let mut world = World::plain_crowd(seed, profile, clients, tasks, hand_off);
                contend(&mut world).unwrap().iter().sum::<u64>()
            };
            (0..runs_of_each()).map(grants).sum()
        });
        assert!(
            with * 10 >= without * tenths,
            "{profile}, {clients} clients of {tasks} tasks: {with}, without {without}"
        );
    }
}

/// How often each of a crowd gets the lock that it keeps so long, in a few runs.
fn spread(distances: &[u64], idle_listeners: usize, hold: Duration) -> Vec<u64> {
    let mut sum = vec![0; distances.len()];
    for seed in 0..runs_of_each() {
        let mut world = World::spread_crowd(seed, distances, idle_listeners, hold);
        let grants = contend(&mut world).unwrap();
        sum.iter_mut().zip(grants).for_each(|(sum, own)| *sum += own);
    }
    sum
}

/// Half of a fair share: the lock goes by ticket, but whoever is near is back in line sooner.
#[test]
fn who_is_far_away_is_not_kept_out() {
    let crowds: [&[u64]; 5] = [
        &[0, 3_000],
        &[0, 3_000, 3_000],
        &[0, 0, 0, 3_000],
        &[1_000, 1_000, 6_000],
        &[0, 0, 9_000],
    ];
    for distances in crowds {
        let grants = spread(distances, 0, Duration::from_millis(20));
        println!("{distances:?}: {grants:?}");
        let (all, clients) = (grants.iter().sum::<u64>(), grants.len() as u64);
        assert!(grants.iter().all(|own| own * 2 * clients >= all), "{distances:?}: {grants:?}");
    }
}

/// A listener stands in no line.
#[test]
fn who_only_listens_does_not_stop_the_others() {
    for distances in [&[0][..], &[0, 0], &[0, 0, 0]] {
        let grants = |listeners| spread(distances, listeners, Duration::ZERO).iter().sum::<u64>();
        let [unheard, heard] = [0, 1].map(grants);
        println!("{} clients: {heard}, unheard {unheard}", distances.len());
        assert!(
            heard * 10 >= unheard * 9,
            "{} clients: {heard}, unheard {unheard}",
            distances.len()
        );
    }
}

#[test]
fn the_same_crowd_does_the_same() {
    for seed in 0..runs_of_each() {
        let [first, second] = [(); 2].map(|()| {
            let mut world = World::crowd(seed);
            (contend(&mut world).unwrap(), world.events)
        });
        assert_eq!(first, second, "seed {seed}");
    }
}
