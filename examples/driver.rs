//! A lock client that other programs steer: tests, other languages, operators trying things out.
//!
//! ```text
//! driver URL [keeper=thread|current] [lease_ms=N] [profile=default|redisson]
//!            [sharded=auto|on|off] [handoff=on|off] [ca=FILE] [cert=FILE key=FILE]
//! ```
//!
//! `ca`, `cert` and `key` are PEM files for a `rediss://` URL: authorities to trust, client certificate and its key.
//!
//! This is a stable protocol: verbs, events and fields are added, not changed.
//!
//! # Input
//!
//! One command a line, `ID VERB ARGUMENT…`, each run as its own task. ID is any word. NAME is a bare word or a JSON
//! string. Commands with the same `owner=` share an `Owner`; without it each command is an owner of its own.
//!
//! | command | ends in | |
//! |---|---|---|
//! | `ID lock NAME [owner=O] [lease_ms=N] [wait_ms=N] [max_hold_ms=N]` | granted, denied | waits, forever or `wait_ms`; `lease_ms` makes the lease a fixed one |
//! | `ID try NAME …` | granted, denied | as `lock`, but one attempt if there is no `wait_ms` |
//! | `ID mutex NAME …` | granted, denied | as `lock`, every acquisition its own owner (`owner=` is ignored) |
//! | `ID unlock LOCK` | unlocked | releases the guard that command LOCK was granted, and waits for the answer |
//! | `ID drop LOCK` | dropped | drops it; the release goes on in the background |
//! | `ID cancel LOCK` | cancelled | drops the future of the waiting command LOCK, which ends in `cancelled` too |
//! | `ID verify LOCK` | info | asks the server whether the guard still holds |
//! | `ID guard LOCK` | info | `state` (held, suspect, lost), `count`, `token`, `remaining_ms`, `holder`, `reason`; no I/O |
//! | `ID force NAME` | info | `forced`: whether somebody lost the lock by it |
//! | `ID query NAME [owner=O]` | info | `locked`, `remaining_ms`, `holder`; of the owner: `held`, `hold_count` |
//! | `ID count NAME UNTIL FILE [work_us=N]` | info | critical sections, see below |
//! | `ID block MS` | info | blocks every worker of the user's runtime |
//! | `ID stats` | info | `counters` and `gauges` |
//! | `ID ping` | info | `rtt_us` |
//! | `ID preflight NAME` | info | `severity` (ok, note, warning, error), `usable`, `findings` (each `severity`, `topic`, `found`, `fix`), `text` |
//! | `ID shutdown [MS]` | info | shuts the client down; `unreleased`: names it could not release |
//! | `ID crash` | | SIGKILL to itself |
//!
//! `count` goes round lock, read the number in FILE, wait N µs, write the number plus 1, unlock, until the number is
//! UNTIL: the lock is all that protects it. Lines of numbers would cost more than locks. It ends in `done` (how many of
//! the sections were its own), `longest_wait_us`, and `sections`, for each the number read, when the lock was granted
//! and when its release began, in ns as `boot_ns`.
//!
//! At the end of the input the client is shut down and the process exits with 0.
//!
//! # Output
//!
//! One JSON object a line, `{"id":…,"event":…,"boot_ns":…,…}`; `id` is the command's, a string; `boot_ns` is
//! CLOCK_BOOTTIME when it happened. Every command ends in exactly one of `granted`, `denied`, `unlocked`, `dropped`,
//! `cancelled`, `info` and `error`; `crash` cannot.
//!
//! | event | fields |
//! |---|---|
//! | `ready` | `uuid` of the client, `pid`; `id` is null |
//! | `waiting` | once, when a `lock`, `try` or `mutex` has not ended within 20 ms |
//! | `granted` | `name`, `token`, `count`, `holder` (the field in the key); `sent_ns`, when the granted attempt was sent; `valid_until_ns`, which counts from it |
//! | `denied` | `name`: somebody else holds it |
//! | `releasing` | `lock`; before the release of an `unlock` or `drop` is sent |
//! | `unlocked`, `dropped`, `cancelled` | `lock` |
//! | `info` | as above |
//! | `error` | `kind`, `message`; `id` is null if the line has none, or before `ready` |
//! | `lost` | `name`, `reason`; unasked, once for each live guard; `id` is that of its lock command |
//!
//! `kind` is an `Error` in snake case, or `bad_command`, `no_such_lock`, `not_granted`, `already_granted`.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::BufRead;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::pin::pin;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::mpsc;
use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::Finding;
use redis_reentrant_lock::Guard;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::Tls;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::mpsc::unbounded_channel;

