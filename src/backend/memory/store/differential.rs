//! Random commands, given to the store and to a real server: all replies and all keys must be the
//! same.
//!
//! The store is given this machine's clock, which the server uses as well, so times may differ by
//! the duration of a call. No time to live is short enough to end meanwhile; `pass` shortens all of
//! them instead.
//!
//! `SEED` and `CALLS` select other sequences than the default.

use std::collections::BTreeSet;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use redis::Connection;
use redis::ConnectionLike;
use redis::Value as Raw;

use super::COMMANDS;
use super::CommandEffect;
use super::CommandReply;
use super::Dumped;
use super::Store;
use super::Stored;
use super::numbers;
use crate::backend::redis::tests::redis_server::RedisServer;
use crate::backend::redis::tests::redis_server::has_redis_7;
use crate::backend::redis::tests::redis_server::version;
use crate::backend::words::Words;
use crate::base::random::Random;

const CALLS: u64 = 30_000;
const LINE_CALLS: u64 = 2_000;
/// Redis keeps larger sorted sets in another form (`zset-max-listpack-entries`).
const MOST_IN_A_SMALL_SET: usize = 128;
/// All keys are deleted after this many calls.
const SEQUENCE: u64 = 100;
/// The tolerated difference of times that were read one after the other.
const TOLERANCE_MS: i64 = 5_000;
/// Surely expires what has one unit of time left, and nothing that has more.
const PASS_MS: i64 = UNIT_S * 1_000 + 500_000;
const UNIT_S: i64 = 1_000_000;

/// All keys. The name of a key says what it mostly contains, so that commands mostly find a value
/// of their type. `lex` is only used where all scores must be equal, `line` only by
/// [`CALLS_TO_A_LINE`].
const KEYS: [&str; 13] =
    ["s1", "s2", "h1", "h2", "l1", "l2", "t1", "t2", "z1", "z2", "z3", "lex", "line"];

/// Words in braces are chosen from [`POOLS`], and may become several words or none.
const CALLS_TO: &[&str] = &[
    // Keys.
    "PTTL {key}",
    "TTL {key}",
    "PEXPIRETIME {key}",
    "EXPIRETIME {key}",
    "EXPIRE {key} {ttl-s} {condition}",
    "PEXPIRE {key} {ttl-ms} {condition}",
    "EXPIREAT {key} {at-s} {condition}",
    "PEXPIREAT {key} {at-ms} {condition}",
    "PERSIST {key}",
    "EXISTS {key} {key}",
    "DEL {key}",
    "UNLINK {key} {key}",
    "TYPE {key}",
    "SCAN 0 COUNT 100 {scan}",
    "SCAN {cursor} COUNT 100",
    // Strings.
    "GET {s}",
    "SET {s} {value} {set} {set}",
    "SET {s} {integer}",
    "INCR {s}",
    "DECR {s}",
    "INCRBY {s} {integer}",
    "DECRBY {s} {integer}",
    // Hashes.
    "HGET {h} {member}",
    "HSET {h} {member} {value}",
    "HSET {h} {member} {integer} {member} {value}",
    "HSET {h} {member} {value} {member}",
    "HDEL {h} {member} {member}",
    "HEXISTS {h} {member}",
    "HLEN {h}",
    "HKEYS {h}",
    "HVALS {h}",
    "HGETALL {h}",
    "HMGET {h} {member} {member}",
    "HINCRBY {h} {member} {integer}",
    "HRANDFIELD {h}",
    "HRANDFIELD {h} {number} {withvalues}",
    // Lists.
    "LPUSH {l} {member} {member}",
    "RPUSH {l} {member} {member} {member}",
    "LPOP {l} {pop}",
    "RPOP {l} {pop}",
    "LINDEX {l} {integer}",
    "LRANGE {l} {integer} {integer}",
    "LLEN {l}",
    "LREM {l} {integer} {member}",
    // Sets.
    "SADD {t} {member} {member}",
    "SREM {t} {member} {member}",
    "SISMEMBER {t} {member}",
    "SMEMBERS {t}",
    "SCARD {t}",
    // Sorted sets.
    "ZADD {z} {add} {score} {member}",
    "ZADD {z} {add} {add} {score} {member} {score} {member}",
    "ZADD {z} {score} {member} {score} {member} {score} {member}",
    "ZADD {z} {score} {member} {score}",
    "ZINCRBY {z} {score} {member}",
    "ZREM {z} {member} {member}",
    "ZSCORE {z} {member}",
    "ZMSCORE {z} {member} {member}",
    "ZCARD {z}",
    "ZCOUNT {z} {end} {end}",
    "ZRANK {z} {member}",
    "ZREVRANK {z} {member}",
    "ZRANGE {z} {integer} {integer} {range}",
    "ZRANGE {z} {integer} {integer} {range} {range}",
    "ZRANGE {z} {end} {end} BYSCORE {range} {range}",
    "ZREVRANGE {z} {integer} {integer} {range}",
    "ZRANGEBYSCORE {z} {end} {end} {range} {range}",
    "ZREVRANGEBYSCORE {z} {end} {end} {range} {range}",
    "ZREMRANGEBYRANK {z} {integer} {integer}",
    "ZREMRANGEBYSCORE {z} {end} {end}",
    "ZPOPMIN {z} {pop}",
    "ZPOPMAX {z} {pop}",
    "ZADD lex 0 {member} 0 {member}",
    "ZREM lex {member}",
    "ZRANGE lex {text-end} {text-end} BYLEX {range}",
    "ZRANGE lex {text-end} {text-end} BYLEX REV {range}",
];

