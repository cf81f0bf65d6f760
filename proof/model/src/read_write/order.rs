//! Who gets a read-write lock next, and who is told.
//!
//! Those who wait stand in a line that the server keeps, readers and writers in one order. The script
//! that lets others have the lock *reserves* it: after a writer for all readers in the line, else for
//! the first in line, and if that is a reader for those behind it as well, up to the next writer.
//! They are told in one message and pick the lock up.
//!
//! An attempt is executed as soon as it is sent; what is late here are messages. Each client only
//! reads or only writes.

mod rules;

pub(crate) use rules::model;

use crate::explore::NOBODY;
use crate::explore::Protocol;
use crate::explore::Step;
use crate::read_write::order::rules::Switch;

/// What may happen, and how often: the bounds of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    /// How often each reader wants the lock. Readers have the lowest numbers.
    pub readers: &'static [u8],
    /// How often each writer wants it.
    pub writers: &'static [u8],
    /// How often somebody who waits gives up.
    pub cancels: u8,
    /// How often a client dies.
    pub deaths: u8,
    /// How often a writer goes on as a reader.
    pub downgrades: u8,
    /// How often a message reaches one of its clients not at all.
    pub lost_messages: u8,
}

impl Scope {
    /// Nothing but reading and writing.
    pub const PLAIN: Self = Self {
        name: "",
        readers: &[],
        writers: &[],
        cancels: 0,
        deaths: 0,
        downgrades: 0,
        lost_messages: 0,
    };
}

/// What a client is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Away,
    /// Its next attempt is due; whether it has been told to wait before.
    Tries {
        again: bool,
    },
    Sleeps,
    Reads,
    Writes,
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    /// How often it will still want the lock.
    left: u8,
    /// A message that it has not read yet says that the lock is reserved for it.
    told: bool,
    /// It was in the line when a writer gave the lock up.
    waited_through: bool,
    /// The server remembers its last attempt.
    heard: bool,
}

/// Who the lock is given to, or reserved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    client: u8,
    reserved: bool,
}

/// Everything that matters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The hash of the lock: readers, or one writer.
    places: Vec<Place>,
    writing: bool,
    line: Vec<u8>,
    clients: Vec<Client>,
    cancels: u8,
    deaths: u8,
    downgrades: u8,
    lost_messages: u8,
    /// A fault has happened: sleepers may wake up by themselves, and the order is not looked at.
    disturbed: bool,
    broken: Option<&'static str>,
}

impl State {
    fn client(&mut self, client: u8) -> &mut Client {
        &mut self.clients[usize::from(client)]
    }

    fn is_free(&self) -> bool {
        self.places.is_empty()
    }

    /// Takes everything of a client out of the lock. Returns whether it held it.
    fn take_out(&mut self, client: u8) -> bool {
        let held = self.places.iter().any(|place| place.client == client && !place.reserved);
        self.places.retain(|place| place.client != client);
        self.writing &= !self.is_free();
        held
    }
}

/// The protocol within a scope; perhaps with one of its rules broken.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    scope: Scope,
    switch: Option<Switch>,
}

impl Order {
    fn is(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }

    fn writes(&self, client: u8) -> bool {
        usize::from(client) >= self.scope.readers.len()
    }

    // ---- scripts

    /// Who goes next, in their order.
    fn next(&self, state: &State, after_writer: bool) -> Vec<u8> {
        let is_reader = |client: &&u8| !self.writes(**client);
        if after_writer && !self.is(Switch::OnlyFirstAfterWriter) {
            let readers: Vec<u8> = state.line.iter().filter(is_reader).copied().collect();
            if !readers.is_empty() {
                return readers;
            }
        }
        let mut readers: Vec<u8> = match self.is(Switch::AllReadersAlways) {
            true => state.line.iter().filter(is_reader).copied().collect(),
            false => state.line.iter().take_while(is_reader).copied().collect(),
        };
        if self.is(Switch::OneReaderAtATime) {
            readers.truncate(1);
        }
        let first = state.line.first().copied().filter(|_| readers.is_empty() && state.is_free());
        readers.into_iter().chain(first).collect()
    }

