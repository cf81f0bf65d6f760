//! The watchdog: what is renewed when, and what the answers mean.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::kind::Kind;
use crate::base::lease::LeaseMs;
use crate::base::stats::add;
use crate::engine::Engine;
use crate::engine::context::Context;
use crate::engine::event::Answer;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::hold::Hold;
use crate::engine::holds::Holds;
use crate::engine::pending::Op;
use crate::engine::pending::Renewing;
use crate::engine::schedule::BATCH;
use crate::engine::schedule::RenewalSchedule;
use crate::engine::timers::TimerKey;
use crate::kinds::command::Command;
use crate::kinds::command::RenewItem;
use crate::kinds::reply::Body;
use crate::kinds::reply::Renewed;
use crate::kinds::reply::Reply;

/// Somebody asks whether a hold is still there.
#[derive(Debug)]
pub(crate) struct Verification {
    hold: u64,
    since: Moment,
    /// What the last try met.
    trouble: Option<String>,
}

/// Renewals that are due, those on the wire, and who waits to hear that a hold is still there.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    pub(super) schedule: RenewalSchedule,
    verifications: BTreeMap<RequestId, Verification>,
}

impl Watchdog {
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.verifications.is_empty()
    }

    pub(super) fn is_verifying(&self, request: RequestId) -> bool {
        self.verifications.contains_key(&request)
    }

    /// The caller of a verification has gone.
    pub(super) fn forget_verification(&mut self, request: RequestId) -> bool {
        self.verifications.remove(&request).is_some()
    }

    /// Answered by a renewal, by the end of the hold, or when its time is over.
    fn begin_verification(&mut self, cx: &mut Context, holds: &mut Holds, id: u64, request: RequestId) {
        match holds.get_mut(&id) {
            Some(hold) if hold.state.is_live() => {
                hold.pending_work().verifying.push(request);
                let verification = Verification { hold: id, since: cx.now, trouble: None };
                self.verifications.insert(request, verification);
                cx.timers.set(TimerKey::Request(request), cx.attempt_deadline());
                self.verify(cx, holds, id);
            }
            _ => cx.fail(request, holds.lost_error(id)),
        }
    }

    /// Registers a watched hold that the server has just confirmed for its next renewal.
    pub(super) fn arm(&mut self, cx: &Context, holds: &mut Holds, id: u64) {
        let lease = cx.config.lease;
        if let Some(hold) = holds.get_mut(&id).filter(|hold| hold.is_to_be_renewed()) {
            self.schedule.set(hold, hold.renew_at(lease));
        }
    }

    /// Registers a hold that is watched from now on, unless it waits to be asked about earlier.
    pub(super) fn arm_first(&mut self, cx: &Context, holds: &mut Holds, id: u64) {
        let lease = cx.config.lease;
        let to_be_renewed = |hold: &&mut Hold| hold.is_to_be_renewed() && !seeded!(RenewedOncePickedUp);
        if let Some(hold) = holds.get_mut(&id).filter(to_be_renewed) {
            self.schedule.arm(hold, hold.renew_at(lease));
        }
    }

    /// Asks the server about a hold now; extends it if it is watched.
    pub(super) fn verify(&mut self, cx: &Context, holds: &mut Holds, id: u64) {
        let Some(hold) = holds.get_mut(&id) else { return };
        if hold.state.is_live() && !hold.renewing {
            self.schedule.set(hold, cx.now);
        }
    }

    /// Somebody asked while the last renewal was on its way.
    pub(super) fn verify_if_asked(&mut self, cx: &Context, holds: &mut Holds, id: u64) {
        if holds.get(&id).is_some_and(|hold| !hold.verifying().is_empty() || hold.force_hint) {
            self.verify(cx, holds, id);
        }
    }

    /// All holds are asked about: messages may have been missed.
    pub(super) fn verify_all(&mut self, cx: &Context, holds: &mut Holds) {
        for id in holds.ids(|hold| hold.state.is_live()) {
            self.verify(cx, holds, id);
        }
    }

    /// Renewals that waited for a server's clock go on.
    pub(super) fn unpark(&mut self, cx: &Context, holds: &mut Holds, server: ServerId) {
        for id in self.schedule.parked() {
            let here = |hold: &&mut Hold| cx.servers.id_of(&hold.lock) == server;
            if let Some(hold) = holds.get_mut(&id).filter(here) {
                self.schedule.set(hold, cx.now);
            }
        }
    }

    /// Sends the renewals that stand in line, in batches. If there are too many for a server, those that run out first.
    pub(super) fn send_queued(&mut self, cx: &mut Context, holds: &mut Holds) {
        while let Some(ids) = self.schedule.take_turn() {
            self.send_all(cx, holds, ids);
        }
    }

    fn send_all(&mut self, cx: &mut Context, holds: &mut Holds, ids: Vec<u64>) {
        let mut batches: BTreeMap<(ServerId, (Kind, u16), u32), Vec<u64>> = BTreeMap::new();
        let mut alone = Vec::new();
        for id in ids {
            let Some(hold) = holds.get_mut(&id) else { continue };
            if !(hold.state.is_live() || seeded!(RenewalsEndFirst)) || hold.renewing {
                continue;
            }
            let server = cx.servers.id_of(&hold.lock);
            if !cx.servers.is_usable(&hold.lock) {
                // It needs the server's clock for its `not_after`: goes on when that is known.
                self.schedule.park(hold);
                cx.ask_clock(server);
                continue;
            }
            let hold = &holds[&id];
            if hold.renew_alone {
                alone.push(id);
            } else {
                let group = (hold.lock.kind(), cx.servers.script_group(&hold.lock));
                let batch = (server, group, urgency(cx, hold));
                batches.entry(batch).or_default().push(id);
            }
        }
        for ids in batches.values().flat_map(|batch| batch.chunks(BATCH)) {
            self.send(cx, holds, ids);
        }
        for id in alone {
            self.send(cx, holds, &[id]);
        }
    }

    /// All of one server.
    fn send(&mut self, cx: &mut Context, holds: &mut Holds, ids: &[u64]) {
        let Some(lock) = ids.first().and_then(|id| holds.get(id)).map(|hold| hold.lock.clone()) else {
            return;
        };
        let round_trip = cx.servers.round_trip(&lock);
        let valid = ids.iter().filter_map(|id| holds.get(id)).map(|hold| hold.valid_until()).min();
        let mut deadline = cx.attempt_deadline().min(valid.unwrap_or(Moment::NEVER));
        let mut end = Moment::NEVER;
        let (mut items, mut renewing) = (Vec::new(), Vec::new());
        for &id in ids {
            let Some(hold) = holds.get_mut(&id) else { continue };
            let lease = renewal_lease(hold, cx.config.lease, cx.now, round_trip, &mut deadline);
            if lease != LeaseMs::PROBE {
                end = end.min(cx.now.plus(lease.duration()));
                hold.key_end = hold.key_end.max(deadline.plus(lease.longest()));
            }
            let (name, verifying) = (hold.lock.clone(), hold.take_verifying());
            let (watched, hinted) = (hold.is_watched(), hold.force_hint);
            items.push(RenewItem { name, field: cx.field(id), lease });
            renewing.push(Renewing { hold: id, lease, verifying, watched, hinted });
        }
        let Some(not_after) = cx.servers.time_of(&lock, deadline.min(end)) else { return };
        if items.is_empty() {
            return;
        }
        let sent: Vec<u64> = renewing.iter().map(|one| one.hold).collect();
        let command = Command::Renew { holds: items, not_after };
        let to = cx.servers.id_of(&lock);
        self.schedule.sent(to, sent.len());
        cx.send(Op::Renew(renewing), to, command, deadline, not_after);
        for id in sent {
            if let Some(hold) = holds.get_mut(&id) {
                hold.renewing = true;
            }
        }
    }

    /// Answers a verification, unless its time was over before.
    pub(super) fn end_verification(&mut self, cx: &mut Context, request: RequestId, answer: Answer) {
        if self.verifications.remove(&request).is_some() {
            cx.answer(request, answer);
        }
    }

    pub(super) fn answer_lost(
        &mut self,
        cx: &mut Context,
        holds: &Holds,
        id: u64,
        verifying: Vec<RequestId>,
    ) {
        for request in verifying {
            let error = holds.lost_error(id);
            self.end_verification(cx, request, Answer::Failed(error));
        }
    }

    /// The server cannot be asked, and waiting will not mend that.
    pub(super) fn fail_verifications(
        &mut self,
        cx: &mut Context,
        holds: &mut Holds,
        server: ServerId,
        failure: &Failure,
    ) {
        for id in holds.at(cx, server) {
            let Some(hold) = holds.get_mut(&id) else { continue };
            for request in hold.take_verifying() {
                let error = cx.error_of(failure, cx.now);
                self.end_verification(cx, request, Answer::Failed(error));
            }
        }
    }

    /// Nobody knows: the old validity goes on, and so do the tries.
    pub(super) fn on_verification_over(&mut self, cx: &mut Context, holds: &mut Holds, request: RequestId) {
        let Some(verification) = self.verifications.remove(&request) else { return };
        let lost = holds.lost_error(verification.hold);
        let Some(hold) = holds.get_mut(&verification.hold) else { return cx.fail(request, lost) };
        if !hold.state.is_live() {
            return cx.fail(request, lost);
        }
        hold.pending_work().verifying.retain(|other| *other != request);
        let server = cx.servers.id_of(&hold.lock);
        let cause = verification.trouble.unwrap_or_else(|| cx.servers.last_trouble(server));
        cx.fail(request, Error::Unavailable { name: None, waited: cx.now.since(verification.since), cause });
    }

    fn verify_again(&mut self, cx: &mut Context, holds: &mut Holds, one: Renewing, pause: Duration) {
        match holds.get_mut(&one.hold) {
            Some(hold) if hold.state.is_live() => {
                let open = &self.verifications;
                let asked = one.verifying.into_iter().filter(|request| open.contains_key(request));
                hold.add_verifying(asked);
                self.schedule.set(hold, cx.now.plus(pause));
            }
            // Lost meanwhile, for another reason than the one that was asked about.
            _ => self.answer_lost(cx, holds, one.hold, one.verifying),
        }
    }

    fn pause_after_late(&mut self, cx: &Context, holds: &mut Holds, id: u64) -> Duration {
        match holds.count_failure(id) {
            0 => Duration::ZERO,
            failures => renewal_pause(cx, failures),
        }
    }

    /// The old validity goes on; the next try comes soon, and again, until it is over.
    fn on_failed(&mut self, cx: &mut Context, holds: &mut Holds, renewing: Vec<Renewing>, failure: &Failure) {
        add(&cx.counters.renewal_failures, renewing.len() as u64);
        cx.report(Report::RenewalFailed { holds: renewing.len(), cause: failure.message.clone() });
        for one in renewing {
            for request in &one.verifying {
                if !failure.kind.is_transient() {
                    let error = cx.error_of(failure, cx.now);
                    self.end_verification(cx, *request, Answer::Failed(error));
                } else if let Some(verification) = self.verifications.get_mut(request) {
                    verification.trouble = Some(failure.message.clone());
                }
            }
            let failures = holds.count_failure(one.hold);
            self.verify_again(cx, holds, one, renewal_pause(cx, failures));
        }
    }
}