/// What scripts do with a waiting line: a sorted set with so many members that Redis no longer
/// keeps it in its form for small ones. The scores have as many digits as a time in microseconds.
const CALLS_TO_A_LINE: &[&str] = &[
    "ZADD line TICKET CLIENT",
    "ZADD line NX TICKET CLIENT",
    "ZADD line TICKET CLIENT TICKET CLIENT TICKET CLIENT",
    "ZADD line NX TICKET CLIENT TICKET CLIENT",
    "ZREM line CLIENT",
    "ZREM line CLIENT CLIENT",
    "ZSCORE line CLIENT",
    "ZCARD line",
    "ZCOUNT line {ticket} {ticket}",
    "ZRANGE line {rank} {rank} {with-scores}",
    "ZRANGE line {rank} {rank} REV {with-scores}",
    "ZRANK line CLIENT",
    "PEXPIRE line 3000000000",
    "PTTL line",
    "TYPE line",
    "EXISTS line",
];

/// The choices for a word in braces: `~` is the empty word, `_` a space in a word, `-` no word at
/// all. `RANDOM`, `TICKET` and `CLIENT` are replaced in each word, see [`random_words`].
const POOLS: &[(&str, &str)] = &[
    ("key", "s1 s2 h1 h2 l1 l2 t1 t2 z1 z2 z3"),
    ("s", "s1 s1 s1 s2 s2 s2 h1 z1"),
    ("h", "h1 h1 h1 h1 h2 h2 h2 s1 l1"),
    ("l", "l1 l1 l1 l1 l2 l2 l2 s1 t1"),
    ("t", "t1 t1 t1 t1 t2 t2 t2 s2 h1"),
    ("z", "z1 z1 z1 z1 z2 z2 z2 z2 z3 z3 z3 s1 h2"),
    ("member", "a a b b ab ba ~ 1 -1 10 ü z"),
    ("value", "x y ~ 0 1 -1 007 1.5 ü"),
    (
        "integer",
        "0 0 1 1 -1 -1 2 -2 3 -3 7 ~ x 01 +1 1.5 9223372036854775807 -9223372036854775808 9223372036854775806",
    ),
    ("number", "0 1 2 -1 -2 -3 9 x ~ 9223372036854775807 -9223372036854775808"),
    ("withvalues", "- withvalues WITHVALUES x"),
    ("pop", "- - - 0 1 2 9 -1 x"),
    ("score", SCORES),
    ("score", SCORES),
    (
        "end",
        "-inf +inf inf (inf (-inf 0 (0 1 (1 2 (2 -1 (-1 1.5 0.1 (0.1 ~ ( x nan _1 1_ 1e999 9007199254740992 (1e17",
    ),
    ("ticket", "-inf +inf TICKET (TICKET"),
    ("rank", "0 0 1 7 -1 -1 -2 -150 200"),
    ("with-scores", "- WITHSCORES"),
    ("text-end", "- + [a (a [b (b [ ( [ab (ab [z (ü a ~ -x +x"),
    ("add", "- - - NX XX GT LT CH INCR nx incr x"),
    (
        "range",
        "- - WITHSCORES REV LIMIT:0:1 LIMIT:1:2 LIMIT:-1:2 LIMIT:0:-1 LIMIT:1:-5 LIMIT:0:x LIMIT:1 BYSCORE x",
    ),
    (
        "set",
        "- - NX XX GET KEEPTTL EX:1000000 PX:3000000000 EXAT:9000000000 PXAT:9000000000000 EX:0 PX:-1 EX:x EX x",
    ),
    ("set", "PX:9223372036854775807 EX:9223372036854775807 - - - - get nx"),
    ("condition", "- - - NX XX GT LT XX:GT NX:GT GT:LT x"),
    ("ttl-s", "1000000 3000000 0 -1 x 9223372036854775807 -9223372036854775808 RANDOM"),
    ("ttl-ms", "1000000000 3000000000 0 -1 ~ 9223372036854775807 -9223372036854775808 RANDOM000"),
    ("at-s", "9000000000 9100000000 1 0 -1 9223372036854775807 1.5"),
    ("at-ms", "9000000000000 9100000000000 9000000000001 1 0 -1 9223372036854775807 x"),
    ("cursor", "0 00 x 0x 0_ 99999999999999999999"),
    (
        "scan",
        "- MATCH:* MATCH:z? MATCH:[sh]1 MATCH:[^a-h]* COUNT:100 COUNT:0 COUNT:x TYPE:zset TYPE:HASH TYPE:x MATCH x:y",
    ),
];

