//! The scripts of `lua/semaphore/`.

pub(super) mod calls;

use std::sync::LazyLock;

use crate::backend::Script;

pub(crate) static ACQUIRE: LazyLock<Script> = script!(
    "semaphore/acquire",
    includes "semaphore/body/permits", "semaphore/body/take", "semaphore/body/pass_on", "semaphore/body/other",
    "semaphore/body/look"
);
pub(crate) static RELEASE: LazyLock<Script> = script!(
    "semaphore/release",
    includes "semaphore/body/permits", "semaphore/body/take", "semaphore/body/give_up", "semaphore/body/pass_on"
);
pub(crate) static RELEASE_AT: LazyLock<Script> = script!(
    "semaphore/release_at",
    includes "semaphore/body/permits", "semaphore/body/take", "semaphore/body/give_up"
);
pub(crate) static RENEW: LazyLock<Script> =
    script!("semaphore/renew", includes "semaphore/body/permits", "semaphore/body/take");
pub(crate) static FORCE_RELEASE: LazyLock<Script> = script!(
    "semaphore/force_release",
    includes "semaphore/body/permits", "semaphore/body/give_up"
);
pub(crate) static SET_PERMITS: LazyLock<Script> = script!(
    "semaphore/set_permits",
    includes "semaphore/body/other", "semaphore/body/look", "latch/body/memory"
);
pub(crate) static INSPECT: LazyLock<Script> =
    script!("semaphore/inspect", includes "semaphore/body/other");

/// Every script, for tests.
#[cfg(all(test, repository))]
pub(crate) fn all() -> &'static [&'static Script] {
    static ALL: LazyLock<[&Script; 7]> = LazyLock::new(|| {
        [&ACQUIRE, &RELEASE, &RELEASE_AT, &RENEW, &FORCE_RELEASE, &SET_PERMITS, &INSPECT]
    });
    &*ALL
}

#[cfg(all(test, repository, feature = "in-memory"))]
pub(super) mod script_tests;
