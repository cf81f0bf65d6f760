//! Permits of a semaphore, one or several at once.

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::NotAcquired;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::Semaphore;
use redis_reentrant_lock::SemaphorePermit;

use super::Held;
use super::Task;
use super::Wanted;
use crate::kind::Name;
use crate::kind::PERMITS;
use crate::kind::Share;

struct Permits {
    semaphore: Semaphore,
    wanted: u32,
}

impl Wanted for Permits {
    type Guard = SemaphorePermit;

    async fn lock(&self) -> Result<SemaphorePermit> {
        self.semaphore.acquire_many(self.wanted).await
    }

    async fn try_lock(&self) -> Result<Result<SemaphorePermit, NotAcquired>> {
        self.semaphore.try_acquire_many(self.wanted).await
    }

    async fn with(&self, options: LockOptions) -> Result<Result<SemaphorePermit, NotAcquired>> {
        self.semaphore.acquire_with(self.wanted, options).await
    }
}

impl Held for SemaphorePermit {
    type Belief = Guard;

    fn guard(&self) -> &Guard {
        self
    }

    async fn unlock(self) -> Result<()> {
        self.release().await
    }
}

impl Task<'_> {
    pub(super) async fn semaphore(&mut self, name: &Name) -> Result<()> {
        let wanted = *self.chance.pick(&[1, 1, 1, 2, PERMITS]);
        let semaphore = self.worker.client().semaphore(&name.text, PERMITS)?;
        let wanted = Permits { semaphore, wanted };
        let share = Share::levels(wanted.wanted);
        let Some(permit) = self.acquire(&wanted, name, share).await else { return Ok(()) };
        self.worker.look(permit.guard());
        for _ in 0..*self.chance.pick(&[0, 1, 1, 2]) {
            self.stay(permit.guard()).await;
        }
        self.release(name, permit, Share::NOTHING).await;
        Ok(())
    }
}
