//! Wake-ups: clients whose waiters sleep until a message says that the lock may be free.
//!
//! Each client has a connection for messages, on which everything keeps its order, and which can be
//! cut: what the client had received from the old connection may then be looked at late. Attempts
//! go another way, and are neither lost nor repeated here. There is no clock: a sleep has a timer
//! or it has none, and a lock that was freed with a message must be tried for without one.

mod rules;

pub(crate) use rules::model;

use crate::explore::Protocol;
use crate::explore::SERVER;
use crate::explore::Step;
use crate::wakeups::rules::Switch;

/// What may happen, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    /// Callers of each client.
    pub arrivals: &'static [u8],
    /// How often a caller gives up.
    pub cancels: u8,
    /// How often a connection is cut.
    pub cuts: u8,
    /// How often something on a connection for messages vanishes without a trace.
    pub swallowed: u8,
    /// How often a key vanishes without a message: it expires, or somebody deletes it.
    pub removals: u8,
    /// How often a client that is not part of the model takes the lock.
    pub strangers: u8,
    /// How often a sleep ends by its timer although something else would have ended it.
    pub timers: u8,
}

/// The protocol within a scope, with at most one rule broken.
#[derive(Debug, Clone, Copy)]
pub struct Wakeups {
    /// What may happen.
    pub scope: Scope,
    /// The rule that is broken.
    pub(crate) switch: Option<Switch>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lock {
    /// `told`: with a message.
    Free {
        told: bool,
    },
    Stranger,
    Of(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Attempt {
    None,
    Sent { wanted: bool },
    Answered { granted: bool, wanted: bool },
}

/// What a client has of the lock; as long as it is not `Nothing` its waiters stay behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Local {
    Nothing,
    Held,
    /// The key is gone, which nobody has noticed.
    Removed,
    ReleaseSent {
        undo: bool,
    },
    ReleaseAnswered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ToServer {
    Subscribe(u8),
    Unsubscribe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ToClient {
    Confirmed(u8),
    WakeUp,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Client {
    arrivals: u8,
    waiting: u8,
    /// The contender has to try.
    duty: bool,
    /// The contender's sleep ends by itself.
    timer: bool,
    attempt: Attempt,
    local: Local,
    wanted: bool,
    /// This is not the first SUBSCRIBE since it was wanted.
    again: bool,
    generation: u8,
    confirmed: bool,
    linked: bool,
    /// As the server sees it.
    subscribed: bool,
    to_server: Vec<ToServer>,
    to_client: Vec<ToClient>,
    /// Received from a connection that has ended, and not looked at yet.
    late: Vec<ToClient>,
}

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    lock: Lock,
    clients: Vec<Client>,
    cancels: u8,
    cuts: u8,
    swallowed: u8,
    removals: u8,
    strangers: u8,
    timers: u8,
}

impl Client {
    fn new(arrivals: u8) -> Self {
        Self {
            arrivals,
            waiting: 0,
            duty: false,
            timer: false,
            attempt: Attempt::None,
            local: Local::Nothing,
            wanted: false,
            again: false,
            generation: 0,
            confirmed: false,
            linked: true,
            subscribed: false,
            to_server: Vec::new(),
            to_client: Vec::new(),
            late: Vec::new(),
        }
    }

    fn sleeps(&self) -> bool {
        self.waiting > 0
            && self.local == Local::Nothing
            && self.attempt == Attempt::None
            && !self.duty
    }

    /// Something is under way that may still end its sleep.
    fn has_hope(&self) -> bool {
        !self.linked
            || self.to_server.iter().any(|item| matches!(item, ToServer::Subscribe(_)))
            || !self.to_client.is_empty()
            || !self.late.is_empty()
    }

    fn subscribe(&mut self) {
        self.generation += 1;
        self.confirmed = false;
        if self.linked {
            self.to_server.push(ToServer::Subscribe(self.generation));
        }
    }
}

impl Protocol for Wakeups {
    type State = State;

    fn start(&self) -> State {
        State {
            lock: Lock::Stranger,
            clients: self.scope.arrivals.iter().map(|arrivals| Client::new(*arrivals)).collect(),
            cancels: self.scope.cancels,
            cuts: self.scope.cuts,
            swallowed: self.scope.swallowed,
            removals: self.scope.removals,
            strangers: self.scope.strangers,
            timers: self.scope.timers,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        self.lock_steps(state, next);
        for number in 0..state.clients.len() {
            let mut each = Each { model: self, state, number, next };
            each.callers();
            each.attempts();
            each.hold();
            each.connection();
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        let Lock::Free { told } = state.lock else { return None };
        // What vanished without a trace is what timers are for.
        let timer_will_do = !told || state.swallowed < self.scope.swallowed;
        let lost = |client: &Client| {
            client.sleeps() && !client.has_hope() && !(timer_will_do && client.timer)
        };
        let any = state.clients.iter().any(lost);
        any.then_some("no lost wake-up: nobody sleeps on while the lock is free")
    }
}

impl Wakeups {
    fn breaks(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }

    fn lock_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        match state.lock {
            Lock::Stranger => {
                let mut released = state.clone();
                publish(&mut released);
                next.push((Step::new(SERVER, "a stranger releases, which is published"), released));
            }
            Lock::Free { .. } if state.strangers > 0 => {
                let mut taken = state.clone();
                taken.strangers -= 1;
                taken.lock = Lock::Stranger;
                next.push((Step::new(SERVER, "a stranger takes the lock"), taken));
            }
            _ => {}
        }
        if state.removals > 0 && !matches!(state.lock, Lock::Free { .. }) {
            let mut removed = state.clone();
            removed.removals -= 1;
            if let Lock::Of(client) = removed.lock {
                let local = &mut removed.clients[usize::from(client)].local;
                if *local == Local::Held {
                    *local = Local::Removed;
                }
            }
            removed.lock = Lock::Free { told: false };
            next.push((Step::new(SERVER, "the key vanishes, which nobody is told"), removed));
        }
    }
}

fn publish(state: &mut State) {
    state.lock = Lock::Free { told: true };
    for client in state.clients.iter_mut().filter(|client| client.subscribed) {
        client.to_client.push(ToClient::WakeUp);
    }
}

/// The steps of one client.
struct Each<'a> {
    model: &'a Wakeups,
    state: &'a State,
    number: usize,
    next: &'a mut Vec<(Step, State)>,
}

impl Each<'_> {
    fn client(&self) -> &Client {
        &self.state.clients[self.number]
    }

    fn id(&self) -> u8 {
        u8::try_from(self.number).unwrap_or(u8::MAX)
    }

    fn step(&mut self, what: &'static str, change: impl FnOnce(&mut State, &mut Client)) {
        let mut state = self.state.clone();
        let mut client = state.clients[self.number].clone();
        change(&mut state, &mut client);
        state.clients[self.number] = client;
        self.next.push((Step::new(self.id(), what), state));
    }

    // ---- callers

    fn callers(&mut self) {
        if self.client().arrivals > 0 {
            self.step("a caller begins to wait", |_, client| {
                client.arrivals -= 1;
                // The first one has to try; behind others there is nothing to do.
                client.duty |= client.waiting == 0 && client.local == Local::Nothing;
                client.waiting += 1;
            });
        }
        if self.state.cancels > 0 && self.client().waiting > 0 {
            let forgets = self.model.breaks(Switch::RoleWithoutDuty);
            self.step("the contender gives up", |state, client| {
                state.cancels -= 1;
                client.waiting -= 1;
                client.duty &= !forgets && client.waiting > 0;
                match &mut client.attempt {
                    Attempt::Sent { wanted } | Attempt::Answered { wanted, .. } => *wanted = false,
                    Attempt::None => {}
                }
            });
        }
        let client = self.client();
        if client.waiting == 0 && client.wanted {
            self.step("lets its subscription go", |_, client| {
                client.wanted = false;
                client.confirmed = false;
                if client.linked {
                    client.to_server.push(ToServer::Unsubscribe);
                }
            });
        }
    }

    // ---- attempts

    fn attempts(&mut self) {
        let client = self.client();
        let may_try = client.waiting > 0 && client.local == Local::Nothing;
        match client.attempt {
            Attempt::None if may_try && client.duty => self.step("tries", |_, client| {
                client.duty = false;
                client.timer = false;
                client.attempt = Attempt::Sent { wanted: true };
            }),
            Attempt::None if may_try && client.timer && self.state.timers > 0 => {
                self.step("its sleep is over", |state, client| {
                    state.timers -= 1;
                    client.timer = false;
                    client.duty = true;
                });
            }
            Attempt::Sent { wanted } => {
                let id = self.id();
                self.step("its attempt reaches the server", |state, client| {
                    let granted = matches!(state.lock, Lock::Free { .. });
                    if granted {
                        state.lock = Lock::Of(id);
                    }
                    client.attempt = Attempt::Answered { granted, wanted };
                });
            }
            Attempt::Answered { granted: true, wanted } => {
                self.step("hears that it is granted", |_, client| {
                    client.attempt = Attempt::None;
                    if wanted {
                        client.waiting -= 1;
                        client.local = Local::Held;
                    } else {
                        client.local = Local::ReleaseSent { undo: true };
                    }
                })
            }
            Attempt::Answered { granted: false, .. } => self.refused(),
            Attempt::None => {}
        }
    }

    fn refused(&mut self) {
        let no_timer = self.model.breaks(Switch::NoTimerBeforeConfirmation);
        self.step("hears that another has it", |_, client| {
            client.attempt = Attempt::None;
            if client.waiting == 0 {
                return;
            }
            if !client.wanted {
                client.wanted = true;
                client.again = false;
                client.subscribe();
            }
            client.timer = !no_timer || client.confirmed;
        });
    }

    // ---- the client's own hold

    fn hold(&mut self) {
        match self.client().local {
            Local::Held => {
                self.step("releases", |_, client| client.local = Local::ReleaseSent { undo: false })
            }
            Local::Removed => {
                let silent = self.model.breaks(Switch::LocalLossWakesNobody);
                self.step("notices that its hold is lost", |_, client| {
                    client.local = Local::Nothing;
                    client.duty |= !silent && client.waiting > 0;
                });
            }
            Local::ReleaseSent { undo } => {
                let silent = undo && self.model.breaks(Switch::UndoDoesNotPublish);
                let id = self.id();
                self.step("its release reaches the server", |state, client| {
                    client.local = Local::ReleaseAnswered;
                    if state.lock != Lock::Of(id) {
                        return;
                    }
                    if silent {
                        state.lock = Lock::Free { told: true };
                        return;
                    }
                    publish(state);
                    if client.subscribed {
                        client.to_client.push(ToClient::WakeUp);
                    }
                });
            }
            Local::ReleaseAnswered => self.step("hears that its hold is released", |_, client| {
                client.local = Local::Nothing;
                client.duty |= client.waiting > 0;
            }),
            Local::Nothing => {}
        }
    }

    // ---- the connection for messages

    fn connection(&mut self) {
        if !self.client().linked {
            return self.relink();
        }
        if self.state.cuts > 0 {
            for received in [false, true] {
                if received && self.client().to_client.is_empty() {
                    continue;
                }
                let what = if received { "is cut off, with unread messages" } else { "is cut off" };
                self.step(what, |state, client| cut(state, client, received));
            }
        }
        if let Some(item) = self.client().to_server.first().copied() {
            let what = match item {
                ToServer::Subscribe(_) => "its SUBSCRIBE reaches the server",
                ToServer::Unsubscribe => "its UNSUBSCRIBE reaches the server",
            };
            self.step(what, |_, client| {
                client.to_server.remove(0);
                client.subscribed = matches!(item, ToServer::Subscribe(_));
                if let ToServer::Subscribe(generation) = item {
                    client.to_client.push(ToClient::Confirmed(generation));
                }
            });
            if self.state.swallowed > 0 {
                self.step("what it sent to the server vanishes", |state, client| {
                    state.swallowed -= 1;
                    client.to_server.remove(0);
                });
            }
        }
        self.receive();
    }

    fn relink(&mut self) {
        self.step("is connected again", |_, client| {
            client.linked = true;
            if client.wanted {
                client.again = true;
                client.subscribe();
            }
        });
        self.receive_late();
    }

    fn receive(&mut self) {
        if let Some(item) = self.client().to_client.first().copied() {
            let model = self.model;
            self.step(words(item), |_, client| {
                client.to_client.remove(0);
                model.received(client, item);
            });
            if self.state.swallowed > 0 {
                self.step("what the server sent to it vanishes", |state, client| {
                    state.swallowed -= 1;
                    client.to_client.remove(0);
                });
            }
        }
        self.receive_late();
    }

    fn receive_late(&mut self) {
        if let Some(item) = self.client().late.first().copied() {
            let model = self.model;
            self.step("looks at what an old connection had brought", |_, client| {
                client.late.remove(0);
                model.received(client, item);
            });
        }
    }
}

impl Wakeups {
    fn received(&self, client: &mut Client, item: ToClient) {
        match item {
            ToClient::WakeUp => {
                let dropped =
                    self.breaks(Switch::PendingWakeUpDropped) && client.attempt != Attempt::None;
                client.duty |= client.wanted && client.waiting > 0 && !dropped;
            }
            ToClient::Confirmed(generation) => self.confirmed(client, generation),
        }
    }

    fn confirmed(&self, client: &mut Client, generation: u8) {
        let counts = if self.breaks(Switch::StaleConfirmation) {
            // Without generations: the first one to come is taken, and a second one says nothing
            // new.
            client.wanted && !client.confirmed
        } else {
            client.wanted && generation == client.generation
        };
        if !counts {
            return;
        }
        client.confirmed = true;
        let broken =
            if client.again { Switch::NoWakeOnResubscribe } else { Switch::SubscribeWithoutRetry };
        client.duty |= client.waiting > 0 && !self.breaks(broken);
    }
}

fn cut(state: &mut State, client: &mut Client, received: bool) {
    state.cuts -= 1;
    client.linked = false;
    client.subscribed = false;
    client.confirmed = false;
    client.to_server.clear();
    let items = std::mem::take(&mut client.to_client);
    if received {
        client.late.extend(items);
    }
}

fn words(item: ToClient) -> &'static str {
    match item {
        ToClient::Confirmed(_) => "hears that it is subscribed",
        ToClient::WakeUp => "hears a wake-up",
    }
}
