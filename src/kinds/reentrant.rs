//! The scripts of `lua/reentrant/`.

use std::sync::LazyLock;

use crate::backend::BatchScript;
use crate::backend::BatchableScript;
use crate::backend::Script;
use crate::kinds::Scripts;

pub(crate) static ACQUIRE: Script = script!("reentrant/acquire", includes "reentrant/body/acquire");
pub(crate) static RELEASE: Script = script!("reentrant/release", includes "reentrant/body/release");
pub(crate) static RELEASE_MANY: Script = script!("reentrant/release_many");
pub(crate) static RELEASE_AT: Script = script!("reentrant/release_at");
pub(crate) static RENEW: Script = script!("reentrant/renew");
pub(crate) static HAND_OFF: Script = script!("reentrant/hand_off");
pub(crate) static INSPECT: Script = script!("reentrant/inspect");
pub(crate) static FORCE_RELEASE: Script = script!("reentrant/force_release");

/// Runs several acquires and releases. It includes the same bodies as their own scripts.
static SEVERAL: LazyLock<Script> = LazyLock::new(|| {
    let Script { name, source } = script!("several/reentrant");
    let source = source
        .replace(include_line!("reentrant/body/acquire"), included!("reentrant/body/acquire"))
        .replace(include_line!("reentrant/body/release"), included!("reentrant/body/release"));
    Script { name, source: source.leak() }
});

/// Which calls may be run together.
pub(crate) fn several() -> BatchScript {
    static OF: [BatchableScript; 2] = [
        BatchableScript { script: &ACQUIRE, mark: 'a', common: &[1, 2, 3] },
        BatchableScript { script: &RELEASE, mark: 'r', common: &[1, 3] },
    ];
    BatchScript { script: &SEVERAL, of: &OF }
}

pub(crate) static SCRIPTS: Scripts = Scripts {
    acquire: &ACQUIRE,
    release: &RELEASE,
    undo: &RELEASE,
    release_many: &RELEASE_MANY,
    release_at: &RELEASE_AT,
    renew: &RENEW,
    hand_off: &HAND_OFF,
    inspect: &INSPECT,
    force_release: &FORCE_RELEASE,
};

/// Every script, for tests.
#[cfg(any(test, fuzzing))]
pub(crate) static ALL: [&Script; 8] =
    [&ACQUIRE, &RELEASE, &RELEASE_MANY, &RELEASE_AT, &RENEW, &HAND_OFF, &INSPECT, &FORCE_RELEASE];

#[cfg(all(test, feature = "in-memory"))]
mod script_tests;