    /// Reserves the lock for those who go next, and tells them.
    fn pass_on(&self, state: &mut State, after_writer: bool) {
        if state.writing {
            return;
        }
        for client in self.next(state, after_writer) {
            self.look_at_order(state, client);
            state.line.retain(|other| *other != client);
            state.places.retain(|place| place.client != client);
            state.places.push(Place { client, reserved: true });
            state.writing = self.writes(client);
            if !self.is(Switch::ReservesSilently) {
                state.client(client).told = true;
            }
        }
        state.places.sort_by_key(|place| place.client);
    }

    fn attempt(&self, state: &mut State, client: u8, again: bool) -> &'static str {
        let is_writer = self.writes(client);
        let is_reserved = state.places.iter().any(|place| place.client == client && place.reserved);
        if !is_writer && !is_reserved && !state.is_free() && !state.writing {
            self.drop_silent(state);
        }
        let is_reserved = state.places.iter().any(|place| place.client == client && place.reserved);
        let mut before = state.line.iter().take_while(|other| **other != client);
        let writer_first =
            before.any(|other| self.writes(*other)) && !self.is(Switch::ReadersDoNotLook);
        if !is_reserved && again && state.is_free() {
            if !state.line.contains(&client) {
                state.line.push(client);
            }
            self.pass_on(state, false);
            if !state.places.iter().any(|place| place.client == client) {
                return self.wait(state, client);
            }
            return self.grant(state, client);
        }
        let goes = is_reserved || state.is_free() || !is_writer && !state.writing && !writer_first;
        if !goes && !is_writer && !state.writing && self.is_silent(state, state.line.first()) {
            state.broken = Some("a reader waits behind a writer that was not heard of for long");
        }
        if goes { self.grant(state, client) } else { self.wait(state, client) }
    }

    /// Whether this is a writer that was not heard of for long.
    fn is_silent(&self, state: &State, place: Option<&u8>) -> bool {
        place.is_some_and(|first| self.writes(*first) && !state.clients[usize::from(*first)].heard)
    }

    /// A reader takes writers that were not heard of for long from the front of the line. Those who
    /// may read then are told.
    fn drop_silent(&self, state: &mut State) {
        let before = state.line.len();
        while self.is_silent(state, state.line.first()) && !self.is(Switch::SilentWritersStay) {
            state.line.remove(0);
        }
        if state.line.len() < before {
            self.pass_on(state, false);
        }
    }

    fn wait(&self, state: &mut State, client: u8) -> &'static str {
        if !state.line.contains(&client) {
            state.line.push(client);
        }
        state.client(client).phase = Phase::Sleeps;
        state.client(client).heard = self.writes(client);
        "waits"
    }

    fn grant(&self, state: &mut State, client: u8) -> &'static str {
        let is_writer = self.writes(client);
        if !state.places.iter().any(|place| place.client == client) {
            self.look_at_order(state, client);
        }
        state.line.retain(|other| *other != client);
        state.places.retain(|place| place.client != client);
        state.places.push(Place { client, reserved: false });
        state.places.sort_by_key(|place| place.client);
        state.writing = is_writer;
        let granted = state.client(client);
        granted.phase = if is_writer { Phase::Writes } else { Phase::Reads };
        (granted.told, granted.waited_through, granted.heard) = (false, false, false);
        if is_writer { "gets the write lock" } else { "gets a read lock" }
    }

    /// The last release of a hold, and whatever else ends one; also leaves the line.
    fn release(&self, state: &mut State, client: u8) {
        let wrote = state.writing && state.take_out(client);
        state.take_out(client);
        state.line.retain(|other| *other != client);
        if wrote {
            self.note_waiting(state);
        }
        let leaves_free = state.is_free();
        if leaves_free || !self.is(Switch::LeavingPassesOnFreeLockOnly) {
            self.pass_on(state, wrote);
        }
    }

    fn downgrade(&self, state: &mut State, client: u8) {
        state.writing = false;
        self.note_waiting(state);
        state.client(client).phase = Phase::Reads;
        if !self.is(Switch::DowngradePassesOnToNobody) {
            self.pass_on(state, true);
        }
    }

    fn note_waiting(&self, state: &mut State) {
        for client in state.line.clone() {
            state.client(client).waited_through = true;
        }
    }

    /// Whom a grant or a reservation passes over.
    fn look_at_order(&self, state: &mut State, client: u8) {
        if state.disturbed {
            return;
        }
        let waited_through = |client: u8| state.clients[usize::from(client)].waited_through;
        let mut before = state.line.iter().take_while(|other| **other != client);
        let writer_first = before.any(|other| self.writes(*other));
        let mut others = state.line.iter().filter(|other| **other != client);
        let reader_is_due = others.any(|other| !self.writes(*other) && waited_through(*other));
        let broken = match self.writes(client) {
            true if reader_is_due => "a writer goes before a reader that has waited for a writer",
            true if writer_first => "a writer goes before another that has waited for longer",
            false if writer_first && !waited_through(client) => {
                "a reader goes before a writer that was there first"
            }
            _ => return,
        };
        state.broken = Some(broken);
    }
}

