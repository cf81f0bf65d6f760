//! Finds the nodes of a cluster when no primary of it is connected: each known node is asked over a connection of its
//! own, replicas too.

use std::net::SocketAddr;
use std::time::Duration;

use fred::error::Error as FredError;
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::slots::Address;
use super::slots::SlotMap;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Value;
use crate::backend::redis::classify::failure;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::dial::dial_at;
use crate::backend::redis::dial::look_up;
use crate::backend::redis::handshake;
use crate::backend::redis::login::log_in;

/// One node may take this long to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// After the first answer the others get this long.
const OTHERS: Duration = Duration::from_millis(100);
/// Nodes asked at the same time.
const AT_ONCE: usize = 8;

/// What nodes answered.
pub(super) struct Found {
    pub(super) maps: Vec<SlotMap>,
    /// Whether sharded pub/sub is known there; `None` if nobody was asked.
    pub(super) sharded: Option<bool>,
}

/// Asks all of these nodes; gives what the quickest say, or why none of them said anything.
pub(super) async fn explore(config: RedisConfig, nodes: Vec<Address>, probe: bool) -> Result<Found, Failure> {
    let mut found = Found { maps: Vec::new(), sharded: None };
    let mut failures = Vec::new();
    for some in nodes.chunks(AT_ONCE) {
        let mut asked: FuturesUnordered<_> = some.iter().map(|node| ask(&config, node, probe)).collect();
        while let Some(answer) = next(&mut asked, !found.maps.is_empty()).await {
            match answer {
                Ok((map, sharded)) => {
                    found.maps.push(map);
                    // One node that lacks it is enough.
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

async fn next<T>(asked: &mut FuturesUnordered<impl Future<Output = T>>, hurry: bool) -> Option<T> {
    if !hurry {
        return asked.next().await;
    }
    tokio::time::timeout(OTHERS, asked.next()).await.ok().flatten()
}

/// The failure of all. One that trying again does not mend counts only if every node says so.
fn sum_up(failures: &[Failure]) -> Failure {
    let words: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
    let passing = failures.iter().find(|failure| failure.kind.is_transient());
    let kind = passing.or(failures.first()).map_or(FailureKind::Link, |failure| failure.kind);
    Failure::new(kind, format!("no node of the cluster could be asked for its slots: {}", words.join("; ")))
}

async fn ask(config: &RedisConfig, node: &Address, probe: bool) -> Result<(SlotMap, Option<bool>), Failure> {
    let config = config.at(&node.0, node.1);
    let answer = async {
        // A credential provider and a resolver have their own time.
        let (config, _) = log_in(config.clone()).await?;
        let addresses = look_up(&config).await.map_err(|error| handshake::explain(&error, &config))?;
        tokio::time::timeout(PATIENCE, ask_one(&config, addresses, node, probe))
            .await
            .unwrap_or_else(|_| Err(Failure::new(FailureKind::Link, "no answer in time")))
    };
    answer
        .await
        .map_err(|failure| Failure::new(failure.kind, format!("{}: {}", config.address(), failure.message)))
}

async fn ask_one(
    config: &RedisConfig,
    addresses: Vec<SocketAddr>,
    node: &Address,
    probe: bool,
) -> Result<(SlotMap, Option<bool>), Failure> {
    let broken = |error: FredError| handshake::explain(&error, config);
    let mut wire = dial_at(config, addresses).await.map_err(broken)?;
    let mut questions = vec![vec!["CLUSTER", "SLOTS"]];
    if probe {
        // Redisson's probe: both must decide alike to wake each other.
        questions.push(vec!["PUBSUB", "SHARDNUMSUB"]);
    }
    let mut replies = wire.ask(&questions).await.map_err(broken)?.into_iter();
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
        return Failure::new(FailureKind::Unsupported, "it is not a node of a cluster; give it as redis://");
    }
    failure
}
