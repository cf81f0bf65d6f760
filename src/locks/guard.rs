//! The guard, which represents one level of a hold.

use std::fmt;
use std::future::Future;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tracing::Instrument;

use crate::base::cell::HoldCell;
use crate::base::clock::Deadline;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::error::Result;
use crate::driver::Shared;
use crate::driver::trace;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Probe;
use crate::engine::event::Probed;
use crate::engine::event::RequestId;
use crate::kinds::command::Command;
use crate::kinds::reply::Body;
use crate::kinds::reply::Raised;
use crate::locks::loss_signal::LossSignal;

/// A lock that is held. Each `lock()` of a [`ReentrantLock`](crate::ReentrantLock) by the same
/// owner returns a guard of its own: one *level* of the *hold*, which ends with the last of them.
/// [`unlock`](Self::unlock) releases a level, and so does dropping its guard.
///
/// A guard can be dropped anywhere, also outside a runtime and in a panic. The release then happens
/// in the background, and a failure is only counted and logged. `unlock` waits for the release and
/// returns its outcome. With [`Driver::Current`](crate::Driver::Current), "in the background" means
/// on the runtime that built the client: once that runtime has ended, nothing is released any more,
/// and the lock stays taken until its lease ends.
///
/// In a child made by `fork`, a guard of the parent is not held, calls on it are
/// [`Error::Closed`], and dropping it leaves the parent's lock alone.
///
/// **At the end of a process**, with [`Driver::Thread`](crate::Driver::Thread), what was dropped
/// before is released before the process ends: the end of a thread that has made the client, or has
/// dropped guards, waits until the server has answered the releases of that client, for 200 ms at
/// most. This holds for the end of `main` and for `std::process::exit`. It does not hold
///
/// * with [`Driver::Current`](crate::Driver::Current), or over a client of fred: no thread waits
///   for the runtime that would send the releases;
/// * if the thread that ends the process has neither made the client nor dropped a guard;
/// * after `std::process::abort`, or a panic that aborts;
/// * where thread-local values of the main thread are not dropped, as on some platforms other than
///   Linux and macOS.
///
/// There, call `unlock` or [`LockClient::shutdown`](crate::LockClient::shutdown) first.
///
/// Bind a guard to a variable with a name: `let _ = lock.lock().await?` releases at once.
///
/// A guard may be moved to another task or thread and released there; that does not change the
/// owner of the hold.
///
/// A lock can be lost: its lease can run out during an outage, somebody can force-unlock it, a
/// server can lose its data. A guard knows of a loss at [`valid_until`](Self::valid_until) at the
/// latest. Ask it ([`is_held`](Self::is_held), [`ensure`](Self::ensure)), wait for it
/// ([`lost`](Self::lost)), or let it end your work ([`run`](Self::run)). Where the process may be
/// paused between the question and the write, use the [`fencing_token`](Self::fencing_token).
#[must_use = "without a variable the lock is released at once, also by `let _ =`: bind the guard to a name"]
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

    /// The same level, without the duty to release it.
    pub(crate) fn without_release(&self) -> Self {
        let (cell, shared) = (Arc::clone(&self.cell), Arc::clone(&self.shared));
        Self { cell, shared, level: self.level, released: true }
    }

    /// The lock name.
    pub fn name(&self) -> &str {
        self.cell.name.as_str()
    }

    /// The id of the hold on the server, `<client uuid>:<hold id>`: the field in the hash under the
    /// lock's key.
    pub fn hold_id(&self) -> String {
        format!("{}:{}", self.shared.config().client_id, self.cell.id)
    }

    /// A number that grows with every new grant of this name, to any client. Re-entries share it.
    ///
    /// Send it along with each write, and let the receiver refuse smaller numbers. That protects
    /// the data even if this process is suspended past the end of its lease. It is below 2^53, so
    /// `i64::try_from` does not fail.
    pub fn fencing_token(&self) -> u64 {
        self.cell.token()
    }

    /// How many levels the hold has right now, this guard's included. Guards of a lost hold count
    /// until they are dropped.
    pub fn hold_count(&self) -> u32 {
        self.cell.count()
    }

    /// Whether the lock is still held, as far as this process can know. Compares a clock and the id
    /// of this process; no I/O. False in a forked child.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.shared.is_in_child() && self.cell.is_still_held(self.shared.now())
    }

    /// Whether a loss is likely: no renewal of a watched lease was confirmed for half of it, or the
    /// connection is known to be down. The lock is still held. False once the lock was lost.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.is_held() && self.cell.is_suspect()
    }

    /// The instant up to which the lock is held without another renewal. It is in the past once the
    /// lock was lost.
    #[must_use]
    pub fn valid_until(&self) -> Deadline {
        let until = if self.shared.is_in_child() { Moment::ZERO } else { self.cell.valid_until() };
        self.shared.deadline(until)
    }

    /// Why the lock was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.loss_signal().loss()
    }

    /// Waits until the lock is lost, and returns the reason. It returns at
    /// [`valid_until`](Self::valid_until) at the latest, plus the delay of a timer in this process
    /// (1 to 2 ms on an idle machine). Use it in `select!`, or use
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// None. A shutdown of the client is a loss like the others, and so is a fork, in the child.
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
        self.loss_signal().lost().await
    }

    /// What tells another task of a loss: an owned value that can be cloned and sent, and that
    /// releases nothing when it is dropped. It fires when the lock is lost, not when the
    /// guard of a nested level is released.
    ///
    /// ```no_run
    /// # async fn example(guard: redis_reentrant_lock::Guard) {
    /// let signal = guard.loss_signal();
    /// let watcher = tokio::spawn(async move { signal.ended().await });
    /// # }
    /// ```
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal::new(Arc::clone(&self.cell), self.shared.clock(), self.shared.process())
    }

    /// Runs `future` for as long as the lock is held. When the lock is lost, `future` is dropped;
    /// it is never polled past [`valid_until`](Self::valid_until). Tasks that it has spawned and
    /// requests that it has sent go on, and a poll that blocks is not interrupted.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost before `future` was done; [`Error::Closed`] in a forked
    /// child.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops `future` and has no other effect.
    ///
    /// ```no_run
    /// # async fn write_report() {}
    /// # async fn example(guard: redis_reentrant_lock::Guard) -> redis_reentrant_lock::Result<()> {
    /// guard.run(write_report()).await?;
    /// guard.unlock().await
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        // `lost` notices a fork as well.
        run_while_held(self.lost(), || self.is_still_held(), future)
            .await
            .ok_or_else(|| self.why_lost())
    }

    /// Checks that the lock is held for at least `min_remaining` more. Reads a clock; no I/O.
    ///
    /// A watched lease is renewed when a third of it is over, so you can rely on a little less than
    /// two thirds at any time (19 s of 30 s). A fixed lease, or one near its
    /// [`max_hold`](crate::LockOptions::max_hold), only gets shorter: end the work then, instead of
    /// asking again.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was lost, [`Error::EndsSoon`] if it is valid for less time,
    /// [`Error::Closed`] in a forked child.
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
        if self.loss().is_some() {
            return Err(self.why_lost());
        }
        let remaining = self.valid_until().remaining();
        if remaining.is_zero() || remaining < min_remaining {
            return Err(Error::EndsSoon {
                name: self.name().to_owned(),
                remaining,
                needed: min_remaining,
            });
        }
        Ok(())
    }

    /// Asks the server whether the hold is still there; takes one round trip. With a fixed lease,
    /// which is not renewed, this is the way to learn early that the key was deleted. During a
    /// short outage it tries again, within the command timeout and the validity of the hold.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the hold is gone, also after a shutdown. [`Error::Unavailable`] if no
    /// answer comes. [`Error::Auth`], [`Error::Denied`], [`Error::Tls`], [`Error::Unsupported`] or
    /// [`Error::Refused`] if the server refuses to answer. In all but the first case it is unknown
    /// whether the hold is there, and it stays valid until [`valid_until`](Self::valid_until), as
    /// before. [`Error::Closed`] in a forked child.
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
        if self.loss().is_some() {
            return Err(self.why_lost());
        }
        let hold = self.cell.id;
        match self.shared.ask(|request| Event::Verify { hold, request }).await {
            Answer::Failed(error) => Err(self.explain(error)),
            _ => Ok(()),
        }
    }

    /// Whether the lock is still held by the clock alone, without the question for a fork.
    pub(super) fn is_still_held(&self) -> bool {
        self.cell.is_still_held(self.shared.now())
    }

    /// Releases this level and waits until the server has confirmed it. The last level frees the
    /// lock and wakes a waiter.
    ///
    /// # Errors
    ///
    /// * [`Error::Lost`] if the lock was lost before.
    /// * [`Error::Unavailable`] if the server did not confirm within the outage limit, or before
    ///   the lease had ended for certain, which is up to 1 % and one command timeout after its
    ///   length. Until then the release goes on in the background; the hold ends with its lease at
    ///   the latest.
    /// * [`Error::NotAnnounced`]: the hold is released, but the waiters were not told and find out
    ///   by themselves. The lock is free; with [`at_least`](crate::LockOptions::at_least), at the
    ///   end of that time.
    /// * [`Error::KeyStillInUse`]: the lock is free, but data of somebody else is left under its
    ///   key.
    /// * [`Error::Auth`], [`Error::Tls`], [`Error::Denied`], [`Error::Unsupported`] and
    ///   [`Error::Refused`] if the server refuses. The lock is then free when its lease ends;
    ///   earlier only if a task of this client waits for it, which releases it again.
    /// * [`Error::Closed`] if the client is shut down meanwhile. A guard that outlives its client
    ///   is lost. Also in a forked child, where nothing is released.
    ///
    /// # Cancel safety
    ///
    /// The level ends in any case. A future that was never polled drops the guard; for one that was
    /// polled, the release goes on.
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

    /// Ends this guard without releasing the lock: it is not renewed any more, and the name stays
    /// taken until the lease has run out on the server, whatever becomes of this client and its
    /// process. Returns at once; no I/O. Nobody is told when the lease ends: waiters know the time
    /// from the server.
    ///
    /// With a watched lease that is the lease of the client from the last renewal on, so between
    /// two thirds of it and all of it; with a fixed lease what is left of it; and at least the rest
    /// of [`at_least`](crate::LockOptions::at_least). The owner can lock the name again when the
    /// others can, and `force_unlock` frees it earlier.
    ///
    /// When levels nest, only this level ends. The hold goes on for the guards of the others, and
    /// is renewed if one of them is watched. But none of them releases the lock any more: `unlock`
    /// and drop of the last one, too, and a shutdown of the client, leave it to its lease.
    ///
    /// Nothing happens if the lock was lost before, or in a forked child.
    ///
    /// ```no_run
    /// # async fn example(lock: redis_reentrant_lock::Mutex) -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::LockOptions;
    /// use std::time::Duration;
    ///
    /// // A process that a crontab starts. It may end at once; the next run is an hour away.
    /// let options = LockOptions::new().lease(Duration::from_secs(3_500));
    /// let guard = lock.lock_with(options).await?;
    /// # let guard = guard.expect("free");
    /// guard.leave_to_lease();
    /// # Ok(())
    /// # }
    /// ```
    pub fn leave_to_lease(mut self) {
        self.released = true;
        self.shared.leave(self.cell.id, self.level);
    }

    pub(crate) fn cell(&self) -> &Arc<HoldCell> {
        &self.cell
    }

    /// Has the server's fence counter raised to a token. False: the hold is not there any more, or
    /// the server did not do it.
    pub(crate) async fn raise(&self, token: u64) -> bool {
        let (name, field) = (self.cell.name.clone(), self.hold_id());
        let command = Command::Raise { name: name.clone(), field, token };
        let probe = Box::new(Probe { name, command, listen: None });
        let answer = self.shared.ask_cancellable(|request| Event::Probe { probe, request }).await;
        let Answer::Probed(Probed { reply, .. }) = answer else { return false };
        reply.body == Body::Raised(Raised::Yes)
    }

    /// The hold, and its client.
    pub(super) fn hold(&self) -> (&HoldCell, &Arc<Shared>) {
        (&self.cell, &self.shared)
    }

    /// Whether this is the only level of a hold.
    pub(super) fn is_only_level_of(&self, cell: &Arc<HoldCell>) -> bool {
        Arc::ptr_eq(&self.cell, cell) && cell.count() == 1
    }

    /// This level has a shared share from now on.
    pub(super) async fn downgrade(&self) -> Result<()> {
        let (hold, level) = (self.cell.id, self.level);
        match self.shared.ask(|request| Event::Downgrade { hold, level, request }).await {
            Answer::Failed(error) => Err(self.explain(error)),
            _ => Ok(()),
        }
    }

    /// In a forked child the error says that the client is closed, because the hold belongs to the
    /// parent.
    pub(super) fn why_lost(&self) -> Error {
        let reason = self.loss().unwrap_or(LossReason::Expired);
        let lost = Error::Lost { name: self.name().to_owned(), reason };
        self.shared.check_process().err().unwrap_or(lost).of_lock(self.name())
    }

    /// After a shutdown the guard's hold is lost, and the reason of the loss says more than
    /// "closed".
    pub(super) fn explain(&self, error: Error) -> Error {
        match error {
            Error::Closed { .. } if self.loss().is_some() => self.why_lost(),
            error => error.of_lock(self.name()),
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

/// Polls `future` for as long as a hold is there. `None`: it was lost, and `future` is dropped.
pub(crate) async fn run_while_held<F: Future, L>(
    lost: impl Future<Output = L>,
    is_held: impl Fn() -> bool,
    future: F,
) -> Option<F::Output> {
    let mut lost = pin!(lost);
    let mut future = pin!(Some(future));
    let done = poll_fn(|cx| {
        let over = lost.as_mut().poll(cx).is_ready() || !is_held();
        if over && !seeded!(RunEndsWithHold) {
            return Poll::Ready(None);
        }
        match future.as_mut().as_pin_mut() {
            Some(future) => future.poll(cx).map(Some),
            None => Poll::Ready(None),
        }
    })
    .await;
    // The future is dropped before the caller learns that the lock is gone.
    future.set(None);
    done
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

    use crate::base::clock::Clock;
    use crate::base::name::LockName;
    use crate::driver::tests::handle;

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
    async fn a_guard_sees_the_end_of_its_hold_whatever_became_of_the_driver() {
        let clock = Clock::tokio();
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
        // Polled first, because `is_held` records the loss for the others.
        assert_eq!(futures::poll!(lost.as_mut()), Poll::Ready(LossReason::Expired));
        assert!(!guard.is_held());
        assert!(futures::poll!(running.as_mut()).is_ready());
        assert_eq!(polls.get(), 1, "never polled past the end");
    }
}
