//! Redlock: a lock over several independent servers, held by whoever has a majority of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::lease::LeaseMs;
use crate::base::majority::MOST_SERVERS;
use crate::client::LockClient;
use crate::client::preflight::PreflightReport;
use crate::locks::lock::LockOptions;
use crate::locks::lock::NotAcquired;
use crate::locks::lock::unless_lost;
use crate::redlock::acquisition::MajorityAcquisition;
use crate::redlock::guard::RedlockGuard;
use crate::redlock::servers::RedlockServers;
use crate::redlock::servers::Vote;
use crate::redlock::servers::Voter;
use crate::settings::config::Topology;

mod acquisition;
mod gather;
pub(crate) mod guard;
mod held;
mod servers;
#[cfg(all(test, repository, feature = "in-memory"))]
mod simulation;

/// The fewest servers.
const FEWEST_SERVERS: usize = 3;
/// The shortest that a user may set.
const LEAST_ATTEMPT_LIMIT: Duration = Duration::from_millis(1);

/// Locks over several independent servers: whoever has a majority of them holds the lock. It
/// survives the loss of a minority of the servers, without replicas.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> redis_reentrant_lock::Result<()> {
/// # use redis_reentrant_lock::{InMemoryServer, LockClient};
/// # let connect = async |_url: &str| {
/// #     LockClient::builder().in_memory(&InMemoryServer::new()).connect().await
/// # };
/// use redis_reentrant_lock::Redlock;
///
/// let (a, b, c) = (connect("redis://a").await?, connect("redis://b").await?, connect("redis://c").await?);
/// let redlock = Redlock::new([a, b, c])?;
/// redlock.assume_fresh(); // in this example: the servers were never used before
///
/// let guard = redlock.lock("orders:42").await?;
/// let token = guard.fencing_token(); // send it along with each write
/// # assert!(token > 0);
/// guard.unlock().await
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
///
/// # Guarantees
///
/// * **At most one holder**, as long as a majority of the servers keep their data, the clock of
///   each server runs at most 1 % faster or slower than that of the holder, and no server that has
///   lost its data grants within the longest lease. The last of these is ensured by this crate as
///   far as the server's own uptime is true: see below.
/// * **The holder is told.** The validity of a guard is that of the majority: the end of the last
///   server that is needed. It is lost at that moment at the latest, whatever becomes of the
///   servers.
/// * **Whoever waits gets the lock**, if holders release it: clients do not block each other for
///   longer than a lease, and of clients that got a part each, one gets the rest.
/// * The [token](RedlockGuard::fencing_token) grows with every grant.
/// * What was asked of a server and not answered is undone there as soon as it answers again.
///
/// # What it is for, and what it is not
///
/// A lock on one server stands and falls with that server; with replicas and Sentinel it can be
/// held twice after a failover, for what was not replicated. Here no server takes over from another,
/// so that nothing is lost with a failover, and any minority of the servers may be away.
///
/// Martin Kleppmann's objection to Redlock is right: it depends on clocks that run at about the same
/// rate, and on a holder that notices in time that its lease has ended. A process that is paused
/// between its last look at the guard and its write can write after somebody else has got the lock.
/// No lock with a lease can prevent that. **The token protects the data**, and nothing else does:
/// let the storage refuse writes with a token that is smaller than the last one that it has seen. If
/// your storage can do that, a lock on one server with a token is as safe and simpler; what Redlock
/// adds is that the lock is still there when a server is not.
///
/// # The servers
///
/// Three or more, each the only one behind its address: no replicas that take over, no cluster. An
/// odd number; an even one is allowed, but the one more adds nothing: of 4 servers one may be away,
/// as of 3. Each is a [`LockClient`] with settings of its own. Make them with
/// [`connect_lazy`](crate::LockClientBuilder::connect_lazy), since
/// [`connect`](crate::LockClientBuilder::connect) fails if its one server is away when the program
/// starts. Two addresses of one server are refused as soon as both are connected.
///
/// All clients of one lock must have the same servers, with the same
/// [labels](crate::LockClientBuilder::deployment), in whose order they are taken, and the same
/// [`longest_lease`](RedlockBuilder::longest_lease).
///
/// **Quarantine.** A server that was started again without its data has forgotten the holds on it.
/// So it does not count until it has been up for longer than the longest lease, by its own `INFO`,
/// which is read on each new connection. `lock()` waits for that if too few others are left, and the
/// error of a wait that is over says for how long still. [`status`](Self::status) says which servers
/// count. For the first start of a deployment there is [`assume_fresh`](Self::assume_fresh). A server
/// whose clock is set forward right after its start counts earlier.
///
/// # Owners, waiting, options
///
/// Each acquisition is an owner of its own, as with a [`Mutex`](crate::Mutex): it is not re-entered.
/// All servers are asked at once, each with a short limit. If that fails, they are taken one after
/// the other, and at each that somebody else has the client waits in its
/// [line](crate::docs::waiting). The order among those who wait is that of the first server, roughly.
///
/// [`LockOptions::at_least`] is refused. A fixed [`lease`](LockOptions::lease) counts from the moment
/// at which a majority is there, and is not asked for again on a server that loses it.
///
/// # Keys
///
/// On each server those of a [`Mutex`](crate::Mutex) of that name. A mutex on one of the servers, and
/// Redisson's `RedissonRedLock` over all of them, exclude and are excluded.
#[derive(Clone)]
pub struct Redlock {
    servers: Arc<RedlockServers>,
}

