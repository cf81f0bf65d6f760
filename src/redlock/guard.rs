//! The guard of a Redlock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Deadline;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::error::Result;
use crate::locks::guard::run_while_held;
use crate::locks::loss_signal::LossSignal;
use crate::redlock::gather::gather;
use crate::redlock::held::Held;

/// A lock that is held on a majority of the servers of a [`Redlock`](crate::Redlock).
/// [`unlock`](Self::unlock) releases it on all servers, and so does dropping the guard, which does
/// it in the background.
///
/// It is lost as soon as fewer than a majority of the servers have it for certain, and nothing
/// brings it back then. Until then each server is renewed, and a server that has lost the lock, or
/// did not grant it at first, is asked again after a third of the lease, so that the failure of
/// another server does not take the majority.
///
/// All clients of the `Redlock` must be there as long as the guard. A shutdown of the one whose
/// label is the first is the loss of the lock.
#[must_use = "without a variable the lock is released at once, also by `let _ =`: bind the guard to a name"]
#[clippy::has_significant_drop]
pub struct RedlockGuard {
    held: Arc<Held>,
}

impl RedlockGuard {
    pub(super) fn new(held: Arc<Held>) -> Self {
        Self { held }
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.held.name()
    }

    /// A number that grows with every grant of this name, to any client, as long as a majority of
    /// the servers keeps its data; after a server has lost its data, only if the servers' clocks
    /// differ by less than the longest lease.
    ///
    /// Send it along with each write, and let the receiver refuse smaller numbers. It is below
    /// 2^53, so `i64::try_from` does not fail.
    pub fn fencing_token(&self) -> u64 {
        self.held.majority.whole().token()
    }

    /// Whether a majority still holds the lock, as far as this process can know. No I/O. False in a
    /// forked child.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let shared = self.held.first();
        !shared.is_in_child() && self.held.majority.is_still_held(shared.now())
    }

    /// Whether a loss is likely: on so many servers no renewal was confirmed for half of the lease,
    /// or the connection is known to be down, that the others are no majority.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.is_held() && self.held.majority.is_suspect(self.held.first().now())
    }

    /// The instant up to which a majority holds the lock without another renewal.
    #[must_use]
    pub fn valid_until(&self) -> Deadline {
        let shared = self.held.first();
        let is_in_child = shared.is_in_child();
        let until = if is_in_child { Moment::ZERO } else { self.held.majority.valid_until() };
        shared.deadline(until)
    }

    /// Why the lock was lost, if it was: the reason of one of the servers that lost it.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.loss_signal().loss()
    }

    /// Waits until the lock is lost, and returns the reason. It returns at
    /// [`valid_until`](Self::valid_until) at the latest, plus the delay of a timer.
    ///
    /// # Errors
    ///
    /// None.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> LossReason {
        self.loss_signal().lost().await
    }

    /// What tells another task of a loss, as [`Guard::loss_signal`](crate::Guard::loss_signal).
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        let shared = self.held.first();
        LossSignal::of_majority(&self.held.majority, shared.clock(), shared.process())
    }

    /// Runs `future` for as long as the lock is held, as [`Guard::run`](crate::Guard::run) does.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the lock was lost before `future` was done;
    /// [`Error::Closed`](crate::Error::Closed) in a forked child.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops `future` and has no other effect.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        let is_held = || self.held.majority.is_still_held(self.held.first().now());
        run_while_held(self.lost(), is_held, future).await.ok_or_else(|| self.why_lost())
    }

    /// Checks that the lock is held for at least `min_remaining` more. No I/O.
    ///
    /// # Errors
    ///
    /// As [`Guard::ensure`](crate::Guard::ensure).
    pub fn ensure(&self, min_remaining: Duration) -> Result<()> {
        if self.loss().is_some() {
            return Err(self.why_lost());
        }
        let remaining = self.valid_until().remaining();
        if remaining.is_zero() || remaining < min_remaining {
            let name = self.name().to_owned();
            return Err(Error::EndsSoon { name, remaining, needed: min_remaining });
        }
        Ok(())
    }

    /// Asks the servers whether the lock is still there, all at once.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if it is lost. If fewer than a majority confirm it: the
    /// error of one of the others, as of [`Guard::verify`](crate::Guard::verify).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn verify(&self) -> Result<()> {
        if self.loss().is_some() {
            return Err(self.why_lost());
        }
        let guards = self.held.guards();
        let asked = guards.iter().enumerate().map(|(place, guard)| (place, guard.verify()));
        let confirmed = self.majority_of(asked).await;
        if self.loss().is_some() { Err(self.why_lost()) } else { confirmed }
    }

    /// Releases the lock on all servers, and waits until a majority has confirmed it, and a moment
    /// longer for the others. Where there is no answer, the release goes on in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the lock was lost before. If fewer than a majority
    /// confirm it: the error of one of the others, as of [`Guard::unlock`](crate::Guard::unlock).
    ///
    /// # Cancel safety
    ///
    /// The release goes on in any case.
    pub async fn unlock(self) -> Result<()> {
        let lost = self.loss().map(|_| self.why_lost());
        if self.held.first().is_in_child() {
            // As when it is dropped.
            return Err(self.why_lost());
        }
        let guards = self.held.close();
        let asked = guards.into_iter().enumerate().map(|(place, guard)| (place, guard.unlock()));
        let released = self.majority_of(asked).await;
        lost.map_or(released, Err)
    }

    async fn majority_of(
        &self,
        asked: impl Iterator<Item = (usize, impl Future<Output = Result<()>>)>,
    ) -> Result<()> {
        let needed = self.held.needed();
        let answers = gather(self.held.first(), asked, Result::is_ok, needed).await;
        let good = answers.iter().filter(|(_, answer)| answer.is_ok()).count();
        let failed = answers.into_iter().find_map(|(_, answer)| answer.err());
        match failed {
            Some(error) if good < needed => Err(error),
            _ => Ok(()),
        }
    }

    fn why_lost(&self) -> Error {
        let reason = self.loss().unwrap_or(LossReason::Expired);
        let lost = Error::Lost { name: self.name().to_owned(), reason };
        self.held.first().check_process().err().unwrap_or(lost).of_lock(self.name())
    }
}

impl Drop for RedlockGuard {
    fn drop(&mut self) {
        // In a child the holds are the parent's, and its mutexes may have been locked at the fork.
        if !self.held.first().is_in_child() {
            drop(self.held.close());
        }
    }
}

impl fmt::Debug for RedlockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockGuard")
            .field("name", &self.name())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
