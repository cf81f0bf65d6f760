//! The waiting line: order and shares, a listener that only listens, a client that is far away, a
//! thousand clients that wait.

use std::io::Read;
use std::io::Write;
use std::net::Shutdown;
use std::net::TcpListener;
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;
use serde_json::Value;
use serde_json::json;

use crate::load::worker;
use crate::puppet::boot_ns;
use crate::resp::Connection;
use crate::resp::Reply;
use crate::servers::Server;

use super::Plan;
use super::figures::Sent;
use super::figures::number;
use super::figures::turns;
use super::fleet::Worker;
use super::programs::Programs;
use super::report::Report;
use super::report::Row;

const KIND: &str = "thread";
const PROCESSES: usize = 8;
const HOLD: Duration = Duration::from_millis(20);
/// Of the far client, beyond that of the others, there and back.
const FAR: Duration = Duration::from_millis(30);
/// Who asked so much earlier stands in front, whatever the way to the server.
const EARLIER_NS: f64 = 8e6;
const CROWD: u64 = 1_000;

pub(crate) fn all(
    plan: &Plan,
    programs: &Programs,
    server: &Path,
    report: &mut Report,
) -> Result<(), String> {
    let turns = if plan.quick { 10 } else { 30 };
    let blocks = plan.blocks.min(6);
    for (load, listened, far) in [
        ("line", false, false),
        ("line, listened to", true, false),
        ("line, one is far away", false, true),
    ] {
        println!("{load}");
        let mut rounds = Vec::new();
        for _ in 0..blocks {
            rounds.push(round(programs, server, turns, listened, far)?);
        }
        report.add(row(load, &rounds));
    }
    println!("line, a thousand clients");
    let program = worker::build()?;
    report.add(thousand_wait(server, &program)?);
    report.add(frozen_head(server, &program)?);
    Ok(())
}

/// What eight processes saw of one name.
struct Round {
    grants_per_s: f64,
    least_share: f64,
    last_share: f64,
    longest_wait_ms: f64,
    /// Grants before which somebody else had waited for longer.
    out_of_order: f64,
    scripts_per_grant: f64,
}

fn round(
    programs: &Programs,
    server: &Path,
    turns: u64,
    listened: bool,
    far: bool,
) -> Result<Round, String> {
    let server = Server::start(server)?;
    let _listener = if listened { Some(listener(&server)?) } else { None };
    let near = server.url();
    let behind = if far { Some(delayed(&near, FAR / 2)?) } else { None };
    let mut workers = Vec::new();
    for number in 0..PROCESSES {
        // The last one is the far one.
        let url = behind.as_ref().filter(|_| number + 1 == PROCESSES).unwrap_or(&near);
        workers.push(Worker::at(programs, KIND, url)?);
    }
    let hold_us = u64::try_from(HOLD.as_micros()).unwrap_or(0);
    let length = hold_us * turns * PROCESSES as u64;
    let load = json!({ "do": "crowd", "name": "line", "tasks": 1, "us": length, "hold_us": hold_us,
        "each": true });
    let mut connection = server.connect().map_err(|error| error.to_string())?;
    let before = Sent::so_far(&mut connection).map_err(|error| error.to_string())?;
    for worker in &mut workers {
        worker.tell(&load)?;
    }
    let answers: Vec<Value> = workers.iter().map(Worker::answer).collect::<Result<_, _>>()?;
    let after = Sent::so_far(&mut connection).map_err(|error| error.to_string())?;
    Ok(seen(&answers, after.since(before).scripts))
}

fn seen(answers: &[Value], scripts: f64) -> Round {
    let grants: Vec<f64> = answers.iter().map(|answer| number(answer, "grants")).collect();
    let all: f64 = grants.iter().sum();
    let mean = all / grants.len() as f64;
    let least = grants.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = answers.iter().map(|answer| number(answer, "max")).fold(0.0, f64::max);
    let took = answers.iter().map(|answer| number(answer, "ns")).fold(0.0, f64::max);
    Round {
        grants_per_s: all / (took / 1e9),
        least_share: least / mean,
        last_share: grants.last().copied().unwrap_or(f64::NAN) / mean,
        longest_wait_ms: longest / 1e6,
        out_of_order: out_of_order(answers),
        scripts_per_grant: scripts / all,
    }
}

