//! `cargo xtask model`: explores every scope, then breaks each rule. With words of a rule: its counterexample.

use std::process::ExitCode;
use std::time::Instant;

use proof_model::explore::Counterexample;
use proof_model::table::models;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() {
        return all();
    }
    let words = words.join(" ");
    let mut any = false;
    for rule in models().iter().flat_map(|model| &model.rules).filter(|rule| rule.name.contains(&words)) {
        any = true;
        println!("{}:", rule.name);
        match rule.explore().counterexample {
            Some(counterexample) => show(&counterexample),
            None => println!("  breaks nothing"),
        }
    }
    if any { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::disallowed_methods, reason = "a development program that says how long it took")]
fn all() -> ExitCode {
    let started = Instant::now();
    let models = models();
    let scopes: Vec<_> =
        models.iter().flat_map(|model| model.scopes.iter().map(|scope| (model.name, scope))).collect();
    let (mut states, mut bad) = (0, 0);
    for (model, scope) in &scopes {
        let began = Instant::now();
        let outcome = scope.explore();
        states += outcome.states;
        let good = outcome.complete && outcome.counterexample.is_none();
        bad += usize::from(!good);
        let word = if good { "every promise kept" } else { "FAILED" };
        println!(
            "{model:<8} {:<14} {:>8} states, {:>2} steps deep, {:>4.1} s: {word}",
            scope.name,
            outcome.states,
            outcome.depth,
            began.elapsed().as_secs_f64()
        );
        if let Some(counterexample) = &outcome.counterexample {
            show(counterexample);
        }
    }
    let rules: Vec<_> = models.iter().flat_map(|model| &model.rules).collect();
    let mut found = 0;
    for rule in &rules {
        match rule.explore().counterexample {
            Some(counterexample) => {
                found += 1;
                let (steps, broken) = (counterexample.steps.len(), counterexample.broken);
                println!("{:<58} after {steps:>2} steps: {broken}", rule.name);
            }
            None => println!("{:<58} BREAKS NOTHING", rule.name),
        }
    }
    let (rules, seconds) = (rules.len(), started.elapsed().as_secs());
    println!(
        "{{\"part\":\"model\",\"scopes\":{},\"states\":{states},\"rules\":{rules},\"counterexamples\":{found},\"failed\":{},\"seconds\":{seconds}}}",
        scopes.len(),
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
