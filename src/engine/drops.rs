//! Releases that nobody waits for: the first ones go at once, and those that come while these are on their way go
//! together.
//!
//! A hold in the queue counts as one whose release is on the wire: nothing else of it is sent.

use std::collections::VecDeque;

use crate::backend::OpId;
use crate::backend::Outcome;
use crate::engine::Engine;
use crate::engine::Op;
use crate::engine::hold::Sending;
use crate::scripts::reentrant::Body;
use crate::scripts::reentrant::Command;
use crate::scripts::reentrant::ReleaseItem;
use crate::scripts::reentrant::Reply;
use crate::scripts::reentrant::ServerTime;

/// Most holds in one script: it takes a third of a millisecond on the server.
const BATCH: usize = 100;
/// Most scripts on their way.
const AT_ONCE: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Drops {
    queued: VecDeque<u64>,
    on_their_way: usize,
}

impl Drops {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.on_their_way == 0
    }
}

impl Engine {
    /// Whether the last release of a hold may go with others. In a cluster, keys of one script must be of one slot, and
    /// few are.
    pub(super) fn may_go_together(&self, id: u64) -> bool {
        self.servers.is_one()
            && self.holds.get(&id).is_some_and(|hold| {
                let release = &hold.release;
                release.requests.is_empty() && release.last_failure.is_none() && !release.alone
            })
    }

    pub(super) fn queue_release(&mut self, id: u64) {
        let op = OpId(self.fresh_id());
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.op = Some((op, Sending::Release));
        self.drops.queued.push_back(id);
    }

    /// Sends what has gathered. At the end of the client all of it: there may be no answer to wait for.
    pub(super) fn release_queued(&mut self) {
        while !self.drops.queued.is_empty() && (self.drops.on_their_way < AT_ONCE || self.stopping.is_some())
        {
            let count = self.drops.queued.len().min(BATCH);
            let ids: Vec<u64> = self.drops.queued.drain(..count).collect();
            self.send_releases(ids);
        }
    }

    fn send_releases(&mut self, ids: Vec<u64>) {
        let item = |id: u64| {
            let name = self.holds.get(&id)?.lock.clone();
            Some((id, ReleaseItem { field: self.field(id), announce: self.announce(&name), name }))
        };
        let (ids, items): (Vec<u64>, Vec<ReleaseItem>) = ids.into_iter().filter_map(item).unzip();
        let Some(first) = items.first().cloned() else { return };
        let to = self.servers.id_of(&first.name);
        let command = if items.len() == 1 {
            let ReleaseItem { name, field, announce } = first;
            Command::Release { name, field, count: 0, announce }
        } else {
            Command::ReleaseMany(items)
        };
        for id in &ids {
            if let Some(key) = self.holds.get(id).map(|hold| hold.name) {
                self.count_freed(key);
            }
        }
        self.drops.on_their_way += 1;
        self.send(Op::ReleaseMany(ids), to, command, self.attempt_deadline(), ServerTime(0));
    }

    pub(super) fn on_release_many_reply(&mut self, ids: &[u64], outcome: Outcome<Reply>) {
        self.drops.on_their_way -= 1;
        match outcome {
            outcome if ids.len() == 1 => {
                ids.iter().for_each(|id| self.on_release_reply(*id, outcome.clone()))
            }
            Outcome::Done(Reply { time, body: Body::ReleaseMany(each) }) => {
                for (id, released) in ids.iter().zip(each) {
                    match released {
                        Some(released) => {
                            let reply = Reply { time, body: Body::Release(released) };
                            self.on_release_reply(*id, Outcome::Done(reply));
                        }
                        None => self.release_alone(*id),
                    }
                }
            }
            Outcome::NotExecuted(failure) if !failure.kind.is_transient() => {
                ids.iter().for_each(|id| self.release_alone(*id));
            }
            // What may have been done is repeated alone, too: it has failed once.
            outcome => ids.iter().for_each(|id| self.on_release_reply(*id, outcome.clone())),
        }
    }

    /// By itself it learns what is wrong with its own key.
    fn release_alone(&mut self, id: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.op = None;
        hold.release.alone = true;
        self.send_release(id);
    }
}
