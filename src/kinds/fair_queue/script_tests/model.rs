//! What each command does to a fair lock of Redisson, written from the description of the protocol
//! (`docs/protocol.md`) and from the headers of the scripts, and not from their code.

use crate::backend::ScriptCall;
use crate::backend::memory::store::Stored;
use crate::kinds::script_tests::last_word;
use crate::kinds::script_tests::modelled::Answer;
use crate::kinds::script_tests::modelled::Key;
use crate::kinds::script_tests::modelled::Modelled;
use crate::kinds::script_tests::modelled::answer;
use crate::kinds::semaphore::script_tests::model::Found;
use crate::kinds::semaphore::script_tests::model::LARGEST;
use crate::kinds::semaphore::script_tests::model::LONGEST_LEASE;
use crate::kinds::semaphore::script_tests::model::bad;
use crate::kinds::semaphore::script_tests::model::whole;

const OURS_MS: i64 = 15_000;
const REDISSONS_MS: i64 = 300_000;
const MOST_COUNT: i64 = 65_535;

/// The keys of one lock, and where its places are told.
#[derive(Clone, Copy)]
struct Lock<'a> {
    lock: &'a str,
    queue: &'a str,
    deadlines: &'a str,
    channel: &'a str,
    sharded: bool,
}

pub(super) fn run(server: &mut Modelled, call: &ScriptCall) -> Found {
    let args: Vec<&str> = call.args.iter().collect();
    let keys: Vec<&str> = call.keys.iter().collect();
    let word = last_word(call.script);
    let (channel, fence) = match word {
        "acquire" => (6, Some(keys[1])),
        "release" | "undo" | "force_release" => (2, None),
        "release_at" => (3, None),
        other => panic!("no such script: {other}"),
    };
    let [queue, deadlines] = if fence.is_some() { [2, 3] } else { [1, 2] }.map(|at| keys[at]);
    let at = |at: usize| args.get(at).copied().unwrap_or_default();
    let lock = Lock {
        lock: keys[0],
        queue,
        deadlines,
        channel: at(channel),
        sharded: at(channel + 1) == "SPUBLISH",
    };
    // What is wrong first.
    let checks: &[(usize, bool)] = &match word {
        "acquire" => [
            (1, !at(0).is_empty()),
            (2, whole(at(1), 1, MOST_COUNT).is_some()),
            (3, whole(at(2), 1, LONGEST_LEASE).is_some()),
            (4, whole(at(3), 0, LARGEST).is_some()),
            (5, matches!(at(4), "try" | "wait")),
            (6, !at(5).is_empty()),
        ],
        "release_at" => [
            (1, !at(0).is_empty()),
            (2, whole(at(1), 0, LARGEST).is_some()),
            (3, whole(at(2), 1, LONGEST_LEASE).is_some()),
            (0, true),
            (0, true),
            (0, true),
        ],
        "force_release" => [
            (1, !at(0).is_empty()),
            (2, whole(at(1), 0, LARGEST).is_some()),
            (0, true),
            (0, true),
            (0, true),
            (0, true),
        ],
        _ => [
            (1, !at(0).is_empty()),
            (2, whole(at(1), 0, MOST_COUNT).is_some()),
            (0, true),
            (0, true),
            (0, true),
            (0, true),
        ],
    };
    let announced = [
        (channel + 1, !lock.channel.is_empty()),
        (channel + 2, matches!(at(channel + 1), "PUBLISH" | "SPUBLISH")),
        (5, word != "undo" || args.len() > 4),
        (5, word != "force_release" || !at(4).is_empty()),
    ];
    if let Some((number, _)) = checks.iter().chain(&announced).find(|(_, good)| !good) {
        return bad(*number as i64);
    }
    let number = |at: usize| args[at].parse::<i64>().unwrap();
    Ok(match word {
        "acquire" if server.now_us > number(3) => answer(-1, &[]),
        "acquire" if number(1) > 1 => count_up(server, lock, args[0], number(1), number(2)),
        "acquire" => {
            let (field, lease, place) = (args[0], number(2), args[5]);
            acquire(server, lock, fence.unwrap(), field, lease, place, args[4] == "wait")
        }
        "release" | "undo" => {
            if word == "undo" && !args[4].is_empty() {
                leave(server, lock, args[4]);
            }
            release(server, lock, args[0], number(1))
        }
        "release_at" => release_at(server, lock, args[0], number(1), number(2)),
        _ if server.now_us > number(1) => answer(-1, &[]),
        _ => force_release(server, lock, args[0], args[4]),
    })
}

