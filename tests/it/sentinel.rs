//! A primary that sentinels name: found, followed, and what a new one no longer knows.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::SystemTime;

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::lives;
use crate::support::look;
use crate::support::redis_server::eventually;
use crate::support::settle::answers;
use crate::support::settle::settles;
use crate::support::topology::Kind;
use crate::support::topology::Plan;
use crate::support::topology::Topology;

/// Generous; longer than the fallback, after which a waiter tries without having been woken.
const BOUND: Duration = Duration::from_secs(10);
const HOLDS: usize = 50;
const WAITERS: usize = 20;

fn url(set: &Topology, sentinels: &[usize]) -> String {
    let sentinels = set.addresses(sentinels.iter().copied()).join(",");
    format!("redis-sentinel://locks:lock-secret@{sentinels}/main?sentinel_password=sentinel-secret")
}

fn builder(set: &Topology) -> LockClientBuilder {
    LockClient::builder().url(url(set, &[3, 4, 5]))
}

async fn shut_down(client: LockClient) {
    assert!(client.shutdown(BOUND).await.unwrap().is_clean());
}

fn since(start: SystemTime) -> Duration {
    start.elapsed().unwrap_or_default()
}

/// Connections of an application to a server that holds data.
fn connections_to(set: &Topology, node: usize) -> usize {
    let list = set.try_ask::<String>(node, &["CLIENT", "LIST"]).unwrap_or_default();
    list.lines().filter(|line| line.contains("user=locks")).count()
}

/// Connections to a sentinel of other kinds than its own: those have names.
fn connections_to_sentinel(set: &Topology, node: usize) -> usize {
    let list = set.try_ask::<String>(node, &["CLIENT", "LIST"]).unwrap_or_default();
    list.lines().filter(|line| line.contains(" name= ") && !line.contains("cmd=client")).count()
}

/// Tasks of two clients that take turns with one lock, and see to it that they do.
struct Turns {
    inside: Mutex<Vec<Arc<Guard>>>,
    stop: AtomicBool,
    done: AtomicU64,
    announced: AtomicU64,
}

impl Turns {
    fn start(clients: &[&LockClient]) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        let turns = Arc::new(Self {
            inside: Mutex::default(),
            stop: AtomicBool::new(false),
            done: AtomicU64::new(0),
            announced: AtomicU64::new(0),
        });
        let tasks = clients.iter().flat_map(|client| [client, client]);
        let tasks = tasks.map(|client| {
            let (turns, client) = (Arc::clone(&turns), (*client).clone());
            tokio::spawn(async move {
                while !turns.stop.load(Ordering::Relaxed) {
                    turns.one(&client).await;
                }
            })
        });
        let tasks = tasks.collect();
        (turns, tasks)
    }

    async fn one(&self, client: &LockClient) {
        let guard = match client.mutex("turns").unwrap().lock().await {
            Ok(guard) => Arc::new(guard),
            Err(error) => panic!("the outage is shorter than the limit: {error}"),
        };
        let others: Vec<Arc<Guard>> = {
            let mut inside = self.inside.lock().unwrap();
            let others = inside.clone();
            inside.push(Arc::clone(&guard));
            others
        };
        for other in others {
            // Not released yet, and already somebody else's: its holder must hear of it with the
            // first reply.
            let _ = other.verify().await;
            assert!(other.loss().is_some(), "two hold the lock, and neither is told");
            assert!(guard.fencing_token() > other.fencing_token());
            self.announced.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.inside.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &guard));
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    async fn end(&self, tasks: Vec<JoinHandle<()>>) {
        self.stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.unwrap();
        }
    }
}

async fn hold_all(client: &LockClient, held: &mut [Option<Guard>]) {
    for (number, place) in held.iter_mut().enumerate() {
        if place.as_ref().is_none_or(|guard| guard.loss().is_some()) {
            *place = None;
            *place = Some(client.mutex(format!("held-{number}")).unwrap().lock().await.unwrap());
        }
    }
}

