//! The connections: up and down, subscriptions, the server's clock, and dead hold ids.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::Outcome;
use crate::backend::ServerInfo;
use crate::clock::Moment;
use crate::engine::Engine;
use crate::engine::Op;
use crate::engine::event::Answer;
use crate::engine::event::Effect;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::hold::Todo;
use crate::engine::queue::Cause;
use crate::engine::queue::Place;
use crate::engine::queue::Trouble;
use crate::engine::queue::Waiter;
use crate::engine::timers::TimerKey;
use crate::engine::wakeups::LINGER;
use crate::engine::wakeups::Listener;
use crate::engine::wakeups::Subscribe;
use crate::error::Error;
use crate::name::client_channel;
use crate::scripts::reentrant::Command;
use crate::scripts::reentrant::Reply;
use crate::scripts::reentrant::ServerTime;
use crate::stats::add;

/// How the connection to the server stands.
#[derive(Debug, Default)]
pub(crate) struct Link {
    up: bool,
    server: Option<ServerInfo>,
    /// Counts the servers, and their restarts, that we have talked to.
    life: u64,
    round_trip: Duration,
    outage_since: Option<Moment>,
    trouble: Option<String>,
    asking_clock: bool,
}

impl Link {
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    pub(crate) fn server_life(&self) -> u64 {
        self.life
    }

    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    pub(crate) fn outage_since(&self) -> Option<Moment> {
        self.outage_since
    }

    /// What went wrong last, in words.
    pub(crate) fn last_trouble(&self) -> String {
        match &self.trouble {
            Some(trouble) => trouble.clone(),
            None if self.up => "connected, but the answer did not come in time".to_owned(),
            None => "not connected".to_owned(),
        }
    }

    pub(crate) fn answered(&mut self, round_trip: Duration) {
        self.outage_since = None;
        self.trouble = None;
        self.round_trip =
            if self.round_trip.is_zero() { round_trip } else { (7 * self.round_trip + round_trip) / 8 };
    }
}

impl Engine {
    // ---- up and down

    pub(super) fn on_up(&mut self, info: ServerInfo) {
        let same = self.link.server.as_ref().is_some_and(|known| known.run_id == info.run_id);
        if !same {
            self.link.life += 1;
        }
        self.report(Report::LinkUp { address: info.address.clone(), version: info.version.clone() });
        self.link.server = Some(info);
        self.link.up = true;
        self.clock.reset();
        self.link.asking_clock = false;
        self.ask_clock();
        for id in self.cleanup.ids() {
            self.send_cleanup(id);
        }
        self.resume_releases();
        self.verify_all();
        self.resume_all();
        self.resume_queries();
        self.check_ready();
    }

    /// Holds go on sending, and every contender has to try: nobody knows what happened meanwhile.
    fn resume_all(&mut self) {
        let holds: Vec<u64> = self.holds.keys().copied().collect();
        for id in holds {
            self.advance(id);
        }
        let keys: Vec<u64> = self.names.keys().copied().collect();
        for key in keys {
            if let Some(name) = self.names.get_mut(&key) {
                name.not_before = Moment::ZERO;
                name.failures = 0;
            }
            self.wake(key);
        }
    }

    pub(super) fn on_down(&mut self, cause: &str) {
        self.link.up = false;
        self.clock.reset();
        self.link.asking_clock = false;
        self.report(Report::LinkDown { cause: cause.to_owned() });
        self.begin_outage(cause);
        for name in self.names.values_mut() {
            name.known_held = false;
        }
        let holds: Vec<u64> = self.holds.keys().copied().collect();
        for id in holds {
            self.doubt(id);
        }
        self.fail_verifications(cause);
    }

    pub(super) fn on_connect_failed(&mut self, failure: Failure) {
        // With commands answered it is the pub/sub connection: wake-ups are late, nothing else.
        if !self.link.up {
            self.begin_outage(&failure.message);
        }
        if failure.kind.is_transient() {
            return;
        }
        // Trying again will not mend it: whoever waits hears of it now.
        for request in std::mem::take(&mut self.ready) {
            let error = self.error_of(&failure, self.now);
            self.fail(request, error);
        }
        self.fail_queries(&failure);
        let keys: Vec<u64> = self.names.keys().copied().collect();
        for key in keys {
            self.fail_waiters(key, |engine, since| engine.error_of(&failure, since));
        }
    }

    // ---- outages

    pub(super) fn begin_outage(&mut self, cause: &str) {
        self.link.trouble = Some(cause.to_owned());
        if self.link.outage_since.is_none() {
            self.link.outage_since = Some(self.now);
            self.set_outage_timer();
            self.timers.set(TimerKey::Clock, self.now.plus(self.trouble_pause()));
        }
    }

