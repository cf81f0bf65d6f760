//! The waiters of a name. The first of them is the contender; what it has to do belongs to the
//! name, so that the role passes on with everything that is pending when it leaves.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::OnceLock;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::by_id::Record;
use crate::engine::event::RequestId;
use crate::engine::standing::Standing;
use crate::engine::wait_queue::WaitQueue;
use crate::engine::waiter::Trouble;
use crate::engine::waiter::Waiter;
use crate::kinds::channel_of_waiter;
use crate::settings::config::Config;

/// Why the contender tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It has not tried yet, or something changed in this client.
    Duty,
    /// A message arrived.
    WakeUp,
    /// The holder's time to live has ended.
    Expiry,
    /// It has slept for the longest time allowed.
    Fallback,
}

/// A lock name in use by this client.
#[derive(Debug)]
pub(crate) struct NameRecord {
    pub(crate) id: u64,
    pub(crate) lock: LockName,
    /// Whose record it is, where each owner waits for itself. `None`: that of all owners. Where each
    /// waits for itself, that one listens to the channel for all of them.
    pub(crate) owner: Option<OwnerKey>,
    /// The oldest hold of this name that is not gone.
    pub(super) hold: Option<NonZeroU64>,
    /// The last publish or fresh grant.
    pub(super) published_at: Moment,
    pub(super) contest: Option<Box<Contest>>,
}

/// The state of a name that has waiters, or whose recent past matters to the next waiter. Otherwise
/// it is dropped, and takes no memory.
#[derive(Debug)]
pub(crate) struct Contest {
    /// Made when it is first needed.
    pub(super) channel: OnceLock<Arc<str>>,
    /// Since the last publish or fresh grant.
    pub(super) hand_offs: u32,
    /// Further holds that are not gone, in the order in which they came.
    pub(super) later_holds: SmallVec<[u64; 2]>,
    pub(super) queue: WaitQueue,
    pub(super) next_ticket: u64,
    /// How many of the queue are `try_lock`s.
    pub(crate) once: usize,
    /// Dead hold ids that are being cleaned up.
    pub(crate) dead: Vec<u64>,
    /// The records of owners for whom this one listens to the channel.
    pub(super) listens_for: BTreeSet<u64>,
    /// Holds that the last refused attempt was told about. Some of them may be dead.
    pub(super) told: Box<[String]>,
    /// An attempt of the present contender was told about such holds.
    pub(super) was_told: bool,
    /// Why the contender has to try now. Set by whatever may have freed the lock, cleared when an
    /// attempt is sent.
    pub(crate) must_try: Option<Cause>,
    /// The place in the line. Without `must_try` it says when the contender tries.
    pub(super) standing: Standing,
    /// The next attempt names the lock alone, because its slot is being moved; and whether the
    /// attempt on the wire does.
    pub(super) lock_alone: bool,
    pub(super) tries_alone: bool,
    /// Back-off: no attempt is sent before.
    pub(crate) not_before: Moment,
    /// Without a line: until here other clients that received the message of our release go first.
    pub(crate) pause: Moment,
    /// Without a line: it pauses once more when another frees the lock soon.
    pub(super) owes_pause: bool,
    /// The last answered attempt said that another holds it, and nothing has changed since.
    pub(crate) known_held: bool,
    /// When the server last said so, unless this client has had the lock since.
    pub(crate) refused_at: Moment,
    /// When the lock was last assumed to be held without asking the server: because a hold of this
    /// client was in the way, or because others had just received a message. Or when the server
    /// last said so before a grant that left room for another hold. While the server does not
    /// answer, this counts as no answer.
    pub(crate) presumed_at: Moment,
    pub(crate) failures: u32,
    /// The failures of its attempts since the last good answer to one. Other commands may be
    /// answered meanwhile.
    pub(crate) trouble: Option<Box<Trouble>>,
    /// It is in the log that the contender has waited long.
    pub(crate) long_wait_told: bool,
    /// Why the attempt on the wire was made.
    pub(crate) trying_because: Cause,
}

