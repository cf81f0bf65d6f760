//! What only the embedded Lua can be made to do, and a server that is short of memory.

use crate::backend::memory::store::Stored;
use crate::kinds::script_tests::Edge;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::observe;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::text::Times;
use crate::kinds::script_tests::text::parse_call;
use crate::kinds::semaphore::script_tests::SUITE;

pub(super) const CHECKS: &[Edge] = &[
    ("a_refused_command_does_no_harm", check_refusals),
    ("the_last_moment_counts", check_last_moment),
    ("permits_end_with_their_millisecond", check_ends),
    ("a_token_follows_an_equal_one", check_equal_token),
    ("one_script_reserves_a_thousand", check_bound),
    ("times_are_exact", check_times),
    ("who_is_not_heard_keeps_nobody_waiting", check_heard),
    ("two_milliseconds_are_a_renewal", check_short_renewal),
    ("a_ticket_follows_an_equal_one", check_equal_ticket),
    ("one_script_gives_up_a_thousand_places", check_many_places),
    ("fields_say_what_is_wanted", check_fields),
    ("permits_that_are_kept_end_at_the_given_time", check_free_at),
    ("a_number_is_remembered_for_its_time", check_memory),
];

const NO: &str = "! NOPERM no";

/// State, call, the commands that are refused, reply, state afterwards, published.
type Refused =
    (&'static str, &'static str, &'static [&'static str], &'static str, &'static str, &'static str);

fn check_refusals(memory: &mut Memory) {
    for &(state, call, refused, reply, after, published) in REFUSALS {
        set_up(memory, state);
        memory.keyspace.refuse_commands(refused, "NOPERM no");
        let seen = observe(memory, &parse_call(&SUITE, call), &mut Times::default());
        memory.keyspace.refuse_commands(&[], "");
        let after = if after == "=" { state } else { after };
        assert_eq!(
            (&*seen.reply, &*seen.keys, &*seen.published),
            (reply, after, published),
            "{call} without {refused:?} in [{state}]"
        );
    }
}

const ONE: &str = "lock={kind:semaphore}@5 permits=(a:1:1:1:@5)@5";
const WAITS: &str = "line=(b:1:1:5,c:1:1:6)@12s lock={kind:semaphore}@5 permits=(a:1:1:1:@5)@5";

