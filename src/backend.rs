//! What the driver needs from a server, and those that offer it.

#[cfg(feature = "fred")]
pub(crate) mod fred;
#[cfg(feature = "in-memory")]
pub(crate) mod memory;
pub(crate) mod redis;
pub(crate) mod together;
#[cfg(test)]
pub(crate) mod woken;
pub(crate) mod words;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::backend::words::Words;

/// So many calls on their way give a server enough to do while others come together.
pub(crate) const BUSY: usize = 16;

/// Names one call on its way; chosen by the engine, never reused within a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OpId(pub(crate) u64);

/// Names one server that a client talks to. A cluster has one for each primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ServerId(pub(crate) u32);

impl ServerId {
    /// The server of a client that has one only; in a cluster nobody: slots that no known server serves.
    pub(crate) const ONLY: Self = Self(0);
}

/// Which server has which slot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Routes {
    /// One server has everything.
    #[default]
    One,
    /// A cluster: an entry for each slot.
    Slots {
        servers: Arc<[ServerId]>,
        /// Whether all of its servers know sharded pub/sub.
        sharded: bool,
    },
}

impl Routes {
    pub(crate) fn server_of(&self, slot: u16) -> ServerId {
        match self {
            Self::One => ServerId::ONLY,
            Self::Slots { servers, .. } => servers.get(usize::from(slot)).copied().unwrap_or(ServerId::ONLY),
        }
    }
}

/// The connections to the lock servers, driven by polling. Nothing here waits.
///
/// # Contract
///
/// * Calls submitted one after the other to a server reach it in that order, over one connection; in a cluster only
///   those that no redirection overtakes.
/// * Whoever submits a call polls for events afterwards: `submit` wakes nobody, since a task that wakes itself while it
///   runs costs its runtime a wake-up of another thread.
/// * Every submitted call is answered exactly once, at most a little after its timeout.
/// * `Done` and `NotExecuted` are final: no copy of the call can still execute. Anything else is `Unknown`.
/// * After the first `Up` of a server there is a `Down` before its next `Up`; the same for `PubSubUp` and `PubSubDown`.
/// * All answers of a connection come before the `Up` of the next one.
/// * Connections are made, watched and replaced without being asked, forever, until `close`.
/// * No subscription survives a `PubSubDown`: the engine subscribes again after `PubSubUp`.
pub(crate) trait Backend: Send {
    /// Sends a call. If the connection is down it is answered `NotExecuted`; it is never kept for later.
    fn submit(&mut self, op: OpId, to: ServerId, call: Call, timeout: Duration);

    /// Subscribes to a channel. Answered by `Subscribed` with the same generation once *the server* has
    /// confirmed it (or refused it); not answered when the connection ends first.
    fn subscribe(&mut self, channel: Arc<str>, sharded: bool, generation: u64);

    /// Ends a subscription; not answered.
    fn unsubscribe(&mut self, channel: Arc<str>, sharded: bool);

    /// The next thing that happened.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent>;

    /// Whether the runtime around it is one with sockets.
    fn has_sockets(&self) -> bool {
        false
    }

    /// Looks, without waiting, whether something came that the runtime has not told of yet, and says so: then there is a reason
    /// to poll.
    fn looks_for_more(&mut self) -> bool {
        false
    }

    /// Calls that may go together wait for others that are about to come while so many are on their way: no longer than until the
    /// server, which is near, answers any. None: they do not.
    fn gather(&mut self, _from: Option<usize>) {}

    /// Replaces the connections to a server, because it answers that it has become a replica.
    fn reconnect(&mut self, server: ServerId);

    /// Starts an orderly end: `poll_event` gives `Closed` when no task or socket is left.
    fn close(&mut self);
}

/// What happened at the server's side.
#[derive(Debug)]
pub(crate) enum BackendEvent {
    /// A submitted call came to its end, at this server: after a redirection another one than it was submitted to.
    Replied { op: OpId, server: ServerId, outcome: Outcome<Value> },
    /// The command connection is usable: role, version and login were checked.
    Up(ServerId, ServerInfo),
    /// The command connection is gone. Calls in flight have been or will be answered.
    Down { server: ServerId, cause: String },
    /// Slots are served by other servers than before.
    Routes(Routes),
    /// The pub/sub connection is usable; nothing is subscribed on it.
    PubSubUp,
    /// The pub/sub connection is gone, with all subscriptions.
    PubSubDown,
    /// One attempt to connect failed; another follows. `ServerId::ONLY` in a cluster: to find out who is there.
    ConnectFailed { server: ServerId, failure: Failure },
    /// The server's answer to a SUBSCRIBE.
    Subscribed { channel: Arc<str>, generation: u64, result: Result<(), Failure> },
    /// A message.
    Message { channel: Arc<str>, payload: String },
    /// This subscription has ended although the pub/sub connection is up: its slot has moved.
    SubscriptionLost { channel: Arc<str> },
    /// After `close`: nothing is left.
    Closed,
}

