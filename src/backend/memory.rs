//! The same Lua in an embedded interpreter.
