//! A client on a current-thread runtime, and callers that do not drive it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::Mutex;
use redis_reentrant_lock::Result;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;

use crate::support::redis_server::RedisServer;

const SECOND: Duration = Duration::from_secs(1);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn on_this_runtime(server: &RedisServer) -> LockClientBuilder {
    LockClient::builder()
        .url(server.url())
        .driver(Driver::Current)
        .connect_timeout(SECOND)
        .outage_limit(SECOND)
}

fn assert_not_driven<T>(result: Result<T>) {
    let Err(error @ Error::Unavailable { .. }) = result else { panic!("no such error") };
    let text = error.to_string();
    assert!(text.contains("Handle::block_on") && text.contains("Driver::Thread"), "{text}");
}

#[test]
fn connecting_on_a_runtime_that_nobody_drives_is_an_error() {
    let server = RedisServer::start();
    let (runtime, builder) = (runtime(), on_this_runtime(&server));
    let handle = runtime.handle().clone();
    let result =
        thread::spawn(move || handle.block_on(builder.connect()).map(drop)).join().unwrap();
    assert_not_driven(result);
}

#[test]
fn calls_on_a_runtime_that_nobody_drives_any_more_are_errors() {
    let server = RedisServer::start();
    let runtime = runtime();
    let client = runtime.block_on(on_this_runtime(&server).connect()).unwrap();
    let (handle, mutex) = (runtime.handle().clone(), client.mutex("lock").unwrap());
    let guard = runtime.block_on(mutex.lock()).unwrap();
    let other = client.mutex("other").unwrap();
    thread::spawn(move || {
        handle.block_on(async {
            assert_not_driven(other.lock().await);
            assert_not_driven(other.try_lock().await);
            assert_not_driven(guard.unlock().await);
        });
    })
    .join()
    .unwrap();
    // Driven again, it is as before; what was given up is free.
    runtime.block_on(async { mutex.lock().await.unwrap().unlock().await.unwrap() });
    let report = runtime.block_on(client.shutdown(10 * SECOND)).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// A client whose runtime was driven by this thread, and is not any more, waits for a lock as
/// `wait` has it. On a thread of its own, so that a call without an end is noticed.
fn waits(wait: fn(&Runtime, Mutex) -> Result<Guard>) -> Result<()> {
    let server = RedisServer::start();
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        let runtime = runtime();
        let client = runtime.block_on(on_this_runtime(&server).connect()).unwrap();
        ended.send(wait(&runtime, client.mutex("lock").unwrap()).map(drop)).unwrap();
    });
    end.recv_timeout(10 * SECOND).expect("the call ends")
}

#[test]
fn the_thread_that_has_driven_the_runtime_does_not_drive_it_by_other_means() {
    assert_not_driven(waits(|runtime, mutex| runtime.handle().block_on(mutex.lock())));
    assert_not_driven(waits(|_, mutex| futures::executor::block_on(mutex.lock())));
}

#[test]
fn the_tasks_of_another_runtime_do_not_drive_it() {
    assert_not_driven(waits(|_, mutex| {
        let other = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        other.block_on(other.spawn(async move { mutex.lock().await })).unwrap()
    }));
}

#[test]
fn while_one_thread_drives_the_runtime_others_use_the_locks() {
    let server = RedisServer::start();
    let runtime = runtime();
    let (handle, builder) = (runtime.handle().clone(), on_this_runtime(&server));
    let (done, finished) = tokio::sync::oneshot::channel();
    let other = thread::spawn(move || {
        handle.block_on(async {
            let client = builder.connect().await.unwrap();
            let lock = client.reentrant_lock("lock").unwrap();
            for _ in 0..50 {
                let outer = lock.lock().await.unwrap();
                lock.lock().await.unwrap().unlock().await.unwrap();
                outer.unlock().await.unwrap();
            }
            // Longer than it takes to notice that nobody drives the runtime.
            let guard = lock.lock().await.unwrap();
            let waiting = client.mutex("lock").unwrap();
            let waited = waiting.try_lock_for(3 * SECOND).await.unwrap();
            assert!(waited.is_err() && guard.is_held());
        });
        done.send(()).unwrap();
    });
    runtime.block_on(finished).unwrap();
    other.join().unwrap();
}