/// The crate's.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const SHUTDOWN: Duration = Duration::from_secs(5);
/// A `lock` that takes longer says `waiting`.
const SAY_WAITING: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (builder, lease) = match builder(&args) {
        Ok(configured) => configured,
        Err(failure) => return fail(&failure),
    };
    let workers = std::thread::available_parallelism().map_or(2, |number| number.get().max(2));
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return fail(&Failure::new("unavailable", error)),
        };
    // In a task, so that a keeper on the current runtime lives on the workers that `block` blocks.
    let client = match runtime.block_on(async { tokio::spawn(builder.connect()).await }) {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => return fail(&error.into()),
        Err(error) => return fail(&Failure::new("unavailable", error)),
    };
    emit(None, "ready", json!({ "uuid": client.id(), "pid": std::process::id() }));
    let driver = Driver { client, lease, runtime, workers, owners: HashMap::new(), locks: Arc::default() };
    driver.run(std::io::stdin().lock())
}

/// The client that the command line describes, and its watched lease.
fn builder(args: &[String]) -> Result<(LockClientBuilder, Duration), Failure> {
    let [url, settings @ ..] = args else {
        return Err(Failure::bad(
            "usage: driver URL [keeper=…] [lease_ms=…] [profile=…] [sharded=…] [handoff=…] [ca=…] [cert=… key=…]",
        ));
    };
    let (mut builder, mut lease) = (LockClient::builder().url(url), DEFAULT_LEASE);
    let mut files = HashMap::new();
    for setting in settings {
        builder = match setting.split_once('=').unwrap_or((setting, "")) {
            ("keeper", word) => builder.keeper(word.parse()?),
            ("lease_ms", value) => {
                lease = millis("lease_ms", value)?;
                builder.lease(lease)
            }
            ("profile", word) => builder.profile(word.parse()?),
            ("sharded", word) => builder.sharding(word.parse()?),
            ("handoff", "on") => builder.hand_off(true),
            ("handoff", "off") => builder.hand_off(false),
            (what @ ("ca" | "cert" | "key"), path) => {
                let text = std::fs::read(path).map_err(|error| Failure::bad(format!("{path}: {error}")))?;
                files.insert(what, text);
                builder
            }
            _ => return Err(Failure::bad(format!("not a setting: {setting}"))),
        };
    }
    Ok((with_tls(builder, files)?, lease))
}

fn with_tls(
    builder: LockClientBuilder,
    mut files: HashMap<&str, Vec<u8>>,
) -> Result<LockClientBuilder, Failure> {
    if files.is_empty() {
        return Ok(builder);
    }
    let mut tls = Tls::new();
    if let Some(ca) = files.remove("ca") {
        tls = tls.ca_pem(ca);
    }
    Ok(builder.tls(match (files.remove("cert"), files.remove("key")) {
        (Some(cert), Some(key)) => tls.client_cert_pem(cert, key),
        (None, None) => tls,
        _ => return Err(Failure::bad("cert= and key= belong together")),
    }))
}

fn fail(failure: &Failure) -> ExitCode {
    emit(None, "error", failure.fields());
    ExitCode::FAILURE
}

// ===== output =====

