//! One task, one name, nobody else: lock and unlock beside a bare client that runs the same
//! scripts.
//!
//! `cargo bench --package bench --bench uncontended`, with a server at `REDIS_URL` (default
//! `redis://127.0.0.1:6379`). Prints medians of alternating blocks and their ratio to the floor of
//! the same placement; absolute times depend on the machine.

#[path = "../src/wire.rs"]
#[allow(dead_code, reason = "shared with the worker, which uses all of it")]
mod wire;

use std::time::Duration;
use std::time::Instant;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::ClusterHash;
use fred::types::CustomCommand;
use fred::types::Value;
use fred::types::config::Config;
use fred::types::config::ConnectionConfig;
use fred::types::config::PerformanceConfig;
use redis_reentrant_lock::Driver;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Mutex;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::sync::oneshot;

use crate::wire::ACQUIRE;
use crate::wire::Names;
use crate::wire::RELEASE;
use crate::wire::Stands;

const BLOCKS: usize = 30;
const PAIRS: u32 = 300;

fn main() {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure(url));
}

async fn measure(url: String) {
    let bare = Bare::connect(&url).await;
    let far = FarBare::start(url.clone());
    let thread = client(&url, Driver::Thread).await;
    let current = client(&url, Driver::Current).await;
    let (with_thread, with_current) = (lock(&thread), lock(&current));
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..BLOCKS {
        times[0].push(block(async || bare.pair().await).await);
        times[1].push(block(async || pair(&with_current).await).await);
        times[2].push(block(async || far.pair().await).await);
        times[3].push(block(async || pair(&with_thread).await).await);
    }
    let [floor, own, far_floor, far_own] = times.map(median);
    println!("lock + unlock, median of {BLOCKS} blocks of {PAIRS}");
    println!("  bare client on the caller's runtime {floor:>9.1?}");
    println!("  Driver::Current                     {own:>9.1?}  {:.2} x that", ratio(own, floor));
    println!("  bare client on its own thread       {far_floor:>9.1?}");
    println!(
        "  Driver::Thread                      {far_own:>9.1?}  {:.2} x that",
        ratio(far_own, far_floor)
    );
    for client in [thread, current] {
        client.shutdown(Duration::from_secs(1)).await.expect("shut down");
    }
}

fn ratio(time: Duration, floor: Duration) -> f64 {
    time.as_secs_f64() / floor.as_secs_f64()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The time of one pair, over a block of them.
async fn block(pair: impl AsyncFn()) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "a measurement, not a lease")]
    let start = Instant::now();
    for _ in 0..PAIRS {
        pair().await;
    }
    start.elapsed() / PAIRS
}

async fn client(url: &str, driver: Driver) -> LockClient {
    LockClient::builder().url(url).driver(driver).connect().await.expect("connected")
}

fn lock(client: &LockClient) -> Mutex {
    client.mutex(format!("bench:{}", client.id())).expect("a name")
}

async fn pair(lock: &Mutex) {
    lock.lock().await.expect("locked").unlock().await.expect("unlocked");
}

/// The same script texts and arguments through a client without any of ours around it.
struct Bare {
    client: Client,
    acquire: Vec<String>,
    release: Vec<String>,
}

impl Bare {
    async fn connect(url: &str) -> Self {
        let mut connection = ConnectionConfig::default();
        connection.tcp.nodelay = Some(true);
        let performance = PerformanceConfig {
            default_command_timeout: Duration::from_secs(1),
            ..Default::default()
        };
        let config = Config::from_url(url).expect("a URL");
        let client = Client::new(config, Some(performance), Some(connection), None);
        client.init().await.expect("connected");
        let names = Names::of(&format!("bench:{}", client.id()));
        let field = "6e3d30b7-83b1-433a-9335-5e8b9916d3ac:1";
        let (acquire, release) =
            (Self::load(&client, &ACQUIRE).await, Self::load(&client, &RELEASE).await);
        let acquire = names.acquire(&acquire, field, Stands::InLine).map(str::to_owned).into();
        let release = names.release(&release, field).map(str::to_owned).into();
        Self { client, acquire, release }
    }

    async fn load(client: &Client, script: &str) -> String {
        let command = CustomCommand::new_static("SCRIPT", ClusterHash::FirstKey, false);
        client.custom(command, vec!["LOAD".to_owned(), script.to_owned()]).await.expect("loaded")
    }

    async fn pair(&self) {
        self.run(&self.acquire).await;
        self.run(&self.release).await;
    }

    async fn run(&self, args: &[String]) {
        let command = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
        let _: Value = self.client.custom(command, args.to_vec()).await.expect("a reply");
    }
}

/// The bare client on a thread of its own, asked through a channel: which script, and where to say
/// that it ran.
struct FarBare(mpsc::UnboundedSender<(bool, oneshot::Sender<()>)>);

impl FarBare {
    fn start(url: String) -> Self {
        let (sender, mut asked) = mpsc::unbounded_channel::<(bool, oneshot::Sender<()>)>();
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let bare = Bare::connect(&url).await;
                while let Some((acquire, done)) = asked.recv().await {
                    bare.run(if acquire { &bare.acquire } else { &bare.release }).await;
                    let _ = done.send(());
                }
            });
        });
        Self(sender)
    }

    async fn pair(&self) {
        for acquire in [true, false] {
            let (done, answer) = oneshot::channel();
            self.0.send((acquire, done)).expect("its thread runs");
            answer.await.expect("a reply");
        }
    }
}
