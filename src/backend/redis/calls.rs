//! The calls of one backend. They are sent in order on the current connection, and each is answered
//! exactly once.

mod batch;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::task::ready;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::BUSY;
use crate::backend::BatchScript;
use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::Script;
use crate::backend::Value;
use crate::backend::batch_args::BatchArgs;
use crate::backend::redis::budget::Budgets;
use crate::backend::redis::calls::batch::Batch;
use crate::backend::redis::calls::batch::GatheredCalls;
use crate::backend::redis::classify::classify;
use crate::backend::redis::classify::is_no_script;
use crate::backend::redis::classify::is_reply;
use crate::backend::redis::denied::name_permission;
use crate::backend::redis::dial::auth;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::link::BrokenConnection;
use crate::backend::redis::locator::PrimaryTerm;
use crate::backend::redis::resp::RespReply;
use crate::backend::redis::timer::SECOND_LOOK;
use crate::backend::redis::timer::Timer;
use crate::backend::redis::wire::WAITING;
use crate::backend::redis::wire::Wire;
use crate::base::map::Hasher;
use crate::base::map::Map;
use crate::settings::credentials::Credentials;

/// After this many timeouts in a row, and some time without any reply, the connection is replaced,
/// because a frozen server or a network that drops every packet does not close it.
const SILENT_TIMEOUTS: u32 = 2;
const DEPOSED: &str = "the server is no longer the primary";
const UNWRITTEN: &str = "timed out before it was sent";
/// Longer than any call, and short enough to be added to an instant.
const LONGEST: Duration = Duration::from_secs(86_400);

/// A connection that is logged in and ready for calls.
pub(crate) struct Connection {
    pub(crate) wire: Wire,
    /// Receives the cause when the connection has ended.
    pub(crate) ended: oneshot::Sender<BrokenConnection>,
    /// Notified to end the connection.
    pub(crate) end: Arc<Notify>,
    /// The round trip that was measured with the first questions.
    pub(crate) round_trip: Duration,
    /// Whether the server is still the primary.
    pub(crate) term: PrimaryTerm,
    /// True if there is a credential provider, which may give another login if this one is refused.
    pub(crate) asks_again: bool,
}

/// What a backend sends on a connection.
#[derive(Debug, Clone)]
pub(crate) enum CallRequest {
    Call(Call),
    /// An ASKING goes before it, because the node is only about to take over the slot.
    Asking(Call),
    /// CLUSTER SLOTS. The reply is returned unchanged.
    Slots,
}

impl CallRequest {
    fn call(&self) -> Option<&Call> {
        match self {
            Self::Call(call) | Self::Asking(call) => Some(call),
            Self::Slots => None,
        }
    }

    /// True for a script: scripts must be executed in the order of submission.
    fn is_script(&self) -> bool {
        matches!(self.call(), Some(Call::Script(_)))
    }

    /// Whether an ASKING is sent right before it.
    fn is_asking(&self) -> bool {
        matches!(self, Self::Asking(_))
    }
}

/// A call that has been submitted and not yet answered.
struct PendingCall {
    op: OpId,
    request: CallRequest,
    deadline: Instant,
    /// The time between its submission and its deadline.
    timeout: Duration,
}

impl PendingCall {
    /// The first key of a script, which is the lock.
    fn lock(&self) -> Option<&str> {
        match self.request.call() {
            Some(Call::Script(call)) => call.keys.first(),
            _ => None,
        }
    }
}

/// A reload after the server has lost its scripts. New calls are held back until those in flight
/// are answered, so that calls that have to be sent again still go before calls that were submitted
/// after them.
#[derive(Default)]
struct ScriptReload {
    again: BTreeMap<u64, Batch>,
    held: Vec<Batch>,
    /// The last call, in order of submission, that may have been executed.
    last_executed: Option<u64>,
}

impl ScriptReload {
    /// Removes the calls whose deadline has passed.
    fn take_late(&mut self, now: Instant) -> Vec<PendingCall> {
        let batches = self.again.values_mut().chain(&mut self.held);
        let late = batches.flat_map(|batch| batch.take_late(now)).collect();
        self.held.retain(|batch| batch.first().is_some());
        late
    }

