//! Single flight: many callers want a value that is missing; one of them computes it, and the
//! others wait for that without taking the lock.
//!
//! Each client is a process. One of its callers, the delegate, deals with the lock for all callers of
//! the process; the others follow it. A delegate that is refused watches the holder: it subscribes,
//! looks who has the lock, and sleeps until that one is gone. Looks at the lock take time, and
//! messages may come meanwhile; an attempt and a look for the value are one step each.

mod rules;

pub(crate) use rules::model;

use crate::explore::NOBODY;
use crate::explore::Protocol;
use crate::explore::SERVER;
use crate::explore::Step;
use crate::flights::rules::Switch;

/// What may happen, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    /// Callers of each client.
    pub arrivals: &'static [u8],
    /// How often a computation fails.
    pub failures: u8,
    /// How often a process dies while it leads.
    pub deaths: u8,
    /// How often a leader's lease ends although its process lives.
    pub losses: u8,
    /// How often a delegate gives up.
    pub cancels: u8,
    /// How often the value vanishes.
    pub removals: u8,
    /// How often a message vanishes without a trace.
    pub swallowed: u8,
}

/// The protocol within a scope, with at most one rule broken.
#[derive(Debug, Clone, Copy)]
pub struct Flights {
    /// What may happen.
    pub scope: Scope,
    /// The rule that is broken.
    pub(crate) switch: Option<Switch>,
}

/// What the delegate of a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// There is no delegate.
    None,
    Look,
    Try,
    Subscribe,
    Watch,
    /// It has the lock, and looks once more.
    Lead,
    Compute,
    Store,
    /// It has failed, and waits for its release.
    Release,
}

/// A look at the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Inspection {
    None,
    Sent,
    /// Who had the lock; 0 is nobody.
    Answered(u8),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Client {
    arrivals: u8,
    followers: u8,
    phase: Phase,
    /// The hold of a leader.
    own: u8,
    /// A hold whose release is on its way.
    leaving: u8,
    /// The value was there when its last wait was over.
    could_know: bool,
    subscribed: bool,
    messages: u8,
    inspection: Inspection,
    /// Something has happened since the look at the lock was sent.
    again: bool,
    /// The hold that it watches; 0 as long as it has not looked.
    watched: u8,
    /// Its sleep ends by itself.
    timer: bool,
}

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The hold that has the lock; 0 is none.
    holder: u8,
    /// The process of the holder is gone.
    orphaned: bool,
    holds: u8,
    value: bool,
    /// The lock was free once without a message.
    silent: bool,
    clients: Vec<Client>,
    failures: u8,
    deaths: u8,
    losses: u8,
    cancels: u8,
    removals: u8,
    swallowed: u8,
    flaw: Option<&'static str>,
}

/// A hold of somebody who only wanted the lock.
const STRANGER: u8 = 200;

impl Client {
    fn new(arrivals: u8) -> Self {
        Self {
            arrivals,
            followers: 0,
            phase: Phase::None,
            own: 0,
            leaving: 0,
            could_know: false,
            subscribed: false,
            messages: 0,
            inspection: Inspection::None,
            again: false,
            watched: 0,
            timer: false,
        }
    }

    fn computes(&self) -> bool {
        matches!(self.phase, Phase::Compute | Phase::Store)
    }

    /// Nothing but a timer will end its sleep.
    fn sleeps(&self) -> bool {
        self.phase == Phase::Watch
            && self.watched != 0
            && self.messages == 0
            && self.inspection == Inspection::None
    }

    /// The value is there for the delegate and all who follow it by now.
    fn serve(&mut self) {
        self.followers = 0;
        self.phase = Phase::None;
    }

    fn looks_at_lock(&mut self) {
        self.inspection = Inspection::Sent;
        self.again = false;
        self.timer = false;
    }
}

impl Protocol for Flights {
    type State = State;

