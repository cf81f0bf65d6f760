//! Waking the callers that were answered.
//!
//! They are woken together, because a runtime wakes one of its threads for each task that is woken
//! alone.

use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::task::Waker;

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

/// Wakers are code of others. If one panics, the driver goes on.
fn wake(waker: Waker) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        // Dropping the payload of the panic may panic as well.
        std::mem::forget(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;
    use std::sync::Mutex;
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

    fn runs(what: impl Fn() + Send + Sync + 'static) -> Waker {
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
        let woken = Arc::<Woken>::default();
        let twice = runs(|| std::panic::panic_any(Twice));
        drop(Wakes(vec![twice.clone(), Arc::clone(&woken).into(), twice]));
        assert_eq!(woken.times(), 1);
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_else_from_being_woken() {
        let woken = Arc::<Woken>::default();
        let broken = Waker::from(Arc::new(Broken));
        let mut wakes = Wakes(vec![broken.clone(), Arc::clone(&woken).into(), broken]);
        wakes.wake_all();
        assert_eq!((woken.times(), wakes.len()), (1, 0));
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
}
