//! Takes a lock, works under it, gives it back.
//!
//! ```text
//! cargo run --example quickstart
//! ```
//!
//! `REDIS_URL` says where Redis is; without it, on this machine.

use std::error::Error;
use std::time::Duration;

use redis_reentrant_lock::LockClient;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());

    // One client for the whole process. It keeps the connections, and renews what is held.
    let client = LockClient::connect(&url).await?;

    // A lock is a name. Nothing is sent yet; a name that is not allowed is an error here.
    let lock = client.reentrant_lock("example:quickstart")?;

    // Waits until nobody else has it.
    let guard = lock.lock().await?;
    println!("locked {}, fencing token {}", guard.name(), guard.fencing_token());
    println!("held for {:?} even if no renewal gets through", guard.valid_until().remaining());

    // Ends the work if the lock is lost meanwhile; then this is an error.
    guard.run(work()).await?;

    // Dropping the guard releases too, in the background. `unlock` waits, and says how it went.
    guard.unlock().await?;
    println!("released; locked now: {}", lock.is_locked().await?);

    client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

async fn work() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}
