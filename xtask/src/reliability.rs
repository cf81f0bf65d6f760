//! `cargo xtask reliability`: the checks that are counted, and the report that says how many.

mod report;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::process;
use crate::process::Echo;
use crate::seeded::Rule;
use crate::servers;
use crate::tools;

const REPORT: &str = "reliability-report.json";
/// The page that quotes it.
const PAGE: &str = "docs/proof.md";
const PART_LIMIT: Duration = Duration::from_secs(2_400);

/// What is run: the words behind `cargo xtask`. Each prints lines of JSON with a field `part`.
const PARTS: &[&[&str]] = &[
    &["sim", "--seeds", "0..50000"],
    &["sim-redlock", "--seeds", "0..1000"],
    &["random-scripts", "--sequences", "6000", "--steps", "50"],
    &["seeded"],
    &["model"],
    &["threads"],
    &["lua-mutants"],
    &["small-faults"],
    &["chaos", "--histories", "120"],
    &["fair-order"],
    &["chaos-redlock", "--histories", "60"],
    &["second-opinion", "--histories", "20"],
    &["load"],
    &["fuzz-smoke", "250000"],
    &["coverage"],
];

/// What a figure has to be at least: its part, its field, and what it is called.
const BARS: &[(&str, &str, u64, &str)] = &[
    ("simulation", "seeds", 50_000, "simulated runs"),
    ("redlock-simulation", "seeds", 1_000, "simulated runs of Redlocks"),
    ("redlock-simulation", "grants", 30_000, "grants in them"),
    ("scripts", "calls", 500_000, "script calls, in the model, in memory and on Redis"),
    ("seeded_bugs", "found", Rule::ALL.len() as u64, "seeded bugs found"),
    ("model", "states", 1_000_000, "states of the protocol models, all rules broken in turn"),
    ("threads", "models", 6, "models of threads"),
    ("lua-mutants", "killed", 200, "mutants of the scripts noticed"),
    ("every-poll", "drops", 1_000, "futures dropped, after every number of polls"),
    ("every-byte", "requests", 1_000, "connections cut, at every byte of every request and reply"),
    ("server-errors", "errors", 40, "errors of servers, before and after each script"),
    ("acl", "removed", 15, "permissions taken away, one at a time"),
    ("chaos", "histories", 120, "histories of real processes"),
    ("chaos", "operations", 220_000, "operations in them"),
    ("chaos", "histories_with_read_write", 30, "of them with read-write locks"),
    ("chaos", "histories_with_semaphore", 30, "of them with semaphores"),
    ("chaos", "histories_with_latch", 30, "of them with count-down latches"),
    ("chaos", "histories_with_flight", 30, "of them with single flight"),
    ("chaos", "histories_with_fair", 30, "of them with fair locks"),
    ("chaos", "fair_grants_in_turn", 3_000, "grants of fair locks whose turn was checked"),
    ("chaos", "server_kills", 200, "servers killed and restarted while something was held"),
    ("chaos", "client_kills", 200, "processes killed"),
    ("chaos", "client_stops", 200, "processes frozen for longer than their leases"),
    ("chaos", "sentinel_failovers", 5, "failovers by sentinels"),
    ("chaos", "cluster_failovers", 5, "failovers in a cluster"),
    ("chaos", "slot_moves", 20, "slots moved with what is locked in them"),
    ("fair-order", "grants", 100_000, "grants of one fair lock, in the order of their tickets"),
    ("chaos-redlock", "histories", 60, "histories of a Redlock over five servers"),
    ("chaos-redlock", "grants", 3_000, "grants in them"),
    ("chaos-redlock", "server_losses", 400, "servers started without the data that they had"),
    ("chaos-redlock", "clock_steps", 40, "clocks of servers set forward or back"),
    ("second-opinion", "operations", 30_000, "operations that another checker looked at, too"),
    ("load", "holds", 10_000, "watched holds, for 60 s"),
    ("load", "waiters_served", 3_000, "waiters of one lock in 4 processes, in three rounds"),
    ("load", "leak_operations", 1_000_000, "locks and unlocks in one process"),
    ("load", "leak_cancelled", 100_000, "futures dropped beside them"),
    ("load", "losses_signals", 3_000, "holds lost with their server, their key, their time"),
    ("fuzz-smoke", "inputs", 1_000_000, "inputs of the fuzz targets"),
    ("names", "names", 200, "lock names, refused or with a place of their own"),
    ("coverage", "permille", 950, "of 1,000 lines of the core are run by tests"),
];

