//! The same Lua in an embedded interpreter: a server inside the process, and the backend that reaches it.

mod hub;
pub(crate) mod keyspace;
pub(crate) mod store;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::Sleep;

use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::OpId;
use crate::backend::ServerId;
use crate::backend::memory::hub::Hub;
use crate::backend::memory::hub::Next;

/// A lock server inside this process, for tests without Redis.
///
/// It runs the same Lua scripts as Redis does, in an embedded interpreter. Clones are handles of
/// one server: give a clone to every client that is to contend, and give every test a server of its
/// own. Time comes from [`tokio::time`], so under a paused clock leases run out when the clock is
/// advanced, and no test has to wait.
///
/// It also simulates what is hard to do with a real server: lost data, cut connections, lost
/// replies. The page on [testing](crate::docs::testing) shows how.
///
/// # Examples
///
/// ```
/// # use redis_reentrant_lock::InMemoryServer;
/// let server = InMemoryServer::new();
/// let same = server.clone();
/// assert!(!same.contains("orders:42"));
/// ```
#[derive(Clone, Default)]
pub struct InMemoryServer {
    hub: Arc<Mutex<Hub>>,
}

impl fmt::Debug for InMemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryServer").finish_non_exhaustive()
    }
}

impl InMemoryServer {
    /// An empty server, reachable at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a key of that name exists, which means that the lock is held.
    pub fn contains(&self, name: &str) -> bool {
        self.with(|hub| hub.contains(name))
    }

    /// Removes a lock's key, as an operator's `DEL` would, and returns whether it was there. No
    /// client is told. The holder notices at its next renewal or `verify`; a holder with a fixed
    /// lease, which is not renewed, only at `verify`.
    pub fn remove(&self, name: &str) -> bool {
        self.with(|hub| hub.remove(name))
    }

    /// Removes all data and tells no client, like `FLUSHALL`. Connections stay.
    pub fn flush(&self) {
        self.with(Hub::flush);
    }

    /// Restarts without persistence: all data is gone, and clients see that the server was
    /// restarted.
    pub fn restart(&self) {
        self.with(Hub::restart);
    }

    /// Cuts every connection. Calls on their way end as unknown. Clients reconnect at once if the
    /// server is reachable.
    pub fn disconnect_all(&self) {
        self.with(|hub| hub.disconnect_all("the in-memory server cut the connection"));
    }

    /// `false` cuts every connection and refuses new ones; `true` accepts clients again. Data
    /// stays, and leases go on.
    pub fn set_reachable(&self, reachable: bool) {
        self.with(|hub| hub.set_reachable(reachable));
    }

    /// `false` executes commands, but loses every reply and message: calls end as unknown after
    /// their timeout. `true` ends that with new connections.
    pub fn set_answering(&self, answering: bool) {
        self.with(|hub| hub.set_answering(answering));
    }

    /// Tasks that the act has given something to do are woken after the lock is free again.
    fn with<R>(&self, act: impl FnOnce(&mut Hub) -> R) -> R {
        let (result, wakers) = {
            let mut hub = self.hub.lock().unwrap_or_else(PoisonError::into_inner);
            let result = act(&mut hub);
            (result, hub.take_wakers())
        };
        wakers.into_iter().for_each(Waker::wake);
        result
    }
}

/// One client's connection to an [`InMemoryServer`].
pub(crate) struct MemoryBackend {
    server: InMemoryServer,
    client: u64,
    /// For calls whose replies are lost.
    timer: Option<Pin<Box<Sleep>>>,
}

impl MemoryBackend {
    pub(crate) fn new(server: &InMemoryServer) -> Self {
        let client = server.with(Hub::connect);
        Self { server: server.clone(), client, timer: None }
    }

    /// Whether the timer has run out; it is armed for `at` first.
    fn poll_timer(&mut self, at: Instant, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx).is_ready()
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        self.server.with(|hub| hub.disconnect(self.client));
    }
}

impl Backend for MemoryBackend {
    fn submit(&mut self, op: OpId, _to: ServerId, call: Call, timeout: Duration) {
        self.server.with(|hub| hub.submit(self.client, op, &call, timeout));
    }

    fn subscribe(&mut self, channel: Arc<str>, sharded: bool, generation: u64) {
        self.server.with(|hub| hub.subscribe(self.client, channel, sharded, generation));
    }

    fn unsubscribe(&mut self, channel: Arc<str>, sharded: bool) {
        self.server.with(|hub| hub.unsubscribe(self.client, &channel, sharded));
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<BackendEvent> {
        loop {
            match self.server.with(|hub| hub.next(self.client, cx.waker())) {
                Next::Event(event) => return Poll::Ready(event),
                Next::At(instant) if self.poll_timer(instant, cx) => self.timer = None,
                Next::At(_) | Next::Nothing => return Poll::Pending,
            }
        }
    }

    fn reconnect(&mut self, _server: ServerId) {
        self.server.with(|hub| hub.reconnect(self.client));
    }

    fn close(&mut self) {
        self.server.with(|hub| hub.close(self.client));
    }
}

#[cfg(test)]
mod tests;
