//! The one trap of reentrant locks in async code, and its cure.
//!
//! The branches of `join!`, `select!` and `FuturesUnordered` run in one task. The task is the
//! owner, so they re-enter each other's locks. A scope makes each branch an owner of its own.
//!
//! ```text
//! cargo run --example owner_scope
//! ```
//!
//! `REDIS_URL` says where Redis is; without it, on this machine.

use std::error::Error;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Owner;
use tokio::time::Instant;

type Outcome = Result<(), redis_reentrant_lock::Error>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = LockClient::connect(&url).await?;

    // The trap: both branches are this task.
    let room = Room::default();
    let (a, b) = tokio::join!(room.visit(&client), room.visit(&client));
    a.and(b)?;
    println!("join! without scopes: {} at a time", room.most());
    assert_eq!(room.most(), 2);

    // The cure.
    let room = Room::default();
    let (a, b) = tokio::join!(
        Owner::new().scope(room.visit(&client)),
        Owner::new().scope(room.visit(&client)),
    );
    a.and(b)?;
    println!("join! with scopes: {} at a time", room.most());
    assert_eq!(room.most(), 1);

    // The other cure: a mutex, where every acquisition is its own owner. It cannot be nested.
    let room = Room::default();
    let (a, b) = tokio::join!(room.visit_by_mutex(&client), room.visit_by_mutex(&client));
    a.and(b)?;
    println!("join! with a mutex: {} at a time", room.most());
    assert_eq!(room.most(), 1);

    // The other way round: one owner for several tasks. The child re-enters what its parent holds.
    let owner = Owner::new();
    let outer = owner.scope(client.reentrant_lock("example:room")?.lock()).await?;
    let lock = client.reentrant_lock("example:room")?;
    let child = tokio::spawn(owner.scope(async move {
        let inner = lock.lock().await?;
        let count = inner.hold_count();
        inner.unlock().await?;
        Ok::<_, redis_reentrant_lock::Error>(count)
    }));
    println!("a task in its parent's scope: hold count {}", child.await??);
    outer.unlock().await?;

    client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Counts who is inside.
#[derive(Default)]
struct Room {
    inside: AtomicU32,
    most: AtomicU32,
}

impl Room {
    async fn visit(&self, client: &LockClient) -> Outcome {
        let guard = client.reentrant_lock("example:room")?.lock().await?;
        self.stay().await;
        guard.unlock().await
    }

    async fn visit_by_mutex(&self, client: &LockClient) -> Outcome {
        let guard = client.mutex("example:room")?.lock().await?;
        self.stay().await;
        guard.unlock().await
    }

    async fn stay(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        // Long enough for the other one to come in, if it can.
        let until = Instant::now() + Duration::from_millis(500);
        while self.most() < 2 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> u32 {
        self.most.load(Ordering::SeqCst)
    }
}
