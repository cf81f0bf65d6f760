//! The calls of one backend: sent in order on the connection of the moment, each answered exactly once.

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
}

impl Silence {
    fn begin() -> Self {
        Self { since: Instant::now(), timeouts: 0 }
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

    /// Logs in anew, in its turn among the calls.
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
        self.give_up(Instant::now());
        let reload = self.reload.iter().flat_map(|reload| reload.again.values().chain(&reload.held));
        let tickets = self.in_flight.values().chain(reload).map(|ticket| ticket.deadline);
        let next = tickets.chain(self.login.as_ref().map(|login| login.deadline)).min();
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

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::poll_fn;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering;

    use futures::FutureExt;
    use tokio::io::AsyncReadExt;
    use tokio::io::AsyncWriteExt;
    use tokio::io::DuplexStream;

    use crate::backend::redis::tests::driver::ECHO;
    use crate::backend::redis::tests::driver::connection;
    use crate::backend::redis::tests::driver::script;
    use crate::backend::woken::Woken;

    /// With a connection of so much room in each direction to a server that has the script, and the server's end of it.
    fn connected(room: usize) -> (Calls, DuplexStream) {
        let (mut connection, server) = connection(room);
        connection.loaded.push(ECHO.name);
        let mut calls = Calls::new();
        calls.connected(connection);
        (calls, server)
    }

    fn echo(text: &str) -> Request {
        Request::Call(script(&ECHO, &[], &[text]))
    }

    async fn answer(calls: &mut Calls) -> (u64, Outcome<Value>) {
        let (op, outcome) = poll_fn(|cx| calls.poll_answer(cx)).await;
        (op.0, outcome)
    }

    /// What stands between may know EVALSHA only.
    #[tokio::test]
    async fn a_script_that_is_not_known_though_its_text_was_sent_is_refused() {
        let (mut calls, mut server) = connected(1_000);
        calls.submit(OpId(1), echo("1"), Duration::from_secs(60));
        for read in ["EVALSHA", "EVAL\r\n"] {
            assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
            let mut request = Vec::new();
            server.read_buf(&mut request).await.expect("a request");
            assert!(String::from_utf8_lossy(&request).contains(read), "{read}");
            server.write_all(b"-NOSCRIPT No matching script.\r\n").await.expect("room");
        }
        let (_, outcome) = answer(&mut calls).await;
        assert!(
            matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Busy),
            "{outcome:?}"
        );
    }

    /// The last of those in flight is not begun when it times out.
    #[tokio::test(start_paused = true)]
    async fn calls_held_back_for_lost_scripts_are_sent_whatever_becomes_of_those_before() {
        let (mut calls, mut server) = connected(1_000);
        let seconds = |number| Duration::from_secs(number);
        calls.submit(OpId(1), echo("1"), seconds(60));
        calls.submit(OpId(2), echo(&"x".repeat(200_000)), seconds(1));
        calls.submit(OpId(3), echo("3"), seconds(2));
        assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
        server.write_all(b"-NOSCRIPT No matching script.\r\n").await.expect("room");
        assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
        calls.submit(OpId(4), echo("4"), seconds(60));
        calls.submit(OpId(5), echo("5"), seconds(1));
        let mut refused = Vec::new();
        for _ in 0..4 {
            let (op, outcome) = answer(&mut calls).await;
            refused.push((op, matches!(outcome, Outcome::NotExecuted(_))));
        }
        refused.sort_unstable();
        // The first must not come after the second, which may have been executed.
        assert_eq!(refused, [(1, true), (2, false), (3, true), (5, true)]);
        let serve = async {
            let mut read = Vec::new();
            while !read.ends_with(b"$1\r\n4\r\n") {
                server.read_buf(&mut read).await.expect("a part");
            }
            server.write_all(b":2\r\n$1\r\n4\r\n").await.expect("room");
        };
        let ((), answered) = tokio::join!(serve, answer(&mut calls));
        assert_eq!(answered, (4, Outcome::Done(Value::Text("4".to_owned()))));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_again_behind_a_script_that_was_given_up() {
        let (mut calls, mut server) = connected(1_000);
        calls.submit(OpId(1), echo("1"), Duration::from_secs(9));
        calls.submit(OpId(2), echo("2"), Duration::from_secs(1));
        assert!(matches!(answer(&mut calls).await, (2, Outcome::Unknown(_))));
        server.write_all(b"-NOSCRIPT No matching script.\r\n").await.expect("room");
        let (op, outcome) = answer(&mut calls).await;
        let busy = matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Busy);
        assert!(op == 1 && busy, "{outcome:?}");
    }

    /// Much is answered at once, all the time.
    #[tokio::test(start_paused = true)]
    async fn a_call_has_its_time_however_busy_the_connection_is() {
        let (mut calls, mut server) = connected(100_000);
        calls.submit(OpId(1), echo(&"x".repeat(200_000)), Duration::from_secs(600));
        calls.submit(OpId(2), echo("late"), Duration::from_secs(1));
        assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
        tokio::time::advance(Duration::from_secs(2)).await;
        server.write_all(b":1\r\n").await.expect("room");
        let (op, outcome) = answer(&mut calls).await;
        assert!(op == 2 && matches!(outcome, Outcome::NotExecuted(_)), "{outcome:?}");
        assert_eq!(answer(&mut calls).await, (1, Outcome::Done(Value::Int(1))));
    }

