//! The servers of a client: which of them has which lock, and the state of each.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::backend::Routes;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::base::stats::LinkState;
use crate::base::stats::ServerProcess;
use crate::engine::server_clock::ServerClock;
use crate::kinds::command::ServerTime;
use crate::settings::config::Sharding;

/// The state of one server.
#[derive(Debug, Default)]
pub(crate) struct Server {
    up: bool,
    info: Option<ServerInfo>,
    /// The epoch: a number for each start of each server process. No two have the same.
    epoch: u32,
    round_trip: Duration,
    /// When it was said for how long its process had been there at least, and how long that was.
    uptime: (Moment, Duration),
    /// When the last good answer came.
    well_at: Moment,
    outage_since: Option<Moment>,
    trouble: Option<String>,
    /// Since when it has been up, or down.
    pub(crate) since: Moment,
    reconnects: u64,
    /// The last attempt to connect failed for a cause that does not pass by itself.
    pub(crate) refuses: bool,
    /// The last attempt to connect was refused because no process listens there.
    pub(crate) nobody_listens: bool,
    /// The causes of failed attempts since the last connection that are in the log.
    pub(crate) reported: Vec<String>,
    pub(crate) clock: ServerClock,
    pub(crate) asking_clock: bool,
}

impl Server {
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// Whether it is up or was before.
    pub(crate) fn was_up(&self) -> bool {
        self.info.is_some()
    }

    /// Which process it was at the last connection, and for how long that had been there.
    fn process(&self) -> Option<ServerProcess> {
        let (at, uptime) = self.uptime;
        let run_id = self.info.as_ref()?.run_id.clone();
        Some(ServerProcess { run_id, at, uptime })
    }

    /// Since when it has been up or down; before the first connection, since the first failure.
    fn stands_since(&self) -> Option<Moment> {
        if self.was_up() { Some(self.since) } else { self.outage_since }
    }

    /// Whether it is up and its clock is known, as acquires and renewals need it.
    pub(crate) fn is_usable(&self) -> bool {
        self.up && self.clock.is_known()
    }

    pub(crate) fn outage_since(&self) -> Option<Moment> {
        self.outage_since
    }

    /// The last failure, for messages.
    pub(crate) fn last_trouble(&self) -> String {
        match &self.trouble {
            Some(trouble) => trouble.clone(),
            None if self.up => "connected, but no answer came in time".to_owned(),
            None => "not connected".to_owned(),
        }
    }

    /// Notes a connection. It gets the new `epoch` if another process was there before.
    pub(crate) fn connected(&mut self, now: Moment, info: ServerInfo, epoch: u32) {
        let mut uptime = info.uptime;
        self.refuses = false;
        self.nobody_listens = false;
        self.reported.clear();
        self.reconnects += u64::from(self.was_up());
        let same = self.info.as_ref().is_some_and(|known| {
            known.run_id == info.run_id
                && (!info.run_id.is_empty() || known.address == info.address)
        });
        if !same {
            self.epoch = epoch;
            if self.was_up() {
                // It began after the last answer of the process before it, whatever its clock says.
                uptime = uptime.min(now.since(self.well_at));
            }
        }
        self.uptime = (now, uptime);
        self.info = Some(info);
        self.up = true;
        self.forget_clock();
    }

    pub(crate) fn disconnected(&mut self) {
        self.up = false;
        self.forget_clock();
    }

    fn forget_clock(&mut self) {
        if !seeded!(NewConnectionNewClock) {
            self.clock.reset();
        }
        self.asking_clock = false;
    }

    pub(crate) fn answered(&mut self, now: Moment, round_trip: Duration) {
        self.well_at = now;
        self.outage_since = None;
        self.trouble = None;
        self.round_trip = if self.round_trip.is_zero() {
            round_trip
        } else {
            (7 * self.round_trip + round_trip) / 8
        };
    }

    /// Notes trouble, and gives the begin of the outage: nothing good was heard since, of what was
    /// sent by then.
    pub(crate) fn failed(&mut self, sent: Moment, words: &str) -> Moment {
        self.trouble = Some(words.to_owned());
        let since = sent.max(self.well_at);
        let since = self.outage_since.map_or(since, |known| known.min(since));
        self.outage_since = Some(since);
        since
    }
}

#[derive(Debug, Default)]
pub(crate) struct Servers {
    routes: Routes,
    known: BTreeMap<ServerId, Server>,
    last_epoch: u32,
    /// Who answered last for a slot, where it was not the server that has it: the one that it is on
    /// its way to.
    stand_ins: BTreeMap<u16, ServerId>,
}

impl Servers {
    /// Forgets clocks that were not read for long.
    pub(crate) fn grow_old(&mut self, now: Moment) {
        for server in self.known.values_mut() {
            server.clock.grow_old(now);
        }
    }

    /// The server that has the slot of a name.
    pub(crate) fn id_of(&self, lock: &LockName) -> ServerId {
        self.routes.server_of(lock.slot())
    }

    pub(crate) fn get(&self, id: ServerId) -> Option<&Server> {
        self.known.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ServerId) -> &mut Server {
        self.known.entry(id).or_default()
    }

    /// The server of a name.
    pub(crate) fn of(&self, lock: &LockName) -> Option<&Server> {
        self.get(self.id_of(lock))
    }

    pub(crate) fn is_up(&self, lock: &LockName) -> bool {
        self.of(lock).is_some_and(Server::is_up)
    }

    pub(crate) fn is_up_at(&self, id: ServerId) -> bool {
        self.get(id).is_some_and(Server::is_up)
    }

    pub(crate) fn is_usable(&self, lock: &LockName) -> bool {
        self.of(lock).is_some_and(Server::is_usable)
    }