/// What a figure may be at most.
const LIMITS: &[(&str, &str, u64, &str)] = &[
    ("fair-order", "violations", 0, "of those grants overtook an earlier ticket"),
    ("load", "holds_lost", 0, "of those holds lost"),
    (
        "load",
        "holds_late_p99_us",
        600_000,
        "us by which renewals are late, p99: a tenth of the lease",
    ),
    ("load", "holds_left", 0, "things left of the holds"),
    ("load", "waiters_lost_wake_ups", 0, "wake-ups lost"),
    ("load", "waiters_overlaps", 0, "grants that overlap, or with a token that is not higher"),
    ("load", "waiters_commands_per_100_grants", 500, "commands for 100 grants: processes + 1 each"),
    ("load", "waiters_left", 0, "things left of the waiters"),
    (
        "load",
        "leak_bytes_per_1000_operations",
        1_000,
        "bytes that 1,000 operations leave in memory",
    ),
    ("load", "leak_left", 0, "things left of the operations"),
    ("load", "losses_held_too_long", 0, "holds believed in after valid_until"),
    ("load", "losses_told_after_key_end", 0, "losses told after the key may have ended"),
];

/// What the page says, with the figures of the report.
const SENTENCES: &[&str] = &[
    "Simulation: {simulation.seeds} runs of several clients on one server or a cluster, with faults drawn from a seed. They \
     cover {simulation.virtual_hours} hours of virtual time, {simulation.grants} grants, {simulation.breaches} faults in which \
     Redis lost data or a clock went wrong, and {simulation.losses} holds that were lost and reported as lost. No rule was \
     broken.",
    "Simulation of Redlocks: {redlock-simulation.seeds} runs of several processes over three or five servers, with \
     {redlock-simulation.grants} grants. {redlock-simulation.restarts} times a server was started without its data, often a majority at \
     once; {redlock-simulation.kills} processes were killed, and {redlock-simulation.freezes} frozen. Nobody was granted what another \
     held, and tokens grew.",
    "Seeded bugs: {seeded_bugs.of} rules were broken in the code, one at a time, and {seeded_bugs.found} of these bugs were \
     found by the simulation or a unit test.",
    "Scripts: {scripts.calls} random calls gave the same replies, keys and messages in a model that was written from the \
     description of the protocol, in the embedded interpreter, and on Redis. {lua-mutants.killed} of \
     {lua-mutants.mutants} mutants of the scripts were noticed; the others behave exactly like the script.",
    "Protocol: {model.states} states of its models keep every promise, and each of {model.rules} rules, when left out, \
     breaks one.",
    "Threads: loom and shuttle tried {threads.interleavings} interleavings of {threads.models} models, and noticed \
     {threads.noticed} of {threads.broken} rules that were broken on purpose.",
    "Small faults, all of them: {every-poll.drops} futures dropped, one after each number of polls; connections cut at each \
     of {every-byte.requests} bytes of requests and {every-byte.replies} bytes of replies; {server-errors.answers} errors in \
     answer to scripts that had run or had not; {acl.removed} permissions taken away, one at a time.",
    "Chaos: {chaos.histories} histories of real processes on real servers, with {chaos.operations} operations. \
     {chaos.histories_with_reentrant} of them had reentrant locks, {chaos.histories_with_read_write} read-write locks, \
     {chaos.histories_with_semaphore} semaphores, {chaos.histories_with_latch} latches, \
     {chaos.histories_with_flight} single flight and {chaos.histories_with_fair} fair locks; some had all of these. Servers were killed {chaos.server_kills} times while something was held. Processes were killed {chaos.client_kills} times, and frozen \
     for longer than their leases {chaos.client_stops} times. There were {chaos.sentinel_failovers} failovers by sentinels and \
     {chaos.cluster_failovers} in clusters, and {chaos.slot_moves} slots were moved. {chaos.violations} violations were \
     found; {chaos.undecided} names had too long a history for the checker. {chaos.overlaps_in_breaches} times, a restart or \
     a failover had lost a hold, and its holder still believed in it when the next one was granted: two holders at once.",
    "Order: {fair-order.grants} grants of one fair lock to {fair-order.tasks} tasks in {fair-order.processes} processes \
     went by the tickets that Redis had given, and {fair-order.violations} overtook an earlier one. Meanwhile \
     {fair-order.given_up} waits were given up, and processes were killed {fair-order.processes_killed} times and frozen \
     {fair-order.processes_frozen} times.",
    "Redlock: {chaos-redlock.histories} more histories over five servers, with {chaos-redlock.grants} grants. \
     {chaos-redlock.server_kills} times a server was killed while something was held, and {chaos-redlock.server_losses} \
     times one was started without its data, mostly three of five within a lease. Clocks of a minority were set forward or \
     back {chaos-redlock.clock_steps} times. {chaos-redlock.violations} violations \
     were found: a majority that has lost its data is no breach.",
    "Second opinion: Porcupine, a checker that shares no code with the one above, looked at {second-opinion.operations} \
     operations on {second-opinion.names} names in {second-opinion.histories} histories. It found {second-opinion.wrong} that no \
     lock of their kind could have answered, and gave up on {second-opinion.undecided}.",
    "Load: {load.holds} watched holds were renewed for 60 s, and {load.holds_lost} were lost. {load.waiters_served} waits for \
     one lock in 4 processes were served, and {load.waiters_lost_wake_ups} wake-ups were lost. {load.leak_operations} \
     operations and {load.leak_cancelled} cancellations left {load.leak_left} things behind. {load.losses_signals} holds were \
     lost in three ways, and {load.losses_held_too_long} of them were reported as held after their time.",
    "Coverage: unit tests, and integration tests with one server, run {coverage.permille} of every 1,000 lines of the core.",
];

