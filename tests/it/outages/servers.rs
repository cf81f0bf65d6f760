//! What happens to a server as a whole: it restarts, refuses, pauses, forgets, or ends connections.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::LossReason;
use tokio::time::sleep;
use tokio::time::timeout;

use crate::outages::place::Place;
use crate::outages::scene::BOUND;
use crate::outages::scene::Scene;
use crate::outages::scene::answered;
use crate::support::settle::settles;

/// So long that no renewal comes in between: it is the reconnection that tells.
const LONG: Duration = Duration::from_secs(120);
const LEASE: Duration = Duration::from_secs(20);

/// One after the other, since each of them concerns the whole server.
pub(crate) async fn all(mut place: Place) {
    restart(&mut place, true).await;
    restart(&mut place, false).await;
    too_few_replicas(&place).await;
    pause(&place, "ALL").await;
    pause(&place, "WRITE").await;
    connections_are_killed(&place).await;
    scripts_are_flushed(&place).await;
    subscribers_are_too_slow(&place).await;
    memory_is_full(&place).await;
    locks_are_evicted(&place).await;
}

async fn restart(place: &mut Place, with_data: bool) {
    let name = place.name("restart");
    let scene = Scene::set(|| place.builder().lease(LONG), name.clone()).await;
    place.restart(with_data);
    let what = format!(
        "{}, restarted {} its data",
        place.kind(),
        if with_data { "with" } else { "without" }
    );
    if with_data {
        scene.goes_on(&what).await;
    } else {
        scene.ends_lost(&what).await;
    }
    place.is_free(&name);
}

/// `min-replicas-to-write`: every write is refused.
async fn too_few_replicas(place: &Place) {
    let scene = Scene::set(|| place.builder().lease(LEASE), place.name("replicas")).await;
    let brief = place.builder().lease(Duration::from_secs(2)).connect().await.expect("connected");
    let expiring =
        brief.mutex(place.name("expiring")).expect("a good name").lock().await.expect("free");
    let name = place.name("refused");
    let refused = brief.mutex(&name).expect("a good name");

    place.config("min-replicas-to-write", "3");
    let error = refused.try_lock().await.expect_err("no writes");
    assert!(error.is_transient() && error.to_string().contains("NOREPLICAS"), "{error}");
    place.is_free(&name);
    let patient = tokio::spawn(async move { refused.try_lock_for(BOUND).await });
    assert_eq!(timeout(BOUND, expiring.lost()).await.expect("told"), LossReason::Expired);
    assert!(expiring.valid_until().is_past(), "held for as long as it may be believed");
    assert!(scene.guard.is_held() && !patient.is_finished());

    place.config("min-replicas-to-write", "0");
    let guard = timeout(BOUND, patient).await.expect("stuck").expect("no panic").expect("answered");
    guard.expect("granted").unlock().await.expect("held");
    drop(expiring);
    assert!(brief.shutdown(BOUND).await.expect("in time").is_clean());
    scene.goes_on(&format!("{}, too few replicas", place.kind())).await;
}

async fn pause(place: &Place, mode: &str) {
    let scene = Scene::set(|| place.builder().lease(LEASE), place.name("paused")).await;
    let name = place.name("late");
    let late = scene.waiter.mutex(&name).expect("a good name");
    let _: String = place.ask(&["CLIENT", "PAUSE", "1500", mode]);
    let error = late.try_lock().await.expect_err("no answer within its time");
    assert!(error.is_transient(), "{error}");
    assert!(scene.guard.is_held());
    answered(&scene.guard).await.expect("still held");
    // The pause over, the server runs what nobody waits for any more.
    place.is_free(&name);
    scene.goes_on(&format!("{}, paused ({mode})", place.kind())).await;
}