impl Protocol for Order {
    type State = State;

    fn start(&self) -> State {
        let starts = self.scope.readers.iter().chain(self.scope.writers);
        let client = |left: &u8| Client {
            phase: Phase::Away,
            left: *left,
            told: false,
            waited_through: false,
            heard: false,
        };
        State {
            places: Vec::new(),
            writing: false,
            line: Vec::new(),
            clients: starts.map(client).collect(),
            cancels: self.scope.cancels,
            deaths: self.scope.deaths,
            downgrades: self.scope.downgrades,
            lost_messages: self.scope.lost_messages,
            disturbed: false,
            broken: None,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (number, known) in (0..).zip(&state.clients) {
            self.steps_of(state, number, *known, next);
        }
        for client in state.line.iter().filter(|client| self.falls_silent(state, **client)) {
            let mut then = state.clone();
            then.client(*client).heard = false;
            let what = "the last attempt is long ago, of client";
            next.push((Step::about(NOBODY, what, *client), then));
        }
        for place in state.places.iter().filter(|place| self.runs_out(state, **place)) {
            let mut then = state.clone();
            let wrote = then.writing && !place.reserved;
            then.take_out(place.client);
            if wrote {
                self.note_waiting(&mut then);
            }
            let what = "what the lock had of a dead client runs out, of client";
            next.push((Step::about(NOBODY, what, place.client), then));
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        if state.broken.is_some() {
            return state.broken;
        }
        let has = |phase| state.clients.iter().filter(|client| client.phase == phase).count();
        if has(Phase::Writes) > 1 || has(Phase::Writes) == 1 && has(Phase::Reads) > 0 {
            return Some("somebody writes while others have the lock");
        }
        let phase_of = |client: u8| state.clients[usize::from(client)].phase;
        let away = |place: &Place| place.reserved && phase_of(place.client) == Phase::Away;
        if state.places.iter().any(away) {
            return Some("the lock is reserved for somebody who does not wait");
        }
        let goes_on = state
            .clients
            .iter()
            .any(|client| matches!(client.phase, Phase::Tries { .. }) || client.told);
        let runs_out = state.places.iter().any(|place| self.runs_out(state, *place));
        if goes_on || runs_out || state.disturbed && !self.is(Switch::ReservationsLast) {
            return None;
        }
        let asleep = |client: &u8| phase_of(*client) == Phase::Sleeps;
        let of_the_dead = state.places.iter().all(|place| phase_of(place.client) == Phase::Dead);
        let idle = state.places.iter().all(|place| place.reserved) && of_the_dead;
        if idle && state.line.iter().any(asleep) {
            return Some("nobody has the lock, and nothing wakes those who wait");
        }
        let next_reads = state.line.first().is_some_and(|first| !self.writes(*first));
        if next_reads && !state.writing && state.line.iter().take(1).any(asleep) {
            return Some("a reader sleeps although it may read, and nothing wakes it");
        }
        if state.places.iter().any(|place| place.reserved && asleep(&place.client)) {
            return Some("the lock is reserved for somebody who was not told");
        }
        None
    }
}

impl Order {
    /// Who waits tries again and again, unless it is dead or something keeps it from that.
    fn falls_silent(&self, state: &State, client: u8) -> bool {
        state.disturbed && self.writes(client) && state.clients[usize::from(client)].heard
    }

    /// Leases and reservations end by themselves; of the living, only while nothing else goes on.
    fn runs_out(&self, state: &State, place: Place) -> bool {
        let dead = state.clients[usize::from(place.client)].phase == Phase::Dead;
        dead && !(place.reserved && self.is(Switch::ReservationsLast))
    }

    fn steps_of(&self, state: &State, client: u8, known: Client, next: &mut Vec<(Step, State)>) {
        let mut add = |what: &'static str, then: State| next.push((Step::new(client, what), then));
        let mut then = state.clone();
        match known.phase {
            Phase::Away if known.left > 0 => {
                then.client(client).left -= 1;
                then.client(client).phase = Phase::Tries { again: false };
                let what = if self.writes(client) { "wants to write" } else { "wants to read" };
                add(what, then);
            }
            Phase::Tries { again } => {
                let what = self.attempt(&mut then, client, again);
                add(what, then);
            }
            Phase::Sleeps => self.steps_of_sleeper(state, client, known, &mut add),
            Phase::Reads | Phase::Writes => {
                if state.deaths > 0 {
                    let mut then = state.clone();
                    self.die(&mut then, client);
                    add("dies with the lock", then);
                }
                if known.phase == Phase::Writes && state.downgrades > 0 {
                    let mut then = state.clone();
                    then.downgrades -= 1;
                    self.downgrade(&mut then, client);
                    add("goes on as a reader", then);
                }
                then.client(client).phase = Phase::Away;
                self.release(&mut then, client);
                add("releases the lock", then);
            }
            Phase::Away | Phase::Dead => {}
        }
    }

    fn steps_of_sleeper(
        &self,
        state: &State,
        client: u8,
        known: Client,
        add: &mut impl FnMut(&'static str, State),
    ) {
        let wakes = |told: bool| {
            let mut then = state.clone();
            then.client(client).phase = Phase::Tries { again: true };
            then.client(client).told &= !told;
            then
        };
        if known.told {
            add("hears that the lock is reserved for it", wakes(true));
            if state.lost_messages > 0 {
                let mut then = state.clone();
                then.lost_messages -= 1;
                then.client(client).told = false;
                then.disturbed = true;
                add("misses its message", then);
            }
        }
        if state.disturbed {
            add("wakes up by itself", wakes(false));
        }
        if state.cancels > 0 {
            let mut then = state.clone();
            then.cancels -= 1;
            let gone = then.client(client);
            (gone.phase, gone.told, gone.waited_through) = (Phase::Away, false, false);
            gone.heard = false;
            match self.is(Switch::ReservationIsNotRefused) {
                true => then.line.retain(|other| *other != client),
                false => self.release(&mut then, client),
            }
            add("gives up", then);
        }
        if state.deaths > 0 {
            let mut then = state.clone();
            self.die(&mut then, client);
            add("dies while it waits", then);
        }
    }

    fn die(&self, state: &mut State, client: u8) {
        state.deaths -= 1;
        state.disturbed = true;
        let dead = state.client(client);
        (dead.phase, dead.told) = (Phase::Dead, false);
    }
}
