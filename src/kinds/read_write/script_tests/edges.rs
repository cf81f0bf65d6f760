//! What only the embedded Lua can be made to do: one command refused, for one key even, and instants
//! that are exactly equal.

use crate::backend::ScriptCall;
use crate::kinds::read_write::script_tests::parse_call;
use crate::kinds::script_tests::Edge;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::observe;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::text::Times;

pub(super) const CHECKS: &[Edge] = &[
    ("a_refusal_is_told_in_redis_own_words", check_refusals),
    ("the_last_moment_counts", check_last_moment),
    ("a_token_follows_an_equal_one", check_equal_token),
    ("limits_are_allowed", check_limits),
    ("the_number_of_keys_goes_with_the_arguments", check_numbers_of_keys),
    ("a_release_of_the_lock_alone", check_lock_alone),
    ("a_name_stays_taken_until_its_time", check_kept),
    ("reservations_and_lines_live_for_their_times", check_lives),
    ("many_silent_writers_leave_the_line", check_silent),
    ("a_renewal_of_a_writer_names_the_lock_alone", check_lock_twice),
    ("a_writer_is_told_at_most_16_readers", check_told),
    ("a_thousand_places_are_looked_at", check_many_places),
];

/// State, call, which command it is refused, reply, state afterwards (`=`: the same), published.
type Refusal = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

const FREE: &str = "+acquire a 1 0 3M soon try 0 0 ch PUBLISH t 0";
const WAITS: &str = "+acquire a 1 0 3M soon again 6 1 ch PUBLISH t 0";
const WRITES: &str = "+acquire a 0 1 3M soon again 6 1 ch PUBLISH t 0";
const GIVES_UP: &str = "+release a 0 0 ch PUBLISH t";
const UPGRADE: &str = "upgrade a u 9M soon 0";
const DOWNGRADE: &str = "+downgrade a 1 3M ch PUBLISH t";
const KEEPS: &str = "+release_at a soon 3M ch PUBLISH t";
const TAKES_AWAY: &str = "+force_release a soon ch PUBLISH t client";
const KEPT_TOO_LATE: &str = "+release_at a late 3M ch PUBLISH t";
const WRITER: &str = "lock={mode:write,b:write:1}@5";
const NO: &str = "! NOPERM no";

