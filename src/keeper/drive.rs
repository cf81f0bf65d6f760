//! Whether anybody drives the current-thread runtime that a keeper shares with its callers.
//!
//! On such a runtime only `Runtime::block_on` drives sockets, timers and spawned tasks.
//! `Handle::block_on` on another thread does not: if nobody is in `Runtime::block_on` meanwhile, the
//! keeper stands still, and so does the call that waits for it
//! (<https://docs.rs/tokio/latest/tokio/runtime/struct.Handle.html#method.block_on>). A caller that
//! may be in that place has a thread look at whether the keeper moves. Such callers are rare: they
//! are outside of tasks, and on another thread than the one that has driven the runtime so far.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::task::Context;
use std::task::Wake;
use std::task::Waker;
use std::thread;
use std::thread::ThreadId;
use std::time::Duration;

use futures::task::AtomicWaker;

use crate::error::Error;

/// Kept by the future of a keeper.
#[derive(Debug)]
pub(super) struct Drive {
    polls: Mutex<Polls>,
    keeper: Waker,
    /// How long it may stand still, unless a call says otherwise.
    limit: Duration,
}

#[derive(Debug, Default)]
struct Polls {
    count: u64,
    by: Option<ThreadId>,
}

impl Drive {
    /// `keeper` has the keeper polled, if anybody drives its runtime.
    pub(super) fn new(keeper: &Arc<impl Wake + Send + Sync + 'static>, limit: Duration) -> Arc<Self> {
        let keeper = Waker::from(Arc::clone(keeper));
        Arc::new(Self { polls: Mutex::default(), keeper, limit })
    }

    /// The runtime polls the keeper.
    pub(super) fn note_poll(&self) {
        let mut polls = self.polls();
        polls.count += 1;
        polls.by = Some(thread::current().id());
    }

    /// For a caller that may be on a thread that drives nothing. None: it is not, or the system has
    /// no thread left.
    pub(super) fn watch(self: &Arc<Self>, limit: Option<Duration>) -> Option<Watched> {
        let limit = limit.unwrap_or(self.limit);
        if tokio::task::try_id().is_some() || self.polls().by == Some(thread::current().id()) {
            return None;
        }
        let stalled = Arc::<Stalled>::default();
        let (end, ended) = mpsc::channel();
        let (drive, told) = (Arc::clone(self), Arc::clone(&stalled));
        let watch = move || {
            if drive.stands_still(limit, &ended) {
                told.is_so.store(true, Ordering::Release);
                told.caller.wake();
            }
        };
        thread::Builder::new().name("redis-lock-watch".to_owned()).spawn(watch).ok()?;
        Some(Watched { stalled, limit, _end: end })
    }

    /// Looks on until the keeper has not been polled for so long, or the call has ended.
    fn stands_still(&self, limit: Duration, ended: &mpsc::Receiver<()>) -> bool {
        loop {
            let before = self.polls().count;
            self.keeper.wake_by_ref();
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected) {
                return false;
            }
            if self.polls().count == before {
                return true;
            }
        }
    }

    fn polls(&self) -> MutexGuard<'_, Polls> {
        self.polls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Stalled {
    is_so: AtomicBool,
    caller: AtomicWaker,
}

/// A call that is watched; its drop ends the watch.
#[derive(Debug)]
pub(super) struct Watched {
    stalled: Arc<Stalled>,
    limit: Duration,
    _end: mpsc::Sender<()>,
}

impl Watched {
    /// An error once the keeper stands still. Wakes the caller then.
    pub(super) fn stalled(&self, cx: &Context<'_>) -> Option<Error> {
        self.stalled.caller.register(cx.waker());
        if !self.stalled.is_so.load(Ordering::Acquire) {
            return None;
        }
        let cause = "nobody drives the current-thread runtime of this client; Handle::block_on does \
                     not: use Keeper::Thread, or stay in Runtime::block_on meanwhile";
        Some(Error::Unavailable { name: None, waited: self.limit, cause: cause.to_owned() })
    }
}
