//! The count-down latch: calls that count once although their commands may be lost, repeated and
//! late; and somebody who waits until the count is zero.
//!
//! Call 1 sets a count of 1 if there is none; calls 2 and 3 count down. All copies of the command
//! of a call have its operation id and its `not_after`. The server keeps what an operation came to
//! for a while after that, so that a client without an answer sends the same command again and
//! learns it. Time is counted in ticks.

mod rules;

pub(crate) use rules::model;

use crate::explore::NOBODY;
use crate::explore::Protocol;
use crate::explore::SERVER;
use crate::explore::Step;
use crate::latches::rules::Switch;

/// What may happen, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    /// The last tick.
    pub ticks: u8,
    /// How often a command or its answer is lost.
    pub unknown: u8,
    /// Somebody waits.
    pub waits: bool,
    /// How often a message vanishes.
    pub swallowed: u8,
    /// How often another program sets a new count once the latch was open.
    pub renewed: u8,
}

/// The protocol within a scope, with at most one rule broken.
#[derive(Debug, Clone, Copy)]
pub struct Latches {
    /// What may happen.
    pub scope: Scope,
    /// The rule that is broken.
    pub(crate) switch: Option<Switch>,
}

const CALLS: usize = 3;
/// So long a command may be executed.
const DEADLINE: u8 = 2;
/// So long after that its outcome is kept.
const KEPT: u8 = 2;

/// What the server says to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Said {
    /// It had an effect.
    Done,
    /// There was a count, or there was no latch.
    Nothing,
    /// Nothing is done any more, and nothing is known of a copy that did something.
    Late(u8),
}

/// What a caller is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Told {
    Done,
    Nothing,
    NotExecuted,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Call {
    Todo,
    Running { not_after: u8, on_wire: bool, may_be_done: bool },
    Returned(Told),
}

/// A copy of a command, or the answer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Copied {
    call: u8,
    not_after: u8,
    /// The client waits for the answer to this one.
    awaited: bool,
    said: Option<Said>,
}

/// What the server remembers of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Memory {
    call: u8,
    said: Said,
    until: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Waiter {
    Nobody,
    /// It has seen a count, and subscribes.
    Subscribing,
    Looking,
    Asleep,
    LetThrough,
}

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    now: u8,
    count: Option<u8>,
    /// The latch was open once.
    opened: bool,
    memories: Vec<Memory>,
    calls: [Call; CALLS],
    effects: [u8; CALLS],
    wire: Vec<Copied>,
    waiter: Waiter,
    subscribed: bool,
    messages: u8,
    unknown: u8,
    swallowed: u8,
    renewed: u8,
    flaw: Option<&'static str>,
}

impl Protocol for Latches {
    type State = State;

