//! The connections: up and down, subscriptions, the server's clock, and dead hold ids.

use crate::engine::context::back_off;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::Routes;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::name::LockName;
use crate::base::name::client_channel;
use crate::base::stats::add;
use crate::engine::Engine;
use crate::engine::context::Op;
use crate::engine::event::Answer;
use crate::engine::event::Effect;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::queue::Cause;
use crate::engine::queue::Trouble;
use crate::engine::queue::Waiter;
use crate::engine::queue::WaiterPlace;
use crate::engine::requests::Query;
use crate::engine::servers::Server;
use crate::engine::timers::TimerKey;
use crate::engine::wakeups::LINGER;
use crate::engine::wakeups::Listener;
use crate::engine::wakeups::Subscribe;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::reply::Reply;

/// So many causes of failed attempts to connect are told between two connections.
const MAX_CAUSES: usize = 8;

impl Engine {
    // ---- up and down

    pub(super) fn on_up(&mut self, server: ServerId, info: ServerInfo) {
        let client = self.cx.config.client_id.clone();
        let ServerInfo { address, version, .. } = info.clone();
        let before = self.servers.get(server).filter(|server| server.was_up());
        let away = before.map(|server| self.cx.now.since(server.since));
        if away.is_some() {
            add(&self.cx.counters.reconnects, 1);
        }
        self.cx.report(Report::LinkUp { client, address, version, away });
        self.servers.connected(server, info);
        self.servers.get_mut(server).since = self.cx.now;
        self.show_links();
        self.ask_clock(server);
        self.resume(&|engine, lock| engine.servers.id_of(lock) == server);
        self.check_ready();
    }

    pub(super) fn on_down(&mut self, server: ServerId, cause: &str) {
        let known = self.servers.get_mut(server);
        known.disconnected();
        let since = std::mem::replace(&mut known.since, self.cx.now);
        let held = self.holds_at(server);
        let live = held.iter().filter(|id| self.holds[id].state.is_live()).count();
        self.cx.report(Report::LinkDown {
            client: self.cx.config.client_id.clone(),
            address: self.address_of(server),
            cause: cause.to_owned(),
            holds: live,
            lasted: self.cx.now.since(since),
        });
        self.begin_outage(server, self.cx.now, cause);
        self.show_links();
        self.fail_pings(server);
        for key in self.names_at(server) {
            if let Some(contest) = self.known_contest(key) {
                contest.known_held = false;
            }
        }
        for id in held {
            self.doubt(id);
        }
        self.servers.forget_unused();
    }

    /// Slots have moved. What is held there may be gone, and who waits there may have missed something.
    pub(super) fn on_routes(&mut self, routes: Routes) {
        let before = self.servers.reroute(routes.clone());
        let moved = |lock: &LockName| before.server_of(lock.slot()) != routes.server_of(lock.slot());
        for id in self.holds.ids(|hold| moved(&hold.lock)) {
            self.doubt(id);
        }
        self.servers.forget_unused();
        self.show_links();
        self.note_unserved();
        self.resume(&|_, lock| moved(lock));
        self.check_ready();
    }

    /// Slots without a server: to their names it is as if one were down.
    fn note_unserved(&mut self) {
        if self.servers.has_unserved_slots() {
            self.begin_outage(ServerId::ONLY, self.cx.now, "no node of the cluster serves the slot");
        }
    }

    /// Everything that concerns these locks goes on: nobody knows what happened meanwhile.
    fn resume(&mut self, here: &dyn Fn(&Self, &LockName) -> bool) {
        let dead: Vec<u64> =
            self.cleanup.iter().filter(|(_, dead)| here(self, &dead.lock)).map(|(id, _)| id).collect();
        for id in dead {
            self.send_cleanup(id);
        }
        let holds = self.holds.ids(|hold| here(self, &hold.lock));
        for &id in &holds {
            self.resume_release(id);
        }
        for &id in &holds {
            self.verify_now(id);
        }
        for &id in &holds {
            self.advance(id);
        }
        for key in self.names.ids(|name| here(self, &name.lock)) {
            let Some(name) = self.names.get_mut(&key) else { continue };
            name.forget_turns();
            if let Some(contest) = name.known_contest() {
                contest.not_before = Moment::ZERO;
                contest.failures = 0;
            }
            if seeded!(ReconnectWakes) { self.touch(key) } else { self.wake(key) }
        }
        self.resume_queries();
    }

