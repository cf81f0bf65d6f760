//! "Somebody else has it" is told only if somebody has, as far as the last answer goes. While the
//! server gives none, what this client knows by itself is no answer.

use std::time::Duration;

use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;

use super::Hand;
use super::fixed;
use super::freed;
use super::grant;
use super::held;
use super::watched;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const FIVE_SECONDS: Wait = Wait::For(Duration::from_secs(5));

/// What has become of the server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trouble {
    /// It answers nothing, on connections that stay.
    Frozen,
    /// The connection is lost.
    Cut,
    /// It answers that it cannot.
    Busy,
}

const TROUBLES: [Trouble; 3] = [Trouble::Frozen, Trouble::Cut, Trouble::Busy];

/// A server in trouble, and what it has not answered.
struct Troubled {
    hand: Hand,
    trouble: Trouble,
    open: Vec<(Moment, OpId)>,
}

impl Troubled {
    fn begin(mut hand: Hand, trouble: Trouble) -> Self {
        if trouble == Trouble::Cut {
            hand.cut();
        }
        Self { hand, trouble, open: Vec::new() }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.hand.now.plus(time);
        while self.hand.now < end {
            self.take_commands();
            self.hand.pass((10 * MILLISECOND).min(end.since(self.hand.now)));
        }
        self.take_commands();
    }

    fn take_commands(&mut self) {
        for (op, _) in std::mem::take(&mut self.hand.sent) {
            match self.trouble {
                Trouble::Busy => self.hand.refused(op, FailureKind::Busy),
                Trouble::Frozen | Trouble::Cut => self.open.push((self.hand.now.plus(SECOND), op)),
            }
        }
        let now = self.hand.now;
        for (_, op) in self.open.extract_if(.., |(until, _)| *until <= now).collect::<Vec<_>>() {
            self.hand.unknown(op);
        }
    }

    /// Asks, and gives what it is told and after how long.
    fn ask(&mut self, owner: u64, wait: Wait) -> (Answer, Duration) {
        let request = self.hand.ask(owner, wait);
        self.answer(request)
    }

    fn answer(&mut self, request: RequestId) -> (Answer, Duration) {
        let since = self.hand.now;
        while !self.hand.answers.iter().any(|(other, _)| *other == request) {
            self.pass(10 * MILLISECOND);
        }
        (self.hand.answer(request), self.hand.now.since(since))
    }
}

/// How long a call waits for an answer.
fn length(wait: Wait) -> Duration {
    match wait {
        Wait::For(wait) | Wait::Within(wait) => wait,
        Wait::Once => SECOND,
        Wait::Forever | Wait::Lead => unreachable!("it has no length"),
    }
}

fn is_unavailable(answer: &Answer) -> bool {
    matches!(answer, Answer::Failed(Error::Unavailable { .. }))
}

/// How a guard ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Dropped,
    Unlocked,
    /// So long ago that whoever waited for the release has been told that nobody knows.
    UnlockedInVain,
}

#[test]
fn a_release_without_an_answer_is_none() {
    for trouble in TROUBLES {
        for end in [End::Dropped, End::Unlocked, End::UnlockedInVain] {
            for wait in [Wait::Once, FIVE_SECONDS] {
                let case = format!("{trouble:?}, {end:?}, {wait:?}");
                let mut hand = Hand::new();
                hand.engine.cx.config.outage_limit = 4 * SECOND;
                let (level, cell) = hand.hold(1);
                let mut troubled = Troubled::begin(hand, trouble);
                let hand = &mut troubled.hand;
                let unlock = match end {
                    End::Dropped => {
                        hand.event(Event::Release { hold: cell.id, level, request: None });
                        None
                    }
                    End::Unlocked | End::UnlockedInVain => Some(hand.release(&cell, level)),
                };
                if let (End::UnlockedInVain, Some(unlock)) = (end, unlock) {
                    let (answer, _) = troubled.answer(unlock);
                    assert!(is_unavailable(&answer), "{case}: {answer:?}");
                } else {
                    troubled.pass(2 * SECOND);
                }
                let (answer, waited) = troubled.ask(2, wait);
                assert!(is_unavailable(&answer), "{case}: {answer:?}");
                assert_eq!(waited, length(wait), "{case}");
            }
        }
    }
}

/// Nobody can know of the outage yet, but nothing was answered within the wait.
#[test]
fn a_release_that_is_not_answered_for_the_whole_wait_is_no_answer() {
    for wait in [500 * MILLISECOND, 5 * SECOND] {
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        hand.release(&cell, level);
        let mut troubled = Troubled::begin(hand, Trouble::Frozen);
        let (answer, waited) = troubled.ask(2, Wait::For(wait));
        assert!(is_unavailable(&answer), "{wait:?}: {answer:?}");
        assert_eq!(waited, wait);
    }
}

