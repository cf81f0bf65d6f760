//! What servers and networks do to a holder and to a waiter behind it, and what comes of it.
//!
//! | outage | the holder | the waiter | left on the server |
//! |---|---|---|---|
//! | restart with its data | goes on | granted at the release | nothing |
//! | restart without | `Lost(ServerLostData)` at the new server's first reply¹ | granted | nothing |
//! | failover that loses the last writes | `Lost(ServerLostData)` at the new primary's first reply¹ | granted | nothing |
//! | `min-replicas-to-write` not met | goes on up to valid-until, then `Lost(Expired)`; renewed if writes return | `try_lock`: `Unavailable` with NOREPLICAS; a wait goes on | no half-made grant |
//! | `CLIENT PAUSE`, ALL and WRITE | goes on | `try_lock`: `Unavailable`; a wait goes on | what runs late grants nothing |
//! | `CLIENT KILL`, normal and pubsub, repeatedly | goes on | woken, or tries after subscribing again | nothing |
//! | `SCRIPT FLUSH`, repeatedly | notices nothing | notices nothing | nothing |
//! | subscriber over its output buffer | goes on | subscribes again, and tries | nothing |
//! | `maxmemory`, noeviction | renews and releases as ever | `try_lock`: `Unavailable` with OOM; a wait goes on | no half-made grant |
//! | `maxmemory`, allkeys-lru takes the lock | `Lost(Removed)` at its next renewal | granted, with a larger token | nothing |
//! | host name leads to another address | goes on | granted at the release | nothing |
//! | half-open connection, lost requests, lost replies: commands | a new connection, hold verified | granted at the release | what ran unheard is undone |
//! | the same: pub/sub | notices nothing | woken over a new connection, or the fallback | nothing |
//!
//! ¹ `Lost(TakenOver)` if the waiter was granted it before the holder could ask.
//!
//! All of it on one server, a sentinel set and a cluster, but: one server has no failover; that of
//! a sentinel set is in `sentinel.rs`; and host names are resolved in the same way for the one
//! server, for sentinels and for the nodes of a cluster that a URL names, so one server stands for
//! all. Further nodes are known by address. That test needs a mount namespace of Linux, and fails,
//! saying so, if it cannot have one.

mod holes;
mod place;
mod scene;
mod servers;

use std::fs;
use std::time::Duration;
use std::time::SystemTime;

use futures::future::join_all;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use tokio::time::Instant;
use tokio::time::timeout;

use self::place::Place;
use self::scene::BOUND;
use self::scene::Scene;
use self::scene::answered;
use crate::support::client::cannot_over_fred;
use crate::support::proxy::Direction;
use crate::support::proxy::FaultProxy;
use crate::support::puppet::Puppet;
use crate::support::puppet::with_hosts;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;
use crate::support::redis_server::has_redis_7;
use crate::support::topology::Topology;