    pub(super) fn on_connect_failed(&mut self, server: ServerId, failure: Failure) {
        // With commands answered it is the pub/sub connection: that concerns only those who have to hear something.
        if !self.is_up(server) {
            self.begin_outage(server, self.cx.now, &failure.message);
            let refuses = !failure.kind.is_transient();
            let known = self.servers.get_mut(server);
            known.refuses = refuses;
            known.nobody_listens = failure.kind == FailureKind::NoListener;
            self.report_failure(server, &failure.message);
            self.show_links();
            if !refuses {
                self.fail_pings(server);
            }
            if failure.kind == FailureKind::NoListener {
                self.end_try_locks(server);
            }
        }
        if failure.kind.is_transient() {
            return self.check_ready();
        }
        if self.is_up(server) {
            self.refuse_listeners(server, &failure)
        } else {
            self.refuse_all(server, &failure)
        }
    }

    /// Trying again will not mend it: whoever wants anything of this server hears of it now.
    fn refuse_all(&mut self, server: ServerId, failure: &Failure) {
        self.refuse_waiters(server, failure);
        self.refuse_reentries(server, failure);
        self.refuse_unlocks(server, failure);
        self.fail_queries(server, failure, |_| true);
        self.fail_verifications(server, failure);
    }

    /// The same to those who have to hear something.
    fn refuse_listeners(&mut self, server: ServerId, failure: &Failure) {
        self.refuse_waiters(server, failure);
        self.fail_queries(server, failure, Query::listens);
    }

    /// The same to those who need the server's clock.
    fn refuse_clock(&mut self, server: ServerId, failure: &Failure) {
        self.refuse_waiters(server, failure);
        if !self.servers.get(server).is_some_and(|server| server.clock.is_known()) {
            self.refuse_reentries(server, failure);
            self.fail_queries(server, failure, Query::waits_for_clock);
            self.fail_verifications(server, failure);
        }
    }

    fn refuse_waiters(&mut self, server: ServerId, failure: &Failure) {
        for request in std::mem::take(&mut self.ready) {
            let error = self.cx.error_of(failure, self.cx.now);
            self.cx.fail(request, error);
        }
        for key in self.names_at(server) {
            self.fail_waiters(key, |engine, since| engine.cx.error_of(failure, since));
        }
    }

    /// Once for each cause, of which two may take turns: attempts follow each other quickly.
    fn report_failure(&mut self, server: ServerId, cause: &str) {
        let reported = &mut self.servers.get_mut(server).reported;
        if reported.len() < MAX_CAUSES && !reported.iter().any(|known| known == cause) {
            reported.push(cause.to_owned());
            let (client, address) = (self.cx.config.client_id.clone(), self.address_of(server));
            self.cx.report(Report::ConnectFailed { client, address, cause: cause.to_owned() });
        }
    }

    /// The address of a server, or what the user has named before there was a connection.
    pub(super) fn address_of(&self, server: ServerId) -> String {
        let known = self.servers.address_of(server);
        if known.is_empty() { self.cx.config.address.clone() } else { known }
    }

    /// For people: an event of a connection has changed how the servers stand.
    fn show_links(&self) {
        self.cx.counters.show_links(self.servers.links());
    }

    /// The client has ended: it is connected to nothing.
    pub(crate) fn forget_links(&self) {
        self.cx.counters.show_links(Vec::new());
    }

    /// Whoever asks whether the server answers need not wait for what is known.
    fn fail_pings(&mut self, server: ServerId) {
        let failure = Failure::new(FailureKind::Link, self.servers.last_trouble(server));
        self.fail_queries(server, &failure, Query::is_ping);
    }

