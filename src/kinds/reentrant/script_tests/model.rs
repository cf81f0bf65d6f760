//! What each command does, written from the description of the protocol (`docs/protocol.md`) and
//! not from the scripts.
//!
//! Where that page is silent about values that no client of ours leaves behind, a comment says
//! "beyond the page".

mod arguments;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::ops::DerefMut;

use crate::backend::ScriptCall;
use crate::backend::memory::store::Stored;
use crate::kinds::reentrant::script_tests::model::arguments::Announce;
use crate::kinds::reentrant::script_tests::model::arguments::Attempt;
use crate::kinds::reentrant::script_tests::model::arguments::Item;
use crate::kinds::reentrant::script_tests::model::arguments::Mode;
use crate::kinds::reentrant::script_tests::model::arguments::Request;
use crate::kinds::reentrant::script_tests::model::arguments::number;
use crate::kinds::reentrant::script_tests::model::arguments::understand;
use crate::kinds::script_tests::modelled::Answer;
use crate::kinds::script_tests::modelled::Key;
use crate::kinds::script_tests::modelled::Modelled;
use crate::kinds::script_tests::modelled::WRONG_TYPE;
use crate::kinds::script_tests::modelled::answer;

/// Tokens are below this, so that every digit survives.
const TOKEN_END: i64 = 1 << 53;

/// The commands, on a server as the page describes it.
struct Model<'a>(&'a mut Modelled);

impl Deref for Model<'_> {
    type Target = Modelled;

    fn deref(&self) -> &Modelled {
        self.0
    }
}

impl DerefMut for Model<'_> {
    fn deref_mut(&mut self) -> &mut Modelled {
        self.0
    }
}

/// What a command of one hold finds under the name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Own,
    /// The lock is reserved for this one.
    Reserved,
    Other,
    NotAHash,
}

/// Where the new token comes from.
enum Minted {
    Token(i64),
    NotANumber,
    NotAString,
}

/// Where a waiter stands.
struct Standing {
    ticket: i64,
    has_place: bool,
}

type Places = Vec<(i64, String)>;

pub(in crate::kinds) fn run(server: &mut Modelled, call: &ScriptCall) -> Result<Answer, String> {
    match understand(call) {
        Ok(request) => Model(server).execute(request),
        Err(place) => Ok(answer(-9, &[place])),
    }
}

impl Model<'_> {
    fn execute(&mut self, request: Request<'_>) -> Result<Answer, String> {
        let late = request.not_after().is_some_and(|not_after| self.now_us > not_after);
        Ok(match request {
            Request::Acquire { .. } | Request::Renew { .. } | Request::Force { .. } if late => {
                answer(-1, &[])
            }
            Request::Acquire { attempt, count: 1, .. } if attempt.is_fair => {
                self.acquire_fairly(&attempt)
            }
            Request::Acquire { attempt, count: 1, .. } => self.acquire(&attempt),
            Request::Acquire { attempt, count, .. } => self.count_up(&attempt, count),
            Request::Release { lock, field, count: 0, announce, tells_ticket: true } => {
                self.undo(lock, field, announce)
            }
            Request::Release { lock, field, count: 0, announce, .. } => {
                self.release(lock, field, announce)
            }
            Request::Release { lock, field, count, .. } => self.count_down(lock, field, count),
            Request::ReleaseMany(holds) => {
                answer(1, &holds.iter().map(|hold| self.give_up(hold)).collect::<Vec<_>>())
            }
            Request::ReleaseAt { .. } => self.release_at(request),
            Request::Renew { holds, .. } => {
                let each = holds.iter().map(|&(lock, field, lease)| self.renew(lock, field, lease));
                answer(1, &each.collect::<Vec<_>>())
            }
            Request::HandOff { from, to, line_first, .. } => {
                return self.hand_off(from, &to, line_first, late);
            }
            Request::Inspect { lock } => self.inspect(lock),
            Request::Raise { lock, fence, field, token } => self.raise(lock, fence, field, token),
            Request::Force { lock, expected, announce, client_channel, .. } => {
                self.force_release(lock, expected, announce, client_channel)
            }
        })
    }
}