    fn pending_calls(&self) -> impl Iterator<Item = &PendingCall> {
        self.again.values().chain(&self.held).flat_map(Batch::pending_calls)
    }

    fn into_pending_calls(self) -> impl Iterator<Item = PendingCall> {
        self.again.into_values().chain(self.held).flat_map(Batch::into_pending_calls)
    }
}

pub(crate) struct Calls {
    connection: Option<Connection>,
    /// The next two belong to the connection whose answers are awaited.
    term: PrimaryTerm,
    asks_again: bool,
    served: bool,
    /// Every batch that was passed to the connection, by its number.
    in_flight: BTreeMap<u64, Batch>,
    gathering: GatheredCalls,
    last_number: u64,
    /// The last script on this connection that timed out and may have been executed, or may still
    /// be.
    last_given_up: Option<u64>,
    answers: VecDeque<(OpId, Outcome<Value>)>,
    reload: Option<ScriptReload>,
    /// The scripts that the server has cached; `None` until it has replied NOSCRIPT. On a new
    /// connection the server probably has all scripts from the connection before, so the texts are
    /// not sent at first.
    known: Option<HashSet<&'static str, Hasher>>,
    digests: Map<&'static str, String>,
    silence: Option<Silence>,
    timer: Timer,
    login: Option<LoginInFlight>,
    budgets: Budgets,
    lateness: LateReplies,
}

/// Tells a slow connection from a dead one.
#[derive(Default)]
struct LateReplies {
    /// When the calls that timed out were sent.
    given_up: BTreeMap<u64, Instant>,
    /// How long the last answer took, if it came after its call had timed out.
    last: Option<Duration>,
}

/// The time during which calls are in flight and no reply comes.
struct Silence {
    since: Instant,
    timeouts: u32,
    /// When the connection is considered dead, unless a reply comes before.
    dead_at: Option<Instant>,
}

impl Silence {
    fn begin() -> Self {
        Self { since: Instant::now(), timeouts: 0, dead_at: None }
    }
}

/// An AUTH in flight.
struct LoginInFlight {
    number: u64,
    deadline: Instant,
    answer: oneshot::Sender<Result<(), String>>,
}

impl Calls {
    /// Must be called within the runtime that owns the connections.
    pub(crate) fn new(several: Option<BatchScript>, budgets: Budgets) -> Self {
        Self {
            connection: None,
            term: PrimaryTerm::default(),
            asks_again: false,
            served: false,
            in_flight: BTreeMap::new(),
            gathering: GatheredCalls::new(several),
            last_number: 0,
            last_given_up: None,
            answers: VecDeque::new(),
            reload: None,
            known: None,
            digests: Map::default(),
            silence: None,
            timer: Timer::new(),
            login: None,
            budgets,
            lateness: LateReplies::default(),
        }
    }

    /// Uses this connection from now on.
    pub(crate) fn connected(&mut self, connection: Connection) {
        self.known = None;
        let late =
            Some(connection.round_trip).filter(|took| *took > self.budgets.command_timeout());
        self.lateness = LateReplies { last: late, ..LateReplies::default() };
        self.gathering.connected();
        self.silence = None;
        self.last_given_up = None;
        self.term = connection.term.clone();
        self.asks_again = connection.asks_again;
        self.served = false;
        self.connection = Some(connection);
    }

