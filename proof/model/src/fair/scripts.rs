//! What the scripts of the fair lock do.

use crate::fair::ALL;
use crate::fair::Answer;
use crate::fair::Fair;
use crate::fair::Lock;
use crate::fair::PLAIN;
use crate::fair::Phase;
use crate::fair::State;
use crate::fair::rules::Switch;
use crate::fair::waiter_of;

/// Who a lock was passed on to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The first in line is the one that asks.
    Asker,
    Other,
    Nobody,
    /// So many places were removed that the rest is for another script.
    Limit,
}

impl Fair {
    /// Takes the lock, picks up what is reserved, or waits in the line.
    pub(super) fn acquire(&self, state: &mut State, id: u8, ticket: u8) -> Answer {
        let picks_up = state.lock.is_some_and(|lock| lock.id == id && !lock.held);
        self.hear_of(state, id, picks_up);
        match state.lock {
            Some(lock) if lock.id == id => self.grant(state, id),
            Some(_) => Answer::Waits(self.enter(state, id, ticket)),
            None if self.is(Switch::FirstDoesNotLook) && ticket == 0 => self.grant(state, id),
            None => {
                let ticket = self.enter(state, id, ticket);
                match self.pass_on(state, Some(id)) {
                    Next::Asker => self.grant(state, id),
                    Next::Limit => Answer::Again(ticket),
                    Next::Other | Next::Nobody => Answer::Waits(ticket),
                }
            }
        }
    }

    /// A client that asks is no longer marked, unless the lock is reserved for another waiter of it:
    /// its attempt does not show that it will pick that up.
    fn hear_of(&self, state: &mut State, id: u8, picks_up: bool) {
        let client = self.client_of(id);
        let ours = state.lock.is_some_and(|lock| {
            lock.id != id && lock.id != PLAIN && !lock.held && self.client_of(lock.id) == client
        });
        let kept = ours && !self.is(Switch::AnyAttemptUnmarks)
            || picks_up && self.is(Switch::PickUpKeepsMark)
            || self.is(Switch::MarksStay);
        if !kept {
            state.marks &= !(1 << client);
        }
        if !ours {
            state.clients[usize::from(client)].missed = false;
        }
    }

    /// The place of an id: at its ticket, or behind all.
    fn enter(&self, state: &mut State, id: u8, ticket: u8) -> u8 {
        let known = state.line.iter().find(|(_, other)| *other == id).map(|(ticket, _)| *ticket);
        let ticket = known.unwrap_or_else(|| {
            let ticket = match ticket {
                0 => state.last_ticket + 1,
                known => known,
            };
            state.line.push((ticket, id));
            state.line.sort_unstable();
            ticket
        });
        state.last_ticket = state.last_ticket.max(ticket);
        let waiter = state.waiter(waiter_of(id));
        if waiter.id == id {
            waiter.excused = false;
            if waiter.arrived == 0 {
                waiter.arrived = ticket;
            }
        }
        ticket
    }

    fn grant(&self, state: &mut State, id: u8) -> Answer {
        if state.lock.is_none() {
            self.look_at_order(state, id);
        }
        state.line.retain(|(_, other)| *other != id);
        state.lock = Some(Lock { id, held: true, unheard: false, unmarked: false });
        Answer::Granted
    }

    /// Reserves a free lock for the first in line whose client is not marked.
    pub(super) fn pass_on(&self, state: &mut State, asker: Option<u8>) -> Next {
        let mut removed = 0;
        while let Some((_, first)) = state.line.first().copied() {
            if Some(first) == asker {
                return Next::Asker;
            }
            let client = self.client_of(first);
            if state.marks & 1 << client == 0 || self.is(Switch::NobodyIsMarked) {
                self.reserve(state, first);
                state.marks |= 1 << client;
                return Next::Other;
            }
            if removed == self.scope.limit {
                if !self.is(Switch::LimitIsSilent) {
                    self.tell_all(state, ALL);
                }
                return Next::Limit;
            }
            removed += 1;
            state.line.remove(0);
            self.look_at_mark(state, first);
            state.waiter(waiter_of(first)).excused = true;
        }
        Next::Nobody
    }

    fn reserve(&self, state: &mut State, first: u8) {
        self.look_at_order(state, first);
        state.line.retain(|(_, other)| *other != first);
        let lock = Lock { id: first, held: false, unheard: false, unmarked: false };
        state.lock = Some(lock);
        if !self.is(Switch::ReservesSilently) {
            state.tell(self.client_of(first), first);
        }
    }

