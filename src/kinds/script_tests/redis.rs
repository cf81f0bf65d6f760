//! A private Redis.

use std::time::Duration;

use redis::Connection;
use redis::Value as Raw;

use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Published;
use crate::backend::memory::store::Stored;
use crate::backend::memory::store::differential::DUMP;
use crate::backend::memory::store::differential::PASS;
use crate::backend::redis::tests::redis_server::RedisServer;
use crate::backend::redis::tests::redis_server::has_redis_7;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Step;
use crate::kinds::script_tests::Suite;

pub(crate) struct Redis {
    suite: &'static Suite,
    _server: RedisServer,
    connection: Connection,
    subscriber: Connection,
    /// Digests by text, of what runs again and again.
    loaded: Vec<(&'static str, String)>,
}

impl Redis {
    pub(crate) fn start(suite: &'static Suite) -> Self {
        let server = RedisServer::start();
        let mut subscriber = connect(&server);
        for (channel, sharded) in suite.listened.iter().copied().chain([("end", false)]) {
            let command = redis::cmd(if sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" })
                .arg(channel)
                .get_packed_command();
            subscriber.send_packed_command(&command).unwrap();
            subscriber.recv_response().unwrap();
        }
        let mut connection = connect(&server);
        let load = |source| {
            let digest =
                redis::cmd("SCRIPT").arg("LOAD").arg(source).query(&mut connection).unwrap();
            (source, digest)
        };
        let sources = (suite.scripts)().iter().map(|script| script.source).chain([DUMP]);
        let loaded = sources.map(load).collect();
        Self { suite, connection, subscriber, loaded, _server: server }
    }

    /// Returns when the clock of the server shows another millisecond.
    pub(crate) fn next_millisecond(&mut self) {
        let before = self.now_us() / 1_000;
        while self.now_us() / 1_000 == before {}
    }

    /// None where the server lacks what the check of that name is about.
    pub(crate) fn fit_for(suite: &'static Suite, check: &str) -> Option<Self> {
        let needs = suite.needs_redis_7.iter().find(|(name, _)| *name == check);
        needs.is_none_or(|(_, what)| has_redis_7(what)).then(|| Self::start(suite))
    }

    /// A field behind all others of a hash. Another one keeps the key alive meanwhile, and its time
    /// to live with it.
    pub(crate) fn put_last(&mut self, key: &str, field: &str, value: &str) {
        const MEANWHILE: &str = "meanwhile";
        self.command(&["HSET", key, MEANWHILE, "1"]);
        self.command(&["HDEL", key, field]);
        self.command(&["HSET", key, field, value]);
        self.command(&["HDEL", key, MEANWHILE]);
    }

    /// Whatever the key.
    pub(crate) fn deny(&mut self, command: &str) {
        self.command(&["ACL", "SETUSER", "default", &format!("-{command}")]);
    }

    pub(crate) fn allow_everything(&mut self) {
        self.command(&["ACL", "SETUSER", "default", "+@all", "allkeys"]);
    }

    /// Takes time away from what every key has left, and from the ends that are written in values:
    /// what would have run out by then is gone.
    pub(crate) fn pass(&mut self, ms: i64) {
        self.command(&["EVAL", PASS, "0", &ms.to_string()]);
        for dumped in self.dump() {
            let key = dumped.key.as_str();
            let is_end = |field: &str| (self.suite.is_end)(key, field);
            match dumped.value {
                Stored::Hash(fields) => {
                    for (field, value) in fields.iter().filter(|(field, _)| is_end(field)) {
                        let end = value.parse::<i64>().unwrap() - ms;
                        self.command(&["HSET", key, field, &end.to_string()]);
                    }
                }
                Stored::SortedSet(members) => {
                    for (score, member) in members.iter().filter(|(_, member)| is_end(member)) {
                        self.command(&["ZADD", key, &(score - ms as f64).to_string(), member]);
                    }
                }
                _ => {}
            }
        }
    }

    /// What was published up to the message that says so.
    fn heard(&mut self) -> Vec<Published> {
        let messages = std::iter::from_fn(|| {
            let message: Vec<String> =
                redis::from_redis_value(self.subscriber.recv_response().unwrap()).unwrap();
            let [kind, channel, payload] = message.try_into().unwrap();
            (channel != "end").then(|| Published { channel, payload, sharded: kind == "smessage" })
        });
        messages.collect()
    }

    fn evaluate(&self, source: &str) -> redis::Cmd {
        match self.loaded.iter().find(|(text, _)| *text == source) {
            Some((_, digest)) => redis::cmd("EVALSHA").arg(digest).to_owned(),
            None => redis::cmd("EVAL").arg(source).to_owned(),
        }
    }

    fn answer(&mut self) -> Result<Value, String> {
        let answer = self.connection.recv_response().map_err(|error| words(&error));
        answer.and_then(value).map_err(|error| unwrapped(&error))
    }

    fn time(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) =
            redis::from_redis_value(self.connection.recv_response().unwrap()).unwrap();
        seconds * 1_000_000 + micros
    }

    fn command(&mut self, words: &[&str]) -> Raw {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.connection).unwrap()
    }
}

fn connect(server: &RedisServer) -> Connection {
    let connection = server.connection();
    connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    connection
}

