//! Calls with any arguments, and mistakes in the scripts.

use crate::base::random::Random;

const FIELDS: &[&str] = &["a", "a", "a", "a", "b", "b", "b", "c", "d"];
const LEASES: &[&str] = &["3M", "3M", "5M", "9M", "86400000", "0"];
const DEADLINES: &[&str] = &["soon", "soon", "soon", "soon", "soon", "soon", "late", "-1"];
const CHANNELS: &[&str] = &["ch", "ch", "ch", "ch", "nobody", "~"];
const VERBS: &[&str] = &["PUBLISH", "PUBLISH", "SPUBLISH", "PUBLISH", "publish"];
const SHARES: &[&str] = &[
    "1 0", "1 0", "1 0", "1 0", "1 0", "0 1", "0 1", "0 1", "0 1", "0 1", "2 0", "0 2", "1 1",
    "2 1", "0 0",
];

pub(super) const PLANTS: &[&str] = &[
    "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
    "lock={mode:read,a:1,b:2}@9 t:a:rwlock_timeout:1=1@5 t:b:rwlock_timeout:1=1@9",
    "lock={mode:read,a:1,b:2}@9 t:b:rwlock_timeout:1=1@9",
    "lock={mode:read,c:1}@5",
    "lock={mode:read,b:0,c:1}@5 t:b:rwlock_timeout:1=1@1.5s",
    "lock={mode:write,a:write:1}@5",
    "lock={mode:write,b:write:2,b:1}@5 t:b:rwlock_timeout:1=1@5",
    "lock={mode:write,a:write:0}@1.5s",
    "lock={mode:write,c:1,a:write:1}@5 t:c:rwlock_timeout:1=1@5",
    "lock={mode:write,a:kept:write:0}@5",
    "lock={mode:read,a:1}",
    "lock={mode:read}@5",
    "lock={mode:odd,a:1}@5",
    "lock={a:1}@5",
    "lock={kind:latch,count:3}",
    "lock={kind:semaphore}@5",
    "lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5",
    "lock=text@5",
    "lock1={mode:read,a:1}@5 lock2={mode:write,b:write:1}@5 t:a:rwlock_timeout:1=1@5",
    "line=(b:5)@12s",
    "line=(b:write:5)@12s",
    "line=(c:4,b:write:5,d:6)@12s",
    "line=(b:write:4,c:write:5,d:6)@12s lock={mode:read,c:1}@9",
    "line=(b:write:4,d:6)@12s lock={mode:read,c:1}@9 t:b:rwlock_timeout:1=1@12s",
    "line=(a:5,b:6,c:write:7)@12s",
    "line=(a:write:5,b:write:6,c:9000000000000000)@12s",
    "line=(d:5)",
    "line=text",
    "fence=7",
    "fence=9007199254740991",
    "fence=9000000000000000",
    "fence=word",
    "fence=[1]",
];

pub(super) fn call(random: &mut Random) -> String {
    let (field, share) = (random.pick(FIELDS), random.pick(SHARES));
    let (lease, deadline) = (random.pick(LEASES), random.pick(DEADLINES));
    let announce = format!("{} {} t", random.pick(CHANNELS), random.pick(VERBS));
    match random.below(14) {
        11 => {
            let (line, free_at) = (random.pick(&["+", "+", ""]), random.pick(DEADLINES));
            format!("{line}release_at {field} {free_at} {lease} {announce}")
        }
        12 => {
            let line = random.pick(&["+", "+", ""]);
            let client = random.pick(&["client", "client", "~"]);
            let field = random.pick(&["a", "a", "b", "a:kept", "c"]);
            format!("{line}force_release {field} {deadline} {announce} {client}")
        }
        13 => "inspect".to_owned(),
        0..=4 => {
            let mode = random.pick(&["try", "first", "first", "again", "again", "again", "wait"]);
            let ticket = random.pick(&["0", "0", "4", "5", "6", "9000000000000000", "-1"]);
            let hears = random.pick(&["1", "1", "1", "0", "2"]);
            let told = random.pick(&["0", "0", "0", "1 b", "2 a b", "3 c b d", "1 mode", "2 b"]);
            let line = random.pick(&["+", "+", "+", "+", "+", ""]);
            format!(
                "{line}acquire {field} {share} {lease} {deadline} {mode} {ticket} {hears} {announce} {told}"
            )
        }
        5 | 6 => {
            let share = if random.below(3) == 0 { share } else { "0 0" };
            format!("{}release {field} {share} {announce}", random.pick(&["+", "+", "+", ""]))
        }
        7 => {
            let (line, reads) = (random.pick(&["+", "+", ""]), random.pick(&["1", "1", "2", "0"]));
            format!("{line}downgrade {field} {reads} {lease} {announce}")
        }
        10 => {
            let told = random.pick(&["0", "0", "1 b", "2 b c", "2 c d", "0 b"]);
            format!(
                "upgrade {field} {} {lease} {deadline} {told}",
                random.pick(&["u", "u", "a", "v"])
            )
        }
        8 => format!("renew {deadline} {field} {lease}"),
        _ => format!("renew {deadline} {field} {lease} {} 9M", random.pick(&["a", "b", "~"])),
    }
}

