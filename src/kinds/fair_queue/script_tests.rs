//! The scripts of `lua/fair_queue/`: what they add to the tests that every kind has. What they do as
//! the scripts of a reentrant lock do is in the tables of that one.

mod edges;
mod model;
mod random;
mod tables;

use crate::backend::words::Words;
use crate::base::kind::Kind;
use crate::kinds::fair_queue::all;
use crate::kinds::script_tests::Fields;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::random::Calls;
use crate::kinds::script_tests::script_tests;
use crate::kinds::script_tests::tables::check_table;

static SUITE: Suite = Suite {
    kind: Kind::FairQueue,
    scripts: all,
    listened: &[
        ("ch:p:place", false),
        ("ch:p:place", true),
        ("ch:q:place", false),
        ("ch:q:place", true),
        ("ch:j", false),
        ("ch:j", true),
        ("client", false),
    ],
    keys,
    is_end: |key, _| key == "deadlines",
    ends_are_near: true,
    orders_ends: true,
    endless: true,
    has_holds: false,
    may_be: |fields: &Fields| fields.len() == 1,
    model: model::run,
    calls: Calls {
        call: random::call,
        plants: random::PLANTS,
        removed: &["lock", "fence", "queue", "deadlines"],
    },
    tables: tables::ALL,
    checks: CHECKS,
    edges: edges::CHECKS,
    needs_redis_7: &[("acquire", "sharded pub/sub")],
    mistakes: random::MISTAKES,
    equivalent: "proof/lua-equivalent-fair-queue.txt",
    is_own,
    is_reported: true,
    ..Suite::EMPTY
};

/// Each file that several scripts include is looked at in one of them; those of a reentrant lock are
/// in its own tests.
fn is_own(script: &str, line: &str) -> bool {
    let files: &[&str] = match script.rsplit('/').next() {
        Some("acquire") => &[lua!("fair_queue/acquire"), lua!("fair_queue/body/queue")],
        Some("release") => &[lua!("fair_queue/release"), lua!("fair_queue/body/give_up")],
        Some("undo") => &[lua!("fair_queue/undo")],
        Some("force_release") => &[lua!("fair_queue/force_release")],
        _ => &[
            lua!("fair_queue/release_at"),
            lua!("fair_queue/body/pass_on"),
            lua!("fair_queue/body/tell_first"),
        ],
    };
    files.iter().any(|file| file.lines().any(|own| own.trim() == line))
}

/// The keys of a call that is written as text.
fn keys(script: &str, _args: &Words, _line: bool) -> Words {
    let keys: &[&str] = match script {
        "acquire" => &["lock", "fence", "queue", "deadlines"],
        _ => &["lock", "queue", "deadlines"],
    };
    keys.iter().copied().collect()
}

script_tests! {
    SUITE;
    acquire: |server: &mut dyn Server| check_table(server, tables::ACQUIRE);
    release: |server: &mut dyn Server| check_table(server, tables::RELEASE);
    undo: |server: &mut dyn Server| check_table(server, tables::UNDO);
    release_at: |server: &mut dyn Server| check_table(server, tables::RELEASE_AT);
    force_release: |server: &mut dyn Server| check_table(server, tables::FORCE_RELEASE);
    bad_arguments_are_named: |server: &mut dyn Server| check_table(server, tables::BAD);
}

#[test]
fn while_its_slot_moves_a_script_does_all_of_it_or_nothing() {
    crate::kinds::script_tests::moving::check(&SUITE, &[]);
}
