//! The reentrant lock and the mutex on a real Redis.

use std::collections::HashMap;
use std::time::Duration;

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::ReentrantLock;
use tokio::time::Instant;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::client::cannot_over_fred;
use crate::support::client::connect;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;
use crate::support::redis_server::pause;

const NAME: &str = "orders:42";
const SHORT: Duration = Duration::from_millis(400);
const OWN_RUNTIME: &str = "a driver with a runtime of its own";

async fn client(server: &RedisServer) -> LockClient {
    connect(&server.url()).await
}

async fn client_with_lease(server: &RedisServer, lease: Duration) -> LockClient {
    builder(&server.url()).lease(lease).connect().await.unwrap()
}

async fn world() -> (RedisServer, LockClient, ReentrantLock) {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.reentrant_lock(NAME).unwrap();
    (server, client, lock)
}

const BOUND: Duration = Duration::from_secs(10);

/// What is under the lock's key: field and count, and whether it has a time to live.
fn hash(connection: &mut redis::Connection) -> (HashMap<String, u32>, bool) {
    let fields = redis::cmd("HGETALL").arg(NAME).query(connection).unwrap();
    let pttl: i64 = redis::cmd("PTTL").arg(NAME).query(connection).unwrap();
    (fields, pttl > 0)
}

fn is_free(connection: &mut redis::Connection) -> bool {
    let exists: u32 = redis::cmd("EXISTS").arg(NAME).query(connection).unwrap();
    exists == 0
}

fn evalsha_calls(connection: &mut redis::Connection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(connection).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn nested_locks_are_one_field_whose_count_follows() {
    for driver in [Driver::Thread, Driver::Current] {
        let server = RedisServer::start();
        let mut redis = server.connection();
        let client = builder(&server.url()).driver(driver).connect().await.unwrap();
        let lock = client.reentrant_lock(NAME).unwrap();

        let outer = lock.lock().await.unwrap();
        let held = |count| (HashMap::from([(outer.hold_id(), count)]), true);
        assert_eq!(hash(&mut redis), held(1));
        assert!(outer.hold_id().starts_with(client.id()));
        let inner = lock.lock().await.unwrap();
        assert_eq!(hash(&mut redis), held(2));
        let innermost = lock.try_lock().await.unwrap().expect("one's own lock");
        assert_eq!(hash(&mut redis), held(3));
        assert_eq!(innermost.fencing_token(), outer.fencing_token());
        innermost.unlock().await.unwrap();
        assert_eq!(hash(&mut redis), held(2));
        inner.unlock().await.unwrap();
        assert_eq!(hash(&mut redis), held(1));
        assert_eq!(lock.hold_count().unwrap(), 1);
        outer.unlock().await.unwrap();
        assert!(is_free(&mut redis));
        assert_eq!(lock.hold_count().unwrap(), 0);
    }
}

#[tokio::test]
async fn no_time_to_wait_still_makes_its_attempt() {
    let (server, client, lock) = world().await;
    let granted = lock.try_lock_for(Duration::ZERO).await.unwrap().expect("it is free");
    granted.unlock().await.unwrap();
    let options = LockOptions::new().wait(Duration::ZERO).lease(Duration::from_secs(5));
    let granted =
        client.mutex(NAME).unwrap().lock_with(options).await.unwrap().expect("it is free");
    let other = connect(&server.url()).await;
    assert!(other.mutex(NAME).unwrap().try_lock_for(Duration::ZERO).await.unwrap().is_err());
    granted.unlock().await.unwrap();
}

#[tokio::test]
async fn those_who_queue_behind_an_attempt_count_as_waits() {
    let (_server, client, _lock) = world().await;
    let mutex = client.mutex(NAME).unwrap();
    let pass = async || mutex.lock().await.unwrap().unlock().await.unwrap();
    tokio::join!(pass(), pass(), pass());
    assert_eq!(client.stats().waits, 2);
}

#[tokio::test]
async fn an_uncontended_pair_is_two_script_calls_a_nested_one_four() {
    let (server, _client, lock) = world().await;
    let mut redis = server.connection();
    lock.lock().await.unwrap().unlock().await.unwrap();
    let before = evalsha_calls(&mut redis);
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(evalsha_calls(&mut redis) - before, 2);
    let before = evalsha_calls(&mut redis);
    let outer = lock.lock().await.unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert_eq!(evalsha_calls(&mut redis) - before, 4);
}

#[tokio::test]
async fn a_release_wakes_a_waiter_of_another_client() {
    let (server, _client, lock) = world().await;
    let held = lock.lock().await.unwrap();
    let other = client(&server).await;
    let theirs = other.reentrant_lock(NAME).unwrap();
    let waiter = tokio::spawn(async move { theirs.lock().await.unwrap().fencing_token() });
    let waiting = other.clone();
    tokio::task::spawn_blocking(move || {
        eventually("the waiter is subscribed", || waiting.stats().subscriptions == 1);
        pause(Duration::from_millis(100));
    })
    .await
    .unwrap();
    let token = held.fencing_token();
    held.unlock().await.unwrap();
    assert!(waiter.await.unwrap() > token);
    assert_eq!(other.stats().fallback_grants, 0);
    assert!(other.stats().wake_ups >= 1);
}

#[tokio::test]
async fn the_watchdog_outlives_several_leases_while_the_runtime_is_blocked() {
    if cannot_over_fred(OWN_RUNTIME) {
        return;
    }
    let server = RedisServer::start();
    let client = client_with_lease(&server, SHORT).await;
    let guard = client.reentrant_lock(NAME).unwrap().lock().await.unwrap();
    // The only thread of this runtime: nothing of the user's runs.
    pause(SHORT * 5);
    assert!(guard.is_held());
    let mut redis = server.connection();
    assert_eq!(hash(&mut redis).0, HashMap::from([(guard.hold_id(), 1)]));
    assert!(client.stats().renewals >= 5, "{:?}", client.stats());
    guard.verify().await.unwrap();
    guard.unlock().await.unwrap();
}

#[test]
fn a_client_that_dies_is_taken_over_when_its_lease_ends() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    };
    let server = RedisServer::start();
    let doomed = runtime();
    let builder = builder(&server.url()).lease(SHORT).driver(Driver::Current);
    let holder = doomed.block_on(builder.connect()).unwrap();
    let guard = doomed.block_on(holder.mutex(NAME).unwrap().lock()).unwrap();
    let token = guard.fencing_token();
    doomed.shutdown_timeout(Duration::from_secs(10));
    assert!(!is_free(&mut server.connection()), "a crash releases nothing");
    assert!(matches!(futures::executor::block_on(holder.ping()), Err(Error::Closed { .. })));
    assert_eq!(futures::executor::block_on(guard.lost()), LossReason::ClientShutdown);

    runtime().block_on(async {
        let lock = client(&server).await.reentrant_lock(NAME).unwrap();
        let taken =
            lock.try_lock_for(Duration::from_secs(10)).await.unwrap().expect("the lease has ended");
        assert!(taken.fencing_token() > token);
        taken.unlock().await.unwrap();
    });
}

