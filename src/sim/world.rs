//! Virtual time, and what reaches the clients in its course.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;

use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::Value;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::engine::event::Effect;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::sim::chance::Chance;
use crate::sim::chance::Stream;
use crate::sim::checker::BACK_OFF;
use crate::sim::checker::Checker;
use crate::sim::client::Client;
use crate::sim::client::Flight;
use crate::sim::client::Inbound;
use crate::sim::client::Mail;
use crate::sim::client::Request;
use crate::sim::client::Slot;
use crate::sim::client::Subscribing;
use crate::sim::kinds::Found;
use crate::sim::places;
use crate::sim::places::Places;
use crate::sim::plan::Mask;
use crate::sim::plan::Nemesis;
use crate::sim::plan::Plan;
use crate::sim::plan::START;
use crate::sim::plan::Seed;
use crate::sim::server::Process;
use crate::sim::trace::Trace;

/// How long nothing but time may pass between two looks at everything.
const LOOK: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) enum Happening {
    /// Something reaches a client.
    To(usize, Inbound),
    /// A command reaches its server.
    Arrive(Rc<Request>),
    /// A reply reaches a client's backend.
    Reply(Rc<Request>, Outcome<Value>),
    /// The same of MOVED, or ASK.
    Redirected {
        request: Rc<Request>,
        process: usize,
        ask: bool,
    },
    Timeout(usize, OpId),
    Subscribe(Subscribing),
    Connect(usize, ServerId),
    /// The same for messages.
    Listen(usize, usize),
    /// A client hears who has the slots now.
    Learn(usize),
    LagEnds(usize),
    Thaw(usize),
    MemoryIsBack(usize),
    MoveKey(String),
    MoveEnd,
    Nemesis,
}

/// What the run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Working,
    /// No faults, nothing new is begun.
    Draining,
    /// Nothing is held or waited for.
    Quiet,
    Closing,
}

pub(super) struct World {
    seed: u64,
    pub(super) now: Moment,
    sequence: u64,
    queue: BTreeMap<(Moment, u64), Happening>,
    pub(super) chance: Chance,
    faults: Chance,
    pub(super) plan: Plan,
    /// What is left out.
    pub(super) mask: Mask,
    /// What was not.
    pub(super) done: Mask,
    hits: u64,
    strikes: u64,
    pub(super) processes: Vec<Process>,
    pub(super) places: Places,
    /// (process, sharded, channel) → clients
    pub(super) subscribers: BTreeMap<(usize, bool, String), BTreeSet<usize>>,
    pub(super) clients: Vec<Client>,
    pub(super) names: Vec<LockName>,
    pub(super) checker: Checker,
    pub(super) trace: Trace,
    pub(super) phase: Phase,
    pub(super) events: u64,
    pub(super) connections: u64,
    /// Calls that were sent on to another node, answers of TRYAGAIN, and refusals of a login.
    pub(super) redirections: u64,
    pub(super) try_agains: u64,
    pub(super) refused_logins: u64,
    pub(super) runs: u64,
    /// Something has changed since everything was looked at.
    pub(super) dirty: bool,
    looked: Moment,
}

impl World {
    pub(super) fn new(seed: Seed, mask: &Mask, trace: Trace) -> Self {
        let mut chance = Chance::new(seed.number, Stream::Plan, [0; 3]);
        let own = |stream| Chance::new(seed.number, stream, [0; 3]);
        let plan = Plan::draw(&mut chance);
        let plan = plan.patient(&mut own(Stream::Patience)).keeping(&mut own(Stream::Keeping));
        // Seeds that found something before there was a latch do without.
        let latches = seed.with_access_faults;
        let plan = if latches { plan.latching(&mut own(Stream::Latch)) } else { plan };
        let plan = plan.of_kinds(&mut own(Stream::Kind), seed.kind);
        let plan = plan.with_profile(&mut own(Stream::Profile));
        let plan = match seed.with_access_faults {
            true if seed.kind.is_none_or(|kind| kind.has_line(WireProfile::Native)) => {
                plan.waiting(&mut own(Stream::Line)).with_access_faults(&mut own(Stream::Access))
            }
            true => plan.with_access_faults(&mut own(Stream::Access)),
            false => plan,
        };
        let mut world = Self::with(plan, chance, seed.number, mask, trace);
        world.processes.iter_mut().for_each(|process| process.instead = seed.instead);
        world
    }

