//! The driver's task: who polls it, and its loop.
//!
//! | file | what |
//! |---|---|
//! | `events` | what comes in, for the engine, and what the engine has the driver do |
//! | `connecting` | a `connect` that waits for the first connection |
//! | `ending` | shutdowns, the last handle, threads that wait for their releases |

mod connecting;
mod ending;
mod events;
#[cfg(test)]
mod tests;

pub(super) use ending::Farewell;

use std::fmt;
use std::future::Future;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::unconstrained;

use crate::backend::BUSY;
use crate::backend::Backend;
use crate::backend::OpId;
use crate::base::cell::Directory;
use crate::base::clock::Clock;
use crate::base::clock::Moment;
use crate::base::map::Map;
use crate::base::name::LockName;
use crate::base::stats::Counters;
use crate::driver::wakes::PendingWakes;
use crate::driver::wakes::Wakes;
use crate::engine::Engine;
use crate::engine::event::Effect;
use crate::engine::event::Event;
use crate::kinds::command::Command;
use crate::settings::config::Driver;

use super::Message;
use super::Setup;
use super::alarm::Alarm;
use super::desk::Desk;
use super::last::Last;
use super::mailbox::Inbox;
use super::pacing::AfterEvent;
use super::pacing::FEW;
use super::pacing::ForCaller;
use super::pacing::Load;
use super::pacing::Pacing;
use super::pacing::Poller;
use super::pacing::WhenIdle;
use super::shared::Left;
use connecting::Connecting;
use ending::Settling;

/// The most messages handled before server events are, and the most server events before messages
/// are.
const BATCH: usize = 256;
/// Rounds of both before the driver yields to the other tasks of the runtime.
const ROUNDS: usize = 4;
/// While holds exist the clock is read at least this often: Tokio's timers stand still during
/// suspend, leases do not.
const REREAD: Duration = Duration::from_millis(250);
/// The shortest command timeout that the times of the driver's end are derived from.
const LEAST_TIMEOUT: Duration = Duration::from_secs(1);

/// A driver: the engine, its backend and the callers' tickets.
pub(super) struct Task {
    engine: Engine,
    backend: Box<dyn Backend>,
    messages: Inbox,
    /// Entered by whoever polls this. Only the driver keeps it, so that handles of the client do
    /// not keep a runtime that ended.
    runtime: Handle,
    clock: Clock,
    address: String,
    /// At least `LEAST_TIMEOUT`.
    command_timeout: Duration,
    left: Arc<Left>,
    /// Answered callers that other callers help to wake.
    pending_wakes: Arc<PendingWakes>,
    desk: Desk,
    /// The commands in flight.
    sent: Map<OpId, Command>,
    alarm: Alarm,
    /// Empty between two events; kept to reuse its memory.
    effects: Vec<Effect>,
    connecting: Option<Connecting>,
    /// The last failure of the connections.
    trouble: Option<String>,
    pacing: Pacing,
    /// Has its own future polled after the other tasks of its thread.
    last: Last,
    /// The next poll of its own future comes after those tasks.
    after_others: bool,
    /// How many requests callers have handed over since the last turn.
    handed_over: usize,
    /// A caller polls this. When it has left the seat, it wakes the other callers that were
    /// answered.
    by_caller: bool,
    /// Callers were woken in this turn.
    woke: bool,
    /// It is being polled. If it is dropped while this is set, it has panicked.
    at_work: bool,
    phase: DriverPhase,
    farewell: Farewell,
    /// Dropped once everything that dropped handles queued has been handled.
    last_words: Option<mpsc::Sender<()>>,
    /// Ending threads that wait for the releases they gave up.
    settling: Vec<Settling>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DriverPhase {
    /// → ShuttingDown
    Serving,
    /// → Finished, when the engine has finished or at `end`.
    ShuttingDown {
        end: Moment,
    },
    Finished,
}

/// The result of one turn of the driver.
enum TurnOutcome {
    /// Nothing is left to do for now.
    Idle {
        /// Callers were woken.
        woke: bool,
    },
    /// There is more to do, after the other tasks of the runtime have run.
    GoesOn,
    /// The driver has ended.
    Over,
}

impl Task {
    /// Must be called within a runtime.
    pub(super) fn new(
        setup: Setup,
        messages: Inbox,
        directory: Arc<Directory>,
        counters: Arc<Counters>,
        left: Arc<Left>,
        pending_wakes: Arc<PendingWakes>,
        driver: Driver,
    ) -> Self {
        let here = driver == Driver::Current;
        let backend = (setup.backend)();
        let command_timeout = setup.config.command_timeout.max(LEAST_TIMEOUT);
        Self {
            engine: Engine::new(setup.config, directory, counters),
            last: Last::new(here && backend.has_sockets()),
            backend,
            messages,
            runtime: Handle::current(),
            clock: setup.clock,
            address: setup.address,
            command_timeout,
            left,
            pending_wakes,
            desk: Desk::default(),
            sent: Map::default(),
            alarm: Alarm::new(),
            effects: Vec::new(),
            connecting: None,
            trouble: None,
            pacing: Pacing::new(here),
            after_others: false,
            handed_over: 0,
            by_caller: false,
            woke: false,
            at_work: false,
            phase: DriverPhase::Serving,
            farewell: Farewell::default(),
            last_words: None,
            settling: Vec::new(),
        }
    }