#[tokio::test]
async fn held_by_another_is_an_answer() {
    let (server, _client, lock) = world().await;
    let _held = lock.lock().await.unwrap();
    let theirs = client(&server).await.reentrant_lock(NAME).unwrap();
    assert!(theirs.try_lock().await.unwrap().is_err());
    let before = Instant::now();
    assert!(theirs.try_lock_for(Duration::from_millis(300)).await.unwrap().is_err());
    assert!(before.elapsed() >= Duration::from_millis(300));
    let holder = theirs.holder().await.unwrap().unwrap();
    assert_eq!((holder.count, holder.is_this_client), (1, false));
    assert!(theirs.remaining_lease().await.unwrap().unwrap() > Duration::from_secs(20));
}

#[test]
fn guards_dropped_outside_any_runtime_are_released() {
    if cannot_over_fred(OWN_RUNTIME) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = RedisServer::start();
    let mut redis = server.connection();
    let client = runtime.block_on(client(&server));
    let lock = client.reentrant_lock(NAME).unwrap();
    let guard = runtime.block_on(lock.lock()).unwrap();
    assert_eq!(
        runtime.block_on(async { lock.hold_count() }).unwrap(),
        1,
        "the root's owner is the thread"
    );
    assert_eq!(runtime.block_on(lock.lock()).unwrap().hold_count(), 2);
    drop(runtime);
    drop(guard);
    eventually("the key is gone", || is_free(&mut redis));

    // As at the end of `main`: the last handle goes with the guard.
    let guard = futures::executor::block_on(Owner::new().scope(lock.lock())).unwrap();
    drop((lock, client));
    drop(guard);
    eventually("the key is gone", || is_free(&mut redis));
    eventually("its connections are gone", || connections(&mut redis) == 1);
}