    /// How soon after trouble the server is asked whether it is well: often within the time that waiters bear it.
    fn trouble_pause(&self) -> Duration {
        (self.config.outage_limit / 4).min(Duration::from_secs(1))
    }

    pub(super) fn begin_outage_if_down(&mut self) {
        if !self.link.up {
            let cause = self.link.last_trouble();
            self.fail_verifications(&cause);
        }
    }

    pub(super) fn set_outage_timer(&mut self) {
        // Whose limit is later is found out when it is due.
        if !self.timers.is_set(TimerKey::Outage) {
            self.timers.set(TimerKey::Outage, self.now.plus(self.config.outage_limit));
        }
    }

    /// Since when nothing good was heard of what this waiter wants: from the server, or about its name alone.
    pub(super) fn trouble_since(&self, waiter: &Waiter) -> Option<Moment> {
        let own = self.trouble_of(waiter).map(|trouble| trouble.since);
        [self.link.outage_since, own].into_iter().flatten().min()
    }

    fn trouble_of(&self, waiter: &Waiter) -> Option<&Trouble> {
        match waiter.place {
            Place::Queued => self.names.get(&waiter.name)?.trouble.as_ref(),
            Place::Reentering(hold) => self.holds.get(&hold)?.trouble.as_ref(),
            Place::Granted(_) => None,
        }
    }

    /// The error of a wait that is over, in the words of what it met last.
    pub(super) fn wait_failed(&self, waiter: &Waiter) -> Error {
        let own = self.trouble_of(waiter).map(|trouble| trouble.words.clone());
        let cause = own.unwrap_or_else(|| self.link.last_trouble());
        Error::Unavailable { waited: self.now.since(waiter.since), cause }
    }

    /// Ends the waits without a limit of their own that went on for `outage_limit` without a good answer.
    pub(super) fn on_outage_timer(&mut self) {
        let limit = self.config.outage_limit;
        let open = self.waiters.iter().filter(|(_, waiter)| waiter.deadline.is_none());
        let (over, next) =
            open.fold((Vec::<RequestId>::new(), None::<Moment>), |(mut over, next), (request, waiter)| {
                let Some(trouble) = self.trouble_since(waiter) else { return (over, next) };
                let at = trouble.max(waiter.since).plus(limit);
                if at <= self.now {
                    over.push(*request);
                    (over, next)
                } else {
                    (over, Some(next.map_or(at, |known| known.min(at))))
                }
            });
        for request in over {
            let error = self.wait_failed(&self.waiters[&request]);
            self.end_wait(request, Answer::Failed(error));
        }
        self.end_unlocks();
        if let Some(at) = next {
            self.timers.set(TimerKey::Outage, at);
        }
    }

    /// Nobody waits for a release any longer than for a lock; it goes on without them.
    fn end_unlocks(&mut self) {
        let limit = self.config.outage_limit;
        if self.link.outage_since.is_none_or(|since| self.now.since(since) < limit) {
            return;
        }
        let holds: Vec<u64> = self.holds.keys().copied().collect();
        for id in holds {
            let Some(hold) = self.holds.get_mut(&id) else { continue };
            let mut asked = std::mem::take(&mut hold.release.requests);
            hold.release.background |= !asked.is_empty();
            for todo in &mut hold.todo {
                if let Todo::LowerCount(request) = todo {
                    asked.extend(request.take());
                }
            }
            for request in asked {
                let error = self.unavailable(self.now.minus(limit));
                self.fail(request, error);
            }
        }
    }

    // ---- the server's clock

    pub(super) fn ask_clock(&mut self) {
        if self.link.up && !self.clock.is_known() && !self.link.asking_clock {
            self.link.asking_clock = true;
            self.send(Op::Clock, Command::Time, self.attempt_deadline(), ServerTime(0));
        }
    }

    /// The clock is not known yet; or there was trouble, and nothing else may be sent that would show its end.
    pub(super) fn on_clock_timer(&mut self) {
        self.ask_clock();
        if !self.link.up || self.link.outage_since.is_none() || self.link.asking_clock {
            return;
        }
        if self.ops.is_empty() {
            self.link.asking_clock = true;
            self.send(Op::Clock, Command::Time, self.attempt_deadline(), ServerTime(0));
        } else {
            self.timers.set(TimerKey::Clock, self.now.plus(self.trouble_pause()));
        }
    }

