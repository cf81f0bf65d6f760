//! Random sequences of calls: the model, the embedded Lua and a real Redis must not differ in
//! anything.

use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use crate::backend::Script;
use crate::backend::redis::tests::redis_server::has_redis_7;
use crate::base::random::Random;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::lives;
use crate::kinds::script_tests::mutants::be_quiet_when_asked;
use crate::kinds::script_tests::mutants::fails;
use crate::kinds::script_tests::mutants::print_figures;
use crate::kinds::script_tests::mutator::mutants;
use crate::kinds::script_tests::text::parse_call;
use crate::kinds::script_tests::together::Together;

/// Of a usual test run; `SEQUENCES`, `STEPS` and `SEED` ask for others.
const SEQUENCES: u64 = 2_000;
const STEPS: u64 = 8;

/// Whole units of time, and a little, so that what runs out has surely run out. After the first,
/// reservations have run out; after four of them in a row, lines.
const PASSES_MS: [i64; 4] = [3_100, 1_001_000, 3_001_000, 6_001_000];

/// Calls with any arguments, on any values.
pub(crate) struct Calls {
    /// One of them.
    pub(crate) call: fn(&mut Random) -> String,
    /// What another program may put under the keys.
    pub(crate) plants: &'static [&'static str],
    /// Which keys may vanish.
    pub(crate) removed: &'static [&'static str],
}

impl Random {
    pub(crate) fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.index(choices.len())]
    }
}

pub(crate) fn check(suite: &'static Suite) {
    if !has_redis_7("sharded pub/sub") {
        return;
    }
    let first = setting("SEED").unwrap_or_else(seed_of_today);
    let (sequences, steps) =
        (setting("SEQUENCES").unwrap_or(SEQUENCES), setting("STEPS").unwrap_or(STEPS));
    println!("SEED={first}");
    let mut together = Together::start(suite);
    for sequence in 0..sequences {
        run_sequence(&mut together, first.wrapping_add(sequence), steps);
    }
    let (calls, grants) = (sequences * steps, together.grants);
    assert!(grants > 0 || !suite.has_holds, "nothing was granted");
    let figures = format!(
        "\"sequences\":{sequences},\"calls\":{calls},\"compared\":3,\"grants\":{grants},\"seed\":{first}"
    );
    print_figures(suite, "scripts", &figures);
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed_of_today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() * 1_000_000
}

fn run_sequence(together: &mut Together, seed: u64, steps: u64) {
    match seed % 2 {
        _ if !together.suite().has_holds => any_calls(together, seed, steps),
        0 => any_calls(together, seed, steps),
        _ => lives::run_sequence(together, seed, steps),
    }
}

fn any_calls(together: &mut Together, seed: u64, length: u64) {
    together.begin(format!("SEED={seed}, a sequence of calls"));
    let calls = &together.suite().calls;
    let mut random = Random(seed);
    for _ in 0..length {
        match random.below(10) {
            0..=2 => together.plant(random.pick(calls.plants)),
            3 => together.pass(PASSES_MS[random.index(PASSES_MS.len())]),
            4 => together.remove(random.pick(calls.removed)),
            _ => {}
        }
        let call = parse_call(together.suite(), &(calls.call)(&mut random));
        together.call(&call);
    }
}

/// The model notices deliberate mistakes in the scripts.
pub(crate) fn check_mistakes(suite: &'static Suite) {
    be_quiet_when_asked();
    assert!(!suite.mistakes.is_empty(), "no mistakes");
    let mut missed = Vec::new();
    for script in (suite.scripts)() {
        assert!(!noticed(suite, script, 60), "{} differs from the model as it is", script.name);
    }
    for &(name, right, wrong) in suite.mistakes {
        let right = right.replace("\\n", "\n");
        let script = suite.script(name);
        assert!(script.source.contains(&right), "{name} has no `{right}`");
        let source = script.source.replacen(&right, wrong, 1).leak();
        let broken = Box::leak(Box::new(Script { name: script.name, source }));
        if !noticed(suite, broken, 300) {
            missed.push(format!("{name}: `{wrong}` for `{right}`"));
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:#?}");
}

/// Every mutant of every script, with nothing but the model to notice it. Some it cannot: those
/// that matter only when Redis refuses a command, and those that do the same.
pub(crate) fn check_mutants(suite: &'static Suite) {
    be_quiet_when_asked();
    let (mut number, mut killed) = (0, 0);
    for script in (suite.scripts)() {
        assert!(!noticed(suite, script, 100), "{} differs from the model as it is", script.name);
        for mutant in mutants(script) {
            number += 1;
            let mutated = Script { name: script.name, source: mutant.source.leak() };
            killed += u32::from(noticed(suite, Box::leak(Box::new(mutated)), 100));
        }
    }
    let figures = format!("\"mutants\":{number},\"noticed_by_the_model\":{killed}");
    print_figures(suite, "scripts-mutants", &figures);
}

/// Whether sequences differ between the model and this text, in the embedded Lua.
fn noticed(suite: &'static Suite, script: &'static Script, sequences: u64) -> bool {
    let mut together = Together::instead(suite, script);
    (0..sequences).any(|seed| fails(|| run_sequence(&mut together, seed, 50)))
}
