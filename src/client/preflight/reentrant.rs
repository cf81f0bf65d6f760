//! The preflight of a lock.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kind::Kind;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::client::acl::ON_LINE;
use crate::client::acl::ON_MARKS;
use crate::client::preflight::LEASE;
use crate::client::preflight::plan::Need;
use crate::client::preflight::plan::Plan;
use crate::client::preflight::plan::Rehearsal;
use crate::client::preflight::plan::RehearsalStep;
use crate::client::preflight::plan::Setting;
use crate::kinds::command::Command;
use crate::kinds::command::ReleaseItem;
use crate::kinds::command::RenewItem;
use crate::kinds::command::ServerTime;
use crate::kinds::command::WaitMode;
use crate::kinds::reply::Acquired;
use crate::kinds::reply::Body;
use crate::kinds::reply::Forced;
use crate::kinds::reply::HandedOff;
use crate::kinds::reply::KeyState;
use crate::kinds::reply::Raised;
use crate::kinds::reply::Released;
use crate::kinds::reply::Renewed;
use crate::kinds::share::Share;

pub(super) static PLAN: Plan = Plan {
    what: "lock",
    allow: "run the line that `LockClient::required_acl` prints on every server",
    needs,
    rehearsal,
    look: |_, name| Command::Inspect { name: name.clone() },
    seen,
};

/// The fair lock: the same key, and marks beside the line.
pub(super) static FAIR: Plan = Plan {
    what: "fair lock",
    allow: "run the line that `LockClient::required_acl(…)?.fair_locks(true)` prints on every server",
    needs: |setting, name| {
        let mut marks = String::new();
        name.add_marks_key(&mut marks);
        let mut needs = needs(setting, name);
        needs.push(Need::key(marks, &ON_MARKS));
        needs
    },
    rehearsal,
    look: |_, name| Command::Inspect { name: name.clone() },
    seen,
};

fn seen(body: &Body) -> Option<std::result::Result<&'static str, &'static str>> {
    let Body::Inspect(state) = body else { return None };
    Some(match (state.conflict(Kind::Reentrant), state) {
        (Some(found), _) => Err(found),
        (None, KeyState::Absent) => Ok("free"),
        (None, _) => Ok("held at present; it was only read"),
    })
}

const ON_LOCK: [&str; 12] = [
    "pttl", "exists", "type", "pexpire", "persist", "hget", "hset", "hdel", "hlen", "hexists",
    "hkeys", "hgetall",
];

fn needs(setting: &Setting, name: &LockName) -> Vec<Need> {
    let announce = setting.announce(name);
    let mut needs = vec![
        Need::key(name.as_str(), &ON_LOCK),
        Need::key(name.fence_key(), &["get", "set"]),
        Need::channel(&*announce.channel, setting.on_channel()),
        Need::channel(setting.client_channel(), &["publish", "subscribe"]),
    ];
    if announce.line {
        needs.push(Need::key(name.line_key(), &ON_LINE));
    }
    needs
}

fn rehearsal(setting: &Setting, name: &LockName, not_after: ServerTime) -> Result<Rehearsal> {
    let [a, b] = ["a", "b"].map(|suffix| setting.id(suffix));
    let steps = steps(setting, name, not_after, [&a, &b])?;
    let undo = [a, b].map(|field| release(setting, name, &field, 0));
    Ok(Rehearsal { steps, undo: undo.into() })
}

