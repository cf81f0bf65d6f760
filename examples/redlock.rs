//! A lock over three servers, of which one is killed: the lock stays held, and can be taken again.
//!
//! ```text
//! cargo run --example redlock
//! ```
//!
//! It starts three private `redis-server`s, which must be installed, and stops them in the end.

use std::error::Error;
use std::net::TcpListener;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Redlock;
use redis_reentrant_lock::RedlockGuard;

/// Short, so that the example ends soon. A server that is started again counts after this time.
const LEASE: Duration = Duration::from_secs(2);

/// A server without persistence, which ends with this value.
struct PrivateServer {
    process: Child,
    port: u16,
}

impl PrivateServer {
    fn start() -> std::io::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { process, port })
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut servers = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let server = PrivateServer::start()?;
        let url = format!("redis://127.0.0.1:{}", server.port);
        // It tries until the server is there.
        clients.push(LockClient::builder().url(url).lease(LEASE).connect().await?);
        servers.push(server);
    }
    let redlock = Redlock::new(clients)?;
    // These servers were never used before. In a service: wait for as long as a lease instead.
    println!("{} servers are new", redlock.assume_fresh());

    let guard = redlock.lock("orders:42").await?;
    println!("held, token {}", guard.fencing_token());

    servers[0].kill();
    tokio::time::sleep(2 * LEASE).await;
    for server in redlock.status() {
        println!("{}: {}", server.address, server.why_not.as_deref().unwrap_or("counts"));
    }
    guard.ensure(Duration::from_millis(100))?;
    println!("still held, after twice the lease and without one server");
    let first = guard.fencing_token();
    guard.unlock().await?;

    let second =
        redlock.with("orders:42", async |guard: &RedlockGuard| guard.fencing_token()).await?;
    println!("held again, token {second}");
    assert!(second > first, "tokens grow");

    // Without a majority nobody gets it.
    servers[1].kill();
    let error = redlock.try_lock("orders:42").await.expect_err("one of three");
    println!("{error}");
    Ok(())
}
