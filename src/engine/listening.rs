//! Messages and subscriptions, and what they wake.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::Failure;
use crate::base::clock::Moment;
use crate::base::stats::add;
use crate::engine::Engine;
use crate::engine::hold::HoldState;
use crate::engine::name_record::Cause;
use crate::engine::subscriptions::LINGER;
use crate::engine::subscriptions::Listener;
use crate::engine::timers::TimerKey;

/// Who had the lock within this time lets those go first who have waited for longer. It covers a row
/// of hand-offs of another client, which lasts at most 50 ms and a hold.
const SERVED: Duration = Duration::from_millis(100);

/// For whom a message says that the lock was reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReservedFor {
    /// A waiter of this client: its record.
    Waiter(u64),
    /// Another client, or a dead id of this one.
    Other,
    /// A hold of this client that is over: the message is late.
    Nobody,
}

impl Engine {
    pub(super) fn on_pubsub_up(&mut self) {
        self.subscriptions.connected(&mut self.cx);
    }

    /// A subscription has ended, and a wake-up may be missed. It is repeated, and its confirmation
    /// wakes the waiters.
    pub(super) fn on_subscription_lost(&mut self, channel: &Arc<str>) {
        self.subscriptions.again(&mut self.cx, channel);
    }

    pub(super) fn on_subscribed(
        &mut self,
        channel: &Arc<str>,
        generation: u64,
        result: Result<(), Failure>,
    ) {
        for listener in self.subscriptions.answered(channel, generation, result.is_ok()) {
            self.on_listener_answered(listener, result.clone());
        }
    }

    fn on_listener_answered(&mut self, listener: Listener, result: Result<(), Failure>) {
        match (listener, result) {
            // Messages from before the confirmation were not received, so the contender tries once
            // more.
            (Listener::Name(listener), Ok(())) => {
                for name_id in self.queues.listening(listener) {
                    if seeded!(AttemptOnceSubscribed) {
                        self.queues.touch(name_id)
                    } else {
                        self.queues.wake(name_id)
                    }
                }
            }
            (Listener::Name(name_id), Err(failure)) if failure.kind.is_transient() => {
                self.cx.timers.set(
                    TimerKey::Resubscribe(name_id),
                    self.cx.now.plus(Duration::from_millis(200)),
                );
            }
            (Listener::Name(listener), Err(failure)) => {
                for name_id in self.queues.listening(listener) {
                    self.fail_waiters(name_id, |engine, since| engine.cx.error_of(&failure, since));
                }
                self.forget_channel(listener);
            }
            (Listener::Watch(id), result) => self.watching.subscribed(&mut self.cx, id, result),
            (Listener::Probe(request), result) => {
                self.queries.subscribed(&mut self.cx, &mut self.subscriptions, request, result);
            }
            (Listener::Client, Ok(())) => {
                // A message about a hold that was taken away may have been missed.
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
                self.cx
                    .timers
                    .set(TimerKey::ClientChannel, self.cx.now.plus(Duration::from_secs(1)));
            }
        }
    }

    pub(super) fn on_resubscribe(&mut self, name_id: u64) {
        let Some(channel) = self.queues.names.get(&name_id).and_then(|name| name.known_channel())
        else {
            return;
        };
        if !self.subscriptions.is_confirmed(&channel) {
            self.subscriptions.again(&mut self.cx, &channel);
        }
    }

    pub(super) fn on_message(&mut self, channel: &Arc<str>, payload: &str) {
        for listener in self.subscriptions.listeners(channel) {
            match listener {
                Listener::Name(name_id) => self.on_lock_message(name_id, payload),
                Listener::Watch(id) => self.watching.heard(&mut self.cx, id),
                Listener::Client => self.on_force_hint(payload),
                Listener::Probe(request) => {
                    self.queries.heard(&mut self.cx, &mut self.subscriptions, request);
                }
            }
        }
    }

