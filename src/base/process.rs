//! The process that a client belongs to.
//!
//! A child made by `fork` has a copy of its parent's memory and of the thread that forked. It has
//! none of the other threads, and it shares the parent's sockets. So nothing of a client that the
//! parent has made may be used in the child:
//!
//! * what is written there goes out on the parent's connections;
//! * a mutex that another thread held at the fork stays locked for ever;
//! * dropping a socket that is registered with a Tokio runtime takes the parent's socket out of the
//!   queue of events that both processes share.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::task::Poll;

use tokio::task::JoinHandle;

use crate::base::error::Error;

/// The process in which something was made.
///
/// Checking whether it is the current one is a system call, which takes about 100 ns: memory looks
/// the same in a child as in its parent, so only the kernel knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The current process.
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    pub(crate) fn is_current(self) -> bool {
        self == Self::current()
    }

    /// Returns an error in any other process.
    pub(crate) fn check(self) -> Result<(), Error> {
        if self.is_current() {
            return Ok(());
        }
        let cause = format!(
            "it was created before fork, in process {}; create a client in this process",
            self.0
        );
        Err(Error::Closed { name: None, cause })
    }
}

/// Like `tokio::spawn`. In a forked child the task does nothing, and it is leaked if the runtime is
/// dropped there.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(OwnProcessOnly::new(future))
}

/// A future that is only polled and dropped in the process that made it.
pub(crate) struct OwnProcessOnly<F> {
    process: Process,
    /// `None` while it is being dropped.
    future: Option<Pin<Box<F>>>,
}

impl<F> OwnProcessOnly<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { process: Process::current(), future: Some(Box::pin(future)) }
    }
}

impl<F: Future> Future for OwnProcessOnly<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let here = self.process.is_current();
        match &mut self.future {
            Some(future) if here => future.as_mut().poll(cx),
            _ => Poll::Pending,
        }
    }
}

impl<F> Drop for OwnProcessOnly<F> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            std::mem::forget(self.future.take());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    use std::sync::Arc;
    use std::task::Waker;

    impl Process {
        /// How a child sees something that its parent made.
        pub(crate) fn parent() -> Self {
            Self(std::os::unix::process::parent_id())
        }
    }

    #[test]
    fn what_another_process_made_is_closed_and_says_where_it_was_made() {
        assert!(Process::current().check().is_ok());
        let error = Process::parent().check().unwrap_err();
        assert!(matches!(error, Error::Closed { .. }));
        let text = error.to_string();
        let number = std::os::unix::process::parent_id().to_string();
        assert!(text.contains("before fork") && text.contains(&number), "{text}");
        assert!(text.contains("create a client in this process"), "{text}");
    }

    #[test]
    fn a_future_of_another_process_is_neither_polled_nor_dropped() {
        for (process, expected) in
            [(Process::current(), (true, 1)), (Process::parent(), (false, 2))]
        {
            let kept = Arc::new(());
            let inner = Arc::clone(&kept);
            let future = async move { drop(inner) };
            let mut future = OwnProcessOnly::new(future);
            future.process = process;
            let done =
                Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_ready();
            drop(future);
            assert_eq!((done, Arc::strong_count(&kept)), expected);
        }
    }
}