    /// Answers all calls that are left, and closes the connection if it is still open.
    pub(crate) fn disconnected(&mut self, cause: &str) {
        if let Some(connection) = self.connection.take() {
            let Connection { mut wire, ended, .. } = connection;
            let unsent = wire.stop_writing();
            // Replies of a deposed primary are not read, even if they came long ago.
            while !self.term.is_over() {
                let reply = wire.poll_reply(&mut Context::from_waker(Waker::noop()));
                let Poll::Ready(Ok((number, reply))) = reply else { break };
                self.settle(number, reply);
            }
            for number in unsent {
                self.refuse_command(number, cause);
            }
            let _ = ended.send(BrokenConnection { cause: cause.to_owned(), served: self.served });
        }
        for pending_call in
            std::mem::take(&mut self.in_flight).into_values().flat_map(Batch::into_pending_calls)
        {
            let failure = Failure::new(FailureKind::Link, cause);
            let not_executed = seeded!(BrokenConnectionIsUnknown);
            let outcome = if not_executed {
                Outcome::NotExecuted(failure)
            } else {
                Outcome::Unknown(failure)
            };
            self.answers.push_back((pending_call.op, outcome));
        }
        let reload = self.reload.take().unwrap_or_default();
        for pending_call in reload.into_pending_calls().chain(self.gathering.take()) {
            self.refuse(pending_call.op, FailureKind::Link, cause);
        }
        self.login = None;
    }

    /// Sets `GatheredCalls::from`; see `Backend::gather`.
    pub(crate) fn gather(&mut self, from: Option<usize>) {
        self.gathering.from = from;
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// True if every call is answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
            && self.gathering.is_empty()
            && self.answers.is_empty()
            && self.reload.is_none()
    }

    /// Ends the connection, so that a new one is made.
    pub(crate) fn replace_connection(&self) {
        if let Some(connection) = &self.connection {
            connection.end.notify_one();
        }
    }

    pub(crate) fn submit(&mut self, op: OpId, request: CallRequest, timeout: Duration) {
        match &self.connection {
            Some(connection) if !connection.wire.is_broken() && !self.term.is_over() => {
                let held = self.reload.as_ref().map_or(0, |reload| reload.held.len());
                if connection.wire.is_full() || held >= WAITING {
                    return self.refuse(
                        op,
                        FailureKind::Busy,
                        "too many commands wait to be written",
                    );
                }
            }
            _ => return self.refuse(op, FailureKind::Link, "not connected"),
        }
        let now = Instant::now();
        let timeout = timeout.min(LONGEST);
        let pending_call = PendingCall { op, request, deadline: now + timeout, timeout };
        // Set here, because the timer is polled before the call is written.
        self.timer.not_after(pending_call.deadline);
        if let Err(pending_call) = self.gathering.add(pending_call) {
            self.send_gathered();
            self.send(Batch::of(pending_call, now), now);
        }
        if self.gathering.is_full(self.in_flight.len()) {
            self.send_gathered();
        }
    }

    /// Sends the gathered calls, in one batch if they are enough for that.
    fn send_gathered(&mut self) {
        if self.gathering.is_empty() {
            return;
        }
        let together = self.gathering.makes_batch(self.is_busy());
        let mut gathered = self.gathering.take();
        let now = Instant::now();
        if together {
            self.send(Batch::of_several(gathered.drain(..), now), now);
        } else {
            gathered
                .drain(..)
                .for_each(|pending_call| self.send(Batch::of(pending_call, now), now));
        }
        self.gathering.reuse(gathered);
    }

    /// True if the gathered calls wait for more. The next reply, which is expected soon, checks
    /// this again.
    fn is_gathering(&mut self) -> bool {
        if self.gathering.is_empty() {
            return false;
        }
        let gathers = self.gathering.from.is_some_and(|from| self.has_sent(from));
        self.gathering.waits_for_more(gathers)
    }

    /// True if the server has other work, so that no call would be answered sooner if it were sent
    /// alone.
    fn is_busy(&self) -> bool {
        self.has_sent(BUSY)
    }

    /// Whether at least this many calls are in flight.
    fn has_sent(&self, many: usize) -> bool {
        self.in_flight.values().flat_map(Batch::pending_calls).take(many).count() == many
    }

    /// Sends an AUTH, in order with the calls.
    pub(crate) fn log_in(
        &mut self,
        credentials: &Credentials,
        answer: oneshot::Sender<Result<(), String>>,
    ) {
        self.send_gathered();
        let Some(connection) = &mut self.connection else { return };
        self.last_number += 1;
        let (number, deadline) = (self.last_number, Instant::now() + self.budgets.answer());
        let command = auth(credentials.user.as_deref(), &credentials.password);
        connection.wire.send(number, false, command.into_iter());
        self.timer.not_after(deadline);
        self.login = Some(LoginInFlight { number, deadline, answer });
    }

