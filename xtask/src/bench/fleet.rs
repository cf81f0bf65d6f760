//! The worker processes.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::ChildStdin;
use std::process::Stdio;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::cleanup::Cleanup;
use crate::process;
use crate::servers::Server;

use super::programs::Programs;

/// Longer than any load takes whose locks work.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process with locks of one kind. Killed when dropped.
pub(crate) struct Worker {
    pub(crate) kind: &'static str,
    pub(crate) pid: u32,
    input: ChildStdin,
    answers: Receiver<String>,
    _cleanup: Cleanup,
}

impl Worker {
    pub(crate) fn start(
        programs: &Programs,
        kind: &'static str,
        server: &Server,
    ) -> Result<Self, String> {
        Self::at(programs, kind, &server.url())
    }

    /// By another way to the server.
    pub(crate) fn at(programs: &Programs, kind: &'static str, url: &str) -> Result<Self, String> {
        let mut command = programs.command(kind, url)?;
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{kind}: {error}"))?;
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
        writeln!(self.input, "{command}")
            .map_err(|error| format!("{} does not listen: {error}", self.kind))
    }

    pub(crate) fn answer(&self) -> Result<Value, String> {
        let line = self.answers.recv_timeout(PATIENCE);
        let line = line.map_err(|why| match why {
            RecvTimeoutError::Timeout => format!("{} has not answered for {PATIENCE:?}", self.kind),
            RecvTimeoutError::Disconnected => format!("{} has ended", self.kind),
        })?;
        let answer: Value =
            serde_json::from_str(&line).map_err(|error| format!("{}: {error}", self.kind))?;
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
    let ticks =
        |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Resident memory of a process in bytes; 0 where the system does not tell.
pub(crate) fn memory_of(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}
