//! The commands, each run as its own task.

use std::collections::HashMap;
use std::io::BufRead;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use redis_reentrant_lock::Error;
use redis_reentrant_lock::Finding;
use redis_reentrant_lock::LockClient;
use redis_reentrant_lock::LockOptions;
use redis_reentrant_lock::MultiLock;
use redis_reentrant_lock::Owner;
use redis_reentrant_lock::Redlock;
use redis_reentrant_lock::RedlockServer;
use serde_json::Value;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::Clients;
use crate::count::Count;
use crate::count::Protects;
use crate::flight::Flight;
use crate::lock::Acquiring;
use crate::lock::Action;
use crate::lock::Held;
use crate::lock::Lock;
use crate::lock::Locks;
use crate::lock::Request;
use crate::lock::locked;
use crate::output::Done;
use crate::output::Failure;
use crate::output::boot_ns;
use crate::output::emit;
use crate::output::finish;
use crate::words::Options;
use crate::words::Words;
use crate::words::millis;

/// How long the client may take to shut down.
const SHUTDOWN: Duration = Duration::from_secs(5);

pub(crate) struct Puppet {
    client: LockClient,
    redlock: Option<Redlock>,
    /// Of the other servers of the Redlock.
    others: Vec<LockClient>,
    /// The watched lease.
    lease: Duration,
    runtime: Runtime,
    workers: usize,
    owners: HashMap<String, Owner>,
    locks: Arc<Locks>,
}

impl Puppet {
    pub(crate) fn new(clients: Clients, lease: Duration, runtime: Runtime, workers: usize) -> Self {
        let Clients { first: client, redlock, others } = clients;
        let (owners, locks) = (HashMap::new(), Arc::default());
        Self { client, redlock, others, lease, runtime, workers, owners, locks }
    }

