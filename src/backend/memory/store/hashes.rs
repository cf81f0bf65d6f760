//! Commands on hashes.

use super::ANY;
use super::CommandEffect;
use super::CommandReply;
use super::CommandResult;
use super::CommandSpec;
use super::Content;
use super::Refusal;
use super::SYNTAX;
use super::Store;
use super::Stored;
use super::command;
use super::numbers::integer;

pub(super) const COMMANDS: &[CommandSpec] = &[
    command("HGET", (3, 3), 1, CommandEffect::Reads, Store::hget),
    command("HSET", (4, ANY), 1, CommandEffect::Grows, Store::hset),
    command("HDEL", (3, ANY), 1, CommandEffect::Writes, Store::hdel),
    command("HEXISTS", (3, 3), 1, CommandEffect::Reads, Store::hexists),
    command("HLEN", (2, 2), 1, CommandEffect::Reads, Store::hlen),
    command("HKEYS", (2, 2), 1, CommandEffect::Reads, Store::hkeys),
    command("HVALS", (2, 2), 1, CommandEffect::Reads, Store::hvals),
    command("HGETALL", (2, 2), 1, CommandEffect::Reads, Store::hgetall),
    command("HMGET", (3, ANY), 1, CommandEffect::Reads, Store::hmget),
    command("HINCRBY", (4, 4), 1, CommandEffect::Grows, Store::hincrby),
    command("HRANDFIELD", (2, ANY), 1, CommandEffect::Reads, Store::hrandfield),
];

/// Redis's error for the one count of HRANDFIELD that cannot be negated.
const OUT_OF_RANGE: Refusal = Refusal::new(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);

/// Fields and values.
type Hash = Vec<(String, String)>;

impl Content for Hash {
    fn of(value: &mut Stored) -> Option<&mut Self> {
        match value {
            Stored::Hash(fields) => Some(fields),
            _ => None,
        }
    }

    fn into_stored(self) -> Stored {
        Stored::Hash(self)
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl Store {
    fn hget(&mut self, words: &[String]) -> CommandResult {
        Ok(CommandReply::text_or_nil(value_of(self.hash(&words[1])?, &words[2])))
    }

    fn hset(&mut self, words: &[String]) -> CommandResult {
        if words.len() % 2 != 0 {
            return Err(Refusal::wrong_number_of_arguments(words));
        }
        self.change_or_create(&words[1], |fields: &mut Hash| {
            let before = fields.len();
            words[2..].chunks_exact(2).for_each(|pair| put(fields, &pair[0], pair[1].clone()));
            CommandReply::count(fields.len() - before)
        })
    }

    fn hdel(&mut self, words: &[String]) -> CommandResult {
        let removed = self.change(&words[1], |fields: &mut Hash| {
            let before = fields.len();
            fields.retain(|(field, _)| !words[2..].contains(field));
            before - fields.len()
        })?;
        Ok(CommandReply::count(removed.unwrap_or(0)))
    }

    fn hexists(&mut self, words: &[String]) -> CommandResult {
        Ok(CommandReply::yes(value_of(self.hash(&words[1])?, &words[2]).is_some()))
    }

    fn hlen(&mut self, words: &[String]) -> CommandResult {
        Ok(CommandReply::count(self.hash(&words[1])?.len()))
    }

    fn hkeys(&mut self, words: &[String]) -> CommandResult {
        Ok(CommandReply::texts(self.hash(&words[1])?.iter().map(|(field, _)| field.clone())))
    }

    fn hvals(&mut self, words: &[String]) -> CommandResult {
        Ok(CommandReply::texts(self.hash(&words[1])?.iter().map(|(_, value)| value.clone())))
    }

    fn hgetall(&mut self, words: &[String]) -> CommandResult {
        Ok(pairs(self.hash(&words[1])?))
    }

    fn hmget(&mut self, words: &[String]) -> CommandResult {
        let fields = self.hash(&words[1])?;
        let values =
            words[2..].iter().map(|field| CommandReply::text_or_nil(value_of(fields, field)));
        Ok(CommandReply::List(values.collect()))
    }

    fn hincrby(&mut self, words: &[String]) -> CommandResult {
        let (field, number) = (&words[2], integer(&words[3])?);
        let before = value_of(self.hash(&words[1])?, field).map_or(Ok(0), |value| integer(&value));
        let before = before.map_err(|_| Refusal::new("ERR hash value is not an integer"))?;
        let overflow = Refusal::new("ERR increment or decrement would overflow");
        let sum = before.checked_add(number).ok_or(overflow)?;
        self.change_or_create(&words[1], |fields: &mut Hash| put(fields, field, sum.to_string()))?;
        Ok(CommandReply::Int(sum))
    }

    /// `HRANDFIELD key [count [WITHVALUES]]`. Not random here: it always chooses the fields that
    /// were added first; with a negative count it goes through all fields in turn and starts again.
    fn hrandfield(&mut self, words: &[String]) -> CommandResult {
        let Some(number) = words.get(2) else {
            let first = self.hash(&words[1])?.first();
            return Ok(CommandReply::text_or_nil(first.map(|(field, _)| field.clone())));
        };
        let number = integer(number)?;
        if number == i64::MIN {
            return Err(OUT_OF_RANGE);
        }
        let with_values = match &words[3..] {
            [] => false,
            [option] if option.eq_ignore_ascii_case("WITHVALUES") => true,
            _ => return Err(SYNTAX),
        };
        if with_values && number.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
            return Err(Refusal::new("ERR value is out of range"));
        }
        let fields = self.hash(&words[1])?;
        let most = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
        let chosen: Hash = match number {
            0.. => fields.iter().take(most).cloned().collect(),
            _ => fields.iter().cycle().take(most).cloned().collect(),
        };
        match with_values {
            true => Ok(pairs(&chosen)),
            false => Ok(CommandReply::texts(chosen.into_iter().map(|(field, _)| field))),
        }
    }

    /// The fields of a hash for reading; an absent key reads as an empty hash.
    fn hash(&mut self, key: &str) -> Result<&[(String, String)], Refusal> {
        Ok(self.content::<Hash>(key)?.map_or(&[], Vec::as_slice))
    }
}

fn value_of(fields: &[(String, String)], field: &str) -> Option<String> {
    fields.iter().find(|(known, _)| known == field).map(|(_, value)| value.clone())
}

fn put(fields: &mut Hash, field: &str, value: String) {
    match fields.iter_mut().find(|(known, _)| known == field) {
        Some((_, known)) => *known = value,
        None => fields.push((field.to_owned(), value)),
    }
}

fn pairs(fields: &[(String, String)]) -> CommandReply {
    CommandReply::texts(fields.iter().flat_map(|(field, value)| [field.clone(), value.clone()]))
}
