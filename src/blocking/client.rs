//! The client for threads.

use std::time::Duration;

use crate::base::error::Result;
use crate::base::stats::Link;
use crate::base::stats::Stats;
use crate::blocking::fair::FairLock;
use crate::blocking::latch::CountDownLatch;
use crate::blocking::mutex::Mutex;
use crate::blocking::reentrant::ReentrantLock;
use crate::blocking::rw_lock::RwLock;
use crate::blocking::semaphore::Semaphore;
use crate::blocking::single_flight::SingleFlight;
use crate::blocking::wait::wait;
use crate::client::LockClient as AsyncLockClient;
use crate::client::LockClientBuilder;
use crate::client::ShutdownReport;
use crate::client::acl::RequiredAcl;
use crate::client::preflight::PreflightReport;

/// A [`LockClient`](crate::LockClient) whose methods block the calling thread.
///
/// Connections, renewals and releases are the work of the client's own thread
/// ([`Driver::Thread`](crate::Driver::Thread)), so a program needs no runtime. One client is enough
/// for a process: clones are the same client, and may be used by any number of threads at once.
///
/// An async client and a blocking one are made from each other with `From`, for programs that have
/// both kinds of code. They share connections and owners: a thread in the root future of `block_on`
/// is the same owner to both. A client with [`Driver::Current`](crate::Driver::Current) needs its
/// runtime driven by other threads meanwhile.
#[derive(Clone, Debug)]
pub struct LockClient(AsyncLockClient);

