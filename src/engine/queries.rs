//! Queries, force-unlocks, and the probes of a preflight: commands that belong to no hold.
//!
//! A query is sent when its server can be asked, again after a failure that passes, and answered by
//! its deadline at the latest. A force-unlock removes the holder that the caller named; if none was
//! named, it asks for the present one first.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::name::LockName;
use crate::base::name::client_channel;
use crate::engine::context::Context;
use crate::engine::context::back_off;
use crate::engine::event::Answer;
use crate::engine::event::Probe;
use crate::engine::event::Probed;
use crate::engine::event::RequestId;
use crate::engine::pending::Op;
use crate::engine::subscriptions::Listener;
use crate::engine::subscriptions::Subscriptions;
use crate::engine::timers::TimerKey;
use crate::kinds::command::Announce;
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
    since: Moment,
    deadline: Moment,
    op: Option<OpId>,
    failures: u32,
    /// A force-release was sent whose outcome is unknown.
    may_be_done: bool,
    /// The next command names no line, because its slot was found to be moving.
    lock_alone: bool,
    trouble: Option<String>,
    /// The reply to a probe that still waits for its message.
    reply: Option<Reply>,
    /// The message that a probe waits for has come.
    heard: bool,
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
    /// The present holder; the server is asked first who that is.
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
    /// Whether it removes a hold of a lock in use. All other commands change nothing there.
    fn takes_away(&self) -> bool {
        matches!(self, Self::Force { from, .. } if from.is_known())
    }
}

impl Query {
    fn new(cx: &Context, asking: Asking) -> Self {
        Self {
            asking,
            since: cx.now,
            deadline: cx.attempt_deadline(),
            op: None,
            failures: 0,
            may_be_done: false,
            lock_alone: false,
            trouble: None,
            reply: None,
            heard: false,
        }
    }

    fn server(&self, cx: &Context) -> ServerId {
        match &self.asking {
            Asking::Ping => cx.servers.any(),
            Asking::Inspect(name) | Asking::Force { name, .. } => cx.servers.id_of(name),
            Asking::Probe(probe) => cx.servers.id_of(&probe.name),
        }
    }

    pub(super) fn is_ping(&self) -> bool {
        matches!(self.asking, Asking::Ping)
    }

    /// Whether it needs a subscription.
    pub(super) fn listens(&self) -> bool {
        matches!(&self.asking, Asking::Probe(probe) if probe.listen.is_some())
    }

    /// Whether it cannot be sent before the server's clock is known.
    pub(in crate::engine) fn waits_for_clock(&self) -> bool {
        self.op.is_none() && self.asking.takes_away()
    }
}

/// Those that have no answer yet.
#[derive(Debug, Default)]
pub(super) struct Queries {
    open: BTreeMap<RequestId, Query>,
}