    pub(crate) fn run(mut self, mut input: impl BufRead) -> ExitCode {
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            self.line(&line);
            line.clear();
        }
        let _ = self.runtime.block_on(shut_down(self.clients(), SHUTDOWN));
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
            verb @ ("lock" | "try" | "mutex" | "multi") => self.lock(id, verb, words),
            "unlock" => self.ask(id, Action::Unlock, words),
            "drop" => self.ask(id, Action::Drop, words),
            "cancel" => self.ask(id, Action::Cancel, words),
            "downgrade" => self.ask(id, Action::Downgrade, words),
            "verify" => self.ask(id, Action::Verify, words),
            "guard" => self.ask(id, Action::Look, words),
            "force" => self.force(id, words),
            "query" => self.query(id, words),
            "count" => self.count(id, words),
            "flight" => self.flight(id, words),
            "latch" => self.latch(id, words),
            "block" => self.block(id, words),
            "stats" => self.stats(id, words),
            "servers" => self.servers(id, words),
            "ping" => self.ping(id, words),
            "preflight" => self.preflight(id, words),
            "shutdown" => self.shutdown(id, words),
            "crash" => crash(words),
            verb => Err(Failure::bad(format!("no such verb: {verb}"))),
        }
    }

    fn lock(&mut self, id: &str, verb: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let name = words.name()?;
        let options = words.options(&[
            "owner",
            "lease_ms",
            "wait_ms",
            "max_hold_ms",
            "kind",
            "permits",
            "of",
        ])?;
        let acquiring = self.acquiring(verb, &name, &options)?;
        let requests = self.locks.enter(id)?;
        let lease = options.lease.unwrap_or(self.lease);
        let lock =
            Lock { id: id.to_owned(), name, lease, requests, locks: Arc::clone(&self.locks) };
        self.runtime.spawn(lock.run(acquiring));
        Ok(())
    }

    /// The future of a lock command. It decides on its owner when it is first polled: in the
    /// command's own task.
    fn acquiring(
        &mut self,
        verb: &str,
        name: &str,
        options: &Options,
    ) -> Result<Acquiring, Failure> {
        let plain = options.lock_options();
        let once = options.wait.is_none() && verb == "try";
        let is_redlock = options.kind.is_none() && matches!(verb, "lock" | "try");
        if let Some(redlock) = self.redlock.clone().filter(|_| is_redlock) {
            let mut wanted = plain.unwrap_or_default();
            if once {
                wanted = wanted.wait(Duration::ZERO);
            }
            let name = name.to_owned();
            return Ok(Box::pin(async move {
                Ok(redlock.lock_with(name, wanted).await?.map(Held::Majority))
            }));
        }
        if options.kind.as_deref() == Some("permit") {
            return self.permits(once, name, options);
        }
        if verb == "multi" || options.kind.as_deref() == Some("multi") {
            return self.several(name, options);
        }
        if verb == "mutex" || options.kind.as_deref() == Some("mutex") {
            let mutex = self.client.mutex(name)?;
            return Ok(Box::pin(async move {
                match plain {
                    None => mutex.lock().await.map(|guard| Ok(Held::Lock(guard))),
                    Some(options) => Ok(mutex.lock_with(options).await?.map(Held::Lock)),
                }
            }));
        }
        if let Some(kind @ ("read" | "write")) = options.kind.as_deref() {
            let acquiring = self.read_or_write(once, name, kind == "write", plain)?;
            return Ok(match &options.owner {
                Some(owner) => Box::pin(self.owner(owner).scope(acquiring)),
                None => acquiring,
            });
        }
        let wanted =
            if once { Some(plain.unwrap_or_default().wait(Duration::ZERO)) } else { plain };
        let acquiring: Acquiring = if options.kind.as_deref() == Some("fair") {
            let lock = self.client.fair_lock(name)?;
            Box::pin(async move {
                Ok(lock.lock_with(wanted.unwrap_or_default()).await?.map(Held::Lock))
            })
        } else {
            let lock = self.client.reentrant_lock(name)?;
            Box::pin(async move {
                Ok(match wanted {
                    None => Ok(Held::Lock(lock.lock().await?)),
                    Some(options) => lock.lock_with(options).await?.map(Held::Lock),
                })
            })
        };
        Ok(match &options.owner {
            Some(owner) => Box::pin(self.owner(owner).scope(acquiring)),
            None => acquiring,
        })
    }

    /// The future of a command that takes several locks.
    fn several(&mut self, names: &str, options: &Options) -> Result<Acquiring, Failure> {
        let lock = self.multi_lock(names)?;
        let wanted = options.lock_options().unwrap_or_default();
        let acquiring = async move { Ok(lock.lock_with(wanted).await?.map(Held::Several)) };
        Ok(match &options.owner {
            Some(owner) => Box::pin(self.owner(owner).scope(acquiring)),
            None => Box::pin(acquiring),
        })
    }

    /// Of names with commas between them.
    fn multi_lock(&self, names: &str) -> Result<MultiLock, Failure> {
        let members: Result<Vec<_>, _> =
            names.split(',').map(|name| self.client.reentrant_lock(name)).collect();
        Ok(MultiLock::new(members?.into_iter().map(Into::into))?)
    }

    /// The future of a lock command that reads or writes.
    fn read_or_write(
        &self,
        once: bool,
        name: &str,
        writes: bool,
        options: Option<LockOptions>,
    ) -> Result<Acquiring, Failure> {
        let lock = self.client.rw_lock(name)?;
        let options = options.or(once.then(LockOptions::new));
        let options =
            options.map(|options| if once { options.wait(Duration::ZERO) } else { options });
        Ok(match (writes, options) {
            (false, None) => {
                Box::pin(async move { lock.read().await.map(|read| Ok(Held::Read(read))) })
            }
            (true, None) => {
                Box::pin(async move { lock.write().await.map(|write| Ok(Held::Write(write))) })
            }
            (false, Some(options)) => {
                Box::pin(async move { Ok(lock.read_with(options).await?.map(Held::Read)) })
            }
            (true, Some(options)) => {
                Box::pin(async move { Ok(lock.write_with(options).await?.map(Held::Write)) })
            }
        })
    }

    /// The future of a lock command that wants permits of a semaphore.
    fn permits(&self, once: bool, name: &str, options: &Options) -> Result<Acquiring, Failure> {
        let permits = options.permits.unwrap_or(1);
        let semaphore = self.client.semaphore(name, options.permits_there_are()?)?;
        let plain = options.lock_options();
        Ok(Box::pin(async move {
            let acquired = match plain {
                None if once => semaphore.try_acquire_many(permits).await,
                None => semaphore.acquire_many(permits).await.map(Ok),
                Some(options) if once => {
                    semaphore.acquire_with(permits, options.wait(Duration::ZERO)).await
                }
                Some(options) => semaphore.acquire_with(permits, options).await,
            };
            Ok(acquired?.map(Held::Permits))
        }))
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
        self.spawn(
            id,
            async move { Ok(("info", json!({ "forced": lock.force_unlock().await? }))) },
        );
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
        let name = words.name()?;
        let number = words.required("the number")?;
        let until = number.parse().map_err(|_| Failure::bad(format!("not a number: {number}")))?;
        let file = words.required("the file")?.to_owned();
        let options = words.options(&["kind", "of", "work_us", "pause_us"])?;
        let lock = match (options.kind.as_deref(), self.redlock.clone()) {
            (None, Some(redlock)) => Protects::Majority(redlock, name),
            (None | Some("mutex"), _) => Protects::Mutex(self.client.mutex(&name)?),
            (Some("fair"), _) => Protects::Fair(self.client.fair_lock(&name)?),
            (Some("read"), _) => Protects::Read(self.client.rw_lock(&name)?),
            (Some("write"), _) => Protects::Write(self.client.rw_lock(&name)?),
            (Some("multi"), _) => Protects::Multi(self.multi_lock(&name)?),
            (Some("permit"), _) => {
                Protects::Permit(self.client.semaphore(&name, options.permits_there_are()?)?)
            }
            (Some(kind), _) => {
                return Err(Failure::bad(format!("count does not take kind={kind}")));
            }
        };
        let count = Count::new(lock, until, &file, options.work, options.pause)?;
        self.spawn(id, async move { Ok(("info", count.run().await?)) });
        Ok(())
    }

    fn flight(&self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let single = self.client.single_flight(words.name()?)?;
        let flight = Flight::read(&mut words)?;
        self.spawn(id, flight.run(single));
        Ok(())
    }

    fn latch(&self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let latch = self.client.count_down_latch(words.name()?)?;
        let verb = words.required("set, down, wait or count")?.to_owned();
        let count = match &*verb {
            "set" => {
                let number = words.required("the count")?;
                number.parse().map_err(|_| Failure::bad(format!("not a count: {number}")))?
            }
            "down" | "wait" | "count" => 0,
            verb => return Err(Failure::bad(format!("a latch cannot {verb}"))),
        };
        words.end()?;
        self.spawn(id, async move {
            let set = match &*verb {
                "set" => Some(latch.try_set_count(count).await?),
                "down" => latch.count_down().await.map(|_| None)?,
                "wait" => latch.wait().await.map(|()| None)?,
                _ => None,
            };
            let count = latch.count().await?;
            Ok(("info", json!({ "count": count, "set": set })))
        });
        Ok(())
    }

    /// Puts one blocking task on each worker. From a thread of its own, one at a time: the workers
    /// must be had all at once, or two commands would wait for each other.
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
            finish(
                &id,
                Ok(("info", json!({ "workers": workers, "blocked_ms": time.as_millis() as u64 }))),
            );
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

    fn servers(&self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        words.end()?;
        let redlock = self.redlock.as_ref();
        let redlock = redlock.ok_or_else(|| Failure::bad("there is no redlock="))?;
        let server = |server: RedlockServer| json!({ "address": server.address, "counts": server.counts, "why_not": server.why_not });
        let servers: Vec<Value> = redlock.status().into_iter().map(server).collect();
        finish(id, Ok(("info", json!({ "servers": servers }))));
        Ok(())
    }

    fn preflight(&self, id: &str, mut words: Words<'_>) -> Result<(), Failure> {
        let name = words.name()?;
        let kind = match words.next() {
            None | Some("kind=lock") => "lock",
            Some("kind=latch") => "latch",
            Some("kind=permit") => "permit",
            Some("kind=rw_lock") => "rw_lock",
            Some("kind=fair") => "fair",
            Some(word) => return Err(Failure::bad(format!("not an option here: {word}"))),
        };
        words.end()?;
        let client = self.client.clone();
        self.spawn(id, async move {
            let report = match kind {
                "latch" => client.preflight_latch(&name).await?,
                "permit" => client.preflight_semaphore(&name).await?,
                "rw_lock" => client.preflight_rw_lock(&name).await?,
                "fair" => client.preflight_fair_lock(&name).await?,
                _ => client.preflight(&name).await?,
            };
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
        let clients = self.clients();
        self.spawn(id, async move {
            Ok(("info", json!({ "unreleased": shut_down(clients, deadline).await? })))
        });
        Ok(())
    }

    fn clients(&self) -> Vec<LockClient> {
        self.others.iter().chain([&self.client]).cloned().collect()
    }

    /// Runs the rest of a command as its own task.
    fn spawn(&self, id: &str, rest: impl Future<Output = Done> + Send + 'static) {
        let id = id.to_owned();
        self.runtime.spawn(async move { finish(&id, rest.await) });
    }
}

/// All of them at once. Gives the names that could not be released.
async fn shut_down(clients: Vec<LockClient>, deadline: Duration) -> Result<Vec<String>, Error> {
    let mut all = JoinSet::new();
    for client in clients {
        all.spawn(async move { client.shutdown(deadline).await });
    }
    let mut unreleased = Vec::new();
    for report in all.join_all().await {
        unreleased.extend(report?.left.into_iter().map(|left| left.name));
    }
    Ok(unreleased)
}

#[expect(clippy::disallowed_methods, reason = "blocking the runtime is what was asked for")]
pub(crate) fn sleep_here(time: Duration) {
    std::thread::sleep(time);
}

/// Ends the process as a power cut would: nothing is released, nothing is flushed.
fn crash(mut words: Words<'_>) -> Result<(), Failure> {
    words.end()?;
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
