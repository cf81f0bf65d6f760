//! What the server replies, and the outcomes of the calls.

use crate::backend::ServerId;
use std::time::Duration;

use super::driver::Driver;
use super::driver::ECHO;
use super::driver::SECOND;
use super::driver::count;
use super::driver::script;
use super::proxy::Direction;
use super::proxy::Fault;
use super::proxy::FaultProxy;
use super::redis_server::RedisServer;
use crate::backend::Call;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::Script;
use crate::backend::Value;

static SHAPES: Script =
    Script { name: "test/shapes", source: "return {1, 'two', {3, {}}, 3.99, false, 7}" };
static NIL: Script = Script { name: "test/nil", source: "return nil" };
static EMPTY: Script = Script { name: "test/empty", source: "return {}" };
static BROKEN: Script = Script { name: "test/broken", source: "this is not Lua" };
static GLOBAL: Script = Script { name: "test/global", source: "return nowhere" };
static FOREVER: &str = "while true do end";

#[tokio::test]
async fn values_keep_their_shape() {
    let server = RedisServer::start();
    for protocol in ["resp2", "resp3"] {
        let mut driver = Driver::connected(&format!("{}?protocol={protocol}", server.url())).await;
        let shapes = Value::List(vec![
            Value::Int(1),
            Value::Text("two".to_owned()),
            Value::List(vec![Value::Int(3), Value::List(Vec::new())]),
            Value::Int(3),
            Value::Nil,
            Value::Int(7),
        ]);
        assert_eq!(driver.call(script(&SHAPES, &[], &[])).await, Outcome::Done(shapes));
        assert_eq!(driver.call(script(&NIL, &[], &[])).await, Outcome::Done(Value::Nil));
        assert_eq!(
            driver.call(script(&EMPTY, &[], &[])).await,
            Outcome::Done(Value::List(Vec::new()))
        );
        for text in ["", "7", "Grüße 🔒", "a\r\nb"] {
            assert_eq!(
                driver.call(script(&ECHO, &[], &[text])).await,
                Outcome::Done(Value::Text(text.to_owned()))
            );
        }
    }
}

#[tokio::test]
async fn an_unknown_script_is_sent_in_full_and_only_once() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let mut driver = Driver::connected(&proxy.url()).await;
    for turn in 1..=3 {
        assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(2 * turn - 1)));
        assert_eq!(proxy.seen("EVAL"), u64::try_from(turn).expect("small"));
        assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(2 * turn)));
        assert_eq!(proxy.seen("EVAL"), u64::try_from(turn).expect("small"));
        let () =
            redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.connection()).expect("flushed");
    }
}

#[tokio::test]
async fn broken_scripts_are_refused_in_redis_s_words() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    let broken = driver.call(script(&BROKEN, &[], &[])).await;
    assert!(
        matches!(&broken, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Refused),
        "{broken:?}"
    );
    let global = driver.call(script(&GLOBAL, &[], &[])).await;
    assert!(
        matches!(&global, Outcome::Unknown(failure) if failure.message.contains("nowhere")),
        "{global:?}"
    );
}

#[tokio::test]
async fn refusals_leave_the_connection_alone_and_are_not_executed() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let mut driver = Driver::connected(&proxy.url()).await;
    for (reply, kind) in [
        ("-LOADING Redis is loading the dataset in memory\r\n", FailureKind::Busy),
        ("-BUSY Redis is busy running a script.\r\n", FailureKind::Busy),
        ("-MASTERDOWN Link with MASTER is down.\r\n", FailureKind::Busy),
        ("-TRYAGAIN Multiple keys request during rehashing of slot\r\n", FailureKind::SlotMoving),
        ("-OOM command not allowed when used memory > 'maxmemory'.\r\n", FailureKind::OutOfMemory),
        ("-READONLY You can't write against a read only replica.\r\n", FailureKind::ReadOnly),
        (
            "-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
            FailureKind::Denied,
        ),
        ("-MOVED 1 127.0.0.1:1\r\n", FailureKind::Redirected),
        ("-ASK 1 127.0.0.1:1\r\n", FailureKind::Redirected),
        ("-WRONGTYPE Operation against a key\r\n", FailureKind::Refused),
    ] {
        proxy.once("forged", Fault::Answer(reply.as_bytes().to_vec()));
        let outcome = driver.call(count("forged")).await;
        assert!(
            matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == kind),
            "{reply}: {outcome:?}"
        );
        assert!(matches!(driver.call(count("n")).await, Outcome::Done(_)));
    }
    assert_eq!(redis::cmd("EXISTS").arg("forged").query(&mut server.connection()), Ok(0));
    assert!(driver.events.is_empty(), "{:?}", driver.events);
}

