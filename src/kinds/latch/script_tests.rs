//! The scripts of `lua/latch/`.

mod model;

use std::sync::LazyLock;

use crate::backend::Script;
use crate::backend::words::Words;
use crate::base::kind::Kind;
use crate::base::random::Random;
use crate::kinds::latch::COUNT_DOWN;
use crate::kinds::latch::DELETE;
use crate::kinds::latch::LOOK;
use crate::kinds::latch::TRY_SET_COUNT;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::observe;
use crate::kinds::script_tests::random::Calls;
use crate::kinds::script_tests::script_tests;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::tables::Row;
use crate::kinds::script_tests::tables::check_table;
use crate::kinds::script_tests::text::Times;
use crate::kinds::script_tests::text::parse_call;

fn scripts() -> &'static [&'static Script] {
    static ALL: LazyLock<[&Script; 4]> =
        LazyLock::new(|| [&COUNT_DOWN, &TRY_SET_COUNT, &DELETE, &LOOK]);
    &*ALL
}

static SUITE: Suite = Suite {
    kind: Kind::CountDownLatch,
    scripts,
    keys,
    has_holds: false,
    model: model::run,
    calls: Calls {
        call,
        plants: &[
            "lock={kind:latch,count:1}",
            "lock={kind:latch,count:3}@5",
            "lock={kind:latch,count:0}",
            "lock={kind:latch,count:word}",
            "lock={kind:semaphore,permits:3}",
            "lock={mode:read,a:1}@5",
            "lock={a:1}@5",
            HELD,
            "lock=3",
            "lock=1@5",
            "lock=-4",
            "lock=0.5",
            "lock=word",
            "lock=[x]",
            "op=2@5",
            "op=-1@5",
            "op=[x]",
        ],
        removed: &["lock", "op"],
    },
    tables: &[
        ("count_down", COUNT_DOWNS),
        ("try_set_count", SETTINGS),
        ("delete", DELETIONS),
        ("look", LOOKS),
    ],
    checks: CHECKS,
    edges: &[
        ("what_is_refused_in_the_middle_was_not_done", check_refusals),
        ("the_last_moment_counts", check_last_moment),
        ("an_outcome_is_kept_for_its_time", check_memory),
        ("a_latch_may_have_the_shortest_life", check_short_life),
    ],
    needs_redis_7: &[("count_down", "sharded pub/sub"), ("delete", "sharded pub/sub")],
    mistakes: &[
        ("count_down", "if before then return say(before) end", ""),
        ("count_down", "if now > not_after then", "if false then"),
        ("count_down", "if left == 0 then redis.pcall(verb", "if left == 1 then redis.pcall(verb"),
        ("count_down", "local left = -1", "local left = 0"),
        ("try_set_count", "if found then done = 0 end", ""),
        ("try_set_count", "if now > not_after then", "if false then"),
        ("try_set_count", "if before then return say(before) end", ""),
        ("delete", "if before then return say(before) end", ""),
        ("look", "return {1, now, count,", "return {1, now, 1,"),
    ],
    equivalent: "proof/lua-equivalent-latch.txt",
    ..Suite::EMPTY
};

fn keys(script: &str, _: &Words, _: bool) -> Words {
    if script == "look" { ["lock"].into() } else { ["lock", "op"].into() }
}

fn call(random: &mut Random) -> String {
    let format = random.pick(&["hash", "hash", "hash", "string"]);
    let common = format!(
        "{} {} {format} {} {}",
        random.pick(&["soon", "soon", "soon", "late"]),
        random.pick(&["1M", "3M"]),
        random.pick(&["ch", "ch", "nobody"]),
        random.pick(&["PUBLISH", "SPUBLISH"])
    );
    match random.below(8) {
        0..=3 => format!("count_down {common}"),
        4 | 5 => {
            let (count, life) = (random.pick(&["1", "2", "9"]), random.pick(&["0", "3M"]));
            format!("try_set_count {common} {count} {life}")
        }
        6 => format!("delete {common}"),
        _ => format!("look {format}"),
    }
}

