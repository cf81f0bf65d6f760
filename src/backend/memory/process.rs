//! The process that one client stands for; a test can freeze and kill it.

use std::fmt;
use std::future::Future;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::thread;
use std::thread::ThreadId;
use std::time::Duration;

/// The longest time that `kill` waits for a poll on another thread. The limit prevents a deadlock
/// if that poll needs a lock that the caller of `kill` holds.
const POLL: Duration = Duration::from_secs(1);

type DriverFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a client's driver, except while the process is frozen, until it is killed.
#[derive(Default)]
pub(crate) struct ClientProcess {
    state: Mutex<ProcessState>,
    polled: Condvar,
}

#[derive(Default)]
struct ProcessState {
    /// `None` while it is polled, and once it has ended.
    driver: Option<DriverFuture>,
    polled_by: Option<ThreadId>,
    waker: Option<Waker>,
    frozen: bool,
    killed: bool,
}

impl ClientProcess {
    /// Runs a driver. Returns when it has ended or was killed. Dropping the future drops the
    /// driver.
    pub(crate) async fn run(&self, driver: impl Future<Output = ()> + Send + 'static) {
        self.lock().driver = Some(Box::pin(driver));
        let _ended = DropDriver(self);
        poll_fn(|cx| self.poll(cx)).await;
    }

    /// When this returns, the driver is dropped, unless it is this thread that is polling it.
    pub(super) fn kill(&self) {
        let mut state = self.lock();
        state.killed = true;
        let (driver, waker) = (state.driver.take(), state.waker.take());
        let here = thread::current().id();
        let elsewhere =
            |state: &mut ProcessState| state.polled_by.is_some_and(|thread| thread != here);
        drop(self.polled.wait_timeout_while(state, POLL, elsewhere));
        drop(driver);
        waker.into_iter().for_each(Waker::wake);
    }

    pub(super) fn set_frozen(&self, frozen: bool) {
        let mut state = self.lock();
        state.frozen = frozen;
        let waker = state.waker.take_if(|_| !frozen);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        state.waker = Some(cx.waker().clone());
        if state.frozen && !state.killed {
            return Poll::Pending;
        }
        let Some(mut driver) = state.driver.take() else { return Poll::Ready(()) };
        state.polled_by = Some(thread::current().id());
        // The mutex is not held during the poll, because the driver wakes, drops and logs, which
        // runs foreign code.
        drop(state);
        let polling = Polling(self);
        let polled = driver.as_mut().poll(cx);
        let mut state = self.lock();
        if polled.is_pending() && !state.killed {
            state.driver = Some(driver);
            drop(state);
            drop(polling);
            return Poll::Pending;
        }
        drop(state);
        // Dropped before `polling` reports that the poll has ended.
        drop(driver);
        drop(polling);
        Poll::Ready(())
    }

    fn lock(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ClientProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProcessState { frozen, killed, .. } = *self.lock();
        f.debug_struct("ClientProcess")
            .field("frozen", &frozen)
            .field("killed", &killed)
            .finish_non_exhaustive()
    }
}

/// Marks a running poll. Its drop ends the mark, also if the driver panics.
struct Polling<'a>(&'a ClientProcess);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.lock().polled_by = None;
        self.0.polled.notify_all();
    }
}

/// Drops the driver together with the future that runs it, for example when the runtime ends.
struct DropDriver<'a>(&'a ClientProcess);

