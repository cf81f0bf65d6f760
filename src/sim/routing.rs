//! Who asks which process, and slots that move.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Routes;
use crate::backend::ServerId;
use crate::backend::memory::store::Dumped;
use crate::base::name::LockName;
use crate::base::name::slot_of;
use crate::engine::event::Event;
use crate::kinds::command::Command;
use crate::sim::checker::View;
use crate::sim::client::Inbound;
use crate::sim::client::Link;
use crate::sim::client::server_id;
use crate::sim::kinds::rules_of;
use crate::sim::places::Moving;
use crate::sim::places::Where;
use crate::sim::places::keys_of;
use crate::sim::server::FoundLine;
use crate::sim::world::Happening;
use crate::sim::world::World;

impl World {
    /// The process whose word counts about a name.
    pub(super) fn authority(&self, name: &LockName) -> usize {
        let owner = self.places.owner(name.slot());
        match &self.places.moving {
            Some(moving) if moving.slot == name.slot() => {
                let here = self.processes[owner].lock(self.now, name).is_some();
                if here { owner } else { moving.to }
            }
            _ => owner,
        }
    }

    /// The line of a name. While its slot moves, the line's key may be at either server.
    pub(super) fn line_of(&self, name: &LockName) -> Option<FoundLine> {
        let owner = self.places.owner(name.slot());
        let here = self.processes[owner].line(self.now, name);
        let moving = self.places.moving.as_ref().filter(|moving| moving.slot == name.slot());
        here.or_else(|| moving.and_then(|moving| self.processes[moving.to].line(self.now, name)))
    }

    /// The locks and lines of all names, for whoever's word counts.
    pub(super) fn views(&self) -> Vec<View> {
        let view = |name: &LockName| View {
            name: name.clone(),
            lock: self.processes[self.authority(name)].lock(self.now, name),
            line: self.line_of(name),
        };
        self.names.iter().map(view).collect()
    }

    /// As Redis decides it.
    pub(super) fn place(&self, process: usize, command: &Command, asking: bool) -> Where {
        let Some(name) = command.name() else { return Where::Here };
        if !self.places.cluster {
            return Where::Here;
        }
        let moving = self.places.moving.as_ref().filter(|moving| moving.slot == name.slot());
        // Most slots stay where they are, and then nobody needs the keys.
        let keys = if moving.is_some() { keys_of(command) } else { Vec::new() };
        let count = |process: usize| {
            let at = &self.processes[process];
            keys.iter().filter(|key| at.keys.peek(at.time(self.now), key).is_some()).count()
        };
        match moving {
            Some(moving) if process == moving.from => match count(process) {
                0 => Where::Elsewhere { process: moving.to, ask: true },
                some if some == keys.len() => Where::Here,
                _ => Where::TryAgain,
            },
            Some(moving) if process == moving.to && asking => {
                if keys.len() > 1 && count(process) < keys.len() {
                    Where::TryAgain
                } else {
                    Where::Here
                }
            }
            _ if self.places.owner(name.slot()) == process => Where::Here,
            _ => Where::Elsewhere { process: self.places.owner(name.slot()), ask: false },
        }
    }

    // ---- what clients know of it

    /// A client hears who has the slots, or which server it is to talk to.
    pub(super) fn learn(&mut self, client: usize) {
        if !self.clients[client].serves() {
            return;
        }
        if !self.places.cluster {
            let current = self.places.current();
            if self.clients[client]
                .links
                .get(&ServerId::ONLY)
                .is_some_and(|link| link.process != current)
            {
                self.cut(client, ServerId::ONLY, false);
            }
            if self.clients[client].listens.keys().any(|process| *process != current) {
                self.forsake_listening(client, current);
            }
            return;
        }
        let owners = self.places.owners().to_vec();
        self.adopt(client, owners);
    }

    /// The client believes in these routes from now on.
    pub(super) fn adopt(&mut self, client: usize, owners: Vec<usize>) {
        if self.clients[client].routes == owners {
            return;
        }
        for process in owners.iter().copied() {
            self.meet(client, process);
        }
        let servers: Arc<[ServerId]> = owners.iter().map(|process| server_id(*process)).collect();
        self.clients[client].routes = owners;
        let routes = Event::Routes(Routes::Slots { servers, sharded: self.places.sharded });
        self.disturb(client, None);
        self.send_to_client(Duration::ZERO, client, Inbound::Backend(None, routes));
        self.move_subscriptions(client);
    }

