//! What comes in, for the engine, and what goes out: its effects.

use std::collections::VecDeque;

use crate::backend::BackendEvent;
use crate::backend::Outcome;
use crate::base::clock::Moment;
use crate::driver::Message;
use crate::driver::trace;
use crate::engine::event::Answer;
use crate::engine::event::Effect;
use crate::engine::event::Event;
use crate::engine::event::RequestId;

use super::DriverPhase;
use super::Task;
use super::connecting::Connecting;

impl Task {
    /// Handles a message of a caller.
    pub(super) fn on_message(&mut self, message: Message) {
        // Read before anything is sent, because validity is counted from here.
        let now = self.clock.now();
        match message {
            Message::Ask { request, ticket, event } => {
                self.desk.open(request, ticket);
                self.handle(now, event);
                if let Some(event) = self.desk.picked_up() {
                    self.handle(now, event);
                }
            }
            Message::Connect { request, ticket, since, deadline } => {
                self.on_connect(now, Connecting { request, since, deadline }, ticket);
            }
            Message::Cancel { request } => {
                if let Some(event) = self.desk.cancel(request) {
                    self.handle(now, event);
                }
            }
            Message::Release { hold, level, waiting } => {
                self.desk.forget(level);
                let request = waiting.map(|(request, ticket)| {
                    self.desk.open(request, ticket);
                    request
                });
                self.handle(now, Event::Release { hold, level, request });
            }
            Message::Leave { hold, level } => {
                self.desk.forget(level);
                self.handle(now, Event::Leave { hold, level });
            }
            Message::Shutdown { request, ticket, until } => {
                self.on_shutdown(now, request, ticket, until);
            }
            Message::Spawn { future } => {
                self.runtime.spawn(future.0);
            }
            Message::Settle { done } => self.on_settle(now, done),
            Message::LastHandle { done } => self.on_last_handle(now, done),
        }
    }

    /// Handles an event of the backend.
    pub(super) fn on_backend(&mut self, event: BackendEvent) {
        let now = self.clock.now();
        let event = match event {
            BackendEvent::Replied { op, server, outcome } => {
                let Some(command) = self.sent.remove(&op) else { return };
                self.pacing.note_ended(now, matches!(outcome, Outcome::Done(_)));
                self.tell_backend();
                let outcome = outcome.and_then(|value| command.read(value));
                self.note_trouble(&outcome);
                Event::Replied { op, server, outcome }
            }
            BackendEvent::Up(server, info) => Event::Up(server, info),
            BackendEvent::Down { server, cause } => {
                self.pacing.note_disconnected();
                self.tell_backend();
                self.trouble = Some(cause.clone());
                Event::Down { server, cause }
            }
            BackendEvent::Routes(routes) => Event::Routes(routes),
            BackendEvent::PubSubUp => Event::PubSubUp,
            BackendEvent::PubSubDown => Event::PubSubDown,
            BackendEvent::ConnectFailed { server, failure } => {
                self.trouble = Some(failure.message.clone());
                Event::ConnectFailed { server, failure }
            }
            BackendEvent::Subscribed { channel, generation, result } => {
                if let Err(failure) = &result {
                    self.trouble = Some(failure.message.clone());
                }
                Event::Subscribed { channel, generation, result }
            }
            BackendEvent::SubscriptionLost { channel } => Event::SubscriptionLost { channel },
            BackendEvent::Message { channel, payload } => Event::Message { channel, payload },
            BackendEvent::Closed => return,
        };
        self.handle(now, event);
    }

    /// Tells the backend when to gather calls.
    fn tell_backend(&mut self) {
        self.backend.gather(self.load().gathers_from());
    }

    /// Passes an event to the engine, and carries out what follows from it.
    pub(super) fn handle(&mut self, now: Moment, event: Event) {
        let mut effects = std::mem::take(&mut self.effects);
        // Allocates only in the rare case that an effect leads to an event.
        let mut events = VecDeque::new();
        let mut next = Some(event);
        while let Some(event) = next {
            self.engine.handle(now, event, &mut effects);
            for effect in effects.drain(..) {
                if let Some(event) = self.perform(now, effect) {
                    events.push_back(event);
                }
            }
            next = events.pop_front();
        }
        self.effects = effects;
    }

    /// Carries out an effect. Returns the event that follows from it at once, if one does.
    pub(super) fn perform(&mut self, now: Moment, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Send { op, to, command, timeout } => {
                self.pacing.note_sent(now, self.sent.len());
                self.backend.submit(op, to, command.to_call(), timeout);
                self.sent.insert(op, command);
            }
            Effect::Subscribe { channel, sharded, generation } => {
                self.backend.subscribe(channel, sharded, generation);
            }
            Effect::Unsubscribe { channel, sharded } => self.backend.unsubscribe(channel, sharded),
            Effect::Reconnect(server) => self.backend.reconnect(server),
            Effect::Answer { request, answer } => return self.answer(request, answer),
            Effect::Withdraw { request } => return Some(self.desk.withdraw(request)),
            Effect::Report(report) => trace::report(report),
            Effect::Finished => self.phase = DriverPhase::Finished,
        }
        None
    }

    fn answer(&mut self, request: RequestId, answer: Answer) -> Option<Event> {
        if let Answer::ShutDown(fates) = answer {
            self.keep_fates(fates);
            return None;
        }
        self.connecting.take_if(|connecting| connecting.request == request);
        self.desk.answer(request, answer)
    }
}
