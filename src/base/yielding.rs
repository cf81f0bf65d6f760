//! Whether a yield leaves this thread to the other tasks of a runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Wake;
use std::task::Waker;

use tokio::task::yield_now;

/// Whether this thread is running the tasks of a runtime, or the root future of a current-thread
/// runtime. Elsewhere a yield wakes its caller at once: outside Tokio, in `Handle::block_on`, on a
/// thread of `spawn_blocking`, in `block_in_place`, and in the root future of a runtime with
/// several threads.
pub(crate) fn yield_is_deferred() -> bool {
    YIELDING.try_with(|woken| woken.waits_for_turn()).unwrap_or(false)
}

thread_local! {
    /// Made once, because each call needs it.
    static YIELDING: Arc<YieldWaker> = Arc::default();
}

#[derive(Debug, Default)]
struct YieldWaker(AtomicBool);

impl YieldWaker {
    /// Yields, and says whether the wake-up is deferred.
    fn waits_for_turn(self: &Arc<Self>) -> bool {
        self.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(self));
        let yielded = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
        yielded.is_pending() && !self.0.load(Ordering::Relaxed)
    }
}

impl Wake for YieldWaker {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
