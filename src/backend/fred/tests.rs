//! The rules of every backend, and the pitfalls of fred, on real servers and behind a proxy that
//! causes faults.

use super::*;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use fred::interfaces::ClientLike;
use fred::types::RespVersion;
use fred::types::config::ReconnectPolicy;
use tokio::io::AsyncBufReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::BufReader;
use tokio::net::TcpListener;
use tokio::net::TcpStream;

use crate::backend::Value;
use crate::backend::redis::tests::driver::APPEND;
use crate::backend::redis::tests::driver::Driver;
use crate::backend::redis::tests::driver::SECOND;
use crate::backend::redis::tests::driver::count;
use crate::backend::redis::tests::driver::lua_files;
use crate::backend::redis::tests::driver::script;
use crate::backend::redis::tests::proxy::Direction;
use crate::backend::redis::tests::proxy::Fault;
use crate::backend::redis::tests::proxy::FaultProxy;
use crate::backend::redis::tests::redis_server::RedisServer;
use crate::backend::redis::tests::redis_server::eventually;
use crate::backend::redis::tests::redis_server::has_redis_7;

/// A backend made from a client that retries commands three times and reconnects, as users
/// configure it.
fn driver_with(config: FredConfig) -> Driver {
    let client = FredClient::new(config, None, None, Some(ReconnectPolicy::new_constant(0, 1)));
    let settings = Settings::of(&client, SECOND).expect("one server");
    Driver::over(Box::new(FredBackend::new(settings)))
}

fn driver(url: &str) -> Driver {
    driver_with(FredConfig::from_url(url).expect("an address"))
}

/// A connected driver; the server has cached the scripts.
async fn connected(url: &str) -> Driver {
    let mut driver = driver(url);
    driver.both_up().await;
    for call in [count("known"), script(&APPEND, &["known:list"], &["0"])] {
        assert!(matches!(driver.call(call).await, Outcome::Done(_)));
    }
    driver
}

fn behind_a_proxy() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    (server, proxy)
}

fn get(server: &RedisServer, key: &str) -> i64 {
    redis::cmd("GET").arg(key).query(&mut server.connection()).expect("a number")
}

#[tokio::test]
async fn a_call_whose_reply_was_lost_is_unknown_and_not_sent_again() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = connected(&proxy.url()).await;
    for turn in 1..=5 {
        proxy.once("counter", Fault::CutBeforeReply);
        let lost = driver.call(count("counter")).await;
        assert!(
            matches!(&lost, Outcome::Unknown(failure) if failure.kind == FailureKind::Link),
            "{lost:?}"
        );
        driver.down().await;
        driver.up().await;
        assert_eq!(driver.call(count("other")).await, Outcome::Done(Value::Int(turn)));
        assert_eq!(get(&server, "counter"), turn);
    }
}

#[tokio::test]
async fn nothing_runs_twice_while_the_connection_is_killed_again_and_again() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = connected(&proxy.url()).await;
    proxy.kill_every(Some(Duration::from_millis(40)));
    let (mut calls, mut done, mut not_executed) = (0, 0, 0);
    // Until some of the connections were killed, which may take a while on a busy machine.
    while calls < 2_000 || done == calls {
        assert!(calls < 1_000_000, "nothing was killed");
        calls += 20;
        let ops: Vec<_> = (0..20).map(|_| driver.submit(count("counter"))).collect();
        for op in ops {
            match driver.answer(op).await {
                Outcome::Done(_) => done += 1,
                Outcome::NotExecuted(_) => not_executed += 1,
                Outcome::Unknown(_) => {}
            }
        }
    }
    proxy.kill_every(None);
    let counted = get(&server, "counter");
    assert!((done..=calls - not_executed).contains(&counted), "{done} {counted} {not_executed}");
    assert!(done > 0, "everything was killed");
}

