//! A catalog that many read and few write, in Redis: readers go beside each other, a writer goes
//! alone, and the one that writes reads on without letting another writer in between.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example rw_lock
//! ```

use std::error::Error;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::RwLock;

/// How many read at this moment, in this process.
static READING: AtomicU32 = AtomicU32::new(0);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = LockClient::connect(url).await?;
    let catalog = client.rw_lock("example:catalog")?;

    // Each branch of `join!` is an owner of its own; without a scope they would share one.
    let branches = [(); 3].map(|()| Owner::new().scope(read(&catalog)));
    let most = futures::future::try_join_all(branches).await?.into_iter().max();
    println!("{} read at the same time", most.unwrap_or(0));

    // Nobody else reads or writes meanwhile. Send the token along with what is written.
    let write = catalog.write().await?;
    println!("writing alone, fencing token {}", write.fencing_token());
    let excluded = Owner::new().scope(catalog.try_read()).await?.is_err();
    println!("a reader was kept out: {excluded}");

    // Others may read from here on, but none has written since: what is read is what was written.
    let read = write.downgrade().await?;
    let joined = Owner::new().scope(catalog.try_read()).await?.is_ok();
    println!("after the downgrade a reader was let in: {joined}");

    // To write while reading would wait for itself. It is possible for the only reader.
    if let Err(error) = catalog.write().await {
        println!("refused: {error}");
    }
    read.unlock().await?;
    println!("{}", client.shutdown(Duration::from_secs(5)).await?);
    Ok(())
}

/// Reads for a while, and tells how many did.
async fn read(catalog: &RwLock) -> redis_reentrant_lock::Result<u32> {
    let work = async |_: &_| {
        READING.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let reading = READING.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await;
        READING.fetch_sub(1, Ordering::SeqCst);
        reading
    };
    catalog.with_read(work).await
}
