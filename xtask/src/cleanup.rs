//! What must be undone when the command ends, however it ends.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

type Action = Box<dyn FnOnce() + Send>;

struct Pending {
    next: u64,
    actions: BTreeMap<u64, Action>,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending { next: 0, actions: BTreeMap::new() });

/// Runs its action when dropped, or when the program is told to end.
#[must_use]
#[derive(Debug)]
pub(crate) struct Cleanup(u64);

impl Cleanup {
    pub(crate) fn new(action: impl FnOnce() + Send + 'static) -> Self {
        let mut pending = pending();
        pending.next += 1;
        let id = pending.next;
        pending.actions.insert(id, Box::new(action));
        Self(id)
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let action = pending().actions.remove(&self.0);
        if let Some(action) = action {
            action();
        }
    }
}

fn pending() -> MutexGuard<'static, Pending> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes SIGINT, SIGTERM and SIGHUP clean up, latest first, before they end the program.
pub(crate) fn on_signals() {
    let handler = || {
        // Kept locked, so that nothing new is started while the program ends.
        let mut pending = pending();
        while let Some((_, action)) = pending.actions.pop_last() {
            action();
        }
        std::process::exit(130);
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        eprintln!("warning: signals will not clean up: {error}");
    }
}
