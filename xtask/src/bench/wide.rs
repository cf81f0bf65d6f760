//! Long queues; and of this crate and some that can do it: many holds, many drops.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::json;

use crate::resp::Connection;
use crate::servers::Server;

use super::Plan;
use super::figures::Sent;
use super::figures::number;
use super::fleet::Worker;
use super::fleet::cpu_of;
use super::fleet::memory_of;
use super::programs::OWN;
use super::programs::Programs;
use super::programs::everybody;
use super::report::Report;
use super::report::Row;

const PROCESSES: usize = 4;
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
    for (load, measure) in [("drops", drops as Measure), ("holds", holds)] {
        if plan.wants(load) {
            for kind in plan.kinds(load, programs, &kinds, report) {
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
    println!("drops: {kind}");
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
    row.figure("drop calls ms", super::figures::median(&dropping));
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
    println!("holds: {kind}");
    let count = 10_000;
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
