//! What all connections share: how they are told to end, and how long they pause between attempts.
//! The pauses themselves are in `locator.rs`.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tracing::Level;
use tracing::event;

use crate::base::log::TARGET;
use crate::base::log::tell;

/// Tells the task of a connection to end, because its backend closes or is dropped.
#[derive(Clone)]
pub(crate) struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    pub(crate) fn pair() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Returns once the task has to end.
    pub(crate) async fn wait(&mut self) {
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Sleeps. Returns false if the task has to end.
    pub(crate) async fn sleep(&mut self, pause: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.wait() => false,
            () = tokio::time::sleep(pause) => true,
        }
    }
}

/// How a connection ended by itself.
#[derive(Debug)]
pub(crate) struct BrokenConnection {
    pub(crate) cause: String,
    /// True if anything was answered after the handshake.
    pub(crate) served: bool,
}

/// Logs what is not reported to the engine. The event has no parent span, because the span of
/// whichever caller happens to run would be wrong.
pub(crate) fn report(cause: &str, what: &str) {
    tell(|| event!(name: "link", target: TARGET, parent: None, Level::WARN, %cause, "{what}"));
}

/// Logs that the pub/sub connection to this server has ended.
pub(crate) fn report_broken(address: &str, cause: &str, what: &str) {
    tell(
        || event!(name: "link", target: TARGET, parent: None, Level::WARN, %address, %cause, "{what}"),
    );
}

/// Logs that what was reported about this server has been restored.
pub(crate) fn report_well(address: &str, what: &str) {
    tell(|| event!(name: "link", target: TARGET, parent: None, Level::INFO, %address, "{what}"));
}

/// The pause before the next attempt to connect: short after a connection that worked, then
/// doubling up to a second. Attempts never stop.
#[derive(Debug)]
pub(crate) struct RetryPause {
    next: Duration,
}

impl Default for RetryPause {
    fn default() -> Self {
        Self { next: Self::FIRST }
    }
}

impl RetryPause {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_secs(1);

    /// Half to all of the current length, so that many clients do not reconnect at the same
    /// instant.
    pub(crate) fn next(&mut self) -> Duration {
        let length = self.next;
        self.next = (length * 2).min(Self::LONGEST);
        length.mul_f64(0.5 + 0.5 * random_fraction())
    }
}

fn random_fraction() -> f64 {
    let [high, low, ..] = uuid::Uuid::new_v4().into_bytes();
    f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX)
}

/// Runs a future until it ends or `StopSignal` is set.
pub(crate) async fn unless_stopped<T>(
    stop: &mut StopSignal,
    first: impl Future<Output = T>,
) -> Option<T> {
    let mut first = pin!(first);
    let mut stopped = pin!(stop.wait());
    poll_fn(|cx| {
        if stopped.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        first.as_mut().poll(cx).map(Some)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second_and_no_further() {
        let mut pause = RetryPause::default();
        let pauses: Vec<_> = (0..50).map(|_| pause.next()).collect();
        assert!(pauses[0] <= RetryPause::FIRST && pauses[0] >= RetryPause::FIRST / 2);
        assert!(pauses.iter().all(|pause| *pause <= RetryPause::LONGEST));
        assert!(pauses[10..].iter().all(|pause| *pause >= RetryPause::LONGEST / 2));
    }
}
