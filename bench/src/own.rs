//! What this crate has: the mutex, the fair lock, the read-write lock, the semaphore, the multi-lock,
//! the single flight.

use std::convert::Infallible;
use std::hash::BuildHasher;
use std::hash::Hasher;
use std::hash::RandomState;

use bench::Cache;
use bench::Mode;
use redis_reentrant_lock::FairLock;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Lookup;
use redis_reentrant_lock::MultiGuard;
use redis_reentrant_lock::MultiLock;
use redis_reentrant_lock::Mutex;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::RwLock;
use redis_reentrant_lock::RwLockReadGuard;
use redis_reentrant_lock::RwLockWriteGuard;
use redis_reentrant_lock::Semaphore;
use redis_reentrant_lock::SemaphorePermit;

pub(crate) struct Own(pub(crate) LockClient);

#[derive(Clone)]
pub(crate) enum Lock {
    Mutex(Mutex),
    Fair(FairLock),
    Read(RwLock),
    Write(RwLock),
    /// So many permits at once.
    Permits(Semaphore, u32),
    Multi(MultiLock),
    /// So many of them at once, chosen anew each time.
    Some(Vec<Mutex>, usize),
}

pub(crate) enum Held {
    Mutex(Guard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permits(SemaphorePermit),
    Multi(MultiGuard),
}

impl bench::Service for Own {
    type Lock = Lock;

    fn lock(&self, name: &str) -> Lock {
        self.shared(name, Mode::Lock)
    }

    fn shared(&self, name: &str, mode: Mode) -> Lock {
        let rw_lock = || self.0.rw_lock(name).expect("a name");
        match mode {
            Mode::Lock => Lock::Mutex(self.0.mutex(name).expect("a name")),
            Mode::Fair => Lock::Fair(self.0.fair_lock(name).expect("a name")),
            Mode::Read => Lock::Read(rw_lock()),
            Mode::Write => Lock::Write(rw_lock()),
            Mode::Permits { want, of } => {
                Lock::Permits(self.0.semaphore(name, of).expect("a name and a number"), want)
            }
            Mode::Multi { want, of } => {
                let all: Vec<Mutex> = (0..of)
                    .map(|number| self.0.mutex(format!("{name}:{number}")).expect("a name"))
                    .collect();
                if want == of { Lock::Multi(multi(all)) } else { Lock::Some(all, want as usize) }
            }
        }
    }

    async fn flight(&self, name: &str, cache: &Cache) {
        let flight = self.0.single_flight(name).expect("a name");
        let look = async || {
            let found = cache.look().await;
            Ok::<_, Infallible>(if found { Lookup::Fresh(()) } else { Lookup::Missing })
        };
        let compute = async |_: &Guard| {
            cache.compute().await;
            Ok(())
        };
        let Ok(()) = flight.run(look, compute).await.expect("a value");
    }
}

impl bench::Lock for Lock {
    type Guard = Held;

    async fn acquire(&self) -> Held {
        match self {
            Self::Mutex(mutex) => Held::Mutex(mutex.lock().await.expect("locked")),
            // Each is an owner of its own, also where one task takes many.
            Self::Fair(lock) => Held::Mutex(Owner::new().scope(lock.lock()).await.expect("locked")),
            Self::Read(lock) => Held::Read(Owner::new().scope(lock.read()).await.expect("a read")),
            Self::Write(lock) => {
                Held::Write(Owner::new().scope(lock.write()).await.expect("a write"))
            }
            Self::Permits(semaphore, want) => {
                Held::Permits(semaphore.acquire_many(*want).await.expect("permits"))
            }
            Self::Multi(lock) => Held::Multi(lock.lock().await.expect("locked")),
            Self::Some(all, want) => {
                let lock = multi(some_of(all, *want));
                Held::Multi(lock.lock().await.expect("locked"))
            }
        }
    }

    async fn release(held: Held) {
        let done = match held {
            Held::Mutex(guard) => guard.unlock().await,
            Held::Read(guard) => guard.unlock().await,
            Held::Write(guard) => guard.unlock().await,
            Held::Permits(permit) => permit.release().await,
            Held::Multi(guard) => guard.unlock().await,
        };
        done.expect("given back");
    }
}

fn multi(members: Vec<Mutex>) -> MultiLock {
    MultiLock::new(members.into_iter().map(Into::into)).expect("different names")
}

/// So many of them, any of them.
fn some_of(all: &[Mutex], want: usize) -> Vec<Mutex> {
    let mut rest = all.to_vec();
    let mut random = RandomState::new().build_hasher().finish();
    while rest.len() > want {
        let at = random % rest.len() as u64;
        random /= rest.len() as u64;
        rest.swap_remove(usize::try_from(at).expect("an index"));
    }
    rest
}
