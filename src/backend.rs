//! The trait through which the driver uses servers, and its implementations.

pub(crate) mod batch_args;
#[cfg(feature = "fred")]
pub(crate) mod fred;
#[cfg(feature = "in-memory")]
pub(crate) mod memory;
pub(crate) mod redis;
#[cfg(test)]
pub(crate) mod woken;
pub(crate) mod words;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::backend::words::Words;

/// From this many calls on the wire a server counts as busy: it has enough to do while the next
/// calls are gathered into a batch.
pub(crate) const BUSY: usize = 16;

/// Identifies one submitted call. The engine chooses it and never reuses it within a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OpId(pub(crate) u64);

/// Identifies one server that a client talks to. A cluster has one for each primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ServerId(pub(crate) u32);

impl ServerId {
    /// The only server of a client that is not on a cluster. In the routes of a cluster it stands
    /// for "no known server serves this slot".
    pub(crate) const ONLY: Self = Self(0);
}

/// Which server serves which slot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Routes {
    /// One server serves all slots.
    #[default]
    One,
    /// A cluster: one entry per slot.
    Slots {
        servers: Arc<[ServerId]>,
        /// True if all servers support sharded pub/sub.
        sharded: bool,
    },
}

impl Routes {
    pub(crate) fn server_of(&self, slot: u16) -> ServerId {
        match self {
            Self::One => ServerId::ONLY,
            Self::Slots { servers, .. } => {
                servers.get(usize::from(slot)).copied().unwrap_or(ServerId::ONLY)
            }
        }
    }
}

/// The connections to the lock servers. They are driven by polling; no method blocks.
///
/// # Contract
///
/// * Calls that are submitted to one server reach it in the order of submission, over one
///   connection. In a cluster a redirected call may be overtaken by later ones.
/// * The caller polls for events after it has submitted calls: `submit` wakes no task, because a
///   task that wakes itself while it runs makes its runtime wake another thread.
/// * Every submitted call is answered exactly once, at the latest shortly after its timeout.
/// * `Done` and `NotExecuted` are final: no copy of the call can still be executed. In all other
///   cases the outcome is `Unknown`.
/// * After the first `Up` of a server there is a `Down` before its next `Up`; the same holds for
///   `PubSubUp` and `PubSubDown`.
/// * All answers of a connection come before the `Up` of the next one.
/// * The backend connects, watches its connections and reconnects by itself until `close`.
/// * No subscription survives a `PubSubDown`: the engine subscribes again after `PubSubUp`.
pub(crate) trait Backend: Send {
    /// Sends a call. If the connection is down, the call is answered with `NotExecuted` and is not
    /// kept for later.
    fn submit(&mut self, op: OpId, to: ServerId, call: Call, timeout: Duration);

    /// Subscribes to a channel. `Subscribed` with the same generation follows once *the server* has
    /// confirmed or refused it; nothing follows if the connection ends first.
    fn subscribe(&mut self, channel: Arc<str>, sharded: bool, generation: u64);

    /// Ends a subscription. No event follows.
    fn unsubscribe(&mut self, channel: Arc<str>, sharded: bool);

    /// Returns the next event.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent>;

    /// True if the runtime around the backend has sockets.
    fn has_sockets(&self) -> bool {
        false
    }

    /// Reads without waiting whatever has arrived but was not reported by the runtime yet. Returns
    /// true if there was something, so that polling is worthwhile.
    fn looks_for_more(&mut self) -> bool {
        false
    }

    /// Sets when calls are gathered into batches: while at least this many are on the wire, new
    /// calls wait for others. Whether they go on waiting is looked up at each reply of the server.
    /// `None` turns gathering off.
    fn gather(&mut self, _from: Option<usize>) {}

    /// Replaces the connections to a server, because it replied that it has become a replica.
    fn reconnect(&mut self, server: ServerId);

    /// Starts an orderly end: `poll_event` returns `Closed` once no task or socket is left.
    fn close(&mut self);
}

/// What a backend reports to the driver.
#[derive(Debug)]
pub(crate) enum BackendEvent {
    /// A submitted call has ended. After a redirection `server` is another one than the call was
    /// submitted to.
    Replied { op: OpId, server: ServerId, outcome: Outcome<Value> },
    /// The command connection is usable: role, version and login were checked.
    Up(ServerId, ServerInfo),
    /// The command connection is gone. Calls in flight have been or will be answered.
    Down { server: ServerId, cause: String },
    /// The assignment of slots to servers has changed.
    Routes(Routes),
    /// The pub/sub connection is usable; nothing is subscribed on it.
    PubSubUp,
    /// The pub/sub connection is gone, with all subscriptions.
    PubSubDown,
    /// One attempt to connect failed; another one follows. `ServerId::ONLY` in a cluster means that
    /// the attempt to discover its nodes failed.
    ConnectFailed { server: ServerId, failure: Failure },
    /// The server's answer to a SUBSCRIBE.
    Subscribed { channel: Arc<str>, generation: u64, result: Result<(), Failure> },
    /// A message was published on a subscribed channel.
    Message { channel: Arc<str>, payload: String },
    /// This subscription has ended although the pub/sub connection is up, because its slot has
    /// moved.
    SubscriptionLost { channel: Arc<str> },
    /// The last event after `close`: no task or socket is left.
    Closed,
}