/// Grants before which another, who was granted later, had asked clearly earlier.
fn out_of_order(answers: &[Value]) -> f64 {
    let turns: Vec<[f64; 3]> = answers.iter().flat_map(turns).collect();
    let passed = |one: &&[f64; 3]| {
        turns.iter().any(|other| other[0] + EARLIER_NS < one[0] && other[1] > one[1])
    };
    turns.iter().filter(passed).count() as f64
}

fn row(load: &str, rounds: &[Round]) -> Row {
    let mut row = Row::new(load, KIND, rounds.iter().map(|round| round.grants_per_s).collect());
    let median =
        |of: fn(&Round) -> f64| super::figures::median(&rounds.iter().map(of).collect::<Vec<_>>());
    row.figure("grants/s", median(|round| round.grants_per_s));
    row.figure("least share", median(|round| round.least_share));
    row.figure("share of the last", median(|round| round.last_share));
    row.figure("longest wait / 7 holds", median(|round| round.longest_wait_ms) / (7.0 * 20.0));
    row.figure("out of order", rounds.iter().map(|round| round.out_of_order).sum());
    row.figure("evalsha/grant", median(|round| round.scripts_per_grant));
    row
}

/// Somebody who listens to everything, and somebody who listens in another database.
fn listener(server: &Server) -> Result<[Connection; 2], String> {
    let listen = |database: &str, words: &[&str]| -> std::io::Result<Connection> {
        let mut connection = server.connect()?;
        connection.command(&["SELECT", database])?;
        connection.command(words)?;
        Ok(connection)
    };
    let channel = "redisson_lock__channel__{line}";
    let both = listen("0", &["PSUBSCRIBE", "*"])
        .and_then(|one| Ok([one, listen("1", &["SUBSCRIBE", channel])?]));
    both.map_err(|error| error.to_string())
}

/// The URL of a way to the server that takes so much longer in each direction.
fn delayed(url: &str, by: Duration) -> Result<String, String> {
    let target = url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let here = listener.local_addr().map_err(|error| error.to_string())?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(&target) else { continue };
            let (Ok(client2), Ok(server2)) = (client.try_clone(), server.try_clone()) else {
                continue;
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            thread::spawn(move || pass(client, server, by));
            thread::spawn(move || pass(server2, client2, by));
        }
    });
    Ok(format!("redis://{here}"))
}

/// Passes on what comes, so much later.
fn pass(mut from: TcpStream, mut to: TcpStream, by: Duration) {
    let mut bytes = [0; 65_536];
    loop {
        let read = from.read(&mut bytes).unwrap_or(0);
        let due = Instant::now() + by;
        if read == 0 {
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes[..read]).is_err() {
            return;
        }
    }
}

// ---- a thousand clients

/// A thousand clients wait, each of which keeps the lock for 2 s.
fn thousand_wait(server: &Path, program: &Path) -> Result<Row, String> {
    const HAND_OVERS: u64 = 6;
    let mut scene = Scene::start(server, program, 2_000_000, false)?;
    let mut connection = scene.server.connect().map_err(|error| error.to_string())?;
    let at_rest = scene.scripts_at_rest(&mut connection)?;
    let (begin, before) = (Instant::now(), Figures::of(&mut connection)?);
    scene.holder.tell("release")?;
    for _ in 0..HAND_OVERS {
        scene.crowd.hear("granted")?;
    }
    let (took, after) = (begin.elapsed().as_secs_f64(), Figures::of(&mut connection)?);
    let hand_overs = HAND_OVERS as f64;
    let scripts = (after.scripts - before.scripts) / hand_overs;
    let mut row = Row::new("line, a thousand wait", KIND, vec![scripts]);
    let at_rest = at_rest * took / hand_overs;
    row.figure("at rest", at_rest);
    row.figure("attempts/hand-over", scripts - at_rest);
    row.figure("bytes/hand-over", (after.bytes - before.bytes) / hand_overs);
    Ok(row)
}

