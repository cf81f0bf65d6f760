//! The keys of the server, and the commands that scripts may use on them, with Redis's replies.
//!
//! The commands on each type of value are in a file of their own, which lists them in its
//! `COMMANDS`:
//!
//! | file          | commands on                                                        |
//! |---------------|--------------------------------------------------------------------|
//! | `keys`        | keys, whatever their type; the clock                               |
//! | `strings`     | strings, the numbers in them included                              |
//! | `hashes`      | hashes                                                             |
//! | `lists`       | lists                                                              |
//! | `sets`        | sets                                                               |
//! | `sorted_sets` | sorted sets                                                        |
//! | `pubsub`      | channels                                                           |
//!
//! Where Redis promises no order, or chooses at random, the order here is fixed: a script that runs
//! again on the same keys gets the same replies. `differential` compares every command with a real
//! server.

#[cfg(test)]
pub(crate) mod differential;
mod glob;
mod hashes;
mod keys;
mod lists;
pub(super) mod numbers;
mod pubsub;
mod sets;
mod sorted_sets;
mod strings;

pub(crate) use sorted_sets::SortedSet;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::backend::words::Words;

const OUT_OF_MEMORY: Refusal =
    Refusal(Cow::Borrowed("OOM command not allowed when used memory > 'maxmemory'."));
/// How the timeout keys of readers end. A script that reserves a lock for readers writes theirs, which
/// nobody can declare; they are in the slot of the lock.
const TIMEOUT_END: &str = ":rwlock_timeout:1";
const NO_COMMAND: Refusal = Refusal(Cow::Borrowed("ERR Unknown Redis command called from script"));
const SYNTAX: Refusal = Refusal(Cow::Borrowed("ERR syntax error"));

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stored {
    Text(String),
    /// Fields in the order in which they were added, as Redis keeps them in a small hash.
    Hash(Vec<(String, String)>),
    List(Vec<String>),
    Set(BTreeSet<String>),
    SortedSet(SortedSet),
}

impl Stored {
    /// What TYPE replies.
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::SortedSet(_) => "zset",
        }
    }
}

/// The content of a value of one type.
trait Content: Default {
    fn of(value: &mut Stored) -> Option<&mut Self>;
    fn into_stored(self) -> Stored;
    /// Redis deletes a key whose value has become empty.
    fn is_empty(&self) -> bool;
}

#[derive(Debug, Clone)]
struct Entry {
    value: Stored,
    /// When the key expires, by the server's clock.
    expires_ms: Option<i64>,
}

/// One key of a dump.
#[cfg(test)]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dumped {
    pub(crate) key: String,
    pub(crate) value: Stored,
    /// Time to live.
    pub(crate) pttl: Option<i64>,
}

/// All keys as they were at one time, with their expiry by the server's clock.
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

/// What a command replies to the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandReply {
    Nil,
    Int(i64),
    Text(String),
    Status(&'static str),
    List(Vec<Self>),
}

impl CommandReply {
    fn count(number: usize) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn yes(holds: bool) -> Self {
        Self::Int(i64::from(holds))
    }

    fn text_or_nil(text: Option<String>) -> Self {
        text.map_or(Self::Nil, Self::Text)
    }

    fn texts(texts: impl IntoIterator<Item = String>) -> Self {
        Self::List(texts.into_iter().map(Self::Text).collect())
    }
}

/// Why a command was refused, with the text of Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) Cow<'static, str>);

impl Refusal {
    const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    fn wrong_type() -> Self {
        Self::new("WRONGTYPE Operation against a key holding the wrong kind of value")
    }

    /// The error of Redis for too few or too many arguments, where the command itself has to check
    /// that.
    fn wrong_number_of_arguments(words: &[String]) -> Self {
        let name = words[0].to_ascii_lowercase();
        Self(format!("ERR wrong number of arguments for '{name}' command").into())
    }
}

pub(super) type CommandResult = Result<CommandReply, Refusal>;

/// An error for the next script, or for each call of some commands in it, as if the user had no
/// permission for them.
#[derive(Debug, Clone)]
struct PlantedError {
    refused: RefusedCalls,
    error: String,
}

