//! The loads that all kinds can be put under, and how blocks of kinds alternate.

use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::servers::Server;

use super::Plan;
use super::awake::Awake;
use super::figures::Sent;
use super::figures::median;
use super::figures::number;
use super::figures::numbers;
use super::figures::percentile;
use super::fleet::Worker;
use super::programs::FLOORS;
use super::programs::LOCAL;
use super::programs::OWN;
use super::programs::Programs;
use super::programs::RAW;
use super::programs::RELAY;
use super::programs::compiles;
use super::programs::everybody;
use super::redis_benchmark;
use super::report::Report;
use super::report::Row;
use super::report::State;
use super::server_time;

/// For all the blocks of a peer under one load.
const ENOUGH: Duration = Duration::from_secs(120);

/// Figures that are told of the worst block as well: a median hides the one that waited for long.
const TOLD_OF_THE_WORST: &[&str] = &[
    "wait max",
    "max/mean",
    "write wait max",
    "beyond readers",
    "held at most",
    "wait of 8 / mean",
];

/// Of each process.
#[derive(Default)]
struct Crowd {
    tasks: u64,
    /// Each on its own name.
    distinct: bool,
    /// How long each keeps the lock, in microseconds.
    hold_us: u64,
}

/// One kind that blocks alternate with others.
pub(super) struct Case {
    pub(super) load: String,
    pub(super) kind: &'static str,
    /// How names are taken.
    pub(super) mode: &'static str,
}

/// What one kind did in one block.
pub(super) struct Block {
    /// What is compared: a time in microseconds, or grants per second.
    pub(super) main: f64,
    /// Single times in microseconds, where the load tells them.
    pub(super) samples: Vec<f64>,
    pub(super) grants: f64,
    pub(super) others: Vec<(&'static str, f64)>,
}

/// What the processes of a case do in one block.
type Measure<'a> = dyn FnMut(&mut [Worker], &Case) -> Result<Block, String> + 'a;

pub(crate) fn all(
    plan: &Plan,
    programs: &Programs,
    server: &Server,
    beside: &Server,
    report: &mut Report,
) -> Result<(), String> {
    let at = server.url();
    let mut bench = Bench { plan, programs, server, beside, at, report };
    if plan.wants("uncontended") {
        bench.uncontended()?;
        server_time::all(plan, programs, server, bench.report)?;
    }
    if plan.wants("hand-over") {
        bench.hand_over_awake_and_asleep()?;
    }
    if plan.wants("one-name") {
        for tasks in [2, 8, 64] {
            bench.crowd(&format!("one-name-{tasks}"), 1, Crowd { tasks, ..Crowd::default() })?;
        }
    }
    if plan.wants("processes") {
        bench.crowd("processes-4x16", 4, Crowd { tasks: 16, ..Crowd::default() })?;
    }
    if plan.wants("kept") {
        bench.crowd("kept-8x1", 8, Crowd { tasks: 1, hold_us: 20_000, ..Crowd::default() })?;
    }
    if plan.wants("distinct") {
        for tasks in [1, 8, 64, 1_000] {
            let each = Crowd { tasks, distinct: true, ..Crowd::default() };
            bench.crowd(&format!("distinct-{tasks}"), 1, each)?;
        }
    }
    bench.shared()
}

pub(super) struct Bench<'a> {
    pub(super) plan: &'a Plan,
    pub(super) programs: &'a Programs,
    pub(super) server: &'a Server,
    /// Another one, for counters and values.
    pub(super) beside: &'a Server,
    /// What workers are told.
    pub(super) at: String,
    pub(super) report: &'a mut Report,
}

