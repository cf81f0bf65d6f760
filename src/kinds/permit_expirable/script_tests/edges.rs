//! What only the embedded Lua can be made to do, and a server that is short of memory.

use crate::backend::Value;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Stored;
use crate::kinds::permit_expirable::script_tests::SUITE;
use crate::kinds::permit_expirable::script_tests::tables;
use crate::kinds::script_tests::Edge;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::faults;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::observe;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::text::Times;
use crate::kinds::script_tests::text::parse_call;
use crate::kinds::semaphore::script_tests::edges::check_fields_of;
use crate::kinds::semaphore::script_tests::edges::check_memory_of;

pub(super) const CHECKS: &[Edge] = &[
    ("a_refused_command_changes_the_number_of_nothing", check_number),
    ("a_refused_command_does_no_harm", check_refusals),
    ("the_last_moment_counts", check_last_moment),
    ("permits_come_back_five_seconds_after_their_end", check_ends),
    ("a_token_follows_an_equal_one", check_equal_token),
    ("two_milliseconds_are_a_renewal", check_short_renewal),
    ("fields_say_what_is_wanted", check_fields),
    ("permits_that_are_kept_end_at_the_given_time", check_free_at),
    ("a_number_is_remembered_for_its_time", check_memory),
];

const SLACK_MS: i64 = 5_000;
const NO: &str = "! NOPERM no";
const ONE: &str = "lock=1 permits=(a:1:2:1:@5)";

/// How many permits there are: those that are free and those that are out.
fn number(dump: &[Dumped]) -> Option<i64> {
    let value = |key: &str| dump.iter().find(|dumped| dumped.key == key).map(|it| &it.value);
    let out = match value("permits") {
        Some(Stored::SortedSet(permits)) => permits.iter().count() as i64,
        _ => 0,
    };
    let Some(Stored::Text(free)) = value("lock") else { return None };
    free.parse::<i64>().ok().map(|free| free + out)
}

/// Whichever one or two commands Redis refuses: no permit is lost, and there is none too many. Only
/// the number that a call sets may be there or not.
fn check_number(memory: &mut Memory) {
    for &(state, text, ..) in tables::ALL.iter().flat_map(|(_, rows)| *rows) {
        let call = parse_call(&SUITE, text);
        if memory.instead.is_some_and(|instead| instead.name != call.script.name) {
            continue;
        }
        set_up(memory, state);
        let before = number(&memory.dump());
        memory.run(&call).unwrap();
        let meant = number(&memory.dump());
        for refused in faults::sets(call.script.source) {
            set_up(memory, state);
            memory.keyspace.refuse_commands(&refused, "NOPERM no");
            let result = memory.run(&call);
            memory.keyspace.refuse_commands(&[], "");
            let dump = memory.dump();
            let found = number(&dump);
            let what = format!("{text} in [{state}] without {refused:?}: {result:?}, {dump:?}");
            assert!(found == before || found == meant, "{what}");
        }
    }
}

/// State, call, the commands that are refused, reply, state afterwards, published.
type Refused =
    (&'static str, &'static str, &'static [&'static str], &'static str, &'static str, &'static str);

