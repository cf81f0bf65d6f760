//! Connections that come and go, and what has to be repeated afterwards.

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Routes;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::name::LockName;
use crate::base::stats::add;
use crate::engine::Engine;
use crate::engine::event::Answer;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::queries::Query;

/// The most causes of failed attempts to connect that are reported between two connections.
const MAX_CAUSES: usize = 8;

impl Engine {
    // ---- readiness

    pub(super) fn on_ready(&mut self, request: RequestId) {
        if self.stopping.is_some() {
            return self.cx.fail(request, Error::closed());
        }
        self.ready.push(request);
        self.check_ready();
        // TIME may have been refused before this request came.
        for server in self.cx.servers.up() {
            self.cx.ask_clock(server);
        }
    }

    pub(super) fn check_ready(&mut self) {
        if self.cx.servers.are_ready() && self.subscriptions.has_client_channel(&self.cx) {
            for request in std::mem::take(&mut self.ready) {
                self.cx.answer(request, Answer::Done);
            }
        }
    }

    /// What `connect` still waits for, for the text of its error.
    pub(crate) fn missing_to_be_ready(&self) -> &'static str {
        if self.cx.servers.up().is_empty() {
            "no connection and no error so far: no server has answered, perhaps not even the resolver"
        } else if !self.cx.servers.are_ready() {
            "connected, but TIME has not been answered yet by each server that has locks"
        } else {
            "connected, but SUBSCRIBE has not been answered yet"
        }
    }

    // ---- up and down

    pub(super) fn on_up(&mut self, server: ServerId, info: ServerInfo) {
        let client = self.cx.config.client_id.clone();
        let ServerInfo { address, version, .. } = info.clone();
        let before = self.cx.servers.get(server).filter(|server| server.was_up());
        let away = before.map(|server| self.cx.now.since(server.since));
        if away.is_some() {
            add(&self.cx.counters.reconnects, 1);
        }
        self.cx.report(Report::LinkUp { client, address, version, away });
        self.cx.servers.connected(self.cx.now, server, info);
        self.cx.servers.get_mut(server).since = self.cx.now;
        self.show_links();
        self.cx.ask_clock(server);
        self.resume(&|engine, lock| engine.cx.servers.id_of(lock) == server);
        self.check_ready();
    }

    pub(super) fn on_down(&mut self, server: ServerId, cause: &str) {
        let known = self.cx.servers.get_mut(server);
        known.disconnected();
        let since = std::mem::replace(&mut known.since, self.cx.now);
        let held = self.holds.at(&self.cx, server);
        let live = held.iter().filter(|id| self.holds[id].state.is_live()).count();
        self.cx.report(Report::LinkDown {
            client: self.cx.config.client_id.clone(),
            address: self.cx.address_of(server),
            cause: cause.to_owned(),
            holds: live,
            lasted: self.cx.now.since(since),
        });
        self.cx.begin_outage(server, self.cx.now, cause);
        self.show_links();
        self.fail_pings(server);
        for name_id in self.queues.at(&self.cx, server) {
            if let Some(contest) = self.queues.known_contest(name_id) {
                contest.known_held = false;
            }
        }
        for id in held {
            self.doubt(id);
        }
        self.cx.servers.forget_unused();
    }

    /// Slots have moved. Their locks may be gone from the server, and waiters may have missed
    /// wake-ups.
    pub(super) fn on_routes(&mut self, routes: Routes) {
        let before = self.cx.servers.reroute(routes.clone());
        let moved =
            |lock: &LockName| before.server_of(lock.slot()) != routes.server_of(lock.slot());
        for id in self.holds.ids(|hold| moved(&hold.lock)) {
            self.doubt(id);
        }
        self.cx.servers.forget_unused();
        self.show_links();
        self.note_unserved();
        if !seeded!(MovedSlotsWake) {
            self.resume(&|_, lock| moved(lock));
        }
        self.check_ready();
    }

    /// For the names in slots without a server, it is as if their server were down.
    fn note_unserved(&mut self) {
        if self.cx.servers.has_unserved_slots() {
            self.cx.begin_outage(
                ServerId::ONLY,
                self.cx.now,
                "no node of the cluster serves the slot",
            );
        }
    }

    /// Repeats and verifies everything about these locks, because it is unknown what happened while
    /// there was no connection.
    fn resume(&mut self, here: &dyn Fn(&Self, &LockName) -> bool) {
        let dead: Vec<u64> = self
            .dead_ids
            .iter()
            .filter(|(_, dead)| here(self, &dead.lock))
            .map(|(id, _)| id)
            .collect();
        for id in dead {
            self.send_cleanup(id);
        }
        let holds = self.holds.ids(|hold| here(self, &hold.lock));
        for &id in &holds {
            self.resume_release(id);
        }
        for &id in &holds {
            self.watchdog.verify(&self.cx, &mut self.holds, id);
        }
        for &id in &holds {
            self.advance(id);
        }
        for name_id in self.queues.names.ids(|name| here(self, &name.lock)) {
            let Some(name) = self.queues.names.get_mut(&name_id) else { continue };
            if let Some(contest) = name.known_contest() {
                contest.pause = Moment::ZERO;
                contest.not_before = Moment::ZERO;
                contest.failures = 0;
            }
            if seeded!(ReconnectWakes) {
                self.queues.touch(name_id)
            } else {
                self.queues.wake(name_id)
            }
        }
        self.queries.resume(&mut self.cx, &self.subscriptions);
        self.operations.resume(&mut self.cx);
        let watched = self.watching.names().filter(|lock| here(self, lock)).cloned();
        for lock in watched.collect::<Vec<_>>() {
            self.watching.resume(&mut self.cx, &lock);
        }
    }

    pub(super) fn on_connect_failed(&mut self, server: ServerId, failure: Failure) {
        // While commands are answered, this is about the pub/sub connection, and concerns only
        // requests that need messages.
        if !self.cx.servers.is_up_at(server) {
            self.cx.begin_outage(server, self.cx.now, &failure.message);
            let refuses = !failure.kind.is_transient();
            let known = self.cx.servers.get_mut(server);
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
        if self.cx.servers.is_up_at(server) {
            self.refuse_listeners(server, &failure)
        } else {
            self.refuse_all(server, &failure)
        }
    }

    /// Retrying does not help, so every request that needs this server fails now.
    fn refuse_all(&mut self, server: ServerId, failure: &Failure) {
        self.refuse_waiters(server, failure);
        self.refuse_reentries(server, failure);
        self.refuse_unlocks(server, failure);
        self.queries.fail(&mut self.cx, &mut self.subscriptions, server, failure, |_| true);
        self.operations.fail_at(&mut self.cx, server, failure);
        self.watching.fail_at(&mut self.cx, server, failure);
        self.watchdog.fail_verifications(&mut self.cx, &mut self.holds, server, failure);
    }

    /// The same for requests that need messages.
    fn refuse_listeners(&mut self, server: ServerId, failure: &Failure) {
        self.refuse_waiters(server, failure);
        self.queries.fail(&mut self.cx, &mut self.subscriptions, server, failure, Query::listens);
        self.watching.fail_at(&mut self.cx, server, failure);
    }

    /// The same for requests that need the server's clock.
    pub(super) fn refuse_clock(&mut self, server: ServerId, failure: &Failure) {
        self.refuse_waiters(server, failure);
        if !self.cx.servers.get(server).is_some_and(|server| server.clock.is_known()) {
            self.refuse_reentries(server, failure);
            self.operations.fail_at(&mut self.cx, server, failure);
            self.queries.fail(
                &mut self.cx,
                &mut self.subscriptions,
                server,
                failure,
                Query::waits_for_clock,
            );
            self.watchdog.fail_verifications(&mut self.cx, &mut self.holds, server, failure);
        }
    }

    fn refuse_waiters(&mut self, server: ServerId, failure: &Failure) {
        for request in std::mem::take(&mut self.ready) {
            let error = self.cx.error_of(failure, self.cx.now);
            self.cx.fail(request, error);
        }
        for name_id in self.queues.at(&self.cx, server) {
            self.fail_waiters(name_id, |engine, since| engine.cx.error_of(failure, since));
        }
    }

    /// Reports each cause once, because attempts to connect follow each other quickly and two
    /// causes may alternate.
    fn report_failure(&mut self, server: ServerId, cause: &str) {
        let reported = &mut self.cx.servers.get_mut(server).reported;
        if reported.len() < MAX_CAUSES && !reported.iter().any(|known| known == cause) {
            reported.push(cause.to_owned());
            let (client, address) = (self.cx.config.client_id.clone(), self.cx.address_of(server));
            self.cx.report(Report::ConnectFailed { client, address, cause: cause.to_owned() });
        }
    }

    /// Publishes the state of the connections for `LockClient::links`.
    fn show_links(&self) {
        self.cx.counters.show_links(self.cx.servers.links());
    }

    /// The client has ended, so it has no connections.
    pub(crate) fn forget_links(&self) {
        self.cx.counters.show_links(Vec::new());
    }

    /// Fails pings at once, because the server is known to be unreachable.
    fn fail_pings(&mut self, server: ServerId) {
        let failure = Failure::new(FailureKind::Link, self.cx.servers.last_trouble(server));
        self.queries.fail(&mut self.cx, &mut self.subscriptions, server, &failure, Query::is_ping);
    }

    /// Ends `try_lock` calls at once, because the server will not answer within their time.
    fn end_try_locks(&mut self, server: ServerId) {
        let once = self.queues.waiters.ids(|waiter| waiter.once);
        for request in once {
            if self.queues.waiters.get(&request).and_then(|waiter| self.server_of_waiter(waiter))
                == Some(server)
            {
                self.on_request_over(request);
            }
        }
    }

    /// Fails the callers that wait for releases on a server that refuses this client.
    fn refuse_unlocks(&mut self, server: ServerId, failure: &Failure) {
        for id in self.holds.at(&self.cx, server) {
            let Some(hold) = self.holds.get_mut(&id) else { continue };
            for unlock in hold.take_unlocks(|_| true) {
                let error = self.cx.error_of(failure, unlock.since);
                self.cx.fail(unlock.request, error);
            }
        }
    }
}
