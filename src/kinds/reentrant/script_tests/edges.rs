//! What only the embedded Lua can be made to do: one command refused, for one key even, and
//! instants that are exactly equal.

use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::memory::store::Stored;
use crate::backend::words::Words;
use crate::kinds::command::PERMISSIONS;
use crate::kinds::reentrant::script_tests::parse_call;
use crate::kinds::script_tests::Edge;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::observe;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::text::Times;

pub(super) const CHECKS: &[Edge] = &[
    ("a_refusal_is_told_in_redis_own_words", check_refusals),
    ("the_last_moment_counts", check_last_moment),
    ("limits_are_allowed", check_limits),
    ("a_token_follows_an_equal_one", check_equal_token),
    ("a_lock_that_cannot_be_reserved_is_free", check_passing_on),
    ("a_ticket_is_behind_all_others", check_tickets),
    ("reservations_and_lines_live_for_their_times", check_lives),
    ("a_name_is_kept_for_exactly_the_rest", check_rest),
    ("a_server_that_cannot_tell_permissions_says_so", check_no_permissions),
    ("a_clock_that_went_back_does_not_bring_tokens_back", check_clock_step),
];

/// State, call, which command it is refused, reply, state afterwards (`=`: the same), published.
type Refusal = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

const REFUSALS: &[Refusal] = &[
    // Whoever waits goes without a place, or keeps the one that it has.
    ("lock={b:1}@5", "+acquire a 1 3M soon first 0 1", "ZADD", "0 T @5 b T 0", "=", ""),
    ("lock={b:1}@5", "+acquire a 1 3M soon first 0 1", "PEXPIRE", "0 T @5 b T 0", "=", ""),
    (
        "line=(a:5)@5 lock={b:1}@5",
        "+acquire a 1 3M soon again 5 1 ch PUBLISH",
        "PEXPIRE",
        "0 T @5 b 5 0",
        "=",
        "",
    ),
    (
        "line=(a:5)@5 lock={b:1}@5",
        "+acquire a 1 3M soon again 5 0 ch PUBLISH",
        "ZREM",
        "0 T @5 b 5 0",
        "=",
        "",
    ),
    // What it is told is read first.
    ("lock={b:1}@5", "+acquire a 1 3M soon first 0 1", "TYPE", "! NOPERM no", "=", ""),
    ("lock={b:1}@5", "+acquire a 1 3M soon first 0 1", "ZSCORE", "! NOPERM no", "=", ""),
    ("lock={b:1}@5", "+acquire a 1 3M soon first 0 1", "ZRANGE", "! NOPERM no", "=", ""),
    ("lock={b:1}@5", "+acquire a 1 3M soon first 0 1", "ZCOUNT", "! NOPERM no", "=", ""),
    ("line=(b:5)@5", "+acquire a 1 3M soon again 6 1 ch PUBLISH", "ZRANGE", "! NOPERM no", "=", ""),
    ("line=(b:5)@5", "+acquire a 1 3M soon again 6 1 ch PUBLISH", "ZSCORE", "! NOPERM no", "=", ""),
    ("line=(b:5)@5", "+acquire a 1 3M soon again 6 1 ch PUBLISH", "ZCOUNT", "! NOPERM no", "=", ""),
    // The lock cannot be reserved for another: who asks is granted, and leaves the line.
    (
        "line=(b:5,a:6)@5",
        "+acquire a 1 3M soon again 6 1 ch PUBLISH",
        "PUBLISH",
        "1 T T",
        "fence=T line=(b:5)@5 lock={a:1}@3",
        "",
    ),
    (
        "line=(b:5,a:6)@5",
        "+acquire a 1 3M soon again 6 1 ch PUBLISH",
        "ZREM",
        "1 T T",
        "fence=T line=(b:5,a:6)@5 lock={a:1}@3",
        "ch=b",
    ),
    (
        "line=(b:5,a:6)@5",
        "+acquire a 1 3M soon again 6 1 ch PUBLISH",
        "PEXPIRE",
        "! NOPERM no",
        "fence=T line=(b:5,a:6)@5",
        "ch=b",
    ),
    (
        "line=(b:5,a:6)@5",
        "+acquire a 1 3M soon again 6 1 ch PUBLISH",
        "HSET",
        "! NOPERM no",
        "fence=T line=(a:6)@5",
        "ch=b",
    ),
    (
        "line=(b:5)@5",
        "+acquire a 1 3M soon again 6 1 ch PUBLISH",
        "ZADD",
        "0 T @1.5s b 6 0",
        "lock={b:0}@1.5s",
        "ch=b",
    ),
    (
        "line=(a:5,b:6)@5",
        "+acquire a 1 3M soon again 5 1 ch PUBLISH",
        "ZREM",
        "1 T T",
        "fence=T line=(a:5,b:6)@5 lock={a:1}@3",
        "",
    ),
    // A pick-up that is refused.
    ("lock={a:0}@1.5s", "acquire a 1 3M soon try 0 0", "SET", "! NOPERM no", "=", ""),
    (
        "lock={a:0}@1.5s",
        "acquire a 1 3M soon try 0 0",
        "HSET",
        "! NOPERM no",
        "fence=T lock={a:0}@1.5s",
        "",
    ),
    (
        "lock={a:0}@1.5s",
        "acquire a 1 3M soon try 0 0",
        "PEXPIRE",
        "! NOPERM no",
        "fence=T lock={a:1}@1.5s",
        "",
    ),
    // A freed lock cannot be reserved: all may try.
    (
        "line=(b:5)@5 lock={a:1}@5",
        "+release a 0 ch PUBLISH",
        "PUBLISH",
        "1 T -1",
        "line=(b:5)@5",
        "",
    ),
    (
        "line=(b:5)@5 lock={a:1}@5",
        "+release a 0 ch PUBLISH",
        "PEXPIRE",
        "1 T 1",
        "line=(b:5)@5",
        "ch=b ch=0",
    ),
    (
        "line=(b:5)@5 lock={a:1}@5",
        "+release a 0 ch PUBLISH",
        "ZREM",
        "1 T 1",
        "line=(b:5)@5",
        "ch=b ch=0",
    ),
    ("line=(b:5)@5 lock={a:1}@5", "+release a 0 ch PUBLISH", "HSET", "1 T 1", "", "ch=b ch=0"),
    (
        "line=(b:5)@5 lock={a:1}@5",
        "+release a 0 ch PUBLISH",
        "ZRANGE",
        "1 T 1",
        "line=(b:5)@5",
        "ch=0",
    ),
    ("line=(b:5)@5 lock={a:1}@5", "+release a 0 ch PUBLISH", "HDEL", "! NOPERM no", "=", ""),
    // A place that cannot be given up is told, and nothing else is done.
    ("line=(a:5,b:6)@5", "+release a 0 ch PUBLISH", "ZREM", "! NOPERM no (ZREM)", "=", ""),
    ("line=(a:5)@5 lock={c:1}@5", "+release a 0 ch PUBLISH", "ZREM", "! NOPERM no (ZREM)", "=", ""),
    ("lock={c:1}@5", "+release a 0 ch PUBLISH", "ZREM", "-3 T", "=", ""),
    ("line=text lock={c:1}@5", "+release a 0 ch PUBLISH", "ZREM", "-3 T", "=", ""),
    ("", "+release a 0 ch PUBLISH", "ZREM", "0 T", "=", ""),
    ("", "release a 0 ch PUBLISH", "HDEL", "0 T", "=", ""),
    ("line=(b:5)@5", "+release a 0 ch PUBLISH", "ZRANGE", "0 T", "=", ""),
    ("line=(b:5)@5", "+release a 0 ch PUBLISH", "PUBLISH", "0 T", "=", ""),
    ("line=(b:5)@5", "+release a 0 ch PUBLISH", "PEXPIRE", "0 T", "=", "ch=b"),
    (
        "line=(b:5)@5 lock={a:1}@5",
        "+release_many PUBLISH a ch",
        "PUBLISH",
        "1 T -1",
        "line=(b:5)@5",
        "",
    ),
    (
        "line1=(x:5)@5 line2=(y:6)@5 lock1={a:1}@5 lock2={b:1}@5",
        "+release_many PUBLISH a ch b ch",
        "ZRANGE line1",
        "1 T 1 1",
        "line1=(x:5)@5 lock2={y:0}@1.5s",
        "ch=0 ch=y",
    ),
    // The first in line cannot have it: `to` has.
    (
        "line=(c:5)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "PUBLISH",
        "1 T T",
        "fence=T line=(c:5)@5 lock={b:1}@3",
        "",
    ),
    (
        "line=(c:5)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "ZREM",
        "1 T T",
        "fence=T line=(c:5)@5 lock={b:1}@3",
        "ch=c",
    ),
    (
        "line=(c:5)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "ZRANGE",
        "1 T T",
        "fence=T line=(c:5)@5 lock={b:1}@3",
        "",
    ),
    (
        "line=(c:5)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "ZADD",
        "5 T @1.5s c T 0",
        "fence=T lock={c:0}@1.5s",
        "ch=c",
    ),
    (
        "line=(c:5,d:6)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "PEXPIRE line",
        "5 T @1.5s c T 1",
        "fence=T line=(d:6)@5 lock={c:0}@1.5s",
        "ch=c",
    ),
    // Nobody can.
    (
        "line=(c:5)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "HSET",
        "2 T 1",
        "fence=T",
        "ch=c ch=0",
    ),
    (
        "line=(c:5)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 0 1",
        "PEXPIRE",
        "2 T 1",
        "fence=T line=(c:5)@5",
        "ch=c ch=0",
    ),
    // Where `to` would stand is read first.
    (
        "line=(c:5)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "ZSCORE",
        "! NOPERM no",
        "=",
        "",
    ),
    (
        "line=(c:5)@5 lock={a:1}@5",
        "+hand_off a b 3M soon ch PUBLISH 1 1",
        "ZCOUNT",
        "! NOPERM no",
        "=",
        "",
    ),
    (
        "line=(b:5)@5 lock={a:1}@5",
        "+force_release a soon ch PUBLISH client",
        "ZREM",
        "1 T 1",
        "line=(b:5)@5",
        "ch=b ch=0 client=lock",
    ),
    ("lock={a:1}@5", "acquire a 1 3M soon try 0 0", "HGET", "! NOPERM no (HGET)", "=", ""),
    ("lock={b:1}@5", "acquire a 2 3M soon try 0 0", "HGET", "! NOPERM no (HGET)", "=", ""),
    ("lock=text@5", "acquire a 1 3M soon try 0 0", "HGET", "-4 T 1", "=", ""),
    ("", "acquire a 1 3M soon try 0 0", "HGET", "1 T T", "fence=T lock={a:1}@3", ""),
    ("", "acquire a 1 3M soon try 0 0", "GET", "! NOPERM no (GET)", "=", ""),
    ("fence=7", "acquire a 1 3M soon try 0 0", "GET", "! NOPERM no (GET)", "=", ""),
    ("fence=[1]", "acquire a 1 3M soon try 0 0", "GET", "-4 T 5", "=", ""),
    ("", "acquire a 1 3M soon try 0 0", "PEXPIRE", "! NOPERM no", "fence=T", ""),
    ("", "acquire a 1 3M soon try 0 0", "HSET", "! NOPERM no", "fence=T", ""),
    (
        "lock={a:1}@2",
        "acquire a 1 3M soon try 0 0",
        "PEXPIRE",
        "! NOPERM no",
        "fence=T lock={a:1}@2",
        "",
    ),
    ("lock={a:1}@5", "release a 0 ch PUBLISH", "HLEN", "! NOPERM no (HLEN)", "=", ""),
    ("", "release a 0 ch PUBLISH", "HLEN", "! NOPERM no (HLEN)", "=", ""),
    ("lock=text@5", "release a 0 ch PUBLISH", "HLEN", "-3 T", "=", ""),
    ("lock={a:3}@5", "release a 1 ch PUBLISH", "HSET", "! NOPERM no", "=", ""),
    ("lock={a:1}@5", "release a 0 ch PUBLISH", "HDEL", "! NOPERM no", "=", ""),
    ("lock={a:1}@5", "release a 0 ch PUBLISH", "PUBLISH", "1 T -1", "", ""),
    ("lock={a:1,data:x}@5", "release a 0 ch PUBLISH", "PUBLISH", "3 T -1", "lock={data:x}", ""),
    (
        "lock={a:1,data:x}@5",
        "release a 0 ch PUBLISH",
        "PERSIST",
        "4 T 1",
        "lock={data:x}@5",
        "ch=0",
    ),
    (
        "lock={a:1,data:x}@5",
        "release a 0 ch PUBLISH",
        "HEXISTS",
        "4 T 1",
        "lock={data:x}@5",
        "ch=0",
    ),
    ("lock={a:1}@5", "release_many PUBLISH a ch", "HLEN", "1 T -5", "=", ""),
    ("lock={a:1}@5", "release_many PUBLISH a ch", "HDEL", "1 T -5", "=", ""),
    ("lock={a:1}@5", "release_many PUBLISH a ch", "PUBLISH", "1 T -1", "", ""),
    (
        "lock1={a:1}@5 lock2={b:1}@5",
        "release_many PUBLISH a ch b ch",
        "HDEL lock1",
        "1 T -5 1",
        "lock1={a:1}@5",
        "ch=0",
    ),
    (
        "lock1={a:1}@5 lock2={b:1}@5",
        "release_many PUBLISH a ch b ch",
        "HLEN lock2",
        "1 T 1 -5",
        "lock2={b:1}@5",
        "ch=0",
    ),
    ("lock={a:1}@5", "release_at a soon 3M ch PUBLISH", "HLEN", "! NOPERM no (HLEN)", "=", ""),
    ("", "release_at a soon 3M ch PUBLISH", "HLEN", "! NOPERM no (HLEN)", "=", ""),
    ("lock=text@5", "release_at a soon 3M ch PUBLISH", "HLEN", "-3 T", "=", ""),
    ("lock={a:1}@5", "release_at a soon 3M ch PUBLISH", "HGET", "! NOPERM no", "=", ""),
    ("lock={a:1}@5", "release_at a soon 3M ch PUBLISH", "HDEL", "! NOPERM no", "=", ""),
    ("lock={a:1}@5", "release_at a soon 3M ch PUBLISH", "PEXPIRE", "! NOPERM no", "=", ""),
    // The name stays taken for the rest all the same.
    ("lock={a:1}@5", "release_at a soon 3M ch PUBLISH", "HSET", "! NOPERM no", "lock={a:1}@3", ""),
    (
        "lock={a:1}@5",
        "release_at a soon 3M ch PUBLISH",
        "PUBLISH",
        "2 T -1",
        "lock={a:kept:0}@3",
        "",
    ),
    ("lock={a:1}@5", "release_at a late 3M ch PUBLISH", "PUBLISH", "1 T -1", "", ""),
    (
        "lock={a:1,data:x}@5",
        "release_at a soon 3M ch PUBLISH",
        "PUBLISH",
        "3 T -1",
        "lock={data:x}",
        "",
    ),
    (
        "lock={a:1,data:x}@5",
        "release_at a soon 3M ch PUBLISH",
        "PERSIST",
        "4 T 1",
        "lock={data:x}@5",
        "ch=0",
    ),
    (
        "lock={a:1,data:x}@5",
        "release_at a soon 3M ch PUBLISH",
        "HEXISTS",
        "4 T 1",
        "lock={data:x}@5",
        "ch=0",
    ),
    ("lock={a:1}@5", "renew soon a 9M", "HGET", "! NOPERM no (HGET)", "=", ""),
    ("", "renew soon a 9M", "HGET", "! NOPERM no (HGET)", "=", ""),
    ("lock=text@5", "renew soon a 9M", "HGET", "1 T -3", "=", ""),
    ("lock={a:1}@5", "renew soon a 9M", "PEXPIRE", "! NOPERM no (PEXPIRE)", "=", ""),
    (
        "lock1={a:1}@5 lock2={b:1}@5",
        "renew soon a 9M b 9M",
        "HGET lock1",
        "1 T -5 1",
        "lock1={a:1}@5 lock2={b:1}@9",
        "",
    ),
    (
        "lock1={a:1}@5 lock2={b:1}@5",
        "renew soon a 9M b 9M",
        "PEXPIRE lock1",
        "1 T -5 1",
        "lock1={a:1}@5 lock2={b:1}@9",
        "",
    ),
    (
        "lock1={a:1}@5 lock2={b:1}@5",
        "renew soon a 9M b 9M",
        "PEXPIRE lock2",
        "1 T 1 -5",
        "lock1={a:1}@9 lock2={b:1}@5",
        "",
    ),
    ("lock={a:1}@5", "hand_off a b 3M soon ch PUBLISH 0 0", "HLEN", "! NOPERM no (HLEN)", "=", ""),
    ("", "hand_off a b 3M soon ch PUBLISH 0 0", "HLEN", "! NOPERM no (HLEN)", "=", ""),
    ("lock=text@5", "hand_off a b 3M soon ch PUBLISH 0 0", "HLEN", "-3 T", "=", ""),
    ("lock={b:1}@5", "hand_off a b 3M soon ch PUBLISH 0 0", "GET", "! NOPERM no (GET)", "=", ""),
    ("lock={a:1}@5", "hand_off a b 3M soon ch PUBLISH 0 0", "GET", "2 T 1", "", "ch=0"),
    ("lock={a:1}@5", "hand_off a b 3M soon ch PUBLISH 0 0", "HSET", "2 T 1", "fence=T", "ch=0"),
    ("lock={a:1}@5", "hand_off a b 3M soon ch PUBLISH 0 0", "PEXPIRE", "2 T 1", "fence=T", "ch=0"),
    (
        "lock={a:1}@5",
        "hand_off a b 3M soon ch PUBLISH 0 0",
        "HDEL",
        "! NOPERM no",
        "fence=T lock={a:1}@5",
        "",
    ),
    ("lock={a:1}@5", "hand_off a b 3M late ch PUBLISH 0 0", "PUBLISH", "-1 T -1", "", ""),
    (
        "lock={a:1,data:x}@5",
        "hand_off a b 3M soon ch PUBLISH 0 0",
        "PERSIST",
        "4 T 1",
        "lock={data:x}@5",
        "ch=0",
    ),
    (
        "lock={a:1,data:x}@5",
        "hand_off a b 3M soon ch PUBLISH 0 0",
        "HEXISTS",
        "4 T 1",
        "lock={data:x}@5",
        "ch=0",
    ),
    ("lock={a:1}@5", "raise a 12", "HGET", "! NOPERM no (HGET)", "=", ""),
    ("", "raise a 12", "HGET", "! NOPERM no (HGET)", "=", ""),
    ("lock=text@5", "raise a 12", "HGET", "0 T", "=", ""),
    ("fence=7 lock={a:1}@5", "raise a 12", "GET", "! NOPERM no (GET)", "=", ""),
    ("lock={a:1}@5", "raise a 12", "GET", "! NOPERM no (GET)", "=", ""),
    ("fence=[1] lock={a:1}@5", "raise a 12", "GET", "-4 T 5", "=", ""),
    ("fence=7 lock={a:1}@5", "raise a 12", "SET", "! NOPERM no", "=", ""),
    (
        "lock={a:1}@5",
        "force_release a soon ch PUBLISH client",
        "HLEN",
        "! NOPERM no (HLEN)",
        "=",
        "",
    ),
    ("", "force_release a soon ch PUBLISH client", "HLEN", "! NOPERM no (HLEN)", "=", ""),
    ("lock=text@5", "force_release a soon ch PUBLISH client", "HLEN", "-3 T", "=", ""),
    ("lock={a:1}@5", "force_release a soon ch PUBLISH client", "HDEL", "! NOPERM no", "=", ""),
    (
        "lock={a:1}@5",
        "force_release a soon ch PUBLISH client",
        "PUBLISH ch",
        "1 T -1",
        "",
        "client=lock",
    ),
    (
        "lock={a:1}@5",
        "force_release a soon ch PUBLISH client",
        "PUBLISH client",
        "1 T -1",
        "",
        "ch=0",
    ),
    (
        "lock={a:1,data:x}@5",
        "force_release a soon ch PUBLISH client",
        "PERSIST",
        "4 T 1",
        "lock={data:x}@5",
        "ch=0 client=lock",
    ),
    (
        "lock={a:1,data:x}@5",
        "force_release a soon ch PUBLISH client",
        "HEXISTS",
        "! NOPERM no",
        "=",
        "",
    ),
];

