//! The waiters of a name. The first of them is the contender; what it has to do belongs to the name, so that the role
//! passes on with everything that is pending when it leaves.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::event::RequestId;
use crate::lease::Lease;
use crate::name::LockName;
use crate::owner::OwnerKey;

/// Where an acquisition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the queue of its name.
    Queued,
    /// Waiting to be a further level of this hold.
    Reentering(u64),
    /// A level of this hold, answered; perhaps not picked up yet.
    Granted(u64),
}

/// One acquisition.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) name: u64,
    pub(crate) owner: OwnerKey,
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<std::time::Duration>,
    pub(crate) since: Moment,
    /// End of the wait.
    pub(crate) deadline: Option<Moment>,
    /// `try_lock`: answered with what the next attempt says.
    pub(crate) once: bool,
    /// Place in the queue.
    pub(crate) ticket: u64,
    /// Counted as one that had to wait.
    pub(crate) waited: bool,
    pub(crate) place: Place,
}

/// Why the contender tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It has not yet, or something at this client changed.
    Duty,
    /// A message arrived.
    WakeUp,
    /// The holder's time to live is over.
    Expiry,
    /// Nothing happened for the longest time a waiter sleeps.
    Fallback,
}

/// Attempts that fail, one after the other: since when, and what the last one met.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) since: Moment,
    pub(crate) words: String,
}

impl Trouble {
    /// One more failure.
    pub(crate) fn note(trouble: &mut Option<Self>, now: Moment, words: String) {
        let since = trouble.as_ref().map_or(now, |known| known.since);
        *trouble = Some(Self { since, words });
    }
}

/// A lock name in use by this client.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) lock: LockName,
    pub(crate) channel: Arc<str>,
    /// By ticket: first come, first served.
    queue: BTreeMap<u64, RequestId>,
    next_ticket: u64,
    /// How many of the queue an owner has: most often one, and then nobody is looked for.
    owners: HashMap<OwnerKey, usize>,
    /// How many of the queue are `try_lock`s.
    pub(crate) once: usize,
    /// Holds of this name that are not gone.
    pub(crate) holds: Vec<u64>,
    /// Dead hold ids that are being cleaned up.
    pub(crate) dead: Vec<u64>,
    /// The contender has to try, and why; set by whatever may have freed the lock, cleared when an attempt is sent.
    pub(crate) must_try: Option<Cause>,
    /// Without that it sleeps until here, and then tries for this reason.
    pub(crate) sleep: (Moment, Cause),
    /// Nothing is tried before: back-off, or the turn of other processes.
    pub(crate) not_before: Moment,
    /// The last answered attempt said that another holds it, and nothing has changed since.
    pub(crate) known_held: bool,
    /// When an answer last said so, be it the server's or a hold of this client.
    pub(crate) answered_at: Moment,
    pub(crate) failures: u32,
    /// What its attempts have met since the last good answer to one. Other commands may be answered all the while.
    pub(crate) trouble: Option<Trouble>,
    /// Hand-offs since the last publish or fresh grant, and when that was.
    pub(crate) hand_offs: u32,
    pub(crate) published_at: Moment,
    /// Why the attempt on the wire was made.
    pub(crate) trying_because: Cause,
}

impl Name {
    pub(crate) fn new(lock: LockName, channel: Arc<str>) -> Self {
        Self {
            lock,
            channel,
            queue: BTreeMap::new(),
            next_ticket: 0,
            owners: HashMap::new(),
            once: 0,
            answered_at: Moment::ZERO,
            holds: Vec::new(),
            dead: Vec::new(),
            must_try: Some(Cause::Duty),
            sleep: (Moment::ZERO, Cause::Duty),
            not_before: Moment::ZERO,
            known_held: false,
            failures: 0,
            trouble: None,
            hand_offs: 0,
            published_at: Moment::ZERO,
            trying_because: Cause::Duty,
        }
    }