fn connections(redis: &mut redis::Connection) -> usize {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(redis).unwrap();
    list.lines().count()
}

#[test]
fn a_mutex_needs_no_tokio() {
    if cannot_over_fred(OWN_RUNTIME) {
        return;
    }
    let server = RedisServer::start();
    let client = futures::executor::block_on(client(&server));
    let mutex = client.mutex(NAME).unwrap();
    futures::executor::block_on(async {
        let guard = mutex.lock().await.unwrap();
        assert!(mutex.try_lock().await.unwrap().is_err());
        assert!(mutex.try_lock_for(Duration::from_millis(50)).await.unwrap().is_err());
        assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
        guard.unlock().await.unwrap();
        let lock = client.reentrant_lock(NAME).unwrap();
        assert!(matches!(lock.lock().await, Err(Error::NoOwner)));
        client.shutdown(Duration::from_secs(5)).await.unwrap();
    });
}

#[tokio::test]
async fn ten_thousand_guards_dropped_at_once_leave_no_key() {
    let (server, client, _lock) = world().await;
    let guards: Vec<Guard> = futures::future::try_join_all((0..10_000).map(|number| {
        let mutex = client.mutex(format!("many:{number}")).unwrap();
        async move { mutex.lock().await }
    }))
    .await
    .unwrap();
    assert_eq!(client.stats().holds, 10_000);
    drop(guards);
    let mut redis = server.connection();
    tokio::task::spawn_blocking(move || {
        eventually("every lock is free", || {
            let keys: Vec<String> = redis::cmd("KEYS").arg("many:*").query(&mut redis).unwrap();
            keys.is_empty()
        });
    })
    .await
    .unwrap();
    assert_eq!(client.stats().failed_drop_releases, 0);
}

/// Each try is answered before it has begun to wait: who is in the way is known here.
#[tokio::test]
async fn a_task_that_tries_again_and_again_lets_others_run() {
    let server = RedisServer::start();
    let client = builder(&server.url()).driver(Driver::Current).connect().await.unwrap();
    let lock = client.mutex(NAME).unwrap();
    let _held = lock.lock().await.unwrap();
    for _ in 0..2 {
        // What the driver has to do by itself is over.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let others = tokio::spawn(async { tokio::task::yield_now().await });
        let mut tries = 0;
        while !others.is_finished() && tries < 10_000 {
            assert!(lock.try_lock().await.unwrap().is_err());
            tries += 1;
        }
        assert!(tries < 10_000);
    }
}

#[tokio::test]
async fn shutdown_releases_everything_and_leaves_no_connection() {
    for driver in [Driver::Thread, Driver::Current] {
        let server = RedisServer::start();
        let mut redis = server.connection();
        let client = builder(&server.url()).driver(driver).connect().await.unwrap();
        let lock = client.reentrant_lock(NAME).unwrap();
        let guard = lock.lock().await.unwrap();
        let report = client.shutdown(Duration::from_secs(5)).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert!(is_free(&mut redis));
        assert_eq!(guard.loss(), Some(LossReason::ClientShutdown));
        assert!(matches!(lock.lock().await, Err(Error::Closed { .. })));
        assert!(client.shutdown(Duration::from_secs(5)).await.unwrap().is_clean());
        eventually("its connections are gone", || connections(&mut redis) == 1);
    }
}

#[tokio::test]
async fn shutdown_without_a_server_reports_what_it_left() {
    let (mut server, client, lock) = world().await;
    let _guard = lock.lock().await.unwrap();
    server.stop();
    let report = client.shutdown(Duration::from_millis(300)).await.unwrap();
    assert_eq!(report.left.iter().map(|left| &left.name).collect::<Vec<_>>(), [NAME]);
}

