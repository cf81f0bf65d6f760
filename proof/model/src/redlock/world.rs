//! What servers do, what becomes of commands on their way, and time.

use crate::explore::NOBODY;
use crate::explore::Step;
use crate::redlock::Dead;
use crate::redlock::Knows;
use crate::redlock::LEASE;
use crate::redlock::Phase;
use crate::redlock::Redlock;
use crate::redlock::SERVERS;
use crate::redlock::Server;
use crate::redlock::State;
use crate::redlock::TIMEOUT;
use crate::redlock::rules::Switch;

impl Redlock {
    /// An acquire, which may carry a token. `None`: refused, or late.
    pub(super) fn acquire(
        &self,
        state: &mut State,
        server: usize,
        (hold, not_after): (u8, u8),
        raise: u8,
    ) -> Option<u8> {
        if state.now > not_after && !self.breaks(Switch::MayBeLate) {
            return None;
        }
        let clock = state.now * 4 + self.scope.ahead[server];
        let until = state.now + LEASE;
        let known = &mut state.servers[server];
        match known.lock {
            Some((holder, _)) if holder != hold => return None,
            _ => known.lock = Some((hold, until)),
        }
        if !self.scope.tokens {
            return Some(0);
        }
        known.fence = (known.fence + 1).max(clock).max(raise);
        Some(known.fence)
    }

    pub(super) fn is_in_quarantine(&self, state: &State, server: usize) -> bool {
        let started = state.servers[server].started;
        started > 0 && state.now - started <= LEASE && !self.breaks(Switch::CountsAtOnce)
    }

    pub(super) fn network_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (index, slow) in state.slow.iter().enumerate() {
            let server = usize::from(slow.server);
            if !state.servers[server].up {
                continue;
            }
            let mut after = state.clone();
            after.slow.remove(index);
            let name = slow.server + 1;
            if slow.raise > 0 {
                let fence = &mut after.servers[server].fence;
                *fence = slow.raise.max(*fence);
                next.push((
                    Step::about(slow.client, "its token comes late to server", name),
                    after,
                ));
            } else {
                self.acquire(&mut after, server, (slow.hold, slow.not_after), 0);
                next.push((
                    Step::about(slow.client, "its acquire comes late to server", name),
                    after,
                ));
            }
        }
    }

    pub(super) fn server_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let started = state.now;
        for (index, server) in state.servers.iter().enumerate() {
            let mut step = |what, change: &dyn Fn(&mut State)| {
                let mut after = state.clone();
                change(&mut after);
                next.push((Step::about(NOBODY, what, index as u8 + 1), after));
            };
            if state.losses > 0 && state.now < self.scope.end {
                step("a restart without data of server", &|after| {
                    after.losses -= 1;
                    after.servers[index] = Server { lock: None, fence: 0, up: true, started };
                });
            }
            if server.up && state.crashes > 0 {
                step("a crash of server", &|after| {
                    after.crashes -= 1;
                    after.servers[index].up = false;
                });
            }
            if !server.up {
                step("a restart with its data of server", &|after| {
                    after.servers[index] = Server { up: true, started, ..after.servers[index] };
                });
            }
        }
    }

    pub(super) fn time_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let is_over = state.now >= self.scope.end;
        if is_over || (0..state.clients.len()).any(|who| self.is_urgent(state, who)) {
            return;
        }
        let mut after = state.clone();
        after.now += 1;
        let now = after.now;
        for server in &mut after.servers {
            server.lock = server.lock.filter(|(_, until)| *until > now);
        }
        next.push((Step::about(NOBODY, "a tick passes:", now), after));
    }

    /// Whether a client has something to do before time passes.
    fn is_urgent(&self, state: &State, who: usize) -> bool {
        let (client, now) = (&state.clients[who], state.now);
        let due = |dead: &Dead| {
            let is_first = dead.sent == 0;
            let is_last = dead.sent < now && now > dead.not_after;
            (is_first || is_last) && state.servers[usize::from(dead.server)].up
        };
        if client.dead.iter().any(due) {
            return true;
        }
        match client.phase {
            Phase::Idle | Phase::Holding { .. } => false,
            Phase::Asking { sent } => {
                !client.knows.contains(&Knows::Asked) || now >= sent + TIMEOUT
            }
            Phase::Raising { sent, .. } => now >= sent + TIMEOUT,
            Phase::InOrder { at } if usize::from(at) >= SERVERS => true,
            Phase::InOrder { at } => {
                let server = self.server_at(who, at);
                let has = matches!(client.knows[server], Knows::Granted { .. });
                let waits = !self.breaks(Switch::WaitsOnlyAtFirst)
                    || client.knows.iter().all(|knows| *knows == Knows::Nothing);
                let is_free =
                    state.servers[server].lock.is_none_or(|(hold, _)| hold == client.hold);
                has || !waits || is_free || !state.servers[server].up
            }
        }
    }

    /// States that differ only in what is over have the same future.
    pub(super) fn forget_what_is_over(&self, state: &mut State) {
        let now = state.now;
        let may_be_late = self.breaks(Switch::MayBeLate);
        state.slow.retain(|slow| slow.raise > 0 || may_be_late || now <= slow.not_after);
        for client in &mut state.clients {
            for knows in &mut client.knows {
                if let Knows::Granted { until, .. } = knows {
                    *until = if *until > now { *until } else { 0 };
                }
            }
            for dead in &mut client.dead {
                dead.sent = if dead.sent < now { dead.sent.min(1) } else { dead.sent };
                dead.not_after = if dead.not_after < now { 0 } else { dead.not_after };
            }
            if client.phase == Phase::Idle {
                client.hold = 0;
                client.rounds = self.scope.rounds;
            }
        }
        for server in &mut state.servers {
            if server.started > 0 && now - server.started > LEASE {
                server.started = 0;
            }
        }
    }
}
