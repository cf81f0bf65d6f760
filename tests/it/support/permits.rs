//! What is tested of a semaphore in both profiles.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::RequiredAcl;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::Semaphore;
use redis_reentrant_lock::SemaphorePermit;
use redis_reentrant_lock::WireProfile;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::client::builder;
use super::look;
use super::proxy::Fault;
use super::proxy::FaultProxy;
use super::redis_server::RedisServer;

pub(crate) const NAME: &str = "exports:7";
pub(crate) const PERMITS: &str = "{exports:7}:timeout";
/// Within this time everything ends that ends at all.
pub(crate) const BOUND: Duration = Duration::from_secs(30);
/// Longer than any pause of a busy machine, so that no command has an unknown outcome.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(15);

/// So many permits of a semaphore that has this number.
pub(crate) async fn held(client: &LockClient, number: u32, permits: u32) -> SemaphorePermit {
    let semaphore = client.semaphore(NAME, number).unwrap();
    timeout(BOUND, semaphore.acquire_many(permits)).await.expect("granted").unwrap()
}

/// A task that waits for so many permits.
pub(crate) fn waits(
    client: &LockClient,
    number: u32,
    permits: u32,
) -> JoinHandle<Result<SemaphorePermit>> {
    let semaphore = client.semaphore(NAME, number).unwrap();
    tokio::spawn(async move { semaphore.acquire_many(permits).await })
}

pub(crate) async fn ends(waiter: JoinHandle<Result<SemaphorePermit>>) -> Result<SemaphorePermit> {
    timeout(BOUND, waiter).await.expect("it ends").unwrap()
}

