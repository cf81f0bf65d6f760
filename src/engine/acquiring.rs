//! Who may talk to the server, attempts, what their answers mean, and grants that nobody picks up.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::stats::add;
use crate::engine::Engine;
use crate::engine::event::Answer;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::hold::Hold;
use crate::engine::hold::HoldState;
use crate::engine::hold::Input;
use crate::engine::hold::Sending;
use crate::engine::name_record::Cause;
use crate::engine::name_record::NameRecord;
use crate::engine::pending::Answered;
use crate::engine::pending::Hurry;
use crate::engine::pending::Op;
use crate::engine::requests::LONG_WAIT;
use crate::engine::standing::fallback_of;
use crate::engine::timers::TimerKey;
use crate::engine::waiter::TOO_LATE;
use crate::engine::waiter::Waiter;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::command::WaitMode;
use crate::kinds::conflict::conflict_of_holder;
use crate::kinds::conflict::conflict_words;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Others;
use crate::kinds::reply::Place;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;

/// What is left of a wait when the pause for others ends must be enough for an attempt and its
/// answer: this or two round trips.
const ANSWER: Duration = Duration::from_millis(20);

impl Engine {
    // ---- the contender

    pub(super) fn drive_touched(&mut self) {
        while let Some(name_id) = self.queues.touched.pop_first() {
            self.drive(name_id);
        }
    }

    /// Has the contender of a name do what is due. Who that is, and when it tries, is decided in
    /// `name_record` (`contender`, `due`).
    fn drive(&mut self, name_id: u64) {
        let Some(name) = self.queues.names.get(&name_id) else { return };
        let Some(request) = name.contender() else { return self.settle(name_id) };
        let waiter = || self.queues.waiters.get(&request);
        let wanted = || waiter().map_or(Some(Share::ONE), Waiter::needs_room_for);
        let in_the_way = self.holds.in_the_way(name, wanted).filter(|_| !seeded!(OwnHoldFirst));
        if let Some(hold) = in_the_way.map(|hold| hold.id) {
            self.cx.timers.clear(TimerKey::Try(name_id));
            return self.watch_self_wait(name_id, hold, request);
        }
        if self.attempt_in_flight(name_id) || !self.may_try(name_id) {
            return self.cx.timers.clear(TimerKey::Try(name_id));
        }
        match self.queues.names[&name_id].due(self.cx.now, self.pause(name_id, request)) {
            Ok(cause) => self.attempt(name_id, request, cause),
            Err(at) => self.cx.timers.set(TimerKey::Try(name_id), at),
        }
    }

    /// Until when a contender lets others go first: not at all if somebody here cannot wait, or if
    /// it could not be answered any more.
    fn pause(&self, name_id: u64, request: RequestId) -> Moment {
        let name = &self.queues.names[&name_id];
        let pause = name.contest().pause;
        if pause <= self.cx.now || name.contest().once > 0 {
            return Moment::ZERO;
        }
        let deadline = self.queues.waiters.get(&request).and_then(|waiter| waiter.deadline);
        let answer = ANSWER.max(self.cx.servers.round_trip(&name.lock).saturating_mul(2));
        let has_time = deadline.is_none_or(|deadline| deadline > pause.plus(answer));
        if has_time { pause } else { Moment::ZERO }
    }

    pub(super) fn attempt_in_flight(&self, name_id: u64) -> bool {
        self.holds.acquiring(&self.queues.names[&name_id]).any(|hold| hold.sending.is_some())
    }

    /// The link is up, the clean-up of what went before is on its way, and the server's clock is
    /// known. Whatever is missing touches the name when it is there.
    fn may_try(&mut self, name_id: u64) -> bool {
        let name = &self.queues.names[&name_id];
        if !self.cx.servers.is_up(&name.lock)
            || !name
                .contest()
                .dead
                .iter()
                .all(|id| self.dead_ids.is_under_way(*id) || seeded!(DeadIdsFirst))
        {
            return false;
        }
        let tells_ticket = name.lock.kind().undo_tells_ticket();
        if tells_ticket
            && !name.contest().standing.has_ticket()
            && name.contest().dead.iter().any(|id| self.dead_ids.may_tell_ticket(*id))
        {
            return false;
        }
        if !self.cx.servers.is_usable(&name.lock) {
            self.cx.ask_clock(self.cx.servers.id_of(&name.lock));
            return false;
        }
        true
    }

