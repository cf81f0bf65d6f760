//! What callers and the engine share about a hold. The engine writes it; callers read it without a
//! message.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use dashmap::DashMap;
use tokio::sync::Notify;

use crate::base::clock::Moment;
use crate::base::error::LossReason;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;

/// In place of the code of a reason: the hold was released.
const RELEASED: u8 = u8::MAX;

/// A hold as callers see it.
pub(crate) struct HoldCell {
    pub(crate) name: LockName,
    /// The hold id: the number in the field in Redis.
    pub(crate) id: u64,
    /// Until when the hold is valid, in nanoseconds; 0 once it has ended. One word for both, so
    /// that a late renewal can never revive a hold whose end a caller has seen.
    valid_until: AtomicU64,
    /// Why it ended: 0 (it has not), `RELEASED`, or the code of a `LossReason`.
    reason: AtomicU8,
    /// The reason if `valid_until` passes: `Expired`, or `MaxHold` if that limit is nearer.
    expiry_means: AtomicU8,
    suspect: AtomicU8,
    count: AtomicU32,
    token: AtomicU64,
    /// Made for the first caller that waits for the end, since most holds end without one.
    ended: Mutex<Option<Arc<Notify>>>,
}

impl HoldCell {
    pub(crate) fn new(name: LockName, id: u64, token: u64, valid_until: Moment) -> Self {
        Self {
            name,
            id,
            valid_until: AtomicU64::new(valid_until.0),
            reason: AtomicU8::new(0),
            expiry_means: AtomicU8::new(code(LossReason::Expired)),
            suspect: AtomicU8::new(0),
            count: AtomicU32::new(0),
            token: AtomicU64::new(token),
            ended: Mutex::new(None),
        }
    }

    /// True if the hold is valid and has not ended. Only compares clocks.
    pub(crate) fn is_held(&self, now: Moment) -> bool {
        now.0 < self.valid_until.load(Ordering::Acquire)
    }

    /// The same for callers. It also records an expiry, because a "no" must be final, and the
    /// driver may be about to handle a reply with an earlier reading of the clock.
    pub(crate) fn is_still_held(&self, now: Moment) -> bool {
        self.lose_if_past(now);
        self.is_held(now)
    }

    /// Zero once the hold has ended.
    pub(crate) fn valid_until(&self) -> Moment {
        Moment(self.valid_until.load(Ordering::Acquire))
    }

    /// Moves `valid_until` forward, never back. Returns false, without a change, if the hold has
    /// ended or expired.
    pub(crate) fn extend(&self, now: Moment, until: Moment) -> bool {
        self.valid_until
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                (old != 0 && now.0 < old).then_some(old.max(until.0))
            })
            .is_ok()
    }

    /// Moves `valid_until` back to at most `until`, because a `max_hold` begins to count.
    pub(crate) fn cap(&self, until: Moment) {
        let _ = self.valid_until.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            (old > until.0).then_some(until.0.max(1))
        });
    }

    /// The reason if `valid_until` passes.
    pub(crate) fn expiry(&self) -> LossReason {
        reason_of(self.expiry_means.load(Ordering::Acquire)).unwrap_or(LossReason::Expired)
    }

    pub(crate) fn set_expiry_means(&self, reason: LossReason) {
        self.expiry_means.store(code(reason), Ordering::Release);
    }

    /// Ends the hold as lost. The first reason stays. Returns true if this call was the first.
    pub(crate) fn lose(&self, reason: LossReason) -> bool {
        let first = self
            .reason
            .compare_exchange(0, code(reason), Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        self.valid_until.store(0, Ordering::Release);
        self.tell_waiters();
        first
    }

    /// Ends the hold if its validity has ended. Callers do this when they look before the engine
    /// does.
    pub(crate) fn lose_if_past(&self, now: Moment) {
        let until = self.valid_until.load(Ordering::Acquire);
        // Compare and swap, so that an extension that came first keeps the hold.
        if until != 0
            && now.0 >= until
            && self
                .valid_until
                .compare_exchange(until, 0, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        {
            let reason = self.expiry();
            self.lose(reason);
        }
    }

    /// The first half of `lose_if_past`.
    #[cfg(test)]
    pub(crate) fn begin_to_lose(&self) {
        self.valid_until.store(0, Ordering::Release);
    }

    /// Ends the hold as released.
    pub(crate) fn release(&self) {
        let _ = self.reason.compare_exchange(0, RELEASED, Ordering::AcqRel, Ordering::Acquire);
        self.valid_until.store(0, Ordering::Release);
        self.count.store(0, Ordering::Release);
        self.tell_waiters();
    }

    /// Wakers run foreign code: a panic in one must not end the driver, if the driver is the
    /// caller.
    fn tell_waiters(&self) {
        let ended = self.lock_ended().clone();
        let _ = catch_unwind(AssertUnwindSafe(|| ended.inspect(|ended| ended.notify_waiters())));
    }

    /// Why the hold was lost, if it was.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        reason_of(self.reason.load(Ordering::Acquire))
    }

    /// True if its owner released it before it was lost.
    pub(crate) fn is_released(&self) -> bool {
        self.reason.load(Ordering::Acquire) == RELEASED
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    pub(crate) fn set_count(&self, count: u32) {
        self.count.store(count, Ordering::Release);
    }

    pub(crate) fn token(&self) -> u64 {
        self.token.load(Ordering::Acquire)
    }

    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_suspect(&self, suspect: bool) {
        self.suspect.store(u8::from(suspect), Ordering::Release);
    }

    /// Notified when the hold ends. Create and enable the future first, then look at `loss`, then
    /// wait.
    pub(crate) fn ended(&self) -> Arc<Notify> {
        Arc::clone(self.lock_ended().get_or_insert_with(|| Arc::new(Notify::new())))
    }

    /// Whoever ends the hold writes the reason before it locks this; whoever waits locks this
    /// before it looks at `loss`. So no end is missed.
    fn lock_ended(&self) -> MutexGuard<'_, Option<Arc<Notify>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HoldCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldCell")
            .field("name", &self.name)
            .field("id", &self.id)
            .field("count", &self.count())
            .field("loss", &self.loss())
            .finish_non_exhaustive()
    }
}