    /// Many who want the same lock.
    pub(super) fn crowd(seed: u64) -> Self {
        Self::crowd_of(seed, |drawn| drawn)
    }

    /// A crowd in a cluster in which PUBLISH does not count all of it.
    pub(super) fn plain_crowd(
        seed: u64,
        profile: WireProfile,
        clients: usize,
        tasks: usize,
        hand_off: bool,
    ) -> Self {
        Self::crowd_of(seed, |drawn| {
            let cluster =
                Plan { primaries: Some(3), sharded: false, latency: 200, late: None, ..drawn };
            let (hold, horizon) = (Duration::ZERO, Plan::crowded_for(Duration::ZERO));
            Plan { profile, clients, tasks, hand_off, think: 50, hold, horizon, ..cluster }
        })
    }

    /// Clients of two tasks at one server, each so far away from it, beside some who want nothing.
    pub(super) fn spread_crowd(
        seed: u64,
        distances: &[u64],
        idle_listeners: usize,
        hold: Duration,
    ) -> Self {
        let mut world = Self::crowd_of(seed, |drawn| {
            let one = Plan {
                primaries: None,
                sharded: false,
                latency: 200,
                late: None,
                hurried: false,
                ..drawn
            };
            let horizon = 2 * Plan::crowded_for(hold);
            let distances: Vec<Duration> =
                distances.iter().copied().map(Duration::from_micros).collect();
            let clients = distances.len();
            let crowd = Plan { clients, tasks: 2, hand_off: true, think: 50, hold, ..one };
            Plan { horizon, distances, idle_listeners, ..crowd }
        });
        let channel = world.names[0].channel(WireProfile::Native);
        let listeners = i64::try_from(idle_listeners).unwrap_or(i64::MAX);
        world.processes[0].keys.set_subscribers(&channel, false, listeners);
        world
    }

    fn crowd_of(seed: u64, change: impl FnOnce(Plan) -> Plan) -> Self {
        let mut chance = Chance::new(seed, Stream::Plan, [1, 0, 0]);
        let plan = change(Plan::draw_crowd(&mut chance));
        Self::with(plan, chance, seed, &Mask::default(), Trace::off())
    }

    fn with(plan: Plan, mut chance: Chance, seed: u64, mask: &Mask, trace: Trace) -> Self {
        let names = places::names(&plan.kinds);
        let replicated = plan.has(Nemesis::Failover);
        let number = plan.primaries.unwrap_or(1);
        let mut either_way = |most: u64| chance.range(0, 2 * most) as i64 - most as i64;
        let all = either_way(plan.offset_us);
        let processes = (0..number).map(|at| {
            let (offset, drift) = (all + either_way(plan.apart_us), either_way(plan.drift));
            Process::new(offset, drift, at as u64 + 1, replicated)
        });
        let processes: Vec<Process> = processes.collect();
        let clients: Vec<Client> =
            (0..plan.clients).map(|index| Client::new(seed, index, &plan)).collect();
        let ids: Vec<String> = clients.iter().map(|client| client.id.clone()).collect();
        let checker = Checker::new(&plan, ids.clone(), &names);
        let mut world = Self {
            seed,
            now: START,
            sequence: 0,
            queue: BTreeMap::new(),
            chance: Chance::new(seed, Stream::Network, [0; 3]),
            faults: Chance::new(seed, Stream::Fault, [0; 3]),
            mask: mask.clone(),
            done: Mask::default(),
            hits: 0,
            strikes: 0,
            runs: number as u64,
            processes,
            places: Places::new(plan.primaries, plan.sharded, &names),
            subscribers: BTreeMap::new(),
            clients,
            names,
            checker,
            trace: trace.with_ids(ids),
            phase: Phase::Working,
            events: 0,
            connections: 0,
            redirections: 0,
            try_agains: 0,
            refused_logins: 0,
            dirty: true,
            looked: Moment::ZERO,
            plan,
        };
        let plan = format!("{:?}", world.plan);
        world.say(|| plan);
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        let owners = self.places.owners().to_vec();
        for client in 0..self.clients.len() {
            if self.mask.clients.contains(&client) {
                self.clients[client].dead = true;
                continue;
            }
            self.done.clients.insert(client);
            if self.places.cluster {
                self.send_to_client(
                    Duration::ZERO,
                    client,
                    Inbound::Backend(None, Event::PubSubUp),
                );
                self.adopt(client, owners.clone());
            } else {
                self.meet(client, 0);
            }
            for task in 0..self.plan.tasks {
                let wait = self.chance.time(1, 100_000);
                self.send_to_client(wait, client, Inbound::Step(task));
            }
        }
        if !self.plan.nemeses.is_empty() {
            let wait = self.plan.nemesis_every;
            self.after(wait, Happening::Nemesis);
        }
    }

