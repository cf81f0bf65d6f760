//! Exports put a load on a database that it can bear only twice at once, however many processes
//! make them. Each export takes a permit; a large one takes both.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example semaphore
//! ```
//!
//! Run it several times at once. It ends with 0 when its exports are done, and with an error if one
//! of them was lost. At SIGTERM it gives up what it has not done, and its permits are free at once.
//! Those of a process that is killed are free when their lease ends.

use std::error::Error;
use std::time::Duration;

use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Semaphore;
use redis_reentrant_lock::SemaphorePermit;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;
use tokio::task::JoinSet;

type Failure = Box<dyn Error + Send + Sync>;

/// How many exports the database bears.
const AT_ONCE: u32 = 2;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut terminated = signal(SignalKind::terminate())?;
    let locks = LockClientBuilder::from_env()?.prefix("example:").connect().await?;
    let slots = locks.semaphore("exports", AT_ONCE)?;

    let done = tokio::select! {
        done = all_exports(slots) => done,
        _ = terminated.recv() => Err("ended by SIGTERM".into()),
    };
    println!("{}", locks.shutdown(Duration::from_secs(5)).await?);
    done
}

async fn all_exports(slots: Semaphore) -> Result<(), Failure> {
    let mut exports = JoinSet::new();
    for number in 1..=5 {
        // The last one is large. It is not overtaken by exports that come later, here or elsewhere.
        let permits = if number == 5 { AT_ONCE } else { 1 };
        let slots = slots.clone();
        exports.spawn(async move {
            // Nobody waits for an export for longer than that.
            let options = LockOptions::new().wait(Duration::from_secs(60));
            // The work is dropped if its permits are lost.
            let work = async |held: &SemaphorePermit| export(number, held).await;
            slots.with_options(permits, options, work).await?.map_err(Failure::from)
        });
    }
    while let Some(done) = exports.join_next().await {
        done??;
    }
    Ok(())
}

/// `EXPORT_MS` makes it longer.
async fn export(number: u32, held: &SemaphorePermit) {
    println!("export {number} begins, with {} of {AT_ONCE} permits", held.permits());
    let time = std::env::var("EXPORT_MS").ok().and_then(|time| time.parse().ok());
    tokio::time::sleep(Duration::from_millis(time.unwrap_or(100))).await;
    println!("export {number} is done");
}
