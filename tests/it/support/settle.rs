//! Waiting until nothing is left.

use redis_reentrant_lock::LockClient;

use crate::support::look;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;

/// Runs `condition` on a thread where it may block, until it holds.
pub(crate) async fn settles(what: &'static str, condition: impl FnMut() -> bool + Send + 'static) {
    tokio::task::spawn_blocking(move || eventually(what, condition)).await.expect(what);
}

/// Nothing of a client is left on the server, nor in the client.
pub(crate) async fn leaves_nothing(server: &RedisServer, client: &LockClient) {
    let mut connection = server.connection();
    settles("no lock and no waiting line is left", move || look::keys(&mut connection).is_empty())
        .await;
    let mut connection = server.connection();
    settles("no lock channel is subscribed", move || {
        look::lock_channels(&mut connection).is_empty()
    })
    .await;
    let client = client.clone();
    settles("all gauges are 0", move || {
        let stats = client.stats();
        [
            stats.holds,
            stats.waiters,
            stats.registered_renewals,
            stats.subscriptions,
            stats.clean_ups,
        ] == [0; 5]
    })
    .await;
}

/// Waits until a ping of a client is answered.
pub(crate) async fn answers(client: &LockClient) {
    while client.ping().await.is_err() {
        tokio::task::yield_now().await;
    }
}