    fn start(&self) -> State {
        let Scope { failures, deaths, losses, cancels, removals, swallowed, .. } = self.scope;
        State {
            holder: 0,
            orphaned: false,
            holds: 0,
            value: false,
            silent: false,
            clients: self.scope.arrivals.iter().map(|arrivals| Client::new(*arrivals)).collect(),
            failures,
            deaths,
            losses,
            cancels,
            removals,
            swallowed,
            flaw: None,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.orphaned {
            let mut expired = state.clone();
            (expired.holder, expired.orphaned, expired.silent) = (0, false, true);
            next.push((Step::new(SERVER, "the lease of the dead leader ends"), expired));
        }
        if state.value && state.removals > 0 {
            let mut removed = state.clone();
            removed.removals -= 1;
            removed.value = false;
            removed.clients.iter_mut().for_each(|client| client.could_know = false);
            next.push((Step::new(NOBODY, "the value vanishes"), removed));
        }
        for number in 0..state.clients.len() {
            let mut each = Each { model: self, state, number, next };
            each.callers();
            each.delegate();
            each.leader();
            each.watcher();
            each.release();
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        if state.flaw.is_some() {
            return state.flaw;
        }
        if state.clients.iter().filter(|client| client.computes()).count() > 1 {
            return Some("no two compute at the same time");
        }
        if state.clients.iter().any(|client| client.phase == Phase::None && client.followers > 0) {
            return Some("nobody follows a delegate that is gone");
        }
        // What came without a message is what timers are for.
        let timer_will_do = state.silent || state.swallowed < self.scope.swallowed;
        let lost = |client: &Client| {
            client.sleeps() && client.watched != state.holder && !(timer_will_do && client.timer)
        };
        let any = state.clients.iter().any(lost);
        any.then_some("nobody sleeps on when the holder that it watches is gone")
    }
}

impl Flights {
    fn breaks(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }

    /// The delegate's part is over without a value: the next one of its process goes on.
    fn pass_on(&self, value: bool, client: &mut Client) {
        client.own = 0;
        client.inspection = Inspection::None;
        client.phase = Phase::None;
        if client.followers == 0 || self.breaks(Switch::RoleEndsWithDelegate) {
            return;
        }
        client.followers -= 1;
        client.could_know = value;
        let untold = self.breaks(Switch::SuccessorTriesFirst);
        client.phase = if untold { Phase::Try } else { Phase::Look };
    }
}

fn publish(state: &mut State, sender: &mut Client) {
    let others = state.clients.iter_mut().filter(|client| client.subscribed);
    others.for_each(|client| client.messages += 1);
    sender.messages += u8::from(sender.subscribed);
}

/// The steps of one client.
struct Each<'a> {
    model: &'a Flights,
    state: &'a State,
    number: usize,
    next: &'a mut Vec<(Step, State)>,
}

impl Each<'_> {
    fn client(&self) -> &Client {
        &self.state.clients[self.number]
    }

    fn step(&mut self, what: &'static str, change: impl FnOnce(&Flights, &mut State, &mut Client)) {
        let mut state = self.state.clone();
        let mut client = state.clients[self.number].clone();
        // So that what concerns all clients finds the others only.
        state.clients[self.number].subscribed = false;
        change(self.model, &mut state, &mut client);
        state.clients[self.number] = client;
        let who = u8::try_from(self.number).unwrap_or(u8::MAX);
        self.next.push((Step::new(who, what), state));
    }

    // ---- callers

    fn callers(&mut self) {
        if self.client().arrivals > 0 {
            self.step("a caller looks for the value", |_, state, client| {
                client.arrivals -= 1;
                match client.phase {
                    _ if state.value => {}
                    Phase::None => client.phase = Phase::Try,
                    _ => client.followers += 1,
                }
            });
        }
        let client = self.client();
        let waits = client.phase != Phase::None && client.phase != Phase::Release;
        if self.state.cancels > 0 && waits {
            self.step("the delegate gives up", |model, state, client| {
                state.cancels -= 1;
                client.leaving = client.leaving.max(client.own);
                model.pass_on(state.value, client);
            });
        }
    }

    fn delegate(&mut self) {
        match self.client().phase {
            Phase::Look if self.state.value => {
                self.step("finds the value", |_, _, client| client.serve());
            }
            Phase::Look => {
                self.step("finds no value", |_, _, client| client.phase = Phase::Try);
            }
            Phase::Try if self.state.holder == 0 => {
                self.step("gets the lock", |model, state, client| {
                    if state.value && client.could_know {
                        state.flaw = Some("nobody who has waited takes the lock after a success");
                    }
                    state.holds += 1;
                    state.holder = state.holds;
                    client.own = state.holds;
                    let hasty = model.breaks(Switch::NoSecondLook);
                    client.phase = if hasty { Phase::Compute } else { Phase::Lead };
                    if hasty && state.value {
                        state.flaw = Some("nothing is computed that is there");
                    }
                })
            }
            Phase::Try => self.step("is refused", |model, state, client| {
                client.watched = 0;
                if client.subscribed {
                    client.phase = Phase::Watch;
                    client.looks_at_lock();
                } else {
                    client.phase = Phase::Subscribe;
                }
                if model.breaks(Switch::SubscribeWithoutLook) {
                    client.watched = state.holder;
                }
            }),
            _ => {}
        }
    }

    // ---- the leader

