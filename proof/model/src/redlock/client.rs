//! What a client does.

use crate::explore::Step;
use crate::redlock::Client;
use crate::redlock::Dead;
use crate::redlock::Knows;
use crate::redlock::LEASE;
use crate::redlock::MAJORITY;
use crate::redlock::MARGIN;
use crate::redlock::Phase;
use crate::redlock::Redlock;
use crate::redlock::SERVERS;
use crate::redlock::Slow;
use crate::redlock::State;
use crate::redlock::TIMEOUT;
use crate::redlock::rules::Switch;

type Next = Vec<(Step, State)>;

impl Redlock {
    pub(super) fn client_steps(&self, state: &State, who: usize, next: &mut Next) {
        let client = &state.clients[who];
        // Whatever is to be released is released first.
        let due =
            |dead: &&Dead| state.servers[usize::from(dead.server)].up && dead.sent < state.now;
        if client.dead.iter().any(|dead| due(&dead)) {
            return self.releases(state, who, next);
        }
        match client.phase {
            Phase::Idle => self.begins(state, who, next),
            Phase::Asking { sent } => self.asks(state, who, sent, next),
            Phase::InOrder { at } => self.takes_in_order(state, who, at, next),
            Phase::Raising { token, raised, sent } => {
                self.raises(state, who, (token, raised, sent), next);
            }
            Phase::Holding { token } => self.holds(state, who, token, next),
        }
    }

    fn begins(&self, state: &State, who: usize, next: &mut Next) {
        if state.clients[who].starts > 0 {
            let mut after = state.clone();
            after.clients[who].starts -= 1;
            after.clients[who].lost = false;
            self.ask_all(&mut after, who);
            let hold = after.clients[who].hold;
            next.push((Step::about(who as u8, "asks all servers at once: hold", hold), after));
        }
    }

    fn ask_all(&self, state: &mut State, who: usize) {
        let client = &mut state.clients[who];
        client.fresh_hold(who);
        client.knows = [Knows::Asked; SERVERS];
        client.phase = Phase::Asking { sent: state.now };
    }

    fn asks(&self, state: &State, who: usize, sent: u8, next: &mut Next) {
        let client = &state.clients[who];
        for server in 0..SERVERS {
            if client.knows[server] == Knows::Asked {
                self.is_answered(state, who, server, sent, next);
            }
        }
        let pending = client.knows.contains(&Knows::Asked);
        let is_over = state.now >= sent + TIMEOUT;
        if client.valid(state.now) >= MAJORITY && self.may_go_first(client, state.now) {
            if !pending || state.now > sent {
                let mut after = state.clone();
                self.has_majority(&mut after, who);
                next.push((Step::new(who as u8, "has a majority"), after));
            }
        } else if !pending || is_over {
            let mut after = state.clone();
            for server in 0..SERVERS {
                if client.knows[server] == Knows::Asked {
                    after.delay(who, server, client.hold, sent + TIMEOUT);
                }
            }
            self.fails(&mut after, who);
            next.push((Step::new(who as u8, "has no majority: releases everywhere"), after));
        }
    }

    /// An earlier server that somebody else has is where others wait.
    fn may_go_first(&self, client: &Client, now: u8) -> bool {
        let granted = |knows: &Knows| matches!(knows, Knows::Granted { until, .. } if *until > now);
        let first = client.knows.iter().position(granted).unwrap_or(SERVERS);
        !client.knows[..first].contains(&Knows::Refused)
    }

    fn is_answered(&self, state: &State, who: usize, server: usize, sent: u8, next: &mut Next) {
        let (client, name) = (who as u8, server as u8 + 1);
        let hold = state.clients[who].hold;
        if !state.servers[server].up {
            let mut after = state.clone();
            after.clients[who].knows[server] = Knows::Unanswered;
            return next.push((Step::about(client, "gets no answer from server", name), after));
        }
        let mut after = state.clone();
        let granted = self.acquire(&mut after, server, (hold, sent + TIMEOUT), 0);
        after.clients[who].knows[server] = self.learns(&after, server, hold, sent, granted);
        let what = if granted.is_some() { "is granted by server" } else { "is refused by server" };
        next.push((Step::about(client, what, name), after));
        if state.faults > 0 {
            let mut lost = state.clone();
            lost.faults -= 1;
            lost.clients[who].knows[server] = Knows::Unanswered;
            let mut unanswered = lost.clone();
            next.push((Step::about(client, "its request is lost to server", name), lost));
            self.acquire(&mut unanswered, server, (hold, sent + TIMEOUT), 0);
            next.push((Step::about(client, "the reply is lost of server", name), unanswered));
        }
    }

