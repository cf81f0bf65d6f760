//! What the server holds, and the commands that scripts may use on it, with Redis's replies.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::backend::words::Words;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stored {
    Text(String),
    /// Fields in the order in which they were added, as Redis keeps them in a small hash.
    Hash(Vec<(String, String)>),
    /// No script makes one; tests plant it as a foreign value.
    #[cfg_attr(not(test), expect(dead_code))]
    List(Vec<String>),
}

impl Stored {
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    value: Stored,
    /// On the server's clock.
    expires_ms: Option<i64>,
}

/// One key of a dump.
#[cfg(test)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dumped {
    pub(crate) key: String,
    pub(crate) value: Stored,
    /// Time to live.
    pub(crate) pttl: Option<i64>,
}

/// All keys as they were at one time, their ends on the server's clock.
#[cfg(test)]
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot(BTreeMap<String, Entry>);

/// A message that a script published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) channel: String,
    pub(crate) payload: String,
    pub(crate) sharded: bool,
}

/// What a command answers to the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Nil,
    Int(i64),
    Text(String),
    Status(&'static str),
    List(Vec<String>),
    Error(Cow<'static, str>),
}

/// An error to be answered instead of what a command of the next script would answer.
#[derive(Debug, Clone)]
struct Fault {
    at_call: u32,
    error: String,
}

/// The keys, and the state of the script that runs.
#[derive(Debug, Default)]
pub(super) struct Store {
    entries: BTreeMap<String, Entry>,
    subscribers: BTreeMap<(bool, String), i64>,
    published: Vec<Published>,
    fault: Option<Fault>,
    out_of_memory: bool,
    /// Time stands still within a script.
    now_us: i64,
    declared: Words,
    calls: u32,
    /// Once a script has written, Redis lets it go on however short memory is.
    wrote: bool,
}

/// What a command does to the memory in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Writes,
    /// Refused when memory is short.
    Grows,
    /// PUBLISH writes no key.
    Tells,
}

struct Command {
    name: &'static str,
    /// Fewest and most words, its name included.
    words: (usize, usize),
    /// Which words are keys: as many from the second on.
    keys: usize,
    effect: Effect,
    run: fn(&mut Store, &[String]) -> Answer,
}

const ANY: usize = usize::MAX;

const fn command(
    name: &'static str,
    words: (usize, usize),
    keys: usize,
    effect: Effect,
    run: fn(&mut Store, &[String]) -> Answer,
) -> Command {
    Command { name, words, keys, effect, run }
}

static COMMANDS: [Command; 18] = [
    command("TIME", (1, 1), 0, Effect::Reads, Store::time),
    command("PTTL", (2, 2), 1, Effect::Reads, Store::pttl),
    command("HGET", (3, 3), 1, Effect::Reads, Store::hget),
    command("HSET", (4, ANY), 1, Effect::Grows, Store::hset),
    command("PEXPIRE", (3, 3), 1, Effect::Writes, Store::pexpire),
    command("GET", (2, 2), 1, Effect::Reads, Store::get),
    command("SET", (3, 3), 1, Effect::Grows, Store::set),
    command("DEL", (2, ANY), ANY, Effect::Writes, Store::del),
    command("PUBLISH", (3, 3), 0, Effect::Tells, |store, words| store.publish(words, false)),
    command("SPUBLISH", (3, 3), 0, Effect::Tells, |store, words| store.publish(words, true)),
    command("EXISTS", (2, ANY), ANY, Effect::Reads, Store::exists),
    command("TYPE", (2, 2), 1, Effect::Reads, Store::kind),
    command("HLEN", (2, 2), 1, Effect::Reads, Store::hlen),
    command("HKEYS", (2, 2), 1, Effect::Reads, Store::hkeys),
    command("HEXISTS", (3, 3), 1, Effect::Reads, Store::hexists),
    command("HGETALL", (2, 2), 1, Effect::Reads, Store::hgetall),
    command("HDEL", (3, ANY), 1, Effect::Writes, Store::hdel),
    command("PERSIST", (2, 2), 1, Effect::Writes, Store::persist),
];

/// One run of a script.
impl Store {
    /// Begins a run; the error of a fault that was planted in front of it.
    pub(super) fn begin(&mut self, now_us: i64, keys: &Words) -> Result<(), String> {
        self.now_us = now_us;
        self.calls = 0;
        self.wrote = false;
        self.declared.clone_from(keys);
        match self.fault.take_if(|fault| fault.at_call == 0) {
            Some(fault) => Err(fault.error),
            None => Ok(()),
        }
    }

    /// Ends a run; a fault that it did not reach is dropped.
    pub(super) fn end(&mut self) {
        self.fault = None;
    }

