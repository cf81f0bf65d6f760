//! A waker that remembers that it was woken, so that sources that did not wake it need not be
//! polled.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Wake;
use std::task::Waker;

use futures::task::AtomicWaker;

#[derive(Debug)]
pub(crate) struct WakeFlag {
    is_set: AtomicBool,
    owner: AtomicWaker,
}

impl Default for WakeFlag {
    /// Set, because nothing has been polled yet.
    fn default() -> Self {
        Self { is_set: AtomicBool::new(true), owner: AtomicWaker::new() }
    }
}

impl WakeFlag {
    /// Clears the flag and returns whether it was set. From now on this owner is woken.
    pub(crate) fn take(&self, owner: &Waker) -> bool {
        self.owner.register(owner);
        self.is_set.swap(false, Ordering::AcqRel)
    }

    /// Sets the flag without waking the owner, because a source that has just returned an event may
    /// have more.
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        self.owner.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::woken::Woken;

    #[test]
    fn each_wake_is_reported_once_and_wakes_the_owner_that_asked_last() {
        let (first, second) = (Arc::<Woken>::default(), Arc::<Woken>::default());
        let flag = Arc::<WakeFlag>::default();
        assert!(flag.take(&Arc::clone(&first).into()), "nothing has been polled yet");
        assert!(!flag.take(&Arc::clone(&second).into()));
        Waker::from(Arc::clone(&flag)).wake();
        assert_eq!((first.times(), second.times()), (0, 1));
        assert!(flag.take(&Arc::clone(&second).into()));
        assert!(!flag.take(&Arc::clone(&second).into()));
        flag.set();
        assert!(flag.take(&second.into()));
    }
}
