//! Redisson's reentrant lock for Tokio, over Redis or Valkey.
//!
//! A lock is a name. One client holds it at a time, on any machine, under
//! [conditions](#what-you-get-and-what-no-lease-lock-can-give). Its owner can take it again while
//! holding it. Waiters are woken by pub/sub instead of polling. A watchdog renews what is held. A
//! holder is told when its lock is lost, and gets a fencing token with every grant.
//!
//! ```no_run
//! use redis_reentrant_lock::LockClient;
//!
//! # async fn work() {}
//! # async fn example() -> redis_reentrant_lock::Result<()> {
//! let client = LockClient::connect("redis://127.0.0.1:6379").await?;
//! let lock = client.reentrant_lock("lock:orders:42")?; // an error if the name is not allowed
//!
//! let outer = lock.lock().await?; // waits; the lease is renewed for as long as the guard lives
//! {
//!     let inner = lock.lock().await?; // the same task: hold count 2, the same fencing token
//!     inner.unlock().await?; // hold count 1
//! }
//! outer.run(work()).await?; // ends the work if the lock is lost
//! outer.unlock().await?; // the first in line is told that the lock is reserved for it
//! # Ok(())
//! # }
//! ```
//!
//! The [examples] are complete programs. [`docs`] has ten questions, each with the page that
//! answers it: [deployment](docs::deployment), [connections](docs::connections),
//! [errors](docs::errors), [testing without Redis](docs::testing), [the wire
//! protocol](docs::protocol) and others.
//!
//! [examples]: https://docs.rs/crate/redis-reentrant-lock/latest/source/examples/
//!
//! # Who is the owner? Read this first
//!
//! **The branches of `join!`, `select!`, `join_all`, `buffer_unordered` and `FuturesUnordered` run
//! in one task. The task is the owner of a reentrant lock, so these branches re-enter each other's
//! locks.** Nothing keeps them apart, not even the fencing token, which they share. Give each
//! branch an [`Owner`], or use a [`Mutex`]:
//!
#![cfg_attr(feature = "in-memory", doc = "```")]
#![cfg_attr(not(feature = "in-memory"), doc = "```ignore")]
//! use redis_reentrant_lock::Owner;
//!
//! # use redis_reentrant_lock::{InMemoryServer, LockClient, ReentrantLock};
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> redis_reentrant_lock::Result<()> {
//! # let server = InMemoryServer::new();
//! # let client = LockClient::builder().in_memory(&server).connect().await?;
//! # let lock = client.reentrant_lock("cache")?;
//! async fn refill(lock: &ReentrantLock) -> redis_reentrant_lock::Result<u32> {
//!     let guard = lock.lock().await?;
//!     tokio::time::sleep(std::time::Duration::from_millis(10)).await;
//!     let count = guard.hold_count();
//!     guard.unlock().await?;
//!     Ok(count)
//! }
//!
//! // Wrong: both are inside at once, as two levels of one hold.
//! let (left, right) = tokio::join!(refill(&lock), refill(&lock));
//! assert_eq!(left?.max(right?), 2);
//!
//! // Right: one after the other.
//! let (left, right) = tokio::join!(
//!     Owner::new().scope(refill(&lock)),
//!     Owner::new().scope(refill(&lock)),
//! );
//! assert_eq!(left?.max(right?), 1);
//! # Ok(())
//! # }
//! ```
//!
//! The owner is decided when a `lock()` future is first polled. It is
//!
//! 1. the innermost [`Owner::scope`] around the future;
//! 2. otherwise the Tokio task;
//! 3. otherwise, if a Tokio runtime is entered, the thread. That is so in the root future of
//!    `block_on` (`main` under `#[tokio::main]`), and also under `Handle::enter` on another
//!    executor. The tasks of such an executor share threads and move between them: use a scope or
//!    a [`Mutex`] there;
//! 4. outside Tokio, [`Error::NoOwner`]. The locks of the feature `blocking` have threads as owners
//!    everywhere.
//!
//! * **Parent and child.** A spawned task is another owner than its parent. If a task
//!   holds a lock and waits for a spawned task that needs the same lock, both wait forever; after
//!   10 s the log says so.
//!   The same is true of a thread of `spawn_blocking`. `block_in_place` stays in the task.
//! * **Jobs of a work-stealing pool** such as rayon share threads. A job that calls
//!   `Handle::block_on(lock.lock())` and then waits for other jobs (`rayon::join`, a parallel
//!   iterator, `rayon::yield_now`) may run another job on its thread meanwhile. That job is the
//!   same owner and enters the lock too: two are inside. The crate cannot detect this. Use a [`Mutex`],
//!   or a scope for each job, and do not wait for other jobs while you hold the lock: the waiting
//!   thread may run another job that needs it, and then deadlocks.
//! * **A guard that was moved to another task.** The task that took the lock is still the owner, so
//!   its next `lock()` of that name succeeds at once, while the other task still works under the
//!   guard. An example is the task of a connection whose handler answers before the job is done.
//!   Use a [`Mutex`] for such jobs. A guard can be moved and dropped anywhere, and then releases
//!   its level; that does not move the ownership.
//! * **Two deadlocks that compile.** While a guard of `client.reentrant_lock(name)` lives, its
//!   owner's `client.mutex(name)?.lock()` waits forever, because the two have the same key and a
//!   mutex knows no owner. And while a guard from `Owner::new().scope(lock.lock())` lives, a
//!   `lock.lock()` outside of that scope is another owner's and waits forever: let the scope go
//!   around everything that uses the lock, not around `lock()` alone.
//! * **`fork`.** A client belongs to the process that has made it. In a forked child every call
//!   that needs the server is [`Error::Closed`] at once, guards are lost ([`LossReason::Forked`]),
//!   and drops do nothing. The parent keeps its locks. The child makes a client of its own: see
//!   [the page on deployment](docs::deployment#processes-that-fork).
//! * **Two clients** never share owners.
//!
//! Locks, guards and clients are `Send`, `Sync` and `'static`; all futures are `Send`.
//!
//! # Which lock?
//!
//! | | [`ReentrantLock`] | [`Mutex`] |
//! |---|---|---|
//! | taking it again while holding it | adds a level | waits forever |
//! | its owner is | the scope, task or thread | each acquisition |
//! | branches of `join!` | re-enter each other's, unless scoped | exclude each other |
//! | runs under | Tokio, or any executor inside a scope | any executor |
//! | without async code (feature `blocking`) | `blocking::ReentrantLock`, whose owner is the thread | `blocking::Mutex` |
//! | use it for | functions that lock and call each other | everything else |
//!
//! Both use the same key, so they exclude each other. A [`FairLock`] is granted strictly in the order
//! in which its callers arrived, over all clients. Where the work is to compute a value that
//! others only want to have, a [`SingleFlight`] has one caller compute it, while the others wait for
//! the value and not for the lock, or take the old one. A [`CountDownLatch`] is no lock: whoever
//! waits for it goes on when others have counted down. Many may read an [`RwLock`] at the same time,
//! or one may write it. Where several may be at work at once, but only so many, a [`Semaphore`] has
//! permits, of which each acquisition takes one or several, first come, first served. A [`MultiLock`]
//! takes several locks together, or none of them, without a deadlock. A [`Redlock`] is one lock over
//! three or more independent servers, of which a minority may fail.
//!
//! Waiters of one client are served in order. Clients that wait stand in a line that the server
//! keeps, and are served in its order; a client whose turn it is may serve several of its waiters,
//! at most 17 and for some 50 ms. With a [`FairLock`], an [`RwLock`] and a [`Semaphore`] every owner
//! that waits has a place of its own in that line. See [waiting](docs::waiting). The profile
//! [`Redisson`](WireProfile::Redisson) has no line: a fair lock has Redisson's queue there, and all
//! other locks are served in no order between clients.
//!
//! # What you get, and what no lease lock can give
//!
//! While [`Guard::is_held`] is true, no other client has been granted the same lock, provided that
//!
//! 1. your clock and the server's run at the same rate within 1 %, and nobody sets the server's
//!    clock;
//! 2. the server keeps its data for the length of a lease: no restart without persistence, no
//!    failover that loses the last writes, no eviction (`maxmemory-policy noeviction`), no deleted
//!    key;
//! 3. every program that takes the name does so by this protocol;
//! 4. nobody calls [`force_unlock`](ReentrantLock::force_unlock). The next holder may be granted
//!    before the old one has learned of it. Usually that lasts for a round trip, and at most until
//!    the old holder's next renewal is answered; with a fixed lease, or without an answer, until
//!    its lease ends.
//!
//! So ask the guard before you act. If one of the four conditions fails, you are told as soon as
//! the client can see it ([`Guard::lost`], [`Guard::run`]). That is not always in time.
//!
//! As long as conditions 1 and 2 hold, these never happen: a lock without a time to live; a key
//! that outlives the last guard or attempt by more than one lease (or its `at_least`, if that ends
//! later); a failed acquisition that keeps the lock.
//!
//! **What no lease lock can give.** Between your question to the guard and the effect of your
//! write, the process can be suspended, or the network can delay the write, for longer than the
//! lease. Then another client has the lock while your write arrives. If two writers would do
//! damage, send the fencing token along, and let the receiver refuse smaller tokens. With such a
//! receiver, the data stay correct even if condition 1, 2 or 4 is violated.
//!
//! A token can go backwards only if the server loses its data *and* its clock goes back. A failover
//! can do both: the promoted replica lacks the last writes, and its clock is behind the old
//! primary's by more than the failover took. After setting a server's clock, a lock can be granted
//! twice in each of these deployments:
//!
//! | server | survives | can grant twice after |
//! |---|---|---|
//! | no persistence | crashed clients, network faults | a restart |
//! | `appendonly yes`, `appendfsync everysec` | also a crash of the server process, while the disk keeps up | a power failure, or a crash while the disk is busy, for the last second or two |
//! | `appendfsync always` | also a power failure | loss of the disk |
//! | Sentinel, Cluster | loss of a primary | a failover that loses the last writes; a partition |
//!
//! If you need locks that stay exclusive through the loss of a machine, use a consensus service
//! (etcd, ZooKeeper) or the locks of your database, and check tokens all the same. The page on
//! [other locks](docs::comparison) says when each is the better choice.
//!
//! # One server, Sentinel, Cluster
//!
//! The address decides; nothing else in a program changes.
//!
//! | address | |
//! |---|---|
//! | `redis://host` | one server |
//! | `redis-sentinel://s1,s2,s3/primary_name` | the primary that the sentinels name. The client listens to all of them. When the primary changes, it asks about all holds, and those that the new primary does not know are [lost](LossReason::ServerLostData) |
//! | `redis-cluster://n1,n2,n3` | a cluster. Each primary has its own connections, so that a dead or frozen one does not slow down the locks of the others. Slots may move meanwhile |
//!
//! `rediss` instead of `redis` uses [`Tls`]; [`LockClientBuilder::url`] has all details. The page
//! on [deployment](docs::deployment) says what each topology survives, which settings it needs, and
//! what happens in an outage. [`LockClient::preflight`] checks a server before you rely on it,
//! [`RequiredAcl`] gives the permissions of the user, and a [`CredentialProvider`] changes
//! passwords while locks are held. Clients that contend must use the same
//! [profile](LockClientBuilder::profile) and [sharding](LockClientBuilder::sharding).
//!
//! # The fencing token at work
//!
//! [`Guard::fencing_token`] grows with every new grant of a name, to any client; re-entries share
//! it. It is below 2^53, so JSON, Lua and `BIGINT` keep every digit. Compare and write in one step.
//! In SQL, with a column `fence BIGINT NOT NULL DEFAULT 0` beside the data:
//!
//! ```sql
//! UPDATE documents SET body = $1, fence = $2 WHERE id = $3 AND fence <= $2;
//! -- no row updated: refused, because a holder with a larger token has written
//!
//! INSERT INTO documents (id, body, fence) VALUES ($3, $1, $2)
//! ON CONFLICT (id) DO UPDATE SET body = excluded.body, fence = excluded.fence
//! WHERE documents.fence <= excluded.fence;
//! ```
//!
//! In Redis, as a script (`EVAL … 1 document:7 TOKEN VALUE`; the answer 0 means refused):
//!
//! ```lua
//! local seen = redis.call('HGET', KEYS[1], 'token')
//! if seen and tonumber(seen) > tonumber(ARGV[1]) then return 0 end
//! redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
//! return 1
//! ```
//!
//! # Defaults and limits
//!
//! | setting | default | allowed |
//! |---|---|---|
//! | [watched lease](LockClientBuilder::lease) | 30 s, or two command timeouts where that is more; renewed every third | 10 ms to 24 h |
//! | [fixed lease](LockOptions::lease), [`max_hold`](LockOptions::max_hold), [`at_least`](LockOptions::at_least) | none | 10 ms to 24 h |
//! | [command timeout](LockClientBuilder::command_timeout) | 1 s, or half of the lease, or the outage limit, whichever is least | 10 ms to 1 min, not longer than the lease |
//! | [outage limit](LockClientBuilder::outage_limit) of `lock()` | 30 s, or the command timeout where that is more | 10 ms to 24 h, not shorter than the command timeout |
//! | [connect timeout](LockClientBuilder::connect_timeout) | 5 s, or five command timeouts | 10 ms to 24 h |
//! | [driver](LockClientBuilder::driver) | a thread of its own | that, or the current runtime |
//! | [wire profile](LockClientBuilder::profile) | `Native` | `Native`, `Redisson` |
//! | [sharding](LockClientBuilder::sharding) | `Auto` | `Auto`, `On`, `Off` |
//! | [hand-off](LockClientBuilder::hand_off) | on | on, off |
//!
//! | limit | |
//! |---|---|
//! | lock name | with the client's [prefix](LockClientBuilder::prefix), the Redis key itself, which nothing else may use; 1 to 512 bytes of UTF-8, no control characters; no braces, or a non-empty `{tag}` at the first `{`; not beginning with `redisson_lock_line`, `redisson_lock_heard`, `redisson_lock_marks`, `redisson_lock_fence` or `redisson_latch_op`, like keys of this crate |
//! | hold count | 65,535 |
//! | permits of a semaphore; of one acquisition | 1,000,000; 1,000 |
//! | waiters for one name in one client | 100,000 |
//! | server | Redis 6.2 or Valkey 7.2 and later: one, a sentinel set or a cluster; with or without TLS |
//!
//! # Errors
//!
//! "Somebody else holds it" is not an error but an answer, [`NotAcquired`]. For three kinds of [`Error`]
//! there is a predicate: [`is_transient`](Error::is_transient), the same call may succeed later;
//! [`is_lost`](Error::is_lost), the hold is gone; [`is_config`](Error::is_config), the call, the
//! settings or the server must be changed first. The two others are the end of the client
//! ([`Error::Closed`]) and of nesting ([`Error::HoldCountLimit`]). No error contains a password.
//! The page on [errors](docs::errors) says what each means, what to do, and which reply of the
//! server leads to it.
//!
//! # Is the server fit for locks?
//!
//! [`LockClient::preflight`] looks at a server and at the user's permissions there, and says what
//! to change and how severe it is. [`LockClient::required_acl`] gives the `ACL SETUSER` line for a
//! user who may take locks and do nothing else. Where a permission of that line is missing, a call
//! ends in [`Error::Denied`], which names the permission.
//!
//! # Observability
//!
//! [`LockClient::stats`] has counters and gauges, without I/O. Events and spans of
//! [`tracing`](https://docs.rs/tracing) have the target `redis_reentrant_lock`. Their names do not
//! change within a major version. Client ids are shortened to eight characters.
//!
//! | name | span or event, with its fields | level |
//! |---|---|---|
//! | `acquire` | span around an acquisition (`name`, `owner`, `outcome`) | debug |
//! | | granted (`name`, `hold`, `token`, `waited`) | debug |
//! | `wait` | held by another (`name`, `holder`, `pttl`) | debug |
//! | | the first of this client's waiters has waited for more than 10 s: still held by another (`name`, `holder`, `waited`) | info |
//! | | waiting for 10 s for a hold of this same client; several grants without wake-ups; the lock was reserved for this client several times in a row, and its attempts came too late (`name`, `in_a_row`) | warn |
//! | `renew` | renewed (`holds`) | trace |
//! | | renewal failed (`holds`, `cause`); no renewal confirmed for half a lease (`holds`, and `name`, `hold` of one of them), not logged while the connection is known to be down; the server's clock jumped | warn |
//! | `release` | span around `unlock` (`name`, `outcome`); released (`name`, `hold`) | debug |
//! | | a hold that is over here still had the lock on the server, because its lease lasts longer there or the server lost the release: it is released (`name`, `hold`) | info |
//! | | the release of a dropped guard failed; publishing was refused | warn |
//! | `lost` | the hold was lost (`name`, `hold`, `reason`, `client`, `address`, and `held`: for how long) | warn |
//! | `link` | connected (`client`, `address`, `version`, and after a loss `away`: for how long); the pub/sub connection is back (`address`) | info |
//! | | connecting has failed, once for each cause (`client`, `address`, `cause`) | warn |
//! | | disconnected (`client`, `address`, `cause`, `holds` there, and `lasted`: for how long it was connected); the pub/sub connection is lost (`address`, `cause`); new credentials could not be obtained (`cause`) | warn |
//! | `settings` | settings of another library's client that are not taken over (`library`, `settings`) | info |
//! | none | the driver panicked | error |
//! | | the driver's runtime has ended | warn |
//! | | connections did not close in time | debug |
//!
//! The names are those in the metadata of the events, which the plain formatter of
//! `tracing-subscriber` does not print. `link` covers the connections for commands, and those for
//! pub/sub once one of them broke. Connections to sentinels are not logged. No line contains a
//! password.
//!
//! # Features
//!
//! | feature | brings | default |
//! |---|---|---|
//! | `in-memory` | `InMemoryServer`: [test your code without Redis](docs::testing). Compiles Lua, so it needs a C compiler | no |
//! | `rustls` | [`Tls`]: `rediss://` with rustls and ring; what the tests run with | no |
//! | `native-tls` | [`Tls`]: `rediss://` with the operating system's library, unless `rustls` is on too | no |
//! | `fred` | `LockClientBuilder::fred`: run over [your client of fred 10](docs::connections); `fred_config`: take its settings | no |
//! | `redis` | `LockClientBuilder::redis_client`: take the settings of [your client of redis 1](docs::connections) | no |
//! | `blocking` | the module `blocking`: the locks for threads, without async code and without a runtime of yours | no |
//!
//! Without `rustls` or `native-tls`, an address that asks for TLS is [`Error::InvalidUrl`].

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(all(test, not(repository)), allow(dead_code, reason = "the simulation uses it"))]

