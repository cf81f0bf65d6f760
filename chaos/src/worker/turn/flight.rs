//! Single flight: a value in the store that is computed anew when it is old.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::Lookup;
use redis_reentrant_lock::Result;
use tokio::time::timeout;

use super::Asking;
use super::Task;
use crate::event::How;
use crate::event::What;
use crate::kind::FRESH;
use crate::kind::Name;
use crate::kind::Share;

/// The store, as it is asked for values.
pub(super) struct Cache(tokio::sync::Mutex<Asking>);

/// Nobody answers, or the computation fails.
struct Failed;

impl Cache {
    pub(super) fn new(store: Asking) -> Self {
        Self(tokio::sync::Mutex::new(store))
    }

    /// The value is how often it was written.
    async fn look(
        &self,
        name: &str,
        takes_stale: bool,
    ) -> std::result::Result<Lookup<u64>, Failed> {
        let line = self.0.lock().await.ask(&format!("l {name}")).await.map_err(|_| Failed)?;
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(value)), Some(Ok(age))) = (words.next(), words.next()) else {
            return Err(Failed);
        };
        Ok(match value {
            0 => Lookup::Missing,
            value if age < FRESH => Lookup::Fresh(value),
            value if takes_stale => Lookup::Stale(value),
            _ => Lookup::Missing,
        })
    }
}

impl Task<'_> {
    pub(super) async fn flight(&mut self, name: &Name) -> Result<()> {
        let lease = self.worker.settings.lease;
        let mut flight = self.worker.client().single_flight(&name.text)?;
        match self.chance.below(10) {
            0 => flight = flight.lease(lease),
            1 => flight = flight.max_hold(lease * 2),
            _ => {}
        }
        let takes_stale = self.chance.permille(300);
        let ends = self.worker.settings.waits_end && self.chance.permille(150);
        let wait = if ends { self.chance.time(500, 100_000) } else { lease * 1_000 };
        let cache = Arc::clone(&self.cache);
        // The hold of a computation that goes on.
        let computing = Mutex::new(None);
        let op = self.worker.log.call(self.number, What::Run, name, "-", Share::ONE);
        let lookup = || cache.look(&name.text, takes_stale);
        let compute = async |guard: &Guard| self.compute(op, name, guard, &computing).await;
        let done = timeout(wait, flight.run(lookup, compute)).await.ok();
        let computing = computing.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.note_end(op, name, computing, done);
        self.pause(10_000).await;
        Ok(())
    }

    /// Writes down that it is the one who computes, and does.
    async fn compute(
        &mut self,
        op: u64,
        name: &Name,
        guard: &Guard,
        computing: &Mutex<Option<Computing>>,
    ) -> std::result::Result<u64, Failed> {
        let set = |is: Computing| {
            *computing.lock().unwrap_or_else(PoisonError::into_inner) = Some(is);
        };
        self.log_grant(op, guard, 1);
        let hold = guard.hold_id();
        set(Computing::Hold(hold.clone()));
        self.worker.look(guard);
        for _ in 0..*self.chance.pick(&[0, 1, 1, 2]) {
            match self.chance.below(2) {
                0 => drop(self.write("t", name, guard).await),
                _ => self.stay(guard).await,
            }
        }
        let value =
            if self.chance.permille(100) { None } else { self.write("f", name, guard).await };
        self.worker.look(guard);
        let given_up =
            self.worker.log.call(self.number, What::DropGuard, name, &hold, Share::NOTHING);
        self.worker.log.end(given_up, How::Released);
        set(Computing::Done);
        value.ok_or(Failed)
    }

    /// `done`: none if it was given up.
    fn note_end(
        &self,
        op: u64,
        name: &Name,
        computing: Option<Computing>,
        done: Option<Result<std::result::Result<u64, Failed>>>,
    ) {
        let how = match done {
            Some(Ok(Ok(value))) => How::Answered(value),
            Some(Ok(Err(Failed))) => How::Failed("store".to_owned()),
            Some(Err(error)) => self.failed(&error),
            None => How::Cancelled,
        };
        match computing {
            None => self.worker.log.end(op, how),
            Some(Computing::Done) => {}
            Some(Computing::Hold(hold)) => {
                let (what, how) = match how {
                    How::Cancelled => (What::DropGuard, How::Released),
                    how => (What::Unlock, how),
                };
                let end = self.worker.log.call(self.number, what, name, &hold, Share::NOTHING);
                self.worker.log.end(end, how);
            }
        }
    }
}

/// What became of the computation of a call.
enum Computing {
    /// It goes on, under this hold.
    Hold(String),
    Done,
}
