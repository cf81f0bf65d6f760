//! The two connections of one client: events on their way to it, and replies that were lost.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::backend::BackendEvent;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::Value;

/// Longer than any test runs. No timer is set for later.
const FOREVER: Duration = Duration::from_secs(86_400 * 365);

/// The result of a client's poll.
pub(super) enum NextEvent {
    Event(BackendEvent),
    /// Nothing has arrived; the next event is due at this instant.
    At(Instant),
    Nothing,
}

/// An event that arrives later.
#[derive(Debug)]
struct EventInTransit {
    event: BackendEvent,
    /// The call that it answers, and the deadline of that call.
    answers: Option<(OpId, Instant)>,
}

#[derive(Debug, Default)]
pub(super) struct MemoryLink {
    /// The runtime whose clock and timers the client uses. `None`: real time.
    runtime: Option<Handle>,
    pub(super) connected: bool,
    pub(super) closing: bool,
    /// True while the network drops everything. The client finds out by its own timeouts.
    pub(super) partitioned: bool,
    /// Events that have arrived.
    events: VecDeque<BackendEvent>,
    /// Events that arrive later, by the time of arrival and, for equal times, in the order of
    /// sending.
    on_their_way: BTreeMap<(Instant, u64), EventInTransit>,
    sent: u64,
    /// When the latest reply and the latest message arrive: each of the two connections keeps its
    /// order.
    last_reply: Option<Instant>,
    last_message: Option<Instant>,
    /// Calls whose replies are lost or come too late, and their deadlines.
    unanswered: Vec<(OpId, Instant)>,
    pub(super) subscriptions: BTreeSet<(Arc<str>, bool)>,
    waker: Option<Waker>,
    /// True if events came in since the last poll. They are held back for one turn of the runtime,
    /// so that a client that finds every answer ready does not starve other tasks.
    fresh: bool,
}

impl MemoryLink {
    /// Uses the runtime of the caller, if there is one.
    pub(super) fn new(partitioned: bool) -> Self {
        Self { runtime: Handle::try_current().ok(), partitioned, ..Self::default() }
    }

    /// The time of the client's runtime, whoever calls.
    pub(super) fn now(&self) -> Instant {
        let _inside = self.runtime.as_ref().map(Handle::enter);
        Instant::now()
    }

    /// Adds an event that arrives at once.
    pub(super) fn push(&mut self, event: BackendEvent) {
        self.events.push_back(event);
        self.fresh = true;
    }

    /// Sends a reply that takes `delay`. If that is longer than the call's timeout, the reply is
    /// lost.
    pub(super) fn reply(
        &mut self,
        op: OpId,
        outcome: Outcome<Value>,
        delay: Duration,
        timeout: Duration,
    ) {
        let event = BackendEvent::Replied { op, server: ServerId::ONLY, outcome };
        if delay.is_zero() && self.on_their_way.is_empty() {
            return self.push(event);
        }
        let now = self.now();
        let at = (now + delay.min(FOREVER)).max(self.last_reply.unwrap_or(now));
        let times_out = now + timeout.min(FOREVER);
        if at >= times_out {
            return self.lose_reply(op, timeout);
        }
        self.last_reply = Some(at);
        self.send(at, EventInTransit { event, answers: Some((op, times_out)) });
    }

    /// Sends a message, or the confirmation of a subscription, that takes `delay`.
    pub(super) fn tell(&mut self, event: BackendEvent, delay: Duration) {
        if delay.is_zero() && self.on_their_way.is_empty() {
            return self.push(event);
        }
        let now = self.now();
        let at = (now + delay.min(FOREVER)).max(self.last_message.unwrap_or(now));
        self.last_message = Some(at);
        self.send(at, EventInTransit { event, answers: None });
    }

    fn send(&mut self, at: Instant, sent: EventInTransit) {
        self.sent += 1;
        self.on_their_way.insert((at, self.sent), sent);
        self.fresh = true;
    }

