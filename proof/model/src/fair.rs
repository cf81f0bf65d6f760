//! The fair lock: every waiter has a place of its own in the line, over all clients.
//!
//! What waiting is like in general (subscriptions, tickets, slots that move) is in [`crate::line`].
//! Here is what is different: also a first attempt looks at the line, the clients that let a
//! reservation run out are *marked*, and those who pass the lock on skip the places of marked
//! clients, so that a dead client with many waiters costs the others one reservation.
//!
//! An attempt is executed as soon as it is sent, unless a fault is drawn: then its client never
//! learns what came of it. Messages are late. There is no clock: what is reserved runs out only if
//! nothing picks it up.

mod rules;
mod scripts;

pub(crate) use rules::model;

use crate::explore::NOBODY;
use crate::explore::Protocol;
use crate::explore::Step;
use crate::fair::rules::Switch;

/// What may happen, and how often: the bounds of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    /// The client of each waiter. Each wants the lock once.
    pub waiters: &'static [u8],
    /// They come one after the other, in this order.
    pub in_order: bool,
    /// How many places of marked clients one script removes at most.
    pub limit: u8,
    /// How often a waiter gives up.
    pub cancels: u8,
    /// How often a client dies, with all its waiters.
    pub deaths: u8,
    /// How often a client does nothing for a while.
    pub freezes: u8,
    /// How often a message does not reach one of its clients.
    pub lost_messages: u8,
    /// How often an attempt has no answer: it was lost, or its reply, or it is executed later.
    pub unknown: u8,
    /// How often somebody force-unlocks.
    pub forces: u8,
    /// How often the key of the line is lost.
    pub line_losses: u8,
    /// How often somebody asks whether the lock is free, without waiting.
    pub tries: u8,
    /// How often a plain lock of another client takes the lock while it is free.
    pub plains: u8,
}

impl Scope {
    /// Nothing but waiting.
    pub const PLAIN: Self = Self {
        name: "",
        waiters: &[],
        in_order: false,
        limit: 64,
        cancels: 0,
        deaths: 0,
        freezes: 0,
        lost_messages: 0,
        unknown: 0,
        forces: 0,
        line_losses: 0,
        tries: 0,
        plains: 0,
    };
}

/// "Try", to everybody.
const ALL: u8 = 0;
/// The hold of a plain lock.
const PLAIN: u8 = u8::MAX;
/// Ids of holds: the waiter, and how many ids it had before.
const IDS: u8 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Away,
    /// Its next attempt is due.
    Tries,
    Sleeps,
    Holds,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Waiter {
    phase: Phase,
    /// Of its attempts. After an attempt without an answer it has another.
    id: u8,
    /// What its client knows; 0: nothing.
    ticket: u8,
    /// The first ticket that the server gave to it.
    arrived: u8,
    /// Something has gone wrong that costs it time: others may pass until its next attempt.
    excused: bool,
}

impl Waiter {
    fn waits(self) -> bool {
        matches!(self.phase, Phase::Tries | Phase::Sleeps)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Client {
    alive: bool,
    frozen: bool,
    /// A reservation of it ran out, and nothing was heard of it since.
    missed: bool,
    /// How many of its reservations ran out since it died or froze.
    wasted: u8,
}

impl Client {
    fn acts(self) -> bool {
        self.alive && !self.frozen
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Lock {
    id: u8,
    held: bool,
    /// The message about the reservation was lost.
    unheard: bool,
    /// Reserved by a plain lock, which marks nobody.
    unmarked: bool,
}

/// An attempt that will be executed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Late {
    id: u8,
    ticket: u8,
}

/// What an attempt was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Granted,
    /// Another has it; the ticket.
    Waits(u8),
    /// The script has done as much as one may: try at once.
    Again(u8),
}

/// Everything that matters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    lock: Option<Lock>,
    /// Tickets and ids, in their order.
    line: Vec<(u8, u8)>,
    /// A bit for each client.
    marks: u8,
    last_ticket: u8,
    waiters: Vec<Waiter>,
    clients: Vec<Client>,
    /// Client and id.
    messages: Vec<(u8, u8)>,
    /// Ids of unknown attempts that have to be released, and whether they were once.
    dead: Vec<(u8, bool)>,
    late: Vec<Late>,
    left: Scopes,
    /// Sleepers may have to wake up by themselves.
    disturbed: bool,
    broken: Option<&'static str>,
}

/// What may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Scopes {
    cancels: u8,
    deaths: u8,
    freezes: u8,
    lost_messages: u8,
    unknown: u8,
    forces: u8,
    line_losses: u8,
    tries: u8,
    plains: u8,
}

