//! What a failure needs: everything else is left out for as long as the run fails in the same way.

use std::collections::BTreeSet;

use crate::sim::plan::Mask;
use crate::sim::plan::Seed;
use crate::sim::run;
use crate::sim::trace::Trace;

/// How many runs that may take.
const RUNS: usize = 3_000;

/// Lines of a trace that are shown.
const LINES: usize = 150;

/// One thing that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Client(usize),
    Nemesis(u64),
    Step(usize, usize, u64),
    Fault(u64),
}

fn items(done: &Mask) -> Vec<Item> {
    let clients = done.clients.iter().map(|client| Item::Client(*client));
    let nemeses = done.nemeses.iter().map(|number| Item::Nemesis(*number));
    let steps = done.steps.iter().map(|(client, task, step)| Item::Step(*client, *task, *step));
    let faults = done.faults.iter().map(|number| Item::Fault(*number));
    clients.chain(nemeses).chain(faults).chain(steps).collect()
}

fn mask(left_out: &BTreeSet<Item>) -> Mask {
    let mut mask = Mask::default();
    for item in left_out {
        match *item {
            Item::Client(client) => drop(mask.clients.insert(client)),
            Item::Nemesis(number) => drop(mask.nemeses.insert(number)),
            Item::Step(client, task, step) => drop(mask.steps.insert((client, task, step))),
            Item::Fault(number) => drop(mask.faults.insert(number)),
        }
    }
    mask
}

/// The property that a failure is about.
fn kind(failure: &str) -> &str {
    failure.split(':').next().unwrap_or(failure)
}

/// The smallest run that was found, as a timeline.
pub(super) fn smallest(seed: Seed, failure: &str) -> String {
    // A panic prints its words each time; a thousand of them help nobody.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (left_out, runs) = shrink(seed, kind(failure));
    std::panic::set_hook(hook);
    let last = run(seed, &mask(&left_out), Trace::kept());
    let left = items(&last.done).len();
    let lines = last.trace.lines();
    let shown = &lines[lines.len().saturating_sub(LINES)..];
    let cut = if shown.len() < lines.len() { "  …\n" } else { "" };
    let failure = last.result.err().unwrap_or_else(|| "does not fail any more".to_owned());
    format!(
        "seed {}, made smaller in {runs} runs; {left} steps and faults are left of {}:\n{cut}{}\n{}{failure}",
        seed.number,
        left + left_out.len(),
        shown.join("\n"),
        last.state
    )
}

/// Leaves out halves, then quarters, and so on, whatever the failure can do without.
fn shrink(seed: Seed, wanted: &str) -> (BTreeSet<Item>, usize) {
    let mut left_out = BTreeSet::new();
    let mut runs = 0;
    let first = run(seed, &Mask::default(), Trace::off());
    let mut left = items(&first.done);
    let mut size = left.len().div_ceil(2).max(1);
    while runs < RUNS {
        let mut at = 0;
        let mut smaller = false;
        while at < left.len() && runs < RUNS {
            let end = (at + size).min(left.len());
            let mut attempt: BTreeSet<Item> = left_out.clone();
            attempt.extend(&left[at..end]);
            runs += 1;
            let tried = run(seed, &mask(&attempt), Trace::off());
            if tried.result.as_ref().is_err_and(|failure| kind(failure) == wanted) {
                // Other things may happen now; what is still there may be left out as well.
                left = items(&tried.done);
                left_out = attempt;
                smaller = true;
            } else {
                at = end;
            }
        }
        if size == 1 && !smaller {
            break;
        }
        size = size.div_ceil(2).max(1);
    }
    (left_out, runs)
}
