//! What users of the crate `redis` give: the settings of their client.

use std::time::Duration;

use redis_reentrant_lock::LockClient;

use crate::support::redis_server::RedisServer;

#[tokio::test]
async fn the_settings_of_a_client_of_redis_are_taken() {
    let server = RedisServer::with(&["--requirepass", "secret"]);
    let url = format!("redis://:secret@{}/3?protocol=resp3", server.address());
    let theirs = redis::Client::open(url).expect("an address");
    let locks = LockClient::builder().redis_client(&theirs).connect().await.expect("connected");
    let guard = locks.mutex("orders:42").expect("a name").lock().await.expect("free");
    let mut redis = theirs.get_connection().expect("a connection");
    let there: bool = redis::cmd("EXISTS").arg("orders:42").query(&mut redis).expect("an answer");
    assert!(there, "in its database");
    guard.unlock().await.expect("held");
    assert!(locks.shutdown(Duration::from_secs(10)).await.expect("in time").is_clean());
}
