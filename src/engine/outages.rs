//! Outages: how long waiters bear them, and in which words they end.

use std::time::Duration;

use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::engine::Engine;
use crate::engine::event::Answer;
use crate::engine::event::RequestId;
use crate::engine::queue::Trouble;
use crate::engine::queue::Waiter;
use crate::engine::queue::WaiterPlace;
use crate::engine::servers::Server;
use crate::engine::timers::TimerKey;

impl Engine {
    /// Since when nothing good was heard of what this waiter wants: from the server, or about its name alone.
    pub(super) fn trouble_since(&self, waiter: &Waiter) -> Option<Moment> {
        let own = self.trouble_of(waiter).map(|trouble| trouble.since);
        let of_server = self.server_of_waiter(waiter).and_then(|id| self.cx.servers.get(id)?.outage_since());
        [of_server, own].into_iter().flatten().min()
    }

    pub(super) fn server_of_waiter(&self, waiter: &Waiter) -> Option<ServerId> {
        Some(self.cx.servers.id_of(&self.queues.names.get(&waiter.name)?.lock))
    }

    fn trouble_of<'a>(&'a self, waiter: &'a Waiter) -> Option<&'a Trouble> {
        match waiter.place {
            WaiterPlace::Queued => {
                let of_all = || self.queues.names.get(&waiter.name)?.contest().trouble.as_deref();
                waiter.late.as_deref().or_else(of_all)
            }
            WaiterPlace::Reentering(hold) => self.holds.get(&hold)?.trouble(),
        }
    }

    /// As long as a release is not confirmed, nothing is sent for those who wait behind it: what it
    /// has met is what they wait for.
    fn release_in_the_way_of(&self, waiter: &Waiter) -> Option<String> {
        let name = self.queues.names.get(&waiter.name).filter(|_| waiter.place == WaiterPlace::Queued)?;
        let words = self.release_trouble(name)?;
        Some(format!("this client's release of the lock is not confirmed: {words}"))
    }

    /// The error of a wait that is over, in the words of what it met last.
    pub(super) fn wait_failed(&self, waiter: &Waiter) -> Error {
        let own = self.trouble_of(waiter).map(|trouble| trouble.words.clone());
        let own = own.or_else(|| self.release_in_the_way_of(waiter));
        let server = self.server_of_waiter(waiter).unwrap_or(ServerId::ONLY);
        let cause = own.unwrap_or_else(|| self.cx.servers.last_trouble(server));
        Error::Unavailable { name: None, waited: self.cx.now.since(waiter.since), cause }
    }

    /// Ends the waits without a limit of their own that went on for `outage_limit` without a good answer.
    pub(super) fn on_outage_timer(&mut self) {
        if self.patience.is_empty() {
            self.look_at_waits();
        }
        let (mut over, mut trouble) = (Vec::new(), false);
        while let Some(request) = self.patience.pop(self.cx.now) {
            match self.patience_of(request) {
                Some((at, true)) if at <= self.cx.now => over.push(request),
                Some((at, in_trouble)) => {
                    trouble |= in_trouble;
                    self.patience.add(at, request);
                }
                None => {}
            }
        }
        trouble |= !over.is_empty();
        for request in over {
            if let Some(waiter) = self.queues.waiters.get(&request) {
                let error = self.wait_failed(waiter);
                self.end_wait(request, Answer::Failed(error));
            }
        }
        if !trouble && self.cx.now >= self.patience.made.plus(self.now_and_then()) {
            self.look_at_waits();
        }
        let unlocks = self.end_unlocks();
        if let Some(at) = [self.patience.next(), unlocks].into_iter().flatten().min() {
            self.cx.timers.set(TimerKey::Outage, at);
        }
    }

    /// Looking at everything at every instant at which somebody's limit is over would be too much.
    fn now_and_then(&self) -> Duration {
        (self.cx.config.outage_limit / 32).max(Duration::from_millis(1))
    }

    /// Begins to watch the waits, if there is trouble anywhere.
    fn look_at_waits(&mut self) {
        let limit = |request| self.patience_of(request).map(|(at, trouble)| (at, request, trouble));
        let open: Vec<_> = self.queues.waiters.ids(|_| true).into_iter().filter_map(limit).collect();
        let trouble = open.iter().any(|(_, _, trouble)| *trouble);
        let watched = open.into_iter().filter(|_| trouble).map(|(at, request, _)| (at, request));
        self.patience.make(self.cx.now, watched);
    }

    /// The earliest instant at which a wait without a limit of its own may end, and whether there is trouble already.
    fn patience_of(&self, request: RequestId) -> Option<(Moment, bool)> {
        let limit = self.cx.config.outage_limit;
        let limit = if seeded!(OutageHasALimit) { 100 * limit } else { limit };
        let waiter = self.queues.waiters.get(&request).filter(|waiter| waiter.deadline.is_none())?;
        Some(match self.trouble_since(waiter) {
            Some(trouble) => (trouble.max(waiter.since).plus(limit), true),
            None => (self.cx.now.plus(self.no_trouble_for()), false),
        })
    }

    /// No wait ends sooner than this from now on for trouble that is not known yet: what has no answer yet was sent at most
    /// a command timeout ago. Where that is nearly all of the limit or more, some may end a quarter of it late.
    fn no_trouble_for(&self) -> Duration {
        let limit = self.cx.config.outage_limit;
        limit.saturating_sub(self.cx.config.command_timeout).max(limit / 4).max(Duration::from_millis(1))
    }

    /// Nobody waits for a release any longer than for a lock; it goes on without them. Says when to look again.
    fn end_unlocks(&mut self) -> Option<Moment> {
        let again = self.patience.unlocks.plus(self.now_and_then());
        if self.cx.now < again {
            return Some(again);
        }
        self.patience.unlocks = self.cx.now;
        let (now, limit) = (self.cx.now, self.cx.config.outage_limit);
        let mut next: Option<Moment> = None;
        for id in self.holds.ids(|_| true) {
            let Some(hold) = self.holds.get_mut(&id) else { continue };
            let server = self.cx.servers.id_of(&hold.lock);
            let Some(outage) = self.cx.servers.get(server).and_then(Server::outage_since) else { continue };
            let over = hold.take_unlocks(|unlock| {
                let end = outage.max(unlock.since).plus(limit);
                if end > now {
                    next = Some(next.map_or(end, |next| next.min(end)));
                }
                end <= now
            });
            for unlock in over {
                let error = self.cx.unavailable(unlock.since, server);
                self.cx.fail(unlock.request, error);
            }
        }
        next
    }
}
