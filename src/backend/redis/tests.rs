//! The backend against real servers. The rules are those of `link`, `calls`, `commands` and
//! `pubsub`; each test fails if its rule is dropped.

pub(crate) mod driver;
mod names;
mod order;
mod replies;
mod rules;
mod sentinels;
mod servers;

// The integration tests include these two as well, and use more of them.
#[allow(dead_code)]
pub(crate) mod proxy;
#[allow(dead_code)]
pub(crate) mod redis_server;
