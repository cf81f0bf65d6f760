//! What no client can do without: the floor's scripts over two bare sockets. It has a thread wait for each answer, for one task
//! in a process, and is there for hand-overs: what they take beyond it is the client's.

use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::floor::ACQUIRE;
use crate::floor::FALLBACK;
use crate::floor::Names;
use crate::floor::RELEASE;

/// The address of the server.
pub(crate) struct Raw(String);

impl Raw {
    pub(crate) fn new(url: &str) -> Self {
        Self(url.trim_start_matches("redis://").to_owned())
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
    let length = stream.read(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    assert!(!answer.is_empty() && !answer.starts_with('-'), "an unexpected answer: {answer}");
    answer
}
