//! Calls with any arguments, and mistakes in the scripts.

use crate::base::random::Random;

const FIELDS: &[&str] = &[
    "a:1:3", "a:1:3", "a:2:3", "b:1:3", "b:1:3", "b:2:3", "b:3:3", "c:1:2", "c:2:2", "c:4:3",
    "d:1:1", "e:0:3", "e:1:x", "~",
];
const LEASES: &[&str] = &["3M", "3M", "5M", "5M", "9M", "86400000", "86400001", "0"];
const DEADLINES: &[&str] = &["soon", "soon", "soon", "soon", "soon", "soon", "late", "-1"];
const CHANNELS: &[&str] = &["ch", "ch", "ch", "ch", "client", "nobody", "~"];
const VERBS: &[&str] = &["PUBLISH", "PUBLISH", "PUBLISH", "SPUBLISH", "publish"];
const MODES: &[&str] = &["try", "first", "first", "again", "again", "again", "wait"];
const TICKETS: &[&str] = &["0", "0", "0", "5", "6", "7", "9000000000000000", "-1"];
const HEARS: &[&str] = &["1", "1", "1", "1", "0", "2"];

const NUMBERS: &[&str] = &["1", "2", "3", "4", "0", "1000000", "1000001"];

pub(super) const PLANTS: &[&str] = &[
    "lock={kind:semaphore}@5 permits=(a:1:3:1:@5)@5",
    "lock={kind:semaphore}@5 permits=(b:2:3:1:@3,b:2:3:2:@3)@5",
    "lock={kind:semaphore}@9 permits=(c:1:2:1:@9,b:2:3:1:@3,b:2:3:2:@3)@9",
    "lock={kind:semaphore}@5 permits=(a:2:3:1:@5,a:2:3:2:@5,b:1:3:1:@5)@5 line=(c:1:2:5)@12s",
    "lock={kind:semaphore}@5 permits=(a:2:3:1:@5)@5",
    "lock={kind:semaphore}@5 permits=(a:1:3:1:@-1,a:2:3:1:@-1,a:2:3:2:@-1,b:1:3:1:@-1)@5",
    "permits=(a:1:3:1:@-1,b:1:3:1:@-1,b:2:3:1:@3,b:2:3:2:@-1)@5",
    "lock={kind:semaphore,permits:2}",
    "lock={kind:semaphore,permits:1}",
    "lock={kind:semaphore,permits:5}",
    "lock={kind:semaphore,permits:word}",
    "lock={kind:semaphore,other:1}@5",
    "lock={kind:semaphore}",
    "lock={kind:latch}@5",
    "lock={mode:read}@5",
    "lock={permits:1}@5",
    "lock=text",
    "lock1={kind:semaphore}@5 permits1=(a:1:3:1:@5)@5",
    "lock2={kind:semaphore}@5 permits2=(b:1:3:1:@3)",
    "permits=text",
    "permits=(x:@5)@5",
    "permits=(a:1:3:1:@5,x:@9)",
    "line=(b:2:3:5,c:1:2:6)@12s",
    "line=(b:3:3:5,a:1:3:7)@12s",
    "line=(c:4:3:5,a:1:3:6)@12s",
    "line=(x:5,b:1:3:9000000000000000)@12s",
    "line=text",
    "heard=(b:2:3:1:@5,b:3:3:1:@3)@9",
    "heard=(b:2:3:1:@-1,b:3:3:1:@9)@9",
    "heard=text@9",
    "operation=4@9",
    "operation=[1]",
    "fence=7",
    "fence=9000000000000000",
    "fence=9007199254740991",
    "fence=-1",
    "fence=word",
    "fence=[1]",
];

/// Words of a call.
pub(in crate::kinds) struct Drawn {
    pub(in crate::kinds) field: &'static str,
    pub(in crate::kinds) lease: &'static str,
    pub(in crate::kinds) deadline: &'static str,
    pub(in crate::kinds) announce: String,
}

impl Drawn {
    pub(in crate::kinds) fn by(random: &mut Random) -> Self {
        let field = random.pick(FIELDS);
        let (lease, deadline) = (random.pick(LEASES), random.pick(DEADLINES));
        let announce = format!("{} {}", random.pick(CHANNELS), random.pick(VERBS));
        Self { field, lease, deadline, announce }
    }

