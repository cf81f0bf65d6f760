//! Commands on sets.

use std::collections::BTreeSet;

use super::ANY;
use super::Answer;
use super::Command;
use super::Content;
use super::Effect;
use super::Reply;
use super::Store;
use super::Stored;
use super::command;

pub(super) const COMMANDS: &[Command] = &[
    command("SADD", (3, ANY), 1, Effect::Grows, Store::sadd),
    command("SREM", (3, ANY), 1, Effect::Writes, Store::srem),
    command("SISMEMBER", (3, 3), 1, Effect::Reads, Store::sismember),
    command("SMEMBERS", (2, 2), 1, Effect::Reads, Store::smembers),
    command("SCARD", (2, 2), 1, Effect::Reads, Store::scard),
];

/// Redis promises no order of the members; here it is that of their bytes.
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
    fn sadd(&mut self, words: &[String]) -> Reply {
        self.change_or_create(&words[1], |set: &mut Set| {
            Answer::count(words[2..].iter().filter(|member| set.insert((*member).clone())).count())
        })
    }

    fn srem(&mut self, words: &[String]) -> Reply {
        let removed = self.change(&words[1], |set: &mut Set| {
            words[2..].iter().filter(|member| set.remove(*member)).count()
        })?;
        Ok(Answer::count(removed.unwrap_or(0)))
    }

    fn sismember(&mut self, words: &[String]) -> Reply {
        let set = self.content::<Set>(&words[1])?;
        Ok(Answer::yes(set.is_some_and(|set| set.contains(&words[2]))))
    }

    fn smembers(&mut self, words: &[String]) -> Reply {
        let set = self.content::<Set>(&words[1])?;
        Ok(Answer::texts(set.into_iter().flatten().cloned()))
    }

    fn scard(&mut self, words: &[String]) -> Reply {
        let set = self.content::<Set>(&words[1])?;
        Ok(Answer::count(set.map_or(0, Set::len)))
    }
}
