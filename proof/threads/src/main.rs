//! `cargo xtask threads`: every interleaving of the threads that share a hold, a slot, a mailbox;
//! then each rule broken, which its model must notice. The library's own files are what runs: see
//! `build.rs`.

mod around;
mod models;
mod sync;

use std::process::Command;
use std::process::ExitCode;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use around::background;
use around::clock;
use around::config;
use around::drive;
use around::engine;
use around::error;
use around::map;
use around::name;
use around::owner;
use around::process;
use around::settle;
use around::stats;
use loom::model::Builder;

include!(concat!(env!("OUT_DIR"), "/variants.rs"));

/// What is run in every interleaving, and what is looked at after all of them.
type Model = (fn(), fn());

/// Who tries the interleavings.
#[derive(Clone, Copy)]
enum Explorer {
    /// With the weak memory of real processors, but not literally every order of accesses.
    Loom,
    /// Every order of accesses, each seen by all at once.
    Shuttle,
}

const EXPLORERS: [(Explorer, &str); 2] = [(Explorer::Loom, "loom"), (Explorer::Shuttle, "shuttle")];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [explorer, name, model] = words.as_slice() else { return all() };
    let at = EXPLORERS.iter().position(|(_, known)| known == explorer);
    let Some((at, (run, check))) = at.and_then(|at| Some((at, find(at, name, model)?))) else {
        return ExitCode::from(NO_VERDICT);
    };
    println!("{}", explore(EXPLORERS[at].0, run, check));
    ExitCode::SUCCESS
}

/// A model, for one of the explorers, of the sources as they are (`good`) or with a rule broken.
fn find(explorer: usize, name: &str, model: &str) -> Option<Model> {
    if name != "good" {
        return BROKEN
            .iter()
            .find(|(broken, ..)| *broken == name)
            .map(|(_, _, models)| models[explorer]);
    }
    let (models, check): (_, fn()) = match EXPLORERS[explorer].0 {
        Explorer::Loom => (models::MODELS, models::check_outcomes),
        Explorer::Shuttle => (good_shuttle::models::MODELS, good_shuttle::models::check_outcomes),
    };
    models.iter().find(|(known, _)| *known == model).map(|(_, run)| (*run, check))
}

/// More interleavings than shuttle needs for all but the largest model.
const ENOUGH: usize = 250_000;

/// Panics in a model end with 101, aborts with a signal.
const NO_VERDICT: u8 = 2;

/// Runs a model in every interleaving; how many there were.
fn explore(explorer: Explorer, model: fn(), check: fn()) -> u64 {
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    let once = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    };
    match explorer {
        Explorer::Loom => Builder::new().check(once),
        Explorer::Shuttle => shuttle::check_dfs(once, Some(ENOUGH)),
    }
    check();
    runs.load(Ordering::Relaxed)
}

fn all() -> ExitCode {
    let (mut total, mut failed) = (0, 0);
    for (model, _) in models::MODELS {
        let tried = EXPLORERS.map(|(_, explorer)| alone(explorer, "good", model));
        let words = tried.map(|tried| tried.map_or("FAILED".to_owned(), |runs| runs.to_string()));
        println!("{model:<48} {:>7} interleavings by loom, {:>7} by shuttle", words[0], words[1]);
        total += tried.into_iter().flatten().sum::<u64>();
        failed += tried.iter().filter(|tried| tried.is_none()).count();
    }
    let mut found = 0;
    for (name, model, ..) in BROKEN {
        let by: Vec<&str> = EXPLORERS
            .iter()
            .map(|(_, explorer)| *explorer)
            .filter(|explorer| alone(explorer, name, model).is_none())
            .collect();
        found += usize::from(!by.is_empty());
        let by = if by.is_empty() { "NOT NOTICED".to_owned() } else { by.join(" and ") };
        println!("{name:<36} {model}: {by}");
    }
    println!(
        "{{\"part\":\"threads\",\"models\":{},\"interleavings\":{total},\"broken\":{},\"noticed\":{found},\"failed\":{failed}}}",
        models::MODELS.len(),
        BROKEN.len()
    );
    if failed == 0 && found == BROKEN.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a model in a process of its own, which it may abort: how many interleavings there were, or
/// `None` if it failed.
fn alone(explorer: &str, name: &str, model: &str) -> Option<u64> {
    let program = std::env::current_exe().expect("a program knows its path");
    let mut command = Command::new(program);
    command
        .args([explorer, name, model])
        .env("SHUTTLE_SILENCE_WARNINGS", "1")
        .stderr(Stdio::null());
    let output = command.output().expect("this program can be run once more");
    assert!(
        output.status.code() != Some(i32::from(NO_VERDICT)),
        "no such model: {explorer} {name} {model}"
    );
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().last()?.parse().ok()).flatten()
}
