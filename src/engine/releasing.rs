//! The last release of a hold, and grants that nobody took.

use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::FailureKind;
use crate::backend::Outcome;
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
use crate::engine::hold::Sending;
use crate::engine::kept::RemainingTime;
use crate::engine::name_record::NameRecord;
use crate::engine::pending::Answered;
use crate::engine::pending::Op;
use crate::engine::timers::TimerKey;
use crate::engine::waiter::WaiterPlace;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Body;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::Leftover;
use crate::kinds::reply::Released;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;

/// How often a client hands the lock off to its own waiters before others may have it.
const IN_A_ROW: u32 = 16;
/// The same where no line makes sure that others get their turn. With 16, Java got 5 % of the
/// sections beside two clients of four tasks; with 4 it gets a quarter or more
/// (`cargo xtask interop --only hand-off`).
const IN_A_ROW_WITHOUT_LINE: u32 = 4;

/// How long this client pauses after a release that others heard of, where no line says who is
/// next: four round trips, within these limits.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(20));

impl Engine {
    /// Begins the last release: the last level is given up, or the grant was nobody's.
    pub(super) fn start_release(&mut self, id: u64) {
        self.start_release_of(id, None);
    }

    /// The same; `last` was given up just now.
    pub(super) fn start_release_of(&mut self, id: u64, last: Option<PendingOperation>) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if hold.sending.is_some() || !hold.enter(Input::LastLevel) {
            return;
        }
        let (name_id, owner, lock) = (hold.name_id, hold.owner, hold.lock.clone());
        let (todo, verifying) = (hold.take_todo(), hold.take_verifying());
        if let Some(cell) = hold.cell() {
            if cell.loss().is_none() {
                cell.release();
            }
        }
        // Renewals end before the release is sent.
        if !seeded!(RenewalsEndFirst) {
            self.watchdog.schedule.remove(hold);
        }
        for timer in [TimerKey::HoldClock(id), TimerKey::Offer(id), TimerKey::HoldRetry(id)] {
            self.cx.timers.clear(timer);
        }
        self.holds.forget_holder(&lock, owner, id);
        let mut unlocks = SmallVec::new();
        let mut asked = false;
        for todo in todo.into_iter().chain(last) {
            match todo {
                PendingOperation::LowerCount(unlock) => {
                    asked = true;
                    unlocks.extend(unlock);
                }
                PendingOperation::Reenter(request) => self.requeue(name_id, request),
            }
        }
        self.watchdog.answer_lost(&mut self.cx, &self.holds, id, verifying);
        if let Some(hold) = self.holds.get_mut(&id) {
            let release = &mut hold.pending_work().release;
            release.background = asked && unlocks.is_empty();
            release.unlocks = unlocks;
        }
        if self.kept.is_left(id) && !seeded!(LeftIsNotReleased) {
            self.leave_key_of(id)
        } else {
            self.send_release(id)
        }
    }

    /// Nothing of the hold is released: its key is left to its time to live.
    fn leave_key_of(&mut self, id: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (begun, name, end) = (hold.begun, hold.lock.clone(), hold.key_end);
        self.keep_while_key_lasts(id);
        self.remove_at_end_if_beside_another(id);
        self.note_fate(&name, Fate::Left(end));
        add_time(&self.cx.counters.hold_micros, self.cx.now.since(begun));
        self.cx.report(Report::LeftToLease { name, hold: id });
        self.finish_release(id, None);
    }

    /// A re-entry that came too late for its hold waits for a new one; or enters the read beside
    /// which that hold has written, for which it would wait in vain.
    fn requeue(&mut self, name_id: u64, request: RequestId) {
        let waiter = self.queues.waiters.get(&request).cloned();
        if let Some(waiter) = waiter
            && let Some(id) = self.own_hold(name_id, waiter.owner)
        {
            self.forget_waiter(request);
            return self.join_hold(id, request, waiter);
        }
        if let (Some(waiter), Some(name)) =
            (self.queues.waiters.get_mut(&request), self.queues.names.get_mut(&name_id))
        {
            waiter.place = WaiterPlace::Queued;
            name.push(request, waiter);
        }
        self.queues.touch(name_id);
    }

    /// Sends the release, as a hand-off when a waiter of this client may have the lock next.
    pub(super) fn send_release(&mut self, id: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        if hold.sending.is_some() {
            return;
        }
        if self.cx.now >= hold.key_end {
            return self.give_up_release(id);
        }
        if !self.cx.servers.is_up(&hold.lock) {
            // Looked at again when the link is up, or when the key has run out.
            let end = hold.key_end;
            return self.cx.timers.set(TimerKey::HoldRetry(id), end);
        }
        if self.remaining_time(id, &hold.lock) != RemainingTime::Nothing {
            return self.send_last_release(id);
        }
        if let Some(request) = self.next_of_this_client(id) {
            if self.send_hand_off(id, request) {
                return;
            }
        }
        if self.may_go_together(id) { self.queue_release(id) } else { self.send_last_release(id) }
    }

    /// The waiter that a hand-off may grant to.
    fn next_of_this_client(&self, id: u64) -> Option<RequestId> {
        let hold = self.holds.get(&id)?;
        let name = self.queues.names.get(&hold.name_id)?;
        let allowed = self.cx.config.hand_off
            && hold.lock.kind().hands_off()
            && self.stopping.is_none()
            && self.cx.servers.is_usable(&hold.lock)
            && hold.release().last_failure.is_none()
            && !hold.release().alone
            && (self.cx.has_line(&hold.lock) || self.is_within_row(name))
            && name.contest().not_before <= self.cx.now
            && name.contest().dead.iter().all(|dead| self.dead_ids.is_under_way(*dead));
        if allowed { name.contender() } else { None }
    }

    /// Whether the next hand-off may go before other clients.
    fn is_within_row(&self, name: &NameRecord) -> bool {
        let most = if self.cx.has_line(&name.lock) { IN_A_ROW } else { IN_A_ROW_WITHOUT_LINE };
        name.may_hand_off(self.cx.now, most)
    }

    fn send_last_release(&mut self, id: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (name_id, lock, end) = (hold.name_id, hold.lock.clone(), hold.key_end);
        let Some(command) = self.last_release(id, name_id, &lock) else {
            // Goes on when the server's clock is known, or when the key has run out.
            return self.cx.timers.set(TimerKey::HoldRetry(id), end);
        };
        let to = self.cx.servers.id_of(&lock);
        self.cx.send(
            Op::Release { hold: id },
            to,
            command,
            self.cx.attempt_deadline(),
            ServerTime(0),
        );
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.sending = Some(Sending::Release);
        }
    }

    fn send_hand_off(&mut self, from: u64, request: RequestId) -> bool {
        let Some(waiter) = self.queues.waiters.get(&request).cloned() else { return false };
        let Some(hold) = self.holds.get(&from) else { return false };
        let (name_id, name) = (hold.name_id, hold.lock.clone());
        let announce = self.announce(Some(name_id), &name);
        // A row of hand-offs ends with one that lets the first in line go first.
        let line_first = !self.is_within_row(&self.queues.names[&name_id]);
        let hears = self.subscriptions.is_confirmed(&announce.channel);
        let limit = self.cx.attempt_deadline().min(waiter.deadline.unwrap_or(Moment::NEVER));
        let end = waiter.max_hold.map(|limit| self.cx.now.plus(limit));
        let round_trip = self.cx.servers.round_trip(&name);
        let (deadline, lease) =
            Hold::within_max_hold(self.cx.now, limit, waiter.lease.length(), end, round_trip);
        let latest = deadline.min(self.cx.now.plus(lease.duration()));
        let Some(not_after) = self.cx.servers.time_of(&name, latest) else { return false };
        let server = self.cx.servers.id_of(&name);
        let to = self.new_hold(name_id, request, &waiter);
        let ttl = lease.or_longer(waiter.at_least);
        let (Some(old), Some(new)) = (self.holds.get(&from), self.holds.get(&to)) else {
            return false;
        };
        let (old, new) = (self.cx.field_of(old), self.cx.field_of(new));
        let command = Command::HandOff {
            name,
            from: old,
            to: new,
            lease: ttl,
            not_after,
            announce,
            line_first,
            hears,
        };
        self.cx.send(
            Op::HandOff { from, to, lease, line_first },
            server,
            command,
            deadline,
            not_after,
        );
        self.holds.unsent.remove(&to);
        if let Some(contest) = self.queues.known_contest(name_id) {
            // What is a reason to try from here on may be newer than the answer.
            contest.must_try = None;
        }
        if let Some(to) = self.holds.get_mut(&to) {
            to.sending = Some(Sending::HandOff);
            to.set_max_end(end);
            to.key_end = deadline.plus(ttl.longest());
        }
        if let Some(from) = self.holds.get_mut(&from) {
            from.sending = Some(Sending::HandOff);
        }
        true
    }

    // ---- answers

    pub(super) fn on_release_reply(&mut self, id: u64, outcome: Outcome<Reply>) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.sending = None;
        match outcome {
            Outcome::Done(Reply { body: Body::Release(Released::Freed { receivers }), .. }) => {
                let (name_id, lock, share) = (hold.name_id, hold.lock.clone(), hold.share);
                let owed = hold.release().lock_alone;
                self.on_freed(id, receivers);
                if owed {
                    self.owe_line(id, name_id, lock, share);
                }
            }
            Outcome::Done(Reply { body: Body::Release(Released::Kept { receivers }), .. }) => {
                self.on_given_up(id, receivers);
            }
            Outcome::Done(Reply {
                body: Body::Release(Released::InOtherUse(leftover)), ..
            }) => {
                self.on_freed_in_other_use(id, leftover);
            }
            Outcome::Done(Reply { body: Body::Release(Released::Gone), .. }) => {
                self.on_not_ours(id, true)
            }
            Outcome::Done(_) => self.on_not_ours(id, false),
            Outcome::NotExecuted(failure)
                if failure.kind == FailureKind::SlotMoving && !hold.release().lock_alone =>
            {
                let release = &mut hold.pending_work().release;
                (release.alone, release.lock_alone) = (true, true);
                self.send_release(id);
            }
            Outcome::NotExecuted(failure) if failure.kind.is_transient() => {
                hold.pending_work().release.last_failure = Some(failure.message);
                self.retry_release(id);
            }
            Outcome::NotExecuted(failure) => {
                let error = self.cx.error_of(&failure, self.cx.now);
                self.note_left(id);
                self.end_release(id, Some((error, failure.message)));
            }
            Outcome::Unknown(_) if seeded!(ReleaseIsRepeated) => self.end_release(id, None),
            Outcome::Unknown(failure) => {
                let release = &mut hold.pending_work().release;
                release.may_be_done = true;
                release.last_failure = Some(failure.message);
                self.retry_release(id);
            }
        }
    }

    fn retry_release(&mut self, id: u64) {
        self.holds.retry_hold(&mut self.cx, id);
        // Waiting would not help: there is no link, or the key has run out.
        let pointless =
            |hold: &Hold| !self.cx.servers.is_up(&hold.lock) || self.cx.now >= hold.key_end;
        if self.holds.get(&id).is_some_and(pointless) {
            self.send_release(id);
        }
    }

    /// The lock is free and the others were told.
    fn on_freed(&mut self, id: u64, receivers: Option<u64>) {
        self.note_freed(id, receivers);
        self.on_given_up(id, receivers);
    }

    /// The server has nothing of the hold any more. Where its name stays taken for a while,
    /// nobody's turn begins.
    fn on_given_up(&mut self, id: u64, receivers: Option<u64>) {
        let Some(lock) = self.note_given_up(id, receivers) else { return };
        if receivers.is_none() {
            let channel = lock.channel(self.cx.config.profile);
            let message = format!("PUBLISH to {channel} was refused, so its waiters were not told");
            let error = Error::NotAnnounced { name: lock.to_string(), message: message.clone() };
            return self.end_release(id, Some((error, message)));
        }
        self.end_release(id, None);
    }

    /// The lock is free and the others were told. They will find data of another program.
    fn on_freed_in_other_use(&mut self, id: u64, leftover: Leftover) {
        self.note_freed(id, leftover.receivers);
        let Some(lock) = self.note_given_up(id, leftover.receivers) else { return };
        let (name, found) = (lock.to_string(), leftover.found().to_owned());
        let error = Error::KeyStillInUse { name, found };
        let cause = error.words();
        self.end_release(id, Some((error, cause)));
    }

    fn note_freed(&mut self, id: u64, receivers: Option<u64>) {
        let Some(hold) = self.holds.get(&id) else { return };
        let name_id = hold.name_id;
        self.note_published(name_id, receivers);
    }

    fn note_given_up(&mut self, id: u64, receivers: Option<u64>) -> Option<LockName> {
        let hold = self.holds.get(&id)?;
        let lock = hold.lock.clone();
        add_time(&self.cx.counters.hold_micros, self.cx.now.since(hold.begun));
        self.note_fate(&lock, Fate::Released);
        self.cx.report(Report::Released { name: lock.clone(), hold: id });
        if receivers.is_none() {
            self.cx.report(Report::PublishRefused { name: lock.clone() });
        }
        Some(lock)
    }

    /// The lock was passed on. Where that was told to all who wait, this client pauses once, so that
    /// others can take it.
    fn note_published(&mut self, name_id: u64, receivers: Option<u64>) {
        let Some(name) = self.queues.names.get(&name_id) else { return };
        let has_next = self.cx.has_line(&name.lock) || name.lock.kind().has_channel_per_waiter();
        let pause = if has_next { None } else { self.pause_after_release(name, receivers) };
        let (now, pauses) = (self.cx.now, pause.is_some());
        if let Some(name) = self.queues.names.get_mut(&name_id) {
            name.others_had_their_turn(now);
            let contest = if pauses { Some(name.contest_mut()) } else { name.known_contest() };
            if let Some(contest) = contest {
                contest.known_held = false;
                contest.pause = pause.map_or(Moment::ZERO, |pause| now.plus(pause));
                contest.owes_pause = pauses;
            }
        }
        self.queues.wake(name_id);
    }

    /// For how long this client lets others go first after its release, if others heard of it.
    fn pause_after_release(&self, name: &NameRecord, receivers: Option<u64>) -> Option<Duration> {
        let pause = self.pause_length(&name.lock);
        let ourselves = u64::from(self.hears_releases(name, receivers));
        // Those who could not have it for longer than a pause, where nobody knows how many heard it.
        let kept_out = name.hand_offs() > 0 || name.had_for(self.cx.now) >= pause;
        let uncounted = receivers.is_some() && kept_out && !self.counts_all_receivers();
        (receivers.unwrap_or(0) > ourselves || uncounted).then_some(pause)
    }

    /// For how long this client lets others go first, where no line says who is next.
    pub(super) fn pause_length(&self, lock: &LockName) -> Duration {
        self.cx.servers.round_trip(lock).saturating_mul(4).clamp(PAUSE.0, PAUSE.1)
    }

    /// Whether this client was one of those who were told. It may listen to the channel for another
    /// name.
    fn hears_releases(&self, name: &NameRecord, receivers: Option<u64>) -> bool {
        // Where nobody heard it and nobody waited, the channel is not worth spelling.
        let listener = self.queues.listener_of(name.id);
        let channel = listener.and_then(NameRecord::known_channel).or_else(|| {
            let somebody = receivers.is_some_and(|count| count > 0);
            somebody.then(|| name.channel(&self.cx.config))
        });
        channel.is_some_and(|channel| self.subscriptions.is_confirmed(&channel))
    }

    /// PUBLISH in a cluster reaches everybody, and counts those who are connected to the same node.
    fn counts_all_receivers(&self) -> bool {
        self.cx.servers.is_one() || self.cx.is_sharded()
    }

    /// The key is gone or another's. After an unknown try that is what a release leaves behind.
    pub(super) fn on_not_ours(&mut self, id: u64, gone: bool) {
        let Some(hold) = self.holds.get(&id) else { return };
        let nobody_asks = hold.release().unlocks.is_empty() && !hold.release().background;
        let (name, begun, may_be_done) =
            (hold.lock.clone(), hold.begun, hold.release().may_be_done);
        self.note_fate(&name, if may_be_done { Fate::Released } else { Fate::Lost });
        if may_be_done || nobody_asks {
            return self.end_release(id, None);
        }
        let Some(hold) = self.holds.get(&id) else { return };
        let reason = match (hold.is_force_hinted(), gone) {
            (true, _) => LossReason::ForceUnlocked,
            (false, false) => LossReason::TakenOver,
            (false, true) if hold.server_epoch != self.cx.servers.epoch_of(&hold.lock) => {
                LossReason::ServerLostData
            }
            (false, true) if self.cx.now >= hold.confirmed_at.plus(hold.ttl.validity()) => {
                hold.cell().map_or(LossReason::Expired, |cell| cell.expiry())
            }
            (false, true) => LossReason::Removed,
        };
        self.note_loss(name.clone(), id, reason, begun);
        let error = Error::Lost { name: name.to_string(), reason };
        self.finish_release(id, Some(error));
    }

    /// The key has run out by itself; nobody could be asked.
    fn give_up_release(&mut self, id: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let server = self.cx.servers.id_of(&hold.lock);
        let release = &mut hold.pending_work().release;
        let (unlocks, failure) =
            (std::mem::take(&mut release.unlocks), release.last_failure.clone());
        let cause = failure.unwrap_or_else(|| self.cx.servers.last_trouble(server));
        // Each caller has waited since its own `unlock`.
        for unlock in unlocks {
            let error = self.cx.unavailable(unlock.since, server);
            self.cx.fail(unlock.request, error);
        }
        self.note_left(id);
        self.report_failed_release(id, cause);
        self.finish_release(id, None);
    }

    /// Its release is given up.
    fn note_left(&mut self, id: u64) {
        if let Some((lock, key_end)) =
            self.holds.get(&id).map(|hold| (hold.lock.clone(), hold.key_end))
        {
            self.note_fate(&lock, Fate::Left(key_end));
        }
    }

    /// Ends a release, telling the log of a failure that nobody else hears of.
    fn end_release(&mut self, id: u64, failure: Option<(Error, String)>) {
        let (error, cause) = failure.unzip();
        if let Some(cause) = cause {
            self.report_failed_release(id, cause);
        }
        self.finish_release(id, error);
    }

    /// Counts and logs a failed release if nobody waits for it.
    fn report_failed_release(&mut self, id: u64, cause: String) {
        let Some(hold) = self.holds.get(&id).filter(|hold| hold.release().background) else {
            return;
        };
        let name = hold.lock.clone();
        add(&self.cx.counters.failed_drop_releases, 1);
        self.cx.report(Report::ReleaseFailed { name, hold: id, cause });
    }

    fn finish_release(&mut self, id: u64, error: Option<Error>) {
        let Some(name_id) = self.holds.get(&id).map(|hold| hold.name_id) else { return };
        self.end_hold(id, error);
        self.queues.wake(name_id);
    }

    /// Answers the callers of the release, and forgets the hold.
    fn end_hold(&mut self, id: u64, error: Option<Error>) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let release =
            hold.existing_work().map(|pending_work| std::mem::take(&mut pending_work.release));
        for unlock in release.unwrap_or_default().unlocks {
            let answer = error.clone().map_or(Answer::Done, Answer::Failed);
            self.cx.answer(unlock.request, answer);
        }
        self.drop_hold(id);
    }

    // ---- releases that the server has lost

    /// The lock is kept by a hold of ours that is over: a failover, or a restart from an older
    /// state, has lost its release.
    pub(super) fn release_again(
        &mut self,
        name_id: u64,
        lock: &LockName,
        holder: &str,
        key_end: Moment,
    ) {
        let Some((id, share)) = self.hold_of_field(lock, holder) else { return };
        let over = self.holds.get(&id).is_none_or(|hold| matches!(hold.state, HoldState::Lost(_)));
        if !over || self.kept.is_left(id) || self.dead_ids.get(id).is_some() {
            return;
        }
        self.cx.report(Report::ReleasedAgain { name: lock.clone(), hold: id });
        self.remove_field(id, name_id, lock.clone(), share, key_end);
    }

    /// The hold of this client that writes this field, and with which share.
    pub(super) fn hold_of_field(&self, lock: &LockName, field: &str) -> Option<(u64, Share)> {
        let own = field.strip_prefix(self.cx.config.client_id.as_str())?.strip_prefix(':')?;
        let end = own.find(':').unwrap_or(own.len());
        let id = own[..end].parse().ok()?;
        let is_spelled_so = self.cx.id(id).len() + own.len() - end == field.len();
        Some((id, lock.kind().share_in(&own[end..])?)).filter(|_| is_spelled_so)
    }

    // ---- hand-off

    pub(super) fn on_hand_off_reply(
        &mut self,
        from: u64,
        to: u64,
        lease: LeaseMs,
        line_first: bool,
        answered: Answered,
        outcome: Outcome<Reply>,
    ) {
        for id in [from, to] {
            if let Some(hold) = self.holds.get_mut(&id) {
                hold.sending = None;
            }
        }
        match outcome {
            Outcome::Done(Reply { body: Body::HandOff(HandedOff::Granted { token }), .. }) => {
                self.note_passed_on(from, line_first);
                add(&self.cx.counters.hand_offs, 1);
                // The new hold first: dropping the old one looks for somebody who may try.
                self.on_granted(to, lease, answered, token);
                self.end_release(from, None);
            }
            Outcome::Done(Reply {
                body: Body::HandOff(HandedOff::LineFirst { pttl, holder, place }),
                ..
            }) => {
                self.note_passed_on(from, line_first);
                self.holds.unsent.insert(to);
                self.on_refused(to, pttl, holder, Some(place));
                // Nobody here has to try: the server has just said who is next.
                self.end_hold(from, None);
            }
            Outcome::Done(Reply {
                body: Body::HandOff(HandedOff::ReleasedOnly { late, receivers }),
                ..
            }) => {
                // A late answer granted nothing; the id is given up all the same, as after a late
                // acquire.
                if late {
                    self.bury(to, answered.not_after)
                } else {
                    self.drop_hold(to)
                }
                self.on_freed(from, receivers);
            }
            Outcome::Done(Reply {
                body: Body::HandOff(HandedOff::InOtherUse(leftover)), ..
            }) => {
                self.drop_hold(to);
                self.on_freed_in_other_use(from, leftover);
            }
            Outcome::Done(reply) => {
                self.drop_hold(to);
                self.on_not_ours(from, matches!(reply.body, Body::HandOff(HandedOff::Gone)));
            }
            Outcome::NotExecuted(failure) => {
                self.drop_hold(to);
                let moving = failure.kind == FailureKind::SlotMoving;
                if let Some(hold) = self.holds.get_mut(&from) {
                    hold.pending_work().release.lock_alone = moving;
                }
                self.release_plainly(from, answered.trouble(failure), false);
            }
            Outcome::Unknown(failure) => {
                if seeded!(HandOffIsCleanedUp) {
                    self.drop_hold(to)
                } else {
                    self.bury(to, answered.not_after)
                }
                self.release_plainly(from, answered.trouble(failure), true);
            }
        }
    }

    /// A hold of this client is over, and the lock went to its next one, or to the first in line.
    fn note_passed_on(&mut self, id: u64, line_first: bool) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (name_id, name) = (hold.name_id, hold.lock.clone());
        add_time(&self.cx.counters.hold_micros, self.cx.now.since(hold.begun));
        self.note_fate(&name, Fate::Released);
        self.cx.report(Report::Released { name, hold: id });
        let now = self.cx.now;
        match self.queues.names.get_mut(&name_id) {
            Some(name) if line_first => name.others_had_their_turn(now),
            Some(name) => name.note_hand_off(),
            None => {}
        }
    }

    /// The hand-off did not happen, or nobody knows: its first half is done alone.
    fn release_plainly(&mut self, id: u64, trouble: Option<String>, may_be_done: bool) {
        if seeded!(HandOffReleasesFirst) {
            return self.end_release(id, None);
        }
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let release = &mut hold.pending_work().release;
        release.alone = true;
        release.last_failure = trouble;
        release.may_be_done |= may_be_done;
        self.send_release(id);
    }

    /// A hold that is being released goes on when its server is there.
    pub(super) fn resume_release(&mut self, id: u64) {
        if self.holds.state_of(id) == HoldState::Releasing {
            self.cx.timers.clear(TimerKey::HoldRetry(id));
            self.send_release(id);
        }
    }
}
