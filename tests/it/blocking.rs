//! The locks for threads, on a real Redis. Processes: see the example `blocking`, in `examples.rs`.

use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Lookup;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::blocking;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tokio::task::block_in_place;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::support::look;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;

const NAME: &str = "orders:42";
const SHORT: Duration = Duration::from_millis(200);
const BOUND: Duration = Duration::from_secs(10);

fn client(server: &RedisServer) -> blocking::LockClient {
    blocking::LockClient::connect(server.url()).expect("the server is there")
}

fn world() -> (RedisServer, blocking::LockClient) {
    let server = RedisServer::start();
    let client = client(&server);
    (server, client)
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn is_free(server: &RedisServer) -> bool {
    look::lock_keys(&mut server.connection()).is_empty()
}

fn waits_for(client: &blocking::LockClient, waiters: u64) {
    eventually("they wait", || client.stats().waiters == waiters);
}

#[test]
fn threads_of_one_client_and_of_two_exclude_each_other() {
    const SECTIONS: usize = 50;
    let (server, one) = world();
    let two = client(&server);
    let section = Mutex::new(0);
    let count = || *section.try_lock().expect("nobody else is inside") += 1;
    thread::scope(|scope| {
        for client in [&one, &one, &two, &two] {
            scope.spawn(|| {
                let mutex = client.mutex(NAME).unwrap();
                (0..SECTIONS).for_each(|_| mutex.with(|_| count()).unwrap());
            });
            scope.spawn(|| {
                let lock = client.reentrant_lock(NAME).unwrap();
                for _ in 0..SECTIONS {
                    let outer = lock.lock().unwrap();
                    lock.with(|inner| assert_eq!(inner.hold_count(), 2)).unwrap();
                    count();
                    outer.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(*section.lock().unwrap(), 8 * SECTIONS);
    assert!(is_free(&server));
}

#[test]
fn a_thread_takes_its_lock_again_and_other_threads_do_not() {
    let (server, client) = world();
    let lock = client.reentrant_lock(NAME).unwrap();
    let outer = lock.lock().unwrap();
    let inner = lock.try_lock().unwrap().expect("the same thread");
    assert_eq!((inner.hold_count(), lock.hold_count().unwrap()), (2, 2));
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    thread::scope(|scope| {
        let other = || (lock.try_lock().unwrap().is_err(), lock.is_held().unwrap());
        assert_eq!(scope.spawn(other).join().unwrap(), (true, false));
    });
    // Not in the order in which they were taken.
    outer.unlock().unwrap();
    assert!(lock.is_held().unwrap() && inner.is_held());
    inner.unlock().unwrap();
    assert!(is_free(&server) && !lock.is_held().unwrap());
}

#[test]
fn a_wait_ends_with_its_limit() {
    let (_server, client) = world();
    let mutex = client.mutex(NAME).unwrap();
    let guard = mutex.lock().unwrap();
    let begin = Instant::now();
    let refused = mutex.try_lock_for(SHORT).unwrap().expect_err("it is held");
    assert!(begin.elapsed() >= SHORT && refused.lock_name() == NAME);
    assert!(mutex.lock_with(LockOptions::new().wait(SHORT)).unwrap().is_err());
    let called = AtomicUsize::new(0);
    let work = |_: &blocking::Guard| called.fetch_add(1, Ordering::Relaxed);
    assert!(mutex.with_options(LockOptions::new().wait(Duration::ZERO), work).unwrap().is_err());
    assert_eq!(called.load(Ordering::Relaxed), 0);
    assert!(begin.elapsed() < BOUND);

    // A release within the limit.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| mutex.try_lock_for(BOUND).unwrap().expect("a grant"));
        waits_for(&client, 1);
        guard.unlock().unwrap();
        waiting.join().unwrap().unlock().unwrap();
    });
}

#[test]
fn what_is_asked_of_the_server_is_answered() {
    let (server, client) = world();
    client.ping().unwrap();
    assert!(client.is_connected() && client.links().len() == 1);
    assert!(client.preflight(NAME).unwrap().is_usable());
    assert!(client.required_acl(["*"]).is_ok());
    let lock = client.reentrant_lock(NAME).unwrap();
    assert!(!lock.is_locked().unwrap() && lock.holder().unwrap().is_none());
    let guard = lock.lock_with(LockOptions::new().lease(BOUND)).unwrap().expect("it is free");
    guard.verify().unwrap();
    guard.ensure(SHORT).unwrap();
    assert!(lock.is_locked().unwrap() && !guard.valid_until().is_past());
    assert!(lock.remaining_lease().unwrap().expect("held") <= BOUND);
    let holder = lock.holder().unwrap().expect("held");
    assert_eq!((holder.hold_id(), holder.is_this_client), (guard.hold_id(), true));
    let other = self::client(&server).mutex(NAME).unwrap();
    assert!(!other.force_unlock_from(&stranger(&holder)).unwrap());
    assert!(other.force_unlock_from(&holder).unwrap());
    assert!(!other.force_unlock().unwrap() && is_free(&server));
    drop(guard);
    lock.lock().unwrap().leave_to_lease();
    assert!(lock.is_locked().unwrap(), "for the rest of its lease");
}

/// Another hold of the same client.
fn stranger(holder: &redis_reentrant_lock::Holder) -> redis_reentrant_lock::Holder {
    let mut stranger = holder.clone();
    stranger.hold.push('0');
    stranger
}

#[test]
fn a_loss_is_told_to_the_thread_that_waits_for_it() {
    let (server, client) = world();
    let mutex = client.mutex(NAME).unwrap();
    let guard = mutex.lock().unwrap();
    assert_eq!(guard.lost_within(SHORT).unwrap(), None);
    let signal = guard.loss_signal();
    assert!(!signal.ended_within(Duration::ZERO).unwrap() && !signal.is_lost());
    let other = self::client(&server).mutex(NAME).unwrap();
    thread::scope(|scope| {
        let told = scope.spawn(|| guard.lost().unwrap());
        let signalled = scope.spawn(|| signal.ended().unwrap());
        let paused = scope.spawn(|| guard.lost_within(BOUND).unwrap());
        assert!(other.force_unlock().unwrap());
        assert_eq!(told.join().unwrap(), LossReason::ForceUnlocked);
        assert_eq!(signalled.join().unwrap(), Some(LossReason::ForceUnlocked));
        assert_eq!(paused.join().unwrap(), Some(LossReason::ForceUnlocked));
    });
    assert!(!guard.is_held() && guard.loss().is_some());
    assert!(guard.ensure(Duration::ZERO).unwrap_err().is_lost());
    assert!(guard.unlock().unwrap_err().is_lost());

    // Work that has lost its lock is told so, although it was done.
    let lost = mutex.with(|_| other.force_unlock().unwrap()).unwrap_err();
    assert!(matches!(lost, Error::Lost { reason: LossReason::ForceUnlocked, .. }), "{lost}");

    // A lock that is released was not lost.
    let guard = mutex.lock().unwrap();
    let signal = guard.loss_signal();
    thread::scope(|scope| {
        let ended = scope.spawn(|| signal.ended().unwrap());
        guard.unlock().unwrap();
        assert_eq!(ended.join().unwrap(), None);
    });
    assert!(signal.ended_within(Duration::ZERO).unwrap() && signal.loss().is_none());
}

#[test]
fn a_lease_that_is_not_renewed_ends_for_the_thread_as_well() {
    let (_server, client) = world();
    let options = LockOptions::new().lease(SHORT);
    let guard = client.mutex(NAME).unwrap().lock_with(options).unwrap().expect("it is free");
    assert_eq!(guard.lost().unwrap(), LossReason::Expired);
}

#[test]
fn a_blocked_thread_keeps_its_lock() {
    let server = RedisServer::start();
    let builder = LockClient::builder().url(server.url()).lease(2 * SHORT);
    let client = builder.blocking_connect().unwrap();
    let guard = client.mutex(NAME).unwrap().lock().unwrap();
    // Several leases, in which this thread does nothing for the client.
    let (_nobody, nothing) = mpsc::channel::<()>();
    let _ = nothing.recv_timeout(10 * SHORT);
    assert!(guard.is_held());
    guard.unlock().unwrap();
}

fn panics(_: &blocking::Guard) {
    panic!("in the section");
}

#[test]
fn guards_that_are_dropped_and_sections_that_panic_release() {
    let (server, client) = world();
    let (mutex, lock) = (client.mutex(NAME).unwrap(), client.reentrant_lock(NAME).unwrap());
    drop(mutex.lock().unwrap());
    eventually("it is released", || is_free(&server));
    let guard = mutex.lock().unwrap();
    thread::spawn(move || drop(guard)).join().unwrap();
    eventually("it is released", || is_free(&server));

    for section in [
        catch_unwind(AssertUnwindSafe(|| mutex.with(panics))),
        catch_unwind(AssertUnwindSafe(|| lock.with(panics))),
        thread::scope(|scope| scope.spawn(|| lock.with(panics)).join()),
    ] {
        assert!(section.is_err());
        eventually("it is released", || is_free(&server));
    }
    assert_eq!(client.stats().failed_drop_releases, 0);
}

#[test]
fn a_thousand_threads_wait_for_one_name() {
    const THREADS: usize = 1_000;
    let (server, client) = world();
    let mutex = client.mutex(NAME).unwrap();
    let guard = mutex.lock().unwrap();
    let served = AtomicUsize::new(0);
    let section = Mutex::new(());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let waits = || {
                let work = |_: &blocking::Guard| drop(section.try_lock().expect("alone"));
                mutex.with(work).unwrap();
                served.fetch_add(1, Ordering::Relaxed);
            };
            thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, waits).unwrap();
        }
        waits_for(&client, THREADS as u64);
        assert_eq!(served.load(Ordering::Relaxed), 0);
        guard.unlock().unwrap();
    });
    assert_eq!(served.load(Ordering::Relaxed), THREADS);
    assert!(is_free(&server));
}

#[test]
fn a_shutdown_ends_all_waits() {
    let (server, client) = world();
    let holder = self::client(&server);
    let _guard = holder.mutex(NAME).unwrap().lock().unwrap();
    let mutex = client.mutex(NAME).unwrap();
    let _held = client.mutex("held").unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| mutex.lock().map(drop));
        waits_for(&client, 1);
        let report = client.shutdown(BOUND).unwrap();
        assert_eq!((report.released, report.left.len()), (vec!["held".to_owned()], 0));
        assert!(matches!(waiting.join().unwrap(), Err(Error::Closed { .. })));
    });
    assert!(matches!(mutex.try_lock(), Err(Error::Closed { .. })));
}