fn wait_for(client: &LockClient, number: usize) -> JoinHandle<u64> {
    let lock = client.mutex(format!("held-{number}")).unwrap();
    tokio::spawn(async move {
        let guard = lock.lock().await.unwrap();
        let token = guard.fencing_token();
        guard.unlock().await.unwrap();
        token
    })
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Freeze,
    Failover,
}

fn strike(set: &mut Topology, fault: Fault) -> usize {
    let primary = set.primary();
    match fault {
        Fault::Kill => set.kill(primary),
        Fault::Freeze => set.freeze(primary),
        Fault::Failover => set.begin_failover(),
    }
    primary
}

#[tokio::test(flavor = "multi_thread")]
async fn failovers_are_followed_and_what_they_lose_is_told() {
    let mut set = Topology::sentinel();
    let (holder, waiter) =
        (builder(&set).connect().await.unwrap(), builder(&set).connect().await.unwrap());
    let (turns, tasks) = Turns::start(&[&holder, &waiter]);
    let mut held: Vec<Option<Guard>> = (0..HOLDS).map(|_| None).collect();
    for fault in [Fault::Kill, Fault::Freeze, Fault::Failover, Fault::Kill, Fault::Freeze] {
        hold_all(&holder, &mut held).await;
        let before = waiter.stats().waits;
        let waiting: Vec<_> = (0..WAITERS).map(|number| wait_for(&waiter, number)).collect();
        let watched = waiter.clone();
        settles("all wait", move || watched.stats().waits >= before + WAITERS as u64).await;

        let start = SystemTime::now();
        let old = strike(&mut set, fault);
        let new = set.wait_for_other_primary(old);
        let promoted = since(start);
        let known = timeout(BOUND, verify_all(&set, new, &held)).await.unwrap();
        let verified = since(start);
        if matches!(fault, Fault::Failover) {
            eventually("the old primary is left", || connections_to(&set, old) == 0);
        }
        let tokens = release_to(&mut held, waiting).await;
        println!(
            "{fault:?}: promoted after {promoted:?}, all holds verified after {verified:?} ({known} of {HOLDS} known), \
             {tokens} waiters served after {:?}",
            since(start)
        );
        assert_eq!(look::immortal_keys(&mut set.connection(new)), [""; 0]);
        set.rejoin(old, new);
        set.wait_until_whole();
    }
    turns.end(tasks).await;
    println!(
        "{} turns, {} overlaps, each of them told",
        turns.done.load(Ordering::Relaxed),
        turns.announced.load(Ordering::Relaxed)
    );
    held.clear();
    nothing_is_left(set, [holder, waiter]).await;
}

