//! Names that stay taken after their holds: `at_least`, and guards that are left to their leases.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::FailureKind;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::cell::HoldCell;
use crate::base::error::LossReason;
use crate::base::lease::Lease;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Fate;
use crate::engine::event::Fates;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::reply::Reply;
use crate::kinds::share::Share;

use super::Hand;
use super::corners::lease;
use super::field;
use super::fixed;
use super::freed;
use super::grant;
use super::handed;
use super::held;
use super::servers::A;
use super::servers::B;
use super::servers::routes;
use super::watched;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const KEPT: Body = Body::Release(Released::Kept { receivers: Some(0) });

/// What a test knows of one level.
struct Taken {
    level: RequestId,
    cell: Arc<HoldCell>,
    /// The server's time a minute after the grant.
    end: ServerTime,
}

impl Hand {
    /// Asks for a level whose name stays taken for a minute; nothing is answered.
    fn ask_minute(&mut self, owner: u64, lease: Lease, max_hold: Option<Duration>) -> RequestId {
        self.ask_kept(owner, lease, max_hold, 60)
    }

    fn ask_kept(
        &mut self,
        owner: u64,
        lease: Lease,
        max_hold: Option<Duration>,
        at_least: u64,
    ) -> RequestId {
        self.wish(Acquire {
            request: RequestId(0),
            name: LockName::new("n").unwrap(),
            owner: OwnerKey::from_test(owner),
            share: Share::ONE,
            lease,
            wait: Wait::Forever,
            max_hold,
            at_least: Some(super::corners::lease(at_least)),
            upgrades: None,
        })
    }

    fn take_minute(&mut self, owner: u64, lease: Lease, max_hold: Option<Duration>) -> Taken {
        let level = self.ask_minute(owner, lease, max_hold);
        let (op, _) = self.take("acquire");
        self.done(op, grant(7));
        let (cell, end) = (self.granted(level), self.server_time().plus(MINUTE));
        self.event(Event::PickedUp { request: level });
        Taken { level, cell, end }
    }

    /// The only command is a release that keeps the name: at which time it ends.
    fn take_release_at(&mut self) -> (OpId, ServerTime) {
        match self.take("release_at") {
            (op, Command::ReleaseAt { free_at, most, .. }) => {
                assert_eq!(most, lease(60), "never longer than was asked for");
                (op, free_at)
            }
            (_, other) => panic!("{other:?}"),
        }
    }

    fn drop_level(&mut self, taken: &Taken) {
        self.event(Event::Release { hold: taken.cell.id, level: taken.level, request: None });
    }

    fn leave(&mut self, cell: &HoldCell, level: RequestId) {
        self.event(Event::Leave { hold: cell.id, level });
    }

    /// What the server says to whoever meets this hold there.
    fn held_by(&self, cell: &HoldCell) -> Body {
        let holder = format!("11111111-2222-4333-8444-555555555555:{}", cell.id);
        Body::Acquire(Acquired::Held { pttl: 50_000, holder, place: None, others: None })
    }
}

// ---- at_least

#[test]
fn the_key_lives_for_at_least_and_the_guard_believes_in_its_lease_alone() {
    let mut hand = Hand::new();
    let level = hand.ask_minute(1, fixed(SECOND), None);
    let sent = hand.now;
    let (op, command) = hand.take("acquire");
    let Command::Acquire { lease: ttl, not_after, .. } = command else { panic!("{command:?}") };
    assert_eq!(ttl, lease(60));
    // A grant after the end of the lease would be of no use.
    assert!(not_after <= hand.server_time().plus(SECOND), "{not_after:?}");
    hand.done(op, grant(7));
    let cell = hand.granted(level);
    assert_eq!(cell.valid_until(), sent.plus(lease(1).validity()));
    hand.pass(SECOND);
    assert_eq!(cell.loss(), Some(LossReason::Expired));
}

