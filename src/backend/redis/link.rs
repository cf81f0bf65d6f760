//! One connection of fred's, from the first attempt to its end, and the pauses between attempts of any kind.
//!
//! A client of fred is used for one connection and thrown away. So nothing that was sent on one connection can
//! show up on the next, a connection is checked before anything is sent on it, and ending fred's task ends its
//! socket, whatever state it is in.

use std::future::poll_fn;
use std::pin::Pin;
use std::pin::pin;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::time::Duration;

use fred::clients::Client;
use fred::error::Error as FredError;
use fred::error::ErrorKind;
use fred::interfaces::ClientLike;
use fred::types::ConnectHandle;
use tokio::sync::watch;
use tokio::task::JoinError;

/// fred's task for a connection, which owns its socket. Ends with this value at the latest.
pub(crate) struct Router {
    task: ConnectHandle,
    connected: Pin<Box<dyn Future<Output = Result<(), FredError>> + Send>>,
}

impl Router {
    /// Starts to connect.
    pub(crate) fn start(client: &Client) -> Self {
        let waiting = client.clone();
        let mut connected: Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(async move { waiting.wait_for_connect().await });
        // The first poll begins to listen; after `connect` it could be too late.
        let _ = connected.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        Self { task: client.connect(), connected }
    }

    /// Waits until the connection is there, or says why it is not.
    pub(crate) async fn connected(&mut self) -> Result<(), FredError> {
        tokio::select! {
            biased;
            result = &mut self.task => Err(end_of(result)),
            result = &mut self.connected => result,
        }
    }

    /// Waits for the end of the connection and says why it ended.
    pub(crate) async fn ended(&mut self) -> FredError {
        end_of((&mut self.task).await)
    }

    /// Ends the connection. On return its socket is closed.
    pub(crate) async fn end(mut self) {
        if !self.task.is_finished() {
            self.task.abort();
            let _ = self.ended().await;
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn end_of(result: Result<Result<(), FredError>, JoinError>) -> FredError {
    match result {
        Ok(Err(error)) => error,
        Ok(Ok(())) => FredError::new(ErrorKind::IO, "Connection closed."),
        Err(error) => FredError::new(ErrorKind::IO, error.to_string()),
    }
}

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

/// The pause before the next attempt: short after a connection that worked, then doubling up to a second.
/// There is no last attempt.
#[derive(Debug)]
pub(crate) struct Pause {
    next: Duration,
}

impl Pause {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_secs(1);

    pub(crate) fn new() -> Self {
        Self { next: Self::FIRST }
    }

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
        let mut pause = Pause::new();
        let pauses: Vec<_> = (0..50).map(|_| pause.next()).collect();
        assert!(pauses[0] <= Pause::FIRST && pauses[0] >= Pause::FIRST / 2);
        assert!(pauses.iter().all(|pause| *pause <= Pause::LONGEST));
        assert!(pauses[10..].iter().all(|pause| *pause >= Pause::LONGEST / 2));
    }
}