impl Queries {
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
        subscriptions: &mut Subscriptions,
        request: RequestId,
        asking: Asking,
    ) {
        if matches!(asking, Asking::Ping) {
            if let Some(cause) = known_to_be_down(cx, cx.servers.any()) {
                let error = Error::Unavailable { name: None, waited: Duration::ZERO, cause };
                return cx.fail(request, error);
            }
        }
        let query = Query::new(cx, asking);
        cx.timers.set(TimerKey::Request(request), query.deadline);
        if let Asking::Probe(probe) = &query.asking {
            if let Some(listen) = &probe.listen {
                subscriptions.want(cx, &listen.channel, Listener::Probe(request));
            }
        }
        self.open.insert(request, query);
        self.send(cx, subscriptions, request);
    }

    /// Sends a query, unless it is on the wire, or something is missing that it needs.
    fn send(&mut self, cx: &mut Context, subscriptions: &Subscriptions, request: RequestId) {
        let Some(query) = self.open.get_mut(&request) else { return };
        let to = query.server(cx);
        if query.op.is_some() || query.reply.is_some() || !cx.servers.is_up_at(to) {
            return;
        }
        let (command, not_after) = match query.asking.clone() {
            Asking::Ping => (Command::Ping, ServerTime(0)),
            // What it listens for has to be subscribed first.
            Asking::Probe(probe) if !hears(subscriptions, &probe) => return,
            Asking::Probe(probe) => (probe.command, ServerTime(0)),
            Asking::Inspect(name) | Asking::Force { name, from: ForceTarget::Whoever } => {
                (Command::Inspect { name }, ServerTime(0))
            }
            Asking::Force {
                name,
                from: ForceTarget::Found(expected) | ForceTarget::Named(expected),
            } => {
                let Some(not_after) = cx.servers.time_of(&name, query.deadline) else {
                    return cx.ask_clock(to);
                };
                (force_release(cx, name, query.lock_alone, expected, not_after), not_after)
            }
        };
        query.op = Some(cx.send(Op::Query { request }, to, command, query.deadline, not_after));
    }

    /// Sends what could not be sent before: a connection is up, or a clock is known.
    pub(super) fn resume(&mut self, cx: &mut Context, subscriptions: &Subscriptions) {
        for request in self.open.keys().copied().collect::<Vec<_>>() {
            self.send(cx, subscriptions, request);
        }
    }

    /// Fails the queries at `server` for which `of` is true.
    pub(super) fn fail(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        server: ServerId,
        failure: &Failure,
        of: impl Fn(&Query) -> bool,
    ) {
        let here = self.open.iter().filter(|(_, query)| query.server(cx) == server && of(query));
        for request in here.map(|(request, _)| *request).collect::<Vec<_>>() {
            self.fail_one(cx, subscriptions, request, failure);
        }
    }

    fn fail_one(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        request: RequestId,
        failure: &Failure,
    ) {
        if let Some(query) = self.end(cx, subscriptions, request) {
            let error = cx.error_of(failure, query.since);
            cx.fail(request, error);
        }
    }

    /// Its deadline has passed, or the pause before it is sent again has ended.
    pub(super) fn on_timer(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        request: RequestId,
    ) {
        let Some(query) = self.open.get_mut(&request) else { return };
        if cx.now < query.deadline {
            cx.timers.set(TimerKey::Request(request), query.deadline);
            return self.send(cx, subscriptions, request);
        }
        if let Some(reply) = query.reply.take() {
            return self.end_probe(cx, subscriptions, request, reply, false);
        }
        let Some(query) = self.end(cx, subscriptions, request) else { return };
        let cause =
            query.trouble.clone().unwrap_or_else(|| cx.servers.last_trouble(query.server(cx)));
        let waited = cx.now.since(query.since);
        cx.fail(request, Error::Unavailable { name: None, waited, cause });
    }

    pub(super) fn on_reply(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        request: RequestId,
        outcome: Outcome<Reply>,
    ) {
        let Some(query) = self.open.get_mut(&request) else { return };
        query.op = None;
        match outcome {
            Outcome::Done(reply) => match query.asking.clone() {
                Asking::Probe(probe) if is_awaited(&probe) && !query.heard => {
                    query.reply = Some(reply)
                }
                Asking::Probe(_) => {
                    let heard = query.heard;
                    self.end_probe(cx, subscriptions, request, reply, heard);
                }
                asking => self.on_answered(cx, subscriptions, request, asking, reply.body),
            },
            Outcome::NotExecuted(failure) if !failure.kind.is_transient() => {
                self.fail_one(cx, subscriptions, request, &failure);
            }
            Outcome::NotExecuted(ref failure) | Outcome::Unknown(ref failure) => {
                query.may_be_done |=
                    matches!(outcome, Outcome::Unknown(_)) && query.asking.takes_away();
                // Repeating it is safe: it reads, removes one named hold, or is a probe on a spare
                // name.
                // The line may be out of reach while its slot is being moved.
                query.lock_alone = failure.kind == FailureKind::SlotMoving;
                query.trouble = Some(failure.message.clone());
                let at = cx.now.plus(back_off(query.failures)).min(query.deadline);
                query.failures += 1;
                cx.timers.set(TimerKey::Request(request), at);
            }
        }
    }

    fn on_answered(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        request: RequestId,
        asking: Asking,
        body: Body,
    ) {
        let Some(query) = self.open.get_mut(&request) else { return };
        match next_step(cx, query, asking, body) {
            NextStep::Answer(answer) => {
                self.end(cx, subscriptions, request);
                cx.answer(request, answer);
            }
            NextStep::Ask(asking) => {
                query.asking = asking;
                self.send(cx, subscriptions, request);
            }
        }
    }

    /// Forgets a query, and ends its subscription.
    pub(super) fn end(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        request: RequestId,
    ) -> Option<Query> {
        let query = self.open.remove(&request)?;
        if let Asking::Probe(probe) = &query.asking {
            if let Some(listen) = &probe.listen {
                subscriptions.forget(cx, &listen.channel, Listener::Probe(request));
            }
        }
        Some(query)
    }

    /// The client is shut down.
    pub(super) fn close(&mut self, cx: &mut Context, subscriptions: &mut Subscriptions) {
        for request in self.open.keys().copied().collect::<Vec<_>>() {
            self.end(cx, subscriptions, request);
            cx.fail(request, Error::closed());
        }
    }

    // ---- probes

    pub(super) fn subscribed(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        request: RequestId,
        result: Result<(), Failure>,
    ) {
        match result {
            Ok(()) => self.send(cx, subscriptions, request),
            Err(failure) => self.fail_one(cx, subscriptions, request, &failure),
        }
    }

    /// A message came on the channel that a probe listens to.
    pub(super) fn heard(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        request: RequestId,
    ) {
        let Some(query) = self.open.get_mut(&request) else { return };
        query.heard = true;
        if let Some(reply) = query.reply.take() {
            self.end_probe(cx, subscriptions, request, reply, true);
        }
    }

    fn end_probe(
        &mut self,
        cx: &mut Context,
        subscriptions: &mut Subscriptions,
        request: RequestId,
        reply: Reply,
        heard: bool,
    ) {
        self.end(cx, subscriptions, request);
        let sharded = cx.is_sharded();
        cx.answer(request, Answer::Probed(Probed { reply, heard, sharded }));
    }
}

