//! Ten thousand holds of one name by one client.

use std::time::Duration;

use redis::Connection;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::WireProfile;
use tokio::time::Instant;

use crate::support::client::builder;
use crate::support::look;
use crate::support::redis_server::RedisServer;
use crate::support::settle::settles;

const HOLDS: u32 = 10_000;
const FIRST: u32 = 100;
/// Long enough to take all of them before the first is renewed.
const LEASE: Duration = Duration::from_secs(30);

async fn world(profile: WireProfile) -> (RedisServer, LockClient, Connection) {
    let server = RedisServer::start();
    let client = builder(&server.url()).profile(profile).lease(LEASE).connect().await.unwrap();
    let redis = server.connection();
    (server, client, redis)
}

/// Takes them, prints what a grant took among few and among many, and waits until each was renewed.
async fn holds<G, F: Future<Output = Result<G>>>(
    what: &str,
    client: &LockClient,
    redis: &mut Connection,
    take: impl Fn() -> F,
) {
    let mut guards = Vec::new();
    let mut times = Vec::new();
    for count in [FIRST, HOLDS - 2 * FIRST, FIRST] {
        let started = Instant::now();
        for _ in 0..count {
            guards.push(take().await.unwrap());
        }
        times.push(started.elapsed() / count);
    }
    println!("{what}: {:?} a grant among the first, {:?} among the last", times[0], times[2]);
    assert_eq!(client.stats().holds, u64::from(HOLDS));
    let (calls, renewals) = (look::calls(redis, "evalsha"), client.stats().renewals);
    let wanted = renewals + u64::from(HOLDS);
    let counting = client.clone();
    settles("each hold is renewed", move || counting.stats().renewals >= wanted).await;
    let (calls, renewals) =
        (look::calls(redis, "evalsha") - calls, client.stats().renewals - renewals);
    println!("{what}: {renewals} renewals in {calls} scripts");
    assert!(calls * 20 <= renewals, "{renewals} renewals in {calls} scripts");
    assert_eq!(client.stats().losses, 0);
}

#[tokio::test]
async fn ten_thousand_reads_of_one_name_are_renewed_in_batches() {
    let (_server, client, mut redis) = world(WireProfile::Native).await;
    let lock = client.rw_lock("catalog").unwrap();
    holds("reads", &client, &mut redis, || Owner::new().scope(lock.read())).await;
}

#[tokio::test]
async fn ten_thousand_permits_of_one_semaphore_are_renewed_in_batches() {
    permits(WireProfile::Native).await;
}

#[tokio::test]
async fn ten_thousand_permits_of_one_semaphore_of_redisson_are_renewed_in_batches() {
    permits(WireProfile::Redisson).await;
}

async fn permits(profile: WireProfile) {
    let (_server, client, mut redis) = world(profile).await;
    let semaphore = client.semaphore("exports", HOLDS).unwrap();
    holds("permits", &client, &mut redis, || semaphore.acquire()).await;
}