const COUNT_DOWNS: &[Row] = &[
    (
        HELD_AND_MORE,
        "count_down soon 1M string ch PUBLISH",
        "-4 T 2",
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1,a:1}@5 op=-12@86",
        "",
    ),
    (
        HELD,
        "count_down soon 1M hash ch PUBLISH",
        "-4 T 6",
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5 op=-16@86",
        "",
    ),
    (
        HELD,
        "count_down soon 1M string ch PUBLISH",
        "-4 T 6",
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5 op=-16@86",
        "",
    ),
    (
        "lock={kind:latch,count:3}",
        "count_down soon 1M hash ch PUBLISH",
        "1 T 2",
        "lock={kind:latch,count:2} op=2@86",
        "",
    ),
    (
        "lock={kind:latch,count:2}@5",
        "count_down soon 1M hash ch PUBLISH",
        "1 T 1",
        "lock={kind:latch,count:1}@5 op=1@86",
        "",
    ),
    ("lock={kind:latch,count:1}", "count_down soon 1M hash ch PUBLISH", "1 T 0", "op=0@86", "ch=0"),
    (
        "lock={kind:latch,count:1}",
        "count_down soon 1M hash ch SPUBLISH",
        "1 T 0",
        "op=0@86",
        "ch=0 sharded",
    ),
    // What somebody has set to nothing or less is open.
    ("lock={kind:latch,count:0}", "count_down soon 1M hash ch PUBLISH", "1 T 0", "op=0@86", "ch=0"),
    (
        "lock={kind:latch,count:-5}",
        "count_down soon 1M hash nobody PUBLISH",
        "1 T 0",
        "op=0@86",
        "",
    ),
    ("lock=3", "count_down soon 1M string ch PUBLISH", "1 T 2", "lock=2 op=2@86", ""),
    ("lock=3@5", "count_down soon 1M string ch PUBLISH", "1 T 2", "lock=2@5 op=2@86", ""),
    ("lock=1", "count_down soon 1M string ch PUBLISH", "1 T 0", "op=0@86", "ch=0"),
    // No latch.
    ("", "count_down soon 1M hash ch PUBLISH", "0 T", "op=-1@86", ""),
    ("", "count_down soon 1M string ch PUBLISH", "0 T", "op=-1@86", ""),
    // A copy.
    ("lock={kind:latch,count:3} op=7@5", "count_down soon 1M hash ch PUBLISH", "1 T 7", "=", ""),
    ("lock={kind:latch,count:1} op=0@5", "count_down late 1M hash ch PUBLISH", "1 T 0", "=", ""),
    ("lock={kind:latch,count:1} op=-1@5", "count_down late 1M hash ch PUBLISH", "0 T", "=", ""),
    ("lock={kind:latch,count:1} op=-12@5", "count_down late 1M hash ch PUBLISH", "-4 T 2", "=", ""),
    ("lock={kind:latch,count:1} op=-2@5", "count_down late 1M hash ch PUBLISH", "-4 T -8", "=", ""),
    // Late.
    ("lock={kind:latch,count:1}", "count_down late 1M hash ch PUBLISH", "-1 T", "=", ""),
    // No latch of this profile, or none at all.
    ("lock=3", "count_down soon 1M hash ch PUBLISH", "-4 T 1", "lock=3 op=-11@86", ""),
    (
        "lock={kind:latch,count:1}",
        "count_down soon 1M string ch PUBLISH",
        "-4 T 7",
        "lock={kind:latch,count:1} op=-17@86",
        "",
    ),
    ("lock=[x]", "count_down soon 1M hash ch PUBLISH", "-4 T 1", "lock=[x] op=-11@86", ""),
    ("lock={a:1}@5", "count_down soon 1M hash ch PUBLISH", "-4 T 2", "lock={a:1}@5 op=-12@86", ""),
    (
        "lock={mode:read,a:1}@5",
        "count_down soon 1M hash ch PUBLISH",
        "-4 T 3",
        "lock={mode:read,a:1}@5 op=-13@86",
        "",
    ),
    (
        "lock={kind:semaphore,permits:3}",
        "count_down soon 1M hash ch PUBLISH",
        "-4 T 4",
        "lock={kind:semaphore,permits:3} op=-14@86",
        "",
    ),
    (
        "lock={kind:latch}",
        "count_down soon 1M hash ch PUBLISH",
        "-4 T 5",
        "lock={kind:latch} op=-15@86",
        "",
    ),
    (
        "lock={kind:latch,count:0.5}",
        "count_down soon 1M hash ch PUBLISH",
        "-4 T 5",
        "lock={kind:latch,count:0.5} op=-15@86",
        "",
    ),
    ("lock=word", "count_down soon 1M string ch PUBLISH", "-4 T 5", "lock=word op=-15@86", ""),
    // Arguments.
    ("lock={kind:latch,count:3}", "count_down x 1M hash ch PUBLISH", "-9 T 1", "=", ""),
    ("lock={kind:latch,count:3}", "count_down 0.5 1M hash ch PUBLISH", "-9 T 1", "=", ""),
    ("lock={kind:latch,count:3}", "count_down soon x hash ch PUBLISH", "-9 T 2", "=", ""),
    ("lock={kind:latch,count:3}", "count_down soon 0 hash ch PUBLISH", "-9 T 2", "=", ""),
    ("lock={kind:latch,count:3}", "count_down soon 1.5 hash ch PUBLISH", "-9 T 2", "=", ""),
    ("lock={kind:latch,count:3}", "count_down soon 1M list ch PUBLISH", "-9 T 3", "=", ""),
    ("lock={kind:latch,count:3}", "count_down soon 1M hash ~ PUBLISH", "-9 T 4", "=", ""),
    ("lock={kind:latch,count:3}", "count_down soon 1M hash", "-9 T 4", "=", ""),
    ("lock={kind:latch,count:3}", "count_down soon 1M hash ch PRINT", "-9 T 5", "=", ""),
    ("lock={kind:latch,count:3}", "count_down", "-9 T 1", "=", ""),
    ("lock={kind:latch,count:3}", "count_down soon", "-9 T 2", "=", ""),
    (
        "lock={kind:latch,count:3}",
        "count_down soon 1 hash ch PUBLISH",
        "1 T 2",
        "lock={kind:latch,count:2} op=2@86",
        "",
    ),
];

