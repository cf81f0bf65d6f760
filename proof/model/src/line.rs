//! The waiting line: clients that wait for one name stand in a line that the server keeps. This is
//! a model of how waiting will work; the shipped protocol is another one, and its wake-ups are the
//! model next door.
//!
//! The script that frees the lock *reserves* it for the first in line and announces that. Only that
//! client picks it up, with an ordinary acquire. A client keeps its ticket and names it in every
//! attempt.
//!
//! One tick is the life of a reservation, and the other times are multiples of it. In a *prompt*
//! scope no time passes while a command, a message or a client could go on, so that every delay
//! there is one that a fault has caused; only such scopes check the order and the time for which
//! the lock is idle. Commands are executed in any order, also after their client has given up
//! waiting for the answer.
//!
//! The bounds: two or three clients with one to three callers each, two waiters of a client at a
//! time, up to ten ticks, and faults of at most two of the kinds that [`Scope`] lists. So explored,
//! 38 scopes have 9.5 million states, and 23 larger ones, which are explored with `--large`, about
//! 100 million. Each is explored to its end.
//!
//! Not in the model: more clients, more faults at once, clocks that go backward, re-entry and
//! renewal (which are in [`crate::leases`]), and other kinds of locks. A slot that moves is a time
//! in which the line may be out of reach.

mod answers;
mod checks;
mod client;
mod faults;
mod rules;
mod scripts;
mod server;
mod state;

pub(crate) use rules::large;
pub(crate) use rules::model;
pub use state::State;

use crate::explore::NOBODY;
use crate::explore::Protocol;
use crate::explore::Step;
use crate::line::rules::Switch;

/// What may happen, and how often: the bounds of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    /// Callers of each client.
    pub arrivals: &'static [u8],
    /// The last tick.
    pub end: u8,
    /// No time passes while anything can go on.
    pub prompt: bool,
    /// Ticks for which a lease lasts.
    pub lease: u8,
    /// Ticks for which a reservation lasts.
    pub reservation: u8,
    /// Ticks after which a waiter tries again.
    pub fallback: u8,
    /// Ticks for which the line's key lives after an attempt.
    pub line_lives: u8,
    /// Hand-offs in a row that do not look at the line.
    pub hand_offs: u8,
    /// Waiters are told their ranks, and only so many of the first in line have a timer.
    pub timers: Option<u8>,
    /// Somebody listens who stands in no line.
    pub watcher: bool,
    /// A subscription may take any time.
    pub slow_subscription: bool,
    /// After a fault the lock may be idle for so many ticks; without this, as long as
    /// `checks::idle` says.
    pub idle: Option<u8>,
    /// It counts as idle while at least so many connected clients wait.
    pub idle_of: usize,
    /// So many reservations of living clients may run out; without this, any number.
    pub wasted: Option<u8>,
    /// How often a client does not learn what became of its command.
    pub unknown: u8,
    /// How often a message vanishes.
    pub lost_messages: u8,
    /// Of messages, only `0` vanishes.
    pub only_zero_is_lost: bool,
    /// How often a connection for messages is cut.
    pub cuts: u8,
    /// How often a caller gives up.
    pub cancels: u8,
    /// How often a client dies.
    pub deaths: u8,
    /// How often somebody takes the lock away by force.
    pub forces: u8,
    /// How often somebody deletes the lock's key.
    pub deletions: u8,
    /// How often the line's key is lost.
    pub line_losses: u8,
    /// How often the slot moves to another server.
    pub moves: u8,
    /// How often a caller tries without waiting.
    pub tries: u8,
    /// How often Redis refuses a command inside `pass_on`; 255: as often as it likes.
    pub refusals: u8,
    /// How often the server's clock jumps forward.
    pub jumps: u8,
    /// How often a replica takes over that has missed the last commands.
    pub failovers: u8,
}

impl Scope {
    /// Nothing but waiting, without any fault.
    pub const PLAIN: Self = Self {
        name: "",
        arrivals: &[1, 1, 1],
        end: 5,
        prompt: true,
        lease: 5,
        reservation: 1,
        fallback: 3,
        line_lives: 5,
        hand_offs: 1,
        timers: None,
        watcher: false,
        slow_subscription: false,
        idle: None,
        idle_of: 1,
        wasted: None,
        unknown: 0,
        lost_messages: 0,
        only_zero_is_lost: false,
        cuts: 0,
        cancels: 0,
        deaths: 0,
        forces: 0,
        deletions: 0,
        line_losses: 0,
        moves: 0,
        tries: 0,
        refusals: 0,
        jumps: 0,
        failovers: 0,
    };
}

/// The protocol within a scope, with at most one rule broken.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// What may happen.
    pub scope: Scope,
    /// The rule that is broken.
    pub(crate) switch: Option<Switch>,
}

impl Line {
    pub(crate) fn breaks(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }
}

impl Protocol for Line {
    type State = State;

    fn start(&self) -> State {
        State::new(&self.scope)
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.now < self.scope.end && !(self.scope.prompt && self.is_urgent(state)) {
            next.push((Step::new(NOBODY, "a tick passes"), self.tick(state)));
        }
        self.server_steps(state, next);
        self.message_steps(state, next);
        self.client_steps(state, next);
        self.answer_steps(state, next);
        self.fault_steps(state, next);
        for (_, state) in next {
            state.tidy_up();
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        self.broken_promise(state)
    }
}
