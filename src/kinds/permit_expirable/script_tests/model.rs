//! What each command does to a semaphore of Redisson, written from the headers of the scripts and
//! not from their code.

use crate::backend::ScriptCall;
use crate::backend::memory::store::Stored;
use crate::kinds::script_tests::last_word;
use crate::kinds::script_tests::modelled::Answer;
use crate::kinds::script_tests::modelled::Key;
use crate::kinds::script_tests::modelled::Modelled;
use crate::kinds::script_tests::modelled::WRONG_TYPE;
use crate::kinds::script_tests::modelled::answer;
use crate::kinds::semaphore::script_tests::model::Found;
use crate::kinds::semaphore::script_tests::model::Hold;
use crate::kinds::semaphore::script_tests::model::LARGEST;
use crate::kinds::semaphore::script_tests::model::LONGEST_LEASE;
use crate::kinds::semaphore::script_tests::model::MOST_PERMITS;
use crate::kinds::semaphore::script_tests::model::bad;
use crate::kinds::semaphore::script_tests::model::digits;
use crate::kinds::semaphore::script_tests::model::whole;

const SLACK_MS: i64 = 5_000;

/// Ends and ids.
type Permits = Vec<(i64, String)>;

pub(super) fn run(server: &mut Modelled, call: &ScriptCall) -> Found {
    let args: Vec<&str> = call.args.iter().collect();
    let keys: Vec<&str> = call.keys.iter().collect();
    match last_word(call.script) {
        "acquire" => acquire(server, [keys[0], keys[1], keys[2]], &args),
        "release" => release(server, keys[0], keys[1], &args),
        "release_at" => release_at(server, keys[0], keys[1], &args),
        "renew" => renew(server, &keys, &args),
        "force_release" => force_release(server, keys[0], keys[1], &args),
        "set_permits" => set_permits(server, [keys[0], keys[1], keys[2]], &args),
        "inspect" => Ok(inspect(server, keys[0], keys[1])),
        other => panic!("no such script: {other}"),
    }
}

// ---- arguments

/// Where it is announced, from two arguments; the number of the first is `first`.
fn announce<'a>(args: &[&'a str], first: i64) -> Result<(&'a str, bool), Answer> {
    match (args[0], args[1]) {
        ("", _) => Err(answer(-9, &[first])),
        (channel, "PUBLISH") => Ok((channel, false)),
        (channel, "SPUBLISH") => Ok((channel, true)),
        _ => Err(answer(-9, &[first + 1])),
    }
}

// ---- what is there

/// All permits that are out; nothing if their key is something else.
fn out(server: &Modelled, permits: &str) -> Option<Permits> {
    match server.keys.get(permits).map(|key| &key.value) {
        None => Some(Vec::new()),
        Some(Stored::SortedSet(set)) => {
            Some(set.iter().map(|(end, id)| (*end as i64, id.clone())).collect())
        }
        Some(_) => None,
    }
}

fn has_run_out(server: &Modelled, end: i64) -> bool {
    end + SLACK_MS <= server.now_ms()
}

/// How many are free, if the number was set; or the conflict.
fn free(server: &Modelled, lock: &str) -> Result<Option<i64>, i64> {
    match server.keys.get(lock).map(|key| &key.value) {
        None => Ok(None),
        Some(Stored::Text(text)) => {
            let number = text.parse::<i64>().ok().filter(|number| number.to_string() == *text);
            number.filter(|_| text.len() <= 15).map(Some).ok_or(13)
        }
        Some(Stored::Hash(fields)) => Err(other_hash(fields)),
        Some(_) => Err(13),
    }
}

fn other_hash(fields: &[(String, String)]) -> i64 {
    let value = |name: &str| fields.iter().find(|(field, _)| field == name);
    match (value("kind").map(|(_, kind)| kind.as_str()), fields) {
        (Some("semaphore"), _) => 14,
        (Some("latch"), _) => 10,
        _ if value("mode").is_some() => 4,
        (_, [(field, _)]) if field.starts_with("6e3d30b7-83b1-433a-9335-5e8b9916d3ac:7") => 12,
        _ => 8,
    }
}

