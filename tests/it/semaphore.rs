//! The semaphore, on a real server.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::SemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::client::connect;
use crate::support::look;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

const NAME: &str = "exports:7";
const PERMITS: &str = "{exports:7}:timeout";
const LINE: &str = "redisson_lock_line__{exports:7}";
/// Within this time everything ends that ends at all.
const BOUND: Duration = Duration::from_secs(30);
/// Longer than any pause of a busy machine, so that no command has an unknown outcome.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(15);

async fn client(server: &RedisServer) -> LockClient {
    builder(&server.url()).command_timeout(COMMAND_TIMEOUT).connect().await.unwrap()
}

/// So many permits of a semaphore that has this number.
async fn held(client: &LockClient, number: u32, permits: u32) -> SemaphorePermit {
    let semaphore = client.semaphore(NAME, number).unwrap();
    timeout(BOUND, semaphore.acquire_many(permits)).await.expect("granted").unwrap()
}

/// A task that waits for so many permits.
fn waits(client: &LockClient, number: u32, permits: u32) -> JoinHandle<Result<SemaphorePermit>> {
    let semaphore = client.semaphore(NAME, number).unwrap();
    tokio::spawn(async move { semaphore.acquire_many(permits).await })
}

async fn ends(waiter: JoinHandle<Result<SemaphorePermit>>) -> Result<SemaphorePermit> {
    timeout(BOUND, waiter).await.expect("it ends").unwrap()
}

fn number_in(redis: &mut Connection, key: &str) -> usize {
    redis::cmd("ZCARD").arg(key).query(redis).unwrap()
}

