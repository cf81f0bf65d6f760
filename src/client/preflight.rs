//! Checks whether a server, and what the user may do there, is fit for a lock.

mod report;
mod server;

pub use report::Finding;
pub use report::PreflightReport;
pub use report::Severity;

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::name::client_channel;
use crate::client::acl::ON_LINE;
use crate::driver::Shared;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Listen;
use crate::engine::event::Probe;
use crate::engine::event::Probed;
use crate::kinds::command::Announce;
use crate::kinds::command::Command;
use crate::kinds::command::ReleaseItem;
use crate::kinds::command::RenewItem;
use crate::kinds::command::ServerTime;
use crate::kinds::command::WaitMode;
use crate::kinds::conflict::conflict_words;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Forced;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::KeyState;
use crate::kinds::reply::Permission;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::share::Share;
use crate::locks::lock::unexpected;
use crate::settings::config::Topology;

const ALLOW: &str = "run the line that `LockClient::required_acl` prints on every server";
const RENAMED: &str =
    "undo the `rename-command` of its configuration: scripts call a command by its own name";

/// When a preflight was cut off, its keys are gone after this time.
const LEASE: Duration = Duration::from_secs(5);

const ON_LOCK: [&str; 12] = [
    "pttl", "exists", "type", "pexpire", "persist", "hget", "hset", "hdel", "hlen", "hexists",
    "hkeys", "hgetall",
];

/// Checks everything and reports it. An error means that the client has ended.
pub(crate) async fn preflight(
    shared: &Arc<Shared>,
    name: &LockName,
    topology: Topology,
) -> Result<PreflightReport> {
    let report = PreflightReport::new(name.as_str());
    let mut run = PreflightRun { shared, name, topology, sharded: false, report };
    run.server().await?;
    if run.report.is_usable() {
        run.permissions().await?;
    }
    if run.report.is_usable() {
        run.channel().await?;
        run.key().await?;
    }
    Ok(run.report)
}

struct PreflightRun<'a> {
    shared: &'a Arc<Shared>,
    name: &'a LockName,
    topology: Topology,
    sharded: bool,
    report: PreflightReport,
}

/// One step of the rehearsal: the command, the channel on which a message must arrive, and the
/// right answer.
struct RehearsalStep {
    command: Command,
    hears: Option<Arc<str>>,
    is_right: fn(&Body) -> bool,
}

/// Something that a lock needs and that is missing.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MissingRequirement {
    found: String,
    fix: &'static str,
}

impl MissingRequirement {
    fn of_permission(what: String) -> Self {
        Self { found: format!("the user may not use {what}"), fix: ALLOW }
    }

    fn of_command(command: &str) -> Self {
        Self { found: format!("the server does not know the command {command}"), fix: RENAMED }
    }
}

