//! Kinds of servers and addresses.

use super::driver::Driver;
use super::driver::count;
use super::redis_server::RedisServer;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::Value;

#[tokio::test]
async fn one_server_over_tcp_and_unix_socket_in_both_protocols() {
    let server = RedisServer::start();
    let socket = server.socket().display().to_string();
    let urls = [
        server.url(),
        format!("{}?protocol=resp3", server.url()),
        format!("valkey+unix://{socket}"),
        format!("unix://{socket}?protocol=resp3"),
    ];
    for (turn, url) in (1..).zip(urls) {
        let mut driver = Driver::new(&url);
        let info = driver.both_up().await;
        assert_eq!(info.run_id.len(), 40, "{info:?}");
        assert!(info.version.split('.').count() == 3, "{info:?}");
        assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(turn)));

        driver.subscribe("news", 1);
        assert_eq!(driver.subscribed("news", 1).await, Ok(()));
        assert_eq!(redis::cmd("PUBLISH").arg("news").arg("hello").query(&mut server.connection()), Ok(1));
        assert_eq!(driver.message().await, ("news".to_owned(), "hello".to_owned()), "{url}");
        driver.close().await;
    }
}

#[tokio::test]
async fn time_and_ping_have_their_own_replies() {
    let server = RedisServer::start();
    let mut driver = Driver::connected(&server.url()).await;
    assert_eq!(driver.call(Call::Ping).await, Outcome::Done(Value::List(Vec::new())));
    let Outcome::Done(Value::List(time)) = driver.call(Call::Time).await else { panic!("no TIME") };
    let [Value::Int(micros)] = time[..] else { panic!("{time:?}") };
    assert!(micros > 1_600_000_000_000_000, "{micros}");
}

#[tokio::test]
async fn a_server_may_come_later() {
    let mut server = RedisServer::not_started(&[]);
    let mut driver = Driver::new(&server.url());
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::Link);
    assert!(failure.message.contains(&server.address()), "{failure}");
    let call = driver.call(count("n")).await;
    assert!(matches!(&call, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Link), "{call:?}");
    server.restart();
    driver.both_up().await;
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
}

#[tokio::test]
async fn a_restarted_server_has_another_run_id() {
    let mut server = RedisServer::start();
    let mut driver = Driver::new(&server.url());
    let before = driver.both_up().await;
    server.restart();
    driver.down().await;
    driver.pubsub_down().await;
    let after = driver.both_up().await;
    assert_ne!(before.run_id, after.run_id);
    assert!(!driver.events.iter().any(|event| matches!(event, BackendEvent::Up(_))));
}
