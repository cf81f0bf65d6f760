//! The settings of a client, which are checked once.

use std::env::VarError;
use std::fmt;
use std::time::Duration;

#[cfg(any(feature = "in-memory", feature = "fred"))]
use crate::backend::Backend;
#[cfg(feature = "fred")]
use crate::backend::fred::FredBackend;
#[cfg(feature = "fred")]
use crate::backend::fred::FredClient;
#[cfg(feature = "fred")]
use crate::backend::fred::FredConfig;
#[cfg(feature = "fred")]
use crate::backend::fred::Settings;
#[cfg(feature = "fred")]
use crate::backend::fred::redis_config;
#[cfg(feature = "in-memory")]
use crate::backend::memory::InMemoryServer;
#[cfg(feature = "in-memory")]
use crate::backend::memory::MemoryBackend;
use crate::backend::redis;
use crate::backend::redis::Access;
use crate::backend::redis::RedisConfig;
#[cfg(test)]
use crate::backend::redis::names::Resolver;
#[cfg(test)]
use crate::backend::redis::names::tests::FakeResolver;
use crate::base::clock::Clock;
use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::lease::LeaseMs;
use crate::base::log::TARGET;
use crate::base::log::tell;
use crate::base::name::Prefix;
use crate::base::name::WireProfile;
use crate::driver;
use crate::driver::Setup;
use crate::engine::event::Answer;
use crate::engine::event::unexpected;
use crate::kinds::reentrant::several;
use crate::locks::single_flight::CallerGroups;
use crate::settings::address_map::AddressMap;
use crate::settings::address_map::MappedAddress;
use crate::settings::config::Config;
use crate::settings::config::Driver;
use crate::settings::config::Sharding;
use crate::settings::config::Topology;
use crate::settings::credentials::CredentialProvider;
use crate::settings::tls::Tls;
#[cfg(feature = "redis")]
use ::redis::Client as RedisClient;

use super::LockClient;
use super::times::Times;

/// The environment variable that `from_env` reads.
const URL_VARIABLE: &str = "REDIS_URL";

/// Builds a [`LockClient`]. Each method states its default.
///
/// ```no_run
/// use redis_reentrant_lock::{Driver, LockClient};
/// use std::time::Duration;
///
/// # async fn example() -> redis_reentrant_lock::Result<()> {
/// let client = LockClient::builder()
///     .url("redis://locks:secret@10.0.0.7:6379/2")
///     .lease(Duration::from_secs(10))
///     .driver(Driver::Thread)
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing before `connect` or `connect_lazy`"]
#[derive(Clone)]
pub struct LockClientBuilder {
    server: Option<ServerSource>,
    access: Access,
    driver: Driver,
    times: Times,
    redisson_watchdog: Duration,
    profile: WireProfile,
    sharding: Sharding,
    deployment: Option<String>,
    hand_off: bool,
    prefix: String,
}

/// The server to connect to.
#[derive(Clone)]
enum ServerSource {
    Url(String),
    #[cfg(feature = "in-memory")]
    Memory(InMemoryServer),
    #[cfg(feature = "fred")]
    Fred(FredClient),
    #[cfg(feature = "fred")]
    FredConfig(Box<FredConfig>),
    #[cfg(feature = "redis")]
    Redis(Box<RedisClient>),
}