    /// Answers every call of a batch that was not written.
    fn refuse_command(&mut self, number: u64, why: &str) {
        for pending_call in
            self.in_flight.remove(&number).into_iter().flat_map(Batch::into_pending_calls)
        {
            self.refuse(pending_call.op, FailureKind::Link, why);
        }
    }

    /// Answers a call that was not sent.
    pub(crate) fn refuse(&mut self, op: OpId, kind: FailureKind, why: &str) {
        self.answers.push_back((op, Outcome::NotExecuted(Failure::new(kind, why))));
    }

    pub(crate) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<(OpId, Outcome<Value>)> {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return Poll::Ready(answer);
            }
            // The timer is polled first, so that calls time out even if there are always replies to
            // read.
            if self.poll_timer(cx).is_pending() && self.poll_wire(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Reads replies before the runtime reports the socket as readable. Returns true if there were
    /// any.
    pub(crate) fn read_ahead(&mut self) -> bool {
        let awaited = !self.in_flight.is_empty();
        awaited && self.connection.as_mut().is_some_and(|connection| connection.wire.read_ahead())
    }

    fn poll_wire(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else { return Poll::Pending };
        if self.term.is_over() {
            // A deposed primary no longer decides who holds a lock, so its replies are not read.
            self.disconnected(DEPOSED);
            return Poll::Ready(());
        }
        let mut reply = connection.wire.poll_read_reply(cx);
        if reply.is_pending() {
            if !self.is_gathering() {
                self.send_gathered();
            }
            if !self.answers.is_empty() {
                return Poll::Ready(());
            }
            let Some(connection) = &mut self.connection else { return Poll::Pending };
            reply = connection.wire.poll_reply(cx);
        }
        match ready!(reply) {
            Ok((number, reply)) => self.settle(number, reply),
            Err(error) => self.disconnected(error.details()),
        }
        Poll::Ready(())
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.timer.poll(cx));
        let now = Instant::now();
        self.replace_silent_connection(now);
        self.give_up(now);
        let reload = self.reload.iter().flat_map(ScriptReload::pending_calls);
        let pending_calls = self.in_flight.values().flat_map(Batch::pending_calls).chain(reload);
        let pending_calls = pending_calls.chain(self.gathering.pending_calls());
        let pending_calls = pending_calls.map(|pending_call| pending_call.deadline);
        let silence = self.silence.as_ref().and_then(|silence| silence.dead_at);
        let next = pending_calls
            .chain(self.login.as_ref().map(|login| login.deadline))
            .chain(silence)
            .min();
        if let Some(next) = next {
            self.timer.not_after(next);
        }
        Poll::Ready(())
    }

    /// Answers the calls whose deadline has passed. The reply to a call that was written may still
    /// come; a call that was not written is never executed.
    fn give_up(&mut self, now: Instant) {
        let late = |(number, batch): (&u64, &Batch)| batch.is_late(now).then_some(*number);
        for number in self.in_flight.iter().filter_map(late).collect::<Vec<_>>() {
            self.give_up_command(number, now);
        }
        if let Some(login) = self.login.take_if(|login| login.deadline <= now) {
            let _ = login.answer.send(Err(format!("no answer within {:?}", self.budgets.answer())));
        }
        let held = self.reload.iter_mut().flat_map(|reload| reload.take_late(now));
        for pending_call in held.chain(self.gathering.take_late(now)).collect::<Vec<_>>() {
            self.refuse(pending_call.op, FailureKind::Link, UNWRITTEN);
        }
        self.finish_reload();
    }

