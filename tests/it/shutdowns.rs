//! What the report of a shutdown says, against a real server.

use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::Driver;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::ShutdownReport;
use tokio::time::Instant;

use crate::support::client::builder;
use crate::support::look;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;

const LEASE: Duration = Duration::from_secs(2);
const BOUND: Duration = Duration::from_secs(10);
/// How long after a lease a lock may still count as left: the command timeout and the margin for
/// clocks.
const MORE: Duration = Duration::from_secs(2);

async fn client(server: &RedisServer, driver: Driver) -> LockClient {
    builder(&server.url()).driver(driver).lease(LEASE).connect().await.unwrap()
}

async fn held(client: &LockClient, names: &[impl AsRef<str>]) -> Vec<Guard> {
    let mut guards = Vec::new();
    for name in names {
        guards.push(client.mutex(name).unwrap().lock().await.unwrap());
    }
    guards
}

fn left(report: &ShutdownReport) -> Vec<&str> {
    report.left.iter().map(|left| left.name.as_str()).collect()
}

fn leases_end_in_time(report: &ShutdownReport) {
    assert!(report.left.iter().all(|left| left.until.remaining() <= LEASE + MORE), "{report:?}");
}

/// Nothing is there any more once the report says so.
fn is_true(report: &ShutdownReport, redis: &mut Connection) {
    leases_end_in_time(report);
    eventually("the leases end", || report.left.iter().all(|left| left.until.is_past()));
    assert_eq!(look::lock_keys(redis), Vec::<String>::new());
}

#[tokio::test]
async fn everything_that_was_held_is_released_and_named() {
    for driver in [Driver::Thread, Driver::Current] {
        let server = RedisServer::start();
        let mut redis = server.connection();
        let client = client(&server, driver).await;
        let _guards = held(&client, &["c", "a"]).await;
        let lock = client.reentrant_lock("b").unwrap();
        let owner = Owner::new();
        let _outer = owner.scope(lock.lock()).await.unwrap();
        let _inner = owner.scope(lock.lock()).await.unwrap();
        // Released before, and somebody else's: neither concerns this shutdown.
        held(&client, &["released"]).await.pop().unwrap().unlock().await.unwrap();
        let others = self::client(&server, driver).await;
        let _theirs = held(&others, &["theirs"]).await;
        assert!(client.mutex("theirs").unwrap().is_locked().await.unwrap());

        let (first, second) = tokio::join!(client.shutdown(BOUND), client.shutdown(BOUND));
        let report = first.unwrap();
        assert_eq!(report, second.unwrap());
        assert_eq!(report.released, ["a", "b", "c"], "{driver}");
        assert_eq!(report.to_string(), "3 locks released");
        assert!(report.is_clean() && report.lost.is_empty());
        assert_eq!(look::lock_keys(&mut redis), ["theirs"]);
        assert_eq!(client.shutdown(Duration::ZERO).await.unwrap(), report, "a later call");
    }
}

#[tokio::test]
async fn a_server_that_is_stopped_leaves_everything_to_its_lease() {
    for driver in [Driver::Thread, Driver::Current] {
        let server = RedisServer::start();
        let mut redis = server.connection();
        let client = client(&server, driver).await;
        let mut guards = held(&client, &["held", "dropped"]).await;
        server.freeze();
        drop(guards.pop());
        let report = client.shutdown(Duration::from_millis(200)).await.unwrap();
        assert_eq!(left(&report), ["dropped", "held"], "{driver}");
        assert!(report.released.is_empty() && report.lost.is_empty() && !report.is_clean());
        let line = report.to_string();
        assert!(
            line.starts_with("0 locks released, 2 left to their leases: dropped (for at most "),
            "{line}"
        );
        server.thaw();
        is_true(&report, &mut redis);
    }
}

#[tokio::test]
async fn of_some_that_are_refused_or_gone_each_is_told() {
    for driver in [Driver::Thread, Driver::Current] {
        let server = RedisServer::start();
        let mut redis = server.connection();
        let user = ["ACL", "SETUSER", "locks", "on", ">pw", "+@all", "~*", "&*"];
        redis::cmd("ACL").arg(&user[1..]).exec(&mut redis).unwrap();
        let url = format!("redis://locks:pw@{}", server.address());
        let client = builder(&url).driver(driver).lease(LEASE).connect().await.unwrap();
        let _guards = held(&client, &["yes:1", "no:1", "gone", "yes:2", "no:2"]).await;
        redis::cmd("DEL").arg("gone").exec(&mut redis).unwrap();
        let forbidden = ["SETUSER", "locks", "resetkeys", "~yes:*", "~gone", "~*fence*", "~*line*"];
        redis::cmd("ACL").arg(&forbidden).exec(&mut redis).unwrap();
        let report = client.shutdown(BOUND).await.unwrap();
        assert_eq!(report.released, ["yes:1", "yes:2"], "{driver}: {report:?}");
        assert_eq!(report.lost, ["gone"]);
        assert_eq!(left(&report), ["no:1", "no:2"]);
        let line = report.to_string();
        assert!(
            line.starts_with("2 locks released, 1 lost before that: gone, 2 left to"),
            "{line}"
        );
        is_true(&report, &mut redis);
    }
}

#[tokio::test]
async fn a_shutdown_without_time_sends_the_releases_all_the_same() {
    for driver in [Driver::Thread, Driver::Current] {
        let server = RedisServer::start();
        let mut redis = server.connection();
        let client = client(&server, driver).await;
        let names: Vec<String> = (0..600).map(|number| number.to_string()).collect();
        let _guards = held(&client, &names).await;
        let report = client.shutdown(Duration::ZERO).await.unwrap();
        // Whether their answers come before it looks at the clock is chance.
        assert_eq!(report.released.len() + report.left.len(), names.len(), "{report:?}");
        let begun = Instant::now();
        eventually("released", || look::lock_keys(&mut redis).is_empty());
        assert!(begun.elapsed() < LEASE / 2, "{:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_locks_are_told_in_order() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let client = client(&server, Driver::Thread).await;
    let names: Vec<String> = (0..1_000).map(|number| format!("{number:04}")).collect();
    let locks: Vec<_> = names.iter().rev().map(|name| client.mutex(name).unwrap()).collect();
    let guards = futures::future::join_all(locks.iter().map(|lock| lock.lock())).await;
    assert!(guards.iter().all(Result::is_ok));
    let report = client.shutdown(BOUND).await.unwrap();
    assert_eq!(report.released, names);
    assert_eq!(look::lock_keys(&mut redis), Vec::<String>::new());
}
