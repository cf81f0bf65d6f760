//! One task of a worker: acquires, nests, writes to the store, releases.

use std::io;
use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Mutex;
use redis_reentrant_lock::NotAcquired;
use redis_reentrant_lock::ReentrantLock;
use redis_reentrant_lock::Result;
use tokio::io::AsyncBufReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::time::sleep;
use tokio::time::timeout;

use super::Worker;
use super::word;
use crate::chance::Chance;
use crate::event::Event;
use crate::event::How;
use crate::event::What;
use crate::event::now;

pub(super) struct Task<'a> {
    worker: &'a Worker,
    number: u32,
    chance: Chance,
    store: BufReader<UnixStream>,
}

/// Both kinds of lock on one key.
enum Lock {
    Reentrant(ReentrantLock),
    Mutex(Mutex),
}

impl Lock {
    async fn lock(&self) -> Result<Guard> {
        match self {
            Self::Reentrant(lock) => lock.lock().await,
            Self::Mutex(lock) => lock.lock().await,
        }
    }

    async fn try_lock(&self) -> Result<Result<Guard, NotAcquired>> {
        match self {
            Self::Reentrant(lock) => lock.try_lock().await,
            Self::Mutex(lock) => lock.try_lock().await,
        }
    }

    async fn with(&self, options: LockOptions) -> Result<Result<Guard, NotAcquired>> {
        match self {
            Self::Reentrant(lock) => lock.lock_with(options).await,
            Self::Mutex(lock) => lock.lock_with(options).await,
        }
    }
}

impl<'a> Task<'a> {
    pub(super) async fn new(worker: &'a Worker, number: u32, chance: Chance) -> io::Result<Self> {
        let store = BufReader::new(UnixStream::connect(&worker.settings.store).await?);
        Ok(Self { worker, number, chance, store })
    }

    /// One hold, or an attempt at one.
    pub(super) async fn turn(&mut self) -> std::result::Result<(), String> {
        let name = self.chance.pick(&self.worker.settings.names).clone();
        let client = &self.worker.client;
        let lock = if self.chance.permille(750) {
            client.reentrant_lock(&name).map(Lock::Reentrant)
        } else {
            client.mutex(&name).map(Lock::Mutex)
        };
        let lock = lock.map_err(|error| error.to_string())?;
        match self.acquire(&lock, &name).await {
            Some(guard) => self.hold(&lock, &name, guard).await,
            None => self.pause(5_000).await,
        }
        Ok(())
    }

    async fn acquire(&mut self, lock: &Lock, name: &str) -> Option<Guard> {
        let all = [What::Try, What::Lock, What::Lock, What::TryFor, What::Fixed, What::Dropped];
        let may = if self.worker.settings.waits_end { &all[..] } else { &all[..3] };
        let what = *self.chance.pick(may);
        let lease = self.worker.settings.lease;
        let wait = self.chance.time(500, 400_000);
        let op = self.worker.log.call(self.number, what, name, "-", 1);
        let result = match what {
            What::Try => lock.try_lock().await,
            What::TryFor => lock.with(LockOptions::new().wait(wait)).await,
            What::Fixed => lock.with(LockOptions::new().lease(lease).wait(wait * 2)).await,
            What::Dropped => match timeout(wait / 10, lock.lock()).await {
                Ok(result) => result.map(Ok),
                Err(_) => {
                    self.worker.log.end(op, How::Cancelled);
                    return None;
                }
            },
            _ => lock.lock().await.map(Ok),
        };
        self.granted(op, result, 1)
    }

    fn granted(
        &self,
        op: u64,
        result: Result<Result<Guard, NotAcquired>>,
        levels: u32,
    ) -> Option<Guard> {
        let (how, guard) = match result {
            Ok(Ok(guard)) => {
                let until = guard.valid_until().as_boot_nanos();
                let (hold, token, count) =
                    (guard.hold_id(), guard.fencing_token(), guard.hold_count());
                (How::Granted { hold, token, count, levels, until }, Some(guard))
            }
            Ok(Err(_)) => (How::Denied, None),
            Err(error) => (self.failed(&error), None),
        };
        self.worker.log.end(op, how);
        guard
    }

    fn failed(&self, error: &Error) -> How {
        How::Failed(word(error).to_owned())
    }

