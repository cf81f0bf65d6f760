//! The scripts of `lua/read_write/`.

pub(super) mod calls;

use std::sync::LazyLock;

use crate::backend::Script;

pub(crate) static ACQUIRE: LazyLock<Script> = script!(
    "read_write/acquire",
    includes "read_write/body/next_token", "read_write/body/reserve_readers",
        "read_write/body/pass_on", "read_write/body/holds_of", "read_write/body/other_hash"
);
pub(crate) static RELEASE: LazyLock<Script> = script!(
    "read_write/release",
    includes "read_write/body/look", "read_write/body/give_up", "read_write/body/go_next",
        "read_write/body/announce", "read_write/body/reserve_readers", "read_write/body/pass_on"
);
pub(crate) static RELEASE_AT: LazyLock<Script> = script!(
    "read_write/release_at",
    includes "read_write/body/look", "read_write/body/give_up", "read_write/body/go_next",
        "read_write/body/announce", "read_write/body/reserve_readers", "read_write/body/pass_on"
);
pub(crate) static DOWNGRADE: LazyLock<Script> =
    script!("read_write/downgrade", includes "read_write/body/reserve_readers");
pub(crate) static RENEW: Script = script!("read_write/renew");
pub(crate) static UPGRADE: LazyLock<Script> = script!(
    "read_write/upgrade",
    includes "read_write/body/next_token", "read_write/body/holds_of"
);
pub(crate) static INSPECT: LazyLock<Script> = script!(
    "read_write/inspect",
    includes "read_write/body/holds_of", "read_write/body/other_hash"
);
pub(crate) static FORCE_RELEASE: LazyLock<Script> = script!(
    "read_write/force_release",
    includes "read_write/body/look", "read_write/body/give_up", "read_write/body/go_next",
        "read_write/body/announce", "read_write/body/reserve_readers", "read_write/body/pass_on"
);

#[cfg(all(test, repository))]
fn all() -> &'static [&'static Script] {
    static ALL: LazyLock<[&Script; 8]> = LazyLock::new(|| {
        [&ACQUIRE, &RELEASE, &RELEASE_AT, &DOWNGRADE, &RENEW, &UPGRADE, &INSPECT, &FORCE_RELEASE]
    });
    &*ALL
}

#[cfg(all(test, repository, feature = "in-memory"))]
mod script_tests;