#[test]
fn a_longer_lease_is_not_cut() {
    let mut hand = Hand::new();
    hand.ask_minute(1, fixed(2 * MINUTE), None);
    let (_, command) = hand.take("acquire");
    assert!(
        matches!(command, Command::Acquire { lease: ttl, .. } if ttl == lease(120)),
        "{command:?}"
    );
}

#[test]
fn a_release_leaves_the_rest_and_hands_nothing_off() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), None);
    let waiter = hand.ask(2, Wait::Forever);
    hand.pass(SECOND);
    let release = hand.release(&taken.cell, taken.level);
    let (op, free_at) = hand.take_release_at();
    assert_eq!(free_at, taken.end, "counted from the grant, by the server's clock");
    assert!(!taken.cell.is_held(hand.now));
    hand.done(op, KEPT);
    assert!(matches!(hand.answer(release), Answer::Done));
    // It learns for how long from the server.
    let (op, _) = hand.take("acquire");
    let rest = MINUTE - SECOND;
    hand.done(op, held(rest.as_millis() as i64));
    hand.is_open(waiter);
}

/// Whoever comes back to a name that was given up waits like anybody else.
#[test]
fn the_owner_gets_a_hold_of_its_own_after_the_rest() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), None);
    hand.drop_level(&taken);
    let (op, _) = hand.take_release_at();
    hand.done(op, KEPT);
    hand.ask(1, Wait::Forever);
    let (_, command) = hand.take("acquire");
    assert!(!field(&command).ends_with(&format!(":{}", taken.cell.id)), "{command:?}");
}

#[test]
fn after_its_end_a_release_is_like_any_other() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), None);
    hand.live(MINUTE + SECOND);
    let release = hand.release(&taken.cell, taken.level);
    let (op, _) = hand.take("release");
    hand.done(op, freed());
    assert!(matches!(hand.answer(release), Answer::Done));
}

#[test]
fn a_hand_off_gives_the_new_hold_its_own_time() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let waiter = hand.ask_minute(2, fixed(SECOND), None);
    hand.release(&cell, level);
    let (op, command) = hand.take("hand_off");
    assert!(
        matches!(command, Command::HandOff { lease: ttl, .. } if ttl == lease(60)),
        "{command:?}"
    );
    let end = hand.server_time().plus(MINUTE);
    hand.done(op, handed());
    let next = hand.granted(waiter);
    hand.event(Event::PickedUp { request: waiter });
    hand.event(Event::Release { hold: next.id, level: waiter, request: None });
    assert_eq!(hand.take_release_at().1, end);
}

#[test]
fn releases_with_a_rest_do_not_go_in_one_script_with_others() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), None);
    hand.drop_level(&taken);
    hand.take_release_at();
}

/// Nobody had it, so nothing is to stay.
#[test]
fn a_grant_that_nobody_took_is_deleted() {
    for way in 0..3 {
        let mut hand = Hand::new();
        let level = hand.ask_minute(1, watched(), None);
        let (op, _) = hand.take("acquire");
        if way == 0 {
            hand.event(Event::Cancel { request: level });
        }
        hand.done(op, grant(7));
        match way {
            1 => hand.event(Event::Cancel { request: level }),
            2 => hand.event(Event::Withdrawn { request: level }),
            _ => {}
        }
        let (op, command) = hand.take("release");
        assert!(matches!(command, Command::Release { share: Share::NOTHING, .. }), "{command:?}");
        hand.done(op, freed());
        hand.pass(2 * MINUTE);
        assert!(hand.engine.is_idle(), "{way}");
    }
}

#[test]
fn a_grant_that_came_too_late_is_deleted() {
    let mut hand = Hand::new();
    hand.ask_minute(1, fixed(SECOND), None);
    let (op, _) = hand.take("acquire");
    hand.pass(SECOND);
    hand.done(op, grant(7));
    // To its own waiter, who still wants it.
    hand.take("hand_off");
}

#[test]
fn an_attempt_of_which_nobody_knows_is_deleted() {
    let mut hand = Hand::new();
    hand.ask_minute(1, watched(), None);
    let (op, command) = hand.take("acquire");
    hand.unknown(op);
    let (_, release) = hand.take("release");
    assert_eq!(field(&release), field(&command));
}

