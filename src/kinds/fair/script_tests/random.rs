//! Calls with any arguments, and mistakes in the scripts.

use crate::base::random::Random;

/// Fields of the clients `a` and `b`, among others.
const FIELDS: &[&str] =
    &["a:1", "a:1", "a:1", "a:2", "a:2", "b:1", "b:1", "b:2", "c", "c", "a:1:kept", "mode", "~"];
const COUNTS: &[&str] = &["1", "1", "1", "1", "1", "1", "1", "2", "65535", "0"];
const LEASES: &[&str] = &["3M", "3M", "5M", "9M", "86400000", "0"];
const DEADLINES: &[&str] =
    &["soon", "soon", "soon", "soon", "soon", "soon", "soon", "soon", "late", "-1"];
const MODES: &[&str] =
    &["try", "try", "first", "first", "first", "again", "again", "again", "again", "again", "wait"];
const TICKETS: &[&str] = &["0", "0", "0", "0", "5", "5", "6", "7", "9000000000000000", "-1"];
const HEARS: &[&str] = &["1", "1", "1", "1", "1", "0", "0", "2"];
const ANNOUNCES: &[&str] = &[
    "ch PUBLISH",
    "ch PUBLISH",
    "ch PUBLISH",
    "ch PUBLISH",
    "ch SPUBLISH",
    "nobody PUBLISH",
    "~ PUBLISH",
    "ch publish",
];

pub(super) const PLANTS: &[&str] = &[
    "lock={a:1:1}@5",
    "lock={b:1:2}@9",
    "lock={a:1:0}@1.5s",
    "lock={a:2:0}@1.5s",
    "lock={b:1:0}@1.5s",
    "lock={a:1:kept:0}@5",
    "lock={a:1:1,x:1}@5",
    "lock={mode:read,b:1:1}@5",
    "lock={kind:latch,count:3}@5",
    "lock=text@5",
    "line=(b:1:5)@12s",
    "line=(a:2:5,b:1:7)@12s",
    "line=(a:1:5,a:2:6,c:7)@12s",
    "line=(b:1:5,b:2:6,a:1:7,c:9000000000000000)@12s marks=<b>@12s",
    "line=(c:5,a:1:6,a:2:7)@12s marks=<a,c>@12s",
    "lock={a:1:1}@5 line=(b:1:5,b:2:6,c:7)@12s marks=<b>@12s",
    "lock={b:1:1}@5 line=(a:1:5,a:2:6)@12s marks=<a>@12s",
    "lock={b:1:0}@1.5s line=(b:2:5,c:6)@12s marks=<b>@12s",
    "marks=<a>@12s",
    "marks=<a,b>@12s",
    "marks=text",
    "line=text",
    "line=(c:9000000000000000)",
    "fence=7",
    "fence=9007199254740990",
    "fence=word",
    "fence=[1]",
];

pub(super) fn call(random: &mut Random) -> String {
    let field = random.pick(FIELDS);
    let (lease, deadline) = (random.pick(LEASES), random.pick(DEADLINES));
    let announce = random.pick(ANNOUNCES);
    // Most calls name the line.
    let line = random.pick(&["+", "+", "+", ""]);
    match random.below(12) {
        0..=5 => {
            let (count, mode) = (random.pick(COUNTS), random.pick(MODES));
            let (ticket, hears) = (random.pick(TICKETS), random.pick(HEARS));
            let others = match random.below(3) {
                0 => format!(" {} {}", random.pick(FIELDS), random.pick(FIELDS)),
                _ => String::new(),
            };
            let wait = format!("{mode} {ticket} {hears} {announce}{others}");
            format!("{line}acquire {field} {count} {lease} {deadline} {wait}")
        }
        6 | 7 => {
            let count = random.pick(&["0", "0", "0", "1", "2", "-1"]);
            format!("{line}release {field} {count} {announce}")
        }
        8 | 9 => format!("{line}undo {field} 0 {announce}"),
        10 => format!("{line}release_at {field} {deadline} {lease} {announce}"),
        _ => {
            let client_channel = random.pick(&["client", "client", "nobody", "~"]);
            format!("{line}force_release {field} {deadline} {announce} {client_channel}")
        }
    }
}

/// Mistakes that the model must notice: script, what is in it, what stands there instead.
pub(super) const MISTAKES: &[(&str, &str, &str)] = &[
    ("acquire", "if now > not_after then", "if false then"),
    ("acquire", "if not for_other or client_of(holder) ~= client_of(field) then", "if true then"),
    ("acquire", "if not for_other or client_of(holder) ~= client_of(field) then", "if false then"),
    ("acquire", "if not holder then\\n  unmark(field)", "if not holder then"),
    ("acquire", "if not line then return {-5, now} end", ""),
    ("acquire", r#"if not holder and kind == "zset" then"#, "if false then"),
    ("acquire", "verb, BEHIND_ALL)\\n      holder", "verb, 0)\\n      holder"),
    ("acquire", "verb, ticket)\\n      holder", "verb, BEHIND_ALL)\\n      holder"),
    ("acquire", "rank - gone", "rank"),
    ("acquire", r#" or mode == "first")"#, ")"),
    ("acquire", r#"if redis.call("TYPE", marks).ok == "set" then"#, "if false then"),
    ("acquire", "other ~= holder and not", "not"),
    ("acquire", "for i = 1, #ARGV - 9 do", "for i = 2, #ARGV - 9 do"),
    ("acquire", "local passes_on = has_place", "local passes_on = false"),
    ("acquire", "if is_marked ~= 1 then", "if true then"),
    ("acquire", "if is_marked == 0 then mark(field) end", ""),
    ("release", "if count == 0 then unmark(field) end", ""),
    ("release", "if line and fields <= 1 then", "if line then"),
    ("release", "SREM", "SADD"),
    ("undo", "(answer[1] == 0 or answer[1] == -3)", "answer[1] == 0"),
    ("undo", "tonumber(ticket)", "0"),
    ("release_at", "unmark(given_up)", ""),
    ("force_release", "unmark(given_up)", ""),
    ("force_release", "if line then\\n    local _", "if false then\\n    local _"),
];
