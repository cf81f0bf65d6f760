//! What a test can do to one client.

use std::time::Duration;

use crate::backend::memory::InMemoryServer;

/// One client of an [`InMemoryServer`], and what can happen to it and to no other client.
///
/// [`InMemoryServer::client`] gives it. A client stands for one process, so these are the failures
/// of a process and of its network. A call on a client that has ended does nothing.
///
/// | | what happens to the client | what ends it |
/// |---|---|---|
/// | [`kill`](Self::kill) | the process is gone, as after `kill -9` | nothing |
/// | [`set_frozen`](Self::set_frozen) | the process stands still, as after `SIGSTOP` | `set_frozen(false)` |
/// | [`set_partitioned`](Self::set_partitioned) | nothing reaches the server or comes from it | `set_partitioned(false)` |
/// | [`set_reply_delay`](Self::set_reply_delay) | replies take longer | a delay of zero |
/// | [`set_message_delay`](Self::set_message_delay) | wake-ups take longer | a delay of zero |
/// | [`set_reachable`](Self::set_reachable) | the server refuses its connections | `set_reachable(true)` |
/// | [`set_answering`](Self::set_answering) | commands are executed, replies and wake-ups are lost | `set_answering(true)` |
/// | [`disconnect`](Self::disconnect) | its connections are cut once | it reconnects at once |
#[derive(Debug, Clone)]
#[must_use = "it does nothing by itself: call a method that says what happens to the client"]
pub struct InMemoryClient {
    server: InMemoryServer,
    number: u64,
}

impl InMemoryClient {
    pub(super) fn new(server: &InMemoryServer, number: u64) -> Self {
        Self { server: server.clone(), number }
    }

