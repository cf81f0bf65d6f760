//! A job that every instance of a service starts on the same schedule, and that shall run once for each tick.
//!
//! Instances are never in step. If the first one frees the name as soon as its fast run is over, the next one finds it
//! free a moment later and runs the job again. So the name stays taken for most of the period: `at_least`, however fast
//! the run is and whatever becomes of the instance.
//!
//! ```text
//! cargo run --example cron_job          a service with its own schedule; two instances, two ticks
//! cargo run --example cron_job once     what a crontab starts: one run, then the process ends
//! ```
//!
//! `REDIS_URL` says where Redis is; without it, on this machine.

use std::error::Error;
use std::time::Duration;

use redis_reentrant_lock::Holder;
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
    // An instance that is stopped keeps the name taken, too.
    first.shutdown(Duration::from_secs(5)).await?;
    second.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// True if the job ran here.
async fn run_unless_busy(client: &LockClient, busy: Duration, who: &str) -> Result<bool, Failure> {
    // Renewed for as long as the job runs, and taken for `busy` from the grant in any case.
    let options = LockOptions::new().at_least(busy).wait(Duration::ZERO);
    let lock = client.mutex("example:cron")?;
    let Ok(guard) = lock.lock_with(options).await? else {
        return Ok(false);
    };
    match guard.run(job(who)).await? {
        Ok(()) => {
            // The hold is over; nobody gets the name before the rest of `busy` is.
            guard.unlock().await?;
            Ok(true)
        }
        Err(failure) => {
            // Not done: another instance may try at once. Only this takes a name away before its time.
            let ours = |holder: &Holder| holder.hold_id() == guard.hold_id();
            if let Some(holder) = lock.holder().await?.filter(ours) {
                lock.force_unlock_from(&holder).await?;
            }
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
    // Nothing is released: the name stays busy until the lease ends, whoever looks, and this process need not be there
    // for it.
    guard.leave_to_lease();
    Ok(())
}

async fn job(who: &str) -> Result<(), Failure> {
    println!("{who}: running the job");
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(())
}
