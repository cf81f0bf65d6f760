//! Every mutant of every script must be noticed by the checks of the scripts, in the embedded Lua. Those that do the same
//! as the script are listed, each with the reason, in `proof/lua-equivalent.txt`; the list is exact.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use crate::backend::Script;
use crate::kinds::command::PERMISSIONS;
use crate::kinds::reentrant::ALL;
use crate::kinds::reentrant::script_tests::edges;
use crate::kinds::reentrant::script_tests::faults;
use crate::kinds::reentrant::script_tests::memory::Memory;
use crate::kinds::reentrant::script_tests::mutator::mutants;
use crate::kinds::reentrant::script_tests::rules;
use crate::kinds::reentrant::script_tests::tables::CHECKS;

const EQUIVALENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proof/lua-equivalent.txt");

thread_local! {
    /// A check that fails is what is hoped for: nothing to print.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Whether a check fails; what it says then is not printed.
pub(super) fn fails(check: impl FnOnce()) -> bool {
    QUIET.set(true);
    let failed = catch_unwind(AssertUnwindSafe(check)).is_err();
    QUIET.set(false);
    failed
}

/// Panics of this thread are not printed while it looks for mutants.
pub(super) fn be_quiet_when_asked() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !QUIET.get() {
            before(info);
        }
    }));
}

/// The first check that notices that another text runs in place of the script.
fn noticed(script: &'static Script) -> Option<&'static str> {
    let fails = |check: &dyn Fn(&mut Memory)| {
        let mut memory = Memory::start();
        memory.instead = Some(script);
        fails(|| check(&mut memory))
    };
    let word = script.name.rsplit('/').next().unwrap_or_default();
    // The table of its own first.
    let (own, others): (Vec<_>, Vec<_>) = CHECKS.iter().partition(|(name, _)| *name == word);
    for (name, check) in own.into_iter().chain(others) {
        if fails(&|memory| check(memory)) {
            return Some(name);
        }
    }
    if let Some((name, _)) = edges::CHECKS.iter().find(|(_, check)| fails(check)) {
        return Some(name);
    }
    if fails(&faults::check) {
        return Some("faults");
    }
    fails(&rules::check_clock_step).then_some("clock step")
}

/// Change and reason of each mutant that does the same as its script.
fn equivalent() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(EQUIVALENT).unwrap_or_else(|error| panic!("{EQUIVALENT}: {error}"));
    let mut list = BTreeMap::new();
    for entry in
        text.split("\n\n").map(str::trim).filter(|entry| !entry.is_empty() && !entry.starts_with('#'))
    {
        let (change, reason) = entry.split_once('\n').unwrap_or_else(|| panic!("no reason: {entry}"));
        assert!(list.insert(change.to_owned(), reason.to_owned()).is_none(), "twice: {change}");
    }
    list
}

#[test]
#[cfg_attr(not(repository), ignore = "the list of equivalent mutants is in the repository alone")]
fn every_mutant_of_the_scripts_is_noticed() {
    be_quiet_when_asked();
    let listed = equivalent();
    let (mut killed, mut by_check) = (0_usize, BTreeMap::<&str, usize>::new());
    let mut survivors = BTreeSet::new();
    for script in ALL.into_iter().chain([&PERMISSIONS]) {
        assert_eq!(noticed(script), None, "{} fails as it is", script.name);
        for mutant in mutants(script) {
            let source: &'static str = Box::leak(mutant.source.into_boxed_str());
            let mutated = Box::leak(Box::new(Script { name: script.name, source }));
            match noticed(mutated) {
                Some(check) => {
                    killed += 1;
                    *by_check.entry(check).or_default() += 1;
                }
                None => drop(survivors.insert(mutant.change)),
            }
        }
    }
    println!("noticed by: {by_check:?}");
    let new: Vec<&String> = survivors.iter().filter(|change| !listed.contains_key(*change)).collect();
    let gone: Vec<&String> = listed.keys().filter(|change| !survivors.contains(*change)).collect();
    println!(
        "{{\"part\":\"lua-mutants\",\"mutants\":{},\"killed\":{killed},\"equivalent\":{},\"survived\":{}}}",
        killed + survivors.len(),
        listed.len() - gone.len(),
        new.len()
    );
    let lines = |list: &[&String]| list.iter().map(|line| format!("  {line}\n")).collect::<String>();
    assert!(new.is_empty(), "survived:\n{}", lines(&new));
    assert!(gone.is_empty(), "listed as equivalent, but noticed or not there any more:\n{}", lines(&gone));
}
