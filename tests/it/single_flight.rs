//! Single flight: of many callers that want a value, one computes it. Against a real server, within
//! a process and between processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Lookup;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::WireProfile;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::client::connect;
use crate::support::look;
use crate::support::puppet::Puppet;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

const NAME: &str = "flight:7";
const CHANNEL: &str = "redisson_lock__channel__{flight:7}";
/// Within this time everything ends that ends at all.
const BOUND: Duration = Duration::from_secs(30);

/// A value that all clients of a test look for, and how it is computed.
#[derive(Default)]
struct Cache {
    value: Mutex<Option<Lookup<u32>>>,
    looks: AtomicU32,
    computed: AtomicU32,
    /// A computation waits until it is told to end.
    end: Notify,
}

/// What a computation does when it is told to end.
#[derive(Clone, Copy)]
enum End {
    Store,
    Fail,
}

#[derive(Debug, PartialEq)]
struct Failed;

impl Cache {
    fn set(&self, value: Lookup<u32>) {
        *self.value.lock().unwrap() = Some(value);
    }

    fn look(&self) -> std::result::Result<Lookup<u32>, Failed> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        Ok(self.value.lock().unwrap().unwrap_or(Lookup::Missing))
    }

    async fn compute(&self, end: End) -> std::result::Result<u32, Failed> {
        let number = self.computed.fetch_add(1, Ordering::SeqCst) + 1;
        self.end.notified().await;
        match end {
            End::Store => self.set(Lookup::Fresh(number)),
            End::Fail => return Err(Failed),
        }
        Ok(number)
    }

    fn computed(&self) -> u32 {
        self.computed.load(Ordering::SeqCst)
    }

    async fn computes(self: &Arc<Self>, number: u32) {
        let cache = Arc::clone(self);
        settles("it is computed", move || cache.computed() >= number).await;
    }
}

type Caller = JoinHandle<Result<std::result::Result<u32, Failed>>>;

/// A task that wants the value.
fn wants(client: &LockClient, cache: &Arc<Cache>, end: End) -> Caller {
    let flight = client.single_flight(NAME).unwrap();
    let cache = Arc::clone(cache);
    tokio::spawn(async move {
        flight.run(async || cache.look(), async |_| cache.compute(end).await).await
    })
}

async fn result(caller: Caller) -> Result<std::result::Result<u32, Failed>> {
    timeout(BOUND, caller).await.expect("it ends").expect("no panic")
}

async fn value(caller: Caller) -> u32 {
    result(caller).await.expect("the lock works").expect("computed")
}

/// Another client has subscribed to watch the leader.
async fn is_watched(server: &RedisServer) {
    let mut redis = server.connection();
    settles("it is watched", move || !look::lock_channels(&mut redis).is_empty()).await;
}

#[tokio::test]
async fn what_is_fresh_is_returned_without_the_lock() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let cache = Arc::new(Cache::default());
    cache.set(Lookup::Fresh(7));
    let mut redis = server.connection();
    let before = look::script_runs(&mut redis);
    assert_eq!(value(wants(&client, &cache, End::Store)).await, 7);
    assert_eq!(look::script_runs(&mut redis), before);
    assert_eq!(cache.computed(), 0);
}

#[tokio::test]
async fn one_computes_and_all_others_of_all_clients_get_the_value() {
    for profile in [WireProfile::Native, WireProfile::Redisson] {
        let server = RedisServer::start();
        let client = async || builder(&server.url()).profile(profile).connect().await.unwrap();
        let (leading, following) = (client().await, client().await);
        let cache = Arc::new(Cache::default());
        let leader = wants(&leading, &cache, End::Store);
        cache.computes(1).await;
        let followers: Vec<Caller> = [&leading, &following]
            .iter()
            .cycle()
            .take(40)
            .map(|client| wants(client, &cache, End::Store))
            .collect();
        is_watched(&server).await;
        let seen = Arc::clone(&cache);
        settles("all have looked", move || seen.looks.load(Ordering::SeqCst) >= 42).await;
        cache.end.notify_one();
        assert_eq!(value(leader).await, 1);
        for follower in followers {
            assert_eq!(value(follower).await, 1);
        }
        assert_eq!(cache.computed(), 1);
        let (led, followed) = (leading.stats(), following.stats());
        assert_eq!((led.grants, followed.grants), (1, 0), "nobody takes the lock after a success");
        // Two of the leader, one of each follower, and one of the client that has watched.
        assert_eq!(cache.looks.load(Ordering::SeqCst), 43);
        leaves_nothing(&server, &leading).await;
        leaves_nothing(&server, &following).await;
    }
}