#[test]
fn a_release_in_a_queue_is_none_either() {
    let mut hand = Hand::new();
    let holds: Vec<_> = (0..6)
        .map(|number| {
            let name = format!("n{number}");
            let request = hand.want_name(&name, number, watched(), Wait::Forever, None);
            let (op, _) = hand.take("acquire");
            hand.done(op, grant(number));
            (name, request, hand.granted(request))
        })
        .collect();
    for (_, level, cell) in &holds {
        hand.event(Event::Release { hold: cell.id, level: *level, request: None });
    }
    let mut troubled = Troubled::begin(hand, Trouble::Frozen);
    let denied = troubled.hand.want_name("n5", 9, watched(), Wait::Once, None);
    assert!(
        matches!(troubled.hand.answer(denied), Answer::NotGranted),
        "nobody knows of trouble yet"
    );
    troubled.pass(SECOND);
    for (name, ..) in &holds {
        let asked = troubled.hand.want_name(name, 9, watched(), Wait::Once, None);
        troubled.hand.is_open(asked);
        let (answer, _) = troubled.answer(asked);
        assert!(is_unavailable(&answer), "{name}: {answer:?}");
    }
}

/// The last level is given up while the smaller count has no answer: its release waits for that. A
/// client that was suspended hears at once that there was none and that the wait is over.
#[test]
fn a_release_behind_a_smaller_count_is_no_answer_either() {
    let mut hand = Hand::new();
    let (outer, cell) = hand.hold(1);
    let inner = hand.re_enter(1);
    hand.event(Event::Release { hold: cell.id, level: inner, request: None });
    hand.event(Event::Release { hold: cell.id, level: outer, request: None });
    let (smaller_count, _) = hand.take("release");
    let waits = hand.ask(2, Wait::For(500 * MILLISECOND));
    hand.now = hand.now.plus(2 * SECOND);
    hand.unknown(smaller_count);
    let answer = hand.answer(waits);
    assert!(is_unavailable(&answer), "{answer:?}");
}

/// A hold that was in the way when the wait began, and is not any more.
#[test]
fn what_was_in_the_way_before_the_outage_is_no_answer() {
    for trouble in TROUBLES {
        // Released.
        let mut hand = Hand::new();
        let (level, cell) = hand.hold(1);
        let waits = hand.ask(2, FIVE_SECONDS);
        hand.pass(SECOND);
        let mut troubled = Troubled::begin(hand, trouble);
        troubled.hand.release(&cell, level);
        let (answer, _) = troubled.answer(waits);
        assert!(is_unavailable(&answer), "{trouble:?}: {answer:?}");

        // Over, whether it is renewed or not.
        for lease in [watched(), fixed(30 * SECOND)] {
            let mut hand = Hand::new();
            let first = hand.want(1, lease, Wait::Forever, None);
            let (op, _) = hand.take("acquire");
            hand.done(op, grant(1));
            let cell = hand.granted(first);
            hand.event(Event::PickedUp { request: first });
            let waits = hand.ask(2, Wait::For(40 * SECOND));
            let mut troubled = Troubled::begin(hand, trouble);
            let (answer, waited) = troubled.answer(waits);
            assert!(cell.loss().is_some());
            assert!(is_unavailable(&answer), "{trouble:?} {lease:?}: {answer:?}");
            assert_eq!(waited, 40 * SECOND);
        }

        // Freed, and then nothing more was heard.
        let mut hand = Hand::new();
        hand.engine.cx.config.hand_off = false;
        let (level, cell) = hand.hold(1);
        let waits = hand.ask(2, FIVE_SECONDS);
        hand.pass(SECOND);
        hand.release(&cell, level);
        let (op, _) = hand.take("release");
        hand.done(op, freed());
        let mut troubled = Troubled::begin(hand, trouble);
        let (answer, _) = troubled.answer(waits);
        assert!(is_unavailable(&answer), "{trouble:?}: {answer:?}");
    }
}

/// Another client had it when it was last asked for: whoever comes in an outage is not told so.
#[test]
fn what_others_were_told_before_the_outage_is_no_answer() {
    for trouble in TROUBLES {
        for wait in [Wait::Once, FIVE_SECONDS] {
            let mut hand = Hand::new();
            hand.sleeper(1);
            let mut troubled = Troubled::begin(hand, trouble);
            troubled.pass(10 * SECOND);
            let (answer, waited) = troubled.ask(2, wait);
            assert!(is_unavailable(&answer), "{trouble:?} {wait:?}: {answer:?}");
            assert_eq!(waited, length(wait));
        }
    }
}

