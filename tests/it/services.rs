//! What services would otherwise write themselves, against a real server.

use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::WireProfile;

use crate::support::look;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::settle::settles;

/// Lets this test's tasks run until something is so.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

async fn client(server: &RedisServer) -> LockClient {
    LockClient::builder().url(server.url()).connect().await.unwrap()
}

// ---- with

#[tokio::test]
async fn with_locks_works_and_unlocks() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let (mutex, lock) = (client.mutex("lock").unwrap(), client.reentrant_lock("lock").unwrap());
    let other = mutex.clone();
    // In a task: its future can be sent.
    let task = tokio::spawn(async move {
        let taken = async || other.is_locked().await;
        other.with(async |guard| taken().await.map(|taken| (taken, guard.fencing_token()))).await
    });
    let (taken, token) = task.await.unwrap().unwrap().unwrap();
    assert!(taken && token > 0);
    assert!(!mutex.is_locked().await.unwrap());
    let levels = lock.with(async |guard| lock.with(async |_| guard.hold_count()).await).await;
    assert_eq!(levels.unwrap().unwrap(), 2);
    assert!(!mutex.is_locked().await.unwrap());
}

#[tokio::test]
async fn with_options_does_nothing_while_somebody_else_holds_the_lock() {
    let server = RedisServer::start();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let guard = theirs.mutex("lock").unwrap().lock().await.unwrap();
    let at_once = LockOptions::new().wait(Duration::ZERO);
    let (mutex, lock) = (ours.mutex("lock").unwrap(), ours.reentrant_lock("lock").unwrap());
    let never = async |_: &_| panic!("the lock is not free");
    assert!(mutex.with_options(at_once, never).await.unwrap().is_err());
    assert!(lock.with_options(at_once, never).await.unwrap().is_err());
    let wrong = at_once.lease(Duration::ZERO);
    assert!(matches!(mutex.with_options(wrong, never).await, Err(Error::InvalidOption { .. })));
    guard.unlock().await.unwrap();
    assert_eq!(mutex.with_options(at_once, async |_| 1).await.unwrap(), Ok(1));
    assert_eq!(lock.with_options(at_once, async |_| 2).await.unwrap(), Ok(2));
}

/// Tells when it is dropped.
struct Dropped(Option<tokio::sync::oneshot::Sender<()>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.take().map(|told| told.send(()));
    }
}

#[tokio::test]
async fn the_work_of_with_ends_when_the_lock_is_lost() {
    let server = RedisServer::start();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let (told, dropped) = tokio::sync::oneshot::channel();
    let (begun, begins) = tokio::sync::oneshot::channel();
    let mutex = ours.mutex("lock").unwrap();
    let working = tokio::spawn(async move {
        let work = async |_: &_| {
            let _dropped = Dropped(Some(told));
            begun.send(()).unwrap();
            std::future::pending::<()>().await
        };
        mutex.with(work).await
    });
    begins.await.unwrap();
    assert!(theirs.mutex("lock").unwrap().force_unlock().await.unwrap());
    let error = working.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Lost { reason: LossReason::ForceUnlocked, .. }), "{error}");
    dropped.await.unwrap();
}

#[tokio::test]
async fn work_that_was_done_without_the_lock_is_not_reported_as_done() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let client = client(&server).await;
    let mutex = client.mutex("lock").unwrap();
    let result = mutex
        .with(async |_| {
            // Nobody tells the client.
            redis::cmd("DEL").arg("lock").exec(&mut connection).unwrap();
        })
        .await;
    assert!(matches!(result, Err(Error::Lost { reason: LossReason::Removed, .. })), "{result:?}");
}