const REFUSALS: &[Refusal] = &[
    ("", FREE, "SET", NO, "=", ""),
    ("", FREE, "HSET", NO, "fence=T t:a:rwlock_timeout:1=1@3", ""),
    ("", FREE, "GET", "! NOPERM no (GET)", "=", ""),
    ("", FREE, "PEXPIRE", NO, "fence=T", ""),
    ("", FREE, "SET fence", NO, "=", ""),
    ("", FREE, "SET t:a:rwlock_timeout:1", NO, "fence=T", ""),
    ("lock={mode:read,b:1}@5", FREE, "HGET", "! NOPERM no (HGET)", "=", ""),
    ("lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5", FREE, "GET", "! NOPERM no (GET)", "=", ""),
    // Whoever waits goes without a place, or keeps the one that it has.
    (WRITER, WAITS, "ZADD", "0 T @5 b:write 6 0", "=", ""),
    (WRITER, WAITS, "PEXPIRE", "0 T @5 b:write 6 0", "=", ""),
    (
        "line=(a:6)@5 lock={mode:write,b:write:1}@5",
        "+acquire a 1 0 3M soon again 6 0 ch PUBLISH t 0",
        "ZREM",
        "0 T @5 b:write 6 0",
        "=",
        "",
    ),
    // The lock cannot be reserved for another: who asks is granted, and leaves the line.
    (
        "line=(b:write:5,a:write:6)@5",
        WRITES,
        "PUBLISH",
        "1 T T",
        "fence=T line=(b:write:5)@5 lock={mode:write,a:write:1}@3",
        "",
    ),
    (
        "line=(b:write:5,a:write:6)@5",
        WRITES,
        "ZREM",
        "1 T T",
        "fence=T line=(b:write:5,a:write:6)@5 lock={mode:write,a:write:1}@3",
        "ch=b:write",
    ),
    (
        "line=(b:5,a:write:6)@5",
        WRITES,
        "SET t:b:rwlock_timeout:1",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@3",
        "ch=b",
    ),
    (
        "line=(b:5,c:write:7)@5 lock={mode:read,d:1}@5",
        WAITS,
        "ZREM",
        "0 T @5 d 6 1",
        "line=(b:5,a:6,c:write:7)@12s lock={mode:read,d:1}@5",
        "ch=b",
    ),
    (
        "line=(b:5,a:write:6)@5",
        WRITES,
        "HSET",
        NO,
        "fence=T line=(a:write:6)@5 t:b:rwlock_timeout:1=1@1.5s",
        "ch=b",
    ),
    (
        "line=(b:write:5,a:write:6)@5",
        WRITES,
        "HSET",
        NO,
        "fence=T line=(a:write:6)@5",
        "ch=b:write",
    ),
    (
        "line=(b:write:5,a:write:6)@5",
        WRITES,
        "PEXPIRE",
        NO,
        "fence=T line=(b:write:5,a:write:6)@5",
        "",
    ),
    ("fence=7", FREE, "GET", "! NOPERM no (GET)", "=", ""),
    // If Redis does not say whether a writer was heard of, it was.
    (
        "line=(b:write:5)@5 lock={mode:read,d:1}@5",
        WAITS,
        "EXISTS t:b:rwlock_timeout:1",
        "0 T @5 d 6 1",
        "line=(b:write:5,a:6)@12s lock={mode:read,d:1}@5",
        "",
    ),
    (
        "line=(b:write:5)@5 lock={mode:read,d:1}@5",
        WAITS,
        "ZREM",
        "0 T @5 d 6 1",
        "line=(b:write:5,a:6)@12s lock={mode:read,d:1}@5",
        "",
    ),
    // A writer that cannot be heard of goes without a place.
    (WRITER, WRITES, "SET t:a:rwlock_timeout:1", "0 T @5 b:write 6 0", "=", ""),
    (
        "line=(a:write:6)@5 t:a:rwlock_timeout:1=1@9",
        WRITES,
        "DEL",
        "1 T T",
        "fence=T lock={mode:write,a:write:1}@3 t:a:rwlock_timeout:1=1@9",
        "",
    ),
    // A release.
    (
        "line=(b:write:5)@5 lock={mode:write,a:write:1}@5",
        GIVES_UP,
        "PUBLISH",
        "1 T -1",
        "line=(b:write:5)@5",
        "",
    ),
    ("lock={mode:read,a:1}@5", GIVES_UP, "PUBLISH", "1 T -1", "", ""),
    ("lock={mode:read,a:1}@5", GIVES_UP, "HDEL", NO, "=", ""),
    ("lock={mode:read,a:1}@5", GIVES_UP, "HGET", "! NOPERM no (HGET)", "=", ""),
    ("", GIVES_UP, "HGET", "! NOPERM no (HGET)", "=", ""),
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        GIVES_UP,
        "DEL",
        "1 T 1",
        "t:a:rwlock_timeout:1=1@5",
        "ch=0",
    ),
    ("line=(a:5)@5", GIVES_UP, "ZREM", "! NOPERM no (ZREM)", "=", ""),
    (
        "line=(a:5)@5 t:a:rwlock_timeout:1=1@5",
        GIVES_UP,
        "DEL",
        "0 T",
        "t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "line=(b:5)@5 lock={mode:write,a:write:1}@5",
        GIVES_UP,
        "HSET",
        "1 T 1",
        "t:b:rwlock_timeout:1=1@1.5s",
        "ch=b ch=1",
    ),
    (
        "line=(b:5)@5 lock={mode:write,a:write:1}@5",
        GIVES_UP,
        "ZRANGE",
        "1 T 1",
        "line=(b:5)@5",
        "ch=1",
    ),
    (
        "lock={mode:write,a:write:1,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "+release a 0 1 ch PUBLISH t",
        "DEL",
        "2 T",
        "lock={mode:write,a:write:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    // What is kept, and what is taken away.
    ("lock={mode:write,a:write:1}@5", KEEPS, "HDEL", NO, "=", ""),
    ("lock={mode:write,a:write:1}@5", KEEPS, "PEXPIRE", NO, "=", ""),
    ("lock={mode:write,a:write:1}@5", KEEPS, "HSET", NO, "lock={mode:write,a:write:1}@3", ""),
    ("lock={mode:write,a:write:1}@5", KEEPS, "HGET", "! NOPERM no (HGET)", "=", ""),
    ("", KEEPS, "HGET", "! NOPERM no (HGET)", "=", ""),
    (
        "lock={mode:write,a:write:1,a:1}@5 t:a:rwlock_timeout:1=1@5",
        KEEPS,
        "DEL",
        "2 T 1",
        "lock={mode:write,a:kept:write:0}@3 t:a:rwlock_timeout:1=1@5",
        "ch=1",
    ),
    (
        "lock={mode:write,a:write:1}@5",
        KEEPS,
        "PUBLISH",
        "2 T -1",
        "lock={mode:write,a:kept:write:0}@3",
        "",
    ),
    ("lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5", KEEPS, "PTTL", NO, "=", ""),
    ("lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5", KEEPS, "PEXPIRE", NO, "=", ""),
    (
        "lock={mode:write,a:write:1}@5",
        "+release_at a late 3M ch PUBLISH t",
        "PUBLISH",
        "1 T -1",
        "",
        "",
    ),
    ("lock={mode:read,a:1}@5", TAKES_AWAY, "PUBLISH", "1 T -1", "", ""),
    ("lock={mode:read,a:1}@5", TAKES_AWAY, "PUBLISH client", "1 T -1", "", "ch=0"),
    ("lock={mode:read,a:1}@5", TAKES_AWAY, "PUBLISH ch", "1 T -1", "", "client=lock"),
    (
        "line=(b:5)@5 lock={mode:read,a:1}@5",
        TAKES_AWAY,
        "PUBLISH ch",
        "1 T -1",
        "line=(b:5)@5",
        "client=lock",
    ),
    (
        "line=(b:write:5)@5 lock={mode:read,a:1}@5",
        TAKES_AWAY,
        "PUBLISH ch",
        "1 T -1",
        "line=(b:write:5)@5",
        "client=lock",
    ),
    ("lock={mode:read,a:1}@5", TAKES_AWAY, "HDEL", NO, "=", ""),
    ("lock={mode:read,a:1}@5", TAKES_AWAY, "HGET", "! NOPERM no (HGET)", "=", ""),
    ("", TAKES_AWAY, "HGET", "! NOPERM no (HGET)", "=", ""),
    // A downgrade.
    (
        "lock={mode:write,a:write:1}@5",
        "+downgrade a 1 3M ch PUBLISH t",
        "HGET",
        "! NOPERM no (HGET)",
        "=",
        "",
    ),
    ("lock={mode:write,a:write:1}@5", "+downgrade a 1 3M ch PUBLISH t", "HDEL", NO, "=", ""),
    ("lock={mode:write,a:write:1}@5", "+downgrade a 1 3M ch PUBLISH t", "SET", NO, "=", ""),
    (
        "lock={mode:write,a:write:1}@5",
        "+downgrade a 1 3M ch PUBLISH t",
        "HSET",
        NO,
        "lock={mode:write,a:write:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:write,a:write:1}@5",
        "+downgrade a 1 3M ch PUBLISH t",
        "PUBLISH",
        "1 T -1",
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    ("", DOWNGRADE, "HGET", "! NOPERM no (HGET)", "=", ""),
    // An upgrade.
    (
        "fence=7 lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        UPGRADE,
        "GET",
        "! NOPERM no (GET)",
        "=",
        "",
    ),
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        UPGRADE,
        "HGET",
        "! NOPERM no (HGET)",
        "=",
        "",
    ),
    ("", UPGRADE, "HGET", "! NOPERM no (HGET)", "=", ""),
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        UPGRADE,
        "GET",
        "! NOPERM no (GET)",
        "=",
        "",
    ),
    ("lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5", UPGRADE, "SET", NO, "=", ""),
    // Readers cannot be told, or reserved for.
    (
        "line=(b:5,c:6)@5 lock={mode:write,a:write:1}@5",
        DOWNGRADE,
        "ZREM",
        "1 T 1",
        "line=(b:5,c:6)@5 lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "ch=b c ch=1",
    ),
    (
        "line=(b:5)@5 lock={mode:write,a:write:1}@5",
        DOWNGRADE,
        "SET t:b:rwlock_timeout:1",
        "1 T 1",
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "ch=b ch=1",
    ),
    (
        "line=(b:5)@5 lock={mode:write,a:write:1}@5",
        DOWNGRADE,
        "ZRANGE",
        "1 T 1",
        "line=(b:5)@5 lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "ch=1",
    ),
    (
        "line=(b:5)@5 lock={mode:write,a:write:1}@5",
        GIVES_UP,
        "SET t:b:rwlock_timeout:1",
        "1 T 1",
        "",
        "ch=b ch=1",
    ),
    (
        "line=(b:5,c:6)@5 lock={mode:write,a:write:1}@5",
        GIVES_UP,
        "ZREM",
        "1 T 1",
        "line=(b:5,c:6)@5",
        "ch=b c ch=1",
    ),
    (
        "line=(b:write:5)@5 lock={mode:write,a:write:1}@5",
        GIVES_UP,
        "ZREM",
        "1 T 1",
        "line=(b:write:5)@5",
        "ch=b:write ch=1",
    ),
    (
        "line=(b:write:5)@5 lock={mode:write,a:write:1}@5",
        GIVES_UP,
        "HSET",
        "1 T 1",
        "",
        "ch=b:write ch=1",
    ),
    (
        "line=(b:write:5)@5 lock={mode:write,a:write:1}@5",
        GIVES_UP,
        "PEXPIRE",
        "1 T 1",
        "line=(b:write:5)@5",
        "ch=1",
    ),
    // A renewal.
    (
        "lock1={mode:write,a:write:1}@5 lock2={mode:write,b:write:1}@5",
        "renew soon a 9M b 9M",
        "HGET lock1",
        "1 T -5 1",
        "lock1={mode:write,a:write:1}@5 lock2={mode:write,b:write:1}@9",
        "",
    ),
    (
        "lock1={mode:read,a:1}@5 lock2={mode:write,b:write:1}@5 t:a:rwlock_timeout:1=1@5",
        "renew soon a 9M b 9M",
        "PEXPIRE t:a:rwlock_timeout:1",
        "1 T -5 1",
        "lock1={mode:read,a:1}@5 lock2={mode:write,b:write:1}@9 t:a:rwlock_timeout:1=1@5",
        "",
    ),
    (
        "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
        "renew soon a 9M",
        "PEXPIRE",
        "! NOPERM no (PEXPIRE)",
        "=",
        "",
    ),
    (
        "lock={mode:write,a:write:1}@5",
        "renew soon a 9M",
        "PEXPIRE",
        "! NOPERM no (PEXPIRE)",
        "=",
        "",
    ),
    ("lock={mode:write,a:write:1}@5", "renew soon a 9M", "HGET", "! NOPERM no (HGET)", "=", ""),
    ("", "renew soon a 9M", "HGET", "! NOPERM no (HGET)", "=", ""),
    (
        "lock1={mode:write,a:write:1}@5 lock2={mode:write,b:write:1}@5",
        "renew soon a 9M b 9M",
        "PEXPIRE lock1",
        "1 T -5 1",
        "lock1={mode:write,a:write:1}@5 lock2={mode:write,b:write:1}@9",
        "",
    ),
    (
        "lock1={mode:write,a:write:1}@5 lock2={mode:write,b:write:1}@5",
        "renew soon a 9M b 9M",
        "PEXPIRE lock2",
        "1 T 1 -5",
        "lock1={mode:write,a:write:1}@9 lock2={mode:write,b:write:1}@5",
        "",
    ),
];