#[test]
fn without_a_server_calls_end_in_time() {
    let mut server = RedisServer::start();
    let builder = LockClient::builder().url(server.url()).outage_limit(Duration::from_secs(1));
    let client = builder.clone().blocking_connect().unwrap();
    let guard = client.mutex(NAME).unwrap().lock().unwrap();
    let another = builder.connect_timeout(SHORT);
    server.stop();
    assert!(matches!(another.blocking_connect(), Err(Error::Unavailable { .. })));
    let other = client.mutex("other").unwrap();
    assert!(matches!(other.lock(), Err(Error::Unavailable { .. })));
    assert!(matches!(other.try_lock_for(SHORT), Err(Error::Unavailable { .. })));
    assert!(matches!(guard.unlock(), Err(Error::Unavailable { .. })));
}

// ---- the single flight

#[test]
fn of_many_threads_that_want_a_value_one_computes_it() {
    const THREADS: usize = 20;
    let (server, one) = world();
    let two = client(&server);
    let (value, computed) = (Mutex::new(None), AtomicUsize::new(0));
    let look = || Ok::<_, Error>(value.lock().unwrap().map_or(Lookup::Missing, Lookup::Fresh));
    let (entered, is_in) = mpsc::channel();
    let compute = |guard: &blocking::Guard| {
        computed.fetch_add(1, Ordering::Relaxed);
        entered.send(()).expect("the test waits");
        guard.ensure(SHORT)?;
        // Others come meanwhile.
        let _ = guard.lost_within(SHORT)?;
        *value.lock().unwrap() = Some(guard.fencing_token());
        Ok(guard.fencing_token())
    };
    let fly = |client: &blocking::LockClient| {
        client.single_flight(NAME).unwrap().run(look, compute).unwrap().unwrap()
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| fly(&one));
        is_in.recv_timeout(BOUND).expect("the first computes");
        let others: Vec<_> = (0..THREADS)
            .map(|number| if number % 2 == 0 { &one } else { &two })
            .map(|client| scope.spawn(move || fly(client)))
            .collect();
        let token = first.join().unwrap();
        assert!(others.into_iter().all(|other| other.join().unwrap() == token));
    });
    assert_eq!(computed.load(Ordering::Relaxed), 1);
    eventually("the lock is free", || is_free(&server));

    // A stale value is taken while another computes, and a panic is the end of a flight.
    let stale = || Ok::<_, Error>(Lookup::Stale(7));
    let held = two.mutex(NAME).unwrap().lock().unwrap();
    let flight = one.single_flight(NAME).unwrap();
    assert_eq!(flight.run(stale, |_| unreachable!()).unwrap().unwrap(), 7);
    held.unlock().unwrap();
    let panics = |_: &blocking::Guard| -> Result<u64, Error> { panic!("in the computation") };
    assert!(catch_unwind(AssertUnwindSafe(|| flight.run(stale, panics))).is_err());
    eventually("the lock is free", || is_free(&server));
}

