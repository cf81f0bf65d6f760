//! What no client can do without: scripts over bare sockets, for one task in a process.
//!
//! `Raw` is there for hand-overs: the floor's scripts over two sockets, with a thread that waits for each answer. `Relay` is
//! there for crowds on one name: it passes the lock on from one hold to another as soon as the server has granted it, and asks
//! its socket for the answer all the time. What those take beyond it is the client's.

use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::floor::ACQUIRE;
use crate::floor::FALLBACK;
use crate::floor::HAND_OFF;
use crate::floor::Names;
use crate::floor::RELEASE;

/// The address of the server.
pub(crate) struct Raw(String);

impl Raw {
    pub(crate) fn new(url: &str) -> Self {
        Self(address(url))
    }
}

impl bench::Service for Raw {
    type Lock = RawLock;

    fn lock(&self, name: &str) -> RawLock {
        RawLock(Arc::new(Mutex::new(Wires::open(&self.0, name))))
    }
}

#[derive(Clone)]
pub(crate) struct RawLock(Arc<Mutex<Wires>>);

struct Wires {
    commands: TcpStream,
    messages: TcpStream,
    /// Of the one hold that there is at a time.
    acquire: String,
    release: String,
}

impl Wires {
    fn open(address: &str, name: &str) -> Self {
        let (mut commands, mut messages) = (connect(address), connect(address));
        let [acquire, release] = [ACQUIRE, RELEASE].map(|script| load(&mut commands, script));
        let names = Names::of(name);
        let field = format!("{}:1", uuid::Uuid::new_v4());
        ask(&mut messages, &command("SUBSCRIBE", &[&names.channel]));
        messages.set_read_timeout(Some(FALLBACK)).expect("a time limit");
        let acquire = command("EVALSHA", &names.acquire(&acquire, &field));
        let release = command("EVALSHA", &names.release(&release, &field));
        Self { commands, messages, acquire, release }
    }

    fn is_granted(&mut self) -> bool {
        // A list, and the code of what was done first.
        ask(&mut self.commands, &self.acquire).lines().nth(1) == Some(":1")
    }

    /// Whatever comes is a hint.
    fn wait_for_message(&mut self) {
        match self.messages.read(&mut [0; 4096]) {
            Ok(0) => panic!("the server has closed the connection"),
            Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
            _ => {}
        }
    }
}

impl bench::Lock for RawLock {
    type Guard = Self;

    async fn acquire(&self) -> Self {
        let mut wires = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !wires.is_granted() {
            wires.wait_for_message();
        }
        self.clone()
    }

    async fn release(guard: Self) {
        let Wires { commands, release, .. } = &mut *guard.0.lock().unwrap_or_else(PoisonError::into_inner);
        ask(commands, release);
    }
}

/// The address of the server.
pub(crate) struct Relay(String);

impl Relay {
    pub(crate) fn new(url: &str) -> Self {
        Self(address(url))
    }
}

impl bench::Service for Relay {
    type Lock = RelayLock;

    fn lock(&self, name: &str) -> RelayLock {
        RelayLock(Arc::new(Mutex::new(Track::open(&self.0, name))))
    }
}

#[derive(Clone)]
pub(crate) struct RelayLock(Arc<Mutex<Track>>);

/// On which two holds pass the lock on to each other, until it is dropped.
struct Track {
    commands: TcpStream,
    acquire: String,
    hand_offs: [String; 2],
    free: String,
    /// So many times.
    passed_on: usize,
    is_held: bool,
}

impl Track {
    fn open(address: &str, name: &str) -> Self {
        let mut commands = connect(address);
        let [acquire, hand_off] = [ACQUIRE, HAND_OFF].map(|script| load(&mut commands, script));
        let names = Names::of(name);
        let client = uuid::Uuid::new_v4();
        let [one, other] = [1, 2].map(|hold| format!("{client}:{hold}"));
        let acquire = command("EVALSHA", &names.acquire(&acquire, &one));
        let hand_offs = [(&one, &other), (&other, &one)];
        let hand_offs = hand_offs.map(|(from, to)| command("EVALSHA", &names.hand_off(&hand_off, from, to)));
        let free = command("DEL", &[name]);
        commands.set_nonblocking(true).expect("a socket that does not wait");
        Self { commands, acquire, hand_offs, free, passed_on: 0, is_held: false }
    }

    fn take(&mut self) {
        if !self.is_held {
            self.is_held = true;
            let answer = ask(&mut self.commands, &self.acquire);
            assert_eq!(answer.lines().nth(1), Some(":1"), "{answer}");
        }
    }

    fn pass_on(&mut self) {
        let answer = ask(&mut self.commands, &self.hand_offs[self.passed_on % 2]);
        assert_eq!(answer.lines().nth(1), Some(":1"), "{answer}");
        self.passed_on += 1;
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        ask(&mut self.commands, &self.free);
    }
}

impl bench::Lock for RelayLock {
    type Guard = Self;

    async fn acquire(&self) -> Self {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.clone()
    }

    async fn release(guard: Self) {
        guard.0.lock().unwrap_or_else(PoisonError::into_inner).pass_on();
    }
}

fn address(url: &str) -> String {
    url.trim_start_matches("redis://").to_owned()
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    stream
}

fn load(commands: &mut TcpStream, script: &str) -> String {
    let reply = ask(commands, &command("SCRIPT", &["LOAD", script]));
    reply.lines().nth(1).expect("a digest").to_owned()
}

fn command(verb: &str, args: &[&str]) -> String {
    let words = [verb].into_iter().chain(args.iter().copied());
    let spelled: String = words.map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{spelled}", 1 + args.len())
}

/// The answer, which fits one packet.
fn ask(stream: &mut TcpStream, command: &str) -> String {
    stream.write_all(command.as_bytes()).expect("a connection");
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
