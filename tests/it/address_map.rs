//! Servers that announce addresses which are not those at which they can be reached, as behind NAT
//! or tunnels.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::redis_server::has_redis_7;
use crate::support::settle::settles;
use crate::support::topology::Kind;
use crate::support::topology::Plan;
use crate::support::topology::Topology;

const BOUND: Duration = Duration::from_secs(20);
/// No resolver knows it.
const HIDDEN: &str = "node.invalid";

/// A port that leads to another one, as `ssh -L` makes it.
struct Forwarded {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Forwarded {
    /// On this address of the loopback interface.
    async fn start(at: &str, to: String) -> Self {
        let listener = TcpListener::bind((at, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let Ok(mut far) = TcpStream::connect(&to).await else { continue };
                count.fetch_add(1, Ordering::AcqRel);
                tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
            }
        });
        Self { port, connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }
}

/// One for each server, and which of their ports belongs to which announced one.
async fn forward_all(at: &str, servers: &Topology) -> (Vec<Forwarded>, HashMap<u16, u16>) {
    let mut all = Vec::new();
    for node in 0..6 {
        all.push(Forwarded::start(at, servers.address(node)).await);
    }
    let ports =
        all.iter().enumerate().map(|(node, forwarded)| (servers.port(node), forwarded.port));
    let ports = ports.collect();
    (all, ports)
}

/// The first of `n0`, `n1`, … whose slot this node has.
fn name_on(cluster: &Topology, node: usize) -> String {
    let has = |name: &String| {
        let slot = cluster.ask(1, &["CLUSTER", "KEYSLOT", name]);
        cluster.owner_of(slot, 1) == Some(node)
    };
    (0..).map(|number| format!("n{number}")).find(has).expect("endless")
}

async fn lock_and_unlock(client: &LockClient, name: &str) {
    let guard = timeout(BOUND, client.mutex(name).expect("a name").lock()).await;
    let guard = guard.expect("in time").expect("the lock");
    guard.verify().await.expect("held");
    guard.unlock().await.expect("released");
}

/// Nodes announce a host name that leads nowhere, and each other's ports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_behind_forwarded_ports() {
    if !has_redis_7("host names of nodes") {
        return;
    }
    let names =
        format!("cluster-announce-hostname {HIDDEN}\ncluster-preferred-endpoint-type hostname");
    let mut cluster = Plan::new(Kind::Cluster).config(&names).start();
    let (forwarded, ports) = forward_all("127.0.0.1", &cluster).await;
    let url = format!("redis-cluster://127.0.0.1:{}", forwarded[0].port);
    let unmapped = LockClient::builder().url(&url).connect_timeout(Duration::from_secs(2));
    let error = unmapped.connect().await.expect_err("the nodes cannot be reached");
    assert!(error.is_transient(), "{error}");

    let builder = LockClient::builder().url(&url).address_map(move |host, port| {
        assert_eq!(host, HIDDEN);
        ("127.0.0.1", ports[&port])
    });
    let client = builder.connect().await.expect("the cluster is there");
    for node in 0..3 {
        lock_and_unlock(&client, &name_on(&cluster, node)).await;
    }
    let mut known: Vec<String> = client.links().into_iter().map(|link| link.address).collect();
    known.sort();
    assert_eq!(
        known,
        [0, 1, 2].map(|node| format!("{HIDDEN}:{}", cluster.port(node))),
        "as announced"
    );

    // ASK and MOVED name the host, too.
    let name = name_on(&cluster, 1);
    let slot = cluster.ask(1, &["CLUSTER", "KEYSLOT", &name]);
    let guard = client.mutex(&name).expect("a name").lock().await.expect("the lock");
    cluster.begin_move(slot, 1, 2);
    cluster.move_keys(slot, 1, 2);
    guard.verify().await.expect("held, where it was sent on");
    cluster.end_move(slot, 1, 2);
    guard.verify().await.expect("held, where the slot is now");
    guard.unlock().await.expect("released");

