//! The semaphore, on a real server.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::WireProfile;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::client::connect;
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
use crate::support::permits::refuses_what_cannot_be;
use crate::support::permits::waits;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;
use crate::support::topology::Topology;

const LINE: &str = "redisson_lock_line__{exports:7}";
async fn client(server: &RedisServer) -> LockClient {
    builder(&server.url()).command_timeout(COMMAND_TIMEOUT).connect().await.unwrap()
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
    never_more_than_the_number(&clients, 3).await;
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
    for profile in [WireProfile::Native, WireProfile::Redisson] {
        let server = RedisServer::start();
        let client = builder(&server.url()).profile(profile).connect().await.unwrap();
        refuses_what_cannot_be(&server, &client).await;
    }
}

/// A task that waits for so many permits, notes that it has them, and gives them back.
fn notes(
    client: &LockClient,
    number: u32,
    permits: u32,
    order: &Order,
    at: usize,
) -> JoinHandle<()> {
    let (semaphore, order) = (client.semaphore(NAME, number).unwrap(), Arc::clone(order));
    tokio::spawn(async move {
        let permits = semaphore.acquire_many(permits).await.unwrap();
        order.lock().unwrap().push(at);
        permits.release().await.unwrap();
    })
}

type Order = Arc<Mutex<Vec<usize>>>;

/// Of two that follow each other, never both fit, so that the order of the grants is that of the
/// releases.
#[tokio::test]
async fn who_came_first_is_served_first_between_clients_and_within_one() {
    let server = RedisServer::start();
    let clients = [client(&server).await, client(&server).await];
    let all = held(&clients[0], 3, 3).await;
    let order = Order::default();
    let mut tasks = Vec::new();
    for (at, wanted) in [3, 1, 3, 2, 2, 3, 1, 3].into_iter().enumerate() {
        tasks.push(notes(&clients[at / 2 % 2], 3, wanted, &order, at));
        so_many_stand_in_line(&server, at + 1).await;
    }
    all.release().await.unwrap();
    for task in tasks {
        timeout(BOUND, task).await.expect("served").unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    leaves_nothing(&server, &clients[0]).await;
}

/// While others come and go for ever, who wants all of them is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_want_of_all_is_served_while_others_come_and_go() {
    let server = RedisServer::start();
    let (ones, all) = (client(&server).await, client(&server).await);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let semaphore = ones.semaphore(NAME, 4).unwrap();
            tokio::spawn(async move {
                loop {
                    let permit = semaphore.acquire().await.unwrap();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    permit.release().await.unwrap();
                }
            })
        })
        .collect();
    so_many_stand_in_line_at_least(&server, 1).await;
    for _ in 0..5 {
        held(&all, 4, 4).await.release().await.unwrap();
    }
    tasks.into_iter().for_each(|task| task.abort());
}

