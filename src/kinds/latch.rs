//! The scripts of `lua/latch/`. A latch has no holds: its operations are done once each, whatever
//! becomes of their commands.

use std::sync::LazyLock;

use crate::backend::Script;
use crate::base::name::WireProfile;
use crate::kinds::operation::Change;

pub(crate) static COUNT_DOWN: LazyLock<Script> =
    script!("latch/count_down", includes "latch/body/count", "latch/body/memory");
pub(crate) static TRY_SET_COUNT: LazyLock<Script> = script!("latch/try_set_count", includes "latch/body/count", "latch/body/memory", "latch/body/say");
static DELETE: LazyLock<Script> =
    script!("latch/delete", includes "latch/body/count", "latch/body/memory", "latch/body/say");
pub(super) static LOOK: LazyLock<Script> = script!("latch/look", includes "latch/body/count");

/// `None`: it is not about a latch.
pub(super) fn script_of(change: Change) -> Option<&'static Script> {
    Some(match change {
        Change::CountDown => &COUNT_DOWN,
        Change::SetCount { .. } => &TRY_SET_COUNT,
        Change::Delete => &DELETE,
        Change::SetPermits { .. } | Change::AddPermits { .. } => return None,
    })
}

/// The type of its key.
pub(super) fn format(profile: WireProfile) -> &'static str {
    match profile {
        WireProfile::Native => "hash",
        WireProfile::Redisson => "string",
    }
}

/// What makes its key no latch, as its scripts number it.
pub(super) fn conflict(what: i64) -> Option<&'static str> {
    Some(match what {
        1 => "a value of another type than a count-down latch of this profile has",
        2 => "a hash that is no count-down latch",
        3 => "a read-write lock",
        4 => "a semaphore",
        5 => "a count-down latch whose count is not a whole number",
        6 => "a lock",
        7 => "a count-down latch of the profile `Native`",
        _ => return None,
    })
}

#[cfg(all(test, feature = "in-memory"))]
mod script_tests;
