//! One connection for commands: what is to be sent goes out in as few writes as possible, replies come in the order of
//! their commands. It is polled where it is used, and is closed by dropping it.
//!
//! No client library's connection, since all of them hand a command from task to task, and fred writes each EVALSHA by
//! itself: see docs/performance.md.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::pin::pin;
use std::task::Context;
use std::task::Poll;
use std::task::ready;

use fred::error::Error as FredError;
use fred::error::ErrorKind;
use tokio::io::AsyncRead;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWrite;

use crate::backend::redis::resp::Found;
use crate::backend::redis::resp::Protocol;
use crate::backend::redis::resp::Reply;
use crate::backend::redis::resp::decode;
use crate::backend::redis::resp::encode;

/// Not more than this is handed over for writing beyond what the socket takes: what waits behind it can be withdrawn.
const AHEAD: usize = 64 * 1024;
/// Commands that may wait to be written; more are to be refused at once instead of filling the memory.
const WAITING: usize = 10_000;
/// So much is written before the next reply is looked at, so that the server has something to do meanwhile.
const EAGER: usize = 4 * 1024;
/// Room for reading.
const READ: usize = 16 * 1024;
/// Room that is kept; a single large reply does not hold its memory for ever.
const KEPT: usize = 1024 * 1024;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    protocol: Protocol,
    /// Commands that were begun, in order, without a reply so far. `None` where nobody wants it.
    expected: VecDeque<Option<u64>>,
    /// Being written, the first `written` bytes of which are.
    out: Vec<u8>,
    written: usize,
    unflushed: bool,
    /// Commands that were not begun.
    waiting: VecDeque<(Option<u64>, Vec<u8>)>,
    /// Read, the first `decoded` bytes of which are understood.
    read: Vec<u8>,
    decoded: usize,
    /// Nothing more can be written. What was answered before is still read.
    broken: Option<FredError>,
    ended: bool,
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
            broken: None,
            ended: false,
        }
    }

    /// Puts a command behind those before it. Whoever calls it polls afterwards: nothing is written before.
    pub(crate) fn send<'a>(&mut self, number: Option<u64>, parts: impl Iterator<Item = &'a str> + Clone) {
        if self.waiting.is_empty() && self.out.len() < AHEAD {
            encode(&mut self.out, parts);
            self.expected.push_back(number);
        } else {
            let mut command = Vec::new();
            encode(&mut command, parts);
            self.waiting.push_back((number, command));
        }
    }

    /// Whether so much waits for the socket that no more should.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING
    }

    /// Takes back a command of which nothing was written, and says whether that is so.
    pub(crate) fn withdraw(&mut self, number: u64) -> bool {
        let place = self.waiting.iter().position(|(waiting, _)| *waiting == Some(number));
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }

    /// Writes nothing more; gives the numbers of the commands that were not begun.
    pub(crate) fn stop_writing(&mut self) -> Vec<u64> {
        self.broken.get_or_insert_with(closed);
        self.out = Vec::new();
        self.written = 0;
        std::mem::take(&mut self.waiting).into_iter().filter_map(|(number, _)| number).collect()
    }

    /// Writes what is to be written; the next reply, with the number of its command. The error is the end of the
    /// connection.
    pub(crate) fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Result<(u64, Reply), FredError>> {
        if self.ended {
            return Poll::Ready(Err(closed()));
        }
        let result = ready!(self.poll_next(cx));
        self.ended = result.is_err();
        Poll::Ready(result)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<(u64, Reply), FredError>> {
        if self.out.len() - self.written >= EAGER {
            self.write(cx);
        }
        loop {
            while let Some((found, length)) = decode(self.protocol, &self.read[self.decoded..])? {
                self.decoded += length;
                let Found::Reply(reply) = found else { continue };
                match self.expected.pop_front() {
                    Some(Some(number)) => return Poll::Ready(Ok((number, reply))),
                    Some(None) => {}
                    None => return Poll::Ready(Err(unasked(reply))),
                }
            }
            self.write(cx);
            ready!(self.poll_read(cx))?;
        }
    }

    /// Takes as much as the socket does.
    fn write(&mut self, cx: &mut Context<'_>) {
        if self.broken.is_none() {
            if let Poll::Ready(Err(error)) = self.poll_write(cx) {
                self.broken = Some(error);
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FredError>> {
        loop {
            while self.out.len() - self.written < AHEAD {
                let Some((number, command)) = self.waiting.pop_front() else { break };
                self.expected.push_back(number);
                self.out.extend_from_slice(&command);
            }
            if self.written == self.out.len() {
                break;
            }
            let rest = &self.out[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(closed())),
                written => self.written += written,
            }
            self.unflushed = true;
            self.tidy_out();
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
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

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FredError>> {
        self.read.drain(..self.decoded);
        self.decoded = 0;
        if self.read.is_empty() {
            self.read.shrink_to(KEPT);
        }
        self.read.reserve(READ);
        let count = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx));
        match (count, self.broken.take()) {
            (Ok(0), broken) => Poll::Ready(Err(broken.unwrap_or_else(closed))),
            (Ok(_), broken) => {
                self.broken = broken;
                Poll::Ready(Ok(()))
            }
            (Err(error), broken) => Poll::Ready(Err(broken.unwrap_or_else(|| error.into()))),
        }
    }

    /// Sends these at once and waits for all replies, on a connection that nobody else uses.
    pub(crate) async fn ask(&mut self, questions: &[Vec<&str>]) -> Result<Vec<Reply>, FredError> {
        for question in questions {
            self.send(Some(0), question.iter().copied());
        }
        let mut replies = Vec::new();
        while replies.len() < questions.len() {
            match poll_fn(|cx| self.poll_reply(cx)).await {
                Ok((_, reply)) => replies.push(reply),
                // A server that hangs up may have said why.
                Err(end) => return Err(replies.into_iter().find_map(Result::err).unwrap_or(end)),
            }
        }
        Ok(replies)
    }
}

fn closed() -> FredError {
    FredError::new(ErrorKind::IO, "Connection closed.")
}

fn unasked(reply: Reply) -> FredError {
    // A server that turns a client away says why before it is asked anything.
    reply.err().unwrap_or_else(|| FredError::new(ErrorKind::Protocol, "a reply to no command"))
}
