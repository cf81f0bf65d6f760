//! `cargo xtask rust-mutants`: small mistakes in the Rust code, made by cargo-mutants one at a
//! time, which the unit tests and a short simulation must notice.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use crate::lab::Lab;
use crate::process;
use crate::process::Echo;
use crate::servers;
use crate::tools;

/// A sample of a hundred takes an hour or more; a run that ends early goes on where it was.
const LIMIT: Duration = Duration::from_secs(5_400);
const SAMPLE: usize = 100;
/// Of 100 mutants of the sample.
const BAR: usize = 90;

/// Where mistakes are made, and the unit tests that have to notice them.
const AREAS: &[Area] = &[
    Area {
        name: "engine",
        files: &["src/engine.rs", "src/engine/**"],
        tests: &["engine::", "sim::what"],
    },
    Area {
        name: "kinds",
        files: &["src/kinds.rs", "src/kinds/**"],
        tests: &["kinds::", "engine::", "base::"],
    },
    Area { name: "backend", files: &["src/backend/redis/**"], tests: &["backend::redis::"] },
];
const NO_FILES: &[&str] = &[
    "**/tests.rs",
    "**/tests/**",
    "**/script_tests.rs",
    "**/script_tests/**",
    "src/kinds/pair.rs",
    // Built for tests only, like the kind above.
    "src/kinds/read_write.rs",
    "src/kinds/semaphore.rs",
];
/// Of the simulation, for each mutant.
const SEEDS: &str = "0..60";

struct Area {
    name: &'static str,
    files: &'static [&'static str],
    tests: &'static [&'static str],
}

impl Area {
    fn choice(&self) -> Vec<&'static str> {
        let files = self.files.iter().flat_map(|file| ["--file", file]);
        files.chain(NO_FILES.iter().flat_map(|file| ["--exclude", file])).collect()
    }
}

/// Those that behave like the code, each with its reason on the line below.
const EQUIVALENT: &str = "proof/rust-equivalent.txt";

/// A sample that is the same as long as the code is. True if enough of it was noticed.
pub(crate) fn sample() -> Result<bool, String> {
    if tools::missing("cargo-mutants") {
        return Ok(true);
    }
    let equivalent = equivalent(&read(&crate::root().join(EQUIVALENT)));
    let mut mutants = Vec::new();
    for area in AREAS {
        mutants.extend(listed(area)?);
    }
    // What only a build with broken rules has is not in the product.
    mutants.retain(|mutant| {
        !equivalent.contains_key(&mutant.what) && !mutant.what.contains("seeded!")
    });
    mutants.sort_by_key(|mutant| (hash(&mutant.what), mutant.name.clone()));
    mutants.truncate(SAMPLE);
    let (begun, mut found) = (Instant::now(), Found::default());
    for area in AREAS {
        let here = mutants.iter().filter(|mutant| mutant.area == area.name);
        let patterns: Vec<String> =
            here.map(|mutant| format!("^{}$", escaped(&mutant.name))).collect();
        let mut choice: Vec<&str> = patterns.iter().flat_map(|pattern| ["--re", pattern]).collect();
        choice.extend(area.choice());
        found += mutate(
            &format!("sample-{}", area.name),
            area.tests,
            &choice,
            LIMIT.saturating_sub(begun.elapsed()),
        )?;
    }
    let left = mutants.len().saturating_sub(found.caught + found.missed + found.unviable);
    println!(
        "{{\"part\":\"rust-mutants\",\"sample\":{},\"noticed\":{},\"missed\":{},\"not_built\":{},\"left\":{left}}}",
        mutants.len(),
        found.caught,
        found.missed,
        found.unviable,
    );
    Ok(found.are_enough())
}

/// Every mutant of the same files: many hours, in as many runs as it takes.
pub(crate) fn all() -> Result<bool, String> {
    if tools::missing("cargo-mutants") {
        return Ok(true);
    }
    let mut found = Found::default();
    for area in AREAS {
        let limit = Duration::from_secs(7 * 24 * 3_600);
        found += mutate(&format!("all-{}", area.name), area.tests, &area.choice(), limit)?;
    }
    println!("{} mutants noticed, {} not", found.caught, found.missed);
    Ok(found.are_enough())
}

/// Changes the code that differs from the commit `base`, mutant by mutant. True if the tests notice
/// each mutant.
pub(crate) fn in_diff(base: Option<&str>) -> Result<bool, String> {
    let base = base.map_or_else(branch_point, |base| Ok(base.to_owned()))?;
    let diff = git(&["diff", &base, "--", "src"])?;
    if diff.is_empty() {
        println!("nothing below src/ differs from {base}");
        return Ok(true);
    }
    if tools::missing("cargo-mutants") {
        return Ok(true);
    }
    let file = crate::root().join("target/rust-mutants.diff");
    std::fs::write(&file, diff).map_err(|error| format!("{}: {error}", file.display()))?;
    println!("mutants of what differs from {base}");
    let found = mutate("diff", &[], &["--in-diff", &file.to_string_lossy()], LIMIT)?;
    println!("{} mutants noticed, {} not", found.caught, found.missed);
    Ok(found.missed == 0)
}

/// Where this branch left main; the commit before this one on main itself.
fn branch_point() -> Result<String, String> {
    let head = git(&["rev-parse", "HEAD"])?;
    let left = git(&["merge-base", "HEAD", "main"]).ok().filter(|commit| *commit != head);
    Ok(left.map_or_else(|| "HEAD~1".to_owned(), |commit| commit.trim().to_owned()))
}

