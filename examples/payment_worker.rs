//! Workers that pay invoices. Each invoice is paid once, however many workers there are, and
//! whatever happens to them.
//!
//! ```text
//! export REDIS_URL=redis://127.0.0.1:6379
//! cargo run --example payment_worker 17        pays this invoice, and what else is due
//! cargo run --example payment_worker serve     pays what is due, until SIGTERM
//! ```
//!
//! The lock saves the work of a second attempt at the same time. The database decides who may pay:
//! it compares the fencing token in the transaction that writes. The provider gets the same
//! idempotency key at each attempt. So nothing of this leads to a second payment: a worker that
//! dies or is suspended between two steps, a lock that is lost in the middle, or an answer of the
//! provider that does not arrive.

use std::error::Error;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossSignal;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;
use tokio::sync::watch;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut terminated = signal(SignalKind::terminate())?;
    // Without Redis this process ends with an error, and its service manager starts it again.
    let locks = LockClientBuilder::from_env()?.prefix("example:").connect().await?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let serves = words == ["serve"];
    if !serves {
        Database::open()?.add(words.first().map_or("17", String::as_str))?;
    }

    let (stop, stopped) = watch::channel(());
    tokio::spawn(async move {
        terminated.recv().await;
        drop(stop);
    });
    let worked = work(&locks, serves, stopped).await;
    println!("{}", locks.shutdown(Duration::from_secs(5)).await?);
    worked
}

/// Pays what is due, until SIGTERM. The payment in progress is finished then: the provider's time
/// limit says how long that takes at most.
async fn work(
    locks: &LockClient,
    serves: bool,
    mut stopped: watch::Receiver<()>,
) -> Result<(), Failure> {
    let mut database = Database::open()?;
    loop {
        let due = database.due()?;
        if due.is_empty() && !serves {
            return Ok(());
        }
        for invoice in due {
            if stopped.has_changed().is_err() {
                return Ok(());
            }
            match pay(locks, &invoice).await {
                Ok(outcome) => println!("invoice {invoice}: {outcome}"),
                // The lock was lost, its server or the provider is away: it stays due.
                Err(error) => eprintln!("invoice {invoice}: {error}"),
            }
        }
        tokio::select! {
            _ = stopped.changed() => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
    }
}

async fn pay(locks: &LockClient, invoice: &str) -> Result<&'static str, Failure> {
    let lock = locks.mutex(format!("invoices:{invoice}"))?;
    let at_once = LockOptions::new().wait(Duration::ZERO);
    let paid = lock.with_options(at_once, async |guard| {
        let fence = guard.fencing_token();
        let mut database = Database::open()?;
        if !database.start(invoice, fence)? {
            return Ok("it is paid, or a later holder of the lock pays it");
        }
        charge(invoice, guard.loss_signal()).await?;
        let finished = database.finish(invoice, fence)?;
        Ok(if finished { "paid" } else { "a later holder of the lock has taken over" })
    });
    paid.await?.unwrap_or(Ok("another worker pays it"))
}

/// The provider's library blocks. So it has a thread, which a loss of the lock does not end: it
/// looks once more.
async fn charge(invoice: &str, lock: LossSignal) -> Result<(), Failure> {
    let key = format!("invoice-{invoice}"); // the same at each attempt
    let charged = tokio::task::spawn_blocking(move || match lock.loss() {
        Some(reason) => Err(format!("not charged, the lock is lost: {reason}").into()),
        None => Provider::open()?.charge(&key),
    });
    charged.await?
}

/// Stands for your database; it is in Redis to be seen by several processes.
struct Database(redis::Connection);

impl Database {
    const DUE: &str = "example:due";
    const INVOICES: &str = "example:invoices";

    /// `UPDATE invoices SET fence = $2 WHERE id = $1 AND NOT paid AND fence <= $2`
    const START: &str = "
        if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 0 then return 0 end
        local fence = redis.call('HGET', KEYS[2], ARGV[1])
        if fence and tonumber(fence) > tonumber(ARGV[2]) then return 0 end
        redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
        return 1";
    /// `UPDATE invoices SET paid = true WHERE id = $1 AND NOT paid AND fence = $2`
    const FINISH: &str = "
        if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
        return redis.call('SREM', KEYS[1], ARGV[1])";

    fn open() -> Result<Self, Failure> {
        Ok(Self(redis::Client::open(std::env::var("REDIS_URL")?)?.get_connection()?))
    }

    fn add(&mut self, invoice: &str) -> redis::RedisResult<()> {
        redis::cmd("SADD").arg(Self::DUE).arg(invoice).exec(&mut self.0)
    }

    fn due(&mut self) -> redis::RedisResult<Vec<String>> {
        redis::cmd("SMEMBERS").arg(Self::DUE).query(&mut self.0)
    }

    fn start(&mut self, invoice: &str, fence: u64) -> redis::RedisResult<bool> {
        self.update(Self::START, invoice, fence)
    }

    fn finish(&mut self, invoice: &str, fence: u64) -> redis::RedisResult<bool> {
        self.update(Self::FINISH, invoice, fence)
    }

    /// False: no row was updated.
    fn update(&mut self, script: &str, invoice: &str, fence: u64) -> redis::RedisResult<bool> {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(2).arg(Self::DUE).arg(Self::INVOICES).arg(invoice).arg(fence);
        command.query(&mut self.0)
    }
}

/// Stands for the service that moves the money. A charge with a key that it knows changes nothing.
struct Provider(redis::Connection);

impl Provider {
    fn open() -> Result<Self, Failure> {
        Database::open().map(|database| Self(database.0))
    }

    /// `CHARGE_MS` makes it slower.
    #[expect(clippy::disallowed_methods, reason = "this is what a library that blocks does")]
    fn charge(&mut self, key: &str) -> Result<(), Failure> {
        let time = std::env::var("CHARGE_MS").ok().and_then(|time| time.parse().ok());
        redis::cmd("HINCRBY").arg("example:attempts").arg(key).arg(1).exec(&mut self.0)?;
        std::thread::sleep(Duration::from_millis(time.unwrap_or(50)));
        redis::cmd("HSETNX").arg("example:charges").arg(key).arg("12.50 EUR").exec(&mut self.0)?;
        Ok(())
    }
}