/// What ends a hold from outside, and what its holder is told.
#[tokio::test]
async fn a_loss_is_told_with_its_reason() {
    for (what, reason) in [
        ("force", LossReason::ForceUnlocked),
        ("delete", LossReason::Removed),
        ("replace", LossReason::TakenOver),
        ("restart", LossReason::ServerLostData),
    ] {
        let mut server = RedisServer::start();
        let client = client_with_lease(&server, Duration::from_secs(3)).await;
        let lock = client.reentrant_lock(NAME).unwrap();
        let guard = lock.lock().await.unwrap();
        match what {
            "force" => {
                let other = self::client(&server).await.mutex(NAME).unwrap();
                assert!(other.force_unlock().await.unwrap());
            }
            "restart" => server.restart(),
            "delete" => redis::cmd("DEL").arg(NAME).exec(&mut server.connection()).unwrap(),
            _ => {
                let field = format!("{}:1", "6e3d30b7-83b1-433a-9335-5e8b9916d3ac");
                let mut redis = server.connection();
                redis::cmd("DEL").arg(NAME).exec(&mut redis).unwrap();
                redis::cmd("HSET").arg(NAME).arg(field).arg(1).exec(&mut redis).unwrap();
                redis::cmd("PEXPIRE").arg(NAME).arg(60_000).exec(&mut redis).unwrap();
            }
        }
        let told = timeout(Duration::from_secs(10), guard.lost()).await.expect(what);
        assert_eq!(told, reason, "{what}");
        assert!(!guard.is_held());
        assert!(guard.run(async {}).await.unwrap_err().is_lost());
        assert!(guard.unlock().await.unwrap_err().is_lost());
    }
}

#[tokio::test]
async fn a_key_in_other_use_is_left_alone() {
    let (server, _client, lock) = world().await;
    let mut redis = server.connection();
    redis::cmd("SET").arg(NAME).arg("text").exec(&mut redis).unwrap();
    for error in [
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
        lock.is_locked().await.unwrap_err(),
        lock.holder().await.unwrap_err(),
        lock.force_unlock().await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::KeyConflict { .. }), "{error}");
        assert!(error.is_config());
    }
    let text: String = redis::cmd("GET").arg(NAME).query(&mut redis).unwrap();
    assert_eq!(text, "text");
}

/// The hash is what a failover, or a restart from an older state, leaves of a release.
#[tokio::test]
async fn a_release_that_the_server_forgot_is_repeated() {
    let (server, client, lock) = world().await;
    let mut redis = server.connection();
    let guard = lock.lock().await.unwrap();
    let (field, token) = (guard.hold_id(), guard.fencing_token());
    guard.unlock().await.unwrap();
    redis::cmd("HSET").arg(NAME).arg(&field).arg(1).exec(&mut redis).unwrap();
    redis::cmd("PEXPIRE").arg(NAME).arg(3_600_000).exec(&mut redis).unwrap();

    let guard = timeout(BOUND, lock.lock()).await.expect("before the lease ends").unwrap();
    assert!(guard.hold_id() != field && guard.fencing_token() > token);
    guard.unlock().await.unwrap();
    client.shutdown(BOUND).await.unwrap();
}

#[tokio::test]
async fn connect_says_what_it_tried_and_leaves_nothing() {
    let nobody = RedisServer::not_started(&[]);
    let to_nobody = builder(&nobody.url()).connect_timeout(Duration::from_millis(300));
    let before = Instant::now();
    let error = to_nobody.connect().await.unwrap_err();
    assert!(before.elapsed() < Duration::from_secs(5));
    assert!(matches!(error, Error::Unavailable { .. }) && error.is_transient(), "{error}");
    assert!(error.to_string().contains(&format!("tried {}", nobody.address())), "{error}");

    let locked = RedisServer::with(&["--requirepass", "secret"]);
    for (login, kind) in [(":hunter2@", "WRONGPASS"), ("", "NOAUTH")] {
        let url = format!("redis://{login}{}", locked.address());
        let before = Instant::now();
        let error = builder(&url).connect().await.unwrap_err();
        assert!(matches!(error, Error::Auth { .. }), "{kind}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        assert!(before.elapsed() < Duration::from_secs(4), "{kind} waited for the connect timeout");
    }
    let client = connect(&format!("redis://:secret@{}", locked.address())).await;
    client.ping().await.unwrap();
    assert!(!format!("{client:?}").contains("secret"));
}

#[tokio::test]
async fn a_lazy_client_starts_before_its_server() {
    let mut server = RedisServer::not_started(&[]);
    let client = builder(&server.url()).connect_lazy().unwrap();
    let lock = client.reentrant_lock(NAME).unwrap();
    assert!(lock.try_lock().await.unwrap_err().is_transient());
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await });
    server.restart();
    waiting.await.unwrap().unwrap();
}