const SETTINGS: &[Row] = &[
    (
        HELD_AND_MORE,
        "try_set_count soon 1M string ch PUBLISH 3 0",
        "-4 T 2",
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1,a:1}@5 op=-12@86",
        "",
    ),
    (
        HELD,
        "try_set_count soon 1M hash ch PUBLISH 3 0",
        "-4 T 6",
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5 op=-16@86",
        "",
    ),
    (
        HELD,
        "try_set_count soon 1M string ch PUBLISH 3 0",
        "-4 T 6",
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5 op=-16@86",
        "",
    ),
    (
        "",
        "try_set_count soon 1M hash ch PUBLISH 3 0",
        "1 T",
        "lock={kind:latch,count:3} op=1@86",
        "ch=1",
    ),
    (
        "",
        "try_set_count soon 1M hash ch SPUBLISH 4294967295 5M",
        "1 T",
        "lock={kind:latch,count:4294967295}@5 op=1@86",
        "ch=1 sharded",
    ),
    ("", "try_set_count soon 1M string ch PUBLISH 3 0", "1 T", "lock=3 op=1@86", "ch=1"),
    ("", "try_set_count soon 1M string nobody PUBLISH 1 5M", "1 T", "lock=1@5 op=1@86", ""),
    // There is a count.
    (
        "lock={kind:latch,count:2}",
        "try_set_count soon 1M hash ch PUBLISH 3 5M",
        "0 T",
        "lock={kind:latch,count:2} op=0@86",
        "",
    ),
    ("lock=2@5", "try_set_count soon 1M string ch PUBLISH 3 0", "0 T", "lock=2@5 op=0@86", ""),
    // A copy.
    ("op=1@5", "try_set_count soon 1M hash ch PUBLISH 3 0", "1 T", "=", ""),
    ("op=0@5", "try_set_count late 1M hash ch PUBLISH 3 0", "0 T", "=", ""),
    ("op=-14@5", "try_set_count soon 1M hash ch PUBLISH 3 0", "-4 T 4", "=", ""),
    // Late.
    ("", "try_set_count late 1M hash ch PUBLISH 3 0", "-1 T", "=", ""),
    // No latch.
    ("lock=3", "try_set_count soon 1M hash ch PUBLISH 3 0", "-4 T 1", "lock=3 op=-11@86", ""),
    (
        "lock={kind:latch,count:1}",
        "try_set_count soon 1M string ch PUBLISH 3 0",
        "-4 T 7",
        "lock={kind:latch,count:1} op=-17@86",
        "",
    ),
    (
        "lock={a:1}@5",
        "try_set_count soon 1M hash ch PUBLISH 3 0",
        "-4 T 2",
        "lock={a:1}@5 op=-12@86",
        "",
    ),
    (
        "lock={count:3}@5",
        "try_set_count soon 1M hash ch PUBLISH 3 0",
        "-4 T 2",
        "lock={count:3}@5 op=-12@86",
        "",
    ),
    (
        "lock={mode:read,a:1}@5",
        "try_set_count soon 1M hash ch PUBLISH 3 0",
        "-4 T 3",
        "lock={mode:read,a:1}@5 op=-13@86",
        "",
    ),
    (
        "lock={kind:semaphore,permits:3}",
        "try_set_count soon 1M hash ch PUBLISH 3 0",
        "-4 T 4",
        "lock={kind:semaphore,permits:3} op=-14@86",
        "",
    ),
    (
        "lock={kind:latch}",
        "try_set_count soon 1M hash ch PUBLISH 3 0",
        "-4 T 5",
        "lock={kind:latch} op=-15@86",
        "",
    ),
    (
        "lock={kind:latch,count:0.5}",
        "try_set_count soon 1M hash ch PUBLISH 3 0",
        "-4 T 5",
        "lock={kind:latch,count:0.5} op=-15@86",
        "",
    ),
    (
        "lock=word",
        "try_set_count soon 1M string ch PUBLISH 3 0",
        "-4 T 5",
        "lock=word op=-15@86",
        "",
    ),
    // Arguments.
    ("", "try_set_count x 1M hash ch PUBLISH 3 0", "-9 T 1", "=", ""),
    ("", "try_set_count 0.5 1M hash ch PUBLISH 3 0", "-9 T 1", "=", ""),
    ("", "try_set_count soon x hash ch PUBLISH 3 0", "-9 T 2", "=", ""),
    ("", "try_set_count soon 0 hash ch PUBLISH 3 0", "-9 T 2", "=", ""),
    ("", "try_set_count soon 1.5 hash ch PUBLISH 3 0", "-9 T 2", "=", ""),
    ("", "try_set_count soon 1M list ch PUBLISH 3 0", "-9 T 3", "=", ""),
    ("", "try_set_count soon 1M hash ~ PUBLISH 3 0", "-9 T 4", "=", ""),
    ("", "try_set_count soon 1M hash", "-9 T 4", "=", ""),
    ("", "try_set_count soon 1M hash ch PRINT 3 0", "-9 T 5", "=", ""),
    ("", "try_set_count soon 1M hash ch PUBLISH", "-9 T 6", "=", ""),
    ("", "try_set_count soon 1M hash ch PUBLISH 0 0", "-9 T 6", "=", ""),
    ("", "try_set_count soon 1M hash ch PUBLISH 1.5 0", "-9 T 6", "=", ""),
    ("", "try_set_count soon 1M hash ch PUBLISH 4294967296 0", "-9 T 6", "=", ""),
    ("", "try_set_count soon 1M hash ch PUBLISH 3", "-9 T 7", "=", ""),
    ("", "try_set_count soon 1M hash ch PUBLISH 3 -1", "-9 T 7", "=", ""),
    ("", "try_set_count soon 1M hash ch PUBLISH 3 0.5", "-9 T 7", "=", ""),
    (
        "",
        "try_set_count soon 1 hash ch PUBLISH 1 0",
        "1 T",
        "lock={kind:latch,count:1} op=1@86",
        "ch=1",
    ),
];

