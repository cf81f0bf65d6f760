//! One SUBSCRIBE or UNSUBSCRIBE, with the server's own confirmation.
//!
//! fred gives no confirmation of a SUBSCRIBE, and a refused one is answered to the next command. So each is sent
//! together with a PING that carries a number: that number coming back says that the server has seen both, an
//! error instead is the refusal, and another number that replies no longer belong to their commands.

use std::sync::Arc;

use fred::clients::Client;
use fred::error::Error as FredError;
use fred::error::ErrorKind;
use fred::interfaces::ClientLike;
use fred::interfaces::PubsubInterface;
use fred::types::Value as FredValue;

use crate::backend::Failure;
use crate::backend::redis::classify::failure;
use crate::backend::redis::classify::is_reply;

/// Requests that may be written together.
pub(crate) const BATCH: usize = 256;
/// Replies that may still come for commands already given up, before a PING has to match.
pub(crate) const STRAYS: usize = 2 * BATCH + 2;

/// What to do with a channel.
pub(crate) struct Request {
    pub(crate) channel: Arc<str>,
    pub(crate) sharded: bool,
    /// `None` ends the subscription.
    pub(crate) generation: Option<u64>,
}

/// The answer to a request.
pub(crate) enum Answer {
    Confirmed,
    Refused(Failure),
    /// The reply belongs to another command.
    OutOfStep,
}

/// Subscribes on a connection that is used for nothing else meanwhile. Says whether the server allows it.
pub(crate) async fn subscribe_alone(client: &Client, channel: &str) -> Result<bool, FredError> {
    let request = Request { channel: Arc::from(channel), sharded: false, generation: Some(0) };
    let refusal = match exchange(client, &request, "subscribed").await? {
        Answer::Confirmed => return Ok(true),
        // A refused SUBSCRIBE would have been answered before.
        Answer::Refused(failure) if takes_no_argument(&failure) => return Ok(true),
        Answer::Refused(failure) => failure.message,
        Answer::OutOfStep => String::new(),
    };
    // The reply to the PING is still to come, and would be taken for the answer to what is asked next.
    for _ in 0..STRAYS {
        match read(client.ping(Some("in step".to_owned())).await, "in step")? {
            Answer::Confirmed => return Ok(false),
            // No reply can be told from another one.
            Answer::Refused(failure) if takes_no_argument(&failure) => {
                return Err(FredError::new(ErrorKind::Unknown, refusal));
            }
            Answer::Refused(_) | Answer::OutOfStep => {}
        }
    }
    Err(FredError::new(ErrorKind::Protocol, "replies do not belong to their commands"))
}

/// The sentinels of Redis 6.2 answer a PING with an argument in no other way.
fn takes_no_argument(failure: &Failure) -> bool {
    failure.message.starts_with("ERR wrong number of arguments for 'ping'")
}

/// Sends one request and waits for the server's answer. The error is the connection's.
pub(crate) async fn exchange(client: &Client, request: &Request, nonce: &str) -> Result<Answer, FredError> {
    let channel = request.channel.as_ref();
    if request.sharded && request.generation.is_some() {
        // The only one that fred confirms by itself, and never sends within a pipeline.
        return match client.ssubscribe(channel).await {
            Ok(()) => Ok(Answer::Confirmed),
            Err(error) => refusal(error),
        };
    }
    let pipeline = client.pipeline();
    match (request.generation, request.sharded) {
        (Some(_), _) => pipeline.subscribe(channel).await?,
        (None, false) => pipeline.unsubscribe(channel).await?,
        (None, true) => pipeline.sunsubscribe(channel).await?,
    }
    let () = pipeline.ping(Some(nonce.to_owned())).await?;
    read(pipeline.last().await, nonce)
}

pub(crate) fn read(reply: Result<FredValue, FredError>, nonce: &str) -> Result<Answer, FredError> {
    match reply {
        Ok(reply) if echoes(&reply, nonce) => Ok(Answer::Confirmed),
        Ok(_) => Ok(Answer::OutOfStep),
        Err(error) => refusal(error),
    }
}

fn refusal(error: FredError) -> Result<Answer, FredError> {
    if is_reply(&error) { Ok(Answer::Refused(failure(&error))) } else { Err(error) }
}

/// RESP2 answers a PING with `["pong", nonce]` while subscribed, and with the nonce otherwise.
fn echoes(reply: &FredValue, nonce: &str) -> bool {
    match reply {
        FredValue::Array(items) => items.len() == 2 && items[1].as_str().as_deref() == Some(nonce),
        reply => reply.as_str().as_deref() == Some(nonce),
    }
}