/// The commands, their arguments understood, in time.
impl Model<'_> {
    fn acquire(&mut self, attempt: &Attempt<'_>) -> Answer {
        let Attempt { lock, field, mode, announce, .. } = *attempt;
        let found = self.find(lock, field);
        if matches!(found, Found::Reserved | Found::Other | Found::NotAHash)
            && let Some(conflict) = self.contended(lock)
        {
            return conflict;
        }
        let own = matches!(found, Found::Own | Found::Reserved);
        let waits = mode != Mode::Try && !own && (found == Found::Other || mode == Mode::Again);
        if let Some(line) = announce.line.filter(|_| waits) {
            if self.places(line).is_none() {
                return answer(-4, &[6]);
            }
        } else if mode == Mode::Again && !own {
            return answer(-5, &[]);
        }
        match found {
            Found::Other => self.held(attempt),
            Found::Nothing if mode == Mode::Again => self.acquire_free_again(attempt),
            _ => self.grant(attempt),
        }
    }

    /// Who has been told to wait before is put into the line, and the lock goes to the first in it.
    fn acquire_free_again(&mut self, attempt: &Attempt<'_>) -> Answer {
        let line = attempt.announce.line.expect("a line");
        let standing = self.standing(line, attempt);
        let others = self.places(line).unwrap_or_default();
        let first = others.first().filter(|(first, who)| match who == attempt.field {
            true => false,
            // Of equal tickets the one that comes is served: the other is of a dead id.
            false => standing.has_place || *first < standing.ticket,
        });
        if first.is_some() {
            self.pass_on(attempt.lock, attempt.announce);
            return self.held(&Attempt { ticket: standing.ticket, ..attempt.clone() });
        }
        let answer = self.grant(attempt);
        if answer.code == 1 {
            self.leave(line, attempt.field);
        }
        answer
    }

    /// The lock is the asker's, unless its fence counter is none.
    fn grant(&mut self, attempt: &Attempt<'_>) -> Answer {
        let Minted::Token(token) = self.mint(attempt.fence) else { return answer(-4, &[5]) };
        self.store_token(attempt.fence, token);
        if self.find(attempt.lock, attempt.field) != Found::Own {
            self.set_holder(attempt.lock, attempt.field, "1", None);
        }
        self.at_least(attempt.lock, attempt.lease);
        answer(1, &[token])
    }

    /// Another has the lock, or it is reserved for another.
    fn held(&mut self, attempt: &Attempt<'_>) -> Answer {
        let key = &self.keys[attempt.lock];
        let Stored::Hash(fields) = &key.value else { panic!("not a hash") };
        let told = Answer { texts: vec![fields[0].0.clone()], ..answer(0, &[self.pttl(key)]) };
        match attempt.announce.line {
            Some(line) if attempt.mode != Mode::Try => {
                Answer { more: self.wait(line, attempt), ..told }
            }
            _ => told,
        }
    }

    /// Count 2 and more: never creates, mints nothing.
    fn count_up(&mut self, attempt: &Attempt<'_>, count: i64) -> Answer {
        let Attempt { lock, field, lease, .. } = *attempt;
        match self.find(lock, field) {
            Found::Nothing => answer(-2, &[]),
            Found::Other | Found::Reserved | Found::NotAHash => {
                self.contended(lock).unwrap_or_else(|| answer(-3, &[]))
            }
            Found::Own => {
                self.set_count(lock, field, count);
                self.at_least(lock, lease);
                answer(1, &[0])
            }
        }
    }

    fn count_down(&mut self, lock: &str, field: &str, count: i64) -> Answer {
        match self.find(lock, field) {
            Found::Nothing => answer(0, &[]),
            Found::Other | Found::Reserved | Found::NotAHash => answer(-3, &[]),
            Found::Own => {
                self.set_count(lock, field, count);
                answer(2, &[])
            }
        }
    }

    /// Of a hold, a reservation, a place, or nothing at all.
    fn release(&mut self, lock: &str, field: &str, announce: Announce<'_>) -> Answer {
        let found = self.find(lock, field);
        if matches!(found, Found::Own | Found::Reserved) {
            let code = self.take_off(lock, field);
            return answer(code, &[self.freed(lock, field, announce)]);
        }
        self.unmark(announce, field);
        if let Some(line) = announce.line {
            self.leave(line, field);
        }
        if found != Found::Nothing {
            return answer(-3, &[]);
        }
        self.pass_on(lock, announce);
        answer(0, &[])
    }

    /// One of many releases: done, or as if it had not been asked for.
    fn give_up(&mut self, hold: &Item<'_>) -> i64 {
        match self.find(hold.lock, hold.field) {
            Found::Own | Found::Reserved if self.fields(hold.lock) == 1 => {
                self.keys.remove(hold.lock);
                self.freed(hold.lock, hold.field, hold.announce)
            }
            _ => -5,
        }
    }

    fn release_at(&mut self, request: Request<'_>) -> Answer {
        let Request::ReleaseAt { lock, field, free_at, most, announce } = request else {
            panic!("{request:?}")
        };
        let kept = format!("{field}:kept");
        match self.find(lock, field) {
            Found::Nothing => return answer(0, &[]),
            Found::Other | Found::Reserved if self.has_field(lock, &kept) => {
                return answer(2, &[0]);
            }
            Found::Other | Found::Reserved | Found::NotAHash => return answer(-3, &[]),
            Found::Own => {}
        }
        // In whole milliseconds, and not less than what is left.
        let left_us = free_at - self.now_us;
        let rest = (left_us.max(0) as u64).div_ceil(1_000).min(most as u64) as i64;
        if rest > 0 && self.fields(lock) == 1 {
            self.set_holder(lock, &kept, "0", Some(rest));
            self.unmark(announce, field);
            return answer(2, &[self.publish(announce.channel, announce.sharded, "0")]);
        }
        let code = self.take_off(lock, field);
        answer(code, &[self.freed(lock, field, announce)])
    }

    fn renew(&mut self, lock: &str, field: &str, lease: i64) -> i64 {
        match self.find(lock, field) {
            Found::Nothing => 0,
            Found::Other | Found::Reserved | Found::NotAHash => -3,
            Found::Own => {
                if lease > 1 {
                    self.at_least(lock, lease);
                }
                1
            }
        }
    }

    fn hand_off(
        &mut self,
        from: &str,
        to: &Attempt<'_>,
        line_first: bool,
        late: bool,
    ) -> Result<Answer, String> {
        let Attempt { lock, fence, field, announce, .. } = *to;
        let (has_from, has_to) = match (self.find(lock, from), self.find(lock, field)) {
            (Found::Nothing, _) => return Ok(answer(0, &[])),
            (from, to) => (from == Found::Own, to == Found::Own),
        };
        if !has_from && !has_to {
            return Ok(answer(-3, &[]));
        }
        if self.fields(lock) > 1 && !has_to {
            let code = self.take_off(lock, from);
            return Ok(answer(code, &[self.freed(lock, from, announce)]));
        }
        if late {
            let receivers = if has_from { self.free(lock, from, announce) } else { 0 };
            return Ok(answer(-1, &[receivers]));
        }
        let token = match (self.mint(fence), has_to) {
            (Minted::Token(token), _) => token,
            (_, false) => return Ok(answer(2, &[self.free(lock, from, announce)])),
            // Beyond the page: a repeat that meets a spoilt fence counter. The lock is left to
            // `to`.
            (Minted::NotANumber, true) => return Ok(answer(-3, &[])),
            (Minted::NotAString, true) => return Err(format!("{WRONG_TYPE} (GET)")),
        };
        self.store_token(fence, token);
        if has_to {
            self.at_least(lock, to.lease);
            return Ok(answer(1, &[token]));
        }
        let ticket = announce.line.map_or(0, |line| self.standing(line, to).ticket);
        self.keys.remove(lock);
        // Beyond the page: `to` has a place, and is the first itself.
        let places = announce.line.and_then(|line| self.places(line)).unwrap_or_default();
        let is_first = places.first().is_some_and(|(_, first)| first == field);
        if line_first && !is_first && self.pass_on(lock, announce).is_some() {
            return Ok(Answer { code: 5, ..self.held(&Attempt { ticket, ..to.clone() }) });
        }
        self.set_holder(lock, field, "1", Some(to.lease));
        Ok(answer(1, &[token]))
    }

    fn inspect(&self, lock: &str) -> Answer {
        let Some(key) = self.keys.get(lock) else { return answer(0, &[]) };
        let pttl = self.pttl(key);
        let fields = match &key.value {
            Stored::Hash(fields) => match other_kind(fields) {
                Some(4) => return answer(3, &[pttl]),
                Some(what) => return answer(6, &[pttl, what]),
                None => fields,
            },
            Stored::Text(_) => {
                return Answer { texts: vec!["string".into()], ..answer(2, &[pttl]) };
            }
            Stored::List(_) => return Answer { texts: vec!["list".into()], ..answer(2, &[pttl]) },
            Stored::Set(_) => return Answer { texts: vec!["set".into()], ..answer(2, &[pttl]) },
            Stored::SortedSet(_) => {
                return Answer { texts: vec!["zset".into()], ..answer(2, &[pttl]) };
            }
        };
        let texts = match fields.as_slice() {
            [(field, count)] => vec![field.clone(), count.clone()],
            _ => vec![String::new(), String::new()],
        };
        Answer { texts, ..answer(1, &[pttl, i64::try_from(fields.len()).unwrap()]) }
    }

    fn raise(&mut self, lock: &str, fence: &str, field: &str, token: i64) -> Answer {
        if self.find(lock, field) != Found::Own {
            return answer(0, &[]);
        }
        let last = match self.keys.get(fence).map(|key| &key.value) {
            None => 0,
            Some(Stored::Text(text)) => match number(text, 0, TOKEN_END - 2) {
                Some(last) => last,
                None => return answer(-4, &[5]),
            },
            Some(_) => return answer(-4, &[5]),
        };
        if last < token {
            self.store_token(fence, token);
        }
        answer(1, &[])
    }

    fn force_release(
        &mut self,
        lock: &str,
        expected: &str,
        announce: Announce<'_>,
        client_channel: &str,
    ) -> Answer {
        match self.find(lock, expected) {
            Found::Nothing => answer(0, &[]),
            Found::Own | Found::Reserved if !self.has_field(lock, "mode") => {
                let code = self.take_off(lock, expected);
                let receivers = self.freed(lock, expected, announce);
                self.publish(client_channel, false, lock);
                answer(code, &[receivers])
            }
            _ => answer(-3, &[]),
        }
    }
}

