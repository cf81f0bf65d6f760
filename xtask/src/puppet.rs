//! One process that runs the package `puppet`, or speaks its protocol.

use std::collections::VecDeque;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Child;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;

use crate::cleanup::Cleanup;
use crate::process;
use crate::process::Echo;
use crate::process::cargo;
use crate::test;

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// Builds the package `puppet` and says where its program is.
pub(crate) fn build() -> Result<PathBuf, String> {
    let build = ["build", "--package", "puppet", test::FEATURES];
    // Once for those who watch, and once for its path.
    if !process::run(cargo(&build), BUILD_LIMIT, Echo::On)?.success {
        return Err("the package `puppet` does not build; see above".into());
    }
    let mut command = cargo(&build);
    command.arg("--message-format=json-render-diagnostics");
    executable(&process::run(command, BUILD_LIMIT, Echo::Off)?.output, "puppet")
}

/// Where cargo, asked for messages as JSON, says that it has put a program.
pub(crate) fn executable(output: &str, name: &str) -> Result<PathBuf, String> {
    let artifacts = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = artifacts
        .filter(|artifact| artifact["target"]["name"] == name)
        .filter_map(|artifact| artifact["executable"].as_str().map(PathBuf::from))
        .next_back();
    program.ok_or_else(|| format!("cargo does not say where `{name}` is"))
}

/// One line that a puppet printed.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) event: String,
    pub(crate) boot_ns: u64,
    id: String,
    pub(crate) fields: Value,
}

impl Event {
    pub(crate) fn number(&self, field: &str) -> Result<u64, String> {
        self.fields[field]
            .as_u64()
            .ok_or_else(|| format!("`{}` has no number `{field}`", self.event))
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.fields[field].as_str().unwrap_or_default()
    }

    /// A number of the `counters` of `stats`.
    pub(crate) fn counter(&self, name: &str) -> Result<u64, String> {
        self.fields["counters"][name]
            .as_u64()
            .ok_or_else(|| format!("stats has no counter `{name}`"))
    }
}

/// The process. Killed when dropped; `finish` lets it end well.
pub(crate) struct Puppet {
    pub(crate) letter: char,
    pub(crate) pid: u32,
    pub(crate) uuid: String,
    child: Arc<Mutex<Child>>,
    input: ChildStdin,
    events: Receiver<Event>,
    unread: VecDeque<Event>,
    cleanup: Cleanup,
}

impl Puppet {
    /// Starts it and waits for `ready`, which says when it was and where the process is.
    pub(crate) fn start(
        mut command: Command,
        letter: char,
        limit: Duration,
    ) -> Result<(Self, Event), String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let pid = child.id();
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let child = Arc::new(Mutex::new(child));
        let killed = Arc::clone(&child);
        let cleanup = Cleanup::new(move || {
            process::kill_group(pid);
            let _ = killed.lock().unwrap_or_else(PoisonError::into_inner).wait();
        });
        let input = input.ok_or("the puppet has no input")?;
        let output = BufReader::new(output.ok_or("the puppet has no output")?);
        let (sender, events) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if parse(&line).is_none_or(|event| sender.send(event).is_err()) {
                    eprintln!("not understood: {line}");
                }
            }
        });
        let unread = VecDeque::new();
        let mut puppet =
            Self { letter, pid, uuid: String::new(), child, input, events, unread, cleanup };
        let ready = puppet.expect_within("", "ready", limit)?;
        puppet.uuid = ready.text("uuid").to_owned();
        Ok((puppet, ready))
    }

    /// Sends a command, not waiting for anything.
    pub(crate) fn send(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.input, "{line}")
            .map_err(|error| format!("{} does not listen: {error}", self.letter))
    }

    /// Sends a command and waits for its end, which must be the event given.
    pub(crate) fn ask(&mut self, line: &str, event: &str) -> Result<Event, String> {
        self.send(line)?;
        let id = line.split_whitespace().next().unwrap_or_default();
        self.expect(id, event)
    }

    /// Waits for an event of a command, skipping `waiting` and `releasing` unless they are what is
    /// wanted.
    pub(crate) fn expect(&mut self, id: &str, event: &str) -> Result<Event, String> {
        self.expect_within(id, event, PATIENCE)
    }

    pub(crate) fn expect_within(
        &mut self,
        id: &str,
        event: &str,
        limit: Duration,
    ) -> Result<Event, String> {
        let until = Instant::now() + limit;
        loop {
            if let Some(found) = self.take(id, event) {
                return if found.event == event {
                    Ok(found)
                } else {
                    Err(format!("{} said {found:?} instead of `{event}`", self.letter))
                };
            }
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(event) => self.unread.push_back(event),
                Err(_) => {
                    return Err(format!(
                        "{} did not say `{event}` about `{id}` in time",
                        self.letter
                    ));
                }
            }
        }
    }

    /// The event, if it has come already.
    pub(crate) fn poll(&mut self, id: &str, event: &str) -> Option<Event> {
        self.unread.extend(self.events.try_iter());
        self.take(id, event).filter(|found| found.event == event)
    }

    /// The first unread event about `id` that is the one wanted or ends the wish for it.
    fn take(&mut self, id: &str, event: &str) -> Option<Event> {
        let passing = |unread: &Event| matches!(unread.event.as_str(), "waiting" | "releasing");
        let wanted =
            |unread: &Event| unread.id == id && (unread.event == event || !passing(unread));
        let at = self.unread.iter().position(wanted)?;
        self.unread.remove(at)
    }

    /// SIGKILL: the process has no chance to release anything.
    pub(crate) fn kill(self) {
        drop(self.cleanup);
    }

    /// Ends the input and waits for the process to end by itself, with 0.
    pub(crate) fn finish(self) -> Result<(), String> {
        let Self { letter, child, input, cleanup, .. } = self;
        drop(input);
        let until = Instant::now() + PATIENCE;
        let ended = loop {
            let status = child.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
            match status.map_err(|error| error.to_string())? {
                None if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
                status => break status,
            }
        };
        drop(cleanup);
        match ended {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("{letter} ended with {status}")),
            None => Err(format!("{letter} does not end at the end of its input")),
        }
    }
}

fn parse(line: &str) -> Option<Event> {
    let fields: Value = serde_json::from_str(line).ok()?;
    let event = fields["event"].as_str()?.to_owned();
    let id = fields["id"].as_str().unwrap_or_default().to_owned();
    Some(Event { event, boot_ns: fields["boot_ns"].as_u64()?, id, fields })
}

/// CLOCK_BOOTTIME, as in the events.
pub(crate) fn boot_ns() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(CLOCK);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