impl PreflightRun<'_> {
    // ---- the server

    async fn server(&mut self) -> Result<()> {
        let mut in_memory = false;
        match self.ask(Command::Info, None).await? {
            Ok(Probed { reply, sharded, .. }) => {
                self.sharded = sharded;
                if let Body::Info(info) = reply.body {
                    in_memory = server::is_in_memory(&info);
                    server::judge(&mut self.report, &info, self.topology);
                }
            }
            Err(error) => {
                self.failed("server", "INFO", &error);
                return Ok(());
            }
        }
        let sent = self.shared.now();
        if let Some(time) = self.time().await? {
            let round_trip = self.shared.now().since(sent);
            // The in-memory server starts at a fixed date, so that tests are reproducible, and
            // follows the clock of a runtime.
            let wall_clock = Some(time).filter(|_| !in_memory);
            let command_timeout = self.shared.config().command_timeout;
            server::judge_clock(&mut self.report, wall_clock, round_trip, command_timeout);
        }
        Ok(())
    }

    async fn time(&self) -> Result<Option<ServerTime>> {
        Ok(self.ask(Command::Time, None).await?.ok().and_then(|probed| probed.reply.time))
    }

    // ---- what the user may do

    /// Asks the server for the permissions, if it can tell, and then runs everything on another
    /// name.
    async fn permissions(&mut self) -> Result<()> {
        let denied = self.denied(self.name).await?;
        for MissingRequirement { found, fix } in denied.iter().flatten() {
            self.report.error("permissions", found.clone(), Some((*fix).to_owned()));
        }
        match &denied {
            Some(denied) if denied.is_empty() => {
                self.report.ok(
                    "permissions",
                    "the server says that the user may do everything that a lock needs",
                );
            }
            Some(_) => return Ok(()),
            None => {}
        }
        let Some(beside) = self.name.beside(random()) else {
            self.report.note(
                "scripts",
                "not run: the name is too long to form another name from it",
                None,
            );
            return Ok(());
        };
        if self.denied(&beside).await?.is_none_or(|denied| denied.is_empty()) {
            return self.rehearse(&beside).await;
        }
        let found = format!("not run: the user may use this name, but not the other name {beside}");
        self.report.note("scripts", found, None);
        Ok(())
    }

    /// What the user may not do with a name. `None` if the server cannot tell.
    async fn denied(&self, name: &LockName) -> Result<Option<Vec<MissingRequirement>>> {
        let needed = self.needed(name);
        let pairs = needed.iter().flat_map(|(_, target, commands)| {
            commands.iter().map(|command| (*command, target.clone()))
        });
        let answer = self.ask(Command::Permissions(pairs.collect()), None).await?;
        let Ok(Probed { reply, .. }) = answer else { return Ok(None) };
        let Body::Permissions(Some(allowed)) = reply.body else { return Ok(None) };
        let mut allowed = allowed.into_iter();
        let mut denied: Vec<MissingRequirement> = Vec::new();
        for (kind, target, commands) in needed {
            let here: Vec<(&str, Permission)> =
                commands.iter().copied().zip(&mut allowed).collect();
            if here.iter().all(|(_, permission)| *permission == Permission::Missing) {
                denied.push(MissingRequirement::of_permission(format!("the {kind} {target}")));
            } else {
                denied.extend(here.into_iter().filter_map(
                    |(command, permission)| match permission {
                        Permission::Given => None,
                        Permission::Missing => Some(MissingRequirement::of_permission(format!(
                            "the command {command}"
                        ))),
                        Permission::Unknown => Some(MissingRequirement::of_command(command)),
                    },
                ));
            }
        }
        denied.sort();
        denied.dedup();
        Ok(Some(denied))
    }

    /// The keys and channels, each with the commands that are used on it.
    fn needed(&self, name: &LockName) -> Vec<(&'static str, String, &'static [&'static str])> {
        let announce = self.announce(name);
        let on_channel: &[_] =
            if self.sharded { &["spublish", "ssubscribe"] } else { &["publish", "subscribe"] };
        let mut needed: Vec<(&str, String, &[&str])> = vec![
            ("key", name.as_str().to_owned(), &ON_LOCK),
            ("key", name.fence_key(), &["get", "set"]),
            ("channel", announce.channel.to_string(), on_channel),
            ("channel", self.client_channel(), &["publish", "subscribe"]),
        ];
        if announce.line {
            needed.push(("key", name.line_key(), &ON_LINE));
        }
        needed
    }

    // ---- a rehearsal

    /// Uses another name in each way in which locks are used. No hold, counter or log of this
    /// client shows it.
    async fn rehearse(&mut self, beside: &LockName) -> Result<()> {
        let Some(now) = self.time().await? else { return Ok(()) };
        let not_after =
            ServerTime(now.0.saturating_add(i64::try_from(LEASE.as_micros()).unwrap_or(0)));
        let fields = [self.field("a"), self.field("b")];
        let mut went_well = true;
        for step in self.steps(beside, not_after, &fields)? {
            let label = step.command.label();
            let hears = step.hears.is_some();
            match self.ask(step.command, step.hears).await? {
                Ok(probed) if !(step.is_right)(&probed.reply.body) => {
                    self.went_wrong(label, beside, &probed.reply.body);
                    went_well = false;
                }
                Ok(probed) if hears && !probed.heard => {
                    let found = format!(
                        "what {label} publishes does not arrive: waiters only find out by themselves, after up to 5 s"
                    );
                    self.report.warn(
                        "channels",
                        found,
                        "look for a proxy that does not support pub/sub",
                    );
                }
                Ok(_) => {}
                Err(error) => {
                    self.failed("scripts", label, &error);
                    went_well = false;
                }
            }
            if !went_well {
                break;
            }
        }
        for field in &fields {
            let _ = self.ask(self.release(beside, field, 0), None).await?;
        }
        if went_well {
            self.report
                .ok("scripts", "every script was run on another name, and its effects were undone");
            if self.report.about("channels").next().is_none() {
                self.report.ok("channels", "messages come through");
            }
        }
        Ok(())
    }

    /// Every script, with every branch that needs a permission of its own.
    fn steps(
        &self,
        name: &LockName,
        not_after: ServerTime,
        [a, b]: &[String; 2],
    ) -> Result<Vec<RehearsalStep>> {
        let lease = LeaseMs::checked("lease", LEASE)?;
        let announce = self.announce(name);
        let channel = Arc::clone(&announce.channel);
        let lines = announce.line;
        let attempt = |field: &String, share, wait| Command::Acquire {
            name: name.clone(),
            field: field.clone(),
            share,
            lease,
            not_after,
            line: lines,
            wait,
        };
        let acquire =
            |field: &String, count| attempt(field, Share::exclusive(count), WaitMode::Try);
        let holds = vec![RenewItem { name: name.clone(), field: a.clone(), lease }];
        let force = Command::ForceRelease {
            name: name.clone(),
            expected: a.clone(),
            not_after,
            announce: announce.clone(),
            client_channel: self.client_channel(),
        };
        let hand_off = Command::HandOff {
            name: name.clone(),
            from: a.clone(),
            to: b.clone(),
            lease,
            not_after,
            announce: announce.clone(),
            line_first: false,
            hears: false,
        };
        let granted: fn(&Body) -> bool =
            |body| matches!(body, Body::Acquire(Acquired::Granted { .. }));
        let step = |command, is_right| RehearsalStep { command, hears: None, is_right };
        let mut in_line = vec![];
        if lines {
            let waits = attempt(b, Share::ONE, WaitMode::First { hears: true });
            in_line.push(step(acquire(a, 1), granted));
            in_line.push(step(waits, |body| {
                matches!(body, Body::Acquire(Acquired::Held { place: Some(_), .. }))
            }));
            in_line.push(RehearsalStep {
                command: self.release(name, a, 0),
                hears: Some(Arc::clone(&channel)),
                is_right: |body| {
                    matches!(body, Body::Release(Released::Freed { receivers: Some(_) }))
                },
            });
            // It was reserved, and is picked up.
            in_line.push(step(acquire(b, 1), granted));
            in_line.push(step(self.release(name, b, 0), |body| {
                matches!(body, Body::Release(Released::Freed { receivers: Some(_) }))
            }));
        }
        let mut steps = vec![
            step(acquire(a, 1), granted),
            step(acquire(a, 2), granted),
            step(self.release(name, a, 1), |body| {
                matches!(body, Body::Release(Released::CountSet))
            }),
            step(Command::Inspect { name: name.clone() }, |body| {
                matches!(body, Body::Inspect(KeyState::Hash { .. }))
            }),
            step(
                Command::Renew { holds, not_after },
                |body| matches!(body, Body::Renew(Some(renewed)) if renewed[..] == [Renewed::Yes]),
            ),
            step(acquire(b, 1), |body| matches!(body, Body::Acquire(Acquired::Held { .. }))),
            step(self.release(name, b, 0), |body| matches!(body, Body::Release(Released::Foreign))),
            step(hand_off, |body| matches!(body, Body::HandOff(HandedOff::Granted { .. }))),
            RehearsalStep {
                command: self.release(name, b, 0),
                hears: Some(Arc::clone(&channel)),
                is_right: |body| {
                    matches!(body, Body::Release(Released::Freed { receivers: Some(_) }))
                },
            },
            step(acquire(a, 1), granted),
            RehearsalStep {
                command: Command::ReleaseMany(vec![ReleaseItem {
                    name: name.clone(),
                    field: a.clone(),
                    announce: announce.clone(),
                }]),
                hears: Some(Arc::clone(&channel)),
                is_right: |body| {
                    let Body::ReleaseMany(released) = body else { return false };
                    matches!(released[..], [Some(Released::Freed { receivers: Some(_) })])
                },
            },
            step(acquire(a, 1), granted),
            RehearsalStep {
                command: Command::ReleaseAt {
                    name: name.clone(),
                    field: a.clone(),
                    // A time in the past, so that nothing is left behind.
                    free_at: ServerTime(0),
                    most: lease,
                    announce,
                },
                hears: Some(channel),
                is_right: |body| {
                    matches!(body, Body::Release(Released::Freed { receivers: Some(_) }))
                },
            },
            step(acquire(a, 1), granted),
            RehearsalStep {
                command: force,
                hears: Some(self.client_channel().into()),
                is_right: |body| matches!(body, Body::Force(Forced::Freed { receivers: Some(_) })),
            },
        ];
        steps.extend(in_line);
        Ok(steps)
    }

    fn went_wrong(&mut self, label: &str, beside: &LockName, body: &Body) {
        if let Body::Acquire(Acquired::Conflict(found)) = body {
            let found = format!("the lock would be refused: {}", conflict_words(found, beside));
            return self.report.error("key", found, Some("remove the key by hand".to_owned()));
        }
        self.report.error("scripts", format!("{label} answered {body:?} on {beside}"), None);
    }

    fn release(&self, name: &LockName, field: &str, count: u32) -> Command {
        Command::Release {
            name: name.clone(),
            field: field.to_owned(),
            share: Share::exclusive(count),
            announce: self.announce(name),
            undo: false,
        }
    }

    /// No hold has this field, because their fields have no suffix.
    fn field(&self, suffix: &str) -> String {
        format!("{}:{}:preflight-{suffix}", self.shared.config().client_id, random())
    }

    // ---- the lock itself, which is only looked at

    /// Subscribing to the channel affects no other client; publishing would.
    async fn channel(&mut self) -> Result<()> {
        let command = Command::Inspect { name: self.name.clone() };
        let channel = self.announce(self.name).channel;
        let listen = Listen { channel: Arc::clone(&channel), awaited: false };
        if let Err(error) = self.probe(command, Some(listen)).await? {
            self.failed("channels", &format!("subscribing to {channel}"), &error);
        }
        Ok(())
    }

    async fn key(&mut self) -> Result<()> {
        match self.ask(Command::Inspect { name: self.name.clone() }, None).await? {
            Ok(Probed { reply, .. }) => {
                let Body::Inspect(state) = reply.body else { return Ok(()) };
                match (state.conflict(self.name.kind()), state) {
                    (Some(found), _) => self.report.error(
                        "key",
                        format!("it is used for something else: {found}"),
                        Some("use another name, or remove the key by hand".to_owned()),
                    ),
                    (None, KeyState::Absent) => self.report.ok("key", "free"),
                    (None, _) => self.report.ok("key", "held at present; it was only read"),
                }
            }
            Err(error) => self.failed("key", "inspect", &error),
        }
        Ok(())
    }

    // ---- small things

    async fn ask(&self, command: Command, hears: Option<Arc<str>>) -> Result<Result<Probed>> {
        self.probe(command, hears.map(|channel| Listen { channel, awaited: true })).await
    }

    /// The outer error means that the client has ended.
    async fn probe(&self, command: Command, listen: Option<Listen>) -> Result<Result<Probed>> {
        let probe = Box::new(Probe { name: self.name.clone(), command, listen });
        match self.shared.ask_cancellable(|request| Event::Probe { probe, request }).await {
            Answer::Probed(probed) => Ok(Ok(probed)),
            Answer::Failed(error @ Error::Closed { .. }) => Err(error.of_lock(self.name.as_str())),
            answer => Ok(Err(unexpected(answer))),
        }
    }

    fn failed(&mut self, topic: &'static str, what: &str, error: &Error) {
        let topic = if matches!(error, Error::Denied { .. }) { "permissions" } else { topic };
        self.report.error(topic, format!("{what}: {}", error.words()), Some(fix_of(error)));
    }

    fn announce(&self, name: &LockName) -> Announce {
        Announce::of(name, self.shared.config().profile, self.sharded)
    }

    fn client_channel(&self) -> String {
        client_channel(&self.shared.config().client_id)
    }
}

fn fix_of(error: &Error) -> String {
    let words = error.words();
    let known = [
        ("renamed or switched off", RENAMED),
        ("OOM", "raise maxmemory, or remove what fills it"),
        ("NOREPLICAS", "bring the replicas back"),
        ("MISCONF", "check the server's disk and log"),
        ("READONLY", "connect to the primary, or through the sentinels"),
        ("CLUSTERDOWN", "bring back the nodes that have the missing slots"),
    ];
    if matches!(error, Error::Denied { .. }) {
        return ALLOW.to_owned();
    }
    let fix = known.iter().find(|(word, _)| words.contains(word));
    fix.map_or("see the page on errors in the documentation", |(_, fix)| fix).to_owned()
}

fn random() -> u32 {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
