//! A thread that ends waits for what it has given up without waiting.
//!
//! The release of a dropped guard is sent by another thread, and so is what takes a cancelled
//! `lock()` back. At its end a process stops its threads, whatever they have still to send. So the
//! thread that dropped a guard asks, when it ends, that the releases are answered, and waits for
//! that a moment. For the main thread, its end is the `exit` of the process.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::mpsc;

use super::Shared;
use super::shared::LAST_RELEASES;

thread_local! {
    static GIVEN_UP: RefCell<GivenUp> = const { RefCell::new(GivenUp(Vec::new())) };
}

/// The clients of which this thread has dropped guards or `lock()` futures.
struct GivenUp(Vec<Weak<Shared>>);

impl GivenUp {
    fn note(&mut self, client: &Arc<Shared>) {
        if !self.0.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(client))) {
            self.0.retain(|known| known.strong_count() > 0);
            self.0.push(Arc::downgrade(client));
        }
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        // For a client whose last handle is gone, the drop of that handle has waited.
        let clients: Vec<_> = self.0.iter().filter_map(Weak::upgrade).collect();
        let (done, settled) = mpsc::channel();
        clients.iter().for_each(|client| client.settle(done.clone()));
        drop(done);
        // Until every client has dropped its sender; one after the other would take too long.
        let _ = settled.recv_timeout(LAST_RELEASES);
    }
}

/// This thread has given up something of a client.
pub(super) fn note(client: &Arc<Shared>) {
    // Where that fails, the thread is at its end already, and other thread-locals are dropped.
    let _ = GIVEN_UP.try_with(|given_up| given_up.borrow_mut().note(client));
}
