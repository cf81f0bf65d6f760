//! The calls of one backend: sent in order on the connection of the moment, each answered exactly once.

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

use fred::error::Error as FredError;
use fred::error::ErrorKind;
use tokio::sync::Notify;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::Script;
use crate::backend::Value;
use crate::backend::redis::classify::classify;
use crate::backend::redis::classify::is_no_script;
use crate::backend::redis::classify::is_reply;
use crate::backend::redis::denied::name_permission;
use crate::backend::redis::dial::COMMAND_TIMEOUT;
use crate::backend::redis::dial::LATE;
use crate::backend::redis::dial::auth;
use crate::backend::redis::link::Broken;
use crate::backend::redis::resp::Reply;
use crate::backend::redis::timer::SECOND_LOOK;
use crate::backend::redis::timer::Timer;
use crate::backend::redis::whereabouts::Mandate;
use crate::backend::redis::wire::WAITING;
use crate::backend::redis::wire::Wire;
use crate::credentials::Credentials;
use crate::map::Hasher;
use crate::map::Map;

/// So many timeouts in a row, over at least this time without any reply, and the connection is replaced: a
/// frozen server or a network that swallows everything does not close it.
const SILENT_TIMEOUTS: u32 = 2;
const SILENCE: Duration = Duration::from_secs(1);
const DEPOSED: &str = "the server is no longer the primary";
const UNWRITTEN: &str = "timed out before it was sent";
/// For ever, and no overflow.
const LONGEST: Duration = Duration::from_secs(86_400);

/// A connection that may be used.
pub(crate) struct Connection {
    pub(crate) wire: Wire,
    /// Hears how it ended.
    pub(crate) ended: oneshot::Sender<Broken>,
    /// Makes it end.
    pub(crate) end: Arc<Notify>,
    /// Scripts that the server knows.
    pub(crate) loaded: Vec<&'static str>,
    /// Whether the server is still the primary.
    pub(crate) mandate: Mandate,
    /// Whether another login may be had where this one is refused.
    pub(crate) asks_again: bool,
}

/// What is to be sent.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Call(Call),
    /// With an ASKING before it: on a node that is taking over the slot.
    Asking(Call),
    /// CLUSTER SLOTS; answered as it is.
    Slots,
}

impl Request {
    fn call(&self) -> Option<&Call> {
        match self {
            Self::Call(call) | Self::Asking(call) => Some(call),
            Self::Slots => None,
        }
    }

    /// Whether its place among the others matters.
    fn is_script(&self) -> bool {
        matches!(self.call(), Some(Call::Script(_)))
    }
}

/// A call that has been submitted and not yet answered.
struct Ticket {
    op: OpId,
    request: Request,
    deadline: Instant,
    /// Sent with the script's text.
    whole: bool,
}

/// The server lost its scripts. New calls are held back until those in flight are answered, so that what has to
/// be sent again still goes before what was submitted after it.
#[derive(Default)]
struct Reload {
    again: BTreeMap<u64, Ticket>,
    held: VecDeque<Ticket>,
    /// The last one, in order of submission, that may have been executed.
    last_executed: Option<u64>,
}

impl Reload {
    /// What was not sent in time.
    fn take_late(&mut self, now: Instant) -> Vec<Ticket> {
        let (late, again): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.again).into_iter().partition(|(_, ticket)| ticket.deadline <= now);
        let (late_too, held): (Vec<_>, _) = self.held.drain(..).partition(|ticket| ticket.deadline <= now);
        (self.again, self.held) = (again, held.into());
        late.into_values().chain(late_too).collect()
    }
}

pub(crate) struct Calls {
    connection: Option<Connection>,
    /// These three are of the connection whose answers are awaited.
    mandate: Mandate,
    asks_again: bool,
    served: bool,
    /// Every ticket that was given to a connection, by its number.
    in_flight: BTreeMap<u64, Ticket>,
    last_number: u64,
    /// The last script of this connection that timed out and may have been executed, or yet be.
    last_given_up: Option<u64>,
    answers: VecDeque<(OpId, Outcome<Value>)>,
    reload: Option<Reload>,
    known: HashSet<&'static str, Hasher>,
    digests: Map<&'static str, String>,
    silence: Option<Silence>,
    timer: Timer,
    login: Option<NewLogin>,
}

/// Since when calls are in flight and nothing has come back.
struct Silence {
    since: Instant,
    timeouts: u32,
    /// When it is believed, if nothing is heard before.
    believed_at: Option<Instant>,
}

