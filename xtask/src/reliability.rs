//! `cargo xtask reliability` and `soak`: the checks that are counted, and the report that says how many.
//!
//! A part is one of our own commands that prints lines of JSON with a field `part`; a line in `PARTS` adds one.

use std::fmt::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::process;
use crate::process::Echo;
use crate::servers;
use crate::sim;
use crate::sim::Wanted;
use crate::test;

const REPORT: &str = "reliability-report.json";
const PART_LIMIT: Duration = Duration::from_secs(1_800);

/// What is run: the words behind `cargo xtask`.
const PARTS: &[&[&str]] = &[
    &["sim", "--seeds", "0..50000"],
    &["random-scripts", "--sequences", "10000", "--steps", "50"],
    &["seeded"],
    &["model"],
    &["threads"],
    &["lua-mutants"],
    &["small-faults"],
];

/// What a figure has to be at least: its part, its field, and what it is called.
const BARS: &[(&str, &str, u64, &str)] = &[
    ("simulation", "seeds", 50_000, "simulated runs"),
    ("scripts", "calls", 500_000, "script calls, in memory and on Redis"),
    ("seeded_bugs", "found", 15, "seeded bugs found"),
    ("model", "states", 1_000_000, "states of the protocol models, all rules broken in turn"),
    ("threads", "models", 6, "models of threads"),
    ("lua-mutants", "killed", 200, "mutants of the scripts noticed"),
];

// ---- the report

/// True if every part passed and every bar is met.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let mut out = crate::root().join(REPORT);
    let mut without = Vec::new();
    for (option, value) in pairs(args)? {
        match option {
            "--out" => out = PathBuf::from(value),
            "--without" => without = value.split(',').collect(),
            _ => return Err("reliability wants nothing, --out FILE, or --without PART,PART".into()),
        }
    }
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for part in PARTS.iter().filter(|part| !without.contains(&part[0])) {
        println!("== {}", part.join(" "));
        let done = process::run(ourselves(part)?, PART_LIMIT, Echo::On)?;
        if !done.success {
            failed.push(part.join(" "));
        }
        lines.extend(figures(&done.output));
    }
    let report = json!({
        "commit": commit(),
        "redis": version(Command::new(servers::find_or_install()?).arg("--version")),
        "rustc": version(Command::new("rustc").arg("--version")),
        "parts": lines,
    });
    let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
    std::fs::write(&out, text + "\n").map_err(|error| format!("{}: {error}", out.display()))?;
    let met = print_bars(&report);
    for part in &failed {
        println!("FAILED {part}");
    }
    println!("{}\n{}", out.display(), sentences(&report).unwrap_or_default());
    Ok(met && failed.is_empty())
}

fn ourselves(words: &[&str]) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(words).current_dir(crate::root());
    Ok(command)
}

/// The lines of JSON that name a part.
fn figures(output: &str) -> Vec<Value> {
    let read = |line: &str| serde_json::from_str::<Value>(line.trim()).ok();
    output.lines().filter(|line| line.contains("\"part\"")).filter_map(read).collect()
}

fn commit() -> String {
    let mut git = Command::new("git");
    version(git.args(["rev-parse", "HEAD"]).current_dir(crate::root()))
}

/// The first line that a program says.
fn version(command: &mut Command) -> String {
    let done = command.output();
    let text = done.map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

fn figure(report: &Value, part: &str, field: &str) -> Option<u64> {
    let mut parts = report["parts"].as_array()?.iter();
    parts.find(|line| line["part"] == part)?[field].as_u64()
}

fn print_bars(report: &Value) -> bool {
    let mut met = true;
    println!("\n{:<60} {:>10} {:>10}", "", "wanted", "got");
    for (part, field, wanted, what) in BARS {
        let Some(got) = figure(report, part, field) else {
            println!("{what:<60} {wanted:>10} {:>10}", "not run");
            continue;
        };
        let word = if got >= *wanted { "" } else { "  NOT MET" };
        met &= got >= *wanted;
        println!("{what:<60} {wanted:>10} {got:>10}{word}");
    }
    met
}

/// What the README may say: these words, with the figures of the report.
fn sentences(report: &Value) -> Option<String> {
    let number = |part, field| figure(report, part, field).map(grouped);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "* {} simulated runs, {} of them on a cluster: {} events, {} grants, {} losses after {} declared breaches, and no\n  \
         rule broken.",
        number("simulation", "seeds")?,
        number("simulation", "cluster_seeds")?,
        number("simulation", "events")?,
        number("simulation", "grants")?,
        number("simulation", "losses")?,
        number("simulation", "breaches")?,
    );
    let calls = number("scripts", "calls")?;
    let _ = writeln!(
        text,
        "* {calls} random script calls with the same replies, keys and messages in memory and on Redis."
    );
    let (found, of) = (number("seeded_bugs", "found")?, number("seeded_bugs", "of")?);
    let _ = writeln!(text, "* {found} of {of} bugs that such locks have had, put in one at a time, found.");
    let (states, rules) = (number("model", "states")?, number("model", "rules")?);
    let _ = writeln!(
        text,
        "* {states} states of the protocol's models; each of {rules} rules, left out, breaks a promise."
    );
    let (killed, mutants) = (number("lua-mutants", "killed")?, number("lua-mutants", "mutants")?);
    let _ = writeln!(
        text,
        "* {killed} of {mutants} mutants of the scripts noticed; the others do the same as the script."
    );
    Some(text)
}

