//! A lock that is held: the guards of its servers, and what keeps it held.

use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use futures::future::join_all;
use futures::future::select;
use futures::future::select_all;

use crate::base::clock::Moment;
use crate::base::error::LossReason;
use crate::base::majority::Majority;
use crate::base::owner::OwnerKey;
use crate::driver::Shared;
use crate::engine::event::Wait;
use crate::locks::guard::Guard;
use crate::locks::lock::Lock;
use crate::locks::lock::Terms;
use crate::redlock::gather::within;
use crate::redlock::servers::RedlockServers;
use crate::redlock::servers::Vote;

/// What a guard and its keeper share.
pub(super) struct Held {
    pub(super) majority: Arc<Majority>,
    /// By the places of the servers. `None`: the lock is released.
    guards: Mutex<Option<Vec<Option<Guard>>>>,
    servers: Arc<RedlockServers>,
    locks: Vec<Lock>,
    terms: Terms,
    /// When `max_hold` is over.
    end: Option<Moment>,
}

impl Held {
    pub(super) fn new(
        majority: Arc<Majority>,
        guards: Vec<Option<Guard>>,
        servers: Arc<RedlockServers>,
        locks: Vec<Lock>,
        terms: Terms,
    ) -> Arc<Self> {
        let now = servers.all[0].client.shared().now();
        let end = terms.max_hold.map(|longest| now.plus(longest));
        let guards = Mutex::new(Some(guards));
        Arc::new(Self { majority, guards, servers, locks, terms, end })
    }

    /// The client whose clock and timer serve the whole.
    pub(super) fn first(&self) -> &Arc<Shared> {
        self.servers.all[0].client.shared()
    }

    pub(super) fn name(&self) -> &str {
        self.majority.whole().name.as_str()
    }

    pub(super) fn needed(&self) -> usize {
        self.servers.needed()
    }

    /// Ends the lock as released, unless it was lost, and gives the guards.
    pub(super) fn close(&self) -> Vec<Guard> {
        let guards = self.lock().take();
        self.majority.whole().release();
        guards.into_iter().flatten().flatten().collect()
    }

    /// What is asked of every server that has the lock.
    pub(super) fn guards(&self) -> Vec<Guard> {
        let guards = self.lock();
        guards.iter().flatten().flatten().map(Guard::without_release).collect()
    }

    fn guard_at(&self, place: usize) -> Option<Guard> {
        self.lock().as_ref()?.get(place)?.as_ref().map(Guard::without_release)
    }

    fn is_closed(&self) -> bool {
        self.lock().is_none()
    }

    /// Takes a guard in. Dropped instead, and so released, if the lock was released meanwhile.
    fn take_in(&self, place: usize, guard: Guard) {
        let former = match self.lock().as_mut() {
            Some(guards) => guards[place].replace(guard),
            None => Some(guard),
        };
        drop(former);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Option<Guard>>>> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a lock held until it is released or lost. Runs where the first client's driver runs.
pub(super) fn keep(held: Arc<Held>) -> impl Future<Output = ()> + Send + 'static {
    let ended = Ended(Arc::clone(&held.majority));
    async move {
        {
            let (watch, mend) = (pin!(watch(&held)), pin!(mend(&held)));
            let _ = select(watch, mend).await;
        }
        drop(ended);
        // What is left of a lost lock is of no use to anybody.
        drop(held.close());
    }
}

/// Nobody watches a lock any more: it is lost, unless it was released.
struct Ended(Arc<Majority>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.whole().lose(LossReason::ClientShutdown);
    }
}

/// Tells of the loss as soon as fewer than a majority are left.
async fn watch(held: &Held) {
    let whole = held.majority.whole();
    loop {
        let ends = held.majority.ends(held.first().now());
        let changed = held.majority.changed.notified();
        let mut waits: Vec<_> = ends.iter().map(|end| Box::pin(end.notified())).collect();
        for wait in &mut waits {
            wait.as_mut().enable();
        }
        held.majority.lose_if_past(held.first().now());
        if whole.loss().is_some() || whole.is_released() {
            return;
        }
        select(pin!(changed), select_all(waits)).await;
    }
}

/// Renews the token everywhere, and asks again where the lock is not held, with a new hold id.
async fn mend(held: &Arc<Held>) {
    if !held.terms.lease.is_watched() {
        return std::future::pending().await;
    }
    let pause = held.terms.lease.length().duration() / 3;
    while held.first().sleep(pause).await.is_ok() && !held.is_closed() {
        join_all((0..held.locks.len()).map(|place| mend_at(held, place))).await;
    }
    // The client is shut down.
}

async fn mend_at(held: &Held, place: usize) {
    let server = &held.servers.all[place];
    if held.servers.standing(place) != Vote::Counts {
        return;
    }
    let limit = held.servers.limit_of(server, held.terms.lease.length());
    let token = held.majority.whole().token();
    let there = held.guard_at(place).filter(Guard::is_held);
    let guard = match there {
        Some(guard) => guard,
        None => {
            let Some(guard) = ask_again(held, place, limit).await else { return };
            let kept = guard.without_release();
            held.take_in(place, guard);
            kept
        }
    };
    let is_raised = within(server.client.shared(), limit, guard.raise(token)).await;
    let counts = held.servers.standing(place) == Vote::Counts;
    if is_raised == Some(true) && counts && !held.majority.has(place, held.first().now()) {
        held.majority.put(place, Arc::clone(guard.cell()), held.first().now());
    }
}

/// Asks a server for the lock once more.
async fn ask_again(held: &Held, place: usize, limit: Duration) -> Option<Guard> {
    let terms = match held.end {
        None => held.terms,
        Some(end) => held.terms.ending_within(end.since(held.first().now()))?,
    };
    let asked = held.locks[place].acquire_on(OwnerKey::unique(), terms, Wait::Within(limit));
    asked.await.ok()?.ok()
}
