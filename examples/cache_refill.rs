//! A cache entry expires under load: one process computes it again, the others take the stale value, or wait for the
//! fresh one if there is none.
//!
//! ```text
//! cargo run --example cache_refill
//! ```
//!
//! `REDIS_URL` says where Redis is; without it, on this machine.

use std::error::Error;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use tokio::task::JoinSet;
use tokio::time::Instant;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    // Two instances of a service, in front of the same cache.
    let instances = [LockClient::connect(&url).await?, LockClient::connect(&url).await?];
    let cache = Arc::new(Cache::default());

    let cold = rush(&instances, &cache).await?;
    println!("nothing cached: {cold:?}, computed {} times", cache.computed());
    assert_eq!(cold, [Found::Fresh; 8], "all but one have waited");
    assert_eq!(cache.computed(), 1);

    cache.expire();
    let stale = rush(&instances, &cache).await?;
    println!("expired: {stale:?}, computed {} times in all", cache.computed());
    assert_eq!(cache.computed(), 2);

    for client in instances {
        client.shutdown(Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// Eight requests at once, over all instances.
async fn rush(instances: &[LockClient], cache: &Arc<Cache>) -> Result<Vec<Found>, Failure> {
    let mut requests = JoinSet::new();
    for client in instances.iter().cycle().take(8) {
        let (client, cache) = (client.clone(), Arc::clone(cache));
        requests.spawn(async move { price(&client, &cache).await });
    }
    let mut found = Vec::new();
    while let Some(request) = requests.join_next().await {
        found.push(request??);
    }
    Ok(found)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Fresh,
    Stale,
}

/// What a request does.
async fn price(client: &LockClient, cache: &Cache) -> Result<Found, Failure> {
    if cache.is_fresh() {
        return Ok(Found::Fresh);
    }
    let refill = client.mutex("example:price:refill")?;
    let guard = match refill.try_lock().await {
        Ok(Ok(guard)) => guard,
        // Somebody is at it, or Redis is away: an old price is better than none.
        Ok(Err(_)) | Err(_) if cache.has_value() => return Ok(Found::Stale),
        // Nothing to fall back on: wait, but not forever.
        Ok(Err(_)) => refill.try_lock_for(Duration::from_secs(5)).await??,
        Err(error) => return Err(error.into()),
    };
    // Look again: whoever had the lock before us may have done the work.
    if !cache.is_fresh() {
        cache.compute().await;
    }
    guard.unlock().await?;
    Ok(Found::Fresh)
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