    /// What a client makes of an answer. `sent`: when it asked.
    fn learns(
        &self,
        state: &State,
        server: usize,
        hold: u8,
        sent: u8,
        granted: Option<u8>,
    ) -> Knows {
        match granted {
            None => Knows::Refused,
            Some(token) if self.is_in_quarantine(state, server) => {
                Knows::Granted { token, until: 0, hold }
            }
            Some(token) => Knows::Granted { token, until: sent + LEASE - MARGIN, hold },
        }
    }

    fn takes_in_order(&self, state: &State, who: usize, at: u8, next: &mut Next) {
        let (client, id) = (&state.clients[who], who as u8);
        let mut after = state.clone();
        if client.valid(state.now) >= MAJORITY {
            self.has_majority(&mut after, who);
            return next.push((Step::new(id, "has a majority"), after));
        }
        if usize::from(at) >= SERVERS {
            self.fails(&mut after, who);
            return next.push((Step::new(id, "has no majority in the end: starts over"), after));
        }
        let server = self.server_at(who, at);
        let name = server as u8 + 1;
        let further = Phase::InOrder { at: at + 1 };
        after.clients[who].phase = further;
        if matches!(client.knows[server], Knows::Granted { .. }) {
            return next.push((Step::about(id, "keeps server", name), after));
        }
        if !state.servers[server].up {
            return next.push((Step::about(id, "skips a server without an answer:", name), after));
        }
        let wanted = (client.hold, state.now + TIMEOUT);
        let granted = self.acquire(&mut after, server, wanted, 0);
        after.clients[who].knows[server] =
            self.learns(&after, server, client.hold, state.now, granted);
        if granted.is_some() {
            next.push((Step::about(id, "in order: is granted by server", name), after));
        } else if self.breaks(Switch::WaitsOnlyAtFirst) && client.has_any() {
            next.push((Step::about(id, "in order: does not wait at server", name), after));
        }
        if state.faults > 0 {
            let mut delayed = state.clone();
            delayed.faults -= 1;
            delayed.clients[who].bury(server, client.hold, state.now + TIMEOUT);
            delayed.delay(who, server, client.hold, state.now + TIMEOUT);
            delayed.clients[who].phase = further;
            next.push((
                Step::about(id, "in order: its request is delayed to server", name),
                delayed,
            ));
        }
    }

    /// Everything that was not answered is undone, and the token is raised.
    fn has_majority(&self, state: &mut State, who: usize) {
        let not_after = state.now + TIMEOUT;
        let hold = state.clients[who].hold;
        let mut token = 0;
        for server in 0..SERVERS {
            match state.clients[who].knows[server] {
                Knows::Granted { token: own, .. } => token = own.max(token),
                open @ (Knows::Asked | Knows::Unanswered) => {
                    if open == Knows::Asked {
                        state.delay(who, server, hold, not_after);
                    }
                    state.clients[who].bury(server, hold, not_after);
                    state.clients[who].knows[server] = Knows::Nothing;
                }
                Knows::Nothing | Knows::Refused => {}
            }
        }
        state.clients[who].phase = Phase::Raising { token, raised: 0, sent: state.now };
        if self.breaks(Switch::RaisesNothing) || !self.scope.tokens {
            self.begins_to_hold(state, who, token);
        }
    }

