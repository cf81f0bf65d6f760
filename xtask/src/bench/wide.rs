//! Long queues; and of this crate and some that can do it: many holds, many drops.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::json;

use crate::resp::Connection;
use crate::servers::Server;

use super::Plan;
use super::figures::Sent;
use super::figures::median;
use super::figures::number;
use super::fleet::Worker;
use super::fleet::cpu_of;
use super::fleet::memory_of;
use super::programs::OWN;
use super::programs::Programs;
use super::programs::SHORT_LEASE;
use super::programs::everybody;
use super::report::Report;
use super::report::Row;

const PROCESSES: usize = 4;
const MANY: u32 = 10_000;
/// Long enough for the slowest to have all its waiters there.
const QUEUES_UP: Duration = Duration::from_secs(1);

pub(crate) fn all(
    plan: &Plan,
    programs: &Programs,
    server: &Server,
    report: &mut Report,
) -> Result<(), String> {
    if plan.wants("queue") {
        for waiters in [4, 100, 1_000] {
            let load = format!("queue-{waiters}");
            for kind in plan.kinds(&load, programs, &everybody(), report) {
                println!("{load}: {kind}");
                match queue(programs, server, kind, &load, waiters) {
                    Ok(row) => report.add(row),
                    Err(reason) if OWN.contains(&kind) => return Err(reason),
                    // Some peers stall; that is a result, too.
                    Err(reason) => {
                        println!("  {reason}");
                        report.add(Row::stalled(&load, kind, reason));
                    }
                }
            }
        }
    }
    let kinds = [OWN[0], OWN[1], "rlock", "async-redis-lock"];
    type Measure = fn(&Plan, &Programs, &Server, &'static str) -> Result<Row, String>;
    let loads: [(&str, &[&'static str], Measure); 5] = [
        ("drops", &kinds, drops),
        ("holds", &kinds, holds),
        ("reads-held", &OWN, reads_held),
        ("permits-held", &OWN, permits_held),
        ("dead-readers", &OWN, dead_readers),
    ];
    for (load, kinds, measure) in loads {
        if plan.wants(load) {
            for kind in plan.kinds(load, programs, kinds, report) {
                println!("{load}: {kind}");
                report.add(measure(plan, programs, server, kind)?);
            }
        }
    }
    Ok(())
}

/// Waiters in four processes, who all wait before the lock is released, and get it once each.
fn queue(
    programs: &Programs,
    server: &Server,
    kind: &'static str,
    load: &str,
    waiters: u64,
) -> Result<Row, String> {
    let mut holder = Worker::start(programs, kind, server)?;
    let start = |_| Worker::start(programs, kind, server);
    let mut workers: Vec<Worker> = (0..PROCESSES).map(start).collect::<Result<_, _>>()?;
    let name = format!("queue:{}", holder.pid);
    holder.ask(&json!({ "do": "hold", "name": name, "count": 1 }))?;
    // What `hold` took has a number at its end.
    let wait = json!({ "do": "queue", "name": format!("{name}:0"), "tasks": waiters / 4 });
    for worker in &mut workers {
        worker.tell(&wait)?;
    }
    thread::sleep(QUEUES_UP);
    let mut connection = connect(server)?;
    let before = sent(&mut connection)?;
    let release = holder.ask(&json!({ "do": "release" }))?;
    let mut end = 0.0_f64;
    for worker in &workers {
        end = end.max(number(&worker.answer()?, "end"));
    }
    let spent = sent(&mut connection)?.since(before);
    let grants = f64::from(u32::try_from(waiters).unwrap_or(u32::MAX));
    let rate = grants / ((end - number(&release, "begin")) / 1e9);
    let mut row = Row::new(load, kind, vec![rate]);
    row.figure("grants", grants);
    row.figure("evalsha/grant", spent.scripts / grants);
    row.figure("sub/grant", spent.subscriptions / grants);
    Ok(row)
}

/// Many guards dropped at once: until the last key is gone.
fn drops(
    plan: &Plan,
    programs: &Programs,
    server: &Server,
    kind: &'static str,
) -> Result<Row, String> {
    let mut worker = Worker::start(programs, kind, server)?;
    let mut connection = connect(server)?;
    let rounds = if plan.quick { 2 } else { 6 };
    let (mut times, mut left, mut dropping) = (Vec::new(), 0.0_f64, Vec::new());
    // What redis-benchmark took as a floor is still held.
    flush(&mut connection)?;
    for round in 0..rounds {
        let name = format!("drops:{}:{round}", worker.pid);
        worker.ask(&json!({ "do": "hold", "name": name, "count": 10_000 }))?;
        let started = Instant::now();
        let answer = worker.ask(&json!({ "do": "drop" }))?;
        dropping.push((number(&answer, "end") - number(&answer, "begin")) / 1e6);
        while keys_with_ttl(&mut connection)? > 0.0 && started.elapsed() < Duration::from_secs(3) {
            thread::sleep(Duration::from_millis(2));
        }
        times.push(started.elapsed().as_secs_f64() * 1_000.0);
        left += keys_with_ttl(&mut connection)?;
        flush(&mut connection)?;
    }
    let mut row = Row::new("drops", kind, times.clone());
    row.figure("max ms", times.iter().copied().fold(0.0, f64::max));
    row.figure("drop calls ms", median(&dropping));
    row.figure("left", left);
    Ok(row)
}

/// Many watched holds: what they cost while nothing else happens.
fn holds(
    plan: &Plan,
    programs: &Programs,
    server: &Server,
    kind: &'static str,
) -> Result<Row, String> {
    let count = MANY;
    let seconds = if plan.quick { 11 } else { 31 };
    let mut worker = Worker::start(programs, kind, server)?;
    let mut connection = connect(server)?;
    // Grown once, so that what the allocator keeps is not counted.
    worker.ask(&json!({ "do": "hold", "name": "few", "count": 100 }))?;
    let (memory, name) = (memory_of(worker.pid), format!("holds:{}", worker.pid));
    worker.ask(&json!({ "do": "hold", "name": name, "count": count }))?;
    let grown = memory_of(worker.pid) - memory;
    let (before, cpu, server_cpu) = (sent(&mut connection)?, worker.cpu(), cpu_of(server.pid));
    thread::sleep(Duration::from_secs(seconds));
    let (spent, cpu, server_cpu) =
        (sent(&mut connection)?.since(before), worker.cpu() - cpu, cpu_of(server.pid) - server_cpu);
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let seconds = seconds as f64;
    let mut row = Row::new("holds", kind, vec![100.0 * cpu / seconds]);
    row.figure("client cpu %", 100.0 * cpu / seconds);
    row.figure("server cpu %", 100.0 * server_cpu / seconds);
    row.figure("bytes/hold", grown / f64::from(count));
    row.figure("scripts/s", spent.scripts / seconds);
    row.figure("lost", f64::from(count) + 100.0 - keys_with_ttl(&mut connection)?);
    worker.ask(&json!({ "do": "drop" }))?;
    thread::sleep(Duration::from_secs(1));
    flush(&mut connection)?;
    Ok(row)
}

/// Many reads of one name by one client.
fn reads_held(
    plan: &Plan,
    programs: &Programs,
    server: &Server,
    kind: &'static str,
) -> Result<Row, String> {
    held_of_one_name(plan, programs, server, kind, "reads-held", "read")
}

/// Many permits of one semaphore by one client.
fn permits_held(
    plan: &Plan,
    programs: &Programs,
    server: &Server,
    kind: &'static str,
) -> Result<Row, String> {
    held_of_one_name(plan, programs, server, kind, "permits-held", "permits")
}

/// What many holds of one name take of the client's memory; and what a grant takes behind them,
/// beside a client that has few of another name. The two take turns, so that whatever else runs on
/// the machine slows down both.
fn held_of_one_name(
    plan: &Plan,
    programs: &Programs,
    server: &Server,
    kind: &'static str,
    load: &str,
    mode: &str,
) -> Result<Row, String> {
    const TURNS: u32 = 20;
    let (mut few, mut many, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let hold = |worker: &mut Worker, count: u32, at_once: u32| {
        let hold = json!({
            "do": "hold", "name": format!("{load}:{}", worker.pid), "mode": mode,
            "of": 4 * MANY, "want": 1, "count": count, "at_once": at_once, "one_name": true,
        });
        let answer = worker.ask(&hold)?;
        let took = (number(&answer, "end") - number(&answer, "begin")) / 1_000.0;
        Ok::<_, String>(took / f64::from(count))
    };
    for _ in 0..plan.blocks.min(5) {
        let (mut one, mut other) =
            (Worker::start(programs, kind, server)?, Worker::start(programs, kind, server)?);
        // Grown once, so that what the allocator keeps is not counted.
        hold(&mut one, 200, 1)?;
        hold(&mut other, 200, 1)?;
        let memory = memory_of(other.pid);
        hold(&mut other, MANY, 64)?;
        bytes.push((memory_of(other.pid) - memory) / f64::from(MANY));
        let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            of_one.push(hold(&mut one, 20, 1)?);
            of_other.push(hold(&mut other, 20, 1)?);
        }
        few.push(median(&of_one));
        many.push(median(&of_other));
        one.ask(&json!({ "do": "drop" }))?;
        other.ask(&json!({ "do": "drop" }))?;
    }
    let mut row = Row::new(load, kind, many.clone());
    row.figure("us of one of the first 600", median(&few));
    row.figure("us of one behind 10,000", median(&many));
    let ratios: Vec<f64> = many.iter().zip(&few).map(|(many, few)| many / few).collect();
    row.figure("behind many / first", median(&ratios));
    row.figure("bytes/hold", median(&bytes));
    flush(&mut connect(server)?)?;
    Ok(row)
}

/// A writer asks while a live reader keeps the hash of many dead ones; then that one ends.
fn dead_readers(
    plan: &Plan,
    programs: &Programs,
    server: &Server,
    kind: &'static str,
) -> Result<Row, String> {
    let mut connection = connect(server)?;
    let (mut times, mut attempts) = (Vec::new(), Vec::new());
    for _ in 0..plan.blocks.min(5) {
        let mut live = Worker::start(programs, kind, server)?;
        let mut writer = Worker::start(programs, kind, server)?;
        let name = format!("dead-readers:{}", live.pid);
        let read = |count: u32| {
            json!({
                "do": "hold", "name": name, "mode": "read", "count": count, "one_name": true,
            })
        };
        live.ask(&read(1))?;
        let mut dying = Worker::start(programs, SHORT_LEASE, server)?;
        dying.ask(&read(MANY))?;
        drop(dying);
        // Each has a key of its own, which ends with its lease.
        while keys_with_ttl(&mut connection)? > 10.0 {
            thread::sleep(Duration::from_millis(20));
        }
        let before = sent(&mut connection)?;
        writer.tell(&json!({ "do": "pairs", "name": name, "mode": "write", "count": 1 }))?;
        thread::sleep(Duration::from_millis(2));
        let released = live.ask(&json!({ "do": "release" }))?;
        let written = writer.answer()?;
        attempts.push(sent(&mut connection)?.since(before).scripts);
        times.push((number(&written, "end") - number(&released, "begin")) / 1e9);
        flush(&mut connection)?;
    }
    let mut row = Row::new("dead-readers", kind, times.clone());
    row.figure("longest, s", times.iter().copied().fold(0.0, f64::max));
    row.figure("scripts", median(&attempts));
    Ok(row)
}

fn connect(server: &Server) -> Result<Connection, String> {
    server.connect().map_err(|error| error.to_string())
}

fn sent(connection: &mut Connection) -> Result<Sent, String> {
    Sent::so_far(connection).map_err(|error| error.to_string())
}

fn flush(connection: &mut Connection) -> Result<(), String> {
    connection.text(&["FLUSHALL"]).map(|_| ()).map_err(|error| error.to_string())
}

/// Every lock has a time to live, nothing else does.
fn keys_with_ttl(connection: &mut Connection) -> Result<f64, String> {
    let text = connection.text(&["INFO", "keyspace"]).map_err(|error| error.to_string())?;
    let count = text.split("expires=").nth(1).and_then(|rest| rest.split(',').next());
    Ok(count.and_then(|count| count.parse().ok()).unwrap_or(0.0))
}
