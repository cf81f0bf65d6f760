//! The read-write lock, on a real server.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::RwLock;
use redis_reentrant_lock::RwLockReadGuard;
use redis_reentrant_lock::RwLockWriteGuard;
use redis_reentrant_lock::WireProfile;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::look;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

const NAME: &str = "catalog";
const LINE: &str = "redisson_lock_line__{catalog}";
const CHANNEL: &str = "redisson_rwlock:{catalog}";
/// Within this time everything ends that ends at all.
const BOUND: Duration = Duration::from_secs(30);

fn lock(client: &LockClient) -> RwLock {
    client.rw_lock(NAME).unwrap()
}

async fn reads(client: &LockClient) -> RwLockReadGuard {
    let lock = lock(client);
    let read = Owner::new().scope(async move { lock.read().await });
    timeout(BOUND, read).await.expect("granted").unwrap()
}

async fn writes(client: &LockClient) -> RwLockWriteGuard {
    let lock = lock(client);
    let write = Owner::new().scope(async move { lock.write().await });
    timeout(BOUND, write).await.expect("granted").unwrap()
}

/// Whether somebody else could read, and whether somebody else could write.
async fn others_could(client: &LockClient) -> (bool, bool) {
    let lock = lock(client);
    let read = Owner::new().scope(async {
        match lock.try_read().await.unwrap() {
            Ok(guard) => guard.unlock().await.map(|()| true).unwrap(),
            Err(_) => false,
        }
    });
    let read = read.await;
    let write = Owner::new().scope(async {
        match lock.try_write().await.unwrap() {
            Ok(guard) => guard.unlock().await.map(|()| true).unwrap(),
            Err(_) => false,
        }
    });
    (read, write.await)
}

/// A task that waits to read.
fn waits_to_read(client: &LockClient) -> JoinHandle<RwLockReadGuard> {
    let lock = lock(client);
    tokio::spawn(async move { lock.read().await.unwrap() })
}

async fn granted<T>(waiter: JoinHandle<T>) -> T {
    timeout(BOUND, waiter).await.expect("granted").unwrap()
}

async fn so_many_stand_in_line(server: &RedisServer, number: usize) {
    let mut redis = server.connection();
    let stand = move || {
        let places: usize = redis::cmd("ZCARD").arg(LINE).query(&mut redis).unwrap();
        places == number
    };
    settles("they stand in line", stand).await;
}

/// So many clients are subscribed to the channel of the lock.
async fn are_subscribed(server: &RedisServer, clients: u64) {
    let mut redis = server.connection();
    settles("they wait", move || look::subscribers(&mut redis, CHANNEL) == clients).await;
}

async fn in_both_profiles(test: impl AsyncFn(&RedisServer, &LockClient, &LockClient)) {
    for profile in [WireProfile::Native, WireProfile::Redisson] {
        let server = RedisServer::start();
        let client = async || builder(&server.url()).profile(profile).connect().await.unwrap();
        let (first, second) = (client().await, client().await);
        test(&server, &first, &second).await;
        leaves_nothing(&server, &first).await;
        leaves_nothing(&server, &second).await;
    }
}

async fn native() -> (RedisServer, LockClient, LockClient) {
    let server = RedisServer::start();
    let first = builder(&server.url()).connect().await.unwrap();
    let second = builder(&server.url()).connect().await.unwrap();
    (server, first, second)
}

#[tokio::test]
async fn many_read_beside_each_other() {
    in_both_profiles(async |_, first, second| {
        let guards = [reads(first).await, reads(second).await, reads(first).await];
        assert_eq!(others_could(second).await, (true, false));
        for guard in guards {
            guard.verify().await.unwrap();
            guard.unlock().await.unwrap();
        }
        assert_eq!(others_could(second).await, (true, true));
    })
    .await;
}

