//! Every command that a script may be refused, and every two of them: nothing may be left half
//! done, and no lock without a time to live.

use crate::backend::Value;
use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Stored;
use crate::kinds::script_tests::Fields;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::text::parse_call;

const ERROR: &str = "NOPERM this user has no permissions to run the command";

pub(crate) fn check(server: &mut Memory) {
    let suite = server.suite();
    assert!(!suite.tables.is_empty(), "no tables");
    for &(state, text, ..) in suite.tables.iter().flat_map(|(_, rows)| *rows) {
        let call = parse_call(suite, text);
        // The others were checked with their own scripts.
        if server.instead.is_some_and(|instead| instead.name != call.script.name) {
            continue;
        }
        // Each of the calls runs at the same time, so that what it would write is the same.
        let now_us = server.now_us;
        set_up(server, state);
        let before = server.dump();
        server.run(&call).unwrap();
        let complete = server.dump();
        // What a lock becomes of which nobody can be told.
        server.now_us = now_us;
        set_up(server, state);
        server.keyspace.refuse_commands(&["PUBLISH", "SPUBLISH"], ERROR);
        server.run(&call).unwrap();
        let untold = server.dump();
        // What it becomes if only the dead are removed.
        let removes_dead = (suite.removes_dead)(&call);
        server.now_us = now_us;
        set_up(server, state);
        if removes_dead {
            server.keyspace.refuse_commands(&["HSET"], ERROR);
            drop(server.run(&call));
        }
        let without_dead = server.dump();
        server.now_us = now_us;
        set_up(server, state);
        server.keyspace.refuse_script(ERROR);
        server.run(&call).unwrap_err();
        let after = server.dump();
        let now_ms = server.now_us / 1_000;
        let refused = "the script was refused";
        call.keys.iter().for_each(|key| check_key(suite, now_ms, key, &after, &[&before], refused));
        for refused in sets(call.script.source) {
            server.now_us = now_us;
            set_up(server, state);
            server.keyspace.refuse_commands(&refused, ERROR);
            let result = server.run(&call);
            let after = server.dump();
            let what = format!("{text} in [{state}] without {refused:?}: {result:?}, {after:?}");
            for key in call.keys.iter() {
                let known = [&*before, &*complete, &*untold, &*without_dead];
                check_key(suite, server.now_us / 1_000, key, &after, &known, &what);
                check_places(suite, key, &after, &known, &result, &what);
                let vanished = hash(&before, key).is_some() && hash(&after, key).is_none();
                let fine = !vanished || result.is_ok() || removes_dead;
                assert!(fine, "freed without saying so: {what}");
            }
        }
    }
}

/// One or two of the commands that a script uses.
pub(crate) fn sets(source: &str) -> Vec<Vec<&'static str>> {
    let used = |name: &&str| source.contains(&format!("\"{name}\"")) || name.ends_with("PUBLISH");
    let names: Vec<&str> = Keyspace::command_names().filter(used).collect();
    let pairs = names
        .iter()
        .enumerate()
        .flat_map(|(at, one)| names[at..].iter().map(|other| vec![*one, *other]));
    pairs.collect()
}

/// A hash is what it was (the first of what is known), what it should become, reserved for the first
/// in line, or gone; and it has a time to live unless it had none before or is to have none. What is
/// over by itself does not count.
fn check_key(
    suite: &Suite,
    now_ms: i64,
    key: &str,
    now: &[Dumped],
    known: &[&[Dumped]],
    what: &str,
) {
    let Some((fields, pttl)) = hash(now, key) else { return };
    let valid = |fields: &Fields| (suite.valid)(fields, now_ms);
    let is_same = |hash: &Hash<'_>| valid(hash.0) == valid(fields);
    let mut all = known.iter().filter_map(|dump| hash(dump, key));
    let is_known = all.any(|hash| is_same(&hash))
        || is_reserved(suite, fields, known[0], key)
        || is_reserved_for_readers(fields, known, key);
    assert!(is_known, "half done: {what}");
    let endless = |hash: &Hash<'_>| hash.1.is_none();
    let had_none = hash(known[0], key).as_ref().is_some_and(endless);
    let mut all = known.iter().filter_map(|dump| hash(dump, key));
    let meant = had_none || all.any(|new| is_same(&new) && endless(&new));
    assert!(pttl.is_some() || meant, "no time to live: {what}");
}

