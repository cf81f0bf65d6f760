//! The model, the embedded Lua and a real Redis, given the same and compared in everything.
//!
//! Model and embedded Lua have one clock, so they must agree to the millisecond and the last digit
//! of a token. The clock of the real server cannot be moved: instead of waiting, `pass` takes time
//! away from what its keys have left, and what has a `not_after` is told by `distant` to be well
//! before or well after it.

use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Stored;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Step;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::modelled::Modelled;
use crate::kinds::script_tests::redis::Redis;
use crate::kinds::script_tests::seen;
use crate::kinds::script_tests::text::Times;
use crate::kinds::script_tests::text::parse_keys;
use crate::kinds::script_tests::text::show_keys;

const HOUR_US: i64 = 3_600_000_000;

pub(crate) struct Together {
    suite: &'static Suite,
    model: Modelled,
    memory: Memory,
    redis: Option<Redis>,
    /// Of the model and the embedded Lua, and of Redis.
    times: [Times; 2],
    /// What the clock of the real server said at the beginning of the sequence, and last.
    began_us: i64,
    redis_us: i64,
    /// What was done in this sequence, for whoever has to find out.
    story: Vec<String>,
    pub(crate) grants: u64,
}

impl Together {
    pub(crate) fn start(suite: &'static Suite) -> Self {
        Self::with(suite, Memory::start(suite), Some(Redis::start(suite)))
    }

    /// The model and the embedded Lua, without a server; for this script another text.
    pub(crate) fn instead(suite: &'static Suite, script: &'static Script) -> Self {
        Self::with(suite, Memory { instead: Some(script), ..Memory::start(suite) }, None)
    }

    fn with(suite: &'static Suite, memory: Memory, redis: Option<Redis>) -> Self {
        let model = Modelled::at(suite, memory.now_us);
        let (times, story) = (Default::default(), Vec::new());
        Self { suite, model, memory, redis, times, began_us: 0, redis_us: 0, story, grants: 0 }
    }

    pub(crate) fn begin(&mut self, what: String) {
        self.memory.flush();
        on(&mut self.redis, Redis::flush);
        self.model = Modelled::at(self.suite, self.memory.now_us);
        self.times = Default::default();
        self.redis_us = self.redis.as_mut().map_or(0, Redis::now_us);
        self.began_us = self.redis_us;
        self.story = vec![what];
    }

