//! Several in one script, against the same one after the other, on a real Redis.

use std::collections::BTreeSet;

use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::batch_args::BatchArgs;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Published;
use crate::backend::memory::store::Stored;
use crate::base::random::Random;
use crate::kinds::reentrant::ACQUIRE;
use crate::kinds::reentrant::RELEASE;
use crate::kinds::reentrant::script_tests::SUITE;
use crate::kinds::reentrant::several;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::redis::Redis;

const SEQUENCES: u64 = 300;
const NAMES: [&str; 3] = ["one", "two", "three"];
const NEVER_LATE: &str = "9007199254740991";

fn acquire(name: &str, field: &str, count: &str, lease: &str, not_after: &str) -> ScriptCall {
    waiting(name, [field, count, lease, not_after, "try", "0", "0"])
}

fn waiting(name: &str, args: [&str; 7]) -> ScriptCall {
    let line = line_of(name);
    ScriptCall::new(&ACQUIRE, [name, "fence", &line].into(), args.into())
}

fn release(name: &str, field: &str, count: &str, verb: &str) -> ScriptCall {
    let line = line_of(name);
    ScriptCall::new(&RELEASE, [name, &line].into(), [field, count, "ch", verb].into())
}

fn line_of(name: &str) -> String {
    format!("{name}:line")
}

/// The same without the line's key, which is the last.
fn without_line(call: &ScriptCall) -> ScriptCall {
    let keys = call.keys.iter().take(call.keys.len() - 1).collect();
    ScriptCall { keys, ..call.clone() }
}

