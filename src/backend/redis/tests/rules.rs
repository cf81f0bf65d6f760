//! One test on a real server for each rule that a client's connections have to keep. Each test
//! fails if its rule is dropped.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use super::driver::APPEND;
use super::driver::COUNT;
use super::driver::Driver;
use super::driver::ECHO;
use super::driver::SECOND;
use super::driver::count;
use super::driver::lua_files;
use super::driver::script;
use super::proxy::Direction;
use super::proxy::Fault;
use super::proxy::FaultProxy;
use super::redis_server::RedisServer;
use super::redis_server::has_redis_7;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::Value;

fn behind_a_proxy() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    (server, proxy)
}

/// A user who may do everything but subscribe to `forbidden:*`.
fn server_with_forbidden_channels() -> (RedisServer, String) {
    let server = RedisServer::start();
    let () = redis::cmd("ACL")
        .arg(&["SETUSER", "limited", "on", ">secret", "~*", "+@all", "resetchannels", "&allowed:*"])
        .query(&mut server.connection())
        .expect("a user");
    let url = format!("redis://limited:secret@{}", server.address());
    (server, url)
}

#[tokio::test]
async fn rule_01_a_call_whose_reply_was_lost_is_not_sent_again() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    // From here on the server has the script.
    assert_eq!(driver.call(count("other")).await, Outcome::Done(Value::Int(1)));
    for turn in 1..=5 {
        proxy.once("counter", Fault::CutBeforeReply);
        let lost = driver.call(count("counter")).await;
        assert!(
            matches!(&lost, Outcome::Unknown(failure) if failure.kind == FailureKind::Link),
            "{lost:?}"
        );
        driver.down().await;
        driver.up().await;
        assert_eq!(driver.call(count("other")).await, Outcome::Done(Value::Int(turn + 1)));
        assert_eq!(redis::cmd("GET").arg("counter").query(&mut server.connection()), Ok(turn));
    }
}

#[tokio::test]
async fn rule_02_no_wait_is_without_an_end() {
    let (_server, proxy) = behind_a_proxy();
    // The first connection's handshake is never answered; only a timeout can notice that.
    proxy.once("replication", Fault::Mute);
    let mut driver = Driver::new(&proxy.url());
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::Link);
    driver.up().await;
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
}

#[tokio::test]
async fn rule_03_a_call_that_timed_out_before_it_was_written_never_is() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    assert_eq!(driver.call(count("counter")).await, Outcome::Done(Value::Int(1)));
    proxy.stall(Direction::Up, true);
    // Fills every buffer, so that the next call is not written.
    let filler = "x".repeat(32 * 1024 * 1024);
    let big = driver.submit_within(script(&COUNT, &["filler"], &[&filler]), 9 * SECOND);
    let late = driver.submit_within(count("counter"), Duration::from_millis(200));
    let outcome = driver.answer(late).await;
    assert!(!matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    proxy.stall(Direction::Up, false);
    assert!(matches!(driver.answer(big).await, Outcome::Done(_)));
    assert_eq!(driver.call(Call::Ping).await, Outcome::Done(Value::List(Vec::new())));
    assert_eq!(redis::cmd("GET").arg("counter").query(&mut server.connection()), Ok(1));
}

