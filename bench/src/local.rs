//! Tokio's own locks within one process: what no lock of several processes can reach.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use bench::Mode;
use tokio::sync::OwnedMutexGuard;
use tokio::sync::OwnedRwLockReadGuard;
use tokio::sync::OwnedRwLockWriteGuard;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::RwLock;
use tokio::sync::Semaphore;

#[derive(Default)]
pub(crate) struct Local(Mutex<Names>);

#[derive(Default)]
struct Names {
    mutexes: HashMap<String, Arc<tokio::sync::Mutex<()>>>,
    rw_locks: HashMap<String, Arc<RwLock<()>>>,
    semaphores: HashMap<String, Arc<Semaphore>>,
}

#[derive(Clone)]
pub(crate) enum Lock {
    Mutex(Arc<tokio::sync::Mutex<()>>),
    Read(Arc<RwLock<()>>),
    Write(Arc<RwLock<()>>),
    /// So many permits at once.
    Permits(Arc<Semaphore>, u32),
}

pub(crate) enum Held {
    Mutex(#[expect(dead_code, reason = "held")] OwnedMutexGuard<()>),
    Read(#[expect(dead_code, reason = "held")] OwnedRwLockReadGuard<()>),
    Write(#[expect(dead_code, reason = "held")] OwnedRwLockWriteGuard<()>),
    Permits(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
}

impl bench::Service for Local {
    type Lock = Lock;

    fn lock(&self, name: &str) -> Lock {
        self.shared(name, Mode::Lock)
    }

    fn shared(&self, name: &str, mode: Mode) -> Lock {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name.to_owned();
        match mode {
            // Tokio's mutex is fair.
            Mode::Lock | Mode::Fair => {
                Lock::Mutex(Arc::clone(names.mutexes.entry(name).or_default()))
            }
            Mode::Read => Lock::Read(Arc::clone(names.rw_locks.entry(name).or_default())),
            Mode::Write => Lock::Write(Arc::clone(names.rw_locks.entry(name).or_default())),
            Mode::Permits { want, of } => {
                let new = || Arc::new(Semaphore::new(usize::try_from(of).unwrap_or(0)));
                Lock::Permits(Arc::clone(names.semaphores.entry(name).or_insert_with(new)), want)
            }
            Mode::Multi { .. } => panic!("this kind has no multi-lock"),
        }
    }
}

impl bench::Lock for Lock {
    type Guard = Held;

    async fn acquire(&self) -> Held {
        match self {
            Self::Mutex(mutex) => Held::Mutex(Arc::clone(mutex).lock_owned().await),
            Self::Read(lock) => Held::Read(Arc::clone(lock).read_owned().await),
            Self::Write(lock) => Held::Write(Arc::clone(lock).write_owned().await),
            Self::Permits(semaphore, want) => {
                let permit = Arc::clone(semaphore).acquire_many_owned(*want).await;
                Held::Permits(permit.expect("the semaphore is never closed"))
            }
        }
    }

    async fn release(held: Held) {
        drop(held);
    }
}
