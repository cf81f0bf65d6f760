//! A simulation: engines, the shipped scripts and a bad network, under virtual time, from one seed.
//!
//! Several engines talk to one keyspace through connections that delay, lose, repeat and cut; tasks lock, nest,
//! unlock and give up at random; after every event the checker looks whether what must be true is true. The same
//! seed gives the same run, event for event.
//!
//! ```text
//! cargo test --features in-memory --lib sim::                      # the usual number of seeds
//! SIM_SEEDS=0..100000 cargo test --features in-memory --lib sim::  # these
//! SIM_SEED=17 cargo test --features in-memory --lib sim:: -- --nocapture   # this one, with its trace
//! ```

mod chance;
mod checker;
mod client;
mod plan;
mod server;
mod trace;
mod workload;
mod world;

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use crate::clock::Moment;
use crate::sim::world::Phase;
use crate::sim::world::World;

/// How long everything may take to come to an end once nothing goes wrong any more.
const DRAIN: Duration = Duration::from_secs(60);

/// Seeds of a usual test run.
const SEEDS: Range<u64> = 0..600;

/// What a run amounted to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    events: u64,
    grants: u64,
    losses: u64,
    end: u64,
}

fn run(seed: u64, tracing: bool) -> (Result<Summary, String>, Vec<String>) {
    let mut world = World::new(seed, tracing);
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| drive(&mut world)));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    let mut lines = world.trace.lines().to_vec();
    if tracing {
        lines.push(world.describe());
    }
    (result, lines)
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
        end: world.now.0,
    })
}

/// Everybody who waits gets the lock in turn, and gives it back.
fn drain(world: &mut World) -> Result<(), String> {
    let end = world.now.plus(DRAIN);
    while world.now < end {
        let next = world.now.plus(Duration::from_millis(200));
        world.run_until(next)?;
        let busy = |client: &client::Client| {
            client.serves() && client.shutdown.is_none() && !client.tasks.iter().all(workload::Task::is_idle)
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
    Err(format!("P9, P11: not everybody got an answer, or a lock:{left}"))
}

/// P10: nothing is left behind.
fn rest(world: &mut World) -> Result<(), String> {
    world.phase = Phase::Quiet;
    let lease = world.plan.lease * 3 + world.plan.command_timeout * 2;
    // Clean-ups go on until a clock that may have gone back has passed, subscriptions linger a second.
    let back = if world.checker.jumped { world.plan.lease * 40 } else { Duration::ZERO };
    let wait = lease + world.plan.fallback * 2 + Duration::from_secs(4) + back;
    let end = world.now.plus(wait);
    world.run_until(end)?;
    let locks = world.server.locks(world.now);
    if !locks.is_empty() {
        return Err(format!("P10: keys are left: {locks:?}"));
    }
    for (index, client) in world.clients.iter().enumerate().filter(|(_, client)| client.serves()) {
        let stats = client.counters.snapshot();
        let gauges =
            [stats.holds, stats.waiters, stats.registered_renewals, stats.subscriptions, stats.clean_ups];
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
    let left: Vec<_> = world
        .server
        .subscribers
        .iter()
        .filter(|(channel, clients)| !channel.contains("client:") && !clients.is_empty())
        .collect();
    if !left.is_empty() {
        return Err(format!("P10: subscriptions are left: {left:?}"));
    }
    Ok(())
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
        Some(client) => Err(format!("client {client} did not finish its shutdown")),
        None => Ok(()),
    }
}

fn wanted() -> Range<u64> {
    if let Some(seed) = std::env::var("SIM_SEED").ok().and_then(|text| text.parse().ok()) {
        return seed..seed + 1;
    }
    let range = std::env::var("SIM_SEEDS").ok();
    let parsed = range.as_deref().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    parsed.unwrap_or(SEEDS)
}

/// The failure of a seed, with the end of its trace.
fn report(seed: u64, failure: &str, lines: &[String]) -> String {
    let shown: usize = std::env::var("SIM_LINES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let tail = &lines[lines.len().saturating_sub(shown)..];
    format!("SIM_SEED={seed}: {failure}\n{}", tail.join("\n"))
}

#[test]
fn what_must_be_true_is_true_for_every_seed() {
    let seeds = wanted();
    let single = seeds.end - seeds.start == 1;
    let keep_going = std::env::var_os("SIM_KEEP_GOING").is_some();
    let (mut events, mut grants, mut losses, mut failed) = (0, 0, 0, 0);
    let started = crate::clock::Clock::Boot.now();
    for seed in seeds.clone() {
        match run(seed, single) {
            (Ok(summary), lines) => {
                events += summary.events;
                grants += summary.grants;
                losses += summary.losses;
                if single {
                    println!("{}", lines.join("\n"));
                }
            }
            (Err(failure), _) if keep_going => {
                failed += 1;
                println!("SIM_SEED={seed}: {failure:.300}");
            }
            (Err(failure), _) => {
                let (_, lines) = run(seed, true);
                panic!("{}", report(seed, &failure, &lines));
            }
        }
    }
    let took = crate::clock::Clock::Boot.now().since(started);
    println!("{seeds:?}: {events} events, {grants} grants, {losses} losses, {failed} failed, {took:?}");
    assert_eq!(failed, 0);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [1, 2, 3, 17, 400] {
        let (first, second) = (run(seed, true), run(seed, true));
        assert_eq!(first.0.map_err(|error| error.len()), second.0.map_err(|error| error.len()), "{seed}");
        assert!(first.1.len() > 100, "a trace of {} lines", first.1.len());
        let differs = first.1.iter().zip(&second.1).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
    }
}

#[test]
fn time_begins_far_from_zero() {
    assert!(World::new(1, false).now > Moment::ZERO);
}
