//! Outages: how long waiters wait for a server that does not answer, and the errors in which they
//! end.

use std::time::Duration;

use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::engine::Engine;
use crate::engine::event::Answer;
use crate::engine::event::RequestId;
use crate::engine::servers::Server;
use crate::engine::timers::TimerKey;
use crate::engine::waiter::Trouble;
use crate::engine::waiter::Waiter;
use crate::engine::waiter::WaiterPlace;

impl Engine {
    /// Since when there has been no good answer for this waiter, either from the server or about
    /// its name.
    pub(super) fn trouble_since(&self, waiter: &Waiter) -> Option<Moment> {
        let own = self.trouble_of(waiter).map(|trouble| trouble.since);
        let of_server =
            self.server_of_waiter(waiter).and_then(|id| self.cx.servers.get(id)?.outage_since());
        [of_server, own].into_iter().flatten().min()
    }

    pub(super) fn server_of_waiter(&self, waiter: &Waiter) -> Option<ServerId> {
        Some(self.cx.servers.id_of(&self.queues.names.get(&waiter.name_id)?.lock))
    }

    fn trouble_of<'a>(&'a self, waiter: &'a Waiter) -> Option<&'a Trouble> {
        match waiter.place {
            WaiterPlace::Queued => {
                let of_all =
                    || self.queues.names.get(&waiter.name_id)?.contest().trouble.as_deref();
                waiter.late.as_deref().or_else(of_all)
            }
            WaiterPlace::Reentering(hold) => self.holds.get(&hold)?.trouble(),
        }
    }

    /// While a release is not confirmed, nothing is sent for the waiters behind it, so its trouble
    /// is what they wait for.
    fn blocking_release_trouble(&self, waiter: &Waiter) -> Option<String> {
        let name = self
            .queues
            .names
            .get(&waiter.name_id)
            .filter(|_| waiter.place == WaiterPlace::Queued)?;
        let words = self.release_trouble(name, waiter.needs_room_for())?;
        Some(format!("this client's release of the lock is not confirmed: {words}"))
    }

    /// The error of a wait that is over, with the last thing that went wrong.
    pub(super) fn wait_failed(&self, waiter: &Waiter) -> Error {
        let own = self.trouble_of(waiter).map(|trouble| trouble.words.clone());
        let own = own.or_else(|| self.blocking_release_trouble(waiter));
        let server = self.server_of_waiter(waiter).unwrap_or(ServerId::ONLY);
        let cause = own.unwrap_or_else(|| self.cx.servers.last_trouble(server));
        Error::Unavailable { name: None, waited: self.cx.now.since(waiter.since), cause }
    }

    /// Ends the waits without a limit of their own that have gone on for `outage_limit` without a
    /// good answer.
    pub(super) fn on_outage_timer(&mut self) {
        if self.outage_deadlines.is_empty() {
            self.watch_waits();
        }
        let (mut over, mut trouble) = (Vec::new(), false);
        while let Some(request) = self.outage_deadlines.pop(self.cx.now) {
            match self.outage_deadline_of(request) {
                Some((at, true)) if at <= self.cx.now => over.push(request),
                Some((at, in_trouble)) => {
                    trouble |= in_trouble;
                    self.outage_deadlines.add(at, request);
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
        if !trouble && self.cx.now >= self.outage_deadlines.made.plus(self.look_interval()) {
            self.watch_waits();
        }
        let unlocks = self.end_waits_for_releases();
        let watches = self.watching.end_by_outage(&mut self.cx);
        let next = [self.outage_deadlines.next(), unlocks, watches];
        if let Some(at) = next.into_iter().flatten().min() {
            self.cx.timers.set(TimerKey::Outage, at);
        }
    }

    /// How often all waits are looked at: doing this whenever the limit of one of them is reached
    /// would cost too much.
    fn look_interval(&self) -> Duration {
        (self.cx.config.outage_limit / 32).max(Duration::from_millis(1))
    }

    /// Starts to watch all waits if any of them is in trouble.
    fn watch_waits(&mut self) {
        let limit =
            |request| self.outage_deadline_of(request).map(|(at, trouble)| (at, request, trouble));
        let open: Vec<_> =
            self.queues.waiters.ids(|_| true).into_iter().filter_map(limit).collect();
        let trouble = open.iter().any(|(_, _, trouble)| *trouble);
        let watched = open.into_iter().filter(|_| trouble).map(|(at, request, _)| (at, request));
        self.outage_deadlines.make(self.cx.now, watched);
    }

    /// The earliest instant at which a wait without a limit of its own may end, and whether it is
    /// in trouble already.
    fn outage_deadline_of(&self, request: RequestId) -> Option<(Moment, bool)> {
        let limit = self.cx.config.outage_limit;
        let limit = if seeded!(OutageHasALimit) { 100 * limit } else { limit };
        let waiter =
            self.queues.waiters.get(&request).filter(|waiter| waiter.deadline.is_none())?;
        Some(match self.trouble_since(waiter) {
            Some(trouble) => (trouble.max(waiter.since).plus(limit), true),
            None => (self.cx.now.plus(self.calm_interval()), false),
        })
    }

    /// How long no wait can end because of trouble that is not known yet: a command without an
    /// answer was sent at most a command timeout ago. If that is nearly all of the limit or more,
    /// some waits may end a quarter of the limit late.
    fn calm_interval(&self) -> Duration {
        let limit = self.cx.config.outage_limit;
        limit
            .saturating_sub(self.cx.config.command_timeout)
            .max(limit / 4)
            .max(Duration::from_millis(1))
    }

    /// Ends the waits for releases by the same limit; the releases go on. Returns when to look
    /// again.
    fn end_waits_for_releases(&mut self) -> Option<Moment> {
        let again = self.outage_deadlines.unlocks.plus(self.look_interval());
        if self.cx.now < again {
            return Some(again);
        }
        self.outage_deadlines.unlocks = self.cx.now;
        let (now, limit) = (self.cx.now, self.cx.config.outage_limit);
        let mut next: Option<Moment> = None;
        for id in self.holds.ids(|_| true) {
            let Some(hold) = self.holds.get_mut(&id) else { continue };
            let server = self.cx.servers.id_of(&hold.lock);
            let Some(outage) = self.cx.servers.get(server).and_then(Server::outage_since) else {
                continue;
            };
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
