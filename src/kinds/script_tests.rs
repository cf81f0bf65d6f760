//! The tests of scripts that are the same for every kind of lock. A kind adds a [`Suite`]: its
//! scripts, a model of them written from the description of the protocol, tables, and random calls.
//!
//! States, calls and answers are written as text, so that a row shows all there is: `fence=7
//! lock={a:1}@5` is a string without and a hash with a time to live of five units of 1,000 s; `T`
//! is the time of the call, `T3` of the third call. [`text`] has the rest.

pub(crate) mod faults;
pub(crate) mod lives;
pub(crate) mod memory;
pub(crate) mod modelled;
pub(crate) mod moving;
pub(crate) mod mutants;
mod mutator;
pub(crate) mod random;
pub(crate) mod redis;
mod rules;
pub(crate) mod tables;
pub(crate) mod text;
pub(crate) mod together;

use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Published;
use crate::backend::memory::store::Stored;
use crate::backend::words::Words;
use crate::base::kind::Kind;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::modelled::Answer;
use crate::kinds::script_tests::modelled::Modelled;
use crate::kinds::script_tests::random::Calls;
use crate::kinds::script_tests::tables::Check;
use crate::kinds::script_tests::tables::Row;
use crate::kinds::script_tests::text::Times;

/// The fields of a hash, with their values.
pub(crate) type Fields = [(String, String)];

/// What is checked in the embedded Lua alone, and its name.
pub(crate) type Edge = (&'static str, fn(&mut Memory));

/// What a kind of lock brings along.
pub(crate) struct Suite {
    pub(crate) kind: Kind,
    pub(crate) scripts: fn() -> &'static [&'static Script],
    /// Scripts that the checks are about too, and that have no model.
    pub(crate) others: &'static [&'static Script],
    /// The channels that have one subscriber; true: sharded.
    pub(crate) listened: &'static [(&'static str, bool)],
    /// The keys of a call that is written as text: of the script with this last word, with these
    /// arguments; true: with its line, where that may be left out.
    pub(crate) keys: fn(&str, &Words, bool) -> Words,
    /// Whether what this key has for this field or member is a time: its end, in ms on the server's
    /// clock.
    pub(crate) is_end: fn(&str, &str) -> bool,
    /// Whether such ends are seconds away, and are written in seconds.
    pub(crate) ends_are_near: bool,
    /// Whether members are in the order of their ends, so that two calls must not be in the same
    /// millisecond.
    pub(crate) orders_ends: bool,
    /// Whether its sorted sets are to have no time to live.
    pub(crate) endless: bool,
    /// What counts at this time in ms of the fields of a lock's hash: without what is over by
    /// itself.
    pub(crate) valid: fn(&Fields, i64) -> Vec<(String, String)>,
    /// Whether the hash of a lock may have these fields of holds. Those of other programs are left
    /// out.
    pub(crate) may_be: fn(&Fields) -> bool,
    /// Whether its scripts are those of `kinds::Scripts`, so that holds can be lived with them.
    pub(crate) has_holds: bool,
    /// Whether a call may take the lock away from those who are dead, and then be refused what it
    /// wants.
    pub(crate) removes_dead: fn(&ScriptCall) -> bool,
    /// Whether its scripts know a waiting line.
    pub(crate) has_line: bool,
    /// What a script does, written from the description of the protocol. An error is Redis's own.
    pub(crate) model: fn(&mut Modelled, &ScriptCall) -> Result<Answer, String>,
    pub(crate) calls: Calls,
    /// What somebody else may have put under the name of a lock.
    pub(crate) garbage: &'static [&'static str],
    /// What each script does in each state. The name of a table is the last word of the script's
    /// name.
    pub(crate) tables: &'static [(&'static str, &'static [Row])],
    /// What is checked on both servers, and which mutants of the scripts must not pass.
    pub(crate) checks: &'static [Check],
    /// The same, with what only the embedded Lua can be made to do.
    pub(crate) edges: &'static [Edge],
    /// Checks that need a Redis 7, and what of it.
    pub(crate) needs_redis_7: &'static [(&'static str, &'static str)],
    /// Mistakes that the model must notice: the last word of the script's name, what is in it, what
    /// stands there instead.
    pub(crate) mistakes: &'static [(&'static str, &'static str, &'static str)],
    /// The file with the mutants that do the same as their scripts.
    pub(crate) equivalent: &'static str,
    /// Whether the mutants of this line of this script are looked at here, and not where another
    /// script includes it as well.
    pub(crate) is_own: fn(&str, &str) -> bool,
    /// Whether the figures go into the report on reliability.
    pub(crate) is_reported: bool,
}

impl Suite {
    /// A kind with nothing.
    pub(crate) const EMPTY: Self = Self {
        kind: Kind::Reentrant,
        scripts: || &[],
        others: &[],
        listened: &[("ch", false), ("ch", true), ("client", false)],
        keys: text::keys_of_rows,
        is_end: |_, _| false,
        ends_are_near: false,
        orders_ends: false,
        endless: false,
        valid: |fields, _| fields.to_vec(),
        may_be: |_| true,
        has_holds: true,
        removes_dead: |_| false,
        has_line: false,
        model: |_, call| panic!("{} has no model", call.script.name),
        calls: Calls { call: |_| String::new(), plants: &[], removed: &[] },
        garbage: &[],
        tables: &[],
        checks: &[],
        edges: &[],
        needs_redis_7: &[],
        mistakes: &[],
        equivalent: "",
        is_own: |_, _| true,
        is_reported: false,
    };