#[test]
fn a_release_of_which_nobody_knows_is_repeated_as_it_was() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), None);
    let release = hand.release(&taken.cell, taken.level);
    let (op, first) = hand.take_release_at();
    hand.unknown(op);
    hand.pass(SECOND);
    let (op, again) = hand.take_release_at();
    assert_eq!(first, again);
    hand.done(op, KEPT);
    assert!(matches!(hand.answer(release), Answer::Done));
    hand.pass(2 * MINUTE);
    assert!(hand.engine.is_idle());
}

/// What the first of them did has run out meanwhile.
#[test]
fn a_repeat_after_the_end_finds_nothing_and_that_is_well() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), None);
    hand.live(MINUTE - SECOND / 100);
    let release = hand.release(&taken.cell, taken.level);
    let (op, _) = hand.take_release_at();
    hand.unknown(op);
    hand.pass(SECOND / 10);
    // Whether it is over the server's clock tells.
    let (op, _) = hand.take_release_at();
    hand.done(op, Body::Release(Released::Gone));
    assert!(matches!(hand.answer(release), Answer::Done));
}

#[test]
fn a_lost_hold_is_given_up_with_its_rest() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, fixed(SECOND), None);
    hand.pass(SECOND);
    assert_eq!(taken.cell.loss(), Some(LossReason::Expired));
    hand.drop_level(&taken);
    hand.nothing_sent();
    hand.ask(2, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, hand.held_by(&taken.cell));
    hand.confirm_subscriptions();
    let at = hand
        .labels()
        .iter()
        .position(|label| *label == "release_at")
        .expect("what is over is given up");
    let (op, command) = hand.sent.remove(at);
    assert!(
        matches!(command, Command::ReleaseAt { free_at, .. } if free_at == taken.end),
        "{command:?}"
    );
    hand.done(op, KEPT);
    // What stands in its place is nobody's to release.
    for (op, _) in std::mem::take(&mut hand.sent) {
        let holder = format!("11111111-2222-4333-8444-555555555555:{}:kept", taken.cell.id);
        hand.done(
            op,
            Body::Acquire(Acquired::Held { pttl: 50_000, holder, place: None, others: None }),
        );
    }
    assert!(!hand.labels().iter().any(|label| label.starts_with("release")), "{:?}", hand.sent);
}

#[test]
fn the_end_of_max_hold_does_not_end_the_time_of_the_name() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), Some(5 * SECOND));
    let until = taken.cell.valid_until();
    assert!(until <= hand.now.plus(5 * SECOND), "{until:?}");
    hand.pass_answering(4 * SECOND);
    hand.pass(2 * SECOND);
    assert_eq!(taken.cell.loss(), Some(LossReason::MaxHold));
    hand.sent.retain(|(_, command)| !matches!(command, Command::Renew { .. }));
    assert_eq!(hand.take_release_at().1, taken.end);
}

#[test]
fn a_shutdown_leaves_the_rest() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), None);
    hand.event(Event::Shutdown { until: hand.now.plus(SECOND), request: Some(RequestId(99)) });
    let (op, free_at) = hand.take_release_at();
    assert_eq!(free_at, taken.end);
    hand.done(op, KEPT);
    let answer = hand.answer(RequestId(99));
    let released = |fates: &Fates| fates.values().all(|fate| matches!(fate, Fate::Released));
    assert!(matches!(&answer, Answer::ShutDown(fates) if released(fates)), "{answer:?}");
}

/// Its release was confirmed, and a failover has lost it.
#[test]
fn a_release_that_the_server_has_lost_is_repeated_with_its_rest() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), None);
    hand.drop_level(&taken);
    let (op, _) = hand.take_release_at();
    hand.done(op, KEPT);
    hand.ask(2, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, hand.held_by(&taken.cell));
    assert_eq!(hand.take_release_at().1, taken.end);
}

// ---- nesting

