//! One hold: its states, its levels, and its pending operations.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::error::LossReason;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::by_id::Record;
use crate::engine::event::RequestId;
use crate::engine::waiter::Trouble;
use crate::kinds::share::Share;

/// The state of a hold.
///
/// | state     | on the server          | transitions                                            |
/// |-----------|------------------------|--------------------------------------------------------|
/// | Acquiring | perhaps our field      | Granted → Held; Dropped → gone                         |
/// | Held      | our field              | Doubted → Suspect; LastLevel → Releasing; Ended → Lost |
/// | Suspect   | probably our field     | Confirmed → Held; LastLevel → Releasing; Ended → Lost  |
/// | Releasing | our field, or released | Dropped → gone                                         |
/// | Lost      | not ours any more      | Dropped → gone, with the last guard                    |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldState {
    Acquiring,
    Held,
    Suspect,
    Releasing,
    Lost(LossReason),
    Gone,
}

/// The inputs of the transition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// The server granted it.
    Granted,
    /// No renewal was confirmed for half a lease, the link is down, or the server's clock jumped.
    Doubted,
    /// The server confirmed it.
    Confirmed,
    /// The last level was released, the grant was not taken, or the client shuts down.
    LastLevel,
    /// It ended without being released by its owner.
    Ended(LossReason),
    /// Its guards are gone and its release is answered, so the record is removed.
    Dropped,
}

impl HoldState {
    /// The only transition table. `None`: the input has no effect in this state.
    pub(crate) fn next(self, input: Input) -> Option<Self> {
        match (self, input) {
            (Self::Acquiring, Input::Granted) | (Self::Held | Self::Suspect, Input::Confirmed) => {
                Some(Self::Held)
            }
            (Self::Held, Input::Doubted) => Some(Self::Suspect),
            (Self::Held | Self::Suspect, Input::LastLevel) => Some(Self::Releasing),
            (Self::Held | Self::Suspect, Input::Ended(reason)) => Some(Self::Lost(reason)),
            (Self::Acquiring | Self::Releasing | Self::Lost(_), Input::Dropped) => Some(Self::Gone),
            _ => None,
        }
    }

    /// True while the hold is held, as far as we know.
    pub(crate) fn is_live(self) -> bool {
        matches!(self, Self::Held | Self::Suspect)
    }

    /// True while the hold keeps other owners of this client from making attempts.
    pub(crate) fn is_in_the_way(self) -> bool {
        matches!(self, Self::Held | Self::Suspect | Self::Releasing)
    }
}

/// One level of a hold, which one guard represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    /// The request that was granted this level.
    pub(crate) request: RequestId,
    /// What it adds to the hold.
    pub(crate) share: Share,
    pub(crate) watched: bool,
    /// True once its caller is known to have the guard. Before that, the level is no reason to
    /// renew.
    pub(crate) picked_up: bool,
}

/// The ends that `max_hold` options set for a hold.
#[derive(Debug)]
struct MaxHoldEnds {
    /// The end that counts.
    nearest: Moment,
    /// The ends of the levels that have one.
    of_levels: SmallVec<[(RequestId, Moment); 1]>,
    /// The nearest end of the levels that were released, or `NEVER`.
    given_up: Moment,
}

impl MaxHoldEnds {
    /// Removes the end of a level that was not taken. Returns the end that counts then, or `NEVER`.
    /// `None`: the level had no end.
    fn forget(&mut self, level: RequestId) -> Option<Moment> {
        self.take(level)?;
        self.nearest = self.of_levels.iter().map(|(_, end)| *end).fold(self.given_up, Moment::min);
        Some(self.nearest)
    }

    /// Keeps the end of a level that is released.
    fn give_up(&mut self, level: RequestId) {
        if let Some(end) = self.take(level) {
            self.given_up = self.given_up.min(end);
        }
    }

    fn take(&mut self, level: RequestId) -> Option<Moment> {
        let at = self.of_levels.iter().position(|(known, _)| *known == level)?;
        Some(self.of_levels.remove(at).1)
    }
}

/// A pending operation of a hold. They are sent one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingOperation {
    Reenter(RequestId),
    /// Set the server's count to the owner's.
    LowerCount(Option<Unlock>),
}

/// A caller that waits for the answer to its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unlock {
    pub(crate) request: RequestId,
    pub(crate) since: Moment,
}