/// True if every part passed and every bar is met. A good report of all parts is quoted in
/// docs/proof.md, too.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let (mut out, mut only) = (crate::root().join(REPORT), None);
    for (option, value) in pairs(args)? {
        match option {
            "--out" => out = PathBuf::from(value),
            "--only" => only = Some(value.split(',').collect::<Vec<_>>()),
            _ => return Err("reliability wants nothing, --out FILE, or --only PART,PART".into()),
        }
    }
    let known = |part: &&str| PARTS.iter().any(|words| words[0] == *part);
    if let Some(unknown) = only.iter().flatten().find(|part| !known(part)) {
        return Err(format!("no such part: {unknown}"));
    }
    let wanted = |part: &str| only.as_ref().is_none_or(|only| only.contains(&part));
    if wanted("coverage") && !tools::can_count_lines() {
        // Said now, not after the half hour that the parts before it take.
        return Err(format!(
            "the part `coverage` needs `{}`; --only runs the others",
            tools::LLVM_TOOLS
        ));
    }
    // Of parts that are not run now, what is known of them stays.
    let mut runs = if only.is_some() { report::read(&out)? } else { Vec::new() };
    runs.retain(|run| run["run"].as_str().is_some_and(|part| !wanted(part)));
    for words in PARTS.iter().filter(|words| wanted(words[0])) {
        runs.push(run_part(words)?);
        report::write(&out, &runs)?;
    }
    println!("{}", out.display());
    let report = json!({ "runs": runs });
    let met = report::print_bars(&report, BARS, LIMITS);
    let failed = runs
        .iter()
        .filter(|run| run["passed"] != true)
        .inspect(|run| println!("FAILED {}", run["run"]));
    let good = failed.count() == 0 && met;
    if good && runs.len() == PARTS.len() && out == crate::root().join(REPORT) {
        report::quote(&crate::root().join(PAGE), &report::list(&report, SENTENCES)?)?;
        println!("{PAGE} quotes it");
    }
    Ok(good)
}

/// Runs a part: what it printed, and of which commit, with which programs.
fn run_part(words: &[&str]) -> Result<Value, String> {
    println!("== {}", words.join(" "));
    let commit = commit();
    let done = process::run(ourselves(words)?, PART_LIMIT, Echo::On)?;
    println!("== {}: {} s", words[0], done.took.as_secs());
    Ok(json!({
        "run": words[0],
        "command": format!("cargo xtask {}", words.join(" ")),
        "passed": done.success,
        "seconds": done.took.as_secs(),
        "commit": commit,
        "redis": process::first_line(Command::new(servers::find_or_install()?).arg("--version")),
        "rustc": process::first_line(Command::new("rustc").arg("--version")),
        "figures": figures(&done.output),
    }))
}

/// This program, with other words.
pub(crate) fn ourselves(words: &[&str]) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(words).current_dir(crate::root());
    Ok(command)
}

/// The lines of JSON that name a part; tests may have a dot before them.
pub(crate) fn figures(output: &str) -> Vec<Value> {
    let read = |line: &str| serde_json::from_str(&line[line.find("{\"part\":")?..]).ok();
    output.lines().filter_map(read).collect()
}

/// Options and their values.
pub(crate) fn pairs<'a>(args: &[&'a str]) -> Result<Vec<(&'a str, &'a str)>, String> {
    if !args.len().is_multiple_of(2) {
        return Err("each option wants a value".into());
    }
    Ok(args.chunks(2).map(|pair| (pair[0], pair[1])).collect())
}

/// Of what was run, and whether there were changes that are not in it. The report itself changes
/// with each part.
fn commit() -> String {
    let not_the_report = format!(":!{REPORT}");
    let git = |words: &[&str]| {
        process::first_line(Command::new("git").args(words).current_dir(crate::root()))
    };
    let changed = ["status", "--porcelain", "--untracked-files=no", "--", ".", &not_the_report];
    let changed = !git(&changed).is_empty();
    git(&["rev-parse", "HEAD"]) + if changed { ", with changes" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_taken_from_what_parts_print() {
        let lines =
            figures("running\n..{\"part\":\"simulation\",\"seeds\":3}\n{\"other\":1}\n{\"part\":");
        assert_eq!(lines, [json!({"part": "simulation", "seeds": 3})]);
    }
}