#[tokio::test]
async fn rule_04_connections_are_made_again_for_ever() {
    let (_server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    for _ in 0..3 {
        proxy.refuse(true);
        proxy.cut();
        driver.down().await;
        driver.pubsub_down().await;
        for _ in 0..6 {
            assert_eq!(driver.connect_failed().await.kind, FailureKind::Link);
        }
        let call = driver.call(count("n")).await;
        assert!(matches!(call, Outcome::NotExecuted(_)), "{call:?}");
        proxy.refuse(false);
        driver.both_up().await;
        assert!(matches!(driver.call(count("n")).await, Outcome::Done(_)));
    }
}

#[tokio::test]
async fn rule_05_subscriptions_and_commands_do_not_share_a_connection() {
    let (server, url) = server_with_forbidden_channels();
    let mut driver = Driver::connected(&url).await;
    for round in 0..20 {
        let texts: Vec<String> = (0..50).map(|number| format!("{round}-{number}")).collect();
        let mut ops = Vec::new();
        for text in &texts {
            ops.push(driver.submit(script(&ECHO, &[], &[text])));
            driver.subscribe(&format!("forbidden:{text}"), 1);
        }
        for (op, text) in ops.into_iter().zip(&texts) {
            assert_eq!(driver.answer(op).await, Outcome::Done(Value::Text(text.clone())));
        }
    }
    driver.subscribe("allowed:1", 1);
    assert_eq!(driver.subscribed("allowed:1", 1).await, Ok(()));
    let clients: String =
        redis::cmd("CLIENT").arg("LIST").query(&mut server.connection()).expect("clients");
    let ours: Vec<&str> = clients.lines().filter(|line| line.contains("user=limited")).collect();
    let (messages, commands): (Vec<&str>, Vec<&str>) =
        ours.iter().partition(|line| line.contains(" sub=1 "));
    assert_eq!((messages.len(), commands.len()), (1, 1), "{clients}");
    assert!(commands[0].contains("cmd=eval"), "{clients}");
}

#[tokio::test]
async fn rule_06_subscribed_is_what_the_server_says() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    proxy.delay(Direction::Up, Duration::from_millis(200));
    for generation in 1..=3 {
        let channel = format!("slow:{generation}");
        driver.subscribe(&channel, generation);
        assert_eq!(driver.subscribed(&channel, generation).await, Ok(()));
        assert_eq!(
            redis::cmd("PUBLISH").arg(&channel).arg("0").query(&mut server.connection()),
            Ok(1)
        );
    }
}

/// Not only when a PING is due: for this many requests that would take half a minute.
#[tokio::test]
async fn rule_06_a_subscription_is_asked_for_at_once() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    let subscribe = async {
        for generation in 1..=20 {
            driver.listen(Duration::ZERO).await;
            driver.subscribe("channel", generation);
            assert_eq!(driver.subscribed("channel", generation).await, Ok(()));
        }
    };
    tokio::time::timeout(10 * SECOND, subscribe).await.expect("asked for at once");
}

#[tokio::test]
async fn rule_06_a_refused_subscription_fails_alone() {
    let (server, url) = server_with_forbidden_channels();
    for protocol in ["resp2", "resp3"] {
        let mut driver = Driver::connected(&format!("{url}?protocol={protocol}")).await;
        let channels: Vec<String> = (0..40)
            .map(|number| {
                format!("{}:{number}", if number % 3 == 0 { "forbidden" } else { "allowed" })
            })
            .collect();
        for channel in &channels {
            driver.subscribe(channel, 7);
        }
        for channel in &channels {
            match driver.subscribed(channel, 7).await {
                Ok(()) => assert!(channel.starts_with("allowed"), "{channel}"),
                Err(failure) => {
                    assert!(channel.starts_with("forbidden"), "{channel}: {failure}");
                    assert_eq!(failure.kind, FailureKind::Denied);
                }
            }
        }
        for channel in channels.iter().filter(|channel| channel.starts_with("allowed")) {
            let reached =
                redis::cmd("PUBLISH").arg(channel).arg("0").query(&mut server.connection());
            assert_eq!(reached, Ok(1), "{channel}");
        }
        assert!(!driver.events.iter().any(|event| matches!(event, BackendEvent::PubSubDown)));
        driver.close().await;
    }
}

/// Valkey 8.0 refuses an UNSUBSCRIBE if nothing is subscribed; other servers confirm it.
#[tokio::test]
async fn rule_06_there_may_be_nothing_to_end() {
    let (server, proxy) = behind_a_proxy();
    let refusal = "-NOSUB 'unsubscribe' command executed not in subscribed mode\r\n";
    for protocol in ["resp2", "resp3"] {
        proxy.nth("UNSUBSCRIBE", 0, 100, Fault::Answer(refusal.into()));
        let url = format!("{}?protocol={protocol}", proxy.url());
        let connected = tokio::time::timeout(10 * SECOND, Driver::connected(&url)).await;
        let mut driver = connected.expect("a pub/sub connection");
        for generation in 1..=2 {
            driver.backend.unsubscribe(Arc::from("none"), false);
            driver.subscribe("news", generation);
            assert_eq!(driver.subscribed("news", generation).await, Ok(()));
            publish_text(&server, "0").await;
            assert_eq!(driver.message().await, ("news".to_owned(), "0".to_owned()), "{protocol}");
        }
        assert!(!driver.events.iter().any(|event| matches!(event, BackendEvent::PubSubDown)));
        assert!(proxy.clear() > 0, "every UNSUBSCRIBE was refused");
        driver.close().await;
    }
}