    fn raises(
        &self,
        state: &State,
        who: usize,
        (token, raised, sent): (u8, u8, u8),
        next: &mut Next,
    ) {
        let (client, id) = (&state.clients[who], who as u8);
        for server in 0..SERVERS {
            let bit = 1 << server;
            let is_own = matches!(client.knows[server], Knows::Granted { hold, until, .. }
                if until > state.now && state.has(server, hold));
            if raised & bit != 0 || !state.servers[server].up || !is_own {
                continue;
            }
            let name = server as u8 + 1;
            let mut after = state.clone();
            after.clients[who].phase = Phase::Raising { token, raised: raised | bit, sent };
            if self.breaks(Switch::RaiseCountsWhenSent) {
                let mut sent_only = after.clone();
                let (hold, server) = (client.hold, server as u8);
                let slow = Slow { client: id, server, hold, not_after: 0, raise: token };
                sent_only.slow.push(slow);
                sent_only.slow.sort_unstable();
                next.push((Step::about(id, "has sent its token to server", name), sent_only));
                continue;
            }
            let fence = &mut after.servers[server].fence;
            *fence = token.max(*fence);
            next.push((Step::about(id, "has its token raised on server", name), after));
        }
        let mut after = state.clone();
        if raised.count_ones() as usize >= MAJORITY {
            self.begins_to_hold(&mut after, who, token);
            next.push((Step::about(id, "holds, token", token), after));
        } else if state.now >= sent + TIMEOUT {
            self.fails(&mut after, who);
            next.push((Step::new(id, "could not raise its token in time: releases"), after));
        }
    }

    fn begins_to_hold(&self, state: &mut State, who: usize, token: u8) {
        if state.clients[who].valid(state.now) < MAJORITY {
            if self.breaks(Switch::NobodyLooksAgain) {
                state.flaw = Some("a guard that is returned is valid");
            }
            return self.fails(state, who);
        }
        if self.scope.tokens && token <= state.top {
            state.flaw = Some("a later hold has a larger token");
        }
        state.top = token.max(state.top);
        state.failures = 0;
        state.clients[who].phase = Phase::Holding { token };
    }

    /// Releases everything, and then takes the servers in order.
    fn fails(&self, state: &mut State, who: usize) {
        state.failures += 1;
        let kept = self.breaks(Switch::KeepsWhileItWaits).then(|| state.clients[who].knows);
        self.bury_all(state, who);
        let client = &mut state.clients[who];
        if client.rounds == 0 {
            client.phase = Phase::Idle;
            return;
        }
        client.rounds -= 1;
        if self.breaks(Switch::AllAtOnceAgain) {
            return self.ask_all(state, who);
        }
        client.fresh_hold(who);
        client.phase = Phase::InOrder { at: 0 };
        if let Some(kept) = kept {
            client.keep(kept);
        }
    }

    pub(super) fn bury_all(&self, state: &mut State, who: usize) {
        let not_after = state.now + TIMEOUT;
        let client = &mut state.clients[who];
        for server in 0..SERVERS {
            match std::mem::replace(&mut client.knows[server], Knows::Nothing) {
                Knows::Granted { hold, .. } => client.bury(server, hold, 0),
                Knows::Asked | Knows::Unanswered
                    if !self.breaks(Switch::ReleasesOnlyWhatAnswered) =>
                {
                    client.bury(server, client.hold, not_after);
                }
                _ => {}
            }
        }
    }

    fn holds(&self, state: &State, who: usize, token: u8, next: &mut Next) {
        let (client, id) = (&state.clients[who], who as u8);
        let mut after = state.clone();
        self.bury_all(&mut after, who);
        after.clients[who].phase = Phase::Idle;
        next.push((Step::about(id, "gives up its hold", client.hold), after));
        let goes_on = client.valid(state.now) >= self.enough() || self.breaks(Switch::ComesBack);
        for server in (0..SERVERS).filter(|server| goes_on && state.servers[*server].up) {
            match client.knows[server] {
                Knows::Granted { hold, until, .. } if until > state.now && state.renewals > 0 => {
                    self.renews(state, who, server, hold, next);
                }
                Knows::Granted { until, .. } if until > state.now => {}
                _ if state.again > 0 => self.asks_again(state, who, server, token, next),
                _ => {}
            }
        }
    }

