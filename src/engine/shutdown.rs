//! The end of the client: releases everything, and reports what became of each lock.

use std::sync::Arc;

use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::LossReason;
use crate::base::name::LockName;
use crate::base::stats::add;
use crate::engine::Engine;
use crate::engine::event::Answer;
use crate::engine::event::Effect;
use crate::engine::event::Fate;
use crate::engine::event::Fates;
use crate::engine::event::RequestId;
use crate::engine::hold::Hold;
use crate::engine::hold::HoldState;
use crate::engine::timers::TimerKey;

/// The state of a client that is being shut down.
#[derive(Debug)]
pub(crate) struct ShutdownState {
    request: Option<RequestId>,
    finished: bool,
    /// The outcomes for the holds that have ended since the shutdown began.
    fates: Fates,
}

impl Engine {
    pub(super) fn on_shutdown(&mut self, until: Moment, request: Option<RequestId>) {
        if self.stopping.is_some() {
            if let Some(request) = request {
                self.cx.fail(request, Error::closed());
            }
            return;
        }
        self.stopping = Some(ShutdownState { request, finished: false, fates: Fates::default() });
        self.cx.timers.set(TimerKey::Shutdown, until);
        self.close_waits();
        for id in self.holds.ids(|_| true) {
            self.close_hold(id);
        }
        for name_id in self.queues.names.ids(|_| true) {
            self.forget_channel(name_id);
        }
    }

    fn close_waits(&mut self) {
        for request in self.queues.waiters.ids(|_| true) {
            self.end_wait(request, Answer::Failed(Error::closed()));
        }
        self.queries.close(&mut self.cx, &mut self.subscriptions);
        self.watching.close(&mut self.cx, &mut self.subscriptions);
        self.operations.close(&mut self.cx);
        let pauses = std::mem::take(&mut self.pauses);
        for request in std::mem::take(&mut self.ready).into_iter().chain(pauses) {
            self.cx.fail(request, Error::closed());
        }
    }

    /// Releases a live hold, even if it has guards.
    fn close_hold(&mut self, id: u64) {
        let Some(hold) = self.holds.get_mut(&id) else { return };
        match hold.state {
            HoldState::Held | HoldState::Suspect => {
                if let Some(cell) = hold.cell() {
                    cell.lose(LossReason::ClientShutdown);
                }
                add(&self.cx.counters.losses, 1);
                hold.levels.clear();
                self.advance(id);
            }
            HoldState::Lost(_) => {
                // The answer to a smaller count may be on its way; nobody waits for it any longer.
                let unlocks = hold.take_unlocks(|_| true);
                let error = self.holds.lost_error(id);
                for unlock in unlocks {
                    self.cx.fail(unlock.request, error.clone());
                }
                self.drop_hold(id);
            }
            HoldState::Acquiring | HoldState::Releasing | HoldState::Gone => {}
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.stopping.as_ref().is_some_and(|stopping| stopping.finished)
    }

    /// Records the outcome for a hold that has ended. Only while the client shuts down.
    pub(super) fn note_fate(&mut self, lock: &LockName, fate: Fate) {
        if let Some(stopping) = &mut self.stopping {
            add_fate(&mut stopping.fates, lock, fate);
        }
    }

    /// The outcomes for the locks since the shutdown began, and the locks that a server may still
    /// have for this client. These include attempts that may have been granted: no answer came, and
    /// the lease may not be over.
    pub(crate) fn fates(&self) -> Fates {
        let mut fates =
            self.stopping.as_ref().map(|stopping| stopping.fates.clone()).unwrap_or_default();
        let ours = |hold: &Hold| {
            !matches!(hold.state, HoldState::Lost(_)) && self.holds.unsent.get(&hold.id).is_none()
        };
        for hold in self.holds.unordered().filter(|hold| ours(hold)) {
            add_fate(&mut fates, &hold.lock, Fate::Left(hold.key_end));
        }
        for (_, dead) in self.dead_ids.iter().filter(|(_, dead)| self.cx.now < dead.key_end) {
            add_fate(&mut fates, &dead.lock, Fate::Left(dead.key_end));
        }
        fates
    }

    /// The holds without guards that the server may still have: their releases, or the attempts of
    /// cancelled calls, are not answered yet.
    pub(crate) fn given_up(&self) -> Vec<u64> {
        let ids =
            self.holds.ids(|_| true).into_iter().chain(self.dead_ids.iter().map(|(id, _)| id));
        ids.filter(|id| self.is_given_up(*id)).collect()
    }

    pub(crate) fn is_given_up(&self, id: u64) -> bool {
        let nobodys = |hold: &Hold| match hold.state {
            HoldState::Releasing => true,
            HoldState::Held | HoldState::Suspect => hold.levels.is_empty(),
            HoldState::Acquiring => hold.taker().is_none(),
            HoldState::Lost(_) | HoldState::Gone => false,
        };
        self.holds.get(&id).is_some_and(nobodys) || self.dead_ids.get(id).is_some()
    }

    /// Marks all live holds as lost, because nothing renews them any more.
    pub(crate) fn end_holds(&self) {
        let live = self.holds.unordered().filter(|hold| hold.state.is_live());
        for cell in live.filter_map(|hold| hold.cell()) {
            cell.lose(LossReason::ClientShutdown);
        }
    }

    pub(super) fn finish_if_done(&mut self) {
        if self.stopping.is_some()
            && !self.is_finished()
            && self.holds.is_empty()
            && self.dead_ids.len() == 0
        {
            self.finish();
        }
    }

    /// Ends the shutdown, and reports the locks that could not be released.
    pub(super) fn finish(&mut self) {
        let Some(stopping) = &mut self.stopping else { return };
        if stopping.finished {
            return;
        }
        stopping.finished = true;
        let request = stopping.request;
        let fates = Arc::new(self.fates());
        self.forget_links();
        for id in self.holds.ids(|_| true) {
            let unlocks = self.holds.get_mut(&id).map(|hold| hold.take_unlocks(|_| true));
            for unlock in unlocks.into_iter().flatten() {
                self.cx.fail(unlock.request, Error::closed());
            }
        }
        self.watchdog.close(&mut self.cx, &self.holds);
        if let Some(request) = request {
            self.cx.answer(request, Answer::ShutDown(fates));
        }
        self.cx.effects.push(Effect::Finished);
    }
}

fn add_fate(fates: &mut Fates, lock: &LockName, fate: Fate) {
    let known = fates.entry(lock.clone()).or_insert(fate);
    *known = fate.max(*known);
}
