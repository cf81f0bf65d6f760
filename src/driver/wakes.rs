//! Waking the callers that were answered.
//!
//! They are woken together, because a runtime wakes one of its threads for each task that is woken
//! alone.
//!
//! A driver with a thread of its own is helped by the callers that it has just woken, one at a
//! time: they wake others, since their runtime is awake already. Without this help, 64 tasks on 64
//! names get about 0.7 times the grants.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// A caller that helps wakes at most this many others, because it has work of its own.
const HELPED: usize = 64;

/// Futures that are still to be woken. Dropping it wakes them, so that none of them waits in vain.
#[derive(Debug, Default)]
pub(crate) struct Wakes(Vec<Waker>);

impl Wakes {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Moves all wakers to `others`.
    pub(crate) fn leave_all_to(&mut self, others: &mut Self) {
        others.0.append(&mut self.0);
    }

    /// Adds the waker of an answered future, if it waits.
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        self.0.extend(waker);
    }

    /// Wakes them in the order in which they were added.
    pub(crate) fn wake_all(&mut self) {
        self.0.drain(..).for_each(wake);
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.wake_all();
    }
}

/// The answered callers that the thread of a driver wakes, with the help of those that run already.
///
/// Each waker is taken out once, by the thread that wakes it. The driver goes on until none is
/// left, so that each is woken although nobody helps.
#[derive(Debug, Default)]
pub(crate) struct PendingWakes {
    wakers: Mutex<VecDeque<Waker>>,
    /// How many wakers there are: a hint that spares callers the lock when there are none.
    count: AtomicUsize,
    helped: AtomicBool,
}

impl PendingWakes {
    /// Wakes all of them.
    pub(crate) fn wake_all(&self, wakes: &mut Wakes) {
        if wakes.len() > 1 {
            let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            wakers.extend(wakes.0.drain(..));
            self.count.store(wakers.len(), Ordering::Relaxed);
            drop(wakers);
            while self.wake_next() {}
        }
        wakes.wake_all();
    }

    /// Called by an answered caller. One helps at a time: a task that its runtime polls while it is
    /// woken does not help in turn.
    pub(crate) fn help(&self) {
        if self.count.load(Ordering::Relaxed) == 0 || self.helped.swap(true, Ordering::Relaxed) {
            return;
        }
        for _ in 0..HELPED {
            if !self.wake_next() {
                break;
            }
        }
        self.helped.store(false, Ordering::Relaxed);
    }

    fn wake_next(&self) -> bool {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = wakers.pop_front();
        self.count.store(wakers.len(), Ordering::Relaxed);
        drop(wakers);
        next.map(wake).is_some()
    }
}

/// Wakers are code of others. If one panics, the driver goes on.
fn wake(waker: Waker) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        // Dropping the payload of the panic may panic as well.
        std::mem::forget(panic);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    use std::sync::Arc;
    use std::task::Wake;

    use crate::backend::woken::Woken;
    use crate::base::cell::tests::Broken;

    /// Does that when it is woken.
    struct Runs<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for Runs<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    pub(crate) fn runs(what: impl Fn() + Send + Sync + 'static) -> Waker {
        Arc::new(Runs(what)).into()
    }

    /// Wakers that record in which order they were woken.
    struct WakeLog(Arc<Mutex<Vec<u8>>>);

    impl WakeLog {
        fn waker(&self, number: u8) -> Waker {
            let told = Arc::clone(&self.0);
            runs(move || told.lock().unwrap().push(number))
        }

        fn answered(&self, numbers: std::ops::RangeInclusive<u8>) -> Wakes {
            Wakes(numbers.map(|number| self.waker(number)).collect())
        }

        fn take(&self) -> Vec<u8> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    /// What a waker has panicked with.
    struct Twice;

    impl Drop for Twice {
        fn drop(&mut self) {
            panic!("once more");
        }
    }

    #[test]
    fn what_a_waker_has_panicked_with_does_no_harm_either() {
        let (woken, rest) = (Arc::<Woken>::default(), PendingWakes::default());
        let twice = runs(|| std::panic::panic_any(Twice));
        rest.wake_all(&mut Wakes(vec![twice.clone(), Arc::clone(&woken).into(), twice]));
        assert_eq!(woken.times(), 1);
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_else_from_being_woken() {
        let woken = Arc::<Woken>::default();
        let broken = Waker::from(Arc::new(Broken));
        let mut wakes = Wakes(vec![broken.clone(), Arc::clone(&woken).into(), broken.clone()]);
        wakes.wake_all();
        assert_eq!((woken.times(), wakes.len()), (1, 0));
        let rest = PendingWakes::default();
        rest.wake_all(&mut Wakes(vec![broken.clone(), Arc::clone(&woken).into(), broken]));
        assert_eq!(woken.times(), 2);
    }

    #[test]
    fn those_who_were_answered_are_woken_together_and_in_order() {
        let told = WakeLog(Arc::default());
        let mut wakes = told.answered(1..=3);
        assert!(wakes.len() == 3 && told.take().is_empty());
        wakes.wake_all();
        assert_eq!(told.take(), [1, 2, 3]);
        wakes.wake_all();
        assert!(told.take().is_empty(), "once");
        drop(told.answered(1..=3));
        assert_eq!(told.take(), [1, 2, 3], "dropped, it wakes them");
    }

    #[test]
    fn whoever_runs_meanwhile_helps() {
        let (told, rest) = (WakeLog(Arc::default()), Arc::new(PendingWakes::default()));
        let most = u8::try_from(HELPED).unwrap();
        for _ in 0..2 {
            let mut wakes = told.answered(1..=most + 2);
            let (helper, others) = (Arc::clone(&rest), Arc::clone(&told.0));
            wakes.0.insert(
                0,
                runs(move || {
                    helper.help();
                    others.lock().unwrap().push(0);
                }),
            );
            rest.wake_all(&mut wakes);
            let expected: Vec<u8> = (1..=most).chain([0, most + 1, most + 2]).collect();
            assert_eq!(told.take(), expected, "so many by its help, the others without");
            assert!(wakes.len() == 0 && rest.wakers.lock().unwrap().is_empty());
            rest.help();
            assert!(told.take().is_empty());
        }
    }

    #[test]
    fn who_is_run_by_a_helper_does_not_help_in_turn() {
        let (told, rest) = (WakeLog(Arc::default()), Arc::new(PendingWakes::default()));
        let deep = Arc::<Mutex<(usize, usize)>>::default();
        let helper = |number: u8| {
            let (rest, deep, told) = (Arc::clone(&rest), Arc::clone(&deep), told.waker(number));
            runs(move || {
                let enter = |by: usize| {
                    let mut deep = deep.lock().unwrap();
                    deep.0 += by;
                    deep.1 = deep.1.max(deep.0);
                };
                enter(1);
                rest.help();
                deep.lock().unwrap().0 -= 1;
                told.wake_by_ref();
            })
        };
        rest.wake_all(&mut Wakes((1..=9).map(helper).collect()));
        let mut all = told.take();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(deep.lock().unwrap().1, 2, "who was woken first, and whom it wakes");
    }

    #[test]
    fn who_was_answered_alone_is_woken_at_once() {
        let (told, rest) = (WakeLog(Arc::default()), PendingWakes::default());
        rest.wake_all(&mut told.answered(1..=1));
        assert_eq!(told.take(), [1]);
        rest.wake_all(&mut Wakes::default());
        assert!(told.take().is_empty());
    }
}