impl State {
    fn waiter(&mut self, waiter: u8) -> &mut Waiter {
        &mut self.waiters[usize::from(waiter)]
    }

    fn tell(&mut self, client: u8, id: u8) {
        if self.clients[usize::from(client)].alive && !self.messages.contains(&(client, id)) {
            self.messages.push((client, id));
            self.messages.sort_unstable();
        }
    }

    /// Those who sleep try.
    fn wake(&mut self, wanted: impl Fn(u8) -> bool) {
        for (number, waiter) in (0..).zip(&mut self.waiters) {
            if waiter.phase == Phase::Sleeps && wanted(number) {
                waiter.phase = Phase::Tries;
            }
        }
    }
}

/// The protocol within a scope; perhaps with one of its rules broken.
#[derive(Debug, Clone, Copy)]
pub struct Fair {
    scope: Scope,
    switch: Option<Switch>,
}

fn waiter_of(id: u8) -> u8 {
    (id - 1) % IDS
}

impl Fair {
    fn is(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }

    fn client_of(&self, id: u8) -> u8 {
        self.scope.waiters[usize::from(waiter_of(id))]
    }

    fn acts(&self, state: &State, waiter: u8) -> bool {
        state.clients[usize::from(self.scope.waiters[usize::from(waiter)])].acts()
    }

    /// The waiter whose present id this is, if it waits.
    fn waiting(&self, state: &State, id: u8) -> Option<u8> {
        let waiter = Some(id).filter(|id| *id != PLAIN).map(waiter_of)?;
        let known = state.waiters[usize::from(waiter)];
        (known.id == id && known.waits()).then_some(waiter)
    }

    // ---- clients

