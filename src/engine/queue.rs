//! The waiters of a name. The first of them is the contender; what it has to do belongs to the name, so that the role
//! passes on with everything that is pending when it leaves.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::OnceLock;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::clock::Moment;
use crate::base::lease::Lease;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::base::owner::OwnerKey;
use crate::engine::by_id::Record;
use crate::engine::event::RequestId;
use crate::engine::wait_queue::WaitQueue;

/// How long after a release of ours new attempts of this client back off for the clients that received its message.
/// Redisson's clients, which never back off, get a second turn within this time.
const TURNS: Duration = Duration::from_millis(20);
/// After this many messages a client that lets an unknown number of others go first stops doing so.
const STEPS: u32 = 8;
/// An unknown number of messages: the others go first until nobody takes the lock, or the turns end.
pub(crate) const ANY: u64 = u64::MAX;
/// How long other clients are assumed not to exist after none was heard. The next publish after that lets them go first
/// again.
const NOBODY: Duration = Duration::from_millis(100);

/// What a waiter waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaiterPlace {
    /// In the queue of its name.
    Queued,
    /// Waiting to be a further level of this hold.
    Reentering(u64),
}

/// One acquisition.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) request: RequestId,
    pub(crate) name: u64,
    pub(crate) owner: OwnerKey,
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<LeaseMs>,
    pub(crate) since: Moment,
    /// End of the wait.
    pub(crate) deadline: Option<Moment>,
    /// `try_lock`: answered with the outcome of the next attempt.
    pub(crate) once: bool,
    /// Place in the queue.
    pub(crate) ticket: u64,
    /// It is in the count of requests that had to wait.
    pub(crate) waited: bool,
    /// Its own attempts that were answered too late for its lease or its `max_hold`, which does not concern the others
    /// in the queue.
    pub(crate) late: Option<Box<Trouble>>,
    pub(crate) place: WaiterPlace,
}

impl Record for Waiter {
    type Id = RequestId;

    fn id(&self) -> RequestId {
        self.request
    }
}

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

/// The cause of attempts whose answers said "late", or came after the validity had ended.
pub(crate) const TOO_LATE: &str = "every answer came after the lease or max_hold had ended";

/// Attempts that fail in a row: since when, and the cause of the last failure.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) since: Moment,
    pub(crate) words: String,
}

impl Trouble {
    /// Adds a failure of a command sent at `sent`.
    pub(crate) fn note(trouble: &mut Option<Box<Self>>, sent: Moment, words: String) {
        let since = trouble.as_ref().map_or(sent, |known| known.since);
        *trouble = Some(Box::new(Self { since, words }));
    }
}

/// A lock name in use by this client.
#[derive(Debug)]
pub(crate) struct NameRecord {
    pub(crate) id: u64,
    pub(crate) lock: LockName,
    /// The oldest hold of this name that is not gone.
    hold: Option<NonZeroU64>,
    /// The last publish or fresh grant.
    published_at: Moment,
    contest: Option<Box<Contest>>,
}