    fn attempt(&mut self, name_id: u64, request: RequestId, cause: Cause) {
        let Some(waiter) = self.queues.waiters.get(&request).cloned() else { return };
        let hold = self.hold_for_attempt(name_id, request, &waiter);
        let full = self.cx.attempt_deadline();
        let limit = full.min(waiter.deadline.unwrap_or(Moment::NEVER));
        let end = waiter.max_hold.map(|limit| self.cx.now.plus(limit));
        let name = self.queues.names[&name_id].lock.clone();
        let round_trip = self.cx.servers.round_trip(&name);
        let (deadline, lease) =
            Hold::within_max_hold(self.cx.now, limit, waiter.lease.length(), end, round_trip);
        let hurry = match deadline {
            cut if cut < limit => Some(Hurry::MaxHold),
            cut if cut < full => Some(Hurry::Wait),
            _ => None,
        };
        let latest = deadline.min(self.cx.now.plus(lease.duration()));
        let Some(not_after) = self.cx.servers.time_of(&name, latest) else { return };
        let not_after = not_after.shared(latest.since(self.cx.now));
        let to = self.cx.servers.id_of(&name);
        let ttl = lease.or_longer(waiter.at_least);
        let Some(mut command) = self.command_of_attempt(name_id, hold, &waiter, ttl, not_after)
        else {
            return;
        };
        if cause == Cause::Fallback {
            self.poll_for_others(name_id, &mut command);
        }
        self.cx.send(Op::Acquire { hold, lease, hurry }, to, command, deadline, not_after);
        self.holds.unsent.remove(&hold);
        if let Some(hold) = self.holds.get_mut(&hold) {
            hold.sending = Some(Sending::Acquire);
            hold.set_max_end(end);
            hold.key_end = deadline.plus(ttl.longest());
        }
        if let Some(name) = self.queues.names.get_mut(&name_id) {
            name.note_attempt(cause);
        }
        self.cx.timers.clear(TimerKey::Try(name_id));
    }

    fn command_of_attempt(
        &mut self,
        name_id: u64,
        hold: u64,
        waiter: &Waiter,
        lease: LeaseMs,
        not_after: ServerTime,
    ) -> Option<Command> {
        let field = self.cx.field_of(self.holds.get(&hold)?);
        let name = self.queues.names.get(&name_id)?.lock.clone();
        let mut told = Box::default();
        if name.kind().waits_per_owner() {
            if let Some(contest) = self.queues.known_contest(name_id) {
                told = std::mem::take(&mut contest.told);
            }
            if self.hears(name_id) {
                // Before the attempt is sent: its answer may be older than a message.
                self.queues.listen_for(&mut self.cx, name_id);
            }
        }
        if let Some(from) = waiter.upgrades {
            let from = self.cx.field_of(self.holds.get(&from)?);
            return Some(Command::Upgrade { name, from, to: field, lease, not_after, told });
        }
        let (line, wait) = self.wait_mode(name_id, waiter.once);
        let passes_on =
            matches!(wait, WaitMode::Again { .. }) || name.kind().first_attempt_passes_on();
        let announce = passes_on.then(|| self.announce(Some(name_id), &name));
        let share = waiter.share;
        Some(Command::Acquire { name, field, share, lease, not_after, line, wait, announce, told })
    }

    /// Of those who wait for themselves, one polls for all: its attempt names the others, and the
    /// server says whose places are lost.
    fn poll_for_others(&mut self, name_id: u64, command: &mut Command) {
        let Command::Acquire { name, told, .. } = command else { return };
        if !name.kind().polls_together() || !self.hears(name_id) {
            return;
        }
        let fallback = fallback_of(&self.cx.config, name);
        let mut fields = Vec::new();
        for other in self.others_in_line(name_id) {
            let Some(hold) = self.attempted_hold(other).and_then(|id| self.holds.get(&id)) else {
                continue;
            };
            fields.push(self.cx.field_of(hold));
            if let Some(contest) = self.queues.known_contest(other) {
                contest.standing.polled(self.cx.now, fallback);
            }
            self.queues.touch(other);
        }
        *told = fields.into();
    }

