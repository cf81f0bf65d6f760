//! What each command does to a semaphore, written from the headers of the scripts and not from
//! their code.

use crate::backend::ScriptCall;
use crate::backend::memory::store::Stored;
use crate::kinds::script_tests::last_word;
use crate::kinds::script_tests::modelled::Answer;
use crate::kinds::script_tests::modelled::Key;
use crate::kinds::script_tests::modelled::Modelled;
use crate::kinds::script_tests::modelled::WRONG_TYPE;
use crate::kinds::script_tests::modelled::answer;

pub(in crate::kinds) const LARGEST: i64 = (1 << 53) - 1;
pub(in crate::kinds) const LONGEST_LEASE: i64 = 86_400_000;
const MOST_WANTED: i64 = 1_000;
pub(in crate::kinds) const MOST_PERMITS: i64 = 1_000_000;
const RESERVATION_MS: i64 = 1_500;
const LINE_MS: i64 = 12_000;

pub(in crate::kinds) type Found = Result<Answer, String>;
type Places = Vec<(i64, String)>;

/// A hold, by its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Hold {
    pub(in crate::kinds) field: String,
    pub(in crate::kinds) want: i64,
    pub(in crate::kinds) own: i64,
}

impl Hold {
    pub(in crate::kinds) fn of(field: &str) -> Option<Self> {
        let mut words = field.rsplitn(3, ':');
        let (own, want) = (digits(words.next()?)?, digits(words.next()?)?);
        words.next()?;
        let good = (1..=MOST_WANTED).contains(&want) && (1..=MOST_PERMITS).contains(&own);
        good.then(|| Self { field: field.to_owned(), want, own })
    }

    pub(in crate::kinds) fn permits(&self) -> impl Iterator<Item = String> + '_ {
        (1..=self.want).map(|number| format!("{}:{number}", self.field))
    }

    pub(in crate::kinds) fn has(&self, permit: &str) -> bool {
        self.permits().any(|own| own == permit)
    }
}

pub(in crate::kinds) fn digits(text: &str) -> Option<i64> {
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| all)
}

/// A whole number between these.
pub(in crate::kinds) fn whole(text: &str, least: i64, most: i64) -> Option<i64> {
    text.parse().ok().filter(|number| (least..=most).contains(number))
}

/// The keys of one semaphore, and how it is announced.
#[derive(Clone, Copy)]
struct Place<'a> {
    lock: &'a str,
    permits: &'a str,
    heard: &'a str,
    line: Option<&'a str>,
    channel: &'a str,
    sharded: bool,
}

pub(super) fn run(server: &mut Modelled, call: &ScriptCall) -> Found {
    let args: Vec<&str> = call.args.iter().collect();
    let keys: Vec<&str> = call.keys.iter().collect();
    match last_word(call.script) {
        "acquire" => acquire(server, &keys, &args),
        "release" => release(server, &keys, &args),
        "release_at" => release_at(server, &keys, &args),
        "renew" => renew(server, &keys, &args),
        "force_release" => force_release(server, &keys, &args),
        "set_permits" => set_permits(server, &keys, &args),
        "inspect" => inspect(server, keys[0], keys[1]),
        other => panic!("no such script: {other}"),
    }
}

// ---- arguments

pub(in crate::kinds) fn bad(argument: i64) -> Found {
    Ok(answer(-9, &[argument]))
}

