//! This crate's locks in both driver modes, the floor of each, and Tokio's locks within a process:
//! `bench KIND URL THREADS`. With several URLs, and commas between them, a lock over all of these
//! servers.

mod floor;
mod local;
mod majority;
mod own;
mod raw;
mod wire;

use std::time::Duration;

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::WireProfile;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;

use crate::local::Local;
use crate::majority::Majority;
use crate::majority::RawMajority;
use crate::own::Own;
use crate::raw::Raw;
use crate::raw::Relay;
use crate::raw::Sockets;

/// The lease of processes that are killed, so that what they hold runs out soon.
const SHORT_LEASE: Duration = Duration::from_secs(3);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, url, threads] = args.as_slice() else { panic!("bench KIND URL THREADS") };
    let runtime = runtime(threads.parse().expect("a number of threads"));
    let builder = || LockClient::builder().url(url);
    let own = |builder: LockClientBuilder| {
        let client = runtime.block_on(async { builder.connect().await.expect("connected") });
        bench::serve(&runtime, Own(client));
    };
    let majority = |driver| {
        let clients = Majority::connect(url, driver);
        bench::serve(&runtime, runtime.block_on(clients));
    };
    match kind.as_str() {
        "thread" if url.contains(',') => majority(Driver::Thread),
        "current" if url.contains(',') => majority(Driver::Current),
        "floor-raw" if url.contains(',') => {
            bench::serve(&runtime, Sockets::<RawMajority>::new(url))
        }
        "thread" => own(builder().driver(Driver::Thread)),
        "current" => own(builder().driver(Driver::Current)),
        "thread-no-hand-off" => own(builder().driver(Driver::Thread).hand_off(false)),
        "thread-short-lease" => own(builder().driver(Driver::Thread).lease(SHORT_LEASE)),
        "redisson-profile" => own(builder().profile(WireProfile::Redisson)),
        "redisson-profile-no-hand-off" => {
            own(builder().profile(WireProfile::Redisson).hand_off(false));
        }
        "tokio" => bench::serve(&runtime, Local::default()),
        "floor-thread" => bench::serve(&runtime, floor::Floor::far(url)),
        "floor-current" => bench::serve(&runtime, runtime.block_on(floor::Floor::near(url))),
        "floor-raw" => bench::serve(&runtime, Sockets::<Raw>::new(url)),
        "floor-relay" => bench::serve(&runtime, Sockets::<Relay>::new(url)),
        other => panic!("no such kind: {other}"),
    }
}

/// With one thread the callers' tasks and the client of `current` share it.
fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime")
}
