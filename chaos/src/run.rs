//! Runs histories, several at once, and adds up what they showed.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::json;

use crate::checks;
use crate::checks::Verdict;
use crate::event::Event;
use crate::event::now;
use crate::history::Breach;
use crate::history::History;
use crate::history::Process;
use crate::history::Violation;
use crate::kind::LockKind;
use crate::nemesis::Counts;
use crate::nemesis::Nemesis;
use crate::place::Kind;
use crate::place::Place;
use crate::place::Servers;
use crate::plan::Plan;
use crate::plan::WORKERS;
use crate::store::Store;
use crate::support::ROOT;
use crate::support::redis_server::RedisServer;
use crate::timeline;
use crate::watch::Seen;
use crate::watch::Watch;
use crate::wire::Wire;

/// So long what clients have left may take to go.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of each history that failed so many violations are shown.
const SHOWN: usize = 3;

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    first: u64,
    end: u64,
    on: Vec<Kind>,
    /// The kind of all locks; without, the seeds say it.
    about: Option<LockKind>,
    at_once: usize,
    keep: bool,
}

const USAGE: &str = "chaos wants --histories N, --seed N or --seeds A..B, --on single|aof|sentinel|cluster|redlock|all, \
                     --kind reentrant|read-write|semaphore|latch|flight|fair, --at-once N, --keep";

impl Wanted {
    fn read(words: &[String]) -> Option<Self> {
        let mut wanted =
            Self { first: 0, end: 120, on: Vec::new(), about: None, at_once: 3, keep: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--histories" => wanted.end = wanted.first + words.next()?.parse::<u64>().ok()?,
                "--seed" => {
                    wanted.first = words.next()?.parse().ok()?;
                    wanted.end = wanted.first + 1;
                }
                "--seeds" => {
                    let (first, end) = words.next()?.split_once("..")?;
                    (wanted.first, wanted.end) = (first.parse().ok()?, end.parse().ok()?);
                }
                "--kind" => {
                    let kind = LockKind::named(words.next()?)?;
                    wanted.about = Some(kind).filter(|kind| LockKind::DRAWN.contains(kind));
                    wanted.about?;
                }
                "--on" => wanted.on = kinds(words.next()?)?,
                "--at-once" => {
                    wanted.at_once = words.next()?.parse().ok().filter(|count| *count > 0)?
                }
                "--keep" => wanted.keep = true,
                _ => return None,
            }
        }
        (wanted.first < wanted.end).then_some(wanted)
    }

    /// Where a seed is run: on one server mostly, since failovers take their time.
    fn kind(&self, seed: u64) -> Kind {
        let index = |count: usize| usize::try_from(seed).unwrap_or(0) % count;
        match self.on.as_slice() {
            [] => match seed % 15 {
                0 => Kind::Sentinel,
                7 => Kind::Cluster,
                odd if odd % 2 == 1 => Kind::Single,
                _ => Kind::Aof,
            },
            on => on[index(on.len())],
        }
    }
}

fn kinds(text: &str) -> Option<Vec<Kind>> {
    if text == "all" {
        return Some(Vec::new());
    }
    text.split(',').map(|word| Kind::ALL.into_iter().find(|kind| kind.name() == word)).collect()
}

/// What all histories together showed.
#[derive(Debug, Default)]
struct Totals {
    histories: u64,
    operations: u64,
    keys: u64,
    breaches: u64,
    failed: Vec<(u64, Kind)>,
    counts: Counts,
    verdict: Verdict,
    /// In how many histories each kind of lock was there.
    about: BTreeMap<LockKind, u64>,
}