    /// One `redis.call`.
    pub(super) fn call(&mut self, words: &[String]) -> Answer {
        self.calls += 1;
        let calls = self.calls;
        if let Some(fault) = self.fault.take_if(|fault| fault.at_call == calls) {
            return Answer::Error(fault.error.into());
        }
        let Some(name) = words.first() else {
            return error("ERR Please specify at least one argument for this redis lib call");
        };
        let Some(command) = COMMANDS.iter().find(|command| command.name.eq_ignore_ascii_case(name)) else {
            return error("ERR Unknown Redis command called from script");
        };
        if words.len() < command.words.0 || words.len() > command.words.1 {
            return error("ERR Wrong number of args calling Redis command from script");
        }
        let is_declared = |key: &str| self.declared.iter().any(|declared| declared == key);
        if let Some(key) = words[1..].iter().take(command.keys).find(|key| !is_declared(key)) {
            return Answer::Error(format!("ERR script used the key '{key}', which is not in KEYS").into());
        }
        if command.effect == Effect::Grows && self.out_of_memory && !self.wrote {
            return error(OUT_OF_MEMORY);
        }
        self.wrote |= matches!(command.effect, Effect::Writes | Effect::Grows);
        (command.run)(self, words)
    }
}

/// The commands. The number of words has been checked.
impl Store {
    fn time(&mut self, _words: &[String]) -> Answer {
        let (seconds, micros) = (self.now_us.div_euclid(1_000_000), self.now_us.rem_euclid(1_000_000));
        Answer::List(vec![seconds.to_string(), micros.to_string()])
    }

    fn pttl(&mut self, words: &[String]) -> Answer {
        let now_ms = self.now_ms();
        Answer::Int(match self.live(&words[1]) {
            None => -2,
            Some(entry) => entry.expires_ms.map_or(-1, |at| at.saturating_sub(now_ms)),
        })
    }

    fn exists(&mut self, words: &[String]) -> Answer {
        count(words[1..].iter().filter(|key| self.live(key).is_some()).count())
    }

    fn kind(&mut self, words: &[String]) -> Answer {
        Answer::Status(self.live(&words[1]).map_or("none", |entry| entry.value.kind()))
    }

    fn get(&mut self, words: &[String]) -> Answer {
        match self.live(&words[1]).map(|entry| &entry.value) {
            None => Answer::Nil,
            Some(Stored::Text(text)) => Answer::Text(text.clone()),
            Some(_) => error(WRONG_TYPE),
        }
    }

    fn set(&mut self, words: &[String]) -> Answer {
        self.plant(&words[1], Stored::Text(words[2].clone()), None);
        Answer::Status("OK")
    }

    fn del(&mut self, words: &[String]) -> Answer {
        count(words[1..].iter().filter(|key| self.remove(key)).count())
    }

    fn pexpire(&mut self, words: &[String]) -> Answer {
        let now_ms = self.now_ms();
        let Some(at) = words[2].parse::<i64>().ok().and_then(|ttl| ttl.checked_add(now_ms)) else {
            return error(NOT_AN_INTEGER);
        };
        let Some(entry) = self.live(&words[1]) else { return Answer::Int(0) };
        entry.expires_ms = Some(at);
        if at <= now_ms {
            self.entries.remove(&words[1]);
        }
        Answer::Int(1)
    }

    fn persist(&mut self, words: &[String]) -> Answer {
        let ended = self.live(&words[1]).and_then(|entry| entry.expires_ms.take());
        count(usize::from(ended.is_some()))
    }

    fn hget(&mut self, words: &[String]) -> Answer {
        self.hash(&words[1], |fields| match fields.iter().find(|(field, _)| *field == words[2]) {
            Some((_, value)) => Answer::Text(value.clone()),
            None => Answer::Nil,
        })
    }

    fn hexists(&mut self, words: &[String]) -> Answer {
        self.hash(&words[1], |fields| count(usize::from(fields.iter().any(|(field, _)| *field == words[2]))))
    }

    fn hlen(&mut self, words: &[String]) -> Answer {
        self.hash(&words[1], |fields| count(fields.len()))
    }

    fn hkeys(&mut self, words: &[String]) -> Answer {
        self.hash(&words[1], |fields| Answer::List(fields.iter().map(|(field, _)| field.clone()).collect()))
    }

    fn hgetall(&mut self, words: &[String]) -> Answer {
        self.hash(&words[1], |fields| {
            Answer::List(fields.iter().flat_map(|(field, value)| [field.clone(), value.clone()]).collect())
        })
    }

