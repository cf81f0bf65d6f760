//! What a client does: its commands, and what it makes of their answers.

use crate::explore::Step;
use crate::read_write::holds::Holds;
use crate::read_write::holds::LEASE;
use crate::read_write::holds::MARGIN;
use crate::read_write::holds::NEVER;
use crate::read_write::holds::SHORT;
use crate::read_write::holds::TIMEOUT;
use crate::read_write::holds::rules::Switch;
use crate::read_write::holds::state::Answer;
use crate::read_write::holds::state::Command;
use crate::read_write::holds::state::DeadId;
use crate::read_write::holds::state::Hold;
use crate::read_write::holds::state::Message;
use crate::read_write::holds::state::Phase;
use crate::read_write::holds::state::State;

/// What an answer to a command that was sent then is worth.
fn valid_until(sent: u8, lease: u8) -> u8 {
    sent + lease - MARGIN.min(lease)
}

/// After this it grants nothing; 0 for what never grants.
fn deadline(message: &Message) -> u8 {
    if message.command.is_never_late() { 0 } else { message.not_after }
}

impl Holds {
    // ---- answers

    pub(super) fn read_answer(&self, state: &mut State, at: usize) -> &'static str {
        let message = state.wire.remove(at);
        let Some((answer, time)) = message.answer else { return "has no answer" };
        let client = message.client;
        let what = match message.command {
            Command::Take { id, write } => self.taken(state, &message, id, write, answer),
            Command::End { id, undo: true } => self.undone(state, client, id, time),
            Command::End { id, undo: false } => {
                state.finished |= 1 << id;
                state.client(client).phase = Phase::Idle;
                self.forget_renewals(state, client);
                "has given up hold"
            }
            Command::Renew { .. } => self.renewed(state, &message, answer),
            Command::Upgrade { to, .. } => self.upgraded(state, &message, to, answer),
            Command::Want { .. } | Command::Keep { .. } | Command::Downgrade { .. } => {
                self.counted(state, &message, answer)
            }
        };
        state.wire.retain(|message| message.awaited || message.answer.is_none());
        what
    }

    fn taken(
        &self,
        state: &mut State,
        message: &Message,
        id: u8,
        write: bool,
        answer: Answer,
    ) -> &'static str {
        let client = message.client;
        state.client(client).phase = Phase::Idle;
        let until = valid_until(message.sent, LEASE);
        match answer {
            Answer::Done if state.now < until => {
                let (reads, writes) = (u8::from(!write), u8::from(write));
                let hold = Hold { id, upgrade: 0, reads, writes, until, busy: None };
                state.client(client).phase = Phase::Held(hold);
                "is granted hold"
            }
            Answer::Refused => {
                state.finished |= 1 << id;
                "is refused hold"
            }
            _ => {
                self.bury(state, client, id, message.not_after);
                "has no use for hold"
            }
        }
    }

    fn counted(&self, state: &mut State, message: &Message, answer: Answer) -> &'static str {
        let client = message.client;
        let in_two = self.is(Switch::DowngradeInTwoScripts);
        let Some(hold) = state.hold(client) else { return "ignores an answer about hold" };
        match (answer, message.command) {
            (Answer::Done, Command::Want { reads, writes, .. }) => {
                (hold.reads, hold.writes, hold.busy) = (reads, writes, None);
                hold.until = hold.until.max(valid_until(message.sent, SHORT));
                "has more of hold"
            }
            (Answer::Done, Command::Downgrade { id, .. }) if in_two => {
                hold.busy = Some((Command::Take { id, write: false }, false));
                "will read again with hold"
            }
            (Answer::Done, Command::Keep { id, .. }) if id == hold.upgrade => {
                (hold.upgrade, hold.writes, hold.busy) = (0, 0, None);
                state.finished |= 1 << id;
                "has given up its upgrade, hold"
            }
            (Answer::Done, Command::Keep { reads, writes, .. }) => {
                (hold.reads, hold.writes, hold.busy) = (reads, writes, None);
                "has less of hold"
            }
            (Answer::Done, Command::Downgrade { reads, .. }) => {
                (hold.reads, hold.writes, hold.busy) = (reads, 0, None);
                "only reads with hold"
            }
            (Answer::Late, _) => {
                hold.busy = None;
                "was too late with hold"
            }
            _ => {
                self.lose(state, client);
                "has lost hold"
            }
        }
    }

    fn renewed(&self, state: &mut State, message: &Message, answer: Answer) -> &'static str {
        let client = message.client;
        state.client(client).renewing = false;
        match answer {
            Answer::Done => {
                let until = valid_until(message.sent, LEASE);
                if let Some(hold) = state.hold(client) {
                    hold.until = hold.until.max(until);
                }
                "has renewed hold"
            }
            Answer::Late => "was too late to renew hold",
            _ => {
                self.lose(state, client);
                "has lost hold"
            }
        }
    }

    fn upgraded(
        &self,
        state: &mut State,
        message: &Message,
        to: u8,
        answer: Answer,
    ) -> &'static str {
        let client = message.client;
        let Some(hold) = state.hold(client) else { return "ignores an answer about hold" };
        let keeps_id = hold.id == to;
        match answer {
            Answer::Done => {
                (hold.writes, hold.busy) = (1, None);
                if !keeps_id {
                    hold.upgrade = to;
                }
                "has upgraded to hold"
            }
            Answer::Gone => {
                self.lose(state, client);
                "has lost its reads, and hold"
            }
            Answer::Late | Answer::Refused => {
                hold.busy = None;
                if answer == Answer::Refused && !keeps_id {
                    state.finished |= 1 << to;
                } else if !keeps_id {
                    self.bury(state, client, to, message.not_after);
                }
                "has not upgraded to hold"
            }
        }
    }

    fn undone(&self, state: &mut State, client: u8, id: u8, time: u8) -> &'static str {
        let once = self.is(Switch::OneUndo);
        let dead = &mut state.client(client).dead;
        let Some(at) = dead.iter().position(|dead| dead.id == id) else {
            return "ignores an answer about hold";
        };
        dead[at].on_wire = false;
        if time <= dead[at].not_after && !once {
            return "will undo once more hold";
        }
        dead.remove(at);
        state.finished |= 1 << id;
        "is done with hold"
    }

    /// The client waits no longer for the answer to a command, which may still be executed.
    pub(super) fn give_up_waiting(&self, state: &mut State, at: usize) -> &'static str {
        state.unknown -= 1;
        let message = state.wire.remove(at);
        if message.answer.is_none() {
            state.wire.push(Message { awaited: false, ..message });
            state.wire.sort();
        }
        let client = message.client;
        match message.command {
            Command::Take { id, .. } if state.hold(client).is_none() => {
                state.client(client).phase = Phase::Idle;
                self.bury(state, client, id, message.not_after);
                "does not know what became of hold"
            }
            Command::End { id, undo: true } => {
                let dead = state.client(client).dead.iter_mut().find(|dead| dead.id == id);
                dead.into_iter().for_each(|dead| dead.on_wire = false);
                "does not know about its undo of hold"
            }
            Command::Renew { .. } => {
                state.client(client).renewing = false;
                "does not know about its renewal of hold"
            }
            Command::Upgrade { to, .. } => {
                let keeps_id = self.is(Switch::UpgradeKeepsId);
                if let Some(hold) = state.hold(client) {
                    let give_back = Command::Downgrade { id: hold.id, reads: hold.reads };
                    hold.busy = keeps_id.then_some((give_back, false));
                }
                if !keeps_id {
                    self.bury(state, client, to, message.not_after);
                }
                "does not know about its upgrade to hold"
            }
            command => {
                if let Some(hold) = state.hold(client) {
                    hold.busy = Some((command, false));
                }
                "will send its command once more, of hold"
            }
        }
    }

    // ---- ends

    /// Its hold is over, without its doing.
    pub(super) fn lose(&self, state: &mut State, client: u8) {
        let Some(hold) = state.hold(client).copied() else { return };
        let mut ids = vec![hold.id];
        ids.extend((hold.upgrade > 0).then_some(hold.upgrade));
        if let Some((Command::Upgrade { to, .. }, _)) = hold.busy {
            ids.extend((!ids.contains(&to)).then_some(to));
        }
        let about = |command: Command| match command {
            Command::End { undo: true, .. } => false,
            Command::Upgrade { from, to } => ids.contains(&from) || ids.contains(&to),
            other => ids.contains(&other.id()),
        };
        let own = |message: &Message| {
            message.client == client && message.awaited && about(message.command)
        };
        let last = state.wire.iter().filter(|message| own(message)).map(deadline).max();
        state.wire.retain(|message| !own(message) || message.answer.is_none());
        state.wire.iter_mut().filter(|message| own(message)).for_each(|message| {
            message.awaited = false;
        });
        state.wire.sort();
        state.client(client).phase = Phase::Idle;
        state.client(client).renewing = false;
        let last = last.unwrap_or(0);
        ids.into_iter().for_each(|id| self.bury(state, client, id, last));
    }

    fn bury(&self, state: &mut State, client: u8, id: u8, not_after: u8) {
        if self.is(Switch::NoUndo) {
            state.finished |= 1 << id;
            return;
        }
        state.send(client, Command::End { id, undo: true }, NEVER);
        let dead = &mut state.client(client).dead;
        dead.push(DeadId { id, not_after, on_wire: true });
        dead.sort();
    }

    fn forget_renewals(&self, state: &mut State, client: u8) {
        state.client(client).renewing = false;
        for message in &mut state.wire {
            if message.client == client && matches!(message.command, Command::Renew { .. }) {
                message.awaited = false;
            }
        }
    }

    // ---- what it may do next

    pub(super) fn steps_of(&self, state: &State, client: u8, next: &mut Vec<(Step, State)>) {
        let known = &state.clients[usize::from(client)];
        for dead in known.dead.iter().filter(|dead| !dead.on_wire) {
            let mut then = state.clone();
            let again = then.client(client).dead.iter_mut().find(|other| other.id == dead.id);
            again.into_iter().for_each(|again| again.on_wire = true);
            then.send(client, Command::End { id: dead.id, undo: true }, NEVER);
            next.push((Step::about(client, "undoes once more hold", dead.id), then));
        }
        match known.phase {
            Phase::Idle if known.starts > 0 && state.now < self.scope.end => {
                self.begin(state, client, next);
            }
            Phase::Held(hold) => match hold.busy {
                Some((command, false)) => {
                    let mut then = state.clone();
                    self.send(&mut then, client, command);
                    let about = command.id();
                    next.push((
                        Step::about(client, "sends its command again, of hold", about),
                        then,
                    ));
                }
                Some(_) => self.beside_a_command(state, client, &hold, next),
                None => {
                    self.beside_a_command(state, client, &hold, next);
                    self.use_hold(state, client, &hold, next);
                }
            },
            Phase::Idle | Phase::Taking | Phase::Dead => {}
        }
    }

    fn begin(&self, state: &State, client: u8, next: &mut Vec<(Step, State)>) {
        let at = usize::from(client);
        for write in [false, true] {
            if !(if write { self.scope.writes[at] } else { self.scope.reads[at] }) {
                continue;
            }
            let mut then = state.clone();
            let id = then.next_id;
            then.next_id += 1;
            then.client(client).starts -= 1;
            then.client(client).phase = Phase::Taking;
            then.send(client, Command::Take { id, write }, state.now + TIMEOUT);
            let what = if write { "asks for the write lock, hold" } else { "asks to read, hold" };
            next.push((Step::about(client, what, id), then));
        }
    }

    fn send(&self, state: &mut State, client: u8, command: Command) {
        let not_after = if command.is_never_late() { NEVER } else { state.now + TIMEOUT };
        state.send(client, command, not_after);
        if let Some(hold) = state.hold(client) {
            hold.busy = Some((command, true));
        }
    }

    /// Renewals, and death.
    fn beside_a_command(
        &self,
        state: &State,
        client: u8,
        hold: &Hold,
        next: &mut Vec<(Step, State)>,
    ) {
        let ends = matches!(hold.busy, Some((Command::End { .. }, _)));
        let renewing = state.clients[usize::from(client)].renewing;
        if client == 0 && state.renewals > 0 && !renewing && hold.upgrade == 0 && !ends {
            let mut then = state.clone();
            then.renewals -= 1;
            then.client(client).renewing = true;
            then.send(client, Command::Renew { id: hold.id }, state.now + TIMEOUT);
            next.push((Step::about(client, "renews hold", hold.id), then));
        }
        if state.deaths > 0 {
            let mut then = state.clone();
            then.deaths -= 1;
            let own = |message: &&Message| message.client == client;
            let last = then.wire.iter().filter(own).map(deadline).max().unwrap_or(0).max(state.now);
            then.died.push((hold.id, last));
            then.client(client).phase = Phase::Dead;
            then.wire.retain(|message| message.client != client || message.answer.is_none());
            for message in then.wire.iter_mut().filter(|message| message.client == client) {
                message.awaited = false;
            }
            next.push((Step::about(client, "dies with hold", hold.id), then));
        }
    }

    fn use_hold(&self, state: &State, client: u8, hold: &Hold, next: &mut Vec<(Step, State)>) {
        let Hold { id, upgrade, reads, writes, .. } = *hold;
        let mut put = |command: Command, what, edit: &dyn Fn(&mut State, &mut Hold)| {
            let mut then = state.clone();
            let mut changed = *hold;
            edit(&mut then, &mut changed);
            then.client(client).phase = Phase::Held(changed);
            self.send(&mut then, client, command);
            next.push((Step::about(client, what, command.id()), then));
        };
        if client == 0 && state.operations > 0 && upgrade == 0 {
            let more = |reads, writes| Command::Want { id, reads, writes };
            let counts = |state: &mut State, _: &mut Hold| state.operations -= 1;
            if reads < 1 || reads < 2 && writes == 0 {
                put(more(reads + 1, writes), "reads once more with hold", &counts);
            }
            if (1..2).contains(&writes) && self.scope.upgrades == 0 {
                put(more(reads, writes + 1), "writes once more with hold", &counts);
            }
            if reads > 0 && writes > 0 {
                let command = Command::Keep { id, reads: reads - 1, writes };
                put(command, "gives up a read within its write, of hold", &|state, hold| {
                    state.operations -= 1;
                    hold.reads -= 1;
                });
            }
            if writes > 0 {
                let reads = reads.max(1);
                let stays = self.is(Switch::WriterUntilAnswer);
                put(Command::Downgrade { id, reads }, "downgrades hold", &|state, hold| {
                    state.operations -= 1;
                    if !stays {
                        (hold.reads, hold.writes) = (reads, 0);
                    }
                });
            }
        }
        if client == 0 && state.upgrades > 0 && writes == 0 {
            let keeps_id = self.is(Switch::UpgradeKeepsId);
            let to = if keeps_id { id } else { state.next_id };
            put(Command::Upgrade { from: id, to }, "tries to upgrade to hold", &|state, _| {
                state.upgrades -= 1;
                state.next_id += u8::from(!keeps_id);
            });
        }
        if upgrade > 0 {
            let command = Command::Keep { id: upgrade, reads: 0, writes: 0 };
            put(command, "gives up its upgrade, hold", &|_, hold| hold.writes = 0);
        } else {
            put(Command::End { id, undo: false }, "gives up hold", &|_, hold| {
                (hold.reads, hold.writes) = (0, 0);
            });
        }
    }
}