    fn try_once(&self, state: &mut State, waiter: u8) -> &'static str {
        let known = state.waiters[usize::from(waiter)];
        let ticket = if self.is(Switch::TicketIsNotNamed) { 0 } else { known.ticket };
        match self.acquire(state, known.id, ticket) {
            Answer::Granted => {
                state.waiter(waiter).phase = Phase::Holds;
                "gets the lock, waiter"
            }
            Answer::Waits(ticket) => {
                state.waiter(waiter).ticket = ticket;
                state.waiter(waiter).phase = Phase::Sleeps;
                "has to wait, waiter"
            }
            Answer::Again(ticket) => {
                state.waiter(waiter).ticket = ticket;
                "is told to try again, waiter"
            }
        }
    }

    /// Its attempt has no answer: the id is given up, and the next attempt has another.
    fn give_id_up(&self, state: &mut State, waiter: u8) {
        state.disturbed = true;
        let known = state.waiter(waiter);
        let id = known.id;
        known.id += IDS;
        known.excused = true;
        if self.is(Switch::UnknownForgetsTicket) {
            known.ticket = 0;
        }
        if !self.is(Switch::UnknownIsNotReleased) {
            state.dead.push((id, false));
        }
    }

    fn steps_of_attempt(&self, state: &State, waiter: u8, add: &mut impl FnMut(Step, State)) {
        let known = state.waiters[usize::from(waiter)];
        let step = |what| Step::about(self.scope.waiters[usize::from(waiter)], what, waiter + 1);
        let mut then = state.clone();
        let what = self.try_once(&mut then, waiter);
        add(step(what), then);
        if state.left.unknown == 0 {
            return;
        }
        let mut lost = state.clone();
        lost.left.unknown -= 1;
        let (mut executed, mut late) = (lost.clone(), lost.clone());
        self.give_id_up(&mut lost, waiter);
        add(step("sends an attempt that is lost, waiter"), lost);
        self.acquire(&mut executed, known.id, known.ticket);
        self.give_id_up(&mut executed, waiter);
        add(step("gets no answer to its attempt, waiter"), executed);
        late.late.push(Late { id: known.id, ticket: known.ticket });
        self.give_id_up(&mut late, waiter);
        add(step("sends an attempt that comes late, waiter"), late);
    }

    /// A message reaches its client.
    fn hear(&self, state: &mut State, client: u8, id: u8) -> &'static str {
        if id == ALL {
            state.wake(|waiter| self.scope.waiters[usize::from(waiter)] == client);
            return "hears that it may try";
        }
        if let Some(waiter) = self.waiting(state, id) {
            state.waiter(waiter).phase = Phase::Tries;
            return "hears that the lock is reserved for waiter";
        }
        // What is reserved for an id that is over is given up when that id is released.
        "hears of an id that does not wait any more, of waiter"
    }

    fn give_up(&self, state: &mut State, waiter: u8) {
        let id = state.waiters[usize::from(waiter)].id;
        state.waiter(waiter).phase = Phase::Over;
        if self.is(Switch::ReservationIsNotRefused) {
            state.line.retain(|(_, other)| *other != id);
        } else {
            self.release(state, id);
        }
    }

    fn steps_of_waiter(&self, state: &State, waiter: u8, add: &mut impl FnMut(Step, State)) {
        let known = state.waiters[usize::from(waiter)];
        let step = |what| Step::about(self.scope.waiters[usize::from(waiter)], what, waiter + 1);
        let mut then = state.clone();
        match known.phase {
            Phase::Away if !self.scope.in_order || self.is_next(state, waiter) => {
                then.waiter(waiter).phase = Phase::Tries;
                add(step("wants the lock, waiter"), then);
            }
            Phase::Tries => {
                let is_of_it = |(id, released): &(u8, bool)| !released && waiter_of(*id) == waiter;
                if !state.dead.iter().any(is_of_it) {
                    self.steps_of_attempt(state, waiter, add);
                }
            }
            Phase::Sleeps if state.disturbed => {
                then.waiter(waiter).phase = Phase::Tries;
                add(step("wakes up by itself, waiter"), then);
            }
            Phase::Holds => {
                then.waiter(waiter).phase = Phase::Over;
                self.release(&mut then, known.id);
                add(step("releases the lock, waiter"), then);
            }
            Phase::Away | Phase::Sleeps | Phase::Over => {}
        }
        if state.left.cancels > 0 && known.waits() {
            let mut then = state.clone();
            then.left.cancels -= 1;
            self.give_up(&mut then, waiter);
            add(step("gives up, waiter"), then);
        }
    }

    /// All who come before it have come, and have had an answer or died.
    fn is_next(&self, state: &State, waiter: u8) -> bool {
        let before = (0..waiter).zip(&state.waiters);
        let mut before = before.filter(|(number, _)| self.acts(state, *number));
        before.all(|(_, it)| !matches!(it.phase, Phase::Away) && (it.arrived != 0 || !it.waits()))
    }

    fn steps_of_client(&self, state: &State, client: u8, add: &mut impl FnMut(Step, State)) {
        let known = state.clients[usize::from(client)];
        if !known.alive {
            return;
        }
        let mut then = state.clone();
        let changed = &mut then.clients[usize::from(client)];
        if known.frozen {
            (changed.frozen, changed.wasted) = (false, 0);
            then.wake(|waiter| self.scope.waiters[usize::from(waiter)] == client);
            add(Step::new(client, "goes on"), then);
            return;
        }
        if state.left.freezes > 0 {
            let mut then = then.clone();
            then.left.freezes -= 1;
            then.disturbed = true;
            then.clients[usize::from(client)].frozen = true;
            add(Step::new(client, "freezes"), then);
        }
        if state.left.deaths > 0 {
            then.clients[usize::from(client)].alive = false;
            then.left.deaths -= 1;
            then.messages.retain(|(to, _)| *to != client);
            then.dead.retain(|(id, _)| self.client_of(*id) != client);
            add(Step::new(client, "dies"), then);
        }
    }

    fn steps_of_messages(&self, state: &State, add: &mut impl FnMut(Step, State)) {
        for (client, id) in state.messages.clone() {
            if !state.clients[usize::from(client)].acts() {
                continue;
            }
            let about = if id == ALL { 0 } else { waiter_of(id) + 1 };
            let mut then = state.clone();
            then.messages.retain(|other| *other != (client, id));
            if state.left.lost_messages > 0 {
                let mut then = then.clone();
                then.left.lost_messages -= 1;
                then.disturbed = true;
                if let Some(lock) = then.lock.as_mut().filter(|lock| lock.id == id) {
                    lock.unheard = true;
                }
                add(Step::about(client, "misses a message about waiter", about), then);
            }
            let what = self.hear(&mut then, client, id);
            add(Step::about(client, what, about), then);
        }
    }

    fn steps_of_unknown(&self, state: &State, add: &mut impl FnMut(Step, State)) {
        for late in &state.late {
            let mut then = state.clone();
            then.late.retain(|other| other != late);
            let client = self.client_of(late.id);
            let about = waiter_of(late.id) + 1;
            add(Step::about(NOBODY, "a late attempt does nothing, of waiter", about), then.clone());
            // What a dead client had sent is no fault of those who mark.
            then.clients[usize::from(client)].wasted = 0;
            self.acquire(&mut then, late.id, late.ticket);
            add(Step::about(NOBODY, "a late attempt is executed, of waiter", about), then);
        }
        for (id, released) in state.dead.clone() {
            let comes = state.late.iter().any(|late| late.id == id);
            let client = self.client_of(id);
            if !state.clients[usize::from(client)].acts() || released && comes {
                continue;
            }
            let mut then = state.clone();
            then.dead.retain(|(other, _)| *other != id);
            if comes && !self.is(Switch::UndoneOnce) {
                then.dead.push((id, true));
            }
            self.undo(&mut then, id);
            let what = "releases an id of which it does not know enough, of waiter";
            add(Step::about(client, what, waiter_of(id) + 1), then);
        }
    }

    // ---- whatever happens to the server

    /// Nothing picks up what is reserved, or gives up what is held.
    fn runs_out(&self, state: &State) -> bool {
        let Some(lock) = state.lock else { return false };
        if lock.id == PLAIN {
            return false;
        }
        let client = state.clients[usize::from(self.client_of(lock.id))];
        if lock.held {
            let holds = |it: &Waiter| it.id == lock.id && it.phase == Phase::Holds;
            return !client.acts() && state.waiters.iter().any(holds) || !client.alive;
        }
        let told = state.messages.iter().any(|(_, id)| *id == lock.id);
        let is_due = self
            .waiting(state, lock.id)
            .is_some_and(|it| state.waiters[usize::from(it)].phase == Phase::Tries);
        let is_undone = state.dead.iter().any(|(id, _)| *id == lock.id);
        !client.acts() || !told && !is_due && !is_undone
    }

    fn run_out(&self, state: &mut State) {
        let Some(lock) = state.lock.take() else { return };
        let client = usize::from(self.client_of(lock.id));
        let (acts, waiter) = (state.clients[client].acts(), waiter_of(lock.id));
        if lock.held {
            if state.waiters[usize::from(waiter)].id == lock.id {
                state.waiter(waiter).phase = Phase::Over;
            }
        } else {
            state.waiter(waiter).excused = true;
            state.clients[client].missed = true;
            if acts && !lock.unheard && !state.disturbed_by_freeze(client) {
                state.broken = Some("a client that hears lets a reservation run out");
            }
            if !acts && !lock.unmarked {
                state.clients[client].wasted += 1;
                if state.clients[client].wasted > 1 {
                    state.broken = Some("a dead or frozen client costs a second reservation");
                }
            }
        }
        // The timers of those who wait.
        state.wake(|_| true);
    }

    fn steps_of_server(&self, state: &State, add: &mut impl FnMut(Step, State)) {
        let step = |what| Step::new(NOBODY, what);
        if self.runs_out(state) {
            let mut then = state.clone();
            self.run_out(&mut then);
            add(step("what the lock had of a client runs out"), then);
        }
        let mut then = state.clone();
        match state.lock {
            None if state.left.plains > 0 => {
                then.left.plains -= 1;
                then.lock = Some(Lock { id: PLAIN, held: true, unheard: false, unmarked: false });
                add(step("a plain lock takes the free lock"), then);
            }
            Some(lock) if lock.id == PLAIN => {
                self.release_plain(&mut then);
                add(step("a plain lock is released"), then);
            }
            Some(lock) if state.left.forces > 0 => {
                then.left.forces -= 1;
                self.force(&mut then, lock);
                add(Step::about(NOBODY, "somebody takes it from", waiter_of(lock.id) + 1), then);
            }
            _ => {}
        }
        if state.left.line_losses > 0 && !state.line.is_empty() {
            let mut then = state.clone();
            then.left.line_losses -= 1;
            then.disturbed = true;
            for (_, id) in std::mem::take(&mut then.line) {
                let waiter = then.waiter(waiter_of(id));
                waiter.excused = true;
                if waiter.ticket == 0 {
                    // Only the line knew its ticket.
                    waiter.arrived = 0;
                }
            }
            add(step("the line is lost"), then);
        }
        if state.left.tries > 0 && state.lock.is_none() {
            let mut then = state.clone();
            then.left.tries -= 1;
            self.look(&mut then);
            add(step("somebody tries without waiting"), then);
        }
    }

    /// Nobody has anything to do.
    fn is_quiet(&self, state: &State) -> bool {
        let busy = |(number, it): (u8, &Waiter)| {
            self.acts(state, number) && matches!(it.phase, Phase::Tries | Phase::Holds)
        };
        let heard = |(client, _): &(u8, u8)| state.clients[usize::from(*client)].acts();
        let undoes = |(id, _): &(u8, bool)| heard(&(self.client_of(*id), 0));
        !(0..).zip(&state.waiters).any(busy)
            && !state.messages.iter().any(heard)
            && !state.dead.iter().any(undoes)
            && state.late.is_empty()
            && !self.runs_out(state)
            && state.lock.is_none_or(|lock| lock.id != PLAIN)
    }
}

