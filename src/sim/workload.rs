//! What callers do: lock, nest, unlock in any order, change their minds, forget their futures.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::base::kind::Kind;
use crate::base::lease::Lease;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::share::Share;
use crate::sim::chance::Stream;
use crate::sim::client::Inbound;
use crate::sim::client::Mail;
use crate::sim::client::Slot;
use crate::sim::kinds::PERMITS;
use crate::sim::task::Guard;
use crate::sim::task::Pending;
use crate::sim::task::Task;
use crate::sim::world::Phase;
use crate::sim::world::World;

/// The task of each client that locks as a mutex does, half of the time. It shares its owner with
/// no other.
const MUTEX: usize = 0;

impl World {
    fn step_later(&mut self, client: usize, task: usize) {
        let number = self.clients[client].tasks[task].steps;
        let mut chance = self.stream(Stream::Step, [client as u64, task as u64, 2 * number]);
        let wait = match self.phase {
            Phase::Working => {
                let keeps = !self.clients[client].tasks[task].guards.is_empty();
                let hold = if keeps { self.plan.hold } else { Duration::ZERO };
                chance.time(20, self.plan.think) + hold
            }
            _ => chance.time(20, 2_000),
        };
        self.send_to_client(wait, client, Inbound::Step(task));
    }

    /// The task does something, if it is not waiting. What it is does not depend on what others do.
    pub(super) fn step(&mut self, client: usize, task: usize) -> Result<(), String> {
        if self.clients[client].tasks[task].pending.is_some()
            || self.clients[client].shutdown.is_some()
        {
            return Ok(());
        }
        let number = self.clients[client].tasks[task].steps;
        self.clients[client].tasks[task].steps += 1;
        if self.phase == Phase::Working {
            if self.mask.steps.contains(&(client, task, number)) {
                self.step_later(client, task);
                return Ok(());
            }
            self.done.steps.insert((client, task, number));
        }
        let which = [client as u64, task as u64, 2 * number + 1];
        self.by_stream(Stream::Step, which, |world| world.act(client, task))
    }

    fn act(&mut self, client: usize, task: usize) -> Result<(), String> {
        let working = self.phase == Phase::Working;
        let depth = self.clients[client].tasks[task].guards.len() as u64;
        if !working {
            if depth > 0 {
                self.release_some(client, task);
            }
            return Ok(());
        }
        match self.chance.below(100) {
            _ if self.plan.crowd && depth > 0 => self.release_some(client, task),
            _ if self.plan.crowd => self.acquire(client, task),
            _ if self.chance.permille(self.plan.force) => self.force(client, task),
            _ if self.plan.latch > 0 && self.chance.permille(self.plan.latch) => {
                self.use_latch(client, task);
            }
            0..=1 if self.chance.permille(self.plan.shutdown) => self.shut_down(client, task),
            2..=5 => self.inspect(client, task),
            6..=12 if depth > 0 => self.verify(client, task),
            13..=16 if depth > 0 => {
                let now = self.now;
                for guard in &self.clients[client].tasks[task].guards {
                    guard.cell.lose_if_past(now);
                }
                self.step_later(client, task);
            }
            17..=24 if self.has_read_write(client, task) => self.convert(client, task),
            17..=30 if depth > 0 => {
                let guard = self.chance.pick(&self.clients[client].tasks[task].guards).clone();
                let write = self.chance.permille(600);
                self.step_later(client, task);
                self.checker.use_resource(self.now, client, &guard.cell, write)?;
            }
            _ if depth > 0 && self.chance.permille(self.plan.long_hold) => {
                let lease = self.plan.lease_us();
                let wait = self.chance.time(lease / 4, 2 * lease);
                self.send_to_client(wait, client, Inbound::Step(task));
            }
            _ if depth == 0 || self.chance.below(10) < 4 / (1 + depth / 3) => {
                self.acquire(client, task)
            }
            _ => self.release_some(client, task),
        }
        Ok(())
    }

