//! A primary that sentinels name: found, followed, and what it no longer knows.

use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;

use crate::support::topology::Topology;

const BOUND: Duration = Duration::from_secs(20);

fn url(set: &Topology, sentinels: &[usize]) -> String {
    let sentinels = set.addresses(sentinels.iter().copied()).join(",");
    format!("redis-sentinel://locks:lock-secret@{sentinels}/main?sentinel_password=sentinel-secret")
}

fn builder(set: &Topology) -> LockClientBuilder {
    LockClient::builder().url(&url(set, &[3, 4, 5]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_a_failover() {
    let mut set = Topology::sentinel();
    let client = builder(&set).connect().await.unwrap();
    let guard = client.mutex("held").unwrap().lock().await.unwrap();
    let started = std::time::SystemTime::now();
    set.begin_failover();
    let new = set.wait_for_other_primary(0);
    println!("promoted after {:?}", started.elapsed());
    guard.verify().await.unwrap();
    let token = guard.fencing_token();
    println!("verified after {:?}", started.elapsed());
    assert!(set.ask::<bool>(new, &["EXISTS", "held"]));
    guard.unlock().await.unwrap();
    assert!(!set.ask::<bool>(new, &["EXISTS", "held"]));
    let again = client.mutex("held").unwrap().lock().await.unwrap();
    assert!(again.fencing_token() > token);
    drop(again);
    assert!(client.shutdown(BOUND).await.unwrap().is_clean());
}