const SCORES: &str = "0 0 1 1 1 2 3 -1 -0 1.5 0.1 +2 .5 5. 1e2 1e17 1e308 -1e308 1e-320 inf -inf +INF nan ~ x _1 1e999 1e-999 \
                      9007199254740991 9007199254740992 9007199254740993 1750000000000007 3.0000000000000004";

fn pick<'a>(random: &mut Random, choices: &[&'a str]) -> &'a str {
    choices[random.index(choices.len())]
}

fn random_call(random: &mut Random, templates: &[&str]) -> Vec<String> {
    let template = pick(random, templates);
    template.split(' ').flat_map(|word| random_words(random, word)).collect()
}

fn random_words(random: &mut Random, word: &str) -> Vec<String> {
    let Some(name) = word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) else {
        return vec![with_numbers(random, word)];
    };
    let pools = POOLS.iter().filter(|(known, _)| *known == name);
    let choices: Vec<&str> = pools.flat_map(|(_, choices)| choices.split(' ')).collect();
    let chosen = pick(random, &choices);
    // As a limit of a range by text, `-` is a word of its own.
    if chosen == "-" && name != "text-end" {
        return Vec::new();
    }
    let meant = |word: &str| with_numbers(random, &word.replace('~', "").replace('_', " "));
    chosen.split(':').map(meant).collect()
}

/// Replaces the names of random words.
fn with_numbers(random: &mut Random, word: &str) -> String {
    let number = 2_000_000 + random.below(900_000_000);
    let ticket = 1_750_000_000_000_000 + number % 1_000;
    let client = format!("6e3d30b7-83b1-433a-9335-5e8b9916d3ac:{}", number % 401);
    word.replace("RANDOM", &number.to_string())
        .replace("TICKET", &ticket.to_string())
        .replace("CLIENT", &client)
}

/// A command's reply, or the text of its error.
type ServerReply = Result<CommandReply, String>;