/// The keys without the fence; the arguments that begin with the channel, whose first is `first`.
fn place<'a>(keys: &[&'a str], args: &[&'a str], first: i64) -> Result<Place<'a>, Answer> {
    let sharded = match args[1] {
        "PUBLISH" => false,
        "SPUBLISH" => true,
        _ if args[0].is_empty() => return Err(answer(-9, &[first])),
        _ => return Err(answer(-9, &[first + 1])),
    };
    if args[0].is_empty() {
        return Err(answer(-9, &[first]));
    }
    let (heard, line) = (keys[2], keys.get(3).copied());
    Ok(Place { lock: keys[0], permits: keys[1], heard, line, channel: args[0], sharded })
}

// ---- what is there

/// Who has which permits until when.
fn taken(server: &Modelled, permits: &str) -> Result<Vec<(i64, String)>, String> {
    match server.keys.get(permits).map(|key| &key.value) {
        None => Ok(Vec::new()),
        Some(Stored::SortedSet(set)) => {
            Ok(set.iter().map(|(end, id)| (*end as i64, id.clone())).collect())
        }
        Some(_) => Err(WRONG_TYPE.to_owned()),
    }
}

/// The same, without what has run out.
fn valid(server: &Modelled, permits: &str) -> Result<Vec<(i64, String)>, String> {
    let now_ms = server.now_ms();
    Ok(taken(server, permits)?.into_iter().filter(|(end, _)| *end > now_ms).collect())
}

/// Tickets and fields, the lowest first.
fn places(server: &Modelled, line: &str) -> Option<Places> {
    taken(server, line).ok()
}

/// Without members a key is gone.
fn put(server: &mut Modelled, name: &str, members: Vec<(i64, String)>) {
    if members.is_empty() {
        server.keys.remove(name);
        return;
    }
    let set = members.into_iter().map(|(score, member)| (score as f64, member)).collect();
    let key = server.keys.entry(name.to_owned());
    key.or_insert(Key { value: Stored::Text(String::new()), ends_ms: None }).value =
        Stored::SortedSet(set);
}

/// The number that was set; or why nothing may be done.
fn look(server: &Modelled, lock: &str) -> Result<Option<i64>, Answer> {
    let fields = match server.keys.get(lock).map(|key| &key.value) {
        None => return Ok(None),
        Some(Stored::Hash(fields)) => fields,
        Some(_) => return Err(answer(-4, &[1])),
    };
    if value(fields, "kind") == Some("semaphore") {
        return Ok(value(fields, "permits").and_then(|number| number.parse().ok()));
    }
    Err(answer(-4, &[other_hash(fields)]))
}

/// What a hash is that is no semaphore.
fn other_hash(fields: &[(String, String)]) -> i64 {
    match fields {
        _ if value(fields, "kind") == Some("latch") => 10,
        _ if value(fields, "mode").is_some() => 4,
        [(field, _)] if field.starts_with("6e3d30b7-83b1-433a-9335-5e8b9916d3ac:7") => 12,
        _ => 8,
    }
}

fn value<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
}

// ---- what every command does

impl Modelled {
    /// The key lives for so long at least, if it ends at all.
    fn lengthen(&mut self, key: &str, ms: i64) {
        let end = self.now_ms() + ms;
        if let Some(Key { ends_ms: Some(known), .. }) = self.keys.get_mut(key) {
            *known = end.max(*known);
        }
    }
}

/// What has run out is gone.
fn take_back(server: &mut Modelled, permits: &str) -> Result<(), String> {
    let now_ms = server.now_ms();
    let mut all = taken(server, permits)?;
    all.retain(|(end, _)| *end > now_ms);
    put(server, permits, all);
    Ok(())
}

fn give(server: &mut Modelled, permits: &str, hold: &Hold, ms: i64) {
    let end = server.now_ms() + ms;
    let is_new = !server.keys.contains_key(permits);
    let mut all = taken(server, permits).unwrap();
    for id in hold.permits() {
        all.retain(|(_, other)| *other != id);
        all.push((end, id));
    }
    put(server, permits, all);
    if is_new {
        server.keys.get_mut(permits).unwrap().ends_ms = Some(end);
    }
    server.lengthen(permits, ms);
}

/// How many the hold had.
fn give_up(server: &mut Modelled, permits: &str, hold: &Hold) -> Result<usize, String> {
    let mut all = taken(server, permits)?;
    let before = all.len();
    all.retain(|(_, id)| !hold.has(id));
    let removed = before - all.len();
    put(server, permits, all);
    Ok(removed)
}

/// What is under the name is a semaphore's for so long, or for good once its number was set.
fn keep(server: &mut Modelled, lock: &str, ms: i64) {
    let end = server.now_ms() + ms;
    let fields = vec![("kind".to_owned(), "semaphore".to_owned())];
    let new = Key { value: Stored::Hash(fields), ends_ms: Some(end) };
    server.keys.entry(lock.to_owned()).or_insert(new);
    server.lengthen(lock, ms);
}