    pub(crate) fn suite(&self) -> &'static Suite {
        self.suite
    }

    /// When the next call will run.
    pub(crate) fn next_us(&self) -> i64 {
        self.memory.next_time()
    }

    /// What was done so far.
    pub(crate) fn story(&self) -> String {
        format!("{:#?}", self.story)
    }

    pub(crate) fn plant(&mut self, state: &str) {
        self.story.push(state.to_owned());
        for (key, value, pttl) in parse_keys(state, self.memory.now_us) {
            self.model.plant(&key, &value, pttl);
            self.memory.plant(&key, &value, pttl);
        }
        on(&mut self.redis, |redis| {
            let now_us = redis.now_us();
            for (key, value, pttl) in parse_keys(state, now_us) {
                redis.plant(&key, &value, pttl);
            }
        });
    }

    /// Another program puts a field into the hash, if there is one.
    pub(crate) fn put_beside(&mut self, key: &str, field: &str) {
        let Some(Dumped { value: Stored::Hash(mut fields), pttl, .. }) = self.model.hash(key)
        else {
            return;
        };
        self.story.push(format!("HSET {key} {field} 1"));
        fields.retain(|(known, _)| known != field);
        fields.push((field.to_owned(), "1".to_owned()));
        let value = Stored::Hash(fields);
        self.model.plant(key, &value, pttl);
        self.memory.plant(key, &value, pttl);
        on(&mut self.redis, |redis| redis.put_last(key, field, "1"));
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.story.push(format!("DEL {key}"));
        self.model.remove(key);
        self.memory.remove(key);
        on(&mut self.redis, |redis| redis.remove(key));
    }

    pub(crate) fn flush(&mut self) {
        self.story.push("FLUSHALL".to_owned());
        self.model.flush();
        self.memory.flush();
        on(&mut self.redis, Redis::flush);
    }

    pub(crate) fn pass(&mut self, ms: i64) {
        self.story.push(format!("{ms} ms pass"));
        self.memory.now_us += ms * 1_000;
        self.model.now_us = self.memory.now_us;
        on(&mut self.redis, |redis| redis.pass(ms));
    }

    /// What `not_after` has to be on the real server, to be as late there.
    pub(crate) fn distant(&self, not_after_us: i64) -> i64 {
        let margin = if not_after_us < self.next_us() { -HOUR_US } else { HOUR_US };
        self.redis_us + margin
    }

    /// The ticket that the real server has given where the model has given this one: both are the
    /// times of the same call.
    pub(crate) fn as_told(&self, ticket: u64) -> u64 {
        let [ours, theirs] = &self.times;
        let told =
            i64::try_from(ticket).ok().and_then(|ticket| theirs.of_the_same_call(ours, ticket));
        told.and_then(|ticket| ticket.try_into().ok()).unwrap_or(ticket)
    }

    /// What a time has to be on the real server, to be as far away there.
    pub(crate) fn as_far(&self, time_us: i64) -> i64 {
        self.redis_us + time_us - self.next_us()
    }

    pub(crate) fn call(&mut self, call: &ScriptCall) {
        drop(self.call_both(call, call));
    }

    /// The same call, but for what depends on a server's clock. The reply of all three, and all
    /// keys.
    pub(crate) fn call_both(
        &mut self,
        call: &ScriptCall,
        on_redis: &ScriptCall,
    ) -> (Result<Value, String>, Vec<Dumped>) {
        self.story.push(format!("{} {:?}", call.script.name, call.args));
        let model = self.model.step(self.memory.next_time(), call);
        let memory = self.memory.step(call);
        self.same_to_the_digit(&model, &memory);
        if let Some(redis) = &mut self.redis {
            if self.suite.orders_ends {
                redis.next_millisecond();
            }
            let redis = redis.step(on_redis);
            self.same_on_redis(&model, call, &redis, on_redis);
        }
        (model.result, model.dump)
    }

    fn same_on_redis(
        &mut self,
        model: &Step,
        call: &ScriptCall,
        redis: &Step,
        on_redis: &ScriptCall,
    ) {
        self.redis_us = redis.after;
        let [ours, theirs] = &mut self.times;
        let (expected, found) = {
            let suite = self.suite;
            (seen(suite, model, call, ours), seen(suite, redis, on_redis, theirs))
        };
        assert_eq!(expected, found, "the model, then Redis: {:#?}", self.story);
        self.same_ends(&model.dump, &redis.dump);
    }

    fn same_to_the_digit(&self, model: &Step, memory: &Step) {
        let words = |result: &Result<Value, String>| match result {
            Ok(value) => Ok(value.clone()),
            Err(error) => Err(error.split(" script: ").next().unwrap_or_default().to_owned()),
        };
        let all = |step: &Step| (words(&step.result), step.dump.clone(), step.published.clone());
        assert_eq!(all(model), all(memory), "the model, then memory: {:#?}", self.story);
    }

    /// Times to live differ by what really passed.
    fn same_ends(&self, model: &[Dumped], redis: &[Dumped]) {
        let tolerance = (self.redis_us - self.began_us) / 1_000 + 1_000;
        for (ours, theirs) in model.iter().zip(redis) {
            let apart = ours.pttl.unwrap_or(0) - theirs.pttl.unwrap_or(0);
            let (ours, theirs) = (std::slice::from_ref(ours), std::slice::from_ref(theirs));
            let show = |dump| show_keys(self.suite, dump, &Times::default(), 0);
            let story = &self.story;
            assert!(apart.abs() <= tolerance, "{} and {}: {story:#?}", show(ours), show(theirs));
        }
    }
}

fn on(redis: &mut Option<Redis>, act: impl FnOnce(&mut Redis)) {
    if let Some(redis) = redis {
        act(redis);
    }
}