#[tokio::test]
async fn a_lost_login_is_reported_and_made_again() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let mut driver = Driver::connected(&proxy.url()).await;
    proxy.once("forged", Fault::Answer(b"-NOAUTH Authentication required.\r\n".to_vec()));
    let outcome = driver.call(count("forged")).await;
    assert!(
        matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Auth),
        "{outcome:?}"
    );
    driver.down().await;
    driver.up().await;
    assert!(matches!(driver.call(count("n")).await, Outcome::Done(_)));
}

#[tokio::test]
async fn a_busy_server_says_so() {
    let server = RedisServer::with(&["--lua-time-limit", "50"]);
    let mut driver = Driver::connected(&server.url()).await;
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
    let mut other = server.connection();
    let blocker = tokio::task::spawn_blocking(move || {
        redis::cmd("EVAL").arg(FOREVER).arg(0).query::<()>(&mut other)
    });
    let busy = loop {
        match driver.call(count("n")).await {
            Outcome::NotExecuted(failure) => break failure,
            Outcome::Done(_) | Outcome::Unknown(_) => {}
        }
    };
    assert_eq!(busy.kind, FailureKind::Busy, "{busy}");
    let () = redis::cmd("SCRIPT").arg("KILL").query(&mut server.connection()).expect("killed");
    assert!(blocker.await.expect("blocker").is_err());
    assert!(matches!(driver.call(count("n")).await, Outcome::Done(_)));
}

#[tokio::test]
async fn a_full_server_refuses_writes_and_says_why() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    let () = redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory", "1"])
        .query(&mut server.connection())
        .expect("set");
    let outcome = driver.call(count("n")).await;
    assert!(
        matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::OutOfMemory),
        "{outcome:?}"
    );
    let () = redis::cmd("CONFIG")
        .arg(&["SET", "maxmemory", "0"])
        .query(&mut server.connection())
        .expect("set");
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
}

#[tokio::test]
async fn a_deposed_primary_is_left_and_waited_for() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
    let () = redis::cmd("REPLICAOF")
        .arg(&["127.0.0.1", "1"])
        .query(&mut server.connection())
        .expect("replica");
    let outcome = driver.call(count("n")).await;
    assert!(
        matches!(&outcome, Outcome::NotExecuted(failure) if failure.kind == FailureKind::ReadOnly),
        "{outcome:?}"
    );
    driver.backend.reconnect(ServerId::ONLY);
    driver.down().await;
    driver.pubsub_down().await;
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::ReadOnly, "its address may soon be another one's");
    assert!(failure.message.contains("replica"), "{failure}");
    let () = redis::cmd("REPLICAOF")
        .arg(&["NO", "ONE"])
        .query(&mut server.connection())
        .expect("primary");
    driver.up().await;
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(2)));
}

#[tokio::test]
async fn every_call_is_answered_in_time_whatever_the_server_does() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    assert!(matches!(driver.call(count("n")).await, Outcome::Done(_)));
    server.freeze();
    let ops: Vec<_> = [0, 1, 50, 300]
        .into_iter()
        .map(|millis| driver.submit_within(count("n"), Duration::from_millis(millis)))
        .collect();
    for op in ops {
        let outcome = driver.answer(op).await;
        assert!(!matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }
    let endless = driver.submit_within(count("n"), Duration::MAX);
    server.thaw();
    let outcome = driver.answer(endless).await;
    assert!(matches!(outcome, Outcome::Done(_) | Outcome::Unknown(_)), "{outcome:?}");
}

