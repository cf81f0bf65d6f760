//! Links that are slow, and proxies that carry commands and nothing else.

use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use tokio::time::timeout;

use crate::support::proxy::Direction;
use crate::support::proxy::Fault;
use crate::support::proxy::FaultProxy;
use crate::support::redis_server::RedisServer;
use crate::support::settle::answers;
use crate::support::settle::leaves_nothing;
use crate::support::settle::settles;

/// Generous: much has to go over a slow link.
const BOUND: Duration = Duration::from_secs(40);

fn slow(round_trip: Duration) -> (RedisServer, FaultProxy) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    slow_down(&proxy, round_trip);
    (server, proxy)
}

fn slow_down(proxy: &FaultProxy, round_trip: Duration) {
    for way in [Direction::Up, Direction::Down] {
        proxy.delay(way, round_trip / 2);
    }
}

/// Until the server has answered for each of them.
async fn are_confirmed(guards: &[Guard]) {
    for guard in guards {
        let confirmed = async {
            loop {
                match guard.verify().await {
                    Ok(()) => return,
                    Err(Error::Unavailable { .. }) => {}
                    Err(error) => panic!("{}: {error}", guard.name()),
                }
            }
        };
        timeout(BOUND, confirmed)
            .await
            .unwrap_or_else(|_| panic!("{} is not confirmed", guard.name()));
    }
}

/// As over a modem of 60 kbit/s.
#[tokio::test(flavor = "multi_thread")]
async fn at_7_5_kb_a_second_a_client_with_holds_comes_back_after_a_cut() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.address());
    for way in [Direction::Up, Direction::Down] {
        proxy.limit(way, Some(7_500));
    }
    let client = timeout(BOUND, LockClient::connect(&proxy.url()))
        .await
        .expect("in time")
        .expect("connected");
    let mut guards = Vec::new();
    for number in 0..5 {
        let lock = client.mutex(format!("slow:{number}")).unwrap();
        guards.push(timeout(BOUND, lock.lock()).await.expect("in time").expect("locked"));
    }
    for _ in 0..3 {
        proxy.cut();
        are_confirmed(&guards).await;
    }
    assert_eq!(proxy.seen("SCRIPT"), 0, "nothing is sent before it is needed");
    for guard in guards {
        timeout(BOUND, guard.unlock()).await.expect("in time").expect("held all the time");
    }
    leaves_nothing(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_trip_of_2_2_s_is_a_matter_of_the_command_timeout_alone() {
    let (server, proxy) = slow(Duration::from_millis(2_200));
    let builder = LockClient::builder().url(proxy.url()).command_timeout(Duration::from_secs(20));
    let client = timeout(BOUND, builder.connect()).await.expect("in time").expect("connected");
    let guard = client.mutex("far").unwrap().lock().await.expect("locked");
    guard.verify().await.expect("renewed");
    guard.unlock().await.expect("released");
    assert_eq!(proxy.seen("INFO"), 2, "asked by one connection, which was never given up");
    slow_down(&proxy, Duration::ZERO);
    leaves_nothing(&server, &client).await;
}

fn tells_both_figures(error: &Error) -> bool {
    let text = error.to_string();
    assert!(!text.contains("resolver"), "{text}");
    text.contains("answers come, but too late: the last one took 1.")
        && text.contains("s, the command timeout is 1s")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_trip_above_the_command_timeout_is_told_with_both_figures() {
    let (_server, proxy) = slow(Duration::from_millis(1_400));
    let error =
        timeout(BOUND, LockClient::connect(&proxy.url())).await.expect("in time").unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && tells_both_figures(&error), "{error}");

    slow_down(&proxy, Duration::ZERO);
    let client = LockClient::connect(&proxy.url()).await.expect("connected");
    let lock = client.mutex("near").unwrap();
    slow_down(&proxy, Duration::from_millis(1_400));
    let told = async {
        loop {
            let error = lock.try_lock().await.expect_err("no answer comes in time");
            if tells_both_figures(&error) {
                return;
            }
        }
    };
    timeout(BOUND, told).await.expect("both figures");
}

/// Slower than any connection can be made with these settings.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_greet_in_time_is_told_with_what_was_asked() {
    let (_server, proxy) = slow(Duration::from_secs(3));
    let error = LockClient::connect(&proxy.url()).await.unwrap_err().to_string();
    let asked = ["PING and INFO", "UNSUBSCRIBE and PING"];
    let told = asked.iter().any(|asked| error.contains(&format!("no answer to {asked} within 2s")));
    assert!(told, "{error}");
    assert!(error.contains(&proxy.address()) && !error.contains("resolver"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_without_pub_sub_is_told_by_what_is_missing() {
    let unknown =
        |command: &str| Fault::Answer(format!("-ERR unknown command '{command}'\r\n").into_bytes());
    let table = [
        ("UNSUBSCRIBE\r\n", unknown("UNSUBSCRIBE")),
        ("UNSUBSCRIBE\r\n", Fault::CutBeforeRequest),
        ("UNSUBSCRIBE\r\n", Fault::Mute),
        ("\r\nSUBSCRIBE\r\n", unknown("SUBSCRIBE")),
        ("\r\nSUBSCRIBE\r\n", Fault::CutBeforeRequest),
    ];
    for (pattern, fault) in table {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(&server.address());
        proxy.nth(pattern, 0, u64::MAX, fault.clone());
        let error =
            timeout(BOUND, LockClient::connect(&proxy.url())).await.expect("in time").unwrap_err();
        let text = error.to_string();
        assert_eq!(
            error.is_config(),
            matches!(fault, Fault::Answer(_)),
            "{pattern:?}, {fault:?}: {text}"
        );
        assert!(text.contains("pub/sub is missing"), "{pattern:?}, {fault:?}: {text}");
        assert!(
            !text.contains("rediss://") && !text.contains("resolver"),
            "{pattern:?}, {fault:?}: {text}"
        );
    }
}

/// How long a `try_lock` has waited for the server.
fn unavailable_after(error: Error) -> Duration {
    match error {
        Error::Unavailable { waited, .. } => waited,
        other => panic!("{other}"),
    }
}

/// Each of them, on TCP and on a unix socket: nobody listens before the server is started, nor
/// after it was killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_lock_does_not_wait_for_a_server_that_is_not_there() {
    for over_unix in [false, true] {
        let mut server = RedisServer::not_started(&[]);
        let url = if over_unix {
            format!("redis+unix://{}", server.socket().display())
        } else {
            server.url()
        };
        let client = LockClient::builder().url(url).connect_lazy().expect("a good address");
        let lock = client.mutex("n").expect("a name");
        for _ in 0..2 {
            let looked = client.clone();
            settles("the first attempt to connect has failed", move || {
                looked.links().iter().any(|link| !link.is_connected && link.trouble.is_some())
            })
            .await;
            let trouble = client.links()[0].trouble.clone();
            // Of a connection that was cut, only the next attempt tells that nobody listens.
            let failed = async {
                while unavailable_after(lock.try_lock().await.expect_err("no server"))
                    > Duration::ZERO
                {}
            };
            timeout(BOUND, failed)
                .await
                .unwrap_or_else(|_| panic!("it waits each time: {trouble:?}"));
            server.restart();
            answers(&client).await;
            let guard = lock.try_lock().await.expect("the server is there").expect("free");
            guard.unlock().await.expect("released");
            server.stop();
        }
    }
}
