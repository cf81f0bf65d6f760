//! Locks can be taken away. Three ways in which it happens, and how the holder hears of it.
//!
//! ```text
//! cargo run --example lost_lease
//! ```
//!
//! `REDIS_URL` says where Redis is; without it, on this machine.

use std::error::Error;
use std::future::pending;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::LossReason;

type Outcome = Result<(), Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = LockClient::connect(&url).await?;
    let operator = LockClient::connect(&url).await?;

    force_unlocked(&client, &operator).await?;
    deleted(&client, &url).await?;
    expired(&client).await?;

    operator.shutdown(Duration::from_secs(5)).await?;
    client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Somebody knows better and takes the lock away: `run` ends the work.
async fn force_unlocked(client: &LockClient, operator: &LockClient) -> Outcome {
    let guard = client.mutex("example:lost")?.lock().await?;
    let theirs = operator.mutex("example:lost")?;
    let force = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        theirs.force_unlock().await
    };

    // The work would never end by itself.
    let (worked, forced) = tokio::join!(guard.run(pending::<()>()), force);
    assert!(forced?);
    match worked {
        Err(error) if error.is_lost() => println!("work ended: {error}"),
        other => return Err(format!("the loss went unnoticed: {other:?}").into()),
    }

    // There is nothing left to release, and `unlock` says so.
    assert!(guard.unlock().await.is_err_and(|error| error.is_lost()));
    Ok(())
}

/// A `DEL` tells nobody. A watched hold learns of it at its next renewal, any hold when it asks.
async fn deleted(client: &LockClient, url: &str) -> Outcome {
    let guard = client.mutex("example:lost")?.lock().await?;
    let mut redis = redis::Client::open(url)?.get_connection()?;
    redis::cmd("DEL").arg("example:lost").exec(&mut redis)?;

    assert!(guard.is_held(), "a clock read, it cannot know yet");
    match guard.verify().await {
        Err(error) if error.is_lost() => println!("verify: {error}"),
        other => return Err(format!("the loss went unnoticed: {other:?}").into()),
    }
    assert!(!guard.is_held());
    Ok(())
}

/// A fixed lease runs out. `lost` can be one branch of a `select!`.
async fn expired(client: &LockClient) -> Outcome {
    let options = LockOptions::new().lease(Duration::from_millis(300));
    let guard = client.mutex("example:lost")?.lock_with(options).await??;

    // Before a step that takes up to a second: is there that much time left?
    if let Err(error) = guard.ensure(Duration::from_secs(1)) {
        println!("ensure: {error}");
    }
    tokio::select! {
        reason = guard.lost() => {
            assert_eq!(reason, LossReason::Expired);
            println!("lost: {reason}");
        }
        () = tokio::time::sleep(Duration::from_secs(10)) => return Err("the lease never ended".into()),
    }
    Ok(())
}