    /// The same for `try_lock`: a server that is not there will not answer within its time.
    fn end_try_locks(&mut self, server: ServerId) {
        let once = self.waiters.ids(|waiter| waiter.once);
        for request in once {
            if self.waiters.get(&request).and_then(|waiter| self.server_of_waiter(waiter)) == Some(server) {
                self.on_request_over(request);
            }
        }
    }

    pub(super) fn is_up(&self, server: ServerId) -> bool {
        self.servers.get(server).is_some_and(Server::is_up)
    }

    pub(super) fn holds_at(&self, server: ServerId) -> Vec<u64> {
        self.holds.ids(|hold| self.servers.id_of(&hold.lock) == server)
    }

    fn names_at(&self, server: ServerId) -> Vec<u64> {
        self.names.ids(|name| self.servers.id_of(&name.lock) == server)
    }

    // ---- outages

    /// `since`: for a command without an answer, when it was sent.
    pub(super) fn begin_outage(&mut self, server: ServerId, since: Moment, cause: &str) {
        let known = self.servers.get_mut(server);
        let before = known.outage_since();
        let since = known.failed(since, cause);
        if before != Some(since) {
            self.set_outage_timer(since);
        }
        if before.is_none() {
            self.cx.timers.set(TimerKey::Clock(server), self.cx.now.plus(self.trouble_pause()));
        }
    }

    /// How soon after trouble the server is asked whether it is well: often within the time that waiters bear it.
    fn trouble_pause(&self) -> Duration {
        (self.cx.config.outage_limit / 4).min(Duration::from_secs(1))
    }

    /// For trouble since `since`.
    pub(super) fn set_outage_timer(&mut self, since: Moment) {
        // Whose limit is later is found out when it is due.
        let due = since.plus(self.cx.config.outage_limit);
        if self.cx.timers.of(TimerKey::Outage).is_none_or(|at| at > due) {
            self.cx.timers.set(TimerKey::Outage, due);
        }
    }

    /// Since when nothing good was heard of what this waiter wants: from the server, or about its name alone.
    pub(super) fn trouble_since(&self, waiter: &Waiter) -> Option<Moment> {
        let own = self.trouble_of(waiter).map(|trouble| trouble.since);
        let of_server = self.server_of_waiter(waiter).and_then(|id| self.servers.get(id)?.outage_since());
        [of_server, own].into_iter().flatten().min()
    }

    pub(super) fn server_of_waiter(&self, waiter: &Waiter) -> Option<ServerId> {
        Some(self.servers.id_of(&self.names.get(&waiter.name)?.lock))
    }

    fn trouble_of<'a>(&'a self, waiter: &'a Waiter) -> Option<&'a Trouble> {
        match waiter.place {
            WaiterPlace::Queued => {
                let of_all = || self.names.get(&waiter.name)?.contest().trouble.as_deref();
                waiter.late.as_deref().or_else(of_all)
            }
            WaiterPlace::Reentering(hold) => self.holds.get(&hold)?.trouble(),
        }
    }

    /// As long as a release is not confirmed, nothing is sent for those who wait behind it: what it
    /// has met is what they wait for.
    fn release_in_the_way_of(&self, waiter: &Waiter) -> Option<String> {
        let name = self.names.get(&waiter.name).filter(|_| waiter.place == WaiterPlace::Queued)?;
        let words = self.release_trouble(name)?;
        Some(format!("this client's release of the lock is not confirmed: {words}"))
    }

    /// The error of a wait that is over, in the words of what it met last.
    pub(super) fn wait_failed(&self, waiter: &Waiter) -> Error {
        let own = self.trouble_of(waiter).map(|trouble| trouble.words.clone());
        let own = own.or_else(|| self.release_in_the_way_of(waiter));
        let server = self.server_of_waiter(waiter).unwrap_or(ServerId::ONLY);
        let cause = own.unwrap_or_else(|| self.servers.last_trouble(server));
        Error::Unavailable { name: None, waited: self.cx.now.since(waiter.since), cause }
    }

