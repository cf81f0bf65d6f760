//! Queries, force-unlock, readiness, and the end of the client.

use crate::engine::context::back_off;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::name::LockName;
use crate::base::name::client_channel;
use crate::base::stats::add;
use crate::engine::Engine;
use crate::engine::context::Op;
use crate::engine::event::Answer;
use crate::engine::event::Effect;
use crate::engine::event::Fate;
use crate::engine::event::Fates;
use crate::engine::event::Probe;
use crate::engine::event::RequestId;
use crate::engine::hold::Hold;
use crate::engine::hold::HoldState;
use crate::engine::timers::TimerKey;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::conflict::WITHOUT_END;
use crate::kinds::reply::Body;
use crate::kinds::reply::Forced;
use crate::kinds::reply::KeyState;
use crate::kinds::reply::Reply;

/// A command to a server that belongs to no hold.
#[derive(Debug)]
pub(crate) struct Query {
    asking: Asking,
    pub(super) since: Moment,
    deadline: Moment,
    op: Option<OpId>,
    failures: u32,
    /// A force-release was sent whose outcome is unknown.
    may_be_done: bool,
    trouble: Option<String>,
    /// Of a probe: its reply, which is kept until the message comes, and whether it has come.
    pub(super) reply: Option<Reply>,
    pub(super) heard: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Asking {
    Ping,
    Probe(Box<Probe>),
    Inspect(LockName),
    Force { name: LockName, from: ForceTarget },
}

/// The hold that a force-unlock removes: always exactly one, identified by its field in the key.
#[derive(Debug, Clone)]
pub(crate) enum ForceTarget {
    /// The present holder, which the server is asked for first.
    Whoever,
    /// The holder when the server was asked.
    Found(String),
    /// The holder that the caller named, and no other.
    Named(String),
}

impl ForceTarget {
    fn is_known(&self) -> bool {
        !matches!(self, Self::Whoever)
    }
}

impl Asking {
    /// Whether it removes a hold. All other commands change nothing.
    fn takes_away(&self) -> bool {
        matches!(self, Self::Force { from, .. } if from.is_known())
    }
}

impl Query {
    pub(super) fn is_ping(&self) -> bool {
        matches!(self.asking, Asking::Ping)
    }

    /// Whether it needs a subscription.
    pub(super) fn listens(&self) -> bool {
        matches!(&self.asking, Asking::Probe(probe) if probe.listen.is_some())
    }

    /// Whether it cannot be sent before the server's clock is known.
    pub(super) fn waits_for_clock(&self) -> bool {
        self.op.is_none() && self.asking.takes_away()
    }
}

/// The client is being shut down.
#[derive(Debug)]
pub(crate) struct Stopping {
    request: Option<RequestId>,
    finished: bool,
    /// What became of the holds that have ended since.
    fates: Fates,
}

impl Engine {
    // ---- readiness

    pub(super) fn on_ready(&mut self, request: RequestId) {
        if self.stopping.is_some() {
            return self.cx.fail(request, Error::closed());
        }
        self.ready.push(request);
        self.check_ready();
        // The clock may have been refused before this request came.
        for server in self.servers.up() {
            self.ask_clock(server);
        }
    }

    pub(super) fn check_ready(&mut self) {
        if self.servers.are_ready() && self.client_channel_is_confirmed() {
            for request in std::mem::take(&mut self.ready) {
                self.cx.answer(request, Answer::Done);
            }
        }
    }

    /// What `connect` still waits for, for the message of an error.
    pub(crate) fn missing_to_be_ready(&self) -> &'static str {
        if self.servers.up().is_empty() {
            "no connection and no error so far: no server has answered, perhaps not even the resolver"
        } else if !self.servers.are_ready() {
            "connected, but TIME has not been answered yet by each server that has locks"
        } else {
            "connected, but SUBSCRIBE has not been answered yet"
        }
    }

    // ---- queries

    pub(super) fn on_query(&mut self, request: RequestId, asking: Asking) {
        if self.stopping.is_some() {
            return self.cx.fail(request, Error::closed());
        }
        if matches!(asking, Asking::Ping) {
            if let Some(cause) = self.known_to_be_down(self.servers.any()) {
                let error = Error::Unavailable { name: None, waited: Duration::ZERO, cause };
                return self.cx.fail(request, error);
            }
        }
        let deadline = self.cx.attempt_deadline();
        let query = Query {
            asking,
            since: self.cx.now,
            deadline,
            op: None,
            failures: 0,
            may_be_done: false,
            trouble: None,
            reply: None,
            heard: false,
        };
        self.queries.insert(request, query);
        self.cx.timers.set(TimerKey::Request(request), deadline);
        self.release_before();
        self.send_query(request);
    }

