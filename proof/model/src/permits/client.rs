//! The clients: their callers, their attempts, their holds; time, messages, and what becomes of
//! answers.

use crate::explore::NOBODY;
use crate::explore::Step;
use crate::permits::Permits;
use crate::permits::RESERVATION;
use crate::permits::checks::is_asleep;
use crate::permits::checks::lies_idle_for;
use crate::permits::rules::Switch;
use crate::permits::state::ALL;
use crate::permits::state::Answer;
use crate::permits::state::Client;
use crate::permits::state::Command;
use crate::permits::state::Contender;
use crate::permits::state::Dead;
use crate::permits::state::Held;
use crate::permits::state::Message;
use crate::permits::state::NEVER;
use crate::permits::state::State;

/// Waiters of a client at a time.
const AT_A_TIME: usize = 2;

// ---- time

impl Permits {
    pub(crate) fn is_urgent(&self, state: &State) -> bool {
        !state.wire.is_empty()
            || !state.words.is_empty()
            || state.clients.iter().any(|client| {
                may_try(client, state.now)
                    || client.dead.iter().any(|dead| !dead.on_wire && is_due(dead, state.now))
                    || client.releasing.iter().any(|(_, on_wire)| !on_wire)
            })
    }

    pub(crate) fn tick(&self, state: &State) -> State {
        let mut state = state.clone();
        state.now += 1;
        let now = state.now;
        // What is late is answered so; if nobody awaits that, it makes no difference.
        let matters = |message: &Message| {
            let acquire = matches!(message.command, Command::Acquire { .. });
            message.awaited || !acquire || now <= message.not_after || self.grants_late()
        };
        state.wire.retain(matters);
        for client in &mut state.clients {
            client.holds.retain(|held| held.until > now);
            let asleep = is_asleep(client);
            client.contender.asleep = if asleep { client.contender.asleep + 1 } else { 0 };
        }
        state.idle = match lies_idle_for(&state) {
            Some(ticket) if ticket == state.idle.0 => (ticket, state.idle.1 + 1),
            Some(ticket) => (ticket, 1),
            None => (0, 0),
        };
        state
    }

    fn grants_late(&self) -> bool {
        self.breaks(Switch::GrantsLate)
    }
}

fn may_try(client: &Client, now: u8) -> bool {
    let contender = &client.contender;
    let due = contender.duty || now >= contender.fallback.min(contender.timer);
    let cleaned = client.dead.iter().all(|dead| dead.on_wire || dead.answered);
    client.alive && !client.waiting.is_empty() && !contender.on_wire && due && cleaned
}

/// An id is released again when its attempt can no longer be executed, and before only if nothing
/// is known of the last release.
fn is_due(dead: &Dead, now: u8) -> bool {
    !dead.answered || now > dead.not_after
}

// ---- messages

impl Permits {
    pub(crate) fn message_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (at, &(who, id)) in state.words.iter().enumerate() {
            let mut heard = state.clone();
            heard.words.remove(at);
            let now = heard.now;
            let contender = &mut heard.client(who).contender;
            if contender.id == id || id == ALL {
                contender.duty = true;
            } else {
                contender.timer = self.timer(now + RESERVATION);
            }
            next.push((Step::about(who, "hears of a reservation for hold", id), heard));
            if state.left.lost_messages > 0 {
                let mut lost = state.clone();
                lost.words.remove(at);
                lost.left.lost_messages -= 1;
                if lost.client(who).contender.id == id {
                    lost.missed.push(id);
                }
                next.push((Step::about(who, "misses the message about hold", id), lost));
            }
        }
    }

    fn timer(&self, at: u8) -> u8 {
        if self.scope.timers { at } else { NEVER }
    }
}

// ---- what clients do by themselves

