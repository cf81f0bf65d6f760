//! Several locks as one, on real servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockMember;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::MultiGuard;
use redis_reentrant_lock::MultiLock;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::WireProfile;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::client::builder;
use crate::support::look;
use crate::support::proxy::Fault;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

/// Within this time everything ends that ends at all.
const BOUND: Duration = Duration::from_secs(60);

async fn pair() -> (RedisServer, LockClient, LockClient) {
    let server = RedisServer::start();
    let first = builder(&server.url()).connect().await.unwrap();
    let second = builder(&server.url()).connect().await.unwrap();
    (server, first, second)
}

fn mutexes(client: &LockClient, names: &[&str]) -> MultiLock {
    MultiLock::new(names.iter().map(|name| client.mutex(name).unwrap().into())).unwrap()
}

async fn granted<T>(waiter: JoinHandle<T>) -> T {
    timeout(BOUND, waiter).await.expect("granted").unwrap()
}

fn waits(lock: &MultiLock) -> JoinHandle<MultiGuard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

/// The names of which a key exists.
fn taken(server: &RedisServer) -> Vec<String> {
    let mut keys = look::lock_keys(&mut server.connection());
    keys.sort();
    keys
}

async fn are_taken(server: &RedisServer, names: &'static [&'static str]) {
    let mut redis = server.connection();
    settles("the right names are taken", move || {
        let mut keys = look::lock_keys(&mut redis);
        keys.sort();
        keys == names
    })
    .await;
}

/// A client waits for this name.
async fn is_waited_for(server: &RedisServer, name: &str) {
    let mut redis = server.connection();
    let line = format!("redisson_lock_line__{{{name}}}");
    settles("it is waited for", move || {
        let places: usize = redis::cmd("ZCARD").arg(&line).query(&mut redis).unwrap();
        places > 0
    })
    .await;
}

