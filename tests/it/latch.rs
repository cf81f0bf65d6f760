//! The count-down latch, on a real server.

use std::time::Duration;

use redis_reentrant_lock::CountDownLatch;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::RequiredAcl;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::WireProfile;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::client::connect;
use crate::support::look;
use crate::support::proxy::Fault;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::settle::settles;

const NAME: &str = "ready:7";
const CHANNEL: &str = "redisson_countdownlatch__channel__{ready:7}";
/// Within this time everything ends that ends at all.
const BOUND: Duration = Duration::from_secs(30);

fn latch(client: &LockClient) -> CountDownLatch {
    client.count_down_latch(NAME).unwrap()
}

/// A task that waits for the latch.
fn waits(client: &LockClient) -> JoinHandle<Result<()>> {
    let latch = latch(client);
    tokio::spawn(async move { latch.wait().await })
}

async fn goes_on(waiter: JoinHandle<Result<()>>) {
    timeout(BOUND, waiter).await.expect("it goes on").unwrap().unwrap();
}

/// So many clients are subscribed to the channel of the latch.
async fn are_subscribed(server: &RedisServer, clients: u64) {
    let mut redis = server.connection();
    settles("they wait", move || look::subscribers(&mut redis, CHANNEL) == clients).await;
}

async fn in_both_profiles(test: impl AsyncFn(RedisServer, LockClient, LockClient)) {
    for profile in [WireProfile::Native, WireProfile::Redisson] {
        let server = RedisServer::start();
        let client = async || builder(&server.url()).profile(profile).connect().await.unwrap();
        let (first, second) = (client().await, client().await);
        test(server, first, second).await;
    }
}

