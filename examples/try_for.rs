//! Three ways to wait: not at all, for a while, and for as long as it takes.
//!
//! ```text
//! cargo run --example try_for
//! ```
//!
//! `REDIS_URL` says where Redis is; without it, on this machine.

use std::error::Error;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use tokio::sync::oneshot;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = LockClient::connect(&url).await?;
    let lock = client.reentrant_lock("example:try-for")?;

    // Another task has the lock. Another process would look the same from here.
    let guard = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    })
    .await??;

    // Somebody else has it: that is an answer, `NotAcquired`, and not an error.
    assert!(lock.try_lock().await?.is_err());
    println!("try_lock: taken, answered at once");

    let wait = Duration::from_millis(200);
    assert!(lock.try_lock_for(wait).await?.is_err());
    println!("try_lock_for: still taken after {wait:?}");

    // It is released while we wait: the release wakes us, nobody polls.
    let (waiting, begins) = oneshot::channel();
    let release = tokio::spawn(async move {
        let _ = begins.await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        guard.unlock().await
    });
    let _ = waiting.send(());
    match lock.try_lock_for(Duration::from_secs(10)).await? {
        Ok(guard) => {
            println!("try_lock_for: granted");
            guard.unlock().await?;
        }
        Err(not_acquired) => return Err(format!("after 10 s, {not_acquired}").into()),
    }
    release.await??;

    // `Err` is left for what is neither yes nor no: a server that does not answer, a key in other
    // use.
    client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
