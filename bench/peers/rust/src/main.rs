//! Other lock crates at their defaults: `peers KIND URL THREADS`; `rslock` takes several URLs with
//! commas between them.

use std::sync::Arc;
use std::time::Duration;

use bench::Mode;
use tokio::runtime::Builder;

/// Where a crate has no default: the one that the others have.
const TTL: Duration = Duration::from_secs(10);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, url, threads] = args.as_slice() else { panic!("peers KIND URL THREADS") };
    let threads = threads.parse().expect("a number of threads");
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("a runtime");
    match kind.as_str() {
        "rlock" => {
            let client =
                runtime.block_on(rlock::async_lock::RLock::new(url.as_str())).expect("connected");
            bench::serve(&runtime, Rlock(Arc::new(client)));
        }
        "rslock" => {
            let _entered = runtime.enter();
            bench::serve(&runtime, Rslock(rslock::LockManager::new(url.split(',').map(str::to_owned).collect())));
        }
        "async-redis-lock" => {
            let locker =
                runtime.block_on(async_redis_lock::Locker::from_redis_url(url)).expect("connected");
            bench::serve(&runtime, AsyncRedisLock(locker));
        }
        other => panic!("no such kind: {other}"),
    }
}

#[derive(Clone)]
struct Named<C>(C, Arc<str>);

struct Rlock(Arc<rlock::async_lock::RLock>);

#[derive(Clone)]
struct RlockLock(Named<Arc<rlock::async_lock::RLock>>, Mode);

enum RlockGuard {
    Lock(rlock::async_lock::RLockGuard),
    Read(rlock::async_lock::RReadLockGuard),
    Write(rlock::async_lock::RWriteLockGuard),
}

impl bench::Service for Rlock {
    type Lock = RlockLock;

    fn lock(&self, name: &str) -> RlockLock {
        self.shared(name, Mode::Lock)
    }

    fn shared(&self, name: &str, mode: Mode) -> RlockLock {
        RlockLock(Named(Arc::clone(&self.0), name.into()), mode)
    }
}

impl bench::Lock for RlockLock {
    type Guard = RlockGuard;

    async fn acquire(&self) -> RlockGuard {
        let Self(Named(client, name), mode) = self;
        match mode {
            Mode::Lock => RlockGuard::Lock(client.acquire_mutex(name).await.expect("locked")),
            Mode::Read => RlockGuard::Read(client.acquire_read(name).await.expect("a read")),
            Mode::Write => RlockGuard::Write(client.acquire_write(name).await.expect("a write")),
            mode => panic!("it has no {mode:?}"),
        }
    }

    async fn release(guard: RlockGuard) {
        let done = match guard {
            RlockGuard::Lock(mut guard) => guard.release().await,
            RlockGuard::Read(mut guard) => guard.release().await,
            RlockGuard::Write(mut guard) => guard.release().await,
        };
        done.expect("unlocked");
    }
}

struct Rslock(rslock::LockManager);

impl bench::Service for Rslock {
    type Lock = Named<rslock::LockManager>;

    fn lock(&self, name: &str) -> Self::Lock {
        Named(self.0.clone(), name.into())
    }
}

impl bench::Lock for Named<rslock::LockManager> {
    type Guard = (rslock::LockManager, rslock::Lock);

    async fn acquire(&self) -> Self::Guard {
        loop {
            // Gives up after three attempts by itself.
            if let Ok(lock) = self.0.lock(self.1.as_bytes(), TTL).await {
                return (self.0.clone(), lock);
            }
        }
    }

    async fn release((manager, lock): Self::Guard) {
        manager.unlock(&lock).await;
    }
}

struct AsyncRedisLock(async_redis_lock::Locker);

impl bench::Service for AsyncRedisLock {
    type Lock = Named<async_redis_lock::Locker>;

    fn lock(&self, name: &str) -> Self::Lock {
        Named(self.0.clone(), name.into())
    }
}

impl bench::Lock for Named<async_redis_lock::Locker> {
    type Guard = async_redis_lock::Lock;

    async fn acquire(&self) -> Self::Guard {
        loop {
            // Gives up after its own time limit.
            if let Ok(lock) = self.0.acquire(&*self.1).await {
                return lock;
            }
        }
    }

    async fn release(guard: Self::Guard) {
        guard.release().await.expect("unlocked");
    }
}
