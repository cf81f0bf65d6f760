//! Calls that go in one script. Each is answered by itself, within its own time, as if it had gone by itself.

use smallvec::SmallVec;
use smallvec::smallvec;
use tokio::time::Instant;

use crate::backend::Call;
use crate::backend::Outcome;
use crate::backend::ScriptCall;
use crate::backend::Several;
use crate::backend::Value;
use crate::backend::redis::calls::CallRequest;
use crate::backend::redis::calls::PendingCall;
use crate::backend::redis::classify::classify;
use crate::backend::redis::error::WireError;
use crate::backend::redis::resp::RespReply;
use crate::backend::redis::resp::refusal;
use crate::backend::together::Together;

/// With fewer, little is gained.
const FEWEST: usize = 4;
/// With more, a server that has little else to do waits for them, and then this client for the server.
const ENOUGH: usize = 32;
/// With so many other batches on their way the server has enough to do.
const PLENTY: usize = 4;
/// With more, nothing is gained any more.
const MOST: usize = 64;
/// So many wait for no others.
const MANY: usize = 16;

pub(super) type Replies = SmallVec<[(PendingCall, Outcome<Value>); ENOUGH]>;

/// Nobody can tell what is whose. Nil is a reply that nobody understands, like any other of a strange shape.
const STRANGE: Outcome<Value> = Outcome::Done(Value::Nil);

/// Calls that may go together, in the order in which they came.
pub(super) struct Gathering {
    pub(super) several: Option<Several>,
    pending_calls: Vec<PendingCall>,
    /// The server would refuse them together.
    apart: bool,
    /// They wait for others while so many are on their way.
    pub(super) from: Option<usize>,
    /// Those that are here have waited.
    waited: bool,
}

impl Gathering {
    pub(super) fn new(several: Option<Several>) -> Self {
        Self { several, pending_calls: Vec::new(), apart: false, from: None, waited: false }
    }

    /// Another server may allow what the last one refused.
    pub(super) fn connected(&mut self) {
        self.apart = false;
    }

    /// Gives back what goes by itself.
    pub(super) fn add(&mut self, pending_call: PendingCall) -> Result<(), PendingCall> {
        let fits = |call: &ScriptCall| self.several.is_some_and(|several| several.one(call.script).is_some());
        match &pending_call.request {
            CallRequest::Call(Call::Script(call)) if !self.apart && fits(call) => {
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

    /// Whether there are enough calls for a batch, with so many other batches on their way.
    pub(super) fn is_full(&self, others: usize) -> bool {
        self.pending_calls.len() >= if others < PLENTY { ENOUGH } else { MOST }
    }

    /// Whether others are still to come, with the server at work or not.
    pub(super) fn stays(&mut self, busy: bool) -> bool {
        let stays = busy && !self.apart && self.pending_calls.len() < MANY;
        self.waited |= stays;
        stays
    }

    /// With the server at work or not.
    pub(super) fn goes_together(&self, busy: bool) -> bool {
        self.pending_calls.len() >= FEWEST && !self.apart && (busy || self.waited)
    }

    pub(super) fn take(&mut self) -> Vec<PendingCall> {
        self.waited = false;
        std::mem::take(&mut self.pending_calls)
    }

    /// The list that was taken, emptied: for its memory.
    pub(super) fn reuse(&mut self, mut list: Vec<PendingCall>) {
        list.append(&mut self.pending_calls);
        self.pending_calls = list;
    }

    /// What was not sent in time.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<PendingCall> {
        let (late, others) = std::mem::take(&mut self.pending_calls)
            .into_iter()
            .partition(|pending_call| pending_call.deadline <= now);
        self.pending_calls = others;
        late
    }

    /// What will not change by itself, and what nobody understands, is asked for once.
    pub(super) fn note_refusal(&mut self, error: &WireError) {
        self.apart |= match classify::<()>(error) {
            Outcome::NotExecuted(failure) => !failure.kind.is_transient(),
            Outcome::Done(()) | Outcome::Unknown(_) => true,
        };
    }

    /// The same of a reply whose shape says nothing to anybody.
    pub(super) fn note_shape(&mut self, replies: &[(PendingCall, Outcome<Value>)]) {
        self.apart |= replies.iter().any(|(_, outcome)| *outcome == STRANGE);
    }
}

/// What is on the wire: one call, or several together. `None`: answered.
pub(super) struct Batch {
    pending_calls: SmallVec<[Option<PendingCall>; 1]>,
    pub(super) together: bool,
    /// Sent with the script's text.
    pub(super) whole: bool,
    pub(super) sent: Instant,
}

impl Batch {
    pub(super) fn of(pending_call: PendingCall, now: Instant) -> Self {
        Self { pending_calls: smallvec![Some(pending_call)], together: false, whole: false, sent: now }
    }

    pub(super) fn of_several(pending_calls: impl Iterator<Item = PendingCall>, now: Instant) -> Self {
        Self { pending_calls: pending_calls.map(Some).collect(), together: true, whole: false, sent: now }
    }

    /// Those still to be answered.
    pub(super) fn pending_calls(&self) -> impl Iterator<Item = &PendingCall> + Clone {
        self.pending_calls.iter().flatten()
    }

    pub(super) fn into_pending_calls(self) -> impl Iterator<Item = PendingCall> {
        self.pending_calls.into_iter().flatten()
    }

    pub(super) fn first(&self) -> Option<&PendingCall> {
        self.pending_calls().next()
    }

    /// Whether its place among the others matters.
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

    /// Before it is sent: the reply has a part for each that is.
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

    /// Of those that go `together`, or of one by itself.
    pub(super) fn args<'a>(
        &'a self,
        together: Option<&'a Together<'_>>,
    ) -> impl Iterator<Item = &'a str> + Clone {
        let alone = together.is_none().then(|| self.scripts().flat_map(|call| call.args.iter()));
        let all = together.map(|together| together.args(self.scripts()));
        all.into_iter().flatten().chain(alone.into_iter().flatten())
    }

    /// What the reply of several says to each that still waits, and what is left of the list that said so.
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
        (pending_calls.filter_map(|(pending_call, outcome)| Some((pending_call?, outcome?))).collect(), list)
    }
}

/// The reply to one of several, put together as its own script would have: what is left out is the time of all.
fn next_of(time: &Value, parts: &mut std::vec::Drain<'_, Value>) -> Option<Outcome<Value>> {
    match parts.next()? {
        Value::Text(words) => Some(classify(&refusal(words))),
        Value::Int(head) => {
            let (code, many) = (head.div_euclid(4), usize::try_from(head.rem_euclid(4)).ok()?);
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