impl LockClient {
    /// Connects to a server with default settings. For other settings, use
    /// [`LockClient::builder`](crate::LockClient::builder) with
    /// [`blocking_connect`](LockClientBuilder::blocking_connect).
    ///
    /// # Errors
    ///
    /// As [`LockClientBuilder::blocking_connect`].
    ///
    /// ```no_run
    /// # fn main() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::blocking::LockClient;
    ///
    /// let client = LockClient::connect("redis://127.0.0.1:6379")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(url: impl AsRef<str>) -> Result<Self> {
        AsyncLockClient::builder().url(url).blocking_connect()
    }

    /// Returns at once and connects in the background.
    ///
    /// # Errors
    ///
    /// As [`LockClientBuilder::connect_lazy`].
    pub fn connect_lazy(url: impl AsRef<str>) -> Result<Self> {
        AsyncLockClient::connect_lazy(url).map(Self)
    }

    /// The reentrant lock of that name. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`LockClient::reentrant_lock`](crate::LockClient::reentrant_lock).
    pub fn reentrant_lock(&self, name: impl AsRef<str>) -> Result<ReentrantLock> {
        Ok(ReentrantLock::new(self.0.lock_of(name.as_ref())?))
    }

    /// The mutex of that name. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`LockClient::mutex`](crate::LockClient::mutex).
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        Ok(Mutex::new(self.0.lock_of(name.as_ref())?))
    }

    /// The fair lock of that name. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`LockClient::fair_lock`](crate::LockClient::fair_lock).
    pub fn fair_lock(&self, name: impl AsRef<str>) -> Result<FairLock> {
        Ok(FairLock::new(self.0.fair_lock_of(name.as_ref())?))
    }

    /// The read-write lock of that name. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`LockClient::rw_lock`](crate::LockClient::rw_lock).
    pub fn rw_lock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        self.0.rw_lock(name).map(RwLock::new)
    }

    /// The single flight of that name. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`LockClient::single_flight`](crate::LockClient::single_flight).
    pub fn single_flight(&self, name: impl AsRef<str>) -> Result<SingleFlight> {
        self.0.single_flight(name).map(SingleFlight::new)
    }

    /// The semaphore of that name, with so many permits. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`LockClient::semaphore`](crate::LockClient::semaphore).
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Semaphore> {
        self.0.semaphore(name, permits).map(Semaphore::new)
    }

    /// The count-down latch of that name. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`LockClient::count_down_latch`](crate::LockClient::count_down_latch).
    pub fn count_down_latch(&self, name: impl AsRef<str>) -> Result<CountDownLatch> {
        self.0.count_down_latch(name).map(CountDownLatch::new)
    }

    /// This client's id, a random UUID: the first part of the hold fields it writes.
    pub fn id(&self) -> &str {
        self.0.id()
    }

    /// Asks the server whether it answers.
    ///
    /// # Errors
    ///
    /// As [`LockClient::ping`](crate::LockClient::ping), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn ping(&self) -> Result<()> {
        wait("LockClient::ping", self.0.ping())?
    }

    /// Whether there is a usable connection to each server that has locks. No I/O.
    pub fn is_connected(&self) -> bool {
        self.0.is_connected()
    }

    /// How the connection to each server that has locks stands. No I/O.
    pub fn links(&self) -> Vec<Link> {
        self.0.links()
    }

    /// Counters and gauges of this client. No I/O.
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Checks whether the server and the user's permissions are fit for the lock of that name: as
    /// [`LockClient::preflight`](crate::LockClient::preflight).
    ///
    /// # Errors
    ///
    /// As [`LockClient::preflight`](crate::LockClient::preflight), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn preflight(&self, name: impl AsRef<str>) -> Result<PreflightReport> {
        wait("LockClient::preflight", self.0.preflight(name))?
    }

    /// Checks the same for the semaphore of that name: as
    /// [`LockClient::preflight_fair_lock`](crate::LockClient::preflight_fair_lock).
    ///
    /// # Errors
    ///
    /// As [`LockClient::preflight_fair_lock`](crate::LockClient::preflight_fair_lock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn preflight_fair_lock(&self, name: impl AsRef<str>) -> Result<PreflightReport> {
        wait("LockClient::preflight_fair_lock", self.0.preflight_fair_lock(name))?
    }

    /// Checks the same for the semaphore of that name: as
    /// [`LockClient::preflight_semaphore`](crate::LockClient::preflight_semaphore).
    ///
    /// # Errors
    ///
    /// As [`LockClient::preflight_semaphore`](crate::LockClient::preflight_semaphore), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn preflight_semaphore(&self, name: impl AsRef<str>) -> Result<PreflightReport> {
        wait("LockClient::preflight_semaphore", self.0.preflight_semaphore(name))?
    }

    /// Checks the same for the count-down latch of that name: as
    /// [`LockClient::preflight_latch`](crate::LockClient::preflight_latch).
    ///
    /// # Errors
    ///
    /// As [`LockClient::preflight_latch`](crate::LockClient::preflight_latch), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn preflight_latch(&self, name: impl AsRef<str>) -> Result<PreflightReport> {
        wait("LockClient::preflight_latch", self.0.preflight_latch(name))?
    }

    /// Checks the same for the read-write lock of that name: as
    /// [`LockClient::preflight_rw_lock`](crate::LockClient::preflight_rw_lock).
    ///
    /// # Errors
    ///
    /// As [`LockClient::preflight_rw_lock`](crate::LockClient::preflight_rw_lock), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn preflight_rw_lock(&self, name: impl AsRef<str>) -> Result<PreflightReport> {
        wait("LockClient::preflight_rw_lock", self.0.preflight_rw_lock(name))?
    }

    /// The permissions that the Redis user of this client needs: as
    /// [`LockClient::required_acl`](crate::LockClient::required_acl). No I/O.
    ///
    /// # Errors
    ///
    /// As [`RequiredAcl::new`].
    pub fn required_acl(
        &self,
        patterns: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<RequiredAcl> {
        self.0.required_acl(patterns)
    }

    /// Releases everything that this client holds, and ends the client, within this time: as
    /// [`LockClient::shutdown`](crate::LockClient::shutdown). Threads that wait for a lock get
    /// [`Error::Closed`](crate::Error::Closed).
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) in a forked child;
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask), and then nothing is shut down.
    ///
    /// ```no_run
    /// # fn example(client: redis_reentrant_lock::blocking::LockClient) -> redis_reentrant_lock::Result<()> {
    /// println!("{}", client.shutdown(std::time::Duration::from_secs(5))?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shutdown(&self, within: Duration) -> Result<ShutdownReport> {
        wait("LockClient::shutdown", self.0.shutdown(within))?
    }
}

/// The blocking face of a client.
impl From<AsyncLockClient> for LockClient {
    fn from(client: AsyncLockClient) -> Self {
        Self(client)
    }
}

/// The async face of a client.
impl From<LockClient> for AsyncLockClient {
    fn from(client: LockClient) -> Self {
        client.0
    }
}

impl LockClientBuilder {
    /// Connects like [`connect`](Self::connect), blocks this thread until there is a usable
    /// connection, and returns the client of the [blocking API](crate::blocking).
    ///
    /// The driver needs a thread of its own, which is the default; a
    /// [`Driver::Current`](crate::Driver::Current) is possible on a thread of `spawn_blocking`
    /// only, where the runtime is driven by others. For a client that connects in the background,
    /// convert that of [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    ///
    /// ```no_run
    /// # fn main() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::LockClient;
    /// use std::time::Duration;
    ///
    /// let lease = Duration::from_secs(10);
    /// let client = LockClient::builder().url("redis://127.0.0.1").lease(lease).blocking_connect()?;
    /// client.mutex("orders:42")?.lock()?.unlock()
    /// # }
    /// ```
    pub fn blocking_connect(self) -> Result<LockClient> {
        wait("LockClientBuilder::connect", self.connect())?.map(LockClient)
    }
}
