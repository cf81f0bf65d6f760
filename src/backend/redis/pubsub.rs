//! The task behind the pub/sub connection: connects, checks, watches, and connects again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::redis::addresses::Target;
use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::dial::dial;
use crate::backend::redis::dial::within;
use crate::backend::redis::handshake;
use crate::backend::redis::handshake::WITHOUT_PUBSUB;
use crate::backend::redis::link;
use crate::backend::redis::link::Broken;
use crate::backend::redis::link::Stop;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::names::InUse;
use crate::backend::redis::subscriber::Subscriber;
use crate::backend::redis::whereabouts::Connects;
use crate::backend::redis::whereabouts::Destination;
use crate::backend::redis::whereabouts::Lived;
use crate::backend::redis::whereabouts::Reached;
use crate::backend::redis::whereabouts::Whereabouts;

/// What happened to the pub/sub connection. All in one channel: their order matters.
pub(crate) enum PubSubEvent {
    Up(Box<PubSubLink>),
    Down,
    Failed(Failure),
}

/// A connection that is up.
pub(crate) struct PubSubLink {
    pub(crate) subscriber: Subscriber,
    /// Hears how it ended.
    pub(crate) ended: oneshot::Sender<Broken>,
    /// Makes it end.
    pub(crate) end: Arc<Notify>,
    /// Something was heard since it was greeted.
    pub(crate) served: bool,
    /// When it was begun.
    pub(crate) dialled: Instant,
}

/// Tells what happens to it.
pub(crate) struct PubSub {
    events: mpsc::UnboundedSender<PubSubEvent>,
    /// The log was told that it broke, and not yet that there is another.
    reported: AtomicBool,
    /// So many in a row ended without an answer to anything, while commands were answered.
    mute: AtomicU32,
}

impl PubSub {
    pub(crate) fn new(events: mpsc::UnboundedSender<PubSubEvent>) -> Self {
        Self { events, reported: AtomicBool::new(false), mute: AtomicU32::new(0) }
    }

    /// Whoever waits for the confirmation of a subscription is to hear why there is none. Once may be by chance: a server
    /// that ends closes this connection first.
    fn note_mute(&self, broken: &Broken, cause: &str, reached: &Reached) {
        if broken.served || !reached.is_connected() {
            return self.mute.store(0, Ordering::Relaxed);
        }
        if self.mute.fetch_add(1, Ordering::Relaxed) > 0 {
            let failure = Failure::new(FailureKind::Link, format!("{cause} {WITHOUT_PUBSUB}"));
            let _ = self.events.send(PubSubEvent::Failed(failure));
        }
    }
}

impl Connects for PubSub {
    // Wake-ups are hints: the last primary that was named will do while no sentinel answers.
    const CONFIRMED: bool = false;

    async fn one_connection(
        &self,
        found: Destination,
        whereabouts: &mut Whereabouts,
        stop: &mut Stop,
    ) -> Lived {
        let Destination { config, renewal, .. } = found;
        let dialled = Instant::now();
        match unless_stopped(stop, open(&config, whereabouts)).await {
            Some(Ok((subscriber, address))) => {
                let (end, (ended, mut broken)) = (Arc::new(Notify::new()), oneshot::channel());
                let subscriptions =
                    PubSubLink { subscriber, ended, end: Arc::clone(&end), served: false, dialled };
                let _ = self.events.send(PubSubEvent::Up(Box::new(subscriptions)));
                if self.reported.swap(false, Ordering::Relaxed) {
                    link::report_well(&config.address(), "connected again (pub/sub)");
                }
                let lived = tokio::select! {
                    _ = whereabouts.moved_from(&address) => Lived::left(dialled),
                    broken = &mut broken => broken.map_or(Lived::Well, |broken| {
                        let cause = format!("{}: {}", config.address_in_use(), broken.cause);
                        link::report_broken(
                            &config.address(),
                            &cause,
                            "disconnected (pub/sub): no wake-ups from this server until it is connected again",
                        );
                        self.reported.store(true, Ordering::Relaxed);
                        self.note_mute(&broken, &cause, &whereabouts.reached);
                        Lived::broken(broken.served)
                    }),
                    () = end.notified() => Lived::Well,
                    () = stop.wait() => Lived::Well,
                    // In RESP2 a connection with subscriptions takes no AUTH.
                    () = renewal.ended() => Lived::Well,
                };
                let _ = self.events.send(PubSubEvent::Down);
                lived
            }
            Some(Err(failure)) => {
                let message = format!("{}: {}", config.address_in_use(), failure.message);
                let _ = self.events.send(PubSubEvent::Failed(Failure { message, ..failure }));
                Lived::Never
            }
            None => Lived::Never,
        }
    }