const DELETIONS: &[Row] = &[
    (
        HELD_AND_MORE,
        "delete soon 1M string ch PUBLISH",
        "-4 T 2",
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1,a:1}@5 op=-12@86",
        "",
    ),
    (
        HELD,
        "delete soon 1M hash ch PUBLISH",
        "-4 T 6",
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5 op=-16@86",
        "",
    ),
    (
        HELD,
        "delete soon 1M string ch PUBLISH",
        "-4 T 6",
        "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5 op=-16@86",
        "",
    ),
    ("lock={kind:latch,count:3}", "delete soon 1M hash ch PUBLISH", "1 T", "op=1@86", "ch=0"),
    ("lock=3@5", "delete soon 1M string ch SPUBLISH", "1 T", "op=1@86", "ch=0 sharded"),
    ("", "delete soon 1M hash ch PUBLISH", "0 T", "op=0@86", ""),
    ("lock={kind:latch,count:3} op=1@5", "delete soon 1M hash ch PUBLISH", "1 T", "=", ""),
    ("lock={kind:latch,count:3} op=0@5", "delete late 1M hash ch PUBLISH", "0 T", "=", ""),
    ("lock={kind:latch,count:3} op=-13@5", "delete soon 1M hash ch PUBLISH", "-4 T 3", "=", ""),
    ("lock={kind:latch,count:3}", "delete late 1M hash ch PUBLISH", "-1 T", "=", ""),
    ("lock=3", "delete soon 1M hash ch PUBLISH", "-4 T 1", "lock=3 op=-11@86", ""),
    (
        "lock={kind:latch,count:1}",
        "delete soon 1M string ch PUBLISH",
        "-4 T 7",
        "lock={kind:latch,count:1} op=-17@86",
        "",
    ),
    ("lock={a:1}@5", "delete soon 1M hash ch PUBLISH", "-4 T 2", "lock={a:1}@5 op=-12@86", ""),
    (
        "lock={count:3}@5",
        "delete soon 1M hash ch PUBLISH",
        "-4 T 2",
        "lock={count:3}@5 op=-12@86",
        "",
    ),
    (
        "lock={mode:read,a:1}@5",
        "delete soon 1M hash ch PUBLISH",
        "-4 T 3",
        "lock={mode:read,a:1}@5 op=-13@86",
        "",
    ),
    (
        "lock={kind:semaphore,permits:3}",
        "delete soon 1M hash ch PUBLISH",
        "-4 T 4",
        "lock={kind:semaphore,permits:3} op=-14@86",
        "",
    ),
    (
        "lock={kind:latch}",
        "delete soon 1M hash ch PUBLISH",
        "-4 T 5",
        "lock={kind:latch} op=-15@86",
        "",
    ),
    (
        "lock={kind:latch,count:0.5}",
        "delete soon 1M hash ch PUBLISH",
        "-4 T 5",
        "lock={kind:latch,count:0.5} op=-15@86",
        "",
    ),
    ("lock=word", "delete soon 1M string ch PUBLISH", "-4 T 5", "lock=word op=-15@86", ""),
    ("lock=3", "delete x 1M string ch PUBLISH", "-9 T 1", "=", ""),
    ("lock=3", "delete 0.5 1M string ch PUBLISH", "-9 T 1", "=", ""),
    ("lock=3", "delete soon x string ch PUBLISH", "-9 T 2", "=", ""),
    ("lock=3", "delete soon 0 string ch PUBLISH", "-9 T 2", "=", ""),
    ("lock=3", "delete soon 1.5 string ch PUBLISH", "-9 T 2", "=", ""),
    ("lock=3", "delete soon 1M list ch PUBLISH", "-9 T 3", "=", ""),
    ("lock=3", "delete soon 1M string ~ PUBLISH", "-9 T 4", "=", ""),
    ("lock=3", "delete soon 1M string", "-9 T 4", "=", ""),
    ("lock=3", "delete soon 1M string ch PRINT", "-9 T 5", "=", ""),
    ("lock=3", "delete soon 1 string ch PUBLISH", "1 T", "op=1@86", "ch=0"),
];

