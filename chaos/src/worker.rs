//! A process that takes and gives back locks, and writes down what it is told.

mod asking;
mod turn;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis_reentrant_lock::Driver;
use redis_reentrant_lock::Error;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::Redlock;
use redis_reentrant_lock::RedlockBuilder;
use tokio::time::sleep;

use crate::chance::Chance;
use crate::chance::Stream;
use crate::event::Event;
use crate::event::How;
use crate::event::What;
use crate::event::now;
use crate::kind::Name;
use crate::kind::Share;
use crate::place::REDLOCK;
use crate::support::client;
use crate::worker::turn::Belief;

/// Longer than a lease and a command timeout by far.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a worker is told on its command line: `key=value` each.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) url: String,
    pub(crate) seed: u64,
    pub(crate) lease: Duration,
    pub(crate) names: Vec<Name>,
    pub(crate) tasks: u32,
    pub(crate) log: PathBuf,
    pub(crate) store: PathBuf,
    pub(crate) driver: Driver,
    /// Waits have limits, and futures are dropped. Without, it is known of nearly every attempt
    /// what came of it.
    pub(crate) waits_end: bool,
    /// It takes fair locks as plain ones.
    pub(crate) plain: bool,
}

impl Settings {
    pub(crate) fn words(&self) -> Vec<String> {
        vec![
            format!("url={}", self.url),
            format!("seed={}", self.seed),
            format!("lease_ms={}", self.lease.as_millis()),
            format!(
                "names={}",
                self.names.iter().map(Name::to_string).collect::<Vec<_>>().join(",")
            ),
            format!("tasks={}", self.tasks),
            format!("log={}", self.log.display()),
            format!("store={}", self.store.display()),
            format!("driver={}", self.driver),
            format!("waits_end={}", self.waits_end),
            format!("plain={}", self.plain),
        ]
    }

    pub(crate) fn read(words: &[String]) -> Option<Self> {
        let given: HashMap<&str, &str> =
            words.iter().map(|word| word.split_once('=')).collect::<Option<_>>()?;
        Some(Self {
            url: (*given.get("url")?).to_owned(),
            seed: given.get("seed")?.parse().ok()?,
            lease: Duration::from_millis(given.get("lease_ms")?.parse().ok()?),
            names: given.get("names")?.split(',').map(Name::parse).collect::<Option<_>>()?,
            tasks: given.get("tasks")?.parse().ok()?,
            log: PathBuf::from(given.get("log")?),
            store: PathBuf::from(given.get("store")?),
            waits_end: *given.get("waits_end")? == "true",
            plain: *given.get("plain")? == "true",
            driver: given.get("driver")?.parse().ok()?,
        })
    }
}

/// Runs until the input ends, then gives everything back.
pub(crate) fn run(settings: Settings) -> Result<(), String> {
    let runtime = match settings.driver {
        Driver::Current => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        _ => tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build(),
    };
    runtime.map_err(|error| error.to_string())?.block_on(work(settings))
}

async fn work(settings: Settings) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    let (clients, redlock) = connect(&settings).map_err(|error| error.to_string())?;
    let log = Log::open(&settings.log).map_err(|error| error.to_string())?;
    let worker = Arc::new(Worker { settings, clients, redlock, log, stop });
    let tasks: Vec<_> = (0..worker.settings.tasks)
        .map(|task| tokio::spawn(Arc::clone(&worker).task(task)))
        .collect();
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    worker.finish().await
}

/// The client, or those of several servers and the Redlock over them.
fn connect(settings: &Settings) -> Result<(Vec<LockClient>, Option<Redlock>), Error> {
    let connect = |url: &str, label: &str| {
        let mut builder = client::builder(url).lease(settings.lease).driver(settings.driver);
        if !label.is_empty() {
            builder = builder.deployment(label);
        }
        builder.command_timeout(settings.lease.min(Duration::from_millis(500))).connect_lazy()
    };
    let Some(urls) = settings.url.strip_prefix(REDLOCK) else {
        return Ok((vec![connect(&settings.url, "")?], None));
    };
    // The addresses are those of proxies, which each worker has its own of.
    let clients = urls.split(',').enumerate();
    let clients = clients.map(|(number, url)| connect(url, &format!("server {number}")));
    let clients = clients.collect::<Result<Vec<_>, _>>()?;
    // Longer than the default, because the machine is busy.
    let builder = Redlock::builder().attempt_limit(settings.lease / 4);
    let redlock = clients.iter().cloned().fold(builder, RedlockBuilder::server).build()?;
    Ok((clients, Some(redlock)))
}

