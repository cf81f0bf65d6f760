//! A function that locks calls another one that locks the same name: with a reentrant lock that is
//! fine.
//!
//! ```text
//! cargo run --example nested
//! ```
//!
//! `REDIS_URL` says where Redis is; without it, on this machine.

use std::error::Error;
use std::time::Duration;

use redis_reentrant_lock::LockClient;

type Outcome = Result<(), Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = LockClient::connect(&url).await?;

    transfer(&client).await?;

    assert!(!client.reentrant_lock("example:account")?.is_locked().await?);
    client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Takes the lock, and calls something that takes it too.
async fn transfer(client: &LockClient) -> Outcome {
    let lock = client.reentrant_lock("example:account")?;
    let guard = lock.lock().await?;
    println!("transfer: hold count {}, token {}", guard.hold_count(), guard.fencing_token());

    book(client, "debit").await?;
    book(client, "credit").await?;

    // Still held: each call has given back its own level only.
    assert!(guard.is_held());
    println!("transfer: hold count {}", guard.hold_count());
    guard.unlock().await?;
    println!("transfer: the last level is released, the key is gone");
    Ok(())
}

/// Right on its own, and right under a caller that has the lock already. The handle is made where
/// it is needed: what counts is the name, and the owner, which is this task.
async fn book(client: &LockClient, entry: &str) -> Outcome {
    let guard = client.reentrant_lock("example:account")?.lock().await?;
    println!("  {entry}: hold count {}, token {}", guard.hold_count(), guard.fencing_token());
    guard.unlock().await?;
    Ok(())
}
