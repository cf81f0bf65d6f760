//! The task behind the pub/sub connection: subscribes on request, with the server's own confirmation, and watches
//! that the connection is alive.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fred::clients::Client;
use fred::error::Error as FredError;
use fred::error::ErrorKind;
use fred::interfaces::ClientLike;
use fred::interfaces::EventInterface;
use fred::types::Message;
use futures::future::join_all;
use tokio::sync::Notify;
use tokio::sync::broadcast;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::redis::client;
use crate::backend::redis::client::once_within;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::denied::name_channel;
use crate::backend::redis::exchange::Answer;
use crate::backend::redis::exchange::BATCH;
use crate::backend::redis::exchange::Request;
use crate::backend::redis::exchange::STRAYS;
use crate::backend::redis::exchange::exchange;
use crate::backend::redis::exchange::read;
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
    let answer = tokio::select! {
        answer = worker.end_nothing() => answer,
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

    /// Ends a subscription that nobody has.
    async fn end_nothing(&mut self) -> Result<Answer, FredError> {
        let nothing = Request { channel: "redisson_lock__client".into(), sharded: false, generation: None };
        let answer = exchange(self.client, &nothing, &self.next_nonce()).await?;
        match answer {
            // Valkey 8.0 has looked at the permission before it says that nothing is subscribed. The reply to the PING
            // is still to come.
            Answer::Refused(failure) if failure.message.starts_with("NOSUB ") => match self.step().await {
                Ok(()) => Ok(Answer::Confirmed),
                Err(Broken) => Err(FredError::new(ErrorKind::IO, "Connection closed.")),
            },
            answer => Ok(answer),
        }
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