const REFUSALS: &[Refused] = &[
    // Nobody can be told: what is free is free.
    (ONE, "release a:1:2 ch PUBLISH", &["PUBLISH"], "1 T -1", "lock=2", ""),
    (
        ONE,
        "release_at a:1:2 soon 3M ch PUBLISH",
        &["PUBLISH"],
        "2 T -1",
        "lock=1 permits=(a:1:2:1:@3)",
        "",
    ),
    (
        "",
        "acquire a:1:2 3M soon ch PUBLISH",
        &["PUBLISH"],
        "1 T T",
        "fence=T lock=1 permits=(a:1:2:1:@3)",
        "",
    ),
    (
        ONE,
        "force_release a:1:2 soon ch SPUBLISH client",
        &["PUBLISH"],
        "1 T -1",
        "lock=2",
        "ch=2 sharded",
    ),
    (
        ONE,
        "force_release a:1:2 soon ch SPUBLISH client",
        &["SPUBLISH"],
        "1 T -1",
        "lock=2",
        "client=lock",
    ),
    (
        "",
        "set_permits set 7 2 soon 9M ch PUBLISH",
        &["PUBLISH"],
        "1 T 7",
        "lock=7 operation=7@86",
        "",
    ),
    // What was changed before the refused command is changed back.
    (
        "fence=9000000000000000 lock=0 permits=(c:1:2:1:@-1)",
        "acquire a:1:2 3M soon ch PUBLISH",
        &["ZREMRANGEBYSCORE"],
        NO,
        "fence=9000000000000001 lock=0 permits=(c:1:2:1:@-1)",
        "",
    ),
    (
        "fence=9000000000000000 lock=0 permits=(c:1:2:1:@-1)",
        "acquire a:1:2 3M soon ch PUBLISH",
        &["ZADD"],
        NO,
        "fence=9000000000000001 lock=1",
        "",
    ),
    (
        "fence=9000000000000000 lock=1 permits=(a:1:2:1:@5)",
        "acquire a:1:2 3M soon ch PUBLISH",
        &["ZADD"],
        NO,
        "fence=9000000000000001 lock=1 permits=(a:1:2:1:@5)",
        "",
    ),
    (
        "fence=9000000000000000",
        "acquire a:1:2 3M soon ch PUBLISH",
        &["ZADD"],
        NO,
        "fence=9000000000000001 lock=2",
        "",
    ),
    (
        "fence=9000000000000000 lock=2",
        "acquire a:1:2 3M soon ch PUBLISH",
        &["INCRBY"],
        NO,
        "fence=9000000000000001 lock=2",
        "",
    ),
    // What need not be changed is not touched.
    (
        "lock=1 permits=(a:1:2:1:@5)",
        "acquire a:1:2 3M soon ch PUBLISH",
        &["INCRBY"],
        "1 T T",
        "fence=T lock=1 permits=(a:1:2:1:@3)",
        "",
    ),
    (
        "lock=2",
        "acquire a:1:2 3M soon ch PUBLISH",
        &["ZREMRANGEBYSCORE"],
        "1 T T",
        "fence=T lock=1 permits=(a:1:2:1:@3)",
        "",
    ),
    ("", "acquire a:1:2 3M soon ch PUBLISH", &["GET"], NO, "=", ""),
    ("lock=1", "acquire a:1:2 3M soon ch PUBLISH", &["GET"], NO, "=", ""),
    ("lock=[1]", "acquire a:1:2 3M soon ch PUBLISH", &["GET"], "-4 T 13", "=", ""),
    ("", "acquire a:1:2 3M soon ch PUBLISH", &["ZCARD"], NO, "=", ""),
    (ONE, "acquire a:1:2 3M soon ch PUBLISH", &["ZCARD"], NO, "=", ""),
    ("permits=text", "acquire a:1:2 3M soon ch PUBLISH", &["ZCARD"], "-4 T 9", "=", ""),
    ("lock=2", "set_permits set 7 2 soon 9M ch PUBLISH", &["INCRBY"], NO, "=", ""),
    ("lock=2", "set_permits set 7 2 soon 9M ch PUBLISH", &["ZCARD"], NO, "=", ""),
    (ONE, "set_permits set 7 2 soon 9M ch PUBLISH", &["ZCARD"], NO, "=", ""),
    ("lock=2", "inspect", &["GET"], NO, "=", ""),
    ("", "inspect", &["GET"], NO, "=", ""),
    (ONE, "inspect", &["ZCARD"], NO, "=", ""),
    ("lock=2", "inspect", &["ZCARD"], NO, "=", ""),
    (ONE, "release_at a:1:2 soon 3M ch PUBLISH", &["PERSIST"], NO, "=", ""),
    (ONE, "release_at a:1:2 soon 3M ch PUBLISH", &["ZADD"], NO, "=", ""),
    (ONE, "release_at a:1:2 soon 3M ch PUBLISH", &["ZSCORE"], NO, "=", ""),
    ("", "release_at a:1:2 soon 3M ch PUBLISH", &["ZSCORE"], NO, "=", ""),
    (ONE, "renew soon a:1:2 9M", &["ZSCORE"], NO, "=", ""),
    ("", "renew soon a:1:2 9M", &["ZSCORE"], NO, "=", ""),
    ("permits=(a:1:2:1:@5)", "renew soon a:1:2 9M", &["ZADD"], NO, "=", ""),
    ("permits=(a:1:2:1:@5)", "renew soon a:1:2 9M", &["PERSIST"], NO, "=", ""),
    ("permits=(a:1:2:1:@0)", "renew soon a:1:2 1", &["ZADD"], "1 T 1", "=", ""),
    // Of several holds each is answered by itself.
    (
        "permits1=(a:1:2:1:@5) permits2=(b:1:2:1:@9)",
        "renew soon a:1:2 9M b:1:2 5M",
        &["ZADD"],
        "1 T -5 1",
        "=",
        "",
    ),
    (
        "permits1=(a:1:2:1:@5) permits2=(b:1:2:1:@9)",
        "renew soon a:1:2 9M b:1:2 5M",
        &["PERSIST"],
        "1 T -5 1",
        "=",
        "",
    ),
    (
        "permits1=(a:1:2:1:@5) permits2=text",
        "renew soon a:1:2 9M b:1:2 5M",
        &["ZSCORE"],
        "1 T -5 -3",
        "=",
        "",
    ),
    (
        "permits1=(a:1:2:1:@5) permits2=(b:1:2:1:@5)",
        "renew soon a:1:2 9M b:1:2 9M",
        &["ZADD"],
        NO,
        "=",
        "",
    ),
];

