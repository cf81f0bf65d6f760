//! The task behind the pub/sub connection: subscribes on request, with the server's own confirmation, and watches
//! that the connection is alive.
//!
//! fred gives no confirmation of a SUBSCRIBE, and a refused one is answered to the next command. So each is sent
//! together with a PING that carries a number: that number coming back says that the server has seen both, an
//! error instead is the refusal, and another number that replies no longer belong to their commands.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fred::clients::Client;
use fred::error::Error as FredError;
use fred::error::ErrorKind;
use fred::interfaces::ClientLike;
use fred::interfaces::EventInterface;
use fred::interfaces::PubsubInterface;
use fred::types::Message;
use fred::types::Value as FredValue;
use futures::future::join_all;
use tokio::sync::Notify;
use tokio::sync::broadcast;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::redis::classify::failure;
use crate::backend::redis::classify::is_reply;
use crate::backend::redis::client;
use crate::backend::redis::client::once_within;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::denied::name_channel;
use crate::backend::redis::handshake;
use crate::backend::redis::link::Router;
use crate::backend::redis::link::Stop;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::whereabouts::Connects;
use crate::backend::redis::whereabouts::Found;
use crate::backend::redis::whereabouts::Whereabouts;

/// An idle connection is asked this often, and replaced when it stays silent so many times in a row.
const HEARTBEAT: Duration = Duration::from_millis(1_500);
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(1);
const MISSES: u32 = 2;
/// Requests written together.
const BATCH: usize = 256;
/// Replies that may still come for commands already given up, before a PING has to match.
const STRAYS: usize = 2 * BATCH + 2;

/// What happened to the pub/sub connection. All in one channel: their order matters.
pub(crate) enum PubSubEvent {
    Up(Subscriber),
    Down,
    Failed(Failure),
    Subscribed { channel: Arc<str>, generation: u64, result: Result<(), Failure> },
}

/// The two ends of a connection that is up.
pub(crate) struct Subscriber {
    pub(crate) requests: mpsc::UnboundedSender<Request>,
    pub(crate) messages: broadcast::Receiver<Message>,
    /// Ends the connection.
    pub(crate) end: Arc<Notify>,
}

/// What to do with a channel.
pub(crate) struct Request {
    pub(crate) channel: Arc<str>,
    pub(crate) sharded: bool,
    /// `None` ends the subscription.
    pub(crate) generation: Option<u64>,
}

/// Tells what happens to it.
pub(crate) struct PubSub(pub(crate) mpsc::UnboundedSender<PubSubEvent>);

impl Connects for PubSub {
    // Wake-ups are hints: the last primary that was named will do while no sentinel answers.
    const CONFIRMED: bool = false;

    async fn one_connection(&self, found: Found, whereabouts: &mut Whereabouts, stop: &mut Stop) -> bool {
        let Found { config, renewal, .. } = found;
        let client = client::for_messages(&config);
        let mut router = Router::start(&client);
        let mut worker = Worker { client: &client, events: &self.0, nonce: 0 };
        let opened = unless_stopped(stop, async {
            tokio::select! {
                result = open(&mut worker, &mut router, &config) => result,
                moved = whereabouts.moved() => Err(Failure::new(FailureKind::Link, moved)),
            }
        });
        let opened = opened.await;
        if let Some(Ok(())) = &opened {
            tokio::select! {
                () = worker.serve(&mut router, whereabouts, stop) => {}
                // In RESP2 a connection with subscriptions takes no AUTH.
                () = renewal.ended() => {}
            }
        }
        router.end().await;
        match opened {
            Some(Ok(())) => {
                let _ = self.0.send(PubSubEvent::Down);
                return true;
            }
            Some(Err(failure)) => {
                let message = format!("{} (pub/sub): {}", config.address(), failure.message);
                let _ = self.0.send(PubSubEvent::Failed(Failure { message, ..failure }));
            }
            None => {}
        }
        false
    }

    fn failed(&self, failure: Failure) {
        let _ = self.0.send(PubSubEvent::Failed(failure));
    }
}

/// Connects and makes sure that the server answers what every confirmation depends on. And takes an UNSUBSCRIBE, of
/// which nobody would hear later that it was refused.
async fn open(worker: &mut Worker<'_>, router: &mut Router, config: &RedisConfig) -> Result<(), Failure> {
    router.connected().await.map_err(|error| handshake::explain(&error, config))?;
    let nonce = worker.next_nonce();
    let nothing = Request { channel: "redisson_lock__client".into(), sharded: false, generation: None };
    let answer = tokio::select! {
        answer = exchange(worker.client, &nothing, &nonce) => answer,
        error = router.ended() => Err(error),
    };
    match answer {
        Ok(Answer::Confirmed) => Ok(()),
        Ok(Answer::Refused(failure)) => Err(failure),
        Ok(Answer::OutOfStep) => Err(Failure::new(FailureKind::Refused, "it does not echo PING's argument")),
        Err(error) => Err(handshake::explain(&error, config)),
    }
}

/// The connection is of no use any more.
struct Broken;

struct Worker<'a> {
    client: &'a Client,
    events: &'a mpsc::UnboundedSender<PubSubEvent>,
    nonce: u64,
}

/// The answer to a request.
enum Answer {
    Confirmed,
    Refused(Failure),
    /// The reply belongs to another command.
    OutOfStep,
}

