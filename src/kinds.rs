//! The Lua texts, with typed arguments and replies. One file for each lock kind.

pub(crate) mod reentrant;
