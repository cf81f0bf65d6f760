//! What all connections have in common: how they are told to end, and the pauses between attempts.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tracing::Level;
use tracing::event;

use crate::base::log::TARGET;
use crate::base::log::tell;

/// Ends a link when its backend closes or is dropped.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    pub(crate) fn pair() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Returns once the link has to end.
    pub(crate) async fn wait(&mut self) {
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Sleeps, and says whether to go on.
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
pub(crate) struct Broken {
    pub(crate) cause: String,
    /// Something was answered since it was greeted.
    pub(crate) served: bool,
}

/// Tells the log what the engine does not hear of. No span is around it: which caller's would be, if any, is chance.
pub(crate) fn report(cause: &str, what: &str) {
    tell(|| event!(name: "link", target: TARGET, parent: None, Level::WARN, %cause, "{what}"));
}

/// Tells the log that the pub/sub connection to this server ended.
pub(crate) fn report_broken(address: &str, cause: &str, what: &str) {
    tell(|| event!(name: "link", target: TARGET, parent: None, Level::WARN, %address, %cause, "{what}"));
}

/// Tells the log that what was reported about this server is well again.
pub(crate) fn report_well(address: &str, what: &str) {
    tell(|| event!(name: "link", target: TARGET, parent: None, Level::INFO, %address, "{what}"));
}

/// The pause before the next attempt: short after a connection that served, then doubling up to a second.
/// There is no last attempt.
#[derive(Debug)]
pub(crate) struct Pause {
    next: Duration,
}

impl Default for Pause {
    fn default() -> Self {
        Self { next: Self::FIRST }
    }
}

impl Pause {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_secs(1);

    /// Half to all of the current length, so that many clients do not come back at the same instant.
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

/// Runs `first` and gives way to `Stop`.
pub(crate) async fn unless_stopped<T>(stop: &mut Stop, first: impl Future<Output = T>) -> Option<T> {
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
        let mut pause = Pause::default();
        let pauses: Vec<_> = (0..50).map(|_| pause.next()).collect();
        assert!(pauses[0] <= Pause::FIRST && pauses[0] >= Pause::FIRST / 2);
        assert!(pauses.iter().all(|pause| *pause <= Pause::LONGEST));
        assert!(pauses[10..].iter().all(|pause| *pause >= Pause::LONGEST / 2));
    }
}
