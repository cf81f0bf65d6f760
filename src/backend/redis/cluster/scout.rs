//! Discovers the nodes of a cluster while no primary is connected: asks each known node over a
//! connection of its own, replicas as well.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::slots::SlotMap;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Value;
use crate::backend::redis::addresses::AddressTries;
use crate::backend::redis::addresses::Target;
use crate::backend::redis::classify::failure;
use crate::backend::redis::config::Address;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::dial::dial;
use crate::backend::redis::dial::within;
use crate::backend::redis::error::WireError;
use crate::backend::redis::handshake;
use crate::backend::redis::login::log_in;
use crate::backend::redis::names::HostNames;

/// The most nodes that are asked at the same time.
const AT_ONCE: usize = 8;

/// A node that can be asked.
#[derive(Debug, Clone)]
pub(super) struct KnownNode {
    pub(super) address: Address,
    /// True if the user gave the address, so that it is used as it is. Otherwise nodes have
    /// announced it, and the user's address map applies.
    pub(super) given: bool,
}

impl KnownNode {
    /// How to connect to it.
    pub(super) fn config(&self, config: &RedisConfig) -> RedisConfig {
        let (host, port) = &self.address;
        if self.given { config.at(host, *port) } else { config.at_announced(host, *port) }
    }
}

/// What nodes answered.
pub(super) struct NodeAnswers {
    pub(super) maps: Vec<SlotMap>,
    /// Whether the nodes support sharded pub/sub; `None` if none was asked.
    pub(super) sharded: Option<bool>,
}

/// Asks all of these nodes. Returns what the quickest of them answer, or why none of them answered.
pub(super) async fn explore(
    config: RedisConfig,
    nodes: Vec<KnownNode>,
    probe: bool,
) -> Result<NodeAnswers, Failure> {
    let mut found = NodeAnswers { maps: Vec::new(), sharded: None };
    let mut failures = Vec::new();
    for some in nodes.chunks(AT_ONCE) {
        let mut asked: FuturesUnordered<_> =
            some.iter().map(|node| ask(&config, node, probe)).collect();
        let hurry = config.budgets().others();
        while let Some(answer) = next(&mut asked, (!found.maps.is_empty()).then_some(hurry)).await {
            match answer {
                Ok((map, sharded)) => {
                    found.maps.push(map);
                    // Sharded pub/sub is used only if every node supports it.
                    found.sharded = match (found.sharded, sharded) {
                        (Some(known), Some(new)) => Some(known && new),
                        (known, new) => known.or(new),
                    };
                }
                Err(failure) => failures.push(failure),
            }
        }
        if !found.maps.is_empty() {
            return Ok(found);
        }
    }
    Err(sum_up(&failures))
}

async fn next<T>(
    asked: &mut FuturesUnordered<impl Future<Output = T>>,
    hurry: Option<Duration>,
) -> Option<T> {
    match hurry {
        None => asked.next().await,
        Some(time) => tokio::time::timeout(time, asked.next()).await.ok().flatten(),
    }
}

/// The failure of all nodes. One that retrying does not mend counts only if every node has such a
/// failure.
fn sum_up(failures: &[Failure]) -> Failure {
    let words: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
    let kinds = || failures.iter().map(|failure| failure.kind);
    let passing = kinds().find(|kind| kind.is_transient());
    let kind =
        passing.or(kinds().next()).map_or(FailureKind::Link, |kind| kind.of_several(kinds()));
    Failure::new(
        kind,
        format!("no node of the cluster could be asked for its slots: {}", words.join("; ")),
    )
}

async fn ask(
    config: &RedisConfig,
    node: &KnownNode,
    probe: bool,
) -> Result<(SlotMap, Option<bool>), Failure> {
    let config = node.config(config);
    let answer = async {
        // A credential provider and a resolver have their own time limits, as has the connection.
        let (config, _) = log_in(config.clone()).await?;
        ask_any(&config, &node.address, probe).await
    };
    answer.await.map_err(|failure| {
        Failure::new(failure.kind, format!("{}: {}", config.address_in_use(), failure.message))
    })
}

/// Asks the node at the first of its name's addresses where it answers.
async fn ask_any(
    config: &RedisConfig,
    node: &Address,
    probe: bool,
) -> Result<(SlotMap, Option<bool>), Failure> {
    let tries = AddressTries::begin(config, &HostNames::of(config), None).await;
    let mut tries = tries.map_err(|error| handshake::explain(&error, config))?;
    while let Some(target) = tries.next() {
        match ask_at(config, &target, tries.count(), node, probe).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => tries.failed(target, failure),
        }
    }
    Err(tries.failure())
}

async fn ask_at(
    config: &RedisConfig,
    target: &Target,
    addresses: usize,
    node: &Address,
    probe: bool,
) -> Result<(SlotMap, Option<bool>), Failure> {
    let broken = |error: WireError| handshake::explain(&error, config);
    let mut wire = dial(config, target, addresses).await.map_err(broken)?;
    let mut questions = vec![vec!["CLUSTER", "SLOTS"]];
    if probe {
        // Redisson's test for sharded pub/sub: both must come to the same result to wake each
        // other.
        questions.push(vec!["PUBSUB", "SHARDNUMSUB"]);
    }
    let budget = config.budgets().one_of_several();
    let asked = within("no answer to CLUSTER SLOTS", budget, wire.ask(&questions)).await;
    let mut replies = asked.map_err(broken)?.into_iter();
    let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
    let slots = next().map_err(|error| explain(failure(&error)))?;
    let map = SlotMap::read(&slots, node).ok_or_else(|| {
        Failure::new(FailureKind::Unsupported, "its answer to CLUSTER SLOTS is not understood")
    })?;
    if map.is_empty() {
        return Err(Failure::new(FailureKind::SlotMoving, "it knows of no slots"));
    }
    if !probe {
        return Ok((map, None));
    }
    match next() {
        Ok(_) => Ok((map, Some(true))),
        Err(error) if failure(&error).kind != FailureKind::Denied => Ok((map, Some(false))),
        Err(error) => Err(failure(&error)),
    }
}

