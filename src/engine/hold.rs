//! One hold: its states, its levels, and what it still has to send.

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
use crate::engine::queue::Trouble;

/// Where a hold stands.
///
/// | state     | on the server                     | leaves by                                              |
/// |-----------|-----------------------------------|--------------------------------------------------------|
/// | Acquiring | perhaps a grant nobody knows of   | Granted → Held; Dropped → gone                         |
/// | Held      | our field                         | Doubted → Suspect; LastLevel → Releasing; Ended → Lost |
/// | Suspect   | our field, as far as we know      | Confirmed → Held; LastLevel → Releasing; Ended → Lost  |
/// | Releasing | our field until a release arrived | Dropped → gone                                         |
/// | Lost      | not ours to touch                 | Dropped → gone, with the last guard                    |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldState {
    Acquiring,
    Held,
    Suspect,
    Releasing,
    Lost(LossReason),
    Gone,
}

/// What can happen to a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// The server granted it.
    Granted,
    /// No confirmed renewal for half a lease, the link is down, or the server's clock jumped.
    Doubted,
    /// The server confirmed it.
    Confirmed,
    /// The last level was given up, the grant was not taken, or the client shuts down.
    LastLevel,
    /// It ended without its owner.
    Ended(LossReason),
    /// Nothing refers to it any more.
    Dropped,
}

impl HoldState {
    /// The one transition table. `None`: the input means nothing in this state.
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

    /// Held as far as we know.
    pub(crate) fn is_live(self) -> bool {
        matches!(self, Self::Held | Self::Suspect)
    }

    /// Keeps other owners of this client from talking to the server.
    pub(crate) fn is_in_the_way(self) -> bool {
        matches!(self, Self::Held | Self::Suspect | Self::Releasing)
    }
}

/// One level: what one guard proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    /// The acquisition that was granted.
    pub(crate) request: RequestId,
    pub(crate) watched: bool,
    /// Its caller has shown that it has the guard. Before, it is no reason to renew.
    pub(crate) picked_up: bool,
}

/// The ends that `max_hold` sets to a hold.
#[derive(Debug)]
struct MaxHoldEnds {
    /// What counts.
    nearest: Moment,
    /// Of the levels that have one.
    of_levels: SmallVec<[(RequestId, Moment); 1]>,
    /// The nearest of the levels that were given up, or never.
    given_up: Moment,
}

impl MaxHoldEnds {
    /// The end of a level counts no more: which does then, or never. `None`: it had none.
    fn forget(&mut self, level: RequestId) -> Option<Moment> {
        self.take(level)?;
        self.nearest = self.of_levels.iter().map(|(_, end)| *end).fold(self.given_up, Moment::min);
        Some(self.nearest)
    }

    /// The end of a level that is given up goes on counting.
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

/// Something a hold has to send, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Todo {
    Reenter(RequestId),
    /// The server's count is to be set to the owner's.
    LowerCount(Option<Unlock>),
}

/// A caller that waits for the end of what it gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unlock {
    pub(crate) request: RequestId,
    pub(crate) since: Moment,
}

/// The command of a hold that is on the wire, renewals apart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sending {
    Acquire,
    Reenter {
        request: RequestId,
        abandoned: bool,
    },
    /// For those who are among the errands.
    LowerCount,
    Release,
    HandOff,
}

/// The last release of a hold.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Release {
    /// Who waits for it.
    pub(crate) unlocks: SmallVec<[Unlock; 1]>,
    /// An earlier try may have been executed: an absent key is then what was wanted.
    pub(crate) may_be_done: bool,
    /// A dropped guard's: nobody hears of a failure but the counters.
    pub(crate) background: bool,
    /// A try together with others, or as a hand-off, has failed: the next one does nothing else.
    pub(crate) alone: bool,
    /// Why the last try failed, if that says anything about the server or the link.
    pub(crate) last_failure: Option<String>,
}

static NO_RELEASE: Release = Release {
    unlocks: SmallVec::new_const(),
    may_be_done: false,
    background: false,
    alone: false,
    last_failure: None,
};

/// What a hold still has to do, and the ends that it has: most of its time nothing, and then it takes no memory.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    pub(crate) todo: VecDeque<Todo>,
    /// Who waits for the smaller count that is on the wire.
    pub(crate) lowering: Vec<Option<Unlock>>,
    /// Who waits to hear whether it is still there.
    pub(crate) verifying: Vec<RequestId>,
    pub(crate) release: Release,
    /// What its re-entries have met since one was answered.
    pub(crate) trouble: Option<Box<Trouble>>,
    ends: Option<Box<MaxHoldEnds>>,
}