/// What came of passing on.
struct Passed {
    /// A want did not fit.
    somebody_waits: bool,
    /// How many heard the last message.
    heard: Option<i64>,
    /// How many permits are taken.
    held: i64,
}

/// Those in line get what they want, in their order, until a want does not fit.
fn pass_on(server: &mut Modelled, place: &Place<'_>, number: Option<i64>, before: i64) -> Passed {
    let (mut reserved, mut heard) = (0, None);
    let mut held = valid(server, place.permits).unwrap().len() as i64;
    loop {
        let line = place.line.and_then(|line| places(server, line)).unwrap_or_default();
        let Some((_, field)) = line.first().filter(|(ticket, _)| *ticket < before) else {
            return Passed { somebody_waits: false, heard, held };
        };
        let hold = Hold::of(field).filter(|hold| hold.want <= number.unwrap_or(hold.own));
        let mut fits = true;
        if let Some(hold) = &hold {
            let most = number.unwrap_or(hold.own);
            fits = held + hold.want <= most;
            let waits = !fits && (held >= most || is_heard(server, place, hold));
            if waits || reserved + hold.want > MOST_WANTED {
                return Passed { somebody_waits: true, heard, held };
            }
        }
        heard = Some(server.publish(place.channel, place.sharded, field));
        put(server, place.line.unwrap(), line[1..].to_vec());
        forget_waiter(server, place, field);
        if let Some(hold) = hold.filter(|_| fits) {
            give(server, place.permits, &hold, RESERVATION_MS);
            reserved += hold.want;
            held += hold.want;
        }
    }
}

/// Whether a waiter was heard of lately.
fn is_heard(server: &Modelled, place: &Place<'_>, hold: &Hold) -> bool {
    let Ok(all) = valid(server, place.heard) else { return true };
    all.iter().any(|(_, id)| Some(id) == hold.permits().next().as_ref())
}

fn forget_waiter(server: &mut Modelled, place: &Place<'_>, field: &str) {
    let Ok(mut all) = taken(server, place.heard) else { return };
    all.retain(|(_, id)| *id != format!("{field}:1"));
    put(server, place.heard, all);
}

/// What has run out comes back, and what is free goes to those in line. Nothing is left of a
/// semaphore that nobody uses, but its number. Whether somebody keeps waiting, and how many heard
/// the last message.
fn free(server: &mut Modelled, place: &Place<'_>) -> (bool, Option<i64>) {
    let number = look(server, place.lock).ok().flatten();
    let mut passed = (false, None);
    if take_back(server, place.permits).is_ok() && place.line.is_some() {
        let Passed { somebody_waits, heard, .. } = pass_on(server, place, number, i64::MAX);
        passed = (somebody_waits, heard);
    }
    passed
}

