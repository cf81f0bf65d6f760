//! `cargo xtask second-opinion`: histories of chaos, checked once more by Porcupine. The program is
//! `proof/second-opinion/`, in Go.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::chaos;
use crate::process;
use crate::process::Echo;
use crate::root;

const LIMIT: Duration = Duration::from_secs(3_600);
/// Where chaos keeps what it wrote down.
const HISTORIES: &str = "target/chaos";

/// True if both checkers find nothing wrong.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let histories = match args {
        [] => "20",
        ["--histories", count] => count,
        _ => return Err("second-opinion wants nothing, or --histories N".to_owned()),
    };
    if process::find_program("go").is_none() {
        println!("NOT RUN: second-opinion needs go");
        return Ok(false);
    }
    let kept = root().join(HISTORIES);
    if kept.exists() {
        std::fs::remove_dir_all(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    }
    let first = chaos::run(&["--histories", histories, "--keep"])?;
    let second = process::run(go(&["test", "./..."]), LIMIT, Echo::On)?.success && judged(&kept)?;
    Ok(first && second)
}

fn judged(kept: &std::path::Path) -> Result<bool, String> {
    let entries =
        std::fs::read_dir(kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path().join("operations"))
        .filter(|file| file.exists())
        .collect();
    files.sort();
    let mut command = go(&["run", "."]);
    command.args(files);
    Ok(process::run(command, LIMIT, Echo::On)?.success)
}

fn go(args: &[&str]) -> Command {
    let mut command = Command::new("go");
    command.args(args).current_dir(root().join("proof/second-opinion"));
    command
}
