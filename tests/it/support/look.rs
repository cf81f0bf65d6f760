//! Looking at a server from outside, with another client than ours.

use std::collections::BTreeMap;
use std::path::Path;

use redis::Connection;

use crate::support::ROOT;

/// How often the server has run a command, inside scripts not counted for EVALSHA.
pub(crate) fn calls(connection: &mut Connection, command: &str) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query(connection).expect("INFO");
    let prefix = format!("cmdstat_{command}:calls=");
    info.lines()
        .find_map(|line| line.strip_prefix(&prefix))
        .and_then(|rest| rest.split(',').next())
        .map_or(0, |calls| calls.parse().expect("a number"))
}

/// EVALSHA and EVAL together: every script run of ours.
pub(crate) fn script_runs(connection: &mut Connection) -> u64 {
    calls(connection, "evalsha") + calls(connection, "eval")
}

/// The hash under a lock's key.
pub(crate) fn hash(connection: &mut Connection, key: &str) -> BTreeMap<String, String> {
    redis::cmd("HGETALL").arg(key).query(connection).expect("HGETALL")
}

/// The type of what is under a key.
pub(crate) fn kind(connection: &mut Connection, key: &str) -> String {
    redis::cmd("TYPE").arg(key).query(connection).expect("TYPE")
}

/// The keys of locks and of waiting lines: all but fence counters.
pub(crate) fn keys(connection: &mut Connection) -> Vec<String> {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(connection).expect("KEYS");
    keys.into_iter().filter(|key| !key.starts_with("redisson_lock_fence:")).collect()
}

/// The keys of locks.
pub(crate) fn lock_keys(connection: &mut Connection) -> Vec<String> {
    let mut keys = keys(connection);
    keys.retain(|key| !key.starts_with("redisson_lock_line"));
    keys
}

/// Channels that somebody is subscribed to, other than the clients' own.
pub(crate) fn lock_channels(connection: &mut Connection) -> Vec<String> {
    let mut channels: Vec<String> =
        redis::cmd("PUBSUB").arg("CHANNELS").query(connection).expect("PUBSUB");
    channels.retain(|name| {
        name.starts_with("redisson_") && !name.starts_with("redisson_lock__client:")
    });
    channels
}

pub(crate) fn subscribers(connection: &mut Connection, channel: &str) -> u64 {
    let (_, number): (String, u64) =
        redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query(connection).expect("PUBSUB NUMSUB");
    number
}

/// Locks and waiting lines without a time to live: they would stay forever.
pub(crate) fn immortal_keys(connection: &mut Connection) -> Vec<String> {
    let mut keys = keys(connection);
    keys.retain(|key| redis::cmd("PTTL").arg(key).query::<i64>(connection).expect("PTTL") == -1);
    keys
}

/// Everything on the server but its clock: each key with its value and whether it has a time to
/// live.
pub(crate) fn dump(connection: &mut Connection) -> BTreeMap<String, (Vec<u8>, bool)> {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(connection).expect("KEYS");
    let mut one = |key: String| {
        let value = redis::cmd("DUMP").arg(&key).query(connection).expect("DUMP");
        let pttl: i64 = redis::cmd("PTTL").arg(&key).query(connection).expect("PTTL");
        (key, (value, pttl != -1))
    };
    keys.into_iter().map(&mut one).collect()
}

/// The scripts of `lua/reentrant/` by name, as clients send them.
pub(crate) fn scripts() -> BTreeMap<String, String> {
    scripts_of("reentrant")
}

/// The same for `lua/<kind>/`.
pub(crate) fn scripts_of(kind: &str) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(format!("{ROOT}/lua/{kind}")).expect("scripts");
    let paths = entries.map(|entry| entry.expect("a script").path()).filter(|path| path.is_file());
    let name =
        |path: &Path| path.file_stem().and_then(|name| name.to_str()).expect("its name").to_owned();
    paths.map(|path| (name(&path), script_as_sent(&path))).collect()
}

/// A script as clients send it: a line `-- include PATH` is followed by the text of `lua/PATH`.
pub(crate) fn script_as_sent(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a script");
    let mut sent = String::new();
    for line in text.split_inclusive('\n') {
        sent.push_str(line);
        if let Some((_, included)) = line.split_once("-- include ") {
            let included = format!("{ROOT}/lua/{}", included.trim_end());
            sent.push_str(&script_as_sent(Path::new(&included)));
        }
    }
    sent
}

/// Has the server know every script of `lua/reentrant/`, so that clients call them all by their
/// digests.
pub(crate) fn load_scripts(connection: &mut Connection) {
    for script in scripts().keys() {
        digest(connection, script);
    }
}

/// The digest under which EVALSHA knows a script of `lua/reentrant/`.
pub(crate) fn digest(connection: &mut Connection, script: &str) -> String {
    digest_of(connection, "reentrant", script)
}

/// The same for `lua/<kind>/`. The server knows the script from then on.
pub(crate) fn digest_of(connection: &mut Connection, kind: &str, script: &str) -> String {
    let text = &scripts_of(kind)[script];
    redis::cmd("SCRIPT").arg("LOAD").arg(text).query(connection).expect("SCRIPT LOAD")
}