fn check_refusals(memory: &mut Memory) {
    for &(state, call, refused, reply, after, published) in REFUSALS {
        set_up(memory, state);
        memory.keyspace.refuse_commands(&[refused], "NOPERM no");
        let time = memory.next_time();
        let seen = observe(memory, &parse_call(call), &mut Times::default());
        let after = if after == "=" { state } else { after };
        // An error carries no time that `T` could stand for.
        let after = if reply.starts_with('!') {
            after.replace("=T", &format!("={time}"))
        } else {
            after.to_owned()
        };
        let what = format!("{call} without {refused} in [{state}]");
        assert_eq!(
            (&*seen.reply, &*seen.keys, &*seen.published),
            (reply, &*after, published),
            "{what}"
        );
    }
}

/// Whichever script frees the lock, and whichever command it is refused for that.
fn check_passing_on(memory: &mut Memory) {
    const STATE: &str = "line=(b:5,c:6)@5 lock={a:1}@5";
    const BOTH: &str = "line=(b:5,c:6)@5";
    for (call, code) in [
        ("+release a 0 ch PUBLISH", 1),
        ("+release_many PUBLISH a ch", 1),
        ("+release_at a late 3M ch PUBLISH", 1),
        ("+hand_off a d 3M late ch PUBLISH 0 1", -1),
        ("+force_release a soon ch PUBLISH client", 1),
    ] {
        for (refused, receivers, after, published) in [
            ("PUBLISH ch", -1, BOTH, ""),
            ("PEXPIRE lock", 1, BOTH, "ch=b ch=0"),
            ("ZREM", 1, BOTH, "ch=b ch=0"),
            ("HSET", 1, "line=(c:6)@5", "ch=b ch=0"),
            ("ZRANGE", 1, BOTH, "ch=0"),
        ] {
            set_up(memory, STATE);
            memory.keyspace.refuse_commands(&[refused], "NOPERM no");
            let seen = observe(memory, &parse_call(call), &mut Times::default());
            let told = if call.contains("force") { "client=lock" } else { "" };
            let published = format!("{published} {told}");
            assert_eq!(
                (seen.reply, &*seen.keys, &*seen.published),
                (format!("{code} T {receivers}"), after, published.trim()),
                "{call} without {refused}"
            );
        }
    }
}