#[tokio::test]
async fn all_are_taken_or_none() {
    let (server, first, second) = pair().await;
    let all = mutexes(&first, &["c", "a", "b"]);
    assert_eq!(all.names().collect::<Vec<_>>(), ["a", "b", "c"]);

    let guard = all.lock().await.unwrap();
    assert_eq!(taken(&server), ["a", "b", "c"]);
    let names: Vec<&str> = guard.members().iter().map(|member| member.name()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(guard.is_held() && !guard.is_suspect() && guard.loss().is_none());
    guard.ensure(Duration::from_secs(1)).unwrap();
    guard.verify().await.unwrap();
    for name in names {
        assert!(second.mutex(name).unwrap().try_lock().await.unwrap().is_err());
    }
    guard.unlock().await.unwrap();
    assert!(taken(&server).is_empty());

    let other = second.mutex("b").unwrap().lock().await.unwrap();
    for refused in
        [all.try_lock().await.unwrap(), all.try_lock_for(Duration::from_millis(50)).await.unwrap()]
    {
        assert_eq!(refused.unwrap_err().lock_name(), "b");
    }
    are_taken(&server, &["b"]).await;
    other.unlock().await.unwrap();
    assert_eq!(all.with(async |guard| guard.members().len()).await.unwrap(), 3);
    leaves_nothing(&server, &first).await;
    leaves_nothing(&server, &second).await;
}

/// While it waits for one it has those before it in hand, and not those behind it.
#[tokio::test]
async fn what_comes_behind_the_one_waited_for_is_free() {
    let (server, first, second) = pair().await;
    let other = second.mutex("b").unwrap().lock().await.unwrap();
    let waiter = waits(&mutexes(&first, &["a", "b", "c"]));
    is_waited_for(&server, "b").await;
    are_taken(&server, &["a", "b"]).await;
    other.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
    leaves_nothing(&server, &first).await;
}

#[tokio::test]
async fn a_wait_that_is_dropped_leaves_nothing() {
    let (server, first, second) = pair().await;
    let other = second.mutex("b").unwrap().lock().await.unwrap();
    let waiter = waits(&mutexes(&first, &["a", "b"]));
    is_waited_for(&server, "b").await;
    waiter.abort();
    are_taken(&server, &["b"]).await;
    other.unlock().await.unwrap();
    leaves_nothing(&server, &first).await;
}

/// Each takes three of five names, in another order than the others, and counts what they protect.
#[tokio::test]
async fn many_in_any_order_never_block_each_other() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let (server, first, second) = pair().await;
    let counts: Arc<Mutex<BTreeMap<&str, u32>>> = Arc::default();
    let tasks = (0..8_usize).map(|task| {
        let (client, counts) =
            (if task % 2 == 0 { &first } else { &second }.clone(), counts.clone());
        tokio::spawn(async move {
            for turn in 0..25_usize {
                let chosen: Vec<&str> = (0..3)
                    .map(|step| NAMES[(task * 3 + turn + step * (1 + task % 2)) % 5])
                    .collect();
                let guard = mutexes(&client, &chosen).lock().await.unwrap();
                let before = counts.lock().unwrap().clone();
                tokio::task::yield_now().await;
                for name in &chosen {
                    let mut counts = counts.lock().unwrap();
                    let seen = before.get(name).copied().unwrap_or(0);
                    assert_eq!(counts.insert(name, seen + 1).unwrap_or(0), seen, "{name}");
                }
                guard.unlock().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        granted(task).await;
    }
    assert_eq!(counts.lock().unwrap().values().sum::<u32>(), 8 * 25 * 3);
    leaves_nothing(&server, &first).await;
    leaves_nothing(&server, &second).await;
}

#[tokio::test]
async fn one_name_is_one_member_and_writing_includes_reading() {
    let (server, first, second) = pair().await;
    let catalog = first.rw_lock("catalog").unwrap();
    let reading = MultiLock::new([catalog.read_lock(), first.mutex("a").unwrap().into()]).unwrap();
    let both = [catalog.read_lock(), catalog.write_lock(), catalog.read_lock()];
    let writing = MultiLock::new(both).unwrap();
    assert_eq!(writing.names().collect::<Vec<_>>(), ["catalog"]);

    let others = second.rw_lock("catalog").unwrap();
    let read = reading.lock().await.unwrap();
    others.try_read().await.unwrap().expect("beside a reader").unlock().await.unwrap();
    assert!(others.try_write().await.unwrap().is_err());
    // Its own owner would wait for itself.
    let error = writing.lock().await.unwrap_err();
    assert!(matches!(&error, Error::WouldDeadlock { held: None, .. }), "{error}");
    read.unlock().await.unwrap();

    let write = writing.lock().await.unwrap();
    assert!(others.try_read().await.unwrap().is_err());
    // Its owner may read beside it.
    reading.try_lock().await.unwrap().expect("the owner writes").unlock().await.unwrap();
    write.unlock().await.unwrap();
    leaves_nothing(&server, &first).await;
}

#[tokio::test]
async fn an_owner_is_refused_what_comes_before_a_lock_that_it_has() {
    let (server, first, second) = pair().await;
    let lock = |name| -> LockMember { first.reentrant_lock(name).unwrap().into() };
    let both = MultiLock::new([lock("a"), lock("b")]).unwrap();
    let held = first.reentrant_lock("b").unwrap().lock().await.unwrap();
    both.lock().await.expect("nobody has the other").unlock().await.unwrap();

    let other = second.reentrant_lock("a").unwrap().lock().await.unwrap();
    let error = timeout(BOUND, both.lock()).await.expect("at once").unwrap_err();
    assert!(error.to_string().contains("holds \"b\", which comes after it"), "{error}");
    assert!(both.try_lock().await.unwrap().is_err(), "without a wait it is only taken");
    // Another owner may wait for it.
    let (waiting, both) = (both.clone(), both);
    let waiter = tokio::spawn(Owner::new().scope(async move { waiting.lock().await.unwrap() }));
    is_waited_for(&server, "a").await;
    other.unlock().await.unwrap();
    held.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
    both.lock().await.unwrap().unlock().await.unwrap();
    leaves_nothing(&server, &first).await;
}

/// What is free and comes behind the one that is waited for is taken for a moment. That is not what
/// its owner holds.
#[tokio::test]
async fn an_owner_is_not_refused_what_this_call_itself_took_behind_it() {
    let (server, first, second) = pair().await;
    let reentrant = |name| -> LockMember { first.reentrant_lock(name).unwrap().into() };
    let catalog = first.rw_lock("b").unwrap();
    let all = MultiLock::new([reentrant("a"), catalog.write_lock(), reentrant("c")]).unwrap();
    let other = second.mutex("a").unwrap().lock().await.unwrap();
    let (waiting, owner) = (all.clone(), Owner::new());
    let waiter = tokio::spawn(owner.scope(async move { waiting.lock().await.expect("it waits") }));
    is_waited_for(&server, "a").await;
    other.unlock().await.unwrap();
    let guard = granted(waiter).await;

    // What it has of an acquisition outside of this one is.
    let outer = owner.scope(catalog.read()).await.unwrap();
    guard.unlock().await.unwrap();
    let other = second.mutex("a").unwrap().lock().await.unwrap();
    let reading = MultiLock::new([reentrant("a"), catalog.read_lock()]).unwrap();
    let error = timeout(BOUND, owner.scope(reading.lock())).await.expect("at once").unwrap_err();
    assert!(error.to_string().contains("holds \"b\", which comes after it"), "{error}");
    outer.unlock().await.unwrap();
    other.unlock().await.unwrap();
    leaves_nothing(&server, &first).await;
}

#[tokio::test]
async fn a_member_that_is_lost_during_a_wait_is_taken_again() {
    let (server, first, second) = pair().await;
    let other = second.mutex("b").unwrap().lock().await.unwrap();
    let waiter = waits(&mutexes(&first, &["a", "b"]));
    is_waited_for(&server, "b").await;
    let next = waits(&mutexes(&second, &["a"]));
    is_waited_for(&server, "a").await;
    assert!(second.mutex("a").unwrap().force_unlock().await.unwrap());
    let a = granted(next).await;
    // It has heard of the loss by then. An unlock of the other member could come before that.
    is_waited_for(&server, "a").await;
    other.unlock().await.unwrap();
    a.unlock().await.unwrap();
    let guard = granted(waiter).await;
    guard.verify().await.unwrap();
    guard.unlock().await.unwrap();
    leaves_nothing(&server, &first).await;
}

/// Plain locks that are nested in another order would wait for a multi-lock that waits for them.
#[tokio::test]
async fn who_waits_lets_go_of_what_it_has_after_a_lease() {
    let server = RedisServer::start();
    let lease = Duration::from_millis(500);
    let first = builder(&server.url()).lease(lease).connect().await.unwrap();
    let second = builder(&server.url()).connect().await.unwrap();
    let b = second.mutex("b").unwrap().lock().await.unwrap();
    let waiter = waits(&mutexes(&first, &["a", "b"]));
    is_waited_for(&server, "b").await;
    let a = timeout(BOUND, second.mutex("a").unwrap().lock()).await.expect("let go").unwrap();
    b.unlock().await.unwrap();
    a.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
    leaves_nothing(&server, &first).await;
}

/// The lease is shorter than the wait: what is in hand is renewed meanwhile, and then all members end
/// together.
#[tokio::test]
async fn a_fixed_lease_counts_from_the_last_grant() {
    let (server, first, second) = pair().await;
    let lease = Duration::from_millis(1_500);
    let lock = mutexes(&first, &["a", "b"]);
    let b = second.mutex("b").unwrap().lock().await.unwrap();
    let waiter = tokio::spawn(async move {
        let options = LockOptions::new().lease(lease);
        lock.lock_with(options).await.unwrap().unwrap()
    });
    is_waited_for(&server, "b").await;
    let renewed = first.stats().renewals;
    let client = first.clone();
    settles("it is renewed", move || client.stats().renewals > renewed).await;
    b.unlock().await.unwrap();
    let guard = granted(waiter).await;
    let renewed = first.stats().renewals;
    assert!(guard.valid_until().remaining() <= lease);
    let lost = timeout(BOUND, guard.lost()).await.expect("it is not renewed");
    assert_eq!(lost.reason, LossReason::Expired);
    assert_eq!(first.stats().renewals, renewed);
    drop(guard);
    leaves_nothing(&server, &first).await;
}

#[tokio::test]
async fn no_name_is_kept_before_all_are_held() {
    let (server, first, second) = pair().await;
    let options = LockOptions::new().at_least(Duration::from_secs(30)).wait(Duration::ZERO);
    let lock = mutexes(&first, &["a", "b"]);
    let b = second.mutex("b").unwrap().lock().await.unwrap();
    assert!(lock.lock_with(options).await.unwrap().is_err());
    are_taken(&server, &["b"]).await;
    let client = first.clone();
    settles("the client knows that it is released", move || client.stats().holds == 0).await;
    b.unlock().await.unwrap();
    lock.lock_with(options).await.unwrap().unwrap().unlock().await.unwrap();
    assert_eq!(taken(&server), ["a", "b"], "kept for the rest of the time");
    for name in ["a", "b"] {
        assert!(second.mutex(name).unwrap().force_unlock().await.unwrap());
    }
    leaves_nothing(&server, &first).await;
}

#[tokio::test]
async fn members_may_be_on_several_servers() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let mut clients = Vec::new();
    for server in &servers {
        let lease = Duration::from_secs(2);
        clients.push(builder(&server.url()).lease(lease).connect().await.unwrap());
    }
    let member = |client: &LockClient| LockMember::from(client.mutex("a").unwrap());
    let both = MultiLock::new(clients.iter().map(member)).unwrap();
    assert_eq!(both.names().count(), 2);
    let guard = both.lock().await.unwrap();
    for server in &servers {
        assert_eq!(taken(server), ["a"]);
    }
    // The end of one member is the end of all.
    assert!(clients[1].mutex("a").unwrap().force_unlock().await.unwrap());
    let lost = timeout(BOUND, guard.lost()).await.expect("told");
    assert_eq!((lost.name.as_str(), lost.reason), ("a", LossReason::ForceUnlocked));
    assert!(!guard.is_held() && guard.ensure(Duration::ZERO).is_err());
    assert!(matches!(guard.run(std::future::pending::<()>()).await, Err(Error::Lost { .. })));
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    for (server, client) in servers.iter().zip(&clients) {
        leaves_nothing(server, client).await;
    }
}

/// It ends as the lock of that member alone would, and what is on other servers is free meanwhile.
#[tokio::test]
async fn an_outage_is_waited_for_with_nothing_in_hand_and_not_for_ever() {
    let (server, mut down) = (RedisServer::start(), RedisServer::start());
    let client = async |server: &RedisServer| {
        let short = builder(&server.url()).lease(Duration::from_secs(1));
        short.outage_limit(Duration::from_secs(2)).connect().await.unwrap()
    };
    let (first, second) = (client(&server).await, client(&down).await);
    let members = || [first.mutex("a").unwrap().into(), second.mutex("b").unwrap().into()];
    let both = MultiLock::new(members()).unwrap();
    down.stop();
    let waiter = tokio::spawn(async move { both.lock().await });
    let plain = first.mutex("a").unwrap();
    let begun = first.stats().grants;
    let client = first.clone();
    settles("it has had the first", move || client.stats().grants > begun).await;
    timeout(BOUND, plain.lock()).await.expect("let go").unwrap().unlock().await.unwrap();
    let error = granted(waiter).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert_eq!(error.lock_name(), Some("b"));
    leaves_nothing(&server, &first).await;
}

/// The wait ends before the command timeout, and the error is about who has not answered.
#[tokio::test]
async fn the_limit_counts_for_what_does_not_answer() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(
            builder(&server.url()).command_timeout(BOUND).lease(BOUND).connect().await.unwrap(),
        );
    }
    let members = [clients[0].mutex("a").unwrap(), clients[1].mutex("b").unwrap()];
    let both = MultiLock::new(members.map(LockMember::from)).unwrap();
    servers[1].freeze();
    let limit = Duration::from_millis(100);
    let asked = timeout(BOUND / 2, both.try_lock_for(limit)).await.expect("within the limit");
    let error = asked.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert_eq!(error.lock_name(), Some("b"));
    assert!(error.to_string().contains(&servers[1].address()), "{error}");
    servers[1].thaw();
    for (server, client) in servers.iter().zip(&clients) {
        leaves_nothing(server, client).await;
    }
}

/// All are held, and the last answer, on the terms that then count, does not come.
#[cfg(feature = "in-memory")]
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_while_an_attempt_is_under_way_is_no_outage() {
    let server = redis_reentrant_lock::InMemoryServer::new();
    let connect = || LockClient::builder().in_memory(&server).connect();
    let (ours, theirs) = (connect().await.unwrap(), connect().await.unwrap());
    let _held = theirs.mutex("b").unwrap().lock().await.unwrap();
    server.client(&ours).set_reply_delay(Duration::from_millis(40));
    let both = mutexes(&ours, &["a", "b"]);
    for wait in (80..300).cycle().take(600) {
        let asked = both.try_lock_for(Duration::from_millis(wait)).await;

        assert!(asked.expect("its holder is the only reason").is_err());
    }
}

#[tokio::test]
async fn the_limit_counts_for_the_final_terms() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let first = builder(&server.url()).connect().await.unwrap();
    let slow = builder(&proxy.url()).command_timeout(BOUND).lease(BOUND).connect().await.unwrap();
    slow.mutex("b").unwrap().lock().await.unwrap().unlock().await.unwrap();
    let members = [first.mutex("a").unwrap().into(), slow.mutex("b").unwrap().into()];
    let both = MultiLock::new(members).unwrap();
    proxy.nth("EVALSHA", 1, 1, Fault::Mute);
    let options = LockOptions::new().lease(BOUND).wait(Duration::from_millis(500));
    let asked = timeout(BOUND / 2, both.lock_with(options)).await.expect("within the limit");
    let error = asked.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert_eq!((error.lock_name(), proxy.clear()), (Some("b"), 0));
    proxy.cut();
    leaves_nothing(&server, &first).await;
}

