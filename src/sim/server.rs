//! The server that all clients share: the keys, a clock that is not theirs, and who is subscribed.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::backend::Call;
use crate::backend::Failure;
use crate::backend::FailureKind;
use crate::backend::Outcome;
use crate::backend::ServerInfo;
use crate::backend::Value;
use crate::backend::memory::keyspace::Keyspace;
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Published;
use crate::backend::memory::store::Stored;
use crate::clock::Moment;

const START_US: i64 = 1_704_067_200_000_000;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) keys: Keyspace,
    pub(super) offset_us: i64,
    drift: i64,
    pub(super) runs: u64,
    pub(super) paused_until: Moment,
    pub(super) unreachable_until: Moment,
    /// Channel → clients.
    pub(super) subscribers: BTreeMap<String, BTreeSet<usize>>,
}

/// What a lock's key holds, as the checks look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) field: String,
    pub(super) count: String,
    pub(super) pttl: Option<i64>,
}

impl Server {
    pub(super) fn new(offset_us: i64, drift: i64) -> Self {
        Self {
            keys: Keyspace::new(),
            offset_us,
            drift,
            runs: 1,
            paused_until: Moment::ZERO,
            unreachable_until: Moment::ZERO,
            subscribers: BTreeMap::new(),
        }
    }

    /// The server's clock, in µs.
    pub(super) fn time(&self, now: Moment) -> i64 {
        let local = now.micros();
        START_US + self.offset_us + local + local / 1_000 * self.drift / 1_000
    }

    pub(super) fn execute(&mut self, now: Moment, call: &Call) -> Outcome<Value> {
        let time = self.time(now);
        match call {
            Call::Time => Outcome::Done(Value::List(vec![Value::Int(time)])),
            Call::Ping => Outcome::Done(Value::List(Vec::new())),
            Call::Info => Outcome::Done(Value::List(vec![Value::Text("in_memory:1\r\n".to_owned())])),
            Call::Script(call) => match self.keys.run(time, call) {
                Ok(value) => Outcome::Done(value),
                Err(text) if text.contains("OOM") => {
                    Outcome::NotExecuted(Failure::new(FailureKind::OutOfMemory, text))
                }
                Err(text) => Outcome::NotExecuted(Failure::new(FailureKind::Refused, text)),
            },
        }
    }

    /// The messages of the last command, with who is to get them.
    pub(super) fn take_published(&mut self) -> Vec<(Published, Vec<usize>)> {
        let published = self.keys.take_published();
        let receivers = |message: &Published| {
            self.subscribers
                .get(&message.channel)
                .map(|set| set.iter().copied().collect())
                .unwrap_or_default()
        };
        published.into_iter().map(|message| (message.clone(), receivers(&message))).collect()
    }

    pub(super) fn subscribe(&mut self, client: usize, channel: &str, on: bool) {
        let set = self.subscribers.entry(channel.to_owned()).or_default();
        if on {
            set.insert(client);
        } else {
            set.remove(&client);
        }
        let number = i64::try_from(set.len()).unwrap_or(i64::MAX);
        self.keys.set_subscribers(channel, false, number);
    }

    pub(super) fn unsubscribe_all(&mut self, client: usize) {
        let channels: Vec<String> = self.subscribers.keys().cloned().collect();
        for channel in channels {
            self.subscribe(client, &channel, false);
        }
    }

    /// The locks that exist now.
    pub(super) fn locks(&self, now: Moment) -> Vec<Found> {
        let found = |dumped: Dumped| match dumped.value {
            Stored::Hash(fields) => {
                let (field, count) = fields.into_iter().next()?;
                Some(Found { name: dumped.key, field, count, pttl: dumped.pttl })
            }
            _ => None,
        };
        self.keys.dump(self.time(now)).into_iter().filter_map(found).collect()
    }

    pub(super) fn info(&self) -> ServerInfo {
        ServerInfo {
            run_id: format!("run{}", self.runs),
            version: "7.0.15".to_owned(),
            address: "sim".to_owned(),
        }
    }
}
