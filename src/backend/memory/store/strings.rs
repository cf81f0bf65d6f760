//! Commands on strings.

use super::ANY;
use super::CommandEffect;
use super::CommandReply;
use super::CommandResult;
use super::CommandSpec;
use super::Content;
use super::Entry;
use super::Refusal;
use super::SYNTAX;
use super::Store;
use super::Stored;
use super::command;
use super::keys::TimeUnit;
use super::numbers::integer;

pub(super) const COMMANDS: &[CommandSpec] = &[
    command("GET", (2, 2), 1, CommandEffect::Reads, Store::get),
    command("SET", (3, ANY), 1, CommandEffect::Grows, Store::set),
    command("INCR", (2, 2), 1, CommandEffect::Grows, |store, words| store.add_to(&words[1], 1)),
    command("DECR", (2, 2), 1, CommandEffect::Grows, |store, words| store.add_to(&words[1], -1)),
    command("INCRBY", (3, 3), 1, CommandEffect::Grows, Store::incrby),
    command("DECRBY", (3, 3), 1, CommandEffect::Grows, Store::decrby),
];

impl Content for String {
    fn of(value: &mut Stored) -> Option<&mut Self> {
        match value {
            Stored::Text(text) => Some(text),
            _ => None,
        }
    }

    fn into_stored(self) -> Stored {
        Stored::Text(self)
    }

    /// An empty string is a value like any other, so the key stays.
    fn is_empty(&self) -> bool {
        false
    }
}

/// The options of `SET key value`.
#[derive(Default)]
struct SetOptions<'a> {
    /// NX: set only if the key does not exist.
    absent: bool,
    /// XX: set only if the key exists.
    present: bool,
    /// GET: reply with the old value.
    get: bool,
    keep_ttl: bool,
    /// A time to live, or an expiry by the server's clock.
    expiry: Option<(Expiry, &'a str)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expiry {
    In(TimeUnit),
    At(TimeUnit),
}

impl Store {
    fn get(&mut self, words: &[String]) -> CommandResult {
        let text = self.content::<String>(&words[1])?;
        Ok(CommandReply::text_or_nil(text.cloned()))
    }

    fn set(&mut self, words: &[String]) -> CommandResult {
        let options = SetOptions::read(&words[3..])?;
        let expires_ms =
            options.expiry.map(|(kind, number)| self.end_of_set(kind, number)).transpose()?;
        let before = if options.get { Some(self.get(words)?) } else { None };
        let found = self.live(&words[1]).map(|entry| entry.expires_ms);
        if options.absent && found.is_some() || options.present && found.is_none() {
            return Ok(before.unwrap_or(CommandReply::Nil));
        }
        let kept = found.flatten().filter(|_| options.keep_ttl);
        let entry =
            Entry { value: Stored::Text(words[2].clone()), expires_ms: expires_ms.or(kept) };
        self.entries.insert(words[1].clone(), entry);
        Ok(before.unwrap_or(CommandReply::Status("OK")))
    }

    /// When a key of SET expires, in milliseconds by the server's clock.
    fn end_of_set(&self, kind: Expiry, number: &str) -> Result<i64, Refusal> {
        const INVALID: Refusal = Refusal::new("ERR invalid expire time in 'set' command");
        let number = integer(number)?;
        let (unit, begin) = match kind {
            Expiry::In(unit) => (unit, self.now_ms()),
            Expiry::At(unit) => (unit, 0),
        };
        let ms = unit.in_ms(number).filter(|_| number > 0);
        ms.and_then(|ms| ms.checked_add(begin)).ok_or(INVALID)
    }

    fn incrby(&mut self, words: &[String]) -> CommandResult {
        let number = integer(&words[2])?;
        self.add_to(&words[1], number)
    }

    fn decrby(&mut self, words: &[String]) -> CommandResult {
        let number = integer(&words[2])?.checked_neg();
        self.add_to(&words[1], number.ok_or(Refusal::new("ERR decrement would overflow"))?)
    }

    fn add_to(&mut self, key: &str, number: i64) -> CommandResult {
        let before = self.content::<String>(key)?.map_or(Ok(0), |text| integer(text))?;
        let overflow = Refusal::new("ERR increment or decrement would overflow");
        let sum = before.checked_add(number).ok_or(overflow)?;
        self.change_or_create(key, |text: &mut String| *text = sum.to_string())?;
        Ok(CommandReply::Int(sum))
    }
}

impl<'a> SetOptions<'a> {
    fn read(mut words: &'a [String]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        while let [word, rest @ ..] = words {
            words = rest;
            match word.to_ascii_uppercase().as_str() {
                "NX" if !options.present => options.absent = true,
                "XX" if !options.absent => options.present = true,
                "GET" => options.get = true,
                "KEEPTTL" if options.expiry.is_none() => options.keep_ttl = true,
                other => {
                    let kind =
                        Expiry::of(other).filter(|kind| options.takes(*kind)).ok_or(SYNTAX)?;
                    let (number, rest) = words.split_first().ok_or(SYNTAX)?;
                    options.expiry = Some((kind, number));
                    words = rest;
                }
            }
        }
        Ok(options)
    }

    /// The same kind of expiry may be given twice; the last one counts.
    fn takes(&self, kind: Expiry) -> bool {
        !self.keep_ttl && self.expiry.is_none_or(|(given, _)| given == kind)
    }
}

impl Expiry {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "EX" => Self::In(TimeUnit::Seconds),
            "PX" => Self::In(TimeUnit::Milliseconds),
            "EXAT" => Self::At(TimeUnit::Seconds),
            "PXAT" => Self::At(TimeUnit::Milliseconds),
            _ => return None,
        })
    }
}
