//! Who wants a lock: queues and re-entries, and the ends of waits.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::owner::OwnerKey;
use crate::base::stats::add;
use crate::engine::Engine;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::engine::hold::Hold;
use crate::engine::hold::HoldState;
use crate::engine::hold::PendingOperation;
use crate::engine::name_record::NameRecord;
use crate::engine::servers::Server;
use crate::engine::timers::TimerKey;
use crate::engine::waiter::Waiter;
use crate::engine::waiter::WaiterPlace;
use crate::kinds::share::Share;

/// What is found under a name that this client uses with another kind of the same keys.
const SAME_KEYS: &str = "this client uses the name for a fair lock as well as for a plain one; \
     a plain lock does not keep its order, so use one kind for a name";

/// Who has waited so long is reported.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(10);

impl Engine {
    // ---- a new wish

    pub(super) fn on_acquire(&mut self, mut acquire: Acquire) {
        let request = acquire.request;
        if self.stopping.is_some() {
            return self.cx.fail(request, Error::closed());
        }
        if let Some(from) = acquire.upgrades {
            match self.holds.get(&from.get()) {
                // Its guard may have been given to another task.
                Some(hold) if hold.state.is_live() => acquire.owner = hold.owner,
                _ => return self.cx.fail(request, self.holds.lost_error(from.get())),
            }
        }
        if self.queues.names.has_twin(&acquire.name) {
            let name = acquire.name.to_string();
            let found = SAME_KEYS.to_owned();
            return self.cx.fail(request, Error::KeyConflict { name, found });
        }
        let name_id = self.queues.name_key(&mut self.cx, &acquire.name, acquire.owner);
        let waiter = self.new_waiter(name_id, &acquire);
        match self.own_hold(name_id, waiter.owner) {
            // Who has the exclusive share already gets another level of it.
            Some(id) if waiter.upgrades.is_some() && self.only_shares(id) => {
                self.enqueue_upgrade(name_id, request, waiter);
            }
            Some(id) if self.holds.state_of(id).is_live() => {
                // It may have run out just now.
                self.check_validity(id);
                self.join_hold(id, request, waiter);
            }
            Some(id) if matches!(self.holds.state_of(id), HoldState::Lost(_)) => {
                self.join_hold(id, request, waiter)
            }
            _ => {
                self.enqueue(name_id, request, waiter);
                if self.queues.waiters.get(&request).is_some() {
                    self.release_wanted(name_id);
                }
            }
        }
        self.queues.touch(name_id);
    }

    fn new_waiter(&self, name_id: u64, acquire: &Acquire) -> Waiter {
        // No time to wait is `try_lock`: it makes its attempt.
        let once = match acquire.wait {
            Wait::Once | Wait::Within(_) | Wait::Lead => true,
            Wait::For(wait) => wait.is_zero(),
            Wait::Forever => false,
        };
        let deadline = match acquire.wait {
            Wait::Forever => None,
            Wait::For(wait) if !once => Some(self.cx.now.plus(wait)),
            Wait::Within(limit) => Some(self.cx.attempt_deadline().min(self.cx.now.plus(limit))),
            Wait::For(_) | Wait::Once | Wait::Lead => Some(self.cx.attempt_deadline()),
        };
        Waiter {
            request: acquire.request,
            name_id,
            owner: acquire.owner,
            share: acquire.share,
            lease: acquire.lease,
            max_hold: acquire.max_hold,
            at_least: acquire.at_least,
            since: self.cx.now,
            deadline,
            once,
            leads: acquire.wait == Wait::Lead,
            upgrades: acquire.upgrades.map(NonZeroU64::get),
            ticket: 0,
            waited: false,
            late: None,
            place: WaiterPlace::Queued,
        }
    }

    /// The hold of an owner under a name, other than one that is only being attempted.
    pub(super) fn own_hold(&self, name: u64, owner: OwnerKey) -> Option<u64> {
        let holds = self.queues.names.get(&name)?.holds().filter_map(|id| self.holds.get(&id));
        let own = holds.filter(|hold| {
            let lost = matches!(hold.state, HoldState::Lost(_)) && !hold.levels.is_empty();
            hold.owner == owner && (hold.state.is_live() || lost)
        });
        // After an upgrade there are two, and the exclusive one has more rights, unless it has no
        // guard any more: then it is about to be released.
        own.max_by_key(|hold| (!hold.levels.is_empty(), hold.share.exclusive > 0))
            .map(|hold| hold.id)
    }

