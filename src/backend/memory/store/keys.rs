//! Commands on keys, whatever their type, and the clock.

use super::ANY;
use super::CommandEffect;
use super::CommandReply;
use super::CommandResult;
use super::CommandSpec;
use super::Refusal;
use super::SYNTAX;
use super::Store;
use super::command;
use super::glob;
use super::numbers::integer;

pub(super) const COMMANDS: &[CommandSpec] = &[
    command("TIME", (1, 1), 0, CommandEffect::Reads, Store::time),
    command("PTTL", (2, 2), 1, CommandEffect::Reads, |store, words| {
        Ok(CommandReply::Int(store.left_ms(&words[1]).unwrap_or_else(|none| none)))
    }),
    command("TTL", (2, 2), 1, CommandEffect::Reads, |store, words| {
        Ok(CommandReply::Int(store.left_ms(&words[1]).map_or_else(|none| none, rounded_seconds)))
    }),
    command("PEXPIRETIME", (2, 2), 1, CommandEffect::Reads, |store, words| {
        Ok(CommandReply::Int(store.end_ms(&words[1]).unwrap_or_else(|none| none)))
    }),
    command("EXPIRETIME", (2, 2), 1, CommandEffect::Reads, |store, words| {
        Ok(CommandReply::Int(store.end_ms(&words[1]).map_or_else(|none| none, rounded_seconds)))
    }),
    command("PEXPIRE", (3, ANY), 1, CommandEffect::Writes, |store, words| {
        store.expire(words, store.now_ms(), TimeUnit::Milliseconds)
    }),
    command("EXPIRE", (3, ANY), 1, CommandEffect::Writes, |store, words| {
        store.expire(words, store.now_ms(), TimeUnit::Seconds)
    }),
    command("PEXPIREAT", (3, ANY), 1, CommandEffect::Writes, |store, words| {
        store.expire(words, 0, TimeUnit::Milliseconds)
    }),
    command("EXPIREAT", (3, ANY), 1, CommandEffect::Writes, |store, words| {
        store.expire(words, 0, TimeUnit::Seconds)
    }),
    command("PERSIST", (2, 2), 1, CommandEffect::Writes, Store::persist),
    command("EXISTS", (2, ANY), ANY, CommandEffect::Reads, Store::exists),
    command("DEL", (2, ANY), ANY, CommandEffect::Writes, Store::del),
    command("UNLINK", (2, ANY), ANY, CommandEffect::Writes, Store::del),
    command("TYPE", (2, 2), 1, CommandEffect::Reads, Store::kind),
    command("SCAN", (2, ANY), 0, CommandEffect::Reads, Store::scan),
];

/// What PTTL and similar commands reply if there is no key, or no time to live.
const NO_KEY: i64 = -2;
const NO_END: i64 = -1;

/// The unit in which a command gives a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Seconds,
    Milliseconds,
}

impl TimeUnit {
    /// `None` on overflow.
    pub(super) fn in_ms(self, number: i64) -> Option<i64> {
        match self {
            Self::Seconds => number.checked_mul(1_000),
            Self::Milliseconds => Some(number),
        }
    }
}

/// The condition of an EXPIRE on the present expiry of the key.
#[derive(Default)]
struct ExpireCondition {
    /// NX: the key has none.
    none: bool,
    /// XX: the key has one.
    some: bool,
    /// GT: the new expiry is later. No expiry counts as the latest.
    later: bool,
    /// LT: the new expiry is earlier.
    earlier: bool,
}

impl Store {
    fn time(&mut self, _words: &[String]) -> CommandResult {
        let (seconds, micros) =
            (self.now_us.div_euclid(1_000_000), self.now_us.rem_euclid(1_000_000));
        Ok(CommandReply::texts([seconds.to_string(), micros.to_string()]))
    }

    /// When a key expires; the error is the reply if there is no such time.
    fn end_ms(&mut self, key: &str) -> Result<i64, i64> {
        self.live(key).ok_or(NO_KEY)?.expires_ms.ok_or(NO_END)
    }

