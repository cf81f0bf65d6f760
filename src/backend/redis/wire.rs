//! One connection: commands are sent in as few writes as possible, and replies come in the order of
//! the commands. It is polled where it is used, and dropping it closes it.
//!
//! The connections of fred and redis-rs are not used, because both pass each command between tasks,
//! and fred writes each EVALSHA by itself: see docs/performance.md.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::io::Read;
use std::pin::Pin;
use std::pin::pin;
use std::task::Context;
use std::task::Poll;
use std::task::ready;

use socket2::SockRef;
use tokio::io::AsyncRead;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use crate::backend::Value;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::resp::Incoming;
use crate::backend::redis::resp::Protocol;
use crate::backend::redis::resp::ReplyScanner;
use crate::backend::redis::resp::RespReply;
use crate::backend::redis::resp::decode;
use crate::backend::redis::resp::encode;
use crate::backend::redis::resp::not_understood;

/// The most bytes that are prepared for writing beyond what the socket takes. Commands behind them
/// can still be withdrawn.
const AHEAD: usize = 64 * 1024;
/// The most commands that may wait to be written. More are refused at once instead of filling the
/// memory.
pub(crate) const WAITING: usize = 10_000;
/// With this many bytes prepared, they are written before the next reply is decoded, so that the
/// server has work meanwhile.
const EAGER: usize = 4 * 1024;
/// The buffer for reading.
const READ: usize = 16 * 1024;
/// The buffer for reading where one reply is expected.
const AT_A_GLANCE: usize = 4 * 1024;
/// The longest reply. No reply to our commands is as long: the slots of the largest cluster, one by
/// one, take some 10 MiB.
const LONGEST: usize = 16 * 1024 * 1024;
/// The most memory that a buffer keeps, so that one large reply does not hold its memory forever.
const KEPT: usize = 1024 * 1024;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// The bare socket, if there is no TLS: it can be read without the runtime.
    fn socket(&self) -> Option<SockRef<'_>>;
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {
    fn socket(&self) -> Option<SockRef<'_>> {
        let stream: &dyn Any = self;
        let socket = stream.downcast_ref::<TcpStream>().map(SockRef::from);
        #[cfg(unix)]
        let socket =
            socket.or_else(|| stream.downcast_ref::<tokio::net::UnixStream>().map(SockRef::from));
        socket
    }
}

pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    protocol: Protocol,
    /// The commands that were put into `out` and have no reply yet, in order. `None` if the reply
    /// is ignored.
    expected: VecDeque<Option<u64>>,
    /// The bytes being written; the first `written` of them are written.
    out: Vec<u8>,
    written: usize,
    unflushed: bool,
    /// The commands that are not in `out` yet, by ascending numbers.
    waiting: VecDeque<QueuedCommand>,
    /// The bytes that were read; the first `decoded` of them are decoded.
    read: Vec<u8>,
    decoded: usize,
    /// The state of the incomplete reply at the end of `read`.
    outline: ReplyScanner,
    /// The error after which nothing more is written. Replies that came before are still read.
    broken: Option<WireError>,
    ended: bool,
}

/// A command that is not in `out` yet. With `asking` an ASKING goes right before it.
struct QueuedCommand {
    number: u64,
    asking: bool,
    bytes: Vec<u8>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("expected", &self.expected.len())
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

impl Wire {
    pub(crate) fn new(stream: Box<dyn Stream>, protocol: Protocol) -> Self {
        Self {
            stream,
            protocol,
            expected: VecDeque::new(),
            out: Vec::new(),
            written: 0,
            unflushed: false,
            waiting: VecDeque::new(),
            read: Vec::new(),
            decoded: 0,
            outline: ReplyScanner::default(),
            broken: None,
            ended: false,
        }
    }

    /// Queues a command. With `asking` an ASKING goes right before it, because the node is only
    /// about to take over the slot of the command. The reply to the ASKING is ignored. The caller
    /// polls afterwards; nothing is written before.
    pub(crate) fn send<'a>(
        &mut self,
        number: u64,
        asking: bool,
        parts: impl Iterator<Item = &'a str> + Clone,
    ) {
        if self.waiting.is_empty() && self.out.len() < AHEAD {
            write_down(&mut self.out, asking, parts);
            self.expect(number, asking);
        } else {
            let mut bytes = Vec::new();
            write_down(&mut bytes, asking, parts);
            self.waiting.push_back(QueuedCommand { number, asking, bytes });
        }
    }