/// What carries a deadline is done at that very instant, and is late a microsecond after it.
fn check_last_moment(memory: &mut Memory) {
    for (state, call, code) in [
        ("", "acquire a 1 9M AT try 0 0", "1"),
        ("lock={a:1}@5", "acquire a 2 9M AT try 0 0", "1"),
        ("lock={a:1}@5", "renew AT a 9M", "1"),
        ("lock={a:1}@5", "hand_off a b 9M AT ch PUBLISH 0 0", "1"),
        ("lock={a:1}@5", "force_release a AT ch PUBLISH client", "1"),
    ] {
        for (early, code) in [(0, code), (1, "-1")] {
            set_up(memory, state);
            let deadline = memory.next_time() - early;
            let call = parse_call(&call.replace("AT", &deadline.to_string()));
            let seen = observe(memory, &call, &mut Times::default());
            assert_eq!(seen.reply.split(' ').next(), Some(code), "{call:?}: {seen:?}");
        }
    }
}

/// The smallest and the greatest of each argument is allowed, and counts.
fn check_limits(memory: &mut Memory) {
    for (state, call, reply, after) in [
        ("", "acquire a 1 1 soon try 0 0", "1 T T", "fence=T lock={a:1}@0"),
        ("", "acquire a 1 9M 0 try 0 0", "-1 T", ""),
        ("fence=0", "acquire a 1 9M soon try 0 0", "1 T T", "fence=T lock={a:1}@9"),
        ("lock={a:1}@5", "release_at a soon 1 ch PUBLISH", "2 T 1", "lock={a:kept:0}@0"),
        ("lock={a:1}@5", "release_at a soon 86400000 ch PUBLISH", "2 T 1", "lock={a:kept:0}@86"),
        ("lock={a:1}@5", "release_at a 0 9M ch PUBLISH", "1 T 1", ""),
        ("lock={a:1}", "renew soon a 2", "1 T 1", "lock={a:1}@0"),
        ("lock={a:1}@5", "renew soon a 86400000", "1 T 1", "lock={a:1}@86"),
        ("lock={a:1}@5", "renew 0 a 9M", "-1 T", "lock={a:1}@5"),
        ("lock={a:1}@5", "hand_off a b 1 soon ch PUBLISH 0 0", "1 T T", "fence=T lock={b:1}@0"),
        (
            "lock={a:1}@5",
            "hand_off a b 86400000 soon ch PUBLISH 0 0",
            "1 T T",
            "fence=T lock={b:1}@86",
        ),
        ("lock={a:1}@5", "hand_off a b 9M 0 ch PUBLISH 0 0", "-1 T 1", ""),
        (
            "fence=0 lock={a:1}@5",
            "hand_off a b 9M soon ch PUBLISH 0 0",
            "1 T T",
            "fence=T lock={b:1}@9",
        ),
        ("fence=-1 lock={a:1}@5", "hand_off a b 9M soon ch PUBLISH 0 0", "2 T 1", "fence=-1"),
        ("lock={a:1}@5", "force_release a 0 ch PUBLISH client", "-1 T", "lock={a:1}@5"),
        (
            "lock={b:1}@5",
            "+acquire a 1 9M soon again 9007199254740991 1 ch PUBLISH",
            "0 T @5 b 9007199254740991 0",
            "line=(a:9007199254740991)@12s lock={b:1}@5",
        ),
        (
            "lock={b:1}@5",
            "+acquire a 1 9M soon again 1 1 ch PUBLISH",
            "0 T @5 b 1 0",
            "line=(a:1)@12s lock={b:1}@5",
        ),
    ] {
        set_up(memory, state);
        let seen = observe(memory, &parse_call(call), &mut Times::default());
        assert_eq!((&*seen.reply, &*seen.keys), (reply, after), "{call} in [{state}]");
    }
    // Two milliseconds are left: still a hold like any other.
    set_up(memory, "");
    memory.plant("lock", &Stored::Hash(vec![("a".to_owned(), "1".to_owned())]), Some(2));
    let seen = observe(memory, &parse_call("acquire a 2 9M soon try 0 0"), &mut Times::default());
    assert_eq!((&*seen.reply, &*seen.keys), ("1 T 0", "lock={a:2}@9"));
    // No hold at all is a mistake of the caller's.
    for call in ["renew soon", "release_many PUBLISH"] {
        let call = ScriptCall { keys: Words::default(), ..parse_call(call) };
        assert_eq!(observe(memory, &call, &mut Times::default()).reply, "-9 T 1");
    }
}

