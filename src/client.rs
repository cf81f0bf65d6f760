//! The client: connects to servers, and makes locks.

pub(crate) mod acl;
mod builder;
#[cfg(feature = "in-memory")]
mod in_memory;
#[cfg(test)]
mod moves;
pub(crate) mod preflight;
mod shutdown_report;
mod times;

pub use builder::LockClientBuilder;
pub use shutdown_report::LeftLock;
pub use shutdown_report::ShutdownReport;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::kind::Kind;
use crate::base::name::LockName;
use crate::base::name::Prefix;
use crate::base::stats::Link;
use crate::base::stats::Stats;
use crate::client::acl::RequiredAcl;
use crate::client::preflight::PreflightReport;
use crate::client::preflight::preflight;
use crate::driver::Shared;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::unexpected;
use crate::locks::fair;
use crate::locks::fair::FairLock;
use crate::locks::latch::CountDownLatch;
use crate::locks::lock::Lock;
use crate::locks::mutex::Mutex;
use crate::locks::reentrant::ReentrantLock;
use crate::locks::rw_lock::RwLock;
use crate::locks::semaphore::Semaphore;
use crate::locks::single_flight::CallerGroups;
use crate::locks::single_flight::SingleFlight;
use crate::settings::config::Topology;

/// A client of a lock server, or of all primaries of a cluster. It has the connections, and the
/// watchdog of the locks that are taken through it.
///
/// One client is enough for a process; clones are the same client. Two clients never share owners.
///
/// A client belongs to the process that has made it. In a child made by `fork`, every call that
/// needs the server is [`Error::Closed`] at once, and dropping the client does nothing.
///
/// Clients, locks, guards and pending `lock()` futures all keep a client alive. When the last of
/// them is dropped, the client ends, after it has sent the releases that are left. With
/// [`Driver::Thread`](crate::Driver::Thread) this blocks the thread, usually for a round trip and
/// for at most 200 ms.
/// [`shutdown`](Self::shutdown) waits without blocking and returns what became of the locks: in
/// async code, call it first. A client in a `static` is never dropped, and `std::process::exit`
/// drops no client: guards that still exist then stay locked until their leases end. What
/// [`Guard`](crate::Guard) says about the ends of threads is about guards that were dropped.
#[derive(Clone)]
pub struct LockClient {
    shared: Arc<Shared>,
    topology: Topology,
    other_database: bool,
    /// Put before every lock name.
    prefix: Prefix,
    /// Callers of single flights that wait for one of them.
    groups: CallerGroups,
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
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder().url(url).connect().await
    }

    /// Returns at once and connects in the background, for services that may start before their
    /// Redis. Until it is connected, the server counts as down: `lock()` waits, `try_lock()` is
    /// `Unavailable`.
    ///
    /// # Errors
    ///
    /// As [`LockClientBuilder::connect_lazy`].
    pub fn connect_lazy(url: impl AsRef<str>) -> Result<Self> {
        Self::builder().url(url).connect_lazy()
    }

    /// A builder, for settings that are not the defaults.
    pub fn builder() -> LockClientBuilder {
        LockClientBuilder::new()
    }

    /// The reentrant lock of that name. Nothing is sent; call this wherever you need the lock.
    ///
    /// The name, after the client's [`prefix`](LockClientBuilder::prefix) if it has one, is the
    /// Redis key. Keep it apart from the keys of data (`lock:orders:42` beside `orders:42`). Data
    /// that another program writes under that key while the lock is held is kept, but until it is
    /// removed nobody can lock: [`Error::KeyStillInUse`] and [`Error::KeyConflict`] say so.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]. Allowed are 1 to 512 bytes of UTF-8 without control characters, with
    /// no braces or with a non-empty `{tag}` as in Redis Cluster, except names that, with the
    /// prefix, begin like a key that this crate writes beside its locks: `redisson_lock_line`,
    /// `redisson_lock_heard`, `redisson_lock_marks`, `redisson_lock_fence` or `redisson_latch_op`.
    /// [`Error::Closed`] in a forked child.
    pub fn reentrant_lock(&self, name: impl AsRef<str>) -> Result<ReentrantLock> {
        Ok(ReentrantLock::new(self.lock_of(name.as_ref())?))
    }

    /// The mutex of that name. Nothing is sent; call this wherever you need the lock.
    ///
    /// # Errors
    ///
    /// As [`reentrant_lock`](Self::reentrant_lock).
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        Ok(Mutex::new(self.lock_of(name.as_ref())?))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    pub(crate) fn topology(&self) -> Topology {
        self.topology
    }

    /// The lock of that name, after the prefix.
    pub(crate) fn lock_of(&self, name: &str) -> Result<Lock> {
        Lock::new(&self.prefix.before(name), &self.shared)
    }

    /// The fair lock of that name: granted in the order of arrival, over all clients. Nothing is
    /// sent; call this wherever you need the lock.
    ///
    /// # Errors
    ///
    /// As [`reentrant_lock`](Self::reentrant_lock).
    pub fn fair_lock(&self, name: impl AsRef<str>) -> Result<FairLock> {
        Ok(FairLock::new(self.fair_lock_of(name.as_ref())?))
    }

    pub(crate) fn fair_lock_of(&self, name: &str) -> Result<Lock> {
        fair::lock_of(LockName::new(&self.prefix.before(name))?, &self.shared)
    }

    /// The single flight of that name: of many callers that want a value, in this process and in
    /// others, one computes it. Nothing is sent; call this wherever you need it.
    ///
    /// # Errors
    ///
    /// As [`reentrant_lock`](Self::reentrant_lock).
    pub fn single_flight(&self, name: impl AsRef<str>) -> Result<SingleFlight> {
        let lock = Lock::new(&self.prefix.before(name.as_ref()), &self.shared)?;
        Ok(SingleFlight::new(lock, self.groups.clone()))
    }

    /// The read-write lock of that name. Nothing is sent; call this wherever you need it.
    ///
    /// # Errors
    ///
    /// As [`reentrant_lock`](Self::reentrant_lock).
    pub fn rw_lock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        RwLock::new(self.rw_name(name.as_ref())?, &self.shared)
    }

    fn rw_name(&self, name: &str) -> Result<LockName> {
        Ok(LockName::new(&self.prefix.before(name))?.of_kind(Kind::ReadWrite))
    }

    /// The count-down latch of that name. Nothing is sent; call this wherever you need it.
    ///
    /// # Errors
    ///
    /// As [`reentrant_lock`](Self::reentrant_lock). On a cluster a name with braces is
    /// [`Error::InvalidName`], too: the channel of a latch would be in another slot.
    pub fn count_down_latch(&self, name: impl AsRef<str>) -> Result<CountDownLatch> {
        CountDownLatch::new(self.latch_name(name.as_ref())?, &self.shared)
    }

    /// The semaphore of that name, with so many permits, 1 to 1,000,000, unless another number
    /// [was set](Semaphore::set_permits) for all. Nothing is sent; call this wherever you need it.
    ///
    /// # Errors
    ///
    /// As [`reentrant_lock`](Self::reentrant_lock). [`Error::InvalidOption`] if the number is not
    /// allowed.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Semaphore> {
        Semaphore::new(self.semaphore_name(name.as_ref())?, permits, &self.shared)
    }

    fn semaphore_name(&self, name: &str) -> Result<LockName> {
        let kind = self.shared.config().profile.semaphore();
        Ok(LockName::new(&self.prefix.before(name))?.of_kind(kind))
    }

    fn latch_name(&self, name: &str) -> Result<LockName> {
        let name = LockName::new(&self.prefix.before(name))?.of_kind(Kind::CountDownLatch);
        if self.topology == Topology::Cluster && name.as_str().contains('{') {
            let reason = "on a cluster the name of a latch has no braces".to_owned();
            return Err(Error::InvalidName { name: name.to_string(), reason });
        }
        Ok(name)
    }

    /// This client's id, a random UUID: the first part of the hold fields it writes.
    pub fn id(&self) -> &str {
        &self.shared.config().client_id
    }

    /// Asks the server whether it answers; for readiness probes.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no answer comes within the command timeout, and as soon as the
    /// connection is known to be down; [`Error::Auth`], [`Error::Denied`], [`Error::Tls`],
    /// [`Error::Unsupported`] and [`Error::Refused`] if the server refuses; [`Error::Closed`] after
    /// a shutdown or in a forked child.
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

    /// Whether there is a usable connection to each server that has locks. No I/O: it is what this
    /// client knows. A connection that has gone silent counts until the client gives it up. To ask
    /// the server, use [`ping`](Self::ping). In a forked child: false.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) {
    /// for link in client.links().iter().filter(|link| !link.is_connected) {
    ///     eprintln!("{} is away for {:?}: {:?}", link.address, link.lasts, link.trouble);
    /// }
    /// assert!(client.is_connected());
    /// # }
    /// ```
    pub fn is_connected(&self) -> bool {
        let links = self.links();
        !links.is_empty() && links.iter().all(|link| link.is_connected)
    }

    /// How the connection to each server that has locks stands. No I/O. There are no entries before
    /// the first event of a connection, after the end of the client, and in a forked child.
    pub fn links(&self) -> Vec<Link> {
        if self.shared.is_in_child() {
            // The driver may have held the mutex of the links at the fork.
            return Vec::new();
        }
        self.shared.counters().links(self.shared.now())
    }

    /// Counters and gauges of this client. No I/O. In a forked child: as they were at the fork.
    pub fn stats(&self) -> Stats {
        self.shared.counters().snapshot()
    }

    /// Checks whether the server and the user's permissions are fit for the lock of that name:
    /// version, role, persistence, replication, `maxmemory-policy`, clock, permissions, every
    /// script, both channels, the key. The report says what was found, how severe it is and what to
    /// do.
    ///
    /// It does not disturb a lock that is in use: the key of the name is only read, and its channel
    /// only subscribed. The scripts run on another name that begins with this one
    /// (`<name>:preflight:<number>`, in the same cluster slot), with a lease of 5 s, and their
    /// effects are undone, except for the fence counter, which belongs to the lock and stays. If
    /// the user may not use that other name, Redis 7 and Valkey are asked for the permissions
    /// instead. Redis 6.2 cannot report them, and the report then says that the scripts are denied.
    /// Nothing of it is counted in [`stats`](Self::stats), except its subscriptions while it runs.
    ///
    /// Take a finding about a channel or about the [line](crate::docs::waiting) as an error also if
    /// locks seem to work: a client that can never subscribe, or may not use the line, has no place
    /// in it, and can starve behind those who have one.
    ///
    /// It takes a few round trips; with a server that does not answer, up to one command timeout
    /// for each of several commands.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], and [`Error::Closed`] after a shutdown or in a forked child.
    /// Everything that is wrong with the server is a finding in the report.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the check. The keys under its own name are gone after 5 s.
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
        let name = LockName::new(&self.prefix.before(name.as_ref()))?;
        preflight(&self.shared, &name, self.topology).await
    }

    /// Checks the same for the [count-down latch](crate::CountDownLatch) of that name, with the
    /// scripts, keys and channel of a latch.
    ///
    /// It does not disturb a latch that is in use: the key of the name is only read, and its channel
    /// only subscribed. The scripts run on another name that begins with this one, whose latch ends
    /// by itself after 5 s; what its operations have come to is kept on the server for 15 s.
    ///
    /// # Errors
    ///
    /// As [`count_down_latch`](Self::count_down_latch), and [`Error::Closed`] after a shutdown or in
    /// a forked child. Everything that is wrong with the server is a finding in the report.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the check. The keys under its own name are gone after 15 s.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let report = client.preflight_latch("deploy-42:ready").await?;
    /// assert!(report.is_usable(), "{report}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn preflight_latch(&self, name: impl AsRef<str>) -> Result<PreflightReport> {
        let name = self.latch_name(name.as_ref())?;
        preflight(&self.shared, &name, self.topology).await
    }

    /// Checks the same for the [semaphore](crate::Semaphore) of that name, with the scripts, keys and
    /// channel of a semaphore.
    ///
    /// It does not disturb a semaphore that is in use: the key of the name is only read, and its
    /// channel only subscribed. The scripts run on another name that begins with this one, and their
    /// effects are undone, also the number that is set there in the profile
    /// [`Redisson`](crate::WireProfile::Redisson).
    ///
    /// # Errors
    ///
    /// As [`semaphore`](Self::semaphore), and [`Error::Closed`] after a shutdown or in a forked child.
    /// Everything that is wrong with the server is a finding in the report.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the check. The keys under its own name are gone after 20 s, except in
    /// the profile `Redisson`, where a string and a sorted set of that name can be left.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let report = client.preflight_semaphore("exports").await?;
    /// assert!(report.is_usable(), "{report}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn preflight_semaphore(&self, name: impl AsRef<str>) -> Result<PreflightReport> {
        let name = self.semaphore_name(name.as_ref())?;
        preflight(&self.shared, &name, self.topology).await
    }

    /// Checks the same for the [fair lock](crate::FairLock) of that name, with its scripts and keys.
    ///
    /// It does not disturb a lock that is in use: the key of the name is only read, and its channel
    /// only subscribed. The scripts run on another name that begins with this one, and their effects
    /// are undone.
    ///
    /// # Errors
    ///
    /// As [`fair_lock`](Self::fair_lock), and [`Error::Closed`] after a shutdown or in a forked child.
    /// Everything that is wrong with the server is a finding in the report.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the check. The keys under its own name are gone after 12 s; in the
    /// profile [`Redisson`](crate::WireProfile::Redisson) a queue of one place may stay.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let report = client.preflight_fair_lock("orders:42").await?;
    /// assert!(report.is_usable(), "{report}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn preflight_fair_lock(&self, name: impl AsRef<str>) -> Result<PreflightReport> {
        let lock = self.fair_lock_of(name.as_ref())?;
        preflight(&self.shared, lock.lock_name(), self.topology).await
    }

    /// Checks the same for the [read-write lock](crate::RwLock) of that name, with the scripts, keys
    /// and channel of a read-write lock. It does not disturb a lock that is in use.
    ///
    /// # Errors
    ///
    /// As [`preflight`](Self::preflight).
    ///
    /// # Cancel safety
    ///
    /// As [`preflight`](Self::preflight).
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let report = client.preflight_rw_lock("catalog").await?;
    /// assert!(report.is_usable(), "{report}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn preflight_rw_lock(&self, name: impl AsRef<str>) -> Result<PreflightReport> {
        preflight(&self.shared, &self.rw_name(name.as_ref())?, self.topology).await
    }

    /// The permissions that the Redis user of this client needs for locks whose names match any of
    /// these patterns: the `ACL SETUSER` line that allows exactly this, for a user `locks`
    /// ([`RequiredAcl::user`] names another). The line removes what that user was allowed before,
    /// passwords included. No I/O.
    ///
    /// # Errors
    ///
    /// As [`RequiredAcl::new`], which needs no client.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// println!("{}", client.required_acl(["orders:*", "invoices:*"])?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn required_acl(
        &self,
        patterns: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<RequiredAcl> {
        let config = self.shared.config();
        let patterns =
            patterns.into_iter().map(|pattern| self.prefix.before_pattern(pattern.as_ref()));
        let acl = RequiredAcl::new(patterns)?.profile(config.profile).sharding(config.sharding);
        Ok(acl.topology(self.topology).other_database(self.other_database))
    }

    /// Releases everything that this client holds, and ends the client, within this time. It
    /// returns when no task, thread or connection of the client is left, except for a thread that
    /// is still blocked by the resolver of host names or by a credential provider. Connections get
    /// up to a second more to close.
    ///
    /// End your own work first. This does not wait for it, and from here on other clients can take
    /// the locks whose guards still exist.
    ///
    /// Guards that still exist are lost ([`ClientShutdown`](crate::LossReason::ClientShutdown)).
    /// Waiting callers, and every later call that needs the server, get [`Error::Closed`].
    ///
    /// The report says which locks were released, and which are left to their leases, because the
    /// server did not answer in time or refused the release. With a time of zero, releases are
    /// sent, but their answers are not waited for. A second call waits for the same end, which the
    /// time of the first call sets, or returns the same report afterwards. If the client has ended
    /// by itself, because its runtime has ended, all locks that it held are left to their leases.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] in a forked child, where nothing is done: the parent's client goes on.
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the shutdown goes on even if the future is dropped.
    ///
    /// ```no_run
    /// # async fn example(client: redis_reentrant_lock::LockClient) -> redis_reentrant_lock::Result<()> {
    /// let report = client.shutdown(std::time::Duration::from_secs(5)).await?;
    /// println!("{report}"); // 12 locks released, 1 left to its lease: orders:42 (for at most 24.8s)
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shutdown(&self, within: Duration) -> Result<ShutdownReport> {
        self.shared.check_process()?;
        match self.shared.ask_shutdown(within).await {
            Answer::ShutDown(fates) => Ok(ShutdownReport::of(&fates, self.shared.clock())),
            Answer::Failed(Error::Closed { .. }) => {
                Ok(ShutdownReport::of(&self.shared.fates(), self.shared.clock()))
            }
            answer => Err(unexpected(answer)),
        }
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient").field("id", &self.id()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "in-memory")]
    use crate::backend::memory::InMemoryServer;
    use crate::base::clock::Deadline;
    use crate::base::owner::Owner;
    use crate::locks::guard::Guard;
    use crate::locks::lock::LockOptions;
    use crate::locks::loss_signal::LossSignal;
    use crate::locks::semaphore::SemaphorePermit;
    use crate::settings::address_map::MappedAddress;
    use crate::settings::credentials::CredentialProvider;
    use crate::settings::tls::Tls;

    fn send<T: Send>(_: T) {}
    fn shareable<T: Send + Sync + 'static>() {}

    #[test]
    fn bounds() {
        shareable::<LockClient>();
        shareable::<ReentrantLock>();
        shareable::<Mutex>();
        shareable::<SingleFlight>();
        shareable::<CountDownLatch>();
        shareable::<Semaphore>();
        shareable::<SemaphorePermit>();
        shareable::<MappedAddress>();
        shareable::<Guard>();
        shareable::<LossSignal>();
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

    /// The compiler warns callers that ignore an answer: each line expects that warning.
    #[expect(dead_code, reason = "only has to compile")]
    fn answers_that_are_not_used_are_warned_of(guard: &Guard, signal: &LossSignal) {
        #[expect(unused_must_use)]
        guard.is_held();
        #[expect(unused_must_use)]
        guard.is_suspect();
        #[expect(unused_must_use)]
        guard.valid_until();
        #[expect(unused_must_use)]
        guard.loss();
        #[expect(unused_must_use)]
        guard.loss_signal();
        #[expect(unused_must_use)]
        signal.is_lost();
        #[expect(unused_must_use)]
        signal.loss();
        #[expect(unused_must_use)]
        Owner::new();
    }

    /// Texts are accepted in whatever type a user has them.
    #[expect(dead_code, reason = "only has to compile")]
    fn texts_are_taken_as_they_are(client: &LockClient, text: String) -> Result<()> {
        let (owned, shared, boxed) =
            (text.clone(), Arc::<str>::from(&*text), text.clone().into_boxed_str());
        let _ = LockClient::builder().url(&text).url(&*text).url(owned.clone()).url(shared.clone());
        let _ =
            LockClient::builder().prefix(&text).prefix(&*text).prefix(boxed.clone()).prefix('p');
        let _ = [
            client.mutex(&text)?,
            client.mutex(&*text)?,
            client.mutex(owned)?,
            client.mutex(shared)?,
        ];
        let _ = [client.reentrant_lock(&text)?, client.reentrant_lock(boxed)?];
        drop((client.preflight(&text), client.preflight("n"), client.preflight(text.clone())));
        let _ = client.required_acl(["a"])?.user(&text)?.user(text.clone())?;
        let list = vec![text.clone()];
        let _ = (client.required_acl(&list)?, client.required_acl(list.clone())?);
        let _ = (RequiredAcl::new([&text])?, RequiredAcl::new(list)?, RequiredAcl::new(Some("a"))?);
        let _ = crate::Credentials::new(&text, text.clone());
        let _ = Tls::new()
            .ca_pem(&*text)
            .ca_pem(text.clone())
            .client_cert_pem(text.as_bytes(), text.clone());
        #[cfg(feature = "in-memory")]
        let _ = InMemoryServer::new().contains(&text) || InMemoryServer::new().remove(&*text);
        Ok(())
    }

    #[expect(dead_code, reason = "only has to compile")]
    fn futures_are_send(client: LockClient, reentrant: ReentrantLock, mutex: Mutex, guard: Guard) {
        let flight = client.single_flight("n").unwrap();
        let look = async || Ok::<_, Error>(crate::Lookup::<u32>::Missing);
        send(flight.run(look, async |guard| guard.verify().await.map(|()| 7)));
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
        send(reentrant.with(async |guard| guard.verify().await));
        send(mutex.with_options(LockOptions::new(), async |guard| guard.verify().await));
        send(guard.lost());
        send(guard.run(async {}));
        send(guard.verify());
        send(guard.unlock());
    }
}
