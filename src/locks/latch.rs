//! The count-down latch.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::driver::Shared;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Probe;
use crate::engine::event::Probed;
use crate::engine::event::unexpected;
use crate::kinds::command::Command;
use crate::kinds::operation::Change;
use crate::kinds::reply::Body;
use crate::kinds::reply::Reply;

/// A latch for many processes: it has a count, which [`count_down`](Self::count_down) lowers, and
/// whoever [waits](Self::wait) goes on when the count is 0.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> redis_reentrant_lock::Result<()> {
/// # let server = redis_reentrant_lock::InMemoryServer::new();
/// # let client = redis_reentrant_lock::LockClient::builder().in_memory(&server).connect().await?;
/// let ready = client.count_down_latch("deploy-42:ready")?;
/// ready.try_set_count(2).await?; // each instance may do this: the first one sets the count
///
/// ready.count_down().await?;
/// assert_eq!(ready.count().await?, 1);
/// ready.count_down().await?;
/// ready.wait().await?; // returns when all have counted down
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
///
/// # Guarantees
///
/// * **Each call counts once**, also if its command or the answer to it is lost and the client sends
///   it again: every command has an operation id, which the server remembers.
/// * A call that returns an error says whether it is unknown if it was done.
/// * `wait` returns only after a look at the count on the server. A message is only a reason to
///   look, and a lost one costs up to 5.5 s.
///
/// # What it cannot protect against
///
/// * A latch with the count 0 is gone, and is the same as one that was never set. So set the count
///   before anybody can wait, and use a new name for each purpose. If a new count is set at once, a
///   waiter that has not looked meanwhile goes on waiting.
/// * A process that dies before it has counted down is missing for ever. With
///   [`try_set_count_for`](Self::try_set_count_for) the latch ends by itself.
/// * Lost data of the server opens the latch.
/// * While a cluster moves the slot of the latch, calls wait for the end of that, up to the outage
///   limit.
///
/// # Keys
///
/// The name is the key: a hash with `kind` = `latch` and `count`; in the profile
/// [`Redisson`](crate::WireProfile::Redisson) the string of Redisson's `RCountDownLatch`. Each
/// operation has a key `redisson_latch_op:{name}:<id>` until 10 s after the outage limit. The
/// channel is `redisson_countdownlatch__channel__{name}`.
///
/// [`RequiredAcl::latches`](crate::RequiredAcl::latches) adds the permissions for these.
/// [`preflight_latch`](crate::LockClient::preflight_latch) checks a server and them.
#[derive(Clone)]
pub struct CountDownLatch {
    name: LockName,
    shared: Arc<Shared>,
}

impl CountDownLatch {
    pub(crate) fn new(name: LockName, shared: &Arc<Shared>) -> Result<Self> {
        let latch = Self { name, shared: Arc::clone(shared) };
        latch.shared.check_process().map_err(|error| error.of_lock(latch.name()))?;
        Ok(latch)
    }

    /// The name of the latch.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Sets the count if there is none, and says whether it did. The latch then stays until the
    /// count is 0.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidOption`] before anything is sent if the count is 0;
    /// * [`Error::Unavailable`] if the server has given no answer for the client's `outage_limit`,
    ///   and for 10 s more if a command may have been executed; its cause says whether that is
    ///   unknown;
    /// * [`Error::KeyConflict`] if the key is used for something else;
    /// * what the server refuses: [`Error::Auth`], [`Error::Denied`], [`Error::Tls`],
    ///   [`Error::Unsupported`], [`Error::Refused`];
    /// * [`Error::Closed`] after a shutdown or in a forked child.
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the call goes on even if the future is dropped.
    pub async fn try_set_count(&self, count: u32) -> Result<bool> {
        self.set_count(count, 0).await
    }

    /// The same, and the latch is gone after this time, 10 ms to 24 h, whatever the count is then.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count).
    ///
    /// # Cancel safety
    ///
    /// As [`try_set_count`](Self::try_set_count).
    pub async fn try_set_count_for(&self, count: u32, life: Duration) -> Result<bool> {
        self.set_count(count, LeaseMs::checked("life", life)?.millis()).await
    }

    async fn set_count(&self, count: u32, life: u64) -> Result<bool> {
        if count == 0 {
            let (given, allowed) = (count.to_string(), "1 or more".to_owned());
            return Err(Error::InvalidOption { option: "count", given, allowed });
        }
        Ok(self.operate(Change::SetCount { count, life }).await?.is_some())
    }

    /// Lowers the count by one, and returns what is left. At 0, all who wait go on. If there is no
    /// latch, nothing is done, and the answer is 0.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count).
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the call goes on even if the future is dropped.
    pub async fn count_down(&self) -> Result<u64> {
        Ok(self.operate(Change::CountDown).await?.unwrap_or(0))
    }

    /// Removes the latch, and says whether there was one. All who wait go on.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count).
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, the call goes on even if the future is dropped.
    pub async fn delete(&self) -> Result<bool> {
        Ok(self.operate(Change::Delete).await?.is_some())
    }

    /// The count; 0 if there is no latch. Asks the server; the answer may be outdated at once.
    ///
    /// # Errors
    ///
    /// `Unavailable` if no answer comes within the command timeout, `KeyConflict` if the key is used
    /// for something else, and what the server refuses.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn count(&self) -> Result<u64> {
        let command = Command::look_at(self.name.clone(), self.shared.config().profile);
        let probe = Box::new(Probe { name: self.name.clone(), command, listen: None });
        match self.shared.ask_cancellable(|request| Event::Probe { probe, request }).await {
            Answer::Probed(Probed {
                reply: Reply { body: Body::Count(Ok(count)), .. }, ..
            }) => Ok(count),
            Answer::Probed(Probed {
                reply: Reply { body: Body::Count(Err(found)), .. }, ..
            }) => {
                let (name, found) = (self.name().to_owned(), found.to_owned());
                Err(Error::KeyConflict { name, found })
            }
            answer => Err(self.unexpected(answer)),
        }
    }

    /// Waits until the count is 0, or there is no latch. For a limit use `tokio::time::timeout` or
    /// what your executor has.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the server has given no answer for the client's `outage_limit`;
    /// [`Error::TooManyWaiters`] at that limit; all others of
    /// [`try_set_count`](Self::try_set_count).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn wait(&self) -> Result<()> {
        let name = self.name.clone();
        match self.shared.ask_cancellable(|request| Event::Watch { name, request }).await {
            Answer::Done => Ok(()),
            answer => Err(self.unexpected(answer)),
        }
    }

    async fn operate(&self, change: Change) -> Result<Option<u64>> {
        let name = self.name.clone();
        match self.shared.ask(|request| Event::Operate { name, change, request }).await {
            Answer::Operated(number) => Ok(number),
            answer => Err(self.unexpected(answer)),
        }
    }

    fn unexpected(&self, answer: Answer) -> Error {
        unexpected(answer).of_lock(self.name())
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountDownLatch").field("name", &self.name()).finish_non_exhaustive()
    }
}
