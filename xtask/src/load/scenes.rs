//! The loads, one after the other, each on a server of its own.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;
use serde_json::Map;
use serde_json::Value;

use crate::bench::fleet::cpu_of;
use crate::load::Size;
use crate::load::worker::Worker;
use crate::puppet::boot_ns;
use crate::resp::Connection;
use crate::resp::Reply;
use crate::servers::Server;

const HOLD_LEASE_MS: u64 = 6_000;
const LOSS_LEASE_MS: u64 = 3_000;
const PROCESSES: usize = 4;
/// How long each waiter keeps the lock, in microseconds: a round for each.
const HOLD_US: [u64; 3] = [0, 500, 2_000];

pub(crate) struct Stage {
    pub(crate) server: PathBuf,
    pub(crate) program: PathBuf,
}

type Figures = Map<String, Value>;

impl Stage {
    /// Watched holds that are renewed for a while.
    pub(crate) fn holds(&self, size: &Size, figures: &mut Figures) -> Result<(), String> {
        let server = Server::start(&self.server)?;
        let numbers = [size.holds, HOLD_LEASE_MS, size.seconds];
        let worker = Worker::start(&self.program, "holds", &server.url(), &numbers)?;
        let held = worker.hear("held")?;
        let (began, cpu) = (boot_ns(), cpu_of(server.pid));
        let seen = worker.hear("lost")?;
        let share = (cpu_of(server.pid) - cpu) * 1e11 / number_as_float(boot_ns() - began);
        let left = worker.hear("left")?;
        let client = number(&seen, "cpu_ms") * 1_000 / number(&seen, "took_ms").max(1);
        println!(
            "holds: {} for {} s at a lease of {HOLD_LEASE_MS} ms: lost {}, renewals {} ({} failed), later than a third of the lease by \
             p50 {} p99 {} most {} us, least time left {} ms; longest time that the machine let \
             a thread wait {} us; client {}.{} % of a core, server {share:.1} %; {} B a hold",
            held["held"],
            size.seconds,
            seen["lost"],
            seen["renewals"],
            seen["failures"],
            seen["late_p50_us"],
            seen["late_p99_us"],
            seen["late_max_us"],
            seen["least_left_ms"],
            seen["stall_us"],
            client / 10,
            client % 10,
            held["bytes_per_hold"],
        );
        put(figures, "holds", &held["held"]);
        put(figures, "holds_lost", &number(&seen, "lost").max(number(&seen, "losses")).into());
        for field in [
            "renewals",
            "late_p50_us",
            "late_p99_us",
            "late_max_us",
            "least_left_ms",
            "failures",
            "stall_us",
        ] {
            put(figures, &format!("holds_{field}"), &seen[field]);
        }
        put(figures, "holds_client_cpu_permille", &client.into());
        put(figures, "holds_server_cpu_percent", &((share * 10.0).round() / 10.0).into());
        put(figures, "holds_left", &what_is_left(&[&left["left"]], &server)?.into());
        Ok(())
    }

    /// Waiters of one lock in several processes.
    pub(crate) fn waiters(&self, size: &Size, figures: &mut Figures) -> Result<(), String> {
        let server = Server::start(&self.server)?;
        let each = size.waiters / 4;
        let start = |_| Worker::start(&self.program, "waiters", &server.url(), &[each]);
        let mut workers = (0..PROCESSES).map(start).collect::<Result<Vec<_>, _>>()?;
        for worker in &workers {
            worker.hear("ready")?;
        }
        let mut all = Round::default();
        for (at, hold) in HOLD_US.iter().enumerate() {
            let round = one_round(&mut workers, &server, &format!("load:queue:{at}"), *hold)?;
            println!(
                "waiters: {} in {PROCESSES} processes, held for {hold} us each: {round}",
                round.grants
            );
            all.add(&round);
        }
        let mut left = Vec::new();
        for worker in &mut workers {
            worker.finish();
            left.push(worker.hear("left")?["left"].clone());
        }
        put(figures, "waiters_served", &all.grants.into());
        put(figures, "waiters_lost_wake_ups", &all.lost_wake_ups.into());
        put(figures, "waiters_commands_per_100_grants", &all.worst.into());
        put(figures, "waiters_longest_gap_us", &all.longest_gap_us.into());
        put(figures, "waiters_overlaps", &all.overlaps.into());
        put(
            figures,
            "waiters_left",
            &what_is_left(&left.iter().collect::<Vec<_>>(), &server)?.into(),
        );
        Ok(())
    }

