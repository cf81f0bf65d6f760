//! Looking again and again for a moment, where the thread would fall asleep only to be woken at once.
//!
//! A server on the same machine answers within the time in which an idle core falls asleep and wakes up. Between the tasks
//! of one process that pass a lock on, or with many commands on their way, that is most of the time.

use std::thread::available_parallelism;
use std::time::Duration;
use std::time::Instant;

use crate::base::clock::Moment;

/// Twice what a server on the same machine takes to wake up and answer. Nothing else of a runtime runs meanwhile: Tokio's
/// own advice is to give it its turn after 10 to 100 µs.
const MOMENT: Duration = Duration::from_micros(80);
/// What others may do meanwhile if they go first. Who computes or blocks for longer is not let go first.
const TURN: Duration = Duration::from_micros(500);
/// Looks between two looks at the clock.
const LOOKS: usize = 4;
/// After so many moments in vain it is not worth it here, but for one of as many as two to that power.
const MOST_IN_VAIN: u32 = 10;

/// What is done less and less often while it is not worth it.
#[derive(Debug, Clone, Default)]
struct Habit {
    /// In a row.
    in_vain: u32,
    /// So many are left out.
    left_out: u32,
}

impl Habit {
    /// Whether this time is not left out.
    fn is_due(&mut self) -> bool {
        let due = self.left_out == 0;
        self.left_out = self.left_out.saturating_sub(1);
        due
    }

    fn note(&mut self, worth_it: bool) {
        self.in_vain = if worth_it { 0 } else { (self.in_vain + 1).min(MOST_IN_VAIN) };
        self.left_out = (1 << self.in_vain) - 1;
    }
}

#[derive(Debug, Clone)]
pub(super) struct Watch {
    looks: Habit,
    /// With a single core, whom this waits for could not run.
    alone: bool,
    /// Whom this waits for may have been given the core of this thread.
    yields: bool,
    offers: Habit,
}

impl Watch {
    /// With `yields` others have this thread's core between two looks.
    pub(super) fn new(yields: bool) -> Self {
        let alone = available_parallelism().map_or(true, |cores| cores.get() == 1);
        Self { alone, yields, ..Self::of_turns() }
    }

    /// For who lets others have their turn meanwhile: with a single core, too.
    pub(super) fn of_turns() -> Self {
        Self { looks: Habit::default(), alone: false, yields: false, offers: Habit::default() }
    }

    /// Whether this moment is one to look in: after some in vain, fewer and fewer are.
    pub(super) fn is_due(&mut self) -> bool {
        self.looks.is_due() && !self.alone
    }

    /// Whether this moment is not one of those in which others had better keep the core, who did so when it was offered.
    pub(super) fn is_welcome(&mut self) -> bool {
        self.offers.is_due()
    }

    /// Lets others have this thread's core first, for as long as they take.
    pub(super) fn give_way(&mut self) {
        if !self.offers_core() {
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "it only says how long others had the core")]
        let begin = Instant::now();
        std::thread::yield_now();
        self.note_yield(begin.elapsed() > TURN);
    }

    /// Whether something was there within a moment.
    pub(super) fn keep(&mut self, is_there: impl FnMut() -> bool) -> bool {
        let yields = self.offers_core();
        let (seen, kept) = appears(is_there, yields.then_some(std::thread::yield_now));
        self.looks.note(seen);
        if yields {
            self.note_yield(kept);
        }
        seen
    }

    /// The same for who let others have their turn meanwhile.
    pub(super) fn took(&mut self, time: Duration) {
        self.looks.note(time <= TURN);
    }

    fn offers_core(&mut self) -> bool {
        self.offers.is_due() && self.yields
    }

    /// Who computes on a busy machine keeps the core for milliseconds.
    pub(super) fn note_yield(&mut self, kept: bool) {
        self.offers.note(!kept);
    }
}

/// Whether it was there within a moment, and whether others kept the core for longer than that.
fn appears(mut is_there: impl FnMut() -> bool, offer: Option<impl Fn()>) -> (bool, bool) {
    #[expect(clippy::disallowed_methods, reason = "it only says how long this thread has looked")]
    let begin = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if is_there() {
                return (true, false);
            }
            std::hint::spin_loop();
        }
        let before = begin.elapsed();
        if before >= MOMENT {
            return (false, false);
        }
        if let Some(offer) = &offer {
            offer();
            if begin.elapsed() >= before + MOMENT {
                return (is_there(), true);
            }
        }
    }
}

/// A server that answers so quickly is on the same machine, or next to it: time to wake up, twice, included.
pub(super) const NEAR: Duration = Duration::from_micros(200);

