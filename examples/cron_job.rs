//! A job that every instance of a service starts on the same schedule, and that shall run once for each tick.
//!
//! Instances are never in step. If the first one releases the lock as soon as its fast run is over, the next one finds
//! it free a moment later and runs the job again. So the name stays taken for most of the period: a fixed lease, and a
//! guard that is kept until that lease has ended.
//!
//! ```text
//! cargo run --example cron_job          a service with its own schedule; two instances, two ticks
//! cargo run --example cron_job once     what a crontab starts: one run, then the process ends
//! ```
//!
//! `REDIS_URL` says where Redis is; without it, on this machine.

use std::error::Error;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    match std::env::args().nth(1).as_deref() {
        Some("once") => once(&url).await,
        _ => service(&url).await,
    }
}

/// Two instances of a service. The second one's clock is 200 ms behind.
async fn service(url: &str) -> Result<(), Failure> {
    // Shorter than the time between two ticks, longer than instances can be apart.
    let busy = Duration::from_millis(1500);
    let first = LockClient::connect(url).await?;
    let second = LockClient::connect(url).await?;
    let mut runs = 0;
    for tick in 1..=2 {
        let ran = run_unless_busy(&first, busy, "first").await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let again = run_unless_busy(&second, busy, "second").await?;
        println!("tick {tick}: first ran: {ran}, second ran: {again}");
        runs += u32::from(ran) + u32::from(again);
        tokio::time::sleep(busy).await;
    }
    assert_eq!(runs, 2, "once for each tick");
    // A shutdown releases what is held, so an instance that is stopped within `busy` gives the name up early.
    // Where that matters, wait for the guard's `lost` first.
    first.shutdown(Duration::from_secs(5)).await?;
    second.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// True if the job ran here.
async fn run_unless_busy(client: &LockClient, busy: Duration, who: &str) -> Result<bool, Failure> {
    // The lease is fixed: nobody renews it, and no crash ends it early.
    let options = LockOptions::new().lease(busy).wait(Duration::ZERO);
    let Ok(guard) = client.mutex("example:cron")?.lock_with(options).await? else {
        return Ok(false);
    };
    match guard.run(job(who)).await? {
        Ok(()) => {
            // Kept on purpose, until its lease has ended by itself.
            tokio::spawn(async move { guard.lost().await });
            Ok(true)
        }
        Err(failure) => {
            // Not done: let another instance try at once.
            guard.unlock().await?;
            Err(failure)
        }
    }
}

/// The whole process is one run. It must not give the lock back when it ends.
async fn once(url: &str) -> Result<(), Failure> {
    let client = LockClient::connect(url).await?;
    let options = LockOptions::new().lease(Duration::from_secs(10)).wait(Duration::ZERO);
    let Ok(guard) = client.mutex("example:cron-once")?.lock_with(options).await? else {
        println!("somebody has run it already");
        return Ok(());
    };
    guard.run(job("this process")).await??;
    // Without its destructor a guard releases nothing: the name stays busy until the lease ends, whoever looks, and
    // this process need not be there for it. No `shutdown` either: that would release it.
    std::mem::forget(guard);
    Ok(())
}

async fn job(who: &str) -> Result<(), Failure> {
    println!("{who}: running the job");
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(())
}
