//! A Redlock over several independent servers.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::Deadline;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::NotAcquired;
use redis_reentrant_lock::Redlock;
use redis_reentrant_lock::RedlockGuard;
use redis_reentrant_lock::Result;
use tokio::time::Instant;
use tokio::time::timeout;

use super::Belief;
use super::Held;
use super::Task;
use super::Wanted;
use crate::event::Event;
use crate::event::now;
use crate::kind::Name;
use crate::kind::Share;

/// How often a guard is looked at that is held for long.
const EVERY: Duration = Duration::from_millis(2);

struct Lock<'a> {
    redlock: &'a Redlock,
    name: &'a str,
    /// Names the worker.
    client: &'a str,
}

/// On each server the field is another one, so that it has a name of ours in histories.
struct Majority {
    guard: RedlockGuard,
    id: String,
}

impl Lock<'_> {
    fn named(&self, guard: RedlockGuard) -> Majority {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Majority { guard, id: format!("{}/{number}", self.client) }
    }
}

impl Wanted for Lock<'_> {
    type Guard = Majority;

    async fn lock(&self) -> Result<Majority> {
        self.redlock.lock(self.name).await.map(|guard| self.named(guard))
    }

    async fn try_lock(&self) -> Result<Result<Majority, NotAcquired>> {
        Ok(self.redlock.try_lock(self.name).await?.map(|guard| self.named(guard)))
    }

    async fn with(&self, options: LockOptions) -> Result<Result<Majority, NotAcquired>> {
        Ok(self.redlock.lock_with(self.name, options).await?.map(|guard| self.named(guard)))
    }
}

impl Held for Majority {
    type Belief = Self;

    fn guard(&self) -> &Self {
        self
    }

    async fn unlock(self) -> Result<()> {
        self.guard.unlock().await
    }
}

impl Belief for Majority {
    fn hold_id(&self) -> String {
        self.id.clone()
    }

    fn fencing_token(&self) -> u64 {
        self.guard.fencing_token()
    }

    fn hold_count(&self) -> u32 {
        1
    }

    fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    fn valid_until(&self) -> Deadline {
        self.guard.valid_until()
    }

    async fn lost(&self) -> LossReason {
        self.guard.lost().await
    }
}

impl Task<'_> {
    pub(super) async fn redlock(&mut self, name: &Name) -> Result<()> {
        let worker = self.worker;
        let Some(redlock) = &worker.redlock else { return Ok(()) };
        let lock = Lock { redlock, name: &name.text, client: worker.client().id() };
        let Some(held) = self.acquire(&lock, name, Share::ONE).await else { return Ok(()) };
        worker.look(&held);
        for _ in 0..*self.chance.pick(&[1, 1, 2, 3]) {
            match self.chance.below(8) {
                0..=2 => drop(self.write("t", name, &held).await),
                3..=5 => drop(self.write("f", name, &held).await),
                6 => self.stay(&held).await,
                _ => self.believe(&held).await,
            }
        }
        self.release(name, held, Share::NOTHING).await;
        Ok(())
    }

    /// Up to a lease and a half, looking again and again, so that it is known until when it believes.
    async fn believe(&mut self, held: &Majority) {
        let lease = self.worker.settings.lease;
        let end = Instant::now() + lease.mul_f64(self.chance.below(150) as f64 / 100.0);
        while Instant::now() < end && self.worker.look(held) {
            if let Ok(reason) = timeout(EVERY, held.lost()).await {
                let (at, hold, reason) = (now(), held.hold_id(), reason.as_str().to_owned());
                return self.worker.log.write(&Event::Lost { at, hold, reason });
            }
        }
    }
}