fn git(args: &[&str]) -> Result<String, String> {
    let done = Command::new("git").args(args).current_dir(crate::root()).output();
    let done = done.map_err(|error| format!("cannot run git: {error}"))?;
    if !done.status.success() {
        return Err(format!(
            "git {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&done.stderr).trim_end()
        ));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A mutant: as cargo-mutants calls it, and the same without its line.
struct Mutant {
    area: &'static str,
    name: String,
    what: String,
}

fn listed(area: &Area) -> Result<Vec<Mutant>, String> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--line-col", "true"]).args(area.choice());
    let done = command.current_dir(crate::root()).output();
    let done = done.map_err(|error| format!("cannot run cargo mutants: {error}"))?;
    let text = String::from_utf8_lossy(&done.stdout);
    let mutant = |name: &str| {
        Some(Mutant { area: area.name, name: name.to_owned(), what: without_position(name)? })
    };
    let mutants: Vec<Mutant> = text.lines().filter_map(mutant).collect();
    if mutants.is_empty() { Err("cargo mutants lists nothing".to_owned()) } else { Ok(mutants) }
}

/// `file:line:column: change` as `file: change`.
fn without_position(name: &str) -> Option<String> {
    let mut parts = name.splitn(4, ':');
    let (file, change) = (parts.next()?, parts.nth(2)?);
    Some(format!("{file}:{change}"))
}

/// FNV-1a, so that the sample depends on nothing but the mutants.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// As a pattern that matches this text alone.
fn escaped(text: &str) -> String {
    let mut pattern = String::new();
    for letter in text.chars() {
        if !letter.is_alphanumeric() && letter != ' ' && letter != '_' {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// Pairs of lines, with empty lines and comments between them.
fn equivalent(text: &str) -> BTreeMap<String, String> {
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut known = BTreeMap::new();
    while let (Some(mutant), Some(reason)) = (lines.next(), lines.next()) {
        known.insert(mutant.to_owned(), reason.to_owned());
    }
    known
}

/// How many mutants the tests noticed, be it by not ending, how many they did not, and how many did
/// not compile.
#[derive(Debug, Default, Clone, Copy)]
struct Found {
    caught: usize,
    missed: usize,
    unviable: usize,
}

impl Found {
    fn are_enough(self) -> bool {
        self.caught > 0 && self.missed * 100 <= (100 - BAR) * (self.caught + self.missed)
    }
}

impl AddAssign for Found {
    fn add_assign(&mut self, other: Self) {
        self.caught += other.caught;
        self.missed += other.missed;
        self.unviable += other.unviable;
    }
}

/// Runs cargo-mutants in a copy of the repository. What an earlier run of the same code has found
/// stays found.
fn mutate(label: &str, tests: &[&str], choice: &[&str], limit: Duration) -> Result<Found, String> {
    let lab = Lab::new(servers::find_or_install()?)?;
    let out = crate::root().join("target/rust-mutants").join(label);
    forget_other_code(&out)?;
    // The option `--lib` is for building, too. Behind `--` it would be for running alone.
    let mut command = lab.command(&[
        "mutants",
        "--in-place",
        "--iterate",
        "--cargo-arg=--lib",
        "--timeout",
        "240",
    ]);
    command.args(["--no-times", "--cap-lints=true"]).args(choice).arg("--output").arg(&out);
    command.args(["--", "--"]).args(tests).env("SIM_SEEDS", SEEDS).env("SIM_SHRINK", "0");
    let done = process::run(command, limit, Echo::On)?;
    let count = |file: &str| read(&out.join("mutants.out").join(file)).lines().count();
    let caught = count("caught.txt") + count("timeout.txt") + count("previously_caught.txt");
    let found = Found { caught, missed: count("missed.txt"), unviable: count("unviable.txt") };
    // It fails for mutants that were missed, too; without any, something else is wrong.
    if !done.success && !done.timed_out && found.missed == 0 {
        return Err("cargo mutants failed; see its output above".into());
    }
    Ok(found)
}

/// The results of earlier runs count only for the code that they are about.
fn forget_other_code(out: &Path) -> Result<(), String> {
    let (mark, code) = (out.join("code"), git(&["rev-parse", "HEAD:src"])?);
    if read(&mark) == code {
        return Ok(());
    }
    let _ = std::fs::remove_dir_all(out);
    let made = std::fs::create_dir_all(out).and_then(|()| std::fs::write(&mark, code));
    made.map_err(|error| format!("{}: {error}", mark.display()))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_its_own_text() {
        assert_eq!(escaped("a.rs:3:5: x -> Y<u8>"), "a\\.rs\\:3\\:5\\: x \\-\\> Y\\<u8\\>");
    }

    #[test]
    fn a_mutant_is_known_without_its_line() {
        let name = "src/a.rs:3:5: replace A::b -> u8 with 1";
        assert_eq!(without_position(name).as_deref(), Some("src/a.rs: replace A::b -> u8 with 1"));
        assert_eq!(without_position("src/a.rs"), None);
    }

    #[test]
    fn every_equivalent_mutant_has_a_reason() {
        let text = read(&crate::root().join(EQUIVALENT));
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        let known = equivalent(&text);
        assert_eq!(lines, 2 * known.len());
        assert!(known.keys().all(|mutant| mutant.starts_with("src/")));
    }
}