impl Engine {
    pub(super) fn on_verify(&mut self, id: u64, request: RequestId) {
        self.check_validity(id);
        self.watchdog.begin_verification(&mut self.cx, &mut self.holds, id, request);
    }

    /// Puts those that are due in line, and those due soon. Each is looked at, too: it may be over.
    pub(super) fn enqueue_due(&mut self) {
        if self.watchdog.schedule.next().is_none_or(|at| at > self.cx.now) {
            return;
        }
        let soon = self.cx.now.plus(self.cx.config.lease.duration() / 60);
        let due = self.watchdog.schedule.take_due(soon);
        for id in &due {
            if let Some(hold) = self.holds.get_mut(id) {
                self.watchdog.schedule.enqueue(hold, self.cx.servers.id_of(&hold.lock));
            }
        }
        for id in due {
            self.check_validity(id);
        }
    }

    pub(super) fn on_renew_reply(
        &mut self,
        holds: Vec<Renewing>,
        server: ServerId,
        sent: Moment,
        outcome: Outcome<Reply>,
    ) {
        for one in &holds {
            if let Some(hold) = self.holds.get_mut(&one.hold) {
                hold.renewing = false;
            }
        }
        match outcome {
            Outcome::Done(Reply { body: Body::Renew(Some(answers)), .. }) => {
                let renewed = answers.iter().filter(|answer| **answer == Renewed::Yes).count();
                for (one, answer) in holds.into_iter().zip(answers) {
                    self.on_renewed(one, answer, server, sent);
                }
                add(&self.cx.counters.renewals, renewed as u64);
                self.cx.report(Report::Renewed { holds: renewed });
            }
            Outcome::Done(_) => {
                // Late: its reply brought the server's time, so the next one is not; if it is, not at the line's pace.
                for one in holds {
                    let pause = self.watchdog.pause_after_late(&self.cx, &mut self.holds, one.hold);
                    self.watchdog.verify_again(&mut self.cx, &mut self.holds, one, pause);
                }
            }
            Outcome::NotExecuted(failure) if concerns_one_key(failure.kind) && holds.len() > 1 => {
                // The other keys of the batch must not suffer.
                for one in holds {
                    if let Some(hold) = self.holds.get_mut(&one.hold) {
                        hold.renew_alone = true;
                    }
                    self.watchdog.verify_again(&mut self.cx, &mut self.holds, one, Duration::ZERO);
                }
            }
            Outcome::NotExecuted(failure) | Outcome::Unknown(failure) => {
                self.watchdog.on_failed(&mut self.cx, &mut self.holds, holds, &failure)
            }
        }
    }