// ---- what every command does

fn put_permits(server: &mut Modelled, key: &str, all: Permits) {
    if all.is_empty() {
        server.keys.remove(key);
        return;
    }
    let set = all.into_iter().map(|(end, id)| (end as f64, id)).collect();
    let entry = server.keys.entry(key.to_owned());
    entry.or_insert(Key { value: Stored::Text(String::new()), ends_ms: None }).value =
        Stored::SortedSet(set);
}

fn put_free(server: &mut Modelled, lock: &str, free: i64) {
    let entry = server.keys.entry(lock.to_owned());
    entry.or_insert(Key { value: Stored::Text(String::new()), ends_ms: None }).value =
        Stored::Text(free.to_string());
}

/// Permits that somebody has touched last as long as their own ends say.
fn keep_for_good(server: &mut Modelled, permits: &str) {
    if let Some(key) = server.keys.get_mut(permits) {
        key.ends_ms = None;
    }
}

/// How many came back, and how many are free as it is announced. Nothing: the permits' key is
/// something else.
fn give_back(server: &mut Modelled, lock: &str, permits: &str, hold: &Hold) -> Option<(i64, i64)> {
    let mut all = out(server, permits)?;
    let before = all.len();
    all.retain(|(_, id)| !hold.has(id));
    let there = (before - all.len()) as i64;
    if there == 0 {
        return Some((0, 0));
    }
    keep_for_good(server, permits);
    put_permits(server, permits, all);
    let Ok(Some(free)) = free(server, lock) else { return Some((there, 1)) };
    put_free(server, lock, free + there);
    Some((there, (free + there).max(1)))
}

fn move_ends(server: &mut Modelled, permits: &str, hold: &Hold, ms: i64) {
    let end = server.now_ms() + ms + SLACK_MS;
    let mut all = out(server, permits).unwrap();
    all.iter_mut().filter(|(_, id)| hold.has(id)).for_each(|(known, _)| *known = end);
    keep_for_good(server, permits);
    put_permits(server, permits, all);
}

/// Larger than the last one.
fn mint(server: &mut Modelled, fence: &str) -> Result<i64, Answer> {
    let conflict = || answer(-4, &[5]);
    let token = match server.keys.get(fence).map(|key| &key.value) {
        None => server.now_us,
        Some(Stored::Text(text)) => {
            let last = whole(text, 0, LARGEST - 1).ok_or_else(conflict)?;
            server.now_us.max(last + 1)
        }
        Some(_) => return Err(conflict()),
    };
    let value = Stored::Text(token.to_string());
    server.keys.insert(fence.to_owned(), Key { value, ends_ms: None });
    Ok(token)
}

// ---- the commands

