//! A web service that holds a lock for the length of a request, with a readiness endpoint, and with
//! an end that loses no request and leaves no lock behind.
//!
//! ```text
//! cargo run --example axum                            sends itself some requests, then SIGTERM
//! ADDRESS=127.0.0.1:3000 cargo run --example axum     serves until SIGTERM
//! ```
//!
//! A second SIGTERM cuts the requests short that are in progress.
//!
//! `REDIS_URL` says where Redis is; without it, on this machine.

use std::error::Error;
use std::future::IntoFuture;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::Path;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::routing::post;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
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

/// How long requests in progress may take after SIGTERM, and then the releases. Together less than
/// the grace period of the service manager, which sends SIGKILL at its end: 30 s in Kubernetes.
const REQUESTS: Duration = Duration::from_secs(20);
const RELEASES: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // From here on SIGTERM does not end the process by itself.
    let mut terminated = signal(SignalKind::terminate())?;
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    // The service starts, and says that it is not ready, before Redis does. With `connect` it would
    // not start.
    let locks = LockClient::builder().url(url).prefix("example:").connect_lazy()?;
    let app = Router::new()
        .route("/orders/{id}/ship", post(ship))
        .route("/ready", get(ready))
        .route("/stats", get(stats))
        .with_state(locks.clone());

    let address = std::env::var("ADDRESS").ok();
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    println!("serving on http://{}", listener.local_addr()?);
    let visitor = address.is_none().then(|| tokio::spawn(visit(listener.local_addr())));

    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async { drop(stopped.await) });
    let mut server = tokio::spawn(server.into_future());
    terminated.recv().await;

    // First no new requests, and the end of those in progress, which hold locks.
    drop(stop);
    tokio::select! {
        ended = &mut server => ended??,
        () = tokio::time::sleep(REQUESTS) => println!("requests take too long, and lose their locks"),
        _ = terminated.recv() => println!("requests are cut short, and lose their locks"),
    }
    // Then the locks: of requests that were cut short, and of tasks in the background.
    println!("ended: {}", locks.shutdown(RELEASES).await?);
    match visitor {
        Some(visitor) => visitor.await?,
        None => Ok(()),
    }
}

/// One order is shipped by one request at a time, on all instances of the service.
///
/// A mutex: a handler runs in the task of its connection, and no two requests shall ever re-enter
/// each other's locks.
async fn ship(
    Path(id): Path<u32>,
    State(locks): State<LockClient>,
) -> Result<Json<Value>, (StatusCode, String)> {
    let lock = locks.mutex(format!("orders:{id}")).map_err(refusal)?;
    let options = LockOptions::new().wait(Duration::from_secs(1));
    // If the lock is lost, or if whoever sent the request goes away, the work is dropped.
    let shipped = lock.with_options(options, async |guard| {
        work().await;
        json!({ "order": id, "token": guard.fencing_token() })
    });
    match shipped.await.map_err(refusal)? {
        Ok(shipped) => Ok(Json(shipped)),
        Err(_) => {
            Err((StatusCode::CONFLICT, format!("order {id} is being shipped by another request\n")))
        }
    }
}

/// What a request does; `WORK_MS` makes it longer.
async fn work() {
    let time = std::env::var("WORK_MS").ok().and_then(|time| time.parse().ok());
    tokio::time::sleep(Duration::from_millis(time.unwrap_or(50))).await;
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

/// A client of the service, for running this where nobody is. At its end it is the service manager.
async fn visit(address: std::io::Result<std::net::SocketAddr>) -> Result<(), Failure> {
    let address = address?.to_string();
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
    let kill = std::process::Command::new("kill").arg(std::process::id().to_string()).status()?;
    if kill.success() { Ok(()) } else { Err("SIGTERM was not sent".into()) }
}

async fn request(address: &str, line: &str) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "{line} HTTP/1.1\r\nHost: example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