impl LockClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            server: None,
            access: Access::default(),
            driver: Driver::default(),
            times: Times::new(),
            redisson_watchdog: Config::DEFAULT_REDISSON_WATCHDOG,
            profile: WireProfile::default(),
            sharding: Sharding::default(),
            deployment: None,
            hand_off: true,
            prefix: String::new(),
        }
    }

    /// A builder with the address in the environment variable `REDIS_URL`, as [`url`](Self::url)
    /// takes it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`] if the variable is not set, or is not UTF-8.
    ///
    /// ```no_run
    /// use redis_reentrant_lock::LockClientBuilder;
    ///
    /// # async fn example() -> redis_reentrant_lock::Result<()> {
    /// let client = LockClientBuilder::from_env()?.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env() -> Result<Self> {
        match std::env::var(URL_VARIABLE) {
            Ok(url) => Ok(Self::new().url(url)),
            Err(VarError::NotPresent) => Err(Error::InvalidUrl {
                reason: format!("{URL_VARIABLE} is not set in the environment"),
            }),
            Err(VarError::NotUnicode(_)) => Err(Error::InvalidUrl {
                reason: format!("{URL_VARIABLE} in the environment is not UTF-8"),
            }),
        }
    }

    /// The server or servers. `connect` and `connect_lazy` check it.
    ///
    /// | address | |
    /// |---|---|
    /// | `redis://[[user]:password@]host[:port][/database]` | one server |
    /// | `redis+unix://[[user]:password@]/path[?db=database]` | one server on this machine, on Unix |
    /// | `redis-sentinel://[[user]:password@]host[:port],host…/primary_name[/database]` | the primary that the sentinels name; user and password are the primary's |
    /// | `redis-cluster://[[user]:password@]host[:port],host…` | a cluster, of which some nodes are named |
    ///
    /// * **TLS**: `rediss`, `rediss-sentinel` and `rediss-cluster`; see [`Tls`].
    /// * **Other spellings**: `valkey` for `redis`, `valkeys` for `rediss`, `unix` for
    ///   `redis+unix`.
    /// * **Ports** are 6379 by default, and 26379 for sentinels.
    /// * **Special characters** in users and passwords: write `%25 %40 %2F %3A %3F %23 %2C` for
    ///   `% @ / : ? # ,`.
    /// * **White space** around the address and around each host is ignored. Around a user or a
    ///   password it is refused, unless it is written as `%20` or `%0A`.
    /// * **A password without a user**, for a server that has no password: with `resp2` this is
    ///   [`Error::Auth`]; with `resp3` such a server accepts any password, because its user
    ///   `default` is `nopass`.
    /// * **Databases** are numbers from 0 (the default) to 255. A cluster only has 0.
    ///
    /// Parameters follow after `?` and are separated by `&`:
    ///
    /// | parameter | |
    /// |---|---|
    /// | `db=…` | the database |
    /// | `protocol=resp2` or `resp3` | default `resp2`; sentinels always get `resp3` |
    /// | `sentinel_user=…`, `sentinel_password=…` | the login of the sentinels; without it they get none |
    /// | `sentinel_tls=on` or `off` | where the sentinels differ from the servers |
    pub fn url(mut self, url: impl AsRef<str>) -> Self {
        self.server = Some(ServerSource::Url(url.as_ref().to_owned()));
        self
    }

    /// Which authorities a `rediss://` connection trusts, and which certificate it shows. Default:
    /// the authorities of the operating system, and no client certificate. With an address without
    /// TLS this is [`Error::InvalidOption`].
    pub fn tls(mut self, tls: Tls) -> Self {
        self.access.tls = Some(tls);
        self
    }

    /// The same for connections to sentinels, if they differ. Default: as [`tls`](Self::tls).
    pub fn sentinel_tls(mut self, tls: Tls) -> Self {
        self.access.sentinel_tls = Some(tls);
        self
    }

    /// Logs in with the credentials of this provider, at each new connection and before they
    /// expire. The address must then have no user and no password: both together are
    /// [`Error::InvalidOption`]. Sentinels do not get these credentials.
    pub fn credentials(mut self, provider: CredentialProvider) -> Self {
        self.access.provider = Some(provider);
        self
    }

    /// Whether connections follow the host names of their servers to other addresses. Default: yes.
    ///
    /// A host name in use is resolved again every 5 s, and for every new connection. If the address
    /// that a connection goes to is not among the answers any more, the client goes over to one
    /// that is, as it does when sentinels name another primary: answers of the old server do not
    /// count from then on, and the new one is asked about every hold. So the client follows a
    /// managed service that lets a name stand for another server at a failover, even if the old
    /// server can still be reached. A resolver that fails, or gives no address, changes nothing.
    ///
    /// This applies to one server, to sentinels, and to the host names that sentinels and nodes of
    /// a cluster announce; not to IP addresses, unix sockets and clients of fred. If the names of a
    /// cluster's nodes in the URL lead to another cluster by now, the client goes there. Turn it
    /// off if each query for the name is answered with a different selection of addresses; names
    /// are then resolved for new connections only.
    ///
    /// ```no_run
    /// # async fn example() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::LockClient;
    ///
    /// let builder = LockClient::builder().url("redis://random-selection.internal");
    /// let client = builder.follow_dns(false).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow_dns(mut self, on: bool) -> Self {
        self.access.ignores_dns = !on;
        self
    }

    /// Translates the addresses that sentinels and the nodes of a cluster announce, where they
    /// cannot be reached from here: behind NAT, with forwarded ports, through SSH tunnels. Default:
    /// they are used as they are.
    ///
    /// The function gets the announced host (an IPv6 address without brackets) and port, and
    /// returns the address to connect to: a pair, or a [`MappedAddress`]. It is called for every
    /// attempt to connect, in the place of the driver, and must not block. If it panics, the
    /// address is used as it was announced.
    ///
    /// * **What is translated**: the primary that sentinels name; the nodes in CLUSTER SLOTS, MOVED
    ///   and ASK. A node that does not know its own host is announced with the host at which it was
    ///   asked. The addresses of sentinels, of a cluster's nodes and of one server **in the URL**
    ///   are not translated: give them as they can be reached.
    /// * **TLS**: the certificate must be issued for the host that the function returns, just as
    ///   for
    ///   the hosts in the URL. If it is issued for the announced host instead, at the end of a
    ///   tunnel for instance, return a [`MappedAddress`] with
    ///   [`certified_for`](MappedAddress::certified_for).
    /// * **Names**: a server is still known by its announced address, in
    ///   [`links`](LockClient::links), errors and logs. Errors of a connection name both addresses.
    ///
    /// Together with a client of fred it is [`Error::InvalidOption`].
    ///
    /// ```no_run
    /// # async fn example() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::LockClient;
    ///
    /// // ssh -L 17001:10.0.0.1:7001 -L 17002:10.0.0.2:7002 -L 17003:10.0.0.3:7003 bastion
    /// let client = LockClient::builder()
    ///     .url("redis-cluster://localhost:17001")
    ///     .address_map(|_, port| ("localhost", port + 10_000))
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn address_map<A: Into<MappedAddress>>(
        mut self,
        map: impl Fn(&str, u16) -> A + Send + Sync + 'static,
    ) -> Self {
        self.access.address_map = Some(AddressMap::new(map));
        self
    }

    /// Resolves names with this instead of the system's resolver.
    #[cfg(test)]
    pub(crate) fn resolver(mut self, answers: &FakeResolver) -> Self {
        self.access.resolver = Resolver::Fixed(answers.clone());
        self
    }

    /// Where connections, timers and the watchdog run. Default: [`Driver::Thread`].
    pub fn driver(mut self, driver: Driver) -> Self {
        self.driver = driver;
        self
    }

    /// The watched lease, renewed every third of it. After a crash the lock is free at the latest
    /// after this time, or at the end of [`at_least`](crate::LockOptions::at_least) if that is
    /// later. 10 ms to 24 h. Default: 30 s, or twice the [command timeout](Self::command_timeout)
    /// where that is more.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.times.lease = Some(lease);
        self
    }

    /// The `lockWatchdogTimeout` of the clients of Redisson that use the same read-write locks, 10 ms
    /// to 24 h. Default: 30 s, as in Redisson. Matters in the profile
    /// [`Redisson`](WireProfile::Redisson) only.
    ///
    /// Each renewal of a read by Redisson sets the time to live of the whole lock to this time, even
    /// if others have asked for more. So reading with a longer lease is refused
    /// ([`Error::InvalidOption`]), and a [downgraded](crate::RwLockWriteGuard::downgrade) write is
    /// valid for no longer than this without a renewal.
    pub fn redisson_watchdog(mut self, timeout: Duration) -> Self {
        self.redisson_watchdog = timeout;
        self
    }

    /// How long one command on a lock may take. 10 ms to 1 min. Default: the shortest of 1 s,
    /// half of the lease, and the [outage limit](Self::outage_limit).
    ///
    /// It must not be longer than the [lease](Self::lease): [`Error::InvalidOption`]. With more
    /// than half of the lease a warning is logged, since a renewal whose answer is lost could not
    /// be repeated in time.
    ///
    /// Everything else that waits for a server's answer has its time from this one: see
    /// [`docs::connections`](crate::docs::connections). So on a slow link, or to a distant server,
    /// this is the one setting to raise: to several times the round trip.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.times.command_timeout = Some(timeout);
        self
    }

    /// How long `lock()` waits during an outage before it ends in `Unavailable`. 10 ms to 24 h, and
    /// not less than the [command timeout](Self::command_timeout), since a shorter time would end
    /// before it is known that a command has no answer. Default: 30 s, or the command timeout where
    /// that is more.
    ///
    /// An outage begins when the connection is lost, when the first attempt to connect fails, or
    /// when the first of the commands without an answer is sent, whichever happens first. It ends
    /// with the next good answer of the server. A `lock()` that begins during an outage waits for
    /// the full limit, counted from its own start.
    ///
    /// The limit also ends a `lock_with` whose lease or `max_hold` is too short for this link, so
    /// that each grant has run out before its answer arrives. After its second such attempt,
    /// waiters behind it are served first.
    pub fn outage_limit(mut self, limit: Duration) -> Self {
        self.times.outage_limit = Some(limit);
        self
    }

    /// How long [`connect`](Self::connect) tries. 10 ms to 24 h. Default: 5 s, or five times the
    /// [command timeout](Self::command_timeout) where that is more: as many round trips as it takes
    /// with TLS and a login. When it gives up, connections get one more second, or one more command
    /// timeout, to close. With less than a command timeout a warning is logged: `connect` then
    /// gives up on a server that answers commands in time.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.times.connect_timeout = Some(timeout);
        self
    }

    /// With whom this client shares its locks, and how it waits. It must be the same for all clients
    /// that contend. Default: [`WireProfile::Native`].
    pub fn profile(mut self, profile: WireProfile) -> Self {
        self.profile = profile;
        self
    }

    /// A prefix for all lock names of this client, for example `"orders-service:"`, so that
    /// services that share a server do not use the same locks. Default: nothing. Only the fence
    /// counters (`redisson_lock_fence:{…}`) are shared by all clients of a server.
    ///
    /// It is part of the name in everything that this client does: the key and the channel in
    /// Redis, [`name`](crate::Mutex::name), errors, logs, [`preflight`](LockClient::preflight) and
    /// [`required_acl`](LockClient::required_acl). The prefix and a name together have at most 512
    /// bytes. Clients contend only with clients whose prefix and name together are the same. With
    /// [`WireProfile::Redisson`], set the same prefix in the `NameMapper` of the Java clients.
    ///
    /// In a cluster, the hash tag of a lock is the first `{tag}` of prefix and name together. With
    /// a tag in the prefix, all locks of this client are in one slot, and so on one server.
    /// Connecting with a prefix that is not valid is [`Error::InvalidOption`]: allowed are no
    /// braces, or one whole `{tag}` that is not empty; and as with names, it must not begin with
    /// `redisson_lock_line`, `redisson_lock_heard`, `redisson_lock_marks`, `redisson_lock_fence` or
    /// `redisson_latch_op`.
    ///
    /// ```no_run
    /// # async fn example() -> redis_reentrant_lock::Result<()> {
    /// use redis_reentrant_lock::LockClient;
    ///
    /// let client = LockClient::builder()
    ///     .url("redis://127.0.0.1")
    ///     .prefix("orders-service:")
    ///     .connect()
    ///     .await?;
    /// assert_eq!(client.mutex("42")?.name(), "orders-service:42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// A name for the servers of this client, for [`MultiLock`](crate::MultiLock): clients of the same
    /// servers have the same. Default: the addresses and the number of the database as they were
    /// given to this builder, whatever their order. So it is needed where clients reach the same
    /// servers at different addresses and meet in multi-locks.
    pub fn deployment(mut self, label: impl Into<String>) -> Self {
        self.deployment = Some(label.into());
        self
    }

    /// Whether wake-ups use sharded pub/sub. It must be the same for all clients that contend.
    /// Default: [`Sharding::Auto`].
    pub fn sharding(mut self, sharding: Sharding) -> Self {
        self.sharding = sharding;
        self
    }

    /// Whether a release may grant to a waiter of this client in the same script (a hand-off).
    /// Default: yes. There are at most 16 hand-offs in a row before others that wait, all within
    /// 50 ms after the grant that began the row; then the first in
    /// [line](crate::docs::waiting) is next, and this client waits behind those who are in it. If
    /// nobody is, it goes on. In the profile [`Redisson`](WireProfile::Redisson) there is no line,
    /// and a row has at most four. Turning it off lowers the throughput when many tasks of one process
    /// share a lock, and shortens the waits of other processes.
    pub fn hand_off(mut self, on: bool) -> Self {
        self.hand_off = on;
        self
    }

    /// A server inside this process, for tests. Of several calls that name a server, such as this
    /// one and [`url`](Self::url), the last one counts. The driver then runs on the current Tokio
    /// runtime, whatever [`driver`](Self::driver) says, and follows its clock, also a paused one.
    /// Outside Tokio, on whatever executor, it runs on a thread of its own, in real time. TLS and
    /// credentials have no effect.
    #[cfg(feature = "in-memory")]
    pub fn in_memory(mut self, server: &InMemoryServer) -> Self {
        self.server = Some(ServerSource::Memory(server.clone()));
        self
    }

    /// Runs over two clients that are made from this client of [fred](https://docs.rs/fred), one
    /// for commands and one for messages, instead of connections of this crate. Nothing is sent on
    /// yours, and it is neither reconnected nor closed.
    ///
    /// Servers, login, database, protocol, TLS and TCP options are those of your client at the time
    /// of connecting. Its retries, reconnect policy, timeouts and DNS resolver are not taken over:
    /// a command is sent once, a connection that ends is replaced by a new client, and attempts to
    /// connect, commands and back-off take as long as they do without fred.
    ///
    /// This is weaker than connections of this crate, and [a page](crate::docs::connections) says
    /// where:
    ///
    /// * Everything runs on the current runtime, whatever [`driver`](Self::driver) says. While that
    ///   runtime is blocked, or after it has ended, no hold is renewed or released: holds end with
    ///   their leases.
    /// * More commands end with an unknown outcome. Each of them costs a command that cleans up.
    /// * With Sentinel, the client does not hear the sentinels announce a new primary. It stays
    ///   with
    ///   the old one until that closes the connection, refuses a write or stops answering.
    /// * It is slower: commands are sent one by one.
    ///
    /// A client of a cluster is [`Error::InvalidOption`]: pass its configuration to
    /// [`fred_config`](Self::fred_config). So are [`tls`](Self::tls),
    /// [`credentials`](Self::credentials) and [`address_map`](Self::address_map) together with it,
    /// and connecting outside a Tokio runtime.
    ///
    /// ```no_run
    /// use fred::prelude::*;
    /// use redis_reentrant_lock::LockClient;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = Config::from_url("redis://127.0.0.1:6379")?;
    /// let redis = Client::new(config, None, None, None);
    /// redis.init().await?;
    ///
    /// let locks = LockClient::builder().fred(&redis).connect().await?;
    /// let guard = locks.mutex("lock:orders:42")?.lock().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "fred")]
    pub fn fred(mut self, client: &FredClient) -> Self {
        self.server = Some(ServerSource::Fred(client.clone()));
        self
    }

    /// Takes servers, login, database, protocol and TLS from this configuration of
    /// [fred](https://docs.rs/fred), instead of a URL. The connections are this crate's own, so
    /// nothing is weaker. One server, Sentinel or Cluster.
    ///
    /// Not taken over, which an event named `settings` says in the log: `fail_fast`, `blocking`, a
    /// credential provider (see [`credentials`](Self::credentials)), the login of the sentinels,
    /// which get none, a mapping of TLS host names, and the discovery policy of a cluster.
    ///
    /// [`tls`](Self::tls) together with it is [`Error::InvalidOption`], and so is TLS of a library
    /// whose feature is off in this crate.
    ///
    /// ```no_run
    /// use fred::types::config::Config;
    /// use redis_reentrant_lock::LockClient;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = Config::from_url("redis-cluster://10.0.0.1:7001")?;
    /// let locks = LockClient::builder().fred_config(&config).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "fred")]
    pub fn fred_config(mut self, config: &FredConfig) -> Self {
        self.server = Some(ServerSource::FredConfig(Box::new(config.clone())));
        self
    }

    /// Takes address, login, database and protocol from this client of
    /// [redis](https://docs.rs/redis), instead of a URL. The connections are this crate's own;
    /// nothing is sent on those of your client. One server: for Sentinel and Cluster, use
    /// [`url`](Self::url).
    ///
    /// With TLS, the trusted authorities are those of the operating system, or of
    /// [`tls`](Self::tls). A client of `redis` does not show its certificates. So certificates
    /// without `tls` are [`Error::InvalidOption`], and so is TLS that accepts any certificate. TCP
    /// settings, timeouts and retries are not taken over, which an event named `settings` says in
    /// the log.
    ///
    /// ```no_run
    /// use redis_reentrant_lock::LockClient;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let redis = redis::Client::open("redis://127.0.0.1/2")?;
    /// let locks = LockClient::builder().redis_client(&redis).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis")]
    pub fn redis_client(mut self, client: &RedisClient) -> Self {
        self.server = Some(ServerSource::Redis(Box::new(client.clone())));
        self
    }

    /// Connects, and waits for a usable connection within the connect timeout.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidUrl`] and [`Error::InvalidOption`], before anything is sent;
    /// * [`Error::Auth`], [`Error::Denied`], [`Error::Tls`], [`Error::Unsupported`] and
    ///   [`Error::Refused`], as soon as the server says so;
    /// * [`Error::Unavailable`] when the time is over, with what was tried and the last error;
    /// * [`Error::Closed`] if the runtime of a [`Driver::Current`] has ended or has no timers
    ///   (`enable_all`). Without I/O it is `Unavailable`.
    ///
    /// After an error nothing of the client is left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the client.
    ///
    /// ```no_run
    /// # async fn example() -> redis_reentrant_lock::Result<()> {
    /// let client = redis_reentrant_lock::LockClient::builder().url("redis://127.0.0.1").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self) -> Result<LockClient> {
        let connect_timeout = self.times.check()?.connect_timeout;
        let client = self.connect_lazy()?;
        match client.shared.ask_ready(connect_timeout).await {
            Answer::Done => Ok(client),
            answer => {
                client.shutdown(Duration::ZERO).await?;
                Err(unexpected(answer))
            }
        }
    }

    /// Returns at once and connects in the background, for as long as it takes.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidUrl`] and [`Error::InvalidOption`], also for a [`Driver::Current`] outside a
    /// Tokio runtime; [`Error::Unavailable`] if the system has no thread left for the driver.
    pub fn connect_lazy(self) -> Result<LockClient> {
        let config = self.config()?;
        let prefix = Prefix::new(&self.prefix)?;
        let server = self.server.ok_or_else(|| Error::InvalidUrl {
            reason: "none was given; call `LockClientBuilder::url`".to_owned(),
        })?;
        let parts = server.place(self.driver, &self.access, &config)?;
        let deployment = self.deployment.unwrap_or(parts.deployment);
        let config = Config { address: parts.address.clone(), deployment, ..config };
        let setup =
            Setup { config, clock: parts.clock, address: parts.address, backend: parts.backend };
        let shared = driver::start(parts.place, setup)?;
        let DriverParts { topology, other_database, .. } = parts;
        let groups = CallerGroups::new();
        Ok(LockClient { shared, topology, other_database, prefix, groups })
    }

    fn config(&self) -> Result<Config> {
        let times = self.times.check()?;
        for warning in times.warnings() {
            tell(|| tracing::warn!(target: TARGET, "{warning}"));
        }
        Ok(Config {
            client_id: uuid::Uuid::new_v4().to_string(),
            address: String::new(),
            deployment: String::new(),
            lease: times.lease,
            command_timeout: times.command_timeout,
            outage_limit: times.outage_limit,
            fallback: Config::FALLBACK,
            profile: self.profile,
            redisson_watchdog: LeaseMs::checked("redisson_watchdog", self.redisson_watchdog)?,
            sharding: self.sharding,
            hand_off: self.hand_off,
            max_waiters: Config::MAX_WAITERS,
            max_hold_count: Config::MAX_HOLD_COUNT,
        })
    }
}