const REFUSALS: &[Refused] = &[
    // Nobody can be told: what is free is free, and nobody loses a place.
    (ONE, "+release a:1:1 ch PUBLISH", &["PUBLISH"], "1 T -1", "", ""),
    (
        WAITS,
        "+release a:1:1 ch PUBLISH",
        &["PUBLISH"],
        "1 T -1",
        "line=(b:1:1:5,c:1:1:6)@12s lock={kind:semaphore}@5",
        "",
    ),
    (
        "line=(b:1:1:5)@12s lock={kind:semaphore}@5",
        "+acquire a:1:1 3M soon try 0 1 ch PUBLISH",
        &["PUBLISH"],
        "1 T T",
        "fence=T line=(b:1:1:5)@12s lock={kind:semaphore}@5 permits=(a:1:1:1:@3)@3",
        "",
    ),
    (
        ONE,
        "force_release a:1:1 soon ch SPUBLISH client",
        &["PUBLISH"],
        "1 T -1",
        "lock={kind:semaphore}@5",
        "ch=0 sharded",
    ),
    (
        ONE,
        "force_release a:1:1 soon ch SPUBLISH client",
        &["SPUBLISH"],
        "1 T -1",
        "lock={kind:semaphore}@5",
        "client=lock",
    ),
    (
        ONE,
        "set_permits set 7 2 soon 9M ch PUBLISH",
        &["PUBLISH"],
        "1 T 7",
        "lock={kind:semaphore,permits:7} operation=7@86 permits=(a:1:1:1:@5)@5",
        "",
    ),
    // Who is first is not known, or cannot be taken out of the line: nobody overtakes.
    (
        "line=(b:1:2:5)@12s lock={kind:semaphore}@5",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        &["ZRANGE"],
        NO,
        "=",
        "",
    ),
    (
        "line=(b:1:2:5)@12s lock={kind:semaphore}@5",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        &["ZREM"],
        NO,
        "=",
        "ch=b:1:2",
    ),
    (
        "line=(b:1:2:5)@12s lock={kind:semaphore}@5",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        &["ZADD"],
        NO,
        "lock={kind:semaphore}@5",
        "ch=b:1:2",
    ),
    (
        "line=(b:1:1:5)@12s lock={kind:semaphore}@5",
        "+release a:1:1 ch PUBLISH",
        &["ZREM"],
        NO,
        "=",
        "",
    ),
    // The end of permits without an end of their key.
    (
        "line=(b:1:2:5)@12s lock={kind:semaphore}@5 permits=(a:1:2:1:@5,c:1:2:1:@5)",
        "+release a:1:2 ch PUBLISH",
        &["PERSIST"],
        "1 T 1",
        "lock={kind:semaphore}@5 permits=(c:1:2:1:@5)",
        "ch=b:1:2",
    ),
    (
        "permits1=(a:1:1:1:@5) permits2=(b:1:1:1:@9)",
        "renew soon a:1:1 9M b:1:1 5M",
        &["PERSIST"],
        "1 T -5 1",
        "permits1=(a:1:1:1:@5) permits2=(b:1:1:1:@9)",
        "",
    ),
    (
        "permits1=(a:1:1:1:@5)@5 permits2=(b:1:1:1:@9)@9",
        "renew soon a:1:1 9M b:1:1 5M",
        &["PEXPIRE"],
        "1 T -5 1",
        "permits1=(a:1:1:1:@5)@5 permits2=(b:1:1:1:@9)@9",
        "",
    ),
    (
        "permits1=(a:1:1:1:@5)@5 permits2=text",
        "renew soon a:1:1 9M b:1:1 5M",
        &["ZSCORE"],
        "1 T -5 -3",
        "permits1=(a:1:1:1:@5)@5 permits2=text",
        "",
    ),
    (
        ONE,
        "release_at a:1:1 soon 3M ch PUBLISH",
        &["PUBLISH"],
        "2 T -1",
        "lock={kind:semaphore}@5 permits=(a:1:1:1:@3)@5",
        "",
    ),
    // Told, but nothing can be reserved.
    (
        "line=(b:1:1:5)@12s lock={kind:semaphore}@5",
        "+release a:1:1 ch PUBLISH",
        &["PEXPIRE"],
        "0 T",
        "",
        "ch=b:1:1",
    ),
    (
        "line=(b:1:1:5,c:1:1:6)@12s lock={kind:semaphore}@5",
        "+release a:1:1 ch PUBLISH",
        &["ZADD"],
        "0 T",
        "line=(c:1:1:6)@12s lock={kind:semaphore}@5",
        "ch=b:1:1",
    ),
    (
        "line=(b:1:1:5)@12s lock={kind:semaphore}@5 permits=(a:1:1:1:@5)@5",
        "+release a:1:1 ch PUBLISH",
        &["ZRANGE"],
        "1 T 1",
        "line=(b:1:1:5)@12s lock={kind:semaphore}@5",
        "ch=0",
    ),
    (
        WAITS,
        "+release a:1:1 ch PUBLISH",
        &["ZCARD"],
        "1 T 1",
        "line=(b:1:1:5,c:1:1:6)@12s lock={kind:semaphore}@5",
        "ch=0",
    ),
    (
        "line=(b:1:1:5)@12s lock={kind:semaphore}@5 permits=(d:1:1:1:@-1,a:1:1:1:@5)@5",
        "+release a:1:1 ch PUBLISH",
        &["ZREMRANGEBYSCORE"],
        "1 T 0",
        "line=(b:1:1:5)@12s lock={kind:semaphore}@5 permits=(d:1:1:1:@-1)@5",
        "",
    ),
    // The key of the semaphore ends by itself.
    (ONE, "+release a:1:1 ch PUBLISH", &["HDEL"], "1 T 1", "lock={kind:semaphore}@5", "ch=0"),
    (ONE, "+release a:1:1 ch PUBLISH", &["EXISTS"], "1 T 1", "lock={kind:semaphore}@5", "ch=0"),
    (ONE, "+release a:1:1 ch PUBLISH", &["HMGET"], NO, "=", ""),
    ("", "+release a:1:1 ch PUBLISH", &["HMGET"], NO, "=", ""),
    (
        "line=(b:1:2:5,c:1:2:6)@12s lock={kind:semaphore}@5",
        "+release a:1:2 ch PUBLISH",
        &["ZADD"],
        "0 T",
        "line=(c:1:2:6)@12s lock={kind:semaphore}@5",
        "ch=b:1:2",
    ),
    (
        "line=(b:1:2:5)@12s lock={kind:semaphore}@5 permits=(a:1:2:1:@5,c:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        &["PEXPIRE"],
        "1 T 1",
        "lock={kind:semaphore}@5 permits=(c:1:2:1:@5)@5",
        "ch=b:1:2",
    ),
    (
        "fence=9000000000000000 lock={kind:semaphore}@9 permits=(b:1:2:1:@9)@9",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        &["PEXPIRE"],
        NO,
        "fence=9000000000000001 lock={kind:semaphore}@9 permits=(b:1:2:1:@9)@9",
        "",
    ),
    (
        "fence=9000000000000000 lock={kind:semaphore}@9 permits=(b:1:2:1:@9)",
        "+acquire a:1:2 3M soon try 0 1 ch PUBLISH",
        &["PERSIST"],
        NO,
        "fence=9000000000000001 lock={kind:semaphore}@9 permits=(b:1:2:1:@9)",
        "",
    ),
    (
        "lock={kind:semaphore}@5 permits=(a:1:1:1:@5)",
        "renew soon a:1:1 9M",
        &["PEXPIRE"],
        "1 T 1",
        "lock={kind:semaphore}@5 permits=(a:1:1:1:@9)",
        "",
    ),
    (
        "permits1=(a:1:1:1:@3,x:@9)@9 permits2=(b:1:1:1:@9)@9",
        "renew soon a:1:1 5M b:1:1 5M",
        &["PEXPIRE"],
        "1 T -5 1",
        "permits1=(a:1:1:1:@3,x:@9)@9 permits2=(b:1:1:1:@9)@9",
        "",
    ),
    // A line of which Redis does not say how long it lives is not entered.
    (
        "line=(c:1:1:5)@12s lock={kind:semaphore}@5 permits=(b:1:1:1:@5)@5",
        "+acquire a:1:1 9M soon first 0 1 ch PUBLISH",
        &["PEXPIRE"],
        "0 T @5 b:1:1 T 1",
        "=",
        "",
    ),
    (
        "line=(a:1:2:5)@12s lock={kind:semaphore}@5 permits=(b:2:2:1:@5,b:2:2:2:@5)@5",
        "+acquire a:1:2 9M soon again 5 0 ch PUBLISH",
        &["ZREM"],
        "0 T @5 b:2:2 5 0",
        "=",
        "",
    ),
    // Redis's own words.
    ("permits=(a:1:1:1:@5)", "release_at a:1:1 soon 3M ch PUBLISH", &["PERSIST"], NO, "=", ""),
    (ONE, "release_at a:1:1 soon 3M ch PUBLISH", &["PEXPIRE"], NO, "=", ""),
    (
        "lock={kind:semaphore,permits:3}",
        "set_permits set 7 2 soon 9M ch PUBLISH",
        &["HMGET"],
        NO,
        "=",
        "",
    ),
    (ONE, "+release a:1:1 ch PUBLISH", &["ZREM"], NO, "=", ""),
    ("", "+release a:1:1 ch PUBLISH", &["ZREM"], NO, "=", ""),
    (ONE, "release_at a:1:1 soon 3M ch PUBLISH", &["ZSCORE"], NO, "=", ""),
    ("", "release_at a:1:1 soon 3M ch PUBLISH", &["ZSCORE"], NO, "=", ""),
    (ONE, "release_at a:1:1 soon 3M ch PUBLISH", &["ZADD"], NO, "=", ""),
    (ONE, "release_at a:1:1 late 3M ch PUBLISH", &["ZREM"], NO, "=", ""),
    ("", "release_at a:1:1 late 3M ch PUBLISH", &["ZREM"], NO, "=", ""),
    (ONE, "force_release a:1:1 soon ch PUBLISH client", &["ZREM"], NO, "=", ""),
    ("", "force_release a:1:1 soon ch PUBLISH client", &["ZREM"], NO, "=", ""),
    (ONE, "renew soon a:1:1 9M", &["ZSCORE"], NO, "=", ""),
    ("", "renew soon a:1:1 9M", &["ZSCORE"], NO, "=", ""),
    (
        ONE,
        "renew soon a:1:1 9M",
        &["ZADD"],
        NO,
        "lock={kind:semaphore}@5 permits=(a:1:1:1:@5)@9",
        "",
    ),
    (ONE, "renew soon a:1:1 9M", &["PEXPIRE"], NO, "=", ""),
    (
        "lock={kind:semaphore}@5 permits=(a:1:1:1:@5)@9",
        "renew soon a:1:1 9M",
        &["PEXPIRE"],
        NO,
        "=",
        "",
    ),
    (
        ONE,
        "renew soon a:1:1 9M",
        &["HGET"],
        "1 T 1",
        "lock={kind:semaphore}@5 permits=(a:1:1:1:@9)@9",
        "",
    ),
    (
        "lock1={kind:semaphore}@5 permits1=(a:1:1:1:@5)@5 lock2={kind:semaphore}@5 \
         permits2=(b:1:1:1:@9)@9",
        "renew soon a:1:1 9M b:1:1 5M",
        &["ZADD"],
        "1 T -5 1",
        "lock1={kind:semaphore}@5 lock2={kind:semaphore}@5 permits1=(a:1:1:1:@5)@9 \
         permits2=(b:1:1:1:@9)@9",
        "",
    ),
    ("", "+acquire a:1:1 3M soon try 0 1 ch PUBLISH", &["HMGET"], NO, "=", ""),
    ("lock={b:1}@5", "+acquire a:1:1 3M soon try 0 1 ch PUBLISH", &["HMGET"], NO, "=", ""),
    ("", "+acquire a:1:1 3M soon try 0 1 ch PUBLISH", &["ZCOUNT"], NO, "=", ""),
    (ONE, "+acquire a:1:1 3M soon try 0 1 ch PUBLISH", &["ZCOUNT"], NO, "=", ""),
    ("permits=text", "+acquire a:1:1 3M soon try 0 1 ch PUBLISH", &["ZCOUNT"], "-4 T 9", "=", ""),
    ("", "+acquire a:1:1 3M soon try 0 1 ch PUBLISH", &["GET"], NO, "=", ""),
    ("fence=7", "+acquire a:1:1 3M soon try 0 1 ch PUBLISH", &["GET"], NO, "=", ""),
    ("fence=[1]", "+acquire a:1:1 3M soon try 0 1 ch PUBLISH", &["GET"], "-4 T 5", "=", ""),
    (
        "fence=9000000000000000",
        "+acquire a:1:1 3M soon try 0 1 ch PUBLISH",
        &["PEXPIRE"],
        NO,
        "fence=9000000000000001",
        "",
    ),
    (
        "fence=9000000000000000",
        "+acquire a:1:1 3M soon try 0 1 ch PUBLISH",
        &["HSET"],
        NO,
        "fence=9000000000000001",
        "",
    ),
    (
        "fence=9000000000000000",
        "+acquire a:1:1 3M soon try 0 1 ch PUBLISH",
        &["ZADD"],
        NO,
        "fence=9000000000000001 lock={kind:semaphore}@3",
        "",
    ),
    // The number, and what is remembered of it.
    ("", "set_permits set 7 2 soon 9M ch PUBLISH", &["HMGET"], NO, "=", ""),
    ("", "set_permits add 7 2 soon 9M ch PUBLISH", &["GET"], NO, "=", ""),
    ("", "set_permits add 7 2 soon 9M ch PUBLISH", &["SET"], NO, "=", ""),
    ("", "set_permits add 7 2 soon 9M ch PUBLISH", &["HSET"], NO, "=", ""),
    ("", "set_permits set 7 2 soon 9M ch PUBLISH", &["HSET"], NO, "=", ""),
    // Who leaves the line is told so all the same.
    (
        "line=(a:3:2:5)@12s lock={kind:semaphore}@5",
        "+acquire a:3:2 3M soon again 5 1 ch PUBLISH",
        &["ZREM"],
        "-6 T 2",
        "=",
        "ch=a:3:2",
    ),
    // Nobody knows whether it was heard of: it stays.
    (
        "line=(b:2:2:5)@12s lock={kind:semaphore}@5 permits=(a:1:2:1:@5,c:1:2:1:@5)@5",
        "+release a:1:2 ch PUBLISH",
        &["ZSCORE"],
        "1 T 0",
        "line=(b:2:2:5)@12s lock={kind:semaphore}@5 permits=(c:1:2:1:@5)@5",
        "",
    ),
    // Who cannot be remembered waits all the same.
    (
        "lock={kind:semaphore}@5 permits=(b:1:1:1:@5)@5",
        "+acquire a:1:1 9M soon first 0 1 ch PUBLISH",
        &["ZADD"],
        "0 T @5 b:1:1 T 0",
        "=",
        "",
    ),
];