#[tokio::test]
async fn a_call_while_the_link_is_down_is_refused_and_never_sent() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = connected(&proxy.url()).await;
    proxy.refuse(true);
    proxy.cut();
    driver.down().await;
    let refused = driver.call(count("counter")).await;
    assert!(matches!(refused, Outcome::NotExecuted(_)), "{refused:?}");
    proxy.refuse(false);
    driver.up().await;
    assert_eq!(driver.call(count("counter")).await, Outcome::Done(Value::Int(1)));
    assert_eq!(get(&server, "counter"), 1);
}

#[tokio::test]
async fn calls_reach_the_server_in_the_order_of_their_submission() {
    let server = RedisServer::start();
    let mut driver = connected(&server.url()).await;
    let numbers: Vec<_> = (0..1_000).map(|number: u32| number.to_string()).collect();
    let ops: Vec<_> = numbers
        .iter()
        .map(|text| driver.submit_within(script(&APPEND, &["list"], &[text]), 9 * SECOND))
        .collect();
    for op in ops {
        assert!(matches!(driver.answer(op).await, Outcome::Done(_)));
    }
    let list: Vec<String> = redis::cmd("LRANGE")
        .arg(&["list", "0", "-1"])
        .query(&mut server.connection())
        .expect("list");
    assert_eq!(list, numbers);
}

#[tokio::test]
async fn an_unknown_script_is_sent_in_full_unless_a_later_call_is_on_its_way() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = connected(&proxy.url()).await;
    let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.connection()).expect("flushed");
    let append = |text| script(&APPEND, &["list"], &[text]);
    assert!(matches!(driver.call(append("first")).await, Outcome::Done(_)));
    proxy.once("overtaken", Fault::Answer(b"-NOSCRIPT No matching script.\r\n".to_vec()));
    let (overtaken, later) = (driver.submit(append("overtaken")), driver.submit(append("later")));
    let outcome = driver.answer(overtaken).await;
    assert!(
        matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Busy),
        "{outcome:?}"
    );
    assert_eq!(driver.answer(later).await, Outcome::Done(Value::Int(2)));
}

/// With traffic as well, which prevents fred's own check for unresponsive connections.
#[tokio::test]
async fn a_silent_connection_is_replaced_and_its_calls_are_unknown() {
    let (_server, proxy) = behind_a_proxy();
    let mut driver = connected(&proxy.url()).await;
    proxy.swallow(Direction::Down, true);
    let begun = Instant::now();
    let is_down = |event: &BackendEvent| matches!(event, BackendEvent::Down { .. });
    while !driver.events.iter().any(is_down) {
        let op = driver.submit_within(count("counter"), Duration::from_millis(100));
        assert!(!matches!(driver.answer(op).await, Outcome::Done(_)));
        assert!(begun.elapsed() < 10 * SECOND, "the server is silent");
    }
    driver.down().await;
    driver.pubsub_down().await;
    proxy.swallow(Direction::Down, false);
    driver.both_up().await;
}

/// CLUSTERDOWN is one of the replies after which fred ends its task for a client. All later
/// commands of that client would wait forever.
#[tokio::test]
async fn a_client_whose_router_has_ended_is_replaced() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = connected(&proxy.url()).await;
    proxy.once("counter", Fault::Answer(b"-CLUSTERDOWN Hash slot not served\r\n".to_vec()));
    let outcome = driver.call(count("counter")).await;
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    driver.down().await;
    driver.up().await;
    assert_eq!(driver.call(count("counter")).await, Outcome::Done(Value::Int(1)));
    assert_eq!(get(&server, "counter"), 1);
}

/// fred 10.1 ends its task after a redirection as well, if it takes the server for a node of a
/// cluster.
#[tokio::test]
async fn a_redirection_ends_nothing() {
    let (_server, proxy) = behind_a_proxy();
    let mut driver = connected(&proxy.url()).await;
    for redirection in ["-ASK 1 127.0.0.1:1\r\n", "-MOVED 1 127.0.0.1:1\r\n"] {
        proxy.once("counter", Fault::Answer(redirection.into()));
        let outcome = driver.call(count("counter")).await;
        assert!(matches!(outcome, Outcome::NotExecuted(_)), "{outcome:?}");
        assert!(matches!(driver.call(count("other")).await, Outcome::Done(_)));
    }
    assert!(!driver.events.iter().any(|event| matches!(event, BackendEvent::Down { .. })));
}

