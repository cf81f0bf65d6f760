//! This crate's lock in both driver modes, and the floor of each: `bench KIND URL THREADS`.

mod floor;
mod raw;
mod wire;

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Mutex;
use redis_reentrant_lock::WireProfile;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;

use crate::raw::Raw;
use crate::raw::Relay;
use crate::raw::Sockets;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, url, threads] = args.as_slice() else { panic!("bench KIND URL THREADS") };
    let runtime = runtime(threads.parse().expect("a number of threads"));
    let own = |driver, hand_off, profile| {
        runtime.block_on(async { Own::connect(url, driver, hand_off, profile).await })
    };
    match kind.as_str() {
        "thread" => bench::serve(&runtime, own(Driver::Thread, true, WireProfile::Native)),
        "current" => bench::serve(&runtime, own(Driver::Current, true, WireProfile::Native)),
        "thread-no-hand-off" => {
            bench::serve(&runtime, own(Driver::Thread, false, WireProfile::Native))
        }
        "redisson-profile" => {
            bench::serve(&runtime, own(Driver::Thread, true, WireProfile::Redisson))
        }
        "redisson-profile-no-hand-off" => {
            bench::serve(&runtime, own(Driver::Thread, false, WireProfile::Redisson));
        }
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

struct Own(LockClient);

impl Own {
    async fn connect(url: &str, driver: Driver, hand_off: bool, profile: WireProfile) -> Self {
        let builder =
            LockClient::builder().url(url).driver(driver).hand_off(hand_off).profile(profile);
        Self(builder.connect().await.expect("connected"))
    }
}

impl bench::Service for Own {
    type Lock = OwnLock;

    fn lock(&self, name: &str) -> OwnLock {
        OwnLock(self.0.mutex(name).expect("a name"))
    }
}

#[derive(Clone)]
struct OwnLock(Mutex);

impl bench::Lock for OwnLock {
    type Guard = Guard;

    async fn acquire(&self) -> Guard {
        self.0.lock().await.expect("locked")
    }

    async fn release(guard: Guard) {
        guard.unlock().await.expect("unlocked");
    }
}