    /// What time it is at a local instant where a name's commands are executed, if that is known.
    pub(crate) fn time_of(&self, lock: &LockName, at: Moment) -> Option<ServerTime> {
        let stand_in = self.stand_in_of(lock).and_then(|id| self.get(id)?.clock.at(at));
        stand_in.or_else(|| self.of(lock)?.clock.at(at))
    }

    /// Where a name's commands are executed, as far as is known.
    pub(crate) fn executor_of(&self, lock: &LockName) -> ServerId {
        self.stand_in_of(lock).unwrap_or_else(|| self.id_of(lock))
    }

    /// The server that answers for a name in place of the server that has it.
    fn stand_in_of(&self, lock: &LockName) -> Option<ServerId> {
        let id = *self.stand_ins.get(&lock.slot())?;
        self.get(id).is_some_and(Server::is_usable).then_some(id)
    }

    /// A command for a slot was answered by this server.
    pub(crate) fn answered_for(&mut self, slot: u16, by: ServerId) {
        if self.routes.server_of(slot) == by {
            self.stand_ins.remove(&slot);
        } else {
            self.stand_ins.insert(slot, by);
        }
    }

    pub(crate) fn round_trip(&self, lock: &LockName) -> Duration {
        self.of(lock).map_or(Duration::ZERO, |server| server.round_trip)
    }

    pub(crate) fn epoch(&self, id: ServerId) -> u32 {
        self.get(id).map_or(0, |server| server.epoch)
    }

    /// The epoch of the server that has a name now.
    pub(crate) fn epoch_of(&self, lock: &LockName) -> u32 {
        self.epoch(self.id_of(lock))
    }

    /// Its address for messages; empty before the first connection.
    pub(crate) fn address_of(&self, id: ServerId) -> String {
        let info = self.get(id).and_then(|server| server.info.as_ref());
        info.map(|info| info.address.clone()).unwrap_or_default()
    }

    pub(crate) fn last_trouble(&self, id: ServerId) -> String {
        self.get(id).map_or_else(|| "not connected".to_owned(), Server::last_trouble)
    }

    pub(crate) fn connected(&mut self, now: Moment, id: ServerId, info: ServerInfo) {
        self.last_epoch += 1;
        let epoch = self.last_epoch;
        self.get_mut(id).connected(now, info, epoch);
    }

    /// The addresses of the servers that have slots, for messages.
    pub(crate) fn links(&self) -> Vec<LinkState> {
        let served: BTreeSet<ServerId> = match &self.routes {
            Routes::One => BTreeSet::from([ServerId::ONLY]),
            Routes::Slots { servers, .. } => servers.iter().copied().collect(),
        };
        let link = |id: &ServerId| {
            let server = self.get(*id);
            LinkState {
                address: self.address_of(*id),
                is_connected: server.is_some_and(Server::is_up),
                since: server.and_then(Server::stands_since).unwrap_or(Moment::NEVER),
                reconnects: server.map_or(0, |server| server.reconnects),
                process: server.and_then(Server::process),
                trouble: server
                    .filter(|server| !server.up)
                    .and_then(|server| server.trouble.clone()),
            }
        };
        served.iter().map(link).collect()
    }

    /// Replaces the routes, and returns the former ones.
    pub(crate) fn reroute(&mut self, routes: Routes) -> Routes {
        self.stand_ins.retain(|slot, id| {
            let server = routes.server_of(*slot);
            server != *id && server == self.routes.server_of(*slot)
        });
        std::mem::replace(&mut self.routes, routes)
    }

    /// Forgets servers that have no slot and no connection.
    pub(crate) fn forget_unused(&mut self) {
        if let Routes::Slots { servers, .. } = &self.routes {
            self.known.retain(|id, server| server.up || servers.contains(id));
        }
    }

    pub(crate) fn has_unserved_slots(&self) -> bool {
        matches!(&self.routes, Routes::Slots { servers, .. } if servers.contains(&ServerId::ONLY))
    }

    /// Whether one server has all slots.
    pub(crate) fn is_one(&self) -> bool {
        matches!(self.routes, Routes::One)
    }

    /// The renewals of one script: in a cluster its keys must be of one slot.
    pub(crate) fn script_group(&self, lock: &LockName) -> u16 {
        match self.routes {
            Routes::One => 0,
            Routes::Slots { .. } => lock.slot(),
        }
    }

    pub(crate) fn is_sharded(&self, sharding: Sharding) -> bool {
        match (sharding, &self.routes) {
            (Sharding::On, _) => true,
            (Sharding::Auto, Routes::Slots { sharded, .. }) => *sharded,
            (Sharding::Auto, Routes::One) | (Sharding::Off, _) => false,
        }
    }

    pub(crate) fn up(&self) -> Vec<ServerId> {
        self.known.iter().filter(|(_, server)| server.up).map(|(id, _)| *id).collect()
    }

    /// A server for commands that any server can answer.
    pub(crate) fn any(&self) -> ServerId {
        self.known.iter().find(|(_, server)| server.up).map_or(ServerId::ONLY, |(id, _)| *id)
    }

    /// Everything that has slots can be used, or has been tried in vain; and one at least can.
    pub(crate) fn are_ready(&self) -> bool {
        let usable = |id: &ServerId| {
            self.get(*id).is_some_and(|server| server.up && server.clock.was_known())
        };
        match &self.routes {
            Routes::One => usable(&ServerId::ONLY),
            Routes::Slots { servers, .. } => {
                let tried = |id: &ServerId| {
                    usable(id) || self.get(*id).is_some_and(|server| server.outage_since.is_some())
                };
                servers.iter().any(usable) && servers.iter().all(tried)
            }
        }
    }
}
