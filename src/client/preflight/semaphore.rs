//! The preflight of a semaphore, in both profiles.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kind::Kind;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
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
use crate::kinds::operation::Change;
use crate::kinds::operation::Operated;
use crate::kinds::operation::Operation;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Forced;
use crate::kinds::reply::KeyState;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::share::Share;

pub(super) static PLAN: Plan = Plan {
    what: "semaphore",
    allow: "run the line that `LockClient::required_acl(…)?.semaphores(true)` prints on every server",
    needs,
    rehearsal,
    look: |_, name| Command::Inspect { name: name.clone() },
    seen: |body| {
        let Body::Inspect(state) = body else { return None };
        Some(match (state.conflict(Kind::Semaphore), state) {
            (Some(found), _) => Err(found),
            (None, KeyState::Permits { taken: 1.., .. }) => {
                Ok("permits are held at present; it was only read")
            }
            (None, _) => Ok("no permit is held at present"),
        })
    },
};

const ON_HASH: [&str; 10] =
    ["type", "exists", "pttl", "pexpire", "persist", "hget", "hmget", "hset", "hdel", "hexists"];
const ON_PERMITS: [&str; 12] = [
    "type",
    "exists",
    "pttl",
    "pexpire",
    "persist",
    "zadd",
    "zrem",
    "zscore",
    "zcount",
    "zcard",
    "zrangebyscore",
    "zremrangebyscore",
];
const ON_HEARD: [&str; 4] = ["zadd", "zrem", "zscore", "zremrangebyscore"];

/// The same in the profile `Redisson`.
const ON_FREE: [&str; 10] =
    ["type", "pttl", "get", "set", "incrby", "del", "hget", "hexists", "hlen", "hkeys"];
const ON_PERMITS_OF_REDISSON: [&str; 9] = [
    "type",
    "persist",
    "zadd",
    "zrem",
    "zscore",
    "zcount",
    "zcard",
    "zrangebyscore",
    "zremrangebyscore",
];

fn needs(setting: &Setting, name: &LockName) -> Vec<Need> {
    let mut needs = match setting.profile {
        WireProfile::Native => vec![
            Need::key(name.as_str(), &ON_HASH),
            Need::key(name.permits_key(), &ON_PERMITS),
            Need::key(name.heard_key(), &ON_HEARD),
            Need::key(name.line_key(), &ON_LINE),
        ],
        WireProfile::Redisson => vec![
            Need::key(name.as_str(), &ON_FREE),
            Need::key(name.permits_key(), &ON_PERMITS_OF_REDISSON),
        ],
    };
    needs.extend([
        Need::key(name.fence_key(), &["get", "set"]),
        Need::key(name.operation_key(&setting.id("")), &["get", "set", "del"]),
        Need::channel(&*setting.announce(name).channel, setting.on_channel()),
        Need::channel(setting.client_channel(), &["publish", "subscribe"]),
    ]);
    needs
}

/// One permit each, of a semaphore that has one.
const SHARE: Share = Share::permits(1, 1);

fn rehearsal(setting: &Setting, name: &LockName, not_after: ServerTime) -> Result<Rehearsal> {
    let [a, b] = ["a", "b"].map(|suffix| {
        let mut field = setting.id(suffix);
        Kind::Semaphore.add_share_to(&mut field, SHARE);
        field
    });
    let steps = steps(setting, name, not_after, [&a, &b])?;
    let mut undo: Vec<Command> = [a, b].map(|field| release(setting, name, &field)).into();
    if setting.profile == WireProfile::Redisson {
        undo.push(delete_number(setting, name, not_after));
    }
    Ok(Rehearsal { steps, undo })
}

/// In the profile `Redisson` the first acquisition sets the number for good. A latch of that profile
/// is a number as well, and can be deleted.
fn delete_number(setting: &Setting, name: &LockName, not_after: ServerTime) -> Command {
    Command::Operate(Box::new(Operation {
        name: name.clone().of_kind(Kind::CountDownLatch),
        change: Change::Delete,
        id: setting.id("delete"),
        not_after,
        announce: setting.announce(name),
        profile: setting.profile,
    }))
}

fn steps(
    setting: &Setting,
    name: &LockName,
    not_after: ServerTime,
    [a, b]: [&String; 2],
) -> Result<Vec<RehearsalStep>> {
    let lease = LeaseMs::checked("lease", LEASE)?;
    let announce = setting.announce(name);
    let attempt = |field: &String, wait| Command::Acquire {
        name: name.clone(),
        field: field.clone(),
        share: SHARE,
        lease,
        not_after,
        line: true,
        wait,
        announce: Some(announce.clone()),
        told: Box::default(),
    };
    let granted = |field, wait| RehearsalStep {
        command: attempt(field, wait),
        hears: None,
        is_right: |body| matches!(body, Body::Acquire(Acquired::Granted { .. })),
    };
    let step = |command, is_right| RehearsalStep { command, hears: None, is_right };
    let freed = |command| RehearsalStep {
        command,
        hears: Some(Arc::clone(&announce.channel)),
        is_right: |body| matches!(body, Body::Release(Released::Freed { receivers: Some(_) })),
    };
    let holds = vec![RenewItem {
        name: name.clone(),
        field: a.clone(),
        share: Share::permits(1, 1),
        lease,
    }];
    let kept = Command::ReleaseAt {
        name: name.clone(),
        field: a.clone(),
        // A time in the past, so that nothing is left behind.
        free_at: ServerTime(0),
        most: lease,
        announce: announce.clone(),
    };
    let force = Command::ForceRelease {
        name: name.clone(),
        expected: a.clone(),
        not_after,
        announce: announce.clone(),
        client_channel: setting.client_channel(),
    };
    // In the profile `Native` a number that is set would stay, so this is one that is refused.
    let too_many = Command::Operate(Box::new(Operation {
        name: name.clone(),
        change: Change::AddPermits { permits: 1_000_000, own: 1 },
        id: setting.id("set"),
        not_after,
        announce: announce.clone(),
        profile: setting.profile,
    }));
    Ok(vec![
        granted(a, WaitMode::Try),
        step(Command::Inspect { name: name.clone() }, |body| {
            matches!(body, Body::Inspect(KeyState::Permits { taken: 1, .. }))
        }),
        step(
            Command::Renew { holds, not_after },
            |body| matches!(body, Body::Renew(Some(renewed)) if renewed[..] == [Renewed::Yes]),
        ),
        step(attempt(b, WaitMode::First { hears: true }), |body| {
            matches!(body, Body::Acquire(Acquired::Held { .. }))
        }),
        freed(release(setting, name, a)),
        // Where there is a line, it was reserved, and is picked up.
        granted(b, WaitMode::Again { ticket: 0, hears: true }),
        freed(release(setting, name, b)),
        granted(a, WaitMode::Try),
        freed(kept),
        granted(a, WaitMode::Try),
        RehearsalStep {
            command: force,
            hears: Some(setting.client_channel().into()),
            is_right: |body| matches!(body, Body::Force(Forced::Freed { receivers: Some(_) })),
        },
        step(too_many, |body| matches!(body, Body::Operated(Operated::TooMany { .. }))),
    ])
}

fn release(setting: &Setting, name: &LockName, field: &str) -> Command {
    Command::Release {
        name: name.clone(),
        field: field.to_owned(),
        share: Share::NOTHING,
        announce: setting.announce(name),
        undo: false,
    }
}
