//! Host names that resolve to another server from some moment on, as at the failover of a managed
//! service.

use std::net::SocketAddr;

use crate::backend::redis::names::tests::FakeResolver;
use crate::backend::redis::tests::redis_server::RedisServer;
use crate::backend::redis::tests::redis_server::eventually;
use crate::base::error::LossReason;
use crate::client::LockClient;

fn address(server: &RedisServer) -> SocketAddr {
    server.address().parse().expect("an address")
}

fn ask<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command
        .arg(&words[1..])
        .query(&mut server.connection())
        .unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

fn has(server: &RedisServer, key: &str) -> bool {
    ask(server, &["EXISTS", key])
}

fn listeners(server: &RedisServer) -> usize {
    ask::<Vec<String>>(server, &["PUBSUB", "CHANNELS"]).len()
}

/// A client whose URL has a name that resolves to this server.
async fn client_of(server: &RedisServer, answers: &FakeResolver) -> LockClient {
    answers.point("locks.test", &[address(server)]);
    let builder = LockClient::builder().url("redis://locks.test").resolver(answers);
    builder.connect().await.expect("the server is there")
}

/// The old primary stays reachable and accepts writes: only the name says that it is not the
/// primary any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_over_to_the_server_that_their_name_stands_for() {
    let old = RedisServer::start();
    let new = RedisServer::with(&["--replicaof", "127.0.0.1", &old.port().to_string()]);
    let answers = FakeResolver::default();
    let client = client_of(&old, &answers).await;
    let lock = |name: &str| client.mutex(name).expect("a name");
    let kept = lock("kept").lock().await.expect("the lock");
    eventually("the hold is known to the replica", || has(&new, "kept"));
    let () = ask(&new, &["REPLICAOF", "NO", "ONE"]);
    let forgotten = lock("forgotten").lock().await.expect("the lock");
    let () = ask(&old, &["HSET", "taken", "dc1dbb23-1ae7-4a4c-8d32-b3b1bd5a7c92:1", "1"]);
    let () = ask(&old, &["PEXPIRE", "taken", "600000"]);
    let waiting = tokio::spawn({
        let lock = lock("taken");
        async move { lock.lock().await }
    });
    eventually("it waits", || listeners(&old) == 2);

    answers.point("locks.test", &[address(&new)]);
    assert_eq!(forgotten.lost().await, LossReason::ServerLostData);
    let taken = waiting.await.expect("no panic").expect("free on the new server");
    kept.verify().await.expect("the new server knows it");
    assert!(kept.is_held() && taken.is_held() && has(&new, "taken"));
    let after = lock("after").lock().await.expect("the lock");
    assert!(has(&new, "after") && !has(&old, "after"));
    eventually("messages are heard at the new server", || {
        listeners(&new) > 0 && listeners(&old) == 0
    });
    assert!(has(&old, "forgotten"), "the old server is there all the time");
    for guard in [kept, taken, after] {
        guard.unlock().await.expect("released");
    }
    assert!(!has(&new, "kept"));
    assert_eq!(client.links()[0].reconnects, 1);
}

/// A cluster of one node, which has all slots.
fn cluster() -> RedisServer {
    let server =
        RedisServer::with(&["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"]);
    let slots: Vec<String> = (0..16_384).map(|slot: u16| slot.to_string()).collect();
    let mut words = vec!["CLUSTER", "ADDSLOTS"];
    words.extend(slots.iter().map(String::as_str));
    let () = ask(&server, &words);
    eventually("it serves its slots", || {
        ask::<String>(&server, &["CLUSTER", "INFO"]).contains("state:ok")
    });
    server
}

/// The nodes of the old cluster go on to claim all slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_over_to_the_cluster_that_the_name_of_its_nodes_stands_for() {
    let (old, new) = (cluster(), cluster());
    let answers = FakeResolver::default();
    answers.point("locks.test", &[address(&old)]);
    let builder = LockClient::builder().url("redis-cluster://locks.test").resolver(&answers);
    let client = builder.connect().await.expect("the cluster is there");
    let held = client.mutex("held").expect("a name").lock().await.expect("the lock");
    assert!(has(&old, "held"));
    answers.point("locks.test", &[address(&new)]);
    assert_eq!(held.lost().await, LossReason::ServerLostData);
    drop(held);
    let guard =
        client.mutex("held").expect("a name").lock().await.expect("free in the new cluster");
    assert!(has(&new, "held") && guard.is_held());
    eventually("the old one is left", || {
        !ask::<String>(&old, &["CLIENT", "LIST"]).contains("cmd=subscribe") && listeners(&old) == 0
    });
    let addresses: Vec<String> = client.links().into_iter().map(|link| link.address).collect();
    assert_eq!(addresses, [new.address()]);
    guard.unlock().await.expect("released");
}

#[tokio::test]
async fn a_client_that_does_not_follow_names_stays_as_long_as_its_connections_do() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let answers = FakeResolver::default();
    answers.point("locks.test", &[address(&old)]);
    let builder =
        LockClient::builder().url("redis://locks.test").resolver(&answers).follow_dns(false);
    let client = builder.connect().await.expect("the server is there");
    answers.point("locks.test", &[address(&new)]);
    let asked = answers.asked();
    let () = ask(&old, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually("messages are heard at the new server", || listeners(&new) > 0);
    assert_eq!(answers.asked(), asked + 1, "for the new connection only");
    let guard = client.mutex("stays").expect("a name").lock().await.expect("the lock");
    assert!(has(&old, "stays"), "the connection for commands is the old one");
    guard.unlock().await.expect("released");
}
