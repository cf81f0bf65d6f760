//! A kind for tests that differs where it hurts: two may hold it at once, a release grants to
//! nobody, and what a dead hold id has left is removed by a script of its own.

use std::sync::LazyLock;

use crate::backend::Script;
use crate::kinds::Scripts;
use crate::kinds::reentrant;

macro_rules! pair {
    ($name:literal) => {
        Script {
            name: concat!("pair/", $name),
            source: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/pair/",
                $name,
                ".lua"
            )),
        }
    };
}

static ACQUIRE: Script = pair!("acquire");
static RELEASE: Script = pair!("release");
static UNDO: Script = pair!("undo");
static RENEW: Script = pair!("renew");
static RELEASE_MANY: Script = pair!("release_many");
static RELEASE_AT: Script = pair!("release_at");
static INSPECT: Script = pair!("inspect");
static FORCE_RELEASE: Script = pair!("force_release");

/// The hand-off is never sent.
pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: &ACQUIRE,
    release: &RELEASE,
    undo: &UNDO,
    renew: &RENEW,
    release_many: &RELEASE_MANY,
    release_at: &RELEASE_AT,
    hand_off: &reentrant::HAND_OFF,
    inspect: &INSPECT,
    force_release: &FORCE_RELEASE,
});

#[cfg(feature = "in-memory")]
mod script_tests;
