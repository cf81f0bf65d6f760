//! Wakes its owner, and remembers that it did: what has not rung need not be looked at again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Wake;
use std::task::Waker;

use futures::task::AtomicWaker;

#[derive(Debug)]
pub(crate) struct Bell {
    rung: AtomicBool,
    owner: AtomicWaker,
}

impl Default for Bell {
    /// Rung: nothing has been looked at yet.
    fn default() -> Self {
        Self { rung: AtomicBool::new(true), owner: AtomicWaker::new() }
    }
}

impl Bell {
    /// Whether it has rung since it was last asked. From here on it wakes this owner.
    pub(crate) fn take(&self, owner: &Waker) -> bool {
        self.owner.register(owner);
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// There may be more where something was found.
    pub(crate) fn ring_again(&self) {
        self.rung.store(true, Ordering::Release);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.owner.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::woken::Woken;

    #[test]
    fn it_is_heard_once_and_by_the_last_who_asked() {
        let (first, second) = (Arc::<Woken>::default(), Arc::<Woken>::default());
        let bell = Arc::<Bell>::default();
        assert!(bell.take(&Arc::clone(&first).into()), "nothing has been looked at yet");
        assert!(!bell.take(&Arc::clone(&second).into()));
        Waker::from(Arc::clone(&bell)).wake();
        assert_eq!((first.times(), second.times()), (0, 1));
        assert!(bell.take(&Arc::clone(&second).into()));
        assert!(!bell.take(&Arc::clone(&second).into()));
        bell.ring_again();
        assert!(bell.take(&second.into()));
    }
}
