//! A lock over several servers, on real ones.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Redlock;
use redis_reentrant_lock::RedlockBuilder;
use redis_reentrant_lock::RedlockGuard;
use serde_json::Value;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::client::cannot_over_fred;
use crate::support::look;
use crate::support::proxy::Fault;
use crate::support::proxy::FaultProxy;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::settle::settles;

/// Within this time everything ends that ends at all.
const BOUND: Duration = Duration::from_secs(60);
const NAME: &str = "orders:42";
const LEASE: Duration = Duration::from_secs(2);

/// In the order of their labels.
fn servers(count: usize) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start()).collect()
}

/// A client of each server, whose labels are in their order.
async fn clients(servers: &[RedisServer]) -> Vec<LockClient> {
    clients_with(servers, LEASE).await
}

async fn clients_with(servers: &[RedisServer], outage_limit: Duration) -> Vec<LockClient> {
    let mut clients = Vec::new();
    for (place, server) in servers.iter().enumerate() {
        let client = builder(&server.url()).deployment(format!("server {place}"));
        let client = client.lease(LEASE).command_timeout(Duration::from_millis(500));
        clients.push(client.outage_limit(outage_limit).connect().await.unwrap());
    }
    clients
}

/// Attempts have time enough for a machine that has other things to do.
fn settings(clients: Vec<LockClient>) -> RedlockBuilder {
    let limit = Duration::from_millis(300);
    clients.into_iter().fold(Redlock::builder().attempt_limit(limit), RedlockBuilder::server)
}

async fn redlock(servers: &[RedisServer]) -> Redlock {
    redlock_of(servers, clients(servers).await)
}

fn redlock_of(servers: &[RedisServer], clients: Vec<LockClient>) -> Redlock {
    let redlock = settings(clients).build().unwrap();
    assert_eq!(redlock.assume_fresh(), servers.len());
    redlock
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(BOUND, future).await.expect("it ends")
}

fn has_key(server: &RedisServer) -> bool {
    look::lock_keys(&mut server.connection()).contains(&NAME.to_owned())
}

/// None of these servers has the lock any more.
async fn is_free(servers: &[RedisServer]) {
    for server in servers {
        let mut redis = server.connection();
        settles("it is released everywhere", move || look::keys(&mut redis).is_empty()).await;
    }
}

#[tokio::test]
async fn a_lock_is_on_all_servers_and_excludes_others() {
    let servers = servers(3);
    let (ours, theirs) = (redlock(&servers).await, redlock(&servers).await);
    let guard = in_time(ours.lock(NAME)).await.unwrap();
    assert!(guard.is_held() && !guard.is_suspect());
    // Who answers late is asked again.
    for server in &servers {
        let mut redis = server.connection();
        settles("it is there", move || look::lock_keys(&mut redis).contains(&NAME.to_owned()))
            .await;
    }
    guard.verify().await.unwrap();
    guard.ensure(Duration::from_millis(1)).unwrap();
    let refused = theirs.try_lock(NAME).await.unwrap().unwrap_err();
    assert_eq!(refused.lock_name(), NAME);
    assert!(ours.try_lock(NAME).await.unwrap().is_err(), "it is not re-entered");
    guard.unlock().await.unwrap();
    is_free(&servers).await;
    assert!(theirs.with(NAME, async |guard| guard.is_held()).await.unwrap());
}

/// What a server may answer to the script that raises the token.
const REFUSALS: [&str; 6] = [
    "-NOPERM this user has no permissions to run the 'evalsha' command",
    "-OOM command not allowed when used memory > 'maxmemory'.",
    "-LOADING Redis is loading the dataset in memory",
    "-NOSCRIPT No matching script. Please use EVAL.",
    "-MOVED 1234 127.0.0.1:1",
    "+QUEUED",
];

