//! The fair lock in the profile `Redisson`, on a real server: what is there for Redisson to see, and
//! waiters of Redisson that are played by raw commands. What is the same in both profiles is in
//! `fair_lock.rs`, real Redisson clients are in `cargo xtask interop`.

use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::RequiredAcl;
use redis_reentrant_lock::WireProfile;
use tokio::time::timeout;

use crate::fair_lock::BOUND;
use crate::fair_lock::NAME;
use crate::fair_lock::QUEUE;
use crate::fair_lock::client_of;
use crate::fair_lock::granted;
use crate::fair_lock::held;
use crate::fair_lock::lock_of;
use crate::fair_lock::now_ms;
use crate::fair_lock::places;
use crate::fair_lock::scripts;
use crate::fair_lock::so_many_stand_in_line;
use crate::fair_lock::waits;
use crate::support::client::builder;
use crate::support::look;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

const DEADLINES: &str = "redisson_lock_timeout:{orders:42}";
const CHANNEL: &str = "redisson_lock__channel:{orders:42}";
/// Threads of a Redisson client.
const JAVA: &str = "0d9a8a5c-6f3b-4f0e-9a52-3f1c2b7d8e90:73";
const OTHER_JAVA: &str = "0d9a8a5c-6f3b-4f0e-9a52-3f1c2b7d8e90:74";

async fn client(server: &RedisServer) -> LockClient {
    client_of(server, WireProfile::Redisson).await
}

/// A waiter of Redisson takes its place, which counts for so many ms.
fn java_waits(redis: &mut Connection, field: &str, ms: u64) {
    let deadline = now_ms(redis) + ms;
    redis::cmd("ZADD").arg(DEADLINES).arg(deadline).arg(field).exec(redis).unwrap();
    redis::cmd("RPUSH").arg(QUEUE).arg(field).exec(redis).unwrap();
}

fn deadline_of(redis: &mut Connection, place: &str) -> Option<f64> {
    redis::cmd("ZSCORE").arg(DEADLINES).arg(place).query(redis).unwrap()
}

fn is_subscribed(redis: &mut Connection, place: &str) -> bool {
    look::subscribers(redis, &format!("{CHANNEL}:{place}")) == 1
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_messages_are_those_of_redisson() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, ours] = [client(&server).await, client(&server).await];
    let guard = held(&holder).await;
    assert_eq!(look::hash(&mut redis, NAME)[&guard.hold_id()], "1");
    let waiter = waits(&ours);
    so_many_stand_in_line(&server, 1).await;
    let place = places(&mut redis).remove(0);
    assert!(place.ends_with(":place"), "{place}");
    let (now, deadline) = (now_ms(&mut redis) as f64, deadline_of(&mut redis, &place).unwrap());
    assert!((now..=now + 15_000.0).contains(&deadline), "{deadline} at {now}");
    let mut looks = server.connection();
    let name = place.clone();
    settles("it is subscribed", move || is_subscribed(&mut looks, &name)).await;
    let mut subscriber = server.connection();
    let mut heard = subscriber.as_pubsub();
    heard.subscribe(format!("{CHANNEL}:{place}")).unwrap();
    heard.set_read_timeout(Some(BOUND)).unwrap();
    guard.unlock().await.unwrap();
    assert_eq!(heard.get_message().unwrap().get_payload::<String>().unwrap(), "0");
    drop(heard);
    let guard = granted(waiter).await;
    assert!(places(&mut redis).is_empty());
    assert_eq!(deadline_of(&mut redis, &place), None);
    guard.unlock().await.unwrap();
    leaves_nothing(&server, &ours).await;
}