#[tokio::test]
async fn rule_06_refused_sharded_subscriptions_fail_alone() {
    if !has_redis_7("sharded pub/sub") {
        return;
    }
    let (server, url) = server_with_forbidden_channels();
    let mut driver = Driver::connected(&url).await;
    for (channel, generation) in [("allowed:1", 1), ("forbidden:2", 2), ("allowed:3", 3)] {
        driver.backend.subscribe(Arc::from(channel), true, generation);
        driver.subscribe(&format!("plain:{channel}"), generation);
    }
    assert_eq!(driver.subscribed("allowed:1", 1).await, Ok(()));
    assert_eq!(
        driver.subscribed("forbidden:2", 2).await.map_err(|failure| failure.kind),
        Err(FailureKind::Denied)
    );
    assert_eq!(driver.subscribed("allowed:3", 3).await, Ok(()));
    assert!(driver.subscribed("plain:allowed:3", 3).await.is_err());
    assert_eq!(
        redis::cmd("SPUBLISH").arg("allowed:3").arg("0").query(&mut server.connection()),
        Ok(1)
    );
    assert_eq!(driver.message().await, ("allowed:3".to_owned(), "0".to_owned()));
    driver.backend.unsubscribe(Arc::from("allowed:3"), true);
    driver.backend.subscribe(Arc::from("allowed:4"), true, 4);
    assert_eq!(driver.subscribed("allowed:4", 4).await, Ok(()));
    assert_eq!(
        redis::cmd("SPUBLISH").arg("allowed:3").arg("0").query(&mut server.connection()),
        Ok(0)
    );
}

#[tokio::test]
async fn rule_07_who_reads_too_slowly_is_turned_out_and_told_so() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    driver.subscribe("news", 1);
    assert_eq!(driver.subscribed("news", 1).await, Ok(()));
    let limit = ["SET", "client-output-buffer-limit", "pubsub 1mb 0 0"];
    let () = redis::cmd("CONFIG").arg(&limit).query(&mut server.connection()).expect("a limit");
    // Also more messages than the sockets take.
    publish(&server, 30_000, &"x".repeat(1_000)).await;
    driver.pubsub_down().await;
    driver.pubsub_up().await;
    driver.subscribe("news", 2);
    assert_eq!(driver.subscribed("news", 2).await, Ok(()));
    publish_text(&server, "after").await;
    while driver.message().await.1 != "after" {}
}

#[tokio::test]
async fn rule_07_no_subscription_survives_its_connection_unless_asked_for_again() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    for generation in 1..=5 {
        driver.subscribe("news", generation);
        assert_eq!(driver.subscribed("news", generation).await, Ok(()));
        publish_text(&server, "0").await;
        assert_eq!(driver.message().await.0, "news");
        proxy.cut();
        driver.pubsub_down().await;
        driver.pubsub_up().await;
        assert_eq!(
            redis::cmd("PUBLISH").arg("news").arg("0").query(&mut server.connection()),
            Ok(0)
        );
    }
}

#[tokio::test]
async fn rule_08_a_burst_of_messages_is_not_lost() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    driver.subscribe("news", 1);
    assert_eq!(driver.subscribed("news", 1).await, Ok(()));
    // The backend is not polled meanwhile.
    publish(&server, 20_000, "").await;
    for number in 0..20_000 {
        assert_eq!(driver.message().await.1, number.to_string());
    }
    assert!(!driver.events.iter().any(|event| matches!(event, BackendEvent::PubSubDown)));
}

/// Publishes numbers, each followed by this text.
async fn publish(server: &RedisServer, messages: usize, padding: &str) {
    let (mut connection, padding) = (server.connection(), padding.to_owned());
    tokio::task::spawn_blocking(move || {
        let mut pipe = redis::pipe();
        for number in 0..messages {
            pipe.cmd("PUBLISH").arg("news").arg(format!("{number}{padding}")).ignore();
        }
        let () = pipe.query(&mut connection).expect("published");
    })
    .await
    .expect("publisher");
}

async fn publish_text(server: &RedisServer, text: &'static str) {
    let mut connection = server.connection();
    let reached = tokio::task::spawn_blocking(move || {
        redis::cmd("PUBLISH").arg("news").arg(text).query(&mut connection)
    });
    assert_eq!(reached.await.expect("publisher"), Ok(1));
}