/// Up to the microsecond at which it is to be free; whole milliseconds, and never less than the
/// rest.
fn check_rest(memory: &mut Memory) {
    for (left_us, most_ms, kept_ms) in [
        (0, 50, None),
        (1, 50, Some(1)),
        (1_000, 50, Some(1)),
        (1_001, 50, Some(2)),
        (49_000, 50, Some(49)),
        (50_000, 50, Some(50)),
        (50_001, 50, Some(50)),
    ] {
        set_up(memory, "lock={a:1}@5");
        let free_at = memory.next_time() + left_us;
        memory.run(&parse_call(&format!("release_at a {free_at} {most_ms} ch PUBLISH"))).unwrap();
        let kept = memory.dump().first().map(|dumped| dumped.pttl.unwrap());
        assert_eq!(kept, kept_ms, "{left_us} us");
    }
}

/// A reservation and a line live for exactly these times, however they came about.
fn check_lives(memory: &mut Memory) {
    for (state, call, reserved) in [
        ("line=(b:5)@5 lock={a:1}@5", "+release a 0 ch PUBLISH", true),
        ("line=(b:5)@5", "+release a 0 ch PUBLISH", true),
        ("line=(b:5)@5 lock={a:1}@5", "+release_many PUBLISH a ch", true),
        ("line=(b:5)@5 lock={a:1}@5", "+release_at a late 9M ch PUBLISH", true),
        ("line=(b:5)@5 lock={a:1}@5", "+force_release a soon ch PUBLISH client", true),
        ("line=(b:5)@5", "+acquire a 1 9M soon again 6 1 ch PUBLISH", true),
        ("line=(b:5,c:6)@5", "+acquire a 1 9M soon again 7 1 ch PUBLISH", true),
        ("line=(c:5)@5 lock={a:1}@5", "+hand_off a b 9M soon ch PUBLISH 1 1", true),
        ("lock={b:1}@5", "+acquire a 1 9M soon first 0 1", false),
        ("line=(a:5)@5 lock={b:1}@5", "+acquire a 1 9M soon first 0 1", false),
        ("line=(c:5) lock={b:1}@5", "+acquire a 1 9M soon first 0 1", false),
    ] {
        set_up(memory, state);
        memory.run(&parse_call(call)).unwrap();
        let dump = memory.dump();
        let pttl =
            |key: &str| dump.iter().find(|dumped| dumped.key == key).map(|dumped| dumped.pttl);
        if reserved {
            assert_eq!(pttl("lock"), Some(Some(1_500)), "{call} in [{state}]");
        }
        if call.contains("acquire") || call.contains("hand_off") {
            assert_eq!(pttl("line"), Some(Some(12_000)), "{call} in [{state}]");
        }
    }
    // What is told is exact as well.
    set_up(memory, "line=(b:5)@5");
    let reply = memory.run(&parse_call("+acquire a 1 9M soon again 6 1 ch PUBLISH")).unwrap();
    assert!(matches!(&reply, Value::List(list) if list[2] == Value::Int(1_500)), "{reply:?}");
    set_up(memory, "line=(c:5)@5 lock={a:1}@5");
    let reply = memory.run(&parse_call("+hand_off a b 9M soon ch PUBLISH 1 1")).unwrap();
    assert!(matches!(&reply, Value::List(list) if list[2] == Value::Int(1_500)), "{reply:?}");
}

