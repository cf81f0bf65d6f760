//! Redis's rules for scripts, in the embedded Lua as on a real server.

use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::memory::store::Stored;
use crate::backend::redis::tests::redis_server::has_redis_7;
use crate::backend::redis::tests::redis_server::version;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::redis::Redis;
use crate::kinds::script_tests::text::parse_keys;

/// Without scripts of its own.
static SUITE: Suite = Suite::EMPTY;

const STATE: &str = "hash={f:1,g:2}@5 list=[x] text=word";

/// No script of ours writes fractions. Since Redis 7.2 and in Valkey they have the fewest digits,
/// before that 17.
const FRACTION: &str = r#"redis.call("SET", "n", 0.1) return redis.call("GET", "n")"#;

/// Run one after the other on the same keys.
const SNIPPETS: &[&str] = &[
    // Replies.
    r#"return {1, 2.9, -2.9, "a", true, false, 3, nil, 4}"#,
    "return {{1, {2}}, {}, {key = 1}}",
    r#"return {err = "MY words"}"#,
    r#"return {ok = "fine"}"#,
    "return nil",
    "return false",
    "return true",
    "return 3.99",
    "return {KEYS[1], ARGV[1], KEYS[9], 1}",
    "return {#KEYS, #ARGV}",
    // Numbers as arguments keep their digits.
    r#"redis.call("SET", "n", 1790000000000007) return redis.call("GET", "n")"#,
    r#"redis.call("SET", "n", 9007199254740991) return redis.call("GET", "n")"#,
    FRACTION,
    r#"redis.call("SET", "n", 1e20) return redis.call("GET", "n")"#,
    r#"redis.call("SET", "n", -0.5) return redis.call("GET", "n")"#,
    // Commands.
    r#"return {type(redis.call("GET", "none")), redis.call("TYPE", "none").ok, redis.call("TYPE", "hash").ok}"#,
    r#"return {redis.call("PTTL", "none"), redis.call("PTTL", "text"), redis.call("EXISTS", "text", "none", "text")}"#,
    r#"return redis.call("HSET", "hash", "f", 5, "h", 6)"#,
    r#"return redis.call("HGETALL", "hash")"#,
    r#"return {redis.call("HKEYS", "hash"), redis.call("HLEN", "hash"), redis.call("HLEN", "none")}"#,
    r#"return {redis.call("HEXISTS", "hash", "f"), redis.call("HEXISTS", "hash", "z"), redis.call("HKEYS", "none")}"#,
    r#"return {redis.call("HDEL", "hash", "f", "z"), redis.call("HDEL", "hash", "g", "h"), redis.call("EXISTS", "hash")}"#,
    r#"return {redis.call("PEXPIRE", "none", 9000000), redis.call("PEXPIRE", "text", 9000000)}"#,
    r#"return {redis.call("PERSIST", "text"), redis.call("PERSIST", "text"), redis.call("PTTL", "text")}"#,
    r#"redis.call("PEXPIRE", "text", 9000000) redis.call("SET", "text", "x") return redis.call("PTTL", "text")"#,
    r#"return {redis.call("PEXPIRE", "n", 0), redis.call("EXISTS", "n"), redis.call("DEL", "text", "none")}"#,
    r#"return redis.call("HMGET", "hash", "none", "f")"#,
    r#"return {redis.call("ZADD", "new", 2, "b", 1.5, "a"), redis.call("ZRANGE", "new", 0, -1, "WITHSCORES")}"#,
    r#"return {redis.call("ZMSCORE", "new", "a", "none"), type(redis.call("ZSCORE", "new", "none"))}"#,
    r#"return {redis.call("DEL", "new"), redis.call("LPOP", "new") == false, redis.call("LRANGE", "list", 0, -1)}"#,
    r#"return redis.call("SCAN", 0, "MATCH", "h*", "COUNT", 100)"#,
    r#"return redis.call("PUBSUB", "NUMSUB", "ch", "nobody")"#,
    r#"return {redis.call("PUBSUB", "SHARDNUMSUB", "ch"), redis.call("PUBSUB", "NUMSUB")}"#,
    // Errors.
    r#"return redis.call("PUBSUB", "NONSENSE")"#,
    r#"return redis.call("PUBSUB")"#,
    r#"return redis.call("GET", "list")"#,
    r#"return redis.pcall("HGET", "list", "f")"#,
    r#"return redis.pcall("HSET", "list", "f", 1).err"#,
    r#"redis.call("SET", "kept", 1) redis.call("HLEN", "list")"#,
    r#"return redis.call("GET", "kept")"#,
    r#"return redis.call("NONSENSE")"#,
    r#"return redis.call("GET")"#,
    r#"return redis.call("HSET", "new", "f")"#,
    r#"return redis.call("HSET", "new", "f", 1, "g")"#,
    r#"return redis.call("PEXPIRE", "list", "soon")"#,
    r#"return redis.call("GET", true)"#,
    r#"return redis.pcall("GET", {})"#,
    "return redis.call()",
    // Globals.
    "return stranger",
    "stranger = 1",
    "local x\nreturn x.y",
    "retrn 1",
];

fn run(server: &mut dyn Server, source: &'static str) -> Result<Value, String> {
    let script: &'static Script = Box::leak(Box::new(Script { name: "snippet", source }));
    let keys = ["hash", "list", "text", "none", "n", "new", "kept"].into();
    let result = server.run(&ScriptCall::new(script, keys, ["one"].into()));
    // Valkey does not name Redis there.
    let words = |text: String| {
        let text = text.replace("ERR Unknown command called", "ERR Unknown Redis command called");
        let text = text.replace(
            "ERR Command arguments must be",
            "ERR Lua redis lib command arguments must be",
        );
        let text =
            text.replace("one argument for this call", "one argument for this redis lib call");
        text.replace("args calling command from", "args calling Redis command from")
    };
    result.map_err(|text| words(text.split(" script: ").next().unwrap().to_owned()))
}

#[test]
fn snippets_answer_the_same_in_memory_and_on_redis() {
    if !has_redis_7("errors of scripts in the words of Redis 7") {
        return;
    }
    let (mut memory, mut redis) = (Memory::start(&SUITE), Redis::start(&SUITE));
    for (key, value, pttl) in parse_keys(STATE, 0) {
        memory.plant(&key, &value, pttl);
        redis.plant(&key, &value, pttl);
    }
    for source in SNIPPETS {
        let expected = run(&mut memory, source);
        let fewest = *source == FRACTION && version() >= (7, 2);
        let expected = if fewest { Ok(Value::Text("0.1".to_owned())) } else { expected };
        assert_eq!(expected, run(&mut redis, source), "{source}");
    }
}

#[test]
fn a_key_runs_out_between_scripts_and_never_within_one() {
    let mut memory = Memory::start(&SUITE);
    memory.plant("text", &Stored::Text("word".to_owned()), Some(10));
    memory.now_us += 9_900;
    assert_eq!(run(&mut memory, r#"return redis.call("PTTL", "text")"#), Ok(Value::Int(0)));
    memory.now_us += 900;
    assert_eq!(run(&mut memory, r#"return redis.call("PTTL", "text")"#), Ok(Value::Int(-2)));
}

/// Stricter than a single Redis, as a cluster would be.
#[test]
fn a_key_that_was_not_declared_is_refused() {
    let error =
        run(&mut Memory::start(&SUITE), r#"return redis.call("GET", "other")"#).unwrap_err();
    assert_eq!(error, "ERR script used the key 'other', which is not in KEYS");
}
