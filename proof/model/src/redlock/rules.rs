//! What is explored of Redlock, and the rules that can be broken.

use crate::explore::explore;
use crate::redlock::Redlock;
use crate::redlock::Scope;
use crate::table::LIMIT;
use crate::table::Model;

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    CountsAtOnce,
    RaisesNothing,
    RaiseCountsWhenSent,
    OneIsEnough,
    ReleasesOnlyWhatAnswered,
    ReleasesOnce,
    MayBeLate,
    AllAtOnceAgain,
    WaitsOnlyAtFirst,
    NobodyLooksAgain,
    EachItsOwnOrder,
    KeepsWhileItWaits,
    ComesBack,
}

const TWO: Scope = Scope {
    name: "two clients",
    starts: &[1, 1],
    end: 3,
    faults: 0,
    crashes: 0,
    losses: 0,
    renewals: 0,
    again: 0,
    rounds: 1,
    ahead: [0; 3],
    tokens: false,
};
const TWO_LONG: Scope = Scope { name: "two clients, longer", end: 4, ..TWO };
const FAULTS: Scope = Scope { name: "a fault", end: 2, faults: 1, rounds: 0, ..TWO };
const RESTART: Scope = Scope { name: "lost data", end: 3, losses: 1, rounds: 0, ..TWO };
const RENEWALS: Scope = Scope { name: "renewals", end: 5, renewals: 2, rounds: 0, ..TWO };
const MINORITY: Scope =
    Scope { name: "asked again", end: 2, losses: 1, again: 1, rounds: 0, ..TWO };
const ALONE: Scope = Scope {
    name: "a loss",
    starts: &[1],
    end: 4,
    losses: 2,
    renewals: 2,
    again: 2,
    rounds: 0,
    ..TWO
};
const ROUNDS: Scope = Scope { name: "rounds", end: 2, rounds: 3, ..TWO };
const ROUNDS_DOWN: Scope = Scope { name: "a crash", end: 1, crashes: 1, rounds: 2, ..TWO };
const THREE: Scope = Scope { name: "three clients", starts: &[1, 1, 1], end: 1, ..TWO };
const TOKENS: Scope =
    Scope { name: "tokens", end: 2, rounds: 1, ahead: [8, 0, 0], tokens: true, ..TWO };
const TOKENS_LATE: Scope = Scope { name: "tokens, late", end: 3, ..TOKENS };
const TOKENS_PLAIN: Scope = Scope { name: "tokens, no fault", end: 2, rounds: 0, ..TOKENS };
const CROSSED: Scope = Scope { name: "crossed", end: 1, rounds: 3, ..TWO };
const TOKENS_FAULTS: Scope =
    Scope { name: "tokens, a fault", end: 2, faults: 1, rounds: 0, ..TOKENS };
const TOKENS_AGAIN: Scope =
    Scope { name: "tokens, asked again", end: 2, again: 1, rounds: 0, ..TOKENS };

const SCOPES: &[Scope] = &[
    TWO,
    FAULTS,
    RESTART,
    RENEWALS,
    MINORITY,
    ALONE,
    ROUNDS,
    ROUNDS_DOWN,
    THREE,
    TOKENS,
    TOKENS_FAULTS,
    TOKENS_AGAIN,
];

const RULES: &[(Switch, &str, Scope)] = &[
    (Switch::CountsAtOnce, "a server counts as soon as it has started", RESTART),
    (Switch::RaisesNothing, "the token of a hold is raised nowhere", TOKENS),
    (Switch::RaiseCountsWhenSent, "a raised token counts when it is sent", TOKENS_PLAIN),
    (Switch::OneIsEnough, "a hold is valid as long as one of its servers", RENEWALS),
    (Switch::ReleasesOnlyWhatAnswered, "servers that did not answer are not released", FAULTS),
    (Switch::ReleasesOnce, "the first answer to a release is enough", TWO),
    (Switch::MayBeLate, "an acquire may be executed at any time", TWO_LONG),
    (Switch::AllAtOnceAgain, "after a failure all servers are asked at once again", CROSSED),
    (Switch::WaitsOnlyAtFirst, "nobody waits at a server but the first", ROUNDS),
    (
        Switch::NobodyLooksAgain,
        "nobody looks whether the hold is still valid in the end",
        TOKENS_LATE,
    ),
    (Switch::EachItsOwnOrder, "each client takes the servers in an order of its own", ROUNDS_DOWN),
    (Switch::KeepsWhileItWaits, "what was granted at once is kept while it waits", THREE),
    (Switch::ComesBack, "a hold without a majority comes back", ALONE),
];

pub(crate) fn model() -> Model {
    Model::of(
        "redlock",
        SCOPES,
        RULES,
        |scope| scope.name,
        |scope, switch| explore(&Redlock { scope, switch }, LIMIT),
    )
}
