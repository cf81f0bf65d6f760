//! Commands and replies between clients and servers, and what happens to them on the way.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::Value;
use crate::base::clock::Moment;
use crate::engine::event::Event;
use crate::kinds::command::Command;
use crate::sim::checker::Executed;
use crate::sim::client::Fate;
use crate::sim::client::Flight;
use crate::sim::client::Inbound;
use crate::sim::client::Request;
use crate::sim::client::server_id;
use crate::sim::kinds::rules_of;
use crate::sim::places::Where;
use crate::sim::server::CALLED;
use crate::sim::server::IN_SCRIPT;
use crate::sim::server::PASSING;
use crate::sim::server::REFUSALS;
use crate::sim::server::TRY_AGAIN;
use crate::sim::server::WRONG_PASSWORD;
use crate::sim::server::is_about_login;
use crate::sim::server::link_failure;
use crate::sim::server::refusal;
use crate::sim::world::Happening;
use crate::sim::world::World;

/// A redirected call is sent on at most so often.
const REDIRECTIONS: u32 = 5;

impl World {
    pub(super) fn submit(
        &mut self,
        client: usize,
        op: OpId,
        to: ServerId,
        command: Command,
        timeout: Duration,
    ) -> Result<(), String> {
        let now = self.now;
        self.clients[client].count_sent(client, now)?;
        let (up, process, connection) = match self.clients[client].links.get(&to) {
            Some(link) => (link.up, link.process, link.connection),
            None => (false, 0, 0),
        };
        let subscribed = command.name().is_some_and(|name| self.is_subscribed(client, name));
        self.checker.look_at_hearing(now, &command, &self.clients[client], subscribed)?;
        self.checker.on_send(now, client, op, (&command, timeout), &self.processes[process])?;
        let request = Rc::new(Request {
            client,
            op,
            command,
            process,
            run: self.processes[process].run,
            connection,
            deadline: now.plus(timeout),
            redirections: 0,
            asking: false,
            whole: false,
            fate: Cell::new(Fate::Travelling),
        });
        let flight = Flight { request: Rc::clone(&request) };
        if self.clients[client].flights.insert(op, flight).is_some() {
            return Err(format!("{op:?} was sent twice"));
        }
        if !up {
            let wait = self.chance.time(1, 50);
            self.end_flight(
                client,
                op,
                to,
                Outcome::NotExecuted(link_failure("not connected")),
                wait,
            );
            return Ok(());
        }
        let late = self.chance.time(1, 1_000);
        self.after(timeout + late, Happening::Timeout(client, op));
        self.send_off(to, request, timeout);
        if self.fault(self.plan.faults.lost_request) {
            self.cut(client, to, false);
        }
        Ok(())
    }

    /// How long something is on its way between a client and a server.
    pub(super) fn way(&mut self, client: usize) -> Duration {
        self.chance.time(20, self.plan.latency) + self.plan.distance(client)
    }

    /// Over the connection, behind what was sent before.
    fn send_off(&mut self, to: ServerId, request: Rc<Request>, timeout: Duration) {
        let client = request.client;
        let mut wait = self.way(client);
        if self.fault(self.plan.faults.slow) {
            wait += self
                .chance
                .time(1_000, 2_000 * u64::try_from(timeout.as_millis()).unwrap_or(1_000));
        }
        let at = self.now.plus(wait);
        let Some(link) = self.clients[client].links.get_mut(&to) else { return };
        let at = at.max(link.last_arrival);
        link.last_arrival = at;
        self.at(at, Happening::Arrive(request));
    }

    pub(super) fn end_flight(
        &mut self,
        client: usize,
        op: OpId,
        server: ServerId,
        outcome: Outcome<Value>,
        wait: Duration,
    ) {
        if self.clients[client].flights.contains_key(&op) {
            self.send_to_client(wait, client, Inbound::Outcome(op, server, outcome));
        }
    }

    pub(super) fn time_out(&mut self, client: usize, op: OpId) {
        let Some(flight) = self.clients[client].flights.get(&op) else { return };
        let request = Rc::clone(&flight.request);
        let server = self.places.server_id(request.process);
        self.disturb(client, Some(server));
        self.copy_later(&request);
        self.end_flight(
            client,
            op,
            server,
            Outcome::Unknown(link_failure("timed out")),
            Duration::ZERO,
        );
    }

    /// What ended unknown may be executed once more.
    fn copy_later(&mut self, request: &Rc<Request>) {
        if request.fate.get() == Fate::Executed && self.fault(self.plan.faults.late_copy) {
            let wait = self.chance.time(100, 3_000_000);
            self.after(wait, Happening::Arrive(Rc::new(request.copy(Fate::Ghost))));
        }
    }