    /// Puts a waiter at the end of the queue.
    pub(crate) fn push(&mut self, request: RequestId, waiter: &mut Waiter) {
        waiter.ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queue.insert(waiter.ticket, request);
        *self.owners.entry(waiter.owner).or_default() += 1;
        self.once += usize::from(waiter.once);
    }

    /// Takes a waiter out of the queue.
    pub(crate) fn remove(&mut self, waiter: &Waiter) {
        if self.queue.remove(&waiter.ticket).is_none() {
            return;
        }
        self.once -= usize::from(waiter.once);
        if let Some(count) = self.owners.get_mut(&waiter.owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(&waiter.owner);
            }
        }
    }

    /// The one waiter that talks to the server.
    pub(crate) fn contender(&self) -> Option<RequestId> {
        self.queue.values().next().copied()
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.queue.values().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn has_owner(&self, owner: OwnerKey) -> bool {
        self.owners.contains_key(&owner)
    }

    /// Lets a waiter have the place of one that has left.
    pub(crate) fn take_place(&mut self, request: RequestId, waiter: &mut Waiter, ticket: u64) {
        self.queue.remove(&waiter.ticket);
        waiter.ticket = ticket;
        self.queue.insert(ticket, request);
    }

    /// Remembers that the lock may be free. A reason that is already pending stays: it came first.
    pub(crate) fn wake(&mut self, cause: Cause) {
        self.must_try.get_or_insert(cause);
    }

    /// Why the contender may try now, or when it may.
    pub(crate) fn due(&self, now: Moment) -> Result<Cause, Moment> {
        let (at, cause) = match self.must_try {
            Some(cause) => (self.not_before, cause),
            None => (self.sleep.0.max(self.not_before), self.sleep.1),
        };
        if now >= at { Ok(cause) } else { Err(at) }
    }

    /// Whether a release may grant to a waiter of this client: at most 16 times and for 50 ms since others were told.
    pub(crate) fn may_hand_off(&self, now: Moment) -> bool {
        self.hand_offs < 16 && now.since(self.published_at) < std::time::Duration::from_millis(50)
    }

    /// The others were told, or could have taken it: hand-offs start anew.
    pub(crate) fn others_had_their_turn(&mut self, now: Moment) {
        self.hand_offs = 0;
        self.published_at = now;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.holds.is_empty() && self.dead.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name::new(LockName::new("n").unwrap(), "c".into())
    }

    #[test]
    fn a_sleep_ends_at_its_time_and_a_wake_up_ends_it_at_once() {
        let mut name = name();
        assert_eq!(name.due(Moment(5)), Ok(Cause::Duty), "a new name has to try");
        name.must_try = None;
        name.sleep = (Moment(100), Cause::Fallback);
        assert_eq!(name.due(Moment(99)), Err(Moment(100)));
        assert_eq!(name.due(Moment(100)), Ok(Cause::Fallback));
        name.wake(Cause::WakeUp);
        assert_eq!(name.due(Moment(5)), Ok(Cause::WakeUp));
        name.wake(Cause::Duty);
        assert_eq!(name.due(Moment(5)), Ok(Cause::WakeUp), "the first reason stays");
    }

    #[test]
    fn the_turn_of_others_delays_even_a_wake_up() {
        let mut name = name();
        name.not_before = Moment(50);
        name.wake(Cause::WakeUp);
        assert_eq!(name.due(Moment(49)), Err(Moment(50)));
        assert_eq!(name.due(Moment(50)), Ok(Cause::Duty));
    }

    #[test]
    fn hand_offs_are_bounded_in_number_and_time() {
        let mut name = name();
        let start = Moment(1_000_000_000);
        name.others_had_their_turn(start);
        for _ in 0..16 {
            assert!(name.may_hand_off(start));
            name.hand_offs += 1;
        }
        assert!(!name.may_hand_off(start));
        name.others_had_their_turn(start);
        assert!(!name.may_hand_off(Moment(start.0 + 50_000_000)));
    }
}