/// Prints one event.
fn emit(id: Option<&str>, event: &str, fields: Value) {
    let boot_ns = boot_ns();
    let mut line = format!("{{\"id\":{},\"event\":\"{event}\",\"boot_ns\":{boot_ns}", json!(id));
    if let Value::Object(fields) = fields {
        for (key, value) in fields {
            line.push_str(&format!(",{}:{value}", json!(key)));
        }
    }
    line.push_str("}\n");
    // Nobody reads any more: the end of the input will end us.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

fn boot_ns() -> u64 {
    let time = rustix::time::clock_gettime(BOOT_CLOCK);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What an `error` event says.
struct Failure {
    kind: &'static str,
    message: String,
}

impl Failure {
    fn new(kind: &'static str, message: impl Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    fn bad(message: impl Display) -> Self {
        Self::new("bad_command", message)
    }

    fn fields(&self) -> Value {
        json!({ "kind": self.kind, "message": self.message })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::InvalidName { .. } => "invalid_name",
            Error::InvalidOption { .. } => "invalid_option",
            Error::InvalidUrl { .. } => "invalid_url",
            Error::NoOwner => "no_owner",
            Error::Unavailable { .. } => "unavailable",
            Error::Lost { .. } | Error::GuardOfLostHold { .. } => "lost",
            Error::KeyConflict { .. } => "key_conflict",
            Error::KeyStillInUse { .. } => "key_still_in_use",
            Error::HoldCountLimit { .. } => "hold_count_limit",
            Error::TooManyWaiters { .. } => "too_many_waiters",
            Error::Auth { .. } => "auth",
            Error::Denied { .. } => "denied",
            Error::NotAnnounced { .. } => "not_announced",
            Error::Tls { .. } => "tls",
            Error::Unsupported { .. } => "unsupported",
            Error::Refused { .. } => "refused",
            Error::Closed { .. } => "closed",
            _ => "other",
        };
        Self::new(kind, error)
    }
}

/// How a command ends that is not a lock command.
type Done = Result<(&'static str, Value), Failure>;

fn finish(id: &str, done: Done) {
    match done {
        Ok((event, fields)) => emit(Some(id), event, fields),
        Err(failure) => emit(Some(id), "error", failure.fields()),
    }
}

// ===== input =====

/// The words of a line, read from the left.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let line = self.0.trim_start();
        let end = line.find(char::is_whitespace).unwrap_or(line.len());
        let (word, rest) = line.split_at(end);
        self.0 = rest;
        Some(word).filter(|word| !word.is_empty())
    }

    fn required(&mut self, what: &str) -> Result<&'a str, Failure> {
        self.next().ok_or_else(|| Failure::bad(format!("{what} is missing")))
    }

    /// A bare word or a JSON string.
    fn name(&mut self) -> Result<String, Failure> {
        let line = self.0.trim_start();
        if !line.starts_with('"') {
            return self.required("the lock name").map(str::to_owned);
        }
        let mut values = serde_json::Deserializer::from_str(line).into_iter::<String>();
        let Some(Ok(name)) = values.next() else {
            return Err(Failure::bad("the lock name is not a JSON string"));
        };
        self.0 = &line[values.byte_offset()..];
        match self.0.chars().next() {
            Some(next) if !next.is_whitespace() => Err(Failure::bad("no space after the lock name")),
            _ => Ok(name),
        }
    }

    fn end(&mut self) -> Result<(), Failure> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(Failure::bad(format!("too many arguments: {word}"))),
        }
    }

    /// The `key=value` words up to the end of the line.
    fn options(&mut self, known: &[&str]) -> Result<Options, Failure> {
        let mut options = Options::default();
        while let Some(word) = self.next() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if !known.contains(&key) {
                return Err(Failure::bad(format!("not an option here: {word}")));
            }
            match key {
                "owner" if value.is_empty() => return Err(Failure::bad("owner= wants a word")),
                "owner" => options.owner = Some(value.to_owned()),
                "lease_ms" => options.lease = Some(millis(key, value)?),
                "wait_ms" => options.wait = Some(millis(key, value)?),
                _ => options.max_hold = Some(millis(key, value)?),
            }
        }
        Ok(options)
    }
}

