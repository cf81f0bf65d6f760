//! What only the embedded Lua can be made to do.

use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Stored;
use crate::kinds::fair_queue::script_tests::SUITE;
use crate::kinds::fair_queue::script_tests::tables;
use crate::kinds::script_tests::Edge;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::faults::sets;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::modelled::Modelled;
use crate::kinds::script_tests::observe;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::text::Times;
use crate::kinds::script_tests::text::parse_call;
use crate::kinds::script_tests::text::parse_keys;

pub(super) const CHECKS: &[Edge] = &[
    ("publishing is refused", publishing_is_refused),
    ("no place is left without a deadline", no_place_is_left_without_a_deadline),
    ("what is refused is said", what_is_refused_is_said),
    ("what is refused later costs no grant", what_is_refused_later_costs_no_grant),
    ("everything is as the model says", everything_is_as_the_model_says),
];

const ERROR: &str = "NOPERM no";

/// The lock is free all the same.
fn publishing_is_refused(memory: &mut Memory) {
    let calls = [
        "release f 0 ch PUBLISH",
        "undo f 0 ch PUBLISH ~",
        "release_at f 1 9M ch PUBLISH",
        "force_release f soon ch PUBLISH client",
    ];
    let waiter = "deadlines=(j:@300s) queue=[j]";
    for call in calls {
        set_up(memory, &format!("{waiter} lock={{f:1}}@5"));
        memory.keyspace.refuse_commands(&["PUBLISH"], ERROR);
        let seen = observe(memory, &parse_call(&SUITE, call), &mut Times::default());
        memory.keyspace.refuse_commands(&[], "");
        assert_eq!((&*seen.reply, &*seen.keys), ("1 T -1", waiter), "{call}");
    }
}

/// Redisson's scripts stop at a place without one, so that nobody would get the lock. Whatever Redis
/// refuses, none is left that was not there before.
fn no_place_is_left_without_a_deadline(memory: &mut Memory) {
    for &(state, text, ..) in tables::ALL.iter().flat_map(|(_, rows)| *rows) {
        let call = parse_call(&SUITE, text);
        if memory.instead.is_some_and(|instead| instead.name != call.script.name) {
            continue;
        }
        for refused in sets(call.script.source) {
            set_up(memory, state);
            let before = bare_places(&memory.dump());
            memory.keyspace.refuse_commands(&refused, ERROR);
            drop(memory.run(&call));
            memory.keyspace.refuse_commands(&[], "");
            let after = bare_places(&memory.dump());
            let new = after.iter().find(|place| !before.contains(place));
            assert!(new.is_none(), "{text} in [{state}] without {refused:?}: {new:?}");
        }
    }
}

fn bare_places(dump: &[Dumped]) -> Vec<String> {
    let value = |key: &str| dump.iter().find(|dumped| dumped.key == key).map(|it| &it.value);
    let (Some(Stored::List(places)), deadlines) = (value("queue"), value("deadlines")) else {
        return Vec::new();
    };
    let has_one = |place: &&String| match deadlines {
        Some(Stored::SortedSet(set)) => set.iter().any(|(_, member)| member == *place),
        _ => false,
    };
    places.iter().filter(|place| !has_one(place)).cloned().collect()
}

/// The lock was granted by then, or will be.
fn what_is_refused_later_costs_no_grant(memory: &mut Memory) {
    let own = "deadlines=(p:place:@15s,j:@315s) queue=[p:place,j]";
    let passed = "deadlines=(j:@-5s) queue=[j]";
    let repeat = "lock={f:1}@5 queue=[p:place]";
    let states = ["LREM", "ZREM", "ZSCORE", "ZINCRBY"].map(|command| (own, command));
    for (state, command) in states.into_iter().chain([(passed, "ZREM"), (repeat, "LRANGE")]) {
        set_up(memory, state);
        memory.keyspace.refuse_commands(&[command], ERROR);
        let call = parse_call(&SUITE, "acquire f 1 9M soon wait p:place ch PUBLISH");
        let seen = observe(memory, &call, &mut Times::default());
        memory.keyspace.refuse_commands(&[], "");
        assert_eq!(seen.reply, "1 T T", "{command}");
    }
}

/// To the millisecond: in the tables, deadlines are in steps of five seconds.
fn everything_is_as_the_model_says(memory: &mut Memory) {
    // Its deadline passes just now.
    let ends_now = format!("queue=[j] deadlines=(j:{})", memory.next_time() / 1_000);
    set_up(memory, &ends_now);
    let call = parse_call(&SUITE, "acquire f 1 9M soon try p:place ch PUBLISH");
    assert_eq!(observe(memory, &call, &mut Times::default()).reply, "1 T T");
    for &(state, text, ..) in tables::ALL.iter().flat_map(|(_, rows)| *rows) {
        let call = parse_call(&SUITE, text);
        memory.flush();
        // Late in a second.
        memory.now_us = memory.now_us.div_euclid(1_000_000) * 1_000_000 + 1_990_500;
        let mut model = Modelled::at(&SUITE, memory.now_us);
        for (key, value, pttl) in parse_keys(state, memory.now_us) {
            model.plant(&key, &value, pttl);
            memory.plant(&key, &value, pttl);
        }
        let (expected, found) = (model.step(memory.next_time(), &call), memory.step(&call));
        let words = format!("{text} in [{state}]");
        assert_eq!(expected.dump, found.dump, "{words}");
        assert_eq!(expected.result.ok(), found.result.ok(), "{words}");
    }
}

/// A caller that waits is told why it has no place, and nobody overtakes.
fn what_is_refused_is_said(memory: &mut Memory) {
    let held = "lock={g:1}@5";
    let first = "deadlines=(j:@300s) queue=[j]";
    let passed = "deadlines=(j:@-5s) queue=[j]";
    for (state, command) in [
        (held, "LRANGE"),
        (held, "ZADD"),
        (held, "RPUSH"),
        (held, "TYPE"),
        (first, "LRANGE"),
        (first, "ZSCORE"),
        (passed, "LPOP"),
    ] {
        set_up(memory, state);
        memory.keyspace.refuse_commands(&[command], ERROR);
        let call = parse_call(&SUITE, "acquire f 1 9M soon wait p:place ch PUBLISH");
        let seen = observe(memory, &call, &mut Times::default());
        memory.keyspace.refuse_commands(&[], "");
        assert!(seen.reply.starts_with("! NOPERM"), "{command}: {seen:?}");
        assert_eq!(seen.keys, state, "{command}");
    }
}
