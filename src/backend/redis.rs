//! The backend for Redis and Valkey, over connections of its own.
//!
//! There are two connections (`wire`) to a server, one for scripts and one for subscriptions: on a
//! shared connection a slow reply would delay the wake-ups. Each is made and replaced by a task of
//! its own (`commands`, `pubsub`), and is read and written in `poll_event`, so that neither a lock
//! nor a wake-up needs a switch between tasks.

mod addresses;
pub(crate) mod budget;
pub(crate) mod calls;
pub(crate) mod classify;
mod cluster;
mod commands;
pub(crate) mod config;
pub(crate) mod denied;
pub(crate) mod dial;
pub(crate) mod error;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub(crate) mod handshake;
pub(crate) mod link;
mod locator;
mod login;
pub(crate) mod names;
mod pubsub;
pub(crate) mod resp;
mod sentinel;
pub(crate) mod subscriber;
#[cfg(test)]
pub(crate) mod tests;
mod timer;
pub(crate) mod tls;
mod wake_flag;
pub(crate) mod wire;

use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::task::ready;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::ServerId;
use crate::backend::redis::calls::Calls;
use crate::backend::redis::cluster::ClusterBackend;
use crate::backend::redis::commands::CommandEvent;
use crate::backend::redis::commands::Commands;
pub(crate) use crate::backend::redis::config::Access;
use crate::backend::redis::config::Address;
use crate::backend::redis::config::Deployment;
pub(crate) use crate::backend::redis::config::RedisConfig;
use crate::backend::redis::link::BrokenConnection;
use crate::backend::redis::link::StopSignal;
use crate::backend::redis::locator::ServerLocator;
use crate::backend::redis::locator::keep_connected;
use crate::backend::redis::names::HostNames;
use crate::backend::redis::pubsub::PubSub;
use crate::backend::redis::pubsub::PubSubEvent;
use crate::backend::redis::pubsub::PubSubLink;
use crate::backend::redis::sentinel::SentinelListener;
use crate::backend::redis::sentinel::Sentinels;
use crate::backend::redis::subscriber::SubscriberEvent;
use crate::backend::redis::subscriber::SubscriptionRequest;
use crate::backend::redis::wake_flag::WakeFlag;
use crate::base::process::spawn;
use crate::settings::config::Sharding;

/// Makes the backend for a deployment. Must be called within the runtime that is to own the
/// connections.
pub(crate) fn backend(config: RedisConfig, sharding: Sharding) -> Box<dyn Backend> {
    match config.topology().clone() {
        Deployment::Cluster { seeds } => Box::new(ClusterBackend::new(config, seeds, sharding)),
        Deployment::One(_) | Deployment::Sentinel { .. } => Box::new(RedisBackend::new(config)),
    }
}

/// One Redis or Valkey server: the one in the address, or the primary that sentinels name.
pub(crate) struct RedisBackend {
    calls: Calls,
    command_events: mpsc::UnboundedReceiver<CommandEvent>,
    pubsub_events: mpsc::UnboundedReceiver<PubSubEvent>,
    subscriptions: Option<Box<PubSubLink>>,
    /// The `run_id` of the process that the last command connection led to. Empty: not known.
    run_id: String,
    /// When a command connection led to another process than the one before. A pub/sub connection
    /// that was begun earlier may lead to the old process.
    moved_at: Option<Instant>,
    /// Woken by everything except the calls. Mostly, only the answer to a call is awaited, and then
    /// the other sources need not be polled.
    others: Arc<WakeFlag>,
    phase: BackendPhase,
    /// The source that the next poll begins with, so that no source starves another.
    turn: u8,
    /// Woken by a `close` that comes after the last poll.
    waker: Option<Waker>,
}

enum BackendPhase {
    /// Dropping the sender ends the tasks.
    Open {
        stop: watch::Sender<bool>,
        links: Vec<JoinHandle<()>>,
    },
    /// Calls in flight are awaited; new ones are refused.
    Draining {
        stop: watch::Sender<bool>,
        links: Vec<JoinHandle<()>>,
    },
    /// Connections are being closed.
    Ending {
        links: Vec<JoinHandle<()>>,
    },
    Closed,
}

impl RedisBackend {
    /// Starts to connect and returns at once, whether or not a server can be reached.
    ///
    /// Must be called within the runtime that is to own the connections, and used there.
    pub(crate) fn new(config: RedisConfig) -> Self {
        let (stop, stopped) = StopSignal::pair();
        let (command_sender, command_events) = mpsc::unbounded_channel();
        let (pubsub_sender, pubsub_events) = mpsc::unbounded_channel();
        let calls = Calls::new(config.several(), config.budgets());
        let (locator, mut links) = start_locator(config, &stopped);
        links.push(spawn(keep_connected(
            locator.clone(),
            Commands(command_sender),
            stopped.clone(),
        )));
        links.push(spawn(keep_connected(locator, PubSub::new(pubsub_sender), stopped)));
        Self {
            calls,
            command_events,
            pubsub_events,
            subscriptions: None,
            run_id: String::new(),
            moved_at: None,
            others: Arc::default(),
            phase: BackendPhase::Open { stop, links },
            turn: 0,
            waker: None,
        }
    }

