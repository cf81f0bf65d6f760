//! `cargo xtask test`, `examples` and `repeat`.

use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::certs;
use crate::compose;
use crate::process;
use crate::process::Echo;
use crate::process::Finished;
use crate::process::cargo;
use crate::servers;
use crate::servers::Server;
use crate::topologies;
use crate::topologies::Private;

/// The features that everything here is built with, so that it is built once. Without `native-tls`:
/// OpenSSL's headers are not on every machine, and with both rustls is used.
pub(crate) const FEATURES: &str = "--features=in-memory,rustls";

/// What the endpoint tests are run on.
const DEPLOYMENTS: [topologies::Kind; 4] = topologies::Kind::ALL;

/// Row of the endpoint tests in containers.
const COMPOSE: &str = "compose";

const BUILD_LIMIT: Duration = Duration::from_secs(900);
const KIND_LIMIT: Duration = Duration::from_secs(600);
const EXAMPLE_LIMIT: Duration = Duration::from_secs(60);

/// How one kind of test went.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    pub(crate) failures: Vec<String>,
    /// What ended without a failure because the server cannot be put to it, with the reason: not
    /// passed.
    pub(crate) not_run: Vec<String>,
}

/// All at once, so that no core waits.
const BUILD: &[&str] = &[
    "test",
    "--no-run",
    "--package",
    "redis-reentrant-lock",
    "--package",
    "puppet",
    "--package",
    "chaos",
    "--package",
    "processes",
];

/// The checks of histories. With the library, whose features stand beside it.
const CHAOS: &[&str] =
    &["--package", "redis-reentrant-lock", "--package", "chaos", "--bin", "chaos"];

/// What processes do that a process of tests cannot do itself.
const PROCESSES: &[&str] = &[
    "--package",
    "redis-reentrant-lock",
    "--package",
    "processes",
    "--test",
    "all",
    "--test",
    "pools",
];

pub(crate) struct Kind {
    name: String,
    took: Duration,
    counts: Counts,
}

/// Everything. True if all passed and no kind was empty.
pub(crate) fn all(with_compose: bool) -> Result<bool, String> {
    let targets = test_targets()?;
    // Beside the targets: building, the kinds below, each kind of deployment.
    let mut steps =
        Steps { done: 0, of: 7 + targets.len() + DEPLOYMENTS.len() + usize::from(with_compose) };
    let redis = servers::find_or_install()?;
    let server = Server::start(&redis)?;
    println!("server: {}, {}", server.version()?, redis.display());
    steps.next("building; the first time takes a minute or two");
    build(BUILD)?;

    steps.next("unit tests");
    let mut kinds = vec![cargo_test("unit", &["--lib"], &redis, &server)?];
    for target in targets {
        let name = match target.as_str() {
            "documents" => "document",
            "it" => "integration",
            "layers" => "layer",
            other => other,
        };
        steps.next(&format!("{name} tests"));
        // With what they measured.
        kinds.push(cargo_test(name, &["--test", &target, "--", "--show-output"], &redis, &server)?);
    }
    steps.next("examples in the documentation");
    kinds.push(cargo_test("doc", &["--doc"], &redis, &server)?);
    steps.next("tests of the commands");
    kinds.push(xtask_tests()?);
    steps.next("tests of the checks of histories");
    kinds.push(cargo_test("chaos", CHAOS, &redis, &server)?);
    steps.next("tests with processes that fork, end or share threads");
    kinds.push(cargo_test("processes", PROCESSES, &redis, &server)?);
    steps.next("examples");
    kinds.push(examples(&server)?);
    drop(server);
    kinds.extend(all_endpoints(with_compose, &redis, &mut steps)?);
    Ok(conclude(&kinds))
}

/// The endpoint tests alone.
pub(crate) fn endpoints_only(with_compose: bool) -> Result<bool, String> {
    let mut steps = Steps { done: 0, of: 1 + DEPLOYMENTS.len() + usize::from(with_compose) };
    let redis = servers::find_or_install()?;
    steps.next("building; the first time takes a minute or two");
    build(&["test", "--no-run", "--test", "it"])?;
    Ok(conclude(&all_endpoints(with_compose, &redis, &mut steps)?))
}