    fn tell_all(&self, state: &mut State, word: u8) {
        for client in (0..).take(state.clients.len()) {
            state.tell(client, word);
        }
    }

    /// A mark is for clients that let a reservation run out.
    fn look_at_mark(&self, state: &mut State, id: u8) {
        let client = state.clients[usize::from(self.client_of(id))];
        if self.waiting(state, id).is_some() && client.acts() && !client.missed {
            state.broken = Some("a living client that missed nothing loses a place");
        }
    }

    /// Whom a grant or a reservation passes over.
    fn look_at_order(&self, state: &mut State, id: u8) {
        let ticket = match state.waiters[usize::from(waiter_of(id))] {
            waiter if waiter.id != id => return,
            waiter if waiter.arrived == 0 => u8::MAX,
            waiter => waiter.arrived,
        };
        let goes_first = |(number, other): (u8, &super::Waiter)| {
            let in_order = other.arrived != 0 && other.arrived < ticket && !other.excused;
            in_order && other.waits() && self.acts(state, number)
        };
        if (0..).zip(&state.waiters).any(goes_first) {
            state.broken = Some("somebody who has waited for longer is overtaken");
        }
    }

    /// The last release of a hold, and whatever else ends one; also leaves the line.
    pub(super) fn release(&self, state: &mut State, id: u8) {
        if !self.is(Switch::ReleaseKeepsMark) {
            state.marks &= !(1 << self.client_of(id));
        }
        let own = state.lock.is_some_and(|lock| lock.id == id);
        if own {
            state.lock = None;
        } else {
            state.line.retain(|(_, other)| *other != id);
        }
        if state.lock.is_none() {
            let next = self.pass_on(state, None);
            if own && next == Next::Nobody {
                self.tell_all(state, ALL);
            }
        }
    }

    /// A release of an id of which its client does not know what it has. The answer brings the ticket
    /// of the place that it had.
    pub(super) fn undo(&self, state: &mut State, id: u8) {
        let place = state.line.iter().find(|(_, other)| *other == id).copied();
        let had_lock = state.lock.is_some_and(|lock| lock.id == id);
        self.release(state, id);
        let forgets = self.is(Switch::UndoForgetsTicket);
        let waiter = state.waiter(waiter_of(id));
        if let Some((ticket, _)) = place.filter(|_| waiter.ticket == 0 && waiter.waits()) {
            waiter.arrived = if waiter.arrived == 0 { ticket } else { waiter.arrived.min(ticket) };
            waiter.ticket = if forgets { 0 } else { ticket };
        } else if had_lock && waiter.ticket == 0 {
            // It had got the lock at once, so that it never had a place.
            waiter.arrived = 0;
        }
    }

    /// A plain lock knows the line, but no marks.
    pub(super) fn release_plain(&self, state: &mut State) {
        state.lock = None;
        match state.line.first().copied() {
            Some((_, first)) => {
                self.reserve(state, first);
                state.lock = state.lock.map(|lock| Lock { unmarked: true, ..lock });
            }
            None => self.tell_all(state, ALL),
        }
    }

    pub(super) fn force(&self, state: &mut State, lock: Lock) {
        let waiter = waiter_of(lock.id);
        if lock.held {
            if state.waiters[usize::from(waiter)].id == lock.id {
                state.waiter(waiter).phase = Phase::Over;
            }
        } else {
            state.waiter(waiter).excused = true;
            state.tell(self.client_of(lock.id), lock.id);
        }
        if !self.is(Switch::ForceKeepsMark) {
            state.marks &= !(1 << self.client_of(lock.id));
        }
        state.lock = None;
        if self.pass_on(state, None) == Next::Nobody {
            self.tell_all(state, ALL);
        }
    }

    /// `try_lock` of somebody who is not in the model: it does not take the lock, but what it finds
    /// free it passes on.
    pub(super) fn look(&self, state: &mut State) {
        let before = state.line.len();
        if before == 0 {
            return;
        }
        if !self.is(Switch::TryPassesOnNothing) {
            self.pass_on(state, None);
        }
        let waits = |(number, it): (u8, &super::Waiter)| {
            it.waits() && state.clients[usize::from(self.scope.waiters[usize::from(number)])].alive
        };
        let of_dead = !(0..).zip(&state.waiters).any(waits);
        if of_dead && state.lock.is_none() && state.line.len() == before {
            state.broken = Some("places of the dead keep the lock from those who try");
        }
    }
}
