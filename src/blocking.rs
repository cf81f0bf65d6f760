//! The locks for threads: the same locks without async code, and without a runtime of yours.
//!
//! ```
//! # #[cfg(feature = "in-memory")]
//! # fn main() -> redis_reentrant_lock::Result<()> {
//! use redis_reentrant_lock::LockClient;
//! use std::time::Duration;
//!
//! # fn import() {}
//! # let server = redis_reentrant_lock::InMemoryServer::new();
//! # let builder = LockClient::builder().in_memory(&server);
//! # #[cfg(any())]
//! let builder = LockClient::builder().url("redis://127.0.0.1:6379");
//! let client = builder.blocking_connect()?; // blocking::LockClient
//! let lock = client.mutex("lock:import")?; // blocking::Mutex
//!
//! let guard = lock.lock()?; // waits; the lease is renewed for as long as the guard lives
//! import();
//! guard.ensure(Duration::from_secs(1))?; // before a step that must not be done twice
//! guard.unlock()?;
//!
//! lock.with(|guard| println!("token {}", guard.fencing_token()))?;
//! client.shutdown(Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "in-memory"))]
//! # fn main() {}
//! ```
//!
//! It is a face over the async API: the same client, keys, options and guarantees, so that threads
//! and tasks, of one process or of several, exclude each other. What is said of the
//! [async types](crate) is true here; this page says what differs.
//!
//! # Jobs of a pool share threads. Read this first
//!
//! **The owner of a [`ReentrantLock`] is the thread.** In a work-stealing pool such as rayon, a job
//! that waits for other jobs while it holds the lock (`rayon::join`, a parallel iterator, `scope`,
//! `yield_now`) may run one of them on its thread. That job is the same owner, and enters the lock,
//! too: two are inside, with the same fencing token. The crate cannot detect this. **Use a
//! [`Mutex`] in such a pool**, where every acquisition is its own owner. And do not wait for other
//! jobs while you hold it: one that runs on the waiting thread and needs the same mutex waits
//! forever; with [`try_lock_for`](Mutex::try_lock_for), for its limit.
//!
//! # Where it works
//!
//! * **On any thread of yours**, inside an executor other than Tokio as well, whose other tasks then
//!   wait for that thread.
//! * **On threads of `tokio::task::spawn_blocking`, and in `block_in_place`.** The owner is the
//!   thread there, too, and not the task: while a task holds a [`crate::ReentrantLock`], a blocking
//!   call for the same name in its `block_in_place` waits forever.
//! * **Not in an async task**, nor in any other future that Tokio polls: it would stop the other
//!   tasks of the thread, perhaps the one that holds the lock. Such a call is
//!   [`Error::InAsyncTask`], before anything is sent, and the error names the async function.
//!   Methods that do not wait (`is_held`, `ensure`, `stats`, …) may be called anywhere, and guards
//!   may be dropped anywhere. Code that is wrapped in `tokio::task::unconstrained`, in the root
//!   future of a runtime with several threads, is not recognized; it stops nobody but itself.
//! * **Not in functions that the client calls** on its own thread: a credential provider, an address
//!   map, a subscriber of `tracing`. There it is the same error, or waits for itself.
//!
//! # What differs
//!
//! * **Nothing interrupts a thread.** There is no `run`, and [`with`](Mutex::with) does not end the
//!   work when the lock is lost. Ask the guard between steps, and send the fencing token with each
//!   write.
//! * **A wait cannot be cancelled.** Set a limit ([`try_lock_for`](Mutex::try_lock_for),
//!   [`LockOptions::wait`](crate::LockOptions::wait)), or shut the client down, which ends all
//!   waits with [`Error::Closed`].
//! * **The driver runs on a thread of its own** ([`Driver::Thread`]): a blocked thread of yours
//!   stops neither renewals nor releases. A thread that never ends its work keeps its lock, so give
//!   it a [`max_hold`](crate::LockOptions::max_hold) where that can happen.
//!
//! | async | here |
//! |---|---|
//! | [`LockClientBuilder::connect`](crate::LockClientBuilder::connect) | [`LockClientBuilder::blocking_connect`](crate::LockClientBuilder::blocking_connect) |
//! | [`ReentrantLock`](crate::ReentrantLock): its owner is the scope, task or thread | [`ReentrantLock`]: the thread |
//! | [`Mutex`](crate::Mutex) | [`Mutex`] |
//! | [`Guard`](crate::Guard) | [`Guard`] of a mutex, [`ReentrantGuard`] of a reentrant lock, which is not `Send` |
//! | [`RwLock`](crate::RwLock) | [`RwLock`], owned by the thread |
//! | [`Semaphore`](crate::Semaphore) | [`Semaphore`], whose permits may be sent to another thread |
//! | [`MultiLock`](crate::MultiLock) | [`MultiLock`], whose reentrant members are owned by the thread |
//! | [`Redlock`](crate::Redlock), [`RedlockGuard`](crate::RedlockGuard) | [`Redlock`], [`RedlockGuard`], which is not `Send` |
//! | [`SingleFlight`](crate::SingleFlight), which drops a computation whose lock is lost | [`SingleFlight`], which does not |
//! | [`CountDownLatch`](crate::CountDownLatch), a wait with a limit by a timer of yours | [`CountDownLatch`], with [`wait_for`](CountDownLatch::wait_for) |
//! | `select!` with [`lost`](crate::Guard::lost) | [`lost_within`](Guard::lost_within) |
//! | [`LossSignal`](crate::LossSignal) for another task | [`LossSignal`] for another thread |
//!
//! [`Error::InAsyncTask`]: crate::Error::InAsyncTask
//! [`Error::Closed`]: crate::Error::Closed
//! [`Driver::Thread`]: crate::Driver::Thread

mod client;
mod fair;
mod guard;
mod latch;
mod loss_signal;
mod multi;
mod mutex;
mod redlock;
mod reentrant;
mod rw_lock;
mod semaphore;
mod single_flight;
mod wait;

pub use client::LockClient;
pub use fair::FairLock;
pub use guard::Guard;
pub use guard::ReentrantGuard;
pub use latch::CountDownLatch;
pub use loss_signal::LossSignal;
pub use multi::MultiGuard;
pub use multi::MultiLock;
pub use mutex::Mutex;
pub use redlock::Redlock;
pub use redlock::RedlockGuard;
pub use reentrant::ReentrantLock;
pub use rw_lock::RwLock;
pub use rw_lock::RwLockReadGuard;
pub use rw_lock::RwLockWriteGuard;
pub use semaphore::Semaphore;
pub use semaphore::SemaphorePermit;
pub use single_flight::SingleFlight;
