//! `cargo xtask instructions`: how many instructions the engine takes for a lock and an unlock that
//! nobody contends, counted by callgrind. The count repeats itself, whatever else the machine does.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::process::Echo;
use crate::puppet;
use crate::test;

const LIMIT: Duration = Duration::from_secs(600);

/// The compiler, and what its engine takes.
const RECORD: &str = "bench/instructions.txt";
/// A test of so many pairs, and what of it is counted.
const TEST: &str =
    "engine::tests::allocations::an_uncontended_pair_allocates_as_often_as_it_should";
const PAIRS: u64 = 200;
const COUNTED: &str = "redis_reentrant_lock::engine::Engine::handle";
/// One in so many instructions may be a difference: some hashes are of names that no two runs
/// share.
const NOISE: u64 = 200;

/// True if it takes what is recorded, or a record was wanted.
pub(crate) fn run(write: bool) -> Result<bool, String> {
    if process::find_program("valgrind").is_none() {
        println!("NOT RUN: valgrind is missing: apt-get install valgrind");
        return Ok(true);
    }
    let count = count()?;
    let compiler = process::first_line(Command::new("rustc").arg("--version"));
    let path = crate::root().join(RECORD);
    println!("{{\"part\":\"instructions\",\"engine_pair\":{count},\"rustc\":\"{compiler}\"}}");
    if write {
        let text = format!("{compiler}\n{count}\n");
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        return Ok(true);
    }
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(judge(&text, &compiler, count))
}

fn judge(record: &str, compiler: &str, count: u64) -> bool {
    let (by, recorded) = record.split_once('\n').unwrap_or_default();
    let Ok(recorded) = recorded.trim().parse::<u64>() else {
        println!("FAILED: {RECORD} is no record: cargo xtask instructions --write");
        return false;
    };
    if by != compiler {
        println!("not compared: {RECORD} is of another compiler, {by}, with {recorded}");
        return true;
    }
    let same = count.abs_diff(recorded) <= recorded / NOISE;
    println!(
        "{} with {recorded} in {RECORD}",
        if same { "agrees" } else { "FAILED: does not agree" }
    );
    if !same {
        println!("if that is as it should be: cargo xtask instructions --write");
    }
    same
}

fn count() -> Result<u64, String> {
    let mut command = process::optimizing_cargo(&[
        "test",
        "--lib",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    command.arg(test::FEATURES);
    let built = process::run(command, LIMIT, Echo::Off)?;
    if !built.success {
        return Err(built.output);
    }
    let program = puppet::executable(&built.output, "redis_reentrant_lock")?;
    let out: PathBuf = crate::root().join("target/callgrind.out");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", &format!("--toggle-collect={COUNTED}")]);
    command.arg(format!("--callgrind-out-file={}", out.display())).arg(program);
    command.args(["--exact", TEST, "--test-threads", "1"]);
    let done = process::run(command, LIMIT, Echo::Off)?;
    let collected = done.output.lines().find_map(|line| line.split_once("Collected : "));
    let all = collected.and_then(|(_, number)| number.trim().parse::<u64>().ok()).unwrap_or(0);
    if !done.success || !done.output.contains("1 passed") || all == 0 {
        return Err(format!("nothing was counted: {}", done.output));
    }
    Ok(all / PAIRS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_the_same_compiler_must_be_the_same() {
        let record = "rustc 1\n40000\n";
        assert!(judge(record, "rustc 1", 40_000) && judge(record, "rustc 1", 40_200));
        assert!(!judge(record, "rustc 1", 40_201) && !judge(record, "rustc 1", 39_799));
        assert!(judge(record, "rustc 2", 10));
        assert!(!judge("", "rustc 1", 40_000) && !judge("rustc 1\nmany\n", "rustc 1", 40_000));
    }
}