fn check_refusals(memory: &mut Memory) {
    let given_up = |row: &&Refusal| row.1 == GIVES_UP && !row.0.contains("line=(a:");
    let mut rows = REFUSALS.to_vec();
    for &(state, _, refused, reply, after, published) in REFUSALS.iter().filter(given_up) {
        rows.push((state, KEPT_TOO_LATE, refused, reply, after, published));
        let is_told = reply.starts_with('1') && refused != "PUBLISH";
        let told = is_told.then_some("client=lock");
        let published = [published].into_iter().chain(told).collect::<Vec<_>>().join(" ");
        rows.push((state, TAKES_AWAY, refused, reply, after, published.trim().to_owned().leak()));
    }
    for (state, call, refused, reply, after, published) in rows {
        set_up(memory, state);
        memory.keyspace.refuse_commands(&[refused], "NOPERM no");
        let time = memory.next_time();
        let seen = observe(memory, &parse_call(call), &mut Times::default());
        let after = if after == "=" { state } else { after };
        // An error carries no time that `T` could stand for.
        let after = match reply.starts_with('!') {
            true => after.replace("=T", &format!("={time}")),
            false => after.to_owned(),
        };
        assert_eq!(
            (&*seen.reply, &*seen.keys, &*seen.published),
            (reply, &*after, published),
            "{call} without {refused} in [{state}]"
        );
    }
}

