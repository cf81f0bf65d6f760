//! The proof of one level of a hold.

use std::fmt;
use std::future::Future;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tracing::Instrument;

use crate::cell::HoldCell;
use crate::clock::Deadline;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::error::Error;
use crate::error::LossReason;
use crate::error::Result;
use crate::keeper::Shared;
use crate::trace;

/// Holds a lock: one level of it, released by [`unlock`](Self::unlock) or by dropping the guard.
///
/// Dropping works anywhere, outside a runtime and in a panic too: the release happens in the background, and a
/// failure of it is only counted and logged. `unlock` waits for it and says how it went. With
/// [`Keeper::Current`](crate::Keeper::Current) the background is the runtime that the client was built on: once that has
/// ended, nothing releases, and the lock stays taken until its lease ends. A process that ends waits for the releases on their
/// way only where the last handle of the client is dropped: with a client in a `static`, or before `std::process::exit`, call
/// `unlock` or [`LockClient::shutdown`](crate::LockClient::shutdown). Take a guard into a variable with a name:
/// `let _ = lock.lock().await?` releases at once.
///
/// A guard may be moved to another task or thread, and released there; that does not change who owns the hold.
///
/// Redis may take a lock away: its lease can run out during an outage, somebody can force-unlock it, a server can
/// lose its data. A guard knows no later than at [`valid_until`](Self::valid_until). Ask it ([`is_held`](Self::is_held),
/// [`ensure`](Self::ensure)), wait for it ([`lost`](Self::lost)), or let it end your work ([`run`](Self::run)).
/// What must hold even when a process is paused between the question and its consequence needs the
/// [`fencing_token`](Self::fencing_token).
#[must_use = "if unused the lock is released at once"]
#[clippy::has_significant_drop]
pub struct Guard {
    cell: Arc<HoldCell>,
    shared: Arc<Shared>,
    /// The request that was granted this level.
    level: RequestId,
    released: bool,
}

impl Guard {
    pub(crate) fn new(cell: Arc<HoldCell>, shared: Arc<Shared>, level: RequestId) -> Self {
        Self { cell, shared, level, released: false }
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.cell.name.as_str()
    }

    /// The hold's name on the server, `<client uuid>:<hold id>`: the field in the hash under the lock's key.
    pub fn hold_id(&self) -> String {
        format!("{}:{}", self.shared.config().client_id, self.cell.id)
    }

    /// A number that grows with every new grant of this name, whoever it is given to. Re-entries share it.
    ///
    /// Send it along with what the lock protects and let the receiver refuse smaller ones: that holds even when this
    /// process sleeps through the end of its lease. Below 2^53, so `i64::try_from` does not fail.
    pub fn fencing_token(&self) -> u64 {
        self.cell.token()
    }

    /// How many levels the hold has right now, this guard's included.
    pub fn hold_count(&self) -> u32 {
        self.cell.count()
    }

    /// Whether the lock is still held, as far as can be known here. A clock read, no I/O.
    pub fn is_held(&self) -> bool {
        self.cell.is_still_held(self.shared.now())
    }

    /// Whether there is reason to fear a loss: no renewal was confirmed for half a lease, or the connection is down.
    /// The lock is still held.
    pub fn is_suspect(&self) -> bool {
        self.is_held() && self.cell.is_suspect()
    }

    /// Up to when the lock is held without another renewal. In the past once it was lost.
    pub fn valid_until(&self) -> Deadline {
        self.shared.deadline(self.cell.valid_until())
    }

    /// Why the lock was lost, if it was.
    pub fn loss(&self) -> Option<LossReason> {
        self.cell.lose_if_past(self.shared.now());
        self.cell.loss()
    }