// First, because every other module uses its macro.
#[macro_use]
mod base;

mod backend;
#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod driver;
mod engine;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod kinds;
mod locks;
mod redlock;
mod settings;
#[cfg(all(test, repository, feature = "in-memory"))] // The published crate does not have it.
mod sim;

// `docs_links.md` comes first: links between files in a page give way to links between modules.
#[doc = include_str!("docs_links.md")]
#[doc = include_str!("../docs/README.md")]
pub mod docs {
    #[doc = include_str!("docs_links.md")]
    #[doc = include_str!("../docs/comparison.md")]
    pub mod comparison {}

    #[doc = include_str!("docs_links.md")]
    #[doc = include_str!("../docs/connections.md")]
    pub mod connections {}

    #[doc = include_str!("docs_links.md")]
    #[doc = include_str!("../docs/deployment.md")]
    pub mod deployment {}

    #[doc = include_str!("docs_links.md")]
    #[doc = include_str!("../docs/errors.md")]
    pub mod errors {}

    #[doc = include_str!("docs_links.md")]
    #[doc = include_str!("../docs/performance.md")]
    pub mod performance {}

    #[doc = include_str!("docs_links.md")]
    #[doc = include_str!("../docs/proof.md")]
    pub mod proof {}

    #[doc = include_str!("docs_links.md")]
    #[doc = include_str!("../docs/protocol.md")]
    pub mod protocol {}