    // ---- chance

    pub(super) fn stream(&self, stream: Stream, which: [u64; 3]) -> Chance {
        Chance::new(self.seed, stream, which)
    }

    /// Does something by chances of its own.
    pub(super) fn by_stream<T>(
        &mut self,
        stream: Stream,
        which: [u64; 3],
        act: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let own = self.stream(stream, which);
        let others = std::mem::replace(&mut self.chance, own);
        let done = act(self);
        self.chance = others;
        done
    }

    /// Whether a fault happens, in so many of a thousand cases, while there is work.
    pub(super) fn fault(&mut self, permille: u64) -> bool {
        if self.phase != Phase::Working || permille == 0 || !self.faults.permille(permille) {
            return false;
        }
        self.hits += 1;
        if self.mask.faults.contains(&self.hits) {
            return false;
        }
        self.done.faults.insert(self.hits);
        true
    }

    /// The number of the next strike from outside, unless it is left out.
    pub(super) fn next_strike(&mut self) -> (u64, bool) {
        self.strikes += 1;
        let happens = !self.mask.nemeses.contains(&self.strikes);
        if happens {
            self.done.nemeses.insert(self.strikes);
        }
        (self.strikes, happens)
    }

    // ---- time

    pub(super) fn after(&mut self, wait: Duration, happening: Happening) {
        self.at(self.now.plus(wait), happening);
    }