#[tokio::test]
async fn a_panic_in_the_work_and_a_dropped_with_release_the_lock() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mutex = client.mutex("lock").unwrap();
    let other = mutex.clone();
    let panicking = tokio::spawn(async move { other.with(async |_| panic!("as it should")).await });
    assert!(panicking.await.unwrap_err().is_panic());
    drop(mutex.lock().await.unwrap());
    {
        let mut working = std::pin::pin!(mutex.with(async |_| std::future::pending::<()>().await));
        while client.stats().holds == 0 {
            assert!(futures::poll!(working.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    }
    mutex.lock().await.unwrap().unlock().await.unwrap();
}

// ---- loss signals

#[tokio::test]
async fn a_signal_tells_a_loss_from_a_release_and_keeps_nothing_alive() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let mutex = ours.mutex("lock").unwrap();

    let guard = mutex.lock().await.unwrap();
    let signal = guard.loss_signal();
    let watching = tokio::spawn({
        let signal = signal.clone();
        async move { (signal.lost().await, signal.ended().await) }
    });
    assert!(!signal.is_lost() && signal.name() == "lock");
    theirs.mutex("lock").unwrap().force_unlock().await.unwrap();
    let reason = LossReason::ForceUnlocked;
    assert_eq!(watching.await.unwrap(), (reason, Some(reason)));
    assert!(signal.is_lost() && guard.loss() == Some(reason));
    drop(guard);

    let guard = mutex.lock().await.unwrap();
    let signal = guard.loss_signal();
    let watching = tokio::spawn({
        let signal = signal.clone();
        async move { signal.ended().await }
    });
    drop((guard, mutex, ours));
    assert_eq!(watching.await.unwrap(), None);
    assert!(!signal.is_lost() && signal.loss().is_none());
    settles("the lock is free", move || look::lock_keys(&mut connection).is_empty()).await;
}

// ---- prefixes

#[tokio::test]
async fn a_prefix_is_part_of_every_name() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let plain = client(&server).await;
    for (profile, separator) in [(WireProfile::Native, "__"), (WireProfile::Redisson, ":")] {
        let builder = LockClient::builder().url(server.url()).profile(profile);
        let ours = builder.clone().prefix("orders:").connect().await.unwrap();
        let theirs = builder.prefix(String::from("invoices:")).connect().await.unwrap();
        let guard = ours.mutex("42").unwrap().lock().await.unwrap();
        let _other = theirs.mutex("42").unwrap().lock().await.unwrap();
        assert_eq!(guard.name(), "orders:42");
        let mut keys = look::lock_keys(&mut connection);
        keys.sort();
        assert_eq!(keys, ["invoices:42", "orders:42"]);
        assert!(plain.mutex("orders:42").unwrap().is_locked().await.unwrap());
        assert!(ours.reentrant_lock("42").unwrap().try_lock().await.unwrap().is_err());

        let error = ours.mutex("a\nb").unwrap_err().to_string();
        assert!(error.contains("orders:a"), "{error}");
        assert!(ours.mutex("").unwrap_err().to_string().contains("empty"));
        let report = ours.preflight("43").await.unwrap();
        assert!(report.is_usable() && report.to_string().contains("orders:43"), "{report}");
        let line = ours.required_acl(["*"]).unwrap().to_string();
        let channel = format!(" &redisson_lock__channel{separator}{{orders:*}} ");
        assert!(line.contains(" ~orders:* ") && line.contains(&channel), "{line}");
        assert!(!line.contains(" ~* "), "{line}");
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_prefix_that_no_name_could_follow_is_refused_before_anything_is_sent() {
    for (prefix, reason) in
        [("a{b", "{tag}"), ("a\nb", "control character"), (&"x".repeat(512), "513 bytes")]
    {
        // Nobody listens there.
        let builder = LockClient::builder().url("redis://127.0.0.1:1").prefix(prefix);
        let error = builder.connect().await.unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option: "prefix", .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

// ---- how the connections stand

#[tokio::test]
async fn a_client_says_how_its_connections_stand() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let minute = Duration::from_secs(60);
    // With so long a command timeout a ping that waits for it would not end here.
    let builder = LockClient::builder().url(proxy.url()).outage_limit(minute).lease(2 * minute);
    let client = builder.command_timeout(minute).connect().await.unwrap();
    let mutex = client.mutex("lock").unwrap();
    assert!(client.is_connected());
    let links = client.links();
    let [link] = &links[..] else { panic!("{links:?}") };
    assert!(link.is_connected && link.reconnects == 0 && link.trouble.is_none(), "{link:?}");
    assert!(proxy.url().ends_with(&link.address) && !link.address.is_empty(), "{link:?}");

    proxy.refuse(true);
    proxy.cut();
    until(|| !client.is_connected()).await;
    let error = client.ping().await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { waited, .. } if waited.is_zero()), "{error}");
    let links = client.links();
    let trouble = links[0].trouble.as_deref().unwrap_or_default();
    assert!(!links[0].is_connected && !trouble.is_empty(), "{links:?}");
    assert!(error.to_string().contains(trouble), "{error}");

    proxy.refuse(false);
    until(|| client.is_connected()).await;
    client.ping().await.unwrap();
    let links = client.links();
    assert_eq!((links[0].reconnects, client.stats().reconnects), (1, 1), "{links:?}");
    mutex.lock().await.unwrap().unlock().await.unwrap();
    assert!(client.links()[0].trouble.is_none());
    client.shutdown(Duration::from_secs(5)).await.unwrap();
    assert!(!client.is_connected() && client.links().is_empty());
}

#[tokio::test]
async fn a_link_that_never_was_has_lasted_since_the_first_failure() {
    let nobody = RedisServer::not_started(&[]);
    let client = LockClient::builder().url(nobody.url()).connect_lazy().unwrap();
    until(|| client.links().iter().any(|link| link.trouble.is_some())).await;
    let link = client.links().remove(0);
    assert!(!link.is_connected && link.lasts < Duration::from_secs(60), "{link:?}");
}

#[tokio::test]
async fn an_open_ping_ends_when_the_connection_is_lost() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let minute = Duration::from_secs(60);
    let builder = LockClient::builder().url(proxy.url()).outage_limit(minute).lease(2 * minute);
    let client = builder.command_timeout(minute).connect().await.unwrap();
    proxy.swallow(crate::support::proxy::Direction::Down, true);
    let seen = proxy.seen("PING");
    let pinging = tokio::spawn({
        let client = client.clone();
        async move { client.ping().await }
    });
    until(|| proxy.seen("PING") > seen).await;
    proxy.refuse(true);
    proxy.cut();
    assert!(matches!(pinging.await.unwrap(), Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn waits_holds_and_failed_acquisitions_are_counted() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mutex = client.mutex("lock").unwrap();
    let guard = mutex.lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await.unwrap().unlock().await.unwrap() }
    });
    until(|| client.stats().waiters == 1).await;
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(20) {
        tokio::task::yield_now().await;
    }
    guard.unlock().await.unwrap();
    waiting.await.unwrap();
    let stats = client.stats();
    assert!(stats.wait_micros >= 20_000 && stats.hold_micros >= 20_000, "{stats:?}");
    assert_eq!(stats.failed_acquisitions, 0);
    let mut connection = server.connection();
    redis::cmd("SET").arg("lock").arg("a value").exec(&mut connection).unwrap();
    assert!(matches!(mutex.lock().await, Err(Error::KeyConflict { .. })));
    assert!(matches!(mutex.try_lock().await, Err(Error::KeyConflict { .. })));
    assert_eq!(client.stats().failed_acquisitions, 2);
    let never = LockOptions::new().lease(Duration::ZERO);
    assert!(matches!(mutex.lock_with(never).await, Err(Error::InvalidOption { .. })));
    assert_eq!(client.stats().failed_acquisitions, 2, "the client has not begun");
}