    /// Ends the waits without a limit of their own that went on for `outage_limit` without a good answer.
    pub(super) fn on_outage_timer(&mut self) {
        if self.patience.is_empty() {
            self.look_at_waits();
        }
        let (mut over, mut trouble) = (Vec::new(), false);
        while let Some(request) = self.patience.pop(self.cx.now) {
            match self.patience_of(request) {
                Some((at, true)) if at <= self.cx.now => over.push(request),
                Some((at, in_trouble)) => {
                    trouble |= in_trouble;
                    self.patience.add(at, request);
                }
                None => {}
            }
        }
        trouble |= !over.is_empty();
        for request in over {
            if let Some(waiter) = self.waiters.get(&request) {
                let error = self.wait_failed(waiter);
                self.end_wait(request, Answer::Failed(error));
            }
        }
        if !trouble && self.cx.now >= self.patience.made.plus(self.now_and_then()) {
            self.look_at_waits();
        }
        let unlocks = self.end_unlocks();
        if let Some(at) = [self.patience.next(), unlocks].into_iter().flatten().min() {
            self.cx.timers.set(TimerKey::Outage, at);
        }
    }

    /// Looking at everything at every instant at which somebody's limit is over would be too much.
    fn now_and_then(&self) -> Duration {
        (self.cx.config.outage_limit / 32).max(Duration::from_millis(1))
    }

    /// Begins to watch the waits, if there is trouble anywhere.
    fn look_at_waits(&mut self) {
        let limit = |request| self.patience_of(request).map(|(at, trouble)| (at, request, trouble));
        let open: Vec<_> = self.waiters.ids(|_| true).into_iter().filter_map(limit).collect();
        let trouble = open.iter().any(|(_, _, trouble)| *trouble);
        let watched = open.into_iter().filter(|_| trouble).map(|(at, request, _)| (at, request));
        self.patience.make(self.cx.now, watched);
    }

    /// The earliest instant at which a wait without a limit of its own may end, and whether there is trouble already.
    fn patience_of(&self, request: RequestId) -> Option<(Moment, bool)> {
        let limit = self.cx.config.outage_limit;
        let waiter = self.waiters.get(&request).filter(|waiter| waiter.deadline.is_none())?;
        Some(match self.trouble_since(waiter) {
            Some(trouble) => (trouble.max(waiter.since).plus(limit), true),
            None => (self.cx.now.plus(self.no_trouble_for()), false),
        })
    }

    /// No wait ends sooner than this from now on for trouble that is not known yet: what has no answer yet was sent at most
    /// a command timeout ago. Where that is nearly all of the limit or more, some may end a quarter of it late.
    fn no_trouble_for(&self) -> Duration {
        let limit = self.cx.config.outage_limit;
        limit.saturating_sub(self.cx.config.command_timeout).max(limit / 4).max(Duration::from_millis(1))
    }

    /// Nobody waits for a release any longer than for a lock; it goes on without them. Says when to look again.
    fn end_unlocks(&mut self) -> Option<Moment> {
        let again = self.patience.unlocks.plus(self.now_and_then());
        if self.cx.now < again {
            return Some(again);
        }
        self.patience.unlocks = self.cx.now;
        let (now, limit) = (self.cx.now, self.cx.config.outage_limit);
        let mut next: Option<Moment> = None;
        for id in self.holds.ids(|_| true) {
            let Some(hold) = self.holds.get_mut(&id) else { continue };
            let server = self.servers.id_of(&hold.lock);
            let Some(outage) = self.servers.get(server).and_then(Server::outage_since) else { continue };
            let over = hold.take_unlocks(|unlock| {
                let end = outage.max(unlock.since).plus(limit);
                if end > now {
                    next = Some(next.map_or(end, |next| next.min(end)));
                }
                end <= now
            });
            for unlock in over {
                let error = self.unavailable(unlock.since, server);
                self.cx.fail(unlock.request, error);
            }
        }
        next
    }

    /// The same, of a server that will not have us.
    fn refuse_unlocks(&mut self, server: ServerId, failure: &Failure) {
        for id in self.holds_at(server) {
            let Some(hold) = self.holds.get_mut(&id) else { continue };
            for unlock in hold.take_unlocks(|_| true) {
                let error = self.cx.error_of(failure, unlock.since);
                self.cx.fail(unlock.request, error);
            }
        }
    }

