//! One task, one name, nobody else.

use serde_json::Value;
use serde_json::json;

use crate::Lock;
use crate::Mode;
use crate::Service;
use crate::now;

pub(crate) async fn run<S: Service>(service: &S, name: &str, mode: Mode, count: u64) -> Value {
    let lock = service.shared(name, mode);
    let mut times = Vec::new();
    for _ in 0..count {
        let start = now();
        S::Lock::release(lock.acquire().await).await;
        times.push(now() - start);
    }
    json!({ "ns": times, "end": now() })
}
