//! What each script does in each state of its keys.

pub(super) mod acquire;
pub(super) mod downgrade;
pub(super) mod force_release;
pub(super) mod inspect;
pub(super) mod pick_up;
pub(super) mod release;
pub(super) mod release_at;
pub(super) mod renew;
pub(super) mod upgrade;

use crate::kinds::read_write::script_tests::parse_call;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::observe;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::tables::Row;
use crate::kinds::script_tests::tables::check;
use crate::kinds::script_tests::text::Times;

pub(super) const ALL: &[(&str, &[Row])] = &[
    ("acquire", acquire::ROWS),
    ("acquire", pick_up::ROWS),
    ("release", release::ROWS),
    ("release_at", release_at::ROWS),
    ("force_release", force_release::ROWS),
    ("inspect", inspect::ROWS),
    ("downgrade", downgrade::ROWS),
    ("renew", renew::ROWS),
    ("upgrade", upgrade::ROWS),
];

/// A good call, and for each of its arguments what is not allowed there.
const BAD: &[(&str, &[&[&str]])] = &[
    (
        "+acquire a 1 0 3M soon try 0 0 ch PUBLISH t 0",
        &[
            &["~"],
            &["-1", "65536", "1.5", "x"],
            &["-1", "65536", "1.5", "x"],
            &["0", "86400001", "1.5", "x"],
            &["-1", "9007199254740992", "1.5", "x"],
            &["wait", "~"],
            &["-1", "9007199254740992", "1.5", "x"],
            &["2", "~"],
            &["~"],
            &["publish", "~"],
            &["~"],
            &["-1", "1", "0.5", "x", "~"],
        ],
    ),
    (
        "+release a 1 0 ch PUBLISH t",
        &[
            &["~"],
            &["-1", "65536", "1.5", "x"],
            &["-1", "65536", "1.5", "x"],
            &["~"],
            &["publish", "~"],
            &["~"],
        ],
    ),
    (
        "+release_at a 0 3M ch PUBLISH t",
        &[
            &["~"],
            &["-1", "9007199254740992", "1.5", "x"],
            &["0", "86400001", "1.5", "x"],
            &["~"],
            &["publish", "~"],
            &["~"],
        ],
    ),
    (
        "+force_release a soon ch PUBLISH t client",
        &[
            &["~"],
            &["-1", "9007199254740992", "1.5", "x"],
            &["~"],
            &["publish", "~"],
            &["~"],
            &["~"],
        ],
    ),
    (
        "+downgrade a 1 3M ch PUBLISH t",
        &[
            &["~"],
            &["0", "65536", "1.5", "x"],
            &["0", "86400001", "1.5", "x"],
            &["~"],
            &["publish", "~"],
            &["~"],
        ],
    ),
    (
        "upgrade a u 3M soon 0",
        &[
            &["~"],
            &["~", "a"],
            &["0", "86400001", "1.5", "x"],
            &["-1", "9007199254740992", "1.5", "x"],
            &["-1", "1", "0.5", "x", "~"],
        ],
    ),
    (
        "renew soon a 3M",
        &[&["-1", "9007199254740992", "1.5", "x"], &["~"], &["0", "86400001", "1.5", "x"]],
    ),
];

/// Each is named, and nothing is done.
pub(super) fn check_bad_arguments(server: &mut dyn Server) {
    let mut rows = Vec::new();
    for (good, arguments) in BAD {
        let words: Vec<&str> = good.split(' ').collect();
        for (index, bad) in arguments.iter().enumerate() {
            for word in *bad {
                let mut words = words.clone();
                words[index + 1] = word;
                rows.push((words.join(" "), index + 1));
            }
            if !good.contains("renew") {
                rows.push((words[..=index].join(" "), index + 1));
            }
        }
    }
    let pairs = [
        ("+acquire a 0 0 3M soon try 0 0 ch PUBLISH t 0", 3),
        ("+acquire a 2 -1 3M soon try 0 0 ch PUBLISH t 0", 3),
        ("renew soon", 1),
    ];
    rows.extend(pairs.map(|(call, place)| (call.to_owned(), place)));
    rows.extend([("renew soon a 9M b", 4), ("renew", 1)].map(|(c, n)| (c.to_owned(), n)));
    let states = ["", "fence=7 lock={mode:read,a:1}@5", "lock=text", "line=(b:5)@12s"];
    check(
        server,
        rows.iter().flat_map(|(call, number)| {
            states.map(|state| {
                (state.into(), call.clone(), format!("-9 T {number}"), "=".into(), String::new())
            })
        }),
    );
}