    fn acquire(&mut self, client: usize, task: usize) {
        let name = self.chance.pick(&self.names).clone();
        let (wait, lease, max_hold) = if self.plan.crowd {
            let wait = self.draw_crowd_wait(client, task);
            (wait, Lease::Watched(self.clients[client].config.lease), None)
        } else {
            self.draw_acquire(client, task, &name)
        };
        let at_least = self.draw_at_least().filter(|_| !name.kind().waits_per_owner());
        let owner = self.draw_owner(client, task, &name);
        let (request, share) = (RequestId(0), self.draw_share(&name));
        let upgrades = None;
        self.send_acquire(
            (client, task),
            Acquire { request, name, owner, share, lease, wait, max_hold, at_least, upgrades },
        );
    }

    fn send_acquire(&mut self, (client, task): (usize, usize), mut acquire: Acquire) {
        self.clients[client].open_acquire(task, &mut acquire);
        let request = acquire.request;
        let lazy = self.chance.permille(self.plan.lazy);
        let acquires = Some((acquire.clone(), self.now));
        self.clients[client].tasks[task].pending =
            Some(Pending { acquire: acquires, lazy, ..Pending::ask(request) });
        self.mail(client, Mail::Acquire(acquire));
        if self.chance.permille(self.plan.cancel) {
            let wait = self.chance.time(1, self.plan.lease_us());
            self.send_to_client(wait, client, Inbound::Cancel(task, request));
        }
    }

    fn has_read_write(&self, client: usize, task: usize) -> bool {
        let is_one = |guard: &Guard| guard.cell.name.kind() == Kind::ReadWrite;
        self.clients[client].tasks[task].guards.iter().any(is_one)
    }

    /// Downgrades a write, or wants to write beside a read.
    fn convert(&mut self, client: usize, task: usize) {
        let guards = &self.clients[client].tasks[task].guards;
        let of_kind = guards.iter().filter(|guard| guard.cell.name.kind() == Kind::ReadWrite);
        let Guard { level, cell, share, owner } =
            self.chance.pick(&of_kind.cloned().collect::<Vec<_>>()).clone();
        if share.exclusive > 0 {
            let hold = cell.id;
            let of_level = |request| Event::Downgrade { hold, level, request };
            self.ask(client, task, of_level);
            if let Some(pending) = &mut self.clients[client].tasks[task].pending {
                pending.downgrades = Some(level);
            }
            return;
        }
        let upgrade = Acquire {
            request: RequestId(0),
            name: cell.name.clone(),
            owner,
            share: Share::ONE,
            lease: Lease::Watched(self.clients[client].config.lease),
            wait: Wait::Once,
            max_hold: None,
            at_least: None,
            upgrades: NonZeroU64::new(cell.id),
        };
        self.send_acquire((client, task), upgrade);
    }

    /// A level that is downgraded has become a read. After an error its guard is dropped.
    fn on_downgraded(&mut self, client: usize, task: usize, level: RequestId, answer: &Answer) {
        let guards = &mut self.clients[client].tasks[task].guards;
        let Some(at) = guards.iter().position(|guard| guard.level == level) else { return };
        if matches!(answer, Answer::Done) {
            guards[at].share = Share::READ;
        } else {
            let hold = guards.remove(at).cell.id;
            self.mail(client, Mail::Release { hold, level, request: None });
        }
    }

    /// For how long the name is to stay taken at least.
    fn draw_at_least(&mut self) -> Option<LeaseMs> {
        if self.plan.at_least == 0 || !self.chance.permille(self.plan.at_least) {
            return None;
        }
        let time =
            self.chance.time(10_000, 2 * self.plan.lease_us()).max(Duration::from_millis(10));
        Some(LeaseMs::checked("at_least", time).expect("within the limits"))
    }

