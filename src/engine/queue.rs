//! The waiters of a name. The first of them is the contender; what it has to do belongs to the name, so that the role
//! passes on with everything that is pending when it leaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::event::RequestId;
use crate::lease::Lease;
use crate::map::Map;
use crate::name::LockName;
use crate::owner::OwnerKey;

/// The turns of others after a release of ours end after this, whatever they do.
const TURNS: Duration = Duration::from_millis(20);

/// Where an acquisition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the queue of its name.
    Queued,
    /// Waiting to be a further level of this hold.
    Reentering(u64),
}

/// One acquisition.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) name: u64,
    pub(crate) owner: OwnerKey,
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
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
    owners: Map<OwnerKey, usize>,
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
    /// Nothing is tried before: back-off.
    pub(crate) not_before: Moment,
    /// Until here it is the turn of others, who were told of a release; also for who comes later.
    pub(crate) others_turn: Moment,
    turns: Turns,
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

/// The turns of others after a release of ours.
#[derive(Debug, Clone, Copy, Default)]
struct Turns {
    /// Messages that are still to come.
    left: u64,
    /// How long the lock may be free before it is nobody's turn.
    each: Duration,
    end: Moment,
    /// Messages since our last release was sent.
    heard: u64,
}

impl Name {
    pub(crate) fn new(lock: LockName, channel: Arc<str>) -> Self {
        Self {
            lock,
            channel,
            queue: BTreeMap::new(),
            next_ticket: 0,
            owners: Map::default(),
            once: 0,
            answered_at: Moment::ZERO,
            holds: Vec::new(),
            dead: Vec::new(),
            must_try: Some(Cause::Duty),
            sleep: (Moment::ZERO, Cause::Duty),
            not_before: Moment::ZERO,
            others_turn: Moment::ZERO,
            turns: Turns::default(),
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
        if self.queue.is_empty() {
            // Both keep memory when they are empty, and most names are held without anybody waiting.
            self.queue = BTreeMap::new();
            self.owners = Map::default();
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

    /// Why the contender may try now, or when it may. One that is in a hurry takes no account of others.
    pub(crate) fn due(&self, now: Moment, hurry: bool) -> Result<Cause, Moment> {
        let not_before = if hurry { self.not_before } else { self.not_before.max(self.others_turn) };
        let (at, cause) = match self.must_try {
            Some(cause) => (not_before, cause),
            None => (self.sleep.0.max(not_before), self.sleep.1),
        };
        if now >= at { Ok(cause) } else { Err(at) }
    }

    /// Whether a release may grant to a waiter of this client: at most 16 times and for 50 ms since others were told.
    pub(crate) fn may_hand_off(&self, now: Moment) -> bool {
        self.hand_offs < 16 && now.since(self.published_at) < Duration::from_millis(50)
    }

    /// The others were told, or could have taken it: hand-offs start anew.
    pub(crate) fn others_had_their_turn(&mut self, now: Moment) {
        self.hand_offs = 0;
        self.published_at = now;
    }

    /// Messages from here on come after our own publish, or are it.
    pub(crate) fn start_counting(&mut self) {
        self.turns.heard = 0;
    }

    /// Lets others go first, until so many messages were heard, our own included. When nobody takes the lock for as
    /// long as `each`, nobody wants it.
    pub(crate) fn let_others(&mut self, now: Moment, messages: u64, each: Duration) {
        let left = messages.saturating_sub(self.turns.heard);
        self.turns = Turns { left, each, end: now.plus(TURNS), ..self.turns };
        self.others_turn = if left > 0 { now.plus(each) } else { Moment::ZERO };
    }

    /// A message says that the lock was freed: of the others one less is to come, and the next has its time.
    pub(crate) fn note_freed(&mut self, now: Moment) {
        self.turns.heard += 1;
        self.turns.left = self.turns.left.saturating_sub(1);
        let next = if self.turns.left > 0 { now.plus(self.turns.each) } else { Moment::ZERO };
        self.others_turn = next.min(self.turns.end);
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
        assert_eq!(name.due(Moment(5), false), Ok(Cause::Duty), "a new name has to try");
        name.must_try = None;
        name.sleep = (Moment(100), Cause::Fallback);
        assert_eq!(name.due(Moment(99), false), Err(Moment(100)));
        assert_eq!(name.due(Moment(100), false), Ok(Cause::Fallback));
        name.wake(Cause::WakeUp);
        assert_eq!(name.due(Moment(5), false), Ok(Cause::WakeUp));
        name.wake(Cause::Duty);
        assert_eq!(name.due(Moment(5), false), Ok(Cause::WakeUp), "the first reason stays");
    }

    #[test]
    fn the_turn_of_others_delays_even_a_wake_up() {
        let mut name = name();
        name.others_turn = Moment(50);
        name.wake(Cause::WakeUp);
        assert_eq!(name.due(Moment(49), false), Err(Moment(50)));
        assert_eq!(name.due(Moment(49), true), Ok(Cause::Duty), "but not what cannot wait");
        assert_eq!(name.due(Moment(50), false), Ok(Cause::Duty));
    }

    #[test]
    fn a_turn_of_others_ends_when_all_of_them_had_it() {
        let mut name = name();
        name.wake(Cause::WakeUp);
        let each = Duration::from_nanos(10);
        name.start_counting();
        name.note_freed(Moment(0)); // by ourselves: heard before the answer to the release
        name.let_others(Moment(100), 3, each);
        assert_eq!(name.due(Moment(100), false), Err(Moment(110)));
        name.note_freed(Moment(150));
        assert_eq!(name.due(Moment(150), false), Err(Moment(160)), "the next one's turn");
        name.note_freed(Moment(155));
        assert_eq!(name.due(Moment(155), false), Ok(Cause::Duty), "all had theirs");
        name.note_freed(Moment(156));
        assert_eq!(name.due(Moment(156), false), Ok(Cause::Duty));
    }

    #[test]
    fn turns_of_others_take_twenty_milliseconds_at_most() {
        let mut name = name();
        name.wake(Cause::WakeUp);
        let (each, start) = (Duration::from_millis(15), Moment(1_000_000_000));
        name.start_counting();
        name.let_others(start, 1_000, each);
        name.note_freed(start.plus(each));
        let end = start.plus(Duration::from_millis(20));
        assert_eq!(name.due(start.plus(each), false), Err(end));
        name.note_freed(end);
        assert_eq!(name.due(end, false), Ok(Cause::Duty));
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