/// What carries a deadline is done at that very instant, and is late a microsecond after it.
fn check_last_moment(memory: &mut Memory) {
    for text in [
        "+acquire a:1:2 9M D first 0 1 ch PUBLISH",
        "renew D a:1:2 9M",
        "force_release a:1:2 D ch PUBLISH client",
        "set_permits set 7 2 D 9M ch PUBLISH",
    ] {
        for (early, code) in [(0, "1"), (1, "-1")] {
            set_up(memory, "lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5");
            let deadline = memory.next_time() - early;
            let call = parse_call(&SUITE, &text.replace('D', &deadline.to_string()));
            let seen = observe(memory, &call, &mut Times::default());
            assert_eq!(seen.reply.split(' ').next(), Some(code), "{call:?}: {seen:?}");
        }
    }
}

/// A permit whose end is this millisecond is over; one whose end is the next is not.
fn check_ends(memory: &mut Memory) {
    for (text, over, lasts) in [
        ("+acquire a:1:1 9M soon try 0 1 ch PUBLISH", "1 T T", "0 T @0 b:1:1"),
        ("acquire b:1:1 9M soon again 5 1 ch PUBLISH", "-5 T", "1 T T"),
        ("renew soon b:1:1 9M", "1 T 0", "1 T 1"),
        ("renew soon b:1:1 2", "1 T 0", "1 T 1"),
        ("inspect", "4 T @5 -1 0", "4 T @5 -1 1"),
    ] {
        for (later, wanted) in [(0, over), (1, lasts)] {
            set_up(memory, "lock={kind:semaphore}@5");
            let end = memory.next_time() / 1_000 + later;
            let permits = [(end as f64, "b:1:1:1".to_owned())].into_iter().collect();
            memory.plant("permits", &Stored::SortedSet(permits), Some(5_000));
            let seen = observe(memory, &parse_call(&SUITE, text), &mut Times::default());
            assert_eq!(seen.reply, wanted, "{text}");
        }
    }
}

