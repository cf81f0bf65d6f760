//! The commands on the wire, and what each is for.

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::lease::LeaseMs;
use crate::engine::event::RequestId;
use crate::kinds::command::ServerTime;

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
    Acquire {
        hold: u64,
        lease: LeaseMs,
        hurry: Option<Hurry>,
    },
    Reenter {
        hold: u64,
        lease: LeaseMs,
    },
    LowerCount {
        hold: u64,
    },
    Release {
        hold: u64,
    },
    ReleaseMany(Vec<u64>),
    /// With `line_first` the first in line went before `to`.
    HandOff {
        from: u64,
        to: u64,
        lease: LeaseMs,
        line_first: bool,
    },
    Renew(Vec<Renewing>),
    Cleanup {
        id: u64,
    },
    /// Of those who watch a name.
    Look {
        watch: u64,
    },
    Query {
        request: RequestId,
    },
    /// What is done once.
    Operate {
        request: RequestId,
    },
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
    /// The number of force-unlock hints that came before it was sent.
    pub(super) hints: u16,
}
