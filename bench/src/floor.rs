//! The floor: the same scripts and arguments through a bare client of fred, woken by a second one.
//! No queue, no renewal, no clean-up, no validity.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::interfaces::EventInterface;
use fred::interfaces::PubsubInterface;
use fred::types::ClusterHash;
use fred::types::CustomCommand;
use fred::types::Value;
use fred::types::config::Config;
use fred::types::config::ConnectionConfig;
use fred::types::config::PerformanceConfig;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::sync::oneshot;

use crate::wire::ACQUIRE;
use crate::wire::Names;
use crate::wire::RELEASE;
use crate::wire::Stands;

/// Of waiters: messages are hints.
pub(crate) const FALLBACK: Duration = Duration::from_secs(5);

type Wakers = Arc<Mutex<HashMap<String, Arc<Notify>>>>;

/// Locks without anything around them.
#[derive(Clone)]
pub(crate) struct Floor {
    place: Place,
    wakers: Wakers,
    subscribe: mpsc::UnboundedSender<(String, oneshot::Sender<()>)>,
    client_id: Arc<str>,
    next_hold: Arc<AtomicU64>,
}

#[derive(Clone)]
enum Place {
    /// On the caller's runtime.
    Near(Bare),
    /// On a thread of its own, asked through a channel.
    Far(mpsc::UnboundedSender<(Ask, oneshot::Sender<i64>)>),
}

impl Floor {
    pub(crate) async fn near(url: &str) -> Self {
        let wakers = Wakers::default();
        let (subscribe, wanted) = mpsc::unbounded_channel();
        tokio::spawn(listen(url.to_owned(), Arc::clone(&wakers), wanted));
        Self::new(Place::Near(Bare::connect(url).await), wakers, subscribe)
    }

    pub(crate) fn far(url: &str) -> Self {
        let wakers = Wakers::default();
        let (subscribe, wanted) = mpsc::unbounded_channel();
        let (sender, asked) = mpsc::unbounded_channel();
        let (url, listeners) = (url.to_owned(), Arc::clone(&wakers));
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                tokio::spawn(listen(url.clone(), listeners, wanted));
                answer(Bare::connect(&url).await, asked).await;
            });
        });
        Self::new(Place::Far(sender), wakers, subscribe)
    }

    fn new(
        place: Place,
        wakers: Wakers,
        subscribe: mpsc::UnboundedSender<(String, oneshot::Sender<()>)>,
    ) -> Self {
        let client_id = uuid::Uuid::new_v4().to_string().into();
        Self { place, wakers, subscribe, client_id, next_hold: Arc::default() }
    }

    async fn run(&self, ask: Ask) -> i64 {
        match &self.place {
            Place::Near(bare) => bare.run(ask).await,
            Place::Far(thread) => {
                let (done, answer) = oneshot::channel();
                thread.send((ask, done)).expect("its thread runs");
                answer.await.expect("a reply")
            }
        }
    }
}

impl bench::Service for Floor {
    type Lock = FloorLock;

    fn lock(&self, name: &str) -> FloorLock {
        let names = Arc::new(Names::of(name));
        let waker = Arc::clone(wakers(&self.wakers).entry(names.channel.clone()).or_default());
        FloorLock { floor: self.clone(), names, waker }
    }
}

#[derive(Clone)]
pub(crate) struct FloorLock {
    floor: Floor,
    names: Arc<Names>,
    waker: Arc<Notify>,
}

pub(crate) struct Held {
    lock: FloorLock,
    field: String,
}

impl bench::Lock for FloorLock {
    type Guard = Held;

    async fn prepare(&self) {
        let (done, subscribed) = oneshot::channel();
        let _ = self.floor.subscribe.send((self.names.channel.clone(), done));
        let _ = subscribed.await;
    }

    async fn acquire(&self) -> Held {
        let hold = self.floor.next_hold.fetch_add(1, Ordering::Relaxed);
        let field = format!("{}:{hold}", self.floor.client_id);
        loop {
            let names = Arc::clone(&self.names);
            if self.floor.run(Ask { names, field: field.clone(), acquire: true }).await == 1 {
                return Held { lock: self.clone(), field };
            }
            let _ = tokio::time::timeout(FALLBACK, self.waker.notified()).await;
        }
    }

    async fn release(held: Held) {
        let names = Arc::clone(&held.lock.names);
        held.lock.floor.run(Ask { names, field: held.field, acquire: false }).await;
    }
}

struct Ask {
    names: Arc<Names>,
    field: String,
    acquire: bool,
}

/// The client of fred, with the digests of the scripts.
#[derive(Clone)]
struct Bare {
    client: Client,
    acquire: Arc<str>,
    release: Arc<str>,
}

impl Bare {
    async fn connect(url: &str) -> Self {
        let client = connect(url).await;
        let (acquire, release) =
            (load(&client, &ACQUIRE).await.into(), load(&client, &RELEASE).await.into());
        Self { client, acquire, release }
    }

    /// The reply's code.
    async fn run(&self, ask: Ask) -> i64 {
        let Ask { names, field, acquire } = ask;
        let args: Vec<Value> = if acquire {
            // A message wakes any one of a process's waiters, so none of them may be meant.
            names.acquire(&self.acquire, &field, Stands::Nowhere).map(Value::from).into()
        } else {
            names.release(&self.release, &field).map(Value::from).into()
        };
        let command = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
        let reply: Value = self.client.custom(command, args).await.expect("a reply");
        let Value::Array(parts) = reply else { panic!("an unexpected reply") };
        parts[0].as_i64().expect("a code")
    }
}

async fn connect(url: &str) -> Client {
    let mut connection = ConnectionConfig::default();
    connection.tcp.nodelay = Some(true);
    let performance = PerformanceConfig {
        default_command_timeout: Duration::from_secs(1),
        broadcast_channel_capacity: 16_384,
        ..Default::default()
    };
    let config = Config::from_url(url).expect("a URL");
    let client = Client::new(config, Some(performance), Some(connection), None);
    client.init().await.expect("connected");
    client
}

async fn load(client: &Client, script: &str) -> String {
    let command = CustomCommand::new_static("SCRIPT", ClusterHash::FirstKey, false);
    client.custom(command, vec!["LOAD".to_owned(), script.to_owned()]).await.expect("loaded")
}

/// Runs what callers ask for, as many at a time as they like.
async fn answer(bare: Bare, mut asked: mpsc::UnboundedReceiver<(Ask, oneshot::Sender<i64>)>) {
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some((ask, done)) = asked.recv() => {
                let bare = bare.clone();
                running.push(async move {
                    let code = bare.run(ask).await;
                    let _ = done.send(code);
                });
            }
            Some(()) = running.next() => {}
            else => return,
        }
    }
}

/// Subscribes to what is wanted, and wakes one waiter for each message.
async fn listen(
    url: String,
    wakers: Wakers,
    mut wanted: mpsc::UnboundedReceiver<(String, oneshot::Sender<()>)>,
) {
    let client = connect(&url).await;
    let mut messages = client.message_rx();
    loop {
        tokio::select! {
            Some((channel, done)) = wanted.recv() => {
                client.subscribe(channel).await.expect("subscribed");
                // fred does not wait for the server's confirmation.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let _ = done.send(());
            }
            message = messages.recv() => {
                let Ok(message) = message else { continue };
                let waker = self::wakers(&wakers).get(&*message.channel).cloned();
                if let Some(waker) = waker {
                    waker.notify_one();
                }
            }
            else => return,
        }
    }
}

fn wakers(wakers: &Wakers) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Notify>>> {
    wakers.lock().unwrap_or_else(PoisonError::into_inner)
}
