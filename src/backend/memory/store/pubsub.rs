//! Commands on channels.

use super::ANY;
use super::CommandEffect;
use super::CommandReply;
use super::CommandResult;
use super::CommandSpec;
use super::NO_COMMAND;
use super::Published;
use super::Store;
use super::command;

pub(super) const COMMANDS: &[CommandSpec] = &[
    command("PUBLISH", (3, 3), 0, CommandEffect::Tells, |store, words| store.publish(words, false)),
    command("SPUBLISH", (3, 3), 0, CommandEffect::Tells, |store, words| store.publish(words, true)),
    command("PUBSUB", (2, ANY), 0, CommandEffect::Reads, Store::pubsub),
];

impl Store {
    fn publish(&mut self, words: &[String], sharded: bool) -> CommandResult {
        let (channel, payload) = (words[1].clone(), words[2].clone());
        let receivers = self.receivers(&channel, sharded);
        self.published.push(Published { channel, payload, sharded });
        Ok(CommandReply::Int(receivers))
    }

    /// `PUBSUB NUMSUB channel…` and `PUBSUB SHARDNUMSUB channel…`: each channel and its number of
    /// subscribers.
    fn pubsub(&mut self, words: &[String]) -> CommandResult {
        let sharded = match words[1].to_ascii_uppercase().as_str() {
            "NUMSUB" => false,
            "SHARDNUMSUB" => true,
            _ => return Err(NO_COMMAND),
        };
        let counted = words[2..].iter().flat_map(|channel| {
            [
                CommandReply::Text(channel.clone()),
                CommandReply::Int(self.receivers(channel, sharded)),
            ]
        });
        Ok(CommandReply::List(counted.collect()))
    }

    fn receivers(&self, channel: &str, sharded: bool) -> i64 {
        self.subscribers.get(&(sharded, channel.to_owned())).copied().unwrap_or(0)
    }
}