#[derive(Debug, Clone)]
#[cfg_attr(not(test), expect(dead_code))]
enum RefusedCalls {
    Script,
    /// `HGET`, or `HGET lock` for one key or channel only.
    Commands(Vec<String>),
}

impl PlantedError {
    fn refuses(&self, words: &[String]) -> bool {
        let RefusedCalls::Commands(commands) = &self.refused else { return false };
        let (command, target) = (words.first(), words.get(1));
        commands.iter().any(|refused| {
            let mut refused = refused.split(' ').map(str::to_owned);
            refused.next().as_ref() == command
                && refused.next().is_none_or(|only| Some(&only) == target)
        })
    }
}

/// The keys, and the state of the running script.
#[derive(Debug, Default)]
pub(super) struct Store {
    entries: BTreeMap<String, Entry>,
    subscribers: BTreeMap<(bool, String), i64>,
    published: Vec<Published>,
    fault: Option<PlantedError>,
    out_of_memory: bool,
    /// The time does not change while a script runs.
    now_us: i64,
    declared: Words,
    /// Once a script has written, Redis lets it go on even if memory is full.
    wrote: bool,
}

/// How a command affects memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommandEffect {
    Reads,
    Writes,
    /// Refused when memory is full.
    Grows,
    /// PUBLISH writes no key.
    Tells,
}

struct CommandSpec {
    name: &'static str,
    /// The fewest and the most words, including the command's name.
    words: (usize, usize),
    /// How many of the words are keys, from the second word on.
    keys: usize,
    effect: CommandEffect,
    /// Runs the command. The number of words has been checked.
    run: fn(&mut Store, &[String]) -> CommandResult,
}

const ANY: usize = usize::MAX;

const fn command(
    name: &'static str,
    words: (usize, usize),
    keys: usize,
    effect: CommandEffect,
    run: fn(&mut Store, &[String]) -> CommandResult,
) -> CommandSpec {
    CommandSpec { name, words, keys, effect, run }
}

static COMMANDS: [&[CommandSpec]; 7] = [
    keys::COMMANDS,
    hashes::COMMANDS,
    strings::COMMANDS,
    pubsub::COMMANDS,
    sorted_sets::COMMANDS,
    lists::COMMANDS,
    sets::COMMANDS,
];

/// One run of a script.
impl Store {
    /// Starts a run of a script. The error is the planted one, if there is one for the whole
    /// script.
    pub(super) fn begin(&mut self, now_us: i64, keys: &Words) -> Result<(), String> {
        self.now_us = now_us;
        self.wrote = false;
        self.declared.clone_from(keys);
        match self.fault.take_if(|fault| matches!(fault.refused, RefusedCalls::Script)) {
            Some(fault) => Err(fault.error),
            None => Ok(()),
        }
    }

    /// Ends a run. A planted error that the run did not reach is dropped.
    pub(super) fn end(&mut self) {
        self.fault = None;
    }

    /// Runs one `redis.call`.
    pub(super) fn call(&mut self, words: &[String]) -> CommandResult {
        if let Some(fault) = self.fault.as_ref().filter(|fault| fault.refuses(words)) {
            return Err(Refusal(fault.error.clone().into()));
        }
        let command = self.allowed(words)?;
        self.wrote |= matches!(command.effect, CommandEffect::Writes | CommandEffect::Grows);
        (command.run)(self, words)
    }

    /// Finds the command, if a script may call it with these words now.
    fn allowed(&self, words: &[String]) -> Result<&'static CommandSpec, Refusal> {
        let Some(name) = words.first() else {
            return Err(Refusal::new(
                "ERR Please specify at least one argument for this redis lib call",
            ));
        };
        let known =
            COMMANDS.into_iter().flatten().find(|command| command.name.eq_ignore_ascii_case(name));
        let command = known.ok_or(NO_COMMAND)?;
        if words.len() < command.words.0 || words.len() > command.words.1 {
            return Err(Refusal::new("ERR Wrong number of args calling Redis command from script"));
        }
        let is_declared = |key: &str| {
            key.ends_with(TIMEOUT_END) || self.declared.iter().any(|declared| declared == key)
        };
        if let Some(key) = words[1..].iter().take(command.keys).find(|key| !is_declared(key)) {
            return Err(Refusal(
                format!("ERR script used the key '{key}', which is not in KEYS").into(),
            ));
        }
        if command.effect == CommandEffect::Grows && self.out_of_memory && !self.wrote {
            return Err(OUT_OF_MEMORY);
        }
        Ok(command)
    }
}

