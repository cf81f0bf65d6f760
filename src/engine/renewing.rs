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
use crate::engine::event::Answer;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::hold::Hold;
use crate::engine::pending::Op;
use crate::engine::pending::Renewing;
use crate::engine::renewals::BATCH;
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

impl Engine {
    /// Registers a watched hold that the server has just confirmed for its next renewal.
    pub(super) fn arm_renewal(&mut self, id: u64) {
        let lease = self.cx.config.lease;
        if let Some(hold) = self.holds.get_mut(&id).filter(|hold| hold.is_to_be_renewed()) {
            self.renewals.set(hold, hold.renew_at(lease));
        }
    }

    /// Registers a hold that is watched from now on, unless it waits to be asked about earlier.
    pub(super) fn arm_first_renewal(&mut self, id: u64) {
        let lease = self.cx.config.lease;
        let to_be_renewed = |hold: &&mut Hold| hold.is_to_be_renewed() && !seeded!(RenewedOncePickedUp);
        if let Some(hold) = self.holds.get_mut(&id).filter(to_be_renewed) {
            self.renewals.arm(hold, hold.renew_at(lease));
        }
    }

    /// Asks the server about a hold now; extends it if it is watched.
    pub(super) fn verify_now(&mut self, id: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        if hold.state.is_live() && !hold.renewing {
            self.renewals.set(hold, self.cx.now);
        }
    }

    /// Answered by a renewal, by the end of the hold, or when its time is over.
    pub(super) fn on_verify(&mut self, id: u64, request: RequestId) {
        self.check_validity(id);
        match self.holds.get_mut(&id) {
            Some(hold) if hold.state.is_live() => {
                hold.errands().verifying.push(request);
                let verification = Verification { hold: id, since: self.cx.now, trouble: None };
                self.verifications.insert(request, verification);
                self.cx.timers.set(TimerKey::Request(request), self.cx.attempt_deadline());
                self.verify_now(id);
            }
            _ => {
                let error = self.holds.lost_error(id);
                self.cx.fail(request, error);
            }
        }
    }

    /// Sends the renewals that stand in line, in batches. If there are too many for a server, those that run out first.
    pub(super) fn renew_due(&mut self) {
        while let Some(holds) = self.renewals.take_turn() {
            self.send_renewals(holds);
        }
    }

    /// Puts those that are due in line, and those due soon. Each is looked at, too: it may be over.
    pub(super) fn enqueue_due(&mut self) {
        if self.renewals.next().is_none_or(|at| at > self.cx.now) {
            return;
        }
        let soon = self.cx.now.plus(self.cx.config.lease.duration() / 60);
        let due = self.renewals.take_due(soon);
        for id in &due {
            if let Some(hold) = self.holds.get_mut(id) {
                self.renewals.enqueue(hold, self.cx.servers.id_of(&hold.lock));
            }
        }
        for id in due {
            self.check_validity(id);
        }
    }

    fn send_renewals(&mut self, ids: Vec<u64>) {
        let mut batches: BTreeMap<(ServerId, (Kind, u16), u32), Vec<u64>> = BTreeMap::new();
        let mut alone = Vec::new();
        for id in ids {
            let Some(hold) = self.holds.get_mut(&id) else { continue };
            if !(hold.state.is_live() || seeded!(RenewalsEndFirst)) || hold.renewing {
                continue;
            }
            let server = self.cx.servers.id_of(&hold.lock);
            if !self.cx.servers.is_usable(&hold.lock) {
                // It needs the server's clock for its `not_after`: goes on when that is known.
                self.renewals.park(hold);
                self.cx.ask_clock(server);
                continue;
            }
            let hold = &self.holds[&id];
            if hold.renew_alone {
                alone.push(id);
            } else {
                let group = (hold.lock.kind(), self.cx.servers.script_group(&hold.lock));
                let batch = (server, group, self.haste(hold));
                batches.entry(batch).or_default().push(id);
            }
        }
        for holds in batches.values().flat_map(|batch| batch.chunks(BATCH)) {
            self.send_renewal(holds);
        }
        for id in alone {
            self.send_renewal(&[id]);
        }
    }

