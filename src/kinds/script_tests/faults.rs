//! Every command that a script may be refused, and every two of them: nothing may be left half
//! done, and no lock without a time to live.

use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Stored;
use crate::kinds::script_tests::Fields;
use crate::kinds::script_tests::Server;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::memory::Memory;
use crate::kinds::script_tests::set_up;
use crate::kinds::script_tests::text::parse_call;

const ERROR: &str = "NOPERM this user has no permissions to run the command";

pub(crate) fn check(server: &mut Memory) {
    let suite = server.suite();
    assert!(!suite.tables.is_empty(), "no tables");
    for &(state, text, ..) in suite.tables.iter().flat_map(|(_, rows)| *rows) {
        let call = parse_call(suite, text);
        // Each of the calls runs at the same time, so that what it would write is the same.
        let now_us = server.now_us;
        set_up(server, state);
        let before = server.dump();
        server.run(&call).unwrap();
        let complete = server.dump();
        server.now_us = now_us;
        set_up(server, state);
        server.keyspace.refuse_script(ERROR);
        server.run(&call).unwrap_err();
        let after = server.dump();
        let now_ms = server.now_us / 1_000;
        let refused = "the script was refused";
        call.keys
            .iter()
            .for_each(|key| check_key(suite, now_ms, key, [&before, &after, &before], refused));
        for refused in sets(call.script.source) {
            server.now_us = now_us;
            set_up(server, state);
            server.keyspace.refuse_commands(&refused, ERROR);
            let result = server.run(&call);
            let after = server.dump();
            let what = format!("{text} in [{state}] without {refused:?}: {result:?}, {after:?}");
            for key in call.keys.iter() {
                check_key(suite, server.now_us / 1_000, key, [&before, &after, &complete], &what);
                let vanished = hash(&before, key).is_some() && hash(&after, key).is_none();
                assert!(!vanished || result.is_ok(), "freed without saying so: {what}");
            }
        }
    }
}

/// One or two of the commands that a script uses.
fn sets(source: &str) -> Vec<Vec<&'static str>> {
    let used = |name: &&str| source.contains(&format!("\"{name}\"")) || name.ends_with("PUBLISH");
    let names: Vec<&str> = Keyspace::command_names().filter(used).collect();
    let pairs = names
        .iter()
        .enumerate()
        .flat_map(|(at, one)| names[at..].iter().map(|other| vec![*one, *other]));
    pairs.collect()
}

/// A hash is what it was, what it should become, or gone; and it has a time to live unless it had
/// none before or is to have none. What is over by itself does not count.
fn check_key(suite: &Suite, now_ms: i64, key: &str, dumps: [&[Dumped]; 3], what: &str) {
    let [old, now, new] = dumps.map(|dump| hash(dump, key));
    let Some((fields, pttl)) = now else { return };
    let valid = |fields: &Fields| (suite.valid)(fields, now_ms);
    let is_known = |hash: &Hash<'_>| valid(hash.0) == valid(fields);
    assert!(
        old.as_ref().is_some_and(is_known) || new.as_ref().is_some_and(is_known),
        "half done: {what}"
    );
    let endless = |hash: &Hash<'_>| hash.1.is_none();
    let meant = old.as_ref().is_some_and(endless)
        || new.as_ref().is_some_and(|new| is_known(new) && endless(new));
    assert!(pttl.is_some() || meant, "no time to live: {what}");
}

type Hash<'a> = (&'a Fields, Option<i64>);

fn hash<'a>(dump: &'a [Dumped], key: &str) -> Option<Hash<'a>> {
    dump.iter().find(|dumped| dumped.key == key).and_then(|dumped| match &dumped.value {
        Stored::Hash(fields) => Some((fields.as_slice(), dumped.pttl)),
        _ => None,
    })
}
