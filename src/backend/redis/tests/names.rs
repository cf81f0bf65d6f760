//! Names that resolve to several addresses, the first of which cannot be used.

use std::net::SocketAddr;
use std::net::TcpListener;

use super::driver::Driver;
use super::driver::SECOND;
use super::driver::count;
use super::proxy::FaultProxy;
use super::redis_server::RedisServer;
use super::sentinels::Sentinel;
use crate::backend::BackendEvent;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::Value;
use crate::backend::redis::names::tests::FakeAnswer;
use crate::backend::redis::names::tests::answers;
use crate::backend::redis::names::tests::named;
use crate::backend::redis::names::tests::rename;

/// A listener that accepts connections and never replies.
fn mute() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// How many connections were made since the last call.
fn connections(mute: &TcpListener) -> usize {
    mute.set_nonblocking(true).expect("an option");
    std::iter::from_fn(|| mute.accept().ok()).count()
}

fn address_of(server: &RedisServer) -> SocketAddr {
    server.address().parse().expect("an address")
}

fn replica() -> RedisServer {
    RedisServer::with(&["--replicaof", "127.0.0.1", "1"])
}

/// A pub/sub connection that was made before the command connection is replaced, whichever server
/// it leads to.
async fn subscribe(driver: &mut Driver) {
    for generation in 1.. {
        driver.events.clear();
        driver.subscribe("news", generation);
        let subscribed = driver
            .until("Subscribed or PubSubUp", |event| match event {
                BackendEvent::Subscribed { generation: of, result, .. } if *of == generation => {
                    assert_eq!(*result, Ok(()));
                    Some(true)
                }
                BackendEvent::PubSubUp => Some(false),
                _ => None,
            })
            .await;
        if subscribed {
            return;
        }
    }
}

async fn locks_and_hears(driver: &mut Driver, server: &RedisServer) {
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
    subscribe(driver).await;
    let heard: Result<u32, _> =
        redis::cmd("PUBLISH").arg("news").arg("hello").query(&mut server.connection());
    assert_eq!(heard, Ok(1), "subscribed at the server that has the locks");
    assert_eq!(driver.message().await, ("news".to_owned(), "hello".to_owned()));
}

#[tokio::test]
async fn an_address_that_is_mute_and_one_of_a_replica_leave_it_to_the_next() {
    let (listener, mute) = mute();
    let (replica, server) = (replica(), RedisServer::start());
    for protocol in ["resp2", "resp3"] {
        let addresses = [mute, address_of(&replica), address_of(&server)];
        let config = named(&format!("redis://db?protocol={protocol}"), &addresses);
        let mut driver = Driver::with(config);
        driver.both_up().await;
        assert!(connections(&listener) >= 1, "the first is tried first");
        locks_and_hears(&mut driver, &server).await;
        assert!(
            !driver.events.iter().any(|event| matches!(event, BackendEvent::ConnectFailed { .. }))
        );
        driver.close().await;
        let () = redis::cmd("FLUSHALL").query(&mut server.connection()).expect("flushed");
    }
}

#[tokio::test]
async fn the_address_that_was_good_is_tried_first_when_the_connection_is_lost() {
    let (listener, mute) = mute();
    let mut server = RedisServer::start();
    let mut driver = Driver::with(named("redis://db", &[mute, address_of(&server)]));
    driver.both_up().await;
    connections(&listener);
    server.restart();
    driver.down().await;
    driver.pubsub_down().await;
    driver.both_up().await;
    let again = connections(&listener);
    // While the server was away, the other addresses were tried again one after the other.
    let () = redis::cmd("CLIENT")
        .arg(&["KILL", "TYPE", "normal"])
        .query(&mut server.connection())
        .expect("killed");
    driver.down().await;
    driver.up().await;
    assert_eq!(connections(&listener), 0, "{again} before");
}

#[tokio::test]
async fn when_no_address_will_do_the_error_names_them_all() {
    let (_listener, mute) = mute();
    let replica = replica();
    let closed = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut driver = Driver::with(named("redis://db:7", &[mute, closed, address_of(&replica)]));
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::Unsupported, "{failure}");
    for words in [
        "db:7: at ".to_owned(),
        format!("at {mute}: no answer to PING and INFO within 2s"),
        format!("at {closed}: "),
        format!("at {}: it is a replica", replica.address()),
    ] {
        assert!(failure.message.contains(&words), "{words} in {failure}");
    }
    // A silent address beside one that refuses connections makes the failure a `Link`.
    let mut driver = Driver::with(named("redis://db", &[mute, closed]));
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::Link, "{failure}");
}

