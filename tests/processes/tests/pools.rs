//! Jobs of a work-stealing pool share a thread, and a thread is an owner.

use std::sync::Mutex;

use redis_reentrant_lock::InMemoryServer;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Owner;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;

/// How a job takes the lock, if it is free.
#[derive(Debug, Clone, Copy, PartialEq)]
enum With {
    ReentrantLock,
    OwnerOfItsOwn,
    Mutex,
}

/// Runs a job that calls `inside` while it holds the lock. Says whether it got it.
fn job(with: With, runtime: &Runtime, client: &LockClient, inside: impl FnOnce()) -> bool {
    let guard = runtime.handle().block_on(async {
        let lock = client.reentrant_lock("lock").unwrap();
        let mutex = client.mutex("lock").unwrap();
        match with {
            With::ReentrantLock => lock.try_lock().await.unwrap(),
            With::OwnerOfItsOwn => Owner::new().scope(lock.try_lock()).await.unwrap(),
            With::Mutex => mutex.try_lock().await.unwrap(),
        }
    });
    inside();
    guard.is_ok()
}

/// Which of two jobs were in the critical section at a time. The first lets its thread run the
/// second, as `rayon::join` and parallel iterators do.
fn two_jobs(with: With) -> Vec<bool> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = runtime
        .block_on(LockClient::builder().in_memory(&InMemoryServer::new()).connect())
        .unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let entered = Mutex::new(Vec::new());
    pool.scope(|scope| {
        let enter = |entry| entered.lock().unwrap().push(entry);
        let (runtime, client) = (&runtime, &client);
        scope.spawn(move |scope| {
            let first = job(with, runtime, client, || {
                scope.spawn(move |_| enter(job(with, runtime, client, || ())));
                assert_eq!(rayon::yield_now(), Some(rayon::Yield::Executed));
            });
            enter(first);
        });
    });
    entered.into_inner().unwrap()
}

#[test]
fn a_reentrant_lock_is_entered_by_another_job_of_the_same_thread() {
    // This is the trap that the documentation names.
    assert_eq!(two_jobs(With::ReentrantLock), [true, true]);
}

#[test]
fn a_mutex_and_an_owner_for_each_job_keep_other_jobs_out() {
    for with in [With::OwnerOfItsOwn, With::Mutex] {
        assert_eq!(two_jobs(with), [false, true], "{with:?}");
    }
}
