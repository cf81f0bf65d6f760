//! The calls of one backend: sent in order on the connection of the moment, each answered exactly once.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::time::Duration;

use fred::clients::Client;
use fred::error::Error as FredError;
use fred::error::ErrorKind;
use fred::interfaces::ClientLike;
use fred::types::CustomCommand;
use fred::types::Value as FredValue;
use futures::FutureExt;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
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
use crate::backend::redis::client::once_within;
use crate::backend::redis::denied::name_permission;
use crate::backend::redis::packed::packed;
use crate::backend::redis::whereabouts::Mandate;
use crate::map::Hasher;
use crate::map::Map;

/// So many timeouts in a row, over at least this time without any reply, and the connection is replaced: a
/// frozen server or a network that swallows everything does not close it.
const SILENT_TIMEOUTS: u32 = 2;
const SILENCE: Duration = Duration::from_secs(1);
const DEPOSED: &str = "answered by a server that is no longer the primary";

/// A connection that may be used.
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// Whether fred's task for it still runs.
    pub(crate) router: AbortHandle,
    /// Ends it.
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

/// A call that has been submitted and not yet answered.
struct Ticket {
    op: OpId,
    request: Request,
    deadline: Instant,
}

type Finished = (u64, Result<FredValue, FredError>);
type Running = Pin<Box<dyn Future<Output = Finished> + Send>>;

struct AllRunning(FuturesUnordered<Running>);

impl Default for AllRunning {
    /// With one that never ends: having polled every future it has, `FuturesUnordered` wakes its own task, which
    /// with a single call would be after each sending.
    fn default() -> Self {
        let never: Running = Box::pin(pending());
        Self(std::iter::once(never).collect())
    }
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

#[derive(Default)]
pub(crate) struct Calls {
    connection: Option<Connection>,
    /// That of the connection whose answers are awaited.
    mandate: Mandate,
    /// Every ticket in flight has its future here.
    running: AllRunning,
    in_flight: BTreeMap<u64, Ticket>,
    last_number: u64,
    answers: VecDeque<(OpId, Outcome<Value>)>,
    reload: Option<Reload>,
    known: HashSet<&'static str, Hasher>,
    digests: Map<&'static str, String>,
    silence: Option<Silence>,
}

/// Since when calls are in flight and nothing has come back.
struct Silence {
    since: Instant,
    timeouts: u32,
}

impl Silence {
    fn begin() -> Self {
        Self { since: Instant::now(), timeouts: 0 }
    }
}

impl Calls {
    /// Uses this connection from now on.
    pub(crate) fn connected(&mut self, connection: Connection) {
        self.known = connection.loaded.iter().copied().collect();
        self.silence = None;
        self.mandate = connection.mandate.clone();
        self.connection = Some(connection);
    }