#[test]
fn a_wish_of_the_same_owner_in_an_outage_is_no_answer() {
    for trouble in TROUBLES {
        let hand = Hand::new();
        let mut troubled = Troubled::begin(hand, trouble);
        troubled.hand.ask(1, Wait::Forever);
        troubled.pass(2 * SECOND);
        let (answer, waited) = troubled.ask(1, Wait::Once);
        assert!(is_unavailable(&answer), "{trouble:?}: {answer:?}");
        assert_eq!(waited, SECOND);
    }
}

/// An attempt with a limit of its own ends with it, and what may have been granted is undone.
#[test]
fn an_attempt_with_a_limit_ends_in_time_and_is_undone() {
    let limit = Wait::Within(100 * MILLISECOND);
    for trouble in TROUBLES {
        let mut troubled = Troubled::begin(Hand::new(), trouble);
        let (answer, waited) = troubled.ask(1, limit);
        assert!(is_unavailable(&answer), "{trouble:?}: {answer:?}");
        assert_eq!(waited, length(limit), "{trouble:?}");
    }
    let mut hand = Hand::new();
    let request = hand.ask(1, limit);
    hand.pass(100 * MILLISECOND);
    assert!(is_unavailable(&hand.answer(request)));
    let mut longer = Hand::new();
    let request = longer.ask(1, Wait::Within(5 * SECOND));
    longer.pass(SECOND);
    assert!(is_unavailable(&longer.answer(request)), "no longer than the command timeout");
}

/// What is known to be held is told, whatever the server does.
#[test]
fn a_hold_that_lives_is_an_answer_in_an_outage_too() {
    for trouble in TROUBLES {
        let mut hand = Hand::new();
        let (level, _) = hand.hold(1);
        hand.event(Event::PickedUp { request: level });
        let mut troubled = Troubled::begin(hand, trouble);
        troubled.pass(15 * SECOND);
        let (answer, waited) = troubled.ask(2, Wait::Once);
        assert!(matches!(answer, Answer::NotGranted), "{trouble:?}: {answer:?}");
        assert!(waited.is_zero());
        let (answer, waited) = troubled.ask(2, FIVE_SECONDS);
        assert!(matches!(answer, Answer::NotGranted), "{trouble:?}: {answer:?}");
        assert_eq!(waited, 5 * SECOND);
    }
}

/// The last answer within the wait said so.
#[test]
fn an_answer_within_the_wait_stays_one_when_the_outage_begins() {
    for trouble in TROUBLES {
        let mut hand = Hand::new();
        let waits = hand.ask(1, Wait::For(20 * SECOND));
        let (op, _) = hand.take("acquire");
        hand.done(op, held(3_000));
        let mut troubled = Troubled::begin(hand, trouble);
        let (answer, waited) = troubled.answer(waits);
        assert!(matches!(answer, Answer::NotGranted), "{trouble:?}: {answer:?}");
        assert_eq!(waited, 20 * SECOND);
    }
}

/// The refusal is older than the grant to somebody of this client, who has given it up since.
#[test]
fn an_answer_from_before_a_grant_is_none_after_it() {
    for trouble in TROUBLES {
        let mut hand = Hand::new();
        let waits = hand.ask(1, Wait::For(20 * SECOND));
        let (op, _) = hand.take("acquire");
        hand.done(op, held(20_000));
        hand.confirm_subscriptions();
        let (op, _) = hand.take("acquire");
        let behind = hand.ask(2, Wait::For(20 * SECOND));
        hand.done(op, grant(1));
        let cell = hand.granted(waits);
        let mut troubled = Troubled::begin(hand, trouble);
        troubled.hand.release(&cell, waits);
        let (answer, _) = troubled.answer(behind);
        assert!(is_unavailable(&answer), "{trouble:?}: {answer:?}");
    }
}

/// Without trouble a release in the way counts for as long as it takes.
#[test]
fn a_release_on_its_way_is_an_answer() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let waits = hand.ask(2, FIVE_SECONDS);
    hand.pass(5 * SECOND - MILLISECOND);
    hand.sent.clear();
    hand.release(&cell, level);
    hand.pass(MILLISECOND);
    assert!(matches!(hand.answer(waits), Answer::NotGranted));
    let denied = hand.ask(3, Wait::Once);
    assert!(matches!(hand.answer(denied), Answer::NotGranted));
}

