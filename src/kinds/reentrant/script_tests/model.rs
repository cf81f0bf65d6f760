//! What each command does, written from the description of the protocol (`docs/protocol.md`) and
//! not from the scripts.
//!
//! Where that page is silent about values that no client of ours leaves behind, a comment says
//! "beyond the page".

mod arguments;

use std::ops::Deref;
use std::ops::DerefMut;

use crate::backend::ScriptCall;
use crate::backend::memory::store::Stored;
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
enum Found {
    Nothing,
    Own,
    Other,
    NotAHash,
}

/// Where the new token comes from.
enum Minted {
    Token(i64),
    NotANumber,
    NotAString,
}

pub(super) fn run(server: &mut Modelled, call: &ScriptCall) -> Result<Answer, String> {
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
            Request::Acquire { lock, fence, field, count: 1, lease, .. } => {
                self.acquire(lock, fence, field, lease)
            }
            Request::Acquire { lock, field, count, lease, .. } => {
                self.count_up(lock, field, count, lease)
            }
            Request::Release { lock, field, count, channel, sharded } => {
                self.release(lock, field, count, channel, sharded)
            }
            Request::ReleaseMany { holds, sharded } => {
                let each = holds
                    .iter()
                    .map(|&(lock, field, channel)| self.give_up(lock, field, channel, sharded));
                answer(1, &each.collect::<Vec<_>>())
            }
            Request::ReleaseAt { .. } => self.release_at(request),
            Request::Renew { holds, .. } => {
                let each = holds.iter().map(|&(lock, field, lease)| self.renew(lock, field, lease));
                answer(1, &each.collect::<Vec<_>>())
            }
            Request::HandOff { .. } => return self.hand_off(request, late),
            Request::Inspect { lock } => self.inspect(lock),
            Request::Force { lock, expected, channel, sharded, client_channel, .. } => {
                self.force_release(lock, expected, channel, sharded, client_channel)
            }
        })
    }
}

