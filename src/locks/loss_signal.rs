//! The signal of a loss, for tasks that do not have the guard.

use std::fmt;
use std::future::Future;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::base::cell::HoldCell;
use crate::base::clock::Clock;
use crate::base::error::LossReason;
use crate::base::majority::Majority;
use crate::base::process::Process;

/// Tells a task whether a hold was lost, without keeping the lock:
/// [`Guard::loss_signal`](crate::Guard::loss_signal).
///
/// It is cheap to clone. It releases nothing when it is dropped, and keeps neither the lock nor the
/// client alive.
///
/// ```no_run
/// # async fn stop_writing() {}
/// # async fn example(lock: redis_reentrant_lock::Mutex) -> redis_reentrant_lock::Result<()> {
/// let guard = lock.lock().await?;
/// let signal = guard.loss_signal();
/// tokio::spawn(async move {
///     if let Some(reason) = signal.ended().await {
///         eprintln!("{} was lost: {reason}", signal.name());
///         stop_writing().await;
///     }
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LossSignal {
    cell: Arc<HoldCell>,
    clock: Clock,
    /// The process of the client.
    process: Process,
    /// Of a lock on several servers, whose cell has no time of its own.
    majority: Option<Arc<Majority>>,
}

impl LossSignal {
    pub(crate) fn new(cell: Arc<HoldCell>, clock: Clock, process: Process) -> Self {
        Self { cell, clock, process, majority: None }
    }

    /// Of a lock on several servers.
    pub(crate) fn of_majority(majority: &Arc<Majority>, clock: Clock, process: Process) -> Self {
        let cell = Arc::clone(majority.whole());
        Self { cell, clock, process, majority: Some(Arc::clone(majority)) }
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.cell.name.as_str()
    }

    /// Whether the lock was lost. False while it is held, and after it was released. Reads a clock
    /// and the number of this process; no I/O. True in a forked child.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why the lock was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        if !self.process.is_current() {
            return Some(LossReason::Forked);
        }
        match &self.majority {
            None => self.cell.lose_if_past(self.clock.now()),
            Some(majority) => majority.lose_if_past(self.clock.now()),
        }
        self.cell.loss()
    }

    /// Waits until the lock is lost, and returns the reason. It returns at
    /// [`Guard::valid_until`](crate::Guard::valid_until) at the latest, plus the delay of a timer
    /// in this process (1 to 2 ms on an idle machine). For a hold that is released it never
    /// returns: a task that does nothing else waits for [`ended`](Self::ended).
    ///
    /// # Errors
    ///
    /// None. A shutdown of the client is a loss like the others, and so is a fork, in the child.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; a later call sees the same loss.
    pub async fn lost(&self) -> LossReason {
        match self.ended().await {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    /// Waits until the lock is lost, or its last level is released or
    /// [left to its lease](crate::Guard::leave_to_lease): then `None`.
    ///
    /// # Errors
    ///
    /// None, as for [`lost`](Self::lost).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn ended(&self) -> Option<LossReason> {
        if !self.process.is_current() {
            // The driver may have held the mutex of the notification at the fork.
            return Some(LossReason::Forked);
        }
        loop {
            let ended = self.cell.ended();
            let mut ended = pin!(ended.notified());
            ended.as_mut().enable();
            // Checked on every poll: timers stand still during a suspend, and the first poll
            // afterwards must notice the loss.
            let seen = poll_fn(|cx| match self.end() {
                Some(end) => Poll::Ready(Some(end)),
                None => ended.as_mut().poll(cx).map(|()| None),
            });
            if let Some(end) = seen.await {
                return end;
            }
        }
    }

    /// How the hold has ended, if it has: lost (`Some`) or released (`None`).
    fn end(&self) -> Option<Option<LossReason>> {
        let loss = self.loss();
        (loss.is_some() || self.cell.is_released()).then_some(loss)
    }
}

impl fmt::Debug for LossSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossSignal")
            .field("name", &self.name())
            .field("loss", &self.cell.loss())
            .finish_non_exhaustive()
    }
}
