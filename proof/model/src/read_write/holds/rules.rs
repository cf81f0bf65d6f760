//! What is explored of the model of holds: its scopes, and its rules, each of which can be broken
//! alone.

use crate::explore::explore;
use crate::read_write::holds::Holds;
use crate::read_write::holds::Scope;
use crate::table::LIMIT;
use crate::table::Model;

/// A rule, broken. What is done instead is in `RULES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    WantNeedsNoWrite,
    KeepNeedsNoWrite,
    UpgradeKeepsId,
    UpgradeIgnoresReaders,
    RenewalForgetsTimeout,
    DowngradeKeepsTimeout,
    DowngradeInTwoScripts,
    WriterUntilAnswer,
    DeadReadersStay,
    NoNotAfter,
    OneUndo,
    UndoLeavesTimeout,
    NoUndo,
    ReadReleaseShortens,
}

const COUNTS: Scope = Scope {
    name: "counts",
    starts: &[1, 1],
    reads: &[true, true],
    writes: &[true, false],
    end: 3,
    unknown: 1,
    operations: 3,
    ..Scope::PLAIN
};
const UPGRADES: Scope = Scope {
    name: "upgrades",
    starts: &[1, 1],
    reads: &[true, true],
    writes: &[false, false],
    end: 3,
    unknown: 1,
    upgrades: 1,
    ..Scope::PLAIN
};
const UPGRADE_BESIDE: Scope = Scope {
    name: "upgrade, others",
    starts: &[1, 1],
    reads: &[true, true],
    writes: &[false, true],
    end: 3,
    upgrades: 1,
    ..Scope::PLAIN
};
const LEASES: Scope = Scope {
    name: "leases of readers",
    starts: &[1, 1, 1],
    reads: &[true, true, false],
    writes: &[false, false, true],
    end: 6,
    prompt: true,
    renewals: 2,
    deaths: 1,
    ..Scope::PLAIN
};
const ATTEMPTS: Scope = Scope {
    name: "attempts",
    starts: &[2, 1],
    reads: &[true, false],
    writes: &[true, true],
    end: 3,
    unknown: 1,
    ..Scope::PLAIN
};
const DOWNGRADES: Scope = Scope {
    name: "downgrades",
    starts: &[1, 1],
    reads: &[false, false],
    writes: &[true, true],
    end: 4,
    operations: 2,
    renewals: 1,
    ..Scope::PLAIN
};

/// In each of these the correct protocol is explored to the end.
const SCOPES: &[Scope] = &[COUNTS, UPGRADES, UPGRADE_BESIDE, LEASES, ATTEMPTS, DOWNGRADES];

/// What is done instead of what the rule says, and a scope in which that shows.
const RULES: &[(Switch, &str, Scope)] = &[
    (
        Switch::WantNeedsNoWrite,
        "a re-entry that writes needs a field of its own, but no write",
        COUNTS,
    ),
    (Switch::KeepNeedsNoWrite, "a partial release that keeps a write needs none", COUNTS),
    (Switch::UpgradeKeepsId, "an upgrade gives the write to the id that reads", UPGRADES),
    (Switch::UpgradeIgnoresReaders, "an upgrade ignores other readers", UPGRADE_BESIDE),
    (Switch::RenewalForgetsTimeout, "a renewal extends the lock, not the timeout key", LEASES),
    (Switch::DowngradeKeepsTimeout, "a downgrade leaves the timeout key as it is", DOWNGRADES),
    (Switch::DowngradeInTwoScripts, "a downgrade gives the write up, then reads", DOWNGRADES),
    (
        Switch::WriterUntilAnswer,
        "an owner counts as writer until its downgrade is answered",
        DOWNGRADES,
    ),
    (Switch::DeadReadersStay, "a writer never removes dead readers", LEASES),
    (Switch::NoNotAfter, "attempts on a read-write lock carry no not_after", ATTEMPTS),
    (Switch::OneUndo, "a reader's or writer's id that is over is undone once", ATTEMPTS),
    (Switch::UndoLeavesTimeout, "an undo removes the field, not the timeout key", ATTEMPTS),
    (Switch::NoUndo, "a reader's or writer's id that is over is not undone", ATTEMPTS),
    (Switch::ReadReleaseShortens, "a reader's release sets the lock to a shorter lease", LEASES),
];

/// The model, with all that is explored of it.
pub(crate) fn model() -> Model {
    let within = |scope, switch| explore(&Holds { scope, switch }, LIMIT);
    Model::of("rw holds", SCOPES, RULES, |scope| scope.name, within)
}
