//! What fred's users give: a client to run over, or the settings of one.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::ClusterHash;
use fred::types::CustomCommand;
use fred::types::config::Config;
use fred::types::config::ServerConfig;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Tls;

use crate::support::client::fred as fred_support;
use crate::support::redis_server::RedisServer;
use crate::support::redis_server::eventually;
use crate::support::topology::Topology;

const BOUND: Duration = Duration::from_secs(10);

fn clients(redis: &mut redis::Connection) -> Vec<String> {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(redis).expect("a list");
    list.lines().map(str::to_owned).collect()
}

async fn echo(client: &Client) -> String {
    let command = CustomCommand::new_static("ECHO", ClusterHash::FirstKey, false);
    client.custom(command, vec!["theirs"]).await.expect("an answer")
}

#[tokio::test]
async fn nothing_is_sent_on_the_users_own_client() {
    let server = RedisServer::start();
    let theirs = fred_support::client(&server.url());
    theirs.init().await.expect("connected");
    assert_eq!(echo(&theirs).await, "theirs");
    let mut redis = server.connection();
    let of_theirs = |redis: &mut redis::Connection| {
        let all = clients(redis);
        all.into_iter().find(|line| line.contains(" cmd=echo ")).expect("it has sent nothing since")
    };
    let before = of_theirs(&mut redis);
    let id = before.split(' ').next().expect("an id").to_owned();

    let locks = LockClient::builder().fred(&theirs).connect().await.expect("connected");
    let guard = locks.reentrant_lock("orders:42").expect("a name").lock().await.expect("free");
    let others = LockClient::builder().fred(&theirs).connect().await.expect("connected");
    let lock = others.mutex("orders:42").expect("a name");
    let waiting = tokio::spawn(async move { lock.lock().await?.unlock().await });
    let watched = others.clone();
    crate::support::settle::settles("a waiter listens", move || watched.stats().subscriptions == 1)
        .await;
    assert!(of_theirs(&mut redis).starts_with(&format!("{id} ")));
    assert_eq!(clients(&mut redis).len(), 6, "this connection, theirs, and two for each of ours");
    guard.unlock().await.expect("held");
    waiting.await.expect("no panic").expect("released");

    // What happens to theirs has no effect on ours, and what happens to ours none on theirs.
    theirs.quit().await.expect("closed");
    locks
        .mutex("orders:43")
        .expect("a name")
        .lock()
        .await
        .expect("free")
        .unlock()
        .await
        .expect("held");
    for client in [locks, others] {
        assert!(client.shutdown(BOUND).await.expect("in time").is_clean());
    }
    eventually("nothing is left", || clients(&mut redis).len() == 1);
}

#[tokio::test]
async fn a_client_of_fred_that_cannot_be_used_is_refused_before_anything_is_sent() {
    let one = Client::new(Config::default(), None, None, None);
    let error =
        LockClient::builder().fred(&one).tls(Tls::new()).connect_lazy().expect_err("two places");
    assert!(matches!(error, Error::InvalidOption { option: "tls", .. }), "{error}");
    let mapped = LockClient::builder().fred(&one).address_map(|host, port| (host.to_owned(), port));
    let error = mapped.connect_lazy().expect_err("fred would not use it");
    assert!(matches!(error, Error::InvalidOption { option: "address_map", .. }), "{error}");
    let config =
        Config { server: ServerConfig::new_clustered(vec![("h", 1)]), ..Config::default() };
    let cluster = Client::new(config, None, None, None);
    let error = LockClient::builder().fred(&cluster).connect_lazy().expect_err("a cluster");
    assert!(error.is_config() && error.to_string().contains(".fred_config("), "{error}");
    let outside = std::thread::spawn(move || LockClient::builder().fred(&one).connect_lazy());
    let error = outside.join().expect("no panic").expect_err("no runtime");
    assert!(matches!(error, Error::InvalidOption { option: "fred", .. }), "{error}");
}

#[tokio::test]
async fn a_configuration_of_fred_opens_connections_of_our_own() {
    let server = RedisServer::with(&["--requirepass", "secret"]);
    let config = Config {
        password: Some("secret".to_owned()),
        database: Some(3),
        ..fred_support::config(&server.url())
    };
    let locks = LockClient::builder().fred_config(&config).connect().await.expect("connected");
    let guard = locks.mutex("orders:42").expect("a name").lock().await.expect("free");
    let client =
        redis::Client::open(format!("redis://:secret@{}/3", server.address())).expect("an address");
    let mut redis = client.get_connection().expect("a connection");
    let there: bool = redis::cmd("EXISTS").arg("orders:42").query(&mut redis).expect("an answer");
    assert!(there, "in the database of the configuration");
    guard.unlock().await.expect("held");
    assert!(locks.shutdown(BOUND).await.expect("in time").is_clean());
}

#[tokio::test]
async fn a_configuration_of_a_cluster_opens_connections_to_all_of_it() {
    let cluster = Topology::cluster();
    let hosts = cluster.addresses([0, 1, 2].into_iter());
    let hosts = hosts.iter().map(|address| {
        let (host, port) = address.rsplit_once(':').expect("host:port");
        (host.to_owned(), port.parse().expect("a port"))
    });
    let config =
        Config { server: ServerConfig::new_clustered(hosts.collect()), ..Config::default() };
    let locks = LockClient::builder().fred_config(&config).connect().await.expect("connected");
    for number in 0..20 {
        let lock = locks.mutex(format!("orders:{number}")).expect("a name");
        lock.lock().await.expect("free").unlock().await.expect("held");
    }
    assert!(locks.shutdown(BOUND).await.expect("in time").is_clean());
}
