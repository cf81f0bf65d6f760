//! What time it is at the server, from the times in its replies.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::kinds::command::ServerTime;

/// Samples older than one or two of these are forgotten: clocks drift.
const WINDOW: Duration = Duration::from_secs(10);

/// Without a reply for so long the clock has to be asked again: it may have been set meanwhile.
const STALE: Duration = Duration::from_secs(60);

/// Real clocks drift by far less than 1 %: after a long silence more than this is a jump.
const MOST_DRIFT: Duration = Duration::from_secs(1);

/// Server clock minus local clock, in microseconds.
///
/// A reply that says `s`, sent for at `t0` and received at `t1`, puts the offset between `s - t1`
/// and `s - t0`. The lower bound is used, so that `not_after` is never later than meant.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    current: Option<Bounds>,
    previous: Option<Bounds>,
    /// When the last reply came.
    heard: Moment,
    /// What is known is good for noticing a jump, and for nothing else.
    stale: bool,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    since: Moment,
    low: i64,
    high: i64,
}

impl Bounds {
    /// What is used, so that `not_after` is never later than meant.
    fn lower(self) -> i64 {
        if seeded!(NotAfterIsNotLate) { self.high } else { self.low }
    }
}

impl ServerClock {
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_known(&self) -> bool {
        self.current.is_some() && !self.stale
    }

    /// Whether it has been known since the last reset.
    pub(crate) fn was_known(&self) -> bool {
        self.current.is_some()
    }

    pub(crate) fn grow_old(&mut self, now: Moment) {
        self.stale |= now.since(self.heard) >= STALE;
    }

    /// Takes in a reply. True: the server's clock has jumped by more than 100 ms and 1 %, and what
    /// was known of it is forgotten but for this reply.
    pub(crate) fn observe(&mut self, t0: Moment, t1: Moment, s: ServerTime) -> bool {
        let sample = Bounds {
            since: t1,
            low: s.0.saturating_sub(t1.micros()),
            high: s.0.saturating_sub(t0.micros()),
        };
        let jumped = self.contradicts(t1, sample) && !seeded!(ClockJumpIsSeen);
        if jumped || t1.since(self.heard) >= 2 * WINDOW {
            self.reset();
        }
        self.heard = t1;
        self.stale = false;
        match &mut self.current {
            Some(bounds) if t1.since(bounds.since) < WINDOW => {
                bounds.low = bounds.low.max(sample.low);
                bounds.high = bounds.high.min(sample.high);
            }
            _ => self.previous = self.current.replace(sample),
        }
        jumped
    }

    fn contradicts(&self, now: Moment, sample: Bounds) -> bool {
        [self.current, self.previous].into_iter().flatten().any(|known| {
            let drift = (now.since(known.since) / 100).min(MOST_DRIFT);
            let slack = 100_000 + i64::try_from(drift.as_micros()).unwrap_or(i64::MAX / 4);
            sample.low > known.high.saturating_add(slack)
                || sample.high < known.low.saturating_sub(slack)
        })
    }

    /// The server's time at a local instant. `None` after a reset or a long silence, until a reply
    /// came.
    pub(crate) fn at(&self, local: Moment) -> Option<ServerTime> {
        if self.stale {
            return None;
        }
        let low = [self.current, self.previous].into_iter().flatten().map(Bounds::lower).max()?;
        Some(ServerTime((local.micros().saturating_add(low)).max(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Moment {
        Moment(ms * 1_000_000)
    }

    fn server(ms: i64) -> ServerTime {
        ServerTime(ms * 1_000)
    }

    #[test]
    fn the_best_lower_bound_counts() {
        let mut clock = ServerClock::default();
        assert_eq!(clock.at(ms(1)), None);
        assert!(!clock.observe(ms(10), ms(30), server(1_020)));
        assert_eq!(clock.at(ms(30)), Some(server(1_020)));
        assert!(!clock.observe(ms(40), ms(42), server(1_041)));
        assert_eq!(clock.at(ms(100)), Some(server(1_099)));
        assert!(!clock.observe(ms(50), ms(90), server(1_060)));
        assert!(!clock.observe(ms(91), ms(99), server(1_096)));
        assert_eq!(clock.at(ms(100)), Some(server(1_099)), "of all of the last seconds");
        // A slow reply is worse knowledge, not a jump.
        assert!(!clock.observe(ms(100), ms(900), server(1_101)));
        assert_eq!(clock.at(ms(100)), Some(server(1_099)));
    }

    #[test]
    fn jumps_in_both_directions_are_seen_and_reset() {
        for (jump, seen) in [
            (-60_000_i64, true),
            (-150, true),
            (-90, false),
            (90, false),
            (150, true),
            (60_000, true),
        ] {
            let mut clock = ServerClock::default();
            clock.observe(ms(100_000), ms(100_001), server(500_000));
            assert_eq!(
                clock.observe(ms(100_010), ms(100_011), server(500_010 + jump)),
                seen,
                "{jump} ms"
            );
        }
        let mut clock = ServerClock::default();
        clock.observe(ms(100_000), ms(100_001), server(500_000));
        assert!(clock.observe(ms(100_010), ms(100_011), server(400_010)));
        assert_eq!(clock.at(ms(100_011)), Some(server(400_010)));
    }

    #[test]
    fn no_time_is_too_far_away() {
        let mut clock = ServerClock::default();
        let now = Moment(1 << 62);
        for time in [i64::MIN, i64::MAX, 0, i64::MIN] {
            clock.observe(now, now, ServerTime(time));
        }
    }

    #[test]
    fn a_jump_is_seen_after_a_long_silence_too() {
        for (jump, seen) in
            [(-5_000_i64, true), (-1_200, true), (-300, false), (0, false), (1_200, true)]
        {
            let mut clock = ServerClock::default();
            clock.observe(ms(1_000), ms(1_001), server(500_000));
            assert_eq!(
                clock.observe(ms(1_001_000), ms(1_001_000), server(1_499_999 + jump)),
                seen,
                "{jump} ms"
            );
            // Jump or not, what was known so long ago is not used any more.
            assert_eq!(clock.at(ms(1_001_000)), Some(server(1_499_999 + jump)));
        }
    }

    #[test]
    fn an_old_clock_is_not_used() {
        let mut clock = ServerClock::default();
        clock.observe(ms(0), ms(0), server(1_000));
        clock.grow_old(ms(59_999));
        assert!(clock.is_known() && clock.at(ms(59_999)).is_some());
        clock.grow_old(ms(60_000));
        assert!(!clock.is_known() && clock.at(ms(60_000)).is_none());
        clock.observe(ms(60_000), ms(60_001), server(61_001));
        assert!(clock.is_known());
    }

    #[test]
    fn old_samples_are_forgotten() {
        let mut clock = ServerClock::default();
        clock.observe(ms(0), ms(0), server(1_000));
        for second in 1..60 {
            // 0.5 % slower than ours
            assert!(!clock.observe(
                ms(second * 1_000),
                ms(second * 1_000),
                server(1_000 + second as i64 * 995)
            ));
        }
        let ServerTime(estimate) = clock.at(ms(59_000)).unwrap();
        assert!((estimate - (1_000 + 59 * 995) * 1_000).abs() <= 105_000, "{estimate}");
    }
}
