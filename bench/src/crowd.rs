//! Many tasks at once: on one name, or each on its own.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::Lock;
use crate::Service;
use crate::now;

/// What a crowd does.
pub(crate) struct Crowd {
    pub(crate) tasks: u64,
    /// Each on its own name.
    pub(crate) distinct: bool,
    /// Tells each wait: how long, and when somebody asked and was granted.
    pub(crate) each: bool,
    pub(crate) length: Duration,
    /// How long each keeps the lock.
    pub(crate) hold: Duration,
}

/// Each task locks and unlocks for `length`, with nothing in between but the time it keeps the
/// lock.
pub(crate) async fn run<S: Service>(service: &S, name: &str, crowd: Crowd) -> Value {
    let Crowd { tasks, distinct, each, length, hold } = crowd;
    let start = Arc::new(Barrier::new(usize::try_from(tasks).unwrap_or(usize::MAX)));
    let mut crowd = JoinSet::new();
    for task in 0..tasks {
        let lock = service.lock(&if distinct { format!("{name}:{task}") } else { name.to_owned() });
        if !distinct {
            lock.prepare().await;
        }
        crowd.spawn(work(lock, Arc::clone(&start), length, hold));
    }
    let begin = now();
    let (mut turns, mut grants) = (Vec::new(), Vec::new());
    while let Some(done) = crowd.join_next().await {
        let own: Vec<[u64; 2]> = done.unwrap_or_default();
        grants.push(own.len());
        turns.extend(own);
    }
    let mut waits: Vec<u64> = turns.iter().map(|[asked, granted]| granted - asked).collect();
    let took = now() - begin;
    waits.sort_unstable();
    let at = |share: usize| waits.get((waits.len().max(1) - 1) * share / 100).copied().unwrap_or(0);
    let mean = waits.iter().sum::<u64>() / u64::try_from(waits.len().max(1)).unwrap_or(1);
    let mut answer = json!({
        "grants": waits.len(), "ns": took, "mean": mean, "p50": at(50), "p95": at(95), "p99": at(99), "max": at(100),
        "least": grants.iter().min(), "most": grants.iter().max(),
    });
    if each {
        answer["waits"] = json!(waits);
        answer["turns"] = json!(turns);
    }
    answer
}

/// When it asked, and when it was granted, each time.
async fn work<L: Lock>(
    lock: L,
    start: Arc<Barrier>,
    length: Duration,
    hold: Duration,
) -> Vec<[u64; 2]> {
    let mut waits = Vec::new();
    start.wait().await;
    let end = now() + u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    loop {
        let asked = now();
        if asked >= end {
            return waits;
        }
        let guard = lock.acquire().await;
        waits.push([asked, now()]);
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
        }
        L::release(guard).await;
    }
}

/// `tasks` of them wait for one name; each gets it once. Ends when all have had it.
pub(crate) async fn queue<S: Service>(service: &S, name: &str, tasks: u64) -> Value {
    let begin = now();
    let mut crowd = JoinSet::new();
    let lock = service.lock(name);
    lock.prepare().await;
    for _ in 0..tasks {
        let lock = lock.clone();
        crowd.spawn(async move { S::Lock::release(lock.acquire().await).await });
    }
    while crowd.join_next().await.is_some() {}
    json!({ "begin": begin, "end": now() })
}