#[tokio::test]
async fn whoever_finds_a_stale_value_takes_it_while_another_computes() {
    let server = RedisServer::start();
    let (leading, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let cache = Arc::new(Cache::default());
    cache.set(Lookup::Stale(100));
    let leader = wants(&leading, &cache, End::Store);
    cache.computes(1).await;
    assert_eq!(value(wants(&other, &cache, End::Store)).await, 100);
    assert_eq!(value(wants(&leading, &cache, End::Store)).await, 100, "of the same client");
    cache.end.notify_one();
    assert_eq!(value(leader).await, 1);
    assert_eq!(cache.computed(), 1);
}

/// A value that nobody can compute anew just now is better than none.
#[tokio::test]
async fn a_stale_value_is_returned_while_the_server_is_away() {
    let mut server = RedisServer::start();
    let client =
        builder(&server.url()).command_timeout(Duration::from_millis(200)).connect().await.unwrap();
    server.stop();
    let cache = Arc::new(Cache::default());
    cache.set(Lookup::Stale(100));
    assert_eq!(value(wants(&client, &cache, End::Store)).await, 100);
    cache.set(Lookup::Missing);
    let missing = result(wants(&client, &cache, End::Store)).await;
    assert!(matches!(missing, Err(Error::Unavailable { .. })), "{missing:?}");
    assert_eq!(cache.computed(), 0);
}

#[tokio::test]
async fn after_a_failure_exactly_one_computes_next() {
    let server = RedisServer::start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let cache = Arc::new(Cache::default());
    let leader = wants(&first, &cache, End::Fail);
    cache.computes(1).await;
    let followers: Vec<Caller> = [&first, &second]
        .iter()
        .cycle()
        .take(20)
        .map(|client| wants(client, &cache, End::Store))
        .collect();
    is_watched(&server).await;
    cache.end.notify_one();
    assert_eq!(result(leader).await.unwrap(), Err(Failed), "an error is its own caller's");
    cache.computes(2).await;
    cache.end.notify_one();
    for follower in followers {
        assert_eq!(value(follower).await, 2);
    }
    assert_eq!(cache.computed(), 2);
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_its_part_to_another() {
    let server = RedisServer::start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let cache = Arc::new(Cache::default());
    let leader = wants(&first, &cache, End::Store);
    cache.computes(1).await;
    // The first of the second client watches for both.
    let watching = wants(&second, &cache, End::Store);
    is_watched(&server).await;
    let heir = wants(&second, &cache, End::Store);
    watching.abort();
    leader.abort();
    cache.computes(2).await;
    cache.end.notify_one();
    assert_eq!(value(heir).await, 2);
    leaves_nothing(&server, &first).await;
    leaves_nothing(&server, &second).await;
}

#[tokio::test]
async fn a_computation_that_loses_the_lock_is_dropped() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let server = RedisServer::start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let cache = Arc::new(Cache::default());
    let gone = Arc::new(AtomicBool::new(false));
    let flight = first.single_flight(NAME).unwrap();
    let (seen, dropped) = (Arc::clone(&cache), Dropped(Arc::clone(&gone)));
    let leader: Caller = tokio::spawn(async move {
        let compute = async |_: &_| {
            let _dropped = dropped;
            seen.computed.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        };
        flight.run(async || Ok(Lookup::Missing), compute).await
    });
    cache.computes(1).await;
    assert!(second.mutex(NAME).unwrap().force_unlock().await.unwrap());
    let lost = result(leader).await;
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    assert!(gone.load(Ordering::SeqCst));
    let next = wants(&second, &cache, End::Store);
    cache.computes(2).await;
    cache.end.notify_one();
    assert_eq!(value(next).await, 2);
}

#[tokio::test]
async fn a_computation_without_an_end_is_dropped_at_its_limit() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let flight = client.single_flight(NAME).unwrap().max_hold(Duration::from_millis(300));
    let found: Result<std::result::Result<u32, Failed>> = timeout(
        BOUND,
        flight.run(async || Ok(Lookup::Missing), async |_| std::future::pending().await),
    )
    .await
    .expect("it ends");
    assert!(matches!(found, Err(Error::Lost { .. })), "{found:?}");
    let refused = flight.lease(Duration::from_secs(9));
    let refused = refused.run(async || Ok(Lookup::Missing), async |_| Err::<u32, _>(Failed)).await;
    assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
}

