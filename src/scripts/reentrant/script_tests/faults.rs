//! One command of a script refused, whichever it is: nothing may be left half done.

use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Stored;
use crate::scripts::reentrant::script_tests::Server;
use crate::scripts::reentrant::script_tests::memory::Memory;
use crate::scripts::reentrant::script_tests::set_up;
use crate::scripts::reentrant::script_tests::tables;
use crate::scripts::reentrant::script_tests::text::parse_call;

/// No row of the tables runs more commands.
const COMMANDS: u32 = 16;
const ERROR: &str = "NOPERM this user has no permissions to run the command";

#[test]
fn a_refused_command_leaves_nothing_half_done() {
    check(&mut Memory::start());
}

pub(super) fn check(server: &mut Memory) {
    let all = [
        tables::ACQUIRE,
        tables::RELEASE,
        tables::RELEASE_MANY,
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
        for at in 0..=COMMANDS {
            set_up(server, state);
            server.keyspace.fail_next(at, ERROR);
            let result = server.run(&call);
            let after = server.dump();
            let what = format!("command {at} of {text} in [{state}]: {result:?}, {after:?}");
            let goal = if at == 0 { &before } else { &complete };
            for key in call.keys.iter() {
                check_key(key, &before, &after, goal, &what);
                let vanished = hash(&before, key).is_some() && hash(&after, key).is_none();
                assert!(!vanished || result.is_ok(), "freed without saying so: {what}");
            }
        }
    }
}

/// A hash is what it was, what it should become, or gone; and it has a time to live unless it had none before.
fn check_key(key: &str, before: &[Dumped], after: &[Dumped], complete: &[Dumped], what: &str) {
    let Some((fields, pttl)) = hash(after, key) else { return };
    let (old, new) = (hash(before, key), hash(complete, key));
    let known = [old, new].into_iter().flatten().any(|(known, _)| known == fields);
    assert!(known, "half done: {what}");
    assert!(pttl.is_some() || old.is_some_and(|(_, pttl)| pttl.is_none()), "no time to live: {what}");
}

type Hash<'a> = (&'a [(String, String)], Option<i64>);

fn hash<'a>(dump: &'a [Dumped], key: &str) -> Option<Hash<'a>> {
    dump.iter().find(|dumped| dumped.key == key).and_then(|dumped| match &dumped.value {
        Stored::Hash(fields) => Some((fields.as_slice(), dumped.pttl)),
        _ => None,
    })
}
