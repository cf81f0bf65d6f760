//! The names in use, and who waits for each.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::ServerId;
use crate::base::clock::Moment;
use crate::base::name::LockName;
use crate::base::owner::OwnerKey;
use crate::base::stats::add;
use crate::engine::by_id::ById;
use crate::engine::context::Context;
use crate::engine::context::back_off;
use crate::engine::event::Report;
use crate::engine::event::RequestId;
use crate::engine::name_record::Cause;
use crate::engine::name_record::Contest;
use crate::engine::name_record::NameRecord;
use crate::engine::names::NameTable;
use crate::engine::touched::Touched;
use crate::engine::waiter::Trouble;
use crate::engine::waiter::Waiter;

/// Names whose fallback grants are counted, so that the count cannot grow without bound.
const FALLBACK_NAMES: usize = 1_024;
/// From this many grants in a row by the fallback poll on, the log says that wake-ups do not
/// arrive.
const SUSPICIOUS_FALLBACKS: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) names: NameTable,
    pub(super) waiters: ById<Waiter>,
    /// Names to look at before `Engine::handle` returns.
    pub(super) touched: Touched,
    /// Grants in a row that only the fallback poll won, for names where that happened.
    fallback_streaks: BTreeMap<LockName, u32>,
}

impl Queues {
    /// The names that a server has.
    pub(super) fn at(&self, cx: &Context, server: ServerId) -> Vec<u64> {
        self.names.ids(|name| cx.servers.id_of(&name.lock) == server)
    }

    pub(super) fn touch(&mut self, name: u64) {
        self.touched.insert(name);
    }

    /// What a name is to its waiters, to be written to what means nothing to a new one.
    pub(super) fn known_contest(&mut self, name: u64) -> Option<&mut Contest> {
        self.names.get_mut(&name)?.known_contest()
    }

    /// Its contender may have a place, which has no ticket.
    pub(super) fn takes_place(&mut self, name_id: u64) {
        if let Some(contest) = self.known_contest(name_id) {
            contest.standing.knows(1);
        }
    }

    pub(super) fn wake(&mut self, name_id: u64) {
        if let Some(name) = self.names.get_mut(&name_id) {
            name.wake();
        }
        self.touch(name_id);
    }

    pub(super) fn forgive(&mut self, name_id: u64) {
        if let Some(contest) = self.known_contest(name_id) {
            contest.failures = 0;
            contest.trouble = None;
        }
    }

    pub(super) fn back_off_name(&mut self, cx: &Context, name_id: u64) {
        if let Some(name) = self.names.get_mut(&name_id) {
            let contest = name.contest_mut();
            contest.not_before = cx.now.plus(back_off(contest.failures));
            contest.failures += 1;
            name.wake();
        }
    }

    /// What an attempt met. That it could not even be sent is no news: what the server said before
    /// tells more.
    pub(super) fn words_of(&self, name_id: u64, failure: &Failure) -> String {
        let before = self.names.get(&name_id).and_then(|name| name.contest().trouble.as_ref());
        match before.filter(|_| failure.kind == FailureKind::Link) {
            Some(trouble) => trouble.words.clone(),
            None => failure.message.clone(),
        }
    }

    pub(super) fn leave_queue(&mut self, name_id: u64, waiter: &Waiter) {
        if let Some(name) = self.names.get_mut(&name_id) {
            name.remove(waiter);
            if seeded!(DutyPassesOn) {
                name.contest_mut().must_try = None;
            }
        }
        self.touch(name_id);
    }

    /// The record in which an owner waits, made if it is new.
    pub(super) fn name_key(&mut self, cx: &mut Context, lock: &LockName, owner: OwnerKey) -> u64 {
        let owner = lock.kind().waits_per_owner().then_some(owner);
        self.record(cx, lock, owner)
    }

    fn record(&mut self, cx: &mut Context, lock: &LockName, owner: Option<OwnerKey>) -> u64 {
        self.names.id_of(lock, owner).unwrap_or_else(|| {
            let name_id = cx.fresh_id();
            self.names.add(NameRecord::new(name_id, lock.clone(), owner));
            name_id
        })
    }

    /// The record that listens to the channel for this one: itself, unless each owner waits for itself
    /// and they have one channel.
    pub(super) fn listener_of(&self, name_id: u64) -> Option<&NameRecord> {
        let name = self.names.get(&name_id)?;
        match name.lock.kind().has_channel_per_waiter() {
            true => Some(name),
            false => self.shared_record_of(name_id),
        }
    }

