//! What is explored of the model of the semaphore: its scopes, and its rules, each of which can be
//! broken alone.

use crate::explore::explore;
use crate::permits::Permits;
use crate::permits::Scope;
use crate::table::LIMIT;
use crate::table::Model;

/// A rule, broken. What is done instead is in `RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    // The scripts.
    GrantsLate,
    NothingRunsOut,
    NewcomersOvertake,
    SmallOvertakes,
    OwnNumberFirst,
    PickUpKeepsEnd,
    GrantPassesNothingOn,
    LeavingPassesNothingOn,
    NumberIsNotTold,
    StaysInLine,
    DeadKeepOthersWaiting,
    AnnouncesNothing,
    // The clients.
    PlaceIsInherited,
    ValidityFromReply,
    OneReleaseOfDead,
}

const MANY: Scope = Scope { name: "a want of many", callers: &[&[1], &[2], &[1]], ..Scope::PLAIN };
const TURNS: Scope = Scope { name: "turns", callers: &[&[1, 1], &[2], &[1]], ..Scope::PLAIN };
const THREE: Scope =
    Scope { name: "three permits", permits: 3, callers: &[&[2], &[2], &[1]], ..Scope::PLAIN };
const CANCELS: Scope =
    Scope { name: "cancels", callers: &[&[1], &[2], &[1]], cancels: 1, end: 3, ..Scope::PLAIN };
const CANCELS_2: Scope = Scope {
    name: "a caller goes on",
    callers: &[&[2, 1], &[1, 2]],
    cancels: 1,
    end: 2,
    ..Scope::PLAIN
};
const UNKNOWN: Scope =
    Scope { name: "unknown", callers: &[&[1], &[2]], unknown: 1, ..Scope::PLAIN };
const DELAYS: Scope = Scope {
    name: "delays",
    permits: 1,
    callers: &[&[1, 1]],
    lease: 2,
    prompt: false,
    unknown: 1,
    end: 3,
    ..Scope::PLAIN
};
const MESSAGES: Scope = Scope {
    name: "messages",
    callers: &[&[2], &[1], &[2]],
    lost_messages: 1,
    end: 7,
    ..Scope::PLAIN
};
const DEATHS: Scope = Scope { name: "deaths", deaths: 1, lease: 2, end: 7, ..Scope::PLAIN };
const DEATHS_FALLBACK: Scope =
    Scope { name: "deaths, no timers", timers: false, idle: Some(6), end: 10, ..DEATHS };
const DEAD_PLACE: Scope = Scope {
    name: "a dead place",
    deaths: 1,
    lease: 9,
    fallback: 1,
    idle: Some(4),
    timers: false,
    end: 7,
    ..Scope::PLAIN
};
const LOWERED: Scope = Scope {
    name: "the number falls",
    callers: &[&[1], &[2]],
    numbers: &[1],
    end: 5,
    ..Scope::PLAIN
};
const LOWERED_3: Scope = Scope {
    name: "the number falls, three",
    callers: &[&[1], &[2], &[1]],
    numbers: &[1],
    end: 2,
    ..Scope::PLAIN
};
const RAISED: Scope =
    Scope { name: "the number rises", callers: &[&[2], &[1]], numbers: &[3], ..Scope::PLAIN };

const SCOPES: &[Scope] = &[
    MANY,
    THREE,
    CANCELS,
    CANCELS_2,
    UNKNOWN,
    DELAYS,
    MESSAGES,
    DEATHS,
    DEATHS_FALLBACK,
    DEAD_PLACE,
    LOWERED,
    LOWERED_3,
    RAISED,
];

const RULES: &[(Switch, &str, Scope)] = &[
    (Switch::GrantsLate, "permits are granted after not_after", DELAYS),
    (Switch::NothingRunsOut, "permits do not run out", DEATHS_FALLBACK),
    (Switch::NewcomersOvertake, "a first attempt does not look at the line", MANY),
    (Switch::SmallOvertakes, "a smaller want is served while the first does not fit", TURNS),
    (Switch::OwnNumberFirst, "a client keeps to its own number after another was set", LOWERED_3),
    (Switch::PickUpKeepsEnd, "permits that are picked up keep the end of the reservation", MANY),
    (
        Switch::GrantPassesNothingOn,
        "a grant that leaves permits passes nothing on",
        DEATHS_FALLBACK,
    ),
    (Switch::LeavingPassesNothingOn, "who leaves the line passes nothing on", CANCELS),
    (Switch::NumberIsNotTold, "who waits is not told of a larger number", RAISED),
    (Switch::StaysInLine, "the release of a dead id leaves its place", CANCELS),
    (
        Switch::DeadKeepOthersWaiting,
        "a place keeps others waiting, however long its client was not heard of",
        DEAD_PLACE,
    ),
    (Switch::AnnouncesNothing, "a reservation is not announced", MANY),
    (Switch::PlaceIsInherited, "the next caller goes on with the place of the last", CANCELS_2),
    (Switch::ValidityFromReply, "the validity of permits is counted from the answer", DELAYS),
    (Switch::OneReleaseOfDead, "an id that is over is released only once", UNKNOWN),
];

/// The model, with all that is explored of it.
pub(crate) fn model() -> Model {
    let within = |scope, switch| explore(&Permits { scope, switch }, LIMIT);
    Model::of("permits", SCOPES, RULES, |scope| scope.name, within)
}
