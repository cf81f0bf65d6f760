//! Where this client stands in the line that the server keeps for a name, and when it tries although
//! nobody has told it to.

use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::engine::name_record::Cause;
use crate::kinds::reply::Place;
use crate::settings::config::Config;

/// So many of the first in line try at the end of what another has. The rest sleep until they are
/// told, or until their fallback.
const WITH_TIMERS: u64 = 8;
/// They try one after the other, so that the first one of them finds the lock free.
const STEP: Duration = Duration::from_millis(2);
/// So many reservations that were missed in a row are reported.
const SUSPICIOUS: u32 = 3;
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
    /// The lock was reserved for it, and it has not tried since.
    reserved: bool,
    /// How many reservations in a row were over before its attempt arrived.
    missed: u32,
    /// The end of what another has.
    timer: Option<Moment>,
    /// The end of the longest sleep, whatever else happens.
    fallback: Moment,
}

/// The longest sleep: 5 s, give or take a tenth: different for each client and name, the same every
/// time.
pub(super) fn fallback_of(config: &Config, lock: &LockName) -> Duration {
    let bytes = config.client_id.bytes().chain(lock.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let permille = u32::try_from(900 + hash % 201).unwrap_or(1_000);
    config.fallback * permille / 1_000
}

impl Standing {
    /// The role is over: its place was granted or given up.
    pub(super) fn end_role(&mut self) {
        *self = Self { fallback: self.fallback, ..Self::default() };
    }

    /// An attempt was refused: another has the lock for so long. What a message has said during the
    /// attempt may be newer than its answer, so the earlier of two ends counts.
    pub(super) fn told(
        &mut self,
        now: Moment,
        left: Duration,
        fallback: Duration,
        place: Option<Place>,
    ) {
        self.fallback = if seeded!(SleepEnds) { Moment::NEVER } else { now.plus(fallback) };
        if let Some(Place { ticket, rank }) = place {
            (self.again, self.ticket, self.rank) = (true, ticket, rank);
        }
        if let Some(end) = self.end(now, left) {
            self.timer = Some(self.timer.map_or(end, |timer| timer.min(end)));
        }
    }

    /// An attempt whose answer did not arrive had taken a place with this ticket.
    pub(super) fn knows(&mut self, ticket: u64) {
        if self.ticket == 0 {
            (self.again, self.ticket) = (true, ticket);
        }
    }

    /// Whether it has been told a ticket, so that it has a place if it hears.
    pub(super) fn has_ticket(&self) -> bool {
        self.again && self.ticket > 0
    }

    /// Another poll of this client is about its place as well.
    pub(super) fn polled(&mut self, now: Moment, fallback: Duration) {
        self.fallback = now.plus(fallback);
    }

    /// That poll had no answer.
    pub(super) fn not_polled(&mut self, now: Moment) {
        self.fallback = now;
    }

    /// The lock was reserved for it.
    pub(super) fn reserved(&mut self) {
        self.reserved = true;
    }

    /// Another has the lock although it was reserved for this client. Returns how many reservations
    /// in a row were missed, if that is to be reported.
    pub(super) fn missed(&mut self) -> Option<u32> {
        if std::mem::take(&mut self.reserved) {
            self.missed += 1;
            return (self.missed == SUSPICIOUS).then_some(self.missed);
        }
        None
    }

    /// The lock was reserved for so many others. Returns whether the contender now tries at another
    /// time.
    pub(super) fn announced(&mut self, now: Moment, others: u64) -> bool {
        let before = self.sleeps();
        self.rank = self.rank.saturating_sub(others);
        self.timer = self.end(now, RESERVATION);
        self.sleeps() != before
    }

    fn end(&self, now: Moment, left: Duration) -> Option<Moment> {
        let steps = u32::try_from(self.rank).ok().filter(|_| self.rank < WITH_TIMERS)?;
        Some(now.plus(left).plus(STEP * steps))
    }

    /// An attempt is sent.
    pub(super) fn tries(&mut self) {
        self.timer = None;
    }

    /// Until when the contender sleeps, and why it tries then. Nothing postpones the fallback.
    pub(super) fn sleeps(&self) -> (Moment, Cause) {
        match self.timer {
            Some(timer) if timer < self.fallback && !seeded!(SleepEndsWithKey) => {
                (timer, Cause::Expiry)
            }
            _ => (self.fallback, Cause::Fallback),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(1_000_000_000);
    const MS: Duration = Duration::from_millis(1);
    const FALLBACK: Duration = Duration::from_secs(5);

    fn told(standing: &mut Standing, left: Duration, rank: u64) {
        standing.told(NOW, left, FALLBACK, Some(Place { ticket: 7, rank }));
    }

    fn at(rank: u64) -> Standing {
        let mut standing = Standing::default();
        told(&mut standing, 100 * MS, rank);
        standing
    }

    fn at_end(moment: Moment) -> (Moment, Cause) {
        (moment, Cause::Expiry)
    }

    const AT_FALLBACK: (Moment, Cause) = (Moment(6_000_000_000), Cause::Fallback);

    #[test]
    fn the_first_eight_try_one_after_the_other_at_the_end_of_what_another_has() {
        for rank in 0..8 {
            let end = NOW.plus(100 * MS + 2 * MS * rank as u32);
            assert_eq!(at(rank).sleeps(), at_end(end), "{rank}");
        }
        assert_eq!(at(8).sleeps(), AT_FALLBACK);
        assert_eq!(at(u64::MAX).sleeps(), AT_FALLBACK);
    }

    #[test]
    fn each_announcement_moves_a_waiter_up_and_sets_its_timer_anew() {
        let mut standing = at(9);
        assert!(!standing.announced(NOW, 1), "it sleeps on");
        assert_eq!(standing.sleeps(), AT_FALLBACK);
        assert!(standing.announced(NOW, 1));
        assert_eq!(standing.sleeps(), at_end(NOW.plus(RESERVATION + 7 * STEP)));
        let later = NOW.plus(400 * MS);
        assert!(standing.announced(later, 1));
        assert_eq!(standing.sleeps(), at_end(later.plus(RESERVATION + 6 * STEP)));
        standing.tries();
        assert_eq!(standing.sleeps(), AT_FALLBACK);
    }

    #[test]
    fn an_announcement_does_not_postpone_the_fallback() {
        let mut standing = at(0);
        standing.announced(NOW.plus(4_000 * MS), 1);
        assert_eq!(standing.sleeps(), AT_FALLBACK);
    }

    #[test]
    fn an_answer_does_not_replace_an_earlier_timer_of_an_announcement() {
        let mut standing = at(0);
        standing.tries();
        standing.announced(NOW, 1);
        told(&mut standing, 4_000 * MS, 0);
        assert_eq!(standing.sleeps(), at_end(NOW.plus(RESERVATION)));
        told(&mut standing, 10 * MS, 0);
        assert_eq!(standing.sleeps(), at_end(NOW.plus(10 * MS)));
    }

    #[test]
    fn without_a_line_there_is_no_place_but_a_timer() {
        let mut standing = Standing::default();
        standing.told(NOW, 100 * MS, FALLBACK, None);
        assert_eq!((standing.again, standing.ticket), (false, 0));
        assert_eq!(standing.sleeps(), at_end(NOW.plus(100 * MS)));
    }
}