/// From the lost reply on, fred gives each command the reply to the next one.
#[tokio::test]
async fn a_connection_that_has_lost_a_reply_is_replaced() {
    let (_server, proxy) = behind_a_proxy();
    let mut driver = connected(&proxy.url()).await;
    proxy.once("lost", Fault::DropReply);
    let begun = Instant::now();
    let cause = loop {
        let op = driver.submit_within(count("lost"), Duration::from_millis(100));
        driver.answer(op).await;
        let down = driver.events.iter().find_map(|event| match event {
            BackendEvent::Down { cause, .. } => Some(cause.clone()),
            _ => None,
        });
        if let Some(cause) = down {
            break cause;
        }
        assert!(begun.elapsed() < 10 * SECOND, "the shift was not noticed");
    };
    assert!(cause.contains("the reply to another command"), "{cause}");
    driver.down().await;
    driver.up().await;
    assert_eq!(driver.call(count("counter")).await, Outcome::Done(Value::Int(1)));
}

/// fred takes a reply for a message if it is a list of three or four elements that begins with a
/// word such as `message`. Its caller then gets no reply, and later callers get wrong ones.
#[test]
fn no_script_replies_with_a_list_that_begins_with_a_text() {
    let mut lists = 0;
    for (file, text) in lua_files() {
        for begin in ["return {", "local answer = {"] {
            for (at, _) in text.match_indices(begin) {
                let list = &text[at + begin.len()..];
                let is_number = list.starts_with(|c: char| c.is_ascii_digit() || c == '-');
                let is_time = list.starts_with("now");
                let is_error = list.starts_with("err =");
                assert!(is_number || is_time || is_error, "{}: {begin}{list:.20}", file.display());
                lists += 1;
            }
        }
    }
    assert!(lists > 50, "{lists}");
}

#[tokio::test]
async fn subscribed_is_what_the_server_says_in_both_protocols() {
    for version in [RespVersion::RESP2, RespVersion::RESP3] {
        let (server, proxy) = behind_a_proxy();
        let config = FredConfig::from_url(&proxy.url()).expect("an address");
        let mut driver = driver_with(FredConfig { version, ..config });
        driver.both_up().await;
        proxy.delay(Direction::Up, Duration::from_millis(200));
        let begun = Instant::now();
        driver.subscribe("news", 1);
        assert_eq!(driver.subscribed("news", 1).await, Ok(()));
        assert!(begun.elapsed() >= Duration::from_millis(200), "before the server knew of it");
        assert_eq!(
            redis::cmd("PUBLISH").arg("news").arg("0").query(&mut server.connection()),
            Ok(1)
        );
        assert_eq!(driver.message().await, ("news".to_owned(), "0".to_owned()));
    }
}

/// Makes a user who may subscribe only to channels that begin with `allowed:`.
fn limit(server: &RedisServer) {
    let () = redis::cmd("ACL")
        .arg(&["SETUSER", "limited", "on", ">secret", "~*", "+@all", "resetchannels", "&allowed:*"])
        .query(&mut server.connection())
        .expect("a user");
}

/// The address of a relay to this server that waits between two lines of replies.
async fn line_by_line(server: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.expect("a server");
            let ((mut from_client, mut to_client), (from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(async move {
                let (mut replies, mut line) = (BufReader::new(from_server), Vec::new());
                while replies.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
                    to_client.write_all(&line).await?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    line.clear();
                }
                std::io::Result::Ok(())
            });
        }
    });
    address
}