impl Permits {
    pub(crate) fn client_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (who, client) in state.numbered().filter(|(_, client)| client.alive) {
            let mut then = |step: Step, change: &dyn Fn(&mut State)| {
                let mut state = state.clone();
                change(&mut state);
                next.push((step, state));
            };
            if let Some(want) = self.scope.callers[usize::from(who)].get(client.came) {
                if client.waiting.len() < AT_A_TIME {
                    then(Step::about(who, "has a caller that wants", *want), &|state| {
                        let client = state.client(who);
                        client.came += 1;
                        client.waiting.push(*want);
                    });
                }
            }
            if may_try(client, state.now) {
                then(Step::new(who, "tries"), &|state| self.attempt(state, who));
            }
            if state.left.cancels > 0 && !client.waiting.is_empty() && !client.contender.given_up {
                then(Step::new(who, "has a caller that gives up"), &|state| {
                    state.left.cancels -= 1;
                    self.give_up(state, who);
                });
            }
            for (at, held) in client.holds.iter().enumerate() {
                then(Step::about(who, "releases hold", held.id), &|state| {
                    let held = state.client(who).holds.remove(at);
                    self.send_release(state, who, held.id);
                });
            }
            for (id, _) in client.releasing.iter().filter(|(_, on_wire)| !on_wire) {
                then(Step::about(who, "releases again hold", *id), &|state| {
                    self.send_release(state, who, *id);
                });
            }
            for dead in client.dead.iter().filter(|dead| !dead.on_wire && is_due(dead, state.now)) {
                then(Step::about(who, "releases again dead hold", dead.id), &|state| {
                    send_release_of_dead(state, who, dead.id);
                });
            }
            if state.left.deaths > 0 {
                then(Step::new(who, "dies"), &|state| die(state, who));
            }
        }
    }

    fn attempt(&self, state: &mut State, who: u8) {
        let not_after = state.now + 1;
        let client = state.client(who);
        let want = client.waiting[0];
        if client.contender.id == 0 {
            client.ids += 1;
            client.contender.id = 8 * who + client.ids;
        }
        let contender = &mut client.contender;
        (contender.duty, contender.on_wire) = (false, true);
        (contender.timer, contender.asleep) = (NEVER, 0);
        let command = Command::Acquire { id: contender.id, want, ticket: contender.ticket };
        state.send(who, command, not_after);
    }

    /// The first caller goes. Its place is given up: the next one may want something else.
    fn give_up(&self, state: &mut State, who: u8) {
        let client = state.client(who);
        client.waiting.remove(0);
        let contender = client.contender;
        if contender.on_wire {
            client.contender.given_up = true;
        } else if self.breaks(Switch::PlaceIsInherited) && !client.waiting.is_empty() {
            client.contender.duty = true;
        } else {
            client.contender = Contender::NEW;
            self.bury(state, who, contender.id, 0);
        }
    }

    fn send_release(&self, state: &mut State, who: u8, id: u8) {
        let releasing = &mut state.client(who).releasing;
        releasing.retain(|(other, _)| *other != id);
        releasing.push((id, true));
        releasing.sort_unstable();
        state.send(who, Command::Release { id }, NEVER);
    }

    /// Gives a dead id to the clean-up.
    fn bury(&self, state: &mut State, who: u8, id: u8, not_after: u8) {
        if id == 0 {
            return;
        }
        state.client(who).dead.push(Dead { id, not_after, on_wire: false, answered: false });
        send_release_of_dead(state, who, id);
    }
}

fn send_release_of_dead(state: &mut State, who: u8, id: u8) {
    if let Some(dead) = state.client(who).dead.iter_mut().find(|dead| dead.id == id) {
        dead.on_wire = true;
    }
    state.send(who, Command::ReleaseOfDead { id }, NEVER);
}

/// Its commands stay on their way.
fn die(state: &mut State, who: u8) {
    state.left.deaths -= 1;
    for message in state.wire.iter_mut().filter(|message| message.client == who) {
        message.awaited = false;
    }
    state.wire.retain(|message| message.awaited || message.answer.is_none());
    state.wire.sort_unstable();
    state.words.retain(|(to, _)| *to != who);
    let client = state.client(who);
    (client.alive, client.contender) = (false, Contender::NEW);
    client.waiting.clear();
    client.holds.clear();
    client.releasing.clear();
    client.dead.clear();
}

// ---- answers

