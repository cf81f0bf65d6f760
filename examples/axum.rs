//! A web service that locks for the length of a request, with a readiness endpoint and a graceful end.
//!
//! ```text
//! cargo run --example axum                      serves a few requests to itself, then ends
//! ADDRESS=127.0.0.1:3000 cargo run --example axum       serves until SIGTERM or Ctrl-C
//! ```
//!
//! `REDIS_URL` says where Redis is; without it, on this machine.

use std::error::Error;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::Path;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::routing::post;
use redis_reentrant_lock::LockClient;
use serde_json::Value;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;
use tokio::sync::oneshot;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    // The service starts, and says that it is not ready, before Redis does. With `connect` it would not start.
    let locks = LockClient::connect_lazy(&url)?;
    let app = Router::new()
        .route("/orders/{id}/ship", post(ship))
        .route("/ready", get(ready))
        .route("/stats", get(stats))
        .with_state(locks.clone());

    let address = std::env::var("ADDRESS").ok();
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    println!("serving on http://{}", listener.local_addr()?);
    let (stop, stopped) = oneshot::channel::<()>();
    let visitor = match address {
        Some(_) => tokio::spawn(async move { until_interrupted(stop).await }),
        None => tokio::spawn(visit(listener.local_addr()?.to_string(), stop)),
    };

    // First the requests under way, which hold locks; then the locks.
    axum::serve(listener, app).with_graceful_shutdown(async { drop(stopped.await) }).await?;
    let report = locks.shutdown(Duration::from_secs(5)).await?;
    println!("ended: {report}");
    visitor.await?
}

/// One order is shipped by one request at a time, on all instances of the service.
///
/// A mutex: a handler runs in the task of its connection, and no two requests shall ever re-enter each other's locks.
async fn ship(
    Path(id): Path<u32>,
    State(locks): State<LockClient>,
) -> Result<Json<Value>, (StatusCode, String)> {
    let lock = locks.mutex(format!("example:orders:{id}")).map_err(refusal)?;
    let wait = Duration::from_secs(1);
    let Ok(guard) = lock.try_lock_for(wait).await.map_err(refusal)? else {
        return Err((StatusCode::CONFLICT, format!("order {id} is being shipped by another request\n")));
    };
    // If the client goes away axum drops this future, and the guard with it: that releases too.
    guard.run(tokio::time::sleep(Duration::from_millis(50))).await.map_err(refusal)?;
    let shipped = json!({ "order": id, "token": guard.fencing_token() });
    guard.unlock().await.map_err(refusal)?;
    Ok(Json(shipped))
}

/// What an error of the lock means to a client of the service.
fn refusal(error: redis_reentrant_lock::Error) -> (StatusCode, String) {
    let status = if error.is_transient() || error.is_lost() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    // The text names servers and keys: for the log, not for the client.
    eprintln!("refused: {error}");
    (status, "not now\n".to_owned())
}

/// For the load balancer: send requests only while Redis answers.
async fn ready(State(locks): State<LockClient>) -> Result<&'static str, (StatusCode, String)> {
    locks.ping().await.map(|()| "ready\n").map_err(refusal)
}

/// For the monitoring. Worth an alarm: `losses`, and `renewal_failures` that grow.
async fn stats(State(locks): State<LockClient>) -> Json<Value> {
    let stats = locks.stats();
    Json(json!({
        "grants": stats.grants,
        "waits": stats.waits,
        "renewal_failures": stats.renewal_failures,
        "losses": stats.losses,
        "holds": stats.holds,
        "waiters": stats.waiters,
    }))
}

async fn until_interrupted(stop: oneshot::Sender<()>) -> Result<(), Failure> {
    // What a service manager sends, and by default ends a process at once, with its locks left to their leases.
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminated.recv() => {}
    }
    drop(stop);
    Ok(())
}

/// A client of the service, for running this where nobody is.
async fn visit(address: String, stop: oneshot::Sender<()>) -> Result<(), Failure> {
    let ready = async {
        while !request(&address, "GET /ready").await?.contains("200 OK") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok::<_, Failure>(())
    };
    tokio::time::timeout(Duration::from_secs(10), ready).await??;
    let one = || request(&address, "POST /orders/7/ship");
    for answer in <[_; 3]>::from(tokio::try_join!(one(), one(), one())?) {
        println!("{}", answer.lines().last().unwrap_or_default());
        assert!(answer.contains("200 OK"), "{answer}");
    }
    let stats = request(&address, "GET /stats").await?;
    println!("{}", stats.lines().last().unwrap_or_default());
    drop(stop);
    Ok(())
}

async fn request(address: &str, line: &str) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("{line} HTTP/1.1\r\nHost: example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
