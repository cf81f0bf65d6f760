//! A hold while it is held: its levels, its validity, and its loss.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::stats::add;
use crate::base::stats::add_time;
use crate::engine::Engine;
use crate::engine::event::Answer;
use crate::engine::event::Fate;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::hold::Hold;
use crate::engine::hold::HoldState;
use crate::engine::hold::Input;
use crate::engine::hold::PendingOperation;
use crate::engine::hold::PendingWork;
use crate::engine::hold::Sending;
use crate::engine::hold::Unlock;
use crate::engine::pending::Answered;
use crate::engine::pending::Op;
use crate::engine::timers::TimerKey;
use crate::engine::waiter::TOO_LATE;
use crate::engine::waiter::Trouble;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::command::WaitMode;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;

/// If the key expires within this time after its hold has ended, it is not deleted.
const SOON: Duration = Duration::from_secs(1);

impl Engine {
    // ---- one level ends

    pub(super) fn on_release(&mut self, id: u64, level: RequestId, request: Option<RequestId>) {
        self.holds.granted.remove(&level);
        let Some(hold) = self.holds.get_mut(&id) else {
            return self.answer_all(request, |_| Answer::Failed(Error::closed()));
        };
        let removed = hold.remove_level(level);
        self.kept.give_up(id, level);
        if !hold.state.is_live() {
            let error = self.holds.lost_error(id);
            self.answer_all(request, |_| Answer::Failed(error.clone()));
            return self.drop_if_lost(id);
        }
        if let Some(removed) = removed {
            let unlock = request.map(|request| Unlock { request, since: self.cx.now });
            let last = hold.levels.is_empty() && hold.is_at_rest();
            if !last {
                hold.pending_work().todo.push_back(PendingOperation::LowerCount(unlock));
            }
            let unwatched = removed.watched && !hold.is_watched();
            let lock = request.is_some().then(|| hold.lock.clone());
            lock.inspect(|lock| self.bear_outage_of(lock));
            if last {
                // The usual end of a hold: the last release starts at once and is not queued.
                return self.start_release_of(id, Some(PendingOperation::LowerCount(unlock)));
            }
            if unwatched {
                if let Some(hold) = self.holds.get_mut(&id).filter(|_| !seeded!(RenewalsEndFirst)) {
                    self.watchdog.schedule.remove(hold);
                }
                self.watchdog.verify_if_asked(&self.cx, &mut self.holds, id);
                self.holds.set_hold_clock(&mut self.cx, id);
            }
        }
        self.advance(id);
    }

    /// Undoes a level that no caller took. It leaves no `max_hold` end behind.
    pub(super) fn undo_level(&mut self, id: u64, level: RequestId) {
        add(&self.cx.counters.undone_grants, 1);
        self.kept.undo(id, level);
        let now = self.cx.now;
        if self.holds.get_mut(&id).is_some_and(|hold| hold.forget_end(level, now)) {
            self.holds.note_max_hold(&self.cx, id);
            self.watchdog.arm_first(&self.cx, &mut self.holds, id);
            self.holds.set_hold_clock(&mut self.cx, id);
        }
        self.on_release(id, level, None);
    }

    /// Removes a lost hold once its last guard is gone. Until then its owner gets errors and no new
    /// hold.
    fn drop_if_lost(&mut self, id: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        if matches!(hold.state, HoldState::Lost(_))
            && hold.levels.is_empty()
            && hold.sending.is_none()
        {
            self.drop_hold(id);
        }
    }

    fn answer_all(
        &mut self,
        requests: impl IntoIterator<Item = RequestId>,
        answer: impl Fn(RequestId) -> Answer,
    ) {
        for request in requests {
            self.cx.answer(request, answer(request));
        }
    }

    /// A level keeps a shared share instead of an exclusive one. That ends its right to the latter at
    /// once.
    pub(super) fn on_downgrade(&mut self, id: u64, level: RequestId, request: RequestId) {
        let Some(hold) = self.holds.get_mut(&id).filter(|hold| hold.state.is_live()) else {
            let error = self.holds.lost_error(id);
            return self.cx.fail(request, error);
        };
        if let Some(level) = hold.levels.iter_mut().find(|known| known.request == level) {
            level.share = level.share.downgraded();
        }
        let unlock = Unlock { request, since: self.cx.now };
        hold.pending_work().todo.push_back(PendingOperation::LowerCount(Some(unlock)));
        let lock = hold.lock.clone();
        self.bear_outage_of(&lock);
        self.advance(id);
    }

