//! Faults from outside: what befalls servers, clients, data and clocks.

use std::time::Duration;

use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::memory::store::Dumped;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::base::name::slot_of;
use crate::sim::chance::Stream;
use crate::sim::client::Inbound;
use crate::sim::client::LoginTrouble;
use crate::sim::kinds::Found;
use crate::sim::kinds::Place;
use crate::sim::kinds::rules_of;
use crate::sim::plan::Nemesis;
use crate::sim::server::NO_LOGIN;
use crate::sim::server::NO_PERMISSION;
use crate::sim::world::Happening;
use crate::sim::world::Phase;
use crate::sim::world::World;

/// The longest pause before a refused connection is tried again.
const RETRY: Duration = Duration::from_millis(300);

/// The owner of keys that nobody here made.
const STRANGER: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff:1";

impl World {
    pub(super) fn nemesis(&mut self) {
        if self.phase != Phase::Working {
            return;
        }
        let (number, happens) = self.next_strike();
        let every = u64::try_from(self.plan.nemesis_every.as_micros()).unwrap_or(1_000_000);
        let next = self.by_stream(Stream::Nemesis, [number, 0, 0], |world| {
            let nemesis = *world.chance.pick(&world.plan.nemeses);
            let client = world.chance.index(world.clients.len());
            let next = world.chance.time(every / 4, every * 2);
            if happens {
                world.strike(nemesis, client);
            }
            next
        });
        self.dirty = true;
        self.after(next, Happening::Nemesis);
    }

    /// A process that serves slots.
    fn pick_process(&mut self) -> usize {
        *self.chance.pick(self.places.owners())
    }

    fn strike(&mut self, nemesis: Nemesis, client: usize) {
        let lease = self.plan.lease_us();
        let process = self.pick_process();
        let server = self.places.server_id(process);
        self.say(|| format!("nemesis: {nemesis:?}, client {client} or s{process}"));
        match nemesis {
            Nemesis::CutCommands => self.cut(client, server, false),
            Nemesis::CutPubSub => self.cut_listening(client, process, false),
            Nemesis::CutBoth => self.reconnect(client, server),
            Nemesis::Lag => {
                self.disturb(client, None);
                self.clients[client].lagging = true;
                let wait = self.chance.time(1_000, 300_000);
                self.after(wait, Happening::LagEnds(client));
            }
            Nemesis::Pause => {
                let until = self.now.plus(self.chance.time(1_000, lease));
                self.processes[process].paused_until = until;
                self.disturb_users(process, until);
            }
            Nemesis::Unreachable => {
                self.processes[process].unreachable_until =
                    self.now.plus(self.chance.time(10_000, 2 * lease));
                self.cut_all(process);
            }
            Nemesis::OutOfMemory => {
                self.processes[process].set_out_of_memory(true);
                let wait = self.chance.time(10_000, lease);
                self.after(wait, Happening::MemoryIsBack(process));
                self.disturb_users(process, self.now.plus(wait));
            }
            Nemesis::Trouble => {
                let until = self.now.plus(self.chance.time(1_000, lease));
                self.processes[process].trouble = Some((until, self.pick_refusal()));
                self.disturb_users(process, until);
            }
            Nemesis::ScriptFlush => self.processes[process].loaded.clear(),
            Nemesis::Freeze => self.freeze(client),
            Nemesis::Login => self.refuse_logins(client, process),
            Nemesis::Crash => self.crash(client),
            Nemesis::MoveSlot => self.begin_move(),
            Nemesis::Restart => self.restart(process, true),
            Nemesis::DataLoss => self.restart(process, false),
            Nemesis::Failover => self.fail_over(process),
            Nemesis::Flush => self.flush(process),
            Nemesis::Delete => self.delete(),
            Nemesis::Plant => self.plant(),
            Nemesis::ClockStep => self.step_clock(process),
        }
    }

    // ---- servers

