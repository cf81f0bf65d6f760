//! Fifty holds and twenty waiters that go on whatever happens to the servers, and notice when two
//! hold one lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio::time::timeout;

use crate::support::look;
use crate::support::redis_server::eventually;
use crate::support::redis_server::version;
use crate::support::topology::Topology;

const HOLDS: usize = 50;
const WAITERS: usize = 20;
const CONTENDED: usize = 5;
/// Beyond the fallback poll of 5 s, with a failover in between.
const STUCK: Duration = Duration::from_secs(30);

/// Who works while servers come and go.
pub(crate) struct Crowd {
    clients: Vec<LockClient>,
    held: Vec<Guard>,
    workers: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    slowest: Arc<AtomicU64>,
}

/// How far the waiters have got.
pub(crate) struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Waits for some rounds more.
    pub(crate) fn wait(&self) {
        let before = self.0.load(Ordering::Relaxed);
        eventually("work goes on", || self.0.load(Ordering::Relaxed) >= before + 10);
    }
}

fn held_name(number: usize) -> String {
    format!("held:{number}")
}

fn contended_name(number: usize) -> String {
    format!("contended:{number}")
}

impl Crowd {
    pub(crate) async fn start(url: &str) -> Self {
        let mut clients = Vec::new();
        for _ in 0..3 {
            let builder = LockClient::builder().url(url).lease(Duration::from_secs(12));
            clients.push(builder.connect().await.expect("the servers are there"));
        }
        let mut held = Vec::new();
        for number in 0..HOLDS {
            let mutex = clients[0].mutex(held_name(number)).expect("a good name");
            held.push(mutex.lock().await.expect("free"));
        }
        let mut crowd = Self {
            clients,
            held,
            workers: Vec::new(),
            stop: Arc::default(),
            rounds: Arc::default(),
            slowest: Arc::default(),
        };
        let newest: Vec<Arc<AtomicU64>> = (0..CONTENDED).map(|_| Arc::default()).collect();
        for worker in 0..WAITERS {
            let client = crowd.clients[worker % crowd.clients.len()].clone();
            let (name, newest) = (worker % CONTENDED, Arc::clone(&newest[worker % CONTENDED]));
            let (stop, rounds) = (Arc::clone(&crowd.stop), Arc::clone(&crowd.rounds));
            let slowest = Arc::clone(&crowd.slowest);
            crowd.workers.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let waited = one_round(&client, name, &newest).await;
                    slowest.fetch_max(
                        u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                        Ordering::Relaxed,
                    );
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        crowd
    }

    /// For a thread that wants to know whether work goes on.
    pub(crate) fn progress(&self) -> Progress {
        Progress(Arc::clone(&self.rounds))
    }

    /// Names whose slots are worth moving.
    pub(crate) fn names(&self) -> Vec<String> {
        let contended = (0..CONTENDED).map(contended_name);
        contended.chain((0..HOLDS).map(held_name)).collect()
    }

    /// Everybody comes to an end, and at most `losses` holds were lost, each of them told.
    pub(crate) async fn end(self, losses: usize) {
        // Once more round, now that all is well.
        let before = self.rounds.load(Ordering::Relaxed);
        let begun = Instant::now();
        while self.rounds.load(Ordering::Relaxed) < before + WAITERS as u64 {
            let stats = || self.clients.iter().map(LockClient::stats).collect::<Vec<_>>();
            assert!(begun.elapsed() < STUCK, "waiters are stuck: {:#?}", stats());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers {
            timeout(STUCK, worker)
                .await
                .expect("no waiter is stuck")
                .expect("no overlap that nobody is told of");
        }
        let mut lost = 0;
        for guard in self.held {
            let held = timeout(STUCK, guard.verify()).await.expect("answered").is_ok();
            assert_eq!(held, guard.is_held());
            lost += usize::from(!held);
            assert_eq!(timeout(STUCK, guard.unlock()).await.expect("answered").is_ok(), held);
        }
        assert!(lost <= losses, "{lost} holds lost");
        println!(
            "{} rounds of {WAITERS} waiters, the longest wait {} ms, {lost} of {HOLDS} holds lost and told",
            self.rounds.load(Ordering::Relaxed),
            self.slowest.load(Ordering::Relaxed),
        );
        for client in self.clients {
            let report =
                timeout(STUCK, client.shutdown(Duration::from_secs(10))).await.expect("an end");
            assert!(report.expect("in time").is_clean());
        }
    }
}

/// Takes the lock, keeps it a little and gives it back; gives how long it had to wait.
async fn one_round(client: &LockClient, number: usize, newest: &AtomicU64) -> Duration {
    let mutex = client.mutex(contended_name(number)).expect("a good name");
    let begun = Instant::now();
    let guard = timeout(STUCK, mutex.lock())
        .await
        .expect("no waiter is stuck")
        .expect("granted in the end");
    let waited = begun.elapsed();
    newest.fetch_max(guard.fencing_token(), Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(15)).await;
    if newest.load(Ordering::SeqCst) > guard.fencing_token() {
        // Somebody was granted it while we had it: the server lost our grant, and its first answer
        // must say so.
        let answered =
            async { while guard.verify().await.is_err_and(|error| error.is_transient()) {} };
        timeout(STUCK, answered).await.expect("an answer");
        assert!(guard.loss().is_some(), "two hold the lock, and the older one is not told");
    }
    // Lost, or the server is not there just now: told, too.
    let _ = guard.unlock().await;
    waited
}

/// No lock key and no lock channel is left on any node, and no key without a time to live.
pub(crate) async fn nothing_is_left(cluster: Topology) {
    let look = move || {
        eventually("nothing is left", || {
            (0..6).filter(|node| cluster.is_running(*node) && cluster.is_primary(*node)).all(
                |node| {
                    let mut connection = cluster.connection(node);
                    let sharded: Vec<String> = match version() {
                        (..7, _) => Vec::new(),
                        _ => cluster.ask(node, &["PUBSUB", "SHARDCHANNELS"]),
                    };
                    look::immortal_keys(&mut connection).is_empty()
                        && look::lock_keys(&mut connection).is_empty()
                        && look::lock_channels(&mut connection).is_empty()
                        && sharded.is_empty()
                },
            )
        });
    };
    tokio::task::spawn_blocking(look).await.expect("nothing is left");
}

/// How long a lock and its unlock took, again and again.
pub(crate) struct Times(Vec<Duration>);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |part: usize| self.0[(self.0.len() - 1) * part / 100];
        write!(f, "p50 {:?}, p99 {:?}, max {:?} ({} pairs)", at(50), at(99), at(100), self.0.len())
    }
}

/// Locks and unlocks these names in turn; not one of them may fail.
pub(crate) async fn times(client: &LockClient, names: &[String], long: Duration) -> Times {
    let mutexes: Vec<_> =
        names.iter().map(|name| client.mutex(name).expect("a good name")).collect();
    let (end, mut times) = (Instant::now() + long, Vec::new());
    for mutex in mutexes.iter().cycle() {
        let begun = Instant::now();
        if begun >= end {
            break;
        }
        mutex.lock().await.expect("no error").unlock().await.expect("no error");
        times.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    times.sort_unstable();
    Times(times)
}
