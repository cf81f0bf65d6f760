//! The task of the pub/sub connection: it connects, checks the server, watches the connection, and
//! reconnects.

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
use crate::backend::redis::link::BrokenConnection;
use crate::backend::redis::link::StopSignal;
use crate::backend::redis::link::unless_stopped;
use crate::backend::redis::locator::ConnectionKind;
use crate::backend::redis::locator::ConnectionOutcome;
use crate::backend::redis::locator::Destination;
use crate::backend::redis::locator::ServerLocator;
use crate::backend::redis::locator::WorkingAddress;
use crate::backend::redis::names::AddressWatch;
use crate::backend::redis::subscriber::Subscriber;

/// What the task reports about the pub/sub connection. There is one channel for everything, because
/// the order matters.
pub(crate) enum PubSubEvent {
    Up(Box<PubSubLink>),
    Down,
    Failed(Failure),
}

/// A pub/sub connection that is up.
pub(crate) struct PubSubLink {
    pub(crate) subscriber: Subscriber,
    /// Receives the cause when the connection has ended.
    pub(crate) ended: oneshot::Sender<BrokenConnection>,
    /// Notified to end the connection.
    pub(crate) end: Arc<Notify>,
    /// True if anything was received after the handshake.
    pub(crate) served: bool,
    /// When the attempt to connect began.
    pub(crate) dialled: Instant,
}

/// Reports on the pub/sub connection.
pub(crate) struct PubSub {
    events: mpsc::UnboundedSender<PubSubEvent>,
    /// True if its end was logged, and its restoration was not logged yet.
    reported: AtomicBool,
    /// How many connections in a row ended without any answer, while commands were answered.
    mute: AtomicU32,
}

impl PubSub {
    pub(crate) fn new(events: mpsc::UnboundedSender<PubSubEvent>) -> Self {
        Self { events, reported: AtomicBool::new(false), mute: AtomicU32::new(0) }
    }

    /// Reports missing pub/sub after two such connections in a row, so that callers that wait for a
    /// subscription get an error that says why. A single one may be chance: a server that shuts
    /// down closes this connection first.
    fn note_mute(&self, broken: &BrokenConnection, cause: &str, working_address: &WorkingAddress) {
        if broken.served || !working_address.is_connected() {
            return self.mute.store(0, Ordering::Relaxed);
        }
        if self.mute.fetch_add(1, Ordering::Relaxed) > 0 {
            let failure = Failure::new(FailureKind::Link, format!("{cause} {WITHOUT_PUBSUB}"));
            let _ = self.events.send(PubSubEvent::Failed(failure));
        }
    }
}

impl ConnectionKind for PubSub {
    // Wake-ups are hints, so the primary that was named last is good enough while no sentinel
    // answers.
    const CONFIRMED: bool = false;

    async fn one_connection(
        &self,
        found: Destination,
        locator: &mut ServerLocator,
        stop: &mut StopSignal,
    ) -> ConnectionOutcome {
        let Destination { config, renewal, .. } = found;
        let dialled = Instant::now();
        match unless_stopped(stop, open(&config, locator)).await {
            Some(Ok((subscriber, address))) => {
                let (end, (ended, mut broken)) = (Arc::new(Notify::new()), oneshot::channel());
                let subscriptions =
                    PubSubLink { subscriber, ended, end: Arc::clone(&end), served: false, dialled };
                let _ = self.events.send(PubSubEvent::Up(Box::new(subscriptions)));
                if self.reported.swap(false, Ordering::Relaxed) {
                    link::report_well(&config.address(), "connected again (pub/sub)");
                }
                let lived = tokio::select! {
                    _ = locator.moved_from(&address) => ConnectionOutcome::left(dialled),
                    broken = &mut broken => broken.map_or(ConnectionOutcome::Served, |broken| {
                        let cause = format!("{}: {}", config.address_in_use(), broken.cause);
                        link::report_broken(
                            &config.address(),
                            &cause,
                            "disconnected (pub/sub): no wake-ups from this server until it is connected again",
                        );
                        self.reported.store(true, Ordering::Relaxed);
                        self.note_mute(&broken, &cause, &locator.working_address);
                        ConnectionOutcome::broken(broken.served)
                    }),
                    () = end.notified() => ConnectionOutcome::Served,
                    () = stop.wait() => ConnectionOutcome::Served,
                    // With RESP2 a connection with subscriptions accepts no AUTH.
                    () = renewal.ended() => ConnectionOutcome::Served,
                };
                let _ = self.events.send(PubSubEvent::Down);
                lived
            }
            Some(Err(failure)) => {
                let message = format!("{}: {}", config.address_in_use(), failure.message);
                let _ = self.events.send(PubSubEvent::Failed(Failure { message, ..failure }));
                ConnectionOutcome::NeverUsable
            }
            None => ConnectionOutcome::NeverUsable,
        }
    }

