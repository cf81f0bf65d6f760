//! Writes log events, whatever the subscriber does.

use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

pub(crate) const TARGET: &str = "redis_reentrant_lock";

/// Runs `line`. A subscriber that panics, for instance because standard error is closed, ends
/// neither the driver nor a connection.
pub(crate) fn tell(line: impl FnOnce()) {
    // The panic hook has reported the panic.
    let _ = catch_unwind(AssertUnwindSafe(line));
}

/// The integration tests include it as well.
#[cfg(test)]
pub(crate) mod hearing;

#[cfg(test)]
pub(crate) mod tests {
    use super::hearing::hear;
    use super::*;

    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering;

    use tracing::Event;
    use tracing::Subscriber;
    use tracing::subscriber::DefaultGuard;
    use tracing_subscriber::layer::Context;
    use tracing_subscriber::layer::Layer;
    use tracing_subscriber::layer::SubscriberExt;

    /// Counts its events, and panics.
    struct Broken(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Broken {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            if event.metadata().target() == TARGET {
                self.0.fetch_add(1, Ordering::SeqCst);
                panic!("the log is gone");
            }
        }
    }

    /// Makes a subscriber that panics the one of this thread, while the guard lives. Returns the
    /// number of its events.
    pub(crate) fn broken_log() -> (DefaultGuard, Arc<AtomicUsize>) {
        let told = Arc::<AtomicUsize>::default();
        let log = tracing_subscriber::registry().with(Broken(Arc::clone(&told)));
        (hear(log), told)
    }

    #[test]
    fn who_tells_goes_on_although_who_listens_panics() {
        let (_log, told) = broken_log();
        tell(|| tracing::warn!(target: TARGET, "lost"));
        assert_eq!(told.load(Ordering::SeqCst), 1);
    }

    fn say() {
        tell(|| tracing::warn!(target: TARGET, "told twice"));
    }

    /// Tracing may cache for all threads whether the subscriber of the first thread that reaches an
    /// event wants it.
    #[test]
    fn what_a_thread_that_nobody_listens_to_says_first_is_heard_on_another_later() {
        let (_log, told) = broken_log();
        std::thread::spawn(say).join().unwrap();
        say();
        assert_eq!(told.load(Ordering::SeqCst), 1);
    }
}
