//! The parts of the proof that are programs of their own: see `docs/proof.md`. Each ends with a line of JSON.

use std::time::Duration;

use crate::process;
use crate::process::Echo;
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
