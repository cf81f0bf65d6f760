//! Every command that a script may be refused, and every two of them: nothing may be left half done,
//! and no lock without a time to live.

use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Stored;
use crate::kinds::reentrant::script_tests::Server;
use crate::kinds::reentrant::script_tests::memory::Memory;
use crate::kinds::reentrant::script_tests::set_up;
use crate::kinds::reentrant::script_tests::tables;
use crate::kinds::reentrant::script_tests::text::parse_call;

const ERROR: &str = "NOPERM this user has no permissions to run the command";

#[test]
fn refused_commands_leave_nothing_half_done() {
    check(&mut Memory::start());
}

pub(super) fn check(server: &mut Memory) {
    let all = [
        tables::ACQUIRE,
        tables::RELEASE,
        tables::RELEASE_MANY,
        tables::RELEASE_AT,
        tables::RENEW,
        tables::HAND_OFF,
        tables::INSPECT,
        tables::FORCE_RELEASE,
    ];
    for &(state, text, ..) in all.into_iter().flatten() {
        let call = parse_call(text);
        set_up(server, state);
        let before = server.dump();
        server.run(&call).unwrap();
        let complete = server.dump();
        set_up(server, state);
        server.keyspace.refuse_script(ERROR);
        server.run(&call).unwrap_err();
        let after = server.dump();
        call.keys.iter().for_each(|key| check_key(key, &before, &after, &before, "the script was refused"));
        for refused in sets(call.script.source) {
            set_up(server, state);
            server.keyspace.refuse_commands(&refused, ERROR);
            let result = server.run(&call);
            let after = server.dump();
            let what = format!("{text} in [{state}] without {refused:?}: {result:?}, {after:?}");
            for key in call.keys.iter() {
                check_key(key, &before, &after, &complete, &what);
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
    let pairs =
        names.iter().enumerate().flat_map(|(at, one)| names[at..].iter().map(|other| vec![*one, *other]));
    pairs.collect()
}

/// A hash is what it was, what it should become, or gone; and it has a time to live unless it had none before or is to
/// have none.
fn check_key(key: &str, before: &[Dumped], after: &[Dumped], complete: &[Dumped], what: &str) {
    let Some((fields, pttl)) = hash(after, key) else { return };
    let (old, new) = (hash(before, key), hash(complete, key));
    let is_known = |hash: &Hash<'_>| hash.0 == fields;
    assert!(old.as_ref().is_some_and(is_known) || new.as_ref().is_some_and(is_known), "half done: {what}");
    let endless = |hash: &Hash<'_>| hash.1.is_none();
    let meant =
        old.as_ref().is_some_and(endless) || new.as_ref().is_some_and(|new| is_known(new) && endless(new));
    assert!(pttl.is_some() || meant, "no time to live: {what}");
}

type Hash<'a> = (&'a [(String, String)], Option<i64>);

fn hash<'a>(dump: &'a [Dumped], key: &str) -> Option<Hash<'a>> {
    dump.iter().find(|dumped| dumped.key == key).and_then(|dumped| match &dumped.value {
        Stored::Hash(fields) => Some((fields.as_slice(), dumped.pttl)),
        _ => None,
    })
}
