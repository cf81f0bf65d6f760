//! A server as the description of the protocol sees it: keys, their ends, messages, and a clock
//! that others move. What the scripts of a kind do to it is the kind's own ([`Suite::model`]).

use std::collections::BTreeMap;

use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Published;
use crate::backend::memory::store::Stored;
use crate::kinds::script_tests::Step;
use crate::kinds::script_tests::Suite;

pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

pub(crate) struct Modelled {
    suite: &'static Suite,
    pub(crate) now_us: i64,
    pub(crate) keys: BTreeMap<String, Key>,
    published: Vec<Published>,
}

#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) value: Stored,
    /// On the server's clock.
    pub(crate) ends_ms: Option<i64>,
}

/// The code of a reply; behind the time its numbers, then its texts, then more numbers and texts.
pub(crate) struct Answer {
    pub(crate) code: i64,
    pub(crate) numbers: Vec<i64>,
    pub(crate) texts: Vec<String>,
    pub(crate) more: Vec<i64>,
    pub(crate) last: Vec<String>,
}

pub(crate) fn answer(code: i64, numbers: &[i64]) -> Answer {
    Answer {
        code,
        numbers: numbers.to_vec(),
        texts: Vec::new(),
        more: Vec::new(),
        last: Vec::new(),
    }
}

/// What the harness does.
impl Modelled {
    pub(crate) fn at(suite: &'static Suite, now_us: i64) -> Self {
        Self { suite, now_us, keys: BTreeMap::new(), published: Vec::new() }
    }

    /// One call at `now_us`, and all that is to be known about it.
    pub(crate) fn step(&mut self, now_us: i64, call: &ScriptCall) -> Step {
        self.now_us = now_us;
        let result = self.run(call);
        let published = std::mem::take(&mut self.published);
        Step { before: now_us, result, after: now_us, dump: self.dump(), published }
    }

    fn run(&mut self, call: &ScriptCall) -> Result<Value, String> {
        let now_ms = self.now_ms();
        self.keys.retain(|_, key| key.ends_ms.is_none_or(|at| at >= now_ms));
        let answer = (self.suite.model)(self, call)?;
        let numbers = [answer.code, self.now_us].into_iter().chain(answer.numbers).map(Value::Int);
        let texts = answer.texts.into_iter().map(Value::Text);
        let more = answer.more.into_iter().map(Value::Int);
        let last = answer.last.into_iter().map(Value::Text);
        Ok(Value::List(numbers.chain(texts).chain(more).chain(last).collect()))
    }

    pub(crate) fn flush(&mut self) {
        self.keys.clear();
    }

    pub(crate) fn plant(&mut self, key: &str, value: &Stored, pttl: Option<i64>) {
        let ends_ms = pttl.map(|pttl| self.now_ms() + pttl);
        self.keys.insert(key.to_owned(), Key { value: value.clone(), ends_ms });
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.keys.remove(key);
    }

    /// What is under a key, if it is a hash.
    pub(crate) fn hash(&self, key: &str) -> Option<Dumped> {
        let is_it = |dumped: &Dumped| dumped.key == key && matches!(dumped.value, Stored::Hash(_));
        self.dump().into_iter().find(is_it)
    }

    fn dump(&self) -> Vec<Dumped> {
        let now_ms = self.now_ms();
        let dumped = |(key, stored): (&String, &Key)| {
            let pttl = stored.ends_ms.map(|at| at - now_ms);
            pttl.is_none_or(|pttl| pttl >= 0).then(|| Dumped {
                key: key.clone(),
                value: stored.value.clone(),
                pttl,
            })
        };
        self.keys.iter().filter_map(dumped).collect()
    }
}

/// What models are made of.
impl Modelled {
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_us.div_euclid(1_000)
    }

    /// As PTTL tells it.
    pub(crate) fn pttl(&self, key: &Key) -> i64 {
        key.ends_ms.map_or(-1, |at| at - self.now_ms())
    }

    /// How many heard it.
    pub(crate) fn publish(&mut self, channel: &str, sharded: bool, payload: &str) -> i64 {
        if !self.suite.listened.contains(&(channel, sharded)) {
            return 0;
        }
        self.published.push(Published {
            channel: channel.to_owned(),
            payload: payload.to_owned(),
            sharded,
        });
        1
    }
}