    fn draw_share(&mut self, name: &LockName) -> Share {
        match name.kind() {
            Kind::ReadWrite if self.chance.permille(600) => Share::READ,
            kind if kind.has_permits() => {
                let permits = if self.chance.permille(700) { 1 } else { PERMITS };
                Share::permits(permits, PERMITS)
            }
            _ => Share::ONE,
        }
    }

    fn draw_owner(&mut self, client: usize, task: usize, name: &LockName) -> OwnerKey {
        let Task { owner, steps, .. } = self.clients[client].tasks[task];
        let as_mutex = task == MUTEX && self.chance.permille(500);
        let alone = name.kind().has_permits();
        if as_mutex || alone { OwnerKey::Once(steps * 10 + task as u64) } else { owner }
    }

    fn draw_crowd_wait(&mut self, client: usize, task: usize) -> Wait {
        if !self.plan.hurried || client > 0 || task > 0 {
            Wait::Forever
        } else if self.chance.permille(500) {
            Wait::Once
        } else {
            Wait::For(self.chance.time(1, 5_000))
        }
    }

    /// How long it waits, with which lease, and how long it may hold.
    fn draw_acquire(
        &mut self,
        client: usize,
        task: usize,
        name: &LockName,
    ) -> (Wait, Lease, Option<Duration>) {
        let lease_us = self.plan.lease_us();
        let wait = if self.chance.permille(self.plan.try_lock) {
            Wait::Once
        } else if self.chance.permille(400) || self.may_block_itself(client, task, name) {
            let wait = self.chance.time(1, 2 * lease_us);
            Wait::For(if self.chance.permille(50) { Duration::ZERO } else { wait })
        } else {
            Wait::Forever
        };
        let lease = if self.chance.permille(250) {
            let fixed = self.chance.time(10_000, 2 * lease_us).max(Duration::from_millis(10));
            Lease::Fixed(LeaseMs::checked("lease", fixed).expect("within the limits"))
        } else {
            Lease::Watched(self.clients[client].config.lease)
        };
        let max_hold = if self.chance.permille(100) {
            Some(self.chance.time(10_000, 3 * lease_us).max(Duration::from_millis(10)))
        } else {
            None
        };
        (wait, lease, max_hold)
    }

    /// Whoever waits without a limit for one lock while it has another may wait forever, and a
    /// mutex for itself.
    fn may_block_itself(&self, client: usize, task: usize, name: &LockName) -> bool {
        self.clients[client].tasks[task].guards.iter().any(|guard| {
            let is_other = guard.cell.name != *name;
            task == MUTEX || is_other || name.kind().has_permits()
        })
    }

    /// Any level of any hold.
    fn release_some(&mut self, client: usize, task: usize) {
        let at = self.chance.index(self.clients[client].tasks[task].guards.len());
        let guard = self.clients[client].tasks[task].guards.remove(at);
        let (hold, level) = (guard.cell.id, guard.level);
        if self.plan.leave > 0 && self.chance.permille(self.plan.leave) {
            self.mail(client, Mail::Leave { hold, level });
            return self.step_later(client, task);
        }
        let request = if self.chance.permille(500) {
            let request = self.clients[client].open_ask(task);
            // A future of `unlock` that is dropped goes on all the same.
            if self.chance.permille(800) {
                self.clients[client].tasks[task].pending = Some(Pending::ask(request));
            } else if let Some(ask) = self.clients[client].asks.get_mut(&request) {
                ask.awaited = false;
            }
            Some(request)
        } else {
            None
        };
        self.mail(client, Mail::Release { hold, level, request });
        if self.clients[client].tasks[task].pending.is_none() {
            self.step_later(client, task);
        }
    }

    fn ask(&mut self, client: usize, task: usize, event: impl FnOnce(RequestId) -> Event) {
        let request = self.clients[client].open_ask(task);
        self.clients[client].tasks[task].pending = Some(Pending::ask(request));
        self.mail(client, Mail::Ask(request, event(request)));
    }

    fn verify(&mut self, client: usize, task: usize) {
        let guard = self.chance.pick(&self.clients[client].tasks[task].guards).clone();
        self.ask(client, task, |request| Event::Verify { hold: guard.cell.id, request });
    }

