//! Critical sections on a counter in a file, which nothing but the lock protects.

use std::fmt::Display;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use redis_reentrant_lock::FairLock;
use redis_reentrant_lock::MultiLock;
use redis_reentrant_lock::Mutex;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::Redlock;
use redis_reentrant_lock::RwLock;
use redis_reentrant_lock::Semaphore;
use serde_json::Value;
use serde_json::json;

use crate::commands::sleep_here;
use crate::lock::Held;
use crate::output::Failure;
use crate::output::boot_ns;

/// The lock of the sections. Those of a reader do not change the counter.
pub(crate) enum Protects {
    Mutex(Mutex),
    Fair(FairLock),
    Read(RwLock),
    Write(RwLock),
    Permit(Semaphore),
    Multi(MultiLock),
    /// With the name.
    Majority(Redlock, String),
}

impl Protects {
    async fn lock(&self) -> redis_reentrant_lock::Result<Held> {
        Ok(match self {
            Self::Mutex(mutex) => Held::Lock(mutex.lock().await?),
            Self::Fair(lock) => Held::Lock(Owner::new().scope(lock.lock()).await?),
            Self::Read(lock) => Held::Read(lock.read().await?),
            Self::Write(lock) => Held::Write(lock.write().await?),
            Self::Permit(semaphore) => Held::Permits(semaphore.acquire().await?),
            Self::Multi(lock) => Held::Several(lock.lock().await?),
            Self::Majority(redlock, name) => Held::Majority(redlock.lock(name).await?),
        })
    }
}

pub(crate) struct Count {
    lock: Protects,
    until: u64,
    file: File,
    /// How long a section takes.
    work: Duration,
    /// What is between two sections.
    pause: Duration,
}

impl Count {
    pub(crate) fn new(
        lock: Protects,
        until: u64,
        path: &str,
        work: Duration,
        pause: Duration,
    ) -> Result<Self, Failure> {
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(|error| Failure::bad(format!("{path}: {error}")))?;
        Ok(Self { lock, until, file, work, pause })
    }

    /// Sections until the counter is as high as it is to be.
    pub(crate) async fn run(self) -> Result<Value, Failure> {
        let (mut sections, mut longest_ns, mut changed) = (Vec::new(), 0, 0);
        loop {
            let called_ns = boot_ns();
            let guard = self.lock.lock().await?;
            let granted_ns = boot_ns();
            longest_ns = longest_ns.max(granted_ns - called_ns);
            let number = self.read()?;
            if number >= self.until {
                guard.release().await?;
                let done = sections.len();
                return Ok(json!({
                    "done": done, "longest_wait_us": longest_ns / 1_000, "changed": changed,
                    "sections": sections,
                }));
            }
            if !self.work.is_zero() {
                sleep_here(self.work);
            }
            match self.lock {
                Protects::Read(_) => changed += u64::from(self.read()? != number),
                _ => self.write(number + 1)?,
            }
            sections.push([number, granted_ns, boot_ns()]);
            guard.release().await?;
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
        }
    }

    fn read(&self) -> Result<u64, Failure> {
        let mut text = [b' '; 32];
        self.file.read_at(&mut text, 0).map_err(|error| unusable(&error))?;
        let number = String::from_utf8_lossy(&text).trim_matches(['\0', ' ', '\n']).parse();
        number.map_err(|error: std::num::ParseIntError| unusable(&error))
    }

    fn write(&self, number: u64) -> Result<(), Failure> {
        let text = format!("{number:020}\n");
        self.file.write_all_at(text.as_bytes(), 0).map_err(|error| unusable(&error))
    }
}

fn unusable(error: &dyn Display) -> Failure {
    Failure::new("unavailable", format!("the counter: {error}"))
}