/// A lock that somebody has.
const HELD: &str = "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5";
const HELD_AND_MORE: &str = "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1,a:1}@5";

const LOOKS: &[Row] = &[
    ("", "look hash", "0 T", "=", ""),
    ("", "look string", "0 T", "=", ""),
    ("lock={kind:latch,count:3}", "look hash", "1 T 3 -1", "=", ""),
    ("lock={kind:latch,count:3}@5", "look hash", "1 T 3 @5", "=", ""),
    ("lock=7@3", "look string", "1 T 7 @3", "=", ""),
    ("lock=7", "look hash", "-4 T 1", "=", ""),
    ("lock={kind:latch,count:3}", "look string", "-4 T 7", "=", ""),
    ("lock={a:1}@5", "look string", "-4 T 2", "=", ""),
    ("lock={mode:write}@5", "look string", "-4 T 3", "=", ""),
    ("lock={kind:semaphore}", "look string", "-4 T 4", "=", ""),
    (HELD, "look string", "-4 T 6", "=", ""),
    (HELD, "look hash", "-4 T 6", "=", ""),
    // Only looks like a lock.
    (HELD_AND_MORE, "look hash", "-4 T 2", "=", ""),
    ("lock={3b28-1:x}@5", "look hash", "-4 T 2", "=", ""),
    ("lock=[x]", "look string", "-4 T 1", "=", ""),
    ("lock={a:1}@5", "look hash", "-4 T 2", "=", ""),
    ("lock={mode:write}@5", "look hash", "-4 T 3", "=", ""),
    ("lock={kind:semaphore}", "look hash", "-4 T 4", "=", ""),
    ("lock=x", "look string", "-4 T 5", "=", ""),
    ("", "look list", "-9 T 1", "=", ""),
    ("", "look", "-9 T 1", "=", ""),
];

