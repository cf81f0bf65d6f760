//! The parts of the proof that are programs of their own: see `docs/proof.md`. Each ends with a line of JSON.

use std::time::Duration;

use crate::process;
use crate::process::Echo;

const LIMIT: Duration = Duration::from_secs(900);

/// Explores the models of the protocol; with words, shows what breaking the rules with these words leads to.
pub(crate) fn model(words: &[&str]) -> Result<bool, String> {
    let mut command = process::cargo(&["run", "--quiet", "--package", "proof-model", "--"]);
    command.args(words);
    Ok(process::run(command, LIMIT, Echo::On)?.success)
}
