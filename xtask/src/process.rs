//! Running programs: under a time limit, seen and recorded, with nothing left behind.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process_group;

use crate::cleanup::Cleanup;

/// What a program did.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) success: bool,
    pub(crate) timed_out: bool,
    /// Standard output and standard error, as they came.
    pub(crate) output: String,
    pub(crate) took: Duration,
}

/// Whether the output is shown while it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Echo {
    On,
    Off,
}

/// `cargo`, in the root of the repository.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(crate::root());
    // What cargo tells this program about its own package. Build scripts look at these, and would
    // be run again at every change between a cargo that was started here and one that was not.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// The same for what computes for minutes: it optimizes the crates of this repository, which are
/// then built once more. Dependencies are those of other commands. Below level 2 the compiler would
/// use what they have of generic functions, which is not optimized.
pub(crate) fn optimizing_cargo(args: &[&str]) -> Command {
    let mut command = cargo(args);
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
    command
}

/// Runs `command` to its end, or kills it and all that it started after `limit`.
pub(crate) fn run(mut command: Command, limit: Duration, echo: Echo) -> Result<Finished, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let started = Instant::now();
    // A process group of its own, so that what the program starts can be killed with it.
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let group = child.id();
    let cleanup = Cleanup::new(move || kill_group(group));
    let output = Arc::new(Mutex::new(String::new()));
    let readers = [
        child.stdout.take().map(|pipe| copy(pipe, output.clone(), echo)),
        child.stderr.take().map(|pipe| copy(pipe, output.clone(), echo)),
    ];
    let status =
        wait(&mut child, limit).map_err(|error| format!("waiting for {program}: {error}"))?;
    drop(cleanup); // What the program left behind would keep the pipes open.
    let _ = child.wait();
    for reader in readers.into_iter().flatten() {
        let _ = reader.join();
    }
    let output = std::mem::take(&mut *output.lock().unwrap_or_else(PoisonError::into_inner));
    let success = status == Some(true);
    Ok(Finished { success, timed_out: status.is_none(), output, took: started.elapsed() })
}

/// Whether it ended well; none if it did not end in time.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<bool>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if started.elapsed() > limit {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn copy(
    pipe: impl Read + Send + 'static,
    output: Arc<Mutex<String>>,
    echo: Echo,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line);
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            output.push_str(&text);
            if echo == Echo::On {
                print!("{text}");
            }
            drop(output);
            line.clear();
        }
    })
}

/// Kills every process of a group; those that are gone already are no error.
pub(crate) fn kill_group(group: u32) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The first line that a program says; empty if it says nothing, or is not there.
pub(crate) fn first_line(command: &mut Command) -> String {
    let done = command.output();
    let text =
        done.map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Looks a program up as a shell would.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}