/// Who was heard of until this millisecond keeps nobody waiting; until the next, it does.
fn check_heard(memory: &mut Memory) {
    for text in ["+release a:1:2 ch PUBLISH", "+acquire a:1:2 9M soon try 0 1 ch PUBLISH"] {
        for (later, published) in [(0, "ch=b:2:2"), (1, "")] {
            set_up(memory, "line=(b:2:2:5)@12s lock={kind:semaphore}@5 permits=(c:1:2:1:@5)@5");
            let end = memory.next_time() / 1_000 + later;
            let heard = [(end as f64, "b:2:2:1".to_owned())].into_iter().collect();
            memory.plant("heard", &Stored::SortedSet(heard), Some(5_000));
            let seen = observe(memory, &parse_call(&SUITE, text), &mut Times::default());
            assert_eq!(seen.published, published, "{text}");
        }
    }
}

/// A renewal for two milliseconds is one, and not a question.
fn check_short_renewal(memory: &mut Memory) {
    set_up(memory, "");
    let end = memory.next_time() / 1_000 + 1;
    let permits = [(end as f64, "b:1:1:1".to_owned())].into_iter().collect();
    memory.plant("permits", &Stored::SortedSet(permits), Some(5_000));
    observe(memory, &parse_call(&SUITE, "renew soon b:1:1 2"), &mut Times::default());
    let dump = memory.dump();
    let Stored::SortedSet(set) = &dump[0].value else { panic!("no permits") };
    assert_eq!(set.iter().collect::<Vec<_>>(), [&(end as f64 + 1.0, "b:1:1:1".to_owned())]);
}

