//! What each command does to a lock that two may hold at once. A hash under the name has for each
//! place the hold count, and the end of the place, which holds as long as that is ahead.

use crate::backend::ScriptCall;
use crate::backend::memory::store::Stored;
use crate::kinds::script_tests::last_word;
use crate::kinds::script_tests::modelled::Answer;
use crate::kinds::script_tests::modelled::Key;
use crate::kinds::script_tests::modelled::Modelled;
use crate::kinds::script_tests::modelled::WRONG_TYPE;
use crate::kinds::script_tests::modelled::answer;

type Found = Result<Answer, String>;

pub(super) fn run(server: &mut Modelled, call: &ScriptCall) -> Found {
    let args: Vec<&str> = call.args.iter().collect();
    let keys: Vec<&str> = call.keys.iter().collect();
    match last_word(call.script) {
        "acquire" => {
            acquire(server, [keys[0], keys[1]], args[0], [1, 2, 3].map(|place| number(args[place])))
        }
        "release" | "undo" => give_up(server, call, keys[0], args[0], number(args[1])),
        "renew" => renew(server, &keys, &args),
        other => panic!("no such script: {other}"),
    }
}

fn number(text: &str) -> i64 {
    text.parse().unwrap()
}

/// Under a name, or an empty hash.
fn fields(server: &Modelled, lock: &str) -> Result<Vec<(String, String)>, String> {
    match server.keys.get(lock).map(|key| &key.value) {
        None => Ok(Vec::new()),
        Some(Stored::Hash(fields)) => Ok(fields.clone()),
        Some(_) => Err(WRONG_TYPE.to_owned()),
    }
}

fn end_of(fields: &[(String, String)], place: &str) -> Option<i64> {
    let end = fields.iter().find(|(field, _)| *field == format!("{place}:ends"));
    end.map(|(_, end)| number(end))
}

fn put(fields: &mut Vec<(String, String)>, field: &str, value: i64) {
    match fields.iter_mut().find(|(known, _)| known == field) {
        Some((_, old)) => *old = value.to_string(),
        None => fields.push((field.to_owned(), value.to_string())),
    }
}

fn acquire(
    server: &mut Modelled,
    [lock, fence]: [&str; 2],
    field: &str,
    [count, lease, not_after]: [i64; 3],
) -> Found {
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    let now_ms = server.now_ms();
    let mut all = fields(server, lock)?;
    let known = all.clone();
    let places = || known.iter().filter_map(|(place, _)| Some((place, end_of(&known, place)?)));
    let is_over = |place: &str| end_of(&known, place).is_some_and(|end| end <= now_ms);
    let others = || places().filter(|(place, end)| *place != field && *end > now_ms);
    let own = end_of(&known, field).filter(|end| *end > now_ms);
    if count > 1 && own.is_none() {
        return Ok(answer(-2, &[]));
    }
    if own.is_none() && others().count() >= 2 {
        let first = others().map(|(_, end)| end).min().unwrap();
        let texts = others().take(1).map(|(holder, _)| holder.clone()).collect();
        return Ok(Answer { texts, ..answer(0, &[first - now_ms]) });
    }
    let token = if count == 1 { mint(server, fence)? } else { Some(0) };
    let Some(token) = token else { return Ok(answer(-4, &[5])) };
    let end = own.unwrap_or(0).max(now_ms + lease);
    let last = others().map(|(_, end)| end).fold(end, i64::max);
    all.retain(|(field, _)| !is_over(field.strip_suffix(":ends").unwrap_or(field)));
    put(&mut all, field, count);
    put(&mut all, &format!("{field}:ends"), end);
    server.keys.insert(lock.to_owned(), Key { value: Stored::Hash(all), ends_ms: Some(last) });
    Ok(answer(1, &[token]))
}

/// Larger than the last one; none if that cannot be. A counter that is no number counts for
/// nothing.
fn mint(server: &mut Modelled, fence: &str) -> Result<Option<i64>, String> {
    let last = match server.keys.get(fence).map(|key| &key.value) {
        None => None,
        Some(Stored::Text(text)) => text.parse::<i64>().ok(),
        Some(_) => return Err(WRONG_TYPE.to_owned()),
    };
    if last.is_some_and(|last| last > (1 << 53) - 2) {
        return Ok(None);
    }
    let token = last.map_or(server.now_us, |last| server.now_us.max(last + 1));
    server
        .keys
        .insert(fence.to_owned(), Key { value: Stored::Text(token.to_string()), ends_ms: None });
    Ok(Some(token))
}

/// A release, which wants the place to be there, or the undo of whatever a dead id has left.
fn give_up(server: &mut Modelled, call: &ScriptCall, lock: &str, field: &str, count: i64) -> Found {
    let is_undo = last_word(call.script) == "undo";
    let mut all = fields(server, lock)?;
    let end = format!("{field}:ends");
    let is_there = all.iter().any(|(known, _)| known == field || is_undo && *known == end);
    if !is_there {
        return Ok(answer(0, &[]));
    }
    if count > 0 {
        put(&mut all, field, count);
    } else {
        all.retain(|(known, _)| known != field && *known != end);
    }
    match server.keys.get_mut(lock) {
        Some(key) if !all.is_empty() => key.value = Stored::Hash(all),
        _ => drop(server.keys.remove(lock)),
    }
    if count > 0 {
        return Ok(answer(2, &[]));
    }
    let words: Vec<&str> = call.args.iter().collect();
    Ok(answer(1, &[server.publish(words[2], words[3] == "SPUBLISH", "0")]))
}

/// Each of the places that still hold lasts for its lease at least.
fn renew(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Found {
    if server.now_us > number(args[0]) {
        return Ok(answer(-1, &[]));
    }
    let now_ms = server.now_ms();
    let mut done = Vec::new();
    for (lock, hold) in keys.iter().zip(args[1..].chunks(2)) {
        let (field, wanted) = (hold[0], now_ms + number(hold[1]));
        let mut all = fields(server, lock)?;
        let held = end_of(&all, field).filter(|end| *end > now_ms);
        done.push(i64::from(held.is_some()));
        if let (Some(_), Some(key)) = (held.filter(|end| *end < wanted), server.keys.get_mut(*lock))
        {
            put(&mut all, &format!("{field}:ends"), wanted);
            // A key that has no time to live gets one.
            let ends_ms = key.ends_ms.map_or(wanted, |end| end.max(wanted));
            *key = Key { value: Stored::Hash(all), ends_ms: Some(ends_ms) };
        }
    }
    Ok(answer(1, &done))
}