fn acquire(server: &mut Modelled, [lock, fence, permits]: [&str; 3], args: &[&str]) -> Found {
    let Some(hold) = Hold::of(args[0]) else { return bad(1) };
    let Some(lease) = whole(args[1], 1, LONGEST_LEASE) else { return bad(2) };
    let Some(not_after) = whole(args[2], 0, LARGEST) else { return bad(3) };
    let (channel, sharded) = match announce(&args[3..], 4) {
        Ok(announce) => announce,
        Err(bad) => return Ok(bad),
    };
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    let known = match free(server, lock) {
        Ok(known) => known,
        Err(what) => return Ok(answer(-4, &[what])),
    };
    let Some(all) = out(server, permits) else { return Ok(answer(-4, &[9])) };
    let number = known.map_or(hold.own, |free| free + all.len() as i64);
    let (over, taken): (Permits, Permits) =
        all.into_iter().partition(|(end, _)| has_run_out(server, *end));
    let others: Permits = taken.iter().filter(|(_, id)| !hold.has(id)).cloned().collect();
    let missing = hold.want - (taken.len() - others.len()) as i64;
    if missing > 0 && hold.want > number {
        return Ok(answer(-6, &[number.max(0)]));
    }
    // Who has all of them already keeps them, even if the number is a smaller one now.
    if missing > 0 && taken.len() as i64 + missing > number {
        let (end, id) = &taken[0];
        let mine = id.rsplit_once(':').filter(|(_, number)| digits(number).is_some());
        let hex = || id.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let holder = mine.map_or_else(hex, |(holder, _)| holder.to_owned());
        let left = end + SLACK_MS - server.now_ms();
        return Ok(Answer { texts: vec![holder], ..answer(0, &[left]) });
    }
    let token = match mint(server, fence) {
        Ok(token) => token,
        Err(conflict) => return Ok(conflict),
    };
    let end = server.now_ms() + lease + SLACK_MS;
    let mut all = others;
    all.extend(hold.permits().map(|id| (end, id)));
    let left = number - all.len() as i64;
    put_permits(server, permits, all);
    keep_for_good(server, permits);
    put_free(server, lock, left);
    if left > 0 && (!over.is_empty() || known.is_none()) {
        server.publish(channel, sharded, &left.to_string());
    }
    Ok(answer(1, &[token]))
}

fn release(server: &mut Modelled, lock: &str, permits: &str, args: &[&str]) -> Found {
    let Some(hold) = Hold::of(args[0]) else { return bad(1) };
    let (channel, sharded) = match announce(&args[1..], 2) {
        Ok(announce) => announce,
        Err(bad) => return Ok(bad),
    };
    Ok(match give_back(server, lock, permits, &hold) {
        None => answer(-3, &[]),
        Some((0, _)) => answer(0, &[]),
        Some((_, free)) => answer(1, &[server.publish(channel, sharded, &free.to_string())]),
    })
}

fn release_at(server: &mut Modelled, lock: &str, permits: &str, args: &[&str]) -> Found {
    let Some(hold) = Hold::of(args[0]) else { return bad(1) };
    let Some(free_at) = whole(args[1], 0, LARGEST) else { return bad(2) };
    let Some(most) = whole(args[2], 1, LONGEST_LEASE) else { return bad(3) };
    let (channel, sharded) = match announce(&args[3..], 4) {
        Ok(announce) => announce,
        Err(bad) => return Ok(bad),
    };
    let rest = (free_at - server.now_us + 999).div_euclid(1_000).min(most);
    if rest <= 0 {
        return release(server, lock, permits, &[args[0], args[3], args[4]]);
    }
    let Some(all) = out(server, permits) else { return Ok(answer(-3, &[])) };
    let first = hold.permits().next();
    if !all.iter().any(|(_, id)| Some(id) == first.as_ref()) {
        return Ok(answer(0, &[]));
    }
    move_ends(server, permits, &hold, rest);
    Ok(answer(2, &[server.publish(channel, sharded, "1")]))
}

