//! The one timer of a driver.

use std::pin::Pin;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::Sleep;

use crate::base::clock::Moment;

/// The longest sleep; a longer wait takes several.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A timer that is only reset if it has to fire earlier. Most timeouts move to a later time before
/// they are reached, and firing without need costs less than resetting the timer for each of them.
#[derive(Debug)]
pub(crate) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// When it fires; `NEVER` once it has fired.
    set_to: Moment,
}

impl Alarm {
    /// Must be called within a runtime.
    pub(crate) fn new() -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(LONGEST)), set_to: Moment::NEVER }
    }

    /// Wakes the task at `at` or earlier. `Ready`: it has fired, so the caller has to read the
    /// clock again.
    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, now: Moment, at: Moment) -> Poll<()> {
        if at == Moment::NEVER {
            // It need not be set, and a timer that has fired would report that at every poll.
            return Poll::Pending;
        }
        // The runtime's clock stood still during a suspend, so this timer would fire too late by
        // that time.
        let is_late = self.set_to <= now && self.sleep.as_mut().poll(cx).is_pending();
        if at < self.set_to || is_late {
            let length = at.since(now).min(LONGEST);
            self.sleep.as_mut().reset(Instant::now() + length);
            self.set_to = now.plus(length);
        }
        if self.sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.set_to = Moment::NEVER;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::task::Waker;

    #[tokio::test(start_paused = true)]
    async fn one_that_has_rung_is_silent_until_it_is_set_again() {
        let cx = &mut Context::from_waker(Waker::noop());
        let (mut alarm, start) = (Alarm::new(), Moment::ZERO);
        let (soon, later) =
            (start.plus(Duration::from_millis(10)), start.plus(Duration::from_millis(20)));
        assert!(alarm.poll_until(cx, start, soon).is_pending());
        tokio::time::advance(Duration::from_millis(15)).await;
        assert!(alarm.poll_until(cx, soon, soon).is_ready());
        assert!(alarm.poll_until(cx, soon, Moment::NEVER).is_pending());
        assert!(alarm.poll_until(cx, soon, later).is_pending());
        tokio::time::advance(Duration::from_millis(15)).await;
        assert!(alarm.poll_until(cx, later, later).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_a_suspend_left_behind_is_set_again() {
        let cx = &mut Context::from_waker(Waker::noop());
        let (mut alarm, start) = (Alarm::new(), Moment::ZERO);
        assert!(alarm.poll_until(cx, start, start.plus(Duration::from_secs(30))).is_pending());
        // The runtime's clock does not advance.
        let resumed = start.plus(Duration::from_secs(60));
        let soon = resumed.plus(Duration::from_millis(250));
        assert!(alarm.poll_until(cx, resumed, soon).is_pending());
        tokio::time::advance(Duration::from_millis(251)).await;
        assert!(alarm.poll_until(cx, soon, soon).is_ready());
    }
}