/// The command of a hold that is on the wire, renewals aside.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sending {
    Acquire,
    Reenter {
        request: RequestId,
        abandoned: bool,
    },
    /// The callers that wait for it are in `PendingWork::lowering`.
    LowerCount,
    Release,
    HandOff,
}

/// The last release of a hold.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Release {
    /// The callers that wait for it.
    pub(crate) unlocks: SmallVec<[Unlock; 1]>,
    /// True if an earlier attempt may have been executed. An absent key is then the wanted result.
    pub(crate) may_be_done: bool,
    /// True for the release of a dropped guard: a failure is only counted and logged.
    pub(crate) background: bool,
    /// The next one is a release of its own: an attempt in a batch, or as a hand-off, has failed; or
    /// others watch the hold, and only a release of its own tells them.
    pub(crate) alone: bool,
    /// True after the slot was found to be moving: the line is out of reach, and the next attempt
    /// names the lock alone.
    pub(crate) lock_alone: bool,
    /// Why the last attempt failed, if the failure says something about the server or the link.
    pub(crate) last_failure: Option<String>,
}

static NO_RELEASE: Release = Release {
    unlocks: SmallVec::new_const(),
    may_be_done: false,
    background: false,
    alone: false,
    lock_alone: false,
    last_failure: None,
};

/// The pending operations of a hold, and the ends that `max_hold` sets. Mostly a hold has none, and
/// then this takes no memory.
#[derive(Debug, Default)]
pub(crate) struct PendingWork {
    pub(crate) todo: VecDeque<PendingOperation>,
    /// The callers that wait for the smaller count that is on the wire.
    pub(crate) lowering: Vec<Option<Unlock>>,
    /// The callers of `verify` that wait for an answer.
    pub(crate) verifying: Vec<RequestId>,
    pub(crate) release: Release,
    /// The trouble of its re-entries since the last one that was answered.
    pub(crate) trouble: Option<Box<Trouble>>,
    ends: Option<Box<MaxHoldEnds>>,
}

impl PendingWork {
    fn is_empty(&self) -> bool {
        let Self { todo, lowering, verifying, release, trouble, ends } = self;
        let nobody_waits = todo.is_empty() && lowering.is_empty() && verifying.is_empty();
        nobody_waits && *release == NO_RELEASE && trouble.is_none() && ends.is_none()
    }
}

/// Who gets the hold, or has it.
#[derive(Debug)]
enum HoldTaker {
    /// The caller was gone before the grant came.
    Nobody,
    /// The request that gets the grant of the attempt.
    Request(RequestId),
    Granted(Arc<HoldCell>),
}

/// One acquisition of a lock by one owner.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) id: u64,
    pub(crate) name_id: u64,
    pub(crate) lock: LockName,
    pub(crate) owner: OwnerKey,
    pub(crate) state: HoldState,
    taker: HoldTaker,
    pub(crate) levels: SmallVec<[Level; 1]>,
    /// The most that the server may have of it; before the grant, what its attempts want.
    pub(crate) share: Share,
    pub(crate) sending: Option<Sending>,
    /// True while a renewal of it is on the wire.
    pub(crate) renewing: bool,
    /// When the watchdog looks at it next, or `NEVER`. Set by the schedule only.
    pub(crate) renewal_due: Moment,
    pending_work: Option<Box<PendingWork>>,
    /// When the command that was granted was sent. `max_hold` and the duration of the hold count
    /// from here.
    pub(crate) begun: Moment,
    /// When the last confirmed acquire or renewal was sent, and the time to live that it set.
    pub(crate) confirmed_at: Moment,
    pub(crate) ttl: LeaseMs,
    /// When the last confirmed command was sent that makes a renewal unnecessary for now, and when
    /// the last one of any kind was sent.
    pub(crate) renewed_at: Moment,
    pub(crate) heard_at: Moment,
    /// From here on the key is gone, whichever commands have arrived.
    pub(crate) key_end: Moment,
    /// True if the key lives about as long as `max_hold` allows, so that renewing gains nothing.
    pub(crate) at_its_end: bool,
    /// The epoch of the server that granted it.
    pub(crate) server_epoch: u32,
    /// How many messages on the client channel said that the hold was taken away, and have not been
    /// refuted by an answer to a later question.
    pub(crate) force_hints: u16,
    /// The number of failures in a row, for the back-off.
    pub(crate) failures: u8,
    /// True after a batch of renewals with this hold was refused: it is renewed alone.
    pub(crate) renew_alone: bool,
    pub(crate) self_wait_reported: bool,
}

