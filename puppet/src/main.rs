//! A lock client that other programs control: tests, programs in other languages, and operators who
//! try things out.
//!
//! ```text
//! puppet URL [driver=thread|current] [lease_ms=N] [profile=native|redisson]
//!            [sharded=auto|on|off] [handoff=on|off] [ca=FILE] [cert=FILE key=FILE]
//! puppet redlock=URL,URL,URL… [assume_fresh=on] …
//! ```
//!
//! With `redlock=`, `lock`, `try` and `count` without `kind=` take a `Redlock` over all of these
//! servers; the other commands are about the first of them. `assume_fresh=on` says that nothing can be held on
//! those that are connected by the time of `ready`.
//!
//! `ca`, `cert` and `key` are PEM files for a `rediss://` URL: the authorities to trust, the
//! client's certificate and its key.
//!
//! This is a stable protocol: verbs, events and fields are added, not changed.
//!
//! # Input
//!
//! One command a line, `ID VERB ARGUMENT…`, each run as its own task. ID is any word. NAME is a
//! bare word or a JSON string. Commands with the same `owner=` share an `Owner`; without it each
//! command is an owner of its own.
//!
//! | command | ends in | |
//! |---|---|---|
//! | `ID lock NAME [owner=O] [lease_ms=N] [wait_ms=N] [max_hold_ms=N]` | granted, denied | waits, forever or `wait_ms`; `lease_ms` makes the lease a fixed one |
//! | `ID lock NAME kind=permit of=M [permits=N] …` | granted, denied | N permits (1) of a semaphore that has M; other kinds are `reentrant`, the default, `mutex` and `fair` |
//! | `ID lock NAME kind=read\|write …` | granted, denied | reads or writes a read-write lock |
//! | `ID try NAME …` | granted, denied | as `lock`, but one attempt if there is no `wait_ms` |
//! | `ID mutex NAME …` | granted, denied | as `lock`, every acquisition its own owner (`owner=` is ignored) |
//! | `ID multi NAME,NAME… [owner=O] [lease_ms=N] [wait_ms=N] [max_hold_ms=N]` | granted, denied | all of these locks or none; `name`, `token` and `holder` are those of the first in their order |
//! | `ID servers` | info | the servers of a `Redlock`: `servers`, each `address`, `counts` and `why_not` |
//! | `ID unlock LOCK` | unlocked | releases the guard that command LOCK was granted, and waits for the answer |
//! | `ID drop LOCK` | dropped | drops it; the release goes on in the background |
//! | `ID cancel LOCK` | cancelled | drops the future of the waiting command LOCK, which ends in `cancelled` too |
//! | `ID downgrade LOCK` | info | the write that command LOCK was granted becomes a read; as `guard` |
//! | `ID verify LOCK` | info | asks the server whether the guard still holds |
//! | `ID guard LOCK` | info | `state` (held, suspect, lost), `count`, `token`, `remaining_ms`, `holder`, `reason`; no I/O |
//! | `ID force NAME` | info | `forced`: whether somebody lost the lock by it |
//! | `ID query NAME [owner=O]` | info | `locked`, `remaining_ms`, `holder`; of the owner: `held`, `hold_count` |
//! | `ID count NAME UNTIL FILE [work_us=N] [pause_us=N] [kind=mutex\|fair\|read\|write\|permit] [of=N]` | info | critical sections, see below |
//! | `ID flight NAME FILE [work_ms=N] [fails=1]` | info | a single flight, see below |
//! | `ID latch NAME set N\|down\|wait\|count` | info | a count-down latch: `count`, as it is afterwards; `set`: whether `set` did |
//! | `ID block MS` | info | blocks every worker of the user's runtime |
//! | `ID stats` | info | `counters` and `gauges` |
//! | `ID ping` | info | `rtt_us` |
//! | `ID preflight NAME [kind=lock\|fair\|latch\|permit\|rw_lock]` | info | `severity` (ok, note, warning, error), `usable`, `findings` (each `severity`, `topic`, `found`, `fix`), `text` |
//! | `ID shutdown [MS]` | info | shuts the client down; `unreleased`: names it could not release |
//! | `ID crash` | | SIGKILL to itself |
//!
//! `count` repeats: lock, read the number in FILE, wait N µs, write the number plus 1, unlock. It
//! stops when the number is UNTIL. Only the lock protects the number. It prints nothing meanwhile,
//! since that would take longer than the locks do. It ends in `done` (how many of the sections were
//! its own), `longest_wait_us`, and `sections`: for each of them the number that it read, when the
//! lock was granted and when its release began, in ns as `boot_ns`. With `kind=read` it does not
//! write, but reads once more, and `changed` says how often the number was another one. With
//! `pause_us` it waits between two sections.
//!
//! `flight` wants the value in FILE. If the file is not there, one of those that want it waits N ms,
//! adds a line to the log (FILE with the ending `.log`) and writes FILE; with `fails=1` it fails
//! instead of writing. It ends in `led` (whether this command was the one) and `value`.
//!
//! At the end of the input the client is shut down and the process exits with 0.
//!
//! # Output
//!
//! One JSON object a line, `{"id":…,"event":…,"boot_ns":…,…}`; `id` is the command's, a string;
//! `boot_ns` is CLOCK_BOOTTIME when it happened. Every command but `crash` ends in exactly one of
//! `granted`, `denied`, `unlocked`, `dropped`, `cancelled`, `info` and `error`.
//!
//! | event | fields |
//! |---|---|
//! | `ready` | `uuid` of the client, `pid`; `id` is null |
//! | `waiting` | once, when a `lock`, `try` or `mutex` has not ended within 20 ms |
//! | `granted` | `name`, `token`, `count`, `holder` (the field in the key, null for a `Redlock`, whose field is another one on each server); `sent_ns`, when the granted attempt was sent; `valid_until_ns`, which counts from it |
//! | `denied` | `name`: somebody else holds it |
//! | `releasing` | `lock`; before the release of an `unlock` or `drop` is sent |
//! | `unlocked`, `dropped`, `cancelled` | `lock` |
//! | `info` | as above |
//! | `error` | `kind`, `message`; `id` is null if the line has none, or before `ready` |
//! | `lost` | `name`, `reason`; unasked, once for each live guard; `id` is that of its lock command |
//!
//! `kind` is an `Error` in snake case, or `bad_command`, `no_such_lock`, `not_granted`,
//! `already_granted`.

