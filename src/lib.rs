//! Redisson's reentrant lock for Tokio, over Redis or Valkey.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod cell;
mod clock;
mod config;
mod engine;
mod error;
mod lease;
mod name;
mod owner;
mod scripts;
mod stats;

#[cfg(feature = "in-memory")]
pub use backend::memory::InMemoryServer;
pub use clock::Deadline;
pub use config::Keeper;
pub use config::Sharding;
pub use error::Error;
pub use error::LossReason;
pub use error::Result;
pub use name::WireProfile;
pub use owner::Owner;
pub use stats::Stats;