    /// One with little time left, or an end of its own, must not shorten the deadline of others: what goes into one
    /// script has about the same, an eighth more or less.
    fn haste(&self, hold: &Hold) -> u32 {
        let limit = self.cx.attempt_deadline();
        let mut deadline = limit.min(hold.valid_until());
        renewal_lease(
            hold,
            self.cx.config.lease,
            self.cx.now,
            self.cx.servers.round_trip(&hold.lock),
            &mut deadline,
        );
        if deadline >= limit {
            return u32::MAX;
        }
        let left = u64::try_from(deadline.since(self.cx.now).as_micros()).unwrap_or(u64::MAX).max(8);
        let octave = left.ilog2();
        let eighth = (left >> (octave - 3)) & 7;
        octave * 8 + u32::try_from(eighth).unwrap_or(7)
    }

    /// All of one server.
    fn send_renewal(&mut self, ids: &[u64]) {
        let Some(lock) = ids.first().and_then(|id| self.holds.get(id)).map(|hold| hold.lock.clone()) else {
            return;
        };
        let round_trip = self.cx.servers.round_trip(&lock);
        let valid = ids.iter().filter_map(|id| self.holds.get(id)).map(|hold| hold.valid_until()).min();
        let mut deadline = self.cx.attempt_deadline().min(valid.unwrap_or(Moment::NEVER));
        let mut end = Moment::NEVER;
        let (mut items, mut renewing) = (Vec::new(), Vec::new());
        for &id in ids {
            let Some(hold) = self.holds.get_mut(&id) else { continue };
            let lease = renewal_lease(hold, self.cx.config.lease, self.cx.now, round_trip, &mut deadline);
            if lease != LeaseMs::PROBE {
                end = end.min(self.cx.now.plus(lease.duration()));
                hold.key_end = hold.key_end.max(deadline.plus(lease.longest()));
            }
            let (name, verifying) = (hold.lock.clone(), hold.take_verifying());
            let (watched, hinted) = (hold.is_watched(), hold.force_hint);
            items.push(RenewItem { name, field: self.cx.field(id), lease });
            renewing.push(Renewing { hold: id, lease, verifying, watched, hinted });
        }
        let Some(not_after) = self.cx.servers.time_of(&lock, deadline.min(end)) else { return };
        if items.is_empty() {
            return;
        }
        let sent: Vec<u64> = renewing.iter().map(|one| one.hold).collect();
        let command = Command::Renew { holds: items, not_after };
        let to = self.cx.servers.id_of(&lock);
        self.renewals.sent(to, sent.len());
        self.cx.send(Op::Renew(renewing), to, command, deadline, not_after);
        for id in sent {
            if let Some(hold) = self.holds.get_mut(&id) {
                hold.renewing = true;
            }
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
                    let pause = self.pause_after_late(one.hold);
                    self.verify_again(one, pause);
                }
            }
            Outcome::NotExecuted(failure) if concerns_one_key(failure.kind) && holds.len() > 1 => {
                // The other keys of the batch must not suffer.
                for one in holds {
                    if let Some(hold) = self.holds.get_mut(&one.hold) {
                        hold.renew_alone = true;
                    }
                    self.verify_again(one, Duration::ZERO);
                }
            }
            Outcome::NotExecuted(failure) | Outcome::Unknown(failure) => {
                self.on_renewal_failed(holds, &failure)
            }
        }
    }

    fn on_renewed(&mut self, one: Renewing, answer: Renewed, server: ServerId, sent: Moment) {
        let id = one.hold;
        if !self.holds.get(&id).is_some_and(|hold| hold.state.is_live()) {
            return self.answer_lost(id, one.verifying);
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
                    return self.answer_lost(id, one.verifying);
                }
                for request in one.verifying {
                    self.end_verification(request, Answer::Done);
                }
                self.arm_renewal(id);
                self.verify_if_asked(id);
                self.holds.set_hold_clock(&mut self.cx, id);
            }
            Renewed::Gone => {
                if seeded!(GoneIsLost) {
                    self.arm_renewal(id)
                } else {
                    self.lose_gone(id)
                }
                self.answer_lost(id, one.verifying);
            }
            Renewed::Foreign => {
                self.lose_foreign(id);
                self.answer_lost(id, one.verifying);
            }
            Renewed::Refused => {
                let failure = Failure::new(FailureKind::Denied, "renewal of this key was refused");
                self.on_renewal_failed(vec![one], &failure);
            }
        }
    }

    /// Somebody asked while the last renewal was on its way.
    pub(super) fn verify_if_asked(&mut self, id: u64) {
        if self.holds.get(&id).is_some_and(|hold| !hold.verifying().is_empty() || hold.force_hint) {
            self.verify_now(id);
        }
    }

    pub(super) fn answer_lost(&mut self, id: u64, verifying: Vec<RequestId>) {
        for request in verifying {
            let error = self.holds.lost_error(id);
            self.end_verification(request, Answer::Failed(error));
        }
    }

    /// Answers a verification, unless its time was over before.
    pub(super) fn end_verification(&mut self, request: RequestId, answer: Answer) {
        if self.verifications.remove(&request).is_some() {
            self.cx.answer(request, answer);
        }
    }

    /// Nobody knows: the old validity goes on, and so do the tries.
    pub(super) fn on_verification_over(&mut self, request: RequestId) {
        let Some(verification) = self.verifications.remove(&request) else { return };
        let lost = self.holds.lost_error(verification.hold);
        let Some(hold) = self.holds.get_mut(&verification.hold) else { return self.cx.fail(request, lost) };
        if !hold.state.is_live() {
            return self.cx.fail(request, lost);
        }
        hold.errands().verifying.retain(|other| *other != request);
        let server = self.cx.servers.id_of(&hold.lock);
        let cause = verification.trouble.unwrap_or_else(|| self.cx.servers.last_trouble(server));
        self.cx.fail(
            request,
            Error::Unavailable { name: None, waited: self.cx.now.since(verification.since), cause },
        );
    }

    /// The old validity goes on; the next try comes soon, and again, until it is over.
    fn on_renewal_failed(&mut self, holds: Vec<Renewing>, failure: &Failure) {
        add(&self.cx.counters.renewal_failures, holds.len() as u64);
        self.cx.report(Report::RenewalFailed { holds: holds.len(), cause: failure.message.clone() });
        for one in holds {
            for request in &one.verifying {
                if !failure.kind.is_transient() {
                    let error = self.cx.error_of(failure, self.cx.now);
                    self.end_verification(*request, Answer::Failed(error));
                } else if let Some(verification) = self.verifications.get_mut(request) {
                    verification.trouble = Some(failure.message.clone());
                }
            }
            let failures = self.holds.count_failure(one.hold);
            self.verify_again(one, self.renewal_pause(failures));
        }
    }

    fn renewal_pause(&self, failures: u32) -> Duration {
        let tenth = self.cx.config.lease.duration() / 10;
        if seeded!(FailedRenewalIsRepeated) {
            return 10 * tenth;
        }
        Duration::from_millis(50 << failures.min(5)).min(tenth).max(Duration::from_millis(10))
    }

    fn pause_after_late(&mut self, id: u64) -> Duration {
        match self.holds.count_failure(id) {
            0 => Duration::ZERO,
            failures => self.renewal_pause(failures),
        }
    }

    fn verify_again(&mut self, one: Renewing, pause: Duration) {
        match self.holds.get_mut(&one.hold) {
            Some(hold) if hold.state.is_live() => {
                let open = &self.verifications;
                let asked = one.verifying.into_iter().filter(|request| open.contains_key(request));
                hold.add_verifying(asked);
                self.renewals.set(hold, self.cx.now.plus(pause));
            }
            // Lost meanwhile, for another reason than the one that was asked about.
            _ => self.answer_lost(one.hold, one.verifying),
        }
    }

    /// All holds are asked about: messages may have been missed.
    pub(super) fn verify_all(&mut self) {
        for id in self.holds.ids(|hold| hold.state.is_live()) {
            self.verify_now(id);
        }
    }

    /// Renewals that waited for a server's clock go on.
    pub(super) fn unpark_renewals(&mut self, server: ServerId) {
        for id in self.renewals.parked() {
            let here = |hold: &&mut Hold| self.cx.servers.id_of(&hold.lock) == server;
            if let Some(hold) = self.holds.get_mut(&id).filter(here) {
                self.renewals.set(hold, self.cx.now);
            }
        }
    }

    /// The server cannot be asked, and waiting will not mend that.
    pub(super) fn fail_verifications(&mut self, server: ServerId, failure: &Failure) {
        for id in self.holds.at(&self.cx, server) {
            let Some(hold) = self.holds.get_mut(&id) else { continue };
            for request in hold.take_verifying() {
                let error = self.cx.error_of(failure, self.cx.now);
                self.end_verification(request, Answer::Failed(error));
            }
        }
    }
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
