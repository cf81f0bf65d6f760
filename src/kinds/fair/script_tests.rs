//! The scripts of `lua/fair/`: what they add to the tests that every kind has. What they do as the
//! scripts of a reentrant lock do is in the tables of that one.

mod edges;
mod random;
mod tables;

use crate::backend::words::Words;
use crate::base::kind::Kind;
use crate::kinds::fair::all;
use crate::kinds::reentrant::script_tests::line;
use crate::kinds::reentrant::script_tests::model;
use crate::kinds::reentrant::script_tests::tables as reentrant;
use crate::kinds::script_tests::Fields;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::last_word;
use crate::kinds::script_tests::random::Calls;
use crate::kinds::script_tests::script_tests;
use crate::kinds::script_tests::tables::Row;
use crate::kinds::script_tests::tables::check;
use crate::kinds::script_tests::tables::check_table;
use crate::kinds::script_tests::text::keys_of_rows;

static SUITE: Suite = Suite {
    kind: Kind::Fair,
    scripts: all,
    keys,
    may_be: |fields: &Fields| fields.len() == 1,
    has_line: true,
    model: model::run,
    calls: Calls {
        call: random::call,
        plants: random::PLANTS,
        removed: &["lock", "fence", "line", "marks"],
    },
    garbage: &["text@5", "[x,y]@5", "{foreign:1}@5", "{foreign:1,other:2}@5", "{mode:read}"],
    tables: tables::ALL,
    checks: CHECKS,
    edges: edges::CHECKS,
    needs_redis_7: &[
        ("release", "sharded pub/sub"),
        ("undo", "sharded pub/sub"),
        ("release_at", "sharded pub/sub"),
        ("force_release", "sharded pub/sub"),
        ("acquire", "sharded pub/sub"),
    ],
    mistakes: random::MISTAKES,
    equivalent: "proof/lua-equivalent-fair.txt",
    is_own,
    is_reported: true,
    ..Suite::EMPTY
};

/// Each file that several scripts include is looked at in one of them; those of a reentrant lock are
/// in its own tests.
fn is_own(script: &str, line: &str) -> bool {
    let files: &[&str] = match script.rsplit('/').next() {
        Some("acquire") => &[lua!("fair/acquire"), lua!("fair/body/pass_on")],
        Some("release") => &[lua!("fair/release"), lua!("fair/body/release")],
        Some("undo") => &[lua!("fair/undo")],
        Some("force_release") => &[lua!("fair/force_release"), lua!("fair/body/freed")],
        _ => &[lua!("fair/release_at")],
    };
    files.iter().any(|file| file.lines().any(|own| own.trim() == line))
}

/// The marks behind the line.
fn keys(script: &str, args: &Words, line: bool) -> Words {
    let keys = keys_of_rows(script, args, line);
    if line { keys.with("marks") } else { keys }
}

/// The rows of the reentrant lock, as they are for a fair one, but for those that have a row of
/// their own here.
fn check_all(server: &mut dyn Server, plain: &[&[Row]], own: &[Row]) {
    let is_own = |row: &OwnedRow| own.iter().any(|other| (other.0, other.1) == (&*row.0, &*row.1));
    let has = |row: &Row| {
        let word = row.1.trim_start_matches('+').split(' ').next();
        all().iter().any(|script| Some(last_word(script)) == word)
    };
    let rows = plain.concat().into_iter().filter(has).map(as_fair).filter(|row| !is_own(row));
    let own = own.iter().map(|&(s, c, r, a, p)| (s.into(), c.into(), r.into(), a.into(), p.into()));
    check(server, rows.chain(own).collect::<Vec<OwnedRow>>());
}

type OwnedRow = (String, String, String, String, String);

/// Attempts name the line and the channel, whoever waits is told about others as well, and for whom
/// the lock is reserved is marked.
fn as_fair((state, call, reply, after, published): Row) -> OwnedRow {
    let words: Vec<&str> = call.split_whitespace().collect();
    let names_line = call.starts_with('+');
    let acquires = call.trim_start_matches('+').starts_with("acquire") && words[2] == "1";
    let is_allowed = !reply.starts_with("-9");
    let mut call = call.to_owned();
    if acquires && is_allowed && !names_line {
        call.insert(0, '+');
    }
    if acquires && is_allowed && words.len() < 9 {
        call += " ch PUBLISH";
    }
    let waits = acquires && reply.starts_with("0 ") && reply.split_whitespace().count() == 6;
    let told = if waits { " 0" } else { "" };
    let reserved = published.split_whitespace().find_map(|word| word.split_once('='));
    let marked = match reserved.filter(|(_, field)| call.starts_with('+') && *field != "0") {
        Some((channel, field)) if channel != "client" => format!(" marks=<{field}>@12s"),
        _ => String::new(),
    };
    let after = if after == "=" && !marked.is_empty() { state } else { after };
    let after = format!("{after}{marked}");
    (state.to_owned(), call, format!("{reply}{told}"), after, published.to_owned())
}

script_tests! {
    SUITE;
    acquire: |server: &mut dyn Server| check_all(server, &[reentrant::ACQUIRE, line::ACQUIRE], &[tables::ACQUIRE, tables::LIMIT].concat());
    release: |server: &mut dyn Server| check_all(server, &[reentrant::RELEASE, line::RELEASE], &[tables::RELEASE, tables::LIMIT_OF_RELEASE].concat());
    undo: |server: &mut dyn Server| check_table(server, tables::UNDO);
    release_at: |server: &mut dyn Server| check_all(server, &[reentrant::RELEASE_AT, line::RELEASE_AT], tables::RELEASE_AT);
    force_release: |server: &mut dyn Server| check_all(server, &[reentrant::FORCE_RELEASE, line::FORCE_RELEASE], tables::FORCE_RELEASE);
}
