//! The scripts of `lua/permit_expirable/`: the semaphore as Redisson's `RPermitExpirableSemaphore`
//! keeps it. The key of the name has how many permits are free, and nobody stands in a line.

pub(super) mod calls;

use std::sync::LazyLock;

use crate::backend::Script;

pub(crate) static ACQUIRE: LazyLock<Script> = script!(
    "permit_expirable/acquire",
    includes "semaphore/body/permits", "semaphore/body/other", "permit_expirable/body/other",
    "permit_expirable/body/slack", "permit_expirable/body/free", "permit_expirable/body/out",
    "read_write/body/next_token"
);
pub(crate) static RELEASE: LazyLock<Script> = script!(
    "permit_expirable/release",
    includes "semaphore/body/permits", "permit_expirable/body/free",
    "permit_expirable/body/give_back"
);
pub(crate) static RELEASE_AT: LazyLock<Script> = script!(
    "permit_expirable/release_at",
    includes "semaphore/body/permits", "permit_expirable/body/slack",
    "permit_expirable/body/free", "permit_expirable/body/give_back", "permit_expirable/body/move"
);
pub(crate) static RENEW: LazyLock<Script> = script!(
    "permit_expirable/renew",
    includes "semaphore/body/permits", "permit_expirable/body/slack", "permit_expirable/body/move"
);
pub(crate) static FORCE_RELEASE: LazyLock<Script> = script!(
    "permit_expirable/force_release",
    includes "semaphore/body/permits", "permit_expirable/body/free",
    "permit_expirable/body/give_back"
);
pub(crate) static SET_PERMITS: LazyLock<Script> = script!(
    "permit_expirable/set_permits",
    includes "semaphore/body/other", "permit_expirable/body/other", "permit_expirable/body/free",
    "permit_expirable/body/out", "latch/body/memory"
);
pub(crate) static INSPECT: LazyLock<Script> = script!(
    "permit_expirable/inspect",
    includes "semaphore/body/other", "permit_expirable/body/other", "permit_expirable/body/slack",
    "permit_expirable/body/free", "permit_expirable/body/out"
);

/// Every script, for tests.
#[cfg(all(test, repository))]
pub(crate) fn all() -> &'static [&'static Script] {
    static ALL: LazyLock<[&Script; 7]> = LazyLock::new(|| {
        [&ACQUIRE, &RELEASE, &RELEASE_AT, &RENEW, &FORCE_RELEASE, &SET_PERMITS, &INSPECT]
    });
    &*ALL
}

#[cfg(all(test, repository, feature = "in-memory"))]
mod script_tests;
