//! The scripts on a cluster that is moving their slot: keys may be at either server, or one here
//! and one there. Redis then answers TRYAGAIN and executes nothing, or the script does all of it.
//! Reservations are the exception. Redis refuses a script to write a key that is not there any more,
//! or a timeout key that it does not name and that is absent; whoever goes next then tries again
//! without a reservation.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use redis::Connection;
use redis::RedisError;
use redis::Value as Raw;

use crate::backend::ScriptCall;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Stored;
use crate::backend::memory::store::differential::DUMP;
use crate::backend::redis::tests::redis_server::RedisServer;
use crate::backend::redis::tests::redis_server::eventually;
use crate::backend::redis::tests::redis_server::has_redis_7;
use crate::kinds::script_tests::Suite;
use crate::kinds::script_tests::last_word;
use crate::kinds::script_tests::redis::all_keys;
use crate::kinds::script_tests::redis::arguments;
use crate::kinds::script_tests::redis::planting;
use crate::kinds::script_tests::text;

/// Puts all keys into one slot.
const TAG: &str = "{s}";

struct Node {
    server: RedisServer,
    connection: Connection,
    /// The slot does not belong to it yet.
    imports: bool,
}

struct Moving {
    from: Node,
    to: Node,
    slot: String,
}

/// Two servers, the first of which has all slots.
impl Moving {
    fn start() -> Self {
        let (mut from, mut to) = (Node::start(), Node::start());
        from.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        from.ask(&["CLUSTER", "MEET", "127.0.0.1", &to.server.port().to_string()]);
        let is_well = |node: &mut Node| {
            let info: String = node.text(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
        };
        eventually("both servers agree", || is_well(&mut from) && is_well(&mut to));
        let Raw::Int(slot) = from.ask(&["CLUSTER", "KEYSLOT", TAG]) else { panic!("no slot") };
        to.imports = true;
        Self { from, to, slot: slot.to_string() }
    }

    /// Where the keys are that the test wants to be at the new server, the slot is moving.
    fn set_up(&mut self, keys: &[(String, Stored, Option<i64>)], moved: Option<&BTreeSet<String>>) {
        let slot = self.slot.clone();
        for node in [&mut self.from, &mut self.to] {
            node.ask(&["CLUSTER", "SETSLOT", &slot, "STABLE"]);
            node.ask(&["FLUSHALL"]);
        }
        let ids = [&mut self.from, &mut self.to].map(|node| node.text(&["CLUSTER", "MYID"]));
        if moved.is_some() {
            self.to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]);
        }
        for (key, value, pttl) in keys {
            let node = match moved.is_some_and(|moved| moved.contains(key)) {
                true => &mut self.to,
                false => &mut self.from,
            };
            for words in planting(key, value, *pttl) {
                node.ask(&words.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
        if moved.is_some() {
            self.from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]);
        }
    }

    /// As a client does it: after ASK once more at the other server.
    fn run(&mut self, call: &ScriptCall) -> Result<Raw, RedisError> {
        match self.from.run(call) {
            Err(error) if error.code() == Some("ASK") => self.to.run(call),
            other => other,
        }
    }

    fn dump(&mut self, is_moving: bool) -> Vec<Dumped> {
        let mut all = all_keys(self.from.ask(&["EVAL", DUMP, "0"]));
        if is_moving {
            all.extend(all_keys(self.to.ask(&["EVAL", DUMP, "0"])));
        }
        all
    }
}

impl Node {
    fn start() -> Self {
        let server = RedisServer::with(&["--cluster-enabled", "yes"]);
        let connection = server.connection();
        Self { server, connection, imports: false }
    }

    fn query(&mut self, command: &redis::Cmd) -> Result<Raw, RedisError> {
        if self.imports {
            redis::cmd("ASKING").exec(&mut self.connection)?;
        }
        command.query(&mut self.connection)
    }

