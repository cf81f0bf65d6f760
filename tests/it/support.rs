//! What tests run against.

pub(crate) mod proxy;
pub(crate) mod redis_server;
