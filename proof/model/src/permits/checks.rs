//! What must be true in every state.

use crate::permits::Permits;
use crate::permits::RESERVATION;
use crate::permits::state::Client;
use crate::permits::state::State;
use crate::permits::state::owner;

impl Permits {
    pub(crate) fn broken_promise(&self, state: &State) -> Option<&'static str> {
        if state.flaw.is_some() {
            return state.flaw;
        }
        if let Some(broken) = self.of_holds(state) {
            return Some(broken);
        }
        let left = |id: &u8| {
            state.taken.iter().any(|taken| taken.id == *id)
                || state.line.iter().any(|place| place.id == *id)
        };
        if state.finished.iter().any(left) {
            return Some("something is left of a hold that is over");
        }
        self.of_waiters(state)
    }

    fn of_holds(&self, state: &State) -> Option<&'static str> {
        let mut out = 0;
        for held in state.clients.iter().flat_map(|client| &client.holds) {
            out += held.want;
            if !state.taken.iter().any(|taken| taken.id == held.id && taken.end > state.now) {
                return Some("permits are taken back although their holder believes in them");
            }
        }
        let most = self.scope.numbers.iter().fold(self.scope.permits, |most, set| most.max(*set));
        (out > most).then_some("more permits are held than there are")
    }

    fn of_waiters(&self, state: &State) -> Option<&'static str> {
        let too_large = |client: &&Client| {
            is_asleep(client) && client.waiting.first().is_some_and(|want| *want > state.number)
        };
        let mut waits_in_vain = state.clients.iter().filter(too_large);
        if waits_in_vain.any(|client| client.contender.asleep > self.scope.fallback) {
            return Some("somebody waits for more permits than there are");
        }
        let usual = if self.is_faultless() { 0 } else { self.scope.fallback + RESERVATION };
        let bound = self.scope.idle.unwrap_or(usual);
        if self.scope.prompt && state.idle.1 > bound {
            return Some("permits lie idle although somebody waits for them");
        }
        if state.wire.iter().any(|message| message.answer.is_none()) {
            return None;
        }
        let sleeps = |id: u8| {
            let client = &state.clients[owner(id)];
            let hears = state.words.iter().any(|(who, _)| usize::from(*who) == owner(id));
            is_asleep(client) && client.contender.id == id && !hears
        };
        if let Some(first) = state.line.first() {
            let fits = state.permits_taken() + first.want <= state.number;
            if fits && sleeps(first.id) {
                return Some("the first in line sleeps although its permits are free");
            }
        }
        let untold = state.taken.iter().find(|taken| {
            taken.end > state.now && sleeps(taken.id) && !state.missed.contains(&taken.id)
        });
        untold.map(|_| "permits are reserved for somebody who is not told")
    }

    /// Whether nothing may happen that only time heals.
    pub(crate) fn is_faultless(&self) -> bool {
        let scope = &self.scope;
        scope.deaths == 0 && scope.lost_messages == 0 && scope.unknown == 0
    }
}

/// Whether it waits and has no reason to try.
pub(crate) fn is_asleep(client: &Client) -> bool {
    let contender = &client.contender;
    let waits = client.alive && !client.waiting.is_empty() && contender.id != 0;
    waits && !contender.on_wire && !contender.duty
}

/// The ticket of the first of those who sleep, and want no more than there are, if it would have
/// its permits.
pub(crate) fn lies_idle_for(state: &State) -> Option<u8> {
    let taken: u8 =
        state.taken.iter().filter(|taken| taken.end > state.now).map(|taken| taken.permits).sum();
    let asleep = state.clients.iter().filter(|client| is_asleep(client));
    let wants =
        asleep.filter_map(|client| Some((client.contender.ticket, *client.waiting.first()?)));
    let first = wants.filter(|(_, want)| *want <= state.number).min();
    first.filter(|(_, want)| taken + want <= state.number).map(|(ticket, _)| ticket)
}
