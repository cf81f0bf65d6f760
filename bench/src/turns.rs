//! Hand-over: several processes take turns on one name.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::Lock;
use crate::Service;
use crate::now;

/// Holds the lock `rounds` times; `hold` and `pause` are long enough for another to begin to wait.
pub(crate) async fn run<S: Service>(
    service: &S,
    name: &str,
    rounds: u64,
    hold: Duration,
    pause: Duration,
) -> Value {
    let lock = service.lock(name);
    lock.prepare().await;
    let mut turns = Vec::new();
    for _ in 0..rounds {
        let asked = now();
        let guard = lock.acquire().await;
        let granted = now();
        tokio::time::sleep(hold).await;
        let released = now();
        S::Lock::release(guard).await;
        turns.push([asked, granted, released]);
        tokio::time::sleep(pause).await;
    }
    json!({ "turns": turns })
}
