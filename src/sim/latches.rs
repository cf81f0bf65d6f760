//! The count-down latch in the simulation: what each of its calls has done, and what its callers are
//! told.
//!
//! P18: a call counts once, and a caller is told what is true of its call: that it was done, or
//! that nothing was done, and then nothing is done later either. P19: whoever waited for the latch
//! goes on only if it was open at some time since it began to wait.

use std::collections::BTreeMap;

use crate::backend::memory::store::Stored;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::kinds::command::Command;
use crate::kinds::operation::Change;
use crate::sim::client::Inbound;
use crate::sim::client::Mail;
use crate::sim::task::Pending;
use crate::sim::world::World;

/// What a call has done so far, and what its caller knows.
#[derive(Debug, Default)]
struct Call {
    effects: u32,
    /// It was told, and it was not told that nobody knows.
    is_final: bool,
}

/// What a caller waits for.
#[derive(Debug)]
enum Asked {
    Operation(String),
    /// Since then.
    Open(Moment),
}

#[derive(Debug)]
pub(super) struct Latches {
    pub(super) name: LockName,
    calls: BTreeMap<String, Call>,
    asked: BTreeMap<(usize, RequestId), Asked>,
    /// When the latch was last open.
    open_until: Moment,
    /// A server has lost what it knew, or its clock has jumped: no promise holds any more.
    pub(super) is_lost: bool,
    /// How many operations had an effect, and how many waits have ended.
    pub(super) done: u64,
    pub(super) waited: u64,
}

/// The value of a latch's key.
pub(super) type Count = Option<Stored>;

impl Latches {
    pub(super) fn new() -> Self {
        let name = LockName::new("latch").expect("it is short").of_kind(Kind::CountDownLatch);
        Self {
            name,
            calls: BTreeMap::new(),
            asked: BTreeMap::new(),
            open_until: Moment::NEVER,
            is_lost: false,
            done: 0,
            waited: 0,
        }
    }

    /// A server has executed a command.
    pub(super) fn on_executed(
        &mut self,
        now: Moment,
        command: &Command,
        before: &Count,
        after: &Count,
    ) -> Result<(), String> {
        let Command::Operate(operation) = command else { return Ok(()) };
        if before == after || self.is_lost {
            return Ok(());
        }
        self.open_until = if after.is_none() { Moment::NEVER } else { now.min(self.open_until) };
        self.done += 1;
        let call = self.calls.entry(operation.id.clone()).or_default();
        call.effects += 1;
        let id = &operation.id;
        match (call.effects, call.is_final) {
            (1, false) => Ok(()),
            (1, true) => Err(format!("P18: {id} is done although its caller knows better")),
            (times, _) => Err(format!("P18: {id} is done {times} times")),
        }
    }

    pub(super) fn on_answer(
        &mut self,
        client: usize,
        request: RequestId,
        answer: &Answer,
    ) -> Result<(), String> {
        let Some(asked) = self.asked.remove(&(client, request)) else { return Ok(()) };
        if self.is_lost {
            return Ok(());
        }
        let id = match asked {
            Asked::Operation(id) => id,
            Asked::Open(since) if matches!(answer, Answer::Done) => {
                self.waited += 1;
                let was_open = self.open_until >= since;
                let late = || format!("P19: client {client} goes on, and the latch is not open");
                return if was_open { Ok(()) } else { Err(late()) };
            }
            Asked::Open(_) => return Ok(()),
        };
        let call = self.calls.entry(id.clone()).or_default();
        let expected = match answer {
            Answer::Operated(Some(_)) => 1,
            Answer::Operated(None) => 0,
            Answer::Failed(Error::Unavailable { cause, .. })
                if cause.contains("nothing was done") =>
            {
                0
            }
            _ => return Ok(()),
        };
        call.is_final = true;
        if call.effects == expected {
            return Ok(());
        }
        Err(format!("P18: {id} was done {} times, and its caller is told {answer:?}", call.effects))
    }
}

impl World {
    /// The value of the latch's key at a process.
    pub(super) fn latch_at(&self, process: usize) -> Count {
        let at = &self.processes[process];
        let name = self.checker.latches.name.as_str();
        at.keys.peek(at.time(self.now), name).map(|dumped| dumped.value)
    }

    /// A task counts down, sets a count, removes the latch, or waits.
    pub(super) fn use_latch(&mut self, client: usize, task: usize) {
        let name = self.checker.latches.name.clone();
        let request = self.clients[client].open_ask(task);
        self.clients[client].tasks[task].pending = Some(Pending::ask(request));
        let change = match self.chance.below(10) {
            0..=4 => Some(Change::CountDown),
            5 | 6 => {
                let count = self.chance.range(1, 3) as u32;
                Some(Change::SetCount { count, life: 0 })
            }
            7 => Some(Change::Delete),
            _ => None,
        };
        let key = (client, request);
        if let Some(change) = change {
            let id = format!("{}:{}", self.clients[client].config.client_id, request.0);
            self.checker.latches.asked.insert(key, Asked::Operation(id));
            return self.mail(client, Mail::Ask(request, Event::Operate { name, change, request }));
        }
        self.checker.latches.asked.insert(key, Asked::Open(self.now));
        self.mail(client, Mail::Ask(request, Event::Watch { name, request }));
        let wait = self.chance.time(1, 2 * self.plan.lease_us());
        self.send_to_client(wait, client, Inbound::Cancel(task, request));
    }
}