    #[doc = include_str!("docs_links.md")]
    #[doc = include_str!("../docs/redisson.md")]
    pub mod redisson {}

    // Its examples need the feature; the page does not.
    #[cfg(any(feature = "in-memory", not(doctest)))]
    #[doc = include_str!("docs_links.md")]
    #[doc = include_str!("../docs/testing.md")]
    pub mod testing {}

    #[doc = include_str!("docs_links.md")]
    #[doc = include_str!("../docs/waiting.md")]
    pub mod waiting {}
}

/// The README's code has to compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "in-memory")]
pub use backend::memory::InMemoryClient;
#[cfg(feature = "in-memory")]
pub use backend::memory::InMemoryServer;
pub use base::clock::Deadline;
pub use base::error::Error;
pub use base::error::LossReason;
pub use base::error::Result;
pub use base::name::WireProfile;
pub use base::owner::Owner;
pub use base::stats::Link;
pub use base::stats::Stats;
pub use client::LeftLock;
pub use client::LockClient;
pub use client::LockClientBuilder;
pub use client::ShutdownReport;
pub use client::acl::RequiredAcl;
pub use client::preflight::Finding;
pub use client::preflight::PreflightReport;
pub use client::preflight::Severity;
pub use locks::fair::FairLock;
pub use locks::guard::Guard;
pub use locks::latch::CountDownLatch;
pub use locks::lock::Holder;
pub use locks::lock::LockOptions;
pub use locks::lock::NotAcquired;
pub use locks::loss_signal::LossSignal;
pub use locks::multi::LockMember;
pub use locks::multi::MemberLoss;
pub use locks::multi::MultiGuard;
pub use locks::multi::MultiLock;
pub use locks::mutex::Mutex;
pub use locks::reentrant::ReentrantLock;
pub use locks::rw_lock::RwLock;
pub use locks::rw_lock::RwLockReadGuard;
pub use locks::rw_lock::RwLockWriteGuard;
pub use locks::semaphore::Semaphore;
pub use locks::semaphore::SemaphorePermit;
pub use locks::single_flight::Lookup;
pub use locks::single_flight::SingleFlight;
pub use redlock::Redlock;
pub use redlock::RedlockBuilder;
pub use redlock::RedlockServer;
pub use redlock::guard::RedlockGuard;
pub use settings::address_map::MappedAddress;
pub use settings::config::Driver;
pub use settings::config::Sharding;
pub use settings::config::Topology;
pub use settings::credentials::CredentialProvider;
pub use settings::credentials::Credentials;
pub use settings::tls::Tls;
