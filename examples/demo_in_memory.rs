//! The scenes of `cargo xtask demo` without a server: several clients in one process, on the
//! in-memory backend.
//!
//! Every line is marked `[in-memory]`; every claim is checked, and the process exits with 1 if one
//! does not hold.

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::InMemoryServer;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LossReason;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::ReentrantLock;
use tokio::time::Instant;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    let stage =
        Stage { server: InMemoryServer::new(), started: Instant::now(), checks: AtomicU32::new(0) };
    let failed = [
        stage.scene("a look at the server first: preflight", preflight(&stage)).await,
        stage.scene("one task locks twice: the hold count", nested(&stage)).await,
        stage.scene("waiters sleep until a release wakes them", wake_up(&stage)).await,
        stage.scene("the watchdog keeps a short lease alive", watchdog(&stage)).await,
        stage.scene("the holder is killed: somebody else takes over", take_over(&stage)).await,
        stage
            .scene("the holder is frozen and goes on: it knows that it is late", freeze(&stage))
            .await,
        stage.scene("a force-unlock is noticed by the holder", force_unlock(&stage)).await,
        stage.scene("two branches of a join!, kept apart by scopes", scopes(&stage)).await,
    ];
    let (all, failed) = (failed.len(), failed.iter().filter(|failed| **failed).count());
    let (checks, took) =
        (stage.checks.load(Ordering::Relaxed), stage.started.elapsed().as_secs_f64());
    stage.say(
        "",
        &format!(
            "{all} scenes, {failed} failed; {checks} claims checked; one process; {took:.1} s"
        ),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What the scenes share.
struct Stage {
    server: InMemoryServer,
    started: Instant,
    checks: AtomicU32,
}

impl Stage {
    /// Plays a scene; true if it failed.
    async fn scene(&self, title: &str, scene: impl Future<Output = Outcome>) -> bool {
        self.say("", &format!("--- {title}"));
        let outcome = scene.await;
        if let Err(reason) = &outcome {
            self.say("", &format!("FAILED: {reason}"));
        }
        outcome.is_err()
    }

    /// One line of the timeline; `who` is a client, or nobody.
    fn say(&self, who: &str, text: &str) {
        println!("[in-memory] {:>10.6} s  {who:<2} {text}", self.started.elapsed().as_secs_f64());
    }

    /// A claim: said if it holds, the end of the scene if it does not.
    fn check(&self, holds: bool, claim: &str) -> Outcome {
        self.checks.fetch_add(1, Ordering::Relaxed);
        if !holds {
            return Err(format!("this does not hold: {claim}").into());
        }
        self.say("", &format!("  checked: {claim}"));
        Ok(())
    }

    async fn client(&self, lease: Duration) -> Result<LockClient, redis_reentrant_lock::Error> {
        LockClient::builder().in_memory(&self.server).lease(lease).connect().await
    }

    fn granted(&self, who: &str, guard: &Guard) {
        let (count, token) = (guard.hold_count(), guard.fencing_token());
        self.say(
            who,
            &format!("granted {}: hold count {count}, fencing token {token}", guard.name()),
        );
    }

    /// Says what the server has under the name, and gives the hold count; 0 if there is nothing.
    async fn show(&self, lock: &ReentrantLock) -> Result<u32, redis_reentrant_lock::Error> {
        let (holder, left) =
            (lock.holder().await?, lock.remaining_lease().await?.unwrap_or_default());
        let Some(holder) = holder else {
            self.say("", &format!("  {}: the key is gone", lock.name()));
            return Ok(0);
        };
        let field = format!("{}:{}", holder.client, holder.hold);
        let text = format!(
            "  {}: {{ {field}: {} }}  PTTL {} ms",
            lock.name(),
            holder.count,
            left.as_millis()
        );
        self.say("", &text);
        Ok(holder.count)
    }
}

async fn preflight(stage: &Stage) -> Outcome {
    let client = stage.client(PATIENCE).await?;
    let report = client.preflight("orders:42").await?;
    for line in report.to_string().lines() {
        stage.say("", &format!("  {line}"));
    }
    stage.check(report.is_usable(), "nothing stands in the way of locks")
}

async fn nested(stage: &Stage) -> Outcome {
    let client = stage.client(Duration::from_secs(30)).await?;
    let lock = client.reentrant_lock("orders:42")?;
    let outer = lock.lock().await?;
    stage.granted("A", &outer);
    let first = stage.show(&lock).await?;
    let inner = lock.lock().await?;
    stage.granted("A", &inner);
    let second = stage.show(&lock).await?;
    let same = inner.fencing_token() == outer.fencing_token();
    inner.unlock().await?;
    stage.say("A", "unlocked one level");
    let third = stage.show(&lock).await?;
    outer.unlock().await?;
    stage.say("A", "unlocked one level");
    let fourth = stage.show(&lock).await?;
    stage.check(
        [first, second, third, fourth] == [1, 2, 1, 0],
        "the hold count goes 1, 2, 1, gone",
    )?;
    stage.check(same, "both levels have the same fencing token")?;
    end(client).await
}

async fn wake_up(stage: &Stage) -> Outcome {
    let lease = Duration::from_secs(30);
    let clients =
        [stage.client(lease).await?, stage.client(lease).await?, stage.client(lease).await?];
    let held = clients[0].reentrant_lock("report")?.lock().await?;
    stage.granted("A", &held);
    let waiter = |who: &'static str, client: &LockClient| {
        let lock = client.reentrant_lock("report");
        async move {
            let guard = lock?.lock().await?;
            let at = Instant::now();
            stage.granted(who, &guard);
            guard.unlock().await.map(|()| at)
        }
    };
    let release = async {
        until(|| clients[1..].iter().all(|client| client.stats().subscriptions == 1)).await?;
        stage.say("", "  B and C are subscribed and asleep");
        stage.say("A", "releases");
        let released = Instant::now();
        held.unlock().await?;
        Ok::<_, Box<dyn Error + Send + Sync>>(released)
    };
    let (b, c, released) =
        tokio::join!(waiter("B", &clients[1]), waiter("C", &clients[2]), release);
    let (b, c, released) = (b?, c?, released?);
    let after = b.min(c).saturating_duration_since(released);
    stage.say("", &format!("  the first was awake {} µs after the release", after.as_micros()));
    let polled: u64 = clients.iter().map(|client| client.stats().fallback_grants).sum();
    stage.check(polled == 0, "both were woken, none by its fallback poll")?;
    for client in clients {
        end(client).await?;
    }
    Ok(())
}

