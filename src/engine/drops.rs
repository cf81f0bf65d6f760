//! Releases that no caller waits for. The first ones are sent at once; those that come while these
//! are in flight are sent in batches of up to a hundred.
//!
//! A queued hold counts as one whose release is on the wire: no other command of it is sent.

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
use crate::kinds::share::Share;

/// The most scripts in flight while a batch is not full.
const AT_ONCE: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct BackgroundReleases {
    queued: VecDeque<u64>,
    in_flight: usize,
    /// True after a batch was refused. The server may be a node of a cluster and would refuse every
    /// batch.
    one_by_one: bool,
}

impl BackgroundReleases {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.in_flight == 0
    }
}

impl Engine {
    /// Whether the last release of a hold may be part of a batch. In a cluster it may not: all keys
    /// of a script must be in one slot, and few names are in the same one.
    pub(super) fn may_go_together(&self, id: u64) -> bool {
        let Some(hold) = self.holds.get(&id) else { return false };
        let waited_for = !hold.release().unlocks.is_empty()
            || self.queues.names.get(&hold.name_id).is_some_and(|name| name.has_waiters());
        let as_usual = hold.release().last_failure.is_none() && !hold.release().alone;
        hold.lock.kind().releases_many()
            && self.cx.servers.is_one()
            && !self.drops.one_by_one
            && !waited_for
            && as_usual
    }

    pub(super) fn queue_release(&mut self, id: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.sending = Some(Sending::Release);
        self.drops.queued.push_back(id);
    }

    /// Sends queued releases as far as the limit of scripts in flight allows. When the client ends
    /// all are sent, because there may be no answer to wait for.
    pub(super) fn release_queued(&mut self) {
        let goes =
            |drops: &BackgroundReleases| drops.in_flight < AT_ONCE || drops.queued.len() >= BATCH;
        while !self.drops.queued.is_empty() && (goes(&self.drops) || self.stopping.is_some()) {
            self.send_some();
        }
    }

    /// Sends all queued releases, so that the next query sees their effect.
    pub(super) fn release_before(&mut self) {
        while !self.drops.queued.is_empty() {
            self.send_some();
        }
    }

    /// A caller waits for this name now, so its releases leave the queue: they go before any attempt
    /// on the name, and one may become a hand-off.
    pub(super) fn release_wanted(&mut self, name_id: u64) {
        let Some(name) = self.queues.names.get(&name_id) else { return };
        let queued: Vec<u64> = name.holds().filter(|id| self.drops.queued.contains(id)).collect();
        for id in queued {
            self.drops.queued.retain(|other| *other != id);
            if let Some(hold) = self.holds.get_mut(&id) {
                hold.sending = None;
            }
            self.send_release(id);
        }
    }

    fn send_some(&mut self) {
        // A batch has locks of one kind only.
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
            let announce = self.announce(Some(hold.name_id), &hold.lock);
            let field = self.cx.field_of(hold);
            Some((id, ReleaseItem { field, announce, name: hold.lock.clone() }))
        };
        let (ids, mut items): (Vec<u64>, Vec<ReleaseItem>) =
            ids.into_iter().filter_map(item).unzip();
        let Some(last) = items.pop() else { return };
        let to = self.cx.servers.id_of(&last.name);
        let command = if items.is_empty() {
            let ReleaseItem { name, field, announce } = last;
            Command::Release { name, field, share: Share::NOTHING, announce, undo: false }
        } else {
            items.push(last);
            Command::ReleaseMany(items)
        };
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
                self.drops.one_by_one = true;
                ids.iter().for_each(|id| self.release_alone(*id));
            }
            // Releases that may have been executed are repeated one by one as well, because the
            // batch has failed once.
            outcome => ids.iter().for_each(|id| self.on_release_reply(*id, outcome.clone())),
        }
    }

    /// Releases a hold alone, so that the answer is about its own key.
    fn release_alone(&mut self, id: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        hold.sending = None;
        hold.pending_work().release.alone = true;
        if self.cx.now >= hold.key_end {
            return self.on_not_ours(id, true);
        }
        self.send_release(id);
    }
}
