//! Calls with any arguments, and mistakes in the scripts.

use crate::base::random::Random;

const FIELDS: &[&str] = &["f", "f", "f", "g", "g", "h", "f:kept", "mode", "~"];
const PLACES: &[&str] = &["p:place", "p:place", "p:place", "q:place", "q:place", "j", "~"];
const COUNTS: &[&str] = &["1", "1", "1", "1", "1", "1", "2", "65535", "0"];
const LEASES: &[&str] = &["3M", "3M", "5M", "9M", "86400000", "0"];
const DEADLINES: &[&str] = &["soon", "soon", "soon", "soon", "soon", "soon", "soon", "late", "-1"];
const MODES: &[&str] = &["try", "try", "wait", "wait", "wait", "wait", "wait", "wait", "first"];
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
    "lock={f:1}@5",
    "lock={g:1}@9",
    "lock={h:2}@3",
    "lock={f:kept:0}@5",
    "lock={f:1,x:1}@5",
    "lock={mode:read,f:1}@5",
    "lock={kind:latch,count:3}@5",
    "lock=text@5",
    "queue=[p:place] deadlines=(p:place:@15s)",
    "queue=[j,p:place] deadlines=(j:@300s,p:place:@315s)",
    "queue=[p:place,j,k,q:place] deadlines=(p:place:@15s,j:@315s,k:@615s,q:place:@615s)",
    "queue=[x,y,j,k] deadlines=(x:@-10s,y:@-5s,j:@300s,k:@600s)",
    "queue=[q:place,x,p:place] deadlines=(q:place:@15s,p:place:@315s)",
    "queue=[j,k,q:place] deadlines=(q:place:@15s,j:@300s,k:@-10s)",
    "lock={f:1}@5 queue=[j,k] deadlines=(j:@300s,k:@600s)",
    "lock={g:1}@5 queue=[p:place,q:place,j] deadlines=(p:place:@15s,q:place:@15s,j:@315s)",
    "deadlines=(p:place:@15s,j:@-5s)",
    "queue=[p:place]",
    "queue=text",
    "queue=(j:1)",
    "deadlines=text",
    "deadlines=[j]",
    "fence=7",
    "fence=9007199254740990",
    "fence=word",
    "fence=[1]",
];

pub(super) fn call(random: &mut Random) -> String {
    let (field, place) = (random.pick(FIELDS), random.pick(PLACES));
    let (lease, deadline) = (random.pick(LEASES), random.pick(DEADLINES));
    let announce = random.pick(ANNOUNCES);
    match random.below(12) {
        0..=6 => {
            let (count, mode) = (random.pick(COUNTS), random.pick(MODES));
            format!("acquire {field} {count} {lease} {deadline} {mode} {place} {announce}")
        }
        7 | 8 => {
            let count = random.pick(&["0", "0", "0", "1", "2", "-1"]);
            format!("release {field} {count} {announce}")
        }
        9 => format!("undo {field} 0 {announce} {place}"),
        10 => format!("release_at {field} {deadline} {lease} {announce}"),
        _ => {
            let client_channel = random.pick(&["client", "client", "nobody", "~"]);
            format!("force_release {field} {deadline} {announce} {client_channel}")
        }
    }
}

/// Mistakes that the model must notice: script, what is in it, what stands there instead.
pub(super) const MISTAKES: &[(&str, &str, &str)] = &[
    ("acquire", "if now > not_after then", "if false then"),
    ("acquire", "if first == own then return first end", ""),
    ("acquire", "if first and first ~= place then", "if first then"),
    ("acquire", "if first and first ~= place then", "if false then"),
    ("acquire", "tonumber(deadline) > now_ms", "tonumber(deadline) < now_ms"),
    ("acquire", r#"redis.pcall("ZREM", deadlines, first)"#, ""),
    ("acquire", r#"redis.pcall("ZREM", deadlines, place)"#, ""),
    ("acquire", "holder, left = first, deadline - now_ms", "holder, left = first, 1"),
    ("acquire", r#"if mode == "try" then return"#, r#"if mode == "wait" then return"#),
    ("acquire", "if not is_ours(places[rank]) then added", "if is_ours(places[rank]) then added"),
    ("acquire", "rank = rank + 1", "rank = rank + 2"),
    ("acquire", "if rank == #places then", "if rank ~= #places then"),
    ("acquire", "local rank, added = 0, OURS_MS", "local rank, added = 0, 0"),
    ("acquire", "if answer[1] == 1 then leave_queue(place) end", ""),
    ("acquire", "-OURS_MS", "-REDISSONS_MS"),
    ("acquire", "is_behind = places[i] == place", "is_behind = true"),
    ("acquire", "if is_ours(places[i]) then", "if places[i] == place then"),
    ("release", "if fields <= 1 then receivers", "if true then receivers"),
    ("release", "if not first then return 0 end", "if true then return 0 end"),
    ("undo", "\\nleave_queue(place)", " "),
    ("undo", "\\nleave_queue(place)", " leave_queue(field)"),
    ("release_at", "return tell_first(channel, verb)", "return 0"),
    ("force_release", "return tell_first(channel, verb)", "return 0"),
];
