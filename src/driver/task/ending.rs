//! The end of a driver: shutdowns, the last handle, threads that wait for their releases.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use crate::backend::BackendEvent;
use crate::base::clock::Moment;
use crate::base::log::TARGET;
use crate::base::log::tell;
use crate::driver::LAST_RELEASES;
use crate::driver::Message;
use crate::driver::slot::Ticket;
use crate::driver::wakes::Wakes;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Fates;
use crate::engine::event::RequestId;

use super::DriverPhase;
use super::Task;

/// How many command timeouts the remaining releases may take once the last handle is dropped.
const LAST_HANDLE: u32 = 3;
/// The time after its deadline in which the engine may still report that it has finished.
const GRACE: Duration = Duration::from_millis(250);
/// How many command timeouts connections may take to close in an orderly way.
const CLOSING: u32 = 1;

/// An ending thread that waits until the holds given up before are released.
#[derive(Debug)]
pub(super) struct Settling {
    ids: Vec<u64>,
    /// When it stops waiting.
    pub(super) end: Moment,
    /// Dropping this lets the thread end.
    _done: mpsc::Sender<()>,
}

/// The answers to the callers of `shutdown`, delivered once nothing of the driver is left.
#[derive(Debug, Default)]
pub(crate) struct Farewell {
    tickets: Vec<Ticket>,
    fates: Arc<Fates>,
}

impl Farewell {
    pub(crate) fn deliver(self) {
        for ticket in self.tickets {
            ticket.put(Answer::ShutDown(Arc::clone(&self.fates)), &mut Wakes::default());
        }
    }
}

impl Task {
    pub(super) fn on_shutdown(
        &mut self,
        now: Moment,
        request: RequestId,
        ticket: Ticket,
        until: Moment,
    ) {
        self.farewell.tickets.push(ticket);
        self.shut_down(now, until, Some(request));
    }

    pub(super) fn on_last_handle(&mut self, now: Moment, done: Option<mpsc::Sender<()>>) {
        self.last_words = done;
        self.shut_down(now, now.plus(LAST_HANDLE * self.command_timeout), None);
    }

    fn shut_down(&mut self, now: Moment, until: Moment, request: Option<RequestId>) {
        if self.phase == DriverPhase::Serving {
            self.phase = DriverPhase::ShuttingDown { end: until.plus(GRACE) };
            self.handle(now, Event::Shutdown { until, request });
        }
    }

    /// The engine has ended. `Farewell` tells the callers of `shutdown` of these fates, when the
    /// connections are closed.
    pub(super) fn keep_fates(&mut self, fates: Arc<Fates>) {
        let _ = self.left.set(Arc::clone(&fates));
        self.farewell.fates = fates;
    }

    /// A thread ends. It waits until the holds that are given up by now are released.
    pub(super) fn on_settle(&mut self, now: Moment, done: mpsc::Sender<()>) {
        let (ids, end) = (self.engine.given_up(), now.plus(LAST_RELEASES));
        self.settling.push(Settling { ids, end, _done: done });
    }

    /// Lets threads end that have nothing to wait for any more.
    pub(super) fn let_threads_end(&mut self) {
        let Self { settling, engine, clock, .. } = self;
        if settling.is_empty() {
            return;
        }
        let now = clock.now();
        settling.retain_mut(|thread| {
            thread.ids.retain(|id| engine.is_given_up(*id));
            !thread.ids.is_empty() && now < thread.end
        });
    }

    /// What is left to do after the last poll.
    pub(crate) async fn end(mut self) -> Farewell {
        self.last_words = None;
        self.desk.close();
        self.close_backend().await;
        // Further callers of `shutdown` are answered when nothing is left, too.
        self.turn_callers_away().await;
        std::mem::take(&mut self.farewell)
    }

    /// Closes the mailbox. Callers whose messages are left in it hear that the client is closed.
    async fn turn_callers_away(&mut self) {
        self.messages.close();
        while let Some(message) = self.messages.take_rest().await {
            if let Message::Shutdown { ticket, .. } = message {
                self.farewell.tickets.push(ticket);
            }
        }
    }

    async fn close_backend(&mut self) {
        self.backend.close();
        let time = CLOSING * self.command_timeout;
        let backend = &mut self.backend;
        let closed = poll_fn(|cx| {
            loop {
                match backend.poll_event(cx) {
                    Poll::Ready(BackendEvent::Closed) => return Poll::Ready(()),
                    Poll::Ready(_) => {}
                    Poll::Pending => return Poll::Pending,
                }
            }
        });
        if tokio::time::timeout(time, closed).await.is_err() {
            tell(
                || tracing::debug!(target: TARGET, "connections did not close in time, cutting them"),
            );
        }
    }
}

impl Drop for Task {
    /// However the driver ends, nothing is renewed from here on, so that every guard must see its
    /// hold as lost.
    fn drop(&mut self) {
        // A later call of `shutdown` reports these fates, too.
        self.left.get_or_init(|| Arc::new(self.engine.fates()));
        self.engine.end_holds();
        self.engine.forget_links();
        if self.at_work {
            tell(
                || tracing::error!(target: TARGET, parent: None, "the driver panicked; this client is closed"),
            );
        } else if self.phase != DriverPhase::Finished {
            tell(
                || tracing::warn!(target: TARGET, parent: None, "the driver's runtime has ended; this client is closed"),
            );
        }
    }
}
