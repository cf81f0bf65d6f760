//! The engine with a read-write lock: each owner has a record of its own, an upgrade is a hold beside
//! another, and a downgrade is one command.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Call;
use crate::backend::FailureKind;
use crate::backend::ServerId;
use crate::backend::ServerInfo;
use crate::base::cell::HoldCell;
use crate::base::error::Error;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::base::owner::OwnerKey;
use crate::engine::event::Acquire;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::RequestId;
use crate::engine::event::Wait;
use crate::kinds::command::Command;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Others;
use crate::kinds::reply::Place;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::share::Share;
use crate::settings::config::Config;

use super::CLIENT;
use super::Hand;
use super::OTHER;
use super::config;
use super::fixed;
use super::freed;
use super::grant;
use super::watched;

fn wish(hand: &mut Hand, owner: u64, share: Share, upgrades: Option<u64>) -> RequestId {
    let wait = if upgrades.is_some() { Wait::Once } else { Wait::Forever };
    hand.wish(Acquire {
        request: RequestId(0),
        name: LockName::new("n").unwrap().of_kind(Kind::ReadWrite),
        owner: OwnerKey::from_test(owner),
        share,
        lease: watched(),
        wait,
        max_hold: None,
        at_least: None,
        upgrades: upgrades.and_then(NonZeroU64::new),
    })
}

fn hold(hand: &mut Hand, owner: u64, share: Share) -> (RequestId, Arc<HoldCell>) {
    let request = wish(hand, owner, share, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(hand.server_time().0 as u64));
    (request, hand.granted(request))
}

/// The answer to a writer: these read.
fn read_by(fields: &[String], removed: bool) -> Body {
    let others = Some(Others { removed, fields: fields.to_vec() });
    let place = Some(Place { ticket: 7, rank: 0 });
    Body::Acquire(Acquired::Held { pttl: 20_000, holder: OTHER.to_owned(), place, others })
}

fn beside(removed: bool, fields: &[String]) -> Body {
    let others = Some(Others { removed, fields: fields.to_vec() });
    Body::Acquire(Acquired::Held { pttl: 0, holder: String::new(), place: None, others })
}

