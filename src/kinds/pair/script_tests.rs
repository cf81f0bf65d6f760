//! The scripts of `tests/pair/`: an example of what a kind adds to the tests that every kind has.

mod model;

use crate::backend::Script;
use crate::base::kind::Kind;
use crate::base::random::Random;
use crate::kinds::pair::ACQUIRE;
use crate::kinds::pair::RELEASE;
use crate::kinds::pair::RENEW;
use crate::kinds::pair::UNDO;
use crate::kinds::script_tests::Fields;
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
    static TESTED: [&Script; 4] = [&ACQUIRE, &RELEASE, &UNDO, &RENEW];
    &TESTED
}

static SUITE: Suite = Suite {
    kind: Kind::Pair,
    scripts,
    is_end: |_, field| field.ends_with(":ends"),
    valid,
    may_be: |fields| fields.iter().filter(|(field, _)| field.ends_with(":ends")).count() <= 2,
    model: model::run,
    calls: Calls {
        call,
        plants: &[
            "lock={a:1,a:ends:@5}@5",
            "lock={b:2,b:ends:@9,c:1,c:ends:@3}@9",
            "lock={a:1,a:ends:@-1,b:1,b:ends:@5}@5",
            "lock={data:1}",
            "lock=text@5",
            "lock1={a:1,a:ends:@5}@5 lock2={b:1,b:ends:@5}@5",
            "fence=7",
            "fence=9000000000000000",
            "fence=word",
            "fence=[1]",
        ],
        removed: &["lock", "fence"],
    },
    garbage: &["{foreign:1}@5", "{foreign:1,other:2}", "{mode:read}@5"],
    tables: &[("acquire", ACQUIRES), ("release", RELEASES), ("undo", UNDOES), ("renew", RENEWALS)],
    checks: CHECKS,
    edges: &[
        ("a_refused_command_does_no_harm", check_refusals),
        ("the_last_moment_counts", check_last_moment),
        ("a_token_follows_an_equal_one", check_equal_token),
    ],
    needs_redis_7: &[("release", "sharded pub/sub"), ("undo", "sharded pub/sub")],
    mistakes: &[
        ("acquire", "places >= 2", "places >= 3"),
        ("acquire", "if now > not_after then", "if false then"),
        ("acquire", "if own and own > ends then ends = own end", ""),
        ("release", r#", field .. ":ends""#, ""),
        ("renew", "ends > now_ms", "true"),
        ("undo", r#"redis.pcall(ARGV[4], ARGV[3], "0")"#, "1"),
    ],
    equivalent: "tests/pair/equivalent.txt",
    ..Suite::EMPTY
};

/// Places that are not over.
fn valid(fields: &Fields, now_ms: i64) -> Vec<(String, String)> {
    let end = |field: &str| {
        let place = field.strip_suffix(":ends").unwrap_or(field);
        let (_, end) = fields.iter().find(|(other, _)| *other == format!("{place}:ends"))?;
        end.parse::<i64>().ok()
    };
    fields.iter().filter(|(field, _)| end(field).is_none_or(|end| end > now_ms)).cloned().collect()
}

fn call(random: &mut Random) -> String {
    let field = random.pick(&["a", "a", "b", "b", "c"]);
    let (lease, deadline) =
        (random.pick(&["3M", "5M", "9M"]), random.pick(&["soon", "soon", "soon", "late"]));
    let announce = format!(
        "{} {}",
        random.pick(&["ch", "ch", "nobody"]),
        random.pick(&["PUBLISH", "SPUBLISH"])
    );
    match random.below(8) {
        0..=3 => {
            format!("acquire {field} {} {lease} {deadline}", random.pick(&["1", "1", "2", "3"]))
        }
        4 => format!("release {field} {} {announce}", random.pick(&["0", "0", "1", "2"])),
        5 => format!("undo {field} 0 {announce}"),
        6 => format!("renew {deadline} {field} {lease}"),
        _ => format!("renew {deadline} {field} {lease} {} 9M", random.pick(&["a", "b"])),
    }
}

const ACQUIRES: &[Row] = &[
    ("", "acquire a 1 3M soon", "1 T T", "fence=T lock={a:1,a:ends:@3}@3", ""),
    ("fence=7", "acquire a 2 3M soon", "-2 T", "=", ""),
    ("", "acquire a 1 3M late", "-1 T", "=", ""),
    // Beside another: the key lasts as long as the longer of both.
    (
        "lock={b:1,b:ends:@5}@5",
        "acquire a 1 3M soon",
        "1 T T",
        "fence=T lock={b:1,b:ends:@5,a:1,a:ends:@3}@5",
        "",
    ),
    (
        "lock={b:1,b:ends:@5}@5",
        "acquire a 1 9M soon",
        "1 T T",
        "fence=T lock={b:1,b:ends:@5,a:1,a:ends:@9}@9",
        "",
    ),
    // Both places are taken: the first end is told.
    ("lock={b:1,b:ends:@5,c:1,c:ends:@3}@5", "acquire a 1 3M soon", "0 T @3 b", "=", ""),
    ("lock={b:1,b:ends:@3,c:1,c:ends:@5}@5", "acquire a 1 3M soon", "0 T @3 b", "=", ""),
    ("lock={b:1,b:ends:@5,c:1,c:ends:@3}@5", "acquire a 2 3M soon", "-2 T", "=", ""),
    ("lock={b:1,b:ends:@5,a:1,a:ends:@3}@5", "acquire c 1 9M soon", "0 T @3 b", "=", ""),
    ("lock={b:1,b:ends:@5,c:1,c:ends:@5}@5", "acquire a 1 3M soon", "0 T @5 b", "=", ""),
    // A place that is over is free, also one's own.
    (
        "lock={b:1,b:ends:@-1,c:1,c:ends:@5}@5",
        "acquire a 1 3M soon",
        "1 T T",
        "fence=T lock={c:1,c:ends:@5,a:1,a:ends:@3}@5",
        "",
    ),
    ("lock={a:1,a:ends:@0}@5", "acquire a 2 3M soon", "-2 T", "=", ""),
    // A repeat never shortens; a count is set.
    (
        "fence=7 lock={a:1,a:ends:@5}@5",
        "acquire a 1 3M soon",
        "1 T T",
        "fence=T lock={a:1,a:ends:@5}@5",
        "",
    ),
    (
        "fence=7 lock={a:1,a:ends:@5}@5",
        "acquire a 2 9M soon",
        "1 T 0",
        "fence=7 lock={a:2,a:ends:@9}@9",
        "",
    ),
    (
        "lock={a:1,a:ends:@5,b:1,b:ends:@9}@9",
        "acquire a 3 3M soon",
        "1 T 0",
        "lock={a:3,a:ends:@5,b:1,b:ends:@9}@9",
        "",
    ),
    (
        "fence=9000000000000000",
        "acquire a 1 3M soon",
        "1 T 9000000000000001",
        "fence=9000000000000001 lock={a:1,a:ends:@3}@3",
        "",
    ),
    (
        "fence=9007199254740990",
        "acquire a 1 3M soon",
        "1 T 9007199254740991",
        "fence=9007199254740991 lock={a:1,a:ends:@3}@3",
        "",
    ),
    ("fence=9007199254740991", "acquire a 1 3M soon", "-4 T 5", "=", ""),
    // Fields of other programs are no places, nor are values.
    (
        "lock={x:b,b:1,b:ends:@5}@5",
        "acquire a 1 3M soon",
        "1 T T",
        "fence=T lock={x:b,b:1,b:ends:@5,a:1,a:ends:@3}@5",
        "",
    ),
    (
        "lock={x:1,y:2}@5",
        "acquire a 1 3M soon",
        "1 T T",
        "fence=T lock={x:1,y:2,a:1,a:ends:@3}@3",
        "",
    ),
];

const RELEASES: &[Row] = &[
    ("", "release a 0 ch PUBLISH", "0 T", "=", ""),
    ("lock={b:1,b:ends:@5}@5", "release a 0 ch PUBLISH", "0 T", "=", ""),
    ("lock={a:1,a:ends:@5}@5", "release a 0 ch PUBLISH", "1 T 1", "", "ch=0"),
    ("lock={a:3,a:ends:@5}@5", "release a 0 ch SPUBLISH", "1 T 1", "", "ch=0 sharded"),
    ("lock={a:1,a:ends:@5}@5", "release a 0 nobody PUBLISH", "1 T 0", "", ""),
    (
        "lock={a:1,a:ends:@5,b:1,b:ends:@3}@5",
        "release a 0 ch PUBLISH",
        "1 T 1",
        "lock={b:1,b:ends:@3}@5",
        "ch=0",
    ),
    ("lock={a:3,a:ends:@5}@5", "release a 1 ch PUBLISH", "2 T", "lock={a:1,a:ends:@5}@5", ""),
];

const UNDOES: &[Row] = &[
    ("", "undo a 0 ch PUBLISH", "0 T", "=", ""),
    ("lock={b:1,b:ends:@5}@5", "undo a 0 ch PUBLISH", "0 T", "=", ""),
    ("lock={a:1,a:ends:@5}@5", "undo a 0 ch SPUBLISH", "1 T 1", "", "ch=0 sharded"),
    (
        "lock={a:ends:@5,b:1,b:ends:@5}@5",
        "undo a 0 nobody PUBLISH",
        "1 T 0",
        "lock={b:1,b:ends:@5}@5",
        "",
    ),
];

const RENEWALS: &[Row] = &[
    ("", "renew soon a 3M", "1 T 0", "=", ""),
    ("lock={a:1,a:ends:@5}@5", "renew late a 9M", "-1 T", "=", ""),
    ("lock={a:1,a:ends:@5}@5", "renew soon a 9M", "1 T 1", "lock={a:1,a:ends:@9}@9", ""),
    ("lock={a:1,a:ends:@5}@5", "renew soon a 3M", "1 T 1", "=", ""),
    ("lock={a:1,a:ends:@0,b:1,b:ends:@5}@5", "renew soon a 9M", "1 T 0", "=", ""),
    (
        "lock={a:1,a:ends:@3,b:1,b:ends:@9}@9",
        "renew soon a 5M",
        "1 T 1",
        "lock={a:1,a:ends:@5,b:1,b:ends:@9}@9",
        "",
    ),
    (
        "lock1={a:1,a:ends:@5}@5 lock2={b:1,b:ends:@5}@5",
        "renew soon a 9M c 9M",
        "1 T 1 0",
        "lock1={a:1,a:ends:@9}@9 lock2={b:1,b:ends:@5}@5",
        "",
    ),
];

/// State, call, the command that is refused, reply, state afterwards.
fn check_refusals(memory: &mut Memory) {
    const NO: &str = "! NOPERM no";
    for (state, call, refused, reply, after) in [
        ("lock={a:1,a:ends:@5}@5", "release a 0 ch PUBLISH", "PUBLISH", "1 T -1", ""),
        ("lock={a:1,a:ends:@5}@5", "undo a 0 ch PUBLISH", "PUBLISH", "1 T -1", ""),
        ("lock={a:1,a:ends:@5}@5", "acquire a 2 9M soon", "HSET", NO, "lock={a:1,a:ends:@5}@9"),
        ("lock={a:1,a:ends:@5}@5", "renew soon a 9M", "PEXPIRE", NO, "lock={a:1,a:ends:@5}@5"),
    ] {
        set_up(memory, state);
        memory.keyspace.refuse_commands(&[refused], "NOPERM no");
        let seen = observe(memory, &parse_call(&SUITE, call), &mut Times::default());
        assert_eq!(
            (&*seen.reply, &*seen.keys),
            (reply, after),
            "{call} without {refused} in [{state}]"
        );
    }
}

/// What carries a deadline is done at that very instant, and is late a microsecond after it.
fn check_last_moment(memory: &mut Memory) {
    for text in ["acquire a 1 9M", "renew a 9M"] {
        for (early, code) in [(0, "1"), (1, "-1")] {
            set_up(memory, "lock={a:1,a:ends:@5}@5");
            let deadline = memory.next_time() - early;
            let mut call = parse_call(&SUITE, &text.replace("renew", &format!("renew {deadline}")));
            if text.starts_with("acquire") {
                call = parse_call(&SUITE, &format!("{text} {deadline}"));
            }
            let seen = observe(memory, &call, &mut Times::default());
            assert_eq!(seen.reply.split(' ').next(), Some(code), "{call:?}: {seen:?}");
        }
    }
}

/// The last token may be of this very microsecond.
fn check_equal_token(memory: &mut Memory) {
    let last = memory.next_time();
    set_up(memory, &format!("fence={last}"));
    let seen = observe(memory, &parse_call(&SUITE, "acquire a 1 9M soon"), &mut Times::default());
    assert_eq!(seen.reply, format!("1 T {}", last + 1));
}

/// Short of memory nothing is granted, and places can be given up.
fn check_out_of_memory(server: &mut dyn Server) {
    const OOM: &str = "! OOM command not allowed when used memory > 'maxmemory'.";
    for (state, text, reply, after) in [
        ("lock={b:1,b:ends:@5}@5", "acquire a 1 9M soon", OOM, "lock={b:1,b:ends:@5}@5"),
        ("lock={a:1,a:ends:@5}@5", "release a 0 nobody PUBLISH", "1 T 0", ""),
        ("lock={a:1,a:ends:@5}@5", "undo a 0 nobody PUBLISH", "1 T 0", ""),
    ] {
        server.set_out_of_memory(false);
        set_up(server, state);
        server.set_out_of_memory(true);
        let seen = observe(server, &parse_call(&SUITE, text), &mut Times::default());
        assert_eq!((&*seen.reply, &*seen.keys), (reply, after), "[{state}] {text}");
    }
    server.set_out_of_memory(false);
}

script_tests! {
    SUITE;
    acquire: |server: &mut dyn Server| check_table(server, ACQUIRES);
    release: |server: &mut dyn Server| check_table(server, RELEASES);
    undo: |server: &mut dyn Server| check_table(server, UNDOES);
    renew: |server: &mut dyn Server| check_table(server, RENEWALS);
    out_of_memory_leaves_nothing_half_done: check_out_of_memory;
}
