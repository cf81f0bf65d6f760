//! The clients: when they send what, and what they make of messages.

use crate::explore::Step;
use crate::line::Line;
use crate::line::rules::Switch;
use crate::line::state::Client;
use crate::line::state::Command;
use crate::line::state::Dead;
use crate::line::state::Hold;
use crate::line::state::Keys;
use crate::line::state::Mode;
use crate::line::state::NEVER;
use crate::line::state::Owed;
use crate::line::state::Purpose;
use crate::line::state::State;
use crate::line::state::Subscription;
use crate::line::state::WATCHER;
use crate::line::state::Watcher;
use crate::line::state::Word;
use crate::line::state::owner;

/// Ids of one client: so many are enough for every scope.
const IDS: u8 = 7;

impl Line {
    pub(crate) fn client_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (who, client) in state.numbered().filter(|(_, client)| client.alive) {
            self.arrive(state, who, next);
            self.try_lock(state, who, next);
            self.attempt(state, who, next);
            self.give_up(state, who, next);
            match client.hold {
                Hold::Held { id, .. } => self.end_hold(state, who, id, next),
                Hold::Releasing { id, on_wire: false } => {
                    let mut state = state.clone();
                    self.send_release(&mut state, who, id, Keys::LockAndLine);
                    next.push((Step::about(who, "repeats release(0) of hold", id), state));
                }
                _ => {}
            }
            self.release_dead(state, who, next);
            self.release_owed(state, who, next);
            self.subscribe(state, who, next);
        }
        self.watch(state, next);
    }

    /// Whether anything could happen at once.
    pub(crate) fn is_urgent(&self, state: &State) -> bool {
        let slow = self.scope.slow_subscription;
        let acts = |(who, client): (u8, &Client)| {
            let subscribes = client.linked && client.subscription == Subscription::Wanted && !slow;
            let releases = matches!(client.hold, Hold::Releasing { on_wire: false, .. });
            client.alive
                && (subscribes
                    || releases
                    || self.may_try(state, who)
                    || client.dead.iter().any(|dead| is_due(state, dead))
                    || is_owed_now(state, client))
        };
        let looks = |watcher: Watcher| self.has_to_look(state, watcher);
        state.wire.iter().any(|message| message.awaited)
            || !state.words.is_empty()
            || state.numbered().any(acts)
            || state.watcher.is_some_and(looks)
    }

    // ---- waiting

    fn arrive(&self, state: &State, who: u8, next: &mut Vec<(Step, State)>) {
        let client = &state.clients[usize::from(who)];
        if client.arrivals == 0 || client.waiting >= 2 {
            return;
        }
        let mut state = state.clone();
        let client = state.client(who);
        client.arrivals -= 1;
        client.waiting += 1;
        client.duty |= client.waiting == 1 && client.hold == Hold::None;
        next.push((Step::new(who, "a caller arrives"), state));
    }

    fn try_lock(&self, state: &State, who: u8, next: &mut Vec<(Step, State)>) {
        let client = &state.clients[usize::from(who)];
        let idle = client.waiting == 0 && client.hold == Hold::None && !client.attempt_on_wire;
        if state.left.tries == 0 || !idle || !client.dead.is_empty() {
            return;
        }
        let mut state = state.clone();
        state.left.tries -= 1;
        let Some(id) = fresh_id(&mut state, who) else { return };
        let client = state.client(who);
        client.waiting = 1;
        client.attempt_on_wire = true;
        client.id = id;
        let not_after = state.now + 1;
        state.send(
            who,
            Command::Acquire {
                id,
                mode: Mode::Try,
                ticket: 0,
                hears: false,
                keys: Keys::LockAndLine,
            },
            not_after,
        );
        next.push((Step::about(who, "a caller tries without waiting: hold", id), state));
    }

    /// A waiter tries when it has a reason to, at its fallback, and at its timer.
    pub(crate) fn may_try(&self, state: &State, who: u8) -> bool {
        let client = &state.clients[usize::from(who)];
        let free = client.contends() && !client.attempt_on_wire && !(client.slot && state.moving);
        let cleaned = client.dead.iter().all(|dead| dead.on_wire || dead.answered || dead.slot);
        free && cleaned
            && (client.duty || state.now >= client.fallback || self.is_timer_over(state, who))
    }

    /// The timers of those with lower ranks end a little earlier.
    fn is_timer_over(&self, state: &State, who: u8) -> bool {
        let over = |client: &Client| {
            client.contends()
                && !client.attempt_on_wire
                && !client.duty
                && state.now >= client.timer
        };
        let this = &state.clients[usize::from(who)];
        let earlier =
            |other: &Client| over(other) && other.rank < this.rank && state.now < other.fallback;
        over(this) && !state.clients.iter().any(earlier)
    }

    fn attempt(&self, state: &State, who: u8, next: &mut Vec<(Step, State)>) {
        if !self.may_try(state, who) {
            return;
        }
        let mut state = state.clone();
        let id = match state.client(who).id {
            0 => match fresh_id(&mut state, who) {
                Some(id) => id,
                None => return,
            },
            id => id,
        };
        let now = state.now;
        let client = state.client(who);
        let what = if client.duty {
            "tries: sends acquire of hold"
        } else if now >= client.fallback {
            "has slept for the fallback: sends acquire of hold"
        } else {
            "its timer is over: sends acquire of hold"
        };
        client.id = id;
        client.attempt_on_wire = true;
        client.duty = false;
        client.slot = false;
        client.fallback = NEVER;
        client.timer = NEVER;
        client.asleep_since = 0;
        let mode = if client.again { Mode::Again } else { Mode::First };
        let ticket = if self.breaks(Switch::NamesNoTicket) { 0 } else { client.ticket };
        let command =
            Command::Acquire { id, mode, ticket, hears: client.hears(), keys: Keys::LockAndLine };
        state.send(who, command, now + 1);
        next.push((Step::about(who, what, id), state));
    }

    fn give_up(&self, state: &State, who: u8, next: &mut Vec<(Step, State)>) {
        if state.left.cancels == 0 || state.clients[usize::from(who)].waiting == 0 {
            return;
        }
        let mut state = state.clone();
        state.left.cancels -= 1;
        let client = state.client(who);
        client.waiting -= 1;
        if client.waiting == 0 {
            self.no_waiter_left(&mut state, who);
        } else if self.breaks(Switch::PlaceLostOnCancel)
            && !client.attempt_on_wire
            && client.id != 0
        {
            let id = std::mem::take(&mut client.id);
            client.ticket = 0;
            client.again = false;
            client.duty = true;
            self.bury(&mut state, who, id, 0);
        }
        next.push((Step::new(who, "a caller gives up"), state));
    }

    /// The last waiter has given up: the place is given back, once no attempt is on the wire.
    pub(crate) fn no_waiter_left(&self, state: &mut State, who: u8) {
        let client = state.client(who);
        client.duty = false;
        client.timer = NEVER;
        if client.attempt_on_wire {
            return;
        }
        client.fallback = NEVER;
        client.asleep_since = 0;
        client.again = false;
        client.slot = false;
        client.rank = 0;
        if !self.breaks(Switch::TicketKeptAfterLeaving) {
            client.ticket = 0;
        }
        let id = std::mem::take(&mut client.id);
        if id != 0 && !self.breaks(Switch::NotLeaving) {
            self.bury(state, who, id, 0);
        }
        state.out_of_order(usize::from(who));
    }

    // ---- holding

    /// The holder is done: it releases, or hands off to a waiter of its own.
    fn end_hold(&self, state: &State, who: u8, id: u8, next: &mut Vec<(Step, State)>) {
        let mut state = state.clone();
        let client = state.client(who);
        client.duty = false;
        let line_first =
            client.hand_offs >= self.scope.hand_offs && !self.breaks(Switch::HandOffsUnbounded);
        let has_waiter = client.waiting > 0;
        client.hand_offs = if has_waiter && !line_first { client.hand_offs + 1 } else { 0 };
        let to = if has_waiter { fresh_id(&mut state, who) } else { None };
        let Some(to) = to else {
            state.client(who).hand_offs = 0;
            self.send_release(&mut state, who, id, Keys::LockAndLine);
            next.push((Step::about(who, "sends release(0) of hold", id), state));
            return;
        };
        let client = state.client(who);
        client.hold = Hold::HandingOff { from: id, to };
        let hears = client.hears();
        let not_after = state.now + 1;
        state.send(who, Command::HandOff { from: id, to, line_first, hears }, not_after);
        let what =
            if line_first { "hands off, the line first, to hold" } else { "hands off to hold" };
        next.push((Step::about(who, what, to), state));
    }

    pub(crate) fn send_release(&self, state: &mut State, who: u8, id: u8, keys: Keys) {
        state.client(who).hold = Hold::Releasing { id, on_wire: true };
        state.send(who, Command::Release { id, keys, purpose: Purpose::Hold }, NEVER);
    }

    // ---- what is over

    /// The id is used no more: it is released until nothing can remain of it.
    pub(crate) fn bury(&self, state: &mut State, who: u8, id: u8, not_after: u8) {
        let dead = Dead { id, not_after, on_wire: true, answered: false, slot: false };
        state.client(who).dead.push(dead);
        state.client(who).dead.sort_unstable();
        let command = Command::Release { id, keys: Keys::LockAndLine, purpose: Purpose::Dead };
        state.send(who, command, NEVER);
    }

    fn release_dead(&self, state: &State, who: u8, next: &mut Vec<(Step, State)>) {
        for (at, dead) in state.clients[usize::from(who)].dead.iter().enumerate() {
            if !is_due(state, dead) {
                continue;
            }
            let mut state = state.clone();
            let dead = &mut state.client(who).dead[at];
            dead.on_wire = true;
            dead.slot = false;
            let id = dead.id;
            let command = Command::Release { id, keys: Keys::LockAndLine, purpose: Purpose::Dead };
            state.send(who, command, NEVER);
            next.push((Step::about(who, "sends release(0) once more for dead hold", id), state));
        }
    }

    /// A release of the lock alone was answered: one with the line is owed, once for all of them.
    pub(crate) fn owe(&self, state: &mut State, who: u8, id: u8) {
        if self.breaks(Switch::NothingOwed) {
            return;
        }
        match &mut state.client(who).owed {
            Some(owed) => owed.again |= owed.on_wire && !self.breaks(Switch::OwedForgotten),
            none => *none = Some(Owed { id, on_wire: false, again: false }),
        }
    }

    fn release_owed(&self, state: &State, who: u8, next: &mut Vec<(Step, State)>) {
        if !is_owed_now(state, &state.clients[usize::from(who)]) {
            return;
        }
        let mut state = state.clone();
        let Some(owed) = &mut state.client(who).owed else { return };
        owed.on_wire = true;
        let id = owed.id;
        let command = Command::Release { id, keys: Keys::LockAndLine, purpose: Purpose::Owed };
        state.send(who, command, NEVER);
        next.push((
            Step::about(who, "sends the release(0) with the line that it owes for hold", id),
            state,
        ));
    }

    // ---- messages

    fn subscribe(&self, state: &State, who: u8, next: &mut Vec<(Step, State)>) {
        let client = &state.clients[usize::from(who)];
        if !client.linked || client.subscription != Subscription::Wanted {
            return;
        }
        let mut state = state.clone();
        let client = state.client(who);
        client.subscription = Subscription::Confirmed;
        client.duty |= client.waiting > 0 && !self.breaks(Switch::NoTryAfterConfirmation);
        client.slot &= self.breaks(Switch::PickUpWaitsForSlot);
        next.push((Step::new(who, "is subscribed, and hears that it is"), state));
    }

    /// Messages arrive, or vanish.
    pub(crate) fn message_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (at, (who, word)) in state.words.iter().copied().enumerate() {
            let mut heard = state.clone();
            heard.words.remove(at);
            let losable = word == Word::Zero || !self.scope.only_zero_is_lost;
            if state.left.lost_messages > 0 && losable {
                let mut lost = heard.clone();
                lost.left.lost_messages -= 1;
                lost.checks.faulty = true;
                if matches!(word, Word::Reserved(id) if owner(id) == usize::from(who)) {
                    lost.checks.missed.add(who);
                }
                next.push((
                    step(who, word, ["`0` to it vanishes", "what it should hear vanishes:"]),
                    lost,
                ));
            }
            if who == WATCHER {
                look(&mut heard, self.scope.fallback);
            } else {
                self.hear(&mut heard, who, word);
            }
            next.push((
                step(who, word, ["hears `0`", "hears that the lock is reserved for hold"]),
                heard,
            ));
        }
    }

    pub(crate) fn hear(&self, state: &mut State, who: u8, word: Word) {
        let now = state.now;
        let client = state.client(who);
        let may_wait = matches!(client.hold, Hold::None | Hold::HandingOff { .. });
        if client.waiting == 0 || !may_wait {
            return;
        }
        let Word::Reserved(id) = word else {
            client.duty |= !self.breaks(Switch::ZeroIsIgnored);
            return;
        };
        if self.scope.timers.is_some() && !self.breaks(Switch::RanksStay) {
            client.rank = client.rank.saturating_sub(1);
        }
        if client.id == id {
            client.slot &= self.breaks(Switch::PickUpWaitsForSlot);
            client.duty |=
                !(client.attempt_on_wire && self.breaks(Switch::MessageDuringAttemptDropped));
            if self.breaks(Switch::MessageIsAGrant) && !client.attempt_on_wire {
                client.waiting -= 1;
                client.id = 0;
                client.duty = false;
                client.hold = Hold::Held { id, until: now + self.scope.lease - 1 };
            }
            return;
        }
        match client.hold {
            Hold::HandingOff { to, .. } if to == id => {
                client.duty |= !self.breaks(Switch::MessageDuringHandOffDropped);
            }
            Hold::HandingOff { from, .. } if from == id => {}
            _ if owner(id) == usize::from(who) && self.breaks(Switch::DeadIdSetsNoTimer) => {}
            _ => self.set_timer(state, who),
        }
    }

    /// At the end of a reservation of another, or of a dead id of this client.
    fn set_timer(&self, state: &mut State, who: u8) {
        let end = state.now + self.scope.reservation;
        if self.breaks(Switch::NoTimer) || !self.has_timer(state.client(who).rank) {
            return;
        }
        let client = state.client(who);
        client.timer = end;
        if self.breaks(Switch::AnnouncementPostponesFallback)
            && client.id != 0
            && !client.attempt_on_wire
        {
            client.fallback = end;
        }
    }

    /// Only the first few in line try at the end of what another has.
    pub(crate) fn has_timer(&self, rank: u8) -> bool {
        self.scope.timers.is_none_or(|timers| rank < timers)
    }

    fn has_to_look(&self, state: &State, watcher: Watcher) -> bool {
        state.now >= watcher.looks_at && !self.breaks(Switch::WatcherHasNoFallback)
    }

    fn watch(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let Some(watcher) = state.watcher else { return };
        if !self.has_to_look(state, watcher) {
            return;
        }
        let mut state = state.clone();
        look(&mut state, self.scope.fallback);
        next.push((Step::new(WATCHER, "only listens, and looks after its fallback"), state));
    }
}

/// The watcher looks whether somebody has the lock.
fn look(state: &mut State, fallback: u8) {
    let taken = state.data.lock.is_some();
    if let Some(watcher) = &mut state.watcher {
        watcher.looks_at = state.now + fallback;
        watcher.believes_taken = taken;
        watcher.wrong_for = 0;
    }
}

fn step(who: u8, word: Word, whats: [&'static str; 2]) -> Step {
    match word {
        Word::Zero => Step::new(who, whats[0]),
        Word::Reserved(id) => Step::about(who, whats[1], id),
    }
}

fn is_due(state: &State, dead: &Dead) -> bool {
    let again = !dead.answered || state.now > dead.not_after;
    let waits_for_slot = dead.slot && state.moving;
    !dead.on_wire && again && !waits_for_slot
}

fn is_owed_now(state: &State, client: &Client) -> bool {
    !state.moving && client.owed.is_some_and(|owed| !owed.on_wire)
}

fn fresh_id(state: &mut State, who: u8) -> Option<u8> {
    let client = state.client(who);
    if client.ids >= IDS {
        return None;
    }
    client.ids += 1;
    Some(who * 8 + client.ids)
}
