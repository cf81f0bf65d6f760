//! The public API on the in-memory server, under a paused clock.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::Holder;
use redis_reentrant_lock::InMemoryServer;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::NotAcquired;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::ReentrantLock;
use redis_reentrant_lock::Result;
use redis_reentrant_lock::ShutdownReport;

const LEASE: Duration = Duration::from_secs(3);

#[test]
fn a_shutdown_after_the_runtime_has_gone_says_what_was_held() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let theirs = runtime();
    let (client, guard) = theirs.block_on(async {
        let (_server, client, lock) = world().await;
        client.mutex("released").unwrap().lock().await.unwrap().unlock().await.unwrap();
        let guard = Owner::new().scope(lock.lock()).await.unwrap();
        (client, guard)
    });
    drop(theirs);
    assert_eq!(guard.loss(), Some(LossReason::ClientShutdown));
    for _ in 0..2 {
        let report = runtime().block_on(client.shutdown(LEASE)).unwrap();
        assert_eq!(left(&report), ["orders:42"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_shutdown_gives_the_report_of_the_first() {
    let (server, client, lock) = world().await;
    let _guard = Owner::new().scope(lock.lock()).await.unwrap();
    server.set_reachable(false);
    for _ in 0..2 {
        let report = client.shutdown(Duration::from_millis(100)).await.unwrap();
        assert_eq!(left(&report), ["orders:42"]);
    }
}

/// The names of the locks that are left to their leases, which end within one lease and a command
/// timeout.
fn left(report: &ShutdownReport) -> Vec<&str> {
    let left = report.left.iter();
    left.inspect(|left| {
        assert!(left.until.remaining() <= LEASE + Duration::from_secs(4), "{report:?}")
    })
    .map(|left| left.name.as_str())
    .collect()
}

async fn client(server: &InMemoryServer) -> LockClient {
    LockClient::builder().in_memory(server).lease(LEASE).connect().await.unwrap()
}

/// A server, a client and a lock.
async fn world() -> (InMemoryServer, LockClient, ReentrantLock) {
    let server = InMemoryServer::new();
    let client = client(&server).await;
    let lock = client.reentrant_lock("orders:42").unwrap();
    (server, client, lock)
}

/// Lets everything run that can run without time passing.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Polls until `condition` holds.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test(start_paused = true)]
async fn nested_locks_share_hold_and_token() {
    let (server, client, lock) = world().await;
    let outer = lock.lock().await.unwrap();
    assert_eq!((outer.hold_count(), lock.hold_count().unwrap()), (1, 1));
    let inner = lock.lock().await.unwrap();
    assert_eq!((inner.hold_count(), lock.hold_count().unwrap()), (2, 2));
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    assert_eq!(inner.hold_id(), outer.hold_id());
    let holder = lock.holder().await.unwrap().unwrap();
    assert_eq!(
        (holder.count, holder.is_this_client, holder.client.as_str()),
        (2, true, client.id())
    );

    inner.unlock().await.unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert_eq!(lock.holder().await.unwrap().unwrap().count, 1);
    assert!(lock.is_held().unwrap() && lock.is_locked().await.unwrap());

    let token = outer.fencing_token();
    outer.unlock().await.unwrap();
    assert_eq!(lock.hold_count().unwrap(), 0);
    assert!(!server.contains("orders:42"));
    assert_eq!(lock.remaining_lease().await.unwrap(), None);
    assert!(lock.lock().await.unwrap().fencing_token() > token);
}

#[tokio::test(start_paused = true)]
async fn a_release_wakes_a_waiter_of_another_client() {
    let (server, _client, lock) = world().await;
    let held = lock.lock().await.unwrap();
    let other = client(&server).await;
    let theirs = other.reentrant_lock("orders:42").unwrap();
    let waiter = tokio::spawn(async move { theirs.lock().await.unwrap().fencing_token() });
    until("the waiter sleeps", || other.stats().subscriptions == 1).await;
    let token = held.fencing_token();
    let before = tokio::time::Instant::now();
    held.unlock().await.unwrap();
    assert!(waiter.await.unwrap() > token);
    assert!(
        before.elapsed() < Duration::from_millis(100),
        "woken by the fallback: {:?}",
        before.elapsed()
    );
    assert_eq!(other.stats().fallback_grants, 0);
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_outlives_many_leases() {
    let (server, client, lock) = world().await;
    let guard = lock.lock().await.unwrap();
    tokio::time::sleep(LEASE * 20).await;
    assert!(guard.is_held() && !guard.is_suspect());
    assert!(server.contains("orders:42"));
    assert!(client.stats().renewals >= 40);
    guard.ensure(LEASE / 2).unwrap();
    assert!(matches!(guard.ensure(Duration::MAX), Err(Error::EndsSoon { .. })));
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn try_lock_says_none_and_try_lock_for_waits_no_longer_than_asked() {
    let (server, _client, lock) = world().await;
    let held = lock.lock().await.unwrap();
    let theirs = client(&server).await.reentrant_lock("orders:42").unwrap();
    assert!(theirs.try_lock().await.unwrap().is_err());
    let before = tokio::time::Instant::now();
    assert!(theirs.try_lock_for(Duration::from_secs(7)).await.unwrap().is_err());
    assert!(
        before.elapsed() >= Duration::from_secs(7)
            && before.elapsed() < Duration::from_millis(7_100)
    );
    assert!(theirs.try_lock_for(Duration::ZERO).await.unwrap().is_err());
    drop(held);
    assert!(theirs.try_lock_for(Duration::MAX).await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn dropping_a_guard_releases_it() {
    let (server, client, lock) = world().await;
    let outer = lock.lock().await.unwrap();
    drop(lock.lock().await.unwrap());
    until("one level is left", || lock.hold_count().unwrap() == 1).await;
    drop(outer);
    until("the key is gone", || !server.contains("orders:42")).await;
    until("nothing is held", || client.stats().holds == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_moved_guard_does_not_move_its_owner() {
    let (server, _client, lock) = world().await;
    let guard = lock.lock().await.unwrap();
    let theirs = lock.clone();
    let there = tokio::spawn(async move {
        assert_eq!(theirs.hold_count().unwrap(), 0, "the task does not own what it was given");
        assert!(theirs.try_lock().await.unwrap().is_err());
        guard.unlock().await.unwrap();
    });
    there.await.unwrap();
    assert!(!server.contains("orders:42"));
}

#[tokio::test(start_paused = true)]
async fn branches_of_join_share_their_task_unless_scoped() {
    let (_server, _client, lock) = world().await;
    let (a, b) = tokio::join!(lock.lock(), lock.lock());
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.hold_id(), b.hold_id(), "the footgun: they re-enter each other");
    a.unlock().await.unwrap();
    b.unlock().await.unwrap();

    let branch = || async {
        let guard = lock.lock().await.unwrap();
        assert_eq!(guard.hold_count(), 1);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(guard.hold_count(), 1);
        guard.unlock().await.unwrap();
    };
    tokio::join!(Owner::new().scope(branch()), Owner::new().scope(branch()));
}

#[tokio::test(start_paused = true)]
async fn tasks_in_scopes_of_one_owner_share_its_hold() {
    let (_server, _client, lock) = world().await;
    let owner = Owner::new();
    let guard = owner.scope(lock.lock()).await.unwrap();
    let theirs = lock.clone();
    let inner =
        tokio::spawn(owner.scope(async move { theirs.lock().await.unwrap() })).await.unwrap();
    assert_eq!(inner.hold_count(), 2);
    assert_eq!(inner.hold_id(), guard.hold_id());
    assert_eq!(lock.hold_count().unwrap(), 0, "outside the scope somebody else asks");
}

#[tokio::test(start_paused = true)]
async fn a_mutex_does_not_reenter_and_shares_the_key() {
    let (_server, client, lock) = world().await;
    let mutex = client.mutex("orders:42").unwrap();
    let guard = mutex.lock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_err());
    assert!(lock.try_lock().await.unwrap().is_err());
    guard.unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_err());
    guard.unlock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_forced_unlock_is_noticed_by_the_holder() {
    let (server, _client, lock) = world().await;
    let guard = lock.lock().await.unwrap();
    let other = client(&server).await.mutex("orders:42").unwrap();
    assert!(other.force_unlock().await.unwrap());
    assert_eq!(guard.lost().await, LossReason::ForceUnlocked);
    assert!(!guard.is_held() && guard.valid_until().is_past());
    assert_eq!(guard.loss(), Some(LossReason::ForceUnlocked));
    assert!(guard.ensure(Duration::ZERO).unwrap_err().is_lost());
    let error = lock.lock().await.unwrap_err();
    assert!(
        matches!(error, Error::GuardOfLostHold { reason: LossReason::ForceUnlocked, .. }),
        "{error:?}"
    );
    assert!(error.is_lost(), "an owner with guards of a lost hold must notice: {error}");
    assert!(error.to_string().contains("drop the guard of the lost hold first"), "{error}");
    assert!(guard.unlock().await.unwrap_err().is_lost());
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert!(!other.force_unlock().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn run_ends_what_it_runs_when_the_lock_is_lost() {
    let (server, _client, lock) = world().await;
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    let dropped = Arc::new(());
    let inside = Arc::clone(&dropped);
    let mut running = pin!(guard.run(async move {
        let _inside = inside;
        std::future::pending::<()>().await;
    }));
    assert!(futures::poll!(running.as_mut()).is_pending());
    server.remove("orders:42");
    let error = running.await.unwrap_err();
    assert!(matches!(error, Error::Lost { reason: LossReason::Removed, .. }), "{error}");
    assert_eq!(Arc::strong_count(&dropped), 1);
    let never = guard.run(async { panic!("polled after the loss") });
    assert!(never.await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn an_outage_longer_than_the_lease_is_a_loss_no_later_than_valid_until() {
    let (server, _client, lock) = world().await;
    let guard = lock.lock().await.unwrap();
    server.set_reachable(false);
    let until = guard.valid_until();
    let reason = guard.lost().await;
    assert_eq!(reason, LossReason::Expired);
    assert!(until.is_past());
    server.set_reachable(true);
    settle().await;
    assert!(!guard.is_held(), "a connection that comes back revives nothing");
}

#[tokio::test(start_paused = true)]
async fn fixed_leases_run_out_and_max_hold_ends_a_watched_one() {
    let (_server, _client, lock) = world().await;
    let fixed = LockOptions::new().lease(Duration::from_secs(1));
    let guard = lock.lock_with(fixed).await.unwrap().unwrap();
    assert_eq!(guard.lost().await, LossReason::Expired);
    drop(guard);
    let short = LockOptions::new().max_hold(LEASE * 2);
    let guard = lock.lock_with(short).await.unwrap().unwrap();
    let before = tokio::time::Instant::now();
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    assert!(before.elapsed() >= LEASE && before.elapsed() <= LEASE * 2);
}

#[tokio::test(start_paused = true)]
async fn options_outside_their_limits_send_nothing() {
    let (server, client, lock) = world().await;
    for options in [
        LockOptions::new().lease(Duration::ZERO),
        LockOptions::new().lease(Duration::MAX),
        LockOptions::new().max_hold(Duration::from_millis(9)),
        LockOptions::new().max_hold(Duration::MAX),
    ] {
        assert!(lock.lock_with(options).await.unwrap_err().is_config());
    }
    assert!(client.reentrant_lock("").unwrap_err().is_config());
    assert!(!server.contains("orders:42"));
}

#[tokio::test(start_paused = true)]
async fn dropped_and_aborted_acquisitions_leave_nothing() {
    let (server, client, lock) = world().await;
    drop(lock.lock());
    for yields in 0..6 {
        let mut acquiring = Box::pin(lock.lock());
        assert!(futures::poll!(acquiring.as_mut()).is_pending());
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        drop(acquiring);
        until("nothing is left", || !server.contains("orders:42") && client.stats().holds == 0)
            .await;
    }
    let held = lock.lock().await.unwrap();
    let theirs = lock.clone();
    let waiting = tokio::spawn(async move { theirs.lock().await });
    until("it waits", || client.stats().waiters == 1).await;
    waiting.abort();
    until("it is gone", || client.stats().waiters == 0).await;
    held.unlock().await.unwrap();
    until("no subscription is left", || client.stats().subscriptions == 0).await;
    assert!(!server.contains("orders:42"));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_not_picked_up_goes_on_and_is_asked_for_again() {
    let (server, client, lock) = world().await;
    let mut late = Box::pin(Owner::new().scope(lock.lock()));
    assert!(futures::poll!(late.as_mut()).is_pending());
    until("granted", || server.contains("orders:42")).await;
    // Nobody polls it for longer than the grant is offered.
    until("given back", || !server.contains("orders:42")).await;
    let guard = late.await.unwrap();
    assert!(guard.is_held() && server.contains("orders:42"));
    guard.unlock().await.unwrap();
    assert_eq!(client.stats().holds, 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_releases_what_is_held_and_closes_the_rest() {
    let (server, client, lock) = world().await;
    let guard = lock.lock().await.unwrap();
    let theirs = lock.clone();
    let waiting = tokio::spawn(async move { theirs.lock().await });
    until("it waits", || client.stats().waiters == 1).await;

    let report = client.shutdown(Duration::from_secs(5)).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.released, ["orders:42"], "the one who waited never had it");
    assert!(!server.contains("orders:42"));
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed { .. })));
    assert_eq!(guard.lost().await, LossReason::ClientShutdown);
    assert!(guard.unlock().await.unwrap_err().is_lost());
    assert!(matches!(lock.lock().await, Err(Error::Closed { .. })));
    assert!(matches!(client.ping().await, Err(Error::Closed { .. })));
    assert!(client.shutdown(Duration::ZERO).await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn what_a_shutdown_leaves_is_free_when_it_says_so() {
    let (server, client, lock) = world().await;
    let _watched = lock.lock().await.unwrap();
    let fixed = LockOptions::new().lease(LEASE * 2);
    let _fixed = client.mutex("fixed").unwrap().lock_with(fixed).await.unwrap();
    settle().await;
    server.set_reachable(false);
    let report = client.shutdown(Duration::from_secs(1)).await.unwrap();
    let [first, second] = &report.left[..] else { panic!("{report:?}") };
    assert_eq!((&*first.name, &*second.name), ("fixed", "orders:42"));
    assert!(second.until < first.until);
    for left in [second, first] {
        assert!(server.contains(&left.name), "nobody has released it");
        tokio::time::sleep(left.until.remaining()).await;
        assert!(!server.contains(&left.name) && left.until.is_past());
    }
    assert!(
        report.to_string().ends_with("fixed (its lease is over), orders:42 (its lease is over)")
    );
    assert_eq!(client.shutdown(Duration::ZERO).await.unwrap(), report);
}

#[tokio::test(start_paused = true)]
async fn shutdown_says_what_it_could_not_release() {
    let (server, client, lock) = world().await;
    let _guard = lock.lock().await.unwrap();
    server.set_reachable(false);
    settle().await;
    let before = tokio::time::Instant::now();
    let report = client.shutdown(Duration::from_secs(1)).await.unwrap();
    assert_eq!(left(&report), ["orders:42"]);
    assert!(before.elapsed() < Duration::from_secs(4));
}

/// Every call on a lock, and how it failed.
async fn failures(lock: &ReentrantLock, holder: &Holder) -> Vec<(&'static str, Error)> {
    let wait = LEASE / 2;
    let with_wait = LockOptions::new().wait(wait);
    let failed = |answer: Result<Guard, NotAcquired>| assert!(answer.is_err(), "granted");
    vec![
        ("lock", lock.lock().await.map(drop).unwrap_err()),
        ("try_lock", lock.try_lock().await.map(failed).unwrap_err()),
        ("try_lock_for", lock.try_lock_for(wait).await.map(failed).unwrap_err()),
        ("lock_with", lock.lock_with(with_wait).await.map(failed).unwrap_err()),
        ("is_locked", lock.is_locked().await.map(drop).unwrap_err()),
        ("remaining_lease", lock.remaining_lease().await.map(drop).unwrap_err()),
        ("holder", lock.holder().await.map(drop).unwrap_err()),
        ("force_unlock", lock.force_unlock().await.map(drop).unwrap_err()),
        ("force_unlock_from", lock.force_unlock_from(holder).await.map(drop).unwrap_err()),
    ]
}

/// A line of a log without its neighbours says what failed.
#[tokio::test(start_paused = true)]
async fn every_error_names_the_crate_and_the_lock_that_it_is_about() {
    let (server, client, lock) = world().await;
    let guard = Owner::new().scope(lock.lock()).await.unwrap();
    let holder = lock.holder().await.unwrap().unwrap();
    server.set_answering(false);
    let mut all = vec![
        ("verify", guard.verify().await.unwrap_err()),
        ("unlock", guard.unlock().await.unwrap_err()),
    ];
    all.extend(failures(&lock, &holder).await);
    for (what, error) in &all {
        assert!(matches!(error, Error::Unavailable { .. }), "{what}: {error}");
    }
    let ping = client.ping().await.unwrap_err();
    assert!(ping.lock_name().is_none(), "{ping}");
    assert!(ping.to_string().starts_with("redis-reentrant-lock: unavailable, "), "{ping}");

    client.shutdown(Duration::ZERO).await.unwrap();
    let mut closed = failures(&lock, &holder).await;
    closed.push(("preflight", client.preflight("orders:42").await.unwrap_err()));
    for (what, error) in &closed {
        assert!(matches!(error, Error::Closed { .. }), "{what}: {error}");
    }
    for (what, error) in all.into_iter().chain(closed) {
        assert_eq!(error.lock_name(), Some("orders:42"), "{what}: {error}");
        let text = error.to_string();
        assert!(text.starts_with("redis-reentrant-lock: lock \"orders:42\": "), "{what}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn connect_fails_in_time_and_says_what_it_tried() {
    let server = InMemoryServer::new();
    server.set_reachable(false);
    let before = tokio::time::Instant::now();
    let connecting =
        LockClient::builder().in_memory(&server).connect_timeout(Duration::from_secs(2)).connect();
    let error = connecting.await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.is_transient(), "{error}");
    assert!(error.to_string().contains("tried in-memory: "), "{error}");
    assert!(
        before.elapsed() >= Duration::from_secs(2) && before.elapsed() < Duration::from_secs(4)
    );
}

#[tokio::test(start_paused = true)]
async fn a_lazy_client_serves_once_its_server_is_there() {
    let server = InMemoryServer::new();
    server.set_reachable(false);
    let client = LockClient::builder().in_memory(&server).connect_lazy().unwrap();
    let lock = client.mutex("orders:42").unwrap();
    let error = lock.try_lock().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let mut waiting = pin!(lock.lock());
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    server.set_reachable(true);
    waiting.await.unwrap().unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_releases_and_ends_the_client() {
    let (server, client, lock) = world().await;
    let guard = lock.lock().await.unwrap();
    drop((client, lock));
    settle().await;
    assert!(guard.is_held(), "a guard is a handle");
    drop(guard);
    until("released", || !server.contains("orders:42")).await;
}

/// Polls a future on no runtime at all.
fn elsewhere<F: Future>(future: F) -> F::Output {
    futures::executor::block_on(future)
}

#[test]
fn mutexes_and_scopes_work_under_another_executor_and_a_dead_runtime_hangs_nobody() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = InMemoryServer::new();
    let client = runtime.block_on(client(&server));
    let mutex = client.mutex("orders:42").unwrap();
    elsewhere(async { mutex.lock().await.unwrap().unlock().await.unwrap() });
    let lock = client.reentrant_lock("orders:42").unwrap();
    assert!(matches!(elsewhere(lock.lock()), Err(Error::NoOwner)));
    let guard = elsewhere(Owner::new().scope(lock.lock())).unwrap();

    runtime.shutdown_timeout(Duration::from_secs(10));
    assert!(matches!(elsewhere(mutex.lock()), Err(Error::Closed { .. })));
    assert_eq!(elsewhere(guard.lost()), LossReason::ClientShutdown);
    assert!(server.contains("orders:42"), "nobody is there to release it: its lease does");
}

#[test]
fn a_client_that_dies_is_taken_over_when_its_lease_ends() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    };
    let server = InMemoryServer::new();
    let doomed = runtime();
    let builder = LockClient::builder().in_memory(&server).lease(Duration::from_millis(300));
    let holder = doomed.block_on(builder.connect()).unwrap();
    let guard = doomed
        .block_on(Owner::new().scope(holder.reentrant_lock("orders:42").unwrap().lock()))
        .unwrap();
    let token = guard.fencing_token();
    doomed.shutdown_timeout(Duration::from_secs(10));
    assert!(server.contains("orders:42"), "a crash releases nothing");

    runtime().block_on(async {
        let lock = client(&server).await.reentrant_lock("orders:42").unwrap();
        let taken =
            lock.try_lock_for(Duration::from_secs(10)).await.unwrap().expect("the lease has ended");
        assert!(taken.fencing_token() > token);
        taken.unlock().await.unwrap();
    });
}

/// Two clients of one server, and the lock that both want.
async fn rivals(server: &InMemoryServer) -> [(LockClient, redis_reentrant_lock::Mutex); 2] {
    let (a, b) = (client(server).await, client(server).await);
    let mutex = |client: &LockClient| client.mutex("orders:42").unwrap();
    let (ours, theirs) = (mutex(&a), mutex(&b));
    [(a, ours), (b, theirs)]
}

#[tokio::test(start_paused = true)]
async fn a_killed_client_releases_nothing_and_renews_nothing() {
    let server = InMemoryServer::new();
    let [(a, ours), (b, theirs)] = rivals(&server).await;
    let guard = ours.lock().await.unwrap();
    let fixed = LockOptions::new().lease(Duration::from_secs(60));
    let other = a.mutex("others").unwrap().lock_with(fixed).await.unwrap().unwrap();
    tokio::time::sleep(LEASE * 4).await;
    server.client(&a).kill();
    // At once, without anything that runs in between.
    for guard in [&guard, &other] {
        assert!(!guard.is_held() && guard.valid_until().is_past());
        assert_eq!(guard.loss(), Some(LossReason::ClientShutdown));
    }
    let killed = tokio::time::Instant::now();
    drop(other);
    assert!(guard.unlock().await.unwrap_err().is_lost());
    assert!(theirs.try_lock().await.unwrap().is_err(), "somebody released it");
    let taken = theirs.lock().await.unwrap();
    assert!(killed.elapsed() > LEASE / 2 && killed.elapsed() <= LEASE + Duration::from_millis(200));
    assert!(server.contains("others"));
    taken.unlock().await.unwrap();
    assert!(b.shutdown(LEASE).await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn whoever_uses_a_killed_client_is_told_that_it_is_closed() {
    let server = InMemoryServer::new();
    let [(a, ours), (_b, theirs)] = rivals(&server).await;
    let held = theirs.lock().await.unwrap();
    let mine = a.mutex("mine").unwrap().lock().await.unwrap();
    let waiting = ours.clone();
    let waiting = tokio::spawn(async move { waiting.lock().await });
    let work = tokio::spawn(async move { mine.run(std::future::pending::<()>()).await });
    until("it waits", || a.stats().subscriptions == 1).await;
    settle().await;
    for _ in 0..2 {
        server.client(&a).kill();
        assert!(matches!(ours.lock().await, Err(Error::Closed { .. })));
    }
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed { .. })));
    assert!(work.await.unwrap().unwrap_err().is_lost());
    assert!(matches!(a.ping().await, Err(Error::Closed { .. })));
    assert_eq!(left(&a.shutdown(LEASE).await.unwrap()), ["mine"]);
    // What had subscribed has gone with it: nobody is told of the release.
    held.unlock().await.unwrap();
    assert!(server.contains("mine"));
}

#[tokio::test(start_paused = true)]
async fn a_killed_client_costs_those_behind_it_one_reservation() {
    let server = InMemoryServer::new();
    let [(a, ours), (b, theirs)] = rivals(&server).await;
    let third = client(&server).await;
    let held = third.mutex("orders:42").unwrap().lock().await.unwrap();
    let killed = tokio::spawn(async move { ours.lock().await });
    until("it is first in line", || a.stats().subscriptions == 1).await;
    settle().await;
    let alive = tokio::spawn(async move { theirs.lock().await });
    until("the other is behind it", || b.stats().subscriptions == 1).await;
    settle().await;
    server.client(&a).kill();
    let released = tokio::time::Instant::now();
    held.unlock().await.unwrap();
    assert!(matches!(killed.await.unwrap(), Err(Error::Closed { .. })));
    assert!(alive.await.unwrap().unwrap().is_held());
    let waited = released.elapsed().as_millis();
    assert!((1_500..1_600).contains(&waited), "{waited} ms");
}

#[tokio::test(start_paused = true)]
async fn a_client_can_be_killed_before_it_has_begun() {
    let server = InMemoryServer::new();
    let client = LockClient::builder().in_memory(&server).connect_lazy().unwrap();
    server.client(&client).kill();
    assert!(matches!(client.ping().await, Err(Error::Closed { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_frozen_client_does_nothing_and_goes_on_later() {
    let server = InMemoryServer::new();
    let [(a, ours), (_b, theirs)] = rivals(&server).await;
    let stale = ours.lock().await.unwrap();
    server.client(&a).set_frozen(true);
    let pinging = a.clone();
    let asked = tokio::spawn(async move { pinging.ping().await });
    // Nothing is renewed and nothing is released.
    let taken = theirs.lock().await.unwrap();
    assert!(taken.fencing_token() > stale.fencing_token());
    tokio::time::sleep(LEASE * 4).await;
    assert!(!asked.is_finished(), "it was answered");
    assert!(!stale.is_held(), "a clock read");
    server.client(&a).set_frozen(false);
    asked.await.unwrap().unwrap();
    assert_eq!(stale.lost().await, LossReason::Expired);
    drop(stale);
    settle().await;
    assert!(taken.is_held() && server.contains("orders:42"), "a stale guard has released it");
    taken.unlock().await.unwrap();
    ours.lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_frozen_for_a_moment_keeps_what_it_holds() {
    let server = InMemoryServer::new();
    let [(a, ours), (_b, theirs)] = rivals(&server).await;
    let guard = ours.lock().await.unwrap();
    for _ in 0..10 {
        server.client(&a).set_frozen(true);
        tokio::time::sleep(LEASE / 2).await;
        server.client(&a).set_frozen(false);
        tokio::time::sleep(LEASE / 10).await;
        assert!(guard.is_held());
        assert!(theirs.try_lock().await.unwrap().is_err());
    }
    guard.verify().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_to_a_frozen_client_waits_for_it() {
    let server = InMemoryServer::new();
    let [(a, ours), (_b, theirs)] = rivals(&server).await;
    let asking = theirs.clone();
    let held = theirs.lock().await.unwrap();
    let waiting = tokio::spawn(async move { ours.lock().await });
    until("it waits", || a.stats().subscriptions == 1).await;
    settle().await;
    server.client(&a).set_frozen(true);
    held.unlock().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished());
    let reserved = asking.holder().await.unwrap().expect("reserved");
    assert_eq!((reserved.client.as_str(), reserved.count), (a.id(), 0));
    let thawed = tokio::time::Instant::now();
    server.client(&a).set_frozen(false);
    assert!(waiting.await.unwrap().unwrap().is_held());
    assert!(thawed.elapsed() < Duration::from_millis(100), "it has missed the message");
    assert_eq!(a.stats().fallback_grants, 0);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_client_can_be_killed() {
    let server = InMemoryServer::new();
    let [(a, ours), _] = rivals(&server).await;
    let guard = ours.lock().await.unwrap();
    server.client(&a).set_frozen(true);
    let pinging = a.clone();
    let asked = tokio::spawn(async move { pinging.ping().await });
    settle().await;
    server.client(&a).kill();
    assert!(matches!(asked.await.unwrap(), Err(Error::Closed { .. })));
    assert_eq!(guard.loss(), Some(LossReason::ClientShutdown));
    server.client(&a).set_frozen(false);
    assert!(matches!(a.ping().await, Err(Error::Closed { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_cut_off_stops_before_anybody_else_begins() {
    let server = InMemoryServer::new();
    let [(a, ours), (_b, theirs)] = rivals(&server).await;
    let guard = ours.lock().await.unwrap();
    server.client(&a).set_partitioned(true);
    let waiter = tokio::spawn(async move { theirs.lock().await });
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(!waiter.is_finished(), "two holders at once");
    let taken = waiter.await.unwrap().unwrap();
    let error = ours.try_lock().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(a.ping().await.unwrap_err().is_transient());

    server.client(&a).set_partitioned(false);
    drop(guard);
    assert!(ours.try_lock().await.unwrap().is_err());
    let waiter = tokio::spawn(async move { ours.lock().await });
    until("it waits", || a.stats().subscriptions == 1).await;
    taken.unlock().await.unwrap();
    assert!(waiter.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_short_partition_costs_no_lock() {
    let server = InMemoryServer::new();
    let [(a, ours), _] = rivals(&server).await;
    let guard = ours.lock().await.unwrap();
    server.client(&a).set_partitioned(true);
    tokio::time::sleep(LEASE / 2).await;
    server.client(&a).set_partitioned(false);
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
    assert!(!server.contains("orders:42"));
}

#[tokio::test(start_paused = true)]
async fn a_slow_network_makes_a_client_slow_and_not_wrong() {
    const SLOW: Duration = Duration::from_millis(400);
    let server = InMemoryServer::new();
    let [(a, ours), (_b, theirs)] = rivals(&server).await;
    server.client(&a).set_reply_delay(SLOW);
    server.client(&a).set_message_delay(SLOW);
    let asked = tokio::time::Instant::now();
    let guard = ours.lock().await.unwrap();
    assert!(asked.elapsed() >= SLOW);
    tokio::time::sleep(LEASE * 4).await;
    assert!(guard.is_held(), "renewals come through");
    assert!(theirs.try_lock().await.unwrap().is_err());
    guard.unlock().await.unwrap();

    let held = theirs.lock().await.unwrap();
    let waiter = tokio::spawn(async move { ours.lock().await });
    tokio::time::sleep(SLOW * 5).await;
    let released = tokio::time::Instant::now();
    held.unlock().await.unwrap();
    assert!(waiter.await.unwrap().unwrap().is_held());
    assert!(
        released.elapsed() >= 2 * SLOW,
        "the message, then the reply: {:?}",
        released.elapsed()
    );
    assert_eq!(a.stats().fallback_grants, 0);
}

#[tokio::test(start_paused = true)]
async fn replies_that_come_too_late_are_an_outage() {
    let server = InMemoryServer::new();
    let [(a, ours), (_b, theirs)] = rivals(&server).await;
    server.client(&a).set_reply_delay(Duration::from_secs(2));
    let error = ours.try_lock().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    server.client(&a).set_reply_delay(Duration::ZERO);
    // What was granted without an answer is taken back.
    assert!(theirs.lock().await.unwrap().is_held());
    assert_eq!(a.stats().holds, 0);
}

#[tokio::test(start_paused = true)]
async fn one_client_alone_can_be_refused_left_unanswered_or_disconnected() {
    let server = InMemoryServer::new();
    let [(a, _), (b, _)] = rivals(&server).await;
    server.client(&a).set_reachable(false);
    assert!(a.ping().await.unwrap_err().is_transient());
    let before = tokio::time::Instant::now();
    assert!(a.mutex("refused").unwrap().try_lock().await.unwrap_err().is_transient());
    assert_eq!(before.elapsed(), Duration::ZERO, "nobody listens");
    b.ping().await.unwrap();
    server.client(&a).set_reachable(true);
    connected(&a).await;
    a.ping().await.unwrap();
    server.client(&a).set_answering(false);
    assert!(a.ping().await.unwrap_err().is_transient());
    let before = tokio::time::Instant::now();
    assert!(a.mutex("mute").unwrap().try_lock().await.unwrap_err().is_transient());
    assert!(before.elapsed() >= Duration::from_secs(1), "it may answer yet");
    b.ping().await.unwrap();
    server.client(&a).set_answering(true);
    server.client(&a).disconnect();
    connected(&a).await;
    a.ping().await.unwrap();
}

/// Waits until the client has its connection again.
async fn connected(client: &LockClient) {
    settle().await;
    while !client.is_connected() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "is not a client of this in-memory server")]
async fn the_client_of_another_server_is_noticed() {
    let client = client(&InMemoryServer::new()).await;
    let _ = InMemoryServer::new().client(&client);
}

#[test]
fn outside_tokio_clients_run_on_threads_of_their_own() {
    let server = InMemoryServer::new();
    let [(a, ours), (b, theirs)] = elsewhere(rivals(&server));
    let guard = elsewhere(ours.lock()).unwrap();
    assert!(elsewhere(theirs.try_lock()).unwrap().is_err());
    let deadline = Duration::from_millis(50);
    assert!(
        elsewhere(theirs.try_lock_for(deadline)).unwrap().is_err(),
        "the driver has its own timers"
    );
    // A waiter on another thread is woken.
    let waiter = std::thread::spawn(move || elsewhere(theirs.lock()).unwrap().fencing_token());
    while b.stats().subscriptions == 0 {
        std::thread::yield_now();
    }
    let token = guard.fencing_token();
    elsewhere(guard.unlock()).unwrap();
    assert!(waiter.join().unwrap() > token);
    assert!(matches!(elsewhere(a.reentrant_lock("n").unwrap().lock()), Err(Error::NoOwner)));
    let scoped = elsewhere(Owner::new().scope(a.reentrant_lock("n").unwrap().lock())).unwrap();
    // The last handle waits for the release.
    drop((a, ours));
    drop(scoped);
    assert!(!server.contains("n"));
    assert!(elsewhere(b.shutdown(LEASE)).unwrap().is_clean());
}

#[test]
fn outside_tokio_leases_are_renewed_and_run_out_in_real_time() {
    let server = InMemoryServer::new();
    let lease = Duration::from_millis(300);
    let connect =
        || elsewhere(LockClient::builder().in_memory(&server).lease(lease).connect()).unwrap();
    let (a, b) = (connect(), connect());
    let guard = elsewhere(a.mutex("orders:42").unwrap().lock()).unwrap();
    let theirs = b.mutex("orders:42").unwrap();
    assert!(elsewhere(theirs.try_lock_for(lease * 4)).unwrap().is_err() && guard.is_held());
    server.client(&a).set_frozen(true);
    let taken = elsewhere(theirs.try_lock_for(lease * 20)).unwrap().expect("nothing was renewed");
    server.client(&a).set_frozen(false);
    assert_eq!(elsewhere(guard.lost()), LossReason::Expired);
    server.client(&b).kill();
    assert_eq!(taken.loss(), Some(LossReason::ClientShutdown));
    assert!(matches!(elsewhere(theirs.lock()), Err(Error::Closed { .. })));
}

#[test]
fn many_futures_of_another_executor_take_turns() {
    let server = InMemoryServer::new();
    let (client, inside) = (elsewhere(client(&server)), Mutex::new(()));
    let one_by_one = || async {
        let guard = client.mutex("orders:42").unwrap().lock().await.unwrap();
        drop(inside.try_lock().expect("nobody else is inside"));
        guard.unlock().await.unwrap();
    };
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| elsewhere(futures::future::join_all((0..20).map(|_| one_by_one()))));
        }
    });
}

#[test]
fn a_client_that_was_connected_outside_tokio_works_inside_too() {
    let server = InMemoryServer::new();
    let client = elsewhere(client(&server));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let guard = client.mutex("orders:42").unwrap().lock().await.unwrap();
        tokio::time::advance(LEASE * 10).await;
        assert!(guard.is_held(), "its time is the real one");
        guard.unlock().await.unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn with_ends_its_work_when_the_time_is_over_and_signals_tell_when() {
    let (_server, client, _) = world().await;
    let mutex = client.mutex("report").unwrap();
    let begun = tokio::time::Instant::now();
    let options = LockOptions::new().max_hold(LEASE);
    let mut signal = None;
    let work = async |guard: &Guard| {
        signal = Some(guard.loss_signal());
        std::future::pending::<()>().await;
    };
    let error = mutex.with_options(options, work).await.unwrap_err();
    assert!(matches!(error, Error::Lost { reason: LossReason::MaxHold, .. }), "{error}");
    let signal = signal.unwrap();
    assert_eq!((signal.ended().await, signal.is_lost()), (Some(LossReason::MaxHold), true));
    assert!(begun.elapsed() <= LEASE && begun.elapsed() >= LEASE / 2);
    // Freed, and not left to its lease.
    assert_eq!(mutex.with(async |_| 7).await.unwrap(), 7);
    assert!(begun.elapsed() <= LEASE + Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn a_prefix_is_part_of_every_name_in_memory_too() {
    let (server, ..) = world().await;
    let client =
        LockClient::builder().in_memory(&server).prefix("{orders}:").connect().await.unwrap();
    client
        .mutex("42")
        .unwrap()
        .with(async |_| assert!(server.contains("{orders}:42")))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_in_memory_says_how_its_connection_stands() {
    let (server, client, _) = world().await;
    assert!(client.is_connected());
    server.client(&client).set_reachable(false);
    let away = Duration::from_secs(3);
    tokio::time::sleep(away).await;
    let link = client.links().remove(0);
    assert!(!link.is_connected && link.lasts >= away - Duration::from_secs(1), "{link:?}");
    assert!(matches!(client.ping().await, Err(Error::Unavailable { .. })));
    server.client(&client).set_reachable(true);
    client
        .mutex("orders:42")
        .unwrap()
        .with(async |_| assert!(client.is_connected()))
        .await
        .unwrap();
    assert_eq!(client.stats().reconnects, 1);
    server.client(&client).kill();
    assert!(!client.is_connected());
}

// ---- names that stay taken

#[tokio::test(start_paused = true)]
async fn a_name_is_free_when_at_least_is_over_and_not_before() {
    let (server, client, _) = world().await;
    let other = LockClient::builder().in_memory(&server).connect().await.unwrap();
    let mutex = client.mutex("job").unwrap();
    let minute = Duration::from_secs(60);
    // Longer than the lease, which is not renewed.
    let options = LockOptions::new().lease(LEASE).at_least(minute).wait(Duration::ZERO);
    let granted = tokio::time::Instant::now();
    let guard = mutex.lock_with(options).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    guard.unlock().await.unwrap();
    let next = other.mutex("job").unwrap().lock().await.unwrap();
    assert!(
        (minute..minute + Duration::from_secs(1)).contains(&granted.elapsed()),
        "{:?}",
        granted.elapsed()
    );
    next.unlock().await.unwrap();
    // What was not asked for has no rest.
    mutex.try_lock().await.unwrap().unwrap().unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_killed_process_keeps_the_name_for_at_least() {
    let (server, client, _) = world().await;
    let other = LockClient::builder().in_memory(&server).connect().await.unwrap();
    let minute = Duration::from_secs(60);
    let granted = tokio::time::Instant::now();
    let guard =
        client.mutex("job").unwrap().lock_with(LockOptions::new().at_least(minute)).await.unwrap();
    server.client(&client).kill();
    drop(guard);
    other.mutex("job").unwrap().lock().await.unwrap().unlock().await.unwrap();
    assert!(granted.elapsed() >= minute, "{:?}", granted.elapsed());
}

#[tokio::test(start_paused = true)]
async fn each_level_counts_from_its_own_grant_and_the_last_end_counts() {
    let (_server, client, lock) = world().await;
    let minute = Duration::from_secs(60);
    let options = LockOptions::new().at_least(minute);
    let granted = Owner::new()
        .scope(async {
            let outer = lock.lock_with(options).await.unwrap().unwrap();
            tokio::time::sleep(Duration::from_secs(30)).await;
            let granted = tokio::time::Instant::now();
            lock.lock_with(options).await.unwrap().unwrap().unlock().await.unwrap();
            outer.unlock().await.unwrap();
            granted
        })
        .await;
    client.mutex(lock.name()).unwrap().lock().await.unwrap().unlock().await.unwrap();
    assert!(
        (minute..minute + Duration::from_secs(1)).contains(&granted.elapsed()),
        "{:?}",
        granted.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_the_hold_and_not_the_time_of_the_name() {
    let (_server, client, _) = world().await;
    let mutex = client.mutex("job").unwrap();
    let minute = Duration::from_secs(60);
    let granted = tokio::time::Instant::now();
    let options = LockOptions::new().max_hold(Duration::from_secs(5)).at_least(minute);
    let guard = mutex.lock_with(options).await.unwrap().unwrap();
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    drop(guard);
    mutex.lock().await.unwrap().unlock().await.unwrap();
    assert!(
        (minute..minute + Duration::from_secs(1)).contains(&granted.elapsed()),
        "{:?}",
        granted.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_left_ends_with_its_lease() {
    let (_server, client, lock) = world().await;
    let left = tokio::time::Instant::now();
    Owner::new()
        .scope(async {
            let outer = lock.lock().await.unwrap();
            lock.lock().await.unwrap().leave_to_lease();
            // The other level goes on, and is renewed.
            tokio::time::sleep(10 * LEASE).await;
            assert!(outer.is_held());
            outer.unlock().await.unwrap();
        })
        .await;
    let mutex = client.mutex(lock.name()).unwrap();
    assert!(mutex.try_lock().await.unwrap().is_err(), "not released");
    mutex.lock().await.unwrap().unlock().await.unwrap();
    let taken = left.elapsed() - 10 * LEASE;
    assert!((LEASE / 2..LEASE + Duration::from_secs(1)).contains(&taken), "{taken:?}");
}