impl Bench<'_> {
    pub(super) fn kinds(&mut self, load: &str, kinds: &[&'static str]) -> Vec<&'static str> {
        self.plan.kinds(load, self.programs, kinds, self.report)
    }

    fn uncontended(&mut self) -> Result<(), String> {
        let pairs = self.plan.pairs();
        let kinds = self.kinds("uncontended", &everybody());
        self.alternate(&locks("uncontended", &kinds), 1, &mut |workers, _| {
            pairs_of(&mut workers[0], pairs, "lock")
        })?;
        let floor = redis_benchmark::pair(self.server)?;
        self.report.note("redis-benchmark -c 1, twice the median of the acquire script, us", floor);
        Ok(())
    }

    /// With cores that do not sleep while a lock is held, and with cores that do, for those whom a
    /// bar is about.
    fn hand_over_awake_and_asleep(&mut self) -> Result<(), String> {
        let kinds: Vec<_> = everybody().into_iter().chain([RAW]).collect();
        let awake = Awake::start();
        self.hand_over("hand-over", &kinds)?;
        let mut awake = match awake {
            Ok(awake) => awake,
            Err(reason) => {
                self.report.tell("cores in hand-over", format!("left to sleep: {reason}"));
                return Ok(());
            }
        };
        let said =
            if awake.lasts() { "kept awake" } else { "kept awake for a part of the time only" };
        self.report.tell("cores in hand-over", said.to_owned());
        drop(awake);
        let kinds = [FLOORS[1], OWN[1], FLOORS[0], OWN[0], "rueidislock", "redisson", RAW];
        self.hand_over("hand-over-asleep", &kinds)
    }

    fn hand_over(&mut self, load: &str, kinds: &[&'static str]) -> Result<(), String> {
        let turns = if self.plan.quick { 15 } else { 40 };
        let kinds = self.kinds(load, kinds);
        self.alternate(&locks(load, &kinds), 2, &mut |workers, _| {
            let name = format!("turns:{}", workers[0].pid);
            let load =
                json!({ "do": "turns", "name": name, "count": turns, "hold_us": 3_000, "pause_us": 1_000 });
            let answers = together(workers, &load)?;
            Ok(hand_overs(&answers))
        })
    }

    fn crowd(&mut self, load: &str, processes: usize, crowd: Crowd) -> Result<(), String> {
        let Crowd { tasks, distinct, hold_us } = crowd;
        let mut wanted = everybody();
        let length = if hold_us > 0 {
            // Nothing about it is a matter of the client's speed.
            wanted.retain(|kind| !FLOORS.contains(kind));
            // Six turns for each process.
            50 * hold_us
        } else if self.plan.quick {
            100_000
        } else {
            250_000
        };
        if processes > 1 && tasks > 1 {
            wanted.push("thread-no-hand-off");
        }
        if processes == 1 && !distinct {
            wanted.push(RELAY);
        }
        let kinds = self.kinds(load, &wanted);
        let name = load.to_owned();
        self.alternate(&locks(load, &kinds), processes, &mut |workers, _| {
            let name = format!("{name}:{}", workers[0].pid);
            let tasks = if workers[0].kind == RELAY { 1 } else { tasks };
            let load = json!({
                "do": "crowd", "name": name, "tasks": tasks, "distinct": distinct,
                "us": length, "hold_us": hold_us,
            });
            let answers = together(workers, &load)?;
            Ok(crowd_of(&answers))
        })
    }

    /// Blocks of all cases in turn, after one of each that does not count.
    pub(super) fn alternate(
        &mut self,
        cases: &[Case],
        processes: usize,
        block: &mut Measure<'_>,
    ) -> Result<(), String> {
        for case in cases {
            println!("{}: {}", case.load, case.kind);
        }
        let mut fleet: Vec<Vec<Worker>> = Vec::new();
        let mut done: Vec<(Vec<Block>, Sent)> =
            cases.iter().map(|_| (Vec::new(), Sent::default())).collect();
        let mut failed: Vec<Option<String>> = vec![None; cases.len()];
        for (at, case) in cases.iter().enumerate() {
            fleet.push(self.start(case, processes).or_else(|reason| {
                peer_failed(case.kind, reason, &mut failed[at]).map(|()| Vec::new())
            })?);
        }
        let mut took = vec![Duration::ZERO; cases.len()];
        let mut connection = self.server.connect().map_err(|error| error.to_string())?;
        for (round, at) in self.plan.turns(cases.len()) {
            if failed[at].is_some() {
                continue;
            }
            let before = Sent::so_far(&mut connection).map_err(|error| error.to_string())?;
            let started = Instant::now();
            let result = block(&mut fleet[at], &cases[at]);
            took[at] += started.elapsed();
            let after = Sent::so_far(&mut connection).map_err(|error| error.to_string())?;
            match result {
                Ok(_) if round == 0 => {}
                Ok(result) => {
                    done[at].0.push(result);
                    done[at].1.add(after.since(before));
                    failed[at] = too_slow(cases[at].kind, took[at]);
                }
                Err(reason) => {
                    peer_failed(cases[at].kind, reason, &mut failed[at])?;
                    fleet[at].clear();
                }
            }
        }
        for ((case, (blocks, sent)), failed) in cases.iter().zip(done).zip(failed) {
            self.report.add(row(&case.load, case.kind, &blocks, sent, failed));
        }
        Ok(())
    }

    /// So many processes of its kind, or the only one that there can be.
    fn start(&self, case: &Case, processes: usize) -> Result<Vec<Worker>, String> {
        let processes = if case.kind == LOCAL { 1 } else { processes };
        let start = |_| {
            let mut worker = Worker::at(self.programs, case.kind, &self.at)?;
            // Virtual machines that compile have had 2,000 pairs of a lock by now.
            if case.mode != "lock" && compiles(case.kind) {
                pairs_of(&mut worker, 2_000, case.mode)?;
            }
            Ok(worker)
        };
        (0..processes).map(start).collect()
    }
}

/// Cases of one load that take names as locks.
fn locks(load: &str, kinds: &[&'static str]) -> Vec<Case> {
    taken("lock", load, kinds)
}

/// Cases of one load.
pub(super) fn taken(mode: &'static str, load: &str, kinds: &[&'static str]) -> Vec<Case> {
    kinds.iter().map(|kind| Case { load: load.to_owned(), kind, mode }).collect()
}

/// One task that takes a name and gives it back, and nobody else.
pub(super) fn pairs_of(worker: &mut Worker, pairs: u32, mode: &str) -> Result<Block, String> {
    let name = format!("pairs:{mode}:{}", worker.pid);
    let (want, of) = if mode == "multi" { (4, 4) } else { (1, 8) };
    let load = json!({
        "do": "pairs", "name": name, "count": pairs, "mode": mode, "of": of, "want": want,
    });
    let times = micros(&numbers(&worker.ask(&load)?, "ns"));
    let grants = f64::from(pairs);
    Ok(Block { main: median(&times), samples: times, grants, others: Vec::new() })
}

/// Some peers stall; that is a result, too. Not so with this crate.
fn peer_failed(kind: &str, reason: String, failed: &mut Option<String>) -> Result<(), String> {
    if OWN.contains(&kind) {
        return Err(reason);
    }
    println!("  {reason}");
    *failed = Some(reason);
    Ok(())
}

/// Ends what would take hours because of waiters that are woken by nothing but an expiry.
fn too_slow(kind: &str, took: Duration) -> Option<String> {
    (took > ENOUGH && !OWN.contains(&kind)).then(|| {
        let reason = format!("{kind} has taken {} s for its blocks so far", took.as_secs());
        println!("  {reason}");
        reason
    })
}

fn row(load: &str, kind: &str, blocks: &[Block], sent: Sent, failed: Option<String>) -> Row {
    let mains: Vec<f64> = blocks.iter().map(|block| block.main).collect();
    let samples: Vec<f64> = blocks.iter().flat_map(|block| block.samples.iter().copied()).collect();
    let grants: f64 = blocks.iter().map(|block| block.grants).sum();
    let mut row = Row::new(load, kind, mains);
    if let Some(reason) = failed {
        row.state = State::Stalled(reason);
    }
    if blocks.is_empty() {
        return row;
    }
    if !samples.is_empty() {
        for (name, share) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)] {
            row.figure(name, percentile(&samples, share));
        }
        row.quantiles =
            (0..=100).map(|step| percentile(&samples, f64::from(step) / 100.0)).collect();
    }
    row.figure("grants", grants);
    row.figure("evalsha/grant", sent.scripts / grants);
    row.figure("sub/grant", sent.subscriptions / grants);
    row.figure("script us", sent.usec / sent.scripts.max(1.0));
    let names: Vec<&str> = blocks
        .first()
        .map_or(Vec::new(), |block| block.others.iter().map(|(name, _)| *name).collect());
    for (at, name) in names.into_iter().enumerate() {
        let values: Vec<f64> = blocks.iter().map(|block| block.others[at].1).collect();
        row.figure(name, median(&values));
        if TOLD_OF_THE_WORST.contains(&name) {
            row.figure(&format!("{name}, worst block"), percentile(&values, 1.0));
        }
    }
    row
}

