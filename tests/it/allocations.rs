//! How often a lock and an unlock allocate, from the caller to the socket and back.

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::LockClient;

use crate::support::redis_server::RedisServer;

/// All of it happens on this one thread.
#[test]
fn an_uncontended_pair_allocates_no_more_than_it_should() {
    const PAIR: u64 = 22;

    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = server.url();
    let client = runtime.block_on(async {
        LockClient::builder().url(&url).driver(Driver::Current).connect().await.unwrap()
    });
    let lock = client.mutex("counted").unwrap();
    let mut counts = Vec::new();
    for _ in 0..200 {
        let spent = allocation_counter::measure(|| {
            runtime.block_on(async { lock.lock().await.unwrap().unlock().await.unwrap() });
        });
        counts.push((spent.count_total, spent.bytes_total));
    }
    // A reply in two pieces, a map that grows: some take more.
    let (count, bytes) = counts.iter().copied().min().unwrap();
    assert!(count <= PAIR, "{count} allocations, {bytes} bytes: {counts:?}");
    assert!(
        count > PAIR - 10,
        "{count} allocations, {bytes} bytes: lower the limit, so that it guards this"
    );
    drop(client);
}
