//! Batches: calls that are sent in one script. Each call is answered with its own reply and within
//! its own timeout, as if it had been sent alone.

use smallvec::SmallVec;
use smallvec::smallvec;
use tokio::time::Instant;

use crate::backend::BatchScript;
use crate::backend::Call;
use crate::backend::Outcome;
use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::batch_args::BatchArgs;
use crate::backend::redis::calls::CallRequest;
use crate::backend::redis::calls::PendingCall;
use crate::backend::redis::classify::classify;
use crate::backend::redis::error::WireError;
use crate::backend::redis::resp::RespReply;
use crate::backend::redis::resp::refusal;

/// The fewest calls that make a batch: with fewer, little is gained.
const FEWEST: usize = 4;
/// The most calls in a batch while the server has little other work: with more, server and client
/// would wait for each other.
const ENOUGH: usize = 32;
/// With this many other batches in flight the server has enough work.
const PLENTY: usize = 4;
/// The most calls in a batch: more of them gain nothing.
const MOST: usize = 64;
/// With this many gathered calls no more are waited for.
const MANY: usize = 16;

pub(super) type Replies = SmallVec<[(PendingCall, Outcome<Value>); ENOUGH]>;

/// The outcome of each call if the reply to a batch cannot be split into their replies. No command
/// accepts Nil as its reply, so the engine treats it as unknown.
const STRANGE: Outcome<Value> = Outcome::Done(Value::Nil);

/// Calls that wait to be sent in a batch, in the order in which they were submitted.
pub(super) struct GatheredCalls {
    pub(super) several: Option<BatchScript>,
    pending_calls: Vec<PendingCall>,
    /// True after the server has refused a batch: calls are sent one by one.
    one_by_one: bool,
    /// Calls are gathered while this many commands are in flight.
    pub(super) from: Option<usize>,
    /// True if the calls gathered so far have already waited for others.
    waited: bool,
}

impl GatheredCalls {
    pub(super) fn new(several: Option<BatchScript>) -> Self {
        Self { several, pending_calls: Vec::new(), one_by_one: false, from: None, waited: false }
    }

    /// Tries batches again on a new connection, because another server may allow them.
    pub(super) fn connected(&mut self) {
        self.one_by_one = false;
    }

    /// Adds a call. Returns it if it cannot be part of a batch.
    pub(super) fn add(&mut self, pending_call: PendingCall) -> Result<(), PendingCall> {
        let fits =
            |call: &ScriptCall| self.several.is_some_and(|several| several.one(call).is_some());
        match &pending_call.request {
            CallRequest::Call(Call::Script(call)) if !self.one_by_one && fits(call) => {
                self.pending_calls.push(pending_call);
                Ok(())
            }
            _ => Err(pending_call),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending_calls.is_empty()
    }

    pub(super) fn pending_calls(&self) -> impl Iterator<Item = &PendingCall> {
        self.pending_calls.iter()
    }

    /// True if there are enough calls for a batch, given the number of other batches in flight.
    pub(super) fn is_full(&self, others: usize) -> bool {
        self.pending_calls.len() >= if others < PLENTY { ENOUGH } else { MOST }
    }

    /// True if the calls wait for more. `gathers`: as many calls are in flight as the driver has
    /// set for gathering.
    pub(super) fn waits_for_more(&mut self, gathers: bool) -> bool {
        let waits_for_more = gathers && !self.one_by_one && self.pending_calls.len() < MANY;
        self.waited |= waits_for_more;
        waits_for_more
    }

    /// True if the calls are sent as a batch. `busy`: the server has other work.
    pub(super) fn makes_batch(&self, busy: bool) -> bool {
        self.pending_calls.len() >= FEWEST && !self.one_by_one && (busy || self.waited)
    }

    pub(super) fn take(&mut self) -> Vec<PendingCall> {
        self.waited = false;
        std::mem::take(&mut self.pending_calls)
    }

    /// Takes the emptied list back, to reuse its memory.
    pub(super) fn reuse(&mut self, mut list: Vec<PendingCall>) {
        list.append(&mut self.pending_calls);
        self.pending_calls = list;
    }

    /// Removes the calls whose deadline has passed.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<PendingCall> {
        let (late, others) = std::mem::take(&mut self.pending_calls)
            .into_iter()
            .partition(|pending_call| pending_call.deadline <= now);
        self.pending_calls = others;
        late
    }

    /// Sends calls one by one from now on, if the error is a lasting refusal or says nothing
    /// definite.
    pub(super) fn note_refusal(&mut self, error: &WireError) {
        self.one_by_one |= match classify::<()>(error) {
            Outcome::NotExecuted(failure) => !failure.kind.is_transient(),
            Outcome::Done(()) | Outcome::Unknown(_) => true,
        };
    }

    /// The same after a reply that cannot be split.
    pub(super) fn note_shape(&mut self, replies: &[(PendingCall, Outcome<Value>)]) {
        self.one_by_one |= replies.iter().any(|(_, outcome)| *outcome == STRANGE);
    }
}

