//! One process: an engine, its connections, its mailbox, and the slots of its callers.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::Value;
use crate::base::cell::Directory;
use crate::base::clock::Moment;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::base::stats::Counters;
use crate::engine::Engine;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::share::Share;
use crate::settings::config::Config;
use crate::settings::config::Sharding;
use crate::sim::plan::Plan;
use crate::sim::task::Task;

/// SUBSCRIBE (with its generation) or UNSUBSCRIBE on its way to a server.
#[derive(Debug)]
pub(super) struct Subscribing {
    pub(super) client: usize,
    pub(super) process: usize,
    pub(super) epoch: u64,
    pub(super) channel: Arc<str>,
    pub(super) sharded: bool,
    pub(super) generation: Option<u64>,
}

/// What becomes of a command that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Travelling,
    /// Lost with its connection.
    Dropped,
    /// Its connection is gone, the server executes it all the same.
    Ghost,
    Executed,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) client: usize,
    pub(super) op: OpId,
    pub(super) command: Command,
    /// The process that it was sent to, and which of its lives.
    pub(super) process: usize,
    pub(super) run: u64,
    pub(super) connection: u64,
    /// After this it is not sent on any more.
    pub(super) deadline: Moment,
    pub(super) redirections: u32,
    pub(super) asking: bool,
    /// With the script's text, because the server did not know it.
    pub(super) whole: bool,
    pub(super) fate: Cell<Fate>,
}

impl Request {
    /// The same once more, on its own way.
    pub(super) fn copy(&self, fate: Fate) -> Self {
        Self {
            client: self.client,
            op: self.op,
            command: self.command.clone(),
            process: self.process,
            run: self.run,
            connection: self.connection,
            deadline: self.deadline,
            redirections: self.redirections,
            asking: self.asking,
            whole: self.whole,
            fate: Cell::new(fate),
        }
    }
}

/// The connection to one server.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) up: bool,
    pub(super) process: usize,
    /// No two have the same.
    pub(super) connection: u64,
    pub(super) last_arrival: Moment,
    pub(super) last_reply: Moment,
    /// A script is being sent once more, with its text: what comes behind it waits.
    pub(super) held_until: Moment,
    /// The last answer of what was cut is told by then.
    pub(super) settled: Moment,
    /// Nothing went wrong here since.
    pub(super) undisturbed: Moment,
    pub(super) connecting: bool,
}

/// The pub/sub connection to one process.
#[derive(Debug, Default)]
pub(super) struct Listening {
    pub(super) up: bool,
    pub(super) epoch: u64,
    pub(super) last_subscribe: Moment,
    pub(super) last_message: Moment,
    pub(super) connecting: bool,
}

/// A subscription, as the backend remembers it.
#[derive(Debug, Clone)]
pub(super) struct Subscription {
    pub(super) sharded: bool,
    pub(super) generation: u64,
    pub(super) at: Option<usize>,
}

/// A submitted call that is not answered yet.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) request: Rc<Request>,
}

/// What reaches a client, in the order of its happening.
#[derive(Debug)]
pub(super) enum Inbound {
    Mail(Mail),
    /// The end of a call; nothing if it was answered before.
    Outcome(OpId, ServerId, Outcome<Value>),
    /// From the backend; if it came over a pub/sub connection, only while that lives.
    Backend(Option<(usize, u64)>, Event),
    /// A task looks at its slot, or does what it has in mind.
    Wake(usize, RequestId),
    Cancel(usize, RequestId),
    /// The driver sees for itself that a grant was picked up.
    PickedUp(RequestId),
    Step(usize),
    Tick(u64),
}

/// What callers send to the driver.
#[derive(Debug)]
pub(super) enum Mail {
    Acquire(Acquire),
    Cancel(RequestId),
    Ask(RequestId, Event),
    Release { hold: u64, level: RequestId, request: Option<RequestId> },
    Leave { hold: u64, level: RequestId },
    Shutdown(Event),
}

/// A caller's slot.
#[derive(Debug)]
pub(super) enum Slot {
    Empty,
    Full(Answer),
    Taken,
    Withdrawn,
    Closed,
}

#[derive(Debug)]
pub(super) struct Ask {
    pub(super) slot: Slot,
    /// The driver knows whom to answer.
    pub(super) open: bool,
    pub(super) task: usize,
    pub(super) owner: Option<OwnerKey>,
    pub(super) lock: Option<LockName>,
    pub(super) share: Option<Share>,
    pub(super) wait: Option<Wait>,
    /// The watchdog is to keep it for as long as it has a guard.
    pub(super) watched: bool,
    pub(super) max_hold: Option<Duration>,
    pub(super) at_least: Option<Duration>,
    pub(super) lease: Option<Duration>,
    /// Somebody polls its future.
    pub(super) awaited: bool,
    pub(super) granted: bool,
    /// When the engine was told, and not before.
    pub(super) told: Option<Moment>,
}

