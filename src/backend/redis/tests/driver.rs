//! Drives a backend by its events.

use crate::backend::ServerId;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::sync::Notify;
use tokio::sync::oneshot;

use crate::backend::Backend;
use crate::backend::BackendEvent;
use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::OpId;
use crate::backend::Outcome;
use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::redis::RedisBackend;
use crate::backend::redis::RedisConfig;
use crate::backend::redis::calls::Connection;
use crate::backend::redis::locator::PrimaryTerm;
use crate::backend::redis::resp::Protocol;
use crate::backend::redis::wire::Wire;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Nothing takes as long, unless it never happens.
const NEVER: Duration = Duration::from_secs(10);

/// Increments a key, so that a repeated execution shows.
pub(crate) static COUNT: Script =
    Script { name: "test/count", source: "return redis.call('INCR', KEYS[1])" };
/// Appends to a list, so that the order of execution shows.
pub(crate) static APPEND: Script =
    Script { name: "test/append", source: "return redis.call('RPUSH', KEYS[1], ARGV[1])" };
/// Gives its argument back.
pub(crate) static ECHO: Script = Script { name: "test/echo", source: "return ARGV[1]" };

pub(crate) fn script(script: &'static Script, keys: &[&str], args: &[&str]) -> Call {
    let (keys, args) = (keys.iter().collect(), args.iter().collect());
    Call::Script(ScriptCall::new(script, keys, args).into())
}

pub(crate) fn count(key: &str) -> Call {
    script(&COUNT, &[key], &[])
}

/// Path and text of every file below `lua/`.
pub(crate) fn lua_files() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("lua")];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).expect("a script");
                files.push((path, text));
            }
        }
    }
    files
}

/// A connection with this many bytes of room in each direction, and the server's end.
pub(crate) fn connection(room: usize) -> (Connection, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(room);
    let connection = Connection {
        wire: Wire::new(Box::new(ours), Protocol::Resp2),
        ended: oneshot::channel().0,
        end: Arc::new(Notify::new()),
        round_trip: Duration::ZERO,
        term: PrimaryTerm::default(),
        asks_again: false,
    };
    (connection, theirs)
}

fn parsed(url: &str) -> RedisConfig {
    RedisConfig::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

pub(crate) struct Driver {
    pub(crate) backend: Box<dyn Backend>,
    /// Events that were not asked for yet.
    pub(crate) events: VecDeque<BackendEvent>,
    answers: HashMap<OpId, Outcome<Value>>,
    last: u64,
}

impl Driver {
    pub(crate) fn new(url: &str) -> Self {
        Self::with(parsed(url))
    }

    pub(crate) fn with(config: RedisConfig) -> Self {
        Self::over(Box::new(RedisBackend::new(config)))
    }

    pub(crate) fn over(backend: Box<dyn Backend>) -> Self {
        Self { backend, events: VecDeque::new(), answers: HashMap::new(), last: 0 }
    }

    /// A driver whose two connections are up.
    pub(crate) async fn connected(url: &str) -> Self {
        let mut driver = Self::new(url);
        driver.both_up().await;
        driver
    }

    pub(crate) async fn both_up(&mut self) -> ServerInfo {
        let info = self.up().await;
        self.pubsub_up().await;
        info
    }

    pub(crate) async fn up(&mut self) -> ServerInfo {
        self.until("Up", |event| match event {
            BackendEvent::Up(_, info) => Some(info.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn down(&mut self) {
        self.until("Down", |event| matches!(event, BackendEvent::Down { .. }).then_some(())).await;
    }

    pub(crate) async fn pubsub_up(&mut self) {
        self.until("PubSubUp", |event| matches!(event, BackendEvent::PubSubUp).then_some(())).await;
    }

    pub(crate) async fn pubsub_down(&mut self) {
        self.until("PubSubDown", |event| matches!(event, BackendEvent::PubSubDown).then_some(()))
            .await;
    }

    pub(crate) async fn connect_failed(&mut self) -> Failure {
        self.until("ConnectFailed", |event| match event {
            BackendEvent::ConnectFailed { failure, .. } => Some(failure.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn message(&mut self) -> (String, String) {
        self.until("Message", |event| match event {
            BackendEvent::Message { channel, payload } => {
                Some((channel.to_string(), payload.clone()))
            }
            _ => None,
        })
        .await
    }

    pub(crate) fn submit(&mut self, call: Call) -> OpId {
        self.submit_within(call, SECOND)
    }

    pub(crate) fn submit_within(&mut self, call: Call, timeout: Duration) -> OpId {
        self.last += 1;
        let op = OpId(self.last);
        self.backend.submit(op, ServerId::ONLY, call, timeout);
        op
    }

    pub(crate) async fn call(&mut self, call: Call) -> Outcome<Value> {
        let op = self.submit(call);
        self.answer(op).await
    }

    pub(crate) async fn answer(&mut self, op: OpId) -> Outcome<Value> {
        loop {
            if let Some(outcome) = self.answers.remove(&op) {
                return outcome;
            }
            self.turn("an answer").await;
        }
    }

    pub(crate) fn is_answered(&self, op: OpId) -> bool {
        self.answers.contains_key(&op)
    }

    pub(crate) fn subscribe(&mut self, channel: &str, generation: u64) {
        self.backend.subscribe(Arc::from(channel), false, generation);
    }

    pub(crate) fn unsubscribe(&mut self, channel: &str) {
        self.backend.unsubscribe(Arc::from(channel), false);
    }

    /// The answer to a subscription, which must come.
    pub(crate) async fn subscribed(
        &mut self,
        channel: &str,
        generation: u64,
    ) -> Result<(), Failure> {
        self.until("Subscribed", |event| match event {
            BackendEvent::Subscribed { channel: of, generation: number, result } => {
                (&**of == channel && *number == generation).then(|| result.clone())
            }
            _ => None,
        })
        .await
    }

    pub(crate) async fn close(&mut self) {
        self.backend.close();
        self.until("Closed", |event| matches!(event, BackendEvent::Closed).then_some(())).await;
    }

    /// Takes the first event that `pick` accepts, among those that came and those to come.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        mut pick: impl FnMut(&BackendEvent) -> Option<T>,
    ) -> T {
        let mut from = 0;
        loop {
            for index in from..self.events.len() {
                if let Some(found) = pick(&self.events[index]) {
                    self.events.remove(index);
                    return found;
                }
            }
            from = self.events.len();
            self.turn(what).await;
        }
    }

    /// Waits for one more event.
    async fn turn(&mut self, what: &str) {
        let event = tokio::time::timeout(NEVER, poll_fn(|cx| self.backend.poll_event(cx)))
            .await
            .unwrap_or_else(|_| panic!("no {what}; seen: {:?}", self.events));
        self.keep(event);
    }

    fn keep(&mut self, event: BackendEvent) {
        match event {
            BackendEvent::Replied { op, outcome, .. } => {
                let again = self.answers.insert(op, outcome);
                assert!(again.is_none(), "{op:?} was answered twice");
            }
            event => self.events.push_back(event),
        }
    }

    /// Collects the events of this period.
    pub(crate) async fn listen(&mut self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while let Ok(event) =
            tokio::time::timeout_at(end, poll_fn(|cx| self.backend.poll_event(cx))).await
        {
            self.keep(event);
        }
    }
}
