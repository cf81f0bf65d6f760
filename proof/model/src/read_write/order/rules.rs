//! What is explored of the model of the order: its scopes, and its rules, each of which can be broken
//! alone.

use crate::explore::explore;
use crate::read_write::order::Order;
use crate::read_write::order::Scope;
use crate::table::LIMIT;
use crate::table::Model;

/// A rule, broken. What is done instead is in `RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    OnlyFirstAfterWriter,
    AllReadersAlways,
    OneReaderAtATime,
    ReservesSilently,
    ReadersDoNotLook,
    LeavingPassesOnFreeLockOnly,
    DowngradePassesOnToNobody,
    ReservationIsNotRefused,
    ReservationsLast,
    SilentWritersStay,
}

const MIXED: Scope = Scope {
    name: "readers and writers",
    readers: &[2, 2],
    writers: &[2, 2],
    cancels: 2,
    downgrades: 1,
    ..Scope::PLAIN
};
const WRITERS: Scope = Scope {
    name: "three writers",
    readers: &[1],
    writers: &[2, 2, 1],
    cancels: 2,
    downgrades: 1,
    ..Scope::PLAIN
};
const READERS: Scope = Scope {
    name: "three readers",
    readers: &[2, 1, 1],
    writers: &[2],
    cancels: 2,
    downgrades: 1,
    ..Scope::PLAIN
};
const DEATHS: Scope = Scope {
    name: "dead readers and writers",
    readers: &[2, 1],
    writers: &[2, 1],
    deaths: 2,
    ..Scope::PLAIN
};
const MESSAGES: Scope = Scope {
    name: "lost messages",
    readers: &[1, 1],
    writers: &[2, 1],
    lost_messages: 2,
    cancels: 1,
    ..Scope::PLAIN
};

/// In each of these the correct protocol is explored to the end.
const SCOPES: &[Scope] = &[MIXED, WRITERS, READERS, DEATHS, MESSAGES];

/// What is done instead of what the rule says, and a scope in which that shows.
const RULES: &[(Switch, &str, Scope)] = &[
    (
        Switch::OnlyFirstAfterWriter,
        "a writer's release reserves for the first in line, not for all readers",
        MIXED,
    ),
    (Switch::AllReadersAlways, "the last reader's release reserves past a waiting writer", READERS),
    (Switch::OneReaderAtATime, "only the first of the waiting readers gets a reservation", READERS),
    (Switch::ReservesSilently, "readers and writers are not told of a reservation", MIXED),
    (Switch::ReadersDoNotLook, "readers join others without a look at the line", MIXED),
    (
        Switch::LeavingPassesOnFreeLockOnly,
        "who leaves the line passes the lock on only if it is free",
        MIXED,
    ),
    (Switch::DowngradePassesOnToNobody, "a downgrade passes the lock on to nobody", MIXED),
    (
        Switch::ReservationIsNotRefused,
        "who gives up keeps the reservation that it was given",
        MIXED,
    ),
    (
        Switch::SilentWritersStay,
        "a writer that was not heard of for long keeps its place before readers",
        DEATHS,
    ),
    (Switch::ReservationsLast, "a reservation of a read-write lock does not end by itself", DEATHS),
];

/// The model, with all that is explored of it.
pub(crate) fn model() -> Model {
    let within = |scope, switch| explore(&Order { scope, switch }, LIMIT);
    Model::of("rw order", SCOPES, RULES, |scope| scope.name, within)
}
