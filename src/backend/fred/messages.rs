//! The task that receives messages. It connects, subscribes, passes messages on, and reconnects
//! when the connection has ended.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::interfaces::EventInterface;
use fred::interfaces::PubsubInterface;
use fred::types::Message;
use fred::types::Value as Word;
use tokio::sync::broadcast;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use crate::backend::BackendEvent;
use crate::backend::Failure;
use crate::backend::fred::Events;
use crate::backend::fred::TaskReport;
use crate::backend::fred::link::FredLink;
use crate::backend::fred::reply::local_or_reply;
use crate::backend::fred::settings::Settings;
use crate::backend::redis::classify::failure;
use crate::backend::redis::classify::is_reply;
use crate::backend::redis::denied::name_channel;
use crate::backend::redis::error::ErrorKind;
use crate::backend::redis::error::WireError;
use crate::backend::redis::handshake;
use crate::backend::redis::link;
use crate::backend::redis::link::RetryPause;
use crate::backend::redis::subscriber::SubscriptionRequest;

/// The most PINGs that are sent until one gets its own reply.
const STEPS: usize = 4;
/// The pause after a PING that got another reply, so that stray replies can arrive. It is four
/// times as long each time.
const BETWEEN_REPLIES: Duration = Duration::from_millis(20);

pub(super) struct MessageTask {
    pub(super) settings: Arc<Settings>,
    pub(super) events: Events,
    pub(super) replaced: watch::Receiver<()>,
}

/// How a connection has ended.
enum ConnectionEnd {
    BrokenConnection(String),
    Replaced,
    Closed,
}

type MessageReceiver = broadcast::Receiver<Message>;

impl MessageTask {
    /// Returns when the backend is closed.
    pub(super) async fn keep_connected(
        mut self,
        mut requests: UnboundedReceiver<SubscriptionRequest>,
    ) {
        let mut pause = RetryPause::default();
        let mut reported = false;
        loop {
            self.replaced.mark_unchanged();
            let settings = Arc::clone(&self.settings);
            let opening = open(&settings);
            let Some(opened) = meanwhile(&mut requests, opening).await else { return };
            match opened {
                Ok((link, subscriber, received)) => {
                    self.events.send(BackendEvent::PubSubUp);
                    if std::mem::take(&mut reported) {
                        link::report_well(self.settings.address(), "connected again (pub/sub)");
                    }
                    let (ended, served) =
                        self.serve(link, subscriber, received, &mut requests).await;
                    if served {
                        pause = RetryPause::default();
                    }
                    match ended {
                        ConnectionEnd::Closed => return,
                        ConnectionEnd::Replaced => {}
                        ConnectionEnd::BrokenConnection(cause) => {
                            reported = true;
                            link::report_broken(
                                self.settings.address(),
                                &cause,
                                "disconnected (pub/sub): no wake-ups through it until there is another connection",
                            );
                        }
                    }
                    self.events.send(BackendEvent::PubSubDown);
                }
                Err(failure) => {
                    let _ = self.events.0.send(TaskReport::MessagesFailed(failure));
                }
            }
            if meanwhile(&mut requests, tokio::time::sleep(pause.next())).await.is_none() {
                return;
            }
        }
    }

    /// Serves requests until the connection ends. True: the server has answered something.
    async fn serve(
        &mut self,
        mut link: FredLink,
        mut subscriber: SubscriptionWorker,
        received: MessageReceiver,
        requests: &mut UnboundedReceiver<SubscriptionRequest>,
    ) -> (ConnectionEnd, bool) {
        let mut served = false;
        let ended = tokio::select! {
            biased;
            cause = pass_on(received, &self.events) => ConnectionEnd::BrokenConnection(cause),
            ended = subscriber.work(requests, &self.events, &mut served) => ended,
            error = link.ended() => ConnectionEnd::BrokenConnection(error.details().to_owned()),
            Ok(()) = self.replaced.changed() => ConnectionEnd::Replaced,
        };
        link.end().await;
        (ended, served)
    }
}

