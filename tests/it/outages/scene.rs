//! A holder and a waiter behind it: what each outage is made for.

use std::time::Duration;

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::Result;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio::time::timeout;

use crate::support::settle::settles;

/// Far beyond the fallback, after which a waiter tries without having been woken.
pub(crate) const BOUND: Duration = Duration::from_secs(25);

pub(crate) struct Scene {
    pub(crate) name: String,
    pub(crate) holder: LockClient,
    pub(crate) waiter: LockClient,
    pub(crate) guard: Guard,
    waiting: JoinHandle<Guard>,
}

impl Scene {
    pub(crate) async fn set(builder: impl Fn() -> LockClientBuilder, name: String) -> Self {
        let holder = builder().connect().await.expect("the servers are there");
        let waiter = builder().connect().await.expect("the servers are there");
        let guard = holder.mutex(&name).expect("a good name").lock().await.expect("free");
        let lock = waiter.mutex(&name).expect("a good name");
        let waiting = tokio::spawn(async move { lock.lock().await.expect("granted in the end") });
        let watched = waiter.clone();
        settles("the waiter sleeps", move || {
            let stats = watched.stats();
            stats.waits == 1 && stats.subscriptions == 1
        })
        .await;
        Self { name, holder, waiter, guard, waiting }
    }

    /// The hold has come through: the waiter gets the lock when it is released, and nothing is
    /// left.
    pub(crate) async fn goes_on(self, what: &str) {
        timeout(BOUND, answered(&self.guard)).await.expect("answered").expect("still held");
        let token = self.guard.fencing_token();
        let released = Instant::now();
        timeout(BOUND, self.guard.unlock()).await.expect("answered").expect("released");
        let next = timeout(BOUND, self.waiting).await.expect("a waiter is stuck").expect("granted");
        println!("{what}: granted to the waiter {:?} after the release began", released.elapsed());
        end(next, token, [self.holder, self.waiter]).await;
    }

    /// The server does not know the hold any more: told, and granted to the waiter.
    pub(crate) async fn ends_lost(self, what: &str) {
        let begun = Instant::now();
        let reason = timeout(BOUND, self.guard.lost()).await.expect("told");
        let told = begun.elapsed();
        // The other reason if the waiter was faster than the holder.
        assert!(matches!(reason, LossReason::ServerLostData | LossReason::TakenOver), "{reason}");
        let next = timeout(BOUND, self.waiting).await.expect("a waiter is stuck").expect("granted");
        println!(
            "{what}: told ({reason}) after {told:?}, granted to the waiter after {:?}",
            begun.elapsed()
        );
        end(next, self.guard.fencing_token(), [self.holder, self.waiter]).await;
    }
}

async fn end(next: Guard, token: u64, clients: [LockClient; 2]) {
    assert!(next.fencing_token() > token, "a new grant has a larger token");
    timeout(BOUND, answered(&next)).await.expect("answered").expect("held");
    timeout(BOUND, next.unlock()).await.expect("answered").expect("released");
    for client in clients {
        let report =
            timeout(BOUND, client.shutdown(BOUND)).await.expect("an end").expect("in time");
        assert!(report.is_clean(), "{report:?}");
    }
}

/// What the server says of a hold, once it says anything.
pub(crate) async fn answered(guard: &Guard) -> Result<()> {
    loop {
        match guard.verify().await {
            Err(error) if error.is_transient() => {
                tokio::time::sleep(Duration::from_millis(20)).await
            }
            answer => return answer,
        }
    }
}
