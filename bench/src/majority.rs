//! A lock over several servers, whose addresses have commas between them: this crate's Redlock, and
//! bare sockets that ask the same of each server.

use std::net::TcpStream;
use std::sync::Arc;

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Redlock;
use redis_reentrant_lock::RedlockGuard;

use crate::raw;
use crate::raw::Single;
use crate::wire::ACQUIRE;
use crate::wire::Names;
use crate::wire::RAISE;
use crate::wire::RELEASE;
use crate::wire::Stands;

pub(crate) struct Majority(Redlock);

impl Majority {
    pub(crate) async fn connect(urls: &str, driver: Driver) -> Self {
        let mut clients = Vec::new();
        for url in urls.split(',') {
            let builder = LockClient::builder().url(url).driver(driver);
            clients.push(builder.connect().await.expect("connected"));
        }
        let redlock = Redlock::new(clients).expect("several servers");
        redlock.assume_fresh();
        Self(redlock)
    }
}

impl bench::Service for Majority {
    type Lock = MajorityLock;

    fn lock(&self, name: &str) -> MajorityLock {
        MajorityLock { redlock: self.0.clone(), name: name.into() }
    }
}

#[derive(Clone)]
pub(crate) struct MajorityLock {
    redlock: Redlock,
    name: Arc<str>,
}

impl bench::Lock for MajorityLock {
    type Guard = RedlockGuard;

    async fn acquire(&self) -> RedlockGuard {
        self.redlock.lock(&self.name).await.expect("locked")
    }

    async fn release(guard: RedlockGuard) {
        guard.unlock().await.expect("unlocked");
    }
}

/// A socket to each server, and a thread that waits for the answers: it acquires everywhere, raises
/// the token where it is not the largest, and releases everywhere. Nobody else has the lock.
pub(crate) struct RawMajority {
    servers: Vec<TcpStream>,
    names: Names,
    /// The digest of the script.
    raise: String,
    field: String,
    acquire: String,
    release: String,
}

impl Single for RawMajority {
    fn open(addresses: &str, name: &str) -> Self {
        let address = |url: &str| url.trim_start_matches("redis://").to_owned();
        let addresses = addresses.split(',').map(address);
        let mut servers: Vec<_> = addresses.map(|address| raw::connect(&address)).collect();
        let mut digests = [&*ACQUIRE, &*RAISE, &*RELEASE].map(|script| {
            let loaded = servers.iter_mut().map(|server| raw::load(server, script)).last();
            loaded.expect("a server")
        });
        let raise = std::mem::take(&mut digests[1]);
        let [acquire, _, release] = digests;
        let names = Names::of(name);
        let field = format!("{}:1", uuid::Uuid::new_v4());
        let acquire = names.acquire(&acquire, &field, Stands::Nowhere);
        let acquire = raw::command("EVALSHA", &acquire);
        let release = raw::command("EVALSHA", &names.release(&release, &field));
        Self { servers, names, raise, field, acquire, release }
    }

    fn acquire(&mut self) {
        let answers = raw::ask_all(self.servers.iter_mut(), &self.acquire);
        let tokens: Vec<u64> = answers.iter().map(|answer| token(answer)).collect();
        let largest = tokens.iter().max().copied().unwrap_or_default();
        let largest_text = largest.to_string();
        let raise = self.names.raise(&self.raise, &self.field, &largest_text);
        let raise = raw::command("EVALSHA", &raise);
        let lower = self.servers.iter_mut().zip(&tokens).filter(|(_, token)| **token < largest);
        for answer in raw::ask_all(lower.map(|(server, _)| server), &raise) {
            assert!(raw::is_done(&answer), "{answer}");
        }
    }

    fn release(&mut self) {
        for answer in raw::ask_all(self.servers.iter_mut(), &self.release) {
            assert!(raw::is_done(&answer), "{answer}");
        }
    }
}

/// Of a grant: its code, the time, and the token.
fn token(answer: &str) -> u64 {
    assert!(raw::is_done(answer), "{answer}");
    let token = answer.lines().nth(3).and_then(|line| line.strip_prefix(':'));
    token.and_then(|token| token.parse().ok()).unwrap_or_else(|| panic!("no token: {answer}"))
}