#[derive(Default)]
struct Options {
    owner: Option<String>,
    lease: Option<Duration>,
    wait: Option<Duration>,
    max_hold: Option<Duration>,
}

impl Options {
    /// None where the plain method does.
    fn lock_options(&self) -> Option<LockOptions> {
        let mut options = LockOptions::new();
        if self.lease.is_none() && self.wait.is_none() && self.max_hold.is_none() {
            return None;
        }
        if let Some(lease) = self.lease {
            options = options.lease(lease);
        }
        if let Some(wait) = self.wait {
            options = options.wait(wait);
        }
        if let Some(max_hold) = self.max_hold {
            options = options.max_hold(max_hold);
        }
        Some(options)
    }
}

fn number<N: FromStr>(key: &str, value: &str) -> Result<N, Failure> {
    value.parse().map_err(|_| Failure::bad(format!("{key} is not a whole number in range: {value}")))
}

fn millis(key: &str, value: &str) -> Result<Duration, Failure> {
    number(key, value).map(Duration::from_millis)
}

// ===== commands =====

struct Driver {
    client: LockClient,
    /// The watched lease.
    lease: Duration,
    runtime: Runtime,
    workers: usize,
    owners: HashMap<String, Owner>,
    locks: Arc<Locks>,
}

impl Driver {
    fn run(mut self, mut input: impl BufRead) -> ExitCode {
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            self.line(&line);
            line.clear();
        }
        let _ = self.runtime.block_on(self.client.shutdown(SHUTDOWN));
        self.runtime.shutdown_timeout(Duration::from_millis(100));
        ExitCode::SUCCESS
    }

    fn line(&mut self, line: &[u8]) {
        let Ok(line) = std::str::from_utf8(line) else {
            return emit(None, "error", Failure::bad("the line is not UTF-8").fields());
        };
        let mut words = Words(line);
        let Some(id) = words.next() else { return };
        if let Err(failure) = self.command(id, words) {
            emit(Some(id), "error", failure.fields());
        }
    }

    /// Starts a command. An error is the end of it; else it ends by itself.
    fn command(&mut self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        match words.required("the verb")? {
            verb @ ("lock" | "try" | "mutex") => self.lock(id, verb, words),
            "unlock" => self.ask(id, Action::Unlock, words),
            "drop" => self.ask(id, Action::Drop, words),
            "cancel" => self.ask(id, Action::Cancel, words),
            "verify" => self.ask(id, Action::Verify, words),
            "guard" => self.ask(id, Action::Look, words),
            "force" => self.force(id, words),
            "query" => self.query(id, words),
            "count" => self.count(id, words),
            "block" => self.block(id, words),
            "stats" => self.stats(id, words),
            "ping" => self.ping(id, words),
            "preflight" => self.preflight(id, words),
            "shutdown" => self.shutdown(id, words),
            "crash" => crash(words),
            verb => Err(Failure::bad(format!("no such verb: {verb}"))),
        }
    }

    fn lock(&mut self, id: &str, verb: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let name = words.name()?;
        let options = words.options(&["owner", "lease_ms", "wait_ms", "max_hold_ms"])?;
        let acquiring = self.acquiring(verb, &name, &options)?;
        let requests = self.locks.enter(id)?;
        let lease = options.lease.unwrap_or(self.lease);
        let lock = Lock { id: id.to_owned(), name, lease, requests, locks: Arc::clone(&self.locks) };
        self.runtime.spawn(lock.run(acquiring));
        Ok(())
    }

    /// The future of a lock command. It decides on its owner when it is first polled: in the command's own task.
    fn acquiring(&mut self, verb: &str, name: &str, options: &Options) -> Result<Acquiring, Failure> {
        let plain = options.lock_options();
        let once = options.wait.is_none() && verb == "try";
        if verb == "mutex" {
            let mutex = self.client.mutex(name)?;
            return Ok(Box::pin(async move {
                match plain {
                    None => mutex.lock().await.map(Some),
                    Some(options) => mutex.lock_with(options).await,
                }
            }));
        }
        let lock = self.client.reentrant_lock(name)?;
        let acquiring = async move {
            match plain {
                None if once => lock.try_lock().await,
                None => lock.lock().await.map(Some),
                Some(options) if once => lock.lock_with(options.wait(Duration::ZERO)).await,
                Some(options) => lock.lock_with(options).await,
            }
        };
        Ok(match &options.owner {
            Some(owner) => Box::pin(self.owner(owner).scope(acquiring)),
            None => Box::pin(acquiring),
        })
    }

    fn owner(&mut self, owner: &str) -> Owner {
        *self.owners.entry(owner.to_owned()).or_insert_with(Owner::new)
    }

    fn ask(&self, id: &str, action: Action, mut words: Words<'_>) -> Result<(), Failure> {
        let lock = words.required("the id of a lock command")?;
        words.end()?;
        self.locks.send(lock, Request { id: id.to_owned(), action })
    }

    fn force(&self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let lock = self.client.reentrant_lock(words.name()?)?;
        words.end()?;
        self.spawn(id, async move { Ok(("info", json!({ "forced": lock.force_unlock().await? }))) });
        Ok(())
    }

    fn query(&mut self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let lock = self.client.reentrant_lock(words.name()?)?;
        let options = words.options(&["owner"])?;
        let owner = options.owner.map_or_else(Owner::new, |owner| self.owner(&owner));
        self.spawn(id, async move {
            let holder = lock.holder().await?.map(|holder| {
                let field = format!("{}:{}", holder.client, holder.hold);
                json!({ "field": field, "count": holder.count, "this_client": holder.is_this_client })
            });
            let remaining = lock.remaining_lease().await?.map(|left| left.as_millis() as u64);
            let (held, count) = owner.scope(async { (lock.is_held(), lock.hold_count()) }).await;
            let fields = json!({
                "locked": holder.is_some(), "holder": holder, "remaining_ms": remaining,
                "held": held?, "hold_count": count?,
            });
            Ok(("info", fields))
        });
        Ok(())
    }

    fn count(&self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let lock = self.client.mutex(words.name()?)?;
        let number = words.required("the number")?;
        let until = number.parse().map_err(|_| Failure::bad(format!("not a number: {number}")))?;
        let path = words.required("the file")?;
        let work = match words.next().map(|word| (word, word.split_once('='))) {
            None => Duration::ZERO,
            Some((_, Some(("work_us", value)))) => {
                Duration::from_micros(value.parse().map_err(|_| Failure::bad(format!("work_us={value}")))?)
            }
            Some((word, _)) => return Err(Failure::bad(format!("not an option here: {word}"))),
        };
        words.end()?;
        let file = std::fs::File::options().read(true).write(true).open(path);
        let file = file.map_err(|error| Failure::bad(format!("{path}: {error}")))?;
        self.spawn(id, async move { Ok(("info", count(&lock, until, &file, work).await?)) });
        Ok(())
    }

    /// Puts one blocking task on each worker. From a thread of its own, one at a time: the workers must be had all
    /// at once, or two commands would wait for each other.
    fn block(&self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let time = millis("block", words.required("the time in ms")?)?;
        words.end()?;
        let (id, workers, handle) = (id.to_owned(), self.workers, self.runtime.handle().clone());
        std::thread::spawn(move || {
            let _turn = locked(&ONE_AT_A_TIME);
            let barrier = Arc::new(Barrier::new(workers));
            let (done, all_done) = mpsc::channel();
            for _ in 0..workers {
                let (barrier, done) = (Arc::clone(&barrier), done.clone());
                handle.spawn(async move {
                    barrier.wait();
                    sleep_here(time);
                    let _ = done.send(());
                });
            }
            drop(done);
            while all_done.recv().is_ok() {}
            finish(&id, Ok(("info", json!({ "workers": workers, "blocked_ms": time.as_millis() as u64 }))));
        });
        Ok(())
    }

    fn stats(&self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        words.end()?;
        let stats = self.client.stats();
        let counters = json!({
            "grants": stats.grants,
            "reentries": stats.reentries,
            "waits": stats.waits,
            "wake_ups": stats.wake_ups,
            "fallback_grants": stats.fallback_grants,
            "hand_offs": stats.hand_offs,
            "renewals": stats.renewals,
            "renewal_failures": stats.renewal_failures,
            "losses": stats.losses,
            "failed_drop_releases": stats.failed_drop_releases,
            "undone_grants": stats.undone_grants,
        });
        let gauges = json!({
            "holds": stats.holds,
            "waiters": stats.waiters,
            "renewals": stats.registered_renewals,
            "subscriptions": stats.subscriptions,
            "clean_ups": stats.clean_ups,
        });
        finish(id, Ok(("info", json!({ "counters": counters, "gauges": gauges }))));
        Ok(())
    }

    fn preflight(&self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let name = words.name()?;
        words.end()?;
        let client = self.client.clone();
        self.spawn(id, async move {
            let report = client.preflight(&name).await?;
            let finding = |finding: &Finding| {
                let severity = finding.severity.as_str();
                json!({ "severity": severity, "topic": finding.topic, "found": finding.found, "fix": finding.fix })
            };
            let findings: Vec<Value> = report.findings.iter().map(finding).collect();
            let (severity, text) = (report.severity().as_str(), report.to_string());
            let usable = report.is_usable();
            Ok(("info", json!({ "severity": severity, "usable": usable, "findings": findings, "text": text })))
        });
        Ok(())
    }

    fn ping(&self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        words.end()?;
        let client = self.client.clone();
        self.spawn(id, async move {
            let sent = boot_ns();
            client.ping().await?;
            Ok(("info", json!({ "rtt_us": (boot_ns() - sent) / 1_000 })))
        });
        Ok(())
    }

    fn shutdown(&self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let deadline = words.next().map_or(Ok(SHUTDOWN), |word| millis("the deadline", word))?;
        words.end()?;
        let client = self.client.clone();
        self.spawn(id, async move {
            let report = client.shutdown(deadline).await?;
            Ok(("info", json!({ "unreleased": report.unreleased })))
        });
        Ok(())
    }

    /// Runs the rest of a command as its own task.
    fn spawn(&self, id: &str, rest: impl Future<Output = Done> + Send + 'static) {
        let id = id.to_owned();
        self.runtime.spawn(async move { finish(&id, rest.await) });
    }
}

