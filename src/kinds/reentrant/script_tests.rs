//! The scripts of `lua/reentrant/`: what they add to the tests that every kind has.

mod edges;
pub(in crate::kinds) mod line;
pub(in crate::kinds) mod model;
pub(in crate::kinds) mod random;
mod several;
pub(in crate::kinds) mod tables;

use crate::backend::ScriptCall;
use crate::base::kind::Kind;
use crate::kinds::command::PERMISSIONS;
use crate::kinds::reentrant::all;
use crate::kinds::script_tests::Fields;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::random::Calls;
use crate::kinds::script_tests::script_tests;
use crate::kinds::script_tests::tables::check_table;
use crate::kinds::script_tests::text;

static SUITE: Suite = Suite {
    kind: Kind::Reentrant,
    scripts: all,
    others: &[&PERMISSIONS],
    listened: &[
        ("ch", false),
        ("ch", true),
        ("client", false),
        ("redisson_lock__channel__{orders:42}", false),
        ("redisson_lock__channel__{orders:42}", true),
        ("redisson_lock__channel:{orders:42}", false),
        ("redisson_lock__channel:{orders:42}", true),
        ("redisson_lock__channel:{s}one", false),
        ("redisson_lock__channel:{s}one", true),
        ("redisson_lock__channel:{s}two", false),
        ("redisson_lock__client:{11111111-0000-4000-8000-000000000001}", false),
        ("redisson_lock__client:{22222222-0000-4000-8000-000000000002}", false),
    ],
    may_be: |fields: &Fields| fields.len() == 1,
    has_line: true,
    model: model::run,
    calls: Calls {
        call: random::call,
        plants: random::PLANTS,
        removed: &["lock", "lock", "fence", "line"],
    },
    garbage: &[
        "text@5",
        "text",
        "[x,y]@5",
        "{foreign:1}@5",
        "{foreign:1}",
        "{foreign:1,other:2}@5",
        "{mode:write,u:1}@5",
        "{mode:read}",
    ],
    tables: tables::ALL,
    checks: CHECKS,
    edges: edges::CHECKS,
    needs_redis_7: &[
        ("permissions_are_told", "redis.acl_check_cmd"),
        ("release", "sharded pub/sub"),
        ("release_many", "sharded pub/sub"),
        ("release_at", "sharded pub/sub"),
        ("hand_off", "sharded pub/sub"),
        ("force_release", "sharded pub/sub"),
    ],
    mistakes: random::MISTAKES,
    equivalent: "proof/lua-equivalent.txt",
    is_reported: true,
    ..Suite::EMPTY
};

fn parse_call(text: &str) -> ScriptCall {
    text::parse_call(&SUITE, text)
}

script_tests! {
    SUITE;
    acquire: |server: &mut dyn Server| check_table(server, &[tables::ACQUIRE, line::ACQUIRE].concat());
    release: |server: &mut dyn Server| check_table(server, &[tables::RELEASE, line::RELEASE].concat());
    release_many: |server: &mut dyn Server| check_table(server, &[tables::RELEASE_MANY, line::RELEASE_MANY].concat());
    release_at: |server: &mut dyn Server| check_table(server, &[tables::RELEASE_AT, line::RELEASE_AT].concat());
    renew: |server: &mut dyn Server| check_table(server, &[tables::RENEW, line::RENEW].concat());
    hand_off: |server: &mut dyn Server| check_table(server, &[tables::HAND_OFF, line::HAND_OFF].concat());
    inspect: |server: &mut dyn Server| check_table(server, &[tables::INSPECT, line::INSPECT].concat());
    raise: |server: &mut dyn Server| check_table(server, tables::RAISE);
    force_release: |server: &mut dyn Server| check_table(server, &[tables::FORCE_RELEASE, line::FORCE_RELEASE].concat());
    a_foreign_value_stays_untouched: tables::check_foreign;
    late_calls_change_nothing: tables::check_late;
    bad_arguments_are_named: tables::check_bad_arguments;
    tokens_grow_through_lost_data: tables::check_tokens;
    a_lock_is_freed_and_published_once: tables::check_freed_once;
    out_of_memory_leaves_nothing_half_done: tables::check_out_of_memory;
    permissions_are_told: tables::check_permissions;
}
