//! What each command does to a count-down latch, and to the key that keeps what an operation has
//! come to.

use crate::backend::ScriptCall;
use crate::backend::memory::store::Stored;
use crate::kinds::conflict::is_holder_field;
use crate::kinds::script_tests::last_word;
use crate::kinds::script_tests::modelled::Answer;
use crate::kinds::script_tests::modelled::Key;
use crate::kinds::script_tests::modelled::Modelled;
use crate::kinds::script_tests::modelled::WRONG_TYPE;
use crate::kinds::script_tests::modelled::answer;

type Found = Result<Answer, String>;

const DAY_MS: i64 = 86_400_000;

/// What is under the key of a latch.
enum Latch {
    Absent,
    Count(i64),
    Conflict(i64),
}

/// What the command of an operation says.
struct Operation<'a> {
    not_after: i64,
    keep: i64,
    is_hash: bool,
    channel: &'a str,
    sharded: bool,
}

pub(super) fn run(server: &mut Modelled, call: &ScriptCall) -> Found {
    let (keys, args): (Vec<&str>, Vec<&str>) =
        (call.keys.iter().collect(), call.args.iter().collect());
    if last_word(call.script) == "look" {
        return Ok(look(server, keys[0], args[0] == "hash"));
    }
    let operation = Operation {
        not_after: number(args[0]),
        keep: number(args[1]),
        is_hash: args[2] == "hash",
        channel: args[3],
        sharded: args[4] == "SPUBLISH",
    };
    let (latch, op) = (keys[0], keys[1]);
    if let Some(before) = remembered(server, op)? {
        return Ok(told(call, before));
    }
    if server.now_us > operation.not_after {
        return Ok(answer(-1, &[]));
    }
    let found = latch_at(server, latch, operation.is_hash);
    let outcome = match (last_word(call.script), found) {
        (_, Latch::Conflict(what)) => -10 - what,
        ("count_down", Latch::Absent) => -1,
        ("count_down", Latch::Count(count)) => {
            count_down(server, latch, (count - 1).max(0), &operation)
        }
        ("try_set_count", Latch::Absent) => {
            let life = Some(number(args[6])).filter(|life| *life > 0);
            set(server, latch, number(args[5]), life, &operation);
            1
        }
        ("delete", Latch::Count(_)) => {
            server.keys.remove(latch);
            server.publish(operation.channel, operation.sharded, "0");
            1
        }
        ("try_set_count" | "delete", _) => 0,
        (other, _) => panic!("no such script: {other}"),
    };
    let left_ms = (operation.not_after - server.now_us).div_euclid(1_000) + operation.keep;
    let ends_ms = Some(server.now_ms() + left_ms.min(DAY_MS));
    let value = Stored::Text(outcome.to_string());
    server.keys.insert(op.to_owned(), Key { value, ends_ms });
    Ok(told(call, outcome))
}

fn number(text: &str) -> i64 {
    text.parse().unwrap()
}

/// The answer to every copy of a command whose operation has come to this.
fn told(call: &ScriptCall, outcome: i64) -> Answer {
    let counts = last_word(call.script) == "count_down";
    match outcome {
        0.. if counts => answer(1, &[outcome]),
        -1 if counts => answer(0, &[]),
        0 | 1 if !counts => answer(outcome, &[]),
        _ => answer(-4, &[-10 - outcome]),
    }
}

fn remembered(server: &Modelled, op: &str) -> Result<Option<i64>, String> {
    match server.keys.get(op).map(|key| &key.value) {
        None => Ok(None),
        Some(Stored::Text(text)) => Ok(text.parse().ok()),
        Some(_) => Err(WRONG_TYPE.to_owned()),
    }
}

fn latch_at(server: &Modelled, latch: &str, is_hash: bool) -> Latch {
    let text = match (server.keys.get(latch).map(|key| &key.value), is_hash) {
        (None, _) => return Latch::Absent,
        (Some(Stored::Text(text)), false) => Some(text.clone()),
        (Some(Stored::Hash(fields)), _) => {
            let field = |name: &str| fields.iter().find(|(field, _)| field == name);
            match field("kind").map(|(_, kind)| kind.as_str()) {
                Some("latch") if is_hash => field("count").map(|(_, count)| count.clone()),
                Some("latch") => return Latch::Conflict(7),
                Some("semaphore") => return Latch::Conflict(4),
                _ if field("mode").is_some() => return Latch::Conflict(3),
                _ if matches!(&fields[..], [(field, _)] if is_holder_field(field)) => {
                    return Latch::Conflict(6);
                }
                _ => return Latch::Conflict(2),
            }
        }
        _ => return Latch::Conflict(1),
    };
    text.and_then(|text| text.parse().ok()).map_or(Latch::Conflict(5), Latch::Count)
}

fn value_of(count: i64, is_hash: bool) -> Stored {
    let pair = |field: &str, value: String| (field.to_owned(), value);
    if is_hash {
        Stored::Hash(vec![pair("kind", "latch".to_owned()), pair("count", count.to_string())])
    } else {
        Stored::Text(count.to_string())
    }
}

fn count_down(server: &mut Modelled, latch: &str, left: i64, operation: &Operation<'_>) -> i64 {
    if left == 0 {
        server.keys.remove(latch);
        server.publish(operation.channel, operation.sharded, "0");
    } else if let Some(key) = server.keys.get_mut(latch) {
        key.value = value_of(left, operation.is_hash);
    }
    left
}

fn set(
    server: &mut Modelled,
    latch: &str,
    count: i64,
    life: Option<i64>,
    operation: &Operation<'_>,
) {
    let ends_ms = life.map(|life| server.now_ms() + life);
    let value = value_of(count, operation.is_hash);
    server.keys.insert(latch.to_owned(), Key { value, ends_ms });
    server.publish(operation.channel, operation.sharded, "1");
}

fn look(server: &Modelled, latch: &str, is_hash: bool) -> Answer {
    match latch_at(server, latch, is_hash) {
        Latch::Absent => answer(0, &[]),
        Latch::Conflict(what) => answer(-4, &[what]),
        Latch::Count(count) => answer(1, &[count, server.pttl(&server.keys[latch])]),
    }
}