async fn so_many_stand_in_line_at_least(server: &RedisServer, number: usize) {
    let mut redis = server.connection();
    settles("they stand in line", move || number_in(&mut redis, LINE) >= number).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_permits_of_one_client_are_renewed_in_batches() {
    const PERMITS_HELD: u32 = 2_000;
    let server = RedisServer::start();
    // So that the first renewal is later than the time within which a grant is taken back.
    let lease = Duration::from_secs(18);
    let client = builder(&server.url())
        .command_timeout(Duration::from_secs(1))
        .lease(lease)
        .connect()
        .await
        .unwrap();
    let semaphore = client.semaphore(NAME, PERMITS_HELD).unwrap();
    let tasks: Vec<_> = (0..PERMITS_HELD)
        .map(|_| {
            let semaphore = semaphore.clone();
            tokio::spawn(async move { semaphore.acquire().await })
        })
        .collect();
    let mut permits = Vec::new();
    for task in tasks {
        permits.push(ends(task).await.unwrap());
    }
    assert_eq!(semaphore.available().await.unwrap(), 0);
    assert!(semaphore.try_acquire().await.unwrap().is_err());
    let before = look::script_runs(&mut server.connection());
    let renewed = client.stats().renewals;
    let watched = client.clone();
    settles("all are renewed", move || {
        watched.stats().renewals >= renewed + u64::from(PERMITS_HELD)
    })
    .await;
    let runs = look::script_runs(&mut server.connection()) - before;
    assert!(runs < 200, "{runs} scripts");
    assert!(permits.iter().all(|permit| permit.is_held()));
    assert_eq!(number_in(&mut server.connection(), PERMITS), PERMITS_HELD as usize);
    let released: Vec<_> =
        permits.into_iter().map(|permit| tokio::spawn(permit.release())).collect();
    for release in released {
        timeout(BOUND, release).await.expect("it ends").unwrap().unwrap();
    }
    leaves_nothing(&server, &client).await;
}

#[tokio::test]
async fn permits_that_are_taken_away_are_lost_and_others_get_them() {
    let server = RedisServer::start();
    let (holder, other) = (client(&server).await, client(&server).await);
    let (two, one) = (held(&holder, 3, 2).await, held(&holder, 3, 1).await);
    let waiting = waits(&other, 3, 2);
    so_many_stand_in_line(&server, 1).await;
    let semaphore = other.semaphore(NAME, 3).unwrap();
    assert!(semaphore.force_release_from(&two.hold_id()).await.unwrap());
    let lost = timeout(BOUND, two.lost()).await.expect("it is told");
    assert_eq!(lost, LossReason::ForceUnlocked);
    assert!(!two.is_held());
    let error = two.release().await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert!(one.is_held(), "the other hold of that client stays");
    one.verify().await.unwrap();
    let waiting = ends(waiting).await.unwrap();
    let no_id = format!("{}:1:1", one.hold_id());
    assert!(semaphore.force_release_from(&no_id).await.is_err());
    assert!(semaphore.force_release_from(&waiting.hold_id()).await.unwrap());
    assert!(!semaphore.force_release_from(&waiting.hold_id()).await.unwrap(), "it is gone");

    // One of its permits is gone: all are lost.
    let three = held(&holder, 100, 3).await;
    let member = format!("{}:2", three.hold_id());
    let mut redis = server.connection();
    redis::cmd("ZREM").arg(PERMITS).arg(member).exec(&mut redis).unwrap();
    let error = three.verify().await.unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    assert!(semaphore.force_release_from(&three.hold_id()).await.unwrap(), "two are left");
    drop((three, waiting));
    one.release().await.unwrap();
    leaves_nothing(&server, &holder).await;
}

#[tokio::test]
async fn options_of_a_lock_are_options_of_permits() {
    let server = RedisServer::start();
    let (client, other) = (client(&server).await, client(&server).await);
    let semaphore = client.semaphore(NAME, 3).unwrap();
    let ms = Duration::from_millis;
    let options = LockOptions::new;
    // Kept for a while after the release: just these permits.
    let kept = semaphore.acquire_with(2, options().at_least(ms(700))).await.unwrap().unwrap();
    kept.release().await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 1);
    let elsewhere = other.semaphore(NAME, 3).unwrap();
    assert!(elsewhere.try_acquire_many(2).await.unwrap().is_err());
    let one = elsewhere.try_acquire().await.unwrap().expect("one is free");
    let two = elsewhere.acquire_with(2, options().wait(BOUND)).await.unwrap().expect("in time");
    drop((one, two));
    settles_free(&server).await;

    // A fixed lease ends by itself, and so does the longest hold.
    let fixed = semaphore.acquire_with(3, options().lease(ms(300))).await.unwrap().unwrap();
    assert_eq!(timeout(BOUND, fixed.lost()).await.unwrap(), LossReason::Expired);
    let held = semaphore.acquire_with(3, options().max_hold(ms(500))).await.unwrap().unwrap();
    assert!(elsewhere.try_acquire_for(ms(200)).await.unwrap().is_err());
    assert_eq!(timeout(BOUND, held.lost()).await.unwrap(), LossReason::MaxHold);
    let late = timeout(BOUND, elsewhere.acquire_many(3)).await.unwrap().unwrap();
    late.leave_to_lease();
    assert_eq!(semaphore.available().await.unwrap(), 0, "they are left to their lease");
    drop((fixed, held));
}

async fn settles_free(server: &RedisServer) {
    let mut redis = server.connection();
    settles("all are free", move || number_in(&mut redis, PERMITS) == 0).await;
}