/// The token comes from the first server, so it must be raised on another one.
#[tokio::test]
async fn a_server_that_cannot_raise_the_token_is_not_needed() {
    for refusal in REFUSALS {
        let servers = servers(3);
        let digest = look::digest(&mut servers[0].connection(), "raise");
        let proxy = FaultProxy::start(&servers[1].address());
        let answer = Fault::Answer(format!("{refusal}\r\n").into_bytes());
        proxy.nth(&digest, 0, u64::MAX, answer);
        let mut clients = clients(&servers).await;
        let behind = builder(&proxy.url()).deployment("server 1").lease(LEASE);
        clients[1] = behind.command_timeout(LEASE / 4).connect().await.unwrap();
        let redlock = redlock_of(&servers, clients);
        let first = in_time(redlock.lock(NAME)).await.unwrap().fencing_token();
        is_free(&servers).await;
        let ahead = first + 5_000_000_000;
        let mut redis = servers[0].connection();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*fence*").query(&mut redis).unwrap();
        redis::cmd("SET").arg(&keys[0]).arg(ahead).exec(&mut redis).unwrap();
        let guard = in_time(redlock.lock(NAME)).await.unwrap();
        assert!(guard.is_held() && guard.fencing_token() > ahead, "{refusal}");
        guard.unlock().await.unwrap();
        is_free(&servers).await;
    }
}

#[tokio::test]
async fn tokens_grow_although_one_servers_counter_is_far_ahead() {
    let servers = servers(3);
    let (ours, theirs) = (redlock(&servers).await, redlock(&servers).await);
    let fence = "redisson_lock_fence:{orders:42}";
    let guard = in_time(ours.lock(NAME)).await.unwrap();
    let first = guard.fencing_token();
    guard.unlock().await.unwrap();
    let mut redis = servers[0].connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*fence*").query(&mut redis).unwrap();
    let fence = keys.first().map_or(fence, String::as_str);
    let ahead = first + 5_000_000_000;
    redis::cmd("SET").arg(fence).arg(ahead).exec(&mut redis).unwrap();
    let guard = in_time(theirs.lock(NAME)).await.unwrap();
    let second = guard.fencing_token();
    assert!(second > ahead, "the largest counts");
    guard.unlock().await.unwrap();
    // Without that server the next token is larger still: the others were raised.
    servers[0].freeze();
    let guard = in_time(ours.lock(NAME)).await.unwrap();
    assert!(guard.fencing_token() > second, "{} after {second}", guard.fencing_token());
    drop(guard);
    servers[0].thaw();
}

#[tokio::test]
async fn a_minority_may_be_dead_or_frozen() {
    let mut servers = servers(5);
    let redlock = redlock(&servers).await;
    let held = in_time(redlock.lock(NAME)).await.unwrap();
    servers[0].stop();
    servers[4].freeze();
    // Longer than the lease: it is renewed on the others.
    tokio::time::sleep(LEASE * 2).await;
    assert!(held.is_held(), "{:?}", held.loss());
    in_time(held.unlock()).await.unwrap();
    let guard = in_time(redlock.lock(NAME)).await.unwrap();
    let status = redlock.status();
    assert!(!status[0].counts && status[0].why_not.is_some(), "{status:?}");
    assert!(status[1].counts && status[1].quarantine.is_none(), "{status:?}");
    in_time(guard.unlock()).await.unwrap();
    servers[4].thaw();
    is_free(&servers[1..]).await;
}