/// Which server answers; two values that differ mean that data may be gone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ServerInfo {
    /// Redis's `run_id`: new with every start of the process. Empty when the user may not ask.
    pub(crate) run_id: String,
    /// "7.0.15", for messages; empty when the user may not ask.
    pub(crate) version: String,
    /// Where it was reached, without credentials, for messages.
    pub(crate) address: String,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome<T> {
    /// The server answered.
    Done(T),
    /// Certainly not executed, and never will be.
    NotExecuted(Failure),
    /// It may have been executed, or may still be.
    Unknown(Failure),
}

impl<T> Outcome<T> {
    /// The same end, in other words.
    pub(crate) fn in_words(self, words: &str) -> Self {
        match self {
            Self::NotExecuted(failure) => Self::NotExecuted(Failure::new(failure.kind, words)),
            Self::Unknown(failure) => Self::Unknown(Failure::new(failure.kind, words)),
            done @ Self::Done(_) => done,
        }
    }

    pub(crate) fn and_then<U>(self, parse: impl FnOnce(T) -> Outcome<U>) -> Outcome<U> {
        match self {
            Self::Done(value) => parse(value),
            Self::NotExecuted(failure) => Outcome::NotExecuted(failure),
            Self::Unknown(failure) => Outcome::Unknown(failure),
        }
    }
}

/// A failure in words, and what kind of trouble it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// Redis's or the client's own words; never a password.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What kind of trouble a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FailureKind {
    /// The network: reset, timed out.
    Link,
    /// Nobody listens there: connection refused.
    NoListener,
    /// The server says "not now": LOADING, BUSY, MASTERDOWN, CLUSTERDOWN, MISCONF, NOREPLICAS,
    /// max number of clients.
    Busy,
    /// TRYAGAIN: the slot is being moved and one of the keys is absent here. The server itself is well.
    SlotMoving,
    /// MOVED and ASK: the slot is served by another node of the cluster.
    Redirected,
    /// OOM: writes that need memory are refused, deletes are not.
    OutOfMemory,
    /// READONLY: the server has become a replica; connect anew.
    ReadOnly,
    /// WRONGPASS, NOAUTH.
    Auth,
    /// NOPERM, or an ACL denial inside a script.
    Denied,
    /// A replica at connect, a version that is too old, a command that is missing.
    Unsupported,
    /// A certificate is missing or not accepted, or only one side speaks TLS.
    Tls,
    /// Anything else the server answered with an error.
    Refused,
}

impl FailureKind {
    /// Whether trying again may help without anybody changing anything.
    pub(crate) fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Link
                | Self::NoListener
                | Self::Busy
                | Self::SlotMoving
                | Self::OutOfMemory
                | Self::ReadOnly
        )
    }

    /// The same for several servers or addresses, of which one has failed in this way: nobody listens only if that is so
    /// at all of them.
    pub(crate) fn of_several(self, all: impl IntoIterator<Item = Self>) -> Self {
        let other = self == Self::NoListener && all.into_iter().any(|kind| kind != Self::NoListener);
        if other { Self::Link } else { self }
    }
}

/// A command for the server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Call {
    /// TIME; answered as `List([Int(microseconds)])`.
    Time,
    /// PING; answered as `List([])`.
    Ping,
    /// INFO; answered as `List([Text])`.
    Info,
    /// EVALSHA, with EVAL of the full text when the server does not know the script.
    Script(Box<ScriptCall>),
}

/// One run of a script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptCall {
    pub(crate) script: &'static Script,
    pub(crate) keys: Words,
    pub(crate) args: Words,
    /// A PING goes right before it, if it goes by itself.
    pub(crate) after_ping: bool,
}

impl ScriptCall {
    pub(crate) fn new(script: &'static Script, keys: Words, args: Words) -> Self {
        Self { script, keys, args, after_ping: false }
    }
}

/// A script's text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Script {
    /// Path below `lua/`, without the ending; for logs.
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
}

impl Script {
    /// The name by which EVALSHA calls it.
    pub(crate) fn digest(&self) -> String {
        sha1_smol::Sha1::from(self.text()).hexdigest()
    }

    /// What servers run.
    pub(crate) fn text(&self) -> &'static str {
        #[cfg(seeded)]
        return crate::base::seeded::script_text(self.source);
        #[cfg(not(seeded))]
        self.source
    }
}

/// A script that runs calls of other scripts, each as if it had come by itself.
///
/// Its keys are theirs, one after the other. Its arguments: a mark for each call, in one word; then for each of the scripts
/// what its calls usually say; then what each call says besides. It replies with one list: for each call how many parts its
/// reply would have had, and those, or only the words of its error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Several {
    pub(crate) script: &'static Script,
    pub(crate) of: &'static [OneOf],
}

/// One of those scripts. It never answers with a mere text.
#[derive(Debug)]
pub(crate) struct OneOf {
    pub(crate) script: &'static Script,
    /// Small, a call that says what is usual; as a capital, one that says all by itself.
    pub(crate) mark: char,
    /// Which of its arguments most calls have in common.
    pub(crate) usual: &'static [usize],
}

impl Several {
    pub(crate) fn one(&self, script: &Script) -> Option<&'static OneOf> {
        self.of.iter().find(|one| one.script.name == script.name)
    }
}

/// A reply, as far as the scripts use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    Text(String),
    List(Vec<Self>),
}