/// A thousand clients wait behind one whose process is frozen.
fn frozen_head(server: &Path, program: &Path) -> Result<Row, String> {
    let mut scene = Scene::start(server, program, 0, true)?;
    let mut connection = scene.server.connect().map_err(|error| error.to_string())?;
    let at_rest = scene.scripts_at_rest(&mut connection)?;
    let before = Figures::of(&mut connection)?;
    let released = boot_ns();
    scene.holder.tell("release")?;
    let granted = scene.crowd.hear("granted")?;
    let after = Figures::of(&mut connection)?;
    let took = (number(&granted, "granted") - released as f64) / 1e9;
    let mut row = Row::new("line, the head is frozen", KIND, vec![took]);
    row.figure("next grant after s", took);
    row.figure("scripts", after.scripts - before.scripts);
    row.figure("at rest", at_rest * took);
    Ok(row)
}

struct Figures {
    scripts: f64,
    bytes: f64,
}

impl Figures {
    fn of(connection: &mut Connection) -> Result<Self, String> {
        let sent = Sent::so_far(connection).map_err(|error| error.to_string())?;
        let text = connection.text(&["INFO", "stats"]).map_err(|error| error.to_string())?;
        let bytes = text.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        Ok(Self { scripts: sent.scripts, bytes: bytes.and_then(|b| b.parse().ok()).unwrap_or(0.0) })
    }
}

/// Somebody holds the lock, perhaps somebody frozen waits first, and a thousand wait behind.
struct Scene {
    holder: worker::Worker,
    crowd: worker::Worker,
    _head: Option<worker::Worker>,
    server: Server,
}

impl Scene {
    fn start(server: &Path, program: &Path, hold_us: u64, frozen: bool) -> Result<Self, String> {
        let server = Server::start(server)?;
        let start = |what, count| -> Result<worker::Worker, String> {
            let worker = worker::Worker::start(program, what, &server.url(), &[count])?;
            worker.hear("ready")?;
            Ok(worker)
        };
        let (mut holder, mut crowd) = (start("waiters", 1)?, start("clients", CROWD)?);
        holder.tell("hold line")?;
        holder.hear("held")?;
        let mut head = None;
        if frozen {
            let first = head.insert(start("waiters", 1)?);
            first.tell("wait line 0")?;
            first.hear("waiting")?;
            in_line(&server, 1)?;
        }
        crowd.tell(&format!("wait line {hold_us}"))?;
        crowd.hear("waiting")?;
        in_line(&server, i64::try_from(CROWD).unwrap_or(0) + i64::from(head.is_some()))?;
        if let Some(head) = &head {
            let pid = i32::try_from(head.pid).ok().and_then(Pid::from_raw);
            kill_process(pid.ok_or("no process")?, Signal::STOP).map_err(|e| e.to_string())?;
        }
        Ok(Self { holder, crowd, _head: head, server })
    }

    /// Scripts per second while nothing happens: those of the fallback.
    fn scripts_at_rest(&self, connection: &mut Connection) -> Result<f64, String> {
        let before = Figures::of(connection)?.scripts;
        thread::sleep(Duration::from_secs(6));
        Ok((Figures::of(connection)?.scripts - before) / 6.0)
    }
}

/// Waits until so many stand in the line.
fn in_line(server: &Server, wanted: i64) -> Result<(), String> {
    let mut connection = server.connect().map_err(|error| error.to_string())?;
    let begin = Instant::now();
    loop {
        let found = connection.command(&["ZCARD", "redisson_lock_line__{line}"]);
        match found.map_err(|error| error.to_string())? {
            Reply::Int(found) if found >= wanted => return Ok(()),
            found if begin.elapsed() > Duration::from_secs(60) => {
                return Err(format!("{found:?} of {wanted} stand in the line"));
            }
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
}