    /// Ends the client at once, like `kill -9` of its process: its connections end, nothing of it
    /// is released, renewed or taken back any more. What it held on the server stays until the
    /// lease ends. There is no way back; to start the process again, connect a new client.
    ///
    /// Your test's process lives on, and in it the handles of the client and your own code that
    /// uses them. They see what they see when the runtime of a client has ended:
    ///
    /// * guards are lost ([`ClientShutdown`](crate::LossReason::ClientShutdown)), from now on, and
    ///   dropping them does nothing;
    /// * calls that wait, and every later call, are [`Error::Closed`](crate::Error::Closed);
    /// * [`LockClient::shutdown`](crate::LockClient::shutdown) reports what was held as not
    ///   released.
    ///
    /// In a process that is really killed, your own code does not see that either. If what it does
    /// next would disturb the test, abort its tasks before you kill the client.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::{InMemoryServer, LockClient, LossReason};
    ///
    /// let server = InMemoryServer::new();
    /// let a = LockClient::builder().in_memory(&server).connect().await?;
    /// let b = LockClient::builder().in_memory(&server).connect().await?;
    ///
    /// let guard = a.mutex("import")?.lock().await?;
    /// server.client(&a).kill();
    /// assert_eq!(guard.loss(), Some(LossReason::ClientShutdown));
    ///
    /// // Nobody has released the lock: it is free when the lease ends.
    /// assert!(b.mutex("import")?.try_lock().await?.is_err());
    /// let taken_over = b.mutex("import")?.lock().await?;
    /// assert!(taken_over.fencing_token() > guard.fencing_token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn kill(&self) {
        let process = self.server.with(|hub| {
            hub.disconnect(self.number);
            hub.process(self.number)
        });
        if let Some(process) = process {
            process.kill();
        }
    }

    /// `true` stops the process, like `SIGSTOP`: nothing of the client runs, so nothing is renewed,
    /// requested, read or timed out, but its connections stay open. `false` lets it go on, like
    /// `SIGCONT`: it reads the clock first, and then what has been asked of it and sent to it
    /// meanwhile.
    ///
    /// Calls on its handles wait. Questions that are only clock reads, such as
    /// [`Guard::is_held`](crate::Guard::is_held), are answered by your test's process, which is not
    /// frozen.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::{InMemoryServer, LockClient, LossReason};
    ///
    /// let server = InMemoryServer::new();
    /// let a = LockClient::builder().in_memory(&server).connect().await?;
    /// let b = LockClient::builder().in_memory(&server).connect().await?;
    ///
    /// let stale = a.mutex("import")?.lock().await?;
    /// server.client(&a).set_frozen(true);
    /// // Nothing is renewed, so somebody else gets the lock.
    /// let guard = b.mutex("import")?.lock().await?;
    ///
    /// // This is what fencing tokens are for: a process that wakes up and goes on writing.
    /// server.client(&a).set_frozen(false);
    /// assert!(stale.fencing_token() < guard.fencing_token());
    /// assert_eq!(stale.lost().await, LossReason::Expired);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_frozen(&self, frozen: bool) {
        let process = self.server.with(|hub| hub.process(self.number));
        if let Some(process) = process {
            process.set_frozen(frozen);
        }
    }

    /// `true` cuts the client off, as a network partition does: what it sends is lost, and so is
    /// what is sent to it. Neither side is told. Calls are not executed and end as unknown after
    /// their timeout; then the client takes its connections for dead and tries to connect, in vain.
    /// The server counts it among the subscribers for as long as the partition lasts.
    ///
    /// `false` heals the partition: the client connects anew. What was lost stays lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::{InMemoryServer, LockClient, LossReason};
    ///
    /// let server = InMemoryServer::new();
    /// let a = LockClient::builder().in_memory(&server).connect().await?;
    /// let b = LockClient::builder().in_memory(&server).connect().await?;
    ///
    /// let guard = a.mutex("import")?.lock().await?;
    /// server.client(&a).set_partitioned(true);
    /// // The holder stops in time: before the server gives the lock to somebody else.
    /// assert_eq!(guard.lost().await, LossReason::Expired);
    /// assert!(b.mutex("import")?.try_lock().await?.is_err());
    /// let taken_over = b.mutex("import")?.lock().await?;
    ///
    /// server.client(&a).set_partitioned(false);
    /// a.mutex("another")?.lock().await?.unlock().await?;
    /// # drop(taken_over);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_partitioned(&self, partitioned: bool) {
        self.server.with(|hub| hub.set_partitioned(self.number, partitioned));
    }

    /// From now on every reply to this client takes so long. The command itself is executed at
    /// once. A reply that takes as long as the command timeout, or longer, comes too late: the call
    /// ends as unknown. Replies stay in order, and those that are on their way keep their delay.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::{InMemoryServer, LockClient};
    /// use std::time::Duration;
    ///
    /// let server = InMemoryServer::new();
    /// let client = LockClient::builder().in_memory(&server).connect().await?;
    /// server.client(&client).set_reply_delay(Duration::from_millis(200));
    ///
    /// let before = tokio::time::Instant::now();
    /// client.ping().await?;
    /// assert!(before.elapsed() >= Duration::from_millis(200));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_reply_delay(&self, delay: Duration) {
        self.server.with(|hub| hub.set_reply_delay(self.number, delay));
    }

    /// From now on everything on the pub/sub connection to this client takes so long: the wake-ups
    /// of its waiters, and the confirmations of its subscriptions. Messages stay in order, and
    /// those that are on their way keep their delay.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::{InMemoryServer, LockClient};
    /// use std::time::Duration;
    ///
    /// let server = InMemoryServer::new();
    /// let a = LockClient::builder().in_memory(&server).connect().await?;
    /// let b = LockClient::builder().in_memory(&server).connect().await?;
    /// server.client(&b).set_message_delay(Duration::from_millis(300));
    ///
    /// let guard = a.mutex("import")?.lock().await?;
    /// let lock = b.mutex("import")?;
    /// let waiter = tokio::spawn(async move { lock.lock().await });
    /// tokio::time::sleep(Duration::from_secs(1)).await;
    /// let released = tokio::time::Instant::now();
    /// guard.unlock().await?;
    /// let taken_over = waiter.await.unwrap()?;
    /// assert!(released.elapsed() >= Duration::from_millis(300));
    /// # drop(taken_over);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_message_delay(&self, delay: Duration) {
        self.server.with(|hub| hub.set_message_delay(self.number, delay));
    }

    /// What [`InMemoryServer::set_reachable`] does, for this client alone.
    pub fn set_reachable(&self, reachable: bool) {
        self.server.with(|hub| hub.set_reachable_to(self.number, reachable));
    }

    /// What [`InMemoryServer::set_answering`] does, for this client alone.
    pub fn set_answering(&self, answering: bool) {
        self.server.with(|hub| hub.set_answering_to(self.number, answering));
    }

    /// What [`InMemoryServer::disconnect_all`] does, for this client alone.
    pub fn disconnect(&self) {
        self.server
            .with(|hub| hub.connect_anew(self.number, "the in-memory server cut the connection"));
    }
}