/// Of every call that gives permits back: state, the commands that are refused, reply, state
/// afterwards.
const GIVING_BACK: &[(&str, &[&str], &str, &str)] = &[
    (ONE, &["ZREM"], NO, "="),
    (ONE, &["INCRBY"], NO, "="),
    (ONE, &["PERSIST"], NO, "="),
    (ONE, &["GET"], NO, "="),
    (ONE, &["ZSCORE"], NO, "="),
    ("permits=(a:1:2:1:@5)", &["GET"], NO, "="),
    ("permits=(a:1:2:1:@5)", &["ZREM"], NO, "="),
    ("lock=[1] permits=(a:1:2:1:@5)", &["GET"], "1 T 0", "lock=[1]"),
    ("", &["ZSCORE"], NO, "="),
    ("permits=text", &["ZSCORE"], "-3 T", "="),
];

fn check_refusals(memory: &mut Memory) {
    for call in [
        "release a:1:2 nobody PUBLISH",
        "release_at a:1:2 late 3M nobody PUBLISH",
        "force_release a:1:2 soon nobody PUBLISH nobody",
    ] {
        for &(state, refused, reply, after) in GIVING_BACK {
            check_refusal(memory, (state, call, refused, reply, after, ""));
        }
    }
    REFUSALS.iter().for_each(|refusal| check_refusal(memory, *refusal));
}

fn check_refusal(memory: &mut Memory, refusal: Refused) {
    let (state, call, refused, reply, after, published) = refusal;
    set_up(memory, state);
    memory.keyspace.refuse_commands(refused, "NOPERM no");
    let seen = observe(memory, &parse_call(&SUITE, call), &mut Times::default());
    memory.keyspace.refuse_commands(&[], "");
    let after = if after == "=" { state } else { after };
    let reply_seen = seen.reply.trim_end_matches(" (GET)");
    assert_eq!(
        (reply_seen, &*seen.keys, &*seen.published),
        (reply, after, published),
        "{call} without {refused:?} in [{state}]"
    );
}

/// A deadline of this very microsecond is met.
fn check_last_moment(memory: &mut Memory) {
    for (call, done) in [
        ("acquire a:1:2 3M NOW ch PUBLISH", "1 T T"),
        ("renew NOW a:1:2 3M", "1 T 1"),
        ("force_release a:1:2 NOW ch PUBLISH client", "1 T 1"),
        ("set_permits set 7 2 NOW 9M ch PUBLISH", "1 T 7"),
    ] {
        for (left, reply) in [(0, done), (-1, "-1 T")] {
            set_up(memory, ONE);
            let deadline = memory.next_time() + left;
            let call = call.replace("NOW", &deadline.to_string());
            let seen = observe(memory, &parse_call(&SUITE, &call), &mut Times::default());
            assert_eq!(seen.reply, reply, "{call}");
        }
    }
}

/// What runs out in this very millisecond, and in the next one; and when those who are refused are
/// told to come again.
fn check_ends(memory: &mut Memory) {
    let permits =
        |end: i64, id: &str| Stored::SortedSet([(end as f64, id.to_owned())].into_iter().collect());
    for (call, over, there) in [
        ("acquire b:1:1 3M soon ch PUBLISH", "1 T T", "0 T @0 a:1:1"),
        ("acquire a:1:1 3M soon ch PUBLISH", "1 T T", "1 T T"),
        ("renew soon a:1:1 3M", "1 T 0", "1 T 1"),
        ("inspect", "4 T -1 1 0", "4 T -1 1 1"),
    ] {
        for (later, reply) in [(0, over), (1, there)] {
            set_up(memory, "lock=0");
            let end = memory.next_time() / 1_000 - SLACK_MS + later;
            memory.plant("permits", &permits(end, "a:1:1:1"), None);
            let seen = observe(memory, &parse_call(&SUITE, call), &mut Times::default());
            assert_eq!(seen.reply, reply, "{call}");
            // Whoever has the permit now is the only one.
            assert_eq!(number(&memory.dump()), Some(1), "{call}");
        }
    }
    // Who is refused is told when what is taken will have run out, to the millisecond.
    set_up(memory, "lock=0");
    let end = memory.next_time() / 1_000 - SLACK_MS + 7;
    memory.plant("permits", &permits(end, "a:1:1:1"), None);
    let reply = memory.run(&parse_call(&SUITE, "acquire b:1:1 3M soon ch PUBLISH"));
    let Ok(Value::List(reply)) = reply else { panic!("{reply:?}") };
    assert_eq!(reply[2], Value::Int(7));
    // The end of what is granted is that of the lease and the slack.
    for (state, call) in [
        ("", "acquire a:1:1 700 soon ch PUBLISH"),
        ("permits=(a:1:1:1:@0)", "renew soon a:1:1 700"),
        ("permits=(a:1:1:1:@0)", "release_at a:1:1 soon 700 ch PUBLISH"),
    ] {
        set_up(memory, state);
        let end = memory.next_time() / 1_000 + 700 + SLACK_MS;
        memory.run(&parse_call(&SUITE, call)).unwrap();
        let dump = memory.dump();
        let found = dump.iter().find(|dumped| dumped.key == "permits").unwrap();
        assert_eq!((&found.value, found.pttl), (&permits(end, "a:1:1:1"), None), "{call}");
    }
}