    pub(super) fn runtime(&self) -> Handle {
        self.runtime.clone()
    }

    /// Called by a caller: handles its message after those in the mailbox. Then it goes on with the
    /// driver's work, unless callers only hand their requests over at the moment. If too many
    /// messages are in the mailbox, `message` is left as it is. `Ready`: the driver has ended.
    ///
    /// The answered callers are not woken but put into `answered`.
    pub(super) fn poll_with(
        &mut self,
        message: &mut Option<Message>,
        answered: &mut Wakes,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        self.at_work = true;
        let hands_over = self.only_takes_requests();
        if self.has_read_mailbox(cx) {
            message.take().into_iter().for_each(|message| self.on_message(message));
        }
        let polled = if hands_over {
            self.leave_rest_to_own(cx);
            Poll::Pending
        } else {
            self.by_caller = true;
            let polled = self.take_turns(Poller::Caller, cx);
            self.by_caller = false;
            self.desk.leave_answered_to(answered);
            polled
        };
        self.tell_callers();
        self.at_work = false;
        polled
    }

    /// Whether callers only hand their requests over at the moment. After many, one of them has to
    /// go on: Tokio polls the task that was woken last first, so that a task which sends request
    /// after request would keep the driver's own future from running.
    fn only_takes_requests(&self) -> bool {
        // Outside of a task nothing says when the driver's own future is polled next.
        self.load().for_caller() == ForCaller::HandOver
            && self.handed_over < BUSY
            && tokio::task::try_id().is_some()
    }

    /// Has its own future do what follows from a request, after the other tasks of this thread. If
    /// this thread is blocked or its runtime ends before, the answers to the commands in flight
    /// wake that future.
    fn leave_rest_to_own(&mut self, cx: &mut Context<'_>) {
        if self.handed_over == 0 {
            self.last.come(cx);
        }
        self.handed_over += 1;
    }

    /// Tells callers whether they use the mailbox.
    fn tell_callers(&mut self) {
        self.messages.tell_busy(self.load().for_caller() == ForCaller::UseMailbox);
    }

    /// Handles the messages in the mailbox, and says whether it is empty now.
    ///
    /// The messages may be old: the driver's own future, which reads them otherwise, may be the
    /// task that a blocked thread of Tokio has woken last and keeps to itself.
    fn has_read_mailbox(&mut self, cx: &mut Context<'_>) -> bool {
        if self.messages.is_empty() {
            return true;
        }
        let take = poll_fn(|cx| Poll::Ready(self.take_messages(cx)));
        let read = pin!(unconstrained(take)).poll(cx) == Poll::Ready(true);
        // A message that is still being inserted hides those after it, among them perhaps the
        // caller's own.
        read && self.messages.is_empty()
    }

    /// Called by its own future. `Ready`: the driver has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.at_work = true;
        self.last.note_poll(cx);
        let after_others = std::mem::take(&mut self.after_others);
        let poller = if after_others { Poller::OwnAfterOthers } else { Poller::Own };
        let polled = self.take_turns(poller, cx);
        self.tell_callers();
        self.at_work = false;
        polled
    }

    /// One turn, and another one if an answer has come for which the driver has spun.
    fn take_turns(&mut self, mut poller: Poller, cx: &mut Context<'_>) -> Poll<()> {
        self.handed_over = 0;
        loop {
            match self.take_turn(cx) {
                TurnOutcome::Idle { woke: true } => poller = Poller::Own,
                TurnOutcome::Idle { woke: false } => {}
                TurnOutcome::GoesOn => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                TurnOutcome::Over => return Poll::Ready(()),
            }
            match self.load().when_idle(poller, self.is_awaited()) {
                WhenIdle::Sleep => return Poll::Pending,
                WhenIdle::Spin => {
                    if !self.spin() {
                        return Poll::Pending;
                    }
                    // A poll spins once; before the next spin other tasks of the thread run.
                    poller = Poller::Own;
                }
                WhenIdle::SleepThisTime => {
                    self.pacing.leave_out();
                    return Poll::Pending;
                }
                WhenIdle::SpinAfterOthers => {
                    self.after_others = true;
                    self.come_after_others(cx);
                    return Poll::Pending;
                }
            }
        }
    }

    /// Has its own future polled again, after the other tasks of its thread.
    fn come_after_others(&mut self, cx: &mut Context<'_>) {
        if self.pacing.here {
            self.last.come(cx);
        } else {
            // A thread of its own has few other tasks, and they are polled in turn.
            cx.waker().wake_by_ref();
        }
    }