    /// The call, which was sent now, times out.
    pub(super) fn lose_reply(&mut self, op: OpId, timeout: Duration) {
        let at = self.now() + timeout.min(FOREVER);
        self.unanswered.push((op, at));
        self.fresh = true;
    }

    pub(super) fn next(&mut self, waker: &Waker) -> NextEvent {
        if self.fresh {
            self.fresh = false;
            waker.wake_by_ref();
            return NextEvent::Nothing;
        }
        let now = self.now();
        self.arrive(now);
        self.time_out(now);
        if let Some(event) = self.events.pop_front() {
            return NextEvent::Event(event);
        }
        self.waker = Some(waker.clone());
        let timeouts = self.unanswered.iter().map(|(_, at)| *at);
        let arrivals = self.on_their_way.keys().map(|(at, _)| *at).take(1);
        timeouts.chain(arrivals).min().map_or(NextEvent::Nothing, NextEvent::At)
    }

    /// From now on nothing arrives that has not arrived yet.
    pub(super) fn partition(&mut self) {
        self.partitioned = true;
        let lost = std::mem::take(&mut self.on_their_way).into_values();
        self.unanswered.extend(lost.filter_map(|sent| sent.answers));
        self.fresh = true;
    }

    fn arrive(&mut self, now: Instant) {
        while let Some(first) = self.on_their_way.first_entry().filter(|first| first.key().0 <= now)
        {
            self.events.push_back(first.remove().event);
        }
    }

    fn time_out(&mut self, now: Instant) {
        let due: Vec<OpId> =
            self.unanswered.iter().filter(|(_, at)| *at <= now).map(|(op, _)| *op).collect();
        self.unanswered.retain(|(_, at)| *at > now);
        let words = "no reply within the timeout";
        self.events.extend(due.iter().map(|op| unknown(*op, words)));
        if self.partitioned && self.connected && !due.is_empty() {
            self.give_up();
        }
    }

    /// The client considers its connections dead. The server does not know that, so the
    /// subscriptions stay.
    fn give_up(&mut self) {
        self.break_off("nothing is answered");
        self.refuse(FailureKind::Link, "no answer");
    }

    /// Reports a failed attempt to connect.
    pub(super) fn refuse(&mut self, kind: FailureKind, cause: &str) {
        let failure = Failure::new(kind, cause);
        self.push(BackendEvent::ConnectFailed { server: ServerId::ONLY, failure });
    }

    /// Closes the connections at both ends. Returns the subscriptions that this ends.
    pub(super) fn cut(&mut self, cause: &str) -> BTreeSet<(Arc<str>, bool)> {
        if self.connected {
            self.break_off(cause);
        }
        std::mem::take(&mut self.subscriptions)
    }

    /// Drops everything that is on its way to the client.
    fn break_off(&mut self, cause: &str) {
        let arrived = std::mem::take(&mut self.events).into_iter();
        let lost = std::mem::take(&mut self.on_their_way).into_values().map(|sent| sent.event);
        self.events = arrived
            .chain(lost)
            .filter_map(|event| match event {
                BackendEvent::Replied { op, outcome: Outcome::Done(_), .. } => {
                    Some(unknown(op, cause))
                }
                BackendEvent::Message { .. } | BackendEvent::Subscribed { .. } => None,
                other => Some(other),
            })
            .collect();
        for (op, _) in std::mem::take(&mut self.unanswered) {
            self.push(unknown(op, cause));
        }
        self.push(BackendEvent::Down { server: ServerId::ONLY, cause: cause.to_owned() });
        self.push(BackendEvent::PubSubDown);
        (self.last_reply, self.last_message) = (None, None);
        self.connected = false;
    }

    /// Takes the client's waker if there is something to poll for.
    pub(super) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take_if(|_| self.fresh || !self.events.is_empty())
    }
}

fn unknown(op: OpId, cause: &str) -> BackendEvent {
    let failure = Failure::new(FailureKind::Link, cause);
    BackendEvent::Replied { op, server: ServerId::ONLY, outcome: Outcome::Unknown(failure) }
}
