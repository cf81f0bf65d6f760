//! A process with a lock client in either language.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::interop::java::JavaPuppet;
use crate::puppet::Event;
use crate::puppet::Puppet;
use crate::puppet::boot_ns;

/// A virtual machine starts slowly on a busy one.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Longer than anything takes that works, while other programs have the cores too.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lang {
    Java,
    Rust,
}

impl Lang {
    pub(crate) const BOTH: [Self; 2] = [Self::Java, Self::Rust];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Java => "Java",
            Self::Rust => "Rust",
        }
    }
}

/// Who does what in a scenario: a first part, the holder or the killed one, and a second.
pub(crate) type Direction = (Lang, Lang);

pub(crate) const BOTH_WAYS: &[Direction] = &[(Lang::Java, Lang::Rust), (Lang::Rust, Lang::Java)];
pub(crate) const ONCE: &[Direction] = &[(Lang::Java, Lang::Rust)];

/// What the processes run.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) rust: PathBuf,
    pub(crate) java: JavaPuppet,
}

/// How long the watched leases of a client are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// 30 s, as by default: nothing in a scenario happens because it runs out.
    Long,
    /// 1.5 s, renewed three times in that.
    Short,
}

impl Lease {
    pub(crate) const SHORT: Duration = Duration::from_millis(1_500);

    fn setting(self) -> Option<String> {
        (self == Self::Short).then(|| format!("lease_ms={}", Self::SHORT.as_millis()))
    }
}

/// The process, with what may be asked of it in either language.
pub(crate) struct Client {
    pub(crate) lang: Lang,
    pub(crate) settings: Vec<String>,
    puppet: Puppet,
    commands: u32,
}

/// What a process is started with, the address apart.
pub(crate) fn settings(lease: Lease, more: &[&str]) -> Vec<String> {
    lease.setting().into_iter().chain(more.iter().map(|&word| word.to_owned())).collect()
}

impl Client {
    pub(crate) fn start(
        programs: &Programs,
        lang: Lang,
        url: &str,
        settings: Vec<String>,
    ) -> Result<Self, String> {
        let mut command = match lang {
            Lang::Rust => Command::new(&programs.rust),
            Lang::Java => programs.java.command()?,
        };
        command.arg(url).args(&settings);
        if lang == Lang::Java {
            command.arg(format!("boot_offset_ns={}", boot_offset_ns()));
        }
        let letter = if lang == Lang::Java { 'J' } else { 'R' };
        let before = boot_ns();
        let (puppet, ready) = Puppet::start(command, letter, START_LIMIT)?;
        // Times of different processes are compared all over: they had better be of one clock.
        if !(before..=boot_ns()).contains(&ready.boot_ns) {
            return Err(format!("the clock of {} is another one: {ready:?}", lang.name()));
        }
        Ok(Self { lang, settings, puppet, commands: 0 })
    }

    pub(crate) fn uuid(&self) -> &str {
        &self.puppet.uuid
    }

    // ---- commands; names may contain anything

    /// Sends a command whose first argument is a name, and gives its id.
    pub(crate) fn begin(&mut self, verb: &str, name: &str, rest: &str) -> Result<String, String> {
        self.commands += 1;
        let id = format!("{verb}-{}", self.commands);
        self.puppet.send(&format!("{id} {verb} {} {rest}", serde_json::Value::from(name)))?;
        Ok(id)
    }

    pub(crate) fn expect(&mut self, id: &str, event: &str) -> Result<Event, String> {
        self.puppet.expect_within(id, event, LIMIT)
    }

    pub(crate) fn expect_within(
        &mut self,
        id: &str,
        event: &str,
        limit: Duration,
    ) -> Result<Event, String> {
        self.puppet.expect_within(id, event, limit)
    }

    /// Whether the event has come already.
    pub(crate) fn poll(&mut self, id: &str, event: &str) -> Option<Event> {
        self.puppet.poll(id, event)
    }

    /// Sends a command and waits for its end.
    pub(crate) fn ask(
        &mut self,
        verb: &str,
        name: &str,
        rest: &str,
        event: &str,
    ) -> Result<Event, String> {
        let id = self.begin(verb, name, rest)?;
        self.expect(&id, event)
    }

    /// Locks, and gives the id that unlocks and the event.
    pub(crate) fn lock(&mut self, name: &str, options: &str) -> Result<(String, Event), String> {
        let id = self.begin("lock", name, options)?;
        let granted = self.expect(&id, "granted")?;
        Ok((id, granted))
    }

    /// Begins to wait: it is known that the first attempt was refused, or will be.
    pub(crate) fn wait(&mut self, name: &str, options: &str) -> Result<String, String> {
        let id = self.begin("lock", name, options)?;
        self.expect(&id, "waiting")?;
        Ok(id)
    }

    pub(crate) fn begin_unlock(&mut self, lock: &str) -> Result<String, String> {
        self.commands += 1;
        let id = format!("unlock-{}", self.commands);
        self.puppet.send(&format!("{id} unlock {lock}"))?;
        Ok(id)
    }

    /// Unlocks, and says when that began.
    pub(crate) fn unlock(&mut self, lock: &str) -> Result<u64, String> {
        let id = self.begin_unlock(lock)?;
        let releasing = self.expect(&id, "releasing")?;
        self.expect(&id, "unlocked")?;
        Ok(releasing.boot_ns)
    }

    /// Unlocks what is not held any more.
    pub(crate) fn unlock_lost(&mut self, lock: &str) -> Result<(), String> {
        let id = self.begin_unlock(lock)?;
        match self.expect(&id, "error")? {
            error if error.text("kind") == "lost" => Ok(()),
            error => Err(format!("{} should say lost: {error:?}", self.lang.name())),
        }
    }

    pub(crate) fn denied(&mut self, name: &str) -> Result<(), String> {
        self.ask("try", name, "", "denied").map(|_| ())
    }

    /// SIGKILL.
    pub(crate) fn kill(self) {
        self.puppet.kill();
    }
}

/// What CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC, which is what Java reads.
fn boot_offset_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let monotonic = seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0);
    let offset = boot_ns().saturating_sub(monotonic);
    // Not suspended: what is left is the time between the two looks.
    if offset < 1_000_000 { 0 } else { offset }
}
