//! One binary for all integration tests.

#[cfg(feature = "in-memory")]
mod in_memory;
mod reentrant;
mod scripts;
#[allow(dead_code)] // What the tests of one build do not need.
mod support;
