//! The promises of the lock while replies are lost and connections cut.

use std::time::Duration;

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Owner;

use crate::support::client::builder;
use crate::support::look;
use crate::support::proxy::Fault;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

async fn client(url: &str, lease: Duration) -> LockClient {
    builder(url)
        .lease(lease)
        .command_timeout(Duration::from_millis(500))
        .connect()
        .await
        .expect("connected")
}

/// Small and seeded: a failure can be run again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reply_lost_once_leaves_the_counts_exact() {
    const OPERATIONS: u32 = 500;
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let client = client(&proxy.url(), Duration::from_secs(30)).await;
    let lock = client.reentrant_lock("counts").unwrap();
    let field = format!("{}:", client.id());
    let mut connection = server.connection();
    let mut dice = Dice(0x5eed);
    let mut guards: Vec<Guard> = Vec::new();
    Owner::new()
        .scope(async {
            for operation in 0..OPERATIONS {
                // The reply to the next script run of this client is lost: executed, and nobody
                // knows.
                proxy.once(&field, Fault::CutBeforeReply);
                let grow = guards.is_empty() || (guards.len() < 5 && dice.below(2) == 0);
                if grow {
                    guards.push(lock.lock().await.expect("locked"));
                } else {
                    let at = usize::try_from(dice.below(guards.len() as u64)).unwrap();
                    guards.swap_remove(at).unlock().await.expect("unlocked");
                }
                assert_eq!(proxy.clear(), 0, "operation {operation}: its reply was not lost");
                let count = u32::try_from(guards.len()).unwrap();
                assert_eq!(lock.hold_count().unwrap(), count, "operation {operation}");
                let on_server: Vec<String> =
                    look::hash(&mut connection, "counts").into_values().collect();
                let wanted: Vec<String> =
                    (count > 0).then(|| count.to_string()).into_iter().collect();
                assert_eq!(
                    on_server, wanted,
                    "operation {operation}: answered in the end, so exact"
                );
            }
        })
        .await;
    guards.clear();
    leaves_nothing(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_to_renewals_lose_no_hold() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let client = client(&proxy.url(), Duration::from_secs(3)).await;
    let guard = client.mutex("renewed").unwrap().lock().await.unwrap();
    for _ in 0..5 {
        let before = client.stats().renewals;
        proxy.once(&guard.hold_id(), Fault::CutBeforeReply);
        let watched = client.clone();
        settles("a renewal is confirmed", move || watched.stats().renewals > before).await;
        assert_eq!(proxy.clear(), 0, "no renewal's reply was lost");
        assert!(guard.is_held());
    }
    assert!(client.stats().renewal_failures >= 5);
    guard.unlock().await.unwrap();
    leaves_nothing(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_to_hand_offs_lose_no_waiter() {
    const WAITERS: usize = 60;
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let client = client(&proxy.url(), Duration::from_secs(30)).await;
    let lock = client.mutex("handed").unwrap();
    let first = lock.lock().await.unwrap();
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                let token = guard.fencing_token();
                guard.unlock().await.unwrap();
                token
            })
        })
        .collect();
    let waiting = client.clone();
    settles("all wait", move || waiting.stats().waiters == WAITERS as u64).await;
    // Every third hand-off, or what is sent in its place.
    for number in 0..20 {
        proxy.nth("redisson_lock__channel__{handed}", number * 3, 1, Fault::CutBeforeReply);
    }
    first.unlock().await.unwrap();
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.push(task.await.unwrap());
    }
    proxy.clear();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), WAITERS, "every grant has a token of its own");
    leaves_nothing(&server, &client).await;
}

/// Two clients pass one lock back and forth; returns how long each waited for it once it was free.
async fn hand_overs(
    server: &RedisServer,
    proxy: &FaultProxy,
    number: usize,
) -> (Vec<Duration>, u64) {
    let near = client(&proxy.url(), Duration::from_secs(30)).await;
    let far = client(&server.url(), Duration::from_secs(30)).await;
    let (mine, theirs) = (near.mutex("passed").unwrap(), far.mutex("passed").unwrap());
    let mut waits = Vec::new();
    for round in 0..number {
        let holder = theirs.lock().await.unwrap();
        let before = near.stats().waits;
        let lock = mine.clone();
        let waiter = tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            (std::time::SystemTime::now(), guard)
        });
        let waiting = near.clone();
        settles("the other one waits", move || waiting.stats().waits > before).await;
        if round % 2 == 0 {
            // The subscriber's connection dies, and the release is published into the gap.
            let mut connection = server.connection();
            let _: u64 = redis::cmd("CLIENT")
                .arg("KILL")
                .arg("TYPE")
                .arg("pubsub")
                .query(&mut connection)
                .unwrap();
        }
        let released = std::time::SystemTime::now();
        holder.unlock().await.unwrap();
        let (granted, guard) = waiter.await.unwrap();
        waits.push(granted.duration_since(released).unwrap_or_default());
        guard.unlock().await.unwrap();
    }
    (waits, near.stats().fallback_grants)
}

#[tokio::test(flavor = "multi_thread")]
async fn hand_overs_survive_a_dying_subscriber() {
    const NUMBER: usize = 200;
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let (mut waits, by_fallback) = hand_overs(&server, &proxy, NUMBER).await;
    waits.sort_unstable();
    let at = |part: usize| waits[(NUMBER - 1) * part / 100];
    println!(
        "{NUMBER} hand-overs, subscriber killed in every second: p50 {:?}, p90 {:?}, p99 {:?}, max {:?}; {by_fallback} by the fallback poll",
        at(50),
        at(90),
        at(99),
        at(100)
    );
    assert!(
        by_fallback <= NUMBER as u64 / 20,
        "{by_fallback} hand-overs waited for the fallback poll"
    );
}

/// As a proxy does that has lost its server.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_greets_and_hangs_up_is_not_dialled_all_the_time() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    for first_question in ["\r\nTIME\r\n", "redisson_lock__client:{"] {
        proxy.nth(first_question, 0, u64::MAX, Fault::CutBeforeRequest);
    }
    let client = builder(&proxy.url()).connect_lazy().unwrap();
    let lock = client.mutex("lock").unwrap();
    let waiter = tokio::spawn(async move { lock.lock().await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    for command in ["TIME", "SUBSCRIBE"] {
        let asked = proxy.seen(command);
        assert!((2..=40).contains(&asked), "{command}: {asked} times in 3 s");
    }
    assert_eq!(proxy.clear(), 2);
    waiter.await.unwrap().unwrap().unlock().await.unwrap();
    leaves_nothing(&server, &client).await;
}