/// Runs this future and meanwhile drops requests: after `PubSubUp` the engine subscribes again.
/// `None`: the backend was closed.
async fn meanwhile<T>(
    requests: &mut UnboundedReceiver<SubscriptionRequest>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Some(done),
            request = requests.recv() => drop(request?),
        }
    }
}

async fn open(
    settings: &Settings,
) -> Result<(FredLink, SubscriptionWorker, MessageReceiver), Failure> {
    let client = settings.client();
    let received = client.message_rx();
    let mut subscriber = SubscriptionWorker {
        client: client.clone(),
        heartbeat: settings.budgets().heartbeat(),
        pings: 0,
    };
    // Sent now to see whether the user may run UNSUBSCRIBE: a later refusal could not be reported
    // to anyone.
    let request = SubscriptionRequest {
        channel: "redisson_lock__client".into(),
        sharded: false,
        generation: None,
    };
    let check = async |_: &Client| {
        let explain =
            |error| handshake::name_pubsub(handshake::explain_to(&error, settings.is_encrypted()));
        subscriber.carry_out(&request).await.unwrap_or_else(|error| Err(explain(error)))
    };
    let (link, ()) = FredLink::open(settings, client, check).await?;
    Ok((link, subscriber, received))
}

/// Passes messages on. Returns when some may have been missed or no more can come.
async fn pass_on(mut received: MessageReceiver, events: &Events) -> String {
    loop {
        match received.recv().await {
            Ok(message) => events.send(BackendEvent::Message {
                channel: (*message.channel).into(),
                payload: message.value.into_string().unwrap_or_default(),
            }),
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                return format!("{missed} messages were lost");
            }
            Err(broadcast::error::RecvError::Closed) => return "Connection closed.".to_owned(),
        }
    }
}

/// Carries out one request at a time, because fred would give the error reply to a SUBSCRIBE to the
/// next command that waits for a reply.
struct SubscriptionWorker {
    client: Client,
    /// After this time without a request the server gets a PING.
    heartbeat: Duration,
    pings: u64,
}

impl SubscriptionWorker {
    /// Carries requests out. While there are none, it checks that the server answers.
    async fn work(
        &mut self,
        requests: &mut UnboundedReceiver<SubscriptionRequest>,
        events: &Events,
        served: &mut bool,
    ) -> ConnectionEnd {
        loop {
            let request = tokio::time::timeout(self.heartbeat, requests.recv()).await;
            let done = match request {
                Ok(None) => return ConnectionEnd::Closed,
                Ok(Some(request)) => self.carry_out(&request).await.map(|result| {
                    if let SubscriptionRequest { channel, generation: Some(generation), .. } =
                        request
                    {
                        events.send(BackendEvent::Subscribed { channel, generation, result });
                    }
                }),
                Err(_) => self.get_in_step().await,
            };
            if let Err(error) = done {
                return ConnectionEnd::BrokenConnection(error.details().to_owned());
            }
            *served = true;
        }
    }

    /// Returns once the server has carried the request out or refused it. After an error the
    /// connection must be replaced.
    ///
    /// fred reports a SUBSCRIBE as done before it is written. So a PING follows in the same
    /// pipeline: the server replies to it after it has subscribed, and the text in the reply shows
    /// that it belongs to this PING.
    async fn carry_out(
        &mut self,
        request: &SubscriptionRequest,
    ) -> Result<Result<(), Failure>, WireError> {
        let asked =
            if request.sharded { self.ask_sharded(request).await } else { self.ask(request).await };
        match asked {
            Ok(()) => Ok(Ok(())),
            Err(error) if is_reply(&error) => {
                // The reply to the PING itself may still be on its way.
                self.get_in_step().await?;
                // Valkey 8.0 replies this if nothing is subscribed; other servers send a
                // confirmation.
                if request.generation.is_none() && error.details().starts_with("NOSUB") {
                    return Ok(Ok(()));
                }
                let refused = name_channel(&request.channel, failure(&error));
                Ok(Err(handshake::name_pubsub(refused)))
            }
            Err(error) => Err(error),
        }
    }