    /// A call of a script that has the same arguments in both profiles.
    pub(in crate::kinds) fn call(&self, random: &mut Random, which: u64) -> String {
        let Self { field, lease, deadline, announce } = self;
        match which {
            0 => format!("release_at {field} {deadline} {lease} {announce}"),
            1 if random.below(3) == 0 => {
                let second = (random.pick(FIELDS), random.pick(&["9M", "1", "0", ""]));
                format!("renew {deadline} {field} {lease} {} {}", second.0, second.1)
            }
            1 if random.below(4) == 0 => format!("renew {deadline} {field} 1"),
            1 => format!("renew {deadline} {field} {lease}"),
            2 => {
                let client_channel = random.pick(&["client", "client", "nobody", "~"]);
                format!("force_release {field} {deadline} {announce} {client_channel}")
            }
            3 => {
                let (how, number) = (random.pick(&["set", "add", "x"]), random.pick(NUMBERS));
                let own = random.pick(&["2", "3", "0"]);
                format!("set_permits {how} {number} {own} {deadline} {lease} {announce}")
            }
            _ => "inspect".to_owned(),
        }
    }
}

pub(super) fn call(random: &mut Random) -> String {
    let drawn = Drawn::by(random);
    let Drawn { field, lease, deadline, announce } = &drawn;
    // Most calls name the line.
    let line = random.pick(&["+", "+", "+", ""]);
    match random.below(13) {
        0..=5 => {
            let (mode, ticket) = (random.pick(MODES), random.pick(TICKETS));
            let wait = format!("{mode} {ticket} {}", random.pick(HEARS));
            format!("{line}acquire {field} {lease} {deadline} {wait} {announce}")
        }
        6 | 7 => format!("{line}release {field} {announce}"),
        which => drawn.call(random, which - 8),
    }
}

/// Mistakes that the model must notice: script, what is in it, what stands there instead.
pub(super) const MISTAKES: &[(&str, &str, &str)] = &[
    ("acquire", "if now > not_after then", "if false then"),
    ("acquire", "token = last + 1", "token = last"),
    ("acquire", "local most = number or own", "local most = own"),
    ("acquire", "if first or taken + want > most then", "if taken + want > most then"),
    ("acquire", "if first or taken + want > most then", "if first then"),
    ("acquire", "if want > most then", "if false then"),
    ("acquire", "if not line then return {-5, now} end", "if not line then line = permits end"),
    ("acquire", "local reserved = true", "local reserved = false"),
    ("acquire", r#"  redis.call("ZREM", line, field)\n  redis.pcall("#, "  redis.pcall("),
    ("acquire", "    before = ticket\n", ""),
    ("acquire", r#"  taken = redis.call("ZCARD", permits)\n"#, ""),
    ("acquire", "if fits and taken + want > most then", "if fits and taken > most then"),
    ("acquire", r#"local removed = redis.pcall("ZREM", line, field)"#, "local removed = 1"),
    ("acquire", "if taken >= most or is_heard(heard, field, now_ms) then", "if true then"),
    ("acquire", "take(heard, field, 1, LINE_MS, now_ms)", ""),
    ("acquire", "if not mine or tonumber(mine) <= now_ms then", "if not mine then"),
    ("release", "there = there + removed", "there = 1"),
    ("release", "if there > 0 and not receivers", "if not receivers"),
    ("release", r#" and type(first) ~= "string""#, ""),
    ("release", r#" and redis.pcall("EXISTS", permits, line) == 0"#, ""),
    ("release", "if line and is_ours and not known[2]", "if line and is_ours"),
    ("release", "if line and (foreign or there == 0) then", "if false then"),
    ("release_at", "if rest > most then rest = most end", ""),
    ("release_at", "if not mine then return {0, now} end", ""),
    ("renew", "tonumber(ends) <= now_ms", "false"),
    ("renew", "for i = 1, want do\n    ends", "for i = 1, 1 do\n    ends"),
    ("renew", "and tonumber(ends) < now_ms + lease", ""),
    ("renew", "keep(lock, lease)\n  end", "end"),
    ("force_release", "if now > not_after then", "if false then"),
    ("force_release", r#"redis.pcall("PUBLISH", client_channel, lock)"#, "1"),
    ("set_permits", "if done then", "if false then"),
    ("set_permits", r#"redis.call("PERSIST", lock)"#, ""),
    ("set_permits", "(known or own) + number", "own + number"),
    ("set_permits", "if sum > 1000000 then", "if false then"),
    (
        "inspect",
        r#"redis.call("ZCOUNT", permits, now_ms, "+inf")"#,
        r#"redis.call("ZCARD", permits)"#,
    ),
];
