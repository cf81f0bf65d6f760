//! The backend against real servers. The rules are those of `link`, `client`, `calls` and `pubsub`; each of their
//! tests fails when the rule is dropped.

pub(crate) mod driver;
mod names;
mod order;
mod replies;
mod rules;
mod sentinels;
mod servers;

// The integration tests have these two, too.
#[allow(dead_code)]
pub(crate) mod proxy;
#[allow(dead_code)]
pub(crate) mod redis_server;
