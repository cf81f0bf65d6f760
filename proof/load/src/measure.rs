//! Clocks, memory, processor time, orders of magnitude.

use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Stats;
use serde_json::Value;
use serde_json::json;

/// The clock of `Deadline::as_boot_nanos`.
pub(crate) fn boot_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Resident memory in bytes; pages are of 4 KiB wherever this runs.
pub(crate) fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

/// Processor time so far in milliseconds.
pub(crate) fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10
}

/// The value that so many in a hundred do not exceed.
pub(crate) fn percentile(sorted: &[i64], percent: usize) -> i64 {
    sorted.get((sorted.len().max(1) - 1) * percent / 100).copied().unwrap_or(0)
}

/// Slope of a straight line through points.
pub(crate) fn slope(points: &[(f64, f64)]) -> f64 {
    let number = points.iter().map(|_| 1.0).sum::<f64>().max(1.0);
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / number;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / number;
    let above: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let below: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if below == 0.0 { 0.0 } else { above / below }
}

/// What a client still has, once it has had the time to give everything back.
pub(crate) async fn left(client: &LockClient) -> Value {
    let all = |stats: &Stats| {
        stats.holds
            + stats.waiters
            + stats.registered_renewals
            + stats.subscriptions
            + stats.clean_ups
    };
    for _ in 0..600 {
        if all(&client.stats()) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let stats = client.stats();
    json!({
        "holds": stats.holds, "waiters": stats.waiters, "renewals": stats.registered_renewals,
        "subscriptions": stats.subscriptions, "clean_ups": stats.clean_ups, "all": all(&stats),
    })
}
