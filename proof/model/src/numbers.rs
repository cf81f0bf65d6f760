//! The calls that change how many permits a semaphore has, for everybody.
//!
//! `set_permits` says the number itself, and `add_permits` how many there are to be more. A second
//! copy of either would undo or repeat what it must not: so each call carries an operation id, all
//! its copies carry one deadline, and the server remembers the result for longer than that, so that
//! whoever got no answer can ask.
//!
//! The bounds: two clients with one call each, six ticks, at most two answers that are lost. The
//! order of execution is any, also after the caller has given up waiting for the answer.

use crate::explore::NOBODY;
use crate::explore::Protocol;
use crate::explore::SERVER;
use crate::explore::Step;
use crate::explore::explore;
use crate::table::LIMIT;
use crate::table::Model;

/// For so many ticks after its deadline the result of an operation is remembered.
const REMEMBERED: u8 = 2;
/// Ticks within which a call has to be executed.
const TIME_TO_EXECUTE: u8 = 2;

/// A rule, broken. What is done instead is in `RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switch {
    SetsWithoutId,
    AddsWithoutId,
    CopiesHaveOwnDeadlines,
    ForgetsAtDeadline,
    IdleForgetsNumber,
}

/// What a client calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// `set_permits`.
    Set(u8),
    /// `add_permits`.
    Add(u8),
}

/// What may happen, and how often: the bounds of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    /// The call of each client.
    pub calls: &'static [Call],
    /// How often a client does not learn what became of its command.
    pub unknown: u8,
    /// The last tick.
    pub end: u8,
}

const SETS: Scope =
    Scope { name: "two that set", calls: &[Call::Set(1), Call::Set(3)], unknown: 2, end: 6 };
const ADDS: Scope =
    Scope { name: "two that add", calls: &[Call::Add(1), Call::Add(1)], unknown: 2, end: 6 };
const BOTH: Scope =
    Scope { name: "set and add", calls: &[Call::Set(1), Call::Add(1)], unknown: 2, end: 6 };

const SCOPES: &[Scope] = &[SETS, ADDS, BOTH];

const RULES: &[(Switch, &str, Scope)] = &[
    (Switch::SetsWithoutId, "set_permits has no operation id", SETS),
    (Switch::AddsWithoutId, "add_permits has no operation id", ADDS),
    (Switch::CopiesHaveOwnDeadlines, "each copy of add_permits has a deadline of its own", ADDS),
    (Switch::ForgetsAtDeadline, "an operation is forgotten at its deadline", ADDS),
    (Switch::IdleForgetsNumber, "the number goes with the last permit", SETS),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    NotCalled,
    /// On the wire.
    Sent,
    /// No answer came.
    Unanswered,
    Returned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    /// Its call has to be executed by then.
    deadline: u8,
}

/// A command on its way, or its answer: whether it was done, and the server's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Message {
    client: u8,
    not_after: u8,
    awaited: bool,
    answer: Option<(bool, u8)>,
}

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    now: u8,
    /// In Redis: none until somebody sets it.
    number: Option<u8>,
    /// The operations that the server remembers, and until when.
    operations: Vec<(u8, u8)>,
    clients: Vec<Client>,
    wire: Vec<Message>,
    unknown: u8,
    /// Checks only: whose calls were executed.
    executed: Vec<u8>,
    was_set: bool,
    flaw: Option<&'static str>,
}

/// The protocol within a scope, with at most one rule broken.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    /// What may happen.
    pub scope: Scope,
    switch: Option<Switch>,
}

impl Numbers {
    fn breaks(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }

    fn send(&self, state: &mut State, who: u8) {
        let now = state.now;
        let client = &mut state.clients[usize::from(who)];
        if client.phase == Phase::NotCalled {
            client.deadline = now + TIME_TO_EXECUTE;
        }
        client.phase = Phase::Sent;
        let own = self.breaks(Switch::CopiesHaveOwnDeadlines);
        let not_after = if own { now + 1 } else { client.deadline };
        state.wire.push(Message { client: who, not_after, awaited: true, answer: None });
        state.wire.sort_unstable();
    }

    fn has_id(&self, call: Call) -> bool {
        !self.breaks(match call {
            Call::Set(_) => Switch::SetsWithoutId,
            Call::Add(_) => Switch::AddsWithoutId,
        })
    }

