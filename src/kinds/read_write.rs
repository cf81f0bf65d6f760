//! The scripts of `lua/read_write/`, which no client sends yet.

use std::sync::LazyLock;

use crate::backend::Script;

static ACQUIRE: LazyLock<Script> = script!(
    "read_write/acquire",
    includes "read_write/body/next_token", "read_write/body/reserve_readers",
        "read_write/body/pass_on", "read_write/body/holds_of"
);
static RELEASE: LazyLock<Script> = script!(
    "read_write/release",
    includes "read_write/body/reserve_readers", "read_write/body/pass_on"
);
static DOWNGRADE: LazyLock<Script> =
    script!("read_write/downgrade", includes "read_write/body/reserve_readers");
static RENEW: Script = script!("read_write/renew");
static UPGRADE: LazyLock<Script> = script!(
    "read_write/upgrade",
    includes "read_write/body/next_token", "read_write/body/holds_of"
);

fn all() -> &'static [&'static Script] {
    static ALL: LazyLock<[&Script; 5]> =
        LazyLock::new(|| [&ACQUIRE, &RELEASE, &DOWNGRADE, &RENEW, &UPGRADE]);
    &*ALL
}

mod script_tests;
