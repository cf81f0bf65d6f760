//! Operations: what is to be done once, whatever becomes of its command.
//!
//! All copies of the command of an operation are equal: they have its id, and one time after which
//! the server does nothing. The server keeps what an operation came to for a while after that. So a
//! command without an answer is sent again, until an answer says what became of it. Afterwards
//! nobody knows, and the error says so.

use std::collections::BTreeMap;

use crate::backend::Failure;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::name::LockName;
use crate::engine::Engine;
use crate::engine::context::Context;
use crate::engine::context::back_off;
use crate::engine::event::Answer;
use crate::engine::event::RequestId;
use crate::engine::pending::Op;
use crate::engine::timers::TimerKey;
use crate::kinds::command::Announce;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::conflict::conflict_words;
use crate::kinds::operation::Change;
use crate::kinds::operation::KEPT;
use crate::kinds::operation::Operated;
use crate::kinds::operation::Operation;
use crate::kinds::reply::Body;
use crate::kinds::reply::Reply;

/// An operation that has no answer yet.
#[derive(Debug)]
struct Operating {
    name: LockName,
    change: Change,
    id: String,
    since: Moment,
    /// Until then its command may be executed.
    end: Moment,
    /// The same on the server's clock: what its first copy said.
    not_after: Option<ServerTime>,
    op: Option<OpId>,
    failures: u32,
    /// A copy may have been executed.
    may_be_done: bool,
    trouble: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Operations {
    open: BTreeMap<RequestId, Operating>,
}

impl Operating {
    /// When the caller gets an answer at the latest: once nothing can be executed any more, or once
    /// the server has forgotten what was.
    fn limit(&self) -> Moment {
        let is_open = self.may_be_done || self.op.is_some();
        match is_open && !seeded!(OperationAsksWhileKept) {
            true => self.end.plus(KEPT),
            false => self.end,
        }
    }