#[expect(clippy::disallowed_methods, reason = "blocking the runtime is what was asked for")]
fn sleep_here(time: Duration) {
    std::thread::sleep(time);
}

/// Critical sections on the number in a file, until it is `until`.
async fn count(
    lock: &redis_reentrant_lock::Mutex,
    until: u64,
    file: &std::fs::File,
    work: Duration,
) -> Result<Value, Failure> {
    let unreadable = |error: &dyn Display| Failure::new("unavailable", format!("the counter: {error}"));
    let (mut sections, mut longest_ns) = (Vec::new(), 0);
    loop {
        let called_ns = boot_ns();
        let guard = lock.lock().await?;
        let granted_ns = boot_ns();
        longest_ns = longest_ns.max(granted_ns - called_ns);
        let mut text = [b' '; 32];
        file.read_at(&mut text, 0).map_err(|error| unreadable(&error))?;
        let number = String::from_utf8_lossy(&text).trim_matches(['\0', ' ', '\n']).parse::<u64>();
        let number = number.map_err(|error| unreadable(&error))?;
        if number >= until {
            guard.unlock().await?;
            let done = sections.len();
            return Ok(json!({ "done": done, "longest_wait_us": longest_ns / 1_000, "sections": sections }));
        }
        if !work.is_zero() {
            sleep_here(work);
        }
        file.write_all_at(format!("{:020}\n", number + 1).as_bytes(), 0)
            .map_err(|error| unreadable(&error))?;
        sections.push([number, granted_ns, boot_ns()]);
        guard.unlock().await?;
    }
}

