//! The client: what connects, and makes locks.

mod builder;

pub use builder::LockClientBuilder;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acl::RequiredAcl;
use crate::config::Topology;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::error::Error;
use crate::error::Result;
use crate::keeper::Shared;
use crate::lock::Lock;
use crate::lock::unexpected;
use crate::mutex::Mutex;
use crate::name::LockName;
use crate::preflight::PreflightReport;
use crate::preflight::preflight;
use crate::reentrant_lock::ReentrantLock;
use crate::stats::Stats;

/// A connection to a lock server, or to all primaries of a cluster, and the watchdog of what is locked through it.
///
/// One is enough for a process; clones are the same client. Owners are never shared between two clients. Dropping the
/// last handle (clients, locks, guards and `lock()` futures count) ends it and releases what is still to be released;
/// with [`Keeper::Thread`](crate::Keeper::Thread) it blocks the thread for that, usually for a round trip, at most for 200 ms.
/// [`shutdown`](Self::shutdown) waits without blocking, and says how it went: in async code call it first. A client in a
/// `static` is never dropped, and `std::process::exit` drops none: there call it, or unlock each guard, before the end, or
/// what was dropped last may stay locked until its lease ends.
#[derive(Clone)]
pub struct LockClient {
    shared: Arc<Shared>,
    topology: Topology,
    other_database: bool,
}

impl LockClient {
    /// Connects to a server with default settings: [`builder`](Self::builder), its `url`, and its
    /// [`connect`](LockClientBuilder::connect).
    ///
    /// # Errors
    ///
    /// As [`LockClientBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the client.
    ///
    /// ```no_run
    /// # async fn example() -> redis_reentrant_lock::Result<()> {
    /// let client = redis_reentrant_lock::LockClient::connect("redis://127.0.0.1:6379").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().url(url).connect().await
    }

    /// Returns at once and connects in the background, for services that may start before their Redis. Until then the
    /// server counts as down: `lock()` waits, `try_lock()` answers `Unavailable`.
    ///
    /// # Errors
    ///
    /// As [`LockClientBuilder::connect_lazy`].
    pub fn connect_lazy(url: &str) -> Result<Self> {
        Self::builder().url(url).connect_lazy()
    }

    /// For everything that is not the default.
    pub fn builder() -> LockClientBuilder {
        LockClientBuilder::new()
    }

    /// The reentrant lock of that name. Nothing is sent; make it where you need it.
    ///
    /// The name is the Redis key, as it is: keep it apart from the keys of data (`lock:orders:42` beside `orders:42`). What others
    /// write into that key while the lock is held is deleted with it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]: 1 to 512 bytes of UTF-8 without control characters are allowed; no braces, or a non-empty
    /// `{tag}`, as in Redis Cluster; and not the key of a fence counter, `redisson_lock_fence:{…}`.
    pub fn reentrant_lock(&self, name: impl AsRef<str>) -> Result<ReentrantLock> {
        Ok(ReentrantLock::new(Lock::new(name.as_ref(), &self.shared)?))
    }

    /// The mutex of that name. Nothing is sent; make it where you need it.
    ///
    /// # Errors
    ///
    /// As [`reentrant_lock`](Self::reentrant_lock).
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        Ok(Mutex::new(Lock::new(name.as_ref(), &self.shared)?))
    }

    /// This client's id, a random UUID: the first part of the hold fields it writes.
    pub fn id(&self) -> &str {
        &self.shared.config().client_id
    }

    /// Asks the server for a sign of life; for readiness probes.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if none comes within the command timeout; [`Error::Auth`], [`Error::Denied`], [`Error::Tls`],
    /// [`Error::Unsupported`] and [`Error::Refused`] if the server refuses; [`Error::Closed`] after a shutdown.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) {
    /// let ready = client.ping().await.is_ok();
    /// # }
    /// ```
    pub async fn ping(&self) -> Result<()> {
        match self.shared.ask(|request| Event::Ping { request }).await {
            Answer::Done => Ok(()),
            answer => Err(unexpected(answer)),
        }
    }

    /// What this client has done so far, and what it has right now. No I/O.
    pub fn stats(&self) -> Stats {
        self.shared.counters().snapshot()
    }

    /// Looks whether the server, and what the user may do there, is fit for the lock of that name: version, role,
    /// persistence, replication, `maxmemory-policy`, clock, permissions, every script, both channels, the key. Says what
    /// was found, how bad it is and what to do.
    ///
    /// It does not disturb a lock that is in use: the key under the name is only read, its channel only subscribed. The
    /// scripts are run on another name that begins with this one (`<name>:preflight:<number>`, in the same cluster slot),
    /// with a lease of 5 s, and what they did is taken back, but for the fence counter, which is the lock's own and stays.
    /// Where the user may not use that name, Redis 7 and Valkey are asked for permissions instead; Redis 6.2 cannot tell,
    /// and the report says that the scripts are denied there.
    /// Nothing of it shows in [`stats`](Self::stats) but, while it runs, its subscriptions.
    ///
    /// Takes a few round trips; with a server that does not answer, up to one command timeout for each of several commands.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], and [`Error::Closed`] after a shutdown. Whatever is wrong with the server is a finding.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends it. What it had under its own name is gone after 5 s.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let report = client.preflight("orders:42").await?;
    /// println!("{report}");
    /// assert!(report.is_usable());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn preflight(&self, name: impl AsRef<str>) -> Result<PreflightReport> {
        preflight(&self.shared, &LockName::new(name.as_ref())?, self.topology).await
    }

    /// What the Redis user of this client has to be allowed, for the locks whose names match any of these patterns:
    /// the `ACL SETUSER` line that allows this and no more, for a user `locks`: [`RequiredAcl::user`] names another. The line
    /// takes away what that user was allowed before, passwords included. No I/O.
    ///
    /// # Errors
    ///
    /// As [`RequiredAcl::new`], which needs no client.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// println!("{}", client.required_acl(&["orders:*", "invoices:*"])?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn required_acl(&self, patterns: &[impl AsRef<str>]) -> Result<RequiredAcl> {
        let config = self.shared.config();
        let acl = RequiredAcl::new(patterns)?.profile(config.profile).sharding(config.sharding);
        Ok(acl.topology(self.topology).other_database(self.other_database))
    }

    /// Releases everything this client holds and ends it, within this time. Returns when no task, thread
    /// or connection of it is left, but for a thread that the resolver of host names or a credential provider still blocks;
    /// connections get up to a second more to close.
    ///
    /// End your own work first: this does not wait for it, and what was protected by a guard that still exists is open to
    /// others from here on.
    ///
    /// Guards that still exist are lost ([`ClientShutdown`](crate::LossReason::ClientShutdown)), waiting callers and
    /// later calls on the client and its locks get [`Error::Closed`]. What could not be released is in the report and ends with its lease. A second
    /// call waits for the same end, or returns the same report after it. So does one that comes after the client ended by
    /// itself, because its runtime is gone: the report names what was held then, since nobody has released it.
    ///
    /// # Errors
    ///
    /// None at present.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the shutdown goes on when the future is dropped.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let report = client.shutdown(std::time::Duration::from_secs(5)).await?;
    /// if !report.is_clean() {
    ///     eprintln!("left to their leases: {:?}", report.unreleased);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shutdown(&self, within: Duration) -> Result<ShutdownReport> {
        match self.shared.ask_shutdown(within).await {
            Answer::ShutDown { unreleased } => Ok(ShutdownReport::of(&unreleased)),
            Answer::Failed(Error::Closed { .. }) => Ok(ShutdownReport::of(self.shared.left())),
            answer => Err(unexpected(answer)),
        }
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// What became of the locks that a client held when it was shut down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Names of the locks whose release was not confirmed in time; each ends with its lease.
    pub unreleased: Vec<String>,
}

