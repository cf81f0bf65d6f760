//! What tests run against.

pub(crate) mod calls;
pub(crate) mod client;
#[path = "../../src/base/log/hearing.rs"]
pub(crate) mod hearing;
pub(crate) mod lives;
pub(crate) mod look;
pub(crate) mod permits;
#[path = "../../src/backend/redis/tests/proxy.rs"]
pub(crate) mod proxy;
pub(crate) mod puppet;
#[path = "../../src/backend/redis/tests/redis_server.rs"]
pub(crate) mod redis_server;
pub(crate) mod settle;
pub(crate) mod tls_server;
pub(crate) mod topology;

/// The root of the repository.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