fn explain(failure: Failure) -> Failure {
    if failure.message.contains("cluster support disabled") {
        return Failure::new(
            FailureKind::Unsupported,
            "it is not a node of a cluster; use redis:// in the address",
        );
    }
    failure
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    use std::net::Ipv4Addr;
    use std::net::SocketAddr;

    use socket2::Domain;
    use socket2::Socket;
    use socket2::Type;
    use tokio::io::AsyncReadExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::net::TcpStream;

    use crate::backend::redis::names::tests::named;

    /// A listener to which a connection neither succeeds nor fails, because its queue is full.
    async fn hole() -> (Socket, TcpStream) {
        let hole = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        hole.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port");
        hole.listen(0).expect("listening");
        let address = hole.local_addr().expect("an address").as_socket().expect("of TCP");
        let first = TcpStream::connect(address).await.expect("room for one");
        (hole, first)
    }

    /// A node that has all slots.
    async fn serve(listener: TcpListener) {
        serve_and_say(listener, "").await;
    }

    /// The same, with these replies to further questions.
    async fn serve_and_say(listener: TcpListener, besides: &str) {
        let port = listener.local_addr().expect("an address").port();
        let (mut client, _) = listener.accept().await.expect("a connection");
        client.read_buf(&mut Vec::new()).await.expect("a question");
        let answer =
            format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n{besides}");
        client.write_all(answer.as_bytes()).await.expect("room");
        client.read_buf(&mut Vec::new()).await.expect("the end");
    }

    #[tokio::test]
    async fn whether_there_are_shards_is_what_the_node_says_if_it_may_be_asked() {
        let cases = [
            ("*0\r\n", Ok(Some(true))),
            ("-ERR Unknown PUBSUB subcommand\r\n", Ok(Some(false))),
            ("-NOPERM this user has no permissions\r\n", Err(FailureKind::Denied)),
        ];
        for (reply, expected) in cases {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address =
                ("127.0.0.1".to_owned(), listener.local_addr().expect("an address").port());
            let node = KnownNode { address, given: true };
            let config = RedisConfig::parse("redis-cluster://127.0.0.1:1").expect("an address");
            tokio::spawn(serve_and_say(listener, reply));
            let asked = ask(&config, &node, true).await;
            let sharded = asked.map(|(_, sharded)| sharded).map_err(|failure| failure.kind);
            assert_eq!(sharded, expected, "{reply}");
        }
    }

    #[test]
    fn nobody_listens_only_if_every_node_refuses_connections() {
        use FailureKind as F;
        for (kinds, expected) in [
            (&[F::NoListener, F::NoListener][..], F::NoListener),
            (&[F::NoListener, F::Link], F::Link),
            (&[F::Busy, F::NoListener], F::Busy),
            (&[F::Auth, F::NoListener], F::Link),
            (&[F::Auth, F::Auth], F::Auth),
            (&[], F::Link),
        ] {
            let failures: Vec<_> = kinds.iter().map(|kind| Failure::new(*kind, "words")).collect();
            assert_eq!(sum_up(&failures).kind, expected, "{kinds:?}");
        }
    }

    #[test]
    fn a_server_that_is_no_node_is_told_from_other_trouble() {
        let explained = |words| explain(Failure::new(FailureKind::Refused, words));
        let alone = explained("ERR This instance has cluster support disabled");
        assert_eq!(alone.kind, FailureKind::Unsupported);
        assert!(alone.message.contains("use redis://"), "{alone}");
        assert_eq!(explained("ERR other"), Failure::new(FailureKind::Refused, "ERR other"));
    }

    /// A name with several addresses: one, such as an IPv6 address, that cannot be reached, and one
    /// that accepts connections and never replies.
    #[tokio::test]
    async fn an_address_that_is_of_no_use_leaves_the_next_its_time() {
        let (hole, _first) = hole().await;
        let silent = hole.local_addr().expect("an address").as_socket().expect("of TCP");
        let mute = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let speaks = listener.local_addr().expect("an address");
        let node = ("127.0.0.1".to_owned(), speaks.port());
        let addresses = [silent, mute.local_addr().expect("an address"), speaks];
        let config = named("redis-cluster://node", &addresses).at("node", speaks.port());
        tokio::spawn(serve(listener));
        let (map, _) = ask_any(&config, &node, false).await.expect("slots");
        assert!(map.primaries().contains(&node), "{node:?}");
        let config = named("redis-cluster://node", &addresses[..2]).at("node", speaks.port());
        let failure = ask_any(&config, &node, false).await.expect_err("nobody answers");
        for address in &addresses[..2] {
            assert!(failure.message.contains(&format!("at {address}: no ")), "{failure}");
        }
    }
}
