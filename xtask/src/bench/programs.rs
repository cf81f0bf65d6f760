//! The programs that workers run. Those of peers are built where their toolchains are; where not,
//! that is told.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::interop::java::Java;
use crate::process;
use crate::process::Echo;
use crate::process::cargo;
use crate::puppet;
use crate::root;

use super::Plan;

const BUILD_LIMIT: Duration = Duration::from_secs(1_800);

pub(crate) const OWN: [&str; 2] = ["thread", "current"];
pub(crate) const FLOORS: [&str; 2] = ["floor-thread", "floor-current"];
/// Bare sockets, and a thread that waits: for one task in a process.
pub(crate) const RAW: &str = "floor-raw";
/// One task that passes a lock on, however many others would have.
pub(crate) const RELAY: &str = "floor-relay";
/// Tokio's own locks, within one process.
pub(crate) const LOCAL: &str = "tokio";
/// This crate with a lease of 3 s, for processes that are killed.
pub(crate) const SHORT_LEASE: &str = "thread-short-lease";
/// This crate in the profile of Redisson, with hand-off and without; both wake Redisson.
pub(crate) const PROFILES: [&str; 2] = ["redisson-profile", "redisson-profile-no-hand-off"];
const RUST: [&str; 3] = ["rlock", "rslock", "async-redis-lock"];
const GO: [&str; 2] = ["rueidislock", "redsync"];
const JAVA: [&str; 1] = ["redisson"];
const NPM: [&str; 2] = ["node-redisson", "redis-semaphore"];

/// Own kinds and their floors first, so that a table reads that way.
pub(crate) fn everybody() -> Vec<&'static str> {
    let own = [FLOORS[1], OWN[1], FLOORS[0], OWN[0]];
    own.into_iter().chain(RUST).chain(GO).chain(JAVA).chain(NPM).collect()
}

/// Kinds with a read-write lock.
pub(crate) fn with_read_write() -> Vec<&'static str> {
    vec![LOCAL, OWN[1], OWN[0], RUST[0], JAVA[0]]
}

/// Kinds with a semaphore.
pub(crate) fn with_semaphore() -> Vec<&'static str> {
    vec![LOCAL, OWN[1], OWN[0], JAVA[0], NPM[1]]
}

/// Kinds with a multi-lock and a fair lock.
pub(crate) fn with_multi_and_fair() -> Vec<&'static str> {
    vec![OWN[1], OWN[0], JAVA[0]]
}

/// Whether it runs on a virtual machine that compiles what is called often.
pub(crate) fn compiles(kind: &str) -> bool {
    JAVA.contains(&kind) || NPM.contains(&kind)
}

/// A program, and the words before those that every worker gets.
type Words = Vec<OsString>;

/// Which program is which kind of lock.
pub(crate) struct Programs {
    of: BTreeMap<&'static str, Words>,
    /// Wanted kinds that are not there, and why.
    absent: BTreeMap<&'static str, String>,
    threads: String,
}

impl Programs {
    /// Builds what is there to build; peers that do not build are named and left out.
    pub(crate) fn build(plan: &Plan) -> Result<Self, String> {
        let own = rust("this crate", "bench", &["-p", "bench"])?;
        let others = [RAW, RELAY, LOCAL, SHORT_LEASE, "thread-no-hand-off"];
        let kinds = OWN.into_iter().chain(FLOORS).chain(others).chain(PROFILES);
        let of = kinds.map(|kind| (kind, own.clone())).collect();
        let mut programs = Self { of, absent: BTreeMap::new(), threads: plan.threads.clone() };
        programs.peers(plan, &RUST, rust_peers);
        programs.peers(plan, &GO, go_peers);
        programs.peers(plan, &JAVA, java_peers);
        programs.peers(plan, &NPM, npm_peers);
        Ok(programs)
    }

    fn peers(
        &mut self,
        plan: &Plan,
        kinds: &[&'static str],
        build: impl FnOnce() -> Result<Words, String>,
    ) {
        let wanted = plan.wanted(kinds);
        if wanted.is_empty() {
            return;
        }
        match build() {
            Ok(words) => self.of.extend(wanted.into_iter().map(|kind| (kind, words.clone()))),
            Err(reason) => {
                println!("without {}: {reason}", wanted.join(", "));
                self.absent.extend(wanted.into_iter().map(|kind| (kind, reason.clone())));
            }
        }
    }

    /// Why a kind is not there, if so.
    pub(crate) fn absent(&self, kind: &str) -> Option<&str> {
        self.absent.get(kind).map(String::as_str)
    }

    pub(crate) fn command(&self, kind: &str, url: &str) -> Result<Command, String> {
        let words = self.of.get(kind).ok_or_else(|| format!("no program for {kind}"))?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args([kind, url, &self.threads]);
        Ok(command)
    }
}

fn rust(what: &str, program: &str, package: &[&str]) -> Result<Words, String> {
    println!("building {what}");
    let mut command =
        cargo(&["build", "--profile=service", "--message-format=json-render-diagnostics"]);
    command.args(package);
    let built = process::run(command, BUILD_LIMIT, Echo::Off)?;
    if !built.success {
        return Err(format!("{what} does not build:\n{}", built.output));
    }
    Ok(vec![puppet::executable(&built.output, program)?.into()])
}

fn rust_peers() -> Result<Words, String> {
    let manifest =
        ["--manifest-path", "bench/peers/rust/Cargo.toml", "--target-dir", "target/peers"];
    rust("the peers in Rust", "peers", &manifest)
}

fn go_peers() -> Result<Words, String> {
    let program = root().join("target/peers/go");
    let mut command = tool("go")?;
    command.args(["build", "-o"]).arg(&program).arg(".").current_dir(root().join("bench/peers/go"));
    build("the peers in Go", command)?;
    Ok(vec![program.into()])
}

fn java_peers() -> Result<Words, String> {
    let java = Java::find(false)?;
    println!("building the peers in Java");
    java.package(&root().join("bench/peers/java"), &[])?;
    let target = root().join("target/peers/java");
    let class_path = format!("{0}/classes:{0}/lib/*", target.display());
    Ok(vec![java.program().into(), "-cp".into(), class_path.into(), "peers.Peers".into()])
}

fn npm_peers() -> Result<Words, String> {
    let node = find("node")?;
    let project = root().join("bench/peers/npm");
    let mut command = tool("npm")?;
    command.args(["ci", "--no-audit", "--no-fund"]).current_dir(&project);
    build("the peers of npm", command)?;
    Ok(vec![node.into(), "--no-warnings".into(), project.join("peers.js").into()])
}

fn tool(name: &str) -> Result<Command, String> {
    find(name).map(Command::new)
}

fn find(name: &str) -> Result<PathBuf, String> {
    process::find_program(name).ok_or_else(|| format!("{name} is missing"))
}

fn build(what: &str, command: Command) -> Result<(), String> {
    println!("building {what}");
    let built = process::run(command, BUILD_LIMIT, Echo::Off)?;
    if built.success {
        Ok(())
    } else {
        Err(format!("{what} do not build:\n{}", built.output.trim_end()))
    }
}