/// What carries a deadline is done at that very instant, and is late a microsecond after it.
fn check_last_moment(memory: &mut Memory) {
    for text in [FREE, UPGRADE, TAKES_AWAY, "renew soon a 9M"] {
        for (early, code) in [(0, "1"), (1, "-1")] {
            set_up(memory, "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5");
            let deadline = (memory.next_time() - early).to_string();
            let call = parse_call(&text.replace("soon", &deadline));
            let seen = observe(memory, &call, &mut Times::default());
            assert_eq!(seen.reply.split(' ').next(), Some(code), "{call:?}: {seen:?}");
        }
    }
}

/// State, call, code.
fn check_limits(memory: &mut Memory) {
    const READER: &str = "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5";
    const WRITER: &str = "lock={mode:write,a:write:1}@5";
    for (state, call, code) in [
        ("", "+acquire a 1 0 1 soon try 0 0 ch PUBLISH t 0", "1"),
        ("", "+acquire a 1 0 3 soon try 0 0 ch PUBLISH t 0", "1"),
        ("", "+acquire a 1 0 86400000 soon try 0 0 ch PUBLISH t 0", "1"),
        ("", "+acquire a 1 0 3M 0 try 0 0 ch PUBLISH t 0", "-1"),
        ("", "+acquire a 1 0 3M soon try 9007199254740991 0 ch PUBLISH t 0", "1"),
        (READER, "+acquire a 65535 0 3M soon try 0 0 ch PUBLISH t 0", "1"),
        (WRITER, "+acquire a 0 65535 3M soon try 0 0 ch PUBLISH t 0", "1"),
        (READER, "+release a 65535 0 ch PUBLISH t", "2"),
        (WRITER, "+release a 0 65535 ch PUBLISH t", "2"),
        (WRITER, "+downgrade a 65535 86400000 ch PUBLISH t", "1"),
        (WRITER, "+downgrade a 1 1 ch PUBLISH t", "1"),
        (WRITER, "+downgrade a 1 3 ch PUBLISH t", "1"),
        (READER, "upgrade a u 86400000 soon 0", "1"),
        (READER, "upgrade a u 1 soon 0", "1"),
        (READER, "upgrade a u 3 soon 0", "1"),
        (READER, "upgrade a u 1 0 0", "-1"),
        (READER, "renew soon a 86400000", "1"),
        (READER, "renew soon a 1", "1"),
        (READER, "renew 0 a 1", "-1"),
        (WRITER, "+release_at a 9007199254740991 86400000 ch PUBLISH t", "2"),
        (WRITER, "+release_at a 9007199254740991 1 ch PUBLISH t", "2"),
        (WRITER, "+release_at a 0 1 ch PUBLISH t", "1"),
        (READER, "+force_release a 9007199254740991 ch PUBLISH t client", "1"),
        (READER, "+force_release a 0 ch PUBLISH t client", "-1"),
    ] {
        set_up(memory, state);
        let seen = observe(memory, &parse_call(call), &mut Times::default());
        assert_eq!(seen.reply.split(' ').next(), Some(code), "{call}: {seen:?}");
    }
}