#[tokio::test]
async fn without_a_majority_holders_are_told_and_callers_get_errors() {
    let mut servers = servers(5);
    let redlock = redlock(&servers).await;
    let guard = in_time(redlock.lock(NAME)).await.unwrap();
    let signal = guard.loss_signal();
    for server in &mut servers[1..4] {
        server.stop();
    }
    let until = guard.valid_until();
    in_time(guard.lost()).await;
    assert!(until.is_past() || guard.loss().is_some());
    assert!(!guard.is_held() && signal.is_lost());
    assert!(matches!(guard.ensure(Duration::ZERO), Err(Error::Lost { .. })));
    let error = in_time(redlock.try_lock(NAME)).await.unwrap_err();
    let Error::Unavailable { cause, .. } = &error else { panic!("{error}") };
    assert!(cause.contains("3 are needed"), "{cause}");
    let error = in_time(redlock.lock(NAME)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(in_time(guard.unlock()).await.unwrap_err().is_lost());
}

/// Somebody waits in the line of this server.
async fn is_waited_for(server: &RedisServer) {
    let mut redis = server.connection();
    settles("somebody waits there", move || {
        look::keys(&mut redis).iter().any(|key| {
            let kind: String = redis::cmd("TYPE").arg(key).query(&mut redis).unwrap();
            kind == "zset"
        })
    })
    .await;
}

#[tokio::test]
async fn whoever_waits_at_a_server_that_dies_goes_on_without_it() {
    let mut servers = servers(3);
    // The client of that server would wait for longer than this test.
    let patient = clients_with(&servers, BOUND * 2).await;
    let (ours, theirs) = (redlock(&servers).await, redlock_of(&servers, patient));
    let held = in_time(ours.lock(NAME)).await.unwrap();
    let waiter = tokio::spawn(async move { theirs.lock(NAME).await.unwrap() });
    is_waited_for(&servers[0]).await;
    servers[0].stop();
    in_time(held.unlock()).await.unwrap();
    in_time(in_time(waiter).await.unwrap().unlock()).await.unwrap();
}

#[tokio::test]
async fn a_short_disturbance_after_a_long_wait_is_no_outage() {
    let servers = servers(3);
    let limit = Duration::from_secs(4);
    let ours = redlock_of(&servers, clients_with(&servers, limit).await);
    let first = builder(&servers[0].url()).connect().await.unwrap();
    let alone = first.mutex(NAME).unwrap().lock().await.unwrap();
    let waiter = tokio::spawn(async move { ours.lock(NAME).await });
    is_waited_for(&servers[0]).await;
    tokio::time::sleep(limit + limit / 4).await;
    servers[1].freeze();
    servers[2].freeze();
    alone.unlock().await.unwrap();
    // Longer than the attempts at both, and much shorter than the limit.
    tokio::time::sleep(limit / 4).await;
    servers[1].thaw();
    servers[2].thaw();
    let guard = in_time(waiter).await.unwrap().expect("it goes on");
    in_time(guard.unlock()).await.unwrap();
}

#[tokio::test]
async fn one_server_that_refuses_is_not_the_answer_of_a_majority() {
    let servers = servers(3);
    let redlock = redlock(&servers).await;
    redis::cmd("SET").arg(NAME).arg("foreign").exec(&mut servers[0].connection()).unwrap();
    servers[1].freeze();
    let error = in_time(redlock.try_lock(NAME)).await.unwrap_err();
    let Error::Unavailable { cause, .. } = &error else { panic!("{error}") };
    assert!(cause.contains("1 of 3 servers answered"), "{cause}");
    servers[1].thaw();
    let guard = in_time(redlock.lock(NAME)).await.unwrap();
    in_time(guard.unlock()).await.unwrap();
    // The refusal of a majority is.
    redis::cmd("SET").arg(NAME).arg("foreign").exec(&mut servers[2].connection()).unwrap();
    let error = in_time(redlock.lock(NAME)).await.unwrap_err();
    assert!(matches!(error, Error::KeyConflict { .. }), "{error}");
}

#[tokio::test]
async fn work_under_a_lost_lock_is_dropped() {
    let mut servers = servers(3);
    let redlock = redlock(&servers).await;
    let guard = in_time(redlock.lock(NAME)).await.unwrap();
    servers[0].stop();
    servers[1].stop();
    let ran = in_time(guard.run(std::future::pending::<()>())).await;
    assert!(ran.unwrap_err().is_lost());
}

#[tokio::test]
async fn a_server_that_has_lost_its_data_counts_only_after_the_longest_lease() {
    let mut servers = servers(3);
    let (ours, theirs) = (redlock(&servers).await, redlock(&servers).await);
    let guard = in_time(ours.lock(NAME)).await.unwrap();
    servers[2].stop();
    servers[1].restart_empty();
    // The second server has forgotten the hold, and the third is away: nobody may be granted.
    for _ in 0..3 {
        let asked = in_time(theirs.try_lock_for(NAME, Duration::from_millis(200))).await;
        assert!(!matches!(asked, Ok(Ok(_))), "a second holder");
    }
    drop(guard);
    let guard = in_time(theirs.try_lock_for(NAME, BOUND)).await.unwrap().expect("after a while");
    assert!(guard.is_held());
}

#[tokio::test]
async fn servers_in_quarantine_are_named_and_waited_for() {
    if cannot_over_fred("the uptime of a server in the first answer") {
        return;
    }
    let servers = servers(3);
    let lease = Duration::from_secs(3);
    let redlock = settings(clients(&servers).await).longest_lease(lease).build().unwrap();
    let error = in_time(redlock.try_lock(NAME)).await.unwrap_err();
    let Error::Unavailable { cause, .. } = &error else { panic!("{error}") };
    assert!(cause.contains("started a short time ago"), "{cause}");
    assert!(redlock.status().iter().all(|server| !server.counts && server.quarantine.is_some()));
    let guard = in_time(redlock.lock(NAME)).await.unwrap();
    guard.unlock().await.unwrap();
    assert!(redlock.status().iter().all(|server| server.counts));
}

#[tokio::test]
async fn a_restart_ends_what_was_assumed() {
    let mut servers = servers(3);
    let redlock = redlock(&servers).await;
    servers[0].restart_empty();
    let known = redlock.clone();
    settles("it is in quarantine", move || known.status()[0].quarantine.is_some()).await;
    let guard = in_time(redlock.lock(NAME)).await.unwrap();
    assert!(!has_key(&servers[0]), "it is not asked");
    drop(guard);
}

#[tokio::test]
async fn a_server_that_was_away_is_asked_again() {
    let servers = servers(3);
    let redlock = redlock(&servers).await;
    servers[2].freeze();
    let guard = in_time(redlock.lock(NAME)).await.unwrap();
    servers[2].thaw();
    let mut redis = servers[2].connection();
    settles("the third server has it, too", move || {
        look::lock_keys(&mut redis).contains(&NAME.to_owned())
    })
    .await;
    // Now another one may fail.
    let token = guard.fencing_token();
    tokio::time::sleep(LEASE).await;
    servers[0].freeze();
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_held(), "{:?}", guard.loss());
    assert_eq!(guard.fencing_token(), token);
    servers[0].thaw();
    in_time(guard.unlock()).await.unwrap();
    is_free(&servers).await;
}