/// The state of a name that has waiters, or whose recent past matters to the next waiter. Otherwise it is dropped, and
/// takes no memory.
#[derive(Debug)]
pub(crate) struct Contest {
    /// Made when it is first needed.
    channel: OnceLock<Arc<str>>,
    /// Since the last publish or fresh grant.
    hand_offs: u32,
    /// Further holds that are not gone, in the order in which they came.
    later_holds: SmallVec<[u64; 2]>,
    queue: WaitQueue,
    next_ticket: u64,
    /// How many of the queue are `try_lock`s.
    pub(crate) once: usize,
    /// Dead hold ids that are being cleaned up.
    pub(crate) dead: Vec<u64>,
    /// Why the contender has to try now. Set by whatever may have freed the lock, cleared when an attempt is sent.
    pub(crate) must_try: Option<Cause>,
    /// Without `must_try` it sleeps until here, and then tries for this reason.
    pub(crate) sleep: (Moment, Cause),
    /// Back-off: no attempt is sent before.
    pub(crate) not_before: Moment,
    /// Until here other clients that received a message of a release go first. New waiters wait for it, too.
    pub(crate) others_turn: Moment,
    /// The usual end of that, for a waiter whose deadline comes before the real one.
    usual_turn: Moment,
    turns: Turns,
    unseen: Unseen,
    /// The last answered attempt said that another holds it, and nothing has changed since.
    pub(crate) known_held: bool,
    /// When the server last said so, unless this client has had the lock since.
    pub(crate) refused_at: Moment,
    /// When the lock was last assumed to be held without asking the server: because a hold of this client was in the
    /// way, or because others had just received a message. While the server does not answer, this counts as no answer.
    pub(crate) presumed_at: Moment,
    pub(crate) failures: u32,
    /// The failures of its attempts since the last good answer to one. Other commands may be answered meanwhile.
    pub(crate) trouble: Option<Box<Trouble>>,
    /// It is in the log that the contender has waited long.
    pub(crate) long_wait_told: bool,
    /// Why the attempt on the wire was made.
    pub(crate) trying_because: Cause,
}

/// For how long other clients are let go first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnLength {
    pub(crate) usual: Duration,
    /// With the additional time for distant clients.
    pub(crate) whole: Duration,
}

impl TurnLength {
    /// Without additional time for distant clients.
    pub(crate) fn of(usual: Duration) -> Self {
        Self { usual, whole: usual }
    }
}

/// How many other clients are let go first after a release of ours.
#[derive(Debug, Clone, Copy, Default)]
struct Turns {
    /// How many messages are waited for, and how many of them are still to come.
    messages: u64,
    left: u64,
    /// How many of them are waited for until `end` only.
    second: u64,
    /// The longest pause for clients that PUBLISH does not count.
    each: Duration,
    end: Moment,
    /// Messages since our last release was sent.
    heard: u64,
    /// Whether our own message is among those waited for.
    listens: bool,
    /// No attempt of this client was sent before the turns ended.
    uncut: bool,
}

/// What is known of clients that PUBLISH does not count.
#[derive(Debug, Clone, Copy, Default)]
struct Unseen {
    /// They are let go first again from here on.
    again_at: Moment,
    /// How often in a row none of them was heard.
    in_vain: u8,
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
            must_try: Some(Cause::Duty),
            sleep: (Moment::ZERO, Cause::Duty),
            not_before: Moment::ZERO,
            others_turn: Moment::ZERO,
            usual_turn: Moment::ZERO,
            turns: Turns::default(),
            unseen: Unseen::default(),
            known_held: false,
            refused_at: Moment::ZERO,
            presumed_at: Moment::ZERO,
            failures: 0,
            trouble: None,
            long_wait_told: false,
            trying_because: Cause::Duty,
        }
    }

    fn begin_turn(&mut self, now: Moment, turn: TurnLength) {
        let goes_on = self.turns.left > 0;
        let until = |length| if goes_on { now.plus(length) } else { Moment::ZERO };
        (self.others_turn, self.usual_turn) = (until(turn.whole), until(turn.usual));
    }

    /// Whether the server has said since then that the lock is held.
    pub(crate) fn was_refused_since(&self, since: Moment) -> bool {
        self.refused_at >= since
    }

    /// Whether the lock has been taken for held since then without asking the server.
    pub(crate) fn was_presumed_since(&self, since: Moment) -> bool {
        self.presumed_at >= since
    }

    /// Until here what is known of other clients matters to the next waiter.
    pub(crate) fn matters_until(&self) -> Moment {
        self.others_turn.max(self.unseen.again_at)
    }

    /// Whether it holds nothing that a new one would not.
    fn is_over(&self, now: Moment) -> bool {
        let turn = if self.turns.left > 0 { self.turns.end } else { Moment::ZERO };
        let waits = self.not_before.max(self.matters_until()).max(turn) > now;
        let failing = self.failures > 0 || self.trouble.is_some() || !self.dead.is_empty();
        self.queue.is_empty() && self.later_holds.is_empty() && self.hand_offs == 0 && !waits && !failing
    }
}