    fn restart(&mut self, process: usize, with_data: bool) {
        let now = self.now;
        if !with_data {
            self.checker.latches.is_lost = true;
            self.breach_all_at(process, "its server lost its data");
            self.lose_fences(process);
        }
        self.runs += 1;
        let run = self.runs;
        self.processes[process].restart(run, with_data);
        self.processes[process].unreachable_until = now.plus(self.chance.time(1_000, 2_000_000));
        self.cut_all(process);
    }

    /// A replica takes the place of a process, which has died, or stands still, or does not know
    /// yet.
    fn fail_over(&mut self, old: usize) {
        let in_move = self
            .places
            .moving
            .as_ref()
            .is_some_and(|moving| moving.from == old || moving.to == old);
        if in_move || self.processes.len() > 12 {
            return;
        }
        let now = self.now;
        self.runs += 1;
        let (lost, run) = (self.chance.index(5), self.runs);
        let clock = if self.plan.has(Nemesis::ClockStep) && self.chance.permille(300) {
            let most = 4 * self.plan.lease_us();
            self.checker.jumped = true;
            self.chance.range(0, 2 * most) as i64 - most as i64
        } else {
            self.chance.range(0, 20_000) as i64 - 10_000
        };
        let mut replica = self.processes[old].promote(lost, clock, run);
        self.checker.latches.is_lost = true;
        // What it may still have of slots that have moved away is nobody's; Redis deletes it.
        let time = replica.time(now);
        for Dumped { key, .. } in replica.keys.dump(time) {
            let slot = slot_of(&key);
            let of_name = |name: &LockName| name.slot() == slot;
            if self.names.iter().any(of_name) && self.places.owner(slot) != old {
                replica.keys.remove(time, &key);
            }
        }
        let gap = self.chance.time(1_000, 1_000_000);
        replica.unreachable_until = now.plus(gap);
        let new = self.processes.len();
        self.processes.push(replica);
        self.checker.clock_went_back |= clock < 0;
        self.checker.skew(clock);
        self.declare_lost_writes(old, new);
        self.places.replace(old, new);
        self.say(|| {
            format!("s{new} takes the place of s{old}, without its last {lost} writes, clock {clock} us off")
        });
        if self.chance.permille(500) {
            self.processes[old].alive = false;
            self.cut_all(old);
        } else {
            // Both serve for a while, and by different clocks.
            self.checker.clock_went_back |= clock != 0;
            let knows = gap + self.chance.time(1_000, 1_500_000);
            if self.chance.permille(500) {
                self.processes[old].paused_until = now.plus(knows);
            }
            let knows = now.plus(knows + Duration::from_millis(2));
            self.processes[old].deposed = Some((now, knows));
            self.disturb_users(old, knows);
        }
        self.spread_news(gap + Duration::from_millis(300));
        self.disturb_all();
    }

    /// What the replica does not have, or has for a shorter time.
    fn declare_lost_writes(&mut self, old: usize, new: usize) {
        let now = self.now;
        let names: Vec<LockName> = self
            .names
            .iter()
            .filter(|name| self.places.owner(name.slot()) == old)
            .cloned()
            .collect();
        for name in names {
            let had = self.processes[old].lock(now, &name);
            let has = self.processes[new].lock(now, &name);
            let is_kept = |was: &Place| {
                let is = has.as_ref().and_then(|has| has.hold(&was.field));
                is.is_some_and(|is| is.left >= was.left && !is.is_reservation())
            };
            let holds = had.iter().flat_map(|had| &had.holds).filter(|was| !was.is_reservation());
            for was in holds.filter(|was| !is_kept(was)) {
                self.checker.breach(
                    now,
                    &was.field,
                    "its server's replica did not have its last write",
                );
            }
            let was_there =
                |is: &Place| had.as_ref().is_some_and(|had| had.hold(&is.field).is_some());
            let holds = has.iter().flat_map(|has| &has.holds).filter(|is| !is.is_reservation());
            for is in holds.filter(|is| !was_there(is)) {
                self.checker.revive(&is.field);
            }
            self.checker.silence(now, &name);
            self.checker.restore_line(&name);
            if self.processes[new].fence(now, &name) < self.processes[old].fence(now, &name) {
                self.checker.fence_was_lost = true;
            }
        }
    }

