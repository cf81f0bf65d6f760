//! Having a task polled once the other tasks of its thread have had their turn.
//!
//! Tokio's own way is to yield. But on a runtime with several threads that wakes another of them each time: a thread whose tasks
//! have all yielded looks for work elsewhere first, and who finds work while it looks for some sends the next thread to
//! look. What its sockets tell of, a thread hears after its other tasks, too, and without that. So on such a runtime the
//! task wakes itself through a pipe.

use std::future::Future;
use std::pin::pin;
use std::task::Context;

#[derive(Debug)]
pub(super) struct Last {
    #[cfg(unix)]
    pipe: Option<pipe::WakePipe>,
}

impl Last {
    /// With `sockets` there is a runtime around it that has some.
    pub(super) fn new(sockets: bool) -> Self {
        #[cfg(not(unix))]
        let _ = sockets;
        Self {
            #[cfg(unix)]
            pipe: if sockets && pipe::has_threads() { pipe::WakePipe::new() } else { None },
        }
    }

    /// For the future of whom it wakes, in each of its polls.
    pub(super) fn note_poll(&mut self, cx: &mut Context<'_>) {
        #[cfg(unix)]
        if let Some(bell) = &mut self.pipe {
            bell.note_poll(cx);
        }
        #[cfg(not(unix))]
        let _ = cx;
    }

    /// Wakes whom the context is of once the tasks that this thread has to run have had their turn, or many of them.
    pub(super) fn come(&mut self, cx: &mut Context<'_>) {
        #[cfg(unix)]
        if self.pipe.as_mut().is_some_and(|bell| bell.ring(cx)) {
            return;
        }
        // Tokio has no other name for that: whom it wakes at once runs next.
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

    /// Whether the runtime around it has several.
    pub(super) fn has_threads() -> bool {
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() != RuntimeFlavor::CurrentThread)
    }

    #[derive(Debug)]
    pub(super) struct WakePipe {
        rope: File,
        receiver: Receiver,
        /// It is still to be heard.
        rung: bool,
    }

    impl WakePipe {
        /// None: there are too many open files.
        pub(super) fn new() -> Option<Self> {
            let (sender, receiver) = pipe().ok()?;
            // Tokio would first have to hear that there is room.
            let rope = File::from(sender.into_nonblocking_fd().ok()?);
            Some(Self { rope, receiver, rung: false })
        }

        pub(super) fn note_poll(&mut self, cx: &mut Context<'_>) {
            if self.rung {
                self.rung = matches!(self.hear(cx), Ok(false));
            }
        }

        /// Says whether it rings: not where the runtime ends.
        pub(super) fn ring(&mut self, cx: &mut Context<'_>) -> bool {
            if !self.rung {
                // Whom it wakes is to be known before.
                self.rung = self.hear(cx).is_ok() && self.rope.write(&[0]).is_ok();
            }
            self.rung
        }

        #[cfg(test)]
        pub(super) fn is_rung(&self) -> bool {
            self.rung
        }

        /// Whether it has rung. From then on its next ringing wakes whom the context is of.
        fn hear(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
            let mut heard = false;
            let mut place = [0; 8];
            loop {
                match Pin::new(&mut self.receiver).poll_read(cx, &mut ReadBuf::new(&mut place)) {
                    Poll::Ready(result) => result.map(|()| heard = true)?,
                    Poll::Pending => return Ok(heard),
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
        fn is_rung(&self) -> bool {
            self.pipe.as_ref().is_some_and(pipe::WakePipe::is_rung)
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
            assert!(last.is_rung(), "nobody has heard it");
            last.note_poll(&mut Context::from_waker(&later));
            assert!(!last.is_rung());
        }
    }

    /// Times that threads of this name have slept.
    #[cfg(target_os = "linux")]
    fn sleeps(name: &str) -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
        let statuses = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
        let own = statuses.filter(|status| status.lines().any(|line| line == format!("Name:\t{name}")));
        own.filter_map(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
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
