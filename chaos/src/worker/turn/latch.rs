//! Count-down latches. Each generation of tasks has a new one, which all of them know by its name.

use std::time::Duration;

use redis_reentrant_lock::CountDownLatch;
use redis_reentrant_lock::Result;
use tokio::time::timeout;

use super::Task;
use crate::event::How;
use crate::event::What;
use crate::event::now;
use crate::kind::GENERATION;
use crate::kind::LATCH_LIFE;
use crate::kind::LockKind;
use crate::kind::Name;
use crate::kind::Share;

impl Task<'_> {
    /// One call of the latch that there is now, or of the one before it.
    pub(super) async fn latch(&mut self, name: &Name) -> Result<()> {
        let late = if self.chance.permille(150) { GENERATION } else { 0 };
        let name = Name { text: name.spelled(now() - late), kind: LockKind::Latch };
        let latch = self.worker.client().count_down_latch(&name.text)?;
        let what = *self.chance.pick(&[
            What::SetCount,
            What::SetCountFor,
            What::CountDown,
            What::CountDown,
            What::CountDown,
            What::Count,
            What::Wait,
            What::Wait,
        ]);
        let what = if self.chance.permille(20) { What::Delete } else { what };
        let count = u32::try_from(self.chance.range(2, 8)).unwrap_or(2);
        let wait = self.chance.time(500, 400_000);
        let op = self.worker.log.call(self.number, what, &name, "-", Share::levels(count));
        let how = match ask(&latch, what, count, wait).await {
            Ok(Some(answer)) => How::Answered(answer),
            Ok(None) => How::Cancelled,
            Err(error) => self.failed(&error),
        };
        self.worker.log.end(op, how);
        self.pause(20_000).await;
        Ok(())
    }
}

/// None: the time to wait was over.
async fn ask(
    latch: &CountDownLatch,
    what: What,
    count: u32,
    wait: Duration,
) -> Result<Option<u64>> {
    Ok(match what {
        What::SetCount => Some(latch.try_set_count(count).await?.into()),
        What::SetCountFor => Some(latch.try_set_count_for(count, LATCH_LIFE).await?.into()),
        What::CountDown => Some(latch.count_down().await?),
        What::Delete => Some(latch.delete().await?.into()),
        What::Count => Some(latch.count().await?),
        _ => match timeout(wait, latch.wait()).await {
            Ok(done) => done.map(|()| Some(0))?,
            Err(_) => None,
        },
    })
}
