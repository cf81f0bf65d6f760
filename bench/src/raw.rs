//! What no client can do without: scripts over bare sockets, for one task in a process.
//!
//! `Raw` is there for hand-overs: the floor's scripts over two sockets, with a thread that waits
//! for each answer. `Relay` is there for crowds on one name: it passes the lock on from one hold to
//! another as soon as the server has granted it, and asks its socket for the answer all the time.
//! What those take beyond it is the client's.

use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::marker::PhantomData;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::floor::FALLBACK;
use crate::wire::ACQUIRE;
use crate::wire::HAND_OFF;
use crate::wire::Names;
use crate::wire::RELEASE;
use crate::wire::Stands;

/// Locks by bare sockets, each as `T` has it.
pub(crate) struct Sockets<T> {
    address: String,
    what: PhantomData<fn() -> T>,
}

impl<T> Sockets<T> {
    pub(crate) fn new(url: &str) -> Self {
        Self { address: url.trim_start_matches("redis://").to_owned(), what: PhantomData }
    }
}

/// A lock of one task.
pub(crate) trait Single: Send + 'static {
    fn open(address: &str, name: &str) -> Self;
    fn acquire(&mut self);
    fn release(&mut self);
}

impl<T: Single> bench::Service for Sockets<T> {
    type Lock = SocketLock<T>;

    fn lock(&self, name: &str) -> SocketLock<T> {
        SocketLock(Arc::new(Mutex::new(T::open(&self.address, name))))
    }
}

pub(crate) struct SocketLock<T>(Arc<Mutex<T>>);

impl<T> Clone for SocketLock<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> SocketLock<T> {
    fn single(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Single> bench::Lock for SocketLock<T> {
    type Guard = Self;

    async fn acquire(&self) -> Self {
        self.single().acquire();
        self.clone()
    }

    async fn release(guard: Self) {
        guard.single().release();
    }
}

pub(crate) struct Raw {
    commands: TcpStream,
    messages: TcpStream,
    /// Of the one hold that there is at a time.
    acquire: String,
    release: String,
}

impl Single for Raw {
    fn open(address: &str, name: &str) -> Self {
        let (mut commands, mut messages) = (connect(address), connect(address));
        let [acquire, release] = [&*ACQUIRE, &*RELEASE].map(|script| load(&mut commands, script));
        let names = Names::of(name);
        let field = format!("{}:1", uuid::Uuid::new_v4());
        ask(&mut messages, &command("SUBSCRIBE", &[&names.channel]));
        messages.set_read_timeout(Some(FALLBACK)).expect("a time limit");
        let acquire = command("EVALSHA", &names.acquire(&acquire, &field, Stands::InLine));
        let release = command("EVALSHA", &names.release(&release, &field));
        Self { commands, messages, acquire, release }
    }

    fn acquire(&mut self) {
        while !is_done(&ask(&mut self.commands, &self.acquire)) {
            self.wait_for_message();
        }
    }

    fn release(&mut self) {
        ask(&mut self.commands, &self.release);
    }
}

impl Raw {
    /// Whatever comes is a hint.
    fn wait_for_message(&mut self) {
        match self.messages.read(&mut [0; 4096]) {
            Ok(0) => panic!("the server has closed the connection"),
            Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
            _ => {}
        }
    }
}

/// Holds the lock from the start, until it is dropped: two holds have it in turn.
pub(crate) struct Relay {
    commands: TcpStream,
    /// From the one that has it now, and back.
    hand_offs: [String; 2],
    free: String,
}

impl Single for Relay {
    fn open(address: &str, name: &str) -> Self {
        let mut commands = connect(address);
        let [acquire, hand_off] = [&*ACQUIRE, &*HAND_OFF].map(|script| load(&mut commands, script));
        let names = Names::of(name);
        let client = uuid::Uuid::new_v4();
        let [one, other] = [1, 2].map(|hold| format!("{client}:{hold}"));
        let acquire = names.acquire(&acquire, &one, Stands::Nowhere);
        let answer = ask(&mut commands, &command("EVALSHA", &acquire));
        assert!(is_done(&answer), "{answer}");
        let hand_offs = [(&one, &other), (&other, &one)];
        let hand_offs =
            hand_offs.map(|(from, to)| command("EVALSHA", &names.hand_off(&hand_off, from, to)));
        commands.set_nonblocking(true).expect("a socket that does not wait");
        Self { commands, hand_offs, free: command("DEL", &[name]) }
    }

    fn acquire(&mut self) {}

    fn release(&mut self) {
        let answer = ask(&mut self.commands, &self.hand_offs[0]);
        assert!(is_done(&answer), "{answer}");
        self.hand_offs.swap(0, 1);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        ask(&mut self.commands, &self.free);
    }
}

/// A list, and the code of what was done first.
pub(crate) fn is_done(answer: &str) -> bool {
    answer.lines().nth(1) == Some(":1")
}

pub(crate) fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    stream
}

pub(crate) fn load(commands: &mut TcpStream, script: &str) -> String {
    let reply = ask(commands, &command("SCRIPT", &["LOAD", script]));
    reply.lines().nth(1).expect("a digest").to_owned()
}

pub(crate) fn command(verb: &str, args: &[&str]) -> String {
    let words = [verb].into_iter().chain(args.iter().copied());
    let spelled: String = words.map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{spelled}", 1 + args.len())
}

/// The answer, which fits one packet.
fn ask(stream: &mut TcpStream, command: &str) -> String {
    stream.write_all(command.as_bytes()).expect("a connection");
    answer(stream)
}

/// The answers of all, who are asked at the same time.
pub(crate) fn ask_all<'a>(
    streams: impl Iterator<Item = &'a mut TcpStream>,
    command: &str,
) -> Vec<String> {
    let mut asked: Vec<_> = streams.collect();
    for stream in &mut asked {
        stream.write_all(command.as_bytes()).expect("a connection");
    }
    asked.into_iter().map(answer).collect()
}

fn answer(stream: &mut TcpStream) -> String {
    let mut answer = [0; 4096];
    let length = read(stream, &mut answer);
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    assert!(!answer.is_empty() && !answer.starts_with('-'), "an unexpected answer: {answer}");
    answer
}

fn read(stream: &mut TcpStream, into: &mut [u8]) -> usize {
    loop {
        match stream.read(into) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            read => return read.expect("an answer"),
        }
    }
}
