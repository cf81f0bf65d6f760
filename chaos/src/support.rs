//! What the integration tests have too: their proxy, their servers.

#[path = "../../tests/it/support/client.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
pub(crate) mod client;
#[path = "../../src/backend/redis/tests/proxy.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
pub(crate) mod proxy;
#[path = "../../src/backend/redis/tests/redis_server.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
pub(crate) mod redis_server;
#[path = "../../tests/it/support/topology.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
pub(crate) mod topology;

/// The root of the repository.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