    let name = name_on(&cluster, 0);
    cluster.kill(0);
    lock_and_unlock(&client, &name).await;
    let slot = cluster.ask(1, &["CLUSTER", "KEYSLOT", &name]);
    let owner = cluster.wait_until_agreed(slot);
    assert!(
        owner >= 3 && forwarded[owner].connections() >= 2,
        "through the port of the replica that took over"
    );
    assert!(client.shutdown(BOUND).await.expect("an end").is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_of_sentinels_behind_forwarded_ports() {
    let mut set = Topology::sentinel();
    let (forwarded, ports) = forward_all("127.0.0.1", &set).await;
    let sentinels: Vec<_> =
        forwarded[3..].iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
    let url = format!(
        "redis-sentinel://locks:lock-secret@{}/main?sentinel_password=sentinel-secret",
        sentinels.join(",")
    );
    let builder = LockClient::builder().url(url);
    let builder = builder.address_map(move |host, port| (host.to_owned(), ports[&port]));
    let client = builder.connect().await.expect("the primary is there");
    lock_and_unlock(&client, "n").await;
    assert_eq!(client.links()[0].address, set.address(0), "as announced");
    assert_eq!(connections_to(&set, 0), 2);
    assert_eq!(forwarded[0].connections(), 2, "all go through the forwarded port");

    set.begin_failover();
    let primary = set.wait_for_other_primary(0);
    let (looked, announced) = (client.clone(), set.address(primary));
    settles("the new primary is found", move || {
        looked.is_connected() && looked.links()[0].address == announced
    })
    .await;
    lock_and_unlock(&client, "n").await;
    assert!(forwarded[primary].connections() >= 2);
    assert!(client.shutdown(BOUND).await.expect("an end").is_clean());
}

/// Connections of an application to a server that holds data.
fn connections_to(set: &Topology, node: usize) -> usize {
    let list: String = set.ask(node, &["CLIENT", "LIST"]);
    list.lines().filter(|line| line.contains("user=locks")).count()
}

/// The forwarded ports are at an address that is in no certificate.
#[cfg(any(feature = "rustls", feature = "native-tls"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_certificate_is_for_the_mapped_host_unless_another_is_named() {
    use redis_reentrant_lock::Error;
    use redis_reentrant_lock::MappedAddress;
    use redis_reentrant_lock::Tls;

    let directory = std::env::temp_dir().join(format!("lock-certs-map-{}", std::process::id()));
    certs::write(&directory, &[]).expect("certificates");
    let written = directory.display().to_string();
    let set = Plan::new(Kind::Sentinel).setting("TOPOLOGY_CERTS", &written).start();
    let (forwarded, ports) = forward_all("127.0.0.2", &set).await;
    let sentinels = set.addresses(3..6).join(",");
    let url = format!(
        "rediss-sentinel://locks:lock-secret@{sentinels}/main?sentinel_password=sentinel-secret"
    );
    let ours = || Tls::new().ca_pem(std::fs::read(directory.join("ca.crt")).expect("an authority"));
    let builder = |certified: bool| {
        let ports = ports.clone();
        LockClient::builder().url(&url).tls(ours()).address_map(move |host, port| {
            let there = MappedAddress::new("127.0.0.2", ports[&port]);
            if certified { there.certified_for(host) } else { there }
        })
    };
    let error = builder(false).connect().await.expect_err("127.0.0.2 is in no certificate");
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    let there = format!("{}, mapped to 127.0.0.2:{}", set.address(0), forwarded[0].port);
    assert!(error.to_string().contains(&there), "{error}");

    let client = builder(true).connect().await.expect("it is for the announced host");
    lock_and_unlock(&client, "n").await;
    assert!(client.shutdown(BOUND).await.expect("an end").is_clean());
    let _ = std::fs::remove_dir_all(&directory);
}