/// Eight tasks for each of three clients want one permit of four, or more, again and again.
pub(crate) async fn never_more_than_the_number(clients: &[LockClient; 3], most_wanted: usize) {
    let (at_once, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let tasks: Vec<_> = (0..24)
        .map(|task| {
            let semaphore = clients[task % 3].semaphore(NAME, 4).unwrap();
            let (at_once, most) = (Arc::clone(&at_once), Arc::clone(&most));
            let wanted = 1 + (task / 3 % most_wanted) as u32;
            tokio::spawn(async move {
                for _ in 0..10 {
                    let permits = semaphore.acquire_many(wanted).await.unwrap();
                    let now = at_once.fetch_add(wanted, Ordering::SeqCst) + wanted;
                    most.fetch_max(now, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    assert!(permits.is_held());
                    at_once.fetch_sub(wanted, Ordering::SeqCst);
                    permits.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        timeout(2 * BOUND, task).await.expect("no task waits for ever").unwrap();
    }
    assert!((2..=4).contains(&most.load(Ordering::SeqCst)), "{most:?}");
}

/// What cannot be is refused before anything is sent.
pub(crate) async fn refuses_what_cannot_be(server: &RedisServer, client: &LockClient) {
    let before = look::script_runs(&mut server.connection());
    let semaphore = client.semaphore(NAME, 10).unwrap();
    let errors = [
        client.semaphore(NAME, 0).unwrap_err(),
        client.semaphore(NAME, 1_000_001).unwrap_err(),
        semaphore.acquire_many(0).await.unwrap_err(),
        semaphore.acquire_many(1_001).await.unwrap_err(),
        semaphore.try_acquire_many(0).await.unwrap_err(),
        semaphore.set_permits(0).await.unwrap_err(),
        semaphore.set_permits(1_000_001).await.unwrap_err(),
        semaphore.add_permits(0).await.unwrap_err(),
        semaphore.force_release_from("somebody").await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}");
    }
    assert_eq!(look::script_runs(&mut server.connection()), before);
    assert!(client.semaphore(NAME, 1_000_000).is_ok());
    for name in ["", "a\nb", "a{b", "redisson_lock_fence:x"] {
        let error = client.semaphore(name, 1).unwrap_err();
        assert!(matches!(error, Error::InvalidName { .. }), "{name}: {error:?}");
    }
}

/// A semaphore of three through a proxy that cuts and mutes its commands: those that were executed
/// without an answer are sent again, and count once. `all_are_free` waits until that many are: 3
/// before a number was set, and 19 after it.
pub(crate) async fn lost_answers_count_once(
    profile: WireProfile,
    all_are_free: impl AsyncFn(&RedisServer, &LockClient, u32),
) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let client = builder(&proxy.url())
        .profile(profile)
        .command_timeout(Duration::from_millis(300))
        .lease(Duration::from_secs(30))
        .connect()
        .await
        .unwrap();
    let semaphore = client.semaphore(NAME, 3).unwrap();
    let faults = [Fault::CutBeforeReply, Fault::Mute, Fault::CutBeforeRequest, Fault::Duplicate];
    let field = format!("{}:", client.id());
    for fault in faults.iter().cycle().take(12) {
        proxy.once(&field, fault.clone());
        let permits = timeout(BOUND, semaphore.acquire_many(2)).await.expect("granted").unwrap();
        proxy.once(&field, fault.clone());
        timeout(BOUND, permits.release()).await.expect("released").unwrap();
    }
    proxy.clear();
    all_are_free(&server, &client, 3).await;
    for (round, fault) in faults.iter().cycle().take(8).enumerate() {
        proxy.once("redisson_latch_op", fault.clone());
        let number = 3 + 2 * (round as u32 + 1);
        let added = timeout(BOUND, semaphore.add_permits(2)).await.expect("it ends").unwrap();
        assert_eq!(added, number, "{fault:?}");
    }
    assert_eq!(semaphore.available().await.unwrap(), 19);
    all_are_free(&server, &client, 19).await;
    for fault in &faults {
        proxy.once("redisson_latch_op", fault.clone());
        timeout(BOUND, semaphore.set_permits(7)).await.expect("it ends").unwrap();
        assert_eq!(semaphore.permits().await.unwrap(), 7, "{fault:?}");
    }
}

/// With what others have planted nothing is granted, the error has the right words, and the plant
/// stays as it is. `also` makes further calls beside a plant, with the words for it.
pub(crate) async fn leaves_plants_alone(
    redis: &mut Connection,
    semaphore: &Semaphore,
    plants: &[(&[&str], &str)],
    also: impl AsyncFn(&Semaphore, &str),
) {
    for (plant, words) in plants {
        redis::cmd("FLUSHALL").exec(redis).unwrap();
        redis::cmd(plant[0]).arg(&plant[1..]).exec(redis).unwrap();
        let before = look::dump(redis);
        let error = timeout(BOUND, semaphore.acquire()).await.expect("it ends").unwrap_err();
        assert!(matches!(error, Error::KeyConflict { .. }), "{plant:?}: {error:?}");
        assert!(error.to_string().contains(words), "{plant:?}: {error}");
        also(semaphore, words).await;
        let after = look::dump(redis);
        for (key, value) in &before {
            assert_eq!(after.get(key), Some(value), "{plant:?}: {key}");
        }
    }
}

/// The user of `required_acl` may do all that `live` does, and each of its permissions is needed.
pub(crate) async fn permissions_are_exact(
    profile: WireProfile,
    live: impl AsyncFn(&RedisServer, &LockClient) -> Result<()>,
) {
    let server = RedisServer::start();
    let acl = RequiredAcl::new(["exports:*"]).unwrap().profile(profile);
    let (locks, semaphores) = (acl.clone().rules(), acl.semaphores(true).rules());
    let added: Vec<_> = semaphores.iter().filter(|rule| !locks.contains(rule)).collect();
    assert!(added.len() >= 8, "{added:?}");
    // Those of names with braces; and what takes back a number that was remembered and then refused.
    let needed = |rule: &&String| {
        let is_of_braces = rule.contains(":exports:*") || rule.contains("~exports:*{*");
        !is_of_braces && *rule != "+del"
    };
    let removed = added.into_iter().filter(needed);
    for without in std::iter::once(None).chain(removed.map(Some)) {
        let rules: Vec<_> = semaphores.iter().filter(|rule| Some(*rule) != without).collect();
        let mut redis = server.connection();
        redis::cmd("FLUSHALL").exec(&mut redis).unwrap();
        let mut user = redis::cmd("ACL");
        user.arg("SETUSER").arg("u").arg("reset").arg("on").arg(">pw").arg(&rules);
        user.exec(&mut redis).unwrap();
        let url = format!("redis://u:pw@{}", server.address());
        let client = builder(&url).profile(profile).connect().await.unwrap();
        let life = timeout(BOUND, live(&server, &client)).await.expect("it ends");
        match without {
            None => life.unwrap(),
            Some(rule) => {
                let denied = life.unwrap_err();
                let is_told = matches!(denied, Error::Denied { .. } | Error::NotAnnounced { .. });
                assert!(is_told, "without {rule}: {denied:?}");
            }
        }
    }
}