fn together(workers: &mut [Worker], load: &Value) -> Result<Vec<Value>, String> {
    let loads = vec![load.clone(); workers.len()];
    each(workers, &loads)
}

/// A load for each worker; all of them for the one that is alone.
pub(super) fn each(workers: &mut [Worker], loads: &[Value]) -> Result<Vec<Value>, String> {
    if let ([worker], [_, _, ..]) = (&mut *workers, loads) {
        let answer = worker.ask(&json!({ "do": "together", "loads": loads }))?;
        return Ok(answer["answers"].as_array().cloned().unwrap_or_default());
    }
    for (worker, load) in workers.iter_mut().zip(loads) {
        worker.tell(load)?;
    }
    workers.iter().map(Worker::answer).collect()
}

pub(super) fn micros(nanoseconds: &[f64]) -> Vec<f64> {
    nanoseconds.iter().map(|ns| ns / 1_000.0).collect()
}

/// From the call of a release to the next holder's running, where that one is another process and
/// was waiting.
pub(super) fn hand_overs(answers: &[Value]) -> Block {
    struct Turn {
        process: usize,
        asked: f64,
        granted: f64,
        released: f64,
    }
    let mut turns = Vec::new();
    for (process, answer) in answers.iter().enumerate() {
        for turn in answer["turns"].as_array().into_iter().flatten() {
            let at = |index: usize| turn[index].as_f64().unwrap_or(f64::NAN);
            turns.push(Turn { process, asked: at(0), granted: at(1), released: at(2) });
        }
    }
    turns.sort_by(|one, other| one.granted.total_cmp(&other.granted));
    let mut times = Vec::new();
    let mut chances = 0_u32;
    for pair in turns.windows(2) {
        let waiting = turns.iter().any(|turn| {
            turn.process != pair[0].process
                && turn.asked < pair[0].released
                && turn.granted > pair[0].released
        });
        chances += u32::from(waiting);
        if waiting && pair[1].process != pair[0].process && pair[1].asked < pair[0].released {
            times.push((pair[1].granted - pair[0].released) / 1_000.0);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let share = times.len() as f64 / f64::from(chances.max(1));
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let grants = turns.len() as f64;
    let others = vec![("p99 of a block", percentile(&times, 0.99)), ("to waiter", share)];
    Block { main: median(&times), samples: times, grants, others }
}

pub(super) fn crowd_of(answers: &[Value]) -> Block {
    let sum = |field: &str| answers.iter().map(|answer| number(answer, field)).sum::<f64>();
    let all = |field: &str| answers.iter().map(|answer| number(answer, field)).collect::<Vec<_>>();
    let grants = sum("grants");
    let seconds = percentile(&all("ns"), 1.0) / 1e9;
    let longest = percentile(&all("max"), 1.0) / 1_000.0;
    let waited: f64 =
        answers.iter().map(|answer| number(answer, "mean") * number(answer, "grants")).sum();
    let mean = waited / grants / 1_000.0;
    #[expect(clippy::cast_precision_loss, reason = "a few processes")]
    let share = |value: f64| value / (grants / answers.len() as f64);
    let others = vec![
        ("wait mean", mean),
        ("wait p50", median(&all("p50")) / 1_000.0),
        ("wait p99", percentile(&all("p99"), 1.0) / 1_000.0),
        ("wait max", longest),
        ("max/mean", longest / mean),
        ("least share", share(percentile(&all("grants"), 0.0))),
        ("most share", share(percentile(&all("grants"), 1.0))),
        ("least task", percentile(&all("least"), 0.0)),
        ("most task", percentile(&all("most"), 1.0)),
    ];
    Block { main: grants / seconds, samples: Vec::new(), grants, others }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::bench::bars;

    /// A block with a mean wait of a microsecond.
    fn block(longest_us: f64) -> Block {
        crowd_of(&[json!({
            "grants": 10, "ns": 1e9, "mean": 1_000, "p50": 1_000, "p99": 1_000, "max": longest_us * 1_000.0,
            "least": 1, "most": 1,
        })])
    }

    #[test]
    fn the_longest_wait_is_judged_by_the_median_of_blocks_and_told_of_the_worst_too() {
        let row = row(
            "one-name-64",
            "current",
            &[block(2.0), block(9.0), block(2.5)],
            Sent::default(),
            None,
        );
        for name in ["wait max", "max/mean"] {
            assert_eq!(
                (row.get(name), row.get(&format!("{name}, worst block"))),
                (2.5, 9.0),
                "{name}"
            );
        }
        let mut report = Report::empty();
        report.add(row);
        let bars = bars::judge(&report);
        let bar = bars.iter().find(|bar| bar.what == "one-name-64: current, max/mean");
        assert_eq!(bar.map(|bar| (bar.measured, bar.holds)), Some((2.5, Some(true))));
    }
}