    fn give_up_command(&mut self, number: u64, now: Instant) {
        let Some(batch) = self.in_flight.get_mut(&number) else { return };
        let is_script = batch.is_script();
        let late = batch.take_late(now);
        let is_over = batch.first().is_none();
        let wire = self.connection.as_mut().map(|connection| &mut connection.wire);
        let sent = batch.sent;
        if is_over {
            self.in_flight.remove(&number);
        }
        if is_over && wire.is_some_and(|wire| wire.withdraw(number)) {
            self.note_timeout();
            return late.into_iter().for_each(|pending_call| {
                self.refuse(pending_call.op, FailureKind::Link, UNWRITTEN)
            });
        }
        if is_over {
            self.lateness.given_up.insert(number, sent);
        }
        if is_script {
            self.last_given_up = self.last_given_up.max(Some(number));
            self.note_executed(number);
        }
        self.note_timeout();
        for pending_call in late {
            let words = self.timeout_message(pending_call.timeout);
            self.answers.push_back((
                pending_call.op,
                Outcome::Unknown(Failure::new(FailureKind::Link, words)),
            ));
        }
    }

    /// The likely cause of a timeout.
    fn timeout_message(&self, timeout: Duration) -> String {
        let what = if timeout == self.budgets.command_timeout() {
            "the command timeout"
        } else {
            "its time"
        };
        match self.lateness.last {
            Some(took) => format!(
                "answers come, but too late: the last one took {:?}, {what} is {timeout:?}",
                whole_millis(took)
            ),
            None => format!("no answer within {timeout:?}"),
        }
    }

    fn send(&mut self, mut batch: Batch, now: Instant) {
        if let Some(reload) = &mut self.reload {
            return reload.held.push(batch);
        }
        for pending_call in batch.take_late(now) {
            self.refuse(pending_call.op, FailureKind::Link, UNWRITTEN);
        }
        batch.forget_answered();
        let Some(first) = batch.first() else { return };
        let cause = if self.term.is_over() { DEPOSED } else { "not connected" };
        let connection = self.connection.as_mut().filter(|_| !self.term.is_over());
        let Some(wire) = connection.map(|connection| &mut connection.wire) else {
            let pending_calls = batch.into_pending_calls();
            return pending_calls
                .for_each(|pending_call| self.refuse(pending_call.op, FailureKind::Link, cause));
        };
        self.last_number += 1;
        let number = self.last_number;
        let asking = !batch.together && first.request.is_asking();
        match first.request.call() {
            None => wire.send(number, asking, ["CLUSTER", "SLOTS"].into_iter()),
            Some(Call::Time) => wire.send(number, asking, ["TIME"].into_iter()),
            Some(Call::Ping) => wire.send(number, asking, ["PING"].into_iter()),
            Some(Call::Info) => wire.send(number, asking, ["INFO"].into_iter()),
            Some(Call::Script(call)) => {
                let several = self.gathering.several.filter(|_| batch.together);
                let script: &'static Script = several.map_or(call.script, |several| several.script);
                // The text is sent if the server has not cached the script. From then on it counts
                // as cached, because the server handles this call before later ones; if that is
                // wrong, it replies NOSCRIPT.
                let whole = self.known.as_mut().is_some_and(|known| known.insert(script.name));
                batch.whole = whole;
                let head = if whole {
                    ["EVAL", script.text()]
                } else {
                    let digest = self.digests.entry(script.name);
                    ["EVALSHA", digest.or_insert_with(|| script.digest()).as_str()]
                };
                let mut digits = itoa::Buffer::new();
                let keys =
                    digits.format(batch.scripts().map(|call| call.keys.len()).sum::<usize>());
                let together = several.map(|several| BatchArgs::new(several, batch.scripts()));
                let texts = batch.keys().chain(batch.args(together.as_ref()));
                wire.send(number, asking, head.into_iter().chain([keys]).chain(texts));
            }
        }
        batch.sent = now;
        self.in_flight.insert(number, batch);
        self.silence.get_or_insert_with(Silence::begin);
    }

