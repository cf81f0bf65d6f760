//! Cases that cannot be brought about with real servers, such as which connection comes up first.
//! The rest is tested on real clusters.

mod rules;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::ClusterBackend;
use super::refresh::OURS;
use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::redis::config::Address;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::tests::redis_server::RedisServer;
use crate::settings::config::Sharding;

/// Polls the backend until the condition holds, and returns its events.
async fn until(
    what: &str,
    cluster: &mut ClusterBackend,
    mut condition: impl FnMut(&ClusterBackend, &[BackendEvent]) -> bool,
) -> Vec<BackendEvent> {
    let mut events = Vec::new();
    let work = async {
        while !condition(cluster, &events) {
            let next = poll_fn(|cx| cluster.poll_event(cx));
            if let Ok(event) = tokio::time::timeout(Duration::from_millis(10), next).await {
                events.push(event);
            }
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(10), work).await.is_ok();
    assert!(done, "not {what} within 10 s; events: {events:?}");
    events
}

fn is_subscribed(server: &RedisServer) -> bool {
    let mut ask = redis::cmd("PUBSUB");
    let (_, subscribers): (String, u32) =
        ask.arg("NUMSUB").arg("news").query(&mut server.connection()).unwrap();
    subscribers > 0
}

/// A backend that is connected to both servers, which have no map of slots.
async fn two_nodes(
    servers: &[RedisServer; 2],
    sharding: Sharding,
) -> (ClusterBackend, [ServerId; 2]) {
    let config = RedisConfig::parse(&servers[0].url()).unwrap();
    let mut cluster = ClusterBackend::new(config, Vec::new(), sharding);
    cluster.refresh.at = None;
    let nodes =
        servers.each_ref().map(|server| cluster.node_at(&("127.0.0.1".to_owned(), server.port())));
    let up = |cluster: &ClusterBackend, id| cluster.nodes[&id].pubsub_up;
    until("connected", &mut cluster, |cluster, _| nodes.iter().all(|id| up(cluster, *id))).await;
    (cluster, nodes)
}

#[tokio::test]
async fn a_channel_that_is_asked_for_again_is_subscribed_at_one_node() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let (mut cluster, [first, _]) = two_nodes(&servers, Sharding::Auto).await;
    for (generation, first_is_up) in [(1, false), (2, true), (3, true)] {
        cluster.nodes.get_mut(&first).unwrap().pubsub_up = first_is_up;
        cluster.subscribe(Arc::from("news"), false, generation);
        let confirmed = |event: &BackendEvent| matches!(event, BackendEvent::Subscribed { generation: of, result: Ok(()), .. } if *of == generation);
        until("confirmed", &mut cluster, |_, events| events.iter().any(confirmed)).await;
        let wanted = [first_is_up, !first_is_up];
        until("at one node", &mut cluster, |_, _| servers.each_ref().map(is_subscribed) == wanted)
            .await;
    }
}

/// It receives nothing that is published in the cluster any more, but stays alive.
#[tokio::test]
async fn channels_leave_a_node_that_has_no_slots() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let (mut cluster, [first, second]) = two_nodes(&servers, Sharding::Off).await;
    cluster.subscribe(Arc::from("news"), false, 1);
    until("subscribed", &mut cluster, |_, _| is_subscribed(&servers[0])).await;
    cluster.nodes.get_mut(&second).unwrap().pubsub_up = false;
    let op = cluster.asks(1);
    cluster.on_replied(first, op, Outcome::Done(slots_at(Some(servers[1].port()))));
    cluster.refresh.at = None;
    let lost = |event: &BackendEvent| matches!(event, BackendEvent::SubscriptionLost { .. });
    assert!(!cluster.ready.iter().any(lost), "no other can take it");
    cluster.on_pubsub_up(second);
    until("told", &mut cluster, |_, events| events.iter().any(lost)).await;
    cluster.subscribe(Arc::from("news"), false, 2);
    until("moved", &mut cluster, |_, _| servers.each_ref().map(is_subscribed) == [false, true])
        .await;
}

/// A backend without any server.
fn nowhere(port: u16) -> Address {
    ("127.0.0.1".to_owned(), port)
}

/// The reply to CLUSTER SLOTS in which one node has all slots, or there are none.
fn slots_at(node: Option<u16>) -> Value {
    let entry = |port: u16| {
        let node = Value::List(vec![Value::Text("127.0.0.1".to_owned()), Value::Int(port.into())]);
        Value::List(vec![Value::Int(0), Value::Int(16_383), node])
    };
    Value::List(node.into_iter().map(entry).collect())
}