impl Drop for DropDriver<'_> {
    fn drop(&mut self) {
        let driver = self.0.lock().driver.take();
        drop(driver);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering;

    use crate::backend::woken::Woken;

    /// A driver that counts its polls, and ends in this one.
    async fn driver(polls: Arc<AtomicUsize>, last: usize) {
        poll_fn(|_| match polls.fetch_add(1, Ordering::SeqCst) + 1 {
            poll if poll == last => Poll::Ready(()),
            _ => Poll::Pending,
        })
        .await;
    }

    fn poll(run: Pin<&mut impl Future<Output = ()>>, woken: &Arc<Woken>) -> Poll<()> {
        run.poll(&mut Context::from_waker(&Arc::clone(woken).into()))
    }

    #[test]
    fn it_runs_until_its_end() {
        let (process, polls, woken) = <(ClientProcess, Arc<AtomicUsize>, Arc<Woken>)>::default();
        let mut run = pin!(process.run(driver(Arc::clone(&polls), 2)));
        assert!(poll(run.as_mut(), &woken).is_pending());
        assert!(poll(run.as_mut(), &woken).is_ready());
        assert_eq!(Arc::strong_count(&polls), 1);
    }

    #[test]
    fn a_frozen_one_is_not_polled_and_goes_on_later() {
        let (process, polls, woken) = <(ClientProcess, Arc<AtomicUsize>, Arc<Woken>)>::default();
        let mut run = pin!(process.run(driver(Arc::clone(&polls), 2)));
        assert!(poll(run.as_mut(), &woken).is_pending());
        process.set_frozen(true);
        assert!(poll(run.as_mut(), &woken).is_pending());
        assert_eq!((polls.load(Ordering::SeqCst), woken.times()), (1, 0));
        process.set_frozen(false);
        assert_eq!(woken.times(), 1);
        assert!(poll(run.as_mut(), &woken).is_ready());
    }

    #[test]
    fn a_killed_one_is_gone_at_once_also_when_it_is_frozen() {
        for frozen in [false, true] {
            let (process, polls, woken) =
                <(ClientProcess, Arc<AtomicUsize>, Arc<Woken>)>::default();
            let mut run = pin!(process.run(driver(Arc::clone(&polls), 9)));
            assert!(poll(run.as_mut(), &woken).is_pending());
            process.set_frozen(frozen);
            process.kill();
            assert_eq!((Arc::strong_count(&polls), woken.times()), (1, 1));
            assert!(poll(run.as_mut(), &woken).is_ready());
            assert_eq!(polls.load(Ordering::SeqCst), 1);
        }
    }

    #[test]
    fn one_that_is_killed_while_it_is_polled_is_gone_afterwards() {
        let process = Arc::<ClientProcess>::default();
        let (killed, alive) = (Arc::clone(&process), Arc::new(()));
        let inside = Arc::clone(&alive);
        let mut run = pin!(process.run(async move {
            let _inside = inside;
            killed.kill();
            std::future::pending().await
        }));
        assert!(poll(run.as_mut(), &Arc::default()).is_ready());
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn one_that_is_killed_while_another_thread_polls_it_is_gone_when_the_kill_returns() {
        let (process, alive) = (ClientProcess::default(), Arc::new(()));
        let (begins, begun) = std::sync::mpsc::channel();
        let (goes_on, kept) = std::sync::mpsc::channel::<()>();
        let (ends, end) = std::sync::mpsc::channel::<()>();
        thread::scope(|threads| {
            let (process, inside) = (&process, Arc::clone(&alive));
            threads.spawn(move || {
                let mut run = pin!(process.run(async move {
                    let _inside = inside;
                    begins.send(()).unwrap();
                    let _ = kept.recv();
                    std::future::pending().await
                }));
                let _ = poll(run.as_mut(), &Arc::default());
                // What goes with the future is not what is looked for.
                let _ = end.recv();
            });
            begun.recv().unwrap();
            let killer = threads.spawn(|| process.kill());
            drop(goes_on);
            killer.join().unwrap();
            assert_eq!(Arc::strong_count(&alive), 1);
            drop(ends);
        });
    }

    #[test]
    fn it_goes_with_the_future_that_runs_it() {
        let (process, polls, woken) = <(ClientProcess, Arc<AtomicUsize>, Arc<Woken>)>::default();
        let mut run = Box::pin(process.run(driver(Arc::clone(&polls), 9)));
        assert!(poll(run.as_mut(), &woken).is_pending());
        drop(run);
        assert_eq!(Arc::strong_count(&polls), 1);
    }
}