fn code(reason: LossReason) -> u8 {
    match reason {
        LossReason::Expired => 1,
        LossReason::ForceUnlocked => 2,
        LossReason::TakenOver => 3,
        LossReason::ServerLostData => 4,
        LossReason::Removed => 5,
        LossReason::MaxHold => 6,
        LossReason::ClientShutdown => 7,
        LossReason::Forked => 8,
    }
}

fn reason_of(code: u8) -> Option<LossReason> {
    Some(match code {
        1 => LossReason::Expired,
        2 => LossReason::ForceUnlocked,
        3 => LossReason::TakenOver,
        4 => LossReason::ServerLostData,
        5 => LossReason::Removed,
        6 => LossReason::MaxHold,
        7 => LossReason::ClientShutdown,
        8 => LossReason::Forked,
        _ => return None,
    })
}

/// The current hold of each owner under each name, for owners that may re-enter. Written by the
/// engine, read by callers.
pub(crate) type Directory = DashMap<(LockName, OwnerKey), Arc<HoldCell>>;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    use std::future::Future;
    use std::task::Context;
    use std::task::Wake;
    use std::task::Waker;

    /// A waker of an executor that has ended.
    #[derive(Debug)]
    pub(crate) struct Broken;

    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("nobody is there to run it");
        }
    }

    const END: Moment = Moment(100);

    fn cell() -> HoldCell {
        HoldCell::new(LockName::new("cell").unwrap(), 1, 7, END)
    }

    #[test]
    fn a_hold_is_held_up_to_valid_until_and_no_longer() {
        let cell = cell();
        assert!(cell.is_held(Moment(99)));
        assert!(!cell.is_held(END), "although nobody has looked yet");
        assert_eq!(cell.loss(), None);
        cell.lose_if_past(Moment(99));
        assert_eq!(cell.loss(), None);
        cell.lose_if_past(END);
        assert_eq!(cell.loss(), Some(LossReason::Expired));
    }

    #[test]
    fn whoever_ends_a_hold_is_spared_the_wakers_that_panic() {
        for end in [HoldCell::release, |cell: &HoldCell| assert!(cell.lose(LossReason::Expired))] {
            let cell = cell();
            let ended = cell.ended();
            let mut ended = Box::pin(ended.notified());
            let broken = Arc::new(Broken).into();
            assert!(ended.as_mut().poll(&mut Context::from_waker(&broken)).is_pending());
            end(&cell);
            assert!(ended.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }
    }

    #[test]
    fn a_late_confirmation_revives_nothing() {
        let later = Moment(500);
        let (lost, released, past) = (cell(), cell(), cell());
        lost.lose(LossReason::Removed);
        released.release();
        for (ended, now) in [(&lost, Moment(50)), (&released, Moment(50)), (&past, END)] {
            assert!(!ended.extend(now, later));
            assert!(!ended.is_held(now), "{ended:?}");
        }
        let live = cell();
        assert!(live.extend(Moment(50), later) && live.is_held(Moment(499)));
        assert!(live.extend(Moment(50), END) && live.is_held(Moment(499)), "never back");
    }

    #[test]
    fn a_caller_who_saw_it_run_out_does_not_see_it_again() {
        let cell = cell();
        assert!(!cell.is_still_held(END));
        // The driver has read its clock earlier, and handles a reply only now.
        assert!(!cell.extend(Moment(99), Moment(500)));
        assert!(!cell.is_still_held(END));
    }

    #[test]
    fn the_first_reason_stays() {
        let cell = cell();
        assert!(cell.lose(LossReason::ForceUnlocked));
        assert!(!cell.lose(LossReason::Expired));
        assert_eq!(cell.loss(), Some(LossReason::ForceUnlocked));
    }
}