/// A ticket follows one of this very microsecond.
fn check_equal_ticket(memory: &mut Memory) {
    let last = memory.next_time();
    let state = format!("line=(b:1:1:{last})@12s lock={{kind:semaphore}}@5 permits=(c:1:1:1:@5)@5");
    set_up(memory, &state);
    let call = parse_call(&SUITE, "+acquire a:1:1 9M soon first 0 1 ch PUBLISH");
    let seen = observe(memory, &call, &mut Times::default());
    assert_eq!(seen.reply, format!("0 T @5 c:1:1 {} 1", last + 1));
}

/// One script gives up a thousand places at most.
fn check_many_places(memory: &mut Memory) {
    for (text, reply) in [
        ("+release a:1:1 ch PUBLISH", "1 T 1"),
        ("+acquire a:1:1 9M soon again 5 1 ch PUBLISH", "1 T T"),
    ] {
        set_up(memory, "lock={kind:semaphore}@5 permits=(a:1:1:1:@5)@5");
        let places = (1..=1_001).map(|ticket| (f64::from(ticket), format!("x{ticket}")));
        memory.plant("line", &Stored::SortedSet(places.collect()), Some(12_000));
        let seen = observe(memory, &parse_call(&SUITE, text), &mut Times::default());
        assert_eq!((&*seen.reply, seen.published.matches("ch=").count()), (reply, 1_000));
        let left = memory.dump().into_iter().find(|dumped| dumped.key == "line").unwrap();
        let Stored::SortedSet(left) = left.value else { panic!("no line") };
        assert_eq!(left.iter().count(), 1, "{text}");
    }
    set_up(memory, "lock={kind:semaphore}@5 permits=(a:1:2:1:@5)@5");
    let places = (1..=1_001).map(|ticket| (f64::from(ticket), format!("x{ticket}")));
    memory.plant("line", &Stored::SortedSet(places.collect()), Some(12_000));
    let call = parse_call(&SUITE, "+acquire b:1:2 9M soon try 0 1 ch PUBLISH");
    assert_eq!(observe(memory, &call, &mut Times::default()).reply, "1 T T");
}