    fn leader(&mut self) {
        match self.client().phase {
            Phase::Lead if self.state.value => {
                self.step("looks once more, and finds the value", |_, _, client| {
                    client.leaving = client.own;
                    client.serve();
                });
            }
            Phase::Lead => self.step("looks once more, and computes", |_, _, client| {
                client.phase = Phase::Compute;
            }),
            Phase::Compute => {
                self.step("has computed the value", |model, _, client| {
                    client.phase = Phase::Store;
                    if model.breaks(Switch::StoreAfterRelease) {
                        client.leaving = client.own;
                    }
                });
                if self.state.failures > 0 {
                    self.step("cannot compute the value", |_, state, client| {
                        state.failures -= 1;
                        client.leaving = client.own;
                        client.phase = Phase::Release;
                    });
                }
            }
            Phase::Store => self.step("stores the value", |_, state, client| {
                state.value = true;
                client.leaving = client.leaving.max(client.own);
                client.serve();
            }),
            _ => {}
        }
        self.ends_of_leaders();
    }

    fn ends_of_leaders(&mut self) {
        let client = self.client();
        let leads = matches!(client.phase, Phase::Lead | Phase::Compute | Phase::Store);
        if !leads || self.state.holder != client.own {
            return;
        }
        if self.state.deaths > 0 {
            self.step("its process dies", |_, state, client| {
                state.deaths -= 1;
                state.orphaned = true;
                *client = Client::new(0);
            });
        }
        if self.state.losses > 0 {
            self.step("its lease ends, and so does what it does", |model, state, client| {
                state.losses -= 1;
                (state.holder, state.silent) = (0, true);
                if !model.breaks(Switch::LossIsIgnored) {
                    model.pass_on(state.value, client);
                }
            });
        }
    }

    /// A release on its way. It frees the lock only if that is still its hold's.
    fn release(&mut self) {
        if self.client().leaving == 0 {
            return;
        }
        self.step("its release reaches the server", |model, state, client| {
            let hold = std::mem::take(&mut client.leaving);
            client.own = if client.own == hold { 0 } else { client.own };
            if state.holder == hold {
                state.holder = 0;
                if model.breaks(Switch::ReleaseHandsOff) {
                    state.holder = STRANGER;
                } else {
                    publish(state, client);
                }
            }
            if client.phase == Phase::Release {
                model.pass_on(state.value, client);
            }
        });
    }

    // ---- watching

    fn watcher(&mut self) {
        let client = self.client();
        if client.phase == Phase::Subscribe {
            self.step("is subscribed", |model, _, client| {
                client.subscribed = true;
                client.phase = Phase::Watch;
                client.timer = !model.breaks(Switch::NoTimer);
                if !model.breaks(Switch::SubscribeWithoutLook) {
                    client.looks_at_lock();
                }
            });
            return;
        }
        if client.messages > 0 {
            self.step("hears a message", |model, _, client| {
                client.messages -= 1;
                model.is_told(client);
            });
            if self.state.swallowed > 0 {
                self.step("a message to it vanishes", |_, state, client| {
                    state.swallowed -= 1;
                    client.messages -= 1;
                });
            }
        }
        let client = self.client();
        if client.phase != Phase::Watch {
            return;
        }
        match client.inspection {
            Inspection::Sent => self.step("its look reaches the server", |_, state, client| {
                client.inspection = Inspection::Answered(state.holder);
            }),
            Inspection::Answered(holder) => {
                self.step("hears who has the lock", |model, state, client| {
                    model.has_looked(state.value, client, holder);
                });
            }
            Inspection::None if client.timer => {
                self.step("its sleep is over", |_, _, client| client.looks_at_lock());
            }
            Inspection::None => {}
        }
    }
}

impl Flights {
    fn is_told(&self, client: &mut Client) {
        match (client.phase, client.inspection) {
            (Phase::Watch, Inspection::None) => client.looks_at_lock(),
            (Phase::Watch, _) => client.again = !self.breaks(Switch::MessageDuringLookDropped),
            _ => {}
        }
    }

    fn has_looked(&self, value: bool, client: &mut Client, holder: u8) {
        client.inspection = Inspection::None;
        let other = client.watched != 0 && client.watched != holder;
        if holder == 0 || other && !self.breaks(Switch::WatchesAnyHolder) {
            client.could_know = value;
            let hasty = self.breaks(Switch::TriesBeforeLooking);
            client.phase = if hasty { Phase::Try } else { Phase::Look };
            return;
        }
        if client.watched == 0 {
            client.watched = holder;
        }
        client.timer = !self.breaks(Switch::NoTimer);
        if client.again {
            client.looks_at_lock();
        }
    }
}