#[tokio::test]
async fn whoever_waits_at_the_first_server_is_not_overtaken() {
    let servers = servers(3);
    let redlock = redlock(&servers).await;
    // Somebody has the first server alone.
    let first = builder(&servers[0].url()).connect().await.unwrap();
    let alone = first.mutex(NAME).unwrap().lock().await.unwrap();
    assert!(in_time(redlock.try_lock(NAME)).await.unwrap().is_err());
    is_free(&servers[1..]).await;
    let waiter = {
        let redlock = redlock.clone();
        tokio::spawn(async move { redlock.lock(NAME).await.unwrap() })
    };
    alone.unlock().await.unwrap();
    let guard = in_time(waiter).await.unwrap();
    // The last server alone is no reason to refuse.
    guard.unlock().await.unwrap();
    let last = builder(&servers[2].url()).connect().await.unwrap();
    let alone = last.mutex(NAME).unwrap().lock().await.unwrap();
    let guard = in_time(redlock.try_lock(NAME)).await.unwrap().expect("a majority");
    guard.unlock().await.unwrap();
    alone.unlock().await.unwrap();
}

#[tokio::test]
async fn split_votes_of_five_clients_settle() {
    let servers = servers(5);
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(redlock(&servers).await);
    }
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks = all.into_iter().map(|redlock| {
        let inside = Arc::clone(&inside);
        tokio::spawn(async move {
            for _ in 0..5 {
                let guard = redlock.lock(NAME).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.unlock().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        in_time(task).await.unwrap();
    }
    is_free(&servers).await;
}

#[tokio::test]
async fn sixty_four_tasks_share_one_redlock() {
    let servers = servers(3);
    let redlock = redlock(&servers).await;
    let last = Arc::new(std::sync::Mutex::new(0));
    let tasks = (0..64).map(|_| {
        let (redlock, last) = (redlock.clone(), Arc::clone(&last));
        tokio::spawn(async move {
            let guard = redlock.lock(NAME).await.unwrap();
            {
                let mut last = last.try_lock().expect("alone");
                assert!(guard.fencing_token() > *last, "{} after {last}", guard.fencing_token());
                *last = guard.fencing_token();
            }
            guard.unlock().await.unwrap();
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        in_time(task).await.unwrap();
    }
    is_free(&servers).await;
}

#[tokio::test]
async fn a_fixed_lease_counts_from_the_grant_and_ends() {
    let servers = servers(3);
    let redlock = redlock(&servers).await;
    let lease = Duration::from_millis(1_500);
    let guard = in_time(redlock.lock_with(NAME, LockOptions::new().lease(lease))).await.unwrap();
    let guard = guard.expect("free");
    assert!(guard.valid_until().remaining() <= lease);
    in_time(guard.lost()).await;
    drop(guard);
    is_free(&servers).await;
    let guard = in_time(redlock.lock_with(NAME, LockOptions::new().max_hold(lease))).await.unwrap();
    in_time(guard.expect("free").lost()).await;
}

#[tokio::test]
async fn what_cannot_be_is_refused() {
    let servers = servers(3);
    let message = |built: Result<Redlock, Error>| built.expect_err("refused").to_string();
    let mut few = clients(&servers).await;
    few.pop();
    assert!(message(Redlock::new(few)).contains("3 to 25"));
    let longest = settings(clients(&servers).await).longest_lease(Duration::from_secs(1)).build();
    assert!(message(longest).contains("longest_lease"));
    let mut twice = clients(&servers).await;
    twice.push(
        builder(&servers[0].url()).deployment("another").lease(LEASE).connect().await.unwrap(),
    );
    assert!(message(Redlock::new(twice)).contains("the same server"));
    let mut alike = clients(&servers).await;
    alike.push(builder(&servers[0].url()).deployment("server 1").connect().await.unwrap());
    assert!(message(Redlock::new(alike)).contains("with one label"));
    let redlock = redlock(&servers).await;
    for options in [LockOptions::new().lease(LEASE * 2), LockOptions::new().at_least(LEASE)] {
        let refused = redlock.lock_with(NAME, options).await;
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
    }
    let even = servers.into_iter().chain([RedisServer::start()]).collect::<Vec<_>>();
    assert!(Redlock::new(clients(&even).await).is_ok());
}

/// Polls a future so often, with time for the servers in between, and drops it.
async fn polled<T>(future: impl Future<Output = T>, polls: usize) -> bool {
    let mut future = pin!(future);
    for _ in 0..polls {
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(_guard) = future.as_mut().poll(&mut cx) {
            return true;
        }
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    false
}

#[tokio::test]
async fn a_lock_that_is_dropped_after_any_poll_leaves_nothing() {
    let servers = servers(3);
    let (ours, theirs) = (redlock(&servers).await, redlock(&servers).await);
    for is_held in [false, true] {
        let held = if is_held { Some(theirs.lock(NAME).await.unwrap()) } else { None };
        for polls in 0..40 {
            if in_time(polled(ours.lock(NAME), polls)).await {
                break;
            }
        }
        drop(held);
        let guard: RedlockGuard = in_time(theirs.lock(NAME)).await.unwrap();
        guard.unlock().await.unwrap();
        is_free(&servers).await;
    }
}

#[tokio::test]
async fn a_dropped_guard_and_a_dropped_unlock_release_everywhere() {
    let servers = servers(3);
    let redlock = redlock(&servers).await;
    for polls in 0..4 {
        let guard = in_time(redlock.lock(NAME)).await.unwrap();
        in_time(polled(guard.unlock(), polls)).await;
        is_free(&servers).await;
    }
}

#[test]
fn the_puppet_takes_a_redlock_over_all_its_servers() {
    let mut servers = servers(3);
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let all = format!("redlock={}", urls.join(","));
    let settings = ["assume_fresh=on", "lease_ms=5000"];
    let (mut one, mut other) = (Puppet::start(&all, &settings), Puppet::start(&all, &settings));
    let granted = one.run(&format!("a lock {NAME}"));
    assert_eq!(granted["event"], "granted", "{granted}");
    assert!(granted["holder"].is_null() && granted["count"] == 1, "{granted}");
    assert!(servers.iter().filter(|server| has_key(server)).count() >= 2);
    assert_eq!(other.run(&format!("t try {NAME}"))["event"], "denied");
    assert_eq!(one.run("g guard a")["state"], "held");
    assert_eq!(one.run("v verify a")["verified"], true);
    other.send(&format!("w lock {NAME}"));
    other.wait("waiting", |event| event["event"] == "waiting");
    servers[0].stop();
    assert_eq!(one.run("u unlock a")["event"], "unlocked");
    let next = other.end_of("w");
    assert_eq!(next["event"], "granted", "{next}");
    assert!(next["token"].as_u64() > granted["token"].as_u64(), "{next} after {granted}");
    let status = other.run("s servers");
    let counting = |server: &&Value| server["counts"] == true;
    let list = status["servers"].as_array().expect("a list");
    assert_eq!(list.iter().filter(counting).count(), 2, "{status}");
    // Another kind is on the first server alone, and this one is away.
    assert_eq!(other.run("x lock other kind=mutex wait_ms=1")["event"], "error");
    assert_eq!(other.run("d drop w")["event"], "dropped");
    servers[0].restart();
    one.finish();
    other.finish();
}
