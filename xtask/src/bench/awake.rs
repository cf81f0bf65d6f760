//! Cores that do not fall asleep, as with `idle=poll`.
//!
//! In a virtual machine a core that has slept for some milliseconds runs what comes next at half of
//! its speed, and takes long to wake. Who is measured is as quick then as others keep the machine
//! awake meanwhile: a runtime with a thread that looks at its clock every 20 us does.

use std::io::Write;
use std::path::Path;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;
use std::thread;

use crate::cleanup::Cleanup;
use crate::process;

/// What tells this program to be one of those who keep a core awake.
pub(crate) const COMMAND: &str = "stay-awake";

/// Until it is dropped, each core has somebody to run who gives way to everybody else.
pub(crate) struct Awake {
    spinners: Vec<Spinner>,
}

struct Spinner {
    input: ChildStdin,
    _cleanup: Cleanup,
}

impl Awake {
    pub(crate) fn start() -> Result<Self, String> {
        let status =
            std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
        let cores = allowed(&status).ok_or("the system does not tell which cores there are")?;
        for tool in ["chrt", "taskset"] {
            process::find_program(tool).ok_or_else(|| format!("{tool} (util-linux) is missing"))?;
        }
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let spinners =
            cores.into_iter().map(|core| spinner(&own, core)).collect::<Result<_, _>>()?;
        Ok(Self { spinners })
    }

    /// Whether all of them are still there.
    pub(crate) fn lasts(&mut self) -> bool {
        self.spinners.iter_mut().all(|spinner| spinner.input.write_all(b"\n").is_ok())
    }
}

fn spinner(own: &Path, core: usize) -> Result<Spinner, String> {
    let mut child = Command::new("chrt")
        .args(["-i", "0", "taskset", "-c", &core.to_string()])
        .arg(own)
        .arg(COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("chrt: {error}"))?;
    let input = child.stdin.take();
    let cleanup = Cleanup::new(move || {
        let _ = child.kill();
        let _ = child.wait();
    });
    Ok(Spinner { input: input.ok_or("a spinner has no input")?, _cleanup: cleanup })
}

/// Keeps the core that it runs on awake until standard input ends, however whoever started it does.
pub(crate) fn spin() {
    thread::spawn(|| {
        loop {
            // Who gives a core away itself gets it back at once, not when a spinner's slice ends.
            thread::yield_now();
        }
    });
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
}

/// The cores in `/proc/self/status`: `Cpus_allowed_list: 0-2,5`.
fn allowed(status: &str) -> Option<Vec<usize>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut cores = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cores.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        let of = |list: &str| {
            allowed(&format!("Name:\txtask\nCpus_allowed_list:\t{list}\nMems_allowed_list:\t0\n"))
        };
        assert_eq!(of("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(of("3"), Some(vec![3]));
        assert_eq!(of("a-2"), None);
        assert_eq!(allowed("Name:\txtask\n"), None);
    }
}