    fn lose_fences(&mut self, process: usize) {
        // While a slot moves, its fences are there before the server owns it.
        if self.names.iter().any(|name| self.processes[process].fence(self.now, name) > 0) {
            self.checker.fence_was_lost = true;
        }
    }

    fn step_clock(&mut self, process: usize) {
        self.checker.latches.is_lost = true;
        let lease = self.plan.lease_us();
        let size = i64::try_from(self.chance.range(150_000, 4 * lease + 200_000)).unwrap_or(0);
        let jump = if self.chance.permille(500) { size } else { -size };
        self.say(|| format!("the clock of s{process} jumps by {jump} us"));
        self.breach_all_at(process, "its server's clock was set");
        self.checker.jumped = true;
        self.checker.clock_went_back |= jump < 0;
        let before = self.locks_at(process);
        self.processes[process].offset_us += jump;
        for lock in self.locks_at(process) {
            let had = before.iter().find(|had| had.name == lock.name);
            let is_back = |place: &&Place| had.is_none_or(|had| had.hold(&place.field).is_none());
            let back = lock.holds.iter().filter(is_back);
            back.for_each(|place| self.checker.note_revived(&place.field));
        }
        self.disturb_users(process, self.now);
    }

    // ---- data

    fn breach_all_at(&mut self, process: usize, why: &'static str) {
        for lock in self.locks_at(process) {
            self.breach_all_of(&lock, why);
        }
        let names: Vec<LockName> =
            self.names.iter().filter(|name| self.authority(name) == process).cloned().collect();
        for name in names {
            self.checker.silence(self.now, &name);
        }
    }

    pub(super) fn breach_all_of(&mut self, lock: &Found, why: &'static str) {
        // A reservation is nobody's hold.
        for hold in lock.holds.iter().filter(|hold| !hold.is_reservation()) {
            self.checker.breach(self.now, &hold.field, why);
        }
    }

    fn flush(&mut self, process: usize) {
        self.checker.latches.is_lost = true;
        self.breach_all_at(process, "FLUSHALL");
        self.lose_fences(process);
        self.processes[process].keys.flush();
    }

    fn delete(&mut self) {
        let name = self.chance.pick(&self.names).clone();
        let fence = self.chance.permille(250);
        let line = self.chance.permille(250);
        let process = self.authority(&name);
        let time = self.processes[process].time(self.now);
        if line {
            self.say(|| format!("the line of {name} is deleted"));
            for process in &mut self.processes {
                process.keys.remove(process.time(self.now), &name.line_key());
            }
            return;
        }
        if fence {
            self.checker.fence_was_lost = true;
            self.processes[process].keys.remove(time, &name.fence_key());
            return;
        }
        if let Some(lock) = self.processes[process].lock(self.now, &name) {
            self.breach_all_of(&lock, "DEL");
        }
        self.checker.silence(self.now, &name);
        self.remove_all_of(&name, process);
    }

    fn remove_all_of(&mut self, name: &LockName, process: usize) {
        let time = self.processes[process].time(self.now);
        for key in rules_of(name).keys(name) {
            self.processes[process].keys.remove(time, &key);
        }
    }

    fn plant(&mut self) {
        let name = self.chance.pick(&self.names).clone();
        let process = self.authority(&name);
        let time = self.processes[process].time(self.now);
        if let Some(lock) = self.processes[process].lock(self.now, &name) {
            self.breach_all_of(&lock, "a stranger's value");
        }
        let ttl = i64::try_from(self.chance.range(20, 1_500)).unwrap_or(100);
        let value = rules_of(&name).foreign_hold(STRANGER, time, ttl);
        self.remove_all_of(&name, process);
        self.processes[process].keys.plant(time, &rules_of(&name).keys(&name)[0], value, Some(ttl));
        self.checker.silence(self.now, &name);
    }

