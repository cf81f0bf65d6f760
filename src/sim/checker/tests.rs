//! That the checker fails where it must, by what the kind of lock allows.

use std::sync::Arc;
use std::time::Duration;

use crate::base::cell::HoldCell;
use crate::base::clock::Moment;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::sim::chance::Chance;
use crate::sim::chance::Stream;
use crate::sim::checker::Checker;
use crate::sim::checker::Hold;
use crate::sim::kinds::Found;
use crate::sim::kinds::Place;
use crate::sim::plan::Plan;
use crate::sim::plan::START;

/// What is allowed at once, of each kind.
const TABLE: [(Kind, u64); 2] = [(Kind::Reentrant, 1), (Kind::Pair, 2)];

fn name(kind: Kind) -> LockName {
    LockName::new("n").unwrap().of_kind(kind)
}

/// A checker of one client that believes in so many holds.
fn believing(kind: Kind, holds: u64) -> Checker {
    let mut plan = Plan::draw(&mut Chance::new(1, Stream::Plan, [0; 3]));
    plan.drift = 0;
    let mut checker = Checker::new(&plan, vec!["client".to_owned()], &[name(kind)]);
    for id in 1..=holds {
        let until = START.plus(Duration::from_secs(1));
        let cell = Some(Arc::new(HoldCell::new(name(kind), id, id, until)));
        checker.holds.insert((0, id), Hold { cell, token: Some(id), ..Hold::default() });
        checker.live.insert((0, id));
    }
    checker
}

#[test]
fn one_holder_more_than_the_kind_allows_is_a_violation() {
    for (kind, most) in TABLE {
        for holds in 0..=most + 2 {
            let found = believing(kind, holds).look_for_overlaps(START);
            assert_eq!(found.is_err(), holds > most, "{kind:?}, {holds}: {found:?}");
            assert!(found.err().is_none_or(|words| words.starts_with("P1:")));
        }
    }
}

#[test]
fn a_write_is_allowed_beside_the_read_that_it_upgrades_and_no_other() {
    let mut checker = believing(Kind::ReadWrite, 0);
    let read = |id| Place { exclusive: false, ..Place::of(format!("client:{id}"), 1) };
    let write = Place::of("client:2".to_owned(), 1);
    let name = name(Kind::ReadWrite);
    let key = |holds: &[&Place]| Found {
        name: name.clone(),
        pttl: Some(900),
        holds: holds.iter().map(|place| (*place).clone()).collect(),
    };
    assert!(checker.check_holds(&key(&[&read(1), &write])).is_err());
    checker.upgraded.insert((0, 2), (0, 1));
    assert_eq!(checker.check_holds(&key(&[&read(1), &write])), Ok(()));
    assert!(checker.check_holds(&key(&[&read(1), &write, &read(3)])).is_err());
    assert!(checker.check_holds(&key(&[&read(3), &write])).is_err());
}

#[test]
fn a_holder_that_was_robbed_or_has_run_out_does_not_count() {
    for (kind, most) in TABLE {
        let mut robbed = believing(kind, most + 1);
        robbed.breach(START, "client:1", "DEL");
        assert_eq!(robbed.look_for_overlaps(START), Ok(()), "{kind:?}");
        let later = START.plus(Duration::from_secs(2));
        assert_eq!(believing(kind, most + 1).look_for_overlaps(later), Ok(()), "{kind:?}");
    }
}

#[test]
fn one_hold_more_in_a_key_than_the_kind_allows_is_a_violation() {
    for (kind, most) in TABLE {
        for number in 0..=most + 2 {
            let holds = (0..number).map(|id| Place::of(format!("client:{id}"), 1)).collect();
            let found =
                believing(kind, 0).check_holds(&Found { name: name(kind), pttl: Some(1), holds });
            assert_eq!(found.is_err(), number > most, "{kind:?}, {number}: {found:?}");
        }
    }
}

#[test]
fn a_holder_without_its_key_is_a_violation() {
    for (kind, _) in TABLE {
        let mut checker = believing(kind, 1);
        let found = checker.look(START, &[], &[]);
        assert!(found.is_err_and(|words| words.starts_with("P1:")), "{kind:?}");
        let none = believing(kind, 0).look(Moment::ZERO, &[], &[]);
        assert_eq!(none, Ok(()), "{kind:?}");
    }
}

/// A wait may end while the last of the holds is being given up: the others are valid, and this one
/// had its guard until then.
#[test]
fn holds_that_fill_a_name_are_valid_or_had_guards_until_then() {
    let later = START.plus(Duration::from_millis(1));
    for (kind, most) in TABLE {
        let mut checker = believing(kind, most);
        let full = |checker: &Checker, until| checker.had_all_until(until, later, 0, "n");
        checker.holds.values_mut().for_each(|hold| hold.name = Some(name(kind)));
        assert!(full(&checker, START), "{kind:?}");
        let last = checker.holds.get_mut(&(0, most)).unwrap();
        last.cell.as_ref().unwrap().release();
        assert!(!full(&checker, START), "{kind:?}");
        checker.holds.get_mut(&(0, most)).unwrap().guard_end = START;
        assert!(full(&checker, START) && !full(&checker, later), "{kind:?}");
    }
}

#[test]
fn a_reservation_is_nobodys_hold_and_stands_alone() {
    let reservation = |id| Place::of(format!("client:{id}"), 0);
    for (kind, most) in TABLE {
        let key = |holds| Found { name: name(kind), pttl: Some(900), holds };
        let empty = believing(kind, 0);
        let alone = key([reservation(1)].into_iter().collect());
        assert_eq!(empty.check_holds(&alone), Ok(()), "{kind:?}");
        let beside = [reservation(1), Place::of("client:2".to_owned(), 1)].into_iter().collect();
        let found = empty.check_holds(&key(beside));
        assert!(found.is_err_and(|words| words.starts_with("P1:")), "{kind:?} {most}");
        let mut checker = believing(kind, 1);
        let found = checker.look(START, &[key([reservation(1)].into_iter().collect())], &[]);
        let words = found.expect_err("a reservation is no hold");
        assert!(words.contains("is a reservation"), "{kind:?}: {words}");
    }
}
