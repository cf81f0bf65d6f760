//! The preflight of a read-write lock.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kind::Kind;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::client::acl::ON_LINE;
use crate::client::preflight::LEASE;
use crate::client::preflight::plan::Need;
use crate::client::preflight::plan::Plan;
use crate::client::preflight::plan::Rehearsal;
use crate::client::preflight::plan::RehearsalStep;
use crate::client::preflight::plan::Setting;
use crate::kinds::command::Command;
use crate::kinds::command::RenewItem;
use crate::kinds::command::ServerTime;
use crate::kinds::command::WaitMode;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Forced;
use crate::kinds::reply::KeyState;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::share::Share;

pub(super) static PLAN: Plan = Plan {
    what: "read-write lock",
    allow: "run the line that `LockClient::required_acl(…)?.rw_locks(true)` prints on every server",
    needs,
    rehearsal,
    look: |_, name| Command::Inspect { name: name.clone() },
    seen: |body| {
        let Body::Inspect(state) = body else { return None };
        Some(match (state.conflict(Kind::ReadWrite), state) {
            (Some(found), _) => Err(found),
            (None, KeyState::Absent) => Ok("free"),
            (None, _) => Ok("in use at present; it was only read"),
        })
    },
};

const ON_LOCK: [&str; 10] =
    ["pttl", "exists", "type", "pexpire", "hget", "hset", "hdel", "hlen", "hkeys", "hrandfield"];
/// On the key that tells that a reader is alive.
const ON_READER: [&str; 5] = ["pttl", "exists", "pexpire", "set", "del"];

fn needs(setting: &Setting, name: &LockName) -> Vec<Need> {
    let announce = setting.announce(name);
    let reader = name.reader_key(&setting.id(""));
    let mut needs = vec![
        Need::key(name.as_str(), &ON_LOCK),
        Need::key(reader, &ON_READER),
        Need::key(name.fence_key(), &["get", "set"]),
        Need::channel(&*announce.channel, setting.on_channel()),
        Need::channel(setting.client_channel(), &["publish", "subscribe"]),
    ];
    if announce.line {
        needs.push(Need::key(name.line_key(), &ON_LINE));
    }
    needs
}

/// What the steps are about.
struct RehearsalStage<'a> {
    setting: &'a Setting,
    name: &'a LockName,
    not_after: ServerTime,
    lease: LeaseMs,
}

fn rehearsal(setting: &Setting, name: &LockName, not_after: ServerTime) -> Result<Rehearsal> {
    let fields = ["a", "b", "c"].map(|suffix| setting.id(suffix));
    let lease = LeaseMs::checked("lease", LEASE)?;
    let stage = RehearsalStage { setting, name, not_after, lease };
    let [a, b, c] = &fields;
    let mut steps = stage.reads_and_upgrades(a, b, c);
    steps.extend(stage.writes_and_downgrades(a));
    steps.extend(stage.ends_in_other_ways(a));
    if setting.announce(name).line {
        steps.extend(stage.waits(a, b));
    }
    let undo = fields.iter().map(|field| stage.release(field, Share::NOTHING)).collect();
    Ok(Rehearsal { steps, undo })
}

