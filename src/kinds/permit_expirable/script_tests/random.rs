//! Calls with any arguments, and mistakes in the scripts.

use crate::base::random::Random;
use crate::kinds::semaphore::script_tests::random::Drawn;

pub(super) const PLANTS: &[&str] = &[
    "lock=2 permits=(a:1:3:1:@5)",
    "lock=1 permits=(b:2:3:1:@3,b:2:3:2:@3)",
    "lock=0 permits=(c:1:2:1:@9,b:2:3:1:@3,b:2:3:2:@3)",
    "lock=0 permits=(a:2:3:1:@5,a:2:3:2:@5,b:1:3:1:@5)",
    "lock=1 permits=(a:2:3:1:@5)",
    "lock=-1 permits=(a:1:3:1:@-1,a:2:3:1:@-1,a:2:3:2:@-1,b:1:3:1:@-1)",
    "permits=(a:1:3:1:@-1,b:1:3:1:@-1,b:2:3:1:@3,b:2:3:2:@-1)",
    "lock=2@9 permits=(x:@-1,y:@5)@9",
    "lock=0",
    "lock=1",
    "lock=5",
    "lock=-7",
    "lock=word",
    "lock=01",
    "lock=123456789012345",
    "lock={kind:semaphore,permits:3}",
    "lock={kind:latch}@5",
    "lock={mode:read}@5",
    "lock={permits:1}@5",
    "lock=[1]",
    "permits1=(a:1:3:1:@5)",
    "permits2=(b:1:3:1:@3)@9",
    "permits=text",
    "permits=(x:@5)",
    "operation=4@9",
    "operation=[1]",
    "fence=7",
    "fence=9000000000000000",
    "fence=9007199254740991",
    "fence=-1",
    "fence=word",
    "fence=[1]",
];

pub(super) fn call(random: &mut Random) -> String {
    let drawn = Drawn::by(random);
    let Drawn { field, lease, deadline, announce } = &drawn;
    match random.below(12) {
        0..=4 => format!("acquire {field} {lease} {deadline} {announce}"),
        5 | 6 => format!("release {field} {announce}"),
        which => drawn.call(random, which - 7),
    }
}

/// Mistakes that the model must notice: script, what is in it, what stands there instead.
pub(super) const MISTAKES: &[(&str, &str, &str)] = &[
    ("acquire", "if now > not_after then", "if false then"),
    ("acquire", "if last >= now then return last + 1 end", ""),
    ("acquire", "known or own - out", "known or own"),
    ("acquire", "if missing > 0 and want > free + out then", "if false then"),
    ("acquire", "if missing > 0 and want > free + out then", "if want > free + out then"),
    (
        "acquire",
        "if missing > 0 and missing > free + over then",
        "if missing > 0 and missing > free then",
    ),
    ("acquire", "if missing > 0 and missing > free + over then", "if want > free + over then"),
    ("acquire", "if missing > 0 and missing > free + over then", "if missing > free + over then"),
    ("acquire", "redis.call(\"PERSIST\", permits)", ""),
    ("acquire", "if not ends or tonumber(ends) <= last then", "if not ends then"),
    ("acquire", r#"if not known then redis.call("SET", lock, free) end"#, ""),
    ("acquire", r#"redis.call("INCRBY", lock, over)"#, ""),
    ("acquire", r#"redis.call("PERSIST", permits)"#, ""),
    ("acquire", r#"if missing > 0 then redis.call("INCRBY", lock, -missing) end"#, ""),
    ("acquire", "now_ms + lease + SLACK_MS", "now_ms + lease + 2000000"),
    ("acquire", "if free > 0 and (over > 0 or not known) then", "if free > 0 then"),
    ("acquire", "if free > 0 and (over > 0 or not known) then", "if false then"),
    ("release", r#"free = redis.call("INCRBY", lock, there)"#, ""),
    ("release", r#"redis.call("INCRBY", lock, there)"#, r#"redis.call("INCRBY", lock, want)"#),
    ("release", "math.max(free or 1, 1)", "free or 1"),
    ("release_at", "most)", "86400000)"),
    ("release_at", "if not mine then return {0, now} end", ""),
    ("renew", "tonumber(ends) <= now_ms - SLACK_MS", "false"),
    ("renew", "for i = 1, want do\n    ends", "for i = 1, 1 do\n    ends"),
    ("renew", "and tonumber(ends) < now_ms + lease + SLACK_MS", ""),
    ("release_at", r#""XX", "#, ""),
    ("force_release", "if now > not_after then", "if false then"),
    ("force_release", r#"redis.pcall("PUBLISH", client_channel, lock)"#, "1"),
    ("set_permits", "if done then", "if false then"),
    ("set_permits", "known + out or own", "own"),
    ("set_permits", "if before + number > 1000000 then", "if false then"),
    ("set_permits", "number - out - (known or 0)", "number - (known or 0)"),
    ("set_permits", "number - out - (known or 0)", "number - out"),
    ("inspect", r#"out - redis.call("ZCOUNT", permits, "-inf", last)"#, "out"),
    ("inspect", "math.max(known + out, 0)", "known + out"),
];