impl Silence {
    fn begin() -> Self {
        Self { since: Instant::now(), timeouts: 0, believed_at: None }
    }
}

/// An AUTH on its way.
struct NewLogin {
    number: u64,
    deadline: Instant,
    answer: oneshot::Sender<Result<(), String>>,
}

impl Calls {
    /// Must be called within the runtime that owns the connections.
    pub(crate) fn new() -> Self {
        Self {
            connection: None,
            mandate: Mandate::default(),
            asks_again: false,
            served: false,
            in_flight: BTreeMap::new(),
            last_number: 0,
            last_given_up: None,
            answers: VecDeque::new(),
            reload: None,
            known: HashSet::default(),
            digests: Map::default(),
            silence: None,
            timer: Timer::new(),
            login: None,
        }
    }

    /// Uses this connection from now on.
    pub(crate) fn connected(&mut self, connection: Connection) {
        self.known = connection.loaded.iter().copied().collect();
        self.silence = None;
        self.last_given_up = None;
        self.mandate = connection.mandate.clone();
        self.asks_again = connection.asks_again;
        self.served = false;
        self.connection = Some(connection);
    }

    /// Answers whatever is left, and closes the connection if it is still there.
    pub(crate) fn disconnected(&mut self, cause: &str) {
        if let Some(connection) = self.connection.take() {
            let Connection { mut wire, ended, .. } = connection;
            let unsent = wire.stop_writing();
            // What a deposed primary has said is not read, however long it has lain there.
            while !self.mandate.is_over() {
                let reply = wire.poll_reply(&mut Context::from_waker(Waker::noop()));
                let Poll::Ready(Ok((number, reply))) = reply else { break };
                self.settle(number, reply);
            }
            for number in unsent {
                if let Some(ticket) = self.in_flight.remove(&number) {
                    self.refuse(ticket.op, FailureKind::Link, cause);
                }
            }
            let _ = ended.send(Broken { cause: cause.to_owned(), served: self.served });
        }
        for ticket in std::mem::take(&mut self.in_flight).into_values() {
            self.answers.push_back((ticket.op, Outcome::Unknown(Failure::new(FailureKind::Link, cause))));
        }
        let reload = self.reload.take().unwrap_or_default();
        for ticket in reload.again.into_values().chain(reload.held) {
            self.refuse(ticket.op, FailureKind::Link, cause);
        }
        self.login = None;
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether nothing is left to answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.answers.is_empty() && self.reload.is_none()
    }

    /// Ends the connection, so that a new one is made.
    pub(crate) fn replace_connection(&self) {
        if let Some(connection) = &self.connection {
            connection.end.notify_one();
        }
    }

    pub(crate) fn submit(&mut self, op: OpId, request: Request, timeout: Duration) {
        match &self.connection {
            Some(connection) if !connection.wire.is_broken() && !self.mandate.is_over() => {
                let held = self.reload.as_ref().map_or(0, |reload| reload.held.len());
                if connection.wire.is_full() || held >= WAITING {
                    return self.refuse(op, FailureKind::Busy, "too many commands wait to be written");
                }
            }
            _ => return self.refuse(op, FailureKind::Link, "not connected"),
        }
        let now = Instant::now();
        let ticket = Ticket { op, request, deadline: now + timeout.min(LONGEST), whole: false };
        match &mut self.reload {
            Some(reload) => {
                self.timer.not_after(ticket.deadline);
                reload.held.push_back(ticket);
            }
            None => self.send(ticket, now),
        }
    }

    /// Logs in again, in its turn among the calls.
    pub(crate) fn log_in(&mut self, credentials: &Credentials, answer: oneshot::Sender<Result<(), String>>) {
        let Some(connection) = &mut self.connection else { return };
        self.last_number += 1;
        let (number, deadline) = (self.last_number, Instant::now() + COMMAND_TIMEOUT);
        let command = auth(credentials.user.as_deref(), &credentials.password);
        connection.wire.send(number, false, command.into_iter());
        self.timer.not_after(deadline);
        self.login = Some(NewLogin { number, deadline, answer });
    }

    /// Answers without sending.
    pub(crate) fn refuse(&mut self, op: OpId, kind: FailureKind, why: &str) {
        self.answers.push_back((op, Outcome::NotExecuted(Failure::new(kind, why))));
    }