/// State, call, the command that is refused, state afterwards: the same call does all of it once it
/// is allowed.
fn check_refusals(memory: &mut Memory) {
    const NO: &str = "NOPERM no";
    let (one, two) = ("lock={kind:latch,count:1}", "lock={kind:latch,count:2}");
    let down = "count_down soon 1M hash ch PUBLISH";
    let set = "try_set_count soon 1M hash ch PUBLISH 3 5M";
    for (state, call, refused, after) in [
        (one, down, "SET", one.to_owned()),
        (one, down, "DEL", format!("{one} op=@86")),
        (two, down, "HINCRBY", format!("{two} op=@86")),
        ("lock=2", "count_down soon 1M string ch PUBLISH", "DECR", "lock=2 op=@86".to_owned()),
        ("", set, "SET", String::new()),
        ("", set, "HSET", "op=@86".to_owned()),
        ("", set, "PEXPIRE", "op=@86".to_owned()),
        ("", "try_set_count soon 1M hash ch PUBLISH 3 1", "PEXPIRE", "op=@86".to_owned()),
        (one, "delete soon 1M hash ch PUBLISH", "DEL", format!("{one} op=@86")),
    ] {
        set_up(memory, state);
        memory.keyspace.refuse_commands(&[refused], NO);
        let seen = observe(memory, &parse_call(&SUITE, call), &mut Times::default());
        assert_eq!((&*seen.reply, &*seen.keys), ("! NOPERM no", &*after), "{call}: {refused}");
        memory.keyspace.refuse_commands(&[], NO);
        let seen = observe(memory, &parse_call(&SUITE, call), &mut Times::default());
        assert!(seen.reply.starts_with("1 T"), "{call} after {refused}: {seen:?}");
    }
}