impl Errands {
    fn is_empty(&self) -> bool {
        let Self { todo, lowering, verifying, release, trouble, ends } = self;
        let nobody_waits = todo.is_empty() && lowering.is_empty() && verifying.is_empty();
        nobody_waits && *release == NO_RELEASE && trouble.is_none() && ends.is_none()
    }
}

/// Who has a hold.
#[derive(Debug)]
enum Whose {
    /// Its caller has gone before the grant came.
    Nobodys,
    /// The grant of an attempt is for this one.
    Wanted(RequestId),
    Granted(Arc<HoldCell>),
}

/// One acquisition of a lock by one owner.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) id: u64,
    pub(crate) name: u64,
    pub(crate) lock: LockName,
    pub(crate) owner: OwnerKey,
    pub(crate) state: HoldState,
    whose: Whose,
    pub(crate) levels: SmallVec<[Level; 1]>,
    pub(crate) sending: Option<Sending>,
    /// A renewal of it is on the wire.
    pub(crate) renewing: bool,
    /// The registry's: when it is next looked at, or never.
    pub(crate) renewal_due: Moment,
    errands: Option<Box<Errands>>,
    /// When the command that was granted was sent: `max_hold` counts from here, and how long it has been held.
    pub(crate) begun: Moment,
    /// When the last confirmed acquire or renewal was sent, and the TTL it set.
    pub(crate) confirmed_at: Moment,
    pub(crate) ttl: LeaseMs,
    /// When the last confirmed command was sent that a renewal need not repeat, and the last of any kind.
    pub(crate) renewed_at: Moment,
    pub(crate) heard_at: Moment,
    /// From here on the key is gone, whatever was lost on the way.
    pub(crate) key_end: Moment,
    /// The key lives about as long as `max_hold` allows: there is nothing left to renew.
    pub(crate) at_its_end: bool,
    /// Which life of which server granted it.
    pub(crate) server_epoch: u32,
    /// A client-channel message said that it was taken away.
    pub(crate) force_hint: bool,
    /// Failures in a row, for the back-off.
    pub(crate) failures: u8,
    /// A batch with this hold was refused: renew it alone.
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
    pub(crate) fn new(id: u64, name: u64, lock: LockName, owner: OwnerKey, lease: LeaseMs) -> Self {
        Self {
            id,
            name,
            lock,
            owner,
            state: HoldState::Acquiring,
            whose: Whose::Nobodys,
            levels: SmallVec::new(),
            sending: None,
            renewing: false,
            renewal_due: Moment::NEVER,
            errands: None,
            begun: Moment::ZERO,
            confirmed_at: Moment::ZERO,
            ttl: lease,
            renewed_at: Moment::ZERO,
            heard_at: Moment::ZERO,
            key_end: Moment::ZERO,
            at_its_end: false,
            server_epoch: 0,
            force_hint: false,
            failures: 0,
            renew_alone: false,
            self_wait_reported: false,
        }
    }

    /// Applies the transition table. False: nothing changed.
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

    /// What its callers see; `None` before it was granted.
    pub(crate) fn cell(&self) -> Option<&Arc<HoldCell>> {
        match &self.whose {
            Whose::Granted(cell) => Some(cell),
            Whose::Nobodys | Whose::Wanted(_) => None,
        }
    }

    /// Who gets the grant of an attempt; `None` once that caller has gone.
    pub(crate) fn taker(&self) -> Option<RequestId> {
        match self.whose {
            Whose::Wanted(request) => Some(request),
            Whose::Nobodys | Whose::Granted(_) => None,
        }
    }

    /// Before it is granted.
    pub(crate) fn set_taker(&mut self, taker: Option<RequestId>) {
        debug_assert!(self.cell().is_none());
        self.whose = taker.map_or(Whose::Nobodys, Whose::Wanted);
    }

    /// Gives back who is to have it.
    pub(crate) fn grant(&mut self, cell: Arc<HoldCell>) -> Option<RequestId> {
        let taker = self.taker();
        self.whose = Whose::Granted(cell);
        taker
    }

    /// What it has to do, to be added to.
    pub(crate) fn errands(&mut self) -> &mut Errands {
        self.errands.get_or_insert_default()
    }

    /// What it has to do, to be changed where there is something.
    pub(crate) fn known_errands(&mut self) -> Option<&mut Errands> {
        self.errands.as_deref_mut()
    }

    #[cfg(test)]
    pub(crate) fn is_calm(&self) -> bool {
        self.errands.is_none()
    }

    /// Keeps no memory for errands when there are none.
    pub(crate) fn tidy(&mut self) {
        self.errands.take_if(|errands| errands.is_empty());
    }

    /// Nothing of it is on the wire but renewals, nor waits to be.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.sending.is_none() && self.todo().next().is_none()
    }

    pub(crate) fn todo(&self) -> impl Iterator<Item = Todo> + '_ {
        self.errands.iter().flat_map(|errands| errands.todo.iter().copied())
    }

    pub(crate) fn verifying(&self) -> &[RequestId] {
        self.errands.as_ref().map_or(&[], |errands| &errands.verifying)
    }

    pub(crate) fn take_todo(&mut self) -> VecDeque<Todo> {
        self.known_errands().map(|errands| std::mem::take(&mut errands.todo)).unwrap_or_default()
    }

    pub(crate) fn take_lowering(&mut self) -> Vec<Option<Unlock>> {
        self.known_errands().map(|errands| std::mem::take(&mut errands.lowering)).unwrap_or_default()
    }

    pub(crate) fn take_verifying(&mut self) -> Vec<RequestId> {
        self.known_errands().map(|errands| std::mem::take(&mut errands.verifying)).unwrap_or_default()
    }

    pub(crate) fn add_verifying(&mut self, requests: impl Iterator<Item = RequestId>) {
        let mut requests = requests.peekable();
        if requests.peek().is_some() {
            self.errands().verifying.extend(requests);
        }
    }

    /// Its last release.
    pub(crate) fn release(&self) -> &Release {
        self.errands.as_ref().map_or(&NO_RELEASE, |errands| &errands.release)
    }

    /// Takes those out who wait no longer; what they gave up is released without them.
    pub(crate) fn take_unlocks(&mut self, mut over: impl FnMut(&Unlock) -> bool) -> Vec<Unlock> {
        let mut taken = Vec::new();
        let Some(errands) = &mut self.errands else { return taken };
        taken.extend(errands.lowering.iter_mut().filter_map(|unlock| unlock.take_if(|unlock| over(unlock))));
        for todo in &mut errands.todo {
            if let Todo::LowerCount(unlock) = todo {
                taken.extend(unlock.take_if(|unlock| over(unlock)));
            }
        }
        let release = &mut errands.release;
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
        self.errands.as_ref()?.trouble.as_deref()
    }

    /// Somebody has a guard that asked for renewals.
    pub(crate) fn is_watched(&self) -> bool {
        self.levels.iter().any(|level| level.watched && (level.picked_up || seeded!(UntakenIsNotRenewed)))
    }

    /// The watchdog has to extend it from time to time.
    pub(crate) fn is_renewed(&self) -> bool {
        self.is_watched() && !self.at_its_end
    }

    /// The end that `max_hold` sets.
    pub(crate) fn max_end(&self) -> Option<Moment> {
        Some(self.errands.as_ref()?.ends.as_ref()?.nearest)
    }

    /// The end that the first level is to have.
    pub(crate) fn set_max_end(&mut self, end: Option<Moment>) {
        let new =
            |nearest| Box::new(MaxHoldEnds { nearest, of_levels: SmallVec::new(), given_up: Moment::NEVER });
        match end {
            Some(end) => self.errands().ends = Some(new(end)),
            None => {
                self.known_errands().map(|errands| errands.ends.take());
            }
        }
    }

    fn known_ends(&mut self) -> Option<&mut MaxHoldEnds> {
        self.errands.as_mut()?.ends.as_deref_mut()
    }

    /// As soon as it is time: nobody asks the server now.
    pub(crate) fn is_to_be_renewed(&self) -> bool {
        self.state.is_live() && self.is_renewed() && !self.renewing
    }

    /// How far the validity is from the end that `max_hold` sets, apart from the margin of its lease.
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

    /// Re-entries granted or on their way.
    pub(crate) fn count_wanted(&self) -> usize {
        let on_the_wire = matches!(self.sending, Some(Sending::Reenter { abandoned: false, .. }));
        let queued = self.todo().filter(|todo| matches!(todo, Todo::Reenter(_))).count();
        self.levels.len() + queued + usize::from(on_the_wire)
    }

    /// Adds or removes levels through here, so that callers see the count.
    pub(crate) fn show_count(&self) {
        if let Some(cell) = self.cell() {
            cell.set_count(self.count());
        }
    }

    /// Adds a level, with the end that its `max_hold` sets to the hold.
    pub(crate) fn add_level(&mut self, request: RequestId, watched: bool, end: Option<Moment>) {
        self.levels.push(Level { request, watched, picked_up: false });
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

    /// A level that nobody has taken sets no end. True: the hold may last longer than before.
    pub(crate) fn forget_end(&mut self, level: RequestId, now: Moment) -> bool {
        let Some(nearest) = self.known_ends().and_then(|ends| ends.forget(level)) else { return false };
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

    /// Takes a level away, not the end that it set. Searched from the end: nested calls return in that order.
    pub(crate) fn remove_level(&mut self, request: RequestId) -> Option<Level> {
        let at = self.levels.iter().rposition(|level| level.request == request)?;
        let level = self.levels.remove(at);
        if let Some(ends) = self.known_ends() {
            ends.give_up(request);
        }
        self.show_count();
        Some(level)
    }

    /// Valid, and somebody has a guard of it. Without guards it only waits for its release to be
    /// sent.
    pub(crate) fn is_kept(&self) -> bool {
        self.state.is_live() && !self.levels.is_empty()
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.cell().map_or(Moment::ZERO, |cell| cell.valid_until())
    }

    /// A lease cut to what `max_hold` leaves: (deadline of the attempt, TTL to send).
    /// The attempt may be executed as late as its deadline, so that much of the end is kept free: a tenth of what is
    /// left, or what a slow network needs, up to half.
    pub(crate) fn within_max_hold(
        now: Moment,
        deadline: Moment,
        lease: LeaseMs,
        end: Option<Moment>,
        round_trip: Duration,
    ) -> (Moment, LeaseMs) {
        let Some(end) = end.filter(|_| !seeded!(MaxHoldCutsLeases)) else { return (deadline, lease) };
        let left = end.since(now);
        let deadline = deadline.min(now.plus((left / 10).max((10 * round_trip).min(left / 2))));
        (deadline, lease.at_most(end.since(deadline)))
    }

    /// When to renew next: a third of the lease after the last renewal was sent. A longer lease of another level
    /// does not delay it.
    pub(crate) fn renew_at(&self, lease: LeaseMs) -> Moment {
        self.renewed_at.plus(self.ttl.min(lease).duration() / 3)
    }

    /// When to begin to doubt: half a lease without any confirmation.
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
        Hold::new(1, 1, LockName::new("n").unwrap(), OwnerKey::once(), lease)
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
        assert_eq!(HoldState::Lost(REASON).next(Input::Confirmed), None, "a late reply revives nothing");
    }

    #[test]
    fn the_nearest_end_counts_also_of_what_was_given_up_but_not_of_what_nobody_took() {
        let mut hold = hold();
        hold.state = HoldState::Held;
        let level = |number| (RequestId(number), Moment(number * 100));
        hold.set_max_end(Some(Moment(700)));
        for (request, end) in [level(7), level(3), level(5), level(4)] {
            hold.add_level(request, false, Some(end));
        }
        hold.add_level(RequestId(9), false, None);
        assert_eq!(hold.max_end(), Some(Moment(300)));
        assert!(!hold.forget_end(RequestId(9), Moment::ZERO), "it had none");
        assert!(hold.forget_end(RequestId(3), Moment::ZERO));
        assert_eq!(hold.max_end(), Some(Moment(400)));
        assert!(hold.remove_level(RequestId(4)).is_some());
        assert!(hold.forget_end(RequestId(5), Moment::ZERO));
        assert_eq!((hold.max_end(), hold.count()), (Some(Moment(400)), 4));

        hold.set_max_end(Some(Moment(700)));
        hold.add_level(RequestId(7), false, Some(Moment(700)));
        assert!(hold.forget_end(RequestId(7), Moment::ZERO));
        assert_eq!(hold.max_end(), None);

        hold.add_level(RequestId(8), false, Some(Moment(800)));
        hold.state = HoldState::Lost(REASON);
        assert!(!hold.forget_end(RequestId(8), Moment::ZERO), "it is over");
    }

    #[test]
    fn max_hold_keeps_the_end_free() {
        let now = Moment(5_000_000_000);
        let lease = LeaseMs::checked("lease", Duration::from_secs(30)).unwrap();
        let end = now.plus(Duration::from_secs(10));
        let (deadline, ttl) =
            Hold::within_max_hold(now, now.plus(Duration::from_secs(1)), lease, Some(end), Duration::ZERO);
        assert!(deadline.plus(ttl.duration()) <= end);
        assert_eq!(ttl.millis(), 9_000);
        let (_, ttl) =
            Hold::within_max_hold(now, now.plus(Duration::from_secs(1)), lease, Some(now), Duration::ZERO);
        assert_eq!(ttl.millis(), 1);
    }
}