async fn connections_are_killed(place: &Place) {
    let scene = Scene::set(|| place.builder().lease(LEASE), place.name("killed")).await;
    let mut killed = 0;
    for _ in 0..20 {
        for kind in ["normal", "pubsub"] {
            killed += place.ask::<u64>(&["CLIENT", "KILL", "TYPE", kind]);
            sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(killed >= 10, "only {killed} connections ended");
    assert!(scene.guard.is_held());
    scene.goes_on(&format!("{}, {killed} connections killed", place.kind())).await;
}

/// Taken and given back by several, who see to it that they are alone, while the scripts go again
/// and again.
async fn scripts_are_flushed(place: &Place) {
    let client = place.builder().lease(LEASE).connect().await.expect("connected");
    let name = place.name("flushed");
    let (stop, busy) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let rounds = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let lock = client.mutex(&name).expect("a good name");
            let (stop, busy, rounds) = (Arc::clone(&stop), Arc::clone(&busy), Arc::clone(&rounds));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.lock().await.expect("a flush is no error");
                    assert!(!busy.swap(true, Ordering::SeqCst), "two hold it");
                    tokio::task::yield_now().await;
                    busy.store(false, Ordering::SeqCst);
                    guard.unlock().await.expect("a flush is no error");
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..100 {
        let _: String = place.ask(&["SCRIPT", "FLUSH"]);
        sleep(Duration::from_millis(5)).await;
    }
    let (watched, before) = (Arc::clone(&rounds), rounds.load(Ordering::Relaxed));
    settles("work goes on", move || watched.load(Ordering::Relaxed) > before).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        timeout(BOUND, task).await.expect("stuck").expect("no overlap and no error");
    }
    println!("{}, 100 script flushes: {} rounds", place.kind(), rounds.load(Ordering::Relaxed));
    place.is_free(&name);
    assert!(client.shutdown(BOUND).await.expect("in time").is_clean());
}

/// `client-output-buffer-limit pubsub`: who cannot take a flood is thrown out.
async fn subscribers_are_too_slow(place: &Place) {
    let scene = Scene::set(|| place.builder().lease(LEASE), place.name("flooded")).await;
    place.config("client-output-buffer-limit", "pubsub 32kb 0 0");
    let before = place.listeners();
    assert!(!before.is_empty());
    let flood = "0".repeat(500_000);
    for _ in 0..5 {
        place.publish(&scene.name, &flood);
    }
    let after = place.listeners();
    assert!(before.iter().any(|listener| !after.contains(listener)), "nobody was thrown out");
    place.config("client-output-buffer-limit", "pubsub 32mb 8mb 60");
    scene.goes_on(&format!("{}, subscriber thrown out", place.kind())).await;
}

/// `maxmemory` with noeviction: nothing new, but what is there can be renewed and released.
async fn memory_is_full(place: &Place) {
    let scene = Scene::set(|| place.builder().lease(LEASE), place.name("full")).await;
    let second = scene.holder.mutex(place.name("released")).expect("a good name");
    let released = second.lock().await.expect("free");
    place.config("maxmemory", "1");
    let name = place.name("none-left");
    let refused = scene.waiter.mutex(&name).expect("a good name");
    let error = refused.try_lock().await.expect_err("no memory");
    assert!(error.is_transient() && error.to_string().contains("OOM"), "{error}");
    place.is_free(&name);
    scene.guard.verify().await.expect("renewed all the same");
    released.unlock().await.expect("released all the same");
    place.is_free(second.name());
    let patient = tokio::spawn(async move { refused.try_lock_for(BOUND).await });
    let waiter = scene.waiter.clone();
    settles("it waits", move || waiter.stats().waiters == 2).await;
    place.config("maxmemory", "0");
    let guard = timeout(BOUND, patient).await.expect("stuck").expect("no panic").expect("answered");
    guard.expect("granted").unlock().await.expect("held");
    scene.goes_on(&format!("{}, memory full", place.kind())).await;
}

/// `maxmemory` with allkeys-lru: the server removes the lock.
async fn locks_are_evicted(place: &Place) {
    let client = place.builder().lease(Duration::from_secs(3)).connect().await.expect("connected");
    let name = place.name("evicted");
    let lock = client.mutex(&name).expect("a good name");
    let guard = lock.lock().await.expect("free");
    let memory: String = place.ask(&["INFO", "memory"]);
    let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a line");
    let limit = used.parse::<u64>().expect("a number") + 2_000_000;
    place.config("maxmemory-policy", "allkeys-lru");
    place.config("maxmemory", &limit.to_string());
    let filler = "x".repeat(10_000);
    let mut connection = place.connection(0);
    for round in 0.. {
        assert!(round < 200, "not evicted");
        let mut fill = redis::pipe();
        for number in 0..100 {
            fill.cmd("SET")
                .arg(format!("{{{name}}}:filler:{round}:{number}"))
                .arg(&filler)
                .ignore();
        }
        // Valkey 8.0 may have nothing left to evict.
        if let Err(error) = fill.query::<()>(&mut connection) {
            assert!(error.to_string().contains("OOM"), "SET: {error}");
        }
        let there: bool = redis::cmd("EXISTS").arg(&name).query(&mut connection).expect("EXISTS");
        if !there {
            break;
        }
    }
    let begun = tokio::time::Instant::now();
    let reason = timeout(BOUND, guard.lost()).await.expect("told");
    println!("{}, lock evicted: told ({reason}) after {:?}", place.kind(), begun.elapsed());
    assert_eq!(reason, LossReason::Removed);
    place.config("maxmemory", "0");
    place.config("maxmemory-policy", "noeviction");
    let _: String = place.ask(&["FLUSHALL"]);
    assert!(!guard.is_held());
    let token = guard.fencing_token();
    drop(guard);
    let next = lock.lock().await.expect("free");
    assert!(next.fencing_token() > token, "though the counter was evicted too");
    next.unlock().await.expect("held");
    place.is_free(&name);
    assert!(client.shutdown(BOUND).await.expect("in time").is_clean());
}