    fn ask(&mut self, words: &[&str]) -> Raw {
        let command = redis::cmd(words[0]).arg(&words[1..]).to_owned();
        self.query(&command).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn text(&mut self, words: &[&str]) -> String {
        redis::from_redis_value(self.ask(words)).unwrap()
    }

    fn run(&mut self, call: &ScriptCall) -> Result<Raw, RedisError> {
        let mut command = redis::cmd("EVAL").arg(call.script.source).to_owned();
        arguments(call, &mut command);
        self.query(&command)
    }
}

/// Each row of the tables, and calls that Redis always executes where the lock is, with each of its keys at the new server, with all of them and with none.
pub(crate) fn check(suite: &'static Suite, more: &[(&'static str, ScriptCall)]) {
    if !has_redis_7("ADDSLOTSRANGE") {
        return;
    }
    let mut servers = Moving::start();
    let mut counts: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
    let rows = suite.tables.iter().flat_map(|(_, rows)| *rows);
    let rows = rows.map(|(state, text, ..)| (*state, text::parse_call(suite, text)));
    for (state, call) in rows.chain(more.iter().cloned()) {
        let call = in_one_slot(&call);
        let field = call.args.first().unwrap_or_default();
        let mut keys = text::parse_keys(state, now_us(&mut servers));
        keys.iter_mut().for_each(|(key, ..)| key.insert_str(0, TAG));
        servers.set_up(&keys, None);
        let Ok(expected) = servers.run(&call) else { continue };
        let complete = holds(&servers.dump(false));
        let all: BTreeSet<String> = keys.iter().map(|(key, ..)| key.clone()).collect();
        let each = all.iter().map(|key| BTreeSet::from([key.clone()]));
        for moved in each.chain([BTreeSet::new(), all.clone()]) {
            servers.set_up(&keys, Some(&moved));
            let before = holds(&servers.dump(true));
            let result = servers.run(&call);
            let after = holds(&servers.dump(true));
            let what = format!("{call:?} in [{state}], moved {moved:?}: {result:?}");
            let count = counts.entry(last_word(call.script)).or_default();
            match &result {
                Ok(reply) => {
                    assert_eq!(code(reply), code(&expected), "{what}");
                    assert!(after.is_subset(&complete), "{after:?} for {complete:?}: {what}");
                    // Reserved for others by nobody's wish but the script's.
                    let own = format!(" {field}");
                    let mut missing = complete.difference(&after);
                    let is_reserved =
                        |held: &String| !before.contains(held) && !held.contains(&own);
                    assert!(missing.all(is_reserved), "{after:?} for {complete:?}: {what}");
                    count[0] += 1;
                }
                Err(error) => {
                    assert!(!more.iter().any(|(known, _)| *known == state), "{what}");
                    assert_eq!(error.code(), Some("TRYAGAIN"), "{what}");
                    assert_eq!(after, before, "{what}");
                    count[1] += 1;
                }
            }
        }
    }
    println!("executed, to be tried again: {counts:?}");
    let both = counts.values().filter(|[executed, refused]| *executed > 0 && *refused > 0).count();
    assert!(both > 3, "{counts:?}");
}

fn now_us(servers: &mut Moving) -> i64 {
    let time: (i64, i64) = redis::from_redis_value(servers.from.ask(&["TIME"])).unwrap();
    time.0 * 1_000_000 + time.1
}

/// The same call with its keys, the base of timeout keys and the channel in one slot.
fn in_one_slot(call: &ScriptCall) -> ScriptCall {
    let tagged = |word: &str| format!("{TAG}{word}");
    let keys = call.keys.iter().map(tagged).collect();
    let arg = |word: &str| if matches!(word, "t" | "ch") { tagged(word) } else { word.to_owned() };
    ScriptCall { keys, args: call.args.iter().map(arg).collect(), ..call.clone() }
}

fn code(reply: &Raw) -> i64 {
    match reply {
        Raw::Array(entries) => redis::from_redis_value(entries[0].clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// What is held, and whether it has a time to live: without the line, the fence, timeout keys, and
/// what is reserved.
fn holds(dump: &[Dumped]) -> BTreeSet<String> {
    let mut held = BTreeSet::new();
    for Dumped { key, value, pttl } in dump {
        let mut put = |what: &str| held.insert(format!("{key} {what} {}", pttl.is_some()));
        match value {
            Stored::Hash(fields) => {
                let real: Vec<_> = fields.iter().filter(|(_, count)| count != "0").collect();
                let is_bare = real.iter().all(|(field, _)| field == "mode");
                for (field, count) in real.into_iter().filter(|_| !is_bare) {
                    put(&format!("{field}={count}"));
                }
            }
            Stored::SortedSet(members) if !key.contains("line") && !key.contains("heard") => {
                for (_, member) in members.iter() {
                    put(member);
                }
            }
            _ => {}
        }
    }
    held
}