    #[tokio::test]
    async fn nothing_is_written_to_a_server_once_it_is_deposed() {
        let (mut calls, mut server) = connected(1_000);
        let changes = Arc::new(AtomicU64::new(1));
        calls.mandate = Mandate::now(&changes);
        calls.submit(OpId(1), echo("1"), Duration::from_secs(9));
        changes.fetch_add(1, Ordering::Release);
        assert!(matches!(answer(&mut calls).await, (1, Outcome::Unknown(_))));
        calls.submit(OpId(2), echo("2"), Duration::from_secs(9));
        assert!(matches!(answer(&mut calls).await, (2, Outcome::NotExecuted(_))));
        let mut read = Vec::new();
        server.read_to_end(&mut read).await.expect("the end");
        assert!(read.is_empty(), "{read:?}");
    }

    /// Whether the connection was told to end, so that a new one is made.
    fn is_replaced(end: &Notify) -> bool {
        end.notified().now_or_never().is_some()
    }

    /// Submits a call that times out.
    async fn in_vain(calls: &mut Calls, op: u64) {
        calls.submit(OpId(op), echo("x"), SILENCE);
        assert!(matches!(answer(calls).await, (other, Outcome::Unknown(_)) if other == op));
    }

    #[tokio::test(start_paused = true)]
    async fn the_silence_of_one_connection_is_not_held_against_the_next() {
        let (mut calls, _first) = connected(1_000);
        in_vain(&mut calls, 1).await;
        calls.disconnected("cut");
        let (next, _second) = connection(1_000);
        let end = Arc::clone(&next.end);
        calls.connected(next);
        in_vain(&mut calls, 2).await;
        assert!(!is_replaced(&end));
        in_vain(&mut calls, 3).await;
        assert!(is_replaced(&end));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_replies_are_late_is_not_silent() {
        let (connection, mut server) = connection(1_000);
        let end = Arc::clone(&connection.end);
        let mut calls = Calls::new();
        calls.connected(connection);
        for op in 1..6 {
            in_vain(&mut calls, op).await;
            server.write_all(b"$1\r\nx\r\n").await.expect("room");
            assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(!is_replaced(&end), "after {op}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_without_an_answer_ends_in_time() {
        let (mut calls, _server) = connected(1_000);
        calls.submit(OpId(1), echo("x"), SILENCE);
        let (told, login) = oneshot::channel();
        calls.log_in(&Credentials::new("", "secret"), told);
        // The timer rings for the call first.
        assert!(matches!(answer(&mut calls).await, (1, Outcome::Unknown(_))));
        let ended = tokio::time::timeout(2 * COMMAND_TIMEOUT, async {
            tokio::select! {
                result = login => result,
                early = answer(&mut calls) => panic!("{early:?}"),
            }
        });
        assert_eq!(ended.await.expect("in time").expect("told"), Err(LATE.to_owned()));
    }

    #[tokio::test]
    async fn every_call_is_answered_when_a_connection_breaks_that_has_lost_its_scripts() {
        let (mut calls, mut server) = connected(1_000);
        for op in 1..3 {
            calls.submit(OpId(op), echo("x"), Duration::from_secs(9));
        }
        server.write_all(b"-NOSCRIPT No matching script.\r\n").await.expect("room");
        assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
        calls.submit(OpId(3), echo("x"), Duration::from_secs(9));
        calls.disconnected("cut");
        let mut answers = Vec::new();
        while let Poll::Ready((op, outcome)) = calls.poll_answer(&mut Context::from_waker(Waker::noop())) {
            answers.push((op.0, matches!(outcome, Outcome::NotExecuted(_))));
        }
        answers.sort_unstable();
        assert_eq!(answers, [(1, true), (2, false), (3, true)]);
        assert!(calls.is_idle());
    }

    #[tokio::test]
    async fn a_call_in_flight_wakes_nobody_before_its_answer() {
        let (mut calls, _server) = connected(1_000);
        let woken = Arc::<Woken>::default();
        for number in 1..4 {
            calls.submit(OpId(number), Request::Call(Call::Ping), Duration::from_secs(9));
            let waker = Arc::clone(&woken).into();
            assert!(calls.poll_answer(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(woken.times(), 0);
        }
    }

    #[tokio::test]
    async fn an_answer_that_already_lies_there_does_not_count_either() {
        let (mut calls, mut server) = connected(1_000);
        let changes = Arc::new(AtomicU64::new(1));
        calls.mandate = Mandate::now(&changes);
        calls.submit(OpId(1), echo("1"), Duration::from_secs(9));
        assert!(calls.poll_answer(&mut Context::from_waker(Waker::noop())).is_pending());
        server.write_all(b"$7\r\ngranted\r\n").await.expect("room");
        changes.fetch_add(1, Ordering::Release);
        let told = answer(&mut calls).await;
        assert!(matches!(told, (1, Outcome::Unknown(_))), "{told:?}");
    }
}
