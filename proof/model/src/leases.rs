//! Leases: clients that acquire, re-enter, renew, hand off and release, on a server that grants and
//! expires, over a network that delays, loses, repeats and reorders.
//!
//! Time is a number of ticks, the same everywhere: rates and offsets of clocks are what margins are
//! for, and the margin here is one tick. A command may be executed at any time after it was sent,
//! also after its client gave up waiting; a message that is never delivered is a lost one.

mod client;
mod rules;
mod server;
mod state;

pub(crate) use rules::model;
pub use state::State;

use crate::explore::NOBODY;
use crate::explore::Protocol;
use crate::explore::Step;
use crate::leases::rules::Switch;
use crate::leases::state::Phase;

/// Ticks for which a lease lasts.
pub(crate) const LEASE: u8 = 3;
/// That of a re-entry which wants less.
pub(crate) const SHORT: u8 = 1;
/// How far the client stops before the server may.
pub(crate) const MARGIN: u8 = 1;
/// How long a command may take.
pub(crate) const TIMEOUT: u8 = 1;
/// How long a hold may last at most, where that is limited.
pub(crate) const MAX_HOLD: u8 = 4;

/// What may happen, and how often: the bounds of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// For people.
    pub name: &'static str,
    /// Acquisitions of each client.
    pub starts: &'static [u8],
    /// The last tick.
    pub end: u8,
    /// How often a client gives up waiting for an answer, all together.
    pub unknown: u8,
    /// How often a command is delivered twice.
    pub copies: u8,
    /// How often a caller gives up while its attempt is on the wire.
    pub cancels: u8,
    /// How often a hold is re-entered.
    pub reentries: u8,
    /// How often a hold is renewed.
    pub renewals: u8,
    /// How often a hold is handed off.
    pub hand_offs: u8,
    /// How often somebody takes a lock away by force.
    pub forces: u8,
    /// How often the server loses its data.
    pub data_losses: u8,
    /// Whether holds have a longest duration.
    pub max_hold: bool,
    /// Whether fencing tokens are looked at.
    pub tokens: bool,
}

impl Scope {
    /// Nothing but acquiring and releasing.
    pub const PLAIN: Self = Self {
        name: "",
        starts: &[],
        end: 0,
        unknown: 0,
        copies: 0,
        cancels: 0,
        reentries: 0,
        renewals: 0,
        hand_offs: 0,
        forces: 0,
        data_losses: 0,
        max_hold: false,
        tokens: false,
    };
}

/// The protocol within a scope, with at most one rule broken.
#[derive(Debug, Clone, Copy)]
pub struct Leases {
    /// What may happen.
    pub scope: Scope,
    /// The rule that is broken.
    pub(crate) switch: Option<Switch>,
}

impl Leases {
    pub(crate) fn breaks(&self, switch: Switch) -> bool {
        self.switch == Some(switch)
    }
}

impl Protocol for Leases {
    type State = State;

    fn start(&self) -> State {
        State::new(&self.scope)
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.now < self.scope.end {
            next.push((Step::new(NOBODY, "a tick passes"), self.tick(state)));
        }
        self.server_steps(state, next);
        self.client_steps(state, next);
        let exact = matches!(
            self.switch,
            Some(
                Switch::ReleaseWithoutOwnField
                    | Switch::IdsReused
                    | Switch::RenewCreates
                    | Switch::SameIdAfterUnknown
                    | Switch::CleanupEndedByOtherTime
            )
        );
        next.iter_mut().for_each(|(_, state)| state.tidy_up(exact));
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        state.flaw.or_else(|| belief(state)).or_else(|| remains(state))
    }
}

impl Leases {
    fn tick(&self, state: &State) -> State {
        let mut state = state.clone();
        state.now += 1;
        if state.key.is_some_and(|key| key.expires <= state.now) {
            state.key = None;
        }
        self.run_out(&mut state);
        if !self.breaks(Switch::NoNotAfter) && !self.breaks(Switch::RenewWithoutNotAfter) {
            state.drop_what_can_do_nothing();
        }
        state
    }
}

/// Exclusion, and a validity that ends before the key does: whoever believes has the key, for at
/// least as long.
fn belief(state: &State) -> Option<&'static str> {
    let mut believers = 0;
    for client in &state.clients {
        let Phase::Held(hold) = client.phase else { continue };
        if state.now >= hold.until {
            continue;
        }
        if hold.ended {
            return Some("what has ended does not come back");
        }
        if state.breached.has(hold.id) {
            continue;
        }
        believers += 1;
        if believers > 1 {
            return Some("no two holders at once");
        }
        match state.key {
            Some(key) if key.id == hold.id && key.expires >= hold.until => {}
            Some(key) if key.id == hold.id => {
                return Some("valid-until is never past the key's expiry");
            }
            _ => return Some("a valid hold has its key"),
        }
        if hold.max_end > 0 && hold.until > hold.max_end {
            return Some("no hold is longer than max_hold");
        }
    }
    None
}

/// What may be on the server: nothing of what is over, and nothing for longer than a lease.
fn remains(state: &State) -> Option<&'static str> {
    let key = state.key?;
    if state.finished.has(key.id) {
        return Some("no orphan: nothing remains of a hold that is over");
    }
    let guarded = state.clients.iter().any(
        |client| matches!(client.phase, Phase::Held(hold) if hold.id == key.id && state.now < hold.until),
    );
    if !guarded && key.expires > key.bound {
        return Some("the key is gone within a lease of the last guard or the last not_after");
    }
    if key.max_end > 0 && key.expires > key.max_end {
        return Some("no key outlives max_hold");
    }
    None
}
