//! The signal of a loss, for threads that do not have the guard.

use std::time::Duration;

use crate::base::error::LossReason;
use crate::base::error::Result;
use crate::blocking::wait::wait;
use crate::blocking::wait::wait_for;
use crate::locks::loss_signal::LossSignal as AsyncLossSignal;

/// Tells a thread whether a hold was lost, without keeping the lock:
/// [`Guard::loss_signal`](crate::blocking::Guard::loss_signal).
///
/// It is cheap to clone. It releases nothing when it is dropped, and keeps neither the lock nor the
/// client alive.
///
/// ```no_run
/// # fn stop_writing() {}
/// # fn example(lock: redis_reentrant_lock::blocking::Mutex) -> redis_reentrant_lock::Result<()> {
/// let guard = lock.lock()?;
/// let signal = guard.loss_signal();
/// std::thread::spawn(move || {
///     if let Ok(Some(reason)) = signal.ended() {
///         eprintln!("{} was lost: {reason}", signal.name());
///         stop_writing();
///     }
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LossSignal(AsyncLossSignal);

impl LossSignal {
    pub(super) fn new(signal: AsyncLossSignal) -> Self {
        Self(signal)
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether the lock was lost. False while it is held, and after it was released. No I/O.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Why the lock was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.0.loss()
    }

    /// Waits until the lock is lost, and returns the reason, or until its last level is released or
    /// left to its lease: then `None`.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn ended(&self) -> Result<Option<LossReason>> {
        wait("LossSignal::ended", self.0.ended())
    }

    /// The same, but not longer than `limit`. False: the lock is still held. True: it has ended,
    /// and [`loss`](Self::loss) says whether it was lost.
    ///
    /// # Errors
    ///
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn ended_within(&self, limit: Duration) -> Result<bool> {
        Ok(wait_for(limit, "LossSignal::ended", self.0.ended())?.is_some())
    }
}