fn all_endpoints(with_compose: bool, redis: &Path, steps: &mut Steps) -> Result<Vec<Kind>, String> {
    let certs = certificates()?;
    let mut kinds = Vec::new();
    for kind in DEPLOYMENTS {
        steps.next(&format!("endpoint tests on private servers: {}", kind.name()));
        let done = Private::start(kind, redis, &certs).and_then(|servers| {
            println!("servers: {}", servers.version());
            endpoint("endpoint", kind, &servers.url(), redis, &certs)
        });
        kinds.push(done.unwrap_or_else(|reason| not_run("endpoint", kind, reason)));
    }
    if with_compose {
        steps.next("endpoint tests on the services of docker-compose.yml");
        kinds.extend(run_compose(redis, &certs));
    }
    Ok(kinds)
}

/// Says what is being done, and how far it is.
struct Steps {
    done: usize,
    of: usize,
}

impl Steps {
    fn next(&mut self, what: &str) {
        self.done += 1;
        println!("\n== {} of {}: {what}", self.done, self.of);
    }
}

/// For servers with TLS, here and in containers.
pub(crate) fn certificates() -> Result<PathBuf, String> {
    let directory = crate::root().join("target/certs");
    certs::write(&directory, &[])?;
    directory.canonicalize().map_err(|error| format!("{}: {error}", directory.display()))
}

/// The tests that any deployment must pass, on this one.
fn endpoint(
    row: &str,
    kind: topologies::Kind,
    url: &str,
    redis: &Path,
    certs: &Path,
) -> Result<Kind, String> {
    let mut command = test_command(&["--test", "it", "endpoint::"], redis, url);
    command.env("REDIS_CA", certs.join("ca.crt"));
    let done = process::run(command, KIND_LIMIT, Echo::On)?;
    Ok(self::kind(&format!("{row} {}", kind.name()), done))
}

/// Every example, once.
pub(crate) fn examples_only() -> Result<bool, String> {
    let server = Server::start(&servers::find_or_install()?)?;
    build(&["build", "--examples"])?;
    let kind = examples(&server)?;
    Ok(print_table(&[kind]))
}

/// The integration tests, `count` times. True if all runs passed.
pub(crate) fn repeat(count: u32) -> Result<bool, String> {
    let redis = servers::find_or_install()?;
    let server = Server::start(&redis)?;
    println!("server: {}", server.version()?);
    build(&["test", "--no-run", "--test", "it"])?;
    let mut failed = 0;
    for run in 1..=count {
        let done = run_tests(&["--test", "it"], &redis, &server.url(), Echo::Off)?;
        let counts = counts(&done.output);
        let good = done.success && counts.passed > 0;
        let word = if good { "ok" } else { "FAILED" };
        println!(
            "run {run}/{count}: {word}, {} passed, {:.1} s",
            counts.passed,
            done.took.as_secs_f64()
        );
        if !good {
            failed += 1;
            println!("{}", done.output.trim_end());
        }
    }
    println!("{} runs passed, {failed} failed", count - failed);
    Ok(failed == 0)
}

fn build(args: &[&str]) -> Result<(), String> {
    let mut command = cargo(args);
    command.arg(FEATURES);
    match process::run(command, BUILD_LIMIT, Echo::On)? {
        Finished { success: true, .. } => Ok(()),
        Finished { timed_out: true, .. } => Err("the build did not end in time".into()),
        _ => Err("the build failed".into()),
    }
}

/// The test binaries: `tests/NAME.rs` and `tests/NAME/main.rs`.
fn test_targets() -> Result<BTreeSet<String>, String> {
    let mut targets = targets_in(&crate::root().join("tests"))?;
    // Without them their row would be missing instead of 0.
    targets.extend(["it".to_owned(), "layers".to_owned()]);
    Ok(targets)
}

fn targets_in(dir: &Path) -> Result<BTreeSet<String>, String> {
    let entries = std::fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let target = |path: PathBuf| {
        let source =
            path.extension().is_some_and(|ending| ending == "rs") || path.join("main.rs").is_file();
        source.then(|| path.file_stem().map(|stem| stem.to_string_lossy().into_owned())).flatten()
    };
    Ok(entries.flatten().filter_map(|entry| target(entry.path())).collect())
}

/// `cargo test` with the arguments given, told where the servers are.
fn run_tests(args: &[&str], redis: &Path, url: &str, echo: Echo) -> Result<Finished, String> {
    process::run(test_command(args, redis, url), KIND_LIMIT, echo)
}