/// True if nothing was wrong.
pub(crate) fn run(words: &[String]) -> Result<bool, String> {
    let wanted = Wanted::read(words).ok_or(USAGE)?;
    let directory = Path::new(ROOT).join("target/chaos");
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let (next, totals) = (AtomicU64::new(wanted.first), Mutex::new(Totals::default()));
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..wanted.at_once {
            let lane = || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= wanted.end {
                        return;
                    }
                    one(seed, &wanted, &directory, &totals);
                }
            };
            // The search for an order goes as deep as a history is long.
            let spawned = thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, lane);
            spawned.expect("a thread");
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    totals.print(&wanted, started.elapsed());
    Ok(totals.failed.is_empty())
}

fn one(seed: u64, wanted: &Wanted, directory: &Path, totals: &Mutex<Totals>) {
    let kind = wanted.kind(seed);
    let directory = directory.join(format!("{}-{seed}", kind.name()));
    let since = Instant::now();
    // Servers that do not start panic, as they do in tests.
    let done = std::panic::catch_unwind(|| history(seed, kind, wanted.about, &directory));
    let done = done.unwrap_or_else(|_| Err("it could not be run, see above".to_owned()));
    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
    totals.histories += 1;
    match done {
        Ok(done) => {
            let bad = done.verdict.violations.len();
            println!(
                "{:<8} {seed:>6}  {:>6} operations, {:>5} grants, {:>3} lost, {} breaches, {bad} violations, {:.1} s",
                kind.name(),
                done.history.finished(),
                done.verdict.grants,
                done.verdict.losses,
                done.history.breaches.len(),
                since.elapsed().as_secs_f64()
            );
            for violation in done.verdict.violations.iter().take(SHOWN) {
                println!(
                    "\n{}: {}\n{}",
                    violation.name,
                    violation.what,
                    timeline::around(&done.history, violation)
                );
            }
            if bad > 0 {
                println!(
                    "again: cargo xtask chaos --seed {seed} --on {}; files: {}\n",
                    kind.name(),
                    directory.display()
                );
                totals.failed.push((seed, kind));
            } else if !wanted.keep {
                let _ = fs::remove_dir_all(&directory);
            }
            totals.add(&done);
        }
        Err(why) => {
            println!("{:<8} {seed:>6}  FAILED: {why}", kind.name());
            totals.failed.push((seed, kind));
        }
    }
}

struct Done {
    kinds: BTreeSet<LockKind>,
    history: History,
    verdict: Verdict,
    counts: Counts,
    keys: u64,
}

fn history(
    seed: u64,
    kind: Kind,
    about: Option<LockKind>,
    directory: &PathBuf,
) -> Result<Done, String> {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let plan = Plan::of(seed, kind, about);
    // The name of a socket has to be short.
    let socket =
        std::env::temp_dir().join(format!("chaos-{}-{}-{seed}", std::process::id(), kind.name()));
    let store = Store::start(&socket).map_err(|error| format!("{}: {error}", socket.display()))?;
    let place = Place::start(kind, WORKERS, plan.sets_clocks);
    let watch = Watch::start(place.admin_urls(), plan.lease, plan.set_back());
    let mut nemesis = Nemesis::new(place, &plan, seed, directory.clone(), socket.clone());
    let run = nemesis.run();
    let mut seen = watch.end();
    let _ = fs::remove_file(&socket);
    match &nemesis.place.servers {
        Servers::Many(topology) => topology.keep_logs(directory),
        Servers::Alone(servers) => keep_all_commands(servers, directory),
    }
    run?;
    declare_failovers_of_their_own(&mut nemesis, &seen);
    nothing_is_left(&nemesis.place, plan.lease, &mut seen);
    let mut history = History {
        accesses: store.seen(),
        breaches: std::mem::take(&mut nemesis.breaches),
        outages: outages(&mut nemesis),
        harm: std::mem::take(&mut nemesis.harm),
        calls: nemesis.place.wires.iter().flatten().flat_map(Wire::take).collect(),
        unsure: std::mem::take(&mut nemesis.unsure),
        samples: std::mem::take(&mut seen.samples),
        lease: u64::try_from(plan.lease.as_nanos()).unwrap_or(0),
        ..History::default()
    };
    for written in &nemesis.logs {
        let text = fs::read_to_string(&written.path).unwrap_or_default();
        let (label, died) = (written.label.clone(), written.died);
        history.processes.push(Process { label, events: Event::parse_all(&text)?, died });
    }
    let mut verdict = checks::check(&history);
    verdict.violations.extend(seen.violations);
    verdict.violations.append(&mut nemesis.violations);
    leaks(&history, &mut verdict);
    let harm: String = history.harm.iter().map(|(at, what)| format!("{at} {what}\n")).collect();
    let accesses: String = history.accesses.iter().map(|access| format!("{access:?}\n")).collect();
    let operations: String = verdict.operations.iter().map(|line| format!("{line}\n")).collect();
    let calls: String = history.calls.iter().map(|call| format!("{call:?}\n")).collect();
    let files =
        [("harm", harm), ("accesses", accesses), ("operations", operations), ("calls", calls)];
    for (file, text) in files {
        fs::write(directory.join(file), text).map_err(|error| format!("{file}: {error}"))?;
    }
    let kinds = plan.names.iter().map(|name| name.kind).collect();
    Ok(Done { kinds, history, verdict, counts: nemesis.counts, keys: seen.keys })
}