fn check_numbers_of_keys(memory: &mut Memory) {
    // Each with as few keys as there may be, and with as many, and the argument that counts them.
    for (fewest, most, place) in [
        (
            "acquire a 0 1 3M soon try 0 0 ch PUBLISH t 1 b",
            "+acquire a 0 1 3M soon try 0 0 ch PUBLISH t 1 b",
            12,
        ),
        ("upgrade a u 3M soon 1 b", "upgrade a u 3M soon 1 b", 5),
        ("renew soon a 9M b 9M", "renew soon a 9M b 9M", 5),
    ] {
        let (fewest, most) = (parse_call(fewest), parse_call(most));
        let (fewest_keys, most_keys): (Vec<_>, Vec<_>) =
            (fewest.keys.iter().collect(), most.keys.iter().collect());
        for keys in [&fewest_keys[1..], &[&most_keys[..], &["more"]].concat()] {
            set_up(memory, "lock={mode:read,a:1}@5");
            let call = ScriptCall::new(most.script, keys.iter().collect(), most.args.clone());
            let seen = observe(memory, &call, &mut Times::default());
            assert_eq!(seen.reply, format!("-9 T {place}"), "{call:?}");
        }
    }
    // One reader more than it says.
    for (text, place) in [
        ("+acquire a 0 1 3M soon try 0 0 ch PUBLISH t 1 b c", 12),
        ("acquire a 0 1 3M soon try 0 0 ch PUBLISH t 0 b", 12),
        ("upgrade a u 3M soon 1 b c", 5),
    ] {
        let call = parse_call(text);
        let keys: Vec<&str> = call.keys.iter().take(call.keys.len() - 1).collect();
        let call = ScriptCall::new(call.script, keys.iter().collect(), call.args.clone());
        let seen = observe(memory, &call, &mut Times::default());
        assert_eq!(seen.reply, format!("-9 T {place}"), "{call:?}");
    }
    // Without the arguments of the last hold.
    let renewal = parse_call("renew soon a 9M b 9M");
    let (keys, args) = (renewal.keys.iter().take(3), renewal.args.iter().take(4));
    let call = ScriptCall::new(renewal.script, keys.collect(), args.collect());
    let seen = observe(memory, &call, &mut Times::default());
    assert_eq!(seen.reply, "-9 T 4");
}

