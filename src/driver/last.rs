//! Polls a task again after the other tasks of its thread.
//!
//! Tokio's own way is to yield. But on a runtime with several threads this wakes another thread
//! each time: a thread whose tasks have all yielded tries to steal work, and a thread that finds
//! work while it searches wakes the next one to search. Events of sockets are handled after the
//! other tasks of a thread, too, without waking another. So on such a runtime the task wakes itself
//! through a pipe.

use std::future::Future;
use std::pin::pin;
use std::task::Context;

#[derive(Debug)]
pub(super) struct Last {
    #[cfg(unix)]
    pipe: Option<pipe::WakePipe>,
}

impl Last {
    /// With `sockets` it must be called within a runtime that has I/O enabled.
    pub(super) fn new(sockets: bool) -> Self {
        #[cfg(not(unix))]
        let _ = sockets;
        Self {
            #[cfg(unix)]
            pipe: if sockets && pipe::has_threads() { pipe::WakePipe::new() } else { None },
        }
    }

    /// Called by the future that it wakes, in each poll.
    pub(super) fn note_poll(&mut self, cx: &mut Context<'_>) {
        #[cfg(unix)]
        if let Some(pipe) = &mut self.pipe {
            pipe.note_poll(cx);
        }
        #[cfg(not(unix))]
        let _ = cx;
    }

    /// Wakes the task of this context after all or many of the tasks that are ready on this thread
    /// have run.
    pub(super) fn come(&mut self, cx: &mut Context<'_>) {
        #[cfg(unix)]
        if self.pipe.as_mut().is_some_and(|pipe| pipe.wake_last(cx)) {
            return;
        }
        // A task that is woken directly would run next, so yield instead.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
    }
}

#[cfg(unix)]
mod pipe {
    use std::fs::File;
    use std::io;
    use std::io::Write;
    use std::pin::Pin;
    use std::task::Context;
    use std::task::Poll;

    use tokio::io::AsyncRead;
    use tokio::io::ReadBuf;
    use tokio::net::unix::pipe::Receiver;
    use tokio::net::unix::pipe::pipe;
    use tokio::runtime::Handle;
    use tokio::runtime::RuntimeFlavor;

    /// Whether the current runtime has several threads.
    pub(super) fn has_threads() -> bool {
        Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() != RuntimeFlavor::CurrentThread)
    }

    #[derive(Debug)]
    pub(super) struct WakePipe {
        sender: File,
        receiver: Receiver,
        /// A byte was written and not read yet.
        unread: bool,
    }

    impl WakePipe {
        /// `None` if there are too many open files.
        pub(super) fn new() -> Option<Self> {
            let (sender, receiver) = pipe().ok()?;
            // Not a Tokio sender, which would wait for readiness before it writes.
            let sender = File::from(sender.into_nonblocking_fd().ok()?);
            Some(Self { sender, receiver, unread: false })
        }

        pub(super) fn note_poll(&mut self, cx: &mut Context<'_>) {
            if self.unread {
                self.unread = matches!(self.read_all(cx), Ok(false));
            }
        }

        /// Writes to the pipe. False if the runtime has ended.
        pub(super) fn wake_last(&mut self, cx: &mut Context<'_>) -> bool {
            if !self.unread {
                // Reading first registers the waker.
                self.unread = self.read_all(cx).is_ok() && self.sender.write(&[0]).is_ok();
            }
            self.unread
        }

        #[cfg(test)]
        pub(super) fn has_byte(&self) -> bool {
            self.unread
        }

        /// Reads the pipe, and says whether there was a byte. The next byte wakes the task of this
        /// context.
        fn read_all(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
            let mut found = false;
            let mut place = [0; 8];
            loop {
                match Pin::new(&mut self.receiver).poll_read(cx, &mut ReadBuf::new(&mut place)) {
                    Poll::Ready(result) => result.map(|()| found = true)?,
                    Poll::Pending => return Ok(found),
                }
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::Mutex;
    use std::task::Poll;
    use std::task::Waker;

    use tokio::runtime::Builder;
    use tokio::runtime::Runtime;

    use crate::backend::woken::Woken;

    fn threads(count: usize, name: &str) -> Runtime {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(count).thread_name(name).enable_all().build().expect("a runtime")
    }

    /// Comes last so many times, and works for a moment each time.
    async fn come(last: &mut Last, times: usize) {
        let mut polls = 0;
        poll_fn(|cx| {
            last.note_poll(cx);
            polls += 1;
            if polls > times {
                return Poll::Ready(());
            }
            (0..5_000).for_each(|_| std::hint::spin_loop());
            last.come(cx);
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn the_other_tasks_of_its_thread_go_before_it() {
        for sockets in [true, false] {
            threads(1, "last").block_on(async {
                let order = Arc::new(Mutex::new(Vec::new()));
                let note = |who: &'static str| {
                    let order = Arc::clone(&order);
                    move || order.lock().expect("an order").push(who)
                };
                let (first, end, other, another) =
                    (note("first"), note("last"), note("other"), note("another"));
                let task = tokio::spawn(async move {
                    let mut last = Last::new(sockets);
                    first();
                    tokio::spawn(async move { another() });
                    tokio::spawn(async move { other() });
                    come(&mut last, 1).await;
                    end();
                });
                task.await.expect("its end");
                let order = order.lock().expect("an order").clone();
                assert_eq!((order.len(), order[0], order[3]), (4, "first", "last"), "{order:?}");
            });
        }
    }

    #[tokio::test]
    async fn on_a_runtime_of_one_thread_it_yields() {
        let mut last = Last::new(true);
        assert!(last.pipe.is_none());
        come(&mut last, 100).await;
    }

    impl Last {
        fn has_byte(&self) -> bool {
            self.pipe.as_ref().is_some_and(pipe::WakePipe::has_byte)
        }
    }

    #[tokio::test]
    async fn it_wakes_whoever_polls_it_now() {
        // Here the runtime tells of nothing before this task yields.
        let mut last = Last { pipe: pipe::WakePipe::new() };
        let (before, now) = <(Arc<Woken>, Arc<Woken>)>::default();
        let (waker, later) = (Waker::from(Arc::clone(&before)), Waker::from(Arc::clone(&now)));
        for round in 1..=3 {
            last.come(&mut Context::from_waker(&waker));
            last.note_poll(&mut Context::from_waker(&later));
            last.come(&mut Context::from_waker(&later));
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            assert_eq!((before.times(), now.times()), (0, round));
            assert!(last.has_byte(), "the byte is not read yet");
            last.note_poll(&mut Context::from_waker(&later));
            assert!(!last.has_byte());
        }
    }

    /// Times that threads of this name have slept.
    #[cfg(target_os = "linux")]
    fn sleeps(name: &str) -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
        let statuses =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
        let own =
            statuses.filter(|status| status.lines().any(|line| line == format!("Name:\t{name}")));
        own.filter_map(|status| {
            let line =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            line.trim().parse::<u64>().ok()
        })
        .sum()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_does_not_wake_other_threads() {
        const TURNS: usize = 1_000;
        let name = "comes-last";
        let runtime = threads(2, name);
        let slept = runtime.block_on(async {
            let turns = tokio::spawn(async move {
                let mut last = Last::new(true);
                come(&mut last, 10).await;
                let before = sleeps(name);
                come(&mut last, TURNS).await;
                sleeps(name) - before
            });
            turns.await.expect("its end")
        });
        assert!(slept < TURNS as u64 / 2, "{slept} times");
    }
}
