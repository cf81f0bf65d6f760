//! The semaphore in the profile `Redisson`, on a real server: what is there for Redisson to see, and
//! what there is instead of a line. What is the same in both profiles is in `semaphore.rs`.

use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::Semaphore;
use redis_reentrant_lock::WireProfile;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::look;
use crate::support::permits::BOUND;
use crate::support::permits::COMMAND_TIMEOUT;
use crate::support::permits::NAME;
use crate::support::permits::PERMITS;
use crate::support::permits::ends;
use crate::support::permits::held;
use crate::support::permits::leaves_plants_alone;
use crate::support::permits::lost_answers_count_once;
use crate::support::permits::never_more_than_the_number;
use crate::support::permits::permissions_are_exact;
use crate::support::permits::waits;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::settle::settles;
use crate::support::topology::Topology;

const CHANNEL: &str = "redisson_sc:{exports:7}";
/// What an end on the server has beside the lease.
const SLACK_MS: f64 = 5_000.0;

async fn client_at(url: &str) -> LockClient {
    let builder = builder(url).profile(WireProfile::Redisson).command_timeout(COMMAND_TIMEOUT);
    builder.connect().await.unwrap()
}

async fn client(server: &RedisServer) -> LockClient {
    client_at(&server.url()).await
}

/// Until so many clients listen, each of which tries once more after that.
async fn so_many_listen(server: &RedisServer, number: u64) {
    let mut redis = server.connection();
    settles("they listen", move || {
        let mut ask = redis::cmd("PUBSUB");
        let (_, found): (String, u64) = ask.arg("NUMSUB").arg(CHANNEL).query(&mut redis).unwrap();
        found == number
    })
    .await;
}

fn free(redis: &mut Connection) -> Option<i64> {
    redis::cmd("GET").arg(NAME).query(redis).unwrap()
}

/// Ids and ends.
fn out(redis: &mut Connection) -> Vec<(Vec<u8>, f64)> {
    let mut range = redis::cmd("ZRANGE");
    range.arg(PERMITS).arg(&["0", "-1", "WITHSCORES"]).query(redis).unwrap()
}

async fn all_are_free(server: &RedisServer, number: i64) {
    let mut redis = server.connection();
    settles("all are free", move || free(&mut redis) == Some(number)).await;
    assert!(out(&mut server.connection()).is_empty());
}

/// A permit of Redisson: its id, not in UTF-8, and its end in ms from now on.
fn plant(redis: &mut Connection, last: u8, left_ms: i64) {
    let mut id = [0xFE; 16];
    id[15] = last;
    let end = now_ms(redis) + left_ms;
    redis::cmd("ZADD").arg(PERMITS).arg(end).arg(&id[..]).exec(redis).unwrap();
}

fn now_ms(redis: &mut Connection) -> i64 {
    let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(redis).unwrap();
    seconds * 1_000 + micros / 1_000
}

