//! A process ends while a handle of its client lives on in a thread that nobody waits for.

use std::cell::RefCell;
use std::sync::mpsc;
use std::thread;

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use tokio::runtime::Builder;

const NAME: &str = "ended";

thread_local! {
    static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

pub(crate) fn run(scenario: &str, url: &str) {
    // Made before the client, it is dropped when the thread does not remember clients any more.
    KEPT.with(|kept| kept.replace(None));
    let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let client = runtime.block_on(LockClient::builder().url(url).connect()).expect("a client");
    let clone = client.clone();
    thread::spawn(move || {
        loop {
            thread::park();
            drop(clone.clone());
        }
    });
    let mutex = client.mutex(NAME).expect("a name");
    let guard = runtime.block_on(mutex.lock()).expect("the lock");
    match scenario {
        "drop" => drop(guard),
        "exit" => {
            drop(guard);
            std::process::exit(0);
        }
        "worker" => runtime.block_on(runtime.spawn(async move { drop(guard) })).expect("a task"),
        "worker-exit" => {
            runtime.block_on(runtime.spawn(async move { drop(guard) })).expect("a task");
            std::process::exit(0);
        }
        "thread" => drop_elsewhere(guard),
        "thread-local" => {
            KEPT.with(|kept| kept.replace(Some(guard)));
        }
        "cancel" => {
            drop(guard);
            runtime.block_on(cancel(&client));
        }
        _ => panic!("unknown scenario: {scenario}"),
    }
}

/// On a thread that does not end.
fn drop_elsewhere(guard: Guard) {
    let (dropped, is_dropped) = mpsc::channel();
    thread::spawn(move || {
        drop(guard);
        dropped.send(()).expect("main waits");
        loop {
            thread::park();
        }
    });
    is_dropped.recv().expect("the guard is dropped");
}

/// Gives up waiting at the moment in which the lock may be granted.
async fn cancel(client: &LockClient) {
    let mutex = client.mutex(NAME).expect("a name");
    tokio::select! {
        biased;
        guard = mutex.lock() => drop(guard.expect("the lock")),
        () = tokio::task::yield_now() => {}
    }
}
