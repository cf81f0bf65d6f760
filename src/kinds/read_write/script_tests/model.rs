//! What each script does, written from the headers of the scripts and not from their texts.

use crate::backend::ScriptCall;
use crate::backend::memory::store::Stored;
use crate::kinds::conflict::is_holder_field;
use crate::kinds::script_tests::last_word;
use crate::kinds::script_tests::modelled::Answer;
use crate::kinds::script_tests::modelled::Key;
use crate::kinds::script_tests::modelled::Modelled;
use crate::kinds::script_tests::modelled::answer;

const TIME_END: i64 = (1 << 53) - 1;
const LONGEST_LEASE: i64 = 86_400_000;
const MOST: i64 = 65_535;
const RESERVATION_MS: i64 = 1_500;
const LINE_MS: i64 = 12_000;

struct Model<'a> {
    server: &'a mut Modelled,
    lock: &'a str,
    timeout: Option<&'a str>,
    line: Option<&'a str>,
    base: &'a str,
    channel: &'a str,
    sharded: bool,
}

/// What the lock is to its key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Free,
    Reading,
    Writing,
    /// Another hash, or something else.
    OtherHash,
    OtherValue,
}

struct Attempt<'a> {
    field: &'a str,
    reads: i64,
    writes: i64,
    lease: i64,
    waits: bool,
    again: bool,
    ticket: i64,
    hears: bool,
    fence: &'a str,
    /// Timeout key and field.
    told: Vec<(&'a str, &'a str)>,
}

pub(super) fn run(server: &mut Modelled, call: &ScriptCall) -> Result<Answer, String> {
    let (keys, args): (Vec<&str>, Vec<&str>) =
        (call.keys.iter().collect(), call.args.iter().collect());
    let wrong = |place: usize| answer(-9, &[i64::try_from(place).unwrap()]);
    let done = match last_word(call.script) {
        "acquire" => acquire(server, &keys, &args),
        "release" => release(server, &keys, &args),
        "release_at" => release_at(server, &keys, &args),
        "inspect" => Ok(inspect(server, keys[0])),
        "force_release" => force_release(server, &keys, &args),
        "downgrade" => downgrade(server, &keys, &args),
        "renew" => renew(server, &keys, &args),
        "upgrade" => upgrade(server, &keys, &args),
        other => panic!("{other} has no model"),
    };
    Ok(done.unwrap_or_else(wrong))
}

type Done = Result<Answer, usize>;

/// The argument at a place, counted from 1.
fn text<'a>(args: &[&'a str], place: usize) -> Result<&'a str, usize> {
    args.get(place - 1).copied().filter(|text| !text.is_empty()).ok_or(place)
}

fn number(args: &[&str], place: usize, least: i64, most: i64) -> Result<i64, usize> {
    let number = text(args, place)?.parse().ok();
    number.filter(|number| (least..=most).contains(number)).ok_or(place)
}

fn one_of(args: &[&str], place: usize, words: &[&str]) -> Result<usize, usize> {
    let text = text(args, place)?;
    words.iter().position(|word| *word == text).ok_or(place)
}

fn is_sharded(args: &[&str], place: usize) -> Result<bool, usize> {
    Ok(one_of(args, place, &["PUBLISH", "SPUBLISH"])? == 1)
}