/// Identifies a server process. If it differs from the one before, data may be lost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ServerInfo {
    /// Redis's `run_id`, which every start of the process changes. Empty if the user may not read
    /// it.
    pub(crate) run_id: String,
    /// For messages, such as "7.0.15". Empty if the user may not read it.
    pub(crate) version: String,
    /// The address without credentials, for messages.
    pub(crate) address: String,
    /// For how long this process has been there, at least. Zero if that is not known.
    pub(crate) uptime: Duration,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome<T> {
    /// The server answered.
    Done(T),
    /// The call was not executed and never will be.
    NotExecuted(Failure),
    /// The call may have been executed, or may still be.
    Unknown(Failure),
}

impl<T> Outcome<T> {
    /// The same outcome with another text of its failure.
    pub(crate) fn with_message(self, words: &str) -> Self {
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

/// Why something failed: a category and a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// The text of Redis or of the client. It never contains a password.
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

/// The category of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FailureKind {
    /// The network: reset, timed out.
    Link,
    /// No process listens at the address: connection refused.
    NoListener,
    /// The server cannot serve at the moment: LOADING, BUSY, MASTERDOWN, CLUSTERDOWN, MISCONF,
    /// NOREPLICAS, max number of clients.
    Busy,
    /// TRYAGAIN: the slot is being moved and one of the keys is absent on this node. The server
    /// itself works.
    SlotMoving,
    /// MOVED and ASK: the slot is served by another node of the cluster.
    Redirected,
    /// OOM: commands that need memory are refused; deletes are not.
    OutOfMemory,
    /// READONLY: the server has become a replica, so the client has to reconnect.
    ReadOnly,
    /// WRONGPASS, NOAUTH.
    Auth,
    /// NOPERM, or an ACL denial inside a script.
    Denied,
    /// The server is a replica at connect, its version is too old, or it lacks a command.
    Unsupported,
    /// A certificate is missing or not accepted, or only one side uses TLS.
    Tls,
    /// Any other error reply of the server.
    Refused,
}

impl FailureKind {
    /// True if a retry may succeed although nobody changes anything.
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

    /// The kind of a failure of several servers or addresses, one of which has failed with `self`.
    /// `NoListener` is the result only if all of them refused the connection.
    pub(crate) fn of_several(self, all: impl IntoIterator<Item = Self>) -> Self {
        let other =
            self == Self::NoListener && all.into_iter().any(|kind| kind != Self::NoListener);
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
    /// EVALSHA; EVAL with the full text if the server does not know the script.
    Script(Box<ScriptCall>),
}

/// One run of a script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptCall {
    pub(crate) script: &'static Script,
    pub(crate) keys: Words,
    pub(crate) args: Words,
}

impl ScriptCall {
    pub(crate) fn new(script: &'static Script, keys: Words, args: Words) -> Self {
        Self { script, keys, args }
    }
}

/// A script's text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Script {
    /// Path below `lua/` without the extension, for logs.
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
}

impl Script {
    /// The SHA-1 by which EVALSHA refers to the script.
    pub(crate) fn digest(&self) -> String {
        sha1_smol::Sha1::from(self.text()).hexdigest()
    }

    /// The text that is sent to servers.
    pub(crate) fn text(&self) -> &'static str {
        #[cfg(seeded)]
        return crate::base::seeded::script_text(self.source);
        #[cfg(not(seeded))]
        self.source
    }
}

/// A script that runs a batch of calls of other scripts, each as if it were sent alone.
///
/// KEYS are the keys of all calls, one after the other. ARGV is one string: how it begins, and a
/// mark for each call; then, for each script, the common arguments of its calls; then the remaining
/// arguments of each call. The reply is one list: for each call the number of parts in its own
/// reply, followed by these parts; for a call that failed only the text of its error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchScript {
    pub(crate) script: &'static Script,
    /// Before the marks.
    pub(crate) begin: char,
    pub(crate) of: &'static [BatchableScript],
}

/// A script whose calls may be part of a batch. Its reply is never a plain string, which in the
/// reply of the batch is an error.
#[derive(Debug)]
pub(crate) struct BatchableScript {
    pub(crate) script: &'static Script,
    /// The mark of a call. In lower case the call has the common arguments; in upper case all its
    /// arguments are given.
    pub(crate) mark: char,
    /// A call has so many keys and arguments; any other is sent alone.
    pub(crate) keys: usize,
    pub(crate) args: usize,
    /// The positions of the arguments that most calls have in common.
    pub(crate) common: &'static [usize],
}

impl BatchScript {
    pub(crate) fn one(&self, call: &ScriptCall) -> Option<&'static BatchableScript> {
        self.of.iter().find(|one| {
            one.script.name == call.script.name
                && one.keys == call.keys.len()
                && one.args == call.args.len()
        })
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