// ---- the semaphore

#[test]
fn threads_share_the_permits_of_a_semaphore() {
    let (server, client) = world();
    let other = self::client(&server).semaphore(NAME, 3).unwrap();
    let semaphore = client.semaphore(NAME, 3).unwrap();
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..8 {
            let semaphore = if number % 2 == 0 { &semaphore } else { &other };
            let (inside, most) = (&inside, &most);
            scope.spawn(move || {
                for _ in 0..10 {
                    let work = |permits: &blocking::SemaphorePermit| {
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        permits.ensure(SHORT).unwrap();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    };
                    semaphore.with(work).unwrap();
                }
            });
        }
    });
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    let two = semaphore.acquire_many(2).unwrap();
    assert_eq!((two.permits(), semaphore.available().unwrap()), (2, 1));
    assert!(two.hold_id().ends_with(":2:3") && two.is_held());
    assert!(other.try_acquire_many(2).unwrap().is_err());
    assert!(other.try_acquire_for(SHORT).unwrap().unwrap().release().is_ok());
    let now_or_never = LockOptions::new().wait(Duration::ZERO);
    assert!(other.acquire_with(2, now_or_never).unwrap().is_err());
    assert!(other.with_options(2, now_or_never, |_| ()).unwrap().is_err());
    assert_eq!(other.with_options(1, now_or_never, |it| it.permits()).unwrap().unwrap(), 1);
    // It may be released on another thread.
    thread::scope(|scope| scope.spawn(|| two.unlock().unwrap()).join().unwrap());
    let one = other.acquire().unwrap();
    assert!(semaphore.force_release_from(&one.hold_id()).unwrap());
    assert_eq!(one.lost_within(BOUND).unwrap(), Some(LossReason::ForceUnlocked));
    drop(one);
    other.try_acquire().unwrap().unwrap().leave_to_lease();
    assert_eq!(semaphore.available().unwrap(), 2);
    semaphore.set_permits(4).unwrap();
    assert_eq!((other.add_permits(1).unwrap(), other.permits().unwrap()), (5, 5));
    assert!(client.preflight_semaphore("orders:43").unwrap().is_usable());
}

