//! What is printed: one JSON object a line.

use std::fmt::Display;
use std::io::Write;

use redis_reentrant_lock::Error;
use serde_json::Value;
use serde_json::json;

/// Prints one event.
pub(crate) fn emit(id: Option<&str>, event: &str, fields: Value) {
    let boot_ns = boot_ns();
    let mut line = format!("{{\"id\":{},\"event\":\"{event}\",\"boot_ns\":{boot_ns}", json!(id));
    if let Value::Object(fields) = fields {
        for (key, value) in fields {
            line.push_str(&format!(",{}:{value}", json!(key)));
        }
    }
    line.push_str("}\n");
    // If it fails, the reader has gone; then the input ends too, and this process with it.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

pub(crate) fn boot_ns() -> u64 {
    let time = rustix::time::clock_gettime(BOOT_CLOCK);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What an `error` event says.
pub(crate) struct Failure {
    kind: &'static str,
    message: String,
}

impl Failure {
    pub(crate) fn new(kind: &'static str, message: impl Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    pub(crate) fn bad(message: impl Display) -> Self {
        Self::new("bad_command", message)
    }

    pub(crate) fn fields(&self) -> Value {
        json!({ "kind": self.kind, "message": self.message })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::InvalidName { .. } => "invalid_name",
            Error::InvalidOption { .. } => "invalid_option",
            Error::InvalidUrl { .. } => "invalid_url",
            Error::NoOwner => "no_owner",
            Error::Unavailable { .. } => "unavailable",
            Error::Lost { .. } | Error::GuardOfLostHold { .. } => "lost",
            Error::KeyConflict { .. } => "key_conflict",
            Error::KeyStillInUse { .. } => "key_still_in_use",
            Error::HoldCountLimit { .. } => "hold_count_limit",
            Error::TooManyWaiters { .. } => "too_many_waiters",
            Error::Auth { .. } => "auth",
            Error::Denied { .. } => "denied",
            Error::NotAnnounced { .. } => "not_announced",
            Error::Tls { .. } => "tls",
            Error::Unsupported { .. } => "unsupported",
            Error::Refused { .. } => "refused",
            Error::Closed { .. } => "closed",
            _ => "other",
        };
        Self::new(kind, error)
    }
}

/// How a command ends that is not a lock command.
pub(crate) type Done = Result<(&'static str, Value), Failure>;

pub(crate) fn finish(id: &str, done: Done) {
    match done {
        Ok((event, fields)) => emit(Some(id), event, fields),
        Err(failure) => emit(Some(id), "error", failure.fields()),
    }
}