fn check_fields(memory: &mut Memory) {
    check_fields_of(
        memory,
        &SUITE,
        &[
            "+acquire F 9M late first 0 1 ch PUBLISH",
            "+release F ch PUBLISH",
            "release_at F late 3M ch PUBLISH",
            "renew late F 3M",
            "force_release F late ch PUBLISH client",
        ],
    );
}

/// Each script reads the field of a hold in the same way.
pub(in crate::kinds) fn check_fields_of(memory: &mut Memory, suite: &Suite, calls: &[&str]) {
    for text in calls {
        for (field, good) in [
            ("a:1:1", true),
            ("a:1000:2000", true),
            ("a:1:1000000", true),
            ("b:c:2:3", true),
            ("~", false),
            ("a:1", false),
            ("a:x:1", false),
            ("a:0:2", false),
            ("a:1001:2000", false),
            ("a:1:0", false),
            ("a:1:1000001", false),
        ] {
            set_up(memory, "");
            let call = parse_call(suite, &text.replace('F', field));
            let seen = observe(memory, &call, &mut Times::default());
            assert_eq!(!seen.reply.starts_with("-9"), good, "{text} {field}: {seen:?}");
        }
    }
}

/// The last token may be of this very microsecond.
fn check_equal_token(memory: &mut Memory) {
    let last = memory.next_time();
    set_up(memory, &format!("fence={last}"));
    let call = parse_call(&SUITE, "+acquire a:1:2 9M soon try 0 1 ch PUBLISH");
    let seen = observe(memory, &call, &mut Times::default());
    assert_eq!(seen.reply, format!("1 T {}", last + 1));
}