    /// Why the connection to a server is down, if it was lost or could not be made. Not if the server
    /// refuses connections: the next attempt brings the error that says so.
    fn known_to_be_down(&self, server: ServerId) -> Option<String> {
        let server = self.servers.get(server)?;
        let down = !server.is_up() && !server.refuses && server.outage_since().is_some();
        down.then(|| server.last_trouble())
    }

    pub(super) fn send_query(&mut self, request: RequestId) {
        let Some(query) = self.queries.get(&request) else { return };
        let to = self.server_of_query(query);
        if query.op.is_some() || query.reply.is_some() || !self.is_up(to) {
            return;
        }
        let deadline = query.deadline;
        let (command, not_after) = match query.asking.clone() {
            Asking::Ping => (Command::Ping, ServerTime(0)),
            Asking::Probe(probe) if !self.may_probe(&probe) => return,
            Asking::Probe(probe) => (probe.command, ServerTime(0)),
            Asking::Inspect(name) | Asking::Force { name, from: ForceTarget::Whoever } => {
                (Command::Inspect { name }, ServerTime(0))
            }
            Asking::Force { name, from: ForceTarget::Found(expected) | ForceTarget::Named(expected) } => {
                let Some(not_after) = self.servers.time_of(&name, deadline) else {
                    return self.ask_clock(to);
                };
                (self.force_release(name, expected, not_after), not_after)
            }
        };
        let op = self.cx.send(Op::Query { request }, to, command, deadline, not_after);
        if let Some(query) = self.queries.get_mut(&request) {
            query.op = Some(op);
        }
    }

    fn server_of_query(&self, query: &Query) -> ServerId {
        match &query.asking {
            Asking::Ping => self.servers.any(),
            Asking::Inspect(name) | Asking::Force { name, .. } => self.servers.id_of(name),
            Asking::Probe(probe) => self.servers.id_of(&probe.name),
        }
    }

    fn force_release(&self, name: LockName, expected: String, not_after: ServerTime) -> Command {
        let announce = self.announce(self.names.id_of(&name), &name);
        let holder = expected.split(':').next().unwrap_or_default();
        let client_channel = client_channel(holder);
        Command::ForceRelease { name, expected, not_after, announce, client_channel }
    }

    pub(super) fn resume_queries(&mut self) {
        let open: Vec<RequestId> = self.queries.keys().copied().collect();
        for request in open {
            self.send_query(request);
        }
    }

    /// Ends the queries at a server that `of` selects.
    pub(super) fn fail_queries(&mut self, server: ServerId, failure: &Failure, of: impl Fn(&Query) -> bool) {
        let here = |query: &Query| self.server_of_query(query) == server && of(query);
        let here = self.queries.iter().filter(|(_, query)| here(query));
        let here: Vec<RequestId> = here.map(|(request, _)| *request).collect();
        for request in here {
            let Some(query) = self.end_query(request) else { continue };
            let error = self.cx.error_of(failure, query.since);
            self.cx.fail(request, error);
        }
    }

    /// Its deadline has passed, or the pause before it is sent again has ended.
    pub(super) fn on_query_over(&mut self, request: RequestId) {
        let Some(query) = self.queries.get(&request) else { return };
        if self.cx.now < query.deadline {
            self.cx.timers.set(TimerKey::Request(request), query.deadline);
            return self.send_query(request);
        }
        if let Some(reply) = query.reply.clone() {
            return self.end_probe(request, reply, false);
        }
        let Some(query) = self.end_query(request) else { return };
        let server = self.server_of_query(&query);
        let cause = query.trouble.unwrap_or_else(|| self.servers.last_trouble(server));
        self.cx
            .fail(request, Error::Unavailable { name: None, waited: self.cx.now.since(query.since), cause });
    }

    pub(super) fn on_query_reply(&mut self, request: RequestId, outcome: Outcome<Reply>) {
        let Some(query) = self.queries.get_mut(&request) else { return };
        query.op = None;
        match outcome {
            Outcome::Done(reply) => match query.asking.clone() {
                Asking::Probe(probe) => self.on_probe_answered(request, &probe, reply),
                asking => self.on_query_answered(request, asking, reply.body),
            },
            Outcome::NotExecuted(failure) if !failure.kind.is_transient() => {
                let since = query.since;
                self.end_query(request);
                let error = self.cx.error_of(&failure, since);
                self.cx.fail(request, error);
            }
            Outcome::NotExecuted(ref failure) | Outcome::Unknown(ref failure) => {
                query.may_be_done |= matches!(outcome, Outcome::Unknown(_)) && query.asking.takes_away();
                // Repeating it is safe: it only reads, or names the hold that it removes.
                query.trouble = Some(failure.message.clone());
                let at = self.cx.now.plus(back_off(query.failures)).min(query.deadline);
                query.failures += 1;
                self.cx.timers.set(TimerKey::Request(request), at);
            }
        }
    }

