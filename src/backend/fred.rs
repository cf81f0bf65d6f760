//! Runs over clients of the crate `fred`, which are made from the settings of the user's client.
//!
//! There are two at a time, one for scripts and one for messages. Nothing is sent over the user's
//! own client. Each of the two serves one connection and is replaced when that ends; fred's own
//! reconnection is off. So fred cannot send a command twice or after its caller has given up, and a
//! client whose router task has ended is noticed and replaced as well. Each command has one
//! attempt. Only a reply of the server says whether a command was executed; after any error of
//! fred's own the outcome is unknown.
//!
//! Everything runs in tasks on the user's runtime. While that is blocked, nothing is sent and
//! nothing is renewed.

mod commands;
mod link;
mod messages;
mod reply;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::ready;
use std::time::Duration;

pub(crate) use ::fred::clients::Client as FredClient;
pub(crate) use ::fred::types::config::Config as FredConfig;
use tokio::sync::mpsc;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::fred::commands::SubmittedCall;
pub(crate) use crate::backend::fred::settings::Settings;
pub(crate) use crate::backend::fred::settings::redis_config;
use crate::backend::redis::handshake::WITHOUT_PUBSUB;
use crate::backend::redis::subscriber::SubscriptionRequest;
use crate::base::map::Map;
use crate::base::process::spawn;

/// Replaces a timeout that is too long for the clock.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// What the two tasks send to the backend.
enum TaskReport {
    Event(BackendEvent),
    /// An attempt to connect for messages has failed.
    MessagesFailed(Failure),
}

/// The sender through which a task reports. The backend is closed when both tasks have dropped
/// theirs.
#[derive(Clone)]
struct Events(mpsc::UnboundedSender<TaskReport>);

impl Events {
    fn send(&self, event: BackendEvent) {
        let _ = self.0.send(TaskReport::Event(event));
    }
}

/// The backend over two clients of fred, for one server or the primary that sentinels name.
pub(crate) struct FredBackend {
    told: mpsc::UnboundedReceiver<TaskReport>,
    /// Dropping the two senders in it ends the tasks, once all calls are answered.
    work: Option<TaskQueues>,
    /// Tells the tasks to replace their clients.
    replace: [Arc<watch::Sender<()>>; 2],
    /// Answers that the backend itself gives.
    own: VecDeque<BackendEvent>,
    connected: bool,
    is_closed: bool,
}

struct TaskQueues {
    calls: mpsc::UnboundedSender<SubmittedCall>,
    requests: mpsc::UnboundedSender<SubscriptionRequest>,
}

impl FredBackend {
    /// Starts to connect and returns at once. Must be called within the runtime that is to own the
    /// connections.
    pub(crate) fn new(settings: Settings) -> Self {
        let (events, told) = mpsc::unbounded_channel();
        let events = Events(events);
        let (calls, submitted) = mpsc::unbounded_channel();
        let (requests, requested) = mpsc::unbounded_channel();
        let replace = [Arc::new(watch::Sender::new(())), Arc::new(watch::Sender::new(()))];
        let settings = Arc::new(settings);
        let commands = commands::CommandTask {
            settings: Arc::clone(&settings),
            events: events.clone(),
            digests: Map::default(),
            replaced: replace[0].subscribe(),
            replace_messages: Arc::clone(&replace[1]),
        };
        let messages = messages::MessageTask { settings, events, replaced: replace[1].subscribe() };
        spawn(commands.keep_connected(submitted));
        spawn(messages.keep_connected(requested));
        Self {
            told,
            work: Some(TaskQueues { calls, requests }),
            replace,
            own: VecDeque::new(),
            connected: false,
            is_closed: false,
        }
    }

    fn request(&self, request: SubscriptionRequest) {
        if let Some(work) = &self.work {
            let _ = work.requests.send(request);
        }
    }

    fn understand(&mut self, told: TaskReport) -> BackendEvent {
        match told {
            TaskReport::Event(event) => {
                match event {
                    BackendEvent::Up(..) => self.connected = true,
                    BackendEvent::Down { .. } => self.connected = false,
                    _ => {}
                }
                event
            }
            TaskReport::MessagesFailed(mut failure) => {
                // While commands are not answered either, the cause is not missing pub/sub.
                if self.connected && failure.kind == FailureKind::Link {
                    failure.message = format!("{} {WITHOUT_PUBSUB}", failure.message);
                }
                BackendEvent::ConnectFailed { server: ServerId::ONLY, failure }
            }
        }
    }
}

impl Backend for FredBackend {
    fn submit(&mut self, op: OpId, _to: ServerId, call: Call, timeout: Duration) {
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or(now + LONGEST);
        let submitted = SubmittedCall { op, call, deadline };
        let sent = self.work.as_ref().is_some_and(|work| work.calls.send(submitted).is_ok());
        if !sent {
            self.own.push_back(refused(op, "closed"));
        }
    }

    fn subscribe(&mut self, channel: Arc<str>, sharded: bool, generation: u64) {
        self.request(SubscriptionRequest { channel, sharded, generation: Some(generation) });
    }

    fn unsubscribe(&mut self, channel: Arc<str>, sharded: bool) {
        self.request(SubscriptionRequest { channel, sharded, generation: None });
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        if let Some(event) = self.own.pop_front() {
            return Poll::Ready(event);
        }
        if self.is_closed {
            return Poll::Pending;
        }
        match ready!(self.told.poll_recv(cx)) {
            Some(told) => Poll::Ready(self.understand(told)),
            None => {
                self.is_closed = true;
                Poll::Ready(BackendEvent::Closed)
            }
        }
    }

    fn reconnect(&mut self, _server: ServerId) {
        self.replace.iter().for_each(|client| client.send_replace(()));
    }

    fn close(&mut self) {
        self.work = None;
    }
}

impl fmt::Debug for FredBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FredBackend").field("connected", &self.connected).finish_non_exhaustive()
    }
}

/// The answer to a call that was not given to fred.
fn refused(op: OpId, why: &str) -> BackendEvent {
    let outcome = Outcome::NotExecuted(Failure::new(FailureKind::Link, why));
    BackendEvent::Replied { op, server: ServerId::ONLY, outcome }
}