#[tokio::test]
async fn work_runs_while_permits_are_held() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let semaphore = client.semaphore(NAME, 3).unwrap();
    let left = semaphore.with(async |_| semaphore.available().await.unwrap()).await.unwrap();
    assert_eq!(left, 2);
    let now_or_never = LockOptions::new().wait(Duration::ZERO);
    let left = semaphore
        .with_options(3, now_or_never, async |permits| {
            assert_eq!(permits.permits(), 3);
            let refused = semaphore.with_options(1, now_or_never, async |_| ()).await.unwrap();
            let words = refused.unwrap_err().to_string();
            assert_eq!(words, r#"semaphore "exports:7": too few permits are free"#);
            semaphore.available().await.unwrap()
        })
        .await
        .unwrap()
        .unwrap();
    assert_eq!(left, 0);
    leaves_nothing(&server, &client).await;
}

/// Each client keeps to its own number, as long as nobody has set one.
#[tokio::test]
async fn clients_with_different_numbers_keep_to_their_own() {
    let server = RedisServer::start();
    let (small, large) = (client(&server).await, client(&server).await);
    let (two, five) = (small.semaphore(NAME, 2).unwrap(), large.semaphore(NAME, 5).unwrap());
    let mut permits = vec![held(&large, 5, 1).await, held(&small, 2, 1).await];
    assert!(two.try_acquire().await.unwrap().is_err());
    assert_eq!((two.available().await.unwrap(), five.available().await.unwrap()), (0, 3));
    permits.push(held(&large, 5, 3).await);
    assert!(five.try_acquire().await.unwrap().is_err());
    assert_eq!((two.permits().await.unwrap(), five.permits().await.unwrap()), (2, 5));
    let error = two.acquire_many(3).await.unwrap_err();
    assert!(matches!(error, Error::TooManyPermits { wanted: 3, permits: 2, .. }), "{error:?}");
    five.set_permits(4).await.unwrap();
    assert_eq!((two.permits().await.unwrap(), five.permits().await.unwrap()), (4, 4));
    assert!(two.try_acquire().await.unwrap().is_err(), "five are held");
    permits.pop().unwrap().release().await.unwrap();
    permits.push(two.try_acquire_many(2).await.unwrap().expect("two of four are free"));
    let error = five.add_permits(999_997).await.unwrap_err();
    let words = "permits 999997 is not allowed: it must be at most 999996, because there are 4";
    assert!(error.to_string().ends_with(words), "{error}");
    assert_eq!(five.permits().await.unwrap(), 4);
    assert_eq!(five.add_permits(999_996).await.unwrap(), 1_000_000);
}

/// Nobody waits, so that nothing is known before the calls.
#[tokio::test]
async fn a_number_that_was_set_before_holds_for_all() {
    let server = RedisServer::start();
    let (first, second) = (client(&server).await, client(&server).await);
    first.semaphore(NAME, 1).unwrap().set_permits(3).await.unwrap();
    let permits = held(&second, 1, 3).await;
    assert!(first.semaphore(NAME, 9).unwrap().try_acquire().await.unwrap().is_err());
    permits.release().await.unwrap();
    settles_free(&server).await;
    assert_eq!(look::hash(&mut server.connection(), NAME)["permits"], "3");
}

#[tokio::test]
async fn who_gives_up_leaves_the_line_to_those_behind() {
    let server = RedisServer::start();
    let (holder, first, second) =
        (client(&server).await, client(&server).await, client(&server).await);
    let one = held(&holder, 3, 1).await;
    let large = waits(&first, 3, 3);
    so_many_stand_in_line(&server, 1).await;
    let small = waits(&second, 3, 1);
    so_many_stand_in_line(&server, 2).await;
    assert!(!small.is_finished(), "who came first wants all three");
    large.abort();
    let small = ends(small).await.unwrap();
    drop((one, small));
    for client in [&holder, &first, &second] {
        leaves_nothing(&server, client).await;
    }
}

/// A command that was executed and whose answer is lost is sent again, and counts once.
#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_cost_no_permits_and_count_once() {
    // The key of a number that was set stays.
    let all_are_free = async |server: &RedisServer, client: &LockClient, number: u32| {
        if number == 3 {
            leaves_nothing(server, client).await;
        }
    };
    lost_answers_count_once(WireProfile::Native, all_are_free).await;
}