    fn on_query_answered(&mut self, request: RequestId, asking: Asking, body: Body) {
        let Some(query) = self.queries.get(&request) else { return };
        let (since, may_be_done) = (query.since, query.may_be_done);
        let answer = match (asking, body) {
            (Asking::Ping, _) => Answer::Done,
            (Asking::Inspect(_), Body::Inspect(state)) => Answer::Key(state),
            (Asking::Force { name, from: ForceTarget::Whoever }, Body::Inspect(state)) => {
                match self.on_force_target(request, name, state) {
                    Some(answer) => answer,
                    None => return,
                }
            }
            (Asking::Force { name, .. }, Body::Force(Forced::Freed { receivers: None })) => {
                let channel = name.channel(self.cx.config.profile);
                let message = format!(
                    "PUBLISH to {channel} or to the channel redisson_lock__client:{{…}} of its holder was refused, so that \
                     not everybody knows"
                );
                Answer::Failed(Error::NotAnnounced { name: name.to_string(), message })
            }
            (Asking::Force { .. }, Body::Force(Forced::Freed { .. })) => Answer::Forced(true),
            (Asking::Force { name, .. }, Body::Force(Forced::InOtherUse(leftover))) => {
                let (name, found) = (name.to_string(), leftover.found().to_owned());
                Answer::Failed(Error::KeyStillInUse { name, found })
            }
            // The present holder came later, and its hold must stay.
            (Asking::Force { .. }, Body::Force(Forced::Gone | Forced::Foreign)) if may_be_done => {
                Answer::Forced(true)
            }
            (Asking::Force { .. }, Body::Force(Forced::Gone))
            | (Asking::Force { from: ForceTarget::Named(_), .. }, Body::Force(Forced::Foreign)) => {
                Answer::Forced(false)
            }
            (asking @ Asking::Force { from: ForceTarget::Named(_), .. }, Body::Force(Forced::Late)) => {
                return self.ask_again(request, asking);
            }
            (Asking::Force { name, .. }, Body::Force(Forced::Foreign | Forced::Late)) => {
                // The holder has changed meanwhile: ask for it again.
                return self.ask_again(request, Asking::Force { name, from: ForceTarget::Whoever });
            }
            _ => Answer::Failed(self.unavailable(since, self.server_of_query(query))),
        };
        self.end_query(request);
        self.cx.answer(request, answer);
    }

    /// Forgets a query, and ends its subscription.
    pub(super) fn end_query(&mut self, request: RequestId) -> Option<Query> {
        let query = self.queries.remove(&request)?;
        if let Asking::Probe(probe) = &query.asking {
            self.stop_listening(request, probe);
        }
        Some(query)
    }

    fn ask_again(&mut self, request: RequestId, asking: Asking) {
        if let Some(query) = self.queries.get_mut(&request) {
            query.asking = asking;
        }
        self.send_query(request);
    }

    /// Removes the holder that was found. Returns the answer if there is none, or if the key is no lock.
    fn on_force_target(&mut self, request: RequestId, name: LockName, state: KeyState) -> Option<Answer> {
        // A lock without a time to live can be removed like any other.
        if let Some(found) = state.conflict(name.kind()).filter(|found| *found != WITHOUT_END) {
            let (name, found) = (name.to_string(), found.to_owned());
            return Some(Answer::Failed(Error::KeyConflict { name, found }));
        }
        let KeyState::Hash { field, .. } = state else { return Some(Answer::Forced(false)) };
        self.ask_again(request, Asking::Force { name, from: ForceTarget::Found(field) });
        None
    }

    // ---- the end

    pub(super) fn on_shutdown(&mut self, until: Moment, request: Option<RequestId>) {
        if self.stopping.is_some() {
            if let Some(request) = request {
                self.cx.fail(request, Error::closed());
            }
            return;
        }
        self.stopping = Some(Stopping { request, finished: false, fates: Fates::default() });
        self.cx.timers.set(TimerKey::Shutdown, until);
        self.close_waits();
        for id in self.holds.ids(|_| true) {
            self.close_hold(id);
        }
        for key in self.names.ids(|_| true) {
            self.forget_channel(key);
        }
    }