async fn so_many_stand_in_line(server: &RedisServer, number: usize) {
    let mut redis = server.connection();
    settles("they stand in line", move || number_in(&mut redis, LINE) == number).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_the_number_are_held_at_once() {
    let server = RedisServer::start();
    let clients = [client(&server).await, client(&server).await, client(&server).await];
    let (at_once, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let tasks: Vec<_> = (0..24)
        .map(|task| {
            let semaphore = clients[task % 3].semaphore(NAME, 4).unwrap();
            let (at_once, most) = (Arc::clone(&at_once), Arc::clone(&most));
            let wanted = 1 + task as u32 / 3 % 3;
            tokio::spawn(async move {
                for _ in 0..10 {
                    let permits = semaphore.acquire_many(wanted).await.unwrap();
                    most.fetch_max(
                        at_once.fetch_add(wanted, Ordering::SeqCst) + wanted,
                        Ordering::SeqCst,
                    );
                    tokio::task::yield_now().await;
                    assert!(permits.is_held());
                    at_once.fetch_sub(wanted, Ordering::SeqCst);
                    permits.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        timeout(2 * BOUND, task).await.expect("nobody starves").unwrap();
    }
    assert!((2..=4).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    for client in &clients {
        leaves_nothing(&server, client).await;
    }
}

#[tokio::test]
async fn a_release_wakes_whoever_waits() {
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let permits = held(&holder, 2, 2).await;
    let waiting = waits(&waiter, 2, 1);
    so_many_stand_in_line(&server, 1).await;
    assert!(!waiting.is_finished());
    let since = tokio::time::Instant::now();
    permits.release().await.unwrap();
    let permit = ends(waiting).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(permit.permits(), 1);
    permit.release().await.unwrap();
    leaves_nothing(&server, &holder).await;
    leaves_nothing(&server, &waiter).await;
}

#[tokio::test]
async fn a_want_of_five_is_served_before_later_wants_of_one() {
    let server = RedisServer::start();
    let (holder, large, small) =
        (client(&server).await, client(&server).await, client(&server).await);
    let mut taken = Vec::new();
    for _ in 0..5 {
        taken.push(held(&holder, 5, 1).await);
    }
    let five = waits(&large, 5, 5);
    so_many_stand_in_line(&server, 1).await;
    let ones: Vec<_> = (0..3).map(|at| waits([&small, &large, &holder][at], 5, 1)).collect();
    so_many_stand_in_line(&server, 4).await;
    // Four are free, and go to nobody: who came first wants five.
    for permit in taken.drain(1..) {
        permit.release().await.unwrap();
    }
    assert!(small.semaphore(NAME, 5).unwrap().try_acquire().await.unwrap().is_err());
    assert!(ones.iter().all(|one| !one.is_finished()));
    taken.pop().unwrap().release().await.unwrap();
    let five = ends(five).await.unwrap();
    assert_eq!(five.permits(), 5);
    assert!(ones.iter().all(|one| !one.is_finished()));
    five.release().await.unwrap();
    for one in ones {
        ends(one).await.unwrap().release().await.unwrap();
    }
    leaves_nothing(&server, &holder).await;
}

#[tokio::test]
async fn a_number_that_is_set_holds_for_everybody_and_also_for_those_who_wait() {
    let server = RedisServer::start();
    let (first, second) = (client(&server).await, client(&server).await);
    let semaphore = first.semaphore(NAME, 4).unwrap();
    let all = held(&first, 4, 4).await;
    let (three, one) = (waits(&second, 4, 3), waits(&second, 4, 1));
    so_many_stand_in_line(&server, 2).await;
    // Lower: nothing is taken from the holder, and who wants more than that hears of it.
    semaphore.set_permits(2).await.unwrap();
    let error = ends(three).await.unwrap_err();
    assert!(
        matches!(&error, Error::TooManyPermits { wanted: 3, permits: 2, name } if name == NAME),
        "{error:?}"
    );
    assert!(all.is_held());
    all.verify().await.unwrap();
    assert_eq!((semaphore.permits().await.unwrap(), semaphore.available().await.unwrap()), (2, 0));
    assert!(!one.is_finished());
    // Higher: who waits is served without a release.
    assert_eq!(second.semaphore(NAME, 4).unwrap().add_permits(4).await.unwrap(), 6);
    let one = ends(one).await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 1);
    let error = second.semaphore(NAME, 100).unwrap().acquire_many(7).await.unwrap_err();
    assert!(matches!(error, Error::TooManyPermits { wanted: 7, permits: 6, .. }), "{error:?}");
    all.release().await.unwrap();
    one.release().await.unwrap();
    // Only the number is left, for good.
    let mut redis = server.connection();
    settles("only the number is left", move || {
        let left = look::keys(&mut redis);
        left.iter().all(|key| key == NAME || key.starts_with("redisson_latch_op:{exports:7}:"))
    })
    .await;
    let mut redis = server.connection();
    let hash = look::hash(&mut redis, NAME);
    assert_eq!(
        hash,
        [("kind", "semaphore"), ("permits", "6")].map(|(k, v)| (k.into(), v.into())).into()
    );
    assert_eq!(look::immortal_keys(&mut redis), [NAME]);
}

#[tokio::test]
async fn permits_of_a_process_that_was_killed_come_back_with_its_lease() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut puppet = Puppet::start(&server.url(), &["lease_ms=1500"]);
    let granted = puppet.run(&format!("a lock {NAME} kind=permit permits=3 of=3"));
    assert_eq!(granted["event"], "granted", "{granted}");
    let denied = puppet.run(&format!("b try {NAME} kind=permit of=3"));
    assert_eq!(denied["event"], "denied", "{denied}");
    let waiting = waits(&client, 3, 2);
    so_many_stand_in_line(&server, 1).await;
    let mut redis = server.connection();
    let members: Vec<String> =
        redis::cmd("ZRANGE").arg(PERMITS).arg(&["0", "-1"]).query(&mut redis).unwrap();
    let holder = granted["holder"].as_str().unwrap();
    assert_eq!(members, [1, 2, 3].map(|index| format!("{holder}:{index}")));
    puppet.kill();
    let since = tokio::time::Instant::now();
    let permits = ends(waiting).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
    permits.release().await.unwrap();
    leaves_nothing(&server, &client).await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anything_is_sent() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let before = look::script_runs(&mut server.connection());
    let semaphore = client.semaphore(NAME, 10).unwrap();
    let mut errors = vec![
        client.semaphore(NAME, 0).unwrap_err(),
        client.semaphore(NAME, 1_000_001).unwrap_err(),
        semaphore.acquire_many(0).await.unwrap_err(),
        semaphore.acquire_many(1_001).await.unwrap_err(),
        semaphore.set_permits(0).await.unwrap_err(),
        semaphore.set_permits(1_000_001).await.unwrap_err(),
        semaphore.add_permits(0).await.unwrap_err(),
        semaphore.force_release_from("somebody").await.unwrap_err(),
    ];
    let redisson = builder(&server.url()).profile(redis_reentrant_lock::WireProfile::Redisson);
    errors.push(redisson.connect().await.unwrap().semaphore(NAME, 10).unwrap_err());
    for error in errors {
        assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}");
    }
    assert_eq!(look::script_runs(&mut server.connection()), before);
    assert!(client.semaphore(NAME, 1_000_000).is_ok());
    let name = client.semaphore("", 1).unwrap_err();
    assert!(matches!(name, Error::InvalidName { .. }), "{name:?}");
}
