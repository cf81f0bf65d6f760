//! What is explored of the model of wake-ups: its scopes, and its rules, each of which can be
//! broken alone.

use crate::explore::explore;
use crate::table::LIMIT;
use crate::table::Model;
use crate::wakeups::Scope;
use crate::wakeups::Wakeups;

/// A rule, broken. What is done instead is in `RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    SubscribeWithoutRetry,
    PendingWakeUpDropped,
    NoWakeOnResubscribe,
    StaleConfirmation,
    RoleWithoutDuty,
    UndoDoesNotPublish,
    LocalLossWakesNobody,
    NoTimerBeforeConfirmation,
}

const ROLES: Scope = Scope {
    name: "roles",
    arrivals: &[2, 1],
    cancels: 1,
    cuts: 0,
    swallowed: 0,
    removals: 1,
    strangers: 0,
    timers: 0,
};

const MESSAGES: Scope = Scope { name: "messages", arrivals: &[1, 1], cuts: 1, ..ROLES };

const CONNECTIONS: Scope = Scope {
    name: "connections",
    arrivals: &[2],
    cancels: 1,
    cuts: 2,
    swallowed: 0,
    removals: 0,
    strangers: 2,
    timers: 1,
};

const SILENCE: Scope = Scope {
    name: "silence",
    arrivals: &[1, 1],
    cancels: 0,
    cuts: 0,
    swallowed: 1,
    removals: 1,
    strangers: 1,
    timers: 1,
};

/// In each of these the correct protocol is explored to the end.
const SCOPES: &[Scope] = &[ROLES, MESSAGES, CONNECTIONS, SILENCE];

/// What is done instead of what the rule says, and a scope in which that shows.
const RULES: &[(Switch, &str, Scope)] = &[
    (Switch::SubscribeWithoutRetry, "nobody tries again once subscribed", ROLES),
    (Switch::PendingWakeUpDropped, "a wake-up during an attempt is dropped", ROLES),
    (Switch::NoWakeOnResubscribe, "a resubscription wakes nobody", CONNECTIONS),
    (Switch::StaleConfirmation, "the confirmation of an older SUBSCRIBE is taken", CONNECTIONS),
    (Switch::RoleWithoutDuty, "the contender's role passes on without its duty to try", ROLES),
    (Switch::UndoDoesNotPublish, "a grant that nobody takes is undone without a message", ROLES),
    (Switch::LocalLossWakesNobody, "a local hold that is lost wakes nobody", ROLES),
    (Switch::NoTimerBeforeConfirmation, "no timer runs while a confirmation is awaited", SILENCE),
];

/// The model, with all that is explored of it.
pub(crate) fn model() -> Model {
    let within = |scope, switch| explore(&Wakeups { scope, switch }, LIMIT);
    Model::of("wakeups", SCOPES, RULES, |scope| scope.name, within)
}