/// What follows from the server's answer to a query.
enum NextStep {
    Answer(Answer),
    Ask(Asking),
}

fn next_step(cx: &Context, query: &Query, asking: Asking, body: Body) -> NextStep {
    match (asking, body) {
        (Asking::Ping, _) => NextStep::Answer(Answer::Done),
        (Asking::Inspect(_), Body::Inspect(state)) => NextStep::Answer(Answer::Key(state)),
        (Asking::Force { name, from: ForceTarget::Whoever }, Body::Inspect(state)) => {
            force_found(name, state)
        }
        (Asking::Force { name, from }, Body::Force(forced)) => {
            after_force(cx, query, name, from, forced)
        }
        _ => NextStep::Answer(Answer::Failed(cx.unavailable(query.since, query.server(cx)))),
    }
}

/// What follows from the answer to a force-release of one hold, which the caller has named or which
/// was found.
fn after_force(
    cx: &Context,
    query: &Query,
    name: LockName,
    from: ForceTarget,
    forced: Forced,
) -> NextStep {
    let was_named = matches!(from, ForceTarget::Named(_));
    match forced {
        Forced::Freed { receivers: None } => {
            NextStep::Answer(Answer::Failed(force_not_announced(cx, &name)))
        }
        Forced::Freed { .. } => NextStep::Answer(Answer::Forced(true)),
        Forced::InOtherUse(leftover) => {
            let (name, found) = (name.to_string(), leftover.found().to_owned());
            NextStep::Answer(Answer::Failed(Error::KeyStillInUse { name, found }))
        }
        // The same hold again, also if it was found: an earlier copy may have removed it, and the
        // next holder must stay.
        Forced::Late => NextStep::Ask(Asking::Force { name, from }),
        // An earlier copy may have removed it. The present holder came later, and its hold must
        // stay.
        Forced::Gone | Forced::Foreign if query.may_be_done => {
            NextStep::Answer(Answer::Forced(true))
        }
        Forced::Gone => NextStep::Answer(Answer::Forced(false)),
        Forced::Foreign if was_named => NextStep::Answer(Answer::Forced(false)),
        // The holder has changed since it was found: ask again.
        Forced::Foreign => NextStep::Ask(Asking::Force { name, from: ForceTarget::Whoever }),
    }
}

