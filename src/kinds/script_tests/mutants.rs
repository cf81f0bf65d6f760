//! Every mutant of every script must be noticed by the checks of the scripts, in the embedded Lua.
//! Those that do the same as the script are listed, each with the reason, in the file
//! [`Suite::equivalent`]; the list is exact.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use crate::backend::Script;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::faults;
use crate::kinds::script_tests::last_word;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::mutator::mutants;

thread_local! {
    /// A check that fails is what is hoped for: nothing to print.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Whether a check fails; what it says then is not printed.
pub(crate) fn fails(check: impl FnOnce()) -> bool {
    QUIET.set(true);
    let failed = catch_unwind(AssertUnwindSafe(check)).is_err();
    QUIET.set(false);
    failed
}

/// Panics of this thread are not printed while it looks for mutants.
pub(crate) fn be_quiet_when_asked() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !QUIET.get() {
            before(info);
        }
    }));
}

/// The first check that notices that another text runs in place of the script.
fn noticed(suite: &'static Suite, script: &'static Script) -> Option<&'static str> {
    let fails = |check: &dyn Fn(&mut Memory)| {
        let mut memory = Memory::start(suite);
        memory.instead = Some(script);
        fails(|| check(&mut memory))
    };
    // The table of its own first.
    let own = |(name, _): &&(&str, _)| *name == last_word(script);
    let (own, others): (Vec<_>, Vec<_>) = suite.checks.iter().partition(own);
    for (name, check) in own.into_iter().chain(others) {
        if fails(&|memory| check(memory)) {
            return Some(name);
        }
    }
    if let Some((name, _)) = suite.edges.iter().find(|(_, check)| fails(check)) {
        return Some(name);
    }
    fails(&faults::check).then_some("faults")
}

/// Change and reason of each mutant that does the same as its script.
fn equivalent(file: &str) -> BTreeMap<String, String> {
    let file = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut list = BTreeMap::new();
    for entry in text
        .split("\n\n")
        .map(str::trim)
        .filter(|entry| !entry.is_empty() && !entry.starts_with('#'))
    {
        let (change, reason) =
            entry.split_once('\n').unwrap_or_else(|| panic!("no reason: {entry}"));
        assert!(list.insert(change.to_owned(), reason.to_owned()).is_none(), "twice: {change}");
    }
    list
}

/// All mutants take minutes. Without `ALL_MUTANTS` in the environment, one of so many is tried.
const SAMPLE: usize = 8;

/// With `SCRIPT=acquire` in the environment, only the mutants of that script, and all of them.
pub(crate) fn check(suite: &'static Suite) {
    be_quiet_when_asked();
    let only = std::env::var("SCRIPT").ok();
    let all = only.is_some() || std::env::var_os("ALL_MUTANTS").is_some();
    let is_asked = |name: &str| {
        let word = name.rsplit('/').next().unwrap_or_default();
        only.as_ref().is_none_or(|only| only == word)
    };
    let mut listed = equivalent(suite.equivalent);
    listed.retain(|change, _| change.split(':').next().is_some_and(is_asked));
    // Of those that are left out it is only known that they are there.
    let mut left_out = BTreeSet::new();
    let (mut killed, mut by_check) = (0_usize, BTreeMap::<&str, usize>::new());
    let mut survivors = BTreeSet::new();
    let scripts = (suite.scripts)().iter().chain(suite.others);
    for script in scripts.filter(|script| is_asked(script.name)) {
        assert_eq!(noticed(suite, script), None, "{} fails as it is", script.name);
        let is_own = |change: &str| {
            let line = change.split_once(": ").map_or(change, |(_, rest)| rest);
            (suite.is_own)(script.name, line.split(" =>").next().unwrap_or(line))
        };
        let own = mutants(script).into_iter().filter(|mutant| is_own(&mutant.change));
        for (at, mutant) in own.enumerate() {
            if !all && at % SAMPLE != 0 {
                left_out.insert(mutant.change);
                continue;
            }
            let source: &'static str = Box::leak(mutant.source.into_boxed_str());
            let mutated = Box::leak(Box::new(Script { name: script.name, source }));
            match noticed(suite, mutated) {
                Some(check) => {
                    killed += 1;
                    *by_check.entry(check).or_default() += 1;
                }
                None => {
                    println!("survived: {}", mutant.change);
                    survivors.insert(mutant.change);
                }
            }
        }
    }
    println!("noticed by: {by_check:?}");
    let new: Vec<&String> =
        survivors.iter().filter(|change| !listed.contains_key(*change)).collect();
    let is_gone = |change: &&String| !survivors.contains(*change) && !left_out.contains(*change);
    let gone: Vec<&String> = listed.keys().filter(is_gone).collect();
    let figures = format!(
        "\"mutants\":{},\"killed\":{killed},\"equivalent\":{},\"survived\":{}",
        killed + survivors.len(),
        listed.len() - gone.len(),
        new.len()
    );
    print_figures(suite, "lua-mutants", &figures);
    let lines =
        |list: &[&String]| list.iter().map(|line| format!("  {line}\n")).collect::<String>();
    assert!(killed > 0, "no mutants");
    assert!(new.is_empty(), "survived:\n{}", lines(&new));
    assert!(
        gone.is_empty(),
        "listed as equivalent, but noticed or not there any more:\n{}",
        lines(&gone)
    );
}

/// As a line of JSON that the report on reliability reads; for kinds that are for tests only, as a
/// line for people.
pub(crate) fn print_figures(suite: &Suite, part: &str, figures: &str) {
    if suite.is_reported {
        println!("{{\"part\":\"{part}\",\"kind\":\"{:?}\",{figures}}}", suite.kind);
    } else {
        println!("{part} of {:?}: {figures}", suite.kind);
    }
}
