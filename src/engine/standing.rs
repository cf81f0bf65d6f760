//! Where this client stands in the line that the server keeps for a name, and when it tries although
//! nobody has told it to.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::kinds::reply::Place;

/// So many of the first in line try at the end of what another has. The rest sleep until they are
/// told, or until their fallback.
const WITH_TIMERS: u64 = 8;
/// They try one after the other, so that the first one of them finds the lock free.
const STEP: Duration = Duration::from_millis(2);
/// How long a lock stays reserved, by the scripts.
const RESERVATION: Duration = Duration::from_millis(1_500);

/// What the server has said about the place of this client's contender. It belongs to the role, so
/// that the next contender goes on with it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Standing {
    /// The contender was told to wait since the last grant: a free lock goes to the first in line.
    pub(super) again: bool,
    /// 0 as long as none is known.
    pub(super) ticket: u64,
    /// How many stand before it.
    rank: u64,
    /// The end of what another has.
    timer: Option<Moment>,
}

impl Standing {
    /// An attempt was refused: another has the lock for so long. What a message has said during the
    /// attempt may be newer than its answer, so the earlier of two ends counts.
    pub(super) fn told(&mut self, now: Moment, left: Duration, place: Option<Place>) {
        if let Some(Place { ticket, rank }) = place {
            (self.again, self.ticket, self.rank) = (true, ticket, rank);
        }
        if let Some(end) = self.end(now, left) {
            self.timer = Some(self.timer.map_or(end, |timer| timer.min(end)));
        }
    }

    /// The lock was reserved for somebody else.
    pub(super) fn announced(&mut self, now: Moment) {
        self.rank = self.rank.saturating_sub(1);
        self.timer = self.end(now, RESERVATION);
    }

    fn end(&self, now: Moment, left: Duration) -> Option<Moment> {
        let steps = u32::try_from(self.rank).ok().filter(|_| self.rank < WITH_TIMERS)?;
        Some(now.plus(left).plus(STEP * steps))
    }

    /// An attempt is sent.
    pub(super) fn tries(&mut self) {
        self.timer = None;
    }

    pub(super) fn timer(&self) -> Option<Moment> {
        self.timer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(1_000_000_000);
    const MS: Duration = Duration::from_millis(1);

    fn at(rank: u64) -> Standing {
        let mut standing = Standing::default();
        standing.told(NOW, 100 * MS, Some(Place { ticket: 7, rank }));
        standing
    }

    #[test]
    fn the_first_eight_try_one_after_the_other_at_the_end_of_what_another_has() {
        for rank in 0..8 {
            let end = NOW.plus(100 * MS + 2 * MS * rank as u32);
            assert_eq!(at(rank).timer(), Some(end), "{rank}");
        }
        assert_eq!(at(8).timer(), None);
        assert_eq!(at(u64::MAX).timer(), None);
    }

    #[test]
    fn each_announcement_moves_a_waiter_up_and_sets_its_timer_anew() {
        let mut standing = at(9);
        standing.announced(NOW);
        assert_eq!(standing.timer(), None);
        standing.announced(NOW);
        assert_eq!(standing.timer(), Some(NOW.plus(RESERVATION + 7 * STEP)));
        let later = NOW.plus(400 * MS);
        standing.announced(later);
        assert_eq!(standing.timer(), Some(later.plus(RESERVATION + 6 * STEP)));
        standing.tries();
        assert_eq!(standing.timer(), None);
    }

    #[test]
    fn an_answer_does_not_replace_an_earlier_timer_of_an_announcement() {
        let mut standing = at(0);
        standing.tries();
        standing.announced(NOW);
        standing.told(NOW, 9_000 * MS, Some(Place { ticket: 7, rank: 0 }));
        assert_eq!(standing.timer(), Some(NOW.plus(RESERVATION)));
        standing.told(NOW, 10 * MS, Some(Place { ticket: 7, rank: 0 }));
        assert_eq!(standing.timer(), Some(NOW.plus(10 * MS)));
    }

    #[test]
    fn without_a_line_there_is_no_place_but_a_timer() {
        let mut standing = Standing::default();
        standing.told(NOW, 100 * MS, None);
        assert_eq!((standing.again, standing.ticket), (false, 0));
        assert_eq!(standing.timer(), Some(NOW.plus(100 * MS)));
    }
}