    async fn ask(&mut self, request: &SubscriptionRequest) -> Result<(), WireError> {
        let (channel, carried) = (request.channel.to_string(), self.next_ping());
        let pipeline = self.client.pipeline();
        let told = async {
            match request.generation {
                Some(_) => pipeline.subscribe(channel).await?,
                None => pipeline.unsubscribe(channel).await?,
            }
            pipeline.ping::<Word>(Some(carried.clone())).await?;
            pipeline.last::<Word>().await
        };
        let answer = told.await.map_err(|error| local_or_reply(&error))?;
        if is_echo(&answer, &carried) { Ok(()) } else { Err(out_of_step()) }
    }

    /// fred does not put SSUBSCRIBE into pipelines, but waits for the server's reply to it, unlike
    /// for SUBSCRIBE.
    async fn ask_sharded(&mut self, request: &SubscriptionRequest) -> Result<(), WireError> {
        let channel = request.channel.to_string();
        let told = match request.generation {
            Some(_) => self.client.ssubscribe(channel).await,
            None => self.client.sunsubscribe(channel).await,
        };
        told.map_err(|error| local_or_reply(&error))?;
        self.get_in_step().await
    }

    /// Returns once a new PING got its own reply.
    ///
    /// After a refusal there may be one reply on the wire that no command waits for. A PING that is
    /// sent before it arrives takes it, so that the PING's own reply is left over in turn. fred
    /// drops a reply only while no command waits for one; hence the pauses.
    async fn get_in_step(&mut self) -> Result<(), WireError> {
        let mut pause = BETWEEN_REPLIES;
        for _ in 0..STEPS {
            let carried = self.next_ping();
            match self.client.ping::<Word>(Some(carried.clone())).await {
                Ok(answer) if is_echo(&answer, &carried) => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    let error = local_or_reply(&error);
                    if !is_reply(&error) {
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause *= 4;
        }
        Err(out_of_step())
    }

    fn next_ping(&mut self) -> String {
        self.pings += 1;
        format!("redisson_lock {}", self.pings)
    }
}

/// In RESP2 the reply to a PING is a list while something is subscribed.
fn is_echo(answer: &Word, carried: &str) -> bool {
    match answer {
        Word::Array(parts) => parts.last().is_some_and(|part| is_echo(part, carried)),
        text => text.as_str().is_some_and(|text| text == carried),
    }
}

fn out_of_step() -> WireError {
    WireError::new(ErrorKind::Protocol, "the reply to another command")
}

#[cfg(test)]
mod tests {
    use super::*;

    use fred::types::MessageKind;
    use tokio::sync::mpsc;

    fn message(text: &str) -> Message {
        let (channel, value, server) = ("news".into(), text.into(), ("127.0.0.1", 1).into());
        Message { channel, value, kind: MessageKind::Message, server }
    }

    #[tokio::test]
    async fn messages_that_fred_has_dropped_are_noticed() {
        let (sender, received) = broadcast::channel(2);
        for text in ["1", "2", "3", "4", "5"] {
            sender.send(message(text)).expect("somebody listens");
        }
        let (events, mut told) = mpsc::unbounded_channel();
        assert_eq!(pass_on(received, &Events(events)).await, "3 messages were lost");
        assert!(told.recv().await.is_none(), "whatever comes after a gap is not passed on");
    }

    #[tokio::test]
    async fn messages_are_passed_on_until_no_more_can_come() {
        let (sender, received) = broadcast::channel(2);
        sender.send(message("0")).expect("somebody listens");
        drop(sender);
        let (events, mut told) = mpsc::unbounded_channel();
        assert_eq!(pass_on(received, &Events(events)).await, "Connection closed.");
        let Some(TaskReport::Event(BackendEvent::Message { channel, payload })) = told.recv().await
        else {
            panic!("no message");
        };
        assert_eq!((&*channel, payload.as_str()), ("news", "0"));
    }
}