    pub(crate) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<(OpId, Outcome<Value>)> {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return Poll::Ready(answer);
            }
            // The timer first: a connection that always has something to say must not keep calls from their time.
            if self.poll_timer(cx).is_pending() && self.poll_wire(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn poll_wire(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else { return Poll::Pending };
        if self.mandate.is_over() {
            // It has no say any more about who holds what: whatever it answers now is not read.
            self.disconnected(DEPOSED);
            return Poll::Ready(());
        }
        match ready!(connection.wire.poll_reply(cx)) {
            Ok((number, reply)) => self.settle(number, reply),
            Err(error) => self.disconnected(error.details()),
        }
        Poll::Ready(())
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.timer.poll(cx));
        let now = Instant::now();
        self.believe_silence(now);
        self.give_up(now);
        let reload = self.reload.iter().flat_map(|reload| reload.again.values().chain(&reload.held));
        let tickets = self.in_flight.values().chain(reload).map(|ticket| ticket.deadline);
        let silence = self.silence.as_ref().and_then(|silence| silence.believed_at);
        let next = tickets.chain(self.login.as_ref().map(|login| login.deadline)).chain(silence).min();
        if let Some(next) = next {
            self.timer.not_after(next);
        }
        Poll::Ready(())
    }

    /// What was not answered in time. Its reply may still come; what is not yet begun never is.
    fn give_up(&mut self, now: Instant) {
        let late: Vec<u64> = self
            .in_flight
            .iter()
            .filter(|(_, ticket)| ticket.deadline <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            let withdrawn =
                self.connection.as_mut().is_some_and(|connection| connection.wire.withdraw(number));
            if withdrawn {
                self.note_timeout();
                let ticket = self.in_flight.remove(&number);
                ticket.into_iter().for_each(|ticket| self.refuse(ticket.op, FailureKind::Link, UNWRITTEN));
            } else {
                let ordered = self.in_flight.get(&number).is_some_and(|ticket| ticket.request.is_script());
                self.last_given_up = self.last_given_up.max(ordered.then_some(number));
                self.settle(number, Err(FredError::new(ErrorKind::Timeout, LATE)));
            }
        }
        if let Some(login) = self.login.take_if(|login| login.deadline <= now) {
            let _ = login.answer.send(Err(LATE.to_owned()));
        }
        for ticket in self.reload.iter_mut().flat_map(|reload| reload.take_late(now)).collect::<Vec<_>>() {
            self.refuse(ticket.op, FailureKind::Link, UNWRITTEN);
        }
        self.finish_reload();
    }

    fn send(&mut self, mut ticket: Ticket, now: Instant) {
        if ticket.deadline <= now {
            return self.refuse(ticket.op, FailureKind::Link, UNWRITTEN);
        }
        if self.mandate.is_over() {
            return self.refuse(ticket.op, FailureKind::Link, DEPOSED);
        }
        let Some(connection) = &mut self.connection else {
            return self.refuse(ticket.op, FailureKind::Link, "not connected");
        };
        let wire = &mut connection.wire;
        self.last_number += 1;
        let number = self.last_number;
        let asking = matches!(ticket.request, Request::Asking(_));
        match ticket.request.call() {
            None => wire.send(number, asking, ["CLUSTER", "SLOTS"].into_iter()),
            Some(Call::Time) => wire.send(number, asking, ["TIME"].into_iter()),
            Some(Call::Ping) => wire.send(number, asking, ["PING"].into_iter()),
            Some(Call::Info) => wire.send(number, asking, ["INFO"].into_iter()),
            Some(Call::Script(call)) => {
                let script: &'static Script = call.script;
                // Known from here on: the server reads this one before the next. If it does not, it says NOSCRIPT.
                ticket.whole = self.known.insert(script.name);
                let head = if ticket.whole {
                    ["EVAL", script.source]
                } else {
                    let digest = self.digests.entry(script.name);
                    ["EVALSHA", digest.or_insert_with(|| fred::util::sha1_hash(script.source)).as_str()]
                };
                let mut digits = itoa::Buffer::new();
                let keys = digits.format(call.keys.len());
                let texts = call.keys.iter().chain(&call.args).map(String::as_str);
                wire.send(number, asking, head.into_iter().chain([keys]).chain(texts));
            }
        }
        self.timer.not_after(ticket.deadline);
        self.in_flight.insert(number, ticket);
        self.silence.get_or_insert_with(Silence::begin);
    }

