//! The one source of randomness: everything a run does follows from its seed.

use std::time::Duration;

/// splitmix64.
#[derive(Debug, Clone)]
pub(super) struct Chance(u64);

/// What a stream of its own is for, so that leaving one thing out does not change the others.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stream {
    Plan = 1,
    Network,
    Step,
    Nemesis,
    Fault,
    Desk,
    Patience,
    Keeping,
    Kind,
    /// Of redirections and logins.
    Access,
    Profile,
    Line,
    Latch,
}

impl Chance {
    pub(super) fn new(seed: u64, stream: Stream, which: [u64; 3]) -> Self {
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1);
        for part in [stream as u64].into_iter().chain(which) {
            chance.0 = chance.next() ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93);
        }
        chance
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(super) fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap_or(0)
    }

    /// From `low` to `high`, both included.
    pub(super) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in so many of a thousand cases.
    pub(super) fn permille(&mut self, of: u64) -> bool {
        self.below(1_000) < of
    }

    /// In microseconds, short times as likely as long ones.
    pub(super) fn time(&mut self, low_us: u64, high_us: u64) -> Duration {
        let (low, high) = (low_us.max(1), high_us.max(1));
        let steps = (high / low).max(1).ilog2() + 1;
        let top = low.saturating_mul(1 << self.below(u64::from(steps) + 1)).min(high);
        Duration::from_micros(self.range(low.min(top), top))
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}
