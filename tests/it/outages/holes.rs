//! Connections on which bytes vanish without anybody closing them: one way, the other, or both.

use std::time::Duration;

use redis_reentrant_lock::LockClientBuilder;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio::time::timeout;

use crate::outages::place::Place;
use crate::outages::place::builder;
use crate::outages::place::sentinel_url;
use crate::outages::scene::BOUND;
use crate::outages::scene::Scene;
use crate::outages::scene::answered;
use crate::support::proxy::Direction;
use crate::support::proxy::Direction::Down;
use crate::support::proxy::Direction::Up;
use crate::support::proxy::Fault;
use crate::support::proxy::FaultProxy;
use crate::support::proxy::Which;
use crate::support::redis_server::eventually;
use crate::support::topology::Topology;

const LEASE: Duration = Duration::from_secs(15);

/// Every hole there is: whose connections, and what is lost on them.
const HOLES: [(Which, &[Direction]); 9] = [
    (Which::Commands, &[Up]),
    (Which::Commands, &[Down]),
    (Which::Commands, &[Up, Down]),
    (Which::PubSub, &[Up]),
    (Which::PubSub, &[Down]),
    (Which::PubSub, &[Up, Down]),
    (Which::All, &[Up]),
    (Which::All, &[Down]),
    (Which::All, &[Up, Down]),
];

/// A way to a primary that can be broken.
struct Way {
    url: String,
    proxy: FaultProxy,
    /// In front of a sentinel, so that it names the proxy.
    _sentinel: Option<FaultProxy>,
    name: String,
    tried: String,
}

pub(crate) async fn all(place: Place) {
    let kind = place.kind();
    match &place {
        Place::Cluster(cluster) => {
            let names: Vec<_> = (0..3).map(|node| names(&place, node, 0)).collect();
            for holes in HOLES.chunks(3) {
                // Each primary is announced by the port of a proxy.
                let ways: Vec<Way> = names
                    .iter()
                    .enumerate()
                    .map(|(node, names)| announced(cluster, node, names))
                    .collect();
                wait_until_announced(cluster, &ways);
                together(kind, ways.into_iter().zip(holes.iter().copied())).await;
            }
            for (node, (name, tried)) in names.iter().enumerate() {
                place.is_free_on(node, name);
                place.is_free_on(node, tried);
            }
        }
        Place::One(server) => {
            let way = |number| {
                let proxy = FaultProxy::start(&server.address());
                let (name, tried) = names(&place, 0, number);
                Way { url: proxy.url(), proxy, _sentinel: None, name, tried }
            };
            together(kind, (0..HOLES.len()).map(way).zip(HOLES)).await;
        }
        Place::Set(set) => {
            let way = |number| named_by_a_sentinel(set, names(&place, 0, number));
            together(kind, (0..HOLES.len()).map(way).zip(HOLES)).await;
        }
    }
    if !matches!(place, Place::Cluster(_)) {
        for number in 0..HOLES.len() {
            let (name, tried) = names(&place, 0, number);
            place.is_free(&name);
            place.is_free(&tried);
        }
    }
}

fn names(place: &Place, node: usize, number: usize) -> (String, String) {
    (
        place.name_on(node, &format!("hole-{number}")),
        place.name_on(node, &format!("tried-{number}")),
    )
}

fn announced(cluster: &Topology, node: usize, (name, tried): &(String, String)) -> Way {
    let proxy = FaultProxy::start(&cluster.address(node));
    let _: String =
        cluster.ask(node, &["CONFIG", "SET", "cluster-announce-port", &proxy.port().to_string()]);
    let url = format!("redis-cluster://{}", cluster.addresses(0..6).join(","));
    Way { url, proxy, _sentinel: None, name: name.clone(), tried: tried.clone() }
}

fn wait_until_announced(cluster: &Topology, ways: &[Way]) {
    eventually("every node names the proxies", || {
        (0..6).all(|node| {
            let slots = format!("{:?}", cluster.ask::<redis::Value>(node, &["CLUSTER", "SLOTS"]));
            ways.iter().all(|way| slots.contains(&way.proxy.port().to_string()))
        })
    });
}

fn named_by_a_sentinel(set: &Topology, (name, tried): (String, String)) -> Way {
    let proxy = FaultProxy::start(&set.address(0));
    let sentinel = FaultProxy::start(&set.address(3));
    let port = proxy.port().to_string();
    let answer = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
    sentinel.nth("GET-MASTER-ADDR-BY-NAME", 0, u64::MAX, Fault::Answer(answer.into_bytes()));
    Way { url: sentinel_url(&[sentinel.address()]), proxy, _sentinel: Some(sentinel), name, tried }
}

async fn together(
    kind: &'static str,
    pairs: impl Iterator<Item = (Way, (Which, &'static [Direction]))>,
) {
    let mut tasks = JoinSet::new();
    for (way, (which, lost)) in pairs {
        tasks.spawn(one(kind, way, which, lost));
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("each comes through its hole");
    }
}

async fn one(kind: &str, way: Way, which: Which, lost: &'static [Direction]) {
    let build = || -> LockClientBuilder { builder(&way.url).lease(LEASE) };
    let scene = Scene::set(build, way.name.clone()).await;
    let what = format!("{kind}, {which:?} {lost:?} lost");
    way.proxy.forget(which, lost);
    let begun = Instant::now();
    // Perhaps granted, and nobody hears of it.
    let tried = scene.holder.mutex(&way.tried).expect("a good name").try_lock().await;
    match (which, tried) {
        (Which::PubSub, tried) => drop(tried.expect("commands are well").expect("free")),
        (_, tried) => {
            let error = tried.expect_err("no answer within its time");
            assert!(error.is_transient(), "{error}");
        }
    }
    timeout(BOUND, answered(&scene.guard)).await.expect("answered").expect("still held");
    println!("{what}: the hold was verified after {:?}", begun.elapsed());
    scene.goes_on(&what).await;
}