/// One script on the wire: a single call, or a batch of several. An answered call is `None`.
pub(super) struct Batch {
    pending_calls: SmallVec<[Option<PendingCall>; 1]>,
    pub(super) together: bool,
    /// True if the script's text is sent.
    pub(super) whole: bool,
    pub(super) sent: Instant,
}

impl Batch {
    pub(super) fn of(pending_call: PendingCall, now: Instant) -> Self {
        Self {
            pending_calls: smallvec![Some(pending_call)],
            together: false,
            whole: false,
            sent: now,
        }
    }

    pub(super) fn of_several(
        pending_calls: impl Iterator<Item = PendingCall>,
        now: Instant,
    ) -> Self {
        Self {
            pending_calls: pending_calls.map(Some).collect(),
            together: true,
            whole: false,
            sent: now,
        }
    }

    /// The calls that are not answered yet.
    pub(super) fn pending_calls(&self) -> impl Iterator<Item = &PendingCall> + Clone {
        self.pending_calls.iter().flatten()
    }

    pub(super) fn into_pending_calls(self) -> impl Iterator<Item = PendingCall> {
        self.pending_calls.into_iter().flatten()
    }

    pub(super) fn first(&self) -> Option<&PendingCall> {
        self.pending_calls().next()
    }

    /// True for a script: scripts must be executed in the order of submission.
    pub(super) fn is_script(&self) -> bool {
        self.together || self.first().is_some_and(|pending_call| pending_call.request.is_script())
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.pending_calls().any(|pending_call| pending_call.deadline <= now)
    }

    pub(super) fn take_late(&mut self, now: Instant) -> Vec<PendingCall> {
        let late = |pending_call: &mut Option<PendingCall>| {
            pending_call.take_if(|pending_call| pending_call.deadline <= now)
        };
        self.pending_calls.iter_mut().filter_map(late).collect()
    }

    /// Removes answered calls. Called before the batch is sent, because the reply has a part for
    /// each call that is sent.
    pub(super) fn forget_answered(&mut self) {
        self.pending_calls.retain(|pending_call| pending_call.is_some());
    }

    pub(super) fn scripts(&self) -> impl Iterator<Item = &ScriptCall> + Clone {
        self.pending_calls().filter_map(|pending_call| match pending_call.request.call() {
            Some(Call::Script(call)) => Some(&**call),
            _ => None,
        })
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> + Clone {
        self.scripts().flat_map(|call| call.keys.iter())
    }

    /// The arguments of the batch script, or of the single call.
    pub(super) fn args<'a>(
        &'a self,
        together: Option<&'a BatchArgs<'_>>,
    ) -> impl Iterator<Item = &'a str> + Clone {
        let alone = together.is_none().then(|| self.scripts().flat_map(|call| call.args.iter()));
        let all = together.map(|together| together.args(self.scripts()));
        all.into_iter().flatten().chain(alone.into_iter().flatten())
    }

    /// The outcomes of the calls that are not answered yet, and the emptied list, whose memory can
    /// be reused.
    pub(super) fn replies(self, reply: RespReply) -> (Replies, Vec<Value>) {
        let mut list = match reply {
            Ok(Value::List(list)) => list,
            Ok(_) => Vec::new(),
            Err(error) => {
                let pending_calls = self.into_pending_calls();
                return (
                    pending_calls.map(|pending_call| (pending_call, classify(&error))).collect(),
                    Vec::new(),
                );
            }
        };
        let mut parts = list.drain(..);
        let time = parts.next();
        let mut replies: SmallVec<[_; ENOUGH]> =
            self.pending_calls.iter().map(|_| next_of(time.as_ref()?, &mut parts)).collect();
        if parts.next().is_some() || replies.contains(&None) {
            replies.fill(Some(STRANGE));
        }
        drop(parts);
        let pending_calls = self.pending_calls.into_iter().zip(replies);
        (
            pending_calls
                .filter_map(|(pending_call, outcome)| Some((pending_call?, outcome?)))
                .collect(),
            list,
        )
    }
}

/// The reply to one call of a batch, in the form that its own script would have given. The batch
/// has the server's time only once.
fn next_of(time: &Value, parts: &mut std::vec::Drain<'_, Value>) -> Option<Outcome<Value>> {
    match parts.next()? {
        Value::Text(words) => Some(classify(&refusal(words))),
        Value::Int(head) => {
            let (code, many) = (head.div_euclid(8), usize::try_from(head.rem_euclid(8)).ok()?);
            if many > parts.len() {
                return None;
            }
            let mut reply = Vec::with_capacity(2 + many);
            reply.extend([Value::Int(code), time.clone()]);
            reply.extend(parts.by_ref().take(many));
            Some(Outcome::Done(Value::List(reply)))
        }
        Value::Nil | Value::List(_) => None,
    }
}