impl Server for Redis {
    fn suite(&self) -> &'static Suite {
        self.suite
    }

    fn run(&mut self, call: &ScriptCall) -> Result<Value, String> {
        self.connection.send_packed_command(&eval(call).get_packed_command()).unwrap();
        self.answer()
    }

    fn now_us(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(&mut self.connection).unwrap();
        seconds * 1_000_000 + micros
    }

    fn flush(&mut self) {
        self.command(&["FLUSHALL"]);
    }

    fn plant(&mut self, key: &str, value: &Stored, pttl: Option<i64>) {
        self.command(&["DEL", key]);
        for words in planting(key, value, pttl) {
            self.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    fn remove(&mut self, key: &str) {
        self.command(&["DEL", key]);
    }

    fn dump(&mut self) -> Vec<Dumped> {
        all_keys(self.command(&["EVAL", DUMP, "0"]))
    }

    fn published(&mut self) -> Vec<Published> {
        self.command(&["PUBLISH", "end", "-"]);
        self.heard()
    }

    /// In one round trip: random sequences are long.
    fn step(&mut self, call: &ScriptCall) -> Step {
        let [time, end] = [&["TIME"][..], &["PUBLISH", "end", "-"]]
            .map(|words| redis::cmd(words[0]).arg(&words[1..]).get_packed_command());
        let mut dump = self.evaluate(DUMP);
        let mut script = self.evaluate(call.script.source);
        arguments(call, &mut script);
        let (script, dump) = (script.get_packed_command(), dump.arg(0).get_packed_command());
        let all = [time.clone(), script, time, dump, end].concat();
        self.connection.send_packed_command(&all).unwrap();
        let (before, result, after) = (self.time(), self.answer(), self.time());
        let dump = all_keys(self.connection.recv_response().unwrap());
        self.connection.recv_response().unwrap();
        Step { before, result, after, dump, published: self.heard() }
    }

    fn forbid(&mut self, command: &'static str) {
        self.command(&["ACL", "SETUSER", "default", &format!("-{command}"), "resetkeys", "~x*"]);
    }

    fn set_out_of_memory(&mut self, on: bool) {
        self.command(&["CONFIG", "SET", "maxmemory", if on { "1" } else { "0" }]);
    }
}

fn eval(call: &ScriptCall) -> redis::Cmd {
    let mut command = redis::cmd("EVAL");
    arguments(call, command.arg(call.script.source));
    command
}

pub(crate) fn arguments(call: &ScriptCall, command: &mut redis::Cmd) {
    command.arg(call.keys.len());
    call.keys.iter().chain(call.args.iter()).for_each(|word| {
        command.arg(word);
    });
}

/// The commands that put a value under a key.
pub(crate) fn planting(key: &str, value: &Stored, pttl: Option<i64>) -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut commands: Vec<_> = match value {
        Stored::Text(text) => vec![words(&["SET", key, text])],
        Stored::List(items) => items.iter().map(|item| words(&["RPUSH", key, item])).collect(),
        Stored::Hash(fields) => fields.iter().map(|(f, v)| words(&["HSET", key, f, v])).collect(),
        Stored::Set(members) => members.iter().map(|m| words(&["SADD", key, m])).collect(),
        Stored::SortedSet(members) => {
            members.iter().map(|(s, m)| words(&["ZADD", key, &s.to_string(), m])).collect()
        }
    };
    commands.extend(pttl.map(|pttl| words(&["PEXPIRE", key, &pttl.to_string()])));
    commands
}

pub(crate) fn all_keys(raw: Raw) -> Vec<Dumped> {
    let Raw::Array(all) = raw else { panic!("no dump: {raw:?}") };
    let mut dump: Vec<Dumped> = all.into_iter().map(dumped).collect();
    dump.sort_by(|one, other| one.key.cmp(&other.key));
    dump
}

fn dumped(raw: Raw) -> Dumped {
    let (key, kind, pttl, content): (String, String, i64, Raw) =
        redis::from_redis_value(raw).unwrap();
    let texts = |raw| redis::from_redis_value::<Vec<String>>(raw).unwrap();
    let pairs = |raw| {
        texts(raw).chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect::<Vec<_>>()
    };
    let value = match kind.as_str() {
        "string" => Stored::Text(redis::from_redis_value(content).unwrap()),
        "list" => Stored::List(texts(content)),
        "hash" => Stored::Hash(pairs(content)),
        "set" => Stored::Set(texts(content).into_iter().collect()),
        "zset" => {
            let scored = |(member, score): (String, String)| (score.parse().unwrap(), member);
            Stored::SortedSet(pairs(content).into_iter().map(scored).collect())
        }
        other => panic!("a {other}"),
    };
    Dumped { key, value, pttl: (pttl >= 0).then_some(pttl) }
}

fn value(raw: Raw) -> Result<Value, String> {
    Ok(match raw {
        Raw::Nil => Value::Nil,
        Raw::Int(number) => Value::Int(number),
        Raw::BulkString(bytes) => Value::Text(String::from_utf8(bytes).unwrap()),
        Raw::SimpleString(text) => Value::Text(text),
        Raw::Array(list) => Value::List(list.into_iter().map(value).collect::<Result<_, _>>()?),
        Raw::ServerError(error) => return Err(server_words(error.code(), error.details())),
        other => panic!("{other:?}"),
    })
}

/// The error of a command within a script, around which Redis 6.2 puts its own words.
fn unwrapped(error: &str) -> String {
    let inner =
        error.strip_prefix("ERR Error running script").and_then(|rest| rest.rsplit_once(": -"));
    inner.map_or(error, |(_, inner)| inner).to_owned()
}

fn words(error: &redis::RedisError) -> String {
    assert!(!error.is_io_error(), "{error}");
    server_words(error.code().unwrap_or("ERR"), error.detail())
}

fn server_words(code: &str, detail: Option<&str>) -> String {
    format!("{code} {}", detail.unwrap_or_default())
}
