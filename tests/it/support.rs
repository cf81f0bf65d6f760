//! What tests run against.

pub(crate) mod driver;
pub(crate) mod look;
pub(crate) mod proxy;
pub(crate) mod redis_server;
pub(crate) mod settle;
pub(crate) mod topology;
