//! Commands on sets.

use std::collections::BTreeSet;

use super::ANY;
use super::CommandEffect;
use super::CommandReply;
use super::CommandResult;
use super::CommandSpec;
use super::Content;
use super::Store;
use super::Stored;
use super::command;

pub(super) const COMMANDS: &[CommandSpec] = &[
    command("SADD", (3, ANY), 1, CommandEffect::Grows, Store::sadd),
    command("SREM", (3, ANY), 1, CommandEffect::Writes, Store::srem),
    command("SISMEMBER", (3, 3), 1, CommandEffect::Reads, Store::sismember),
    command("SMEMBERS", (2, 2), 1, CommandEffect::Reads, Store::smembers),
    command("SCARD", (2, 2), 1, CommandEffect::Reads, Store::scard),
];

/// Redis promises no order of the members; here they are in byte order.
type Set = BTreeSet<String>;

impl Content for Set {
    fn of(value: &mut Stored) -> Option<&mut Self> {
        match value {
            Stored::Set(set) => Some(set),
            _ => None,
        }
    }

    fn into_stored(self) -> Stored {
        Stored::Set(self)
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl Store {
    fn sadd(&mut self, words: &[String]) -> CommandResult {
        self.change_or_create(&words[1], |set: &mut Set| {
            CommandReply::count(
                words[2..].iter().filter(|member| set.insert((*member).clone())).count(),
            )
        })
    }

    fn srem(&mut self, words: &[String]) -> CommandResult {
        let removed = self.change(&words[1], |set: &mut Set| {
            words[2..].iter().filter(|member| set.remove(*member)).count()
        })?;
        Ok(CommandReply::count(removed.unwrap_or(0)))
    }

    fn sismember(&mut self, words: &[String]) -> CommandResult {
        let set = self.content::<Set>(&words[1])?;
        Ok(CommandReply::yes(set.is_some_and(|set| set.contains(&words[2]))))
    }

    fn smembers(&mut self, words: &[String]) -> CommandResult {
        let set = self.content::<Set>(&words[1])?;
        Ok(CommandReply::texts(set.into_iter().flatten().cloned()))
    }

    fn scard(&mut self, words: &[String]) -> CommandResult {
        let set = self.content::<Set>(&words[1])?;
        Ok(CommandReply::count(set.map_or(0, Set::len)))
    }
}