fn steps(
    setting: &Setting,
    name: &LockName,
    not_after: ServerTime,
    [a, b]: [&String; 2],
) -> Result<Vec<RehearsalStep>> {
    let lease = LeaseMs::checked("lease", LEASE)?;
    let announce = setting.announce(name);
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
        announce: name.kind().first_attempt_passes_on().then(|| announce.clone()),
        told: Box::default(),
    };
    let acquire = |field: &String, count| attempt(field, Share::exclusive(count), WaitMode::Try);
    let holds = vec![RenewItem { name: name.clone(), field: a.clone(), share: Share::ONE, lease }];
    let force = Command::ForceRelease {
        name: name.clone(),
        expected: a.clone(),
        not_after,
        announce: announce.clone(),
        client_channel: setting.client_channel(),
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
    let granted: fn(&Body) -> bool = |body| matches!(body, Body::Acquire(Acquired::Granted { .. }));
    let step = |command, is_right| RehearsalStep { command, hears: None, is_right };
    let freed = |field| RehearsalStep {
        command: release(setting, name, field, 0),
        hears: Some(Arc::clone(&channel)),
        is_right: |body| matches!(body, Body::Release(Released::Freed { receivers: Some(_) })),
    };
    let mut in_line = vec![];
    if lines {
        let waits = attempt(b, Share::ONE, WaitMode::First { hears: true });
        in_line.push(step(acquire(a, 1), granted));
        in_line.push(step(waits, |body| {
            matches!(body, Body::Acquire(Acquired::Held { place: Some(_), .. }))
        }));
        in_line.push(freed(a));
        // It was reserved, and is picked up.
        in_line.push(step(acquire(b, 1), granted));
        in_line.push(step(release(setting, name, b, 0), |body| {
            matches!(body, Body::Release(Released::Freed { receivers: Some(_) }))
        }));
    }
    let given_up = match name.kind().hands_off() {
        // What is left of a dead hold id is removed by a script of its own.
        false => vec![
            freed(a),
            step(acquire(a, 1), granted),
            RehearsalStep { command: undo(setting, name, a), ..freed(a) },
        ],
        true => vec![
            step(hand_off, |body| matches!(body, Body::HandOff(HandedOff::Granted { .. }))),
            freed(b),
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
        ],
    };
    let mut steps = vec![
        step(acquire(a, 1), granted),
        step(acquire(a, 2), granted),
        step(release(setting, name, a, 1), |body| {
            matches!(body, Body::Release(Released::CountSet))
        }),
        step(Command::Inspect { name: name.clone() }, |body| {
            matches!(body, Body::Inspect(KeyState::Hash { .. }))
        }),
        step(
            Command::Renew { holds, not_after },
            |body| matches!(body, Body::Renew(Some(renewed)) if renewed[..] == [Renewed::Yes]),
        ),
        // The counter is never lowered.
        step(Command::Raise { name: name.clone(), field: a.clone(), token: 1 }, |body| {
            *body == Body::Raised(Raised::Yes)
        }),
        step(acquire(b, 1), |body| matches!(body, Body::Acquire(Acquired::Held { .. }))),
        step(release(setting, name, b, 0), |body| matches!(body, Body::Release(Released::Foreign))),
    ];
    steps.extend(given_up);
    steps.extend([
        step(acquire(a, 1), granted),
        RehearsalStep {
            command: Command::ReleaseAt {
                name: name.clone(),
                field: a.clone(),
                // A time in the past, so that nothing is left behind.
                free_at: ServerTime(0),
                most: lease,
                announce: announce.clone(),
            },
            hears: Some(Arc::clone(&channel)),
            is_right: |body| matches!(body, Body::Release(Released::Freed { receivers: Some(_) })),
        },
        step(acquire(a, 1), granted),
        RehearsalStep {
            command: force,
            hears: Some(setting.client_channel().into()),
            is_right: |body| matches!(body, Body::Force(Forced::Freed { receivers: Some(_) })),
        },
    ]);
    steps.extend(in_line);
    Ok(steps)
}

fn undo(setting: &Setting, name: &LockName, field: &str) -> Command {
    Command::Release {
        name: name.clone(),
        field: field.to_owned(),
        share: Share::NOTHING,
        announce: setting.announce(name),
        undo: true,
    }
}

fn release(setting: &Setting, name: &LockName, field: &str, count: u32) -> Command {
    Command::Release {
        name: name.clone(),
        field: field.to_owned(),
        share: Share::exclusive(count),
        announce: setting.announce(name),
        undo: false,
    }
}