impl Contest {
    fn new() -> Self {
        Self {
            channel: OnceLock::new(),
            hand_offs: 0,
            later_holds: SmallVec::new(),
            queue: WaitQueue::default(),
            next_ticket: 0,
            once: 0,
            dead: Vec::new(),
            listens_for: BTreeSet::new(),
            told: Box::default(),
            was_told: false,
            must_try: Some(Cause::Duty),
            standing: Standing::default(),
            lock_alone: false,
            tries_alone: false,
            not_before: Moment::ZERO,
            pause: Moment::ZERO,
            owes_pause: false,
            known_held: false,
            refused_at: Moment::ZERO,
            presumed_at: Moment::ZERO,
            failures: 0,
            trouble: None,
            long_wait_told: false,
            trying_because: Cause::Duty,
        }
    }

    /// Whether the server has said since then that the lock is held.
    pub(crate) fn was_refused_since(&self, since: Moment) -> bool {
        self.refused_at >= since
    }

    /// Whether the lock has been taken for held since then without asking the server.
    pub(crate) fn was_presumed_since(&self, since: Moment) -> bool {
        self.presumed_at >= since
    }

    /// Whether it holds nothing that a new one would not.
    fn is_over(&self, now: Moment) -> bool {
        let waits = self.not_before.max(self.pause) > now;
        let failing = self.failures > 0 || self.trouble.is_some() || !self.dead.is_empty();
        self.queue.is_empty()
            && self.listens_for.is_empty()
            && self.later_holds.is_empty()
            && self.hand_offs == 0
            && !waits
            && !failing
    }
}

impl Record for NameRecord {
    type Id = u64;

    fn id(&self) -> u64 {
        self.id
    }
}

impl NameRecord {
    pub(crate) fn new(id: u64, lock: LockName, owner: Option<OwnerKey>) -> Self {
        Self { id, lock, owner, hold: None, published_at: Moment::ZERO, contest: None }
    }

