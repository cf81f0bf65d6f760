//! The watchdog: renews the holds that are due, many in one script, and acts on the answers.

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

/// When each hold is renewed next, how many renewals are on the wire, and who waits to hear whether
/// a hold is still there.
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

    /// Starts a verification. It ends with the answer of a renewal, the loss of the hold, or its
    /// timer.
    fn begin_verification(
        &mut self,
        cx: &mut Context,
        holds: &mut Holds,
        id: u64,
        request: RequestId,
    ) {
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

    /// Sets the next renewal of a watched hold, which the server has just confirmed.
    pub(super) fn arm(&mut self, cx: &Context, holds: &mut Holds, id: u64) {
        let lease = cx.config.lease;
        if let Some(hold) = holds.get_mut(&id).filter(|hold| hold.is_to_be_renewed()) {
            self.schedule.set(hold, hold.renew_at(lease));
        }
    }

    /// The same for a hold that becomes watched; an earlier entry stays.
    pub(super) fn arm_first(&mut self, cx: &Context, holds: &mut Holds, id: u64) {
        let lease = cx.config.lease;
        let to_be_renewed =
            |hold: &&mut Hold| hold.is_to_be_renewed() && !seeded!(RenewedOncePickedUp);
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

    /// Verifies a hold again if somebody asked while its last renewal was on its way.
    pub(super) fn verify_if_asked(&mut self, cx: &Context, holds: &mut Holds, id: u64) {
        if holds.get(&id).is_some_and(|hold| !hold.verifying().is_empty() || hold.is_force_hinted())
        {
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

    /// Sends the queued renewals, in batches. If a server has more than a window of them, those
    /// whose lease ends first go first.
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
                // Its server is down, or its clock is not known: it goes on when both are there.
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
        for batch in batches.values() {
            let mut rest = &batch[..];
            while !rest.is_empty() {
                let (ids, others) = rest.split_at(in_one_script(holds, rest));
                self.send(cx, holds, ids);
                rest = others;
            }
        }
        for id in alone {
            self.send(cx, holds, &[id]);
        }
    }

    /// Sends one script; all `ids` are of one server.
    fn send(&mut self, cx: &mut Context, holds: &mut Holds, ids: &[u64]) {
        let Some(lock) = ids.first().and_then(|id| holds.get(id)).map(|hold| hold.lock.clone())
        else {
            return;
        };
        let round_trip = cx.servers.round_trip(&lock);
        let valid = ids.iter().filter_map(|id| holds.get(id)).map(|hold| hold.valid_until()).min();
        let mut deadline = cx.attempt_deadline().min(valid.unwrap_or(Moment::NEVER));
        let mut leases: Vec<(u64, LeaseMs)> = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(hold) = holds.get(id) else { continue };
            let (capped, lease) = renewal_lease(cx, hold, round_trip, deadline);
            deadline = capped;
            leases.push((*id, lease));
        }
        let ends = leases.iter().filter(|(_, lease)| *lease != LeaseMs::PROBE);
        let end =
            ends.map(|(_, lease)| cx.now.plus(lease.duration())).min().unwrap_or(Moment::NEVER);
        let Some(not_after) = cx.servers.time_of(&lock, deadline.min(end)) else { return };
        let (mut items, mut renewing) = (Vec::new(), Vec::new());
        for (id, lease) in leases {
            let Some(hold) = holds.get_mut(&id) else { continue };
            if lease != LeaseMs::PROBE {
                hold.key_end = hold.key_end.max(deadline.plus(lease.longest()));
            }
            hold.renewing = true;
            let (name, verifying) = (hold.lock.clone(), hold.take_verifying());
            let (watched, hints) = (hold.is_watched(), hold.force_hints);
            let (field, mut share) = (cx.field_of(hold), hold.share);
            // A downgrade may be on its way.
            share.shared = share.shared.max(hold.share_of_levels().shared);
            items.push(RenewItem { name, field, share, lease });
            renewing.push(Renewing { hold: id, lease, verifying, watched, hints });
        }
        let to = cx.servers.id_of(&lock);
        self.schedule.sent(to, items.len());
        let command = Command::Renew { holds: items, not_after };
        cx.send(Op::Renew(renewing), to, command, deadline, not_after);
    }

    /// Answers a verification, unless it was answered already.
    pub(super) fn end_verification(
        &mut self,
        cx: &mut Context,
        request: RequestId,
        answer: Answer,
    ) {
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

    /// No answer came in time: the caller gets an error; the hold and its renewals go on.
    pub(super) fn on_verification_over(
        &mut self,
        cx: &mut Context,
        holds: &mut Holds,
        request: RequestId,
    ) {
        let Some(verification) = self.verifications.remove(&request) else { return };
        let lost = holds.lost_error(verification.hold);
        let Some(hold) = holds.get_mut(&verification.hold) else { return cx.fail(request, lost) };
        if !hold.state.is_live() {
            return cx.fail(request, lost);
        }
        hold.pending_work().verifying.retain(|other| *other != request);
        let server = cx.servers.id_of(&hold.lock);
        let cause = verification.trouble.unwrap_or_else(|| cx.servers.last_trouble(server));
        cx.fail(
            request,
            Error::Unavailable { name: None, waited: cx.now.since(verification.since), cause },
        );
    }

    /// The client has ended, and hears no further answers.
    pub(super) fn close(&mut self, cx: &mut Context, holds: &Holds) {
        for (request, verification) in std::mem::take(&mut self.verifications) {
            cx.fail(request, holds.lost_error(verification.hold));
        }
    }

    fn retry_after(&mut self, cx: &mut Context, holds: &mut Holds, one: Renewing, pause: Duration) {
        match holds.get_mut(&one.hold) {
            Some(hold) if hold.state.is_live() => {
                let open = &self.verifications;
                let asked = one.verifying.into_iter().filter(|request| open.contains_key(request));
                hold.add_verifying(asked);
                self.schedule.set(hold, cx.now.plus(pause));
            }
            // It is not live any more: lost or released meanwhile.
            _ => self.answer_lost(cx, holds, one.hold, one.verifying),
        }
    }

    fn pause_after_late(&mut self, cx: &Context, holds: &mut Holds, id: u64) -> Duration {
        match holds.count_failure(id) {
            0 => Duration::ZERO,
            failures => renewal_pause(cx, failures),
        }
    }

    /// The hold stays valid until its old end, and is renewed again after a pause.
    fn on_failed(
        &mut self,
        cx: &mut Context,
        holds: &mut Holds,
        renewing: Vec<Renewing>,
        failure: &Failure,
    ) {
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
            self.retry_after(cx, holds, one, renewal_pause(cx, failures));
        }
    }
}

impl Engine {
    pub(super) fn on_verify(&mut self, id: u64, request: RequestId) {
        self.check_validity(id);
        self.watchdog.begin_verification(&mut self.cx, &mut self.holds, id, request);
    }

    /// Queues all holds that are due now or within a sixtieth of a lease, and checks whether each
    /// is still valid.
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
                // Late. The reply told us the server's time, so the first retry goes at once; after
                // another late answer it waits.
                for one in holds {
                    let pause = self.watchdog.pause_after_late(&self.cx, &mut self.holds, one.hold);
                    self.watchdog.retry_after(&mut self.cx, &mut self.holds, one, pause);
                }
            }
            Outcome::NotExecuted(failure) if concerns_one_key(failure.kind) && holds.len() > 1 => {
                // The other keys of the batch must not suffer.
                for one in holds {
                    if let Some(hold) = self.holds.get_mut(&one.hold) {
                        hold.renew_alone = true;
                    }
                    self.watchdog.retry_after(&mut self.cx, &mut self.holds, one, Duration::ZERO);
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
            Renewed::Yes => return self.on_confirmed(one, server, sent),
            Renewed::Gone if seeded!(GoneIsLost) => {
                self.watchdog.arm(&self.cx, &mut self.holds, id)
            }
            Renewed::Gone => self.lose_gone(id),
            Renewed::Foreign => self.lose_foreign(id),
            Renewed::Refused => {
                let failure = Failure::new(FailureKind::Denied, "renewal of this key was refused");
                return self.watchdog.on_failed(&mut self.cx, &mut self.holds, vec![one], &failure);
            }
        }
        self.watchdog.answer_lost(&mut self.cx, &self.holds, id, one.verifying);
    }

    fn on_confirmed(&mut self, one: Renewing, server: ServerId, sent: Moment) {
        let id = one.hold;
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.server_epoch = self.cx.servers.epoch(server);
            if one.watched {
                hold.renewed_at = hold.renewed_at.max(sent);
            }
            // A hint that came while this was on its way still has to be looked into.
            hold.force_hints -= one.hints;
            // It was renewed, so the refusal of its batch was about another key.
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
}

/// Holds with the same number go in one script. Their remaining times differ by less than an
/// eighth, because a script has one deadline, and one hold must not shorten that of the others
/// much.
fn urgency(cx: &Context, hold: &Hold) -> u32 {
    let limit = cx.attempt_deadline();
    let round_trip = cx.servers.round_trip(&hold.lock);
    let (deadline, _) = renewal_lease(cx, hold, round_trip, limit.min(hold.valid_until()));
    if deadline >= limit {
        return u32::MAX;
    }
    let left = u64::try_from(deadline.since(cx.now).as_micros()).unwrap_or(u64::MAX).max(8);
    let octave = left.ilog2();
    let eighth = (left >> (octave - 3)) & 7;
    octave * 8 + u32::try_from(eighth).unwrap_or(7)
}

/// How many of these holds are renewed by one script: it looks at `BATCH` entries of keys at most,
/// unless a hold alone has more.
fn in_one_script(holds: &Holds, ids: &[u64]) -> usize {
    let mut entries = 0;
    let fits = |id: &&u64| {
        entries += holds.get(id).map_or(1, |hold| hold.lock.kind().entries(hold.share));
        entries <= BATCH
    };
    ids.iter().take_while(fits).count().max(1)
}

/// Whether a refusal of a batch may be about one of its keys only: forbidden, of another type, or
/// already moved.
fn concerns_one_key(kind: FailureKind) -> bool {
    !kind.is_transient() || kind == FailureKind::SlotMoving
}

/// The deadline of a renewal and the TTL to send. The TTL `PROBE` only asks: the hold is not
/// watched, or `max_hold` leaves almost nothing to gain.
fn renewal_lease(
    cx: &Context,
    hold: &Hold,
    round_trip: Duration,
    deadline: Moment,
) -> (Moment, LeaseMs) {
    if !hold.is_watched() {
        return (deadline, LeaseMs::PROBE);
    }
    let lease = cx.lease_beside_redisson(&hold.lock, hold.share, cx.config.lease);
    if hold.max_end().is_none() {
        return (deadline, lease);
    }
    let (capped, ttl) = Hold::within_max_hold(cx.now, deadline, lease, hold.max_end(), round_trip);
    if cx.now.plus(ttl.validity()).since(hold.valid_until()) < ttl.duration() / 10 {
        return (deadline, LeaseMs::PROBE);
    }
    (capped, ttl)
}

/// 50 ms, doubled for each failure in a row; at most a tenth of the lease, at least 10 ms.
fn renewal_pause(cx: &Context, failures: u32) -> Duration {
    let tenth = cx.config.lease.duration() / 10;
    if seeded!(FailedRenewalIsRepeated) {
        return 10 * tenth;
    }
    Duration::from_millis(50 << failures.min(5)).min(tenth).max(Duration::from_millis(10))
}