#[tokio::test]
async fn keys_and_messages_are_those_of_redisson() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut redis = server.connection();
    let mut subscriber = server.connection();
    let mut heard = subscriber.as_pubsub();
    heard.subscribe(CHANNEL).unwrap();
    heard.set_read_timeout(Some(BOUND)).unwrap();
    let mut payload = || heard.get_message().unwrap().get_payload::<String>().unwrap();

    let options = LockOptions::new().lease(Duration::from_secs(60));
    let semaphore = client.semaphore(NAME, 5).unwrap();
    let before = now_ms(&mut redis) as f64;
    let permits = semaphore.acquire_with(2, options).await.unwrap().expect("free");
    assert_eq!(payload(), "3", "the number was not set yet: what is left of it");
    assert_eq!(free(&mut redis), Some(3));
    let (field, members) = (permits.hold_id(), out(&mut redis));
    let after = now_ms(&mut redis) as f64;
    assert_eq!(members.len(), 2);
    for (number, (id, end)) in members.iter().enumerate() {
        assert_eq!(*id, format!("{field}:{}", number + 1).into_bytes());
        let given = 60_000.0 + SLACK_MS;
        assert!((before + given..=after + given).contains(end), "{end}");
    }
    let mut immortal = look::immortal_keys(&mut redis);
    immortal.sort();
    assert_eq!(immortal, [NAME, PERMITS]);
    permits.release().await.unwrap();
    assert_eq!(payload(), "5");
    assert_eq!((free(&mut redis), out(&mut redis).len()), (Some(5), 0));
    semaphore.set_permits(2).await.unwrap();
    assert_eq!(payload(), "2");
    let both = held(&client, 5, 2).await;
    semaphore.set_permits(1).await.unwrap();
    assert_eq!((payload().as_str(), free(&mut redis)), ("1", Some(-1)), "never 0 or less");
    both.release().await.unwrap();
    assert_eq!(payload(), "1");
    assert_eq!(look::immortal_keys(&mut redis), [NAME]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_the_number_are_held_at_once() {
    let server = RedisServer::start();
    let clients = [client(&server).await, client(&server).await, client(&server).await];
    never_more_than_the_number(&clients, 2).await;
    all_are_free(&server, 4).await;
}

#[tokio::test]
async fn a_release_wakes_all_who_wait_and_they_get_what_there_is() {
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let permits = held(&holder, 3, 3).await;
    let waiting = [waits(&waiter, 3, 1), waits(&waiter, 3, 2), waits(&holder, 3, 1)];
    so_many_listen(&server, 2).await;
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
    permits.release().await.unwrap();
    for waiter in waiting {
        ends(waiter).await.unwrap().release().await.unwrap();
    }
    all_are_free(&server, 3).await;
}

#[tokio::test]
async fn the_first_caller_sets_the_number_and_others_change_it() {
    let server = RedisServer::start();
    let (first, second) = (client(&server).await, client(&server).await);
    let (ours, theirs) = (first.semaphore(NAME, 3).unwrap(), second.semaphore(NAME, 9).unwrap());
    assert_eq!((ours.permits().await.unwrap(), theirs.permits().await.unwrap()), (3, 9));
    assert_eq!(free(&mut server.connection()), None, "a look sets nothing");
    let two = held(&first, 3, 2).await;
    assert_eq!((theirs.permits().await.unwrap(), theirs.available().await.unwrap()), (3, 1));
    let refused = theirs.acquire_many(4).await.unwrap_err();
    assert!(matches!(refused, Error::TooManyPermits { .. }), "{refused:?}");
    let (waiting, too_many) = (waits(&second, 9, 2), waits(&second, 9, 3));
    so_many_listen(&server, 1).await;
    ours.set_permits(2).await.unwrap();
    let refused = ends(too_many).await.unwrap_err();
    assert!(matches!(refused, Error::TooManyPermits { .. }), "{refused:?}");
    assert!(!waiting.is_finished());
    assert_eq!(theirs.add_permits(2).await.unwrap(), 4);
    let more = ends(waiting).await.unwrap();
    assert_eq!((ours.available().await.unwrap(), ours.permits().await.unwrap()), (0, 4));
    drop((two, more));
    all_are_free(&server, 4).await;
}

/// `add_permits` adds to the client's own number if nobody has set one; nothing is taken yet.
#[tokio::test]
async fn a_number_can_be_added_to_or_set_before_anybody_acquires() {
    let server = RedisServer::start();
    let semaphore = client(&server).await.semaphore(NAME, 3).unwrap();
    assert_eq!(semaphore.add_permits(2).await.unwrap(), 5);
    all_are_free(&server, 5).await;
    let too_many = semaphore.add_permits(999_996).await.unwrap_err();
    assert!(matches!(too_many, Error::InvalidOption { .. }), "{too_many:?}");
    redis::cmd("SET").arg(NAME).arg("2").exec(&mut server.connection()).unwrap();
    assert!(semaphore.try_acquire_many(2).await.unwrap().is_ok());
}

/// A lease and five seconds are the end, and five seconds more are for the clocks of others.
#[tokio::test]
async fn permits_of_a_process_that_was_killed_come_back() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut puppet = Puppet::start(&server.url(), &["lease_ms=1500", "profile=redisson"]);
    let granted = puppet.run(&format!("a lock {NAME} kind=permit permits=3 of=3"));
    assert_eq!(granted["event"], "granted", "{granted}");
    let waiting = waits(&client, 3, 2);
    so_many_listen(&server, 1).await;
    puppet.kill();
    let since = tokio::time::Instant::now();
    let permits = ends(waiting).await.unwrap();
    assert!(since.elapsed() >= Duration::from_secs(9), "{:?}", since.elapsed());
    assert_eq!(free(&mut server.connection()), Some(1));
    permits.release().await.unwrap();
    all_are_free(&server, 3).await;
}