/// Who picks up passes the rest on.
fn check_bound(memory: &mut Memory) {
    set_up(
        memory,
        "lock={kind:semaphore}@5 heard=(e:1000:2000:1:@5)@5 \
         line=(b:600:2000:5,c:400:2000:6,d:1:2000:7,e:1000:2000:8)@12s",
    );
    for (call, published) in [
        ("+release a:1:2000 ch PUBLISH", "ch=b:600:2000 ch=c:400:2000"),
        ("+acquire b:600:2000 3M soon again 5 1 ch PUBLISH", "ch=d:1:2000"),
        ("+acquire d:1:2000 3M soon again 5 1 ch PUBLISH", ""),
        ("+release c:400:2000 ch PUBLISH", "ch=e:1000:2000"),
    ] {
        let seen = observe(memory, &parse_call(&SUITE, call), &mut Times::default());
        assert_eq!(seen.published, published, "{call}");
    }
    set_up(memory, "lock={kind:semaphore}@5 line=(b:600:2000:5,c:400:2000:6,d:1:2000:7)@12s");
    let call = parse_call(&SUITE, "+acquire e:1:2000 3M soon try 0 1 ch PUBLISH");
    let seen = observe(memory, &call, &mut Times::default());
    assert_eq!(seen.published, "ch=b:600:2000 ch=c:400:2000");
    let permits = memory.dump().into_iter().find(|dumped| dumped.key == "permits").unwrap();
    let Stored::SortedSet(permits) = permits.value else { panic!("no permits") };
    assert_eq!(permits.iter().count(), 1_000);
}

/// To the millisecond: how long a reservation, a place and the key of the semaphore last.
fn check_times(memory: &mut Memory) {
    for call in ["+release a:1:1 ch PUBLISH", "+acquire a:1:1 9M soon first 0 1 ch PUBLISH"] {
        set_up(memory, "line=(b:1:1:5)@12s lock={kind:semaphore}@1.5s");
        let end = memory.next_time() / 1_000 + 1_500;
        observe(memory, &parse_call(&SUITE, call), &mut Times::default());
        let dump = memory.dump();
        let pttl = |key: &str| dump.iter().find(|dumped| dumped.key == key)?.pttl;
        let permits = dump.iter().find(|dumped| dumped.key == "permits").unwrap();
        let Stored::SortedSet(set) = &permits.value else { panic!("no permits") };
        assert_eq!(set.iter().collect::<Vec<_>>(), [&(end as f64, "b:1:1:1".to_owned())]);
        assert_eq!(permits.pttl, Some(1_500));
        if call.starts_with("+acquire") {
            let all = ["heard", "line", "lock"].map(pttl);
            assert_eq!(all, [Some(12_000), Some(12_000), Some(13_500)]);
        }
    }
}