    // ---- clients

    fn freeze(&mut self, client: usize) {
        if !self.clients[client].frozen {
            self.clients[client].frozen = true;
            self.disturb(client, None);
            let wait = self.chance.time(10_000, 2 * self.plan.lease_us());
            self.after(wait, Happening::Thaw(client));
        }
    }

    pub(super) fn thaw(&mut self, client: usize) -> Result<(), String> {
        if !self.clients[client].frozen {
            return Ok(());
        }
        self.say(|| format!("client {client} goes on"));
        self.clients[client].frozen = false;
        self.clients[client].thawed = self.now;
        self.disturb(client, None);
        let mut backlog = std::mem::take(&mut self.clients[client].backlog);
        if self.chance.permille(300) {
            // The timers may be looked at before the sockets.
            backlog.sort_by_key(|inbound| {
                !matches!(inbound, Inbound::Outcome(_, _, Outcome::Unknown(_)))
            });
        }
        self.clients[client].tick_at = None;
        for inbound in backlog {
            self.send_to_client(Duration::ZERO, client, inbound);
        }
        self.set_tick(client);
        Ok(())
    }

    /// The login of a client is refused for a while, at one process or everywhere: its password has
    /// changed, its user is gone, its connections have to log in anew, or its permissions were
    /// taken away.
    fn refuse_logins(&mut self, client: usize, process: usize) {
        let wait = self.chance.time(5_000, 3 * self.plan.lease_us());
        let at = self.chance.permille(500).then_some(process);
        let (connecting, to_calls, cuts) = match self.chance.below(4) {
            0 => (true, None, false),
            1 => (true, None, true),
            2 => (true, Some(NO_LOGIN), false),
            _ => (false, Some(NO_PERMISSION), false),
        };
        self.say(|| {
            format!(
                "the login of {client} is refused for {wait:?}: {to_calls:?}, {connecting}, {cuts}"
            )
        });
        let until = self.now.plus(wait);
        self.clients[client].login_trouble = Some(LoginTrouble { until, at, connecting, to_calls });
        self.disturb_for(client, wait + RETRY);
        if cuts {
            let servers: Vec<ServerId> = self.clients[client].links.keys().copied().collect();
            servers.into_iter().for_each(|server| self.reconnect(client, server));
        }
    }

    fn crash(&mut self, client: usize) {
        let alive = self.clients.iter().filter(|client| client.serves()).count();
        if self.clients[client].dead || alive < 2 {
            return;
        }
        self.clients[client].dead = true;
        self.leave(client);
        self.checker.on_crashed(self.now, client);
    }

    // ---- the end of all that

    /// From here on nothing goes wrong any more.
    pub(super) fn calm_down(&mut self) -> Result<(), String> {
        self.phase = Phase::Draining;
        self.say(|| "no more faults".to_owned());
        for process in &mut self.processes {
            process.set_out_of_memory(false);
            process.unreachable_until = Moment::ZERO;
            process.trouble = None;
        }
        for client in 0..self.clients.len() {
            self.clients[client].login_trouble = None;
            self.thaw(client)?;
            self.learn(client);
        }
        if self.plan.deaf_end {
            self.deafen_everybody();
        }
        self.disturb_all();
        Ok(())
    }

    /// The last fault: nobody hears the releases that the waits still open depend on, and nobody
    /// comes later whose own release would be heard.
    fn deafen_everybody(&mut self) {
        let (number, happens) = self.next_strike();
        if happens {
            self.by_stream(Stream::Nemesis, [number, 0, 0], |world| {
                (0..world.clients.len()).for_each(|client| world.deafen(client));
            });
        }
    }
}