// ---- at_least

const MINUTE: Duration = Duration::from_secs(60);

/// What stands under a name: its field, its count, and what is left of its time to live in ms.
fn stands(server: &RedisServer, name: &str) -> (String, String, i64) {
    let mut connection = server.connection();
    let fields = look::hash(&mut connection, name);
    let pttl = redis::cmd("PTTL").arg(name).query(&mut connection).unwrap();
    let (field, count) = fields.into_iter().next().expect("the name is taken");
    (field, count, pttl)
}

#[tokio::test]
async fn a_name_stays_taken_for_at_least_after_its_release() {
    let server = RedisServer::start();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let mutex = ours.mutex("lock").unwrap();
    let options =
        LockOptions::new().lease(Duration::from_secs(5)).at_least(MINUTE).wait(Duration::ZERO);
    let guard = mutex.lock_with(options).await.unwrap().unwrap();
    let hold = guard.hold_id();
    assert!(guard.valid_until().remaining() <= Duration::from_secs(5));
    let (field, count, pttl) = stands(&server, "lock");
    assert_eq!((field, count.as_str()), (hold.clone(), "1"));
    assert!((50_000..=60_000).contains(&pttl), "{pttl}");
    guard.unlock().await.unwrap();

    let (field, count, pttl) = stands(&server, "lock");
    assert_eq!((field, count.as_str()), (format!("{hold}:kept"), "0"));
    assert!((50_000..=60_000).contains(&pttl), "{pttl}");
    for client in [&ours, &theirs] {
        let mutex = client.mutex("lock").unwrap();
        assert!(mutex.try_lock().await.unwrap().is_err());
        assert!(mutex.is_locked().await.unwrap());
        let holder = mutex.holder().await.unwrap().unwrap();
        assert_eq!((holder.hold_id(), holder.count), (format!("{hold}:kept"), 0));
    }
    // An operator can free it.
    assert!(theirs.mutex("lock").unwrap().force_unlock().await.unwrap());
    mutex.try_lock().await.unwrap().unwrap().unlock().await.unwrap();
    assert!(!mutex.is_locked().await.unwrap());
}