    fn on_renewed(&mut self, one: Renewing, answer: Renewed, server: ServerId, sent: Moment) {
        let id = one.hold;
        if !self.holds.get(&id).is_some_and(|hold| hold.state.is_live()) {
            return self.watchdog.answer_lost(&mut self.cx, &self.holds, id, one.verifying);
        }
        match answer {
            Renewed::Yes => {
                if let Some(hold) = self.holds.get_mut(&id) {
                    hold.server_epoch = self.cx.servers.epoch(server);
                    if one.watched {
                        hold.renewed_at = hold.renewed_at.max(sent);
                    }
                    // A hint that came while this was on its way still has to be looked into.
                    hold.force_hint &= !one.hinted;
                    // Whatever was refused with it was another's fault.
                    hold.renew_alone = false;
                    hold.tidy();
                }
                if !self.note_confirmed(id, one.lease, sent) {
                    return self.watchdog.answer_lost(&mut self.cx, &self.holds, id, one.verifying);
                }
                for request in one.verifying {
                    self.watchdog.end_verification(&mut self.cx, request, Answer::Done);
                }
                self.watchdog.arm(&self.cx, &mut self.holds, id);
                self.watchdog.verify_if_asked(&self.cx, &mut self.holds, id);
                self.holds.set_hold_clock(&mut self.cx, id);
            }
            Renewed::Gone => {
                if seeded!(GoneIsLost) {
                    self.watchdog.arm(&self.cx, &mut self.holds, id)
                } else {
                    self.lose_gone(id)
                }
                self.watchdog.answer_lost(&mut self.cx, &self.holds, id, one.verifying);
            }
            Renewed::Foreign => {
                self.lose_foreign(id);
                self.watchdog.answer_lost(&mut self.cx, &self.holds, id, one.verifying);
            }
            Renewed::Refused => {
                let failure = Failure::new(FailureKind::Denied, "renewal of this key was refused");
                self.watchdog.on_failed(&mut self.cx, &mut self.holds, vec![one], &failure);
            }
        }
    }
}

