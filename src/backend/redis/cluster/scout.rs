//! Finds the nodes of a cluster when no primary of it is connected: each known node is asked over a connection of its
//! own, replicas too.

use std::time::Duration;

use fred::interfaces::ClientLike;
use fred::types::CustomCommand;
use fred::types::Value as FredValue;
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::slots::Address;
use super::slots::SlotMap;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::redis::calls::convert;
use crate::backend::redis::classify::failure;
use crate::backend::redis::classify::is_reply;
use crate::backend::redis::client;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::handshake;
use crate::backend::redis::link::Router;
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
    // A credential provider has its own time.
    let answer = match log_in(config.clone()).await {
        Ok((config, _)) => tokio::time::timeout(PATIENCE, ask_one(&config, node, probe))
            .await
            .unwrap_or_else(|_| Err(Failure::new(FailureKind::Link, "no answer in time"))),
        Err(failure) => Err(failure),
    };
    answer.map_err(|failure| Failure::new(failure.kind, format!("{}: {}", config.address(), failure.message)))
}

async fn ask_one(
    config: &RedisConfig,
    node: &Address,
    probe: bool,
) -> Result<(SlotMap, Option<bool>), Failure> {
    let client = client::for_commands(config);
    let mut router = Router::start(&client);
    let connected = router.connected().await.map_err(|error| handshake::explain(&error, config));
    let answer = match connected {
        Ok(()) => tokio::select! {
            answer = questions(&client, node, probe) => answer,
            error = router.ended() => Err(handshake::explain(&error, config)),
        },
        Err(failure) => Err(failure),
    };
    router.end().await;
    answer
}

async fn questions(
    client: &fred::clients::Client,
    node: &Address,
    probe: bool,
) -> Result<(SlotMap, Option<bool>), Failure> {
    let command = |name| CustomCommand::new_static(name, None, false);
    let slots: FredValue =
        client.custom(command("CLUSTER"), vec!["SLOTS"]).await.map_err(|error| explain(failure(&error)))?;
    let map = SlotMap::read(&convert(slots), node).ok_or_else(|| {
        Failure::new(FailureKind::Unsupported, "its answer to CLUSTER SLOTS is not understood")
    })?;
    if !probe {
        return Ok((map, None));
    }
    // Redisson's probe: both must decide alike to wake each other.
    let known = client.custom::<FredValue, _>(command("PUBSUB"), vec!["SHARDNUMSUB"]).await;
    match known {
        Ok(_) => Ok((map, Some(true))),
        Err(error) if is_reply(&error) && failure(&error).kind != FailureKind::Denied => {
            Ok((map, Some(false)))
        }
        Err(error) => Err(failure(&error)),
    }
}

fn explain(failure: Failure) -> Failure {
    if failure.message.contains("cluster support disabled") {
        return Failure::new(FailureKind::Unsupported, "it is not a node of a cluster; give it as redis://");
    }
    failure
}