/// Redisson's clients set and end their permits by their own clocks, which may be behind.
#[tokio::test]
async fn permits_of_redisson_come_back_five_seconds_after_their_end() {
    let server = RedisServer::start();
    let semaphore = client(&server).await.semaphore(NAME, 9).unwrap();
    let mut redis = server.connection();
    redis::cmd("SET").arg(NAME).arg("0").exec(&mut redis).unwrap();
    plant(&mut redis, 1, -1_000);
    assert!(semaphore.try_acquire().await.unwrap().is_err(), "its clock may be behind");
    assert_eq!((semaphore.permits().await.unwrap(), semaphore.available().await.unwrap()), (1, 0));
    plant(&mut redis, 2, -6_000);
    plant(&mut redis, 3, 60_000);
    assert_eq!((semaphore.permits().await.unwrap(), semaphore.available().await.unwrap()), (3, 1));
    let permit = semaphore.try_acquire().await.unwrap().expect("what has run out is back");
    assert_eq!((out(&mut redis).len(), free(&mut redis)), (3, Some(0)));
    permit.release().await.unwrap();
    assert_eq!((out(&mut redis).len(), free(&mut redis)), (2, Some(1)));
    // One that never ends.
    redis::cmd("ZADD")
        .arg(PERMITS)
        .arg("922337203685477")
        .arg(&[0xFD_u8; 16][..])
        .exec(&mut redis)
        .unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let waits = semaphore.try_acquire_for(Duration::from_millis(50)).await.unwrap();
    assert!(waits.is_err());
    permit.release().await.unwrap();
}

/// Whoever's permits somebody else has taken back, as Redisson does by its clock, has lost them.
#[tokio::test]
async fn permits_that_are_gone_are_lost_and_nothing_is_counted_twice() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut redis = server.connection();
    let permits = held(&client, 3, 2).await;
    let id = format!("{}:1", permits.hold_id());
    redis::cmd("ZREM").arg(PERMITS).arg(&id).exec(&mut redis).unwrap();
    redis::cmd("INCRBY").arg(NAME).arg(1).exec(&mut redis).unwrap();
    let lost = permits.verify().await.unwrap_err();
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    drop(permits);
    // The other one comes back when it has run out.
    assert_eq!((free(&mut redis), out(&mut redis).len()), (Some(2), 1));
    redis::cmd("FLUSHALL").exec(&mut redis).unwrap();

    let taken = held(&client, 3, 2).await;
    let semaphore = client.semaphore(NAME, 3).unwrap();
    assert!(semaphore.force_release_from(&taken.hold_id()).await.unwrap());
    assert_eq!(timeout(BOUND, taken.lost()).await.expect("told"), LossReason::ForceUnlocked);
    assert!(!semaphore.force_release_from(&taken.hold_id()).await.unwrap());
    drop(taken);
    all_are_free(&server, 3).await;
}

#[tokio::test]
async fn options_of_a_lock_are_options_of_permits() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let semaphore = client.semaphore(NAME, 2).unwrap();
    let mut redis = server.connection();
    let at_least = Duration::from_secs(60);
    let kept = LockOptions::new().at_least(at_least);
    let permits = semaphore.acquire_with(2, kept).await.unwrap().expect("free");
    permits.release().await.unwrap();
    assert_eq!(free(&mut redis), Some(0));
    let least = now_ms(&mut redis) as f64 + at_least.as_millis() as f64 / 2.0;
    assert!(out(&mut redis).iter().all(|(_, end)| *end > least), "{:?}", out(&mut redis));
    assert!(semaphore.try_acquire().await.unwrap().is_err());
    redis::cmd("FLUSHALL").exec(&mut redis).unwrap();
    let done = semaphore.with(async |permit| permit.permits()).await.unwrap();
    assert_eq!(done, 1);
    let wait = LockOptions::new().wait(Duration::from_millis(20));
    let both = semaphore.acquire_many(2).await.unwrap();
    let refused = semaphore.with_options(1, wait, async |_| panic!("nothing is free")).await;
    let refused: std::result::Result<(), _> = refused.unwrap();
    assert!(refused.unwrap_err().to_string().contains("too few permits are free"));
    both.release().await.unwrap();
    all_are_free(&server, 2).await;
}