// ---- what is there

fn hash(server: &Modelled, lock: Lock<'_>) -> Option<Vec<(String, String)>> {
    match server.keys.get(lock.lock).map(|key| &key.value) {
        None => Some(Vec::new()),
        Some(Stored::Hash(fields)) => Some(fields.clone()),
        Some(_) => None,
    }
}

fn count_of<'a>(fields: &'a [(String, String)], field: &str) -> Option<&'a str> {
    fields.iter().find(|(known, _)| known == field).map(|(_, count)| count.as_str())
}

fn places(server: &Modelled, lock: Lock<'_>) -> Option<Vec<String>> {
    match server.keys.get(lock.queue).map(|key| &key.value) {
        None => Some(Vec::new()),
        Some(Stored::List(places)) => Some(places.clone()),
        Some(_) => None,
    }
}

fn deadlines(server: &Modelled, lock: Lock<'_>) -> Option<Vec<(f64, String)>> {
    match server.keys.get(lock.deadlines).map(|key| &key.value) {
        None => Some(Vec::new()),
        Some(Stored::SortedSet(set)) => Some(set.iter().cloned().collect()),
        Some(_) => None,
    }
}

// ---- what commands do

fn put(server: &mut Modelled, key: &str, value: Stored) {
    let entry = server.keys.entry(key.to_owned());
    entry.or_insert(Key { value: Stored::Text(String::new()), ends_ms: None }).value = value;
}

fn put_hash(server: &mut Modelled, lock: Lock<'_>, fields: Vec<(String, String)>) {
    match fields.is_empty() {
        true => drop(server.keys.remove(lock.lock)),
        false => put(server, lock.lock, Stored::Hash(fields)),
    }
}

fn put_places(server: &mut Modelled, lock: Lock<'_>, places: Vec<String>) {
    match places.is_empty() {
        true => drop(server.keys.remove(lock.queue)),
        false => put(server, lock.queue, Stored::List(places)),
    }
}

fn put_deadlines(server: &mut Modelled, lock: Lock<'_>, set: Vec<(f64, String)>) {
    match set.is_empty() {
        true => drop(server.keys.remove(lock.deadlines)),
        false => put(server, lock.deadlines, Stored::SortedSet(set.into_iter().collect())),
    }
}

/// Who is first, and until when; those before whose deadlines have passed lose their places, but
/// not `own`. Nothing if a key is something else.
fn first(server: &mut Modelled, lock: Lock<'_>, own: Option<&str>) -> Option<(String, i64)> {
    let now = server.now_ms() as f64;
    loop {
        let mut all = places(server, lock)?;
        let first = all.first()?.clone();
        if Some(first.as_str()) == own {
            return Some((first, 0));
        }
        let mut set = deadlines(server, lock)?;
        let deadline = set.iter().find(|(_, place)| *place == first).map(|(end, _)| *end);
        if let Some(deadline) = deadline.filter(|deadline| *deadline > now) {
            return Some((first, deadline as i64));
        }
        all.remove(0);
        set.retain(|(_, place)| *place != first);
        put_places(server, lock, all);
        put_deadlines(server, lock, set);
    }
}

fn tell_first(server: &mut Modelled, lock: Lock<'_>) -> i64 {
    match first(server, lock, None) {
        Some((first, _)) => tell(server, lock, &first),
        None => 0,
    }
}

fn tell(server: &mut Modelled, lock: Lock<'_>, place: &str) -> i64 {
    server.publish(&format!("{}:{place}", lock.channel), lock.sharded, "0")
}

