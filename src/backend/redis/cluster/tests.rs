//! What cannot be brought about from outside: which connection comes first. The rest is tested on real clusters.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use super::ClusterBackend;
use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::tests::redis_server::RedisServer;
use crate::config::Sharding;

/// Lets the backend work until the condition holds, and gives what it said meanwhile.
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

#[tokio::test]
async fn a_channel_that_is_asked_for_again_is_subscribed_at_one_node() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let config = RedisConfig::parse(&servers[0].url()).unwrap();
    let mut cluster = ClusterBackend::new(config, Vec::new(), Sharding::Auto);
    // These two have no map to ask for.
    cluster.refresh.at = None;
    let [first, second] =
        servers.each_ref().map(|server| cluster.node_at(&("127.0.0.1".to_owned(), server.port())));
    let up = |cluster: &ClusterBackend, id| cluster.nodes[&id].pubsub_up;
    until("connected", &mut cluster, |cluster, _| up(cluster, first) && up(cluster, second)).await;

    for (generation, first_is_up) in [(1, false), (2, true), (3, true)] {
        cluster.nodes.get_mut(&first).unwrap().pubsub_up = first_is_up;
        cluster.subscribe(Arc::from("news"), false, generation);
        let confirmed = |event: &BackendEvent| matches!(event, BackendEvent::Subscribed { generation: of, result: Ok(()), .. } if *of == generation);
        until("confirmed", &mut cluster, |_, events| events.iter().any(confirmed)).await;
        let wanted = [first_is_up, !first_is_up];
        until("at one node", &mut cluster, |_, _| servers.each_ref().map(is_subscribed) == wanted).await;
    }
}
