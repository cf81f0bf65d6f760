//! What goes wrong: connections, clients, keys, clocks, servers.

use crate::explore::NOBODY;
use crate::explore::SERVER;
use crate::explore::Step;
use crate::line::Line;
use crate::line::state::Client;
use crate::line::state::Command;
use crate::line::state::Message;
use crate::line::state::State;
use crate::line::state::Subscription;
use crate::line::state::owner;

impl Line {
    pub(crate) fn fault_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (who, client) in state.numbered().filter(|(_, client)| client.alive) {
            if state.left.deaths > 0 {
                next.push((Step::new(who, "dies"), die(state, who)));
            }
            if state.left.cuts > 0 && client.linked {
                next.push((Step::new(who, "its connection for messages is cut"), cut(state, who)));
            }
            if !client.linked {
                next.push((
                    Step::new(who, "its connection for messages is restored"),
                    restore(state, who),
                ));
            }
        }
        if state.data.lock.is_some() {
            self.take_away(state, next);
        }
        if state.left.line_losses > 0 && !state.data.line.is_empty() {
            let mut lost = state.clone();
            lost.left.line_losses -= 1;
            lose_line(&mut lost);
            next.push((Step::new(NOBODY, "the line's key is lost"), lost));
        }
        move_slot(state, next);
        if state.left.jumps > 0 {
            for (by, what) in [
                (self.scope.reservation + 1, "its clock jumps forward, past a reservation"),
                (
                    self.scope.lease + self.scope.line_lives,
                    "its clock jumps forward, past everything",
                ),
            ] {
                next.push((Step::new(SERVER, what), self.jump(state, by)));
            }
        }
        if state.left.failovers > 0 {
            next.push(fail_over(state));
        }
    }

    fn take_away(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let Some(lock) = state.data.lock else { return };
        if state.left.deletions > 0 {
            let mut state = state.clone();
            state.left.deletions -= 1;
            state.note_taken_away();
            if lock.reserved {
                state.checks.missed.add(owner(lock.id));
            }
            state.data.lock = None;
            state.checks.newcomers_may_overtake = true;
            state.checks.faulty = true;
            next.push((
                Step::about(NOBODY, "somebody deletes the lock's key, of hold", lock.id),
                state,
            ));
        }
        if state.left.forces > 0 {
            let mut state = state.clone();
            state.left.forces -= 1;
            let command = Command::ForceRelease { id: lock.id };
            let (sent, not_after) = (state.now, state.now + 1);
            state.put(Message {
                client: 0,
                command,
                sent,
                not_after,
                awaited: false,
                answer: None,
            });
            next.push((
                Step::about(NOBODY, "somebody sends force-release of hold", lock.id),
                state,
            ));
        }
    }

    /// What runs out at a time of the server's runs out earlier.
    fn jump(&self, state: &State, by: u8) -> State {
        let mut state = state.clone();
        state.left.jumps -= 1;
        state.checks.faulty = true;
        if let Some(lock) = state.data.lock.filter(|lock| !lock.reserved) {
            state.checks.breached.add(lock.id);
        }
        for message in &mut state.wire {
            if !matches!(message.command, Command::Release { .. }) {
                message.not_after = message.not_after.saturating_sub(by);
            }
            if let Some((_, time)) = &mut message.answer {
                *time = time.saturating_sub(by);
            }
        }
        for dead in state.clients.iter_mut().flat_map(|client| &mut client.dead) {
            dead.not_after = dead.not_after.saturating_sub(by);
        }
        if let Some(lock) = &mut state.data.lock {
            lock.expires = lock.expires.saturating_sub(by);
            if lock.expires <= state.now {
                state.note_taken_away();
                state.data.lock = None;
                state.checks.newcomers_may_overtake = true;
            }
        }
        state.data.line_expires = state.data.line_expires.saturating_sub(by);
        if state.data.line_expires <= state.now && !state.data.line.is_empty() {
            lose_line(&mut state);
        }
        state
    }
}

fn die(state: &State, who: u8) -> State {
    let mut state = state.clone();
    state.left.deaths -= 1;
    state.checks.faulty = true;
    state.checks.gone += 1;
    let ids = state.client(who).ids;
    *state.client(who) = Client::dead(ids);
    state.words.retain(|(to, _)| *to != who);
    state.abandon(|message| message.client == who);
    state.out_of_order(usize::from(who));
    state.checks.missed.remove(who);
    state
}

fn cut(state: &State, who: u8) -> State {
    let mut state = state.clone();
    state.left.cuts -= 1;
    state.checks.faulty = true;
    state.checks.gone += 1;
    state.checks.missed.add(who);
    state.client(who).linked = false;
    state.client(who).subscription = Subscription::None;
    state.words.retain(|(to, _)| *to != who);
    state
}

fn restore(state: &State, who: u8) -> State {
    let mut state = state.clone();
    let client = state.client(who);
    client.linked = true;
    if client.waiting > 0 {
        client.subscription = Subscription::Wanted;
    }
    state
}

fn lose_line(state: &mut State) {
    let reserved = state.data.lock.filter(|lock| lock.reserved).map(|lock| lock.id);
    for who in 0..state.clients.len() {
        if reserved.is_none_or(|id| state.clients[who].id != id) {
            state.note_lost_place(who);
        }
    }
    state.data.line.clear();
    state.data.line_expires = 0;
    state.checks.faulty = true;
}

fn move_slot(state: &State, next: &mut Vec<(Step, State)>) {
    let mut changed = state.clone();
    if state.moving {
        changed.moving = false;
        next.push((Step::new(SERVER, "its slot has moved"), changed));
    } else if state.left.moves > 0 {
        changed.left.moves -= 1;
        changed.moving = true;
        changed.checks.faulty = true;
        next.push((Step::new(SERVER, "its slot begins to move"), changed));
    }
}

/// First the replica gets what there is, later it takes over with that.
fn fail_over(state: &State) -> (Step, State) {
    let mut state = state.clone();
    let Some(mut data) = state.replica.take() else {
        state.replica = Some(state.data.clone());
        return (Step::new(SERVER, "the replica has got this far"), state);
    };
    state.left.failovers -= 1;
    data.lock = data.lock.filter(|lock| lock.expires > state.now);
    let reserved = data.lock.is_some_and(|lock| lock.reserved);
    state.checks.gone += u8::from(reserved) + u8::try_from(data.line.len()).unwrap_or(u8::MAX);
    state.checks.faulty = true;
    state.checks.newcomers_may_overtake = true;
    state.checks.order.clear();
    let ids = data.line.iter().map(|place| place.id).chain(data.lock.map(|lock| lock.id));
    ids.for_each(|id| state.checks.restored.add(id));
    state.data = data;
    state.words.clear();
    state.breach_holds();
    for client in state.clients.iter_mut().filter(|client| client.waiting > 0) {
        client.duty = true;
        client.subscription = if client.linked { Subscription::Wanted } else { Subscription::None };
    }
    (Step::new(SERVER, "the replica takes over"), state)
}