/// What has the lock is given up in the same way when the time of `release_at` is over, and when it
/// is taken away.
pub(super) fn check_ways_to_end(server: &mut dyn Server) {
    let ends = |row: &&Row| row.2.starts_with('1') && row.1.contains("release a 0 0");
    let mut rows = Vec::new();
    for (state, call, reply, after, published) in release::ROWS.iter().filter(ends) {
        let told = format!("{published} client=lock").trim().to_owned();
        let (taken, late) = ("force_release a soon", "release_at a late 3M");
        let (state, reply, after) = ((*state).to_owned(), (*reply).to_owned(), (*after).to_owned());
        let taken = call.replace("release a 0 0", taken) + " client";
        rows.push((state.clone(), taken, reply.clone(), after.clone(), told));
        if !state.contains("a:0") && !state.contains("a:write:0") {
            let late = call.replace("release a 0 0", late);
            rows.push((state, late, reply, after, (*published).to_owned()));
        }
    }
    check(server, rows);
}

const OOM: &str = "! OOM command not allowed when used memory > 'maxmemory'.";

/// Short of memory nothing is granted, and what is held can be given up and renewed.
pub(super) fn check_out_of_memory(server: &mut dyn Server) {
    let rows = [
        ("", "+acquire a 1 0 9M soon try 0 0 ch PUBLISH t 0", OOM, "=", ""),
        ("", "+acquire a 0 1 9M soon try 0 0 ch PUBLISH t 0", OOM, "=", ""),
        (
            "lock={mode:write,a:write:1}@5",
            "+acquire a 0 2 9M soon try 0 0 ch PUBLISH t 0",
            OOM,
            "=",
            "",
        ),
        (
            "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
            "+release a 0 0 ch PUBLISH t",
            "1 T 1",
            "",
            "ch=0",
        ),
        (
            "line=(b:5)@12s lock={mode:write,a:write:1}@5",
            "+release a 0 0 ch PUBLISH t",
            "1 T 1",
            "lock={mode:read,b:0}@1.5s t:b:rwlock_timeout:1=1@1.5s",
            "ch=b",
        ),
        (
            "lock={mode:write,b:1,a:write:1}@5 t:b:rwlock_timeout:1=1@5",
            "+release a 0 0 ch PUBLISH t",
            "1 T 1",
            "lock={mode:read,b:1}@5 t:b:rwlock_timeout:1=1@5",
            "ch=1",
        ),
        (
            "lock={mode:write,a:write:1}@5",
            "+release_at a soon 3M ch PUBLISH t",
            "2 T 1",
            "lock={mode:write,a:kept:write:0}@3",
            "ch=1",
        ),
        (
            "lock={mode:read,a:1,b:1}@5",
            "+release_at a soon 3M ch PUBLISH t",
            "2 T 0",
            "lock={mode:read,a:1,b:1}@5 t:a:rwlock_timeout:1=1@3",
            "",
        ),
        (
            "line=(b:5)@12s lock={mode:write,a:write:1}@5",
            "+force_release a soon ch PUBLISH t client",
            "1 T 1",
            "lock={mode:read,b:0}@1.5s t:b:rwlock_timeout:1=1@1.5s",
            "ch=b client=lock",
        ),
        (
            "lock={mode:write,a:write:1}@5",
            "+downgrade a 1 3M ch PUBLISH t",
            "1 T 1",
            "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
            "ch=1",
        ),
        (
            "lock={mode:read,a:1}@5 t:a:rwlock_timeout:1=1@5",
            "renew soon a 9M",
            "1 T 1",
            "lock={mode:read,a:1}@9 t:a:rwlock_timeout:1=1@9",
            "",
        ),
    ];
    for (state, call, reply, after, published) in rows {
        server.set_out_of_memory(false);
        set_up(server, state);
        server.set_out_of_memory(true);
        let seen = observe(server, &parse_call(call), &mut Times::default());
        let after = if after == "=" { state } else { after };
        assert_eq!(
            (&*seen.reply, &*seen.keys, &*seen.published),
            (reply, after, published),
            "[{state}] {call}"
        );
    }
    server.set_out_of_memory(false);
}
