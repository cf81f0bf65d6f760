//! One process: an engine, its two connections, its mailbox, and the slots of its callers.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::Value;
use crate::cell::Directory;
use crate::clock::Moment;
use crate::config::Config;
use crate::config::Sharding;
use crate::engine::Engine;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::lease::LeaseMs;
use crate::name::LockName;
use crate::name::WireProfile;
use crate::owner::OwnerKey;
use crate::scripts::reentrant::Command;
use crate::sim::plan::Plan;
use crate::sim::workload::Task;
use crate::stats::Counters;

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
    pub(super) connection: u64,
    pub(super) fate: Cell<Fate>,
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
    Outcome(OpId, Outcome<Value>),
    /// From the backend, if the pub/sub connection of this number still lives; 0 needs none.
    Backend(u64, Event),
    /// A task looks at its slot, or does what it has in mind.
    Wake(usize, RequestId),
    Cancel(usize, RequestId),
    Step(usize),
    Tick(u64),
}

/// What callers send to the keeper.
#[derive(Debug)]
pub(super) enum Mail {
    Acquire(Acquire),
    Cancel(RequestId),
    Ask(RequestId, Event),
    Release { hold: u64, level: RequestId, request: Option<RequestId> },
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
    /// The keeper knows whom to answer.
    pub(super) open: bool,
    pub(super) task: usize,
    pub(super) owner: Option<OwnerKey>,
    pub(super) lock: Option<LockName>,
    pub(super) wait: Option<Wait>,
    /// Somebody polls its future.
    pub(super) awaited: bool,
    pub(super) granted: bool,
    /// When the engine was told, and not before.
    pub(super) told: Option<Moment>,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) engine: Engine,
    pub(super) directory: Arc<Directory>,
    pub(super) counters: Arc<Counters>,
    pub(super) config: Config,
    // ---- the command connection
    pub(super) up: bool,
    pub(super) connection: u64,
    pub(super) last_arrival: Moment,
    pub(super) last_reply: Moment,
    pub(super) flights: BTreeMap<OpId, Flight>,
    // ---- the pub/sub connection
    pub(super) pubsub_up: bool,
    pub(super) pubsub: u64,
    pub(super) last_subscribe: Moment,
    pub(super) last_message: Moment,
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
    /// Nothing went wrong for this client since.
    pub(super) undisturbed: Moment,
    // ---- effects are counted, so that a storm shows
    pub(super) sent_in_second: (u64, u64),
    pub(super) ticks_at: (Moment, u32),
}

impl Client {
    pub(super) fn new(seed: u64, index: usize, plan: &Plan) -> Self {
        let id = format!("{:08x}-0000-4000-8000-{index:012x}", seed & 0xffff_ffff);
        let config = Config {
            client_id: id.clone(),
            lease: LeaseMs::checked("lease", plan.lease).expect("a lease within the limits"),
            command_timeout: plan.command_timeout,
            outage_limit: plan.outage_limit,
            fallback: plan.fallback,
            profile: WireProfile::Default,
            sharding: Sharding::Auto,
            hand_off: plan.hand_off,
            max_waiters: 100,
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
            up: false,
            connection: 0,
            last_arrival: Moment::ZERO,
            last_reply: Moment::ZERO,
            flights: BTreeMap::new(),
            pubsub_up: false,
            pubsub: 0,
            last_subscribe: Moment::ZERO,
            last_message: Moment::ZERO,
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
            sent_in_second: (0, 0),
            ticks_at: (Moment::ZERO, 0),
        }
    }

    /// Runs, and is meant to go on running.
    pub(super) fn serves(&self) -> bool {
        !self.dead && !self.finished
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
            wait: None,
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
            ask.wait = Some(acquire.wait);
        }
    }

    /// Forgets what nobody can refer to any more.
    pub(super) fn tidy(&mut self) {
        self.asks.retain(|_, ask| {
            let kept = matches!(ask.slot, Slot::Full(_)) && ask.lock.is_none() && !ask.awaited;
            ask.open || ask.told.is_none() || !(kept || matches!(ask.slot, Slot::Taken | Slot::Closed))
        });
    }

    // ---- the keeper's desk

    pub(super) fn answer(&mut self, request: RequestId, answer: Answer) -> Result<Option<Event>, String> {
        let granted = matches!(answer, Answer::Granted(_));
        if self.cancelling == Some(request) && !granted {
            // Its time was over when its cancellation came; the desk has nobody to tell.
            return Ok(None);
        }
        let Some(ask) = self.asks.get_mut(&request) else {
            return Err(format!("an answer to {request:?}, which nobody sent"));
        };
        if !ask.open {
            return Err(format!("a second answer to {request:?}, or one after its end: {answer:?}"));
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
