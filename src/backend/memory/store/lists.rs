//! Commands on lists.

use super::ANY;
use super::CommandEffect;
use super::CommandReply;
use super::CommandResult;
use super::CommandSpec;
use super::Content;
use super::Refusal;
use super::Store;
use super::Stored;
use super::command;
use super::numbers::integer;
use super::numbers::number_of;
use super::numbers::positions;

pub(super) const COMMANDS: &[CommandSpec] = &[
    command("LPUSH", (3, ANY), 1, CommandEffect::Grows, |store, words| {
        store.push(words, ListEnd::Head)
    }),
    command("RPUSH", (3, ANY), 1, CommandEffect::Grows, |store, words| {
        store.push(words, ListEnd::Tail)
    }),
    command("LPOP", (2, ANY), 1, CommandEffect::Writes, |store, words| {
        store.pop(words, ListEnd::Head)
    }),
    command("RPOP", (2, ANY), 1, CommandEffect::Writes, |store, words| {
        store.pop(words, ListEnd::Tail)
    }),
    command("LINDEX", (3, 3), 1, CommandEffect::Reads, Store::lindex),
    command("LRANGE", (4, 4), 1, CommandEffect::Reads, Store::lrange),
    command("LLEN", (2, 2), 1, CommandEffect::Reads, Store::llen),
    command("LREM", (4, 4), 1, CommandEffect::Writes, Store::lrem),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListEnd {
    Head,
    Tail,
}

type List = Vec<String>;

impl Content for List {
    fn of(value: &mut Stored) -> Option<&mut Self> {
        match value {
            Stored::List(list) => Some(list),
            _ => None,
        }
    }

    fn into_stored(self) -> Stored {
        Stored::List(self)
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl Store {
    /// Adds one item after the other, so that the last of several ends up first at the head.
    fn push(&mut self, words: &[String], end: ListEnd) -> CommandResult {
        self.change_or_create(&words[1], |list: &mut List| {
            let items = words[2..].iter().cloned();
            match end {
                ListEnd::Head => drop(list.splice(..0, items.rev())),
                ListEnd::Tail => list.extend(items),
            }
            CommandReply::count(list.len())
        })
    }

    /// `LPOP key [count]`: with a count the reply is a list.
    fn pop(&mut self, words: &[String], end: ListEnd) -> CommandResult {
        if words.len() > 3 {
            return Err(Refusal::wrong_number_of_arguments(words));
        }
        let number = words.get(2).map(|number| number_of(number)).transpose()?;
        let popped =
            self.change(&words[1], |list: &mut List| pop(list, number.unwrap_or(1), end))?;
        Ok(match (popped, number) {
            (None, _) => CommandReply::Nil,
            (Some(items), Some(_)) => CommandReply::texts(items),
            (Some(items), None) => CommandReply::text_or_nil(items.into_iter().next()),
        })
    }

    fn lindex(&mut self, words: &[String]) -> CommandResult {
        let Some(list) = self.content::<List>(&words[1])? else { return Ok(CommandReply::Nil) };
        let index = integer(&words[2])?;
        let from_the_tail = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
        let position = match index {
            0.. => usize::try_from(index).ok(),
            _ => list.len().checked_sub(from_the_tail),
        };
        Ok(CommandReply::text_or_nil(position.and_then(|position| list.get(position).cloned())))
    }

    fn lrange(&mut self, words: &[String]) -> CommandResult {
        let (start, stop) = (integer(&words[2])?, integer(&words[3])?);
        let Some(list) = self.content::<List>(&words[1])? else {
            return Ok(CommandReply::List(Vec::new()));
        };
        Ok(CommandReply::texts(list[positions(start, stop, list.len())].iter().cloned()))
    }

    fn llen(&mut self, words: &[String]) -> CommandResult {
        let list = self.content::<List>(&words[1])?;
        Ok(CommandReply::count(list.map_or(0, Vec::len)))
    }

    /// `LREM key count item`: removes the first `count` from the head, from the tail if negative,
    /// all if 0.
    fn lrem(&mut self, words: &[String]) -> CommandResult {
        let number = integer(&words[2])?;
        let most = match usize::try_from(number.unsigned_abs()) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(most) => most,
        };
        let removed = self.change(&words[1], |list: &mut List| {
            let found = list.iter().filter(|item| **item == words[3]).count();
            // Which of the found items are removed: the first ones or the last ones.
            let (gone, first) =
                (found.min(most), if number < 0 { found.saturating_sub(most) } else { 0 });
            let mut seen = 0;
            list.retain(|item| {
                let is_one = *item == words[3];
                let goes = is_one && (first..first + gone).contains(&seen);
                seen += usize::from(is_one);
                !goes
            });
            gone
        })?;
        Ok(CommandReply::count(removed.unwrap_or(0)))
    }
}

fn pop(list: &mut List, number: usize, end: ListEnd) -> Vec<String> {
    let number = number.min(list.len());
    match end {
        ListEnd::Head => list.drain(..number).collect(),
        ListEnd::Tail => list.drain(list.len() - number..).rev().collect(),
    }
}
