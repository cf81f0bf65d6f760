//! What the engine is told, and what it wants done. Plain values.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::Routes;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::lease::Lease;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::kinds::command::Command;
use crate::kinds::operation::Change;
use crate::kinds::reply::KeyState;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;

/// Names one call of a caller; chosen by the caller, unique within a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RequestId(pub(crate) u64);

/// How long an acquisition may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Until granted.
    Forever,
    /// At most this long.
    For(Duration),
    /// One attempt: `try_lock`.
    Once,
    /// One attempt, which must be answered within this time.
    Within(Duration),
    /// One attempt, to hold the lock while others watch it: its release is told to everybody, and
    /// never is a hand-off.
    Lead,
}

/// A wish to acquire.
#[derive(Debug, Clone)]
pub(crate) struct Acquire {
    pub(crate) request: RequestId,
    pub(crate) name: LockName,
    pub(crate) owner: OwnerKey,
    /// What this adds to what its owner has.
    pub(crate) share: Share,
    pub(crate) lease: Lease,
    pub(crate) wait: Wait,
    pub(crate) max_hold: Option<Duration>,
    /// The name stays taken so long from the grant, whatever ends earlier.
    pub(crate) at_least: Option<LeaseMs>,
    /// The hold of its owner with a shared share, beside which this one wants an exclusive one.
    pub(crate) upgrades: Option<NonZeroU64>,
}

/// One command that belongs to no hold, to the server of a name.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    pub(crate) name: LockName,
    pub(crate) command: Command,
    /// A channel to be subscribed meanwhile.
    pub(crate) listen: Option<Listen>,
}

/// The server's answer to a probe.
#[derive(Debug, Clone)]
pub(crate) struct Probed {
    pub(crate) reply: Reply,
    /// Whether a message came on its channel.
    pub(crate) heard: bool,
    /// Whether wake-ups are sharded.
    pub(crate) sharded: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Listen {
    pub(crate) channel: Arc<str>,
    /// The command publishes there: the answer waits for the message.
    pub(crate) awaited: bool,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Event {
    // ---- from callers
    /// Connected, clock known, client channel confirmed: answered `Done`, or with what stands in
    /// the way.
    Ready {
        request: RequestId,
    },
    Acquire(Acquire),
    /// The caller dropped its future. If a grant was waiting for it, the grant is given back.
    Cancel {
        request: RequestId,
    },
    /// One level of a hold ends: the one that was granted to the `Acquire` with the id `level`, so
    /// a guard keeps that id. Without a request nobody waits for the outcome.
    Release {
        hold: u64,
        level: RequestId,
        request: Option<RequestId>,
    },
    /// A level ends without a release: the key of the hold is left to its lease.
    Leave {
        hold: u64,
        level: RequestId,
    },
    /// A level with an exclusive share keeps a shared one, and nobody else gets an exclusive one in
    /// between.
    Downgrade {
        hold: u64,
        level: RequestId,
        request: RequestId,
    },
    Verify {
        hold: u64,
        request: RequestId,
    },
    Inspect {
        name: LockName,
        request: RequestId,
    },
    ForceUnlock {
        name: LockName,
        /// The field of the only hold it may be taken from; `None`: whoever has it.
        from: Option<String>,
        request: RequestId,
    },
    /// Waits until the present holder is gone, without acquiring: answered `Done`.
    Watch {
        name: LockName,
        request: RequestId,
    },
    /// Something that is to be done once, whatever becomes of its commands.
    Operate {
        name: LockName,
        change: Change,
        request: RequestId,
    },
    Ping {
        request: RequestId,
    },
    /// Answered `Done` after this long, without I/O.
    Pause {
        length: Duration,
        request: RequestId,
    },
    /// One command of a preflight. Apart: every event would be as large.
    Probe {
        probe: Box<Probe>,
        request: RequestId,
    },
    /// Release everything, then finish; at `until` at the latest.
    Shutdown {
        until: Moment,
        request: Option<RequestId>,
    },
    // ---- answers to `Effect::Withdraw`
    /// The caller had already taken its grant.
    PickedUp {
        request: RequestId,
    },
    /// The grant was taken back from the caller's slot: the engine forgets the request. A caller
    /// that is polled after all sends its `Acquire` again, with what is left of its wait, as a new
    /// request.
    Withdrawn {
        request: RequestId,
    },
    // ---- from the backend
    Replied {
        op: OpId,
        /// Whose answer it is.
        server: ServerId,
        outcome: Outcome<Reply>,
    },
    Up(ServerId, ServerInfo),
    Down {
        server: ServerId,
        cause: String,
    },
    Routes(Routes),
    PubSubUp,
    PubSubDown,
    ConnectFailed {
        server: ServerId,
        failure: Failure,
    },
    Subscribed {
        channel: Arc<str>,
        generation: u64,
        result: Result<(), Failure>,
    },
    SubscriptionLost {
        channel: Arc<str>,
    },
    Message {
        channel: Arc<str>,
        payload: String,
    },
    // ---- time
    /// `Engine::next_timeout` has come.
    Tick,
}

/// Something to be done, in the order given.
#[derive(Debug)]
pub(crate) enum Effect {
    Send {
        op: OpId,
        to: ServerId,
        command: Command,
        timeout: Duration,
    },
    Subscribe {
        channel: Arc<str>,
        sharded: bool,
        generation: u64,
    },
    Unsubscribe {
        channel: Arc<str>,
        sharded: bool,
    },
    /// The server says that it is a replica now.
    Reconnect(ServerId),
    /// Put the answer into the caller's slot.
    Answer {
        request: RequestId,
        answer: Answer,
    },
    /// Take an `Answer::Granted` back if the caller has not taken it yet; reply with `PickedUp` or
    /// `Withdrawn`.
    Withdraw {
        request: RequestId,
    },
    Report(Report),
    /// After `Shutdown`: nothing is left to do, or its time is over. No effect follows.
    Finished,
}

/// The end of a caller's request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// One level of the hold is the caller's.
    Granted(Arc<HoldCell>),
    /// Somebody else holds it.
    NotGranted,
    /// Released, verified, pinged, ready; what was watched is over.
    Done,
    Key(KeyState),
    Probed(Probed),
    /// The number that an operation has left, or that there was nothing to be done.
    Operated(Option<u64>),
    /// Whether `force_unlock` took the lock from somebody.
    Forced(bool),
    /// What became of the locks.
    ShutDown(Arc<Fates>),
    Failed(Error),
}

/// The error for an answer of the wrong type, which must not panic in a user's service.
pub(crate) fn unexpected(answer: Answer) -> Error {
    match answer {
        Answer::Failed(error) => error,
        other => Error::Refused { name: None, message: format!("unexpected answer {other:?}") },
    }
}

/// What became of the locks that a client had, or may have had, when it was shut down.
pub(crate) type Fates = BTreeMap<LockName, Fate>;

/// What became of one of them. If several holds had the name, the greatest of their fates is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// The server has confirmed the release.
    Released,
    /// When it was to be released, the server did not have the hold any more.
    Lost,
    /// The server may have it until then, but no longer.
    Left(Moment),
}

