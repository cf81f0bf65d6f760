//! Many waiters for one lock, in several such processes.
//!
//! `hold NAME` takes the lock; `wait NAME HOLD_US` lets all waiters wait; `release` begins it.

use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Mutex;
use redis_reentrant_lock::Result;
use serde_json::Value;
use serde_json::json;
use tokio::task::JoinSet;

use crate::Orders;
use crate::measure::boot_nanos;
use crate::measure::left;
use crate::say;

pub(crate) async fn run(url: &str, number: u64) -> Result<()> {
    let client = LockClient::connect(url).await?;
    let mut orders = Orders::new();
    let (mut held, mut crowd) = (None, JoinSet::new());
    say(&json!({ "ready": true }));
    while let Some(order) = orders.next().await {
        match order.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["hold", name] => {
                held = Some(client.mutex(name)?.lock().await?);
                say(&json!({ "held": true }));
            }
            ["wait", name, hold_us] => {
                let hold = Duration::from_micros(hold_us.parse().expect("a number"));
                for _ in 0..number {
                    crowd.spawn(serve(client.mutex(name)?, hold));
                }
                while client.stats().waiters < number {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                say(&json!({ "waiting": number }));
            }
            ["release"] => {
                if let Some(guard) = held.take() {
                    guard.unlock().await?;
                }
                say(&served(&client, &mut crowd).await?);
            }
            _ => break,
        }
    }
    say(&json!({ "left": left(&client).await }));
    Ok(())
}

/// When it was granted, when it was given back, by what token.
async fn serve(lock: Mutex, hold: Duration) -> Result<[u64; 3]> {
    let guard = lock.lock().await?;
    let (granted, token) = (boot_nanos(), guard.fencing_token());
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
    let released = boot_nanos();
    guard.unlock().await?;
    Ok([granted, released, token])
}

async fn served(client: &LockClient, crowd: &mut JoinSet<Result<[u64; 3]>>) -> Result<Value> {
    let mut grants = Vec::new();
    while let Some(done) = crowd.join_next().await {
        grants.push(done.expect("no panic")?);
    }
    let stats = client.stats();
    Ok(json!({
        "grants": grants, "fallback_grants": stats.fallback_grants, "renewals": stats.renewals,
        "hand_offs": stats.hand_offs, "losses": stats.losses,
    }))
}
