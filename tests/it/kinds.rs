//! Names of other kinds: for every pair of kinds and both profiles, who meets a key of another kind
//! is told which one it is, and nothing is touched.

use std::any::Any;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Lookup;
use redis_reentrant_lock::WireProfile;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::look;
use crate::support::redis_server::RedisServer;

const NAME: &str = "orders:42";
const BOUND: Duration = Duration::from_secs(30);

/// What each call was refused with.
type Refusals = Vec<(&'static str, Error)>;
type Doing<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A kind of lock, as a row of the table.
struct Row {
    /// What its key is called by those who meet it: natively, and in the profile `Redisson`.
    called: [&'static str; 2],
    /// Has the name be in use, as long as what it returns is kept.
    begin: fn(LockClient) -> Doing<Box<dyn Any + Send>>,
    /// Everything that can be asked for under the name, each of which must be refused.
    everything: fn(LockClient) -> Doing<Refusals>,
}

const ROWS: &[Row] = &[
    Row {
        called: ["a lock", "a lock"],
        begin: |client| {
            Box::pin(async move {
                let guard = client.mutex(NAME).unwrap().lock().await.unwrap();
                Box::new(guard) as Box<dyn Any + Send>
            })
        },
        everything: |client| Box::pin(all_of_a_lock(client)),
    },
    Row {
        // Redisson's latches and semaphores are strings, which nothing tells from each other.
        called: ["a count-down latch", "a latch or a semaphore of Redisson"],
        begin: |client| {
            Box::pin(async move {
                client.count_down_latch(NAME).unwrap().try_set_count(3).await.unwrap();
                Box::new(()) as Box<dyn Any + Send>
            })
        },
        everything: |client| Box::pin(all_of_a_latch(client)),
    },
    Row {
        called: ["a semaphore", "a latch or a semaphore of Redisson"],
        begin: |client| {
            Box::pin(async move {
                let permit = client.semaphore(NAME, 2).unwrap().acquire().await.unwrap();
                Box::new(permit) as Box<dyn Any + Send>
            })
        },
        everything: |client| Box::pin(all_of_a_semaphore(client)),
    },
    Row {
        called: ["a read-write lock", "a read-write lock"],
        begin: |client| {
            Box::pin(async move {
                let guard = client.rw_lock(NAME).unwrap().read().await.unwrap();
                Box::new(guard) as Box<dyn Any + Send>
            })
        },
        everything: |client| Box::pin(all_of_a_read_write_lock(client)),
    },
];

async fn all_of_a_lock(client: LockClient) -> Refusals {
    let (lock, mutex) = (client.reentrant_lock(NAME).unwrap(), client.mutex(NAME).unwrap());
    let flight = client.single_flight(NAME).unwrap();
    let wait = Duration::from_secs(1);
    let lookup = || async { Ok::<_, Error>(Lookup::<u8>::Missing) };
    let flown = flight.run(lookup, async |_| panic!("nobody computes")).await;
    let fair = client.fair_lock(NAME).unwrap();
    vec![
        ("fair lock", fair.lock().await.unwrap_err()),
        ("fair try_lock", fair.try_lock().await.unwrap_err()),
        ("fair holder", fair.holder().await.unwrap_err()),
        ("fair force_unlock", fair.force_unlock().await.unwrap_err()),
        ("lock", lock.lock().await.unwrap_err()),
        ("try_lock", lock.try_lock().await.unwrap_err()),
        ("try_lock_for", lock.try_lock_for(wait).await.unwrap_err()),
        ("lock_with", lock.lock_with(LockOptions::new().lease(wait)).await.unwrap_err()),
        ("is_locked", lock.is_locked().await.unwrap_err()),
        ("holder", lock.holder().await.unwrap_err()),
        ("remaining_lease", lock.remaining_lease().await.unwrap_err()),
        ("force_unlock", lock.force_unlock().await.unwrap_err()),
        ("mutex", mutex.lock().await.unwrap_err()),
        ("mutex try_lock", mutex.try_lock().await.unwrap_err()),
        ("single flight", flown.unwrap_err()),
    ]
}

async fn all_of_a_latch(client: LockClient) -> Refusals {
    let latch = client.count_down_latch(NAME).unwrap();
    let life = Duration::from_secs(60);
    vec![
        ("try_set_count", latch.try_set_count(1).await.unwrap_err()),
        ("try_set_count_for", latch.try_set_count_for(1, life).await.unwrap_err()),
        ("count_down", latch.count_down().await.unwrap_err()),
        ("count", latch.count().await.unwrap_err()),
        ("wait", latch.wait().await.unwrap_err()),
        ("delete", latch.delete().await.unwrap_err()),
    ]
}

async fn all_of_a_semaphore(client: LockClient) -> Refusals {
    let semaphore = client.semaphore(NAME, 2).unwrap();
    let wait = Duration::from_secs(1);
    vec![
        ("acquire", semaphore.acquire().await.unwrap_err()),
        ("acquire_many", semaphore.acquire_many(2).await.unwrap_err()),
        ("try_acquire", semaphore.try_acquire().await.unwrap_err()),
        ("try_acquire_for", semaphore.try_acquire_for(wait).await.unwrap_err()),
        (
            "acquire_with",
            semaphore.acquire_with(1, LockOptions::new().lease(wait)).await.unwrap_err(),
        ),
        ("available", semaphore.available().await.unwrap_err()),
        ("permits", semaphore.permits().await.unwrap_err()),
        ("set_permits", semaphore.set_permits(3).await.unwrap_err()),
        ("add_permits", semaphore.add_permits(3).await.unwrap_err()),
    ]
}

async fn all_of_a_read_write_lock(client: LockClient) -> Refusals {
    let lock = client.rw_lock(NAME).unwrap();
    let wait = Duration::from_secs(1);
    let options = || LockOptions::new().lease(wait);
    vec![
        ("read", lock.read().await.unwrap_err()),
        ("try_read", lock.try_read().await.unwrap_err()),
        ("try_read_for", lock.try_read_for(wait).await.unwrap_err()),
        ("read_with", lock.read_with(options()).await.unwrap_err()),
        ("write", lock.write().await.unwrap_err()),
        ("try_write", lock.try_write().await.unwrap_err()),
        ("try_write_for", lock.try_write_for(wait).await.unwrap_err()),
        ("write_with", lock.write_with(options()).await.unwrap_err()),
        ("is_locked", lock.is_locked().await.unwrap_err()),
        ("holder", lock.holder().await.unwrap_err()),
        ("remaining_lease", lock.remaining_lease().await.unwrap_err()),
        ("force_unlock", lock.force_unlock().await.unwrap_err()),
    ]
}

/// The same client or another one asks.
#[tokio::test]
async fn who_meets_a_key_of_another_kind_is_told_which_and_touches_nothing() {
    for (number, profile) in [WireProfile::Native, WireProfile::Redisson].into_iter().enumerate() {
        let server = RedisServer::start();
        let mut connection = server.connection();
        let client = async || builder(&server.url()).profile(profile).connect().await.unwrap();
        let (ours, theirs) = (client().await, client().await);
        for there in ROWS {
            let kept = (there.begin)(theirs.clone()).await;
            let found = there.called[number];
            for asks in ROWS.iter().filter(|row| row.called[number] != found) {
                for client in [&ours, &theirs] {
                    let before = untouched(&mut connection);
                    assert!(before.contains_key(NAME), "{found}");
                    let refused = timeout(BOUND, (asks.everything)(client.clone())).await;
                    for (call, error) in refused.expect("it ends") {
                        assert!(matches!(error, Error::KeyConflict { .. }), "{call}: {error:?}");
                        let words = error.to_string();
                        assert!(words.contains(found), "{call}, which met {found}: {words}");
                    }
                    assert_eq!(untouched(&mut connection), before, "{profile:?}, {found}");
                }
            }
            drop(kept);
            redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
        }
    }
}

/// Every key, but what operations have come to, which is kept for a while.
fn untouched(connection: &mut redis::Connection) -> BTreeMap<String, (Vec<u8>, bool)> {
    let mut all = look::dump(connection);
    all.retain(|key, _| !key.starts_with("redisson_latch_op:"));
    all
}

/// A latch of the other profile is told, too.
#[tokio::test]
async fn a_latch_of_the_other_profile_is_told() {
    let server = RedisServer::start();
    let client = async |profile| builder(&server.url()).profile(profile).connect().await.unwrap();
    let clients = [client(WireProfile::Native).await, client(WireProfile::Redisson).await];
    for (theirs, ours, words) in [
        (&clients[0], &clients[1], "a count-down latch of the profile `Native`"),
        (&clients[1], &clients[0], "a value of another type than a count-down latch"),
    ] {
        let theirs = theirs.count_down_latch(NAME).unwrap();
        theirs.try_set_count(3).await.unwrap();
        for (call, error) in all_of_a_latch(ours.clone()).await {
            assert!(matches!(error, Error::KeyConflict { .. }), "{call}: {error:?}");
            assert!(error.to_string().contains(words), "{call}: {error}");
        }
        assert_eq!(theirs.count().await.unwrap(), 3);
        theirs.delete().await.unwrap();
    }
}