/// A new ticket is behind all others, also if the last of them is of this very microsecond.
fn check_tickets(memory: &mut Memory) {
    for (ahead, ticket) in [(-1, 0), (0, 1), (1, 2)] {
        set_up(memory, "lock={b:1}@5");
        let now = memory.next_time();
        let last = (now + ahead) as f64;
        let places = Stored::SortedSet([(last, "c".to_owned())].into_iter().collect());
        memory.plant("line", &places, Some(9_000));
        let Ok(Value::List(reply)) = memory.run(&parse_call("+acquire a 1 9M soon first 0 1"))
        else {
            panic!("no list")
        };
        assert_eq!(reply[4..], [Value::Int(now + ticket), Value::Int(1)], "{ahead} us ahead");
        set_up(memory, "lock={a:1}@5");
        let now = memory.next_time();
        let last = (now + ahead) as f64;
        let places = Stored::SortedSet([(last, "c".to_owned())].into_iter().collect());
        memory.plant("line", &places, Some(9_000));
        let call = parse_call("+hand_off a b 9M soon ch PUBLISH 1 1");
        let Ok(Value::List(reply)) = memory.run(&call) else { panic!("no list") };
        assert_eq!(reply[4..], [Value::Int(now + ticket), Value::Int(0)], "{ahead} us ahead");
    }
}