    // ---- the server's clock

    pub(super) fn ask_clock(&mut self, server: ServerId) {
        let unknown = |server: &Server| server.is_up() && !server.clock.is_known() && !server.asking_clock;
        if self.servers.get(server).is_some_and(unknown) {
            self.send_clock(server);
        }
    }

    fn send_clock(&mut self, server: ServerId) {
        self.servers.get_mut(server).asking_clock = true;
        self.cx.send(Op::Clock, server, Command::Time, self.cx.attempt_deadline(), ServerTime(0));
    }

    /// The clock is not known yet; or there was trouble, and nothing else may be sent that would show its end.
    pub(super) fn on_clock_timer(&mut self, id: ServerId) {
        self.ask_clock(id);
        let Some(server) = self.servers.get(id) else { return };
        if !server.is_up() || server.outage_since().is_none() || server.asking_clock {
            return;
        }
        if self.cx.ops.values().any(|op| op.to == id) {
            self.cx.timers.set(TimerKey::Clock(id), self.cx.now.plus(self.trouble_pause()));
        } else {
            self.send_clock(id);
        }
    }

    pub(super) fn on_clock_reply(&mut self, id: ServerId, outcome: &Outcome<Reply>) {
        self.servers.get_mut(id).asking_clock = false;
        if let Outcome::NotExecuted(failure) | Outcome::Unknown(failure) = outcome {
            if !failure.kind.is_transient() {
                self.refuse_clock(id, failure);
                if !self.holds_at(id).is_empty() {
                    // It may be allowed again while there is still something to renew.
                    self.cx.timers.set(TimerKey::Clock(id), self.cx.now.plus(self.trouble_pause()));
                }
                return;
            }
            let known = self.servers.get(id).is_some_and(|server| server.clock.is_known());
            let pause = if known { self.trouble_pause() } else { Duration::from_millis(50) };
            self.cx.timers.set(TimerKey::Clock(id), self.cx.now.plus(pause));
        }
    }

    pub(super) fn note_server_time(&mut self, id: ServerId, sent: Moment, time: ServerTime) {
        let now = self.cx.now;
        let clock = &mut self.servers.get_mut(id).clock;
        let was_known = clock.is_known();
        if clock.observe(sent, now, time) {
            self.cx.report(Report::ClockJump);
            for hold in self.holds_at(id) {
                self.doubt(hold);
                self.verify_now(hold);
            }
        }
        if !was_known {
            self.on_clock_known(id);
        }
    }

    /// What needed the server's clock goes on.
    fn on_clock_known(&mut self, server: ServerId) {
        self.unpark_renewals(server);
        self.resume_kept(server);
        for id in self.holds_at(server) {
            self.advance(id);
        }
        for key in self.names_at(server) {
            self.touch(key);
        }
        self.resume_queries();
        self.check_ready();
    }

    // ---- subscriptions

    pub(super) fn subscribe(&mut self, subscribe: Option<Subscribe>) {
        let Some(Subscribe { channel, generation, is_client }) = subscribe else { return };
        // Asked for now, whatever an earlier refusal has put off.
        for listener in self.wakeups.listeners(&channel) {
            match listener {
                Listener::Name(key) => self.cx.timers.clear(TimerKey::Resubscribe(key)),
                Listener::Client => self.cx.timers.clear(TimerKey::ClientChannel),
                Listener::Probe(_) => {}
            }
        }
        let sharded = self.is_sharded() && !is_client;
        self.cx.effects.push(Effect::Subscribe { channel, sharded, generation });
    }

    pub(super) fn want_client_channel(&mut self) {
        let channel: Arc<str> = client_channel(&self.cx.config.client_id).into();
        let wanted = self.wakeups.want(&channel, Listener::Client);
        self.subscribe(wanted);
    }

