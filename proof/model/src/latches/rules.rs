//! What is explored of the model of the count-down latch: its scopes, and its rules, each of which
//! can be broken alone.

use crate::explore::explore;
use crate::latches::Latches;
use crate::latches::Scope;
use crate::table::LIMIT;
use crate::table::Model;

/// A rule, broken. What is done instead is in `RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    SetHasNoId,
    CountDownHasNoId,
    AbsenceIsForgotten,
    DeadlineOfEachCopy,
    MemoryEndsWithDeadline,
    LateIsNotExecuted,
    MessageOpens,
    NoFallback,
    NoLookOnceSubscribed,
}

const CALLS: Scope =
    Scope { name: "calls", ticks: 5, unknown: 2, waits: false, swallowed: 0, renewed: 0 };

const WAITERS: Scope =
    Scope { name: "waiters", ticks: 0, unknown: 0, waits: true, swallowed: 1, renewed: 1 };

/// In each of these the correct protocol is explored to the end.
const SCOPES: &[Scope] = &[CALLS, WAITERS];

/// What is done instead of what the rule says, and a scope in which that shows.
const RULES: &[(Switch, &str, Scope)] = &[
    (Switch::SetHasNoId, "the setting of a count has no operation id", CALLS),
    (Switch::CountDownHasNoId, "a count-down has no operation id", CALLS),
    (Switch::AbsenceIsForgotten, "a count-down that found no latch is not remembered", CALLS),
    (Switch::DeadlineOfEachCopy, "each copy of a command has a deadline of its own", CALLS),
    (Switch::MemoryEndsWithDeadline, "an operation is forgotten at its deadline", CALLS),
    (Switch::LateIsNotExecuted, "a late answer is taken to mean that nothing was done", CALLS),
    (Switch::MessageOpens, "a message lets a waiter through without a look", WAITERS),
    (Switch::NoFallback, "a waiter sleeps until a message, without an end", WAITERS),
    (Switch::NoLookOnceSubscribed, "a waiter does not look once it is subscribed", WAITERS),
];

/// The model, with all that is explored of it.
pub(crate) fn model() -> Model {
    let within = |scope, switch| explore(&Latches { scope, switch }, LIMIT);
    Model::of("latches", SCOPES, RULES, |scope| scope.name, within)
}