const COMMANDS: [&str; 3] = [
    "count_down DEADLINE KEEP hash ch PUBLISH",
    "try_set_count DEADLINE KEEP hash ch PUBLISH 3 0",
    "delete DEADLINE KEEP hash ch PUBLISH",
];

/// What carries a deadline is done at that very instant, and is late a microsecond after it.
fn check_last_moment(memory: &mut Memory) {
    for text in COMMANDS {
        for (early, code) in [(0, "0"), (1, "-1")] {
            let sets = text.starts_with("try");
            set_up(memory, if sets { "lock={kind:latch,count:3}" } else { "" });
            let deadline = (memory.next_time() - early).to_string();
            let text = text.replace("DEADLINE", &deadline).replace("KEEP", "1");
            let seen = observe(memory, &parse_call(&SUITE, &text), &mut Times::default());
            assert_eq!(seen.reply.split(' ').next(), Some(code), "{text}: {seen:?}");
        }
    }
}

/// For `keep` after the deadline, and a day at most.
fn check_memory(memory: &mut Memory) {
    const DAY: i64 = 86_400_000;
    for text in COMMANDS {
        for state in ["", "lock={kind:latch,count:3}"] {
            for (ahead_us, keep, kept) in [
                (5_000_000, 10_000, 15_000),
                (5_000_999, 10_000, 15_000),
                (0, 1, 1),
                (0, DAY, DAY),
                (0, DAY + 1, DAY),
                (2 * DAY * 1_000, 1, DAY),
            ] {
                set_up(memory, state);
                let deadline = (memory.next_time() + ahead_us).to_string();
                let text = text.replace("DEADLINE", &deadline).replace("KEEP", &keep.to_string());
                memory.run(&parse_call(&SUITE, &text)).unwrap();
                let op = memory.dump().into_iter().find(|dumped| dumped.key == "op");
                assert_eq!(op.unwrap().pttl, Some(kept), "{text} in [{state}]");
            }
        }
    }
}

fn check_short_life(memory: &mut Memory) {
    for format in ["hash", "string"] {
        set_up(memory, "");
        let text = format!("try_set_count soon 1M {format} ch PUBLISH 3 1");
        memory.run(&parse_call(&SUITE, &text)).unwrap();
        let latch = memory.dump().into_iter().find(|dumped| dumped.key == "lock");
        assert_eq!(latch.unwrap().pttl, Some(1), "{format}");
    }
}

/// Short of memory nothing is counted.
fn check_out_of_memory(server: &mut dyn Server) {
    const OOM: &str = "! OOM command not allowed when used memory > 'maxmemory'.";
    for (state, text) in [
        ("lock={kind:latch,count:1}", "count_down soon 1M hash nobody PUBLISH"),
        ("", "try_set_count soon 1M hash nobody PUBLISH 3 0"),
        ("lock={kind:latch,count:1}", "delete soon 1M hash nobody PUBLISH"),
    ] {
        server.set_out_of_memory(false);
        set_up(server, state);
        server.set_out_of_memory(true);
        let seen = observe(server, &parse_call(&SUITE, text), &mut Times::default());
        assert_eq!((&*seen.reply, &*seen.keys), (OOM, state), "[{state}] {text}");
    }
    server.set_out_of_memory(false);
}

script_tests! {
    SUITE;
    count_down: |server: &mut dyn Server| check_table(server, COUNT_DOWNS);
    try_set_count: |server: &mut dyn Server| check_table(server, SETTINGS);
    delete: |server: &mut dyn Server| check_table(server, DELETIONS);
    look: |server: &mut dyn Server| check_table(server, LOOKS);
    out_of_memory_leaves_nothing_half_done: check_out_of_memory;
}