    fn settle(&mut self, number: u64, reply: RespReply) {
        let Some(batch) = self.in_flight.remove(&number) else {
            return self.settle_other(number, &reply);
        };
        self.lateness.last = None;
        match reply {
            Err(error) if is_no_script(&error) && batch.is_script() && !batch.whole => {
                self.known = Some(HashSet::default());
                self.heard();
                let last_executed = self.last_given_up;
                let reload = self.reload.get_or_insert_with(|| ScriptReload {
                    last_executed,
                    ..ScriptReload::default()
                });
                reload.again.insert(number, batch);
            }
            reply if batch.together => self.settle_several(number, batch, reply),
            reply => {
                let Some(pending_call) = batch.into_pending_calls().next() else { return };
                let outcome = self.judge(&pending_call.request, reply);
                if pending_call.request.is_script() && !matches!(outcome, Outcome::NotExecuted(_)) {
                    self.note_executed(number);
                }
                self.answers.push_back((pending_call.op, outcome));
            }
        }
        self.finish_reload();
    }

    /// Answers each call of a batch with its own reply. A refused call is sent again alone, because
    /// another call of the batch may be the cause, unless it would then come after a call that was
    /// submitted later for the same key.
    fn settle_several(&mut self, number: u64, batch: Batch, reply: RespReply) {
        let whole = reply.is_err();
        match &reply {
            Ok(_) => self.heard(),
            Err(error) => {
                self.note_error(error);
                self.gathering.note_refusal(error);
            }
        }
        let (replies, list) = batch.replies(reply);
        if let Some(connection) = &mut self.connection {
            connection.wire.reuse(list);
        }
        self.gathering.note_shape(&replies);
        let followed = self.followed(&replies);
        // Some calls of the batch have timed out. They may have come later for one of these locks
        // and were perhaps executed.
        let overtaken = self.last_given_up >= Some(number);
        let mut again = Vec::new();
        for (pending_call, outcome) in replies {
            match outcome {
                Outcome::NotExecuted(failure)
                    if overtaken
                        || pending_call.lock().is_some_and(|lock| followed.contains(lock)) =>
                {
                    self.answers.push_back((
                        pending_call.op,
                        Outcome::NotExecuted(refused_among(failure, whole)),
                    ));
                }
                Outcome::NotExecuted(_) => again.push(pending_call),
                outcome => {
                    self.note_executed(number);
                    self.answers.push_back((pending_call.op, outcome));
                }
            }
        }
        let now = Instant::now();
        again.into_iter().for_each(|pending_call| self.send(Batch::of(pending_call, now), now));
    }

    /// The locks of refused calls for which another call was submitted later or in the same batch.
    fn followed(&self, replies: &[(PendingCall, Outcome<Value>)]) -> HashSet<String> {
        let of = |refused: bool| {
            let wanted = replies
                .iter()
                .filter(move |(_, outcome)| matches!(outcome, Outcome::NotExecuted(_)) == refused);
            wanted.map(|(pending_call, _)| pending_call)
        };
        let refused: HashSet<_> = of(true).filter_map(PendingCall::lock).collect();
        if refused.is_empty() {
            return HashSet::new();
        }
        let held = self.reload.iter().flat_map(ScriptReload::pending_calls);
        let later = self
            .in_flight
            .values()
            .flat_map(Batch::pending_calls)
            .chain(self.gathering.pending_calls());
        let locks = later.chain(held).chain(of(false)).filter_map(PendingCall::lock);
        locks.filter(|lock| refused.contains(lock)).map(str::to_owned).collect()
    }

    fn note_executed(&mut self, number: u64) {
        if let Some(reload) = &mut self.reload {
            reload.last_executed = reload.last_executed.max(Some(number));
        }
    }

    /// Handles the reply to a login, or to a call that has timed out.
    fn settle_other(&mut self, number: u64, reply: &RespReply) {
        self.heard();
        if let Some(sent) = self.lateness.given_up.remove(&number) {
            self.lateness.last = Some(sent.elapsed());
        }
        if reply.as_ref().is_err_and(is_no_script) {
            self.known.get_or_insert_default();
        }
        if let Some(login) = self.login.take_if(|login| login.number == number) {
            let answer = reply.as_ref().map(|_| ()).map_err(|error| error.details().to_owned());
            let _ = login.answer.send(answer);
        }
    }

