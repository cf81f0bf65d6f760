//! What users hold: a file for each type of lock, and the guard.

pub(crate) mod fair;
pub(crate) mod guard;
pub(crate) mod latch;
pub(crate) mod lock;
pub(crate) mod loss_signal;
pub(crate) mod multi;
pub(crate) mod mutex;
pub(crate) mod reentrant;
pub(crate) mod rw_lock;
pub(crate) mod semaphore;
pub(crate) mod single_flight;
