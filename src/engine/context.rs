//! What every part of the engine needs: the instant, the settings, the timers, the commands on the wire, and the list
//! of what is to be done.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::lease::LeaseMs;
use crate::base::map::Map;
use crate::base::stats::Counters;
use crate::engine::event::Answer;
use crate::engine::event::Effect;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::timers::TimerKey;
use crate::engine::timers::Timers;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::settings::config::Config;

/// Passed to the parts of the engine. It decides nothing.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) counters: Arc<Counters>,
    pub(super) now: Moment,
    pub(super) effects: Vec<Effect>,
    pub(super) timers: Timers,
    pub(super) ops: Map<OpId, PendingOp>,
    next_id: u64,
}

/// A command on the wire.
#[derive(Debug)]
pub(super) struct PendingOp {
    pub(super) kind: Op,
    pub(super) to: ServerId,
    /// Of its keys, if it has any.
    pub(super) slot: Option<u16>,
    pub(super) sent: Moment,
    pub(super) not_after: ServerTime,
    /// It had less time than the command timeout, because a lease, a wait or a hold ends earlier.
    pub(super) cut_short: bool,
}

/// Who answered a command, and what is known of its sending.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    pub(super) by: ServerId,
    pub(super) sent: Moment,
    /// By the clock of that server.
    pub(super) time: Option<ServerTime>,
    pub(super) not_after: ServerTime,
    pub(super) cut_short: bool,
}

impl Answered {
    /// Whether a failure says anything about the server or the link. If the command had less time
    /// than the command timeout, a missing answer does not: the server may answer others in time. A
    /// connection that breaks is an event of its own.
    pub(super) fn tells_of_server(&self, failure: &Failure) -> bool {
        !(self.cut_short && failure.kind == FailureKind::Link)
    }

    /// The words of a failure, if it says anything about the server or the link.
    pub(super) fn trouble(&self, failure: Failure) -> Option<String> {
        self.tells_of_server(&failure).then_some(failure.message)
    }
}

/// What a command on the wire is for.
#[derive(Debug)]
pub(super) enum Op {
    Clock,
    Acquire { hold: u64, lease: LeaseMs, hurry: Option<Hurry> },
    Reenter { hold: u64, lease: LeaseMs },
    LowerCount { hold: u64 },
    Release { hold: u64 },
    ReleaseMany(Vec<u64>),
    HandOff { from: u64, to: u64, lease: LeaseMs },
    Renew(Vec<Renewing>),
    Cleanup { id: u64 },
    Query { request: RequestId },
}

/// What left an attempt less than the command timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hurry {
    /// The end of its waiter's wait.
    Wait,
    MaxHold,
}

/// One hold of a renewal on the wire.
#[derive(Debug)]
pub(super) struct Renewing {
    pub(super) hold: u64,
    pub(super) lease: LeaseMs,
    pub(super) verifying: Vec<RequestId>,
    /// Somebody had a guard that asked for renewals when it was sent.
    pub(super) watched: bool,
    /// It was sent because of a force-unlock hint, or after one.
    pub(super) hinted: bool,
}

impl Context {
    pub(super) fn new(config: Config, counters: Arc<Counters>) -> Self {
        Self {
            config,
            counters,
            now: Moment::ZERO,
            effects: Vec::new(),
            timers: Timers::default(),
            ops: Map::default(),
            next_id: 0,
        }
    }

    pub(super) fn send(
        &mut self,
        kind: Op,
        to: ServerId,
        command: Command,
        deadline: Moment,
        not_after: ServerTime,
    ) -> OpId {
        let op = OpId(self.fresh_id());
        let (slot, cut_short) = (command.slot(), deadline < self.attempt_deadline());
        self.ops.insert(op, PendingOp { kind, to, slot, sent: self.now, not_after, cut_short });
        let timeout = deadline.since(self.now).max(Duration::from_millis(1));
        self.effects.push(Effect::Send { op, to, command, timeout });
        op
    }

    pub(super) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn attempt_deadline(&self) -> Moment {
        self.now.plus(self.config.command_timeout)
    }

    pub(super) fn answer(&mut self, request: RequestId, answer: Answer) {
        self.timers.clear(TimerKey::Request(request));
        self.effects.push(Effect::Answer { request, answer });
    }

    pub(super) fn fail(&mut self, request: RequestId, error: Error) {
        self.answer(request, Answer::Failed(error));
    }

    pub(super) fn report(&mut self, report: Report) {
        self.effects.push(Effect::Report(report));
    }

    pub(super) fn field(&self, hold: u64) -> String {
        let hold = if seeded!(HoldIdIsNew) { hold % 8 } else { hold };
        [&*self.config.client_id, ":", itoa::Buffer::new().format(hold)].concat()
    }

    /// The error of a request that a failure ends. Its caller adds the name of the lock.
    pub(super) fn error_of(&self, failure: &Failure, since: Moment) -> Error {
        let (name, message) = (None, failure.message.clone());
        match failure.kind {
            FailureKind::Auth => Error::Auth { name, message },
            FailureKind::Denied => Error::Denied { name, message },
            FailureKind::Unsupported => Error::Unsupported { name, reason: message },
            FailureKind::Redirected => Error::Unsupported {
                name,
                reason: format!(
                    "the server is a node of a cluster, which has the key elsewhere ({message}); connect to it as a cluster"
                ),
            },
            FailureKind::Tls => Error::Tls { name, message },
            FailureKind::Refused => Error::Refused { name, message },
            FailureKind::Link
            | FailureKind::NoListener
            | FailureKind::Busy
            | FailureKind::SlotMoving
            | FailureKind::OutOfMemory
            | FailureKind::ReadOnly => {
                Error::Unavailable { name, waited: self.now.since(since), cause: message }
            }
        }
    }
}

/// 20 ms, doubled with each failure in a row, at most 500 ms.
pub(super) fn back_off(failures: u32) -> Duration {
    Duration::from_millis((20_u64 << failures.min(5)).min(500))
}