    /// By the last word of its name.
    pub(crate) fn script(&self, word: &str) -> &'static Script {
        let mut scripts = (self.scripts)().iter();
        scripts
            .find(|script| last_word(script) == word)
            .unwrap_or_else(|| panic!("no script {word}"))
    }

    pub(crate) fn has(&self, script: &Script) -> bool {
        (self.scripts)().iter().any(|known| known.name == script.name)
    }
}

pub(crate) fn last_word(script: &Script) -> &'static str {
    script.name.rsplit('/').next().unwrap_or_default()
}

/// What the tests need from a server.
pub(crate) trait Server {
    fn suite(&self) -> &'static Suite;
    /// The reply, or the error as Redis sends it.
    fn run(&mut self, call: &ScriptCall) -> Result<Value, String>;
    /// The time of the server in microseconds.
    fn now_us(&mut self) -> i64;
    fn flush(&mut self);
    fn plant(&mut self, key: &str, value: &Stored, pttl: Option<i64>);
    fn remove(&mut self, key: &str);
    /// All keys, sorted; the fields of a hash in the server's order.
    fn dump(&mut self) -> Vec<Dumped>;
    /// What was published since the last call on the channels that are listened to, in order.
    fn published(&mut self) -> Vec<Published>;
    fn set_out_of_memory(&mut self, on: bool);
    /// The user who runs scripts may not use this command, nor any with a key that does not begin
    /// with `x`.
    fn forbid(&mut self, command: &'static str);
    /// One call, and all that is to be known about it.
    fn step(&mut self, call: &ScriptCall) -> Step {
        Step {
            before: self.now_us(),
            result: self.run(call),
            after: self.now_us(),
            dump: self.dump(),
            published: self.published(),
        }
    }
}

/// What one call did: its reply between two readings of the clock, then all keys and messages.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) before: i64,
    pub(crate) result: Result<Value, String>,
    pub(crate) after: i64,
    pub(crate) dump: Vec<Dumped>,
    pub(crate) published: Vec<Published>,
}

/// What one call did, as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) reply: String,
    pub(crate) keys: String,
    pub(crate) published: String,
}

/// Runs a call and shows what happened.
pub(crate) fn observe(server: &mut dyn Server, call: &ScriptCall, times: &mut Times) -> Seen {
    seen(server.suite(), &server.step(call), call, times)
}

/// Checks that the time of a call is the server's, and shows what happened.
pub(crate) fn seen(suite: &Suite, step: &Step, call: &ScriptCall, times: &mut Times) -> Seen {
    let Step { before, result, after, dump, published } = step;
    if let Some(time) = text::time_of(result) {
        assert!((before..=after).contains(&&time), "{time} is not between {before} and {after}");
        times.push(time);
    }
    Seen {
        reply: text::show_reply(call, result, times),
        keys: text::show_keys(suite, dump, times, *after),
        published: text::show_published(published),
    }
}

pub(crate) fn set_up(server: &mut dyn Server, state: &str) {
    server.flush();
    let now_us = server.now_us();
    for (key, value, pttl) in text::parse_keys(state, now_us) {
        server.plant(&key, &value, pttl);
    }
}

/// The tests that every kind has, and those of its own [`Suite::checks`]: name and check of each.
macro_rules! script_tests {
    ($suite:expr; $($name:ident: $check:expr;)*) => {
        const CHECKS: &[$crate::kinds::script_tests::tables::Check] =
            &[$((stringify!($name), $check)),*];

        mod in_memory {
            use super::*;
            $(#[test] fn $name() { ($check)(&mut $crate::kinds::script_tests::memory::Memory::start(&$suite)); })*
        }

        mod on_redis {
            use super::*;
            $(#[test] fn $name() {
                let redis = $crate::kinds::script_tests::redis::Redis::fit_for(&$suite, stringify!($name));
                if let Some(mut redis) = redis {
                    ($check)(&mut redis);
                }
            })*
        }

        #[test]
        fn edges() {
            for (name, check) in $suite.edges {
                println!("{name}");
                check(&mut $crate::kinds::script_tests::memory::Memory::start(&$suite));
            }
        }

        #[test]
        fn refused_commands_leave_nothing_half_done() {
            let mut memory = $crate::kinds::script_tests::memory::Memory::start(&$suite);
            $crate::kinds::script_tests::faults::check(&mut memory);
        }

        #[test]
        fn random_calls_do_the_same_in_the_model_in_memory_and_on_redis() {
            $crate::kinds::script_tests::random::check(&$suite);
        }

        #[test]
        fn the_model_notices_deliberate_errors() {
            $crate::kinds::script_tests::random::check_mistakes(&$suite);
        }

        #[test]
        #[ignore = "takes a minute: `cargo xtask lua-mutants` runs it"]
        fn random_calls_notice_mutants_of_the_scripts() {
            $crate::kinds::script_tests::random::check_mutants(&$suite);
        }

        #[test]
        #[cfg_attr(not(repository), ignore = "the list of equivalent mutants is in the repository alone")]
        fn every_mutant_of_the_scripts_is_noticed() {
            $crate::kinds::script_tests::mutants::check(&$suite);
        }
    };
}
pub(crate) use script_tests;
