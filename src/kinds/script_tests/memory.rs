//! The embedded Lua.

use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Published;
use crate::backend::memory::store::Stored;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Suite;

/// From one call to the next; and if their milliseconds have to be different.
const STEP_US: i64 = 100;
const LONG_STEP_US: i64 = 1_100;

pub(crate) struct Memory {
    pub(crate) suite: &'static Suite,
    pub(crate) keyspace: Keyspace,
    pub(crate) now_us: i64,
    /// Runs in place of the script of the same name.
    pub(crate) instead: Option<&'static Script>,
}

impl Memory {
    pub(crate) fn start(suite: &'static Suite) -> Self {
        let mut keyspace = Keyspace::new();
        for &(channel, sharded) in suite.listened {
            keyspace.set_subscribers(channel, sharded, 1);
        }
        Self { suite, keyspace, now_us: 1_750_000_000_000_000, instead: None }
    }

    /// The time at which the next call will run.
    pub(crate) fn next_time(&self) -> i64 {
        self.now_us + if self.suite.orders_ends { LONG_STEP_US } else { STEP_US }
    }
}

impl Server for Memory {
    fn suite(&self) -> &'static Suite {
        self.suite
    }

    fn run(&mut self, call: &ScriptCall) -> Result<Value, String> {
        self.now_us = self.next_time();
        match self.instead.filter(|instead| instead.name == call.script.name) {
            Some(script) => self.keyspace.run(self.now_us, &ScriptCall { script, ..call.clone() }),
            None => self.keyspace.run(self.now_us, call),
        }
    }

    fn now_us(&mut self) -> i64 {
        self.now_us
    }

    fn flush(&mut self) {
        self.keyspace.flush();
    }

    fn plant(&mut self, key: &str, value: &Stored, pttl: Option<i64>) {
        self.keyspace.plant(self.now_us, key, value.clone(), pttl);
    }

    fn remove(&mut self, key: &str) {
        self.keyspace.remove(self.now_us, key);
    }

    fn dump(&mut self) -> Vec<Dumped> {
        self.keyspace.dump(self.now_us)
    }

    fn published(&mut self) -> Vec<Published> {
        let listened = self.suite.listened;
        let heard =
            |message: &Published| listened.contains(&(message.channel.as_str(), message.sharded));
        self.keyspace.take_published().into_iter().filter(heard).collect()
    }

    fn set_out_of_memory(&mut self, on: bool) {
        self.keyspace.set_out_of_memory(on);
    }

    fn forbid(&mut self, command: &'static str) {
        self.keyspace
            .answer_permissions(move |asked, key| asked != command && key.starts_with('x'));
    }
}
