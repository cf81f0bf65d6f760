//! A cache entry expires under load: one request, of all instances, computes it again. The others
//! take the stale value, or wait for the fresh one if there is none.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example cache_refill
//! ```
//!
//! The lock only saves work here. So when its server is away, a request takes the stale value, too,
//! and without one, or when the lock is lost in the middle, it computes for itself. At SIGTERM a
//! service ends its requests and then its client, as `axum.rs` does.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::Lookup;
use tokio::task::JoinSet;
use tokio::time::Instant;

type Failure = Box<dyn Error + Send + Sync>;

/// A computation that takes longer is dropped, and another request computes.
const LIMIT: Duration = Duration::from_secs(5);

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
    let refill = locks.single_flight("price:refill")?.max_hold(LIMIT);
    let found =
        refill.run(async || Ok::<_, Infallible>(cache.look()), async |_| Ok(cache.compute().await));
    match found.await {
        Ok(Ok(found)) => Ok(found),
        // The lock's server is away, or the computation took too long: more work for the source is
        // better than no price.
        Err(error) => {
            tracing::warn!(%error, "computed without the lock");
            Ok(cache.compute().await)
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

    fn look(&self) -> Lookup<Found> {
        match self.fresh_until() {
            None => Lookup::Missing,
            Some(until) if Instant::now() < until => Lookup::Fresh(Found::Fresh),
            Some(_) => Lookup::Stale(Found::Stale),
        }
    }

    fn expire(&self) {
        self.set(Instant::now());
    }

    /// Something expensive.
    async fn compute(&self) -> Found {
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.computed.fetch_add(1, Ordering::SeqCst);
        self.set(Instant::now() + Duration::from_secs(60));
        Found::Fresh
    }

    fn computed(&self) -> u32 {
        self.computed.load(Ordering::SeqCst)
    }
}