/// What several commands use.
impl Store {
    fn now_ms(&self) -> i64 {
        self.now_us.div_euclid(1_000)
    }

    /// The entry of a key that has not expired. An expired one is removed.
    fn live(&mut self, key: &str) -> Option<&mut Entry> {
        let now_ms = self.now_ms();
        if self.entries.get(key)?.expires_ms.is_some_and(|at| at < now_ms) {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    /// The content of a key; `None` if the key does not exist.
    fn content<T: Content>(&mut self, key: &str) -> Result<Option<&T>, Refusal> {
        let Some(entry) = self.live(key) else { return Ok(None) };
        T::of(&mut entry.value).map(|content| Some(&*content)).ok_or_else(Refusal::wrong_type)
    }

    /// Changes the content of an existing key.
    fn change<T: Content, R>(
        &mut self,
        key: &str,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, Refusal> {
        match self.live(key) {
            Some(_) => self.change_or_create(key, change).map(Some),
            None => Ok(None),
        }
    }

    /// Changes the content of a key, and creates the key if it does not exist. Its time to live is
    /// kept.
    fn change_or_create<T: Content, R>(
        &mut self,
        key: &str,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Refusal> {
        if self.live(key).is_none() {
            self.entries.insert(
                key.to_owned(),
                Entry { value: T::default().into_stored(), expires_ms: None },
            );
        }
        let content = self.entries.get_mut(key).and_then(|entry| T::of(&mut entry.value));
        let content = content.ok_or_else(Refusal::wrong_type)?;
        let result = change(content);
        if content.is_empty() {
            self.entries.remove(key);
        }
        Ok(result)
    }
}

/// What the server around the store calls.
impl Store {
    pub(super) fn set_time(&mut self, now_us: i64) {
        self.now_us = now_us;
    }

    pub(super) fn contains(&mut self, key: &str) -> bool {
        self.live(key).is_some()
    }

    /// Returns whether a live key existed.
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

/// What only tests call.
#[cfg(test)]
impl Store {
    pub(super) fn plant(&mut self, key: &str, value: Stored, pttl: Option<i64>) {
        let expires_ms = pttl.map(|ttl| self.now_ms().saturating_add(ttl));
        self.entries.insert(key.to_owned(), Entry { value, expires_ms });
    }

    pub(super) fn dump(&self) -> Vec<Dumped> {
        let now_ms = self.now_ms();
        let live =
            self.entries.iter().filter(|(_, entry)| entry.expires_ms.is_none_or(|at| at >= now_ms));
        live.map(|(key, entry)| Dumped {
            key: key.clone(),
            value: entry.value.clone(),
            pttl: entry.expires_ms.map(|at| at - now_ms),
        })
        .collect()
    }

    pub(super) fn peek(&self, key: &str) -> Option<Dumped> {
        let now_ms = self.now_ms();
        let entry =
            self.entries.get(key).filter(|entry| entry.expires_ms.is_none_or(|at| at >= now_ms))?;
        let pttl = entry.expires_ms.map(|at| at - now_ms);
        Some(Dumped { key: key.to_owned(), value: entry.value.clone(), pttl })
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot(self.entries.clone())
    }

    pub(super) fn restore(&mut self, snapshot: Snapshot) {
        self.entries = snapshot.0;
    }

    pub(super) fn refuse_script(&mut self, error: String) {
        self.fault = Some(PlantedError { refused: RefusedCalls::Script, error });
    }

    pub(super) fn refuse_commands(&mut self, commands: Vec<String>, error: String) {
        self.fault = Some(PlantedError { refused: RefusedCalls::Commands(commands), error });
    }

    /// The names of all commands that scripts may use.
    pub(super) fn command_names() -> impl Iterator<Item = &'static str> {
        COMMANDS.into_iter().flatten().map(|command| command.name)
    }

    pub(super) fn set_out_of_memory(&mut self, on: bool) {
        self.out_of_memory = on;
    }
}
