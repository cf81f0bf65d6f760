//! What must be true in every state, and what is noted on the way for that.

use crate::line::Line;
use crate::line::rules::Switch;
use crate::line::scripts::Attempt;
use crate::line::state::Client;
use crate::line::state::Hold;
use crate::line::state::Lock;
use crate::line::state::Mode;
use crate::line::state::State;
use crate::line::state::owner;

impl Line {
    pub(crate) fn broken_promise(&self, state: &State) -> Option<&'static str> {
        state
            .checks
            .flaw
            .or_else(|| belief(state))
            .or_else(|| self.places(state))
            .or_else(|| self.waiters(state))
            .or_else(|| self.idle(state))
            .or_else(|| self.remains(state))
            .or_else(|| self.watcher(state))
    }

    /// Nothing remains of an id that is over. No id has two places, or a place and the lock.
    fn places(&self, state: &State) -> Option<&'static str> {
        let over = |id: u8| state.checks.finished.has(id) && !state.checks.restored.has(id);
        let line = &state.data.line;
        if let Some(lock) = state.data.lock {
            if over(lock.id) {
                return Some("no orphan: an id that is over has the lock");
            }
            let keeps = self.breaks(Switch::KeepsPlaceOfReserved) && lock.reserved;
            if !keeps && line.iter().any(|place| place.id == lock.id) {
                return Some("who has the lock is not in the line");
            }
        }
        for (at, place) in line.iter().enumerate() {
            if over(place.id) {
                return Some("no orphan: an id that is over is in the line");
            }
            if line[at + 1..].iter().any(|other| other.id == place.id) {
                return Some("nobody is twice in the line");
            }
        }
        None
    }

    /// Each waiter tries again in time, and no client keeps the lock among its own waiters.
    fn waiters(&self, state: &State) -> Option<&'static str> {
        for client in &state.clients {
            let sleeps = client.contends() && !client.attempt_on_wire && !client.duty;
            if sleeps && client.fallback > state.now + self.scope.fallback {
                return Some("no waiter sleeps for longer than the fallback");
            }
            let since = client.asleep_since;
            if sleeps && self.scope.prompt && since != 0 && state.now > since + self.scope.fallback
            {
                return Some("a waiter tries at least once in every fallback");
            }
            if client.hand_offs > self.scope.hand_offs && !state.checks.order.is_empty() {
                return Some("hand-offs in a row are bounded while others wait");
            }
        }
        None
    }

    /// The lock is not idle while somebody waits: not at all without a fault, and otherwise for a
    /// fallback at most, and a reservation for each client that is gone.
    fn idle(&self, state: &State) -> Option<&'static str> {
        let checks = &state.checks;
        if !self.scope.prompt || checks.idle == 0 {
            return None;
        }
        if !checks.faulty {
            return Some("the lock is not idle while somebody waits, if nothing goes wrong");
        }
        let most = self.scope.fallback + self.scope.reservation * checks.gone;
        (checks.idle > self.scope.idle.unwrap_or(most))
            .then_some("the lock is not idle for longer than a fault explains while somebody waits")
    }

    /// Idle means empty: nothing of a client remains that wants nothing.
    fn remains(&self, state: &State) -> Option<&'static str> {
        let settled = self.scope.prompt && state.wire.is_empty() && !self.is_urgent(state);
        if !settled || state.moving || state.left.failovers != self.scope.failovers {
            return None;
        }
        let heard_all = state.left.lost_messages == self.scope.lost_messages;
        for (who, client) in state.clients.iter().enumerate() {
            let idle = client.waiting == 0 && client.hold == Hold::None && client.dead.is_empty();
            if !client.alive || !idle {
                continue;
            }
            if state.data.line.iter().any(|place| owner(place.id) == who) {
                return Some("a client that wants nothing is not in the line");
            }
            let reserved =
                state.data.lock.is_some_and(|lock| lock.reserved && owner(lock.id) == who);
            if reserved && client.linked && heard_all && state.left.cuts == self.scope.cuts {
                return Some("the lock is not reserved for a client that wants nothing");
            }
        }
        None
    }

    /// Who listens without a place learns at once that the lock is free, or by its fallback if
    /// something went wrong.
    fn watcher(&self, state: &State) -> Option<&'static str> {
        let watcher = state.watcher?;
        let most = if state.checks.faulty { self.scope.fallback } else { 0 };
        (watcher.wrong_for > most)
            .then_some("who only listens learns in time that the lock is free")
    }

    pub(crate) fn count_idle_time(&self, state: &mut State) {
        let waiting =
            state.clients.iter().filter(|client| client.contends() && client.linked).count();
        let somebody_waits = waiting >= self.scope.idle_of;
        let idle =
            state.data.lock.is_none_or(|lock| lock.reserved) && somebody_waits && !state.moving;
        state.checks.idle = if idle { state.checks.idle + 1 } else { 0 };
        let free = state.data.lock.is_none();
        if let Some(watcher) = &mut state.watcher {
            watcher.wrong_for =
                if free && watcher.believes_taken { watcher.wrong_for + 1 } else { 0 };
        }
    }

    /// The lock goes to the one that asks for it; if it still wants it, it may not overtake
    /// anybody.
    pub(crate) fn check_attempt(&self, state: &mut State, attempt: &Attempt) {
        if attempt.awaited && state.clients[owner(attempt.id)].waiting > 0 {
            self.check_order(state, owner(attempt.id));
        }
    }

    /// The lock goes to this client: nobody before it may be waiting.
    pub(crate) fn check_order(&self, state: &mut State, to: usize) {
        if !self.scope.prompt || state.left.failovers != self.scope.failovers {
            return;
        }
        for (_, before) in &state.checks.order {
            let before = usize::from(*before);
            if before == to {
                return;
            }
            let client = &state.clients[before];
            if client.alive
                && client.linked
                && client.waiting > 0
                && !state.checks.excused.has(before)
            {
                state.checks.flaw = Some("the lock goes by ticket");
                return;
            }
        }
    }

    /// A reservation for an id that its client still uses is checked as a grant; one for a dead id
    /// harms nobody.
    pub(crate) fn check_reservation(&self, state: &mut State, id: u8) {
        let who = owner(id);
        let in_order = state.checks.order.iter().any(|(_, other)| usize::from(*other) == who);
        if in_order && state.clients[who].id == id {
            self.check_order(state, who);
        }
        state.checks.newcomers_may_overtake = false;
    }

    pub(crate) fn note_attempt(&self, state: &mut State, attempt: &Attempt) {
        if !attempt.awaited {
            return;
        }
        state.checks.missed.remove(owner(attempt.id));
        if attempt.mode == Mode::Again && state.data.lock.is_none() {
            state.checks.excused.remove(owner(attempt.id));
        }
    }

    /// The lock's key is about to run out.
    pub(crate) fn note_expiry(&self, state: &mut State) {
        state.checks.newcomers_may_overtake = true;
        state.checks.faulty = true;
        let Some(Lock { id, reserved: true, .. }) = state.data.lock else { return };
        let who = owner(id);
        let client = &state.clients[who];
        if client.alive && client.id == id {
            state.checks.wasted += u8::from(self.scope.wasted.is_some());
            if self.scope.wasted.is_some_and(|most| state.checks.wasted > most) {
                state.checks.flaw = Some("a client that cannot hear costs no reservation");
            }
        }
        let could_hear = client.contends() && client.linked && !state.checks.missed.has(who);
        if self.scope.prompt
            && could_hear
            && !self.scope.slow_subscription
            && client.id == id
            && state.left.failovers == self.scope.failovers
        {
            state.checks.flaw = Some("no reservation of a client that waits and hears runs out");
        }
        if client.id == id || state.has_ticket(who) {
            state.checks.excused.add(who);
        }
    }
}