    // ---- at the server

    pub(super) fn arrive(&mut self, request: Rc<Request>) -> Result<(), String> {
        let (process, now) = (request.process, self.now);
        let ghost = request.fate.get() == Fate::Ghost;
        if request.fate.get() == Fate::Dropped {
            return Ok(());
        }
        let at = &self.processes[process];
        if !at.alive || at.run != request.run {
            request.fate.set(Fate::Dropped);
            return Ok(());
        }
        let held = if ghost { Moment::ZERO } else { self.held_until(&request) };
        let later = at.paused_until.max(held);
        if later > now {
            self.at(later, Happening::Arrive(request));
            return Ok(());
        }
        if at.deposed.is_some_and(|(_, knows)| now >= knows) {
            if !ghost {
                self.cut_all(process);
            }
            return Ok(());
        }
        if !ghost && self.is_refused(&request)? {
            return Ok(());
        }
        if self.is_script_unknown(&request) || !ghost && self.misdirects(&request) {
            return Ok(());
        }
        match self.place(process, &request.command, request.asking) {
            Where::Here => self.run(&request, ghost),
            Where::TryAgain if !ghost => {
                self.try_again(&request);
                Ok(())
            }
            Where::Elsewhere { process, ask } if !ghost => {
                self.redirect(&request, process, ask);
                Ok(())
            }
            Where::TryAgain | Where::Elsewhere { .. } => Ok(()),
        }
    }

    fn try_again(&mut self, request: &Rc<Request>) {
        self.try_agains += 1;
        self.answer(request, refusal(TRY_AGAIN));
    }

    fn held_until(&self, request: &Request) -> Moment {
        let links = self.clients[request.client].links.values();
        let mut own = links.filter(|link| link.connection == request.connection && !request.whole);
        own.next().map_or(Moment::ZERO, |link| link.held_until)
    }

    fn run(&mut self, request: &Rc<Request>, ghost: bool) -> Result<(), String> {
        request.fate.set(Fate::Executed);
        let is_script = matches!(request.command.to_call(), Call::Script(_));
        let refuses = !ghost && is_script && self.fault(self.plan.faults.in_script);
        if refuses {
            let called = request.command.name().map_or(&CALLED[..], |name| rules_of(name).called());
            let refused = [*self.chance.pick(called), *self.chance.pick(called)];
            let text = *self.chance.pick(&IN_SCRIPT);
            self.processes[request.process].keys.refuse_commands(&refused, text);
            self.say(|| format!("it will be refused {refused:?}: {text}"));
        }
        let outcome = self.execute(request, refuses)?;
        if matches!(outcome, Outcome::Done(_)) && self.fault(self.plan.faults.duplicate) {
            self.say(|| format!("{} once more", request.command.label()));
            self.execute(request, false)?;
        }
        if !ghost {
            self.answer(request, outcome);
        }
        Ok(())
    }

    /// Whether it gets an error for an answer; one that leaves it open may come after the
    /// execution.
    fn is_refused(&mut self, request: &Rc<Request>) -> Result<bool, String> {
        let now = self.now;
        let trouble = self.processes[request.process].trouble.filter(|(until, _)| *until > now);
        let login = self.clients[request.client].login_trouble(now, request.process);
        let text = match (trouble, login.and_then(|login| login.to_calls)) {
            (_, Some(text)) => {
                self.refused_logins += 1;
                text
            }
            (Some((_, text)), None) => text,
            (None, None) if self.fault(self.plan.faults.refused) => self.pick_refusal(),
            (None, None) => return Ok(false),
        };
        let outcome = refusal(text);
        self.say(|| format!("s{} answers {text}", request.process));
        let here = self.place(request.process, &request.command, request.asking) == Where::Here;
        if matches!(outcome, Outcome::Unknown(_)) && here && self.chance.permille(500) {
            request.fate.set(Fate::Executed);
            self.execute(request, false)?;
        } else if matches!(outcome, Outcome::NotExecuted(_)) {
            request.fate.set(Fate::Dropped);
        }
        self.answer(request, outcome);
        Ok(true)
    }