impl Worker<'_> {
    /// Serves requests until the connection has to be ended.
    async fn serve(&mut self, router: &mut Router, whereabouts: &mut Whereabouts, stop: &mut Stop) {
        let (requests, mut received) = mpsc::unbounded_channel();
        let end = Arc::new(Notify::new());
        let subscriber = Subscriber { requests, messages: self.client.message_rx(), end: Arc::clone(&end) };
        let _ = self.events.send(PubSubEvent::Up(subscriber));
        tokio::select! {
            _ = self.work(&mut received) => {}
            _ = router.ended() => {}
            _ = whereabouts.moved() => {}
            () = end.notified() => {}
            () = stop.wait() => {}
        }
    }

    async fn work(&mut self, requests: &mut mpsc::UnboundedReceiver<Request>) -> Result<(), Broken> {
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut missed = 0;
        let mut waiting = Vec::new();
        loop {
            tokio::select! {
                biased;
                count = requests.recv_many(&mut waiting, BATCH) => {
                    if count == 0 {
                        return Err(Broken);
                    }
                    self.handle(std::mem::take(&mut waiting)).await?;
                    missed = 0;
                }
                _ = heartbeat.tick() => {
                    missed = if self.beat().await? { 0 } else { missed + 1 };
                    if missed == MISSES {
                        return Err(Broken);
                    }
                }
            }
        }
    }

    /// Whether the server answered.
    async fn beat(&mut self) -> Result<bool, Broken> {
        let nonce = self.next_nonce();
        let ping = self.client.with_options(&once_within(HEARTBEAT_TIMEOUT)).ping(Some(nonce.clone())).await;
        match read(ping, &nonce) {
            Ok(Answer::Confirmed) => Ok(true),
            Ok(Answer::Refused(_) | Answer::OutOfStep) => self.step().await.map(|()| true),
            Err(error) if *error.kind() == ErrorKind::Timeout => Ok(false),
            Err(_) => Err(Broken),
        }
    }

    /// Requests for one channel never go in one batch: within a batch only the writing is ordered.
    async fn handle(&mut self, requests: Vec<Request>) -> Result<(), Broken> {
        let mut batch = Vec::new();
        let mut channels = HashSet::new();
        for request in requests {
            if !channels.insert(Arc::clone(&request.channel)) {
                self.handle_batch(std::mem::take(&mut batch)).await?;
                channels.clear();
                channels.insert(Arc::clone(&request.channel));
            }
            batch.push(request);
        }
        self.handle_batch(batch).await
    }

    /// All at once; from the first that is not confirmed on, one at a time.
    async fn handle_batch(&mut self, batch: Vec<Request>) -> Result<(), Broken> {
        let nonces: Vec<_> = batch.iter().map(|_| self.next_nonce()).collect();
        let answers =
            join_all(batch.iter().zip(&nonces).map(|(request, nonce)| exchange(self.client, request, nonce)))
                .await;
        let mut in_step = true;
        for (request, answer) in batch.iter().zip(answers) {
            match answer {
                Err(_) => return Err(Broken),
                Ok(Answer::Confirmed) if in_step => self.report(request, Ok(())),
                Ok(_) => {
                    if in_step {
                        self.step().await?;
                        in_step = false;
                    }
                    self.handle_alone(request).await?;
                }
            }
        }
        Ok(())
    }

    async fn handle_alone(&mut self, request: &Request) -> Result<(), Broken> {
        let nonce = self.next_nonce();
        match exchange(self.client, request, &nonce).await {
            Ok(Answer::Confirmed) => self.report(request, Ok(())),
            Ok(Answer::Refused(failure)) => {
                self.step().await?;
                self.report(request, Err(name_channel(&request.channel, failure)));
            }
            Ok(Answer::OutOfStep) | Err(_) => return Err(Broken),
        }
        Ok(())
    }

    /// Sends PINGs until one gets its own answer: then nothing else is on its way.
    async fn step(&mut self) -> Result<(), Broken> {
        for _ in 0..STRAYS {
            let nonce = self.next_nonce();
            let ping = self.client.ping(Some(nonce.clone())).await;
            match read(ping, &nonce) {
                Ok(Answer::Confirmed) => return Ok(()),
                Ok(_) => {}
                Err(_) => return Err(Broken),
            }
        }
        Err(Broken)
    }

    fn report(&self, request: &Request, result: Result<(), Failure>) {
        let Some(generation) = request.generation else { return };
        let channel = Arc::clone(&request.channel);
        let _ = self.events.send(PubSubEvent::Subscribed { channel, generation, result });
    }

    fn next_nonce(&mut self) -> String {
        self.nonce += 1;
        self.nonce.to_string()
    }
}

/// Subscribes on a connection that is used for nothing else meanwhile. Says whether the server allows it.
pub(crate) async fn subscribe_alone(client: &Client, channel: &str) -> Result<bool, FredError> {
    let request = Request { channel: Arc::from(channel), sharded: false, generation: Some(0) };
    let answer = exchange(client, &request, "subscribed").await?;
    if matches!(answer, Answer::Confirmed) {
        return Ok(true);
    }
    // The reply to the PING is still to come, and would be taken for the answer to what is asked next.
    for _ in 0..STRAYS {
        if let Answer::Confirmed = read(client.ping(Some("in step".to_owned())).await, "in step")? {
            return Ok(false);
        }
    }
    Err(FredError::new(ErrorKind::Protocol, "replies do not belong to their commands"))
}

/// Sends one request and waits for the server's answer. The error is the connection's.
async fn exchange(client: &Client, request: &Request, nonce: &str) -> Result<Answer, FredError> {
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

fn read(reply: Result<FredValue, FredError>, nonce: &str) -> Result<Answer, FredError> {
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
