//! One task of a worker: acquires, nests, writes to the store, releases. What is done to a lock of
//! some kind is in a file for it.

mod flight;
mod latch;
mod read_write;
mod redlock;
mod reentrant;
mod semaphore;

use std::sync::Arc;
use std::time::Duration;

use redis_reentrant_lock::Deadline;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::NotAcquired;
use redis_reentrant_lock::Result;
use tokio::time::sleep;
use tokio::time::timeout;

use self::flight::Cache;
use super::Worker;
use super::asking::Asking;
use super::word;
use crate::chance::Chance;
use crate::event::Event;
use crate::event::How;
use crate::event::What;
use crate::event::now;
use crate::kind::LockKind;
use crate::kind::Name;
use crate::kind::Share;

pub(super) struct Task<'a> {
    worker: &'a Worker,
    number: u32,
    chance: Chance,
    store: Asking,
    cache: Arc<Cache>,
}

/// A lock, and how much of it is wanted.
trait Wanted {
    type Guard: Held;

    async fn lock(&self) -> Result<Self::Guard>;
    async fn try_lock(&self) -> Result<Result<Self::Guard, NotAcquired>>;
    async fn with(&self, options: LockOptions) -> Result<Result<Self::Guard, NotAcquired>>;
}

/// What a task has of a lock.
trait Held {
    type Belief: Belief;

    fn guard(&self) -> &Self::Belief;
    async fn unlock(self) -> Result<()>;
}

/// Who says whether something is held.
pub(super) trait Belief {
    fn hold_id(&self) -> String;
    fn fencing_token(&self) -> u64;
    fn hold_count(&self) -> u32;
    fn is_held(&self) -> bool;
    fn valid_until(&self) -> Deadline;
    async fn lost(&self) -> LossReason;
}

impl Belief for Guard {
    fn hold_id(&self) -> String {
        self.hold_id()
    }

    fn fencing_token(&self) -> u64 {
        self.fencing_token()
    }

    fn hold_count(&self) -> u32 {
        self.hold_count()
    }

    fn is_held(&self) -> bool {
        self.is_held()
    }

    fn valid_until(&self) -> Deadline {
        self.valid_until()
    }

    async fn lost(&self) -> LossReason {
        self.lost().await
    }
}

impl<'a> Task<'a> {
    pub(super) fn new(worker: &'a Worker, number: u32, chance: Chance) -> Self {
        let store = || Asking::new(worker.settings.store.clone());
        let cache = Arc::new(Cache::new(store()));
        Self { worker, number, chance, store: store(), cache }
    }

    /// One hold, or an attempt at one.
    pub(super) async fn turn(&mut self) -> std::result::Result<(), String> {
        let name = self.chance.pick(&self.worker.settings.names).clone();
        let done = match name.kind {
            LockKind::Reentrant => self.reentrant(&name).await,
            LockKind::Fair => self.fair(&name).await,
            LockKind::ReadWrite => self.read_write(&name).await,
            LockKind::Semaphore => self.semaphore(&name).await,
            LockKind::Latch => self.latch(&name).await,
            LockKind::Flight => self.flight(&name).await,
            LockKind::Redlock => self.redlock(&name).await,
            #[cfg(test)]
            LockKind::Pair => Ok(()),
        };
        done.map_err(|error| error.to_string())
    }

    /// In one of the ways there are. If it comes to nothing, some time passes.
    async fn acquire<W: Wanted>(
        &mut self,
        wanted: &W,
        name: &Name,
        share: Share,
    ) -> Option<W::Guard> {
        let guard = self.try_to_acquire(wanted, name, share).await;
        if guard.is_none() {
            self.pause(5_000).await;
        }
        guard
    }

    async fn try_to_acquire<W: Wanted>(
        &mut self,
        wanted: &W,
        name: &Name,
        share: Share,
    ) -> Option<W::Guard> {
        let all = [What::Try, What::Lock, What::Lock, What::TryFor, What::Fixed, What::Dropped];
        let may = if self.worker.settings.waits_end { &all[..] } else { &all[..3] };
        let what = *self.chance.pick(may);
        let lease = self.worker.settings.lease;
        let wait = self.chance.time(500, 400_000);
        let op = self.worker.log.call(self.number, what, name, "-", share);
        let result = match what {
            What::Try => wanted.try_lock().await,
            What::TryFor => wanted.with(LockOptions::new().wait(wait)).await,
            What::Fixed => wanted.with(LockOptions::new().lease(lease).wait(wait * 2)).await,
            What::Dropped => match timeout(wait / 10, wanted.lock()).await {
                Ok(result) => result.map(Ok),
                Err(_) => {
                    self.worker.log.end(op, How::Cancelled);
                    return None;
                }
            },
            _ => wanted.lock().await.map(Ok),
        };
        self.granted(op, result, 1)
    }

    /// Writes the answer down. `levels`: how many guards of that hold the task has then.
    fn granted<G: Held>(
        &self,
        op: u64,
        result: Result<Result<G, NotAcquired>>,
        levels: u32,
    ) -> Option<G> {
        let how = match result {
            Ok(Ok(held)) => {
                self.log_grant(op, held.guard(), levels);
                return Some(held);
            }
            Ok(Err(_)) => How::Denied,
            Err(error) => self.failed(&error),
        };
        self.worker.log.end(op, how);
        None
    }

    fn log_grant(&self, op: u64, guard: &impl Belief, levels: u32) {
        let until = guard.valid_until().as_boot_nanos();
        let (hold, token, count) = (guard.hold_id(), guard.fencing_token(), guard.hold_count());
        self.worker.log.end(op, How::Granted { hold, token, count, levels, until });
    }

    fn failed(&self, error: &Error) -> How {
        How::Failed(word(error).to_owned())
    }

    /// `left` is what the task has of the hold without this guard.
    async fn release(&mut self, name: &Name, guard: impl Held, left: Share) {
        let hold = guard.guard().hold_id();
        self.worker.look(guard.guard());
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
    async fn stay(&mut self, guard: &impl Belief) {
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
    /// the lock is held. Returns what the counter is then, if it was written.
    async fn write(&mut self, which: &str, name: &Name, guard: &impl Belief) -> Option<u64> {
        let what = format!("{which} {} {} {}", name.text, guard.hold_id(), guard.fencing_token());
        if !self.worker.look(guard) {
            return None;
        }
        let version = self.ask(&what).await?;
        if self.chance.permille(200) {
            self.pause(2_000).await;
        }
        if !self.worker.look(guard) {
            return None;
        }
        // A slow write. It may arrive when the hold is over, whatever the guard said before.
        if self.chance.permille(30) {
            self.pause(u64::try_from(self.worker.settings.lease.as_micros()).unwrap_or(0)).await;
        }
        self.ask(&format!("{what} {version}")).await
    }

    /// None: refused, or the store is gone.
    async fn ask(&mut self, what: &str) -> Option<u64> {
        self.store.ask(what).await.ok()?.parse().ok()
    }

    async fn pause(&mut self, most_us: u64) {
        sleep(Duration::from_micros(self.chance.below(most_us))).await;
    }
}
