//! Waiting on a thread for what the driver does on its own.

use std::future::Future;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::task::Context;
use std::task::Poll;
use std::task::Wake;
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::consume_budget;

use crate::base::clock::Clock;
use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::yielding::yield_is_deferred;

/// The longest sleep at a time: a time without end may be too long for the system.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Blocks this thread until `future` is done. In an async task it is an error that names `instead`,
/// the async function that does the same, and `future` is not polled.
pub(super) fn wait<F: Future>(instead: &'static str, future: F) -> Result<F::Output> {
    refuse_in_async(instead)?;
    let (parker, mut future) = (Arc::<Parker>::default(), pin!(future));
    loop {
        if let Poll::Ready(output) = parker.poll(future.as_mut()) {
            return Ok(output);
        }
        parker.park(LONGEST);
    }
}

/// The same for this long at most. `None`: `future` was not done in that time, and is dropped.
pub(super) fn wait_for<F: Future>(
    limit: Duration,
    instead: &'static str,
    future: F,
) -> Result<Option<F::Output>> {
    refuse_in_async(instead)?;
    let end = Clock::Boot.now().plus(limit);
    let (parker, mut future) = (Arc::<Parker>::default(), pin!(future));
    loop {
        if let Poll::Ready(output) = parker.poll(future.as_mut()) {
            return Ok(Some(output));
        }
        let left = end.since(Clock::Boot.now());
        if left.is_zero() {
            return Ok(None);
        }
        parker.park(left.min(LONGEST));
    }
}

fn refuse_in_async(instead: &'static str) -> Result<()> {
    if is_polled_by_tokio() { Err(Error::InAsyncTask { instead }) } else { Ok(()) }
}

/// Whether this code runs within a poll of Tokio's, whose thread must not be blocked. It does not
/// on a thread of `spawn_blocking` and in `block_in_place`, although a runtime and a task are
/// current there.
///
/// Tokio does not say so itself: the functions that know it panic. But each of its polls has a
/// budget, which code that may block has not. The root future of a runtime with several threads is
/// not recognized inside `unconstrained`, and after a `block_in_place` of the same poll. There only
/// that future waits, on a thread that no task needs.
fn is_polled_by_tokio() -> bool {
    Handle::try_current().is_ok() && (yield_is_deferred() || has_budget())
}

/// Uses up the budget of the poll, if there is one. It is a number of one byte.
fn has_budget() -> bool {
    let mut context = Context::from_waker(Waker::noop());
    (0..=u8::MAX).any(|_| pin!(consume_budget()).poll(&mut context).is_pending())
}

/// Where one call waits. It does not use the token of `std::thread::park`, which belongs to the
/// user's code.
#[derive(Debug, Default)]
struct Parker {
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Parker {
    fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        future.poll(&mut Context::from_waker(&waker))
    }

