//! One process under load, over the public API: `proof-load holds|waiters|clients|leak|losses URL NUMBER…`.
//!
//! It says how far it is in lines of JSON on standard output; where it has to wait for others it
//! reads a line.

#![expect(clippy::disallowed_methods, reason = "a development program: it measures real time")]

mod clients;
mod holds;
mod leak;
mod losses;
mod measure;
mod waiters;

use redis_reentrant_lock::Result;
use serde_json::Value;
use tokio::io::AsyncBufReadExt;
use tokio::io::BufReader;
use tokio::io::Lines;
use tokio::io::Stdin;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> =
        args.iter().skip(2).map(|text| text.parse().expect("a number")).collect();
    let [what, url] = &args[..2] else { unreachable!("two words") };
    match (what.as_str(), numbers.as_slice()) {
        ("holds", &[holds, lease_ms, seconds]) => holds::run(url, holds, lease_ms, seconds).await,
        ("waiters", &[waiters]) => waiters::run(url, waiters).await,
        ("clients", &[clients]) => clients::run(url, clients).await,
        ("leak", &[operations, cancellations]) => leak::run(url, operations, cancellations).await,
        ("losses", &[holds, lease_ms]) => losses::run(url, holds, lease_ms).await,
        _ => panic!("proof-load holds|waiters|clients|leak|losses URL NUMBER…"),
    }
}

fn say(line: &Value) {
    println!("{line}");
}

/// What this process is told to do.
struct Orders(Lines<BufReader<Stdin>>);

impl Orders {
    fn new() -> Self {
        Self(BufReader::new(tokio::io::stdin()).lines())
    }

    /// The next one; none at the end of the input.
    async fn next(&mut self) -> Option<String> {
        self.0.next_line().await.ok().flatten()
    }
}