fn any(random: &mut Random) -> ScriptCall {
    /// The first most of the time.
    fn usual(random: &mut Random, choices: &[&'static str]) -> &'static str {
        choices[random.index(choices.len() * 4).saturating_sub(choices.len() * 3)]
    }
    let mut pick = |choices: &[&'static str]| choices[random.index(choices.len())];
    let (name, field) = (pick(&NAMES), pick(&["a", "a", "b", "c", ""]));
    if pick(&["acquire", "release"]) == "acquire" {
        let mut usual = |choices: &[&'static str]| usual(random, choices);
        let (count, lease) = (usual(&["1", "2", "0", "1.5"]), usual(&["30000", "60000", "0", "x"]));
        let not_after = usual(&[NEVER_LATE, "1", "-1"]);
        let mode = usual(&["first", "try", "again", "wait"]);
        // A new ticket would be another each time.
        let (ticket, hears) = (usual(&["5", "6", "-1"]), usual(&["1", "0", ""]));
        waiting(name, [field, count, lease, not_after, mode, ticket, hears])
    } else {
        release(name, field, pick(&["0", "0", "1", "-1"]), pick(&["PUBLISH", "PUBLISH", "publish"]))
    }
}

/// In one call, as the backend does it.
fn together(calls: &[ScriptCall]) -> ScriptCall {
    let several = several(calls.iter().all(|call| several(true).one(call).is_some()));
    let together = BatchArgs::new(several, calls.iter());
    let keys = calls.iter().flat_map(|call| call.keys.iter()).collect();
    ScriptCall::new(several.script, keys, together.args(calls.iter()).collect())
}

/// What each would have said by itself; an error is its words.
fn replies(redis: &mut Redis, calls: &[ScriptCall]) -> Vec<Value> {
    let Ok(Value::List(parts)) = redis.run(&together(calls)) else { panic!("no list") };
    let mut parts = parts.into_iter();
    let time = parts.next().expect("the time");
    let mut replies = Vec::new();
    while let Some(first) = parts.next() {
        replies.push(match first {
            Value::Int(head) => {
                let rest = parts.by_ref().take(head.rem_euclid(8) as usize);
                Value::List(
                    [Value::Int(head.div_euclid(8)), time.clone()]
                        .into_iter()
                        .chain(rest)
                        .collect(),
                )
            }
            words => words,
        });
    }
    assert_eq!(replies.len(), calls.len());
    replies
}

/// High enough that tokens do not depend on the time.
fn begin(redis: &mut Redis) {
    redis.flush();
    redis.plant("fence", &Stored::Text("9000000000000000".to_owned()), None);
}

/// The same, with a lock that has data of another program beside it.
fn begin_with_data(redis: &mut Redis) {
    begin(redis);
    let fields =
        [("a", "1"), ("data", "x")].map(|(field, value)| (field.to_owned(), value.to_owned()));
    redis.plant(NAMES[2], &Stored::Hash(fields.into()), Some(60_000));
}

/// Without what depends on the moment: the server's time, and what is left of a lease.
fn timeless(reply: Value) -> Value {
    match reply {
        Value::List(mut parts) => {
            parts[1] = Value::Int(0);
            if let [Value::Int(0), _, Value::Int(pttl), ..] = &mut parts[..] {
                *pttl = (*pttl + 9_999) / 10_000;
            }
            Value::List(parts)
        }
        other => other,
    }
}

fn ended(redis: &mut Redis) -> (Vec<Dumped>, Vec<Published>) {
    let mut keys = redis.dump();
    for key in &mut keys {
        key.pttl = key.pttl.map(|pttl| (pttl + 9_999) / 10_000);
    }
    (keys, redis.published())
}

#[test]
fn several_do_what_they_do_one_after_the_other() {
    let mut redis = Redis::start(&SUITE);
    let (mut granted, mut places) = (0, 0);
    for seed in 0..SEQUENCES {
        let mut random = Random(seed);
        let mut calls: Vec<_> = (0..16).map(|_| any(&mut random)).collect();
        if seed % 3 == 0 {
            calls = calls.iter().map(without_line).collect();
        }
        let begin = if seed % 2 == 0 { begin } else { begin_with_data };
        begin(&mut redis);
        let singly: Vec<_> =
            calls.iter().map(|call| timeless(redis.run(call).expect("a reply"))).collect();
        let after = ended(&mut redis);
        begin(&mut redis);
        let replies: Vec<_> = replies(&mut redis, &calls).into_iter().map(timeless).collect();
        for reply in &replies {
            places += usize::from(matches!(reply, Value::List(parts) if parts.len() == 6));
        }
        assert_eq!(replies, singly, "seed {seed}: {calls:?}");
        assert_eq!(ended(&mut redis), after, "seed {seed}: {calls:?}");
        let is_grant =
            |reply: &&Value| matches!(reply, Value::List(parts) if parts[0] == Value::Int(1));
        granted += replies.iter().filter(is_grant).count();
    }
    assert!(granted > 300 && places > 100, "{granted}, {places}");
}

/// Redis refuses some commands: who asked for them hears why, and the others have what they asked
/// for.
#[test]
fn an_error_of_one_is_its_own() {
    let mut redis = Redis::start(&SUITE);
    begin(&mut redis);
    redis.run(&acquire("one", "a", "1", "60000", NEVER_LATE)).expect("granted");
    redis.published();
    redis.set_out_of_memory(true);
    // A script that has written anything may go on: Redis asks about memory before that only.
    let calls = [
        acquire("two", "a", "1", "60000", NEVER_LATE),
        acquire("three", "a", "1", "60000", NEVER_LATE),
        acquire("three", "a", "1", "60000", "1"),
        release("one", "a", "0", "PUBLISH"),
    ];
    let replies = replies(&mut redis, &calls);
    redis.set_out_of_memory(false);
    for refused in &replies[..2] {
        assert!(matches!(refused, Value::Text(words) if words.starts_with("OOM")), "{replies:?}");
    }
    assert!(matches!(&replies[2], Value::List(parts) if parts[0] == Value::Int(-1)), "{replies:?}");
    assert!(matches!(&replies[3], Value::List(parts) if parts[0] == Value::Int(1)), "{replies:?}");
    let (keys, published) = ended(&mut redis);
    assert_eq!(keys.iter().map(|key| key.key.as_str()).collect::<Vec<_>>(), ["fence"]);
    assert_eq!(published.len(), 1);
}

/// With what is usual and without, be it raised or told. What Redis adds of the script it comes
/// from is left out.
#[test]
fn an_error_is_what_it_would_have_been_by_itself() {
    let mut redis = Redis::start(&SUITE);
    let calls = [
        release("one", "a", "0", "PUBLISH"),
        release("one", "a", "1", "PUBLISH"),
        acquire("one", "b", "1", "30000", NEVER_LATE),
        acquire("one", "b", "1", "60000", NEVER_LATE),
        acquire("two", "b", "1", "30000", NEVER_LATE),
        acquire("three", "b", "1", "60000", NEVER_LATE),
        release("three", "b", "0", "PUBLISH"),
        waiting("four", ["b", "1", "60000", NEVER_LATE, "first", "5", "1"]),
        release("four", "b", "0", "PUBLISH"),
    ];
    let mut errors = BTreeSet::new();
    for denied in [
        "hget", "hset", "hlen", "hdel", "get", "set", "pexpire", "zscore", "zcount", "zadd",
        "zrem", "zrange", "type", "publish",
    ] {
        let begin = |redis: &mut Redis| {
            redis.allow_everything();
            begin(redis);
            redis.run(&acquire("one", "a", "1", "60000", NEVER_LATE)).expect("granted");
            redis.run(&acquire("four", "a", "1", "60000", NEVER_LATE)).expect("granted");
            let place = Stored::SortedSet([(5.0, "b".to_owned())].into_iter().collect());
            redis.plant(&line_of("four"), &place, Some(60_000));
            redis.published();
            redis.deny(denied);
        };
        begin(&mut redis);
        let said = |reply| match reply {
            Ok(reply) => timeless(reply),
            Err(words) => Value::Text(words),
        };
        let singly: Vec<_> =
            calls.iter().map(|call| without_place(said(redis.run(call)))).collect();
        redis.allow_everything();
        let after = ended(&mut redis);
        begin(&mut redis);
        let replies: Vec<_> =
            replies(&mut redis, &calls).into_iter().map(timeless).map(without_place).collect();
        redis.allow_everything();
        assert_eq!(replies, singly, "{denied}");
        assert_eq!(ended(&mut redis), after, "{denied}");
        let refused =
            replies.iter().enumerate().filter(|(_, reply)| matches!(reply, Value::Text(_)));
        errors.extend(refused.map(|(number, _)| number));
    }
    assert_eq!(errors.len(), calls.len(), "each of them had one: {errors:?}");
}

fn without_place(reply: Value) -> Value {
    match reply {
        Value::Text(words) => {
            Value::Text(words.split(" script: ").next().unwrap_or_default().to_owned())
        }
        other => other,
    }
}

/// The bodies of both scripts stand in it once each, and are the ends of those scripts.
#[test]
fn it_includes_the_bodies_of_both() {
    let source = several(true).script.source;
    assert_eq!(source.matches(r#"redis.call("TIME")"#).count(), 1, "{source}");
    assert_eq!(source.matches("-- include ").count(), 11, "{source}");
    let bodies = [
        [lua!("reentrant/body/look"), lua!("reentrant/body/grant")],
        [lua!("reentrant/body/give_up"), lua!("reentrant/body/given_up")],
    ];
    for (script, parts) in [&*ACQUIRE, &*RELEASE].into_iter().zip(bodies) {
        for part in parts {
            assert_eq!(source.matches(part).count(), 1, "{}", script.name);
            assert_eq!(script.source.matches(part).count(), 1, "{}", script.name);
        }
        assert!(script.source.ends_with(parts[1]), "{}", script.name);
    }
}