#[test]
fn the_later_end_of_the_levels_counts_also_of_one_that_was_given_up() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    hand.live(5 * SECOND);
    let inner = hand.ask_minute(1, watched(), None);
    let (op, command) = hand.take("acquire");
    assert!(
        matches!(command, Command::Acquire { share: Share { exclusive: 2, .. }, lease: ttl, .. } if ttl == lease(60))
    );
    let end = hand.server_time().plus(MINUTE);
    hand.done(op, grant(0));
    hand.granted(inner);
    hand.event(Event::PickedUp { request: inner });
    hand.event(Event::Release { hold: cell.id, level: inner, request: None });
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::CountSet));
    hand.live(5 * SECOND);
    hand.event(Event::Release { hold: cell.id, level, request: None });
    assert_eq!(hand.take_release_at().1, end);
}

/// The answer to the first took so long that on our clock its time would end last.
#[test]
fn which_end_is_later_is_told_by_the_servers_clock() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    for (at_least, took) in [(60, SECOND * 3 / 2), (59, Duration::ZERO)] {
        let inner = hand.ask_kept(1, watched(), None, at_least);
        let (op, _) = hand.take("acquire");
        let (time, by) = (Some(hand.server_time()), ServerId::ONLY);
        hand.now = hand.now.plus(took);
        let outcome = Outcome::Done(Reply { time, body: grant(0) });
        hand.event(Event::Replied { op, server: by, outcome });
        hand.granted(inner);
        hand.event(Event::PickedUp { request: inner });
        hand.event(Event::Release { hold: cell.id, level: inner, request: None });
        let (op, _) = hand.take("release");
        hand.done(op, Body::Release(Released::CountSet));
    }
    let end = hand.server_time().plus(MINUTE - SECOND);
    hand.event(Event::Release { hold: cell.id, level, request: None });
    let (_, command) = hand.take("release_at");
    assert!(matches!(command, Command::ReleaseAt { free_at, .. } if free_at == end), "{command:?}");
}

#[test]
fn a_nested_level_that_nobody_took_counts_for_nothing() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let inner = hand.ask_minute(1, watched(), None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    hand.event(Event::Cancel { request: inner });
    let (op, _) = hand.take("release");
    hand.done(op, Body::Release(Released::CountSet));
    hand.event(Event::Release { hold: cell.id, level, request: None });
    hand.take("release");
}

// ---- several servers

/// A slot with its key has moved to a server whose clock is ten minutes ahead.
#[test]
fn another_server_counts_the_rest_by_its_own_clock() {
    let mut hand = Hand::two();
    let level = hand.ask_minute(1, watched(), None);
    let (op, _) = hand.take("acquire");
    let at_grant = hand.server_time();
    hand.done_by(op, grant(7));
    let cell = hand.granted(level);
    hand.event(Event::PickedUp { request: level });
    let owner = hand.targets[&op];
    let other = if owner == A { B } else { A };
    hand.pass(SECOND);
    hand.event(Event::Down { server: other, cause: "cut".to_owned() });
    hand.event(Event::Routes(routes(&[("n", other)])));
    hand.event(Event::Up(other, ServerInfo { run_id: "anew".to_owned(), ..ServerInfo::default() }));
    let time =
        hand.labels().iter().position(|label| *label == "time").expect("its clock is asked for");
    let (time, _) = hand.sent.remove(time);
    hand.sent.clear();
    hand.event(Event::Release { hold: cell.id, level, request: None });
    hand.nothing_sent();
    // Its clock decides, and is waited for.
    hand.offset += 600_000_000;
    hand.done_by(time, Body::Pong);
    hand.sent.retain(|(_, command)| !matches!(command, Command::Renew { .. }));
    let (op, free_at) = hand.take_release_at();
    assert_eq!(hand.targets[&op], other);
    assert_eq!(free_at, at_grant.plus(10 * MINUTE + MINUTE));
}