/// Where a driver runs, its clock, and its backend.
struct DriverParts {
    place: driver::DriverPlace,
    clock: Clock,
    address: String,
    /// What tells these servers from others, unless the user has a name for them.
    deployment: String,
    topology: Topology,
    other_database: bool,
    backend: driver::MakeBackend,
}

/// The addresses, whatever their order, and the database.
fn deployment(address: &str, database: u8) -> String {
    let mut words: Vec<&str> = address.split([',', ' ']).filter(|word| !word.is_empty()).collect();
    words.sort_unstable();
    format!("{} {database}", words.join(" "))
}

impl ServerSource {
    fn place(self, driver: Driver, access: &Access, config: &Config) -> Result<DriverParts> {
        match self {
            Self::Url(url) => {
                DriverParts::on_redis(driver, RedisConfig::with_access(&url, access)?, config)
            }
            #[cfg(feature = "fred")]
            Self::Fred(client) => DriverParts::over_fred(&client, access, config),
            #[cfg(feature = "fred")]
            Self::FredConfig(settings) => {
                DriverParts::on_redis(driver, redis_config(&settings, access)?, config)
            }
            #[cfg(feature = "redis")]
            Self::Redis(client) => {
                DriverParts::on_redis(driver, RedisConfig::of_redis(&client, access)?, config)
            }
            #[cfg(feature = "in-memory")]
            Self::Memory(server) => Ok(DriverParts::in_memory(server, &config.client_id)),
        }
    }
}

