//! What every handle of a client shares.

use std::fmt;
use std::future::Future;
use std::future::poll_fn;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::task::Context;
use std::task::Poll;
use std::task::ready;
use std::thread::ThreadId;
use std::time::Duration;

use tokio::task::consume_budget;

use crate::base::cell::Directory;
use crate::base::clock::Clock;
use crate::base::clock::Deadline;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::process::Process;
use crate::base::stats::Counters;
use crate::driver::slot::Slot;
use crate::driver::slot::Ticket;
use crate::driver::slot::slot;
use crate::driver::wakes::PendingWakes;
use crate::driver::wakes::Wakes;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Fates;
use crate::engine::event::RequestId;
use crate::settings::config::Config;

use super::LAST_RELEASES;
use super::Message;
use super::drive::Drive;
use super::drive::Watched;
use super::mailbox::Mailbox;
use super::settle;

/// The least time for which a driver may stand still at its end before that is reported.
const LEAST_WATCH: Duration = Duration::from_secs(2);

/// What became of the locks of a driver that has ended. Empty while the driver runs.
pub(super) type Left = OnceLock<Arc<Fates>>;

/// Has the driver handle a message at once, on the thread of the caller, if it can.
pub(super) type AtOnce = Box<dyn Fn(&mut Option<Message>) + Send + Sync>;

/// One for each client. Client, locks, guards and pending futures hold it; the driver does not, so
/// that dropping the last of them ends the driver.
pub(crate) struct Shared {
    pub(super) mailbox: Mailbox,
    pub(super) clock: Clock,
    pub(super) config: Config,
    pub(super) directory: Arc<Directory>,
    pub(super) counters: Arc<Counters>,
    pub(super) left: Arc<Left>,
    /// The driver's thread, when it has one of its own.
    pub(super) thread: Option<ThreadId>,
    /// Has a caller poll the driver itself.
    pub(super) at_once: Option<AtOnce>,
    /// Answered callers that other callers help to wake.
    pub(super) pending_wakes: Arc<PendingWakes>,
    /// `Some` if the driver runs on the caller's current-thread runtime.
    drive: Option<Arc<Drive>>,
    next_request: AtomicU64,
    /// The process in which the driver runs.
    pub(super) process: Process,
}

impl Shared {
    pub(super) fn new(
        mailbox: Mailbox,
        clock: Clock,
        config: Config,
        directory: Arc<Directory>,
        counters: Arc<Counters>,
        left: Arc<Left>,
        thread: Option<ThreadId>,
    ) -> Self {
        let next_request = AtomicU64::new(1);
        let pending_wakes = Arc::default();
        let (at_once, drive, process) = (None, None, Process::current());
        Self {
            mailbox,
            clock,
            config,
            directory,
            counters,
            left,
            thread,
            at_once,
            pending_wakes,
            drive,
            next_request,
            process,
        }
    }

    pub(super) fn with(
        mut self,
        at_once: Option<AtOnce>,
        pending_wakes: Arc<PendingWakes>,
        drive: Option<Arc<Drive>>,
    ) -> Self {
        (self.at_once, self.pending_wakes, self.drive) = (at_once, pending_wakes, drive);
        self
    }

