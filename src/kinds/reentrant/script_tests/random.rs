//! Calls with any arguments, and mistakes in the scripts.

use crate::base::random::Random;

const FIELDS: &[&str] =
    &["a", "a", "a", "a", "a", "a", "b", "b", "b", "b", "b", "c", "c", "a:kept", "mode", "~"];
const COUNTS: &[&str] =
    &["1", "1", "1", "1", "1", "1", "1", "1", "1", "2", "2", "3", "65535", "0", "1.5"];
const LEASES: &[&str] =
    &["3M", "3M", "5M", "5M", "9M", "9M", "86400000", "86400000", "86400001", "0"];
const DEADLINES: &[&str] = &[
    "soon",
    "soon",
    "soon",
    "soon",
    "soon",
    "soon",
    "soon",
    "soon",
    "soon",
    "late",
    "late",
    "-1",
    "9007199254740992",
    "1.5",
];
const CHANNELS: &[&str] = &["ch", "ch", "ch", "ch", "ch", "ch", "client", "client", "nobody", "~"];
const MODES: &[&str] = &[
    "try", "try", "try", "first", "first", "first", "again", "again", "again", "again", "again",
    "again", "wait",
];
const TICKETS: &[&str] =
    &["0", "0", "0", "0", "0", "0", "5", "5", "6", "6", "7", "7", "9000000000000000", "-1"];
const HEARS: &[&str] = &["1", "1", "1", "1", "1", "1", "1", "0", "0", "0", "2"];
const LINE_FIRST: &[&str] = &["0", "0", "0", "1", "1", "1", "1", "1", "x"];
const CLIENT_CHANNELS: &[&str] = &["client", "client", "client", "nobody", "~"];
const VERBS: &[&str] =
    &["PUBLISH", "PUBLISH", "PUBLISH", "PUBLISH", "SPUBLISH", "SPUBLISH", "publish"];
pub(in crate::kinds) const PLANTS: &[&str] = &[
    "lock={a:1}@5",
    "lock={b:2}@9",
    "lock={a:1}",
    "lock={c:1,a:4}@5",
    "lock={mode:read,b:1}@5",
    "lock={kind:latch,count:3}@5",
    "lock={kind:semaphore}@5",
    "lock=text@5",
    "lock=[x]",
    "lock={b:1,a:2}@5",
    "lock={a:kept:0}@5",
    "lock1={a:1}@5 lock2={b:1}@5",
    "lock={a:0}@1.5s",
    "lock={b:0}@1.5s",
    "lock={a:0}",
    "lock={a:0}@9",
    "lock={a:0}@9",
    "lock={a:0,b:1}@5",
    "lock={a:0,mode:read}@5",
    "lock={b:0,a:1}@5",
    "lock1={a:0}@1.5s lock2={a:1}@5",
    "line=(b:5)@12s",
    "line=(b:7)@12s",
    "line=(c:7,b:9)@12s",
    "lock={a:1}@5 line=(b:5,c:7)@12s",
    "lock={a:1}@5 line=(c:7)@12s",
    "lock={b:1}@5 line=(c:7)@12s",
    "lock={b:1}@5 line=(a:6,c:7)@12s",
    "lock={a:1,x:1}@5 line=(b:5)@12s",
    "lock={b:1,x:1}@5 line=(c:5)@12s",
    "lock={a:1}@5 line=(c:9000000000000000)@12s",
    "lock={c:1}@5 line=(b:9000000000000000)",
    "lock1={a:1}@5 lock2={b:1}@5 line1=(b:5)@12s line2=(c:5,d:6)@12s",
    "lock1={b:1}@5 lock2={a:1}@5 line1=(x:5)@12s line2=(y:5)@12s",
    "line=(a:5,b:7)@12s",
    "line=(a:5,b:5,c:9000000000000000)@12s",
    "line=(b:6,a:7,mode:8)@12s",
    "line=(c:9000000000000000)",
    "line1=(b:5)@12s line2=(a:6,c:7)@12s",
    "line=text",
    "line={a:1}@5",
    "fence=0",
    "fence=-1",
    "fence=9007199254740991",
    "fence=7",
    "fence=9000000000000000",
    "fence=9007199254740990",
    "fence=0x10",
    "fence=word",
    "fence=[1]",
    "fence={a:1}@3",
];

const TOKENS: &[&str] = &["1", "7", "12", "0x10", "9000000000000001", "9007199254740990", "0", ""];

pub(in crate::kinds) fn call(random: &mut Random) -> String {
    let field = random.pick(FIELDS);
    let (lease, deadline) = (random.pick(LEASES), random.pick(DEADLINES));
    let (channel, verb) = (random.pick(CHANNELS), random.pick(VERBS));
    // Most calls name the line.
    let line = random.pick(&["+", "+", ""]);
    match random.below(13) {
        0..=2 => {
            let (count, mode) = (random.pick(COUNTS), random.pick(MODES));
            let (ticket, hears) = (random.pick(TICKETS), random.pick(HEARS));
            let wait = format!("{mode} {ticket} {hears} {channel} {verb}");
            format!("{line}acquire {field} {count} {lease} {deadline} {wait}")
        }
        3 | 4 => {
            let count = random.pick(&["0", "0", "0", "1", "2", "-1"]);
            format!("{line}release {field} {count} {channel} {verb}")
        }
        5 if random.below(3) == 0 => {
            let second = (random.pick(FIELDS), random.pick(&["9M", "1", "0", ""]));
            format!("renew {deadline} {field} {lease} {} {}", second.0, second.1)
        }
        5 => format!("renew {deadline} {field} {lease}"),
        6 | 7 => {
            let (to, flags) = (random.pick(FIELDS), (random.pick(LINE_FIRST), random.pick(HEARS)));
            let flags = format!("{} {}", flags.0, flags.1);
            format!("{line}hand_off {field} {to} {lease} {deadline} {channel} {verb} {flags}")
        }
        8 => "inspect".to_owned(),
        12 => format!("raise {field} {}", random.pick(TOKENS)),
        11 => format!("{line}release_at {field} {deadline} {lease} {channel} {verb}"),
        9 => {
            format!(
                "{line}force_release {field} {deadline} {channel} {verb} {}",
                random.pick(CLIENT_CHANNELS)
            )
        }
        _ => {
            let second = (random.pick(FIELDS), random.pick(&["ch", "client", "~", ""]));
            format!("{line}release_many {verb} {field} {channel} {} {}", second.0, second.1)
        }
    }
}

