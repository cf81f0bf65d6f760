//! Several replicas of a service start at once. One of them migrates the database; the others wait,
//! then see that it is done, and start.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example migration
//! ```
//!
//! It ends with 0 when the database is at the version that this program needs. If Redis is away for
//! longer than the outage limit, or if the lock is lost, it ends with an error; whoever starts it
//! starts it again, and the migration goes on where it was.

use std::error::Error;
use std::time::Duration;

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClientBuilder;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;

type Failure = Box<dyn Error + Send + Sync>;

/// The steps to the version of the schema that this program needs.
const STEPS: [&str; 3] = ["create the table", "copy the rows", "drop the old table"];

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut terminated = signal(SignalKind::terminate())?;
    let locks = LockClientBuilder::from_env()?.prefix("example:").connect().await?;

    // A watched lease: it is renewed for as long as the migration takes, and is over soon after
    // this process is.
    let migration = locks.mutex("migration")?;
    let done = tokio::select! {
        // Drops the work when the lock is lost. The step in progress is then rolled back, or
        // refused by its token.
        done = migration.with(migrate) => done.map_err(Failure::from).and_then(|done| done),
        // The same, with a release. Whoever waits does not wait any longer.
        _ = terminated.recv() => Err("ended by SIGTERM".into()),
    };
    println!("{}", locks.shutdown(Duration::from_secs(5)).await?);
    done
}

/// Runs the steps that are missing. Whoever had the lock before may have run all of them.
async fn migrate(guard: &Guard) -> Result<(), Failure> {
    let mut database = Database::open()?;
    let version = database.version()?;
    println!("at version {version} of {}, fencing token {}", STEPS.len(), guard.fencing_token());
    for (version, step) in STEPS.iter().enumerate().skip(version) {
        println!("{step}");
        database.run(step).await;
        if !database.commit(version, guard.fencing_token())? {
            return Err("another replica has gone on with the migration".into());
        }
    }
    Ok(())
}

/// Stands for your database; it is in Redis to be seen by several processes.
struct Database(redis::Connection);

impl Database {
    /// The end of the transaction of a step. In SQL:
    /// `UPDATE schema SET version = version + 1, fence = $2 WHERE version = $1 AND fence <= $2`.
    const COMMIT: &str = "
        local row = redis.call('HMGET', KEYS[1], 'version', 'fence')
        if (row[1] or '0') ~= ARGV[1] then return 0 end
        if tonumber(row[2] or 0) > tonumber(ARGV[2]) then return 0 end
        redis.call('HSET', KEYS[1], 'version', ARGV[1] + 1, 'fence', ARGV[2])
        return 1";
    const SCHEMA: &str = "example:schema";

    fn open() -> Result<Self, Failure> {
        Ok(Self(redis::Client::open(std::env::var("REDIS_URL")?)?.get_connection()?))
    }

    fn version(&mut self) -> redis::RedisResult<usize> {
        let version: Option<usize> =
            redis::cmd("HGET").arg(Self::SCHEMA).arg("version").query(&mut self.0)?;
        Ok(version.unwrap_or(0))
    }

    /// A step that takes a while; `STEP_MS` makes it longer.
    async fn run(&mut self, _step: &str) {
        let time = std::env::var("STEP_MS").ok().and_then(|time| time.parse().ok());
        tokio::time::sleep(Duration::from_millis(time.unwrap_or(100))).await;
    }

    /// False, and nothing is changed: somebody else has gone on.
    fn commit(&mut self, version: usize, fence: u64) -> redis::RedisResult<bool> {
        redis::cmd("EVAL")
            .arg(Self::COMMIT)
            .arg(1)
            .arg(Self::SCHEMA)
            .arg(version)
            .arg(fence)
            .query(&mut self.0)
    }
}
