//! Threads import the parts of a catalogue, without async code. Several processes may do so at once:
//! each part is imported by one thread of one process.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --features blocking --example blocking
//! ```
//!
//! Connections, renewals and releases are the work of the client's own thread. If a process is
//! killed, its parts are free when their leases end, and another process imports them.

use std::error::Error;
use std::thread;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::blocking;

type Failure = Box<dyn Error + Send + Sync>;

const THREADS: u32 = 4;
const PARTS: u32 = 8;

fn main() -> Result<(), Failure> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let lease = Duration::from_secs(5);
    let builder = LockClient::builder().url(&url).prefix("example:").lease(lease);
    let client = builder.blocking_connect()?;
    let done = thread::scope(|scope| {
        let work = |number| {
            let (client, url) = (&client, &url);
            scope.spawn(move || Worker { number, client, catalogue: Catalogue::open(url)? }.run())
        };
        let workers: Vec<_> = (0..THREADS).map(work).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "it panicked")?)
    });
    println!("{}", client.shutdown(Duration::from_secs(5))?);
    done
}

struct Worker<'a> {
    number: u32,
    client: &'a blocking::LockClient,
    catalogue: Catalogue,
}

impl Worker<'_> {
    /// Goes through all parts, each worker from another one on.
    fn run(mut self) -> Result<(), Failure> {
        let first = self.number * PARTS / THREADS;
        (0..PARTS).try_for_each(|step| self.import((first + step) % PARTS))
    }

    /// Imports a part, unless somebody has. Whoever is at it now is waited for.
    fn import(&mut self, part: u32) -> Result<(), Failure> {
        let lock = self.client.reentrant_lock(format!("import:{part}"))?;
        let guard = lock.try_lock_for(Duration::from_secs(30))??;
        if self.catalogue.imports(part)? == 0 {
            self.read(part, &guard)?;
            self.commit(part, &lock)?;
            println!("worker {}: part {part}, token {}", self.number, guard.fencing_token());
        }
        Ok(guard.unlock()?)
    }

    /// The part that takes a while; `PART_MS` makes it longer. Nothing interrupts a thread, so it
    /// looks after each step whether the lock is still held.
    fn read(&self, part: u32, guard: &blocking::Guard) -> Result<(), Failure> {
        let time = std::env::var("PART_MS").ok().and_then(|time| time.parse().ok()).unwrap_or(50);
        for _ in 0..10 {
            // Stands for work. A loss ends it.
            if let Some(reason) = guard.lost_within(Duration::from_millis(time) / 10)? {
                return Err(format!("part {part} is left to others: {reason}").into());
            }
        }
        Ok(())
    }

    /// Takes the lock itself, because it is called from elsewhere as well. Here it is the second
    /// level of this thread's hold.
    fn commit(&mut self, part: u32, lock: &blocking::ReentrantLock) -> Result<(), Failure> {
        let guard = lock.lock()?;
        guard.ensure(Duration::from_secs(1))?;
        self.catalogue.add(part)?;
        Ok(guard.unlock()?)
    }
}

/// Stands for your database; it is in Redis to be seen by several processes.
struct Catalogue(redis::Connection);

impl Catalogue {
    const KEY: &str = "example:imported";

    fn open(url: &str) -> redis::RedisResult<Self> {
        Ok(Self(redis::Client::open(url)?.get_connection()?))
    }

    /// How often a part was imported.
    fn imports(&mut self, part: u32) -> redis::RedisResult<u32> {
        let imports: Option<u32> =
            redis::cmd("HGET").arg(Self::KEY).arg(part).query(&mut self.0)?;
        Ok(imports.unwrap_or(0))
    }

    fn add(&mut self, part: u32) -> redis::RedisResult<()> {
        redis::cmd("HINCRBY").arg(Self::KEY).arg(part).arg(1).exec(&mut self.0)
    }
}
