//! Virtual time, the network between clients and server, and what goes wrong with it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::Value;
use crate::backend::memory::store::Stored;
use crate::clock::Moment;
use crate::engine::event::Effect;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::error::LossReason;
use crate::name::LockName;
use crate::scripts::reentrant::Command;
use crate::sim::chance::Chance;
use crate::sim::checker::Checker;
use crate::sim::client::Client;
use crate::sim::client::Fate;
use crate::sim::client::Flight;
use crate::sim::client::Inbound;
use crate::sim::client::Mail;
use crate::sim::client::Request;
use crate::sim::client::Slot;
use crate::sim::plan::Nemesis;
use crate::sim::plan::Plan;
use crate::sim::server::Server;
use crate::sim::trace::Trace;

/// Somewhere in the machine's life, so that subtractions near zero do not hide anything.
const START: Moment = Moment(5_000_000_000);

/// The owner of keys that nobody here made.
const STRANGER: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff:1";

#[derive(Debug)]
enum Happening {
    /// Something reaches a client.
    To(usize, Inbound),
    /// A command reaches the server.
    Arrive(Rc<Request>),
    /// A reply reaches a client's backend.
    Reply(Rc<Request>, Outcome<Value>),
    Timeout(usize, OpId),
    /// SUBSCRIBE (with its generation) or UNSUBSCRIBE reaches the server.
    Subscribe {
        client: usize,
        pubsub: u64,
        channel: Arc<str>,
        generation: Option<u64>,
    },
    Connect(usize),
    ConnectPubSub(usize),
    LagEnds(usize),
    Thaw(usize),
    MemoryIsBack,
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
    pub(super) now: Moment,
    sequence: u64,
    queue: BTreeMap<(Moment, u64), Happening>,
    pub(super) chance: Chance,
    pub(super) plan: Plan,
    pub(super) server: Server,
    pub(super) clients: Vec<Client>,
    pub(super) names: Vec<LockName>,
    pub(super) checker: Checker,
    pub(super) trace: Trace,
    pub(super) phase: Phase,
    pub(super) events: u64,
}

