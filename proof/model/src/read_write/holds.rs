//! Who has a read-write lock, and for how long: re-entry, downgrade, upgrade, leases that differ,
//! answers that are lost and commands that come late.
//!
//! The lock is a hash with a field for the reads of a hold and one for its writes. It ends as a whole,
//! with the longest lease, so each reader has a *timeout key* beside it: it is alive while that is
//! there. A writer removes the fields of dead readers, and is granted the lock when no field is left.
//! A hold that gave its write up never gets it back: an upgrade is a hold of its own, whose id was
//! never used before.

mod client;
mod rules;
mod server;
mod state;

pub(crate) use rules::model;
pub use state::State;

use crate::explore::NOBODY;
use crate::explore::Protocol;
use crate::explore::SERVER;
use crate::explore::Step;
use crate::read_write::holds::rules::Switch;
use crate::read_write::holds::state::Hold;
use crate::read_write::holds::state::Phase;

/// Ticks for which a lease lasts.
const LEASE: u8 = 3;
/// That of a re-entry or a downgrade, which want less.
const SHORT: u8 = 1;
/// How far the client stops before the server may.
const MARGIN: u8 = 1;
/// How long a command may take.
const TIMEOUT: u8 = 1;
/// Of a command that is never too late.
const NEVER: u8 = 200;

/// What may happen, and how often: the bounds of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    /// How often each client takes the lock.
    pub starts: &'static [u8],
    /// Which of them read, and which write.
    pub reads: &'static [bool],
    /// The same.
    pub writes: &'static [bool],
    /// The last tick.
    pub end: u8,
    /// Commands are executed and answered within a tick.
    pub prompt: bool,
    /// How often client 0 does not learn what became of its command.
    pub unknown: u8,
    /// How often client 0 reads or writes once more, gives up a part, or downgrades.
    pub operations: u8,
    /// How often client 0 renews.
    pub renewals: u8,
    /// How often client 0 tries to upgrade.
    pub upgrades: u8,
    /// How often a holder dies.
    pub deaths: u8,
}

impl Scope {
    /// Nothing but taking and giving up.
    pub const PLAIN: Self = Self {
        name: "",
        starts: &[],
        reads: &[],
        writes: &[],
        end: 0,
        prompt: false,
        unknown: 0,
        operations: 0,
        renewals: 0,
        upgrades: 0,
        deaths: 0,
    };
}

/// The protocol within a scope; perhaps with one of its rules broken.
#[derive(Debug, Clone, Copy)]
pub struct Holds {
    scope: Scope,
    switch: Option<Switch>,
}

impl Holds {
    fn is(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }
}

impl Protocol for Holds {
    type State = State;

    fn start(&self) -> State {
        State::new(&self.scope)
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let under_way = state.wire.iter().any(|message| message.awaited);
        if state.now < self.scope.end && !(self.scope.prompt && under_way) {
            let mut then = state.clone();
            self.pass(&mut then);
            next.push((Step::about(NOBODY, "a tick passes: it is", then.now), then));
        }
        for (at, message) in state.wire.iter().enumerate() {
            let (client, about) = (message.client, message.command.id());
            let mut then = state.clone();
            if message.answer.is_none() {
                let what = self.execute(&mut then, at);
                next.push((Step::about(SERVER, what, about), then));
            } else {
                let what = self.read_answer(&mut then, at);
                next.push((Step::about(client, what, about), then));
            }
            if message.awaited && client == 0 && state.unknown > 0 {
                let mut then = state.clone();
                let what = self.give_up_waiting(&mut then, at);
                next.push((Step::about(client, what, about), then));
            }
        }
        for client in (0..).take(state.clients.len()) {
            self.steps_of(state, client, next);
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        if state.broken.is_some() {
            return state.broken;
        }
        let valid = |phase: &Phase| match phase {
            Phase::Held(hold) if state.now < hold.until && hold.reads + hold.writes > 0 => {
                Some(*hold)
            }
            _ => None,
        };
        let valid: Vec<Hold> =
            state.clients.iter().filter_map(|client| valid(&client.phase)).collect();
        if valid.len() > 1 && valid.iter().any(|hold| hold.writes > 0) {
            return Some("somebody writes while others have the lock");
        }
        if let Some(broken) = valid.iter().find_map(|hold| is_kept(state, hold)) {
            return Some(broken);
        }
        let over = |id: u8| state.finished >> id & 1 == 1;
        if state.fields.iter().any(|field| over(field.id)) {
            return Some("a field is left of a hold that is over");
        }
        if state.timeouts.iter().any(|(id, _)| over(*id)) {
            return Some("a timeout key is left of a hold that is over");
        }
        None
    }
}

/// Whether the server keeps what a valid hold believes to have.
fn is_kept(state: &State, hold: &Hold) -> Option<&'static str> {
    let writer = if hold.upgrade > 0 { hold.upgrade } else { hold.id };
    let (reads, writes) = (state.reads(hold.id), state.writes(writer));
    if hold.writes == 0 && hold.upgrade == 0 && hold.busy.is_none() && writes > 0 {
        return Some("a write that was given up comes back");
    }
    let lasts = state.ends >= hold.until;
    let is_writer = writes > 0 && state.writing && lasts;
    if hold.writes > 0 {
        return (!is_writer).then_some("what a writer believes to have is gone, or ends first");
    }
    let is_reader = reads > 0 && lasts && state.timeout(hold.id) >= hold.until;
    // On its way to be a reader, the writer still is one.
    let goes_down = writes > 0 && lasts;
    (!is_reader && !goes_down).then_some("what a reader believes to have is gone, or ends first")
}
