//! The holds of this client, and the decisions that need only one of them.

use std::ops::Index;
use std::sync::Arc;

use crate::backend::ServerId;
use crate::base::cell::Directory;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::map::Map;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::by_id::ById;
use crate::engine::context::Context;
use crate::engine::context::back_off;
use crate::engine::event::RequestId;
use crate::engine::hold::Hold;
use crate::engine::hold::HoldState;
use crate::engine::hold::PendingOperation;
use crate::engine::hold::Sending;
use crate::engine::name_record::NameRecord;
use crate::engine::timers::TimerKey;
use crate::kinds::share::Share;

#[derive(Debug)]
pub(super) struct Holds {
    by_id: ById<Box<Hold>>,
    /// Holds of contenders whose attempt was refused or is not sent yet. No server can have them.
    pub(super) unsent: ById<u64>,
    /// The requests that were answered with a grant, with the hold, until the grant is known to be
    /// picked up.
    pub(super) granted: Map<RequestId, u64>,
    /// Shared with callers, who look up here what an owner holds.
    pub(super) directory: Arc<Directory>,
}

impl Holds {
    pub(super) fn new(directory: Arc<Directory>) -> Self {
        Self { by_id: ById::default(), unsent: ById::default(), granted: Map::default(), directory }
    }

    pub(super) fn get(&self, id: &u64) -> Option<&Hold> {
        self.by_id.get(id).map(|hold| &**hold)
    }

    pub(super) fn get_mut(&mut self, id: &u64) -> Option<&mut Hold> {
        self.by_id.get_mut(id).map(|hold| &mut **hold)
    }

    pub(super) fn insert(&mut self, hold: Hold) {
        self.by_id.insert(Box::new(hold));
    }

