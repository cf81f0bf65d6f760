//! A server process: its keys, its clock that is not ours, and what is wrong with it.

use std::collections::BTreeSet;
use std::collections::VecDeque;

use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Snapshot;
use crate::backend::memory::store::SortedSet;
use crate::backend::memory::store::Stored;
use crate::backend::redis::classify;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::sim::kinds::Found;
use crate::sim::kinds::rules_of;

const START_US: i64 = 1_704_067_200_000_000;

/// How many of the last writes a replica may not have.
const LAG: usize = 6;

/// The waiting line of a name, as the checks look at it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FoundLine {
    /// The waiters' fields with their tickets, in their order.
    pub(super) waiting: SortedSet,
    pub(super) pttl: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) keys: Keyspace,
    pub(super) offset_us: i64,
    drift: i64,
    /// New with every start.
    pub(super) run: u64,
    pub(super) alive: bool,
    pub(super) paused_until: Moment,
    pub(super) unreachable_until: Moment,
    /// Answers with this until then.
    pub(super) trouble: Option<(Moment, &'static str)>,
    /// Another has taken its place; from the second instant on it knows.
    pub(super) deposed: Option<(Moment, Moment)>,
    out_of_memory: bool,
    /// Scripts that it knows.
    pub(super) loaded: BTreeSet<&'static str>,
    /// What it held before each of the last writes, if a replica may take over.
    pub(super) history: VecDeque<Snapshot>,
    pub(super) replicated: bool,
    /// Runs in place of the script of the same name.
    pub(super) instead: Option<&'static Script>,
}

impl Process {
    pub(super) fn new(offset_us: i64, drift: i64, run: u64, replicated: bool) -> Self {
        Self {
            keys: Keyspace::new(),
            offset_us,
            drift,
            run,
            alive: true,
            paused_until: Moment::ZERO,
            unreachable_until: Moment::ZERO,
            trouble: None,
            deposed: None,
            out_of_memory: false,
            loaded: BTreeSet::new(),
            history: VecDeque::new(),
            replicated,
            instead: None,
        }
    }

    /// A replica of it, with a clock that differs by so much, without the last `lost` writes.
    pub(super) fn promote(&mut self, lost: usize, clock_us: i64, run: u64) -> Self {
        let mut replica = Self::new(self.offset_us + clock_us, self.drift, run, true);
        replica.instead = self.instead;
        let at = self.history.len().saturating_sub(lost);
        let snapshot = self.history.get(at).cloned().unwrap_or_else(|| self.keys.snapshot());
        replica.keys.restore(snapshot);
        replica
    }

    pub(super) fn set_out_of_memory(&mut self, on: bool) {
        self.out_of_memory = on;
        self.keys.set_out_of_memory(on);
    }

    pub(super) fn is_out_of_memory(&self) -> bool {
        self.out_of_memory
    }

    /// Its clock, in µs.
    pub(super) fn time(&self, now: Moment) -> i64 {
        let local = now.micros();
        START_US + self.offset_us + local + local / 1_000 * self.drift / 1_000
    }

    /// When its clock will show this, at the latest, as it runs now.
    pub(super) fn moment_of(&self, now: Moment, time: i64) -> Moment {
        let left = u64::try_from(time.saturating_sub(self.time(now))).unwrap_or(0);
        Moment(now.0.saturating_add(
            left.saturating_mul(1_000 + 1_000 * self.drift.unsigned_abs() / 1_000_000),
        ))
    }

    pub(super) fn execute(&mut self, now: Moment, call: &Call) -> Outcome<Value> {
        let time = self.time(now);
        match call {
            Call::Time => Outcome::Done(Value::List(vec![Value::Int(time)])),
            Call::Ping => Outcome::Done(Value::List(Vec::new())),
            Call::Info => {
                Outcome::Done(Value::List(vec![Value::Text("in_memory:1\r\n".to_owned())]))
            }
            Call::Script(call) => {
                if self.replicated {
                    self.history.push_back(self.keys.snapshot());
                    if self.history.len() > LAG {
                        self.history.pop_front();
                    }
                }
                let ran = match self.instead.filter(|script| script.name == call.script.name) {
                    Some(script) => self.keys.run(time, &ScriptCall { script, ..(**call).clone() }),
                    None => self.keys.run(time, call),
                };
                match ran {
                    Ok(value) => Outcome::Done(value),
                    Err(text) => classify::judge_words(&text),
                }
            }
        }
    }

    /// A lock as it is there now.
    pub(super) fn lock(&self, now: Moment, name: &LockName) -> Option<Found> {
        rules_of(name).find(&self.keys, self.time(now), name)
    }

    /// The fencing token that was given last, as far as it knows.
    pub(super) fn fence(&self, now: Moment, name: &LockName) -> u64 {
        match self.keys.peek(self.time(now), &name.fence_key()).map(|dumped| dumped.value) {
            Some(Stored::Text(text)) => text.parse().unwrap_or(0),
            _ => 0,
        }
    }

