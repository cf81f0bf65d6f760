//! Split votes: five clients of a Redlock that want the same lock at the same moment, over three
//! and over five servers, each of them reached over a proxy that delays what passes.

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Redlock;
use redis_reentrant_lock::RedlockBuilder;
use redis_reentrant_lock::Result as LockResult;
use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::client;
use crate::support::proxy::Direction;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;

const CLIENTS: usize = 5;
/// There and back, over a proxy. A client pauses for up to 100 ms before it tries once more.
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// A grant takes longer than this only after a first pass that has failed: with one round trip for
/// that, one for each server of a majority, and one for the token.
const FIRST_PASS: f64 = 4.5;
/// Of a turn: that of a release to the next grant, in round trips.
const BOUND: f64 = 4.0;

const USAGE: &str = "redlock-votes wants --starts N";

/// When one client was granted the lock, and when it began to release it.
#[derive(Debug, Clone, Copy)]
struct Turn {
    granted: Duration,
    released: Duration,
}

/// The figures say how well it went; nothing is demanded of them but that all are granted.
pub(crate) fn run(words: &[String]) -> Result<bool, String> {
    let starts: usize = match words {
        [] => 10_000,
        [option, number] if option == "--starts" => number.parse().map_err(|_| USAGE)?,
        _ => return Err(USAGE.to_owned()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    for servers in [3, 5] {
        let rounds = starts.div_ceil(CLIENTS);
        let turns = runtime.block_on(measured(servers, rounds));
        report(servers, &turns.map_err(|error| error.to_string())?);
    }
    Ok(true)
}

/// The turns of each round, in their order.
async fn measured(servers: usize, rounds: usize) -> LockResult<Vec<Vec<Turn>>> {
    let servers: Vec<RedisServer> = (0..servers).map(|_| RedisServer::start()).collect();
    let proxy = |server: &RedisServer| {
        let proxy = FaultProxy::start(&server.address());
        proxy.delay(Direction::Up, ROUND_TRIP / 2);
        proxy.delay(Direction::Down, ROUND_TRIP / 2);
        proxy
    };
    let proxies: Vec<Vec<FaultProxy>> =
        (0..CLIENTS).map(|_| servers.iter().map(proxy).collect()).collect();
    let mut redlocks = Vec::new();
    for proxies in &proxies {
        redlocks.push(redlock(proxies).await?);
    }
    let mut all = Vec::new();
    for round in 0..rounds {
        all.push(one_round(&redlocks, format!("vote-{round}")).await?);
    }
    Ok(all)
}

async fn redlock(proxies: &[FaultProxy]) -> LockResult<Redlock> {
    let mut builder: RedlockBuilder = Redlock::builder().attempt_limit(10 * ROUND_TRIP);
    for (number, proxy) in proxies.iter().enumerate() {
        let client = client::builder(&proxy.url()).deployment(format!("server {number}"));
        let client: LockClient = client.connect().await?;
        builder = builder.server(client);
    }
    let redlock = builder.build()?;
    redlock.assume_fresh();
    Ok(redlock)
}

/// All want the lock at once, and give it back as soon as they have it.
async fn one_round(redlocks: &[Redlock], name: String) -> LockResult<Vec<Turn>> {
    let barrier = Arc::new(Barrier::new(CLIENTS));
    let began = Instant::now();
    let mut running = JoinSet::new();
    for redlock in redlocks {
        let (redlock, barrier, name) = (redlock.clone(), Arc::clone(&barrier), name.clone());
        running.spawn(async move {
            barrier.wait().await;
            let guard = redlock.lock(&name).await?;
            let granted = began.elapsed();
            let released = began.elapsed();
            guard.unlock().await?;
            LockResult::Ok(Turn { granted, released })
        });
    }
    let mut turns = Vec::new();
    while let Some(turn) = running.join_next().await {
        turns.push(turn.expect("no task panics")?);
    }
    turns.sort_by_key(|turn| turn.granted);
    Ok(turns)
}

fn report(servers: usize, rounds: &[Vec<Turn>]) {
    let trips = |time: Duration| time.as_secs_f64() / ROUND_TRIP.as_secs_f64();
    let firsts: Vec<f64> = rounds.iter().map(|turns| trips(turns[0].granted)).collect();
    let next = |pair: &[Turn]| trips(pair[1].granted.saturating_sub(pair[0].released));
    let mut waits: Vec<f64> = rounds.iter().flat_map(|turns| turns.windows(2).map(next)).collect();
    waits.sort_by(f64::total_cmp);
    let permille = |count: usize, of: usize| 1_000 * count / of.max(1);
    let in_first_pass = firsts.iter().filter(|trips| **trips <= FIRST_PASS).count();
    let within = waits.iter().filter(|trips| **trips <= BOUND).count();
    let at = |permille: usize| {
        let place = (waits.len() * permille / 1_000).min(waits.len().saturating_sub(1));
        (waits.get(place).copied().unwrap_or(0.0) * 100.0).round() / 100.0
    };
    let figures = json!({
        "servers": servers,
        "starts": rounds.len() * CLIENTS,
        "round_trip_ms": ROUND_TRIP.as_millis(),
        "first_grants_in_first_pass_permille": permille(in_first_pass, rounds.len()),
        "next_grants_within_4_round_trips_permille": permille(within, waits.len()),
        "next_grant_p50_round_trips": at(500),
        "next_grant_p90_round_trips": at(900),
        "next_grant_p99_round_trips": at(990),
    });
    // The report looks for the name of the part in front.
    println!("{{\"part\":\"redlock-votes\",{}", &figures.to_string()[1..]);
}