    /// A message on the channel of a name. With a line its words are the fields for which the lock
    /// was just reserved, or `0` or `1`: try. Without a line each message says that the lock may be
    /// free.
    fn on_lock_message(&mut self, listener: u64, payload: &str) {
        let Some(name) = self.queues.names.get(&listener) else { return };
        if !self.cx.has_line(&name.lock) {
            for name_id in self.queues.listening(listener) {
                self.pause_if_served(name_id);
                self.on_wake_up(name_id);
            }
            return;
        }
        let mut reserved: SmallVec<[ReservedFor; 4]> = SmallVec::new();
        for word in payload.split(' ') {
            match word {
                "0" | "1" => {
                    self.queues.listening(listener).into_iter().for_each(|id| self.on_wake_up(id))
                }
                field if field.contains(':') => reserved.push(self.on_reserved(listener, field)),
                // For messages that later versions may send.
                _ => {}
            }
        }
        self.move_up(listener, &reserved);
    }

    /// Those who wait have moved up by what was reserved for others.
    fn move_up(&mut self, listener: u64, reserved: &[ReservedFor]) {
        for name_id in self.queues.listening(listener) {
            let is_of_other = |by: &&ReservedFor| match by {
                ReservedFor::Waiter(other) => *other != name_id,
                ReservedFor::Other => true,
                ReservedFor::Nobody => false,
            };
            let others = reserved.iter().filter(is_of_other).count() as u64;
            if others > 0 {
                self.on_reserved_for_others(name_id, others);
            }
        }
    }

    /// Without a line, a client that had the lock a moment ago pauses once more. Otherwise two clients
    /// of this crate would pass it to each other past the slower ones of Redisson.
    fn pause_if_served(&mut self, name_id: u64) {
        let Some(name) = self.queues.names.get(&name_id) else { return };
        let (now, pause) = (self.cx.now, self.pause_length(&name.lock));
        let soon = name.had_for(now) < SERVED;
        let Some(contest) = self.queues.known_contest(name_id) else { return };
        // During its pause it hears the message of its own release, which is not that of another.
        if contest.pause <= now && std::mem::take(&mut contest.owes_pause) && soon {
            contest.pause = now.plus(pause);
        }
    }

    /// A message grants nothing: it is a reason to try. One that comes during an attempt may be
    /// newer than its answer, so the contender tries once more.
    fn on_wake_up(&mut self, name_id: u64) {
        let trying = seeded!(WakeUpDuringAttempt) && self.attempt_in_flight(name_id);
        let Some(name) = self.queues.names.get_mut(&name_id) else { return };
        if name.has_waiters() && !trying {
            add(&self.cx.counters.wake_ups, 1);
            // A wake-up replaces another cause for an attempt that was not made yet, because it
            // says why the lock may be free.
            name.contest_mut().must_try = Some(Cause::WakeUp);
            self.queues.touch(name_id);
        }
    }

    /// The lock was reserved for this field.
    fn on_reserved(&mut self, listener: u64, field: &str) -> ReservedFor {
        let name = self.queues.names.get(&listener);
        let Some((id, _)) = name.and_then(|name| self.hold_of_field(&name.lock, field)) else {
            return ReservedFor::Other;
        };
        let Some((name_id, state)) = self.holds.get(&id).map(|hold| (hold.name_id, hold.state))
        else {
            let is_dead = self.dead_ids.get(id).is_some();
            return if is_dead { ReservedFor::Other } else { ReservedFor::Nobody };
        };
        match state {
            HoldState::Acquiring if seeded!(OwnReservationWakes) => {}
            HoldState::Acquiring => {
                if let Some(contest) = self.queues.known_contest(name_id) {
                    // The server that says so is well.
                    contest.not_before = Moment::ZERO;
                    contest.standing.reserved();
                }
                self.on_wake_up(name_id);
            }
            // The server does not know this hold any more.
            state if state.is_live() => self.watchdog.verify(&self.cx, &mut self.holds, id),
            _ => return ReservedFor::Nobody,
        }
        ReservedFor::Waiter(name_id)
    }