    /// The waiting line of a name, if there is one.
    pub(super) fn line(&self, now: Moment, name: &LockName) -> Option<FoundLine> {
        let dumped = self.keys.peek(self.time(now), &name.line_key())?;
        match dumped.value {
            Stored::SortedSet(waiting) => Some(FoundLine { waiting, pttl: dumped.pttl }),
            _ => None,
        }
    }

    /// It starts anew.
    pub(super) fn restart(&mut self, run: u64, with_data: bool) {
        self.run = run;
        self.loaded.clear();
        self.history.clear();
        self.paused_until = Moment::ZERO;
        self.trouble = None;
        self.set_out_of_memory(false);
        if !with_data {
            self.keys.flush();
        }
    }

    pub(super) fn info(&self) -> ServerInfo {
        ServerInfo {
            run_id: format!("run{}", self.run),
            version: "7.0.15".to_owned(),
            address: "sim".to_owned(),
            ..ServerInfo::default()
        }
    }
}

/// Redis's refusals, in its words; which of them say that nothing was executed is the classifier's
/// to know.
pub(super) const REFUSALS: [&str; 20] = [
    "NOSCRIPT No matching script. Please use EVAL.",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "UNKILLABLE Sorry the script already executed write commands against the dataset.",
    "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "READONLY You can't write against a read only replica. script: 6e7b, on @user_script:1.",
    "NOREPLICAS Not enough good replicas to write. script: 6e7b, on @user_script:1.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist on disk.",
    "OOM command not allowed when used memory > 'maxmemory'. script: 6e7b, on @user_script:1.",
    "CLUSTERDOWN Hash slot not served",
    "CLUSTERDOWN The cluster is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "ERR max number of clients reached",
    "ERR internal error script: 6e7b, on @user_script:1.",
    "WRONGTYPE Operation against a key holding the wrong kind of value script: 6e7b, on @user_script:1.",
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM this user has no permissions to run the 'evalsha' command",
    "ERR The user executing the script can't run this command or subcommand script: 6e7b, on @user_script:1.",
    "CROSSSLOT Keys in request don't hash to the same slot",
];

pub(super) const TRY_AGAIN: &str = REFUSALS[11];
pub(super) const NO_LOGIN: &str = REFUSALS[15];
pub(super) const WRONG_PASSWORD: &str = REFUSALS[16];
pub(super) const NO_PERMISSION: &str = REFUSALS[17];

/// After these a connection is replaced.
pub(super) fn is_about_login(text: &str) -> bool {
    [NO_LOGIN, WRONG_PASSWORD].contains(&text)
}

/// How many of them, from the first on, are over before long.
pub(super) const PASSING: usize = 14;

/// What the scripts call.
pub(super) const CALLED: [&str; 21] = [
    "TIME", "PTTL", "PEXPIRE", "PERSIST", "EXISTS", "TYPE", "HGET", "HSET", "HDEL", "HLEN",
    "HEXISTS", "HKEYS", "GET", "SET", "PUBLISH", "SPUBLISH", "ZADD", "ZREM", "ZRANGE", "ZSCORE",
    "ZCOUNT",
];

/// What a command within a script is refused with.
pub(super) const IN_SCRIPT: [&str; 4] = [
    "ERR Unknown Redis command called from script",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "ERR The user executing the script can't run this command or subcommand",
    "ERR The user executing the script can't publish to the channel mentioned in the command",
];

/// An error reply without any execution, if its words allow that.
pub(super) fn refusal(text: &str) -> Outcome<Value> {
    classify::judge_words(text)
}

pub(super) fn link_failure(words: &str) -> Failure {
    Failure::new(FailureKind::Link, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Duration;

    #[test]
    fn a_line_is_read_with_its_tickets_until_its_time_to_live_is_over() {
        let mut server = Process::new(0, 0, 1, false);
        let name = LockName::new("orders").unwrap();
        let waiting = SortedSet::from_iter([(1_750_000_000_000_007.0, "b:1".to_owned())]);
        let start = Moment::ZERO;
        server.keys.plant(
            server.time(start),
            &name.line_key(),
            Stored::SortedSet(waiting.clone()),
            Some(12_000),
        );
        let line = |server: &Process, millis: u64| {
            server.line(start.plus(Duration::from_millis(millis)), &name)
        };
        assert_eq!(line(&server, 2_000), Some(FoundLine { waiting, pttl: Some(10_000) }));
        assert_eq!(line(&server, 12_001), None);
        server.keys.plant(
            server.time(start),
            &name.line_key(),
            Stored::Text("foreign".to_owned()),
            None,
        );
        assert_eq!(line(&server, 0), None);
    }
}