/// As after a failover behind the host name of a managed service.
#[tokio::test]
async fn a_name_is_resolved_anew_for_every_connection() {
    let (mut old, new) = (RedisServer::start(), RedisServer::start());
    let config = named("redis://db", &[address_of(&old)]);
    let mut driver = Driver::with(config.clone());
    let before = driver.both_up().await;
    rename(&config, "db", &[address_of(&new)]);
    old.stop();
    driver.down().await;
    driver.pubsub_down().await;
    assert_ne!(driver.both_up().await.run_id, before.run_id);
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
    let heard = |event: &BackendEvent| match event {
        BackendEvent::ConnectFailed { failure, .. } => {
            failure.message.contains("pub/sub is missing")
        }
        _ => false,
    };
    assert!(!driver.events.iter().any(heard), "{:?}", driver.events);
    driver.close().await;
}

#[tokio::test]
async fn a_sentinel_is_found_behind_an_address_that_is_mute() {
    let (_listener, mute) = mute();
    let server = RedisServer::start();
    let sentinel = Sentinel::start(server.port(), 1).await;
    let there = SocketAddr::from(([127, 0, 0, 1], sentinel.port));
    let mut driver = Driver::with(named("redis-sentinel://watcher/main", &[mute, there]));
    driver.both_up().await;
    locks_and_hears(&mut driver, &server).await;
    driver.close().await;
}

/// Both servers stay reachable.
#[tokio::test]
async fn a_connection_that_is_lost_takes_the_other_one_along_to_the_new_address() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    // Also as the host name of a node of a cluster.
    for config in [named("redis://db", &[]), named("redis-cluster://db", &[]).at("db", 6379)] {
        rename(&config, "db", &[address_of(&old)]);
        let mut driver = Driver::with(config.clone());
        let before = driver.both_up().await;
        subscribe(&mut driver).await;
        rename(&config, "db", &[address_of(&new)]);
        let asked = answers(&config).asked();
        let () = redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "pubsub"])
            .query(&mut old.connection())
            .expect("killed");
        driver.down().await;
        let after = driver.up().await;
        assert_ne!(after.run_id, before.run_id);
        assert!(
            answers(&config).asked() <= asked + 3,
            "each new connection has resolved the name once"
        );
        locks_and_hears(&mut driver, &new).await;
        driver.close().await;
        let () = redis::cmd("FLUSHALL").query(&mut new.connection()).expect("flushed");
    }
}

#[tokio::test]
async fn a_sentinel_is_left_when_its_name_stands_for_another_one() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let (before, after) =
        (Sentinel::start(old.port(), 1).await, Sentinel::start(new.port(), 2).await);
    let at = |sentinel: &Sentinel| SocketAddr::from(([127, 0, 0, 1], sentinel.port));
    let config = named("redis-sentinel://watcher/main", &[at(&before)]);
    let mut driver = Driver::with(config.clone());
    assert_eq!(driver.both_up().await.address, old.address());
    rename(&config, "watcher", &[at(&after)]);
    driver.down().await;
    assert_eq!(driver.up().await.address, new.address());
    locks_and_hears(&mut driver, &new).await;
    driver.close().await;
}

/// As behind a proxy that is replaced by another one. Messages must move as well, although the
/// server is the same.
#[tokio::test]
async fn both_connections_leave_an_address_that_led_to_the_same_server() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let config = named("redis://db", &[proxy.address().parse().expect("an address")]);
    let mut driver = Driver::with(config.clone());
    let before = driver.both_up().await;
    assert_eq!(proxy.connections(), 2);
    // Without a subscription it would be killed like the other connection.
    subscribe(&mut driver).await;
    rename(&config, "db", &[address_of(&server)]);
    let () = redis::cmd("CLIENT")
        .arg(&["KILL", "TYPE", "normal"])
        .query(&mut server.connection())
        .expect("killed");
    driver.down().await;
    assert_eq!(driver.up().await.run_id, before.run_id);
    driver.pubsub_down().await;
    driver.pubsub_up().await;
    locks_and_hears(&mut driver, &server).await;
    let left = async {
        while proxy.connections() > 0 {
            driver.listen(SECOND / 100).await;
        }
    };
    tokio::time::timeout(10 * SECOND, left).await.expect("the old way is left");
    driver.close().await;
}

/// As with weighted records: there are two ways to one server, and the resolver returns one of them
/// at a time.
#[tokio::test]
async fn a_name_whose_answers_take_turns_makes_no_storm_of_connections() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let ways = vec![address_of(&server), proxy.address().parse().expect("an address")];
    let config = named("redis://db", &ways[..1]);
    let mut driver = Driver::with(config.clone());
    driver.both_up().await;
    answers(&config).say("db", FakeAnswer::OneOf(ways));
    let asked = answers(&config).asked();
    driver.listen(16 * SECOND).await;
    let again = answers(&config).asked() - asked;
    assert!((2..=70).contains(&again), "resolved {again} times in 16 seconds");
    driver.close().await;
}
