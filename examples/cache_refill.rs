//! A cache entry expires under load: one request, of all instances, computes it again. The others
//! take the stale value, or wait for the fresh one if there is none.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example cache_refill
//! ```
//!
//! The lock only saves work here. So when its server is away, or when it is lost in the middle, a
//! request takes the stale value, too, and without one it computes for itself. At SIGTERM a service
//! ends its requests and then its client, as `axum.rs` does.

use std::error::Error;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::LockOptions;
use tokio::task::JoinSet;
use tokio::time::Instant;

type Failure = Box<dyn Error + Send + Sync>;

/// How long a request waits for the one that computes. It computes for itself then.
const PATIENCE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // Two instances of a service, in front of the same cache. They start without Redis, too.
    let instance = || LockClientBuilder::from_env()?.prefix("example:").connect_lazy();
    let instances = [instance()?, instance()?];
    let cache = Arc::new(Cache::default());

    let cold = rush(&instances, &cache).await?;
    println!("nothing cached: {cold:?}, computed {} times", cache.computed());
    cache.expire();
    let expired = rush(&instances, &cache).await?;
    println!("expired: {expired:?}, computed {} times in all", cache.computed());

    for locks in instances {
        let stats = locks.stats();
        println!("{} grants, {} waits, {} losses", stats.grants, stats.waits, stats.losses);
        locks.shutdown(Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// Eight requests at once, over all instances.
async fn rush(instances: &[LockClient], cache: &Arc<Cache>) -> Result<Vec<Found>, Failure> {
    let mut requests = JoinSet::new();
    for locks in instances.iter().cycle().take(8) {
        let (locks, cache) = (locks.clone(), Arc::clone(cache));
        requests.spawn(async move { price(&locks, &cache).await });
    }
    let mut found = Vec::new();
    while let Some(request) = requests.join_next().await {
        found.push(request??);
    }
    Ok(found)
}

/// What a request does.
async fn price(locks: &LockClient, cache: &Cache) -> Result<Found, Failure> {
    if cache.is_fresh() {
        return Ok(Found::Fresh);
    }
    let wait = if cache.has_value() { Duration::ZERO } else { PATIENCE };
    let lock = locks.mutex("price:refill")?;
    let refill = lock.with_options(LockOptions::new().wait(wait), async |_| {
        // Whoever had the lock before may have done the work.
        if !cache.is_fresh() {
            cache.compute().await;
        }
    });
    match refill.await {
        Ok(Ok(())) => Ok(Found::Fresh),
        // Somebody is at it, or the lock's server is away: an old price is better than none.
        Ok(Err(_)) | Err(_) if cache.has_value() => Ok(Found::Stale),
        // Too long a wait, or no lock: more work for the source is better than no price.
        Ok(Err(_)) | Err(_) => {
            cache.compute().await;
            Ok(Found::Fresh)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Fresh,
    Stale,
}

/// Stands for whatever you cache in; the stale value stays readable after it has expired.
#[derive(Default)]
struct Cache {
    fresh_until: Mutex<Option<Instant>>,
    computed: AtomicU32,
}

impl Cache {
    fn fresh_until(&self) -> Option<Instant> {
        *self.fresh_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, until: Instant) {
        *self.fresh_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    fn is_fresh(&self) -> bool {
        self.fresh_until().is_some_and(|until| Instant::now() < until)
    }

    fn has_value(&self) -> bool {
        self.fresh_until().is_some()
    }

    fn expire(&self) {
        self.set(Instant::now());
    }

    /// Something expensive.
    async fn compute(&self) {
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.computed.fetch_add(1, Ordering::SeqCst);
        self.set(Instant::now() + Duration::from_secs(60));
    }

    fn computed(&self) -> u32 {
        self.computed.load(Ordering::SeqCst)
    }
}