#[tokio::test]
async fn data_of_others_under_any_of_the_keys_is_left_alone() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut redis = server.connection();
    let semaphore = client.semaphore(NAME, 3).unwrap();
    let fence = {
        held(&client, 3, 1).await.release().await.unwrap();
        settles_free(&server).await;
        let keys: Vec<String> =
            redis::cmd("KEYS").arg("redisson_lock_fence:*").query(&mut redis).unwrap();
        keys.into_iter().next().unwrap()
    };
    let plants: [(&[&str], &str); 6] = [
        (&["SET", NAME, "3"], "a value that is not a hash"),
        (&["HSET", NAME, "a", "1"], "a hash that is no semaphore"),
        (&["HSET", NAME, "mode", "read"], "a read-write lock"),
        (&["SET", PERMITS, "3"], PERMITS),
        (&["RPUSH", LINE, "a"], LINE),
        (&["SET", &fence, "word"], &fence),
    ];
    leaves_plants_alone(&mut redis, &semaphore, &plants, async |_, _| {}).await;
}

#[tokio::test]
async fn the_permissions_of_a_semaphore_are_exact() {
    permissions_are_exact(WireProfile::Native, live).await;
}

/// Everything that a semaphore does.
async fn live(server: &RedisServer, client: &LockClient) -> Result<()> {
    let semaphore = client.semaphore(NAME, 2)?;
    let permits = semaphore.acquire_many(2).await?;
    permits.verify().await?;
    semaphore.available().await?;
    let waiting = waits(client, 2, 1);
    let mut redis = server.connection();
    let name = if waiting.is_finished() { PERMITS } else { LINE };
    let watched = async {
        settles("it waits or fails", move || number_in(&mut redis, name) > 0).await;
    };
    // Without a permission it never stands in line, but ends.
    let _ = timeout(Duration::from_millis(500), watched).await;
    permits.release().await?;
    ends(waiting).await?.release().await?;
    let kept = LockOptions::new().at_least(Duration::from_millis(50));
    semaphore.acquire_with(1, kept).await?.expect("free").release().await?;
    let one = semaphore.acquire().await?;
    semaphore.force_release_from(&one.hold_id()).await?;
    semaphore.set_permits(3).await?;
    semaphore.add_permits(2).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_serves_semaphores_on_the_primaries_of_their_slots() {
    let cluster = Topology::cluster();
    let url = format!("redis-cluster://{}", cluster.addresses(0..6).join(","));
    let (first, second) = (connect(&url).await, connect(&url).await);
    for name in ["exports:1", "exports:2", "exports:3", "{tag}exports", "a{tag}b"] {
        let (ours, theirs) =
            (first.semaphore(name, 3).unwrap(), second.semaphore(name, 3).unwrap());
        let permits = timeout(BOUND, ours.acquire_many(3)).await.expect("granted").unwrap();
        let waiting = tokio::spawn(async move { theirs.acquire_many(2).await });
        let channel = match name.contains('{') {
            true => format!("redisson_sc:{name}"),
            false => format!("redisson_sc:{{{name}}}"),
        };
        let cluster = &cluster;
        let listens = || {
            (0..6).any(|node| {
                let ask = |how| cluster.try_ask::<(String, u64)>(node, &["PUBSUB", how, &channel]);
                ["NUMSUB", "SHARDNUMSUB"].into_iter().any(|how| ask(how).is_ok_and(|it| it.1 > 0))
            })
        };
        timeout(BOUND, async {
            while !listens() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("it listens");
        permits.release().await.unwrap();
        ends(waiting).await.unwrap().release().await.unwrap();
        ours.set_permits(7).await.unwrap();
        assert_eq!(ours.add_permits(1).await.unwrap(), 8, "{name}");
    }
}

#[tokio::test]
async fn a_primary_that_sentinels_name_serves_semaphores() {
    let set = Topology::sentinel();
    let sentinels = set.addresses([3, 4, 5]).join(",");
    let url = format!(
        "redis-sentinel://locks:lock-secret@{sentinels}/main?sentinel_password=sentinel-secret"
    );
    let client = LockClient::connect(&url).await.unwrap();
    let semaphore = client.semaphore(NAME, 2).unwrap();
    let permits = timeout(BOUND, semaphore.acquire_many(2)).await.expect("granted").unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_err());
    permits.verify().await.unwrap();
    permits.release().await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 2);
}