// ---- the latch

#[test]
fn threads_that_wait_for_a_latch_go_on_when_its_count_is_0() {
    let (server, client) = world();
    let other = self::client(&server).count_down_latch(NAME).unwrap();
    let latch = client.count_down_latch(NAME).unwrap();
    assert!(latch.wait_for(BOUND).unwrap(), "there is none");
    assert!(latch.try_set_count(2).unwrap() && !other.try_set_count_for(3, BOUND).unwrap());
    assert!(!latch.wait_for(SHORT).unwrap());
    let behind = AtomicUsize::new(0);
    thread::scope(|scope| {
        let waits = || {
            latch.wait().unwrap();
            behind.fetch_add(1, Ordering::Relaxed);
        };
        let waiting = [(); 10].map(|()| scope.spawn(waits));
        assert_eq!(other.count_down().unwrap(), 1);
        assert_eq!((latch.count().unwrap(), behind.load(Ordering::Relaxed)), (1, 0));
        assert_eq!(other.count_down().unwrap(), 0);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(behind.load(Ordering::Relaxed), 10);
    assert!(!latch.delete().unwrap());
}

// ---- beside async code

fn fly(client: &blocking::LockClient) -> Result<Result<(), Error>, Error> {
    client.single_flight(NAME).unwrap().run(|| unreachable!(), |_| unreachable!())
}

/// Every call that waits is refused, and nothing was sent.
fn everything_is_refused(server: &RedisServer, client: &blocking::LockClient, place: &str) {
    let (mutex, lock) = (client.mutex(NAME).unwrap(), client.reentrant_lock(NAME).unwrap());
    let latch = client.count_down_latch("latch").unwrap();
    let semaphore = client.semaphore("semaphore", 1).unwrap();
    let before = look::script_runs(&mut server.connection());
    for (call, name) in [
        (mutex.lock().map(drop), "Mutex::lock"),
        (mutex.try_lock().map(drop), "Mutex::try_lock"),
        (mutex.try_lock_for(BOUND).map(drop), "Mutex::try_lock_for"),
        (mutex.with(|_| unreachable!()), "Mutex::lock"),
        (mutex.is_locked().map(drop), "Mutex::is_locked"),
        (lock.lock().map(drop), "ReentrantLock::lock"),
        (lock.lock_with(LockOptions::new()).map(drop), "ReentrantLock::lock_with"),
        (lock.holder().map(drop), "ReentrantLock::holder"),
        (lock.force_unlock().map(drop), "ReentrantLock::force_unlock"),
        (fly(client).map(drop), "SingleFlight::run"),
        (latch.wait(), "CountDownLatch::wait"),
        (semaphore.acquire().map(drop), "Semaphore::acquire"),
        (semaphore.set_permits(1), "Semaphore::set_permits"),
        (latch.count_down().map(drop), "CountDownLatch::count_down"),
        (client.ping(), "LockClient::ping"),
        (client.preflight(NAME).map(drop), "LockClient::preflight"),
        (client.shutdown(BOUND).map(drop), "LockClient::shutdown"),
        (blocking::LockClient::connect(server.url()).map(drop), "LockClientBuilder::connect"),
    ] {
        let Err(error @ Error::InAsyncTask { instead }) = call else { panic!("{name}, {place}") };
        assert_eq!(instead, name, "{place}");
        assert!(error.to_string().contains(name) && error.is_config(), "{error}");
    }
    assert_eq!(look::script_runs(&mut server.connection()), before, "{place}");
}

#[test]
fn in_async_code_every_call_is_refused_before_anything_is_sent() {
    let (server, client) = world();
    for runtime in [one_thread(), threads()] {
        runtime.block_on(async { everything_is_refused(&server, &client, "the root future") });
        LocalSet::new().block_on(&runtime, async {
            everything_is_refused(&server, &client, "a LocalSet");
        });
    }
    let server = std::sync::Arc::new(server);
    for runtime in [one_thread(), threads()] {
        let (server, client) = (server.clone(), client.clone());
        let task = runtime.spawn(async move { everything_is_refused(&server, &client, "a task") });
        runtime.block_on(task).unwrap();
    }
    client.ping().expect("it was not shut down");
}

#[test]
fn a_guard_that_is_unlocked_in_a_task_is_released_in_the_background() {
    let (server, client) = world();
    let guard = client.mutex(NAME).unwrap().lock().unwrap();
    let refused = threads().block_on(async { guard.unlock() });
    assert!(matches!(refused, Err(Error::InAsyncTask { instead: "Guard::unlock" })));
    eventually("it is released", || is_free(&server));
}

/// Sections of this thread, nested and with waits.
fn sections(client: &blocking::LockClient) {
    for _ in 0..20 {
        let outer = client.reentrant_lock(NAME).unwrap().lock().unwrap();
        let inner = client.reentrant_lock(NAME).unwrap().lock().unwrap();
        assert!(client.mutex(NAME).unwrap().try_lock_for(Duration::from_millis(1)).is_ok());
        assert_eq!(inner.hold_count(), 2);
        inner.unlock().unwrap();
        outer.unlock().unwrap();
    }
}

#[test]
fn where_tokio_lets_code_block_the_locks_work() {
    let server = RedisServer::start();
    for driver in [Driver::Thread, Driver::Current] {
        for runtime in [one_thread(), threads()] {
            let builder = LockClient::builder().url(server.url()).driver(driver);
            runtime.block_on(async {
                let connected = spawn_blocking(|| builder.blocking_connect()).await.unwrap();
                let client = connected.unwrap();
                let jobs = [(); 3].map(|()| {
                    let client = client.clone();
                    spawn_blocking(move || sections(&client))
                });
                futures::future::join_all(jobs).await.into_iter().for_each(|job| job.unwrap());
                let last = client.clone();
                spawn_blocking(move || last.shutdown(BOUND).unwrap()).await.unwrap();
            });
        }
    }
    let client = client(&server);
    let runtime = threads();
    runtime.block_on(async { block_in_place(|| sections(&client)) });
    let task = runtime.spawn(async move { block_in_place(|| sections(&client)) });
    runtime.block_on(task).unwrap();
    let _entered = runtime.enter();
    sections(&self::client(&server));
}

/// The driver is on a runtime that stands still, with the thread that connects as one of its own.
#[test]
fn on_a_runtime_that_nobody_drives_a_call_ends() {
    let server = RedisServer::start();
    let runtime = one_thread();
    let builder = LockClient::builder().url(server.url()).driver(Driver::Current);
    let builder = builder.connect_timeout(SHORT);
    let (ended, end) = mpsc::channel();
    runtime.handle().spawn_blocking(move || ended.send(builder.blocking_connect().map(drop)));
    let connected = end.recv_timeout(BOUND).expect("the call ends");
    assert!(matches!(connected, Err(Error::Unavailable { .. })), "{connected:?}");
}

#[test]
fn tasks_and_threads_of_one_client_exclude_each_other() {
    let (server, client) = world();
    let runtime = threads();
    let asynchronous = LockClient::from(client.clone());
    assert_eq!(asynchronous.id(), client.id());
    let guard = runtime.block_on(asynchronous.mutex(NAME).unwrap().lock()).unwrap();
    let mutex = client.mutex(NAME).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| mutex.lock().unwrap().unlock());
        waits_for(&client, 1);
        runtime.block_on(guard.unlock()).unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert!(is_free(&server));

    // The owner is this thread in the root future of `block_on` as well, and a task is another.
    let lock = asynchronous.reentrant_lock(NAME).unwrap();
    let outer = client.reentrant_lock(NAME).unwrap().lock().unwrap();
    let inner = runtime.block_on(lock.lock()).unwrap();
    assert_eq!(inner.hold_count(), 2);
    let task = runtime.spawn(async move { lock.try_lock().await.unwrap().is_err() });
    assert!(runtime.block_on(task).unwrap());
    runtime.block_on(inner.unlock()).unwrap();
    outer.unlock().unwrap();
}

#[test]
fn threads_read_beside_each_other_and_one_writes() {
    const SECTIONS: usize = 20;
    let (server, one) = world();
    let two = client(&server);
    let (writers, readers) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for client in [&one, &two] {
            let (writers, readers) = (&writers, &readers);
            scope.spawn(move || {
                let lock = client.rw_lock(NAME).unwrap();
                for _ in 0..SECTIONS {
                    let written = lock.with_write(|_| {
                        assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0);
                        assert_eq!(readers.load(Ordering::SeqCst), 0);
                        writers.fetch_sub(1, Ordering::SeqCst);
                    });
                    written.unwrap();
                }
            });
            scope.spawn(move || {
                let lock = client.rw_lock(NAME).unwrap();
                for _ in 0..SECTIONS {
                    let read = lock.with_read(|_| {
                        readers.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(writers.load(Ordering::SeqCst), 0);
                        readers.fetch_sub(1, Ordering::SeqCst);
                    });
                    read.unwrap();
                }
            });
        }
    });
    eventually("nothing is left", || is_free(&server));
}

