//! Whether anybody drives the current-thread runtime that a driver shares with its callers.
//!
//! On such a runtime only `Runtime::block_on` drives sockets, timers and spawned tasks.
//! `Handle::block_on` does not
//! (<https://docs.rs/tokio/latest/tokio/runtime/struct.Handle.html#method.block_on>), and neither
//! does another executor or another runtime. If nobody is in `Runtime::block_on` meanwhile, the
//! driver stands still, and so does the call that waits for it.
//!
//! So calls from elsewhere are watched by a thread. It wakes the driver, and looks later whether
//! the driver was polled. Most calls come from the thread that drives the runtime, and are not
//! watched. There is one such thread for all calls of a client, and only while there are any.
//!
//! One case is not noticed: a thread that has driven the runtime drives another current-thread
//! runtime now, and calls from there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Wake;
use std::task::Waker;
use std::thread;
use std::thread::ThreadId;
use std::time::Duration;
use std::time::Instant;

use futures::task::AtomicWaker;

use crate::base::error::Error;
use crate::base::yielding::yield_is_deferred;

/// How long the thread that watches stays when there is no call any more.
const IDLE: Duration = Duration::from_secs(1);

/// Kept by the future of a driver, and by the callers that watch it.
#[derive(Debug)]
pub(super) struct Drive {
    polls: Mutex<Polls>,
    driver: Waker,
    /// How long it may stand still, unless a call says otherwise.
    limit: Duration,
    calls: Mutex<WatchedCalls>,
    /// There are calls to watch where there were none, or one with a shorter limit than the others.
    news: Condvar,
}

#[derive(Debug)]
struct Polls {
    count: u64,
    by: ThreadId,
}

impl Drive {
    /// To be called on the thread that is about to drive the runtime. `driver` has the driver
    /// polled, if anybody drives its runtime.
    pub(super) fn new(
        driver: &Arc<impl Wake + Send + Sync + 'static>,
        limit: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            polls: Mutex::new(Polls { count: 0, by: thread::current().id() }),
            driver: Waker::from(Arc::clone(driver)),
            limit,
            calls: Mutex::default(),
            news: Condvar::new(),
        })
    }

    /// The runtime polls the driver.
    pub(super) fn note_poll(&self) {
        let mut polls = lock(&self.polls);
        polls.count += 1;
        polls.by = thread::current().id();
    }

    /// Watches a call, if it may be that nobody drives the runtime. None also if the system has no
    /// thread left.
    pub(super) fn watch(self: &Arc<Self>, limit: Option<Duration>) -> Option<Watched> {
        let limit = limit.unwrap_or(self.limit);
        if lock(&self.polls).by == thread::current().id() && yield_is_deferred() {
            return None;
        }
        let stalled = Arc::<Stalled>::default();
        let call = WatchedCall {
            limit,
            stalled: Arc::downgrade(&stalled),
            seen: (lock(&self.polls).count, now()),
        };
        // From here on it has the time of the limit to be polled.
        self.driver.wake_by_ref();
        let number = self.add(call)?;
        Some(Watched { stalled, limit, number, drive: Arc::clone(self) })
    }

    fn add(self: &Arc<Self>, call: WatchedCall) -> Option<u64> {
        let mut calls = lock(&self.calls);
        let is_news = calls.list.values().all(|other| call.limit < other.limit);
        calls.last += 1;
        let number = calls.last;
        calls.list.insert(number, call);
        if !calls.are_watched {
            let drive = Arc::clone(self);
            let thread = thread::Builder::new().name("redis-lock-watch".to_owned());
            thread.spawn(move || drive.watch_calls()).ok()?;
            calls.are_watched = true;
        } else if is_news {
            self.news.notify_one();
        }
        Some(number)
    }

    fn watch_calls(&self) {
        let mut calls = lock(&self.calls);
        loop {
            let polls = lock(&self.polls).count;
            let (stalled, next) = calls.look(polls, now());
            if !stalled.is_empty() {
                // What is woken is code of others, and may end calls.
                drop(calls);
                stalled.into_iter().for_each(|call| call.tell());
                calls = lock(&self.calls);
                continue;
            }
            if next.is_some() {
                self.driver.wake_by_ref();
            }
            let pause = self.news.wait_timeout(calls, next.unwrap_or(IDLE));
            calls = pause.unwrap_or_else(PoisonError::into_inner).0;
            if next.is_none() && calls.list.is_empty() {
                calls.are_watched = false;
                return;
            }
        }
    }
}

/// The calls that are watched.
#[derive(Debug, Default)]
struct WatchedCalls {
    list: BTreeMap<u64, WatchedCall>,
    /// The number of the last call.
    last: u64,
    /// A thread watches them.
    are_watched: bool,
}

#[derive(Debug)]
struct WatchedCall {
    limit: Duration,
    stalled: Weak<Stalled>,
    /// The polls of the driver so far, and when that number was first seen. The driver was woken
    /// then.
    seen: (u64, Instant),
}

impl WatchedCalls {
    /// The calls during which the driver has stood still for too long, and when to look again.
    fn look(&mut self, polls: u64, now: Instant) -> (Vec<Arc<Stalled>>, Option<Duration>) {
        let (mut stalled, mut next) = (Vec::new(), None::<Duration>);
        self.list.retain(|_, call| {
            let Some(told) = call.stalled.upgrade() else { return false };
            if call.seen.0 != polls {
                call.seen = (polls, now);
            }
            let left = call.limit.saturating_sub(now.duration_since(call.seen.1));
            if left.is_zero() {
                stalled.push(told);
                return false;
            }
            next = Some(next.map_or(left, |next| next.min(left)));
            true
        });
        (stalled, next)
    }
}