    fn expect(&mut self, number: u64, asking: bool) {
        self.expected.extend(asking.then_some(None));
        self.expected.push_back(Some(number));
    }

    /// True if so many commands wait that no more should be added.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING
    }

    /// True if nothing more can be written. The end of the connection is about to be reported.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Removes a command that is not in `out` yet. Returns false if it was not found.
    pub(crate) fn withdraw(&mut self, number: u64) -> bool {
        let place = self.waiting.binary_search_by_key(&number, |waiting| waiting.number).ok();
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }

    /// Stops writing, and returns the numbers of the commands that were not put into `out`.
    pub(crate) fn stop_writing(&mut self) -> Vec<u64> {
        self.broken.get_or_insert_with(closed);
        self.out = Vec::new();
        self.written = 0;
        std::mem::take(&mut self.waiting).into_iter().map(|waiting| waiting.number).collect()
    }

    /// Writes what is waiting, and returns the next reply with the number of its command. An error
    /// is the end of the connection.
    pub(crate) fn poll_reply(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(u64, RespReply), WireError>> {
        loop {
            let found = ready!(self.poll_found(cx))?;
            if let Some(reply) = self.assign(found) {
                return Poll::Ready(reply);
            }
        }
    }

    /// The same for replies that have been read from the socket already. It does not read the
    /// socket.
    pub(crate) fn poll_read_reply(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(u64, RespReply), WireError>> {
        if self.ended {
            return Poll::Pending;
        }
        self.write_eagerly(cx);
        loop {
            match self.next_found() {
                Ok(Some(found)) => {
                    if let Some(reply) = self.assign(found) {
                        return Poll::Ready(reply);
                    }
                }
                Ok(None) => return Poll::Pending,
                Err(error) => {
                    self.ended = true;
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// Finds the command that a reply belongs to. `None` for a push and for a reply that is
    /// ignored.
    fn assign(&mut self, found: Incoming) -> Option<Result<(u64, RespReply), WireError>> {
        let Incoming::Reply(reply) = found else { return None };
        match self.expected.pop_front() {
            Some(number) => Some(Ok((number?, reply))),
            None => {
                self.ended = true;
                Some(Err(unasked(reply)))
            }
        }
    }

    /// The next reply or push, for a user that assigns replies to commands itself.
    pub(crate) fn poll_found(&mut self, cx: &mut Context<'_>) -> Poll<Result<Incoming, WireError>> {
        if self.ended {
            return Poll::Ready(Err(closed()));
        }
        let result = ready!(self.poll_next(cx));
        self.ended = result.is_err();
        Poll::Ready(result)
    }

    /// Keeps the memory of a list that was read.
    pub(crate) fn reuse(&mut self, list: Vec<Value>) {
        self.outline.reuse(list);
    }

    /// Notes that the first command in `out` has its reply.
    pub(crate) fn settle_first(&mut self) {
        self.expected.pop_front();
    }

    /// Reads what the socket has, without asking the runtime, which may not have looked yet.
    /// Returns true if there was anything. The runtime reports the same data later as well.
    pub(crate) fn read_ahead(&mut self) -> bool {
        let mut room = [0; AT_A_GLANCE];
        let Some(socket) = (*self.stream).socket().filter(|_| !self.ended) else { return false };
        match (&*socket).read(&mut room) {
            Ok(count) => self.read.extend_from_slice(&room[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // A socket reports its error only once.
            Err(error) => self.broken = self.broken.take().or_else(|| Some(stream_error(error))),
        }
        true
    }

    fn write_eagerly(&mut self, cx: &mut Context<'_>) {
        if self.out.len() - self.written >= EAGER {
            self.write(cx);
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Incoming, WireError>> {
        self.write_eagerly(cx);
        loop {
            if let Some(found) = self.next_found()? {
                return Poll::Ready(Ok(found));
            }
            if self.read.len() - self.decoded > LONGEST {
                return Poll::Ready(Err(not_understood("it has no end")));
            }
            self.write(cx);
            if self.poll_read(cx)?.is_pending() {
                // A pending write error is reported once all replies are read, since nothing more
                // is answered then.
                return self.broken.take().map_or(Poll::Pending, |broken| Poll::Ready(Err(broken)));
            }
        }
    }

    fn next_found(&mut self) -> Result<Option<Incoming>, WireError> {
        let rest = &self.read[self.decoded..];
        let Some((found, length)) = decode(self.protocol, &mut self.outline, rest)? else {
            return Ok(None);
        };
        self.decoded += length;
        Ok(Some(found))
    }

    /// Writes as much as the socket takes.
    fn write(&mut self, cx: &mut Context<'_>) {
        if self.broken.is_none() {
            if let Poll::Ready(Err(error)) = self.poll_write(cx) {
                self.broken = Some(error);
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        loop {
            while self.out.len() - self.written < AHEAD {
                let Some(QueuedCommand { number, asking, bytes }) = self.waiting.pop_front() else {
                    break;
                };
                self.expect(number, asking);
                self.out.extend_from_slice(&bytes);
            }
            if self.written == self.out.len() {
                break;
            }
            let rest = &self.out[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest)).map_err(stream_error)? {
                0 => return Poll::Ready(Err(closed())),
                written => self.written += written,
            }
            self.unflushed = true;
            self.tidy_out();
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx)).map_err(stream_error)?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn tidy_out(&mut self) {
        if self.written == self.out.len() {
            self.out.clear();
            self.out.shrink_to(KEPT);
            self.written = 0;
        } else if self.written >= AHEAD {
            self.out.drain(..self.written);
            self.written = 0;
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        self.read.drain(..self.decoded);
        self.decoded = 0;
        if self.read.is_empty() {
            self.read.shrink_to(KEPT);
        }
        self.read.reserve(READ);
        let count = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx));
        let end = match count {
            Ok(0) => closed(),
            Ok(_) => return Poll::Ready(Ok(())),
            Err(error) => stream_error(error),
        };
        Poll::Ready(Err(self.broken.take().unwrap_or(end)))
    }

    /// Sends these commands at once and waits for all replies, on a connection that nobody else
    /// uses.
    pub(crate) async fn ask(
        &mut self,
        questions: &[Vec<&str>],
    ) -> Result<Vec<RespReply>, WireError> {
        for question in questions {
            self.send(0, false, question.iter().copied());
        }
        let mut replies = Vec::new();
        while replies.len() < questions.len() {
            match poll_fn(|cx| self.poll_reply(cx)).await {
                Ok((_, reply)) => replies.push(reply),
                // A server that closes the connection may have said why in an earlier reply.
                Err(end) => return Err(replies.into_iter().find_map(Result::err).unwrap_or(end)),
            }
        }
        Ok(replies)
    }
}

fn write_down<'a>(out: &mut Vec<u8>, asking: bool, parts: impl Iterator<Item = &'a str> + Clone) {
    if asking {
        encode(out, ["ASKING"].into_iter());
    }
    encode(out, parts);
}

/// An error with its display text.
pub(crate) fn display_error(error: io::Error) -> WireError {
    WireError::new(ErrorKind::Io, error.to_string())
}

/// The same for a socket that may have TLS on it: an error of the TLS library keeps its debug text,
/// which `tls` recognizes.
pub(crate) fn stream_error(error: io::Error) -> WireError {
    if error.raw_os_error().is_some() { display_error(error) } else { error.into() }
}

fn closed() -> WireError {
    WireError::new(ErrorKind::Io, "Connection closed.")
}

fn unasked(reply: RespReply) -> WireError {
    // A server that turns a client away says why before it is asked anything.
    reply.err().unwrap_or_else(|| WireError::new(ErrorKind::Protocol, "a reply without a command"))
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::io::AsyncWriteExt;
    use tokio::io::DuplexStream;

    /// A connection with this many bytes of room in each direction, and the server's end.
    fn wire(room: usize, protocol: Protocol) -> (Wire, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(room);
        (Wire::new(Box::new(ours), protocol), theirs)
    }

    fn try_reply(wire: &mut Wire) -> Poll<Result<(u64, RespReply), WireError>> {
        wire.poll_reply(&mut Context::from_waker(std::task::Waker::noop()))
    }

    async fn reply(wire: &mut Wire) -> Result<(u64, RespReply), WireError> {
        poll_fn(|cx| wire.poll_reply(cx)).await
    }

    /// Sends a command with a number as its only argument.
    fn echo(wire: &mut Wire, number: u64, padding: &str) {
        let text = number.to_string();
        wire.send(number, false, ["ECHO", &text, padding].into_iter());
    }

    #[tokio::test]
    async fn replies_belong_to_their_commands_however_the_bytes_are_cut() {
        let resp2 = b":1\r\n-ERR no\r\n*3\r\n:7\r\n$2\r\nab\r\n$-1\r\n$-1\r\n+OK\r\n";
        let resp3 =
            b":1\r\n-ERR no\r\n>2\r\n+message\r\n+x\r\n*3\r\n:7\r\n$2\r\nab\r\n_\r\n_\r\n+OK\r\n";
        for (protocol, bytes) in [(Protocol::Resp2, &resp2[..]), (Protocol::Resp3, &resp3[..])] {
            for cut in 1..bytes.len() {
                let (mut wire, mut server) = wire(4_096, protocol);
                (1..=5).for_each(|number| wire.send(number, false, ["X"].into_iter()));
                let mut replies = Vec::new();
                for part in bytes.chunks(cut) {
                    server.write_all(part).await.expect("room");
                    while let Poll::Ready(reply) = try_reply(&mut wire) {
                        replies.push(reply.expect("a reply"));
                    }
                }
                let words = |reply: RespReply| reply.map_err(|error| error.details().to_owned());
                let replies: Vec<_> =
                    replies.into_iter().map(|(number, reply)| (number, words(reply))).collect();
                let list = vec![Value::Int(7), Value::Text("ab".to_owned()), Value::Nil];
                let expected = [
                    (1, Ok(Value::Int(1))),
                    (2, Err("ERR no".to_owned())),
                    (3, Ok(Value::List(list))),
                    (4, Ok(Value::Nil)),
                    (5, Ok(Value::Text("OK".to_owned()))),
                ];
                assert_eq!(replies, expected, "{protocol:?} in parts of {cut}");
            }
        }
    }

    #[tokio::test]
    async fn commands_are_bulk_strings_in_order_and_more_than_the_socket_takes() {
        let (mut wire, mut server) = wire(1_000, Protocol::Resp2);
        let padding = "x".repeat(3_000);
        (1..=200).for_each(|number| echo(&mut wire, number, &padding));
        let serve = async {
            for number in 1..=200_u64 {
                let text = number.to_string();
                let expected = format!(
                    "*3\r\n$4\r\nECHO\r\n${}\r\n{text}\r\n$3000\r\n{padding}\r\n",
                    text.len()
                );
                let mut read = vec![0; expected.len()];
                server.read_exact(&mut read).await.expect("a command");
                assert_eq!(String::from_utf8(read).as_deref(), Ok(expected.as_str()));
                server.write_all(format!(":{number}\r\n").as_bytes()).await.expect("room");
            }
        };
        let answered = async {
            for number in 1..=200 {
                let (answered, reply) = reply(&mut wire).await.expect("a reply");
                assert_eq!(
                    (answered, reply.ok()),
                    (number, i64::try_from(number).ok().map(Value::Int))
                );
            }
        };
        tokio::join!(serve, answered);
        assert!(wire.out.is_empty() && wire.expected.is_empty());
    }

    #[tokio::test]
    async fn what_is_not_begun_can_be_withdrawn_and_the_rest_cannot() {
        let (mut wire, mut server) = wire(1_000, Protocol::Resp2);
        let padding = "x".repeat(2 * AHEAD);
        (1..=3).for_each(|number| echo(&mut wire, number, if number == 1 { &padding } else { "" }));
        assert!(try_reply(&mut wire).is_pending());
        assert!(!wire.withdraw(1), "it is half written");
        assert!(wire.withdraw(2) && !wire.withdraw(2));
        let mut read = Vec::new();
        while !read.ends_with(b"$1\r\n3\r\n$0\r\n\r\n") {
            // Otherwise Tokio makes both ends wait for the test to yield.
            tokio::task::yield_now().await;
            assert!(try_reply(&mut wire).is_pending());
            let mut part = [0; 1_000];
            let count = server.read(&mut part).await.expect("a part");
            read.extend_from_slice(&part[..count]);
        }
        assert!(!String::from_utf8_lossy(&read).contains("$1\r\n2\r\n"));
        server.write_all(b":1\r\n:3\r\n").await.expect("room");
        assert_eq!(reply(&mut wire).await.expect("a reply").0, 1);
        assert_eq!(reply(&mut wire).await.expect("a reply").0, 3);
    }

    #[tokio::test]
    async fn an_asking_goes_with_its_command_or_not_at_all() {
        let written = "*1\r\n$6\r\nASKING\r\n";
        let (mut wire, mut server) = wire(1_000, Protocol::Resp2);
        let padding = "x".repeat(2 * AHEAD);
        echo(&mut wire, 1, &padding);
        (2..=3).for_each(|number| wire.send(number, true, ["X"].into_iter()));
        assert!(try_reply(&mut wire).is_pending());
        assert!(wire.withdraw(2));
        let serve = async {
            let mut read = Vec::new();
            while !read.ends_with(format!("{written}*1\r\n$1\r\nX\r\n").as_bytes()) {
                server.read_buf(&mut read).await.expect("a part");
            }
            server.write_all(b":1\r\n+OK\r\n:3\r\n").await.expect("room");
            String::from_utf8(read).expect("text")
        };
        let answered = async {
            assert_eq!(reply(&mut wire).await.expect("a reply").0, 1);
            reply(&mut wire).await.expect("a reply")
        };
        let (read, (number, reply)) = tokio::join!(serve, answered);
        assert_eq!((number, reply.ok()), (3, Some(Value::Int(3))));
        assert_eq!(read.matches(written).count(), 1);
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_not_read_for_ever() {
        let (mut wire, mut server) = wire(1024 * 1024, Protocol::Resp2);
        echo(&mut wire, 1, "");
        let pour = async {
            server.write_all(b"$9999999999\r\n").await?;
            loop {
                server.write_all(&[b'x'; 1024 * 1024]).await?;
            }
        };
        let read = async {
            let end = reply(&mut wire).await.expect_err("no answer");
            drop(wire);
            end
        };
        let (poured, end) = tokio::join!(pour, read);
        let _: io::Result<()> = poured;
        assert_eq!(end.kind(), ErrorKind::Protocol);
    }

    #[tokio::test]
    async fn after_the_last_word_replies_are_still_read_and_nothing_is_written() {
        let (mut wire, mut server) = wire(1_000, Protocol::Resp2);
        echo(&mut wire, 1, "");
        assert!(try_reply(&mut wire).is_pending());
        let padding = "x".repeat(AHEAD);
        (2..=4).for_each(|number| echo(&mut wire, number, &padding));
        assert_eq!(wire.stop_writing(), [3, 4], "the second may have been begun");
        server.write_all(b":1\r\n").await.expect("room");
        assert_eq!(reply(&mut wire).await.expect("a reply").0, 1);
        assert!(
            matches!(try_reply(&mut wire), Poll::Ready(Err(_))),
            "nobody writes what it would wait for"
        );
        drop(wire);
        let mut read = String::new();
        server.read_to_string(&mut read).await.expect("text");
        assert_eq!(read, "*3\r\n$4\r\nECHO\r\n$1\r\n1\r\n$0\r\n\r\n");
    }

    #[tokio::test]
    async fn the_end_is_told_after_the_last_reply_and_again_and_again() {
        let (mut wire, mut server) = wire(1_000, Protocol::Resp2);
        (1..=2).for_each(|number| echo(&mut wire, number, ""));
        assert!(try_reply(&mut wire).is_pending());
        server.write_all(b":1\r\n").await.expect("room");
        drop(server);
        assert_eq!(reply(&mut wire).await.expect("a reply").0, 1);
        for _ in 0..3 {
            let end = reply(&mut wire).await.expect_err("the end");
            assert_eq!((end.kind(), end.details()), (ErrorKind::Io, "Connection closed."));
        }
    }

    #[tokio::test]
    async fn what_cannot_be_understood_is_the_end() {
        for (bytes, words) in
            [("what is this\r\n\r\n", "not understood"), (":1\r\n:2\r\n", "without a command")]
        {
            let (mut wire, mut server) = wire(1_000, Protocol::Resp2);
            echo(&mut wire, 1, "");
            server.write_all(bytes.as_bytes()).await.expect("room");
            let end = loop {
                match reply(&mut wire).await {
                    Ok((1, _)) => {}
                    Ok((number, _)) => panic!("{number} was not sent"),
                    Err(end) => break end,
                }
            };
            assert!(end.kind() == ErrorKind::Protocol && end.details().contains(words), "{end}");
        }
    }

    /// A connection whose runtime has not reported anything that arrives from now on, and the
    /// server's end.
    async fn bare() -> (Wire, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("its address"))
            .await
            .expect("a connection");
        let mut wire = Wire::new(Box::new(socket), Protocol::Resp2);
        echo(&mut wire, 1, "");
        assert!(try_reply(&mut wire).is_pending());
        (wire, listener.accept().expect("the client").0)
    }

    #[tokio::test]
    async fn what_came_is_read_before_the_runtime_tells_of_it() {
        let (mut wire, mut server) = bare().await;
        assert!(!wire.read_ahead());
        io::Write::write_all(&mut server, b":1\r").expect("room");
        assert!(wire.read_ahead() && try_reply(&mut wire).is_pending());
        io::Write::write_all(&mut server, b"\n").expect("room");
        assert!(try_reply(&mut wire).is_pending(), "the runtime has told");
        assert!(wire.read_ahead());
        assert!(matches!(try_reply(&mut wire), Poll::Ready(Ok((1, Ok(Value::Int(1)))))));
        echo(&mut wire, 2, "");
        io::Write::write_all(&mut server, b":2\r\n").expect("room");
        assert_eq!(reply(&mut wire).await.expect("what the runtime tells of").0, 2);
    }

    #[tokio::test]
    async fn an_end_that_is_read_before_the_runtime_tells_of_it_is_told_once() {
        let (mut wire, server) = bare().await;
        // Closed with unread bytes, so the client gets a reset.
        drop(server);
        assert!(wire.read_ahead());
        let Poll::Ready(Err(end)) = try_reply(&mut wire) else { panic!("it goes on") };
        assert!(end.details().contains("reset"), "{end}");
        assert!(!wire.read_ahead());

        let (mut wire, mut server) = bare().await;
        Read::read_exact(&mut server, &mut [0; 8]).expect("a part");
        server.shutdown(std::net::Shutdown::Write).expect("an open connection");
        while wire.read_ahead() {
            tokio::task::yield_now().await;
            if try_reply(&mut wire).is_ready() {
                break;
            }
        }
        assert_eq!(reply(&mut wire).await.expect_err("the end").details(), "Connection closed.");
    }

    /// Errors of the system have their display text; errors of a TLS library have their debug text.
    #[test]
    fn what_the_system_says_is_told_in_its_words() {
        let reset = || io::Error::from_raw_os_error(104);
        assert_eq!(stream_error(reset()).details(), reset().to_string());
        let library = stream_error(io::Error::new(io::ErrorKind::InvalidData, "UnknownIssuer"));
        assert!(library.details().contains("InvalidData"), "{library}");
    }

    #[tokio::test]
    async fn who_is_turned_away_hears_why() {
        let (mut wire, mut server) = wire(1_000, Protocol::Resp2);
        server.write_all(b"-ERR max number of clients reached\r\n").await.expect("room");
        drop(server);
        let end = wire.ask(&[vec!["PING"], vec!["INFO"]]).await.expect_err("the end");
        assert_eq!(end.details(), "ERR max number of clients reached");
    }
}
