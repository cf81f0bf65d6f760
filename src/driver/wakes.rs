//! Waking those who were answered.
//!
//! They are woken together: a runtime that is told of one task after the other wakes one of its threads for each. A driver's
//! thread that wakes several has their help: the first of them may be given the core of whoever woke it, runs alone, and
//! sleeps again before the next is woken. So whoever gets its answer meanwhile wakes some of the others, on the thread of
//! its own runtime, which need not be woken for them.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// Whoever helps wakes so many others at most: it has been given its answer to go on with its own work.
const HELPED: usize = 64;

/// Futures that are still to be woken. Dropped, it wakes them: none of them waits in vain.
#[derive(Debug, Default)]
pub(crate) struct Wakes(VecDeque<Waker>);

impl Wakes {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whoever was answered last is to be woken with these instead.
    pub(crate) fn leave_last_to(&mut self, others: &mut Self) {
        others.0.extend(self.0.pop_back());
    }

    /// All of these are to be woken with those instead.
    pub(crate) fn leave_all_to(&mut self, others: &mut Self) {
        others.0.append(&mut self.0);
    }

    /// Whoever is told of an answer here, if somebody waits for it.
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        self.0.extend(waker);
    }

    /// In the order in which they were answered. This other one goes before the last, whom Tokio polls first.
    pub(crate) fn wake_all(&mut self, other: Option<&Waker>) {
        while self.0.len() > 1 {
            self.0.pop_front().into_iter().for_each(wake);
        }
        if let Some(other) = other {
            other.wake_by_ref();
        }
        self.0.pop_front().into_iter().for_each(wake);
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.wake_all(None);
    }
}

/// Of those whom a driver's thread wakes, those who still are to be: whoever of them runs helps.
///
/// Each is taken out by one, who wakes it. The driver's thread goes on until nobody is left, so that nobody waits for help that
/// does not come. Whom a task of Tokio's has woken last runs after that task, on its thread: it is up to its caller.
#[derive(Debug, Default)]
pub(crate) struct PendingWakes {
    wakers: Mutex<VecDeque<Waker>>,
    /// How many they are: a hint, for those who have nothing to help with.
    count: AtomicUsize,
    helped: AtomicBool,
}

impl PendingWakes {
    /// Wakes all of them.
    pub(crate) fn wake_all(&self, wakes: &mut Wakes) {
        if wakes.len() > 1 {
            let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            wakers.append(&mut wakes.0);
            self.count.store(wakers.len(), Ordering::Relaxed);
            drop(wakers);
            while self.wake_next() {}
        }
        wakes.wake_all(None);
    }

    /// For whoever was answered. One helps at a time; whom a runtime runs at once when it is woken does not in turn.
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

/// Wakers are code of others: one that panics is not the end of everybody else's locks.
fn wake(waker: Waker) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        // What it has panicked with may panic as well when it is dropped.
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

    /// Those who say which of them were woken, in order.
    struct Told(Arc<Mutex<Vec<u8>>>);

    impl Told {
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
        rest.wake_all(&mut Wakes(VecDeque::from([twice.clone(), Arc::clone(&woken).into(), twice])));
        assert_eq!(woken.times(), 1);
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_else_from_being_woken() {
        let (woken, driver) = <(Arc<Woken>, Arc<Woken>)>::default();
        let broken = Waker::from(Arc::new(Broken));
        let mut wakes = Wakes(VecDeque::from([broken.clone(), Arc::clone(&woken).into(), broken.clone()]));
        wakes.wake_all(Some(&Arc::clone(&driver).into()));
        assert_eq!((woken.times(), driver.times()), (1, 1));
        let rest = PendingWakes::default();
        rest.wake_all(&mut Wakes(VecDeque::from([broken.clone(), Arc::clone(&woken).into(), broken])));
        assert_eq!(woken.times(), 2);
    }

    /// Tokio polls first what was woken last.
    #[test]
    fn those_who_were_answered_are_woken_together_and_another_before_the_last() {
        let told = Told(Arc::default());
        let mut wakes = told.answered(1..=3);
        assert!(wakes.len() == 3 && told.take().is_empty());
        wakes.wake_all(Some(&told.waker(9)));
        assert_eq!(told.take(), [1, 2, 9, 3]);
        wakes.wake_all(Some(&told.waker(9)));
        assert_eq!(told.take(), [9]);
        drop(told.answered(1..=3));
        assert_eq!(told.take(), [1, 2, 3], "dropped, it wakes them");
    }

    #[test]
    fn whoever_runs_meanwhile_helps() {
        let (told, rest) = (Told(Arc::default()), Arc::new(PendingWakes::default()));
        let most = u8::try_from(HELPED).unwrap();
        for _ in 0..2 {
            let mut wakes = told.answered(1..=most + 2);
            let (helper, others) = (Arc::clone(&rest), Arc::clone(&told.0));
            wakes.0.push_front(runs(move || {
                helper.help();
                others.lock().unwrap().push(0);
            }));
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
        let (told, rest) = (Told(Arc::default()), Arc::new(PendingWakes::default()));
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
        let (told, rest) = (Told(Arc::default()), PendingWakes::default());
        rest.wake_all(&mut told.answered(1..=1));
        assert_eq!(told.take(), [1]);
        rest.wake_all(&mut Wakes::default());
        assert!(told.take().is_empty());
    }
}