/// The line.
impl Model<'_> {
    /// In its order. `None`: something else is under its key.
    fn places(&self, line: &str) -> Option<Places> {
        match self.keys.get(line).map(|key| &key.value) {
            None => Some(Places::new()),
            Some(Stored::SortedSet(places)) => {
                Some(places.iter().map(|(ticket, who)| (*ticket as i64, who.clone())).collect())
            }
            Some(_) => None,
        }
    }

    fn set_places(&mut self, line: &str, places: Places, ends_ms: Option<i64>) {
        self.keys.remove(line);
        if !places.is_empty() {
            let scored = places.into_iter().map(|(ticket, who)| (ticket as f64, who));
            let value = Stored::SortedSet(scored.collect());
            self.keys.insert(line.to_owned(), Key { value, ends_ms });
        }
    }

    fn standing(&self, line: &str, attempt: &Attempt<'_>) -> Standing {
        let places = self.places(line).unwrap_or_default();
        let place = places.iter().find(|(_, who)| who == attempt.field);
        let last = places.last().map_or(0, |(last, _)| last + 1);
        let ticket = match (place, attempt.ticket) {
            (Some((ticket, _)), _) => *ticket,
            (None, 0) => self.now_us.max(last),
            (None, named) => named,
        };
        Standing { ticket, has_place: place.is_some() }
    }

    /// Enters the line, or leaves it if it does not hear. Gives its ticket and rank.
    fn wait(&mut self, line: &str, attempt: &Attempt<'_>) -> Vec<i64> {
        let Standing { ticket, has_place } = self.standing(line, attempt);
        let mut places = self.places(line).unwrap_or_default();
        let rank = places.iter().filter(|(lower, _)| *lower < ticket).count();
        if attempt.hears {
            if !has_place {
                places.push((ticket, attempt.field.to_owned()));
            }
            let ends_ms = self.now_ms() + 12_000;
            self.set_places(line, places, Some(ends_ms));
        } else {
            self.leave(line, attempt.field);
        }
        vec![ticket, i64::try_from(rank).unwrap()]
    }

    fn leave(&mut self, line: &str, who: &str) {
        let Some(mut places) = self.places(line) else { return };
        let ends_ms = self.keys.get(line).and_then(|key| key.ends_ms);
        places.retain(|(_, other)| other != who);
        self.set_places(line, places, ends_ms);
    }

    /// Reserves a free lock for the first in line. Gives how many heard of it.
    fn pass_on(&mut self, lock: &str, announce: Announce<'_>) -> Option<i64> {
        match announce.marks {
            Some(_) => self.pass_on_fairly(lock, announce, i64::MAX).receivers,
            None => {
                let (_, first) = self.places(announce.line?)?.into_iter().next()?;
                Some(self.reserve(lock, announce, &first))
            }
        }
    }

    fn reserve(&mut self, lock: &str, announce: Announce<'_>, who: &str) -> i64 {
        self.leave(announce.line.unwrap_or_default(), who);
        self.set_holder(lock, who, "0", Some(1_500));
        self.publish(announce.channel, announce.sharded, who)
    }

    /// Somebody's field was taken off: what is free now goes to the first in line, or all may try.
    fn freed(&mut self, lock: &str, field: &str, announce: Announce<'_>) -> i64 {
        self.unmark(announce, field);
        let passed_on = match self.fields(lock) {
            0 => self.pass_on(lock, announce),
            _ => None,
        };
        passed_on.unwrap_or_else(|| self.publish(announce.channel, announce.sharded, "0"))
    }
}

