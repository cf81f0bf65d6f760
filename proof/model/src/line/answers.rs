//! What clients make of answers, and of answers that do not come.

use crate::explore::Step;
use crate::line::Line;
use crate::line::rules::Switch;
use crate::line::state::Answer;
use crate::line::state::Command;
use crate::line::state::Dead;
use crate::line::state::Hold;
use crate::line::state::Keys;
use crate::line::state::Message;
use crate::line::state::Mode;
use crate::line::state::NEVER;
use crate::line::state::Purpose;
use crate::line::state::State;
use crate::line::state::Subscription;
use crate::line::state::Told;

impl Line {
    pub(crate) fn answer_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let mut last = None;
        for (at, message) in state.wire.iter().enumerate() {
            if last.replace(message) == Some(message) || !message.awaited {
                continue;
            }
            if let Some((answer, time)) = message.answer {
                let mut state = state.clone();
                state.wire.remove(at);
                let step = self.hear_answer(&mut state, message, answer, time);
                next.push((step, state));
            }
            if state.left.unknown > 0 {
                let mut state = state.clone();
                state.left.unknown -= 1;
                state.wire.remove(at);
                if message.answer.is_none() {
                    state.put(Message { awaited: false, ..*message });
                }
                let step = self.hear_nothing(&mut state, message);
                next.push((step, state));
            }
        }
    }

    fn hear_answer(&self, state: &mut State, message: &Message, answer: Answer, time: u8) -> Step {
        let who = message.client;
        match message.command {
            Command::Acquire { id, mode, .. } => {
                self.attempt_answered(state, message, id, mode, answer)
            }
            Command::Release { id, purpose: Purpose::Hold, .. } => {
                self.release_answered(state, who, id, answer)
            }
            Command::Release { id, purpose: Purpose::Dead, keys } => {
                self.dead_released(state, who, id, keys, answer, time)
            }
            Command::Release { id, purpose: Purpose::Owed, .. } => {
                self.owed_released(state, who, id, answer)
            }
            Command::HandOff { from, to, .. } => {
                self.hand_off_answered(state, message, from, to, answer)
            }
            Command::ForceRelease { id } => Step::about(who, "has force-released hold", id),
        }
    }

    // ---- attempts

    fn attempt_answered(
        &self,
        state: &mut State,
        message: &Message,
        id: u8,
        mode: Mode,
        answer: Answer,
    ) -> Step {
        let who = message.client;
        state.client(who).attempt_on_wire = false;
        match answer {
            Answer::Granted => self.attempt_granted(state, message, id),
            Answer::Waits(told) => {
                self.sleep(state, who, told, "hears that another has it: hold", id)
            }
            Answer::TryAgain if mode != Mode::Try => self.slot_moves(state, message, id),
            Answer::Late => {
                self.attempt_lost(state, message, id);
                Step::about(who, "hears that it was too late: hold", id)
            }
            _ => {
                let client = state.client(who);
                client.waiting = client.waiting.saturating_sub(1);
                client.id = 0;
                state.checks.finished.add(id);
                let client = state.client(who);
                client.duty = client.waiting > 0;
                Step::about(who, "hears that it cannot have the lock now: hold", id)
            }
        }
    }

    fn attempt_granted(&self, state: &mut State, message: &Message, id: u8) -> Step {
        let who = message.client;
        let from = if self.breaks(Switch::ValidityFromReply) { state.now } else { message.sent };
        let until = from + self.scope.lease - 1;
        let now = state.now;
        let client = state.client(who);
        client.id = 0;
        client.again = false;
        client.timer = NEVER;
        client.rank = 0;
        client.hand_offs = 0;
        if !self.breaks(Switch::TicketKeptAfterGrant) {
            client.ticket = 0;
        }
        if client.waiting > 0 && now < until {
            client.waiting -= 1;
            client.duty = false;
            client.hold = Hold::Held { id, until };
            return Step::about(who, "is granted hold", id);
        }
        client.duty = client.waiting > 0;
        self.send_release(state, who, id, Keys::LockAndLine);
        Step::about(
            who,
            "is granted the lock after its caller has gone, and sends release(0) of hold",
            id,
        )
    }

    fn sleep(&self, state: &mut State, who: u8, told: Told, what: &'static str, id: u8) -> Step {
        let now = state.now;
        let client = state.client(who);
        if client.waiting == 0 {
            self.no_waiter_left(state, who);
            return Step::about(who, "hears that another has it, and leaves: hold", id);
        }
        client.again = true;
        client.ticket = told.ticket;
        client.rank = told.rank;
        client.asleep_since = now;
        client.fallback =
            if self.breaks(Switch::NoFallback) { NEVER } else { now + self.scope.fallback };
        // What was heard during the attempt may be newer than its answer.
        if self.breaks(Switch::AnswerReplacesTimer) {
            client.timer = NEVER;
        }
        if self.has_timer(told.rank) {
            client.timer = client.timer.min(now.saturating_add(told.time_to_live));
        }
        if client.linked && client.subscription == Subscription::None {
            client.subscription = Subscription::Wanted;
        }
        Step::about(who, what, id)
    }

    /// The line cannot be reached. What is reserved for this client can be picked up without it;
    /// all else waits for the slot.
    fn slot_moves(&self, state: &mut State, message: &Message, id: u8) -> Step {
        let who = message.client;
        let Command::Acquire { mode, ticket, hears, keys, .. } = message.command else {
            return self.wait_for_slot(state, who, id);
        };
        let tried_both = keys == Keys::LockAlone || self.breaks(Switch::PickUpWaitsForSlot);
        if tried_both || state.client(who).waiting == 0 {
            return self.wait_for_slot(state, who, id);
        }
        state.client(who).attempt_on_wire = true;
        let command = Command::Acquire { id, mode, ticket, hears, keys: Keys::LockAlone };
        state.send(who, command, state.now + 1);
        Step::about(who, "sends acquire with the lock alone of hold", id)
    }

    fn wait_for_slot(&self, state: &mut State, who: u8, id: u8) -> Step {
        let client = state.client(who);
        // What was heard during the attempt is a reason to try once more.
        client.slot = !client.duty || self.breaks(Switch::PickUpWaitsForSlot);
        client.duty = client.waiting > 0;
        if client.waiting == 0 {
            self.no_waiter_left(state, who);
        }
        Step::about(who, "waits for the slot with hold", id)
    }

    /// The attempt may still be executed, or was refused as too late: its id is over, but the
    /// ticket remains.
    fn attempt_lost(&self, state: &mut State, message: &Message, id: u8) {
        let who = message.client;
        let client = state.client(who);
        client.attempt_on_wire = false;
        client.id = 0;
        client.duty = client.waiting > 0;
        client.again &= client.waiting > 0 && !self.breaks(Switch::FirstAfterUnknown);
        if client.waiting == 0 {
            client.ticket = 0;
        }
        self.place_unknown(state, who);
        self.bury(state, who, id, message.not_after);
    }

    /// Whether the client has a place is unknown. With a ticket it comes back.
    fn place_unknown(&self, state: &mut State, who: u8) {
        let at = usize::from(who);
        if state.client(who).ticket == 0 || state.client(who).waiting == 0 {
            state.client(who).ticket = 0;
            state.out_of_order(at);
            return;
        }
        state.checks.excused.add(who);
        if self.breaks(Switch::NoTicketAfterUnknown) {
            state.client(who).ticket = 0;
        }
    }

    // ---- releases

    fn release_answered(&self, state: &mut State, who: u8, id: u8, answer: Answer) -> Step {
        if answer == Answer::TryAgain {
            self.send_release(state, who, id, Keys::LockAlone);
            return Step::about(who, "sends release(0) of the lock alone, of hold", id);
        }
        if answer == Answer::FreedAlone {
            self.owe(state, who, id);
        }
        state.checks.finished.add(id);
        let client = state.client(who);
        client.hold = Hold::None;
        client.duty |= client.waiting > 0;
        if self.breaks(Switch::HeirIsNotReleased) {
            self.forget_heirs(state, who);
        }
        Step::about(who, "has released hold", id)
    }

    fn dead_released(
        &self,
        state: &mut State,
        who: u8,
        id: u8,
        keys: Keys,
        answer: Answer,
        time: u8,
    ) -> Step {
        let at = state.client(who).dead.iter().position(|dead| dead.id == id);
        let Some(at) = at else { return Step::about(who, "has released dead hold", id) };
        if answer == Answer::TryAgain {
            let command = Command::Release { id, keys: Keys::LockAlone, purpose: Purpose::Dead };
            state.send(who, command, NEVER);
            return Step::about(who, "sends release(0) of the lock alone, of dead hold", id);
        }
        let not_after = state.client(who).dead[at].not_after;
        let past = if self.breaks(Switch::DeadUntilEqualTime) {
            time >= not_after
        } else {
            time > not_after
        };
        let left_line = keys == Keys::LockAndLine || self.breaks(Switch::LeavesByLockAlone);
        if left_line && (past || self.breaks(Switch::OneReleaseOfDead)) {
            state.client(who).dead.remove(at);
            state.checks.finished.add(id);
            state.abandon(|message| {
                message.client == who && is_release_of_dead(message.command, id)
            });
        } else {
            let dead = &mut state.client(who).dead[at];
            dead.on_wire = false;
            dead.answered = left_line;
            dead.slot = !left_line;
        }
        let client = state.client(who);
        client.duty |= client.waiting > 0 && answer == Answer::Freed;
        Step::about(who, "has released dead hold", id)
    }

    fn owed_released(&self, state: &mut State, who: u8, id: u8, answer: Answer) -> Step {
        let client = state.client(who);
        if let Some(owed) = &mut client.owed {
            if owed.again || answer == Answer::TryAgain {
                owed.on_wire = false;
                owed.again = false;
            } else {
                client.owed = None;
            }
        }
        Step::about(who, "hears about the release(0) that it owed for hold", id)
    }

    // ---- hand-offs

    fn hand_off_answered(
        &self,
        state: &mut State,
        message: &Message,
        from: u8,
        to: u8,
        answer: Answer,
    ) -> Step {
        let who = message.client;
        if answer == Answer::TryAgain {
            self.send_release(state, who, from, Keys::LockAlone);
            return Step::about(who, "sends release(0) of the lock alone instead, of hold", from);
        }
        state.checks.finished.add(from);
        let until = message.sent + self.scope.lease - 1;
        let now = state.now;
        let client = state.client(who);
        client.hold = Hold::None;
        match answer {
            Answer::Granted if client.waiting > 0 && now < until => {
                client.waiting -= 1;
                client.duty = false;
                client.hold = Hold::Held { id: to, until };
                Step::about(who, "has handed off to hold", to)
            }
            Answer::Granted => {
                client.duty = client.waiting > 0;
                self.send_release(state, who, to, Keys::LockAndLine);
                Step::about(
                    who,
                    "has handed off to a caller that has gone, and sends release(0) of hold",
                    to,
                )
            }
            Answer::Waits(told) => {
                client.id = to;
                client.duty &= client.waiting > 0;
                self.sleep(
                    state,
                    who,
                    told,
                    "hears that the line goes first, and waits with hold",
                    to,
                )
            }
            Answer::Late => {
                client.duty = client.waiting > 0;
                self.bury(state, who, to, message.not_after);
                Step::about(who, "hears that it was too late to hand off to hold", to)
            }
            _ => {
                client.duty = client.waiting > 0;
                Step::about(who, "had lost the lock before it handed off to hold", to)
            }
        }
    }

    /// Only with that rule broken: the heir is never released.
    fn forget_heirs(&self, state: &mut State, who: u8) {
        let heirs: Vec<u8> = state
            .client(who)
            .dead
            .iter()
            .filter(|dead| dead.not_after == NEVER)
            .map(|dead| dead.id)
            .collect();
        state.client(who).dead.retain(|dead| dead.not_after != NEVER);
        heirs.into_iter().for_each(|heir| state.checks.finished.add(heir));
    }

    // ---- no answer

    fn hear_nothing(&self, state: &mut State, message: &Message) -> Step {
        let who = message.client;
        match message.command {
            Command::Acquire { id, mode, .. } => {
                if mode == Mode::Try {
                    let client = state.client(who);
                    client.waiting = client.waiting.saturating_sub(1);
                }
                self.attempt_lost(state, message, id);
                Step::about(who, "gets no answer to its attempt, and releases dead hold", id)
            }
            Command::Release { id, purpose: Purpose::Hold, .. } => {
                state.client(who).hold = Hold::Releasing { id, on_wire: false };
                if self.breaks(Switch::OneRelease) {
                    state.client(who).hold = Hold::None;
                    state.checks.finished.add(id);
                }
                Step::about(who, "gets no answer to its release of hold", id)
            }
            Command::Release { id, purpose: Purpose::Dead, .. } => {
                if let Some(dead) = state.client(who).dead.iter_mut().find(|dead| dead.id == id) {
                    dead.on_wire = false;
                    dead.answered = false;
                }
                Step::about(who, "gets no answer to its release of dead hold", id)
            }
            Command::Release { id, purpose: Purpose::Owed, .. } => {
                if let Some(owed) = &mut state.client(who).owed {
                    owed.on_wire = false;
                }
                Step::about(who, "gets no answer to the release that it owed for hold", id)
            }
            Command::HandOff { from, to, .. } => self.hand_off_lost(state, message, from, to),
            Command::ForceRelease { id } => {
                Step::about(who, "gets no answer to its force-release of hold", id)
            }
        }
    }

    fn hand_off_lost(&self, state: &mut State, message: &Message, from: u8, to: u8) -> Step {
        let who = message.client;
        if self.breaks(Switch::HeirIsNotReleased) {
            let heir =
                Dead { id: to, not_after: NEVER, on_wire: false, answered: true, slot: false };
            state.client(who).dead.push(heir);
        } else {
            self.bury(state, who, to, message.not_after);
        }
        self.place_unknown(state, who);
        if self.breaks(Switch::GiverIsNotReleased) {
            state.client(who).hold = Hold::None;
            state.checks.finished.add(from);
            return Step::about(
                who,
                "gets no answer to its hand-off, and releases the heir only: not hold",
                from,
            );
        }
        self.send_release(state, who, from, Keys::LockAndLine);
        Step::about(who, "gets no answer to its hand-off, and releases both: from hold", from)
    }
}

fn is_release_of_dead(command: Command, id: u8) -> bool {
    matches!(command, Command::Release { id: other, purpose: Purpose::Dead, .. } if other == id)
}
