//! Subscribers for one test among many in a process.

use std::sync::OnceLock;

use tracing::Dispatch;
use tracing::Subscriber;
use tracing::subscriber::DefaultGuard;
use tracing::subscriber::NoSubscriber;

/// Makes this one the thread's subscriber until the guard is dropped.
pub(crate) fn hear(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    // If the process has a single subscriber, tracing asks the subscriber of the thread that
    // reaches an event first, and caches its answer for all threads: "never", if that thread has
    // none. With two subscribers it asks both.
    static ANOTHER: OnceLock<Dispatch> = OnceLock::new();
    ANOTHER.get_or_init(|| Dispatch::new(NoSubscriber::new()));
    tracing::subscriber::set_default(subscriber)
}