mod commands;
mod count;
mod flight;
mod lock;
mod output;
mod words;

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockClientBuilder;
use redis_reentrant_lock::Redlock;
use redis_reentrant_lock::Tls;
use redis_reentrant_lock::WireProfile;
use serde_json::json;

use crate::commands::Puppet;
use crate::output::Failure;
use crate::output::emit;
use crate::words::millis;

/// The crate's.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// So long the servers of a Redlock may take to be there at the start. Those that are not may come
/// later.
const AT_THE_START: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (connecting, lease) = match connecting(&args) {
        Ok(configured) => configured,
        Err(failure) => return fail(&failure),
    };
    let workers = std::thread::available_parallelism().map_or(2, |number| number.get().max(2));
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&Failure::new("unavailable", error)),
    };
    // In a task, so that a driver on the current runtime lives on the workers that `block` blocks.
    let clients = match runtime.block_on(async { tokio::spawn(connecting.connect()).await }) {
        Ok(Ok(clients)) => clients,
        Ok(Err(error)) => return fail(&error.into()),
        Err(error) => return fail(&Failure::new("unavailable", error)),
    };
    emit(None, "ready", json!({ "uuid": clients.first.id(), "pid": std::process::id() }));
    let puppet = Puppet::new(clients, lease, runtime, workers);
    puppet.run(std::io::stdin().lock())
}

/// What the command line describes.
enum Connecting {
    One(Box<LockClientBuilder>),
    Redlock { builders: Vec<LockClientBuilder>, is_fresh: bool },
}

/// The client of most commands, and the `Redlock` if there is one.
struct Clients {
    first: LockClient,
    redlock: Option<Redlock>,
    /// Those of its servers, but for the first.
    others: Vec<LockClient>,
}

impl Connecting {
    async fn connect(self) -> redis_reentrant_lock::Result<Clients> {
        let (builders, is_fresh) = match self {
            Self::One(builder) => {
                let first = builder.connect().await?;
                return Ok(Clients { first, redlock: None, others: Vec::new() });
            }
            Self::Redlock { builders, is_fresh } => (builders, is_fresh),
        };
        let lazy = builders.into_iter().map(LockClientBuilder::connect_lazy);
        let mut clients: Vec<LockClient> = lazy.collect::<Result<_, _>>()?;
        let redlock = Redlock::new(clients.iter().cloned())?;
        let all_there = async {
            for client in &clients {
                let _ = client.ping().await;
            }
        };
        let _ = tokio::time::timeout(AT_THE_START, all_there).await;
        if is_fresh {
            redlock.assume_fresh();
        }
        let first = clients.remove(0);
        Ok(Clients { first, redlock: Some(redlock), others: clients })
    }
}

/// What the command line describes, and the watched lease.
fn connecting(args: &[String]) -> Result<(Connecting, Duration), Failure> {
    let [servers, settings @ ..] = args else {
        return Err(Failure::bad(
            "usage: puppet URL [driver=…] [lease_ms=…] [profile=…] [sharded=…] [handoff=…] [ca=…] [cert=… key=…], \
             or redlock=URL,URL,URL [assume_fresh=on] in place of URL",
        ));
    };
    let Some(urls) = servers.strip_prefix("redlock=") else {
        let (builder, lease) = builder(servers, settings)?;
        return Ok((Connecting::One(Box::new(builder)), lease));
    };
    let is_fresh = |setting: &String| setting == "assume_fresh=on";
    let (fresh, settings): (Vec<String>, Vec<String>) =
        settings.iter().cloned().partition(is_fresh);
    let (mut builders, mut lease) = (Vec::new(), DEFAULT_LEASE);
    for url in urls.split(',') {
        let (builder, its_lease) = builder(url, &settings)?;
        builders.push(builder);
        lease = its_lease;
    }
    Ok((Connecting::Redlock { builders, is_fresh: !fresh.is_empty() }, lease))
}

/// A client with these settings, and its watched lease.
fn builder(url: &str, settings: &[String]) -> Result<(LockClientBuilder, Duration), Failure> {
    let (mut builder, mut lease) = (LockClient::builder().url(url), DEFAULT_LEASE);
    let mut files = HashMap::new();
    for setting in settings {
        builder = match setting.split_once('=').unwrap_or((setting, "")) {
            // The second word is what this was called once.
            ("driver" | "keeper", word) => builder.driver(word.parse()?),
            ("lease_ms", value) => {
                lease = millis("lease_ms", value)?;
                builder.lease(lease)
            }
            // What the profile was called once: programs that speak this protocol may still say it.
            ("profile", "default") => builder.profile(WireProfile::Native),
            ("profile", word) => builder.profile(word.parse()?),
            ("sharded", word) => builder.sharding(word.parse()?),
            ("handoff", "on") => builder.hand_off(true),
            ("handoff", "off") => builder.hand_off(false),
            (what @ ("ca" | "cert" | "key"), path) => {
                let text = std::fs::read(path)
                    .map_err(|error| Failure::bad(format!("{path}: {error}")))?;
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
