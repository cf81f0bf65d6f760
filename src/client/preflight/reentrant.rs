//! The preflight of a lock.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::kind::Kind;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::client::acl::ON_DEADLINES;
use crate::client::acl::ON_LINE;
use crate::client::acl::ON_MARKS;
use crate::client::acl::ON_QUEUE;
use crate::client::preflight::LEASE;
use crate::client::preflight::plan::Need;
use crate::client::preflight::plan::Plan;
use crate::client::preflight::plan::Rehearsal;
use crate::client::preflight::plan::RehearsalStep;
use crate::client::preflight::plan::Setting;
use crate::client::preflight::random;
use crate::kinds::channel_of_waiter;
use crate::kinds::command::Announce;
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

/// The fair lock of the profile `Redisson`: the same key, and a queue whose places have channels.
pub(super) static FAIR_QUEUE: Plan = Plan {
    what: "fair lock",
    allow: FAIR.allow,
    needs: |setting, name| {
        let mut needs = needs(setting, name);
        needs.extend([
            Need::key(name.queue_key(), &ON_QUEUE),
            Need::key(name.deadlines_key(), &ON_DEADLINES),
            Need::channel(&*of_waiter(setting, name).channel, setting.on_channel()),
        ]);
        needs
    },
    rehearsal,
    look: |_, name| Command::Inspect { name: name.clone() },
    seen,
};

/// Of somebody who waits: where each of them has a channel, it is one of these.
fn of_waiter(setting: &Setting, name: &LockName) -> Announce {
    let number = random().into();
    let channel = channel_of_waiter(name, setting.profile, &setting.client, number);
    Announce { channel, ..setting.announce(name) }
}

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
    let of_b = of_waiter(setting, name);
    let steps = steps(setting, name, not_after, [&a, &b], &of_b)?;
    let mut undo = vec![release(setting, name, &a, 0), release(setting, name, &b, 0)];
    if name.kind().has_channel_per_waiter() {
        undo.push(undo_of(name, &b, of_b));
    }
    Ok(Rehearsal { steps, undo })
}

/// The second one is that of somebody who waits.
fn steps(
    setting: &Setting,
    name: &LockName,
    not_after: ServerTime,
    [a, b]: [&String; 2],
    of_b: &Announce,
) -> Result<Vec<RehearsalStep>> {
    let lease = LeaseMs::checked("lease", LEASE)?;
    let announce = setting.announce(name);
    let channel = Arc::clone(&announce.channel);
    let lines = announce.line;
    // A release tells nobody if nobody waits.
    let tells_one = name.kind().has_channel_per_waiter();
    let hears = || (!tells_one).then(|| Arc::clone(&channel));
    let attempt = |field: &String, share, wait| Command::Acquire {
        name: name.clone(),
        field: field.clone(),
        share,
        lease,
        not_after,
        line: lines,
        wait,
        announce: name.kind().first_attempt_passes_on().then(|| of_b.clone()),
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
        hears: hears(),
        is_right: |body| matches!(body, Body::Release(Released::Freed { receivers: Some(_) })),
    };
    let mut in_line = vec![];
    if lines || tells_one {
        let waits = attempt(b, Share::ONE, WaitMode::First { hears: true });
        in_line.push(step(acquire(a, 1), granted));
        in_line.push(step(waits, |body| {
            matches!(body, Body::Acquire(Acquired::Held { place: Some(_), .. }))
        }));
        in_line.push(RehearsalStep { hears: Some(Arc::clone(&of_b.channel)), ..freed(a) });
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
            RehearsalStep { command: undo_of(name, a, announce.clone()), ..freed(a) },
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
                hears: hears(),
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
                announce,
            },
            hears: hears(),
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

fn undo_of(name: &LockName, field: &str, announce: Announce) -> Command {
    let (name, field) = (name.clone(), field.to_owned());
    Command::Release { name, field, share: Share::NOTHING, announce, undo: true }
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
