//! Single flight: many tasks want a value that somebody computes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;
use tokio::task::JoinSet;

use crate::Service;
use crate::now;
use crate::store::Store;

/// A value that all processes look for, and how often this one has looked and computed.
#[derive(Debug)]
pub struct Cache {
    store: Store,
    key: String,
    /// How long a computation takes.
    takes: Duration,
    computed: AtomicU64,
    /// When the value was looked for and found.
    found: std::sync::Mutex<Vec<u64>>,
    /// When a computation had stored its value.
    stored_at: AtomicU64,
}

impl Cache {
    async fn connect(url: &str, name: &str, takes: Duration) -> Self {
        let (store, key) = (Store::connect(url).await, format!("value:{name}"));
        Self {
            store,
            key,
            takes,
            computed: AtomicU64::new(0),
            found: std::sync::Mutex::default(),
            stored_at: AtomicU64::new(0),
        }
    }

    /// Whether there is a value.
    pub async fn look(&self) -> bool {
        let there = self.store.exists(&self.key).await;
        if there {
            self.found.lock().expect("no task panics while it has this").push(now());
        }
        there
    }

    /// Computes the value and stores it.
    pub async fn compute(&self) {
        self.computed.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.takes).await;
        self.store.set(&self.key).await;
        self.stored_at.store(now(), Ordering::Relaxed);
    }
}

/// So many tasks want the value at once. Ends when all have it.
pub(crate) async fn run<S: Service>(
    service: &Arc<S>,
    name: &str,
    store: &str,
    tasks: u64,
    takes: Duration,
) -> Value {
    let cache = Arc::new(Cache::connect(store, name, takes).await);
    let mut wanting = JoinSet::new();
    for _ in 0..tasks {
        let (service, cache, name) = (Arc::clone(service), Arc::clone(&cache), name.to_owned());
        wanting.spawn(async move {
            service.flight(&name, &cache).await;
            now()
        });
    }
    let mut answered = 0;
    while let Some(at) = wanting.join_next().await {
        answered = answered.max(at.unwrap_or(u64::MAX));
    }
    json!({
        "computed": cache.computed.load(Ordering::Relaxed),
        "found": cache.found.lock().expect("no task panics while it has this").len(),
        "stored_at": cache.stored_at.load(Ordering::Relaxed),
        "answered": answered,
    })
}
