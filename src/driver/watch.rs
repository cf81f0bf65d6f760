//! Busy-polling for a moment, where the thread would fall asleep only to be woken at once.
//!
//! A server on the same machine answers in about the time in which an idle core falls asleep and
//! wakes up. This dominates when the tasks of one process hand a lock off to each other, and when
//! many commands are in flight.

use std::thread::available_parallelism;
use std::time::Duration;
use std::time::Instant;

use crate::base::clock::Moment;

/// How long it polls: twice what a server on the same machine takes to wake up and answer. No other
/// task of the runtime runs meanwhile. Tokio advises to yield after 10 to 100 µs.
const MOMENT: Duration = Duration::from_micros(80);
/// Looks between two looks at the clock.
const LOOKS: usize = 4;
/// After this many failures in a row, only one of two to that power opportunities is used.
const MOST_IN_VAIN: u32 = 10;

/// Exponential back-off for something that is done only while it pays.
#[derive(Debug, Clone, Default)]
struct Habit {
    /// Failures in a row.
    in_vain: u32,
    /// How many of the next opportunities are skipped.
    left_out: u32,
}

impl Habit {
    /// Whether this opportunity is used.
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
    /// There is a single core, so that what this waits for could not run.
    alone: bool,
}

impl Watch {
    pub(super) fn new() -> Self {
        let alone = available_parallelism().map_or(true, |cores| cores.get() == 1);
        Self { looks: Habit::default(), alone }
    }

    /// False while backing off because recent polls found nothing.
    pub(super) fn is_due(&mut self) -> bool {
        self.looks.is_due() && !self.alone
    }

    /// Polls for a moment, and says whether `is_there` became true.
    pub(super) fn keep(&mut self, is_there: impl FnMut() -> bool) -> bool {
        let seen = appears(is_there);
        self.looks.note(seen);
        seen
    }
}

/// Whether `is_there` became true within a moment.
fn appears(mut is_there: impl FnMut() -> bool) -> bool {
    #[expect(clippy::disallowed_methods, reason = "it only says how long this thread has looked")]
    let begin = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if is_there() {
                return true;
            }
            std::hint::spin_loop();
        }
        if begin.elapsed() >= MOMENT {
            return false;
        }
    }
}

/// A server that answers so quickly is on the same machine, or next to it: time to wake up, twice,
/// included.
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
        Self { looks: Habit::default(), alone: false }
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
    fn with_one_core_it_does_not_look() {
        let mut watch = Watch { alone: true, ..Watch::new() };
        assert!(!watch.is_due());
    }
}