    pub(super) fn on_clock_reply(&mut self, outcome: &Outcome<Reply>) {
        self.link.asking_clock = false;
        if let Outcome::NotExecuted(failure) | Outcome::Unknown(failure) = outcome {
            if !failure.kind.is_transient() {
                return self.on_connect_failed(failure.clone());
            }
            let pause = if self.clock.is_known() { self.trouble_pause() } else { Duration::from_millis(50) };
            self.timers.set(TimerKey::Clock, self.now.plus(pause));
        }
    }

    pub(super) fn note_server_time(&mut self, sent: Moment, time: ServerTime) {
        let was_known = self.clock.is_known();
        if self.clock.observe(sent, self.now, time) {
            self.report(Report::ClockJump);
            let holds: Vec<u64> = self.holds.keys().copied().collect();
            for id in holds {
                self.doubt(id);
            }
            self.verify_all();
        }
        if !was_known {
            self.on_clock_known();
        }
    }

    /// What needed the server's clock goes on.
    fn on_clock_known(&mut self) {
        let holds: Vec<u64> = self.holds.keys().copied().collect();
        for id in holds {
            self.advance(id);
        }
        let keys: Vec<u64> = self.names.keys().copied().collect();
        for key in keys {
            self.touch(key);
        }
        self.resume_queries();
        self.check_ready();
    }

    // ---- subscriptions

    fn subscribe(&mut self, subscribe: Option<Subscribe>) {
        let Some(Subscribe { channel, generation, is_client }) = subscribe else { return };
        let sharded = self.config.sharded && !is_client;
        self.effects.push(Effect::Subscribe { channel, sharded, generation });
    }

    pub(super) fn want_client_channel(&mut self) {
        let channel: Arc<str> = client_channel(&self.config.client_id).into();
        let wanted = self.wakeups.want(&channel, Listener::Client);
        self.subscribe(wanted);
    }

    /// The contender of a name has to hear wake-ups.
    pub(super) fn want_lock_channel(&mut self, key: u64) {
        let Some(name) = self.names.get(&key) else { return };
        let channel = name.channel.clone();
        self.timers.clear(TimerKey::Linger(key));
        let wanted = self.wakeups.want(&channel, Listener::Name(key));
        self.subscribe(wanted);
    }

    pub(super) fn on_pubsub_up(&mut self) {
        for wanted in self.wakeups.connected() {
            self.subscribe(Some(wanted));
        }
    }

    pub(super) fn on_subscribed(&mut self, channel: &Arc<str>, generation: u64, result: Result<(), Failure>) {
        for listener in self.wakeups.answered(channel, generation, result.is_ok()) {
            self.on_listener_answered(listener, result.clone());
        }
    }

    fn on_listener_answered(&mut self, listener: Listener, result: Result<(), Failure>) {
        match (listener, result) {
            // Whatever was published before could not be heard: look once more.
            (Listener::Name(key), Ok(())) => self.wake(key),
            (Listener::Name(key), Err(failure)) if failure.kind.is_transient() => {
                self.timers.set(TimerKey::Resubscribe(key), self.now.plus(Duration::from_millis(200)));
            }
            (Listener::Name(key), Err(failure)) => {
                self.fail_waiters(key, |engine, since| engine.error_of(&failure, since));
                self.forget_channel(key);
            }
            (Listener::Client, Ok(())) => {
                // A hint may have been missed.
                self.verify_all();
                self.check_ready();
            }
            (Listener::Client, Err(failure)) => {
                if !failure.kind.is_transient() {
                    for request in std::mem::take(&mut self.ready) {
                        let error = self.error_of(&failure, self.now);
                        self.fail(request, error);
                    }
                }
                self.timers.set(TimerKey::ClientChannel, self.now.plus(Duration::from_secs(1)));
            }
        }
    }

    pub(super) fn on_resubscribe(&mut self, key: u64) {
        let Some(channel) = self.names.get(&key).map(|name| name.channel.clone()) else { return };
        if !self.wakeups.is_confirmed(&channel) {
            let wanted = self.wakeups.again(&channel);
            self.subscribe(wanted);
        }
    }

    pub(super) fn on_client_channel_timer(&mut self) {
        let channel: Arc<str> = client_channel(&self.config.client_id).into();
        if !self.wakeups.is_confirmed(&channel) {
            let wanted = self.wakeups.again(&channel);
            self.subscribe(wanted);
        }
    }

    pub(super) fn client_channel_is_confirmed(&self) -> bool {
        let channel: Arc<str> = client_channel(&self.config.client_id).into();
        self.wakeups.is_confirmed(&channel)
    }

    pub(super) fn on_message(&mut self, channel: &Arc<str>, payload: &str) {
        for listener in self.wakeups.listeners(channel) {
            match listener {
                Listener::Name(key) => self.on_wake_up(key),
                Listener::Client => self.on_force_hint(payload),
            }
        }
    }

