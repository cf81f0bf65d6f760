//! Locks and unlocks without end, and futures that are dropped on the way: does anything stay?

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Result;
use serde_json::json;
use tokio::task::JoinSet;

use crate::measure::cpu_ms;
use crate::measure::left;
use crate::measure::resident;
use crate::measure::slope;
use crate::say;

const WORKERS: u64 = 48;
const CANCELLERS: u64 = 16;
/// Names that somebody else has all the time.
const BUSY: u64 = 8;

#[derive(Default)]
struct Done {
    pairs: AtomicU64,
    cancelled: AtomicU64,
}

impl Done {
    fn all(&self) -> u64 {
        self.pairs.load(Ordering::Relaxed) + self.cancelled.load(Ordering::Relaxed)
    }
}

pub(crate) async fn run(url: &str, pairs: u64, cancellations: u64) -> Result<()> {
    let (client, other) = (LockClient::connect(url).await?, LockClient::connect(url).await?);
    let mut busy = Vec::new();
    for at in 0..BUSY {
        busy.push(other.mutex(format!("load:busy:{at}"))?.lock().await?);
    }
    let done = Arc::new(Done::default());
    let mut tasks = JoinSet::new();
    for worker in 0..WORKERS {
        tasks.spawn(lock_and_unlock(
            client.clone(),
            worker,
            pairs / WORKERS + 1,
            Arc::clone(&done),
        ));
    }
    for worker in 0..CANCELLERS {
        let share = pairs / cancellations.max(1);
        tasks.spawn(cancel(
            client.clone(),
            worker,
            cancellations / CANCELLERS + 1,
            share,
            Arc::clone(&done),
        ));
    }
    let points = measure(&mut tasks, &done).await?;
    drop(busy);
    let half = done.all() / 2;
    let second: Vec<(f64, f64)> = points
        .iter()
        .filter(|(all, _)| *all >= half)
        .map(|&(all, bytes)| (all as f64, bytes as f64))
        .collect();
    let at = |index: usize| points.get(index).map_or(0, |point| point.1);
    let (ours, others) = (left(&client).await, left(&other).await);
    say(&json!({
        "pairs": done.pairs.load(Ordering::Relaxed), "cancelled": done.cancelled.load(Ordering::Relaxed),
        "bytes_per_operation": slope(&second), "points": second.len(), "cpu_ms": cpu_ms(),
        "resident_at_half": at(points.len() - second.len()), "resident_at_end": at(points.len() - 1),
        "left": ours, "left_of_other": others, "losses": client.stats().losses, "undone": client.stats().undone_grants,
    }));
    Ok(())
}

/// Operations done and memory in use, again and again until all is done.
async fn measure(tasks: &mut JoinSet<Result<()>>, done: &Done) -> Result<Vec<(u64, u64)>> {
    let mut points = vec![(0, resident())];
    loop {
        let next = tokio::time::timeout(Duration::from_millis(200), tasks.join_next()).await;
        points.push((done.all(), resident()));
        match next {
            Ok(None) => return Ok(points),
            Ok(Some(ended)) => ended.expect("no panic")?,
            Err(_) => {}
        }
    }
}

/// Half of the names are never used again, half are one for each worker.
async fn lock_and_unlock(
    client: LockClient,
    worker: u64,
    number: u64,
    done: Arc<Done>,
) -> Result<()> {
    for at in 0..number {
        let name = if at % 2 == 0 {
            format!("load:own:{worker}")
        } else {
            format!("load:once:{worker}:{at}")
        };
        client.mutex(name)?.lock().await?.unlock().await?;
        done.pairs.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Futures dropped after some turns of the runtime: of a name that another has, of one that is
/// free, of one that the other cancellers want too.
async fn cancel(
    client: LockClient,
    worker: u64,
    number: u64,
    share: u64,
    done: Arc<Done>,
) -> Result<()> {
    let (mut at, mut cancelled) = (worker, 0);
    while cancelled < number {
        // Spread over the whole run, so that what they leave would show in its second half.
        while done.cancelled.load(Ordering::Relaxed) * share
            > done.pairs.load(Ordering::Relaxed) + 1_000
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        at += 1;
        let (name, turns) = match at % 3 {
            0 => (format!("load:busy:{}", at % BUSY), at % 50),
            1 => (format!("load:once:c{worker}:{at}"), at % 7),
            _ => (format!("load:shared:{}", at % 5), at % 20),
        };
        let lock = client.mutex(name)?;
        tokio::select! {
            biased;
            guard = lock.lock() => guard?.unlock().await?,
            () = turn(turns) => {
                cancelled += 1;
                done.cancelled.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

async fn turn(turns: u64) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}