fn told(command: &Command) -> Vec<String> {
    match command {
        Command::Acquire { told, .. } | Command::Upgrade { told, .. } => told.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_of_one_client_do_not_wait_for_each_other() {
    let mut hand = Hand::new();
    let requests: Vec<_> = (1..=3).map(|owner| wish(&mut hand, owner, Share::READ, None)).collect();
    assert_eq!(hand.labels(), ["acquire", "acquire", "acquire"]);
    let sent = std::mem::take(&mut hand.sent);
    let mut fields: Vec<_> = sent.iter().map(|(_, command)| super::field(command)).collect();
    fields.dedup();
    assert_eq!(fields.len(), 3, "each has a hold of its own");
    for ((op, _), request) in sent.into_iter().zip(requests) {
        hand.done(op, grant(5));
        hand.granted(request);
    }
}

#[test]
fn a_message_after_a_write_wakes_all_who_wait() {
    let name = LockName::new("n").unwrap().of_kind(Kind::ReadWrite);
    for (message, awake) in [("0", 2), ("1", 2), ("2", 0)] {
        let mut hand = Hand { channel: name.channel(WireProfile::Native), ..Hand::new() };
        for owner in 1..=2 {
            wish(&mut hand, owner, Share::READ, None);
        }
        for (op, _) in std::mem::take(&mut hand.sent) {
            hand.done(op, super::held(20_000));
        }
        hand.confirm_subscriptions();
        for (op, _) in std::mem::take(&mut hand.sent) {
            hand.done(op, super::held(20_000));
        }
        hand.nothing_sent();
        hand.say(message);
        assert_eq!(hand.labels().len(), awake, "{message}");
    }
}

#[test]
fn an_owner_that_only_reads_cannot_wait_to_write() {
    let mut hand = Hand::new();
    hold(&mut hand, 1, Share::READ);
    let request = wish(&mut hand, 1, Share::ONE, None);
    let answer = hand.answer(request);
    assert!(matches!(answer, Answer::Failed(Error::WouldDeadlock { .. })), "{answer:?}");
    hand.nothing_sent();
}

#[test]
fn an_upgrade_is_a_hold_beside_the_read_and_a_second_one_a_level_of_it() {
    let mut hand = Hand::new();
    let (read_level, read) = hold(&mut hand, 1, Share::READ);
    // The owner is that of the read, whoever asks.
    let request = wish(&mut hand, 9, Share::ONE, Some(read.id));
    let (op, command) = hand.take("upgrade");
    assert!(told(&command).is_empty());
    hand.done(op, grant(8));
    let write = hand.granted(request);
    assert_ne!(write.id, read.id);

    let again = wish(&mut hand, 9, Share::ONE, Some(read.id));
    let (op, command) = hand.take("acquire");
    assert!(matches!(command, Command::Acquire { share: Share { exclusive: 2, shared: 0 }, .. }));
    hand.done(op, grant(0));
    assert_eq!(hand.granted(again).id, write.id);
    assert_eq!((write.count(), read.count()), (2, 1));

    hand.release(&read, read_level);
    let (op, command) = hand.take("release");
    assert!(matches!(command, Command::Release { share: Share::NOTHING, .. }));
    hand.done(op, freed());
    assert!(write.is_held(hand.now));
}

/// The first attempt is told who reads, and the second one removes those of them that are dead.
/// A further read of an owner whose write beside its read is about to be released, or is being
/// released: it enters the read. In the line it would wait behind writers that wait for this read.
#[test]
fn a_read_that_comes_when_the_write_ends_enters_the_read_beside_it() {
    for write_is_over in [false, true] {
        let mut hand = Hand::new();
        let (_, read) = hold(&mut hand, 1, Share::READ);
        let upgrade = wish(&mut hand, 1, Share::ONE, Some(read.id));
        let (op, _) = hand.take("upgrade");
        hand.done(op, grant(8));
        let write = hand.granted(upgrade);
        let again = wish(&mut hand, 1, Share::ONE, Some(read.id));
        let (op, _) = hand.take("acquire");
        hand.done(op, grant(0));
        hand.granted(again);
        // While this is on the wire, the last level is given up.
        hand.release(&write, upgrade);
        let (op, _) = hand.take("release");
        if write_is_over {
            hand.release(&write, again);
        }
        let further = wish(&mut hand, 1, Share::READ, None);
        if !write_is_over {
            hand.release(&write, again);
        }
        hand.done(op, Body::Release(Released::CountSet));
        while let Some((op, command)) = hand.sent.pop() {
            match command {
                Command::Acquire { share, .. } => {
                    assert_eq!(share, Share { exclusive: 0, shared: 2 });
                    hand.done(op, grant(0));
                }
                Command::Release { share: Share::NOTHING, .. } => hand.done(op, freed()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(hand.granted(further).id, read.id);
        assert_eq!(read.count(), 2);
    }
}

/// The read is renewed, and with it the key in which the write has its field.
#[test]
fn a_write_that_has_run_out_is_removed_from_beside_the_read() {
    for left in [false, true] {
        let mut hand = Hand::new();
        let (_, read) = hold(&mut hand, 1, Share::READ);
        let request = hand.wish(Acquire {
            request: RequestId(0),
            name: read.name.clone(),
            owner: OwnerKey::from_test(1),
            share: Share::ONE,
            lease: fixed(Duration::from_secs(5)),
            wait: Wait::Once,
            max_hold: None,
            at_least: None,
            upgrades: NonZeroU64::new(read.id),
        });
        let (op, command) = hand.take("upgrade");
        let Command::Upgrade { to, .. } = command else { panic!("{command:?}") };
        hand.done(op, grant(9));
        let write = hand.granted(request);
        if left {
            hand.event(Event::Leave { hold: write.id, level: request });
            hand.pass(Duration::from_millis(4_990));
            hand.nothing_sent();
        }
        hand.pass(Duration::from_millis(5_100));
        assert!(read.loss().is_none());
        assert_eq!(write.loss().is_some(), !left);
        let (op, command) = hand.take("release");
        let Command::Release { field, share: Share::NOTHING, .. } = &command else {
            panic!("{command:?}")
        };
        assert_eq!(*field, to);
        hand.done(op, freed());
        hand.nothing_sent();
    }
}

#[test]
fn an_upgrade_looks_twice_whether_the_others_are_dead() {
    let mut hand = Hand::new();
    let (_, read) = hold(&mut hand, 1, Share::READ);
    let request = wish(&mut hand, 1, Share::ONE, Some(read.id));
    let (op, _) = hand.take("upgrade");
    let others = [OTHER.to_owned()];
    hand.done(op, beside(false, &others));
    let (op, command) = hand.take("upgrade");
    assert_eq!(told(&command), others);
    hand.done(op, beside(false, &others));
    assert!(matches!(hand.answer(request), Answer::NotGranted));
    hand.nothing_sent();
    assert!(read.is_held(hand.now));
}

/// The answer to an upgrade was lost, and its undo comes later than the next upgrade, or is refused.
#[test]
fn an_upgrade_that_is_not_undone_yet_does_not_end_the_read() {
    let mut hand = Hand::new();
    let (_, read) = hold(&mut hand, 1, Share::READ);
    let request = wish(&mut hand, 1, Share::ONE, Some(read.id));
    let (op, _) = hand.take("upgrade");
    hand.unknown(op);
    hand.take("release");
    hand.pass(Duration::from_millis(600));
    for _ in 0..2 {
        let (op, _) = hand.take("upgrade");
        hand.done(op, beside(false, &[]));
    }
    assert!(matches!(hand.answer(request), Answer::NotGranted));
    hand.nothing_sent();
    assert!(read.is_held(hand.now));
}

/// After a restart the server knows no scripts, so that an undo may be refused at first, and the next
/// upgrade be executed before it; and before the read was confirmed.
#[test]
fn after_a_restart_an_upgrade_is_sent_before_the_undo_of_the_last_one_is_answered() {
    let mut hand = Hand::new();
    let (_, read) = hold(&mut hand, 1, Share::READ);
    let request = wish(&mut hand, 1, Share::ONE, Some(read.id));
    let (op, _) = hand.take("upgrade");
    hand.cut();
    hand.unknown(op);
    let info = ServerInfo { run_id: "restarted".to_owned(), ..ServerInfo::default() };
    hand.event(Event::Up(ServerId::ONLY, info));
    assert_eq!(hand.labels(), ["time", "release"]);
    let (time, _) = hand.sent.remove(0);
    hand.done(time, Body::Pong);
    assert_eq!(hand.labels(), ["release", "upgrade", "renew"]);
    let (op, _) = hand.sent.remove(1);
    hand.done(op, beside(false, &[]));
    let (op, _) = hand.sent.remove(2);
    hand.done(op, beside(false, &[]));
    assert!(matches!(hand.answer(request), Answer::NotGranted));
    assert!(read.is_held(hand.now));
}

#[test]
fn the_loss_of_the_read_ends_an_upgrade() {
    let mut hand = Hand::new();
    let (_, read) = hold(&mut hand, 1, Share::READ);
    let request = wish(&mut hand, 1, Share::ONE, Some(read.id));
    let (op, _) = hand.take("upgrade");
    hand.done(op, Body::Acquire(Acquired::Gone));
    let answer = hand.answer(request);
    assert!(matches!(answer, Answer::Failed(Error::Lost { .. })), "{answer:?}");
    assert!(!read.is_held(hand.now));
}

/// A writer names the readers that it was told about, and tries at once while that removes some.
#[test]
fn a_writer_goes_on_while_it_removes_dead_readers() {
    let mut hand = Hand::new();
    let request = wish(&mut hand, 1, Share::ONE, None);
    let others = [OTHER.to_owned()];
    let (op, command) = hand.take("acquire");
    assert!(told(&command).is_empty());
    hand.done(op, read_by(&others, false));
    hand.confirm_subscriptions();
    let (op, command) = hand.take("acquire");
    assert_eq!(told(&command), others);
    hand.done(op, read_by(&others, true));
    let (op, command) = hand.take("acquire");
    assert_eq!(told(&command), others);
    hand.done(op, read_by(&others, false));
    hand.nothing_sent();
    hand.is_open(request);
}

/// A `try_write`, which does not wait.
fn try_write(hand: &mut Hand, owner: u64) -> RequestId {
    hand.wish(Acquire {
        request: RequestId(0),
        name: LockName::new("n").unwrap().of_kind(Kind::ReadWrite),
        owner: OwnerKey::from_test(owner),
        share: Share::ONE,
        lease: watched(),
        wait: Wait::Once,
        max_hold: None,
        at_least: None,
        upgrades: None,
    })
}

/// Dead readers would refuse it for as long as others keep their hash.
#[test]
fn a_try_looks_twice_whether_the_readers_are_dead() {
    let mut hand = Hand::new();
    // Once more of the same owner, to which what the first one heard is of no use.
    for granted in [false, true] {
        let request = try_write(&mut hand, 1);
        let others = [OTHER.to_owned()];
        let refused = || {
            let others = Some(Others { removed: false, fields: others.to_vec() });
            let (pttl, holder) = (20_000, OTHER.to_owned());
            Body::Acquire(Acquired::Held { pttl, holder, place: None, others })
        };
        let (op, command) = hand.take("acquire");
        assert!(told(&command).is_empty());
        hand.done(op, refused());
        let (op, command) = hand.take("acquire");
        assert_eq!(told(&command), others);
        match granted {
            true => {
                hand.done(op, grant(5));
                hand.granted(request);
            }
            false => {
                hand.done(op, refused());
                assert!(matches!(hand.answer(request), Answer::NotGranted));
                hand.nothing_sent();
            }
        }
    }
}

/// Of a writer alone the timeout key is absent, and is not named, so that its slot may move.
#[test]
fn a_renewal_says_what_the_hold_has() {
    let mut hand = Hand::new();
    let (write_level, write) = hold(&mut hand, 1, Share::ONE);
    hand.event(Event::PickedUp { request: write_level });
    let renews = |hand: &mut Hand| {
        hand.pass(Duration::from_secs(10));
        let (op, command) = hand.take("renew");
        let Command::Renew { ref holds, .. } = command else { panic!("{command:?}") };
        let share = holds[0].share;
        let Call::Script(call) = command.to_call() else { panic!("no script") };
        hand.done(op, Body::Renew(Some(vec![Renewed::Yes])));
        (share, call.keys.iter().nth(1).map(str::to_owned).unwrap())
    };
    assert_eq!(renews(&mut hand), (Share::ONE, "n".to_owned()));
    let request = downgrade(&mut hand, &write, write_level);
    let (op, _) = hand.take("downgrade");
    // On its way.
    let (share, key) = renews(&mut hand);
    assert!(share.shared > 0 && key.ends_with(":rwlock_timeout:1"), "{share:?} {key}");
    hand.done(op, Body::Release(Released::CountSet));
    hand.answer(request);
    assert_eq!(renews(&mut hand).0, Share::READ);
}

fn downgrade(hand: &mut Hand, cell: &HoldCell, level: RequestId) -> RequestId {
    hand.requests += 1;
    let request = RequestId(hand.requests);
    hand.event(Event::Downgrade { hold: cell.id, level, request });
    request
}

#[test]
fn the_last_write_that_is_downgraded_lets_readers_in() {
    let mut hand = Hand::new();
    let (first, write) = hold(&mut hand, 1, Share::ONE);
    let second = wish(&mut hand, 1, Share::ONE, None);
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(0));
    hand.granted(second);

    let request = downgrade(&mut hand, &write, first);
    let (op, command) = hand.take("release");
    let both = Share { exclusive: 1, shared: 1 };
    assert!(matches!(command, Command::Release { share, .. } if share == both), "it still writes");
    hand.done(op, Body::Release(Released::CountSet));
    assert!(matches!(hand.answer(request), Answer::Done));

    let request = downgrade(&mut hand, &write, second);
    let (op, command) = hand.take("downgrade");
    let reads = Share { exclusive: 0, shared: 2 };
    assert!(matches!(command, Command::Downgrade { share, .. } if share == reads), "{command:?}");
    hand.done(op, Body::Release(Released::CountSet));
    assert!(matches!(hand.answer(request), Answer::Done));

    let request = wish(&mut hand, 1, Share::ONE, None);
    assert!(matches!(hand.answer(request), Answer::Failed(Error::WouldDeadlock { .. })));
}

#[test]
fn with_redisson_a_downgraded_lease_is_as_long_as_its_watchdog_time() {
    let profile = WireProfile::Redisson;
    let mut hand = Hand::of_config(Config { profile, ..config(CLIENT) });
    hand.connect("run-1");
    hand.confirm_subscriptions();
    let request = hand.wish(Acquire {
        request: RequestId(0),
        name: LockName::new("n").unwrap().of_kind(Kind::ReadWrite),
        owner: OwnerKey::from_test(1),
        share: Share::ONE,
        lease: fixed(Duration::from_secs(3_600)),
        wait: Wait::Forever,
        max_hold: None,
        at_least: None,
        upgrades: None,
    });
    let (op, _) = hand.take("acquire");
    hand.done(op, grant(5));
    let write = hand.granted(request);
    downgrade(&mut hand, &write, request);
    let (_, command) = hand.take("downgrade");
    let Command::Downgrade { lease, .. } = command else { panic!("{command:?}") };
    assert_eq!(lease.duration(), Config::DEFAULT_REDISSON_WATCHDOG);
    let half = Config::DEFAULT_REDISSON_WATCHDOG / 2;
    assert!(write.is_held(hand.now.plus(half)) && !write.is_held(hand.now.plus(2 * half)));
}

/// A reader has a key of its own, a writer has only the lock; what a clean-up owes names all.
#[test]
fn the_release_of_a_writer_names_the_lock_alone_while_its_slot_moves() {
    for (share, alone) in [(Share::ONE, true), (Share::READ, false)] {
        let mut hand = Hand::new();
        let (request, cell) = hold(&mut hand, 1, share);
        let names = |command: &Command| match command {
            Command::Release { announce, .. } => (announce.line, announce.alone),
            other => panic!("{other:?}"),
        };
        let release = hand.release(&cell, request);
        let (op, command) = hand.take("release");
        assert_eq!(names(&command), (true, false));
        hand.refused(op, FailureKind::SlotMoving);
        let (op, command) = hand.take("release");
        assert_eq!(names(&command), (false, alone), "{share:?}");
        hand.done(op, freed());
        assert!(matches!(hand.answer(release), Answer::Done));
        let (op, command) = hand.take("release");
        assert_eq!(names(&command), (true, false), "owed");
        hand.refused(op, FailureKind::SlotMoving);
        let (op, command) = hand.take("release");
        assert_eq!(names(&command), (false, alone), "{share:?}");
        hand.done(op, Body::Release(Released::Gone));
    }
}