#[test]
fn a_thread_upgrades_and_downgrades() {
    let (server, client) = world();
    let lock = client.rw_lock(NAME).unwrap();
    let others = || {
        let look = || {
            let read = lock.try_read().unwrap().map(|guard| guard.unlock().unwrap()).is_ok();
            let now = LockOptions::new().wait(Duration::ZERO);
            let write = lock.with_write_options(now, |_| ()).unwrap().is_ok();
            (read, write)
        };
        thread::scope(|scope| scope.spawn(look).join().unwrap())
    };
    let read = lock.read().unwrap();
    assert!(matches!(lock.write(), Err(Error::WouldDeadlock { .. })));
    assert_eq!(others(), (true, false));
    let write = read.try_upgrade().unwrap().expect("the only reader");
    assert_eq!(others(), (false, false));
    let second = write.downgrade().unwrap();
    assert_eq!(others(), (true, false));
    second.unlock().unwrap();
    read.verify().unwrap();
    read.unlock().unwrap();
    assert_eq!(others(), (true, true));
    let again = lock.try_write_for(BOUND).unwrap().expect("free");
    again.unlock().unwrap();
    let again = lock.try_read_for(BOUND).unwrap().expect("free");
    assert!(lock.with_read_options(LockOptions::new(), |_| ()).unwrap().is_ok());
    drop(again);
    eventually("nothing is left", || is_free(&server));
}