/// It takes the lock by its own commands when it is told, and tells ours.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_redisson_are_told_and_tell() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, ours] = [client(&server).await, client(&server).await];
    let guard = held(&holder).await;
    java_waits(&mut redis, JAVA, 300_000);
    let waiter = waits(&ours);
    so_many_stand_in_line(&server, 2).await;
    let place = places(&mut redis).remove(1);
    let before = deadline_of(&mut redis, &place).unwrap();
    assert!(before > now_ms(&mut redis) as f64 + 300_000.0, "what Java takes off is added");
    java_waits(&mut redis, OTHER_JAVA, 600_000);
    let behind = deadline_of(&mut redis, OTHER_JAVA).unwrap();
    let mut subscriber = server.connection();
    let mut heard = subscriber.as_pubsub();
    heard.subscribe(format!("{CHANNEL}:{JAVA}")).unwrap();
    heard.set_read_timeout(Some(BOUND)).unwrap();
    guard.unlock().await.unwrap();
    assert_eq!(heard.get_message().unwrap().get_payload::<String>().unwrap(), "0");
    let once = Owner::new().scope(lock_of(&holder).try_lock()).await.unwrap();
    assert!(once.is_err(), "it is the turn of another");
    // Redisson's own steps.
    redis::pipe()
        .atomic()
        .cmd("LPOP")
        .arg(QUEUE)
        .cmd("ZREM")
        .arg(DEADLINES)
        .arg(JAVA)
        .cmd("ZINCRBY")
        .arg(DEADLINES)
        .arg(-300_000)
        .arg(&place)
        .cmd("ZINCRBY")
        .arg(DEADLINES)
        .arg(-300_000)
        .arg(OTHER_JAVA)
        .cmd("HSET")
        .arg(NAME)
        .arg(JAVA)
        .arg(1)
        .cmd("PEXPIRE")
        .arg(NAME)
        .arg(30_000)
        .exec(&mut redis)
        .unwrap();
    assert!(!waiter.is_finished());
    redis::cmd("DEL").arg(NAME).exec(&mut redis).unwrap();
    redis::cmd("PUBLISH").arg(format!("{CHANNEL}:{place}")).arg("0").exec(&mut redis).unwrap();
    let guard = granted(waiter).await;
    assert_eq!(places(&mut redis), [OTHER_JAVA]);
    let left = deadline_of(&mut redis, OTHER_JAVA).unwrap();
    assert_eq!(left, behind - 300_000.0 - 15_000.0, "what was before it is taken off");
    guard.unlock().await.unwrap();
}

/// It counts until its deadline, and not longer; and nobody asks all the time until then.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_waiter_of_redisson_is_waited_for_until_its_deadline() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let ours = client(&server).await;
    java_waits(&mut redis, JAVA, 3_000);
    let end = deadline_of(&mut redis, JAVA).unwrap();
    java_waits(&mut redis, OTHER_JAVA, 100);
    let waiter = waits(&ours);
    so_many_stand_in_line(&server, 3).await;
    let before = scripts(&mut redis);
    let guard = granted(waiter).await;
    assert!(now_ms(&mut redis) as f64 >= end, "not before its deadline");
    let asked = scripts(&mut redis) - before;
    assert!(asked < 10, "{asked} scripts in three seconds");
    guard.unlock().await.unwrap();
    leaves_nothing(&server, &ours).await;
}

/// A place without a deadline, which Redisson's scripts would wait for for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_without_a_deadline_stands_in_nobodys_way() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let ours = client(&server).await;
    redis::cmd("RPUSH").arg(QUEUE).arg(JAVA).exec(&mut redis).unwrap();
    held(&ours).await.unlock().await.unwrap();
    leaves_nothing(&server, &ours).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_is_cancelled_or_too_late_leaves_no_place() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, ours, theirs] =
        [client(&server).await, client(&server).await, client(&server).await];
    let guard = held(&holder).await;
    let cancelled = waits(&ours);
    so_many_stand_in_line(&server, 1).await;
    java_waits(&mut redis, JAVA, 315_000);
    let before = deadline_of(&mut redis, JAVA).unwrap();
    let lock = lock_of(&theirs);
    let too_late = tokio::spawn(async move {
        Owner::new().scope(lock.try_lock_for(Duration::from_millis(500))).await.unwrap()
    });
    so_many_stand_in_line(&server, 3).await;
    assert!(timeout(BOUND, too_late).await.expect("it ends").unwrap().is_err());
    so_many_stand_in_line(&server, 2).await;
    cancelled.abort();
    so_many_stand_in_line(&server, 1).await;
    assert_eq!(places(&mut redis), [JAVA]);
    assert_eq!(deadline_of(&mut redis, JAVA), Some(before - 15_000.0));
    redis::cmd("DEL").arg(&[QUEUE, DEADLINES]).exec(&mut redis).unwrap();
    guard.unlock().await.unwrap();
    leaves_nothing(&server, &ours).await;
}

