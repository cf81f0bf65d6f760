//! Many tasks at once: on one name, or each on its own.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::Lock;
use crate::Mode;
use crate::Service;
use crate::now;
use crate::store::Store;

/// What a crowd does.
pub(crate) struct Crowd {
    pub(crate) tasks: u64,
    pub(crate) mode: Mode,
    /// Each on its own name.
    pub(crate) distinct: bool,
    /// Tells when somebody asked, was granted, and gave it up, each time.
    pub(crate) each: bool,
    pub(crate) times: Times,
    /// Where holders are counted, if they are.
    pub(crate) counter: Option<Arc<Store>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// For how long the crowd goes on.
    pub(crate) length: Duration,
    /// How long each keeps what it got.
    pub(crate) hold: Duration,
    /// How long each does without it then.
    pub(crate) pause: Duration,
}

/// What one task did: when it asked, was granted and gave it up, each time; and how many held it
/// at most, if they are counted.
#[derive(Default)]
struct Done {
    turns: Vec<[u64; 3]>,
    most: i64,
}

/// Each task takes and gives back for as long as the crowd goes on.
pub(crate) async fn run<S: Service>(service: &S, name: &str, crowd: Crowd) -> Value {
    let start = Arc::new(Barrier::new(usize::try_from(crowd.tasks).unwrap_or(usize::MAX)));
    let mut running = JoinSet::new();
    for task in 0..crowd.tasks {
        let own = if crowd.distinct { format!("{name}:{task}") } else { name.to_owned() };
        let lock = service.shared(&own, crowd.mode);
        if !crowd.distinct {
            lock.prepare().await;
        }
        let counted =
            Counted { counter: crowd.counter.clone(), name: own, by: permits(crowd.mode) };
        running.spawn(work(lock, Arc::clone(&start), crowd.times, counted));
    }
    let begin = now();
    let mut done = Vec::new();
    while let Some(own) = running.join_next().await {
        done.push(own.unwrap_or_default());
    }
    summary(&done, now() - begin, crowd.each)
}

fn summary(done: &[Done], took: u64, each: bool) -> Value {
    let turns = || done.iter().flat_map(|own| &own.turns);
    let mut waits: Vec<u64> = turns().map(|[asked, granted, _]| granted - asked).collect();
    waits.sort_unstable();
    let at = |share: usize| waits.get((waits.len().max(1) - 1) * share / 100).copied().unwrap_or(0);
    let mean = waits.iter().sum::<u64>() / u64::try_from(waits.len().max(1)).unwrap_or(1);
    let grants = || done.iter().map(|own| own.turns.len());
    let mut answer = json!({
        "grants": waits.len(), "ns": took, "mean": mean, "p50": at(50), "p95": at(95), "p99": at(99), "max": at(100),
        "least": grants().min(), "most": grants().max(),
        "held at most": done.iter().map(|own| own.most).max(),
    });
    if each {
        answer["turns"] = json!(turns().collect::<Vec<_>>());
    }
    answer
}

async fn work<L: Lock>(lock: L, start: Arc<Barrier>, times: Times, counted: Counted) -> Done {
    let mut done = Done::default();
    start.wait().await;
    let end = now() + u64::try_from(times.length.as_nanos()).unwrap_or(u64::MAX);
    loop {
        let asked = now();
        if asked >= end {
            return done;
        }
        let guard = lock.acquire().await;
        let granted = now();
        done.most = done.most.max(counted.enter().await);
        pass(times.hold).await;
        counted.leave().await;
        done.turns.push([asked, granted, now()]);
        L::release(guard).await;
        pass(times.pause).await;
    }
}

async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Holders, counted by another server than the one that grants.
struct Counted {
    counter: Option<Arc<Store>>,
    name: String,
    by: i64,
}

impl Counted {
    /// How many there are now.
    async fn enter(&self) -> i64 {
        match &self.counter {
            Some(counter) => counter.add(&self.name, self.by).await,
            None => 0,
        }
    }

    async fn leave(&self) {
        if let Some(counter) = &self.counter {
            counter.add(&self.name, -self.by).await;
        }
    }
}

fn permits(mode: Mode) -> i64 {
    match mode {
        Mode::Permits { want, .. } => i64::from(want),
        _ => 1,
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
