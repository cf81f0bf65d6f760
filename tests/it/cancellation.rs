//! Futures that are dropped at every moment leave nothing behind.

use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::ReentrantLock;

use crate::support::client::connect;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;

const NAME: &str = "orders:42";
const FUTURES: u64 = 2_000;

/// The same moments in every run.
fn moments() -> impl Iterator<Item = Duration> {
    let mut state = 12_345_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_micros((state >> 40) % 3_000)
    })
}

async fn lock_and_unlock(lock: ReentrantLock, explicitly: bool) {
    // On a link that is cut an error is as good as a grant.
    if let Ok(guard) = lock.lock().await {
        if explicitly {
            let _ = guard.unlock().await;
        }
    }
}

async fn drop_many(lock: &ReentrantLock) {
    let mut tasks = Vec::new();
    for (number, moment) in (0..FUTURES).zip(moments()) {
        let locking = lock_and_unlock(lock.clone(), number % 3 == 0);
        tasks.push(tokio::spawn(async move {
            let _ = tokio::time::timeout(moment, locking).await;
        }));
        if number % 20 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
}

fn nothing_is_left(server: &RedisServer, client: &LockClient) {
    let mut redis = server.connection();
    eventually("nothing is left", || {
        let exists: u32 = redis::cmd("EXISTS").arg(NAME).query(&mut redis).unwrap();
        let channels: Vec<String> =
            redis::cmd("PUBSUB").arg("CHANNELS").arg("*_channel*").query(&mut redis).unwrap();
        let stats = client.stats();
        let gauges = [
            stats.holds,
            stats.waiters,
            stats.registered_renewals,
            stats.subscriptions,
            stats.clean_ups,
        ];
        exists == 0 && channels.is_empty() && gauges == [0; 5]
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_on_a_stable_link() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    drop_many(&client.reentrant_lock(NAME).unwrap()).await;
    assert!(client.stats().grants > 0);
    nothing_is_left(&server, &client);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_on_a_link_that_is_killed_again_and_again() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let client = connect(&proxy.url()).await;
    proxy.kill_every(Some(Duration::from_millis(40)));
    drop_many(&client.reentrant_lock(NAME).unwrap()).await;
    proxy.kill_every(None);
    nothing_is_left(&server, &client);
}
