//! The preflight of a count-down latch.

use std::sync::Arc;

use crate::base::error::Result;
use crate::base::lease::LeaseMs;
use crate::base::name::LockName;
use crate::base::name::WireProfile;
use crate::client::preflight::LEASE;
use crate::client::preflight::plan::Need;
use crate::client::preflight::plan::Plan;
use crate::client::preflight::plan::Rehearsal;
use crate::client::preflight::plan::RehearsalStep;
use crate::client::preflight::plan::Setting;
use crate::kinds::command::Command;
use crate::kinds::command::ServerTime;
use crate::kinds::operation::Change;
use crate::kinds::operation::Operated;
use crate::kinds::operation::Operation;
use crate::kinds::reply::Body;

pub(super) static PLAN: Plan = Plan {
    what: "latch",
    allow: "run the line that `LockClient::required_acl(…)?.latches(true)` prints on every server",
    needs,
    rehearsal,
    look: |setting, name| Command::Count { name: name.clone(), profile: setting.profile },
    seen: |body| match body {
        Body::Count(Ok(0)) => Some(Ok("there is no latch at present")),
        Body::Count(Ok(_)) => Some(Ok("in use at present; it was only read")),
        Body::Count(Err(found)) => Some(Err(found)),
        _ => None,
    },
};

const ON_HASH: [&str; 11] = [
    "type", "hmget", "hset", "hincrby", "del", "pexpire", "pttl", "hget", "hexists", "hlen",
    "hkeys",
];
const ON_STRING: [&str; 11] =
    ["type", "get", "set", "decr", "del", "pexpire", "pttl", "hget", "hexists", "hlen", "hkeys"];

fn needs(setting: &Setting, name: &LockName) -> Vec<Need> {
    let on_latch = match setting.profile {
        WireProfile::Native => &ON_HASH,
        WireProfile::Redisson => &ON_STRING,
    };
    vec![
        Need::key(name.as_str(), on_latch),
        Need::key(name.operation_key(&setting.id("")), &["get", "set"]),
        Need::channel(&*setting.announce(name).channel, setting.on_channel()),
        Need::channel(setting.client_channel(), &["subscribe"]),
    ]
}

/// The latch of the rehearsal ends by itself, so that nothing has to be undone.
fn rehearsal(setting: &Setting, name: &LockName, not_after: ServerTime) -> Result<Rehearsal> {
    let life = LeaseMs::checked("life", LEASE)?.millis();
    let announce = setting.announce(name);
    let channel = Arc::clone(&announce.channel);
    let operate = |number: u32, change| {
        let (name, announce, profile) = (name.clone(), announce.clone(), setting.profile);
        let id = setting.id(&number.to_string());
        Command::Operate(Box::new(Operation { name, change, id, not_after, announce, profile }))
    };
    let step = |command, is_right| RehearsalStep { command, hears: None, is_right };
    let told =
        |command, is_right| RehearsalStep { command, hears: Some(Arc::clone(&channel)), is_right };
    let done: fn(&Body) -> bool = |body| matches!(body, Body::Operated(Operated::Done(_)));
    let look = || (PLAN.look)(setting, name);
    let steps = vec![
        told(operate(1, Change::SetCount { count: 2, life }), done),
        step(look(), |body| *body == Body::Count(Ok(2))),
        step(operate(2, Change::CountDown), |body| *body == Body::Operated(Operated::Done(1))),
        told(operate(3, Change::CountDown), |body| *body == Body::Operated(Operated::Done(0))),
        step(operate(4, Change::SetCount { count: 1, life }), done),
        told(operate(5, Change::Delete), done),
        step(look(), |body| *body == Body::Count(Ok(0))),
    ];
    Ok(Rehearsal { steps, undo: Vec::new() })
}
