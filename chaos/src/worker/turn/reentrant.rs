//! Reentrant locks and mutexes, on the same keys, and fair locks, which are used in the same way.

use redis_reentrant_lock::FairLock;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Mutex;
use redis_reentrant_lock::NotAcquired;
use redis_reentrant_lock::ReentrantLock;
use redis_reentrant_lock::Result;

use super::Held;
use super::Task;
use super::Wanted;
use crate::event::What;
use crate::kind::Name;
use crate::kind::Share;

enum Lock {
    Reentrant(ReentrantLock),
    Mutex(Mutex),
    Fair(FairLock),
}

impl Wanted for Lock {
    type Guard = Guard;

    async fn lock(&self) -> Result<Guard> {
        match self {
            Self::Reentrant(lock) => lock.lock().await,
            Self::Mutex(lock) => lock.lock().await,
            Self::Fair(lock) => lock.lock().await,
        }
    }

    async fn try_lock(&self) -> Result<Result<Guard, NotAcquired>> {
        match self {
            Self::Reentrant(lock) => lock.try_lock().await,
            Self::Mutex(lock) => lock.try_lock().await,
            Self::Fair(lock) => lock.try_lock().await,
        }
    }

    async fn with(&self, options: LockOptions) -> Result<Result<Guard, NotAcquired>> {
        match self {
            Self::Reentrant(lock) => lock.lock_with(options).await,
            Self::Mutex(lock) => lock.lock_with(options).await,
            Self::Fair(lock) => lock.lock_with(options).await,
        }
    }
}

impl Held for Guard {
    type Belief = Self;

    fn guard(&self) -> &Self {
        self
    }

    async fn unlock(self) -> Result<()> {
        Self::unlock(self).await
    }
}

impl Task<'_> {
    pub(super) async fn reentrant(&mut self, name: &Name) -> Result<()> {
        let client = self.worker.client();
        let lock = if self.chance.permille(750) {
            Lock::Reentrant(client.reentrant_lock(&name.text)?)
        } else {
            Lock::Mutex(client.mutex(&name.text)?)
        };
        self.use_of(&lock, name).await;
        Ok(())
    }

    /// A worker that takes plain locks stands in the same line, but not by its rules.
    pub(super) async fn fair(&mut self, name: &Name) -> Result<()> {
        let client = self.worker.client();
        let lock = if self.worker.settings.plain {
            Lock::Reentrant(client.reentrant_lock(&name.text)?)
        } else {
            Lock::Fair(client.fair_lock(&name.text)?)
        };
        self.use_of(&lock, name).await;
        Ok(())
    }

    async fn use_of(&mut self, lock: &Lock, name: &Name) {
        if let Some(guard) = self.acquire(lock, name, Share::ONE).await {
            self.hold(lock, name, guard).await;
        }
    }

    async fn hold(&mut self, lock: &Lock, name: &Name, first: Guard) {
        let mut guards = vec![first];
        self.worker.look(&guards[0]);
        for _ in 0..*self.chance.pick(&[1, 1, 1, 2, 3, 5]) {
            match self.chance.below(10) {
                0..=2 => drop(self.write("t", name, &guards[0]).await),
                3..=5 => drop(self.write("f", name, &guards[0]).await),
                6..=7 => {
                    if !matches!(lock, Lock::Mutex(_)) {
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

    async fn nest(&self, lock: &Lock, name: &Name, guards: &mut Vec<Guard>) {
        let levels = u32::try_from(guards.len()).unwrap_or(u32::MAX) + 1;
        let (hold, share) = (guards[0].hold_id(), Share::levels(levels));
        let op = self.worker.log.call(self.number, What::Nested, name, &hold, share);
        let result = lock.lock().await.map(Ok);
        guards.extend(self.granted(op, result, levels));
    }

    /// Any of the guards; the levels are released in any order.
    async fn release_one(&mut self, name: &Name, guards: &mut Vec<Guard>) {
        let guard = guards.swap_remove(self.chance.index(guards.len()));
        let left = Share::levels(u32::try_from(guards.len()).unwrap_or(u32::MAX));
        self.release(name, guard, left).await;
    }
}
