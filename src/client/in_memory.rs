//! Finds the handle for tests of a client of the in-memory server.

use crate::backend::memory::InMemoryClient;
use crate::backend::memory::InMemoryServer;
use crate::client::LockClient;

impl InMemoryServer {
    /// What can happen to one client alone: [`InMemoryClient`] has the list.
    ///
    /// # Panics
    ///
    /// If it is not a client of this server: a test that does something to the wrong server would
    /// find nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::{InMemoryServer, LockClient};
    ///
    /// let server = InMemoryServer::new();
    /// let a = LockClient::builder().in_memory(&server).connect().await?;
    /// let b = LockClient::builder().in_memory(&server).connect().await?;
    /// server.client(&a).set_reachable(false);
    /// assert!(a.ping().await.is_err());
    /// assert!(b.ping().await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn client(&self, client: &LockClient) -> InMemoryClient {
        match self.client_with_id(client.id()) {
            Some(client) => client,
            None => panic!("{client:?} is not a client of this in-memory server"),
        }
    }
}
