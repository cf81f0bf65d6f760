//! Holds that are about to be lost: is everybody told in time?
//!
//! Says `held`, then what it saw of each hold once all are lost. Margins count up to `valid_until`;
//! a negative one is a `lost()` that was later than that. What may never happen is `is_held()`
//! saying true past it: `held_too_long`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::Result;
use serde_json::json;
use tokio::task::JoinSet;

use crate::measure::boot_nanos;
use crate::measure::percentile;
use crate::say;

struct Watched {
    guard: Guard,
    /// To be asked `is_held()` all the time. The others are not, because asking tells: theirs are
    /// the margins.
    asked: bool,
    /// The latest end that it had.
    valid_until: AtomicU64,
    held_too_long: AtomicU64,
}

impl Watched {
    /// One look: an end that has passed, and then a hold all the same, is what must not be.
    fn look(&self) {
        let until = self.guard.valid_until().as_boot_nanos();
        let past = boot_nanos() > self.valid_until.fetch_max(until, Ordering::Relaxed).max(until);
        if self.asked && past && self.guard.is_held() {
            self.held_too_long.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(crate) async fn run(url: &str, number: u64, lease_ms: u64) -> Result<()> {
    let client =
        LockClient::builder().url(url).lease(Duration::from_millis(lease_ms)).connect().await?;
    let mut all = Vec::new();
    for at in 0..number {
        let guard = client.mutex(format!("load:loss:{at}"))?.lock().await?;
        let (valid_until, held_too_long) = (AtomicU64::new(0), AtomicU64::new(0));
        all.push(Arc::new(Watched { guard, asked: at % 2 == 0, valid_until, held_too_long }));
    }
    let mut signals = JoinSet::new();
    for watched in &all {
        signals.spawn(signal(Arc::clone(watched)));
    }
    say(&json!({ "held": number }));
    let looking = look_on(all.clone());
    let margin_ns = i64::try_from(lease_ms * 10_000 + 2_000_000).unwrap_or(i64::MAX);
    let (mut margins, mut reasons) = (Vec::new(), BTreeMap::<String, u64>::new());
    for (margin, reason, asked) in signals.join_all().await {
        if !asked {
            margins.push(margin);
        }
        *reasons.entry(format!("{reason:?}")).or_default() += 1;
    }
    looking.store(0, Ordering::Relaxed);
    margins.sort_unstable();
    let held_too_long: u64 =
        all.iter().map(|watched| watched.held_too_long.load(Ordering::Relaxed)).sum();
    say(&json!({
        "signals": number, "margins": margins.len(), "reasons": reasons, "held_too_long": held_too_long, "at_ns": boot_nanos(),
        "margin_min_us": percentile(&margins, 0) / 1_000, "margin_p50_us": percentile(&margins, 50) / 1_000,
        "after_valid_until": margins.iter().filter(|margin| **margin < 0).count(),
        "after_key_end": margins.iter().filter(|margin| **margin < -margin_ns).count(),
    }));
    // What is left of them cannot be released any more; nothing is to wait for that.
    std::process::exit(0);
}

/// How long before the end of its validity a loss was told.
async fn signal(watched: Arc<Watched>) -> (i64, LossReason, bool) {
    let reason = watched.guard.lost().await;
    let now = boot_nanos();
    watched.look();
    let until = watched.valid_until.load(Ordering::Relaxed);
    let margin = i128::from(until) - i128::from(now);
    (i64::try_from(margin).unwrap_or(i64::MIN), reason, watched.asked)
}

/// Looks at all of them about every millisecond, on a thread of its own, until told 0.
fn look_on(all: Vec<Arc<Watched>>) -> Arc<AtomicU64> {
    let go_on = Arc::new(AtomicU64::new(1));
    let told = Arc::clone(&go_on);
    std::thread::spawn(move || {
        while told.load(Ordering::Relaxed) == 1 {
            all.iter().for_each(|watched| watched.look());
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    go_on
}