/// In microseconds from the call on: the time is over, or a millisecond is left.
fn check_free_at(memory: &mut Memory) {
    const KEPT: &str = "lock={kind:semaphore}@5 permits=(a:1:1:1:@0)@5";
    for (left, reply, after) in [(0, "1 T 1", "lock={kind:semaphore}@5"), (1, "2 T 1", KEPT)] {
        set_up(memory, ONE);
        let free_at = memory.next_time() + left;
        let call = format!("release_at a:1:1 {free_at} 3M ch PUBLISH");
        let seen = observe(memory, &parse_call(&SUITE, &call), &mut Times::default());
        assert_eq!((&*seen.reply, &*seen.keys), (reply, after), "{left}");
    }
}

fn check_memory(memory: &mut Memory) {
    check_memory_of(memory, &SUITE);
}

/// What an operation has made is kept for so long after its deadline, and for a day at most.
pub(in crate::kinds) fn check_memory_of(memory: &mut Memory, suite: &Suite) {
    for how in ["set", "add"] {
        for (ahead_us, keep, kept) in [
            (0, 7, 7),
            (5_000_000, 10_000, 15_000),
            (1_999, 7, 8),
            (1_000_000, 86_398_999, 86_399_999),
            (1_000_000, 86_399_000, 86_400_000),
            (1_000_000, 86_399_001, 86_400_000),
            (1_000_000, 86_400_000, 86_400_000),
        ] {
            set_up(memory, "");
            let deadline = memory.next_time() + ahead_us;
            let call = format!("set_permits {how} 7 2 {deadline} {keep} ch PUBLISH");
            memory.run(&parse_call(suite, &call)).unwrap();
            let dump = memory.dump();
            let operation = dump.iter().find(|dumped| dumped.key == "operation").unwrap();
            assert_eq!(operation.pttl, Some(kept), "{call}");
        }
    }
}

/// Short of memory nothing is granted. What is there is renewed, kept, given up and passed on.
pub(super) fn check_out_of_memory(server: &mut dyn Server) {
    const OOM: &str = "! OOM command not allowed when used memory > 'maxmemory'.";
    for (state, text, reply, after) in [
        (
            "lock={kind:semaphore}@5 permits=(b:1:2:1:@5)@5",
            "+acquire a:1:2 9M soon try 0 1 nobody PUBLISH",
            OOM,
            "=",
        ),
        (
            "lock={kind:semaphore}@5 permits=(b:1:1:1:@5)@5",
            "+acquire a:1:1 9M soon first 0 1 nobody PUBLISH",
            "0 T @5 b:1:1 T 0",
            "heard=(a:1:1:1:@0)@12s line=(a:1:1:T)@12s lock={kind:semaphore}@5 \
             permits=(b:1:1:1:@5)@5",
        ),
        (ONE, "+release a:1:1 nobody PUBLISH", "1 T 0", ""),
        (
            WAITS,
            "+release a:1:1 nobody PUBLISH",
            "1 T 0",
            "line=(c:1:1:6)@12s lock={kind:semaphore}@5 permits=(b:1:1:1:@0)@1.5s",
        ),
        (ONE, "force_release a:1:1 soon nobody PUBLISH nobody", "1 T 0", "lock={kind:semaphore}@5"),
        // What is there is renewed, also by a hold that is shorter than another.
        (ONE, "renew soon a:1:1 9M", "1 T 1", "lock={kind:semaphore}@9 permits=(a:1:1:1:@9)@9"),
        (
            "lock={kind:semaphore}@9 permits=(a:1:2:1:@3,b:1:2:1:@9)@9",
            "renew soon a:1:2 5M",
            "1 T 1",
            "lock={kind:semaphore}@9 permits=(a:1:2:1:@5,b:1:2:1:@9)@9",
        ),
        (
            "lock={kind:semaphore,permits:2} permits=(a:1:2:1:@3)",
            "renew soon a:1:2 5M",
            "1 T 1",
            "lock={kind:semaphore,permits:2} permits=(a:1:2:1:@5)",
        ),
        // The lock stays taken, and is reserved.
        (
            ONE,
            "release_at a:1:1 soon 3M nobody PUBLISH",
            "2 T 0",
            "lock={kind:semaphore}@5 permits=(a:1:1:1:@3)@5",
        ),
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
