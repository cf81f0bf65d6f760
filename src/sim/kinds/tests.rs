//! That a mistake in a script of a kind is found by the simulation, within few seeds of that kind.

use crate::backend::Script;
use crate::base::kind::Kind;
use crate::kinds::fair;
use crate::kinds::latch::COUNT_DOWN;
use crate::kinds::latch::TRY_SET_COUNT;
use crate::kinds::permit_expirable::ACQUIRE;
use crate::kinds::permit_expirable::RELEASE;
use crate::kinds::permit_expirable::RENEW;
use crate::sim::kinds::ALL;
use crate::sim::kinds::named;
use crate::sim::kinds::rules;
use crate::sim::plan::Mask;
use crate::sim::plan::Seed;
use crate::sim::run;
use crate::sim::trace::Trace;

/// So many seeds may be needed.
const SEEDS: u64 = 40;

/// The script with one place of it said differently.
fn broken(script: &'static Script, right: &str, wrong: &str) -> &'static Script {
    assert_eq!(script.source.matches(right).count(), 1, "{}: {right}", script.name);
    let source = script.source.replace(right, wrong).leak();
    Box::leak(Box::new(Script { name: script.name, source }))
}

/// The first violation that servers with this script lead to.
fn violation(kind: Kind, instead: &'static Script) -> Option<String> {
    let seeds =
        (0..SEEDS).map(|number| Seed { instead: Some(instead), ..Seed::of(number, Some(kind)) });
    seeds.filter_map(|seed| run(seed, &Mask::default(), Trace::off()).result.err()).next()
}

/// Each of these mistakes in a script breaks a promise.
fn check_mistakes(kind: Kind, table: &[(&'static Script, &str, &str, &str)]) {
    for (script, right, wrong, promise) in table {
        let found = violation(kind, broken(script, right, wrong));
        let found = found.unwrap_or_else(|| panic!("{}: {right} is not missed", script.name));
        assert!(found.starts_with(promise), "{}: {right}: {found}", script.name);
    }
}

#[test]
fn mistakes_in_the_scripts_of_the_pair_are_found() {
    let scripts = Kind::Pair.scripts().unwrap();
    let table = [
        // A third is admitted.
        (scripts.acquire, "places >= 2", "places >= 3", "P1"),
        // Nobody is refused.
        (scripts.acquire, "if not own and places", "if own and places", "P1"),
        // An undo removes nothing. What is left of it may break several promises.
        (
            scripts.undo,
            r#""HDEL", lock, field, field .. ":ends""#,
            r#""HEXISTS", lock, field"#,
            "P",
        ),
        // Setting the count takes time away.
        (scripts.acquire, "if own and own > ends then ends = own end", "", "P7"),
        // A release sets no count.
        (scripts.release, r#"redis.call("HSET", lock, field, count)"#, "", "P5"),
        // A token is no larger than the one before.
        (scripts.acquire, "token = before + 1", "token = before", "P2"),
        // A renewal renews nothing.
        (scripts.renew, "if ends < now_ms + lease then", "if false then", "P6"),
        // A release of many gives up nothing. What is left may break several promises.
        (
            scripts.release_many,
            r#"redis.pcall("HDEL", lock, field, field .. ":ends") ~= 2"#,
            r#"redis.pcall("HEXISTS", lock, field) ~= 1"#,
            "P",
        ),
        // A place that is to stay taken is free at once, or is kept for too long.
        (scripts.release_at, "if rest > 0 then\n  --", "if false then\n  --", "P14"),
        (scripts.release_at, "now_ms + rest", "now_ms + rest + 9000", "P14"),
        // A force-unlock takes both places.
        (
            scripts.force_release,
            r#""HDEL", lock, expected, expected .. ":ends""#,
            r#""DEL", lock"#,
            "P4",
        ),
    ];
    check_mistakes(Kind::Pair, &table);
}

#[test]
fn mistakes_in_the_scripts_of_the_fair_lock_are_found() {
    let first = r#"local first = redis.pcall("ZRANGE", line, 0, 0, "WITHSCORES")"#;
    let last = r#"local first = redis.pcall("ZRANGE", line, -1, -1, "WITHSCORES")"#;
    let table = [
        // Whoever waits and asks for a free lock gets it, or whoever tries.
        (&*fair::ACQUIRE, "channel, verb, ticket)", "channel, verb, 0)", "P17"),
        (&*fair::ACQUIRE, "channel, verb, BEHIND_ALL)", "channel, verb, 0)", "P17"),
        // The last in line goes first.
        (&*fair::ACQUIRE, first, last, "P17"),
        (&*fair::RELEASE, first, last, "P17"),
        (&*fair::UNDO, first, last, "P17"),
        (&*fair::FORCE_RELEASE, first, last, "P17"),
        // Whoever wants nothing stays in line.
        (&*fair::UNDO, r#"local left = redis.pcall("ZREM", line, field)"#, "local left = 0", "P10"),
    ];
    check_mistakes(Kind::Fair, &table);
}

#[test]
fn mistakes_in_the_scripts_of_redissons_permits_are_found() {
    let table = [
        // One more than there are is granted, and counted.
        (&*ACQUIRE, "missing > free + over then", "missing > free + over + 1 then", "P1"),
        // What is granted is not counted.
        (&*ACQUIRE, r#"redis.call("INCRBY", lock, -missing)"#, "missing = missing", "P19"),
        // What is free after a refusal of Redis is less than there is.
        (&*ACQUIRE, r#"redis.call("INCRBY", lock, missing)"#, "missing = 0", "P19"),
        // What has run out is not counted, or is counted twice.
        (&*ACQUIRE, r#"redis.call("INCRBY", lock, over)"#, "over = over", "P19"),
        (&*ACQUIRE, r#"redis.pcall("ZREMRANGEBYSCORE", permits, "-inf", last)"#, "over", "P19"),
        // The permits end with the lease, or are taken back at once, later, or earlier than their end.
        (&*ACQUIRE, "now_ms + lease + SLACK_MS", "now_ms + lease", "P6"),
        (&*ACQUIRE, "now_ms - SLACK_MS", "now_ms", "P4"),
        (&*ACQUIRE, "now_ms + lease + SLACK_MS", "now_ms + lease + 2 * SLACK_MS", "P7"),
        // A token is no larger than the one before.
        (&*ACQUIRE, "return last + 1 end", "return last end", "P2"),
        // A renewal renews nothing.
        (&*RENEW, "\"XX\", ends, permit_of", "\"XX\", ends - ms, permit_of", "P7"),
        // A release gives nothing back, or counts nothing.
        (&*RELEASE, r#"redis.pcall("ZREM", permits, permit_of(field, i))"#, "1", "P19"),
        (&*RELEASE, r#"free = redis.call("INCRBY", lock, there)"#, "free = free", "P19"),
        (&*RELEASE, r#"redis.call("INCRBY", lock, -there)"#, "there = there", "P19"),
        // Nobody hears of it.
        (&*RELEASE, "redis.pcall(verb, channel, free)", "0", "P9"),
    ];
    check_mistakes(Kind::PermitExpirable, &table);
}

#[test]
fn mistakes_in_the_scripts_of_the_latch_are_found() {
    let table = [
        // An operation is not remembered.
        (&*COUNT_DOWN, "if before then return say(before) end", "", "P18"),
        // A caller is told of a count where there was no latch.
        (&*COUNT_DOWN, "local left = -1", "local left = 0", "P18"),
        // The same for a count that is set.
        (&*TRY_SET_COUNT, "if before then return say(before) end", "", "P18"),
    ];
    for (script, right, wrong, promise) in table {
        let script = broken(script, right, wrong);
        let seeds = (0..400).map(|number| Seed { instead: Some(script), ..Seed::of(number, None) });
        let found = seeds.filter_map(|seed| run(seed, &Mask::default(), Trace::off()).result.err());
        let found = found.take(1).next().unwrap_or_else(|| panic!("{right} is not missed"));
        assert!(found.starts_with(promise), "{right}: {found}");
    }
}

#[test]
fn every_kind_is_drawn_and_called_by_its_name() {
    for kind in ALL {
        assert_eq!(named(&format!("{kind:?}").to_lowercase()), Some(*kind));
        assert!(rules(*kind).has_room(&[]), "{kind:?}");
    }
    assert_eq!(named("no such kind"), None);
}
