//! Checks whether a server, and what the user may do there, is fit for a lock, a latch or a
//! semaphore.
//!
//! What differs from kind to kind is in a [`Plan`] for each: its keys and channels with the commands
//! that are used on them, a rehearsal of its scripts, and how its key is looked at.

mod latch;
mod plan;
mod read_write;
mod reentrant;
mod report;
mod semaphore;
mod server;

pub use report::Finding;
pub use report::PreflightReport;
pub use report::Severity;

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::error::Result;
use crate::base::name::LockName;
use crate::client::preflight::plan::Need;
use crate::client::preflight::plan::Plan;
use crate::client::preflight::plan::Rehearsal;
use crate::client::preflight::plan::Setting;
use crate::driver::Shared;
use crate::engine::event::Answer;
use crate::engine::event::Event;
use crate::engine::event::Listen;
use crate::engine::event::Probe;
use crate::engine::event::Probed;
use crate::engine::event::unexpected;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::conflict::conflict_words;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Permission;
use crate::settings::config::Topology;

const RENAMED: &str =
    "undo the `rename-command` of its configuration: scripts call a command by its own name";

/// When a preflight was cut off, its keys are gone after this time.
const LEASE: Duration = Duration::from_secs(5);

/// Checks everything and reports it. An error means that the client has ended.
pub(crate) async fn preflight(
    shared: &Arc<Shared>,
    name: &LockName,
    topology: Topology,
) -> Result<PreflightReport> {
    let plan = Plan::of(name.kind());
    let report = PreflightReport::new(plan.what, name.as_str());
    let config = shared.config();
    let setting =
        Setting { profile: config.profile, sharded: false, client: config.client_id.clone() };
    let mut run = PreflightRun { shared, name, plan, topology, setting, report };
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
    plan: &'static Plan,
    topology: Topology,
    setting: Setting,
    report: PreflightReport,
}

/// Something that is needed and missing.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MissingRequirement {
    found: String,
    fix: &'static str,
}

impl MissingRequirement {
    fn of_permission(what: String, plan: &Plan) -> Self {
        Self { found: format!("the user may not use {what}"), fix: plan.allow }
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
                self.setting.sharded = sharded;
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
                let what = self.plan.what;
                let found =
                    format!("the server says that the user may do everything that a {what} needs");
                self.report.ok("permissions", found);
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
        let needed = (self.plan.needs)(&self.setting, name);
        let pairs = needed
            .iter()
            .flat_map(|need| need.commands.iter().map(|command| (*command, need.target.clone())));
        let answer = self.ask(Command::Permissions(pairs.collect()), None).await?;
        let Ok(Probed { reply, .. }) = answer else { return Ok(None) };
        let Body::Permissions(Some(allowed)) = reply.body else { return Ok(None) };
        let mut allowed = allowed.into_iter();
        let mut denied: Vec<MissingRequirement> = Vec::new();
        for Need { what, target, commands } in needed {
            let here: Vec<(&str, Permission)> =
                commands.iter().copied().zip(&mut allowed).collect();
            if here.iter().all(|(_, permission)| *permission == Permission::Missing) {
                let missing = format!("the {what} {target}");
                denied.push(MissingRequirement::of_permission(missing, self.plan));
            } else {
                denied.extend(here.into_iter().filter_map(
                    |(command, permission)| match permission {
                        Permission::Given => None,
                        Permission::Missing => Some(MissingRequirement::of_permission(
                            format!("the command {command}"),
                            self.plan,
                        )),
                        Permission::Unknown => Some(MissingRequirement::of_command(command)),
                    },
                ));
            }
        }
        denied.sort();
        denied.dedup();
        Ok(Some(denied))
    }

    // ---- a rehearsal

    /// Uses another name in each way in which its kind is used. No hold, counter or log of this
    /// client shows it.
    async fn rehearse(&mut self, beside: &LockName) -> Result<()> {
        let Some(now) = self.time().await? else { return Ok(()) };
        let not_after =
            ServerTime(now.0.saturating_add(i64::try_from(LEASE.as_micros()).unwrap_or(0)));
        let Rehearsal { steps, undo } = (self.plan.rehearsal)(&self.setting, beside, not_after)?;
        let mut went_well = true;
        for step in steps {
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
        for command in undo {
            let _ = self.ask(command, None).await?;
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

    fn went_wrong(&mut self, label: &str, beside: &LockName, body: &Body) {
        if let Body::Acquire(Acquired::Conflict(found)) = body {
            let found = format!("the lock would be refused: {}", conflict_words(found, beside));
            return self.report.error("key", found, Some("remove the key by hand".to_owned()));
        }
        self.report.error("scripts", format!("{label} answered {body:?} on {beside}"), None);
    }

    // ---- the name itself, which is only looked at

    /// Subscribing to the channel affects no other client; publishing would.
    async fn channel(&mut self) -> Result<()> {
        let command = (self.plan.look)(&self.setting, self.name);
        let channel = self.setting.announce(self.name).channel;
        let listen = Listen { channel: Arc::clone(&channel), awaited: false };
        if let Err(error) = self.probe(command, Some(listen)).await? {
            self.failed("channels", &format!("subscribing to {channel}"), &error);
        }
        Ok(())
    }

    async fn key(&mut self) -> Result<()> {
        match self.ask((self.plan.look)(&self.setting, self.name), None).await? {
            Ok(Probed { reply, .. }) => match (self.plan.seen)(&reply.body) {
                Some(Ok(state)) => self.report.ok("key", state),
                Some(Err(found)) => self.report.error(
                    "key",
                    format!("it is used for something else: {found}"),
                    Some("use another name, or remove the key by hand".to_owned()),
                ),
                None => {}
            },
            Err(error) => self.failed("key", "the look at it", &error),
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
        let fix = fix_of(error, self.plan);
        self.report.error(topic, format!("{what}: {}", error.words()), Some(fix));
    }
}

fn fix_of(error: &Error, plan: &Plan) -> String {
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
        return plan.allow.to_owned();
    }
    let fix = known.iter().find(|(word, _)| words.contains(word));
    fix.map_or("see the page on errors in the documentation", |(_, fix)| fix).to_owned()
}

fn random() -> u32 {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
