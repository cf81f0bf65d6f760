//! The scripts, as they run on the server: each is one step.

use crate::line::Line;
use crate::line::rules::Switch;
use crate::line::state::Answer;
use crate::line::state::Keys;
use crate::line::state::Lock;
use crate::line::state::Message;
use crate::line::state::Mode;
use crate::line::state::NEVER;
use crate::line::state::Place;
use crate::line::state::Refusal;
use crate::line::state::State;
use crate::line::state::Told;
use crate::line::state::WATCHER;
use crate::line::state::Word;
use crate::line::state::owner;

/// The arguments of an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) id: u8,
    pub(crate) mode: Mode,
    pub(crate) ticket: u8,
    pub(crate) hears: bool,
    pub(crate) not_after: u8,
    /// Checks only: its client still waits for the answer.
    pub(crate) awaited: bool,
}

/// What became of a lock that was free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    /// The first in line is the one that asks.
    ToAsker,
    ToAnother,
    NoLine,
    /// Redis has refused a command: the lock is free.
    Refused,
}

impl Line {
    pub(crate) fn acquire(&self, state: &mut State, attempt: &Attempt) -> Answer {
        let id = attempt.id;
        if state.now > attempt.not_after {
            if self.breaks(Switch::EntersLate) && state.data.lock.is_some_and(|lock| lock.id != id)
            {
                self.enter(state, attempt, attempt.ticket);
            }
            return Answer::Late;
        }
        self.note_attempt(state, attempt);
        match state.data.lock {
            Some(lock) if lock.id == id && lock.reserved => self.pick_up(state, attempt, lock),
            Some(lock) if lock.id == id => self.grant(state, attempt, lock.expires),
            Some(lock) if lock.reserved && self.takes_reservation(attempt) => {
                self.check_attempt(state, attempt);
                self.grant(state, attempt, 0)
            }
            Some(_) if attempt.mode == Mode::Try => Answer::Refused,
            Some(lock) => self.wait(state, attempt, lock.expires),
            None if attempt.mode == Mode::Again && !self.ignores_line(state) => {
                self.acquire_free_again(state, attempt)
            }
            None => self.acquire_free(state, attempt),
        }
    }

    fn takes_reservation(&self, attempt: &Attempt) -> bool {
        attempt.mode == Mode::Try && self.breaks(Switch::TryTakesReservation)
    }

    fn ignores_line(&self, state: &State) -> bool {
        let alone = state.moving && self.breaks(Switch::AcquiresWhileSlotMoves);
        alone || self.breaks(Switch::AgainTakesFreeLock)
    }

    fn pick_up(&self, state: &mut State, attempt: &Attempt, lock: Lock) -> Answer {
        let in_order =
            state.checks.order.iter().any(|(_, who)| usize::from(*who) == owner(attempt.id));
        if !in_order {
            self.check_attempt(state, attempt);
        }
        let kept = if self.breaks(Switch::PickUpKeepsTimeToLive) { lock.expires } else { 0 };
        if kept > state.now + self.scope.lease {
            state.checks.flaw = Some("no key outlives the lease that was asked for");
        }
        self.grant(state, attempt, kept)
    }

    /// An absent lock is granted to a first attempt, whoever waits.
    fn acquire_free(&self, state: &mut State, attempt: &Attempt) -> Answer {
        let newcomer = attempt.mode != Mode::Again && attempt.ticket == 0;
        if !(newcomer && state.checks.newcomers_may_overtake) {
            self.check_attempt(state, attempt);
        }
        self.grant(state, attempt, 0)
    }

    /// Who has been refused before enters the line at its ticket, and the lock goes to the first in
    /// line.
    fn acquire_free_again(&self, state: &mut State, attempt: &Attempt) -> Answer {
        let mut attempt = *attempt;
        if self.breaks(Switch::AgainDoesNotPassOn) {
            if state.data.line.first().is_some_and(|place| place.id != attempt.id) {
                return self.wait(state, &attempt, NEVER);
            }
        } else if self.breaks(Switch::InsertsAfterPassOn) {
            if self.pass_on(state, attempt.id) == Passed::ToAnother {
                return self.wait(state, &attempt, state.now + self.scope.reservation);
            }
        } else {
            attempt.ticket = self.enter(state, &attempt, attempt.ticket);
            match self.pass_on(state, attempt.id) {
                Passed::ToAnother => {
                    return self.wait(state, &attempt, state.now + self.scope.reservation);
                }
                // The lock is free, and a command is refused for all: who asks is granted.
                Passed::Refused if self.breaks(Switch::RefusalGrantsNobody) => {
                    return self.wait(state, &attempt, NEVER);
                }
                Passed::Refused => return self.grant(state, &attempt, 0),
                Passed::ToAsker | Passed::NoLine => {}
            }
        }
        self.check_attempt(state, &attempt);
        self.grant(state, &attempt, 0)
    }