/// The name stays taken for whole milliseconds, and never ends before its time.
fn check_kept(memory: &mut Memory) {
    const READERS: &str = "lock={mode:read,a:1,b:1}@5 t:a:rwlock_timeout:1=1@5";
    for (left_us, kept) in [(-1, None), (0, None), (1, Some(1)), (1_000, Some(1)), (1_001, Some(2))]
    {
        let free_at = memory.next_time() + left_us;
        let text = format!("+release_at a {free_at} 9M ch PUBLISH t");
        set_up(memory, "lock={mode:write,a:write:1}@5");
        let seen = observe(memory, &parse_call(&text), &mut Times::default());
        assert_eq!(pttl(memory, "lock"), kept, "{left_us}");
        assert_eq!(kept.is_none(), seen.keys.is_empty(), "{left_us}: {seen:?}");

        let free_at = memory.next_time() + left_us;
        let text = format!("+release_at a {free_at} 9M ch PUBLISH t");
        set_up(memory, READERS);
        memory.run(&parse_call(&text)).unwrap();
        assert_eq!(pttl(memory, "t:a:rwlock_timeout:1"), kept, "{left_us}");
    }
}

/// The timeout key may be left out with the line: a writer has none.
fn check_lock_alone(memory: &mut Memory) {
    for (state, text, reply, after, published) in [
        (
            "line=(b:5)@12s lock={mode:write,a:write:1}@5",
            "release a 0 0 ch PUBLISH t",
            "1 T 1",
            "line=(b:5)@12s",
            "ch=1",
        ),
        (
            "lock={mode:write,a:write:1,a:2}@5 t:a:rwlock_timeout:1=1@5",
            "release a 0 1 ch PUBLISH t",
            "2 T",
            "lock={mode:write,a:write:1}@5 t:a:rwlock_timeout:1=1@5",
            "",
        ),
        (
            "lock={mode:write,a:write:1}@5",
            "release_at a soon 3M ch PUBLISH t",
            "2 T 1",
            "lock={mode:write,a:kept:write:0}@3",
            "ch=1",
        ),
        (
            "lock={mode:write,a:write:1}@5",
            "force_release a soon ch PUBLISH t client",
            "1 T 1",
            "",
            "ch=1 client=lock",
        ),
    ] {
        set_up(memory, state);
        let call = parse_call(text);
        let call = ScriptCall::new(call.script, ["lock"].into(), call.args.clone());
        let seen = observe(memory, &call, &mut Times::default());
        assert_eq!(
            (&*seen.reply, &*seen.keys, &*seen.published),
            (reply, after, published),
            "{text} in [{state}]"
        );
    }
}

/// The last token may be of this very microsecond.
fn check_equal_token(memory: &mut Memory) {
    for lock in ["", "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5"] {
        let last = memory.next_time();
        set_up(memory, &format!("fence={last} {lock}"));
        let seen = observe(memory, &parse_call(FREE), &mut Times::default());
        assert_eq!(seen.reply, format!("1 T {}", last + 1));
    }
    let last = memory.next_time();
    set_up(memory, &format!("fence={last} lock={{mode:read,a:1}}@5 t:a:rwlock_timeout:1=1@5"));
    let seen = observe(memory, &parse_call(UPGRADE), &mut Times::default());
    assert_eq!(seen.reply, format!("1 T {}", last + 1));
}

fn pttl(memory: &mut Memory, key: &str) -> Option<i64> {
    memory.dump().into_iter().find(|dumped| dumped.key == key).and_then(|dumped| dumped.pttl)
}