#[tokio::test]
async fn a_refused_subscription_fails_alone_and_shifts_no_answer() {
    let server = RedisServer::start();
    limit(&server);
    let mut driver = connected(&format!("redis://limited:secret@{}", server.address())).await;
    for round in 0..20 {
        let (forbidden, allowed) = (format!("forbidden:{round}"), format!("allowed:{round}"));
        driver.subscribe(&forbidden, round);
        driver.subscribe(&allowed, round);
        let refused = driver.subscribed(&forbidden, round).await.expect_err("no permission");
        assert!(
            refused.kind == FailureKind::Denied && refused.message.contains(&forbidden),
            "{refused}"
        );
        assert_eq!(driver.subscribed(&allowed, round).await, Ok(()));
    }
    let count: usize = redis::cmd("PUBLISH")
        .arg("allowed:7")
        .arg("0")
        .query(&mut server.connection())
        .expect("sent");
    assert_eq!(count, 1);
    assert!(!driver.events.iter().any(|event| matches!(event, BackendEvent::PubSubDown)));
    if has_redis_7("sharded pub/sub") {
        driver.backend.subscribe("forbidden:s".into(), true, 1);
        driver.backend.subscribe("allowed:s".into(), true, 1);
        assert!(driver.subscribed("forbidden:s", 1).await.is_err());
        assert_eq!(driver.subscribed("allowed:s", 1).await, Ok(()));
    }
}

/// Between the refusal of a SUBSCRIBE and the reply to the PING behind it, another request could be
/// sent. It must not get that reply.
#[tokio::test]
async fn a_refusal_over_a_slow_link_shifts_no_answer() {
    let server = RedisServer::start();
    limit(&server);
    let address = line_by_line(server.address()).await;
    let mut driver = connected(&format!("redis://limited:secret@{address}")).await;
    for round in 0..5 {
        let (forbidden, allowed) = (format!("forbidden:{round}"), format!("allowed:{round}"));
        driver.subscribe(&forbidden, round);
        driver.subscribe(&allowed, round);
        assert!(driver.subscribed(&forbidden, round).await.is_err());
        assert_eq!(driver.subscribed(&allowed, round).await, Ok(()));
        let heard =
            redis::cmd("PUBLISH").arg(&[allowed.as_str(), "0"]).query(&mut server.connection());
        assert_eq!(heard, Ok(1));
    }
    assert!(!driver.events.iter().any(|event| matches!(event, BackendEvent::PubSubDown)));
}

/// Valkey 8.0 refuses an UNSUBSCRIBE if nothing is subscribed; other servers confirm it.
#[tokio::test]
async fn there_may_be_nothing_to_end() {
    let (_server, proxy) = behind_a_proxy();
    let refusal = "-NOSUB 'unsubscribe' command executed not in subscribed mode\r\n";
    proxy.nth("UNSUBSCRIBE", 0, 100, Fault::Answer(refusal.into()));
    let mut driver = connected(&proxy.url()).await;
    driver.unsubscribe("none");
    driver.subscribe("news", 1);
    assert_eq!(driver.subscribed("news", 1).await, Ok(()));
    assert!(proxy.clear() > 0, "every UNSUBSCRIBE was refused");
}

#[tokio::test]
async fn messages_that_fred_has_lost_count_as_a_lost_connection() {
    let server = RedisServer::start();
    let mut driver = connected(&server.url()).await;
    driver.subscribe("news", 1);
    assert_eq!(driver.subscribed("news", 1).await, Ok(()));
    let mut connection = server.connection();
    tokio::task::spawn_blocking(move || {
        let mut pipe = redis::pipe();
        for _ in 0..100_000 {
            pipe.cmd("PUBLISH").arg("news").arg("0").ignore();
        }
        let () = pipe.query(&mut connection).expect("published");
    })
    .await
    .expect("a publisher");
    let mut passed_on = 0;
    driver
        .until("all or a loss", |event| {
            passed_on += usize::from(matches!(event, BackendEvent::Message { .. }));
            (passed_on == 100_000 || matches!(event, BackendEvent::PubSubDown)).then_some(())
        })
        .await;
}

