//! A server inside the process, which runs the same Lua scripts in an embedded interpreter, and the
//! backend that connects to it.
//!
//! | file       | what it has                                                                |
//! |------------|----------------------------------------------------------------------------|
//! | `client`   | what a test can do to one client                                           |
//! | `backend`  | the driver's connection to the server                                      |
//! | `process`  | the driver of a client, which can be frozen and killed                     |
//! | `hub`      | the server: its clock, and its clients                                     |
//! | `link`     | the connections of one client, and the events on their way to it           |
//! | `keyspace` | the interpreter                                                            |
//! | `store`    | the keys, and Redis's commands on them, one file for each type of value    |

mod backend;
mod client;
mod hub;
pub(crate) mod keyspace;
mod link;
mod process;
pub(crate) mod store;

pub(crate) use backend::MemoryBackend;
pub use client::InMemoryClient;
pub(crate) use process::ClientProcess;

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::task::Waker;

use crate::backend::memory::hub::Hub;

/// A lock server inside this process, for tests without Redis.
///
/// It runs the same Lua scripts as Redis does, in an embedded interpreter. Clones are handles of
/// one server: give a clone to every client that is to contend, and give every test a server of its
/// own. Time comes from [`tokio::time`], so under a paused clock leases run out when the clock is
/// advanced, and no test has to wait.
///
/// It also simulates what is hard to do with a real server: lost data, cut connections, lost
/// replies, and, for [one client](Self::client) alone, a killed or frozen process and a network
/// that is slow or cut off. The page on [testing](crate::docs::testing) shows how.
///
/// # Time
///
/// A client that is connected inside a Tokio runtime runs there, and follows the clock of that
/// runtime. With a paused clock, let all clients of a server live on one runtime, and ask guards
/// and deadlines about time there: other threads do not see that a clock is paused. The server goes
/// by the clock of the client that has been connected for longest.
///
/// A client that is connected outside Tokio, on whatever executor, runs on a thread of its own.
/// Time cannot be paused there.
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

    /// What tells it from others in this process.
    pub(crate) fn number(&self) -> usize {
        Arc::as_ptr(&self.hub).addr()
    }

    /// Whether a key of that name exists: the lock is held, or its name is kept by
    /// [`at_least`](crate::LockOptions::at_least). [`holder`](crate::Mutex::holder) tells these
    /// apart.
    pub fn contains(&self, name: impl AsRef<str>) -> bool {
        self.with(|hub| hub.contains(name.as_ref()))
    }

    /// Removes a lock's key, as an operator's `DEL` would, and returns whether it was there. No
    /// client is told. The holder notices at its next renewal or `verify`; a holder with a fixed
    /// lease, which is not renewed, only at `verify`.
    pub fn remove(&self, name: impl AsRef<str>) -> bool {
        self.with(|hub| hub.remove(name.as_ref()))
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

    /// Registers a client that is about to connect, by the id of its `LockClient`. Returns its
    /// number on this server and its process.
    pub(crate) fn register(&self, id: &str) -> (u64, Arc<ClientProcess>) {
        self.with(|hub| hub.register(id))
    }

    /// The handle for tests of the client with this id; `None` if it is not a client of this
    /// server.
    pub(crate) fn client_with_id(&self, id: &str) -> Option<InMemoryClient> {
        let number = self.with(|hub| hub.number_of(id))?;
        Some(InMemoryClient::new(self, number))
    }

    /// Runs `act` under the server's mutex, and wakes the tasks that it gave work to after the
    /// mutex is unlocked.
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

#[cfg(test)]
mod tests;