    /// The other records of this client that wait for the same name, and have a place.
    fn others_in_line(&self, name_id: u64) -> Vec<u64> {
        let Some(listener) = self.queues.listener_of(name_id).map(|listener| listener.id) else {
            return Vec::new();
        };
        let has_place = |id: &u64| {
            let other = self.queues.names.get(id);
            *id != name_id && other.is_some_and(|it| it.contest().standing.has_ticket())
        };
        self.queues.listening(listener).into_iter().filter(has_place).collect()
    }

    /// What an attempt was told about other waiters of this client: for whom the lock is reserved,
    /// and whose places are lost.
    ///
    /// Gives back what is about other clients.
    fn told_of_others(
        &mut self,
        name_id: u64,
        holder: &str,
        others: Option<Others>,
    ) -> Option<Others> {
        let name = self.queues.names.get(&name_id)?;
        if !name.lock.kind().polls_together() {
            return others;
        }
        let lost = others.map_or_else(Vec::new, |others| others.fields);
        let lock = name.lock.clone();
        let acquiring = |engine: &Self, field: &str| {
            let (id, _) = engine.hold_of_field(&lock, field)?;
            let hold = engine.holds.get(&id)?;
            (hold.state == HoldState::Acquiring).then_some(hold.name_id)
        };
        let reserved = acquiring(self, holder).filter(|other| *other != name_id);
        let lost = lost.iter().filter_map(|field| acquiring(self, field));
        let woken: Vec<u64> = lost.chain(reserved).collect();
        for other in woken {
            self.queues.wake(other);
        }
        None
    }

    /// The poll of this record had no answer: whoever of the others is next polls instead.
    fn nobody_polled(&mut self, name_id: u64) {
        let Some(name) = self.queues.names.get(&name_id) else { return };
        let polls = name.contest().trying_because == Cause::Fallback;
        if !name.lock.kind().polls_together() || !polls {
            return;
        }
        for other in self.others_in_line(name_id) {
            if let Some(contest) = self.queues.known_contest(other) {
                contest.standing.not_polled(self.cx.now);
            }
            self.queues.touch(other);
        }
    }

    /// Whether the next attempt names the line, and what it says about waiting.
    fn wait_mode(&self, name_id: u64, once: bool) -> (bool, WaitMode) {
        let name = &self.queues.names[&name_id];
        let contest = name.contest();
        let line = self.cx.has_line(&name.lock) && !contest.lock_alone;
        let hears = || self.hears(name_id) || seeded!(HearsOnceConfirmed);
        let mode = if contest.standing.again {
            let ticket = if seeded!(TicketIsNamed) { 0 } else { contest.standing.ticket };
            WaitMode::Again { ticket, hears: hears() }
        } else if once {
            WaitMode::Try
        } else {
            WaitMode::First { hears: hears() }
        };
        (line, mode)
    }

    /// Whether a message on the channel of a name reaches this record.
    pub(super) fn hears(&self, name_id: u64) -> bool {
        let known = self.queues.listener_of(name_id).and_then(NameRecord::known_channel);
        known.is_some_and(|known| self.subscriptions.is_confirmed(&known))
    }