    /// Sends the calls that were held back, once none is in flight.
    fn finish_reload(&mut self) {
        if !self.in_flight.is_empty() || self.connection.is_none() {
            return;
        }
        let Some(reload) = self.reload.take() else { return };
        let now = Instant::now();
        for (number, batch) in reload.again {
            if Some(number) < reload.last_executed {
                // A script that was submitted later has been executed already, and the order must
                // not change.
                for pending_call in batch.into_pending_calls() {
                    self.refuse(
                        pending_call.op,
                        FailureKind::Busy,
                        "the server had lost its scripts; try again",
                    );
                }
            } else {
                self.send(batch, now);
            }
        }
        reload.held.into_iter().for_each(|batch| self.send(batch, now));
    }

    fn judge(&mut self, request: &CallRequest, reply: RespReply) -> Outcome<Value> {
        match reply {
            Ok(value) => {
                self.heard();
                Outcome::Done(in_shape(request.call(), value))
            }
            Err(error) => {
                self.note_error(&error);
                let outcome = classify(&error);
                self.with_provider(match request.call() {
                    Some(call) => name_permission(call, outcome),
                    None => outcome,
                })
            }
        }
    }

    /// With a credential provider a refused login is transient, because the provider may give
    /// another one.
    fn with_provider(&self, outcome: Outcome<Value>) -> Outcome<Value> {
        match outcome {
            Outcome::NotExecuted(failure)
                if self.asks_again && failure.kind == FailureKind::Auth =>
            {
                Outcome::NotExecuted(Failure { kind: FailureKind::Busy, ..failure })
            }
            outcome => outcome,
        }
    }

    /// Notes that a reply came.
    fn heard(&mut self) {
        self.served = true;
        self.silence = (!self.in_flight.is_empty()).then(Silence::begin);
    }

    fn note_error(&mut self, error: &WireError) {
        if error.kind() == ErrorKind::Timeout {
            self.note_timeout();
        } else if is_reply(error) {
            self.heard();
            if error.is_about_login() {
                self.replace_connection();
            }
        }
    }

    fn note_timeout(&mut self) {
        let silence = self.silence.get_or_insert_with(Silence::begin);
        silence.timeouts += 1;
        if silence.timeouts >= SILENT_TIMEOUTS && silence.since.elapsed() >= self.budgets.silence()
        {
            silence.dead_at.get_or_insert_with(|| Instant::now() + SECOND_LOOK);
        }
    }

    fn replace_silent_connection(&mut self, now: Instant) {
        let believed = |silence: &mut Silence| silence.dead_at.take_if(|at| *at <= now);
        if self.silence.as_mut().and_then(believed).is_some() {
            self.replace_connection();
        }
    }
}

/// The duration in whole milliseconds, for messages.
fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// The failure of one call of a refused batch. If the whole script was refused, another call may be
/// the cause, so the failure counts as transient.
fn refused_among(failure: Failure, whole: bool) -> Failure {
    let kind = if whole && !failure.kind.is_transient() { FailureKind::Busy } else { failure.kind };
    Failure { kind, ..failure }
}

/// Converts replies that the engine expects in another form.
pub(crate) fn in_shape(call: Option<&Call>, value: Value) -> Value {
    match call {
        Some(Call::Time) => Value::List(vec![Value::Int(micros(&value))]),
        Some(Call::Ping) => Value::List(Vec::new()),
        Some(Call::Info) => Value::List(vec![value]),
        Some(Call::Script(_)) | None => value,
    }
}

/// Converts a reply of TIME, which is seconds and microseconds, into microseconds.
fn micros(value: &Value) -> i64 {
    let Value::List(parts) = value else { return 0 };
    let number = |index: usize| match parts.get(index) {
        Some(Value::Int(number)) => *number,
        Some(Value::Text(text)) => text.parse().unwrap_or(0),
        Some(Value::Nil | Value::List(_)) | None => 0,
    };
    number(0).saturating_mul(1_000_000).saturating_add(number(1))
}
