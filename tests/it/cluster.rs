//! A cluster: every lock on the primary of its slot, while slots move and primaries die.

mod crowd;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::ReentrantLock;
use redis_reentrant_lock::Severity;
use redis_reentrant_lock::Sharding;
use tokio::time::Instant;
use tokio::time::timeout;

use self::crowd::Crowd;
use crate::support::lives;
use crate::support::redis_server::has_redis_7;
use crate::support::redis_server::version;
use crate::support::settle::settles;
use crate::support::topology::Kind;
use crate::support::topology::Plan;
use crate::support::topology::Topology;

const LONG: Duration = Duration::from_secs(20);

fn url(cluster: &Topology) -> String {
    format!("redis-cluster://{}", cluster.addresses(0..6).join(","))
}

async fn client(cluster: &Topology) -> LockClient {
    LockClient::connect(&url(cluster)).await.expect("the cluster is there")
}

fn slot(cluster: &Topology, name: &str) -> u16 {
    cluster.ask(0, &["CLUSTER", "KEYSLOT", name])
}

/// The first of `prefix:0`, `prefix:1`, … that this node has.
fn name_on(cluster: &Topology, node: usize, prefix: &str) -> String {
    let mut names = (0..).map(|number| format!("{prefix}:{number}"));
    names.find(|name| cluster.owner_of(slot(cluster, name), 0) == Some(node)).expect("endless")
}

/// Runs what blocks where it may.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