/// A client's login is not accepted.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoginTrouble {
    pub(super) until: Moment,
    /// At this process alone.
    pub(super) at: Option<usize>,
    /// New connections are refused.
    pub(super) connecting: bool,
    /// What is said to calls on connections that are there, if not an answer.
    pub(super) to_calls: Option<&'static str>,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) engine: Engine,
    pub(super) directory: Arc<Directory>,
    pub(super) counters: Arc<Counters>,
    pub(super) config: Config,
    // ---- commands
    pub(super) links: BTreeMap<ServerId, Link>,
    pub(super) flights: BTreeMap<OpId, Flight>,
    /// In a cluster: which process it believes to have which slot.
    pub(super) routes: Vec<usize>,
    /// Its login comes from a provider: a refused one is not the last word.
    pub(super) asks_provider: bool,
    pub(super) login_trouble: Option<LoginTrouble>,
    // ---- messages
    pub(super) listens: BTreeMap<usize, Listening>,
    pub(super) subscriptions: BTreeMap<Arc<str>, Subscription>,
    pub(super) lagging: bool,
    // ---- callers
    pub(super) asks: BTreeMap<RequestId, Ask>,
    pub(super) next_request: u64,
    /// The engine is being told that this request's future is gone.
    pub(super) cancelling: Option<RequestId>,
    pub(super) last_mail: Moment,
    pub(super) tasks: Vec<Task>,
    // ---- the process
    pub(super) frozen: bool,
    pub(super) backlog: Vec<Inbound>,
    pub(super) dead: bool,
    pub(super) shutdown: Option<Moment>,
    pub(super) finished: bool,
    pub(super) tick: u64,
    pub(super) tick_at: Option<Moment>,
    /// Nothing went wrong for all that this client does since.
    pub(super) undisturbed: Moment,
    /// It stood still until then.
    pub(super) thawed: Moment,
    // ---- effects are counted, so that a storm shows
    pub(super) sent_in_second: (u64, u64),
    pub(super) ticks_at: (Moment, u32),
}

/// A server of a cluster is known by its address.
pub(super) fn server_id(process: usize) -> ServerId {
    ServerId(u32::try_from(process).unwrap_or(0) + 1)
}

impl Client {
    pub(super) fn new(seed: u64, index: usize, plan: &Plan) -> Self {
        let id = format!("{:08x}-0000-4000-8000-{index:012x}", seed & 0xffff_ffff);
        let config = Config {
            client_id: id.clone(),
            lease: LeaseMs::checked("lease", plan.lease).expect("a lease within the limits"),
            command_timeout: plan.command_timeout,
            outage_limit: plan.outage_limit,
            redisson_watchdog: LeaseMs::checked(
                "redisson_watchdog",
                Config::DEFAULT_REDISSON_WATCHDOG,
            )
            .unwrap(),
            fallback: plan.fallback,
            profile: plan.profile,
            sharding: Sharding::Auto,
            hand_off: plan.hand_off,
            max_waiters: 100,
            address: String::new(),
            deployment: String::new(),
            max_hold_count: plan.max_hold_count,
        };
        let directory = Arc::new(Directory::default());
        let counters = Arc::new(Counters::default());
        let engine = Engine::new(config.clone(), Arc::clone(&directory), Arc::clone(&counters));
        let tasks = (0..plan.tasks).map(|task| Task::new(index, task)).collect();
        Self {
            id,
            engine,
            directory,
            counters,
            config,
            links: BTreeMap::new(),
            flights: BTreeMap::new(),
            routes: Vec::new(),
            asks_provider: index % 3 == 2,
            login_trouble: None,
            listens: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            lagging: false,
            asks: BTreeMap::new(),
            next_request: 1,
            cancelling: None,
            last_mail: Moment::ZERO,
            tasks,
            frozen: false,
            backlog: Vec::new(),
            dead: false,
            shutdown: None,
            finished: false,
            tick: 0,
            tick_at: None,
            undisturbed: Moment::ZERO,
            thawed: Moment::ZERO,
            sent_in_second: (0, 0),
            ticks_at: (Moment::ZERO, 0),
        }
    }

    /// What is wrong with its login at a process.
    pub(super) fn login_trouble(&self, now: Moment, process: usize) -> Option<LoginTrouble> {
        let here = |trouble: &LoginTrouble| {
            trouble.at.is_none_or(|at| at == process) && now < trouble.until
        };
        self.login_trouble.filter(here)
    }

    /// The server that it would ask about a name.
    pub(super) fn server_of(&self, name: &LockName) -> ServerId {
        match self.routes.get(usize::from(name.slot())) {
            Some(process) => server_id(*process),
            None => ServerId::ONLY,
        }
    }

    pub(super) fn link_of(&self, name: &LockName) -> Option<&Link> {
        self.links.get(&self.server_of(name))
    }

    /// Since when nothing has gone wrong for it that concerns a name.
    pub(super) fn calm_since(&self, name: &LockName) -> Moment {
        self.link_of(name).map_or(Moment::NEVER, |link| link.undisturbed.max(self.undisturbed))
    }

