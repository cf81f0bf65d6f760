//! A waker that counts, for tests.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Wake;

/// Counts how often it is woken.
#[derive(Debug, Default)]
pub(crate) struct Woken(AtomicUsize);

impl Woken {
    pub(crate) fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