    fn hset(&mut self, words: &[String]) -> Answer {
        if words.len() % 2 != 0 {
            return error("ERR wrong number of arguments for 'hset' command");
        }
        if self.live(&words[1]).is_none() {
            self.plant(&words[1], Stored::Hash(Vec::new()), None);
        }
        let Some(Entry { value: Stored::Hash(fields), .. }) = self.live(&words[1]) else {
            return error(WRONG_TYPE);
        };
        let before = fields.len();
        for pair in words[2..].chunks_exact(2) {
            match fields.iter_mut().find(|(field, _)| *field == pair[0]) {
                Some((_, value)) => value.clone_from(&pair[1]),
                None => fields.push((pair[0].clone(), pair[1].clone())),
            }
        }
        count(fields.len() - before)
    }

    fn hdel(&mut self, words: &[String]) -> Answer {
        let fields = match self.live(&words[1]).map(|entry| &mut entry.value) {
            None => return Answer::Int(0),
            Some(Stored::Hash(fields)) => fields,
            Some(_) => return error(WRONG_TYPE),
        };
        let before = fields.len();
        fields.retain(|(field, _)| !words[2..].contains(field));
        let left = fields.len();
        if left == 0 {
            self.entries.remove(&words[1]);
        }
        count(before - left)
    }

    fn publish(&mut self, words: &[String], sharded: bool) -> Answer {
        let (channel, payload) = (words[1].clone(), words[2].clone());
        self.published.push(Published { channel: channel.clone(), payload, sharded });
        Answer::Int(self.subscribers.get(&(sharded, channel)).copied().unwrap_or(0))
    }

    /// Reads a hash; an absent key reads as an empty one.
    fn hash(&mut self, key: &str, read: impl FnOnce(&[(String, String)]) -> Answer) -> Answer {
        match self.live(key).map(|entry| &entry.value) {
            None => read(&[]),
            Some(Stored::Hash(fields)) => read(fields),
            Some(_) => error(WRONG_TYPE),
        }
    }

    fn now_ms(&self) -> i64 {
        self.now_us.div_euclid(1_000)
    }

    /// The entry of a key that has not run out; one that has is removed.
    fn live(&mut self, key: &str) -> Option<&mut Entry> {
        let now_ms = self.now_ms();
        if self.entries.get(key)?.expires_ms.is_some_and(|at| at < now_ms) {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }
}

/// What the server around it does.
impl Store {
    pub(super) fn set_time(&mut self, now_us: i64) {
        self.now_us = now_us;
    }

    pub(super) fn plant(&mut self, key: &str, value: Stored, pttl: Option<i64>) {
        let expires_ms = pttl.map(|ttl| self.now_ms().saturating_add(ttl));
        self.entries.insert(key.to_owned(), Entry { value, expires_ms });
    }

    pub(super) fn contains(&mut self, key: &str) -> bool {
        self.live(key).is_some()
    }

    /// Whether there was a live key.
    pub(super) fn remove(&mut self, key: &str) -> bool {
        self.contains(key) && self.entries.remove(key).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(super) fn set_subscribers(&mut self, channel: &str, sharded: bool, number: i64) {
        let key = (sharded, channel.to_owned());
        match number {
            0 => self.subscribers.remove(&key),
            _ => self.subscribers.insert(key, number),
        };
    }

    pub(super) fn take_published(&mut self) -> Vec<Published> {
        std::mem::take(&mut self.published)
    }
}

/// What only tests do.
#[cfg(test)]
impl Store {
    pub(super) fn dump(&self) -> Vec<Dumped> {
        let now_ms = self.now_ms();
        let live = self.entries.iter().filter(|(_, entry)| entry.expires_ms.is_none_or(|at| at >= now_ms));
        live.map(|(key, entry)| Dumped {
            key: key.clone(),
            value: entry.value.clone(),
            pttl: entry.expires_ms.map(|at| at - now_ms),
        })
        .collect()
    }

    pub(super) fn peek(&self, key: &str) -> Option<Dumped> {
        let now_ms = self.now_ms();
        let entry = self.entries.get(key).filter(|entry| entry.expires_ms.is_none_or(|at| at >= now_ms))?;
        let pttl = entry.expires_ms.map(|at| at - now_ms);
        Some(Dumped { key: key.to_owned(), value: entry.value.clone(), pttl })
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot(self.entries.clone())
    }

    pub(super) fn restore(&mut self, snapshot: Snapshot) {
        self.entries = snapshot.0;
    }

    pub(super) fn fail_next(&mut self, at_call: u32, error: String) {
        self.fault = Some(Fault { at_call, error });
    }

    pub(super) fn set_out_of_memory(&mut self, on: bool) {
        self.out_of_memory = on;
    }
}

fn error(text: &'static str) -> Answer {
    Answer::Error(text.into())
}

fn count(number: usize) -> Answer {
    Answer::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
