//! Turns after a release: this client steps back while others that received the message may take
//! the lock.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::engine::name_record::Contest;
use crate::engine::name_record::NameRecord;

/// How long after a release of ours new attempts of this client back off for the clients that
/// received its message. Redisson's clients, which never back off, get a second turn within this
/// time.
const TURNS: Duration = Duration::from_millis(20);
/// After this many messages a client that lets an unknown number of others go first stops doing so.
const STEPS: u32 = 8;
/// An unknown number of messages: the others go first until nobody takes the lock, or the turns
/// end.
pub(crate) const ANY: u64 = u64::MAX;
/// How long other clients are assumed not to exist after none was heard. The next publish after
/// that lets them go first again.
const NOBODY: Duration = Duration::from_millis(100);

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
pub(super) struct Turns {
    /// How many messages are waited for, and how many of them are still to come.
    pub(super) messages: u64,
    pub(super) left: u64,
    /// How many of them are waited for until `end` only.
    pub(super) second: u64,
    /// The longest pause for clients that PUBLISH does not count.
    pub(super) each: Duration,
    pub(super) end: Moment,
    /// Messages since our last release was sent.
    pub(super) heard: u64,
    /// Whether our own message is among those waited for.
    pub(super) listens: bool,
    /// No attempt of this client was sent before the turns ended.
    pub(super) uncut: bool,
}

/// What is known of clients that PUBLISH does not count.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unseen {
    /// They are let go first again from here on.
    pub(super) again_at: Moment,
    /// How often in a row none of them was heard.
    pub(super) in_vain: u8,
}

impl Contest {
    pub(super) fn begin_turn(&mut self, now: Moment, turn: TurnLength) {
        let goes_on = self.turns.left > 0;
        let until = |length| if goes_on { now.plus(length) } else { Moment::ZERO };
        (self.others_turn, self.usual_turn) = (until(turn.whole), until(turn.usual));
    }
}

impl NameRecord {
    /// Other clients received a message, or could have taken the lock: the limit of hand-offs
    /// starts anew.
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
            // Only after two failures, because the others may have let us go first at the same
            // time.
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

    /// Lets other clients go first until `messages` were heard, our own included if we listen, and
    /// for a moment until the `second` ones were heard, too. If nobody takes the lock for the
    /// length of a `turn`, nobody else wants it.
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

    /// A message says that the lock was freed: one client fewer is waited for, and the next one
    /// gets a turn of this length. Clients that PUBLISH does not count get what is left of theirs.
    pub(crate) fn note_freed(&mut self, now: Moment, turn: TurnLength) {
        let contest = self.contest_mut();
        let turns = &mut contest.turns;
        turns.heard += 1;
        let second = if now < turns.end { 0 } else { std::mem::take(&mut turns.second) };
        turns.left = turns.left.saturating_sub(second.saturating_add(1));
        // Of clients that let each other go first, the one that has done so for longest is next, so
        // that turns get shorter.
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

    /// Ends the turn of the others at `end`. If it is cut short, it does not show whether they
    /// wanted one.
    pub(crate) fn shorten_turn(&mut self, now: Moment, end: Moment) {
        let Some(contest) = self.known_contest() else { return };
        if end < contest.others_turn {
            contest.turns.uncut &= now >= contest.others_turn;
            contest.others_turn = end;
        }
    }

    /// Until when a waiter with this deadline lets others go first: a whole turn, a usual one, or
    /// not at all.
    pub(crate) fn steps_back(&self, deadline: Moment, answer: Duration) -> Moment {
        let Contest { others_turn, usual_turn, .. } = *self.contest();
        let fits = |end: &Moment| deadline > end.plus(answer);
        [others_turn, usual_turn.min(others_turn)].into_iter().find(fits).unwrap_or(Moment::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::name_record::Cause;
    use crate::engine::name_record::tests::due;
    use crate::engine::name_record::tests::name;

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
        let until =
            |name: &NameRecord, wait| name.steps_back(now.plus(ms(wait)), ms(20)).since(now);
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

    /// A publish whose audience nobody has counted, so much silence, an attempt, and the next
    /// release.
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
        assert_eq!(
            again(&name, now),
            Duration::from_millis(8),
            "five times as long from the publish on"
        );
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
}