fn test_command(args: &[&str], redis: &Path, url: &str) -> Command {
    let mut command = cargo(&["test", FEATURES]);
    command.args(args).env("REDIS_SERVER", redis).env("REDIS_URL", url);
    // Integration tests wait for servers most of the time, and many unit tests for time to pass:
    // more of them at a time than cores.
    let for_each_core = if args.contains(&"it") {
        3
    } else if args.contains(&"--lib") {
        2
    } else {
        1
    };
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    command.env("RUST_TEST_THREADS", (for_each_core * cores).to_string());
    command
}

fn cargo_test(name: &str, args: &[&str], redis: &Path, server: &Server) -> Result<Kind, String> {
    let done = run_tests(args, redis, &server.url(), Echo::On)?;
    Ok(kind(name, done))
}

fn xtask_tests() -> Result<Kind, String> {
    let done = process::run(cargo(&["test", "--package", "xtask"]), BUILD_LIMIT, Echo::On)?;
    Ok(kind("xtask", done))
}

pub(crate) fn kind(name: &str, done: Finished) -> Kind {
    let mut counts = counts(&done.output);
    let why = match (done.timed_out, done.success, counts.failed) {
        (true, ..) => Some("did not end in time"),
        (_, false, 0) => Some("ended with an error; see its output above"),
        _ => None,
    };
    if let Some(why) = why {
        counts.failed += 1;
        counts.failures.push(why.to_owned());
    }
    Kind { name: name.to_owned(), took: done.took, counts }
}

/// Adds up what test binaries print.
pub(crate) fn counts(output: &str) -> Counts {
    let mut counts = Counts::default();
    for line in output.lines() {
        // Of a test, which may write it in the middle of another's line.
        if let Some((_, test)) = line.split_once("NOT RUN: ") {
            counts.not_run.push(test.to_owned());
        }
        if let Some(rest) = line.strip_prefix("test result: ") {
            let number = |what: &str| {
                let part = rest.split(['.', ';']).find_map(|part| part.trim().strip_suffix(what));
                part.and_then(|number| number.trim().parse::<usize>().ok()).unwrap_or(0)
            };
            counts.passed += number("passed");
            counts.failed += number("failed");
            counts.ignored += number("ignored");
        } else if let Some(test) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            counts.failures.push(test.to_owned());
        }
    }
    counts.passed = counts.passed.saturating_sub(counts.not_run.len());
    counts
}

fn examples(server: &Server) -> Result<Kind, String> {
    let mut counts = Counts::default();
    let mut took = Duration::ZERO;
    for name in targets_in(&crate::root().join("examples"))? {
        let mut command = cargo(&["run", "--quiet", FEATURES, "--example", &name]);
        command.env("REDIS_URL", server.url());
        let done = process::run(command, EXAMPLE_LIMIT, Echo::Off)?;
        took += done.took;
        let word = if done.success { "ok" } else { "FAILED" };
        println!("example {name} ... {word} ({:.1} s)", done.took.as_secs_f64());
        if done.success {
            counts.passed += 1;
        } else {
            println!("{}", done.output.trim_end());
            counts.failed += 1;
            counts.failures.push(name);
        }
    }
    Ok(Kind { name: "examples".into(), took, counts })
}

/// The endpoint tests against every service of the compose file.
fn run_compose(redis: &Path, certs: &Path) -> Vec<Kind> {
    let stack = match compose::up(certs) {
        Ok(stack) => stack,
        Err(reason) => {
            return DEPLOYMENTS.map(|kind| not_run(COMPOSE, kind, reason.clone())).into();
        }
    };
    let test = |kind| {
        endpoint(COMPOSE, kind, &stack.url(kind), redis, certs)
            .unwrap_or_else(|reason| not_run(COMPOSE, kind, reason))
    };
    let mut kinds = Vec::from(DEPLOYMENTS.map(test));
    if let Err(reason) = stack.down() {
        kinds.push(not_run(COMPOSE, topologies::Kind::Single, reason));
    }
    kinds
}

/// Tests that could not be run: a failure, with the reason.
fn not_run(row: &str, kind: topologies::Kind, reason: String) -> Kind {
    println!("not run: {reason}");
    let counts = Counts { failed: 1, failures: vec![reason], ..Counts::default() };
    Kind { name: format!("{row} {}", kind.name()), took: Duration::ZERO, counts }
}

/// Prints the closing table, and below it what could not be run at all.
fn conclude(kinds: &[Kind]) -> bool {
    let passed = print_table(kinds);
    let compose = || kinds.iter().filter(|kind| kind.name.starts_with(COMPOSE));
    if compose().count() > 0 && compose().all(|kind| kind.counts.passed == 0) {
        println!("NOT RUN: {COMPOSE}");
    }
    passed
}

