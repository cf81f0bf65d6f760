//! A process of `proof/load`.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
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

const BUILD_LIMIT: Duration = Duration::from_secs(1_800);
/// Longer than any load takes that works.
const PATIENCE: Duration = Duration::from_secs(900);

/// Builds the program as it is measured, and says where it is.
pub(crate) fn build() -> Result<PathBuf, String> {
    println!("building the load");
    let built =
        process::run(cargo(&["build", "--release", "-p", "proof-load"]), BUILD_LIMIT, Echo::Off)?;
    if !built.success {
        return Err(format!("the load does not build:\n{}", built.output));
    }
    Ok(crate::root().join("target/release/proof-load"))
}

/// Killed when dropped.
pub(crate) struct Worker {
    pub(crate) pid: u32,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    _cleanup: Cleanup,
}

impl Worker {
    pub(crate) fn start(
        program: &Path,
        what: &str,
        url: &str,
        numbers: &[u64],
    ) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args([what, url]).args(numbers.iter().map(u64::to_string)).process_group(0);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| format!("{}: {error}", program.display()))?;
        let pid = child.id();
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let cleanup = Cleanup::new(move || {
            process::kill_group(pid);
            let _ = child.wait();
        });
        let output = BufReader::new(output.ok_or("the load has no output")?);
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap_or(Value::Null));
            }
        });
        Ok(Self { pid, input, lines, _cleanup: cleanup })
    }

    pub(crate) fn tell(&mut self, order: &str) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("the load has no input")?;
        writeln!(input, "{order}").map_err(|error| format!("the load does not listen: {error}"))
    }

    /// No more orders.
    pub(crate) fn finish(&mut self) {
        self.input = None;
    }

    /// The next line, which must have this field.
    pub(crate) fn hear(&self, field: &str) -> Result<Value, String> {
        let line = self
            .lines
            .recv_timeout(PATIENCE)
            .map_err(|_| format!("the load does not say `{field}`"))?;
        if line[field].is_null() { Err(format!("{line} does not say `{field}`")) } else { Ok(line) }
    }
}
