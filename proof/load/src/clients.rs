//! Many clients in one process that wait for one lock.
//!
//! `wait NAME HOLD_US` has each of them wait; each grant is told when it is over.

use std::time::Duration;

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Result;
use serde_json::json;

use crate::Orders;
use crate::measure::boot_nanos;
use crate::say;

pub(crate) async fn run(url: &str, number: u64) -> Result<()> {
    let mut orders = Orders::new();
    let mut clients = Vec::new();
    for _ in 0..number {
        clients.push(LockClient::builder().url(url).driver(Driver::Current).connect().await?);
    }
    say(&json!({ "ready": true }));
    while let Some(order) = orders.next().await {
        let ["wait", name, hold_us] = order.split_whitespace().collect::<Vec<_>>()[..] else {
            break;
        };
        let hold = Duration::from_micros(hold_us.parse().expect("a number"));
        for client in &clients {
            tokio::spawn(serve(client.clone(), name.to_owned(), hold));
        }
        while clients.iter().any(|client| client.stats().waits == 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        say(&json!({ "waiting": number }));
    }
    Ok(())
}

async fn serve(client: LockClient, name: String, hold: Duration) -> Result<()> {
    let guard = client.mutex(&name)?.lock().await?;
    let granted = boot_nanos();
    tokio::time::sleep(hold).await;
    guard.unlock().await?;
    say(&json!({ "granted": granted }));
    Ok(())
}
