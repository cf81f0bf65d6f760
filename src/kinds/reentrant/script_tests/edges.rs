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
    ("a_name_is_kept_for_exactly_the_rest", check_rest),
    ("a_server_that_cannot_tell_permissions_says_so", check_no_permissions),
    ("a_clock_that_went_back_does_not_bring_tokens_back", check_clock_step),
];

/// State, call, which command it is refused, reply, state afterwards (`=`: the same), published.
type Refusal = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

const REFUSALS: &[Refusal] = &[
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