    /// The lock was reserved for so many others. A waiter whose next attempt stays at its time is left
    /// alone.
    fn on_reserved_for_others(&mut self, name_id: u64, others: u64) {
        let now = self.cx.now;
        let Some(contest) = self.queues.known_contest(name_id) else { return };
        if !seeded!(ReservationIsTimed) && contest.standing.announced(now, others) {
            self.queues.touch(name_id);
        }
    }

    /// A message says that a hold of this client was taken away. The server is asked whether this
    /// is true.
    fn on_force_hint(&mut self, lock: &str) {
        for id in self.holds.ids(|hold| hold.lock.as_str() == lock) {
            if let Some(hold) = self.holds.get_mut(&id).filter(|_| !seeded!(HintIsChecked)) {
                hold.force_hints = hold.force_hints.saturating_add(1);
                self.watchdog.verify(&self.cx, &mut self.holds, id);
            }
        }
    }

    /// For a name without waiters: keeps its subscription for a short time, and then removes its
    /// record.
    pub(super) fn settle(&mut self, name_id: u64) {
        self.queues.stop_listening_for(name_id);
        if !self.attempt_in_flight(name_id) {
            self.leave_line(name_id);
        }
        let Some(name) = self.queues.names.get(&name_id) else { return };
        if !name.contest().listens_for.is_empty() {
            return;
        }
        let (channel, idle) = (name.known_channel(), name.is_idle());
        let until = name.contest().pause;
        self.cx.timers.clear(TimerKey::Try(name_id));
        self.cx.timers.clear(TimerKey::SelfWait(name_id));
        if channel
            .is_some_and(|channel| self.subscriptions.listens(&channel, Listener::Name(name_id)))
        {
            if !self.cx.timers.is_set(TimerKey::Linger(name_id)) {
                self.cx.timers.set(TimerKey::Linger(name_id), self.cx.now.plus(LINGER));
            }
        } else if idle && until > self.cx.now {
            self.cx.timers.set(TimerKey::Linger(name_id), until);
        } else if idle {
            self.queues.names.remove(&name_id);
        } else if !self.attempt_in_flight(name_id) {
            if let Some(name) = self.queues.names.get_mut(&name_id) {
                name.calm_down(self.cx.now);
            }
        }
    }

    pub(super) fn on_linger_over(&mut self, name_id: u64) {
        if self.queues.names.get(&name_id).is_some_and(|name| name.len() == 0) {
            self.forget_channel(name_id);
            self.queues.touch(name_id);
        }
    }

    pub(super) fn forget_channel(&mut self, name_id: u64) {
        let Some(channel) = self.queues.names.get(&name_id).map(|name| name.known_channel()) else {
            return;
        };
        self.cx.timers.clear(TimerKey::Linger(name_id));
        self.cx.timers.clear(TimerKey::Resubscribe(name_id));
        if let Some(channel) = channel {
            self.subscriptions.forget(&mut self.cx, &channel, Listener::Name(name_id));
        }
        self.queues.touch(name_id);
    }

    /// Subscribes to the channel of a name that has a contender.
    pub(super) fn want_lock_channel(&mut self, name_id: u64) {
        let (listener, is_new) = self.queues.listen_for(&mut self.cx, name_id);
        if is_new && self.hears(name_id) && !seeded!(RefusedLateTriesAgain) {
            // The confirmation came during its attempt, which has taken no place in the line.
            self.queues.wake(name_id);
        }
        let name_id = listener;
        let Some(name) = self.queues.names.get_mut(&name_id) else { return };
        // The channel is remembered in the record of the contest for as long as it is subscribed.
        name.contest_mut();
        let channel = name.channel(&self.cx.config);
        self.cx.timers.clear(TimerKey::Linger(name_id));
        self.subscriptions.want(&mut self.cx, &channel, Listener::Name(name_id));
    }
}