    /// A caller waits for an answer about this lock from now on: not for longer than an outage of its
    /// server is borne.
    fn bear_outage_of(&mut self, lock: &LockName) {
        if self.cx.servers.of(lock).is_some_and(|server| server.outage_since().is_some()) {
            self.cx.set_outage_timer(self.cx.now);
        }
    }

    // ---- one command after the other

    /// Sends the next command of a hold, if none is on the wire.
    pub(super) fn advance(&mut self, id: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if (hold.sending.is_some() && !seeded!(OneCommandAtATime)) || !hold.state.is_live() {
            return;
        }
        if hold.levels.is_empty() {
            return self.start_release(id);
        }
        if self.cx.timers.is_set(TimerKey::HoldRetry(id)) || !self.cx.servers.is_up(&hold.lock) {
            return;
        }
        let next = hold.todo().next();
        match next {
            Some(PendingOperation::Reenter(request)) => self.send_reentry(id, request),
            Some(PendingOperation::LowerCount(_)) => self.send_lower_count(id),
            None => hold.tidy(),
        }
    }

    pub(super) fn on_hold_retry(&mut self, id: u64) {
        if self.holds.state_of(id) == HoldState::Releasing {
            self.send_release(id);
        } else {
            self.advance(id);
        }
    }

    // ---- re-entry

