//! A process of the package `puppet` under a test's control.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::Value;

/// Built with these tests, which are targets of its package.
const PROGRAM: &str = env!("CARGO_BIN_EXE_puppet");

/// Generous: the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// Events that end a command.
const ENDS: [&str; 7] = ["granted", "denied", "unlocked", "dropped", "cancelled", "info", "error"];

pub(crate) struct Puppet {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Read, but not yet asked for.
    kept: Vec<Value>,
    pub(crate) uuid: String,
}

impl Puppet {
    pub(crate) fn start(url: &str, settings: &[&str]) -> Self {
        Self::start_by(Command::new(PROGRAM), url, settings)
    }

    /// The same in a mount namespace of its own, where this file is `/etc/hosts`.
    pub(crate) fn start_with_hosts(hosts: &Path, url: &str, settings: &[&str]) -> Self {
        let mut command = with_hosts(hosts);
        command.arg(PROGRAM);
        Self::start_by(command, url, settings)
    }

    fn start_by(mut command: Command, url: &str, settings: &[&str]) -> Self {
        let mut child = command
            .arg(url)
            .args(settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the puppet starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let event =
                    serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        let mut puppet = Self { child, input, lines, kept: Vec::new(), uuid: String::new() };
        let ready =
            puppet.wait("ready", |event| event["event"] == "ready" || event["id"].is_null());
        assert_eq!(ready["event"], "ready", "{ready}");
        puppet.uuid = ready["uuid"].as_str().expect("a uuid").to_owned();
        puppet
    }

    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("open");
        writeln!(input, "{line}").expect("the puppet reads");
    }

    /// Many lines at once.
    pub(crate) fn send_all(&mut self, lines: impl IntoIterator<Item = String>) {
        let text: String = lines.into_iter().map(|line| line + "\n").collect();
        self.input.as_mut().expect("open").write_all(text.as_bytes()).expect("the puppet reads");
    }

    /// Sends `ID VERB …` and waits for its end.
    pub(crate) fn run(&mut self, line: &str) -> Value {
        self.send(line);
        let id = line.split(' ').next().expect("an id").to_owned();
        self.end_of(&id)
    }

    /// The event that ends command `id`.
    pub(crate) fn end_of(&mut self, id: &str) -> Value {
        let ends = |event: &Value| ENDS.iter().any(|end| event["event"] == *end);
        self.wait(id, |event| event["id"] == id && ends(event))
    }

    /// The next event that fits, taken out; others are kept for later.
    pub(crate) fn wait(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.wait_within(PATIENCE, &fits).unwrap_or_else(|| {
            panic!("waited {PATIENCE:?} for {what}; kept: {:?}", self.kept);
        })
    }

    pub(crate) fn wait_within(
        &mut self,
        limit: Duration,
        fits: &impl Fn(&Value) -> bool,
    ) -> Option<Value> {
        if let Some(at) = self.kept.iter().position(fits) {
            return Some(self.kept.remove(at));
        }
        loop {
            match self.lines.recv_timeout(limit) {
                Ok(event) if fits(&event) => return Some(event),
                Ok(event) => self.kept.push(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Takes what has arrived so far and fits.
    pub(crate) fn drain(&mut self, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
        self.kept.extend(self.lines.try_iter());
        let (taken, kept) = std::mem::take(&mut self.kept).into_iter().partition(fits);
        self.kept = kept;
        taken
    }

    /// The next line, whatever it is, skipping nothing that arrived after this call.
    pub(crate) fn next_line(&mut self) -> Value {
        self.lines.recv_timeout(PATIENCE).expect("a line")
    }

    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }

    /// Ends the input; the puppet shuts down and exits with 0.
    pub(crate) fn finish(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().expect("it exits").success());
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the command that is given as its arguments where this file is `/etc/hosts`; without a right
/// to that, it fails.
pub(crate) fn with_hosts(hosts: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c"]);
    command.arg("mount --bind \"$0\" /etc/hosts && exec \"$@\"").arg(hosts);
    command
}
