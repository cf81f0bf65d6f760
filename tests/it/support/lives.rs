//! The life of a read-write lock and of a semaphore, with two clients: what must work on every
//! deployment.

use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::RwLock;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const BOUND: Duration = Duration::from_secs(20);

/// Of names that begin like this.
pub(crate) async fn of_other_kinds(ours: &LockClient, theirs: &LockClient, name: &str) {
    read_write(ours, theirs, &format!("{name}:read-write")).await;
    semaphore(ours, theirs, &format!("{name}:semaphore")).await;
}

/// Once it sleeps: what is waited for, by a task of its own.
async fn waits<T: Send + 'static>(
    client: &LockClient,
    waiting: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let waiters = client.stats().waiters;
    let task = tokio::spawn(waiting);
    let asleep = async {
        while client.stats().waiters == waiters {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(BOUND, asleep).await.expect("it waits");
    task
}

async fn granted<T>(task: JoinHandle<T>) -> T {
    timeout(BOUND, task).await.expect("granted").expect("no panic")
}

/// Natively: somebody waits in the line, so that a read that comes later is refused.
async fn a_writer_is_in_line(lock: &RwLock) {
    let refused = async {
        while let Ok(read) = Owner::new().scope(lock.try_read()).await.unwrap() {
            read.unlock().await.unwrap();
        }
    };
    timeout(BOUND, refused).await.expect("the writer has its place");
}

async fn read_write(ours: &LockClient, theirs: &LockClient, name: &str) {
    let (a, b) = (ours.rw_lock(name).unwrap(), theirs.rw_lock(name).unwrap());
    let read = a.read().await.unwrap();
    let beside = Owner::new().scope(b.read()).await.unwrap();
    assert!(Owner::new().scope(b.try_write()).await.unwrap().is_err(), "two read");
    assert!(read.try_upgrade().await.unwrap().is_err(), "another reads");
    let writes = b.clone();
    let writer = waits(theirs, async move { writes.write().await.unwrap() }).await;
    a_writer_is_in_line(&a).await;
    read.verify().await.unwrap();
    read.unlock().await.unwrap();
    assert!(!writer.is_finished(), "one still reads");
    beside.unlock().await.unwrap();
    let write = granted(writer).await;
    assert!(Owner::new().scope(a.try_read()).await.unwrap().is_err(), "one writes");

    let reads = a.clone();
    let reader = waits(ours, async move { reads.read().await.unwrap() }).await;
    write.verify().await.unwrap();
    let read = write.downgrade().await.unwrap();
    granted(reader).await.unlock().await.unwrap();
    let write = read.try_upgrade().await.unwrap().expect("the only reader");
    assert!(write.fencing_token() > read.fencing_token());
    write.unlock().await.unwrap();
    read.unlock().await.unwrap();

    let write = a.write().await.unwrap();
    assert!(b.force_unlock().await.unwrap());
    assert_eq!(timeout(BOUND, write.lost()).await.expect("told"), LossReason::ForceUnlocked);
    drop(write);
    assert!(!a.is_locked().await.unwrap());
}

async fn semaphore(ours: &LockClient, theirs: &LockClient, name: &str) {
    let (a, b) = (ours.semaphore(name, 3).unwrap(), theirs.semaphore(name, 3).unwrap());
    let (one, two) = (a.acquire().await.unwrap(), b.acquire_many(2).await.unwrap());
    assert!(b.try_acquire().await.unwrap().is_err(), "all are taken");
    assert_eq!(a.available().await.unwrap(), 0);
    let wants = a.clone();
    let waiter = waits(ours, async move { wants.acquire_many(2).await.unwrap() }).await;
    one.verify().await.unwrap();
    one.release().await.unwrap();
    assert!(!waiter.is_finished(), "one is not enough");
    two.verify().await.unwrap();
    two.release().await.unwrap();
    let two = granted(waiter).await;
    assert_eq!(b.available().await.unwrap(), 1);
    assert!(b.force_release_from(&two.hold_id()).await.unwrap());
    assert_eq!(timeout(BOUND, two.lost()).await.expect("told"), LossReason::ForceUnlocked);
    drop(two);
    assert_eq!(b.available().await.unwrap(), 3);
}