    fn failed(&self, failure: Failure) {
        let _ = self.events.send(PubSubEvent::Failed(failure));
    }
}

async fn open(
    config: &RedisConfig,
    locator: &mut ServerLocator,
) -> Result<(Subscriber, AddressWatch), Failure> {
    let working_address = locator.working_address.clone();
    tokio::select! {
        opened = open_any(config, &working_address) => opened,
        moved = locator.moved() => Err(Failure::new(FailureKind::Link, moved)),
    }
}

/// Connects to the address that answers commands, if there is one, and otherwise to the first one
/// that works.
async fn open_any(
    config: &RedisConfig,
    working_address: &WorkingAddress,
) -> Result<(Subscriber, AddressWatch), Failure> {
    let mut tries =
        working_address.tries(config).await.map_err(|error| handshake::explain(&error, config))?;
    while let Some(target) = tries.next() {
        match open_at(config, &target, tries.count(), working_address).await {
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
    working_address: &WorkingAddress,
) -> Result<Subscriber, Failure> {
    let dialled = dial(config, target, addresses).await;
    let mut wire = dialled.map_err(|error| handshake::explain(&error, config))?;
    if addresses > 1 {
        // A server that is not the primary, at another address of the name, does not receive what
        // the primary publishes.
        handshake::greet(&mut wire, config).await?;
    }
    let mut subscriber = Subscriber::new(wire, config.budgets());
    let late = "no answer to UNSUBSCRIBE and PING";
    match within(late, config.budgets().answer(), subscriber.check()).await {
        Ok(checked) => checked.map(|()| subscriber),
        Err(error) => {
            Err(handshake::explain_pubsub(&error, config, working_address.is_connected()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backend::redis::names::HostNames;

    #[tokio::test]
    async fn a_server_without_pubsub_is_told_of_after_two_mute_connections_in_a_row() {
        let config = RedisConfig::parse("redis://127.0.0.1:1").expect("an address");
        let working_address = WorkingAddress::new(HostNames::of(&config));
        let target = working_address.tries(&config).await.expect("an address").next().expect("one");
        let (events, mut told) = mpsc::unbounded_channel();
        let pubsub = PubSub::new(events);
        let mut is_told = |served| {
            pubsub.note_mute(
                &BrokenConnection { cause: "cut".to_owned(), served },
                "cut",
                &working_address,
            );
            told.try_recv().is_ok()
        };
        let mute = false;
        // While commands are not answered either, the cause is not missing pub/sub.
        assert_eq!([is_told(mute), is_told(mute)], [false, false]);
        working_address.connected(target.clone());
        assert_eq!([is_told(mute), is_told(mute), is_told(mute)], [false, true, true]);
        assert!(!is_told(true), "it was answered");
        assert_eq!([is_told(mute), is_told(mute)], [false, true]);
        working_address.disconnected();
        assert!(!is_told(mute));
        working_address.connected(target);
        assert_eq!([is_told(mute), is_told(mute)], [false, true]);
    }
}