fn renew(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Found {
    let Some(not_after) = whole(args[0], 0, LARGEST) else { return bad(1) };
    if args.len() != 2 * keys.len() + 1 {
        return bad(args.len() as i64);
    }
    let mut wanted = Vec::new();
    for (at, (permits, args)) in keys.iter().zip(args[1..].chunks(2)).enumerate() {
        let at = at as i64 + 1;
        let Some(hold) = Hold::of(args[0]) else { return bad(2 * at) };
        let Some(lease) = whole(args[1], 1, LONGEST_LEASE) else { return bad(2 * at + 1) };
        wanted.push((*permits, hold, lease));
    }
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    let each: Vec<i64> = wanted
        .iter()
        .map(|(permits, hold, lease)| renew_one(server, permits, hold, *lease))
        .collect();
    Ok(answer(1, &each))
}

fn renew_one(server: &mut Modelled, permits: &str, hold: &Hold, lease: i64) -> i64 {
    let Some(all) = out(server, permits) else { return -3 };
    let end = |id: &str| all.iter().find(|(_, other)| *other == id).map(|(end, _)| *end);
    let ends: Vec<i64> = hold.permits().filter_map(|id| end(&id)).collect();
    if ends.len() as i64 != hold.want || ends.iter().any(|end| has_run_out(server, *end)) {
        return 0;
    }
    let last = ends.last().copied().unwrap_or_default();
    if lease > 1 && last < server.now_ms() + lease + SLACK_MS {
        move_ends(server, permits, hold, lease);
    }
    1
}

fn force_release(server: &mut Modelled, lock: &str, permits: &str, args: &[&str]) -> Found {
    let Some(hold) = Hold::of(args[0]) else { return bad(1) };
    let Some(not_after) = whole(args[1], 0, LARGEST) else { return bad(2) };
    let (channel, sharded) = match announce(&args[2..], 3) {
        Ok(announce) => announce,
        Err(bad) => return Ok(bad),
    };
    if args[4].is_empty() {
        return bad(5);
    }
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    Ok(match give_back(server, lock, permits, &hold) {
        None => answer(-3, &[]),
        Some((0, _)) => answer(0, &[]),
        Some((_, free)) => {
            let heard = server.publish(channel, sharded, &free.to_string());
            server.publish(args[4], false, lock);
            answer(1, &[heard])
        }
    })
}

fn set_permits(
    server: &mut Modelled,
    [lock, operation, permits]: [&str; 3],
    args: &[&str],
) -> Found {
    let adds = match args[0] {
        "set" => false,
        "add" => true,
        _ => return bad(1),
    };
    let Some(number) = whole(args[1], 1, MOST_PERMITS) else { return bad(2) };
    let Some(own) = whole(args[2], 1, MOST_PERMITS) else { return bad(3) };
    let Some(not_after) = whole(args[3], 0, LARGEST) else { return bad(4) };
    let Some(memory) = whole(args[4], 1, LONGEST_LEASE) else { return bad(5) };
    let (channel, sharded) = match announce(&args[5..], 6) {
        Ok(announce) => announce,
        Err(bad) => return Ok(bad),
    };
    match server.keys.get(operation).map(|key| &key.value) {
        None => {}
        Some(Stored::Text(made)) => return Ok(answer(1, &[made.parse().unwrap()])),
        Some(_) => return Err(WRONG_TYPE.to_owned()),
    }
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    let known = match free(server, lock) {
        Ok(known) => known,
        Err(what) => return Ok(answer(-4, &[what])),
    };
    let Some(all) = out(server, permits) else { return Ok(answer(-4, &[9])) };
    let taken = all.len() as i64;
    let before = known.map_or(own, |free| free + taken).max(0);
    let number = if adds { before + number } else { number };
    if adds && number > MOST_PERMITS {
        return Ok(answer(-6, &[before]));
    }
    let kept = ((not_after - server.now_us).div_euclid(1_000) + memory).min(LONGEST_LEASE);
    let ends_ms = Some(server.now_ms() + kept);
    let value = Stored::Text(number.to_string());
    server.keys.insert(operation.to_owned(), Key { value, ends_ms });
    put_free(server, lock, number - taken);
    server.publish(channel, sharded, &(number - taken).max(1).to_string());
    Ok(answer(1, &[number]))
}

fn inspect(server: &Modelled, lock: &str, permits: &str) -> Answer {
    let pttl = server.keys.get(lock).map_or(-2, |key| server.pttl(key));
    let known = match free(server, lock) {
        Ok(known) => known,
        Err(what) => return answer(6, &[pttl, what]),
    };
    let Some(all) = out(server, permits) else { return answer(6, &[pttl, 9]) };
    let number = known.map_or(-1, |free| (free + all.len() as i64).max(0));
    let taken = all.iter().filter(|(end, _)| !has_run_out(server, *end)).count();
    answer(4, &[pttl, number, taken as i64])
}