/// With a comma between each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

// ---- random calls of the scripts

/// `cargo xtask random-scripts`: the same random calls in memory and on a Redis of our own.
pub(crate) fn random_scripts(args: &[&str]) -> Result<bool, String> {
    let [("--sequences", sequences), ("--steps", steps)] = pairs(args)?[..] else {
        return Err("random-scripts wants --sequences N --steps N".into());
    };
    let done = scripts(sequences, steps, "1", PART_LIMIT, Echo::On)?;
    Ok(done.success)
}

fn pairs<'a>(args: &[&'a str]) -> Result<Vec<(&'a str, &'a str)>, String> {
    if !args.len().is_multiple_of(2) {
        return Err("each option wants a value".into());
    }
    Ok(args.chunks(2).map(|pair| (pair[0], pair[1])).collect())
}

fn scripts(
    sequences: &str,
    steps: &str,
    seed: &str,
    limit: Duration,
    echo: Echo,
) -> Result<process::Finished, String> {
    let test = "script_tests::random::random_calls";
    let mut command =
        process::cargo(&["test", test::FEATURES, "--lib", "--quiet", test, "--", "--nocapture"]);
    command.env("SEQUENCES", sequences).env("STEPS", steps).env("SEED", seed);
    command.env("REDIS_SERVER", servers::find_or_install()?);
    process::run(command, limit, echo)
}

// ---- for hours

/// Seeds of one round: a few minutes.
const ROUND: u64 = 50_000;
/// Beyond those of the tests and of the report.
const FIRST: u64 = 1_000_000;

/// `cargo xtask soak --for 8h`: round after round, seeds that were not tried before. What was done is kept in
/// `target/soak.json`, so that the next call goes on from there.
pub(crate) fn soak(args: &[&str]) -> Result<bool, String> {
    let [("--for", text)] = pairs(args)?[..] else {
        return Err("soak wants --for TIME, as 90m or 8h".into());
    };
    let time = duration(text).ok_or("a time is a number and s, m or h")?;
    let state = crate::root().join("target/soak.json");
    let mut done = read_state(&state);
    let started = Instant::now();
    println!("from seed {} on, for {text}; {}", done["next_seed"], state.display());
    while started.elapsed() < time {
        let first = done["next_seed"].as_u64().unwrap_or(FIRST);
        let left = time.saturating_sub(started.elapsed());
        let round = sim::simulate(&Wanted::seeds(first, first + ROUND), left, Echo::Off)?;
        if round.timed_out {
            break;
        }
        let scripts = scripts("2000", "50", &first.to_string(), PART_LIMIT, Echo::Off)?;
        for finished in [&round, &scripts] {
            if !finished.success {
                println!("{}", finished.output.trim_end());
                return Ok(false);
            }
        }
        add_up(&mut done, &figures(&round.output), first + ROUND);
        let text = serde_json::to_string_pretty(&done).map_err(|error| error.to_string())?;
        std::fs::write(&state, text).map_err(|error| format!("{}: {error}", state.display()))?;
        println!(
            "{:>7} s  {} runs, {} grants in all",
            started.elapsed().as_secs(),
            done["seeds"],
            done["grants"]
        );
    }
    Ok(true)
}

fn read_state(path: &Path) -> Value {
    let known = std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok());
    known.unwrap_or_else(|| json!({"next_seed": FIRST, "seeds": 0, "events": 0, "grants": 0, "losses": 0}))
}

fn add_up(done: &mut Value, figures: &[Value], next: u64) {
    for field in ["seeds", "events", "grants", "losses"] {
        let more: u64 = figures.iter().filter_map(|line| line[field].as_u64()).sum();
        done[field] = json!(done[field].as_u64().unwrap_or(0) + more);
    }
    done["next_seed"] = json!(next);
}

fn duration(text: &str) -> Option<Duration> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        _ => return None,
    };
    let number: u64 = text[..text.len() - 1].parse().ok()?;
    Some(Duration::from_secs(number.checked_mul(unit)?.min(30 * 86_400)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_taken_from_what_parts_print() {
        let lines = figures("running\n{\"part\":\"simulation\",\"seeds\":3}\n{\"other\":1}\n");
        let report = json!({"parts": lines});
        assert_eq!(figure(&report, "simulation", "seeds"), Some(3));
        assert_eq!(figure(&report, "simulation", "grants"), None);
        assert_eq!(figure(&report, "scripts", "seeds"), None);
    }

    #[test]
    fn times_and_numbers() {
        assert_eq!(duration("8h"), Some(Duration::from_secs(28_800)));
        assert_eq!(duration("90m"), Some(Duration::from_secs(5_400)));
        assert_eq!(duration("8"), None);
        assert_eq!([grouped(1_234_567), grouped(123), grouped(1_000)], ["1,234,567", "123", "1,000"]);
    }
}