async fn watchdog(stage: &Stage) -> Outcome {
    let lease = Duration::from_millis(500);
    let (a, b) = (stage.client(lease).await?, stage.client(lease).await?);
    let guard = a.reentrant_lock("import")?.lock().await?;
    stage.granted("A", &guard);
    let other = b.reentrant_lock("import")?;
    let until = Instant::now() + 4 * lease;
    let mut always = true;
    while Instant::now() < until {
        tokio::time::sleep(lease / 10).await;
        always &= other.remaining_lease().await?.is_some_and(|left| left <= lease);
    }
    stage.check(always, "in 4 leases the key never ran out and never got more than one lease")?;
    let denied = other.try_lock().await?.is_err();
    stage.check(denied && guard.is_held(), "another client is denied, the guard is held")?;
    let renewals = a.stats().renewals;
    stage.check(renewals >= 3, &format!("{renewals} renewals were confirmed"))?;
    guard.unlock().await?;
    stage.say("A", "unlocked");
    end(a).await?;
    end(b).await
}

async fn take_over(stage: &Stage) -> Outcome {
    let lease = Duration::from_millis(500);
    let (a, b) = (stage.client(lease).await?, stage.client(lease).await?);
    let guard = a.reentrant_lock("payments")?.lock().await?;
    stage.granted("A", &guard);
    stage.server.client(&a).kill();
    let killed = Instant::now();
    stage.say("A", "killed: nothing of it is released or renewed any more");
    let lock = b.reentrant_lock("payments")?;
    let left = stage.show(&lock).await?;
    stage.check(left == 1, "its key is still there")?;
    let taken = tokio::time::timeout(PATIENCE, lock.lock()).await??;
    stage.granted("B", &taken);
    let waited = killed.elapsed();
    stage.check(
        waited < 4 * lease,
        &format!("taken over {} ms later, with a lease of 500 ms", waited.as_millis()),
    )?;
    taken.unlock().await?;
    end(b).await
}