/// Where there is only one server its outage is a breach, or nothing at all.
fn outages(nemesis: &mut Nemesis<'_>) -> Vec<Breach> {
    let all = std::mem::take(&mut nemesis.outages);
    if nemesis.place.kind == Kind::Redlock { all } else { Vec::new() }
}

fn keep_all_commands(servers: &[RedisServer], directory: &Path) {
    if let [server] = servers {
        return keep_commands(&server.socket(), directory);
    }
    for (number, server) in servers.iter().enumerate() {
        let directory = directory.join(format!("server-{number}"));
        if fs::create_dir_all(&directory).is_ok() {
            keep_commands(&server.socket(), &directory);
        }
    }
}

/// What a server with an append-only file has written there: all that was ever done to its keys.
fn keep_commands(socket: &Path, directory: &Path) {
    let written = socket.with_file_name("appendonlydir");
    let files = fs::read_dir(written).into_iter().flatten().flatten();
    for file in files {
        let _ = fs::copy(file.path(), directory.join(file.file_name()));
    }
}

fn declare_failovers_of_their_own(nemesis: &mut Nemesis<'_>, seen: &Seen) {
    if !nemesis.place.kind.fails_over() {
        return;
    }
    let own = seen.of_their_own(&nemesis.breaches);
    nemesis.counts.own_failovers += u64::from(!own.is_empty());
    for (breach, turnover) in own {
        nemesis.breaches.push(breach);
        nemesis.harm.push((turnover.to, format!("of their own: {turnover:?}")));
    }
    nemesis.harm.sort();
}