    /// Waits until the lock is lost, and says why: at [`valid_until`](Self::valid_until) at the latest, plus what a timer
    /// of this process is late by (1 to 2 ms on an idle machine). Of a hold that is released it never returns: use it in
    /// `select!`, or use [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// None. A shutdown of the client is a loss like others.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; a later call sees the same loss.
    ///
    /// ```no_run
    /// # async fn example(guard: redis_reentrant_lock::Guard) {
    /// tokio::select! {
    ///     reason = guard.lost() => eprintln!("stop writing: {reason}"),
    ///     () = tokio::time::sleep(std::time::Duration::from_secs(60)) => {}
    /// }
    /// # }
    /// ```
    pub async fn lost(&self) -> LossReason {
        loop {
            let ended = self.cell.ended();
            let mut ended = pin!(ended.notified());
            ended.as_mut().enable();
            // On every poll: timers stand still during suspend, whoever polls first afterwards must see the loss.
            let seen = poll_fn(|cx| match self.loss() {
                Some(reason) => Poll::Ready(Some(reason)),
                None => ended.as_mut().poll(cx).map(|()| None),
            });
            if let Some(reason) = seen.await {
                return reason;
            }
        }
    }

    /// Runs `future` for as long as the lock is held. On a loss it is dropped; it is never polled past
    /// [`valid_until`](Self::valid_until). What it has spawned or sent by then goes on, and a poll that blocks is not
    /// interrupted.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost before `future` was done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops `future`, nothing else.
    ///
    /// ```no_run
    /// # async fn write_report() {}
    /// # async fn example(guard: redis_reentrant_lock::Guard) -> redis_reentrant_lock::Result<()> {
    /// guard.run(write_report()).await?;
    /// guard.unlock().await
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        let mut lost = pin!(self.lost());
        let mut future = pin!(Some(future));
        let done = poll_fn(|cx| {
            if lost.as_mut().poll(cx).is_ready() || !self.is_held() {
                return Poll::Ready(None);
            }
            match future.as_mut().as_pin_mut() {
                Some(future) => future.poll(cx).map(Some),
                None => Poll::Ready(None),
            }
        })
        .await;
        // What ran under the lock ends before anybody hears that the lock is gone.
        future.set(None);
        done.ok_or_else(|| self.lost_error(self.loss().unwrap_or(LossReason::Expired)))
    }

    /// Checks that the lock is held for at least `min_remaining` more. A clock read, no I/O.
    ///
    /// A watched lease is renewed when a third of it is over, so at any time only a little less than two thirds
    /// (19 s of 30 s) can be asked for. A fixed lease, or one near its [`max_hold`](crate::LockOptions::max_hold), only gets shorter: end
    /// the work then, do not ask again.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost, [`Error::EndsSoon`] if it is valid for less time.
    ///
    /// ```no_run
    /// # fn write_batch() {}
    /// # fn example(guard: redis_reentrant_lock::Guard) -> redis_reentrant_lock::Result<()> {
    /// guard.ensure(std::time::Duration::from_secs(2))?; // what a batch takes
    /// write_batch();
    /// # Ok(())
    /// # }
    /// ```
    pub fn ensure(&self, min_remaining: Duration) -> Result<()> {
        if let Some(reason) = self.loss() {
            return Err(self.lost_error(reason));
        }
        let remaining = self.valid_until().remaining();
        if remaining.is_zero() || remaining < min_remaining {
            return Err(Error::EndsSoon { name: self.name().to_owned(), remaining, needed: min_remaining });
        }
        Ok(())
    }

    /// Asks the server whether the hold is still there. Takes one round trip. For a fixed lease, which nobody renews, this
    /// is the way to learn early of a key that was deleted. A short outage is ridden out, within the command timeout and
    /// the hold's validity.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if it is not. [`Error::Unavailable`] if no answer comes, and [`Error::Auth`], [`Error::Denied`],
    /// [`Error::Tls`], [`Error::Unsupported`] or [`Error::Refused`] if the server refuses to answer: then nobody knows,
    /// and the hold is valid until [`valid_until`](Self::valid_until) as before. After a shutdown the hold is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// ```no_run
    /// # async fn example(guard: redis_reentrant_lock::Guard) -> redis_reentrant_lock::Result<()> {
    /// guard.verify().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn verify(&self) -> Result<()> {
        if let Some(reason) = self.loss() {
            return Err(self.lost_error(reason));
        }
        let hold = self.cell.id;
        match self.shared.ask(|request| Event::Verify { hold, request }).await {
            Answer::Failed(error) => Err(self.explain(error)),
            _ => Ok(()),
        }
    }

    /// Releases this level and waits until the server has confirmed it. The last level frees the lock and wakes a
    /// waiter.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost before; [`Error::Unavailable`] if the server did not confirm within the outage
    /// limit or before the lease ended: the release goes on in the background, at the latest the lease ends the hold.
    /// [`Error::NotAnnounced`]: the lock is free, but waiters find that out by themselves.
    /// [`Error::Auth`], [`Error::Tls`], [`Error::Denied`], [`Error::Unsupported`] and [`Error::Refused`] are the server's
    /// refusals: the lock is free when its lease ends, earlier only if a task of this client waits for it, which releases
    /// it again. [`Error::Closed`] if the client is shut down meanwhile; a guard that outlives its client is lost.
    ///
    /// # Cancel safety
    ///
    /// The level ends in any case: a future that was never polled drops the guard, one that was polled leaves the
    /// release going on.
    ///
    /// ```no_run
    /// # async fn example(lock: redis_reentrant_lock::ReentrantLock) -> redis_reentrant_lock::Result<()> {
    /// let guard = lock.lock().await?;
    /// guard.unlock().await
    /// # }
    /// ```
    pub async fn unlock(mut self) -> Result<()> {
        let span = trace::release_span(&self.cell.name);
        self.released = true;
        let asked = self.shared.ask_release(self.cell.id, self.level);
        let result = match asked.instrument(span.clone()).await {
            Answer::Failed(error) => Err(self.explain(error)),
            _ => Ok(()),
        };
        span.record("outcome", if result.is_ok() { "released" } else { "failed" });
        result
    }

    fn lost_error(&self, reason: LossReason) -> Error {
        Error::Lost { name: self.name().to_owned(), reason }
    }

    /// A closed client has lost its holds; that says more than "closed".
    fn explain(&self, error: Error) -> Error {
        match (error, self.loss()) {
            (Error::Closed { .. }, Some(reason)) => self.lost_error(reason),
            (error, _) => error,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
            self.shared.release(self.cell.id, self.level);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field("hold", &self.cell.id)
            .field("hold_count", &self.hold_count())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .field("loss", &self.cell.loss())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::clock::Clock;
    use crate::clock::Moment;
    use crate::keeper::tests::handle;
    use crate::name::LockName;

    fn guard(shared: &Arc<Shared>, valid_until: Moment) -> Guard {
        let cell = HoldCell::new(LockName::new("guard").unwrap(), 3, 1, valid_until);
        Guard::new(Arc::new(cell), Arc::clone(shared), RequestId(4))
    }

    #[test]
    fn a_guard_dropped_outside_a_runtime_is_released() {
        let (shared, mut mailbox) = handle(Clock::Boot, None);
        drop(guard(&shared, Moment::NEVER));
        assert_eq!(mailbox.release(), (3, RequestId(4)));
    }

    #[cfg(feature = "in-memory")]
    #[tokio::test(start_paused = true)]
    async fn a_guard_sees_the_end_of_its_hold_whatever_became_of_the_keeper() {
        let clock = Clock::Tokio(tokio::time::Instant::now());
        let (shared, _mailbox) = handle(clock, None);
        let guard = guard(&shared, clock.now().plus(Duration::from_secs(1)));
        let polls = std::cell::Cell::new(0);
        let mut lost = std::pin::pin!(guard.lost());
        let mut running = std::pin::pin!(guard.run(poll_fn(|_| {
            polls.set(polls.get() + 1);
            Poll::<()>::Pending
        })));
        assert!(futures::poll!(lost.as_mut()).is_pending());
        assert!(futures::poll!(running.as_mut()).is_pending());
        tokio::time::advance(Duration::from_secs(1)).await;
        // First of all, as whoever asks `is_held` notes the loss for the others.
        assert_eq!(futures::poll!(lost.as_mut()), Poll::Ready(LossReason::Expired));
        assert!(!guard.is_held());
        assert!(futures::poll!(running.as_mut()).is_ready());
        assert_eq!(polls.get(), 1, "never polled past the end");
    }
}
