//! What is explored of the model of single flights: its scopes, and its rules, each of which can be
//! broken alone.

use crate::explore::explore;
use crate::flights::Flights;
use crate::flights::Scope;
use crate::table::LIMIT;
use crate::table::Model;

/// A rule, broken. What is done instead is in `RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    NoSecondLook,
    TriesBeforeLooking,
    SuccessorTriesFirst,
    RoleEndsWithDelegate,
    SubscribeWithoutLook,
    MessageDuringLookDropped,
    WatchesAnyHolder,
    NoTimer,
    ReleaseHandsOff,
    StoreAfterRelease,
    LossIsIgnored,
}

const FAILURES: Scope = Scope {
    name: "failures",
    arrivals: &[1, 1, 1],
    failures: 2,
    deaths: 0,
    losses: 0,
    cancels: 0,
    removals: 0,
    swallowed: 0,
};

const ENDS: Scope = Scope { name: "ends", failures: 0, deaths: 1, losses: 1, ..FAILURES };

const CROWDS: Scope =
    Scope { name: "crowds", arrivals: &[3, 2], failures: 1, cancels: 1, removals: 1, ..FAILURES };

const SILENCE: Scope =
    Scope { name: "lost messages", arrivals: &[1, 1], deaths: 1, swallowed: 1, ..CROWDS };

/// In each of these the correct protocol is explored to the end.
const SCOPES: &[Scope] = &[FAILURES, ENDS, CROWDS, SILENCE];

/// What is done instead of what the rule says, and a scope in which that shows.
const RULES: &[(Switch, &str, Scope)] = &[
    (Switch::NoSecondLook, "a leader does not look for the value once more", FAILURES),
    (Switch::TriesBeforeLooking, "who has watched tries before it looks for the value", FAILURES),
    (Switch::SuccessorTriesFirst, "the next delegate of a process tries before it looks", CROWDS),
    (Switch::RoleEndsWithDelegate, "a delegate that gives up leaves its followers behind", CROWDS),
    (Switch::SubscribeWithoutLook, "nobody looks at the lock once subscribed", FAILURES),
    (Switch::MessageDuringLookDropped, "a message during a look at the lock is dropped", FAILURES),
    (Switch::WatchesAnyHolder, "a watch goes on when another has the lock", FAILURES),
    (Switch::NoTimer, "a watch has no end but a message", ENDS),
    (
        Switch::ReleaseHandsOff,
        "a leader's release is a hand-off, of which nobody is told",
        FAILURES,
    ),
    (Switch::StoreAfterRelease, "a leader stores the value after its release", FAILURES),
    (Switch::LossIsIgnored, "a leader that has lost the lock computes on", ENDS),
];

/// The model, with all that is explored of it.
pub(crate) fn model() -> Model {
    let within = |scope, switch| explore(&Flights { scope, switch }, LIMIT);
    Model::of("flights", SCOPES, RULES, |scope| scope.name, within)
}