    fn send_reentry(&mut self, id: u64, request: RequestId) {
        let Some(waiter) = self.queues.waiters.get(&request).cloned() else {
            self.holds.forget_todo(id, request);
            return self.advance(id);
        };
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let to = self.cx.servers.id_of(&hold.lock);
        if !self.cx.servers.is_usable(&hold.lock) {
            return self.cx.ask_clock(to);
        }
        hold.pending_work().todo.pop_front();
        if hold.cannot_grow_by(waiter.share) {
            let name = hold.lock.to_string();
            self.end_wait(request, Answer::Failed(Error::WouldDeadlock { name, held: None }));
            return self.advance(id);
        }
        let own_end = waiter.max_hold.map(|limit| hold.begun.plus(limit));
        if own_end.is_some_and(|end| end <= self.cx.now) {
            let error =
                max_hold_over(waiter.max_hold.unwrap_or_default(), self.cx.now.since(hold.begun));
            self.end_wait(request, Answer::Failed(error));
            return self.advance(id);
        }
        let end = [hold.max_end(), own_end].into_iter().flatten().min();
        let limit = self
            .cx
            .now
            .plus(self.cx.config.command_timeout)
            .min(waiter.deadline.unwrap_or(Moment::NEVER));
        let round_trip = self.cx.servers.round_trip(&hold.lock);
        let (deadline, lease) =
            Hold::within_max_hold(self.cx.now, limit, waiter.lease.length(), end, round_trip);
        let share = hold.share_of_levels().plus(waiter.share);
        let ttl = lease.or_longer(waiter.at_least);
        hold.key_end = hold.key_end.max(deadline.plus(ttl.longest()));
        let name = hold.lock.clone();
        let latest = deadline.min(self.cx.now.plus(lease.duration()));
        let Some(not_after) = self.cx.servers.time_of(&name, latest) else { return };
        let line = self.cx.has_line(&name) && self.names_line_in_vain();
        let Some((name_id, field)) =
            self.holds.get(&id).map(|hold| (hold.name_id, self.cx.field_of(hold)))
        else {
            return;
        };
        let passes_on = name.kind().first_attempt_passes_on();
        let announce = passes_on.then(|| self.announce(Some(name_id), &name));
        let command = Command::Acquire {
            name,
            field,
            share,
            lease: ttl,
            not_after,
            line,
            wait: WaitMode::Try,
            announce,
            told: Box::default(),
        };
        self.cx.send(Op::Reenter { hold: id, lease }, to, command, deadline, not_after);
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.sending = Some(Sending::Reenter { request, abandoned: false });
        }
        if ttl > lease {
            self.expect_longer_life(id);
        }
    }

    /// Ends those at a server that were not sent.
    pub(super) fn refuse_reentries(&mut self, server: ServerId, failure: &Failure) {
        for id in self.holds.at(&self.cx, server) {
            let Some(hold) = self.holds.get(&id) else { continue };
            let waiting = hold.todo().filter_map(|todo| match todo {
                PendingOperation::Reenter(request) => Some(request),
                PendingOperation::LowerCount(_) => None,
            });
            for request in waiting.collect::<Vec<_>>() {
                let since =
                    self.queues.waiters.get(&request).map_or(self.cx.now, |waiter| waiter.since);
                self.end_wait(request, Answer::Failed(self.cx.error_of(failure, since)));
            }
        }
    }

    pub(super) fn on_reenter_reply(
        &mut self,
        id: u64,
        lease: LeaseMs,
        answered: Answered,
        outcome: Outcome<Reply>,
    ) {
        let sent = answered.sent;
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let Some(Sending::Reenter { request, abandoned }) = hold.sending.take() else { return };
        if !hold.state.is_live() {
            return self.drop_if_lost(id);
        }
        // Pending again until the answer is handled: a loss ends all pending operations.
        hold.pending_work().todo.push_front(PendingOperation::Reenter(request));
        match outcome {
            Outcome::Done(Reply { body: Body::Acquire(Acquired::Granted { .. }), .. }) => {
                hold.failures = 0;
                hold.pending_work().trouble = None;
                self.on_level_granted(id, request, abandoned, lease, answered);
            }
            Outcome::Done(Reply { body: Body::Acquire(Acquired::Gone), .. }) => self.lose_gone(id),
            Outcome::Done(Reply { body: Body::Acquire(Acquired::Late), .. }) => {
                if hold.failures > 0 {
                    Trouble::note(&mut hold.pending_work().trouble, sent, TOO_LATE.to_owned());
                    self.cx.set_outage_timer(sent);
                    self.holds.retry_hold(&mut self.cx, id);
                } else {
                    hold.failures = 1;
                }
            }
            // The key exists and is not ours.
            Outcome::Done(_) => self.lose_foreign(id),
            Outcome::NotExecuted(failure) if !failure.kind.is_transient() => {
                let since =
                    self.queues.waiters.get(&request).map_or(self.cx.now, |waiter| waiter.since);
                let error = self.cx.error_of(&failure, since);
                self.holds.forget_todo(id, request);
                self.end_wait(request, Answer::Failed(error));
            }
            Outcome::Unknown(_) if abandoned => {
                self.holds.forget_todo(id, request);
                self.holds.lower_count_later(id);
            }
            // The same command is sent again, which is safe because it contains the wanted count
            // and no increment.
            Outcome::NotExecuted(failure) | Outcome::Unknown(failure) => {
                Trouble::note(&mut hold.pending_work().trouble, sent, failure.message);
                self.cx.set_outage_timer(sent);
                self.holds.retry_hold(&mut self.cx, id);
            }
        }
        self.advance(id);
    }

    fn on_level_granted(
        &mut self,
        id: u64,
        request: RequestId,
        abandoned: bool,
        lease: LeaseMs,
        answered: Answered,
    ) {
        if !self.note_confirmed(id, lease, answered.sent) {
            return;
        }
        self.add_level(id, request, abandoned, lease, answered);
        // An earlier renewal that was due stays due. Near the end that `max_hold` sets, renewals
        // may have stopped; the new level may need them again.
        self.watchdog.arm_first(&self.cx, &mut self.holds, id);
        self.holds.set_hold_clock(&mut self.cx, id);
    }

    /// Gives a confirmed level to its caller, unless the caller is gone or the end of the level's
    /// own `max_hold` has passed.
    fn add_level(
        &mut self,
        id: u64,
        request: RequestId,
        abandoned: bool,
        lease: LeaseMs,
        answered: Answered,
    ) {
        let Some(begun) = self.holds.get(&id).map(|hold| hold.begun) else { return };
        let limit = self.queues.waiters.get(&request).and_then(|waiter| waiter.max_hold);
        let own_end = limit.map(|limit| begun.plus(limit));
        if own_end.is_some_and(|end| self.cx.now >= end) {
            // The end of its own `max_hold` has passed before the answer came. The re-entry stays
            // pending and is then refused.
            return self.holds.lower_count_later(id);
        }
        self.holds.forget_todo(id, request);
        let waiter = if abandoned { None } else { self.queues.waiters.remove(&request) };
        let Some(waiter) = waiter else { return self.holds.lower_count_later(id) };
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.add_level(request, waiter.share, waiter.lease.is_watched(), own_end);
        hold.share = hold.share.plus(waiter.share);
        if lease >= self.cx.config.lease {
            hold.renewed_at = hold.renewed_at.max(answered.sent);
        }
        let Some(mut cell) = hold.cell().cloned() else { return };
        if seeded!(ReentryKeepsToken) {
            cell = Arc::new(HoldCell::new(
                cell.name.clone(),
                id,
                cell.token() + 1,
                cell.valid_until(),
            ));
            cell.set_count(hold.count());
        }
        self.holds.note_max_hold(&self.cx, id);
        self.keep_at_least(id, request, waiter.at_least, answered);
        add(&self.cx.counters.reentries, 1);
        self.cx.answer(request, Answer::Granted(cell));
        self.holds.granted.insert(request, id);
        self.holds.set_offer_timer(&mut self.cx, id);
    }

    // ---- a smaller count on the server

    /// Whether a command names the line although it does nothing with it. It does where commands may
    /// go in one batch, which has commands of one form only; but not in a cluster, where each
    /// further key can be out of reach while a slot is being moved.
    fn names_line_in_vain(&self) -> bool {
        self.cx.servers.is_one()
    }

    /// Sends one command for all levels that were released so far: it contains the remaining count.
    fn send_lower_count(&mut self, id: u64) {
        let mut announce = match self.holds.get(&id) {
            Some(hold) => self.announce(Some(hold.name_id), &hold.lock),
            None => return,
        };
        announce.line &= self.names_line_in_vain();
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let PendingWork { todo, lowering, .. } = hold.pending_work();
        todo.retain(|todo| match todo {
            PendingOperation::LowerCount(unlock) => {
                lowering.push(*unlock);
                false
            }
            PendingOperation::Reenter(_) => true,
        });
        let (name, share) = (hold.lock.clone(), hold.share_of_levels());
        let to = self.cx.servers.id_of(&name);
        let field = self.cx.field_of(hold);
        let deadline = self.cx.attempt_deadline();
        let mut ends_earlier = false;
        let command = if name.kind().lets_others_in(hold.share, share) {
            // The others are in the line, which the command above named only in vain.
            announce.line = self.cx.has_line(&name);
            hold.key_end = hold.key_end.max(deadline.plus(hold.ttl.longest()));
            let lease = self.cx.lease_beside_redisson(&name, share, hold.ttl);
            ends_earlier = lease < hold.ttl;
            if ends_earlier {
                hold.ttl = lease;
                let end = self.cx.now.plus(lease.validity());
                hold.cell().inspect(|cell| cell.cap(end));
            }
            Command::Downgrade { name, field, share, lease, announce }
        } else {
            announce.alone = hold.share.shared == 0;
            Command::Release { name, field, share, announce, undo: false }
        };
        self.cx.send(Op::LowerCount { hold: id }, to, command, deadline, ServerTime(0));
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.sending = Some(Sending::LowerCount);
        }
        if ends_earlier {
            self.holds.set_hold_clock(&mut self.cx, id);
        }
    }

    pub(super) fn on_lower_count_reply(&mut self, id: u64, outcome: Outcome<Reply>) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if hold.sending.take() != Some(Sending::LowerCount) {
            return;
        }
        let unlocks = hold.take_lowering();
        let live = hold.state.is_live();
        let lets_others_in = hold.lock.kind().lets_others_in(hold.share, hold.share_of_levels());
        let waiting = unlocks.iter().flatten().map(|unlock| unlock.request);
        match outcome {
            _ if !live => {
                let error = self.holds.lost_error(id);
                self.answer_all(waiting, |_| Answer::Failed(error.clone()));
            }
            Outcome::Done(Reply { body: Body::Release(Released::CountSet), .. }) => {
                hold.failures = 0;
                let smaller = |todo| matches!(todo, PendingOperation::LowerCount(_));
                if !hold.todo().any(smaller) {
                    hold.share = hold.share_of_levels();
                }
                self.answer_all(waiting, |_| Answer::Done);
            }
            Outcome::Done(reply) => {
                if matches!(reply.body, Body::Release(Released::Gone)) {
                    self.lose_gone(id);
                } else {
                    self.lose_foreign(id);
                }
                let error = self.holds.lost_error(id);
                self.answer_all(waiting, |_| Answer::Failed(error.clone()));
            }
            // The server's count is only informative. The next command that gets memory corrects
            // it.
            Outcome::NotExecuted(failure)
                if failure.kind == FailureKind::OutOfMemory && !lets_others_in =>
            {
                self.answer_all(waiting, |_| Answer::Done);
            }
            Outcome::NotExecuted(failure) if !failure.kind.is_transient() => {
                let error = self.cx.error_of(&failure, self.cx.now);
                self.answer_all(waiting, |_| Answer::Failed(error.clone()));
            }
            Outcome::NotExecuted(_) | Outcome::Unknown(_) => {
                hold.pending_work()
                    .todo
                    .extend(unlocks.into_iter().map(PendingOperation::LowerCount));
                self.holds.retry_hold(&mut self.cx, id);
            }
        }
        self.drop_if_lost(id);
        self.advance(id);
    }

    // ---- validity

    /// Records that the server has confirmed the hold, in reply to a command that was sent at
    /// `sent` and set at least this lease. Returns false if the validity had already ended, in
    /// which case the hold is lost. After true, the caller sets the hold's clock.
    pub(super) fn note_confirmed(&mut self, id: u64, lease: LeaseMs, sent: Moment) -> bool {
        let Some(hold) = self.holds.get_mut(&id) else { return false };
        let Some(cell) = hold.cell().cloned() else { return false };
        let from = if seeded!(ValidityFromSending) { self.cx.now } else { sent };
        let until = from.plus(lease.validity()).min(hold.max_end().unwrap_or(Moment::NEVER));
        let before = cell.valid_until();
        if !cell.extend(self.cx.now, until) {
            self.check_validity(id);
            return false;
        }
        if until > before {
            hold.confirmed_at = sent;
            hold.ttl = lease;
        }
        hold.heard_at = hold.heard_at.max(sent);
        hold.enter(Input::Confirmed);
        hold.failures = 0;
        self.holds.note_max_hold(&self.cx, id);
        true
    }

    /// Ends a hold whose validity has ended, and marks one as suspect that was not confirmed for
    /// half a lease.
    pub(super) fn check_validity(&mut self, id: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        let Some(cell) = hold.cell().cloned() else { return };
        if !hold.state.is_live() {
            return;
        }
        if cell.loss() == Some(LossReason::ClientShutdown) {
            // This client has ended the hold and still has to release it. The expiry is not its
            // end.
            return;
        }
        if !cell.is_held(self.cx.now) {
            // A caller may have noticed the expiry and not recorded the reason yet.
            return self.lose(id, cell.expiry());
        }
        if hold.is_renewed() && self.cx.now >= hold.doubt_at() && self.doubt(id) {
            let hold = &self.holds[&id];
            self.overdue.get_or_insert_with(|| (hold.lock.clone(), id, 0)).2 += 1;
        }
        self.holds.set_hold_clock(&mut self.cx, id);
    }

    /// Marks a hold as suspect. Returns false if it was suspect already.
    pub(super) fn doubt(&mut self, id: u64) -> bool {
        self.holds.get_mut(&id).is_some_and(|hold| hold.enter(Input::Doubted))
    }

    /// Reports all suspect holds in one log line, because a slow log subscriber delays the engine.
    pub(super) fn report_overdue(&mut self) {
        if let Some((name, hold, holds)) = self.overdue.take() {
            self.cx.report(Report::Suspect { name, hold, holds });
        }
    }

    // ---- loss

    /// The key is gone, and this client did not remove it.
    pub(super) fn lose_gone(&mut self, id: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        let reason = if hold.is_force_hinted() {
            LossReason::ForceUnlocked
        } else if hold.server_epoch != self.cx.servers.epoch_of(&hold.lock)
            && !seeded!(LostDataIsTold)
        {
            LossReason::ServerLostData
        } else {
            LossReason::Removed
        };
        self.lose(id, reason);
    }

    /// The key belongs to another hold, or has another value.
    pub(super) fn lose_foreign(&mut self, id: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        let hinted = hold.is_force_hinted();
        self.lose(id, if hinted { LossReason::ForceUnlocked } else { LossReason::TakenOver });
    }

    /// Ends a live hold as lost. The name's contender is woken, because the lock may be free for
    /// this client.
    pub(super) fn lose(&mut self, id: u64, reason: LossReason) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let Some(cell) = hold.cell().cloned() else { return };
        if !hold.state.is_live() {
            return;
        }
        cell.lose(reason);
        // A caller may have noticed the expiry first; the first cause wins.
        let reason = cell.loss().unwrap_or(reason);
        hold.enter(Input::Ended(reason));
        let (name_id, name, begun) = (hold.name_id, hold.lock.clone(), hold.begun);
        let (todo, verifying) = (hold.take_todo(), hold.take_verifying());
        self.watchdog.schedule.remove(hold);
        for timer in [TimerKey::HoldClock(id), TimerKey::Offer(id), TimerKey::HoldRetry(id)] {
            self.cx.timers.clear(timer);
        }
        self.note_fate(&name, Fate::Lost);
        self.note_loss(name, id, reason, begun);
        self.end_pending(id, todo, verifying);
        if self.kept.is_left(id) {
            self.keep_while_key_lasts(id);
            self.remove_at_end_if_beside_another(id);
        } else if reason == LossReason::Expired && self.is_beside_another(id) {
            self.remove_field_of(id);
        } else if reason == LossReason::MaxHold
            || (reason == LossReason::Expired && self.kept.outlives_lease(id))
        {
            self.free_key_of(id);
        }
        self.drop_if_lost(id);
        if seeded!(LossWakes) { self.queues.touch(name_id) } else { self.queues.wake(name_id) }
    }

    /// Counts and reports a loss.
    pub(super) fn note_loss(
        &mut self,
        name: LockName,
        hold: u64,
        reason: LossReason,
        begun: Moment,
    ) {
        let held = self.cx.now.since(begun);
        add(&self.cx.counters.losses, 1);
        add_time(&self.cx.counters.hold_micros, held);
        let (client, server) = (self.cx.config.client_id.clone(), self.cx.servers.id_of(&name));
        let address = self.cx.address_of(server);
        self.cx.report(Report::Lost { name, hold, reason, client, address, held });
    }

    /// Frees the key of a hold whose validity has ended here, if the key may live longer on the
    /// server: a nested level may have shortened the hold, or prolonged the key's time to live with
    /// an `at_least`.
    fn free_key_of(&mut self, id: u64) {
        if self.holds.get(&id).is_some_and(|hold| self.cx.now.plus(SOON) < hold.key_end) {
            self.remove_field_of(id);
        }
    }

    fn remove_field_of(&mut self, id: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (name_id, lock, key_end) = (hold.name_id, hold.lock.clone(), hold.key_end);
        self.remove_field(id, name_id, lock, hold.share, key_end);
    }

    /// Removes the field of a hold that is over. No command of the hold that is still on the wire can
    /// create it again, so one answer is enough.
    pub(super) fn remove_field(
        &mut self,
        id: u64,
        name_id: u64,
        lock: LockName,
        share: Share,
        key_end: Moment,
    ) {
        self.remember_dead(id, name_id, lock, share, ServerTime(0), key_end);
        self.send_cleanup(id);
    }

    /// Its owner has another valid hold of the name: it writes beside its own read. The renewals of
    /// one extend the key that both are in, so that the field of the other does not end with it.
    pub(super) fn is_beside_another(&self, id: u64) -> bool {
        let Some(hold) = self.holds.get(&id).filter(|_| !seeded!(LostWriteIsRemoved)) else {
            return false;
        };
        let Some(name) = self.queues.names.get(&hold.name_id) else { return false };
        let mut others = name.holds().filter_map(|other| self.holds.get(&other));
        others.any(|other| other.id != id && other.owner == hold.owner && other.state.is_live())
    }

    /// Fails the callers of a lost hold's pending operations.
    fn end_pending(
        &mut self,
        id: u64,
        todo: impl IntoIterator<Item = PendingOperation>,
        verifying: Vec<RequestId>,
    ) {
        let (error, of_reentry) = (self.holds.lost_error(id), self.holds.reentry_lost_error(id));
        let on_the_wire = match self.holds.get(&id).and_then(|hold| hold.sending.as_ref()) {
            Some(Sending::Reenter { request, abandoned: false }) => {
                Some(PendingOperation::Reenter(*request))
            }
            _ => None,
        };
        for todo in todo.into_iter().chain(on_the_wire) {
            match todo {
                PendingOperation::Reenter(request) => {
                    self.end_wait(request, Answer::Failed(of_reentry.clone()))
                }
                PendingOperation::LowerCount(unlock) => {
                    self.answer_all(unlock.map(|unlock| unlock.request), |_| {
                        Answer::Failed(error.clone())
                    });
                }
            }
        }
        self.watchdog.answer_lost(&mut self.cx, &self.holds, id, verifying);
    }
}

/// The error of a level whose `max_hold` would have ended before now. It is refused, because the
/// existing levels have other ends.
fn max_hold_over(limit: Duration, lasted: Duration) -> Error {
    Error::InvalidOption {
        option: "max_hold",
        given: format!("{limit:?}"),
        allowed: format!("longer than the {lasted:.1?} that the hold has already lasted"),
    }
}
