//! The holds of this client, and what is decided from one of them alone.

use crate::Error;
use crate::LossReason;
use crate::base::owner::OwnerKey;
use crate::engine::Context;
use crate::engine::HoldState;
use crate::engine::LockName;
use crate::engine::NameRecord;
use crate::engine::RequestId;
use crate::engine::ServerId;
use crate::engine::TimerKey;
use crate::engine::context::back_off;
use crate::engine::hold::Sending;
use crate::engine::hold::Todo;
use std::ops::Index;
use std::sync::Arc;

use crate::base::cell::Directory;
use crate::base::map::Map;
use crate::engine::by_id::ById;
use crate::engine::hold::Hold;

#[derive(Debug)]
pub(super) struct Holds {
    by_id: ById<Box<Hold>>,
    /// Those of contenders whose attempt was refused or is still to be sent: nothing of them is on any server.
    pub(super) unsent: ById<u64>,
    /// Answered with a grant of this hold, not known to be picked up.
    pub(super) granted: Map<RequestId, u64>,
    /// What callers ask for who holds a lock here.
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

    /// Their ids, in order.
    pub(super) fn ids(&self, wanted: impl Fn(&Hold) -> bool) -> Vec<u64> {
        self.by_id.ids(|hold| wanted(hold))
    }

    /// Those whose names a server has.
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

    /// The same for who wanted a further level of it: as long as there are guards, its owner gets
    /// no other hold.
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

    /// Whoever asks what this owner holds hears no more of this hold. It may have its next one already.
    pub(super) fn forget_holder(&self, lock: &LockName, owner: OwnerKey, id: u64) {
        if owner.comes_back() {
            self.directory.remove_if(&(lock.clone(), owner), |_, cell| cell.id == id);
        }
    }

    /// How long a grant waits to be picked up; later ones of the same hold wait no longer than the first.
    pub(super) fn set_offer_timer(&mut self, cx: &mut Context, id: u64) {
        let Some(hold) = self.by_id.get(&id) else { return };
        if hold.has_unpicked_level() && !seeded!(OfferEnds) && !cx.timers.is_set(TimerKey::Offer(id)) {
            // From the sending on, so that the first renewal is not late; but a moment in any case.
            let at = hold.heard_at.plus(hold.offer_time()).max(cx.now.plus(hold.offer_time() / 3));
            cx.timers.set(TimerKey::Offer(id), at);
        }
    }

    /// When it is over, or to be doubted. No timer for what is looked at before: when its next renewal is due, or when
    /// its guard is to be picked up. Most of its time a hold has none.
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

    /// Tells callers what running out would mean, and caps what they believe.
    pub(super) fn note_max_hold(&mut self, cx: &Context, id: u64) {
        let Some(hold) = self.by_id.get_mut(&id) else { return };
        let slow = 10 * cx.servers.round_trip(&hold.lock);
        let (Some(cell), Some(end)) = (hold.cell().cloned(), hold.max_end()) else { return };
        cell.cap(end);
        // A renewal stays short of the end by its margin and by what its attempt may take.
        let gap = hold.gap_to_max_end().unwrap_or_default();
        let ttl = hold.ttl.duration();
        // Each further renewal would win less and less.
        let whole = cx.config.lease.duration().min(end.since(hold.begun));
        let attempt = slow.min(end.since(hold.confirmed_at) / 2);
        hold.at_its_end = gap <= (whole / 20).max(attempt);
        let near = hold.at_its_end || gap <= (ttl / 4).max(slow.min(ttl));
        cell.set_expiry_means(if near { LossReason::MaxHold } else { LossReason::Expired });
    }

    /// Tries the next command of a hold again a little later.
    pub(super) fn retry_hold(&mut self, cx: &mut Context, id: u64) {
        let Some(hold) = self.by_id.get_mut(&id) else { return };
        let at = cx.now.plus(back_off(u32::from(hold.failures)));
        hold.failures = hold.failures.saturating_add(1);
        cx.timers.set(TimerKey::HoldRetry(id), at);
    }

    pub(super) fn forget_todo(&mut self, id: u64, request: RequestId) {
        if let Some(errands) = self.by_id.get_mut(&id).and_then(|hold| hold.known_errands()) {
            errands.todo.retain(|todo| *todo != Todo::Reenter(request));
        }
    }

    /// Its caller has gone: not sent, or taken back when it is answered.
    pub(super) fn abandon_reentry(&mut self, id: u64, request: RequestId) {
        self.forget_todo(id, request);
        if let Some(hold) = self.by_id.get_mut(&id) {
            if let Some(Sending::Reenter { request: sent, abandoned }) = &mut hold.sending {
                *abandoned |= *sent == request;
            }
        }
    }

    /// A count that nobody wants may be at the server.
    pub(super) fn lower_count_later(&mut self, id: u64) {
        if let Some(hold) = self.by_id.get_mut(&id) {
            hold.errands().todo.push_back(Todo::LowerCount(None));
        }
    }

    /// How many there were before, since the last renewal that was confirmed.
    pub(super) fn count_failure(&mut self, id: u64) -> u32 {
        let Some(hold) = self.by_id.get_mut(&id) else { return 0 };
        let before = hold.failures;
        hold.failures = before.saturating_add(1);
        u32::from(before)
    }

    /// A hold of this client that keeps its waiters from asking the server: there are as many as the kind admits. If one of
    /// them is being released it is that one: the lock is known to be full only if all of them are valid.
    pub(super) fn in_the_way(&self, name: &NameRecord) -> Option<&Hold> {
        let holds = name.holds().filter_map(|id| self.by_id.get(&id));
        let mut there = holds.filter(|hold| hold.state.is_in_the_way());
        let mut chosen = there.next()?;
        let kind = name.lock.kind();
        if !kind.admits(1) {
            // As most kinds: the others need not be counted.
            return Some(chosen);
        }
        let mut number = 1;
        for other in there {
            number += 1;
            if chosen.is_kept() {
                chosen = other;
            }
        }
        (!kind.admits(number)).then_some(&**chosen)
    }
}

impl Index<&u64> for Holds {
    type Output = Hold;

    fn index(&self, id: &u64) -> &Hold {
        &self.by_id[id]
    }
}
