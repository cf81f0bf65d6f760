//! The scripts against a table of states, arguments and answers, in the embedded Lua and on a real Redis.
//!
//! States, calls and answers are written as text, so that a row shows all there is:
//! `fence=7 lock={a:1}@5` is a string without and a hash with a time to live of five units of 1,000 s;
//! `T` is the time of the call, `T3` of the third call.

mod edges;
mod faults;
mod memory;
mod model;
mod mutants;
mod mutator;
mod protocol;
mod random;
mod redis;
mod rules;
mod several;
mod tables;
mod text;
mod together;

use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Published;
use crate::backend::memory::store::Stored;
use crate::kinds::reentrant::script_tests::text::Times;

/// The channels that have one subscriber; true: sharded.
const LISTENED: [(&str, bool); 12] = [
    ("ch", false),
    ("ch", true),
    ("client", false),
    ("redisson_lock__channel__{orders:42}", false),
    ("redisson_lock__channel__{orders:42}", true),
    ("redisson_lock__channel:{orders:42}", false),
    ("redisson_lock__channel:{orders:42}", true),
    ("redisson_lock__channel:{s}one", false),
    ("redisson_lock__channel:{s}one", true),
    ("redisson_lock__channel:{s}two", false),
    ("redisson_lock__client:{11111111-0000-4000-8000-000000000001}", false),
    ("redisson_lock__client:{22222222-0000-4000-8000-000000000002}", false),
];

/// What the tests need from a server.
trait Server {
    /// The reply, or the error as Redis sends it.
    fn run(&mut self, call: &ScriptCall) -> Result<Value, String>;
    /// The time of the server in microseconds.
    fn now_us(&mut self) -> i64;
    fn flush(&mut self);
    fn plant(&mut self, key: &str, value: &Stored, pttl: Option<i64>);
    fn remove(&mut self, key: &str);
    /// All keys, sorted; the fields of a hash in the server's order.
    fn dump(&mut self) -> Vec<Dumped>;
    /// What was published since the last call on the channels of `LISTENED`, in order.
    fn published(&mut self) -> Vec<Published>;
    fn set_out_of_memory(&mut self, on: bool);
    /// The user who runs scripts may not use this command, nor any with a key that does not begin with `x`.
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
struct Step {
    before: i64,
    result: Result<Value, String>,
    after: i64,
    dump: Vec<Dumped>,
    published: Vec<Published>,
}

/// What one call did, as text.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    reply: String,
    keys: String,
    published: String,
}

/// Runs a call and shows what happened.
fn observe(server: &mut dyn Server, call: &ScriptCall, times: &mut Times) -> Seen {
    seen(&server.step(call), call, times)
}

/// Checks that the time of a call is the server's, and shows what happened.
fn seen(step: &Step, call: &ScriptCall, times: &mut Times) -> Seen {
    let Step { before, result, after, dump, published } = step;
    if let Some(time) = text::time_of(result) {
        assert!((before..=after).contains(&&time), "{time} is not between {before} and {after}");
        times.push(time);
    }
    Seen {
        reply: text::show_reply(call, result, times),
        keys: text::show_keys(dump, times),
        published: text::show_published(published),
    }
}

fn set_up(server: &mut dyn Server, state: &str) {
    server.flush();
    for (key, value, pttl) in text::parse_keys(state) {
        server.plant(&key, &value, pttl);
    }
}
