//! Checks that need tools which Rust does not come with. Where one is missing, the last line says
//! `NOT RUN`.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::process;
use crate::process::Echo;
use crate::servers;
use crate::test;

const LIMIT: Duration = Duration::from_secs(3_600);

/// What `cargo fuzz` runs; the same functions have a smoke test among the unit tests.
const TARGETS: [&str; 5] = ["name", "reply", "url", "error", "bytes"];

/// The part of the crate whose lines have to be run by tests.
const CORE: &[&str] = &["src/engine", "src/base", "src/driver", "src/kinds"];
/// Of a thousand lines of the core.
const COVERED: u64 = 950;

/// Runs each fuzz target for so many seconds. Needs nightly and cargo-fuzz.
pub(crate) fn fuzz(seconds: u64) -> Result<bool, String> {
    if missing("cargo-fuzz") {
        return Ok(true);
    }
    let mut good = true;
    for target in TARGETS {
        let mut command = Command::new("cargo");
        command.args([
            "+nightly",
            "fuzz",
            "run",
            target,
            "--",
            &format!("-max_total_time={seconds}"),
        ]);
        command.current_dir(crate::root());
        let done = process::run(command, LIMIT + Duration::from_secs(seconds), Echo::On)?;
        let runs = done.output.lines().rev().find_map(|line| {
            let words = line.strip_prefix("Done ")?;
            words.split(' ').next()?.parse::<u64>().ok()
        });
        println!(
            "{{\"part\":\"fuzz\",\"target\":\"{target}\",\"seconds\":{seconds},\"runs\":{},\"failed\":{}}}",
            runs.unwrap_or(0),
            !done.success
        );
        good &= done.success;
    }
    Ok(good)
}

/// How to get what counts lines.
pub(crate) const LLVM_TOOLS: &str = "rustup component add llvm-tools";

pub(crate) fn can_count_lines() -> bool {
    llvm_tools().is_some()
}

/// What is run with counters: the unit tests, the simulation among them, and the integration tests
/// of one server.
const COUNTED: [&[&str]; 2] =
    [&["--lib"], &["--test", "it", "in_memory::", "preflight::each", "reentrant::"]];

/// Says which share of the core's lines tests run.
pub(crate) fn coverage() -> Result<bool, String> {
    let Some(tools) = llvm_tools() else {
        println!("NOT RUN: coverage needs `{LLVM_TOOLS}`");
        return Ok(true);
    };
    let dir = crate::root().join("target/coverage");
    let profiles = dir.join("profiles");
    let _ = std::fs::remove_dir_all(&profiles);
    std::fs::create_dir_all(&profiles)
        .map_err(|error| format!("{}: {error}", profiles.display()))?;
    let mut programs: Vec<PathBuf> = Vec::new();
    for words in COUNTED {
        let (options, filters) = words.split_at(words.len().min(2));
        let mut command = process::cargo(&["test", test::FEATURES]);
        command.args(options).arg("--").args(filters);
        command
            .env("CARGO_TARGET_DIR", &dir)
            .env("RUSTFLAGS", "-C instrument-coverage --cfg repository");
        command.env("LLVM_PROFILE_FILE", profiles.join("%p-%m.profraw"));
        command.env("REDIS_SERVER", servers::find_or_install()?);
        let done = process::run(command, LIMIT, Echo::On)?;
        if !done.success {
            return Ok(false);
        }
        let running = done.output.lines().filter_map(|line| line.trim().strip_prefix("Running "));
        let paths = running.filter_map(|line| line.split('(').nth(1));
        programs.extend(paths.map(|path| crate::root().join(path.trim_end_matches(')'))));
    }
    let merged = dir.join("merged.profdata");
    let mut merge = Command::new(tools.join("llvm-profdata"));
    merge.args(["merge", "--sparse", "--output"]).arg(&merged).arg(&profiles);
    let merge = process::run(merge, LIMIT, Echo::Off)?;
    if !merge.success {
        return Err(format!("llvm-profdata: {}", merge.output));
    }
    let mut export = Command::new(tools.join("llvm-cov"));
    export.args(["export", "--summary-only", "--instr-profile"]).arg(&merged);
    for (at, program) in programs.iter().enumerate() {
        if at > 0 {
            export.arg("--object");
        }
        export.arg(program);
    }
    report_coverage(&process::run(export, LIMIT, Echo::Off)?.output)
}

fn report_coverage(exported: &str) -> Result<bool, String> {
    // Behind its warnings.
    let report = exported.lines().find(|line| line.starts_with('{')).unwrap_or(exported);
    let report: Value =
        serde_json::from_str(report).map_err(|error| format!("llvm-cov: {error}"))?;
    // Other crates have a folder of the same name.
    let root = crate::root().canonicalize().map_err(|error| error.to_string())?;
    let (mut all, mut run) = (0, 0);
    for file in report["data"][0]["files"].as_array().into_iter().flatten() {
        let Some(name) = core_file(&root, file["filename"].as_str().unwrap_or_default()) else {
            continue;
        };
        let lines = &file["summary"]["lines"];
        let count = |field: &str| lines[field].as_u64().unwrap_or(0);
        println!(
            "{:>6.1} % of {:>5} lines  {name}",
            100.0 * count("covered") as f64 / count("count").max(1) as f64,
            count("count")
        );
        all += count("count");
        run += count("covered");
    }
    let permille = 1_000 * run / all.max(1);
    println!("{{\"part\":\"coverage\",\"lines\":{all},\"covered\":{run},\"permille\":{permille}}}");
    Ok(permille >= COVERED)
}

/// The path of a file of the core below the root; tests are none.
fn core_file<'a>(root: &Path, path: &'a str) -> Option<&'a str> {
    let name = Path::new(path).strip_prefix(root).ok()?.to_str()?;
    let tests = name.contains("/tests") || name.contains("_tests");
    (CORE.iter().any(|core| name.starts_with(core)) && !tests).then_some(name)
}

fn llvm_tools() -> Option<PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let host = Command::new("rustc").arg("-vV").output().ok()?;
    let host = String::from_utf8(host.stdout).ok()?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: "))?.to_owned();
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout).ok()?.trim());
    let tools = sysroot.join("lib/rustlib").join(host).join("bin");
    tools.join("llvm-profdata").is_file().then_some(tools)
}

/// Says so.
pub(crate) fn missing(program: &str) -> bool {
    let missing = process::find_program(program).is_none();
    if missing {
        println!("NOT RUN: {program} is missing: cargo install {program}");
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_not_its_tests() {
        let root = Path::new("/a/src/b");
        assert_eq!(
            core_file(root, "/a/src/b/src/engine/name_record.rs"),
            Some("src/engine/name_record.rs")
        );
        for path in [
            "/a/src/b/src/client.rs",
            "/a/src/b/src/engine/tests/corners.rs",
            "/a/src/b/tests/it/main.rs",
            "/other/src/engine/name_record.rs",
        ] {
            assert_eq!(core_file(root, path), None, "{path}");
        }
    }
}
