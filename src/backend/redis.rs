//! On Redis and Valkey, over connections of its own.
//!
//! Two connections (`wire`), one for scripts and one for subscriptions: where they are shared, a slow reply holds up the
//! wake-ups. Each is kept by a task of its own (`commands`, `pubsub`), and written and read right here, in `poll_event`, so
//! that neither a lock nor a wake-up costs a hop between tasks.

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
mod whereabouts;
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
use crate::backend::redis::link::Broken;
use crate::backend::redis::link::Stop;
use crate::backend::redis::names::HostNames;
use crate::backend::redis::pubsub::PubSub;
use crate::backend::redis::pubsub::PubSubEvent;
use crate::backend::redis::pubsub::PubSubLink;
use crate::backend::redis::sentinel::SentinelListener;
use crate::backend::redis::sentinel::Sentinels;
use crate::backend::redis::subscriber::Heard;
use crate::backend::redis::subscriber::SubscriptionRequest;
use crate::backend::redis::wake_flag::WakeFlag;
use crate::backend::redis::whereabouts::Whereabouts;
use crate::backend::redis::whereabouts::keep_connected;
use crate::base::process::spawn;
use crate::settings::config::Sharding;

/// The backend for a deployment. Called within the runtime that shall own the connections.
pub(crate) fn backend(config: RedisConfig, sharding: Sharding) -> Box<dyn Backend> {
    match config.topology().clone() {
        Deployment::Cluster { seeds } => Box::new(ClusterBackend::new(config, seeds, sharding)),
        Deployment::One(_) | Deployment::Sentinel { .. } => Box::new(RedisBackend::new(config)),
    }
}

/// One Redis or Valkey server: the one that is named, or the one that sentinels name.
pub(crate) struct RedisBackend {
    calls: Calls,
    command_events: mpsc::UnboundedReceiver<CommandEvent>,
    pubsub_events: mpsc::UnboundedReceiver<PubSubEvent>,
    subscriptions: Option<Box<PubSubLink>>,
    /// Of the process that the last command connection led to. Empty: not known.
    run_id: String,
    /// When a connection led to another process than the one before. What was dialled earlier may have led to the old one.
    moved_at: Option<Instant>,
    /// Of everything but the calls: a call's answer is waited for with nothing else happening, most of the time.
    others: Arc<WakeFlag>,
    phase: BackendPhase,
    /// What is polled first next time, so that no source starves another.
    turn: u8,
    /// To be woken when `close` comes after the last poll.
    waker: Option<Waker>,
}

enum BackendPhase {
    /// Dropping the sender ends the tasks.
    Open {
        stop: watch::Sender<bool>,
        links: Vec<JoinHandle<()>>,
    },
    /// Calls in flight are awaited; nothing new is taken.
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
    /// Begins to connect and returns at once, whether or not a server is there.
    ///
    /// Must be called within the runtime that shall own the connections, and used there.
    pub(crate) fn new(config: RedisConfig) -> Self {
        let (stop, stopped) = Stop::pair();
        let (command_sender, command_events) = mpsc::unbounded_channel();
        let (pubsub_sender, pubsub_events) = mpsc::unbounded_channel();
        let calls = Calls::new(config.several(), config.budgets());
        let (whereabouts, mut links) = look(config, &stopped);
        links.push(spawn(keep_connected(whereabouts.clone(), Commands(command_sender), stopped.clone())));
        links.push(spawn(keep_connected(whereabouts, PubSub::new(pubsub_sender), stopped)));
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
        // While the connection is down there is nothing to do: the engine subscribes again after `PubSubUp`.
        if let Some(subscriptions) = &mut self.subscriptions {
            subscriptions.subscriber.request(request);
            self.others.set();
        }
    }

    /// One after the other, each first in its turn.
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
                Ok(Heard::Message { channel, payload }) => BackendEvent::Message { channel, payload },
                Ok(Heard::Answered {
                    request: SubscriptionRequest { channel, generation: Some(generation), .. },
                    result,
                }) => BackendEvent::Subscribed { channel, generation, result },
                Ok(Heard::Lost { channel }) => BackendEvent::SubscriptionLost { channel },
                // Of an UNSUBSCRIBE, or of a PING.
                Ok(Heard::Answered { .. } | Heard::Pong(_) | Heard::Reply(_)) => continue,
                // Its task reports the end.
                Err(error) => {
                    if let Some(PubSubLink { ended, served, .. }) = self.subscriptions.take().map(|all| *all)
                    {
                        let _ = ended.send(Broken { cause: error.details().to_owned(), served });
                    }
                    continue;
                }
            });
        }
    }

    fn poll_commands(&mut self, cx: &mut Context<'_>, others: &mut Context<'_>) -> Poll<BackendEvent> {
        // What the old connection brought comes before the new one: it may have been another server.
        if let Poll::Ready(answer) = self.poll_calls(cx) {
            return Poll::Ready(answer);
        }
        let Poll::Ready(Some(event)) = self.command_events.poll_recv(others) else { return Poll::Pending };
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
            CommandEvent::Failed(failure) => BackendEvent::ConnectFailed { server: ServerId::ONLY, failure },
        })
    }

    /// The address may be another server's by now: what is subscribed at the old one hears nothing, or is not counted.
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
        let Poll::Ready(Some(event)) = self.pubsub_events.poll_recv(cx) else { return Poll::Pending };
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
                // While nothing else is connected either, it is not about pub/sub.
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
                        // Their last words, which may have a connection in them.
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

/// Where the server is, and the tasks that find out.
fn look(config: RedisConfig, stop: &Stop) -> (Whereabouts, Vec<JoinHandle<()>>) {
    let names = HostNames::of(&config);
    let mut tasks = Vec::new();
    if config.follows_names() && config.may_have_names() {
        tasks.push(spawn(names.clone().watch(stop.clone())));
    }
    let Deployment::Sentinel { sentinels: addresses, primary_name, .. } = config.topology().clone() else {
        return (Whereabouts::known(config, names), tasks);
    };
    let sentinels = Sentinels::new(&primary_name, &addresses);
    let whereabouts = Whereabouts::told_by(&sentinels, config.clone(), names.clone());
    let listen = |(number, (host, port)): (usize, Address)| {
        let (config, primary_name) = (config.at_sentinel(&host, port), primary_name.clone());
        let (sentinels, names) = (sentinels.clone(), names.clone());
        let listener = SentinelListener { config, primary_name, sentinels, names, number };
        spawn(sentinel::listen(listener, stop.clone()))
    };
    tasks.extend(addresses.into_iter().enumerate().map(listen));
    (whereabouts, tasks)
}
