//! Commands on channels.

use super::ANY;
use super::Answer;
use super::Command;
use super::Effect;
use super::NO_COMMAND;
use super::Published;
use super::Reply;
use super::Store;
use super::command;

pub(super) const COMMANDS: &[Command] = &[
    command("PUBLISH", (3, 3), 0, Effect::Tells, |store, words| store.publish(words, false)),
    command("SPUBLISH", (3, 3), 0, Effect::Tells, |store, words| store.publish(words, true)),
    command("PUBSUB", (2, ANY), 0, Effect::Reads, Store::pubsub),
];

impl Store {
    fn publish(&mut self, words: &[String], sharded: bool) -> Reply {
        let (channel, payload) = (words[1].clone(), words[2].clone());
        let receivers = self.receivers(&channel, sharded);
        self.published.push(Published { channel, payload, sharded });
        Ok(Answer::Int(receivers))
    }

    /// `PUBSUB NUMSUB channel…` and `PUBSUB SHARDNUMSUB channel…`: each channel, and how many have
    /// subscribed to it.
    fn pubsub(&mut self, words: &[String]) -> Reply {
        let sharded = match words[1].to_ascii_uppercase().as_str() {
            "NUMSUB" => false,
            "SHARDNUMSUB" => true,
            _ => return Err(NO_COMMAND),
        };
        let counted = words[2..].iter().flat_map(|channel| {
            [Answer::Text(channel.clone()), Answer::Int(self.receivers(channel, sharded))]
        });
        Ok(Answer::List(counted.collect()))
    }

    fn receivers(&self, channel: &str, sharded: bool) -> i64 {
        self.subscribers.get(&(sharded, channel.to_owned())).copied().unwrap_or(0)
    }
}
