//! A process with a client forks. In the child every call is an error at once, drops do nothing,
//! and the parent's locks are as they were.

use std::future::Future;
use std::pin::Pin;
use std::process::id;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Waker;
use std::time::Duration;

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::InMemoryServer;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::Mutex;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::ReentrantLock;
use redis_reentrant_lock::blocking;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;

use crate::child::in_child;

const NAME: &str = "forked";
const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn run(scenario: &str, url: &str) {
    match scenario {
        "thread" => parent_and_child(&current_thread(), Driver::Thread, url),
        "thread-on-threads" => parent_and_child(&threads(), Driver::Thread, url),
        "current" => parent_and_child(&current_thread(), Driver::Current, url),
        "current-on-threads" => parent_and_child(&threads(), Driver::Current, url),
        "inside" => inside(url),
        "runtime" => runtime_dropped_in_child(url),
        "renewals" => runtime_driven_in_child(url),
        "busy" => while_others_lock(url),
        "memory" => in_memory(),
        "blocking" => without_a_runtime(url),
        _ => panic!("unknown scenario: {scenario}"),
    }
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// A future of the parent's that has been polled.
type Begun = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// What a parent has when it forks.
struct Handles {
    client: LockClient,
    lock: ReentrantLock,
    mutex: Mutex,
    /// Of the same hold.
    guards: [Guard; 3],
    waiting: Vec<Begun>,
}

impl Handles {
    async fn new(driver: Driver, url: &str) -> Self {
        let client =
            LockClient::builder().url(url).driver(driver).connect().await.expect("a client");
        let (lock, mutex) =
            (client.reentrant_lock(NAME).expect("a name"), client.mutex(NAME).expect("a name"));
        let mut levels = Vec::new();
        for _ in 0..3 {
            levels.push(lock.lock().await.expect("a level"));
        }
        let guards = <[Guard; 3]>::try_from(levels).expect("three");
        let mut handles = Self { client, lock, mutex, guards, waiting: Vec::new() };
        for _ in 0..2 {
            let mutex = handles.mutex.clone();
            handles.begin(async move { mutex.lock().await?.unlock().await });
        }
        handles
    }

    /// Polled once before the fork.
    fn begin(&mut self, future: impl Future<Output = Result<(), Error>> + 'static) {
        let mut future: Begun = Box::pin(future);
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        self.waiting.push(future);
    }
}

fn assert_closed<T>(what: &str, result: Result<T, Error>) {
    let Err(error) = result else { panic!("{what} has an answer") };
    assert!(matches!(error, Error::Closed { .. }), "{what}: {error}");
    let text = error.to_string();
    // SAFETY: has no preconditions.
    let parent = unsafe { libc::getppid() };
    assert!(text.contains(&format!("before fork, in process {parent};")), "{what}: {text}");
    let of_the_client = matches!(what, "ping" | "shutdown");
    assert_eq!(error.lock_name(), (!of_the_client).then_some(NAME), "{what}");
}

/// All that can be called.
async fn everything_is_closed(handles: Handles) {
    let Handles { client, lock, mutex, guards, waiting } = handles;
    let holder = {
        client.stats();
        assert!(!format!("{client:?} {lock:?} {mutex:?} {guards:?}").is_empty());
        assert!(client.required_acl(["*"]).is_ok());
        client.clone()
    };
    assert_closed("reentrant_lock", holder.reentrant_lock(NAME));
    assert_closed("mutex", client.mutex(NAME));
    assert_closed("ping", client.ping().await);
    assert_closed("preflight", client.preflight(NAME).await);
    reentrant_lock_is_closed(&lock).await;
    mutex_is_closed(&mutex).await;
    guards_are_closed(guards).await;
    let [polled, dropped] = <[_; 2]>::try_from(waiting).unwrap_or_else(|_| panic!("two"));
    assert_closed("a lock() that the parent has begun", polled.await);
    drop(dropped);
    assert_closed("shutdown", client.shutdown(SECOND).await);
}

async fn reentrant_lock_is_closed(lock: &ReentrantLock) {
    assert_closed("lock", lock.lock().await);
    assert_closed("lock in a scope", Owner::new().scope(lock.lock()).await);
    assert_closed("try_lock", lock.try_lock().await);
    assert_closed("try_lock_for", lock.try_lock_for(SECOND).await);
    assert_closed("lock_with", lock.lock_with(LockOptions::new().lease(SECOND).wait(SECOND)).await);
    assert_closed("is_locked", lock.is_locked().await);
    assert_closed("remaining_lease", lock.remaining_lease().await);
    assert_closed("holder", lock.holder().await);
    assert_closed("force_unlock", lock.force_unlock().await);
    assert_closed("hold_count", lock.hold_count());
    assert_closed("is_held", lock.is_held());
    assert_closed("lock of a clone", lock.clone().lock().await);
}

async fn mutex_is_closed(mutex: &Mutex) {
    assert_closed("lock", mutex.lock().await);
    assert_closed("try_lock", mutex.try_lock().await);
    assert_closed("try_lock_for", mutex.try_lock_for(SECOND).await);
    assert_closed("lock_with", mutex.lock_with(LockOptions::new()).await);
    assert_closed("is_locked", mutex.is_locked().await);
    assert_closed("remaining_lease", mutex.remaining_lease().await);
    assert_closed("holder", mutex.holder().await);
    assert_closed("force_unlock", mutex.force_unlock().await);
}

async fn guards_are_closed([unlocked, dropped, kept]: [Guard; 3]) {
    assert!(!kept.is_held() && !kept.is_suspect() && kept.valid_until().is_past());
    assert_eq!(
        (kept.name(), kept.loss(), kept.lost().await),
        (NAME, Some(LossReason::Forked), LossReason::Forked)
    );
    assert!(kept.fencing_token() > 0 && kept.hold_id().contains(':'));
    assert_closed("ensure", kept.ensure(Duration::ZERO));
    assert_closed("verify", kept.verify().await);
    assert_closed("run", kept.run(async { panic!("polled without the lock") }).await);
    assert_closed("unlock", unlocked.unlock().await);
    drop(dropped);
}

/// A client that the child makes for itself.
async fn a_client_of_its_own_works(url: &str) {
    let client = LockClient::connect(url).await.expect("a client");
    assert!(
        client.mutex(NAME).expect("a name").try_lock().await.expect("an answer").is_err(),
        "the parent has it"
    );
    let guard = client.mutex("of the child").expect("a name").lock().await.expect("the lock");
    guard.unlock().await.expect("released");
    assert!(client.shutdown(5 * SECOND).await.expect("a report").is_clean());
}

fn parent_and_child(runtime: &Runtime, driver: Driver, url: &str) {
    let server = Look::new(url);
    let mut handles = Some(runtime.block_on(Handles::new(driver, url)));
    let before = server.now();
    let parent = id();
    in_child("calls without a runtime", || {
        assert_ne!(parent, id());
        let handles = handles.take().expect("its handles");
        // The owner is missing too, but that is not what stands in the way.
        futures::executor::block_on(everything_is_closed(handles));
    });
    in_child("calls on a runtime of its own", || {
        current_thread().block_on(everything_is_closed(handles.take().expect("its handles")));
    });
    in_child("calls on the parent's runtime", || {
        runtime.block_on(everything_is_closed(handles.take().expect("its handles")));
    });
    in_child("drops, the last handle's included", || drop(handles.take()));
    assert_eq!(server.now(), before, "the children have changed something");
    in_child("a client of its own", || current_thread().block_on(a_client_of_its_own_works(url)));
    runtime.block_on(parent_goes_on(handles.take().expect("its handles")));
    assert_eq!(server.now().1, "", "everything was released");
}

/// The parent's locks work as before.
async fn parent_goes_on(handles: Handles) {
    let Handles { client, lock, guards, waiting, .. } = handles;
    assert_eq!(lock.hold_count().expect("an owner"), 3);
    for guard in guards {
        guard.verify().await.expect("held");
        assert!(guard.is_held() && guard.loss().is_none());
        guard.unlock().await.expect("released");
    }
    for waiting in waiting {
        waiting.await.expect("the lock, and its release");
    }
    assert!(client.shutdown(5 * SECOND).await.expect("a report").is_clean());
}

/// The locks for threads, in a process that has no runtime.
fn without_a_runtime(url: &str) {
    let server = Look::new(url);
    let client = blocking::LockClient::connect(url).expect("a client");
    let (lock, mutex) =
        (client.reentrant_lock(NAME).expect("a name"), client.mutex(NAME).expect("a name"));
    let mut guards = Some([(); 2].map(|()| lock.lock().expect("a level")));
    let before = server.now();
    in_child("calls that would block", || {
        let [kept, unlocked] = guards.take().expect("its guards");
        assert_closed("mutex", client.mutex(NAME));
        assert_closed("lock", lock.lock());
        assert_closed("try_lock", lock.try_lock());
        assert_closed("hold_count", lock.hold_count());
        assert_closed("lock", mutex.lock());
        assert_closed("try_lock_for", mutex.try_lock_for(SECOND));
        assert_closed("with", mutex.with(|_| panic!("called without the lock")));
        assert_closed("holder", mutex.holder());
        assert_closed("force_unlock", mutex.force_unlock());
        assert_closed("single_flight", client.single_flight(NAME));
        assert_closed("ping", client.ping());
        assert!(!kept.is_held());
        assert_eq!(kept.lost().expect("an answer"), LossReason::Forked);
        assert!(kept.loss_signal().ended_within(SECOND).expect("an answer"));
        assert_closed("verify", kept.verify());
        assert_closed("unlock", unlocked.unlock());
        assert_closed("shutdown", client.shutdown(SECOND));
    });
    assert_eq!(server.now(), before, "the child has changed something");
    in_child("a client of its own", || {
        let own = blocking::LockClient::connect(url).expect("a client");
        assert!(own.mutex(NAME).expect("a name").try_lock().expect("an answer").is_err());
        assert!(own.shutdown(5 * SECOND).expect("a report").is_clean());
    });
    for guard in guards.take().expect("its guards") {
        guard.verify().expect("held");
        guard.unlock().expect("released");
    }
    assert!(client.shutdown(5 * SECOND).expect("a report").is_clean());
}

/// The child goes on in the future that has forked, on the runtime that it has inherited.
fn inside(url: &str) {
    for driver in [Driver::Thread, Driver::Current] {
        let server = Look::new(url);
        let runtime = current_thread();
        runtime.block_on(async {
            let mut handles = Some(Handles::new(driver, url).await);
            let before = server.now();
            in_child("calls in the future that has forked", || {
                let calls = everything_is_closed(handles.take().expect("its handles"));
                // Ready at the first poll: whatever waits here would wait for the parent's driver.
                let mut calls = Box::pin(calls);
                assert!(calls.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
            });
            assert_eq!(server.now(), before, "the child has changed something");
            parent_goes_on(handles.take().expect("its handles")).await;
        });
    }
}

/// The sockets of a runtime that is dropped in the child are in the queue of events that it shares
/// with its parent.
fn runtime_dropped_in_child(url: &str) {
    let server = Look::new(url);
    let mut runtime = Some(current_thread());
    let handles = runtime.as_ref().expect("just made").block_on(Handles::new(Driver::Current, url));
    let before = server.now();
    in_child("the runtime is dropped", || drop(runtime.take()));
    assert_eq!(server.now(), before, "the child has changed something");
    runtime.take().expect("the parent's").block_on(parent_goes_on(handles));
}

/// The tasks of a client go on with the runtime, and its timers too.
fn runtime_driven_in_child(url: &str) {
    const LEASE: Duration = Duration::from_secs(6);
    let server = Look::new(url);
    let runtime = current_thread();
    let connect = LockClient::builder().url(url).driver(Driver::Current).lease(LEASE).connect();
    let client = runtime.block_on(connect).expect("a client");
    let guard = runtime.block_on(client.mutex(NAME).expect("a name").lock()).expect("the lock");
    let before = server.now();
    // The parent's stands still until the child has ended.
    in_child("the runtime goes on until a renewal is due", || {
        runtime.block_on(async { tokio::time::sleep(LEASE / 2).await });
    });
    assert_eq!(server.now(), before, "the child has changed something");
    runtime.block_on(guard.unlock()).expect("released");
}

struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whatever other threads are doing when the process forks.
fn while_others_lock(url: &str) {
    const CHILDREN: usize = 100;
    let runtime = threads();
    let mut handles = Some(runtime.block_on(Handles::new(Driver::Thread, url)));
    let client = handles.as_ref().expect("just made").client.clone();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (client, runtime, over) = (client.clone(), &runtime, &over);
            scope.spawn(move || {
                let lock = client.reentrant_lock(format!("busy-{number}")).expect("a name");
                while !over.load(Ordering::Relaxed) {
                    let guard = runtime.block_on(lock.lock()).expect("the lock");
                    drop(guard);
                }
            });
        }
        // A panic ends them too.
        let _end = SetWhenDropped(&over);
        for _ in 0..CHILDREN {
            in_child("calls while others lock", || {
                futures::executor::block_on(everything_is_closed(
                    handles.take().expect("its handles"),
                ));
            });
        }
    });
    runtime.block_on(parent_goes_on(handles.take().expect("its handles")));
}