#[tokio::test]
async fn rule_09_a_silent_command_connection_is_replaced_under_steady_traffic() {
    let (_server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    proxy.swallow(Direction::Down, true);
    let down = |event: &BackendEvent| matches!(event, BackendEvent::Down { .. });
    while !driver.events.iter().any(down) {
        let outcome = driver.submit_within(Call::Ping, Duration::from_millis(300));
        driver.listen(Duration::from_millis(50)).await;
        assert!(outcome.0 < 180, "the connection was not replaced within 9 s of silence");
    }
    proxy.swallow(Direction::Down, false);
    driver.up().await;
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
}

#[tokio::test]
async fn rule_09_a_silent_pubsub_connection_is_replaced_without_any_traffic() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    driver.subscribe("news", 1);
    assert_eq!(driver.subscribed("news", 1).await, Ok(()));
    proxy.swallow(Direction::Down, true);
    driver.pubsub_down().await;
    proxy.swallow(Direction::Down, false);
    driver.pubsub_up().await;
    driver.subscribe("news", 2);
    assert_eq!(driver.subscribed("news", 2).await, Ok(()));
    publish_text(&server, "0").await;
    assert_eq!(driver.message().await.0, "news");
}

#[test]
fn rule_11_no_reply_of_a_script_looks_like_a_message() {
    for (path, text) in lua_files() {
        // A reply of three or four words that begins with "message", "subscribe" and the like never
        // arrives.
        let tables = text.split("return {").skip(1);
        // `{err = …}` becomes an error reply, not a table.
        for table in tables.filter(|table| !table.starts_with("err = ")) {
            let first = table.trim_start_matches('-').chars().next();
            assert!(
                first.is_some_and(|first| first.is_ascii_digit()),
                "{}: return {{{table}",
                path.display()
            );
        }
    }
}

#[tokio::test]
async fn rule_12_calls_reach_the_server_in_the_order_of_their_submission() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    let ops: Vec<_> = (0..3_000)
        .map(|number: u32| {
            // Long and short ones, so that a second path to the server would let some overtake
            // others.
            let text = format!("{number}:{}", "x".repeat(if number % 7 == 0 { 20_000 } else { 1 }));
            driver.submit_within(script(&APPEND, &["list"], &[&text]), 9 * SECOND)
        })
        .collect();
    for op in ops {
        assert!(matches!(driver.answer(op).await, Outcome::Done(_)));
    }
    let list: Vec<String> = redis::cmd("LRANGE")
        .arg(&["list", "0", "-1"])
        .query(&mut server.connection())
        .expect("list");
    let numbers: Vec<u32> = list
        .iter()
        .map(|text| text.split(':').next().unwrap_or_default().parse().expect("a number"))
        .collect();
    assert_eq!(numbers, (0..3_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn rule_12_the_order_holds_when_the_server_loses_its_scripts() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    let mut flusher = server.connection();
    let mut done = Vec::new();
    for round in 0..40 {
        let mut ops = Vec::new();
        for number in 0..50 {
            let text = format!("{round}:{number}");
            ops.push((
                driver.submit_within(script(&APPEND, &["list"], &[&text]), 9 * SECOND),
                text,
            ));
            if number == 25 {
                let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut flusher).expect("flushed");
            }
            // Lets replies arrive in between, so that new calls come during a reload.
            tokio::task::yield_now().await;
            driver.listen(Duration::ZERO).await;
        }
        for (op, text) in ops {
            assert!(matches!(driver.answer(op).await, Outcome::Done(_)), "{text}");
            done.push(text);
        }
    }
    let list: Vec<String> = redis::cmd("LRANGE")
        .arg(&["list", "0", "-1"])
        .query(&mut server.connection())
        .expect("list");
    assert_eq!(list, done);
}

#[tokio::test]
async fn rule_12_an_unknown_script_is_not_sent_again_after_a_later_call() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    let append = |text| script(&APPEND, &["list"], &[text]);
    assert!(matches!(driver.call(append("first")).await, Outcome::Done(_)));
    proxy.once("overtaken", Fault::Answer(b"-NOSCRIPT No matching script.\r\n".to_vec()));
    let overtaken = driver.submit(append("overtaken"));
    let later = driver.submit(append("later"));
    let last = driver.submit(append("last"));
    let outcome = driver.answer(overtaken).await;
    assert!(
        matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Busy),
        "{outcome:?}"
    );
    assert_eq!(driver.answer(later).await, Outcome::Done(Value::Int(2)));
    assert_eq!(driver.answer(last).await, Outcome::Done(Value::Int(3)));
    assert_eq!(driver.call(append("end")).await, Outcome::Done(Value::Int(4)));
    let list: Vec<String> = redis::cmd("LRANGE")
        .arg(&["list", "0", "-1"])
        .query(&mut server.connection())
        .expect("list");
    assert_eq!(list, ["first", "later", "last", "end"]);
}