/// Each hold is known to the new primary, or lost with the reason; says how many are known.
async fn verify_all(set: &Topology, primary: usize, held: &[Option<Guard>]) -> usize {
    let mut known = 0;
    for guard in held.iter().flatten() {
        // Until the client is connected there is no answer to tell anything.
        while guard.verify().await.is_err_and(|error| error.is_transient()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let field = guard.hold_id();
        let there: bool = set.ask(primary, &["HEXISTS", guard.name(), &field]);
        match guard.loss() {
            None => assert!(there && guard.is_held(), "{}", guard.name()),
            Some(reason) => assert!(is_by_lost_data(reason), "{}: {reason}", guard.name()),
        }
        known += usize::from(there);
    }
    known
}

/// The new primary does not know the hold; perhaps it has already granted the lock to somebody
/// else.
fn is_by_lost_data(reason: LossReason) -> bool {
    matches!(reason, LossReason::ServerLostData | LossReason::TakenOver)
}

/// Releases what is waited for; says how many waiters were granted it in time.
async fn release_to(held: &mut [Option<Guard>], waiting: Vec<JoinHandle<u64>>) -> usize {
    for guard in held.iter_mut().take(waiting.len()) {
        // A lost one is nobody's any more.
        let _ = guard.take().expect("held until now").unlock().await;
    }
    let mut served = 0;
    for task in waiting {
        timeout(BOUND, task).await.expect("a waiter is stuck").unwrap();
        served += 1;
    }
    served
}

async fn nothing_is_left(set: Topology, clients: [LockClient; 2]) {
    let primary = set.primary();
    let set = Arc::new(set);
    let looked = Arc::clone(&set);
    settles("no lock key is left", move || {
        look::lock_keys(&mut looked.connection(primary)).is_empty()
    })
    .await;
    let looked = Arc::clone(&set);
    settles("no lock channel is subscribed", move || {
        (0..3).all(|node| look::lock_channels(&mut looked.connection(node)).is_empty())
    })
    .await;
    for client in clients {
        shut_down(client).await;
    }
    settles("no connection is left", move || {
        (0..3).all(|node| connections_to(&set, node) == 0)
            && (3..6).all(|node| connections_to_sentinel(&set, node) == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_servers_lose_is_told_and_what_they_refuse_is_tried_again() {
    let mut set = Plan::new(Kind::Sentinel).config("appendonly yes\nappendfsync always").start();
    // No renewal within the test: only the change of the primary can tell of a loss.
    let client = builder(&set).lease(Duration::from_secs(120)).connect().await.unwrap();
    let other = builder(&set).connect().await.unwrap();
    writes_without_replicas(&set, &client).await;
    restarts(&mut set, &client).await;
    lost_writes(&mut set, &client, &other).await;
    lives::of_other_kinds(&client, &other, "kinds").await;
    shut_down(client).await;
    shut_down(other).await;
}

/// `min-replicas-to-write`: refused for now, and granted within the wait once a replica is back.
async fn writes_without_replicas(set: &Topology, client: &LockClient) {
    let _: String = set.ask(0, &["CONFIG", "SET", "min-replicas-to-write", "3"]);
    let lock = client.mutex("refused").unwrap();
    let error = lock.try_lock().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("NOREPLICAS"), "{error}");
    let waiting = lock.clone();
    let waiter = tokio::spawn(async move { waiting.try_lock_for(BOUND).await });
    let watched = client.clone();
    settles("it waits", move || watched.stats().waiters == 1).await;
    let _: String = set.ask(0, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let guard = waiter.await.unwrap().unwrap().expect("free");
    guard.unlock().await.unwrap();
}

/// A restart with its data loses no hold; one without loses all, and says so.
async fn restarts(set: &mut Topology, client: &LockClient) {
    let kept = client.mutex("kept").unwrap().lock().await.unwrap();
    set.restart(0);
    timeout(BOUND, answers(client)).await.unwrap();
    kept.verify().await.unwrap();
    set.restart_empty(0);
    assert_eq!(timeout(BOUND, kept.lost()).await.unwrap(), LossReason::ServerLostData);
    assert_eq!(set.primary(), 0, "too short for a failover");
    set.wait_until_whole();
}

/// A failover to a replica that never got the last writes.
async fn lost_writes(set: &mut Topology, client: &LockClient, other: &LockClient) {
    let copied = client.mutex("copied").unwrap().lock().await.unwrap();
    let watched = ["WAIT", "2", "5000"];
    let mut connection = set.connection(0);
    let _: u64 = redis::cmd("SET")
        .arg("copied-too")
        .arg("x")
        .query::<String>(&mut connection)
        .map(|_| 0)
        .unwrap();
    let copies: u64 =
        redis::cmd(watched[0]).arg(watched[1]).arg(watched[2]).query(&mut connection).unwrap();
    assert_eq!(copies, 2);
    let _: u64 = redis::cmd("DEL").arg("copied-too").query(&mut connection).unwrap();
    set.freeze(1);
    set.freeze(2);
    // The links end here: what is written from now on reaches nobody.
    let _: u64 =
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("replica").query(&mut connection).unwrap();
    let options = LockOptions::new().lease(Duration::from_secs(100));
    let fixed = client.mutex("lost-fixed").unwrap().lock_with(options).await.unwrap().unwrap();
    let renewed = client.mutex("lost-watched").unwrap().lock().await.unwrap();
    let lock = other.mutex("lost-watched").unwrap();
    let waiter = tokio::spawn(async move { lock.lock().await });
    let watched = other.clone();
    settles("it waits", move || watched.stats().subscriptions == 1).await;
    set.kill(0);
    set.thaw(1);
    set.thaw(2);
    let start = SystemTime::now();
    assert_eq!(timeout(3 * BOUND, fixed.lost()).await.unwrap(), LossReason::ServerLostData);
    let reason = timeout(BOUND, renewed.lost()).await.unwrap();
    assert!(is_by_lost_data(reason), "{reason}");
    assert!(!fixed.is_held() && !renewed.is_held());
    println!("lost writes: told after {:?}", since(start));
    let granted = timeout(BOUND, waiter).await.expect("stuck").unwrap().unwrap();
    assert!(granted.fencing_token() > renewed.fencing_token());
    copied.verify().await.unwrap();
    granted.unlock().await.unwrap();
    copied.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_are_away_or_refuse_are_named() {
    let mut set = Topology::sentinel();
    wrong_settings(&set).await;

    // Any one of them will do, wherever it stands in the list.
    set.kill(3);
    set.freeze(4);
    for sentinels in [&[3, 4, 5][..], &[5, 4, 3], &[5]] {
        let client = LockClient::connect(&url(&set, sentinels)).await.unwrap();
        client.mutex("any").unwrap().lock().await.unwrap().unlock().await.unwrap();
        shut_down(client).await;
    }
    set.thaw(4);

    // With none at all what is connected stays, and nothing new is.
    let client = builder(&set).connect().await.unwrap();
    let held = client.mutex("kept").unwrap().lock().await.unwrap();
    set.kill(4);
    set.kill(5);
    held.verify().await.unwrap();
    client.mutex("more").unwrap().lock().await.unwrap().unlock().await.unwrap();
    let late =
        builder(&set).connect_timeout(Duration::from_millis(500)).connect().await.unwrap_err();
    assert!(late.is_transient(), "{late}");
    for sentinel in 3..6 {
        assert!(late.to_string().contains(&set.address(sentinel)), "{late}");
    }
    assert!(late.to_string().contains("refused"), "{late}");
    set.restart(0);
    let away = client.mutex("more").unwrap().try_lock().await.unwrap_err();
    assert!(away.is_transient(), "{away}");
    for sentinel in 3..6 {
        set.restart(sentinel);
    }
    assert_eq!(timeout(BOUND, held.lost()).await.unwrap(), LossReason::ServerLostData);
    client.mutex("more").unwrap().lock().await.unwrap().unlock().await.unwrap();
    drop(held);
    shut_down(client).await;
}

async fn wrong_settings(set: &Topology) {
    let sentinels = set.addresses(3..6).join(",");
    let failed = async |rest: &str| {
        let (login, end) = rest.split_once('@').unwrap();
        let url = format!("redis-sentinel://{login}@{sentinels}/{end}");
        LockClient::connect(&url).await.unwrap_err()
    };
    let error = failed("locks:lock-secret@main?sentinel_password=hunter2").await;
    assert!(matches!(error, redis_reentrant_lock::Error::Auth { .. }), "{error}");
    assert!(
        error.to_string().contains(&set.address(3)) && !error.to_string().contains("hunter2"),
        "{error}"
    );
    let error = failed("locks:hunter2@main?sentinel_password=sentinel-secret").await;
    assert!(matches!(error, redis_reentrant_lock::Error::Auth { .. }), "{error}");
    assert!(
        error.to_string().contains(&set.address(0)) && !error.to_string().contains("hunter2"),
        "{error}"
    );
    let error = failed("locks:lock-secret@other?sentinel_password=sentinel-secret").await;
    assert!(error.is_config() && error.to_string().contains("\"other\""), "{error}");
}