/// Mistakes that the model must notice: script, what is in it, what stands there instead.
pub(super) const MISTAKES: &[(&str, &str, &str)] = &[
    ("acquire", "if now > not_after then", "if false then"),
    ("acquire", "return last + 1 end", "return last end"),
    ("acquire", r#"if (writes > 0) ~= (writing and true or false) then return {-3, now} end"#, ""),
    (
        "acquire",
        r#"if not writing and redis.call("EXISTS", timeout) == 0 then return {-2, now} end"#,
        "",
    ),
    ("acquire", r#"if redis.call("EXISTS", KEYS[#KEYS - told + i]) == 0 and"#, "if"),
    ("acquire", "(is_writer or held == \"write\")\n", "is_writer\n"),
    ("acquire", r#"if dropped or looks and is_behind(line, ticket) then"#, "if looks then"),
    ("acquire", r#"if line then redis.pcall("ZREM", line, place) end"#, ""),
    ("acquire", r#"if is_writer then redis.pcall("DEL", timeout) end"#, ""),
    ("acquire", "local dropped = looks and held and drop_silent(line, base)", "local dropped"),
    ("acquire", "if dropped or looks and is_behind", "if looks and is_behind"),
    (
        "acquire",
        r#"if timeout and redis.pcall("SET", timeout,"#,
        r#"if false and redis.pcall("SET","#,
    ),
    ("acquire", r#"if pttl == -1 then return {-4, now, 3} end"#, ""),
    (
        "acquire",
        r#"if mode == "again" and not reserved and not line then return {-5, now} end"#,
        "",
    ),
    ("acquire", r#"if mode == "try" or not line then"#, "if not line then"),
    ("acquire", r#"      ticket = 0\n"#, ""),
    ("release", r#"redis.call("HDEL", lock, "mode")"#, ""),
    ("release", "pass_on(lock, line, base, channel, verb, held, writing)", "nil"),
    (
        "release",
        "pass_on(lock, line, base, channel, verb, held, writing)",
        "pass_on(lock, line, base, channel, verb, held, false)",
    ),
    (
        "release",
        "pass_on(lock, line, base, channel, verb, held, writing)",
        "pass_on(lock, line, base, channel, verb, held, mine_w)",
    ),
    ("release", r#"redis.pcall("ZREM", line, field, wfield)"#, "1"),
    ("release", r#"if timeout then redis.pcall("DEL", timeout) end\n  if line"#, "if line"),
    ("release_at", "if rest > most then rest = most end", ""),
    ("release_at", "if rest > 0 and (others == 0 or not writing) then", "if false then"),
    ("release_at", "and (others == 0 or not writing) then", "then"),
    ("release_at", r#"if redis.call("PEXPIRE", timeout, rest) == 0 then"#, "if false then"),
    (
        "release_at",
        "if others == 0 or left >= 0 and left < rest then",
        "if left >= 0 and left < rest then",
    ),
    ("release_at", r#"redis.call("HSET", lock, kept, "0")"#, ""),
    (
        "release_at",
        r#"if is_ours and redis.call("HGET", lock, kept) then return {2, now, 0} end"#,
        "",
    ),
    ("force_release", "if not mine_r and not mine_w then return {-3, now} end", ""),
    ("force_release", "if now > not_after then", "if false then"),
    ("force_release", r#"redis.pcall("PUBLISH", client_channel, lock)"#, "1"),
    ("inspect", r#"if string.match(holds[i], ":write$") then"#, "if false then"),
    ("inspect", r#"or holder\n"#, "or ''\n"),
    ("downgrade", "if left < lease then left = lease end", "left = lease"),
    ("downgrade", r#"verb, true)"#, r#"verb, false)"#),
    ("downgrade", r#"redis.call("HDEL", lock, wfield)"#, ""),
    ("upgrade", r#"or reads == "0" or"#, "or"),
    (
        "upgrade",
        r#"or redis.call("EXISTS", timeout) == 0 then return {-2, now} end"#,
        "then return {-2, now} end",
    ),
    ("upgrade", "if fields - removed > 2 then", "if false then"),
    ("upgrade", "if not mine_w then", "if true then"),
    ("renew", r#"if not writing and redis.call("EXISTS", timeout) == 0 then return 0 end"#, ""),
    ("renew", "local failure = extend(timeout, lease)", "local failure = nil"),
    ("renew", "if now > not_after then", "if false then"),
];