    /// Operations and cancellations without end.
    pub(crate) fn leak(&self, size: &Size, figures: &mut Figures) -> Result<(), String> {
        let server = Server::start(&self.server)?;
        let began = boot_ns();
        let numbers = [size.pairs, size.cancellations];
        let worker = Worker::start(&self.program, "leak", &server.url(), &numbers)?;
        let seen = worker.hear("pairs")?;
        let slope = seen["bytes_per_operation"].as_f64().ok_or("no slope")?;
        println!(
            "leak: {} lock and unlock, {} cancelled in {} s: {slope:.3} bytes of memory per operation in the second half \
             ({} KiB, then {} KiB), left {} and {}",
            seen["pairs"],
            seen["cancelled"],
            (boot_ns() - began) / 1_000_000_000,
            number(&seen, "resident_at_half") / 1_024,
            number(&seen, "resident_at_end") / 1_024,
            seen["left"],
            seen["left_of_other"],
        );
        put(figures, "leak_operations", &seen["pairs"]);
        put(figures, "leak_cancelled", &seen["cancelled"]);
        // In thousandths, and nothing for memory that was given back.
        let milli = (slope.max(0.0) * 1_000.0).round();
        put(figures, "leak_bytes_per_1000_operations", &serde_json::json!(milli as u64));
        put(
            figures,
            "leak_left",
            &what_is_left(&[&seen["left"], &seen["left_of_other"]], &server)?.into(),
        );
        Ok(())
    }

    /// Holds that are lost because the server dies, because somebody deletes their keys, because
    /// their process stands still.
    pub(crate) fn losses(&self, size: &Size, figures: &mut Figures) -> Result<(), String> {
        let mut sums = [0; 3];
        for case in ["killed", "deleted", "paused"] {
            let seen = self.lose(case, size.losses)?;
            println!(
                "losses: {} holds, {case}: {}, held too long {}, told before valid_until by at least {} us, p50 {} us; \
                 later than that {} (later than the key {}) of {}",
                seen["signals"],
                seen["reasons"],
                seen["held_too_long"],
                seen["margin_min_us"],
                seen["margin_p50_us"],
                seen["after_valid_until"],
                seen["after_key_end"],
                seen["margins"],
            );
            sums[0] += number(&seen, "signals");
            sums[1] += number(&seen, "held_too_long");
            // Nobody can be told anything in a process that stands still.
            sums[2] += if case == "paused" { 0 } else { number(&seen, "after_key_end") };
            for field in ["margin_min_us", "margin_p50_us", "after_valid_until"] {
                put(figures, &format!("losses_{case}_{field}"), &seen[field]);
            }
        }
        put(figures, "losses_signals", &sums[0].into());
        put(figures, "losses_held_too_long", &sums[1].into());
        put(figures, "losses_told_after_key_end", &sums[2].into());
        Ok(())
    }

    fn lose(&self, case: &str, holds: u64) -> Result<Value, String> {
        let server = Server::start(&self.server)?;
        let worker =
            Worker::start(&self.program, "losses", &server.url(), &[holds, LOSS_LEASE_MS])?;
        worker.hear("held")?;
        // Renewals have spread by then.
        thread::sleep(Duration::from_millis(LOSS_LEASE_MS));
        match case {
            "killed" => signal(server.pid, Signal::KILL)?,
            "deleted" => {
                let deleted = "for _, key in ipairs(redis.call('KEYS', 'load:*')) do redis.call('DEL', key) end";
                let mut connection = server.connect().map_err(|error| error.to_string())?;
                connection.command(&["EVAL", deleted, "0"]).map_err(|error| error.to_string())?;
            }
            _ => {
                signal(worker.pid, Signal::STOP)?;
                thread::sleep(Duration::from_millis(LOSS_LEASE_MS * 3 / 2));
                signal(worker.pid, Signal::CONT)?;
            }
        }
        worker.hear("signals")
    }
}

fn signal(pid: u32, signal: Signal) -> Result<(), String> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no such process")?;
    kill_process(pid, signal).map_err(|error| error.to_string())
}

/// What a round of waiters came to.
#[derive(Default)]
struct Round {
    grants: u64,
    commands: u64,
    /// Of a hundred grants; of several rounds the worst.
    worst: u64,
    lost_wake_ups: u64,
    longest_gap_us: u64,
    overlaps: u64,
    p50_us: u64,
    p99_us: u64,
    hand_offs: u64,
    renewals: u64,
}

impl Round {
    fn add(&mut self, other: &Self) {
        self.grants += other.grants;
        self.lost_wake_ups += other.lost_wake_ups;
        self.overlaps += other.overlaps;
        self.worst = self.worst.max(other.worst);
        self.longest_gap_us = self.longest_gap_us.max(other.longest_gap_us);
    }
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} script calls, {}.{:02} a grant ({} hand-offs and {} renewals since the start), {} by fallback poll, from \
             release to grant p50 {} p99 {} most {} us, {} overlaps",
            self.commands,
            self.worst / 100,
            self.worst % 100,
            self.hand_offs,
            self.renewals,
            self.lost_wake_ups,
            self.p50_us,
            self.p99_us,
            self.longest_gap_us,
            self.overlaps
        )
    }
}

