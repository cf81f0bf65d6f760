//! A process ends while a handle of its client lives on in a thread that nobody waits for.

use std::thread;

use redis_reentrant_lock::LockClient;
use tokio::runtime::Builder;

const NAME: &str = "ended";

pub(crate) fn run(scenario: &str, url: &str) {
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
        "cancel" => {
            drop(guard);
            runtime.block_on(cancel(&client));
        }
        _ => panic!("unknown scenario: {scenario}"),
    }
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
