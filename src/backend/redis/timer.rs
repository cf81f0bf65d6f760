//! When a connection has to be looked at although nothing came.

use std::pin::Pin;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::Sleep;

/// Before silence is believed: a process that was stopped hears of its timers before it hears of its sockets.
pub(crate) const SECOND_LOOK: Duration = Duration::from_millis(10);
/// Until it is set.
const NEVER: Duration = Duration::from_secs(86_400);

/// Rings at the earliest deadline, or before it: most calls are answered in time, and a needless ring costs less than
/// setting the timer anew for each.
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