    fn close_waits(&mut self) {
        for request in self.waiters.ids(|_| true) {
            self.end_wait(request, Answer::Failed(Error::closed()));
        }
        let open: Vec<RequestId> = self.queries.keys().copied().collect();
        for request in &open {
            self.end_query(*request);
        }
        for request in open.into_iter().chain(std::mem::take(&mut self.ready)) {
            self.cx.fail(request, Error::closed());
        }
    }

    /// Releases a live hold, even if it has guards.
    fn close_hold(&mut self, id: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        match hold.state {
            HoldState::Held | HoldState::Suspect => {
                if let Some(cell) = hold.cell() {
                    cell.lose(LossReason::ClientShutdown);
                }
                add(&self.cx.counters.losses, 1);
                hold.levels.clear();
                self.advance(id);
            }
            HoldState::Lost(_) => self.drop_hold(id),
            HoldState::Acquiring | HoldState::Releasing | HoldState::Gone => {}
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.stopping.as_ref().is_some_and(|stopping| stopping.finished)
    }

    /// A hold has ended. Noted only while the client shuts down.
    pub(super) fn note_fate(&mut self, lock: &LockName, fate: Fate) {
        if let Some(stopping) = &mut self.stopping {
            add_fate(&mut stopping.fates, lock, fate);
        }
    }

    /// What has become of the locks since the shutdown began, and what a server may still have for this client. An attempt
    /// counts that may have been granted: no answer came, and its lease may not be over.
    pub(crate) fn fates(&self) -> Fates {
        let mut fates = self.stopping.as_ref().map(|stopping| stopping.fates.clone()).unwrap_or_default();
        let ours =
            |hold: &Hold| !matches!(hold.state, HoldState::Lost(_)) && self.unsent.get(&hold.id).is_none();
        for hold in self.holds.unordered().filter(|hold| ours(hold)) {
            add_fate(&mut fates, &hold.lock, Fate::Left(hold.key_end));
        }
        for (_, dead) in self.cleanup.iter().filter(|(_, dead)| self.cx.now < dead.key_end) {
            add_fate(&mut fates, &dead.lock, Fate::Left(dead.key_end));
        }
        fates
    }

    /// Holds that nobody has any more, and that the server may still have: their releases, or the
    /// attempts that were cancelled, have no answer yet.
    pub(crate) fn given_up(&self) -> Vec<u64> {
        let ids = self.holds.ids(|_| true).into_iter().chain(self.cleanup.iter().map(|(id, _)| id));
        ids.filter(|id| self.is_given_up(*id)).collect()
    }

    pub(crate) fn is_given_up(&self, id: u64) -> bool {
        let nobodys = |hold: &Hold| match hold.state {
            HoldState::Releasing => true,
            HoldState::Held | HoldState::Suspect => hold.levels.is_empty(),
            HoldState::Acquiring => hold.taker().is_none(),
            HoldState::Lost(_) | HoldState::Gone => false,
        };
        self.holds.get(&id).is_some_and(|hold| nobodys(hold)) || self.cleanup.get(id).is_some()
    }

    /// Ends all holds as lost, because nobody renews them from here on.
    pub(crate) fn end_holds(&self) {
        let live = self.holds.unordered().filter(|hold| hold.state.is_live());
        for cell in live.filter_map(|hold| hold.cell()) {
            cell.lose(LossReason::ClientShutdown);
        }
    }

    pub(super) fn finish_if_done(&mut self) {
        if self.stopping.is_some() && !self.is_finished() && self.holds.is_empty() && self.cleanup.len() == 0
        {
            self.finish();
        }
    }

    /// Ends the shutdown, and reports what could not be released.
    pub(super) fn finish(&mut self) {
        let Some(stopping) = &mut self.stopping else { return };
        if stopping.finished {
            return;
        }
        stopping.finished = true;
        let request = stopping.request;
        let fates = Arc::new(self.fates());
        self.forget_links();
        for id in self.holds.ids(|_| true) {
            let unlocks = self.holds.get_mut(&id).map(|hold| hold.take_unlocks(|_| true));
            for unlock in unlocks.into_iter().flatten() {
                self.cx.fail(unlock.request, Error::closed());
            }
        }
        if let Some(request) = request {
            self.cx.answer(request, Answer::ShutDown(fates));
        }
        self.cx.effects.push(Effect::Finished);
    }
}

fn add_fate(fates: &mut Fates, lock: &LockName, fate: Fate) {
    let known = fates.entry(lock.clone()).or_insert(fate);
    *known = fate.max(*known);
}