#[test]
fn a_server_that_was_away_is_told_the_same_time() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), None);
    hand.cut();
    hand.drop_level(&taken);
    hand.event(Event::Up(
        ServerId::ONLY,
        ServerInfo { run_id: "run-1".to_owned(), ..ServerInfo::default() },
    ));
    // Its clock need not be known for that.
    assert_eq!(hand.labels(), ["time", "release_at"]);
    hand.sent.remove(0);
    assert_eq!(hand.take_release_at().1, taken.end);
}

// ---- refusals

#[test]
fn a_release_with_a_rest_that_is_refused_is_told_to_its_caller() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), None);
    let release = hand.release(&taken.cell, taken.level);
    let (op, _) = hand.take_release_at();
    hand.refused(op, FailureKind::Denied);
    assert!(matches!(hand.answer(release), Answer::Failed(_)));
}

#[test]
fn a_release_with_a_rest_that_was_not_announced_says_so() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, watched(), None);
    let release = hand.release(&taken.cell, taken.level);
    let (op, _) = hand.take_release_at();
    hand.done(op, Body::Release(Released::Kept { receivers: None }));
    let answer = hand.answer(release);
    assert!(
        matches!(answer, Answer::Failed(crate::base::error::Error::NotAnnounced { .. })),
        "{answer:?}"
    );
}

// ---- guards that are left

#[test]
fn a_guard_that_is_left_is_neither_renewed_nor_released() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    hand.leave(&cell, level);
    assert!(!cell.is_held(hand.now));
    hand.pass(29 * SECOND);
    hand.nothing_sent();
    // Whoever meets it there lets it be.
    hand.ask(2, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, hand.held_by(&cell));
    hand.nothing_sent();
    hand.pass(3 * SECOND);
    assert!(!hand.labels().contains(&"release"), "{:?}", hand.sent);
}

#[test]
fn nothing_is_remembered_of_a_left_guard_once_its_key_has_run_out() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.leave(&cell, level);
    assert!(hand.directory.is_empty());
    hand.pass(MINUTE);
    assert!(hand.engine.is_idle());
}

#[test]
fn the_other_levels_go_on_and_release_nothing() {
    for shuts_down in [false, true] {
        let mut hand = Hand::new();
        let (outer, cell) = hand.hold(1);
        hand.event(Event::PickedUp { request: outer });
        let inner = hand.re_enter(1);
        hand.leave(&cell, inner);
        let (op, command) = hand.take("release");
        assert!(matches!(command, Command::Release { share: Share::ONE, .. }), "{command:?}");
        hand.done(op, Body::Release(Released::CountSet));
        assert!(hand.live(3 * MINUTE) > 10, "it is renewed");
        assert!(cell.is_held(hand.now));
        if shuts_down {
            hand.event(Event::Shutdown {
                until: hand.now.plus(SECOND),
                request: Some(RequestId(99)),
            });
            let answer = hand.answer(RequestId(99));
            let left = |fates: &Fates| fates.values().all(|fate| matches!(fate, Fate::Left(_)));
            assert!(matches!(&answer, Answer::ShutDown(fates) if left(fates)), "{answer:?}");
        } else {
            let release = hand.release(&cell, outer);
            assert!(matches!(hand.answer(release), Answer::Done));
        }
        hand.nothing_sent();
    }
}

#[test]
fn a_waiter_of_the_same_client_is_not_handed_a_lock_that_is_left() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    let waiter = hand.ask(2, Wait::Forever);
    hand.leave(&cell, level);
    let (op, _) = hand.take("acquire");
    hand.done(op, hand.held_by(&cell));
    hand.is_open(waiter);
    hand.nothing_sent();
}

#[test]
fn a_lost_guard_cannot_be_left() {
    let mut hand = Hand::new();
    let (level, cell) = hand.hold(1);
    hand.event(Event::PickedUp { request: level });
    hand.event(Event::Verify { hold: cell.id, request: RequestId(900) });
    let (op, _) = hand.take("renew");
    hand.done(op, Body::Renew(Some(vec![Renewed::Gone])));
    hand.leave(&cell, level);
    hand.nothing_sent();
    assert!(hand.engine.is_idle());
}

