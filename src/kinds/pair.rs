//! A kind for tests that differs where it hurts: two may hold it at once, a release grants to nobody, and what a dead
//! hold id has left is removed by a script of its own.

use crate::backend::Script;
use crate::kinds::Scripts;
use crate::kinds::reentrant;

macro_rules! pair {
    ($name:literal) => {
        Script {
            name: concat!("pair/", $name),
            source: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pair/", $name, ".lua")),
        }
    };
}

static ACQUIRE: Script = pair!("acquire");
static RELEASE: Script = pair!("release");
static UNDO: Script = pair!("undo");
static RENEW: Script = pair!("renew");

/// What no test asks for is the reentrant lock's.
pub(crate) static SCRIPTS: Scripts = Scripts {
    acquire: &ACQUIRE,
    release: &RELEASE,
    undo: &UNDO,
    renew: &RENEW,
    release_many: &reentrant::RELEASE_MANY,
    release_at: &reentrant::RELEASE_AT,
    hand_off: &reentrant::HAND_OFF,
    inspect: &reentrant::INSPECT,
    force_release: &reentrant::FORCE_RELEASE,
};

#[cfg(feature = "in-memory")]
mod script_tests;