    pub(crate) fn send(&mut self, op: OpId, request: calls::CallRequest, timeout: Duration) {
        if matches!(self.phase, BackendPhase::Open { .. }) {
            self.calls.submit(op, request, timeout);
        } else {
            self.calls.refuse(op, FailureKind::Link, "closed");
        }
    }

    fn request(&mut self, request: SubscriptionRequest) {
        // While the connection is down nothing is sent: the engine subscribes again after
        // `PubSubUp`.
        if let Some(subscriptions) = &mut self.subscriptions {
            subscriptions.subscriber.request(request);
            self.others.set();
        }
    }

    /// Polls each source once, beginning with another one each time.
    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        let waker = Waker::from(Arc::clone(&self.others));
        let others = &mut Context::from_waker(&waker);
        self.turn = (self.turn + 1) % 4;
        for source in 0..4 {
            let event = match (self.turn + source) % 4 {
                0 => self.poll_calls(cx),
                1 => self.poll_messages(others),
                2 => self.poll_commands(cx, others),
                _ => self.poll_pubsub(others),
            };
            if event.is_ready() {
                self.others.set();
                return event;
            }
        }
        Poll::Pending
    }

    fn poll_calls(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        self.calls.poll_answer(cx).map(|(op, outcome)| BackendEvent::Replied {
            op,
            server: ServerId::ONLY,
            outcome,
        })
    }

    fn poll_messages(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        loop {
            let Some(subscriptions) = &mut self.subscriptions else { return Poll::Pending };
            let heard = ready!(subscriptions.subscriber.poll(cx));
            subscriptions.served |= heard.is_ok();
            return Poll::Ready(match heard {
                Ok(SubscriberEvent::Message { channel, payload }) => {
                    BackendEvent::Message { channel, payload }
                }
                Ok(SubscriberEvent::Answered {
                    request: SubscriptionRequest { channel, generation: Some(generation), .. },
                    result,
                }) => BackendEvent::Subscribed { channel, generation, result },
                Ok(SubscriberEvent::Lost { channel }) => BackendEvent::SubscriptionLost { channel },
                // The answer to an UNSUBSCRIBE or to a PING.
                Ok(
                    SubscriberEvent::Answered { .. }
                    | SubscriberEvent::Pong(_)
                    | SubscriberEvent::Reply(_),
                ) => continue,
                // The task of the connection reports the end.
                Err(error) => {
                    if let Some(PubSubLink { ended, served, .. }) =
                        self.subscriptions.take().map(|all| *all)
                    {
                        let _ = ended
                            .send(BrokenConnection { cause: error.details().to_owned(), served });
                    }
                    continue;
                }
            });
        }
    }

    fn poll_commands(
        &mut self,
        cx: &mut Context<'_>,
        others: &mut Context<'_>,
    ) -> Poll<BackendEvent> {
        // Answers of the old connection come before the new connection is reported, because that
        // may lead to another server.
        if let Poll::Ready(answer) = self.poll_calls(cx) {
            return Poll::Ready(answer);
        }
        let Poll::Ready(Some(event)) = self.command_events.poll_recv(others) else {
            return Poll::Pending;
        };
        Poll::Ready(match event {
            CommandEvent::LogIn(credentials, answer) => {
                self.calls.log_in(&credentials, answer);
                return self.poll_commands(cx, others);
            }
            CommandEvent::Up(connection, server) => {
                self.calls.connected(*connection);
                self.follow(&server.run_id);
                BackendEvent::Up(ServerId::ONLY, server)
            }
            CommandEvent::Down { cause } => {
                self.calls.disconnected(&cause);
                BackendEvent::Down { server: ServerId::ONLY, cause }
            }
            CommandEvent::Failed(failure) => {
                BackendEvent::ConnectFailed { server: ServerId::ONLY, failure }
            }
        })
    }

    /// Replaces the pub/sub connection if commands now go to another process: subscriptions at the
    /// old one receive nothing, or do not count there as subscribers.
    fn follow(&mut self, run_id: &str) {
        if !self.run_id.is_empty() && self.run_id != run_id {
            self.moved_at = Some(Instant::now());
            if let Some(subscriptions) = &self.subscriptions {
                subscriptions.end.notify_one();
            }
        }
        run_id.clone_into(&mut self.run_id);
    }

    fn poll_pubsub(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        let Poll::Ready(Some(event)) = self.pubsub_events.poll_recv(cx) else {
            return Poll::Pending;
        };
        Poll::Ready(match event {
            PubSubEvent::Up(subscriptions) => {
                if self.moved_at.is_some_and(|moved| subscriptions.dialled < moved) {
                    subscriptions.end.notify_one();
                }
                self.subscriptions = Some(subscriptions);
                BackendEvent::PubSubUp
            }
            PubSubEvent::Down => {
                self.subscriptions = None;
                BackendEvent::PubSubDown
            }
            PubSubEvent::Failed(mut failure) => {
                // While no command connection is up either, the failure is not specific to pub/sub.
                if self.calls.is_connected() {
                    failure.message.push_str(" (pub/sub)");
                }
                BackendEvent::ConnectFailed { server: ServerId::ONLY, failure }
            }
        })
    }

    fn poll_phase(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        loop {
            self.phase = match std::mem::replace(&mut self.phase, BackendPhase::Closed) {
                BackendPhase::Draining { stop, links } if self.calls.is_idle() => {
                    self.calls.disconnected("closed");
                    let _ = stop.send(true);
                    BackendPhase::Ending { links }
                }
                BackendPhase::Ending { mut links } => {
                    links.retain_mut(|link| link.poll_unpin(cx).is_pending());
                    if links.is_empty() {
                        // The last events of the tasks may contain a connection, which is closed
                        // here.
                        self.command_events.close();
                        while self.command_events.try_recv().is_ok() {}
                        self.pubsub_events.close();
                        while self.pubsub_events.try_recv().is_ok() {}
                        self.subscriptions = None;
                        return Poll::Ready(BackendEvent::Closed);
                    }
                    self.phase = BackendPhase::Ending { links };
                    return Poll::Pending;
                }
                phase => {
                    self.phase = phase;
                    return Poll::Pending;
                }
            };
        }
    }
}

