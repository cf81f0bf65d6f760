//! The count-down latch for threads.

use std::time::Duration;

use crate::base::error::Result;
use crate::blocking::wait::wait;
use crate::blocking::wait::wait_for;
use crate::locks::latch::CountDownLatch as AsyncLatch;

/// A [`CountDownLatch`](crate::CountDownLatch) whose methods block the calling thread. What is said
/// there of guarantees and keys is true here.
///
/// ```
/// # #[cfg(feature = "in-memory")]
/// # fn main() -> redis_reentrant_lock::Result<()> {
/// # use redis_reentrant_lock::{InMemoryServer, LockClient};
/// # let client = LockClient::builder().in_memory(&InMemoryServer::new()).blocking_connect()?;
/// let ready = client.count_down_latch("deploy-42:ready")?;
/// ready.try_set_count(2)?; // each instance may do this: the first one sets the count
///
/// ready.count_down()?;
/// assert_eq!(ready.count()?, 1);
/// ready.count_down()?;
/// ready.wait()?; // returns when all have counted down
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "in-memory"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct CountDownLatch(AsyncLatch);

impl CountDownLatch {
    pub(super) fn new(latch: AsyncLatch) -> Self {
        Self(latch)
    }

    /// The name of the latch.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Sets the count if there is none, and says whether it did.
    ///
    /// # Errors
    ///
    /// As [`CountDownLatch::try_set_count`](crate::CountDownLatch::try_set_count), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn try_set_count(&self, count: u32) -> Result<bool> {
        wait("CountDownLatch::try_set_count", self.0.try_set_count(count))?
    }

    /// The same, and the latch is gone after this time, 10 ms to 24 h, whatever the count is then.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count).
    pub fn try_set_count_for(&self, count: u32, life: Duration) -> Result<bool> {
        wait("CountDownLatch::try_set_count_for", self.0.try_set_count_for(count, life))?
    }

    /// Lowers the count by one, and returns what is left. At 0, all who wait go on. If there is no
    /// latch, nothing is done, and the answer is 0.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count).
    pub fn count_down(&self) -> Result<u64> {
        wait("CountDownLatch::count_down", self.0.count_down())?
    }

    /// Removes the latch, and says whether there was one. All who wait go on.
    ///
    /// # Errors
    ///
    /// As [`try_set_count`](Self::try_set_count).
    pub fn delete(&self) -> Result<bool> {
        wait("CountDownLatch::delete", self.0.delete())?
    }

    /// The count; 0 if there is no latch. Asks the server.
    ///
    /// # Errors
    ///
    /// As [`CountDownLatch::count`](crate::CountDownLatch::count), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn count(&self) -> Result<u64> {
        wait("CountDownLatch::count", self.0.count())?
    }

    /// Waits until the count is 0, or there is no latch.
    ///
    /// # Errors
    ///
    /// As [`CountDownLatch::wait`](crate::CountDownLatch::wait), and
    /// [`Error::InAsyncTask`](crate::Error::InAsyncTask).
    pub fn wait(&self) -> Result<()> {
        wait("CountDownLatch::wait", self.0.wait())?
    }

    /// The same, but not longer than `limit`. False: as far as is known, the count is not 0.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_for(&self, limit: Duration) -> Result<bool> {
        let waited = wait_for(limit, "CountDownLatch::wait", self.0.wait())?;
        waited.transpose().map(|opened| opened.is_some())
    }
}