impl World {
    pub(super) fn new(seed: u64, tracing: bool) -> Self {
        let mut chance = Chance::new(seed);
        let plan = Plan::draw(&mut chance);
        let server = Server::new(plan.offset_us, plan.drift);
        let clients: Vec<Client> = (0..plan.clients).map(|index| Client::new(seed, index, &plan)).collect();
        let names = (0..plan.names).map(|at| LockName::new(&format!("n{at}")).expect("a name")).collect();
        let checker = Checker::new(&plan, clients.iter().map(|client| client.id.clone()).collect());
        let mut world = Self {
            now: START,
            sequence: 0,
            queue: BTreeMap::new(),
            chance,
            server,
            clients,
            names,
            checker,
            trace: Trace::new(tracing),
            phase: Phase::Working,
            events: 0,
            plan,
        };
        let plan = format!("{:?}", world.plan);
        world.say(|| plan);
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        for client in 0..self.clients.len() {
            let (first, second) = (self.chance.time(1, 5_000), self.chance.time(1, 5_000));
            self.after(first, Happening::Connect(client));
            self.after(second, Happening::ConnectPubSub(client));
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

    // ---- time

    fn after(&mut self, wait: Duration, happening: Happening) {
        self.at(self.now.plus(wait), happening);
    }

    fn at(&mut self, at: Moment, happening: Happening) {
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
            self.check()?;
        }
        self.now = self.now.max(end);
        self.check()
    }

    fn check(&mut self) -> Result<(), String> {
        let locks = self.server.locks(self.now);
        self.checker.look(self.now, &self.server, &locks, &self.clients)
    }

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::To(client, inbound) => self.reach(client, inbound),
            Happening::Arrive(request) => self.arrive(request),
            Happening::Reply(request, outcome) => {
                let client = request.client;
                if self.clients[client].connection == request.connection {
                    self.end_flight(client, request.op, outcome, Duration::ZERO);
                }
                Ok(())
            }
            Happening::Timeout(client, op) => {
                let failure = Failure::new(FailureKind::Link, "timed out");
                if self.clients[client].flights.contains_key(&op) {
                    self.checker.disturb(&mut self.clients[client], self.now);
                }
                self.end_flight(client, op, Outcome::Unknown(failure), Duration::ZERO);
                Ok(())
            }
            Happening::Subscribe { client, pubsub, channel, generation } => {
                self.on_subscribe(client, pubsub, channel, generation);
                Ok(())
            }
            Happening::Connect(client) => {
                self.connect(client);
                Ok(())
            }
            Happening::ConnectPubSub(client) => {
                self.connect_pubsub(client);
                Ok(())
            }
            Happening::LagEnds(client) => {
                self.clients[client].lagging = false;
                self.checker.disturb(&mut self.clients[client], self.now);
                if self.clients[client].pubsub_up {
                    let pubsub = self.clients[client].pubsub;
                    self.send_to_client(Duration::ZERO, client, Inbound::Backend(pubsub, Event::Lagged));
                }
                Ok(())
            }
            Happening::Thaw(client) => self.thaw(client),
            Happening::MemoryIsBack => {
                self.server.keys.set_out_of_memory(false);
                self.disturb_all();
                Ok(())
            }
            Happening::Nemesis => self.nemesis(),
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
            Inbound::Outcome(op, outcome) => {
                let Some(Flight { request }) = self.clients[client].flights.remove(&op) else {
                    return Ok(());
                };
                let outcome = outcome.and_then(|value| request.command.read(value));
                if !matches!(outcome, Outcome::Done(_)) {
                    self.checker.disturb(&mut self.clients[client], self.now);
                }
                self.handle(client, Event::Replied { op, server: ServerId::ONLY, outcome })
            }
            Inbound::Backend(pubsub, event) => {
                if pubsub != 0 && pubsub != self.clients[client].pubsub {
                    return Ok(());
                }
                self.handle(client, event)
            }
            Inbound::Wake(task, request) => self.on_wake(client, task, request),
            Inbound::Cancel(task, request) => self.on_cancel(client, task, request),
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
                if let Some(ask) = to.asks.get_mut(&acquire.request) {
                    ask.open = true;
                    ask.told = Some(now);
                }
                self.handle(client, Event::Acquire(acquire))
            }
            Mail::Cancel(request) => {
                let open = to.asks.get_mut(&request).is_some_and(|ask| std::mem::take(&mut ask.open));
                if !open {
                    return Ok(());
                }
                to.cancelling = Some(request);
                let result = self.handle(client, Event::Cancel { request });
                self.clients[client].cancelling = None;
                result
            }
            Mail::Ask(request, event) => {
                if let Some(ask) = to.asks.get_mut(&request) {
                    ask.open = true;
                    ask.told = Some(now);
                }
                self.handle(client, event)
            }
            Mail::Release { hold, level, request } => {
                if let Some(ask) = to.asks.get_mut(&level) {
                    ask.open = false;
                }
                if let Some(ask) = request.and_then(|request| to.asks.get_mut(&request)) {
                    ask.open = true;
                    ask.told = Some(now);
                }
                self.handle(client, Event::Release { hold, level, request })
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

    /// As the keeper does it.
    fn handle(&mut self, client: usize, event: Event) -> Result<(), String> {
        if self.clients[client].finished {
            return Ok(());
        }
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

    /// A tick that leaves something due at once would turn the keeper into a busy loop.
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
                return Err(format!("client {client} ticks again and again without getting on"));
            }
        }
        if to.shutdown.is_some_and(|until| now >= until) && tick && !to.finished && !due {
            return Err(format!("client {client} did not finish at the end of its shutdown"));
        }
        Ok(())
    }

    fn set_tick(&mut self, client: usize) {
        let at = self.clients[client].engine.next_timeout();
        if at == self.clients[client].tick_at && at.is_some() {
            return;
        }
        self.clients[client].tick += 1;
        self.clients[client].tick_at = at;
        if let Some(at) = at {
            let number = self.clients[client].tick;
            let late = if self.chance.permille(50) { self.chance.time(1, 2_000) } else { Duration::ZERO };
            self.at(at.max(self.now).plus(late), Happening::To(client, Inbound::Tick(number)));
        }
    }

    fn perform(&mut self, client: usize, effects: Vec<Effect>) -> Result<Vec<Event>, String> {
        let mut back = Vec::new();
        for effect in effects {
            if self.clients[client].finished {
                return Err(format!("client {client}: an effect after Finished: {effect:?}"));
            }
            match effect {
                Effect::Send { op, command, timeout, .. } => self.submit(client, op, command, timeout)?,
                Effect::Subscribe { channel, generation, .. } => {
                    self.write_subscribe(client, channel, Some(generation));
                }
                Effect::Unsubscribe { channel, .. } => self.write_subscribe(client, channel, None),
                Effect::Reconnect(_) => self.reconnect(client),
                Effect::Answer { request, answer } => {
                    self.checker.on_answer(self.now, client, request, &answer, &self.clients[client])?;
                    back.extend(self.clients[client].answer(request, answer)?);
                    self.wake_task(client, request);
                }
                Effect::Withdraw { request } => {
                    let event = self.clients[client].withdraw(request);
                    if matches!(
                        self.clients[client].asks.get(&request).map(|ask| &ask.slot),
                        Some(Slot::Withdrawn)
                    ) {
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
        for entry in self.clients[client].directory.iter() {
            entry.value().lose(LossReason::ClientShutdown);
        }
        self.checker.on_finished(self.now, client);
        self.cut(client, true);
        self.cut_pubsub(client, true);
    }

    // ---- commands

    fn submit(&mut self, client: usize, op: OpId, command: Command, timeout: Duration) -> Result<(), String> {
        let second = self.now.0 / 1_000_000_000;
        let from = &mut self.clients[client];
        if from.sent_in_second.0 != second {
            from.sent_in_second = (second, 0);
        }
        from.sent_in_second.1 += 1;
        if from.sent_in_second.1 > 20_000 {
            return Err(format!("client {client} sent 20,000 commands within a second"));
        }
        self.checker.on_send(&command);
        let request = Rc::new(Request {
            client,
            op,
            command,
            connection: from.connection,
            fate: Cell::new(Fate::Travelling),
        });
        if from.flights.insert(op, Flight { request: Rc::clone(&request) }).is_some() {
            return Err(format!("{op:?} was sent twice"));
        }
        if !from.up {
            let failure = Failure::new(FailureKind::Link, "not connected");
            let wait = self.chance.time(1, 50);
            self.end_flight(client, op, Outcome::NotExecuted(failure), wait);
            return Ok(());
        }
        let late = self.chance.time(1, 1_000);
        self.after(timeout + late, Happening::Timeout(client, op));
        let mut wait = self.chance.time(20, self.plan.latency);
        if self.chance.permille(self.faulty(self.plan.slow)) {
            wait += self.chance.time(1_000, 2_000 * u64::try_from(timeout.as_millis()).unwrap_or(1_000));
        }
        let at = self.now.plus(wait).max(self.clients[client].last_arrival);
        self.clients[client].last_arrival = at;
        self.at(at, Happening::Arrive(request));
        if self.chance.permille(self.faulty(self.plan.lost_request)) {
            self.cut(client, false);
        }
        Ok(())
    }

    /// Faults happen while there is work.
    fn faulty(&self, permille: u64) -> u64 {
        if self.phase == Phase::Working { permille } else { 0 }
    }

    fn end_flight(&mut self, client: usize, op: OpId, outcome: Outcome<Value>, wait: Duration) {
        if self.clients[client].flights.contains_key(&op) {
            self.send_to_client(wait, client, Inbound::Outcome(op, outcome));
        }
    }

    fn arrive(&mut self, request: Rc<Request>) -> Result<(), String> {
        if matches!(request.fate.get(), Fate::Dropped) {
            return Ok(());
        }
        if self.server.paused_until > self.now {
            let until = self.server.paused_until;
            self.at(until, Happening::Arrive(request));
            return Ok(());
        }
        let ghost = request.fate.get() == Fate::Ghost;
        request.fate.set(Fate::Executed);
        if self.chance.permille(self.faulty(self.plan.refused)) && !ghost {
            let kinds =
                [FailureKind::Busy, FailureKind::Busy, FailureKind::OutOfMemory, FailureKind::ReadOnly];
            let failure = Failure::new(*self.chance.pick(&kinds), "not now");
            return self.reply(request, Outcome::NotExecuted(failure));
        }
        let outcome = self.execute(&request)?;
        if self.chance.permille(self.faulty(self.plan.duplicate)) {
            self.say(|| format!("   {:?} again", request.op));
            self.execute(&request)?;
        }
        if ghost { Ok(()) } else { self.reply(request, outcome) }
    }

    fn execute(&mut self, request: &Rc<Request>) -> Result<Outcome<Value>, String> {
        let before = self.server.locks(self.now);
        let outcome = self.server.execute(self.now, &request.command.to_call());
        let after = self.server.locks(self.now);
        self.trace.executed(self.now, request, &outcome);
        let time = self.server.time(self.now);
        self.checker.on_executed(time, request, &before, &after, &outcome)?;
        for (message, receivers) in self.server.take_published() {
            for client in receivers {
                self.publish(client, &message.channel, &message.payload);
            }
        }
        Ok(outcome)
    }

    fn reply(&mut self, request: Rc<Request>, outcome: Outcome<Value>) -> Result<(), String> {
        let client = request.client;
        if request.connection != self.clients[client].connection {
            return Ok(());
        }
        if self.chance.permille(self.faulty(self.plan.lost_reply)) {
            if self.chance.permille(500) {
                self.cut(client, false);
            }
            return Ok(());
        }
        let mut wait = self.chance.time(20, self.plan.latency);
        if self.chance.permille(self.faulty(self.plan.slow)) {
            wait += self.chance.time(1_000, 2_000_000);
        }
        let at = self.now.plus(wait).max(self.clients[client].last_reply);
        self.clients[client].last_reply = at;
        self.at(at, Happening::Reply(request, outcome));
        Ok(())
    }

    // ---- the command connection

    fn cut(&mut self, client: usize, for_good: bool) {
        if !self.clients[client].up {
            return;
        }
        self.say(|| format!("{client}  the command connection is cut"));
        self.checker.disturb(&mut self.clients[client], self.now);
        let flights: Vec<Rc<Request>> = {
            let to = &mut self.clients[client];
            to.up = false;
            let connection = to.connection;
            to.connection += 1;
            to.last_arrival = Moment::ZERO;
            to.last_reply = Moment::ZERO;
            to.flights
                .values()
                .filter(|flight| flight.request.connection == connection)
                .map(|flight| Rc::clone(&flight.request))
                .collect()
        };
        for request in flights {
            self.lose(client, &request);
        }
        if !for_good {
            let down = Event::Down { server: ServerId::ONLY, cause: "cut".to_owned() };
            self.send_to_client(Duration::ZERO, client, Inbound::Backend(0, down));
            let wait = self.chance.time(1_000, 300_000);
            self.after(wait, Happening::Connect(client));
        }
    }

    /// Decides what becomes of a command whose connection is gone, and tells the client what it can know.
    fn lose(&mut self, client: usize, request: &Rc<Request>) {
        let link = Failure::new(FailureKind::Link, "cut");
        let mut outcome = Outcome::Unknown(link.clone());
        if request.fate.get() == Fate::Travelling {
            if self.chance.permille(self.plan.ghost) {
                request.fate.set(Fate::Ghost);
                let wait = self.chance.time(100, 3_000_000);
                self.say(|| format!("{client}  {:?} will be executed in {wait:?}", request.op));
                // It is in the queue already, at the instant at which it would have arrived; the later one counts.
                let again = Rc::new(Request {
                    client,
                    op: request.op,
                    command: request.command.clone(),
                    connection: request.connection,
                    fate: Cell::new(Fate::Ghost),
                });
                request.fate.set(Fate::Dropped);
                self.after(wait, Happening::Arrive(again));
            } else {
                request.fate.set(Fate::Dropped);
                if self.chance.permille(300) {
                    outcome = Outcome::NotExecuted(link);
                }
            }
        }
        let wait = if self.chance.permille(200) { self.chance.time(1, 20_000) } else { Duration::ZERO };
        self.end_flight(client, request.op, outcome, wait);
    }

    fn connect(&mut self, client: usize) {
        if self.clients[client].dead || self.clients[client].finished || self.clients[client].up {
            return;
        }
        let refused = self.server.unreachable_until > self.now
            || self.chance.permille(self.faulty(self.plan.connect_fails));
        if refused || self.clients[client].frozen {
            if refused && !self.clients[client].frozen {
                let failure = Failure::new(FailureKind::Link, "refused");
                self.send_to_client(
                    Duration::ZERO,
                    client,
                    Inbound::Backend(0, Event::ConnectFailed { server: ServerId::ONLY, failure }),
                );
            }
            let wait = self.chance.time(5_000, 300_000);
            return self.after(wait, Happening::Connect(client));
        }
        let info = self.server.info();
        self.clients[client].up = true;
        self.checker.disturb(&mut self.clients[client], self.now);
        self.send_to_client(Duration::ZERO, client, Inbound::Backend(0, Event::Up(ServerId::ONLY, info)));
    }

    fn reconnect(&mut self, client: usize) {
        self.cut(client, false);
        self.cut_pubsub(client, false);
    }

    // ---- pub/sub

    fn cut_pubsub(&mut self, client: usize, for_good: bool) {
        if !self.clients[client].pubsub_up {
            return;
        }
        self.say(|| format!("{client}  the pub/sub connection is cut"));
        self.checker.disturb(&mut self.clients[client], self.now);
        self.server.unsubscribe_all(client);
        let to = &mut self.clients[client];
        to.pubsub_up = false;
        to.pubsub += 1;
        to.last_message = Moment::ZERO;
        to.last_subscribe = Moment::ZERO;
        if !for_good {
            self.send_to_client(Duration::ZERO, client, Inbound::Backend(0, Event::PubSubDown));
            let wait = self.chance.time(1_000, 400_000);
            self.after(wait, Happening::ConnectPubSub(client));
        }
    }

    fn connect_pubsub(&mut self, client: usize) {
        if self.clients[client].dead || self.clients[client].finished || self.clients[client].pubsub_up {
            return;
        }
        if self.server.unreachable_until > self.now || self.clients[client].frozen {
            let wait = self.chance.time(5_000, 300_000);
            return self.after(wait, Happening::ConnectPubSub(client));
        }
        let to = &mut self.clients[client];
        to.pubsub_up = true;
        to.pubsub += 1;
        self.checker.disturb(&mut self.clients[client], self.now);
        self.send_to_client(Duration::ZERO, client, Inbound::Backend(0, Event::PubSubUp));
    }

    fn write_subscribe(&mut self, client: usize, channel: Arc<str>, generation: Option<u64>) {
        if !self.clients[client].pubsub_up {
            return;
        }
        let wait = self.chance.time(20, self.plan.latency);
        let at = self.now.plus(wait).max(self.clients[client].last_subscribe);
        self.clients[client].last_subscribe = at;
        let pubsub = self.clients[client].pubsub;
        self.at(at, Happening::Subscribe { client, pubsub, channel, generation });
    }

    fn on_subscribe(&mut self, client: usize, pubsub: u64, channel: Arc<str>, generation: Option<u64>) {
        if self.clients[client].pubsub != pubsub {
            if let Some(generation) = generation {
                if self.chance.permille(self.faulty(self.plan.stale_confirmation)) {
                    let wait = self.chance.time(10, 500_000);
                    let stale = Event::Subscribed { channel, generation, result: Ok(()) };
                    self.send_to_client(wait, client, Inbound::Backend(0, stale));
                }
            }
            return;
        }
        let Some(generation) = generation else { return self.server.subscribe(client, &channel, false) };
        let result = if self.chance.permille(self.faulty(self.plan.subscribe_refused)) {
            self.checker.disturb(&mut self.clients[client], self.now);
            Err(Failure::new(FailureKind::Busy, "not now"))
        } else {
            self.server.subscribe(client, &channel, true);
            Ok(())
        };
        self.hear(client, Event::Subscribed { channel, generation, result });
    }

    /// Over the pub/sub connection, in order.
    fn hear(&mut self, client: usize, event: Event) {
        let at =
            self.now.plus(self.chance.time(20, self.plan.latency)).max(self.clients[client].last_message);
        self.clients[client].last_message = at;
        let pubsub = self.clients[client].pubsub;
        self.at(at, Happening::To(client, Inbound::Backend(pubsub, event)));
    }

    fn publish(&mut self, client: usize, channel: &str, payload: &str) {
        if self.clients[client].lagging {
            return self.say(|| format!("{client}  does not hear {channel}"));
        }
        self.hear(client, Event::Message { channel: channel.into(), payload: payload.to_owned() });
    }

    // ---- faults from outside

    fn nemesis(&mut self) -> Result<(), String> {
        if self.phase != Phase::Working {
            return Ok(());
        }
        let nemesis = *self.chance.pick(&self.plan.nemeses);
        let client = usize::try_from(self.chance.below(self.clients.len() as u64)).unwrap_or(0);
        self.say(|| format!("nemesis {nemesis:?} {client}"));
        self.strike(nemesis, client);
        let every = u64::try_from(self.plan.nemesis_every.as_micros()).unwrap_or(1_000_000);
        let wait = self.chance.time(every / 4, every * 2);
        self.after(wait, Happening::Nemesis);
        Ok(())
    }

    fn strike(&mut self, nemesis: Nemesis, client: usize) {
        let lease = u64::try_from(self.plan.lease.as_micros()).unwrap_or(1_000_000);
        match nemesis {
            Nemesis::CutCommands => self.cut(client, false),
            Nemesis::CutPubSub => self.cut_pubsub(client, false),
            Nemesis::CutBoth => self.reconnect(client),
            Nemesis::Lag => {
                self.checker.disturb(&mut self.clients[client], self.now);
                self.clients[client].lagging = true;
                let wait = self.chance.time(1_000, 300_000);
                self.after(wait, Happening::LagEnds(client));
            }
            Nemesis::Pause => {
                let wait = self.chance.time(1_000, lease);
                self.server.paused_until = self.now.plus(wait);
                self.disturb_all();
            }
            Nemesis::Unreachable => {
                let wait = self.chance.time(10_000, 2 * lease);
                self.server.unreachable_until = self.now.plus(wait);
                self.cut_all();
            }
            Nemesis::OutOfMemory => {
                self.server.keys.set_out_of_memory(true);
                let wait = self.chance.time(10_000, lease);
                self.after(wait, Happening::MemoryIsBack);
                self.disturb_all();
            }
            Nemesis::Freeze => {
                if !self.clients[client].frozen {
                    self.clients[client].frozen = true;
                    self.checker.disturb(&mut self.clients[client], self.now);
                    let wait = self.chance.time(10_000, 2 * lease);
                    self.after(wait, Happening::Thaw(client));
                }
            }
            Nemesis::Crash => self.crash(client),
            Nemesis::Restart => {
                self.server.runs += 1;
                self.cut_all();
            }
            Nemesis::DataLoss => {
                self.rob_all();
                self.server.runs += 1;
                self.server.keys.flush();
                self.cut_all();
            }
            Nemesis::Delete | Nemesis::Plant => self.tamper(nemesis == Nemesis::Plant),
            Nemesis::ClockJump => {
                let size = i64::try_from(self.chance.range(150_000, 4 * lease + 200_000)).unwrap_or(0);
                let jump = if self.chance.permille(500) { size } else { -size };
                self.say(|| format!("the server's clock jumps by {jump} us"));
                self.rob_all();
                self.checker.jumped = true;
                self.server.offset_us += jump;
                self.disturb_all();
            }
        }
    }

    fn tamper(&mut self, plant: bool) {
        let name = self.chance.pick(&self.names).clone();
        let time = self.server.time(self.now);
        for lock in self.server.locks(self.now) {
            if lock.name == name.as_str() {
                self.checker.rob(&lock.field);
            }
        }
        if plant {
            let ttl = i64::try_from(self.chance.range(20, 1_500)).unwrap_or(100);
            let value = Stored::Hash(vec![(STRANGER.to_owned(), "1".to_owned())]);
            self.server.keys.plant(time, name.as_str(), value, Some(ttl));
        } else {
            self.server.keys.remove(time, name.as_str());
        }
    }

    fn rob_all(&mut self) {
        for lock in self.server.locks(self.now) {
            self.checker.rob(&lock.field);
        }
    }

    fn disturb_all(&mut self) {
        for client in &mut self.clients {
            self.checker.disturb(client, self.now);
        }
    }

    fn cut_all(&mut self) {
        for client in 0..self.clients.len() {
            self.reconnect(client);
        }
    }

    pub(super) fn crash(&mut self, client: usize) {
        if self.clients[client].dead {
            return;
        }
        self.cut(client, true);
        self.cut_pubsub(client, true);
        self.clients[client].dead = true;
        self.checker.on_crashed(self.now, client);
    }

    fn thaw(&mut self, client: usize) -> Result<(), String> {
        if !self.clients[client].frozen {
            return Ok(());
        }
        self.say(|| format!("{client}  goes on"));
        self.clients[client].frozen = false;
        self.checker.disturb(&mut self.clients[client], self.now);
        let mut backlog = std::mem::take(&mut self.clients[client].backlog);
        if self.chance.permille(300) {
            // The timers may be looked at before the sockets.
            backlog.sort_by_key(|inbound| !matches!(inbound, Inbound::Outcome(_, Outcome::Unknown(_))));
        }
        self.clients[client].tick_at = None;
        for inbound in backlog {
            self.send_to_client(Duration::ZERO, client, inbound);
        }
        self.set_tick(client);
        Ok(())
    }

    /// From here on nothing goes wrong any more.
    pub(super) fn calm_down(&mut self) -> Result<(), String> {
        self.phase = Phase::Draining;
        self.say(|| "no more faults".to_owned());
        self.server.keys.set_out_of_memory(false);
        self.server.unreachable_until = Moment::ZERO;
        for client in 0..self.clients.len() {
            self.thaw(client)?;
        }
        self.disturb_all();
        Ok(())
    }

    fn wake_task(&mut self, client: usize, request: RequestId) {
        let Some(ask) = self.clients[client].asks.get(&request) else { return };
        let task = ask.task;
        let lazy = self.clients[client].tasks.get(task).is_some_and(|task| task.is_lazy(request));
        let lease = u64::try_from(self.plan.lease.as_micros()).unwrap_or(1_000_000);
        let wait = if lazy && self.phase == Phase::Working {
            self.chance.time(100, 3 * lease)
        } else {
            self.chance.time(1, 300)
        };
        self.send_to_client(wait, client, Inbound::Wake(task, request));
    }

    /// All that can be seen from outside, for a failure's report.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for lock in self.server.locks(self.now) {
            let _ = writeln!(text, "key {lock:?}");
        }
        for (index, client) in self.clients.iter().enumerate() {
            let _ = writeln!(
                text,
                "client {index}: up {} pubsub {} dead {} frozen {} finished {} {:?}",
                client.up,
                client.pubsub_up,
                client.dead,
                client.frozen,
                client.finished,
                client.counters.snapshot()
            );
        }
        text
    }
}
