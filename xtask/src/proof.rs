//! The parts of the proof that are programs of their own: see `docs/proof.md`. Each ends with a line of JSON.

use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::process::Echo;
use crate::servers;
use crate::test;

const LIMIT: Duration = Duration::from_secs(900);

/// Explores the models of the protocol; with words, shows what breaking the rules with these words leads to.
pub(crate) fn model(words: &[&str]) -> Result<bool, String> {
    let mut command = process::cargo(&["run", "--quiet", "--package", "proof-model", "--"]);
    command.args(words);
    Ok(process::run(command, LIMIT, Echo::On)?.success)
}

/// Tries the interleavings of the threads that share something.
pub(crate) fn threads() -> Result<bool, String> {
    let command = process::cargo(&["run", "--quiet", "--package", "proof-threads"]);
    Ok(process::run(command, LIMIT, Echo::On)?.success)
}

/// Runs the script tests on each mutant of each script.
pub(crate) fn lua_mutants() -> Result<bool, String> {
    let mut command =
        process::cargo(&["test", "--quiet", test::FEATURES, "--lib", "every_mutant_of_the_scripts"]);
    command.args(["--", "--nocapture"]);
    Ok(process::run(command, LIMIT, Echo::On)?.success)
}

/// What `cargo fuzz` runs; the same functions have a smoke test among the unit tests.
const TARGETS: [&str; 4] = ["name", "reply", "url", "error"];

/// Runs each fuzz target for so many seconds. Needs nightly and cargo-fuzz, which nothing else here does.
pub(crate) fn fuzz(seconds: u64) -> Result<bool, String> {
    let mut good = true;
    for target in TARGETS {
        let mut command = Command::new("cargo");
        command.args(["+nightly", "fuzz", "run", target, "--", &format!("-max_total_time={seconds}")]);
        command.current_dir(crate::root());
        let done = process::run(command, LIMIT + Duration::from_secs(seconds), Echo::On)?;
        if done.output.contains("no such command: `fuzz`") {
            return Err("cargo-fuzz is missing: cargo install cargo-fuzz".into());
        }
        println!(
            "{{\"part\":\"fuzz\",\"target\":\"{target}\",\"seconds\":{seconds},\"failed\":{}}}",
            !done.success
        );
        good &= done.success;
    }
    Ok(good)
}

/// Drops every future after each number of polls, and cuts every script off at each byte.
pub(crate) fn small_faults() -> Result<bool, String> {
    let redis = servers::find_or_install()?;
    let mut good = true;
    for tests in ["every_poll::", "every_byte::"] {
        let mut command = process::cargo(&["test", "--quiet", test::FEATURES, "--test", "it", tests]);
        command.args(["--", "--nocapture"]).env("REDIS_SERVER", &redis);
        good &= process::run(command, LIMIT, Echo::On)?.success;
    }
    Ok(good)
}
