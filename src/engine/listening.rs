//! Messages and subscriptions: what they wake.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::base::stats::add;
use crate::engine::Engine;
use crate::engine::queue::Cause;
use crate::engine::subscriptions::LINGER;
use crate::engine::subscriptions::Listener;
use crate::engine::timers::TimerKey;

impl Engine {
    pub(super) fn on_pubsub_up(&mut self) {
        self.subscriptions.connected(&mut self.cx);
    }

    /// One subscription has ended, and with it perhaps a wake-up: its confirmation wakes whom it concerns.
    pub(super) fn on_subscription_lost(&mut self, channel: &Arc<str>) {
        self.subscriptions.again(&mut self.cx, channel);
    }

    pub(super) fn on_subscribed(&mut self, channel: &Arc<str>, generation: u64, result: Result<(), Failure>) {
        for listener in self.subscriptions.answered(channel, generation, result.is_ok()) {
            self.on_listener_answered(listener, result.clone());
        }
    }

    fn on_listener_answered(&mut self, listener: Listener, result: Result<(), Failure>) {
        match (listener, result) {
            // Whatever was published before could not be heard: look once more.
            (Listener::Name(key), Ok(())) if seeded!(AttemptOnceSubscribed) => self.queues.touch(key),
            (Listener::Name(key), Ok(())) => self.queues.wake(key),
            (Listener::Name(key), Err(failure)) if failure.kind.is_transient() => {
                self.cx.timers.set(TimerKey::Resubscribe(key), self.cx.now.plus(Duration::from_millis(200)));
            }
            (Listener::Name(key), Err(failure)) => {
                self.fail_waiters(key, |engine, since| engine.cx.error_of(&failure, since));
                self.forget_channel(key);
            }
            (Listener::Probe(request), result) => {
                self.queries.subscribed(&mut self.cx, &mut self.subscriptions, request, result);
            }
            (Listener::Client, Ok(())) => {
                // A hint may have been missed.
                self.watchdog.verify_all(&self.cx, &mut self.holds);
                self.check_ready();
            }
            (Listener::Client, Err(failure)) => {
                if !failure.kind.is_transient() {
                    for request in std::mem::take(&mut self.ready) {
                        let error = self.cx.error_of(&failure, self.cx.now);
                        self.cx.fail(request, error);
                    }
                }
                self.cx.timers.set(TimerKey::ClientChannel, self.cx.now.plus(Duration::from_secs(1)));
            }
        }
    }

    pub(super) fn on_resubscribe(&mut self, key: u64) {
        let Some(channel) = self.queues.names.get(&key).and_then(|name| name.known_channel()) else { return };
        if !self.subscriptions.is_confirmed(&channel) {
            self.subscriptions.again(&mut self.cx, &channel);
        }
    }

    pub(super) fn on_message(&mut self, channel: &Arc<str>, payload: &str) {
        for listener in self.subscriptions.listeners(channel) {
            match listener {
                Listener::Name(key) => self.on_wake_up(key),
                Listener::Client => self.on_force_hint(payload),
                Listener::Probe(request) => {
                    self.queries.heard(&mut self.cx, &mut self.subscriptions, request);
                }
            }
        }
    }

    fn on_wake_up(&mut self, key: u64) {
        let Some(turn) = self.queues.names.get(&key).map(|name| self.turn(&name.lock)) else { return };
        let trying = seeded!(WakeUpDuringAttempt) && self.attempt_in_flight(key);
        let Some(name) = self.queues.names.get_mut(&key) else { return };
        name.note_freed(self.cx.now, turn);
        if name.has_waiters() && !trying {
            add(&self.cx.counters.wake_ups, 1);
            // A message beats a duty that nobody has acted on: it says why the lock may be free.
            name.contest_mut().must_try = Some(Cause::WakeUp);
            self.shorten_turn_for_new(key);
            self.queues.touch(key);
        }
    }

    /// Somebody says that a hold of ours was taken away: ask the server.
    fn on_force_hint(&mut self, lock: &str) {
        for id in self.holds.ids(|hold| hold.lock.as_str() == lock) {
            if let Some(hold) = self.holds.get_mut(&id).filter(|_| !seeded!(HintIsChecked)) {
                hold.force_hint = true;
                self.watchdog.verify(&self.cx, &mut self.holds, id);
            }
        }
    }

    /// A name without waiters: its subscription stays a little, then all of it goes.
    pub(super) fn settle(&mut self, key: u64) {
        let Some(name) = self.queues.names.get(&key) else { return };
        let (channel, idle) = (name.known_channel(), name.is_idle());
        let until = name.contest().matters_until();
        self.cx.timers.clear(TimerKey::Try(key));
        self.cx.timers.clear(TimerKey::SelfWait(key));
        if channel.is_some_and(|channel| self.subscriptions.listens(&channel, Listener::Name(key))) {
            if !self.cx.timers.is_set(TimerKey::Linger(key)) {
                self.cx.timers.set(TimerKey::Linger(key), self.cx.now.plus(LINGER));
            }
        } else if idle && until > self.cx.now {
            self.cx.timers.set(TimerKey::Linger(key), until);
        } else if idle {
            self.queues.names.remove(&key);
        } else if !self.attempt_in_flight(key) {
            if let Some(name) = self.queues.names.get_mut(&key) {
                name.calm_down(self.cx.now);
            }
        }
    }

    pub(super) fn on_linger_over(&mut self, key: u64) {
        if self.queues.names.get(&key).is_some_and(|name| !name.has_waiters()) {
            self.forget_channel(key);
            self.queues.touch(key);
        }
    }

    pub(super) fn forget_channel(&mut self, key: u64) {
        let Some(channel) = self.queues.names.get(&key).map(|name| name.known_channel()) else { return };
        self.cx.timers.clear(TimerKey::Linger(key));
        self.cx.timers.clear(TimerKey::Resubscribe(key));
        if let Some(channel) = channel {
            self.subscriptions.forget(&mut self.cx, &channel, Listener::Name(key));
        }
        self.queues.touch(key);
    }

    /// The contender of a name has to hear wake-ups.
    pub(super) fn want_lock_channel(&mut self, key: u64) {
        let Some(name) = self.queues.names.get_mut(&key) else { return };
        // Remembered there for as long as it is listened to.
        name.contest_mut();
        let channel = name.channel(self.cx.config.profile);
        self.cx.timers.clear(TimerKey::Linger(key));
        self.subscriptions.want(&mut self.cx, &channel, Listener::Name(key));
    }
}