    /// Sleeps until it is woken, or was woken since the last sleep; not longer than `limit`.
    fn park(&self, limit: Duration) {
        let woken = self.wake.wait_timeout_while(self.lock(), limit, |woken| !*woken);
        *woken.unwrap_or_else(PoisonError::into_inner).0 = false;
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.lock() = true;
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::mpsc;
    use std::thread;

    use tokio::runtime::Builder;
    use tokio::runtime::Runtime;
    use tokio::task::LocalSet;
    use tokio::task::block_in_place;
    use tokio::task::spawn_blocking;
    use tokio::task::unconstrained;
    use tokio::task::yield_now;

    fn one_thread() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn threads() -> Runtime {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    }

    #[test]
    fn a_plain_thread_may_wait() {
        assert!(!is_polled_by_tokio());
        let runtime = threads();
        let inside = runtime.enter();
        assert!(!is_polled_by_tokio(), "a runtime that is entered polls nothing here");
        drop(inside);
        runtime.block_on(async {});
        assert!(!is_polled_by_tokio(), "what was polled before");
        // Other executors are not recognized, and their threads are not the driver's.
        assert!(!futures::executor::block_on(async { is_polled_by_tokio() }));
    }

    #[test]
    fn tasks_and_root_futures_may_not_wait() {
        for runtime in [one_thread(), threads()] {
            let flavor = runtime.handle().runtime_flavor();
            let in_root = runtime.block_on(async { is_polled_by_tokio() });
            let in_task = runtime.block_on(runtime.spawn(async { is_polled_by_tokio() })).unwrap();
            let later = runtime.block_on(runtime.spawn(async {
                let before = is_polled_by_tokio();
                yield_now().await;
                before && is_polled_by_tokio()
            }));
            assert!(in_root && in_task && later.unwrap(), "{flavor:?}");
            let unconstrained_task = runtime.spawn(unconstrained(async { is_polled_by_tokio() }));
            assert!(runtime.block_on(unconstrained_task).unwrap(), "{flavor:?}");
            let handle = runtime.handle().clone();
            let elsewhere = thread::spawn(move || handle.block_on(async { is_polled_by_tokio() }));
            assert!(elsewhere.join().unwrap(), "Handle::block_on, {flavor:?}");
            let set = LocalSet::new();
            let (local_task, local_root) = set.block_on(&runtime, async {
                let task = tokio::task::spawn_local(async { is_polled_by_tokio() });
                (task.await.unwrap(), is_polled_by_tokio())
            });
            assert!(local_task && local_root, "LocalSet, {flavor:?}");
        }
        let root = one_thread().block_on(unconstrained(async { is_polled_by_tokio() }));
        assert!(root, "its thread runs the tasks as well");
    }

    #[test]
    fn where_tokio_lets_code_block_it_may_wait() {
        for runtime in [one_thread(), threads()] {
            let flavor = runtime.handle().runtime_flavor();
            let blocking = runtime.block_on(async {
                let direct = spawn_blocking(is_polled_by_tokio).await.unwrap();
                let again = spawn_blocking(|| {
                    Handle::current().block_on(async {});
                    is_polled_by_tokio()
                });
                direct || again.await.unwrap()
            });
            assert!(!blocking, "spawn_blocking, {flavor:?}");
            let nested = runtime.block_on(async {
                spawn_blocking(|| Handle::current().block_on(async { is_polled_by_tokio() })).await
            });
            assert!(nested.unwrap(), "a future on a thread of spawn_blocking, {flavor:?}");
        }
        let runtime = threads();
        assert!(!runtime.block_on(async { block_in_place(is_polled_by_tokio) }), "in the root");
        let in_task = runtime.spawn(async {
            let inside = block_in_place(is_polled_by_tokio);
            (inside, is_polled_by_tokio())
        });
        assert_eq!(runtime.block_on(in_task).unwrap(), (false, true), "in a task, and after it");
    }

    #[test]
    fn a_call_in_a_task_is_an_error_that_names_the_async_function_and_sends_nothing() {
        let never = async { unreachable!("it is not polled") };
        let error = one_thread().block_on(async { wait("Mutex::lock", never) }).unwrap_err();
        assert!(error.is_config() && error.lock_name().is_none());
        let text = error.to_string();
        assert!(text.contains("await `Mutex::lock`") && text.contains("spawn_blocking"), "{text}");
        let never = async { unreachable!("it is not polled") };
        let limited = async { wait_for(Duration::ZERO, "Guard::lost", never) };
        assert!(matches!(one_thread().block_on(limited), Err(Error::InAsyncTask { .. })));
    }

    #[test]
    fn it_waits_until_it_is_woken_or_its_time_is_over() {
        // Many times, because the thread may or may not sleep by then.
        for round in 0..1_000 {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let (done, is_done) = mpsc::channel();
            let waiter = move || done.send(wait("x", receiver).unwrap().unwrap()).unwrap();
            thread::spawn(waiter);
            (0..round % 7).for_each(|_| thread::yield_now());
            sender.send(round).unwrap();
            let woken = is_done.recv_timeout(Duration::from_secs(10));
            assert_eq!(woken, Ok(round), "it sleeps on");
        }
        let never = std::future::pending::<()>;
        assert_eq!(wait_for(Duration::from_millis(20), "x", never()).unwrap(), None);
        assert_eq!(wait_for(Duration::ZERO, "x", never()).unwrap(), None);
        assert_eq!(wait_for(Duration::ZERO, "x", async { 7 }).unwrap(), Some(7), "polled once");
        let soon = wait_for(Duration::MAX, "x", async { yield_now().await });
        assert_eq!(soon.unwrap(), Some(()), "no time is too long");
    }

    /// Others may park and unpark this thread around a call.
    #[test]
    fn the_token_of_the_thread_is_left_to_its_user() {
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            thread::current().unpark();
            wait("x", yield_now()).unwrap();
            thread::park();
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(10)).expect("its token is still there");
    }
}