impl Record for NameRecord {
    type Id = u64;

    fn id(&self) -> u64 {
        self.id
    }
}

impl NameRecord {
    pub(crate) fn new(id: u64, lock: LockName) -> Self {
        Self { id, lock, hold: None, published_at: Moment::ZERO, contest: None }
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
    pub(crate) fn channel(&self, profile: WireProfile) -> Arc<str> {
        let spelled = || self.lock.channel(profile);
        self.contest.as_ref().map_or_else(spelled, |known| Arc::clone(known.channel.get_or_init(spelled)))
    }

    /// The channel, if it was ever needed.
    pub(crate) fn known_channel(&self) -> Option<Arc<str>> {
        self.contest.as_ref()?.channel.get().cloned()
    }

    /// Whether the channel was ever needed.
    pub(crate) fn has_channel(&self) -> bool {
        self.contest().channel.get().is_some()
    }

    /// Whether the message of our last release reached other clients, or may have where they are not counted.
    pub(crate) fn has_told_others(&self) -> bool {
        self.contest().turns.messages > 0
    }

    /// Whether there was never a second waiter, nor a need for the channel.
    pub(crate) fn is_uncontended(&self) -> bool {
        self.contest().next_ticket <= 1 && !self.has_channel()
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

    /// Frees the memory for waiters if nothing needs it. Only for a name without an attempt on the wire or a subscribed
    /// channel.
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
        self.contest().queue.len()
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.contest().queue.is_empty()
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

    /// Why the contender may try now, or when it may. It lets others go first until `steps_back`.
    pub(crate) fn due(&self, now: Moment, steps_back: Moment) -> Result<Cause, Moment> {
        let Contest { not_before, must_try, sleep, .. } = *self.contest();
        let not_before = not_before.max(steps_back);
        let (at, cause) = match must_try {
            Some(cause) => (not_before, cause),
            None => (sleep.0.max(not_before), sleep.1),
        };
        if now >= at { Ok(cause) } else { Err(at) }
    }

    /// Whether a release may hand off to a waiter of this client: at most 16 times in a row, and for 50 ms since the
    /// last publish.
    pub(crate) fn may_hand_off(&self, now: Moment) -> bool {
        seeded!(HandOffsEnd) || (self.hand_offs() < 16 && self.had_for(now) < Duration::from_millis(50))
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

    /// Other clients received a message, or could have taken the lock: the limit of hand-offs starts anew.
    pub(crate) fn others_had_their_turn(&mut self, now: Moment) {
        if let Some(contest) = self.known_contest() {
            contest.hand_offs = 0;
        }
        self.published_at = now;
    }

    /// A release is sent. Messages that arrive from here on are our own publish, or come after it.
    pub(crate) fn start_counting(&mut self, now: Moment) {
        let Some(Contest { turns, unseen, .. }) = self.known_contest() else { return };
        if turns.messages == ANY && turns.uncut {
            let came = turns.heard > u64::from(turns.listens);
            unseen.in_vain = if came { 0 } else { unseen.in_vain.saturating_add(1) };
            // Only after two failures, because the others may have let us go first at the same time.
            if unseen.in_vain >= 2 {
                unseen.again_at = now.plus(NOBODY);
            }
        }
        turns.heard = 0;
        turns.uncut = false;
    }

    /// Whether there may be clients that PUBLISH does not count.
    pub(crate) fn may_have_unseen(&self, now: Moment) -> bool {
        now >= self.contest().unseen.again_at
    }

    /// Lets other clients go first until `messages` were heard, our own included if we listen, and for a moment
    /// until the
    /// `second` ones were heard, too. If nobody takes the lock for the length of a `turn`, nobody else wants it.
    pub(crate) fn let_others(
        &mut self,
        now: Moment,
        messages: u64,
        second: u64,
        listens: bool,
        turn: TurnLength,
    ) {
        if messages == 0 && self.contest.is_none() {
            return;
        }
        let contest = self.contest_mut();
        let heard = contest.turns.heard;
        let messages = messages.saturating_add(second);
        let left = messages.saturating_sub(heard);
        let end = now.plus(TURNS);
        let each = turn.usual;
        contest.turns = Turns { messages, left, second, each, end, heard, listens, uncut: true };
        if messages == ANY {
            // If none comes, they get a fifth of the time.
            contest.unseen.again_at = now.plus(each * 5);
        }
        contest.begin_turn(now, turn);
    }

    /// A message says that the lock was freed: one client fewer is waited for, and the next one gets a turn of this
    /// length. Clients that PUBLISH does not count get what is left of theirs.
    pub(crate) fn note_freed(&mut self, now: Moment, turn: TurnLength) {
        let contest = self.contest_mut();
        let turns = &mut contest.turns;
        turns.heard += 1;
        let second = if now < turns.end { 0 } else { std::mem::take(&mut turns.second) };
        turns.left = turns.left.saturating_sub(second.saturating_add(1));
        // Of clients that let each other go first, the one that has done so for longest is next, so that turns get
        // shorter.
        let turn = if turns.messages == ANY {
            let steps = u32::try_from(turns.heard).unwrap_or(STEPS).min(STEPS);
            TurnLength::of(turns.each * (STEPS - steps) / STEPS)
        } else {
            turn
        };
        contest.begin_turn(now, turn);
    }

    /// Messages may have been missed, or came from another server: none is waited for any more.
    pub(crate) fn forget_turns(&mut self) {
        let Some(contest) = self.known_contest() else { return };
        (contest.turns, contest.others_turn, contest.usual_turn) =
            (Turns::default(), Moment::ZERO, Moment::ZERO);
    }

    /// Ends the turn of the others at `end`. If it is cut short, it does not show whether they wanted one.
    pub(crate) fn shorten_turn(&mut self, now: Moment, end: Moment) {
        let Some(contest) = self.known_contest() else { return };
        if end < contest.others_turn {
            contest.turns.uncut &= now >= contest.others_turn;
            contest.others_turn = end;
        }
    }

    /// Until when a waiter with this deadline lets others go first: a whole turn, a usual one, or not at all.
    pub(crate) fn steps_back(&self, deadline: Moment, answer: Duration) -> Moment {
        let Contest { others_turn, usual_turn, .. } = *self.contest();
        let fits = |end: &Moment| deadline > end.plus(answer);
        [others_turn, usual_turn.min(others_turn)].into_iter().find(fits).unwrap_or(Moment::ZERO)
    }

    /// An attempt is sent. If the others' turn has not ended, the turn is cut short.
    pub(crate) fn note_attempt(&mut self, now: Moment, cause: Cause) {
        let contest = self.contest_mut();
        contest.must_try = None;
        contest.trying_because = cause;
        contest.turns.uncut &= now >= contest.others_turn;
    }

    pub(crate) fn is_idle(&self) -> bool {
        let contest = self.contest();
        contest.queue.is_empty() && self.hold.is_none() && contest.dead.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> NameRecord {
        NameRecord::new(1, LockName::new("n").unwrap())
    }

    /// For whoever has time.
    fn due(name: &NameRecord, now: Moment) -> Result<Cause, Moment> {
        name.due(now, name.steps_back(Moment::NEVER, Duration::ZERO))
    }

    #[test]
    fn a_sleep_ends_at_its_time_and_a_wake_up_ends_it_at_once() {
        let mut name = name();
        assert_eq!(due(&name, Moment(5)), Ok(Cause::Duty), "a new name has to try");
        name.contest_mut().must_try = None;
        name.contest_mut().sleep = (Moment(100), Cause::Fallback);
        assert_eq!(due(&name, Moment(99)), Err(Moment(100)));
        assert_eq!(due(&name, Moment(100)), Ok(Cause::Fallback));
        name.contest_mut().must_try = Some(Cause::WakeUp);
        assert_eq!(due(&name, Moment(5)), Ok(Cause::WakeUp));
        name.wake();
        assert_eq!(due(&name, Moment(5)), Ok(Cause::WakeUp), "the first reason stays");
    }

    #[test]
    fn the_turn_of_others_delays_even_a_wake_up() {
        let mut name = name();
        name.contest_mut().others_turn = Moment(50);
        assert_eq!(due(&name, Moment(49)), Err(Moment(50)));
        assert_eq!(name.due(Moment(49), Moment::ZERO), Ok(Cause::Duty), "but not what cannot wait");
        assert_eq!(due(&name, Moment(50)), Ok(Cause::Duty));
    }

    #[test]
    fn a_turn_of_others_ends_when_all_of_them_had_it() {
        let mut name = name();
        let each = Duration::from_nanos(10);
        name.start_counting(Moment(0));
        name.note_freed(Moment(0), TurnLength::of(each)); // by ourselves: heard before the answer to the release
        name.let_others(Moment(100), 3, 0, true, TurnLength::of(each));
        assert_eq!(due(&name, Moment(100)), Err(Moment(110)));
        name.note_freed(Moment(150), TurnLength::of(each));
        assert_eq!(due(&name, Moment(150)), Err(Moment(160)), "the next one's turn");
        name.note_freed(Moment(155), TurnLength::of(each));
        assert_eq!(due(&name, Moment(155)), Ok(Cause::Duty), "all had theirs");
        name.note_freed(Moment(156), TurnLength::of(each));
        assert_eq!(due(&name, Moment(156)), Ok(Cause::Duty));
    }

    #[test]
    fn the_turns_of_others_last_however_long_they_keep_the_lock() {
        let mut name = name();
        let (each, mut now) = (Duration::from_millis(2), Moment(1_000_000_000));
        name.start_counting(now);
        name.let_others(now, 3, 0, false, TurnLength::of(each));
        for _ in 0..2 {
            now = now.plus(Duration::from_secs(10));
            name.note_freed(now, TurnLength::of(each));
            assert_eq!(due(&name, now), Err(now.plus(each)));
        }
        name.note_freed(now, TurnLength::of(each));
        assert_eq!(due(&name, now), Ok(Cause::Duty));
    }

    #[test]
    fn nobody_steps_back_for_longer_than_the_wait_allows() {
        let (mut name, ms) = (name(), Duration::from_millis);
        let now = Moment(1_000_000_000);
        name.start_counting(now);
        name.let_others(now, 1, 0, false, TurnLength { usual: ms(2), whole: ms(20) });
        let until = |name: &NameRecord, wait| name.steps_back(now.plus(ms(wait)), ms(20)).since(now);
        assert_eq!(until(&name, 41), ms(20));
        assert_eq!(until(&name, 40), ms(2), "as at any other time");
        assert_eq!(until(&name, 22), ms(0), "not at all");
        // Whoever stands before one that cannot wait steps back for no longer than that.
        name.shorten_turn(now, name.steps_back(now.plus(ms(40)), ms(20)));
        assert_eq!(due(&name, now), Err(now.plus(ms(2))));
        name.shorten_turn(now, name.steps_back(now.plus(ms(50)), ms(20)));
        assert_eq!(due(&name, now), Err(now.plus(ms(2))), "no longer again");
        name.shorten_turn(now, name.steps_back(now.plus(ms(22)), ms(20)));
        assert_eq!(due(&name, now), Ok(Cause::Duty));
    }

    #[test]
    fn a_second_turn_is_for_a_moment_only() {
        let (each, start) = (Duration::from_millis(15), Moment(1_000_000_000));
        for (passes, goes) in [(19, false), (20, true)] {
            let mut name = name();
            name.start_counting(start);
            name.let_others(start, 1, 1, false, TurnLength::of(each));
            let now = start.plus(Duration::from_millis(passes));
            name.note_freed(now, TurnLength::of(each));
            assert_eq!(due(&name, now).is_ok(), goes, "{passes}");
        }
    }

    /// A publish whose audience nobody has counted, so much silence, an attempt, and the next release.
    fn look(name: &mut NameRecord, now: &mut Moment, waits: Duration) {
        let each = Duration::from_millis(2);
        name.let_others(*now, ANY, 0, false, TurnLength::of(each));
        *now = now.plus(waits);
        name.note_attempt(*now, Cause::Duty);
        name.start_counting(*now);
    }

    #[test]
    fn who_met_nobody_twice_believes_it_for_a_while() {
        let (all, short) = (Duration::from_millis(2), Duration::from_millis(1));
        let again = |name: &NameRecord, now: Moment| name.contest().unseen.again_at.since(now);
        let (mut name, mut now) = (name(), Moment(1_000_000_000));
        assert!(name.may_have_unseen(now));
        look(&mut name, &mut now, all);
        assert_eq!(again(&name, now), Duration::from_millis(8), "five times as long from the publish on");
        look(&mut name, &mut now, short);
        assert_eq!(again(&name, now), Duration::from_millis(9), "they had no time to come");
        look(&mut name, &mut now, all);
        assert_eq!(again(&name, now), NOBODY);
        assert!(!name.may_have_unseen(now) && name.may_have_unseen(now.plus(NOBODY)));
        // Somebody comes: that takes two looks again.
        name.let_others(now, ANY, 0, false, TurnLength::of(all));
        name.note_freed(now, TurnLength::of(all));
        now = now.plus(all);
        name.note_attempt(now, Cause::Duty);
        name.start_counting(now);
        look(&mut name, &mut now, all);
        assert_eq!(again(&name, now), Duration::from_millis(8));
    }

    #[test]
    fn who_has_stepped_back_for_longest_goes_first() {
        let (each, now) = (Duration::from_millis(2), Moment(1_000_000_000));
        let mut name = name();
        name.let_others(now, ANY, 0, false, TurnLength::of(each));
        for pause in [1_750, 1_500, 1_250, 1_000, 750, 500, 250] {
            name.note_freed(now, TurnLength::of(each));
            assert_eq!(due(&name, now), Err(now.plus(Duration::from_micros(pause))));
        }
        for _ in 0..2 {
            name.note_freed(now, TurnLength::of(each));
            assert_eq!(due(&name, now), Ok(Cause::Duty));
        }
    }

    #[test]
    fn a_name_calms_down_when_nothing_matters_any_more() {
        let mut name = name();
        let calms = |name: &mut NameRecord| {
            name.calm_down(Moment(10));
            name.is_calm()
        };
        name.contest_mut().must_try = None;
        name.contest_mut().turns = Turns { left: 1, end: Moment(10), heard: 5, ..Turns::default() };
        assert!(calms(&mut name), "what is over is over");
        let matter: [fn(&mut Contest); 8] = [
            |contest| contest.later_holds.push(7),
            |contest| contest.hand_offs = 1,
            |contest| contest.not_before = Moment(11),
            |contest| contest.others_turn = Moment(11),
            |contest| contest.unseen.again_at = Moment(11),
            |contest| (contest.turns.left, contest.turns.end) = (1, Moment(11)),
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
            assert!(name.may_hand_off(start));
            name.note_hand_off();
        }
        assert!(!name.may_hand_off(start));
        name.others_had_their_turn(start);
        assert!(!name.may_hand_off(Moment(start.0 + 50_000_000)));
    }
}
