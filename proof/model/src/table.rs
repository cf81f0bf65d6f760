//! What is explored: the scopes, and which of them shows what a broken rule leads to.

use crate::explore::Outcome;
use crate::explore::explore;
use crate::leases::Leases;
use crate::leases::Scope as Lease;
use crate::switch::Switch;
use crate::wakeups::Scope as WakeUp;
use crate::wakeups::Wakeups;

/// More states than any scope has.
const LIMIT: usize = 3_000_000;

/// One scope of one of the models.
#[derive(Debug, Clone, Copy)]
pub enum Scope {
    /// Of the model of leases.
    Leases(Lease),
    /// Of the model of wake-ups.
    Wakeups(WakeUp),
}

impl Scope {
    /// For people.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Leases(scope) => scope.name,
            Self::Wakeups(scope) => scope.name,
        }
    }

    /// Explores it, with at most one rule broken.
    #[must_use]
    pub fn explore(self, switch: Option<Switch>) -> Outcome {
        match self {
            Self::Leases(scope) => explore(&Leases { scope, switch }, LIMIT),
            Self::Wakeups(scope) => explore(&Wakeups { scope, switch }, LIMIT),
        }
    }
}

const ATTEMPTS: Lease = Lease { name: "attempts", starts: &[2, 1], end: 5, unknown: 2, ..Lease::PLAIN };
const COPIES: Lease =
    Lease { name: "copies", starts: &[2, 1], end: 4, unknown: 1, copies: 1, cancels: 1, ..Lease::PLAIN };
const COUNTS: Lease =
    Lease { name: "counts", starts: &[1, 1], end: 5, unknown: 1, reentries: 2, renewals: 1, ..Lease::PLAIN };
const COUNTS_UNKNOWN: Lease =
    Lease { name: "counts unknown", starts: &[1, 1], end: 4, unknown: 2, reentries: 2, ..Lease::PLAIN };
const RENEWALS: Lease =
    Lease { name: "renewals", starts: &[1, 1], end: 7, unknown: 1, renewals: 3, ..Lease::PLAIN };
const HAND_OFFS: Lease =
    Lease { name: "hand-offs", starts: &[1, 1], end: 5, unknown: 2, hand_offs: 2, ..Lease::PLAIN };
const HAND_OFFS_AGAIN: Lease =
    Lease { name: "hand-offs again", starts: &[2], end: 5, unknown: 2, hand_offs: 2, ..Lease::PLAIN };
const FORCE: Lease = Lease {
    name: "force",
    starts: &[1, 1],
    end: 5,
    unknown: 1,
    reentries: 1,
    renewals: 1,
    forces: 1,
    ..Lease::PLAIN
};
const FORCE_AGAIN: Lease = Lease {
    name: "force again",
    starts: &[2, 0],
    end: 6,
    unknown: 2,
    renewals: 2,
    forces: 1,
    ..Lease::PLAIN
};
const MAX_HOLD: Lease = Lease {
    name: "max_hold",
    starts: &[1, 1],
    end: 7,
    unknown: 1,
    reentries: 1,
    renewals: 2,
    max_hold: true,
    ..Lease::PLAIN
};
const TOKENS: Lease = Lease {
    name: "tokens",
    starts: &[1, 1],
    end: 5,
    unknown: 1,
    hand_offs: 1,
    data_losses: 1,
    tokens: true,
    ..Lease::PLAIN
};
const THREE: Lease = Lease { name: "three clients", starts: &[1, 1, 1], end: 4, unknown: 1, ..Lease::PLAIN };

const ROLES: WakeUp = WakeUp {
    name: "roles",
    arrivals: &[2, 1],
    cancels: 1,
    cuts: 0,
    swallowed: 0,
    removals: 1,
    strangers: 0,
    timers: 0,
};
const MESSAGES: WakeUp = WakeUp { name: "messages", arrivals: &[1, 1], cuts: 1, ..ROLES };
const CONNECTIONS: WakeUp = WakeUp {
    name: "connections",
    arrivals: &[2],
    cancels: 1,
    cuts: 2,
    swallowed: 0,
    removals: 0,
    strangers: 2,
    timers: 1,
};
const SILENCE: WakeUp = WakeUp {
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
pub const SCOPES: [Scope; 16] = [
    Scope::Leases(ATTEMPTS),
    Scope::Leases(COPIES),
    Scope::Leases(COUNTS),
    Scope::Leases(COUNTS_UNKNOWN),
    Scope::Leases(RENEWALS),
    Scope::Leases(HAND_OFFS),
    Scope::Leases(HAND_OFFS_AGAIN),
    Scope::Leases(FORCE),
    Scope::Leases(FORCE_AGAIN),
    Scope::Leases(MAX_HOLD),
    Scope::Leases(TOKENS),
    Scope::Leases(THREE),
    Scope::Wakeups(ROLES),
    Scope::Wakeups(MESSAGES),
    Scope::Wakeups(CONNECTIONS),
    Scope::Wakeups(SILENCE),
];

/// A scope in which a broken rule shows.
#[must_use]
pub fn scope_of(switch: Switch) -> Scope {
    match switch {
        Switch::ValidityFromReply
        | Switch::IdsReused
        | Switch::NoNotAfter
        | Switch::OneCleanup
        | Switch::CleanupEndedByEqualTime
        | Switch::CleanupEndedByOtherTime
        | Switch::ForgottenAfterRefusal
        | Switch::ForgottenAfterGrant
        | Switch::ReleaseWithoutOwnField => Scope::Leases(ATTEMPTS),
        Switch::RepeatShortens | Switch::ReleaseComparesCounts | Switch::PlusOne => Scope::Leases(COUNTS),
        Switch::RenewCreates
        | Switch::RenewalsGoOn
        | Switch::RenewWithoutNotAfter
        | Switch::LateReplyRevives => Scope::Leases(RENEWALS),
        Switch::ForgottenAfterHandOff => Scope::Leases(HAND_OFFS_AGAIN),
        Switch::SameIdAfterUnknown => Scope::Leases(FORCE_AGAIN),
        Switch::ForceWithoutCompare => Scope::Leases(FORCE),
        Switch::NoMaxHoldCap => Scope::Leases(MAX_HOLD),
        Switch::TokenIsTime | Switch::TokenIsCounter => Scope::Leases(TOKENS),
        Switch::SubscribeWithoutRetry
        | Switch::PendingWakeUpDropped
        | Switch::RoleWithoutDuty
        | Switch::UndoDoesNotPublish
        | Switch::LocalLossWakesNobody => Scope::Wakeups(ROLES),
        Switch::NoWakeOnResubscribe | Switch::StaleConfirmation => Scope::Wakeups(CONNECTIONS),
        Switch::NoTimerBeforeConfirmation => Scope::Wakeups(SILENCE),
    }
}