/// All workers have ended: no key outlives a lease, no line its own time to live, and no
/// subscription or connection of theirs is left.
fn nothing_is_left(place: &Place, lease: Duration, seen: &mut Seen) {
    seen.take(&place.keys(), lease);
    let since = Instant::now();
    while let Some(left) = place.left() {
        if since.elapsed() > PATIENCE {
            let what = format!("left on the server: {left}");
            return seen.violations.push(Violation { at: now(), name: "-".to_owned(), what });
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Workers that ended by themselves have nothing left, and have told so.
fn leaks(history: &History, verdict: &mut Verdict) {
    for Process { label, events, .. } in &history.processes {
        for event in events {
            let (at, what) = match event {
                Event::Gauges { at, sum } if *sum > 0 => {
                    (at, format!("{label} has {sum} things left"))
                }
                Event::Bye { at, clean: false } => {
                    (at, format!("{label} could not release everything"))
                }
                _ => continue,
            };
            verdict.violations.push(Violation { at: *at, name: "-".to_owned(), what });
        }
    }
}

impl Totals {
    fn add(&mut self, done: &Done) {
        self.operations += done.history.finished() as u64;
        self.keys += done.keys;
        self.breaches += done.history.breaches.len() as u64;
        self.counts.add(done.counts);
        for kind in &done.kinds {
            *self.about.entry(*kind).or_default() += 1;
        }
        let (all, one) = (&mut self.verdict, &done.verdict);
        all.grants += one.grants;
        all.losses += one.losses;
        all.overlaps += one.overlaps;
        all.lost_updates += one.lost_updates;
        all.refused += one.refused;
        all.writes += one.writes;
        all.denials += one.denials;
        all.samples += one.samples;
        all.undecided += one.undecided;
        all.values += one.values;
        all.in_turn += one.in_turn;
        all.waited_behind += one.waited_behind;
        all.passed_over += one.passed_over;
        all.left_line += one.left_line;
        all.violations.extend(one.violations.iter().cloned());
    }

    fn print(&self, wanted: &Wanted, took: Duration) {
        for (seed, kind) in &self.failed {
            println!("FAILED seed {seed} on {}", kind.name());
        }
        let (counts, verdict) = (&self.counts, &self.verdict);
        let mut figures = json!({
            "first_seed": wanted.first,
            "histories": self.histories,
            "operations": self.operations,
            "grants": verdict.grants,
            "losses": verdict.losses,
            "server_kills": counts.server_kills,
            "server_stops": counts.server_stops,
            "server_losses": counts.server_losses,
            "clock_steps": counts.clock_steps,
            "client_kills": counts.client_kills,
            "client_stops": counts.client_stops,
            "network_faults": counts.network_faults,
            "server_faults": counts.server_faults,
            "sentinel_failovers": counts.sentinel_failovers,
            "cluster_failovers": counts.cluster_failovers,
            "slot_moves": counts.slot_moves,
            "heads_of_lines_harmed": counts.heads,
            "lines_removed": counts.lines_removed,
            "force_unlocks": counts.force_unlocks,
            "histories_with_failovers_of_their_own": counts.own_failovers,
            "breaches": self.breaches,
            "overlaps_in_breaches": verdict.overlaps,
            "writes": verdict.writes,
            "lost_updates": verdict.lost_updates,
            "refused": verdict.refused,
            "denials_checked": verdict.denials,
            "values_checked": verdict.values,
            "fair_grants_in_turn": verdict.in_turn,
            "fair_places_behind": verdict.waited_behind,
            "fair_places_passed_over": verdict.passed_over,
            "keys_seen": self.keys,
            "keys_compared": verdict.samples,
            "undecided": verdict.undecided,
            "failed_histories": self.failed.len(),
            "violations": verdict.violations.len(),
            "seconds": took.as_secs(),
        });
        for kind in LockKind::DRAWN {
            let field = format!("histories_with_{kind}").replace('-', "_");
            figures[field] = self.about.get(kind).copied().unwrap_or(0).into();
        }
        let part = if wanted.on == [Kind::Redlock] { "chaos-redlock" } else { "chaos" };
        // The report looks for the name of the part in front.
        println!("{{\"part\":\"{part}\",{}", &figures.to_string()[1..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Wanted> {
        Wanted::read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let wanted = read("--seeds 3..9 --on aof,cluster --at-once 1").unwrap();
        assert_eq!((wanted.first, wanted.end, wanted.at_once), (3, 9, 1));
        assert_eq!((wanted.kind(4), wanted.kind(5)), (Kind::Aof, Kind::Cluster));
        assert_eq!(read("--seed 7").unwrap().end, 8);
        for wrong in ["--seeds 9..3", "--on moon", "--kind redlock", "--seed", "7", "--at-once 0"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_kind_has_its_turn() {
        let wanted = read("--histories 120").unwrap();
        let count = |kind| (0..120).filter(|seed| wanted.kind(*seed) == kind).count();
        assert_eq!(Kind::ALL.map(count), [48, 56, 8, 8, 0]);
    }
}
