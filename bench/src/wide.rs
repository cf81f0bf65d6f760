//! Many locks held at once, and dropped at once.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use serde_json::Value;
use serde_json::json;
use tokio::task::JoinSet;

use crate::Lock;
use crate::Mode;
use crate::Service;
use crate::now;

pub(crate) type Guards<S> = Mutex<Vec<<<S as Service>::Lock as Lock>::Guard>>;

/// What is taken and kept.
#[derive(Clone, Copy)]
pub(crate) struct Many {
    pub(crate) count: u64,
    /// How many tasks take them.
    pub(crate) at_once: u64,
    pub(crate) mode: Mode,
    /// All of one name, instead of each of its own.
    pub(crate) one_name: bool,
}

/// Takes many, and keeps them.
pub(crate) async fn hold<S: Service>(
    service: &Arc<S>,
    guards: &Arc<Guards<S>>,
    name: &str,
    many: Many,
) -> Value {
    let Many { count, at_once, mode, one_name } = many;
    let begin = now();
    let next = Arc::new(AtomicU64::new(0));
    let mut takers = JoinSet::new();
    for _ in 0..at_once.min(count) {
        let (service, guards, next) = (Arc::clone(service), Arc::clone(guards), Arc::clone(&next));
        let name = name.to_owned();
        takers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                let own = if one_name { name.clone() } else { format!("{name}:{number}") };
                let guard = service.shared(&own, mode).acquire().await;
                guards.lock().unwrap_or_else(PoisonError::into_inner).push(guard);
            }
        });
    }
    while takers.join_next().await.is_some() {}
    json!({ "begin": begin, "end": now(), "held": guards.lock().unwrap_or_else(PoisonError::into_inner).len() })
}

/// Drops them all, without a release.
pub(crate) fn drop_all<S: Service>(guards: &Guards<S>) -> Value {
    let all = std::mem::take(&mut *guards.lock().unwrap_or_else(PoisonError::into_inner));
    let begin = now();
    drop(all);
    json!({ "begin": begin, "end": now() })
}

/// Releases them one after the other.
pub(crate) async fn release_all<S: Service>(guards: &Guards<S>) -> Value {
    let all = std::mem::take(&mut *guards.lock().unwrap_or_else(PoisonError::into_inner));
    let begin = now();
    for guard in all {
        S::Lock::release(guard).await;
    }
    json!({ "begin": begin, "end": now() })
}