    /// Makes connections to a server that it did not know, or has given up while that had no slots.
    pub(super) fn meet(&mut self, client: usize, process: usize) {
        let id = self.places.server_id(process);
        let link = self.clients[client]
            .links
            .entry(id)
            .or_insert_with(|| Link { process, ..Link::default() });
        if link.up || link.connecting {
            return;
        }
        let wait = self.chance.time(1, 5_000);
        self.connect_later(wait, client, id);
        let wait = self.chance.time(1, 5_000);
        self.listen_later(wait, client, process);
    }

    /// Everybody hears of a change, one after the other.
    pub(super) fn spread_news(&mut self, most: Duration) {
        let most = u64::try_from(most.as_micros()).unwrap_or(1_000_000);
        for client in 0..self.clients.len() {
            let wait = self.chance.time(100, most);
            self.disturb_for(client, wait + Duration::from_millis(500));
            self.after(wait, Happening::Learn(client));
        }
    }

    // ---- a slot moves

    pub(super) fn begin_move(&mut self) {
        if !self.places.cluster || self.places.moving.is_some() {
            return;
        }
        let name = self.chance.pick(&self.names).clone();
        let from = self.places.owner(name.slot());
        let others: Vec<usize> = (0..self.processes.len())
            .filter(|at| {
                *at != from && self.processes[*at].alive && self.processes[*at].deposed.is_none()
            })
            .collect();
        if others.is_empty() || !self.processes[from].alive {
            return;
        }
        let to = *self.chance.pick(&others);
        self.say(|| format!("the slot of {name} begins to move from s{from} to s{to}"));
        if self.processes[to].time(self.now) < self.processes[from].time(self.now) {
            self.checker.clock_went_back = true;
        }
        self.places.moving = Some(Moving { slot: name.slot(), from, to });
        let mut end = Duration::ZERO;
        for key in [name.to_string(), name.fence_key(), name.line_key()] {
            let wait = self.chance.time(500, 200_000);
            end = end.max(wait);
            self.after(wait, Happening::MoveKey(key));
        }
        let end = end + self.chance.time(500, 100_000);
        for client in 0..self.clients.len() {
            self.disturb_for(client, end + Duration::from_millis(500));
        }
        self.after(end, Happening::MoveEnd);
    }

    /// MIGRATE: the key goes with the time that it has left.
    pub(super) fn move_key(&mut self, key: &str) {
        let Some(Moving { from, to, slot }) = self.places.moving.clone() else { return };
        if slot_of(key) != slot || !self.processes[from].alive || !self.processes[to].alive {
            return;
        }
        let now = self.now;
        let time = self.processes[from].time(now);
        let apart = self.processes[to].time(now) - time;
        let lock = self.names.iter().find(|name| name.as_str() == key);
        let lock =
            lock.filter(|name| apart != 0 && !rules_of(name).promises().moves_between_clocks);
        if let Some(lock) = lock.and_then(|name| self.processes[from].lock(now, name)) {
            self.breach_all_of(
                &lock,
                "its key has ends by the clock of a server, and moved to another",
            );
            self.checker.skew(apart);
        }
        if let Some(name) = self.names.iter().find(|name| name.as_str() == key).cloned() {
            let beside = rules_of(&name).beside(&self.processes[from].keys, time, &name);
            beside.iter().for_each(|key| self.move_key(key));
        }
        let Some(dumped) = self.processes[from].keys.peek(time, key) else { return };
        self.processes[from].keys.remove(time, key);
        let there = self.processes[to].time(now);
        self.processes[to].keys.plant(there, key, dumped.value, dumped.pttl);
        self.dirty = true;
        self.say(|| format!("{key} moves from s{from} to s{to}"));
    }

    pub(super) fn end_move(&mut self) {
        let Some(Moving { from, to, slot }) = self.places.moving.clone() else { return };
        let time = self.processes[from].time(self.now);
        for Dumped { key, .. } in self.processes[from].keys.dump(time) {
            self.move_key(&key);
        }
        self.places.moving = None;
        self.places.owners[usize::from(slot)] = to;
        self.dirty = true;
        self.say(|| format!("s{to} has the slot"));
        self.end_sharded_subscriptions(from, slot);
        self.spread_news(Duration::from_millis(300));
    }
}