    /// Its holds that are not gone, the oldest first.
    pub(crate) fn holds(&self) -> impl Iterator<Item = u64> + '_ {
        self.hold.map(NonZeroU64::get).into_iter().chain(self.contest().later_holds.iter().copied())
    }

    pub(crate) fn add_hold(&mut self, id: u64) {
        if self.hold.is_none() {
            self.hold = NonZeroU64::new(id);
        } else {
            self.contest_mut().later_holds.push(id);
        }
    }

    pub(crate) fn remove_hold(&mut self, id: u64) {
        let was_oldest = self.hold.is_some_and(|oldest| oldest.get() == id);
        if was_oldest {
            self.hold = None;
        }
        let Some(Contest { later_holds, .. }) = self.known_contest() else { return };
        if was_oldest && !later_holds.is_empty() {
            self.hold = NonZeroU64::new(later_holds.remove(0));
        } else {
            later_holds.retain(|other| *other != id);
        }
    }

    /// The channel of its wake-ups.
    pub(crate) fn channel(&self, config: &Config) -> Arc<str> {
        let spelled = || channel_of_waiter(&self.lock, config.profile, &config.client_id, self.id);
        self.contest
            .as_ref()
            .map_or_else(spelled, |known| Arc::clone(known.channel.get_or_init(spelled)))
    }

    /// The channel, if it was ever needed.
    pub(crate) fn known_channel(&self) -> Option<Arc<str>> {
        self.contest.as_ref()?.channel.get().cloned()
    }

    /// Whether there was never a second waiter, nor a need for the channel.
    pub(crate) fn is_uncontended(&self) -> bool {
        self.contest().next_ticket <= 1 && self.known_channel().is_none()
    }

    pub(crate) fn contest(&self) -> &Contest {
        static AS_NEW: LazyLock<Contest> = LazyLock::new(Contest::new);
        self.contest.as_deref().unwrap_or(&AS_NEW)
    }

    /// Makes one if there is none.
    pub(crate) fn contest_mut(&mut self) -> &mut Contest {
        self.contest.get_or_insert_with(|| Box::new(Contest::new()))
    }

    /// `None` if there is none: for changes that a new one does not need.
    pub(crate) fn known_contest(&mut self) -> Option<&mut Contest> {
        self.contest.as_deref_mut()
    }

    #[cfg(test)]
    pub(crate) fn is_calm(&self) -> bool {
        self.contest.is_none()
    }

    /// Frees the memory for waiters if nothing needs it. Only for a name without an attempt on the
    /// wire or a subscribed channel.
    pub(crate) fn calm_down(&mut self, now: Moment) {
        self.contest.take_if(|contest| contest.is_over(now));
    }

    /// Puts a waiter at the end of the queue.
    pub(crate) fn push(&mut self, request: RequestId, waiter: &mut Waiter) {
        let contest = self.contest_mut();
        waiter.ticket = contest.next_ticket;
        contest.next_ticket += 1;
        contest.queue.insert(waiter.ticket, request, waiter.owner);
        contest.once += usize::from(waiter.once);
    }

    /// Takes a waiter out of the queue.
    pub(crate) fn remove(&mut self, waiter: &Waiter) {
        let Some(contest) = self.known_contest() else { return };
        if contest.queue.remove(waiter.ticket) {
            contest.once -= usize::from(waiter.once);
        }
    }

    /// The one waiter that sends attempts.
    pub(crate) fn contender(&self) -> Option<RequestId> {
        self.contest().queue.first()
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.contest().queue.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.contest().queue.len() + self.contest().listens_for.len()
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.contest().queue.is_empty()
    }

    /// Whether the contender was told to wait since the last grant.
    pub(crate) fn has_place(&self) -> bool {
        self.contest().standing.again
    }

    pub(crate) fn has_owner(&self, owner: OwnerKey) -> bool {
        self.contest().queue.has_owner(owner)
    }

    /// Moves a waiter to the end of the queue.
    pub(crate) fn send_back(&mut self, request: RequestId, waiter: &mut Waiter) {
        self.remove(waiter);
        self.push(request, waiter);
    }

    /// Gives a waiter the place of one that has left.
    pub(crate) fn take_place(&mut self, request: RequestId, waiter: &mut Waiter, ticket: u64) {
        let queue = &mut self.contest_mut().queue;
        queue.remove(waiter.ticket);
        waiter.ticket = ticket;
        queue.insert(ticket, request, waiter.owner);
    }

    /// Remembers that the lock may be free. A reason that is already pending stays: it came first.
    pub(crate) fn wake(&mut self) {
        // A new one has to try anyway.
        if let Some(contest) = self.known_contest() {
            contest.must_try.get_or_insert(Cause::Duty);
        }
    }

    /// Why the contender may try now, or when it may. It lets others go first until `pause`.
    pub(crate) fn due(&self, now: Moment, pause: Moment) -> Result<Cause, Moment> {
        let Contest { not_before, must_try, standing, .. } = self.contest();
        let (at, cause) = must_try.map_or_else(|| standing.sleeps(), |cause| (Moment::ZERO, cause));
        let at = at.max(*not_before).max(pause);
        if now >= at { Ok(cause) } else { Err(at) }
    }

    /// Whether a release may hand off to a waiter of this client before others: at most `most` times
    /// in a row, and for 50 ms since others last could have the lock.
    pub(crate) fn may_hand_off(&self, now: Moment, most: u32) -> bool {
        seeded!(HandOffsEnd)
            || (self.hand_offs() < most && self.had_for(now) < Duration::from_millis(50))
    }

    /// Other clients could have had the lock: the limit of hand-offs starts anew.
    pub(crate) fn others_had_their_turn(&mut self, now: Moment) {
        if let Some(contest) = self.known_contest() {
            contest.hand_offs = 0;
        }
        self.published_at = now;
    }

    /// Hand-offs since other clients last could have the lock.
    pub(crate) fn hand_offs(&self) -> u32 {
        self.contest().hand_offs
    }

    pub(crate) fn note_hand_off(&mut self) {
        self.contest_mut().hand_offs += 1;
    }

    /// How long no other client could have the lock.
    pub(crate) fn had_for(&self, now: Moment) -> Duration {
        now.since(self.published_at)
    }

    /// An attempt is sent.
    pub(crate) fn note_attempt(&mut self, cause: Cause) {
        let contest = self.contest_mut();
        contest.must_try = None;
        contest.trying_because = cause;
        contest.tries_alone = std::mem::take(&mut contest.lock_alone);
        contest.standing.tries();
    }

    pub(crate) fn is_idle(&self) -> bool {
        let contest = self.contest();
        contest.queue.is_empty()
            && self.hold.is_none()
            && contest.dead.is_empty()
            && contest.listens_for.is_empty()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::base::lease::Lease;
    use crate::base::lease::LeaseMs;
    use crate::engine::waiter::WaiterPlace;
    use crate::kinds::share::Share;

    pub(in crate::engine) fn name() -> NameRecord {
        NameRecord::new(1, LockName::new("n").unwrap(), None)
    }

    pub(in crate::engine) fn due(name: &NameRecord, now: Moment) -> Result<Cause, Moment> {
        name.due(now, name.contest().pause)
    }

    #[test]
    fn a_sleep_ends_at_its_time_and_a_wake_up_ends_it_at_once() {
        let mut name = name();
        assert_eq!(due(&name, Moment(5)), Ok(Cause::Duty), "a new name has to try");
        name.contest_mut().must_try = None;
        let hundred = Duration::from_nanos(100);
        name.contest_mut().standing.told(Moment(0), Duration::MAX, hundred, None);
        assert_eq!(due(&name, Moment(99)), Err(Moment(100)));
        assert_eq!(due(&name, Moment(100)), Ok(Cause::Fallback));
        name.contest_mut().must_try = Some(Cause::WakeUp);
        assert_eq!(due(&name, Moment(5)), Ok(Cause::WakeUp));
        name.wake();
        assert_eq!(due(&name, Moment(5)), Ok(Cause::WakeUp), "the first reason stays");
        name.contest_mut().pause = Moment(50);
        assert_eq!(due(&name, Moment(5)), Err(Moment(50)), "others go first");
        assert_eq!(
            name.due(Moment(5), Moment::ZERO),
            Ok(Cause::WakeUp),
            "but not what cannot wait"
        );
    }

    #[test]
    fn a_name_calms_down_when_nothing_matters_any_more() {
        let mut name = name();
        let calms = |name: &mut NameRecord| {
            name.calm_down(Moment(10));
            name.is_calm()
        };
        name.contest_mut().must_try = None;
        name.contest_mut().pause = Moment(10);
        assert!(calms(&mut name), "what is over is over");
        let matter: [fn(&mut Contest); 6] = [
            |contest| contest.later_holds.push(7),
            |contest| contest.hand_offs = 1,
            |contest| contest.not_before = Moment(11),
            |contest| contest.pause = Moment(11),
            |contest| contest.failures = 1,
            |contest| contest.dead.push(1),
        ];
        for (number, happens) in matter.iter().enumerate() {
            happens(name.contest_mut());
            assert!(!calms(&mut name), "{number}");
            name.contest = None;
        }
    }

    #[test]
    fn its_try_locks_are_counted_while_they_are_in_the_queue() {
        let mut name = name();
        for (number, once) in [(1, true), (2, false), (3, true)] {
            name.push(RequestId(number), &mut waiter(number, once));
        }
        assert_eq!(name.contest().once, 2);
        for (ticket, once, left) in [(0, true, 1), (0, true, 1), (1, false, 1), (2, true, 0)] {
            name.remove(&Waiter { ticket, ..waiter(1, once) });
            assert_eq!(name.contest().once, left, "{ticket}");
        }
    }

    fn waiter(number: u64, once: bool) -> Waiter {
        Waiter {
            request: RequestId(number),
            name_id: 1,
            owner: OwnerKey::from_test(number),
            share: Share::ONE,
            lease: Lease::Fixed(LeaseMs::PROBE),
            max_hold: None,
            at_least: None,
            since: Moment::ZERO,
            deadline: None,
            once,
            leads: false,
            upgrades: None,
            ticket: 0,
            waited: false,
            late: None,
            place: WaiterPlace::Queued,
        }
    }

    #[test]
    fn its_holds_are_in_the_order_in_which_they_came() {
        let mut name = name();
        let holds = |name: &NameRecord| name.holds().collect::<Vec<_>>();
        [4, 2, 9].into_iter().for_each(|id| name.add_hold(id));
        assert_eq!(holds(&name), [4, 2, 9]);
        name.remove_hold(2);
        name.add_hold(3);
        assert_eq!(holds(&name), [4, 9, 3]);
        name.remove_hold(4);
        assert_eq!(holds(&name), [9, 3]);
        [7, 3, 9].into_iter().for_each(|id| name.remove_hold(id));
        assert!(holds(&name).is_empty() && name.is_idle());
        name.add_hold(5);
        assert_eq!((holds(&name), name.is_idle()), (vec![5], false));
    }

    #[test]
    fn hand_offs_are_bounded_in_number_and_time() {
        let mut name = name();
        let start = Moment(1_000_000_000);
        name.others_had_their_turn(start);
        for _ in 0..16 {
            assert!(name.may_hand_off(start, 16));
            name.note_hand_off();
        }
        assert!(!name.may_hand_off(start, 16));
        name.others_had_their_turn(start);
        assert!(!name.may_hand_off(Moment(start.0 + 50_000_000), 16));
    }
}