/// What a fair lock does.
impl Model<'_> {
    fn acquire_fairly(&mut self, attempt: &Attempt<'_>) -> Answer {
        let Attempt { lock, field, mode, announce, .. } = *attempt;
        let found = self.find(lock, field);
        if matches!(found, Found::Reserved | Found::Other | Found::NotAHash)
            && let Some(conflict) = self.contended(lock)
        {
            return conflict;
        }
        let holder = self.holder(lock).filter(|_| found == Found::Other);
        // Who asks is there, but need not pick up what is reserved for another waiter of it.
        let is_for_sibling =
            |(who, count): &(String, String)| count == "0" && client_of(who) == client_of(field);
        if !holder.as_ref().is_some_and(is_for_sibling) {
            self.unmark(announce, field);
        }
        if matches!(found, Found::Own | Found::Reserved) {
            return self.grant(attempt);
        }
        let Some(line) = announce.line else { return answer(-5, &[]) };
        let Some(places) = self.places(line) else { return answer(-4, &[6]) };
        if let Some((who, _)) = holder {
            let pttl = self.pttl(&self.keys[lock]);
            return self.wait_fairly(attempt, pttl, who, attempt.ticket);
        }
        let standing = self.standing(line, attempt);
        let before = if mode == Mode::Try { i64::MAX } else { standing.ticket };
        if !places.is_empty() {
            let next = self.pass_on_fairly(lock, announce, before);
            if let Some((who, pttl)) = next.who {
                return self.wait_fairly(attempt, pttl, who, standing.ticket);
            }
        }
        let answer = self.grant(attempt);
        if answer.code == 1 && standing.has_place && mode != Mode::Try {
            self.leave(line, field);
        }
        answer
    }

    /// Another goes first.
    fn wait_fairly(
        &mut self,
        attempt: &Attempt<'_>,
        pttl: i64,
        who: String,
        ticket: i64,
    ) -> Answer {
        let told = Answer { texts: vec![who.clone()], ..answer(0, &[pttl]) };
        let Some(line) = attempt.announce.line.filter(|_| attempt.mode != Mode::Try) else {
            return told;
        };
        let hears = attempt.hears || attempt.mode == Mode::First;
        let mut more = self.wait(line, &Attempt { ticket, hears, ..attempt.clone() });
        more.push(0);
        let ends_ms = self.now_ms() + 12_000;
        let marks = attempt.announce.marks.and_then(|marks| self.keys.get_mut(marks));
        if let Some(marks) = marks.filter(|marks| matches!(marks.value, Stored::Set(_))) {
            marks.ends_ms = Some(ends_ms);
        }
        let places = self.places(line).unwrap_or_default();
        let is_lost =
            |other: &&&str| **other != who && !places.iter().any(|(_, place)| place == **other);
        let last = attempt.others.iter().filter(is_lost).map(|other| (*other).to_owned()).collect();
        Answer { more, last, ..told }
    }

    /// Reserves a free lock for the first of those with lower tickets whose client is not marked.
    fn pass_on_fairly(&mut self, lock: &str, announce: Announce<'_>, before: i64) -> Next {
        let nobody = Next { who: None, receivers: None };
        let Some(line) = announce.line else { return nobody };
        for removed in 0.. {
            let first = self.places(line).and_then(|places| places.into_iter().next());
            let Some((_, who)) = first.filter(|(ticket, _)| *ticket < before) else { break };
            if !self.marked(announce).contains(client_of(&who)) {
                let receivers = Some(self.reserve(lock, announce, &who));
                self.mark(announce, &who);
                return Next { who: Some((who, 1_500)), receivers };
            }
            if removed == 64 {
                let receivers = Some(self.publish(announce.channel, announce.sharded, "0"));
                return Next { who: Some((who, 0)), receivers };
            }
            self.leave(line, &who);
        }
        nobody
    }

    /// The ticket of a place that a dead id had.
    fn undo(&mut self, lock: &str, field: &str, announce: Announce<'_>) -> Answer {
        let places = announce.line.and_then(|line| self.places(line)).unwrap_or_default();
        let place = places.into_iter().find(|(_, who)| who == field);
        let answered = self.release(lock, field, announce);
        match place {
            Some((ticket, _)) if matches!(answered.code, 0 | -3) => answer(5, &[ticket]),
            _ => answered,
        }
    }

    fn marked(&self, announce: Announce<'_>) -> BTreeSet<String> {
        match announce.marks.and_then(|marks| self.keys.get(marks)).map(|key| &key.value) {
            Some(Stored::Set(clients)) => clients.clone(),
            _ => BTreeSet::new(),
        }
    }

    fn set_marked(&mut self, marks: &str, clients: BTreeSet<String>, ends_ms: Option<i64>) {
        match self.keys.get(marks).map(|key| &key.value) {
            Some(Stored::Set(_)) | None => {}
            // Something else is there.
            Some(_) => return,
        }
        self.keys.remove(marks);
        if !clients.is_empty() {
            self.keys.insert(marks.to_owned(), Key { value: Stored::Set(clients), ends_ms });
        }
    }

    fn mark(&mut self, announce: Announce<'_>, field: &str) {
        let Some(marks) = announce.marks else { return };
        let mut clients = self.marked(announce);
        clients.insert(client_of(field).to_owned());
        let ends_ms = self.now_ms() + 12_000;
        self.set_marked(marks, clients, Some(ends_ms));
    }

    fn unmark(&mut self, announce: Announce<'_>, field: &str) {
        let Some(marks) = announce.marks else { return };
        let ends_ms = self.keys.get(marks).and_then(|key| key.ends_ms);
        let mut clients = self.marked(announce);
        clients.remove(client_of(field));
        self.set_marked(marks, clients, ends_ms);
    }

    /// The only field of a lock, and its count.
    fn holder(&self, lock: &str) -> Option<(String, String)> {
        match self.keys.get(lock).map(|key| &key.value) {
            Some(Stored::Hash(fields)) => fields.first().cloned(),
            _ => None,
        }
    }
}

