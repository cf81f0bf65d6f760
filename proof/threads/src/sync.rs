//! Locks, atomics and channels whose interleavings are tried: loom's here, shuttle's in a copy that
//! `build.rs` makes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;

pub(crate) use loom::future::block_on;
// Whoever waits for a time waits for ever: what is to happen happens without that.
pub(crate) use loom::sync::Condvar;
pub(crate) use loom::sync::Mutex;
pub(crate) use loom::sync::MutexGuard;
pub(crate) use loom::sync::atomic::AtomicU8;
pub(crate) use loom::sync::atomic::AtomicU32;
pub(crate) use loom::sync::atomic::AtomicU64;
pub(crate) use loom::sync::atomic::AtomicUsize;
pub(crate) use loom::sync::atomic::Ordering;
pub(crate) use loom::thread;

// Of a hint, on which nothing depends: std's, which the models do not look into.
pub(crate) use std::sync::atomic::AtomicBool;

/// Tokio's `Notify`, as far as it is used: everybody who was waiting is woken.
pub(crate) struct Notify {
    times: Mutex<u64>,
    changed: Condvar,
}

/// A place among those who wait.
pub(crate) struct Notified<'a> {
    notify: &'a Notify,
    since: u64,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self { times: Mutex::new(0), changed: Condvar::new() }
    }

    pub(crate) fn notify_waiters(&self) {
        *self.times.lock().expect("no panics") += 1;
        self.changed.notify_all();
    }

    /// Already enabled.
    pub(crate) fn notified(&self) -> Notified<'_> {
        Notified { notify: self, since: *self.times.lock().expect("no panics") }
    }
}

impl Notified<'_> {
    pub(crate) fn wait(self) {
        let mut times = self.notify.times.lock().expect("no panics");
        while *times == self.since {
            times = self.notify.changed.wait(times).expect("no panics");
        }
    }
}

/// Tokio's unbounded channel, as far as it is used.
pub(crate) fn unbounded_channel<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
    let queue = Queue { items: VecDeque::new(), waker: None, closed: false, senders: true };
    let channel = Arc::new(Channel { queue: Mutex::new(queue), changed: Condvar::new() });
    (UnboundedSender(Arc::clone(&channel)), UnboundedReceiver(channel))
}

struct Channel<T> {
    queue: Mutex<Queue<T>>,
    changed: Condvar,
}

struct Queue<T> {
    items: VecDeque<T>,
    waker: Option<Waker>,
    closed: bool,
    senders: bool,
}

impl<T> Channel<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().expect("no panics")
    }
}

pub(crate) struct UnboundedSender<T>(Arc<Channel<T>>);

impl<T> UnboundedSender<T> {
    /// Gives the item back once the receiver has closed.
    pub(crate) fn send(&self, item: T) -> Result<(), T> {
        let mut queue = self.0.lock();
        if queue.closed {
            return Err(item);
        }
        queue.items.push_back(item);
        let waker = queue.waker.take();
        drop(queue);
        self.0.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

/// Only to be leaked: a sender is the last one whatever was cloned.
impl<T> Clone for UnboundedSender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for UnboundedSender<T> {
    fn drop(&mut self) {
        self.0.lock().senders = false;
        self.0.changed.notify_all();
    }
}

pub(crate) struct UnboundedReceiver<T>(Arc<Channel<T>>);

impl<T> UnboundedReceiver<T> {
    pub(crate) fn close(&mut self) {
        self.0.lock().closed = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().items.is_empty()
    }

    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut queue = self.0.lock();
        match queue.items.pop_front() {
            Some(item) => Poll::Ready(Some(item)),
            None if queue.closed || !queue.senders => Poll::Ready(None),
            None => {
                queue.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(crate) fn try_recv(&mut self) -> Option<T> {
        self.0.lock().items.pop_front()
    }

    /// `None`: closed, or nobody can send any more, and everything was received. Blocks: a model
    /// has no runtime.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        let mut queue = self.0.lock();
        loop {
            if let Some(item) = queue.items.pop_front() {
                return Some(item);
            }
            if queue.closed || !queue.senders {
                return None;
            }
            queue = self.0.changed.wait(queue).expect("no panics");
        }
    }
}

impl<T> Drop for UnboundedReceiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.closed = true;
        let left = std::mem::take(&mut queue.items);
        drop(queue);
        drop(left);
    }
}

impl<T> fmt::Debug for UnboundedSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnboundedSender")
    }
}

impl<T> fmt::Debug for UnboundedReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnboundedReceiver")
    }
}

/// There is no task that has to let others run.
pub(crate) async fn consume_budget() {}