#[tokio::test]
async fn rule_12_a_reload_ends_under_steady_traffic() {
    let (_server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    assert!(matches!(driver.call(count("n")).await, Outcome::Done(_)));
    proxy.delay(Direction::Down, Duration::from_millis(20));
    proxy.once("lost", Fault::Answer(b"-NOSCRIPT No matching script.\r\n".to_vec()));
    let op = driver.submit_within(count("lost"), 60 * SECOND);
    // Some call is in flight at every moment.
    for _ in 0..1_000 {
        driver.submit_within(Call::Ping, 60 * SECOND);
        driver.listen(Duration::from_millis(1)).await;
        if driver.is_answered(op) {
            return;
        }
    }
    panic!("a call that met an unknown script was held up by those after it");
}

#[tokio::test]
async fn rule_13_a_client_that_ended_is_replaced() {
    let (_server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    for turn in 1..=3 {
        proxy.once("odd", Fault::Forge(b"what is this\r\n\r\n".to_vec()));
        let odd = driver.call(count("odd")).await;
        assert!(matches!(odd, Outcome::Unknown(_)), "{odd:?}");
        driver.down().await;
        driver.up().await;
        assert_eq!(driver.call(count("even")).await, Outcome::Done(Value::Int(turn)));
    }
}

#[tokio::test]
async fn nothing_runs_twice_while_the_connection_is_killed_again_and_again() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    proxy.kill_every(Some(Duration::from_millis(40)));
    let (mut done, mut unknown) = (0, 0);
    for _ in 0..300 {
        let ops: Vec<_> = (0..10).map(|_| driver.submit(count("n"))).collect();
        for op in ops {
            match driver.answer(op).await {
                Outcome::Done(_) => done += 1,
                Outcome::Unknown(_) => unknown += 1,
                Outcome::NotExecuted(_) => driver.listen(Duration::from_millis(1)).await,
            }
        }
    }
    proxy.kill_every(None);
    let executed: i64 =
        redis::cmd("GET").arg("n").query(&mut server.connection()).expect("a number");
    assert!(
        executed >= done && executed <= done + unknown,
        "{executed} executed, {done} done, {unknown} unknown"
    );
    assert!(done > 0);
}

#[tokio::test]
async fn many_subscriptions_at_once_are_all_confirmed() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    for number in 0..1_500 {
        driver.subscribe(&format!("channel:{number}"), number);
    }
    for number in 0..1_500 {
        assert_eq!(driver.subscribed(&format!("channel:{number}"), number).await, Ok(()));
    }
    let mut connection = server.connection();
    let reached = join_all((0..1_500).map(|number| {
        let reached = redis::cmd("PUBLISH")
            .arg(format!("channel:{number}"))
            .arg("0")
            .query::<u32>(&mut connection);
        async move { reached }
    }));
    assert!(reached.await.into_iter().all(|reached| reached == Ok(1)));
}

/// While commands are answered, a pub/sub connection that fails does not mean that the server is
/// down.
#[tokio::test]
async fn a_failure_says_whether_it_is_about_subscriptions_alone() {
    let (server, proxy) = behind_a_proxy();
    let mut driver = Driver::connected(&proxy.url()).await;
    driver.subscribe("news", 1);
    driver.subscribed("news", 1).await.expect("a subscription");
    proxy.once("UNSUBSCRIBE", Fault::CutBeforeReply);
    let kill = ["KILL", "TYPE", "pubsub"];
    let _: u32 = redis::cmd("CLIENT").arg(&kill).query(&mut server.connection()).expect("killed");
    let failure = driver.connect_failed().await;
    assert!(failure.message.ends_with(" (pub/sub)"), "{failure}");

    let nobody = RedisServer::not_started(&[]);
    let failure = Driver::new(&nobody.url()).connect_failed().await;
    assert!(!failure.message.contains("(pub/sub)"), "{failure}");
}