    fn unavailable(&self, cx: &Context) -> Error {
        let server = cx.servers.id_of(&self.name);
        let trouble = self.trouble.clone().unwrap_or_else(|| cx.servers.last_trouble(server));
        let cause = if self.may_be_done || self.op.is_some() {
            format!("{trouble}; it is unknown whether this was done")
        } else {
            format!("{trouble}; nothing was done")
        };
        Error::Unavailable { name: None, waited: cx.now.since(self.since), cause }
    }
}

impl Operations {
    pub(super) fn contains(&self, request: RequestId) -> bool {
        self.open.contains_key(&request)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn begin(
        &mut self,
        cx: &mut Context,
        request: RequestId,
        name: LockName,
        change: Change,
    ) {
        let operating = Operating {
            name,
            change,
            // No two calls of a client have the same request.
            id: cx.id(request.0),
            since: cx.now,
            end: cx.now.plus(cx.config.outage_limit),
            not_after: None,
            op: None,
            failures: 0,
            may_be_done: false,
            trouble: None,
        };
        cx.timers.set(TimerKey::Request(request), operating.end);
        self.open.insert(request, operating);
        self.send(cx, request);
    }

    /// Sends a copy, unless one is on the wire, or something is missing that it needs.
    fn send(&mut self, cx: &mut Context, request: RequestId) {
        let Some(operating) = self.open.get_mut(&request) else { return };
        let to = cx.servers.id_of(&operating.name);
        if operating.op.is_some() || !cx.servers.is_up_at(to) {
            return;
        }
        let at_end = || cx.servers.time_of(&operating.name, operating.end);
        let Some(not_after) = operating.not_after.or_else(at_end) else {
            return cx.ask_clock(to);
        };
        operating.not_after = Some(not_after);
        let name = operating.name.clone();
        let profile = cx.config.profile;
        let command = Command::Operate(Box::new(Operation {
            announce: Announce::of(&name, profile, cx.is_sharded()),
            name,
            change: operating.change,
            id: match seeded!(OperationKeepsItsId) {
                true => format!("{}-{}", operating.id, operating.failures),
                false => operating.id.clone(),
            },
            not_after,
            profile,
        }));
        let deadline = cx.attempt_deadline();
        operating.op = Some(cx.send(Op::Operate { request }, to, command, deadline, not_after));
    }

    /// Sends what could not be sent before: a connection is up, or a clock is known.
    pub(super) fn resume(&mut self, cx: &mut Context) {
        for request in self.open.keys().copied().collect::<Vec<_>>() {
            self.send(cx, request);
        }
    }

    /// The pause before the next copy has ended, or the time of the call.
    pub(super) fn on_timer(&mut self, cx: &mut Context, request: RequestId) {
        let Some(operating) = self.open.get(&request) else { return };
        let limit = operating.limit();
        if cx.now < limit {
            cx.timers.set(TimerKey::Request(request), limit);
            return self.send(cx, request);
        }
        let error = operating.unavailable(cx);
        self.end(cx, request, Answer::Failed(error));
    }

    pub(super) fn on_reply(
        &mut self,
        cx: &mut Context,
        request: RequestId,
        outcome: Outcome<Reply>,
    ) {
        let Some(operating) = self.open.get_mut(&request) else { return };
        operating.op = None;
        match outcome {
            Outcome::Done(Reply { body: Body::Operated(operated), time }) => {
                self.on_operated(cx, request, operated, time);
            }
            Outcome::NotExecuted(failure) if !failure.kind.is_transient() => {
                let error = cx.error_of(&failure, operating.since);
                self.end(cx, request, Answer::Failed(error));
            }
            Outcome::NotExecuted(failure) => self.again(cx, request, failure.message),
            Outcome::Unknown(_) if seeded!(OperationIsRepeated) => operating.may_be_done = true,
            Outcome::Unknown(failure) => {
                operating.may_be_done = true;
                self.again(cx, request, failure.message);
            }
            Outcome::Done(_) => {}
        }
    }

    fn on_operated(
        &mut self,
        cx: &mut Context,
        request: RequestId,
        operated: Operated,
        time: Option<ServerTime>,
    ) {
        let Some(operating) = self.open.get_mut(&request) else { return };
        let answer = match operated {
            Operated::Done(number) => Answer::Operated(Some(number)),
            Operated::Nothing => Answer::Operated(None),
            Operated::TooMany { permits } => Answer::Failed(operating.change.too_many(permits)),
            Operated::Conflict(found) => {
                let found = conflict_words(found, &operating.name);
                let name = operating.name.to_string();
                Answer::Failed(Error::KeyConflict { name, found })
            }
            Operated::Late => {
                let until = operating.not_after.map(|not_after| not_after.plus(KEPT));
                // If a copy had been executed, that would still be known.
                operating.may_be_done &= time > until && !seeded!(LateMayBeForgotten);
                Answer::Failed(operating.unavailable(cx))
            }
        };
        self.end(cx, request, answer);
    }

    fn again(&mut self, cx: &mut Context, request: RequestId, trouble: String) {
        let Some(operating) = self.open.get_mut(&request) else { return };
        operating.trouble = Some(trouble);
        let at = cx.now.plus(back_off(operating.failures)).min(operating.limit());
        operating.failures += 1;
        cx.timers.set(TimerKey::Request(request), at);
    }

    fn end(&mut self, cx: &mut Context, request: RequestId, answer: Answer) {
        if self.open.remove(&request).is_some() {
            cx.answer(request, answer);
        }
    }

    /// Trying again would not help with this server.
    pub(super) fn fail_at(&mut self, cx: &mut Context, server: ServerId, failure: &Failure) {
        let here = self.open.iter().filter(|(_, known)| cx.servers.id_of(&known.name) == server);
        let here = here.map(|(request, known)| (*request, known.since)).collect::<Vec<_>>();
        for (request, since) in here {
            let error = cx.error_of(failure, since);
            self.end(cx, request, Answer::Failed(error));
        }
    }

    /// The client is shut down.
    pub(super) fn close(&mut self, cx: &mut Context) {
        for request in self.open.keys().copied().collect::<Vec<_>>() {
            self.end(cx, request, Answer::Failed(Error::closed()));
        }
    }
}

impl Engine {
    pub(super) fn on_operate(&mut self, request: RequestId, name: LockName, change: Change) {
        if self.stopping.is_some() {
            return self.cx.fail(request, Error::closed());
        }
        self.operations.begin(&mut self.cx, request, name, change);
    }
}
