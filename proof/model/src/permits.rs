//! The semaphore: permits that are held and reserved, and the line of those who wait for some.
//!
//! Each hold has as many permits as it wants, and their end. Nothing is counted: what is taken is
//! what there is of permits that have not run out. Who waits stands in the line with its want; a
//! want is reserved whole, in the order of the tickets, and no smaller one overtakes, unless the
//! client before it was not heard of for longer than a fallback. A place belongs to its waiter,
//! because wants differ.
//!
//! One tick is the life of a reservation. In a *prompt* scope no time passes while a command, a
//! message or a client could go on. Commands are executed in any order, also after their client has
//! given up waiting for the answer.
//!
//! The bounds: two or three clients with one or two callers each, up to eight ticks, and faults of
//! at most two of the kinds that [`Scope`] lists. Not in the model: renewal (which is in
//! [`crate::leases`]), waiters that do not hear, refused commands, slots that move (which are in
//! [`crate::line`]), and the calls that change the number (which are in [`crate::numbers`]; here it
//! changes by itself).

mod checks;
mod client;
mod rules;
mod scripts;
mod state;

pub(crate) use rules::model;
pub use state::State;

use crate::explore::NOBODY;
use crate::explore::Protocol;
use crate::explore::SERVER;
use crate::explore::Step;
use crate::permits::rules::Switch;

/// What may happen, and how often: the bounds of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    /// How many permits there are at first.
    pub permits: u8,
    /// What the callers of each client want.
    pub callers: &'static [&'static [u8]],
    /// The last tick.
    pub end: u8,
    /// No time passes while anything can go on.
    pub prompt: bool,
    /// Ticks for which a lease lasts.
    pub lease: u8,
    /// Ticks after which a waiter tries again.
    pub fallback: u8,
    /// Numbers that somebody sets one after the other.
    pub numbers: &'static [u8],
    /// Waiters try at the end of what others have.
    pub timers: bool,
    /// So many ticks permits may lie idle; without this, a fallback and a reservation after a fault.
    pub idle: Option<u8>,
    /// How often a client does not learn what became of its command.
    pub unknown: u8,
    /// How often a message vanishes.
    pub lost_messages: u8,
    /// How often a caller gives up.
    pub cancels: u8,
    /// How often a client dies.
    pub deaths: u8,
}

impl Scope {
    /// Nothing but waiting, without any fault.
    pub const PLAIN: Self = Self {
        name: "",
        permits: 2,
        callers: &[&[2], &[1], &[1]],
        end: 4,
        prompt: true,
        lease: 5,
        fallback: 3,
        numbers: &[],
        timers: true,
        idle: None,
        unknown: 0,
        lost_messages: 0,
        cancels: 0,
        deaths: 0,
    };
}

/// Ticks for which a reservation lasts.
pub(crate) const RESERVATION: u8 = 1;

/// The protocol within a scope, with at most one rule broken.
#[derive(Debug, Clone, Copy)]
pub struct Permits {
    /// What may happen.
    pub scope: Scope,
    /// The rule that is broken.
    pub(crate) switch: Option<Switch>,
}

impl Permits {
    pub(crate) fn breaks(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }
}

impl Protocol for Permits {
    type State = State;

    fn start(&self) -> State {
        State::new(&self.scope)
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.now < self.scope.end && !(self.scope.prompt && self.is_urgent(state)) {
            next.push((Step::new(NOBODY, "a tick passes"), self.tick(state)));
        }
        if let Some(number) = self.scope.numbers.get(state.numbers_set) {
            let mut state = state.clone();
            state.numbers_set += 1;
            self.set_number(&mut state, *number);
            next.push((Step::about(SERVER, "the number of permits is now", *number), state));
        }
        self.server_steps(state, next);
        self.message_steps(state, next);
        self.answer_steps(state, next);
        self.client_steps(state, next);
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        self.broken_promise(state)
    }
}
