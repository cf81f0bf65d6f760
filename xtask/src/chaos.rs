//! `cargo xtask chaos`: real processes on servers that come to harm. The program is `chaos/`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::fred;
use crate::process;
use crate::process::Echo;
use crate::puppet;
use crate::seeded;
use crate::servers;
use crate::test;

const BUILD_LIMIT: Duration = Duration::from_secs(900);
/// Whoever asks for many histories wants to wait for them.
const LIMIT: Duration = Duration::from_secs(24 * 3_600);

/// With the library, whose features are given behind it.
const BUILD: &[&str] = &[
    "build",
    "--package=redis-reentrant-lock",
    "--package=chaos",
    "--bin=chaos",
    "--message-format=json-render-diagnostics",
];

/// True if no history shows anything wrong; with a rule broken on purpose, if one does.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    if let ["--bug", name, rest @ ..] = args {
        return with_bug(name, rest);
    }
    let mut build = process::cargo(BUILD);
    if let ["--over", "fred", rest @ ..] = args {
        build.args([test::FEATURES, "--features=chaos/fred"]);
        // A cluster is refused.
        let args = ["--on", "single,aof,sentinel"].iter().chain(rest).copied().collect::<Vec<_>>();
        return start(build, &args, Some(fred::TRANSPORT));
    }
    build.arg(test::FEATURES);
    start(build, args, None)
}

fn start(build: Command, args: &[&str], setting: Option<(&str, &str)>) -> Result<bool, String> {
    let mut command = Command::new(built(build)?);
    command.args(args).envs(setting).env("REDIS_SERVER", servers::find_or_install()?);
    Ok(process::run(command, LIMIT, Echo::On)?.success)
}

fn built(build: Command) -> Result<PathBuf, String> {
    let built = process::run(build, BUILD_LIMIT, Echo::Off)?;
    if !built.success {
        return Err(format!("the build failed:\n{}", built.output));
    }
    puppet::executable(&built.output, "chaos")
}

fn with_bug(name: &str, args: &[&str]) -> Result<bool, String> {
    let rule = seeded::named(name)?;
    let mut build = seeded::cargo(BUILD);
    build.arg(test::FEATURES);
    let clean = start(build, args, Some(seeded::broken(rule)))?;
    println!("{} {name}", if clean { "MISSED" } else { "found" });
    Ok(!clean)
}