    fn failed(&self, failure: Failure) {
        let _ = self.events.send(PubSubEvent::Failed(failure));
    }
}

async fn open(config: &RedisConfig, whereabouts: &mut Whereabouts) -> Result<(Subscriber, InUse), Failure> {
    let reached = whereabouts.reached.clone();
    tokio::select! {
        opened = open_any(config, &reached) => opened,
        moved = whereabouts.moved() => Err(Failure::new(FailureKind::Link, moved)),
    }
}

/// At the address that answers commands, if any does, or else at the first that will do.
async fn open_any(config: &RedisConfig, reached: &Reached) -> Result<(Subscriber, InUse), Failure> {
    let mut tries = reached.tries(config).await.map_err(|error| handshake::explain(&error, config))?;
    while let Some(target) = tries.next() {
        match open_at(config, &target, tries.count(), reached).await {
            Ok(subscriber) => return Ok((subscriber, tries.using(&target))),
            Err(failure) => tries.failed(target, failure),
        }
    }
    Err(tries.failure())
}

async fn open_at(
    config: &RedisConfig,
    target: &Target,
    addresses: usize,
    reached: &Reached,
) -> Result<Subscriber, Failure> {
    let dialled = dial(config, target, addresses).await;
    let mut wire = dialled.map_err(|error| handshake::explain(&error, config))?;
    if addresses > 1 {
        // What a primary publishes is not heard at any other server that the name stands for.
        handshake::greet(&mut wire, config).await?;
    }
    let mut subscriber = Subscriber::new(wire, config.budgets());
    let late = "no answer to UNSUBSCRIBE and PING";
    match within(late, config.budgets().answer(), subscriber.check()).await {
        Ok(checked) => checked.map(|()| subscriber),
        Err(error) => Err(handshake::explain_pubsub(&error, config, reached.is_connected())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::redis::names::HostNames;

    #[tokio::test]
    async fn a_server_without_pubsub_is_told_of_after_two_mute_connections_in_a_row() {
        let config = RedisConfig::parse("redis://127.0.0.1:1").expect("an address");
        let reached = Reached::new(HostNames::of(&config));
        let target = reached.tries(&config).await.expect("an address").next().expect("one");
        let (events, mut told) = mpsc::unbounded_channel();
        let pubsub = PubSub::new(events);
        let mut is_told = |served| {
            pubsub.note_mute(&Broken { cause: "cut".to_owned(), served }, "cut", &reached);
            told.try_recv().is_ok()
        };
        let mute = false;
        // While no commands are answered either, it is not about pub/sub.
        assert_eq!([is_told(mute), is_told(mute)], [false, false]);
        reached.connected(target.clone());
        assert_eq!([is_told(mute), is_told(mute), is_told(mute)], [false, true, true]);
        assert!(!is_told(true), "it was answered");
        assert_eq!([is_told(mute), is_told(mute)], [false, true]);
        reached.disconnected();
        assert!(!is_told(mute));
        reached.connected(target);
        assert_eq!([is_told(mute), is_told(mute)], [false, true]);
    }
}