    /// An error in a child of the client's process. Costs a system call.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.process.check()
    }

    pub(crate) fn is_in_child(&self) -> bool {
        !self.process.is_current()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// The process that the client belongs to.
    pub(crate) fn process(&self) -> Process {
        self.process
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn deadline(&self, moment: Moment) -> Deadline {
        Deadline::new(moment, self.clock)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What became of the locks of a driver that has ended, in whatever way.
    pub(crate) fn fates(&self) -> Arc<Fates> {
        self.left.get().cloned().unwrap_or_default()
    }

    /// Sends a request. The future that is returned may be dropped: nobody waits for the answer
    /// then.
    pub(crate) fn ask(self: &Arc<Self>, event: impl FnOnce(RequestId) -> Event) -> PendingRequest {
        self.send(false, |request, ticket| Message::Ask { request, ticket, event: event(request) })
    }

    /// Sends a request that is cancelled when the returned future is dropped unanswered.
    pub(crate) fn ask_cancellable(
        self: &Arc<Self>,
        event: impl FnOnce(RequestId) -> Event,
    ) -> PendingRequest {
        self.send(true, |request, ticket| Message::Ask { request, ticket, event: event(request) })
    }

    /// Asks for the first connection.
    pub(crate) fn ask_ready(self: &Arc<Self>, timeout: Duration) -> PendingRequest {
        let since = self.now();
        let deadline = since.plus(timeout);
        let asked = self.send(true, |request, ticket| Message::Connect {
            request,
            ticket,
            since,
            deadline,
        });
        asked.watched_for(timeout)
    }

    pub(crate) fn ask_shutdown(self: &Arc<Self>, within: Duration) -> PendingRequest {
        let until = self.now().plus(within);
        let asked =
            self.send(false, |request, ticket| Message::Shutdown { request, ticket, until });
        asked.watched_for(within.max(LEAST_WATCH))
    }

    /// Releases a level. It goes on when the returned future is dropped.
    pub(crate) fn ask_release(self: &Arc<Self>, hold: u64, level: RequestId) -> PendingRequest {
        self.send(false, |request, ticket| Message::Release {
            hold,
            level,
            waiting: Some((request, ticket)),
        })
    }

    /// Releases without waiting. With the driver gone nobody releases, and the lease ends the hold.
    /// In a forked child nothing is done: the hold is the parent's.
    pub(crate) fn release(self: &Arc<Self>, hold: u64, level: RequestId) {
        if !self.is_in_child() {
            self.mailbox.send(Message::Release { hold, level, waiting: None });
            self.settle_at_end();
        }
    }

    /// Ends a level without releasing anything. With the driver gone, and in a forked child, there
    /// is nothing to do: nobody renews the hold.
    pub(crate) fn leave(&self, hold: u64, level: RequestId) {
        if !self.is_in_child() {
            self.mailbox.send(Message::Leave { hold, level });
        }
    }

    /// Has the end of this thread wait a moment for what is given up by then.
    pub(super) fn settle_at_end(self: &Arc<Self>) {
        // A driver that runs on the caller's runtime ends with that, before the process does.
        if self.thread.is_some() {
            settle::note(self);
        }
    }

    /// Has the driver drop `done` when what was given up so far is answered.
    pub(super) fn settle(&self, done: mpsc::Sender<()>) {
        if !self.is_in_child() && self.is_elsewhere() {
            self.mailbox.send(Message::Settle { done });
        }
    }

    /// The driver has a thread of its own, and it is not this one.
    fn is_elsewhere(&self) -> bool {
        self.thread.is_some_and(|driver| driver != std::thread::current().id())
    }

    fn send(
        self: &Arc<Self>,
        cancellable: bool,
        message: impl FnOnce(RequestId, Ticket) -> Message,
    ) -> PendingRequest {
        let request = RequestId(self.next_request.fetch_add(1, Ordering::Relaxed));
        let (slot, ticket) = slot();
        let watched = match self.check_process() {
            Ok(()) => {
                self.hand_over(message(request, ticket));
                self.watch(None)
            }
            Err(error) => {
                ticket.put(Answer::Failed(error), &mut Wakes::default());
                None
            }
        };
        PendingRequest {
            request,
            slot,
            cancellable,
            stage: Stage::Sent,
            watched,
            shared: Arc::clone(self),
        }
    }

    fn watch(&self, limit: Option<Duration>) -> Option<Watched> {
        self.drive.as_ref().and_then(|drive| drive.watch(limit))
    }

    fn hand_over(&self, message: Message) {
        let mut message = Some(message);
        if let Some(at_once) = self.at_once.as_ref().filter(|_| !self.mailbox.is_busy()) {
            at_once(&mut message);
        }
        if let Some(message) = message {
            self.mailbox.send(message);
        }
    }
}

impl Drop for Shared {
    /// The last handle is gone: the driver finishes. Waits a moment for releases that are queued,
    /// so that those of guards dropped at the end of `main` are not lost with the process.
    fn drop(&mut self) {
        if self.is_in_child() {
            return self.mailbox.leak();
        }
        let waits = self.is_elsewhere();
        let (done, finished) = mpsc::channel();
        self.mailbox.send(Message::LastHandle { done: waits.then_some(done) });
        if waits {
            let _ = finished.recv_timeout(LAST_RELEASES);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("client", &self.config.client_id).finish_non_exhaustive()
    }
}

/// A request that was sent to the driver. It waits for its slot, without a timer or a socket, so
/// that it works under any executor.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    request: RequestId,
    slot: Slot,
    cancellable: bool,
    stage: Stage,
    /// `Some` if it is possible that nobody drives the driver's runtime.
    watched: Option<Watched>,
    shared: Arc<Shared>,
}

/// The state of a request, as far as its future knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It was not polled yet, so that it was sent by this process. → Waiting, Answered
    Sent,
    /// It was polled before. The process may have forked since. → Answered
    Waiting,
    Answered,
}

impl PendingRequest {
    pub(crate) fn request(&self) -> RequestId {
        self.request
    }

    fn watched_for(mut self, limit: Duration) -> Self {
        if self.watched.is_some() {
            self.watched = self.shared.watch(Some(limit));
        }
        self
    }

    /// Waits for an answer that may be withdrawn (`None`) before the caller's task gets to run.
    pub(crate) async fn or_withdrawn(&mut self) -> Option<Answer> {
        poll_fn(|cx| self.poll_slot(cx)).await
    }

    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        if let Some(error) = self.process_error() {
            // The slot is the parent's, and may have been locked by its driver at the fork.
            self.stage = Stage::Answered;
            return Poll::Ready(Some(Answer::Failed(error)));
        }
        self.stage = Stage::Waiting;
        // A task that is answered at once again and again has to yield now and then: Tokio's budget
        // says when.
        ready!(pin!(consume_budget()).poll(cx));
        let answer = self.slot.poll_take(cx);
        if answer.is_ready() {
            self.stage = Stage::Answered;
            self.shared.pending_wakes.help();
        }
        if answer.is_pending() {
            // The stage stays `Waiting`, so that the drop cancels the request.
            if let Some(error) = self.watched.as_ref().and_then(|watched| watched.stalled(cx)) {
                return Poll::Ready(Some(Answer::Failed(error)));
            }
        }
        answer
    }

    /// The error of a request that the parent of this process has sent. A request that was not
    /// polled before needs no check.
    fn process_error(&self) -> Option<Error> {
        if self.stage == Stage::Waiting { self.shared.check_process().err() } else { None }
    }
}