fn without_servers() -> ClusterBackend {
    let config = RedisConfig::parse("redis-cluster://127.0.0.1:1").unwrap();
    let mut cluster = ClusterBackend::new(config, Vec::new(), Sharding::Off);
    cluster.refresh.at = None;
    cluster
}

impl ClusterBackend {
    fn asks(&mut self, node: u16) -> OpId {
        let op = OpId(OURS | u64::from(node));
        self.refresh.asked.insert(op, nowhere(node));
        op
    }
}

/// The node was reset, or came back without its configuration.
#[tokio::test]
async fn a_primary_that_knows_of_no_slots_has_no_voice() {
    let mut cluster = without_servers();
    let op = cluster.asks(1);
    cluster.on_replied(ServerId(9), op, Outcome::Done(slots_at(Some(1))));
    let routes = cluster.routes.clone();
    assert!(routes.iter().all(|server| *server != ServerId::ONLY));
    for empty_first in [true, false] {
        let answers = [slots_at(None), slots_at(Some(1))];
        let asked = [cluster.asks(1), cluster.asks(2)];
        let turn = if empty_first { [0, 1] } else { [1, 0] };
        for (op, answer) in asked.into_iter().zip(turn) {
            cluster.on_replied(ServerId(9), op, Outcome::Done(answers[answer].clone()));
        }
        assert_eq!(cluster.routes, routes);
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_cannot_be_reached_are_dialled_less_and_less() {
    let mut cluster = without_servers();
    let node = cluster.node_at(&nowhere(1));
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(1)).await;
        cluster.begin_refresh();
        cluster.refresh.scout = None;
    }
    // The loss of a connection is a sign that the map may have changed.
    cluster.refresh_soon();
    assert!(cluster.refresh.at.unwrap() > Instant::now() + Duration::from_millis(400));
    cluster.on_up(node, ServerInfo::default());
    assert!(cluster.refresh.at.unwrap() < Instant::now() + Duration::from_millis(100));
}

/// The number of scouts in ten seconds, while connections come up and break. `answered`: each
/// connection has answered something.
async fn scouts_in_ten_seconds(answered: bool) -> u32 {
    let mut cluster = without_servers();
    let op = cluster.asks(1);
    cluster.on_replied(ServerId(1), op, Outcome::Done(slots_at(Some(1))));
    let node = cluster.node_at(&nowhere(1));
    let mut scouts = 0;
    for tick in 0..1_000 {
        match tick % 100 {
            0 => cluster.on_up(node, ServerInfo::default()),
            10 => {
                for op in cluster.refresh.asked.keys().copied().collect::<Vec<_>>() {
                    let broken = Failure::new(FailureKind::Link, "broken");
                    let outcome = Outcome::Done(slots_at(Some(1)));
                    let outcome = if answered { outcome } else { Outcome::Unknown(broken) };
                    cluster.on_replied(node, op, outcome);
                }
                cluster.on_down(node, "broken".to_owned());
            }
            _ => {}
        }
        if cluster.refresh.at.is_some_and(|at| at <= Instant::now()) {
            cluster.begin_refresh();
        }
        scouts += u32::from(cluster.refresh.scout.take().is_some());
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    scouts
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_up_and_breaks_without_an_answer_is_not_looked_for_all_the_time() {
    let scouts = scouts_in_ten_seconds(false).await;
    assert!((8..=25).contains(&scouts), "{scouts}");
    let scouts = scouts_in_ten_seconds(true).await;
    assert!(scouts >= 40, "after a node that answered: {scouts}");
}

#[tokio::test]
async fn a_map_that_comes_during_the_close_brings_no_node_up() {
    let mut cluster = without_servers();
    let op = cluster.asks(1);
    cluster.close();
    cluster.on_replied(ServerId(9), op, Outcome::Done(slots_at(Some(1))));
    assert!(cluster.nodes.is_empty());
    until("closed", &mut cluster, |_, events| matches!(events, [.., BackendEvent::Closed])).await;
}

/// The addresses from the user are asked while no other node is known.
#[tokio::test]
async fn the_map_is_had_from_any_address_that_was_given() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let node = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        client.read_buf(&mut Vec::new()).await.unwrap();
        let map = format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n");
        client.write_all(map.as_bytes()).await.unwrap();
        client
    });
    let config = RedisConfig::parse("redis-cluster://127.0.0.1:1").unwrap();
    let mut cluster = ClusterBackend::new(config, vec![nowhere(1), nowhere(port)], Sharding::Off);
    let routes = |event: &BackendEvent| matches!(event, BackendEvent::Routes(_));
    until("told", &mut cluster, |_, events| events.iter().any(routes)).await;
    let address = |id: &ServerId| cluster.nodes[id].address.clone();
    assert_eq!(cluster.routes.first().map(address), Some(nowhere(port)));
    node.await.unwrap();
}
