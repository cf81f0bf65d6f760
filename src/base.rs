//! Values that all other modules use. They know no servers.

#[macro_use]
pub(crate) mod seeded;

pub(crate) mod cell;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod kind;
pub(crate) mod lease;
pub(crate) mod log;
pub(crate) mod majority;
pub(crate) mod map;
pub(crate) mod name;
pub(crate) mod owner;
pub(crate) mod process;
#[cfg(test)]
pub(crate) mod random;
pub(crate) mod stats;
pub(crate) mod yielding;