#[tokio::test]
async fn whoever_waits_goes_on_when_all_have_counted_down() {
    in_both_profiles(async |server, first, second| {
        let counted = latch(&first);
        assert!(counted.try_set_count(3).await.unwrap());
        assert!(!latch(&second).try_set_count(5).await.unwrap(), "there is a count");
        let waiters: Vec<_> =
            [&first, &second].iter().cycle().take(20).map(|client| waits(client)).collect();
        are_subscribed(&server, 2).await;
        assert_eq!(counted.count_down().await.unwrap(), 2);
        assert_eq!(latch(&second).count_down().await.unwrap(), 1);
        assert_eq!(counted.count().await.unwrap(), 1);
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        assert_eq!(latch(&second).count_down().await.unwrap(), 0);
        for waiter in waiters {
            goes_on(waiter).await;
        }
        assert_eq!(counted.count().await.unwrap(), 0);
        assert_eq!(counted.count_down().await.unwrap(), 0, "there is no latch any more");
        goes_on(waits(&first)).await;
        let mut redis = server.connection();
        let left = look::keys(&mut redis);
        assert!(left.iter().all(|key| key.starts_with("redisson_latch_op:{ready:7}:")), "{left:?}");
        assert!(look::immortal_keys(&mut redis).is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_latch_that_is_removed_lets_everybody_go_on() {
    in_both_profiles(async |server, first, second| {
        latch(&first).try_set_count(3).await.unwrap();
        let waiter = waits(&second);
        are_subscribed(&server, 1).await;
        assert!(latch(&first).delete().await.unwrap());
        goes_on(waiter).await;
        assert!(!latch(&first).delete().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_latch_may_end_by_itself() {
    in_both_profiles(async |_server, first, second| {
        let life = Duration::from_millis(200);
        assert!(latch(&first).try_set_count_for(3, life).await.unwrap());
        // Nobody tells it, so it is found by the longest sleep at the latest.
        goes_on(waits(&second)).await;
    })
    .await;
}

#[tokio::test]
async fn the_key_is_that_of_the_profile() {
    for (profile, kind) in [(WireProfile::Native, "hash"), (WireProfile::Redisson, "string")] {
        let server = RedisServer::start();
        let client = builder(&server.url()).profile(profile).connect().await.unwrap();
        latch(&client).try_set_count(3).await.unwrap();
        let mut redis = server.connection();
        assert_eq!(look::kind(&mut redis, NAME), kind);
        if profile == WireProfile::Redisson {
            let count: u64 = redis::cmd("GET").arg(NAME).query(&mut redis).unwrap();
            assert_eq!(count, 3);
        }
    }
}

/// Java counts down, deletes and publishes by itself.
#[tokio::test]
async fn a_count_down_of_redisson_lets_ours_go_on() {
    let server = RedisServer::start();
    let client = builder(&server.url()).profile(WireProfile::Redisson).connect().await.unwrap();
    let mut redis = server.connection();
    let _: () = redis::cmd("SET").arg(NAME).arg(1).query(&mut redis).unwrap();
    let waiter = waits(&client);
    are_subscribed(&server, 1).await;
    let _: () = redis::cmd("DEL").arg(NAME).query(&mut redis).unwrap();
    let _: () = redis::cmd("PUBLISH").arg(CHANNEL).arg("0").query(&mut redis).unwrap();
    goes_on(waiter).await;
}

#[tokio::test]
async fn keys_of_others_are_left_alone_and_named() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let mut redis = server.connection();
    let plants: [(&[&str], &str); 4] = [
        (&["SET", NAME, "3"], "another type"),
        (&["HSET", NAME, "a", "1"], "a hash that is no count-down latch"),
        (&["HSET", NAME, "mode", "read"], "a read-write lock"),
        (&["HSET", NAME, "kind", "semaphore"], "a semaphore"),
    ];
    for (plant, words) in plants {
        let _: () = redis::cmd("DEL").arg(NAME).query(&mut redis).unwrap();
        let _: () = redis::cmd(plant[0]).arg(&plant[1..]).query(&mut redis).unwrap();
        let before: Vec<u8> = redis::cmd("DUMP").arg(NAME).query(&mut redis).unwrap();
        let latch = latch(&client);
        let errors = [
            latch.count_down().await.unwrap_err(),
            latch.try_set_count(1).await.unwrap_err(),
            latch.delete().await.unwrap_err(),
            latch.count().await.unwrap_err(),
            latch.wait().await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
            assert!(error.to_string().contains(words), "{error}");
        }
        let after: Vec<u8> = redis::cmd("DUMP").arg(NAME).query(&mut redis).unwrap();
        assert_eq!(before, after);
    }
}

#[tokio::test]
async fn a_latch_and_a_lock_of_one_name_do_not_mix() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let guard = client.mutex(NAME).unwrap().lock().await.unwrap();
    let error = latch(&client).try_set_count(1).await.unwrap_err();
    assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
    guard.unlock().await.unwrap();
    // The conflict is kept for that call only.
    assert!(latch(&client).try_set_count(1).await.unwrap());
    let error = client.mutex(NAME).unwrap().try_lock().await.unwrap_err();
    assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anything_is_sent() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let before = look::script_runs(&mut server.connection());
    let zero = latch(&client).try_set_count(0).await.unwrap_err();
    assert!(matches!(zero, Error::InvalidOption { .. }), "{zero:?}");
    let life = latch(&client).try_set_count_for(1, Duration::ZERO).await.unwrap_err();
    assert!(matches!(life, Error::InvalidOption { .. }), "{life:?}");
    assert_eq!(look::script_runs(&mut server.connection()), before);
}

/// A command that was executed and whose answer is lost is sent again, and counts once. So does one
/// that the server got twice, or not at all.
#[tokio::test]
async fn a_call_counts_once_whatever_becomes_of_its_commands_and_their_answers() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let client =
        builder(&proxy.url()).command_timeout(Duration::from_millis(300)).connect().await.unwrap();
    let latch = latch(&client);
    assert!(latch.try_set_count(20).await.unwrap());
    let faults = [Fault::CutBeforeReply, Fault::Mute, Fault::CutBeforeRequest, Fault::Duplicate];
    for (left, fault) in (8..20).rev().zip(faults.iter().cycle()) {
        proxy.once("redisson_latch_op", fault.clone());
        let counted = timeout(BOUND, latch.count_down()).await.expect("it ends").unwrap();
        assert_eq!(counted, left, "{fault:?}");
        assert_eq!(proxy.clear(), 0, "nothing went wrong");
    }
    for _ in 0..3 {
        proxy.once("redisson_latch_op", Fault::CutBeforeReply);
        assert!(!latch.try_set_count(1).await.unwrap(), "there is a count");
    }
    proxy.once("redisson_latch_op", Fault::CutBeforeReply);
    assert!(latch.delete().await.unwrap(), "there was one");
}

/// The user of `required_acl` may do all of this, and each of its permissions is needed.
#[tokio::test]
async fn the_permissions_of_a_latch_are_exact() {
    for profile in [WireProfile::Native, WireProfile::Redisson] {
        let server = RedisServer::start();
        let acl = RequiredAcl::new(["ready:*"]).unwrap().profile(profile);
        let (locks, latches) = (acl.clone().rules(), acl.latches(true).rules());
        let of_latches: Vec<_> = latches.iter().filter(|rule| !locks.contains(rule)).collect();
        assert!(of_latches.len() >= 4, "{of_latches:?}");
        // That of names with braces.
        let of_braces = |rule: &str| rule.starts_with("~redisson_latch_op:ready");
        let of_latches = of_latches.into_iter().filter(|rule| !of_braces(rule));
        for without in std::iter::once(None).chain(of_latches.map(Some)) {
            let rules: Vec<_> = latches.iter().filter(|rule| Some(*rule) != without).collect();
            let mut redis = server.connection();
            let _: () = redis::cmd("DEL").arg(NAME).query(&mut redis).unwrap();
            let mut user = redis::cmd("ACL");
            user.arg("SETUSER").arg("u").arg("reset").arg("on").arg(">pw").arg(&rules);
            user.exec(&mut redis).unwrap();
            let url = format!("redis://u:pw@{}", server.address());
            let client = builder(&url).profile(profile).connect().await.unwrap();
            let life = timeout(BOUND, live(&client)).await.expect("it ends");
            match without {
                None => life.unwrap(),
                Some(rule) => {
                    let denied = life.unwrap_err();
                    assert!(matches!(denied, Error::Denied { .. }), "without {rule}: {denied:?}");
                }
            }
        }
    }
}

/// Everything that a latch does.
async fn live(client: &LockClient) -> Result<()> {
    let latch = latch(client);
    latch.try_set_count_for(3, Duration::from_secs(60)).await?;
    latch.count().await?;
    latch.count_down().await?;
    let waiter = waits(client);
    latch.count_down().await?;
    latch.count_down().await?;
    timeout(BOUND, waiter).await.expect("it goes on").unwrap()?;
    latch.try_set_count(1).await?;
    latch.delete().await.map(drop)
}