impl ShutdownReport {
    fn of(unreleased: &[LockName]) -> Self {
        Self { unreleased: unreleased.iter().map(ToString::to_string).collect() }
    }

    /// Whether everything was released.
    pub fn is_clean(&self) -> bool {
        self.unreleased.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "in-memory")]
    use crate::backend::memory::InMemoryServer;
    use crate::clock::Deadline;
    use crate::credentials::CredentialProvider;
    use crate::guard::Guard;
    use crate::lock::LockOptions;
    use crate::owner::Owner;
    use crate::tls::Tls;

    fn send<T: Send>(_: T) {}
    fn shareable<T: Send + Sync + 'static>() {}

    #[test]
    fn bounds() {
        shareable::<LockClient>();
        shareable::<ReentrantLock>();
        shareable::<Mutex>();
        shareable::<Guard>();
        shareable::<Error>();
        shareable::<LockClientBuilder>();
        shareable::<LockOptions>();
        shareable::<Owner>();
        shareable::<Deadline>();
        shareable::<Tls>();
        shareable::<CredentialProvider>();
        shareable::<PreflightReport>();
        #[cfg(feature = "in-memory")]
        shareable::<InMemoryServer>();
    }

    #[expect(dead_code, reason = "only has to compile")]
    fn futures_are_send(client: LockClient, reentrant: ReentrantLock, mutex: Mutex, guard: Guard) {
        send(LockClient::connect("redis://127.0.0.1"));
        send(client.ping());
        send(client.preflight("n"));
        send(client.shutdown(Duration::ZERO));
        send(reentrant.lock());
        send(reentrant.try_lock());
        send(reentrant.try_lock_for(Duration::ZERO));
        send(reentrant.lock_with(LockOptions::new()));
        send(reentrant.holder());
        send(reentrant.force_unlock());
        send(mutex.lock());
        send(mutex.lock_with(LockOptions::new()));
        send(guard.lost());
        send(guard.run(async {}));
        send(guard.verify());
        send(guard.unlock());
    }
}
