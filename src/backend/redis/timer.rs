//! The timer of a connection.

use std::pin::Pin;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::Sleep;

/// The time between noticing silence and acting on it. A process that was stopped gets its timers
/// before its sockets, so replies may be waiting.
pub(crate) const SECOND_LOOK: Duration = Duration::from_millis(10);
/// The initial setting, which means that the timer is not set.
const NEVER: Duration = Duration::from_secs(86_400);

/// Expires at the earliest deadline or earlier. Most calls are answered in time, and expiring
/// without need costs less than resetting the timer for each call.
pub(crate) struct Timer {
    sleep: Pin<Box<Sleep>>,
    set_to: Option<Instant>,
}

impl Timer {
    /// Must be called within a runtime.
    pub(crate) fn new() -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(NEVER)), set_to: None }
    }

    pub(crate) fn not_after(&mut self, at: Instant) {
        if self.set_to.is_none_or(|set_to| at < set_to) {
            self.sleep.as_mut().reset(at);
            self.set_to = Some(at);
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.set_to.is_none() || self.sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.set_to = None;
        Poll::Ready(())
    }
}