/// The last token may be of this very microsecond.
fn check_equal_token(memory: &mut Memory) {
    for call in ["acquire a 1 9M soon try 0 0", "hand_off a b 9M soon ch PUBLISH 0 0"] {
        set_up(memory, if call.starts_with("hand") { "lock={a:1}@5" } else { "" });
        let last = memory.next_time();
        memory.plant("fence", &Stored::Text(last.to_string()), None);
        let seen = observe(memory, &parse_call(call), &mut Times::default());
        assert_eq!(seen.reply, format!("1 T {}", last + 1), "{call}");
    }
}

fn check_no_permissions(memory: &mut Memory) {
    let call = ScriptCall::new(&PERMISSIONS, Words::default(), ["get", "x"].into());
    assert_eq!(observe(memory, &call, &mut Times::default()).reply, "0 T");
}

/// Tokens do not come back with a clock that went back.
fn check_clock_step(memory: &mut Memory) {
    let mut last = 0;
    for _ in 0..3 {
        let Value::List(reply) = memory.run(&parse_call("acquire a 1 9M soon try 0 0")).unwrap()
        else {
            panic!("no list")
        };
        let Value::Int(token) = reply[2] else { panic!("no token") };
        assert!(token > last, "{token} after {last}");
        last = token;
        memory.now_us -= 3_600_000_000;
    }
}
