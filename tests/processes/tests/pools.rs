//! Jobs of a work-stealing pool share a thread, and a thread is an owner.

use std::any::Any;
use std::sync::Mutex;

use rayon::ThreadPool;
use rayon::ThreadPoolBuilder;
use redis_reentrant_lock::InMemoryServer;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::blocking;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;

/// Takes the lock if it is free. What it returns is the guard.
type Take<'a> = &'a (dyn Fn() -> Option<Box<dyn Any>> + Sync);

fn pool(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

/// Runs a job that calls `inside` while it holds the lock. Says whether it got it.
fn job(take: Take<'_>, inside: impl FnOnce()) -> bool {
    let guard = take();
    inside();
    guard.is_some()
}

/// Which of two jobs were in the critical section at a time. The first lets its thread run the
/// second, as `rayon::join` and parallel iterators do.
fn two_jobs(take: Take<'_>) -> Vec<bool> {
    let entered = Mutex::new(Vec::new());
    pool(1).scope(|scope| {
        let enter = |entry| entered.lock().unwrap().push(entry);
        scope.spawn(move |scope| {
            let first = job(take, || {
                scope.spawn(move |_| enter(job(take, || ())));
                assert_eq!(rayon::yield_now(), Some(rayon::Yield::Executed));
            });
            enter(first);
        });
    });
    entered.into_inner().unwrap()
}

fn on_a_runtime() -> (Runtime, LockClient) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let connecting = LockClient::builder().in_memory(&InMemoryServer::new()).connect();
    let client = runtime.block_on(connecting).unwrap();
    (runtime, client)
}

fn without_a_runtime() -> blocking::LockClient {
    LockClient::builder().in_memory(&InMemoryServer::new()).blocking_connect().unwrap()
}

fn boxed<G: 'static, N>(answer: Result<G, N>) -> Option<Box<dyn Any>> {
    answer.ok().map(|guard| Box::new(guard) as Box<dyn Any>)
}

#[test]
fn a_reentrant_lock_is_entered_by_another_job_of_the_same_thread() {
    // This is the trap that the documentation names.
    let (runtime, client) = on_a_runtime();
    let lock = client.reentrant_lock("lock").unwrap();
    let take = || boxed(runtime.handle().block_on(lock.try_lock()).unwrap());
    assert_eq!(two_jobs(&take), [true, true]);

    let lock = without_a_runtime().reentrant_lock("lock").unwrap();
    assert_eq!(two_jobs(&|| boxed(lock.try_lock().unwrap())), [true, true]);
}

#[test]
fn a_mutex_and_an_owner_for_each_job_keep_other_jobs_out() {
    let (runtime, client) = on_a_runtime();
    // Two names: the guard of the first is dropped, and may be released after the second is tried.
    let (mutex, lock) = (client.mutex("mutex").unwrap(), client.reentrant_lock("lock").unwrap());
    let take = || boxed(runtime.handle().block_on(mutex.try_lock()).unwrap());
    assert_eq!(two_jobs(&take), [false, true]);
    let take = || boxed(runtime.handle().block_on(Owner::new().scope(lock.try_lock())).unwrap());
    assert_eq!(two_jobs(&take), [false, true]);

    let mutex = without_a_runtime().mutex("lock").unwrap();
    assert_eq!(two_jobs(&|| boxed(mutex.try_lock().unwrap())), [false, true]);
}

#[test]
fn jobs_that_wait_for_a_blocking_mutex_are_in_the_section_one_after_the_other() {
    const JOBS: usize = 200;
    let mutex = without_a_runtime().mutex("lock").unwrap();
    let section = Mutex::new(0);
    pool(4).scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|_| {
                let count = || *section.try_lock().expect("nobody else is inside") += 1;
                mutex.with(|_| count()).unwrap();
            });
        }
    });
    assert_eq!(section.into_inner().unwrap(), JOBS);
}
