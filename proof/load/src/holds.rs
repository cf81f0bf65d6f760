//! Many watched holds at once: is any lost, and how late are they renewed?

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Result;
use serde_json::json;
use tokio::task::JoinSet;

use crate::measure::boot_nanos;
use crate::measure::cpu_ms;
use crate::measure::left;
use crate::measure::percentile;
use crate::measure::resident;
use crate::say;

/// Shorter than two renewals of one hold are apart.
const LOOK: Duration = Duration::from_millis(250);

pub(crate) async fn run(url: &str, number: u64, lease_ms: u64, seconds: u64) -> Result<()> {
    let client =
        LockClient::builder().url(url).lease(Duration::from_millis(lease_ms)).connect().await?;
    let before = resident();
    let guards = take(&client, number).await?;
    let memory = resident().saturating_sub(before) / number.max(1);
    say(&json!({ "held": guards.len(), "bytes_per_hold": memory }));

    let (cpu, began) = (cpu_ms(), boot_nanos());
    let stalls = Stalls::begin();
    let (mut late, least_left) = watch(&guards, lease_ms, seconds).await;
    let stall = stalls.longest();
    let (cpu, took) = (cpu_ms() - cpu, (boot_nanos() - began) / 1_000_000);
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    let stats = client.stats();
    late.sort_unstable();
    say(&json!({
        "lost": lost, "losses": stats.losses, "renewals": late.len(), "failures": stats.renewal_failures,
        "late_p50_us": percentile(&late, 50), "late_p99_us": percentile(&late, 99), "late_max_us": percentile(&late, 100),
        "least_left_ms": least_left / 1_000_000, "cpu_ms": cpu, "took_ms": took, "stall_us": stall / 1_000,
    }));
    drop(guards);
    say(&json!({ "left": left(&client).await }));
    Ok(())
}

/// How long the machine let a thread wait that wants to run every 5 ms: lateness that is not the
/// lock's.
struct Stalls(Arc<AtomicU64>);

impl Stalls {
    fn begin() -> Self {
        let longest = Arc::new(AtomicU64::new(0));
        let seen = Arc::downgrade(&longest);
        std::thread::spawn(move || {
            let mut last = boot_nanos();
            while let Some(seen) = seen.upgrade() {
                std::thread::sleep(Duration::from_millis(5));
                let now = boot_nanos();
                seen.fetch_max(now - last, Ordering::Relaxed);
                last = now;
            }
        });
        Self(longest)
    }

    fn longest(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

async fn take(client: &LockClient, number: u64) -> Result<Vec<Guard>> {
    let mut all = Vec::new();
    let mut names = (0..number).map(|at| format!("load:hold:{at}"));
    loop {
        let mut some = JoinSet::new();
        for name in names.by_ref().take(500) {
            let lock = client.mutex(name)?;
            some.spawn(async move { lock.lock().await });
        }
        if some.is_empty() {
            return Ok(all);
        }
        for guard in some.join_all().await {
            all.push(guard?);
        }
    }
}

/// How much later than a third of its lease each renewal was sent, in microseconds, as the new
/// `valid_until` tells; and the least time that a hold had left, in nanoseconds.
async fn watch(guards: &[Guard], lease_ms: u64, seconds: u64) -> (Vec<i64>, u64) {
    let until = |guard: &Guard| guard.valid_until().as_boot_nanos();
    let mut known: Vec<u64> = guards.iter().map(until).collect();
    let (mut late, mut least_left) = (Vec::new(), u64::MAX);
    let third = i64::try_from(lease_ms * 1_000 / 3).unwrap_or(i64::MAX);
    let end = boot_nanos() + seconds * 1_000_000_000;
    while boot_nanos() < end {
        tokio::time::sleep(LOOK).await;
        let now = boot_nanos();
        for (guard, known) in guards.iter().zip(&mut known) {
            let new = until(guard);
            least_left = least_left.min(new.saturating_sub(now));
            if new > *known {
                late.push(
                    (i64::try_from((new - *known) / 1_000).unwrap_or(i64::MAX) - third).max(0),
                );
                *known = new;
            }
        }
    }
    (late, least_left)
}
