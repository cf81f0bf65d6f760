//! Single flight: of many callers that want a value, one computes it.

mod groups;

use std::future::Future;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::error::Result;
use crate::locks::guard::Guard;
use crate::locks::lock::Lock;
use crate::locks::lock::LockOptions;

pub(crate) use groups::CallerGroups;

use groups::Delegate;
use groups::Role;

/// What a lookup has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// The value, and it may be used.
    Fresh(T),
    /// A value that should be computed anew. Until that is done it may be used.
    Stale(T),
    /// There is no value that may be used.
    Missing,
}

/// A guard against stampedes: when a cached value has run out, one caller computes it, in all
/// processes together, and the others wait for that or take the old value.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use redis_reentrant_lock::Lookup;
/// use std::sync::Mutex;
///
/// # let server = redis_reentrant_lock::InMemoryServer::new();
/// # let client = redis_reentrant_lock::LockClient::builder().in_memory(&server).connect().await?;
/// let cache = Mutex::new(None::<String>); // in a service: Redis, with a time to live
/// let look = async || match cache.lock().unwrap().clone() {
///     Some(page) => Ok::<_, std::io::Error>(Lookup::Fresh(page)),
///     None => Ok(Lookup::Missing),
/// };
/// let flight = client.single_flight("cache:page:7")?;
/// let page = flight
///     .run(look, async |_guard| {
///         let page = "rendered".to_owned();
///         *cache.lock().unwrap() = Some(page.clone());
///         Ok(page)
///     })
///     .await??;
/// assert_eq!(page, "rendered");
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
///
/// # How it works
///
/// Who finds no fresh value tries to take the lock of this name. Who gets it is the leader: it looks
/// once more, computes and stores the value, and releases the lock. All others *watch* the leader,
/// without standing in line for the lock, and look for the value when the leader is gone. So after
/// a success nobody takes the lock, and after a failure exactly one does. In each client one caller
/// does this for all callers of the same name, and shares what it finds with them: a leader's end
/// costs one look for the value per process, however many callers wait there.
///
/// # Guarantees
///
/// * While a leader computes, nobody else computes, as long as the leader's lock is valid. A
///   computation whose lock is lost is dropped, as by [`Guard::run`].
/// * A leader whose computation fails or panics, or whose future is dropped, releases the lock; the
///   next caller that waits looks again, and becomes the leader if there is still no value.
/// * A leader that is killed or frozen is waited for until its lease ends.
///
/// # What it cannot protect against
///
/// * It knows nothing of the cache. A value that is stored but not found again is computed again by
///   one caller after the other.
/// * A leader that is frozen between computing and storing may store after another has done so. If
///   that would do damage, store with the [fencing token](Guard::fencing_token).
/// * Callers of one client share values: those that wait get the value that was found or computed
///   while they waited. It may have been computed from data that was read before their calls.
/// * The caller that looks and tries for the others does so in its own task. If that task is not
///   polled, the others of its client wait.
///
/// # Keys
///
/// It uses the key, the channel and the scripts of the [`Mutex`](crate::Mutex) of the same name,
/// and both exclude each other. Use a name of its own, beside that of the cached value
/// (`cache:page:7` for the value, `flight:page:7` here): the key of the lock is a hash.
#[derive(Clone, Debug)]
#[must_use = "it does nothing before `run` is called"]
pub struct SingleFlight {
    lock: Lock,
    groups: CallerGroups,
    options: LockOptions,
}

impl SingleFlight {
    pub(crate) fn new(lock: Lock, groups: CallerGroups) -> Self {
        Self { lock, groups, options: LockOptions::new() }
    }