impl Permits {
    pub(crate) fn answer_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let mut last = None;
        for (at, message) in state.wire.iter().enumerate() {
            if !message.awaited || last.replace(message) == Some(message) {
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
                self.hear_nothing(&mut state, message);
                next.push((Step::new(NOBODY, "an answer is lost"), state));
            }
        }
    }

    fn hear_answer(&self, state: &mut State, message: &Message, answer: Answer, time: u8) -> Step {
        let who = message.client;
        match message.command {
            Command::Acquire { id, want, .. } => {
                self.attempt_answered(state, message, id, want, answer)
            }
            Command::Release { id } => {
                state.client(who).releasing.retain(|(other, _)| *other != id);
                state.finish(id);
                Step::about(who, "has released hold", id)
            }
            Command::ReleaseOfDead { id } => {
                self.dead_released(state, who, id, time);
                Step::about(who, "hears that dead hold was released:", id)
            }
        }
    }

    fn attempt_answered(
        &self,
        state: &mut State,
        message: &Message,
        id: u8,
        want: u8,
        answer: Answer,
    ) -> Step {
        let who = message.client;
        let now = state.now;
        let fallback = now + self.scope.fallback;
        let client = state.client(who);
        let given_up = std::mem::take(&mut client.contender.given_up);
        client.contender.on_wire = false;
        match answer {
            Answer::Granted => {
                client.contender = Contender::NEW;
                let from = if self.breaks(Switch::ValidityFromReply) { now } else { message.sent };
                let until = from + self.scope.lease - 1;
                if given_up || now >= until {
                    self.send_release(state, who, id);
                    return Step::about(who, "is granted what nobody wants, and releases hold", id);
                }
                client.waiting.remove(0);
                client.holds.push(Held { id, want, until });
                Step::about(who, "is granted hold", id)
            }
            Answer::Waits { ticket, end } if !given_up => {
                let contender = &mut client.contender;
                (contender.ticket, contender.fallback) = (ticket, fallback);
                contender.timer = contender.timer.min(self.timer(end));
                Step::about(who, "is told to wait with hold", id)
            }
            Answer::TooMany if !given_up => {
                client.contender = Contender::NEW;
                client.waiting.remove(0);
                state.finish(id);
                Step::about(who, "hears that there are not so many: hold", id)
            }
            Answer::Late if !given_up => {
                self.attempt_lost(state, who, id, message.not_after);
                Step::about(who, "hears that it was too late: hold", id)
            }
            _ => {
                let late = answer == Answer::Late;
                client.contender = Contender::NEW;
                self.bury(state, who, id, if late { message.not_after } else { 0 });
                Step::about(who, "gives up the place of a caller that has gone: hold", id)
            }
        }
    }

    /// The attempt may still be executed: its id is over, but the ticket remains.
    fn attempt_lost(&self, state: &mut State, who: u8, id: u8, not_after: u8) {
        let contender = &mut state.client(who).contender;
        let ticket = contender.ticket;
        *contender = Contender { ticket, ..Contender::NEW };
        self.bury(state, who, id, not_after);
    }

    fn dead_released(&self, state: &mut State, who: u8, id: u8, time: u8) {
        let once = self.breaks(Switch::OneReleaseOfDead);
        let client = state.client(who);
        let Some(at) = client.dead.iter().position(|dead| dead.id == id) else { return };
        let dead = &mut client.dead[at];
        (dead.on_wire, dead.answered) = (false, true);
        if time > dead.not_after || once {
            client.dead.remove(at);
            state.finish(id);
        }
    }

    fn hear_nothing(&self, state: &mut State, message: &Message) {
        let who = message.client;
        match message.command {
            Command::Acquire { id, .. } => {
                let client = state.client(who);
                client.contender.on_wire = false;
                if std::mem::take(&mut client.contender.given_up) {
                    client.contender = Contender::NEW;
                    self.bury(state, who, id, message.not_after);
                } else {
                    self.attempt_lost(state, who, id, message.not_after);
                }
            }
            Command::Release { id } => {
                let releasing = &mut state.client(who).releasing;
                releasing.iter_mut().filter(|(other, _)| *other == id).for_each(|hold| {
                    hold.1 = false;
                });
            }
            Command::ReleaseOfDead { id } => {
                let dead = &mut state.client(who).dead;
                dead.iter_mut().filter(|dead| dead.id == id).for_each(|dead| dead.on_wire = false);
            }
        }
    }
}
