//! Releases that nobody waits for: the first ones go at once, and those that come while these are on their way go
//! together, a hundred at the latest.
//!
//! A hold in the queue counts as one whose release is on the wire: nothing else of it is sent.

use std::collections::VecDeque;

use crate::backend::Outcome;
use crate::engine::Engine;
use crate::engine::hold::Sending;
use crate::engine::pending::Op;
use crate::engine::schedule::BATCH;
use crate::kinds::command::Command;
use crate::kinds::command::ReleaseItem;
use crate::kinds::command::ServerTime;
use crate::kinds::reply::Body;
use crate::kinds::reply::Reply;

/// So many scripts are on their way before one that could take more holds waits for an answer.
const AT_ONCE: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Drops {
    queued: VecDeque<u64>,
    in_flight: usize,
    /// A script of several was refused: this is a node of a cluster, perhaps, and would refuse every one.
    apart: bool,
}

impl Drops {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.in_flight == 0
    }
}

impl Engine {
    /// Whether the last release of a hold may go with others. In a cluster, keys of one script must be of one slot, and
    /// few are.
    pub(super) fn may_go_together(&self, id: u64) -> bool {
        let Some(hold) = self.holds.get(&id) else { return false };
        let waited_for = !hold.release().unlocks.is_empty()
            || self.queues.names.get(&hold.name).is_some_and(|name| name.has_waiters());
        let as_usual = hold.release().last_failure.is_none() && !hold.release().alone;
        self.cx.servers.is_one() && !self.drops.apart && !waited_for && as_usual
    }

    pub(super) fn queue_release(&mut self, id: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.sending = Some(Sending::Release);
        self.drops.queued.push_back(id);
    }

    /// Sends what has gathered. At the end of the client all of it: there may be no answer to wait for.
    pub(super) fn release_queued(&mut self) {
        let goes = |drops: &Drops| drops.in_flight < AT_ONCE || drops.queued.len() >= BATCH;
        while !self.drops.queued.is_empty() && (goes(&self.drops) || self.stopping.is_some()) {
            self.send_some();
        }
    }

    /// Sends all that has gathered: what is asked next shall find it done.
    pub(super) fn release_before(&mut self) {
        while !self.drops.queued.is_empty() {
            self.send_some();
        }
    }

    /// Somebody waits for this name now: its release leaves the queue, and may become a hand-off.
    pub(super) fn release_wanted(&mut self, key: u64) {
        let Some(name) = self.queues.names.get(&key) else { return };
        let queued = |id: &u64| self.drops.queued.contains(id);
        let Some(id) = name.holds().find(queued) else { return };
        self.drops.queued.retain(|other| *other != id);
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.sending = None;
        }
        self.send_release(id);
    }

    fn send_some(&mut self) {
        // A script is of one kind.
        let kind = |id: &u64| self.holds.get(id).map(|hold| hold.lock.kind());
        let first = self.drops.queued.front().and_then(kind);
        let alike = self.drops.queued.iter().take(BATCH).take_while(|id| kind(id) == first);
        let count = alike.count().max(1).min(self.drops.queued.len());
        let ids: Vec<u64> = self.drops.queued.drain(..count).collect();
        self.send_releases(ids);
    }

    fn send_releases(&mut self, ids: Vec<u64>) {
        let item = |id: u64| {
            let hold = self.holds.get(&id)?;
            let announce = self.announce(Some(hold.name), &hold.lock);
            Some((id, ReleaseItem { field: self.cx.field(id), announce, name: hold.lock.clone() }))
        };
        let (ids, mut items): (Vec<u64>, Vec<ReleaseItem>) = ids.into_iter().filter_map(item).unzip();
        let Some(last) = items.pop() else { return };
        let to = self.cx.servers.id_of(&last.name);
        let command = if items.is_empty() {
            let ReleaseItem { name, field, announce } = last;
            Command::Release { name, field, count: 0, announce, undo: false }
        } else {
            items.push(last);
            Command::ReleaseMany(items)
        };
        for id in &ids {
            if let Some(key) = self.holds.get(id).map(|hold| hold.name) {
                self.count_freed(key);
            }
        }
        self.drops.in_flight += 1;
        self.cx.send(Op::ReleaseMany(ids), to, command, self.cx.attempt_deadline(), ServerTime(0));
    }

    pub(super) fn on_release_many_reply(&mut self, ids: &[u64], outcome: Outcome<Reply>) {
        self.drops.in_flight -= usize::from(!seeded!(DropsAreCounted));
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
                self.drops.apart = true;
                ids.iter().for_each(|id| self.release_alone(*id));
            }
            // What may have been done is repeated alone, too: it has failed once.
            outcome => ids.iter().for_each(|id| self.on_release_reply(*id, outcome.clone())),
        }
    }

    /// By itself it learns what is wrong with its own key.
    fn release_alone(&mut self, id: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.sending = None;
        hold.errands().release.alone = true;
        if self.cx.now >= hold.key_end {
            return self.on_not_ours(id, true);
        }
        self.send_release(id);
    }
}