    /// Whether it can be expected to do what it has to about a name.
    pub(super) fn works(&self, name: &LockName) -> bool {
        self.serves() && !self.frozen && self.link_of(name).is_some_and(|link| link.up)
    }

    /// Whether the wake-ups of a channel come through.
    pub(super) fn hears(&self) -> bool {
        !self.lagging && self.listens.values().all(|listening| listening.up)
    }

    /// Runs, and is meant to go on running.
    pub(super) fn serves(&self) -> bool {
        !self.dead && !self.finished
    }

    /// Somebody here waits for a name.
    pub(super) fn waits_for(&self, name: &str) -> bool {
        let waits = |ask: &Ask| {
            ask.open && !ask.granted && ask.lock.as_ref().is_some_and(|lock| lock.as_str() == name)
        };
        self.asks.values().any(waits)
    }

    /// The engine is told of a request.
    pub(super) fn open(&mut self, request: RequestId, now: Moment) {
        if let Some(ask) = self.asks.get_mut(&request) {
            ask.open = true;
            ask.told = Some(now);
        }
    }

    /// A storm of commands is a failure.
    pub(super) fn count_sent(&mut self, index: usize, now: Moment) -> Result<(), String> {
        let second = now.0 / 1_000_000_000;
        if self.sent_in_second.0 != second {
            self.sent_in_second = (second, 0);
        }
        self.sent_in_second.1 += 1;
        if self.sent_in_second.1 > 20_000 {
            return Err(format!("driver: client {index} sent 20,000 commands within a second"));
        }
        Ok(())
    }

    pub(super) fn open_ask(&mut self, task: usize) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let ask = Ask {
            slot: Slot::Empty,
            open: false,
            task,
            owner: None,
            lock: None,
            share: None,
            wait: None,
            watched: false,
            max_hold: None,
            at_least: None,
            lease: None,
            awaited: true,
            granted: false,
            told: None,
        };
        self.asks.insert(request, ask);
        request
    }

    pub(super) fn open_acquire(&mut self, task: usize, acquire: &mut Acquire) {
        acquire.request = self.open_ask(task);
        if let Some(ask) = self.asks.get_mut(&acquire.request) {
            ask.owner = Some(acquire.owner);
            ask.lock = Some(acquire.name.clone());
            ask.share = Some(acquire.share);
            ask.wait = Some(acquire.wait);
            ask.watched = acquire.lease.is_watched();
            ask.max_hold = acquire.max_hold;
            ask.at_least = acquire.at_least.map(LeaseMs::duration);
            ask.lease = Some(acquire.lease.length().duration());
        }
    }

    /// Forgets what nobody can refer to any more.
    pub(super) fn tidy(&mut self) {
        self.asks.retain(|_, ask| {
            let kept = matches!(ask.slot, Slot::Full(_)) && ask.lock.is_none() && !ask.awaited;
            ask.open
                || ask.told.is_none()
                || !(kept || matches!(ask.slot, Slot::Taken | Slot::Closed))
        });
    }

    // ---- the driver's desk

    pub(super) fn answer(
        &mut self,
        request: RequestId,
        answer: Answer,
    ) -> Result<Option<Event>, String> {
        let granted = matches!(answer, Answer::Granted(_));
        if self.cancelling == Some(request) && !granted {
            // Its time was over when its cancellation came; the desk has nobody to tell.
            return Ok(None);
        }
        let Some(ask) = self.asks.get_mut(&request) else {
            return Err(format!("an answer to {request:?}, which nobody sent"));
        };
        if !ask.open {
            return Err(format!(
                "a second answer to {request:?}, or one after its end: {answer:?}"
            ));
        }
        if matches!(ask.slot, Slot::Full(_) | Slot::Taken) {
            return Err(format!("two answers to {request:?}: {answer:?}"));
        }
        ask.granted |= granted;
        let nobody = matches!(ask.slot, Slot::Closed);
        if !nobody {
            ask.slot = Slot::Full(answer);
        }
        if !granted || nobody {
            ask.open = false;
        }
        Ok((granted && nobody).then_some(Event::Cancel { request }))
    }

    /// Whether the driver has something to tell the engine.
    pub(super) fn sees_picked_up(&mut self, request: RequestId) -> bool {
        let ask = self.asks.get_mut(&request).filter(|ask| matches!(ask.slot, Slot::Taken));
        ask.is_some_and(|ask| std::mem::take(&mut ask.open))
    }

    pub(super) fn withdraw(&mut self, request: RequestId) -> Event {
        let Some(ask) = self.asks.get_mut(&request).filter(|ask| ask.open) else {
            return Event::PickedUp { request };
        };
        ask.open = false;
        match ask.slot {
            Slot::Taken => Event::PickedUp { request },
            Slot::Closed => Event::Withdrawn { request },
            _ => {
                ask.slot = Slot::Withdrawn;
                Event::Withdrawn { request }
            }
        }
    }
}