    async fn hold(&mut self, lock: &Lock, name: &str, first: Guard) {
        let mut guards = vec![first];
        self.worker.look(&guards[0]);
        for _ in 0..*self.chance.pick(&[1, 1, 1, 2, 3, 5]) {
            match self.chance.below(10) {
                0..=2 => self.write("t", name, &guards[0]).await,
                3..=5 => self.write("f", name, &guards[0]).await,
                6..=7 => {
                    if let Lock::Reentrant(lock) = lock {
                        self.nest(lock, name, &mut guards).await;
                    }
                }
                8 if guards.len() > 1 => self.release_one(name, &mut guards).await,
                _ => self.stay(&guards[0]).await,
            }
        }
        while !guards.is_empty() {
            self.release_one(name, &mut guards).await;
        }
    }

    async fn nest(&self, lock: &ReentrantLock, name: &str, guards: &mut Vec<Guard>) {
        let levels = u32::try_from(guards.len()).unwrap_or(u32::MAX) + 1;
        let hold = guards[0].hold_id();
        let op = self.worker.log.call(self.number, What::Nested, name, &hold, levels);
        let result = lock.lock().await.map(Ok);
        guards.extend(self.granted(op, result, levels));
    }

    /// Any of the guards; the levels are released in any order.
    async fn release_one(&mut self, name: &str, guards: &mut Vec<Guard>) {
        let guard = guards.swap_remove(self.chance.index(guards.len()));
        let (hold, left) = (guard.hold_id(), u32::try_from(guards.len()).unwrap_or(u32::MAX));
        self.worker.look(&guard);
        if self.chance.permille(250) {
            let op = self.worker.log.call(self.number, What::DropGuard, name, &hold, left);
            drop(guard);
            return self.worker.log.end(op, How::Released);
        }
        let op = self.worker.log.call(self.number, What::Unlock, name, &hold, left);
        let how = match guard.unlock().await {
            // Released, only not announced: whoever gets the lock next is held against it.
            Ok(()) | Err(Error::NotAnnounced { .. } | Error::KeyStillInUse { .. }) => How::Released,
            Err(error) => self.failed(&error),
        };
        self.worker.log.end(op, how);
    }

    /// Mostly short, now and then beyond the lease.
    async fn stay(&mut self, guard: &Guard) {
        let lease = self.worker.settings.lease;
        let long = match self.chance.below(100) {
            0..=1 => lease + lease.mul_f64(self.chance.below(100) as f64 / 100.0),
            2..=11 => Duration::from_micros(self.chance.range(5_000, 40_000)),
            _ => Duration::from_micros(self.chance.below(2_000)),
        };
        tokio::select! {
            reason = guard.lost() => {
                let (at, hold, reason) = (now(), guard.hold_id(), reason.as_str().to_owned());
                self.worker.log.write(&Event::Lost { at, hold, reason });
            }
            () = sleep(long) => {}
        }
        self.worker.look(guard);
    }

    /// Reads a counter and writes to it on top of what was read, each only if the guard says that
    /// the lock is held.
    async fn write(&mut self, which: &str, name: &str, guard: &Guard) {
        let what = format!("{which} {name} {} {}", guard.hold_id(), guard.fencing_token());
        if !self.worker.look(guard) {
            return;
        }
        let Some(version) = self.ask(&what).await else { return };
        if self.chance.permille(200) {
            self.pause(2_000).await;
        }
        if self.worker.look(guard) {
            // A slow write. It may arrive when the hold is over, whatever the guard said before.
            if self.chance.permille(30) {
                self.pause(u64::try_from(self.worker.settings.lease.as_micros()).unwrap_or(0))
                    .await;
            }
            self.ask(&format!("{what} {version}")).await;
        }
    }

    /// None: refused, or the store is gone.
    async fn ask(&mut self, what: &str) -> Option<u64> {
        self.store.get_mut().write_all(format!("{what}\n").as_bytes()).await.ok()?;
        let mut line = String::new();
        self.store.read_line(&mut line).await.ok()?;
        line.trim().parse().ok()
    }

    async fn pause(&mut self, most_us: u64) {
        sleep(Duration::from_micros(self.chance.below(most_us))).await;
    }
}
