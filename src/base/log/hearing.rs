//! Subscribers of one test in a process of many.

use std::sync::OnceLock;

use tracing::Dispatch;
use tracing::Subscriber;
use tracing::subscriber::DefaultGuard;
use tracing::subscriber::NoSubscriber;

/// Makes this one the thread's subscriber until the guard is dropped.
pub(crate) fn hear(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    // With a single subscriber in the process, tracing asks that of the thread which reaches an event first and
    // remembers the answer for all: "never", if that thread has none. With two of them it asks both.
    static ANOTHER: OnceLock<Dispatch> = OnceLock::new();
    ANOTHER.get_or_init(|| Dispatch::new(NoSubscriber::new()));
    tracing::subscriber::set_default(subscriber)
}