fn acquire(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Done {
    let field = text(args, 1)?;
    let (reads, writes) = (number(args, 2, 0, MOST)?, number(args, 3, 0, MOST)?);
    if reads + writes == 0 {
        return Err(3);
    }
    let (lease, not_after) = (number(args, 4, 1, LONGEST_LEASE)?, number(args, 5, 0, TIME_END)?);
    let mode = one_of(args, 6, &["try", "first", "again"])?;
    let (ticket, hears) = (number(args, 7, 0, TIME_END)?, one_of(args, 8, &["0", "1"])? == 1);
    let (channel, sharded, base) = (text(args, 9)?, is_sharded(args, 10)?, text(args, 11)?);
    let told = number(args, 12, 0, MOST)? as usize;
    let own = keys.len().checked_sub(told).filter(|own| matches!(own, 3 | 4)).ok_or(12_usize)?;
    if args.len() != 12 + told {
        return Err(12);
    }
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    let told = keys[own..].iter().copied().zip(args[12..].iter().copied()).collect();
    let (lock, timeout, line) = (keys[0], Some(keys[1]), keys[..own].get(3).copied());
    let (waits, again, fence) = (mode > 0, mode == 2, keys[2]);
    let attempt = Attempt { field, reads, writes, lease, waits, again, ticket, hears, fence, told };
    let mut model = Model { server, lock, timeout, line, base, channel, sharded };
    Ok(model.acquire(&attempt))
}

fn release(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Done {
    let field = text(args, 1)?;
    let (reads, writes) = (number(args, 2, 0, MOST)?, number(args, 3, 0, MOST)?);
    let (channel, sharded, base) = (text(args, 4)?, is_sharded(args, 5)?, text(args, 6)?);
    let (lock, timeout, line) = (keys[0], keys.get(1).copied(), keys.get(2).copied());
    let mut model = Model { server, lock, timeout, line, base, channel, sharded };
    Ok(match reads + writes {
        0 => model.release(field),
        _ => model.count_down(field, reads, writes),
    })
}

fn release_at(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Done {
    let field = text(args, 1)?;
    let (free_at, most) = (number(args, 2, 0, TIME_END)?, number(args, 3, 1, LONGEST_LEASE)?);
    let (channel, sharded, base) = (text(args, 4)?, is_sharded(args, 5)?, text(args, 6)?);
    let (lock, timeout, line) = (keys[0], keys.get(1).copied(), keys.get(2).copied());
    let mut model = Model { server, lock, timeout, line, base, channel, sharded };
    Ok(model.release_at(field, free_at, most))
}

fn force_release(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Done {
    let (field, not_after) = (text(args, 1)?, number(args, 2, 0, TIME_END)?);
    let (channel, sharded, base) = (text(args, 3)?, is_sharded(args, 4)?, text(args, 5)?);
    let client_channel = text(args, 6)?;
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    let (lock, timeout, line) = (keys[0], keys.get(1).copied(), keys.get(2).copied());
    let mut model = Model { server, lock, timeout, line, base, channel, sharded };
    Ok(model.force_release(field, client_channel))
}

fn inspect(server: &mut Modelled, lock: &str) -> Answer {
    let (timeout, line) = (None, None);
    let model = Model { server, lock, timeout, line, base: "", channel: "", sharded: false };
    let mode = match model.held() {
        Held::Free => return answer(0, &[]),
        Held::OtherValue => return answer(2, &[]),
        Held::OtherHash => return answer(6, &[model.pttl(), model.other_hash()]),
        Held::Reading => "read",
        Held::Writing => "write",
    };
    let fields = model.fields().into_iter().filter(|(field, _)| field != "mode");
    let holds: Vec<(String, String)> = fields.collect();
    let writer = holds.iter().rfind(|(field, _)| field.ends_with(":write"));
    let (field, count) = writer.or(holds.first()).cloned().unwrap_or_default();
    let field = field.strip_suffix(":write").unwrap_or(&field).to_owned();
    let numbers = [model.pttl(), i64::try_from(holds.len()).unwrap()];
    Answer { texts: vec![field, count, mode.to_owned()], ..answer(1, &numbers) }
}

fn downgrade(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Done {
    let field = text(args, 1)?;
    let (reads, lease) = (number(args, 2, 1, MOST)?, number(args, 3, 1, LONGEST_LEASE)?);
    let (channel, sharded, base) = (text(args, 4)?, is_sharded(args, 5)?, text(args, 6)?);
    let (lock, timeout, line) = (keys[0], Some(keys[1]), keys.get(2).copied());
    let mut model = Model { server, lock, timeout, line, base, channel, sharded };
    Ok(model.downgrade(field, reads, lease))
}

fn upgrade(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Done {
    let (from, to) = (text(args, 1)?, text(args, 2)?);
    if from == to {
        return Err(2);
    }
    let (lease, not_after) = (number(args, 3, 1, LONGEST_LEASE)?, number(args, 4, 0, TIME_END)?);
    let told = number(args, 5, 0, MOST)? as usize;
    if keys.len() != 3 + told || args.len() != 5 + told {
        return Err(5);
    }
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    let told: Vec<_> = keys[3..].iter().copied().zip(args[5..].iter().copied()).collect();
    let (lock, timeout, line) = (keys[0], Some(keys[1]), None);
    let mut model = Model { server, lock, timeout, line, base: "", channel: "", sharded: false };
    Ok(model.upgrade(keys[2], from, to, lease, &told))
}

fn renew(server: &mut Modelled, keys: &[&str], args: &[&str]) -> Done {
    let not_after = number(args, 1, 0, TIME_END)?;
    if keys.is_empty() || keys.len() % 2 == 1 || args.len() != 1 + keys.len() {
        return Err(args.len());
    }
    let mut holds = Vec::new();
    for (at, pair) in keys.chunks(2).enumerate() {
        let (field, lease) = (2 * at + 2, 2 * at + 3);
        holds.push((pair, text(args, field)?, number(args, lease, 1, LONGEST_LEASE)?));
    }
    if server.now_us > not_after {
        return Ok(answer(-1, &[]));
    }
    let mut done = Vec::new();
    for (pair, field, lease) in holds {
        let (lock, timeout, line) = (pair[0], Some(pair[1]), None);
        let mut model =
            Model { server, lock, timeout, line, base: "", channel: "", sharded: false };
        done.push(model.renew(field, lease));
    }
    Ok(answer(1, &done))
}

/// The commands, their arguments understood, in time.
impl Model<'_> {
    fn acquire(&mut self, attempt: &Attempt<'_>) -> Answer {
        let is_writer = attempt.writes > 0;
        match self.held() {
            Held::OtherValue => return answer(-4, &[1]),
            Held::OtherHash => return answer(-4, &[self.other_hash()]),
            Held::Free | Held::Reading | Held::Writing => {}
        }
        if self.holds(attempt.field).is_some() || attempt.reads + attempt.writes > 1 {
            return self.count_up(attempt);
        }
        if self.pttl() == -1 {
            return answer(-4, &[3]);
        }
        let place = place_of(attempt.field, is_writer);
        if attempt.again && self.line.is_none() && self.count(&place) != Some(0) {
            return answer(-5, &[]);
        }
        let removed = if is_writer { self.remove_dead(&attempt.told) } else { 0 };
        if is_writer && self.held() == Held::Reading && self.fields().len() == 1 {
            self.server.keys.remove(self.lock);
        }
        let reserved = |model: &Self| model.count(&place) == Some(0);
        let joins = |model: &Self| match model.held() {
            Held::Free => true,
            Held::Reading => !is_writer,
            _ => false,
        };
        if !reserved(self) && (!joins(self) || self.has_line()) {
            let asks_line = match self.held() {
                Held::Free => attempt.again,
                _ => true,
            };
            if asks_line && self.places().is_none() {
                return answer(-4, &[6]);
            }
            let ticket = if asks_line { self.ticket(&place, attempt.ticket) } else { 0 };
            let dropped = self.held() == Held::Reading && joins(self) && self.drop_silent();
            if dropped || joins(self) && asks_line && self.is_behind(&place, ticket) {
                self.pass_on(false);
            }
            let goes = match self.held() {
                _ if reserved(self) => true,
                Held::Free => true,
                Held::Reading => !is_writer && !self.is_behind(&place, ticket),
                _ => false,
            };
            if !goes {
                return self.told_to_wait(attempt, &place, ticket, removed);
            }
        }
        self.grant(attempt, &place)
    }

    fn grant(&mut self, attempt: &Attempt<'_>, place: &str) -> Answer {
        let Some(token) = self.mint(attempt.fence) else { return answer(-4, &[5]) };
        let (was_free, was_reserved) = (self.held() == Held::Free, self.count(place) == Some(0));
        let mode = if attempt.writes > 0 { "write" } else { "read" };
        if attempt.writes == 0 {
            self.set_timeout(attempt.lease);
        }
        self.put(&[("mode", mode), (place, "1")]);
        if was_free || was_reserved && self.fields().len() == 2 {
            self.end_after(attempt.lease);
        } else {
            self.at_least(attempt.lease);
        }
        if attempt.again {
            self.leave(&[place]);
            if attempt.writes > 0 {
                self.remove_timeout();
            }
        }
        answer(1, &[token])
    }

    fn told_to_wait(
        &mut self,
        attempt: &Attempt<'_>,
        place: &str,
        ticket: i64,
        removed: usize,
    ) -> Answer {
        let holds = self.told();
        let holder = holds.first().cloned().unwrap_or_default();
        let told = Answer { texts: vec![holder], ..answer(0, &[self.pttl()]) };
        let is_in_line = attempt.waits && self.line.is_some();
        let mut more = vec![0, 0];
        if is_in_line {
            let places = self.places().unwrap_or_default();
            let rank = places.iter().filter(|(lower, _)| *lower < ticket).count();
            more = vec![ticket, i64::try_from(rank).unwrap()];
            self.wait(place, ticket, attempt.hears);
            if attempt.hears && attempt.writes > 0 {
                self.set_timeout(LINE_MS);
            }
        }
        if attempt.writes > 0 && self.held() == Held::Reading {
            more.push(i64::from(removed > 0));
            return Answer { more, last: holds, ..told };
        }
        if is_in_line { Answer { more, ..told } } else { told }
    }

    /// More of a hold that is there, or its first attempt once more.
    fn count_up(&mut self, attempt: &Attempt<'_>) -> Answer {
        let &Attempt { field, reads, writes, lease, .. } = attempt;
        if self.held() == Held::Free {
            return answer(-2, &[]);
        }
        let Some((reading, writing)) = self.holds(field) else { return answer(-3, &[]) };
        if (writes > 0) != writing {
            return answer(-3, &[]);
        }
        if !writing && !self.is_alive() {
            return answer(-2, &[]);
        }
        let mut token = 0;
        if reads + writes == 1 {
            let Some(new) = self.mint(attempt.fence) else { return answer(-4, &[5]) };
            token = new;
            if reading {
                self.keep_timeout(lease);
            }
        } else {
            if reads > 0 {
                self.keep_timeout(lease);
                self.put(&[(field, &reads.to_string())]);
            }
            if writes > 0 {
                self.put(&[(&place_of(field, true), &writes.to_string())]);
            }
        }
        self.at_least(lease);
        answer(1, &[token])
    }

    fn count_down(&mut self, field: &str, reads: i64, writes: i64) -> Answer {
        if self.held() == Held::Free {
            return answer(0, &[]);
        }
        if matches!(self.held(), Held::OtherHash | Held::OtherValue) {
            return answer(-3, &[]);
        }
        let (reading, writing) = self.holds(field).unwrap_or((false, false));
        if (writes > 0) != writing || (writes == 0 && !reading) {
            return answer(-3, &[]);
        }
        if writes > 0 {
            self.put(&[(&place_of(field, true), &writes.to_string())]);
        }
        if reading && reads > 0 {
            self.put(&[(field, &reads.to_string())]);
        } else if reading {
            self.take(&[field]);
            self.remove_timeout();
        }
        answer(2, &[])
    }

    /// Of a hold, a reservation, a place, or nothing at all.
    fn release(&mut self, field: &str) -> Answer {
        if self.has_part(field) {
            return answer(1, &[self.give_up(field)]);
        }
        self.remove_timeout();
        self.leave(&[field, &place_of(field, true)]);
        if matches!(self.held(), Held::OtherHash | Held::OtherValue) {
            return answer(-3, &[]);
        }
        if self.held() != Held::Writing {
            self.pass_on(false);
        }
        answer(0, &[])
    }

    fn release_at(&mut self, field: &str, free_at: i64, most: i64) -> Answer {
        if self.held() == Held::Free {
            return answer(0, &[]);
        }
        let is_lock = matches!(self.held(), Held::Reading | Held::Writing);
        let (writer, kept) = (place_of(field, true), format!("{field}:kept:write"));
        let Some((_, writing)) = self.holds(field).filter(|_| is_lock) else {
            let before = is_lock && self.count(&kept).is_some();
            return if before { answer(2, &[0]) } else { answer(-3, &[]) };
        };
        let left_us = free_at - self.server.now_us;
        let rest = ((left_us + 999).div_euclid(1_000)).min(most);
        let own = [field, "mode", &writer];
        let is_alone = self.fields().iter().all(|(name, _)| own.contains(&name.as_str()));
        if rest <= 0 || writing && !is_alone {
            return answer(1, &[self.give_up(field)]);
        }
        if writing {
            self.put(&[(&kept, "0")]);
            self.take(&[field, &writer]);
            self.remove_timeout();
        } else {
            self.set_timeout(rest);
            self.at_least(rest);
        }
        if !is_alone {
            return answer(2, &[0]);
        }
        self.end_after(rest);
        answer(2, &[self.publish(if writing { "1" } else { "0" })])
    }

    fn force_release(&mut self, field: &str, client_channel: &str) -> Answer {
        if self.held() == Held::Free {
            return answer(0, &[]);
        }
        if !self.has_part(field) {
            return answer(-3, &[]);
        }
        let receivers = self.give_up(field);
        self.server.publish(client_channel, false, self.lock);
        answer(1, &[receivers])
    }

    /// Whether the lock is held by, or reserved for, this hold.
    fn has_part(&self, field: &str) -> bool {
        let is_lock = matches!(self.held(), Held::Reading | Held::Writing);
        is_lock && [field, &place_of(field, true)].iter().any(|field| self.count(field).is_some())
    }

    /// All that a hold has. Gives how many heard who goes next.
    fn give_up(&mut self, field: &str) -> i64 {
        let writer = place_of(field, true);
        let wrote = self.holds(field).is_some_and(|(_, writing)| writing);
        let had_write = self.count(&writer).is_some();
        self.take(&[field, &writer]);
        self.remove_timeout();
        if self.fields().len() == 1 {
            self.server.keys.remove(self.lock);
        } else if had_write {
            self.put(&[("mode", "read")]);
        }
        let told = match self.held() {
            Held::Writing => None,
            _ => self.pass_on(wrote),
        };
        let others_go_on = self.held() != Held::Free && !had_write;
        match told {
            Some(receivers) => receivers,
            None if others_go_on => 0,
            // Clients of Redisson wake one of those who wait at "0", and all of them at "1".
            None => self.publish(if had_write { "1" } else { "0" }),
        }
    }

    fn downgrade(&mut self, field: &str, reads: i64, lease: i64) -> Answer {
        if self.held() == Held::OtherValue {
            return answer(-3, &[]);
        }
        let writer = place_of(field, true);
        let (reads_there, writes_there) = self.holds(field).unwrap_or((false, false));
        if !writes_there {
            if !reads_there {
                let code = if self.server.keys.contains_key(self.lock) { -3 } else { 0 };
                return answer(code, &[]);
            }
            self.put(&[(field, &reads.to_string())]);
            return answer(2, &[]);
        }
        let left = self.pttl().max(lease);
        self.set_timeout(left);
        self.put(&[("mode", "read"), (field, &reads.to_string())]);
        self.take(&[&writer]);
        self.end_after(left);
        let told = self.pass_on(true);
        answer(1, &[told.unwrap_or_else(|| self.publish("1"))])
    }

    fn upgrade(
        &mut self,
        fence: &str,
        from: &str,
        to: &str,
        lease: i64,
        told: &[(&str, &str)],
    ) -> Answer {
        let writer = place_of(to, true);
        let is_lock = self.count("mode").is_some();
        if !is_lock || self.count(&writer).is_none() {
            let is_lock = matches!(self.held(), Held::Reading | Held::Writing);
            let reads = is_lock && self.count(from).is_some_and(|n| n > 0);
            if !reads || !self.is_alive() {
                return answer(-2, &[]);
            }
            if self.held() == Held::Writing {
                return answer(0, &[0]);
            }
            let removed = self.remove_dead(told);
            let holds = self.told();
            if holds.len() > 1 {
                let removed = i64::from(removed > 0);
                return Answer { texts: holds, ..answer(0, &[removed]) };
            }
        }
        let Some(token) = self.mint(fence) else { return answer(-4, &[5]) };
        self.at_least(lease);
        self.put(&[("mode", "write"), (&writer, "1")]);
        answer(1, &[token])
    }

    fn renew(&mut self, field: &str, lease: i64) -> i64 {
        let Some((reading, writing)) = self.holds(field) else {
            return if self.server.keys.contains_key(self.lock) { -3 } else { 0 };
        };
        if reading && !writing && !self.is_alive() {
            return 0;
        }
        if lease > 1 {
            if reading && self.is_alive() {
                self.keep_timeout(lease);
            }
            self.at_least(lease);
        }
        1
    }
}

/// The line.
impl Model<'_> {
    /// In its order. `None`: something else is under its key.
    fn places(&self) -> Option<Vec<(i64, String)>> {
        match self.line.and_then(|line| self.server.keys.get(line)).map(|key| &key.value) {
            None => Some(Vec::new()),
            Some(Stored::SortedSet(places)) => {
                Some(places.iter().map(|(ticket, who)| (*ticket as i64, who.clone())).collect())
            }
            Some(_) => None,
        }
    }

    fn has_line(&self) -> bool {
        self.line.is_some_and(|line| self.server.keys.contains_key(line))
    }

    fn set_places(&mut self, places: Vec<(i64, String)>, ends_ms: Option<i64>) {
        let Some(line) = self.line else { return };
        self.server.keys.remove(line);
        if !places.is_empty() {
            let scored = places.into_iter().map(|(ticket, who)| (ticket as f64, who));
            let value = Stored::SortedSet(scored.collect());
            self.server.keys.insert(line.to_owned(), Key { value, ends_ms });
        }
    }

    /// Of its place; or the one it names; or a new one.
    fn ticket(&self, place: &str, named: i64) -> i64 {
        let places = self.places().unwrap_or_default();
        match places.iter().find(|(_, who)| who == place) {
            Some((ticket, _)) => *ticket,
            None if named > 0 => named,
            None => self.server.now_us.max(places.last().map_or(0, |(last, _)| last + 1)),
        }
    }

    fn is_behind(&self, place: &str, ticket: i64) -> bool {
        let places = self.places().unwrap_or_default();
        places.first().is_some_and(|(first, who)| who != place && *first < ticket)
    }

    /// Takes writers that are not alive any more from the front of the line. Gives whether there
    /// were any.
    fn drop_silent(&mut self) -> bool {
        let places = self.places().unwrap_or_default();
        let mut first = places.iter().map(|(_, who)| who.as_str()).take(64);
        let is_silent = |who: &&str| {
            let field = who.strip_suffix(":write");
            let key = field.map(|field| format!("{}:{field}:rwlock_timeout:1", self.base));
            key.is_some_and(|key| !self.server.keys.contains_key(&key))
        };
        let silent: Vec<&str> = first.by_ref().take_while(is_silent).collect();
        self.leave(&silent);
        !silent.is_empty()
    }

    /// Enters the line, or leaves it if it does not hear.
    fn wait(&mut self, place: &str, ticket: i64, hears: bool) {
        if !hears {
            return self.leave(&[place]);
        }
        let mut places = self.places().unwrap_or_default();
        if !places.iter().any(|(_, who)| who == place) {
            places.push((ticket, place.to_owned()));
        }
        let ends_ms = self.server.now_ms() + LINE_MS;
        self.set_places(places, Some(ends_ms));
    }

    fn leave(&mut self, who: &[&str]) {
        let Some(mut places) = self.places() else { return };
        let ends_ms =
            self.line.and_then(|line| self.server.keys.get(line)).and_then(|key| key.ends_ms);
        places.retain(|(_, other)| !who.contains(&other.as_str()));
        self.set_places(places, ends_ms);
    }

    /// Reserves the lock for those who go next. Gives how many heard of it.
    fn pass_on(&mut self, after_writer: bool) -> Option<i64> {
        let places: Vec<String> =
            self.places()?.into_iter().take(1_000).map(|(_, who)| who).collect();
        let is_reader = |who: &&String| !who.ends_with(":write");
        let readers: Vec<String> = match after_writer {
            true => places.iter().filter(is_reader).cloned().collect(),
            false => places.iter().take_while(is_reader).cloned().collect(),
        };
        // A reservation must not end what others have without an end.
        if self.held() == Held::Reading && self.pttl() == -1 {
            return None;
        }
        let chosen = match (readers.is_empty(), self.held()) {
            (false, _) => readers,
            (true, Held::Free) => places.first().cloned().into_iter().collect(),
            (true, _) => return None,
        };
        let was_free = self.held() == Held::Free;
        let mode = if chosen.first()?.ends_with(":write") { "write" } else { "read" };
        for who in &chosen {
            self.leave(&[who]);
            if mode == "read" {
                let key = format!("{}:{who}:rwlock_timeout:1", self.base);
                self.set_key(&key, RESERVATION_MS);
            }
            self.put(&[("mode", mode), (who, "0")]);
        }
        if was_free {
            self.end_after(RESERVATION_MS);
        }
        self.at_least(RESERVATION_MS);
        Some(self.publish(&chosen.join(" ")))
    }

    fn publish(&mut self, payload: &str) -> i64 {
        self.server.publish(self.channel, self.sharded, payload)
    }
}

/// What they are made of.
impl Model<'_> {
    fn held(&self) -> Held {
        match self.server.keys.get(self.lock).map(|key| &key.value) {
            None => Held::Free,
            Some(Stored::Hash(fields)) => {
                let mode = fields.iter().find(|(field, _)| field == "mode");
                match mode.map(|(_, mode)| mode.as_str()) {
                    Some("read") => Held::Reading,
                    Some("write") => Held::Writing,
                    _ => Held::OtherHash,
                }
            }
            Some(_) => Held::OtherValue,
        }
    }

    /// What a hash is that is no read-write lock.
    fn other_hash(&self) -> i64 {
        let fields = self.fields();
        let kind = fields.iter().find(|(field, _)| field == "kind").map(|(_, kind)| kind.as_str());
        match (kind, fields.as_slice()) {
            (Some("latch"), _) => 10,
            (Some("semaphore"), _) => 11,
            (_, [(field, _)]) if is_holder_field(field) => 12,
            _ => 7,
        }
    }

    /// Those of the lock, in their order.
    fn fields(&self) -> Vec<(String, String)> {
        match self.server.keys.get(self.lock).map(|key| &key.value) {
            Some(Stored::Hash(fields)) => fields.clone(),
            _ => Vec::new(),
        }
    }

    /// The holds that somebody is told about.
    fn told(&self) -> Vec<String> {
        let names = self.fields().into_iter().map(|(field, _)| field);
        names.filter(|field| field != "mode").take(16).collect()
    }

    fn count(&self, field: &str) -> Option<i64> {
        let fields = self.fields();
        let (_, count) = fields.iter().find(|(known, _)| known == field)?;
        Some(count.parse().unwrap_or(1))
    }

    /// Whether a hold reads and whether it writes; none if it does neither.
    fn holds(&self, field: &str) -> Option<(bool, bool)> {
        let there = |field: &str| self.count(field).is_some_and(|count| count > 0);
        let found = (there(field), there(&place_of(field, true)));
        (found != (false, false)).then_some(found)
    }

    fn put(&mut self, pairs: &[(&str, &str)]) {
        let mut fields = self.fields();
        for (field, value) in pairs {
            match fields.iter_mut().find(|(known, _)| known == field) {
                Some((_, old)) => *old = (*value).to_owned(),
                None => fields.push(((*field).to_owned(), (*value).to_owned())),
            }
        }
        let ends_ms = self.server.keys.get(self.lock).and_then(|key| key.ends_ms);
        self.server.keys.insert(self.lock.to_owned(), Key { value: Stored::Hash(fields), ends_ms });
    }

    fn take(&mut self, names: &[&str]) {
        let mut fields = self.fields();
        fields.retain(|(field, _)| !names.contains(&field.as_str()));
        let Some(key) = self.server.keys.get_mut(self.lock) else { return };
        match fields.is_empty() {
            true => drop(self.server.keys.remove(self.lock)),
            false => key.value = Stored::Hash(fields),
        }
    }

    /// Readers that a writer was told about and whose timeout keys are gone.
    fn remove_dead(&mut self, told: &[(&str, &str)]) -> usize {
        if self.held() != Held::Reading {
            return 0;
        }
        let before = self.fields().len();
        for (timeout, reader) in told {
            if !self.server.keys.contains_key(*timeout) && *reader != "mode" {
                self.take(&[reader]);
            }
        }
        let after = self.fields().len();
        before - after
    }

    fn mint(&mut self, fence: &str) -> Option<i64> {
        let last = match self.server.keys.get(fence).map(|key| &key.value) {
            None => 0,
            Some(Stored::Text(text)) => {
                let last = text.parse::<i64>().ok();
                last.filter(|last| (0..TIME_END).contains(last))?
            }
            Some(_) => return None,
        };
        let token = self.server.now_us.max(last + 1);
        let value = Stored::Text(token.to_string());
        self.server.keys.insert(fence.to_owned(), Key { value, ends_ms: None });
        Some(token)
    }

    fn pttl(&self) -> i64 {
        self.server.keys.get(self.lock).map_or(-2, |key| self.server.pttl(key))
    }

    /// Exactly.
    fn end_after(&mut self, ms: i64) {
        let ends_ms = Some(self.server.now_ms() + ms);
        if let Some(key) = self.server.keys.get_mut(self.lock) {
            key.ends_ms = ends_ms;
        }
    }

    /// A key that has no time to live keeps none.
    fn at_least(&mut self, ms: i64) {
        if (0..ms).contains(&self.pttl()) {
            self.end_after(ms);
        }
    }

    fn is_alive(&self) -> bool {
        self.timeout.is_some_and(|timeout| self.server.keys.contains_key(timeout))
    }

    fn set_key(&mut self, key: &str, ms: i64) {
        let ends_ms = Some(self.server.now_ms() + ms);
        let value = Stored::Text("1".to_owned());
        self.server.keys.insert(key.to_owned(), Key { value, ends_ms });
    }

    fn set_timeout(&mut self, ms: i64) {
        if let Some(timeout) = self.timeout {
            self.set_key(timeout, ms);
        }
    }

    fn keep_timeout(&mut self, ms: i64) {
        let key = self.timeout.and_then(|timeout| self.server.keys.get(timeout));
        if key.is_none_or(|key| self.server.pttl(key) < ms) {
            self.set_timeout(ms);
        }
    }

    fn remove_timeout(&mut self) {
        if let Some(timeout) = self.timeout {
            self.server.keys.remove(timeout);
        }
    }
}

fn place_of(field: &str, is_writer: bool) -> String {
    if is_writer { format!("{field}:write") } else { field.to_owned() }
}
