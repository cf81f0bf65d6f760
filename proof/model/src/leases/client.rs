//! The clients: when they send what, and what they make of the answers.

use crate::explore::NOBODY;
use crate::explore::Step;
use crate::leases::LEASE;
use crate::leases::Leases;
use crate::leases::MARGIN;
use crate::leases::MAX_HOLD;
use crate::leases::SHORT;
use crate::leases::TIMEOUT;
use crate::leases::rules::Switch;
use crate::leases::state::Answer;
use crate::leases::state::Client;
use crate::leases::state::Command;
use crate::leases::state::Dead;
use crate::leases::state::Hold;
use crate::leases::state::Message;
use crate::leases::state::Phase;
use crate::leases::state::State;

/// Releases carry no `not_after`.
const ALWAYS: u8 = u8::MAX;

impl Leases {
    pub(crate) fn client_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for number in 0..state.clients.len() {
            let who = u8::try_from(number).unwrap_or(u8::MAX);
            let client = &state.clients[number];
            match client.phase {
                Phase::Idle { kept, stale } => self.start(state, who, kept, stale, next),
                Phase::Acquiring { id, wanted: true, stale } => cancel(state, who, id, stale, next),
                Phase::Held(hold) => self.while_held(state, who, hold, next),
                Phase::Releasing { id, on_wire, .. } => {
                    self.while_releasing(state, who, id, on_wire, next);
                }
                Phase::Acquiring { .. } | Phase::HandingOff { .. } => {}
            }
            self.clean_up(state, who, next);
            self.force_unlock(state, who, next);
        }
        self.answers(state, next);
        self.give_up(state, next);
    }

    /// Holds whose time is over are lost, whoever looks.
    pub(crate) fn run_out(&self, state: &mut State) {
        for number in 0..state.clients.len() {
            let Phase::Held(hold) = state.clients[number].phase else { continue };
            if state.now < hold.until {
                continue;
            }
            state.guard_ends(hold.id);
            if self.breaks(Switch::LateReplyRevives) {
                state.clients[number].phase = Phase::Held(Hold { ended: true, ..hold });
            } else {
                self.leave(state, u8::try_from(number).unwrap_or(u8::MAX), hold);
            }
        }
    }

    /// A hold is lost: nothing of it is sent any more, and no answer to it counts.
    fn leave(&self, state: &mut State, who: u8, hold: Hold) {
        state.guard_ends(hold.id);
        state.abandon(who, |command| concerns(command, hold.id));
        let client = &mut state.clients[usize::from(who)];
        client.renewing = false;
        client.phase = Phase::Idle { kept: 0, stale: 0 };
    }

    // ---- acquiring

    fn start(&self, state: &State, who: u8, kept: u8, stale: u8, next: &mut Vec<(Step, State)>) {
        let client = &state.clients[usize::from(who)];
        let cleaned = client.dead.iter().all(|dead| dead.on_wire || dead.answered);
        if client.starts == 0 || !cleaned {
            return;
        }
        let mut state = state.clone();
        state.clients[usize::from(who)].starts -= 1;
        let id = if kept > 0 { kept } else { self.fresh_id(&mut state, who) };
        let (lease, not_after, max_end) = self.grant_terms(&state);
        state.send(who, Command::Acquire { id, count: 1, lease, max_end }, not_after);
        state.clients[usize::from(who)].phase = Phase::Acquiring { id, wanted: true, stale };
        next.push((Step::about(who, "sends acquire for hold", id), state));
    }

    fn fresh_id(&self, state: &mut State, who: u8) -> u8 {
        let client = &mut state.clients[usize::from(who)];
        if self.breaks(Switch::IdsReused) {
            let id = who * 8 + 1;
            state.finished.remove(id);
            return id;
        }
        client.ids += 1;
        who * 8 + client.ids
    }

    /// Lease, `not_after` and end of a grant that is asked for now.
    fn grant_terms(&self, state: &State) -> (u8, u8, u8) {
        let not_after = state.now + TIMEOUT;
        let max_end = if self.scope.max_hold { state.now + MAX_HOLD } else { 0 };
        (self.capped(LEASE, not_after, max_end), not_after, max_end)
    }

    /// What `max_hold` leaves of a lease, however late in its time the command is executed.
    fn capped(&self, lease: u8, not_after: u8, max_end: u8) -> u8 {
        if max_end == 0 || self.breaks(Switch::NoMaxHoldCap) {
            return lease;
        }
        lease.min(max_end.saturating_sub(not_after))
    }

    fn valid_until(&self, state: &State, sent: u8, lease: u8) -> u8 {
        let from = if self.breaks(Switch::ValidityFromReply) { state.now } else { sent };
        from + lease.saturating_sub(MARGIN)
    }

    // ---- while it is held

    fn while_held(&self, state: &State, who: u8, hold: Hold, next: &mut Vec<(Step, State)>) {
        if state.now >= hold.until {
            return;
        }
        self.send_renew(state, who, hold.id, hold.until, hold.max_end, true, next);
        if hold.busy {
            return;
        }
        if state.left.reentries > 0 && hold.count == 1 {
            let mut state = state.clone();
            state.left.reentries -= 1;
            let not_after = state.now + TIMEOUT;
            let lease = self.capped(SHORT, not_after, hold.max_end);
            let command = Command::Acquire { id: hold.id, count: 2, lease, max_end: hold.max_end };
            state.send(who, command, not_after);
            state.clients[usize::from(who)].phase = Phase::Held(Hold { busy: true, ..hold });
            next.push((
                Step::about(
                    who,
                    "re-enters with a short lease: sends acquire(2) for hold",
                    hold.id,
                ),
                state,
            ));
        }
        if hold.count == 2 {
            let mut state = state.clone();
            let command = Command::Release { id: hold.id, count: 1, own: 2, cleanup: false };
            state.send(who, command, ALWAYS);
            state.clients[usize::from(who)].phase =
                Phase::Held(Hold { busy: true, count: 1, ..hold });
            next.push((
                Step::about(who, "gives one level up: sends release(1) for hold", hold.id),
                state,
            ));
        }
        self.give_up_hold(state, who, hold, next);
        if state.left.hand_offs > 0 {
            self.send_hand_off(state, who, hold, next);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a step of a model: state, who, and what about")]
    fn send_renew(
        &self,
        state: &State,
        who: u8,
        id: u8,
        until: u8,
        max_end: u8,
        guarded: bool,
        next: &mut Vec<(Step, State)>,
    ) {
        if state.left.renewals == 0 || state.clients[usize::from(who)].renewing {
            return;
        }
        let limit = state.now + TIMEOUT;
        // Without a guard there is no validity that would end it: the broken rule's doing.
        let not_after = if guarded { limit.min(until) } else { limit };
        let lease = self.capped(LEASE, not_after, max_end);
        if lease == 0 {
            return;
        }
        let mut state = state.clone();
        state.left.renewals -= 1;
        state.send(who, Command::Renew { id, lease, guarded }, not_after);
        state.clients[usize::from(who)].renewing = true;
        next.push((Step::about(who, "sends renew for hold", id), state));
    }

    fn give_up_hold(&self, state: &State, who: u8, hold: Hold, next: &mut Vec<(Step, State)>) {
        let mut state = state.clone();
        state.guard_ends(hold.id);
        if !self.breaks(Switch::RenewalsGoOn) {
            state.abandon(
                who,
                |command| matches!(command, Command::Renew { id, .. } if id == hold.id),
            );
            state.clients[usize::from(who)].renewing = false;
        }
        send_release(&mut state, who, hold.id, hold.count, hold.stale);
        next.push((Step::about(who, "releases: sends release(0) for hold", hold.id), state));
    }

    fn send_hand_off(&self, state: &State, who: u8, hold: Hold, next: &mut Vec<(Step, State)>) {
        let cleaned =
            state.clients[usize::from(who)].dead.iter().all(|dead| dead.on_wire || dead.answered);
        if !cleaned {
            return;
        }
        let mut state = state.clone();
        state.left.hand_offs -= 1;
        state.guard_ends(hold.id);
        state.abandon(who, |command| matches!(command, Command::Renew { id, .. } if id == hold.id));
        state.clients[usize::from(who)].renewing = false;
        let to = self.fresh_id(&mut state, who);
        let (_, not_after, max_end) = self.grant_terms(&state);
        state.send(who, Command::HandOff { from: hold.id, to, max_end }, not_after);
        state.clients[usize::from(who)].phase =
            Phase::HandingOff { from: hold.id, to, stale: hold.stale };
        next.push((
            Step::about(who, "releases to its own waiter: sends hand-off to hold", to),
            state,
        ));
    }

    fn while_releasing(
        &self,
        state: &State,
        who: u8,
        id: u8,
        on_wire: bool,
        next: &mut Vec<(Step, State)>,
    ) {
        if self.breaks(Switch::RenewalsGoOn) {
            self.send_renew(state, who, id, 0, 0, false, next);
        }
        if !on_wire {
            let mut state = state.clone();
            let Phase::Releasing { stale, .. } = state.clients[usize::from(who)].phase else {
                return;
            };
            send_release(&mut state, who, id, 1, stale);
            next.push((Step::about(who, "sends release(0) again for hold", id), state));
        }
    }

    // ---- unknown attempts

    /// Releases a dead id once more.
    fn clean_up(&self, state: &State, who: u8, next: &mut Vec<(Step, State)>) {
        for at in 0..state.clients[usize::from(who)].dead.len() {
            let dead = state.clients[usize::from(who)].dead[at];
            if dead.on_wire || (dead.answered && state.now <= dead.not_after) {
                continue;
            }
            let mut state = state.clone();
            send_cleanup(&mut state, who, at);
            next.push((
                Step::about(who, "sends release(0) once more for dead hold", dead.id),
                state,
            ));
        }
    }

    fn bury(&self, state: &mut State, who: u8, id: u8, not_after: u8) {
        let client = &mut state.clients[usize::from(who)];
        client.dead.push(Dead { id, not_after, on_wire: false, answered: false });
        let at = client.dead.len() - 1;
        send_cleanup(state, who, at);
    }

    /// An attempt of this client was answered: with the broken rule it forgets the ones before.
    fn forget_dead(&self, state: &mut State, who: u8, switch: Switch) {
        if !self.breaks(switch) {
            return;
        }
        for dead in std::mem::take(&mut state.clients[usize::from(who)].dead) {
            state.finished.add(dead.id);
            state.abandon(who, |command| is_cleanup(command, dead.id));
        }
    }

    // ---- force

    /// Looks who holds it, and takes it from exactly that one.
    fn force_unlock(&self, state: &State, who: u8, next: &mut Vec<(Step, State)>) {
        let Some(key) = state.key.filter(|key| state.left.forces > 0 && key.id / 8 != who) else {
            return;
        };
        let mut state = state.clone();
        state.left.forces -= 1;
        let not_after = state.now + TIMEOUT;
        state.send(who, Command::Force { id: key.id }, not_after);
        next.push((Step::about(who, "sends force-release of hold", key.id), state));
    }

    // ---- answers

    fn answers(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (at, message) in state.wire.iter().enumerate() {
            let Some((answer, time)) = message.answer else { continue };
            // Done is only said when no copy of the command can still be executed.
            let copied = state.wire.iter().any(|other| {
                other.answer.is_none()
                    && other.awaited
                    && other.client == message.client
                    && other.command.is_same_operation(message.command)
            });
            if copied {
                continue;
            }
            let mut state = state.clone();
            let message = state.wire.remove(at);
            // A copy was answered too; nobody waits for that one any more.
            state.abandon(message.client, |command| command.is_same_operation(message.command));
            self.forget_by_time(&mut state, &message, time);
            let what = self.answered(&mut state, &message, answer, time);
            next.push((Step::about(message.client, what.0, what.1), state));
        }
    }

    /// The broken rule: any answer's time ends a clean-up.
    fn forget_by_time(&self, state: &mut State, message: &Message, time: u8) {
        if !self.breaks(Switch::CleanupEndedByOtherTime) {
            return;
        }
        let over: Vec<u8> = state.clients[usize::from(message.client)]
            .dead
            .iter()
            .filter(|dead| {
                dead.answered && time > dead.not_after && !is_cleanup(message.command, dead.id)
            })
            .map(|dead| dead.id)
            .collect();
        for id in over {
            end_cleanup(state, message.client, id);
        }
    }

    fn answered(
        &self,
        state: &mut State,
        message: &Message,
        answer: Answer,
        time: u8,
    ) -> (&'static str, u8) {
        let who = message.client;
        match message.command {
            Command::Acquire { id, count: 1, lease, max_end } => {
                self.on_attempt(state, message, id, lease, max_end, answer)
            }
            Command::Acquire { id, lease, .. } => {
                self.on_reentry(state, message, id, lease, answer)
            }
            Command::Release { id, cleanup: true, .. } => self.on_cleanup(state, who, id, time),
            Command::Release { id, count: 0, .. } => on_released(state, who, id, time),
            Command::Release { id, .. } => self.on_level_given_up(state, who, id, answer),
            Command::Renew { id, lease, .. } => self.on_renewed(state, message, id, lease, answer),
            Command::HandOff { from, to, max_end } => {
                self.on_hand_off(state, message, from, to, max_end, answer)
            }
            Command::Force { id } => ("hears of its force-release of hold", id),
        }
    }

    fn on_attempt(
        &self,
        state: &mut State,
        message: &Message,
        id: u8,
        lease: u8,
        max_end: u8,
        answer: Answer,
    ) -> (&'static str, u8) {
        let who = message.client;
        let Phase::Acquiring { wanted, stale, .. } = state.clients[usize::from(who)].phase else {
            return ("ignores an answer about hold", id);
        };
        match answer {
            Answer::Granted => {
                self.forget_dead(state, who, Switch::ForgottenAfterGrant);
                self.on_granted(state, message, id, lease, max_end, wanted, stale)
            }
            Answer::Refused => {
                self.forget_dead(state, who, Switch::ForgottenAfterRefusal);
                state.clients[usize::from(who)].phase = Phase::Idle { kept: id, stale };
                ("is refused hold", id)
            }
            _ => {
                state.clients[usize::from(who)].phase = Phase::Idle { kept: 0, stale: 0 };
                self.bury(state, who, id, message.not_after.max(stale));
                ("was late with hold", id)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a step of a model: state, who, and what about")]
    fn on_granted(
        &self,
        state: &mut State,
        message: &Message,
        id: u8,
        lease: u8,
        max_end: u8,
        wanted: bool,
        stale: u8,
    ) -> (&'static str, u8) {
        let who = message.client;
        let until = self.valid_until(state, message.sent, lease);
        if wanted && state.now < until {
            let hold = Hold { id, until, count: 1, busy: false, max_end, ended: false, stale };
            state.clients[usize::from(who)].phase = Phase::Held(hold);
            return ("is granted hold", id);
        }
        send_release(state, who, id, 1, stale);
        ("gives back what nobody takes: sends release(0) for hold", id)
    }

    fn on_reentry(
        &self,
        state: &mut State,
        message: &Message,
        id: u8,
        lease: u8,
        answer: Answer,
    ) -> (&'static str, u8) {
        let until = self.valid_until(state, message.sent, lease);
        let who = message.client;
        let Some(hold) = held(state, who, id) else { return ("ignores an answer about hold", id) };
        match answer {
            Answer::Granted => {
                let held = Hold { count: 2, busy: false, until: hold.until.max(until), ..*hold };
                *hold = held;
                ("has re-entered hold", id)
            }
            Answer::Late => {
                hold.busy = false;
                ("was late to re-enter hold", id)
            }
            _ => self.lost(state, who, id),
        }
    }

    fn on_level_given_up(
        &self,
        state: &mut State,
        who: u8,
        id: u8,
        answer: Answer,
    ) -> (&'static str, u8) {
        let Some(hold) = held(state, who, id) else { return ("ignores an answer about hold", id) };
        match answer {
            Answer::Done => {
                hold.busy = false;
                ("hears that the count is 1 of hold", id)
            }
            _ => self.lost(state, who, id),
        }
    }

    fn on_renewed(
        &self,
        state: &mut State,
        message: &Message,
        id: u8,
        lease: u8,
        answer: Answer,
    ) -> (&'static str, u8) {
        let who = message.client;
        let until = self.valid_until(state, message.sent, lease);
        state.clients[usize::from(who)].renewing = false;
        let Some(hold) = held(state, who, id) else { return ("ignores a renewal of hold", id) };
        match answer {
            Answer::Done => {
                hold.until = hold.until.max(until);
                ("has renewed hold", id)
            }
            Answer::Late => ("was late to renew hold", id),
            _ => self.lost(state, who, id),
        }
    }

    /// The server says that the key is gone or another's.
    fn lost(&self, state: &mut State, who: u8, id: u8) -> (&'static str, u8) {
        if let Some(hold) = held(state, who, id).copied() {
            self.leave(state, who, hold);
            state.finished.add(id);
        }
        ("has lost hold", id)
    }

    fn on_hand_off(
        &self,
        state: &mut State,
        message: &Message,
        from: u8,
        to: u8,
        max_end: u8,
        answer: Answer,
    ) -> (&'static str, u8) {
        let who = message.client;
        let Phase::HandingOff { stale, .. } = state.clients[usize::from(who)].phase else {
            return ("ignores an answer about hold", to);
        };
        over(state, who, from, stale, state.now);
        match answer {
            Answer::Granted => {
                self.forget_dead(state, who, Switch::ForgottenAfterHandOff);
                self.on_granted(state, message, to, LEASE, max_end, true, 0)
            }
            Answer::Late => {
                state.clients[usize::from(who)].phase = Phase::Idle { kept: 0, stale: 0 };
                self.bury(state, who, to, message.not_after);
                ("was late to hand off to hold", to)
            }
            _ => {
                state.finished.add(to);
                state.clients[usize::from(who)].phase = Phase::Idle { kept: 0, stale: 0 };
                ("hears that there was nothing to hand off to hold", to)
            }
        }
    }

    fn on_cleanup(&self, state: &mut State, who: u8, id: u8, time: u8) -> (&'static str, u8) {
        let Some(dead) = state.clients[usize::from(who)].dead.iter_mut().find(|dead| dead.id == id)
        else {
            return ("ignores an answer about hold", id);
        };
        dead.on_wire = false;
        dead.answered = true;
        let past = time > dead.not_after
            || time == dead.not_after && self.breaks(Switch::CleanupEndedByEqualTime)
            || self.breaks(Switch::OneCleanup);
        if past {
            end_cleanup(state, who, id);
            return ("is done with dead hold", id);
        }
        ("hears of the release of dead hold", id)
    }

    // ---- no answer

    /// A client gives up waiting for an answer: nobody knows what became of its command.
    fn give_up(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.left.unknown == 0 {
            return;
        }
        let mut seen: Vec<(u8, Command)> = Vec::new();
        for message in &state.wire {
            let same = |(client, command): &(u8, Command)| {
                *client == message.client && command.is_same_operation(message.command)
            };
            if !message.awaited
                || matches!(message.command, Command::Force { .. })
                || seen.iter().any(same)
            {
                continue;
            }
            seen.push((message.client, message.command));
            let mut state = state.clone();
            state.left.unknown -= 1;
            state.abandon(message.client, |command| command.is_same_operation(message.command));
            let what = self.unknown(&mut state, message);
            next.push((Step::about(message.client, what.0, what.1), state));
        }
    }

    fn unknown(&self, state: &mut State, message: &Message) -> (&'static str, u8) {
        let who = message.client;
        let not_after = message.not_after;
        match message.command {
            Command::Acquire { id, count: 1, .. } => {
                let Phase::Acquiring { stale, .. } = state.clients[usize::from(who)].phase else {
                    return ("does not know about", id);
                };
                if self.breaks(Switch::SameIdAfterUnknown) {
                    let stale = stale.max(not_after);
                    state.clients[usize::from(who)].phase = Phase::Idle { kept: id, stale };
                    return (
                        "does not know about its attempt, and will use the id again: hold",
                        id,
                    );
                }
                state.clients[usize::from(who)].phase = Phase::Idle { kept: 0, stale: 0 };
                self.bury(state, who, id, not_after);
                ("does not know about its attempt: sends release(0) for dead hold", id)
            }
            Command::Acquire { id, .. } | Command::Release { id, count: 1.., .. } => {
                if let Some(hold) = held(state, who, id) {
                    hold.busy = false;
                }
                ("does not know about the count of hold", id)
            }
            Command::Release { id, cleanup: true, .. } => {
                for dead in &mut state.clients[usize::from(who)].dead {
                    dead.on_wire &= dead.id != id;
                }
                ("does not know about the release of dead hold", id)
            }
            Command::Release { id, .. } => {
                if let Phase::Releasing { on_wire, .. } = &mut state.clients[usize::from(who)].phase
                {
                    *on_wire = false;
                }
                ("does not know about its release(0) of hold", id)
            }
            Command::Renew { id, .. } => {
                state.clients[usize::from(who)].renewing = false;
                ("does not know about its renewal of hold", id)
            }
            Command::HandOff { from, to, .. } => {
                let Phase::HandingOff { stale, .. } = state.clients[usize::from(who)].phase else {
                    return ("does not know about", to);
                };
                send_release(state, who, from, 1, stale);
                self.bury(state, who, to, not_after);
                ("does not know about its hand-off: sends release(0) for both; to was hold", to)
            }
            Command::Force { id } => ("does not know about its force-release of hold", id),
        }
    }
}

fn cancel(state: &State, who: u8, id: u8, stale: u8, next: &mut Vec<(Step, State)>) {
    if state.left.cancels == 0 {
        return;
    }
    let mut state = state.clone();
    state.left.cancels -= 1;
    state.clients[usize::from(who)].phase = Phase::Acquiring { id, wanted: false, stale };
    next.push((Step::about(NOBODY, "a caller gives up; nobody wants hold", id), state));
}

fn held(state: &mut State, who: u8, id: u8) -> Option<&mut Hold> {
    match &mut state.clients[usize::from(who)] {
        Client { phase: Phase::Held(hold), .. } if hold.id == id => Some(hold),
        _ => None,
    }
}

fn send_release(state: &mut State, who: u8, id: u8, own: u8, stale: u8) {
    state.send(who, Command::Release { id, count: 0, own, cleanup: false }, ALWAYS);
    state.clients[usize::from(who)].phase = Phase::Releasing { id, on_wire: true, stale };
}

fn send_cleanup(state: &mut State, who: u8, at: usize) {
    let dead = &mut state.clients[usize::from(who)].dead[at];
    dead.on_wire = true;
    let id = dead.id;
    state.send(who, Command::Release { id, count: 0, own: 1, cleanup: true }, ALWAYS);
}

fn is_cleanup(command: Command, dead: u8) -> bool {
    matches!(command, Command::Release { id, cleanup: true, .. } if id == dead)
}

fn end_cleanup(state: &mut State, who: u8, id: u8) {
    state.clients[usize::from(who)].dead.retain(|dead| dead.id != id);
    state.abandon(who, |command| is_cleanup(command, id));
    state.finished.add(id);
}

fn on_released(state: &mut State, who: u8, id: u8, time: u8) -> (&'static str, u8) {
    let Phase::Releasing { stale, .. } = state.clients[usize::from(who)].phase else {
        return ("ignores an answer about hold", id);
    };
    over(state, who, id, stale, time);
    // With the broken rule renewals outlive the release that they should not.
    state
        .abandon(who, |command| matches!(command, Command::Renew { id: other, .. } if other == id));
    let client = &mut state.clients[usize::from(who)];
    client.renewing = false;
    client.phase = Phase::Idle { kept: 0, stale: 0 };
    ("has released hold", id)
}

/// A hold is over, unless an earlier attempt with the same id may still be granted.
fn over(state: &mut State, who: u8, id: u8, stale: u8, time: u8) {
    if time > stale {
        state.finished.add(id);
    } else {
        let dead = Dead { id, not_after: stale, on_wire: false, answered: true };
        state.clients[usize::from(who)].dead.push(dead);
    }
}

fn concerns(command: Command, hold: u8) -> bool {
    match command {
        Command::Acquire { id, .. } | Command::Renew { id, .. } => id == hold,
        Command::Release { id, cleanup, .. } => id == hold && !cleanup,
        Command::HandOff { .. } | Command::Force { .. } => false,
    }
}