impl Record for Hold {
    type Id = u64;

    fn id(&self) -> u64 {
        self.id
    }
}

impl Hold {
    pub(crate) fn new(
        id: u64,
        name_id: u64,
        lock: LockName,
        owner: OwnerKey,
        share: Share,
        lease: LeaseMs,
    ) -> Self {
        Self {
            id,
            name_id,
            lock,
            owner,
            state: HoldState::Acquiring,
            taker: HoldTaker::Nobody,
            levels: SmallVec::new(),
            share,
            sending: None,
            renewing: false,
            renewal_due: Moment::NEVER,
            pending_work: None,
            begun: Moment::ZERO,
            confirmed_at: Moment::ZERO,
            ttl: lease,
            renewed_at: Moment::ZERO,
            heard_at: Moment::ZERO,
            key_end: Moment::ZERO,
            at_its_end: false,
            server_epoch: 0,
            force_hints: 0,
            failures: 0,
            renew_alone: false,
            self_wait_reported: false,
        }
    }

    /// Applies the transition table. Returns false if nothing changed.
    pub(crate) fn enter(&mut self, input: Input) -> bool {
        match self.state.next(input) {
            Some(next) => {
                self.state = next;
                if let Some(cell) = self.cell() {
                    cell.set_suspect(next == HoldState::Suspect);
                }
                true
            }
            None => false,
        }
    }

    /// What callers see of the hold; `None` before the grant.
    pub(crate) fn cell(&self) -> Option<&Arc<HoldCell>> {
        match &self.taker {
            HoldTaker::Granted(cell) => Some(cell),
            HoldTaker::Nobody | HoldTaker::Request(_) => None,
        }
    }

    /// The request that gets the grant; `None` if its caller is gone, or after the grant.
    pub(crate) fn taker(&self) -> Option<RequestId> {
        match self.taker {
            HoldTaker::Request(request) => Some(request),
            HoldTaker::Nobody | HoldTaker::Granted(_) => None,
        }
    }

    /// If others watch the hold, its release must tell everybody: a hand-off would tell nobody.
    pub(crate) fn is_watched_by_others(&mut self, watched: bool) {
        if watched && !seeded!(LeaderTellsAll) {
            self.pending_work().release.alone = true;
        }
    }

    /// Sets the request that gets the grant. Only before the grant.
    pub(crate) fn set_taker(&mut self, taker: Option<RequestId>) {
        debug_assert!(self.cell().is_none());
        self.taker = taker.map_or(HoldTaker::Nobody, HoldTaker::Request);
    }

    /// Records the grant. Returns the request that gets it.
    pub(crate) fn grant(&mut self, cell: Arc<HoldCell>) -> Option<RequestId> {
        let taker = self.taker();
        self.taker = HoldTaker::Granted(cell);
        taker
    }

    /// The pending operations, for adding to them.
    pub(crate) fn pending_work(&mut self) -> &mut PendingWork {
        self.pending_work.get_or_insert_default()
    }

    /// The pending operations, if there are any.
    pub(crate) fn existing_work(&mut self) -> Option<&mut PendingWork> {
        self.pending_work.as_deref_mut()
    }

    #[cfg(test)]
    pub(crate) fn is_calm(&self) -> bool {
        self.pending_work.is_none()
    }

    /// Frees the memory for pending operations if there are none.
    pub(crate) fn tidy(&mut self) {
        self.pending_work.take_if(|pending_work| pending_work.is_empty());
    }

