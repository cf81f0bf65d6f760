//! What is explored of the model of leases: its scopes, and its rules, each of which can be broken
//! alone.

use crate::explore::explore;
use crate::leases::Leases;
use crate::leases::Scope;
use crate::table::LIMIT;
use crate::table::Model;

/// A rule, broken. What is done instead is in `RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    ValidityFromReply,
    IdsReused,
    RepeatShortens,
    NoNotAfter,
    OneCleanup,
    CleanupEndedByEqualTime,
    CleanupEndedByOtherTime,
    ForgottenAfterRefusal,
    ForgottenAfterGrant,
    ForgottenAfterHandOff,
    SameIdAfterUnknown,
    RenewCreates,
    ReleaseComparesCounts,
    RenewalsGoOn,
    RenewWithoutNotAfter,
    NoMaxHoldCap,
    ReleaseWithoutOwnField,
    ForceWithoutCompare,
    LateReplyRevives,
    PlusOne,
    TokenIsTime,
    TokenIsCounter,
}

const ATTEMPTS: Scope =
    Scope { name: "attempts", starts: &[2, 1], end: 5, unknown: 2, ..Scope::PLAIN };

const COPIES: Scope = Scope {
    name: "copies",
    starts: &[2, 1],
    end: 4,
    unknown: 1,
    copies: 1,
    cancels: 1,
    ..Scope::PLAIN
};

const COUNTS: Scope = Scope {
    name: "counts",
    starts: &[1, 1],
    end: 5,
    unknown: 1,
    reentries: 2,
    renewals: 1,
    ..Scope::PLAIN
};

const COUNTS_UNKNOWN: Scope = Scope {
    name: "counts unknown",
    starts: &[1, 1],
    end: 4,
    unknown: 2,
    reentries: 2,
    ..Scope::PLAIN
};

const RENEWALS: Scope =
    Scope { name: "renewals", starts: &[1, 1], end: 7, unknown: 1, renewals: 3, ..Scope::PLAIN };

const HAND_OFFS: Scope =
    Scope { name: "hand-offs", starts: &[1, 1], end: 5, unknown: 2, hand_offs: 2, ..Scope::PLAIN };

const HAND_OFFS_AGAIN: Scope = Scope {
    name: "hand-offs again",
    starts: &[2],
    end: 5,
    unknown: 2,
    hand_offs: 2,
    ..Scope::PLAIN
};

const FORCE: Scope = Scope {
    name: "force",
    starts: &[1, 1],
    end: 5,
    unknown: 1,
    reentries: 1,
    renewals: 1,
    forces: 1,
    ..Scope::PLAIN
};

const FORCE_AGAIN: Scope = Scope {
    name: "force again",
    starts: &[2, 0],
    end: 6,
    unknown: 2,
    renewals: 2,
    forces: 1,
    ..Scope::PLAIN
};

const MAX_HOLD: Scope = Scope {
    name: "max_hold",
    starts: &[1, 1],
    end: 7,
    unknown: 1,
    reentries: 1,
    renewals: 2,
    max_hold: true,
    ..Scope::PLAIN
};

const TOKENS: Scope = Scope {
    name: "tokens",
    starts: &[1, 1],
    end: 5,
    unknown: 1,
    hand_offs: 1,
    data_losses: 1,
    tokens: true,
    ..Scope::PLAIN
};

const THREE: Scope =
    Scope { name: "three clients", starts: &[1, 1, 1], end: 4, unknown: 1, ..Scope::PLAIN };

/// In each of these the correct protocol is explored to the end.
const SCOPES: &[Scope] = &[
    ATTEMPTS,
    COPIES,
    COUNTS,
    COUNTS_UNKNOWN,
    RENEWALS,
    HAND_OFFS,
    HAND_OFFS_AGAIN,
    FORCE,
    FORCE_AGAIN,
    MAX_HOLD,
    TOKENS,
    THREE,
];

/// What is done instead of what the rule says, and a scope in which that shows.
const RULES: &[(Switch, &str, Scope)] = &[
    (Switch::ValidityFromReply, "validity is counted from the reply", ATTEMPTS),
    (Switch::IdsReused, "hold ids are used again", ATTEMPTS),
    (Switch::RepeatShortens, "a repeat shortens the time to live", COUNTS),
    (Switch::NoNotAfter, "attempts carry no not_after", ATTEMPTS),
    (Switch::OneCleanup, "release(0) of a dead id is not repeated", ATTEMPTS),
    (Switch::CleanupEndedByEqualTime, "a clean-up is ended by a TIME equal to not_after", ATTEMPTS),
    (Switch::CleanupEndedByOtherTime, "a clean-up is ended by another command's TIME", ATTEMPTS),
    (Switch::ForgottenAfterRefusal, "an unknown attempt is forgotten after a refusal", ATTEMPTS),
    (Switch::ForgottenAfterGrant, "an unknown attempt is forgotten after a grant", ATTEMPTS),
    (
        Switch::ForgottenAfterHandOff,
        "an unknown attempt is forgotten after a hand-off",
        HAND_OFFS_AGAIN,
    ),
    (
        Switch::SameIdAfterUnknown,
        "the same hold id is sent again after an unknown attempt",
        FORCE_AGAIN,
    ),
    (Switch::RenewCreates, "a renew creates the key", RENEWALS),
    (Switch::ReleaseComparesCounts, "a release compares counts", COUNTS),
    (Switch::RenewalsGoOn, "renewals go on after the release is sent", RENEWALS),
    (Switch::RenewWithoutNotAfter, "a renew carries no not_after", RENEWALS),
    (Switch::NoMaxHoldCap, "leases are not capped by max_hold", MAX_HOLD),
    (Switch::ReleaseWithoutOwnField, "a release does not look for its own field", ATTEMPTS),
    (Switch::ForceWithoutCompare, "a force-release does not compare", FORCE),
    (Switch::LateReplyRevives, "a late reply revives a hold", RENEWALS),
    (Switch::PlusOne, "counts are sent as +1 and -1", COUNTS),
    (Switch::TokenIsTime, "the token is the time alone", TOKENS),
    (Switch::TokenIsCounter, "the token is a counter alone", TOKENS),
];

/// The model, with all that is explored of it.
pub(crate) fn model() -> Model {
    let within = |scope, switch| explore(&Leases { scope, switch }, LIMIT);
    Model::of("leases", SCOPES, RULES, |scope| scope.name, within)
}