/// What a [`Redlock`] is made of.
///
/// ```no_run
/// # fn example(clients: Vec<redis_reentrant_lock::LockClient>) -> redis_reentrant_lock::Result<()> {
/// use redis_reentrant_lock::Redlock;
/// use std::time::Duration;
///
/// let redlock = clients
///     .into_iter()
///     .fold(Redlock::builder(), |builder, client| builder.server(client))
///     .longest_lease(Duration::from_secs(60))
///     .attempt_limit(Duration::from_millis(200))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
#[must_use = "a setter returns the changed builder"]
pub struct RedlockBuilder {
    clients: Vec<LockClient>,
    longest_lease: Option<Duration>,
    attempt_limit: Option<Duration>,
}

impl RedlockBuilder {
    /// One more server: a client with settings of its own.
    pub fn server(mut self, client: LockClient) -> Self {
        self.clients.push(client);
        self
    }

    /// The longest lease of any client of these locks, 10 ms to 24 h; the same everywhere. A longer
    /// one is refused. A server that was started does not count for so long. Default: the longest of
    /// the clients' own [leases](crate::LockClientBuilder::lease).
    pub fn longest_lease(mut self, lease: Duration) -> Self {
        self.longest_lease = Some(lease);
        self
    }

    /// How long one attempt at one server may take, 1 ms or more. More than its client's command
    /// timeout means that. Default: a fiftieth of the lease, at least 10 ms.
    pub fn attempt_limit(mut self, limit: Duration) -> Self {
        self.attempt_limit = Some(limit);
        self
    }

    /// Checks the settings. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) if there are fewer than 3 servers or
    /// more than 25; if one is a cluster, or has replicas that take over; if two have the same label
    /// or are known to be the same server; if their prefixes or wire profiles differ; if a client's
    /// lease is longer than the longest; if the limit of an attempt is shorter than 1 ms. [`Error::Closed`](crate::Error::Closed) in a forked child.
    pub fn build(self) -> Result<Redlock> {
        let mut clients = self.clients;
        if !(FEWEST_SERVERS..=MOST_SERVERS).contains(&clients.len()) {
            let allowed = format!("{FEWEST_SERVERS} to {MOST_SERVERS}");
            return Err(refused(clients.len().to_string(), &allowed));
        }
        let leases = clients.iter().map(|client| client.shared().config().lease);
        let own = leases.max().unwrap_or(LeaseMs::PROBE);
        let longest = match self.longest_lease {
            Some(lease) => LeaseMs::checked("longest_lease", lease)?,
            None => own,
        };
        if own > longest {
            return Err(Error::InvalidOption {
                option: "longest_lease",
                given: format!("{:?}", longest.duration()),
                allowed: format!("no shorter than the clients' lease, {:?}", own.duration()),
            });
        }
        if let Some(limit) = self.attempt_limit.filter(|limit| *limit < LEAST_ATTEMPT_LIMIT) {
            return Err(Error::InvalidOption {
                option: "attempt_limit",
                given: format!("{limit:?}"),
                allowed: format!("{LEAST_ATTEMPT_LIMIT:?} or more"),
            });
        }
        let label = |client: &LockClient| client.shared().config().deployment.clone();
        clients.sort_by_key(label);
        check(&clients)?;
        let all = clients.into_iter().map(Voter::new).collect();
        let servers = RedlockServers { all, longest, attempt_limit: self.attempt_limit };
        servers.check_different()?;
        Ok(Redlock { servers: Arc::new(servers) })
    }
}

