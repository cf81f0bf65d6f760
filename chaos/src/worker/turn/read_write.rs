//! Reads and writes, which nest, and become each other.

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::NotAcquired;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::RwLock;
use redis_reentrant_lock::RwLockReadGuard;
use redis_reentrant_lock::RwLockWriteGuard;

use super::Held;
use super::Task;
use super::Wanted;
use crate::event::How;
use crate::event::What;
use crate::kind::Name;
use crate::kind::Share;

/// A wish to read, or to write.
struct Access<'a> {
    lock: &'a RwLock,
    writes: bool,
}

impl Access<'_> {
    fn share(&self) -> Share {
        if self.writes { Share::ONE } else { Share::READ }
    }
}

enum Level {
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
}

impl Wanted for Access<'_> {
    type Guard = Level;

    async fn lock(&self) -> Result<Level> {
        if self.writes {
            self.lock.write().await.map(Level::Write)
        } else {
            self.lock.read().await.map(Level::Read)
        }
    }

    async fn try_lock(&self) -> Result<Result<Level, NotAcquired>> {
        Ok(if self.writes {
            self.lock.try_write().await?.map(Level::Write)
        } else {
            self.lock.try_read().await?.map(Level::Read)
        })
    }

    async fn with(&self, options: LockOptions) -> Result<Result<Level, NotAcquired>> {
        Ok(if self.writes {
            self.lock.write_with(options).await?.map(Level::Write)
        } else {
            self.lock.read_with(options).await?.map(Level::Read)
        })
    }
}

impl Held for Level {
    type Belief = Guard;

    fn guard(&self) -> &Guard {
        match self {
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
        }
    }

    async fn unlock(self) -> Result<()> {
        match self {
            Self::Read(guard) => guard.unlock().await,
            Self::Write(guard) => guard.unlock().await,
        }
    }
}

impl Task<'_> {
    pub(super) async fn read_write(&mut self, name: &Name) -> Result<()> {
        let lock = self.worker.client().rw_lock(&name.text)?;
        let wish = Access { lock: &lock, writes: self.chance.permille(350) };
        if let Some(first) = self.acquire(&wish, name, wish.share()).await {
            self.read_and_write(&lock, name, first).await;
        }
        Ok(())
    }

    async fn read_and_write(&mut self, lock: &RwLock, name: &Name, first: Level) {
        let mut levels = vec![first];
        self.worker.look(levels[0].guard());
        for _ in 0..*self.chance.pick(&[1, 1, 1, 2, 3, 5]) {
            let writes = share(&levels).exclusive > 0;
            match self.chance.below(10) {
                // A counter protects its readers from nothing, so that only writers are told apart.
                0..=1 if writes => drop(self.write("t", name, levels[0].guard()).await),
                2..=3 if writes => drop(self.write("f", name, levels[0].guard()).await),
                4..=5 => self.nest_access(lock, name, &mut levels, writes).await,
                6 if writes && levels.len() == 1 => self.downgrade(name, &mut levels).await,
                6 if !writes => self.upgrade(name, &levels).await,
                7 if levels.len() > 1 => self.release_level(name, &mut levels).await,
                _ => self.stay(levels[0].guard()).await,
            }
            if levels.is_empty() {
                return;
            }
        }
        while !levels.is_empty() {
            self.release_level(name, &mut levels).await;
        }
    }

    /// Who writes may read and write once more, and who reads may read.
    async fn nest_access(
        &mut self,
        lock: &RwLock,
        name: &Name,
        levels: &mut Vec<Level>,
        writes: bool,
    ) {
        let wish = Access { lock, writes: writes && self.chance.permille(500) };
        let (had, more) = (share(levels), wish.share());
        let all =
            Share { exclusive: had.exclusive + more.exclusive, reads: had.reads + more.reads };
        let hold = levels[0].guard().hold_id();
        let op = self.worker.log.call(self.number, What::Nested, name, &hold, all);
        let result = wish.lock().await.map(Ok);
        levels.extend(self.granted(op, result, all.total()));
    }

    /// Any of the guards, but the last write only after all reads: when a drop of it ends the write
    /// would not be seen.
    async fn release_level(&mut self, name: &Name, levels: &mut Vec<Level>) {
        let had = share(levels);
        let may =
            |level: &Level| matches!(level, Level::Read(_)) || had.exclusive > 1 || had.reads == 0;
        let may: Vec<usize> = (0..levels.len()).filter(|index| may(&levels[*index])).collect();
        let level = levels.swap_remove(*self.chance.pick(&may));
        self.release(name, level, share(levels)).await;
    }

    async fn downgrade(&mut self, name: &Name, levels: &mut Vec<Level>) {
        let Some(Level::Write(write)) = levels.pop() else { return };
        let hold = write.hold_id();
        self.worker.look(write.guard());
        let op = self.worker.log.call(self.number, What::Downgrade, name, &hold, Share::READ);
        let how = match write.downgrade().await {
            Ok(read) => {
                levels.push(Level::Read(read));
                How::Released
            }
            // It was released instead.
            Err(error) => self.failed(&error),
        };
        self.worker.log.end(op, how);
    }

    /// Writes for a moment beside the read, if nobody else reads.
    async fn upgrade(&mut self, name: &Name, levels: &[Level]) {
        let Level::Read(read) = &levels[0] else { return };
        let hold = read.hold_id();
        let op = self.worker.log.call(self.number, What::Upgrade, name, &hold, Share::ONE);
        let upgraded = read.try_upgrade().await.map(|asked| asked.map(Level::Write));
        let Some(write) = self.granted(op, upgraded, 1) else { return };
        self.worker.look(write.guard());
        let which = *self.chance.pick(&["t", "f"]);
        let _written = self.write(which, name, write.guard()).await;
        self.release(name, write, Share::NOTHING).await;
    }
}

fn share(levels: &[Level]) -> Share {
    let writes = levels.iter().filter(|level| matches!(level, Level::Write(_))).count();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Share { exclusive: number(writes), reads: number(levels.len() - writes) }
}