#[tokio::test]
async fn reconnect_replaces_both_of_ours_and_leaves_the_users() {
    let server = RedisServer::start();
    let config = FredConfig::from_url(&server.url()).expect("an address");
    let theirs = FredClient::new(config, None, None, None);
    theirs.init().await.expect("connected");
    let mut redis = server.connection();
    let before = ids(&mut redis);
    let mut driver = Driver::over(Box::new(FredBackend::new(
        Settings::of(&theirs, SECOND).expect("one server"),
    )));
    driver.both_up().await;
    let first = ids(&mut redis);
    driver.backend.reconnect(ServerId::ONLY);
    driver.down().await;
    driver.pubsub_down().await;
    driver.both_up().await;
    eventually("the old ones are gone", || {
        let now = ids(&mut redis);
        now.len() == 4 && now.intersection(&first).eq(&before)
    });
}

#[tokio::test]
async fn a_node_of_a_cluster_is_refused_and_the_other_way_is_named() {
    let server = RedisServer::with(&["--cluster-enabled", "yes"]);
    let mut driver = driver(&server.url());
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::Unsupported);
    assert!(
        failure.message.contains("fred_config") && failure.message.contains(&server.address()),
        "{failure}"
    );
}

#[tokio::test]
async fn a_replica_is_refused_until_it_is_promoted() {
    let server = RedisServer::with(&["--replicaof", "127.0.0.1", "1"]);
    let mut driver = driver(&server.url());
    assert_eq!(driver.connect_failed().await.kind, FailureKind::Unsupported);
    let () = redis::cmd("REPLICAOF")
        .arg(&["NO", "ONE"])
        .query(&mut server.connection())
        .expect("promoted");
    driver.both_up().await;
}

#[tokio::test]
async fn close_waits_for_what_is_on_its_way_and_leaves_nothing() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = connected(&proxy.url()).await;
    proxy.delay(Direction::Down, Duration::from_millis(100));
    let ops: Vec<_> = (0..50).map(|_| driver.submit(count("counter"))).collect();
    driver.close().await;
    for op in ops {
        assert!(matches!(driver.answer(op).await, Outcome::Done(_)));
    }
    let late = driver.submit(count("counter"));
    assert!(matches!(driver.answer(late).await, Outcome::NotExecuted(_)));
    assert_eq!(get(&server, "counter"), 50);
    let mut redis = server.connection();
    eventually("its connections are gone", || connections(&mut redis) == 1);
}

#[tokio::test]
async fn close_does_not_wait_for_a_server_that_is_frozen_or_not_there() {
    let server = RedisServer::start();
    let mut driver = connected(&server.url()).await;
    server.freeze();
    driver.close().await;
    server.thaw();
    let nobody = RedisServer::not_started(&[]);
    self::driver(&nobody.url()).close().await;
}

fn connections(redis: &mut redis::Connection) -> usize {
    ids(redis).len()
}

/// The number of all connections of the server.
fn ids(redis: &mut redis::Connection) -> BTreeSet<String> {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(redis).expect("a list");
    list.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn a_call_that_waits_too_long_behind_others_is_not_executed_and_never_sent() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = connected(&proxy.url()).await;
    proxy.delay(Direction::Down, Duration::from_millis(300));
    let ops: Vec<_> = (0..5_000)
        .map(|_| driver.submit_within(count("counter"), Duration::from_millis(500)))
        .collect();
    let (mut executed, mut refused) = (0, 0);
    for op in ops {
        match driver.answer(op).await {
            Outcome::Done(_) => executed += 1,
            Outcome::NotExecuted(_) => refused += 1,
            Outcome::Unknown(_) => {}
        }
    }
    let unknown = 5_000 - executed - refused;
    assert!(refused > 1_000 && unknown <= 1_024, "{executed} {refused} {unknown}");
    assert_eq!(driver.call(count("other")).await, Outcome::Done(Value::Int(1)));
    assert!((executed..=executed + unknown).contains(&get(&server, "counter")));
}