/// What the clients have to have in common, and what not.
fn check(clients: &[LockClient]) -> Result<()> {
    for client in clients {
        client.shared().check_process()?;
        let config = client.shared().config();
        if client.topology() != Topology::Single {
            let given = format!("{}, which is no single server", config.address);
            return Err(refused(given, "independent servers, one behind each address"));
        }
        let first = &clients[0];
        let is_alike =
            first.prefix() == client.prefix() && first.shared().config().profile == config.profile;
        if !is_alike {
            let given = format!("{} with another prefix or profile", config.address);
            return Err(refused(given, "alike in their prefixes and profiles"));
        }
    }
    for pair in clients.windows(2) {
        let [one, other] = [&pair[0], &pair[1]].map(|client| client.shared().config());
        if one.deployment == other.deployment {
            let given = format!("{} and {}, with one label", one.address, other.address);
            return Err(refused(given, "different servers, each with a label of its own"));
        }
    }
    Ok(())
}

fn refused(given: String, allowed: &str) -> Error {
    Error::InvalidOption { option: "servers of a Redlock", given, allowed: allowed.to_owned() }
}

/// A server of a [`Redlock`], and whether it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedlockServer {
    /// Its address.
    pub address: String,
    /// Whether a grant of it counts.
    pub counts: bool,
    /// Why it does not, in words.
    pub why_not: Option<String>,
    /// For how long it does not count still, because it was started a short time ago.
    pub quarantine: Option<Duration>,
}

impl Redlock {
    /// Locks over these servers with default settings. Sends nothing.
    ///
    /// # Errors
    ///
    /// As [`RedlockBuilder::build`].
    pub fn new(clients: impl IntoIterator<Item = LockClient>) -> Result<Self> {
        clients.into_iter().fold(Self::builder(), RedlockBuilder::server).build()
    }

    /// A builder, for settings that are not the defaults.
    pub fn builder() -> RedlockBuilder {
        RedlockBuilder::default()
    }