/// The lease of a watched hold is longer than what is left.
#[tokio::test]
async fn the_rest_replaces_the_lease_and_waiters_learn_of_it() {
    let server = RedisServer::start();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let options = LockOptions::new().at_least(Duration::from_millis(300));
    let guard = ours.mutex("lock").unwrap().lock_with(options).await.unwrap().unwrap();
    let granted = tokio::time::Instant::now();
    let counts = theirs.clone();
    let waiting = tokio::spawn(async move { theirs.mutex("lock").unwrap().lock().await.map(drop) });
    until(|| counts.stats().subscriptions > 0).await;
    guard.unlock().await.unwrap();
    waiting.await.unwrap().unwrap();
    // A millisecond for the round trip of the grant, before which the time began.
    assert!(granted.elapsed() >= Duration::from_millis(250), "{:?}", granted.elapsed());
}

#[tokio::test]
async fn a_name_stays_taken_after_a_drop_a_loss_and_a_shutdown() {
    let server = RedisServer::start();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let kept = |lease: Duration| LockOptions::new().lease(lease).at_least(MINUTE);
    let short = kept(Duration::from_millis(50));
    let lost = ours.mutex("lost").unwrap().lock_with(short).await.unwrap().unwrap();
    assert_eq!(lost.lost().await, LossReason::Expired);
    drop(lost);
    drop(ours.mutex("dropped").unwrap().lock_with(kept(MINUTE)).await.unwrap().unwrap());
    let _held = ours.mutex("shut down").unwrap().lock_with(kept(MINUTE)).await.unwrap().unwrap();
    // Its own waiter meets the hold that was lost, and gives it up: not before its time.
    let refused = ours.mutex("lost").unwrap().try_lock().await.unwrap();
    assert!(refused.is_err());
    assert!(ours.shutdown(Duration::from_secs(5)).await.unwrap().is_clean());
    for name in ["lost", "dropped", "shut down"] {
        let (_, _, pttl) = stands(&server, name);
        assert!((50_000..=60_000).contains(&pttl), "{name}: {pttl}");
        assert!(theirs.mutex(name).unwrap().try_lock().await.unwrap().is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_grant_that_was_given_back_leaves_the_name_free() {
    let server = RedisServer::start();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let guard = theirs.mutex("lock").unwrap().lock().await.unwrap();
    let mutex = ours.mutex("lock").unwrap();
    {
        let options = LockOptions::new().at_least(MINUTE);
        let mut waiting = std::pin::pin!(mutex.lock_with(options));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        until(|| ours.stats().waiters == 1).await;
        guard.unlock().await.unwrap();
        // Granted, and nobody looks.
        until(|| ours.stats().grants == 1).await;
    }
    let mut connection = server.connection();
    settles("the name is free", move || look::hash(&mut connection, "lock").is_empty()).await;
}

#[tokio::test]
async fn an_at_least_out_of_its_limits_is_refused() {
    let server = RedisServer::start();
    let mutex = client(&server).await.mutex("lock").unwrap();
    for at_least in [Duration::from_millis(9), Duration::from_secs(86_401), Duration::MAX] {
        let refused = mutex.lock_with(LockOptions::new().at_least(at_least)).await;
        assert!(
            matches!(refused, Err(Error::InvalidOption { option: "at_least", .. })),
            "{refused:?}"
        );
    }
    mutex
        .lock_with(LockOptions::new().at_least(Duration::ZERO))
        .await
        .unwrap()
        .unwrap()
        .unlock()
        .await
        .unwrap();
    assert!(!mutex.is_locked().await.unwrap());
}

// ---- guards that are left to their leases

#[tokio::test]
async fn a_guard_that_is_left_keeps_the_name_taken_whatever_becomes_of_its_client() {
    let server = RedisServer::start();
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let guard = ours.mutex("lock").unwrap().lock().await.unwrap();
    let hold = guard.hold_id();
    guard.leave_to_lease();
    // Its own waiters let it be as well.
    assert!(ours.mutex("lock").unwrap().try_lock().await.unwrap().is_err());
    ours.shutdown(Duration::from_secs(5)).await.unwrap();
    let (field, count, pttl) = stands(&server, "lock");
    assert_eq!((field, count.as_str()), (hold, "1"));
    assert!((10_000..=30_000).contains(&pttl), "{pttl}");
    let mutex = theirs.mutex("lock").unwrap();
    let holder = mutex.holder().await.unwrap().unwrap();
    assert!(mutex.force_unlock_from(&holder).await.unwrap());
}