/// The commands, their arguments understood, in time.
impl Model<'_> {
    fn acquire(&mut self, lock: &str, fence: &str, field: &str, lease: i64) -> Answer {
        let own = match self.find(lock, field) {
            Found::Nothing => false,
            Found::Own => true,
            Found::Other | Found::NotAHash => {
                return self.contended(lock).unwrap_or_else(|| self.held(lock));
            }
        };
        let Minted::Token(token) = self.mint(fence) else { return answer(-4, &[5]) };
        self.keys.insert(
            fence.to_owned(),
            Key { value: Stored::Text(token.to_string()), ends_ms: None },
        );
        if !own {
            self.grant(lock, field);
        }
        self.at_least(lock, lease);
        answer(1, &[token])
    }

    /// Count 2 and more: never creates, mints nothing.
    fn count_up(&mut self, lock: &str, field: &str, count: i64, lease: i64) -> Answer {
        match self.find(lock, field) {
            Found::Nothing => answer(-2, &[]),
            Found::Other | Found::NotAHash => {
                self.contended(lock).unwrap_or_else(|| answer(-3, &[]))
            }
            Found::Own => {
                self.set_count(lock, field, count);
                self.at_least(lock, lease);
                answer(1, &[0])
            }
        }
    }

    fn release(
        &mut self,
        lock: &str,
        field: &str,
        count: i64,
        channel: &str,
        sharded: bool,
    ) -> Answer {
        match self.find(lock, field) {
            Found::Nothing => answer(0, &[]),
            Found::Other | Found::NotAHash => answer(-3, &[]),
            Found::Own if count == 0 => {
                let code = self.take_off(lock, field);
                answer(code, &[self.publish(channel, sharded, "0")])
            }
            Found::Own => {
                self.set_count(lock, field, count);
                answer(2, &[])
            }
        }
    }

    /// One of many releases: done, or as if it had not been asked for.
    fn give_up(&mut self, lock: &str, field: &str, channel: &str, sharded: bool) -> i64 {
        match self.find(lock, field) {
            Found::Own if self.fields(lock) == 1 => self.free(lock, field, channel, sharded),
            _ => -5,
        }
    }

    fn release_at(&mut self, request: Request<'_>) -> Answer {
        let Request::ReleaseAt { lock, field, free_at, most, channel, sharded } = request else {
            panic!("{request:?}")
        };
        let kept = format!("{field}:kept");
        match (self.find(lock, field), self.find(lock, &kept)) {
            (Found::Nothing, _) => return answer(0, &[]),
            (Found::Other, Found::Own) => return answer(2, &[0]),
            (Found::Other | Found::NotAHash, _) => return answer(-3, &[]),
            (Found::Own, _) => {}
        }
        // In whole milliseconds, and not less than what is left.
        let left_us = free_at - self.now_us;
        let rest = (left_us.max(0) as u64).div_ceil(1_000).min(most as u64) as i64;
        if rest > 0 && self.fields(lock) == 1 {
            let value = Stored::Hash(vec![(kept, "0".to_owned())]);
            let ends_ms = Some(self.now_ms() + rest);
            self.keys.insert(lock.to_owned(), Key { value, ends_ms });
            return answer(2, &[self.publish(channel, sharded, "0")]);
        }
        let code = self.take_off(lock, field);
        answer(code, &[self.publish(channel, sharded, "0")])
    }

    fn renew(&mut self, lock: &str, field: &str, lease: i64) -> i64 {
        match self.find(lock, field) {
            Found::Nothing => 0,
            Found::Other | Found::NotAHash => -3,
            Found::Own => {
                if lease > 1 {
                    self.at_least(lock, lease);
                }
                1
            }
        }
    }

    fn hand_off(&mut self, request: Request<'_>, late: bool) -> Result<Answer, String> {
        let Request::HandOff { lock, fence, from, to, lease, channel, sharded, .. } = request
        else {
            return Err(format!("no hand-off: {request:?}"));
        };
        let (has_from, has_to) = match (self.find(lock, from), self.find(lock, to)) {
            (Found::Nothing, _) => return Ok(answer(0, &[])),
            (Found::Other, Found::Other) | (Found::NotAHash, _) => return Ok(answer(-3, &[])),
            (from, to) => (matches!(from, Found::Own), matches!(to, Found::Own)),
        };
        if self.fields(lock) > 1 && !has_to {
            let code = self.take_off(lock, from);
            return Ok(answer(code, &[self.publish(channel, sharded, "0")]));
        }
        if late {
            let receivers = if has_from { self.free(lock, from, channel, sharded) } else { 0 };
            return Ok(answer(-1, &[receivers]));
        }
        let token = match (self.mint(fence), has_to) {
            (Minted::Token(token), _) => token,
            (_, false) => return Ok(answer(2, &[self.free(lock, from, channel, sharded)])),
            // Beyond the page: a repeat that meets a spoilt fence counter. The lock is left to
            // `to`.
            (Minted::NotANumber, true) => return Ok(answer(-3, &[])),
            (Minted::NotAString, true) => return Err(format!("{WRONG_TYPE} (GET)")),
        };
        self.keys.insert(
            fence.to_owned(),
            Key { value: Stored::Text(token.to_string()), ends_ms: None },
        );
        if has_to {
            self.at_least(lock, lease);
        } else {
            self.keys.remove(lock);
            self.grant(lock, to);
            self.at_least(lock, lease);
        }
        Ok(answer(1, &[token]))
    }

    fn inspect(&self, lock: &str) -> Answer {
        let Some(key) = self.keys.get(lock) else { return answer(0, &[]) };
        let pttl = self.pttl(key);
        let fields = match &key.value {
            Stored::Hash(fields) if has(fields, "mode") => return answer(3, &[pttl]),
            Stored::Hash(fields) => fields,
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

    fn force_release(
        &mut self,
        lock: &str,
        expected: &str,
        channel: &str,
        sharded: bool,
        client_channel: &str,
    ) -> Answer {
        match self.find(lock, expected) {
            Found::Nothing => answer(0, &[]),
            Found::Own if self.is_read_write_lock(lock) => answer(-3, &[]),
            Found::Own => {
                let code = self.take_off(lock, expected);
                let receivers = self.publish(channel, sharded, "0");
                self.publish(client_channel, false, lock);
                answer(code, &[receivers])
            }
            _ => answer(-3, &[]),
        }
    }
}

/// What they are made of.
impl Model<'_> {
    fn find(&self, lock: &str, field: &str) -> Found {
        match self.keys.get(lock).map(|key| &key.value) {
            None => Found::Nothing,
            Some(Stored::Hash(fields)) if has(fields, field) => Found::Own,
            Some(Stored::Hash(_)) => Found::Other,
            Some(_) => Found::NotAHash,
        }
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
            Stored::Hash(fields) if has(fields, "mode") => 4,
            Stored::Hash(fields) if fields.len() > 1 => 2,
            Stored::Hash(_) => return None,
            _ => 1,
        };
        Some(answer(-4, &[what]))
    }

    fn held(&self, lock: &str) -> Answer {
        let key = &self.keys[lock];
        let Stored::Hash(fields) = &key.value else { panic!("not a hash") };
        Answer { texts: vec![fields[0].0.clone()], ..answer(0, &[self.pttl(key)]) }
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

    fn grant(&mut self, lock: &str, field: &str) {
        let value = Stored::Hash(vec![(field.to_owned(), "1".to_owned())]);
        self.keys.insert(lock.to_owned(), Key { value, ends_ms: None });
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

    fn is_read_write_lock(&self, lock: &str) -> bool {
        matches!(self.keys.get(lock).map(|key| &key.value), Some(Stored::Hash(fields)) if has(fields, "mode"))
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
        if self.is_read_write_lock(lock) {
            return 4;
        }
        if let Some(key) = self.keys.get_mut(lock) {
            key.ends_ms = None;
        }
        3
    }

    /// Removes the field and publishes; other fields keep the time to live.
    fn free(&mut self, lock: &str, field: &str, channel: &str, sharded: bool) -> i64 {
        match self.keys.get_mut(lock).map(|key| &mut key.value) {
            Some(Stored::Hash(fields)) if fields.len() > 1 => {
                fields.retain(|(name, _)| name != field)
            }
            _ => drop(self.keys.remove(lock)),
        }
        self.publish(channel, sharded, "0")
    }
}

fn has(fields: &[(String, String)], wanted: &str) -> bool {
    fields.iter().any(|(field, _)| field == wanted)
}