/// Of the levels that go on, one asked for a lease that outlives the hold.
#[test]
fn a_hold_that_was_left_and_lost_is_not_released_as_long_as_its_key_may_be_there() {
    let mut hand = Hand::new();
    let (_, cell) = hand.taken(1, fixed(2 * SECOND), None);
    for asks_for_more in [false, true] {
        let inner = if asks_for_more {
            hand.ask_minute(1, fixed(2 * SECOND), None)
        } else {
            hand.want(1, fixed(2 * SECOND), Wait::Forever, None)
        };
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(0));
        hand.granted(inner);
        if asks_for_more {
            hand.event(Event::Cancel { request: inner });
        } else {
            hand.leave(&cell, inner);
        }
        let (op, _) = hand.take("release");
        hand.done(op, Body::Release(Released::CountSet));
    }
    hand.pass(10 * SECOND);
    assert_eq!(cell.loss(), Some(LossReason::Expired));
    hand.ask(2, Wait::Forever);
    let (op, _) = hand.take("acquire");
    hand.done(op, hand.held_by(&cell));
    hand.nothing_sent();
}

/// The level that was left asked for more than its lease; and so did one that goes on.
#[test]
fn a_level_with_at_least_can_be_left() {
    let mut hand = Hand::new();
    let taken = hand.take_minute(1, fixed(SECOND), None);
    hand.leave(&taken.cell, taken.level);
    hand.pass(30 * SECOND);
    hand.ask(2, Wait::Once);
    let (op, _) = hand.take("acquire");
    hand.done(op, hand.held_by(&taken.cell));
    hand.nothing_sent();
    hand.pass(MINUTE);
    assert!(hand.engine.is_idle());
}

// ---- the reply of a server that knows no time

#[test]
fn a_grant_is_counted_from_the_time_in_its_own_reply() {
    let mut hand = Hand::new();
    let level = hand.ask_minute(1, watched(), None);
    let (op, _) = hand.take("acquire");
    let time = ServerTime(hand.server_time().0 + 1_234);
    let reply = Reply { time: Some(time), body: grant(7) };
    hand.pass(SECOND / 100);
    hand.event(Event::Replied { op, server: ServerId::ONLY, outcome: Outcome::Done(reply) });
    let cell = hand.granted(level);
    hand.event(Event::PickedUp { request: level });
    hand.event(Event::Release { hold: cell.id, level, request: None });
    assert_eq!(hand.take_release_at().1, time.plus(MINUTE));
}

/// The time to live that it asked for is at the server, and is longer than the lease of the hold.
#[test]
fn a_nested_level_that_nobody_took_does_not_keep_the_name_of_a_hold_that_has_expired() {
    for (answered, picked_up) in [(false, false), (true, false), (true, true)] {
        let mut hand = Hand::new();
        let outer = hand.want(1, fixed(5 * SECOND), Wait::Forever, None);
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(7));
        let cell = hand.granted(outer);
        hand.event(Event::PickedUp { request: outer });
        let inner = hand.ask_minute(1, fixed(5 * SECOND), None);
        let (op, _) = hand.take("acquire");
        let end = hand.server_time().plus(MINUTE);
        if !answered {
            hand.event(Event::Cancel { request: inner });
        }
        hand.done(op, grant(0));
        if picked_up {
            hand.event(Event::PickedUp { request: inner });
            hand.event(Event::Release { hold: cell.id, level: inner, request: None });
        } else if answered {
            hand.event(Event::Cancel { request: inner });
        }
        let (op, _) = hand.take("release");
        hand.done(op, Body::Release(Released::CountSet));
        hand.pass(6 * SECOND);
        assert_eq!(cell.loss(), Some(LossReason::Expired));
        if picked_up {
            assert_eq!(hand.take_release_at().1, end);
        } else {
            let (op, command) = hand.take("release");
            assert!(
                matches!(command, Command::Release { share: Share::NOTHING, .. }),
                "{command:?}"
            );
            hand.done(op, freed());
        }
        hand.event(Event::Release { hold: cell.id, level: outer, request: None });
        hand.nothing_sent();
    }
}