/// All of them count for 15 s together, and not one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_many_waiters_that_dies_costs_the_others_15_s_at_most() {
    const CROWD: usize = 20;
    let server = RedisServer::start();
    let [holder, ours] = [client(&server).await, client(&server).await];
    let mut crowd = Puppet::start(&server.url(), &["profile=redisson"]);
    let guard = held(&holder).await;
    for number in 0..CROWD {
        crowd.send(&format!("w{number} lock {NAME} kind=fair owner=o{number}"));
        so_many_stand_in_line(&server, number + 1).await;
    }
    let waiter = waits(&ours);
    so_many_stand_in_line(&server, CROWD + 1).await;
    crowd.signal("-KILL");
    let before = now_ms(&mut server.connection());
    guard.unlock().await.unwrap();
    let guard = granted(waiter).await;
    let took = now_ms(&mut server.connection()) - before;
    // A minute is far less than 20 times 15 s, and more than a busy machine makes of 15 s.
    assert!(took < 60_000, "{took} ms");
    guard.unlock().await.unwrap();
    leaves_nothing(&server, &ours).await;
}

/// Its place counts on for as long as it asks, whatever Redisson has taken off its deadline.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_alive_sets_its_deadline_anew() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let [holder, ours] = [client(&server).await, client(&server).await];
    let guard = held(&holder).await;
    let waiter = waits(&ours);
    so_many_stand_in_line(&server, 1).await;
    let place = places(&mut redis).remove(0);
    redis::cmd("ZINCRBY").arg(DEADLINES).arg(-300_000).arg(&place).exec(&mut redis).unwrap();
    let mut looks = server.connection();
    let name = place.clone();
    settles("it is in the future again", move || {
        let now = now_ms(&mut looks) as f64;
        deadline_of(&mut looks, &name).is_some_and(|deadline| deadline > now)
    })
    .await;
    assert_eq!(places(&mut redis), [place]);
    guard.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
    leaves_nothing(&server, &ours).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_value_in_the_place_of_its_queue_is_a_conflict() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let ours = client(&server).await;
    for (key, other) in [(QUEUE, DEADLINES), (DEADLINES, QUEUE)] {
        redis::cmd("SET").arg(key).arg("text").exec(&mut redis).unwrap();
        let refused = lock_of(&ours).lock().await.unwrap_err();
        assert!(matches!(refused, Error::KeyConflict { .. }), "{refused}");
        let words = refused.to_string();
        assert!(words.contains(key) && words.contains(other), "{words}");
        redis::cmd("DEL").arg(key).exec(&mut redis).unwrap();
    }
    held(&ours).await.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_its_acl_line_are_enough() {
    let server = RedisServer::start();
    let mut redis = server.connection();
    let acl = RequiredAcl::new(["orders:*"]).unwrap().profile(WireProfile::Redisson);
    let rules = acl.user("limited").unwrap().fair_locks(true).rules();
    let mut set = redis::cmd("ACL");
    set.arg(&["SETUSER", "limited", "reset", "on", ">secret"]).arg(rules);
    set.exec(&mut redis).unwrap();
    let url = server.url().replace("redis://", "redis://limited:secret@");
    let limited = async || builder(&url).profile(WireProfile::Redisson).connect().await.unwrap();
    let [ours, theirs] = [limited().await, limited().await];
    let report = ours.preflight_fair_lock(NAME).await.unwrap();
    assert!(report.is_usable(), "{report}");
    let guard = held(&ours).await;
    let waiter = waits(&theirs);
    so_many_stand_in_line(&server, 1).await;
    guard.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
    leaves_nothing(&server, &theirs).await;
}

/// In threads.
#[test]
fn it_is_there_for_threads_too() {
    let server = RedisServer::start();
    let connect = || builder(&server.url()).profile(WireProfile::Redisson).blocking_connect();
    let [ours, theirs] = [connect().unwrap(), connect().unwrap()];
    let guard = ours.fair_lock(NAME).unwrap().lock().unwrap();
    let lock = theirs.fair_lock(NAME).unwrap();
    assert!(lock.try_lock().unwrap().is_err());
    let waiter = std::thread::spawn(move || lock.lock().unwrap().unlock());
    let mut redis = server.connection();
    crate::support::redis_server::eventually("it waits", || places(&mut redis).len() == 1);
    guard.unlock().unwrap();
    waiter.join().unwrap().unwrap();
}
