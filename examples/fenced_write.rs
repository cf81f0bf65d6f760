//! A holder that sleeps through the end of its lease and writes all the same: the store refuses,
//! because it has seen a larger fencing token.
//!
//! ```text
//! cargo run --example fenced_write
//! ```
//!
//! `REDIS_URL` says where Redis is; without it, on this machine.

use std::error::Error;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;

/// The store's side: remember the largest token seen, refuse smaller ones. Comparing and writing
/// are one step.
///
/// Equal ones pass: one holder may write more than once. Tokens are below 2^53, so Lua's numbers
/// keep every digit.
const WRITE: &str = "
    local seen = redis.call('HGET', KEYS[1], 'token')
    if seen and tonumber(seen) > tonumber(ARGV[1]) then return 0 end
    redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
    return 1";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = LockClient::connect(&url).await?;
    let lock = client.mutex("example:document:lock")?;
    let mut store = Store::open(&url)?;

    let short = LockOptions::new().lease(Duration::from_millis(100));
    let slow = lock.lock_with(short).await??;
    println!("slow: token {}", slow.fencing_token());
    assert!(store.write(slow.fencing_token(), "draft")?);

    // The process is suspended, or the network holds the next write back for longer than the lease.
    let quick = lock.lock().await?;
    println!("quick: token {}, after the lease has ended", quick.fencing_token());
    assert!(quick.fencing_token() > slow.fencing_token());
    assert!(store.write(quick.fencing_token(), "final")?);

    // The guard knows. What was on its way already does not ask the guard, and only the token stops
    // it.
    assert!(!slow.is_held());
    assert!(!store.write(slow.fencing_token(), "late draft")?);
    println!("slow: its late write was refused");

    assert_eq!(store.read()?, "final");
    quick.unlock().await?;
    store.clear()?;
    client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// A document in Redis. In SQL: `UPDATE … SET value = $2, fence = $1 WHERE id = $3 AND fence <=
/// $1`, and no row updated means refused.
struct Store {
    redis: redis::Connection,
}

impl Store {
    const KEY: &str = "example:document";

    fn open(url: &str) -> redis::RedisResult<Self> {
        Ok(Self { redis: redis::Client::open(url)?.get_connection()? })
    }

    /// False: refused.
    fn write(&mut self, token: u64, value: &str) -> redis::RedisResult<bool> {
        redis::cmd("EVAL")
            .arg(WRITE)
            .arg(1)
            .arg(Self::KEY)
            .arg(token)
            .arg(value)
            .query(&mut self.redis)
    }

    fn read(&mut self) -> redis::RedisResult<String> {
        redis::cmd("HGET").arg(Self::KEY).arg("value").query(&mut self.redis)
    }

    fn clear(&mut self) -> redis::RedisResult<()> {
        redis::cmd("DEL").arg(Self::KEY).exec(&mut self.redis)
    }
}