    /// Whether a hold is valid and has no exclusive share.
    fn only_shares(&self, id: u64) -> bool {
        let hold = self.holds.get(&id);
        hold.is_some_and(|hold| hold.state.is_live() && hold.share.exclusive == 0)
    }

    /// Becomes a further level of a hold of the same owner.
    pub(super) fn join_hold(&mut self, id: u64, request: RequestId, mut waiter: Waiter) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if matches!(hold.state, HoldState::Lost(_)) {
            let error = self.holds.reentry_lost_error(id);
            return self.cx.fail(request, error);
        }
        if hold.count_wanted() >= self.cx.config.max_hold_count as usize
            && !seeded!(HoldCountIsBounded)
        {
            let (name, limit) = (hold.lock.to_string(), self.cx.config.max_hold_count);
            return self.cx.fail(request, Error::HoldCountLimit { name, limit });
        }
        if hold.cannot_grow_by(waiter.share) {
            let name = hold.lock.to_string();
            return self.cx.fail(request, Error::WouldDeadlock { name, held: None });
        }
        if self.asks_nobody(&waiter) {
            let error = self.wait_failed(&waiter);
            return self.cx.fail(request, error);
        }
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.pending_work().todo.push_back(PendingOperation::Reenter(request));
        waiter.place = WaiterPlace::Reentering(id);
        self.start_waiting(request, waiter);
        self.advance(id);
    }

    /// It makes its attempt beside the hold of its owner, and before what waits for that to end.
    fn enqueue_upgrade(&mut self, name_id: u64, request: RequestId, mut waiter: Waiter) {
        if self.asks_nobody(&waiter) {
            let error = self.wait_failed(&waiter);
            return self.cx.fail(request, error);
        }
        if let Some(name) = self.queues.names.get_mut(&name_id) {
            name.contest_mut().was_told = false;
            name.wake();
            name.push(request, &mut waiter);
        }
        self.start_waiting(request, waiter);
    }

    fn enqueue(&mut self, name_id: u64, request: RequestId, mut waiter: Waiter) {
        let Some(name) = self.queues.names.get(&name_id) else { return };
        let wanted = waiter.needs_room_for();
        let in_the_way = self.holds.in_the_way(name, || wanted).map(Hold::is_kept);
        let (blocked, live) = (in_the_way.is_some(), in_the_way == Some(true));
        // A hold that is valid is an answer in an outage, too. Nothing else is that the server does
        // not give.
        let well = !self.is_in_trouble(name, wanted);
        let known_held = name.contest().known_held && name.has_waiters();
        let own_is_waiting = name.has_owner(waiter.owner);
        if waiter.once && (live || well && (blocked || known_held || own_is_waiting)) {
            return self.cx.answer(request, Answer::NotGranted);
        }
        if self.asks_nobody(&waiter) {
            let error = self.wait_failed(&waiter);
            return self.cx.fail(request, error);
        }
        let waiters = self.queues.shared_record_of(name_id).map_or(0, NameRecord::len);
        if waiters >= self.cx.config.max_waiters && !seeded!(QueueIsBounded) {
            let (name, limit) = (name.lock.to_string(), self.cx.config.max_waiters);
            return self.cx.fail(request, Error::TooManyWaiters { name, limit });
        }
        if let Some(name) = self.queues.names.get_mut(&name_id) {
            let behind_others = name.has_waiters();
            let contest = name.contest_mut();
            if live || (well && known_held) {
                contest.presumed_at = self.cx.now;
            } else if !blocked && !behind_others {
                // A first waiter owes nothing to what earlier ones learnt.
                contest.trouble = None;
                contest.known_held = false;
                contest.was_told = false;
                name.wake();
            }
            if blocked || (behind_others && !waiter.once) {
                waiter.waited = true;
                add(&self.cx.counters.waits, 1);
            }
            name.push(request, &mut waiter);
        }
        self.start_waiting(request, waiter);
    }

    /// A `try_lock` of which it is known that it would have no answer: nobody listens where its
    /// server should be.
    fn asks_nobody(&self, waiter: &Waiter) -> bool {
        let server = self.server_of_waiter(waiter).and_then(|id| self.cx.servers.get(id));
        waiter.once && server.is_some_and(|server| server.nobody_listens)
    }

    fn start_waiting(&mut self, request: RequestId, waiter: Waiter) {
        if let Some(deadline) = waiter.deadline {
            self.cx.timers.set(TimerKey::Request(request), deadline);
        } else {
            if self.trouble_since(&waiter).is_some() {
                self.cx.set_outage_timer(waiter.since);
            }
            if !self.outage_deadlines.is_empty() {
                self.outage_deadlines.add(waiter.since.plus(self.cx.config.outage_limit), request);
            }
        }
        self.queues.waiters.insert(waiter);
    }

    /// Answers the `try_lock`s in a queue: somebody else has it.
    pub(super) fn deny_try_locks(&mut self, name_id: u64) {
        let Some(name) = self.queues.names.get(&name_id) else { return };
        if name.contest().once == 0 {
            return;
        }
        let denied: Vec<RequestId> =
            name.waiters().filter(|request| self.queues.waiters[request].once).collect();
        for request in denied {
            self.end_wait(request, Answer::NotGranted);
        }
    }

    // ---- the end of a wait

    /// A request's time is over, or that of its wait.
    pub(super) fn on_request_over(&mut self, request: RequestId) {
        if self.queries.contains(request) {
            return self.queries.on_timer(&mut self.cx, &mut self.subscriptions, request);
        }
        if self.operations.contains(request) {
            return self.operations.on_timer(&mut self.cx, request);
        }
        if self.pauses.remove(&request) {
            return self.cx.answer(request, Answer::Done);
        }
        if self.watchdog.is_verifying(request) {
            return self.watchdog.on_verification_over(&mut self.cx, &mut self.holds, request);
        }
        let Some(waiter) = self.queues.waiters.get(&request) else { return };
        let answer = if self.was_answered(waiter) {
            Answer::NotGranted
        } else {
            Answer::Failed(self.wait_failed(waiter))
        };
        self.end_wait(request, answer);
    }

    /// Whether a wait that is over has had an answer: the server said within it that the lock is
    /// held, or a hold of this client was in the way. The latter counts for as long as that hold is
    /// valid, and afterwards only if the server is well: else nobody may hold the lock, and nobody
    /// was asked.
    fn was_answered(&self, waiter: &Waiter) -> bool {
        let Some(name) =
            self.queues.names.get(&waiter.name_id).filter(|_| waiter.place == WaiterPlace::Queued)
        else {
            return false;
        };
        let presumed = || {
            name.contest().was_presumed_since(waiter.since)
                && !self.is_in_trouble(name, waiter.needs_room_for())
        };
        match self.holds.in_the_way(name, || waiter.needs_room_for()) {
            Some(hold) if hold.is_kept() => true,
            Some(_) => presumed(),
            None => name.contest().was_refused_since(waiter.since) || presumed(),
        }
    }

    /// Whether the server is known to be away, or to answer nothing of what was sent for this name.
    fn is_in_trouble(&self, name: &NameRecord, wanted: Option<Share>) -> bool {
        let well = |server: &Server| server.is_up() && server.outage_since().is_none();
        let attempts_fail = name.has_waiters() && name.contest().trouble.is_some();
        !self.cx.servers.of(&name.lock).is_some_and(well)
            || attempts_fail
            || self.release_trouble(name, wanted).is_some()
    }

    /// What the release has met that is in the way of this share.
    pub(super) fn release_trouble(&self, name: &NameRecord, wanted: Option<Share>) -> Option<&str> {
        self.holds.in_the_way(name, || wanted)?.release().last_failure.as_deref()
    }

    /// Takes a waiter out and answers it.
    pub(super) fn end_wait(&mut self, request: RequestId, answer: Answer) {
        if self.forget_waiter(request) {
            self.cx.answer(request, answer);
        }
    }

    /// Takes a waiter out, with whatever it had under way; the role it had passes on.
    pub(super) fn forget_waiter(&mut self, request: RequestId) -> bool {
        let Some(waiter) = self.queues.waiters.remove(&request) else { return false };
        self.cx.timers.clear(TimerKey::Request(request));
        match waiter.place {
            WaiterPlace::Queued => {
                self.queues.leave_queue(waiter.name_id, &waiter);
                self.abandon_attempt(request, &waiter);
            }
            WaiterPlace::Reentering(hold) => self.holds.abandon_reentry(hold, request),
        }
        true
    }

    /// A contender left. A waiter of the same owner takes its place in the queue. The grant of an
    /// attempt on the wire goes to that one if it wants the same, and otherwise is given back. What
    /// is not on the wire goes to the next contender, whoever it is.
    fn abandon_attempt(&mut self, request: RequestId, waiter: &Waiter) {
        let Some(name) = self.queues.names.get(&waiter.name_id) else { return };
        let attempt = self.holds.acquiring(name).find(|hold| hold.taker() == Some(request));
        let attempt = attempt.map(|hold| hold.id);
        let follower = if name.has_owner(waiter.owner) {
            name.waiters().find(|other| self.queues.waiters[other].owner == waiter.owner)
        } else {
            None
        };
        if let Some(follower) = follower {
            if let (Some(name), Some(next)) =
                (self.queues.names.get_mut(&waiter.name_id), self.queues.waiters.get_mut(&follower))
            {
                name.take_place(follower, next, waiter.ticket.min(next.ticket));
            }
        }
        let heir = follower.filter(|follower| {
            let next = &self.queues.waiters[follower];
            let ends = (next.max_hold, next.at_least);
            let wants = (next.share, next.lease);
            wants == (waiter.share, waiter.lease) && ends == (waiter.max_hold, waiter.at_least)
        });
        if let Some(hold) = attempt.and_then(|id| self.holds.get_mut(&id)) {
            hold.set_taker(heir);
        }
    }

    pub(super) fn on_cancel(&mut self, request: RequestId) {
        if self.forget_waiter(request)
            || self.watching.cancel(&mut self.cx, request)
            || self.pauses.remove(&request)
            || self.queries.end(&mut self.cx, &mut self.subscriptions, request).is_some()
            || self.watchdog.forget_verification(request)
        {
            self.cx.timers.clear(TimerKey::Request(request));
            return;
        }
        self.ready.retain(|other| *other != request);
        if let Some(&hold) = self.holds.granted.get(&request) {
            self.undo_level(hold, request);
        }
    }

    /// Ends the wait of everybody in a queue: trying again would give each the same error.
    pub(super) fn fail_waiters(&mut self, name_id: u64, error: impl Fn(&Self, Moment) -> Error) {
        let Some(name) = self.queues.names.get(&name_id) else { return };
        for request in name.waiters().collect::<Vec<_>>() {
            let error = error(self, self.queues.waiters[&request].since);
            self.end_wait(request, Answer::Failed(error));
        }
    }

    // ---- a parent that joins its child while holding

    pub(super) fn watch_self_wait(&mut self, name_id: u64, hold: u64, contender: RequestId) {
        let (Some(hold), Some(waiter)) =
            (self.holds.get(&hold), self.queues.waiters.get(&contender))
        else {
            return;
        };
        if !hold.self_wait_reported && hold.state.is_live() {
            let at = hold.begun.max(waiter.since).plus(LONG_WAIT);
            self.cx.timers.set(TimerKey::SelfWait(name_id), at);
        }
    }

    pub(super) fn on_self_wait(&mut self, name_id: u64) {
        let Some(name) = self.queues.names.get(&name_id) else { return };
        let Some(contender) = name.contender() else { return };
        let waiter = &self.queues.waiters[&contender];
        let (since, wanted) = (waiter.since, waiter.needs_room_for());
        let Some(id) = self.holds.in_the_way(name, || wanted).map(|hold| hold.id) else { return };
        let lock = name.lock.clone();
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if self.cx.now.since(hold.begun.max(since)) < LONG_WAIT {
            return self.queues.touch(name_id);
        }
        if !std::mem::replace(&mut hold.self_wait_reported, true) {
            self.cx.report(Report::WaitingOnSelf { name: lock, hold: id });
        }
    }
}