struct Worker {
    settings: Settings,
    /// The first one is that of all kinds but the Redlock.
    clients: Vec<LockClient>,
    redlock: Option<Redlock>,
    log: Log,
    stop: Arc<AtomicBool>,
}

impl Worker {
    async fn task(self: Arc<Self>, task: u32) -> Result<(), String> {
        let chance = Chance::new(self.settings.seed, Stream::Step, [u64::from(task), 0, 0]);
        let mut task = turn::Task::new(&self, task, chance);
        while !self.stop.load(Ordering::Relaxed) {
            task.turn().await?;
        }
        Ok(())
    }

    /// Nothing may be left in the client, nor what it was asked to release.
    async fn finish(&self) -> Result<(), String> {
        let since = now();
        let mut sum = self.gauges();
        while sum > 0 && now() - since < u64::try_from(PATIENCE.as_nanos()).unwrap_or(u64::MAX) {
            sleep(Duration::from_millis(5)).await;
            sum = self.gauges();
        }
        self.log.write(&Event::Gauges { at: now(), sum });
        for client in &self.clients {
            let report = client.shutdown(PATIENCE).await.map_err(|error| error.to_string())?;
            self.log.write(&Event::Bye { at: now(), clean: report.is_clean() });
        }
        Ok(())
    }

    fn gauges(&self) -> u64 {
        let left = |client: &LockClient| {
            let stats = client.stats();
            stats.holds
                + stats.waiters
                + stats.registered_renewals
                + stats.subscriptions
                + stats.clean_ups
        };
        self.clients.iter().map(left).sum()
    }

    fn client(&self) -> &LockClient {
        &self.clients[0]
    }

    /// Asks a guard, and writes the answer down before it is acted upon.
    fn look(&self, guard: &impl Belief) -> bool {
        let from = now();
        let held = guard.is_held();
        let until = guard.valid_until().as_boot_nanos();
        let hold = guard.hold_id();
        self.log.write(&Event::Look { from, to: now(), hold, held, until });
        held
    }
}

/// The file, written through to the system with every event.
struct Log {
    file: Mutex<File>,
    ops: AtomicU64,
}

impl Log {
    fn open(path: &PathBuf) -> std::io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file: Mutex::new(file), ops: AtomicU64::new(0) })
    }

    fn write(&self, event: &Event) {
        let line = format!("{event}\n");
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).expect("the file of events can be written");
    }

    fn call(&self, task: u32, what: What, name: &Name, hold: &str, share: Share) -> u64 {
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        let Name { text: name, kind } = name.clone();
        let hold = hold.to_owned();
        self.write(&Event::Call { op, at: now(), task, what, name, hold, share, kind });
        op
    }

    fn end(&self, op: u64, how: How) {
        self.write(&Event::End { op, at: now(), how });
    }
}

/// One word for an error.
fn word(error: &Error) -> &'static str {
    match error {
        Error::Unavailable { .. } => "unavailable",
        Error::Lost { .. } | Error::GuardOfLostHold { .. } => "lost",
        Error::Denied { .. } => "denied",
        Error::Auth { .. } => "auth",
        Error::KeyConflict { .. } => "key_conflict",
        Error::Unsupported { .. } => "unsupported",
        Error::Refused { .. } => "refused",
        Error::Closed { .. } => "closed",
        Error::TooManyWaiters { .. } => "too_many_waiters",
        Error::HoldCountLimit { .. } => "hold_count_limit",
        Error::WouldDeadlock { .. } => "would_deadlock",
        _ => "other",
    }
}