    fn inspect(&mut self, client: usize, task: usize) {
        let name = self.chance.pick(&self.names).clone();
        self.ask(client, task, |request| Event::Inspect { name, request });
    }

    fn force(&mut self, client: usize, task: usize) {
        let name = self.chance.pick(&self.names).clone();
        self.ask(client, task, |request| Event::ForceUnlock { name, from: None, request });
    }

    pub(super) fn shut_down(&mut self, client: usize, task: usize) {
        let until = self.now.plus(self.chance.time(1_000, 1_000_000));
        let request = self.clients[client].open_ask(task);
        self.mail(client, Mail::Shutdown(Event::Shutdown { until, request: Some(request) }));
    }

    /// The future of a request is polled.
    pub(super) fn on_wake(
        &mut self,
        client: usize,
        task: usize,
        request: RequestId,
    ) -> Result<(), String> {
        let to = &mut self.clients[client];
        let current = to.tasks.get(task).and_then(|task| task.pending.as_ref());
        if current.is_none_or(|pending| pending.request != request) {
            return Ok(());
        }
        let Some(ask) = to.asks.get_mut(&request) else { return Ok(()) };
        match std::mem::replace(&mut ask.slot, Slot::Taken) {
            Slot::Full(answer) => {
                let pending = to.tasks[task].pending.take();
                if let Some(level) = pending.as_ref().and_then(|pending| pending.downgrades) {
                    self.on_downgraded(client, task, level, &answer);
                } else if let Answer::Granted(cell) = answer
                    && let Some((acquire, _)) = pending.and_then(|pending| pending.acquire)
                {
                    let Acquire { share, owner, .. } = acquire;
                    to.tasks[task].guards.push(Guard { level: request, cell, share, owner });
                    self.checker.on_taken(client, request);
                    self.look_at_desk(client, task, request);
                }
                self.step_later(client, task);
            }
            Slot::Withdrawn => {
                ask.slot = Slot::Closed;
                self.ask_again(client, task);
            }
            other => ask.slot = other,
        }
        Ok(())
    }

    /// With many grants open the driver may see at any time which were picked up.
    fn look_at_desk(&mut self, client: usize, task: usize, request: RequestId) {
        let steps = self.clients[client].tasks[task].steps;
        let mut chance = self.stream(Stream::Desk, [client as u64, task as u64, steps]);
        if chance.permille(300) {
            let wait = chance.time(1, self.plan.lease_us());
            self.send_to_client(wait, client, Inbound::PickedUp(request));
        }
    }

    /// Granted, taken back, and polled after all: as the face does it.
    fn ask_again(&mut self, client: usize, task: usize) {
        let Some(pending) = self.clients[client].tasks[task].pending.take() else { return };
        let Some((mut acquire, since)) = pending.acquire else { return };
        let first = acquire.clone();
        if let Wait::For(wait) = first.wait {
            acquire.wait = Wait::For(wait.saturating_sub(self.now.since(since)));
        }
        self.clients[client].open_acquire(task, &mut acquire);
        let request = acquire.request;
        self.clients[client].tasks[task].pending =
            Some(Pending { acquire: Some((first, since)), ..Pending::ask(request) });
        self.mail(client, Mail::Acquire(acquire));
    }

    /// The future of a request is dropped.
    pub(super) fn on_cancel(
        &mut self,
        client: usize,
        task: usize,
        request: RequestId,
    ) -> Result<(), String> {
        let to = &mut self.clients[client];
        if to.tasks[task].pending.as_ref().is_none_or(|pending| pending.request != request) {
            return Ok(());
        }
        to.tasks[task].pending = None;
        if let Some(ask) = to.asks.get_mut(&request) {
            ask.slot = Slot::Closed;
        }
        self.mail(client, Mail::Cancel(request));
        self.step_later(client, task);
        Ok(())
    }
}
