//! Redisson's reentrant lock for Tokio, over Redis or Valkey.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod cell;
mod client;
mod clock;
mod config;
mod engine;
mod error;
mod guard;
mod keeper;
mod lease;
mod lock;
mod mutex;
mod name;
mod owner;
mod reentrant_lock;
mod scripts;
mod slot;
mod stats;
mod trace;

#[cfg(feature = "in-memory")]
pub use backend::memory::InMemoryServer;
pub use client::LockClient;
pub use client::LockClientBuilder;
pub use client::ShutdownReport;
pub use clock::Deadline;
pub use config::Keeper;
pub use config::Sharding;
pub use error::Error;
pub use error::LossReason;
pub use error::Result;
pub use guard::Guard;
pub use lock::Holder;
pub use lock::LockOptions;
pub use mutex::Mutex;
pub use name::WireProfile;
pub use owner::Owner;
pub use reentrant_lock::ReentrantLock;
pub use stats::Stats;