/// For requests whose answer is no grant, and is never withdrawn.
impl Future for PendingRequest {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        self.poll_slot(cx).map(|answer| answer.unwrap_or(Answer::Failed(Error::closed())))
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if self.stage == Stage::Answered || self.shared.is_in_child() {
            return;
        }
        if self.slot.close() && self.cancellable {
            self.shared.mailbox.send(Message::Cancel { request: self.request });
            self.shared.settle_at_end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::task::Waker;

    use crate::driver::tests::handle_of;

    /// A request that the parent has sent, and polled or not.
    fn sent_by_parent(shared: &Arc<Shared>, stage: Stage) -> (PendingRequest, Ticket) {
        let (slot, ticket) = slot();
        let request = RequestId(7);
        let watched = None;
        (
            PendingRequest {
                request,
                slot,
                cancellable: true,
                stage,
                watched,
                shared: Arc::clone(shared),
            },
            ticket,
        )
    }

    #[test]
    fn in_a_child_calls_are_closed_and_nothing_is_sent_whatever_is_dropped() {
        let (shared, mut messages) = handle_of(Process::parent());
        let poll = |asked: &mut PendingRequest| {
            Pin::new(asked).poll(&mut Context::from_waker(Waker::noop()))
        };
        let mut asked = shared.ask_cancellable(|request| Event::Ping { request });
        assert!(matches!(poll(&mut asked), Poll::Ready(Answer::Failed(Error::Closed { .. }))));
        drop(asked);
        drop(shared.ask_release(1, RequestId(1)));
        shared.release(1, RequestId(1));
        for answered in [false, true] {
            let (mut asked, ticket) = sent_by_parent(&shared, Stage::Waiting);
            if answered {
                ticket.put(Answer::Done, &mut Wakes::default());
            }
            assert!(
                matches!(poll(&mut asked), Poll::Ready(Answer::Failed(Error::Closed { .. }))),
                "{answered}"
            );
        }
        for stage in [Stage::Sent, Stage::Waiting] {
            let (asked, ticket) = sent_by_parent(&shared, stage);
            drop(asked);
            let put = ticket.put(Answer::Done, &mut Wakes::default());
            assert_eq!(
                put,
                crate::driver::slot::Put::Waiting,
                "the parent's future is still there"
            );
        }
        drop(shared);
        assert!(messages.is_silent(), "neither a message nor the end of all senders");
    }
}