const CLUSTER: &str = "a cluster";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_through_its_outages() {
    servers::all(Place::one()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_set_through_its_outages() {
    servers::all(Place::set()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_through_its_outages() {
    if cannot_over_fred(CLUSTER) {
        return;
    }
    servers::all(Place::cluster()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holes_before_one_server() {
    holes::all(Place::one()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holes_before_a_sentinel_set() {
    holes::all(Place::set()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holes_before_a_cluster() {
    if cannot_over_fred(CLUSTER) || !has_redis_7("cluster-announce-port that may change") {
        return;
    }
    // That a primary is announced at another port has to get around.
    holes::all(Place::cluster_that_waits("4000")).await;
}

/// The replica has the first lock and never gets the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_failover_loses_the_last_writes() {
    if cannot_over_fred(CLUSTER) {
        return;
    }
    let mut place = Place::Cluster(Topology::cluster());
    let client =
        place.builder().lease(Duration::from_secs(120)).connect().await.expect("connected");
    let copied =
        client.mutex(place.name("copied")).expect("a good name").lock().await.expect("free");
    let build = || place.builder().lease(Duration::from_secs(120));
    let (name, mark) = (place.name("lost"), place.name("mark"));
    let mut connection = place.connection(0);
    redis::cmd("SET").arg(&mark).arg("x").exec(&mut connection).expect("SET");
    let copies: u64 = redis::cmd("WAIT").arg(1).arg(10_000).query(&mut connection).expect("WAIT");
    assert_eq!(copies, 1);
    let Place::Cluster(cluster) = &place else { unreachable!() };
    let replica = cluster.replicas_of(0)[0];
    cluster.freeze(replica);
    let _: u64 = place.ask(&["CLIENT", "KILL", "TYPE", "replica"]);
    let scene = Scene::set(build, name.clone()).await;
    let Place::Cluster(cluster) = &mut place else { unreachable!() };
    cluster.kill(0);
    cluster.thaw(replica);
    scene.ends_lost("cluster, failover without the last writes").await;
    answered(&copied).await.expect("this one the replica had");
    copied.unlock().await.expect("held");
    place.is_free_on(replica, &name);
    assert!(client.shutdown(BOUND).await.expect("in time").is_clean());
}

/// How a guard ends while the server is away.
#[derive(Clone, Copy, Debug)]
enum End {
    Dropped,
    UnlockedInVain,
}

/// Nobody has the lock, and the server that would know is away: nobody is told that somebody else
/// has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_given_up_while_the_server_is_away_is_nobodys() {
    let cases = [true, false]
        .into_iter()
        .flat_map(|frozen| [End::Dropped, End::UnlockedInVain].map(|end| (frozen, end)));
    join_all(cases.map(|(frozen, end)| given_up(frozen, end))).await;
}

async fn given_up(frozen: bool, end: End) {
    let case = format!("frozen: {frozen}, {end:?}");
    let wait = Duration::from_secs(2);
    let mut server = RedisServer::start();
    let limits = LockClient::builder().command_timeout(wait / 4).outage_limit(wait / 2);
    let client = limits.url(server.url()).connect().await.expect("connected");
    let lock = client.mutex("orders:42").expect("a good name");
    let guard = lock.lock().await.expect("free");
    if frozen {
        server.freeze()
    } else {
        server.stop()
    }
    match end {
        End::Dropped => drop(guard),
        End::UnlockedInVain => {
            let error = guard.unlock().await.expect_err("nobody confirmed it");
            assert!(matches!(error, Error::Unavailable { .. }), "{case}: {error}");
        }
    }
    let before = Instant::now();
    let error = lock.try_lock_for(wait).await.expect_err("nobody was asked");
    assert!(matches!(error, Error::Unavailable { .. }), "{case}: {error}");
    assert!(before.elapsed() >= wait, "{case}: {:?}", before.elapsed());
    let error = lock.try_lock().await.expect_err("nobody was asked");
    assert!(matches!(error, Error::Unavailable { .. }), "{case}: {error}");
    if frozen {
        server.thaw()
    } else {
        server.restart()
    }
    let guard =
        timeout(BOUND, lock.lock()).await.expect("in time").expect("the server is there again");
    guard.unlock().await.expect("held");
    assert!(client.shutdown(BOUND).await.expect("in time").is_clean(), "{case}");
}

/// It waits a moment for the releases of the guards that it has dropped, and no longer because they
/// are of several clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_ends_waits_once_for_all_its_clients() {
    let server = RedisServer::start();
    let (mut clients, mut guards) = (Vec::new(), Vec::new());
    for number in 0..5 {
        let client = LockClient::connect(&server.url()).await.expect("connected");
        guards.push(
            client
                .mutex(format!("lock:{number}"))
                .expect("a good name")
                .lock()
                .await
                .expect("free"),
        );
        clients.push(client);
    }
    server.freeze();
    let before = Instant::now();
    let thread = std::thread::spawn(move || drop(guards));
    tokio::task::spawn_blocking(move || thread.join().expect("its end")).await.expect("its end");
    let took = before.elapsed();
    server.thaw();
    // A fifth of a second for each would be a whole one.
    assert!(took < Duration::from_millis(700), "{took:?}");
}

/// A server moves, and its name with it: in a namespace where the names are ours.
#[test]
fn a_host_name_that_changes_its_address() {
    if cannot_over_fred("driver processes with connections of this crate") {
        return;
    }
    let hosts = std::env::temp_dir().join(format!("lock-test-hosts-{}", std::process::id()));
    let leads_to =
        |address: &str| fs::write(&hosts, format!("{address} redis.test\n")).expect("written");
    leads_to("127.0.0.1");
    let allowed = with_hosts(&hosts).arg("true").status().is_ok_and(|status| status.success());
    assert!(
        allowed,
        "`unshare --map-root-user --mount` is missing or forbidden: host names need a mount namespace"
    );
    let server = RedisServer::start();
    let here = FaultProxy::start(&server.address());
    let url = format!("redis://redis.test:{}", here.port());
    let start = || Puppet::start_with_hosts(&hosts, &url, &["lease_ms=20000"]);
    let (mut holder, mut waiter) = (start(), start());
    let first = holder.run("a lock moves");
    waiter.send("b lock moves");
    waiter.wait("waiting", |event| event["event"] == "waiting");
    let moved = SystemTime::now();
    // As an address that nobody has any more: what is sent there vanishes.
    for way in [Direction::Up, Direction::Down] {
        here.swallow(way, true);
    }
    leads_to("127.0.0.2");
    let there = FaultProxy::at(&format!("127.0.0.2:{}", here.port()), &server.address());
    let _there = there.expect("the other address");
    eventually("the hold is verified", || holder.run("v verify a")["event"] == "info");
    println!("followed after {:?}", moved.elapsed().unwrap_or_default());
    assert_eq!(holder.run("u unlock a")["event"], "unlocked");
    let next = waiter.end_of("b");
    println!("granted to the waiter after {:?}", moved.elapsed().unwrap_or_default());
    assert!(next["token"].as_u64() > first["token"].as_u64(), "{first} {next}");
    assert_eq!(waiter.run("w unlock b")["event"], "unlocked");
    holder.finish();
    waiter.finish();
    let _ = fs::remove_file(hosts);
}
