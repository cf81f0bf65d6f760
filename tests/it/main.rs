//! One binary for all integration tests.

#[cfg(feature = "in-memory")]
mod in_memory;