    fn settle(&mut self, number: u64, reply: Reply) {
        let Some(ticket) = self.in_flight.remove(&number) else { return self.settle_other(number, &reply) };
        match reply {
            Err(error) if is_no_script(&error) && !ticket.whole => {
                self.known.clear();
                self.heard();
                let last_executed = self.last_given_up;
                let reload = self.reload.get_or_insert_with(|| Reload { last_executed, ..Reload::default() });
                reload.again.insert(number, ticket);
            }
            result => {
                let outcome = self.judge(&ticket.request, result);
                let counts = ticket.request.is_script() && !matches!(outcome, Outcome::NotExecuted(_));
                if let (Some(reload), true) = (&mut self.reload, counts) {
                    reload.last_executed = reload.last_executed.max(Some(number));
                }
                self.answers.push_back((ticket.op, outcome));
            }
        }
        self.finish_reload();
    }

    /// The reply to a new login, or to a call that was given up.
    fn settle_other(&mut self, number: u64, reply: &Reply) {
        self.heard();
        if let Some(login) = self.login.take_if(|login| login.number == number) {
            let answer = reply.as_ref().map(|_| ()).map_err(|error| error.details().to_owned());
            let _ = login.answer.send(answer);
        }
    }

    /// Sends what was held back, once nothing is in flight any more.
    fn finish_reload(&mut self) {
        if !self.in_flight.is_empty() || self.connection.is_none() {
            return;
        }
        let Some(reload) = self.reload.take() else { return };
        let now = Instant::now();
        for (number, ticket) in reload.again {
            if Some(number) < reload.last_executed {
                // One submitted after it has been executed already, and it must not come second.
                self.refuse(ticket.op, FailureKind::Busy, "the server had lost its scripts; try again");
            } else {
                self.send(ticket, now);
            }
        }
        for ticket in reload.held {
            self.send(ticket, now);
        }
    }

    fn judge(&mut self, request: &Request, reply: Reply) -> Outcome<Value> {
        match reply {
            Ok(value) => {
                self.heard();
                Outcome::Done(in_shape(request, value))
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

    /// A refused login is not the last word of a provider.
    fn with_provider(&self, outcome: Outcome<Value>) -> Outcome<Value> {
        match outcome {
            Outcome::NotExecuted(failure) if self.asks_again && failure.kind == FailureKind::Auth => {
                Outcome::NotExecuted(Failure { kind: FailureKind::Busy, ..failure })
            }
            outcome => outcome,
        }
    }

    /// The server has answered something.
    fn heard(&mut self) {
        self.served = true;
        self.silence = (!self.in_flight.is_empty()).then(Silence::begin);
    }

    fn note_error(&mut self, error: &FredError) {
        if *error.kind() == ErrorKind::Timeout {
            self.note_timeout();
        } else if is_reply(error) {
            self.heard();
            if *error.kind() == ErrorKind::Auth {
                self.replace_connection();
            }
        }
    }

    fn note_timeout(&mut self) {
        let silence = self.silence.get_or_insert_with(Silence::begin);
        silence.timeouts += 1;
        if silence.timeouts >= SILENT_TIMEOUTS && silence.since.elapsed() >= SILENCE {
            silence.believed_at.get_or_insert_with(|| Instant::now() + SECOND_LOOK);
        }
    }

    fn believe_silence(&mut self, now: Instant) {
        let believed = |silence: &mut Silence| silence.believed_at.take_if(|at| *at <= now);
        if self.silence.as_mut().and_then(believed).is_some() {
            self.replace_connection();
        }
    }
}

/// What the engine expects where that is not what the server says.
fn in_shape(request: &Request, value: Value) -> Value {
    match request.call() {
        Some(Call::Time) => Value::List(vec![Value::Int(micros(&value))]),
        Some(Call::Ping) => Value::List(Vec::new()),
        Some(Call::Info) => Value::List(vec![value]),
        Some(Call::Script(_)) | None => value,
    }
}

/// TIME answers seconds and microseconds.
fn micros(value: &Value) -> i64 {
    let Value::List(parts) = value else { return 0 };
    let number = |index: usize| match parts.get(index) {
        Some(Value::Int(number)) => *number,
        Some(Value::Text(text)) => text.parse().unwrap_or(0),
        Some(Value::Nil | Value::List(_)) | None => 0,
    };
    number(0).saturating_mul(1_000_000).saturating_add(number(1))
}