    pub(super) fn at(&mut self, at: Moment, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), happening);
    }

    pub(super) fn send_to_client(&mut self, wait: Duration, client: usize, inbound: Inbound) {
        self.after(wait, Happening::To(client, inbound));
    }

    /// Mail keeps its order.
    pub(super) fn mail(&mut self, client: usize, mail: Mail) {
        let at = self.now.plus(self.chance.time(1, 60)).max(self.clients[client].last_mail);
        self.clients[client].last_mail = at;
        self.at(at, Happening::To(client, Inbound::Mail(mail)));
    }

    pub(super) fn say(&mut self, line: impl FnOnce() -> String) {
        self.trace.say(self.now, line);
    }

    /// Lets everything happen up to an instant.
    pub(super) fn run_until(&mut self, end: Moment) -> Result<(), String> {
        while let Some((&(at, _), _)) = self.queue.first_key_value() {
            if at > end {
                break;
            }
            let Some((_, happening)) = self.queue.pop_first() else { break };
            self.now = self.now.max(at);
            self.events += 1;
            self.happen(happening)?;
            if self.dirty || self.now.since(self.looked) >= LOOK {
                self.look()?;
            }
        }
        self.now = self.now.max(end);
        self.look()
    }

    fn look(&mut self) -> Result<(), String> {
        self.dirty = false;
        self.looked = self.now;
        let views = self.views();
        let locks: Vec<Found> = views.iter().filter_map(|view| view.lock.clone()).collect();
        self.checker.look(self.now, &locks, &self.clients)?;
        self.checker.look_at_lines(self.now, &views, &self.clients)
    }

    /// The locks that exist, for whoever's word counts.
    pub(super) fn locks(&self) -> Vec<Found> {
        let lock = |name: &LockName| self.processes[self.authority(name)].lock(self.now, name);
        self.names.iter().filter_map(lock).collect()
    }

    pub(super) fn locks_at(&self, process: usize) -> Vec<Found> {
        self.names.iter().filter_map(|name| self.processes[process].lock(self.now, name)).collect()
    }

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::To(client, inbound) => return self.reach(client, inbound),
            Happening::Arrive(request) => return self.arrive(request),
            Happening::Reply(request, outcome) => self.reply(&request, outcome),
            Happening::Redirected { request, process, ask } => self.follow(&request, process, ask),
            Happening::Timeout(client, op) => self.time_out(client, op),
            Happening::Subscribe(subscribing) => self.on_subscribe(subscribing),
            Happening::Connect(client, server) => self.connect(client, server),
            Happening::Listen(client, process) => self.listen(client, process),
            Happening::Learn(client) => self.learn(client),
            Happening::LagEnds(client) => {
                self.clients[client].lagging = false;
                // A server keeps so much for a client that does not read, and then hangs up.
                self.deafen(client);
                self.disturb(client, None);
            }
            Happening::Thaw(client) => return self.thaw(client),
            Happening::MemoryIsBack(process) => {
                self.processes[process].set_out_of_memory(false);
                self.disturb_all();
            }
            Happening::MoveKey(key) => self.move_key(&key),
            Happening::MoveEnd => self.end_move(),
            Happening::Nemesis => self.nemesis(),
        }
        Ok(())
    }

    // ---- disturbances: what has to be done soon is looked at only after the last one

    /// Something went wrong between a client and one server, or all of them.
    pub(super) fn disturb(&mut self, client: usize, server: Option<ServerId>) {
        let now = self.now;
        let to = &mut self.clients[client];
        match server.and_then(|server| to.links.get_mut(&server)) {
            Some(link) => link.undisturbed = link.undisturbed.max(now),
            None => to.undisturbed = to.undisturbed.max(now),
        }
    }

    /// It will take so long.
    pub(super) fn disturb_for(&mut self, client: usize, wait: Duration) {
        let until = self.now.plus(wait);
        let to = &mut self.clients[client];
        to.undisturbed = to.undisturbed.max(until);
    }

    pub(super) fn disturb_all(&mut self) {
        for client in 0..self.clients.len() {
            self.disturb(client, None);
        }
    }

    /// Everybody who talks to a process, until then.
    pub(super) fn disturb_users(&mut self, process: usize, until: Moment) {
        let server = self.places.server_id(process);
        for client in &mut self.clients {
            if let Some(link) = client.links.get_mut(&server).filter(|link| link.process == process)
            {
                link.undisturbed = link.undisturbed.max(until);
            }
            // What is published anywhere comes through the one that a channel is subscribed at.
            if client.subscriptions.values().any(|subscription| subscription.at == Some(process)) {
                client.undisturbed = client.undisturbed.max(until);
            }
        }
    }

    // ---- what reaches a client

    fn reach(&mut self, client: usize, inbound: Inbound) -> Result<(), String> {
        let to = &mut self.clients[client];
        if to.dead {
            return Ok(());
        }
        if to.frozen {
            if !matches!(inbound, Inbound::Tick(_)) {
                to.backlog.push(inbound);
            }
            return Ok(());
        }
        match inbound {
            Inbound::Mail(mail) => self.on_mail(client, mail),
            Inbound::Outcome(op, server, outcome) => {
                let Some(Flight { request }) = self.clients[client].flights.remove(&op) else {
                    return Ok(());
                };
                let outcome = outcome.and_then(|value| request.command.read(value));
                if !matches!(outcome, Outcome::Done(_)) {
                    self.disturb(client, Some(server));
                    if self.plan.calm {
                        // A wait or a `max_hold` shorter than the way: the name is left alone for a
                        // while.
                        self.disturb_for(client, BACK_OFF);
                    }
                }
                self.handle(client, Event::Replied { op, server, outcome })
            }
            Inbound::Backend(gate, event) => {
                let lives = gate.is_none_or(|(process, epoch)| {
                    to.listens.get(&process).is_some_and(|listening| listening.epoch == epoch)
                });
                if lives { self.handle(client, event) } else { Ok(()) }
            }
            Inbound::Wake(task, request) => self.on_wake(client, task, request),
            Inbound::Cancel(task, request) => self.on_cancel(client, task, request),
            Inbound::PickedUp(request) => {
                if self.clients[client].finished || !self.clients[client].sees_picked_up(request) {
                    return Ok(());
                }
                self.handle(client, Event::PickedUp { request })
            }
            Inbound::Step(task) => self.step(client, task),
            Inbound::Tick(number) => {
                if self.clients[client].tick != number {
                    return Ok(());
                }
                self.clients[client].tick_at = None;
                self.handle(client, Event::Tick)
            }
        }
    }

    fn on_mail(&mut self, client: usize, mail: Mail) -> Result<(), String> {
        let now = self.now;
        let to = &mut self.clients[client];
        if to.finished {
            return Ok(());
        }
        match mail {
            Mail::Acquire(acquire) => {
                self.checker.on_wish(now, client, &acquire, to);
                to.open(acquire.request, now);
                self.handle(client, Event::Acquire(acquire))
            }
            Mail::Cancel(request) => {
                let open =
                    to.asks.get_mut(&request).is_some_and(|ask| std::mem::take(&mut ask.open));
                if !open {
                    return Ok(());
                }
                to.cancelling = Some(request);
                let result = self.handle(client, Event::Cancel { request });
                self.clients[client].cancelling = None;
                result
            }
            Mail::Ask(request, event) => {
                to.open(request, now);
                self.handle(client, event)
            }
            Mail::Release { hold, level, request } => {
                if let Some(ask) = to.asks.get_mut(&level) {
                    ask.open = false;
                }
                if let Some(request) = request {
                    to.open(request, now);
                }
                self.handle(client, Event::Release { hold, level, request })
            }
            Mail::Leave { hold, level } => {
                if let Some(ask) = to.asks.get_mut(&level) {
                    ask.open = false;
                }
                self.handle(client, Event::Leave { hold, level })
            }
            Mail::Shutdown(event) => {
                if let Event::Shutdown { until, request } = &event {
                    to.shutdown = Some(*until);
                    if let Some(ask) = request.and_then(|request| to.asks.get_mut(&request)) {
                        ask.open = true;
                    }
                }
                self.handle(client, event)
            }
        }
    }

    /// As the driver does it.
    fn handle(&mut self, client: usize, event: Event) -> Result<(), String> {
        if self.clients[client].finished {
            return Ok(());
        }
        self.dirty = true;
        let tick = matches!(event, Event::Tick);
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.trace.event(self.now, client, &event);
            self.checker.before(self.now, client, &event);
            let mut effects = Vec::new();
            self.clients[client].engine.handle(self.now, event, &mut effects);
            self.trace.effects(self.now, client, &effects);
            events.extend(self.perform(client, effects)?);
        }
        self.checker.after(self.now, &self.clients[client], client)?;
        self.clients[client].tidy();
        self.watch_ticks(client, tick)?;
        self.set_tick(client);
        Ok(())
    }

    /// A tick that leaves something due at once would turn the driver into a busy loop.
    fn watch_ticks(&mut self, client: usize, tick: bool) -> Result<(), String> {
        let now = self.now;
        let to = &mut self.clients[client];
        let due = to.engine.next_timeout().is_some_and(|at| at <= now);
        if to.ticks_at.0 != now {
            to.ticks_at = (now, 0);
        }
        if tick && due {
            to.ticks_at.1 += 1;
            if to.ticks_at.1 > 3 {
                return Err(format!(
                    "driver: client {client} ticks again and again without getting on"
                ));
            }
        }
        if to.shutdown.is_some_and(|until| now >= until) && tick && !to.finished && !due {
            return Err(format!("P11: client {client} did not finish at the end of its shutdown"));
        }
        Ok(())
    }

    pub(super) fn set_tick(&mut self, client: usize) {
        let at = self.clients[client].engine.next_timeout();
        if at == self.clients[client].tick_at && at.is_some() {
            return;
        }
        self.clients[client].tick += 1;
        self.clients[client].tick_at = at;
        if let Some(at) = at {
            let number = self.clients[client].tick;
            let late =
                if self.chance.permille(50) { self.chance.time(1, 2_000) } else { Duration::ZERO };
            self.at(at.max(self.now).plus(late), Happening::To(client, Inbound::Tick(number)));
        }
    }

    fn perform(&mut self, client: usize, effects: Vec<Effect>) -> Result<Vec<Event>, String> {
        let mut back = Vec::new();
        for effect in effects {
            if self.clients[client].finished {
                return Err(format!(
                    "driver: client {client}: an effect after Finished: {effect:?}"
                ));
            }
            match effect {
                Effect::Send { op, to, command, timeout } => {
                    self.submit(client, op, to, command, timeout)?
                }
                Effect::Subscribe { channel, sharded, generation } => {
                    self.subscribe(client, channel, sharded, generation);
                }
                Effect::Unsubscribe { channel, .. } => self.unsubscribe(client, channel),
                Effect::Reconnect(server) => self.reconnect(client, server),
                Effect::Answer { request, answer } => {
                    self.checker.on_answer(
                        self.now,
                        client,
                        request,
                        &answer,
                        &self.clients[client],
                    )?;
                    back.extend(self.clients[client].answer(request, answer)?);
                    self.wake_task(client, request);
                }
                Effect::Withdraw { request } => {
                    let event = self.clients[client].withdraw(request);
                    let slot = self.clients[client].asks.get(&request).map(|ask| &ask.slot);
                    if matches!(slot, Some(Slot::Withdrawn)) {
                        self.wake_task(client, request);
                    }
                    back.push(event);
                }
                Effect::Report(_) => {}
                Effect::Finished => self.finish(client),
            }
        }
        Ok(back)
    }

    fn finish(&mut self, client: usize) {
        self.clients[client].finished = true;
        self.clients[client].engine.end_holds();
        self.checker.on_finished(self.now, client);
        self.leave(client);
    }

    /// All connections of a client end.
    pub(super) fn leave(&mut self, client: usize) {
        let servers: Vec<ServerId> = self.clients[client].links.keys().copied().collect();
        for server in servers {
            self.cut(client, server, true);
        }
        let processes: Vec<usize> = self.clients[client].listens.keys().copied().collect();
        for process in processes {
            self.cut_listening(client, process, true);
        }
    }

    fn wake_task(&mut self, client: usize, request: RequestId) {
        let Some(ask) = self.clients[client].asks.get(&request) else { return };
        let task = ask.task;
        let lazy = self.clients[client].tasks.get(task).is_some_and(|task| task.is_lazy(request));
        let wait = if lazy && self.phase == Phase::Working {
            self.chance.time(100, 3 * self.plan.lease_us())
        } else {
            self.chance.time(1, 300)
        };
        self.send_to_client(wait, client, Inbound::Wake(task, request));
    }

    /// All that can be seen from outside, for a failure's report.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for lock in self.locks() {
            let _ = writeln!(text, "key {lock:?}");
        }
        for name in &self.names {
            if let Some(line) = self.line_of(name) {
                let _ = writeln!(text, "line of {name}: {line:?}");
            }
        }
        for (index, client) in self.clients.iter().enumerate() {
            let up = client.links.values().filter(|link| link.up).count();
            let _ = writeln!(
                text,
                "client {index}: {up} of {} links up, dead {} frozen {} finished {} {:?}",
                client.links.len(),
                client.dead,
                client.frozen,
                client.finished,
                client.counters.snapshot()
            );
        }
        self.trace.short(&text)
    }
}