/// The store as a server.
#[derive(Default)]
struct Memory(Store);

impl Memory {
    fn call(&mut self, words: &[String]) -> ServerReply {
        let keys: Words = KEYS.into();
        self.0.begin(now_us(), &keys).unwrap();
        let reply = self.0.call(words);
        self.0.end();
        reply.map_err(|refusal| refusal.0.into_owned())
    }

    fn pass(&mut self) {
        for entry in self.0.entries.values_mut() {
            entry.expires_ms = entry.expires_ms.map(|end| end - PASS_MS);
        }
    }

    fn dump(&mut self) -> Vec<Dumped> {
        self.0.set_time(now_us());
        self.0.dump()
    }

    /// How many members a sorted set has.
    fn members(&self, key: &str) -> usize {
        match self.0.peek(key).map(|dumped| dumped.value) {
            Some(Stored::SortedSet(set)) => set.iter().count(),
            _ => 0,
        }
    }
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}

struct Redis {
    connection: Connection,
    _server: RedisServer,
}

/// Every key with its type, its time to live and its content.
pub(crate) const DUMP: &str = r#"
    local all = {}
    local read = {
      string = {"GET"}, hash = {"HGETALL"}, list = {"LRANGE", 0, -1}, set = {"SMEMBERS"}, zset = {"ZRANGE", 0, -1, "WITHSCORES"},
    }
    for _, key in ipairs(redis.call("KEYS", "*")) do
      local kind = redis.call("TYPE", key).ok
      local name, from, to, scores = unpack(read[kind])
      local content
      if scores then content = redis.call(name, key, from, to, scores)
      elseif from then content = redis.call(name, key, from, to)
      else content = redis.call(name, key) end
      all[#all + 1] = {key, kind, redis.call("PTTL", key), content}
    end
    return all
"#;

/// Shortens every time to live by ARGV[1] milliseconds.
pub(crate) const PASS: &str = r#"
    for _, key in ipairs(redis.call("KEYS", "*")) do
      local left = redis.call("PTTL", key)
      if left >= 0 then redis.call("PEXPIRE", key, string.format("%.0f", left - ARGV[1])) end
    end
"#;

impl Redis {
    fn start() -> Self {
        let server = RedisServer::start();
        Self { connection: server.connection(), _server: server }
    }

    fn call(&mut self, words: &[String]) -> ServerReply {
        let mut command = redis::cmd(&words[0]);
        command.arg(&words[1..]);
        let raw = self.connection.req_command(&command);
        match raw {
            Ok(Raw::ServerError(error)) => Err(error_text(error.code(), error.details())),
            Ok(raw) => Ok(answer(raw)),
            Err(error) => {
                assert!(!error.is_io_error(), "{error}");
                Err(error_text(error.code().unwrap_or("ERR"), error.detail()))
            }
        }
    }

    fn pass(&mut self) {
        redis::cmd("EVAL").arg(PASS).arg(0).arg(PASS_MS).exec(&mut self.connection).unwrap();
    }

    fn flush(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.connection).unwrap();
    }

    fn dump(&mut self) -> Vec<Dumped> {
        let all: Vec<(String, String, i64, Raw)> =
            redis::cmd("EVAL").arg(DUMP).arg(0).query(&mut self.connection).unwrap();
        let mut all: Vec<Dumped> = all
            .into_iter()
            .map(|(key, kind, pttl, content)| Dumped {
                key,
                value: stored(&kind, content),
                pttl: (pttl >= 0).then_some(pttl),
            })
            .collect();
        all.sort_by(|one, other| one.key.cmp(&other.key));
        all
    }
}

fn error_text(code: &str, details: Option<&str>) -> String {
    format!("{code} {}", details.unwrap_or_default())
}