impl State {
    /// A client has got a ticket, if it still waits for the answer.
    pub(crate) fn note_ticket(&mut self, who: usize, ticket: u8, awaited: bool) {
        let order = &mut self.checks.order;
        let number = u8::try_from(who).unwrap_or(u8::MAX);
        if awaited && self.clients[who].alive && !order.iter().any(|(_, other)| *other == number) {
            let at = order.partition_point(|other| *other < (ticket, number));
            order.insert(at, (ticket, number));
        }
    }

    pub(crate) fn note_grant(&mut self, who: usize, awaited: bool) {
        if awaited {
            self.out_of_order(who);
        }
        self.checks.idle = 0;
        self.checks.newcomers_may_overtake = false;
    }

    /// The client has no claim to a place any more.
    pub(crate) fn out_of_order(&mut self, who: usize) {
        self.checks.order.retain(|(_, other)| usize::from(*other) != who);
        self.checks.excused.remove(who);
    }

    /// The client lost a place that it had or may have had; with a ticket it comes back.
    pub(crate) fn note_lost_place(&mut self, who: usize) {
        if self.has_ticket(who) {
            self.checks.excused.add(who);
        } else {
            self.out_of_order(who);
        }
    }

    /// The lock's key is about to be taken away.
    pub(crate) fn note_taken_away(&mut self) {
        let Some(lock) = self.data.lock else { return };
        let who = owner(lock.id);
        if !lock.reserved {
            self.checks.breached.add(lock.id);
        }
        if lock.reserved && (self.clients[who].id == lock.id || self.has_ticket(who)) {
            self.checks.excused.add(who);
        }
    }

    /// All that clients hold was taken away from them, or may be soon.
    pub(crate) fn breach_holds(&mut self) {
        let breached = &mut self.checks.breached;
        for client in &self.clients {
            if client.id != 0 {
                breached.add(client.id);
            }
            match client.hold {
                Hold::Held { id, .. } | Hold::Releasing { id, .. } => breached.add(id),
                Hold::HandingOff { from, to } => {
                    breached.add(from);
                    breached.add(to);
                }
                Hold::None => {}
            }
        }
    }
}

/// Exclusion, and a validity that ends before the key does.
fn belief(state: &State) -> Option<&'static str> {
    let valid = |client: &Client| match client.hold {
        Hold::Held { id, until } if state.now < until && !state.checks.breached.has(id) => {
            Some((id, until))
        }
        _ => None,
    };
    let mut holds = state.clients.iter().filter_map(valid);
    let (id, until) = holds.next()?;
    if holds.next().is_some() {
        return Some("no two holders at once");
    }
    match state.data.lock {
        Some(lock) if lock.id != id => Some("a valid hold has its key"),
        Some(lock) if lock.reserved => Some("a reservation is no grant"),
        Some(lock) if lock.expires < until => Some("valid-until is never past the key's expiry"),
        Some(_) => None,
        None => Some("a valid hold has its key"),
    }
}
