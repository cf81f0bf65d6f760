//! The scripts of `lua/read_write/`: what they add to the tests that every kind has.

mod edges;
mod model;
mod random;
mod tables;

use crate::backend::ScriptCall;
use crate::backend::words::Words;
use crate::kinds::read_write::all;
use crate::kinds::script_tests::Fields;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::last_word;
use crate::kinds::script_tests::random::Calls;
use crate::kinds::script_tests::script_tests;
use crate::kinds::script_tests::tables::check_table;
use crate::kinds::script_tests::text;

static SUITE: Suite = Suite {
    scripts: all,
    keys,
    may_be: |fields: &Fields| fields.iter().any(|(field, _)| field == "mode"),
    // Readers are named behind the other arguments.
    removes_dead: |call| matches!(last_word(call.script), "acquire" | "upgrade"),
    has_holds: false,
    model: model::run,
    calls: Calls {
        call: random::call,
        plants: random::PLANTS,
        removed: &["lock", "lock", "fence", "line", "t:a:rwlock_timeout:1", "t:b:rwlock_timeout:1"],
    },
    tables: tables::ALL,
    checks: CHECKS,
    edges: edges::CHECKS,
    needs_redis_7: &[
        ("release", "sharded pub/sub"),
        ("force_release", "sharded pub/sub"),
        ("release_at", "sharded pub/sub"),
        ("a_lock_ends_in_one_way", "sharded pub/sub"),
    ],
    mistakes: random::MISTAKES,
    equivalent: "proof/lua-equivalent-read-write.txt",
    ..Suite::EMPTY
};

/// With `t` for the base of timeout keys.
fn keys(script: &str, args: &Words, line: bool) -> Words {
    let timeout = |field: &str| format!("t:{field}:rwlock_timeout:1");
    let field = args.first().unwrap_or_default();
    let keys: Vec<String> = match script {
        "acquire" => {
            let own = ["lock".to_owned(), timeout(field), "fence".to_owned()];
            let line = line.then(|| "line".to_owned());
            own.into_iter().chain(line).chain(args.iter().skip(12).map(timeout)).collect()
        }
        "renew" => {
            let fields: Vec<&str> = args.iter().skip(1).step_by(2).collect();
            let lock = |at: usize| match fields.len() {
                1 => "lock".to_owned(),
                _ => format!("lock{}", at + 1),
            };
            let pair = |(at, field): (usize, &&str)| [lock(at), timeout(field)];
            fields.iter().enumerate().flat_map(pair).collect()
        }
        "upgrade" => {
            let told = args.iter().skip(5).map(timeout);
            ["lock".to_owned(), timeout(field), "fence".to_owned()]
                .into_iter()
                .chain(told)
                .collect()
        }
        "inspect" => vec!["lock".to_owned()],
        "release" | "release_at" | "force_release" | "downgrade" if !line => {
            vec!["lock".to_owned(), timeout(field)]
        }
        _ => vec!["lock".to_owned(), timeout(field), "line".to_owned()],
    };
    keys.into_iter().collect()
}

fn parse_call(text: &str) -> ScriptCall {
    text::parse_call(&SUITE, text)
}

script_tests! {
    SUITE;
    acquire: |server: &mut dyn Server| check_table(server, tables::acquire::ROWS);
    pick_up: |server: &mut dyn Server| check_table(server, tables::pick_up::ROWS);
    release: |server: &mut dyn Server| check_table(server, tables::release::ROWS);
    release_at: |server: &mut dyn Server| check_table(server, tables::release_at::ROWS);
    inspect: |server: &mut dyn Server| check_table(server, tables::inspect::ROWS);
    force_release: |server: &mut dyn Server| check_table(server, tables::force_release::ROWS);
    downgrade: |server: &mut dyn Server| check_table(server, tables::downgrade::ROWS);
    renew: |server: &mut dyn Server| check_table(server, tables::renew::ROWS);
    upgrade: |server: &mut dyn Server| check_table(server, tables::upgrade::ROWS);
    a_lock_ends_in_one_way: tables::check_ways_to_end;
    bad_arguments_are_named: tables::check_bad_arguments;
    out_of_memory_leaves_nothing_half_done: tables::check_out_of_memory;
}

#[test]
fn while_its_slot_moves_a_script_does_all_of_it_or_nothing() {
    let keys = ["lock", "lock"].into();
    let renewal = ScriptCall { keys, ..parse_call("renew soon a 9M") };
    let writer = "lock={mode:write,a:write:1}@4";
    crate::kinds::script_tests::moving::check(&SUITE, &[(writer, renewal)]);
}