    /// Handles messages and server events, and wakes the answered callers.
    fn take_turn(&mut self, cx: &mut Context<'_>) -> TurnOutcome {
        self.woke = false;
        // Without Tokio's budget, which messages would use up: sockets would not be read or written
        // while there are any.
        let polled = pin!(unconstrained(poll_fn(|cx| self.poll_rounds(cx)))).poll(cx);
        self.let_threads_end();
        self.wake_answered();
        match polled {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => TurnOutcome::Idle { woke: self.woke },
        }
    }

    fn wake_answered(&mut self) {
        if self.by_caller {
            return;
        }
        self.woke |= self.desk.answered() > 0;
        if self.pacing.here {
            self.desk.wake_answered();
        } else {
            self.desk.wake_with_help(&self.pending_wakes);
        }
    }

    fn load(&self) -> Load {
        Load {
            here: self.pacing.here,
            near: self.pacing.is_near(),
            in_flight: self.sent.len(),
            answered: self.desk.answered(),
            backs_off: self.pacing.backs_off(),
        }
    }

    /// Whether few commands are in flight, and callers wait for one of them to go on.
    fn is_awaited(&self) -> bool {
        self.sent.len() < FEW && self.sent.values().any(|command| self.is_waited_for(command))
    }

    fn is_waited_for(&self, command: &Command) -> bool {
        match command {
            Command::HandOff { .. } => true,
            Command::Release { name, .. } => {
                self.engine.waiters_for(name) > 0 || self.is_alone_with(name)
            }
            // One of the waiters is the contender itself.
            Command::Acquire { name, .. } => {
                self.engine.waiters_for(name) > 1 || self.is_alone_with(name)
            }
            _ => false,
        }
    }

    /// Whether this client does nothing else, and nobody else contends for this lock.
    fn is_alone_with(&self, lock: &LockName) -> bool {
        self.pacing.is_alone() && self.engine.is_uncontended(lock)
    }

    fn spin(&mut self) -> bool {
        let Self { pacing, backend, messages, .. } = self;
        pacing.spin(|| backend.looks_for_more() || !messages.is_empty())
    }

    /// Pending: nothing is left to do for now.
    fn poll_rounds(&mut self, cx: &mut Context<'_>) -> Poll<TurnOutcome> {
        for _ in 0..ROUNDS {
            // Messages before the backend: what they submit is written when the backend is polled.
            let mut idle = self.take_messages(cx);
            idle &= self.take_events(cx);
            idle &= self.look_at_clock(cx);
            if self.phase == DriverPhase::Finished {
                return Poll::Ready(TurnOutcome::Over);
            }
            if idle {
                return Poll::Pending;
            }
            if self.load().after_event() == AfterEvent::EndTurn {
                break;
            }
        }
        Poll::Ready(TurnOutcome::GoesOn)
    }

    // ---- what comes in; true: nothing more for now

    fn take_events(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..BATCH {
            match self.backend.poll_event(cx) {
                Poll::Ready(event) => self.on_backend(event),
                Poll::Pending => return true,
            }
            match self.load().after_event() {
                AfterEvent::ReadOn => {}
                AfterEvent::Wake => self.wake_answered(),
                AfterEvent::EndTurn => break,
            }
        }
        false
    }

    fn take_messages(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..BATCH {
            match self.messages.poll_next(cx) {
                Poll::Ready(Some(message)) => self.on_message(message),
                // Without handles there was a `LastHandle` before.
                Poll::Ready(None) | Poll::Pending => return true,
            }
        }
        false
    }

    fn look_at_clock(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.clock.now();
        if self.engine.next_timeout().is_some_and(|at| at <= now) {
            self.handle(now, Event::Tick);
            return false;
        }
        if self.connecting.as_ref().is_some_and(|connecting| connecting.deadline <= now) {
            self.give_up_connecting(now);
            return false;
        }
        if matches!(self.phase, DriverPhase::ShuttingDown { end } if end <= now) {
            self.phase = DriverPhase::Finished;
            return false;
        }
        match self.next_look(now) {
            Some(at) => self.alarm.poll_until(cx, now, at).is_pending(),
            None => true,
        }
    }

    fn next_look(&self, now: Moment) -> Option<Moment> {
        let connecting = self.connecting.as_ref().map(|connecting| connecting.deadline);
        let end = match self.phase {
            DriverPhase::ShuttingDown { end } => Some(end),
            DriverPhase::Serving | DriverPhase::Finished => None,
        };
        let suspends = matches!(self.clock, Clock::Boot) && self.engine.has_holds();
        let reread = suspends.then(|| now.plus(REREAD));
        [self.engine.next_timeout(), connecting, end, reread].into_iter().flatten().min()
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("engine", &self.engine)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}