fn check_lives(memory: &mut Memory) {
    // A ticket that is equal to the last one in line goes behind it.
    let last = memory.next_time();
    set_up(memory, &format!("line=(c:{last})@5 {WRITER}"));
    let first = parse_call("+acquire a 1 0 3M soon first 0 1 ch PUBLISH t 0");
    let seen = observe(memory, &first, &mut Times::default());
    assert_eq!(seen.reply, format!("0 T @5 b:write {} 1", last + 1));
    assert_eq!(pttl(memory, "line"), Some(12_000));
    set_up(memory, WRITER);
    memory.run(&first).unwrap();
    assert_eq!(pttl(memory, "line"), Some(12_000));

    for call in [GIVES_UP, KEPT_TOO_LATE, TAKES_AWAY] {
        set_up(memory, "line=(b:5)@5 lock={mode:write,a:write:1}@5");
        memory.run(&parse_call(call)).unwrap();
        assert_eq!(pttl(memory, "lock"), Some(1_500));
        assert_eq!(pttl(memory, "t:b:rwlock_timeout:1"), Some(1_500));
    }
    set_up(memory, "line=(b:write:5)@5");
    memory.run(&parse_call(WRITES)).unwrap();
    assert_eq!(pttl(memory, "lock"), Some(1_500));
    // A downgrade leaves at least as much.
    set_up(memory, "line=(b:5)@5 lock={mode:write,a:write:1}@5");
    let value = memory.dump().into_iter().find(|dumped| dumped.key == "lock").unwrap().value;
    memory.plant("lock", &value, Some(500));
    memory.run(&parse_call("+downgrade a 1 600 ch PUBLISH t")).unwrap();
    assert_eq!(pttl(memory, "lock"), Some(1_500));
    assert_eq!(pttl(memory, "t:a:rwlock_timeout:1"), Some(600));
    assert_eq!(pttl(memory, "t:b:rwlock_timeout:1"), Some(1_500));
    // Where Redis refuses to let the lock live for longer, the reservation ends with it.
    for (call, code) in [(GIVES_UP, 0), ("+acquire a 0 1 3M soon first 0 1 ch PUBLISH t 0", 0)] {
        set_up(memory, "line=(a:write:4,b:5)@5 lock={mode:read,c:1}@5");
        let value = memory.dump().into_iter().find(|dumped| dumped.key == "lock").unwrap().value;
        memory.plant("lock", &value, Some(1_400));
        memory.keyspace.refuse_commands(&["PEXPIRE"], "NOPERM no");
        let seen = observe(memory, &parse_call(call), &mut Times::default());
        assert_eq!(seen.reply.split(' ').next(), Some(&*code.to_string()), "{call}: {seen:?}");
    }
    set_up(memory, "line=(b:5)@5 lock={mode:read,c:1}@5");
    let value = memory.dump().into_iter().find(|dumped| dumped.key == "lock").unwrap().value;
    memory.plant("lock", &value, Some(1_400));
    memory.keyspace.refuse_commands(&["PEXPIRE"], "NOPERM no");
    let seen = observe(
        memory,
        &parse_call("+acquire a 1 0 1000 soon try 0 0 ch PUBLISH t 0"),
        &mut Times::default(),
    );
    assert_eq!((&*seen.reply, &*seen.published), ("1 T T", "ch=b"));
    // What others have for less lasts as long as what is reserved, even where that is refused.
    for call in [KEPT_TOO_LATE, TAKES_AWAY] {
        set_up(memory, "line=(b:5)@5 lock={mode:read,a:1,c:1}@5");
        let value = memory.dump().into_iter().find(|dumped| dumped.key == "lock").unwrap().value;
        memory.plant("lock", &value, Some(1_400));
        memory.keyspace.refuse_commands(&["PEXPIRE"], "NOPERM no");
        let seen = observe(memory, &parse_call(call), &mut Times::default());
        assert_eq!(seen.reply, "1 T 1", "{call}");
    }
    // A lock that readers have for less lasts as long as what is reserved.
    for (left, lasts) in [(1_400, 1_500), (1_600, 1_600)] {
        set_up(memory, "line=(a:write:4,b:5)@5 lock={mode:read,c:1}@5");
        let value = memory.dump().into_iter().find(|dumped| dumped.key == "lock").unwrap().value;
        memory.plant("lock", &value, Some(left));
        memory.run(&parse_call(GIVES_UP)).unwrap();
        let left = pttl(memory, "lock").unwrap();
        assert!((lasts - 1..=lasts).contains(&left), "{left}");
    }
}

/// So many writers that were not heard of for long leave the line at once, and the readers behind them
/// go.
fn check_silent(memory: &mut Memory) {
    for (writers, left) in [(63, 0), (64, 0), (65, 1)] {
        let places: Vec<String> =
            (1..=writers).map(|number| format!("w{number}:write:{number}")).collect();
        set_up(memory, &format!("line=({},z1:6000)@5 lock={{mode:read,b:1}}@5", places.join(",")));
        let call = parse_call(&WAITS.replace("again 6", "again 5000"));
        let seen = observe(memory, &call, &mut Times::default());
        let expected = if left == 0 { ("1 T T", "ch=z1") } else { ("0 T @5 b 5000 1", "") };
        assert_eq!((&*seen.reply, &*seen.published), expected, "{writers}");
    }
}