#[tokio::test]
async fn a_write_excludes_everybody_else() {
    in_both_profiles(async |server, first, second| {
        let guard = writes(first).await;
        assert_eq!(others_could(first).await, (false, false));
        assert_eq!(others_could(second).await, (false, false));
        let waiting = [waits_to_read(second), waits_to_read(first), waits_to_read(second)];
        are_subscribed(server, 2).await;
        guard.unlock().await.unwrap();
        for waiter in waiting {
            granted(waiter).await.unlock().await.unwrap();
        }
        let writers = [first, second, first].map(|client| {
            let lock = lock(client);
            tokio::spawn(async move { lock.write().await.unwrap().unlock().await.unwrap() })
        });
        for writer in writers {
            granted(writer).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_waits_goes_before_reads_that_come_later() {
    let (server, first, second) = native().await;
    let read = reads(&first).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let writer = {
        let (lock, order) = (lock(&second), Arc::clone(&order));
        tokio::spawn(async move {
            let guard = lock.write().await.unwrap();
            order.lock().unwrap().push("write");
            guard.unlock().await.unwrap();
        })
    };
    so_many_stand_in_line(&server, 1).await;
    assert_eq!(others_could(&first).await, (false, false));
    let readers: Vec<_> = [&first, &second]
        .into_iter()
        .map(|client| {
            let (lock, order) = (lock(client), Arc::clone(&order));
            tokio::spawn(async move {
                let guard = lock.read().await.unwrap();
                order.lock().unwrap().push("read");
                guard.unlock().await.unwrap();
            })
        })
        .collect();
    so_many_stand_in_line(&server, 3).await;
    read.unlock().await.unwrap();
    granted(writer).await;
    for reader in readers {
        granted(reader).await;
    }
    assert_eq!(*order.lock().unwrap(), ["write", "read", "read"]);
    leaves_nothing(&server, &first).await;
    leaves_nothing(&server, &second).await;
}

#[tokio::test]
async fn a_downgrade_lets_readers_in_and_no_writer() {
    in_both_profiles(async |server, first, second| {
        let write = writes(first).await;
        let token = write.fencing_token();
        let reader = waits_to_read(second);
        are_subscribed(server, 1).await;
        let read = write.downgrade().await.unwrap();
        let beside = granted(reader).await;
        assert!(read.is_held());
        read.verify().await.unwrap();
        assert_eq!(read.fencing_token(), token);
        assert_eq!(others_could(first).await, (true, false));
        assert_eq!(others_could(second).await, (true, false));
        read.unlock().await.unwrap();
        assert_eq!(others_could(first).await, (true, false));
        beside.unlock().await.unwrap();
        assert_eq!(others_could(first).await, (true, true));
    })
    .await;
}

#[tokio::test]
async fn the_only_reader_may_upgrade() {
    in_both_profiles(async |_, first, second| {
        let read = reads(first).await;
        let beside = reads(second).await;
        assert!(read.try_upgrade().await.unwrap().is_err(), "another reads");
        beside.unlock().await.unwrap();
        let write = read.try_upgrade().await.unwrap().expect("it is the only reader");
        assert!(write.fencing_token() > read.fencing_token());
        assert_eq!(others_could(second).await, (false, false));
        let again = read.try_upgrade().await.unwrap().expect("it writes already");
        assert_eq!(again.hold_id(), write.hold_id());
        again.unlock().await.unwrap();
        write.verify().await.unwrap();
        read.verify().await.unwrap();
        write.unlock().await.unwrap();
        assert_eq!(others_could(second).await, (true, false));
        read.verify().await.unwrap();
        read.unlock().await.unwrap();
        assert_eq!(others_could(second).await, (true, true));
    })
    .await;
}

/// It would wait for itself for ever.
#[tokio::test]
async fn an_owner_that_only_reads_cannot_ask_to_write() {
    in_both_profiles(async |server, first, _| {
        let lock = lock(first);
        let read = lock.read().await.unwrap();
        let before = look::script_runs(&mut server.connection());
        let error = lock.write().await.unwrap_err();
        assert!(matches!(error, Error::WouldDeadlock { .. }), "{error:?}");
        let error = lock.try_write().await.unwrap_err();
        assert!(matches!(error, Error::WouldDeadlock { .. }), "{error:?}");
        assert_eq!(look::script_runs(&mut server.connection()), before);
        let again = lock.read().await.unwrap();
        assert_eq!(again.hold_count(), 2);
        read.unlock().await.unwrap();
        again.unlock().await.unwrap();
        let write = lock.write().await.unwrap();
        let (again, read) = (lock.write().await.unwrap(), lock.read().await.unwrap());
        assert_eq!(write.hold_count(), 3);
        write.unlock().await.unwrap();
        again.unlock().await.unwrap();
        read.verify().await.unwrap();
        assert_eq!(others_could(first).await, (true, false));
        read.unlock().await.unwrap();
    })
    .await;
}

/// Clients of Redisson shorten the leases of readers to their watchdog time.
#[tokio::test]
async fn with_redisson_a_read_has_no_longer_lease_than_its_watchdog_time() {
    let server = RedisServer::start();
    let longer = Duration::from_secs(31);
    let fixed = LockOptions::new().lease(longer);
    let native = builder(&server.url()).connect().await.unwrap();
    lock(&native).read_with(fixed).await.unwrap().expect("free").unlock().await.unwrap();
    let client = builder(&server.url()).profile(WireProfile::Redisson).connect().await.unwrap();
    for options in [fixed, LockOptions::new().at_least(longer)] {
        let refused = lock(&client).read_with(options).await.unwrap_err();
        assert!(matches!(refused, Error::InvalidOption { .. }), "{refused:?}");
        assert!(refused.to_string().contains("redisson_watchdog, 30s"), "{refused}");
    }
    lock(&client).write_with(fixed).await.unwrap().expect("free").unlock().await.unwrap();
    let client =
        builder(&server.url()).profile(WireProfile::Redisson).redisson_watchdog(2 * longer);
    let lock = lock(&client.lease(longer).connect().await.unwrap());
    lock.read().await.unwrap().unlock().await.unwrap();
    let refused = builder(&server.url()).redisson_watchdog(Duration::ZERO).connect().await;
    assert!(matches!(refused, Err(Error::InvalidOption { option: "redisson_watchdog", .. })));
}