    /// Waits until a majority of the servers holds the lock for this call, for as long as it takes.
    /// The lease is watched: it is renewed until the guard is released.
    ///
    /// # Errors
    ///
    /// Those of [`Mutex::lock`](crate::Mutex::lock), if so many servers refuse that there can be no
    /// majority. [`Error::Unavailable`](crate::Error::Unavailable) if for the
    /// [outage limit](crate::LockClientBuilder::outage_limit) so few servers answered, and says
    /// which did not; servers that do not count yet are waited for.
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) if two addresses lead to one server.
    /// After an error, what was taken is being released in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point releases in the background what it has taken.
    pub async fn lock(&self, name: impl AsRef<str>) -> Result<RedlockGuard> {
        let since = self.now();
        let acquired = self.lock_with(name, LockOptions::new()).await?;
        acquired.map_err(|refused| refused.without_limit(self.now().since(since)))
    }

    /// Takes the lock if it is free, without waiting for a holder: one attempt at all servers.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); `Unavailable` if fewer than a majority of the servers answered and
    /// count. What this client itself holds is refused without asking a server.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock(
        &self,
        name: impl AsRef<str>,
    ) -> Result<Result<RedlockGuard, NotAcquired>> {
        self.try_lock_for(name, Duration::ZERO).await
    }

    /// The same as [`lock`](Self::lock), but waits at most `wait`.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); `Unavailable` if fewer than a majority of the servers answered last
    /// and count; it says for how long still those do not that were started a short time ago.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock_for(
        &self,
        name: impl AsRef<str>,
        wait: Duration,
    ) -> Result<Result<RedlockGuard, NotAcquired>> {
        self.lock_with(name, LockOptions::new().wait(wait)).await
    }

    /// Takes the lock with other [options](LockOptions) than `lock()` has. [`NotAcquired`] is
    /// returned only with a limit on the wait.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::InvalidOption`](crate::Error::InvalidOption) for a lease
    /// that is longer than the [longest](RedlockBuilder::longest_lease), and for
    /// [`at_least`](LockOptions::at_least).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_with(
        &self,
        name: impl AsRef<str>,
        options: LockOptions,
    ) -> Result<Result<RedlockGuard, NotAcquired>> {
        MajorityAcquisition::begin(&self.servers, name.as_ref(), options)?.run().await
    }

    /// Takes the lock, runs `work` for as long as it is held, releases it, and returns what `work`
    /// has returned.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), before `work` was called. [`Error::Lost`](crate::Error::Lost) if the
    /// lock was lost before the release: `work` may have been done in part or as a whole.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work` and releases the lock in the background.
    pub async fn with<T>(
        &self,
        name: impl AsRef<str>,
        work: impl AsyncFnOnce(&RedlockGuard) -> T,
    ) -> Result<T> {
        let guard = self.lock(name).await?;
        let done = guard.run(work(&guard)).await?;
        unless_lost(done, guard.unlock().await)
    }

    /// Which servers count, and why the others do not, in the order of their labels. No I/O: it is
    /// what the clients know.
    pub fn status(&self) -> Vec<RedlockServer> {
        let status = |server: &Voter| {
            let link = server.client.links().into_iter().next();
            let is_connected = link.as_ref().is_some_and(|link| link.is_connected);
            let quarantine = match server.standing(self.servers.longest) {
                Vote::Quarantine(left) => Some(left),
                Vote::Counts | Vote::Unknown => None,
            };
            let why_not = match (is_connected, quarantine) {
                (false, _) => {
                    let trouble = link.and_then(|link| link.trouble);
                    Some(trouble.unwrap_or_else(|| "not connected".to_owned()))
                }
                (true, Some(left)) => {
                    Some(format!("started a short time ago; counts in {left:.1?}"))
                }
                (true, None) => None,
            };
            let address = server.address().to_owned();
            RedlockServer { address, counts: why_not.is_none(), why_not, quarantine }
        };
        self.servers.all.iter().map(status).collect()
    }

    /// Says that nothing can be held on the servers, as at the first start of a deployment: those
    /// that are connected now count at once, until their next start. Returns how many these are. No
    /// I/O.
    ///
    /// Do not call it after a server was lost: what is not known to be held there may be held.
    pub fn assume_fresh(&self) -> usize {
        self.servers.all.iter().filter(|server| server.assume_fresh()).count()
    }

    /// Checks every server, as [`LockClient::preflight`] does, in the order of their labels.
    ///
    /// # Errors
    ///
    /// As [`LockClient::preflight`].
    ///
    /// # Cancel safety
    ///
    /// As [`LockClient::preflight`].
    pub async fn preflight(&self, name: impl AsRef<str>) -> Result<Vec<PreflightReport>> {
        let name = name.as_ref();
        let asked = self.servers.all.iter().map(|server| server.client.preflight(name));
        join_all(asked).await.into_iter().collect()
    }

    fn now(&self) -> Moment {
        self.servers.all[0].client.shared().now()
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.servers.all.iter().map(Voter::label);
        f.debug_struct("Redlock").field("servers", &labels.collect::<Vec<_>>()).finish()
    }
}
