//! `cargo xtask model`: explores every scope, then breaks each rule. With words of a rule: its
//! counterexample; with those of a scope: that scope. With `--large`: the scopes that take too long
//! for continuous integration.

use std::process::ExitCode;
use std::time::Instant;

use proof_model::explore::Counterexample;
use proof_model::table::Model;
use proof_model::table::Named;
use proof_model::table::large;
use proof_model::table::models;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.join(" ").as_str() {
        "" => all(&models()),
        "--large" => all(&large()),
        words => some(words),
    }
}

/// The rules and scopes with these words.
fn some(words: &str) -> ExitCode {
    let mut any = false;
    for model in models().iter().chain(&large()) {
        for rule in model.rules.iter().filter(|rule| rule.name.contains(words)) {
            any = true;
            println!("{}:", rule.name);
            match rule.explore().counterexample {
                Some(counterexample) => show(&counterexample),
                None => println!("  breaks nothing"),
            }
        }
        for scope in model.scopes.iter().filter(|scope| scope.name.contains(words)) {
            any = true;
            explore(model.name, scope);
        }
    }
    if any { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explores a scope, and says what came of it: how many states, and whether all was well.
#[expect(clippy::disallowed_methods, reason = "a development program that says how long it took")]
fn explore(model: &str, scope: &Named) -> (usize, bool) {
    let began = Instant::now();
    let outcome = scope.explore();
    let good = outcome.complete && outcome.counterexample.is_none();
    let word = if good { "every promise kept" } else { "FAILED" };
    println!(
        "{model:<8} {:<18} {:>8} states, {:>2} steps deep, {:>4.1} s: {word}",
        scope.name,
        outcome.states,
        outcome.depth,
        began.elapsed().as_secs_f64()
    );
    if let Some(counterexample) = &outcome.counterexample {
        show(counterexample);
    }
    (outcome.states, good)
}

#[expect(clippy::disallowed_methods, reason = "a development program that says how long it took")]
fn all(models: &[Model]) -> ExitCode {
    let started = Instant::now();
    let (mut scopes, mut states, mut bad) = (0, 0, 0);
    for model in models {
        for scope in &model.scopes {
            let (seen, good) = explore(model.name, scope);
            scopes += 1;
            states += seen;
            bad += usize::from(!good);
        }
    }
    let rules: Vec<_> = models.iter().flat_map(|model| &model.rules).collect();
    let mut found = 0;
    for rule in &rules {
        match rule.explore().counterexample {
            Some(counterexample) => {
                found += 1;
                let (steps, broken) = (counterexample.steps.len(), counterexample.broken);
                println!("{:<70} after {steps:>2} steps: {broken}", rule.name);
            }
            None => println!("{:<70} BREAKS NOTHING", rule.name),
        }
    }
    let (rules, seconds) = (rules.len(), started.elapsed().as_secs());
    println!(
        "{{\"part\":\"model\",\"scopes\":{scopes},\"states\":{states},\"rules\":{rules},\"counterexamples\":{found},\"failed\":{},\"seconds\":{seconds}}}",
        bad + rules - found,
    );
    if bad == 0 && found == rules { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(counterexample: &Counterexample) {
    for (number, step) in counterexample.steps.iter().enumerate() {
        println!("  {:>2}. {step}", number + 1);
    }
    println!("  broken: {}", counterexample.broken);
}