    /// The record that all owners share, which knows who waits.
    pub(super) fn shared_record_of(&self, name_id: u64) -> Option<&NameRecord> {
        let name = self.names.get(&name_id)?;
        if name.owner.is_none() { Some(name) } else { self.names.find(&name.lock) }
    }

    /// Has the record that all owners share know that this one waits; mostly, it listens to the channel
    /// for it. Returns the id of the one that listens, and whether it had not done so before.
    pub(super) fn listen_for(&mut self, cx: &mut Context, name_id: u64) -> (u64, bool) {
        let Some(name) = self.names.get(&name_id) else { return (name_id, false) };
        if name.owner.is_none() {
            return (name_id, false);
        }
        let lock = name.lock.clone();
        let id = self.record(cx, &lock, None);
        let listener = self.names.get_mut(&id);
        let is_new = listener.is_some_and(|it| it.contest_mut().listens_for.insert(name_id));
        if lock.kind().has_channel_per_waiter() {
            return (name_id, false);
        }
        (id, is_new)
    }

    /// Nobody waits in this record any more.
    pub(super) fn stop_listening_for(&mut self, name_id: u64) {
        let Some(name) = self.names.get(&name_id) else { return };
        let Some(listener) = name.owner.and_then(|_| self.names.id_of(&name.lock, None)) else {
            return;
        };
        let contest = self.known_contest(listener);
        if contest.is_some_and(|contest| contest.listens_for.remove(&name_id)) {
            self.touch(listener);
        }
    }

    /// The records that a listener wakes.
    pub(super) fn listening(&self, listener: u64) -> SmallVec<[u64; 1]> {
        match self.names.get(&listener) {
            Some(name) if name.owner.is_none() && name.lock.kind().waits_per_owner() => {
                name.contest().listens_for.iter().copied().collect()
            }
            _ => SmallVec::from([listener]),
        }
    }

    /// Counts grants in a row that no wake-up announced.
    pub(super) fn note_fallback(&mut self, cx: &mut Context, name_id: u64) {
        let Some(name) = self.names.get(&name_id) else { return };
        let lock = name.lock.clone();
        match name.contest().trying_because {
            Cause::Fallback => {
                add(&cx.counters.fallback_grants, 1);
                if self.fallback_streaks.len() >= FALLBACK_NAMES
                    && !self.fallback_streaks.contains_key(&lock)
                {
                    return;
                }
                let streak = self.fallback_streaks.entry(lock.clone()).or_default();
                *streak += 1;
                if *streak == SUSPICIOUS_FALLBACKS {
                    let in_a_row = *streak;
                    cx.report(Report::WakeUpsMissing { name: lock, in_a_row });
                }
            }
            Cause::WakeUp => {
                self.fallback_streaks.remove(&lock);
            }
            Cause::Duty | Cause::Expiry => {}
        }
    }

    /// What the server, or the way to it, had to do with an attempt that was sent then.
    pub(super) fn note_trouble(
        &mut self,
        cx: &mut Context,
        name_id: u64,
        sent: Moment,
        words: String,
    ) {
        cx.set_outage_timer(sent);
        if let Some(name) = self.names.get_mut(&name_id) {
            Trouble::note(&mut name.contest_mut().trouble, sent, words);
        }
        self.back_off_name(cx, name_id);
    }

    /// The first late answer brought the server's time; after more of them the line is too slow for
    /// what this waiter wants, and those behind it may have better luck.
    pub(super) fn came_late(
        &mut self,
        cx: &mut Context,
        name_id: u64,
        taker: Option<RequestId>,
        sent: Moment,
        words: String,
    ) {
        cx.set_outage_timer(sent);
        let Some(name) = self.names.get_mut(&name_id) else { return };
        if let Some((request, waiter)) = taker.and_then(|id| Some((id, self.waiters.get_mut(&id)?)))
        {
            if waiter.late.is_some() {
                name.send_back(request, waiter);
            }
            Trouble::note(&mut waiter.late, sent, words);
        }
        if name.contest().failures == 0 {
            name.contest_mut().failures = 1;
            self.wake(name_id);
        } else {
            self.back_off_name(cx, name_id);
        }
    }
}