/// The lock stands in the place of the timeout key, which a hold without reads does not have.
fn check_lock_twice(memory: &mut Memory) {
    set_up(memory, "lock={mode:write,a:write:1}@5");
    let keys = ["lock", "lock"].into_iter().map(str::to_owned).collect();
    let call = ScriptCall { keys, ..parse_call("renew soon a 9M") };
    let seen = observe(memory, &call, &mut Times::default());
    assert_eq!((&*seen.reply, &*seen.keys), ("1 T 1", "lock={mode:write,a:write:1}@9"));
}

fn check_told(memory: &mut Memory) {
    for (readers, told) in [(15, 15), (16, 16), (17, 16), (40, 16)] {
        let fields: Vec<String> = (0..readers).map(|number| format!("r{number}:1")).collect();
        set_up(memory, &format!("lock={{mode:read,{}}}@5", fields.join(",")));
        let seen = observe(memory, &parse_call(WRITES), &mut Times::default());
        let names: Vec<&str> = seen.reply.split(' ').skip(7).collect();
        assert_eq!(names.len(), told, "{readers}: {}", seen.reply);
        assert!(names.iter().all(|name| name.starts_with('r')), "{}", seen.reply);

        // The mode may be anywhere among them.
        set_up(memory, &format!("lock={{{},mode:read}}@5", fields.join(",")));
        let seen = observe(memory, &parse_call(WRITES), &mut Times::default());
        assert_eq!(seen.reply.split(' ').skip(7).count(), told, "{readers}: {}", seen.reply);
        set_up(
            memory,
            &format!("lock={{a:1,{},mode:read}}@5 t:a:rwlock_timeout:1=1@5", fields.join(",")),
        );
        let seen = observe(memory, &parse_call(UPGRADE), &mut Times::default());
        assert_eq!(seen.reply.split(' ').skip(3).count(), 16.min(readers + 1), "{}", seen.reply);

        let keys = format!("lock={{mode:read,a:1,{}}}@5", fields.join(","));
        set_up(memory, &format!("{keys} t:a:rwlock_timeout:1=1@5"));
        let seen = observe(memory, &parse_call(UPGRADE), &mut Times::default());
        let seen_by_all = observe(memory, &parse_call("inspect"), &mut Times::default());
        let shown: Vec<&str> = seen_by_all.reply.split(' ').skip(3).collect();
        assert_eq!((shown[0], shown[3]), (&*(readers + 1).to_string(), "read"));
        let names: Vec<&str> = seen.reply.split(' ').skip(3).collect();
        assert_eq!(names.len(), 16.min(readers + 1), "{readers}: {}", seen.reply);
        assert!(!names.contains(&"mode"), "{}", seen.reply);
    }
}

fn check_many_places(memory: &mut Memory) {
    for (readers, reserved) in [(999, 999), (1_000, 1_000), (1_001, 1_000)] {
        let places: Vec<String> =
            (1..=readers).map(|number| format!("r{number}:{number}")).collect();
        for (state, call) in [
            ("", WRITES),
            ("lock={mode:read,a:1}@5", GIVES_UP),
            ("lock={mode:read,a:1}@5", KEPT_TOO_LATE),
            ("lock={mode:read,a:1}@5", TAKES_AWAY),
        ] {
            set_up(memory, &format!("line=({})@5 {state}", places.join(",")));
            let call = parse_call(&call.replace("again 6", "again 5000"));
            let seen = observe(memory, &call, &mut Times::default());
            let told = seen.published.trim_end_matches(" client=lock");
            assert_eq!(told.split(' ').count(), reserved, "{call:?}");
        }
    }
    for (before, reserved) in [(999, true), (1_000, false)] {
        let mut places: Vec<String> =
            (0..before).map(|number| format!("w{number}:write:{}", number + 1)).collect();
        places.push("r:2000".to_owned());
        for (call, first) in [(GIVES_UP, "ch=w0:write"), (DOWNGRADE, "ch=1")] {
            set_up(
                memory,
                &format!("line=({})@5 lock={{mode:write,a:write:1}}@5", places.join(",")),
            );
            let seen = observe(memory, &parse_call(call), &mut Times::default());
            assert_eq!(seen.published, if reserved { "ch=r" } else { first }, "{before}");
        }
    }
}