    pub(super) fn remove(&mut self, id: &u64) -> Option<Box<Hold>> {
        self.by_id.remove(id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The ids of the wanted holds, in ascending order.
    pub(super) fn ids(&self, wanted: impl Fn(&Hold) -> bool) -> Vec<u64> {
        self.by_id.ids(|hold| wanted(hold))
    }

    /// The holds whose names are in slots of this server.
    pub(super) fn at(&self, cx: &Context, server: ServerId) -> Vec<u64> {
        self.ids(|hold| cx.servers.id_of(&hold.lock) == server)
    }

    pub(super) fn unordered(&self) -> impl Iterator<Item = &Hold> {
        self.by_id.unordered().map(|hold| &**hold)
    }

    /// The error of an operation on a hold that is not live.
    pub(super) fn lost_error(&self, id: u64) -> Error {
        match self.by_id.get(&id) {
            Some(hold) => {
                let reason = match hold.state {
                    HoldState::Lost(reason) => Some(reason),
                    _ => hold.cell().and_then(|cell| cell.loss()),
                };
                let reason = reason.unwrap_or(LossReason::ClientShutdown);
                Error::Lost { name: hold.lock.to_string(), reason }
            }
            None => Error::closed(),
        }
    }

    /// The same error for a re-entry. While guards of the lost hold exist, its owner gets no other
    /// hold.
    pub(super) fn reentry_lost_error(&self, id: u64) -> Error {
        let guarded = self.by_id.get(&id).is_some_and(|hold| !hold.levels.is_empty());
        match self.lost_error(id) {
            Error::Lost { name, reason } if guarded => Error::GuardOfLostHold { name, reason },
            error => error,
        }
    }

    pub(super) fn state_of(&self, hold: u64) -> HoldState {
        self.by_id.get(&hold).map_or(HoldState::Gone, |hold| hold.state)
    }

    /// Removes the hold from the directory, unless the owner has a newer one there.
    pub(super) fn forget_holder(&self, lock: &LockName, owner: OwnerKey, id: u64) {
        if owner.comes_back() {
            self.directory.remove_if(&(lock.clone(), owner), |_, cell| cell.id == id);
        }
    }

    /// Starts the time within which a grant must be picked up. If one is running already, it also
    /// covers later levels of the hold.
    pub(super) fn set_offer_timer(&mut self, cx: &mut Context, id: u64) {
        let Some(hold) = self.by_id.get(&id) else { return };
        if hold.has_unpicked_level()
            && !seeded!(OfferEnds)
            && !cx.timers.is_set(TimerKey::Offer(id))
        {
            // Counted from the sending, so that the first renewal is not late, but never shorter
            // than a third of the offer time.
            let at = hold.heard_at.plus(hold.offer_time()).max(cx.now.plus(hold.offer_time() / 3));
            cx.timers.set(TimerKey::Offer(id), at);
        }
    }

    /// Sets the timer for the end of the hold's validity, or for becoming suspect. It is not needed
    /// if the hold is looked at before, because its renewal is due or its guard has to be picked
    /// up. Mostly a hold has no such timer.
    pub(super) fn set_hold_clock(&mut self, cx: &mut Context, id: u64) {
        let Some(hold) = self.by_id.get(&id) else { return };
        if !hold.state.is_live() {
            return cx.timers.clear(TimerKey::HoldClock(id));
        }
        let doubt = hold.doubt_at();
        let at = match hold.state {
            HoldState::Held if hold.is_renewed() && doubt > cx.now => doubt.min(hold.valid_until()),
            _ => hold.valid_until(),
        };
        let offer = cx.timers.of(TimerKey::Offer(id));
        if hold.renewal_due <= at || offer.is_some_and(|look| look <= at) {
            cx.timers.clear(TimerKey::HoldClock(id));
        } else {
            cx.timers.set(TimerKey::HoldClock(id), at);
        }
    }

    /// Caps the validity that callers see at the end that `max_hold` sets, and decides which reason
    /// an expiry has.
    pub(super) fn note_max_hold(&mut self, cx: &Context, id: u64) {
        let Some(hold) = self.by_id.get_mut(&id) else { return };
        let slow = 10 * cx.servers.round_trip(&hold.lock);
        let (Some(cell), Some(end)) = (hold.cell().cloned(), hold.max_end()) else { return };
        cell.cap(end);
        // A renewal ends before that end by the margin of the lease and by the time reserved for
        // its attempt.
        let gap = hold.gap_to_max_end().unwrap_or_default();
        let ttl = hold.ttl.duration();
        // From here on each further renewal would gain less and less.
        let whole = cx.config.lease.duration().min(end.since(hold.begun));
        let attempt = slow.min(end.since(hold.confirmed_at) / 2);
        hold.at_its_end = gap <= (whole / 20).max(attempt);
        let near = hold.at_its_end || gap <= (ttl / 4).max(slow.min(ttl));
        cell.set_expiry_means(if near { LossReason::MaxHold } else { LossReason::Expired });
    }

    /// Sends the next command of a hold a little later.
    pub(super) fn retry_hold(&mut self, cx: &mut Context, id: u64) {
        let Some(hold) = self.by_id.get_mut(&id) else { return };
        let at = cx.now.plus(back_off(u32::from(hold.failures)));
        hold.failures = hold.failures.saturating_add(1);
        cx.timers.set(TimerKey::HoldRetry(id), at);
    }

    pub(super) fn forget_todo(&mut self, id: u64, request: RequestId) {
        if let Some(pending_work) = self.by_id.get_mut(&id).and_then(|hold| hold.existing_work()) {
            pending_work.todo.retain(|todo| *todo != PendingOperation::Reenter(request));
        }
    }

    /// Its caller is gone: the re-entry is not sent, or is undone when it is answered.
    pub(super) fn abandon_reentry(&mut self, id: u64, request: RequestId) {
        self.forget_todo(id, request);
        if let Some(hold) = self.by_id.get_mut(&id) {
            if let Some(Sending::Reenter { request: sent, abandoned }) = &mut hold.sending {
                *abandoned |= *sent == request;
            }
        }
    }

    /// The server may have a count that no level accounts for.
    pub(super) fn lower_count_later(&mut self, id: u64) {
        if let Some(hold) = self.by_id.get_mut(&id) {
            hold.pending_work().todo.push_back(PendingOperation::LowerCount(None));
        }
    }

    /// Counts a failure. Returns how many there were before it since the last confirmed renewal.
    pub(super) fn count_failure(&mut self, id: u64) -> u32 {
        let Some(hold) = self.by_id.get_mut(&id) else { return 0 };
        let before = hold.failures;
        hold.failures = before.saturating_add(1);
        u32::from(before)
    }

    /// The holds of this name that are not granted yet.
    pub(super) fn acquiring<'a>(&'a self, name: &'a NameRecord) -> impl Iterator<Item = &'a Hold> {
        let holds = name.holds().filter_map(|id| Some(&**self.by_id.get(&id)?));
        holds.filter(|hold| hold.state == HoldState::Acquiring)
    }

    /// A hold that prevents attempts for this name with this share, because this client has as much
    /// of it as the kind admits beside that. It is one that is being released, if there is one: the
    /// lock is known to be full only if all of them are valid. If `wanted` is `None`, the share is
    /// wanted beside what its owner has, and nothing is in the way.
    pub(super) fn in_the_way(
        &self,
        name: &NameRecord,
        wanted: impl FnOnce() -> Option<Share>,
    ) -> Option<&Hold> {
        let holds = name.holds().filter_map(|id| self.by_id.get(&id));
        let mut there = holds.filter(|hold| hold.state.is_in_the_way());
        let mut chosen = there.next()?;
        // Mostly there is none, and then nobody needs to know what is wanted.
        let wanted = wanted()?;
        let kind = name.lock.kind();
        let mut beside = kind.taken_by(chosen.share);
        if !kind.admits(beside, wanted) {
            // One hold is enough, so the others need not be counted. Of most kinds it is the only
            // one.
            return Some(chosen);
        }
        for other in there {
            beside = beside.plus(kind.taken_by(other.share));
            if chosen.is_kept() {
                chosen = other;
            }
        }
        (!kind.admits(beside, wanted)).then_some(&**chosen)
    }
}

impl Index<&u64> for Holds {
    type Output = Hold;

    fn index(&self, id: &u64) -> &Hold {
        &self.by_id[id]
    }
}
