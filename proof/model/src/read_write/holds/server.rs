//! What the scripts do, and time.

use crate::read_write::holds::Holds;
use crate::read_write::holds::LEASE;
use crate::read_write::holds::SHORT;
use crate::read_write::holds::rules::Switch;
use crate::read_write::holds::state::Answer;
use crate::read_write::holds::state::Command;
use crate::read_write::holds::state::Message;
use crate::read_write::holds::state::Phase;
use crate::read_write::holds::state::State;

impl Holds {
    pub(super) fn pass(&self, state: &mut State) {
        state.now += 1;
        let now = state.now;
        state.timeouts.retain(|(_, end)| *end > now);
        if state.ends > 0 && state.ends <= now {
            state.fields.clear();
            (state.ends, state.writing) = (0, false);
        }
        for client in (0..).take(state.clients.len()) {
            if let Phase::Held(hold) = state.client(client).phase {
                let ending = matches!(hold.busy, Some((Command::End { .. }, _)));
                if now >= hold.until && !ending {
                    self.lose(state, client);
                }
            }
        }
        // Too late for all that it could do, and nobody waits for its answer.
        if !self.is(Switch::NoNotAfter) {
            let may_matter = |message: &Message| {
                message.awaited || message.command.is_never_late() || message.not_after >= now
            };
            state.wire.retain(may_matter);
        }
    }