impl Backend for RedisBackend {
    fn submit(&mut self, op: OpId, _to: ServerId, call: Call, timeout: Duration) {
        self.send(op, calls::CallRequest::Call(call), timeout);
    }

    fn subscribe(&mut self, channel: Arc<str>, sharded: bool, generation: u64) {
        self.request(SubscriptionRequest { channel, sharded, generation: Some(generation) });
    }

    fn unsubscribe(&mut self, channel: Arc<str>, sharded: bool) {
        self.request(SubscriptionRequest { channel, sharded, generation: None });
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        let woken = self.others.take(cx.waker());
        let event = if woken { self.poll_all(cx) } else { self.poll_calls(cx) };
        if event.is_ready() {
            return event;
        }
        let event = self.poll_phase(cx);
        if event.is_pending() {
            self.waker = Some(cx.waker().clone());
        }
        event
    }

    fn has_sockets(&self) -> bool {
        true
    }

    fn looks_for_more(&mut self) -> bool {
        self.calls.read_ahead()
    }

    fn gather(&mut self, from: Option<usize>) {
        self.calls.gather(from);
    }

    fn reconnect(&mut self, _server: ServerId) {
        self.calls.replace_connection();
        if let Some(subscriptions) = &self.subscriptions {
            subscriptions.end.notify_one();
        }
    }

    fn close(&mut self) {
        self.phase = match std::mem::replace(&mut self.phase, BackendPhase::Closed) {
            BackendPhase::Open { stop, links } => BackendPhase::Draining { stop, links },
            phase => phase,
        };
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Makes the locator of the server, and starts the tasks that it needs.
fn start_locator(config: RedisConfig, stop: &StopSignal) -> (ServerLocator, Vec<JoinHandle<()>>) {
    let names = HostNames::of(&config);
    let mut tasks = Vec::new();
    if config.follows_names() && config.may_have_names() {
        tasks.push(spawn(names.clone().watch(stop.clone())));
    }
    let Deployment::Sentinel { sentinels: addresses, primary_name, .. } = config.topology().clone()
    else {
        return (ServerLocator::known(config, names), tasks);
    };
    let sentinels = Sentinels::new(&primary_name, &addresses);
    let locator = ServerLocator::told_by(&sentinels, config.clone(), names.clone());
    let listen = |(number, (host, port)): (usize, Address)| {
        let (config, primary_name) = (config.at_sentinel(&host, port), primary_name.clone());
        let (sentinels, names) = (sentinels.clone(), names.clone());
        let listener = SentinelListener { config, primary_name, sentinels, names, number };
        spawn(sentinel::listen(listener, stop.clone()))
    };
    tasks.extend(addresses.into_iter().enumerate().map(listen));
    (locator, tasks)
}