impl DriverParts {
    fn on_redis(driver: Driver, redis: RedisConfig, config: &Config) -> Result<Self> {
        let address = redis.address();
        let (topology, database) = (redis.kind(), redis.database_number());
        let redis =
            redis.timed(config.command_timeout).run_together(several(config.profile.has_lines()));
        let sharding = config.sharding;
        let backend = Box::new(move || redis::backend(redis, sharding));
        Ok(Self {
            place: driver.into(),
            clock: Clock::Boot,
            deployment: deployment(&address, database),
            address,
            topology,
            other_database: database != 0,
            backend,
        })
    }

    /// Uses the current runtime and its clock. Without a runtime it uses a thread, in real time.
    #[cfg(feature = "in-memory")]
    fn in_memory(server: InMemoryServer, client_id: &str) -> Self {
        let (client, process) = server.register(client_id);
        Self {
            place: process.into(),
            clock: match tokio::runtime::Handle::try_current() {
                Ok(_) => Clock::tokio(),
                Err(_) => Clock::Boot,
            },
            address: "in-memory".to_owned(),
            deployment: format!("in-memory {}", server.number()),
            topology: Topology::Single,
            other_database: false,
            backend: Box::new(move || {
                Box::new(MemoryBackend::new(&server, client)) as Box<dyn Backend>
            }),
        }
    }