/// For whom a fair lock was reserved, or who is next if a script may do no more, and for how long;
/// and how many heard of it.
struct Next {
    who: Option<(String, i64)>,
    receivers: Option<i64>,
}

fn client_of(field: &str) -> &str {
    field.split(':').next().unwrap_or_default()
}

/// What they are made of.
impl Model<'_> {
    fn find(&self, lock: &str, field: &str) -> Found {
        match self.keys.get(lock).map(|key| &key.value) {
            None => Found::Nothing,
            Some(Stored::Hash(fields)) => match fields.iter().find(|(name, _)| name == field) {
                Some((_, count)) if count == "0" => Found::Reserved,
                Some(_) => Found::Own,
                None => Found::Other,
            },
            Some(_) => Found::NotAHash,
        }
    }

    fn has_field(&self, lock: &str, field: &str) -> bool {
        matches!(self.find(lock, field), Found::Own | Found::Reserved)
    }

    fn fields(&self, lock: &str) -> usize {
        match self.keys.get(lock).map(|key| &key.value) {
            Some(Stored::Hash(fields)) => fields.len(),
            _ => 0,
        }
    }

    /// A value that is no lock of this kind.
    fn contended(&self, lock: &str) -> Option<Answer> {
        let key = self.keys.get(lock)?;
        let what = match &key.value {
            Stored::Hash(fields) => match other_kind(fields) {
                Some(what) => what,
                None if fields.len() > 1 => 2,
                None => return None,
            },
            _ => 1,
        };
        Some(answer(-4, &[what]))
    }

    fn mint(&self, fence: &str) -> Minted {
        match self.keys.get(fence).map(|key| &key.value) {
            None => Minted::Token(self.now_us),
            Some(Stored::Text(text)) => match number(text, 0, TOKEN_END - 2) {
                Some(last) => Minted::Token(self.now_us.max(last + 1)),
                None => Minted::NotANumber,
            },
            Some(_) => Minted::NotAString,
        }
    }

    fn store_token(&mut self, fence: &str, token: i64) {
        let value = Stored::Text(token.to_string());
        self.keys.insert(fence.to_owned(), Key { value, ends_ms: None });
    }

    /// The only field of the lock's hash.
    fn set_holder(&mut self, lock: &str, field: &str, count: &str, ttl: Option<i64>) {
        let value = Stored::Hash(vec![(field.to_owned(), count.to_owned())]);
        let ends_ms = ttl.map(|ttl| self.now_ms() + ttl);
        self.keys.insert(lock.to_owned(), Key { value, ends_ms });
    }

    fn set_count(&mut self, lock: &str, field: &str, count: i64) {
        let Some(Key { value: Stored::Hash(fields), .. }) = self.keys.get_mut(lock) else { return };
        for (_, value) in fields.iter_mut().filter(|(name, _)| name == field) {
            *value = count.to_string();
        }
    }

    /// The time to live becomes max(remaining, lease); one that has none gets the lease.
    fn at_least(&mut self, lock: &str, lease: i64) {
        let wanted = self.now_ms() + lease;
        if let Some(key) = self.keys.get_mut(lock) {
            key.ends_ms = Some(key.ends_ms.map_or(wanted, |at| at.max(wanted)));
        }
    }

    /// Removes the field of a hold; the key goes with its last field. Other fields lose the time to
    /// live, unless they are a read-write lock, which has one of its own. Gives the code of the
    /// reply.
    fn take_off(&mut self, lock: &str, field: &str) -> i64 {
        if self.fields(lock) == 1 {
            self.keys.remove(lock);
            return 1;
        }
        if let Some(Key { value: Stored::Hash(fields), .. }) = self.keys.get_mut(lock) {
            fields.retain(|(name, _)| name != field);
        }
        if self.has_field(lock, "mode") {
            return 4;
        }
        if let Some(key) = self.keys.get_mut(lock) {
            key.ends_ms = None;
        }
        3
    }

    /// Removes the field and passes the lock on; other fields keep the time to live.
    fn free(&mut self, lock: &str, field: &str, announce: Announce<'_>) -> i64 {
        match self.keys.get_mut(lock).map(|key| &mut key.value) {
            Some(Stored::Hash(fields)) if fields.len() > 1 => {
                fields.retain(|(name, _)| name != field)
            }
            _ => drop(self.keys.remove(lock)),
        }
        self.freed(lock, field, announce)
    }
}

/// The number of the conflict with a hash that says which other kind it is.
fn other_kind(fields: &[(String, String)]) -> Option<i64> {
    let kind = fields.iter().find(|(field, _)| field == "kind").map(|(_, kind)| kind.as_str());
    match kind {
        _ if has(fields, "mode") => Some(4),
        Some("latch") => Some(10),
        Some("semaphore") => Some(11),
        _ => None,
    }
}

fn has(fields: &[(String, String)], wanted: &str) -> bool {
    fields.iter().any(|(field, _)| field == wanted)
}