/// Holds of one script share its deadline. So that one with little time left does not shorten the deadline of others,
/// only holds with about the same time left, up to an eighth, get the same number and go together.
fn urgency(cx: &Context, hold: &Hold) -> u32 {
    let limit = cx.attempt_deadline();
    let mut deadline = limit.min(hold.valid_until());
    renewal_lease(hold, cx.config.lease, cx.now, cx.servers.round_trip(&hold.lock), &mut deadline);
    if deadline >= limit {
        return u32::MAX;
    }
    let left = u64::try_from(deadline.since(cx.now).as_micros()).unwrap_or(u64::MAX).max(8);
    let octave = left.ilog2();
    let eighth = (left >> (octave - 3)) & 7;
    octave * 8 + u32::try_from(eighth).unwrap_or(7)
}

/// Whether a refusal of a batch may be about one of its keys only: forbidden, of another type, or already moved.
fn concerns_one_key(kind: FailureKind) -> bool {
    !kind.is_transient() || kind == FailureKind::SlotMoving
}

/// The TTL to send for a hold: its lease if it is watched, else only a question; the same if `max_hold` leaves next to
/// nothing to gain.
fn renewal_lease(
    hold: &Hold,
    lease: LeaseMs,
    now: Moment,
    round_trip: Duration,
    deadline: &mut Moment,
) -> LeaseMs {
    if !hold.is_watched() {
        return LeaseMs::PROBE;
    }
    if hold.max_end().is_none() {
        return lease;
    }
    let (capped, ttl) = Hold::within_max_hold(now, *deadline, lease, hold.max_end(), round_trip);
    if now.plus(ttl.validity()).since(hold.valid_until()) < ttl.duration() / 10 {
        return LeaseMs::PROBE;
    }
    *deadline = capped;
    ttl
}

fn renewal_pause(cx: &Context, failures: u32) -> Duration {
    let tenth = cx.config.lease.duration() / 10;
    if seeded!(FailedRenewalIsRepeated) {
        return 10 * tenth;
    }
    Duration::from_millis(50 << failures.min(5)).min(tenth).max(Duration::from_millis(10))
}