    /// The lock is the asker's for a lease, or until `at_least`. It leaves the line.
    fn grant(&self, state: &mut State, attempt: &Attempt, at_least: u8) -> Answer {
        let expires = at_least.max(state.now + self.scope.lease);
        state.data.lock = Some(Lock { id: attempt.id, reserved: false, expires });
        if !self.breaks(Switch::StaysAfterGrant) {
            leave(state, attempt.id);
        }
        state.note_grant(owner(attempt.id), attempt.awaited);
        Answer::Granted
    }

    /// Another has the lock, until `expires`, or it is reserved for another.
    fn wait(&self, state: &mut State, attempt: &Attempt, expires: u8) -> Answer {
        let ticket = if attempt.hears || self.breaks(Switch::DeafEnters) {
            self.enter(state, attempt, attempt.ticket)
        } else {
            self.keep_out(state, attempt)
        };
        let reserved = state.data.lock.is_some_and(|lock| lock.reserved);
        let untold = reserved && self.breaks(Switch::ReservationIsNotTold);
        let time_to_live = expires.saturating_sub(state.now);
        Answer::Waits(Told {
            time_to_live: if untold || time_to_live >= self.scope.fallback {
                NEVER
            } else {
                time_to_live
            },
            ticket,
            rank: self.rank(state, ticket),
        })
    }

    fn rank(&self, state: &State, ticket: u8) -> u8 {
        if self.scope.timers.is_none() {
            return 0;
        }
        let lower = state.data.line.iter().filter(|place| place.ticket < ticket).count();
        u8::try_from(lower).unwrap_or(u8::MAX)
    }

    /// Who does not hear has a ticket, but no place.
    fn keep_out(&self, state: &mut State, attempt: &Attempt) -> u8 {
        let place = state.data.line.iter().find(|place| place.id == attempt.id).copied();
        let ticket = match place {
            Some(place) => place.ticket,
            None if attempt.ticket != 0 => attempt.ticket,
            None => state.new_ticket(),
        };
        leave(state, attempt.id);
        state.note_ticket(owner(attempt.id), ticket, attempt.awaited);
        if attempt.awaited {
            state.checks.excused.add(owner(attempt.id));
        }
        if attempt.ticket == 0 && self.breaks(Switch::DeafGetsNoTicket) { 0 } else { ticket }
    }

    /// Enters the line at this ticket, or at a new one, unless the id has a place.
    fn enter(&self, state: &mut State, attempt: &Attempt, ticket: u8) -> u8 {
        let id = attempt.id;
        if self.breaks(Switch::TicketMoves) {
            state.data.line.retain(|place| place.id != id);
        }
        let place = state.data.line.iter().find(|place| place.id == id).copied();
        let ticket = match place {
            Some(place) => place.ticket,
            None if ticket == 0 || self.breaks(Switch::TicketMoves) => state.new_ticket(),
            None => ticket,
        };
        if let Err(at) = state.data.line.binary_search(&Place { ticket, id }) {
            state.data.line.insert(at, Place { ticket, id });
        }
        if state.data.line.len() == 1 || !self.breaks(Switch::LineIsNotRenewed) {
            state.data.line_expires = state.now + self.scope.line_lives;
        }
        // A ticket that is kept too long must not count as the order either.
        let kept = self.breaks(Switch::TicketKeptAfterGrant)
            || self.breaks(Switch::TicketKeptAfterLeaving);
        let rightful = if kept { state.new_ticket() } else { ticket };
        state.note_ticket(owner(id), rightful, attempt.awaited);
        if attempt.awaited {
            state.checks.excused.remove(owner(id));
        }
        ticket
    }

    /// What becomes of a lock that a script has freed or found free.
    pub(crate) fn pass_on(&self, state: &mut State, asker: u8) -> Passed {
        if state.data.lock.is_some() {
            state.checks.flaw = Some("one reservation at a time, and none of a lock that is held");
        }
        let Some(first) = state.data.line.first().copied() else { return Passed::NoLine };
        if first.id == asker {
            return Passed::ToAsker;
        }
        let refusal = state.refusal.take();
        if refusal != Some(Refusal::Publish) {
            self.publish(state, Word::Reserved(first.id));
        }
        if refusal.is_some() {
            state.checks.newcomers_may_overtake = true;
            state.checks.faulty = true;
            return Passed::Refused;
        }
        self.check_reservation(state, first.id);
        let expires = state.now + self.scope.reservation;
        state.data.lock = Some(Lock { id: first.id, reserved: true, expires });
        if !self.breaks(Switch::KeepsPlaceOfReserved) {
            leave(state, first.id);
        }
        Passed::ToAnother
    }