    fn start(&self) -> State {
        State {
            now: 0,
            count: None,
            opened: false,
            memories: Vec::new(),
            calls: [Call::Todo; CALLS],
            effects: [0; CALLS],
            wire: Vec::new(),
            waiter: Waiter::Nobody,
            subscribed: false,
            messages: 0,
            unknown: self.scope.unknown,
            swallowed: self.scope.swallowed,
            renewed: self.scope.renewed,
            flaw: None,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        self.time(state, next);
        for call in 0..CALLS {
            self.caller(state, call, next);
        }
        self.network(state, next);
        if self.scope.waits {
            self.waiter(state, next);
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        let asleep = state.waiter == Waiter::Asleep && state.messages == 0;
        let over = state.opened && state.count.is_none();
        // What vanished without a trace is what the longest sleep is for.
        let by_itself = state.swallowed < self.scope.swallowed && !self.breaks(Switch::NoFallback);
        if asleep && over && !by_itself {
            return Some("nobody sleeps on when the count is zero");
        }
        state.flaw
    }
}

impl Latches {
    fn breaks(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }

    fn time(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.now >= self.scope.ticks {
            return;
        }
        let mut later = state.clone();
        later.now += 1;
        let now = later.now;
        later.memories.retain(|memory| memory.until >= now);
        // Of these nobody will ever hear.
        later.wire.retain(|copy| copy.awaited || copy.not_after >= now);
        next.push((Step::about(NOBODY, "a tick passes: it is", now), later));
    }

    // ---- the client

    fn caller(&self, state: &State, call: usize, next: &mut Vec<(Step, State)>) {
        let about = call as u8 + 1;
        let mut step = |what, change: &dyn Fn(&mut State)| {
            let mut state = state.clone();
            change(&mut state);
            next.push((Step::about(1, what, about), state));
        };
        match state.calls[call] {
            Call::Todo => step("calls", &|state| {
                let not_after = state.now + DEADLINE;
                self.send(state, call, not_after, false);
            }),
            Call::Running { not_after, on_wire: false, may_be_done } => {
                if state.now <= not_after + KEPT {
                    step("sends again", &|state| self.send(state, call, not_after, may_be_done));
                } else {
                    step("gives up", &|state| self.tell(state, call, Told::Unknown));
                }
            }
            Call::Running { .. } | Call::Returned(_) => {}
        }
    }

    fn send(&self, state: &mut State, call: usize, not_after: u8, may_be_done: bool) {
        // Broken: each copy may be executed for as long as if it were the first.
        let own = self.breaks(Switch::DeadlineOfEachCopy);
        let not_after = if own { state.now + DEADLINE } else { not_after };
        state.calls[call] = Call::Running { not_after, on_wire: true, may_be_done };
        state.wire.push(Copied { call: call as u8, not_after, awaited: true, said: None });
        state.wire.sort_unstable();
    }

    fn tell(&self, state: &mut State, call: usize, told: Told) {
        let did = state.effects[call] > 0;
        let wrong = match told {
            Told::Done => !did,
            Told::Nothing | Told::NotExecuted => did,
            Told::Unknown => false,
        };
        if wrong {
            state.flaw = Some("a caller is told what is true");
        }
        state.calls[call] = Call::Returned(told);
    }

    fn hear(&self, state: &mut State, call: usize, said: Said) {
        let Call::Running { not_after, may_be_done, .. } = state.calls[call] else { return };
        let told = match said {
            Said::Done => Told::Done,
            Said::Nothing => Told::Nothing,
            // If a copy had been executed, that would still be known.
            Said::Late(time) if time <= not_after + KEPT => Told::NotExecuted,
            Said::Late(_) if !may_be_done || self.breaks(Switch::LateIsNotExecuted) => {
                Told::NotExecuted
            }
            Said::Late(_) => Told::Unknown,
        };
        self.tell(state, call, told);
    }

    // ---- the network and the server

    fn network(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (at, copy) in state.wire.iter().enumerate() {
            if at > 0 && state.wire[at - 1] == *copy {
                continue;
            }
            let (call, about) = (usize::from(copy.call), copy.call + 1);
            let without = || {
                let mut state = state.clone();
                state.wire.remove(at);
                state
            };
            match copy.said {
                None => {
                    let mut state = without();
                    let said = self.execute(&mut state, copy);
                    if copy.awaited {
                        state.wire.push(Copied { said: Some(said), ..*copy });
                        state.wire.sort_unstable();
                    }
                    next.push((Step::about(SERVER, "gets the command of call", about), state));
                }
                Some(said) => {
                    let mut state = without();
                    self.hear(&mut state, call, said);
                    next.push((Step::about(1, "gets the answer to call", about), state));
                }
            }
            if copy.awaited && state.unknown > 0 {
                let mut state = without();
                state.unknown -= 1;
                if copy.said.is_none() {
                    // It may still arrive.
                    state.wire.push(Copied { awaited: false, ..*copy });
                    state.wire.sort_unstable();
                }
                if let Call::Running { on_wire, may_be_done, .. } = &mut state.calls[call] {
                    (*on_wire, *may_be_done) = (false, true);
                }
                next.push((Step::about(1, "gets no answer to call", about), state));
            }
        }
    }

    fn execute(&self, state: &mut State, copy: &Copied) -> Said {
        let sets = copy.call == 0;
        let nameless = if sets { Switch::SetHasNoId } else { Switch::CountDownHasNoId };
        let has_id = !self.breaks(nameless);
        let known = state.memories.iter().find(|memory| memory.call == copy.call);
        if let Some(memory) = known.filter(|_| has_id) {
            return memory.said;
        }
        if state.now > copy.not_after {
            return Said::Late(state.now);
        }
        let does = sets == state.count.is_none();
        let said = if does { Said::Done } else { Said::Nothing };
        if does {
            self.change(state, copy.call, sets);
        }
        let forgotten = !sets && !does && self.breaks(Switch::AbsenceIsForgotten);
        if has_id && !forgotten {
            let ends = self.breaks(Switch::MemoryEndsWithDeadline)
                || self.breaks(Switch::DeadlineOfEachCopy);
            let until = copy.not_after + if ends { 0 } else { KEPT };
            state.memories.push(Memory { call: copy.call, said, until });
            state.memories.sort_unstable();
        }
        said
    }

    fn change(&self, state: &mut State, call: u8, sets: bool) {
        let call = usize::from(call);
        state.effects[call] += 1;
        if state.effects[call] > 1 {
            state.flaw = Some("a call has one effect");
        }
        if matches!(state.calls[call], Call::Returned(told) if told != Told::Unknown) {
            state.flaw = Some("a call has no effect after its end");
        }
        if sets {
            state.count = Some(1);
        } else {
            state.count = None;
            state.opened = true;
            state.messages += u8::from(state.subscribed);
        }
    }

    // ---- somebody who waits

    fn waiter(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let mut step = |what, change: &dyn Fn(&mut State)| {
            let mut state = state.clone();
            change(&mut state);
            next.push((Step::new(0, what), state));
        };
        match state.waiter {
            Waiter::Nobody if state.count.is_some() => {
                step("sees a count, and subscribes", &|state| state.waiter = Waiter::Subscribing);
            }
            Waiter::Subscribing => step("is subscribed", &|state| {
                state.subscribed = true;
                let sleeps = self.breaks(Switch::NoLookOnceSubscribed);
                state.waiter = if sleeps { Waiter::Asleep } else { Waiter::Looking };
            }),
            Waiter::Looking => step("looks", &|state| {
                let over = state.count.is_none();
                state.waiter = if over { Waiter::LetThrough } else { Waiter::Asleep };
            }),
            Waiter::Asleep if state.messages > 0 => {
                step("hears a message", &|state| {
                    state.messages -= 1;
                    state.waiter = Waiter::Looking;
                    if self.breaks(Switch::MessageOpens) {
                        state.waiter = Waiter::LetThrough;
                        if state.count.is_some() {
                            state.flaw = Some("nobody is let through while there is a count");
                        }
                    }
                });
                if state.swallowed > 0 {
                    step("a message to it vanishes", &|state| {
                        state.swallowed -= 1;
                        state.messages -= 1;
                    });
                }
            }
            Waiter::Asleep if !self.breaks(Switch::NoFallback) => {
                step("its sleep ends by itself", &|state| state.waiter = Waiter::Looking);
            }
            Waiter::Nobody | Waiter::Asleep | Waiter::LetThrough => {}
        }
        if state.opened && state.count.is_none() && state.renewed > 0 {
            step("another program sets a new count", &|state| {
                state.renewed -= 1;
                state.count = Some(1);
            });
        }
    }
}