/// Prints the closing table. True if nothing failed and nothing was empty.
pub(crate) fn print_table(kinds: &[Kind]) -> bool {
    println!(
        "\n{:<18} {:>7} {:>7} {:>8} {:>8} {:>9}",
        "kind", "passed", "failed", "ignored", "not run", "time"
    );
    for Kind { name, took, counts } in kinds {
        let Counts { passed, failed, ignored, not_run, .. } = counts;
        let (not_run, took) = (not_run.len(), took.as_secs_f64());
        println!("{name:<18} {passed:>7} {failed:>7} {ignored:>8} {not_run:>8} {took:>7.1} s");
    }
    let mut failures = Vec::new();
    for Kind { name, counts, .. } in kinds {
        failures.extend(counts.failures.iter().map(|failure| format!("{name}: {failure}")));
        if counts.passed + counts.failed == 0 {
            failures.push(format!("{name}: there are no such tests"));
        }
    }
    for Kind { name, counts, .. } in kinds {
        counts.not_run.iter().for_each(|test| println!("NOT RUN {name}: {test}"));
    }
    for failure in &failures {
        println!("FAILED {failure}");
    }
    let passed: usize = kinds.iter().map(|kind| kind.counts.passed).sum();
    let failed: usize = kinds.iter().map(|kind| kind.counts.failed).sum();
    let not_run: usize = kinds.iter().map(|kind| kind.counts.not_run.len()).sum();
    println!("\n{passed} passed, {failed} failed, {not_run} not run");
    failures.is_empty() && failed == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_binaries_add_up() {
        let output = "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\n\
            test result: FAILED. 1 passed; 1 failed; 3 ignored; 0 measured; 7 filtered out; finished in 0.00s\n\
            test result: ok. 20 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s\n";
        let failures = vec!["a::c".to_owned()];
        let expected = Counts { passed: 21, failed: 1, ignored: 3, failures, not_run: Vec::new() };
        assert_eq!(counts(output), expected);
    }

    #[test]
    fn what_was_not_run_has_not_passed() {
        let output = "test a ... NOT RUN: a::b: needs sharded pub/sub, this is Redis 6.2.16\nok\ntest a::b ... ok\n\
            test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let counts = counts(output);
        assert_eq!((counts.passed, counts.failed), (1, 0));
        assert_eq!(counts.not_run, ["a::b: needs sharded pub/sub, this is Redis 6.2.16"]);
    }

    /// Cargo builds a crate once for each set of features. What needs a crate without one of the
    /// features that the tests need would have it built again, and all that stands on it.
    #[test]
    fn programs_need_shared_crates_with_the_features_of_the_tests() {
        let tests = crates("normal,build,dev", &["redis-reentrant-lock", "puppet"], FEATURES);
        assert!(tests.iter().any(|line| line.starts_with("tokio v")), "{tests:?}");
        let programs = [
            (&["puppet"][..], FEATURES),
            (&["chaos", "redis-reentrant-lock"], FEATURES),
            (&["processes", "redis-reentrant-lock"], FEATURES),
            (&["certs"], "--no-default-features"),
        ];
        for (packages, features) in programs {
            let needed = crates("normal,build", packages, features);
            let is_shared = |line: &&String| tests.iter().any(|other| name(other) == name(line));
            let others: Vec<_> = needed.difference(&tests).filter(is_shared).collect();
            assert!(
                others.is_empty(),
                "{packages:?}: add features to tests/same-features for {others:?}"
            );
        }
    }

    /// With its version: another one is another crate.
    fn name(line: &str) -> Vec<&str> {
        line.split(' ').take(2).collect()
    }

    /// The crates of the registry that packages need, each with its features.
    fn crates(edges: &str, packages: &[&str], features: &str) -> BTreeSet<String> {
        let mut command =
            cargo(&["tree", "--prefix", "none", "--format", "{p} {f}", "--edges", edges]);
        command.arg(features).args(packages.iter().flat_map(|package| ["--package", package]));
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let text = String::from_utf8(done.stdout).unwrap();
        let lines = text.lines().map(|line| line.trim_end_matches(" (*)").trim_end());
        // With a path: of this workspace.
        lines.filter(|line| !line.is_empty() && !line.contains('/')).map(str::to_owned).collect()
    }
}