    fn renews(&self, state: &State, who: usize, server: usize, hold: u8, next: &mut Next) {
        let mut after = state.clone();
        after.renewals -= 1;
        if after.has(server, hold) {
            after.servers[server].lock = Some((hold, state.now + LEASE));
            if let Knows::Granted { until, .. } = &mut after.clients[who].knows[server] {
                *until = state.now + LEASE - MARGIN;
            }
        } else {
            after.clients[who].knows[server] = Knows::Refused;
        }
        next.push((Step::about(who as u8, "renews on server", server as u8 + 1), after));
    }

    /// A server that it has lost, or never had, with a new hold id.
    fn asks_again(&self, state: &State, who: usize, server: usize, token: u8, next: &mut Next) {
        let mut after = state.clone();
        after.again -= 1;
        let client = &mut after.clients[who];
        client.ids += 1;
        let hold = who as u8 * 16 + client.ids;
        if let Knows::Granted { hold: former, .. } = client.knows[server] {
            client.bury(server, former, 0);
        }
        let wanted = (hold, state.now + TIMEOUT);
        let granted = self.acquire(&mut after, server, wanted, token);
        let learnt = self.learns(&after, server, hold, state.now, granted);
        after.clients[who].knows[server] = learnt;
        next.push((Step::about(who as u8, "asks again at server", server as u8 + 1), after));
    }

    /// Everything that is due, at once; one of the releases may be lost.
    fn releases(&self, state: &State, who: usize, next: &mut Next) {
        let due = |dead: &Dead| state.servers[usize::from(dead.server)].up && dead.sent < state.now;
        let count = state.clients[who].dead.iter().filter(|dead| due(dead)).count();
        let losses = if state.faults > 0 { count } else { 0 };
        for lost in 0..=losses {
            let mut after = state.clone();
            after.faults -= u8::from(lost > 0);
            let mut number = 0;
            let mut left = Vec::new();
            for dead in &state.clients[who].dead {
                if !due(dead) {
                    left.push(*dead);
                    continue;
                }
                number += 1;
                let is_lost = number == lost;
                if !is_lost && after.has(usize::from(dead.server), dead.hold) {
                    after.servers[usize::from(dead.server)].lock = None;
                }
                let is_over = state.now > dead.not_after || self.breaks(Switch::ReleasesOnce);
                if is_lost || !is_over {
                    left.push(Dead { sent: state.now, ..*dead });
                }
            }
            after.clients[who].dead = left;
            let what = if lost == 0 { "releases what is due" } else { "releases, and one is lost" };
            next.push((Step::new(who as u8, what), after));
        }
    }

    /// A hold with less than a majority is lost at once.
    pub(super) fn end_lost_holds(&self, state: &mut State) {
        for who in 0..state.clients.len() {
            let client = &state.clients[who];
            let is_lost = matches!(client.phase, Phase::Holding { .. })
                && client.valid(state.now) < self.enough();
            if is_lost && self.breaks(Switch::ComesBack) {
                state.clients[who].lost = true;
            } else if is_lost {
                self.bury_all(state, who);
                state.clients[who].phase = Phase::Idle;
            }
        }
    }
}

impl Client {
    fn has_any(&self) -> bool {
        self.knows.iter().any(|knows| *knows != Knows::Nothing)
    }

    /// Takes back what it was granted, as if it had not been released.
    fn keep(&mut self, knows: [Knows; SERVERS]) {
        for (server, knows) in knows.into_iter().enumerate() {
            if let Knows::Granted { hold, .. } = knows {
                self.dead.retain(|dead| dead.hold != hold || usize::from(dead.server) != server);
                self.knows[server] = knows;
            }
        }
    }
}

impl State {
    pub(super) fn has(&self, server: usize, hold: u8) -> bool {
        self.servers[server].lock.is_some_and(|(holder, _)| holder == hold)
    }

    fn delay(&mut self, who: usize, server: usize, hold: u8, not_after: u8) {
        let (client, server) = (who as u8, server as u8);
        self.slow.push(Slow { client, server, hold, not_after, raise: 0 });
        self.slow.sort_unstable();
    }
}