/// The holder that was found is the one to remove, unless there is none, or the key is no lock.
fn force_found(name: LockName, state: KeyState) -> NextStep {
    // A lock without a time to live can be removed like any other.
    if let Some(found) = state.conflict(name.kind()).filter(|found| *found != WITHOUT_END) {
        let (name, found) = (name.to_string(), found.to_owned());
        return NextStep::Answer(Answer::Failed(Error::KeyConflict { name, found }));
    }
    match state {
        KeyState::Hash { field, .. } => {
            NextStep::Ask(Asking::Force { name, from: ForceTarget::Found(field) })
        }
        _ => NextStep::Answer(Answer::Forced(false)),
    }
}

fn force_not_announced(cx: &Context, name: &LockName) -> Error {
    let channel = name.channel(cx.config.profile);
    let message = format!(
        "PUBLISH to {channel} or to the channel redisson_lock__client:{{…}} of its holder was refused, so that \
         not everybody knows"
    );
    Error::NotAnnounced { name: name.to_string(), message }
}

fn force_release(
    cx: &Context,
    name: LockName,
    lock_alone: bool,
    expected: String,
    not_after: ServerTime,
) -> Command {
    let mut announce = Announce::of(&name, cx.config.profile, cx.is_sharded());
    announce.line &= !lock_alone;
    // What a reader has beside the lock ends with its lease.
    announce.alone = lock_alone;
    let holder = expected.split(':').next().unwrap_or_default();
    let client_channel = client_channel(holder);
    Command::ForceRelease { name, expected, not_after, announce, client_channel }
}

/// The cause if the server is known to be down. `None` if it refuses this client: the next attempt
/// to connect brings that error.
fn known_to_be_down(cx: &Context, server: ServerId) -> Option<String> {
    let server = cx.servers.get(server)?;
    let down = !server.is_up() && !server.refuses && server.outage_since().is_some();
    down.then(|| server.last_trouble())
}

fn hears(subscriptions: &Subscriptions, probe: &Probe) -> bool {
    probe.listen.as_ref().is_none_or(|listen| subscriptions.is_confirmed(&listen.channel))
}

