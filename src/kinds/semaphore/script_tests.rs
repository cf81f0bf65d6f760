//! The scripts of `lua/semaphore/`: what they add to the tests that every kind has.

pub(in crate::kinds) mod edges;
pub(in crate::kinds) mod model;
pub(in crate::kinds) mod random;
mod tables;

use crate::backend::words::Words;
use crate::base::kind::Kind;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::random::Calls;
use crate::kinds::script_tests::script_tests;
use crate::kinds::script_tests::tables::check_table;
use crate::kinds::semaphore::all;

static SUITE: Suite = Suite {
    kind: Kind::Semaphore,
    scripts: all,
    keys,
    is_end: |key, _| key == "heard" || key.starts_with("permits"),
    orders_ends: true,
    has_line: true,
    has_holds: false,
    model: model::run,
    calls: Calls {
        call: random::call,
        plants: random::PLANTS,
        removed: &["lock", "fence", "permits", "line", "heard", "operation"],
    },
    tables: tables::ALL,
    checks: CHECKS,
    edges: edges::CHECKS,
    needs_redis_7: &[
        ("acquire", "sharded pub/sub"),
        ("release", "sharded pub/sub"),
        ("release_at", "sharded pub/sub"),
        ("force_release", "sharded pub/sub"),
        ("set_permits", "sharded pub/sub"),
    ],
    mistakes: random::MISTAKES,
    equivalent: "proof/lua-equivalent-semaphore.txt",
    is_reported: true,
    ..Suite::EMPTY
};

/// The keys of a call that is written as text.
fn keys(script: &str, args: &Words, line: bool) -> Words {
    let line = if line { &["line"][..] } else { &[] };
    let keys: &[&str] = match script {
        "acquire" => &["lock", "fence", "permits", "heard"],
        "release" => &["lock", "permits", "heard"],
        "release_at" => &["permits"],
        "set_permits" => &["lock", "operation"],
        "renew" if args.len() > 3 => {
            let holds = 1..=args.len() / 2;
            let keys = holds.flat_map(|hold| [format!("lock{hold}"), format!("permits{hold}")]);
            return keys.collect();
        }
        _ => &["lock", "permits"],
    };
    keys.iter().chain(line).copied().collect()
}

script_tests! {
    SUITE;
    acquire: |server: &mut dyn Server| check_table(server, tables::ACQUIRE);
    release: |server: &mut dyn Server| check_table(server, tables::RELEASE);
    release_at: |server: &mut dyn Server| check_table(server, tables::RELEASE_AT);
    renew: |server: &mut dyn Server| check_table(server, tables::RENEW);
    force_release: |server: &mut dyn Server| check_table(server, tables::FORCE_RELEASE);
    set_permits: |server: &mut dyn Server| check_table(server, tables::SET_PERMITS);
    inspect: |server: &mut dyn Server| check_table(server, tables::INSPECT);
    bad_arguments_are_named: |server: &mut dyn Server| check_table(server, tables::BAD);
    out_of_memory_leaves_nothing_half_done: edges::check_out_of_memory;
}

#[test]
fn while_its_slot_moves_a_script_does_all_of_it_or_nothing() {
    crate::kinds::script_tests::moving::check(&SUITE, &[]);
}
