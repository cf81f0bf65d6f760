//! Kinds of servers and addresses.

use std::time::Duration;

use super::driver::Driver;
use super::driver::count;
use super::proxy::Fault;
use super::proxy::FaultProxy;
use super::redis_server::RedisServer;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::Failure;
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

        // Another channel each time, because the server may notice late that the former connection
        // has ended.
        let news = format!("news{turn}");
        driver.subscribe(&news, 1);
        assert_eq!(driver.subscribed(&news, 1).await, Ok(()));
        assert_eq!(
            redis::cmd("PUBLISH").arg(&news).arg("hello").query(&mut server.connection()),
            Ok(1)
        );
        assert_eq!(driver.message().await, (news, "hello".to_owned()), "{url}");
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
    assert_eq!(failure.kind, FailureKind::NoListener);
    assert!(failure.message.contains(&server.address()), "{failure}");
    let call = driver.call(count("n")).await;
    assert!(
        matches!(&call, Outcome::NotExecuted(failure) if failure.kind == FailureKind::Link),
        "{call:?}"
    );
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
    assert!(!driver.events.iter().any(|event| matches!(event, BackendEvent::Up(..))));
}

/// A server with users, and the failure of the first attempt to connect with `login` and `path`.
async fn first_failure(server: &RedisServer, login: &str, path: &str) -> Failure {
    let mut driver = Driver::new(&format!("redis://{login}{}{path}", server.address()));
    let failure = driver.connect_failed().await;
    assert!(!failure.message.contains("hunter2"), "{failure}");
    assert!(failure.message.contains(&server.address()), "{failure}");
    failure
}

#[tokio::test]
async fn user_password_and_database_are_used() {
    let server = RedisServer::with(&["--requirepass", "hunter2"]);
    let mut admin =
        redis::Client::open(format!("redis://:hunter2@{}", server.address())).expect("an address");
    let () = redis::cmd("ACL")
        .arg(&["SETUSER", "ann", "on", ">pass@/word", "~*", "&*", "+@all"])
        .query(&mut admin)
        .expect("a user");
    for (turn, url) in [
        format!("redis://:hunter2@{}/3", server.address()),
        format!("redis://default:hunter2@{}?db=3&protocol=resp3", server.address()),
        format!("redis://ann:pass%40%2Fword@{}/3", server.address()),
        format!(
            "redis+unix://ann:pass%40%2Fword@{}?db=3&protocol=resp3",
            server.socket().display()
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut driver = Driver::connected(&url).await;
        let turn = i64::try_from(turn).expect("small") + 1;
        assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(turn)), "{url}");
    }
}

#[tokio::test]
async fn wrong_logins_and_databases_are_said_in_words() {
    let server = RedisServer::with(&["--requirepass", "hunter2"]);
    for protocol in ["resp2", "resp3"] {
        let query = format!("?protocol={protocol}");
        for login in ["", ":hunter22@", "nobody:hunter2@"] {
            let failure = first_failure(&server, login, &query).await;
            assert_eq!(failure.kind, FailureKind::Auth, "{login}: {failure}");
        }
        let failure = first_failure(&server, ":hunter2@", &format!("/99{query}")).await;
        assert_eq!(failure.kind, FailureKind::Refused, "{failure}");
        assert!(failure.message.contains("database"), "{failure}");
    }
}

#[tokio::test]
async fn a_password_nobody_asked_for_is_not_ignored() {
    let server = RedisServer::start();
    let failure = first_failure(&server, "ann:hunter2@", "").await;
    assert_eq!(failure.kind, FailureKind::Auth, "{failure}");
}

#[tokio::test]
async fn an_unknown_host_is_said_in_words() {
    let mut driver = Driver::new("redis://no-such-host.invalid:6379");
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::Link);
    assert!(failure.message.contains("no-such-host.invalid"), "{failure}");
}

#[tokio::test]
async fn a_replica_is_refused_until_it_is_promoted() {
    let server = RedisServer::with(&["--replicaof", "127.0.0.1", "1"]);
    let mut driver = Driver::new(&server.url());
    let failure = driver
        .until("the role's failure", |event| match event {
            BackendEvent::ConnectFailed { failure, .. } => Some(failure.clone()),
            _ => None,
        })
        .await;
    assert_eq!(failure.kind, FailureKind::Unsupported);
    assert!(failure.message.contains("replica"), "{failure}");
    let () = redis::cmd("REPLICAOF")
        .arg(&["NO", "ONE"])
        .query(&mut server.connection())
        .expect("primary");
    driver.up().await;
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
}

#[tokio::test]
async fn a_loading_server_is_waited_for() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let loading = b"-LOADING Redis is loading the dataset in memory\r\n".to_vec();
    proxy.nth("PING", 0, 2, Fault::Forge(loading));
    let mut driver = Driver::new(&proxy.url());
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::Busy, "{failure}");
    driver.both_up().await;
}

#[tokio::test]
async fn a_user_needs_info_and_no_more_than_that_to_be_greeted() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let rights = "on >secret ~* &* +eval +evalsha +incr +ping +subscribe +unsubscribe";
    let mut set_user = |user: &str, more: &[&str]| {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg(user).arg(rights.split(' ').collect::<Vec<_>>()).arg(more);
        command.exec(&mut connection).expect("a user");
    };
    set_user("narrow", &["+info"]);
    set_user("blind", &[]);
    let mut driver = Driver::new(&format!("redis://blind:secret@{}", server.address()));
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::Denied);
    assert!(failure.message.contains("'info' command"), "{failure}");
    let mut driver = Driver::new(&format!("redis://narrow:secret@{}", server.address()));
    assert_ne!(driver.both_up().await.run_id, "");
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(1)));
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(2)));
    driver.subscribe("news", 1);
    assert_eq!(driver.subscribed("news", 1).await, Ok(()));
}

#[tokio::test]
async fn a_script_is_sent_in_full_once_to_a_server_that_lacks_it() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    let mut driver = Driver::connected(&proxy.url()).await;
    let sent = || (proxy.seen("EVAL"), proxy.seen("EVALSHA"), proxy.seen("SCRIPT"));
    assert_eq!(sent(), (0, 0, 0), "nothing before it is needed");
    for turn in 1..=3 {
        assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(turn)));
    }
    assert_eq!(sent(), (1, 3, 0), "NOSCRIPT is the answer to the first");
    proxy.cut();
    driver.down().await;
    driver.up().await;
    for turn in 4..=5 {
        assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(turn)));
    }
    assert_eq!(sent(), (1, 5, 0), "the server knows it from the connection before");
    let () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.connection()).expect("flushed");
    assert_eq!(driver.call(count("n")).await, Outcome::Done(Value::Int(6)));
    assert_eq!(sent(), (2, 6, 0));
}

#[tokio::test]
async fn failed_attempts_are_few() {
    let server = RedisServer::not_started(&[]);
    let mut driver = Driver::new(&server.url());
    driver.listen(Duration::from_secs(3)).await;
    let failed = driver.events.len();
    assert!((2..=40).contains(&failed), "{failed} failures reported in 3 s");
}

#[tokio::test]
async fn a_full_house_is_waited_for() {
    let server = RedisServer::with(&["--maxclients", "2"]);
    let (first, second) = (server.connection(), server.connection());
    let mut driver = Driver::new(&server.url());
    let failure = driver.connect_failed().await;
    assert_eq!(failure.kind, FailureKind::Busy, "{failure}");
    drop((first, second));
    driver.both_up().await;
}
