//! `cargo xtask sim`: the simulation, for other seeds than the tests take.

use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::process::Echo;
use crate::process::Finished;
use crate::test;

/// The test that runs seeds.
pub(crate) const TEST: &str = "sim::what_must_be_true_is_true_for_every_seed";
/// The same for Redlocks, whose seeds are others.
const REDLOCK_TEST: &str = "redlock::simulation::nobody_is_granted_what_another_holds";

const BUILD_LIMIT: Duration = Duration::from_secs(900);
/// How many crowds of contending clients are simulated.
const CROWDS: &str = "60";
/// Whoever asks for many seeds wants to wait for them.
const LIMIT: Duration = Duration::from_secs(24 * 3_600);

/// What is to be simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    first: u64,
    end: u64,
    trace: bool,
    threads: Option<usize>,
    /// The kind that all lock names are of; without one, each seed draws it.
    kind: Option<String>,
    redlock: bool,
}

impl Wanted {
    pub(crate) fn seeds(first: u64, end: u64) -> Self {
        Self { first, end, trace: false, threads: None, kind: None, redlock: false }
    }

    fn read(args: &[&str]) -> Option<Self> {
        let mut wanted = Self::seeds(0, 10_000);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                "--seed" => {
                    wanted.first = args.next()?.parse().ok()?;
                    wanted.end = wanted.first.checked_add(1)?;
                }
                "--seeds" => {
                    let (first, end) = args.next()?.split_once("..")?;
                    (wanted.first, wanted.end) = (first.parse().ok()?, end.parse().ok()?);
                }
                "--trace" => wanted.trace = true,
                "--redlock" => wanted.redlock = true,
                "--threads" => wanted.threads = Some(args.next()?.parse().ok()?),
                "--kind" => wanted.kind = Some((*args.next()?).to_owned()),
                _ => return None,
            }
        }
        (wanted.first < wanted.end).then_some(wanted)
    }

    fn tell(&self, command: &mut Command) {
        let seeds = if self.redlock { "REDLOCK_SEEDS" } else { "SIM_SEEDS" };
        command.env(seeds, format!("{}..{}", self.first, self.end)).env("RUST_BACKTRACE", "0");
        if self.trace {
            command.env("SIM_TRACE", "1");
        }
        if let Some(threads) = self.threads {
            command.env("SIM_THREADS", threads.to_string());
        }
        if let Some(kind) = &self.kind {
            command.env("SIM_KIND", kind);
        }
    }
}

/// True if no seed failed.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    if args == ["--crowds"] {
        return crowds();
    }
    let wanted = Wanted::read(args)
        .ok_or("sim wants --seed N [--trace], or --seeds A..B, and perhaps --threads N or --kind KIND; --redlock and --seeds A..B; or --crowds alone")?;
    Ok(simulate(&wanted, LIMIT, Echo::On)?.success)
}

/// The tests of the simulation that are not about seeds, with more crowds than `cargo test` takes.
fn crowds() -> Result<bool, String> {
    let mut command = process::optimizing_cargo(&["test", test::FEATURES, "--lib", "sim::", "--"]);
    command.args(["--skip", TEST, "--nocapture"]).env("SIM_CROWDS", CROWDS);
    let done = process::run(command, BUILD_LIMIT + LIMIT, Echo::On)?;
    Ok(done.success && test::counts(&done.output).passed > 0)
}

/// Builds the simulation, then runs seeds of it.
pub(crate) fn simulate(wanted: &Wanted, limit: Duration, echo: Echo) -> Result<Finished, String> {
    let build = process::optimizing_cargo(&["test", test::FEATURES, "--lib", "--no-run"]);
    let built = process::run(build, BUILD_LIMIT, Echo::Off)?;
    if !built.success {
        return Err(format!("the build failed:\n{}", built.output));
    }
    let mut command = process::optimizing_cargo(&[
        "test",
        test::FEATURES,
        "--lib",
        "--quiet",
        if wanted.redlock { REDLOCK_TEST } else { TEST },
        "--",
        "--exact",
    ]);
    command.arg("--nocapture");
    wanted.tell(&mut command);
    let done = process::run(command, limit, echo)?;
    let counts = test::counts(&done.output);
    // A run out of time has no result; that is told by its caller.
    if !done.timed_out && counts.passed + counts.failed == 0 {
        return Err(
            "the simulation is not in this build; RUSTFLAGS must have `--cfg repository`".into()
        );
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_read() {
        assert_eq!(Wanted::read(&["--seeds", "3..9"]), Some(Wanted::seeds(3, 9)));
        let one = Wanted { trace: true, threads: Some(1), ..Wanted::seeds(7, 8) };
        assert_eq!(Wanted::read(&["--seed", "7", "--trace", "--threads", "1"]), Some(one));
        let pairs = Wanted { kind: Some("pair".to_owned()), ..Wanted::seeds(0, 10_000) };
        assert_eq!(Wanted::read(&["--kind", "pair"]), Some(pairs));
        for wrong in [&["--seeds", "3"][..], &["--seeds", "9..3"], &["--seed"], &["17"]] {
            assert_eq!(Wanted::read(wrong), None, "{wrong:?}");
        }
    }
}