    /// The hold with which this client has been refused before, for whichever of its waiters: its
    /// place in the line goes with it. Or a new one.
    fn hold_for_attempt(&mut self, name_id: u64, request: RequestId, waiter: &Waiter) -> u64 {
        let Some(id) = self.attempted_hold(name_id) else {
            return self.new_hold(name_id, request, waiter);
        };
        // A place in the line is for what was wanted when it was taken.
        if self.holds.get(&id).is_some_and(|hold| hold.share != waiter.share) {
            self.leave_line(name_id);
            return self.new_hold(name_id, request, waiter);
        }
        if seeded!(PlacePassesOn)
            && self.holds.get(&id).is_some_and(|hold| hold.taker() != Some(request))
        {
            self.leave_line(name_id);
            return self.new_hold(name_id, request, waiter);
        }
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.owner = waiter.owner;
            hold.set_taker(Some(request));
            hold.is_watched_by_others(waiter.leads);
        }
        id
    }

    /// The hold that this client tries to get, while nothing about it is on the wire.
    fn attempted_hold(&self, name_id: u64) -> Option<u64> {
        let name = self.queues.names.get(&name_id)?;
        self.holds.acquiring(name).find(|hold| hold.sending.is_none()).map(|hold| hold.id)
    }

    /// The last waiter of a name has left. Its place in the line is given up once no attempt is on
    /// the wire.
    pub(super) fn leave_line(&mut self, name_id: u64) {
        let Some(name) = self.queues.names.get(&name_id) else { return };
        let (has_place, has_channel) =
            (name.has_place(), name.lock.kind().has_channel_per_waiter());
        let mut place =
            if has_channel { self.ends_place(name_id).filter(|_| has_place) } else { None };
        while let Some(id) = self.attempted_hold(name_id) {
            if !has_place || seeded!(LastWaiterLeaves) {
                self.drop_hold(id);
                continue;
            }
            // Its attempts were refused, so that it has at most a place or a reservation.
            if let Some(hold) = self.holds.get_mut(&id) {
                hold.key_end = Moment::ZERO;
            }
            place = None;
            self.bury(id, ServerTime(0));
        }
        if let Some(lock) = place {
            // No hold id has it, since its last attempt had no answer.
            let id = self.cx.fresh_id();
            self.remember_dead(id, name_id, lock, Share::ONE, ServerTime(0), Moment::ZERO);
            self.send_cleanup(id);
        }
        if let Some(contest) = self.queues.known_contest(name_id) {
            self.dead_ids.end_role(contest);
        }
    }

    /// Where the place belongs to a waiter, and not to a hold id: it ends, so that the removal of what
    /// its hold ids have left removes it too. The lock, if it is of such a kind.
    fn ends_place(&mut self, name_id: u64) -> Option<LockName> {
        let name = self.queues.names.get_mut(&name_id)?;
        let lock = Some(&name.lock).filter(|lock| lock.kind().has_channel_per_waiter()).cloned()?;
        if let Some(contest) = name.known_contest() {
            contest.standing.end_role();
        }
        Some(lock)
    }

    /// Whether the place of a waiter is in use, or may be when the attempt on the wire is executed.
    pub(super) fn has_role(&self, name_id: u64) -> bool {
        let name = self.queues.names.get(&name_id);
        name.is_some_and(|name| name.has_place() || self.attempt_in_flight(name_id))
    }

    /// Each waiter has a place of its own: who has asked since an attempt was sent does not go on
    /// with the place of the waiter for which it was made, and which has left.
    fn leave_place_of_another(&mut self, name_id: u64, sent: Moment) {
        let Some(contender) = self.queues.names.get(&name_id).and_then(NameRecord::contender)
        else {
            return;
        };
        if self.queues.waiters.get(&contender).is_some_and(|waiter| waiter.since > sent) {
            self.leave_line(name_id);
            self.queues.wake(name_id);
        }
    }

    /// A hold whose grant is for `request`.
    pub(super) fn new_hold(&mut self, name_id: u64, request: RequestId, waiter: &Waiter) -> u64 {
        let id = self.cx.fresh_id();
        let name =
            self.queues.names.get_mut(&name_id).expect("a waiter's name is kept while it waits");
        name.add_hold(id);
        let (lock, lease) = (name.lock.clone(), waiter.lease.length());
        let mut hold = Hold::new(id, name_id, lock, waiter.owner, waiter.share, lease);
        hold.set_taker(Some(request));
        hold.is_watched_by_others(waiter.leads);
        self.holds.unsent.insert(id);
        self.holds.insert(hold);
        id
    }

    /// Forgets a hold that nothing refers to any more.
    pub(super) fn drop_hold(&mut self, id: u64) {
        let Some(mut hold) = self.holds.remove(&id) else { return };
        // A release took these away when it began.
        let released = hold.state == HoldState::Releasing;
        hold.enter(Input::Dropped);
        if !released {
            self.cx.timers.clear(TimerKey::HoldClock(id));
            self.cx.timers.clear(TimerKey::Offer(id));
            self.watchdog.schedule.remove(&mut hold);
            if hold.cell().is_some() {
                self.holds.forget_holder(&hold.lock, hold.owner, id);
            }
        }
        self.cx.timers.clear(TimerKey::HoldRetry(id));
        self.holds.unsent.remove(&id);
        if let Some(name) = self.queues.names.get_mut(&hold.name_id) {
            name.remove_hold(id);
        }
        self.queues.touch(hold.name_id);
    }

    // ---- answers to an attempt

    pub(super) fn on_acquire_reply(
        &mut self,
        id: u64,
        lease: LeaseMs,
        hurry: Option<Hurry>,
        answered: Answered,
        outcome: Outcome<Reply>,
    ) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.sending = None;
        let (name_id, taker, kind) = (hold.name_id, hold.taker(), hold.lock.kind());
        let out_of_time = hurry.is_some() && taker.is_none();
        let sent = answered.sent;
        self.queues.touch(name_id);
        self.holds.unsent.insert(id);
        if !matches!(outcome, Outcome::Done(_)) {
            self.nobody_polled(name_id);
        }
        match outcome {
            Outcome::Done(Reply { body: Body::Acquire(Acquired::Granted { token }), .. }) => {
                self.holds.unsent.remove(&id);
                if let Some(name) = self.queues.names.get_mut(&name_id) {
                    // Anybody could have taken it.
                    name.others_had_their_turn(self.cx.now);
                }
                self.queues.note_fallback(&mut self.cx, name_id);
                self.on_granted(id, lease, answered, token);
            }
            Outcome::Done(Reply {
                body: Body::Acquire(Acquired::Held { pttl, holder, place, others }),
                ..
            }) => {
                self.queues.forgive(name_id);
                if let Some(waiter) =
                    taker.and_then(|request| self.queues.waiters.get_mut(&request))
                {
                    waiter.late = None;
                }
                let is_upgrade = holder.is_empty();
                let waits = !is_upgrade && !self.is_asked_once(taker);
                let others = self.told_of_others(name_id, &holder, others);
                match conflict_of_holder(kind, pttl, &holder).filter(|_| !is_upgrade) {
                    Some(found) => self.on_conflict(id, found),
                    None if self.others_may_be_dead(name_id, waits, others) => {
                        self.queues.wake(name_id);
                    }
                    None => self.on_refused(id, pttl, holder, place),
                }
            }
            Outcome::Done(Reply { body: Body::Acquire(Acquired::TooMany { permits }), .. }) => {
                self.on_too_many(id, permits);
            }
            Outcome::Done(Reply { body: Body::Acquire(Acquired::Gone), .. }) => {
                self.on_nothing_to_upgrade(id);
            }
            Outcome::Done(Reply { body: Body::Acquire(Acquired::Conflict(found)), .. }) => {
                self.on_conflict(id, found);
            }
            Outcome::Done(Reply { body: Body::Acquire(Acquired::NotOwn), .. }) => {
                let words = "the slot of the lock is being moved".to_owned();
                self.queues.note_trouble(&mut self.cx, name_id, answered.sent, words);
            }
            Outcome::NotExecuted(failure)
                if failure.kind == FailureKind::SlotMoving && self.picks_up_alone(name_id) =>
            {
                self.queues.wake(name_id);
            }
            Outcome::Done(_) => {
                // Late: granted nothing. The id is given up all the same, should a first copy have
                // been in time.
                self.bury(id, answered.not_after);
                match hurry {
                    Some(Hurry::Wait) => self.queues.wake(name_id),
                    _ => self.queues.came_late(
                        &mut self.cx,
                        name_id,
                        taker,
                        answered.sent,
                        TOO_LATE.to_owned(),
                    ),
                }
            }
            Outcome::NotExecuted(failure) if failure.kind.is_transient() => {
                let words = self.queues.words_of(name_id, &failure);
                self.queues.note_trouble(&mut self.cx, name_id, answered.sent, words);
            }
            Outcome::NotExecuted(failure) => {
                self.fail_waiters(name_id, |engine, since| engine.cx.error_of(&failure, since));
            }
            // Its waiter had no more time: that says nothing about the server, and the next one
            // need not suffer.
            Outcome::Unknown(_) if out_of_time => {
                self.bury(id, answered.not_after);
                self.queues.wake(name_id);
            }
            Outcome::Unknown(failure) if hurry == Some(Hurry::MaxHold) => {
                self.bury(id, answered.not_after);
                self.queues.came_late(&mut self.cx, name_id, taker, answered.sent, failure.message);
            }
            Outcome::Unknown(failure) if seeded!(NewIdAfterUnknown) => {
                self.queues.note_trouble(&mut self.cx, name_id, answered.sent, failure.message);
            }
            Outcome::Unknown(failure) => {
                if kind.has_channel_per_waiter() && taker.is_some() {
                    // It may have taken its place, which the next attempt goes on with.
                    self.queues.takes_place(name_id);
                }
                self.bury(id, answered.not_after);
                if seeded!(TicketOutlivesUnknown) {
                    self.leave_line(name_id);
                }
                self.queues.note_trouble(&mut self.cx, name_id, answered.sent, failure.message);
            }
        }
        let has_own_place = kind.undo_tells_ticket() || kind.has_channel_per_waiter();
        if taker.is_none() && has_own_place {
            self.leave_place_of_another(name_id, sent);
        }
    }

    /// Whether the caller for whom an attempt was made wants one answer and does not wait.
    fn is_asked_once(&self, taker: Option<RequestId>) -> bool {
        taker
            .and_then(|request| self.queues.waiters.get(&request))
            .is_some_and(|waiter| waiter.once)
    }

    /// The next attempt names the holds that this one was told about, so that those that are dead are
    /// removed. True if that attempt is made at once: this one has removed some, so that others may be
    /// behind them, or its caller does not wait (`try_write`, `try_upgrade`), and it has named none.
    fn others_may_be_dead(&mut self, name_id: u64, waits: bool, others: Option<Others>) -> bool {
        let Some(Others { removed, fields }) = others else { return false };
        let Some(contest) = self.queues.known_contest(name_id) else { return false };
        contest.told = fields.into();
        let first = !std::mem::replace(&mut contest.was_told, true);
        removed || (!waits && first)
    }

    /// There are not as many permits, so that waiting would not help.
    fn on_too_many(&mut self, id: u64, permits: u32) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (name_id, name, wanted) = (hold.name_id, hold.lock.to_string(), hold.share.exclusive);
        // The server has taken it out of the line.
        if let Some(contest) = self.queues.known_contest(name_id) {
            contest.standing.end_role();
        }
        self.fail_waiters(name_id, |_, _| Error::TooManyPermits {
            name: name.clone(),
            wanted,
            permits,
        });
    }

    /// What was to be upgraded is gone.
    fn on_nothing_to_upgrade(&mut self, id: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        let taker = hold.taker();
        let upgrades = taker.and_then(|request| self.queues.waiters.get(&request)?.upgrades);
        self.drop_hold(id);
        if let (Some(request), Some(from)) = (taker, upgrades) {
            self.lose_gone(from);
            let error = self.holds.lost_error(from);
            self.end_wait(request, Answer::Failed(error));
        }
    }

    /// An attempt found that its slot is being moved, and the line was out of reach. What is
    /// reserved for its hold can be picked up without the line: the next attempt is about that.
    /// False if this was such an attempt.
    fn picks_up_alone(&mut self, name_id: u64) -> bool {
        let Some(contest) = self.queues.known_contest(name_id) else { return false };
        contest.lock_alone = contest.standing.again && !contest.tries_alone;
        contest.lock_alone
    }

    /// The grant of an attempt or of a hand-off, before anybody has it.
    pub(super) fn on_granted(&mut self, id: u64, lease: LeaseMs, answered: Answered, token: u64) {
        let Answered { by, sent, .. } = answered;
        let server_epoch = self.cx.servers.epoch(by);
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if !hold.enter(Input::Granted) {
            return;
        }
        if let Some(contest) = self.queues.known_contest(hold.name_id) {
            if !seeded!(TicketEndsWithGrant) {
                self.dead_ids.end_role(contest);
            }
        }
        let from = if seeded!(ValidityFromSending) { self.cx.now } else { sent };
        let full = from.plus(lease.validity());
        let until = full.min(hold.max_end().unwrap_or(Moment::NEVER));
        let cell = Arc::new(HoldCell::new(hold.lock.clone(), id, token, until));
        let taker = hold.grant(cell);
        hold.begun = sent;
        hold.confirmed_at = sent;
        hold.renewed_at = sent;
        hold.heard_at = sent;
        hold.ttl = lease;
        hold.server_epoch = server_epoch;
        // A grant that came when its validity was over is nobody's, and no good answer.
        let (name_id, in_time) = (hold.name_id, self.cx.now < until || seeded!(LateGrantIsNobodys));
        if in_time {
            self.queues.forgive(name_id);
        } else {
            self.queues.came_late(&mut self.cx, name_id, taker, sent, TOO_LATE.to_owned());
        }
        match taker
            .filter(|_| in_time)
            .and_then(|request| Some((request, self.queues.waiters.remove(&request)?)))
        {
            Some((request, waiter)) => self.give(id, request, waiter, answered, token),
            None => {
                add(&self.cx.counters.undone_grants, 1);
                // The lock was this client's, so what was refused before is no answer any more.
                if let Some(contest) = self.queues.known_contest(name_id) {
                    contest.refused_at = Moment::ZERO;
                }
                if !seeded!(UntakenGrantIsUndone) {
                    self.start_release(id);
                }
            }
        }
    }

    /// Hands the first level of a granted hold to its waiter.
    fn give(
        &mut self,
        id: u64,
        request: RequestId,
        waiter: Waiter,
        answered: Answered,
        token: u64,
    ) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let Some(cell) = hold.cell().cloned() else { return };
        let (name_id, lock) = (hold.name_id, hold.lock.clone());
        hold.add_level(request, waiter.share, waiter.lease.is_watched(), hold.max_end());
        self.holds.note_max_hold(&self.cx, id);
        self.keep_at_least(id, request, waiter.at_least, answered);
        if waiter.owner.comes_back() {
            self.holds.directory.insert((lock.clone(), waiter.owner), cell.clone());
        }
        self.holds.set_offer_timer(&mut self.cx, id);
        self.holds.set_hold_clock(&mut self.cx, id);
        add(&self.cx.counters.grants, 1);
        self.cx.report(Report::Granted {
            name: lock,
            hold: id,
            token,
            waited: self.cx.now.since(waiter.since),
        });
        self.cx.answer(request, Answer::Granted(cell));
        self.let_others_know(name_id, id, request, &waiter);
        if self.holds.get(&id).is_some_and(|hold| hold.is_force_hinted()) {
            // The hint was faster than the grant.
            self.watchdog.verify(&self.cx, &mut self.holds, id);
        }
        self.holds.granted.insert(request, id);
        self.advance(id);
    }

    /// A waiter left the queue with the grant: others of the same owner re-enter, `try_lock`s hear
    /// of it.
    fn let_others_know(&mut self, name_id: u64, id: u64, request: RequestId, waiter: &Waiter) {
        let has_room = self.has_room(name_id, waiter.share);
        let Some(name) = self.queues.names.get_mut(&name_id) else { return };
        name.remove(waiter);
        let contest = name.contest_mut();
        contest.known_held = false;
        // If the kind admits no further hold, this one is an answer to the others for as long as it
        // is there. Else what the server said before still is one, if the server is well.
        contest.presumed_at = match has_room {
            true => contest.presumed_at.max(contest.refused_at),
            false => self.cx.now,
        };
        contest.refused_at = Moment::ZERO;
        contest.long_wait_told = false;
        debug_assert!(!name.waiters().any(|other| other == request));
        if name.has_owner(waiter.owner) {
            let same: Vec<RequestId> = name
                .waiters()
                .filter(|other| self.queues.waiters[other].owner == waiter.owner)
                .collect();
            for other in same {
                if let Some(follower) = self.queues.waiters.remove(&other) {
                    self.queues.leave_queue(name_id, &follower);
                    self.cx.timers.clear(TimerKey::Request(other));
                    self.join_hold(id, other, follower);
                }
            }
        }
        if has_room { self.queues.wake(name_id) } else { self.deny_try_locks(name_id) }
    }

    /// Whether the kind of a name admits another hold like the one that was just granted, beside
    /// those of this client.
    fn has_room(&self, name_id: u64, granted: Share) -> bool {
        let Some(name) = self.queues.names.get(&name_id) else { return false };
        let kind = name.lock.kind();
        // Of most kinds two do not fit, and then the holds need not be looked at.
        kind.admits(kind.taken_by(granted), granted)
            && self.holds.in_the_way(name, || Some(granted)).is_none()
    }

    pub(super) fn on_refused(&mut self, id: u64, pttl: i64, holder: String, place: Option<Place>) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (name_id, lock) = (hold.name_id, hold.lock.clone());
        let left = Duration::from_millis(u64::try_from(pttl).unwrap_or(0) + 1);
        self.release_again(name_id, &lock, &holder, self.cx.now.plus(left));
        let fallback = fallback_of(&self.cx.config, &lock);
        let Some(name) = self.queues.names.get_mut(&name_id) else { return };
        let contest = name.contest_mut();
        contest.known_held = true;
        contest.refused_at = self.cx.now;
        contest.standing.told(self.cx.now, left, fallback, place);
        if let Some(in_a_row) = contest.standing.missed() {
            self.cx.report(Report::ReservationsMissed { name: lock.clone(), in_a_row });
        }
        self.deny_try_locks(name_id);
        let Some(contender) = self.queues.names.get(&name_id).and_then(|name| name.contender())
        else {
            return;
        };
        self.want_lock_channel(name_id);
        let has_no_place = self.queues.names.get(&name_id).is_some_and(|name| !name.has_place());
        if lock.kind().has_channel_per_waiter() && has_no_place {
            // A `try_lock` was refused. Nobody tells those who wait as long as they have no place.
            self.queues.wake(name_id);
        }
        let Some(waiter) = self.queues.waiters.get_mut(&contender) else { return };
        if !std::mem::replace(&mut waiter.waited, true) {
            add(&self.cx.counters.waits, 1);
            return self.cx.report(Report::Waiting { name: lock, holder, pttl });
        }
        let waited = self.cx.now.since(waiter.since);
        let Some(name) = self.queues.names.get_mut(&name_id) else { return };
        if waited >= LONG_WAIT && !std::mem::replace(&mut name.contest_mut().long_wait_told, true) {
            self.cx.report(Report::WaitingLong { name: lock, holder, waited });
        }
    }

    fn on_conflict(&mut self, id: u64, found: &'static str) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (name_id, name) = (hold.name_id, hold.lock.to_string());
        let found = conflict_words(found, &hold.lock);
        self.fail_waiters(name_id, |_, _| Error::KeyConflict {
            name: name.clone(),
            found: found.clone(),
        });
    }

    // ---- grants that nobody picks up

    /// Takes back the grants whose callers have not shown that they have their guards.
    pub(super) fn on_offer_over(&mut self, id: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        for level in hold.levels.iter().filter(|level| !level.picked_up) {
            self.cx.effects.push(super::event::Effect::Withdraw { request: level.request });
        }
        self.check_validity(id);
    }

    /// The caller had taken it: from now on it is a reason to renew.
    pub(super) fn on_picked_up(&mut self, request: RequestId) {
        let Some(id) = self.holds.granted.remove(&request) else { return };
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if let Some(level) = hold.levels.iter_mut().find(|level| level.request == request) {
            level.picked_up = true;
        }
        if !hold.has_unpicked_level() {
            self.cx.timers.clear(TimerKey::Offer(id));
        }
        self.watchdog.arm_first(&self.cx, &mut self.holds, id);
        self.holds.set_hold_clock(&mut self.cx, id);
    }

    /// The grant is back; its caller asks again should it ever be polled.
    pub(super) fn on_withdrawn(&mut self, request: RequestId) {
        if let Some(hold) = self.holds.granted.remove(&request) {
            self.undo_level(hold, request);
        }
    }

    /// Gives a dead hold id to the clean-up; its waiter stays where it is and gets a new one.
    pub(super) fn bury(&mut self, id: u64, not_after: ServerTime) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (name_id, lock, key_end) = (hold.name_id, hold.lock.clone(), hold.key_end);
        let share = hold.share;
        if seeded!(UnknownIsCleanedUp) {
            return self.drop_hold(id);
        }
        self.remember_dead(id, name_id, lock, share, not_after, key_end);
        self.drop_hold(id);
        self.send_cleanup(id);
    }

    /// The name is not tried again before a release of this id is on its way.
    pub(super) fn remember_dead(
        &mut self,
        id: u64,
        name_id: u64,
        lock: LockName,
        share: Share,
        not_after: ServerTime,
        key_end: Moment,
    ) {
        if let Some(name) = self.queues.names.get_mut(&name_id) {
            name.contest_mut().dead.push(id);
        }
        self.dead_ids.add(id, name_id, lock, share, not_after, key_end);
    }
}