/// How far the server is, by its quickest answer: others may have waited behind those before them.
#[derive(Debug)]
pub(super) struct Distance {
    /// When the oldest of what is on its way was sent, while nothing else was.
    sent_at: Option<Moment>,
    quickest: Duration,
}

impl Distance {
    pub(super) fn unknown() -> Self {
        Self { sent_at: None, quickest: Duration::MAX }
    }

    pub(super) fn sent_alone(&mut self, now: Moment) {
        self.sent_at = Some(now);
    }

    /// What was refused here, or given up, says nothing about the server.
    pub(super) fn settled(&mut self, now: Moment, answered: bool) {
        if let Some(sent_at) = self.sent_at.take().filter(|_| answered) {
            self.quickest = self.quickest.min(now.since(sent_at));
        }
    }

    pub(super) fn is_near(&self) -> bool {
        self.quickest <= NEAR
    }
}

#[cfg(test)]
impl Watch {
    /// As on a machine with several cores.
    pub(super) fn with_cores() -> Self {
        Self::of_turns()
    }

    /// Whether it looked last time, and saw nothing.
    pub(super) fn was_in_vain(&self) -> bool {
        self.looks.in_vain > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many moments in vain, those in which it looks.
    fn looks(watch: &mut Watch, moments: usize) -> usize {
        (0..moments).filter(|_| watch.is_due() && !watch.keep(|| false)).count()
    }

    #[test]
    fn it_sees_what_comes_later() {
        let mut looks = 0;
        let later = || {
            looks += 1;
            looks == 3
        };
        assert!(Watch::with_cores().keep(later));
        assert_eq!(looks, 3);
    }

    #[test]
    fn what_never_comes_is_looked_for_less_and_less() {
        let mut watch = Watch::with_cores();
        assert_eq!(looks(&mut watch, 1 << 10), 10);
        assert_eq!(looks(&mut watch, 10 << 10), 10, "it never gives up");
        assert!(watch.keep(|| true) && watch.is_due(), "it is worth it again");
        assert_eq!(looks(&mut watch, 3), 2, "once in vain is by chance");
    }

    #[test]
    fn who_takes_long_is_let_go_first_less_and_less() {
        let mut watch = Watch::of_turns();
        let mut let_go_first = |turn: Duration| {
            let mut take_turn = || {
                let due = watch.is_due();
                if due {
                    watch.took(turn);
                }
                due
            };
            (0..1 << 10).filter(|_| take_turn()).count()
        };
        assert_eq!(let_go_first(TURN), 1 << 10);
        assert_eq!(let_go_first(2 * TURN), 10);
    }

    #[test]
    fn only_what_the_server_has_answered_says_how_far_it_is() {
        let begin = Moment(1);
        let mut distance = Distance::unknown();
        let mut near = |after: Duration, answered: bool| {
            distance.sent_alone(begin);
            distance.settled(begin.plus(after), answered);
            distance.is_near()
        };
        assert!(!near(Duration::ZERO, false), "no server has said so");
        assert!(!near(2 * NEAR, true));
        assert!(near(NEAR, true));
        assert!(near(9 * NEAR, true), "once is enough: others may have been before it");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "as others do who have the core")]
    fn what_was_there_when_others_kept_the_core_is_seen() {
        let there = std::cell::Cell::new(false);
        let keep = || {
            std::thread::sleep(2 * MOMENT);
            there.set(true);
        };
        assert_eq!(appears(|| there.get(), Some(keep)), (true, true));
        assert_eq!(appears(|| true, Some(|| {})), (true, false));
    }

    #[test]
    fn who_keeps_the_core_is_offered_it_less_and_less() {
        let mut watch = Watch::new(true);
        let mut offers = |kept: bool, moments: usize| {
            let mut offer = || {
                let offers = watch.offers_core();
                if offers {
                    watch.note_yield(kept);
                }
                offers
            };
            (0..moments).filter(|_| offer()).count()
        };
        assert_eq!(offers(false, 100), 100);
        assert_eq!(offers(true, 1 << 10), 10);
        assert_eq!(offers(true, 10 << 10), 10, "it never gives up");
        let unwelcome = (0..10 << 10).take_while(|_| !watch.is_welcome()).count();
        assert!(unwelcome > 1 << 8 && watch.is_welcome(), "{unwelcome}");
    }

    #[test]
    fn with_one_core_it_does_not_look() {
        let mut watch = Watch { alone: true, ..Watch::new(false) };
        assert!(!watch.is_due());
    }
}
