//! A thread that ends waits for what was given up without waiting.
//!
//! The release of a dropped guard is sent by another thread, and so is what takes a cancelled
//! `lock()` back. At its end a process stops its threads, whatever they have still to send. So some
//! threads ask, when they end, that all releases of a client are answered, and wait for that a
//! moment: those that have dropped a guard or cancelled a `lock()`, and the one that has made the
//! client. The latter is mostly the main thread. Its end is the `exit` of the process, whichever
//! thread has dropped a guard before.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::mpsc;

use super::LAST_RELEASES;
use super::Shared;

thread_local! {
    static GIVEN_UP: RefCell<GivenUp> = const { RefCell::new(GivenUp(Vec::new())) };
}

/// The clients that this thread has made, or of which it has dropped guards or `lock()` futures.
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
        wait_for(&clients);
    }
}

/// The end of this thread waits for what this client has given up by then.
pub(super) fn note(client: &Arc<Shared>) {
    if GIVEN_UP.try_with(|given_up| given_up.borrow_mut().note(client)).is_err() {
        // The thread is at its end: a guard in another thread-local is dropped.
        wait_for(std::slice::from_ref(client));
    }
}

fn wait_for(clients: &[Arc<Shared>]) {
    let (done, settled) = mpsc::channel();
    clients.iter().for_each(|client| client.settle(done.clone()));
    drop(done);
    // Until every client has dropped its sender. To wait for each by itself would take longer.
    let _ = settled.recv_timeout(LAST_RELEASES);
}