impl RehearsalStage<'_> {
    fn attempt(&self, field: &str, share: Share, wait: WaitMode) -> Command {
        let announce = self.setting.announce(self.name);
        Command::Acquire {
            name: self.name.clone(),
            field: field.to_owned(),
            share,
            lease: self.lease,
            not_after: self.not_after,
            line: announce.line,
            wait,
            announce: Some(announce),
            told: Box::default(),
        }
    }

    fn acquires(&self, field: &str, share: Share) -> RehearsalStep {
        let command = self.attempt(field, share, WaitMode::Try);
        let is_right = |body: &Body| matches!(body, Body::Acquire(Acquired::Granted { .. }));
        RehearsalStep { command, hears: None, is_right }
    }

    fn release(&self, field: &str, share: Share) -> Command {
        Command::Release {
            name: self.name.clone(),
            field: field.to_owned(),
            share,
            announce: self.setting.announce(self.name),
            undo: false,
        }
    }

    fn releases(&self, field: &str) -> RehearsalStep {
        self.frees(self.release(field, Share::NOTHING))
    }

    /// A command that frees the lock, so that a message must arrive.
    fn frees(&self, command: Command) -> RehearsalStep {
        let is_right =
            |body: &Body| matches!(body, Body::Release(Released::Freed { receivers: Some(_) }));
        let channel = Arc::clone(&self.setting.announce(self.name).channel);
        RehearsalStep { command, hears: Some(channel), is_right }
    }

    fn reads_and_upgrades(&self, a: &str, b: &str, c: &str) -> Vec<RehearsalStep> {
        let step = |command, is_right| RehearsalStep { command, hears: None, is_right };
        let name = self.name.clone();
        let holds = vec![RenewItem {
            name: name.clone(),
            field: a.to_owned(),
            share: Share::READ,
            lease: self.lease,
        }];
        let upgrade = Command::Upgrade {
            name: name.clone(),
            from: a.to_owned(),
            to: c.to_owned(),
            lease: self.lease,
            not_after: self.not_after,
            told: Box::default(),
        };
        let read_once = self.release(a, Share::READ);
        vec![
            self.acquires(a, Share::READ),
            self.acquires(a, Share::READ.plus(Share::READ)),
            step(read_once, |body| matches!(body, Body::Release(Released::CountSet))),
            step(Command::Inspect { name }, |body| {
                matches!(body, Body::Inspect(KeyState::Hash { .. }))
            }),
            step(
                Command::Renew { holds, not_after: self.not_after },
                |body| matches!(body, Body::Renew(Some(renewed)) if renewed[..] == [Renewed::Yes]),
            ),
            step(self.attempt(b, Share::ONE, WaitMode::First { hears: false }), |body| {
                matches!(body, Body::Acquire(Acquired::Held { .. }))
            }),
            step(upgrade, |body| matches!(body, Body::Acquire(Acquired::Granted { .. }))),
            self.releases(c),
            self.releases(a),
        ]
    }

    fn writes_and_downgrades(&self, a: &str) -> Vec<RehearsalStep> {
        let announce = self.setting.announce(self.name);
        let downgrade = Command::Downgrade {
            name: self.name.clone(),
            field: a.to_owned(),
            share: Share::READ,
            lease: self.lease,
            announce: announce.clone(),
        };
        vec![
            self.acquires(a, Share::ONE),
            RehearsalStep {
                command: downgrade,
                hears: Some(announce.channel),
                is_right: |body| matches!(body, Body::Release(Released::CountSet)),
            },
            self.releases(a),
        ]
    }

    fn ends_in_other_ways(&self, a: &str) -> Vec<RehearsalStep> {
        let announce = self.setting.announce(self.name);
        let release_at = Command::ReleaseAt {
            name: self.name.clone(),
            field: a.to_owned(),
            // A time in the past, so that nothing is left behind.
            free_at: ServerTime(0),
            most: self.lease,
            announce: announce.clone(),
        };
        let force = Command::ForceRelease {
            name: self.name.clone(),
            expected: a.to_owned(),
            not_after: self.not_after,
            announce,
            client_channel: self.setting.client_channel(),
        };
        vec![
            self.acquires(a, Share::ONE),
            self.frees(release_at),
            self.acquires(a, Share::READ),
            RehearsalStep {
                command: force,
                hears: Some(self.setting.client_channel().into()),
                is_right: |body| matches!(body, Body::Force(Forced::Freed { receivers: Some(_) })),
            },
        ]
    }

    /// A reader, and then a writer, that waits in the line, and picks up what is reserved for it.
    fn waits(&self, a: &str, b: &str) -> Vec<RehearsalStep> {
        [(Share::ONE, Share::READ), (Share::READ, Share::ONE)]
            .into_iter()
            .flat_map(|(held, wanted)| {
                let waits = self.attempt(b, wanted, WaitMode::First { hears: true });
                let is_right = |body: &Body| {
                    matches!(body, Body::Acquire(Acquired::Held { place: Some(_), .. }))
                };
                [
                    self.acquires(a, held),
                    RehearsalStep { command: waits, hears: None, is_right },
                    self.releases(a),
                    self.acquires(b, wanted),
                    self.releases(b),
                ]
            })
            .collect()
    }
}