/// Whether a probe waits, up to its deadline, for a message.
fn is_awaited(probe: &Probe) -> bool {
    probe.listen.as_ref().is_some_and(|listen| listen.awaited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::FailureKind;
    use crate::backend::ServerInfo;
    use crate::engine::context::testing::context;
    use crate::engine::event::Effect;

    const REQUEST: RequestId = RequestId(1);
    const HOLDER: &str = "22222222-2222-4333-8444-555555555555:3";

    struct Asked {
        queries: Queries,
        subscriptions: Subscriptions,
        cx: Context,
    }

    impl Asked {
        fn new(asking: Asking) -> Self {
            let (queries, subscriptions) = (Queries::default(), Subscriptions::default());
            let mut asked = Self { queries, subscriptions, cx: context() };
            asked.cx.servers.connected(Moment::ZERO, ServerId::ONLY, ServerInfo::default());
            let clock = &mut asked.cx.servers.get_mut(ServerId::ONLY).clock;
            clock.observe(Moment::ZERO, Moment::ZERO, ServerTime(1_000_000));
            asked.queries.begin(&mut asked.cx, &mut asked.subscriptions, REQUEST, asking);
            asked
        }

        fn reply(&mut self, outcome: Outcome<Reply>) {
            self.queries.on_reply(&mut self.cx, &mut self.subscriptions, REQUEST, outcome);
        }

        fn done(&mut self, body: Body) {
            self.reply(Outcome::Done(Reply { time: None, body }));
        }

        fn sent(&mut self) -> Vec<Command> {
            let sent = self.cx.effects.iter().filter_map(|effect| match effect {
                Effect::Send { command, .. } => Some(command.clone()),
                _ => None,
            });
            let sent = sent.collect();
            self.cx.effects.retain(|effect| !matches!(effect, Effect::Send { .. }));
            sent
        }

        fn answer(&mut self) -> Option<Answer> {
            self.cx.effects.drain(..).find_map(|effect| match effect {
                Effect::Answer { answer, .. } => Some(answer),
                _ => None,
            })
        }
    }

    fn lock() -> LockName {
        LockName::new("n").unwrap()
    }

    fn held() -> Body {
        Body::Inspect(KeyState::Hash {
            fields: 1,
            field: HOLDER.to_owned(),
            count: "1".to_owned(),
            pttl: 9,
        })
    }

    fn force() -> Asked {
        Asked::new(Asking::Force { name: lock(), from: ForceTarget::Whoever })
    }

    #[test]
    fn a_force_unlock_asks_for_the_holder_and_removes_that_one() {
        let mut asked = force();
        assert!(matches!(asked.sent()[..], [Command::Inspect { .. }]));
        asked.done(held());
        let sent = asked.sent();
        assert!(
            matches!(&sent[..], [Command::ForceRelease { expected, .. }] if expected == HOLDER)
        );
        asked.done(Body::Force(Forced::Freed { receivers: Some(1) }));
        assert!(matches!(asked.answer(), Some(Answer::Forced(true))));
        assert!(asked.queries.is_empty());
    }

    #[test]
    fn a_force_unlock_without_an_answer_may_have_been_executed() {
        let mut asked = force();
        asked.done(held());
        asked.sent();
        asked.reply(Outcome::Unknown(Failure::new(FailureKind::Link, "cut")));
        assert!(asked.cx.timers.is_set(TimerKey::Request(REQUEST)), "it is sent again");
        asked.cx.now = asked.cx.now.plus(Duration::from_millis(20));
        asked.queries.on_timer(&mut asked.cx, &mut asked.subscriptions, REQUEST);
        assert_eq!(asked.sent().len(), 1);
        asked.done(Body::Force(Forced::Gone));
        assert!(
            matches!(asked.answer(), Some(Answer::Forced(true))),
            "the first copy took it away"
        );
    }

    #[test]
    fn a_force_unlock_that_may_have_been_executed_never_looks_for_another_holder() {
        let mut asked = force();
        asked.done(held());
        asked.sent();
        asked.reply(Outcome::Unknown(Failure::new(FailureKind::Link, "cut")));
        asked.cx.now = asked.cx.now.plus(Duration::from_millis(20));
        asked.queries.on_timer(&mut asked.cx, &mut asked.subscriptions, REQUEST);
        asked.sent();
        asked.done(Body::Force(Forced::Late));
        let sent = asked.sent();
        assert!(
            matches!(&sent[..], [Command::ForceRelease { expected, .. }] if expected == HOLDER),
            "{sent:?}"
        );
        asked.done(Body::Force(Forced::Foreign));
        assert!(matches!(asked.answer(), Some(Answer::Forced(true))), "the next holder stays");
    }

    #[test]
    fn a_query_ends_at_its_deadline_in_the_words_of_what_it_met() {
        let mut asked = Asked::new(Asking::Inspect(lock()));
        asked.reply(Outcome::Unknown(Failure::new(FailureKind::Link, "cut")));
        asked.cx.now = asked.cx.attempt_deadline();
        asked.queries.on_timer(&mut asked.cx, &mut asked.subscriptions, REQUEST);
        let answer = asked.answer();
        assert!(
            matches!(&answer, Some(Answer::Failed(Error::Unavailable { cause, .. })) if cause == "cut"),
            "{answer:?}"
        );
        assert!(asked.queries.is_empty());
    }

    #[test]
    fn a_ping_to_a_server_that_is_known_to_be_down_is_answered_at_once() {
        let mut cx = context();
        cx.begin_outage(ServerId::ONLY, Moment::ZERO, "reset by peer");
        let (mut queries, mut subscriptions) = (Queries::default(), Subscriptions::default());
        queries.begin(&mut cx, &mut subscriptions, REQUEST, Asking::Ping);
        assert!(queries.is_empty());
        assert!(cx.effects.iter().any(|effect| matches!(effect, Effect::Answer { .. })));
    }
}