/// A hand-off would tell nobody who watches.
#[tokio::test]
async fn a_leader_hands_off_to_nobody() {
    let server = RedisServer::start();
    let (leading, following) = (connect(&server.url()).await, connect(&server.url()).await);
    let cache = Arc::new(Cache::default());
    let leader = wants(&leading, &cache, End::Store);
    cache.computes(1).await;
    let mutex = leading.mutex(NAME).unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    let waiting = leading.clone();
    settles("it waits", move || waiting.stats().waiters > 0).await;
    let follower = wants(&following, &cache, End::Store);
    is_watched(&server).await;
    cache.end.notify_one();
    value(leader).await;
    assert_eq!(value(follower).await, 1);
    let guard = timeout(BOUND, waiter).await.expect("granted").unwrap();
    assert_eq!(leading.stats().hand_offs, 0);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_key_that_is_no_lock_is_left_alone() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let mut redis = server.connection();
    let _: () = redis::cmd("SET").arg(NAME).arg("data").query(&mut redis).unwrap();
    let found = result(wants(&client, &Arc::default(), End::Store)).await;
    assert!(matches!(found, Err(Error::KeyConflict { .. })), "{found:?}");
    let data: String = redis::cmd("GET").arg(NAME).query(&mut redis).unwrap();
    assert_eq!(data, "data");
}

// ---- between processes

/// Where puppets keep a value and its log. Removed when dropped.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flight-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn value(&self) -> String {
        self.0.join("value").to_str().unwrap().to_owned()
    }

    /// What was computed.
    fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.join("value.log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn led(event: &Value) -> bool {
    assert_eq!(event["event"], "info", "{event}");
    event["led"] == true
}

fn is_held(server: &RedisServer) {
    let mut redis = server.connection();
    eventually("there is a leader", || !look::hash(&mut redis, NAME).is_empty());
}

fn watch(server: &RedisServer, processes: u64) {
    let mut redis = server.connection();
    eventually("they watch", || look::subscribers(&mut redis, CHANNEL) == processes);
}

#[test]
fn a_thousand_callers_in_four_processes_compute_once() {
    let server = RedisServer::start();
    let files = Files::new("thousand");
    let mut puppets: Vec<Puppet> = (0..4).map(|_| Puppet::start(&server.url(), &[])).collect();
    let path = files.value();
    puppets[0].send(&format!("lead flight {NAME} {path} work_ms=5000"));
    is_held(&server);
    for puppet in &mut puppets {
        puppet.send_all((0..250).map(|number| format!("f{number} flight {NAME} {path}")));
        puppet.run("all ping");
    }
    watch(&server, 3);
    let lead = puppets[0].end_of("lead");
    assert!(led(&lead));
    for puppet in &mut puppets {
        for number in 0..250 {
            let event = puppet.end_of(&format!("f{number}"));
            assert!(!led(&event));
            assert_eq!(event["value"], lead["value"]);
        }
    }
    assert_eq!(files.log(), [lead["value"].as_str().unwrap()]);
    let grants = |puppet: &mut Puppet| puppet.run("s stats")["counters"]["grants"].as_u64();
    assert_eq!(puppets.iter_mut().map(|puppet| grants(puppet).unwrap()).sum::<u64>(), 1);
}

#[test]
fn after_a_leader_that_fails_another_process_computes() {
    let server = RedisServer::start();
    let files = Files::new("fails");
    let mut puppets: Vec<Puppet> = (0..3).map(|_| Puppet::start(&server.url(), &[])).collect();
    let path = files.value();
    puppets[0].send(&format!("lead flight {NAME} {path} work_ms=1000 fails=1"));
    is_held(&server);
    for puppet in &mut puppets[1..] {
        puppet.send(&format!("f flight {NAME} {path}"));
    }
    watch(&server, 2);
    assert_eq!(puppets[0].end_of("lead")["kind"], "failed");
    let ends: Vec<Value> = puppets[1..].iter_mut().map(|puppet| puppet.end_of("f")).collect();
    assert_eq!(ends.iter().filter(|event| led(event)).count(), 1, "{ends:?}");
    assert_eq!(ends[0]["value"], ends[1]["value"]);
    assert_eq!(files.log(), ["failed", ends[0]["value"].as_str().unwrap()]);
}

#[test]
fn after_a_leader_that_is_killed_exactly_one_computes() {
    let server = RedisServer::start();
    let files = Files::new("killed");
    let mut puppets: Vec<Puppet> =
        (0..3).map(|_| Puppet::start(&server.url(), &["lease_ms=1000"])).collect();
    let path = files.value();
    puppets[0].send(&format!("lead flight {NAME} {path} work_ms=60000"));
    is_held(&server);
    for puppet in &mut puppets[1..] {
        puppet.send(&format!("f flight {NAME} {path} work_ms=100"));
    }
    watch(&server, 2);
    puppets[0].kill();
    let ends: Vec<Value> = puppets[1..].iter_mut().map(|puppet| puppet.end_of("f")).collect();
    assert_eq!(ends.iter().filter(|event| led(event)).count(), 1, "{ends:?}");
    assert_eq!(files.log(), [ends[0]["value"].as_str().unwrap()]);
}