/// Ends the process as a power cut would: nothing is released, nothing is flushed.
fn crash(mut words: Words<'_>) -> Result<(), Failure> {
    words.end()?;
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

// ===== lock commands =====

type Acquiring = Pin<Box<dyn Future<Output = Result<Option<Guard>, Error>> + Send>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Cancel,
    Unlock,
    Drop,
    Verify,
    Look,
}

/// What another command wants from a lock command.
struct Request {
    id: String,
    action: Action,
}

/// The lock commands that wait or have a guard, by id.
#[derive(Default)]
struct Locks(Mutex<HashMap<String, UnboundedSender<Request>>>);

impl Locks {
    fn enter(&self, id: &str) -> Result<UnboundedReceiver<Request>, Failure> {
        let mut locks = locked(&self.0);
        if locks.contains_key(id) {
            return Err(Failure::bad(format!("id {id} is in use by a lock command")));
        }
        let (sender, requests) = unbounded_channel();
        locks.insert(id.to_owned(), sender);
        Ok(requests)
    }

    fn send(&self, lock: &str, request: Request) -> Result<(), Failure> {
        let locks = locked(&self.0);
        let sent = locks.get(lock).and_then(|sender| sender.send(request).ok());
        sent.ok_or_else(|| no_such_lock(lock))
    }
}