/// What the log is told. The driver turns these into `tracing` events with stable names.
#[derive(Debug, Clone)]
pub(crate) enum Report {
    Granted {
        name: LockName,
        hold: u64,
        token: u64,
        waited: Duration,
    },
    Waiting {
        name: LockName,
        holder: String,
        pttl: i64,
    },
    Renewed {
        holds: usize,
    },
    RenewalFailed {
        holds: usize,
        cause: String,
    },
    Released {
        name: LockName,
        hold: u64,
    },
    /// Not released on purpose: the lock stays taken for the rest of its time to live.
    LeftToLease {
        name: LockName,
        hold: u64,
    },
    /// The server had forgotten the release of a hold that is over.
    ReleasedAgain {
        name: LockName,
        hold: u64,
    },
    /// A release for which nobody waits ended in an error.
    ReleaseFailed {
        name: LockName,
        hold: u64,
        cause: String,
    },
    /// So many holds have had no confirmation for half a lease; one of them.
    Suspect {
        name: LockName,
        hold: u64,
        holds: usize,
    },
    Lost {
        name: LockName,
        hold: u64,
        reason: LossReason,
        client: String,
        address: String,
        held: Duration,
    },
    /// The first in line has waited long for another client, for the first time since this one had
    /// the lock.
    WaitingLong {
        name: LockName,
        holder: String,
        waited: Duration,
    },
    /// A waiter has waited 10 s for a hold of this same client.
    WaitingOnSelf {
        name: LockName,
        hold: u64,
    },
    /// The lock was reserved for this client so many times in a row, and each time the reservation
    /// was over before its attempt arrived.
    ReservationsMissed {
        name: LockName,
        in_a_row: u32,
    },
    /// Several grants in a row were won by the fallback poll: wake-ups do not arrive.
    WakeUpsMissing {
        name: LockName,
        in_a_row: u32,
    },
    PublishRefused {
        name: LockName,
    },
    ClockJump,
    LinkUp {
        client: String,
        address: String,
        version: String,
        /// How long there was no connection, after the first.
        away: Option<Duration>,
    },
    LinkDown {
        client: String,
        address: String,
        cause: String,
        /// Held there.
        holds: usize,
        /// How long there was a connection.
        lasted: Duration,
    },
    /// An attempt to connect has failed, with a cause that is new since the last connection.
    ConnectFailed {
        client: String,
        address: String,
        cause: String,
    },
}
