//! The worker processes.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::cleanup::Cleanup;
use crate::process;
use crate::process::Echo;
use crate::process::cargo;
use crate::servers::Server;

use super::Plan;

const BUILD_LIMIT: Duration = Duration::from_secs(1_800);
/// Longer than any load takes whose locks work.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) const OWN: [&str; 2] = ["thread", "current"];
pub(crate) const FLOORS: [&str; 2] = ["floor-thread", "floor-current"];
pub(crate) const RUST: [&str; 3] = ["rlock", "rslock", "async-redis-lock"];

/// Own kinds and their floors first, so that a table reads that way.
pub(crate) fn everybody() -> Vec<&'static str> {
    let own = [FLOORS[1], OWN[1], FLOORS[0], OWN[0]];
    own.into_iter().chain(RUST).collect()
}

/// Which program is which kind of lock.
pub(crate) struct Programs {
    of: BTreeMap<&'static str, PathBuf>,
    threads: String,
}

impl Programs {
    /// Builds what is there to build; peers that do not build are named and left out.
    pub(crate) fn build(plan: &Plan) -> Result<Self, String> {
        let mut programs = BTreeMap::new();
        let wanted = |kinds: &[&'static str]| {
            let wanted =
                |kind: &&&str| plan.kinds.is_empty() || plan.kinds.iter().any(|wanted| wanted == **kind);
            kinds.iter().filter(wanted).copied().collect::<Vec<_>>()
        };
        let own = build_rust("this crate", &["build", "--release", "-p", "bench"], "target/release/bench")?;
        let no_hand_off = ["thread-no-hand-off"];
        for kind in OWN.iter().chain(&FLOORS).chain(&no_hand_off) {
            programs.insert(*kind, own.clone());
        }
        let peers = wanted(&RUST);
        if !peers.is_empty() {
            match build_peers() {
                Ok(program) => programs.extend(peers.into_iter().map(|kind| (kind, program.clone()))),
                Err(reason) => println!("without {}: {reason}", peers.join(", ")),
            }
        }
        Ok(Self { of: programs, threads: plan.threads.clone() })
    }

    pub(crate) fn has(&self, kind: &str) -> bool {
        self.of.contains_key(kind)
    }
}

fn build_rust(what: &str, args: &[&str], program: &str) -> Result<PathBuf, String> {
    println!("building {what}");
    let built = process::run(cargo(args), BUILD_LIMIT, Echo::Off)?;
    if !built.success {
        return Err(format!("{what} does not build:\n{}", built.output));
    }
    Ok(crate::root().join(program))
}

fn build_peers() -> Result<PathBuf, String> {
    let manifest = ["build", "--release", "--manifest-path", "bench/peers/rust/Cargo.toml"];
    let args = [manifest.as_slice(), &["--target-dir", "target/peers"]].concat();
    build_rust("the peers in Rust", &args, "target/peers/release/peers")
}

/// A process with locks of one kind. Killed when dropped.
pub(crate) struct Worker {
    pub(crate) kind: &'static str,
    pub(crate) pid: u32,
    input: ChildStdin,
    answers: Receiver<String>,
    _cleanup: Cleanup,
}

impl Worker {
    pub(crate) fn start(programs: &Programs, kind: &'static str, server: &Server) -> Result<Self, String> {
        let program = programs.of.get(kind).ok_or_else(|| format!("no program for {kind}"))?;
        let mut command = Command::new(program);
        let mut child = command
            .args([kind, &server.url(), &programs.threads])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let pid = child.id();
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let cleanup = Cleanup::new(move || {
            process::kill_group(pid);
            let _ = child.wait();
        });
        let output = BufReader::new(output.ok_or("the worker has no output")?);
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let input = input.ok_or("the worker has no input")?;
        let worker = Self { kind, pid, input, answers, _cleanup: cleanup };
        worker.answer()?;
        Ok(worker)
    }

    pub(crate) fn tell(&mut self, command: &Value) -> Result<(), String> {
        writeln!(self.input, "{command}").map_err(|error| format!("{} does not listen: {error}", self.kind))
    }

    pub(crate) fn answer(&self) -> Result<Value, String> {
        let line = self.answers.recv_timeout(PATIENCE);
        let line = line.map_err(|_| format!("{} has not answered for {PATIENCE:?}", self.kind))?;
        let answer: Value = serde_json::from_str(&line).map_err(|error| format!("{}: {error}", self.kind))?;
        match answer["error"].as_str() {
            Some(error) => Err(format!("{}: {error}", self.kind)),
            None => Ok(answer),
        }
    }

    pub(crate) fn ask(&mut self, command: &Value) -> Result<Value, String> {
        self.tell(command)?;
        self.answer()
    }

    /// Processor time so far, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        cpu_of(self.pid)
    }
}

/// Processor time of a process so far, in seconds; 0 where the system does not tell.
pub(crate) fn cpu_of(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Resident memory of a process in bytes; 0 where the system does not tell.
pub(crate) fn memory_of(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|kib| kib.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}