async fn freeze(stage: &Stage) -> Outcome {
    let lease = Duration::from_millis(500);
    let (a, b) = (stage.client(lease).await?, stage.client(lease).await?);
    let stale = a.reentrant_lock("invoices")?.lock().await?;
    stage.granted("A", &stale);
    stage.server.client(&a).set_frozen(true);
    stage.say("A", "frozen, as by SIGSTOP");
    let taken = tokio::time::timeout(PATIENCE, b.reentrant_lock("invoices")?.lock()).await??;
    stage.granted("B", &taken);
    stage.server.client(&a).set_frozen(false);
    let reason = tokio::time::timeout(PATIENCE, stale.lost()).await?;
    stage.say("A", &format!("goes on, and LOST invoices: {}", reason.as_str()));
    let (old, new) = (stale.fencing_token(), taken.fencing_token());
    stage.check(new > old, &format!("the fencing token of B is larger: {new} > {old}"))?;
    stage.check(taken.is_held(), "B still holds it")?;
    taken.unlock().await?;
    end(a).await?;
    end(b).await
}

async fn force_unlock(stage: &Stage) -> Outcome {
    let lease = Duration::from_secs(30);
    let (a, b) = (stage.client(lease).await?, stage.client(lease).await?);
    let guard = a.reentrant_lock("nightly")?.lock().await?;
    stage.granted("A", &guard);
    let asked = Instant::now();
    let forced = b.reentrant_lock("nightly")?.force_unlock().await?;
    stage.say("B", "force_unlock of nightly");
    let reason = tokio::time::timeout(PATIENCE, guard.lost()).await?;
    let after = asked.elapsed().as_micros();
    stage.say(
        "A",
        &format!(
            "LOST nightly: {}, {after} µs after the force-unlock was asked for",
            reason.as_str()
        ),
    );
    stage.check(forced && reason == LossReason::ForceUnlocked, "the holder was told, and why")?;
    stage.check(!guard.is_held(), "its guard does not claim to hold")?;
    let refused = guard.unlock().await.err();
    let text = refused.as_ref().map(ToString::to_string).unwrap_or_default();
    stage
        .check(refused.is_some_and(|error| error.is_lost()), &format!("its unlock says: {text}"))?;
    end(a).await?;
    end(b).await
}

async fn scopes(stage: &Stage) -> Outcome {
    let client = stage.client(Duration::from_secs(30)).await?;
    let lock = client.reentrant_lock("cache")?;
    let inside = AtomicBool::new(false);
    let branch = |name: &'static str| {
        let (lock, inside) = (&lock, &inside);
        async move {
            let guard = lock.lock().await?;
            let alone = !inside.swap(true, Ordering::SeqCst);
            stage.say("A", &format!("{name} branch: in, hold count {}", guard.hold_count()));
            tokio::time::sleep(Duration::from_millis(20)).await;
            inside.store(false, Ordering::SeqCst);
            stage.say("A", &format!("{name} branch: out"));
            guard.unlock().await.map(|()| alone)
        }
    };
    stage.say("", "  without scopes both branches are one task, so one owner:");
    let (left, right) = tokio::join!(branch("left"), branch("right"));
    stage.check(!(left? && right?), "the second branch re-entered: nothing keeps them apart")?;
    stage.say("", "  with Owner::new().scope(…) around each branch:");
    let (left, right) =
        tokio::join!(Owner::new().scope(branch("left")), Owner::new().scope(branch("right")));
    stage.check(left? && right?, "the branches never held it together")?;
    end(client).await
}

/// Shuts a client down; it must have nothing left.
async fn end(client: LockClient) -> Outcome {
    let report = client.shutdown(Duration::from_secs(1)).await?;
    if report.is_clean() { Ok(()) } else { Err(report.to_string().into()) }
}

/// Waits until something is so.
async fn until(so: impl Fn() -> bool) -> Outcome {
    let waiting = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    Ok(tokio::time::timeout(PATIENCE, waiting).await?)
}