    /// The contender of a name has to hear wake-ups.
    pub(super) fn want_lock_channel(&mut self, key: u64) {
        let Some(name) = self.names.get_mut(&key) else { return };
        // Remembered there for as long as it is listened to.
        name.contest_mut();
        let channel = name.channel(self.cx.config.profile);
        self.cx.timers.clear(TimerKey::Linger(key));
        let wanted = self.wakeups.want(&channel, Listener::Name(key));
        self.subscribe(wanted);
    }

    pub(super) fn on_pubsub_up(&mut self) {
        for wanted in self.wakeups.connected() {
            self.subscribe(Some(wanted));
        }
    }

    /// One subscription has ended, and with it perhaps a wake-up: its confirmation wakes whom it concerns.
    pub(super) fn on_subscription_lost(&mut self, channel: &Arc<str>) {
        let wanted = self.wakeups.again(channel);
        self.subscribe(wanted);
    }

    pub(super) fn on_subscribed(&mut self, channel: &Arc<str>, generation: u64, result: Result<(), Failure>) {
        for listener in self.wakeups.answered(channel, generation, result.is_ok()) {
            self.on_listener_answered(listener, result.clone());
        }
    }

    fn on_listener_answered(&mut self, listener: Listener, result: Result<(), Failure>) {
        match (listener, result) {
            // Whatever was published before could not be heard: look once more.
            (Listener::Name(key), Ok(())) if seeded!(AttemptOnceSubscribed) => self.touch(key),
            (Listener::Name(key), Ok(())) => self.wake(key),
            (Listener::Name(key), Err(failure)) if failure.kind.is_transient() => {
                self.cx.timers.set(TimerKey::Resubscribe(key), self.cx.now.plus(Duration::from_millis(200)));
            }
            (Listener::Name(key), Err(failure)) => {
                self.fail_waiters(key, |engine, since| engine.cx.error_of(&failure, since));
                self.forget_channel(key);
            }
            (Listener::Probe(request), result) => self.on_probe_subscribed(request, result),
            (Listener::Client, Ok(())) => {
                // A hint may have been missed.
                self.verify_all();
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
        let Some(channel) = self.names.get(&key).and_then(|name| name.known_channel()) else { return };
        if !self.wakeups.is_confirmed(&channel) {
            let wanted = self.wakeups.again(&channel);
            self.subscribe(wanted);
        }
    }

    pub(super) fn on_client_channel_timer(&mut self) {
        let channel: Arc<str> = client_channel(&self.cx.config.client_id).into();
        if !self.wakeups.is_confirmed(&channel) {
            let wanted = self.wakeups.again(&channel);
            self.subscribe(wanted);
        }
    }

    pub(super) fn client_channel_is_confirmed(&self) -> bool {
        let channel: Arc<str> = client_channel(&self.cx.config.client_id).into();
        self.wakeups.is_confirmed(&channel)
    }

    pub(super) fn on_message(&mut self, channel: &Arc<str>, payload: &str) {
        for listener in self.wakeups.listeners(channel) {
            match listener {
                Listener::Name(key) => self.on_wake_up(key),
                Listener::Client => self.on_force_hint(payload),
                Listener::Probe(request) => self.on_probe_heard(request),
            }
        }
    }

    fn on_wake_up(&mut self, key: u64) {
        let Some(turn) = self.names.get(&key).map(|name| self.turn(&name.lock)) else { return };
        let Some(name) = self.names.get_mut(&key) else { return };
        name.note_freed(self.cx.now, turn);
        if name.has_waiters() {
            add(&self.cx.counters.wake_ups, 1);
            // A message beats a duty that nobody has acted on: it says why the lock may be free.
            name.contest_mut().must_try = Some(Cause::WakeUp);
            self.shorten_turn_for_new(key);
            self.touch(key);
        }
    }

    /// Somebody says that a hold of ours was taken away: ask the server.
    fn on_force_hint(&mut self, lock: &str) {
        for id in self.holds.ids(|hold| hold.lock.as_str() == lock) {
            if let Some(hold) = self.holds.get_mut(&id) {
                hold.force_hint = true;
            }
            self.verify_now(id);
        }
    }

    /// A name without waiters: its subscription stays a little, then all of it goes.
    pub(super) fn settle(&mut self, key: u64) {
        let Some(name) = self.names.get(&key) else { return };
        let (channel, idle) = (name.known_channel(), name.is_idle());
        let until = name.contest().matters_until();
        self.cx.timers.clear(TimerKey::Try(key));
        self.cx.timers.clear(TimerKey::SelfWait(key));
        if channel.is_some_and(|channel| self.wakeups.listens(&channel, Listener::Name(key))) {
            if !self.cx.timers.is_set(TimerKey::Linger(key)) {
                self.cx.timers.set(TimerKey::Linger(key), self.cx.now.plus(LINGER));
            }
        } else if idle && until > self.cx.now {
            self.cx.timers.set(TimerKey::Linger(key), until);
        } else if idle {
            self.names.remove(&key);
        } else if !self.attempt_in_flight(key) {
            if let Some(name) = self.names.get_mut(&key) {
                name.calm_down(self.cx.now);
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
        let Some(channel) = self.names.get(&key).map(|name| name.known_channel()) else { return };
        self.cx.timers.clear(TimerKey::Linger(key));
        self.cx.timers.clear(TimerKey::Resubscribe(key));
        if let Some(channel) = channel.filter(|channel| self.wakeups.forget(channel, Listener::Name(key))) {
            self.cx.effects.push(Effect::Unsubscribe { channel, sharded: self.is_sharded() });
        }
        self.touch(key);
    }

    // ---- dead hold ids

    pub(super) fn send_cleanup(&mut self, id: u64) {
        let Some(dead) = self.cleanup.get(id) else { return };
        if dead.op.is_some() || !self.servers.is_up(&dead.lock) {
            return;
        }
        let (key, lock) = (dead.name, dead.lock.clone());
        let to = self.servers.id_of(&lock);
        let Some(command) = self.last_release(id, key, &lock) else { return };
        let op = self.cx.send(Op::Cleanup { id }, to, command, self.cx.attempt_deadline(), ServerTime(0));
        if let Some(dead) = self.cleanup.get_mut(id) {
            dead.op = Some(op);
            let name = dead.name;
            self.touch(name);
        }
    }

    pub(super) fn on_cleanup_reply(&mut self, id: u64, outcome: Outcome<Reply>) {
        let Some(dead) = self.cleanup.get_mut(id) else { return };
        dead.op = None;
        let (key, freed) = (dead.name, was_freed(&outcome));
        match outcome {
            Outcome::Done(reply) => {
                dead.answered = true;
                dead.failures = 0;
                let past =
                    reply.time.is_some_and(|time| time > dead.not_after || seeded!(CleanUpUntilNotAfter));
                if past {
                    self.end_cleanup(id);
                } else {
                    // Still possible: ask again when it no longer is.
                    let left = reply.time.map_or(0, |time| dead.not_after.0.saturating_sub(time.0));
                    let pause =
                        Duration::from_micros(u64::try_from(left).unwrap_or(0)) + Duration::from_millis(1);
                    self.cx
                        .timers
                        .set(TimerKey::Cleanup(id), self.cx.now.plus(pause.min(Duration::from_secs(5))));
                }
            }
            Outcome::NotExecuted(_) | Outcome::Unknown(_) => {
                let pause = back_off(dead.failures);
                dead.failures += 1;
                self.cx.timers.set(TimerKey::Cleanup(id), self.cx.now.plus(pause));
            }
        }
        // Others were told of it; whether we hear that, too, is another matter.
        if freed { self.wake(key) } else { self.touch(key) }
    }

    fn end_cleanup(&mut self, id: u64) {
        self.cx.timers.clear(TimerKey::Cleanup(id));
        let Some(dead) = self.cleanup.remove(id) else { return };
        if let Some(contest) = self.known_contest(dead.name) {
            contest.dead.retain(|other| *other != id);
        }
    }
}

fn was_freed(outcome: &Outcome<Reply>) -> bool {
    let Outcome::Done(Reply { body: Body::Release(released), .. }) = outcome else { return false };
    matches!(released, Released::Freed { .. } | Released::Kept { .. } | Released::InOtherUse(_))
}