/// A command that was executed and whose answer is lost is sent again, and counts once.
#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_cost_no_permits_and_count_once() {
    let free = async |server: &RedisServer, _: &LockClient, number: u32| {
        all_are_free(server, number.into()).await;
    };
    lost_answers_count_once(WireProfile::Redisson, free).await;
}

#[tokio::test]
async fn data_of_others_under_any_of_the_keys_is_left_alone() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut redis = server.connection();
    let semaphore = client.semaphore(NAME, 3).unwrap();
    held(&client, 3, 1).await.release().await.unwrap();
    let fence = look::keys(&mut redis).into_iter();
    let fence = fence.chain(look::immortal_keys(&mut redis));
    let fence = fence.chain(look::dump(&mut redis).into_keys());
    let fence = fence.into_iter().find(|key| key.starts_with("redisson_lock_fence:"));
    let fence = fence.expect("a fence counter");
    let plants: [(&[&str], &str); 9] = [
        (&["SET", NAME, "word"], "not a whole number"),
        (&["SET", NAME, "1.5"], "not a whole number"),
        (&["RPUSH", NAME, "a"], "not a whole number"),
        (&["HSET", NAME, "a", "1"], "a hash that is no semaphore"),
        (&["HSET", NAME, "mode", "read"], "a read-write lock"),
        (&["HSET", NAME, "kind", "semaphore"], "a semaphore of the profile `Native`"),
        (&["HSET", NAME, "kind", "latch"], "a count-down latch"),
        (&["SET", PERMITS, "3"], PERMITS),
        (&["SET", &fence, "word"], &fence),
    ];
    let also = async |semaphore: &Semaphore, words: &str| {
        if words != fence {
            let error = semaphore.set_permits(2).await.unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            let error = semaphore.available().await.unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    };
    leaves_plants_alone(&mut redis, &semaphore, &plants, also).await;
}

#[tokio::test]
async fn the_permissions_of_a_semaphore_are_exact() {
    permissions_are_exact(WireProfile::Redisson, live).await;
}

/// Everything that a semaphore does.
async fn live(server: &RedisServer, client: &LockClient) -> Result<()> {
    let semaphore = client.semaphore(NAME, 2)?;
    let permits = semaphore.acquire_many(2).await?;
    permits.verify().await?;
    semaphore.available().await?;
    assert!(semaphore.try_acquire_for(Duration::from_millis(50)).await?.is_err());
    permits.release().await?;
    let kept = LockOptions::new().at_least(Duration::from_millis(50));
    semaphore.acquire_with(1, kept).await?.expect("free").release().await?;
    plant(&mut server.connection(), 1, -6_000);
    let one = semaphore.acquire().await?;
    semaphore.force_release_from(&one.hold_id()).await?;
    semaphore.set_permits(3).await?;
    semaphore.add_permits(2).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_serves_semaphores_on_the_primaries_of_their_slots() {
    let cluster = Topology::cluster();
    let url = format!("redis-cluster://{}", cluster.addresses(0..6).join(","));
    let (first, second) = (client_at(&url).await, client_at(&url).await);
    for name in ["exports:1", "exports:2", "{tag}exports", "a{tag}b"] {
        let (ours, theirs) =
            (first.semaphore(name, 3).unwrap(), second.semaphore(name, 3).unwrap());
        let permits = timeout(BOUND, ours.acquire_many(3)).await.expect("granted").unwrap();
        let waiting = tokio::spawn(async move { theirs.acquire_many(2).await });
        let stats = second.clone();
        settles("it listens", move || stats.stats().subscriptions > 0).await;
        permits.release().await.unwrap();
        ends(waiting).await.unwrap().release().await.unwrap();
        ours.set_permits(7).await.unwrap();
        assert_eq!(ours.add_permits(1).await.unwrap(), 8, "{name}");
        let stats = second.clone();
        settles("it listens no more", move || stats.stats().subscriptions == 0).await;
    }
}