    /// Mostly one that is over before long.
    pub(super) fn pick_refusal(&mut self) -> &'static str {
        let passing = self.chance.permille(850);
        let refusals = if passing { &REFUSALS[..PASSING] } else { &REFUSALS[PASSING..] };
        let refusal: &&'static str = self.chance.pick(refusals);
        refusal
    }

    /// NOSCRIPT: the backend sends the text, and holds back what comes behind.
    fn is_script_unknown(&mut self, request: &Rc<Request>) -> bool {
        let Call::Script(call) = request.command.to_call() else { return false };
        if request.whole || self.processes[request.process].loaded.contains(call.script.name) {
            self.processes[request.process].loaded.insert(call.script.name);
            return false;
        }
        if request.fate.get() == Fate::Ghost {
            request.fate.set(Fate::Dropped);
            return true;
        }
        let wait = self.way(request.client) + self.way(request.client);
        let at = self.now.plus(wait);
        for link in self.clients[request.client].links.values_mut() {
            if link.connection == request.connection {
                link.held_until = at;
                link.last_arrival = link.last_arrival.max(at);
            }
        }
        let mut whole = request.copy(Fate::Travelling);
        whole.whole = true;
        self.replace_flight(request, whole, |world, whole| world.at(at, Happening::Arrive(whole)));
        true
    }

    /// The flight goes on as another request.
    fn replace_flight(
        &mut self,
        old: &Rc<Request>,
        new: Request,
        then: impl FnOnce(&mut Self, Rc<Request>),
    ) {
        old.fate.set(Fate::Dropped);
        let new = Rc::new(new);
        if let Some(flight) = self.clients[old.client].flights.get_mut(&old.op) {
            flight.request = Rc::clone(&new);
            then(self, new);
        }
    }

    /// A node that has not heard of a change names one that has not the slot, or says TRYAGAIN.
    fn misdirects(&mut self, request: &Rc<Request>) -> bool {
        if request.command.name().is_none() || !self.fault(self.plan.faults.misdirected) {
            return false;
        }
        let nodes = (0..self.processes.len())
            .filter(|at| *at != request.process)
            .filter(|at| self.processes[*at].alive && self.processes[*at].deposed.is_none());
        let nodes: Vec<usize> = nodes.collect();
        if nodes.is_empty() || self.chance.permille(333) {
            self.try_again(request);
        } else {
            let (process, ask) = (*self.chance.pick(&nodes), self.chance.permille(500));
            self.redirect(request, process, ask);
        }
        true
    }

    /// MOVED or ASK, which has its way back before it is followed.
    fn redirect(&mut self, request: &Rc<Request>, process: usize, ask: bool) {
        request.fate.set(Fate::Dropped);
        if self.plan.redirections_travel {
            let request = Rc::clone(request);
            self.send_back(&Rc::clone(&request), Happening::Redirected { request, process, ask });
        } else {
            self.follow(request, process, ask);
        }
    }

    /// The backend hears of it, and sends the call on within its time.
    pub(super) fn follow(&mut self, request: &Rc<Request>, process: usize, ask: bool) {
        let client = request.client;
        let server = server_id(process);
        let is_awaited = self.clients[client].flights.contains_key(&request.op);
        if !is_awaited
            || request.connection != self.connection(client, self.places.server_id(request.process))
        {
            return;
        }
        self.redirections += 1;
        self.say(|| format!("{} of {client} is sent on to s{process}", request.command.label()));
        self.meet(client, process);
        if !ask {
            let mut routes = self.clients[client].routes.clone();
            if let Some(name) = request.command.name() {
                routes[usize::from(name.slot())] = process;
            }
            self.adopt(client, routes);
            if self.plan.redirections_travel {
                // The backend asks for the map of slots.
                let wait = self.chance.time(1_000, 300_000);
                self.disturb_for(client, wait + Duration::from_millis(500));
                self.after(wait, Happening::Learn(client));
            }
        }
        let back = if self.plan.redirections_travel { Duration::ZERO } else { self.way(client) };
        let link = &self.clients[client].links[&server];
        let (up, connection) = (link.up, link.connection);
        let left = request.deadline.since(self.now);
        if !up || left.is_zero() || request.redirections >= REDIRECTIONS {
            let failure =
                Failure::new(FailureKind::SlotMoving, "redirected, and not there in time");
            return self.end_flight(
                client,
                request.op,
                server,
                Outcome::NotExecuted(failure),
                back,
            );
        }
        let mut on = request.copy(Fate::Travelling);
        (on.process, on.run, on.connection) = (process, self.processes[process].run, connection);
        (on.asking, on.whole, on.redirections) = (ask, false, request.redirections + 1);
        self.checker.on_sent_on(self.now, &request.command, &self.processes[process]);
        self.replace_flight(request, on, |world, on| world.send_off(server, on, left));
    }

    fn connection(&self, client: usize, server: ServerId) -> u64 {
        self.clients[client].links.get(&server).map_or(0, |link| link.connection)
    }

    /// `refuses`: some of the script's own commands are refused.
    pub(super) fn execute(
        &mut self,
        request: &Rc<Request>,
        refuses: bool,
    ) -> Result<Outcome<Value>, String> {
        let (process, now) = (request.process, self.now);
        let before = self.locks_at(process);
        let latch_before = self.latch_at(process);
        let views = self.views();
        let refuses = refuses || self.processes[process].is_out_of_memory();
        let outcome = self.processes[process].execute(now, &request.command.to_call());
        let after = self.locks_at(process);
        self.dirty = true;
        self.trace.executed(now, request, &outcome);
        let at = &self.processes[process];
        self.checker.on_executed(now, at, request, &before, &after, &outcome)?;
        let (is_deposed, latch) = (at.deposed.is_some(), self.latch_at(process));
        self.checker.latches.is_lost |= is_deposed;
        self.checker.latches.on_executed(now, &request.command, &latch_before, &latch)?;
        if is_deposed {
            self.deliver_published(process);
            return Ok(outcome);
        }
        let executed = Executed { request, outcome: &outcome, refuses, before: &views };
        self.checker.on_passed(now, &executed, &self.views(), &self.clients)?;
        self.deliver_published(process);
        Ok(outcome)
    }

    // ---- on the way back

    fn answer(&mut self, request: &Rc<Request>, outcome: Outcome<Value>) {
        self.send_back(request, Happening::Reply(Rc::clone(request), outcome));
    }

    /// Over the connection, behind what was answered before.
    fn send_back(&mut self, request: &Rc<Request>, happening: Happening) {
        let client = request.client;
        let server = self.places.server_id(request.process);
        if request.connection != self.connection(client, server) {
            return;
        }
        if self.fault(self.plan.faults.lost_reply) {
            if self.chance.permille(500) {
                self.cut(client, server, false);
            }
            return;
        }
        let mut wait = self.way(client);
        if self.fault(self.plan.faults.slow) {
            wait += self.chance.time(1_000, 2_000_000);
        }
        let at = self.now.plus(wait);
        let Some(link) = self.clients[client].links.get_mut(&server) else { return };
        let at = at.max(link.last_reply);
        link.last_reply = at;
        self.at(at, happening);
    }

    /// A reply reaches the backend.
    pub(super) fn reply(&mut self, request: &Rc<Request>, outcome: Outcome<Value>) {
        let client = request.client;
        let server = self.places.server_id(request.process);
        if request.connection != self.connection(client, server) {
            return;
        }
        let overtaken = self.places.cluster
            && !request.asking
            && request
                .command
                .name()
                .is_some_and(|name| self.clients[client].server_of(name) != server);
        let outcome = match outcome {
            Outcome::Done(_) if overtaken => {
                Outcome::Unknown(link_failure("another node has the slot by now"))
            }
            Outcome::NotExecuted(failure) if failure.kind == FailureKind::Auth => {
                if self.plan.redirections_travel {
                    self.replace_connection(client, server, &failure);
                }
                Outcome::NotExecuted(self.judge_login(client, failure))
            }
            outcome => outcome,
        };
        self.end_flight(client, request.op, server, outcome, Duration::ZERO);
    }

    // ---- connections

    pub(super) fn cut(&mut self, client: usize, server: ServerId, for_good: bool) {
        let Some(link) = self.clients[client].links.get_mut(&server).filter(|link| link.up) else {
            return;
        };
        link.up = false;
        let connection = std::mem::take(&mut link.connection);
        (link.last_arrival, link.last_reply, link.held_until) =
            (Moment::ZERO, Moment::ZERO, Moment::ZERO);
        let process = link.process;
        self.say(|| format!("the connection of {client} to s{process} is cut"));
        self.disturb(client, Some(server));
        let flights: Vec<Rc<Request>> = self.clients[client]
            .flights
            .values()
            .filter(|flight| flight.request.connection == connection)
            .map(|flight| Rc::clone(&flight.request))
            .collect();
        for request in flights {
            self.lose(server, &request);
        }
        if !for_good {
            let down = Event::Down { server, cause: "cut".to_owned() };
            self.send_to_client(Duration::ZERO, client, Inbound::Backend(None, down));
            let wait = self.chance.time(1_000, 300_000);
            self.connect_later(wait, client, server);
        }
    }

    /// Decides what becomes of a command whose connection is gone, and tells the client what it can
    /// know.
    fn lose(&mut self, server: ServerId, request: &Rc<Request>) {
        let client = request.client;
        let mut outcome = Outcome::Unknown(link_failure("cut"));
        if request.fate.get() == Fate::Travelling {
            request.fate.set(Fate::Dropped);
            if self.fault(self.plan.faults.ghost) {
                let wait = self.chance.time(100, 3_000_000);
                self.say(|| {
                    format!("{} of {client} will be executed in {wait:?}", request.command.label())
                });
                self.after(wait, Happening::Arrive(Rc::new(request.copy(Fate::Ghost))));
            } else if self.chance.permille(300) {
                outcome = Outcome::NotExecuted(link_failure("cut"));
            }
        } else {
            self.copy_later(request);
        }
        let wait =
            if self.chance.permille(200) { self.chance.time(1, 20_000) } else { Duration::ZERO };
        let now = self.now;
        if let Some(link) = self.clients[client].links.get_mut(&server) {
            link.settled = link.settled.max(now.plus(wait));
        }
        self.end_flight(client, request.op, server, outcome, wait);
    }

    pub(super) fn connect_later(&mut self, wait: Duration, client: usize, server: ServerId) {
        if let Some(link) =
            self.clients[client].links.get_mut(&server).filter(|link| !link.connecting)
        {
            link.connecting = true;
            self.after(wait, Happening::Connect(client, server));
        }
    }

    pub(super) fn connect(&mut self, client: usize, server: ServerId) {
        let current = self.places.current();
        let Some(link) = self.clients[client].links.get_mut(&server) else { return };
        link.connecting = false;
        if !self.places.cluster {
            link.process = current;
        }
        let (up, process, settled) = (link.up, link.process, link.settled);
        let routed = !self.places.cluster || self.clients[client].routes.contains(&process);
        if up || !self.clients[client].serves() || !routed {
            return;
        }
        if settled > self.now || self.clients[client].frozen {
            let wait = settled.since(self.now) + self.chance.time(100, 50_000);
            return self.connect_later(wait, client, server);
        }
        if !self.accepts(process) || self.fault(self.plan.faults.connect_fails) {
            let failed = Event::ConnectFailed { server, failure: link_failure("refused") };
            self.send_to_client(Duration::ZERO, client, Inbound::Backend(None, failed));
            let wait = self.chance.time(5_000, 300_000);
            return self.connect_later(wait, client, server);
        }
        if self.clients[client]
            .login_trouble(self.now, process)
            .is_some_and(|login| login.connecting)
        {
            self.refuse_login(client, server);
            let wait = self.chance.time(5_000, 300_000);
            return self.connect_later(wait, client, server);
        }
        self.connections += 1;
        let (connection, info) = (self.connections, self.processes[process].info());
        if let Some(link) = self.clients[client].links.get_mut(&server) {
            (link.up, link.connection) = (true, connection);
        }
        self.disturb(client, Some(server));
        self.send_to_client(
            Duration::ZERO,
            client,
            Inbound::Backend(None, Event::Up(server, info)),
        );
    }

    /// An attempt to connect ends with WRONGPASS.
    pub(super) fn refuse_login(&mut self, client: usize, server: ServerId) {
        self.refused_logins += 1;
        let failure = self.judge_login(client, Failure::new(FailureKind::Auth, WRONG_PASSWORD));
        let failed = Event::ConnectFailed { server, failure };
        self.send_to_client(Duration::ZERO, client, Inbound::Backend(None, failed));
    }

    /// With a provider a refused login is not the last word: the next attempt asks it again.
    fn judge_login(&self, client: usize, failure: Failure) -> Failure {
        match self.clients[client].asks_provider && self.plan.redirections_travel {
            true => Failure { kind: FailureKind::Busy, ..failure },
            false => failure,
        }
    }

    /// A connection that is told to log in is replaced. What was sent on it behind the refused call
    /// is refused as well, or lost.
    fn replace_connection(&mut self, client: usize, server: ServerId, failure: &Failure) {
        if is_about_login(&failure.message) {
            self.cut(client, server, false);
        }
    }

    /// Whether a process takes new connections, and is what clients look for.
    pub(super) fn accepts(&self, process: usize) -> bool {
        let at = &self.processes[process];
        at.alive
            && at.unreachable_until <= self.now
            && at.paused_until <= self.now
            && at.deposed.is_none()
    }

    pub(super) fn reconnect(&mut self, client: usize, server: ServerId) {
        let Some(process) = self.clients[client].links.get(&server).map(|link| link.process) else {
            return;
        };
        self.cut(client, server, false);
        self.cut_listening(client, process, false);
    }

    /// Everybody's connections to a process.
    pub(super) fn cut_all(&mut self, process: usize) {
        for client in 0..self.clients.len() {
            let server = self.places.server_id(process);
            if self.clients[client].links.get(&server).is_some_and(|link| link.process == process) {
                self.cut(client, server, false);
            }
            self.cut_listening(client, process, false);
        }
    }
}