    /// Answers whatever is left: its connection is gone, with fred's task, so nothing can be sent any more.
    pub(crate) fn disconnected(&mut self, cause: &str) {
        self.connection = None;
        while let Some(Some((number, result))) = self.running.0.next().now_or_never() {
            self.settle(number, result);
        }
        self.running = AllRunning::default();
        for ticket in std::mem::take(&mut self.in_flight).into_values() {
            self.answers.push_back((ticket.op, Outcome::Unknown(Failure::new(FailureKind::Link, cause))));
        }
        let reload = self.reload.take().unwrap_or_default();
        for ticket in reload.again.into_values().chain(reload.held) {
            self.refuse(ticket.op, FailureKind::Link, cause);
        }
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
        let usable = self.connection.as_ref().is_some_and(|connection| !connection.router.is_finished());
        if !usable || self.mandate.is_over() {
            return self.refuse(op, FailureKind::Link, "not connected");
        }
        let now = Instant::now();
        // A day is for ever here, and no overflow.
        let deadline = now + timeout.min(Duration::from_secs(86_400));
        let ticket = Ticket { op, request, deadline };
        match &mut self.reload {
            Some(reload) => reload.held.push_back(ticket),
            None => self.send(ticket, now),
        }
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
            match self.running.0.poll_next_unpin(cx) {
                Poll::Ready(Some((number, result))) => self.settle(number, result),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn send(&mut self, ticket: Ticket, now: Instant) {
        let left = ticket.deadline.saturating_duration_since(now);
        if left.is_zero() {
            return self.refuse(ticket.op, FailureKind::Link, "timed out before it was sent");
        }
        let (command, args) = self.command(&ticket.request);
        let asking = matches!(ticket.request, Request::Asking(_));
        let Some(connection) = &self.connection else {
            return self.refuse(ticket.op, FailureKind::Link, "not connected");
        };
        let plain = connection.client.clone();
        let client = plain.with_options(&once_within(left));
        self.last_number += 1;
        let number = self.last_number;
        let mut future: Running = if asking {
            Box::pin(async move {
                // In one write, so that no other command comes between the two and uses the ASKING up.
                let answer = tokio::time::timeout(left, ask(&plain, command, args)).await;
                let late = || FredError::new(ErrorKind::Timeout, "Request timed out.");
                (number, answer.unwrap_or_else(|_| Err(late())))
            })
        } else {
            Box::pin(async move {
                (number, client.custom(CustomCommand::new_static(command, None, false), args).await)
            })
        };
        self.in_flight.insert(number, ticket);
        self.silence.get_or_insert_with(Silence::begin);
        // fred sends a command when its future is first polled: here, so that the order is that of the calls.
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready((number, result)) => self.settle(number, result),
            Poll::Pending => self.running.0.push(future),
        }
    }

    fn command(&mut self, request: &Request) -> (&'static str, Vec<FredValue>) {
        let call = match request {
            Request::Slots => return ("CLUSTER", vec!["SLOTS".into()]),
            Request::Call(Call::Time) | Request::Asking(Call::Time) => return ("TIME", Vec::new()),
            Request::Call(Call::Ping) | Request::Asking(Call::Ping) => return ("PING", Vec::new()),
            Request::Call(Call::Info) | Request::Asking(Call::Info) => return ("INFO", Vec::new()),
            Request::Call(Call::Script(call)) | Request::Asking(Call::Script(call)) => call,
        };
        let script: &'static Script = call.script;
        // Known from here on: the server reads this one before the next.
        let (command, text) = if self.known.insert(script.name) {
            ("EVAL", script.source)
        } else {
            let digest =
                self.digests.entry(script.name).or_insert_with(|| fred::util::sha1_hash(script.source));
            ("EVALSHA", digest.as_str())
        };
        let args = packed(|add| {
            add(text);
            add(&call.keys.len().to_string());
            call.keys.iter().chain(&call.args).for_each(|text| add(text));
        });
        (command, args)
    }

    fn settle(&mut self, number: u64, result: Result<FredValue, FredError>) {
        let Some(ticket) = self.in_flight.remove(&number) else { return };
        match result {
            Err(error) if is_no_script(&error) => {
                self.known.clear();
                self.heard();
                self.reload.get_or_insert_default().again.insert(number, ticket);
            }
            result => {
                let outcome = self.judge(&ticket.request, result);
                if let (Some(reload), false) = (&mut self.reload, matches!(outcome, Outcome::NotExecuted(_)))
                {
                    reload.last_executed = reload.last_executed.max(Some(number));
                }
                self.answers.push_back((ticket.op, outcome));
            }
        }
        if self.in_flight.is_empty() && self.connection.is_some() {
            self.finish_reload();
        }
    }

    fn finish_reload(&mut self) {
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

    fn judge(&mut self, request: &Request, result: Result<FredValue, FredError>) -> Outcome<Value> {
        match result {
            Ok(value) => {
                self.heard();
                if self.mandate.is_over() {
                    // It has no say any more about who holds what.
                    return Outcome::Unknown(Failure::new(FailureKind::Link, DEPOSED));
                }
                Outcome::Done(reply(request, value))
            }
            Err(error) => {
                self.note_error(&error);
                let outcome = match request {
                    Request::Call(call) | Request::Asking(call) => name_permission(call, classify(&error)),
                    Request::Slots => classify(&error),
                };
                self.with_provider(outcome)
            }
        }
    }

    /// A refused login is not the last word of a provider.
    fn with_provider(&self, outcome: Outcome<Value>) -> Outcome<Value> {
        let asks_again = self.connection.as_ref().is_some_and(|connection| connection.asks_again);
        match outcome {
            Outcome::NotExecuted(failure) if asks_again && failure.kind == FailureKind::Auth => {
                Outcome::NotExecuted(Failure { kind: FailureKind::Busy, ..failure })
            }
            outcome => outcome,
        }
    }

    /// The server has answered something.
    fn heard(&mut self) {
        self.silence = (!self.in_flight.is_empty()).then(Silence::begin);
    }

    fn note_error(&mut self, error: &FredError) {
        if *error.kind() == ErrorKind::Timeout {
            let silence = self.silence.get_or_insert_with(Silence::begin);
            silence.timeouts += 1;
            if silence.timeouts >= SILENT_TIMEOUTS && silence.since.elapsed() >= SILENCE {
                self.replace_connection();
            }
        } else if is_reply(error) {
            self.heard();
            if *error.kind() == ErrorKind::Auth {
                self.replace_connection();
            }
        }
    }
}

async fn ask(client: &Client, command: &'static str, args: Vec<FredValue>) -> Result<FredValue, FredError> {
    let pipeline = client.pipeline();
    let custom = |name| CustomCommand::new_static(name, None, false);
    let _: FredValue = pipeline.custom(custom("ASKING"), Vec::<FredValue>::new()).await?;
    let _: FredValue = pipeline.custom(custom(command), args).await?;
    pipeline.last().await
}

fn reply(request: &Request, value: FredValue) -> Value {
    match request {
        Request::Call(Call::Time) | Request::Asking(Call::Time) => {
            Value::List(vec![Value::Int(micros(&value))])
        }
        Request::Call(Call::Ping) | Request::Asking(Call::Ping) => Value::List(Vec::new()),
        Request::Call(Call::Info) | Request::Asking(Call::Info) => {
            Value::List(vec![Value::Text(value.into_string().unwrap_or_default())])
        }
        Request::Call(Call::Script(_)) | Request::Asking(Call::Script(_)) | Request::Slots => convert(value),
    }
}

/// TIME answers seconds and microseconds.
fn micros(value: &FredValue) -> i64 {
    let FredValue::Array(parts) = value else { return 0 };
    let number = |index: usize| parts.get(index).and_then(FredValue::as_i64).unwrap_or(0);
    number(0).saturating_mul(1_000_000).saturating_add(number(1))
}

pub(crate) fn convert(value: FredValue) -> Value {
    match value {
        FredValue::Null => Value::Nil,
        FredValue::Integer(number) => Value::Int(number),
        FredValue::Boolean(yes) => Value::Int(i64::from(yes)),
        FredValue::Bytes(bytes) => Value::Text(String::from_utf8_lossy(&bytes).into_owned()),
        FredValue::Array(items) => Value::List(items.into_iter().map(convert).collect()),
        other => Value::Text(other.as_string().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::woken::Woken;

    #[test]
    fn a_call_in_flight_wakes_nobody_before_its_answer() {
        let (mut running, woken) = (AllRunning::default(), Arc::<Woken>::default());
        let poll = |running: &mut AllRunning| {
            running.0.poll_next_unpin(&mut Context::from_waker(&Arc::clone(&woken).into())).is_pending()
        };
        // The one that never ends is polled once, too.
        assert!(poll(&mut running));
        let before = woken.times();
        running.0.push(Box::pin(pending()));
        assert!(poll(&mut running));
        assert_eq!(woken.times(), before);
    }
}