    fn left_ms(&mut self, key: &str) -> Result<i64, i64> {
        let now_ms = self.now_ms();
        self.end_ms(key).map(|end| end.saturating_sub(now_ms))
    }

    fn expire(&mut self, words: &[String], from_ms: i64, unit: TimeUnit) -> CommandResult {
        let condition = ExpireCondition::read(&words[3..])?;
        let number = integer(&words[2])?;
        let end = unit.in_ms(number).and_then(|ms| ms.checked_add(from_ms)).ok_or_else(|| {
            let name = words[0].to_ascii_lowercase();
            Refusal(format!("ERR invalid expire time in '{name}' command").into())
        })?;
        let now_ms = self.now_ms();
        let Some(entry) =
            self.live(&words[1]).filter(|entry| condition.allows(entry.expires_ms, end))
        else {
            return Ok(CommandReply::Int(0));
        };
        entry.expires_ms = Some(end);
        if end <= now_ms {
            self.entries.remove(&words[1]);
        }
        Ok(CommandReply::Int(1))
    }

    fn persist(&mut self, words: &[String]) -> CommandResult {
        let ended = self.live(&words[1]).and_then(|entry| entry.expires_ms.take());
        Ok(CommandReply::yes(ended.is_some()))
    }

    fn exists(&mut self, words: &[String]) -> CommandResult {
        Ok(CommandReply::count(words[1..].iter().filter(|key| self.contains(key)).count()))
    }

    fn del(&mut self, words: &[String]) -> CommandResult {
        Ok(CommandReply::count(words[1..].iter().filter(|key| self.remove(key)).count()))
    }

    fn kind(&mut self, words: &[String]) -> CommandResult {
        Ok(CommandReply::Status(self.live(&words[1]).map_or("none", |entry| entry.value.kind())))
    }

    /// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`. COUNT is a hint, and every call
    /// returns all keys.
    fn scan(&mut self, words: &[String]) -> CommandResult {
        words[1].parse::<u64>().map_err(|_| Refusal::new("ERR invalid cursor"))?;
        let (mut pattern, mut kind) = ("*", None);
        for option in words[2..].chunks(2) {
            let [name, value] = option else { return Err(SYNTAX) };
            match name.to_ascii_uppercase().as_str() {
                "MATCH" => pattern = value,
                "TYPE" => kind = Some(value),
                "COUNT" if integer(value)? >= 1 => {}
                _ => return Err(SYNTAX),
            }
        }
        let now_ms = self.now_ms();
        let found = self.entries.iter().filter(|(key, entry)| {
            entry.expires_ms.is_none_or(|at| at >= now_ms)
                && glob::matches(pattern.as_bytes(), key.as_bytes())
                && kind.is_none_or(|kind| kind.eq_ignore_ascii_case(entry.value.kind()))
        });
        let keys = CommandReply::texts(found.map(|(key, _)| key.clone()));
        Ok(CommandReply::List(vec![CommandReply::Text("0".to_owned()), keys]))
    }
}

impl ExpireCondition {
    fn read(words: &[String]) -> Result<Self, Refusal> {
        let mut condition = Self::default();
        for word in words {
            match word.to_ascii_uppercase().as_str() {
                "NX" => condition.none = true,
                "XX" => condition.some = true,
                "GT" => condition.later = true,
                "LT" => condition.earlier = true,
                _ => return Err(Refusal(format!("ERR Unsupported option {word}").into())),
            }
        }
        if condition.none && (condition.some || condition.later || condition.earlier) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(Refusal::new(text));
        }
        if condition.later && condition.earlier {
            return Err(Refusal::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(condition)
    }

    fn allows(&self, now: Option<i64>, new: i64) -> bool {
        let refused = (self.none && now.is_some())
            || (self.some && now.is_none())
            || (self.later && now.is_none_or(|now| new <= now))
            || (self.earlier && now.is_some_and(|now| new >= now));
        !refused
    }
}

fn rounded_seconds(ms: i64) -> i64 {
    ms.saturating_add(500) / 1_000
}