impl State {
    /// Somebody who was frozen may hear late, and then try late.
    fn disturbed_by_freeze(&self, client: usize) -> bool {
        self.clients[client].frozen
    }
}

impl Protocol for Fair {
    type State = State;

    fn start(&self) -> State {
        let scope = &self.scope;
        let waiter = |number: u8| Waiter {
            phase: Phase::Away,
            id: number + 1,
            ticket: 0,
            arrived: 0,
            excused: false,
        };
        let client = Client { alive: true, frozen: false, missed: false, wasted: 0 };
        let clients = scope.waiters.iter().max().map_or(0, |last| last + 1);
        State {
            lock: None,
            line: Vec::new(),
            marks: 0,
            last_ticket: 0,
            waiters: (0..).take(scope.waiters.len()).map(waiter).collect(),
            clients: vec![client; usize::from(clients)],
            messages: Vec::new(),
            dead: Vec::new(),
            late: Vec::new(),
            left: Scopes {
                cancels: scope.cancels,
                deaths: scope.deaths,
                freezes: scope.freezes,
                lost_messages: scope.lost_messages,
                unknown: scope.unknown,
                forces: scope.forces,
                line_losses: scope.line_losses,
                tries: scope.tries,
                plains: scope.plains,
            },
            disturbed: false,
            broken: None,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let mut add = |step, then| next.push((step, then));
        for waiter in (0..).take(state.waiters.len()) {
            if self.acts(state, waiter) {
                self.steps_of_waiter(state, waiter, &mut add);
            }
        }
        for client in (0..).take(state.clients.len()) {
            self.steps_of_client(state, client, &mut add);
        }
        self.steps_of_messages(state, &mut add);
        self.steps_of_unknown(state, &mut add);
        self.steps_of_server(state, &mut add);
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        if state.broken.is_some() {
            return state.broken;
        }
        if !self.is_quiet(state) {
            return None;
        }
        let asleep =
            |(number, it): (u8, &Waiter)| self.acts(state, number) && it.phase == Phase::Sleeps;
        if state.lock.is_none() && !state.disturbed && (0..).zip(&state.waiters).any(asleep) {
            return Some("the lock is free, and nothing wakes those who wait");
        }
        let acts = |id: u8| state.clients[usize::from(self.client_of(id))].acts();
        if state.lock.is_some_and(|lock| acts(lock.id) && self.waiting(state, lock.id).is_none()) {
            return Some("somebody has the lock who does not want it, and nobody gives it up");
        }
        let is_nobodys = |(_, id): &(u8, u8)| acts(*id) && self.waiting(state, *id).is_none();
        if state.line.iter().any(is_nobodys) {
            return Some("there is a place that nobody wants and nobody gives up");
        }
        None
    }
}