/// Who counts the waiters with `Sharding::Auto`.
fn numsub() -> &'static str {
    if version() < (7, 0) { "NUMSUB" } else { "SHARDNUMSUB" }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_primary_serves_its_own_locks() {
    let cluster = Arc::new(Topology::cluster());
    for sharding in [Sharding::Auto, Sharding::On, Sharding::Off] {
        if sharding == Sharding::On && !has_redis_7("sharded pub/sub, with Sharding::On") {
            continue;
        }
        let connect = || LockClient::builder().url(url(&cluster)).sharding(sharding).connect();
        let (a, b) = (connect().await.expect("a"), connect().await.expect("b"));
        for node in 0..3 {
            let name = name_on(&cluster, node, "life");
            let lock = a.reentrant_lock(&name).expect("a good name");
            let outer = Owner::new().scope(lock.lock()).await.expect("free");
            assert_eq!(
                cluster.ask::<i64>(node, &["EXISTS", &name]),
                1,
                "on the primary of its slot"
            );
            let other = b.reentrant_lock(&name).expect("a good name");
            assert!(Owner::new().scope(other.try_lock()).await.expect("answered").is_err());
            let waiter = tokio::spawn(async move { other.lock().await });
            let (looked, channel) =
                (Arc::clone(&cluster), format!("redisson_lock__channel__{{{name}}}"));
            let how = if sharding == Sharding::Off { "NUMSUB" } else { numsub() };
            settles("the waiter sleeps", move || {
                let heard = |node| looked.ask::<(String, u64)>(node, &["PUBSUB", how, &channel]).1;
                (0..3).map(heard).sum::<u64>() == 1
            })
            .await;
            let asleep = Instant::now();
            outer.unlock().await.expect("held");
            let guard =
                timeout(LONG, waiter).await.expect("woken").expect("no panic").expect("granted");
            println!("{sharding:?}, node {node}: woken after {:?}", asleep.elapsed());
            assert_eq!(b.stats().fallback_grants, 0, "woken, not by chance");
            assert!(lock.force_unlock().await.expect("answered"));
            timeout(LONG, guard.lost()).await.expect("told");
            drop(guard);
        }
        // Some of each node.
        for number in 0..6 {
            lives::of_other_kinds(&a, &b, &format!("kinds:{number}")).await;
        }
        for client in [a, b] {
            assert!(client.shutdown(LONG).await.expect("in time").is_clean());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nesting_and_hand_off_are_the_same_as_on_one_server() {
    let cluster = Topology::cluster();
    let client = client(&cluster).await;
    for node in 0..3 {
        let lock = client.reentrant_lock(name_on(&cluster, node, "nested")).expect("a good name");
        // A server that was silent for a while is asked for its time first, and the lock is
        // released plainly meanwhile.
        let before = client.stats().hand_offs;
        let handed = async {
            while client.stats().hand_offs == before {
                pass_on(&client, &lock).await;
            }
        };
        timeout(LONG, handed).await.expect("handed over by one script");
    }
}

/// From an owner that has it twice to one that waits in the same client.
async fn pass_on(client: &LockClient, lock: &ReentrantLock) {
    let owner = Owner::new();
    let outer = owner.scope(lock.lock()).await.expect("free");
    let inner = owner.scope(lock.lock()).await.expect("ours");
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    let watched = client.clone();
    settles("it waits", move || watched.stats().waiters == 1).await;
    inner.unlock().await.expect("held");
    let token = outer.fencing_token();
    outer.unlock().await.expect("held");
    let next = timeout(LONG, next).await.expect("handed").expect("no panic").expect("granted");
    assert!(next.fencing_token() > token);
    next.unlock().await.expect("held");
}

/// A slot on its way: what is held there goes on; what is free there cannot be taken before it has
/// arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_moving() {
    let cluster = Topology::cluster();
    let client = client(&cluster).await;
    let tag = name_on(&cluster, 0, "moving");
    let name = |what: &str| format!("{{{tag}}}:{what}");
    let lock = |what: &str| client.reentrant_lock(name(what)).expect("a good name");
    let moving = slot(&cluster, &tag);
    let held = lock("held");
    let owner = Owner::new();
    let guard = owner.scope(held.lock()).await.expect("free");
    let others: Vec<_> = {
        let mut guards = Vec::new();
        for number in 0..5 {
            guards.push(lock(&number.to_string()).lock().await.expect("free"));
        }
        guards
    };
    let contender = tokio::spawn({
        let held = held.clone();
        async move { held.lock().await }
    });
    let watched = client.clone();
    settles("it waits", move || watched.stats().waiters == 1).await;

    cluster.begin_move(moving, 0, 1);
    // Half of it: the fence counter, or some of the locks, or both, are on the other side.
    let _: String = cluster
        .ask(0, &["MIGRATE", "127.0.0.1", &cluster.port(1).to_string(), &name("0"), "0", "5000"]);
    let inner = owner.scope(held.lock()).await.expect("held is held, here or there");
    inner.unlock().await.expect("held");
    for guard in &others {
        guard.verify().await.expect("renewed wherever it is");
    }
    let free = lock("free");
    let taken = Owner::new().scope(free.try_lock_for(Duration::from_millis(300))).await;
    assert!(matches!(taken, Err(Error::Unavailable { .. })), "one key here, one there: {taken:?}");
    let patient = tokio::spawn(async move { free.lock().await });
    // A hand-off needs two keys; refused, it is a plain release.
    guard.unlock().await.expect("held");
    cluster.move_keys(moving, 0, 1);
    cluster.end_move(moving, 0, 1);

    for waiter in [contender, patient] {
        let guard =
            timeout(LONG, waiter).await.expect("granted").expect("no panic").expect("granted");
        guard.verify().await.expect("held on the other side");
        guard.unlock().await.expect("held");
    }
    for guard in others {
        assert!(guard.is_held());
        guard.unlock().await.expect("held");
    }
    assert_eq!(client.stats().losses, 0);
}

/// What a writer gives up while its slot moves is given up at once, on either side: it has no key but
/// that of the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_is_released_while_its_slot_moves() {
    let cluster = Topology::cluster();
    let (client, other) = (client(&cluster).await, client(&cluster).await);
    let tag = name_on(&cluster, 0, "moving");
    let moving = slot(&cluster, &tag);
    let lock = |what: &str, side: usize| {
        client.rw_lock(format!("{{{tag}}}:{what}:{side}")).expect("a good name")
    };
    let mut held = Vec::new();
    for side in 0..2 {
        let (owner, twice) = (Owner::new(), lock("twice", side));
        let outer = owner.scope(twice.write()).await.expect("free");
        let inner = owner.scope(twice.write()).await.expect("ours");
        let options = LockOptions::new().at_least(LONG);
        let kept = lock("kept", side).write_with(options).await.expect("answered").expect("free");
        let forced = lock("forced", side).write().await.expect("free");
        held.push((outer, inner, kept, forced));
    }
    cluster.begin_move(moving, 0, 1);
    for (side, (outer, inner, kept, forced)) in held.into_iter().enumerate() {
        let gives_up = async {
            inner.unlock().await.expect("held");
            outer.verify().await.expect("held");
            outer.unlock().await.expect("held");
            kept.unlock().await.expect("held");
            let forcing = other.rw_lock(lock("forced", side).name()).expect("a good name");
            assert!(forcing.force_unlock().await.expect("answered"));
            timeout(LONG, forced.lost()).await.expect("told");
        };
        timeout(LONG, gives_up).await.expect("while the slot moves");
        let asked = ["CLUSTER", "GETKEYSINSLOT", &moving.to_string(), "100"];
        let there: Vec<String> = cluster.ask(side, &asked);
        for (what, is_there) in [("twice", false), ("kept", true), ("forced", false)] {
            let name = lock(what, side).name().to_owned();
            assert_eq!(there.contains(&name), is_there, "{name}: {there:?}");
        }
        cluster.move_keys(moving, 0, 1);
    }
    cluster.end_move(moving, 0, 1);
    for client in [client, other] {
        assert!(client.shutdown(LONG).await.expect("in time").is_clean());
    }
}

/// Somebody sleeps on a slot that moves: the sharded subscription moves along, so the unlock on the
/// other side wakes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_up_after_the_slot_has_moved() {
    if !has_redis_7("sharded pub/sub") {
        return;
    }
    let cluster = Arc::new(Topology::cluster());
    let (a, b) = (client(&cluster).await, client(&cluster).await);
    let name = name_on(&cluster, 0, "follows");
    let guard = a.mutex(&name).expect("a good name").lock().await.expect("free");
    let mutex = b.mutex(&name).expect("a good name");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    let heard = |node| {
        let (cluster, channel) =
            (Arc::clone(&cluster), format!("redisson_lock__channel__{{{name}}}"));
        move || cluster.ask::<(String, u64)>(node, &["PUBSUB", numsub(), &channel]).1 == 1
    };
    settles("the waiter sleeps", heard(0)).await;
    cluster.move_slot(slot(&cluster, &name), 0, 1);
    settles("the waiter sleeps on the other side", heard(1)).await;
    guard.unlock().await.expect("held");
    let guard = timeout(LONG, waiter).await.expect("woken").expect("no panic").expect("granted");
    assert_eq!(b.stats().fallback_grants, 0, "woken, not by chance");
    guard.unlock().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_slots_move_under_load() {
    let cluster = Topology::cluster();
    let crowd = Crowd::start(&url(&cluster)).await;
    let progress = crowd.progress();
    let slots: Vec<u16> = crowd.names().into_iter().map(|name| slot(&cluster, &name)).collect();
    let cluster = blocking(move || {
        let distinct: BTreeSet<u16> = slots.into_iter().collect();
        for (number, slot) in distinct.iter().copied().cycle().take(20).enumerate() {
            let from = cluster.owner_of(slot, 0).expect("served");
            let to = (from + 1 + number % 2) % 3;
            let begun = Instant::now();
            cluster.move_slot(slot, from, to);
            let moved = begun.elapsed();
            progress.wait();
            println!(
                "slot {slot} from {from} to {to}: {moved:?}, and work went on after {:?}",
                begun.elapsed()
            );
        }
        cluster
    })
    .await;
    crowd.end(0).await;
    crowd::nothing_is_left(cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_failovers_under_load() {
    let cluster = Plan::new(Kind::Cluster).config("appendonly no").start();
    let crowd = Crowd::start(&url(&cluster)).await;
    let names = crowd.names();
    let cluster = blocking(move || {
        let mut cluster = cluster;
        for (round, name) in names.iter().take(5).enumerate() {
            let victim_of = slot(&cluster, name);
            let owner = cluster.wait_until_agreed(victim_of);
            let replica = cluster.replicas_of(owner)[0];
            let begun = Instant::now();
            match round % 3 {
                0 => cluster.kill(owner),
                1 => cluster.freeze(owner),
                _ => cluster.cluster_failover(replica, false),
            }
            if round % 3 == 1 {
                cluster.wait_for_primary(replica);
                cluster.thaw(owner);
            }
            let new = cluster.wait_until_agreed(victim_of);
            println!("failover {round}: from {owner} to {new} after {:?}", begun.elapsed());
            if !cluster.is_running(owner) {
                cluster.restart(owner);
            }
            cluster.wait_for_replica(new);
        }
        cluster
    })
    .await;
    crowd.end(usize::MAX).await;
    crowd::nothing_is_left(cluster).await;
}

/// One primary answers nothing for ten seconds: the locks of the others do not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_primary_slows_nobody_else_down() {
    let cluster = Topology::cluster();
    let client = client(&cluster).await;
    let healthy: Vec<String> = [1, 2].map(|node| name_on(&cluster, node, "healthy")).into();
    let frozen = client.mutex(name_on(&cluster, 0, "frozen")).expect("a good name");
    let held = frozen.lock().await.expect("free");
    let before = crowd::times(&client, &healthy, Duration::from_secs(2)).await;
    cluster.freeze(0);
    let during = crowd::times(&client, &healthy, Duration::from_secs(10)).await;
    cluster.thaw(0);
    println!("lock and unlock on the other primaries: before {before}, during {during}");
    timeout(LONG, held.verify()).await.expect("answered").expect("it lived on at the replica");
    held.unlock().await.expect("held");
    assert_eq!(client.stats().losses, 0);
}

/// A frozen primary is followed by its replica, and then wakes up with an attempt in its socket
/// that it grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_deposed_primary_grants_is_not_believed() {
    let cluster = Arc::new(Topology::cluster());
    let builder = LockClient::builder().url(url(&cluster)).command_timeout(Duration::from_secs(15));
    let client = builder.connect().await.expect("the cluster is there");
    let tag = name_on(&cluster, 0, "deposed");
    let replica = cluster.replicas_of(0)[0];
    let name = format!("{{{tag}}}:frozen");
    cluster.freeze(0);
    let mutex = client.mutex(&name).expect("a good name");
    let attempt = tokio::spawn(async move { mutex.lock().await });
    let looked = Arc::clone(&cluster);
    settles("the replica follows", move || looked.is_primary(replica)).await;
    let other = client.mutex(format!("{{{tag}}}:other")).expect("a good name");
    let other = timeout(LONG, other.lock()).await.expect("the new primary answers").expect("free");
    cluster.thaw(0);
    let guard = timeout(LONG, attempt).await.expect("an end").expect("no panic").expect("granted");
    assert_eq!(
        cluster.ask::<i64>(replica, &["EXISTS", &name]),
        1,
        "granted by the primary that counts"
    );
    guard.unlock().await.expect("held");
    other.unlock().await.expect("held");
}

#[tokio::test]
async fn what_is_no_cluster_is_said() {
    let server = crate::support::redis_server::RedisServer::start();
    let address = format!("redis-cluster://127.0.0.1:{}", server.port());
    let error = LockClient::connect(&address).await.expect_err("one server is no cluster");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("not a node of a cluster"), "{error}");

    let error = LockClient::builder()
        .url("redis-cluster://127.0.0.1:1,127.0.0.1:2")
        .connect_timeout(Duration::from_millis(500))
        .connect()
        .await
        .expect_err("nobody is there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(
        error.to_string().contains("127.0.0.1:1") && error.to_string().contains("127.0.0.1:2"),
        "{error}"
    );
}

/// A client for one server, on any node of a cluster: two thirds of the names would be elsewhere.
#[tokio::test]
async fn a_cluster_taken_for_one_server_is_said() {
    let cluster = Topology::cluster();
    for node in [0, cluster.replicas_of(0)[0]] {
        let address = format!("redis://{}", cluster.address(node));
        let error = LockClient::connect(&address).await.expect_err("a node of a cluster");
        assert!(matches!(error, Error::Unsupported { .. }) && error.is_config(), "{error}");
        assert!(error.to_string().contains("use redis-cluster://"), "{error}");

        let client = LockClient::builder().url(&address).connect_lazy().expect("a good address");
        let mutex = client.mutex(name_on(&cluster, 0, "here")).expect("a good name");
        let error = mutex.lock().await.expect_err("even where it has the name");
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        let report = client.preflight("here").await.expect("a report");
        assert_eq!(report.severity(), Severity::Error, "{report}");
        assert!(report.to_string().contains("redis-cluster://"), "{report}");
    }
}