fn is_ours(place: &str) -> bool {
    place.ends_with(":place")
}

/// A place leaves, and those of Redisson up to the next one of ours are waited for as if it had not
/// been there.
fn leave(server: &mut Modelled, lock: Lock<'_>, place: &str) {
    let Some(mut all) = places(server, lock) else { return };
    let at = all.iter().position(|known| known == place).filter(|_| is_ours(place));
    let behind = at.map_or(&[][..], |at| &all[at + 1..]);
    let chained: Vec<String> = behind.iter().take_while(|it| !is_ours(it)).cloned().collect();
    all.retain(|known| known != place);
    put_places(server, lock, all);
    let Some(mut set) = deadlines(server, lock) else { return };
    set.retain(|(_, known)| known != place);
    for (end, known) in &mut set {
        *end -= chained.iter().filter(|other| *other == known).count() as f64 * OURS_MS as f64;
    }
    put_deadlines(server, lock, set);
}

/// The place is at the end, or stays; and it counts for 15 s beyond what those of Redisson before it
/// may take off. How many are before it.
fn stand(server: &mut Modelled, lock: Lock<'_>, place: &str) -> i64 {
    let mut all = places(server, lock).unwrap();
    let rank = all.iter().position(|known| known == place).unwrap_or(all.len());
    let added = all[..rank].iter().filter(|it| !is_ours(it)).count() as i64 * REDISSONS_MS;
    if rank == all.len() {
        all.push(place.to_owned());
    }
    let mut set = deadlines(server, lock).unwrap();
    set.retain(|(_, known)| known != place);
    set.push(((server.now_ms() + added + OURS_MS) as f64, place.to_owned()));
    put_places(server, lock, all);
    put_deadlines(server, lock, set);
    rank as i64
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

fn at_least(server: &mut Modelled, lock: Lock<'_>, lease: i64) {
    let ends_ms = server.now_ms() + lease;
    let key = server.keys.get_mut(lock.lock).unwrap();
    if key.ends_ms.is_none_or(|known| known < ends_ms) {
        key.ends_ms = Some(ends_ms);
    }
}

// ---- the commands

/// What makes a hash no lock of anybody.
fn conflict(fields: &[(String, String)]) -> Option<Answer> {
    let what = match (count_of(fields, "mode"), count_of(fields, "kind")) {
        (Some(_), _) => 4,
        (_, Some("latch")) => 10,
        (_, Some("semaphore")) => 11,
        _ if fields.len() > 1 => 2,
        _ => return None,
    };
    Some(answer(-4, &[what]))
}

fn acquire(
    server: &mut Modelled,
    lock: Lock<'_>,
    fence: &str,
    field: &str,
    lease: i64,
    place: &str,
    waits: bool,
) -> Answer {
    let Some(fields) = hash(server, lock) else { return answer(-4, &[1]) };
    let own = count_of(&fields, field);
    // Beyond the page: no script writes a count of 0 for a hold.
    let reserved = own == Some("0");
    if own.is_none() || reserved {
        if let Some(conflict) = conflict(&fields) {
            return conflict;
        }
    }
    if own.is_none() {
        if places(server, lock).is_none() || deadlines(server, lock).is_none() {
            return answer(-4, &[15]);
        }
        let other = match fields.first() {
            Some((holder, _)) => Some((holder.clone(), server.pttl(&server.keys[lock.lock]))),
            None => match first(server, lock, Some(place)) {
                Some((first, deadline)) if first != place => {
                    tell(server, lock, &first);
                    Some((first, deadline - server.now_ms()))
                }
                _ => None,
            },
        };
        if let Some((holder, left)) = other {
            let told = Answer { texts: vec![holder], ..answer(0, &[left]) };
            return match waits {
                true => Answer { more: vec![1, stand(server, lock, place)], ..told },
                false => told,
            };
        }
    }
    let token = match mint(server, fence) {
        Ok(token) => token,
        Err(conflict) => return conflict,
    };
    if own.is_none() || reserved {
        let ends_ms = Some(server.now_ms() + lease);
        let value = Stored::Hash(vec![(field.to_owned(), "1".to_owned())]);
        server.keys.insert(lock.lock.to_owned(), Key { value, ends_ms });
    }
    at_least(server, lock, lease);
    leave(server, lock, place);
    answer(1, &[token])
}

fn count_up(server: &mut Modelled, lock: Lock<'_>, field: &str, count: i64, lease: i64) -> Answer {
    let Some(mut fields) = hash(server, lock) else { return answer(-4, &[1]) };
    if fields.is_empty() {
        return answer(-2, &[]);
    }
    match count_of(&fields, field) {
        None | Some("0") => conflict(&fields).unwrap_or_else(|| answer(-3, &[])),
        Some(_) => {
            let own = fields.iter_mut().find(|(known, _)| known == field).unwrap();
            own.1 = count.to_string();
            put_hash(server, lock, fields);
            at_least(server, lock, lease);
            answer(1, &[0])
        }
    }
}

/// The field is gone. What the answer is, and whether the lock is free.
fn take_off(server: &mut Modelled, lock: Lock<'_>, field: &str) -> (i64, bool) {
    let mut fields = hash(server, lock).unwrap();
    fields.retain(|(known, _)| known != field);
    if fields.is_empty() {
        put_hash(server, lock, fields);
        return (1, true);
    }
    let is_read_write = count_of(&fields, "mode").is_some();
    put_hash(server, lock, fields);
    if is_read_write {
        return (4, false);
    }
    server.keys.get_mut(lock.lock).unwrap().ends_ms = None;
    (3, false)
}

fn release(server: &mut Modelled, lock: Lock<'_>, field: &str, count: i64) -> Answer {
    let Some(mut fields) = hash(server, lock) else { return answer(-3, &[]) };
    if fields.is_empty() {
        if count == 0 {
            tell_first(server, lock);
        }
        return answer(0, &[]);
    }
    let own = count_of(&fields, field);
    if own.is_none() || count > 0 && own == Some("0") {
        return answer(-3, &[]);
    }
    if count > 0 {
        let own = fields.iter_mut().find(|(known, _)| known == field).unwrap();
        own.1 = count.to_string();
        put_hash(server, lock, fields);
        return answer(2, &[]);
    }
    let (code, is_free) = take_off(server, lock, field);
    let heard = if is_free { tell_first(server, lock) } else { 0 };
    answer(code, &[heard])
}

fn release_at(
    server: &mut Modelled,
    lock: Lock<'_>,
    field: &str,
    free_at: i64,
    most: i64,
) -> Answer {
    let Some(fields) = hash(server, lock) else { return answer(-3, &[]) };
    if fields.is_empty() {
        return answer(0, &[]);
    }
    let kept = format!("{field}:kept");
    if matches!(count_of(&fields, field), None | Some("0")) {
        return match count_of(&fields, &kept) {
            Some(_) => answer(2, &[0]),
            None => answer(-3, &[]),
        };
    }
    let rest = (free_at - server.now_us + 999).div_euclid(1_000).min(most);
    if rest > 0 && fields.len() == 1 {
        let ends_ms = Some(server.now_ms() + rest);
        let value = Stored::Hash(vec![(kept, "0".to_owned())]);
        server.keys.insert(lock.lock.to_owned(), Key { value, ends_ms });
        return answer(2, &[tell_first(server, lock)]);
    }
    let (code, _) = take_off(server, lock, field);
    answer(code, &[tell_first(server, lock)])
}

fn force_release(
    server: &mut Modelled,
    lock: Lock<'_>,
    field: &str,
    client_channel: &str,
) -> Answer {
    let Some(fields) = hash(server, lock) else { return answer(-3, &[]) };
    if fields.is_empty() {
        return answer(0, &[]);
    }
    if count_of(&fields, "mode").is_some() || count_of(&fields, field).is_none() {
        return answer(-3, &[]);
    }
    let (code, _) = take_off(server, lock, field);
    let heard = tell_first(server, lock);
    server.publish(client_channel, false, lock.lock);
    answer(code, &[heard])
}
