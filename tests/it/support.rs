//! What tests run against.

#[path = "../../xtask/src/certs.rs"]
pub(crate) mod certs;
pub(crate) mod client;
pub(crate) mod driver;
pub(crate) mod hearing;
pub(crate) mod look;
pub(crate) mod proxy;
pub(crate) mod redis_server;
pub(crate) mod settle;
pub(crate) mod tls_server;
pub(crate) mod topology;

/// The root of the repository.
pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");