/// Unless its number was set. Fields of others stay.
fn forget(server: &mut Modelled, lock: &str) {
    let Some(Key { value: Stored::Hash(fields), .. }) = server.keys.get_mut(lock) else { return };
    if value(fields, "kind") != Some("semaphore") || value(fields, "permits").is_some() {
        return;
    }
    fields.retain(|(field, _)| field != "kind");
    if fields.is_empty() {
        server.keys.remove(lock);
    }
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

fn acquire(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Found {
    let Some(hold) = Hold::of(args[0]) else { return bad(1) };
    let Some(lease) = whole(args[1], 1, LONGEST_LEASE) else { return bad(2) };
    let Some(not_after) = whole(args[2], 0, LARGEST) else { return bad(3) };
    let mode = args[3];
    if !["try", "first", "again"].contains(&mode) {
        return bad(4);
    }
    let Some(ticket) = whole(args[4], 0, LARGEST) else { return bad(5) };
    let hears = match args[5] {
        "1" => true,
        "0" => false,
        _ => return bad(6),
    };
    let own_keys: Vec<&str> = [&[keys[0]], &keys[2..]].concat();
    let place = match place(&own_keys, &args[6..], 7) {
        Ok(place) => place,
        Err(bad) => return Ok(bad),
    };
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    let number = match look(server, place.lock) {
        Ok(number) => number,
        Err(conflict) => return Ok(conflict),
    };
    let Ok(held) = valid(server, place.permits) else { return Ok(answer(-4, &[9])) };
    let has = hold.permits().all(|own| held.iter().any(|(_, id)| *id == own));
    if !has {
        if let Some(refused) = attempt(server, &place, &hold, number, mode, ticket, hears) {
            return Ok(refused);
        }
    }
    let token = match mint(server, keys[1]) {
        Ok(token) => token,
        Err(conflict) => return Ok(conflict),
    };
    take_back(server, place.permits)?;
    keep(server, place.lock, lease);
    if let Some(mut line) = place.line.and_then(|line| places(server, line)).filter(|_| !has) {
        let before = line.len();
        line.retain(|(_, field)| *field != hold.field);
        if line.len() < before {
            put(server, place.line.unwrap(), line);
            forget_waiter(server, &place, &hold.field);
        }
    }
    give(server, place.permits, &hold, lease);
    pass_on(server, &place, number, i64::MAX);
    Ok(answer(1, &[token]))
}

/// The answer, unless the permits may be granted.
fn attempt(
    server: &mut Modelled,
    place: &Place<'_>,
    hold: &Hold,
    number: Option<i64>,
    mode: &str,
    ticket: i64,
    hears: bool,
) -> Option<Answer> {
    let Some(line) = place.line else { return Some(answer(-5, &[])) };
    let Some(known) = places(server, line) else { return Some(answer(-4, &[6])) };
    let most = number.unwrap_or(hold.own);
    let own = known.iter().find(|(_, field)| *field == hold.field).map(|(ticket, _)| *ticket);
    if hold.want > most {
        leave(server, line, &hold.field);
        forget_waiter(server, place, &hold.field);
        pass_on(server, place, number, i64::MAX);
        return Some(answer(-6, &[most]));
    }
    let last = known.last().map_or(0, |(ticket, _)| *ticket);
    let ticket = match own {
        Some(own) => own,
        None if ticket == 0 => server.now_us.max(last + 1),
        None => ticket,
    };
    let before = if mode == "try" { i64::MAX } else { ticket };
    let passed = pass_on(server, place, number, before);
    if !passed.somebody_waits && passed.held + hold.want <= most {
        return None;
    }
    let (end, id) = &valid(server, place.permits).unwrap()[0];
    let holder = id.rsplit_once(':').filter(|(_, number)| digits(number).is_some());
    let holder = holder.map_or(id.as_str(), |(holder, _)| holder).to_owned();
    let told = Answer { texts: vec![holder], ..answer(0, &[end - server.now_ms()]) };
    if mode == "try" {
        return Some(told);
    }
    let rank = places(server, line)?.iter().filter(|(other, _)| *other < ticket).count() as i64;
    if hears {
        keep(server, place.lock, LINE_MS + RESERVATION_MS);
        if take_back(server, place.heard).is_ok() {
            let waiter = Hold { want: 1, ..hold.clone() };
            give(server, place.heard, &waiter, LINE_MS);
        }
        enter(server, line, &hold.field, ticket);
    } else if own.is_some() {
        leave(server, line, &hold.field);
        forget_waiter(server, place, &hold.field);
        pass_on(server, place, number, i64::MAX);
    }
    Some(Answer { more: vec![ticket, rank], ..told })
}

fn enter(server: &mut Modelled, line: &str, field: &str, ticket: i64) {
    let end = server.now_ms() + LINE_MS;
    let mut all = places(server, line).unwrap();
    if !all.iter().any(|(_, other)| other == field) {
        all.push((ticket, field.to_owned()));
    }
    put(server, line, all);
    server.keys.get_mut(line).unwrap().ends_ms = Some(end);
}

fn leave(server: &mut Modelled, line: &str, field: &str) {
    let mut all = places(server, line).unwrap();
    all.retain(|(_, other)| other != field);
    put(server, line, all);
}

fn release(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Found {
    let Some(hold) = Hold::of(args[0]) else { return bad(1) };
    let place = match place(keys, &args[1..], 2) {
        Ok(place) => place,
        Err(bad) => return Ok(bad),
    };
    let there = give_up(server, place.permits, &hold);
    // Who has permits has no place.
    let has = there.as_ref().is_ok_and(|there| *there > 0);
    if let Some(line) = place.line.filter(|_| !has) {
        if places(server, line).is_some() {
            leave(server, line, &hold.field);
        }
        forget_waiter(server, &place, &hold.field);
    }
    let Ok(there) = there else { return Ok(answer(-3, &[])) };
    let (somebody_waits, heard) = free(server, &place);
    let heard = match heard {
        Some(heard) => heard,
        None if there > 0 && !somebody_waits => server.publish(place.channel, place.sharded, "0"),
        None => 0,
    };
    let in_use = |key: &str| server.keys.contains_key(key);
    if place.line.is_some_and(|line| !in_use(place.permits) && !in_use(line)) {
        forget(server, place.lock);
    }
    Ok(if there > 0 { answer(1, &[heard]) } else { answer(0, &[]) })
}

fn release_at(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Found {
    let Some(hold) = Hold::of(args[0]) else { return bad(1) };
    let Some(free_at) = whole(args[1], 0, LARGEST) else { return bad(2) };
    let Some(most) = whole(args[2], 1, LONGEST_LEASE) else { return bad(3) };
    let place = match place(&["", keys[0], ""], &args[3..], 4) {
        Ok(place) => place,
        Err(bad) => return Ok(bad),
    };
    let rest = (free_at - server.now_us + 999).div_euclid(1_000).min(most);
    let Ok(all) = taken(server, place.permits) else { return Ok(answer(-3, &[])) };
    let has = |id: &str| all.iter().any(|(_, other)| other == id);
    let there = hold.permits().filter(|id| has(id)).count();
    let first = hold.permits().next().unwrap();
    if there == 0 || rest > 0 && !has(&first) {
        return Ok(answer(0, &[]));
    }
    if rest > 0 {
        give(server, place.permits, &hold, rest);
    } else {
        give_up(server, place.permits, &hold)?;
    }
    let heard = server.publish(place.channel, place.sharded, "0");
    Ok(answer(if rest > 0 { 2 } else { 1 }, &[heard]))
}

fn renew(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Found {
    let Some(not_after) = whole(args[0], 0, LARGEST) else { return bad(1) };
    if args.len() != keys.len() + 1 {
        return bad(args.len() as i64);
    }
    let mut wanted = Vec::new();
    for (at, (keys, args)) in keys.chunks(2).zip(args[1..].chunks(2)).enumerate() {
        let at = at as i64 + 1;
        let Some(hold) = Hold::of(args[0]) else { return bad(2 * at) };
        let Some(lease) = whole(args[1], 1, LONGEST_LEASE) else { return bad(2 * at + 1) };
        wanted.push((keys[0], keys[1], hold, lease));
    }
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    let each = wanted.iter().map(|(lock, permits, hold, lease)| {
        let now_ms = server.now_ms();
        let Ok(all) = taken(server, permits) else { return -3 };
        let end = |id: &str| all.iter().find(|(_, other)| *other == id).map(|(end, _)| *end);
        let ends: Vec<i64> = hold.permits().filter_map(|id| end(&id)).collect();
        if ends.len() as i64 != hold.want || ends.iter().any(|end| *end <= now_ms) {
            return 0;
        }
        if *lease > 1 && ends.last().is_some_and(|end| *end < now_ms + lease) {
            give(server, permits, hold, *lease);
            if is_semaphore(server, lock) {
                server.lengthen(lock, *lease);
            }
        }
        1
    });
    let each: Vec<i64> = each.collect();
    Ok(answer(1, &each))
}

fn is_semaphore(server: &Modelled, lock: &str) -> bool {
    let Some(Stored::Hash(fields)) = server.keys.get(lock).map(|key| &key.value) else {
        return false;
    };
    value(fields, "kind") == Some("semaphore")
}

fn force_release(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Found {
    let Some(hold) = Hold::of(args[0]) else { return bad(1) };
    let Some(not_after) = whole(args[1], 0, LARGEST) else { return bad(2) };
    let place = match place(&[keys[0], keys[1], ""], &args[2..], 3) {
        Ok(place) => place,
        Err(bad) => return Ok(bad),
    };
    if args[4].is_empty() {
        return bad(5);
    }
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    match give_up(server, place.permits, &hold) {
        Err(_) => Ok(answer(-3, &[])),
        Ok(0) => Ok(answer(0, &[])),
        Ok(_) => {
            let heard = server.publish(place.channel, place.sharded, "0");
            server.publish(args[4], false, place.lock);
            Ok(answer(1, &[heard]))
        }
    }
}

fn set_permits(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Found {
    let adds = match args[0] {
        "set" => false,
        "add" => true,
        _ => return bad(1),
    };
    let Some(given) = whole(args[1], 1, MOST_PERMITS) else { return bad(2) };
    let Some(own) = whole(args[2], 1, MOST_PERMITS) else { return bad(3) };
    let Some(not_after) = whole(args[3], 0, LARGEST) else { return bad(4) };
    let Some(memory) = whole(args[4], 1, LONGEST_LEASE) else { return bad(5) };
    let place = match place(&[keys[0], "", ""], &args[5..], 6) {
        Ok(place) => place,
        Err(bad) => return Ok(bad),
    };
    let operation = keys[1];
    match server.keys.get(operation).map(|key| &key.value) {
        None => {}
        Some(Stored::Text(made)) => return Ok(answer(1, &[made.parse().unwrap()])),
        Some(_) => return Err(WRONG_TYPE.to_owned()),
    }
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    let known = match look(server, place.lock) {
        Ok(known) => known.unwrap_or(own),
        Err(conflict) => return Ok(conflict),
    };
    let number = if adds { known + given } else { given };
    if number > MOST_PERMITS {
        return Ok(answer(-6, &[known]));
    }
    let kept = ((not_after - server.now_us) / 1_000 + memory).min(LONGEST_LEASE);
    let ends_ms = Some(server.now_ms() + kept);
    let key = Key { value: Stored::Text(number.to_string()), ends_ms };
    server.keys.insert(operation.to_owned(), key);
    set_number(server, place.lock, number);
    server.publish(place.channel, place.sharded, "0");
    Ok(answer(1, &[number]))
}

/// From now on the key stays.
fn set_number(server: &mut Modelled, lock: &str, number: i64) {
    let new = Key { value: Stored::Hash(Vec::new()), ends_ms: None };
    let key = server.keys.entry(lock.to_owned()).or_insert(new);
    key.ends_ms = None;
    let Stored::Hash(fields) = &mut key.value else { return };
    for (field, value) in [("kind", "semaphore".to_owned()), ("permits", number.to_string())] {
        match fields.iter_mut().find(|(known, _)| known == field) {
            Some((_, old)) => *old = value,
            None => fields.push((field.to_owned(), value)),
        }
    }
}

fn inspect(server: &mut Modelled, lock: &str, permits: &str) -> Found {
    let found = server.keys.get(lock);
    let pttl = found.map_or(-2, |key| server.pttl(key));
    let number = match (look(server, lock), found.map(|key| &key.value)) {
        (Ok(number), _) => number.unwrap_or(-1),
        (Err(_), Some(Stored::Hash(fields))) => {
            return Ok(answer(6, &[pttl, other_hash(fields)]));
        }
        (Err(_), Some(other)) => {
            let kind = match other {
                Stored::Text(_) => "string",
                Stored::List(_) => "list",
                Stored::Set(_) => "set",
                _ => "zset",
            };
            return Ok(Answer { texts: vec![kind.to_owned()], ..answer(2, &[pttl]) });
        }
        (Err(conflict), None) => return Ok(conflict),
    };
    let held = valid(server, permits)?.len() as i64;
    Ok(answer(4, &[pttl, number, held]))
}