fn answer(raw: Raw) -> CommandReply {
    match raw {
        Raw::Nil => CommandReply::Nil,
        Raw::Int(number) => CommandReply::Int(number),
        Raw::BulkString(bytes) => CommandReply::Text(String::from_utf8(bytes).unwrap()),
        Raw::SimpleString(text) => CommandReply::Status(text.leak()),
        Raw::Okay => CommandReply::Status("OK"),
        Raw::Array(list) => CommandReply::List(list.into_iter().map(answer).collect()),
        other => panic!("{other:?}"),
    }
}

fn stored(kind: &str, content: Raw) -> Stored {
    let texts = || redis::from_redis_value::<Vec<String>>(content.clone()).unwrap();
    let pairs =
        || texts().chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect::<Vec<_>>();
    match kind {
        "string" => Stored::Text(redis::from_redis_value(content).unwrap()),
        "list" => Stored::List(texts()),
        "hash" => Stored::Hash(pairs()),
        "set" => Stored::Set(texts().into_iter().collect()),
        "zset" => {
            let scored = |(member, score): (String, String)| (score.parse().unwrap(), member);
            Stored::SortedSet(pairs().into_iter().map(scored).collect())
        }
        other => panic!("a {other}"),
    }
}

#[test]
fn random_commands_do_the_same_as_on_a_real_server() {
    if !has_redis_7("the options of EXPIRE") {
        return;
    }
    let mut both = Comparison::start();
    for number in 0..setting("CALLS").unwrap_or(CALLS) {
        if number % SEQUENCE == 0 {
            both.clear();
        }
        if both.random.below(20) == 0 {
            both.pass();
        }
        both.call_both(CALLS_TO);
    }
    let never: Vec<&str> = names_called().filter(|name| !both.done.contains(*name)).collect();
    assert_eq!(never, [""; 0], "these were refused each time");
}

#[test]
fn a_long_waiting_line_is_the_same_as_on_a_real_server() {
    let mut both = Comparison::start();
    let mut longest = 0;
    for _ in 0..LINE_CALLS {
        both.call_both(CALLS_TO_A_LINE);
        longest = longest.max(both.memory.members("line"));
    }
    assert!(longest > MOST_IN_A_SMALL_SET, "{longest}");
}

/// The store and a real server, which are given the same calls.
struct Comparison {
    random: Random,
    memory: Memory,
    redis: Redis,
    /// What was called since all keys were deleted.
    story: Vec<String>,
    /// The commands that were not refused.
    done: BTreeSet<String>,
}

impl Comparison {
    fn start() -> Self {
        let seed = setting("SEED").unwrap_or_else(|| now_us().unsigned_abs());
        println!("SEED={seed}");
        let (memory, redis) = (Memory::default(), Redis::start());
        Self { random: Random(seed), memory, redis, story: Vec::new(), done: BTreeSet::new() }
    }

    fn clear(&mut self) {
        self.memory.0.clear();
        self.redis.flush();
        self.story.clear();
    }

    fn pass(&mut self) {
        self.story.push("time passes".to_owned());
        self.memory.pass();
        self.redis.pass();
    }

    /// Calls a random command on both, and compares the replies and all keys.
    fn call_both(&mut self, templates: &[&str]) {
        let words = random_call(&mut self.random, templates);
        self.story.push(format!("{words:?}"));
        let story = &self.story;
        let (ours, theirs) = (self.memory.call(&words), self.redis.call(&words));
        assert!(is_same_reply(&words, &ours, &theirs), "{ours:?}, Redis {theirs:?}: {story:#?}");
        if ours.is_ok() {
            self.done.insert(words[0].clone());
        }
        let (ours, theirs) = (self.memory.dump(), self.redis.dump());
        assert!(are_same_keys(&ours, &theirs), "{ours:#?}, Redis {theirs:#?}: {story:#?}");
    }
}

fn names_called() -> impl Iterator<Item = &'static str> {
    CALLS_TO.iter().filter_map(|call| call.split(' ').next())
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn is_same_reply(words: &[String], ours: &ServerReply, theirs: &ServerReply) -> bool {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => is_same_answer(&words[0], ours, theirs),
        // Later versions have other error texts.
        (Err(ours), Err(theirs)) if version() > (7, 0) => {
            ours.split(' ').next() == theirs.split(' ').next()
        }
        (Err(ours), Err(theirs)) => ours == theirs,
        _ => false,
    }
}

