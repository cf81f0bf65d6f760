//! What is explored of the model of the fair lock: its scopes, and its rules, each of which can be
//! broken alone.

use crate::explore::explore;
use crate::fair::Fair;
use crate::fair::Scope;
use crate::table::LIMIT;
use crate::table::Model;

/// A rule, broken. What is done instead is in `RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    NobodyIsMarked,
    MarksStay,
    AnyAttemptUnmarks,
    PickUpKeepsMark,
    ReleaseKeepsMark,
    ForceKeepsMark,
    LimitIsSilent,
    FirstDoesNotLook,
    TicketIsNotNamed,
    TryPassesOnNothing,
    ReservesSilently,
    ReservationIsNotRefused,
    UnknownIsNotReleased,
    UndoneOnce,
    UnknownForgetsTicket,
    UndoForgetsTicket,
}

const ORDER: Scope = Scope { name: "order", waiters: &[0, 0, 1, 1], cancels: 1, ..Scope::PLAIN };
const DEATHS: Scope =
    Scope { name: "dead clients", waiters: &[0, 1, 1, 1, 0], deaths: 1, ..Scope::PLAIN };
const LIMIT_OF_ONE: Scope = Scope {
    name: "one place a script",
    waiters: &[0, 1, 0, 1, 1, 0],
    in_order: true,
    limit: 1,
    deaths: 1,
    ..Scope::PLAIN
};
const TRIES: Scope =
    Scope { name: "tries", waiters: &[0, 1, 1], deaths: 2, tries: 3, ..Scope::PLAIN };
const FREEZES: Scope =
    Scope { name: "frozen clients", waiters: &[0, 1, 1, 0], freezes: 1, ..Scope::PLAIN };
const MESSAGES: Scope =
    Scope { name: "messages", waiters: &[0, 1, 1], lost_messages: 2, ..Scope::PLAIN };
const FORCES: Scope =
    Scope { name: "force-unlocks", waiters: &[0, 1, 1], forces: 2, ..Scope::PLAIN };
const LOSSES: Scope =
    Scope { name: "a lost line", waiters: &[0, 1, 1], line_losses: 1, ..Scope::PLAIN };
const PLAINS: Scope =
    Scope { name: "plain locks", waiters: &[0, 1, 1], plains: 2, deaths: 1, ..Scope::PLAIN };
const UNKNOWN: Scope =
    Scope { name: "unknown outcomes", waiters: &[0, 1, 1], unknown: 1, cancels: 1, ..Scope::PLAIN };

const UNKNOWN_AND_LOST: Scope = Scope {
    name: "unknown, and a lost line",
    waiters: &[0, 1, 1],
    unknown: 1,
    line_losses: 1,
    ..Scope::PLAIN
};

const SCOPES: &[Scope] = &[
    ORDER,
    DEATHS,
    LIMIT_OF_ONE,
    TRIES,
    FREEZES,
    MESSAGES,
    FORCES,
    LOSSES,
    PLAINS,
    UNKNOWN,
    UNKNOWN_AND_LOST,
];

const RULES: &[(Switch, &str, Scope)] = &[
    (Switch::NobodyIsMarked, "places of clients that let a reservation run out stay", DEATHS),
    (Switch::MarksStay, "a client stays marked although it is heard of", FREEZES),
    (Switch::AnyAttemptUnmarks, "an attempt of another waiter removes the mark", DEATHS),
    (Switch::PickUpKeepsMark, "who picks the lock up stays marked", FREEZES),
    (Switch::ReleaseKeepsMark, "who refuses a reservation stays marked", ORDER),
    (Switch::ForceKeepsMark, "a force-unlock of a reservation leaves its mark", FORCES),
    (Switch::LimitIsSilent, "a script that removes no more places tells nobody", LIMIT_OF_ONE),
    (Switch::FirstDoesNotLook, "a first attempt at a fair lock does not look at the line", DEATHS),
    (Switch::TicketIsNotNamed, "who has lost its place names no ticket", LOSSES),
    (Switch::TryPassesOnNothing, "a try does not pass a free lock on", TRIES),
    (Switch::ReservesSilently, "a waiter of a fair lock is not told of its reservation", ORDER),
    (Switch::ReservationIsNotRefused, "who gives up keeps what is reserved for it", ORDER),
    (Switch::UnknownIsNotReleased, "the id of an unknown attempt is not released", UNKNOWN),
    (Switch::UndoneOnce, "the id of a late attempt is released once", UNKNOWN),
    (
        Switch::UnknownForgetsTicket,
        "an unknown attempt at a fair lock costs the ticket",
        UNKNOWN_AND_LOST,
    ),
    (Switch::UndoForgetsTicket, "the ticket of a place that is given up is not told", UNKNOWN),
];

/// The model, with all that is explored of it.
pub(crate) fn model() -> Model {
    let within = |scope, switch| explore(&Fair { scope, switch }, LIMIT);
    Model::of("fair", SCOPES, RULES, |scope| scope.name, within)
}