#[tokio::test]
async fn every_call_has_its_own_time_and_a_late_reply_is_nobody_else_s() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let mut driver = Driver::connected(&proxy.url()).await;
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
    proxy.stall(Direction::Down, true);
    let within = [900, 300, 600].map(Duration::from_millis);
    let calls = within.map(|time| driver.submit_within(count("n"), time));
    for call in [calls[1], calls[2], calls[0]] {
        let outcome = driver.answer(call).await;
        assert!(
            matches!(&outcome, Outcome::Unknown(failure) if failure.kind == FailureKind::Link),
            "{outcome:?}"
        );
    }
    let next = driver.submit_within(count("n"), 9 * SECOND);
    proxy.stall(Direction::Down, false);
    assert_eq!(driver.answer(next).await, Outcome::Done(Value::Int(5)));
}

#[tokio::test]
async fn too_many_calls_at_once_are_refused_and_never_sent() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
    // Submits without letting anything be written in between.
    let ops: Vec<OpId> =
        (0..12_000).map(|_| driver.submit_within(count("n"), 9 * SECOND)).collect();
    let mut done = 0;
    for op in ops {
        match driver.answer(op).await {
            Outcome::Done(_) => done += 1,
            Outcome::NotExecuted(failure) => {
                assert_eq!(failure.kind, FailureKind::Busy, "{failure}")
            }
            Outcome::Unknown(failure) => panic!("{failure}"),
        }
    }
    assert!((10_000..12_000).contains(&done), "{done} done");
    assert_eq!(redis::cmd("GET").arg("n").query(&mut server.connection()), Ok(done + 1));
}

#[tokio::test]
async fn the_last_of_subscribe_and_unsubscribe_wins() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    for round in 0..50 {
        driver.subscribe("on", 2 * round);
        driver.unsubscribe("on");
        driver.subscribe("on", 2 * round + 1);
        driver.subscribe("off", round);
        driver.unsubscribe("off");
        driver.subscribe("last", round);
        assert_eq!(driver.subscribed("on", 2 * round + 1).await, Ok(()));
        assert_eq!(driver.subscribed("last", round).await, Ok(()));
        let mut publisher = server.connection();
        assert_eq!(redis::cmd("PUBLISH").arg("on").arg("0").query(&mut publisher), Ok(1));
        assert_eq!(redis::cmd("PUBLISH").arg("off").arg("0").query(&mut publisher), Ok(0));
    }
}

#[tokio::test]
async fn close_waits_for_what_is_in_flight_and_leaves_nothing() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let mut driver = Driver::connected(&proxy.url()).await;
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
    proxy.delay(Direction::Down, Duration::from_millis(100));
    let ops: Vec<_> = (0..5).map(|_| driver.submit(count("n"))).collect();
    driver.backend.close();
    let late = driver.submit(Call::Ping);
    assert!(matches!(driver.answer(late).await, Outcome::NotExecuted(_)));
    driver.close().await;
    for (turn, op) in (2..).zip(ops) {
        assert_eq!(driver.answer(op).await, Outcome::Done(Value::Int(turn)));
    }
    super::redis_server::eventually("both connections are gone", || proxy.connections() == 0);
    assert!(
        std::future::poll_fn(|cx| std::task::Poll::Ready(
            driver.backend.poll_event(cx).is_pending()
        ))
        .await
    );
}

#[tokio::test]
async fn close_does_not_wait_for_a_server_that_is_not_there() {
    let server = RedisServer::not_started(&[]);
    let mut driver = Driver::new(&server.url());
    driver.close().await;
}

#[tokio::test]
async fn close_does_not_wait_for_a_frozen_server() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    server.freeze();
    let op = driver.submit_within(count("n"), Duration::from_millis(200));
    driver.close().await;
    assert!(matches!(driver.answer(op).await, Outcome::Unknown(_)));
}

#[tokio::test]
async fn a_dropped_backend_leaves_no_connection() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let driver = Driver::connected(&proxy.url()).await;
    assert_eq!(proxy.connections(), 2);
    drop(driver);
    for _ in 0..1_000 {
        if proxy.connections() == 0 {
            let greeted = proxy.seen("PING");
            // Longer than the pause before the next attempt.
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(proxy.seen("PING"), greeted, "another connection was made");
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} connections are left", proxy.connections());
}