fn is_same_answer(command: &str, ours: &CommandReply, theirs: &CommandReply) -> bool {
    let in_order = |answer: &CommandReply| {
        let mut texts = shown(answer);
        texts.sort();
        texts
    };
    match (command, ours, theirs) {
        ("PTTL" | "PEXPIRETIME", CommandReply::Int(ours), CommandReply::Int(theirs)) => {
            are_close(Some(*ours), Some(*theirs), TOLERANCE_MS)
        }
        ("TTL" | "EXPIRETIME", CommandReply::Int(ours), CommandReply::Int(theirs)) => {
            are_close(Some(*ours), Some(*theirs), TOLERANCE_MS / 1_000)
        }
        ("SCAN" | "SMEMBERS", ..) => in_order(ours) == in_order(theirs),
        // The members are random, so only their number is compared.
        ("HRANDFIELD", ..) => shown(ours).len() == shown(theirs).len(),
        _ => ours == theirs || version() > (7, 0) && are_same_numbers(ours, theirs),
    }
}

/// Redis 7.2 and later write scores with the fewest digits.
fn are_same_numbers(ours: &CommandReply, theirs: &CommandReply) -> bool {
    let number =
        |text: &String| text.parse::<f64>().map_or_else(|_| text.clone(), numbers::text_of);
    shown(ours).iter().map(number).eq(shown(theirs).iter().map(number))
}

/// All words of a reply, however they are nested.
fn shown(answer: &CommandReply) -> Vec<String> {
    match answer {
        CommandReply::List(list) => list.iter().flat_map(shown).collect(),
        CommandReply::Text(text) => vec![text.clone()],
        other => vec![format!("{other:?}")],
    }
}

fn are_same_keys(ours: &[Dumped], theirs: &[Dumped]) -> bool {
    let is_same = |(ours, theirs): (&Dumped, &Dumped)| {
        ours.key == theirs.key
            && ours.value == theirs.value
            && are_close(ours.pttl, theirs.pttl, TOLERANCE_MS)
    };
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(is_same)
}

/// Negative values mean that there is no time to live.
fn are_close(ours: Option<i64>, theirs: Option<i64>, tolerance: i64) -> bool {
    match (ours, theirs) {
        (Some(ours @ 0..), Some(theirs @ 0..)) => ours.abs_diff(theirs) <= tolerance.unsigned_abs(),
        (ours, theirs) => ours == theirs,
    }
}

#[test]
fn every_command_is_compared() {
    // Commands that only scripts can be compared with, because time passes or because a subscriber
    // is needed.
    let elsewhere = ["TIME", "PUBLISH", "SPUBLISH", "PUBSUB"];
    let is_compared =
        |name: &str| names_called().any(|called| called == name) || elsewhere.contains(&name);
    let names = COMMANDS.into_iter().flatten().map(|command| command.name);
    let missing: Vec<&str> = names.filter(|name| !is_compared(name)).collect();
    assert_eq!(missing, [""; 0]);
}

/// Which commands Redis counts as writes, and which it refuses when memory is full.
#[test]
fn each_command_writes_and_grows_as_on_a_real_server() {
    if !has_redis_7("SPUBLISH") {
        return;
    }
    let mut redis = Redis::start();
    for command in COMMANDS.into_iter().flatten() {
        let mut question = redis::cmd("COMMAND");
        question.arg("INFO").arg(command.name);
        let infos: Vec<Vec<Raw>> = question.query(&mut redis.connection).unwrap();
        let flags: BTreeSet<String> = redis::from_redis_value(infos[0][2].clone()).unwrap();
        let grows = command.effect == CommandEffect::Grows;
        let writes = grows || command.effect == CommandEffect::Writes;
        let theirs = [flags.contains("write"), flags.contains("denyoom")];
        assert_eq!([writes, grows], theirs, "{}", command.name);
    }
}