/// The thread owns its reentrant members, so it takes them once more; another thread waits.
#[test]
fn a_thread_takes_several_locks_or_none() {
    let (server, client) = world();
    let members = || {
        let lock = client.reentrant_lock("a").unwrap().into();
        [client.mutex("c").unwrap().into(), lock, client.rw_lock("b").unwrap().write_lock()]
    };
    let all = blocking::MultiLock::new(members()).unwrap();
    assert_eq!(all.names().collect::<Vec<_>>(), ["a", "b", "c"]);
    let guard = all.lock().unwrap();
    assert_eq!(guard.fencing_tokens().count(), 3);
    assert!(guard.is_held() && !guard.is_suspect() && guard.loss().is_none());
    assert!(guard.valid_until().remaining() > Duration::ZERO);
    guard.ensure(Duration::ZERO).unwrap();
    guard.verify().unwrap();
    assert_eq!(guard.lost_within(Duration::ZERO).unwrap(), None);
    // The mutex is not taken again by its owner, the others are.
    assert_eq!(all.try_lock().unwrap().unwrap_err().lock_name(), "c");
    let other = || all.try_lock_for(Duration::from_millis(20)).unwrap().map(|_| ()).unwrap_err();
    assert_eq!(thread::scope(|scope| scope.spawn(other).join().unwrap()).lock_name(), "a");
    guard.unlock().unwrap();
    assert_eq!(all.with(|guard| guard.fencing_tokens().count()).unwrap(), 3);
    let options = LockOptions::new().lease(BOUND);
    drop(all.lock_with(options).unwrap().expect("free"));
    eventually("nothing is left", || is_free(&server));
}

#[test]
fn a_redlock_for_threads_excludes_and_is_released_everywhere() {
    use redis_reentrant_lock::blocking::Redlock;

    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let redlock = || {
        let clients = servers.iter().enumerate().map(|(place, server)| {
            let label = format!("server {place}");
            LockClient::builder().url(server.url()).deployment(label).blocking_connect().unwrap()
        });
        let redlock = Redlock::new(clients).unwrap();
        assert_eq!(redlock.assume_fresh(), 3);
        redlock
    };
    let (ours, theirs) = (redlock(), redlock());
    let guard = ours.lock("orders:42").unwrap();
    assert!(guard.is_held() && theirs.try_lock("orders:42").unwrap().is_err());
    guard.verify().unwrap();
    assert_eq!(guard.lost_within(Duration::from_millis(1)).unwrap(), None);
    let first = guard.fencing_token();
    guard.unlock().unwrap();
    assert!(theirs.with("orders:42", |guard| guard.fencing_token()).unwrap() > first);
    assert!(theirs.preflight("orders:42").unwrap().iter().all(|report| report.is_usable()));
    assert!(theirs.status().iter().all(|server| server.counts));
}
