//! A job that every instance of a service starts on the same schedule, and that shall run once for
//! each tick.
//!
//! Instances are never in step. If the first one frees the name as soon as its fast run is over,
//! the next one finds it free a moment later and runs the job again. So the name stays taken for
//! most of the period: `at_least`, however fast the run is and whatever becomes of the instance.
//!
//! ```text
//! export REDIS_URL=redis://127.0.0.1:6379
//! cargo run --example cron_job          a service with its own schedule; two instances, two ticks
//! cargo run --example cron_job once     what a crontab starts: one run, then the process ends
//! ```

use std::error::Error;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::LockOptions;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;

type Failure = Box<dyn Error + Send + Sync>;

/// Shorter than the time between two ticks, longer than instances can be apart.
const BUSY: Duration = Duration::from_millis(1500);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match std::env::args().nth(1).as_deref() {
        Some("once") => once().await,
        _ => service().await,
    }
}

async fn connect() -> redis_reentrant_lock::Result<LockClient> {
    LockClientBuilder::from_env()?.prefix("example:").connect().await
}

/// Two instances of a service, until SIGTERM or for two ticks.
async fn service() -> Result<(), Failure> {
    let mut terminated = signal(SignalKind::terminate())?;
    let instances = [connect().await?, connect().await?];
    tokio::select! {
        runs = two_ticks(&instances) => assert_eq!(runs, 2, "once for each tick"),
        // A job in progress is dropped. Its name stays taken until `BUSY` is over all the same.
        _ = terminated.recv() => println!("ended by SIGTERM"),
    }
    for locks in instances {
        println!("{}", locks.shutdown(Duration::from_secs(5)).await?);
    }
    Ok(())
}

/// The second instance's clock is 200 ms behind.
async fn two_ticks([first, second]: &[LockClient; 2]) -> u32 {
    let mut runs = 0;
    for tick in 1..=2 {
        let ran = run_unless_taken(first, "first").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let again = run_unless_taken(second, "second").await;
        println!("tick {tick}: first ran: {ran}, second ran: {again}");
        runs += u32::from(ran) + u32::from(again);
        tokio::time::sleep(BUSY).await;
    }
    runs
}

/// True if the job ran here. The next tick is another chance for a run that failed.
async fn run_unless_taken(locks: &LockClient, who: &str) -> bool {
    // Renewed for as long as the job runs, and taken for `BUSY` from the grant in any case.
    let options = LockOptions::new().at_least(BUSY).wait(Duration::ZERO);
    let run = async {
        match locks.mutex("cron")?.with_options(options, async |_| job(who).await).await? {
            Ok(done) => done.map(|()| true),
            Err(_taken) => Ok::<_, Failure>(false),
        }
    };
    // The lock was lost, its server is away, or the job has failed.
    run.await.unwrap_or_else(|failure| {
        eprintln!("{who}: {failure}");
        false
    })
}

/// The whole process is one run. It must not give the lock back when it ends.
async fn once() -> Result<(), Failure> {
    let locks = connect().await?;
    let options = LockOptions::new().lease(Duration::from_secs(10)).wait(Duration::ZERO);
    let Ok(guard) = locks.mutex("cron-once")?.lock_with(options).await? else {
        println!("somebody has run it already");
        return Ok(());
    };
    guard.run(job("this process")).await??;
    // Nothing is released: the name stays busy until the lease ends, whoever looks, and this
    // process need not be there for it.
    guard.leave_to_lease();
    Ok(())
}

async fn job(who: &str) -> Result<(), Failure> {
    println!("{who}: running the job");
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(())
}