fn in_memory() {
    let runtime = current_thread();
    let server = InMemoryServer::new();
    let client =
        runtime.block_on(LockClient::builder().in_memory(&server).connect()).expect("a client");
    let lock = client.mutex(NAME).expect("a name");
    let guard = runtime.block_on(lock.lock()).expect("the lock");
    in_child("calls on a client in memory", || {
        assert_closed("lock", futures::executor::block_on(lock.lock()));
        assert!(!guard.is_held());
    });
    runtime.block_on(guard.unlock()).expect("released");
}

/// What the server says of itself, by another client than ours.
struct Look(std::cell::RefCell<redis::Connection>);

impl Look {
    fn new(url: &str) -> Self {
        let client = redis::Client::open(url).expect("an address");
        Self(std::cell::RefCell::new(client.get_connection().expect("a connection")))
    }

    /// How many scripts have run and messages were published, and what is under the lock's key.
    fn now(&self) -> (u64, String) {
        let connection = &mut *self.0.borrow_mut();
        let text: String = redis::cmd("INFO").arg("commandstats").query(connection).expect("INFO");
        let calls =
            |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
        let counted =
            ["cmdstat_evalsha:", "cmdstat_eval:", "cmdstat_publish:", "cmdstat_subscribe:"];
        let counted = text.lines().filter(|line| counted.iter().any(|name| line.starts_with(name)));
        let key: Vec<String> = redis::cmd("HGETALL").arg(NAME).query(connection).expect("HGETALL");
        (counted.filter_map(calls).sum(), key.join(" "))
    }
}