    fn on_wake_up(&mut self, key: u64) {
        let Some(name) = self.names.get_mut(&key) else { return };
        if name.has_waiters() {
            add(&self.counters.wake_ups, 1);
            // A message beats a duty that nobody has acted on: it says why the lock may be free.
            name.must_try = Some(Cause::WakeUp);
            self.touch(key);
        }
    }

    /// Somebody says that a hold of ours was taken away: ask the server.
    fn on_force_hint(&mut self, lock: &str) {
        let hinted: Vec<u64> =
            self.holds.values().filter(|hold| hold.lock.as_str() == lock).map(|hold| hold.id).collect();
        for id in hinted {
            if let Some(hold) = self.holds.get_mut(&id) {
                hold.force_hint = true;
            }
            self.verify_now(id);
        }
    }

    /// Messages may be missing: every contender looks, and every hold is asked about.
    pub(super) fn on_lagged(&mut self) {
        let keys: Vec<u64> = self.names.keys().copied().collect();
        for key in keys {
            self.wake(key);
        }
        self.verify_all();
    }

    /// A name without waiters: its subscription stays a little, then all of it goes.
    pub(super) fn settle(&mut self, key: u64) {
        let Some(name) = self.names.get(&key) else { return };
        let (channel, idle) = (name.channel.clone(), name.is_idle());
        self.timers.clear(TimerKey::Try(key));
        self.timers.clear(TimerKey::SelfWait(key));
        if self.wakeups.listens(&channel, Listener::Name(key)) {
            if !self.timers.is_set(TimerKey::Linger(key)) {
                self.timers.set(TimerKey::Linger(key), self.now.plus(LINGER));
            }
        } else if idle {
            if let Some(name) = self.names.remove(&key) {
                self.keys.remove(&name.lock);
            }
        }
    }

    pub(super) fn on_linger_over(&mut self, key: u64) {
        if self.names.get(&key).is_some_and(|name| !name.has_waiters()) {
            self.forget_channel(key);
            self.touch(key);
        }
    }

    pub(super) fn forget_channel(&mut self, key: u64) {
        let Some(channel) = self.names.get(&key).map(|name| name.channel.clone()) else { return };
        self.timers.clear(TimerKey::Linger(key));
        self.timers.clear(TimerKey::Resubscribe(key));
        if self.wakeups.forget(&channel, Listener::Name(key)) {
            self.effects.push(Effect::Unsubscribe { channel, sharded: self.config.sharded });
        }
        self.touch(key);
    }

    // ---- dead hold ids

    pub(super) fn send_cleanup(&mut self, id: u64) {
        let Some(dead) = self.cleanup.get(id) else { return };
        if dead.op.is_some() || !self.link.up {
            return;
        }
        let (name, announce) = (dead.lock.clone(), self.announce(&dead.lock));
        let command = Command::Release { name, field: self.field(id), count: 0, announce };
        let op = self.send(Op::Cleanup { id }, command, self.attempt_deadline(), ServerTime(0));
        if let Some(dead) = self.cleanup.get_mut(id) {
            dead.op = Some(op);
            let name = dead.name;
            self.touch(name);
        }
    }

    pub(super) fn on_cleanup_reply(&mut self, id: u64, outcome: Outcome<Reply>) {
        let Some(dead) = self.cleanup.get_mut(id) else { return };
        dead.op = None;
        self.touched.insert(dead.name);
        match outcome {
            Outcome::Done(reply) => {
                dead.answered = true;
                dead.failures = 0;
                let past = reply.time.is_some_and(|time| time > dead.not_after);
                if past {
                    return self.end_cleanup(id);
                }
                // Still possible: ask again when it no longer is.
                let left = reply.time.map_or(0, |time| dead.not_after.0 - time.0);
                let pause =
                    Duration::from_micros(u64::try_from(left).unwrap_or(0)) + Duration::from_millis(1);
                self.timers.set(TimerKey::Cleanup(id), self.now.plus(pause.min(Duration::from_secs(5))));
            }
            Outcome::NotExecuted(_) | Outcome::Unknown(_) => {
                let pause = Self::back_off(dead.failures);
                dead.failures += 1;
                self.timers.set(TimerKey::Cleanup(id), self.now.plus(pause));
            }
        }
    }

    fn end_cleanup(&mut self, id: u64) {
        self.timers.clear(TimerKey::Cleanup(id));
        let Some(dead) = self.cleanup.remove(id) else { return };
        if let Some(name) = self.names.get_mut(&dead.name) {
            name.dead.retain(|other| *other != id);
        }
        self.touch(dead.name);
    }
}