    /// Executes a command, and keeps the answer if somebody waits for it.
    pub(super) fn execute(&self, state: &mut State, at: usize) -> &'static str {
        let message = state.wire.remove(at);
        let late = state.now > message.not_after && !self.is(Switch::NoNotAfter);
        let answer = if late { Answer::Late } else { self.run(state, message.command) };
        if message.awaited {
            state.wire.push(Message { answer: Some((answer, state.now)), ..message });
            state.wire.sort();
        }
        match (answer, message.command) {
            (Answer::Late, _) => "is too late for hold",
            (Answer::Refused, _) => "refuses hold",
            (Answer::Gone, _) => "does not find hold",
            (Answer::Done, Command::Take { write: true, .. }) => "gives the write lock to hold",
            (Answer::Done, Command::Take { .. }) => "gives a read lock to hold",
            (Answer::Done, Command::Want { .. }) => "counts up hold",
            (Answer::Done, Command::Keep { .. }) => "counts down hold",
            (Answer::Done, Command::Downgrade { .. }) => "leaves the reads to hold",
            (Answer::Done, Command::End { .. }) => "takes back all of hold",
            (Answer::Done, Command::Renew { .. }) => "renews hold",
            (Answer::Done, Command::Upgrade { .. }) => "gives the write lock to a reader, as hold",
        }
    }

    fn run(&self, state: &mut State, command: Command) -> Answer {
        match command {
            Command::Take { id, write: false } => self.take_read(state, id),
            Command::Take { id, .. } => self.take_write(state, id),
            Command::Want { id, reads, writes } => self.want(state, id, reads, writes),
            Command::Keep { id, reads, writes } => self.keep(state, id, reads, writes),
            Command::Downgrade { id, reads } => self.downgrade(state, id, reads),
            Command::End { id, .. } => self.end(state, id),
            Command::Renew { id } => self.renew(state, id),
            Command::Upgrade { from, to } => self.upgrade(state, from, to),
        }
    }

    fn take_read(&self, state: &mut State, id: u8) -> Answer {
        if state.reads(id) == 0 && state.writing {
            return Answer::Refused;
        }
        extend_timeout(state, id, LEASE);
        if state.reads(id) == 0 {
            state.set(id, 1, 0);
        }
        extend(state, LEASE);
        Answer::Done
    }

    fn take_write(&self, state: &mut State, id: u8) -> Answer {
        if state.writes(id) == 0 {
            self.remove_dead(state);
            if !state.fields.is_empty() {
                self.look_for_the_dead(state);
                return Answer::Refused;
            }
            state.set(id, 0, 1);
            state.writing = true;
        }
        extend(state, LEASE);
        Answer::Done
    }

    /// Readers whose timeout keys are gone.
    fn remove_dead(&self, state: &mut State) {
        if state.writing || self.is(Switch::DeadReadersStay) {
            return;
        }
        for field in state.fields.clone() {
            if field.writes == 0 && state.timeout(field.id) == 0 {
                state.set(field.id, 0, 0);
            }
        }
    }

    fn want(&self, state: &mut State, id: u8, reads: u8, writes: u8) -> Answer {
        let Some(field) = state.field(id) else { return Answer::Gone };
        let needs_write = writes > 0 && !self.is(Switch::WantNeedsNoWrite);
        if needs_write && field.writes == 0 || writes == 0 && field.writes > 0 {
            return Answer::Gone;
        }
        if reads > 0 {
            extend_timeout(state, id, SHORT);
        }
        state.writing |= writes > 0;
        // A copy that comes late takes no read away.
        state.set(id, if reads > 0 { reads } else { field.reads }, writes);
        extend(state, SHORT);
        Answer::Done
    }

    fn keep(&self, state: &mut State, id: u8, reads: u8, writes: u8) -> Answer {
        let Some(field) = state.field(id) else { return Answer::Gone };
        if reads + writes == 0 {
            return self.end(state, id);
        }
        if writes > 0 && field.writes == 0 {
            if self.is(Switch::KeepNeedsNoWrite) && reads == 0 {
                state.set(id, 0, 0);
                state.set_timeout(id, 0);
            }
            return Answer::Gone;
        }
        if writes == 0 && field.writes > 0 {
            return Answer::Gone;
        }
        state.set(id, reads, writes);
        if reads == 0 {
            state.set_timeout(id, 0);
        }
        Answer::Done
    }

    fn downgrade(&self, state: &mut State, id: u8, reads: u8) -> Answer {
        let Some(field) = state.field(id) else { return Answer::Gone };
        if field.writes > 0 {
            let before = state.timeout(id);
            let end = match self.is(Switch::DowngradeKeepsTimeout) {
                true if before > 0 => before,
                true => state.now + SHORT,
                false => before.max(state.now + SHORT).max(state.ends),
            };
            state.set_timeout(id, end);
            state.writing = false;
            state.ends = state.ends.max(end);
            if self.is(Switch::DowngradeInTwoScripts) {
                return self.end(state, id);
            }
        }
        state.set(id, reads, 0);
        Answer::Done
    }

    fn end(&self, state: &mut State, id: u8) -> Answer {
        let field = state.field(id);
        let is_reader = field.is_some_and(|field| field.writes == 0);
        if self.is(Switch::ReadReleaseShortens) && is_reader && state.fields.len() > 1 {
            state.ends = state.now + SHORT;
        }
        state.set(id, 0, 0);
        if !self.is(Switch::UndoLeavesTimeout) {
            state.set_timeout(id, 0);
        }
        state.writing &= state.fields.iter().any(|field| field.writes > 0);
        if field.is_some() { Answer::Done } else { Answer::Gone }
    }

    fn renew(&self, state: &mut State, id: u8) -> Answer {
        let Some(field) = state.field(id) else { return Answer::Gone };
        if field.reads > 0 {
            let is_alive = state.timeout(id) > 0;
            if field.writes == 0 && !is_alive {
                return Answer::Gone;
            }
            if is_alive && !self.is(Switch::RenewalForgetsTimeout) {
                extend_timeout(state, id, LEASE);
            }
        }
        extend(state, LEASE);
        Answer::Done
    }

    fn upgrade(&self, state: &mut State, from: u8, to: u8) -> Answer {
        if state.writes(to) > 0 {
            return Answer::Done;
        }
        if state.writing || state.reads(from) == 0 || state.timeout(from) == 0 {
            return Answer::Gone;
        }
        self.remove_dead(state);
        let others = state.fields.iter().any(|field| field.id != from);
        if others && !self.is(Switch::UpgradeIgnoresReaders) {
            return Answer::Refused;
        }
        let reads = if to == from { state.reads(from) } else { 0 };
        state.set(to, reads, 1);
        state.writing = true;
        extend(state, LEASE);
        Answer::Done
    }

    /// A writer is refused: not for longer than a lease because of somebody who is dead.
    fn look_for_the_dead(&self, state: &mut State) {
        let long_dead =
            |id: u8| state.died.iter().any(|(died, last)| *died == id && state.now > last + LEASE);
        if state.fields.iter().all(|field| long_dead(field.id)) {
            state.broken = Some("a dead holder keeps a writer out for longer than its lease");
        }
    }
}

/// Never shortens.
fn extend(state: &mut State, lease: u8) {
    state.ends = state.ends.max(state.now + lease);
}

fn extend_timeout(state: &mut State, id: u8, lease: u8) {
    let end = state.timeout(id).max(state.now + lease);
    state.set_timeout(id, end);
}