/// All wait behind one hold of the first process; then it is released, and everybody gets the lock
/// once.
fn one_round(
    workers: &mut [Worker],
    server: &Server,
    name: &str,
    hold_us: u64,
) -> Result<Round, String> {
    workers[0].tell(&format!("hold {name}"))?;
    workers[0].hear("held")?;
    for worker in workers.iter_mut() {
        worker.tell(&format!("wait {name} {hold_us}"))?;
    }
    for worker in workers.iter() {
        worker.hear("waiting")?;
    }
    // Until the contenders sleep: none of the calls that follow is theirs for having come.
    let before = settled(server)?;
    for worker in workers.iter_mut() {
        worker.tell("release")?;
    }
    let mut round = Round::default();
    let mut grants = Vec::new();
    for worker in workers.iter() {
        let served = worker.hear("grants")?;
        // Counted since the start, and never to grow.
        round.lost_wake_ups += number(&served, "fallback_grants") + number(&served, "losses");
        round.hand_offs += number(&served, "hand_offs");
        round.renewals += number(&served, "renewals");
        grants.extend(served["grants"].as_array().ok_or("no grants")?.iter().map(times));
    }
    round.commands = script_calls(server)? - before;
    grants.sort_unstable();
    round.grants = u64::try_from(grants.len()).unwrap_or(0);
    round.worst = round.commands * 100 / round.grants.max(1);
    let mut gaps = Vec::new();
    for pair in grants.windows(2) {
        let ([_, released, token], [granted, _, next]) = (pair[0], pair[1]);
        round.overlaps += u64::from(granted < released || next <= token);
        gaps.push(granted.saturating_sub(released) / 1_000);
    }
    gaps.sort_unstable();
    let at =
        |percent: usize| gaps.get((gaps.len().max(1) - 1) * percent / 100).copied().unwrap_or(0);
    (round.p50_us, round.p99_us, round.longest_gap_us) = (at(50), at(99), at(100));
    Ok(round)
}

/// Granted, released, token.
fn times(grant: &Value) -> [u64; 3] {
    [0, 1, 2].map(|at| grant[at].as_u64().unwrap_or(0))
}

/// Script calls so far, once there are no more for a while.
fn settled(server: &Server) -> Result<u64, String> {
    let mut last = script_calls(server)?;
    loop {
        thread::sleep(Duration::from_millis(300));
        let now = script_calls(server)?;
        if now == last {
            return Ok(now);
        }
        last = now;
    }
}

fn script_calls(server: &Server) -> Result<u64, String> {
    let info =
        server.connect().and_then(|mut connection| connection.text(&["INFO", "commandstats"]));
    let info = info.map_err(|error| error.to_string())?;
    let calls = |command: &str| {
        let prefix = format!("cmdstat_{command}:calls=");
        let rest = info.lines().find_map(|line| line.strip_prefix(&*prefix))?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    Ok(calls("evalsha").unwrap_or(0) + calls("eval").unwrap_or(0))
}

/// What clients say that they still have, and locks, waiting lines and lock channels on the server.
fn what_is_left(clients: &[&Value], server: &Server) -> Result<u64, String> {
    let mut connection = server.connect().map_err(|error| error.to_string())?;
    let keys = list(&mut connection, &["KEYS", "*"])?;
    let keys = keys.iter().filter(|key| !key.starts_with("redisson_lock_fence:")).count();
    let channels = list(&mut connection, &["PUBSUB", "CHANNELS", "redisson_lock__channel*"])?.len();
    let sum: u64 = clients.iter().map(|left| number(left, "all")).sum();
    Ok(sum + u64::try_from(keys + channels).unwrap_or(u64::MAX))
}

fn list(connection: &mut Connection, words: &[&str]) -> Result<Vec<String>, String> {
    match connection.command(words).map_err(|error| error.to_string())? {
        Reply::List(all) => {
            Ok(all.into_iter().map(|one| format!("{one:?}").replace("Text(\"", "")).collect())
        }
        other => Err(format!("not a list: {other:?}")),
    }
}

fn number(line: &Value, field: &str) -> u64 {
    line[field].as_u64().unwrap_or(u64::MAX)
}

fn number_as_float(number: u64) -> f64 {
    number as f64
}

fn put(figures: &mut Figures, name: &str, value: &Value) {
    figures.insert(name.to_owned(), value.clone());
}