fn no_such_lock(lock: &str) -> Failure {
    Failure::new("no_such_lock", format!("no lock command {lock} waits or has a guard"))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task of one lock command: waits for the grant, then serves the guard.
struct Lock {
    id: String,
    name: String,
    lease: Duration,
    requests: UnboundedReceiver<Request>,
    locks: Arc<Locks>,
}

/// How the wait ended, when it did not fail.
enum Waited {
    Granted(Guard),
    Denied,
    /// By the command with this id.
    Cancelled(String),
}

impl Lock {
    async fn run(mut self, acquiring: Acquiring) {
        let called_ns = boot_ns();
        match self.wait(acquiring).await {
            Ok(Waited::Granted(guard)) => {
                self.say_granted(&guard, called_ns);
                self.serve(guard).await;
            }
            Ok(Waited::Denied) => self.end("denied", json!({ "name": self.name })),
            Ok(Waited::Cancelled(by)) => {
                self.end("cancelled", json!({ "lock": self.id }));
                finish(&by, Ok(("cancelled", json!({ "lock": self.id }))));
            }
            Err(error) => self.end("error", Failure::from(error).fields()),
        }
    }

    /// Waits for the end of `acquiring`, which is dropped by the time this returns.
    async fn wait(&mut self, mut acquiring: Acquiring) -> Result<Waited, Error> {
        let mut say_waiting = pin!(tokio::time::sleep(SAY_WAITING));
        let mut said = false;
        loop {
            tokio::select! {
                biased;
                result = &mut acquiring => {
                    return Ok(result?.map_or(Waited::Denied, Waited::Granted));
                }
                Some(request) = self.requests.recv() => match request.action {
                    Action::Cancel => return Ok(Waited::Cancelled(request.id)),
                    _ => finish(&request.id, Err(Failure::new("not_granted", "the lock is not granted yet"))),
                },
                () = &mut say_waiting, if !said => {
                    said = true;
                    emit(Some(&self.id), "waiting", json!({ "name": self.name }));
                }
            }
        }
    }

    fn say_granted(&self, guard: &Guard, called_ns: u64) {
        let valid_until_ns = guard.valid_until().as_boot_nanos();
        let fields = json!({
            "name": guard.name(), "token": guard.fencing_token(), "count": guard.hold_count(),
            "holder": guard.hold_id(), "sent_ns": self.sent_ns(valid_until_ns, called_ns),
            "valid_until_ns": valid_until_ns,
        });
        emit(Some(&self.id), "granted", fields);
    }

    /// Validity counts from the attempt that was granted, so it tells when that was sent. Where another limit than
    /// the lease set it (`max_hold`, a longer lease of an outer level), the start of the command has to do.
    fn sent_ns(&self, valid_until_ns: u64, called_ns: u64) -> u64 {
        let validity = self.lease.saturating_sub(self.lease / 100 + Duration::from_millis(2));
        let sent_ns = valid_until_ns.saturating_sub(u64::try_from(validity.as_nanos()).unwrap_or(u64::MAX));
        if (called_ns..boot_ns()).contains(&sent_ns) { sent_ns } else { called_ns }
    }

    /// Does what other commands want from the guard, and says when it is lost, until it is gone.
    async fn serve(mut self, guard: Guard) {
        let mut lost = false;
        loop {
            tokio::select! {
                biased;
                reason = guard.lost(), if !lost => {
                    lost = true;
                    emit(Some(&self.id), "lost", json!({ "name": guard.name(), "reason": reason.as_str() }));
                }
                request = self.requests.recv() => {
                    let Some(Request { id, action }) = request else { return };
                    match action {
                        Action::Unlock | Action::Drop => return self.release(guard, &id, action).await,
                        Action::Verify => {
                            let done = guard.verify().await.map_err(Failure::from);
                            finish(&id, done.map(|()| ("info", json!({ "lock": self.id, "verified": true }))));
                        }
                        Action::Look => finish(&id, Ok(("info", look(&guard)))),
                        Action::Cancel => {
                            finish(&id, Err(Failure::new("already_granted", "the lock is granted already")));
                        }
                    }
                }
            }
        }
    }

    async fn release(mut self, guard: Guard, id: &str, action: Action) {
        self.leave();
        emit(Some(id), "releasing", json!({ "lock": self.id, "name": self.name }));
        let done = if action == Action::Unlock {
            guard.unlock().await.map(|()| "unlocked")
        } else {
            drop(guard);
            Ok("dropped")
        };
        finish(id, done.map(|event| (event, json!({ "lock": self.id }))).map_err(Failure::from));
    }

    /// Ends the lock command itself. The id is free first, so that whoever reads the event can use it again.
    fn end(&mut self, event: &'static str, fields: Value) {
        self.leave();
        emit(Some(&self.id), event, fields);
    }

    /// Takes no more requests; those that came too late end here.
    fn leave(&mut self) {
        locked(&self.locks.0).remove(&self.id);
        while let Ok(request) = self.requests.try_recv() {
            finish(&request.id, Err(no_such_lock(&self.id)));
        }
    }
}

fn look(guard: &Guard) -> Value {
    let mut fields = Map::new();
    let loss = guard.loss();
    let state = match (guard.is_held(), guard.is_suspect()) {
        (true, false) => "held",
        (true, true) => "suspect",
        (false, _) => "lost",
    };
    fields.insert("state".into(), state.into());
    fields.insert("name".into(), guard.name().into());
    fields.insert("count".into(), guard.hold_count().into());
    fields.insert("token".into(), guard.fencing_token().into());
    fields.insert("holder".into(), guard.hold_id().into());
    fields.insert("remaining_ms".into(), (guard.valid_until().remaining().as_millis() as u64).into());
    fields.insert("valid_until_ns".into(), guard.valid_until().as_boot_nanos().into());
    fields.insert("reason".into(), loss.map(|reason| reason.as_str()).into());
    Value::Object(fields)
}