    /// True if no command is on the wire and none is pending, renewals aside.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.sending.is_none() && self.todo().next().is_none()
    }

    pub(crate) fn todo(&self) -> impl Iterator<Item = PendingOperation> + '_ {
        self.pending_work.iter().flat_map(|pending_work| pending_work.todo.iter().copied())
    }

    pub(crate) fn verifying(&self) -> &[RequestId] {
        self.pending_work.as_ref().map_or(&[], |pending_work| &pending_work.verifying)
    }

    pub(crate) fn take_todo(&mut self) -> VecDeque<PendingOperation> {
        self.existing_work()
            .map(|pending_work| std::mem::take(&mut pending_work.todo))
            .unwrap_or_default()
    }

    pub(crate) fn take_lowering(&mut self) -> Vec<Option<Unlock>> {
        self.existing_work()
            .map(|pending_work| std::mem::take(&mut pending_work.lowering))
            .unwrap_or_default()
    }

    pub(crate) fn take_verifying(&mut self) -> Vec<RequestId> {
        self.existing_work()
            .map(|pending_work| std::mem::take(&mut pending_work.verifying))
            .unwrap_or_default()
    }

    pub(crate) fn add_verifying(&mut self, requests: impl Iterator<Item = RequestId>) {
        let mut requests = requests.peekable();
        if requests.peek().is_some() {
            self.pending_work().verifying.extend(requests);
        }
    }

    /// The last release.
    pub(crate) fn release(&self) -> &Release {
        self.pending_work.as_ref().map_or(&NO_RELEASE, |pending_work| &pending_work.release)
    }

    /// Takes out the callers whose wait is over. Their releases go on in the background.
    pub(crate) fn take_unlocks(&mut self, mut over: impl FnMut(&Unlock) -> bool) -> Vec<Unlock> {
        let mut taken = Vec::new();
        let Some(pending_work) = &mut self.pending_work else { return taken };
        taken.extend(
            pending_work
                .lowering
                .iter_mut()
                .filter_map(|unlock| unlock.take_if(|unlock| over(unlock))),
        );
        for todo in &mut pending_work.todo {
            if let PendingOperation::LowerCount(unlock) = todo {
                taken.extend(unlock.take_if(|unlock| over(unlock)));
            }
        }
        let release = &mut pending_work.release;
        let before = taken.len();
        release.unlocks.retain(|unlock| {
            let over = over(unlock);
            taken.extend(over.then_some(*unlock));
            !over
        });
        release.background |= taken.len() > before;
        taken
    }

    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        self.pending_work.as_ref()?.trouble.as_deref()
    }

    /// True if a message says that it was taken away, and no answer has refuted that since.
    pub(crate) fn is_force_hinted(&self) -> bool {
        self.force_hints > 0
    }

    /// True if a caller has a guard that asked for renewals.
    pub(crate) fn is_watched(&self) -> bool {
        self.levels
            .iter()
            .any(|level| level.watched && (level.picked_up || seeded!(UntakenIsNotRenewed)))
    }

    /// True if the watchdog has to extend the lease from time to time.
    pub(crate) fn is_renewed(&self) -> bool {
        self.is_watched() && !self.at_its_end
    }

    /// The end that `max_hold` sets.
    pub(crate) fn max_end(&self) -> Option<Moment> {
        Some(self.pending_work.as_ref()?.ends.as_ref()?.nearest)
    }

    /// Sets the end that the first level asks for.
    pub(crate) fn set_max_end(&mut self, end: Option<Moment>) {
        let new = |nearest| {
            Box::new(MaxHoldEnds { nearest, of_levels: SmallVec::new(), given_up: Moment::NEVER })
        };
        match end {
            Some(end) => self.pending_work().ends = Some(new(end)),
            None => {
                self.existing_work().map(|pending_work| pending_work.ends.take());
            }
        }
    }

    fn known_ends(&mut self) -> Option<&mut MaxHoldEnds> {
        self.pending_work.as_mut()?.ends.as_deref_mut()
    }

    /// True if the hold can be renewed when it is due: it is live and watched, and no renewal is on
    /// the wire.
    pub(crate) fn is_to_be_renewed(&self) -> bool {
        self.state.is_live() && self.is_renewed() && !self.renewing
    }

    /// The time between the end of the lease and the end that `max_hold` sets.
    pub(crate) fn gap_to_max_end(&self) -> Option<Duration> {
        let margin = self.ttl.duration().saturating_sub(self.ttl.validity());
        Some(self.max_end()?.since(self.valid_until().plus(margin)))
    }

    pub(crate) fn has_unpicked_level(&self) -> bool {
        self.levels.iter().any(|level| !level.picked_up)
    }

    /// The owner's hold count, which is always exact.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.levels.len()).unwrap_or(u32::MAX)
    }

    /// What the owner's levels have together, which is always exact.
    pub(crate) fn share_of_levels(&self) -> Share {
        let shares = self.levels.iter().map(|level| level.share);
        shares.fold(Share::NOTHING, Share::plus)
    }

    /// True if its owner has only a shared share and wants an exclusive one beside it: it would wait
    /// for itself.
    pub(crate) fn cannot_grow_by(&self, share: Share) -> bool {
        let has = self.share_of_levels();
        share.exclusive > 0
            && has.exclusive == 0
            && has.shared > 0
            && !seeded!(ReaderDoesNotAwaitItself)
    }

    /// The number of levels that are granted or on the wire.
    pub(crate) fn count_wanted(&self) -> usize {
        let on_the_wire = matches!(self.sending, Some(Sending::Reenter { abandoned: false, .. }));
        let queued =
            self.todo().filter(|todo| matches!(todo, PendingOperation::Reenter(_))).count();
        self.levels.len() + queued + usize::from(on_the_wire)
    }

    /// Shows callers the count. Called after each change of the levels.
    pub(crate) fn show_count(&self) {
        if let Some(cell) = self.cell() {
            cell.set_count(self.count());
        }
    }

    /// Adds a level, with the end that its `max_hold` sets for the hold.
    pub(crate) fn add_level(
        &mut self,
        request: RequestId,
        share: Share,
        watched: bool,
        end: Option<Moment>,
    ) {
        self.levels.push(Level { request, share, watched, picked_up: false });
        if let Some(end) = end {
            if self.max_end().is_none() {
                self.set_max_end(Some(end));
            }
            if let Some(ends) = self.known_ends() {
                ends.nearest = ends.nearest.min(end);
                ends.of_levels.push((request, end));
            }
        }
        self.show_count();
    }

    /// Removes the end that a level set which was not taken. Returns true if the hold may last
    /// longer than before.
    pub(crate) fn forget_end(&mut self, level: RequestId, now: Moment) -> bool {
        let Some(nearest) = self.known_ends().and_then(|ends| ends.forget(level)) else {
            return false;
        };
        if !self.state.is_live() {
            return false;
        }
        if nearest == Moment::NEVER {
            self.set_max_end(None);
        }
        self.at_its_end = false;
        if let Some(cell) = self.cell() {
            cell.set_expiry_means(LossReason::Expired);
            cell.extend(now, self.confirmed_at.plus(self.ttl.validity()).min(nearest));
        }
        true
    }

    /// Removes a level, but not the end that it set. Searches from the back, because nested calls
    /// mostly return in that order.
    pub(crate) fn remove_level(&mut self, request: RequestId) -> Option<Level> {
        let at = self.levels.iter().rposition(|level| level.request == request)?;
        let level = self.levels.remove(at);
        if let Some(ends) = self.known_ends() {
            ends.give_up(request);
        }
        self.show_count();
        Some(level)
    }

    /// True if the hold is valid and has guards. Without guards only its release is left to be
    /// sent.
    pub(crate) fn is_kept(&self) -> bool {
        self.state.is_live() && !self.levels.is_empty()
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.cell().map_or(Moment::ZERO, |cell| cell.valid_until())
    }

    /// A lease shortened to what `max_hold` leaves, with the deadline of the attempt. The attempt
    /// may be executed as late as its deadline, so some time before the end is reserved for it: a
    /// tenth of what is left, or what a slow network needs, but at most half.
    pub(crate) fn within_max_hold(
        now: Moment,
        deadline: Moment,
        lease: LeaseMs,
        end: Option<Moment>,
        round_trip: Duration,
    ) -> (Moment, LeaseMs) {
        let Some(end) = end.filter(|_| !seeded!(MaxHoldCutsLeases)) else {
            return (deadline, lease);
        };
        let left = end.since(now);
        let deadline = deadline.min(now.plus((left / 10).max((10 * round_trip).min(left / 2))));
        (deadline, lease.at_most(end.since(deadline)))
    }

    /// When to renew next: a third of the lease after the last renewal was sent. A longer lease of
    /// another level does not delay it.
    pub(crate) fn renew_at(&self, lease: LeaseMs) -> Moment {
        self.renewed_at.plus(self.ttl.min(lease).duration() / 3)
    }

    /// When the hold becomes suspect: after half a lease without any confirmation.
    pub(crate) fn doubt_at(&self) -> Moment {
        self.heard_at.plus(self.ttl.duration() / 2)
    }

    /// How long a grant waits to be picked up.
    pub(crate) fn offer_time(&self) -> Duration {
        (self.ttl.duration() / 3).min(Duration::from_secs(5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASON: LossReason = LossReason::Removed;
    const STATES: [HoldState; 6] = [
        HoldState::Acquiring,
        HoldState::Held,
        HoldState::Suspect,
        HoldState::Releasing,
        HoldState::Lost(REASON),
        HoldState::Gone,
    ];

    fn hold() -> Hold {
        let lease = LeaseMs::checked("lease", Duration::from_secs(30)).unwrap();
        Hold::new(1, 1, LockName::new("n").unwrap(), OwnerKey::once(), Share::ONE, lease)
    }

    #[test]
    fn every_state_with_every_input() {
        let other = LossReason::Expired;
        let inputs = [
            Input::Granted,
            Input::Doubted,
            Input::Confirmed,
            Input::LastLevel,
            Input::Ended(other),
            Input::Dropped,
        ];
        let (held, suspect, releasing) =
            (Some(HoldState::Held), Some(HoldState::Suspect), Some(HoldState::Releasing));
        let (lost, gone) = (Some(HoldState::Lost(other)), Some(HoldState::Gone));
        let table = [
            // Granted, Doubted, Confirmed, LastLevel, Ended, Dropped
            [held, None, None, None, None, gone],
            [None, suspect, held, releasing, lost, None],
            [None, None, held, releasing, lost, None],
            [None, None, None, None, None, gone],
            [None, None, None, None, None, gone],
            [None, None, None, None, None, None],
        ];
        for (state, row) in STATES.into_iter().zip(table) {
            for (input, wanted) in inputs.into_iter().zip(row) {
                assert_eq!(state.next(input), wanted, "{state:?} + {input:?}");
                let mut hold = hold();
                hold.state = state;
                assert_eq!(hold.enter(input), wanted.is_some(), "{state:?} + {input:?}");
                assert_eq!(hold.state, wanted.unwrap_or(state));
            }
        }
    }

    #[test]
    fn the_first_reason_of_a_loss_stays() {
        assert_eq!(HoldState::Lost(REASON).next(Input::Ended(LossReason::Expired)), None);
        assert_eq!(
            HoldState::Lost(REASON).next(Input::Confirmed),
            None,
            "a late reply revives nothing"
        );
    }

    #[test]
    fn the_nearest_end_counts_also_of_what_was_given_up_but_not_of_what_nobody_took() {
        let mut hold = hold();
        hold.state = HoldState::Held;
        let level = |number| (RequestId(number), Moment(number * 100));
        hold.set_max_end(Some(Moment(700)));
        for (request, end) in [level(7), level(3), level(5), level(4)] {
            hold.add_level(request, Share::ONE, false, Some(end));
        }
        hold.add_level(RequestId(9), Share::ONE, false, None);
        assert_eq!(hold.max_end(), Some(Moment(300)));
        assert!(!hold.forget_end(RequestId(9), Moment::ZERO), "it had none");
        assert!(hold.forget_end(RequestId(3), Moment::ZERO));
        assert_eq!(hold.max_end(), Some(Moment(400)));
        assert!(hold.remove_level(RequestId(4)).is_some());
        assert!(hold.forget_end(RequestId(5), Moment::ZERO));
        assert_eq!((hold.max_end(), hold.count()), (Some(Moment(400)), 4));

        hold.set_max_end(Some(Moment(700)));
        hold.add_level(RequestId(7), Share::ONE, false, Some(Moment(700)));
        assert!(hold.forget_end(RequestId(7), Moment::ZERO));
        assert_eq!(hold.max_end(), None);

        hold.add_level(RequestId(8), Share::ONE, false, Some(Moment(800)));
        hold.state = HoldState::Lost(REASON);
        assert!(!hold.forget_end(RequestId(8), Moment::ZERO), "it is over");
    }

    #[test]
    fn max_hold_keeps_the_end_free() {
        let now = Moment(5_000_000_000);
        let lease = LeaseMs::checked("lease", Duration::from_secs(30)).unwrap();
        let end = now.plus(Duration::from_secs(10));
        let (deadline, ttl) = Hold::within_max_hold(
            now,
            now.plus(Duration::from_secs(1)),
            lease,
            Some(end),
            Duration::ZERO,
        );
        assert!(deadline.plus(ttl.duration()) <= end);
        assert_eq!(ttl.millis(), 9_000);
        let (_, ttl) = Hold::within_max_hold(
            now,
            now.plus(Duration::from_secs(1)),
            lease,
            Some(now),
            Duration::ZERO,
        );
        assert_eq!(ttl.millis(), 1);
    }
}
