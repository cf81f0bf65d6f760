//! The scripts of `lua/reentrant/`.

use std::sync::LazyLock;

use crate::backend::BatchScript;
use crate::backend::BatchableScript;
use crate::backend::Script;
use crate::kinds::Scripts;

pub(crate) static ACQUIRE: LazyLock<Script> = script!(
    "reentrant/acquire",
    includes "reentrant/body/acquire", "reentrant/body/arguments", "reentrant/body/look",
        "reentrant/body/reserve", "reentrant/body/wait", "reentrant/body/grant"
);
pub(crate) static RELEASE: LazyLock<Script> = script!(
    "reentrant/release",
    includes "reentrant/body/release", "reentrant/body/given_arguments", "reentrant/body/give_up",
        "reentrant/body/reserve", "reentrant/body/given_up"
);
pub(crate) static RELEASE_MANY: LazyLock<Script> =
    script!("reentrant/release_many", includes "reentrant/body/reserve", "reentrant/body/pass_on");
pub(crate) static RELEASE_AT: LazyLock<Script> = script!(
    "reentrant/release_at",
    includes "reentrant/body/reserve", "reentrant/body/pass_on", "reentrant/body/release_at"
);
pub(crate) static RENEW: Script = script!("reentrant/renew");
pub(crate) static HAND_OFF: LazyLock<Script> = script!(
    "reentrant/hand_off",
    includes "reentrant/body/reserve", "reentrant/body/pass_on", "reentrant/body/wait"
);
pub(crate) static INSPECT: Script = script!("reentrant/inspect");
/// Of a lock on several servers.
pub(crate) static RAISE: Script = script!("reentrant/raise");
pub(crate) static FORCE_RELEASE: LazyLock<Script> = script!(
    "reentrant/force_release",
    includes "reentrant/body/reserve", "reentrant/body/pass_on", "reentrant/body/force_release"
);

/// Runs several acquires and releases. It includes the same bodies as their own scripts.
static SEVERAL: LazyLock<Script> = script!(
    "several/reentrant",
    includes "reentrant/body/acquire", "reentrant/body/arguments", "reentrant/body/look",
        "reentrant/body/release", "reentrant/body/given_arguments", "reentrant/body/give_up",
        "reentrant/body/reserve", "reentrant/body/wait", "reentrant/body/grant",
        "reentrant/body/given_up"
);

/// Which calls may be run together: of a client that names lines, those that name the line; else
/// those that do not.
pub(crate) fn several(lines: bool) -> BatchScript {
    static OF: LazyLock<[[BatchableScript; 2]; 2]> = LazyLock::new(|| {
        [0, 1].map(|line| {
            [
                BatchableScript {
                    script: &ACQUIRE,
                    mark: 'a',
                    keys: 2 + line,
                    args: 7,
                    common: &[1, 2, 3, 4, 5, 6],
                },
                BatchableScript {
                    script: &RELEASE,
                    mark: 'r',
                    keys: 1 + line,
                    args: 4,
                    common: &[1, 3],
                },
            ]
        })
    });
    let begin = if lines { '+' } else { '-' };
    BatchScript { script: &SEVERAL, begin, of: &OF[usize::from(lines)] }
}

pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: &ACQUIRE,
    release: &RELEASE,
    undo: &RELEASE,
    release_many: &RELEASE_MANY,
    release_at: &RELEASE_AT,
    renew: &RENEW,
    hand_off: &HAND_OFF,
    inspect: &INSPECT,
    force_release: &FORCE_RELEASE,
});

/// Every script, for tests.
#[cfg(any(test, fuzzing))]
pub(crate) fn all() -> &'static [&'static Script] {
    static ALL: LazyLock<[&Script; 9]> = LazyLock::new(|| {
        [
            &ACQUIRE,
            &RELEASE,
            &RELEASE_MANY,
            &RELEASE_AT,
            &RENEW,
            &HAND_OFF,
            &INSPECT,
            &RAISE,
            &FORCE_RELEASE,
        ]
    });
    &*ALL
}

#[cfg(all(test, feature = "in-memory"))]
pub(in crate::kinds) mod script_tests;
