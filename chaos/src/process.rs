//! A process of this program that takes part in a run.

use std::fs::File;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;

/// Killed when dropped, frozen or not.
pub(crate) struct Process {
    child: Child,
    /// Since when.
    frozen: Option<Instant>,
}

impl Process {
    /// This program once more, with these words. Its errors go to a file.
    pub(crate) fn start(words: &[String], said: File) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .map_err(|error| format!("a process does not start: {error}"))?;
        Ok(Self { child, frozen: None })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    pub(crate) fn freeze(&mut self) {
        self.frozen = self.signal(Signal::STOP).then(Instant::now);
    }

    /// Returns for how long it was frozen, if it was.
    pub(crate) fn thaw(&mut self) -> Option<Duration> {
        let since = self.frozen.take()?;
        self.signal(Signal::CONT);
        Some(since.elapsed())
    }

    /// Its input ends, which tells it to give everything back.
    pub(crate) fn ask_to_end(&mut self) {
        drop(self.child.stdin.take());
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.child.try_wait().map_err(|error| error.to_string())
    }

    fn signal(&self, signal: Signal) -> bool {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