/// Mistakes that the model must notice: script, what is in it, what stands there instead.
pub(in crate::kinds) const MISTAKES: &[(&str, &str, &str)] = &[
    ("acquire", "if now > not_after then", "if false then"),
    ("acquire", "token = last + 1", "token = last"),
    (
        "acquire",
        r#"redis.call("HSET", lock, field, count)"#,
        r#"redis.call("HINCRBY", lock, field, 1)"#,
    ),
    ("acquire", "if pttl == -2 and count > 1 then", "if false then"),
    ("acquire", "if pttl < lease or reserved then", "if true then"),
    ("acquire", "if pttl < lease or reserved then", "if pttl < lease then"),
    ("acquire", "if not mine or reserved then redis.call", "if not mine then redis.call"),
    ("acquire", "pttl ~= -2 and (not mine or reserved)", "pttl ~= -2 and not mine"),
    ("acquire", r#"if mode == "again" and not line then"#, "if false then"),
    ("acquire", r#"local passes_on = mode == "again" and"#, "local passes_on ="),
    ("acquire", r#"(has_place or ticket > tonumber(first[2]))"#, "true"),
    ("acquire", r#"if passes_on then redis.pcall("ZREM", line, field) end"#, ""),
    ("acquire", "if last and last >= now then ticket = last + 1 end", ""),
    ("acquire", "rank = rank - 1", "rank = rank"),
    ("acquire", r#"if has_place then redis.pcall("ZREM", line, field) end"#, ""),
    ("acquire", r#"redis.pcall("ZADD", line, string.format("%.0f", ticket), field)"#, ""),
    ("acquire", r#"if is_there == 0 then redis.call("PEXPIRE", line, LINE_MS) end"#, ""),
    ("acquire", r#"redis.pcall("ZREM", line, first)"#, "1"),
    ("acquire", r#"redis.pcall(verb, channel, first)"#, "1"),
    ("release", "if fields == 0 then", "if false then"),
    ("release", r#"if not mine or mine == "0" then"#, "if not mine then"),
    ("release", r#"redis.pcall("ZREM", line, field)"#, "1"),
    ("release", "if not is_own and fields ~= 0 then return {-3, now} end", ""),
    ("release", "first and reserve(lock, line, first, channel, verb)", "nil"),
    ("release", "if fields == 1 then return {1, now, receivers} end", ""),
    ("release", r#"redis.call("HDEL", lock, field)"#, r#"redis.call("DEL", lock)"#),
    ("release", r#"redis.pcall("PERSIST", lock)"#, "1"),
    ("release", "if count > 0 then", "if count > 1 then"),
    ("release", r#"receivers = redis.pcall(verb, channel, "0")"#, "receivers = 1"),
    ("release_many", r#"if redis.pcall("HLEN", lock) ~= 1 then return -5 end"#, ""),
    ("release_many", r#"redis.pcall(verb, channel, "0")"#, "1"),
    ("release_many", "KEYS[holds + i]", "KEYS[holds + 1]"),
    ("release_at", "fields == 1 and not keeps and line", "not keeps and line"),
    ("release_at", "fields == 1 and not keeps and line", "fields == 1 and line"),
    ("release_at", r#"if redis.call("HGET", lock, kept) then return {2, now, 0} end"#, ""),
    ("release_at", "if rest > most then rest = most end", ""),
    ("release_at", "rest > 0 and fields == 1", "rest > 0"),
    ("release_at", r#"redis.call("HSET", lock, kept, "0")"#, ""),
    ("release_at", r#"redis.call("PEXPIRE", lock, rest)"#, ""),
    ("renew", r#"lease > 1 and redis.call("PTTL", lock) < lease"#, "lease > 1"),
    ("renew", "if now > not_after then", "if false then"),
    ("hand_off", "local late = now > not_after", "local late = false"),
    ("hand_off", "if late then return {-1, now, 0} end", ""),
    ("hand_off", r#"redis.call("HDEL", lock, from)\nif"#, "if"),
    ("hand_off", "if fields > 1 and not has_to then", "if false then"),
    ("hand_off", r#"return count and count ~= "0""#, "return count"),
    ("hand_off", r#"line_first == "1""#, "true"),
    ("hand_off", "fields == 1 and line", "line"),
    ("hand_off", r#"wait_in(line, to, ticket, has_place, hears == "1")"#, ""),
    ("force_release", "fields == 1 and line", "line"),
    (
        "force_release",
        r#"if redis.call("HEXISTS", lock, "mode") == 1 then return {-3, now} end"#,
        "",
    ),
    ("force_release", r#"redis.pcall("PUBLISH", client_channel, lock)"#, "1"),
    ("raise", r#"mine == "0""#, "false"),
    ("raise", "not last or last < token", "true"),
    ("raise", r#"redis.call("SET", fence, token)"#, "token = last"),
    (
        "inspect",
        r#"if redis.call("HEXISTS", lock, "mode") == 1 then return {3, now, pttl} end"#,
        "",
    ),
];
