//! The scripts of `lua/latch/`. A latch has no holds: its operations are done once each, whatever
//! becomes of their commands.

use std::sync::LazyLock;

use crate::backend::Script;

static COUNT_DOWN: LazyLock<Script> =
    script!("latch/count_down", includes "latch/body/count", "latch/body/memory");
static TRY_SET_COUNT: LazyLock<Script> =
    script!("latch/try_set_count", includes "latch/body/count", "latch/body/memory");
static DELETE: LazyLock<Script> =
    script!("latch/delete", includes "latch/body/count", "latch/body/memory");
static LOOK: LazyLock<Script> = script!("latch/look", includes "latch/body/count");

#[cfg(feature = "in-memory")]
mod script_tests;