#[tokio::test]
async fn one_server_under_two_labels_is_an_error() {
    let server = RedisServer::start();
    let client =
        async |label: &str| builder(&server.url()).deployment(label).connect().await.unwrap();
    let (one, other) = (client("one").await, client("other").await);
    let member = |client: &LockClient| LockMember::from(client.mutex("a").unwrap());
    let both = MultiLock::new([member(&one), member(&other)]).unwrap();
    let error = timeout(BOUND, both.lock()).await.expect("at once").unwrap_err();
    assert!(
        error.to_string().contains("\"other\" for the servers that another member of a has"),
        "{error}"
    );
    // Without labels the address tells.
    let second = builder(&server.url()).connect().await.unwrap();
    let third = builder(&server.url()).connect().await.unwrap();
    assert_eq!(MultiLock::new([member(&second), member(&third)]).unwrap().names().count(), 1);
    leaves_nothing(&server, &one).await;
}

#[tokio::test]
async fn what_is_no_multi_lock_is_refused_before_anything_is_sent() {
    let (server, first, _) = pair().await;
    let lock = |name: &str| LockMember::from(first.mutex(name).unwrap());
    let names: Vec<String> = (0..101).map(|number| format!("n{number}")).collect();
    let cases: [(Vec<LockMember>, &str); 3] = [
        (vec![], "members of a multi-lock 0 is not allowed: it must be 1 to 100"),
        (names.iter().map(|name| lock(name)).collect(), "101 is not allowed: it must be 1 to 100"),
        (
            vec![lock("a"), first.rw_lock("a").unwrap().read_lock()],
            "with \"a\" as two kinds of lock is not allowed: it must be of one kind for each name",
        ),
    ];
    for (members, text) in cases {
        let error = MultiLock::new(members).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    let lock = MultiLock::new([lock("a")]).unwrap();
    let options = LockOptions::new().lease(Duration::from_millis(1));
    assert!(matches!(lock.lock_with(options).await, Err(Error::InvalidOption { .. })));
    assert!(taken(&server).is_empty());
    let mut redis = server.connection();
    assert_eq!(look::script_runs(&mut redis), 0);
}

#[tokio::test]
async fn the_profile_redisson_has_them_too() {
    let server = RedisServer::start();
    let client =
        async || builder(&server.url()).profile(WireProfile::Redisson).connect().await.unwrap();
    let (first, second) = (client().await, client().await);
    let other = second.mutex("b").unwrap().lock().await.unwrap();
    let waiter = waits(&mutexes(&first, &["b", "a"]));
    are_taken(&server, &["a", "b"]).await;
    other.unlock().await.unwrap();
    granted(waiter).await.unlock().await.unwrap();
    leaves_nothing(&server, &first).await;
}

/// Two scripts for each member, as without a multi-lock.
#[tokio::test]
async fn what_is_free_costs_two_scripts_a_member() {
    let (server, first, _) = pair().await;
    let lock = mutexes(&first, &["a", "b", "c", "d"]);
    lock.lock().await.unwrap().unlock().await.unwrap();
    let before = look::script_runs(&mut server.connection());
    lock.lock().await.unwrap().unlock().await.unwrap();
    let runs = look::script_runs(&mut server.connection()) - before;
    assert!(runs <= 8, "{runs} scripts");
}