    /// Uses the current runtime, with the two clients of fred.
    #[cfg(feature = "fred")]
    fn over_fred(client: &FredClient, access: &Access, config: &Config) -> Result<Self> {
        let given = [
            ("tls", access.tls.is_some()),
            ("sentinel_tls", access.sentinel_tls.is_some()),
            ("credentials", access.provider.is_some()),
            ("address_map", access.address_map.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
            let (given, allowed) =
                ("beside a client of fred".to_owned(), "set in that client".to_owned());
            return Err(Error::InvalidOption { option, given, allowed });
        }
        let settings = Settings::of(client, config.command_timeout)?;
        if tokio::runtime::Handle::try_current().is_err() {
            let given = "outside a Tokio runtime".to_owned();
            let allowed = "used inside one, which drives its clients".to_owned();
            return Err(Error::InvalidOption { option: "fred", given, allowed });
        }
        Ok(Self {
            place: Driver::Current.into(),
            clock: Clock::Boot,
            address: settings.address().to_owned(),
            deployment: deployment(settings.address(), settings.database_number()),
            topology: settings.topology(),
            other_database: settings.database_number() != 0,
            backend: Box::new(move || Box::new(FredBackend::new(settings)) as Box<dyn Backend>),
        })
    }
}

impl fmt::Debug for LockClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClientBuilder")
            .field("tls", &self.access.tls)
            .field("sentinel_tls", &self.access.sentinel_tls)
            .field("credentials", &self.access.provider)
            .field("address_map", &self.access.address_map)
            .field("follow_dns", &!self.access.ignores_dns)
            .field("driver", &self.driver)
            .field("times", &self.times)
            .field("redisson_watchdog", &self.redisson_watchdog)
            .field("profile", &self.profile)
            .field("sharding", &self.sharding)
            .field("hand_off", &self.hand_off)
            // The server is left out, because its URL may contain a password.
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_outside_their_limits_are_refused_before_anything_is_started() {
        let builder = || LockClient::builder().url("redis://127.0.0.1:1");
        let (short, long) = (Duration::from_millis(9), Duration::MAX);
        let refused = [
            (builder().lease(Duration::ZERO), "lease"),
            (builder().lease(short), "lease"),
            (builder().lease(long), "lease"),
            (builder().command_timeout(short), "command_timeout"),
            (builder().command_timeout(Duration::from_secs(61)), "command_timeout"),
            (builder().outage_limit(long), "outage_limit"),
            (builder().connect_timeout(Duration::ZERO), "connect_timeout"),
        ];
        for (builder, option) in refused {
            let error = builder.connect_lazy().unwrap_err();
            assert!(
                matches!(&error, Error::InvalidOption { option: found, .. } if *found == option),
                "{error}"
            );
            assert!(error.is_config());
        }
    }

    #[test]
    fn a_missing_url_and_a_missing_runtime_are_named() {
        let error = LockClient::builder().connect_lazy().unwrap_err();
        assert!(error.to_string().contains("url"), "{error}");
        let current = LockClient::builder().url("redis://127.0.0.1:1").driver(Driver::Current);
        let error = current.connect_lazy().unwrap_err();
        assert!(error.to_string().contains("Driver::Current outside a Tokio runtime"), "{error}");
    }

    #[test]
    fn debug_has_no_password() {
        let builder = LockClient::builder().url("redis://user:hunter2@127.0.0.1");
        assert!(!format!("{builder:?}").contains("hunter2"));
        let builder = builder.follow_dns(false).address_map(|_, port| ("hunter2", port));
        let text = format!("{builder:?}");
        assert!(
            text.contains("follow_dns: false") && text.contains("address_map: Some(AddressMap)"),
            "{text}"
        );
    }
}
