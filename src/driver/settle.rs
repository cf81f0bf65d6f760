//! Lets the end of a thread wait for the releases that it left to the background.
//!
//! The release of a dropped guard is sent by another thread, and so is the release that undoes a
//! cancelled `lock()`. When a process ends, its other threads are stopped, even if they still have
//! something to send. So some threads wait at their end, for a short time, until all releases of a
//! client are answered: threads that have dropped a guard or cancelled a `lock()`, and the thread
//! that made the client. That is mostly the main thread, whose end is the `exit` of the process,
//! whichever thread dropped a guard before.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::mpsc;

use super::LAST_RELEASES;
use super::Shared;

thread_local! {
    static GIVEN_UP: RefCell<ClientsToSettle> = const { RefCell::new(ClientsToSettle(Vec::new())) };
}

/// The clients that this thread has made, or of which it has dropped guards or `lock()` futures.
struct ClientsToSettle(Vec<Weak<Shared>>);

impl ClientsToSettle {
    fn note(&mut self, client: &Arc<Shared>) {
        if !self.0.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(client))) {
            self.0.retain(|known| known.strong_count() > 0);
            self.0.push(Arc::downgrade(client));
        }
    }
}

impl Drop for ClientsToSettle {
    fn drop(&mut self) {
        // If the last handle of a client is gone, its drop has waited already.
        let clients: Vec<_> = self.0.iter().filter_map(Weak::upgrade).collect();
        wait_for(&clients);
    }
}

/// Makes the end of this thread wait for the releases that this client has left to the background
/// by then.
pub(super) fn note(client: &Arc<Shared>) {
    if GIVEN_UP.try_with(|given_up| given_up.borrow_mut().note(client)).is_err() {
        // The thread is ending, and a guard in another thread-local is dropped.
        wait_for(std::slice::from_ref(client));
    }
}

fn wait_for(clients: &[Arc<Shared>]) {
    let (done, settled) = mpsc::channel();
    clients.iter().for_each(|client| client.settle(done.clone()));
    drop(done);
    // Waits until every client has dropped its sender, for all of them at once.
    let _ = settled.recv_timeout(LAST_RELEASES);
}