/// Whether the lock is reserved for the first in what was its line; or for somebody in it, where
/// those before may be passed over.
fn is_reserved(suite: &Suite, fields: &Fields, before: &[Dumped], key: &str) -> bool {
    let line = key.replacen("lock", "line", 1);
    let places = before.iter().find(|dumped| dumped.key == line).map(|dumped| &dumped.value);
    let Some(Stored::SortedSet(places)) = places else { return false };
    let most = if suite.kind.has_marks() { usize::MAX } else { 1 };
    let mut next = places.iter().take(most);
    next.any(|(_, first)| fields == [(first.clone(), "0".to_owned())])
}

/// The same of a read-write lock, and of several who were in its line; without them it is free, or
/// what it was, or what it should become.
fn is_reserved_for_readers(fields: &Fields, known: &[&[Dumped]], key: &str) -> bool {
    let line = key.replacen("lock", "line", 1);
    let places = known[0].iter().find(|dumped| dumped.key == line).map(|dumped| &dumped.value);
    let Some(Stored::SortedSet(places)) = places else { return false };
    let waited = |field: &str| places.iter().any(|(_, who)| who == field);
    let mut others = fields.to_vec();
    others.retain(|(field, count)| !(waited(field) && count == "0"));
    let is_free = matches!(others.as_slice(), [(mode, _)] if mode == "mode");
    let mut all = known.iter().filter_map(|dump| hash(dump, key));
    others.len() < fields.len() && (is_free || all.any(|(known, _)| known == others))
}

/// A sorted set has a time to live unless it had none before or is to have none, and no places but those that were
/// known, and the one that the caller is told about.
fn check_places(
    suite: &Suite,
    key: &str,
    now: &[Dumped],
    known: &[&[Dumped]],
    result: &Result<Value, String>,
    what: &str,
) {
    let found = |dump: &[Dumped]| {
        dump.iter().find(|dumped| dumped.key == key).and_then(|dumped| match &dumped.value {
            Stored::SortedSet(places) => Some((places.clone(), dumped.pttl)),
            _ => None,
        })
    };
    let set_without_end = |dump: &[Dumped]| {
        let is_it = |dumped: &&Dumped| dumped.key == key && matches!(dumped.value, Stored::Set(_));
        dump.iter().find(is_it).is_some_and(|dumped| dumped.pttl.is_none())
    };
    let meant = set_without_end(known[0]) || !set_without_end(now);
    assert!(meant, "a set without a time to live: {what}");
    let Some((places, pttl)) = found(now) else { return };
    let had_none = found(known[0]).is_some_and(|(_, pttl)| pttl.is_none());
    assert!(pttl.is_some() || had_none || suite.endless, "a line without a time to live: {what}");
    for place in places.iter() {
        let mut all = known.iter().filter_map(|dump| found(dump));
        let meant = all.any(|(places, _)| places.iter().any(|other| other == place));
        let is_told = ticket_of(result).is_some_and(|ticket| ticket == place.0);
        assert!(meant || is_told, "the place {place:?} was not asked for: {what}");
    }
}

/// The ticket of somebody who is told to wait.
fn ticket_of(result: &Result<Value, String>) -> Option<f64> {
    let Ok(Value::List(reply)) = result else { return None };
    match reply.as_slice() {
        [Value::Int(0), _, _, Value::Text(_), Value::Int(ticket), ..] => Some(*ticket as f64),
        _ => None,
    }
}

type Hash<'a> = (&'a Fields, Option<i64>);

fn hash<'a>(dump: &'a [Dumped], key: &str) -> Option<Hash<'a>> {
    dump.iter().find(|dumped| dumped.key == key).and_then(|dumped| match &dumped.value {
        Stored::Hash(fields) => Some((fields.as_slice(), dumped.pttl)),
        _ => None,
    })
}