fn check_fields(memory: &mut Memory) {
    check_fields_of(
        memory,
        &SUITE,
        &[
            "acquire F 9M late ch PUBLISH",
            "release F ch PUBLISH",
            "release_at F late 3M ch PUBLISH",
            "renew late F 3M",
            "force_release F late ch PUBLISH client",
        ],
    );
}

/// The last token may be of this very microsecond.
fn check_equal_token(memory: &mut Memory) {
    let last = memory.next_time();
    set_up(memory, &format!("fence={last}"));
    let call = parse_call(&SUITE, "acquire a:1:2 9M soon ch PUBLISH");
    let seen = observe(memory, &call, &mut Times::default());
    assert_eq!(seen.reply, format!("1 T {}", last + 1));
}

/// A renewal for two milliseconds is one, and not a question; one that would change nothing writes
/// nothing.
fn check_short_renewal(memory: &mut Memory) {
    for (left, refused, reply) in
        [(1, &["ZADD"][..], NO), (1, &[], "1 T 1"), (2, &["ZADD"], "1 T 1")]
    {
        set_up(memory, "");
        let end = memory.next_time() / 1_000 + SLACK_MS + left;
        let permits = [(end as f64, "b:1:1:1".to_owned())].into_iter().collect();
        memory.plant("permits", &Stored::SortedSet(permits), None);
        memory.keyspace.refuse_commands(refused, "NOPERM no");
        let seen =
            observe(memory, &parse_call(&SUITE, "renew soon b:1:1 2"), &mut Times::default());
        memory.keyspace.refuse_commands(&[], "");
        assert_eq!(seen.reply, reply, "{left}");
    }
}

/// In microseconds from the call on: the time is over, or a millisecond is left.
fn check_free_at(memory: &mut Memory) {
    const KEPT: &str = "lock=1 permits=(a:1:2:1:@0)";
    for (left, reply, after) in [(0, "1 T 1", "lock=2"), (1, "2 T 1", KEPT)] {
        set_up(memory, ONE);
        let free_at = memory.next_time() + left;
        let call = format!("release_at a:1:2 {free_at} 3M ch PUBLISH");
        let seen = observe(memory, &parse_call(&SUITE, &call), &mut Times::default());
        assert_eq!((&*seen.reply, &*seen.keys), (reply, after), "{left}");
    }
}

fn check_memory(memory: &mut Memory) {
    check_memory_of(memory, &SUITE);
}

/// Short of memory nothing is granted. What is there is renewed, kept and given up.
pub(super) fn check_out_of_memory(server: &mut dyn Server) {
    const OOM: &str = "! OOM command not allowed when used memory > 'maxmemory'.";
    for (state, text, reply, after) in [
        (ONE, "acquire b:1:2 9M soon nobody PUBLISH", OOM, "="),
        (
            "lock=0 permits=(a:1:1:1:@5)",
            "acquire b:1:1 9M soon nobody PUBLISH",
            "0 T @5 a:1:1",
            "=",
        ),
        (ONE, "release a:1:2 nobody PUBLISH", "1 T 0", "lock=2"),
        (ONE, "force_release a:1:2 soon nobody PUBLISH nobody", "1 T 0", "lock=2"),
        ("permits=(a:1:2:1:@3)", "renew soon a:1:2 9M", "1 T 1", "permits=(a:1:2:1:@9)"),
        (ONE, "release_at a:1:2 soon 3M nobody PUBLISH", "2 T 0", "lock=1 permits=(a:1:2:1:@3)"),
    ] {
        server.set_out_of_memory(false);
        set_up(server, state);
        server.set_out_of_memory(true);
        let seen = observe(server, &parse_call(&SUITE, text), &mut Times::default());
        let after = if after == "=" { state } else { after };
        assert_eq!((&*seen.reply, &*seen.keys), (reply, after), "[{state}] {text}");
    }
    server.set_out_of_memory(false);
}