#[derive(Debug, Default)]
struct Stalled {
    is_so: AtomicBool,
    caller: AtomicWaker,
}

impl Stalled {
    fn tell(&self) {
        self.is_so.store(true, Ordering::Release);
        self.caller.wake();
    }
}

/// A call that is watched until this is dropped.
#[derive(Debug)]
pub(super) struct Watched {
    stalled: Arc<Stalled>,
    limit: Duration,
    number: u64,
    drive: Arc<Drive>,
}

impl Watched {
    /// The error, once the driver has stood still for too long. Registers the caller to be woken
    /// then.
    pub(super) fn stalled(&self, cx: &Context<'_>) -> Option<Error> {
        self.stalled.caller.register(cx.waker());
        if !self.stalled.is_so.load(Ordering::Acquire) {
            return None;
        }
        let cause = "in that time nobody drove the current-thread runtime of this client, or it was \
                     blocked; only Runtime::block_on drives it, Handle::block_on and other executors \
                     do not: use Driver::Thread, or stay in Runtime::block_on meanwhile";
        Some(Error::Unavailable { name: None, waited: self.limit, cause: cause.to_owned() })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Not waiting for the lock: in a forked child it may be taken for ever. Calls that are over
        // are taken off the list at the next look in any case.
        if let Ok(mut calls) = self.drive.calls.try_lock() {
            calls.list.remove(&self.number);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "while the machine is suspended nobody polls anything"
)]
fn now() -> Instant {
    Instant::now()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::woken::Woken as Driver;

    const LIMIT: Duration = Duration::from_millis(50);

    fn call(limit: Duration, since: Instant) -> (WatchedCall, Arc<Stalled>) {
        let stalled = Arc::<Stalled>::default();
        (WatchedCall { limit, stalled: Arc::downgrade(&stalled), seen: (7, since) }, stalled)
    }

    #[test]
    fn a_call_is_stalled_once_the_driver_has_not_been_polled_for_its_limit() {
        let (mut calls, start) = (WatchedCalls::default(), now());
        let ((short, _short), (long, _long)) = (call(LIMIT, start), call(3 * LIMIT, start));
        calls.list = BTreeMap::from([(1, short), (2, long)]);
        let mut look = |polls, after| {
            let (stalled, next) = calls.look(polls, start + after);
            (stalled.len(), next)
        };
        assert_eq!(look(7, Duration::ZERO), (0, Some(LIMIT)));
        // It was polled meanwhile: both begin again.
        assert_eq!(look(8, LIMIT), (0, Some(LIMIT)));
        assert_eq!(look(8, 2 * LIMIT), (1, Some(2 * LIMIT)));
        assert_eq!(look(8, 4 * LIMIT), (1, None));
    }

    #[test]
    fn a_call_that_is_over_is_taken_off_the_list() {
        let mut calls = WatchedCalls::default();
        let (over, stalled) = call(LIMIT, now());
        drop(stalled);
        calls.list.insert(1, over);
        assert!(matches!(calls.look(0, now()), (stalled, None) if stalled.is_empty()));
        assert!(calls.list.is_empty());
    }

    /// The second call begins shortly before the first is stalled.
    #[test]
    fn each_call_has_its_own_limit_however_many_there_are() {
        let (mut calls, start) = (WatchedCalls::default(), now());
        let ((early, _early), (late, _late)) = (call(LIMIT, start), call(LIMIT, start + LIMIT / 2));
        calls.list = BTreeMap::from([(1, early), (2, late)]);
        let (stalled, next) = calls.look(7, start + LIMIT);
        assert_eq!((stalled.len(), next), (1, Some(LIMIT / 2)));
        assert_eq!(calls.look(7, start + LIMIT * 3 / 2).0.len(), 1);
    }

    /// From a thread that drives nothing.
    #[test]
    fn one_thread_watches_all_calls_and_ends_after_the_last() {
        let driver = Arc::<Driver>::default();
        let drive = Drive::new(&driver, LIMIT);
        let calls: Vec<Watched> = (0..100).filter_map(|_| drive.watch(None)).collect();
        assert_eq!(calls.len(), 100);
        // This handle, that of the thread, and one for each call.
        assert_eq!(Arc::strong_count(&drive), 102);
        let is_stalled =
            |call: &Watched| call.stalled(&Context::from_waker(Waker::noop())).is_some();
        while !calls.iter().all(is_stalled) {
            thread::yield_now();
        }
        assert!(driver.times() > 0, "it was not woken");
        drop(calls);
        while lock(&drive.calls).are_watched {
            thread::yield_now();
        }
        assert!(drive.watch(None).is_some(), "another thread watches");
    }

    #[tokio::test]
    async fn whoever_drives_the_runtime_is_not_watched() {
        let drive = Drive::new(&Arc::<Driver>::default(), LIMIT);
        assert!(drive.watch(None).is_none(), "in Runtime::block_on");
        let task = Arc::clone(&drive);
        let in_task = tokio::spawn(async move { task.watch(None).is_none() });
        assert!(in_task.await.unwrap());
        let elsewhere = thread::spawn(move || drive.watch(None).is_some());
        assert!(elsewhere.join().unwrap());
    }

    /// A task is current there, too, but not one of the runtime's thread.
    #[tokio::test]
    async fn a_client_that_was_made_on_a_thread_for_blocking_code_is_watched_there() {
        let watched = tokio::task::spawn_blocking(|| {
            Drive::new(&Arc::<Driver>::default(), LIMIT).watch(None).is_some()
        });
        assert!(watched.await.unwrap());
    }
}