    /// The name of its lock.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// The leader holds the lock with this fixed lease, 10 ms to 24 h, instead of a lease that is
    /// renewed. A computation that takes longer is dropped.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options = self.options.lease(lease);
        self
    }

    /// A computation that takes longer than this, 10 ms to 24 h, is dropped, and another caller
    /// computes. Without a limit, one that never ends is waited for as long as its process lives.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options = self.options.max_hold(max_hold);
        self
    }

    /// Returns a fresh value: the one that `lookup` finds, or the one that this or another caller
    /// computes. Returns a stale value at once if somebody else computes.
    ///
    /// `lookup` is called first; if it finds a fresh value, nothing is sent. It is called again
    /// whenever a leader is gone, and by the leader once more before `compute`. `compute` has to
    /// store the value where `lookup` finds it, and is called at most once; it gets the guard of
    /// the lock for [`fencing_token`](Guard::fencing_token). All callers of a name must mean the
    /// same value.
    ///
    /// An error of `lookup` or `compute` is returned to its own caller only, as the inner result.
    ///
    /// # Errors
    ///
    /// Of the lock, the outer result:
    ///
    /// * [`Error::Lost`] if the lock was lost before `compute` was done, which was then dropped;
    /// * [`Error::Unavailable`] if an attempt was not answered within the command timeout, or if
    ///   the server has given no answer for the client's `outage_limit` while a leader was watched;
    ///   if there is a stale value, that is returned instead;
    /// * all others of [`Mutex::lock`](crate::Mutex::lock), and
    ///   [`Error::InvalidOption`] before anything is sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `lookup` and `compute`, and releases the lock in the background.
    /// Another caller goes on.
    ///
    /// ```no_run
    /// # use redis_reentrant_lock::Lookup;
    /// # struct Cache;
    /// # impl Cache {
    /// #     async fn get(&self, _: u64) -> std::io::Result<Lookup<String>> { Ok(Lookup::Missing) }
    /// # }
    /// # async fn load_and_store(_: &Cache, _: u64) -> std::io::Result<String> { Ok(String::new()) }
    /// # async fn example(client: redis_reentrant_lock::LockClient, cache: Cache) -> Result<(), Box<dyn std::error::Error>> {
    /// let user = client
    ///     .single_flight("flight:user:7")?
    ///     .run(|| cache.get(7), async |_| load_and_store(&cache, 7).await)
    ///     .await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T, E, L>(
        &self,
        lookup: impl Fn() -> L,
        compute: impl AsyncFnOnce(&Guard) -> std::result::Result<T, E>,
    ) -> Result<std::result::Result<T, E>>
    where
        T: Clone + Send + 'static,
        L: Future<Output = std::result::Result<Lookup<T>, E>>,
    {
        self.lock.check_process()?;
        let name = self.lock.lock_name();
        let (delegate, stale, inherited) = match lookup().await {
            Ok(Lookup::Fresh(value)) => return Ok(Ok(value)),
            Err(error) => return Ok(Err(error)),
            Ok(Lookup::Stale(value)) => match self.groups.enter(name) {
                Some(delegate) => (delegate, Some(value), false),
                // Another caller of this client sees to it.
                None => return Ok(Ok(value)),
            },
            Ok(Lookup::Missing) => match self.groups.join(name).await {
                Role::Delegate(delegate) => (delegate, None, false),
                Role::Successor(delegate) => (delegate, None, true),
                Role::Served(result) => return result.map(Ok),
            },
        };
        self.act_for_group(delegate, stale, inherited, lookup, compute).await
    }

    /// Deals with the lock for all callers of this client. `stale` is what the caller has found;
    /// `looks`: it has waited since then, and looks again first.
    async fn act_for_group<T, E, L>(
        &self,
        delegate: Delegate<T>,
        mut stale: Option<T>,
        mut looks: bool,
        lookup: impl Fn() -> L,
        compute: impl AsyncFnOnce(&Guard) -> std::result::Result<T, E>,
    ) -> Result<std::result::Result<T, E>>
    where
        T: Clone + Send + 'static,
        L: Future<Output = std::result::Result<Lookup<T>, E>>,
    {
        loop {
            if looks {
                // Who comes from here on may know more than this look will find.
                delegate.close();
                match lookup().await {
                    Ok(Lookup::Fresh(value)) => return Ok(Ok(delegate.serve(value))),
                    Ok(Lookup::Stale(value)) => stale = Some(value),
                    Ok(Lookup::Missing) => {}
                    Err(error) => return Ok(Err(error)),
                }
            }
            match (self.lock.try_lead(self.options).await, stale.take()) {
                (Ok(Ok(guard)), _) => return self.lead(delegate, guard, lookup, compute).await,
                (Err(error), _) if !error.is_transient() => return Err(delegate.fail(error)),
                // Found for all that have waited for it.
                (_, Some(value)) if looks => return Ok(Ok(delegate.serve(value))),
                (_, Some(value)) => return Ok(Ok(value)),
                (Err(error), None) => return Err(delegate.fail(error)),
                (Ok(Err(_)), None) => {}
            }
            if let Err(error) = self.lock.watch().await {
                return Err(delegate.fail(error));
            }
            looks = true;
        }
    }

    /// Looks once more, since others may have computed the value meanwhile, and computes it.
    async fn lead<T, E, L>(
        &self,
        delegate: Delegate<T>,
        guard: Guard,
        lookup: impl Fn() -> L,
        compute: impl AsyncFnOnce(&Guard) -> std::result::Result<T, E>,
    ) -> Result<std::result::Result<T, E>>
    where
        T: Clone + Send + 'static,
        L: Future<Output = std::result::Result<Lookup<T>, E>>,
    {
        delegate.close();
        let looked = match guard.run(lookup()).await? {
            Ok(Lookup::Fresh(value)) => Ok(value),
            Ok(Lookup::Stale(_) | Lookup::Missing) => {
                delegate.open();
                guard.run(compute(&guard)).await?
            }
            Err(error) => Err(error),
        };
        match looked {
            // The value is stored. The release goes on in the background.
            Ok(value) => Ok(Ok(delegate.serve(value))),
            Err(error) => {
                // So that the next delegate of this client finds the lock free. If the release fails
                // it goes on, like that of a dropped guard.
                let _: std::result::Result<(), Error> = guard.unlock().await;
                Ok(Err(error))
            }
        }
    }
}
