//! The scripts of `lua/fair/`. The key of the lock is that of a reentrant lock, and what the line
//! does not matter to is done by the scripts of that one.

use std::sync::LazyLock;

use crate::backend::Script;
use crate::kinds::Scripts;
use crate::kinds::reentrant;

pub(crate) static ACQUIRE: LazyLock<Script> = script!(
    "fair/acquire",
    includes "reentrant/body/arguments", "reentrant/body/look", "reentrant/body/reserve",
        "reentrant/body/wait", "fair/body/pass_on", "reentrant/body/grant"
);
pub(crate) static RELEASE: LazyLock<Script> = script!(
    "fair/release",
    includes "reentrant/body/reserve", "fair/body/pass_on", "fair/body/release",
        "reentrant/body/given_arguments", "reentrant/body/give_up", "reentrant/body/given_up"
);
pub(crate) static UNDO: LazyLock<Script> = script!(
    "fair/undo",
    includes "reentrant/body/reserve", "fair/body/pass_on", "fair/body/release",
        "reentrant/body/given_arguments", "reentrant/body/give_up", "reentrant/body/given_up"
);
pub(crate) static RELEASE_AT: LazyLock<Script> = script!(
    "fair/release_at",
    includes "reentrant/body/reserve", "fair/body/pass_on", "fair/body/freed",
        "reentrant/body/release_at"
);
pub(crate) static FORCE_RELEASE: LazyLock<Script> = script!(
    "fair/force_release",
    includes "reentrant/body/reserve", "fair/body/pass_on", "fair/body/freed",
        "reentrant/body/force_release"
);

/// Holds are not released together, nor handed over: whose turn it is the line says.
pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: &ACQUIRE,
    release: &RELEASE,
    undo: &UNDO,
    release_many: &reentrant::RELEASE_MANY,
    release_at: &RELEASE_AT,
    renew: &reentrant::RENEW,
    hand_off: &reentrant::HAND_OFF,
    inspect: &reentrant::INSPECT,
    force_release: &FORCE_RELEASE,
});

/// Every script of its own, for tests.
#[cfg(all(test, repository))]
pub(crate) fn all() -> &'static [&'static Script] {
    static ALL: LazyLock<[&Script; 5]> =
        LazyLock::new(|| [&ACQUIRE, &RELEASE, &UNDO, &RELEASE_AT, &FORCE_RELEASE]);
    &*ALL
}

#[cfg(all(test, repository, feature = "in-memory"))]
mod script_tests;