    /// The script has freed the lock: the first in line gets it, or all are told.
    fn freed(&self, state: &mut State) {
        if self.pass_on(state, 0) == Passed::NoLine {
            self.publish_zero(state);
        }
    }

    fn publish_zero(&self, state: &mut State) {
        if !self.breaks(Switch::NoZero) {
            self.publish(state, Word::Zero);
        }
    }

    fn publish(&self, state: &mut State, word: Word) {
        for who in (0..).take(state.clients.len()) {
            if !state.client(who).hears() || state.client(who).waiting == 0 {
                continue;
            }
            // A word about another client's id only sets a timer: in order to have fewer states, it
            // arrives at once.
            let about_another = matches!(word, Word::Reserved(id) if owner(id) != usize::from(who));
            if about_another && self.scope.prompt && state.left.lost_messages == 0 {
                self.hear(state, who, word);
            } else {
                state.say(who, word);
            }
        }
        // Whoever only listens need not know for whom the lock is reserved.
        if state.watcher.is_some() && word == Word::Zero {
            state.say(WATCHER, word);
        }
    }

    /// `release(0)`: of a hold, of a place, or of nothing at all.
    pub(crate) fn release(&self, state: &mut State, id: u8, keys: Keys, of_hold: bool) -> Answer {
        match (state.data.lock, keys) {
            (Some(lock), Keys::LockAlone) if lock.id == id => {
                state.data.lock = None;
                state.checks.newcomers_may_overtake = true;
                self.publish_zero(state);
                Answer::FreedAlone
            }
            (Some(lock), Keys::LockAndLine) if lock.id == id => {
                state.data.lock = None;
                let silent = if of_hold {
                    Switch::ReleaseReservesNobody
                } else {
                    Switch::LeavingReservesNobody
                };
                if !self.breaks(silent) {
                    self.freed(state);
                }
                Answer::Freed
            }
            (_, Keys::LockAlone) => Answer::NotOwn,
            (lock, Keys::LockAndLine) => {
                let was_first = state.data.line.first().is_some_and(|place| place.id == id);
                leave(state, id);
                let repairs = was_first || !self.breaks(Switch::RepairOnlyByFirst);
                let free =
                    lock.is_none() || was_first && self.breaks(Switch::LeavingPassesOnHeldLock);
                if free && repairs && !self.breaks(Switch::LeavingReservesNobody) {
                    self.pass_on(state, 0);
                }
                Answer::NotOwn
            }
        }
    }

    /// The lock goes from one hold of a client to its next, or, the line first, to the first in
    /// line.
    pub(crate) fn hand_off(
        &self,
        state: &mut State,
        from: u8,
        to: &Attempt,
        line_first: bool,
    ) -> Answer {
        let late = state.now > to.not_after;
        match state.data.lock {
            Some(lock) if lock.id == from && late => {
                if !self.breaks(Switch::LateHandOffKeepsLock) {
                    state.data.lock = None;
                    self.freed(state);
                }
                Answer::Late
            }
            Some(lock) if lock.id == from => {
                state.data.lock = None;
                if line_first && self.pass_on(state, 0) == Passed::ToAnother {
                    return self.enter_behind(state, to);
                }
                self.grant(state, to, 0)
            }
            Some(lock) if lock.id == to.id && late => Answer::Late,
            Some(lock) if lock.id == to.id => self.grant(state, to, lock.expires),
            _ => Answer::NotOwn,
        }
    }

    /// The heir of a hand-off that went to the line waits behind those who are there.
    fn enter_behind(&self, state: &mut State, to: &Attempt) -> Answer {
        let hears = to.hears || self.breaks(Switch::DeafHeirEnters);
        self.wait(state, &Attempt { hears, ..*to }, state.now + self.scope.reservation)
    }

    /// The lock is taken away from whoever has it, or from whom it is reserved for.
    pub(crate) fn force_release(&self, state: &mut State, id: u8) {
        if state.data.lock.is_none_or(|lock| lock.id != id) {
            return;
        }
        state.note_taken_away();
        state.data.lock = None;
        let holder = &state.clients[owner(id)];
        if holder.alive && holder.linked {
            state.say(id / 8, Word::Reserved(id));
        }
        if state.moving {
            state.checks.newcomers_may_overtake = true;
            self.publish_zero(state);
        } else if !self.breaks(Switch::ForceReservesNobody) {
            self.freed(state);
        }
    }
}

fn leave(state: &mut State, id: u8) {
    state.data.line.retain(|place| place.id != id);
    if state.data.line.is_empty() {
        state.data.line_expires = 0;
    }
}

/// An attempt of a command on its way.
pub(crate) fn attempt(message: &Message, id: u8, mode: Mode, ticket: u8, hears: bool) -> Attempt {
    Attempt { id, mode, ticket, hears, not_after: message.not_after, awaited: message.awaited }
}