    /// Executes a command. Whether it was done.
    fn run(&self, state: &mut State, message: &Message) -> bool {
        let (who, now) = (message.client, state.now);
        let call = self.scope.calls[usize::from(who)];
        let known = state.operations.iter().any(|(operation, _)| *operation == who);
        if known && self.has_id(call) {
            return true;
        }
        if now > message.not_after {
            return false;
        }
        let number = state.number.unwrap_or(2);
        state.number = Some(match call {
            Call::Set(to) => to,
            Call::Add(by) => number + by,
        });
        state.was_set = true;
        if state.executed.contains(&who) {
            state.flaw = Some("one call changes the number twice");
        }
        state.executed.push(who);
        state.executed.sort_unstable();
        let more = if self.breaks(Switch::ForgetsAtDeadline) { 0 } else { REMEMBERED };
        state.operations.push((who, message.not_after + more));
        state.operations.sort_unstable();
        true
    }

    /// Late, and not remembered: it was never executed, and cannot be any more. Nobody knows if the
    /// server was asked after the time for which it remembers.
    fn hear(&self, state: &mut State, message: &Message, (done, time): (bool, u8)) -> Step {
        let who = message.client;
        let client = &mut state.clients[usize::from(who)];
        client.phase = Phase::Returned;
        let would_know = time <= client.deadline + REMEMBERED;
        if !done && would_know && state.executed.contains(&who) {
            state.flaw = Some("a caller is told that nothing was done, but it was");
        }
        Step::new(who, if done { "hears that it is done" } else { "hears that it was too late" })
    }

    fn hear_nothing(&self, state: &mut State, message: &Message) {
        state.clients[usize::from(message.client)].phase = Phase::Unanswered;
    }

    /// When it may no longer ask, a caller is told that nobody knows.
    fn may_ask(&self, client: &Client, now: u8) -> bool {
        now <= client.deadline + REMEMBERED
    }
}

impl Protocol for Numbers {
    type State = State;

    fn start(&self) -> State {
        let client = Client { phase: Phase::NotCalled, deadline: 0 };
        State {
            now: 1,
            number: None,
            operations: Vec::new(),
            clients: self.scope.calls.iter().map(|_| client).collect(),
            wire: Vec::new(),
            unknown: self.scope.unknown,
            executed: Vec::new(),
            was_set: false,
            flaw: None,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.now < self.scope.end {
            let mut state = state.clone();
            state.now += 1;
            let now = state.now;
            state.operations.retain(|(_, until)| *until >= now);
            next.push((Step::new(NOBODY, "a tick passes"), state));
        }
        if state.number.is_some() && self.breaks(Switch::IdleForgetsNumber) {
            let mut state = state.clone();
            state.number = None;
            next.push((Step::new(SERVER, "takes the last permit back"), state));
        }
        for (at, message) in state.wire.iter().enumerate() {
            let mut then = |change: &dyn Fn(&mut State) -> Step| {
                let mut state = state.clone();
                state.wire.remove(at);
                let step = change(&mut state);
                state.wire.sort_unstable();
                next.push((step, state));
            };
            match message.answer {
                None => then(&|state| {
                    let done = self.run(state, message);
                    if message.awaited {
                        let answer = Some((done, state.now));
                        state.wire.push(Message { answer, ..*message });
                    }
                    Step::new(SERVER, "executes the command")
                }),
                Some(answer) => then(&|state| self.hear(state, message, answer)),
            }
            if message.awaited && state.unknown > 0 {
                then(&|state| {
                    state.unknown -= 1;
                    if message.answer.is_none() {
                        state.wire.push(Message { awaited: false, ..*message });
                    }
                    self.hear_nothing(state, message);
                    Step::new(message.client, "gets no answer")
                });
            }
        }
        for (who, client) in (0..).zip(&state.clients) {
            let sends = match client.phase {
                Phase::NotCalled => true,
                Phase::Unanswered => self.may_ask(client, state.now),
                Phase::Sent | Phase::Returned => false,
            };
            if sends {
                let mut state = state.clone();
                self.send(&mut state, who);
                next.push((Step::new(who, "sends its command"), state));
            }
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        if state.was_set && state.number.is_none() {
            return Some("the number that was set is forgotten");
        }
        state.flaw
    }
}

/// The model, with all that is explored of it.
pub(crate) fn model() -> Model {
    let within = |scope, switch| explore(&Numbers { scope, switch }, LIMIT);
    Model::of("numbers", SCOPES, RULES, |scope| scope.name, within)
}
