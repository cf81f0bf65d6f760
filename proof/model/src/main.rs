//! `cargo xtask model`: explores every scope, then breaks each rule. With words of a rule: its counterexample.

use std::process::ExitCode;
use std::time::Instant;

use proof_model::explore::Counterexample;
use proof_model::switch::Switch;
use proof_model::table::SCOPES;
use proof_model::table::scope_of;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() {
        return all();
    }
    let words = words.join(" ");
    let found = Switch::ALL.iter().filter(|switch| switch.words().contains(&words));
    let mut any = false;
    for &switch in found {
        any = true;
        println!("{}:", switch.words());
        match scope_of(switch).explore(Some(switch)).counterexample {
            Some(counterexample) => show(&counterexample),
            None => println!("  breaks nothing"),
        }
    }
    if any { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::disallowed_methods, reason = "a development program that says how long it took")]
fn all() -> ExitCode {
    let started = Instant::now();
    let (mut states, mut bad) = (0, 0);
    for scope in SCOPES {
        let began = Instant::now();
        let outcome = scope.explore(None);
        states += outcome.states;
        let good = outcome.complete && outcome.counterexample.is_none();
        bad += usize::from(!good);
        let word = if good { "every promise kept" } else { "FAILED" };
        println!(
            "{:<14} {:>8} states, {:>2} steps deep, {:>4.1} s: {word}",
            scope.name(),
            outcome.states,
            outcome.depth,
            began.elapsed().as_secs_f64()
        );
        if let Some(counterexample) = &outcome.counterexample {
            show(counterexample);
        }
    }
    let mut found = 0;
    for switch in Switch::ALL {
        match scope_of(switch).explore(Some(switch)).counterexample {
            Some(counterexample) => {
                found += 1;
                let (steps, broken) = (counterexample.steps.len(), counterexample.broken);
                println!("{:<58} after {steps:>2} steps: {broken}", switch.words());
            }
            None => println!("{:<58} BREAKS NOTHING", switch.words()),
        }
    }
    let (rules, seconds) = (Switch::ALL.len(), started.elapsed().as_secs());
    println!(
        "{{\"part\":\"model\",\"scopes\":{},\"states\":{states},\"rules\":{rules},\"counterexamples\":{found},\"failed\":{},\"seconds\":{seconds}}}",
        SCOPES.len(),
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
