//! The parts of the proof that are programs of their own: see `docs/proof.md`. Each ends with a
//! line of JSON.

use std::time::Duration;

use crate::process;
use crate::process::Echo;
use crate::reliability::pairs;
use crate::servers;
use crate::test;

const LIMIT: Duration = Duration::from_secs(1_800);
const LARGE_LIMIT: Duration = Duration::from_secs(3_600);

/// Explores the models of the protocol; with words, shows what breaking the rules with these words
/// leads to. With `--large`, explores their larger scopes.
pub(crate) fn model(words: &[&str]) -> Result<bool, String> {
    let mut command = process::cargo(&["run", "--quiet", "--package", "proof-model", "--"]);
    command.args(words);
    let limit = if words.contains(&"--large") { LARGE_LIMIT } else { LIMIT };
    Ok(process::run(command, limit, Echo::On)?.success)
}

/// Tries the interleavings of the threads that share something.
pub(crate) fn threads() -> Result<bool, String> {
    let command = process::cargo(&["run", "--quiet", "--package", "proof-threads"]);
    Ok(process::run(command, LIMIT, Echo::On)?.success)
}

/// Runs the script tests on each mutant of each script, and counts those that the model notices
/// without them.
pub(crate) fn lua_mutants() -> Result<bool, String> {
    let mut command = process::optimizing_cargo(&[
        "test",
        "--quiet",
        test::FEATURES,
        "--lib",
        "--",
        "every_mutant_of_the_scripts",
    ]);
    command.args(["random_calls_notice_mutants", "--include-ignored", "--nocapture"]);
    command.env("ALL_MUTANTS", "1");
    Ok(process::run(command, LIMIT, Echo::On)?.success)
}

/// The same random calls of the scripts in memory and on a Redis of our own.
pub(crate) fn random_scripts(args: &[&str]) -> Result<bool, String> {
    let (mut sequences, mut steps, mut seed) = ("2000", "50", "1");
    for (option, value) in pairs(args)? {
        match option {
            "--sequences" => sequences = value,
            "--steps" => steps = value,
            "--seed" => seed = value,
            _ => return Err("random-scripts wants --sequences N, --steps N, --seed N".into()),
        }
    }
    let test = "script_tests::random_calls";
    let mut command = process::optimizing_cargo(&[
        "test",
        test::FEATURES,
        "--lib",
        "--quiet",
        test,
        "--",
        "--nocapture",
    ]);
    command.env("SEQUENCES", sequences).env("STEPS", steps).env("SEED", seed);
    command.env("REDIS_SERVER", servers::find_or_install()?);
    Ok(process::run(command, LIMIT, Echo::On)?.success)
}

/// So many random inputs for each fuzz target, and the corpus of lock names.
pub(crate) fn fuzz_smoke(inputs: &str) -> Result<bool, String> {
    let inputs: u64 =
        inputs.parse().map_err(|_| format!("fuzz-smoke wants a number, not `{inputs}`"))?;
    let mut command = process::optimizing_cargo(&[
        "test",
        "--quiet",
        test::FEATURES,
        "--lib",
        "--",
        "fuzzing::tests",
        "name::corpus",
    ]);
    command.arg("--nocapture");
    command.env("FUZZ_INPUTS", inputs.to_string());
    let done = process::run(command, LIMIT, Echo::On)?;
    Ok(done.success)
}

/// Drops every future after each number of polls, cuts every script off at each byte, answers each
/// with every error, and takes each permission away.
pub(crate) fn small_faults() -> Result<bool, String> {
    let redis = servers::find_or_install()?;
    let mut good = true;
    for tests in ["every_poll::", "every_byte::", "server_errors::each_error", "acl::each_missing"]
    {
        let mut command =
            process::cargo(&["test", "--quiet", test::FEATURES, "--test", "it", tests]);
        command.args(["--", "--nocapture"]).env("REDIS_SERVER", &redis);
        good &= process::run(command, LIMIT, Echo::On)?.success;
    }
    Ok(good)
}
