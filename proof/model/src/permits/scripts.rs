//! The scripts, as they run on the server: each is one step.

use crate::explore::SERVER;
use crate::explore::Step;
use crate::permits::Permits;
use crate::permits::RESERVATION;
use crate::permits::rules::Switch;
use crate::permits::state::ALL;
use crate::permits::state::Answer;
use crate::permits::state::Command;
use crate::permits::state::Message;
use crate::permits::state::NEVER;
use crate::permits::state::Place;
use crate::permits::state::State;
use crate::permits::state::Taken;
use crate::permits::state::owner;

impl Permits {
    pub(crate) fn server_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let mut last = None;
        for (at, message) in state.wire.iter().enumerate() {
            // Two equal messages: one of them is enough.
            if message.answer.is_some() || last.replace(message) == Some(message) {
                continue;
            }
            let mut state = state.clone();
            let message = state.wire.remove(at);
            let answer = self.run(&mut state, &message);
            if message.awaited {
                state.put(Message { answer: Some((answer, state.now)), ..message });
            }
            let (what, id) = match message.command {
                Command::Acquire { id, .. } => ("executes acquire of hold", id),
                Command::Release { id } => ("executes release of hold", id),
                Command::ReleaseOfDead { id } => ("executes release of dead hold", id),
            };
            next.push((Step::about(SERVER, what, id), state));
        }
    }

    fn run(&self, state: &mut State, message: &Message) -> Answer {
        match message.command {
            Command::Acquire { .. }
                if state.now > message.not_after && !self.breaks(Switch::GrantsLate) =>
            {
                Answer::Late
            }
            Command::Acquire { id, want, ticket } => self.acquire(state, id, want, ticket),
            Command::Release { id } | Command::ReleaseOfDead { id } => self.release(state, id),
        }
    }

    /// What has run out comes back.
    fn take_back(&self, state: &mut State) {
        if !self.breaks(Switch::NothingRunsOut) {
            let now = state.now;
            state.taken.retain(|taken| taken.end > now);
        }
    }

    fn acquire(&self, state: &mut State, id: u8, want: u8, ticket: u8) -> Answer {
        self.take_back(state);
        if state.taken.iter().any(|taken| taken.id == id) {
            return self.grant(state, id, want);
        }
        if want > state.number {
            state.line.retain(|place| place.id != id);
            self.pass_on(state, NEVER);
            return Answer::TooMany;
        }
        if self.breaks(Switch::NewcomersOvertake) && ticket == 0 && self.fits(state, want) {
            check_order(state, NEVER);
            return self.grant(state, id, want);
        }
        // Those before it go first.
        let heard = state.now + self.scope.fallback + 1;
        let ticket = enter(state, Place { ticket, id, want, heard });
        self.pass_on(state, ticket);
        let is_first = state.line.first().is_some_and(|place| place.id == id);
        if !is_first || !self.fits(state, want) {
            let end = state.taken.iter().map(|taken| taken.end).min().unwrap_or(NEVER);
            return Answer::Waits { ticket, end };
        }
        state.line.remove(0);
        let answer = self.grant(state, id, want);
        if !self.breaks(Switch::GrantPassesNothingOn) {
            self.pass_on(state, NEVER);
        }
        answer
    }

    fn fits(&self, state: &State, want: u8) -> bool {
        let number =
            if self.breaks(Switch::OwnNumberFirst) { self.scope.permits } else { state.number };
        state.permits_taken() + want <= number
    }

    /// Fresh permits, or those that are reserved: theirs is the end of the lease from now on.
    fn grant(&self, state: &mut State, id: u8, want: u8) -> Answer {
        let reserved = state.taken.iter().find(|taken| taken.id == id).copied();
        let lease = state.now + self.scope.lease;
        let end = match reserved {
            Some(reserved) if self.breaks(Switch::PickUpKeepsEnd) => reserved.end,
            _ => lease,
        };
        let more = reserved.is_none_or(|reserved| want > reserved.permits);
        state.taken.retain(|taken| taken.id != id);
        self.take(state, Taken { id, permits: want, end }, more);
        Answer::Granted
    }

    fn take(&self, state: &mut State, taken: Taken, more: bool) {
        let at = state.taken.partition_point(|other| *other < taken);
        state.taken.insert(at, taken);
        if more && state.permits_taken() > state.number {
            state.flaw = Some("more permits are taken than there are");
        }
    }

    fn release(&self, state: &mut State, id: u8) -> Answer {
        state.taken.retain(|taken| taken.id != id);
        let left = state.line.iter().any(|place| place.id == id);
        if !self.breaks(Switch::StaysInLine) {
            state.line.retain(|place| place.id != id);
        }
        self.take_back(state);
        if !(left && self.breaks(Switch::LeavingPassesNothingOn)) {
            self.pass_on(state, NEVER);
        }
        Answer::Released
    }

    /// Reserves for those in line whose tickets are lower what is free, each want whole, until one
    /// does not fit. Who wants more than there are, or would keep others waiting and was not heard of
    /// for long, is told, and loses its place.
    fn pass_on(&self, state: &mut State, before: u8) {
        let mut at = 0;
        while let Some(first) = state.line.get(at).copied().filter(|first| first.ticket < before) {
            if first.want > state.number {
                state.line.remove(at);
                self.announce(state, first.id);
            } else if self.fits(state, first.want) {
                check_order(state, first.ticket);
                state.line.remove(at);
                let end = state.now + RESERVATION;
                self.take(state, Taken { id: first.id, permits: first.want, end }, true);
                if !self.breaks(Switch::AnnouncesNothing) {
                    self.announce(state, first.id);
                }
            } else if first.heard <= state.now
                && state.permits_taken() < state.number
                && !self.breaks(Switch::DeadKeepOthersWaiting)
            {
                state.line.remove(at);
                self.announce(state, first.id);
            } else if self.breaks(Switch::SmallOvertakes) {
                at += 1;
            } else {
                return;
            }
        }
    }

    fn announce(&self, state: &mut State, id: u8) {
        for who in 0..self.scope.callers.len() {
            let waits = state.clients[who].alive && !state.clients[who].waiting.is_empty();
            let word = (u8::try_from(who).unwrap_or(NEVER), id);
            if let (true, Err(at)) = (waits, state.words.binary_search(&word)) {
                state.words.insert(at, word);
            }
        }
    }

    /// Somebody sets the number for everybody, and who waits is told to try.
    pub(crate) fn set_number(&self, state: &mut State, number: u8) {
        state.number = number;
        if !self.breaks(Switch::NumberIsNotTold) {
            self.announce(state, ALL);
        }
    }
}

/// Enters the line at this ticket, or behind all others, unless the id has a place.
fn enter(state: &mut State, mut place: Place) -> u8 {
    if let Some(known) = state.line.iter_mut().find(|known| known.id == place.id) {
        known.heard = place.heard;
        return known.ticket;
    }
    if place.ticket == 0 {
        place.ticket = state.new_ticket();
    }
    let at = state.line.partition_point(|other| *other < place);
    state.line.insert(at, place);
    place.ticket
}

/// Permits go to the holder of this ticket: nobody who is alive may stand before it, unless there
/// are not so many.
fn check_order(state: &mut State, ticket: u8) {
    let number = state.number;
    let passed = state.line.iter().any(|place| {
        place.ticket < ticket && place.want <= number && state.clients[owner(place.id)].alive
    });
    if passed {
        state.flaw = Some("a later want goes before an earlier one");
    }
}
