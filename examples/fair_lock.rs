//! Three tills sell the last tickets. Whoever asks first is served first, at whichever till; at a
//! plain lock, the buyers of a till that has just sold would be ahead of the others.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example fair_lock
//! ```
//!
//! It ends with 0 when the tickets went to those who came first.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use redis_reentrant_lock::FairLock;
use redis_reentrant_lock::LockClientBuilder;
use tokio::sync::Mutex;

type Failure = Box<dyn Error + Send + Sync>;

const BUYERS: usize = 9;
const TICKETS: usize = 5;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut tills = Vec::new();
    for _ in 0..3 {
        tills.push(LockClientBuilder::from_env()?.prefix("example:").connect().await?);
    }
    // The shop is closed while somebody has the lock, so that the buyers line up.
    let opening = tills[0].fair_lock("tickets")?.lock().await?;
    let sold = Arc::new(Mutex::new(Vec::new()));
    let mut buyers = Vec::new();
    for buyer in 0..BUYERS {
        let till = &tills[buyer % tills.len()];
        buyers.push(tokio::spawn(buy(till.fair_lock("tickets")?, buyer, Arc::clone(&sold))));
        // Each has come before the next one does.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    opening.unlock().await?;
    for buyer in buyers {
        buyer.await??;
    }
    let sold = sold.lock().await.clone();
    println!("sold to {sold:?}");
    for till in &tills {
        till.shutdown(Duration::from_secs(5)).await?;
    }
    if sold == [0, 1, 2, 3, 4] { Ok(()) } else { Err("somebody was overtaken".into()) }
}

/// The work is dropped if the lock is lost.
async fn buy(lock: FairLock, buyer: usize, sold: Arc<Mutex<Vec<usize>>>) -> Result<(), Failure> {
    let bought = lock
        .with(async |_| {
            let mut sold = sold.lock().await;
            let is_left = sold.len() < TICKETS;
            if is_left {
                sold.push(buyer);
            }
            is_left
        })
        .await?;
    println!("buyer {buyer} {}", if bought { "has a ticket" } else { "came too late" });
    Ok(())
}