/// It had less time than the command timeout.
#[test]
fn an_attempt_that_is_cut_short_tells_nothing_about_the_server() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let hurried = hand.want_name("other", 2, watched(), Wait::For(20 * MILLISECOND), None);
    let (op, _) = hand.take("acquire");
    hand.pass(20 * MILLISECOND);
    hand.unknown(op);
    assert!(is_unavailable(&hand.answer(hurried)));
    hand.sent.clear();
    hand.release(&cell, level);
    let denied = hand.ask(3, Wait::Once);
    assert!(matches!(hand.answer(denied), Answer::NotGranted));
}

#[test]
fn a_hand_off_that_is_cut_short_is_followed_by_a_release_that_has_met_no_trouble() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let wait = Wait::For(40 * MILLISECOND);
    let brief = hand.want(2, watched(), wait, Some(20 * MILLISECOND));
    hand.pass(30 * MILLISECOND);
    hand.sent.clear();
    hand.release(&cell, level);
    let (op, _) = hand.take("hand_off");
    hand.pass(5 * MILLISECOND);
    hand.unknown(op);
    assert_eq!(hand.labels()[0], "release");
    let denied = hand.ask(3, Wait::Once);
    assert!(matches!(hand.answer(denied), Answer::NotGranted));
    hand.pass(5 * MILLISECOND);
    assert!(matches!(hand.answer(brief), Answer::NotGranted));
}

/// It had the whole command timeout.
#[test]
fn a_hand_off_without_an_answer_is_trouble() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.want(2, watched(), FIVE_SECONDS, None);
    hand.release(&cell, level);
    let (op, _) = hand.take("hand_off");
    let mut troubled = Troubled::begin(hand, Trouble::Frozen);
    troubled.pass(SECOND);
    troubled.hand.unknown(op);
    let (answer, _) = troubled.ask(3, Wait::Once);
    assert!(is_unavailable(&answer), "{answer:?}");
}

/// The server is there again within the wait, and what was given up is free.
#[test]
fn who_asks_in_an_outage_gets_it_when_that_ends_in_time() {
    for trouble in [Trouble::Frozen, Trouble::Busy] {
        for wait in [Wait::Once, FIVE_SECONDS] {
            let mut hand = Hand::new();
            let (level, cell) = hand.hold(1);
            let mut troubled = Troubled::begin(hand, trouble);
            troubled.hand.event(Event::Release { hold: cell.id, level, request: None });
            troubled.pass(2 * SECOND);
            let asked = troubled.hand.ask(2, wait);
            let mut hand = troubled.hand;
            for (_, op) in troubled.open {
                hand.done(op, freed());
            }
            for _ in 0..50 {
                hand.pass(10 * MILLISECOND);
                for (op, command) in std::mem::take(&mut hand.sent) {
                    match command.label() {
                        "release" => hand.done(op, freed()),
                        "acquire" => hand.done(op, grant(2)),
                        "hand_off" => hand.done(op, super::handed()),
                        other => panic!("{other}"),
                    }
                }
            }
            hand.granted(asked);
        }
    }
}

/// The words say that it is a release of this client that keeps others waiting.
#[test]
fn the_error_behind_a_release_names_it() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let mut troubled = Troubled::begin(hand, Trouble::Busy);
    troubled.hand.release(&cell, level);
    troubled.pass(SECOND);
    let (answer, _) = troubled.ask(2, Wait::Once);
    let Answer::Failed(Error::Unavailable { cause, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(cause, "this client's release of the lock is not confirmed: no");
}

/// What the server refused before it granted the lock to this client is over, also if nobody has
/// taken that grant.
#[test]
fn a_grant_that_nobody_took_ends_what_was_refused_before() {
    let mut hand = Hand::new();
    let lease = fixed(200 * MILLISECOND);
    let gone = hand.want(1, lease, FIVE_SECONDS, None);
    let waits = hand.want(2, lease, FIVE_SECONDS, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    hand.confirm_subscriptions();
    let (op, _) = hand.take("acquire");
    hand.done(op, held(20_000));
    hand.message();
    let (op, _) = hand.take("acquire");
    hand.event(Event::Cancel { request: gone });
    hand.done(op, grant(7));
    // The grant is passed on to the other one, and nobody hears any more of it.
    let (op, _) = hand.take("hand_off");
    hand.cut();
    hand.unknown(op);
    hand.pass(6 * SECOND);
    let answer = hand.answer(waits);
    assert!(matches!(&answer, Answer::Failed(error) if error.is_transient()), "{answer:?}");
}
